//! The rest: raw system calls by `syscall`, and what is refused on weft files.

use crate::report::{Refusal, refuse};
use crate::route::{Last, fail, finish, on_path};
use crate::{process, table};
use libc::{
    aiocb, c_char, c_int, c_long, c_uint, c_void, iovec, key_t, mode_t, sockaddr, socklen_t, ssize_t,
};
use std::mem::offset_of;

/// Whether a message carries a weft descriptor.
unsafe fn carries_weft(message: *const libc::msghdr) -> bool {
    // SAFETY: the program promises a message; the macros stay within its control data.
    unsafe {
        let Some(head) = message.as_ref() else { return false };
        if head.msg_control.is_null() || head.msg_controllen == 0 {
            return false;
        }
        let mut control = libc::CMSG_FIRSTHDR(message);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(control).cast::<c_int>();
                let count =
                    (*control).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                if (0..count).any(|number| table::is_weft(data.add(number).read_unaligned())) {
                    return true;
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
        false
    }
}

/// Whether an address is a path on the volume.
unsafe fn is_socket_on_volume(address: *const sockaddr, len: socklen_t) -> bool {
    const PATH_AT: usize = offset_of!(libc::sockaddr_un, sun_path);
    let len = len as usize;
    // SAFETY: the program promises `len` bytes.
    unsafe {
        if !process::is_on()
            || address.is_null()
            || len <= PATH_AT
            || i32::from((*address).sa_family) != libc::AF_UNIX
        {
            return false;
        }
        let bytes = std::slice::from_raw_parts(address.cast::<u8>().add(PATH_AT), (len - PATH_AT).min(108));
        let mut path = [0u8; 109];
        for (to, from) in path.iter_mut().zip(bytes) {
            *to = *from;
        }
        // A name that begins with NUL is in no file system.
        path.first() != Some(&0) && crate::route::is_on_volume(libc::AT_FDCWD, path.as_ptr().cast())
    }
}

unsafe fn is_weft_aio(control: *const aiocb) -> bool {
    // SAFETY: the program promises a control block, when it is not null.
    unsafe { control.as_ref() }.is_some_and(|control| table::is_weft(control.aio_fildes))
}

/// System calls on files that programs make by `syscall`: what the function of the same name does.
unsafe fn system_call(number: c_long, a: [c_long; 6]) -> Option<c_long> {
    use crate::hooks::{control, cwd, data, dir, meta, mmap, names, open};
    let [a0, a1, a2, a3, a4, a5] = a;
    let int = |value: c_long| value as c_int;
    let text = |value: c_long| value as *const c_char;
    // SAFETY: the program passes what the system call wants, which is what the function wants.
    unsafe {
        Some(match number {
            libc::SYS_read => data::body::read(int(a0), a1 as *mut c_void, a2 as usize) as c_long,
            libc::SYS_write => data::body::write(int(a0), a1 as *const c_void, a2 as usize) as c_long,
            libc::SYS_pread64 => data::body::pread(int(a0), a1 as *mut c_void, a2 as usize, a3) as c_long,
            libc::SYS_pwrite64 => data::body::pwrite(int(a0), a1 as *const c_void, a2 as usize, a3) as c_long,
            libc::SYS_readv => data::body::readv(int(a0), a1 as *const iovec, int(a2)) as c_long,
            libc::SYS_writev => data::body::writev(int(a0), a1 as *const iovec, int(a2)) as c_long,
            libc::SYS_lseek => data::body::lseek(int(a0), a1, int(a2)),
            libc::SYS_fsync => data::body::fsync(int(a0)).into(),
            libc::SYS_fdatasync => data::body::fdatasync(int(a0)).into(),
            libc::SYS_syncfs => data::body::syncfs(int(a0)).into(),
            libc::SYS_sync_file_range => data::body::sync_file_range(int(a0), a1, a2, a3 as c_uint).into(),
            libc::SYS_ftruncate => data::body::ftruncate(int(a0), a1).into(),
            libc::SYS_truncate => data::body::truncate(text(a0), a1).into(),
            libc::SYS_fallocate => data::body::fallocate(int(a0), int(a1), a2, a3).into(),
            libc::SYS_readahead => data::body::readahead(int(a0), a1, a2 as usize) as c_long,
            libc::SYS_copy_file_range => {
                let (from_at, to_at) = (a1 as *mut i64, a3 as *mut i64);
                data::body::copy_file_range(int(a0), from_at, int(a2), to_at, a4 as usize, a5 as c_uint)
                    as c_long
            }
            libc::SYS_sendfile => {
                data::body::sendfile(int(a0), int(a1), a2 as *mut i64, a3 as usize) as c_long
            }
            libc::SYS_splice => {
                let (from_at, to_at) = (a1 as *mut i64, a3 as *mut i64);
                data::body::splice(int(a0), from_at, int(a2), to_at, a4 as usize, a5 as c_uint) as c_long
            }
            libc::SYS_openat => open::body::openat(int(a0), text(a1), int(a2), a3 as c_uint).into(),
            libc::SYS_close => open::body::close(int(a0)).into(),
            libc::SYS_close_range => open::body::close_range(a0 as c_uint, a1 as c_uint, int(a2)).into(),
            libc::SYS_dup => open::body::dup(int(a0)).into(),
            libc::SYS_dup3 => open::body::dup3(int(a0), int(a1), int(a2)).into(),
            libc::SYS_fcntl => control::body::fcntl(int(a0), int(a1), a2 as usize).into(),
            libc::SYS_flock => control::body::flock(int(a0), int(a1)).into(),
            libc::SYS_ioctl => control::body::ioctl(int(a0), a1 as libc::c_ulong, a2 as usize).into(),
            libc::SYS_getdents64 => dir::body::getdents64(int(a0), a1 as *mut c_void, a2 as usize) as c_long,
            libc::SYS_fstat => meta::body::fstat(int(a0), a1 as *mut libc::stat).into(),
            libc::SYS_newfstatat => {
                meta::body::fstatat(int(a0), text(a1), a2 as *mut libc::stat, int(a3)).into()
            }
            libc::SYS_statx => {
                meta::body::statx(int(a0), text(a1), int(a2), a3 as c_uint, a4 as *mut libc::statx).into()
            }
            libc::SYS_faccessat => meta::body::faccessat(int(a0), text(a1), int(a2), 0).into(),
            libc::SYS_faccessat2 => meta::body::faccessat(int(a0), text(a1), int(a2), int(a3)).into(),
            libc::SYS_fchmod => meta::body::fchmod(int(a0), a1 as mode_t).into(),
            libc::SYS_fchmodat => meta::body::fchmodat(int(a0), text(a1), a2 as mode_t, 0).into(),
            libc::SYS_fchown => meta::body::fchown(int(a0), a1 as u32, a2 as u32).into(),
            libc::SYS_fchownat => {
                meta::body::fchownat(int(a0), text(a1), a2 as u32, a3 as u32, int(a4)).into()
            }
            libc::SYS_utimensat => {
                meta::body::utimensat(int(a0), text(a1), a2 as *const libc::timespec, int(a3)).into()
            }
            libc::SYS_mkdirat => names::body::mkdirat(int(a0), text(a1), a2 as mode_t).into(),
            libc::SYS_unlinkat => names::body::unlinkat(int(a0), text(a1), int(a2)).into(),
            libc::SYS_renameat => names::body::renameat(int(a0), text(a1), int(a2), text(a3)).into(),
            libc::SYS_renameat2 => {
                names::body::renameat2(int(a0), text(a1), int(a2), text(a3), a4 as c_uint).into()
            }
            libc::SYS_linkat => names::body::linkat(int(a0), text(a1), int(a2), text(a3), int(a4)).into(),
            libc::SYS_symlinkat => names::body::symlinkat(text(a0), int(a1), text(a2)).into(),
            libc::SYS_readlinkat => {
                names::body::readlinkat(int(a0), text(a1), a2 as *mut c_char, a3 as usize) as c_long
            }
            libc::SYS_chdir => cwd::body::chdir(text(a0)).into(),
            libc::SYS_fchdir => cwd::body::fchdir(int(a0)).into(),
            libc::SYS_mmap => {
                mmap::body::mmap(a0 as *mut c_void, a1 as usize, int(a2), int(a3), int(a4), a5) as c_long
            }
            libc::SYS_io_uring_setup => fail(refuse(Refusal::IoUring)),
            libc::SYS_io_setup => fail(refuse(Refusal::KernelAio)),
            _ => return system_call_of_x86(number, a),
        })
    }
}

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call_of_x86(number: c_long, a: [c_long; 6]) -> Option<c_long> {
    use crate::hooks::{meta, names, open};
    let [a0, a1, a2, ..] = a;
    let text = |value: c_long| value as *const c_char;
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_open => open::body::open(text(a0), a1 as c_int, a2 as c_uint).into(),
            libc::SYS_creat => open::body::creat(text(a0), a1 as c_uint).into(),
            libc::SYS_dup2 => open::body::dup2(a0 as c_int, a1 as c_int).into(),
            libc::SYS_stat => meta::body::stat(text(a0), a1 as *mut libc::stat).into(),
            libc::SYS_lstat => meta::body::lstat(text(a0), a1 as *mut libc::stat).into(),
            libc::SYS_access => meta::body::access(text(a0), a1 as c_int).into(),
            libc::SYS_chmod => meta::body::chmod(text(a0), a1 as mode_t).into(),
            libc::SYS_mkdir => names::body::mkdir(text(a0), a1 as mode_t).into(),
            libc::SYS_rmdir => names::body::rmdir(text(a0)).into(),
            libc::SYS_unlink => names::body::unlink(text(a0)).into(),
            libc::SYS_rename => names::body::rename(text(a0), text(a1)).into(),
            libc::SYS_link => names::body::link(text(a0), text(a1)).into(),
            libc::SYS_symlink => names::body::symlink(text(a0), text(a1)).into(),
            libc::SYS_readlink => names::body::readlink(text(a0), a1 as *mut c_char, a2 as usize) as c_long,
            // The old form of directory entries, which no program of today asks for.
            libc::SYS_getdents if table::is_weft(a0 as c_int) => fail(libc::ENOSYS),
            _ => return None,
        })
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn system_call_of_x86(_: c_long, _: [c_long; 6]) -> Option<c_long> {
    None
}

hooks! {
    fn syscall(number: c_long, a0: c_long, a1: c_long, a2: c_long, a3: c_long, a4: c_long, a5: c_long) -> c_long {
        if process::is_on()
            && let Some(result) = system_call(number, [a0, a1, a2, a3, a4, a5])
        {
            return result;
        }
        real::syscall(number, a0, a1, a2, a3, a4, a5)
    }

    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
        if process::is_on() && carries_weft(message) {
            return fail(refuse(Refusal::PassDescriptor));
        }
        real::sendmsg(socket, message, flags)
    }

    fn sendmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        if process::is_on() && !messages.is_null() {
            for number in 0..count as usize {
                if carries_weft(&raw const (*messages.add(number)).msg_hdr) {
                    return fail(refuse(Refusal::PassDescriptor));
                }
            }
        }
        real::sendmmsg(socket, messages, count, flags)
    }

    fn bind(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        if is_socket_on_volume(address, len) {
            return fail(refuse(Refusal::Socket));
        }
        real::bind(socket, address, len)
    }

    fn connect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        if is_socket_on_volume(address, len) {
            return fail(refuse(Refusal::Socket));
        }
        real::connect(socket, address, len)
    }

    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
        on_path(libc::AT_FDCWD, path, Last::Follow, |_, path| real::inotify_add_watch(fd, path, mask), |_, _, _| {
            Err(refuse(Refusal::Watch))
        })
    }

    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: *const c_char) -> c_int {
        on_path(
            dirfd,
            path,
            Last::Follow,
            |dirfd, path| real::fanotify_mark(fd, flags, mask, dirfd, path),
            |_, _, _| Err(refuse(Refusal::Watch)),
        )
    }

    fn mount(source: *const c_char, target: *const c_char, kind: *const c_char, flags: libc::c_ulong, data: *const c_void) -> c_int {
        let on_volume = |path: *const c_char| crate::route::is_on_volume(libc::AT_FDCWD, path);
        if on_volume(source) || on_volume(target) {
            return fail(refuse(Refusal::Mount));
        }
        real::mount(source, target, kind, flags, data)
    }

    fn ftok(path: *const c_char, project: c_int) -> key_t {
        on_path(libc::AT_FDCWD, path, Last::Follow, |_, path| real::ftok(path, project), |client, at, path| {
            let attr = client.stat(at, path, 0)?;
            // As glibc: low bits of inode and device under the project's.
            Ok((attr.ino & 0xffff | (attr.dev & 0xff) << 16) as key_t | (project & 0xff) << 24)
        })
    }

    fn aio_read(control: *mut aiocb) -> c_int {
        if is_weft_aio(control) { fail(refuse(Refusal::Aio)) } else { real::aio_read(control) }
    }

    fn aio_write(control: *mut aiocb) -> c_int {
        if is_weft_aio(control) { fail(refuse(Refusal::Aio)) } else { real::aio_write(control) }
    }

    fn aio_fsync(operation: c_int, control: *mut aiocb) -> c_int {
        if is_weft_aio(control) { fail(refuse(Refusal::Aio)) } else { real::aio_fsync(operation, control) }
    }

    fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> c_int {
        let blocks = count.max(0) as usize;
        if process::is_on() && (0..blocks).any(|number| is_weft_aio(*list.add(number))) {
            return fail(refuse(Refusal::Aio));
        }
        real::lio_listio(mode, list, count, event)
    }

    /// libc formats and writes by inner functions; here the text is made by libc and written by the hook.
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !table::is_weft(fd) {
            return real::vdprintf(fd, format, arguments);
        }
        print(fd, |out| vasprintf(out, format, arguments))
    }

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !table::is_weft(fd) {
            return real::__vdprintf_chk(fd, flag, format, arguments);
        }
        print(fd, |out| __vasprintf_chk(out, flag, format, arguments))
    }
}

unsafe extern "C" {
    fn vasprintf(out: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vasprintf_chk(
        out: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int;
}

unsafe fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = std::ptr::null_mut();
    let len = format(&raw mut text);
    if len < 0 {
        return -1;
    }
    // SAFETY: `vasprintf` gave `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len as usize) };
    let result = crate::hooks::data::write_any(fd, bytes);
    // SAFETY: from `vasprintf`.
    unsafe { libc::free(text.cast()) };
    finish(result.map(|n| n as c_int))
}
