//! Descriptors of this library's own, out of the program's way: the program neither uses nor closes them.

use super::table::{self, OWN};
use crate::owned::Fd;
use crate::sys;
use libc::c_int;
use weft_client::Errno;

/// Programs count on low numbers.
const FLOOR: usize = 700;

/// Moves a descriptor to a high number and marks it; where no number is high, it stays where it is.
pub fn keep(fd: Fd) -> c_int {
    let high = sys::fcntl(*fd, libc::F_DUPFD_CLOEXEC, FLOOR);
    mark(high.map_or_else(|_| fd.keep(), |high| high as c_int))
}

/// As [`keep`], and the descriptor goes where no number is high.
pub fn high(fd: Fd) -> Result<c_int, Errno> {
    sys::fcntl(*fd, libc::F_DUPFD_CLOEXEC, FLOOR).map(|high| mark(high as c_int))
}

fn mark(fd: c_int) -> c_int {
    table::swap(fd, Some(OWN));
    fd
}

/// Closes one that was kept.
pub fn let_go(fd: c_int) {
    if fd >= 0 {
        table::swap(fd, None);
        let _ = weft_client::sys::close(fd);
    }
}
