//! Copies what can be read of a damaged volume to a new one.
//!
//! The damaged volume is mounted to be salvaged ([`MountOptions::salvage`](crate::MountOptions)) and only read. A file
//! that is whole gets its names, attributes and content. One that is not is copied as far as it can be read, and stands
//! in `lost+found`, so that nobody takes it for whole: what is missing of it is a hole there.

use crate::error::LfsError;
use crate::journal::salvage::Lost;
pub use crate::state::names::LOST_AND_FOUND;
use crate::{Lfs, layout};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::{
    Attr, CreateArgs, FileKind, FileSystem, FsError, FsResult, NewNode, RenameFlags, SeekTarget, SetAttr,
    XattrMode,
};

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Most ranges that are listed of a file; the bytes of all are counted.
pub const RANGES_MAX: usize = 64;
/// Most files that are listed one by one; the rest is counted.
pub const FILES_MAX: usize = 10_000;

/// A file that is not whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    /// Its first path on the damaged volume.
    pub path: Vec<u8>,
    /// Its size, in bytes.
    pub size: u64,
    /// Bytes that cannot be read.
    pub lost_bytes: u64,
    /// Where they are: offset and length of up to [`RANGES_MAX`] ranges.
    pub ranges: Vec<(u64, u64)>,
    /// Whether it may have parts of different times, because a frame of the journal is lost.
    pub mixed: bool,
    /// Whether parts of its map or its extended attributes are lost: holes may have been data.
    pub partial: bool,
    /// Where it is on the new volume.
    pub now: Vec<u8>,
}

/// What was there and what was not.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SalvageReport {
    /// Files that are whole.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symlinks and special files.
    pub others: u64,
    /// Bytes of files that were read.
    pub bytes: u64,
    /// Files that are not whole, up to [`FILES_MAX`].
    pub damaged: Vec<DamagedFile>,
    /// How many there are.
    pub damaged_files: u64,
    /// Paths of what no name led to, on the new volume.
    pub found: Vec<Vec<u8>>,
    /// Paths of names that led nowhere.
    pub lost_names: Vec<Vec<u8>>,
    /// Paths of files and directories whose owner, mode and times are made up.
    pub made_up: Vec<Vec<u8>>,
    /// What the metadata lost.
    pub lost: Lost,
}

impl SalvageReport {
    /// Whether everything was there.
    pub fn is_complete(&self) -> bool {
        self.damaged_files == 0 && self.lost.is_nothing()
    }
}

/// A walk over the damaged volume.
struct Salvage<'a> {
    from: &'a Lfs,
    /// Where everything is copied to; nothing is when it is only looked.
    to: Option<&'a Lfs>,
    report: SalvageReport,
    /// The copy of each inode with several names.
    copies: BTreeMap<u64, Copied>,
    /// Where damaged files go; made when there is one.
    lost_and_found: Option<Ino>,
    progress: &'a mut dyn FnMut(u64, u64),
    total: u64,
    buffer: Vec<u8>,
}

/// What became of an inode.
#[derive(Clone, Copy)]
enum Copied {
    Whole(Ino),
    Damaged,
}

/// Copies everything that can be read to an empty volume, or only reads it when there is none. `progress` gets bytes of
/// files done and in all.
///
/// # Errors
/// What the new volume says. What is damaged in the other is in the report.
pub fn salvage(
    from: &Lfs,
    to: Option<&Lfs>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SalvageReport, LfsError> {
    let space = from.statfs()?;
    let mut work = Salvage {
        from,
        to,
        report: SalvageReport { lost: from.lost().clone(), ..SalvageReport::default() },
        copies: BTreeMap::new(),
        lost_and_found: None,
        progress,
        total: space.total_bytes.saturating_sub(space.free_bytes),
        buffer: vec![0; PIECE_BYTES],
    };
    work.everything()?;
    if let Some(to) = to {
        to.sync()?;
    }
    Ok(work.report)
}

impl Salvage<'_> {
    fn everything(&mut self) -> FsResult<()> {
        let mut lost_names: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for (dir, name) in &self.report.lost.names {
            lost_names.entry(dir.0).or_default().push(name.clone());
        }
        let orphans: BTreeSet<u64> = self.report.lost.orphans.iter().map(|ino| ino.0).collect();
        // Times of a directory come last: what is made in it changes them.
        let mut directories: Vec<(Ino, Attr)> = Vec::new();
        let mut todo = vec![(Ino::ROOT, Ino::ROOT, Vec::new())];
        while let Some((dir, copy, path)) = todo.pop() {
            self.report.directories += 1;
            directories.push((copy, self.from.getattr(dir)?));
            self.copy_xattrs(dir, copy)?;
            for name in lost_names.get(&dir.0).into_iter().flatten() {
                self.report.lost_names.push(below(&path, name));
            }
            if self.report.lost.made_up.contains(&dir.0) {
                self.report.made_up.push(shown(&path));
            }
            let mut names = Vec::new();
            self.from.readdir(dir, 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.ino));
                true
            })?;
            for (name, ino) in names {
                let path = below(&path, &name);
                if orphans.contains(&ino.0) {
                    self.report.found.push(path.clone());
                }
                let attr = self.from.getattr(ino)?;
                match attr.kind {
                    FileKind::Directory => {
                        let made = match self.to {
                            Some(to) if dir == Ino::ROOT && name == LOST_AND_FOUND => {
                                self.make_lost_and_found(to)?
                            }
                            Some(to) => to.create(copy, &name, &self.args(&attr, NewNode::Directory)?)?.ino,
                            None => ino,
                        };
                        todo.push((ino, made, path));
                    }
                    FileKind::File => self.file(ino, &attr, copy, &name, path)?,
                    _ => self.other(ino, &attr, copy, &name)?,
                }
            }
        }
        for (copy, attr) in directories.into_iter().rev() {
            self.set_attributes(copy, &attr)?;
        }
        Ok(())
    }

    fn args<'n>(&self, attr: &Attr, node: NewNode<'n>) -> FsResult<CreateArgs<'n>> {
        let tag = self.from.tag(attr.ino)?;
        Ok(CreateArgs { uid: attr.uid, gid: attr.gid, tag, ..CreateArgs::new(node, attr.perm) })
    }

    /// Gives an inode that has been copied one more name. False when it has not.
    fn linked(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<bool> {
        match (self.copies.get(&ino.0), self.to) {
            (Some(Copied::Whole(copy)), Some(to)) => to.link(*copy, dir, name).map(|_| true),
            (Some(_), _) => Ok(true),
            (None, _) => Ok(false),
        }
    }

    fn other(&mut self, ino: Ino, attr: &Attr, dir: Ino, name: &[u8]) -> FsResult<()> {
        if self.linked(ino, dir, name)? {
            return Ok(());
        }
        self.report.others += 1;
        let target;
        let node = match attr.kind {
            FileKind::Symlink => {
                target = self.from.readlink(ino)?;
                NewNode::Symlink(&target)
            }
            kind => NewNode::Special(kind, attr.rdev),
        };
        let mut copy = ino;
        if let Some(to) = self.to {
            copy = to.create(dir, name, &self.args(attr, node)?)?.ino;
            self.copy_xattrs(ino, copy)?;
            self.set_attributes(copy, attr)?;
        }
        if attr.links > 1 {
            self.copies.insert(ino.0, Copied::Whole(copy));
        }
        Ok(())
    }

    fn file(&mut self, ino: Ino, attr: &Attr, dir: Ino, name: &[u8], path: Vec<u8>) -> FsResult<()> {
        if self.linked(ino, dir, name)? {
            return Ok(());
        }
        if self.report.lost.made_up.contains(&ino.0) {
            self.report.made_up.push(path.clone());
        }
        let copy = match self.to {
            Some(to) => to.create(dir, name, &self.args(attr, NewNode::File)?)?.ino,
            None => ino,
        };
        let (lost_bytes, ranges) = self.content(ino, attr.size, copy)?;
        self.copy_xattrs(ino, copy)?;
        self.set_attributes(copy, attr)?;
        let mixed = self.report.lost.mixed.contains(&ino.0);
        let partial = self.report.lost.partial.contains(&ino.0);
        let whole = lost_bytes == 0 && !mixed && !partial;
        if attr.links > 1 {
            self.copies.insert(ino.0, if whole { Copied::Whole(copy) } else { Copied::Damaged });
        }
        if whole {
            self.report.files += 1;
            return Ok(());
        }
        let now = self.put_away(ino, dir, name)?;
        self.report.damaged_files += 1;
        if self.report.damaged.len() < FILES_MAX {
            let file = DamagedFile { path, size: attr.size, lost_bytes, ranges, mixed, partial, now };
            self.report.damaged.push(file);
        }
        Ok(())
    }

    /// Moves a damaged file's copy to `lost+found`; its path there.
    fn put_away(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let mut number = format!("#{ino}").into_bytes();
        let path = |name: &[u8]| [b"/", LOST_AND_FOUND, b"/", name].concat();
        let Some(to) = self.to else { return Ok(path(&number)) };
        let home = self.make_lost_and_found(to)?;
        if home == dir {
            return Ok(path(name));
        }
        while let Err(error) = to.rename(dir, name, home, &number, RenameFlags::NO_REPLACE) {
            if !matches!(error, FsError::Exists) {
                return Err(error);
            }
            // Somebody had a file of this name there.
            number.push(b'.');
        }
        Ok(path(&number))
    }

    fn make_lost_and_found(&mut self, to: &Lfs) -> FsResult<Ino> {
        if let Some(home) = self.lost_and_found {
            return Ok(home);
        }
        let tag = self.from.tag(Ino::ROOT)?;
        let args = CreateArgs { tag, ..CreateArgs::new(NewNode::Directory, 0o700) };
        let home = match to.create(Ino::ROOT, LOST_AND_FOUND, &args) {
            Ok(made) => made.ino,
            Err(FsError::Exists) => to.lookup(Ino::ROOT, LOST_AND_FOUND)?.ino,
            Err(error) => return Err(error),
        };
        self.lost_and_found = Some(home);
        Ok(home)
    }

    /// Copies content, holes left out; the bytes that cannot be read, and where.
    fn content(&mut self, ino: Ino, size: u64, copy: Ino) -> FsResult<(u64, Vec<(u64, u64)>)> {
        let (mut lost, mut ranges) = (0, Vec::new());
        let mut at = 0;
        while at < size {
            let from = match self.from.seek(ino, at, SeekTarget::Data) {
                Ok(from) => from,
                Err(FsError::NoData) => break,
                Err(error) => return Err(error),
            };
            let end = self.from.seek(ino, from, SeekTarget::Hole)?.min(size);
            at = from;
            while at < end {
                let piece = (end - at).min(PIECE_BYTES as u64);
                if !self.piece(ino, copy, at, piece as usize)? {
                    // Block by block, to lose no more than must be.
                    for block in (at..at + piece).step_by(BLOCK_BYTES) {
                        let bytes = (at + piece - block).min(layout::BLOCK - block % layout::BLOCK);
                        if !self.piece(ino, copy, block, bytes as usize)? {
                            lost += bytes;
                            note_range(&mut ranges, block, bytes);
                        }
                    }
                }
                at += piece;
                (self.progress)(self.report.bytes + lost, self.total.max(self.report.bytes + lost));
            }
        }
        if let Some(to) = self.to {
            to.setattr(copy, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        }
        Ok((lost, ranges))
    }

    /// Copies bytes; false when they cannot be read.
    fn piece(&mut self, ino: Ino, copy: Ino, at: u64, bytes: usize) -> FsResult<bool> {
        let out = &mut self.buffer[..bytes];
        match self.from.read_known(ino, at, out) {
            Ok(len) if len == bytes => {}
            Ok(_) | Err(FsError::Checksum(_) | FsError::Device(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.report.bytes += bytes as u64;
        match self.to {
            Some(to) if bytes >= BLOCK_BYTES => to.write_through(copy, at, out)?,
            Some(to) => to.write(copy, at, out)?,
            None => {}
        }
        Ok(true)
    }

    fn copy_xattrs(&self, ino: Ino, copy: Ino) -> FsResult<()> {
        let Some(to) = self.to else { return Ok(()) };
        for name in self.from.listxattr(ino)? {
            to.setxattr(copy, &name, &self.from.getxattr(ino, &name)?, XattrMode::Any)?;
        }
        Ok(())
    }

    fn set_attributes(&self, copy: Ino, attr: &Attr) -> FsResult<()> {
        let Some(to) = self.to else { return Ok(()) };
        let set = SetAttr {
            perm: Some(attr.perm),
            uid: Some(attr.uid),
            gid: Some(attr.gid),
            size: None,
            atime: Some(attr.atime),
            mtime: Some(attr.mtime),
            ctime: None,
        };
        to.setattr(copy, &set).map(drop)
    }
}

/// Adds a range to a list of up to [`RANGES_MAX`]; one that follows the last makes that longer.
pub fn note_range(ranges: &mut Vec<(u64, u64)>, at: u64, bytes: u64) {
    if let Some((from, len)) = ranges.last_mut()
        && *from + *len == at
    {
        *len += bytes;
    } else if ranges.len() < RANGES_MAX {
        ranges.push((at, bytes));
    }
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}

fn shown(path: &[u8]) -> Vec<u8> {
    if path.is_empty() { b"/".to_vec() } else { path.to_vec() }
}
