//! `flock` and record locks.

use super::Error::Errno;
use super::{Result, Session};
use crate::state::locks::{Owner, Refused};
use crate::state::open_files::OpenFile;
use std::sync::Arc;
use std::time::Duration;
use weft_client::proto::{is_readable, is_writable};
use weft_client::{FileRef, LockRange};
use weft_core::refuse;

/// To whom a record lock belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOwner {
    /// To the process: it goes when the process closes any descriptor of the file.
    Process,
    /// To the open file (`F_OFD_SETLK`).
    File,
    /// To whom the kernel names by this number: it says when the locks go.
    Kernel(u64),
}

impl Session<'_> {
    /// Locks the whole file; `operation` is that of `flock`. Without `LOCK_NB`, `thread` waits when others hold the lock
    /// ([`Error::Waits`](super::Error::Waits)).
    pub fn flock(&self, file: FileRef, operation: i32, thread: u64) -> Result<()> {
        let exclusive = match operation & !libc::LOCK_NB {
            libc::LOCK_EX => Some(true),
            libc::LOCK_SH => Some(false),
            libc::LOCK_UN => None,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let open = self.open_data(file)?;
        let flags = self.open_flags(&open);
        refuse(exclusive.is_some() && !is_readable(flags) && !is_writable(flags), Errno(libc::EBADF))?;
        self.volume.inodes.attend(&open.inode);
        let waiter = (operation & libc::LOCK_NB == 0).then(|| self.process.waiter(thread));
        let (ino, owner) = (open.inode.ino, Owner::File(open.file.0));
        let set = || self.volume.locks.set_whole(ino, owner, exclusive, waiter.as_ref());
        self.while_open(open.file, || Ok(self.past_ended_processes(set, is_refused)?))
    }

    /// The record lock in the way of `range`; one of the kind `F_UNLCK` when there is none.
    pub fn get_lock(&self, file: FileRef, owner: LockOwner, range: LockRange) -> Result<LockRange> {
        let (open, owner) = self.lockable(file, owner, &range)?;
        let look = || self.volume.locks.in_the_way(open.inode.ino, owner, &range);
        let found = self.past_ended_processes(look, Option::is_some);
        Ok(found.unwrap_or(LockRange { kind: libc::F_UNLCK, ..range }))
    }

    /// Sets or clears a record lock. The thread `waits`, when there is one, if others hold the lock ([`Error::Waits`](super::Error::Waits)).
    pub fn set_lock(
        &self,
        file: FileRef,
        owner: LockOwner,
        range: LockRange,
        waits: Option<u64>,
    ) -> Result<()> {
        let (open, owner) = self.lockable(file, owner, &range)?;
        let flags = self.open_flags(&open);
        let (readable, writable) = (is_readable(flags), is_writable(flags));
        if range.kind == libc::F_WRLCK && !writable || range.kind == libc::F_RDLCK && !readable {
            return Err(Errno(libc::EBADF));
        }
        let waiter = waits.map(|thread| self.process.waiter(thread));
        let (locks, ino) = (&self.volume.locks, open.inode.ino);
        let lending = self.may_lease().then(|| open.inode.lending());
        let set = || locks.set_record(ino, owner, &range, waiter.as_ref(), lending.as_ref());
        if !matches!(owner, Owner::Process(_)) {
            return self.while_open(open.file, || Ok(self.past_ended_processes(set, is_refused)?));
        }
        self.past_ended_processes(set, is_refused)?;
        if !self.process.holds(open.file) {
            // Another thread has closed the descriptor, and the process's locks were dropped before this one was set.
            let nothing = LockRange { kind: libc::F_UNLCK, ..range };
            locks.set_record(ino, owner, &nothing, None, None)?;
            return Err(Errno(libc::EBADF));
        }
        Ok(())
    }

    /// Drops the record locks that an owner has on a file.
    pub fn drop_locks(&self, file: FileRef, owner: LockOwner) -> Result<()> {
        let open = self.open_file(file)?;
        self.volume.locks.drop_records(open.inode.ino, self.owner(&open, owner));
        Ok(())
    }

    /// A thread does not wait for a lock any more.
    pub fn withdraw(&self, thread: u64) {
        self.volume.locks.withdraw(self.process.id, thread);
    }

    fn lockable(&self, file: FileRef, owner: LockOwner, range: &LockRange) -> Result<(Arc<OpenFile>, Owner)> {
        let open = self.open_data(file)?;
        self.volume.inodes.attend(&open.inode);
        refuse(!matches!(range.kind, libc::F_RDLCK | libc::F_WRLCK | libc::F_UNLCK), Errno(libc::EINVAL))?;
        let owner = self.owner(&open, owner);
        Ok((open, owner))
    }

    fn owner(&self, open: &OpenFile, owner: LockOwner) -> Owner {
        match owner {
            LockOwner::Process => Owner::Process(self.process.id),
            LockOwner::File => Owner::File(open.file.0),
            LockOwner::Kernel(owner) => Owner::Kernel(owner),
        }
    }

    /// Does something with locks of an open file, which stays open over it: what closes it in the meantime leaves it to this
    /// call to drop the locks.
    fn while_open(&self, file: FileRef, act: impl FnOnce() -> Result<()>) -> Result<()> {
        refuse(!self.volume.files.reference(file), Errno(libc::EBADF))?;
        let result = act();
        if let Some(last) = self.volume.files.release(file, 1) {
            self.volume.close(&last, false);
            return Err(Errno(libc::EBADF));
        }
        result
    }

    /// Does something with locks in whose way no process is that has ended. The kernel gives back the locks of a process
    /// before anybody can see that it has ended; here the news take a moment, for which the caller waits.
    fn past_ended_processes<T>(&self, act: impl Fn() -> T, is_in_the_way: impl Fn(&T) -> bool) -> T {
        const TRIES: u32 = 3_000;
        const PAUSE: Duration = Duration::from_millis(1);
        for _ in 0..TRIES {
            let result = act();
            if !is_in_the_way(&result) {
                return result;
            }
            if !self.volume.processes.any_is_ending() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // Once more: a process that had ended before may have given back its locks just before it was looked for.
        act()
    }
}

fn is_refused(result: &Result<(), Refused>) -> bool {
    matches!(result, Err(Refused::Held | Refused::Deadlock))
}
