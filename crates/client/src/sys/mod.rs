//! System calls, made without libc: a preloaded library hooks libc's functions, and its own calls must not come back
//! to it. Errors are positive errno values.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use syscalls::{Sysno, raw_syscall};
pub use weft_sys::clock::{coarse_now_ns, monotonic_ns};

/// A positive errno value.
pub type Errno = i32;

/// What a raw system call returned, as a result.
fn check(ret: usize) -> Result<usize, Errno> {
    // The kernel returns -4095..=-1 for errors.
    if ret > usize::MAX - 4095 { Err((ret as isize).wrapping_neg() as i32) } else { Ok(ret) }
}

macro_rules! call {
    ($name:ident $(, $arg:expr)*) => {
        // SAFETY: each caller below passes what the kernel documents for this call; pointers are valid for the
        // lengths given beside them for the duration of the call.
        check(unsafe { raw_syscall!(Sysno::$name $(, $arg)*) })
    };
}

/// Thread id of the caller.
pub fn gettid() -> u32 {
    call!(gettid).unwrap_or(0) as u32
}

/// Process id of the caller.
pub fn getpid() -> u32 {
    call!(getpid).unwrap_or(0) as u32
}

/// Sets the calling thread's signal mask.
pub fn set_signal_mask(mask: u64) {
    let _ = call!(rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0usize, size_of::<u64>());
}

/// Blocks more signals in the calling thread; returns those that were blocked before.
pub fn block_signals(mask: u64) -> u64 {
    let mut before = 0u64;
    let _ = call!(rt_sigprocmask, libc::SIG_BLOCK, &raw const mask, &raw mut before, size_of::<u64>());
    before
}

/// Blocks fewer signals in the calling thread.
pub fn unblock_signals(mask: u64) {
    let _ = call!(rt_sigprocmask, libc::SIG_UNBLOCK, &raw const mask, 0usize, size_of::<u64>());
}

/// Takes a signal that is pending for the calling thread, which has it blocked; whether there was one.
pub fn take_pending(signal: i32) -> bool {
    let (mask, at_once) = (1u64 << (signal - 1), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    call!(rt_sigtimedwait, &raw const mask, 0usize, &raw const at_once, size_of::<u64>()).is_ok()
}

/// Stops the process, until somebody has it go on.
pub fn stop_process() {
    let _ = call!(kill, getpid(), libc::SIGSTOP);
}

/// Sends the calling thread a signal with what came with it; without that where the kernel has no room for it.
pub fn send_to_self(signal: i32, info: &libc::siginfo_t) {
    let (process, thread) = (getpid(), gettid());
    if call!(rt_tgsigqueueinfo, process, thread, signal, ptr::from_ref(info)).is_err() {
        let _ = call!(tgkill, process, thread, signal);
    }
}

/// Sleeps while `*word == expected`, until woken or `timeout_ns` passed. Spurious returns are possible.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as i64,
        tv_nsec: (timeout_ns % 1_000_000_000) as i64,
    };
    let _ = call!(futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout, 0usize, 0usize);
}

/// Sleeps like [`futex_wait`], and says why it came back: `Ok` woken, `EAGAIN` the word is another, `ETIMEDOUT`, or `EINTR` when
/// a signal was handled meanwhile.
pub fn futex_wait_interruptible(word: &AtomicU32, expected: u32, timeout_ns: u64) -> Result<(), Errno> {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: timeout_ns.min(999_999_999) as i64 };
    call!(futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout, 0usize, 0usize).map(drop)
}

/// Wakes up to `count` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    let _ = call!(futex, word.as_ptr(), libc::FUTEX_WAKE, count, 0usize, 0usize, 0usize);
}

/// Lets another thread have the processor; returns at once when none wants it.
pub fn yield_now() {
    let _ = call!(sched_yield);
}

/// Creates an anonymous memory file with this name.
pub fn memfd_create(name: &CStr, flags: u32) -> Result<i32, Errno> {
    call!(memfd_create, name.as_ptr(), flags).map(|fd| fd as i32)
}

/// Closes a descriptor.
pub fn close(fd: i32) -> Result<(), Errno> {
    call!(close, fd).map(drop)
}

/// Asks the device or the file system of a descriptor for something; the argument goes there and comes back.
pub fn ioctl(fd: i32, number: u32, argument: &mut [u8]) -> Result<(), Errno> {
    // As many bytes as the kernel takes the argument to have.
    debug_assert!(argument.len() >= (number >> 16 & 0x3fff) as usize);
    call!(ioctl, fd, number, argument.as_mut_ptr()).map(drop)
}

/// Duplicates a descriptor to a number not below `min`, close-on-exec when asked.
pub fn dup_above(fd: i32, min: i32, cloexec: bool) -> Result<i32, Errno> {
    let op = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    call!(fcntl, fd, op, min).map(|fd| fd as i32)
}

/// Sets or clears close-on-exec.
pub fn set_cloexec(fd: i32, on: bool) -> Result<(), Errno> {
    call!(fcntl, fd, libc::F_SETFD, if on { libc::FD_CLOEXEC } else { 0 }).map(drop)
}

/// Maps `len` bytes of `fd` from `offset`, shared. They are not in core dumps of the process: the memory is that of many.
pub fn map_shared(fd: i32, offset: u64, len: usize, writable: bool) -> Result<*mut u8, Errno> {
    let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    call!(mmap, 0usize, len, prot, libc::MAP_SHARED, fd, offset).map(|at| {
        let _ = call!(madvise, at, len, libc::MADV_DONTDUMP);
        at as *mut u8
    })
}

/// Maps zeroed private memory.
pub fn map_anonymous(len: usize) -> Result<*mut u8, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    call!(mmap, 0usize, len, libc::PROT_READ | libc::PROT_WRITE, flags, usize::MAX, 0usize)
        .map(|at| at as *mut u8)
}

/// Unmaps what [`map_shared`] or [`map_anonymous`] mapped.
///
/// # Safety
/// Nothing may refer to the range any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    let _ = call!(munmap, at, len);
}

/// Reads at an offset.
pub fn pread(fd: i32, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
    call!(pread64, fd, out.as_mut_ptr(), out.len(), offset)
}

/// Writes at an offset of a file; durable when it returns. An error leaves open what was written.
pub fn write_durably(fd: i32, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // The offset is in one register, and the one for its high half is not looked at.
    let wrote = call!(pwritev2, fd, &raw const part, 1usize, offset, 0usize, libc::RWF_DSYNC)?;
    if wrote == bytes.len() { Ok(()) } else { Err(libc::EIO) }
}

/// Whether the process may not write to files beyond some size, or that is not known.
pub fn has_file_size_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let asked = call!(prlimit64, 0usize, libc::RLIMIT_FSIZE, 0usize, &raw mut limit);
    asked.is_err() || limit.rlim_cur != libc::RLIM_INFINITY
}

/// Descriptors that the process makes have numbers below this (`RLIMIT_NOFILE`); 0 when it is not known.
pub fn descriptor_limit() -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    match call!(prlimit64, 0usize, libc::RLIMIT_NOFILE, 0usize, &raw mut limit) {
        Ok(_) => i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX),
        Err(_) => 0,
    }
}

/// The soft limit on the process's address space, in bytes; `u64::MAX`: none, or it is not known.
pub fn address_space_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    match call!(prlimit64, 0usize, libc::RLIMIT_AS, 0usize, &raw mut limit) {
        Ok(_) => limit.rlim_cur,
        Err(_) => libc::RLIM_INFINITY,
    }
}

/// Bytes of address space that the process has in use; `None` when the system does not say.
pub fn address_space() -> Option<u64> {
    let fd = call!(openat, libc::AT_FDCWD, c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
        .ok()? as i32;
    let mut text = [0; 128];
    let read = pread(fd, &mut text, 0);
    let _ = close(fd);
    let digits = text.get(..read.ok()?)?.iter().take_while(|byte| byte.is_ascii_digit());
    let pages =
        digits.fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    // Linux counts in pages of 4 KiB on all that this library is built for.
    Some(pages.saturating_mul(4096))
}

/// Device and inode of an open file.
///
/// Times are not asked for: from Linux 6.13 on, a write after somebody has seen the times of a file stores finer ones, and a
/// durable write then writes the inode, too.
pub fn file_id(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: an all-zero statx is valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    call!(statx, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_INO, &raw mut stat).ok()?;
    Some((libc::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
}

/// A connected Unix stream socket to the server that listens at `path`.
pub fn connect_unix(path: &[u8]) -> Result<i32, Errno> {
    // SAFETY: an all-zero sockaddr_un is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if path.len() >= address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let fd = call!(socket, libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)? as i32;
    match call!(connect, fd, &raw const address, size_of::<libc::sockaddr_un>()) {
        Ok(_) => Ok(fd),
        Err(error) => {
            let _ = close(fd);
            Err(error)
        }
    }
}

/// Sends all of `data` without raising SIGPIPE.
pub fn send_all(fd: i32, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match call!(sendto, fd, data.as_ptr(), data.len(), libc::MSG_NOSIGNAL, 0usize, 0usize) {
            Ok(0) => return Err(libc::EPIPE),
            Ok(n) => data = &data[n..],
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Two connected Unix stream sockets.
pub fn socket_pair() -> Result<[i32; 2], Errno> {
    let mut pair = [-1; 2];
    call!(socketpair, libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr())?;
    Ok(pair)
}

/// Sends `data` in one message, with a descriptor when one is given, and with `identity` also who the caller is by now: its process, effective
/// user and effective group, which the kernel vouches for.
pub fn send_with_fd(fd: i32, data: &[u8], passed: Option<i32>, identity: bool) -> Result<(), Errno> {
    const FD_SPACE: usize = 24;
    const IDENTITY_SPACE: usize = 32;
    const CONTROL_BYTES: usize = FD_SPACE + IDENTITY_SPACE;
    #[repr(align(8))]
    struct Control([u8; CONTROL_BYTES]);
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let claim =
        libc::ucred { pid: getpid() as i32, uid: call!(geteuid)? as u32, gid: call!(getegid)? as u32 };
    // SAFETY: an all-zero msghdr is valid. The control buffer holds both messages: 24 bytes for a descriptor and 32 for
    // credentials, as the macros count them; everything outlives the call.
    let message = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen =
            if passed.is_some() { FD_SPACE } else { 0 } + if identity { IDENTITY_SPACE } else { 0 };
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        if let Some(passed) = passed {
            let rights = next;
            (*rights).cmsg_level = libc::SOL_SOCKET;
            (*rights).cmsg_type = libc::SCM_RIGHTS;
            (*rights).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            ptr::write_unaligned(libc::CMSG_DATA(rights).cast(), passed);
            next = libc::CMSG_NXTHDR(&raw const message, rights);
        }
        if identity {
            let who = next;
            (*who).cmsg_level = libc::SOL_SOCKET;
            (*who).cmsg_type = libc::SCM_CREDENTIALS;
            (*who).cmsg_len = libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize;
            ptr::write_unaligned(libc::CMSG_DATA(who).cast(), claim);
        }
        message
    };
    loop {
        match call!(sendmsg, fd, &raw const message, libc::MSG_NOSIGNAL) {
            Ok(n) if n == data.len() => return Ok(()),
            Ok(_) => return Err(libc::EPIPE),
            Err(libc::EINTR) => {}
            // In a user namespace that has no number for what the caller is. The kernel then says who it is by itself: the real
            // user and group, to whom asks for that.
            Err(libc::EINVAL) if identity => return send_with_fd(fd, data, passed, false),
            Err(error) => return Err(error),
        }
    }
}

/// Ends a socket for everybody who has it.
pub fn shut_down(fd: i32) {
    let _ = call!(shutdown, fd, libc::SHUT_RDWR);
}

/// Threads of the process; `None` when the system does not say.
pub fn thread_count() -> Option<u64> {
    // SAFETY: an all-zero stat is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let path = c"/proc/self/task";
    call!(newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut stat, 0usize).ok()?;
    // A directory's links are its own two and one for each directory within.
    stat.st_nlink.checked_sub(2)
}

/// Whether this process has such a thread.
pub fn is_thread(thread: u32) -> bool {
    call!(tgkill, getpid(), thread, 0).is_ok()
}

/// Has all threads of the process pass a full memory barrier; false when this system cannot.
pub fn barrier_for_all_threads() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    call!(membarrier, REGISTER_PRIVATE_EXPEDITED, 0usize, 0usize).is_ok()
        && call!(membarrier, PRIVATE_EXPEDITED, 0usize, 0usize).is_ok()
}

/// Receives exactly `out.len()` bytes and up to `fds.len()` descriptors that came with them; returns how many came.
pub fn recv_with_fds(fd: i32, out: &mut [u8], fds: &mut [i32]) -> Result<usize, Errno> {
    const CONTROL_BYTES: usize = 256;
    #[repr(align(8))]
    struct Control([u8; CONTROL_BYTES]);
    let mut got = 0;
    let mut fd_count = 0;
    while got < out.len() {
        let mut control = Control([0; CONTROL_BYTES]);
        let mut part = libc::iovec { iov_base: out[got..].as_mut_ptr().cast(), iov_len: out.len() - got };
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        match call!(recvmsg, fd, &raw mut message, libc::MSG_CMSG_CLOEXEC) {
            Ok(0) => return Err(libc::ECONNRESET),
            Ok(n) => got += n,
            Err(libc::EINTR) => continue,
            Err(error) => return Err(error),
        }
        // SAFETY: the kernel filled the control buffer that `message` describes; the macros stay within it.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while !header.is_null() {
                if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                    let data = libc::CMSG_DATA(header).cast::<i32>();
                    let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<i32>();
                    for i in 0..count {
                        let received = ptr::read_unaligned(data.add(i));
                        if fd_count < fds.len() {
                            fds[fd_count] = received;
                            fd_count += 1;
                        } else {
                            let _ = close(received);
                        }
                    }
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
    }
    Ok(fd_count)
}

/// Target of a symlink; the part of `out` that was filled.
pub fn readlink<'a>(path: &CStr, out: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let n = call!(readlinkat, libc::AT_FDCWD, path.as_ptr(), out.as_mut_ptr(), out.len())?;
    Ok(&out[..n])
}

/// The CPU the caller runs on, or `u32::MAX` when that is not known.
pub fn current_cpu() -> u32 {
    // SAFETY: answered by the vDSO or rseq; no hook target, no arguments.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Whether the other end of a stream socket is gone. Never blocks and takes nothing.
pub fn peer_gone(fd: i32) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    match call!(recvfrom, fd, &raw mut byte, 1usize, flags, 0usize, 0usize) {
        Ok(0) => true,
        Ok(_) | Err(libc::EAGAIN | libc::EINTR) => false,
        Err(_) => true,
    }
}

/// Name of the calling thread, without its terminating NUL.
pub fn thread_name(out: &mut [u8; 16]) -> &[u8] {
    let _ = call!(prctl, libc::PR_GET_NAME, out.as_mut_ptr());
    let len = out.iter().position(|&b| b == 0).unwrap_or(out.len());
    &out[..len]
}

/// The processor's tick counter.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has RDTSC, and Linux leaves it enabled for programs.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

/// Nanoseconds per tick, as 32.32 fixed point; 0 = not measured yet.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);
/// Clock and tick counter when measuring began.
static CALIBRATION: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The scale is kept once it was measured over this long.
const CALIBRATION_NS: u64 = 2_000_000;

/// Begins to measure the tick counter against the clock; called once, at connection. What follows goes on meanwhile: a
/// program that lives for a millisecond must not wait two for its statistics.
pub fn calibrate_ticks() {
    if CALIBRATION[1].load(Relaxed) == 0 {
        CALIBRATION[0].store(monotonic_ns(), Relaxed);
        CALIBRATION[1].store(ticks().max(1), Release);
    }
}

/// The scale as measured so far.
#[cold]
fn measure_scale() -> u64 {
    let ticks0 = CALIBRATION[1].load(Acquire);
    let ns = monotonic_ns().saturating_sub(CALIBRATION[0].load(Relaxed));
    let elapsed = ticks().saturating_sub(ticks0).max(1);
    let scale = ((u128::from(ns) << 32) / u128::from(elapsed)) as u64;
    if ns >= CALIBRATION_NS && ticks0 != 0 {
        NS_PER_TICK.store(scale, Relaxed);
    }
    scale
}

/// Turns a difference of [`ticks`] into nanoseconds.
pub fn ticks_to_ns(ticks: u64) -> u64 {
    let scale = match NS_PER_TICK.load(Relaxed) {
        0 => measure_scale(),
        scale => scale,
    };
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
}
