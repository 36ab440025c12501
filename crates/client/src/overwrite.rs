//! Overwriting blocks of a file without a call, in the [overwrite area](crate::shared::overwrites) of its inode.

use crate::client::{Client, Leases};
use crate::lease::{BlockCopy, Written, kick};
use crate::proto::{FileRef, is_writable};
use crate::scratch::Scratch;
use crate::shared::overwrites::{Area, PAGES, RUN_MAX};
use crate::shared::volume::{Inode, MAPPED, OpenFile, STUCK};
use crate::sys::{self, Errno};
use std::sync::atomic::{Ordering::*, fence};
use weft_core::BLOCK_BYTES;

/// Longer writes are the server's, which passes them on to the device.
const OVERWRITE_MAX: usize = (RUN_MAX - 1) * BLOCK_BYTES;
/// The flusher works once so many blocks have been written.
const KICK_BLOCKS: u32 = PAGES as u32 / 4;

/// A piece of a write within one block.
struct Piece {
    block: u32,
    within: usize,
    len: usize,
}

/// The pieces of a write.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK_BYTES as u64) as usize;
        let piece = Piece {
            block: (at / BLOCK_BYTES as u64) as u32,
            within,
            len: (len - done).min(BLOCK_BYTES - within),
        };
        done += piece.len;
        (piece.len != 0).then_some(piece)
    })
}

/// Hands out the bytes of a write's parts piece by piece.
struct Source<'a> {
    parts: &'a [&'a [u8]],
    used: usize,
}

impl Source<'_> {
    fn write(&mut self, area: Area<'_>, page: usize, mut within: usize, mut len: usize) {
        while len != 0 {
            let Some((part, rest)) = self.parts.split_first() else { return };
            let bytes = &part[self.used..];
            let take = bytes.len().min(len);
            area.write(page, within, &bytes[..take]);
            (within, len, self.used) = (within + take, len - take, self.used + take);
            if take == bytes.len() {
                (self.parts, self.used) = (rest, 0);
            }
        }
    }
}

impl Client {
    /// Writes `parts` when they lie in whole blocks that the file has, and the inode has an area.
    ///
    /// `offset` is `None` for the open file's own offset, which then advances.
    pub(crate) fn overwrite_here(
        &self,
        leases: &Leases,
        file: FileRef,
        offset: Option<u64>,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<Written, Errno> {
        let (open, inode, slot) = leases.open_file(file)?;
        if inode.overwrites.load(Relaxed) == 0 || len > OVERWRITE_MAX {
            return Ok(Written::NotHere);
        }
        let flags = open.flags.load(Relaxed) as i32;
        if !is_writable(flags) || flags & libc::O_APPEND != 0 {
            return Ok(Written::NotHere);
        }
        if !leases.control().volume.is_alive() {
            return Err(libc::EIO);
        }
        let act = || self.overwrite_locked(leases, inode, open, offset, parts, len);
        let (outcome, is_kept) = self.under_write_lock((leases, open, inode, slot), file, act)?;
        if !is_kept {
            // Taken away with the area: the server has perhaps not seen what was written there, and writes it again.
            if offset.is_none() && matches!(outcome, Some((Written::Done, _))) {
                open.offset.fetch_sub(len as u64, Relaxed);
            }
            return Ok(Written::NotHere);
        }
        let Some((outcome, kicks)) = outcome else { return Ok(Written::NotHere) };
        if kicks {
            kick(leases, slot);
        }
        Ok(outcome)
    }

    /// The second of the result: the flusher has enough to do.
    pub(crate) fn overwrite_locked(
        &self,
        leases: &Leases,
        inode: &Inode,
        open: &OpenFile,
        offset: Option<u64>,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<Option<(Written, bool)>, Errno> {
        // What programs store to maps of the file is compared with what the core has.
        let Some(area) =
            leases.overwrites(inode).filter(|_| inode.by_call.load(SeqCst) & (MAPPED | STUCK) == 0)
        else {
            return Ok(None);
        };
        let position = offset.unwrap_or_else(|| open.offset.load(Relaxed));
        let end = position + len as u64;
        // Whole blocks of the core only: what lies behind `head` moves there by itself.
        let is_inside = end.next_multiple_of(BLOCK_BYTES as u64) <= inode.head.load(Acquire);
        if !is_inside || end / BLOCK_BYTES as u64 >= u64::from(u32::MAX) {
            return Ok(None);
        }
        let mut pages = [0; RUN_MAX];
        let blocks = pieces(position, len);
        for (piece, page) in blocks.zip(&mut pages) {
            match area.writable(piece.block) {
                Some(writable) => *page = writable,
                None => return Ok(Some((Written::Full, true))),
            }
        }
        let mut source = Source { parts, used: 0 };
        for (piece, &page) in pieces(position, len).zip(&pages) {
            area.take(page);
            if piece.len != BLOCK_BYTES && !self.copy_block(leases, inode, area, piece.block, page)? {
                return Ok(None);
            }
            source.write(area, page, piece.within, piece.len);
        }
        // A server that waited for seconds takes the lock away: the area is not this thread's any more then.
        if inode.write_lock.holder() != self.holder() {
            return Ok(None);
        }
        let mut blocks = 0;
        for (piece, &page) in pieces(position, len).zip(&pages) {
            // From here on the piece is accepted: it lives in the server's memory.
            let before = area.find(piece.block).ok().flatten();
            area.publish(page, piece.block, before.map(|(before, _)| before));
            blocks += 1;
        }
        debug_assert!(blocks <= RUN_MAX, "a write of more blocks than have sets of their own");
        inode.mtime_ns.store(sys::coarse_now_ns(), Relaxed);
        if offset.is_none() {
            open.offset.store(end, Relaxed);
        }
        let written = area.count(blocks);
        let kicks = written / KICK_BLOCKS != written.saturating_sub(blocks as u32) / KICK_BLOCKS;
        Ok(Some((Written::Done, kicks)))
    }

    /// Fills a page with what a block holds so far; false when only the server can tell.
    fn copy_block(
        &self,
        leases: &Leases,
        inode: &Inode,
        area: Area<'_>,
        block: u32,
        page: usize,
    ) -> Result<bool, Errno> {
        let mut content = Scratch::<[u8; BLOCK_BYTES]>::any()?;
        let seq = inode.seq.load(Acquire);
        let copied = self.copy_mapped(leases, inode, u64::from(block) * BLOCK_BYTES as u64, &mut *content);
        fence(Acquire);
        if seq & 1 != 0 || inode.seq.load(Relaxed) != seq || !matches!(copied, Ok(BlockCopy::Done)) {
            return Ok(false);
        }
        area.write(page, 0, &*content);
        Ok(true)
    }
}

impl Leases {
    /// The overwrite area of an inode.
    pub(crate) fn overwrites(&self, inode: &Inode) -> Option<Area<'_>> {
        let base = self.ring(inode.overwrites.load(Acquire))?;
        // SAFETY: `ring` gives as many mapped bytes, at the beginning of a page.
        Some(unsafe { Area::at(base) })
    }
}
