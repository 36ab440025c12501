//! Shared memory as the server sees it: memory files, their mappings, and the mutex whose owner's death the kernel marks.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// A memory file mapped for its whole length.
pub struct SharedMemory {
    file: OwnedFd,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value until it is dropped; what is in it is accessed as atomics, or under the
// locks that its users state.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// A new, zeroed memory file of `len` bytes. Memory is used as pages are touched.
    pub fn create(name: &str, len: usize) -> io::Result<SharedMemory> {
        let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `name` is NUL-terminated.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        File::from(file.try_clone()?).set_len(len as u64)?;
        let at = map(file.as_raw_fd(), len)?;
        Ok(SharedMemory { file, at, len })
    }

    /// The memory file.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// A descriptor of the same memory that cannot be written through.
    pub fn read_only_fd(&self) -> io::Result<OwnedFd> {
        Ok(File::open(format!("/proc/self/fd/{}", self.fd()))?.into())
    }

    /// Start of the mapping.
    pub fn as_ptr<T>(&self) -> *mut T {
        self.at.as_ptr().cast()
    }

    /// Bytes of the mapping.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory as a `T`.
    ///
    /// # Safety
    /// All-zero bytes must be a valid `T` made of atomics (or of cells whose access the caller orders), and the mapping
    /// must be at least as long as `T`.
    pub unsafe fn view<T>(&self) -> &T {
        debug_assert!(size_of::<T>() <= self.len);
        // SAFETY: page-aligned and mapped for the life of `self`; the rest is the caller's promise.
        unsafe { &*self.as_ptr::<T>() }
    }
}

fn map(fd: RawFd, len: usize) -> io::Result<NonNull<u8>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of a descriptor that is open; nothing existing is touched.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Makes a robust, process-shared mutex at `at` and takes it. The kernel marks its first word when the calling thread
/// dies without unlocking it; the thread must therefore live as long as the server.
///
/// # Safety
/// `at` must be writable shared memory of at least the size of a `pthread_mutex_t`, aligned to 16, that nobody uses.
pub unsafe fn lock_robust(at: *mut libc::pthread_mutex_t) -> io::Result<()> {
    // SAFETY: `attributes` is initialised before use and destroyed after; `at` is as the caller promises.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        os(libc::pthread_mutexattr_init(&raw mut attributes))?;
        os(libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED))?;
        os(libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST))?;
        os(libc::pthread_mutex_init(at, &raw const attributes))?;
        libc::pthread_mutexattr_destroy(&raw mut attributes);
        os(libc::pthread_mutex_lock(at))
    }
}

fn os(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}
