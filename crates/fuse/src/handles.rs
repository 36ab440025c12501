//! Open files, as the kernel numbers them, in memory that outlives the server.
//!
//! When a server has ended without a word, the next one finds here what was open, opens it again under the same numbers, and knows
//! what cannot be had back: writes that were not made durable, and locks. Whoever lost something is told by `EIO`.
//!
//! ```text
//!  8 words: what the kernel agreed to, or 0; st_dev; unused
//!  4 words for each file: FileRef of this server; inode, or 0 for none; flags of open, state, writes so far;
//!                         how often the place was used, writes that are durable
//! ```
//!
//! A number is a place and how often it was used before: a server may be given again what the last one has done, such as the end of
//! a number, when the place is another file's already.

use crate::channel::Errno;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::sync::atomic::{AtomicU64, Ordering::*};
use weft_client::FileRef;
use weft_core::{Ino, refuse};
use weft_sys::SharedMemory;

/// Files open at the same time by way of a mount.
const FILES_MAX: usize = 1 << 20;
const HEAD_WORDS: usize = 8;
const FILE_WORDS: usize = 4;
/// Bytes of the memory, which are taken as files are opened.
const BYTES: usize = (HEAD_WORDS + FILES_MAX * FILE_WORDS) * size_of::<u64>();

/// Numbers are given from the lowest on: behind so many that never were, there are no others, and memory is not touched.
const UNUSED_MAX: u32 = 4096;

/// States of an open file, above its flags.
const LOCKED: u64 = 1 << 33;
/// What was written may be lost: the next `fsync` says so, and each `close` before it.
const UNSURE: u64 = 1 << 34;
/// It cannot be used any more.
const LOST: u64 = 1 << 35;

/// The writes by way of a file are counted from this bit on, modulo [`WRITES`].
const WRITES_BIT: u32 = 40;
const WRITES: u64 = 1 << (64 - WRITES_BIT);

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
}

/// What is open by way of a mount.
pub struct Handles {
    kept: Kept,
    free: Mutex<Free>,
}

/// Numbers that may be given.
#[derive(Default)]
struct Free {
    /// Numbers given back.
    back: Vec<u32>,
    /// All from here on were never given.
    next: u32,
}

impl Slot<'_> {
    /// So many writes are durable.
    fn set_durable(&self, writes: u64) {
        let set = |uses: u64| {
            let is_newer = writes.wrapping_sub(uses >> 32) % WRITES < WRITES / 2;
            is_newer.then_some(writes << 32 | uses & u64::from(u32::MAX))
        };
        // An older count than what another call has set says nothing new.
        let _ = self.uses.fetch_update(Relaxed, Relaxed, set);
    }

    /// Whether all writes are durable.
    fn is_durable(&self) -> bool {
        self.state.load(Relaxed) >> WRITES_BIT == self.uses.load(Relaxed) >> 32
    }
}

impl Handles {
    /// For a mount without anything open.
    pub fn new(kept: Kept) -> Handles {
        Handles { kept, free: Mutex::default() }
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

    fn place(&self, place: u32) -> Result<Slot<'_>, Errno> {
        let first = HEAD_WORDS + place as usize * FILE_WORDS;
        match self.words().get(first..first + FILE_WORDS) {
            Some([file, ino, state, uses]) => Ok(Slot { file, ino, state, uses }),
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
        slot.state.store(u64::from(flags as u32), Relaxed);
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

    /// The kernel gives a number back; the file that is to be closed.
    pub fn remove(&self, handle: u64) -> Result<Option<FileRef>, Errno> {
        let slot = self.slot(handle)?;
        let file = FileRef(slot.file.load(Relaxed));
        if slot.ino.swap(0, AcqRel) == 0 {
            return Err(Errno(libc::EBADF));
        }
        self.free.lock().back.push(handle as u32);
        Ok((file != NO_FILE).then_some(file))
    }

    fn note(&self, handle: u64, what: u64) {
        if let Ok(slot) = self.slot(handle)
            && slot.state.load(Relaxed) & what == 0
        {
            slot.state.fetch_or(what, Relaxed);
        }
    }

    /// Something is about to be written by way of this file.
    pub fn note_written(&self, handle: u64) {
        if let Ok(slot) = self.slot(handle) {
            slot.state.fetch_add(1 << WRITES_BIT, Relaxed);
        }
    }

    /// A lock is about to be taken by way of this file.
    pub fn note_locked(&self, handle: u64) {
        self.note(handle, LOCKED);
    }

    /// Makes a file durable by `act`, or closes it; an error when something that was written by way of it may be lost.
    pub fn settled(&self, handle: u64, act: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let slot = self.slot(handle)?;
        let before = slot.state.load(Relaxed);
        let done = act();
        // Not before: if the server ends in between, the next one is asked for the same.
        if done.is_ok() {
            slot.set_durable(before >> WRITES_BIT);
        }
        let was_unsure = slot.state.fetch_and(!UNSURE, Relaxed) & UNSURE != 0;
        if was_unsure { Err(Errno(libc::EIO)) } else { done }
    }

    /// Whether something that was written by way of this file may be lost, and no `fsync` has told so. Each `close` of a descriptor
    /// tells it: a process that has only inherited one may be the first.
    pub fn is_unsure(&self, handle: u64) -> bool {
        self.slot(handle).is_ok_and(|slot| slot.state.load(Relaxed) & UNSURE != 0)
    }

    /// After a server has ended: opens again what was open, by `open`. The inodes of these files, and how many files are lost.
    pub fn restore(&self, open: impl Fn(Ino, i32) -> Option<FileRef>) -> (Vec<Ino>, usize) {
        let mut free = self.free.lock();
        let words = &self.words()[HEAD_WORDS..];
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
        let unsure = with(&|number, state| {
            state & UNSURE != 0 || self.place(number).is_ok_and(|slot| !slot.is_durable())
        });
        let mut lost = 0;
        for (number, ino, state) in &all {
            let Ok(slot) = self.place(*number) else { continue };
            let flags = *state as u32 as i32;
            let is_lost = state & LOST != 0 || locked.contains(ino);
            let file = if is_lost { None } else { open(*ino, flags) };
            lost += usize::from(file.is_none());
            let mut now = u64::from(flags as u32);
            if unsure.contains(ino) {
                now |= UNSURE;
            }
            if file.is_none() {
                now |= LOST;
            }
            slot.file.store(file.unwrap_or(NO_FILE).0, Relaxed);
            slot.state.store(now, Relaxed);
            slot.uses.store(slot.uses.load(Relaxed) & u64::from(u32::MAX), Relaxed);
        }
        let mut inodes: Vec<Ino> = all.into_iter().map(|(_, ino, _)| ino).collect();
        inodes.sort_unstable();
        inodes.dedup();
        (inodes, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(handles: Handles) -> Handles {
        Handles::new(handles.kept)
    }

    #[test]
    fn what_was_open_is_found_again_and_what_is_lost_is_told() {
        let handles = Handles::new(Kept::new().unwrap());
        handles.set_agreed(5);
        let add = |file, ino| handles.add(FileRef(file), Ino(ino), libc::O_RDWR).unwrap();
        let (plain, written, synced, locked, gone, other) =
            (add(10, 1), add(11, 2), add(12, 3), add(13, 4), add(14, 5), add(15, 4));
        let closed = add(16, 9);
        assert_eq!(handles.remove(closed).unwrap(), Some(FileRef(16)));
        assert_eq!(handles.remove(closed).err(), Some(Errno(libc::EBADF)));
        handles.note_written(written);
        handles.note_written(synced);
        assert_eq!(handles.settled(synced, || Ok(())), Ok(()));
        handles.note_locked(locked);

        let handles = again(handles);
        assert_eq!(handles.agreed(), Some(5));
        let open = |ino: Ino, flags| {
            assert_eq!(flags, libc::O_RDWR);
            (ino != Ino(5)).then_some(FileRef(100 + ino.0))
        };
        let (inodes, lost) = handles.restore(open);
        assert_eq!((inodes, lost), ([1, 2, 3, 4, 5].map(Ino).to_vec(), 3));
        assert_eq!(handles.file(plain), Ok(FileRef(101)));
        for handle in [locked, other, gone] {
            assert_eq!(handles.file(handle), Err(Errno(libc::EIO)));
            assert_eq!(handles.remove(handle), Ok(None));
        }
        assert_eq!(handles.settled(synced, || Ok(())), Ok(()));
        assert_eq!(handles.settled(written, || Ok(())), Err(Errno(libc::EIO)));
        assert_eq!(handles.settled(written, || Ok(())), Ok(()), "it is told once");
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
        let handles = Handles::new(Kept::new().unwrap());
        let file = handles.add(FileRef(1), Ino(2), libc::O_WRONLY).unwrap();
        let slot = || handles.slot(file).unwrap();
        handles.note_written(file);
        handles
            .settled(file, || {
                assert!(!slot().is_durable(), "the server may end now");
                handles.note_written(file);
                assert_eq!(handles.settled(file, || Ok(())), Ok(()));
                assert!(slot().is_durable());
                Ok(())
            })
            .unwrap();
        assert!(slot().is_durable(), "the earlier one that ends later changes nothing");
        let inner = handles.settled(file, || {
            handles.note_written(file);
            Ok(())
        });
        assert!(inner.is_ok() && !slot().is_durable());
        for _ in 0..WRITES + 3 {
            handles.note_written(file);
        }
        assert!(!slot().is_durable());
        assert!(handles.settled(file, || Ok(())).is_ok() && slot().is_durable());
    }

    #[test]
    fn an_error_of_fsync_leaves_what_was_written_unsure() {
        let handles = Handles::new(Kept::new().unwrap());
        let file = handles.add(FileRef(1), Ino(2), libc::O_WRONLY).unwrap();
        handles.note_written(file);
        assert_eq!(handles.settled(file, || Err(Errno(libc::ENOSPC))), Err(Errno(libc::ENOSPC)));
        let handles = again(handles);
        handles.restore(|_, _| Some(FileRef(3)));
        assert!(handles.is_unsure(file) && handles.is_unsure(file), "closes do not count");
        assert_eq!(handles.settled(file, || Ok(())), Err(Errno(libc::EIO)));
        assert!(!handles.is_unsure(file));
    }
}
