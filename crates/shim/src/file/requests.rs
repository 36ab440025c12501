//! Requests of the kernel's asynchronous I/O (`io_submit`) on weft files.
//!
//! The program's contexts are the kernel's. For a request on a weft file the kernel gets a *stand-in*: a poll of the file's
//! placeholder, which is always ready, so that the kernel completes it at once, keeps its count, wakes who waits and signals the
//! eventfd. The submitting thread does the request itself. Whoever takes the stand-in's event from the kernel waits until
//! the request is done and puts the program's own request and its result into the event.
//!
//! ```text
//!  io_submit:     claim a stand-in --> the kernel accepts it --> do the request --> done, wake
//!                                  \-> the kernel refuses it --> give it back, nothing was done
//!  io_getevents:  event of a stand-in <-- kernel;  wait for "done"; event of the request;  give it back
//! ```
//!
//! A program that reads the kernel's ring of events by itself would see stand-ins: the ring is marked as one that only the
//! kernel understands, for which such programs ask the kernel.

use crate::sys;
use libc::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use weft_client::Errno;

/// `struct iocb` of the kernel, on little-endian systems.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Block {
    /// Comes back with the event.
    pub data: u64,
    /// Written by the kernel.
    pub key: u32,
    /// `RWF_*`.
    pub rw_flags: c_int,
    /// `IOCB_CMD_*`.
    pub opcode: u16,
    /// Priority, when `flags` say so.
    pub priority: i16,
    /// Descriptor that the request is on.
    pub fd: c_int,
    /// Bytes or pieces.
    pub buffer: u64,
    /// How many of them.
    pub count: u64,
    /// Where in the file.
    pub offset: i64,
    /// Zero.
    pub reserved: u64,
    /// `IOCB_FLAG_*`.
    pub flags: u32,
    /// An eventfd, when `flags` say so.
    pub event_fd: u32,
}
const _: () = assert!(size_of::<Block>() == 64);

/// `struct io_event` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    /// Of the request.
    pub data: u64,
    /// Control block of the request.
    pub block: *mut Block,
    /// What came of it: a count or a negated errno.
    pub result: i64,
    /// Zero for files.
    pub second: i64,
}
const _: () = assert!(size_of::<Event>() == 32);

/// Reads bytes.
pub const PREAD: u16 = 0;
/// Writes bytes.
pub const PWRITE: u16 = 1;
/// Makes durable.
pub const FSYNC: u16 = 2;
/// Makes data durable.
pub const FDSYNC: u16 = 3;
/// Waits until a file is ready.
const POLL: u16 = 5;
/// Reads pieces.
pub const PREADV: u16 = 7;
/// Writes pieces.
pub const PWRITEV: u16 = 8;

/// Nobody's.
const FREE: u32 = 0;
/// The submitting thread's, which is about to do the request.
const UNDER_WAY: u32 = 1;
/// As `UNDER_WAY`, and somebody sleeps until it is done.
const AWAITED: u32 = 2;
/// The request is done; the stand-in is for whoever has its event.
const DONE: u32 = 3;

/// What the kernel gets in place of a request.
#[repr(C)]
pub struct StandIn {
    /// First, so that the address which the kernel tells is the stand-in's.
    block: Block,
    program: AtomicPtr<Block>,
    context: AtomicU64,
    result: AtomicU64,
    state: AtomicU32,
}

/// Requests on weft files that a process can have in flight; the kernel's own limit for all processes is as much.
pub const IN_FLIGHT_MAX: usize = 1 << 16;
const WORD_BITS: usize = 64;

/// The memory of all stand-ins, made when the first is claimed.
static STORE: AtomicPtr<StandIn> = AtomicPtr::new(std::ptr::null_mut());
/// A bit for each stand-in that is in use. Claimed and given back without a lock: a signal handler may come in between.
static USED: [AtomicU64; IN_FLIGHT_MAX / WORD_BITS] =
    [const { AtomicU64::new(0) }; IN_FLIGHT_MAX / WORD_BITS];
/// Word of `USED` in which the last search ended.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// Whether this process ever made a request on a weft file.
#[inline(always)]
pub fn any() -> bool {
    !STORE.load(Acquire).is_null()
}

fn store() -> Result<*mut StandIn, Errno> {
    let store = STORE.load(Acquire);
    if !store.is_null() {
        return Ok(store);
    }
    const LEN: usize = IN_FLIGHT_MAX * size_of::<StandIn>();
    let made = sys::anonymous(LEN)?;
    // Zeros are free stand-ins.
    match STORE.compare_exchange(std::ptr::null_mut(), made.cast(), AcqRel, Acquire) {
        Ok(_) => Ok(made.cast()),
        Err(other) => {
            // SAFETY: nobody has seen this memory.
            let _ = unsafe { sys::munmap(made, LEN) };
            Ok(other)
        }
    }
}

/// A claimed stand-in. It stays claimed until it is given back.
#[derive(Clone, Copy)]
pub struct Claimed(&'static StandIn, usize);

/// Claims a stand-in for a request that is about to be submitted; `EAGAIN` when too many are in flight.
///
/// # Safety
/// `program` points to a request.
pub unsafe fn claim(context: u64, program: *mut Block) -> Result<Claimed, Errno> {
    let store = store()?;
    let start = HINT.load(Relaxed);
    for turn in 0..USED.len() {
        let at = (start + turn) % USED.len();
        let Some(word) = USED.get(at) else { continue };
        let mut bits = word.load(Relaxed);
        while bits != u64::MAX {
            let free = bits.trailing_ones() as usize;
            match word.compare_exchange_weak(bits, bits | 1 << free, AcqRel, Relaxed) {
                Err(now) => bits = now,
                Ok(_) => {
                    HINT.store(at, Relaxed);
                    let number = at * WORD_BITS + free;
                    // SAFETY: within the store; whoever holds the bit is the only one who writes the block. The kernel has
                    // its copy once it was submitted.
                    let stand_in = unsafe {
                        let place = store.add(number);
                        let mut block = *program;
                        block.rw_flags = 0;
                        block.opcode = POLL;
                        block.buffer = libc::POLLIN as u64;
                        block.count = 0;
                        block.offset = 0;
                        (*place).block = block;
                        &*place
                    };
                    stand_in.program.store(program, Relaxed);
                    stand_in.context.store(context, Relaxed);
                    stand_in.state.store(UNDER_WAY, Release);
                    return Ok(Claimed(stand_in, number));
                }
            }
        }
    }
    Err(libc::EAGAIN)
}

impl Claimed {
    /// What the kernel gets.
    pub fn block(self) -> *mut Block {
        (&raw const self.0.block).cast_mut()
    }

    /// Gives it back, without an event.
    pub fn give_back(self) {
        // Once, whoever comes first: behind the bit stands the next one who claims it.
        if self.0.state.swap(FREE, AcqRel) != FREE
            && let Some(word) = USED.get(self.1 / WORD_BITS)
        {
            let bit = 1 << (self.1 % WORD_BITS);
            let used = word.fetch_and(!bit, AcqRel);
            debug_assert!(used & bit != 0, "a stand-in that has a state is in use");
        }
    }

    /// The request is done: its result is for whoever takes the event.
    pub fn done(self, result: i64) {
        self.0.result.store(result as u64, Relaxed);
        if self.0.state.swap(DONE, AcqRel) == AWAITED {
            weft_client::sys::futex_wake(&self.0.state, u32::MAX >> 1);
        }
    }

    /// Waits until the submitting thread is done.
    fn wait(self) {
        /// Wakes up this often all the same.
        const LOOK_NS: u64 = 1_000_000_000;
        loop {
            match self.0.state.load(Acquire) {
                UNDER_WAY => {
                    let _ = self.0.state.compare_exchange(UNDER_WAY, AWAITED, AcqRel, Relaxed);
                }
                AWAITED => weft_client::sys::futex_wait(&self.0.state, AWAITED, LOOK_NS),
                _ => return,
            }
        }
    }
}

/// The stand-in at an address that the kernel tells.
fn at(block: *const Block) -> Option<Claimed> {
    let store = STORE.load(Acquire);
    let number = (block as usize).wrapping_sub(store as usize) / size_of::<StandIn>();
    if store.is_null() || (block as usize) < store as usize || number >= IN_FLIGHT_MAX {
        return None;
    }
    // SAFETY: within the store, which is never unmapped.
    Some(Claimed(unsafe { &*store.add(number) }, number))
}

/// Puts the program's requests into events that the kernel told.
pub fn translate(events: &mut [Event]) {
    for event in events {
        let Some(claimed) = at(event.block) else { continue };
        claimed.wait();
        event.block = claimed.0.program.load(Relaxed);
        event.result = claimed.0.result.load(Relaxed) as i64;
        event.second = 0;
        claimed.give_back();
    }
}

/// The kernel has destroyed a context: nobody will take the events that were left.
pub fn forget(context: u64) {
    if !any() {
        return;
    }
    MARKED.store(0, Relaxed);
    let store = STORE.load(Acquire);
    for (at, word) in USED.iter().enumerate() {
        let mut bits = word.load(Acquire);
        while bits != 0 {
            let number = at * WORD_BITS + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: within the store.
            let claimed = Claimed(unsafe { &*store.add(number) }, number);
            if claimed.0.context.load(Relaxed) == context && claimed.0.state.load(Acquire) != FREE {
                claimed.wait();
                claimed.give_back();
            }
        }
    }
}

/// In a forked child, which has none of its parent's contexts.
pub fn in_child() {
    // What is not stored needs no copy of the page.
    if MARKED.load(Relaxed) != 0 {
        MARKED.store(0, Relaxed);
    }
    if any() {
        USED.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// Head of the ring of events that the kernel maps for each context; the context is its address.
#[repr(C)]
struct Ring {
    id: u32,
    entries: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: AtomicU32,
    compatible: u32,
    incompatible: AtomicU32,
    header_bytes: u32,
}
const RING_MAGIC: u32 = 0xa10a_10a1;

/// The context whose ring was marked last.
static MARKED: AtomicU64 = AtomicU64::new(0);

/// Marks a context's ring, so that programs ask the kernel for its events. `is_context` asks the kernel whether there is one;
/// without one nothing is marked.
pub fn mark(context: u64, is_context: impl FnOnce() -> bool) -> bool {
    if MARKED.load(Relaxed) == context && context != 0 {
        return true;
    }
    if !is_context() {
        return false;
    }
    // SAFETY: a context's number is the address of its ring, which the kernel maps writable; it itself never reads these
    // two words.
    let ring = unsafe { &*(context as *const Ring) };
    if ring.magic.compare_exchange(RING_MAGIC, 0, AcqRel, Relaxed).is_ok() {
        ring.incompatible.store(1, Release);
    }
    MARKED.store(context, Relaxed);
    true
}

/// Whether a context's ring says that it has no events. Only for contexts of the kernel's own form.
///
/// # Safety
/// `context` is one, or null.
pub unsafe fn is_empty(context: u64) -> bool {
    // SAFETY: the caller's promise.
    let Some(ring) = (unsafe { (context as *const Ring).as_ref() }) else { return false };
    ring.magic.load(Relaxed) == RING_MAGIC
        && ring.incompatible.load(Relaxed) == 0
        && ring.head.load(Acquire) == ring.tail.load(Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        // SAFETY: zeros are a valid block.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn an_event_of_a_stand_in_becomes_that_of_the_request() {
        let mut mine = block();
        mine.data = 77;
        mine.opcode = PREAD;
        mine.count = 4096;
        // SAFETY: a block.
        let claimed = unsafe { claim(1, &raw mut mine) }.unwrap();
        // SAFETY: claimed by this thread.
        let shown = unsafe { *claimed.block() };
        assert_eq!((shown.data, shown.opcode, shown.count), (77, POLL, 0));
        let mut events = [Event { data: 77, block: claimed.block(), result: 0, second: 0 }; 1];
        claimed.done(-i64::from(libc::EIO));
        translate(&mut events);
        assert_eq!((events[0].block, events[0].result), (&raw mut mine, -i64::from(libc::EIO)));
        // Those of the kernel's own requests stay.
        let mut events = [Event { data: 1, block: &raw mut mine, result: 9, second: 0 }; 1];
        translate(&mut events);
        assert_eq!(events[0].result, 9);
    }

    #[test]
    fn who_has_the_event_waits_until_the_request_is_done() {
        let mut mine = block();
        // SAFETY: a block.
        let claimed = unsafe { claim(2, &raw mut mine) }.unwrap();
        let address = claimed.block() as usize;
        let taker = std::thread::spawn(move || {
            let mut events = [Event { data: 0, block: address as *mut Block, result: 0, second: 0 }];
            translate(&mut events);
            events[0].result
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!taker.is_finished());
        claimed.done(512);
        assert_eq!(taker.join().unwrap(), 512);
    }

    #[test]
    fn a_context_that_is_destroyed_leaves_none_behind() {
        let mut mine = block();
        // SAFETY: a block.
        let claimed: Vec<_> = (0..100).map(|_| unsafe { claim(3, &raw mut mine) }.unwrap()).collect();
        claimed.iter().for_each(|claimed| claimed.done(0));
        forget(3);
        // Other tests may have claimed some since.
        let is_left =
            |claimed: &Claimed| claimed.0.state.load(Acquire) != FREE && claimed.0.context.load(Relaxed) == 3;
        assert!(!claimed.iter().any(is_left));
    }
}
