//! Files: exclusive locks, memory files, random bytes, the identity of this boot.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};

/// A file with its lock.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Takes the lock, without waiting; `None` when another open description holds it.
    pub fn lock(file: File) -> io::Result<Option<LockedFile>> {
        LockedFile::take(file, libc::LOCK_EX)
    }

    /// Takes a lock that others may share, without waiting; `None` when another open description holds it exclusively.
    pub fn share(file: File) -> io::Result<Option<LockedFile>> {
        LockedFile::take(file, libc::LOCK_SH)
    }

    fn take(file: File, kind: libc::c_int) -> io::Result<Option<LockedFile>> {
        // SAFETY: flock takes no memory, and the descriptor is open as long as `file` lives.
        if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
            return Ok(Some(LockedFile(file)));
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
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
        // SAFETY: as in `lock`.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// A file of `bytes` zero bytes that lives in memory and dies with its last descriptor.
pub fn memory_file(bytes: u64) -> io::Result<File> {
    // SAFETY: the name is a C string that outlives the call; the result is checked before it is used.
    let fd = unsafe { libc::memfd_create(c"weft-device".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    Ok(file)
}

/// Sixteen random bytes.
pub fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0u8; 16];
    // SAFETY: the buffer is valid for writes of its length. Requests of up to 256 bytes are never cut short.
    let got = unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
    if got == id.len() as isize { Ok(id) } else { Err(io::Error::last_os_error()) }
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

/// Gives the room of a range back; it reads as zero then. Does nothing where the file system cannot.
pub fn punch_hole(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate takes no memory, and the descriptor is open as long as `file` is borrowed.
    let result =
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    let error = io::Error::last_os_error();
    if result == 0 || error.raw_os_error() == Some(libc::EOPNOTSUPP) { Ok(()) } else { Err(error) }
}

/// Tells the kernel that it need not cache a range. What is not yet written stays, and so does what somebody has mapped.
pub fn drop_cached(file: &File, offset: u64, bytes: u64) {
    // SAFETY: advice on an open descriptor. That it may be ignored costs time, nothing else.
    unsafe {
        libc::posix_fadvise(
            file.as_raw_fd(),
            offset as libc::off_t,
            bytes as libc::off_t,
            libc::POSIX_FADV_DONTNEED,
        )
    };
}
