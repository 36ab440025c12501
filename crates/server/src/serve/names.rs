//! Making, moving and removing names.

use super::open::{Opener, canonical_hint, group_for, place_tag, retag};
use super::{Ask, Failure, Outcome, done, outside};
use weft_client::shared::channel::Response;
use weft_placement::{OpenIntent, WriteHint};
use weft_vfs::path::{Place, Resolved};
use weft_vfs::{Attr, CreateArgs, FileKind, NewNode, RenameFlags, access};

/// A name that must not exist yet.
fn new_name(ask: &Ask<'_>, at: usize, path: &[u8]) -> Result<Place, Failure> {
    match ask.walk(at, path, false)? {
        Resolved::Missing(place) => Ok(place),
        Resolved::Found(..) => Err(Failure(libc::EEXIST)),
        Resolved::Outside(_) => outside(),
    }
}

/// A name that must exist.
fn old_name(ask: &Ask<'_>, at: usize, path: &[u8]) -> Result<(Place, Attr), Failure> {
    match ask.walk(at, path, false)? {
        Resolved::Found(place, attr) => Ok((place, attr)),
        Resolved::Missing(_) => Err(Failure(libc::ENOENT)),
        Resolved::Outside(_) => outside(),
    }
}

fn make(ask: &Ask<'_>, place: &Place, node: NewNode<'_>, perm: u32) -> Result<Attr, Failure> {
    let dir = ask.volume.fs.getattr(place.dir)?;
    let cred = &ask.connection.cred;
    cred.check(&dir, access::WRITE | access::EXECUTE)?;
    // A directory inherits the bit that passes its group on.
    let inherited = if node == NewNode::Directory { dir.perm & libc::S_ISGID } else { 0 };
    let args = CreateArgs {
        node,
        perm: perm & 0o7777 | inherited,
        uid: cred.uid,
        gid: group_for(&dir, cred.gid),
        tag: Default::default(),
        open: false,
    };
    Ok(ask.volume.fs.create(place.dir, &place.name, &args)?)
}

pub fn mkdir(ask: &Ask<'_>) -> Outcome {
    let place = new_name(ask, 0, &ask.part1()?)?;
    make(ask, &place, NewNode::Directory, ask.arg(1) as u32)?;
    done(0)
}

pub fn mknod(ask: &Ask<'_>) -> Outcome {
    let mode = ask.arg(1) as u32;
    let node = match mode & libc::S_IFMT {
        0 | libc::S_IFREG => NewNode::File,
        libc::S_IFIFO => NewNode::Special(FileKind::Fifo, 0),
        libc::S_IFSOCK => NewNode::Special(FileKind::Socket, 0),
        libc::S_IFCHR if ask.connection.cred.is_root() => NewNode::Special(FileKind::CharDevice, ask.arg(2)),
        libc::S_IFBLK if ask.connection.cred.is_root() => NewNode::Special(FileKind::BlockDevice, ask.arg(2)),
        libc::S_IFCHR | libc::S_IFBLK => return Err(Failure(libc::EPERM)),
        _ => return Err(Failure(libc::EINVAL)),
    };
    let place = new_name(ask, 0, &ask.part1()?)?;
    if place.must_be_dir {
        return Err(Failure(libc::ENOENT));
    }
    make(ask, &place, node, mode)?;
    done(0)
}

pub fn symlink(ask: &Ask<'_>) -> Outcome {
    let target = ask.part1()?;
    if target.is_empty() {
        return Err(Failure(libc::ENOENT));
    }
    let place = new_name(ask, 0, &ask.part2()?)?;
    if place.must_be_dir {
        return Err(Failure(libc::ENOENT));
    }
    make(ask, &place, NewNode::Symlink(&target), 0o777)?;
    done(0)
}

pub fn unlink(ask: &Ask<'_>) -> Outcome {
    let path = ask.part1()?;
    let (place, attr) = old_name(ask, 0, &path)?;
    let rmdir = ask.arg(1) as i32 & libc::AT_REMOVEDIR != 0;
    if place.name.is_empty() {
        // The path ends in the root, `.` or `..`.
        let dot = path.ends_with(b".") && !path.ends_with(b"..");
        let errno = match (rmdir, dot) {
            (false, _) => libc::EISDIR,
            (true, true) => libc::EINVAL,
            (true, false) if path.ends_with(b"..") => libc::ENOTEMPTY,
            (true, false) => libc::EBUSY,
        };
        return Err(Failure(errno));
    }
    let dir = ask.volume.fs.getattr(place.dir)?;
    ask.connection.cred.check_remove(&dir, &attr)?;
    if rmdir {
        ask.volume.fs.rmdir(place.dir, &place.name)?;
    } else {
        ask.volume.fs.unlink(place.dir, &place.name)?;
    }
    done(0)
}

pub fn rename(ask: &Ask<'_>) -> Outcome {
    let (path, path2) = (ask.part1()?, ask.part2()?);
    let raw = ask.arg(2) as u32;
    let mut flags = RenameFlags::empty();
    flags.set(RenameFlags::NO_REPLACE, raw & libc::RENAME_NOREPLACE != 0);
    flags.set(RenameFlags::EXCHANGE, raw & libc::RENAME_EXCHANGE != 0);
    if raw & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
        return Err(Failure(libc::EINVAL));
    }
    let (from, attr) = old_name(ask, 0, &path)?;
    let (to, replaced) = match ask.walk(1, &path2, false)? {
        Resolved::Found(place, attr) => (place, Some(attr)),
        Resolved::Missing(place) => (place, None),
        Resolved::Outside(_) => return outside(),
    };
    if from.name.is_empty() || to.name.is_empty() {
        return Err(Failure(libc::EBUSY));
    }
    if (from.must_be_dir || to.must_be_dir) && attr.kind != FileKind::Directory {
        return Err(Failure(libc::ENOTDIR));
    }
    let fs = &ask.volume.fs;
    let (from_dir, to_dir) = (fs.getattr(from.dir)?, fs.getattr(to.dir)?);
    let cred = &ask.connection.cred;
    cred.check_remove(&from_dir, &attr)?;
    match &replaced {
        Some(victim) => cred.check_remove(&to_dir, victim)?,
        None => cred.check(&to_dir, access::WRITE | access::EXECUTE)?,
    }
    // What the renamed file's ring holds is part of the file that appears under the new name.
    super::data::settle(ask.volume, attr.ino, attr.kind)?;
    fs.rename(from.dir, &from.name, to.dir, &to.name, flags)?;
    if attr.kind == FileKind::File {
        let new_path = canonical_hint_at(ask, 1, &path2);
        let tag =
            place_tag(ask, &Opener::default(), &new_path, OpenIntent::empty(), attr.size, WriteHint::NotSet);
        // The file is the same kind of data under its new name more often than not; only another stream matters. It may
        // be gone again by now.
        if fs.tag(attr.ino).is_ok_and(|old| old.stream != tag.stream && tag.stream.0 != 0) {
            retag(ask.volume, attr.ino, tag)
                .or_else(|f| if f.0 == libc::ESTALE { Ok(()) } else { Err(f) })?;
        }
        if let Some(recorder) = &ask.volume.recorder {
            recorder.renamed(attr.ino, &new_path);
        }
    }
    done(0)
}

fn canonical_hint_at(ask: &Ask<'_>, at: usize, path: &[u8]) -> Vec<u8> {
    if at == 0 || path.first() == Some(&b'/') {
        return canonical_hint(ask, path);
    }
    let mut full = ask.open_file(at).map(|dir| dir.path.clone()).unwrap_or_default();
    full.push(b'/');
    full.extend_from_slice(path);
    if full.first() != Some(&b'/') {
        full.insert(0, b'/');
    }
    canonical_hint(ask, &full)
}

pub fn link(ask: &Ask<'_>) -> Outcome {
    let (path, path2) = (ask.part1()?, ask.part2()?);
    let follow = ask.arg(2) as i32 & libc::AT_SYMLINK_FOLLOW != 0;
    let attr = match ask.walk(0, &path, follow)? {
        Resolved::Found(_, attr) => attr,
        Resolved::Missing(_) => return Err(Failure(libc::ENOENT)),
        Resolved::Outside(_) => return outside(),
    };
    link_to(ask, attr, 1, &path2)
}

pub fn link_file(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_file(0)?;
    let attr = ask.volume.fs.getattr(open.inode.ino)?;
    link_to(ask, attr, 1, &ask.part2()?)
}

fn link_to(ask: &Ask<'_>, attr: Attr, at: usize, path: &[u8]) -> Outcome {
    let place = new_name(ask, at, path)?;
    if place.must_be_dir {
        return Err(Failure(libc::ENOENT));
    }
    if attr.kind == FileKind::Directory {
        return Err(Failure(libc::EPERM));
    }
    let dir = ask.volume.fs.getattr(place.dir)?;
    ask.connection.cred.check(&dir, access::WRITE | access::EXECUTE)?;
    ask.volume.fs.link(attr.ino, place.dir, &place.name)?;
    done(0)
}

pub fn readlink(ask: &Ask<'_>) -> Outcome {
    let path = ask.part1()?;
    let ino = if path.is_empty() { ask.base(0)? } else { old_name(ask, 0, &path)?.1.ino };
    let attr = ask.volume.fs.getattr(ino)?;
    if attr.kind != FileKind::Symlink {
        return Err(Failure(libc::EINVAL));
    }
    ask.reply_bytes(0, &ask.volume.fs.readlink(ino)?)
}

/// Canonical path of a name, or where outside it leads.
pub fn resolve_path(ask: &Ask<'_>) -> Outcome {
    let path = ask.part1()?;
    let follow = ask.arg(1) as i32 & libc::AT_SYMLINK_NOFOLLOW == 0;
    let (place, attr) = match ask.walk(0, &path, follow)? {
        Resolved::Found(place, attr) => (place, attr),
        Resolved::Missing(_) => return Err(Failure(libc::ENOENT)),
        Resolved::Outside(target) => return ask.reply_bytes(1, &target),
    };
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut dir = if place.name.is_empty() { attr.ino } else { place.dir };
    if !place.name.is_empty() {
        parts.push(place.name);
    }
    let fs = &ask.volume.fs;
    while dir != weft_core::Ino::ROOT {
        let parent = fs.parent(dir)?;
        let mut name = None;
        fs.readdir(parent, 0, &mut |entry| {
            if entry.ino == dir {
                name = Some(entry.name.to_vec());
            }
            name.is_none()
        })?;
        parts.push(name.ok_or(Failure(libc::ENOENT))?);
        dir = parent;
    }
    let mut out = Vec::new();
    for part in parts.iter().rev() {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    let reply = ask.reply_bytes(0, &out)?;
    Ok(Response { ret: 0, ..reply })
}
