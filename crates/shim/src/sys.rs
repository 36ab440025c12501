//! The system calls that the hooks make for themselves, past libc and so past the hooks.

use crate::text::{Text, path_of_descriptor};
use libc::{c_char, c_int};
use std::ffi::CStr;
use syscalls::{Sysno, raw_syscall};
use weft_client::Errno;
pub use weft_client::sys::{map_anonymous as anonymous, memfd_create, pread, readlink, yield_now};

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

/// The soft limit on the size of files, in bytes; `u64::MAX`: none.
pub fn file_limit() -> Result<u64, Errno> {
    let mut limit = [0u64; 2];
    let none: *const u64 = std::ptr::null();
    call!(prlimit64, 0, libc::RLIMIT_FSIZE as usize, none, limit.as_mut_ptr())?;
    Ok(limit[0])
}

/// The soft and the hard limit on the number of descriptors.
pub fn descriptor_limit() -> Result<[u64; 2], Errno> {
    let mut limit = [0u64; 2];
    let none: *const u64 = std::ptr::null();
    call!(prlimit64, 0, libc::RLIMIT_NOFILE as usize, none, limit.as_mut_ptr())?;
    Ok(limit)
}

/// Sets them.
pub fn set_descriptor_limit(limit: [u64; 2]) -> Result<(), Errno> {
    let none: *mut u64 = std::ptr::null_mut();
    call!(prlimit64, 0, libc::RLIMIT_NOFILE as usize, limit.as_ptr(), none).map(drop)
}

/// Sends the calling thread a signal.
pub fn signal_self(signal: c_int) {
    let (process, thread) = (weft_client::sys::getpid(), weft_client::sys::gettid());
    let _ = call!(tgkill, process as usize, thread as usize, signal);
}

/// Writes to a descriptor.
pub fn write(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    call!(write, fd, bytes.as_ptr(), bytes.len())
}

/// Writes all of `bytes` at an offset.
pub fn pwrite_all(fd: c_int, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match call!(pwrite64, fd, bytes.as_ptr(), bytes.len(), offset) {
            Ok(0) => return Err(libc::EIO),
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or(&[]);
                offset += n as u64;
            }
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads from a descriptor.
pub fn read(fd: c_int, out: &mut [u8]) -> Result<usize, Errno> {
    call!(read, fd, out.as_mut_ptr(), out.len())
}

/// Moves a descriptor's offset; the new one.
pub fn lseek(fd: c_int, offset: i64, whence: c_int) -> Result<u64, Errno> {
    call!(lseek, fd, offset, whence).map(|at| at as u64)
}

/// Opens a path.
pub fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    call!(openat, libc::AT_FDCWD, path.as_ptr(), flags, mode).map(|fd| fd as c_int)
}

/// Opens a path of the program's.
pub fn open_at(dirfd: c_int, path: *const c_char, flags: c_int) -> Result<c_int, Errno> {
    call!(openat, dirfd, path, flags, 0).map(|fd| fd as c_int)
}

/// Whether a program that is open runs as somebody else than its caller when it starts.
pub fn gains_rights(fd: c_int) -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    if call!(fstat, fd, stat.as_mut_ptr()).is_err() {
        return false;
    }
    // SAFETY: the kernel has filled it in; system calls without arguments.
    let (stat, user, group) = unsafe { (stat.assume_init(), libc::getuid(), libc::getgid()) };
    let set_group = stat.st_mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    stat.st_mode & libc::S_ISUID != 0 && stat.st_uid != user || set_group && stat.st_gid != group
}

/// Opens what a descriptor leads to once more: an open file of its own, whatever became of the name.
pub fn open_again(fd: c_int, flags: c_int) -> Result<c_int, Errno> {
    if fd < 0 { Err(libc::EBADF) } else { open(path_of_descriptor(fd).c_str(), flags, 0) }
}

/// Whether a path leads anywhere; `flags` as in `faccessat`.
pub fn exists(dirfd: c_int, path: *const c_char, flags: c_int) -> Result<(), Errno> {
    call!(faccessat2, dirfd, path, libc::F_OK, flags).map(drop)
}

/// Whether a Unix socket's permissions allow the caller to connect.
pub fn may_connect(socket: &[u8]) -> bool {
    let path = Text::<109>::of(&[socket]);
    call!(faccessat2, libc::AT_FDCWD, path.c_str().as_ptr(), libc::W_OK, libc::AT_EACCESS).is_ok()
}

/// Removes a name.
pub fn unlink(path: &CStr) -> Result<(), Errno> {
    call!(unlinkat, libc::AT_FDCWD, path.as_ptr(), 0).map(drop)
}

/// Makes a directory.
pub fn mkdir(path: &CStr, mode: u32) -> Result<(), Errno> {
    call!(mkdirat, libc::AT_FDCWD, path.as_ptr(), mode).map(drop)
}

/// Makes a named pipe.
pub fn mkfifo(path: &CStr, mode: u32) -> Result<(), Errno> {
    call!(mknodat, libc::AT_FDCWD, path.as_ptr(), libc::S_IFIFO | mode, 0).map(drop)
}

/// Makes a symlink.
pub fn symlink(target: &CStr, path: &CStr) -> Result<(), Errno> {
    call!(symlinkat, target.as_ptr(), libc::AT_FDCWD, path.as_ptr()).map(drop)
}

/// Changes the mode of what a path leads to.
pub fn chmod(path: &CStr, mode: u32) -> Result<(), Errno> {
    call!(fchmodat, libc::AT_FDCWD, path.as_ptr(), mode).map(drop)
}

/// Removes an empty directory.
pub fn rmdir(path: &CStr) -> Result<(), Errno> {
    call!(unlinkat, libc::AT_FDCWD, path.as_ptr(), libc::AT_REMOVEDIR).map(drop)
}

/// `fcntl` with an integer argument.
pub fn fcntl(fd: c_int, command: c_int, arg: usize) -> Result<usize, Errno> {
    call!(fcntl, fd, command, arg)
}

/// `ioctl` with an argument that is a number, or the address of what the request reads and writes.
pub fn ioctl(fd: c_int, request: usize, arg: usize) -> Result<usize, Errno> {
    call!(ioctl, fd, request, arg)
}

/// Creates a descriptor that tells faults of this process's memory.
pub fn userfaultfd(flags: c_int) -> Result<c_int, Errno> {
    call!(userfaultfd, flags).map(|fd| fd as c_int)
}

/// `flock`.
pub fn flock(fd: c_int, operation: c_int) -> Result<(), Errno> {
    call!(flock, fd, operation).map(drop)
}

/// Duplicates onto a number.
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> Result<c_int, Errno> {
    call!(dup3, old, new, flags).map(|fd| fd as c_int)
}

/// Closes a range of descriptors.
pub fn close_range(first: u32, last: u32, flags: c_int) -> Result<(), Errno> {
    call!(close_range, first, last, flags).map(drop)
}

/// Fills in what of the descriptors is ready now; of one that is not open, `POLLNVAL`.
pub fn poll_now(descriptors: &mut [libc::pollfd]) -> Result<usize, Errno> {
    call!(poll, descriptors.as_mut_ptr(), descriptors.len(), 0)
}

/// Entries of an open directory, as the kernel writes them.
pub fn getdents64(fd: c_int, out: &mut [u8]) -> Result<usize, Errno> {
    call!(getdents64, fd, out.as_mut_ptr(), out.len())
}

/// The kernel's idea of the working directory, without the NUL.
pub fn getcwd(out: &mut [u8]) -> Result<&[u8], Errno> {
    let n = call!(getcwd, out.as_mut_ptr(), out.len())?;
    out.get(..n.saturating_sub(1)).ok_or(libc::EIO)
}

/// The process at the other end of a Unix socket, as it was when the connection was made; 0 when nobody is.
pub fn peer_process(socket: c_int) -> Result<libc::pid_t, Errno> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    call!(getsockopt, socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &raw mut peer, &raw mut len)?;
    Ok(peer.pid)
}

/// Changes the kernel's working directory.
pub fn chdir(path: &CStr) -> Result<(), Errno> {
    call!(chdir, path.as_ptr()).map(drop)
}

/// Sets the mask of permission bits; returns the old one.
pub fn umask(mask: u32) -> u32 {
    call!(umask, mask).unwrap_or(0o022) as u32
}

/// Size and inode number of an open file of the kernel's.
pub fn fstat(fd: c_int) -> Result<libc::stat, Errno> {
    // SAFETY: an all-zero stat is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    call!(fstat, fd, &raw mut stat)?;
    Ok(stat)
}

/// Sets the size of a kernel's file.
pub fn ftruncate(fd: c_int, size: u64) -> Result<(), Errno> {
    call!(ftruncate, fd, size).map(drop)
}

/// Creates a file of secret memory, which nobody can read or write but by a map.
pub fn memfd_secret(flags: c_int) -> Result<c_int, Errno> {
    call!(memfd_secret, flags).map(|fd| fd as c_int)
}

/// Sets the times of access and change of an open file.
pub fn set_times(fd: c_int, times: &[libc::timespec; 2]) -> Result<(), Errno> {
    call!(utimensat, fd, 0usize, times.as_ptr(), 0usize).map(drop)
}

/// Maps memory: `mmap` as it is.
pub fn mmap(
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: u64,
) -> Result<*mut u8, Errno> {
    call!(mmap, at, len, prot, flags, fd, offset).map(|at| at as *mut u8)
}

/// Unmaps a range.
///
/// # Safety
/// Nothing of this library may refer to the range any more.
pub unsafe fn munmap(at: *mut u8, len: usize) -> Result<(), Errno> {
    call!(munmap, at, len).map(drop)
}

/// Whether something is mapped everywhere in a range.
pub fn is_mapped(at: usize, len: usize) -> bool {
    // Does nothing else (since Linux 2.6.19).
    call!(msync, at, len, libc::MS_ASYNC).is_ok()
}

/// Says how memory will be used.
///
/// # Safety
/// As `madvise(2)`.
pub unsafe fn madvise(at: usize, len: usize, advice: c_int) -> Result<(), Errno> {
    call!(madvise, at, len, advice).map(drop)
}

/// Changes a mapping's length, perhaps its place.
///
/// # Safety
/// As `mremap(2)`: the old range is gone when it moved.
pub unsafe fn mremap(at: *mut u8, old: usize, new: usize, flags: c_int, to: usize) -> Result<*mut u8, Errno> {
    call!(mremap, at, old, new, flags, to).map(|at| at as *mut u8)
}

/// Changes the protection of a range.
///
/// # Safety
/// As `mprotect(2)`.
pub unsafe fn mprotect(at: *mut u8, len: usize, prot: c_int) -> Result<(), Errno> {
    call!(mprotect, at, len, prot).map(drop)
}

/// Random bytes.
pub fn random(out: &mut [u8]) {
    let _ = call!(getrandom, out.as_mut_ptr(), out.len(), 0);
}

/// Effective user id.
pub fn geteuid() -> u32 {
    call!(geteuid).unwrap_or(0) as u32
}

/// The user as whom this thread opens and makes files: mostly, but not always, the effective one.
pub fn fsuid() -> u32 {
    // A user that cannot be is refused, and the one that there is returned.
    call!(setfsuid, u32::MAX).unwrap_or(0) as u32
}

/// A system call by number, as the kernel returns it.
///
/// # Safety
/// As the call itself.
pub unsafe fn raw(number: libc::c_long, arguments: [libc::c_long; 6]) -> libc::c_long {
    let [a0, a1, a2, a3, a4, a5] = arguments.map(|argument| argument as usize);
    // SAFETY: the caller's promise.
    unsafe { syscalls::raw::syscall6(Sysno::from(number as i32), a0, a1, a2, a3, a4, a5) as libc::c_long }
}

/// `prctl`.
pub fn prctl(option: c_int, arguments: [usize; 4]) -> Result<(), Errno> {
    let [a, b, c, d] = arguments;
    call!(prctl, option, a, b, c, d).map(drop)
}

/// Whether a descriptor is ready for `events` (or has an error to tell), now or, with `wait`, at some time.
pub fn is_ready(fd: c_int, events: i16, wait: bool) -> Result<bool, Errno> {
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = if wait { std::ptr::null() } else { &raw const now };
    call!(ppoll, &raw mut polled, 1usize, timeout, 0usize, 0usize).map(|ready| ready > 0)
}

/// Queues a signal for this process itself, with a code and a value.
pub fn queue_signal(signal: c_int, code: c_int, value: libc::sigval) {
    /// The head of the kernel's `siginfo_t` for queued signals; the rest is zero.
    #[repr(C)]
    struct Info {
        signal: c_int,
        errno: c_int,
        code: c_int,
        pad: c_int,
        pid: c_int,
        uid: u32,
        value: libc::sigval,
        rest: [u64; 12],
    }
    const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());
    let pid = weft_client::sys::getpid() as c_int;
    let uid = call!(getuid).unwrap_or(0) as u32;
    let info = Info { signal, errno: 0, code, pad: 0, pid, uid, value, rest: [0; 12] };
    let _ = call!(rt_sigqueueinfo, pid, signal, &raw const info);
}

/// Ends the process by SIGABRT.
pub fn abort() -> ! {
    let pid = call!(getpid).unwrap_or(0);
    let tid = call!(gettid).unwrap_or(0);
    let _ = call!(tgkill, pid, tid, libc::SIGABRT);
    loop {
        let _ = call!(exit_group, 134);
    }
}

/// The caller's errno.
pub fn errno() -> c_int {
    // SAFETY: libc gives each thread a valid pointer.
    unsafe { *libc::__errno_location() }
}

/// Sets the caller's errno.
pub fn set_errno(error: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// The bytes of a C string.
///
/// # Safety
/// `text` points to a NUL-terminated string that lives and stays as it is during `'a`.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
