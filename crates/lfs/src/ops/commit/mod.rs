//! Several changes of names, attributes and data in one step: [`FileSystem::commit`](weft_vfs::FileSystem::commit).
//!
//! ```text
//!   plan -> secure the past -> write the data -> one transaction of all records -> zones and observers -> flush
//!   `------ may refuse, nothing has changed ------'
//! ```
//! 1. [`plan`] does the changes in memory, beside the volume, and refuses the step where a change cannot be done.
//! 2. What was buffered of the files before the step goes to the journal: it must not come after the step. What is planned stays right,
//!    because no content changes by it.
//! 3. New blocks are written to their zones, unless they are [few](inline): those go to the journal with the records. No file maps them
//!    yet; they are dead space when the step ends here. Their zones count a writer, so that they are neither reset nor cleaned.
//! 4. All records are logged in one transaction. A frame holds whole transactions, and replay takes a frame only if all the data that it
//!    maps is whole: so a power cut leaves the step or nothing of it.
//!
//! The lock is held all the time but for the flush.

mod file;
mod inline;
mod plan;

use self::file::FilePlan;
use self::plan::{Outcome, is_about_attributes, plan};
use crate::Lfs;
use crate::alloc::reserve::CLEANER_ZONES;
use crate::core::State;
use crate::core::pack::{PackedPiece, Packer};
use crate::layout::BLOCK;
use crate::layout::frame::TRANSACTION_MAX;
use crate::layout::record::{EXTENT_BLOCKS_MAX, FileRun, Record, Run};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Acquire;
use weft_core::{BLOCK_BYTES, Ino, Tag, ZoneId, refuse};
use weft_vfs::change::{Made, check};
use weft_vfs::{Change, FsError, FsResult, Node, Refused, RenameFlags, SetAttr, TimeSpec};

/// Blocks of a step that are written, and that no file maps yet.
#[derive(Default)]
struct Placed {
    /// Where the blocks of each file lie, in their order.
    runs: BTreeMap<Ino, Vec<FileRun>>,
    /// The zone of each write, which counts it as a writer, and the tag of what was written.
    zones: Vec<(ZoneId, Tag)>,
    /// None is written: all go to the journal.
    is_inline: bool,
}

/// Blocks with one stream and group, by file.
struct Group {
    /// The tag of all of them.
    tag: Tag,
    blocks: Vec<(Ino, u64)>,
}

/// Ranges of blocks of a file: first, and the one behind the last.
type BlockRanges = Vec<(u64, u64)>;

impl Placed {
    fn add(&mut self, ino: Ino, block: u64, address: u64, len: u32) {
        let runs = self.runs.entry(ino).or_default();
        if let Some(last) = runs.last_mut()
            && u64::from(len) == BLOCK
            && last.run.is_whole()
            && last.run.count < EXTENT_BLOCKS_MAX
            && last.block + u64::from(last.run.count) == block
            && last.run.address + u64::from(last.run.count) * BLOCK == address
        {
            last.run.count += 1;
        } else {
            runs.push(FileRun { block, run: Run { address, count: 1, len } });
        }
    }
}

impl Lfs {
    pub(crate) fn op_commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        check(changes)?;
        let whole = |error| Refused { at: changes.len(), error };
        let (made, seq) = {
            let state = &mut *self.locked().map_err(whole)?;
            let expected = changes.iter().try_for_each(|change| match *change {
                Change::Create { ref args, .. } => state.expect_secrets(&args.tag_with_flags()),
                Change::SetTag { tag, .. } => state.expect_secrets(&tag),
                Change::Xattr { name, value, .. } => state.expect_flags(name, value),
                _ => Ok(()),
            });
            expected.map_err(whole)?;
            let outcome = state.plan_secured(changes)?;
            let began = self.stall_begins(state);
            let done = state.do_step(changes, &outcome);
            self.stall_ends(began);
            done.map_err(whole)?;
            if durable {
                state.commit().map_err(whole)?;
            }
            (outcome.made, self.shared.written_seq.load(Acquire))
        };
        if durable {
            self.wait_durable(seq).and_then(|()| self.erase()).map_err(whole)?;
        }
        Ok(made)
    }
}

impl State {
    /// Plans a step of which what was before it is in the journal.
    fn plan_secured(&mut self, changes: &[Change<'_>]) -> Result<Outcome, Refused> {
        loop {
            let outcome = plan(self, changes)?;
            let is_buffered = |ino: &&Ino| {
                self.tree.get(**ino).is_some_and(|inode| inode.dirty.fresh_blocks().next().is_some())
            };
            let buffered: Vec<Ino> =
                outcome.files.keys().chain(&outcome.replacing).filter(is_buffered).copied().collect();
            if buffered.is_empty() {
                return Ok(outcome);
            }
            for ino in buffered {
                let secured = self.journal_or_write_back(ino).and_then(|()| self.maintain());
                secured.map_err(|error| Refused { at: changes.len(), error })?;
            }
        }
    }

    /// Does a step that is planned. When it fails and the volume has not, nothing has changed.
    fn do_step(&mut self, changes: &[Change<'_>], outcome: &Outcome) -> FsResult<()> {
        let mut placed = Placed { is_inline: self.fits_journal(outcome), ..Placed::default() };
        let written = if placed.is_inline { Ok(()) } else { self.write_files(outcome, &mut placed) };
        let told = written
            .and_then(|()| self.begin_transaction())
            .and_then(|()| self.log_step(changes, outcome, &placed));
        // Zones are done with only now that what was written to them is mapped.
        let mut ended = Ok(());
        for (zone, tag) in &placed.zones {
            if told.is_err() {
                self.give_up_written(*zone, tag);
            }
            ended = ended.and(self.end_write(*zone));
        }
        for (ino, ranges) in told? {
            match self.tree.get(ino) {
                Some(_) => self.notify_ranges(ino, &ranges),
                None => self.notify_gone(ino, &ranges),
            }
        }
        ended
    }

    /// Writes the blocks of all files, those with one stream and group together.
    fn write_files(&mut self, outcome: &Outcome, placed: &mut Placed) -> FsResult<()> {
        let mut groups: BTreeMap<(u16, u16), Group> = BTreeMap::new();
        for (ino, file) in &outcome.files {
            for (block, new) in &file.written {
                let key = (new.tag.stream.0, new.tag.group.0);
                let group = groups.entry(key).or_insert_with(|| Group { tag: new.tag, blocks: Vec::new() });
                group.tag = group.tag.beside(new.tag);
                group.blocks.push((*ino, *block));
            }
        }
        let blocks: u64 = groups.values().map(|group| group.blocks.len() as u64).sum();
        // What they replace lives until all of them are there.
        let needed = self.space.used() + blocks * BLOCK;
        refuse(blocks > 0 && needed > self.usable() + self.beyond_full_max(), FsError::NoSpace)?;
        for Group { tag, blocks } in groups.into_values() {
            let (data, packed) = pack(&blocks, &outcome.files);
            self.write_group(&tag, &data, &packed, placed)?;
        }
        for runs in placed.runs.values_mut() {
            runs.sort_unstable_by_key(|run| run.block);
        }
        Ok(())
    }

    /// Writes a buffer of device blocks to the zone for `tag`, and notes where its pieces are then.
    fn write_group(
        &mut self,
        tag: &Tag,
        data: &[u8],
        packed: &[PackedPiece],
        placed: &mut Placed,
    ) -> FsResult<()> {
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        let mut packed = packed;
        let mut written = 0;
        while written < blocks {
            let left = (blocks - written).min(crate::core::WRITE_BLOCKS_MAX);
            self.clean_for_write(tag, left)?;
            // The cleaner gains nothing from what was written until it is mapped.
            if !placed.zones.is_empty() && self.free_for_data() < CLEANER_ZONES {
                self.refill_cleaner_zones(CLEANER_ZONES)?;
                refuse(self.free_for_data() < CLEANER_ZONES, FsError::NoSpace)?;
            }
            let (first, count) = self.write_data(tag, &data[written as usize * BLOCK_BYTES..])?;
            let (zone, _) = self.shared.zone_block(first);
            placed.zones.push((zone, *tag));
            // It takes no more, and the next one may be the last that the device lets be open.
            self.close_if_full(zone)?;
            let end = packed.partition_point(|piece| piece.index < written + count);
            let (now, later) = packed.split_at(end);
            for piece in now {
                let device_block = first + u64::from(piece.index - written);
                placed.add(piece.ino, piece.block, device_block * BLOCK + u64::from(piece.offset), piece.len);
            }
            packed = later;
            written += count;
        }
        Ok(())
    }

    /// Logs all records of a step, in a transaction that has begun. Returns the ranges of blocks of which the map observer is to be told.
    fn log_step(
        &mut self,
        changes: &[Change<'_>],
        outcome: &Outcome,
        placed: &Placed,
    ) -> FsResult<Vec<(Ino, BlockRanges)>> {
        let (began, time) = (self.journal.pending(), self.now());
        let mut told = Vec::new();
        self.volume_bytes += outcome.bytes_written;
        for (at, change) in changes.iter().enumerate() {
            for (ino, file) in outcome.files.iter().filter(|(_, file)| file.last == at) {
                told.push((*ino, self.log_file(*ino, file, placed, time)?));
            }
            self.log_change(change, outcome, (time, outcome.clock[at]))?;
        }
        for ino in &outcome.gone {
            told.push((*ino, self.log_free_if_dead(*ino)?));
        }
        assert_eq!(self.tree.next_ino, outcome.next_ino, "the inodes that were planned are made");
        let bytes = self.journal.pending() - began;
        assert!(bytes <= TRANSACTION_MAX, "a step took {bytes} bytes of records, which were planned to fit");
        Ok(told)
    }

    /// Logs a change of names or attributes.
    fn log_change(
        &mut self,
        change: &Change<'_>,
        outcome: &Outcome,
        (time, clock): (i64, u64),
    ) -> FsResult<()> {
        let ino_of = |node| match node {
            Node::Ino(ino) => Ok(ino),
            Node::Made(at) => outcome.made.get(at).copied().flatten().ok_or(FsError::Stale),
        };
        match *change {
            Change::Expect { .. } | Change::Write { .. } | Change::Fallocate { .. } => Ok(()),
            Change::Create { dir, name, ref args } => {
                self.log_create((ino_of(dir)?, name), args, (time, clock)).map(|_| ())
            }
            Change::Link { node, dir, name } => self.log_link(ino_of(node)?, ino_of(dir)?, name, time),
            Change::Remove { dir, name, .. } => self.log(&Record::Unlink { dir: ino_of(dir)?, name, time }),
            Change::Rename { from, name, to, new_name, flags } => {
                self.log_planned_rename((ino_of(from)?, name), (ino_of(to)?, new_name), flags, (time, clock))
            }
            Change::SetAttr { node, ref set } if is_about_attributes(set) => {
                let time = set.ctime.map_or(time, |time| time.0);
                let record = self.attributes_record(ino_of(node)?, set, time)?;
                self.log(&record)
            }
            Change::SetAttr { .. } => Ok(()),
            Change::Xattr { node, name, value, .. } => {
                self.log(&Record::Xattr { ino: ino_of(node)?, name, value, time })
            }
            Change::SetTag { node, tag } => self.log_tag(ino_of(node)?, tag),
        }
    }

    fn log_planned_rename(
        &mut self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
        times: (i64, u64),
    ) -> FsResult<()> {
        // Two names of one file: nothing happens.
        if self.inode_named(from, name) == self.inode_named(to, new_name) {
            return Ok(());
        }
        self.log_rename((from, name), (to, new_name), flags, times)
    }

    /// Logs what a step makes of a file's data, its size and its times. Returns the ranges of blocks that are other ones now.
    fn log_file(&mut self, ino: Ino, file: &FilePlan, placed: &Placed, time: i64) -> FsResult<BlockRanges> {
        let mut changed = file.changed_before(self.file(ino)?);
        // All that is written is stored with the step.
        file.written.keys().for_each(|block| self.note_overwrite(ino, *block * BLOCK));
        self.note_stored(ino);
        let cut_end = file.cut_to.map_or(u64::MAX, |size| size.div_ceil(BLOCK));
        let frame = self.journal.next_seq;
        if let Some(size) = file.cut_to {
            if size == 0 {
                self.notify_death(ino);
            }
            self.drop_dirty(ino, cut_end, u64::MAX);
            self.log(&Record::Truncate { ino, size, extend: false, time })?;
        }
        for (first, end) in file.holes.range(0, cut_end) {
            self.drop_dirty(ino, first, end);
            self.log(&Record::Punch { ino, block: first, count: end - first, time })?;
        }
        if !placed.is_inline {
            file.written.keys().for_each(|block| self.forget_dirty(ino, *block));
        }
        if let Some(inode) = self.tree.get_mut(ino) {
            inode.size = file.size;
            inode.mtime = time;
            inode.born_at = file.born_at.unwrap_or(inode.born_at);
            if file.cut_to == Some(0) {
                // Content that comes with the truncation is never missing.
                inode.emptied_in = if file.size == 0 { frame } else { 0 };
            }
        }
        if placed.is_inline {
            self.log_inline(ino, file, time)?;
            changed.extend(file.written.keys().map(|block| (*block, block + 1)));
        }
        let mut rest = placed.runs.get(&ino).map_or(&[][..], |runs| runs);
        while !rest.is_empty() {
            let mut blocks = 0;
            let fits = |run: &&FileRun| {
                blocks += run.run.count;
                blocks <= EXTENT_BLOCKS_MAX
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
            let crcs: Vec<u32> =
                now.iter().flat_map(|run| self.crcs(run.run.device_block(), run.run.count)).collect();
            self.log_runs(ino, now, &crcs, false)?;
            changed.extend(now.iter().map(|run| (run.block, run.block + u64::from(run.run.count))));
            rest = later;
        }
        for (first, end) in file.promised.range(0, u64::MAX) {
            self.log(&Record::Reserve { ino, block: first, count: end - first })?;
            let buffered: Vec<u64> =
                self.file(ino)?.dirty.blocks.range(first..end).map(|(block, _)| *block).collect();
            for block in buffered {
                self.recharge(ino, block);
            }
        }
        let inode = self.file(ino)?;
        if inode.disk_size != file.size {
            debug_assert_eq!(inode.settled_size(), file.size, "inode {ino}: only memory has some of it");
            self.log(&Record::Truncate { ino, size: file.size, extend: true, time })?;
        }
        let set = SetAttr { mtime: Some(TimeSpec(time)), ..SetAttr::default() };
        let record = self.attributes_record(ino, &set, time)?;
        self.log(&record)?;
        Ok(changed)
    }
}

/// Gathers blocks of files for a device write: whole ones in their order, then the ends of files, packed.
fn pack(blocks: &[(Ino, u64)], files: &BTreeMap<Ino, FilePlan>) -> (Vec<u8>, Vec<PackedPiece>) {
    let mut data = Vec::with_capacity(blocks.len() * BLOCK_BYTES);
    let mut packed = Vec::with_capacity(blocks.len());
    let content = |(ino, block): &(Ino, u64)| {
        let file = files.get(ino)?;
        let len = file.len_to_store(*block);
        Some((*ino, *block, file.written.get(block)?.data.get(..len)?))
    };
    let is_whole = |(_, _, bytes): &(Ino, u64, &[u8])| bytes.len() == BLOCK_BYTES;
    for (ino, block, bytes) in blocks.iter().filter_map(content).filter(is_whole) {
        packed.push(PackedPiece::whole(ino, block, (data.len() / BLOCK_BYTES) as u32));
        data.extend_from_slice(bytes);
    }
    let mut packer = Packer::new((data.len() / BLOCK_BYTES) as u32);
    let mut pieces = Vec::new();
    for piece in blocks.iter().filter_map(content).filter(|piece| !is_whole(piece)) {
        let (ino, block, bytes) = piece;
        if !bytes.is_empty() {
            pieces.push(packer.add(ino, block, bytes, &mut data));
        }
    }
    pieces.sort_by_key(|piece| piece.index);
    packed.extend(pieces);
    (data, packed)
}
