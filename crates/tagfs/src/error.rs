//! Errors of making, mounting and checking a volume.

use std::io::ErrorKind;
use weft_tags::Error;
use weft_vfs::FsError;

/// Why a volume cannot be made, mounted or checked.
#[derive(Debug, thiserror::Error)]
pub enum TagFsError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] Error),
    /// The store holds no file system.
    #[error("a tag store without a file system in it; make one with 'weft format --core tagfs'")]
    NoFileSystem,
    /// The file system was written in another version of the format.
    #[error(
        "the file system has format version {found}, this program reads {known}; use a program of that version"
    )]
    Version {
        /// The version found.
        found: u32,
        /// The version known here.
        known: u32,
    },
    /// The file system has something that is newer than this program.
    #[error(
        "the file system has features (bits {unknown:#x}) that this program does not know; use a newer one"
    )]
    Features {
        /// Their bits.
        unknown: u32,
    },
    /// A node does not hold what it must.
    #[error("damaged: {0}; 'weft fsck' lists the damage")]
    Damaged(String),
    /// The label is too long.
    #[error("a label of {bytes} bytes; the most is {max}")]
    Label {
        /// Its length.
        bytes: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// The file system failed while it was being brought up.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// An error of the store as the file-system interface reports it.
pub(crate) fn failed(error: Error) -> FsError {
    match error {
        Error::Full { .. } | Error::CacheFull { .. } => FsError::NoSpace,
        Error::Io { source, .. } if is_full(source.kind()) => FsError::NoSpace,
        Error::TooLarge { .. } => FsError::TooLarge,
        Error::ReadOnly | Error::NotRecovered { .. } => FsError::ReadOnly(error.to_string()),
        Error::Damaged { what } => FsError::Checksum(what),
        error => FsError::Device(error.to_string()),
    }
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// The error of a node that does not hold what it must.
pub(crate) fn damaged(what: impl std::fmt::Display) -> FsError {
    FsError::Checksum(what.to_string())
}
