//! Write amplification of each placement mode, exactly: a recording of what a program did to its files, played through
//! the file core on a device in memory. The order of events is the recording's in every mode, so nothing but
//! placement differs; a run of the program itself differs each time.
//!
//! ```text
//! cargo run --release -p weft-lfs --example replay -- RECORDING...
//! ```
//!
//! A recording is what `weft_placement::sim::Workload::parse` reads. Without one, leveled compaction is generated.

// A table on the terminal is what this program is for.
#![allow(clippy::print_stdout)]

use rustc_hash::FxHashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use weft_core::units::format_size;
use weft_core::{BLOCK_BYTES, Ino};
use weft_device::{Geometry, ZonedDevice, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, MountOptions};
use weft_placement::sim::lsm::{LsmShape, leveled};
use weft_placement::sim::{Event, Workload};
use weft_placement::{Engine, FileContext, Mode, OpenIntent, WriteHint};
use weft_vfs::{CreateArgs, FileSystem, NewNode};

/// Data goes to the core in pieces of this size, as from an append ring.
const PIECE_BYTES: u64 = 256 << 10;
/// The core's background work is done once per this many bytes.
const TICK_BYTES: u64 = 4 << 20;

struct File {
    ino: Ino,
    context: (Vec<u8>, String, String, u32, OpenIntent),
    size: u64,
    pending: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("| workload | peak | zone | full at the peak | zones | off | random | suffix | rules |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let recordings: Vec<String> = std::env::args().skip(1).collect();
    if recordings.is_empty() {
        table("generated", &leveled(LsmShape::default()))?;
    }
    for path in &recordings {
        let workload = Workload::parse(&std::fs::read_to_string(path)?, "db_bench")?;
        let name = std::path::Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        table(&name, &workload)?;
    }
    Ok(())
}

fn table(name: &str, workload: &Workload) -> Result<(), Box<dyn Error>> {
    let peak = workload.live_peak_bytes();
    for zone_bytes in [4u64 << 20, 8 << 20] {
        for utilisation in [0.8, 0.9] {
            let zones = zones_for((peak as f64 / utilisation) as u64, zone_bytes)?;
            let mut cells = Vec::new();
            for mode in Mode::ALL {
                cells.push(match replay(workload, zones, zone_bytes, mode) {
                    Ok(waf) => format!("{waf:.3}"),
                    Err(error) => error.to_string(),
                });
            }
            println!(
                "| {name} | {} | {} | {:.0} % | {zones} | {} |",
                format_size(peak),
                format_size(zone_bytes),
                utilisation * 100.0,
                cells.join(" | ")
            );
        }
    }
    Ok(())
}

fn volume(zones: u64, zone_bytes: u64) -> Result<(Arc<ZonedModel>, Lfs), Box<dyn Error>> {
    let geometry = Geometry::preset("zn540")?.with_size(zones * zone_bytes).with_zone_bytes(zone_bytes);
    let device = Arc::new(ZonedModel::memory(&geometry)?);
    Lfs::format(device.clone(), &FormatOptions::default())?;
    let lfs = Lfs::mount(device.clone(), MountOptions::default())?;
    Ok((device, lfs))
}

/// Fewest zones in which programs can store so many bytes.
fn zones_for(bytes: u64, zone_bytes: u64) -> Result<u64, Box<dyn Error>> {
    let mut zones = bytes / zone_bytes + 8;
    while volume(zones, zone_bytes)?.1.statfs()?.total_bytes < bytes {
        zones += 1;
    }
    Ok(zones)
}

fn replay(workload: &Workload, zones: u64, zone_bytes: u64, mode: Mode) -> Result<f64, Box<dyn Error>> {
    let (device, lfs) = volume(zones, zone_bytes)?;
    let engine = Engine::new(mode, None, 1)?;
    let data = vec![0xa5; PIECE_BYTES as usize];
    let mut files: FxHashMap<u32, File> = FxHashMap::default();
    let mut since_tick = 0;
    for event in &workload.events {
        match event {
            Event::Create { file, path, process, thread, thread_id, flags } => {
                let context = (path.clone(), process.clone(), thread.clone(), *thread_id, *flags);
                let tag = place(&engine, &lfs, &context, 0, WriteHint::NotSet);
                let args = CreateArgs { node: NewNode::File, perm: 0o644, uid: 0, gid: 0, tag, open: true };
                let ino = lfs.create(Ino::ROOT, format!("{file}").as_bytes(), &args)?.ino;
                files.insert(*file, File { ino, context, size: 0, pending: 0 });
            }
            Event::Hint { file, hint } => {
                if let Some(f) = files.get(file) {
                    lfs.set_tag(f.ino, place(&engine, &lfs, &f.context, f.size, *hint))?;
                }
            }
            Event::Write { file, bytes } => {
                let Some(f) = files.get_mut(file) else { continue };
                f.pending += bytes;
                while f.pending >= PIECE_BYTES {
                    let aligned = PIECE_BYTES - f.size % BLOCK_BYTES as u64;
                    lfs.write_through(f.ino, f.size, &data[..aligned as usize])?;
                    f.size += aligned;
                    f.pending -= aligned;
                    since_tick += aligned;
                }
            }
            Event::Close { file } => {
                let Some(f) = files.get_mut(file) else { continue };
                if f.pending > 0 {
                    lfs.write(f.ino, f.size, &data[..f.pending as usize])?;
                    f.size += std::mem::take(&mut f.pending);
                }
                if f.context.0.ends_with(b".sst") {
                    lfs.fsync(f.ino)?;
                }
            }
            Event::Delete { file } => {
                if let Some(f) = files.remove(file) {
                    lfs.unlink(Ino::ROOT, format!("{file}").as_bytes())?;
                    lfs.release(f.ino);
                }
            }
        }
        if since_tick >= TICK_BYTES {
            since_tick = 0;
            lfs.tick()?;
        }
    }
    device.verify_identity()?;
    let counters = device.counters();
    Ok((counters.host_bytes + counters.gc_bytes) as f64 / counters.host_bytes as f64)
}

fn place(
    engine: &Engine,
    lfs: &Lfs,
    context: &(Vec<u8>, String, String, u32, OpenIntent),
    size: u64,
    hint: WriteHint,
) -> weft_core::Tag {
    let (path, process, thread, thread_id, flags) = context;
    engine.place(&FileContext {
        path,
        process,
        thread,
        thread_id: *thread_id,
        flags: *flags,
        hint,
        size,
        uid: 0,
        volume_bytes: lfs.volume_bytes(),
        now: Duration::ZERO,
    })
}
