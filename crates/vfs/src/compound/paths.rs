//! Operations on names: the walk, the checks that Linux makes before a core is asked, and the planned change.

use super::data::Data;
use super::overlay::Overlay;
use super::plan::{New, NewKind, is_made};
use super::{Access as Use, Failure, Host};
use crate::acl::{self, Acl};
use crate::path::{self, Last, LastComponent, Options, ParentAndName, Resolved};
use crate::{
    Access, Attr, FLAGS_XATTR, FileKind, FileSystem, FsError, FsResult, NAME_MAX, RenameFlags, access,
};
use weft_core::{Ino, Tag, refuse};

/// Where an operation's path begins, and the path.
pub(super) type Path<'p> = (Ino, &'p [u8]);

/// The names of a program's files, for one of its operations.
pub(super) struct Names<'n, 'a> {
    pub host: &'a dyn Host,
    pub overlay: &'n mut Overlay<'a>,
    /// The operation.
    pub op: usize,
    /// Whether what is made is open from its beginning.
    pub opens: bool,
}

/// Fails for what no C string can be: a path that was computed may hold any byte.
fn check_text(path: &[u8]) -> FsResult<()> {
    refuse(path.contains(&0), FsError::Invalid("a path or a symlink's target with a NUL byte"))
}

impl<'a> Names<'_, 'a> {
    /// Walks a path. The step relies on the name at its end, if there is one and it was not walked to be made.
    fn walk(&mut self, (start, path): Path<'_>, last: Last, creates: bool) -> Result<Resolved, Failure> {
        let options = Options {
            last,
            creates,
            dots_by_text: false,
            protections: self.host.protections(),
            mount_point: self.host.mount_point(),
            within: self.host.within(),
        };
        check_text(path)?;
        Ok(path::resolve(self.overlay, self.host.caller(), start, path, options)?)
    }

    fn pin(&mut self, place: &ParentAndName, attr: Option<&Attr>) {
        if place.ending == LastComponent::Name {
            self.overlay.pin(self.op, place.dir, &place.name, attr.map(|attr| attr.ino));
        }
    }

    /// What a path leads to.
    fn found(&mut self, path: Path<'_>, last: Last) -> Result<Attr, Failure> {
        match self.walk(path, last, false)? {
            Resolved::Found(place, attr) => {
                self.pin(&place, Some(&attr));
                Ok(attr)
            }
            Resolved::Missing(_) => Err(FsError::NotFound.into()),
            Resolved::Outside(_) => Err(Failure::Outside),
        }
    }

    /// A name that must not exist yet. The step need not rely on that: making it fails when it exists.
    fn new_name(&mut self, path: Path<'_>, for_dir: bool) -> Result<ParentAndName, Failure> {
        match self.walk(path, Last::Name, false)? {
            Resolved::Missing(place) if place.name.len() > NAME_MAX => Err(FsError::NameTooLong.into()),
            Resolved::Missing(place) if place.must_be_dir && !for_dir => Err(FsError::NotFound.into()),
            Resolved::Missing(place) => Ok(place),
            Resolved::Found(..) => Err(FsError::Exists.into()),
            Resolved::Outside(_) => Err(Failure::Outside),
        }
    }

    /// A name, and what has it.
    fn last_name(&mut self, path: Path<'_>) -> Result<(ParentAndName, Option<Attr>), Failure> {
        let (place, attr) = match self.walk(path, Last::Name, false)? {
            Resolved::Found(place, attr) => (place, Some(attr)),
            Resolved::Missing(place) => {
                refuse(place.name.len() > NAME_MAX, FsError::NameTooLong)?;
                (place, None)
            }
            Resolved::Outside(_) => return Err(Failure::Outside),
        };
        self.pin(&place, attr.as_ref());
        Ok((place, attr))
    }

    /// Finds what an operation opens.
    pub(super) fn open(&mut self, path: Path<'_>, purpose: Use, follow: bool) -> Result<Attr, Failure> {
        let attr = self.found(path, if follow { Last::Follow } else { Last::Stop })?;
        self.check_open(&attr, purpose)?;
        Ok(attr)
    }

    fn check_open(&self, attr: &Attr, purpose: Use) -> FsResult<()> {
        let wanted = match purpose {
            Use::Path => return Ok(()),
            Use::Read => access::READ,
            Use::Write => access::WRITE,
            Use::ReadWrite => access::READ | access::WRITE,
        };
        match attr.kind {
            FileKind::Symlink => return Err(FsError::Loop),
            FileKind::Directory => refuse(wanted != access::READ, FsError::IsDirectory)?,
            FileKind::File => {}
            _ => return Err(FsError::Unsupported("a program opens files and directories")),
        }
        self.host.caller().check(self.overlay, attr, wanted)
    }

    /// Makes a file, or finds the one that exists; its attributes, and whether it was made.
    pub(super) fn create(
        &mut self,
        path: Path<'_>,
        perm: u32,
        exclusive: bool,
    ) -> Result<(Attr, bool), Failure> {
        let last = if exclusive { Last::Stop } else { Last::Follow };
        match self.walk(path, last, true)? {
            Resolved::Found(..) if exclusive => Err(FsError::Exists.into()),
            Resolved::Found(place, attr) => {
                self.pin(&place, Some(&attr));
                refuse(attr.kind == FileKind::Directory, FsError::IsDirectory)?;
                let dir = self.overlay.getattr(place.dir)?;
                self.host.protections().check_open_for_creation(self.host.caller(), &dir, &attr)?;
                self.check_open(&attr, Use::ReadWrite)?;
                Ok((attr, false))
            }
            Resolved::Missing(place) => {
                if !exclusive {
                    self.pin(&place, None);
                }
                let ino = self.make(path, &place, NewKind::File, perm)?;
                Ok((self.overlay.getattr(ino)?, true))
            }
            Resolved::Outside(_) => Err(Failure::Outside),
        }
    }

    pub(super) fn mkdir(&mut self, path: Path<'_>, perm: u32) -> Result<(), Failure> {
        let place = self.new_name(path, true)?;
        self.make(path, &place, NewKind::Directory, perm & !(libc::S_ISUID | libc::S_ISGID))?;
        Ok(())
    }

    pub(super) fn symlink(&mut self, target: Data<'a>, path: Path<'_>) -> Result<(), Failure> {
        refuse(target.is_empty(), FsError::NotFound)?;
        check_text(&target)?;
        let place = self.new_name(path, false)?;
        self.make(path, &place, NewKind::Symlink(target), 0o777)?;
        Ok(())
    }

    fn make(
        &mut self,
        path: Path<'_>,
        place: &ParentAndName,
        kind: NewKind<'a>,
        perm: u32,
    ) -> Result<Ino, Failure> {
        let dir = self.overlay.getattr(place.dir)?;
        self.host.caller().check_add(self.overlay, &dir)?;
        let new = self.new_in(&dir, kind, path, perm)?;
        Ok(self.overlay.create(self.op, place.dir, &place.name, new, self.host.now())?)
    }

    /// What is made in `dir`: with the permission bits, owner, flags and lists that Linux gives it.
    fn new_in(&self, dir: &Attr, kind: NewKind<'a>, (start, path): Path<'_>, perm: u32) -> FsResult<New<'a>> {
        let (of_kind, open) = match kind {
            NewKind::File => (FileKind::File, self.opens),
            NewKind::Directory => (FileKind::Directory, false),
            NewKind::Symlink(_) => (FileKind::Symlink, false),
        };
        let caller = self.host.caller();
        let (perm, gid) = caller.perm_for_new(dir, of_kind, perm);
        let tag = if of_kind == FileKind::File { self.host.tag(start, path) } else { Tag::default() };
        let mut new = New { kind, perm, uid: caller.uid, gid, tag, open, xattrs: Vec::new() };
        let flags = dir.marks.flags.inherited(of_kind);
        if !flags.is_empty() {
            new.xattrs.push((FLAGS_XATTR.to_vec(), flags.to_value().to_vec()));
        }
        if of_kind == FileKind::Symlink {
            return Ok(new);
        }
        let list =
            dir.marks.has_default_acl.then(|| self.overlay.getxattr(dir.ino, acl::DEFAULT)).transpose()?;
        let Some(default) = list.map(|list| Acl::parse(&list)).transpose()?.flatten() else {
            new.perm &= !self.host.umask();
            return Ok(new);
        };
        let (perm, list) = default.inherit(new.perm);
        new.perm = perm;
        new.xattrs.extend(list.map(|list| (acl::ACCESS.to_vec(), list.to_value())));
        if of_kind == FileKind::Directory {
            new.xattrs.push((acl::DEFAULT.to_vec(), default.to_value()));
        }
        Ok(new)
    }

    /// Removes a name, that of a directory if `is_dir`.
    pub(super) fn remove(&mut self, path: Path<'_>, is_dir: bool) -> Result<(), Failure> {
        let (place, victim) = self.last_name(path)?;
        match (is_dir, place.ending) {
            (_, LastComponent::Name) => {}
            (false, _) => return Err(FsError::IsDirectory.into()),
            (true, LastComponent::Root) => return Err(Failure::NoName),
            (true, LastComponent::Dot) => return Err(FsError::Invalid("the path ends in .").into()),
            (true, LastComponent::DotDot) => return Err(FsError::NotEmpty.into()),
        }
        let victim = victim.ok_or(FsError::NotFound)?;
        let has_dir = victim.kind == FileKind::Directory;
        if !is_dir && place.must_be_dir && !has_dir {
            return Err(FsError::NotDirectory.into());
        }
        let dir = self.overlay.getattr(place.dir)?;
        self.host.caller().check_remove(self.overlay, &dir, &victim)?;
        refuse(is_dir && !has_dir, FsError::NotDirectory)?;
        refuse(!is_dir && has_dir, FsError::IsDirectory)?;
        Ok(self.overlay.remove(self.op, place.dir, &place.name, &victim, is_dir)?)
    }

    pub(super) fn link(&mut self, path: Path<'_>, to: Path<'_>) -> Result<(), Failure> {
        let attr = self.found(path, Last::Stop)?;
        let place = self.new_name(to, false)?;
        let caller = self.host.caller();
        let dir = self.overlay.getattr(place.dir)?;
        refuse(dir.links == 0, FsError::NotFound)?;
        if self.host.protections().hardlinks {
            caller.check_link(self.overlay, &attr)?;
        }
        caller.check_add(self.overlay, &dir)?;
        refuse(attr.marks.flags.are_fixed() || attr.kind == FileKind::Directory, FsError::NotPermitted)?;
        Ok(self.overlay.link(self.op, attr.ino, place.dir, &place.name)?)
    }

    pub(super) fn rename(
        &mut self,
        from: Path<'_>,
        to_path: Path<'_>,
        flags: RenameFlags,
    ) -> Result<(), Failure> {
        let (from, moved) = self.last_name(from)?;
        let (to, replaced) = self.last_name(to_path)?;
        if from.ending != LastComponent::Name || to.ending != LastComponent::Name {
            return Err(Failure::NoName);
        }
        let moved = moved.ok_or(FsError::NotFound)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let is_dir = |attr: &Attr| attr.kind == FileKind::Directory;
        match &replaced {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(FsError::Exists.into()),
            None if exchange => return Err(FsError::NotFound.into()),
            Some(there) if exchange && to.must_be_dir && !is_dir(there) => {
                return Err(FsError::NotDirectory.into());
            }
            _ if !is_dir(&moved) && (from.must_be_dir || !exchange && to.must_be_dir) => {
                return Err(FsError::NotDirectory.into());
            }
            _ if is_dir(&moved) && path::lies_in(self.overlay, to.dir, moved.ino)? => {
                return Err(FsError::Invalid("a directory would lie in itself").into());
            }
            Some(there) if is_dir(there) && path::lies_in(self.overlay, from.dir, there.ino)? => {
                let within = FsError::Invalid("a directory would lie in itself");
                return Err(if exchange { within } else { FsError::NotEmpty }.into());
            }
            _ => {}
        }
        if replaced.is_some_and(|there| there.ino == moved.ino) {
            // Two names of one file: nothing is done, and needs no permission.
            return Ok(());
        }
        self.check_rename(&from, &moved, &to, replaced.as_ref(), exchange)?;
        // One that the program has made carries no data yet that could keep its tag.
        let is_file = moved.kind == FileKind::File && !is_made(moved.ino);
        let tag = is_file.then(|| self.host.tag_of_renamed(&moved, to_path.0, to_path.1)).flatten();
        let ino = moved.ino;
        let (moved, replaced) =
            ((from.dir, &from.name[..], &moved), (to.dir, &to.name[..], replaced.as_ref()));
        self.overlay.rename(self.op, moved, replaced, flags)?;
        if let Some(tag) = tag {
            self.overlay.set_tag(self.op, ino, tag);
        }
        Ok(())
    }

    fn check_rename(
        &self,
        from: &ParentAndName,
        moved: &Attr,
        to: &ParentAndName,
        replaced: Option<&Attr>,
        exchange: bool,
    ) -> FsResult<()> {
        let (caller, files) = (self.host.caller(), &*self.overlay);
        let is_dir = |attr: &Attr| attr.kind == FileKind::Directory;
        caller.check_remove(files, &files.getattr(from.dir)?, moved)?;
        let to_dir = files.getattr(to.dir)?;
        match replaced {
            None => caller.check_add(files, &to_dir)?,
            Some(there) => {
                caller.check_remove(files, &to_dir, there)?;
                refuse(!exchange && is_dir(moved) && !is_dir(there), FsError::NotDirectory)?;
                refuse(!exchange && !is_dir(moved) && is_dir(there), FsError::IsDirectory)?;
            }
        }
        if from.dir == to.dir {
            return Ok(());
        }
        // A directory that gets another parent is written to: its `..` changes.
        if is_dir(moved) {
            caller.check(files, moved, access::WRITE)?;
        }
        match replaced {
            Some(there) if exchange && is_dir(there) => caller.check(files, there, access::WRITE),
            _ => Ok(()),
        }
    }
}
