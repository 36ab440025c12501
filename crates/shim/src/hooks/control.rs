//! `fcntl`, `ioctl` and locks.

use crate::descriptors::{self, blank, table};
use crate::file::batch;
use crate::hooks::change::place_for_data;
use crate::report::{Refusal, refuse};
use crate::routing::{fail, finish, on_file};
use crate::{process, sys};
use libc::{c_int, c_ulong, off_t};
use weft_client::busy::whole;
use weft_client::{Client, Errno, FileRef, LockRange, XFlags, flag_request};

/// `fcntl` commands that the libc crate does not name.
const F_GETOWN: c_int = 9;
const F_SETOWN: c_int = 8;
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const F_SET_RW_HINT: c_int = 1036;
const F_GET_RW_HINT: c_int = 1035;
const F_SET_FILE_RW_HINT: c_int = 1038;
const F_GET_FILE_RW_HINT: c_int = 1037;
const GET_FLAGS: c_ulong = flag_request::GET as c_ulong;
const SET_FLAGS: c_ulong = flag_request::SET as c_ulong;
const GET_XFLAGS: c_ulong = flag_request::GET_X as c_ulong;
const SET_XFLAGS: c_ulong = flag_request::SET_X as c_ulong;
/// Requests of F2FS for atomic writes of a file (`linux/f2fs.h`).
const GET_FEATURES: c_ulong = 0x8004_f50c;
const START_ATOMIC_WRITE: c_ulong = 0xf501;
const COMMIT_ATOMIC_WRITE: c_ulong = 0xf502;
const ABORT_ATOMIC_WRITE: c_ulong = 0xf505;
/// What `GET_FEATURES` tells of them.
const FEATURE_ATOMIC_WRITE: u32 = 0x0004;
/// What the kernel adds to the flags of each file that a 64-bit program opens; the libc crate, as glibc, has it as 0.
const LARGE_FILE: c_int = 0o100_000;
/// Part of `flock` operations of old.
const LOCK_MAND: c_int = 32;
/// Greatest write-lifetime hint (`RWH_WRITE_LIFE_EXTREME`).
const HINT_MAX: u64 = 5;

/// A `struct flock` as a range from the start of the file.
fn range_of(client: &Client, file: FileRef, lock: &libc::flock) -> Result<LockRange, Errno> {
    let base = match i32::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => client.seek(file, 0, libc::SEEK_CUR)? as i64,
        libc::SEEK_END => crate::file::attributes(file)?.size as i64,
        _ => return Err(libc::EINVAL),
    };
    if lock.l_start > i64::MAX - base {
        return Err(libc::EOVERFLOW);
    }
    let mut start = base + lock.l_start;
    if start < 0 {
        return Err(libc::EINVAL);
    }
    let len = lock.l_len.checked_abs().ok_or(libc::EINVAL)?;
    if lock.l_len < 0 {
        // The bytes in front of the start.
        start -= len;
        if start < 0 {
            return Err(libc::EINVAL);
        }
    } else if len - 1 > i64::MAX - start {
        return Err(libc::EOVERFLOW);
    }
    Ok(LockRange { kind: i32::from(lock.l_type), start: start as u64, len: len as u64, pid: 0 })
}

unsafe fn record_lock(
    client: &Client,
    (fd, file): (c_int, FileRef),
    command: c_int,
    lock: *mut libc::flock,
) -> Result<c_int, Errno> {
    // SAFETY: the program promises a `struct flock`, when it is not null.
    let lock = unsafe { lock.as_mut() }.ok_or(libc::EFAULT)?;
    place_for_data(file)?;
    if command == libc::F_GETLK && i32::from(lock.l_type) == libc::F_UNLCK {
        return Err(libc::EINVAL);
    }
    // Locks of open files belong to no process.
    if matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW) && lock.l_pid != 0 {
        return Err(libc::EINVAL);
    }
    let range = range_of(client, file, lock)?;
    let found = client.record_lock(file, command, &range)?;
    // As in Linux: a thread that closes the descriptor meanwhile has perhaps dropped the process's locks before this one was set.
    let is_set = matches!(command, libc::F_SETLK | libc::F_SETLKW) && range.kind != libc::F_UNLCK;
    if is_set && table::get(fd) != Some(file) {
        let nothing = LockRange { kind: libc::F_UNLCK, ..range };
        let _ = client.record_lock(file, libc::F_SETLK, &nothing);
        return Err(libc::EBADF);
    }
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        lock.l_type = found.kind as _;
        if found.kind != libc::F_UNLCK {
            lock.l_whence = libc::SEEK_SET as _;
            lock.l_start = found.start as off_t;
            lock.l_len = found.len as off_t;
            lock.l_pid = if command == libc::F_OFD_GETLK || found.pid == 0 { -1 } else { found.pid as _ };
        }
    }
    Ok(0)
}

unsafe fn hint(client: &Client, file: FileRef, command: c_int, value: *mut u64) -> Result<c_int, Errno> {
    // SAFETY: the program promises a 64-bit value; RocksDB before 9.2 gives a 32-bit one, so only the low half is read.
    let value = unsafe { value.cast::<u32>().as_mut() }.ok_or(libc::EFAULT)?;
    match command {
        F_SET_RW_HINT | F_SET_FILE_RW_HINT if u64::from(*value) <= HINT_MAX => {
            client.set_hint(file, *value)?;
            Ok(0)
        }
        F_GET_RW_HINT | F_GET_FILE_RW_HINT => {
            client.flags(file)?;
            *value = 0;
            Ok(0)
        }
        _ => Err(libc::EINVAL),
    }
}

unsafe fn control(fd: c_int, file: FileRef, command: c_int, arg: usize) -> Result<c_int, Errno> {
    let client = process::client()?;
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            descriptors::duplicate(file, || sys::fcntl(fd, command, arg).map(|fd| fd as c_int))
        }
        // Close-on-exec is the placeholder's.
        libc::F_GETFD | libc::F_SETFD => {
            client.flags(file)?;
            let _held = (command == libc::F_SETFD).then(|| blank::hold(fd));
            sys::fcntl(fd, command, arg).map(|flags| flags as c_int)
        }
        libc::F_GETFL => {
            client.flags(file).map(|flags| if flags & libc::O_PATH == 0 { flags | LARGE_FILE } else { flags })
        }
        libc::F_SETFL => client.set_flags(file, arg as c_int).map(|()| 0),
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            // SAFETY: with these commands the argument is a pointer to a `struct flock`.
            unsafe { record_lock(client, (fd, file), command, arg as *mut libc::flock) }
        }
        F_SET_RW_HINT | F_GET_RW_HINT | F_SET_FILE_RW_HINT | F_GET_FILE_RW_HINT => {
            // SAFETY: with these commands the argument is a pointer to a hint.
            unsafe { hint(client, file, command, arg as *mut u64) }
        }
        libc::F_ADD_SEALS | libc::F_GET_SEALS => Err(libc::EINVAL),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => Err(libc::EBADF),
        F_GETOWN | F_GETSIG | F_GETOWN_EX => Ok(0),
        libc::F_SETLEASE | libc::F_GETLEASE | libc::F_NOTIFY | F_SETOWN | F_SETSIG | F_SETOWN_EX => {
            Err(refuse(Refusal::Leases))
        }
        _ => Err(refuse(Refusal::Fcntl)),
    }
}

/// Gets or sets what `chattr` shows. As in Linux, the size that the numbers of the first two requests name is wrong: they take an int.
unsafe fn inode_flags(client: &Client, file: FileRef, request: c_ulong, arg: usize) -> Result<(), Errno> {
    let here = || client.stat_with_flags(file, b"", libc::AT_EMPTY_PATH).map(|(_, flags)| flags);
    if arg == 0 {
        return Err(libc::EFAULT);
    }
    let (word, extended) = (arg as *mut u32, arg as *mut XFlags);
    // SAFETY: by the caller's promise there is what the request names, wherever it lies.
    unsafe {
        match request {
            GET_FLAGS => word.write_unaligned(here()?.bits()),
            SET_FLAGS => client.set_inode_flags(file, word.read_unaligned(), u32::MAX)?,
            GET_XFLAGS => extended.write_unaligned(XFlags::of(here()?)),
            _ => {
                let (flags, mask) = extended.read_unaligned().flags().ok_or(libc::EOPNOTSUPP)?;
                client.set_inode_flags(file, flags.bits(), mask.bits())?;
            }
        }
    }
    Ok(())
}

unsafe fn device_control(fd: c_int, file: FileRef, request: c_ulong, arg: usize) -> Result<c_int, Errno> {
    let client = place_for_data(file)?.client;
    match request {
        libc::FIONREAD => {
            let attr = crate::file::attributes(file)?;
            if attr.mode & libc::S_IFMT != libc::S_IFREG {
                return Err(libc::ENOTTY);
            }
            let size = attr.size as i64;
            let at = client.seek(file, 0, libc::SEEK_CUR)? as i64;
            // SAFETY: with this request the argument is a pointer to an int.
            let out = unsafe { (arg as *mut c_int).as_mut() }.ok_or(libc::EFAULT)?;
            // As in Linux, negative beyond the end.
            *out = (size - at).clamp(c_int::MIN.into(), c_int::MAX.into()) as c_int;
            Ok(0)
        }
        libc::FIOCLEX => weft_client::sys::set_cloexec(fd, true).map(|()| 0),
        libc::FIONCLEX => weft_client::sys::set_cloexec(fd, false).map(|()| 0),
        libc::FIONBIO => Ok(0),
        libc::FICLONE | libc::FICLONERANGE => Err(libc::EOPNOTSUPP),
        GET_FLAGS | SET_FLAGS | GET_XFLAGS | SET_XFLAGS => {
            // SAFETY: with these requests the argument is a pointer to an int or a `struct fsxattr`.
            unsafe { inode_flags(client, file, request, arg) }.map(|()| 0)
        }
        GET_FEATURES if arg == 0 => Err(libc::EFAULT),
        GET_FEATURES => {
            let features = if batch::is_possible(client, file)? { FEATURE_ATOMIC_WRITE } else { 0 };
            // SAFETY: with this request the argument is a pointer to a 32-bit number, which is not null.
            unsafe { (arg as *mut u32).write_unaligned(features) };
            Ok(0)
        }
        START_ATOMIC_WRITE => whole(|| batch::start(file)).map(|()| 0),
        COMMIT_ATOMIC_WRITE => whole(|| batch::commit(file)).map(|()| 0),
        ABORT_ATOMIC_WRITE => whole(|| batch::abort(file)).map(|()| 0),
        libc::TCGETS | libc::TIOCGWINSZ | libc::TIOCGPGRP => Err(libc::ENOTTY),
        _ => Err(refuse(Refusal::Ioctl)),
    }
}

hooks! {
    fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
        match table::get(fd) {
            // On files of the kernel the same widening repairs the programs that the kernel refuses (`EINVAL`).
            None if command == F_SET_RW_HINT && (process::is_on() || crate::advice::is_on()) && arg != 0 => {
                let hint = u64::from(*(arg as *const u32));
                real::fcntl(fd, command, &raw const hint as usize)
            }
            None => real::fcntl(fd, command, arg),
            Some(file) => finish(control(fd, file, command, arg)),
        }
    }

    fn flock(fd: c_int, operation: c_int) -> c_int {
        match table::get(fd) {
            None => real::flock(fd, operation),
            // Modes that lock nothing: the kernel tells what it makes of them.
            Some(_) if operation & LOCK_MAND != 0 => real::flock(fd, operation),
            Some(file) => finish(process::client().and_then(|client| client.flock(file, operation))),
        }
    }

    fn lockf(fd: c_int, command: c_int, len: off_t) -> c_int {
        let Some(file) = table::get(fd) else { return real::lockf(fd, command, len) };
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_whence = libc::SEEK_CUR as _;
        lock.l_len = len;
        lock.l_type = match command {
            libc::F_ULOCK => libc::F_UNLCK,
            // As libc: locks that several may have are not in the way.
            libc::F_TEST => libc::F_RDLCK,
            _ => libc::F_WRLCK,
        } as _;
        let fcntl_command = match command {
            libc::F_LOCK => libc::F_SETLKW,
            libc::F_TLOCK | libc::F_ULOCK => libc::F_SETLK,
            libc::F_TEST => libc::F_GETLK,
            _ => return fail(libc::EINVAL),
        };
        match process::client().and_then(|client| record_lock(client, (fd, file), fcntl_command, &raw mut lock)) {
            Ok(_) if command == libc::F_TEST && i32::from(lock.l_type) != libc::F_UNLCK => fail(libc::EACCES),
            result => finish(result),
        }
    }

    fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int {
        on_file(fd, || real::ioctl(fd, request, arg), |file| device_control(fd, file, request, arg))
    }
}
