//! Writes in several pieces, between which nobody else writes to the file: the kernel holds the lock of an inode for a whole
//! `write`, so that records of any size that several processes append stay whole.
//!
//! A client with leases holds [`Inode::long_write`](crate::shared::volume::Inode::long_write) by itself. For others the server holds
//! it, from the first piece to the last.

use crate::busy::{Busy, StopLater};
use crate::client::Client;
use crate::lease_use::Using;
use crate::proto::{FileRef, LONG_BEGINS, LONG_ENDS, LONG_GOES_ON, LONG_HELD};
use crate::shared::channel::{STOP_CAME, STOP_COMES};
use crate::shared::volume::Stall;
use crate::sys::{self, Errno};
use std::cell::Cell;
use std::sync::atomic::Ordering::*;
use weft_core::refuse;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    /// Slot plus 1 of the inode that this thread writes to in pieces; 0 = none. A handler that interrupts it may write there.
    static WRITES_TO: Cell<u32> = const { Cell::new(0) };
    /// Long writes that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
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
    /// Others would have to wait, or write between the pieces. What the server sends a writer that was stopped waits, too.
    _stop: StopLater,
    /// A handler that writes to the file between the pieces would wait for its own thread.
    _busy: Busy,
}

impl Client {
    /// Begins a long write.
    pub(crate) fn begin_long_write(&self, file: FileRef) -> Result<LongWrite<'_>, Errno> {
        let (busy, stop) = (Busy::new(), StopLater::new());
        let begun = |held| {
            DEPTH.set(DEPTH.get() + 1);
            LongWrite { client: self, held, pieces: 0, _stop: stop, _busy: busy }
        };
        let Some(leases) = self.leases() else { return Ok(begun(None)) };
        let (_, inode, slot) = leases.open_file(file)?;
        if is_in(slot) {
            return Ok(begun(None));
        }
        let stall = Stall::new(leases.control(), slot);
        let gives_up = || {
            stall.look();
            !self.is_alive()
        };
        while !inode.exclude_long_writes(self.holder(), gives_up) {
            refuse(!self.is_alive(), libc::EIO)?;
        }
        // Another thread may have closed the file, whose inode's place may be another one's.
        let is_open = leases.open_file(file).is_ok_and(|(_, _, now)| now == slot);
        if !is_open {
            let _ = inode.long_write.unlock(self.holder());
            return Err(libc::EBADF);
        }
        inode.long_thread.store(sys::gettid(), SeqCst);
        Ok(begun(Some((leases, slot, WRITES_TO.replace(slot + 1)))))
    }

    /// The calling thread has ended a long write. When its process was stopped in it, the server had it go on, and it stops now.
    fn stop_if_told(&self) {
        let word = &self.channel().events.stop_at_end;
        let told = || word.load(SeqCst);
        if told() == 0 {
            return;
        }
        let thread = u64::from(sys::gettid());
        // The signal is on its way.
        while told() == STOP_COMES | thread && self.is_alive() {
            sys::yield_now();
        }
        if word.compare_exchange(STOP_CAME | thread, 0, SeqCst, Relaxed).is_err() {
            return;
        }
        // The kernel drops it when somebody tells the process to go on.
        if sys::take_pending(libc::SIGTSTP) {
            sys::stop_process();
        }
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
        if let Some((leases, slot, before)) = &self.held {
            WRITES_TO.set(*before);
            if let Some(inode) = leases.control().inodes.get(*slot as usize) {
                if inode.long_write.holder() == self.client.holder() {
                    inode.long_thread.store(0, SeqCst);
                }
                // It may have been taken away from a writer that did nothing for seconds.
                let _ = inode.long_write.unlock(self.client.holder());
            }
        }
        DEPTH.set(DEPTH.get() - 1);
        // Not in the middle of another one.
        if DEPTH.get() == 0 {
            self.client.stop_if_told();
        }
    }
}
