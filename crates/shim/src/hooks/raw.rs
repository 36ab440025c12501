//! System calls that programs make by number, with libc's `syscall`: each does what the function of its name does.

use crate::hooks::{
    attributes, change, control, cwd, data, dir, exec, exit, fork, identity, kernel, libaio, limit, mmap,
    names, open, socket, xattr,
};
use crate::process;
use crate::report::{Refusal, refuse};
use crate::routing::fail;
use libc::{c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, size_t};

/// `fchmodat2`, which the libc crate does not name.
const SYS_FCHMODAT2: c_long = 452;

/// Arguments of a system call, each as the type that it has there.
#[derive(Clone, Copy)]
struct Arguments([c_long; 6]);

impl Arguments {
    fn int(self, at: usize) -> c_int {
        self.long(at) as c_int
    }
    fn uint(self, at: usize) -> c_uint {
        self.long(at) as c_uint
    }
    fn size(self, at: usize) -> size_t {
        self.long(at) as size_t
    }
    fn long(self, at: usize) -> c_long {
        self.0.get(at).copied().unwrap_or(0)
    }
    fn text(self, at: usize) -> *const c_char {
        self.long(at) as *const c_char
    }
    fn of<T>(self, at: usize) -> *const T {
        self.long(at) as *const T
    }
    fn to<T>(self, at: usize) -> *mut T {
        self.long(at) as *mut T
    }
    /// The same with another value at one place.
    fn with(mut self, at: usize, value: c_long) -> [c_long; 6] {
        if let Some(place) = self.0.get_mut(at) {
            *place = value;
        }
        self.0
    }
}

/// What the kernel returns, as `syscall` gives it.
fn returned(result: c_long) -> c_long {
    if result < 0 { fail(result.wrapping_neg() as c_int) } else { result }
}

/// Data: descriptors that are read, written, sized and synced.
unsafe fn data_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: the program passes what the system call wants, which is what the function wants.
    unsafe {
        Some(match number {
            libc::SYS_read => data::body::read(a.int(0), a.to(1), a.size(2)) as c_long,
            libc::SYS_write => data::body::write(a.int(0), a.of(1), a.size(2)) as c_long,
            libc::SYS_pread64 => data::body::pread(a.int(0), a.to(1), a.size(2), a.long(3)) as c_long,
            libc::SYS_pwrite64 => data::body::pwrite(a.int(0), a.of(1), a.size(2), a.long(3)) as c_long,
            libc::SYS_readv => data::body::readv(a.int(0), a.of::<iovec>(1), a.int(2)) as c_long,
            libc::SYS_writev => data::body::writev(a.int(0), a.of::<iovec>(1), a.int(2)) as c_long,
            // The kernel takes offsets in two halves, of which the second is nothing on 64-bit systems.
            libc::SYS_preadv => data::body::preadv(a.int(0), a.of(1), a.int(2), a.long(3)) as c_long,
            libc::SYS_pwritev => data::body::pwritev(a.int(0), a.of(1), a.int(2), a.long(3)) as c_long,
            libc::SYS_preadv2 => {
                data::body::preadv2(a.int(0), a.of(1), a.int(2), a.long(3), a.int(5)) as c_long
            }
            libc::SYS_pwritev2 => {
                data::body::pwritev2(a.int(0), a.of(1), a.int(2), a.long(3), a.int(5)) as c_long
            }
            libc::SYS_lseek => data::body::lseek(a.int(0), a.long(1), a.int(2)),
            libc::SYS_fsync => data::body::fsync(a.int(0)).into(),
            libc::SYS_fdatasync => data::body::fdatasync(a.int(0)).into(),
            libc::SYS_syncfs => data::body::syncfs(a.int(0)).into(),
            libc::SYS_sync => {
                data::body::sync();
                0
            }
            libc::SYS_sync_file_range => {
                data::body::sync_file_range(a.int(0), a.long(1), a.long(2), a.uint(3)).into()
            }
            libc::SYS_ftruncate => data::body::ftruncate(a.int(0), a.long(1)).into(),
            libc::SYS_truncate => data::body::truncate(a.text(0), a.long(1)).into(),
            libc::SYS_fallocate => data::body::fallocate(a.int(0), a.int(1), a.long(2), a.long(3)).into(),
            libc::SYS_fadvise64 => {
                // The function returns the error instead of setting errno.
                match data::body::posix_fadvise(a.int(0), a.long(1), a.long(2), a.int(3)) {
                    0 => 0,
                    error => fail(error),
                }
            }
            libc::SYS_readahead => data::body::readahead(a.int(0), a.long(1), a.size(2)) as c_long,
            libc::SYS_copy_file_range => {
                data::body::copy_file_range(a.int(0), a.to(1), a.int(2), a.to(3), a.size(4), a.uint(5))
                    as c_long
            }
            libc::SYS_sendfile => data::body::sendfile(a.int(0), a.int(1), a.to(2), a.size(3)) as c_long,
            libc::SYS_splice => {
                data::body::splice(a.int(0), a.to(1), a.int(2), a.to(3), a.size(4), a.uint(5)) as c_long
            }
            libc::SYS_mmap => {
                mmap::body::mmap(a.to(0), a.size(1), a.int(2), a.int(3), a.int(4), a.long(5)) as c_long
            }
            libc::SYS_madvise => mmap::body::madvise(a.to(0), a.size(1), a.int(2)).into(),
            libc::SYS_munmap => mmap::body::munmap(a.to(0), a.size(1)).into(),
            libc::SYS_mremap => {
                mmap::body::mremap(a.to(0), a.size(1), a.size(2), a.int(3), a.to(4)) as c_long
            }
            libc::SYS_mprotect => mmap::body::mprotect(a.to(0), a.size(1), a.int(2)).into(),
            libc::SYS_pkey_mprotect => {
                mmap::body::pkey_mprotect(a.to(0), a.size(1), a.int(2), a.int(3)).into()
            }
            libc::SYS_msync => mmap::body::msync(a.to(0), a.size(1), a.int(2)).into(),
            libc::SYS_setrlimit => limit::body::setrlimit(a.uint(0), a.of(1)).into(),
            libc::SYS_prlimit64 => limit::body::prlimit(a.int(0), a.uint(1), a.of(2), a.to(3)).into(),
            libc::SYS_io_uring_setup => fail(refuse(Refusal::IoUring)),
            libc::SYS_io_submit => returned(libaio::submit(a.long(0) as u64, a.long(1), a.of(2))),
            libc::SYS_io_getevents => {
                returned(libaio::events(a.long(0) as u64, a.long(1), a.long(2), a.to(3), a.of(4)))
            }
            libaio::SYS_IO_PGETEVENTS => returned(libaio::events_with_mask(
                a.long(0) as u64,
                a.long(1),
                a.long(2),
                a.to(3),
                a.of(4),
                a.of(5),
            )),
            libc::SYS_io_destroy => returned(libaio::destroy(a.long(0) as u64)),
            _ => return None,
        })
    }
}

/// Descriptors themselves, and sockets.
unsafe fn descriptor_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_openat => open::body::openat(a.int(0), a.text(1), a.int(2), a.uint(3)).into(),
            libc::SYS_openat2 => open_how(a)?,
            libc::SYS_close => open::body::close(a.int(0)).into(),
            libc::SYS_close_range => open::body::close_range(a.uint(0), a.uint(1), a.int(2)).into(),
            libc::SYS_dup => open::body::dup(a.int(0)).into(),
            libc::SYS_dup3 => open::body::dup3(a.int(0), a.int(1), a.int(2)).into(),
            libc::SYS_fcntl => control::body::fcntl(a.int(0), a.int(1), a.size(2)).into(),
            libc::SYS_flock => control::body::flock(a.int(0), a.int(1)).into(),
            libc::SYS_ioctl => control::body::ioctl(a.int(0), a.long(1) as libc::c_ulong, a.size(2)).into(),
            libc::SYS_sendmsg => socket::body::sendmsg(a.int(0), a.of(1), a.int(2)) as c_long,
            libc::SYS_sendmmsg => socket::body::sendmmsg(a.int(0), a.to(1), a.uint(2), a.int(3)).into(),
            libc::SYS_recvmsg => socket::body::recvmsg(a.int(0), a.to(1), a.int(2)) as c_long,
            libc::SYS_recvmmsg => {
                socket::body::recvmmsg(a.int(0), a.to(1), a.uint(2), a.int(3), a.to(4)).into()
            }
            libc::SYS_bind => socket::body::bind(a.int(0), a.of(1), a.uint(2)).into(),
            libc::SYS_connect => socket::body::connect(a.int(0), a.of(1), a.uint(2)).into(),
            libc::SYS_sendto => {
                socket::body::sendto(a.int(0), a.of(1), a.size(2), a.int(3), a.of(4), a.uint(5)) as c_long
            }
            libc::SYS_recvfrom => {
                socket::body::recvfrom(a.int(0), a.to(1), a.size(2), a.int(3), a.to(4), a.to(5)) as c_long
            }
            libc::SYS_accept => socket::body::accept(a.int(0), a.to(1), a.to(2)).into(),
            libc::SYS_accept4 => socket::body::accept4(a.int(0), a.to(1), a.to(2), a.int(3)).into(),
            libc::SYS_getsockname => socket::body::getsockname(a.int(0), a.to(1), a.to(2)).into(),
            libc::SYS_getpeername => socket::body::getpeername(a.int(0), a.to(1), a.to(2)).into(),
            libc::SYS_pidfd_getfd => socket::body::pidfd_getfd(a.int(0), a.int(1), a.uint(2)).into(),
            libc::SYS_inotify_add_watch => {
                kernel::body::inotify_add_watch(a.int(0), a.text(1), a.uint(2)).into()
            }
            libc::SYS_fanotify_mark => {
                kernel::body::fanotify_mark(a.int(0), a.uint(1), a.long(2) as u64, a.int(3), a.text(4)).into()
            }
            _ => return None,
        })
    }
}

/// `openat2`: on the volume as `openat`, but a way to resolve paths that only the kernel knows is "not implemented", after
/// which programs use `openat`.
unsafe fn open_how(a: Arguments) -> Option<c_long> {
    if !crate::routing::is_on_volume(a.int(0), a.text(1)) {
        return None;
    }
    if a.size(3) < size_of::<libc::open_how>() {
        return Some(fail(libc::EINVAL));
    }
    // SAFETY: the program passes a structure of that size, when it is not null.
    let Some(how) = (unsafe { a.of::<libc::open_how>(2).as_ref() }) else { return Some(fail(libc::EFAULT)) };
    if how.resolve != 0 {
        return Some(fail(libc::ENOSYS));
    }
    // SAFETY: as for `openat`.
    Some(unsafe { open::body::openat(a.int(0), a.text(1), how.flags as c_int, how.mode as c_uint) }.into())
}

/// Attributes.
unsafe fn attribute_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_fstat => attributes::body::fstat(a.int(0), a.to(1)).into(),
            libc::SYS_newfstatat => attributes::body::fstatat(a.int(0), a.text(1), a.to(2), a.int(3)).into(),
            libc::SYS_statx => {
                attributes::body::statx(a.int(0), a.text(1), a.int(2), a.uint(3), a.to(4)).into()
            }
            libc::SYS_statfs => attributes::body::statfs(a.text(0), a.to(1)).into(),
            libc::SYS_fstatfs => attributes::body::fstatfs(a.int(0), a.to(1)).into(),
            libc::SYS_faccessat => attributes::body::faccessat(a.int(0), a.text(1), a.int(2), 0).into(),
            libc::SYS_faccessat2 => {
                attributes::body::faccessat(a.int(0), a.text(1), a.int(2), a.int(3)).into()
            }
            libc::SYS_fchmod => change::body::fchmod(a.int(0), a.long(1) as mode_t).into(),
            libc::SYS_fchmodat => change::body::fchmodat(a.int(0), a.text(1), a.long(2) as mode_t, 0).into(),
            SYS_FCHMODAT2 => {
                change::body::fchmodat(a.int(0), a.text(1), a.long(2) as mode_t, a.int(3)).into()
            }
            libc::SYS_fchown => change::body::fchown(a.int(0), a.uint(1), a.uint(2)).into(),
            libc::SYS_fchownat => {
                change::body::fchownat(a.int(0), a.text(1), a.uint(2), a.uint(3), a.int(4)).into()
            }
            // Without a path it means the descriptor, which only the system call says so.
            libc::SYS_utimensat if a.text(1).is_null() => change::body::futimens(a.int(0), a.of(2)).into(),
            libc::SYS_utimensat => change::body::utimensat(a.int(0), a.text(1), a.of(2), a.int(3)).into(),
            libc::SYS_getxattr => xattr::body::getxattr(a.text(0), a.text(1), a.to(2), a.size(3)) as c_long,
            libc::SYS_lgetxattr => xattr::body::lgetxattr(a.text(0), a.text(1), a.to(2), a.size(3)) as c_long,
            libc::SYS_fgetxattr => xattr::body::fgetxattr(a.int(0), a.text(1), a.to(2), a.size(3)) as c_long,
            libc::SYS_setxattr => {
                xattr::body::setxattr(a.text(0), a.text(1), a.of(2), a.size(3), a.int(4)).into()
            }
            libc::SYS_lsetxattr => {
                xattr::body::lsetxattr(a.text(0), a.text(1), a.of(2), a.size(3), a.int(4)).into()
            }
            libc::SYS_fsetxattr => {
                xattr::body::fsetxattr(a.int(0), a.text(1), a.of(2), a.size(3), a.int(4)).into()
            }
            libc::SYS_listxattr => xattr::body::listxattr(a.text(0), a.to(1), a.size(2)) as c_long,
            libc::SYS_llistxattr => xattr::body::llistxattr(a.text(0), a.to(1), a.size(2)) as c_long,
            libc::SYS_flistxattr => xattr::body::flistxattr(a.int(0), a.to(1), a.size(2)) as c_long,
            libc::SYS_removexattr => xattr::body::removexattr(a.text(0), a.text(1)).into(),
            libc::SYS_lremovexattr => xattr::body::lremovexattr(a.text(0), a.text(1)).into(),
            libc::SYS_fremovexattr => xattr::body::fremovexattr(a.int(0), a.text(1)).into(),
            libc::SYS_umask => change::body::umask(a.long(0) as mode_t).into(),
            libc::SYS_mknodat => {
                names::body::mknodat(a.int(0), a.text(1), a.long(2) as mode_t, a.long(3) as libc::dev_t)
                    .into()
            }
            libc::SYS_name_to_handle_at => {
                names::body::name_to_handle_at(a.int(0), a.text(1), a.to(2), a.to(3), a.int(4)).into()
            }
            _ => return None,
        })
    }
}

/// Names and directories.
unsafe fn name_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_getdents64 => dir::body::getdents64(a.int(0), a.to(1), a.size(2)) as c_long,
            libc::SYS_mkdirat => names::body::mkdirat(a.int(0), a.text(1), a.long(2) as mode_t).into(),
            libc::SYS_unlinkat => names::body::unlinkat(a.int(0), a.text(1), a.int(2)).into(),
            libc::SYS_renameat => names::body::renameat(a.int(0), a.text(1), a.int(2), a.text(3)).into(),
            libc::SYS_renameat2 => {
                names::body::renameat2(a.int(0), a.text(1), a.int(2), a.text(3), a.uint(4)).into()
            }
            libc::SYS_linkat => {
                names::body::linkat(a.int(0), a.text(1), a.int(2), a.text(3), a.int(4)).into()
            }
            libc::SYS_symlinkat => names::body::symlinkat(a.text(0), a.int(1), a.text(2)).into(),
            libc::SYS_readlinkat => {
                names::body::readlinkat(a.int(0), a.text(1), a.to(2), a.size(3)) as c_long
            }
            libc::SYS_chdir => cwd::body::chdir(a.text(0)).into(),
            libc::SYS_fchdir => cwd::body::fchdir(a.int(0)).into(),
            libc::SYS_chroot => cwd::body::chroot(a.text(0)).into(),
            libc::SYS_getcwd if process::cwd().is_some() => {
                let out: *mut c_char = a.to(0);
                // The system call returns the length, the NUL included.
                match cwd::body::getcwd(out, a.size(1)) {
                    path if path.is_null() || out.is_null() => fail(libc::ERANGE),
                    path => libc::strlen(path) as c_long + 1,
                }
            }
            libc::SYS_mount => kernel::body::mount(
                a.text(0),
                a.text(1),
                a.text(2),
                a.long(3) as libc::c_ulong,
                a.of::<c_void>(4),
            )
            .into(),
            _ => return None,
        })
    }
}

/// Processes.
unsafe fn process_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_execve => exec::body::execve(a.text(0), a.of(1), a.of(2)).into(),
            libc::SYS_execveat => {
                exec::body::execveat(a.int(0), a.text(1), a.of(2), a.of(3), a.int(4)).into()
            }
            libc::SYS_exit_group => exit::body::_exit(a.int(0)),
            libc::SYS_prctl => {
                limit::before_prctl(a.int(0), a.long(1) as libc::c_ulong);
                return None;
            }
            libc::SYS_seccomp => {
                limit::before_seccomp(a.uint(0));
                return None;
            }
            libc::SYS_unshare if crate::process::fork::check_unshare(a.int(0)).is_err() => fail(libc::EINVAL),
            libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_setgid
            | libc::SYS_setregid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_capset
            | libc::SYS_unshare
            | libc::SYS_setns => {
                identity::by_number(|| real::syscall(number, a.long(0), a.long(1), a.long(2), 0, 0, 0))
            }
            libc::SYS_setfsuid | libc::SYS_setfsgid => {
                identity::of_files(c_long::from(a.int(0)), || real::syscall(number, a.long(0), 0, 0, 0, 0, 0))
            }
            // A child with memory of its own, on its parent's stack. One that would share memory until it executes gets
            // its own, as with `vfork`.
            libc::SYS_clone
                if a.long(1) == 0
                    && (a.long(0) & libc::CLONE_VM as c_long == 0
                        || a.long(0) & libc::CLONE_VFORK as c_long != 0
                            && a.long(0) & libc::CLONE_THREAD as c_long == 0) =>
            {
                if let Err(error) = crate::process::fork::check_sharing(a.int(0)) {
                    return Some(fail(error));
                }
                let flags = a.long(0) & !c_long::from(libc::CLONE_VM);
                fork::child_by(|| real::syscall(number, flags, 0, a.long(2), a.long(3), a.long(4), 0))
            }
            libc::SYS_clone => {
                crate::process::fork::before_thread(a.int(0));
                return None;
            }
            _ => return None,
        })
    }
}

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
unsafe fn old_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_open => open::body::open(a.text(0), a.int(1), a.uint(2)).into(),
            libc::SYS_creat => open::body::creat(a.text(0), a.uint(1)).into(),
            libc::SYS_dup2 => open::body::dup2(a.int(0), a.int(1)).into(),
            libc::SYS_stat => attributes::body::stat(a.text(0), a.to(1)).into(),
            libc::SYS_lstat => attributes::body::lstat(a.text(0), a.to(1)).into(),
            libc::SYS_access => attributes::body::access(a.text(0), a.int(1)).into(),
            libc::SYS_chmod => change::body::chmod(a.text(0), a.long(1) as mode_t).into(),
            libc::SYS_chown => change::body::chown(a.text(0), a.uint(1), a.uint(2)).into(),
            libc::SYS_lchown => change::body::lchown(a.text(0), a.uint(1), a.uint(2)).into(),
            libc::SYS_mkdir => names::body::mkdir(a.text(0), a.long(1) as mode_t).into(),
            libc::SYS_rmdir => names::body::rmdir(a.text(0)).into(),
            libc::SYS_unlink => names::body::unlink(a.text(0)).into(),
            libc::SYS_rename => names::body::rename(a.text(0), a.text(1)).into(),
            libc::SYS_link => names::body::link(a.text(0), a.text(1)).into(),
            libc::SYS_symlink => names::body::symlink(a.text(0), a.text(1)).into(),
            libc::SYS_readlink => names::body::readlink(a.text(0), a.to(1), a.size(2)) as c_long,
            libc::SYS_mknod => {
                names::body::mknod(a.text(0), a.long(1) as mode_t, a.long(2) as libc::dev_t).into()
            }
            libc::SYS_utime => change::body::utime(a.text(0), a.of(1)).into(),
            libc::SYS_utimes => change::body::utimes(a.text(0), a.of(1)).into(),
            libc::SYS_futimesat => change::body::futimesat(a.int(0), a.text(1), a.of(2)).into(),
            // A child that would share memory until it executes gets its own, as with the function.
            libc::SYS_fork | libc::SYS_vfork => fork::body::fork().into(),
            // The old form of directory entries, which no program of today asks for.
            libc::SYS_getdents if crate::descriptors::table::is_weft(a.int(0)) => fail(libc::ENOSYS),
            _ => return None,
        })
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn old_call(_: c_long, _: Arguments) -> Option<c_long> {
    None
}

/// What a call by number does; `None` when it is the kernel's.
unsafe fn system_call(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let a = Arguments(arguments);
    // SAFETY: the program passes what the system call wants.
    unsafe {
        data_call(number, a)
            .or_else(|| descriptor_call(number, a))
            .or_else(|| attribute_call(number, a))
            .or_else(|| name_call(number, a))
            .or_else(|| process_call(number, a))
            .or_else(|| old_call(number, a))
    }
}

/// What a call does that a program makes by itself, as the kernel would return it; `None` when it is the kernel's.
///
/// # Safety
/// The arguments are what the call wants.
pub unsafe fn by_number(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    // SAFETY: the caller's promise.
    let result = unsafe {
        system_call(number, arguments)
            .map(|result| if result == -1 { -c_long::from(crate::sys::errno()) } else { result })
    };
    // SAFETY: as above.
    result.or_else(|| unsafe { signal_call(number, Arguments(arguments)) })
}

/// Has the kernel do a call, as it would return it. libc makes it: calls from its code are not handed over, so that
/// handlers which interrupt this one have theirs handed over, as everywhere else.
///
/// # Safety
/// The arguments are what the call wants.
pub unsafe fn by_kernel(number: c_long, a: [c_long; 6]) -> c_long {
    // SAFETY: the caller's promise.
    let result = unsafe { real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 { -c_long::from(crate::sys::errno()) } else { result }
}

/// Bit of the signal that hands calls over.
const OURS: u64 = 1 << (libc::SIGSYS - 1);

/// Signals are only a matter of calls that are intercepted, whose own signal no mask may hold.
unsafe fn signal_call(number: c_long, a: Arguments) -> Option<c_long> {
    /// `struct sigaction` of the kernel.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Action {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }
    // SAFETY: the program's own structures, when they are not null.
    unsafe {
        match number {
            libc::SYS_rt_sigprocmask if a.int(0) != libc::SIG_UNBLOCK => {
                let mask = a.of::<u64>(1).as_ref()? & !OURS;
                Some(by_kernel(number, a.with(1, &raw const mask as c_long)))
            }
            libc::SYS_rt_sigaction => {
                let mut action = *a.of::<Action>(1).as_ref()?;
                action.mask &= !OURS;
                let taken = a.int(0) == libc::SIGSYS;
                let action = if taken { std::ptr::null() } else { &raw const action };
                Some(by_kernel(number, a.with(1, action as c_long)))
            }
            libc::SYS_rt_sigsuspend => with_mask(number, a, 0),
            libc::SYS_ppoll => with_mask(number, a, 3),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => with_mask(number, a, 4),
            libc::SYS_pselect6 => {
                // The address of a mask and its length.
                let [given, len] = *a.of::<[usize; 2]>(5).as_ref()?;
                let mask = (given as *const u64).as_ref()? & !OURS;
                let pair = [&raw const mask as usize, len];
                Some(by_kernel(number, a.with(5, &raw const pair as c_long)))
            }
            _ => None,
        }
    }
}

/// A wait with a mask, the `place`th argument, for the time being.
///
/// # Safety
/// The argument is null or a mask of the kernel's.
unsafe fn with_mask(number: c_long, a: Arguments, place: usize) -> Option<c_long> {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = a.of::<u64>(place).as_ref()? & !OURS;
        Some(by_kernel(number, a.with(place, &raw const mask as c_long)))
    }
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
}
