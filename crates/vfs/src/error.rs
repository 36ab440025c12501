//! Errors of a file core, each with its errno.

/// Why a file-system operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FsError {
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR
    #[error("is a directory")]
    IsDirectory,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// EINVAL
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// ENAMETOOLONG
    #[error("file name too long")]
    NameTooLong,
    /// ENOSPC
    #[error("no space left on the volume")]
    NoSpace,
    /// EDQUOT
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// EXDEV
    #[error("the two places count to different quotas")]
    CrossQuota,
    /// EFBIG
    #[error("file too large")]
    TooLarge,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// ELOOP
    #[error("too many levels of symbolic links")]
    Loop,
    /// EACCES
    #[error("permission denied")]
    Access,
    /// EPERM
    #[error("operation not permitted")]
    NotPermitted,
    /// ENODATA: no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// ERANGE / E2BIG: an extended attribute larger than allowed.
    #[error("attribute value too large")]
    AttributeTooLarge,
    /// ENXIO: no data or hole after this offset.
    #[error("no data after this offset")]
    NoData,
    /// EOPNOTSUPP
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// ENFILE
    #[error("too many open files: {0}")]
    TooManyFiles(&'static str),
    /// ESTALE: no inode has this number (any more).
    #[error("stale inode")]
    Stale,
    /// EROFS
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// EIO: a checksum does not match, with the place in the terms of the core.
    #[error("checksum mismatch in {0}")]
    Checksum(String),
    /// ENOSPC: the file system of the host has no room for the device, with its name and what to do.
    #[error("{0}")]
    HostFull(String),
    /// EIO: the device failed.
    #[error("device: {0}")]
    Device(String),
    /// This errno: a call of the process did, which was made in the place of an operation.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Call(i32),
}

impl FsError {
    /// The errno that a program gets.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::NotFound => libc::ENOENT,
            FsError::Exists => libc::EEXIST,
            FsError::NotDirectory => libc::ENOTDIR,
            FsError::IsDirectory => libc::EISDIR,
            FsError::NotEmpty => libc::ENOTEMPTY,
            FsError::Invalid(_) => libc::EINVAL,
            FsError::NameTooLong => libc::ENAMETOOLONG,
            FsError::NoSpace | FsError::HostFull(_) => libc::ENOSPC,
            FsError::QuotaExceeded => libc::EDQUOT,
            FsError::CrossQuota => libc::EXDEV,
            FsError::TooLarge => libc::EFBIG,
            FsError::TooManyLinks => libc::EMLINK,
            FsError::Loop => libc::ELOOP,
            FsError::Access => libc::EACCES,
            FsError::NotPermitted => libc::EPERM,
            FsError::NoAttribute => libc::ENODATA,
            FsError::AttributeTooLarge => libc::E2BIG,
            FsError::NoData => libc::ENXIO,
            FsError::Unsupported(_) => libc::EOPNOTSUPP,
            FsError::TooManyFiles(_) => libc::ENFILE,
            FsError::Stale => libc::ESTALE,
            FsError::ReadOnly(_) => libc::EROFS,
            FsError::Checksum(_) | FsError::Device(_) => libc::EIO,
            FsError::Call(errno) => *errno,
        }
    }
}
