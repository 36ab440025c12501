//! The files as a program sees them: those of the host, with the changes that the program has planned.
//!
//! It is a [`FileSystem`] of which only what looks is there, so that [`path::resolve`](crate::path::resolve) and
//! [`Access`](crate::Access) work on it. It takes planned changes for done: whether the core does them, the step shows.

use super::data::Data;
use super::plan::{New, NewKind, Plan, Planned, is_made};
use crate::{
    Attr, FallocateMode, FileKind, FileSystem, FsError, FsResult, Marks, RenameFlags, SetAttr, TimeSpec,
    XattrMode,
};
use std::collections::BTreeMap;
use std::ops::Range;
use weft_core::{BLOCK_BYTES, Ino, Tag, refuse};

/// A change of a file's bytes.
#[derive(Clone, Debug)]
enum Edit<'a> {
    Write(u64, Data<'a>),
    Zero(Range<u64>),
    /// The size became this one.
    Size(u64),
}

/// An inode with planned changes.
#[derive(Clone, Debug)]
struct Pending<'a> {
    attr: Attr,
    /// Of a directory that was made or moved.
    parent: Option<Ino>,
    /// Of a symlink that was made.
    target: Data<'a>,
    xattrs: BTreeMap<Vec<u8>, Option<Data<'a>>>,
    /// In the order in which they were made.
    edits: Vec<Edit<'a>>,
}

pub(super) struct Overlay<'a> {
    files: &'a dyn FileSystem,
    pub(super) plan: Plan<'a>,
    /// Names that were given or taken.
    names: BTreeMap<(Ino, Vec<u8>), Option<Ino>>,
    nodes: BTreeMap<Ino, Box<Pending<'a>>>,
    /// Whether a step will rely on the names that are looked up: not when nothing is changed.
    pins: bool,
}

impl<'a> Overlay<'a> {
    pub(super) fn new(files: &'a dyn FileSystem, pins: bool) -> Overlay<'a> {
        Overlay { files, plan: Plan::default(), names: BTreeMap::new(), nodes: BTreeMap::new(), pins }
    }

    /// The step relies on a name as it was looked up, unless the program itself has made it what it is.
    pub(super) fn pin(&mut self, op: usize, dir: Ino, name: &[u8], ino: Option<Ino>) {
        if self.pins && !is_made(dir) && !self.names.contains_key(&(dir, name.to_vec())) {
            self.plan.pin(op, dir, name, ino);
        }
    }

    pub(super) fn create(
        &mut self,
        op: usize,
        dir: Ino,
        name: &[u8],
        new: New<'a>,
        now: TimeSpec,
    ) -> FsResult<Ino> {
        let (kind, target) = match &new.kind {
            NewKind::File => (FileKind::File, Data::default()),
            NewKind::Directory => (FileKind::Directory, Data::default()),
            NewKind::Symlink(target) => (FileKind::Symlink, target.clone()),
        };
        let xattrs: BTreeMap<Vec<u8>, Option<Data<'a>>> =
            new.xattrs.iter().map(|(name, value)| (name.clone(), Some(value.clone().into()))).collect();
        let marks = Marks::of(|name| xattrs.get(name).and_then(|value| value.as_deref()));
        let (perm, uid, gid) = (new.perm, new.uid, new.gid);
        let ino = self.plan.push(op, Planned::Create { dir, name: name.to_vec(), new });
        let is_dir = kind == FileKind::Directory;
        let attr = Attr {
            ino,
            kind,
            perm,
            links: if is_dir { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            size: if is_dir { BLOCK_BYTES as u64 } else { target.len() as u64 },
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            marks,
        };
        let pending = Pending { attr, parent: Some(dir), target, xattrs, edits: Vec::new() };
        self.nodes.insert(ino, Box::new(pending));
        self.names.insert((dir, name.to_vec()), Some(ino));
        if is_dir {
            self.add_links(dir, 1)?;
        }
        Ok(ino)
    }

    pub(super) fn link(&mut self, op: usize, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.plan.push(op, Planned::Link { ino, dir, name: name.to_vec() });
        self.names.insert((dir, name.to_vec()), Some(ino));
        self.add_links(ino, 1)
    }

    pub(super) fn remove(
        &mut self,
        op: usize,
        dir: Ino,
        name: &[u8],
        victim: &Attr,
        is_dir: bool,
    ) -> FsResult<()> {
        self.plan.push(op, Planned::Remove { dir, name: name.to_vec(), is_dir });
        self.names.insert((dir, name.to_vec()), None);
        self.lose_name(dir, victim)
    }

    /// The host has opened a file, and keeps others from it: what was known of its content before may be old.
    pub(super) fn opened(&mut self, ino: Ino) -> FsResult<()> {
        if let Some(pending) = self.nodes.get_mut(&ino).filter(|pending| pending.edits.is_empty()) {
            let Attr { size, blocks, atime, mtime, .. } = self.files.getattr(ino)?;
            let attr = &mut pending.attr;
            (attr.size, attr.blocks, attr.atime, attr.mtime) = (size, blocks, atime, mtime);
        }
        Ok(())
    }

    pub(super) fn set_tag(&mut self, op: usize, ino: Ino, tag: Tag) {
        self.plan.push(op, Planned::SetTag { ino, tag });
    }

    /// Renames `moved`; `replaced` has the new name, and is another inode.
    pub(super) fn rename(
        &mut self,
        op: usize,
        (from, name, moved): (Ino, &[u8], &Attr),
        (to, new_name, replaced): (Ino, &[u8], Option<&Attr>),
        flags: RenameFlags,
    ) -> FsResult<()> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.plan
            .push(op, Planned::Rename { from, name: name.clone(), to, new_name: new_name.clone(), flags });
        let other = replaced.filter(|_| flags.contains(RenameFlags::EXCHANGE));
        self.names.insert((from, name), other.map(|other| other.ino));
        self.names.insert((to, new_name), Some(moved.ino));
        match (other, replaced) {
            (Some(other), _) => self.move_parent(other, to, from)?,
            (None, Some(replaced)) => self.lose_name(to, replaced)?,
            (None, None) => {}
        }
        self.move_parent(moved, from, to)
    }

    pub(super) fn set_perm(&mut self, op: usize, ino: Ino, perm: u32) -> FsResult<()> {
        self.pending(ino)?.attr.perm = perm;
        self.plan.push(op, Planned::SetAttr { ino, set: SetAttr { perm: Some(perm), ..SetAttr::default() } });
        Ok(())
    }

    pub(super) fn resize(&mut self, op: usize, ino: Ino, size: u64) -> FsResult<()> {
        self.edit(ino, Edit::Size(size), |_| size)?;
        self.plan.push(op, Planned::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() } });
        Ok(())
    }

    pub(super) fn plan_write(&mut self, op: usize, ino: Ino, offset: u64, data: Data<'a>) -> FsResult<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::TooLarge)?;
        self.edit(ino, Edit::Write(offset, data.clone()), |size| size.max(end))?;
        self.plan.push(op, Planned::Write { ino, offset, data });
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        op: usize,
        ino: Ino,
        mode: FallocateMode,
        range: Range<u64>,
    ) -> FsResult<()> {
        let Range { start, end } = range;
        let grows = matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange { keep_size: false });
        let grown = |size: u64| if grows { size.max(end) } else { size };
        let zeroes = matches!(mode, FallocateMode::PunchHole | FallocateMode::ZeroRange { .. });
        let edit = Edit::Zero(if zeroes { range } else { end..end });
        self.edit(ino, edit, grown)?;
        self.plan.push(op, Planned::Fallocate { ino, mode, offset: start, len: end - start });
        Ok(())
    }

    pub(super) fn set_xattr(
        &mut self,
        op: usize,
        ino: Ino,
        name: &[u8],
        value: Option<Data<'a>>,
        mode: XattrMode,
    ) -> FsResult<()> {
        self.pending(ino)?.xattrs.insert(name.to_vec(), value.clone());
        self.plan.push(op, Planned::Xattr { ino, name: name.to_vec(), value, mode });
        Ok(())
    }

    /// The inode's entry, with its attributes of now should it have none.
    fn pending(&mut self, ino: Ino) -> FsResult<&mut Pending<'a>> {
        if !self.nodes.contains_key(&ino) {
            let attr = self.files.getattr(ino)?;
            let pending = Pending {
                attr,
                parent: None,
                target: Data::default(),
                xattrs: BTreeMap::new(),
                edits: Vec::new(),
            };
            self.nodes.insert(ino, Box::new(pending));
        }
        self.nodes.get_mut(&ino).map(|pending| &mut **pending).ok_or(FsError::Stale)
    }

    fn edit(&mut self, ino: Ino, edit: Edit<'a>, size: impl FnOnce(u64) -> u64) -> FsResult<()> {
        let pending = self.pending(ino)?;
        is_file(&pending.attr)?;
        pending.edits.push(edit);
        pending.attr.size = size(pending.attr.size);
        Ok(())
    }

    fn add_links(&mut self, ino: Ino, by: i32) -> FsResult<()> {
        let attr = &mut self.pending(ino)?.attr;
        attr.links = attr.links.saturating_add_signed(by);
        Ok(())
    }

    /// `victim` loses its name in `dir`.
    fn lose_name(&mut self, dir: Ino, victim: &Attr) -> FsResult<()> {
        if victim.kind != FileKind::Directory {
            return self.add_links(victim.ino, -1);
        }
        self.add_links(victim.ino, -2)?;
        self.add_links(dir, -1)
    }

    fn move_parent(&mut self, moved: &Attr, from: Ino, to: Ino) -> FsResult<()> {
        if moved.kind != FileKind::Directory {
            return Ok(());
        }
        self.pending(moved.ino)?.parent = Some(to);
        self.add_links(from, -1)?;
        self.add_links(to, 1)
    }
}

/// Fails unless there is content.
pub(super) fn is_file(attr: &Attr) -> FsResult<()> {
    refuse(attr.kind == FileKind::Directory, FsError::IsDirectory)?;
    refuse(attr.kind != FileKind::File, FsError::Invalid("not a regular file"))
}

impl Edit<'_> {
    /// What it does to the bytes from `offset` on.
    fn apply(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        let within = |range: Range<u64>| {
            let (from, to) = (range.start.max(offset), range.end.min(end));
            (from < to).then(|| (from - offset) as usize..(to - offset) as usize)
        };
        match self {
            Edit::Write(start, data) => {
                if let Some(range) = within(*start..*start + data.len() as u64) {
                    let skipped = (offset + range.start as u64 - start) as usize;
                    let len = range.len();
                    out[range].copy_from_slice(&data[skipped..skipped + len]);
                }
            }
            Edit::Zero(range) => {
                if let Some(range) = within(range.clone()) {
                    out[range].fill(0);
                }
            }
            // What lay behind it reads as zeros when the file grows again.
            Edit::Size(size) => {
                if let Some(range) = within(*size..u64::MAX) {
                    out[range].fill(0);
                }
            }
        }
    }
}

impl FileSystem for Overlay<'_> {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let known = if self.names.is_empty() { None } else { self.names.get(&(dir, name.to_vec())) };
        match known {
            Some(Some(ino)) => self.getattr(*ino),
            Some(None) => Err(FsError::NotFound),
            None if is_made(dir) => match self.getattr(dir)?.kind {
                FileKind::Directory => Err(FsError::NotFound),
                _ => Err(FsError::NotDirectory),
            },
            None => {
                let attr = self.files.lookup(dir, name)?;
                Ok(self.nodes.get(&attr.ino).map_or(attr, |pending| pending.attr))
            }
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        match self.nodes.get(&ino) {
            Some(pending) => Ok(pending.attr),
            None => self.files.getattr(ino),
        }
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match self.nodes.get(&ino) {
            Some(pending) if is_made(ino) => Ok(pending.target.to_vec()),
            _ => self.files.readlink(ino),
        }
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        match self.nodes.get(&dir).and_then(|pending| pending.parent) {
            Some(parent) => Ok(parent),
            None => self.files.parent(dir),
        }
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let Some(Pending { attr, edits, .. }) = self.nodes.get(&ino).map(|pending| &**pending) else {
            return self.files.read(ino, offset, out);
        };
        is_file(attr)?;
        let len = attr.size.saturating_sub(offset).min(out.len() as u64) as usize;
        let out = &mut out[..len];
        out.fill(0);
        if !is_made(ino) {
            self.files.read(ino, offset, out)?;
        }
        edits.iter().for_each(|edit| edit.apply(offset, out));
        Ok(len)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        match self.nodes.get(&ino).and_then(|pending| pending.xattrs.get(name)) {
            Some(Some(value)) => Ok(value.to_vec()),
            Some(None) => Err(FsError::NoAttribute),
            None if is_made(ino) => Err(FsError::NoAttribute),
            None => self.files.getxattr(ino, name),
        }
    }

    fn release(&self, _ino: Ino) {}

    fn note_read(&self, _ino: Ino, _when: TimeSpec) {}

    fn open(&self, _ino: Ino) -> FsResult<()> {
        Err(FsError::Unsupported("the view of a program is only looked at"))
    }

    crate::only_looks!("the view of a program is only looked at");
}
