//! Open files, as the kernel numbers them, in memory that outlives the server.
//!
//! When a server has ended without a word, the next one finds here what was open, opens it again under the same numbers, and knows
//! what cannot be had back: writes that were not made durable, and locks. Whoever lost something is told by `EIO`.
//!
//! ```text
//!  8 words: what the kernel agreed to, or 0; st_dev; unused
//!  5 words for each file: FileRef of this server; inode, or 0 for none; flags of open, state; how often the place was used;
//!                         when it was written to by way of the file, or 0
//!  entries of changes, and of locks
//! ```
//!
//! A number is a place and how often it was used before: a server may be given again what the last one has done, such as the end of
//! a number, when the place is another file's already.

use crate::abi::{LK_FLOCK, LockIn};
use crate::changes::{self, Changes, TOLD_TO_EACH};
use crate::channel::Errno;
use crate::kept_locks::{self, Index, KeptLocks};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering::*};
use weft_client::FileRef;
use weft_client::proto::is_writable;
use weft_core::{Ino, refuse};
use weft_server::ops::Error;
use weft_sys::SharedMemory;
use weft_sys::clock::monotonic_ns;

/// Files open at the same time by way of a mount.
const FILES_MAX: usize = 1 << 20;
const HEAD_WORDS: usize = 8;
const FILE_WORDS: usize = 5;
const CHANGES_AT: usize = HEAD_WORDS + FILES_MAX * FILE_WORDS;
const LOCKS_AT: usize = CHANGES_AT + changes::WORDS;
/// Bytes of the memory, which are taken as files are opened and changed.
const BYTES: usize = (LOCKS_AT + kept_locks::WORDS) * size_of::<u64>();

/// Numbers are given from the lowest on: behind so many that never were, there are no others, and memory is not touched.
const UNUSED_MAX: u32 = 4096;

/// States of an open file, above its flags. It was locked, and the lock is not kept.
const LOCKED: u64 = 1 << 33;
/// What was changed may be lost: the next `fsync` says so, and each `close` before it.
const UNSURE: u64 = 1 << 34;
/// It cannot be used any more.
const LOST: u64 = 1 << 35;
/// It was opened after the loss.
const LATER: u64 = 1 << 36;
/// A `close` has told of a loss before it was opened.
const CLOSE_TOLD: u64 = 1 << 37;
/// The last `fsync` has told of a loss. If the server ended before the kernel had the answer, the next one is asked again.
const FSYNC_TOLD: u64 = 1 << 38;
/// After so many entries of changes, what nobody has been told of is noted again, so that it is never overwritten; unless it is as much.
const NOTED_EVERY: u64 = changes::ENTRIES as u64 / 4;

/// A number that no `FileRef` is, for a file that could not be opened again.
const NO_FILE: FileRef = FileRef(u64::MAX);

/// What a mount keeps for the next server.
#[derive(Debug)]
pub struct Kept(SharedMemory);

impl Kept {
    /// Of a mount that is about to be made.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new() -> std::io::Result<Kept> {
        Ok(Kept(SharedMemory::create("weft-mount", BYTES)?))
    }
}

/// An open file as it lies in memory.
struct Slot<'a> {
    file: &'a AtomicU64,
    ino: &'a AtomicU64,
    state: &'a AtomicU64,
    uses: &'a AtomicU64,
    written: &'a AtomicU64,
}

/// What is open by way of a mount.
pub struct Handles {
    kept: Kept,
    free: Mutex<Free>,
    /// Another server may go on: it is to know what was changed.
    outlives: bool,
    /// Inodes with changes that were lost when a server ended, of which nobody has been told.
    untold: Mutex<FxHashSet<Ino>>,
    /// Changes that were lost lately, whoever has been told.
    lately: Mutex<Lately>,
    /// When these were found, and how many entries of changes there were when they were noted.
    found: AtomicU64,
    noted: AtomicU64,
    /// Writes so far.
    writes: AtomicU64,
    locks: Mutex<Index>,
    /// How many of the open files of an inode can be mapped so that stores reach the inode.
    storable: Mutex<FxHashMap<Ino, u32>>,
}

/// Whether a file that is open with these flags can be mapped so that stores reach it.
fn is_storable(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDWR
}

/// Changes that were lost lately, of which each thread is told once that makes the inode durable: several may have changed it by its
/// name, and open it only to make it durable.
#[derive(Default)]
struct Lately {
    /// When they were found.
    found: FxHashMap<Ino, u64>,
    told: FxHashSet<(Ino, u32)>,
}

impl Lately {
    /// Whether a thread has a loss of this inode to be told of, which counts as told.
    fn tells(&mut self, ino: Ino, thread: u32, now: u64) -> bool {
        match self.found.get(&ino) {
            None => false,
            Some(found) if now < found.saturating_add(TOLD_TO_EACH) => self.told.insert((ino, thread)),
            Some(_) => {
                self.expire(now);
                false
            }
        }
    }

    fn expire(&mut self, now: u64) {
        self.found.retain(|_, found| now < found.saturating_add(TOLD_TO_EACH));
        self.told.retain(|(ino, _)| self.found.contains_key(ino));
    }
}

/// Numbers that may be given.
#[derive(Default)]
struct Free {
    /// Numbers given back.
    back: Vec<u32>,
    /// All from here on were never given.
    next: u32,
}

impl Handles {
    /// For a mount without anything open. `outlives`: another server may go on with it.
    pub fn new(kept: Kept, outlives: bool) -> Handles {
        Handles {
            kept,
            free: Mutex::default(),
            outlives,
            untold: Mutex::default(),
            lately: Mutex::default(),
            found: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            locks: Mutex::default(),
            storable: Mutex::default(),
        }
    }

    /// Whether another server may go on with the mount.
    pub fn outlives(&self) -> bool {
        self.outlives
    }

    fn words(&self) -> &[AtomicU64] {
        self.kept.0.atomics()
    }

    /// What the kernel has agreed to; none before it was asked.
    pub fn agreed(&self) -> Option<u64> {
        Some(self.words()[0].load(Acquire)).filter(|agreed| *agreed != 0)
    }

    /// The kernel has agreed to this.
    pub fn set_agreed(&self, agreed: u64) {
        self.words()[0].store(agreed, Release);
    }

    /// The `st_dev` of the mount, once it is known.
    pub fn device(&self) -> u64 {
        self.words()[1].load(Acquire)
    }

    /// The mount has this `st_dev`.
    pub fn set_device(&self, device: u64) {
        self.words()[1].store(device, Release);
    }

    fn changes(&self) -> Changes<'_> {
        Changes::new(self.words().get(CHANGES_AT..LOCKS_AT).unwrap_or(&[]))
    }

    /// Names or attributes of an inode have been changed, and it is not known to be durable.
    pub fn note_changed(&self, ino: Ino) {
        if self.outlives {
            self.changes().named(ino, monotonic_ns());
            self.note_untold();
        }
    }

    /// Notes again what nobody has been told of, or not everybody, before other entries take its place.
    fn note_untold(&self) {
        let (count, before) = (self.changes().count(), self.noted.load(Relaxed));
        if count - before < NOTED_EVERY
            || self.noted.compare_exchange(before, count, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let (untold, mut lately) = (self.untold.lock(), self.lately.lock());
        lately.expire(monotonic_ns());
        if ((untold.len() + lately.found.len()) as u64) < NOTED_EVERY / 2 {
            let found = self.found.load(Relaxed).saturating_sub(1);
            untold.iter().for_each(|ino| self.changes().lost(*ino, found));
            for (ino, found) in lately.found.iter().filter(|(ino, _)| !untold.contains(ino)) {
                self.changes().lost(*ino, *found);
                self.changes().settled(*ino, found + 1);
            }
        }
    }

    /// Makes everything durable by `act`, when something has changed since `seen`, which is so many changes. How many of them are
    /// durable.
    pub fn settle_all(&self, seen: u64, act: impl FnOnce() -> Result<(), Errno>) -> u64 {
        let begun = monotonic_ns();
        let count = self.changes().count().wrapping_add(self.writes.load(Relaxed));
        // What cannot be made durable is told to the programs otherwise.
        if count == seen || act().is_err() {
            return seen;
        }
        self.changes().all_settled(begun);
        count
    }

    fn place(&self, place: u32) -> Result<Slot<'_>, Errno> {
        let first = HEAD_WORDS + place as usize * FILE_WORDS;
        match self.words().get(first..first + FILE_WORDS) {
            Some([file, ino, state, uses, written]) if (place as usize) < FILES_MAX => {
                Ok(Slot { file, ino, state, uses, written })
            }
            _ => Err(Errno(libc::EBADF)),
        }
    }

    fn slot(&self, handle: u64) -> Result<Slot<'_>, Errno> {
        let slot = self.place(handle as u32)?;
        refuse(slot.uses.load(Relaxed) as u32 != (handle >> 32) as u32, Errno(libc::EBADF))?;
        Ok(slot)
    }

    /// The number for a file that was opened; `ENFILE` when too many are open.
    pub fn add(&self, file: FileRef, ino: Ino, flags: i32) -> Result<u64, Errno> {
        let number = {
            let mut free = self.free.lock();
            match free.back.pop() {
                Some(number) => number,
                None if (free.next as usize) < FILES_MAX => {
                    free.next += 1;
                    free.next - 1
                }
                None => return Err(Errno(libc::ENFILE)),
            }
        };
        let slot = self.place(number)?;
        let uses = u64::from((slot.uses.load(Relaxed) as u32).wrapping_add(1));
        slot.uses.store(uses, Relaxed);
        slot.file.store(file.0, Relaxed);
        slot.written.store(0, Relaxed);
        if is_storable(flags) {
            *self.storable.lock().entry(ino).or_default() += 1;
        }
        let is_untold = self.untold.lock().contains(&ino);
        let state = if is_untold { UNSURE | LATER } else { 0 };
        slot.state.store(u64::from(flags as u32) | state, Relaxed);
        slot.ino.store(ino.0, Release);
        Ok(uses << 32 | u64::from(number))
    }

    /// The open file of a number.
    pub fn file(&self, handle: u64) -> Result<FileRef, Errno> {
        let slot = self.slot(handle)?;
        if slot.state.load(Relaxed) & LOST != 0 {
            return Err(Errno(libc::EIO));
        }
        Ok(FileRef(slot.file.load(Relaxed)))
    }

    /// Whether the file of a number is open, and the kernel has not given the number back.
    pub fn is_open(&self, handle: u64) -> bool {
        self.slot(handle).is_ok_and(|slot| slot.ino.load(Acquire) != 0)
    }

    /// The kernel gives a number back; the file that is to be closed.
    pub fn remove(&self, handle: u64) -> Result<Option<FileRef>, Errno> {
        let slot = self.slot(handle)?;
        let file = FileRef(slot.file.load(Relaxed));
        let (ino, written) = (slot.ino.load(Acquire), slot.written.load(Relaxed));
        if self.outlives && ino != 0 && written != 0 {
            self.changes().changed(Ino(ino), written);
            self.note_untold();
        }
        if ino != 0 {
            self.with_locks(|locks| locks.released(Ino(ino), handle));
        }
        if slot.state.load(Relaxed) & CLOSE_TOLD != 0 {
            self.told(&slot);
        }
        if slot.ino.swap(0, AcqRel) == 0 {
            return Err(Errno(libc::EBADF));
        }
        if is_storable(slot.state.load(Relaxed) as u32 as i32)
            && let Entry::Occupied(mut open) = self.storable.lock().entry(Ino(ino))
        {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
        self.free.lock().back.push(handle as u32);
        Ok((file != NO_FILE).then_some(file))
    }

    /// Whether the kernel may have stores to a map of this inode.
    pub fn may_have_stores(&self, ino: Ino) -> bool {
        self.storable.lock().contains_key(&ino)
    }

    /// Data of an inode have been changed, and it is not known to be durable.
    pub fn note_content_changed(&self, ino: Ino) {
        if self.outlives {
            self.changes().changed(ino, monotonic_ns());
            self.note_untold();
        }
    }

    /// An inode is durable with all that was changed before this time.
    pub fn note_settled(&self, ino: Ino, time: u64) {
        if self.outlives {
            self.changes().settled(ino, time);
            self.note_untold();
        }
    }

    /// Something has been written by way of this file.
    pub fn note_written(&self, handle: u64) {
        if self.outlives
            && let Ok(slot) = self.slot(handle)
        {
            slot.written.store(monotonic_ns(), Relaxed);
            self.writes.fetch_add(1, Relaxed);
        }
    }

    /// The inode of an open file is durable with all that was changed before this time.
    pub fn note_durable(&self, handle: u64, time: u64) {
        if let Ok(slot) = self.slot(handle) {
            self.note_settled(Ino(slot.ino.load(Relaxed)), time);
        }
    }

    fn with_locks<T>(&self, act: impl FnOnce(&mut KeptLocks<'_>) -> T) -> T {
        // In the order in which they are granted.
        let mut index = self.outlives.then(|| self.locks.lock());
        let words = self.words().get(LOCKS_AT..LOCKS_AT + kept_locks::WORDS).unwrap_or(&[]);
        act(&mut KeptLocks::new(words, index.as_deref_mut()))
    }

    /// Locks by `act`; what is granted so is kept. `lock` has the kernel's number of the open file.
    pub fn locks(&self, lock: &LockIn, act: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        self.with_locks(|locks| {
            let done = act();
            if let (true, Err(Error::Waits | Error::Errno(libc::EAGAIN)), Ok(slot)) =
                (lock.flags & LK_FLOCK != 0, &done, self.slot(lock.handle))
            {
                // As in Linux, what the open file had is given back before another lock is taken.
                locks.unlocked(Ino(slot.ino.load(Relaxed)), lock.handle);
            }
            done?;
            if let Ok(slot) = self.slot(lock.handle)
                && !locks.granted(Ino(slot.ino.load(Relaxed)), lock)
            {
                slot.state.fetch_or(LOCKED, Relaxed);
            }
            Ok(())
        })
    }

    /// An owner of record locks gives back by `act` those that it has on the inode of this file.
    pub fn unlocks<T>(&self, handle: u64, owner: u64, act: impl FnOnce() -> T) -> T {
        self.with_locks(|locks| {
            let done = act();
            if let Ok(slot) = self.slot(handle) {
                locks.closed(Ino(slot.ino.load(Relaxed)), owner);
            }
            done
        })
    }

    /// The locks that were held when a server ended are taken again by `take`. Files whose locks cannot be had are lost; how many.
    pub fn restore_locks(&self, mut take: impl FnMut(FileRef, &LockIn) -> Result<(), Errno>) -> usize {
        let open = |handle: u64| self.slot(handle).ok().filter(|_| self.file(handle).is_ok());
        let all = self.with_locks(|locks| {
            locks.restore(|handle| Some(Ino(open(handle)?.ino.load(Relaxed))).filter(|ino| ino.0 != 0))
        });
        let mut lost = 0;
        for lock in all {
            let Some(slot) = open(lock.handle) else { continue };
            if let Err(error) = take(FileRef(slot.file.load(Relaxed)), &lock) {
                tracing::warn!(
                    ino = slot.ino.load(Relaxed),
                    ?error,
                    "a lock cannot be had again: its file is lost"
                );
                slot.state.fetch_or(LOST, Relaxed);
                lost += 1;
            }
        }
        lost
    }

    /// Makes a file durable by `act`, for a thread; an error when something that was written by way of it may be lost, or lately was by
    /// way of any. `is_resent`: another server was asked for the same, and may have told so to nobody.
    pub fn settled(
        &self,
        handle: u64,
        thread: u32,
        is_resent: bool,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let slot = self.slot(handle)?;
        let begun = monotonic_ns();
        let done = act();
        let before = slot.state.fetch_and(!(CLOSE_TOLD | FSYNC_TOLD), Relaxed);
        let is_new_to_it = self.lately.lock().tells(Ino(slot.ino.load(Relaxed)), thread, begun);
        if before & UNSURE != 0 || is_resent && before & FSYNC_TOLD != 0 || is_new_to_it {
            // At once, so that none of the two is missing when the server ends in between.
            slot.state.fetch_xor(before & UNSURE | FSYNC_TOLD, Relaxed);
            self.told(&slot);
            return Err(Errno(libc::EIO));
        }
        // Not before: if the server ends in between, the next one is asked for the same.
        if done.is_ok() {
            self.note_durable(handle, begun);
        }
        done
    }

    fn told(&self, slot: &Slot<'_>) {
        let ino = Ino(slot.ino.load(Relaxed));
        if self.untold.lock().remove(&ino) {
            // Not what was changed since.
            self.changes().settled(ino, self.found.load(Relaxed));
        }
    }

    /// A descriptor is closed: whether something that was written may be lost, and no `fsync` has told so. Each `close` tells it: the
    /// first may be a program's start in a new process, which has inherited the descriptor and tells nobody. When the file was
    /// opened after the loss, and is closed altogether, those that open it from then on are not told.
    pub fn tells_close(&self, handle: u64) -> bool {
        let Ok(slot) = self.slot(handle) else { return false };
        let state = slot.state.load(Relaxed);
        if state & UNSURE == 0 || !is_writable(state as u32 as i32) {
            return false;
        }
        if state & LATER != 0 {
            slot.state.fetch_or(CLOSE_TOLD, Relaxed);
        }
        true
    }

    /// After a server has ended: opens again what was open, by `open`.
    pub fn restore(&self, open: impl Fn(Ino, i32) -> Option<FileRef>) -> Restored {
        let mut free = self.free.lock();
        let words = &self.words()[HEAD_WORDS..CHANGES_AT];
        let recent = self.changes().recent();
        let mut all = Vec::new();
        for (number, slot) in (0u32..).zip(words.chunks_exact(FILE_WORDS)) {
            let (ino, state) = (slot[1].load(Acquire), slot[2].load(Relaxed));
            if ino != 0 {
                all.push((number, Ino(ino), state));
            } else if number > free.next + UNUSED_MAX {
                break;
            }
            if slot.iter().any(|word| word.load(Relaxed) != 0) {
                free.next = number + 1;
            }
        }
        let is_free = |number: &u32| words[*number as usize * FILE_WORDS + 1].load(Relaxed) == 0;
        free.back = (0..free.next).filter(is_free).collect();
        let with = |is: &dyn Fn(u32, u64) -> bool| -> FxHashSet<Ino> {
            all.iter().filter(|(number, _, state)| is(*number, *state)).map(|(_, ino, _)| *ino).collect()
        };
        let locked = with(&|_, state| state & LOCKED != 0);
        let mut unsure = with(&|number, state| {
            let may_lack =
                |slot: Slot<'_>| recent.may_lack(Ino(slot.ino.load(Relaxed)), slot.written.load(Relaxed));
            let is_unsure = state & (UNSURE | LATER) == UNSURE;
            recent.is_incomplete || is_unsure || self.place(number).is_ok_and(may_lack)
        });
        unsure.extend(&recent.unsure);
        let mut lost = 0;
        for (number, ino, state) in &all {
            let Ok(slot) = self.place(*number) else { continue };
            let flags = *state as u32 as i32;
            let is_lost = state & LOST != 0 || locked.contains(ino);
            let file = if is_lost { None } else { open(*ino, flags) };
            lost += usize::from(file.is_none());
            // What was written by way of it since it was opened is not of an earlier loss.
            let is_later = state & LATER != 0 && !recent.may_lack(*ino, slot.written.load(Relaxed));
            let later = if is_later { state & (UNSURE | LATER | CLOSE_TOLD) } else { 0 };
            let mut now = later | state & FSYNC_TOLD | u64::from(flags as u32);
            if unsure.contains(ino) {
                now |= UNSURE;
            }
            if file.is_none() {
                now |= LOST;
            }
            slot.file.store(file.unwrap_or(NO_FILE).0, Relaxed);
            slot.state.store(now, Relaxed);
            slot.written.store(0, Relaxed);
            if is_storable(flags) {
                *self.storable.lock().entry(*ino).or_default() += 1;
            }
        }
        // As long as nobody is told, whatever becomes durable.
        let found = monotonic_ns();
        unsure.iter().for_each(|ino| self.changes().lost(*ino, found));
        self.found.store(found + 1, Relaxed);
        self.noted.store(self.changes().count(), Relaxed);
        let mut inodes: Vec<Ino> = all.into_iter().map(|(_, ino, _)| ino).collect();
        inodes.sort_unstable();
        inodes.dedup();
        let changed = unsure.iter().copied().collect();
        let mut lately = recent.lately;
        lately.extend(unsure.iter().map(|ino| (*ino, found)));
        *self.untold.lock() = unsure;
        self.lately.lock().found = lately;
        Restored { inodes, lost, changed }
    }
}

/// What was open when a server ended.
pub struct Restored {
    /// The inodes of open files.
    pub inodes: Vec<Ino>,
    /// How many open files are lost.
    pub lost: usize,
    /// Inodes whose last changes may be lost.
    pub changed: Vec<Ino>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: u32 = 77;

    fn again(handles: Handles) -> Handles {
        Handles::new(handles.kept, true)
    }

    #[test]
    fn what_was_open_is_found_again_and_what_is_lost_is_told() {
        let handles = Handles::new(Kept::new().unwrap(), true);
        handles.set_agreed(5);
        let add = |file, ino| handles.add(FileRef(file), Ino(ino), libc::O_RDWR).unwrap();
        let (plain, written, synced, locked, gone, other) =
            (add(10, 1), add(11, 2), add(12, 3), add(13, 4), add(14, 5), add(15, 4));
        let closed = add(16, 9);
        assert!(handles.is_open(closed));
        assert_eq!(handles.remove(closed).unwrap(), Some(FileRef(16)));
        assert!(!handles.is_open(closed) && handles.is_open(plain));
        assert_eq!(handles.remove(closed).err(), Some(Errno(libc::EBADF)));
        handles.note_written(written);
        handles.note_written(synced);
        assert_eq!(handles.settled(synced, THREAD, false, || Ok(())), Ok(()));
        handles.place(locked as u32).unwrap().state.fetch_or(LOCKED, Relaxed);

        let handles = again(handles);
        assert_eq!(handles.agreed(), Some(5));
        let open = |ino: Ino, flags| {
            assert_eq!(flags, libc::O_RDWR);
            (ino != Ino(5)).then_some(FileRef(100 + ino.0))
        };
        let Restored { inodes, lost, changed } = handles.restore(open);
        assert_eq!((inodes, lost, changed), ([1, 2, 3, 4, 5].map(Ino).to_vec(), 3, vec![Ino(2)]));
        assert_eq!(handles.file(plain), Ok(FileRef(101)));
        for handle in [locked, other, gone] {
            assert_eq!(handles.file(handle), Err(Errno(libc::EIO)));
            assert_eq!(handles.remove(handle), Ok(None));
        }
        assert_eq!(handles.settled(synced, THREAD, false, || Ok(())), Ok(()));
        assert_eq!(handles.settled(written, THREAD, false, || Ok(())), Err(Errno(libc::EIO)));
        assert_eq!(handles.settled(written, THREAD, false, || Ok(())), Ok(()), "it is told once");
        // Numbers in use are not given again.
        let new = handles.add(FileRef(7), Ino(8), 0).unwrap();
        assert!(![plain, written, synced].map(|handle| handle as u32).contains(&(new as u32)));
        // What ended before is not the end of what took its place.
        let place = [closed, locked, gone, other].into_iter().find(|old| *old as u32 == new as u32).unwrap();
        assert_eq!(handles.remove(place).err(), Some(Errno(libc::EBADF)));
        assert_eq!(handles.file(new), Ok(FileRef(7)));
        assert_eq!(handles.file(1 << 40), Err(Errno(libc::EBADF)));
    }

    #[test]
    fn what_was_written_is_unsure_until_an_fsync_has_returned_that_began_later() {
        let mut handles = Handles::new(Kept::new().unwrap(), true);
        let file = handles.add(FileRef(1), Ino(2), libc::O_WRONLY).unwrap();
        let other = handles.add(FileRef(1), Ino(2), libc::O_RDONLY).unwrap();
        let is_unsure = |handles: Handles| {
            let handles = again(handles);
            let changed = handles.restore(|_, _| Some(FileRef(3))).changed;
            handles.lately.lock().expire(u64::MAX);
            assert_eq!(handles.tells_close(file), !changed.is_empty());
            assert!(!handles.tells_close(other), "who cannot write is not told by close");
            let told = handles.settled(other, THREAD, false, || Ok(()));
            assert_eq!(told.is_err(), !changed.is_empty());
            assert_eq!(handles.settled(file, THREAD, false, || Ok(())).is_err(), !changed.is_empty());
            (handles, !changed.is_empty())
        };
        type Step<'a> = &'a dyn Fn(&Handles);
        let steps: [(Step<'_>, bool); 6] = [
            (&|_| {}, false),
            (&|handles| handles.note_written(file), true),
            (
                &|handles| {
                    handles.note_written(file);
                    handles.settled(other, THREAD, false, || Ok(())).unwrap();
                },
                false,
            ),
            (
                &|handles| {
                    let written_meanwhile = || {
                        handles.note_written(file);
                        Ok(())
                    };
                    handles.settled(file, THREAD, false, written_meanwhile).unwrap();
                },
                true,
            ),
            (
                &|handles| {
                    handles.note_written(file);
                    handles.settle_all(0, || Ok(()));
                },
                false,
            ),
            (
                &|handles| {
                    handles.note_changed(Ino(2));
                    handles.settle_all(0, || Err(Errno(libc::ENOSPC)));
                },
                true,
            ),
        ];
        for (number, (step, wanted)) in steps.into_iter().enumerate() {
            step(&handles);
            let found;
            (handles, found) = is_unsure(handles);
            assert_eq!(found, wanted, "step {number}");
        }
    }

    #[test]
    fn whoever_opens_what_was_changed_and_lost_is_told_once() {
        let handles = Handles::new(Kept::new().unwrap(), true);
        let closed = handles.add(FileRef(1), Ino(2), libc::O_WRONLY).unwrap();
        handles.note_written(closed);
        handles.remove(closed).unwrap();
        handles.note_changed(Ino(3));
        let handles = again(handles);
        assert_eq!(handles.restore(|_, _| None).changed.len(), 2);
        // Another server ends before anybody asks.
        handles.settle_all(0, || Ok(()));
        let handles = again(handles);
        assert_eq!(handles.restore(|_, _| None).changed.len(), 2);
        let open = |ino, flags| handles.add(FileRef(1), Ino(ino), flags).unwrap();
        let (reader, writer, dir) = (open(2, libc::O_RDONLY), open(2, libc::O_RDWR), open(3, libc::O_RDONLY));
        assert!(!handles.tells_close(reader));
        assert!(
            handles.tells_close(writer) && handles.tells_close(writer),
            "the first may be of a new process"
        );
        let also = open(2, libc::O_RDWR);
        assert!(handles.tells_close(writer));
        handles.remove(writer).unwrap();
        assert!(!handles.tells_close(open(2, libc::O_RDWR)), "it has been told");
        assert_eq!(
            handles.settled(also, THREAD, false, || Ok(())),
            Err(Errno(libc::EIO)),
            "a close of another does not count"
        );
        assert!(!handles.tells_close(also));
        assert_eq!(handles.settled(dir, THREAD, false, || Ok(())), Err(Errno(libc::EIO)));
        assert_eq!(handles.settled(open(3, libc::O_RDONLY), THREAD, false, || Ok(())), Ok(()));
        let handles = again(handles);
        assert!(handles.restore(|_, _| None).changed.is_empty());
    }

    #[test]
    fn each_thread_is_told_once_of_what_was_lost_lately() {
        let handles = Handles::new(Kept::new().unwrap(), true);
        let dir = Ino(3);
        handles.note_changed(dir);
        let handles = again(handles);
        handles.restore(|_, _| None);
        let sync = |handles: &Handles, thread| {
            let opened = handles.add(FileRef(1), dir, libc::O_RDONLY).unwrap();
            let told = handles.settled(opened, thread, false, || Ok(()));
            handles.remove(opened).unwrap();
            told.is_err()
        };
        assert_eq!([1, 2, 2, 1].map(|thread| sync(&handles, thread)), [true, true, false, false]);
        // Nobody else is told for what the next server finds, and those that were not told still are.
        let handles = again(handles);
        assert!(handles.restore(|_, _| None).changed.is_empty());
        assert_eq!([3, 3].map(|thread| sync(&handles, thread)), [true, false]);
        for _ in 0..changes::ENTRIES + 5 {
            handles.note_changed(Ino(9));
            if handles.changes().count().is_multiple_of(1 << 16) {
                handles.settle_all(0, || Ok(()));
            }
        }
        handles.settle_all(0, || Ok(()));
        let handles = again(handles);
        assert!(handles.restore(|_, _| None).changed.is_empty());
        assert!(sync(&handles, 4));
        handles.lately.lock().expire(u64::MAX);
        assert!(!sync(&handles, 5), "not for ever");
    }

    #[test]
    fn an_error_of_fsync_leaves_what_was_written_unsure() {
        let handles = Handles::new(Kept::new().unwrap(), true);
        let file = handles.add(FileRef(1), Ino(2), libc::O_WRONLY).unwrap();
        handles.note_written(file);
        assert_eq!(
            handles.settled(file, THREAD, false, || Err(Errno(libc::ENOSPC))),
            Err(Errno(libc::ENOSPC))
        );
        let handles = again(handles);
        handles.restore(|_, _| Some(FileRef(3)));
        assert!(handles.tells_close(file) && handles.tells_close(file), "closes do not count");
        assert_eq!(handles.settled(file, THREAD, false, || Ok(())), Err(Errno(libc::EIO)));
        assert!(!handles.tells_close(file));
    }

    #[test]
    fn what_a_server_has_told_to_nobody_the_next_one_tells_again() {
        let handles = Handles::new(Kept::new().unwrap(), true);
        let file = handles.add(FileRef(1), Ino(2), libc::O_WRONLY).unwrap();
        handles.note_written(file);
        let handles = again(handles);
        handles.restore(|_, _| Some(FileRef(3)));
        assert_eq!(handles.settled(file, THREAD, false, || Ok(())), Err(Errno(libc::EIO)));
        // It ends before the kernel has the answer.
        let handles = again(handles);
        handles.restore(|_, _| Some(FileRef(4)));
        handles.lately.lock().expire(u64::MAX);
        assert_eq!(handles.settled(file, THREAD, true, || Ok(())), Err(Errno(libc::EIO)));
        assert_eq!(handles.settled(file, THREAD, false, || Ok(())), Ok(()));
        let handles = again(handles);
        handles.restore(|_, _| Some(FileRef(5)));
        handles.lately.lock().expire(u64::MAX);
        assert_eq!(handles.settled(file, THREAD, true, || Ok(())), Ok(()), "it has been told");
    }

    #[test]
    fn what_nobody_has_been_told_of_stays_known_after_any_number_of_changes() {
        let handles = Handles::new(Kept::new().unwrap(), true);
        let (lost, told) = (Ino(2), Ino(3));
        handles.note_changed(lost);
        handles.note_changed(told);
        let handles = again(handles);
        handles.restore(|_, _| None);
        let open = handles.add(FileRef(1), told, libc::O_RDONLY).unwrap();
        assert_eq!(handles.settled(open, THREAD, false, || Ok(())), Err(Errno(libc::EIO)));
        for _ in 0..changes::ENTRIES + 5 {
            handles.note_changed(Ino(9));
            if handles.changes().count().is_multiple_of(1 << 16) {
                handles.settle_all(0, || Ok(()));
            }
        }
        handles.settle_all(0, || Ok(()));
        let handles = again(handles);
        assert_eq!(handles.restore(|_, _| None).changed, [lost]);
    }
}
