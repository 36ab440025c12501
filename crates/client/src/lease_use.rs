//! Tracks the threads that use the memory of leases, so that it can be unmapped while others run.
//!
//! A thread that uses leases has a word of its own that counts how deep it is in them: a plain store when it begins and when it
//! ends. Whoever gives the leases up sets a flag, has the kernel pass a memory barrier to all threads (`membarrier`), and then
//! looks at the words: a thread that had not seen the flag shows in its word. The last one out unmaps.

use crate::busy::Busy;
use crate::client::{Client, Leases};
use crate::sys::{self, Errno};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};

/// Threads that have a word of their own; all others share one.
const THREAD_SLOTS: usize = 1024;

/// A thread that uses leases, in a cache line of its own.
#[repr(align(64))]
struct ThreadSlot {
    /// The thread; 0 for none. A thread that has ended leaves its slot to the next thread that needs one.
    thread: AtomicU32,
    /// How often it is in.
    depth: AtomicU32,
}

static THREADS: [ThreadSlot; THREAD_SLOTS] =
    [const { ThreadSlot { thread: AtomicU32::new(0), depth: AtomicU32::new(0) } }; THREAD_SLOTS];
/// How often threads without a slot hold leases.
static OTHERS: AtomicU32 = AtomicU32::new(0);

/// What a thread has not looked for a slot yet knows.
const UNKNOWN: u32 = u32::MAX;
/// It found none.
const NONE: u32 = u32::MAX - 1;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    static MINE: Cell<u32> = const { Cell::new(UNKNOWN) };
}

/// Leases in use; they stay mapped as long as this lives.
pub(crate) struct Using<'a> {
    client: &'a Client,
    leases: &'a Leases,
    /// `None`: counted among the others.
    slot: Option<&'static ThreadSlot>,
    _busy: Busy,
}

impl Deref for Using<'_> {
    type Target = Leases;

    #[inline]
    fn deref(&self) -> &Leases {
        self.leases
    }
}

impl Drop for Using<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.slot {
            Some(slot) => slot.depth.store(slot.depth.load(Relaxed).wrapping_sub(1), Release),
            None => {
                let others = OTHERS.fetch_sub(1, SeqCst);
                debug_assert_ne!(others, 0, "a use of leases ends that did not begin");
            }
        }
        compiler_fence(SeqCst);
        if self.client.leases_given_up.load(Relaxed) {
            self.client.unmap_unused_leases();
        }
    }
}

/// This thread's slot.
#[inline]
fn slot() -> Option<&'static ThreadSlot> {
    match MINE.get() {
        UNKNOWN => find_slot(),
        mine => THREADS.get(mine as usize),
    }
}

#[cold]
fn find_slot() -> Option<&'static ThreadSlot> {
    let thread = sys::gettid();
    let found = (0..THREAD_SLOTS).map(|step| (thread as usize + step) % THREAD_SLOTS).find(|at| {
        let slot = &THREADS[*at];
        let owner = slot.thread.load(Relaxed);
        let free = owner == 0 || owner == thread || !sys::is_thread(owner);
        free && slot.thread.compare_exchange(owner, thread, AcqRel, Relaxed).is_ok()
    });
    MINE.set(found.map_or(NONE, |at| at as u32));
    let slot = &THREADS[found?];
    // Its last owner may have ended in the middle of something.
    slot.depth.store(0, Relaxed);
    Some(slot)
}

/// In a forked child: the thread has another number, and the others are gone.
pub(crate) fn forget_slot() {
    MINE.set(UNKNOWN);
    OTHERS.store(0, Relaxed);
}

impl Client {
    /// What allows to do things without the server, when the process may.
    #[inline]
    pub(crate) fn leases(&self) -> Option<Using<'_>> {
        let leases = self.leases.as_ref()?;
        let busy = Busy::new();
        let slot = slot();
        match slot {
            // A handler that nobody puts off leaves the word as it was.
            Some(slot) => slot.depth.store(slot.depth.load(Relaxed).wrapping_add(1), Relaxed),
            None => drop(OTHERS.fetch_add(1, SeqCst)),
        }
        let using = Using { client: self, leases, slot, _busy: busy };
        compiler_fence(SeqCst);
        // Given up: the last one out may be this one.
        (!self.leases_given_up.load(Relaxed)).then_some(using)
    }

    /// The process may not have the memory of leases any more: nobody begins to use it, and the last one that does unmaps it.
    pub(crate) fn give_leases_up(&self) {
        self.leases_given_up.store(true, SeqCst);
        self.unmap_unused_leases();
    }

    /// The limit on the process's address space has changed: the memory of leases is given up unless the program keeps as much for
    /// itself. All goes by the server then.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the server could not be told, and the leases stay. With all others the connection has ended.
    pub fn fit_into_address_space(&self) -> Result<(), Errno> {
        let limit = sys::address_space_limit();
        let Some(bytes) = self.leases().filter(|_| limit != u64::MAX).map(|leases| leases.bytes()) else {
            return Ok(());
        };
        let others = match sys::address_space() {
            Some(used) => used.saturating_sub(bytes),
            // It needs a descriptor to be told.
            None => bytes,
        };
        if Leases::fit(bytes, others, limit) {
            return Ok(());
        }
        match crate::connect::tell_unleased(self) {
            // The leases stay: nothing is lost but room.
            Err(error @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => Err(error),
            told => {
                self.give_leases_up();
                if told.is_err() {
                    sys::shut_down(self.socket());
                }
                told
            }
        }
    }

    /// Whether the process may do things without the server.
    pub fn has_leases(&self) -> bool {
        self.leases().is_some()
    }

    /// Whether the memory of leases was given back.
    pub fn leases_are_gone(&self) -> bool {
        self.leases_unmapped.load(Relaxed)
    }

    #[cold]
    fn unmap_unused_leases(&self) {
        let Some(leases) = &self.leases else { return };
        if self.leases_unmapped.load(Relaxed) || !sys::barrier_for_all_threads() {
            return;
        }
        let in_use =
            |slot: &ThreadSlot| slot.depth.load(Acquire) != 0 && sys::is_thread(slot.thread.load(Relaxed));
        if OTHERS.load(SeqCst) != 0 || THREADS.iter().any(in_use) || self.leases_unmapped.swap(true, SeqCst) {
            return;
        }
        // SAFETY: nobody is in the leases, and nobody gets in who sees that they are given up, as all do since the barrier. Only
        // one caller gets here.
        unsafe { leases.unmap() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_ended_leaves_its_slot() {
        let mine = slot().unwrap() as *const ThreadSlot as usize;
        assert_eq!(mine, slot().unwrap() as *const ThreadSlot as usize);
        for _ in 0..2 * THREAD_SLOTS {
            let theirs =
                std::thread::spawn(|| slot().map(|slot| slot as *const ThreadSlot as usize)).join().unwrap();
            assert!(theirs.is_some() && theirs != Some(mine));
        }
    }
}
