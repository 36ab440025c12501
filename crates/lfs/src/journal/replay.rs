//! Makes a state of what [`super::scan`] found: the newest complete checkpoint, and the journal entries after it.
//!
//! A volume that was closed has its last checkpoint twice, in different zones. When the newest checkpoint is damaged, an
//! older one does as well, as long as every entry between the two is there: what a checkpoint says is what the frames
//! before it lead to, so the checkpoints on the way are passed over.
//!
//! Frames that are known to have been flushed (a later frame says so) are trusted to have their data. After the last
//! such frame, an entry counts only if the data that it maps is whole: the device does not keep the order of zones
//! without a flush, so the entry may have survived a power cut that its data did not. Replay checks only data that is
//! still mapped at the end: a zone whose data a later entry freed may have been reset. Replay ends before the first
//! entry whose data is not whole; every entry that was made durable lies before it.
//!
//! A volume that is damaged beyond that is not mounted, unless it is to be salvaged: see [`super::salvage`].

use super::salvage;
use super::scan::{Break, FoundFrame, FoundZone, Scan, no_checkpoint, with_payloads};
use crate::error::{ApplyError, LfsError};
use crate::layout::checkpoint::{Item, SavedInode};
use crate::layout::frame::{FrameHeader, FrameKind};
use crate::layout::record::{COUNT_MOUNTED_MAX, FileRun, Record, Run};
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use crate::layout::{BLOCK, footer};
use crate::state::directory::Directory;
use crate::state::inode::Body;
use crate::state::names;
use crate::state::tree::Tree;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weft_core::checksum::crc32c;
use weft_core::codec::Reader;
use weft_core::{BLOCK_BYTES, Ino, ZoneId, refuse};
use weft_device::{DeviceError, ZoneState, ZonedDevice};
use weft_vfs::FileKind;

/// Bytes that the journal holds for a block that is not in its data zone yet: offset within the block, bytes; in the
/// order in which they were written.
pub type Patches = BTreeMap<(u64, u64), Vec<(u32, Vec<u8>)>>;

/// Device blocks that may not hold what was written: the CRC of that, and the entry that says so.
type Suspects = FxHashMap<u64, (u32, usize)>;

/// What entries wrote.
#[derive(Default)]
struct Written {
    /// Of entries after the last known flush.
    suspects: Suspects,
    /// The CRC of each block of a file; only of a volume that is salvaged.
    recorded: salvage::Recorded,
}

/// A state made of a device's frames.
#[derive(Default)]
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
    /// Zones of the other copy of the checkpoint with which the volume was closed.
    pub spare: Vec<ZoneId>,
    /// Damage that cost nothing, because what is damaged is there twice.
    pub spared: Vec<Damage>,
    /// What was lost; only of a volume that is salvaged.
    pub lost: salvage::Lost,
    /// Entries replayed.
    pub entries: usize,
    /// Entries left out because their data is not whole.
    pub dropped: usize,
    /// Zones whose CRCs the checkpoint holds.
    pub listed: FxHashSet<ZoneId>,
    /// Zones in which there may be bytes to erase of which no record tells, if the checkpoint says that there may be such.
    pub marked: Option<BTreeSet<ZoneId>>,
}

/// A damaged place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The zone.
    pub zone: ZoneId,
    /// Block within the zone.
    pub block: u32,
    /// What is wrong there.
    pub what: String,
}

/// Makes the state; CRCs of data blocks go into `crcs`. Damage that lost something is an error, unless the volume is to
/// be `salvage`d: then what can be read is made of it, and [`Restored::lost`] tells the rest.
pub fn restore(
    dev: &dyn ZonedDevice,
    scan: &Scan,
    crcs: &[AtomicU32],
    salvage: bool,
) -> Result<Restored, LfsError> {
    let chain = Chain::find(scan, salvage)?;
    let mut stop = chain.entries.len();
    loop {
        let (mut state, written) = chain.apply(dev, scan, stop, crcs)?;
        match first_torn(dev, scan, &state.tree, &written.suspects) {
            Some(torn) => stop = torn,
            None => {
                state.dropped = chain.entries.len() - stop;
                state.clean = chain.end.clean && chain.entries.is_empty() && !chain.newer;
                chain.note_copies(scan, &mut state);
                settle(&mut state, |run, len| zeros_behind(dev, run, len));
                load_footers(dev, scan, crcs);
                if salvage {
                    salvage::hide_reused(dev, scan, &mut state, &written.recorded, crcs);
                }
                return Ok(state);
            }
        }
    }
}

/// A checkpoint and the entries after it.
struct Chain<'a> {
    parts: Vec<&'a FoundFrame>,
    /// The checkpoint's end, and where it is.
    end: FrameHeader,
    end_at: (ZoneId, u32),
    entries: Vec<&'a FoundFrame>,
    /// Index of the first entry behind a frame that is lost.
    first_after_gap: usize,
    /// Zones of the checkpoint before this one that says the same.
    spare: Vec<ZoneId>,
    /// Damage that cost nothing.
    spared: Vec<Damage>,
    /// What was lost.
    lost: salvage::Lost,
    /// Whether parts may be missing, and entries may not fit the state.
    lenient: bool,
    /// The highest frame number known durable.
    flushed_upto: u64,
    epoch: u64,
    last_seq: u64,
    /// Whether there is more behind: a later mount began a checkpoint or an entry and did not complete it.
    newer: bool,
}

/// The frames of a device by epoch and number.
struct Numbers<'a> {
    whole: FxHashMap<(u64, u64), &'a FoundFrame>,
    headers: FxHashMap<(u64, u64), FrameHeader>,
}

impl<'a> Numbers<'a> {
    fn of(scan: &'a Scan, salvage: bool) -> Numbers<'a> {
        let headless: &[FoundFrame] = if salvage { &scan.headless } else { &[] };
        // Of two frames with one number the one in its place counts, not what else looks like it.
        let found = || headless.iter().chain(&scan.mended).chain(&scan.stray).chain(&scan.frames);
        let number = |header: &FrameHeader| (header.epoch, header.seq);
        let broken = scan.broken.iter().map(|f| f.header);
        Numbers {
            whole: found().map(|f| (number(&f.header), f)).collect(),
            headers: broken.chain(found().map(|f| f.header)).map(|h| (number(&h), h)).collect(),
        }
    }

    /// Ends of checkpoints, whole or not, newest first.
    fn ends(&self) -> Vec<FrameHeader> {
        let mut ends: Vec<_> = self.headers.values().filter(|h| h.kind == FrameKind::End).copied().collect();
        ends.sort_by_key(|h| std::cmp::Reverse((h.epoch, h.seq)));
        ends
    }

    /// The parts of a checkpoint that can be read, and the first that cannot.
    fn parts(&self, end: &FrameHeader) -> (Vec<&'a FoundFrame>, Option<u64>) {
        let first = end.seq.saturating_sub(u64::from(end.parts));
        let mut lost = (u64::from(end.parts) > end.seq).then_some(0);
        let mut parts = Vec::new();
        // A number that is made up must not be counted to.
        for number in (first..end.seq).take(self.headers.len() + 1) {
            match self.whole.get(&(end.epoch, number)) {
                Some(part) if part.header.kind == FrameKind::Part => parts.push(*part),
                _ => lost = lost.or(Some(number)),
            }
        }
        (parts, lost)
    }

    /// What is there behind a checkpoint's end in its epoch, whole or not, in the order of numbers.
    fn after(&self, end: &FrameHeader) -> Vec<FrameHeader> {
        let behind = |h: &&FrameHeader| h.epoch == end.epoch && h.seq > end.seq;
        let mut there: Vec<FrameHeader> = self.headers.values().filter(behind).copied().collect();
        there.sort_unstable_by_key(|h| h.seq);
        there
    }
}

/// What follows a checkpoint.
struct Walk<'a> {
    entries: Vec<&'a FoundFrame>,
    /// Number of the first frame that is missing, or of the first part of a checkpoint that has no end.
    next: u64,
    /// Frames that are missing before the last that is there.
    gaps: Vec<u64>,
    first_after_gap: usize,
}

impl<'a> Walk<'a> {
    /// From a checkpoint on. Checkpoints on the way, damaged or not, say what is known already.
    fn after(end: &FrameHeader, numbers: &Numbers<'a>, through_gaps: bool) -> Walk<'a> {
        let epoch = end.epoch;
        let there = numbers.after(end);
        // Numbers that a checkpoint has whose end is there: its parts may be missing.
        let first_part = |h: &FrameHeader| h.seq.saturating_sub(u64::from(h.parts));
        let mut walk =
            Walk { entries: Vec::new(), next: end.seq + 1, gaps: Vec::new(), first_after_gap: usize::MAX };
        // Where a checkpoint began whose end has not come yet.
        let mut began: Option<u64> = None;
        let mut next = end.seq + 1;
        let mut next_end = 0;
        for header in &there {
            let seq = header.seq;
            if seq > next {
                // The end from here on that comes first.
                next_end = next_end.max(there.partition_point(|h| h.seq < seq));
                while there.get(next_end).is_some_and(|h| h.kind != FrameKind::End) {
                    next_end += 1;
                }
                let of_checkpoint = there.get(next_end).is_some_and(|h| first_part(h) <= next);
                // What follows a part is a part, or the end; an end is one frame.
                let is_end = began.is_some() && seq == next + 1;
                if !of_checkpoint && !is_end {
                    if !through_gaps {
                        break;
                    }
                    walk.gaps.push(next);
                    walk.first_after_gap = walk.first_after_gap.min(walk.entries.len());
                    began = None;
                }
            }
            match (header.kind, numbers.whole.get(&(epoch, seq))) {
                (FrameKind::Entry, Some(entry)) => {
                    began = None;
                    walk.entries.push(*entry);
                }
                (FrameKind::Entry, None) if through_gaps => {
                    walk.gaps.push(seq);
                    walk.first_after_gap = walk.first_after_gap.min(walk.entries.len());
                }
                (FrameKind::Entry, None) => {
                    next = seq;
                    break;
                }
                (FrameKind::Part, _) => began = began.or(Some(seq)),
                (FrameKind::End, _) => began = None,
            }
            next = seq + 1;
        }
        walk.next = began.unwrap_or(next);
        walk
    }
}

impl<'a> Chain<'a> {
    /// The first part of the checkpoint that begins with a name, in the order in which a checkpoint is written: inodes, then names.
    fn first_names(&self, dev: &dyn ZonedDevice) -> Result<usize, LfsError> {
        let (mut from, mut to) = (0, self.parts.len());
        while from < to {
            let middle = from + (to - from) / 2;
            let payload = self.parts.get(middle).map(|part| part.payload(dev)).transpose()?;
            let first = payload.as_deref().map(|payload| Item::decode(&mut Reader::new(payload)));
            match first {
                Some(Ok(
                    Item::Volume { .. }
                    | Item::Secrets { .. }
                    | Item::Inode(_)
                    | Item::Runs { .. }
                    | Item::Reserved { .. }
                    | Item::Xattr { .. },
                )) => {
                    from = middle + 1;
                }
                _ => to = middle,
            }
        }
        Ok(from)
    }

    fn find(scan: &'a Scan, salvage: bool) -> Result<Chain<'a>, LfsError> {
        let numbers = Numbers::of(scan, salvage);
        let mut lost = salvage::Lost::default();
        let Some(newest) = numbers.ends().first().copied() else {
            if let Some(at) = scan.breaks.first() {
                let what = "the metadata is damaged here and no complete checkpoint is left".to_string();
                return Err(LfsError::Corrupt { zone: at.zone, block: at.block, what });
            }
            return Err(no_checkpoint(&scan.zones));
        };
        let place = |end: &FrameHeader| {
            let whole = numbers.whole.get(&(end.epoch, end.seq)).map(|f| (f.zone, f.block));
            let broken = scan.broken.iter().find(|f| (f.header.epoch, f.header.seq) == (end.epoch, end.seq));
            whole.or(broken.map(|f| (f.zone, f.block))).unwrap_or((ZoneId(0), 0))
        };
        // Only ends of the newest epoch: what a mount made of the epoch before is not in that epoch's frames.
        let mut base = None;
        let mut first_lost = None;
        for end in numbers.ends().iter().filter(|end| end.epoch == newest.epoch) {
            match numbers.parts(end) {
                (parts, None) => {
                    base = Some((*end, parts));
                    break;
                }
                (_, Some(number)) => first_lost = first_lost.or(Some((*end, number))),
            }
        }
        let lost_part = |(end, number): &(FrameHeader, u64)| {
            let (zone, block) = place(end);
            let what = format!("part {number} of the checkpoint that ends here is damaged");
            Damage { zone, block, what }
        };
        let lenient = salvage && base.is_none();
        let (end, parts) = match (base, &first_lost) {
            (Some(base), _) => base,
            (None, _) if lenient => {
                // What the copies of the newest checkpoint have between them.
                lost.checkpoint = true;
                let all: Vec<_> =
                    numbers.ends().into_iter().filter(|end| end.epoch == newest.epoch).collect();
                let before = all.iter().filter(|end| end.seq + 1 + u64::from(newest.parts) == newest.seq);
                let mut parts = numbers.parts(&newest).0;
                before.for_each(|end| parts.extend(numbers.parts(end).0));
                (newest, parts)
            }
            (None, first) => {
                let damage = first.as_ref().map_or(
                    Damage { zone: ZoneId(0), block: 0, what: "no checkpoint is left".into() },
                    lost_part,
                );
                return Err(LfsError::Corrupt { zone: damage.zone, block: damage.block, what: damage.what });
            }
        };
        let epoch = end.epoch;
        let walk = Walk::after(&end, &numbers, salvage);
        let mut spared: Vec<Damage> = Vec::new();
        if let Some(first) = &first_lost {
            let damage = lost_part(first);
            if !salvage && walk.next <= first.0.seq {
                return Err(LfsError::Corrupt { zone: damage.zone, block: damage.block, what: damage.what });
            }
            spared.push(damage);
        }
        let (entries, next) = (walk.entries, walk.next);
        let all = || scan.frames.iter().chain(&scan.stray).chain(&scan.headless);
        let of_epoch = || all().filter(|f| f.header.epoch == epoch);
        let flushed_upto = of_epoch().map(|f| f.header.flushed_upto).max().unwrap_or(0);
        match lost_frame(scan, place(&end), &end, next) {
            Some((zone, block, why)) if !salvage => {
                let what = format!("the journal is damaged: frame {next} is not readable, and {why}");
                return Err(LfsError::Corrupt { zone, block, what });
            }
            Some(_) => lost.frames = lost.frames.max(1),
            None => {}
        }
        lost.frames = lost.frames.max(walk.gaps.len() as u64);
        let torn = scan.breaks.iter().filter_map(|at| at.cut_off);
        let newer = all()
            .map(|f| f.header)
            .chain(torn)
            .any(|h| h.epoch > epoch || (h.epoch == epoch && h.seq >= next));
        let headers = || all().map(|f| f.header).chain(scan.broken.iter().map(|f| f.header));
        let last_seq = headers().map(|h| h.seq).max().unwrap_or(end.seq);
        let top = headers().map(|h| h.epoch).max().unwrap_or(epoch);
        let spare = spare_of(&end, &numbers, place);
        Ok(Chain {
            parts,
            end,
            end_at: place(&end),
            entries,
            first_after_gap: walk.first_after_gap,
            spare,
            spared,
            lost,
            lenient: salvage,
            flushed_upto,
            epoch: top,
            last_seq,
            newer,
        })
    }

    /// Notes the copies of what there are two of, and which of them are damaged.
    fn note_copies(&self, scan: &Scan, state: &mut Restored) {
        let spare = self.spare.iter().filter(|zone| !state.chain.contains(zone));
        state.spare = spare.copied().collect();
        let live: FxHashSet<ZoneId> = state.chain.iter().chain(&state.spare).copied().collect();
        let sequence = |zone: ZoneId| scan.zones[zone.index()].header.map_or(0, |h| h.sequence);
        let oldest = live.iter().map(|zone| sequence(*zone)).min().unwrap_or(0);
        for at in scan.breaks.iter().filter(|at| sequence(at.zone) >= oldest) {
            // What a power cut leaves is cut off by the write pointer, and a volume that was closed has nothing of it.
            if at.cut_off.is_none() || state.clean {
                let what = "no whole frame where one was written".to_string();
                state.spared.push(Damage { zone: at.zone, block: at.block, what });
            }
        }
        if state.clean && state.spare.is_empty() {
            let (zone, block) = self.end_at;
            let what = "the checkpoint that ends here has no second copy".to_string();
            state.spared.push(Damage { zone, block, what });
        }
        for (zone, found) in scan.numbered() {
            if let Some(block) = found.bad_header.filter(|_| live.contains(&zone)) {
                state.spared.push(Damage {
                    zone,
                    block,
                    what: "a copy of the zone header is damaged".into(),
                });
            }
        }
    }

    /// Applies the checkpoint and the first `stop` entries. Also returns what entries wrote.
    fn apply(
        &self,
        dev: &dyn ZonedDevice,
        scan: &Scan,
        stop: usize,
        crcs: &[AtomicU32],
    ) -> Result<(Restored, Written), LfsError> {
        let info = dev.info();
        let mut state = Restored {
            tree: Tree { device_blocks: info.blocks(), ..Tree::default() },
            next_sequence: 1,
            volume_bytes: self.end.volume_bytes,
            epoch: self.epoch,
            last_seq: self.last_seq,
            spared: self.spared.clone(),
            lost: self.lost.clone(),
            entries: stop,
            ..Restored::default()
        };
        let corrupt = |frame: &FoundFrame, error: ApplyError| LfsError::Corrupt {
            zone: frame.zone,
            block: frame.block,
            what: error.to_string(),
        };
        let at_end = |what: String| LfsError::Corrupt { zone: self.end_at.0, block: self.end_at.1, what };
        let mut loader = Loader {
            tree: &mut state.tree,
            crcs,
            zone_blocks: info.zone_blocks,
            volume: None,
            listed: &mut state.listed,
            marked: &mut state.marked,
            patches: &mut state.patches,
            expected: None,
            checks_names: self.lenient,
        };
        if self.lost.checkpoint {
            // A part that can be read no more is one that is missing.
            let payloads: Vec<_> = self.parts.iter().filter_map(|part| part.payload(dev).ok()).collect();
            // Records that name an inode whose own record is in another part come again when all parts are read.
            let mut again: Vec<Item<'_>> = Vec::new();
            loader.expected = Some(Vec::new());
            for payload in &payloads {
                // What does not fit is left out.
                let _ = loader.load_part(payload, true, |item| again.push(item.clone()));
            }
            let expected = loader.expected.take().unwrap_or_default();
            salvage::adopt(again, &mut loader, &mut state.lost);
            salvage::note_partial(&expected, loader.tree, loader.patches, &mut state.lost);
        } else {
            let names = if self.lenient { self.parts.len() } else { self.first_names(dev)? };
            let (inodes, names) = self.parts.split_at(names);
            // A second thread gathers the names meanwhile.
            let gathered = std::thread::scope(|scope| {
                let gathered = scope.spawn(|| gather_names(dev, names));
                with_payloads(dev, inodes, |part, payload| {
                    let loaded = loader.load_part(payload?, self.lenient, |_| {});
                    loaded.map_err(|error| corrupt(part, error))
                })?;
                gathered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
            for (dir, entries) in gathered.directories {
                let adopted = loader.tree.adopt_entries(dir, entries);
                adopted.map_err(|error| at_end(format!("names of a directory: {error}")))?;
            }
            let mut skip = gathered.bytes;
            with_payloads(dev, &names[gathered.parts..], |part, payload| {
                let behind = payload?.get(std::mem::take(&mut skip)..).unwrap_or(&[]);
                loader.load_part(behind, false, |_| {}).map_err(|error| corrupt(part, error))
            })?;
        }
        let volume = loader.volume.take();
        let (label, formatted_at, next_ino, next_sequence) = match volume {
            Some(volume) => {
                state.lost.base_sequence = volume.3;
                volume
            }
            // The zones themselves tell how far their numbers have come.
            None if self.lenient => {
                let header = scan.zones[self.end_at.0.index()].header;
                state.lost.base_sequence = header.map_or(0, |header| header.sequence);
                (String::new(), 0, 1, 1)
            }
            None => return Err(at_end("the checkpoint does not name its volume".to_string())),
        };
        state.tree.next_ino = state.tree.next_ino.max(next_ino);
        (state.label, state.formatted_at, state.next_sequence) = (label, formatted_at, next_sequence);
        let mut written = Written::default();
        let mut first_after_gap = self.first_after_gap;
        let mut numbers = 0..;
        with_payloads(dev, &self.entries[..stop], |entry, payload| {
            let index = numbers.next().unwrap_or(usize::MAX);
            let payload = match payload {
                Err(_) if self.lenient => {
                    state.lost.frames += 1;
                    first_after_gap = first_after_gap.min(index + 1);
                    return Ok(());
                }
                payload => payload?,
            };
            let mut r = Reader::new(payload);
            while r.remaining() > 0 {
                let record = match Record::decode(&mut r) {
                    Ok(record) => record,
                    Err(_) if self.lenient => break,
                    Err(error) => return Err(corrupt(entry, error.into())),
                };
                match state.tree.apply(&record, &mut ()) {
                    Ok(()) => {}
                    Err(_) if self.lenient && state.lost.adopt(&mut state.tree, &record) => {}
                    Err(error) if self.lenient => {
                        state.lost.note(&record, &error);
                        continue;
                    }
                    Err(error) => return Err(corrupt(entry, error)),
                }
                if index >= first_after_gap {
                    state.lost.note_mixed(&record);
                }
                state.mark_secrets(&record, info.zone_blocks);
                state.patch(&record);
                if let Record::Extents { ino, runs, crcs: of_runs, .. } = &record {
                    if self.lenient {
                        let blocks = runs.iter().flat_map(|r| r.block..r.block + u64::from(r.run.count));
                        written
                            .recorded
                            .extend(blocks.map(|block| (ino.0, block)).zip(of_runs.iter().copied()));
                    }
                    let late = entry.header.seq > self.flushed_upto;
                    note_crcs(runs, of_runs, crcs, |block, crc| {
                        if late {
                            written.suspects.insert(block, (crc, index));
                        }
                    });
                }
            }
            state.volume_bytes = entry.header.volume_bytes;
            Ok(())
        })?;
        let has_root = state.tree.get(Ino::ROOT).is_some_and(|root| root.kind == FileKind::Directory);
        if !has_root && self.lenient {
            salvage::make_root(&mut state.tree);
        } else if !has_root {
            return Err(at_end(
                "the checkpoint, with the journal after it, has no root directory".to_string(),
            ));
        }
        let numbers =
            [state.epoch, state.last_seq, state.volume_bytes, state.next_sequence, state.tree.next_ino];
        if let Some(number) = numbers.into_iter().find(|number| *number > COUNT_MOUNTED_MAX)
            && !self.lenient
        {
            let what = format!(
                "the chain that ends here has the number {number}, which is higher than any volume reaches"
            );
            return Err(at_end(what));
        }
        let zones = self.parts.iter().map(|f| f.zone).chain([self.end_at.0]);
        for zone in zones.chain(self.entries[..stop].iter().map(|f| f.zone)) {
            if !state.chain.contains(&zone) {
                state.chain.push(zone);
            }
        }
        Ok((state, written))
    }
}

/// Zones of the checkpoint just before one with which the volume was closed: it says the same.
fn spare_of(
    end: &FrameHeader,
    numbers: &Numbers<'_>,
    place: impl Fn(&FrameHeader) -> (ZoneId, u32),
) -> Vec<ZoneId> {
    let before = end.seq.checked_sub(u64::from(end.parts) + 1).filter(|_| end.clean);
    let twin = before.and_then(|seq| numbers.whole.get(&(end.epoch, seq)));
    let Some(twin) = twin.filter(|f| f.header.kind == FrameKind::End) else { return Vec::new() };
    let (parts, None) = numbers.parts(&twin.header) else { return Vec::new() };
    let mut zones: Vec<ZoneId> = parts.iter().map(|f| f.zone).collect();
    zones.push(place(&twin.header).0);
    zones.dedup();
    zones
}

fn note_crcs(runs: &[FileRun], of_runs: &[u32], table: &[AtomicU32], mut each: impl FnMut(u64, u32)) {
    let blocks = runs.iter().flat_map(|r| (0..u64::from(r.run.count)).map(move |i| r.run.device_block() + i));
    for (block, crc) in blocks.zip(of_runs) {
        if let Some(slot) = table.get(block as usize) {
            slot.store(*crc, Relaxed);
        }
        each(block, *crc);
    }
}

/// Whether frame `next` is missing for another reason than that a power cut took it; where, and what proves it.
fn lost_frame(
    scan: &Scan,
    end_at: (ZoneId, u32),
    end: &FrameHeader,
    next: u64,
) -> Option<(ZoneId, u32, &'static str)> {
    let epoch = end.epoch;
    let all = || scan.frames.iter().chain(&scan.stray).chain(&scan.headless);
    let place = |f: &FoundFrame| {
        let at = scan.breaks.iter().find(|at| at.zone == f.zone).map_or(f.block, |at| at.block);
        (f.zone, at)
    };
    let of_epoch = |f: &&FoundFrame| f.header.epoch == epoch && f.header.seq >= next;
    // The first part of a checkpoint whose end is not there is not missing.
    let there = all().any(|f| (f.header.epoch, f.header.seq) == (epoch, next));
    if !there && let Some(f) = all().filter(of_epoch).find(|f| f.header.flushed_upto >= next) {
        let (zone, block) = place(f);
        return Some((zone, block, "a later frame says that it was durable"));
    }
    // Parts of a checkpoint whose end is not there say nothing that is not known.
    let newer = |f: &&FoundFrame| {
        (f.header.epoch, f.header.seq) >= (epoch, next)
            && !(f.header.epoch == epoch && f.header.kind == FrameKind::Part)
    };
    if let Some(f) = scan.stray.iter().chain(&scan.headless).find(newer) {
        let (zone, block) = place(f);
        return Some((zone, block, "a later frame stands behind it"));
    }
    if let Some(f) = all().find(|f| f.header.epoch > epoch && f.header.kind == FrameKind::Entry) {
        return Some((f.zone, f.block, "a later mount's entries are there without its checkpoint"));
    }
    // Where the next frame would stand: behind the last one, or at the start of the next zone.
    let in_place = scan.frames.iter().chain(&scan.stray);
    let last = in_place.filter(|f| f.header.epoch == epoch).max_by_key(|f| f.header.seq);
    let (last_zone, last_block) = last.map_or(end_at, |f| (f.zone, f.block));
    let sequence = |zone: ZoneId| scan.zones[zone.index()].header.map_or(0, |h| h.sequence);
    // After parts comes the end, of one block: when no more than that is missing, nothing is lost.
    let end_comes = last.is_some_and(|f| f.header.kind == FrameKind::Part && f.header.seq >= next);
    let legal = |at: &&Break| at.cut_off.is_some() || end_comes && at.blocks == 1;
    let damaged = scan.breaks.iter().filter(|at| !legal(at)).find(|at| {
        let follows = at.block == HEADER_BLOCKS && sequence(at.zone) > sequence(last_zone);
        // A part of a later checkpoint that is known to be broken says nothing that is not known either.
        let known = scan.broken.iter().any(|f| {
            (f.zone, f.block) == (at.zone, at.block)
                && f.header.kind != FrameKind::Entry
                && f.header.epoch == epoch
        });
        !known && ((at.zone == last_zone && at.block > last_block) || follows)
    });
    damaged.map(|at| (at.zone, at.block, "a device keeps whole blocks below its write pointer"))
}

/// Puts checkpoint records into a tree.
pub(super) struct Loader<'a> {
    pub(super) tree: &'a mut Tree,
    crcs: &'a [AtomicU32],
    zone_blocks: u32,
    volume: Option<(String, i64, u64, u64)>,
    listed: &'a mut FxHashSet<ZoneId>,
    marked: &'a mut Option<BTreeSet<ZoneId>>,
    patches: &'a mut Patches,
    /// What of each inode other records have to say, where some may be lost.
    pub(super) expected: Option<Vec<Expected>>,
    /// Names may be there without their inodes.
    pub(super) checks_names: bool,
}

/// The names at the beginning of parts of a checkpoint.
#[derive(Default)]
struct Names {
    directories: FxHashMap<Ino, Directory>,
    /// So many parts have nothing else; of the next one, so many bytes.
    parts: usize,
    bytes: usize,
}

/// Gathers names from parts, up to the first record that is something else.
fn gather_names(dev: &dyn ZonedDevice, parts: &[&FoundFrame]) -> Result<Names, LfsError> {
    let mut names = Names::default();
    for part in parts {
        let payload = part.payload(dev)?;
        let mut r = Reader::new(&payload);
        while r.remaining() > 0 {
            names.bytes = r.position();
            // What cannot be read, or does not fit, is found by whoever goes on from here.
            let Ok(Item::Entry { dir, cookie, ino, name }) = Item::decode(&mut r) else { return Ok(names) };
            let entries = names.directories.entry(dir).or_insert_with(|| Directory::new(dir));
            if !entries.insert_at(name, ino, cookie) {
                return Ok(names);
            }
        }
        names.parts += 1;
        names.bytes = 0;
    }
    Ok(names)
}

/// How much of an inode a checkpoint's other records have.
pub(super) struct Expected {
    pub(super) ino: Ino,
    pub(super) runs: u64,
    pub(super) xattrs: u32,
    pub(super) blocks: u32,
}

impl Loader<'_> {
    /// Loads the records of a part. With `lenient`, `misfit` gets those that do not fit, and what cannot be read ends the part.
    fn load_part<'p>(
        &mut self,
        payload: &'p [u8],
        lenient: bool,
        mut misfit: impl FnMut(&Item<'p>),
    ) -> Result<(), ApplyError> {
        let mut r = Reader::new(payload);
        while r.remaining() > 0 {
            let item = match Item::decode(&mut r) {
                Ok(item) => item,
                Err(_) if lenient => break,
                Err(error) => return Err(error.into()),
            };
            match self.load(&item) {
                Err(_) if lenient => misfit(&item),
                loaded => loaded?,
            }
        }
        Ok(())
    }

    pub(super) fn load(&mut self, item: &Item<'_>) -> Result<(), ApplyError> {
        match *item {
            Item::Volume { label, formatted_at, next_ino, next_sequence } => {
                let label = String::from_utf8_lossy(label).into_owned();
                self.volume = Some((label, formatted_at, next_ino, next_sequence));
                Ok(())
            }
            Item::Inode(ref saved) => {
                let ino = saved.node.ino;
                refuse(ino.0 == 0 || self.tree.get(ino).is_some(), ApplyError::Exists(ino.0))?;
                let SavedInode { runs, xattrs, blocks, .. } = *saved;
                if let Some(expected) = &mut self.expected {
                    expected.push(Expected { ino, runs, xattrs, blocks });
                }
                let inode = self.tree.add_inode(&saved.node, saved.parent);
                inode.links = saved.links;
                inode.disk_size = saved.size;
                [inode.atime, inode.mtime, inode.ctime] = saved.times;
                if let Body::Directory(directory) = &mut inode.body {
                    directory.next_cookie = saved.next_cookie.max(1);
                    if !self.checks_names {
                        // A directory has a link from each one in it. What is not so, the look at all names finds.
                        directory.subdirectories = saved.links.saturating_sub(2);
                    }
                }
                Ok(())
            }
            Item::Secrets { ref zones } => {
                self.marked.get_or_insert_default().extend(zones);
                Ok(())
            }
            Item::Runs { ino, ref runs } => self.tree.map_runs(ino, runs, &mut ()),
            Item::Reserved { ino, ref ranges } => {
                for &(block, count) in ranges {
                    self.tree.apply(&Record::Reserve { ino, block, count }, &mut ())?;
                }
                Ok(())
            }
            Item::Xattr { ino, name, value } => {
                let ctime = self.tree.get(ino).ok_or(ApplyError::NoInode(ino.0))?.ctime;
                self.tree.apply(&Record::Xattr { ino, name, value: Some(value), time: ctime }, &mut ())
            }
            Item::Entry { dir, cookie, ino, name } => {
                if self.checks_names {
                    self.tree.note_child(dir, ino)?;
                }
                self.tree.load_entry(dir, cookie, ino, name)
            }
            Item::Block { ino, block, bytes } => {
                let inode = self.tree.get(ino).ok_or(ApplyError::NoInode(ino.0))?;
                refuse(inode.kind != FileKind::File, ApplyError::WrongKind(ino.0, "a file"))?;
                self.patches.insert((ino.0, block), vec![(0, bytes.to_vec())]);
                Ok(())
            }
            Item::Crcs { zone, block, ref crcs } => {
                self.listed.insert(zone);
                let first = u64::from(zone.0) * u64::from(self.zone_blocks) + u64::from(block);
                let slots = self.crcs;
                let end = first + crcs.len() as u64;
                refuse(end > slots.len() as u64, ApplyError::BadExtent(0))?;
                for (slot, crc) in slots[first as usize..end as usize].iter().zip(crcs) {
                    slot.store(*crc, Relaxed);
                }
                Ok(())
            }
        }
    }
}

impl Restored {
    /// Notes where an inode lies that gets the class of secure deletion: no checkpoint names these zones yet.
    fn mark_secrets(&mut self, record: &Record<'_>, zone_blocks: u32) {
        let (Record::Xattr { ino, .. } | Record::SetTag { ino, .. }) = *record else { return };
        let Some(inode) = self.tree.get(ino).filter(|inode| inode.is_secure()) else { return };
        let zones = inode.map().into_iter().flat_map(|map| map.iter());
        let zones = zones.map(|run| ZoneId((run.run.address / BLOCK / u64::from(zone_blocks)) as u32));
        self.marked.get_or_insert_default().extend(zones);
    }

    /// Looks whether names and inodes fit together.
    ///
    /// # Errors
    /// [`LfsError::Unfitting`].
    pub fn check_names(&self) -> Result<(), LfsError> {
        let problems = names::problems(&self.tree);
        let Some(first) = problems.first() else { return Ok(()) };
        Err(LfsError::Unfitting { ino: first.ino, what: first.what.clone(), more: problems.len() - 1 })
    }

    /// Makes names and inodes fit together.
    pub fn mend_names(&mut self) {
        let problems = names::problems(&self.tree);
        let Some(first) = problems.first() else { return };
        tracing::warn!(ino = first.ino.0, what = first.what, problems = problems.len(), "names are mended");
        let mended = names::mend(&mut self.tree);
        self.lost.names.extend(mended.names);
        self.lost.orphans.extend(mended.orphans);
    }

    /// Keeps the inline bytes in step with a record.
    fn patch(&mut self, record: &Record<'_>) {
        match record {
            Record::Inline { ino, offset, bytes, .. } => {
                let (from, end) = (offset % BLOCK, offset % BLOCK + bytes.len() as u64);
                let patches = self.patches.entry((ino.0, offset / BLOCK)).or_default();
                // A place that is overwritten again and again takes memory once.
                patches.retain(|(at, old)| u64::from(*at) < from || u64::from(*at) + old.len() as u64 > end);
                patches.push((from as u32, bytes.to_vec()));
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

/// The first entry of which a block that is still mapped holds something else than what was written, or was not written.
fn first_torn(dev: &dyn ZonedDevice, scan: &Scan, tree: &Tree, suspects: &Suspects) -> Option<usize> {
    if suspects.is_empty() {
        return None;
    }
    let info = dev.info();
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
                let (zone, at) = info.place(block);
                let written = at < scan.zones[zone.index()].report.write_pointer;
                // A failed read says nothing about what was written: a later read of the file returns the error.
                let mut differs = || dev.read(zone, at, &mut raw).is_ok() && crc32c(&raw) != *crc;
                if !written || differs() {
                    torn = Some(*entry);
                }
            }
        }
    }
    torn
}

/// Whether a whole block holds nothing but zeros behind its first `len` bytes. What cannot be read is found by whoever reads it.
fn zeros_behind(dev: &dyn ZonedDevice, run: Run, len: usize) -> bool {
    let (zone, block) = dev.info().place(run.device_block());
    let mut raw = vec![0; BLOCK_BYTES];
    let read = dev.read(zone, block, &mut raw);
    read.is_err() || raw[len..].iter().all(|byte| *byte == 0)
}

/// What replay leaves to be done: files end where their data does, and files without a name are gone.
fn settle(state: &mut Restored, zeros_behind: impl Fn(Run, usize) -> bool) {
    let mut orphans = Vec::new();
    let files: Vec<(u64, u64)> = state
        .tree
        .inodes
        .iter_mut()
        .filter_map(|(ino, inode)| {
            inode.size = inode.disk_size;
            if inode.links == 0 {
                orphans.push(ino);
            }
            let reaches_beyond = inode.map().is_some_and(|map| map.reaches_beyond(inode.size));
            reaches_beyond.then_some((ino, inode.size))
        })
        .collect();
    for ino in orphans {
        state.drop_patches(Ino(ino), 0, u64::MAX);
        // Freeing an inode that exists cannot fail.
        let _ = state.tree.apply(&Record::Free { ino: Ino(ino) }, &mut ());
    }
    for (ino, size) in files {
        let ino = Ino(ino);
        // Nothing to apply to is the only way for this to fail.
        let _ = state.tree.end_at(ino, size, |run| zeros_behind(run, (size % BLOCK) as usize));
    }
    let mut patched: Vec<u64> = state.patches.keys().map(|(ino, _)| *ino).collect();
    patched.dedup();
    for ino in patched {
        let Some(size) = state.tree.get(Ino(ino)).map(|inode| inode.size) else { continue };
        state.drop_patches(Ino(ino), size.div_ceil(BLOCK), u64::MAX);
        if !size.is_multiple_of(BLOCK) {
            state.cut_patches(Ino(ino), size / BLOCK, (size % BLOCK) as usize);
        }
    }
}

/// CRCs of zones that have a footer.
fn load_footers(dev: &dyn ZonedDevice, scan: &Scan, table: &[AtomicU32]) {
    let zone_blocks = dev.info().zone_blocks;
    for (zone, found) in scan.numbered() {
        if let Some(crcs) = read_footer(dev, zone, found) {
            let first = zone.index() * zone_blocks as usize;
            for (slot, crc) in table[first..].iter().zip(crcs) {
                slot.store(crc, Relaxed);
            }
        }
    }
}

/// The footer of a full data zone, from the first of its copies that can be read; `None` when there is none.
pub fn read_footer(dev: &dyn ZonedDevice, zone: ZoneId, found: &FoundZone) -> Option<Vec<u32>> {
    (0..footer::COPIES as usize).find_map(|copy| read_footer_copy(dev, zone, found, copy).ok().flatten())
}

/// One copy of the footer of a full data zone; `None` when it is damaged, or the zone has none.
pub fn read_footer_copy(
    dev: &dyn ZonedDevice,
    zone: ZoneId,
    found: &FoundZone,
    copy: usize,
) -> Result<Option<Vec<u32>>, DeviceError> {
    let capacity = dev.info().zone_capacity;
    let data = found.header.is_some_and(|header| header.kind == ZoneKind::Data);
    if found.report.state != ZoneState::Full || found.report.write_pointer != capacity || !data {
        return Ok(None);
    }
    let (places, blocks) = footer::places(capacity);
    let Some(place) = places.get(copy) else { return Ok(None) };
    let mut raw = vec![0; blocks as usize * BLOCK_BYTES];
    dev.read(zone, *place, &mut raw)?;
    Ok(footer::decode(&raw).filter(|crcs| crcs.len() as u32 == footer::data_end(capacity)))
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
            spare: Vec::new(),
            spared: Vec::new(),
            lost: salvage::Lost::default(),
            entries: 0,
            dropped: 0,
            listed: FxHashSet::default(),
            marked: None,
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
        settle(&mut state, |_, _| false);
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
            settle(&mut state, |_, _| false);
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
        settle(&mut state, |_, _| false);
        assert!(state.tree.get(FILE).is_none() && state.patches.is_empty());
        assert!(state.tree.get(Ino::ROOT).is_some());
        assert_eq!(state.tree.runs, 0);
    }
}
