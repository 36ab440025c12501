//! Calls that change the process's limits.

use crate::file_limit;
use libc::{c_int, c_long, c_uint, c_void, pid_t};

const FILE_SIZE: c_uint = libc::RLIMIT_FSIZE as c_uint;

/// The call has been made: what it may have changed is looked at.
fn changed(resource: c_uint) {
    if resource == FILE_SIZE {
        file_limit::look();
    }
}

hooks! {
    fn setrlimit(resource: c_uint, limit: *const c_void) -> c_int {
        let result = real::setrlimit(resource, limit);
        changed(resource);
        result
    }

    fn prlimit(pid: pid_t, resource: c_uint, new: *const c_void, old: *mut c_void) -> c_int {
        let result = real::prlimit(pid, resource, new, old);
        changed(resource);
        result
    }

    fn ulimit(command: c_int, value: c_long) -> c_long {
        let result = real::ulimit(command, value);
        changed(FILE_SIZE);
        result
    }
}
