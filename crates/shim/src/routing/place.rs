//! Places on the volume, and what is done with a path there.

use crate::file::batch;
use libc::c_int;
use weft_client::{AttrChange, Client, Errno, FileRef, InodeFlags, OpenFile, WireAttr};

/// Where a path on the volume leads: from a directory, or from the root when it begins with a slash.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The connection.
    pub client: &'static Client,
    /// The directory.
    pub at: FileRef,
    /// The path from there.
    pub path: &'a [u8],
}

impl Place<'_> {
    /// Attributes; `flags` as in `fstatat`.
    pub fn stat(self, flags: c_int) -> Result<WireAttr, Errno> {
        Ok(self.seen(self.client.stat(self.at, self.path, flags)?, flags))
    }

    /// The same with what was set by `chattr`.
    pub fn stat_with_flags(self, flags: c_int) -> Result<(WireAttr, InodeFlags), Errno> {
        let (attr, inode_flags) = self.client.stat_with_flags(self.at, self.path, flags)?;
        Ok((self.seen(attr, flags), inode_flags))
    }

    /// What an open file sees of itself.
    fn seen(self, mut attr: WireAttr, flags: c_int) -> WireAttr {
        if batch::any() && self.path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            attr.size = batch::size(self.at, attr.size);
        }
        attr
    }

    /// Changes attributes.
    pub fn set_attr(self, flags: c_int, change: &AttrChange) -> Result<(), Errno> {
        self.client.set_attr(self.at, self.path, flags, change)
    }

    /// Whether the caller may do `mode`; `flags` as in `faccessat`.
    pub fn access(self, mode: c_int, flags: c_int) -> Result<(), Errno> {
        self.client.access(self.at, self.path, mode, flags)
    }

    /// Opens what is there.
    pub fn open(self, flags: c_int) -> Result<OpenFile, Errno> {
        self.client.open(self.at, self.path, flags, 0)
    }

    /// Makes a directory.
    pub fn mkdir(self, mode: u32) -> Result<(), Errno> {
        self.client.mkdir(self.at, self.path, mode)
    }

    /// Makes a node, with type bits in `mode`.
    pub fn mknod(self, mode: u32, device: u64) -> Result<(), Errno> {
        self.client.mknod(self.at, self.path, mode, device)
    }

    /// Renames it to another name; `flags` as in `renameat2`.
    pub fn rename(self, to: Place<'_>, flags: u32) -> Result<(), Errno> {
        self.client.rename(self.at, self.path, to.at, to.path, flags)
    }

    /// Gives it one more name; `flags` as in `linkat`.
    pub fn link(self, to: Place<'_>, flags: c_int) -> Result<(), Errno> {
        self.client.link(self.at, self.path, to.at, to.path, flags)
    }

    /// Removes the name; with `AT_REMOVEDIR` an empty directory.
    pub fn unlink(self, flags: c_int) -> Result<(), Errno> {
        self.client.unlink(self.at, self.path, flags)
    }
}
