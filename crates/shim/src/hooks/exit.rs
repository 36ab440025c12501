//! Ending the process.

use libc::c_int;

hooks! {
    /// Ends at once, past destructors.
    fn _exit(status: c_int) -> ! as _Exit {
        real::_exit(status)
    }
}
