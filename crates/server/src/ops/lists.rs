//! Access control lists: what a program sees and sets of them, and what new inodes inherit.
//!
//! As in Linux, a list is an extended attribute that is checked when it is set, and mode bits and list say the same of owner, group class
//! and others ([`acl`]).

use super::Error::Errno;
use super::{At, Result, Session};
use weft_client::proto::split_mode;
use weft_core::{Ino, refuse};
use weft_vfs::acl::{self, ACCESS, Acl, DEFAULT};
use weft_vfs::{Access, Attr, FLAGS_XATTR, FileKind, SetAttr};

/// Whether an extended attribute is a list.
pub(super) fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// What an inode gets of its directory and of what its maker asks for.
pub(super) struct New {
    /// Permission bits.
    pub perm: u32,
    /// Group.
    pub gid: u32,
    xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

impl New {
    /// The extended attributes that it begins with.
    pub fn xattrs(&self) -> Vec<(&[u8], &[u8])> {
        self.xattrs.iter().map(|(name, value)| (*name, &value[..])).collect()
    }
}

impl Session<'_> {
    /// What is made in `dir`. `mode` holds the permission bits that are asked for and the umask, which a default list replaces.
    pub(super) fn new_in(&self, dir: &Attr, kind: FileKind, mode: u32) -> Result<New> {
        let (mode, umask) = split_mode(mode);
        let (asked, gid) = self.cred().perm_for_new(dir, kind, mode);
        let mut new = New { perm: asked, gid, xattrs: Vec::new() };
        let flags = dir.marks.flags.inherited(kind);
        if !flags.is_empty() {
            new.xattrs.push((FLAGS_XATTR, flags.to_value().to_vec()));
        }
        if kind == FileKind::Symlink {
            return Ok(new);
        }
        let value = dir.marks.has_default_acl.then(|| self.fs().getxattr(dir.ino, DEFAULT)).transpose()?;
        match value.map(|value| Acl::parse(&value)).transpose()?.flatten() {
            None => new.perm &= !umask,
            Some(default) => {
                let (perm, list) = default.inherit(asked);
                new.perm = perm;
                new.xattrs.extend(list.map(|list| (ACCESS, list.to_value())));
                if kind == FileKind::Directory {
                    new.xattrs.push((DEFAULT, default.to_value()));
                }
            }
        }
        Ok(new)
    }

    /// The list that an inode has, as an attribute's value.
    pub(super) fn acl_value(&self, attr: &Attr, name: &[u8]) -> Result<Vec<u8>> {
        refuse(attr.kind == FileKind::Symlink, Errno(libc::EOPNOTSUPP))?;
        if name == DEFAULT {
            return Ok(self.fs().getxattr(attr.ino, name)?);
        }
        let (_, list) = acl::of(self.fs(), attr)?;
        Ok(list.ok_or(Errno(libc::ENODATA))?.to_value())
    }

    /// Gives an inode another list; an empty value is none.
    pub(super) fn set_list(&self, at: At<'_>, flags: i32, name: &[u8], value: &[u8]) -> Result<()> {
        self.retry_stale(|| {
            let ino = self.target(at, flags)?.ino;
            self.check_writable()?;
            self.change_list(ino, name, Acl::parse(value)?.as_ref())
        })
    }

    /// Takes an inode's list away, if it has one; the mode stays.
    pub(super) fn remove_list(&self, at: At<'_>, flags: i32, name: &[u8]) -> Result<()> {
        self.retry_stale(|| {
            let ino = self.target(at, flags)?.ino;
            self.check_writable()?;
            self.change_list(ino, name, None)
        })
    }

    fn change_list(&self, ino: Ino, name: &[u8], list: Option<&Acl>) -> Result<()> {
        let (volume, cred) = (self.volume, self.cred());
        let alone = self.alone()?;
        let attr = self.fs().getattr(ino)?;
        refuse(attr.marks.flags.are_fixed(), Errno(libc::EPERM))?;
        refuse(attr.kind == FileKind::Symlink, Errno(libc::EOPNOTSUPP))?;
        if name == DEFAULT && attr.kind != FileKind::Directory {
            return list.map_or(Ok(()), |_| Err(Errno(libc::EACCES)));
        }
        refuse(!cred.owns(&attr), Errno(libc::EPERM))?;
        list.map_or(Ok(()), Acl::check)?;
        let (mut perm, mut value) = (None, list.map(Acl::to_value));
        if let Some(list) = list.filter(|_| name == ACCESS) {
            let (bits, is_all) = list.mode_bits();
            perm = Some(cred.perm_for_chmod(attr.perm & !0o777 | bits, attr.gid));
            value = value.filter(|_| !is_all);
        }
        let had = if name == ACCESS { attr.marks.has_acl } else { attr.marks.has_default_acl };
        if perm.is_none() && value.is_none() && !had {
            return Ok(());
        }
        self.fs().set_with_xattrs(
            ino,
            &SetAttr { perm, ..SetAttr::default() },
            &[(name, value.as_deref())],
        )?;
        volume.inodes.must_ask_for_sync(ino);
        let to_revoke = perm.and_then(|perm| volume.inodes.perm_changed(ino, perm));
        drop(alone);
        if let Some(open) = to_revoke {
            volume.inodes.revoke_rings(&open);
        }
        Ok(())
    }
}
