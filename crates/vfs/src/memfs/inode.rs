//! An inode: its attributes and what it holds.

use super::XATTR_NAME_MAX;
use super::content::Content;
use super::directory::Directory;
use crate::{
    Attr, FLAGS_XATTR, FileKind, FsError, FsResult, InodeFlags, Marks, SetAttr, TimeSpec, XATTR_VALUE_MAX,
    XattrMode,
};
use std::collections::BTreeMap;
use weft_core::{BLOCK_BYTES, Ino, Tag, TagFlags, refuse};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    File(Content),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special(FileKind, u64),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) links: u32,
    /// Open references.
    pub(super) opens: u64,
    /// Made without a name and not given one yet: the one case in which an inode without a name may get one.
    pub(super) linkable: bool,
    pub(super) perm: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) tag: Tag,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) atime: TimeSpec,
    pub(super) mtime: TimeSpec,
    pub(super) ctime: TimeSpec,
    pub(super) btime: TimeSpec,
}

impl Inode {
    pub(super) fn new(node: Node, perm: u32, uid: u32, gid: u32, tag: Tag) -> Inode {
        let now = TimeSpec::now();
        Inode {
            node,
            links: 0,
            opens: 0,
            linkable: false,
            perm: perm & 0o7777,
            uid,
            gid,
            tag,
            xattrs: BTreeMap::new(),
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match self.node {
            Node::File(_) => FileKind::File,
            Node::Directory(_) => FileKind::Directory,
            Node::Symlink(_) => FileKind::Symlink,
            Node::Special(kind, _) => kind,
        }
    }

    pub(super) fn attr(&self, ino: Ino) -> Attr {
        let (size, blocks, rdev) = match &self.node {
            Node::File(content) => (content.size(), content.blocks() * (BLOCK_BYTES as u64 / 512), 0),
            Node::Directory(_) => (BLOCK_BYTES as u64, 0, 0),
            Node::Symlink(target) => (target.len() as u64, 0, 0),
            Node::Special(_, rdev) => (0, 0, *rdev),
        };
        Attr {
            ino,
            kind: self.kind(),
            perm: self.perm,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            marks: Marks::of(|name| self.xattrs.get(name).map(Vec::as_slice)),
        }
    }

    /// The content of a regular file.
    pub(super) fn content(&self) -> FsResult<&Content> {
        match &self.node {
            Node::File(content) => Ok(content),
            Node::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    pub(super) fn content_mut(&mut self) -> FsResult<&mut Content> {
        self.content()?;
        match &mut self.node {
            Node::File(content) => Ok(content),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// Changes all that is given but the size.
    pub(super) fn set(&mut self, set: &SetAttr) {
        self.perm = set.perm.map_or(self.perm, |perm| perm & 0o7777);
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
        self.atime = set.atime.unwrap_or(self.atime);
        self.mtime = set.mtime.unwrap_or(self.mtime);
        self.ctime = set.ctime.unwrap_or_else(TimeSpec::now);
    }

    /// What the inode holds has changed now.
    pub(super) fn touch_data(&mut self) {
        let now = TimeSpec::now();
        self.mtime = now;
        self.ctime = now;
    }

    /// The class that its flags ask for.
    fn flags_of_tag(&self) -> TagFlags {
        self.xattrs.get(FLAGS_XATTR).map(|value| InodeFlags::from_value(value).of_tag()).unwrap_or_default()
    }

    /// The tag goes with the flags, if the attribute that has changed holds them.
    fn note_flags(&mut self, name: &[u8]) {
        if name == FLAGS_XATTR {
            self.tag.flags = self.flags_of_tag();
        }
    }

    pub(super) fn set_tag(&mut self, tag: Tag) {
        self.tag = Tag { flags: tag.flags | self.flags_of_tag(), ..tag };
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        refuse(name.len() > XATTR_NAME_MAX || value.len() > XATTR_VALUE_MAX, FsError::AttributeTooLarge)?;
        match (mode, self.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::Exists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            _ => {}
        }
        self.xattrs.insert(name.to_vec(), value.to_vec());
        self.note_flags(name);
        self.ctime = TimeSpec::now();
        Ok(())
    }

    pub(super) fn remove_xattr(&mut self, name: &[u8]) -> FsResult<()> {
        self.xattrs.remove(name).ok_or(FsError::NoAttribute)?;
        self.note_flags(name);
        self.ctime = TimeSpec::now();
        Ok(())
    }
}
