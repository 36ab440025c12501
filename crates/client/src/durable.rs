//! `fsync` without the server: what was appended or overwritten goes to the append log of the image in one direct write.
//!
//! The server says of an inode how many bytes of it are durable, with everything else that an `fsync` is about
//! ([`Inode::durable`]). As long as that holds, all that follows is in the inode's ring, and all that differs is in pages of its
//! overwrite area that are not logged. The caller copies both to entries of the log, and says so in the same word and in those of
//! the pages, for the next caller. Any other change makes the server take the word back.
//!
//! ```text
//!  look at the word -> copy -> note the turn -> take a place -> look again: the same word -> write -> next word
//! ```
//!
//! The server takes the word back before it looks which inodes have entries. So a place that was taken too late is given up at
//! the second look, and an entry whose place was taken before is among those that the server deals with.
//!
//! Appended bytes stay as they are, but a block can be overwritten again. So overwritten blocks are copied and their places taken
//! under the inode's write lock: of two entries with one block, the later has the later content.

use crate::client::{Client, Leases};
use crate::lease::{APPEND_MAX, copy_from_ring};
use crate::proto::FileRef;
use crate::scratch::Scratch;
use crate::shared::channel::LOG_WRITERS;
use crate::shared::overwrites::{Area, Unlogged};
use crate::shared::volume::{AppendLog, Durable, Inode, MAPPED, OpenFile, RING_BYTES, STUCK, log_place};
use crate::stepping::{Point, step};
use crate::sys::{self, Errno};
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use weft_core::append_log::{Append, DATA_MAX, ENTRY_BYTES_MAX, ENTRY_HEAD_BYTES, Turn, entry_blocks, seal};
use weft_core::{BLOCK_BYTES, Ino};

/// The append log as the client got it. It writes nowhere else, whatever others write to shared memory.
#[derive(Clone, Copy)]
pub(crate) struct LogFile {
    pub fd: i32,
    /// Device and inode of the image: a program may close what is not its own, and open another file under this number.
    pub file: (u64, u64),
    /// Byte offset in the image.
    pub offset: u64,
    /// The first block behind those for entries.
    pub end: u32,
    pub image: [u8; 16],
    pub session: u64,
}

impl LogFile {
    fn is_still_there(&self) -> bool {
        sys::file_id(self.fd) == Some(self.file)
    }
}

/// A cell of the channel that says that a thread is at work on the log.
struct Writing<'a>(&'a AtomicU32);

impl<'a> Writing<'a> {
    /// Takes a cell for a thread that found the log in this turn.
    fn begin(client: &'a Client, turn: u32) -> Option<Writing<'a>> {
        let writers = &client.channel().log_writers;
        let first = sys::gettid() as usize;
        let taken = (0..LOG_WRITERS)
            .map(|step| &writers.turns[(first + step) % LOG_WRITERS])
            .find(|cell| cell.compare_exchange(0, turn, SeqCst, Relaxed).is_ok())
            .map(Writing);
        // Either the server sees the cell when it gives the process up, or the process sees that it is given up.
        fence(SeqCst);
        taken.filter(|_| writers.is_served.load(SeqCst) != 0)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl Client {
    /// Makes a file durable when that can be done here; whether it is.
    pub(crate) fn sync_here(&self, leases: &Leases, file: FileRef) -> Result<bool, Errno> {
        let (open, inode, slot) = leases.open_file(file)?;
        if open.flags.load(Relaxed) as i32 & libc::O_PATH != 0 {
            return Ok(false);
        }
        let word = Durable(inode.durable.load(Acquire));
        step(Point::Before);
        let Some(from) = word.size() else { return Ok(false) };
        if inode.by_call.load(Relaxed) != 0 {
            return Ok(false);
        }
        if let Some(area) = leases.overwrites(inode) {
            return self.sync_overwritten(leases, (file, open, inode, slot), area, word, from);
        }
        let to = inode.size.load(Acquire);
        if to == from {
            return self.is_durable(leases, file, inode, word);
        }
        let Some(len) = to.checked_sub(from).map(|len| len as usize).filter(|len| *len <= DATA_MAX) else {
            return Ok(false);
        };
        self.log_append(leases, (file, inode), word, (from, len))
    }

    /// There is nothing to write: whether that was so all the time.
    fn is_durable(
        &self,
        leases: &Leases,
        file: FileRef,
        inode: &Inode,
        word: Durable,
    ) -> Result<bool, Errno> {
        // Still the same file, whose slot nobody has given to another one.
        let is_same = inode.durable.load(SeqCst) == word.0 && leases.open_file(file).is_ok();
        if self.is_alive() { Ok(is_same) } else { Err(libc::EIO) }
    }

    fn log_append(
        &self,
        leases: &Leases,
        (file, inode): (FileRef, &Inode),
        word: Durable,
        (from, len): (u64, usize),
    ) -> Result<bool, Errno> {
        let append = Append {
            ino: Ino(inode.ino.load(Relaxed)),
            offset: from,
            mtime_ns: inode.mtime_ns.load(Relaxed),
        };
        step(Point::Before);
        let Ok(mut entry) = Scratch::<[u8; ENTRY_BYTES_MAX]>::any() else { return Ok(false) };
        let ring_number = inode.ring.load(Acquire);
        let Some(ring) = leases.ring(ring_number) else { return Ok(false) };
        copy_from_ring(ring, from, &mut entry[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + len]);
        fence(Acquire);
        step(Point::Before);
        // An append writes to the ring before it publishes the size: bytes that are so far back may be overwritten by one.
        if inode.size.load(Relaxed).saturating_sub(from) > (RING_BYTES - APPEND_MAX) as u64
            || inode.ring.load(Relaxed) != ring_number
            || leases.open_file(file).is_err()
        {
            return Ok(false);
        }
        let Some(place) = self.take_place(leases, inode, entry_blocks(len)) else { return Ok(false) };
        step(Point::Before);
        if inode.durable.load(SeqCst) != word.0 {
            return Ok(false);
        }
        step(Point::Before);
        let bytes = seal(entry.as_mut_slice(), &place.turn, place.block, &append, len);
        if !self.write_entries(leases, &place, &entry[..bytes])? {
            return Ok(false);
        }
        step(Point::Before);
        let next = word.then(Some(from + len as u64));
        Ok(inode.durable.compare_exchange(word.0, next.0, SeqCst, Relaxed).is_ok())
    }

    /// The same of an inode with an overwrite area.
    fn sync_overwritten(
        &self,
        leases: &Leases,
        (file, open, inode, slot): (FileRef, &OpenFile, &Inode, u32),
        area: Area<'_>,
        word: Durable,
        from: u64,
    ) -> Result<bool, Errno> {
        if inode.size.load(Acquire) == from && matches!(area.is_all_logged(), Ok(true)) {
            step(Point::Before);
            return self.is_durable(leases, file, inode, word);
        }
        let Ok(mut entries) = Scratch::<[u8; ENTRY_BYTES_MAX]>::any() else { return Ok(false) };
        let (mut changes, mut is_whole) = (Changes::NONE, false);
        let is_as_before = || {
            inode.durable.load(SeqCst) == word.0
                && leases.overwrites(inode).is_some_and(|now| now.is_same(&area))
                && inode.write_lock.holder() == self.holder()
        };
        let gather = || {
            is_whole = inode.by_call.load(SeqCst) & (MAPPED | STUCK) == 0
                && is_as_before()
                && changes.gather(leases, inode, area, from, &mut *entries);
            step(Point::Before);
            let is_any = is_whole && changes.blocks != 0;
            Ok(if is_any { self.take_place(leases, inode, changes.blocks) } else { None })
        };
        let (place, is_kept) = self.under_write_lock((leases, open, inode, slot), file, gather)?;
        step(Point::Before);
        if is_kept && is_whole && changes.blocks == 0 {
            // Another thread has made it durable meanwhile.
            return self.is_durable(leases, file, inode, word);
        }
        let Some(place) = place.filter(|_| is_kept && inode.durable.load(SeqCst) == word.0) else {
            return Ok(false);
        };
        let bytes = changes.seal(&place, &mut *entries);
        if !self.write_entries(leases, &place, &entries[..bytes])? {
            return Ok(false);
        }
        // From here on all of it is durable, whatever becomes of the word: before the server ends the turn, it stores what the area
        // and the ring have.
        let note = || {
            if is_as_before() {
                changes.pages().iter().for_each(|page| {
                    area.log(page.page as usize, page.word);
                });
                let next = word.then(Some(changes.to));
                let _ = inode.durable.compare_exchange(word.0, next.0, SeqCst, Relaxed);
            }
            Ok(())
        };
        // Another thread may have closed the file.
        let _ = self.under_write_lock((leases, open, inode, slot), file, note);
        Ok(true)
    }

    /// Takes a place for entries of so many blocks of an inode.
    fn take_place<'a>(&'a self, leases: &Leases, inode: &Inode, blocks: u32) -> Option<Place<'a>> {
        let (log, file) = (&leases.control().volume.append_log, leases.append_log?);
        let number = Some((log.next.load(SeqCst) >> 32) as u32).filter(|turn| *turn != 0)?;
        step(Point::Before);
        let writing = Writing::begin(self, number)?;
        step(Point::Before);
        // Another thread may have come to a later turn before this one gets here.
        inode.logged.fetch_max(number, SeqCst);
        step(Point::Before);
        let block = advance(log, file.end, number, blocks)?;
        let turn = Turn { image: file.image, session: file.session, number };
        Some(Place { turn, block, file, _writing: writing })
    }

    /// Writes entries to their place; false when the server has to do it.
    fn write_entries(&self, leases: &Leases, place: &Place<'_>, entries: &[u8]) -> Result<bool, Errno> {
        let at = place.file.offset + u64::from(place.block) * BLOCK_BYTES as u64;
        // The kernel counts the place in the image against the program's limit, and ends the program.
        if sys::has_file_size_limit()
            || !place.file.is_still_there()
            || sys::write_durably(place.file.fd, entries, at).is_err()
        {
            return Ok(false);
        }
        step(Point::EntryWritten);
        // A server that has died meanwhile may have left the log to another one before this was written.
        if leases.control().volume.is_alive() { Ok(true) } else { Err(libc::EIO) }
    }
}

/// A place in the log that this thread may write to.
struct Place<'a> {
    turn: Turn,
    block: u32,
    file: LogFile,
    _writing: Writing<'a>,
}

/// Moves on the place of the next entry in a turn of the log; where it was.
fn advance(log: &AppendLog, end: u32, turn: u32, blocks: u32) -> Option<u32> {
    let taken = log.next.fetch_update(SeqCst, SeqCst, |next| {
        let (now, block) = ((next >> 32) as u32, next as u32);
        let behind =
            block.checked_add(blocks).filter(|behind| now == turn && block != 0 && *behind <= end)?;
        Some(log_place(turn, behind))
    });
    taken.ok().map(|next| next as u32)
}

/// Blocks of the entries that are written at once.
const BLOCKS_MAX: usize = ENTRY_BYTES_MAX / BLOCK_BYTES;

/// An entry to be: bytes in a row.
#[derive(Clone, Copy)]
struct Part {
    /// Where it is in the file.
    offset: u64,
    len: usize,
}

/// What is not durable of an inode with an overwrite area.
struct Changes {
    pages: [Unlogged; BLOCKS_MAX],
    pages_found: usize,
    /// An entry is two blocks at least, but for that of a few appended bytes.
    parts: [Part; BLOCKS_MAX / 2 + 1],
    parts_found: usize,
    /// Blocks of all entries.
    blocks: u32,
    ino: Ino,
    /// The file's size.
    to: u64,
    mtime_ns: i64,
}

impl Changes {
    const NONE: Changes = Changes {
        pages: [Unlogged::NONE; BLOCKS_MAX],
        pages_found: 0,
        parts: [Part { offset: 0, len: 0 }; BLOCKS_MAX / 2 + 1],
        parts_found: 0,
        blocks: 0,
        ino: Ino(0),
        to: 0,
        mtime_ns: 0,
    };

    fn pages(&self) -> &[Unlogged] {
        &self.pages[..self.pages_found]
    }

    /// Copies to `entries`, behind room for a head each, what has been appended from `from` on, and overwritten. False when that is
    /// too much. Under the write lock.
    fn gather(
        &mut self,
        leases: &Leases,
        inode: &Inode,
        area: Area<'_>,
        from: u64,
        entries: &mut [u8],
    ) -> bool {
        self.ino = Ino(inode.ino.load(Relaxed));
        (self.to, self.mtime_ns) = (inode.size.load(Acquire), inode.mtime_ns.load(Relaxed));
        let Some(pages_found) = area.unlogged(&mut self.pages).map(|found| found.len()) else { return false };
        self.pages_found = pages_found;
        // Appended bytes first: what of them was overwritten since is in a page.
        let Some(appended) = self.to.checked_sub(from) else { return false };
        if appended != 0 {
            let ring = leases.ring(inode.ring.load(Acquire)).filter(|_| appended <= DATA_MAX as u64);
            let Some(ring) = ring else { return false };
            let Some(data) = self.enter(entries, from, appended as usize) else { return false };
            copy_from_ring(ring, from, data);
        }
        let pages = self.pages;
        for run in pages[..pages_found].chunk_by(|page, next| page.block.checked_add(1) == Some(next.block)) {
            let Some(first) = run.first() else { continue };
            let offset = u64::from(first.block) * BLOCK_BYTES as u64;
            let Some(data) = self.enter(entries, offset, run.len() * BLOCK_BYTES) else { return false };
            for (page, to) in run.iter().zip(data.chunks_mut(BLOCK_BYTES)) {
                area.read(page.page as usize, 0, to);
            }
        }
        true
    }

    /// Takes in an entry with so many bytes; room for these, if there is any.
    fn enter<'e>(&mut self, entries: &'e mut [u8], offset: u64, len: usize) -> Option<&'e mut [u8]> {
        let begin = self.blocks as usize * BLOCK_BYTES + ENTRY_HEAD_BYTES;
        let blocks = self.blocks + entry_blocks(len);
        if blocks as usize > BLOCKS_MAX {
            return None;
        }
        *self.parts.get_mut(self.parts_found)? = Part { offset, len };
        (self.parts_found, self.blocks) = (self.parts_found + 1, blocks);
        entries.get_mut(begin..begin + len)
    }

    /// Makes entries of what was gathered; their bytes together.
    fn seal(&self, place: &Place<'_>, entries: &mut [u8]) -> usize {
        let mut begin = 0;
        for Part { offset, len } in &self.parts[..self.parts_found] {
            let block = place.block + (begin / BLOCK_BYTES) as u32;
            let append = Append { ino: self.ino, offset: *offset, mtime_ns: self.mtime_ns };
            begin += seal(&mut entries[begin..], &place.turn, block, &append, *len);
        }
        debug_assert_eq!(begin, self.blocks as usize * BLOCK_BYTES, "the entries fill their place");
        begin
    }
}
