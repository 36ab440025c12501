//! Keeping clients from writes of an inode.

use super::{Inodes, OpenInode};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use weft_client::shared::lock::{self, Lock};
use weft_client::shared::volume::{Inode, Stall};
use weft_vfs::FsResult;

/// A write lock that a client holds longer than this is taken from it: it was stopped in the middle of a copy.
pub(super) const WRITE_LOCK_PATIENCE: Duration =
    if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(5) };

/// Excludes writers of an inode while it lives.
pub struct WriteGuard<'a> {
    pub(super) inode: &'a Inode,
    /// And those who would write in several pieces, if they had to be waited for. Given back last.
    pub excludes_long: Option<LongGuard<'a>>,
}

/// A write that a client has begun, and that others wait for.
#[derive(Clone, Copy)]
pub struct Unfinished<'a> {
    lock: &'a Lock,
    /// The lock's holder: the process's number plus 1.
    pub holder: u32,
    /// Of a long write, the thread as its process numbers it; 0 = not known yet.
    pub thread: Option<u32>,
}

impl Unfinished<'_> {
    /// Whether it still goes on.
    pub fn goes_on(&self) -> bool {
        self.lock.holder() == self.holder
    }
}

/// Who holds a lock, and of which file, as far as it is known.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    pub program: Option<String>,
    pub pid: Option<u32>,
    /// A path by which the file was opened, in the volume.
    pub path: Option<String>,
}

/// Ends a long write with its drop.
pub struct LongGuard<'a> {
    /// The inode.
    pub inode: &'a Inode,
    /// Who writes.
    pub holder: u32,
}

impl Drop for LongGuard<'_> {
    fn drop(&mut self) {
        if self.inode.long_write.holder() == self.holder {
            self.inode.long_thread.store(0, SeqCst);
        }
        // It may have been taken away from who did nothing for seconds.
        let _ = self.inode.long_write.unlock(self.holder);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // What was done under the lock is durable only by a sync that began after it.
        self.inode.must_ask_for_sync();
        self.inode.write_lock.unlock(lock::SERVER);
    }
}

impl Inodes {
    /// Keeps clients from appending. A client that was stopped in the middle of a copy and moved nothing for seconds loses
    /// its lock.
    pub fn exclude_writers<'a>(&'a self, open: &OpenInode) -> WriteGuard<'a> {
        let inode = self.shared(open.slot);
        loop {
            let begun = Instant::now();
            let progress =
                || (inode.write_lock.holder(), inode.size.load(Relaxed), self.version_of_area(inode));
            let before = progress();
            let stall = Stall::new(&self.control, open.slot);
            let gives_up = || {
                stall.look();
                begun.elapsed() > WRITE_LOCK_PATIENCE
            };
            if inode.write_lock.lock(lock::SERVER, gives_up) {
                // Whoever took it from a client has marked the inode; another thread may have got it first.
                if open.is_haunted.load(Relaxed) && !open.ring.lock().has_none() {
                    self.revoke_excluded(open);
                }
                return WriteGuard { inode, excludes_long: None };
            }
            let after = progress();
            if before == after && after.0 != lock::SERVER && after.0 != 0 {
                let Holder { program, pid, path } = self.name_holder(open, after.0);
                tracing::warn!(
                    program,
                    pid,
                    path,
                    ino = open.ino.0,
                    "a client held a write lock for seconds; it is taken from it"
                );
                // When it goes on, it goes on with the memory that it has found.
                open.is_haunted.store(true, Relaxed);
                // Another thread of its process may take the lock: what both have gathered is not made durable.
                inode.must_ask_for_sync();
                inode.write_lock.free_if_held_by(after.0);
            }
        }
    }

    /// For the log: who holds the write lock of an inode.
    pub(super) fn name_holder(&self, open: &OpenInode, holder: u32) -> Holder {
        let Some((processes, files)) = &self.users else { return Holder::default() };
        let process = processes.find(holder - 1);
        Holder {
            program: process.as_ref().map(|process| process.name()),
            pid: process.and_then(|process| process.peer.pid()),
            path: files.path_of(open.ino).map(|path| String::from_utf8_lossy(&path).into_owned()),
        }
    }

    /// Keeps everybody from writes in several pieces, after the one that is under way.
    pub(in crate::state) fn exclude_long_writes(&self, open: &OpenInode) -> LongGuard<'_> {
        // One that does nothing for seconds loses its turn.
        while !self.exclude_long(open.slot, lock::SERVER, || false) {}
        LongGuard { inode: self.shared(open.slot), holder: lock::SERVER }
    }

    /// [`Inode::exclude_long_writes`] of the inode in a slot; a writer that is stopped goes on meanwhile.
    pub fn exclude_long(&self, slot: u32, holder: u32, is_over: impl Fn() -> bool) -> bool {
        let stall = Stall::new(&self.control, slot);
        self.shared(slot).exclude_long_writes(holder, || {
            stall.look();
            is_over()
        })
    }

    /// Who holds what the writers of the inode in a slot wait for, when it is a client.
    pub fn stalled_writers(&self, slot: u32) -> impl Iterator<Item = Unfinished<'_>> {
        let inode = self.shared(slot);
        let write = |lock, thread| Unfinished { lock, holder: lock.holder(), thread };
        let long = write(&inode.long_write, Some(inode.long_thread.load(SeqCst)));
        let short = write(&inode.write_lock, None);
        // In a long write it ends both, one after the other.
        let both = [Some(long), (short.holder != long.holder).then_some(short)];
        both.into_iter().flatten().filter(|write| !matches!(write.holder, 0 | lock::SERVER))
    }

    /// Excludes writers, and lets the core know of all that they have written before.
    pub fn exclude_and_drain<'a>(&'a self, open: &OpenInode) -> FsResult<WriteGuard<'a>> {
        let guard = self.exclude_writers(open);
        self.take_all(open)?;
        Ok(guard)
    }

    /// The core gets all that clients have written, who are excluded.
    pub(super) fn take_all(&self, open: &OpenInode) -> FsResult<()> {
        self.shared(open.slot).must_ask_for_sync();
        self.drain(open, true)?;
        self.forget_overwrites(open);
        self.pass_times(open);
        Ok(())
    }
}
