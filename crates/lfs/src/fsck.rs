//! The offline check of a volume: every header, frame, footer and CRC, the maps against the zones, names against
//! inodes. It only reads. What it lists, it lists with its place.

use crate::error::LfsError;
use crate::journal::replay::{Restored, read_footer_copy, restore};
use crate::journal::salvage::NOWHERE;
use crate::journal::scan::{Scan, scan};
use crate::layout::BLOCK;
use crate::layout::footer;
use crate::layout::record::FileRun;
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use crate::state::names;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Ino, ZoneId};
use weft_device::{ZoneState, ZonedDevice};
use weft_sys::paging;
use weft_vfs::FileKind;

/// Most problems that are listed one by one; the rest is counted.
pub const PROBLEMS_MAX: usize = 1000;

/// Something that is not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The zone, when it is of one.
    pub zone: Option<ZoneId>,
    /// The block within the zone, when it is of one.
    pub block: Option<u32>,
    /// The inode, when it is of one.
    pub ino: Option<Ino>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.zone, self.block) {
            (Some(zone), Some(block)) => write!(f, "zone {zone}, block {block}: ")?,
            (Some(zone), None) => write!(f, "zone {zone}: ")?,
            _ => {}
        }
        if let Some(ino) = self.ino {
            write!(f, "inode {ino}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckReport {
    /// Whether the volume was closed; if not, the journal was replayed for the check.
    pub closed: bool,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symlinks and special files.
    pub others: u64,
    /// Zones that hold metadata.
    pub meta_zones: u32,
    /// Zones that hold live data.
    pub data_zones: u32,
    /// Device blocks with live data, each read and checked against its CRC.
    pub blocks_checked: u64,
    /// Journal entries after the checkpoint.
    pub entries: usize,
    /// Journal entries that a power cut left without their data: they were never durable and do not count.
    pub entries_dropped: usize,
    /// What is wrong, up to [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
    /// Problems beyond those listed.
    pub more_problems: u64,
}

impl FsckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, place: Option<(ZoneId, u32)>, ino: Option<Ino>, what: impl Into<String>) {
        let (zone, block) = place.unzip();
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { zone, block, ino, what: what.into() });
        } else {
            self.more_problems += 1;
        }
    }
}

/// Checks a volume that is not mounted. Never writes.
///
/// # Errors
/// Only what keeps the check from being made at all: the device fails, or holds no volume that this version can read.
/// Damage of a volume is in the report.
pub fn check(dev: Arc<dyn ZonedDevice>) -> Result<FsckReport, LfsError> {
    let _in_order = paging::in_order();
    let mut report = FsckReport::default();
    let found = match scan(&*dev) {
        Ok(found) => found,
        Err(error @ (LfsError::WrongVolume { zone, .. } | LfsError::WrongShape { zone, .. })) => {
            report.add(Some((zone, 0)), None, error.to_string());
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let crcs: Box<[AtomicU32]> = (0..dev.info().blocks()).map(|_| AtomicU32::new(0)).collect();
    check_headers(&found, &mut report);
    // What a damaged journal still tells is checked, too.
    let mut restored = None;
    for salvage in [false, true] {
        match restore(&*dev, &found, &crcs, salvage) {
            Ok(state) => {
                restored = Some(state);
                break;
            }
            Err(LfsError::Corrupt { zone, block, what }) => report.add(Some((zone, block)), None, what),
            Err(error) => return Err(error),
        }
    }
    report.problems.dedup();
    let Some(restored) = restored else { return Ok(report) };
    report.closed = restored.clean;
    report.entries = restored.entries;
    report.entries_dropped = restored.dropped;
    check_frames(&found, &restored, &mut report);
    check_names(&restored, &mut report);
    check_maps(&*dev, &found, &restored, &crcs, &mut report);
    Ok(report)
}

fn check_headers(found: &Scan, report: &mut FsckReport) {
    let mut sequences: FxHashMap<u64, ZoneId> = FxHashMap::default();
    for (zone, f) in found.numbered() {
        match f.header {
            Some(header) => {
                report.meta_zones += u32::from(header.kind == ZoneKind::Meta);
                if let Some(other) = sequences.insert(header.sequence, zone) {
                    let what = format!("opened as number {}, as zone {other} was", header.sequence);
                    report.add(Some((zone, 0)), None, what);
                }
            }
            None if f.is_written() => {
                report.add(Some((zone, 0)), None, "both copies of the zone header are damaged");
            }
            None => {}
        }
        if let (Some(_), Some(block)) = (f.header, f.bad_header) {
            report.add(Some((zone, block)), None, "a copy of the zone header is damaged");
        }
    }
}

fn check_frames(found: &Scan, restored: &Restored, report: &mut FsckReport) {
    for damage in &restored.spared {
        let told = |p: &Problem| (p.zone, p.block) == (Some(damage.zone), Some(damage.block));
        if !report.problems.iter().any(told) {
            report.add(Some((damage.zone, damage.block)), None, damage.what.clone());
        }
    }
    for stray in found.stray.iter().chain(&found.headless) {
        let what = format!("frame {} stands behind a damaged one", stray.header.seq);
        report.add(Some((stray.zone, stray.block)), None, what);
    }
    let lost = &restored.lost;
    if lost.frames > 0 {
        let what = format!("{} frames of the journal are lost", lost.frames);
        report.add(None, None, what);
    }
    for (dir, name) in &lost.names {
        let what = format!("what '{}' named is lost", String::from_utf8_lossy(name));
        report.add(None, Some(*dir), what);
    }
    for ino in &lost.made_up {
        report.add(None, Some(Ino(*ino)), "its owner, mode and times are lost");
    }
    for ino in &lost.partial {
        report.add(None, Some(Ino(*ino)), "parts of its map or extended attributes are lost");
    }
    for ino in &lost.mixed {
        let what = "changed after a lost frame of the journal: may have parts of different times";
        report.add(None, Some(Ino(*ino)), what);
    }
    for (ino, blocks) in &lost.blocks {
        let what = format!("{blocks} blocks are lost: their places hold other data");
        report.add(None, Some(Ino(*ino)), what);
    }
}

fn check_names(restored: &Restored, report: &mut FsckReport) {
    for inode in restored.tree.inodes.values() {
        match inode.kind {
            FileKind::File => report.files += 1,
            FileKind::Directory => report.directories += 1,
            _ => report.others += 1,
        }
    }
    for problem in names::problems(&restored.tree) {
        report.add(None, Some(problem.ino), problem.what);
    }
}

fn check_maps(
    dev: &dyn ZonedDevice,
    found: &Scan,
    restored: &Restored,
    crcs: &[AtomicU32],
    report: &mut FsckReport,
) {
    let info = dev.info();
    let mut runs: Vec<(Ino, FileRun)> = Vec::new();
    for (ino, inode) in restored.tree.inodes.iter() {
        let ends = inode.size.div_ceil(BLOCK);
        for run in inode.map().into_iter().flat_map(|map| map.iter()) {
            if run.block + u64::from(run.run.count) > ends {
                let what = format!("maps block {} beyond its end", run.block + u64::from(run.run.count) - 1);
                report.add(None, Some(Ino(ino)), what);
            }
            runs.push((Ino(ino), run));
        }
    }
    runs.sort_unstable_by_key(|(ino, run)| (run.run.address, *ino));
    let mut end = 0;
    let mut before = Ino(0);
    let mut live_zones: FxHashSet<u32> = FxHashSet::default();
    let mut checked = u64::MAX;
    let mut raw = vec![0; BLOCK_BYTES];
    for (ino, run) in &runs {
        let (zone, block) = info.place(run.run.address / BLOCK);
        if run.run.address == NOWHERE && restored.lost.blocks.contains_key(&ino.0) {
            continue;
        }
        if run.run.address < end {
            let what = format!("shares bytes of the device with inode {before}");
            report.add(Some((zone, block)), Some(*ino), what);
        }
        let run_end = run.run.address + u64::from(run.run.count - 1) * BLOCK + u64::from(run.run.len);
        if run_end > end {
            (end, before) = (run_end, *ino);
        }
        let of_zone = &found.zones[zone.index()];
        if block < HEADER_BLOCKS
            || u64::from(block) + u64::from(run.run.count) > u64::from(of_zone.report.write_pointer)
        {
            report.add(Some((zone, block)), Some(*ino), "maps blocks that are not written");
            continue;
        }
        if of_zone.header.is_some_and(|header| header.kind == ZoneKind::Meta) {
            report.add(Some((zone, block)), Some(*ino), "maps blocks of a metadata zone");
            continue;
        }
        live_zones.insert(zone.0);
        for i in 0..run.run.count {
            let device_block = run.run.device_block() + u64::from(i);
            if device_block == checked {
                continue;
            }
            checked = device_block;
            report.blocks_checked += 1;
            match dev.read(zone, block + i, &mut raw) {
                Err(error) => report.add(Some((zone, block + i)), Some(*ino), error.to_string()),
                Ok(()) if crc32c(&raw) != crcs[device_block as usize].load(Relaxed) => {
                    report.add(Some((zone, block + i)), Some(*ino), "checksum mismatch");
                }
                Ok(()) => {}
            }
        }
    }
    report.data_zones = live_zones.len() as u32;
    check_footers(dev, found, restored, &live_zones, report);
}

/// A full zone that a closed volume uses has either a footer that can be read, or CRCs in the checkpoint; a footer that
/// is there and damaged is not the same as none.
fn check_footers(
    dev: &dyn ZonedDevice,
    found: &Scan,
    restored: &Restored,
    live: &FxHashSet<u32>,
    report: &mut FsckReport,
) {
    for &zone in live {
        let zone = ZoneId(zone);
        let f = &found.zones[zone.index()];
        let written_out =
            f.report.state == ZoneState::Full && f.report.write_pointer == dev.info().zone_capacity;
        if !written_out || restored.listed.contains(&zone) {
            continue;
        }
        let (places, _) = footer::places(dev.info().zone_capacity);
        let mut bad = Vec::new();
        for (copy, place) in places.iter().enumerate() {
            match read_footer_copy(dev, zone, f, copy) {
                Ok(Some(_)) => {}
                Ok(None) => bad.push(copy),
                Err(error) => report.add(Some((zone, *place)), None, error.to_string()),
            }
        }
        match bad[..] {
            [] => {}
            [copy] => {
                report.add(Some((zone, places[copy])), None, "a copy of the zone footer is damaged");
            }
            // A zone that was not written to its end in one mount may have none.
            _ if restored.clean => {
                report.add(Some((zone, places[0])), None, "both copies of the zone footer are damaged");
            }
            _ => {}
        }
    }
}
