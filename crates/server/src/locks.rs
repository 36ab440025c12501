//! `flock` and record locks, across processes.
//!
//! A record lock belongs to a process (a connection) or, for the OFD kind, to an open file; `flock` locks belong to an
//! open file. Locks of a dead process go with its connection.

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::time::Duration;
use weft_client::LockRange;
use weft_client::proto::ASK_AGAIN;
use weft_core::Ino;

/// How long a waiter sleeps before its client has to ask again.
const WAIT: Duration = Duration::from_millis(200);

/// Who holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A process, by its connection.
    Process(u32),
    /// An open file, by its number.
    File(u64),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    owner: Owner,
    exclusive: bool,
    /// First byte.
    start: u64,
    /// Last byte.
    last: u64,
    pid: u32,
}

impl Held {
    fn overlaps(&self, start: u64, last: u64) -> bool {
        self.start <= last && start <= self.last
    }
}

#[derive(Default)]
struct Table {
    records: FxHashMap<Ino, Vec<Held>>,
    whole: FxHashMap<Ino, Vec<Held>>,
}

/// All locks of a volume.
#[derive(Default)]
pub struct Locks {
    table: Mutex<Table>,
    changed: Condvar,
}

fn last_byte(range: &LockRange) -> u64 {
    if range.len == 0 { u64::MAX } else { range.start.saturating_add(range.len - 1) }
}

impl Locks {
    /// The first record lock of somebody else that is in the way of `range`.
    pub fn in_the_way(&self, ino: Ino, owner: Owner, range: &LockRange) -> Option<LockRange> {
        let table = self.table.lock();
        conflict(table.records.get(&ino)?, owner, range.kind == libc::F_WRLCK, range.start, last_byte(range))
            .map(|held| LockRange {
                kind: if held.exclusive { libc::F_WRLCK } else { libc::F_RDLCK },
                start: held.start,
                len: if held.last == u64::MAX { 0 } else { held.last - held.start + 1 },
                pid: held.pid,
            })
    }

    /// Sets or clears a record lock; waits for others when `wait`, until `cancelled`. Errors are errno values.
    pub fn set_record(
        &self,
        ino: Ino,
        owner: Owner,
        range: &LockRange,
        wait: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), i32> {
        let last = last_byte(range);
        let exclusive = range.kind == libc::F_WRLCK;
        let mut table = self.table.lock();
        if range.kind != libc::F_UNLCK {
            while conflict(table.records.entry(ino).or_default(), owner, exclusive, range.start, last)
                .is_some()
            {
                if !wait {
                    return Err(libc::EAGAIN);
                }
                if cancelled() {
                    return Err(libc::EINTR);
                }
                if self.changed.wait_for(&mut table, WAIT).timed_out() {
                    return Err(ASK_AGAIN);
                }
            }
        }
        let held = table.records.entry(ino).or_default();
        cut(held, owner, range.start, last);
        if range.kind != libc::F_UNLCK {
            held.push(Held { owner, exclusive, start: range.start, last, pid: range.pid });
        }
        if held.is_empty() {
            table.records.remove(&ino);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// `flock`: `operation` as in the system call. Errors are errno values.
    pub fn set_whole(
        &self,
        ino: Ino,
        owner: Owner,
        operation: i32,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), i32> {
        let wait = operation & libc::LOCK_NB == 0;
        let exclusive = match operation & !libc::LOCK_NB {
            libc::LOCK_EX => Some(true),
            libc::LOCK_SH => Some(false),
            libc::LOCK_UN => None,
            _ => return Err(libc::EINVAL),
        };
        let mut table = self.table.lock();
        if let Some(exclusive) = exclusive {
            while conflict(table.whole.entry(ino).or_default(), owner, exclusive, 0, u64::MAX).is_some() {
                if !wait {
                    return Err(libc::EWOULDBLOCK);
                }
                if cancelled() {
                    return Err(libc::EINTR);
                }
                if self.changed.wait_for(&mut table, WAIT).timed_out() {
                    return Err(ASK_AGAIN);
                }
            }
        }
        let held = table.whole.entry(ino).or_default();
        held.retain(|h| h.owner != owner);
        if let Some(exclusive) = exclusive {
            held.push(Held { owner, exclusive, start: 0, last: u64::MAX, pid: 0 });
        }
        if held.is_empty() {
            table.whole.remove(&ino);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Drops the record locks of a process on one inode, as closing any of its descriptors does.
    pub fn drop_process_locks(&self, ino: Ino, connection: u32) {
        let mut table = self.table.lock();
        let Some(held) = table.records.get_mut(&ino) else { return };
        held.retain(|h| h.owner != Owner::Process(connection));
        if held.is_empty() {
            table.records.remove(&ino);
        }
        self.changed.notify_all();
    }

    /// Drops everything that an owner holds.
    pub fn drop_owner(&self, owner: Owner) {
        let table = &mut *self.table.lock();
        for held in [&mut table.records, &mut table.whole] {
            held.retain(|_, locks| {
                locks.retain(|h| h.owner != owner);
                !locks.is_empty()
            });
        }
        self.changed.notify_all();
    }
}

fn conflict(held: &[Held], owner: Owner, exclusive: bool, start: u64, last: u64) -> Option<&Held> {
    let in_the_way = |h: &&Held| h.owner != owner && (h.exclusive || exclusive) && h.overlaps(start, last);
    held.iter().filter(in_the_way).min_by_key(|h| h.start)
}

/// Takes `start ..= last` out of what an owner holds, splitting locks that reach beyond it.
fn cut(held: &mut Vec<Held>, owner: Owner, start: u64, last: u64) {
    let mut rest = Vec::new();
    held.retain(|h| {
        if h.owner != owner || !h.overlaps(start, last) {
            return true;
        }
        if h.start < start {
            rest.push(Held { last: start - 1, ..*h });
        }
        if h.last > last {
            rest.push(Held { start: last + 1, ..*h });
        }
        false
    });
    held.extend(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(5);

    fn range(kind: i32, start: u64, len: u64) -> LockRange {
        LockRange { kind, start, len, pid: 1 }
    }

    fn set(locks: &Locks, owner: Owner, range: LockRange) -> Result<(), i32> {
        locks.set_record(INO, owner, &range, false, &|| false)
    }

    #[test]
    fn readers_share_and_a_writer_excludes() {
        let locks = Locks::default();
        let (a, b) = (Owner::Process(1), Owner::Process(2));
        assert_eq!(set(&locks, a, range(libc::F_RDLCK, 0, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_RDLCK, 5, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 9, 1)), Err(libc::EAGAIN));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 10, 1)), Ok(()));
        assert_eq!(locks.in_the_way(INO, a, &range(libc::F_WRLCK, 10, 0)).map(|l| l.start), Some(10));
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock() {
        let locks = Locks::default();
        let (a, b) = (Owner::Process(1), Owner::Process(2));
        assert_eq!(set(&locks, a, range(libc::F_WRLCK, 0, 0)), Ok(()));
        assert_eq!(set(&locks, a, range(libc::F_UNLCK, 10, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 10, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 9, 1)), Err(libc::EAGAIN));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 20, 1)), Err(libc::EAGAIN));
    }

    #[test]
    fn a_dead_process_holds_nothing() {
        let locks = Locks::default();
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 0)), Ok(()));
        locks.drop_owner(Owner::Process(1));
        assert_eq!(set(&locks, Owner::Process(2), range(libc::F_WRLCK, 0, 0)), Ok(()));
    }

    #[test]
    fn flock_upgrades_in_place() {
        let locks = Locks::default();
        let (a, b) = (Owner::File(1), Owner::File(2));
        let set = |owner, op| locks.set_whole(INO, owner, op | libc::LOCK_NB, &|| false);
        assert_eq!(set(a, libc::LOCK_SH), Ok(()));
        assert_eq!(set(a, libc::LOCK_EX), Ok(()));
        assert_eq!(set(b, libc::LOCK_SH), Err(libc::EWOULDBLOCK));
        assert_eq!(set(a, libc::LOCK_UN), Ok(()));
        assert_eq!(set(b, libc::LOCK_SH), Ok(()));
    }
}
