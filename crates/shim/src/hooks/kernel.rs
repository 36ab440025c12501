//! What only the kernel can do, for files that it stores: watching and mounting.

use crate::report::{Refusal, refuse, refused};
use crate::routing::{Last, fail, is_on_volume, on_path, on_target};
use libc::{c_char, c_int, c_uint, c_void};

hooks! {
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
        on_target(path, |path| real::inotify_add_watch(fd, path, mask), |_| refused(Refusal::Watch))
    }

    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: *const c_char) -> c_int {
        let real = |dirfd, path| real::fanotify_mark(fd, flags, mask, dirfd, path);
        on_path(dirfd, path, Last::Follow, real, |_| refused(Refusal::Watch))
    }

    fn mount(source: *const c_char, target: *const c_char, kind: *const c_char, flags: libc::c_ulong, data: *const c_void) -> c_int {
        if is_on_volume(libc::AT_FDCWD, source) || is_on_volume(libc::AT_FDCWD, target) {
            return fail(refuse(Refusal::Mount));
        }
        real::mount(source, target, kind, flags, data)
    }
}
