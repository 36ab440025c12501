//! System calls that programs make by number, with libc's `syscall`: each does what the function of its name does.

use crate::hooks::{
    attributes, change, control, cwd, data, dir, exec, exit, fork, identity, kernel, libaio, limit, mmap,
    names, open, socket, xattr,
};
use crate::process;
use crate::report::{Refusal, refuse};
use crate::routing::fail;
use libc::{c_char, c_int, c_long, c_uint, size_t, ssize_t};

/// `fchmodat2`, which the libc crate does not name.
const SYS_FCHMODAT2: c_long = 452;

/// A value in a register of a system call.
trait Word {
    fn of(register: c_long) -> Self;
    fn register(self) -> c_long;
}

macro_rules! words {
    ($([$($of:ident)?] $word:ty),*) => {
        $(impl$(<$of>)? Word for $word {
            fn of(register: c_long) -> Self {
                register as Self
            }
            fn register(self) -> c_long {
                self as c_long
            }
        })*
    };
}
words!([] c_int, [] c_uint, [] c_long, [] u64, [] size_t, [] ssize_t, [T] *const T, [T] *mut T);

/// Arguments of a system call.
#[derive(Clone, Copy)]
struct Arguments([c_long; 6]);

impl Arguments {
    /// One of them, as the type that it has there.
    fn at<T: Word>(self, at: usize) -> T {
        T::of(self.0.get(at).copied().unwrap_or(0))
    }
    /// The same with another value at one place.
    fn with(mut self, at: usize, value: c_long) -> [c_long; 6] {
        if let Some(place) = self.0.get_mut(at) {
            *place = value;
        }
        self.0
    }
}

/// Functions that take what their system calls take, by how many arguments that is.
macro_rules! calls {
    ($($call:ident($($argument:ident $at:literal),*);)*) => {
        impl Arguments {
            $(unsafe fn $call<$($argument: Word,)* R: Word>(
                self,
                function: unsafe fn($($argument),*) -> R,
            ) -> c_long {
                // SAFETY: the program passes what the system call wants, which is what the function wants.
                unsafe { function($(self.at($at)),*) }.register()
            })*
        }
    };
}
calls! {
    call1(A 0);
    call2(A 0, B 1);
    call3(A 0, B 1, C 2);
    call4(A 0, B 1, C 2, D 3);
    call5(A 0, B 1, C 2, D 3, E 4);
    call6(A 0, B 1, C 2, D 3, E 4, F 5);
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
            libc::SYS_read => a.call3(data::body::read),
            libc::SYS_write => a.call3(data::body::write),
            libc::SYS_pread64 => a.call4(data::body::pread),
            libc::SYS_pwrite64 => a.call4(data::body::pwrite),
            libc::SYS_readv => a.call3(data::body::readv),
            libc::SYS_writev => a.call3(data::body::writev),
            // The kernel takes offsets in two halves, of which the second is nothing on 64-bit systems.
            libc::SYS_preadv => a.call4(data::body::preadv),
            libc::SYS_pwritev => a.call4(data::body::pwritev),
            libc::SYS_preadv2 => data::body::preadv2(a.at(0), a.at(1), a.at(2), a.at(3), a.at(5)) as c_long,
            libc::SYS_pwritev2 => data::body::pwritev2(a.at(0), a.at(1), a.at(2), a.at(3), a.at(5)) as c_long,
            libc::SYS_lseek => a.call3(data::body::lseek),
            libc::SYS_fsync => a.call1(data::body::fsync),
            libc::SYS_fdatasync => a.call1(data::body::fdatasync),
            libc::SYS_syncfs => a.call1(data::body::syncfs),
            libc::SYS_sync => {
                data::body::sync();
                0
            }
            libc::SYS_sync_file_range => a.call4(data::body::sync_file_range),
            libc::SYS_ftruncate => a.call2(data::body::ftruncate),
            libc::SYS_truncate => a.call2(data::body::truncate),
            libc::SYS_fallocate => a.call4(data::body::fallocate),
            libc::SYS_fadvise64 => {
                // The function returns the error instead of setting errno.
                match a.call4(data::body::posix_fadvise) {
                    0 => 0,
                    error => fail(error as c_int),
                }
            }
            libc::SYS_readahead => a.call3(data::body::readahead),
            libc::SYS_copy_file_range => a.call6(data::body::copy_file_range),
            libc::SYS_sendfile => a.call4(data::body::sendfile),
            libc::SYS_splice => a.call6(data::body::splice),
            libc::SYS_mmap => a.call6(mmap::body::mmap),
            libc::SYS_madvise => a.call3(mmap::body::madvise),
            libc::SYS_munmap => a.call2(mmap::body::munmap),
            libc::SYS_mremap => a.call5(mmap::body::mremap),
            libc::SYS_mprotect => a.call3(mmap::body::mprotect),
            libc::SYS_pkey_mprotect => a.call4(mmap::body::pkey_mprotect),
            libc::SYS_msync => a.call3(mmap::body::msync),
            libc::SYS_setrlimit => a.call2(limit::body::setrlimit),
            libc::SYS_prlimit64 => a.call4(limit::body::prlimit),
            libc::SYS_io_uring_setup => fail(refuse(Refusal::IoUring)),
            libc::SYS_io_submit => returned(a.call3(libaio::submit)),
            libc::SYS_io_getevents => returned(a.call5(libaio::events)),
            libaio::SYS_IO_PGETEVENTS => returned(a.call6(libaio::events_with_mask)),
            libc::SYS_io_destroy => returned(a.call1(libaio::destroy)),
            _ => return None,
        })
    }
}

/// Descriptors themselves, and sockets.
unsafe fn descriptor_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_openat => a.call4(open::body::openat),
            libc::SYS_openat2 => open_how(a)?,
            libc::SYS_close => a.call1(open::body::close),
            libc::SYS_close_range => a.call3(open::body::close_range),
            libc::SYS_dup => a.call1(open::body::dup),
            libc::SYS_dup3 => a.call3(open::body::dup3),
            libc::SYS_fcntl => a.call3(control::body::fcntl),
            libc::SYS_flock => a.call2(control::body::flock),
            libc::SYS_ioctl => a.call3(control::body::ioctl),
            libc::SYS_sendmsg => a.call3(socket::body::sendmsg),
            libc::SYS_sendmmsg => a.call4(socket::body::sendmmsg),
            libc::SYS_recvmsg => a.call3(socket::body::recvmsg),
            libc::SYS_recvmmsg => a.call5(socket::body::recvmmsg),
            libc::SYS_bind => a.call3(socket::body::bind),
            libc::SYS_connect => a.call3(socket::body::connect),
            libc::SYS_sendto => a.call6(socket::body::sendto),
            libc::SYS_recvfrom => a.call6(socket::body::recvfrom),
            libc::SYS_accept => a.call3(socket::body::accept),
            libc::SYS_accept4 => a.call4(socket::body::accept4),
            libc::SYS_getsockname => a.call3(socket::body::getsockname),
            libc::SYS_getpeername => a.call3(socket::body::getpeername),
            libc::SYS_pidfd_getfd => a.call3(socket::body::pidfd_getfd),
            libc::SYS_inotify_add_watch => a.call3(kernel::body::inotify_add_watch),
            libc::SYS_fanotify_mark => a.call5(kernel::body::fanotify_mark),
            _ => return None,
        })
    }
}

/// `openat2`: on the volume as `openat`, but a way to resolve paths that only the kernel knows is "not implemented", after
/// which programs use `openat`.
unsafe fn open_how(a: Arguments) -> Option<c_long> {
    if !crate::routing::is_on_volume(a.at(0), a.at(1)) {
        return None;
    }
    if a.at::<size_t>(3) < size_of::<libc::open_how>() {
        return Some(fail(libc::EINVAL));
    }
    // SAFETY: the program passes a structure of that size, when it is not null.
    let Some(how) = (unsafe { a.at::<*const libc::open_how>(2).as_ref() }) else {
        return Some(fail(libc::EFAULT));
    };
    if how.resolve != 0 {
        return Some(fail(libc::ENOSYS));
    }
    // SAFETY: as for `openat`.
    Some(unsafe { open::body::openat(a.at(0), a.at(1), how.flags as c_int, how.mode as c_uint) }.into())
}

/// Attributes.
unsafe fn attribute_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_fstat => a.call2(attributes::body::fstat),
            libc::SYS_newfstatat => a.call4(attributes::body::fstatat),
            libc::SYS_statx => a.call5(attributes::body::statx),
            libc::SYS_statfs => a.call2(attributes::body::statfs),
            libc::SYS_fstatfs => a.call2(attributes::body::fstatfs),
            libc::SYS_faccessat => attributes::body::faccessat(a.at(0), a.at(1), a.at(2), 0).into(),
            libc::SYS_faccessat2 => a.call4(attributes::body::faccessat),
            libc::SYS_fchmod => a.call2(change::body::fchmod),
            libc::SYS_fchmodat => change::body::fchmodat(a.at(0), a.at(1), a.at(2), 0).into(),
            SYS_FCHMODAT2 => a.call4(change::body::fchmodat),
            libc::SYS_fchown => a.call3(change::body::fchown),
            libc::SYS_fchownat => a.call5(change::body::fchownat),
            // Without a path it means the descriptor, which only the system call says so.
            libc::SYS_utimensat if a.at::<*const c_char>(1).is_null() => {
                change::body::futimens(a.at(0), a.at(2)).into()
            }
            libc::SYS_utimensat => a.call4(change::body::utimensat),
            libc::SYS_getxattr => a.call4(xattr::body::getxattr),
            libc::SYS_lgetxattr => a.call4(xattr::body::lgetxattr),
            libc::SYS_fgetxattr => a.call4(xattr::body::fgetxattr),
            libc::SYS_setxattr => a.call5(xattr::body::setxattr),
            libc::SYS_lsetxattr => a.call5(xattr::body::lsetxattr),
            libc::SYS_fsetxattr => a.call5(xattr::body::fsetxattr),
            libc::SYS_listxattr => a.call3(xattr::body::listxattr),
            libc::SYS_llistxattr => a.call3(xattr::body::llistxattr),
            libc::SYS_flistxattr => a.call3(xattr::body::flistxattr),
            libc::SYS_removexattr => a.call2(xattr::body::removexattr),
            libc::SYS_lremovexattr => a.call2(xattr::body::lremovexattr),
            libc::SYS_fremovexattr => a.call2(xattr::body::fremovexattr),
            libc::SYS_umask => a.call1(change::body::umask),
            libc::SYS_mknodat => a.call4(names::body::mknodat),
            libc::SYS_name_to_handle_at => a.call5(names::body::name_to_handle_at),
            _ => return None,
        })
    }
}

/// Names and directories.
unsafe fn name_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_getdents64 => a.call3(dir::body::getdents64),
            libc::SYS_mkdirat => a.call3(names::body::mkdirat),
            libc::SYS_unlinkat => a.call3(names::body::unlinkat),
            libc::SYS_renameat => a.call4(names::body::renameat),
            libc::SYS_renameat2 => a.call5(names::body::renameat2),
            libc::SYS_linkat => a.call5(names::body::linkat),
            libc::SYS_symlinkat => a.call3(names::body::symlinkat),
            libc::SYS_readlinkat => a.call4(names::body::readlinkat),
            libc::SYS_chdir => a.call1(cwd::body::chdir),
            libc::SYS_fchdir => a.call1(cwd::body::fchdir),
            libc::SYS_chroot => a.call1(cwd::body::chroot),
            libc::SYS_getcwd if process::cwd().is_some() => {
                let out: *mut c_char = a.at(0);
                // The system call returns the length, the NUL included.
                match cwd::body::getcwd(out, a.at(1)) {
                    path if path.is_null() || out.is_null() => fail(libc::ERANGE),
                    path => libc::strlen(path) as c_long + 1,
                }
            }
            libc::SYS_mount => a.call5(kernel::body::mount),
            _ => return None,
        })
    }
}

/// Processes.
unsafe fn process_call(number: c_long, a: Arguments) -> Option<c_long> {
    // SAFETY: as above.
    unsafe {
        Some(match number {
            libc::SYS_execve => a.call3(exec::body::execve),
            libc::SYS_execveat => a.call5(exec::body::execveat),
            libc::SYS_exit_group => exit::body::_exit(a.at(0)),
            libc::SYS_prctl => {
                limit::before_prctl(a.at(0), a.at(1));
                return None;
            }
            libc::SYS_seccomp => {
                limit::before_seccomp(a.at(0));
                return None;
            }
            libc::SYS_unshare if crate::process::fork::check_unshare(a.at(0)).is_err() => fail(libc::EINVAL),
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
                identity::by_number(|| real::syscall(number, a.at(0), a.at(1), a.at(2), 0, 0, 0))
            }
            libc::SYS_setfsuid | libc::SYS_setfsgid => {
                identity::of_files(c_long::from(a.at::<c_int>(0)), || {
                    real::syscall(number, a.at(0), 0, 0, 0, 0, 0)
                })
            }
            // A child with memory of its own, on its parent's stack. One that would share memory until it executes gets
            // its own, as with `vfork`.
            libc::SYS_clone
                if a.at::<c_long>(1) == 0
                    && (a.at::<c_int>(0) & libc::CLONE_VM == 0
                        || a.at::<c_int>(0) & libc::CLONE_VFORK != 0
                            && a.at::<c_int>(0) & libc::CLONE_THREAD == 0) =>
            {
                if let Err(error) = crate::process::fork::check_sharing(a.at(0)) {
                    return Some(fail(error));
                }
                let flags = a.at::<c_long>(0) & !c_long::from(libc::CLONE_VM);
                fork::child_by(|| real::syscall(number, flags, 0, a.at(2), a.at(3), a.at(4), 0))
            }
            libc::SYS_clone => {
                crate::process::fork::before_thread(a.at(0));
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
            libc::SYS_open => a.call3(open::body::open),
            libc::SYS_creat => a.call2(open::body::creat),
            libc::SYS_dup2 => a.call2(open::body::dup2),
            libc::SYS_stat => a.call2(attributes::body::stat),
            libc::SYS_lstat => a.call2(attributes::body::lstat),
            libc::SYS_access => a.call2(attributes::body::access),
            libc::SYS_chmod => a.call2(change::body::chmod),
            libc::SYS_chown => a.call3(change::body::chown),
            libc::SYS_lchown => a.call3(change::body::lchown),
            libc::SYS_mkdir => a.call2(names::body::mkdir),
            libc::SYS_rmdir => a.call1(names::body::rmdir),
            libc::SYS_unlink => a.call1(names::body::unlink),
            libc::SYS_rename => a.call2(names::body::rename),
            libc::SYS_link => a.call2(names::body::link),
            libc::SYS_symlink => a.call2(names::body::symlink),
            libc::SYS_readlink => a.call3(names::body::readlink),
            libc::SYS_mknod => a.call3(names::body::mknod),
            libc::SYS_utime => a.call2(change::body::utime),
            libc::SYS_utimes => a.call2(change::body::utimes),
            libc::SYS_futimesat => a.call3(change::body::futimesat),
            // A child that would share memory until it executes gets its own, as with the function.
            libc::SYS_fork | libc::SYS_vfork => fork::body::fork().into(),
            // The old form of directory entries, which no program of today asks for.
            libc::SYS_getdents if crate::descriptors::table::is_weft(a.at(0)) => fail(libc::ENOSYS),
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
            libc::SYS_rt_sigprocmask if a.at::<c_int>(0) != libc::SIG_UNBLOCK => {
                let mask = a.at::<*const u64>(1).as_ref()? & !OURS;
                Some(by_kernel(number, a.with(1, &raw const mask as c_long)))
            }
            libc::SYS_rt_sigaction => {
                let mut action = *a.at::<*const Action>(1).as_ref()?;
                action.mask &= !OURS;
                let taken = a.at::<c_int>(0) == libc::SIGSYS;
                let action = if taken { std::ptr::null() } else { &raw const action };
                Some(by_kernel(number, a.with(1, action as c_long)))
            }
            libc::SYS_rt_sigsuspend => with_mask(number, a, 0),
            libc::SYS_ppoll => with_mask(number, a, 3),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => with_mask(number, a, 4),
            libc::SYS_pselect6 => {
                // The address of a mask and its length.
                let [given, len] = *a.at::<*const [usize; 2]>(5).as_ref()?;
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
        let mask = a.at::<*const u64>(place).as_ref()? & !OURS;
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
