//! What a change of names must not do. The checks are the same for an operation of its own, which finds the volume as it is, and for a
//! change within a step, which finds what those before it have made of it: each is a [`Names`].

use super::xattrs::check_changes;
use crate::core::State;
use crate::state::inode::{ENTRY_BYTES, INODE_BYTES, Xattrs};
use crate::{NAMES_RESERVE_BYTES, RENAMES_RESERVE_BYTES};
use weft_core::{Ino, refuse};
use weft_vfs::{
    CreateArgs, FileKind, FsError, FsResult, LINK_MAX, NAME_MAX, NewNode, PATH_MAX, RenameFlags, XattrChange,
};

/// What the checks ask of an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub kind: FileKind,
    /// Names.
    pub links: u32,
    /// Whether it has none yet and may get one.
    pub linkable: bool,
    /// Entries of a directory.
    pub entries: usize,
    /// The directory that holds a directory; itself for the root, and for what is no directory.
    pub parent: Ino,
}

/// What a rename moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub ino: Ino,
    /// What has the new name.
    pub other: Option<Ino>,
}

/// What a new node is: kind, device number, target.
pub(super) fn kind_of<'a>(node: &NewNode<'a>) -> (FileKind, u64, &'a [u8]) {
    match *node {
        NewNode::File => (FileKind::File, 0, &[]),
        NewNode::Directory => (FileKind::Directory, 0, &[]),
        NewNode::Symlink(target) => (FileKind::Symlink, 0, target),
        NewNode::Special(kind, rdev) => (kind, rdev, &[]),
    }
}

fn check_name(name: &[u8]) -> FsResult<()> {
    refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid("not a name of a directory entry"));
    }
    Ok(())
}

/// Names and inodes as a change finds them.
pub(super) trait Names {
    /// An inode; `Stale` when there is none of this number.
    fn facts(&self, ino: Ino) -> FsResult<Facts>;

    /// The inode with this name in a directory, which is one.
    fn named(&self, dir: Ino, name: &[u8]) -> Option<Ino>;

    /// Bytes in use, and those that may be when metadata has grown by `bytes`.
    fn room(&self, bytes: usize) -> (u64, u64);

    /// The inode with this name.
    fn child(&self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        refuse(self.facts(dir)?.kind != FileKind::Directory, FsError::NotDirectory)?;
        refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
        Ok(self.named(dir, name))
    }

    /// Fails unless this is a directory that may get a new name: it has one itself.
    fn living_dir(&self, dir: Ino) -> FsResult<Facts> {
        let facts = self.facts(dir)?;
        refuse(facts.kind != FileKind::Directory, FsError::NotDirectory)?;
        refuse(facts.links == 0, FsError::NotFound)?;
        Ok(facts)
    }

    /// Fails unless metadata may grow by `bytes`.
    fn check_metadata(&self, bytes: usize) -> FsResult<()> {
        let (used, usable) = self.room(bytes);
        refuse(used + RENAMES_RESERVE_BYTES + NAMES_RESERVE_BYTES > usable, FsError::NoSpace)
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn is_below(&self, mut dir: Ino, ancestor: Ino) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.facts(dir) {
                Ok(Facts { parent, .. }) if dir != Ino::ROOT && parent != dir => dir = parent,
                _ => return false,
            }
        }
    }

    /// Of a new node, which has no name when `dir` is `None`. The bytes by which metadata grows.
    fn check_create(&self, dir: Option<(Ino, &[u8])>, args: &CreateArgs<'_>) -> FsResult<usize> {
        let (kind, _, target) = kind_of(&args.node);
        if let Some((dir, name)) = dir {
            check_name(name)?;
            let facts = self.living_dir(dir)?;
            refuse(self.child(dir, name)?.is_some(), FsError::Exists)?;
            refuse(kind == FileKind::Directory && facts.links >= LINK_MAX, FsError::TooManyLinks)?;
        }
        if kind == FileKind::Symlink {
            refuse(target.is_empty(), FsError::NotFound)?;
            refuse(target.len() >= PATH_MAX, FsError::NameTooLong)?;
        }
        if matches!(args.node, NewNode::Special(FileKind::File | FileKind::Directory | FileKind::Symlink, _))
        {
            return Err(FsError::Invalid("not a special file"));
        }
        let xattrs: Vec<XattrChange<'_>> =
            args.xattrs.iter().map(|&(name, value)| (name, Some(value))).collect();
        let added = check_changes(&Xattrs::default(), &xattrs)?;
        let name_len = dir.map_or(0, |(_, name)| name.len());
        let bytes = name_len + target.len() + INODE_BYTES + ENTRY_BYTES + added;
        self.check_metadata(bytes)?;
        Ok(bytes)
    }

    /// Of one more name of an inode.
    fn check_link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<()> {
        check_name(name)?;
        let facts = self.facts(ino)?;
        refuse(facts.kind == FileKind::Directory, FsError::NotPermitted)?;
        refuse(facts.links >= LINK_MAX, FsError::TooManyLinks)?;
        self.living_dir(dir)?;
        refuse(self.child(dir, name)?.is_some(), FsError::Exists)?;
        refuse(facts.links == 0 && !facts.linkable, FsError::NotFound)?;
        self.check_metadata(name.len() + ENTRY_BYTES)
    }

    /// Of the end of a name; a directory's or another's. The inode that has it.
    fn check_remove(&self, dir: Ino, name: &[u8], is_dir: bool) -> FsResult<Ino> {
        refuse(name == b"." || name == b"..", FsError::Invalid("not a name of a directory entry"))?;
        let ino = self.child(dir, name)?.ok_or(FsError::NotFound)?;
        let facts = self.facts(ino)?;
        match (facts.kind == FileKind::Directory, is_dir) {
            (true, true) => refuse(facts.entries > 0, FsError::NotEmpty)?,
            (true, false) => return Err(FsError::IsDirectory),
            (false, true) => return Err(FsError::NotDirectory),
            (false, false) => {}
        }
        Ok(ino)
    }

    /// Of a rename. `None` when nothing is to be done: both names are those of one inode.
    fn check_rename(
        &self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<Option<Move>> {
        check_name(name)?;
        check_name(new_name)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags != RenameFlags::EXCHANGE {
            return Err(FsError::Invalid("EXCHANGE excludes NO_REPLACE and WHITEOUT"));
        }
        let ino = self.child(from, name)?.ok_or(FsError::NotFound)?;
        let target = self.living_dir(to)?;
        let other = self.child(to, new_name)?;
        refuse(flags.contains(RenameFlags::NO_REPLACE) && other.is_some(), FsError::Exists)?;
        refuse(exchange && other.is_none(), FsError::NotFound)?;
        let moves_dir = self.facts(ino)?.kind == FileKind::Directory;
        if moves_dir && self.is_below(to, ino) {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if let Some(other) = other {
            let replaced = self.facts(other)?;
            let replaces_dir = replaced.kind == FileKind::Directory;
            if exchange {
                if replaces_dir && self.is_below(from, other) {
                    return Err(FsError::Invalid("a directory cannot move into itself"));
                }
            } else if other != ino {
                match (moves_dir, replaces_dir) {
                    (true, false) => return Err(FsError::NotDirectory),
                    (false, true) => return Err(FsError::IsDirectory),
                    _ => {}
                }
                refuse(replaced.entries > 0, FsError::NotEmpty)?;
            }
        }
        if other == Some(ino) {
            return Ok(None);
        }
        let is_one_more = moves_dir && from != to && other.is_none();
        refuse(is_one_more && target.links >= LINK_MAX, FsError::TooManyLinks)?;
        if other.is_none() && new_name.len() > name.len() {
            let (used, usable) = self.room(new_name.len() - name.len());
            refuse(used > usable, FsError::NoSpace)?;
        }
        if flags.contains(RenameFlags::WHITEOUT) {
            self.check_metadata(name.len() + INODE_BYTES + ENTRY_BYTES)?;
        }
        Ok(Some(Move { ino, other }))
    }
}

impl Names for State {
    fn facts(&self, ino: Ino) -> FsResult<Facts> {
        let inode = self.inode(ino)?;
        let (entries, parent) = inode.directory().map_or((0, ino), |entries| (entries.len(), entries.parent));
        Ok(Facts { kind: inode.kind, links: inode.links, linkable: inode.linkable, entries, parent })
    }

    fn named(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.tree.get(dir)?.directory()?.get(name).map(|entry| entry.ino)
    }

    fn room(&self, bytes: usize) -> (u64, u64) {
        (self.space.used(), self.usable_after(bytes as i64))
    }
}
