//! Names: lookup, create, link, unlink, rename, listing.

use super::name_checks::{Room, kind_of};
use crate::Lfs;
use crate::core::State;
use crate::layout::record::{NewInode, Record};
use weft_core::{Ino, Tag};
use weft_vfs::names::{Move, Names};
use weft_vfs::{Attr, CreateArgs, DirEntry, FileKind, FsError, FsResult, MapEntry, RenameFlags};

/// The name of what moves while a whiteout takes its place, within one transaction: one that no program can give.
const MOVING: &[u8] = b".";

impl State {
    pub(crate) fn inode(&self, ino: Ino) -> FsResult<&crate::state::inode::Inode> {
        self.tree.get(ino).ok_or(FsError::Stale)
    }

    /// Makes a node in a transaction that has begun; `dir` is 0 for one without a name. What it may be is checked by the caller.
    pub(super) fn log_create(
        &mut self,
        (dir, name): (Ino, &[u8]),
        args: &CreateArgs<'_>,
        (time, born_at): (i64, u64),
    ) -> FsResult<Ino> {
        let (kind, rdev, target) = kind_of(&args.node);
        let ino = Ino(self.tree.next_ino);
        let node = NewInode {
            ino,
            kind,
            perm: args.perm & 0o7777,
            uid: args.uid,
            gid: args.gid,
            rdev,
            target,
            tag: args.tag_with_flags(),
            time,
            born_at,
        };
        self.log(&Record::Create { dir, name, node })?;
        for &(name, value) in args.xattrs {
            self.log(&Record::Xattr { ino, name, value: Some(value), time })?;
        }
        self.stats.group(&args.tag).files += 1;
        if let Some(inode) = self.tree.get_mut(ino)
            && (args.open || dir.0 == 0)
        {
            inode.opens = 1;
        }
        Ok(ino)
    }

    /// Gives an inode one more name, in a transaction that has begun.
    pub(super) fn log_link(&mut self, ino: Ino, dir: Ino, name: &[u8], time: i64) -> FsResult<()> {
        self.log(&Record::Link { ino, dir, name, time })?;
        if let Some(inode) = self.tree.get_mut(ino) {
            inode.linkable = false;
        }
        Ok(())
    }

    /// Moves a name, in a transaction that has begun. An inode that loses its last name by it stays.
    pub(super) fn log_rename(
        &mut self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
        (time, born_at): (i64, u64),
    ) -> FsResult<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if !flags.contains(RenameFlags::WHITEOUT) {
            return self.log(&Record::Rename { from, to, name, new_name, exchange, time });
        }
        // A whiteout takes the place of the name in the listing: it is made under another name, and exchanged with it.
        let (ino, tag) = (Ino(self.tree.next_ino), Tag::default());
        let kind = FileKind::CharDevice;
        let node = NewInode { ino, kind, perm: 0, uid: 0, gid: 0, rdev: 0, target: &[], tag, time, born_at };
        self.log(&Record::Create { dir: from, name: MOVING, node })?;
        self.log(&Record::Rename { from, to: from, name, new_name: MOVING, exchange: true, time })?;
        self.stats.group(&tag).files += 1;
        self.log(&Record::Rename { from, to, name: MOVING, new_name, exchange, time })
    }

    /// Frees an inode that has neither names nor open references.
    pub(super) fn free_if_dead(&mut self, ino: Ino) -> FsResult<()> {
        let changed = self.log_free_if_dead(ino)?;
        self.notify_gone(ino, &changed);
        Ok(())
    }

    /// As [`free_if_dead`](Self::free_if_dead), and leaves the map observer to be told of the blocks that it had.
    pub(super) fn log_free_if_dead(&mut self, ino: Ino) -> FsResult<Vec<(u64, u64)>> {
        let Some(inode) = self.tree.get(ino) else { return Ok(Vec::new()) };
        if inode.links > 0 || inode.opens > 0 {
            return Ok(Vec::new());
        }
        self.notify_death(ino);
        let changed = inode.filled_ranges(0, u64::MAX);
        self.drop_dirty(ino, 0, u64::MAX);
        self.log(&Record::Free { ino })?;
        self.buffer.journaled.remove(&ino.0);
        Ok(changed)
    }

    /// Tells the map observer that a file, which is gone, has nothing in these ranges of blocks any more.
    pub(super) fn notify_gone(&self, ino: Ino, changed: &[(u64, u64)]) {
        let Some(observer) = self.shared.observer.get() else { return };
        let holes = [MapEntry::HOLE; 512];
        for &(first, end) in changed {
            let mut at = first;
            while at < end {
                let count = (end - at).min(holes.len() as u64);
                observer.remapped(ino, at, &holes[..count as usize]);
                at += count;
            }
        }
    }
}

impl Lfs {
    pub(crate) fn op_lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let mut state = self.state.lock();
        let ino = state.entry(dir, name)?;
        Ok(state.inode(ino)?.attr(ino))
    }

    pub(crate) fn op_create(
        &self,
        dir: Option<(Ino, &[u8])>,
        args: &CreateArgs<'_>,
        linkable: bool,
    ) -> FsResult<Attr> {
        let state = &mut *self.locked()?;
        state.check_new(dir, args)?;
        state.expect_secrets(&args.tag_with_flags())?;
        let (time, born_at) = (state.now(), state.volume_bytes);
        state.begin_transaction()?;
        let ino = state.log_create(dir.unwrap_or((Ino(0), b"")), args, (time, born_at))?;
        let inode = state.tree.get_mut(ino).ok_or(FsError::Stale)?;
        inode.linkable = linkable;
        Ok(inode.attr(ino))
    }

    pub(crate) fn op_link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let state = &mut *self.locked()?;
        state.check_new_link(ino, dir, name)?;
        let time = state.now();
        state.begin_transaction()?;
        state.log_link(ino, dir, name, time)?;
        Ok(state.inode(ino)?.attr(ino))
    }

    pub(crate) fn op_remove(&self, dir: Ino, name: &[u8], directory: bool) -> FsResult<()> {
        let state = &mut *self.locked()?;
        let ino = state.check_remove(dir, name, directory)?;
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
        let moved = state.check_move((from, name), (to, new_name), flags)?;
        let Some(Move { ino, other, .. }) = moved else { return Ok(()) };
        let replaced = other.filter(|_| !flags.contains(RenameFlags::EXCHANGE));
        // A program that replaces a file by renaming a new one over it, without fsync, must not find it empty after a
        // crash.
        if replaced.is_some() {
            state.journal_or_write_back(ino)?;
        }
        let (time, born_at) = (state.now(), state.volume_bytes);
        state.begin_transaction()?;
        state.log_rename((from, name), (to, new_name), flags, (time, born_at))?;
        replaced.map_or(Ok(()), |replaced| state.free_if_dead(replaced))
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
        // What comes meanwhile is not listed: a name that has gone and comes again would be there twice.
        let mut end = u64::MAX;
        loop {
            batch.clear();
            {
                let state = self.state.lock();
                let directory = state.inode(dir)?.directory().ok_or(FsError::NotDirectory)?;
                end = end.min(directory.next_cookie);
                for (at, name, ino) in directory.after(cookie).take_while(|(at, ..)| *at < end).take(64) {
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
