//! Writes in several pieces, between which nobody else writes to the file: the kernel holds the lock of an inode for a whole
//! `write`, so that records of any size that several processes append stay whole.
//!
//! A client with leases holds [`Inode::long_write`](crate::shared::volume::Inode::long_write) by itself. For others the server holds
//! it, from the first piece to the last.

use crate::busy::{Busy, StopLater};
use crate::client::Client;
use crate::lease_use::Using;
use crate::proto::{FileRef, LONG_BEGINS, LONG_ENDS, LONG_GOES_ON, LONG_HELD};
use crate::sys::Errno;
use std::cell::Cell;
use std::sync::atomic::Ordering::*;
use weft_core::refuse;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    /// Slot plus 1 of the inode that this thread writes to in pieces; 0 = none. A handler that interrupts it may write there.
    static WRITES_TO: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a long write to the inode.
pub(crate) fn is_in(slot: u32) -> bool {
    WRITES_TO.get() == slot + 1
}

/// A long write; it ends with this.
pub(crate) struct LongWrite<'a> {
    client: &'a Client,
    /// The lease under which the inode in this slot is held, and what the thread wrote to before.
    held: Option<(Using<'a>, u32, u32)>,
    pieces: usize,
    /// Others would have to wait, or write between the pieces.
    _stop: StopLater,
    /// A handler that writes to the file between the pieces would wait for its own thread.
    _busy: Busy,
}

impl Client {
    /// Begins a long write.
    pub(crate) fn begin_long_write(&self, file: FileRef) -> Result<LongWrite<'_>, Errno> {
        let busy = Busy::new();
        let begun = |held| LongWrite { client: self, held, pieces: 0, _stop: StopLater::new(), _busy: busy };
        let Some(leases) = self.leases() else { return Ok(begun(None)) };
        let (_, inode, slot) = leases.open_file(file)?;
        if is_in(slot) {
            return Ok(begun(None));
        }
        while !inode.exclude_long_writes(self.holder(), || !self.is_alive()) {
            refuse(!self.is_alive(), libc::EIO)?;
        }
        // Another thread may have closed the file, whose inode's place may be another one's.
        let is_open = leases.open_file(file).is_ok_and(|(_, _, now)| now == slot);
        if !is_open {
            let _ = inode.long_write.unlock(self.holder());
            return Err(libc::EBADF);
        }
        Ok(begun(Some((leases, slot, WRITES_TO.replace(slot + 1)))))
    }
}

impl LongWrite<'_> {
    /// What the server is told of the next piece.
    pub fn next(&mut self, is_last: bool) -> u64 {
        self.pieces += 1;
        if let Some((leases, slot, _)) = &self.held
            && let Some(inode) = leases.control().inodes.get(*slot as usize)
        {
            inode.long_pieces.fetch_add(1, Relaxed);
        }
        match (&self.held, self.pieces) {
            (Some(_), _) => LONG_HELD,
            (None, _) if WRITES_TO.get() != 0 => LONG_HELD,
            (None, 1) => LONG_BEGINS,
            (None, _) if is_last => LONG_ENDS,
            (None, _) => LONG_GOES_ON,
        }
    }
}

impl Drop for LongWrite<'_> {
    fn drop(&mut self) {
        let Some((leases, slot, before)) = &self.held else { return };
        WRITES_TO.set(*before);
        if let Some(inode) = leases.control().inodes.get(*slot as usize) {
            // It may have been taken away from a writer that did nothing for seconds.
            let _ = inode.long_write.unlock(self.client.holder());
        }
    }
}
