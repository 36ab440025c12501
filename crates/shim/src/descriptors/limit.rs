//! Descriptors of this library's own when the program has taken all that its soft limit allows (`RLIMIT_NOFILE`).
//!
//! Natively there would be no such descriptors, so the limit is higher while they are made, as far as the hard one allows. One
//! thread at a time raises it. A child that another thread forks meanwhile inherits the higher one: whoever forks notes
//! the program's limit before, and the child sets it again. The kernel copies limits before it copies memory, so the child
//! sees in its memory whether the limit may have been higher. No lock is held during the fork itself: handlers of the program
//! run there (`pthread_atfork`).

use crate::sys;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use weft_client::Errno;

/// The thread that has raised the limit, or 0. A signal handler may run on it.
static RAISER: AtomicU32 = AtomicU32::new(0);
/// Counts, before each time that the limit is raised.
static RAISES: AtomicU32 = AtomicU32::new(0);
/// The soft and the hard limit before `RAISER` raised it.
static BEFORE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Makes what needs descriptors of this library's own.
pub fn with_descriptors<T>(mut make: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let result = make();
    if !matches!(result, Err(libc::EMFILE)) {
        return result;
    }
    let thread = weft_client::sys::gettid();
    while let Err(other) = RAISER.compare_exchange(0, thread, AcqRel, Acquire) {
        if other == thread {
            // A signal handler interrupted this thread here: the limit is as high as it gets.
            return result;
        }
        sys::yield_now();
    }
    let result = raised(make);
    RAISER.store(0, Release);
    result
}

/// Makes it with the higher limit.
fn raised<T>(mut make: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let before = sys::descriptor_limit()?;
    for (to, from) in BEFORE.iter().zip(before) {
        to.store(from, Release);
    }
    RAISES.fetch_add(1, AcqRel);
    let high = [before[1]; 2];
    sys::set_descriptor_limit(high)?;
    let result = make();
    // The program may have set another one meanwhile; that stands.
    if sys::descriptor_limit() == Ok(high) {
        let _ = sys::set_descriptor_limit(before);
    }
    result
}

/// The program's limit before a fork.
pub struct SavedLimit {
    limit: Result<[u64; 2], Errno>,
    raises: u32,
}

/// Before a fork.
pub fn note() -> SavedLimit {
    loop {
        let raises = RAISES.load(Acquire);
        let raiser = RAISER.load(Acquire);
        if raiser == 0 {
            let limit = sys::descriptor_limit();
            if RAISER.load(Acquire) == 0 && RAISES.load(Acquire) == raises {
                return SavedLimit { limit, raises };
            }
        } else if raiser == weft_client::sys::gettid() {
            // In a signal handler. The child has to look in any case.
            let limit = [BEFORE[0].load(Acquire), BEFORE[1].load(Acquire)];
            return SavedLimit { limit: Ok(limit), raises: raises.wrapping_sub(1) };
        }
        sys::yield_now();
    }
}

/// In the child.
pub fn restore(noted: &SavedLimit) {
    RAISER.store(0, Release);
    if noted.raises == RAISES.load(Acquire) {
        return;
    }
    if let Ok(limit) = noted.limit
        && sys::descriptor_limit() == Ok([limit[1]; 2])
    {
        let _ = sys::set_descriptor_limit(limit);
    }
}
