//! Attributes, plain and extended.

use super::{Ask, Failure, Outcome, done, outside};
use weft_client::proto::WireAttr;
use weft_vfs::path::Resolved;
use weft_vfs::{Attr, FileKind, SetAttr, TimeSpec, XattrMode, access};

/// What `at`, flags and path name: an open file (`AT_EMPTY_PATH`) or what is at the path.
fn target(ask: &Ask<'_>, flags: i32) -> Result<Attr, Failure> {
    let path = ask.part1()?;
    if path.is_empty() {
        if flags & libc::AT_EMPTY_PATH == 0 {
            return Err(Failure(libc::ENOENT));
        }
        return Ok(ask.volume.fs.getattr(ask.base(0)?)?);
    }
    match ask.walk(0, &path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)? {
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
        dev: ask.volume.tag & 0xffff_ffff | 1 << 40,
    };
    ask.reply_bytes(0, bytemuck::bytes_of(&wire))
}

pub fn access(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(2) as i32)?;
    ask.connection.cred.check(&attr, ask.arg(1) as u32 & 7)?;
    done(0)
}

pub fn set(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let mask = ask.arg(2);
    let given = |bit: u64, value: u64| (mask & bit != 0).then_some(value);
    let cred = &ask.connection.cred;
    let owns = cred.is_root() || cred.uid == attr.uid;
    if let Some(size) = given(32, ask.arg(7)) {
        if attr.kind == FileKind::Directory {
            return Err(Failure(libc::EISDIR));
        }
        if attr.kind != FileKind::File {
            return Err(Failure(libc::EINVAL));
        }
        if ask.request.len1 == 0 {
            let open = ask.open_file(0)?;
            if super::open_access(ask, &open) == libc::O_RDONLY {
                return Err(Failure(libc::EINVAL));
            }
        } else {
            cred.check(&attr, access::WRITE)?;
        }
        super::data::set_size(ask.volume, attr.ino, size)?;
    }
    let perm = given(1, ask.arg(3)).map(|mode| mode as u32 & 0o7777);
    let uid = given(2, ask.arg(4) >> 32).map(|uid| uid as u32);
    let gid = given(4, ask.arg(4) & 0xffff_ffff).map(|gid| gid as u32);
    let atime = given(8, ask.arg(5)).map(|ns| TimeSpec(ns as i64));
    let mtime = given(16, ask.arg(6)).map(|ns| TimeSpec(ns as i64));
    if (perm.is_some() || atime.is_some() || mtime.is_some()) && !owns {
        // Whoever may write may set the times to the present; the front cannot tell that apart, so the owner it is.
        return Err(Failure(libc::EPERM));
    }
    if uid.is_some_and(|uid| uid != attr.uid) && !cred.is_root() {
        return Err(Failure(libc::EPERM));
    }
    if gid.is_some_and(|gid| gid != attr.gid && !(cred.is_root() || owns && cred.in_group(gid))) {
        return Err(Failure(libc::EPERM));
    }
    let mut change = SetAttr { perm, uid, gid, size: None, atime, mtime };
    if (uid.is_some() || gid.is_some())
        && perm.is_none()
        && attr.kind == FileKind::File
        && attr.perm & 0o111 != 0
    {
        // A new owner must not get a program that runs as somebody else.
        change.perm = Some(attr.perm & !(libc::S_ISUID | libc::S_ISGID));
    }
    if change != SetAttr::default() {
        super::data::settle(ask.volume, attr.ino, attr.kind)?;
        ask.volume.fs.setattr(attr.ino, &change)?;
    }
    done(0)
}

/// `user.` needs the file's permission, `trusted.` and `security.` the superuser.
fn check_xattr(ask: &Ask<'_>, attr: &Attr, name: &[u8], wanted: u32) -> Result<(), Failure> {
    if name.starts_with(b"user.") {
        if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
            return Err(Failure(if wanted == access::READ { libc::ENODATA } else { libc::EPERM }));
        }
        return Ok(ask.connection.cred.check(attr, wanted)?);
    }
    if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
        let allowed =
            ask.connection.cred.is_root() || wanted == access::READ && name.starts_with(b"security.");
        return if allowed { Ok(()) } else { Err(Failure(libc::EPERM)) };
    }
    Err(Failure(libc::EOPNOTSUPP))
}

pub fn get_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let name = ask.part2()?;
    check_xattr(ask, &attr, &name, access::READ)?;
    ask.reply_bytes(0, &ask.volume.fs.getxattr(attr.ino, &name)?)
}

pub fn set_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let both = ask.part2()?;
    let (name, value) = both.split_at_checked(ask.arg(3) as usize).ok_or(Failure(libc::EINVAL))?;
    let mode = match ask.arg(2) as i32 {
        0 => XattrMode::Any,
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(Failure(libc::EINVAL)),
    };
    check_xattr(ask, &attr, name, access::WRITE)?;
    ask.volume.fs.setxattr(attr.ino, name, value, mode)?;
    done(0)
}

pub fn list_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let mut names = Vec::new();
    for name in ask.volume.fs.listxattr(attr.ino)? {
        names.extend_from_slice(&name);
        names.push(0);
    }
    ask.reply_bytes(0, &names)
}

pub fn remove_xattr(ask: &Ask<'_>) -> Outcome {
    let attr = target(ask, ask.arg(1) as i32)?;
    let name = ask.part2()?;
    check_xattr(ask, &attr, &name, access::WRITE)?;
    ask.volume.fs.removexattr(attr.ino, &name)?;
    done(0)
}
