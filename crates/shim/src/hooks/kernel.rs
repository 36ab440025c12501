//! What only the kernel can do, for files that it stores: watching and mounting.

use crate::report::{Refusal, refused};
use crate::routing::{Last, on_path, on_target};
use crate::sys;
use libc::{c_char, c_int, c_uint, c_ulong, c_void};

/// Whether the source of a mount is a path, and not a word for the file system (`tmpfs`, `none`).
unsafe fn is_path(source: *const c_char, flags: c_ulong) -> bool {
    // SAFETY: the program promises a C string, when it is not null.
    let has_slash = || !source.is_null() && unsafe { sys::bytes(source) }.contains(&b'/');
    flags & libc::MS_REMOUNT == 0 && (flags & (libc::MS_BIND | libc::MS_MOVE) != 0 || has_slash())
}

hooks! {
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
        on_target(path, |path| real::inotify_add_watch(fd, path, mask), |_| refused(Refusal::Watch))
    }

    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: *const c_char) -> c_int {
        let real = |dirfd, path| real::fanotify_mark(fd, flags, mask, dirfd, path);
        on_path(dirfd, path, Last::Follow, real, |_| refused(Refusal::Watch))
    }

    fn mount(source: *const c_char, target: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void) -> c_int {
        let mount = |source| {
            on_target(target, |target| real::mount(source, target, kind, flags, data), |_| refused(Refusal::Mount))
        };
        if is_path(source, flags) { on_target(source, mount, |_| refused(Refusal::Mount)) } else { mount(source) }
    }
}
