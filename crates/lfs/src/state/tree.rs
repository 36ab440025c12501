//! All inodes, and what each journal record does to them. The same code runs when an operation happens and when it is
//! replayed, so that the two cannot differ.

use super::block_set::BlockSet;
use super::directory::Directory;
use super::extent_map::ExtentMap;
use super::inode::{Body, ENTRY_BYTES, Inode};
use super::inodes::Inodes;
use super::rarely::Rarely;
use crate::alloc::space::charge_run;
use crate::error::ApplyError;
use crate::layout::record::{FileRun, NewInode, Record, Run};
use weft_core::{BLOCK_BYTES, Ino, Tag, refuse};
use weft_vfs::{FLAGS_XATTR, FileKind};

/// Keeps the sums of what is mapped and reserved while records are applied.
pub trait SpaceAccounts {
    /// The file maps this run now.
    fn mapped(&mut self, ino: Ino, run: &FileRun);
    /// The file no longer maps this run.
    fn unmapped(&mut self, ino: Ino, run: &FileRun);
    /// `fallocate` reserved space for so many blocks.
    fn reserved(&mut self, blocks: u64);
    /// So many reserved blocks were mapped or released.
    fn released(&mut self, blocks: u64);
}

/// Replay keeps no sums: the mount computes them when the last record is applied.
impl SpaceAccounts for () {
    fn mapped(&mut self, _: Ino, _: &FileRun) {}
    fn unmapped(&mut self, _: Ino, _: &FileRun) {}
    fn reserved(&mut self, _: u64) {}
    fn released(&mut self, _: u64) {}
}

/// The name space and the maps.
#[derive(Debug, Default)]
pub struct Tree {
    /// Every inode.
    pub inodes: Inodes,
    /// The next inode number; numbers are never used twice.
    pub next_ino: u64,
    /// Estimate of a checkpoint's size without runs, in bytes.
    pub saved_bytes: u64,
    /// Runs of all files, and ranges of blocks that they were promised. Together they are no more than the blocks charged.
    pub runs: u64,
    /// Blocks of the device; extents beyond are refused.
    pub device_blocks: u64,
    /// Whether there is, or was, an inode whose bytes are to be erased.
    pub erases: bool,
}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Tree {
    /// A tree with nothing but the root directory.
    pub fn new(device_blocks: u64, owner: (u32, u32), time: i64) -> Tree {
        let mut tree = Tree { next_ino: Ino::ROOT.0 + 1, device_blocks, ..Tree::default() };
        let bare = NewInode::bare(Ino::ROOT, FileKind::Directory, 0o755);
        tree.add_inode(&NewInode { uid: owner.0, gid: owner.1, time, ..bare }, Ino::ROOT).links = 2;
        tree
    }

    /// An inode.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(ino.0)
    }

    /// An inode, to change what only memory has.
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.inodes.get_mut(ino.0)
    }

    /// Adds an inode without a name.
    pub fn add_inode(&mut self, node: &NewInode<'_>, parent: Ino) -> &mut Inode {
        let body = match node.kind {
            FileKind::File => Body::File(ExtentMap::default()),
            FileKind::Directory => Body::Directory(Box::new(Directory::new(parent))),
            FileKind::Symlink => Body::Symlink(node.target.into()),
            _ => Body::Special,
        };
        let inode = Inode {
            kind: node.kind,
            perm: node.perm,
            links: 0,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            atime: node.time,
            mtime: node.time,
            ctime: node.time,
            btime: node.time,
            size: 0,
            disk_size: 0,
            emptied_in: 0,
            tag: node.tag,
            born_at: node.born_at,
            body,
            xattrs: Default::default(),
            charged: 0,
            reserved: Default::default(),
            opens: 0,
            linkable: false,
            watched: false,
            dirty: Default::default(),
        };
        self.erases |= inode.is_secure();
        self.saved_bytes += inode.saved_bytes();
        self.next_ino = self.next_ino.max(node.ino.0 + 1);
        self.inodes.insert(node.ino.0, inode)
    }

    /// Applies a record.
    pub fn apply(&mut self, record: &Record<'_>, sink: &mut impl SpaceAccounts) -> Result<(), ApplyError> {
        match record {
            Record::Create { dir, name, node } => self.create(*dir, name, node),
            Record::Link { ino, dir, name, time } => {
                if self.inode(*ino)?.kind == FileKind::Directory {
                    return Err(ApplyError::WrongKind(ino.0, "a file"));
                }
                self.add_name(*dir, name, *ino, *time)?;
                let inode = self.inode(*ino)?;
                inode.links = inode.links.saturating_add(1);
                inode.ctime = *time;
                Ok(())
            }
            Record::Unlink { dir, name, time } => {
                let ino = self.remove_name(*dir, name, *time)?;
                self.lose_name(ino, *time)
            }
            Record::Rename { from, to, name, new_name, exchange, time } => {
                if *exchange {
                    self.exchange(*from, name, *to, new_name, *time)
                } else {
                    self.rename(*from, name, *to, new_name, *time)
                }
            }
            Record::Free { ino } => {
                let inode = self.inodes.remove(ino.0).ok_or(ApplyError::NoInode(ino.0))?;
                self.saved_bytes = self.saved_bytes.saturating_sub(inode.saved_bytes());
                if let Body::File(map) = &inode.body {
                    self.runs = self.runs.saturating_sub((map.len() + inode.reserved.len()) as u64);
                    map.iter().for_each(|run| sink.unmapped(*ino, &run));
                    sink.released(inode.reserved.blocks());
                }
                Ok(())
            }
            Record::Attributes { ino, perm, uid, gid, times } => {
                let inode = self.inode(*ino)?;
                (inode.perm, inode.uid, inode.gid) = (*perm, *uid, *gid);
                [inode.atime, inode.mtime, inode.ctime] = *times;
                Ok(())
            }
            Record::Truncate { ino, size, extend, time } => {
                self.change_map(*ino, sink, |map, reserved, change| {
                    map.remove(size.div_ceil(BLOCK), u64::MAX, &mut |run| change.unmapped(run));
                    // What a file that grows has of its last block may be all of the block, and zeros behind its end.
                    if !*extend {
                        change.released(reserved.remove(size.div_ceil(BLOCK), u64::MAX));
                    }
                    if !*extend && !size.is_multiple_of(BLOCK) {
                        map.trim(size / BLOCK, (size % BLOCK) as u32, &mut |old, new| {
                            // In this order: a zone that nothing but the old piece kept would die at once.
                            change.mapped(new);
                            change.unmapped(old);
                        });
                    }
                })?;
                let inode = self.inode(*ino)?;
                inode.disk_size =
                    if *extend { inode.disk_size.max(*size) } else { inode.disk_size.min(*size) };
                self.touch(*ino, *time)
            }
            Record::Extents { ino, relocated, size, mtime, runs, .. } => {
                self.map_runs(*ino, runs, sink)?;
                if !*relocated {
                    self.inode(*ino)?.note_settled(*size, *mtime);
                }
                Ok(())
            }
            Record::Inline { ino, size, mtime, .. } => {
                let inode = self.inode(*ino)?;
                refuse(inode.kind != FileKind::File, ApplyError::WrongKind(ino.0, "a file"))?;
                inode.note_settled(*size, *mtime);
                Ok(())
            }
            Record::Punch { ino, block, count, time } => {
                self.change_map(*ino, sink, |map, reserved, change| {
                    map.remove(*block, block + count, &mut |run| change.unmapped(run));
                    change.released(reserved.remove(*block, block + count));
                })?;
                self.touch(*ino, *time)
            }
            Record::Shift { ino, block, count, insert, size, time } => {
                self.change_map(*ino, sink, |map, reserved, change| {
                    if *insert {
                        map.shift(*block, *count, true);
                        reserved.shift(*block, *count, true);
                    } else {
                        map.remove(*block, block + count, &mut |run| change.unmapped(run));
                        map.shift(block + count, *count, false);
                        change.released(reserved.remove(*block, block + count));
                        reserved.shift(block + count, *count, false);
                    }
                })?;
                self.inode(*ino)?.disk_size = *size;
                self.touch(*ino, *time)
            }
            Record::Reserve { ino, block, count } => self.change_map(*ino, sink, |map, reserved, change| {
                let mut from = *block;
                for run in map.range(*block, block + count) {
                    change.reserved(reserved.insert(from, run.block));
                    from = run.block + u64::from(run.run.count);
                }
                change.reserved(reserved.insert(from, block + count));
            }),
            Record::Xattr { ino, name, value, time } => {
                let inode = self.inode(*ino)?;
                let before = inode.saved_bytes();
                match value {
                    Some(value) => drop(inode.xattrs.insert((*name).into(), (*value).into())),
                    None => drop(inode.xattrs.get_mut().and_then(|xattrs| xattrs.remove(*name))),
                }
                inode.xattrs.tidy();
                if *name == FLAGS_XATTR {
                    inode.tag.flags = inode.flags_of_tag();
                }
                inode.ctime = *time;
                let (after, is_secure) = (inode.saved_bytes(), inode.is_secure());
                self.erases |= is_secure;
                self.saved_bytes = (self.saved_bytes + after).saturating_sub(before);
                Ok(())
            }
            Record::SetTag { ino, tag } => {
                let inode = self.inode(*ino)?;
                inode.tag = Tag { flags: tag.flags | inode.flags_of_tag(), ..*tag };
                self.erases |= inode.is_secure();
                Ok(())
            }
        }
    }

    /// Adds a directory entry as a checkpoint has it; link counts are the checkpoint's.
    pub fn load_entry(&mut self, dir: Ino, cookie: u64, ino: Ino, name: &[u8]) -> Result<(), ApplyError> {
        let directory = self.dir(dir)?;
        refuse(!directory.insert_at(name, ino, cookie), ApplyError::Exists(ino.0))?;
        self.saved_bytes += (ENTRY_BYTES + name.len()) as u64;
        Ok(())
    }

    /// Puts the entries of a checkpoint that were gathered beside it into a directory.
    pub fn adopt_entries(&mut self, dir: Ino, entries: Directory) -> Result<(), ApplyError> {
        let bytes: usize = entries.after(0).map(|(_, name, _)| ENTRY_BYTES + name.len()).sum();
        refuse(!self.dir(dir)?.adopt(entries), ApplyError::Exists(dir.0))?;
        self.saved_bytes += bytes as u64;
        Ok(())
    }

    /// A directory is about to get a name of an inode, which must be there: counts it if that is a directory, too.
    pub fn note_child(&mut self, dir: Ino, ino: Ino) -> Result<(), ApplyError> {
        let is_dir = self.inode(ino)?.kind == FileKind::Directory;
        self.dir(dir)?.subdirectories += u32::from(is_dir);
        Ok(())
    }

    /// Maps runs of a file.
    pub fn map_runs(
        &mut self,
        ino: Ino,
        runs: &[FileRun],
        sink: &mut impl SpaceAccounts,
    ) -> Result<(), ApplyError> {
        let end = self.device_blocks;
        let is_beyond = |r: &FileRun| r.run.device_block() + u64::from(r.run.count) > end;
        refuse(runs.iter().any(is_beyond), ApplyError::BadExtent(ino.0))?;
        self.change_map(ino, sink, |map, reserved, change| {
            for run in runs {
                change.released(reserved.remove(run.block, run.block + u64::from(run.run.count)));
                map.insert(*run, &mut |old| change.unmapped(old));
                change.mapped(*run);
            }
        })
    }

    /// Ends a file at `size`, as a mount does: what is mapped behind it goes. A last block that is mapped whole stays so
    /// when `zeros_behind` says that it holds nothing but zeros behind the end.
    pub fn end_at(
        &mut self,
        ino: Ino,
        size: u64,
        zeros_behind: impl FnOnce(Run) -> bool,
    ) -> Result<(), ApplyError> {
        self.change_map(ino, &mut (), |map, _, change| {
            map.remove(size.div_ceil(BLOCK), u64::MAX, &mut |run| change.unmapped(run));
            let len = (size % BLOCK) as u32;
            if len > 0 && !map.get(size / BLOCK).is_some_and(|run| run.is_whole() && zeros_behind(run)) {
                map.trim(size / BLOCK, len, &mut |old, new| {
                    change.mapped(new);
                    change.unmapped(old);
                });
            }
        })
    }

    fn inode(&mut self, ino: Ino) -> Result<&mut Inode, ApplyError> {
        self.get_mut(ino).ok_or(ApplyError::NoInode(ino.0))
    }

    fn dir(&mut self, ino: Ino) -> Result<&mut Directory, ApplyError> {
        match &mut self.inode(ino)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(ApplyError::WrongKind(ino.0, "a directory")),
        }
    }

    fn create(&mut self, dir: Ino, name: &[u8], node: &NewInode<'_>) -> Result<(), ApplyError> {
        refuse(self.inodes.contains(node.ino.0) || node.ino.0 == 0, ApplyError::Exists(node.ino.0))?;
        if dir.0 == 0 {
            self.add_inode(node, Ino(0));
            return Ok(());
        }
        self.add_name(dir, name, node.ino, node.time)?;
        let is_dir = node.kind == FileKind::Directory;
        self.add_inode(node, dir).links = if is_dir { 2 } else { 1 };
        if is_dir {
            self.count_subdirectory(dir, u32::saturating_add)?;
        }
        Ok(())
    }

    fn add_name(&mut self, dir: Ino, name: &[u8], ino: Ino, time: i64) -> Result<(), ApplyError> {
        refuse(!self.dir(dir)?.insert(name, ino), ApplyError::Exists(ino.0))?;
        self.saved_bytes += (ENTRY_BYTES + name.len()) as u64;
        self.touch(dir, time)
    }

    fn remove_name(&mut self, dir: Ino, name: &[u8], time: i64) -> Result<Ino, ApplyError> {
        let entry = self.dir(dir)?.remove(name).ok_or(ApplyError::NoName(dir.0))?;
        self.saved_bytes = self.saved_bytes.saturating_sub((ENTRY_BYTES + name.len()) as u64);
        if self.inode(entry.ino)?.kind == FileKind::Directory {
            self.count_subdirectory(dir, u32::saturating_sub)?;
        }
        self.touch(dir, time)?;
        Ok(entry.ino)
    }

    /// Gives a name to another inode. It keeps its cookie: a listing that has shown it, or has yet to come to it, shows it once.
    fn replace_name(&mut self, dir: Ino, name: &[u8], ino: Ino, time: i64) -> Result<(), ApplyError> {
        let replaced = self.dir(dir)?.replace(name, ino).ok_or(ApplyError::NoName(dir.0))?;
        if self.inode(replaced)?.kind == FileKind::Directory {
            self.count_subdirectory(dir, u32::saturating_sub)?;
        }
        self.lose_name(replaced, time)?;
        self.touch(dir, time)
    }

    /// An inode lost a name; a directory has only one.
    fn lose_name(&mut self, ino: Ino, time: i64) -> Result<(), ApplyError> {
        let inode = self.inode(ino)?;
        inode.links = if inode.kind == FileKind::Directory { 0 } else { inode.links.saturating_sub(1) };
        inode.ctime = time;
        Ok(())
    }

    fn touch(&mut self, ino: Ino, time: i64) -> Result<(), ApplyError> {
        let inode = self.inode(ino)?;
        (inode.mtime, inode.ctime) = (time, time);
        Ok(())
    }

    /// A directory gains or loses a subdirectory, whose `..` is a link to it.
    fn count_subdirectory(&mut self, dir: Ino, count: fn(u32, u32) -> u32) -> Result<(), ApplyError> {
        let inode = self.inode(dir)?;
        inode.links = count(inode.links, 1);
        let directory = self.dir(dir)?;
        directory.subdirectories = count(directory.subdirectories, 1);
        Ok(())
    }

    fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        time: i64,
    ) -> Result<(), ApplyError> {
        // The name has to exist before the one it replaces may go.
        let ino = self.dir(from)?.get(name).ok_or(ApplyError::NoName(from.0))?.ino;
        let replaces = self.dir(to)?.get(new_name).is_some();
        refuse(from == to && name == new_name, ApplyError::Exists(ino.0))?;
        self.remove_name(from, name, time)?;
        if replaces {
            self.replace_name(to, new_name, ino, time)?;
        } else {
            self.add_name(to, new_name, ino, time)?;
        }
        self.inode(ino)?.ctime = time;
        if self.inode(ino)?.kind == FileKind::Directory {
            self.count_subdirectory(to, u32::saturating_add)?;
            self.dir(ino)?.parent = to;
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        time: i64,
    ) -> Result<(), ApplyError> {
        let one = self.dir(from)?.get(name).ok_or(ApplyError::NoName(from.0))?.ino;
        let two = self.dir(to)?.get(new_name).ok_or(ApplyError::NoName(to.0))?.ino;
        self.dir(from)?.replace(name, two);
        self.dir(to)?.replace(new_name, one);
        for (ino, old, new) in [(one, from, to), (two, to, from)] {
            self.inode(ino)?.ctime = time;
            if self.inode(ino)?.kind == FileKind::Directory {
                self.count_subdirectory(old, u32::saturating_sub)?;
                self.count_subdirectory(new, u32::saturating_add)?;
                self.dir(ino)?.parent = new;
            }
        }
        self.touch(from, time)?;
        self.touch(to, time)
    }

    /// Changes a file's map and keeps the counts that depend on it.
    fn change_map(
        &mut self,
        ino: Ino,
        sink: &mut impl SpaceAccounts,
        change: impl FnOnce(&mut ExtentMap, &mut Rarely<BlockSet>, &mut MapChange<'_>),
    ) -> Result<(), ApplyError> {
        let inode = self.inodes.get_mut(ino.0).ok_or(ApplyError::NoInode(ino.0))?;
        let Body::File(map) = &mut inode.body else { return Err(ApplyError::WrongKind(ino.0, "a file")) };
        let reserved = &mut inode.reserved;
        let runs_before = (map.len() + reserved.len()) as u64;
        let mut notes = MapChange { ino, charged: inode.charged, sink };
        change(map, reserved, &mut notes);
        inode.charged = notes.charged;
        self.runs = (self.runs + (map.len() + reserved.len()) as u64).saturating_sub(runs_before);
        Ok(())
    }
}

/// Collects what a change of one file's map adds and removes.
struct MapChange<'a> {
    ino: Ino,
    charged: u64,
    sink: &'a mut dyn SpaceAccounts,
}

impl MapChange<'_> {
    fn mapped(&mut self, run: FileRun) {
        self.charged += charge_run(&run.run);
        self.sink.mapped(self.ino, &run);
    }

    fn unmapped(&mut self, run: FileRun) {
        self.charged = self.charged.saturating_sub(charge_run(&run.run));
        self.sink.unmapped(self.ino, &run);
    }

    fn reserved(&mut self, blocks: u64) {
        self.charged = self.charged.saturating_add(blocks.saturating_mul(BLOCK));
        self.sink.reserved(blocks);
    }

    fn released(&mut self, blocks: u64) {
        self.charged = self.charged.saturating_sub(blocks.saturating_mul(BLOCK));
        self.sink.released(blocks);
    }
}
