//! The one error of this crate.

/// Why a computation gives nothing. It has changed nothing either: all that it had is gone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `EINVAL`: the codec has no such level.
    #[error("{codec} has no compression level {level}; it has {levels}")]
    Level {
        /// The codec's name.
        codec: &'static str,
        /// The level that was asked for.
        level: i32,
        /// Those that there are.
        levels: &'static str,
    },
    /// `EBADMSG`: the bytes are not what the codec makes, or are damaged.
    #[error("the bytes are not {0}, or are damaged")]
    Corrupt(&'static str),
    /// `E2BIG`: the result would be longer than the caller allows.
    #[error("the result is longer than {max} bytes")]
    TooLong {
        /// Bytes that are allowed.
        max: usize,
    },
    /// `ENOMEM`: this machine has no memory for it, or a function asks for more than it may have.
    #[error("no memory for {0}")]
    NoMemory(&'static str),
    /// `ENOEXEC`: the bytes are not a module that can be a function.
    #[error("the module cannot be called: {0}")]
    Module(String),
    /// `E2BIG`: the module has more bytes than a module may have.
    #[error("the module has {len} bytes; {max} are allowed")]
    ModuleTooLong {
        /// Its bytes.
        len: usize,
        /// Bytes that are allowed.
        max: usize,
    },
    /// `ETIME`: the function has used up its fuel.
    #[error("the function has not ended within {fuel} units of fuel")]
    Fuel {
        /// The fuel that it had.
        fuel: u64,
    },
    /// `ETIME`: the caller has stopped the function.
    #[error("the function was stopped after {ns} ns")]
    Stopped {
        /// Nanoseconds that it had taken by then.
        ns: u64,
    },
    /// `EFAULT`: the function did what no function may, such as reading beyond its memory.
    #[error("the function failed: {0}")]
    Trap(String),
}

impl Error {
    /// The errno that says this to a C program.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Level { .. } => libc::EINVAL,
            Error::Corrupt(_) => libc::EBADMSG,
            Error::TooLong { .. } | Error::ModuleTooLong { .. } => libc::E2BIG,
            Error::NoMemory(_) => libc::ENOMEM,
            Error::Module(_) => libc::ENOEXEC,
            Error::Fuel { .. } | Error::Stopped { .. } => libc::ETIME,
            Error::Trap(_) => libc::EFAULT,
        }
    }
}
