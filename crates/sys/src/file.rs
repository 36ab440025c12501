//! Files: locks, space, direct and gathered writes, memory files, random numbers, the identity of this boot.

use crate::checked;
use crate::durable_write::{By, DurableWrites};
use crate::uring::Rings;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Instant;

/// Parts that one `pwritev` takes (`IOV_MAX`).
pub const PARTS_MAX: usize = 1024;

/// The kernel's number for discarding a range of a block device: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Takes an exclusive lock of the file's open description, without waiting; whether nobody else holds one.
pub fn try_lock(file: &File) -> io::Result<bool> {
    lock(file, libc::LOCK_EX)
}

/// Takes a record lock on the whole file for as long as this opening of it lives; false when another has one.
pub fn try_record_lock(file: &File) -> io::Result<bool> {
    let mut lock = libc::flock { l_type: libc::F_WRLCK as _, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the lock outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        },
    }
}

/// Whether another opening of the file has a record lock on it.
pub fn is_record_locked(file: &File) -> bool {
    let mut lock = libc::flock { l_type: libc::F_WRLCK as _, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the lock outlives the call, which writes to it.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Descriptors that this process may have open at once; 0 when the system does not say.
pub fn descriptors_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it fills the struct.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if read == 0 { limit.rlim_cur } else { 0 }
}

fn lock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: flock takes no memory, and the descriptor is open as long as `file` is borrowed.
    match checked(unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes that are free on the file system of a file, those for the superuser included.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    // SAFETY: an all-zero statvfs is valid, and the call only writes to it.
    let (space, result) = unsafe {
        let mut space: libc::statvfs = std::mem::zeroed();
        let result = libc::fstatvfs(file.as_raw_fd(), &raw mut space);
        (space, result)
    };
    checked(result)?;
    Ok(space.f_bfree.saturating_mul(space.f_frsize))
}

/// `f_type` of file systems that write elsewhere what is overwritten: btrfs, bcachefs, ZFS, NILFS, F2FS.
const COPY_ON_WRITE: [i64; 5] = [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0x3434, 0xf2f5_2010];

/// Whether an overwrite of a file replaces its bytes, as far as its file system tells.
pub fn overwrites_in_place(file: &File) -> bool {
    // SAFETY: an all-zero statfs is valid, and the call only writes to it.
    let (found, result) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        let result = libc::fstatfs(file.as_raw_fd(), &raw mut found);
        (found, result)
    };
    checked(result).is_ok() && !COPY_ON_WRITE.contains(&found.f_type)
}

/// The process that has a file locked, where the system tells it.
pub fn lock_holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let inode = format!("{:02x}:{:02x}:{}", libc::major(meta.dev()), libc::minor(meta.dev()), meta.ino());
    // "1: FLOCK ADVISORY WRITE 4242 08:01:131 0 EOF"
    std::fs::read_to_string("/proc/locks").ok()?.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&inode.as_str());
        // Of another namespace's process there is no number.
        fields.get(4).filter(|_| is_it)?.parse().ok().filter(|id| *id != 0)
    })
}

/// A file with its lock.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Takes the lock, without waiting; `None` when another open description holds it.
    pub fn lock(file: File) -> io::Result<Option<LockedFile>> {
        Ok(try_lock(&file)?.then_some(LockedFile(file)))
    }

    /// Takes a lock that others may share, without waiting; `None` when another open description holds it exclusively.
    pub fn share(file: File) -> io::Result<Option<LockedFile>> {
        Ok(lock(&file, libc::LOCK_SH)?.then_some(LockedFile(file)))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing would not do: a child that another thread is just starting has a copy of the descriptor until it
        // gets to its exec, and with it the lock.
        let _ = lock(&self.0, libc::LOCK_UN);
    }
}

/// A file of `bytes` zero bytes that lives in memory and dies with its last descriptor.
pub fn memory_file(name: &str, bytes: u64) -> io::Result<File> {
    let name = CString::new(name)?;
    // SAFETY: the name is a C string that outlives the call; the result is checked before it is used.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    Ok(file)
}

/// Opens a file that is open once more, with rights and a position of its own.
pub fn open_again(file: &impl AsFd, options: &OpenOptions) -> io::Result<File> {
    options.open(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// A second descriptor of a file, for writes past the page cache that are durable when they return.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    rings: Option<Rings>,
    writes: DurableWrites,
}

impl DirectFile {
    /// Opens the same file once more; fails where the file system has no direct writes.
    pub fn of(file: &File) -> io::Result<DirectFile> {
        let file = open_again(file, OpenOptions::new().write(true).custom_flags(libc::O_DIRECT))?;
        Ok(DirectFile { file, rings: Rings::new(), writes: DurableWrites::new() })
    }

    /// The descriptor itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes `bytes`, which begin at a page's address, at `offset`. They are durable when this returns; of
    /// the rest of the file it says nothing. An error leaves open what was written.
    pub fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let by = self.writes.next();
        let begun = Instant::now();
        if let (By::Ring, Some(rings)) = (by, &self.rings)
            && rings.write_durably(&self.file, bytes, offset).is_ok()
        {
            self.writes.done(By::Ring, begun.elapsed().as_nanos() as u64);
            return Ok(());
        }
        self.write_by_call(bytes, offset)?;
        if by == By::Call {
            self.writes.done(By::Call, begun.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    /// The same by a plain call: after a ring has failed with the same bytes, it says for certain what is wrong.
    fn write_by_call(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: one vector, which describes a live slice that the kernel only reads from.
        let wrote = unsafe {
            libc::pwritev2(self.file.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_DSYNC)
        };
        match usize::try_from(wrote) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(n) => Err(io::Error::other(format!("wrote {n} of {} bytes", bytes.len()))),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// Writes parts one after the other, from `offset` on.
pub fn write_parts_at(file: &File, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    for parts in parts.chunks(PARTS_MAX) {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        // SAFETY: IoSlice has the layout of iovec, and the parts live until the call returns.
        let written = unsafe {
            libc::pwritev(file.as_raw_fd(), parts.as_ptr().cast(), parts.len() as i32, offset as i64)
        };
        if written < 0 {
            return Err(io::Error::last_os_error());
        }
        if (written as usize) < wanted {
            // The parts one by one, or an error that says why.
            let mut from = offset;
            for part in parts {
                file.write_all_at(part, from)?;
                from += part.len() as u64;
            }
        }
        offset += wanted as u64;
    }
    Ok(())
}

fn fallocate(file: &File, mode: libc::c_int, offset: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: fallocate takes no memory, and the descriptor is open as long as `file` is borrowed.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, bytes as i64) })
}

/// Takes room for a range, which makes the file at least as long. `Unsupported` where the file system has no call for that.
pub fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    fallocate(file, 0, offset, bytes)
}

/// Gives the room of a range back; it reads as zero then. `Unsupported` where the file system has no call for that.
pub fn punch_hole(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, bytes)
}

/// Tells a block device that the content of a range is not needed.
pub fn discard(device: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let range = [offset, bytes];
    // SAFETY: the call reads two numbers.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) })
}

/// Tells the kernel that it need not cache a range. What is not yet written stays, and so does what somebody has mapped.
pub fn drop_cached(file: &File, offset: u64, bytes: u64) {
    // SAFETY: advice on an open descriptor. That it may be ignored costs time, nothing else.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, bytes as i64, libc::POSIX_FADV_DONTNEED) };
}

/// Tells the kernel that a range is read soon. It begins to read what it does not cache, and does not wait for it.
pub fn will_read(file: &File, offset: u64, bytes: u64) {
    // SAFETY: advice on an open descriptor. That it may be ignored costs time, nothing else.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, bytes as i64, libc::POSIX_FADV_WILLNEED) };
}

/// Whether a read of the byte at `offset` would have to wait for the medium, as far as the file system tells.
pub fn read_would_wait(file: &File, offset: u64) -> bool {
    let mut byte = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: one vector, which describes a byte of this frame.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_NOWAIT) };
    read < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

/// Moves a file's position by `whence` (`SEEK_DATA` and `SEEK_HOLE` are the ones that the standard library lacks); returns it.
pub fn seek(file: &File, offset: u64, whence: libc::c_int) -> io::Result<u64> {
    let offset = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::ENXIO))?;
    // SAFETY: a system call on an open file and numbers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

/// So many random bytes, at most 256.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256, "larger requests may be cut short") };
    let mut bytes = [0; N];
    // SAFETY: the buffer is valid for writes of its length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if got == N as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// The identity of this boot of the host; `None` when the host does not tell.
pub fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u8> = text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    let mut id = [0u8; 16];
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(id)
}
