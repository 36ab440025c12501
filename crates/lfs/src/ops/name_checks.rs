//! Whether metadata has room for a change of names, beside the [checks of all cores](weft_vfs::names). They are the same for an operation of
//! its own, which finds the volume as it is, and for a change within a step, which finds what those before it have made of it.

use super::xattrs::check_changes;
use crate::core::State;
use crate::state::inode::{ENTRY_BYTES, INODE_BYTES, Xattrs};
use crate::{NAMES_RESERVE_BYTES, RENAMES_RESERVE_BYTES};
use weft_core::{Ino, refuse};
use weft_vfs::names::{Facts, Move, Names, check_node};
use weft_vfs::{CreateArgs, FileKind, FsError, FsResult, NewNode, RenameFlags, XattrChange};

/// What a new node is: kind, device number, target.
pub(super) fn kind_of<'a>(node: &NewNode<'a>) -> (FileKind, u64, &'a [u8]) {
    match *node {
        NewNode::File => (FileKind::File, 0, &[]),
        NewNode::Directory => (FileKind::Directory, 0, &[]),
        NewNode::Symlink(target) => (FileKind::Symlink, 0, target),
        NewNode::Special(kind, rdev) => (kind, rdev, &[]),
    }
}

/// Names and inodes as a change finds them, and room for what they take.
pub(super) trait Room: Names {
    /// Bytes in use, and those that may be when metadata has grown by `bytes`.
    fn room(&self, bytes: usize) -> (u64, u64);

    /// Fails unless metadata may grow by `bytes`.
    fn check_metadata(&self, bytes: usize) -> FsResult<()> {
        let (used, usable) = self.room(bytes);
        refuse(used + RENAMES_RESERVE_BYTES + NAMES_RESERVE_BYTES > usable, FsError::NoSpace)
    }

    /// Of a new node, which has no name when `dir` is `None`. The bytes by which metadata grows.
    fn check_new(&mut self, dir: Option<(Ino, &[u8])>, args: &CreateArgs<'_>) -> FsResult<usize> {
        if let Some((dir, name)) = dir {
            self.check_free(dir, name)?;
        }
        check_node(&args.node)?;
        let xattrs: Vec<XattrChange<'_>> =
            args.xattrs.iter().map(|&(name, value)| (name, Some(value))).collect();
        let added = check_changes(&Xattrs::default(), &xattrs)?;
        let (_, _, target) = kind_of(&args.node);
        let name_len = dir.map_or(0, |(_, name)| name.len());
        let bytes = name_len + target.len() + INODE_BYTES + ENTRY_BYTES + added;
        self.check_metadata(bytes)?;
        Ok(bytes)
    }

    /// Of one more name of an inode.
    fn check_new_link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.check_link(ino, dir, name)?;
        self.check_metadata(name.len() + ENTRY_BYTES)
    }

    /// Of a rename. `None` when nothing is to be done.
    fn check_move(
        &mut self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<Option<Move>> {
        let moved = self.check_rename((from, name), (to, new_name), flags)?;
        let Some(Move { other, .. }) = moved else { return Ok(None) };
        if other.is_none() && new_name.len() > name.len() {
            let (used, usable) = self.room(new_name.len() - name.len());
            refuse(used > usable, FsError::NoSpace)?;
        }
        if flags.contains(RenameFlags::WHITEOUT) {
            self.check_metadata(name.len() + INODE_BYTES + ENTRY_BYTES)?;
        }
        Ok(moved)
    }
}

impl State {
    pub(super) fn facts_of(&self, ino: Ino) -> FsResult<Facts> {
        let inode = self.inode(ino)?;
        let (entries, parent) =
            inode.directory().map_or((0, ino), |entries| (entries.len() as u64, entries.parent));
        Ok(Facts { kind: inode.kind, links: inode.links, linkable: inode.linkable, entries, parent })
    }

    pub(super) fn inode_named(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.tree.get(dir)?.directory()?.get(name).map(|entry| entry.ino)
    }
}

impl Names for State {
    fn facts(&mut self, ino: Ino) -> FsResult<Facts> {
        self.facts_of(ino)
    }

    fn named(&mut self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        Ok(self.inode_named(dir, name))
    }
}

impl Room for State {
    fn room(&self, bytes: usize) -> (u64, u64) {
        (self.space.used(), self.usable_after(bytes as i64))
    }
}
