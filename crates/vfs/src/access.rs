//! Who may do what: the one permission check that every front uses.

use crate::{Attr, FileKind, FsError, FsResult};

/// Identity of a caller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// May read.
pub const READ: u32 = 4;
/// May write.
pub const WRITE: u32 = 2;
/// May execute or search.
pub const EXECUTE: u32 = 1;

impl Cred {
    /// Whether the caller is the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Fails with `Access` unless the caller has all of `wanted` (of [`READ`], [`WRITE`], [`EXECUTE`]).
    pub fn check(&self, attr: &Attr, wanted: u32) -> FsResult<()> {
        if self.is_root() {
            let executable = attr.kind == FileKind::Directory || attr.perm & 0o111 != 0;
            return if wanted & EXECUTE != 0 && !executable { Err(FsError::Access) } else { Ok(()) };
        }
        let granted = if self.uid == attr.uid {
            attr.perm >> 6
        } else if self.in_group(attr.gid) {
            attr.perm >> 3
        } else {
            attr.perm
        };
        if granted & wanted == wanted { Ok(()) } else { Err(FsError::Access) }
    }

    /// Fails unless the caller may remove or rename `victim` within `dir`: write and search on the directory, and in a
    /// sticky directory ownership of either.
    pub fn check_remove(&self, dir: &Attr, victim: &Attr) -> FsResult<()> {
        self.check(dir, WRITE | EXECUTE)?;
        let sticky = dir.perm & libc::S_ISVTX != 0;
        if sticky && !self.is_root() && self.uid != victim.uid && self.uid != dir.uid {
            return Err(FsError::NotPermitted);
        }
        Ok(())
    }
}
