//! What operations cost on a core of this machine: where the built-in costs of `weft_sim::cpus` come from.
//!
//! ```text
//! cargo run --release -p weft-sim --example cpu_costs
//! ```
//!
//! Files are in the log-structured core on a zoned device in memory, without a server. Each figure is the fastest of many
//! rounds, because what disturbs a round only adds to it.

// A table on the terminal is what this program is for.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use weft_core::Ino;
use weft_core::checksum::crc32c;
use weft_device::{Geometry, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, MountOptions};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode};

/// Rounds of each figure, and calls in a round.
const ROUNDS: usize = 200;
const CALLS: u64 = 32;

/// The fastest round, in nanoseconds a call.
fn fastest(mut call: impl FnMut(u64) -> Result<(), FsError>) -> Result<u64, FsError> {
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for number in 0..CALLS {
            call(number)?;
        }
        best = best.min(begun.elapsed().as_nanos() as u64 / CALLS);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    let geometry = Geometry::preset("zn540")?.with_size(1 << 30).with_zone_bytes(16 << 20);
    let device = Arc::new(ZonedModel::memory(&geometry)?);
    Lfs::format(device.clone(), &FormatOptions::default())?;
    let lfs = Lfs::mount(device, MountOptions::default())?;
    let args = CreateArgs { open: true, ..CreateArgs::new(NewNode::File, 0o644) };
    println!("ns a call      {:>8} {:>8} {:>8} {:>8}", "read", "write", "crc32c", "patch");
    for shift in [8, 10, 12, 14, 16] {
        let bytes = 1usize << shift;
        let name = format!("file-{bytes}");
        let file = lfs.create(Ino::ROOT, name.as_bytes(), &args)?.ino;
        let mut data = vec![0xa5; bytes];
        for number in 0..CALLS {
            lfs.write(file, number * bytes as u64, &data)?;
        }
        lfs.fsync(file)?;
        let read = fastest(|number| {
            let mut out = std::mem::take(&mut data);
            lfs.read(file, number * bytes as u64, &mut out)?;
            data = out;
            Ok(())
        })?;
        let write = fastest(|number| lfs.write(file, number * bytes as u64, &data))?;
        let sum = fastest(|_| {
            black_box(crc32c(black_box(&data)));
            Ok(())
        })?;
        // A record of 64 bytes within, and the copy that it is made in.
        let patch = fastest(|_| {
            let mut copy = black_box(&data).clone();
            copy[bytes / 2..bytes / 2 + 64].fill(7);
            black_box(&copy);
            Ok(())
        })?;
        println!("{bytes:>8} bytes {read:>8} {write:>8} {sum:>8} {patch:>8}");
        lfs.fsync(file)?;
    }
    let names = fastest(|_| {
        let found = lfs.lookup(Ino::ROOT, b"file-4096")?;
        lfs.open(found.ino)?;
        lfs.release(found.ino);
        Ok(())
    })?;
    println!("look up, open and release: {names} ns");
    Ok(())
}
