//! Extended attributes: those that mean something to the core, and all others.

use crate::quota::QuotaChange;
use crate::step::Step;
use weft_core::{Ino, refuse};
use weft_vfs::quota::Limits;
use weft_vfs::{FsError, FsResult, QUOTA_XATTR, USAGE_XATTR, XattrMode};

impl Step<'_> {
    /// Sets an extended attribute, or removes it.
    pub(crate) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> FsResult<()> {
        // It tells what is so.
        refuse(name == USAGE_XATTR && value.is_some(), FsError::NotPermitted)?;
        let was_counted = self.inode(ino)?.record.quota == Some(ino);
        if name == QUOTA_XATTR {
            self.set_quota(ino, value)?;
        }
        let has_ended = was_counted && self.inode(ino)?.record.quota.is_none();
        let inode = self.inode_mut(ino)?;
        match value {
            // Limits that were lifted before: now the tree is counted no more.
            None if has_ended && !inode.xattrs.contains_key(name) => Ok(()),
            Some(value) => inode.set_xattr(name, value, mode),
            None => inode.remove_xattr(name),
        }
    }

    /// Limits the tree of a directory, or with `None` no more.
    fn set_quota(&mut self, dir: Ino, value: Option<&[u8]>) -> FsResult<()> {
        let quota = self.inode(dir)?.record.quota;
        let Some(value) = value else {
            if quota == Some(dir) {
                self.change_quota(dir, QuotaChange::Limited(Limits::default()));
                self.end_quota_if_unused(dir)?;
            }
            return Ok(());
        };
        let no_limits = "the value of trusted.weft.quota is no limit, such as bytes=10G files=1000";
        let limits = Limits::parse(value).ok_or(FsError::Invalid(no_limits))?;
        match quota {
            Some(of) if of == dir => {}
            Some(_) => {
                return Err(FsError::Invalid("a directory in the tree of a quota has none of its own"));
            }
            None => {
                let entries = self.inode(dir)?.directory()?.entries;
                refuse(entries > 0, FsError::NotEmpty)?;
                self.begin_quota(dir)?;
            }
        }
        self.change_quota(dir, QuotaChange::Limited(limits));
        Ok(())
    }
}
