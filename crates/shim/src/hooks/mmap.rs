//! Memory maps.

use crate::descriptors::table;
use crate::mapping::{self, Request, copies, pages};
use crate::report::{Refusal, refuse};
use crate::routing::{fail, finish};
use crate::sys;
use libc::{c_int, c_void, off_t, size_t};

fn finish_map(result: Result<*mut c_void, weft_client::Errno>) -> *mut c_void {
    result.unwrap_or_else(|error| {
        sys::set_errno(error);
        libc::MAP_FAILED
    })
}

/// A range is about to get this protection.
#[inline]
fn protecting(at: *mut c_void, len: size_t, prot: c_int) -> Result<(), weft_client::Errno> {
    if pages::any() && prot & libc::PROT_WRITE != 0 { pages::become_writable(at, len) } else { Ok(()) }
}

/// A range is about to be unmapped, or mapped over.
#[inline]
fn unmapping(at: *mut c_void, len: size_t) {
    if pages::any() {
        pages::unmapping(at, len);
    }
    if copies::any_maps() {
        copies::unmapping(at as usize, len);
    }
}

/// `madvise` that takes pages away, for all but those that are a file's in memory of the process's own: in a private map they are the
/// file's again, or cannot be freed.
///
/// # Safety
/// As `madvise(2)`.
unsafe fn forget_around(at: usize, len: size_t, advice: c_int) -> c_int {
    let (mut from, end) = (at, at.saturating_add(len));
    while from < end {
        let page = copies::own_page(from, end);
        let to = page.unwrap_or(end);
        // SAFETY: the caller's promise, for a part of the range.
        if to > from && unsafe { real::madvise(from as *mut c_void, to - from, advice) } < 0 {
            return -1;
        }
        if page.is_some() && advice == libc::MADV_FREE {
            return fail(libc::EINVAL);
        }
        from = to.max(from) + mapping::PAGE_BYTES as usize;
    }
    0
}

hooks! {
    /// An allocator may call this before our constructor has run; looking up libc's function then would allocate.
    fn mmap(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        if flags & libc::MAP_FIXED != 0 {
            unmapping(at, len);
        }
        match table::get(fd) {
            Some(file) if flags & libc::MAP_ANONYMOUS == 0 => {
                let request = Request { at, len, prot, flags, offset: offset as u64 };
                finish_map(mapping::map(file, request))
            }
            _ if real::is_resolved() => real::mmap(at, len, prot, flags, fd, offset),
            _ => finish_map(sys::mmap(at as usize, len, prot, flags, fd, offset as u64).map(<*mut u8>::cast)),
        }
    }

    fn munmap(at: *mut c_void, len: size_t) -> c_int {
        unmapping(at, len);
        if real::is_resolved() {
            return real::munmap(at, len);
        }
        finish(sys::munmap(at.cast(), len))
    }

    fn mremap(at: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        if pages::any()
            && let Some(result) = pages::remap(at.cast(), old, new, flags, to as usize)
        {
            return finish_map(result.map(<*mut u8>::cast));
        }
        if copies::any_maps()
            && let Some(result) = copies::remap(at.cast(), old, new, flags, to as usize)
        {
            return finish_map(result.map(<*mut u8>::cast));
        }
        if real::is_resolved() {
            return real::mremap(at, old, new, flags, to);
        }
        finish_map(sys::mremap(at.cast(), old, new, flags, to as usize).map(<*mut u8>::cast))
    }

    fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
        if pages::any()
            && (at as usize).is_multiple_of(mapping::PAGE_BYTES as usize)
            && flags & !(libc::MS_ASYNC | libc::MS_SYNC | libc::MS_INVALIDATE) == 0
            && flags & (libc::MS_ASYNC | libc::MS_SYNC) != libc::MS_ASYNC | libc::MS_SYNC
            && let Some(result) = pages::sync(at, len, flags)
        {
            return finish(result);
        }
        real::msync(at, len, flags)
    }

    /// Only to take pages out of a file is more than advice. An allocator may call this early, too.
    fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
        if advice == libc::MADV_REMOVE
            && pages::any()
            && let Some(result) = pages::remove(at, len)
        {
            return finish(result);
        }
        if copies::any_maps()
            && matches!(advice, libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED | libc::MADV_FREE)
            && copies::own_page(at as usize, (at as usize).saturating_add(len)).is_some()
            && (at as usize).is_multiple_of(mapping::PAGE_BYTES as usize)
        {
            return forget_around(at as usize, len, advice);
        }
        if real::is_resolved() {
            return real::madvise(at, len, advice);
        }
        finish(sys::madvise(at as usize, len, advice))
    }

    fn mprotect(at: *mut c_void, len: size_t, prot: c_int) -> c_int {
        finish(protecting(at, len, prot).map(|()| real::mprotect(at, len, prot)))
    }

    fn pkey_mprotect(at: *mut c_void, len: size_t, prot: c_int, key: c_int) -> c_int {
        finish(protecting(at, len, prot).map(|()| real::pkey_mprotect(at, len, prot, key)))
    }

    fn remap_file_pages(at: *mut c_void, len: size_t, prot: c_int, offset: size_t, flags: c_int) -> c_int {
        if pages::any() {
            return fail(refuse(Refusal::MapOrder));
        }
        real::remap_file_pages(at, len, prot, offset, flags)
    }
}
