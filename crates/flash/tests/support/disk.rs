//! The host's disk below an image. It knows which pages of the file are on the disk and which only in the page cache, crashes at any
//! call, and fails syncs: what it then could not write, the cache takes for written until it is told to let go of it.
//!
//! Calls of this program on the file are seen, because it has functions of their names, which come before those of the C library.
//! Stores to mapped pages are seen in the content of the file.

use crate::support::Random;
use libc::{c_int, c_void, off64_t, size_t, ssize_t};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::checksum::crc32c;

/// What the disk writes whole, and the cache holds.
const BLOCK: usize = 4096;

/// By the number of the file's inode.
static DISKS: Mutex<BTreeMap<u64, Arc<Mutex<Disk>>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Debug)]
struct Disk {
    path: PathBuf,
    random: Random,
    /// What is on it.
    content: Vec<u8>,
    /// The file at the last sync, which may have failed.
    clean: Vec<u8>,
    /// Blocks written since, also if their content did not change.
    dirty: BTreeSet<usize>,
    /// Syncs that succeed, and that fail after these.
    to_succeed: u64,
    to_fail: u64,
    /// Its file system has no holes.
    without_holes: bool,
    /// Bytes of the file that it cannot read.
    unreadable: std::ops::Range<u64>,
    /// Calls before the moment that is kept.
    calls: Option<u64>,
    kept: Option<Box<Moment>>,
}

/// What there is when a use ends.
#[derive(Clone, Debug)]
struct Moment {
    disk: Disk,
    file: Vec<u8>,
}

/// How the use of an image ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Closed,
    Killed,
    Crashed,
}

/// An image that is watched.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    inode: u64,
}

impl Watched {
    /// The disk has the image as it is.
    pub fn new(path: &Path, seed: u64) -> Watched {
        let watched = Watched { path: path.to_path_buf(), inode: std::fs::metadata(path).unwrap().ino() };
        watched.begin(Random(seed | 1));
        watched
    }

    fn begin(&self, random: Random) {
        let now = std::fs::read(&self.path).unwrap();
        let disk = Disk {
            path: self.path.clone(),
            random,
            content: now.clone(),
            clean: now,
            dirty: BTreeSet::new(),
            to_succeed: 0,
            to_fail: 0,
            without_holes: false,
            unreadable: 0..0,
            calls: None,
            kept: None,
        };
        DISKS.lock().insert(self.inode, Arc::new(Mutex::new(disk)));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Disk) -> T) -> T {
        let disk = DISKS.lock()[&self.inode].clone();
        act(&mut disk.lock())
    }

    /// After so many syncs, so many fail.
    pub fn fail_syncs(&self, after: u64, count: u64) {
        self.with(|disk| (disk.to_succeed, disk.to_fail) = (after, count));
    }

    /// Reads that meet these bytes of the file fail.
    pub fn fail_reads(&self, unreadable: std::ops::Range<u64>) {
        self.with(|disk| disk.unreadable = unreadable);
    }

    /// Room of the file cannot be given back from now on.
    pub fn without_holes(&self) {
        self.with(|disk| disk.without_holes = true);
    }

    /// The use ends after so many calls, if it has not ended before; what is done then is not done.
    pub fn end_after(&self, calls: u64) {
        self.with(|disk| (disk.calls, disk.kept) = (Some(calls), None));
    }

    /// Ends the use of the image. `close` lets go of it.
    pub fn end(&self, how: End, close: impl FnOnce()) {
        if how == End::Closed {
            self.with(|disk| (disk.calls, disk.kept) = (None, None));
            return close();
        }
        let moment = self.with(|disk| disk.kept.take().unwrap_or_else(|| disk.now()));
        DISKS.lock().remove(&self.inode);
        close();
        let Moment { mut disk, mut file } = *moment;
        (disk.to_succeed, disk.to_fail, disk.calls, disk.kept) = (0, 0, None, None);
        if how == End::Crashed {
            let mut image = disk.crashed(&file);
            set_session(&mut image);
            std::fs::write(&self.path, image).unwrap();
            self.begin(disk.random);
            self.with(|now| now.without_holes = disk.without_holes);
        } else {
            // Nobody has the pages mapped any more: the host may let go of what it takes for written.
            let clean = disk.clean_blocks(&file, 0..file.len().div_ceil(BLOCK));
            for block in clean.into_iter().filter(|_| disk.random.below(2) == 0).collect::<Vec<_>>() {
                disk.take_from_disk(block, &mut file);
            }
            std::fs::write(&self.path, file).unwrap();
            DISKS.lock().insert(self.inode, Arc::new(Mutex::new(disk)));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        DISKS.lock().remove(&self.inode);
    }
}

fn bytes_of(block: usize) -> std::ops::Range<usize> {
    block * BLOCK..(block + 1) * BLOCK
}

impl Disk {
    fn now(&self) -> Box<Moment> {
        Box::new(Moment { disk: self.clone(), file: std::fs::read(&self.path).unwrap() })
    }

    /// Blocks that the host has not written since they were changed.
    fn changed(&self, now: &[u8]) -> BTreeSet<usize> {
        let stored = now.chunks(BLOCK).zip(self.clean.chunks(BLOCK)).enumerate();
        let stored = stored.filter(|(_, (new, old))| new != old).map(|(block, _)| block);
        self.dirty.iter().copied().chain(stored).collect()
    }

    /// The disk after a crash of the host: of what was changed, it has any blocks; sometimes nearly all, or nearly nothing.
    fn crashed(&mut self, now: &[u8]) -> Vec<u8> {
        let mut image = self.content.clone();
        let of_eight = 1 + self.random.below(7);
        for block in self.changed(now) {
            if self.random.below(8) < of_eight {
                image[bytes_of(block)].copy_from_slice(&now[bytes_of(block)]);
            }
        }
        image
    }

    /// Whether the sync fails. Of what is to be written then, any blocks are.
    fn sync(&mut self) -> bool {
        let now = std::fs::read(&self.path).unwrap();
        let fails = self.to_succeed == 0 && self.to_fail > 0;
        let used_up = if fails { &mut self.to_fail } else { &mut self.to_succeed };
        *used_up = used_up.saturating_sub(1);
        let of_eight = if fails { self.random.below(8) } else { 8 };
        for block in self.changed(&now) {
            if self.random.below(8) < of_eight {
                self.content[bytes_of(block)].copy_from_slice(&now[bytes_of(block)]);
            }
        }
        self.clean = now;
        self.dirty.clear();
        fails
    }

    /// Blocks that the host takes for written and the disk does not have.
    fn clean_blocks(&self, now: &[u8], blocks: std::ops::Range<usize>) -> Vec<usize> {
        let changed = self.changed(now);
        let lost = |block: &usize| {
            !changed.contains(block) && now[bytes_of(*block)] != self.content[bytes_of(*block)]
        };
        blocks.filter(lost).collect()
    }

    /// The host lets go of a block and reads it again.
    fn take_from_disk(&mut self, block: usize, file: &mut [u8]) {
        let content = &self.content[bytes_of(block)];
        file[bytes_of(block)].copy_from_slice(content);
        self.clean[bytes_of(block)].copy_from_slice(content);
    }

    fn drop_cached(&mut self, offset: usize, bytes: usize) {
        let mut now = std::fs::read(&self.path).unwrap();
        let end = now.len().min(offset.saturating_add(bytes)) / BLOCK;
        let lost = self.clean_blocks(&now, offset.div_ceil(BLOCK)..end);
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        for block in lost {
            self.take_from_disk(block, &mut now);
            let bytes = &now[bytes_of(block)];
            // SAFETY: the call reads so many bytes of `bytes`. It is not one of those below.
            let written = unsafe {
                libc::syscall(libc::SYS_pwrite64, file.as_raw_fd(), bytes.as_ptr(), BLOCK, block * BLOCK)
            };
            assert_eq!(written, BLOCK as i64);
        }
    }

    fn written(&mut self, offset: off64_t, bytes: i64) {
        self.dirty.extend(offset as usize / BLOCK..((offset + bytes) as usize).div_ceil(BLOCK));
        self.called();
    }

    fn called(&mut self) {
        match self.calls {
            Some(0) => {
                self.calls = None;
                self.kept = Some(self.now());
            }
            Some(left) => self.calls = Some(left - 1),
            None => {}
        }
    }
}

/// Makes both copies of the session page those of another boot which did not close the image.
fn set_session(image: &mut [u8]) {
    let mut copies = 0;
    for page in image.chunks_mut(BLOCK).filter(|page| page.starts_with(b"WEFTSESS")) {
        let session = &mut page[..64];
        session[8..12].fill(0);
        session[16..32].fill(0x5a);
        let crc = crc32c(&session[..60]);
        session[60..].copy_from_slice(&crc.to_le_bytes());
        copies += 1;
    }
    assert_eq!(copies, 2);
}

/// The disk below an open file, if it is watched.
fn below<T>(descriptor: c_int, act: impl FnOnce(&mut Disk) -> T) -> Option<T> {
    if DISKS.lock().is_empty() {
        return None;
    }
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills in the structure.
    let known = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
    let disk = DISKS.lock().get(&status.st_ino).filter(|_| known)?.clone();
    Some(act(&mut disk.lock()))
}

/// What a call returns that the disk has failed.
fn fail(error: c_int) -> ssize_t {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// # Safety
/// As the function of this name of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(file: c_int, data: *const c_void, bytes: size_t, at: off64_t) -> ssize_t {
    // SAFETY: what the caller was asked for.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, file, data, bytes, at) };
    if written > 0 {
        below(file, |disk| disk.written(at, written));
    }
    written as ssize_t
}

/// # Safety
/// As the function of this name of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(file: c_int, data: *mut c_void, bytes: size_t, at: off64_t) -> ssize_t {
    let (from, end) = (at as u64, at as u64 + bytes as u64);
    if below(file, |disk| from < disk.unreadable.end && end > disk.unreadable.start) == Some(true) {
        return fail(libc::EIO);
    }
    // SAFETY: what the caller was asked for.
    unsafe { libc::syscall(libc::SYS_pread64, file, data, bytes, at) as ssize_t }
}

/// # Safety
/// As the function of this name of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(file: c_int, mode: c_int, at: off64_t, bytes: off64_t) -> c_int {
    if below(file, |disk| disk.without_holes) == Some(true) {
        return fail(libc::EOPNOTSUPP) as c_int;
    }
    // SAFETY: what the caller was asked for.
    let failed = unsafe { libc::syscall(libc::SYS_fallocate, file, mode, at, bytes) } as c_int;
    if failed == 0 {
        below(file, |disk| disk.written(at, bytes));
    }
    failed
}

/// # Safety
/// As the function of this name of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    let failed = below(file, |disk| {
        // Stores to mapped pages have been no calls.
        disk.called();
        let failed = disk.sync();
        disk.called();
        failed
    });
    match failed {
        Some(true) => fail(libc::EIO) as c_int,
        Some(false) => 0,
        // SAFETY: what the caller was asked for.
        None => unsafe { libc::syscall(libc::SYS_fdatasync, file) as c_int },
    }
}

/// # Safety
/// As the function of this name of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise(file: c_int, at: off64_t, bytes: off64_t, advice: c_int) -> c_int {
    if advice == libc::POSIX_FADV_DONTNEED {
        below(file, |disk| disk.drop_cached(at as usize, bytes as usize));
    }
    0
}
