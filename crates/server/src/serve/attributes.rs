//! Attributes, plain and extended.

use super::{Ask, Failure, Outcome, done, outside};
use weft_client::proto::{WireAttr, is_writable};
use weft_core::Ino;
use weft_vfs::path::{Last, Resolved};
use weft_vfs::{Attr, Cred, FileKind, Power, SetAttr, TimeSpec, XattrMode, access};

/// What `at`, flags and path name: an open file (`AT_EMPTY_PATH`) or what is at the path.
fn target(ask: &Ask<'_>, flags: i32) -> Result<Attr, Failure> {
    target_of(ask, flags, &ask.identity.cred)
}

/// The same, found by the rights of `who`.
fn target_of(ask: &Ask<'_>, flags: i32, who: &Cred) -> Result<Attr, Failure> {
    let path = ask.part1()?;
    if path.is_empty() {
        if flags & libc::AT_EMPTY_PATH == 0 {
            return Err(Failure(libc::ENOENT));
        }
        return Ok(ask.volume.fs.getattr(ask.base(0)?)?);
    }
    let last = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Last::Follow } else { Last::Stop };
    match ask.walk_as(who, 0, &path, last, false)? {
        Resolved::Found(_, attr) => Ok(attr),
        Resolved::Missing(_) => Err(Failure(libc::ENOENT)),
        Resolved::Outside(_) => outside(),
    }
}

pub fn stat(ask: &Ask<'_>) -> Outcome {
    let attr = ask.volume.inodes.overlay(target(ask, ask.arg(1) as i32)?);
    let wire = WireAttr {
        ino: attr.ino.0,
        mode: attr.mode(),
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        blocks: attr.blocks,
        atime_ns: attr.atime.0,
        mtime_ns: attr.mtime.0,
        ctime_ns: attr.ctime.0,
        btime_ns: attr.btime.0,
        dev: ask.volume.id() & 0xffff_ffff | 1 << 40,
    };
    ask.reply_bytes(0, bytemuck::bytes_of(&wire))
}

pub fn access(ask: &Ask<'_>) -> Outcome {
    let flags = ask.arg(2) as i32;
    let who = if flags & libc::AT_EACCESS != 0 { &ask.identity.cred } else { &ask.identity.real };
    let attr = target_of(ask, flags, who)?;
    let wanted = ask.arg(1) as u32 & 7;
    // What is written to pipes, sockets and devices does not go to the volume.
    if wanted & access::WRITE != 0
        && matches!(attr.kind, FileKind::File | FileKind::Directory | FileKind::Symlink)
    {
        ask.check_writable()?;
    }
    who.check(&attr, wanted)?;
    done(0)
}

pub fn set(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let mask = ask.arg(2);
    let given = |bit: u64, value: u64| (mask & bit != 0).then_some(value);
    if let Some(size) = given(32, ask.arg(7)) {
        set_size(ask, &attr, size)?;
    }
    let owner = |bit: u64, value: u64| given(bit, value).map(|id| id as u32);
    let change = Change {
        perm: given(1, ask.arg(3)).map(|mode| mode as u32 & 0o7777),
        uid: owner(2, ask.arg(4) >> 32),
        gid: owner(4, ask.arg(4) & 0xffff_ffff),
        atime: given(8, ask.arg(5)).map(|ns| TimeSpec(ns as i64)),
        mtime: given(16, ask.arg(6)).map(|ns| TimeSpec(ns as i64)),
        touch: mask & 64 != 0,
    };
    if change != Change::default() {
        ask.check_writable()?;
        super::data::settle(ask.volume, attr.ino, attr.kind)?;
        change.make(ask, attr.ino)?;
    }
    done(0)
}

fn set_size(ask: &Ask<'_>, attr: &Attr, size: u64) -> Result<(), Failure> {
    if ask.request.len1 == 0 {
        let open = ask.open_data(0)?;
        if attr.kind != FileKind::File || !is_writable(super::open_flags(ask, &open)) {
            return Err(Failure(libc::EINVAL));
        }
    } else {
        match attr.kind {
            FileKind::File => {
                ask.check_writable()?;
                ask.identity.cred.check(attr, access::WRITE)?;
            }
            FileKind::Directory => return Err(Failure(libc::EISDIR)),
            _ => return Err(Failure(libc::EINVAL)),
        }
    }
    super::data::set_size(ask, attr.ino, size)
}

/// What is to be changed of an inode beside its size.
#[derive(Default, PartialEq)]
struct Change {
    perm: Option<u32>,
    /// Given: ownership is asked for; the highest number leaves the owner, as in `chown`.
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<TimeSpec>,
    mtime: Option<TimeSpec>,
    /// Both times to the present.
    touch: bool,
}

impl Change {
    /// Makes the change if the caller may.
    fn make(&self, ask: &Ask<'_>, ino: Ino) -> Result<(), Failure> {
        let volume = ask.volume;
        let cred = &ask.identity.cred;
        let alone = volume.permissions.write();
        let attr = volume.fs.getattr(ino)?;
        let (uid, gid) = (self.uid.filter(|&id| id != u32::MAX), self.gid.filter(|&id| id != u32::MAX));
        cred.check_chown(&attr, uid, gid)?;
        let mut perm = self.perm;
        if perm.is_none() && (self.uid.is_some() || self.gid.is_some()) {
            // A new owner must not get a program that runs as somebody else.
            perm = cred.perm_after_chown(&attr);
        }
        if (perm.is_some() || self.atime.is_some() || self.mtime.is_some()) && !cred.owns(&attr) {
            return Err(Failure(libc::EPERM));
        }
        let (mut atime, mut mtime) = (self.atime, self.mtime);
        if self.touch {
            if !cred.owns(&attr) {
                cred.check(&attr, access::WRITE)?;
            }
            atime = Some(TimeSpec::now());
            mtime = atime;
        }
        let perm = perm.map(|perm| cred.perm_for_chmod(perm, gid.unwrap_or(attr.gid)));
        volume.fs.setattr(ino, &SetAttr { perm, uid, gid, size: None, atime, mtime })?;
        let to_rob = perm.and_then(|perm| volume.inodes.perm_changed(ino, perm));
        drop(alone);
        if let Some(open) = to_rob {
            volume.inodes.take_ring_back(&open);
        }
        Ok(())
    }
}

/// Whether the attribute's name is one, and the caller may do that with it.
fn check_xattr(ask: &Ask<'_>, attr: &Attr, name: &[u8], wanted: u32) -> Result<(), Failure> {
    check_xattr_access(ask, attr, name, wanted)?;
    // A namespace alone names nothing.
    if [&b"user."[..], b"trusted.", b"security."].contains(&name) {
        Err(Failure(libc::EINVAL))
    } else {
        Ok(())
    }
}

/// `user.` needs the file's permission, `trusted.` and `security.` the superuser.
fn check_xattr_access(ask: &Ask<'_>, attr: &Attr, name: &[u8], wanted: u32) -> Result<(), Failure> {
    let cred = &ask.identity.cred;
    let writes = wanted == access::WRITE;
    if name.starts_with(b"user.") {
        if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
            return Err(Failure(if writes { libc::EPERM } else { libc::ENODATA }));
        }
        // Where all may write but not remove, they do not mark the directory either.
        let sticky = attr.kind == FileKind::Directory && attr.perm & libc::S_ISVTX != 0;
        if sticky && writes && !cred.owns(attr) {
            return Err(Failure(libc::EPERM));
        }
        return Ok(cred.check(attr, wanted)?);
    }
    let (trusted, security) = (name.starts_with(b"trusted."), name.starts_with(b"security."));
    if !trusted && !security {
        if !name.starts_with(b"system.") {
            cred.check(attr, wanted)?;
        }
        return Err(Failure(libc::EOPNOTSUPP));
    }
    match (cred.may(Power::SysAdmin), writes) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure(libc::EPERM)),
        (false, false) if trusted => Err(Failure(libc::ENODATA)),
        (false, false) => Ok(()),
    }
}

pub fn get_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let name = ask.part2()?;
    check_xattr(ask, &attr, &name, access::READ)?;
    ask.reply_bytes(0, &ask.volume.fs.getxattr(attr.ino, &name)?)
}

/// To be made and to be replaced: as in Linux, one of the two always fails.
const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;

pub fn set_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let both = ask.part2()?;
    let (name, value) = both.split_at_checked(ask.arg(3) as usize).ok_or(Failure(libc::EINVAL))?;
    let mode = match ask.arg(2) as i32 {
        0 => XattrMode::Any,
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        BOTH => XattrMode::Replace,
        _ => return Err(Failure(libc::EINVAL)),
    };
    ask.check_writable()?;
    check_xattr(ask, &attr, name, access::WRITE)?;
    if ask.arg(2) as i32 == BOTH && ask.volume.fs.getxattr(attr.ino, name).is_ok() {
        return Err(Failure(libc::EEXIST));
    }
    ask.volume.fs.setxattr(attr.ino, name, value, mode)?;
    done(0)
}

pub fn list_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let mut names = Vec::new();
    for name in ask.volume.fs.listxattr(attr.ino)? {
        if name.starts_with(b"trusted.") && !ask.identity.cred.may(Power::SysAdmin) {
            continue;
        }
        names.extend_from_slice(&name);
        names.push(0);
    }
    ask.reply_bytes(0, &names)
}

pub fn remove_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let name = ask.part2()?;
    ask.check_writable()?;
    check_xattr(ask, &attr, &name, access::WRITE)?;
    ask.volume.fs.removexattr(attr.ino, &name)?;
    done(0)
}
