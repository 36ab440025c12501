//! Names: lookup, create, link, unlink, rename, listing.

use super::xattrs::check_changes;
use crate::core::State;
use crate::layout::record::{NewInode, Record};
use crate::state::inode::{ENTRY_BYTES, INODE_BYTES, Xattrs};
use crate::{Lfs, NAMES_RESERVE_BYTES, RENAMES_RESERVE_BYTES};
use weft_core::{Ino, Tag, refuse};
use weft_vfs::{
    Attr, CreateArgs, DirEntry, FileKind, FsError, FsResult, LINK_MAX, MapEntry, NAME_MAX, NewNode, PATH_MAX,
    RenameFlags, XattrChange,
};

/// The name of what moves while a whiteout takes its place, within one transaction: one that no program can give.
const MOVING: &[u8] = b".";

fn check_name(name: &[u8]) -> FsResult<()> {
    refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid("not a name of a directory entry"));
    }
    Ok(())
}

impl State {
    pub(crate) fn inode(&self, ino: Ino) -> FsResult<&crate::state::inode::Inode> {
        self.tree.get(ino).ok_or(FsError::Stale)
    }

    fn child(&self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        let directory = self.inode(dir)?.directory().ok_or(FsError::NotDirectory)?;
        refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
        Ok(directory.get(name).map(|entry| entry.ino))
    }

    /// A directory that may get a new name: it has one itself.
    fn living_dir(&self, dir: Ino) -> FsResult<()> {
        let inode = self.inode(dir)?;
        refuse(inode.kind != FileKind::Directory, FsError::NotDirectory)?;
        if inode.links == 0 { Err(FsError::NotFound) } else { Ok(()) }
    }

    /// Fails unless metadata may grow by `bytes`.
    pub(crate) fn check_metadata(&self, bytes: usize) -> FsResult<()> {
        let taken = self.space.used() + RENAMES_RESERVE_BYTES + NAMES_RESERVE_BYTES;
        refuse(taken > self.usable_after(bytes), FsError::NoSpace)
    }

    /// Frees an inode that has neither names nor open references.
    fn free_if_dead(&mut self, ino: Ino) -> FsResult<()> {
        let Some(inode) = self.tree.get(ino) else { return Ok(()) };
        if inode.links > 0 || inode.opens > 0 {
            return Ok(());
        }
        self.notify_death(ino);
        let changed = inode.filled_ranges(0, u64::MAX);
        self.drop_dirty(ino, 0, u64::MAX);
        self.log(&Record::Free { ino })?;
        self.buffer.journaled.remove(&ino.0);
        let Some(observer) = self.shared.observer.get() else { return Ok(()) };
        let holes = [MapEntry::HOLE; 512];
        for (first, end) in changed {
            let mut at = first;
            while at < end {
                let count = (end - at).min(holes.len() as u64);
                observer.remapped(ino, at, &holes[..count as usize]);
                at += count;
            }
        }
        Ok(())
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn is_below(&self, mut dir: Ino, ancestor: Ino) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.tree.get(dir).and_then(|inode| inode.directory()) {
                Some(directory) if dir != Ino::ROOT && directory.parent != dir => dir = directory.parent,
                _ => return false,
            }
        }
    }
}

impl Lfs {
    pub(crate) fn op_lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let state = self.state.lock();
        let ino = state.child(dir, name)?.ok_or(FsError::NotFound)?;
        Ok(state.inode(ino)?.attr(ino))
    }

    pub(crate) fn op_create(
        &self,
        dir: Option<(Ino, &[u8])>,
        args: &CreateArgs<'_>,
        linkable: bool,
    ) -> FsResult<Attr> {
        let state = &mut *self.locked()?;
        let (kind, rdev, target) = match args.node {
            NewNode::File => (FileKind::File, 0, &[][..]),
            NewNode::Directory => (FileKind::Directory, 0, &[][..]),
            NewNode::Symlink(target) => (FileKind::Symlink, 0, target),
            NewNode::Special(kind, rdev) => (kind, rdev, &[][..]),
        };
        if let Some((dir, name)) = dir {
            check_name(name)?;
            state.living_dir(dir)?;
            refuse(state.child(dir, name)?.is_some(), FsError::Exists)?;
            if kind == FileKind::Directory && state.inode(dir)?.links >= LINK_MAX {
                return Err(FsError::TooManyLinks);
            }
        }
        if kind == FileKind::Symlink {
            refuse(target.is_empty(), FsError::NotFound)?;
            refuse(target.len() >= PATH_MAX, FsError::NameTooLong)?;
        }
        if matches!(args.node, NewNode::Special(FileKind::File | FileKind::Directory | FileKind::Symlink, _))
        {
            return Err(FsError::Invalid("not a special file"));
        }
        let (dir, name) = dir.unwrap_or((Ino(0), b""));
        let xattrs: Vec<XattrChange<'_>> =
            args.xattrs.iter().map(|&(name, value)| (name, Some(value))).collect();
        let added = check_changes(&Xattrs::default(), &xattrs)?;
        state.check_metadata(name.len() + target.len() + INODE_BYTES + ENTRY_BYTES + added)?;
        let ino = Ino(state.tree.next_ino);
        let (time, born_at) = (state.now(), state.volume_bytes);
        let node = NewInode {
            ino,
            kind,
            perm: args.perm & 0o7777,
            uid: args.uid,
            gid: args.gid,
            rdev,
            target,
            tag: args.tag,
            time,
            born_at,
        };
        state.begin_transaction()?;
        state.log(&Record::Create { dir, name, node })?;
        for (name, value) in xattrs {
            state.log(&Record::Xattr { ino, name, value, time })?;
        }
        state.stats.group(&args.tag).files += 1;
        let inode = state.tree.get_mut(ino).ok_or(FsError::Stale)?;
        if args.open || dir.0 == 0 {
            inode.opens = 1;
        }
        inode.linkable = linkable;
        Ok(inode.attr(ino))
    }

    pub(crate) fn op_link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let state = &mut *self.locked()?;
        check_name(name)?;
        let inode = state.inode(ino)?;
        refuse(inode.kind == FileKind::Directory, FsError::NotPermitted)?;
        refuse(inode.links >= LINK_MAX, FsError::TooManyLinks)?;
        state.living_dir(dir)?;
        refuse(state.child(dir, name)?.is_some(), FsError::Exists)?;
        let inode = state.inode(ino)?;
        refuse(inode.links == 0 && !inode.linkable, FsError::NotFound)?;
        state.check_metadata(name.len() + ENTRY_BYTES)?;
        let time = state.now();
        state.begin_transaction()?;
        state.log(&Record::Link { ino, dir, name, time })?;
        let inode = state.tree.get_mut(ino).ok_or(FsError::Stale)?;
        inode.linkable = false;
        Ok(inode.attr(ino))
    }

    pub(crate) fn op_remove(&self, dir: Ino, name: &[u8], directory: bool) -> FsResult<()> {
        let state = &mut *self.locked()?;
        refuse(name == b"." || name == b"..", FsError::Invalid("not a name of a directory entry"))?;
        let ino = state.child(dir, name)?.ok_or(FsError::NotFound)?;
        match state.inode(ino)?.directory() {
            Some(entries) if directory && !entries.is_empty() => return Err(FsError::NotEmpty),
            Some(_) if !directory => return Err(FsError::IsDirectory),
            None if directory => return Err(FsError::NotDirectory),
            _ => {}
        }
        let time = state.now();
        state.begin_transaction()?;
        state.log(&Record::Unlink { dir, name, time })?;
        state.free_if_dead(ino)
    }

    pub(crate) fn op_rename(
        &self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> FsResult<()> {
        let state = &mut *self.locked()?;
        check_name(name)?;
        check_name(new_name)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        if exchange && flags != RenameFlags::EXCHANGE {
            return Err(FsError::Invalid("EXCHANGE excludes NO_REPLACE and WHITEOUT"));
        }
        let ino = state.child(from, name)?.ok_or(FsError::NotFound)?;
        state.living_dir(to)?;
        let other = state.child(to, new_name)?;
        refuse(flags.contains(RenameFlags::NO_REPLACE) && other.is_some(), FsError::Exists)?;
        refuse(exchange && other.is_none(), FsError::NotFound)?;
        let is_dir = |ino: Ino| state.inode(ino).map(|inode| inode.kind == FileKind::Directory);
        let moves_dir = is_dir(ino)?;
        if moves_dir && state.is_below(to, ino) {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if let Some(other) = other {
            let replaces_dir = is_dir(other)?;
            if exchange {
                if replaces_dir && state.is_below(from, other) {
                    return Err(FsError::Invalid("a directory cannot move into itself"));
                }
            } else if other != ino {
                match (moves_dir, replaces_dir) {
                    (true, false) => return Err(FsError::NotDirectory),
                    (false, true) => return Err(FsError::IsDirectory),
                    _ => {}
                }
                if state.inode(other)?.directory().is_some_and(|entries| !entries.is_empty()) {
                    return Err(FsError::NotEmpty);
                }
            }
        }
        // Two names of one file: nothing happens.
        if other == Some(ino) {
            return Ok(());
        }
        let links = state.inode(to)?.links;
        refuse(moves_dir && from != to && other.is_none() && links >= LINK_MAX, FsError::TooManyLinks)?;
        if other.is_none() && new_name.len() > name.len() {
            let more = new_name.len() - name.len();
            refuse(state.space.used() > state.usable_after(more), FsError::NoSpace)?;
        }
        if whiteout {
            state.check_metadata(name.len() + INODE_BYTES + ENTRY_BYTES)?;
        }
        // A program that replaces a file by renaming a new one over it, without fsync, must not find it empty after a
        // crash.
        if other.is_some() && !exchange {
            state.journal_or_write_back(ino)?;
        }
        let time = state.now();
        state.begin_transaction()?;
        // A whiteout takes the place of the name in the listing: it is made under another name, and exchanged with it.
        let moved_from = if whiteout { MOVING } else { name };
        if whiteout {
            let (ino, born_at, tag) = (Ino(state.tree.next_ino), state.volume_bytes, Tag::default());
            let kind = FileKind::CharDevice;
            let node =
                NewInode { ino, kind, perm: 0, uid: 0, gid: 0, rdev: 0, target: &[], tag, time, born_at };
            state.log(&Record::Create { dir: from, name: MOVING, node })?;
            state.log(&Record::Rename { from, to: from, name, new_name: MOVING, exchange: true, time })?;
            state.stats.group(&tag).files += 1;
        }
        state.log(&Record::Rename { from, to, name: moved_from, new_name, exchange, time })?;
        match other {
            Some(other) if !exchange => state.free_if_dead(other),
            _ => Ok(()),
        }
    }

    pub(crate) fn op_readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.state.lock().inode(ino)?.body {
            crate::state::inode::Body::Symlink(target) => Ok(target.to_vec()),
            _ => Err(FsError::Invalid("not a symlink")),
        }
    }

    pub(crate) fn op_parent(&self, dir: Ino) -> FsResult<Ino> {
        let state = self.state.lock();
        Ok(state.inode(dir)?.directory().ok_or(FsError::NotDirectory)?.parent)
    }

    pub(crate) fn op_readdir(
        &self,
        dir: Ino,
        mut cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        // Entries are copied out in batches, so that `each` runs without the lock and may call the core.
        let mut batch: Vec<(u64, Vec<u8>, Ino, FileKind)> = Vec::new();
        loop {
            batch.clear();
            {
                let state = self.state.lock();
                let directory = state.inode(dir)?.directory().ok_or(FsError::NotDirectory)?;
                for (at, name, ino) in directory.after(cookie).take(64) {
                    batch.push((at, name.to_vec(), ino, state.inode(ino)?.kind));
                }
            }
            let Some((last, ..)) = batch.last() else { return Ok(()) };
            let last = *last;
            for (cookie, name, ino, kind) in &batch {
                if !each(DirEntry { name, ino: *ino, kind: *kind, cookie: *cookie }) {
                    return Ok(());
                }
            }
            cookie = last;
        }
    }

    pub(crate) fn op_newest_cookie(&self, dir: Ino) -> FsResult<u64> {
        let state = self.state.lock();
        Ok(state.inode(dir)?.directory().ok_or(FsError::NotDirectory)?.next_cookie - 1)
    }

    pub(crate) fn op_open(&self, ino: Ino) -> FsResult<()> {
        let mut state = self.state.lock();
        let inode = state.tree.get_mut(ino).ok_or(FsError::Stale)?;
        inode.opens = inode.opens.checked_add(1).ok_or(FsError::Invalid("too many open references"))?;
        Ok(())
    }

    pub(crate) fn op_release(&self, ino: Ino) {
        let state = &mut *self.state.lock();
        let Some(inode) = state.tree.get_mut(ino) else { return };
        inode.opens = inode.opens.saturating_sub(1);
        if inode.links > 0 || inode.opens > 0 {
            return;
        }
        // A failure here has failed the volume as a whole; the next operation reports it.
        if let Err(error) = state.begin_transaction().and_then(|()| state.free_if_dead(ino)) {
            tracing::warn!(%ino, %error, "released file not freed");
        }
    }
}
