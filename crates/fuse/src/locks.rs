//! Locks of programs that use a mount: they exclude those of programs that share memory with the server.
//!
//! The kernel names the owner of a record lock by a number: that of a program's descriptors (POSIX), or of an open file (OFD). The
//! first go with the `FLUSH` of any descriptor of the file that the owner closes, the others with the open file. A lock of the whole
//! file (`flock`) is that of the open file.
//!
//! No thread waits for a lock. A request that has to wait is kept until locks change or the kernel interrupts it.

use crate::abi::{LK_FLOCK, LockIn, LockOut};
use crate::channel::{Channel, Errno, Outcome};
use crate::handles::Handles;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use weft_client::{FileRef, LockRange};
use weft_server::Peer;
use weft_server::ops::{Error, LockOwner, Session};

/// Interrupts that came before their requests, at most; the kernel sends them in this order only when it is late itself.
const EARLY_MAX: usize = 64;

/// The kernel, as the table of locks sees it.
#[derive(Default)]
pub struct Kernel {
    state: Mutex<Signals>,
    changed: Condvar,
}

#[derive(Default)]
struct Signals {
    /// Requests that can have their locks now, in the order in which they wait.
    turns: Vec<u64>,
    has_ended: bool,
}

impl Kernel {
    /// Waits until requests can have their locks; `None` when the mount has ended.
    fn turns(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        while state.turns.is_empty() && !state.has_ended {
            self.changed.wait(&mut state);
        }
        (!state.has_ended).then(|| std::mem::take(&mut state.turns))
    }
}

impl Peer for Kernel {
    fn locks_changed(&self, request: u64) {
        self.state.lock().turns.push(request);
        self.changed.notify_all();
    }
}

/// A lock that somebody asks for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    file: FileRef,
    /// As the kernel asks for it.
    request: LockIn,
    owner: LockOwner,
    range: LockRange,
    is_flock: bool,
}

impl Wanted {
    fn of(request: &LockIn, file: FileRef) -> Result<Wanted, Errno> {
        let kind = request.kind as i32;
        let len = match request.end {
            end if end >= i64::MAX as u64 => 0,
            end if end < request.start => return Err(Errno(libc::EINVAL)),
            end => end - request.start + 1,
        };
        Ok(Wanted {
            file,
            request: *request,
            owner: LockOwner::Kernel(request.owner),
            range: LockRange { kind, start: request.start, len, pid: request.pid },
            is_flock: request.flags & LK_FLOCK != 0,
        })
    }

    /// Takes it; with `waits`, the request of this number waits if it cannot be had now.
    fn take(&self, session: &Session<'_>, handles: &Handles, waits: Option<u64>) -> Result<(), Error> {
        handles.locks(&self.request, || self.take_now(session, waits))
    }

    fn take_now(&self, session: &Session<'_>, waits: Option<u64>) -> Result<(), Error> {
        if !self.is_flock {
            return session.set_lock(self.file, self.owner, self.range, waits);
        }
        let operation = match self.range.kind {
            libc::F_RDLCK => libc::LOCK_SH,
            libc::F_WRLCK => libc::LOCK_EX,
            _ => libc::LOCK_UN,
        };
        let at_once = if waits.is_none() { libc::LOCK_NB } else { 0 };
        session.flock(self.file, operation | at_once, waits.unwrap_or_default())
    }
}

/// Requests that wait, and interrupts that came before their requests.
#[derive(Default)]
struct State {
    waiting: FxHashMap<u64, Wanted>,
    early: VecDeque<u64>,
}

/// Who may hold record locks by way of which open file.
#[derive(Default)]
struct Owners {
    by_file: FxHashMap<u64, Vec<u64>>,
    /// In how many of these lists an owner is.
    lists: FxHashMap<u64, usize>,
}

/// The locks of a mount.
#[derive(Default)]
pub struct Locks {
    /// Learns of changes.
    pub kernel: Arc<Kernel>,
    state: Mutex<State>,
    /// Apart, since each `close` looks here, and those who wait may be many.
    owners: Mutex<Owners>,
}

impl Owners {
    fn note(&mut self, wanted: &Wanted) {
        if !wanted.is_flock && wanted.range.kind != libc::F_UNLCK {
            let (owner, owners) = (wanted.request.owner, self.by_file.entry(wanted.file.0).or_default());
            if !owners.contains(&owner) {
                owners.push(owner);
                *self.lists.entry(owner).or_default() += 1;
            }
        }
    }

    fn left(&mut self, owner: u64) {
        if let Some(lists) = self.lists.get_mut(&owner) {
            *lists -= 1;
            if *lists == 0 {
                self.lists.remove(&owner);
            }
        }
    }

    fn remove(&mut self, file: FileRef, owner: u64) {
        let Some(owners) = self.by_file.get_mut(&file.0) else { return };
        if let Some(at) = owners.iter().position(|other| *other == owner) {
            owners.swap_remove(at);
            self.left(owner);
        }
    }

    fn take(&mut self, file: FileRef) -> Vec<u64> {
        let owners = self.by_file.remove(&file.0).unwrap_or_default();
        owners.iter().for_each(|owner| self.left(*owner));
        owners
    }
}

/// Whether a thread is one of a process.
fn is_thread_of(thread: u32, process: u32) -> bool {
    thread == process || Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

impl Locks {
    /// After a server has ended: takes again what programs hold. How many open files are lost, since it cannot be had.
    pub fn restore(&self, session: &Session<'_>, handles: &Handles) -> usize {
        handles.restore_locks(|file, request| {
            let wanted = Wanted::of(request, file)?;
            self.owners.lock().note(&wanted);
            wanted.take_now(session, None).map_err(Errno::from)
        })
    }

    /// What is in the way of a lock that a thread asks for.
    pub fn get(
        &self,
        session: &Session<'_>,
        file: FileRef,
        (request, thread): (&LockIn, u32),
    ) -> Result<LockOut, Errno> {
        let wanted = Wanted::of(request, file)?;
        let found = session.get_lock(wanted.file, wanted.owner, wanted.range).map_err(Errno::from)?;
        let end = match found.len {
            0 => i64::MAX as u64,
            len => (found.start + (len - 1)).min(i64::MAX as u64),
        };
        // Its own POSIX locks are not in a process's way: this one is of an open file, which has no process.
        let pid = if is_thread_of(thread, found.pid) { 0 } else { found.pid };
        Ok(LockOut { start: found.start, end, kind: found.kind as u32, pid })
    }

    /// Takes or gives back a lock; with `waits`, the request waits if others hold it.
    pub fn set(
        &self,
        session: &Session<'_>,
        handles: &Handles,
        unique: u64,
        request: &LockIn,
        waits: bool,
    ) -> Result<Outcome, Errno> {
        let wanted = Wanted::of(request, handles.file(request.handle)?)?;
        self.owners.lock().note(&wanted);
        if !waits {
            return wanted.take(session, handles, None).map(|()| Outcome::Answered).map_err(Errno::from);
        }
        let mut state = self.state.lock();
        // Under the lock: whatever changes from now on finds the request waiting.
        match wanted.take(session, handles, Some(unique)) {
            Err(Error::Waits) => {}
            Ok(()) => return Ok(Outcome::Answered),
            Err(error) => {
                session.withdraw(unique);
                return Err(Errno::from(error));
            }
        }
        if let Some(at) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(at);
            session.withdraw(unique);
            return Err(Errno(libc::EINTR));
        }
        state.waiting.insert(unique, wanted);
        Ok(Outcome::Pending)
    }

    /// The kernel wants the answer to a request: a signal has come.
    pub fn interrupt(&self, session: &Session<'_>, unique: u64, channel: &Channel) {
        let mut state = self.state.lock();
        if state.waiting.remove(&unique).is_some() {
            session.withdraw(unique);
            tell(channel.refuse(unique, Errno(libc::EINTR)));
            return;
        }
        // Of a request that does not wait, or that another thread has only read so far.
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    /// An owner has closed a descriptor of a file.
    pub fn closed(
        &self,
        session: &Session<'_>,
        handles: &Handles,
        handle: u64,
        owner: u64,
    ) -> Result<(), Errno> {
        let file = handles.file(handle)?;
        {
            let mut owners = self.owners.lock();
            // Owners are remembered by the open file that they used, which may be another one of the same file.
            if !owners.lists.contains_key(&owner) {
                return Ok(());
            }
            // Before the locks go: the open file is given up later, when the owner may have opened and locked the file again.
            owners.remove(file, owner);
        }
        let drop_all = || session.drop_locks(file, LockOwner::Kernel(owner)).map_err(Errno::from);
        handles.unlocks(handle, owner, drop_all)
    }

    /// An open file is given up.
    pub fn released(&self, session: &Session<'_>, file: FileRef) {
        let owners = self.owners.lock().take(file);
        for owner in owners {
            // What is left is the open file's.
            let _ = session.drop_locks(file, LockOwner::Kernel(owner));
        }
    }

    /// Tries again whenever locks can be had, until the mount ends.
    pub fn serve(&self, session: &Session<'_>, handles: &Handles, channel: &Channel) {
        while let Some(turns) = self.kernel.turns() {
            for unique in turns {
                let mut state = self.state.lock();
                let Some(wanted) = state.waiting.get(&unique) else {
                    // Interrupted, or it has had its lock at an earlier turn: whatever it was, others do not wait for it.
                    session.withdraw(unique);
                    continue;
                };
                let answered = match wanted.take(session, handles, Some(unique)) {
                    Err(Error::Waits) => continue,
                    Ok(()) => channel.accept(unique),
                    Err(error) => {
                        session.withdraw(unique);
                        channel.refuse(unique, Errno::from(error))
                    }
                };
                state.waiting.remove(&unique);
                tell(answered);
            }
        }
    }

    /// Ends [`Locks::serve`].
    pub fn end(&self) {
        self.kernel.state.lock().has_ended = true;
        self.kernel.changed.notify_all();
    }
}

fn tell(answered: std::io::Result<()>) {
    if let Err(error) = answered {
        tracing::warn!(%error, "the kernel does not take the answer to a request for a lock");
    }
}
