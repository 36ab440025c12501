//! Setting record locks without a call, in the [table](crate::shared::records) of the file's inode.

use crate::busy::Busy;
use crate::client::Client;
use crate::names::LockRange;
use crate::proto::{FileRef, is_readable, is_writable};
use crate::shared::records::Record;
use std::sync::atomic::Ordering::*;

/// Looks at a table that somebody has locked, at most 20 ms apart, before the server is asked.
const LOOKS: u32 = 10;

impl Client {
    /// Does a `F_SETLK`, `F_SETLKW` or `F_GETLK` that nobody else's lock is in the way of; the result is that of
    /// [`Client::record_lock`]. `None` when the server has to.
    pub(crate) fn record_lock_here(
        &self,
        file: FileRef,
        command: i32,
        range: &LockRange,
        pid: u32,
    ) -> Option<LockRange> {
        let _busy = Busy::new();
        if !matches!(command, libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW) {
            return None;
        }
        let leases = self.leases()?;
        let (open, inode, slot) = leases.open_file(file).ok()?;
        let table = leases.control().records.get(slot as usize).filter(|table| table.is_open())?;
        let flags = open.flags.load(Relaxed) as i32;
        let is_allowed = match range.kind {
            libc::F_RDLCK => command == libc::F_GETLK || is_readable(flags),
            libc::F_WRLCK => command == libc::F_GETLK || is_writable(flags),
            libc::F_UNLCK => command != libc::F_GETLK && (is_readable(flags) || is_writable(flags)),
            _ => false,
        };
        if !is_allowed || flags & libc::O_PATH != 0 || inode.attended.load(SeqCst) == 0 {
            return None;
        }
        let last = if range.len == 0 { u64::MAX } else { range.start.checked_add(range.len - 1)? };
        let holder = self.holder();
        let wanted = Record { holder, exclusive: range.kind == libc::F_WRLCK, pid, start: range.start, last };
        // Whoever has it may be stopped: the server takes it away.
        let mut looks = 0;
        let give_up = || {
            looks += 1;
            looks > LOOKS || !self.is_alive()
        };
        if !table.lock.lock(holder, give_up) {
            return None;
        }
        // The server may have closed the table, or another thread the file.
        let is_its = table.is_open()
            && open.generation.load(Acquire) == file.generation()
            && open.inode.load(Relaxed) == slot;
        let sets = range.kind != libc::F_UNLCK;
        let is_done = is_its
            && !(sets && table.is_refused(&wanted))
            && (command == libc::F_GETLK || table.set(&wanted, sets));
        // When the lock was taken away meanwhile, so was the table: what was set there may not count.
        let is_kept = table.lock.unlock(holder) && table.is_open();
        let done = is_done && is_kept && leases.control().volume.is_alive();
        done.then_some(LockRange { kind: libc::F_UNLCK, ..*range })
    }
}
