//! What only the kernel can do, for files that it stores: watching and mounting.

use crate::report::{Refusal, refuse};
use crate::routing::{Last, fail, on_path};
use libc::{c_char, c_int, c_uint, c_void};

hooks! {
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
        let on_volume = |path: *const c_char| crate::routing::is_on_volume(libc::AT_FDCWD, path);
        if on_volume(source) || on_volume(target) {
            return fail(refuse(Refusal::Mount));
        }
        real::mount(source, target, kind, flags, data)
    }
}
