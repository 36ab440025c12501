//! Names: create, link, unlink, rmdir, rename.
//!
//! Each operation first [checks](crate::names) everything that can fail, and then changes everything: nothing is left half done.

use super::directory::Directory;
use super::inode::{Inode, Node};
use super::{Content, INODES_MAX, State};
use crate::names::{Facts, Move, Names, check_node};
use crate::{Attr, CreateArgs, FileKind, FsError, FsResult, NewNode, RenameFlags, TimeSpec, XattrMode};
use std::sync::Arc;
use weft_core::{Ino, Tag, refuse};

impl Names for State {
    fn facts(&mut self, ino: Ino) -> FsResult<Facts> {
        let inode = self.inode(ino)?;
        let (entries, parent) = match &inode.node {
            Node::Directory(directory) => (directory.len(), directory.parent),
            _ => (0, ino),
        };
        Ok(Facts { kind: inode.kind(), links: inode.links, linkable: inode.linkable, entries, parent })
    }

    fn named(&mut self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        Ok(self.directory(dir)?.get(name))
    }
}

impl State {
    pub(super) fn directory(&self, dir: Ino) -> FsResult<&Directory> {
        match &self.inode(dir)?.node {
            Node::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
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
        check_node(&args.node)?;
        refuse(self.inodes.len() as u64 >= INODES_MAX, FsError::NoSpace)?;
        let node = match args.node {
            NewNode::File => Node::File(Content::default()),
            NewNode::Directory => Node::Directory(Directory::new(parent)),
            NewNode::Symlink(target) => Node::Symlink(target.to_vec()),
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
        self.check_link(ino, dir, name)?;
        self.edit(dir, |entries| entries.set(name, ino));
        self.add_links(ino, 1);
        self.inode_mut(ino)?.linkable = false;
        self.attr(ino)
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.check_remove(dir, name, false)?;
        self.edit(dir, |entries| entries.remove(name));
        self.drop_name(victim);
        Ok(())
    }

    pub(super) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.check_remove(dir, name, true)?;
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

    pub(super) fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> FsResult<()> {
        let moved = self.check_rename((from, name), (to, new_name), flags)?;
        let Some(Move { ino, other, other_is_dir }) = moved else { return Ok(()) };
        let exchanged = other.filter(|_| flags.contains(RenameFlags::EXCHANGE));
        if let Some(other) = exchanged {
            self.edit(from, |entries| entries.set(name, other));
            self.edit(to, |entries| entries.set(new_name, ino));
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
            if other_is_dir {
                self.add_links(to, -1);
            }
            self.edit(to, |entries| entries.set(new_name, ino));
            if let Some(replaced) = other {
                self.drop_name(replaced);
            }
        }
        self.move_parent(ino, from, to);
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
