//! The allocator of the command. With a bound on memory, what is allocated lies in a file without a name that is mapped, and what nobody
//! has touched for a while leaves memory for that file: swap space of one process, which needs no rights and no settings of the
//! system. So the metadata of a volume need not fit in memory. Without a bound it is the system's allocator.
//!
//! Which pages leave is told by two hands that go around the mapping, the second half a round behind. The first unmaps pages: who touches
//! one maps it again, without a read. The second has the kernel drop what is still unmapped.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use talc::DefaultBinning;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;
use weft_sys::paging;

/// Least bound: buffers, and what is in use at one time.
pub const BOUND_MIN: u64 = 64 << 20;
/// Address space kept free for the mapping. An address tells from it which allocator it belongs to.
const SPACE: usize = 1 << 40;
/// Bytes by which the file grows.
const GROWTH: usize = 32 << 20;
/// Bytes that a hand takes at once.
const REGION: usize = 4 << 20;
const PAGE: usize = 4096;
/// Pause between two looks at how much is in memory, and for each so many bytes of the bound.
const PAUSE: Duration = Duration::from_millis(20);
const BOUND_OF_PAUSE: u64 = 256 << 20;
const PAUSES_MAX: u64 = 100;
/// How long a full disk is not asked again.
const FULL_PATIENCE: Duration = Duration::from_secs(5);
/// Faults after which it is worth a look.
const FAULTS_MIN: usize = 64;

/// What `statfs` says of some file systems.
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;
const BCACHEFS_MAGIC: libc::__fsword_t = 0xca45_1a4e;
const ZFS_MAGIC: libc::__fsword_t = 0x2fc1_2fc1;

/// The system call that counts cached pages of a file (Linux 6.5).
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`
#[repr(C)]
struct CacheStatRange {
    offset: u64,
    bytes: u64,
}

/// `struct cachestat`, in pages
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Where the mapping begins; 0 without a bound.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static TALC: Mutex<Talc<Spill, DefaultBinning>> = Mutex::new(Talc::new(Spill { end: None }));
static PAGER: Mutex<Pager> = Mutex::new(Pager::new());
/// Bytes that are mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Whether more is in memory than may be, and pages are leaving it.
static OVER: AtomicBool = AtomicBool::new(false);
/// Whether memory is gone through in order now.
static IN_ORDER: AtomicBool = AtomicBool::new(false);
/// Whether the file could not grow.
static FULL: AtomicBool = AtomicBool::new(false);

/// The allocator.
pub struct Heap;

/// The part of [`TALC`] that gets memory for it.
#[derive(Debug)]
struct Spill {
    /// Where its heap ends.
    end: Option<NonNull<u8>>,
}

// SAFETY: an address, used by who has the lock of `TALC`.
unsafe impl Send for Spill {}

/// What goes around the mapping. It allocates nothing: its user may be the allocator.
struct Pager {
    file: RawFd,
    /// Of the process's memory, in pages (`/proc/self/statm`).
    usage: RawFd,
    bound: usize,
    /// Bytes that are mapped.
    mapped: usize,
    /// Region of the first hand.
    hand: usize,
    /// When the file could not grow.
    refused: Option<Instant>,
    /// One byte a page of a region.
    pages: [u8; REGION / PAGE],
}

/// A lock whose holder cannot have left it half changed: nothing in its use panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an address lies in the mapping.
fn is_ours(at: *mut u8) -> bool {
    let begin = BEGIN.load(Relaxed);
    begin != 0 && (at as usize).wrapping_sub(begin) < SPACE
}

// SAFETY: what is allocated by one of the two allocators is freed by it: an address of the mapping is Talc's, another one is the
// system's. Both keep the contract of this trait.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if BEGIN.load(Relaxed) != 0 {
            if OVER.load(Relaxed) {
                // Who takes more memory does not outrun what leaves it.
                drop(lock(&PAGER));
            }
            // SAFETY: the size is not zero, as the caller promises.
            if let Some(at) = unsafe { lock(&TALC).allocate(layout) } {
                return at.as_ptr();
            }
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_ours(at) {
            // SAFETY: Talc has allocated it with this layout.
            unsafe { lock(&TALC).deallocate(at, layout) };
        } else {
            // SAFETY: the system has.
            unsafe { System.dealloc(at, layout) };
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if BEGIN.load(Relaxed) == 0 {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller promises; what was allocated has this size.
        unsafe {
            let at = self.alloc(layout);
            if !at.is_null() {
                at.write_bytes(0, layout.size());
            }
            at
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_ours(at) {
            // SAFETY: the system has allocated it.
            return unsafe { System.realloc(at, layout, size) };
        }
        // SAFETY: Talc has allocated it with this layout, and the size is not zero.
        if unsafe { lock(&TALC).try_realloc_in_place(at, layout, size) } {
            return at;
        }
        // SAFETY: the caller promises that the new size is one that a layout can have with this alignment; both pieces are as large as
        // what is copied, and distinct.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
            moved
        }
    }
}

// SAFETY: it uses the Talc that it is given, and allocates nothing.
unsafe impl Source for Spill {
    fn acquire<B: Binning>(talc: &mut Talc<Spill, B>, layout: Layout) -> Result<(), ()> {
        let wanted = layout.size().checked_add(layout.align()).ok_or(())?;
        // Room for the tags at its ends, too.
        let bytes = wanted.checked_add(PAGE).ok_or(())?.next_multiple_of(GROWTH);
        let begin = lock(&PAGER).grow(bytes).map_err(drop)?;
        let end = begin.wrapping_add(bytes);
        // SAFETY: these bytes were just mapped, behind those of the heap, and nobody else knows of them.
        let end = unsafe {
            match talc.source.end {
                Some(last) => talc.extend(last, end),
                None => talc.claim(begin, bytes).ok_or(())?,
            }
        };
        talc.source.end = Some(end);
        Ok(())
    }
}

impl Pager {
    const fn new() -> Pager {
        Pager { file: -1, usage: -1, bound: 0, mapped: 0, hand: 0, refused: None, pages: [0; REGION / PAGE] }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(BEGIN.load(Relaxed) + offset)
    }

    /// Maps more of the file, which grows; where that begins. When the disk is full, it is not asked again for a while.
    fn grow(&mut self, bytes: usize) -> io::Result<*mut u8> {
        let (offset, begin) = (self.mapped, self.at(self.mapped));
        if bytes > SPACE - offset || self.refused.is_some_and(|since| since.elapsed() < FULL_PATIENCE) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // SAFETY: system calls on an own file, and on addresses that were reserved for this mapping and are not used yet. What
        // is given room here is never found missing by a store.
        unsafe {
            if libc::fallocate(self.file, 0, offset as i64, bytes as i64) != 0 {
                let error = io::Error::last_os_error();
                // What it got of a full disk is of no use, and others may need it.
                libc::ftruncate(self.file, offset as i64);
                self.refused = Some(Instant::now());
                FULL.store(true, Relaxed);
                return Err(error);
            }
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            if libc::mmap(begin.cast(), bytes, access, flags, self.file, offset as i64) == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(begin.cast(), bytes, advice(IN_ORDER.load(Relaxed)));
        }
        self.mapped += bytes;
        MAPPED.store(self.mapped, Relaxed);
        self.refused = None;
        self.make_room();
        Ok(begin)
    }

    /// Bytes of these regions that are in memory.
    fn count(&mut self, regions: Range<usize>) -> usize {
        let range = CacheStatRange {
            offset: (regions.start * REGION) as u64,
            bytes: (regions.len() * REGION) as u64,
        };
        let mut found = CacheStat::default();
        // SAFETY: the kernel reads the one structure and fills the other. Both have its layout.
        let failed = unsafe { libc::syscall(CACHESTAT, self.file, &raw const range, &raw mut found, 0) } != 0;
        if !failed {
            return found.cached as usize * PAGE;
        }
        // Before Linux 6.5: page by page.
        regions
            .map(|region| {
                let begin = self.at(region * REGION);
                // SAFETY: the region is mapped, and the kernel writes a byte for each of its pages.
                let failed = unsafe { libc::mincore(begin.cast(), REGION, self.pages.as_mut_ptr()) } != 0;
                if failed { 0 } else { self.pages.iter().filter(|page| *page & 1 == 1).count() * PAGE }
            })
            .sum()
    }

    /// Bytes of other memory of the process. What it shares is not its own alone, or a file's.
    fn others(&self) -> usize {
        let mut text = [0_u8; 128];
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let read = unsafe { libc::pread(self.usage, text.as_mut_ptr().cast(), text.len(), 0) };
        let text = text.get(..usize::try_from(read).unwrap_or(0)).unwrap_or_default();
        let mut fields = text.split(|byte| *byte == b' ').skip(1).map(|field| {
            field.iter().fold(0_usize, |number, digit| number * 10 + usize::from(digit.wrapping_sub(b'0')))
        });
        let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        resident.saturating_sub(shared) * PAGE
    }

    /// Has pages leave while more than the bound is in memory, or until all have had their chance.
    fn make_room(&mut self) {
        // What the file could not take is in other memory. The mapping must stay usable nonetheless.
        let room = self.bound.saturating_sub(self.others()).max(self.bound / 4);
        let regions = self.mapped / REGION;
        let mut cached = self.count(0..regions);
        if cached <= room {
            return;
        }
        OVER.store(true, Relaxed);
        for step in 0..2 * regions {
            if cached <= room - room / 16 {
                break;
            }
            self.hand = (self.hand + 1) % regions;
            self.unmap(self.hand);
            let behind = (self.hand + regions / 2) % regions;
            let before = self.count(behind..behind + 1);
            // After a round, nothing is spared any more: more is in use than may be in memory.
            self.drop(behind, step >= regions);
            cached = (cached + self.count(behind..behind + 1)).saturating_sub(before);
        }
        OVER.store(false, Relaxed);
    }

    /// The first hand. What is unmapped is as it was, and who touches it maps it again.
    fn unmap(&self, region: usize) {
        let offset = (region * REGION) as i64;
        // SAFETY: the mapping is shared and of a file: what was stored stays in the file. The region is mapped.
        unsafe {
            libc::madvise(self.at(region * REGION).cast(), REGION, libc::MADV_DONTNEED);
            libc::sync_file_range(self.file, offset, REGION as i64, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    /// The second hand. The kernel keeps pages that are not written; and mapped ones, unless `all` are to leave.
    fn drop(&self, region: usize, all: bool) {
        let written = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let (offset, bytes) = ((region * REGION) as i64, REGION as i64);
        // SAFETY: system calls on an own file, which change nothing of its content.
        unsafe {
            libc::sync_file_range(self.file, offset, bytes, written);
            if all {
                libc::madvise(self.at(region * REGION).cast(), REGION, libc::MADV_PAGEOUT);
            }
            libc::posix_fadvise(self.file, offset, bytes, libc::POSIX_FADV_DONTNEED);
        }
    }
}

/// How the kernel is to read pages: with those behind them, or one by one.
fn advice(in_order: bool) -> libc::c_int {
    if in_order { libc::MADV_NORMAL } else { libc::MADV_RANDOM }
}

fn advise(in_order: bool) {
    IN_ORDER.store(in_order, Relaxed);
    let begin = ptr::with_exposed_provenance_mut(BEGIN.load(SeqCst));
    // SAFETY: advice on what is mapped.
    unsafe { libc::madvise(begin, MAPPED.load(SeqCst), advice(in_order)) };
}

/// Times that this process touched a page that was not mapped.
fn faults() -> usize {
    // SAFETY: the structure consists of numbers, and the call fills it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    (usage.ru_majflt + usage.ru_minflt) as usize
}

/// A file without a name.
fn unnamed(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let file = match options.clone().custom_flags(libc::O_TMPFILE).open(dir) {
        // A file system without such files.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let random = u64::from_ne_bytes(weft_sys::file::random()?);
            let path = dir.join(format!(".weft-memory-{random:016x}"));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            file
        }
        opened => opened?,
    };
    // SAFETY: the structure consists of numbers, and the call fills it.
    let kind = unsafe {
        let mut found = std::mem::zeroed::<libc::statfs>();
        libc::fstatfs(file.as_raw_fd(), &raw mut found);
        found.f_type
    };
    // What was given room there may find none when it is overwritten, which would end the process.
    let copies = [libc::BTRFS_SUPER_MAGIC, BCACHEFS_MAGIC, ZFS_MAGIC].contains(&kind);
    match kind {
        libc::TMPFS_MAGIC | RAMFS_MAGIC => Err(io::Error::other("this file system is in memory itself")),
        _ if copies => Err(io::Error::other("this file system copies what is overwritten")),
        _ => Ok(file),
    }
}

/// From now on, at most `bound` bytes of what this process allocates are in memory; the rest is in a file without a name in `dir`. For
/// once. Where the disk is full, memory takes what the file cannot.
///
/// # Errors
/// The file cannot be made, or there is no address space.
pub fn bound(bound: u64, dir: &Path) -> io::Result<()> {
    assert_eq!(BEGIN.load(SeqCst), 0, "memory is bounded once");
    let file = unnamed(dir)?;
    // The first part of it, so that what refuses is found now.
    weft_sys::file::allocate(&file, 0, GROWTH as u64)?;
    let usage = File::open("/proc/self/statm")?;
    // SAFETY: it takes addresses that are free.
    let begin = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), SPACE, libc::PROT_NONE, flags, -1, 0)
    };
    if begin == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    {
        let mut pager = lock(&PAGER);
        pager.bound = usize::try_from(bound).unwrap_or(usize::MAX);
        (pager.file, pager.usage) = (file.into_raw_fd(), usage.into_raw_fd());
    }
    std::thread::Builder::new().name("pager".into()).spawn(move || {
        let mut told = false;
        let mut faults_before = 0;
        // To count takes longer the more there is.
        let pause = PAUSE * (1 + (bound / BOUND_OF_PAUSE).min(PAUSES_MAX) as u32);
        loop {
            std::thread::sleep(pause);
            // Without faults, nothing has come into memory.
            if faults() - faults_before >= FAULTS_MIN {
                faults_before = faults();
                lock(&PAGER).make_room();
            }
            if FULL.load(Relaxed) && !std::mem::replace(&mut told, true) {
                tracing::warn!(
                    "--memory: no room on the disk for what has to leave memory; the bound is exceeded"
                );
            }
        }
    })?;
    BEGIN.store(begin.expose_provenance(), SeqCst);
    paging::on_change(advise);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BOUND_MIN, PAGER, bound, is_ours, lock};
    use std::time::{Duration, Instant};

    /// So many bytes of each piece; odd ones, so that pieces lie across pages.
    const PIECE: usize = 1000;

    fn piece(number: usize, seed: usize) -> Vec<u8> {
        (0..PIECE).map(|at| (number * 31 + at * 7 + seed) as u8).collect()
    }

    #[test]
    fn what_leaves_memory_comes_back_as_it_was() {
        let before = vec![7_u8; PIECE];
        let dirs = [std::env::temp_dir(), "/var/tmp".into()];
        if !dirs.iter().any(|dir| bound(BOUND_MIN, dir).is_ok()) {
            return;
        }
        let count = 2 * BOUND_MIN as usize / PIECE;
        let fill = move |seed| (0..count).map(|number| piece(number, seed)).collect::<Vec<_>>();
        let threads: Vec<_> = (0..2).map(|seed| std::thread::spawn(move || fill(seed))).collect();
        let filled: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(!is_ours(before.as_ptr().cast_mut()) && is_ours(filled[0][0].as_ptr().cast_mut()));
        let zeros = vec![0_u8; BOUND_MIN as usize];
        // What grows and shrinks keeps its content, from either allocator.
        let mut grown = before;
        grown.extend(piece(1, 0));
        grown.reserve_exact(BOUND_MIN as usize);
        grown.shrink_to_fit();

        for (seed, pieces) in filled.iter().enumerate() {
            for (number, found) in pieces.iter().enumerate().rev() {
                assert!(*found == piece(number, seed), "piece {number} of {seed}");
            }
        }
        assert!(zeros.iter().all(|byte| *byte == 0));
        assert_eq!(grown, [vec![7; PIECE], piece(1, 0)].concat());
        // As soon as nobody takes more.
        let begun = Instant::now();
        let cached = || {
            let mut pager = lock(&PAGER);
            let regions = pager.mapped / super::REGION;
            pager.count(0..regions) as u64
        };
        while cached() > BOUND_MIN {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes stay in memory", cached());
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(filled);
        assert!(vec![1_u8; PIECE].iter().all(|byte| *byte == 1));
    }
}
