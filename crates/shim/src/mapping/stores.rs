//! Finds the pages of its maps that this process has written, by the kernel's tracking (Linux 6.7).
//!
//! A map is registered for write protection with a `userfaultfd` that resolves faults by itself (`WP_ASYNC`): a store to a
//! protected page takes the protection away, and nobody is asked. `PAGEMAP_SCAN` gives the pages without protection and
//! protects them again in one step, so this scan or the next one reports each store. A page counts as unchanged only
//! while its protection stands: the scan reports all pages of a new map, or of a map whose tables the kernel has dropped, as
//! stored to.
//!
//! Where the kernel cannot do this (it is older, a sandbox forbids it, no descriptor is free), a scan fails, and the caller
//! assumes that all pages were stored to.

use crate::descriptors::keep::{keep, let_go};
use crate::owned::Fd;
use crate::sys;
use libc::c_int;
use std::mem::offset_of;
use std::ops::Range;
use weft_client::Errno;
use weft_client::scratch::{AnyBytes, Scratch};

/// Bytes that are looked at in one step: as much as one page of page tables maps, so that a look at a file with holes makes
/// tables near its data only.
pub const WINDOW_BYTES: u64 = 2 << 20;
/// Stretches of pages that a window can have.
const REGIONS_MAX: usize = (WINDOW_BYTES / super::PAGE_BYTES) as usize / 2 + 1;

/// For faults of the program's own and the kernel's stores alike: nobody waits for an answer. Needs no privilege.
const USER_MODE_ONLY: c_int = 1;
const API: u64 = 0xaa;
const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 2;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const PAGEMAP_SCAN: usize = 0xc060_6610;
/// What is found is protected again; a range that is not registered is an error.
const SCAN_FLAGS: u64 = 1 | 2;
const PAGE_IS_WRITTEN: u64 = 1 << 1;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PageRegion {
    start: u64,
    end: u64,
    kind: u64,
}

struct PageRegions([PageRegion; REGIONS_MAX]);
// SAFETY: numbers.
unsafe impl AnyBytes for PageRegions {}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: *mut PageRegion,
    regions_len: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    return_mask: u64,
}
const _: () = assert!(size_of::<Scan>() == 96 && offset_of!(Scan, return_mask) == 88);

/// Whether the kernel reports which pages were written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTracking {
    NotYet,
    By { faults: c_int, tables: c_int },
    Never,
}

/// Finds the pages that one process has written.
pub struct Stores {
    tracking: WriteTracking,
    process: u32,
}

impl Stores {
    /// Of no process yet.
    pub const NONE: Stores = Stores { tracking: WriteTracking::NotYet, process: 0 };

    fn descriptors(&mut self) -> Result<(c_int, c_int), Errno> {
        let process = weft_client::sys::getpid();
        if self.process != process {
            // Those that a child was forked with tell what its parent stores.
            self.forget();
            self.process = process;
        }
        if self.tracking == WriteTracking::NotYet {
            self.tracking = begin().unwrap_or(WriteTracking::Never);
        }
        match self.tracking {
            WriteTracking::By { faults, tables } => Ok((faults, tables)),
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// In a forked child.
    pub fn forget(&mut self) {
        if let WriteTracking::By { faults, tables } = self.tracking {
            let_go(faults);
            let_go(tables);
        }
        *self = Stores::NONE;
    }

    /// From now on the kernel watches this range, all of which is map of a memory file.
    pub fn watch(&mut self, at: usize, len: usize) -> Result<(), Errno> {
        let (faults, _) = self.descriptors()?;
        let mut range = [at as u64, len as u64, REGISTER_MODE_WP, 0];
        sys::ioctl(faults, UFFDIO_REGISTER, range.as_mut_ptr() as usize).map(drop)
    }

    /// Calls `each` with every stretch of pages in a window that has been stored to since the last look. After an error all of
    /// it may have been.
    pub fn look(&mut self, window: &Range<usize>, mut each: impl FnMut(Range<usize>)) -> Result<(), Errno> {
        let (_, tables) = self.descriptors()?;
        let mut found = Scratch::<PageRegions>::any()?;
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: SCAN_FLAGS,
            start: window.start as u64,
            end: window.end as u64,
            walk_end: 0,
            regions: found.0.as_mut_ptr(),
            regions_len: REGIONS_MAX as u64,
            pages_max: 0,
            inverted: 0,
            all_of: PAGE_IS_WRITTEN,
            any_of: 0,
            return_mask: PAGE_IS_WRITTEN,
        };
        let count = sys::ioctl(tables, PAGEMAP_SCAN, &raw mut scan as usize)?;
        if scan.walk_end != window.end as u64 {
            return Err(libc::EAGAIN);
        }
        found.0.iter().take(count).for_each(|region| each(region.start as usize..region.end as usize));
        Ok(())
    }
}

fn begin() -> Result<WriteTracking, Errno> {
    let faults = Fd(sys::userfaultfd(libc::O_CLOEXEC | USER_MODE_ONLY)?);
    let mut api = [API, WP_HUGETLBFS_SHMEM | WP_ASYNC, 0];
    sys::ioctl(*faults, UFFDIO_API, api.as_mut_ptr() as usize)?;
    let tables = Fd(sys::open(c"/proc/self/pagemap", libc::O_RDONLY | libc::O_CLOEXEC, 0)?);
    Ok(WriteTracking::By { faults: keep(faults), tables: keep(tables) })
}
