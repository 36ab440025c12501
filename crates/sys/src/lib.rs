//! System calls and memory beyond the standard library, each behind a safe face, for every crate above.
//!
//! - [`map`]: mappings of files and anonymous memory; [`memory`]: memory that processes share; [`huge`]: memory on huge
//!   pages, which [`prefault`] touches ahead; [`aligned`]: buffers for direct I/O; [`prefetch`];
//! - [`mod@file`]: locks, space, direct and memory files, random numbers; [`uring`]: many reads and writes in flight;
//!   [`exchange`]: messages of drivers by io_uring; [`clock`];
//! - [`peer`]: the user at the other end of a socket; [`message`]: descriptors and credentials sent with bytes;
//! - [`robust`]: the mutex by which a process's death shows; [`thread`]: the processor on which a thread runs.
//!
//! A program's own calls to libc are hooked by the preloaded library, which therefore has its own raw calls
//! (`weft_client::sys`) and takes only [`clock`] from here: it neither allocates nor is hooked.

pub mod aligned;
pub mod clock;
mod durable_write;
pub mod exchange;
pub mod file;
pub mod fork;
pub mod huge;
pub mod map;
pub mod memory;
pub mod message;
pub mod paging;
pub mod peer;
pub mod prefault;
pub mod robust;
pub mod syncs;
pub mod thread;
pub mod uring;

pub use aligned::AlignedBuf;
pub use map::{Advice, Map, ReadMap};
pub use memory::SharedMemory;

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use zerocopy::FromZeros;

/// Memory that processes here can have, in bytes: that of the machine, or what their control group may take, where that is less.
pub fn memory_bytes() -> u64 {
    // SAFETY: they only ask; an answer below zero means that there is none.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0));
    // In a group without a limit it says "max"; outside of one, and with groups of version 1, there is no such file.
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX).min(machine)
}

/// So many zeros. The kernel gives memory for them as they are used.
pub fn zeroed<T: FromZeros>(count: usize) -> Box<[T]> {
    <[T]>::new_box_zeroed_with_elems(count)
        .unwrap_or_else(|_| handle_alloc_error(Layout::array::<T>(count).unwrap_or(Layout::new::<T>())))
}

/// The user and the group by whose rights this process acts.
pub fn effective_user() -> (u32, u32) {
    // SAFETY: both calls take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Asks the processor for the line of an address. Any address will do.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// What a call returned that returns 0 or sets `errno`.
fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
