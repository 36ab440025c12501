//! Memory for paths and pieces of data outside the program's stacks.
//!
//! A program may call on a stack of a few KiB (a thread with the least stack that there can be, a coroutine, a signal
//! handler), so nothing large lies in a frame. Neither can it come from the program's allocator, which may be the caller.
//! A [`Scratch`] is one slot of a pool in static memory:
//!
//! ```text
//!  owners  | thread | 0 | thread | 0 | ...    who uses the slot, 0 = nobody: one compare-and-swap takes it, one store frees it
//!  slots   | 64 KiB | 64 KiB | ...            pages that were never touched cost no memory
//! ```
//!
//! There is no lock, so a signal handler takes a slot while its thread is taking one. When all slots are in use, a scratch is
//! mapped for the time being. A thread is known by the address of a thread-local of it, which a forked child shares with
//! the thread that forked: the child takes back the slots of all others ([`forget_other_threads`]). A frame that is left
//! by `longjmp` leaves its slot taken; the pool is then smaller, and never wrong.

use crate::sys::{self, Errno};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Bytes of a slot, the most that a scratch has.
pub const SCRATCH_BYTES: usize = 64 * 1024;
/// Rooms at once before they have to be mapped.
const SLOTS: usize = 32;

/// A type that any bytes are valid values of, and that needs no drop.
///
/// # Safety
/// The implementor is one.
pub unsafe trait AnyBytes {}
// SAFETY: bytes.
unsafe impl<const N: usize> AnyBytes for [u8; N] {}
// SAFETY: numbers.
unsafe impl<const N: usize> AnyBytes for [crate::FileRef; N] {}

#[repr(align(4096))]
struct Slots(UnsafeCell<[[u8; SCRATCH_BYTES]; SLOTS]>);
// SAFETY: a slot is touched only by whoever has taken it.
unsafe impl Sync for Slots {}

static MEMORY: Slots = Slots(UnsafeCell::new([[0; SCRATCH_BYTES]; SLOTS]));
static OWNERS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

thread_local! {
    // Constant and without a destructor: only its address is used.
    static HERE: u8 = const { 0 };
}

/// Tells the calling thread from the others of its process; never 0. A forked child's thread has its parent's.
pub fn thread() -> usize {
    HERE.with(|here| &raw const *here as usize)
}

/// In a forked child: the slots of threads that are in the parent are free. `thread` is what [`thread`] was in the thread
/// that forked.
pub fn forget_other_threads(thread: usize) {
    for owner in &OWNERS {
        // What is not stored needs no copy of the page.
        if ![0, thread].contains(&owner.load(Relaxed)) {
            owner.store(0, Release);
        }
    }
}

/// A `T` outside the stack, given back when it is dropped. What it holds at first is of no meaning unless it was asked for
/// zeroed.
pub struct Scratch<T: AnyBytes> {
    at: NonNull<T>,
    /// `None`: mapped for this scratch alone.
    owner: Option<&'static AtomicUsize>,
    value: PhantomData<T>,
}

impl<T: AnyBytes> Scratch<T> {
    /// A scratch with whatever it held last. `ENOMEM` when none is free and none can be mapped.
    #[inline(never)]
    pub fn any() -> Result<Scratch<T>, Errno> {
        const { assert!(size_of::<T>() <= SCRATCH_BYTES && align_of::<T>() <= 4096) };
        let thread = thread();
        // Threads begin at different slots: their stacks, and so their thread-locals, lie pages apart.
        let first = thread >> 12;
        for turn in 0..SLOTS {
            let number = first.wrapping_add(turn) % SLOTS;
            let Some(owner) = OWNERS.get(number) else { break };
            if owner.load(Relaxed) == 0 && owner.compare_exchange(0, thread, Acquire, Relaxed).is_ok() {
                debug_assert!(number < SLOTS && thread != 0);
                // SAFETY: within the static memory.
                let at = unsafe { MEMORY.0.get().cast::<u8>().add(number * SCRATCH_BYTES) };
                let at = NonNull::new(at.cast()).ok_or(libc::ENOMEM)?;
                return Ok(Scratch { at, owner: Some(owner), value: PhantomData });
            }
        }
        let at = NonNull::new(sys::map_anonymous(SCRATCH_BYTES)?.cast()).ok_or(libc::ENOMEM)?;
        Ok(Scratch { at, owner: None, value: PhantomData })
    }

    /// A scratch of zeros.
    pub fn zeroed() -> Result<Scratch<T>, Errno> {
        let scratch = Self::any()?;
        // SAFETY: the scratch has as many bytes, of which any are valid.
        unsafe { scratch.at.write_bytes(0, 1) };
        Ok(scratch)
    }
}

impl<T: AnyBytes> Deref for Scratch<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a slot of initialised bytes, any of which are a `T`, which this scratch alone refers to.
        unsafe { self.at.as_ref() }
    }
}

impl<T: AnyBytes> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.at.as_mut() }
    }
}

impl<T: AnyBytes> Drop for Scratch<T> {
    fn drop(&mut self) {
        match self.owner {
            Some(owner) => {
                let before = owner.swap(0, Release);
                debug_assert_ne!(before, 0, "a slot of scratch memory is given back twice");
            }
            // SAFETY: mapped by `any` for this scratch.
            None => unsafe { sys::unmap(self.at.as_ptr().cast(), SCRATCH_BYTES) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pool is the process's: its tests are one.
    #[test]
    fn rooms_are_apart_beyond_the_pool_and_come_back() {
        let mut scratches: Vec<Scratch<[u8; SCRATCH_BYTES]>> =
            (0..SLOTS + 3).map(|_| Scratch::any().unwrap()).collect();
        assert_eq!(
            scratches.iter().filter(|scratch| scratch.owner.is_none()).count(),
            3,
            "the rest is mapped"
        );
        for (number, scratch) in scratches.iter_mut().enumerate() {
            scratch.fill(number as u8);
        }
        for (number, scratch) in scratches.iter().enumerate() {
            assert!(scratch.iter().all(|byte| *byte == number as u8), "scratch {number} is nobody else's");
        }
        drop(scratches);
        let scratch = Scratch::<[u8; 100]>::zeroed().unwrap();
        assert!(scratch.owner.is_some() && scratch.iter().all(|byte| *byte == 0));
        // What a thread had that the child does not have is free there.
        let elsewhere = std::thread::spawn(|| std::mem::forget(Scratch::<[u8; 1]>::any().unwrap()));
        elsewhere.join().unwrap();
        let taken = || OWNERS.iter().filter(|owner| owner.load(Relaxed) != 0).count();
        assert_eq!(taken(), 2);
        forget_other_threads(thread());
        assert_eq!(taken(), 1);
        drop(scratch);
        assert_eq!(taken(), 0);
    }
}
