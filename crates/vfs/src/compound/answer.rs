//! What a program answers.

use crate::{Attr, FsError};

/// A value that a program exports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Bytes.
    Bytes(Vec<u8>),
    /// A number.
    Num(u64),
    /// Attributes. Those of a file that the program has changed before have its new size, owner, mode and links, but the times and the
    /// blocks of before.
    Attr(Box<Attr>),
}

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done; with its value if that is exported.
    Done(Option<Value>),
    /// Its guard did not hold, it used the value of one that was skipped, or it came behind the one that failed.
    Skipped,
    /// It failed with this errno.
    Failed(i32),
}

/// What a program answers. When an operation failed, the values of those before it are there all the same: whoever compared and lost gets
/// what is there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// What became of each operation.
    pub outcomes: Vec<Outcome>,
}

impl Answer {
    /// The operation that failed, and its errno.
    pub fn failed(&self) -> Option<(usize, i32)> {
        self.outcomes.iter().enumerate().find_map(|(at, outcome)| match outcome {
            Outcome::Failed(errno) => Some((at, *errno)),
            _ => None,
        })
    }

    /// The value that an operation exported.
    pub fn value(&self, at: usize) -> Option<&Value> {
        match self.outcomes.get(at)? {
            Outcome::Done(value) => value.as_ref(),
            _ => None,
        }
    }

    /// The bytes that an operation exported.
    pub fn bytes(&self, at: usize) -> Option<&[u8]> {
        match self.value(at)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number that an operation exported.
    pub fn num(&self, at: usize) -> Option<u64> {
        match self.value(at)? {
            Value::Num(num) => Some(*num),
            _ => None,
        }
    }
}

/// Why an operation of a program failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The file system refused it.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// ECANCELED
    #[error("an expected comparison does not hold")]
    Expect,
    /// EBADMSG
    #[error("bytes do not have the CRC32C that they should have")]
    Crc,
    /// ERANGE
    #[error("a range of bytes is not there")]
    Range,
    /// EOVERFLOW
    #[error("a number is too large or below zero")]
    Overflow,
    /// EMSGSIZE
    #[error("a limit of programs: {0}")]
    Limit(&'static str),
    /// EBADF
    #[error("the file is not open for this")]
    NotOpenFor,
    /// EINVAL
    #[error("an input that the program uses does not come with this run, or is of another type")]
    NoInput,
    /// EBUSY
    #[error("the path ends in the root, . or ..")]
    NoName,
    /// EIO: the changes were made, all of them, and a power cut may take them back. It is told of the first change.
    #[error("the changes were made, and are not durable: {0}")]
    NotDurable(FsError),
    /// EXDEV
    #[error("the path leads out of the volume")]
    Outside,
    /// EBADMSG, E2BIG, ENOMEM, ENOEXEC, ETIME or EFAULT; see [`weft_compute::Error`].
    #[error(transparent)]
    Compute(#[from] weft_compute::Error),
}

impl Failure {
    /// Whether a name led elsewhere by the time that it was relied on: what was done can be done again, as nothing has changed.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Failure::Fs(FsError::Stale))
    }

    /// The errno that the answer tells.
    pub fn errno(&self) -> i32 {
        match self {
            Failure::Fs(error) => error.errno(),
            Failure::Expect => libc::ECANCELED,
            Failure::Crc => libc::EBADMSG,
            Failure::Range => libc::ERANGE,
            Failure::Overflow => libc::EOVERFLOW,
            Failure::Limit(_) => libc::EMSGSIZE,
            Failure::NotOpenFor => libc::EBADF,
            Failure::NoInput => libc::EINVAL,
            Failure::NoName => libc::EBUSY,
            Failure::NotDurable(_) => libc::EIO,
            Failure::Outside => libc::EXDEV,
            Failure::Compute(error) => error.errno(),
        }
    }
}
