//! Changes of a file's data in memory: written blocks are buffered, and chunks get new heads. What comes of it is stored with the
//! transaction at whose end `step.rs` calls for it.
//!
//! Invariant: no block with data lies wholly beyond the size, and the bytes of the last block beyond the size are zeros; so a
//! larger size needs no work, and shows zeros.

use crate::graph::{Graph, Head};
use crate::inode::{Block, Inode};
use crate::layout::{CHUNK_BLOCKS, PROMISED};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino, refuse};
use weft_vfs::memfs::FILE_SIZE_MAX;
use weft_vfs::{FallocateMode, FsError, FsResult, SeekTarget};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Heads of chunks that are other than committed.
pub(crate) type Heads = BTreeMap<(Ino, u64), Head>;

/// Blocks that a file can still take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Of the volume.
    pub free: u64,
    /// Of the quota that the file counts to.
    pub quota: u64,
}

impl Room {
    /// Fails unless so many blocks can be taken.
    pub(crate) fn check(self, blocks: u64) -> FsResult<()> {
        refuse(blocks > self.quota, FsError::QuotaExceeded)?;
        refuse(blocks > self.free, FsError::NoSpace)
    }
}

/// A file whose data changes.
pub(crate) struct Editor<'e> {
    pub graph: &'e Graph,
    pub ino: Ino,
    pub inode: &'e mut Inode,
    pub heads: &'e mut Heads,
}

/// The end of a range, or `TooLarge` when no file can reach it.
pub(crate) fn end_of(offset: u64, len: u64) -> FsResult<u64> {
    offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(FsError::TooLarge)
}

fn index(block: u64) -> usize {
    (block % CHUNK_BLOCKS) as usize
}

impl Editor<'_> {
    fn slot(&self, block: u64) -> FsResult<u16> {
        let chunk = block / CHUNK_BLOCKS;
        if let Some(head) = self.heads.get(&(self.ino, chunk)) {
            return Ok(head.slots[index(block)]);
        }
        let head = self.graph.head(self.ino, self.inode, chunk)?;
        Ok(head.map_or(0, |head| head.slots[index(block)]))
    }

    /// The head of a chunk, to be changed.
    fn head_mut(&mut self, chunk: u64) -> FsResult<&mut Head> {
        let key = (self.ino, chunk);
        if !self.heads.contains_key(&key) {
            let head = self.graph.head(self.ino, self.inode, chunk)?;
            self.heads.insert(key, head.map_or_else(Head::default, |head| (*head).clone()));
        }
        Ok(self.heads.entry(key).or_default())
    }

    /// Whether a block lies in the record or in pieces.
    fn is_small(&self, block: u64) -> FsResult<bool> {
        Ok(block < self.inode.file()?.small_blocks())
    }

    /// Takes what lies in pieces into the buffer: a file with holes and promises has chunks.
    pub(crate) fn unpack(&mut self) -> FsResult<()> {
        let packed = self.inode.file()?.packed.div_ceil(BLOCK);
        for block in 0..packed {
            self.buffered(block)?;
        }
        self.inode.file_mut()?.packed = 0;
        self.inode.reserved += packed;
        Ok(())
    }

    /// Whether a block has data.
    fn has_data(&self, block: u64) -> FsResult<bool> {
        Ok(self.inode.buffer.contains_key(&block) || self.is_small(block)? || Head::holds(self.slot(block)?))
    }

    /// Whether a block takes space.
    fn takes_space(&self, block: u64) -> FsResult<bool> {
        Ok(self.inode.buffer.contains_key(&block) || self.is_small(block)? || self.slot(block)? != 0)
    }

    /// The chunks in a range of blocks that are stored, or have a new head.
    fn chunks_in(&mut self, from: u64, to: u64) -> FsResult<Vec<u64>> {
        let chunks = self.graph.chunks(self.inode)?;
        self.inode.chunks = Some(chunks.clone());
        let (first, end) = (from / CHUNK_BLOCKS, to.div_ceil(CHUNK_BLOCKS));
        let begin = chunks.partition_point(|chunk| *chunk < first);
        let mut found: BTreeSet<u64> =
            chunks[begin..].iter().copied().take_while(|chunk| *chunk < end).collect();
        if first < end {
            let new = self.heads.range((self.ino, first)..(self.ino, end));
            found.extend(new.map(|((_, chunk), _)| *chunk));
        }
        Ok(found.into_iter().collect())
    }

    /// Blocks of a range of bytes that take no space yet.
    pub(crate) fn missing(&mut self, start: u64, end: u64) -> FsResult<u64> {
        let (from, to) = (start / BLOCK, end.div_ceil(BLOCK));
        if to - from <= CHUNK_BLOCKS {
            let mut missing = 0;
            for block in from..to {
                missing += u64::from(!self.takes_space(block)?);
            }
            return Ok(missing);
        }
        let small = from..to.min(self.inode.file()?.small_blocks());
        let mut taken = small.filter(|block| !self.inode.buffer.contains_key(block)).count() as u64;
        for chunk in self.chunks_in(from, to)? {
            for block in (chunk * CHUNK_BLOCKS).max(from)..((chunk + 1) * CHUNK_BLOCKS).min(to) {
                taken += u64::from(self.slot(block)? != 0 && !self.inode.buffer.contains_key(&block));
            }
        }
        taken += self.inode.buffer.range(from..to).count() as u64;
        // On a damaged volume a block may be there twice.
        Ok((to - from).saturating_sub(taken))
    }

    /// A block's bytes, to be changed in the buffer.
    fn buffered(&mut self, block: u64) -> FsResult<&mut Block> {
        if !self.inode.buffer.contains_key(&block) {
            let chunk = block / CHUNK_BLOCKS;
            let kept = match self.heads.get(&(self.ino, chunk)) {
                Some(head) => self.graph.stored_block(self.inode, Some(head), block)?,
                None => {
                    let head = self.graph.head(self.ino, self.inode, chunk)?;
                    self.graph.stored_block(self.inode, head.as_deref(), block)?
                }
            };
            self.put(block, kept.map_or_else(|| Arc::new([0; BLOCK_BYTES]), Arc::from))?;
        }
        let buffer = Arc::make_mut(&mut self.inode.buffer);
        Ok(Arc::make_mut(buffer.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]))))
    }

    /// Gives a block new bytes, in the buffer.
    fn put(&mut self, block: u64, bytes: Arc<Block>) -> FsResult<()> {
        let is_new = !self.takes_space(block)?;
        self.inode.reserved += u64::from(is_new);
        self.inode.file_mut()?.blocks += u64::from(is_new);
        Arc::make_mut(&mut self.inode.buffer).insert(block, bytes);
        Ok(())
    }

    /// Writes bytes; there is room for them. Where one block cannot be read, those before it are written.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = end_of(offset, data.len() as u64)?;
        let mut at = offset;
        let written = self.write_blocks(offset, &mut at, end, data);
        if at > offset {
            let file = self.inode.file_mut()?;
            let is_overwritten = offset < file.size;
            file.size = file.size.max(at);
            self.inode.gives_up |= is_overwritten;
        }
        written
    }

    fn write_blocks(&mut self, offset: u64, at: &mut u64, end: u64, data: &[u8]) -> FsResult<()> {
        while *at < end {
            let begun = *at;
            let (block, from) = (begun / BLOCK, (begun % BLOCK) as usize);
            let piece = (BLOCK_BYTES - from).min((end - begun) as usize);
            let bytes = &data[(begun - offset) as usize..][..piece];
            match <&Block>::try_from(bytes) {
                Ok(whole) => self.put(block, Arc::new(*whole))?,
                Err(_) => self.buffered(block)?[from..from + piece].copy_from_slice(bytes),
            }
            *at += piece as u64;
        }
        Ok(())
    }

    /// Takes the data, and with `whole` the promise, of a block away.
    fn drop_block(&mut self, block: u64) -> FsResult<()> {
        let is_buffered = Arc::make_mut(&mut self.inode.buffer).remove(&block).is_some();
        let (slot, is_inline) = (self.slot(block)?, self.is_small(block)?);
        if slot != 0 {
            let file = self.inode.file_mut()?;
            file.promised = file.promised.saturating_sub((slot == PROMISED).into());
            self.head_mut(block / CHUNK_BLOCKS)?.slots[index(block)] = 0;
        }
        let file = self.inode.file_mut()?;
        if is_inline {
            file.inline = None;
        }
        // The sums of a damaged volume may be less than what is there.
        file.blocks = file.blocks.saturating_sub((is_buffered || is_inline || slot != 0).into());
        if is_buffered && !is_inline && slot == 0 {
            self.inode.reserved = self.inode.reserved.saturating_sub(1);
        }
        Ok(())
    }

    /// Takes data and promises of a range of blocks away.
    fn drop_blocks(&mut self, from: u64, to: u64) -> FsResult<()> {
        if from >= to {
            return Ok(());
        }
        if from < self.inode.file()?.packed.div_ceil(BLOCK) {
            self.unpack()?;
        }
        let mut blocks: BTreeSet<u64> = self.inode.buffer.range(from..to).map(|(block, _)| *block).collect();
        if from == 0 && self.is_small(0)? {
            blocks.insert(0);
        }
        for chunk in self.chunks_in(from, to)? {
            for block in (chunk * CHUNK_BLOCKS).max(from)..((chunk + 1) * CHUNK_BLOCKS).min(to) {
                if self.slot(block)? != 0 {
                    blocks.insert(block);
                }
            }
        }
        blocks.into_iter().try_for_each(|block| self.drop_block(block))
    }

    /// Makes a range zeros: whole blocks become holes, which take no space.
    pub(crate) fn punch(&mut self, start: u64, end: u64) -> FsResult<()> {
        let (first, last) = (start.div_ceil(BLOCK), end / BLOCK);
        self.inode.gives_up = true;
        for (block, from, to) in edges_of(start, end) {
            if self.has_data(block)? {
                self.buffered(block)?[from..to].fill(0);
            }
        }
        self.drop_blocks(first, last)
    }

    pub(crate) fn resize(&mut self, size: u64) -> FsResult<()> {
        let before = self.inode.file()?.size;
        if size < before {
            self.punch(size, before.next_multiple_of(BLOCK))?;
        }
        if size <= before {
            self.drop_blocks(size.div_ceil(BLOCK), u64::MAX)?;
        }
        self.inode.file_mut()?.size = size;
        Ok(())
    }

    /// Takes space for the blocks of a range; there is room for them.
    fn promise(&mut self, start: u64, end: u64) -> FsResult<()> {
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            if !self.takes_space(block)? {
                self.head_mut(block / CHUNK_BLOCKS)?.slots[index(block)] = PROMISED;
                let file = self.inode.file_mut()?;
                (file.blocks, file.promised) = (file.blocks + 1, file.promised + 1);
            }
        }
        Ok(())
    }

    /// What `fallocate` does.
    pub(crate) fn fallocate(
        &mut self,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        room: Room,
    ) -> FsResult<()> {
        let size = self.inode.file()?.size;
        refuse(len == 0, FsError::Invalid("an empty range"))?;
        let end = end_of(offset, len)?;
        let is_whole = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize | FallocateMode::ZeroRange { .. } => {
                let keeps =
                    matches!(mode, FallocateMode::KeepSize | FallocateMode::ZeroRange { keep_size: true });
                room.check(self.missing(offset, end)?)?;
                if matches!(mode, FallocateMode::ZeroRange { .. }) {
                    self.punch(offset, end)?;
                }
                if !keeps && end > size {
                    self.inode.file_mut()?.size = end;
                }
                self.promise(offset, end)
            }
            FallocateMode::PunchHole => self.punch(offset, end),
            FallocateMode::CollapseRange if !is_whole => {
                Err(FsError::Invalid("a range to collapse is whole blocks"))
            }
            FallocateMode::CollapseRange if end >= size => {
                Err(FsError::Invalid("a range to collapse ends before the file does"))
            }
            FallocateMode::CollapseRange => {
                self.inode.gives_up = true;
                self.drop_blocks(offset / BLOCK, end / BLOCK)?;
                self.move_rest(end / BLOCK, offset / BLOCK)?;
                self.inode.file_mut()?.size -= len;
                Ok(())
            }
            FallocateMode::InsertRange if !is_whole => {
                Err(FsError::Invalid("a range to insert is whole blocks"))
            }
            FallocateMode::InsertRange if offset >= size => {
                Err(FsError::Invalid("a range to insert begins before the file's end"))
            }
            FallocateMode::InsertRange => {
                end_of(size, len)?;
                self.move_rest(offset / BLOCK, end / BLOCK)?;
                self.inode.file_mut()?.size += len;
                Ok(())
            }
        }
    }

    /// Moves what lies from block `from` on to block `to`.
    fn move_rest(&mut self, from: u64, to: u64) -> FsResult<()> {
        self.unpack()?;
        let mut moved: Vec<(u64, Option<Arc<Block>>)> = Vec::new();
        let mut blocks: BTreeSet<u64> = self.inode.buffer.range(from..).map(|(block, _)| *block).collect();
        if from == 0 && self.is_small(0)? {
            blocks.insert(0);
        }
        for chunk in self.chunks_in(from, u64::MAX)? {
            for block in (chunk * CHUNK_BLOCKS).max(from)..(chunk + 1) * CHUNK_BLOCKS {
                if self.slot(block)? != 0 {
                    blocks.insert(block);
                }
            }
        }
        for block in blocks {
            let bytes = if self.has_data(block)? { Some(Arc::new(*self.buffered(block)?)) } else { None };
            self.drop_block(block)?;
            moved.push((block - from + to, bytes));
        }
        for (block, bytes) in moved {
            match bytes {
                Some(bytes) => self.put(block, bytes)?,
                None => self.promise(block * BLOCK, (block + 1) * BLOCK)?,
            }
        }
        Ok(())
    }

    /// Next data or hole, with the granularity of blocks; `None` past the end.
    pub(crate) fn seek(&mut self, offset: u64, target: SeekTarget) -> FsResult<Option<u64>> {
        let size = self.inode.file()?.size;
        if offset >= size {
            return Ok(None);
        }
        let first = offset / BLOCK;
        if target == SeekTarget::Hole {
            let mut hole = first;
            while hole * BLOCK < size && self.has_data(hole)? {
                hole += 1;
            }
            return Ok(Some(offset.max(hole * BLOCK).min(size)));
        }
        let mut found = self.inode.buffer.range(first..).next().map(|(block, _)| *block);
        if self.is_small(first)? {
            found = Some(first);
        }
        let end = found.unwrap_or_else(|| size.div_ceil(BLOCK));
        'chunks: for chunk in self.chunks_in(first, end)? {
            for block in (chunk * CHUNK_BLOCKS).max(first)..((chunk + 1) * CHUNK_BLOCKS).min(end) {
                if Head::holds(self.slot(block)?) {
                    found = Some(block);
                    break 'chunks;
                }
            }
        }
        Ok(found.map(|block| offset.max(block * BLOCK)))
    }
}

/// The blocks that a range has only a part of, each with the first and the last + 1 byte of its part.
fn edges_of(start: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let (first, last) = (start / BLOCK, end / BLOCK);
    let part = move |block: u64| {
        let base = block * BLOCK;
        let (from, to) = (start.max(base) - base, end.min(base + BLOCK) - base);
        (from < to && to - from < BLOCK).then_some((block, from as usize, to as usize))
    };
    let blocks = if start >= end { [None, None] } else { [Some(first), (last > first).then_some(last)] };
    blocks.into_iter().flatten().filter_map(part)
}
