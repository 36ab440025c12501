//! Extended attributes.

use super::name_checks::Room;
use crate::layout::record::Record;
use crate::state::inode::Xattrs;
use crate::{Lfs, XATTRS_BYTES_MAX};
use weft_core::{Ino, refuse};
use weft_vfs::{Attr, FsError, FsResult, NAME_MAX, SetAttr, XATTR_VALUE_MAX, XattrChange, XattrMode};

/// Bytes of an attribute in records, beside its name and its value.
const RECORD_BYTES: usize = 17;

/// Fails unless an inode that has some attributes can have these changes, too. The bytes that they add.
pub(super) fn check_changes(has: &Xattrs, changes: &[XattrChange<'_>]) -> FsResult<usize> {
    for (name, value) in changes {
        refuse(name.is_empty(), FsError::Invalid("empty attribute name"))?;
        let len = value.map_or(0, <[u8]>::len);
        refuse(name.len() > NAME_MAX || len > XATTR_VALUE_MAX, FsError::AttributeTooLarge)?;
    }
    let stays = |name: &[u8]| !changes.iter().any(|(changed, _)| *changed == name);
    let others: usize = has
        .iter()
        .filter(|(name, _)| stays(name))
        .map(|(name, value)| name.len() + value.len() + RECORD_BYTES)
        .sum();
    let added =
        changes.iter().filter_map(|(name, value)| Some(name.len() + (*value)?.len() + RECORD_BYTES)).sum();
    refuse(others + added > XATTRS_BYTES_MAX, FsError::NoSpace)?;
    Ok(added)
}

/// As [`check_changes`], for one attribute that is set.
pub(super) fn check_set(has: &Xattrs, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<usize> {
    match (mode, has.contains_key(name)) {
        (XattrMode::Create, true) => Err(FsError::Exists),
        (XattrMode::Replace, false) => Err(FsError::NoAttribute),
        _ => check_changes(has, &[(name, Some(value))]),
    }
}

impl Lfs {
    pub(crate) fn op_getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let state = self.state.lock();
        state.inode(ino)?.xattrs.get(name).map(|value| value.to_vec()).ok_or(FsError::NoAttribute)
    }

    pub(crate) fn op_setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let state = &mut *self.locked()?;
        let inode = state.inode(ino)?;
        let added = check_set(&inode.xattrs, name, value, mode)?;
        state.check_metadata(added)?;
        state.expect_flags(name, Some(value))?;
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

    pub(crate) fn op_set_with_xattrs(
        &self,
        ino: Ino,
        set: &SetAttr,
        xattrs: &[XattrChange<'_>],
    ) -> FsResult<Attr> {
        let state = &mut *self.locked()?;
        refuse(set.size.is_some(), FsError::Invalid("a size does not change with attributes"))?;
        let inode = state.inode(ino)?;
        let added = check_changes(&inode.xattrs, xattrs)?;
        let is_change =
            |(name, value): &&XattrChange<'_>| value.is_some() || inode.xattrs.contains_key(*name);
        let changes: Vec<XattrChange<'_>> = xattrs.iter().filter(is_change).copied().collect();
        if added > 0 {
            state.check_metadata(added)?;
        }
        for (name, value) in &changes {
            state.expect_flags(name, *value)?;
        }
        let time = set.ctime.map_or_else(|| state.now(), |time| time.0);
        let record = state.attributes_record(ino, set, time)?;
        // One transaction: all of it fits, as an inode's attributes do.
        state.begin_transaction()?;
        state.log(&record)?;
        for (name, value) in changes {
            state.log(&Record::Xattr { ino, name, value, time })?;
        }
        Ok(state.inode(ino)?.attr(ino))
    }
}
