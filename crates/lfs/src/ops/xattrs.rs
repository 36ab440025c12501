//! Extended attributes.

use crate::layout::record::Record;
use crate::{Lfs, XATTRS_BYTES_MAX};
use weft_core::{Ino, refuse};
use weft_vfs::{FsError, FsResult, NAME_MAX, XATTR_VALUE_MAX, XattrMode};

impl Lfs {
    pub(crate) fn op_getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let state = self.state.lock();
        state.inode(ino)?.xattrs.get(name).map(|value| value.to_vec()).ok_or(FsError::NoAttribute)
    }

    pub(crate) fn op_setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let state = &mut *self.locked()?;
        refuse(name.is_empty(), FsError::Invalid("empty attribute name"))?;
        refuse(name.len() > NAME_MAX || value.len() > XATTR_VALUE_MAX, FsError::AttributeTooLarge)?;
        let inode = state.inode(ino)?;
        match (mode, inode.xattrs.get(name)) {
            (XattrMode::Create, Some(_)) => return Err(FsError::Exists),
            (XattrMode::Replace, None) => return Err(FsError::NoAttribute),
            _ => {}
        }
        let others: usize =
            inode.xattrs.iter().filter(|(n, _)| &n[..] != name).map(|(n, v)| n.len() + v.len() + 17).sum();
        refuse(others + name.len() + value.len() + 17 > XATTRS_BYTES_MAX, FsError::NoSpace)?;
        state.check_metadata(name.len() + value.len())?;
        let time = state.now();
        state.begin_transaction()?;
        state.log(&Record::Xattr { ino, name, value: Some(value), time })
    }

    pub(crate) fn op_listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.state.lock().inode(ino)?.xattrs.keys().map(|name| name.to_vec()).collect())
    }

    pub(crate) fn op_removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let state = &mut *self.locked()?;
        refuse(!state.inode(ino)?.xattrs.contains_key(name), FsError::NoAttribute)?;
        let time = state.now();
        state.begin_transaction()?;
        state.log(&Record::Xattr { ino, name, value: None, time })
    }
}
