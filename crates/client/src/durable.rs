//! `fsync` without the server: what was appended goes to the append log of the image in one direct write.
//!
//! The server says of an inode how many bytes of it are durable, with everything else that an `fsync` is about
//! ([`Inode::durable`]). As long as that holds, all that follows is in the inode's ring. The caller copies it to an entry of the
//! log, and says so in the same word, for the next caller. Anything but an append makes the server take the word back.
//!
//! ```text
//!  look at the word -> copy from the ring -> note the turn -> take a place -> look again: the same word -> write -> next word
//! ```
//!
//! The server takes the word back before it looks which inodes have entries. So a place that was taken too late is given up at
//! the second look, and an entry whose place was taken before is among those that the server deals with.

use crate::client::{Client, Leases};
use crate::lease::{APPEND_MAX, copy_from_ring};
use crate::proto::FileRef;
use crate::scratch::Scratch;
use crate::shared::channel::LOG_WRITERS;
use crate::shared::volume::{AppendLog, Durable, Inode, RING_BYTES, log_place};
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
        let (open, inode, _) = leases.open_file(file)?;
        if open.flags.load(Relaxed) as i32 & libc::O_PATH != 0 {
            return Ok(false);
        }
        let word = Durable(inode.durable.load(Acquire));
        step(Point::Before);
        let Some(from) = word.size() else { return Ok(false) };
        if inode.by_call.load(Relaxed) != 0 || inode.overwrites.load(Relaxed) != 0 {
            return Ok(false);
        }
        let to = inode.size.load(Acquire);
        if to == from {
            // Still the same file, whose slot nobody has given to another one.
            let is_same = inode.durable.load(SeqCst) == word.0 && leases.open_file(file).is_ok();
            return if self.is_alive() { Ok(is_same) } else { Err(libc::EIO) };
        }
        let Some(len) = to.checked_sub(from).map(|len| len as usize).filter(|len| *len <= DATA_MAX) else {
            return Ok(false);
        };
        self.log_append(leases, (file, inode), word, (from, len))
    }

    fn log_append(
        &self,
        leases: &Leases,
        (file, inode): (FileRef, &Inode),
        word: Durable,
        (from, len): (u64, usize),
    ) -> Result<bool, Errno> {
        let log = &leases.control().volume.append_log;
        let Some(file_of_log) = leases.append_log else { return Ok(false) };
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
        let Some(turn) = Some((log.next.load(SeqCst) >> 32) as u32).filter(|turn| *turn != 0) else {
            return Ok(false);
        };
        step(Point::Before);
        let Some(_writing) = Writing::begin(self, turn) else { return Ok(false) };
        step(Point::Before);
        // Another thread may have come to a later turn before this one gets here.
        inode.logged.fetch_max(turn, SeqCst);
        step(Point::Before);
        let blocks = entry_blocks(len);
        let Some(block) = take_place(log, file_of_log.end, turn, blocks) else { return Ok(false) };
        step(Point::Before);
        if inode.durable.load(SeqCst) != word.0 {
            return Ok(false);
        }
        step(Point::Before);
        let turn = Turn { image: file_of_log.image, session: file_of_log.session, number: turn };
        let bytes = seal(entry.as_mut_slice(), &turn, block, &append, len);
        let at = file_of_log.offset + u64::from(block) * BLOCK_BYTES as u64;
        // The kernel counts the place in the image against the program's limit, and ends the program.
        if sys::has_file_size_limit()
            || !file_of_log.is_still_there()
            || sys::write_durably(file_of_log.fd, &entry[..bytes], at).is_err()
        {
            return Ok(false);
        }
        step(Point::EntryWritten);
        // A server that has died meanwhile may have left the log to another one before this was written.
        if !leases.control().volume.is_alive() {
            return Err(libc::EIO);
        }
        step(Point::Before);
        let next = word.then(Some(from + len as u64));
        Ok(inode.durable.compare_exchange(word.0, next.0, SeqCst, Relaxed).is_ok())
    }
}

/// Takes a place for an entry in a turn of the log.
fn take_place(log: &AppendLog, end: u32, turn: u32, blocks: u32) -> Option<u32> {
    let taken = log.next.fetch_update(SeqCst, SeqCst, |next| {
        let (now, block) = ((next >> 32) as u32, next as u32);
        let behind =
            block.checked_add(blocks).filter(|behind| now == turn && block != 0 && *behind <= end)?;
        Some(log_place(turn, behind))
    });
    taken.ok().map(|next| next as u32)
}
