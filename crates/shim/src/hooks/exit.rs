//! Ending the process.

use libc::c_int;

hooks! {
    /// Ends at once, past destructors: what a kernel would keep of shared maps is saved here.
    fn _exit(status: c_int) -> ! {
        crate::mapping::pages::release_all();
        real::_exit(status)
    }

    fn quick_exit(status: c_int) -> ! {
        crate::mapping::pages::write_back_all();
        real::quick_exit(status)
    }
}
