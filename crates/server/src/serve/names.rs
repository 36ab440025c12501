//! Making, moving and removing names.

use super::open::{canonical_hint, place_tag, retag};
use super::whereabouts::{path_of_directory, renamed};
use super::{Ask, Failure, Outcome, done, outside};
use crate::state::open_files::{Name, Opener};
use weft_client::shared::channel::Response;
use weft_core::Ino;
use weft_placement::{OpenIntent, WriteHint};
use weft_vfs::path::{Ending, Last, Options, Place, Resolved};
use weft_vfs::{Attr, CreateArgs, FileKind, FsError, NAME_MAX, NewNode, Power, RenameFlags, access};

/// A name that must not exist yet. Only a directory's may be followed by a slash.
fn new_name(ask: &Ask<'_>, at: usize, path: &[u8], for_dir: bool) -> Result<Place, Failure> {
    match ask.walk(at, path, Last::Name)? {
        Resolved::Missing(place) if place.name.len() > NAME_MAX => Err(Failure(libc::ENAMETOOLONG)),
        Resolved::Missing(place) if place.must_be_dir && !for_dir => Err(Failure(libc::ENOENT)),
        Resolved::Missing(place) => ask.check_writable().map(|()| place),
        Resolved::Found(..) => Err(Failure(libc::EEXIST)),
        Resolved::Outside(_) => outside(),
    }
}

/// A name that must exist.
fn old_name(ask: &Ask<'_>, at: usize, path: &[u8], last: Last) -> Result<(Place, Attr), Failure> {
    match ask.walk(at, path, last)? {
        Resolved::Found(place, attr) => Ok((place, attr)),
        Resolved::Missing(place) => Err(missing(&place)),
        Resolved::Outside(_) => outside(),
    }
}

/// Why a name is not there.
fn missing(place: &Place) -> Failure {
    Failure(if place.name.len() > NAME_MAX { libc::ENAMETOOLONG } else { libc::ENOENT })
}

fn make(ask: &Ask<'_>, place: &Place, node: NewNode<'_>, perm: u32) -> Result<Attr, Failure> {
    let _names = ask.volume.permissions.read();
    let dir = ask.volume.fs.getattr(place.dir)?;
    let cred = &ask.identity.cred;
    cred.check_add(&dir)?;
    let kind = match node {
        NewNode::File => FileKind::File,
        NewNode::Directory => FileKind::Directory,
        NewNode::Symlink(_) => FileKind::Symlink,
        NewNode::Special(kind, _) => kind,
    };
    if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) && !cred.may(Power::Mknod) {
        return Err(Failure(libc::EPERM));
    }
    let (perm, gid) = cred.perm_for_new(&dir, kind, perm);
    let args = CreateArgs { node, perm, uid: cred.uid, gid, tag: Default::default(), open: false };
    Ok(ask.volume.fs.create(place.dir, &place.name, &args)?)
}

pub fn mkdir(ask: &Ask<'_>) -> Outcome {
    let place = new_name(ask, 0, &ask.part1()?, true)?;
    make(ask, &place, NewNode::Directory, ask.arg(1) as u32 & 0o1777)?;
    done(0)
}

pub fn mknod(ask: &Ask<'_>) -> Outcome {
    let mode = ask.arg(1) as u32;
    let node = match mode & libc::S_IFMT {
        0 | libc::S_IFREG => NewNode::File,
        libc::S_IFIFO => NewNode::Special(FileKind::Fifo, 0),
        libc::S_IFSOCK => NewNode::Special(FileKind::Socket, 0),
        libc::S_IFCHR => NewNode::Special(FileKind::CharDevice, ask.arg(2)),
        libc::S_IFBLK => NewNode::Special(FileKind::BlockDevice, ask.arg(2)),
        libc::S_IFDIR => return Err(Failure(libc::EPERM)),
        _ => return Err(Failure(libc::EINVAL)),
    };
    let place = new_name(ask, 0, &ask.part1()?, false)?;
    make(ask, &place, node, mode & 0o7777)?;
    done(0)
}

pub fn symlink(ask: &Ask<'_>) -> Outcome {
    let target = ask.part1()?;
    if target.is_empty() {
        return Err(Failure(libc::ENOENT));
    }
    let place = new_name(ask, 0, &ask.part2()?, false)?;
    make(ask, &place, NewNode::Symlink(&target), 0o777)?;
    done(0)
}

pub fn unlink(ask: &Ask<'_>) -> Outcome {
    let rmdir = ask.arg(1) as i32 & libc::AT_REMOVEDIR != 0;
    let path = ask.part1()?;
    let (place, found) = match ask.walk(0, &path, Last::Name)? {
        Resolved::Found(place, attr) => (place, Some(attr)),
        Resolved::Missing(place) => (place, None),
        Resolved::Outside(_) => return outside(),
    };
    match (rmdir, place.ending) {
        (_, Ending::Name) => ask.check_writable()?,
        (false, _) => return Err(Failure(libc::EISDIR)),
        (true, Ending::Root) => return Err(Failure(libc::EBUSY)),
        (true, Ending::Dot) => return Err(Failure(libc::EINVAL)),
        (true, Ending::DotDot) => return Err(Failure(libc::ENOTEMPTY)),
    }
    let attr = found.ok_or_else(|| missing(&place))?;
    let is_dir = attr.kind == FileKind::Directory;
    if !rmdir && place.must_be_dir {
        return Err(Failure(if is_dir { libc::EISDIR } else { libc::ENOTDIR }));
    }
    let _alone = ask.volume.permissions.write();
    // Looked up again: somebody else's file may have got the name since.
    let victim = ask.volume.fs.lookup(place.dir, &place.name)?;
    let dir = ask.volume.fs.getattr(place.dir)?;
    ask.identity.cred.check_remove(&dir, &victim)?;
    if rmdir {
        ask.volume.fs.rmdir(place.dir, &place.name)?;
    } else {
        ask.volume.fs.unlink(place.dir, &place.name)?;
    }
    done(0)
}

/// Whether a directory is another, or lies below it.
fn lies_in(ask: &Ask<'_>, mut dir: Ino, above: Ino) -> Result<bool, Failure> {
    while dir != above {
        if dir == Ino::ROOT {
            return Ok(false);
        }
        dir = ask.volume.fs.parent(dir)?;
    }
    Ok(true)
}

/// What a rename moves, and where to.
struct Move {
    from: Place,
    attr: Attr,
    to: Place,
    /// What has the new name now.
    there: Option<Attr>,
    exchange: bool,
}

impl Move {
    /// What Linux looks at before permissions, in its order. The core looks at it again, with everything else excluded.
    fn check_shape(&self, ask: &Ask<'_>, no_replace: bool) -> Result<(), Failure> {
        let is_dir = |attr: &Attr| attr.kind == FileKind::Directory;
        let errno = match &self.there {
            Some(_) if no_replace => libc::EEXIST,
            // Nothing is looked for in a directory that was removed while it was open.
            None if self.exchange || ask.volume.fs.getattr(self.to.dir)?.links == 0 => libc::ENOENT,
            Some(there) if self.exchange && self.to.must_be_dir && !is_dir(there) => libc::ENOTDIR,
            _ if !is_dir(&self.attr) && (self.from.must_be_dir || !self.exchange && self.to.must_be_dir) => {
                libc::ENOTDIR
            }
            _ if is_dir(&self.attr) && lies_in(ask, self.to.dir, self.attr.ino)? => libc::EINVAL,
            Some(there) if is_dir(there) && lies_in(ask, self.from.dir, there.ino)? => {
                if self.exchange {
                    libc::EINVAL
                } else {
                    libc::ENOTEMPTY
                }
            }
            _ => return Ok(()),
        };
        Err(Failure(errno))
    }

    fn check_permission(&self, ask: &Ask<'_>) -> Result<(), Failure> {
        let fs = &ask.volume.fs;
        let cred = &ask.identity.cred;
        let is_dir = self.attr.kind == FileKind::Directory;
        cred.check_remove(&fs.getattr(self.from.dir)?, &self.attr)?;
        let to_dir = fs.getattr(self.to.dir)?;
        match &self.there {
            None => cred.check_add(&to_dir)?,
            Some(there) => {
                cred.check_remove(&to_dir, there)?;
                match there.kind == FileKind::Directory {
                    true if !self.exchange && !is_dir => return Err(Failure(libc::EISDIR)),
                    false if !self.exchange && is_dir => return Err(Failure(libc::ENOTDIR)),
                    _ => {}
                }
            }
        }
        if self.from.dir == self.to.dir {
            return Ok(());
        }
        // A directory that gets another parent is written to: its `..` changes.
        if is_dir {
            cred.check(&self.attr, access::WRITE)?;
        }
        match &self.there {
            Some(there) if self.exchange && there.kind == FileKind::Directory => {
                Ok(cred.check(there, access::WRITE)?)
            }
            _ => Ok(()),
        }
    }
}

impl Move {
    /// Moves, unless the names belong to somebody else by now.
    fn carry_out(mut self, ask: &Ask<'_>, flags: RenameFlags) -> Result<(), Failure> {
        let fs = &ask.volume.fs;
        let _alone = ask.volume.permissions.write();
        self.attr = fs.lookup(self.from.dir, &self.from.name)?;
        self.there = match fs.lookup(self.to.dir, &self.to.name) {
            Ok(there) => Some(there),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        self.check_permission(ask)?;
        Ok(fs.rename(self.from.dir, &self.from.name, self.to.dir, &self.to.name, flags)?)
    }
}

pub fn rename(ask: &Ask<'_>) -> Outcome {
    let (path, path2) = (ask.part1()?, ask.part2()?);
    let raw = ask.arg(2) as u32;
    let flags = RenameFlags::from_bits_retain(raw);
    let (no_replace, exchange) = (flags == RenameFlags::NO_REPLACE, flags == RenameFlags::EXCHANGE);
    if raw != 0 && !no_replace && !exchange {
        return Err(Failure(libc::EINVAL));
    }
    let from = match ask.walk(0, &path, Last::Name)? {
        Resolved::Outside(_) => return outside(),
        from => from,
    };
    let (to, there) = match ask.walk(1, &path2, Last::Name)? {
        Resolved::Found(place, attr) => (place, Some(attr)),
        Resolved::Missing(place) => (place, None),
        Resolved::Outside(_) => return outside(),
    };
    let (from, attr) = match from {
        Resolved::Found(place, _) if place.ending != Ending::Name => return Err(Failure(libc::EBUSY)),
        _ if to.ending != Ending::Name => {
            return Err(Failure(if no_replace { libc::EEXIST } else { libc::EBUSY }));
        }
        _ if ask.volume.fs.is_read_only() => return Err(Failure(libc::EROFS)),
        Resolved::Found(place, attr) => (place, attr),
        Resolved::Missing(place) => return Err(missing(&place)),
        Resolved::Outside(_) => return outside(),
    };
    if to.name.len() > NAME_MAX {
        return Err(missing(&to));
    }
    let moved = Move { from, attr, to, there, exchange };
    moved.check_shape(ask, no_replace)?;
    if moved.there.is_some_and(|there| there.ino == attr.ino) {
        // Two names of one file: nothing is done, and needs no permission.
        return done(0);
    }
    moved.check_permission(ask)?;
    // What the renamed file's ring holds is part of the file that appears under the new name.
    super::data::settle(ask.volume, attr.ino, attr.kind)?;
    let names = [&moved.from, &moved.to].map(|place| Name { dir: place.dir, name: place.name.clone() });
    let there = moved.there.map(|there| there.ino).filter(|_| exchange);
    moved.carry_out(ask, flags)?;
    let [from, to] = &names;
    renamed(ask.volume, attr.ino, from, to);
    if let Some(there) = there {
        renamed(ask.volume, there, to, from);
    }
    let fs = &ask.volume.fs;
    if attr.kind == FileKind::File {
        let new_path = canonical_hint_at(ask, 1, &path2);
        let tag =
            place_tag(ask, &Opener::default(), &new_path, OpenIntent::empty(), attr.size, WriteHint::NotSet);
        // The file is the same kind of data under its new name more often than not; only another stream matters. It may
        // be gone again by now.
        if fs.tag(attr.ino).is_ok_and(|old| old.stream != tag.stream && tag.stream.0 != 0) {
            // The rename is done: an error here would say that it was not.
            if let Err(Failure(errno)) = retag(ask.volume, attr.ino, tag)
                && errno != libc::ESTALE
            {
                tracing::warn!(ino = attr.ino.0, errno, "a renamed file keeps the stream of its old name");
            }
        }
        if let Some(recorder) = ask.volume.mounted.recorder() {
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
    let last = if ask.arg(2) as i32 & libc::AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::Stop };
    let attr = match ask.walk(0, &path, last)? {
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
    let place = new_name(ask, at, path, false)?;
    let cred = &ask.identity.cred;
    let _names = ask.volume.permissions.read();
    if ask.volume.protections.hardlinks {
        cred.check_link(&ask.volume.fs.getattr(attr.ino)?)?;
    }
    cred.check_add(&ask.volume.fs.getattr(place.dir)?)?;
    if attr.kind == FileKind::Directory {
        return Err(Failure(libc::EPERM));
    }
    ask.volume.fs.link(attr.ino, place.dir, &place.name)?;
    done(0)
}

pub fn readlink(ask: &Ask<'_>) -> Outcome {
    let path = ask.part1()?;
    let ino = if path.is_empty() { ask.base(0)? } else { old_name(ask, 0, &path, Last::Stop)?.1.ino };
    let attr = ask.volume.fs.getattr(ino)?;
    if attr.kind != FileKind::Symlink {
        return Err(Failure(libc::EINVAL));
    }
    ask.reply_bytes(0, &ask.volume.fs.readlink(ino)?)
}

/// Canonical path of a name, or where outside it leads.
pub fn resolve_path(ask: &Ask<'_>) -> Outcome {
    let path = ask.part1()?;
    let last = if ask.arg(1) as i32 & libc::AT_SYMLINK_NOFOLLOW == 0 { Last::Follow } else { Last::Stop };
    let options = Options { dots_by_text: ask.arg(2) != 0, ..ask.walking(last) };
    let (place, attr) = match ask.walk_with(&ask.identity.cred, 0, &path, options)? {
        Resolved::Found(place, attr) => (place, attr),
        Resolved::Missing(_) => return Err(Failure(libc::ENOENT)),
        Resolved::Outside(target) => return ask.reply_bytes(1, &target),
    };
    let fs = ask.volume.fs.as_ref();
    let mut out = path_of_directory(fs, if place.name.is_empty() { attr.ino } else { place.dir })?;
    if !place.name.is_empty() {
        if out != b"/" {
            out.push(b'/');
        }
        out.extend_from_slice(&place.name);
    }
    let reply = ask.reply_bytes(0, &out)?;
    Ok(Response { ret: 0, ..reply })
}
