//! Making, moving and removing names.

use super::Error::{Errno, Outside};
use super::paths::{path_in, path_of_directory};
use super::{At, Result, Session, found, last_of, missing};
use crate::state::open_files::{Name, Opener};
use weft_core::{Capability, Tag, refuse};
use weft_placement::{OpenIntent, WriteHint};
use weft_vfs::path::{Last, LastComponent, Options, ParentAndName, Resolved, lies_in};
use weft_vfs::{
    Access, Attr, CreateArgs, FileKind, FsError, NAME_MAX, NewNode, RenameFlags, SetAttr, access,
};

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Canonical {
    /// The canonical path in the volume.
    Inside(Vec<u8>),
    /// The path outside of it.
    Outside(Vec<u8>),
}

impl Session<'_> {
    /// A name that must not exist yet. Only a directory's may be followed by a slash.
    fn new_name(&self, at: At<'_>, for_dir: bool) -> Result<ParentAndName> {
        match self.walk(at, Last::Name)? {
            Resolved::Missing(place) if place.name.len() > NAME_MAX => Err(Errno(libc::ENAMETOOLONG)),
            Resolved::Missing(place) if place.must_be_dir && !for_dir => Err(Errno(libc::ENOENT)),
            Resolved::Missing(place) => self.check_writable().map(|()| place),
            Resolved::Found(..) => Err(Errno(libc::EEXIST)),
            Resolved::Outside(_) => Err(Outside),
        }
    }

    /// A name, and what has it.
    fn last_name(&self, at: At<'_>) -> Result<(ParentAndName, Option<Attr>)> {
        match self.walk(at, Last::Name)? {
            Resolved::Found(place, attr) => Ok((place, Some(attr))),
            Resolved::Missing(place) => Ok((place, None)),
            Resolved::Outside(_) => Err(Outside),
        }
    }

    fn make(&self, place: &ParentAndName, node: NewNode<'_>, mode: u32) -> Result<Attr> {
        let names = self.among_others()?;
        let dir = self.volume.fs.getattr(place.dir)?;
        let cred = self.cred();
        cred.check_add(self.fs(), &dir)?;
        let kind = match node {
            NewNode::File => FileKind::File,
            NewNode::Directory => FileKind::Directory,
            NewNode::Symlink(_) => FileKind::Symlink,
            NewNode::Special(kind, _) => kind,
        };
        if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) && !cred.may(Capability::Mknod) {
            return Err(Errno(libc::EPERM));
        }
        let new = self.new_in(&dir, kind, mode)?;
        let (perm, gid, xattrs) = (new.perm, new.gid, new.xattrs());
        let args = CreateArgs {
            node,
            perm,
            uid: cred.uid,
            gid,
            tag: Default::default(),
            open: false,
            xattrs: &xattrs,
        };
        let made = self.volume.fs.create(place.dir, &place.name, &args)?;
        drop(names);
        self.sync_names(&[place.dir])?;
        Ok(made)
    }

    /// Makes a directory; `mode` may hold a [umask](weft_client::proto::with_umask). It may be gone by the time that this returns.
    pub fn mkdir(&self, at: At<'_>, mode: u32) -> Result<Attr> {
        let mode = mode & !(libc::S_ISUID | libc::S_ISGID);
        self.retry_stale(|| self.make(&self.new_name(at, true)?, NewNode::Directory, mode))
    }

    /// Makes an empty file, or a node of the kind in `mode`, which may hold a umask, too.
    pub fn mknod(&self, at: At<'_>, mode: u32, rdev: u64) -> Result<Attr> {
        let node = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => NewNode::File,
            libc::S_IFIFO => NewNode::Special(FileKind::Fifo, 0),
            libc::S_IFSOCK => NewNode::Special(FileKind::Socket, 0),
            libc::S_IFCHR => NewNode::Special(FileKind::CharDevice, rdev),
            libc::S_IFBLK => NewNode::Special(FileKind::BlockDevice, rdev),
            libc::S_IFDIR => return Err(Errno(libc::EPERM)),
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.retry_stale(|| self.make(&self.new_name(at, false)?, node, mode))
    }

    /// Makes a symlink to `target`.
    pub fn symlink(&self, target: &[u8], at: At<'_>) -> Result<Attr> {
        refuse(target.is_empty(), Errno(libc::ENOENT))?;
        self.retry_stale(|| self.make(&self.new_name(at, false)?, NewNode::Symlink(target), 0o777))
    }

    /// Removes a name; that of a directory with `AT_REMOVEDIR` only.
    pub fn unlink(&self, at: At<'_>, flags: i32) -> Result<()> {
        self.retry_stale(|| self.remove(at, flags & libc::AT_REMOVEDIR != 0))
    }

    fn remove(&self, at: At<'_>, rmdir: bool) -> Result<()> {
        let (place, found) = self.last_name(at)?;
        match (rmdir, place.ending) {
            (_, LastComponent::Name) => self.check_writable()?,
            (false, _) => return Err(Errno(libc::EISDIR)),
            (true, LastComponent::Root) => return Err(Errno(libc::EBUSY)),
            (true, LastComponent::Dot) => return Err(Errno(libc::EINVAL)),
            (true, LastComponent::DotDot) => return Err(Errno(libc::ENOTEMPTY)),
        }
        let attr = found.ok_or_else(|| missing(&place))?;
        let is_dir = attr.kind == FileKind::Directory;
        if !rmdir && place.must_be_dir {
            return Err(Errno(if is_dir { libc::EISDIR } else { libc::ENOTDIR }));
        }
        let fs = &self.volume.fs;
        if is_dir || attr.links == 1 {
            self.volume.last_name_goes(attr.ino);
        }
        let alone = self.alone()?;
        // Looked up again: somebody else's file may have got the name since.
        let victim = fs.lookup(place.dir, &place.name)?;
        let dir = fs.getattr(place.dir)?;
        self.cred().check_remove(self.fs(), &dir, &victim)?;
        if rmdir { fs.rmdir(place.dir, &place.name) } else { fs.unlink(place.dir, &place.name) }?;
        drop(alone);
        self.volume.name_lost(victim.ino);
        self.sync_names(&[place.dir])
    }

    /// Gives a file another name; `flags` are those of `renameat2`.
    pub fn rename(&self, from: At<'_>, to: At<'_>, flags: u32) -> Result<()> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno(libc::EINVAL))?;
        let alone = !flags.contains(RenameFlags::EXCHANGE) || flags == RenameFlags::EXCHANGE;
        refuse(!alone, Errno(libc::EINVAL))?;
        self.retry_stale(|| self.rename_once(from, to, flags))
    }

    fn rename_once(&self, from_at: At<'_>, to_at: At<'_>, flags: RenameFlags) -> Result<()> {
        let (no_replace, exchange) =
            (flags.contains(RenameFlags::NO_REPLACE), flags == RenameFlags::EXCHANGE);
        let (from, attr) = self.last_name(from_at)?;
        let (to, there) = self.last_name(to_at)?;
        refuse(from.ending != LastComponent::Name, Errno(libc::EBUSY))?;
        if to.ending != LastComponent::Name {
            return Err(Errno(if no_replace { libc::EEXIST } else { libc::EBUSY }));
        }
        self.check_writable()?;
        let attr = attr.ok_or_else(|| missing(&from))?;
        if to.name.len() > NAME_MAX {
            return Err(missing(&to));
        }
        let moved = Renaming { from, attr, to, there, exchange };
        moved.check_shape(self, no_replace)?;
        if moved.there.is_some_and(|there| there.ino == attr.ino) {
            // Two names of one file: nothing is done, and needs no permission.
            return Ok(());
        }
        moved.check_permission(self)?;
        // What the renamed file's ring holds is part of the file that appears under the new name.
        self.settle(attr.ino, attr.kind)?;
        let [from, to] =
            [&moved.from, &moved.to].map(|place| Name { dir: place.dir, name: place.name.clone() });
        let there = moved.there.map(|there| there.ino).filter(|_| exchange);
        moved.carry_out(self, flags)?;
        self.volume.renamed(attr.ino, &from, &to);
        if let Some(there) = there {
            self.volume.renamed(there, &to, &from);
        }
        if attr.kind == FileKind::File {
            self.place_renamed(&attr, &self.canonical(to_at));
        }
        self.sync_names(&[from.dir, to.dir])
    }

    /// The file is the same kind of data under its new name more often than not; only another stream matters. It may be
    /// gone again by now.
    fn place_renamed(&self, attr: &Attr, path: &[u8]) {
        if let Some(tag) = self.tag_after_rename(attr, path) {
            // The rename is done: an error here would say that it was not.
            match self.volume.fs.set_tag(attr.ino, tag) {
                Ok(()) | Err(FsError::Stale) => {}
                Err(error) => {
                    tracing::warn!(ino = attr.ino.0, %error, "a renamed file keeps the stream of its old name");
                }
            }
        }
        if let Some(recorder) = self.volume.mounted.recorder() {
            recorder.renamed(attr.ino, path);
        }
    }

    /// The tag that a file's data gets with this path, if it gets another one.
    pub(super) fn tag_after_rename(&self, attr: &Attr, path: &[u8]) -> Option<Tag> {
        let owner = (attr.uid, attr.size);
        let tag = self.place_tag(&Opener::default(), path, OpenIntent::empty(), owner, WriteHint::NotSet);
        let old = self.volume.fs.tag(attr.ino).ok()?;
        (old.stream != tag.stream && tag.stream.0 != 0).then_some(Tag { flags: old.flags, ..tag })
    }

    /// Gives a file one more name; `flags` may hold `AT_SYMLINK_FOLLOW`.
    pub fn link(&self, from: At<'_>, to: At<'_>, flags: i32) -> Result<()> {
        let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::Stop };
        self.retry_stale(|| {
            let attr = found(self.walk(from, last)?)?;
            let place = self.new_name(to, false)?;
            let (fs, cred) = (&self.volume.fs, self.cred());
            let names = self.among_others()?;
            let dir = fs.getattr(place.dir)?;
            // As the kernel has it, a directory that was removed is noticed before the protection of links.
            refuse(dir.links == 0, Errno(libc::ENOENT))?;
            if self.volume.protections.hardlinks {
                cred.check_link(self.fs(), &fs.getattr(attr.ino)?)?;
            }
            cred.check_add(self.fs(), &dir)?;
            refuse(fs.getattr(attr.ino)?.marks.flags.are_fixed(), Errno(libc::EPERM))?;
            refuse(attr.kind == FileKind::Directory, Errno(libc::EPERM))?;
            fs.link(attr.ino, place.dir, &place.name)?;
            self.volume.inodes.must_ask_for_sync(attr.ino);
            drop(names);
            self.sync_names(&[place.dir])
        })
    }

    /// The target of a symlink; with an empty path, of the open one.
    pub fn readlink(&self, at: At<'_>) -> Result<Vec<u8>> {
        self.retry_stale(|| {
            let open = at.path.is_empty();
            let ino = if open { self.base(at.dir)? } else { found(self.walk(at, Last::Stop)?)?.ino };
            refuse(self.volume.fs.getattr(ino)?.kind != FileKind::Symlink, Errno(libc::EINVAL))?;
            Ok(self.volume.fs.readlink(ino)?)
        })
    }

    /// The canonical path of a name, or where outside it leads. With `dots_by_text`, `..` takes out the component before it.
    pub fn resolve(&self, at: At<'_>, flags: i32, dots_by_text: bool) -> Result<Canonical> {
        self.retry_stale(|| {
            let options = Options { dots_by_text, ..self.walking(last_of(flags)) };
            let (place, attr) = match self.walk_with(self.cred(), at, options)? {
                Resolved::Found(place, attr) => (place, attr),
                Resolved::Missing(_) => return Err(Errno(libc::ENOENT)),
                Resolved::Outside(target) => return Ok(Canonical::Outside(target)),
            };
            let fs = self.volume.fs.as_ref();
            if place.name.is_empty() {
                return Ok(Canonical::Inside(path_of_directory(fs, attr.ino)?));
            }
            Ok(Canonical::Inside(path_in(fs, place.dir, &place.name)?))
        })
    }
}

/// Source and destination of a rename.
struct Renaming {
    from: ParentAndName,
    attr: Attr,
    to: ParentAndName,
    /// What has the new name now.
    there: Option<Attr>,
    exchange: bool,
}

impl Renaming {
    /// What Linux looks at before permissions, in its order. The core looks at it again, with everything else excluded.
    fn check_shape(&self, session: &Session<'_>, no_replace: bool) -> Result<()> {
        let fs = session.volume.fs.as_ref();
        let is_dir = |attr: &Attr| attr.kind == FileKind::Directory;
        let errno = match &self.there {
            Some(_) if no_replace => libc::EEXIST,
            // A directory that was removed while it was open has no names.
            None if self.exchange || fs.getattr(self.to.dir)?.links == 0 => libc::ENOENT,
            Some(there) if self.exchange && self.to.must_be_dir && !is_dir(there) => libc::ENOTDIR,
            _ if !is_dir(&self.attr) && (self.from.must_be_dir || !self.exchange && self.to.must_be_dir) => {
                libc::ENOTDIR
            }
            _ if is_dir(&self.attr) && lies_in(fs, self.to.dir, self.attr.ino)? => libc::EINVAL,
            Some(there) if is_dir(there) && lies_in(fs, self.from.dir, there.ino)? => {
                if self.exchange {
                    libc::EINVAL
                } else {
                    libc::ENOTEMPTY
                }
            }
            _ => return Ok(()),
        };
        Err(Errno(errno))
    }

    fn check_permission(&self, session: &Session<'_>) -> Result<()> {
        let fs = session.volume.fs.as_ref();
        let cred = session.cred();
        let is_dir = self.attr.kind == FileKind::Directory;
        cred.check_remove(fs, &fs.getattr(self.from.dir)?, &self.attr)?;
        let to_dir = fs.getattr(self.to.dir)?;
        match &self.there {
            None => cred.check_add(fs, &to_dir)?,
            Some(there) => {
                cred.check_remove(fs, &to_dir, there)?;
                match there.kind == FileKind::Directory {
                    true if !self.exchange && !is_dir => return Err(Errno(libc::EISDIR)),
                    false if !self.exchange && is_dir => return Err(Errno(libc::ENOTDIR)),
                    _ => {}
                }
            }
        }
        if self.from.dir == self.to.dir {
            return Ok(());
        }
        // A directory that gets another parent is written to: its `..` changes.
        if is_dir {
            cred.check(fs, &self.attr, access::WRITE)?;
        }
        match &self.there {
            Some(there) if self.exchange && there.kind == FileKind::Directory => {
                Ok(cred.check(fs, there, access::WRITE)?)
            }
            _ => Ok(()),
        }
    }

    /// Moves, unless the names belong to somebody else by now.
    fn carry_out(mut self, session: &Session<'_>, flags: RenameFlags) -> Result<()> {
        let fs = session.volume.fs.as_ref();
        let alone = session.alone()?;
        self.attr = fs.lookup(self.from.dir, &self.from.name)?;
        self.there = match fs.lookup(self.to.dir, &self.to.name) {
            Ok(there) => Some(there),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        self.check_permission(session)?;
        fs.rename(self.from.dir, &self.from.name, self.to.dir, &self.to.name, flags)?;
        let owner = session.cred();
        if flags.contains(RenameFlags::WHITEOUT) && (owner.uid, owner.gid) != (0, 0) {
            let left = fs.lookup(self.from.dir, &self.from.name)?.ino;
            let (uid, gid) = (Some(owner.uid), Some(owner.gid));
            fs.setattr(left, &SetAttr { uid, gid, ..SetAttr::default() })?;
        }
        drop(alone);
        if let Some(there) = self.there.filter(|_| !self.exchange) {
            session.volume.name_lost(there.ino);
        }
        Ok(())
    }
}
