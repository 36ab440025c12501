//! The return codes of functions.

use std::io::ErrorKind;
use weft_core::serve::ServeError;
use weft_device::DeviceError;
use weft_device::nand::FlashError;
use weft_flash::LevelError;

/// An argument is a null pointer or cannot be.
pub const WEFT_EINVAL: i32 = -1;
/// The address is outside the grant, or in no range.
pub const WEFT_EOUTSIDE: i32 = -2;
/// The rules of flash forbid it: wrong order, programmed already, not programmed, not mapped.
pub const WEFT_ERULE: i32 = -3;
/// No flash, no block or no page is left for it, or no space on the file system of the device's image.
pub const WEFT_ENOSPC: i32 = -4;
/// The page cannot be read, or the block is bad.
pub const WEFT_EIO: i32 = -5;
/// There is no such grant, image, file or server, no monitor on the device, or no checkpoint of the policy level on the grant; or an
/// operation of a chain has no such value.
pub const WEFT_ENOENT: i32 = -6;
/// There is such a grant or image, or somebody uses it or the device; or another transaction of this thread holds the s-node; or, with
/// the errno EDEADLK, a signal handler that has interrupted a function of this library in its thread calls one.
pub const WEFT_EBUSY: i32 = -7;

/// Two transactions wait for each other, or another one has held the s-node for too long: abort this one and run it again.
pub const WEFT_EAGAIN: i32 = -8;
/// The caller has no permission for it.
pub const WEFT_EACCES: i32 = -9;

/// The grant holds data of another level, which this one would erase.
pub const WEFT_ELEVEL: i32 = -10;

/// An operation of a chain failed. `weft_error_errno` has its errno.
pub const WEFT_EFAILED: i32 = -11;

/// Of a call to the server of a volume.
pub(crate) fn of_errno(errno: i32) -> i32 {
    match errno {
        // No socket, or one that nobody listens at.
        libc::ENOENT | libc::ECONNREFUSED => WEFT_ENOENT,
        libc::EACCES | libc::EPERM | libc::EROFS => WEFT_EACCES,
        libc::EBUSY | libc::EEXIST | libc::EDEADLK => WEFT_EBUSY,
        libc::ENOSPC | libc::EDQUOT => WEFT_ENOSPC,
        libc::EAGAIN => WEFT_EAGAIN,
        libc::EINVAL
        | libc::E2BIG
        | libc::EBADF
        | libc::ENAMETOOLONG
        | libc::ENOTDIR
        | libc::EISDIR
        | libc::ELOOP => WEFT_EINVAL,
        _ => WEFT_EIO,
    }
}

pub(crate) fn of_store(error: &weft_tags::Error) -> i32 {
    use weft_tags::Error;
    match error {
        Error::InUse { .. } | Error::WaitsForItself(_) => WEFT_EBUSY,
        Error::Open { source, .. } if source.kind() == std::io::ErrorKind::NotFound => WEFT_ENOENT,
        Error::Open { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => WEFT_EBUSY,
        Error::NotAStore { .. } | Error::NoSuchNode(_) | Error::NoSuchEdge(_) | Error::NoSuchSnode(_) => {
            WEFT_ENOENT
        }
        Error::HasEdges(_)
        | Error::EdgeTypeInUse { .. }
        | Error::EdgeExists(_)
        | Error::WrongType { .. }
        | Error::Unordered => WEFT_ERULE,
        Error::Full { .. } | Error::CacheFull { .. } | Error::NotRecovered { .. } => WEFT_ENOSPC,
        Error::Deadlock(_) | Error::LockTimeout { .. } => WEFT_EAGAIN,
        Error::Forbidden { .. } | Error::ReadOnly => WEFT_EACCES,
        Error::Open { .. }
        | Error::Io { .. }
        | Error::Target(_)
        | Error::Stopped { .. }
        | Error::Forked
        | Error::Version { .. }
        | Error::Damaged { .. } => WEFT_EIO,
        _ => WEFT_EINVAL,
    }
}

pub(crate) fn of_session(error: &weft_tags::SessionError) -> i32 {
    use weft_tags::Refusal;
    match error.refusal {
        Refusal::NoSuchId | Refusal::NoSuchNode | Refusal::NoSuchEdge => WEFT_ENOENT,
        Refusal::WrongType
        | Refusal::NotEmpty
        | Refusal::EdgeExists
        | Refusal::NoTransaction
        | Refusal::InTransaction => WEFT_ERULE,
        Refusal::Forbidden => WEFT_EACCES,
        Refusal::Deadlock | Refusal::TransactionEnded => WEFT_EAGAIN,
        Refusal::Full | Refusal::TooManyIds => WEFT_ENOSPC,
        Refusal::BadRequest => WEFT_EINVAL,
        _ => WEFT_EIO,
    }
}

/// Of a device that cannot be made or opened.
fn of_device(error: &DeviceError) -> i32 {
    match error {
        DeviceError::Busy(_) => WEFT_EBUSY,
        DeviceError::BadGeometry(_) => WEFT_EINVAL,
        DeviceError::HostFull { .. } => WEFT_ENOSPC,
        DeviceError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => WEFT_ENOENT,
            ErrorKind::AlreadyExists => WEFT_EBUSY,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => WEFT_EACCES,
            _ => WEFT_EIO,
        },
        _ => WEFT_EIO,
    }
}

pub(crate) fn of(error: &LevelError) -> i32 {
    match error {
        LevelError::OutsideGrant { .. } | LevelError::NoRange { .. } => WEFT_EOUTSIDE,
        LevelError::OutOfOrder { .. }
        | LevelError::AlreadyProgrammed { .. }
        | LevelError::NotProgrammed { .. }
        | LevelError::EraseIncomplete { .. }
        | LevelError::NotMapped(_) => WEFT_ERULE,
        LevelError::NoFreeLuns { .. }
        | LevelError::NoFreeBlock { .. }
        | LevelError::NoFreeRow { .. }
        | LevelError::TooManyMapped { .. }
        | LevelError::BlockFull(_)
        | LevelError::NoSpare { .. }
        | LevelError::HostFull(_)
        | LevelError::NoRoom { .. } => WEFT_ENOSPC,
        LevelError::NoSuchGrant(_) | LevelError::NotFormatted(_) | LevelError::NotUsed { .. } => WEFT_ENOENT,
        LevelError::OtherLevel { .. } => WEFT_ELEVEL,
        LevelError::GrantExists(_)
        | LevelError::GrantInUse(_)
        | LevelError::Serve(ServeError::Served(_))
        | LevelError::TooManyConnections(_) => WEFT_EBUSY,
        LevelError::WrongLength { .. }
        | LevelError::IssuedAhead { .. }
        | LevelError::BadRequest(_)
        | LevelError::Serve(ServeError::InTheWay(_) | ServeError::TooLong(_)) => WEFT_EINVAL,
        LevelError::BlockRetired { .. }
        | LevelError::Unreadable { .. }
        | LevelError::CannotTell { .. }
        | LevelError::PowerLost
        | LevelError::Connection(_)
        | LevelError::Remote(_)
        | LevelError::LogFull(_)
        | LevelError::Damaged(_)
        | LevelError::UnknownVersion { .. }
        | LevelError::Serve(ServeError::Io { .. }) => WEFT_EIO,
        LevelError::Device(FlashError::Device(error)) => of_device(error),
        LevelError::Device(_) => WEFT_EIO,
    }
}
