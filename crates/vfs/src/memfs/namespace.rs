//! Names: lookup, create, link, unlink, rmdir, rename.
//!
//! Each operation first checks everything that can fail, in the order in which Linux checks it, and then changes
//! everything: nothing is left half done.

use super::directory::Directory;
use super::inode::{Inode, Node};
use super::{Content, INODES_MAX, State};
use crate::{
    Attr, CreateArgs, FileKind, FsError, FsResult, LINK_MAX, NAME_MAX, NewNode, PATH_MAX, RenameFlags,
    TimeSpec, XattrMode,
};
use std::sync::Arc;
use weft_core::{Ino, Tag, refuse};

/// Fails unless a directory entry can have this name.
fn check_name(name: &[u8]) -> FsResult<()> {
    refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FsError::Invalid("not a name"));
    }
    Ok(())
}

impl State {
    pub(super) fn directory(&self, dir: Ino) -> FsResult<&Directory> {
        match &self.inode(dir)?.node {
            Node::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// The inode that a name leads to.
    pub(super) fn entry(&self, dir: Ino, name: &[u8]) -> FsResult<Ino> {
        let directory = self.directory(dir)?;
        check_name(name)?;
        directory.get(name).ok_or(FsError::NotFound)
    }

    /// Fails unless `name` is free and may be given in `dir`.
    fn check_free(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        match self.entry(dir, name) {
            Ok(_) => Err(FsError::Exists),
            // A directory that was removed while it is open takes no new names.
            Err(FsError::NotFound) if self.inode(dir)?.links > 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Changes the entries of a directory, whose times change with them.
    fn edit(&mut self, dir: Ino, change: impl FnOnce(&mut Directory)) {
        if let Ok(inode) = self.inode_mut(dir)
            && let Node::Directory(directory) = &mut inode.node
        {
            change(directory);
            inode.touch_data();
        }
    }

    /// Adds `by` to an inode's links, which changes the inode now.
    fn add_links(&mut self, ino: Ino, by: i32) {
        if let Ok(inode) = self.inode_mut(ino) {
            inode.links = inode.links.saturating_add_signed(by);
            inode.ctime = TimeSpec::now();
        }
    }

    /// Makes an inode that has no name yet.
    pub(super) fn add_inode(&mut self, parent: Ino, args: &CreateArgs<'_>) -> FsResult<Ino> {
        refuse(self.inodes.len() as u64 >= INODES_MAX, FsError::NoSpace)?;
        let node = match args.node {
            NewNode::File => Node::File(Content::default()),
            NewNode::Directory => Node::Directory(Directory::new(parent)),
            NewNode::Symlink([]) => return Err(FsError::NotFound),
            NewNode::Symlink(target) if target.len() >= PATH_MAX => return Err(FsError::NameTooLong),
            NewNode::Symlink(target) => Node::Symlink(target.to_vec()),
            NewNode::Special(FileKind::File | FileKind::Directory | FileKind::Symlink, _) => {
                return Err(FsError::Invalid("not a special file"));
            }
            NewNode::Special(kind, rdev) => Node::Special(kind, rdev),
        };
        let mut inode = Inode::new(node, args.perm, args.uid, args.gid, args.tag_with_flags());
        for (name, value) in args.xattrs {
            inode.set_xattr(name, value, XattrMode::Any)?;
        }
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.inodes.insert(ino, Arc::new(inode));
        Ok(ino)
    }

    pub(super) fn create(&mut self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        self.check_free(dir, name)?;
        let ino = self.add_inode(dir, args)?;
        let is_directory = args.node == NewNode::Directory;
        let inode = self.inode_mut(ino)?;
        inode.links = if is_directory { 2 } else { 1 };
        inode.opens = u64::from(args.open);
        self.edit(dir, |entries| entries.set(name, ino));
        if is_directory {
            self.add_links(dir, 1);
        }
        self.attr(ino)
    }

    pub(super) fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let inode = self.inode(ino)?;
        let (kind, links) = (inode.kind(), inode.links);
        let nameless = links == 0 && !inode.linkable;
        self.check_free(dir, name)?;
        refuse(kind == FileKind::Directory, FsError::NotPermitted)?;
        refuse(nameless, FsError::NotFound)?;
        refuse(links >= LINK_MAX, FsError::TooManyLinks)?;
        self.edit(dir, |entries| entries.set(name, ino));
        self.add_links(ino, 1);
        self.inode_mut(ino)?.linkable = false;
        self.attr(ino)
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.entry(dir, name)?;
        refuse(self.inode(victim)?.kind() == FileKind::Directory, FsError::IsDirectory)?;
        self.edit(dir, |entries| entries.remove(name));
        self.drop_name(victim);
        Ok(())
    }

    pub(super) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.entry(dir, name)?;
        refuse(!self.directory(victim)?.is_empty(), FsError::NotEmpty)?;
        self.edit(dir, |entries| entries.remove(name));
        self.add_links(dir, -1);
        self.drop_name(victim);
        Ok(())
    }

    /// Takes one name from an inode; a directory has no more than that one.
    fn drop_name(&mut self, ino: Ino) {
        if self.directory(ino).is_ok() {
            self.add_links(ino, -2);
        } else {
            self.add_links(ino, -1);
        }
        self.collect(ino);
    }

    /// Whether `dir` is `above` or lies below it.
    fn is_within(&self, mut dir: Ino, above: Ino) -> FsResult<bool> {
        loop {
            if dir == above {
                return Ok(true);
            }
            if dir == Ino::ROOT {
                return Ok(false);
            }
            dir = self.directory(dir)?.parent;
        }
    }

    pub(super) fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> FsResult<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags != RenameFlags::EXCHANGE {
            return Err(FsError::Invalid("EXCHANGE excludes NO_REPLACE and WHITEOUT"));
        }
        self.directory(to)?;
        let moved = self.entry(from, name)?;
        let replaced = match self.entry(to, new_name) {
            Ok(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(FsError::Exists),
            Ok(ino) => Some(ino),
            Err(FsError::NotFound) if !exchange && self.inode(to)?.links > 0 => None,
            Err(error) => return Err(error),
        };
        let moves_directory = self.inode(moved)?.kind() == FileKind::Directory;
        let replaces_directory = match replaced {
            Some(ino) => self.inode(ino)?.kind() == FileKind::Directory,
            None => false,
        };
        if moves_directory && self.is_within(to, moved)? {
            return Err(FsError::Invalid("a directory cannot move below itself"));
        }
        if let Some(replaced) = replaced {
            if exchange {
                if replaces_directory && self.is_within(from, replaced)? {
                    return Err(FsError::Invalid("a directory cannot move below itself"));
                }
            } else if replaces_directory && self.is_within(from, replaced)? {
                return Err(FsError::NotEmpty);
            } else {
                match (moves_directory, replaces_directory) {
                    (false, true) => return Err(FsError::IsDirectory),
                    (true, false) => return Err(FsError::NotDirectory),
                    (true, true) if moved != replaced && !self.directory(replaced)?.is_empty() => {
                        return Err(FsError::NotEmpty);
                    }
                    _ => {}
                }
            }
        }
        if replaced == Some(moved) {
            // Two names of one inode, or the same name: POSIX leaves both.
            return Ok(());
        }

        if exchange {
            let Some(other) = replaced else { return Err(FsError::NotFound) };
            self.edit(from, |entries| entries.set(name, other));
            self.edit(to, |entries| entries.set(new_name, moved));
            self.move_parent(other, to, from);
        } else {
            if flags.contains(RenameFlags::WHITEOUT) {
                let (node, tag) = (NewNode::Special(FileKind::CharDevice, 0), Tag::default());
                let args = CreateArgs { node, perm: 0, uid: 0, gid: 0, tag, open: false, xattrs: &[] };
                let whiteout = self.add_inode(from, &args)?;
                self.inode_mut(whiteout)?.links = 1;
                self.edit(from, |entries| entries.set(name, whiteout));
            } else {
                self.edit(from, |entries| entries.remove(name));
            }
            if replaces_directory {
                self.add_links(to, -1);
            }
            self.edit(to, |entries| entries.set(new_name, moved));
            if let Some(replaced) = replaced {
                self.drop_name(replaced);
            }
        }
        self.move_parent(moved, from, to);
        Ok(())
    }

    /// Notes that `ino`, whose name went from one directory to another, has moved.
    fn move_parent(&mut self, ino: Ino, from: Ino, to: Ino) {
        self.add_links(ino, 0);
        if let Ok(inode) = self.inode_mut(ino)
            && let Node::Directory(directory) = &mut inode.node
        {
            directory.parent = to;
            self.add_links(from, -1);
            self.add_links(to, 1);
        }
    }
}
