//! A mutex by which the kernel marks its owner's death.

use std::io;

/// Makes a robust, process-shared mutex at `at` and takes it. The kernel marks its first word when the calling thread
/// dies without unlocking it; the thread must therefore live as long as what its death stands for.
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
