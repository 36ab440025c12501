//! How a program's calls reach weft.

use crate::error::CliError;
use std::ffi::OsStr;

/// `PR_SET_SYSCALL_USER_DISPATCH`.
const SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;

/// How a program's calls reach weft.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intercept {
    /// Its calls of libc
    #[default]
    Preload,
    /// Those, and the system calls that it makes by itself (Linux 5.11, x86-64); each of these costs a signal
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
            "--intercept sud: this system cannot hand over a program's system calls",
            "it takes Linux 5.11 or newer on x86-64; without the option, what the program does by libc is seen",
        ))
    }

    /// What the preloaded library is told.
    pub fn variable(self) -> Option<(&'static str, &'static OsStr)> {
        (self == Intercept::Sud).then(|| ("WEFT_INTERCEPT", OsStr::new("sud")))
    }
}
