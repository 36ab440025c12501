//! A file core in memory: the oracle of the conformance suite.
//!
//! It stores nothing durably and is not built to be fast. It is built to be seen to be right: one big lock, ordered
//! maps, and one small function per rule. Where POSIX leaves a choice, what this core does is what
//! [`FileSystem`] promises, and the model tests compare every other core with it.
//!
//! One lock guards everything; no callback runs while it is held.
//!
//! Inodes and blocks are shared until they change: a copy of the whole state costs a pointer an inode, and a step of several changes
//! that is refused goes back to one.

mod content;
mod directory;
mod inode;
mod namespace;
mod step;

use crate::names::Names;
use crate::{
    Attr, Change, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileKind, FileSystem,
    FsError, FsResult, FsStats, NewNode, RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrChange, XattrMode,
    change,
};
use content::Content;
use inode::{Inode, Node};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino, Tag, refuse};

/// Largest size of a file, in bytes.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Inodes that a volume can hold.
const INODES_MAX: u64 = 1 << 32;
/// What [`MemFs::new`] gives as its capacity, in bytes.
const DEFAULT_CAPACITY_BYTES: u64 = 1 << 40;

/// A volume in memory.
#[derive(Debug)]
pub struct MemFs {
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct State {
    inodes: BTreeMap<Ino, Arc<Inode>>,
    next_ino: u64,
    capacity_blocks: u64,
    used_blocks: u64,
    written_bytes: u64,
    /// Within a step of several changes: the inodes to forget behind it if they have no name and are not open then.
    nameless: Option<Vec<Ino>>,
}

impl Default for MemFs {
    fn default() -> Self {
        MemFs::new()
    }
}

impl MemFs {
    /// An empty volume that is as large as memory lets it be.
    pub fn new() -> MemFs {
        MemFs::with_capacity(DEFAULT_CAPACITY_BYTES)
    }

    /// An empty volume that holds `bytes` of file data, rounded down to whole blocks, and then fails with `NoSpace`.
    pub fn with_capacity(bytes: u64) -> MemFs {
        let root =
            Inode::new(Node::Directory(directory::Directory::new(Ino::ROOT)), 0o755, 0, 0, Tag::default());
        MemFs {
            state: Mutex::new(State {
                inodes: BTreeMap::from([(Ino::ROOT, Arc::new(Inode { links: 2, ..root }))]),
                next_ino: Ino::ROOT.0 + 1,
                capacity_blocks: bytes / BLOCK_BYTES as u64,
                used_blocks: 0,
                written_bytes: 0,
                nameless: None,
            }),
        }
    }

    /// A volume of its own with the same files.
    #[cfg(test)]
    pub(crate) fn copy(&self) -> MemFs {
        MemFs { state: Mutex::new(self.state.lock().clone()) }
    }

    /// Gives back every open reference, as the end of the program that held them does.
    pub fn release_all(&self) {
        let mut state = self.state.lock();
        let open: Vec<Ino> =
            state.inodes.iter().filter(|(_, inode)| inode.opens > 0).map(|(ino, _)| *ino).collect();
        for ino in open {
            if let Ok(inode) = state.inode_mut(ino) {
                inode.opens = 0;
            }
            state.collect(ino);
        }
    }
}

impl State {
    fn inode(&self, ino: Ino) -> FsResult<&Inode> {
        self.inodes.get(&ino).map(Arc::as_ref).ok_or(FsError::Stale)
    }

    fn inode_mut(&mut self, ino: Ino) -> FsResult<&mut Inode> {
        self.inodes.get_mut(&ino).map(Arc::make_mut).ok_or(FsError::Stale)
    }

    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(self.inode(ino)?.attr(ino))
    }

    /// Forgets an inode that has neither names nor open references; within a step, behind it.
    fn collect(&mut self, ino: Ino) {
        if let Some(nameless) = &mut self.nameless {
            nameless.push(ino);
            return;
        }
        let Some(inode) = self.inodes.get(&ino) else { return };
        if inode.links == 0 && inode.opens == 0 {
            if let Node::File(content) = &inode.node {
                self.used_blocks -= content.blocks();
            }
            self.inodes.remove(&ino);
        }
    }

    /// Changes a file's content with `change` and takes or gives back the blocks that this takes or gives back. When
    /// the volume has not `room` blocks left, nothing changes.
    fn change_content(&mut self, ino: Ino, room: u64, change: impl FnOnce(&mut Content)) -> FsResult<()> {
        let free = self.capacity_blocks - self.used_blocks;
        let content = self.inode_mut(ino)?.content_mut()?;
        refuse(room > free, FsError::NoSpace)?;
        let before = content.blocks();
        change(content);
        let after = content.blocks();
        self.used_blocks = self.used_blocks - before + after;
        self.inode_mut(ino)?.touch_data();
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let content = self.inode(ino)?.content()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = end_of(offset, data.len() as u64)?;
        let room = content.missing_blocks(offset, end);
        self.change_content(ino, room, |content| content.write(offset, data))?;
        self.written_bytes += data.len() as u64;
        Ok(())
    }

    fn setattr(&mut self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        if let Some(size) = set.size {
            self.inode(ino)?.content()?;
            end_of(size, 0)?;
            self.change_content(ino, 0, |content| content.resize(size))?;
        }
        self.inode_mut(ino)?.set(set);
        self.attr(ino)
    }

    fn fallocate(&mut self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let size = self.inode(ino)?.content()?.size();
        refuse(len == 0, FsError::Invalid("an empty range"))?;
        let end = end_of(offset, len)?;
        let block = BLOCK_BYTES as u64;
        let aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize | FallocateMode::ZeroRange { .. } => {
                let keep =
                    matches!(mode, FallocateMode::KeepSize | FallocateMode::ZeroRange { keep_size: true });
                let room = self.inode(ino)?.content()?.missing_blocks(offset, end);
                self.change_content(ino, room, |content| {
                    if matches!(mode, FallocateMode::ZeroRange { .. }) {
                        content.punch(offset, end);
                    }
                    if !keep && end > size {
                        content.resize(end);
                    }
                    content.promise(offset, end);
                })
            }
            FallocateMode::PunchHole => self.change_content(ino, 0, |content| content.punch(offset, end)),
            FallocateMode::CollapseRange if !aligned => {
                Err(FsError::Invalid("a range to collapse is whole blocks"))
            }
            FallocateMode::CollapseRange if end >= size => {
                Err(FsError::Invalid("a range to collapse ends before the file does"))
            }
            FallocateMode::CollapseRange => {
                self.change_content(ino, 0, |content| content.collapse(offset, end))
            }
            FallocateMode::InsertRange if !aligned => {
                Err(FsError::Invalid("a range to insert is whole blocks"))
            }
            FallocateMode::InsertRange if offset >= size => {
                Err(FsError::Invalid("a range to insert begins before the file's end"))
            }
            FallocateMode::InsertRange => {
                end_of(size, len)?;
                self.change_content(ino, 0, |content| content.insert(offset, len))
            }
        }
    }
}

/// The end of a range, or `TooLarge` when no file can reach it.
fn end_of(offset: u64, len: u64) -> FsResult<u64> {
    offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(FsError::TooLarge)
}

impl FileSystem for MemFs {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let mut state = self.state.lock();
        let ino = state.entry(dir, name)?;
        state.attr(ino)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.state.lock().attr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.state.lock().setattr(ino, set)
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        self.state.lock().create(dir, name, args)
    }

    fn create_unnamed(&self, _dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        let mut state = self.state.lock();
        refuse(args.node != NewNode::File, FsError::Invalid("only a file can be without a name"))?;
        let ino = state.add_inode(Ino::ROOT, args)?;
        let inode = state.inode_mut(ino)?;
        inode.opens = 1;
        inode.linkable = linkable;
        state.attr(ino)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.state.lock().link(ino, dir, name)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.state.lock().unlink(dir, name)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.state.lock().rmdir(dir, name)
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        self.state.lock().rename(from, name, to, new_name, flags)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.state.lock().inode(ino)?.node {
            Node::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::Invalid("not a symlink")),
        }
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        Ok(self.state.lock().directory(dir)?.parent)
    }

    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        let entries: Vec<(u64, Vec<u8>, Ino, FileKind)> = {
            let state = self.state.lock();
            let listed = state.directory(dir)?.after(cookie);
            listed
                .map(|(cookie, name, ino)| Ok((cookie, name.to_vec(), ino, state.attr(ino)?.kind)))
                .collect::<FsResult<_>>()?
        };
        for (cookie, name, ino, kind) in entries {
            if !each(DirEntry { name: &name, ino, kind, cookie }) {
                break;
            }
        }
        Ok(())
    }

    fn newest_cookie(&self, dir: Ino) -> FsResult<u64> {
        Ok(self.state.lock().directory(dir)?.next_cookie - 1)
    }

    fn open(&self, ino: Ino) -> FsResult<()> {
        self.state.lock().inode_mut(ino)?.opens += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut state = self.state.lock();
        if let Ok(inode) = state.inode_mut(ino) {
            inode.opens = inode.opens.saturating_sub(1);
        }
        state.collect(ino);
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let mut state = self.state.lock();
        Ok(state.inode_mut(ino)?.content()?.read(offset, out))
    }

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        let mut state = self.state.lock();
        if let Ok(inode) = state.inode_mut(ino)
            && let Some(atime) = inode.attr(ino).atime_after_read(when)
        {
            inode.atime = atime;
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.state.lock().write(ino, offset, data)
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.state.lock().write(ino, offset, data)
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], _through: bool, when: TimeSpec) -> FsResult<()> {
        let mut state = self.state.lock();
        let before = state.inode(ino)?.ctime;
        state.write(ino, offset, data)?;
        let inode = state.inode_mut(ino)?;
        (inode.mtime, inode.ctime) = (when, when.max(before));
        Ok(())
    }

    fn write_back(&self, ino: Ino) -> FsResult<()> {
        self.state.lock().inode(ino).map(|_| ())
    }

    fn write_in_order(&self, ino: Ino) -> FsResult<()> {
        self.state.lock().inode(ino).map(|_| ())
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        self.state.lock().fallocate(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        self.state.lock().inode(ino)?.content()?.seek(offset, target).ok_or(FsError::NoData)
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.state.lock().inode(ino).map(|_| ())
    }

    fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.state.lock().inode(ino)?.xattrs.get(name).cloned().ok_or(FsError::NoAttribute)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.state.lock().inode_mut(ino)?.set_xattr(name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.state.lock().inode(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.state.lock().inode_mut(ino)?.remove_xattr(name)
    }

    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr> {
        refuse(set.size.is_some(), FsError::Invalid("a size does not change with attributes"))?;
        let mut state = self.state.lock();
        let inode = state.inode_mut(ino)?;
        for (name, value) in xattrs {
            match value {
                Some(value) => inode.set_xattr(name, value, XattrMode::Any)?,
                None if inode.xattrs.contains_key(*name) => inode.remove_xattr(name)?,
                None => {}
            }
        }
        inode.set(set);
        state.attr(ino)
    }

    fn statfs(&self) -> FsResult<FsStats> {
        let state = self.state.lock();
        let block = BLOCK_BYTES as u64;
        let inodes = state.inodes.len() as u64;
        Ok(FsStats {
            total_bytes: state.capacity_blocks * block,
            free_bytes: (state.capacity_blocks - state.used_blocks) * block,
            inodes,
            free_inodes: INODES_MAX.saturating_sub(inodes),
        })
    }

    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        self.state.lock().inode_mut(ino)?.set_tag(tag);
        Ok(())
    }

    fn tag(&self, ino: Ino) -> FsResult<Tag> {
        Ok(self.state.lock().inode(ino)?.tag)
    }

    fn commit(&self, changes: &[Change<'_>], _durable: bool) -> Result<change::Made, change::Refused> {
        self.state.lock().step(changes)
    }
}

impl Core for MemFs {
    fn tick(&self) -> FsResult<()> {
        Ok(())
    }

    fn volume_bytes(&self) -> u64 {
        self.state.lock().written_bytes
    }

    fn close(&self) -> FsResult<()> {
        Ok(())
    }

    fn set_death_observer(&self, _observer: DeathObserver) {}

    fn core_stats(&self) -> CoreStats {
        CoreStats { volume_bytes: self.volume_bytes(), ..CoreStats::default() }
    }
}
