//! What a step makes of one file: its size, the blocks that it writes, those that it takes away and those that it promises room for.
//!
//! Nothing of it is in the volume yet. A block that a change writes only in part is read when that change is planned; so what is
//! written in the end is a matter of whole contents, whatever the order of the changes was.

use crate::alloc::space::{charge, charge_run};
use crate::core::State;
use crate::layout::record::RUN_BYTES;
use crate::layout::{BLOCK, FILE_BYTES_MAX};
use crate::state::block_set::BlockSet;
use crate::state::dirty::Block;
use crate::state::inode::Inode;
use std::collections::BTreeMap;
use weft_core::{BLOCK_BYTES, Ino, Tag, refuse};
use weft_vfs::{FallocateMode, FsError, FsResult};

/// Blocks of a file that a step may have written when it begins to promise room for pieces, with these.
const PIECES_MAX: usize = 2 * crate::layout::record::EXTENT_BLOCKS_MAX as usize;
/// Behind the last block of the largest file.
const END: u64 = FILE_BYTES_MAX / BLOCK;
/// Bytes of a record that is not about names or attributes, its runs left out: no fewer than any of them takes.
pub(super) const RECORD_BYTES: usize = 64;
/// Bytes of an extents record for each of its blocks, when none follows another on the device.
const BYTES_PER_BLOCK: usize = RUN_BYTES + 4;

/// New content of a block.
#[derive(Debug)]
pub(super) struct NewBlock {
    pub data: Block,
    /// The file's tag when it was written.
    pub tag: Tag,
    /// Whether all of the block has its room, and is stored, though the file may end in it.
    pub is_whole: bool,
}

/// A file, and what a step makes of it.
#[derive(Debug)]
pub(super) struct FilePlan {
    ino: Ino,
    /// The place in the step of the last change of its data.
    pub last: usize,
    /// Size after the changes so far.
    pub size: u64,
    /// Blocks that are written.
    pub written: BTreeMap<u64, NewBlock>,
    /// Blocks that become holes.
    pub holes: BlockSet,
    /// Blocks that have room promised for them in the step.
    pub promised: BlockSet,
    /// The smallest size to which the file was cut.
    pub cut_to: Option<u64>,
    /// The volume's byte clock when its content began, if that was in the step.
    pub born_at: Option<u64>,
    /// Blocks whose content is not that of before: those that are written, the holes, and what was cut.
    gone: BlockSet,
    /// Blocks whose charge is counted here and not where it was before.
    counted: BlockSet,
    /// What the blocks in `counted` were charged before the step, in bytes.
    charged_before: u64,
}

impl FilePlan {
    /// A file as it is before the step; of `size` 0 when the step makes it.
    pub fn new(ino: Ino, size: u64) -> FilePlan {
        FilePlan {
            ino,
            last: 0,
            size,
            written: BTreeMap::new(),
            holes: BlockSet::default(),
            promised: BlockSet::default(),
            cut_to: None,
            born_at: None,
            gone: BlockSet::default(),
            counted: BlockSet::default(),
            charged_before: 0,
        }
    }

    /// The file before the step; `None` when the step makes it.
    fn before<'a>(&self, state: &'a State) -> Option<&'a Inode> {
        state.tree.get(self.ino)
    }

    /// Ranges of blocks that are not as before, mapped or buffered as they were.
    pub fn changed_before(&self, inode: &Inode) -> Vec<(u64, u64)> {
        self.counted.range(0, u64::MAX).flat_map(|(first, end)| inode.filled_ranges(first, end)).collect()
    }

    /// Bytes that the file is charged more than before the step; negative when less.
    pub fn charge(&self) -> i64 {
        let is_promised = |block: &u64| self.promised.contains(*block);
        let promised = match self.promised.is_empty() {
            true => 0,
            false => self.written.keys().filter(|block| is_promised(block)).count(),
        };
        let mut written = (self.written.len() - promised) as u64 * BLOCK;
        // Of the others, only the block in which the file ends may take less than a block.
        let last = self.size / BLOCK;
        if self.written.contains_key(&last) && !is_promised(&last) {
            written -= BLOCK - u64::from(charge(self.len_to_store(last) as u32));
        }
        (self.promised.blocks() * BLOCK + written) as i64 - self.charged_before as i64
    }

    /// Bytes of a written block that are stored.
    pub fn len_to_store(&self, block: u64) -> usize {
        let len = self.size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        let is_whole = self.written.get(&block).is_some_and(|new| new.is_whole);
        if len > 0 && is_whole { BLOCK_BYTES } else { len }
    }

    /// Bytes of the records that tell of it, at most.
    pub fn record_bytes(&self) -> usize {
        let extents = self.written.len() / crate::layout::record::EXTENT_BLOCKS_MAX as usize + 1;
        // Beside them two that set the size, and one of its times.
        let records = extents + self.holes.len() + self.promised.len() + 3;
        records * RECORD_BYTES + self.written.len() * BYTES_PER_BLOCK
    }

    /// [`write`](weft_vfs::FileSystem::write), at `volume_bytes` of the byte clock.
    pub fn write(
        &mut self,
        state: &State,
        tag: Tag,
        (offset, data): (u64, &[u8]),
        volume_bytes: u64,
    ) -> FsResult<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        refuse(end.is_none(), FsError::TooLarge)?;
        if self.size == 0 {
            self.born_at = Some(volume_bytes);
        }
        self.write_within(state, tag, offset, data)
    }

    /// Writes to a range that is within the largest file.
    fn write_within(&mut self, state: &State, tag: Tag, offset: u64, data: &[u8]) -> FsResult<()> {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (block, from) = (at / BLOCK, (at % BLOCK) as usize);
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - from));
            if !self.written.contains_key(&block) {
                let content = if now.len() == BLOCK_BYTES { None } else { Some(self.content(state, block)?) };
                self.put(state, block, content.unwrap_or_else(|| Box::new([0; BLOCK_BYTES])), tag);
            }
            if let Some(new) = self.written.get_mut(&block) {
                new.data[from..from + now.len()].copy_from_slice(now);
                new.tag = tag;
            }
            at += now.len() as u64;
            rest = later;
        }
        self.size = self.size.max(at);
        Ok(())
    }

    /// Sets the size, at `volume_bytes` of the byte clock.
    pub fn set_size(&mut self, state: &State, tag: Tag, size: u64, volume_bytes: u64) -> FsResult<()> {
        refuse(size > FILE_BYTES_MAX, FsError::TooLarge)?;
        if size == self.size {
            self.release_behind(state, size, FILE_BYTES_MAX);
            return Ok(());
        }
        if size < self.size {
            let (last, len) = (size / BLOCK, (size % BLOCK) as usize);
            if len > 0 && self.holds(state, last) {
                if !self.written.contains_key(&last) {
                    let content = self.content(state, last)?;
                    self.put(state, last, content, tag);
                }
                // What lies behind the end is given back, unless it was promised apart from what the block holds.
                let keeps = self.promised.contains(last);
                if let Some(new) = self.written.get_mut(&last) {
                    new.data[len..].fill(0);
                    new.is_whole = keeps;
                }
            }
            if size == 0 {
                self.born_at = Some(volume_bytes);
            }
            let first = size.div_ceil(BLOCK);
            self.count(state, first, END);
            self.written.split_off(&first);
            self.promised.remove(first, END);
            self.gone.insert(first, END);
            self.cut_to = Some(self.cut_to.map_or(size, |cut| cut.min(size)));
        }
        self.size = size;
        Ok(())
    }

    /// [`fallocate`](weft_vfs::FileSystem::fallocate), of all but the modes that move blocks.
    pub fn fallocate(
        &mut self,
        state: &State,
        tag: Tag,
        mode: FallocateMode,
        (offset, len): (u64, u64),
        volume_bytes: u64,
    ) -> FsResult<()> {
        refuse(len == 0, FsError::Invalid("an empty range"))?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(FsError::TooLarge)?;
        let grows = match mode {
            FallocateMode::Allocate => {
                self.promise(state, tag, offset, end)?;
                true
            }
            FallocateMode::KeepSize => {
                self.promise(state, tag, offset, end)?;
                false
            }
            FallocateMode::PunchHole => {
                self.punch(state, tag, offset, end)?;
                false
            }
            FallocateMode::ZeroRange { keep_size } => {
                self.punch(state, tag, offset, end)?;
                self.promise(state, tag, offset, end)?;
                !keep_size
            }
            FallocateMode::CollapseRange | FallocateMode::InsertRange => {
                return Err(FsError::Unsupported("moving the rest of a file within a step"));
            }
        };
        if grows && end > self.size { self.set_size(state, tag, end, volume_bytes) } else { Ok(()) }
    }

    /// Makes a range zeros; whole blocks become a hole.
    fn punch(&mut self, state: &State, tag: Tag, offset: u64, end: u64) -> FsResult<()> {
        self.release_behind(state, offset, end);
        let end = end.min(self.size);
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(BLOCK);
        // The last block of the file is whole when the range covers all that the file has of it.
        let past = if end == self.size { end.div_ceil(BLOCK) } else { end / BLOCK };
        if first > past {
            return self.zero_within(state, tag, offset, end);
        }
        self.zero_within(state, tag, offset, (first * BLOCK).min(end))?;
        self.zero_within(state, tag, (past * BLOCK).max(offset), end)?;
        self.drop_blocks(state, first, past);
        Ok(())
    }

    /// Makes blocks a hole without a promise.
    fn drop_blocks(&mut self, state: &State, first: u64, end: u64) {
        if first >= end {
            return;
        }
        self.count(state, first, end);
        let mut behind = self.written.split_off(&first);
        self.written.append(&mut behind.split_off(&end));
        self.promised.remove(first, end);
        self.gone.insert(first, end);
        self.holes.insert(first, end);
    }

    /// Takes back the promise for the blocks of a range that lie behind the end of the file.
    fn release_behind(&mut self, state: &State, offset: u64, end: u64) {
        let (first, past) = (offset.max(self.size).div_ceil(BLOCK), end / BLOCK);
        let of_before = self.before(state).map_or(0, |inode| inode.reserved.count(first, past.max(first)));
        if first < past && (of_before > 0 || self.promised.count(first, past) > 0) {
            self.drop_blocks(state, first, past);
        }
    }

    /// Zeros bytes within one block, if anything is there.
    fn zero_within(&mut self, state: &State, tag: Tag, offset: u64, end: u64) -> FsResult<()> {
        if offset >= end || !self.holds(state, offset / BLOCK) {
            return Ok(());
        }
        let zeros = [0; BLOCK_BYTES];
        self.write_within(state, tag, offset, &zeros[..(end - offset) as usize])
    }

    /// Promises room for the blocks of a range.
    fn promise(&mut self, state: &State, tag: Tag, offset: u64, end: u64) -> FsResult<()> {
        let (first, past) = (offset / BLOCK, end.div_ceil(BLOCK));
        // A piece is written anew, as a whole block.
        let pieces: Vec<u64> = match self.before(state).and_then(Inode::map) {
            Some(map) => {
                let pieces = map.range(first, past).filter(|run| !run.run.is_whole());
                pieces.map(|run| run.block).filter(|block| !self.gone.contains(*block)).collect()
            }
            None => Vec::new(),
        };
        // They are read and held in memory before anybody looks at what the step comes to.
        refuse(
            self.written.len() + pieces.len() > PIECES_MAX,
            FsError::Invalid("too many pieces for one step"),
        )?;
        for block in pieces {
            let content = self.content(state, block)?;
            self.put(state, block, content, tag);
        }
        for (_, new) in self.written.range_mut(first..past) {
            new.is_whole = true;
        }
        self.count(state, first, past);
        self.promised.insert(first, past);
        Ok(())
    }

    /// Whether a block has content; otherwise it is zeros.
    fn holds(&self, state: &State, block: u64) -> bool {
        self.written.contains_key(&block)
            || !self.gone.contains(block) && self.before(state).is_some_and(|inode| inode.holds(block))
    }

    /// What a block holds after the changes so far.
    fn content(&self, state: &State, block: u64) -> FsResult<Block> {
        if let Some(new) = self.written.get(&block) {
            return Ok(new.data.clone());
        }
        let mut data = Box::new([0; BLOCK_BYTES]);
        if let Some(inode) = self.before(state).filter(|_| !self.gone.contains(block)) {
            match inode.dirty.blocks.get(&block) {
                Some(dirty) => data.copy_from_slice(&dirty.data[..]),
                None => state.read_mapped(self.ino, block, &mut data)?,
            }
        }
        Ok(data)
    }

    /// Puts in a block that is not written yet.
    fn put(&mut self, state: &State, block: u64, data: Block, tag: Tag) {
        let before = self.before(state).filter(|_| !self.gone.contains(block));
        let has_room = |inode: &Inode| {
            let is_mapped_whole =
                inode.map().and_then(|map| map.get(block)).is_some_and(|run| run.is_whole());
            is_mapped_whole || inode.reserved.contains(block)
        };
        let is_whole = self.promised.contains(block) || before.is_some_and(has_room);
        // A promise lasts, whatever becomes of what is written: a block that is cut keeps its room.
        let was_promised = before.is_some_and(|inode| inode.reserved.contains(block));
        self.count(state, block, block + 1);
        if was_promised {
            self.promised.insert(block, block + 1);
        }
        self.gone.insert(block, block + 1);
        self.holes.remove(block, block + 1);
        self.written.insert(block, NewBlock { data, tag, is_whole });
    }

    /// Counts the charge of blocks here from now on.
    fn count(&mut self, state: &State, first: u64, end: u64) {
        if let Some(inode) = self.before(state) {
            let mut at = first;
            let counted: Vec<_> = self.counted.range(first, end).collect();
            for (from, to) in counted.into_iter().chain([(end, end)]) {
                self.charged_before += charge_before(inode, at, from);
                at = to;
            }
        }
        self.counted.insert(first, end);
    }
}

/// What blocks of a file are charged as it is.
fn charge_before(inode: &Inode, first: u64, end: u64) -> u64 {
    if first >= end {
        return 0;
    }
    let mapped: u64 =
        inode.map().map_or(0, |map| map.range(first, end).map(|run| charge_run(&run.run)).sum());
    let buffered: u64 = inode.dirty.blocks.range(first..end).map(|(_, dirty)| u64::from(dirty.extra)).sum();
    mapped + inode.reserved.count(first, end) * BLOCK + buffered
}
