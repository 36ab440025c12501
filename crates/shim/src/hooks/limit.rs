//! Calls that change the process's limits, its system calls among them.

use crate::process::{self, file_limit};
use crate::report::{Refusal, refuse};
use crate::sys;
use libc::{c_int, c_long, c_uint, c_ulong, c_void, pid_t};

const FILE_SIZE: c_uint = libc::RLIMIT_FSIZE as c_uint;

const ADDRESS_SPACE: c_uint = libc::RLIMIT_AS as c_uint;
const DESCRIPTORS: c_uint = libc::RLIMIT_NOFILE as c_uint;

/// Makes the call `make`, which may change the limit on `resource`; errno stays as it left it.
fn change<T>(resource: c_uint, make: impl FnOnce() -> T) -> T {
    if matches!(resource, ADDRESS_SPACE | DESCRIPTORS) {
        process::hear_ahead();
    }
    let result = make();
    let error = sys::errno();
    // The limit is read even when the call has failed.
    match resource {
        FILE_SIZE => file_limit::look(),
        ADDRESS_SPACE => process::fit_into_address_space(),
        _ => {}
    }
    sys::set_errno(error);
    result
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
        change(resource, || real::setrlimit(resource, limit))
    }

    fn prlimit(pid: pid_t, resource: c_uint, new: *const c_void, old: *mut c_void) -> c_int {
        if new.is_null() {
            return real::prlimit(pid, resource, new, old);
        }
        change(resource, || real::prlimit(pid, resource, new, old))
    }

    fn ulimit(command: c_int, value: c_long) -> c_long {
        change(FILE_SIZE, || real::ulimit(command, value))
    }
}
