//! Attributes, plain and extended.

use super::Error::Errno;
use super::lists::is_list;
use super::{At, Base, Result, Session, found, last_of};
use crate::state::inodes::CAPABILITIES;
use weft_client::proto::is_writable;
use weft_core::{Capability, Credentials, Tag};
use weft_core::{Ino, refuse};
use weft_vfs::path::{ParentAndName, Resolved};
use weft_vfs::{
    Access, Attr, FLAGS_XATTR, FileKind, InodeFlags, QUOTA_XATTR, SetAttr, TimeSpec, XattrMode, access,
};

/// What is to be changed of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// New size in bytes.
    pub size: Option<u64>,
    /// Permission bits.
    pub perm: Option<u32>,
    /// Given: ownership is asked for; the highest number leaves the owner, as in `chown`.
    pub uid: Option<u32>,
    /// Likewise the group.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub atime: Option<TimeSpec>,
    /// Time of the last change of the data.
    pub mtime: Option<TimeSpec>,
    /// Time of the last change of data or attributes, for who keeps it by itself.
    pub ctime: Option<TimeSpec>,
    /// Both times to the present.
    pub touch: bool,
}

/// To be made and to be replaced: as in Linux, one of the two always fails.
const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;

/// Fails for a change that the inode's flags do not let happen.
fn check_fixed(attr: &Attr, change: &Change) -> Result<()> {
    let flags = attr.marks.flags;
    // What was written to a file before it became immutable has its times from the kernel that kept it.
    let is_kept = change.ctime.is_some()
        && *change == Change { mtime: change.mtime, ctime: change.ctime, ..Change::default() };
    let sets_times = !is_kept && (change.atime.is_some() || change.mtime.is_some());
    let is_fixed = sets_times || change.perm.is_some() || change.uid.is_some() || change.gid.is_some();
    let touches = change.touch && flags.contains(InodeFlags::IMMUTABLE);
    refuse(touches || is_fixed && flags.are_fixed(), Errno(libc::EPERM))
}

/// `flags` are those of `fstatat`: with `AT_EMPTY_PATH` and an empty path, the open file is meant.
impl Session<'_> {
    /// What `flags` and path name, found by the rights of `who`.
    fn target_of(&self, at: At<'_>, flags: i32, who: &Credentials) -> Result<Attr> {
        if at.path.is_empty() {
            refuse(flags & libc::AT_EMPTY_PATH == 0, Errno(libc::ENOENT))?;
            return Ok(self.volume.fs.getattr(self.base(at.dir)?)?);
        }
        found(self.walk_with(who, at, self.walking(last_of(flags)))?)
    }

    pub(super) fn target(&self, at: At<'_>, flags: i32) -> Result<Attr> {
        self.target_of(at, flags, self.cred())
    }

    /// Attributes, with what clients have changed in shared memory.
    pub fn stat(&self, at: At<'_>, flags: i32) -> Result<Attr> {
        self.retry_stale(|| {
            if at.path.is_empty() {
                return Ok(self.volume.inodes.overlay(self.target(at, flags)?));
            }
            let resolved = self.walk(at, last_of(flags))?;
            if let Resolved::Found(ParentAndName { dir, name, .. }, attr) = &resolved
                && !name.is_empty()
            {
                self.tell_names_ahead(*dir, attr.ino);
            }
            Ok(self.volume.inodes.overlay(found(resolved)?))
        })
    }

    /// Whether the real user, or with `AT_EACCESS` the effective one, may do what `mode` says.
    pub fn access(&self, at: At<'_>, mode: u32, flags: i32) -> Result<()> {
        let effective = flags & libc::AT_EACCESS != 0;
        let who = if effective { self.cred() } else { &self.caller.real };
        self.retry_stale(|| {
            let attr = self.target_of(at, flags, who)?;
            let wanted = mode & 7;
            // What is written to pipes, sockets and devices does not go to the volume.
            if wanted & access::WRITE != 0
                && matches!(attr.kind, FileKind::File | FileKind::Directory | FileKind::Symlink)
            {
                self.check_writable()?;
            }
            Ok(who.check(self.fs(), &attr, wanted)?)
        })
    }

    /// Changes attributes.
    pub fn set_attr(&self, at: At<'_>, flags: i32, change: &Change) -> Result<()> {
        self.retry_stale(|| {
            let attr = self.target(at, flags)?;
            if let Some(size) = change.size {
                self.check_set_size(at, &attr)?;
                // The library has the pages of what it has open in hand; the kernel has none.
                let by_open_file = matches!((at.path.is_empty(), at.dir), (true, Base::Open(_)));
                self.set_size(attr.ino, size, by_open_file)?;
            }
            if *change != (Change { size: change.size, ..Change::default() }) {
                self.check_writable()?;
                self.settle(attr.ino, attr.kind)?;
                self.change(attr.ino, change)?;
            }
            Ok(())
        })
    }

    fn check_set_size(&self, at: At<'_>, attr: &Attr) -> Result<()> {
        if let (true, Base::Open(file)) = (at.path.is_empty(), at.dir) {
            let open = self.open_data(file)?;
            refuse(attr.kind != FileKind::File || !is_writable(self.open_flags(&open)), Errno(libc::EINVAL))?;
            return refuse(attr.marks.flags.are_fixed(), Errno(libc::EPERM));
        }
        match attr.kind {
            FileKind::File => {
                self.check_writable()?;
                self.cred().check(self.fs(), attr, access::WRITE)?;
                refuse(attr.marks.flags.are_fixed(), Errno(libc::EPERM))
            }
            FileKind::Directory => Err(Errno(libc::EISDIR)),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// Makes a change beside that of the size, if the caller may.
    fn change(&self, ino: Ino, change: &Change) -> Result<()> {
        let volume = self.volume;
        let cred = self.cred();
        let alone = self.alone()?;
        let attr = volume.fs.getattr(ino)?;
        let (uid, gid) = (change.uid.filter(|&id| id != u32::MAX), change.gid.filter(|&id| id != u32::MAX));
        check_fixed(&attr, change)?;
        cred.check_chown(&attr, uid, gid)?;
        let mut perm = change.perm;
        if perm.is_none() && (change.uid.is_some() || change.gid.is_some()) {
            // A new owner must not get a program that runs as somebody else.
            perm = cred.perm_after_chown(&attr);
        }
        let is_given_away = (change.uid.is_some() || change.gid.is_some()) && attr.kind == FileKind::File;
        if (perm.is_some() || change.atime.is_some() || change.mtime.is_some()) && !cred.owns(&attr) {
            return Err(Errno(libc::EPERM));
        }
        let (mut atime, mut mtime) = (change.atime, change.mtime);
        if change.touch {
            if !cred.owns(&attr) {
                cred.check(self.fs(), &attr, access::WRITE)?;
            }
            atime = Some(TimeSpec::now());
            mtime = atime;
        }
        let perm = perm.map(|perm| cred.perm_for_chmod(perm, gid.unwrap_or(attr.gid)));
        volume.fs.setattr(ino, &SetAttr { perm, uid, gid, size: None, atime, mtime, ctime: change.ctime })?;
        if is_given_away {
            self.drop_capabilities(ino)?;
        }
        volume.inodes.must_ask_for_sync(ino);
        if let Some(owner) = uid
            && owner != attr.uid
        {
            volume.fs.set_tag(ino, Tag { owner, ..volume.fs.tag(ino)? })?;
        }
        let to_revoke = perm.and_then(|perm| volume.inodes.perm_changed(ino, perm));
        drop(alone);
        if let Some(open) = to_revoke {
            volume.inodes.revoke_rings(&open);
        }
        Ok(())
    }

    /// Whether the attribute's name is one, and the caller may do that with it.
    fn check_xattr(&self, attr: &Attr, name: &[u8], wanted: u32) -> Result<()> {
        self.check_xattr_access(attr, name, wanted)?;
        // A namespace alone names nothing.
        if [&b"user."[..], b"trusted.", b"security."].contains(&name) {
            Err(Errno(libc::EINVAL))
        } else {
            Ok(())
        }
    }

    /// `user.` needs the file's permission, `trusted.` and `security.` the superuser.
    fn check_xattr_access(&self, attr: &Attr, name: &[u8], wanted: u32) -> Result<()> {
        let cred = self.cred();
        let writes = wanted == access::WRITE;
        refuse(writes && attr.marks.flags.are_fixed(), Errno(libc::EPERM))?;
        if name.starts_with(b"user.") {
            if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
                return Err(Errno(if writes { libc::EPERM } else { libc::ENODATA }));
            }
            // Where all may write but not remove, they do not mark the directory either.
            let sticky = attr.kind == FileKind::Directory && attr.perm & libc::S_ISVTX != 0;
            refuse(sticky && writes && !cred.owns(attr), Errno(libc::EPERM))?;
            return Ok(cred.check(self.fs(), attr, wanted)?);
        }
        let (trusted, security) = (name.starts_with(b"trusted."), name.starts_with(b"security."));
        if !trusted && !security {
            if !name.starts_with(b"system.") {
                cred.check(self.fs(), attr, wanted)?;
            }
            return Err(Errno(libc::EOPNOTSUPP));
        }
        match (cred.may(Capability::SysAdmin), writes) {
            (true, _) => Ok(()),
            (false, true) => Err(Errno(libc::EPERM)),
            (false, false) if trusted => Err(Errno(libc::ENODATA)),
            (false, false) => Ok(()),
        }
    }

    /// The value of an extended attribute.
    pub fn get_xattr(&self, at: At<'_>, flags: i32, name: &[u8]) -> Result<Vec<u8>> {
        self.retry_stale(|| {
            let attr = self.target(at, flags)?;
            if is_list(name) {
                return self.acl_value(&attr, name);
            }
            self.check_xattr(&attr, name, access::READ)?;
            Ok(self.volume.fs.getxattr(attr.ino, name)?)
        })
    }

    /// Sets an extended attribute; `how` is `XATTR_CREATE`, `XATTR_REPLACE` or 0.
    pub fn set_xattr(&self, at: At<'_>, flags: i32, name: &[u8], value: &[u8], how: i32) -> Result<()> {
        if is_list(name) {
            // As in Linux, whether or not there is one.
            refuse(how & !BOTH != 0, Errno(libc::EINVAL))?;
            return self.set_list(at, flags, name, value);
        }
        self.retry_stale(|| {
            let attr = self.target(at, flags)?;
            let mode = match how {
                0 => XattrMode::Any,
                libc::XATTR_CREATE => XattrMode::Create,
                libc::XATTR_REPLACE | BOTH => XattrMode::Replace,
                _ => return Err(Errno(libc::EINVAL)),
            };
            self.check_writable()?;
            self.check_xattr(&attr, name, access::WRITE)?;
            let is_quota = name == QUOTA_XATTR;
            refuse(is_quota && !self.fs().keeps_quotas(), Errno(libc::EOPNOTSUPP))?;
            refuse(how == BOTH && self.volume.fs.getxattr(attr.ino, name).is_ok(), Errno(libc::EEXIST))?;
            let alone = self.alone()?;
            self.volume.fs.setxattr(attr.ino, name, value, mode)?;
            self.volume.inodes.must_ask_for_sync(attr.ino);
            let is_rights = name == CAPABILITIES;
            let to_revoke = is_rights.then(|| self.volume.inodes.perm_changed(attr.ino, attr.perm)).flatten();
            drop(alone);
            if let Some(open) = to_revoke {
                self.volume.inodes.revoke_rings(&open);
            }
            if is_quota {
                self.volume.inodes.keep_headroom();
            }
            Ok(())
        })
    }

    /// The names of the extended attributes that the caller may see, each with a NUL at its end.
    pub fn list_xattr(&self, at: At<'_>, flags: i32) -> Result<Vec<u8>> {
        self.retry_stale(|| {
            let attr = self.target(at, flags)?;
            let mut names = Vec::new();
            for name in self.volume.fs.listxattr(attr.ino)? {
                let is_seen = !name.starts_with(b"trusted.") || self.cred().may(Capability::SysAdmin);
                if is_seen && name != FLAGS_XATTR {
                    names.extend_from_slice(&name);
                    names.push(0);
                }
            }
            Ok(names)
        })
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, at: At<'_>, flags: i32, name: &[u8]) -> Result<()> {
        if is_list(name) {
            return self.remove_list(at, flags, name);
        }
        self.retry_stale(|| {
            let attr = self.target(at, flags)?;
            self.check_writable()?;
            self.check_xattr(&attr, name, access::WRITE)?;
            let _alone = self.alone()?;
            self.volume.fs.removexattr(attr.ino, name)?;
            self.volume.inodes.must_ask_for_sync(attr.ino);
            Ok(())
        })
    }
}
