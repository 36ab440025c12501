//! Makes a state of what [`super::scan`] found: the newest complete checkpoint, and the journal entries after it.
//!
//! Frames that are known to have been flushed (a later frame says so) are trusted to have their data. After the last
//! such frame, an entry counts only if the data that it maps is whole: the device does not keep the order of zones
//! without a flush, so the entry may have survived a power cut that its data did not. Only data that is still mapped
//! at the end is looked at: what a later entry freed may have been erased rightly. Replay ends before the first entry
//! whose data is not whole; every entry that was made durable lies before it.

use super::scan::{FoundFrame, Scan};
use crate::error::{ApplyError, LfsError};
use crate::layout::checkpoint::Item;
use crate::layout::frame::FrameKind;
use crate::layout::record::{COUNT_MOUNTED_MAX, FileRun, Record, RecordError};
use crate::layout::{BLOCK, footer};
use crate::options::CrcTable;
use crate::state::inode::Body;
use crate::state::names;
use crate::state::tree::Tree;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::checksum::crc32c;
use weft_core::codec::Reader;
use weft_core::{BLOCK_BYTES, Ino, ZoneId};
use weft_device::ZonedDevice;
use weft_vfs::FileKind;

/// Bytes that the journal holds for a block that is not in its data zone yet: offset within the block, bytes; in the
/// order in which they were written.
pub type Patches = BTreeMap<(u64, u64), Vec<(u32, Vec<u8>)>>;

/// Device blocks that may not hold what was written: the CRC of that, and the entry that says so.
type Suspects = FxHashMap<u64, (u32, usize)>;

/// A state made of a device's frames.
pub struct Restored {
    /// Inodes, names and maps.
    pub tree: Tree,
    /// Inline bytes to be put over the mapped content.
    pub patches: Patches,
    /// The volume's label.
    pub label: String,
    /// When it was formatted.
    pub formatted_at: i64,
    /// Number of the next zone opening.
    pub next_sequence: u64,
    /// The byte clock.
    pub volume_bytes: u64,
    /// The newest epoch seen, complete or not.
    pub epoch: u64,
    /// The highest frame number seen.
    pub last_seq: u64,
    /// Whether the volume was closed: the last frame is a clean checkpoint's end.
    pub clean: bool,
    /// Zones of the chain, oldest first.
    pub chain: Vec<ZoneId>,
    /// Entries replayed.
    pub entries: usize,
    /// Entries left out because their data is not whole.
    pub dropped: usize,
    /// Zones whose CRCs the checkpoint holds.
    pub listed: FxHashSet<ZoneId>,
}

/// Makes the state; CRCs of data blocks go into `crcs`. Damage behind which there was more, or may have been, is an
/// error, unless the volume is to be `salvage`d: then the state before the damage is made.
pub fn restore(
    dev: &dyn ZonedDevice,
    scan: &Scan,
    crcs: &dyn CrcTable,
    salvage: bool,
) -> Result<Restored, LfsError> {
    let chain = Chain::find(scan, salvage)?;
    let mut stop = chain.entries.len();
    loop {
        let (mut state, suspects) = chain.apply(dev, stop, crcs)?;
        match first_torn(dev, scan, &state.tree, &suspects) {
            Some(torn) => stop = torn,
            None => {
                state.dropped = chain.entries.len() - stop;
                state.clean = chain.end.header.clean && chain.entries.is_empty() && !chain.newer;
                settle(&mut state);
                load_footers(dev, scan, crcs);
                return Ok(state);
            }
        }
    }
}

/// A checkpoint and the entries after it.
struct Chain<'a> {
    parts: Vec<&'a FoundFrame>,
    end: &'a FoundFrame,
    entries: Vec<&'a FoundFrame>,
    /// The highest frame number known durable.
    flushed_upto: u64,
    epoch: u64,
    last_seq: u64,
    /// Whether a later mount began a checkpoint and did not complete it.
    newer: bool,
}

impl<'a> Chain<'a> {
    fn find(scan: &'a Scan, salvage: bool) -> Result<Chain<'a>, LfsError> {
        let by_number: FxHashMap<(u64, u64), &FoundFrame> =
            scan.frames.iter().map(|f| ((f.header.epoch, f.header.seq), f)).collect();
        let mut ends: Vec<&FoundFrame> =
            scan.frames.iter().filter(|f| f.header.kind == FrameKind::End).collect();
        ends.sort_by_key(|f| std::cmp::Reverse((f.header.epoch, f.header.seq)));
        let Some(end) = ends.first().copied() else {
            if let Some(at) = scan.breaks.first() {
                let what = "the metadata is damaged here and no complete checkpoint is left".to_string();
                return Err(LfsError::Corrupt { zone: at.zone, block: at.block, what });
            }
            return Err(LfsError::NotAVolume { zones: scan.zones.len() as u32 });
        };
        // The newest end counts: what it ends was durable before it was written, so missing parts are damage.
        let (epoch, seq) = (end.header.epoch, end.header.seq);
        let first = seq.checked_sub(u64::from(end.header.parts));
        let mut parts = Vec::new();
        for number in first.unwrap_or(seq)..seq {
            match by_number.get(&(epoch, number)) {
                Some(part) if part.header.kind == FrameKind::Part => parts.push(*part),
                _ => {
                    let what = format!("part {number} of the checkpoint that ends here is damaged");
                    return Err(LfsError::Corrupt { zone: end.zone, block: end.block, what });
                }
            }
        }
        let mut entries = Vec::new();
        let mut next = seq + 1;
        while let Some(frame) = by_number.get(&(epoch, next)).filter(|f| f.header.kind == FrameKind::Entry) {
            entries.push(*frame);
            next += 1;
        }
        let all = || scan.frames.iter().chain(&scan.stray);
        let of_epoch = || all().filter(|f| f.header.epoch == epoch);
        let flushed_upto = of_epoch().map(|f| f.header.flushed_upto).max().unwrap_or(0);
        if !salvage && let Some((zone, block, why)) = lost_frame(scan, end, next, epoch) {
            let what = format!("the journal is damaged: frame {next} is not readable, and {why}");
            return Err(LfsError::Corrupt { zone, block, what });
        }
        let newer =
            all().any(|f| f.header.epoch > epoch || (f.header.epoch == epoch && f.header.seq >= next));
        let last_seq = all().map(|f| f.header.seq).max().unwrap_or(seq);
        let epoch = all().map(|f| f.header.epoch).max().unwrap_or(epoch);
        Ok(Chain { parts, end, entries, flushed_upto, epoch, last_seq, newer })
    }

    /// Applies the checkpoint and the first `stop` entries. Also returns the blocks that entries after the last known
    /// flush wrote, each with its CRC and the entry.
    fn apply(
        &self,
        dev: &dyn ZonedDevice,
        stop: usize,
        crcs: &dyn CrcTable,
    ) -> Result<(Restored, Suspects), LfsError> {
        let info = dev.info();
        let device_blocks = u64::from(info.zones) * u64::from(info.zone_blocks);
        let mut state = Restored {
            tree: Tree { device_blocks, ..Tree::default() },
            patches: Patches::new(),
            label: String::new(),
            formatted_at: 0,
            next_sequence: 1,
            volume_bytes: self.end.header.volume_bytes,
            epoch: self.epoch,
            last_seq: self.last_seq,
            clean: false,
            chain: Vec::new(),
            entries: stop,
            dropped: 0,
            listed: FxHashSet::default(),
        };
        let corrupt = |frame: &FoundFrame, error: ApplyError| LfsError::Corrupt {
            zone: frame.zone,
            block: frame.block,
            what: error.to_string(),
        };
        let mut loader = Loader {
            tree: &mut state.tree,
            crcs,
            zone_blocks: info.zone_blocks,
            volume: None,
            listed: &mut state.listed,
            patches: &mut state.patches,
        };
        for part in &self.parts {
            let mut r = Reader::new(&part.payload);
            while r.remaining() > 0 {
                Item::decode(&mut r)
                    .map_err(ApplyError::from)
                    .and_then(|item| loader.load(item))
                    .map_err(|error| corrupt(part, error))?;
            }
        }
        let Some((label, formatted_at, next_ino, next_sequence)) = loader.volume else {
            let what = "the checkpoint does not name its volume".to_string();
            return Err(LfsError::Corrupt { zone: self.end.zone, block: self.end.block, what });
        };
        state.tree.next_ino = state.tree.next_ino.max(next_ino);
        (state.label, state.formatted_at, state.next_sequence) = (label, formatted_at, next_sequence);
        let mut suspects = Suspects::default();
        for (index, entry) in self.entries[..stop].iter().enumerate() {
            let mut r = Reader::new(&entry.payload);
            while r.remaining() > 0 {
                let record = Record::decode(&mut r).map_err(|e: RecordError| corrupt(entry, e.into()))?;
                state.tree.apply(&record, &mut ()).map_err(|e| corrupt(entry, e))?;
                state.patch(&record);
                if let Record::Extents { runs, crcs: of_runs, .. } = &record {
                    let late = entry.header.seq > self.flushed_upto;
                    note_crcs(runs, of_runs, crcs, |block, crc| {
                        if late {
                            suspects.insert(block, (crc, index));
                        }
                    });
                }
            }
            state.volume_bytes = entry.header.volume_bytes;
        }
        if !state.tree.get(Ino::ROOT).is_some_and(|root| root.kind == FileKind::Directory) {
            let what = "the checkpoint, with the journal after it, has no root directory".to_string();
            return Err(LfsError::Corrupt { zone: self.end.zone, block: self.end.block, what });
        }
        let numbers =
            [state.epoch, state.last_seq, state.volume_bytes, state.next_sequence, state.tree.next_ino];
        if let Some(number) = numbers.into_iter().find(|number| *number > COUNT_MOUNTED_MAX) {
            let what = format!("the chain that ends here counts to {number}, to which no volume gets");
            return Err(LfsError::Corrupt { zone: self.end.zone, block: self.end.block, what });
        }
        for frame in self.parts.iter().chain([&self.end]).chain(&self.entries[..stop]) {
            if !state.chain.contains(&frame.zone) {
                state.chain.push(frame.zone);
            }
        }
        Ok((state, suspects))
    }
}

fn note_crcs(runs: &[FileRun], of_runs: &[u32], table: &dyn CrcTable, mut each: impl FnMut(u64, u32)) {
    let blocks = runs.iter().flat_map(|r| (0..u64::from(r.run.count)).map(move |i| r.run.device_block() + i));
    for (block, crc) in blocks.zip(of_runs) {
        if let Some(slot) = table.slots().get(block as usize) {
            slot.store(*crc, Relaxed);
        }
        each(block, *crc);
    }
}

/// Whether frame `next` is missing for another reason than that a power cut took it; where, and what proves it.
fn lost_frame(scan: &Scan, end: &FoundFrame, next: u64, epoch: u64) -> Option<(ZoneId, u32, &'static str)> {
    let all = || scan.frames.iter().chain(&scan.stray);
    let place = |f: &FoundFrame| {
        let at = scan.breaks.iter().find(|at| at.zone == f.zone).map_or(f.block, |at| at.block);
        (f.zone, at)
    };
    let of_epoch = |f: &&FoundFrame| f.header.epoch == epoch && f.header.seq >= next;
    if let Some(f) = all().filter(of_epoch).find(|f| f.header.flushed_upto >= next) {
        let (zone, block) = place(f);
        return Some((zone, block, "a later frame says that it was durable"));
    }
    let newer = |f: &&FoundFrame| (f.header.epoch, f.header.seq) >= (epoch, next);
    if let Some(f) = scan.stray.iter().find(newer) {
        let (zone, block) = place(f);
        return Some((zone, block, "a later frame stands behind it"));
    }
    if let Some(f) = all().find(|f| f.header.epoch > epoch && f.header.kind == FrameKind::Entry) {
        return Some((f.zone, f.block, "a later mount's entries are there without its checkpoint"));
    }
    // Where the next frame would stand: behind the last one, or at the start of the next zone.
    let last =
        scan.frames.iter().filter(|f| f.header.epoch == epoch).max_by_key(|f| f.header.seq).unwrap_or(end);
    let sequence = |zone: ZoneId| scan.zones[zone.index()].header.map_or(0, |h| h.sequence);
    let damaged = scan.breaks.iter().filter(|at| !at.cut_off).find(|at| {
        let follows = at.block == 1 && sequence(at.zone) > sequence(last.zone);
        (at.zone == last.zone && at.block > last.block) || follows
    });
    damaged.map(|at| (at.zone, at.block, "a device keeps whole blocks below its write pointer"))
}

/// Puts checkpoint records into a tree.
struct Loader<'a> {
    tree: &'a mut Tree,
    crcs: &'a dyn CrcTable,
    zone_blocks: u32,
    volume: Option<(String, i64, u64, u64)>,
    listed: &'a mut FxHashSet<ZoneId>,
    patches: &'a mut Patches,
}

impl Loader<'_> {
    fn load(&mut self, item: Item<'_>) -> Result<(), ApplyError> {
        match item {
            Item::Volume { label, formatted_at, next_ino, next_sequence } => {
                let label = String::from_utf8_lossy(label).into_owned();
                self.volume = Some((label, formatted_at, next_ino, next_sequence));
                Ok(())
            }
            Item::Inode(saved) => {
                let ino = saved.node.ino;
                if ino.0 == 0 || self.tree.get(ino).is_some() {
                    return Err(ApplyError::Exists(ino.0));
                }
                self.tree.add_inode(&saved.node, saved.parent);
                let inode = self.tree.get_mut(ino).ok_or(ApplyError::NoInode(ino.0))?;
                inode.links = saved.links;
                inode.disk_size = saved.size;
                [inode.atime, inode.mtime, inode.ctime] = saved.times;
                if let Body::Directory(directory) = &mut inode.body {
                    directory.next_cookie = saved.next_cookie.max(1);
                }
                Ok(())
            }
            Item::Runs { ino, runs } => {
                let size = self.tree.get(ino).ok_or(ApplyError::NoInode(ino.0))?.disk_size;
                let times = self.tree.get(ino).map(|inode| (inode.mtime, inode.ctime));
                let record = Record::Extents {
                    ino,
                    relocated: true,
                    size,
                    mtime: 0,
                    runs: runs.into(),
                    crcs: (&[][..]).into(),
                };
                self.tree.apply(&record, &mut ())?;
                if let (Some(inode), Some((mtime, ctime))) = (self.tree.get_mut(ino), times) {
                    (inode.mtime, inode.ctime) = (mtime, ctime);
                }
                Ok(())
            }
            Item::Xattr { ino, name, value } => {
                let ctime = self.tree.get(ino).ok_or(ApplyError::NoInode(ino.0))?.ctime;
                self.tree.apply(&Record::Xattr { ino, name, value: Some(value), time: ctime }, &mut ())
            }
            Item::Entry { dir, cookie, ino, name } => self.tree.load_entry(dir, cookie, ino, name),
            Item::Block { ino, block, bytes } => {
                let inode = self.tree.get(ino).ok_or(ApplyError::NoInode(ino.0))?;
                if inode.kind != FileKind::File {
                    return Err(ApplyError::WrongKind(ino.0, "a file"));
                }
                self.patches.insert((ino.0, block), vec![(0, bytes.to_vec())]);
                Ok(())
            }
            Item::Crcs { zone, block, crcs } => {
                self.listed.insert(zone);
                let first = u64::from(zone.0) * u64::from(self.zone_blocks) + u64::from(block);
                let slots = self.crcs.slots();
                let end = first + crcs.len() as u64;
                if end > slots.len() as u64 {
                    return Err(ApplyError::BadExtent(0));
                }
                for (slot, crc) in slots[first as usize..end as usize].iter().zip(crcs) {
                    slot.store(crc, Relaxed);
                }
                Ok(())
            }
        }
    }
}

impl Restored {
    /// Looks whether names and inodes fit together. To be salvaged, what does not goes.
    ///
    /// # Errors
    /// [`LfsError::Unfitting`].
    pub fn fit(&mut self, salvage: bool) -> Result<(), LfsError> {
        let problems = names::problems(&self.tree);
        let Some(first) = problems.first() else { return Ok(()) };
        if !salvage {
            return Err(LfsError::Unfitting {
                ino: first.ino,
                what: first.what.clone(),
                more: problems.len() - 1,
            });
        }
        tracing::warn!(ino = first.ino.0, what = first.what, problems = problems.len(), "names are mended");
        for ino in names::mend(&mut self.tree) {
            self.drop_patches(ino, 0, u64::MAX);
        }
        Ok(())
    }

    /// Keeps the inline bytes in step with a record.
    fn patch(&mut self, record: &Record<'_>) {
        match record {
            Record::Inline { ino, offset, bytes, .. } => {
                let at = ((offset % BLOCK) as u32, bytes.to_vec());
                self.patches.entry((ino.0, offset / BLOCK)).or_default().push(at);
            }
            Record::Extents { ino, relocated: false, runs, .. } => {
                for run in runs.iter() {
                    self.drop_patches(*ino, run.block, run.block + u64::from(run.run.count));
                }
            }
            Record::Truncate { ino, size, extend: false, .. } => {
                self.drop_patches(*ino, size.div_ceil(BLOCK), u64::MAX);
                self.cut_patches(*ino, size / BLOCK, (size % BLOCK) as usize);
            }
            Record::Punch { ino, block, count, .. } => self.drop_patches(*ino, *block, block + count),
            Record::Shift { ino, .. } | Record::Free { ino } => self.drop_patches(*ino, 0, u64::MAX),
            _ => {}
        }
    }

    fn drop_patches(&mut self, ino: Ino, first: u64, end: u64) {
        let gone: Vec<_> = self.patches.range((ino.0, first)..(ino.0, end)).map(|(at, _)| *at).collect();
        for at in gone {
            self.patches.remove(&at);
        }
    }

    fn cut_patches(&mut self, ino: Ino, block: u64, len: usize) {
        if let Some(patches) = self.patches.get_mut(&(ino.0, block)) {
            for (from, bytes) in patches {
                bytes.truncate(len.saturating_sub(*from as usize));
            }
        }
    }
}

/// The first entry of which a block that is still mapped does not hold what was written.
fn first_torn(dev: &dyn ZonedDevice, scan: &Scan, tree: &Tree, suspects: &Suspects) -> Option<usize> {
    if suspects.is_empty() {
        return None;
    }
    let zone_blocks = u64::from(dev.info().zone_blocks);
    let mut torn: Option<usize> = None;
    let mut raw = vec![0; BLOCK_BYTES];
    for inode in tree.inodes.values() {
        let Some(map) = inode.map() else { continue };
        for run in map.iter() {
            for block in (0..u64::from(run.run.count)).map(|i| run.run.device_block() + i) {
                let Some((crc, entry)) = suspects.get(&block) else { continue };
                if torn.is_some_and(|torn| torn <= *entry) {
                    continue;
                }
                let (zone, at) = (ZoneId((block / zone_blocks) as u32), (block % zone_blocks) as u32);
                let written = at < scan.zones[zone.index()].report.write_pointer;
                let whole = written && dev.read(zone, at, &mut raw).is_ok() && crc32c(&raw) == *crc;
                if !whole {
                    torn = Some(*entry);
                }
            }
        }
    }
    torn
}

/// What replay leaves to be done: files end where their data does, and files without a name are gone.
fn settle(state: &mut Restored) {
    let orphans: Vec<u64> =
        state.tree.inodes.iter().filter(|(_, inode)| inode.links == 0).map(|(ino, _)| *ino).collect();
    for ino in orphans {
        state.drop_patches(Ino(ino), 0, u64::MAX);
        // Freeing an inode that exists cannot fail.
        let _ = state.tree.apply(&Record::Free { ino: Ino(ino) }, &mut ());
    }
    let files: Vec<(u64, u64, i64, i64)> = state
        .tree
        .inodes
        .iter_mut()
        .filter_map(|(ino, inode)| {
            inode.size = inode.disk_size;
            inode.map().is_some().then_some((*ino, inode.disk_size, inode.mtime, inode.ctime))
        })
        .collect();
    for (ino, size, mtime, ctime) in files {
        let ino = Ino(ino);
        // Nothing to apply to is the only way for this to fail.
        let _ = state.tree.apply(&Record::Truncate { ino, size, extend: false, time: mtime }, &mut ());
        if let Some(inode) = state.tree.get_mut(ino) {
            (inode.mtime, inode.ctime) = (mtime, ctime);
        }
        state.drop_patches(ino, size.div_ceil(BLOCK), u64::MAX);
        if !size.is_multiple_of(BLOCK) {
            state.cut_patches(ino, size / BLOCK, (size % BLOCK) as usize);
        }
    }
}

/// CRCs of zones that have a footer.
fn load_footers(dev: &dyn ZonedDevice, scan: &Scan, table: &dyn CrcTable) {
    let zone_blocks = dev.info().zone_blocks;
    for (zone, found) in scan.zones.iter().enumerate() {
        let zone = ZoneId(zone as u32);
        if let Some(crcs) = read_footer(dev, zone, found) {
            let first = zone.index() * zone_blocks as usize;
            for (slot, crc) in table.slots()[first..].iter().zip(crcs) {
                slot.store(crc, Relaxed);
            }
        }
    }
}

/// The footer of a full data zone; `None` when it has none that can be read.
pub fn read_footer(dev: &dyn ZonedDevice, zone: ZoneId, found: &super::scan::FoundZone) -> Option<Vec<u32>> {
    use crate::layout::zone_header::ZoneKind;
    if found.report.state != weft_device::ZoneState::Full || found.header?.kind != ZoneKind::Data {
        return None;
    }
    let end = found.report.write_pointer;
    let mut last = vec![0; BLOCK_BYTES];
    dev.read(zone, end.checked_sub(1)?, &mut last).ok()?;
    let count = footer::count(&last)?;
    // The footer fills what is left of the zone behind the blocks that it speaks of.
    let blocks =
        end.checked_sub(count).filter(|b| *b > 0 && *b <= end && footer::footer_blocks(count) <= *b)?;
    let mut raw = vec![0; blocks as usize * BLOCK_BYTES];
    dev.read(zone, count, &mut raw).ok()?;
    footer::decode(&raw)
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::layout::record::{NewInode, Run};
    use weft_core::Tag;

    const FILE: Ino = Ino(7);

    fn restored() -> Restored {
        let mut tree = Tree::new(1 << 20, (0, 0), 0);
        let node = NewInode {
            ino: FILE,
            kind: FileKind::File,
            perm: 0o600,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: b"",
            tag: Tag::default(),
            time: 1,
            born_at: 0,
        };
        tree.apply(&Record::Create { dir: Ino::ROOT, name: b"f", node }, &mut ()).unwrap();
        Restored {
            tree,
            patches: Patches::new(),
            label: String::new(),
            formatted_at: 0,
            next_sequence: 1,
            volume_bytes: 0,
            epoch: 1,
            last_seq: 1,
            clean: false,
            chain: Vec::new(),
            entries: 0,
            dropped: 0,
            listed: FxHashSet::default(),
        }
    }

    fn run(block: u64, count: u32) -> FileRun {
        FileRun { block, run: Run { address: (100 + block) * BLOCK, count, len: BLOCK as u32 } }
    }

    fn extents(runs: Vec<FileRun>, size: u64, relocated: bool) -> Record<'static> {
        Record::Extents { ino: FILE, relocated, size, mtime: 2, runs: runs.into(), crcs: vec![].into() }
    }

    fn inline(block: u64) -> Record<'static> {
        Record::Inline {
            ino: FILE,
            offset: block * BLOCK + 5,
            size: (block + 1) * BLOCK,
            mtime: 2,
            bytes: b"news",
        }
    }

    fn patched(state: &Restored) -> Vec<u64> {
        state.patches.keys().map(|(ino, block)| if *ino == FILE.0 { *block } else { u64::MAX }).collect()
    }

    #[test]
    fn blocks_that_are_mapped_anew_lose_what_the_journal_had_for_them_and_no_others_do() {
        let mut state = restored();
        (0..9).for_each(|block| state.patch(&inline(block)));
        state.patch(&extents(vec![run(2, 3), run(7, 1)], 9 * BLOCK, false));
        assert_eq!(patched(&state), [0, 1, 5, 6, 8]);
        // The cleaner moves what lies below; what the journal has stands over it as before.
        state.patch(&extents(vec![run(0, 9)], 9 * BLOCK, true));
        assert_eq!(patched(&state), [0, 1, 5, 6, 8]);
        state.patch(&Record::Punch { ino: FILE, block: 1, count: 5, time: 3 });
        assert_eq!(patched(&state), [0, 6, 8]);
        state.patch(&Record::Truncate { ino: FILE, size: 6 * BLOCK + 7, extend: false, time: 3 });
        assert_eq!(patched(&state), [0, 6]);
        assert_eq!(state.patches[&(FILE.0, 6)], [(5, b"ne".to_vec())]);
        state.patch(&Record::Truncate { ino: FILE, size: 20 * BLOCK, extend: true, time: 3 });
        assert_eq!(patched(&state), [0, 6]);
    }

    #[test]
    fn a_file_ends_where_the_journal_says_and_keeps_its_times() {
        let mut state = restored();
        state.tree.apply(&extents(vec![run(0, 6)], 2 * BLOCK + 6, false), &mut ()).unwrap();
        // What is mapped beyond the size is of a write whose beginning was lost.
        (0..5).for_each(|block| state.patch(&inline(block)));
        let before = state.tree.get(FILE).map(|inode| (inode.mtime, inode.ctime)).unwrap();
        settle(&mut state);
        let inode = state.tree.get(FILE).unwrap();
        assert_eq!((inode.size, inode.disk_size), (2 * BLOCK + 6, 2 * BLOCK + 6));
        assert_eq!((inode.mtime, inode.ctime), before);
        let runs: Vec<_> = inode.map().unwrap().iter().map(|r| (r.block, r.run.count, r.run.len)).collect();
        assert_eq!(runs, [(0, 2, 4096), (2, 1, 6)]);
        assert_eq!(patched(&state), [0, 1, 2]);
        assert_eq!(state.patches[&(FILE.0, 2)], [(5, b"n".to_vec())]);
    }

    #[test]
    fn a_file_that_ends_between_blocks_and_one_that_is_empty_keep_nothing_beyond() {
        for size in [0, BLOCK, 3 * BLOCK] {
            let mut state = restored();
            state.tree.apply(&extents(vec![run(0, 6)], size, false), &mut ()).unwrap();
            (0..5).for_each(|block| state.patch(&inline(block)));
            settle(&mut state);
            let inode = state.tree.get(FILE).unwrap();
            assert_eq!(inode.size, size);
            assert_eq!(
                inode.map().unwrap().iter().map(|r| u64::from(r.run.count)).sum::<u64>(),
                size / BLOCK
            );
            assert_eq!(patched(&state), (0..size / BLOCK).collect::<Vec<_>>());
            assert!(state.patches.values().all(|patches| patches == &[(5, b"news".to_vec())]));
        }
    }

    #[test]
    fn inodes_without_a_name_go_with_all_they_have_and_directories_stay() {
        let mut state = restored();
        state.tree.apply(&extents(vec![run(0, 6)], 6 * BLOCK, false), &mut ()).unwrap();
        state.patch(&inline(3));
        state.tree.apply(&Record::Unlink { dir: Ino::ROOT, name: b"f", time: 9 }, &mut ()).unwrap();
        settle(&mut state);
        assert!(state.tree.get(FILE).is_none() && state.patches.is_empty());
        assert!(state.tree.get(Ino::ROOT).is_some());
        assert_eq!(state.tree.runs, 0);
    }
}
