//! Names: create, link, unlink, rmdir, rename.
//!
//! Each operation first checks everything that can fail, in the order in which Linux checks it, and then changes everything.

use crate::layout::{DirectoryForm, Entry, FileForm, Form, Record};
use crate::step::Step;
use weft_core::{Ino, Tag, refuse};
use weft_tags::SnodeTags;
use weft_vfs::{
    Attr, CreateArgs, FileKind, FsError, FsResult, LINK_MAX, NAME_MAX, NewNode, PATH_MAX, RenameFlags,
    TimeSpec, XattrMode,
};

/// Fails unless a directory entry can have this name.
pub(crate) fn check_name(name: &[u8]) -> FsResult<()> {
    refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FsError::Invalid("not a name"));
    }
    Ok(())
}

/// What a new inode is, which has no name yet.
pub(crate) fn new_record(parent: Ino, args: &CreateArgs<'_>, clock: u64) -> FsResult<(SnodeTags, Record)> {
    let form = match args.node {
        NewNode::File => Form::File(FileForm { born: clock, ..FileForm::default() }),
        NewNode::Directory => Form::Directory(DirectoryForm { parent, next_cookie: 1, entries: 0 }),
        NewNode::Symlink([]) => return Err(FsError::NotFound),
        NewNode::Symlink(target) if target.len() >= PATH_MAX => return Err(FsError::NameTooLong),
        NewNode::Symlink(target) => Form::Symlink(target.to_vec()),
        NewNode::Special(FileKind::File | FileKind::Directory | FileKind::Symlink, _) => {
            return Err(FsError::Invalid("not a special file"));
        }
        NewNode::Special(kind, rdev) => Form::Special(kind, rdev),
    };
    let (CreateArgs { perm, uid, gid, .. }, tag) = (*args, args.tag_with_flags());
    let mode = (perm & 0o7777) as u16;
    let tags = SnodeTags { owner: uid, group: gid, mode, class: tag.class, flags: tag.flags };
    let now = TimeSpec::now();
    let (atime, mtime, ctime, btime) = (now, now, now, now);
    let (links, linkable, has_xattrs) = (0, false, false);
    Ok((tags, Record { links, linkable, has_xattrs, atime, mtime, ctime, btime, tag, form }))
}

impl Step<'_> {
    /// The entry that a name leads to.
    pub(crate) fn find(&mut self, dir: Ino, name: &[u8]) -> FsResult<Entry> {
        self.inode(dir)?.directory()?;
        check_name(name)?;
        self.entry(dir, name)?.map(|(_, entry)| entry).ok_or(FsError::NotFound)
    }

    /// Fails unless `name` is free and may be given in `dir`.
    fn check_free(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        match self.find(dir, name) {
            Ok(_) => Err(FsError::Exists),
            // A directory that was removed while it is open takes no new names.
            Err(FsError::NotFound) if self.inode(dir)?.record.links > 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

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
        let (tags, record) = new_record(parent, args, self.clock())?;
        let ino = self.make(tags, record)?;
        for (name, value) in args.xattrs {
            self.inode_mut(ino)?.set_xattr(name, value, XattrMode::Any)?;
        }
        Ok(ino)
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
        let record = &self.inode(ino)?.record;
        let (kind, links) = (record.kind(), record.links);
        let nameless = links == 0 && !record.linkable;
        self.check_free(dir, name)?;
        refuse(kind == FileKind::Directory, FsError::NotPermitted)?;
        refuse(nameless, FsError::NotFound)?;
        refuse(links >= LINK_MAX, FsError::TooManyLinks)?;
        self.add_links(ino, 1)?;
        self.inode_mut(ino)?.record.linkable = false;
        self.set_name(dir, name, ino)?;
        self.attr(ino)
    }

    pub(crate) fn unlink(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.find(dir, name)?;
        refuse(victim.kind == FileKind::Directory, FsError::IsDirectory)?;
        self.remove_name(dir, name)?;
        self.add_links(victim.ino, -1)
    }

    pub(crate) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.find(dir, name)?.ino;
        refuse(self.inode(victim)?.directory()?.entries > 0, FsError::NotEmpty)?;
        self.remove_name(dir, name)?;
        self.add_links(dir, -1)?;
        self.add_links(victim, -2)
    }

    /// Whether `dir` is `above` or lies below it.
    fn is_within(&mut self, mut dir: Ino, above: Ino) -> FsResult<bool> {
        loop {
            if dir == above {
                return Ok(true);
            }
            if dir == Ino::ROOT {
                return Ok(false);
            }
            dir = self.inode(dir)?.directory()?.parent;
        }
    }

    pub(crate) fn rename(
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
        self.inode(to)?.directory()?;
        let moved = self.find(from, name)?;
        let replaced = match self.find(to, new_name) {
            Ok(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(FsError::Exists),
            Ok(entry) => Some(entry),
            Err(FsError::NotFound) if !exchange && self.inode(to)?.record.links > 0 => None,
            Err(error) => return Err(error),
        };
        let moves_directory = moved.kind == FileKind::Directory;
        if moves_directory && self.is_within(to, moved.ino)? {
            return Err(FsError::Invalid("a directory cannot move below itself"));
        }
        if let Some(replaced) = replaced {
            let replaces_directory = replaced.kind == FileKind::Directory;
            if exchange {
                if replaces_directory && self.is_within(from, replaced.ino)? {
                    return Err(FsError::Invalid("a directory cannot move below itself"));
                }
            } else if replaces_directory && self.is_within(from, replaced.ino)? {
                return Err(FsError::NotEmpty);
            } else {
                match (moves_directory, replaces_directory) {
                    (false, true) => return Err(FsError::IsDirectory),
                    (true, false) => return Err(FsError::NotDirectory),
                    (true, true)
                        if moved.ino != replaced.ino
                            && self.inode(replaced.ino)?.directory()?.entries > 0 =>
                    {
                        return Err(FsError::NotEmpty);
                    }
                    _ => {}
                }
            }
        }
        if replaced.is_some_and(|replaced| replaced.ino == moved.ino) {
            // Two names of one inode, or the same name: POSIX leaves both.
            return Ok(());
        }

        match replaced {
            Some(other) if exchange => {
                self.set_name(from, name, other.ino)?;
                self.set_name(to, new_name, moved.ino)?;
                self.move_parent(other.ino, to, from)?;
            }
            _ => {
                if flags.contains(RenameFlags::WHITEOUT) {
                    let node = NewNode::Special(FileKind::CharDevice, 0);
                    let args = CreateArgs { tag: Tag::default(), ..CreateArgs::new(node, 0) };
                    let whiteout = self.make_nameless(from, &args)?;
                    self.inode_mut(whiteout)?.record.links = 1;
                    self.set_name(from, name, whiteout)?;
                } else {
                    self.remove_name(from, name)?;
                }
                self.set_name(to, new_name, moved.ino)?;
                match replaced {
                    Some(Entry { ino, kind: FileKind::Directory, .. }) => {
                        self.add_links(to, -1)?;
                        self.add_links(ino, -2)?;
                    }
                    Some(Entry { ino, .. }) => self.add_links(ino, -1)?,
                    None => {}
                }
            }
        }
        self.move_parent(moved.ino, from, to)
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
