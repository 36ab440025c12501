//! The errors of making and opening a medium, and what errors of the levels are to a store.

use std::io;
use std::path::PathBuf;
use weft_device::nand::FlashError;
use weft_flash::LevelError;
use weft_tags::PAGE_BYTES;

/// A medium that was not made or not opened.
#[derive(Debug, thiserror::Error)]
pub enum FlashPagesError {
    /// Pages of the flash are not blocks of the store.
    #[error(
        "the flash has pages of {page_bytes} bytes, and a tag store writes blocks of {PAGE_BYTES}; take a device with pages of that size"
    )]
    PageSize {
        /// Bytes of a page of the flash.
        page_bytes: u32,
    },
    /// What is on the grant is no medium of a store.
    #[error("the grant '{grant}' holds no tag store: {what}; format one there, or name another grant")]
    NotAStore {
        /// Name of the grant.
        grant: String,
        /// What is there instead.
        what: String,
    },
    /// A page that may have been the newest copy of any block cannot be read: what would be found in its place is older.
    #[error(
        "the grant '{grant}': {page} cannot be read, and it may be the newest copy of any block of the store; nothing was changed: open it \
         again, or restore the store from a backup"
    )]
    Unreadable {
        /// Name of the grant.
        grant: String,
        /// The page of the flash.
        page: String,
    },
    /// Too little flash.
    #[error("the grant '{grant}' has too little flash for a tag store: {what}; allocate a larger grant")]
    TooSmall {
        /// Name of the grant.
        grant: String,
        /// What there is, and what is wanted.
        what: String,
    },
    /// The grant is there.
    #[error("{}: a grant named '{grant}' exists; open the store in it, take another name, or overwrite it", image.display())]
    Exists {
        /// Name of the grant.
        grant: String,
        /// The image of the device.
        image: PathBuf,
    },
    /// The device has data, and no monitor.
    #[error("{}: the device holds data and no flash monitor; take a device that is blank, or overwrite it", image.display())]
    NotBlank {
        /// The image of the device.
        image: PathBuf,
    },
    /// The image of the device.
    #[error(transparent)]
    Image(#[from] FlashError),
    /// The level below.
    #[error(transparent)]
    Level(#[from] LevelError),
}

/// An error of a level, as the store wants it: by its kind it knows a full medium from one that fails.
pub(crate) fn to_io(error: LevelError) -> io::Error {
    let kind = match &error {
        LevelError::NoRoom { .. }
        | LevelError::HostFull(_)
        | LevelError::TooManyMapped { .. }
        | LevelError::NoFreeBlock { .. } => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The error of an access beyond the end.
pub(crate) fn beyond_end(block: u64) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("block {block} is beyond the end of the medium"))
}
