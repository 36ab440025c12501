//! The ways in which weft intercepts the calls of a program.

use crate::error::CliError;
use std::ffi::OsStr;

/// `PR_SET_SYSCALL_USER_DISPATCH`.
const SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;

/// How a program's calls reach weft.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intercept {
    /// Calls of libc functions
    #[default]
    Preload,
    /// Calls of libc functions, and system calls that the program makes without libc (Syscall User Dispatch). For each
    /// system call without libc, the kernel sends a signal, so these calls are slower. Needs Linux 5.11 or newer on
    /// x86-64
    Sud,
}

impl Intercept {
    /// Refuses what this system cannot do.
    pub fn check(self) -> Result<(), CliError> {
        // SAFETY: switches off what is not on; changes nothing.
        let can = || unsafe { libc::prctl(SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) } == 0;
        if self == Intercept::Preload || (cfg!(target_arch = "x86_64") && can()) {
            return Ok(());
        }
        Err(CliError::said(
            "--intercept sud: the kernel of this machine cannot redirect the system calls of a program",
            "use Linux 5.11 or newer on x86-64, or leave the option out: weft then intercepts calls of libc",
        ))
    }

    /// The environment variable that the preloaded library reads.
    pub fn variable(self) -> Option<(&'static str, &'static OsStr)> {
        (self == Intercept::Sud).then(|| ("WEFT_INTERCEPT", OsStr::new("sud")))
    }
}
