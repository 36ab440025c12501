//! Tar archives: the POSIX form with the records that GNU tar, bsdtar and Python agree on (`docs/formats/archive.md`).
//!
//! Headers are the `tar` crate's. What stands between them is read here: that crate ends a record at the first line feed of
//! its value, which extended attributes and names may hold.

pub mod reader;
pub mod writer;

use std::io;
use weft_vfs::FileKind;

/// Bytes of a block; everything in an archive is so aligned.
pub const BLOCK_BYTES: u64 = 512;
/// Record of an extended attribute, before its name.
pub const RECORD_XATTR: &[u8] = b"SCHILY.xattr.";

/// One file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Path within the archive, as it stands there.
    pub path: Vec<u8>,
    /// What it is.
    pub content: Content,
    /// Permission bits (07777).
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access, in nanoseconds since 1970.
    pub atime_ns: i64,
    /// Last change, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Extended attributes: names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file of `size` bytes, of which the parts (offset and bytes, ascending) follow; the rest is zero.
    File {
        /// Bytes.
        size: u64,
        /// What follows in the archive.
        parts: Vec<(u64, u64)>,
    },
    /// One more name of a member before it, which is given by its path in the archive.
    Link(Vec<u8>),
    /// A symlink and its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
    /// A fifo, or a device node with its number.
    Special(FileKind, u64),
    /// Something that is not known, by the letter of its type.
    Unknown(u8),
    /// A sparse file in one of GNU's older forms in POSIX headers.
    OldSparse,
}

/// Why an archive cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first block is that of another format.
    #[error("compressed with {program}")]
    Compressed {
        /// What can read it.
        program: &'static str,
    },
    /// A header whose checksum is wrong.
    #[error("byte {at}: not the header of a tar archive")]
    Header {
        /// Where.
        at: u64,
    },
    /// A number that is none.
    #[error("byte {at}: the {field} of the header is not a number")]
    Number {
        /// Where the header stands.
        at: u64,
        /// Of what.
        field: &'static str,
    },
    /// Records that cannot be told apart.
    #[error("byte {at}: damaged extended header")]
    Record {
        /// Where the header stands.
        at: u64,
    },
    /// A map of a sparse file that leads nowhere.
    #[error("byte {at}: damaged map of a sparse file")]
    Sparse {
        /// Where the header stands.
        at: u64,
    },
    /// An extension larger than any that is of use.
    #[error("byte {at}: an extended header of {bytes} bytes; at most {most} are read")]
    TooLong {
        /// Where the header stands.
        at: u64,
        /// What it says.
        bytes: u64,
        /// What is read.
        most: u64,
    },
    /// Less than the headers say.
    #[error("the archive ends at byte {at}, within a member")]
    Truncated {
        /// Its length.
        at: u64,
    },
}
