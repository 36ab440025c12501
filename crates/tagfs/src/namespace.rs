//! Names: create, link, unlink, rmdir, rename.
//!
//! Each operation first [checks](weft_vfs::names) everything that can fail, and then changes everything.

use crate::inode::CLASS_XATTR;
use crate::layout::{DirectoryForm, FileForm, Form, Record};
use crate::step::Step;
use weft_core::{Ino, Tag, refuse};
use weft_tags::SnodeTags;
use weft_vfs::names::{Facts, Move, Names, check_node};
use weft_vfs::{
    Attr, CreateArgs, FileKind, FsError, FsResult, NewNode, QUOTA_XATTR, RenameFlags, TimeSpec, XattrMode,
};

/// What a new inode is, which has no name yet.
pub(crate) fn new_record(parent: Ino, args: &CreateArgs<'_>, clock: u64) -> FsResult<(SnodeTags, Record)> {
    check_node(&args.node)?;
    let form = match args.node {
        NewNode::File => Form::File(FileForm { born: clock, ..FileForm::default() }),
        NewNode::Directory => Form::Directory(DirectoryForm { parent, next_cookie: 1, entries: 0 }),
        NewNode::Symlink(target) => Form::Symlink(target.to_vec()),
        NewNode::Special(kind, rdev) => Form::Special(kind, rdev),
    };
    let (CreateArgs { perm, uid, gid, .. }, tag) = (*args, args.tag_with_flags());
    let mode = (perm & 0o7777) as u16;
    let tags = SnodeTags { owner: uid, group: gid, mode, class: tag.class, flags: tag.flags };
    let now = TimeSpec::now();
    let (atime, mtime, ctime, btime) = (now, now, now, now);
    let (links, linkable, has_xattrs, quota) = (0, false, false, None);
    Ok((tags, Record { links, linkable, has_xattrs, atime, mtime, ctime, btime, tag, quota, form }))
}

impl Names for Step<'_> {
    fn facts(&mut self, ino: Ino) -> FsResult<Facts> {
        let record = &self.inode(ino)?.record;
        let (entries, parent) = match record.form {
            Form::Directory(directory) => (directory.entries, directory.parent),
            _ => (0, ino),
        };
        Ok(Facts { kind: record.kind(), links: record.links, linkable: record.linkable, entries, parent })
    }

    fn named(&mut self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        Ok(self.find_entry(dir, name)?.map(|(_, entry)| entry.ino))
    }
}

impl Step<'_> {
    fn set_name(&mut self, dir: Ino, name: &[u8], ino: Ino) -> FsResult<()> {
        self.set_entry(dir, name, ino)?;
        self.inode_mut(dir)?.touch_data();
        Ok(())
    }

    fn remove_name(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_entry(dir, name)?;
        self.inode_mut(dir)?.touch_data();
        Ok(())
    }

    /// Adds `by` to an inode's links, which changes the inode now.
    fn add_links(&mut self, ino: Ino, by: i32) -> FsResult<()> {
        let record = &mut self.inode_mut(ino)?.record;
        record.links = record.links.saturating_add_signed(by);
        record.ctime = TimeSpec::now();
        Ok(())
    }

    /// Makes an inode that has no name yet.
    pub(crate) fn make_nameless(&mut self, parent: Ino, args: &CreateArgs<'_>) -> FsResult<Ino> {
        let (mut tags, mut record) = new_record(parent, args, self.clock())?;
        record.quota = self.quota_of_new(parent)?;
        // A file begins with the class of its directory: the store takes it from where others of that class are.
        let class = self.inode(parent)?.class_asked();
        let class = class.filter(|_| matches!(args.node, NewNode::File | NewNode::Directory));
        tags.class = class.unwrap_or(tags.class);
        let ino = self.make(tags, record)?;
        if let Some(class) = class {
            self.inode_mut(ino)?.set_xattr(CLASS_XATTR, class.name().as_bytes(), XattrMode::Any)?;
        }
        for (name, value) in args.xattrs {
            refuse(*name == QUOTA_XATTR, FsError::Unsupported("a quota of what is not there yet"))?;
            self.inode_mut(ino)?.set_xattr(name, value, XattrMode::Any)?;
        }
        Ok(ino)
    }

    /// The quota to which what is made in a directory counts, which has room for one inode more.
    fn quota_of_new(&mut self, dir: Ino) -> FsResult<Option<Ino>> {
        let quota = self.inode(dir)?.record.quota;
        refuse(self.room_in(quota)?.inodes == 0, FsError::QuotaExceeded)?;
        Ok(quota)
    }

    /// Fails unless an inode may have a name in a directory: it counts to the same quota, or it has one of its own and the directory
    /// counts to none.
    fn check_same_quota(&mut self, ino: Ino, dir: Ino) -> FsResult<()> {
        let quota = self.inode(ino)?.record.quota.filter(|quota| *quota != ino);
        refuse(quota != self.inode(dir)?.record.quota, FsError::CrossQuota)
    }

    pub(crate) fn create(&mut self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        self.check_free(dir, name)?;
        let ino = self.make_nameless(dir, args)?;
        let is_directory = args.node == NewNode::Directory;
        let inode = self.inode_mut(ino)?;
        inode.record.links = if is_directory { 2 } else { 1 };
        inode.opens = u64::from(args.open);
        self.set_name(dir, name, ino)?;
        if is_directory {
            self.add_links(dir, 1)?;
        }
        self.attr(ino)
    }

    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.check_link(ino, dir, name)?;
        self.check_same_quota(ino, dir)?;
        self.add_links(ino, 1)?;
        self.inode_mut(ino)?.record.linkable = false;
        self.set_name(dir, name, ino)?;
        self.attr(ino)
    }

    pub(crate) fn unlink(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.check_remove(dir, name, false)?;
        self.remove_name(dir, name)?;
        self.add_links(victim, -1)
    }

    pub(crate) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.check_remove(dir, name, true)?;
        self.remove_name(dir, name)?;
        self.add_links(dir, -1)?;
        self.add_links(victim, -2)
    }

    pub(crate) fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> FsResult<()> {
        let moved = self.check_rename((from, name), (to, new_name), flags)?;
        let Some(Move { ino, other, other_is_dir }) = moved else { return Ok(()) };
        self.check_same_quota(ino, to)?;
        if let Some(other) = other.filter(|_| flags.contains(RenameFlags::EXCHANGE)) {
            self.check_same_quota(other, from)?;
        }
        match other {
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                self.set_name(from, name, other)?;
                self.set_name(to, new_name, ino)?;
                self.move_parent(other, to, from)?;
            }
            replaced => {
                if flags.contains(RenameFlags::WHITEOUT) {
                    let node = NewNode::Special(FileKind::CharDevice, 0);
                    let args = CreateArgs { tag: Tag::default(), ..CreateArgs::new(node, 0) };
                    let whiteout = self.make_nameless(from, &args)?;
                    self.inode_mut(whiteout)?.record.links = 1;
                    self.set_name(from, name, whiteout)?;
                } else {
                    self.remove_name(from, name)?;
                }
                self.set_name(to, new_name, ino)?;
                if other_is_dir {
                    self.add_links(to, -1)?;
                }
                if let Some(replaced) = replaced {
                    self.add_links(replaced, if other_is_dir { -2 } else { -1 })?;
                }
            }
        }
        self.move_parent(ino, from, to)
    }

    /// Notes that `ino`, whose name went from one directory to another, has moved.
    fn move_parent(&mut self, ino: Ino, from: Ino, to: Ino) -> FsResult<()> {
        self.add_links(ino, 0)?;
        if self.inode(ino)?.is_directory() {
            self.inode_mut(ino)?.directory_mut()?.parent = to;
            self.add_links(from, -1)?;
            self.add_links(to, 1)?;
        }
        Ok(())
    }
}
