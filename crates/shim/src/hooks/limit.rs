//! Calls that change the process's limits, its system calls among them.

use crate::process::{self, file_limit};
use crate::report::{Refusal, refuse};
use libc::{c_int, c_long, c_uint, c_ulong, c_void, pid_t};

const FILE_SIZE: c_uint = libc::RLIMIT_FSIZE as c_uint;

/// The call has been made: reads the limit again, which it may have changed.
fn changed(resource: c_uint) {
    if resource == FILE_SIZE {
        file_limit::look();
    }
}

/// The process is about to confine itself: warns about the effect on weft files while it still can.
fn confining(strict: bool) {
    if process::is_connected() {
        // A forked child could not ask for its memory any more.
        let _ = process::client();
        refuse(if strict { Refusal::Confined } else { Refusal::Filtered });
    }
}

/// `prctl` is about to be called.
pub fn before_prctl(option: c_int, argument: c_ulong) {
    if option == libc::PR_SET_SECCOMP {
        confining(argument == c_ulong::from(libc::SECCOMP_MODE_STRICT));
    }
}

/// The system call `seccomp` is about to be made.
pub fn before_seccomp(operation: c_uint) {
    if matches!(operation, libc::SECCOMP_SET_MODE_STRICT | libc::SECCOMP_SET_MODE_FILTER) {
        confining(operation == libc::SECCOMP_SET_MODE_STRICT);
    }
}

hooks! {
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        before_prctl(option, a);
        real::prctl(option, a, b, c, d)
    }

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
