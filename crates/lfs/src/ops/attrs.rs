//! Attributes, size and tag.

use crate::Lfs;
use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::record::Record;
use weft_core::{Ino, Tag, refuse};
use weft_vfs::{Attr, FileKind, FsError, FsResult, FsStats, SetAttr};

impl State {
    /// The inode, if it is a regular file.
    pub(crate) fn file(&self, ino: Ino) -> FsResult<&crate::state::inode::Inode> {
        let inode = self.inode(ino)?;
        match inode.kind {
            FileKind::File => Ok(inode),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// The record of a change of attributes at `time`.
    pub(super) fn attributes_record(&self, ino: Ino, set: &SetAttr, time: i64) -> FsResult<Record<'static>> {
        let inode = self.inode(ino)?;
        Ok(Record::Attributes {
            ino,
            perm: set.perm.map_or(inode.perm, |perm| perm & 0o7777),
            uid: set.uid.unwrap_or(inode.uid),
            gid: set.gid.unwrap_or(inode.gid),
            times: [set.atime.map_or(inode.atime, |t| t.0), set.mtime.map_or(inode.mtime, |t| t.0), time],
        })
    }

    /// Sets the size of a file.
    pub(crate) fn set_size(&mut self, ino: Ino, size: u64) -> FsResult<()> {
        refuse(size > crate::FILE_BYTES_MAX, FsError::TooLarge)?;
        let old = self.file(ino)?.size;
        let changed = self.file(ino)?.filled_ranges(size / BLOCK, u64::MAX);
        let time = self.now();
        if size == 0 {
            self.notify_death(ino);
        }
        let is_settled = self.file(ino)?.settled_within(size) == size;
        if size == old && !is_settled {
            // Only the promise behind the end is taken back, as a log's is when it is closed: what memory alone has may wait.
            if let Some(inode) = self.tree.get_mut(ino) {
                (inode.mtime, inode.ctime) = (time, time);
            }
            return self.release_behind(ino, size, crate::FILE_BYTES_MAX);
        }
        // The journal's size may not run ahead of the data before it: what stays must be stored before.
        if size > old || !is_settled {
            self.journal_or_write_back(ino)?;
        }
        self.begin_transaction()?;
        if size < old {
            self.drop_dirty(ino, size.div_ceil(BLOCK), u64::MAX);
            if let Some(inode) = self.tree.get_mut(ino) {
                inode.size = size;
                if !size.is_multiple_of(BLOCK) {
                    inode.dirty.cut(size / BLOCK, (size % BLOCK) as usize);
                }
            }
        }
        let frame = self.journal.next_seq;
        self.log(&Record::Truncate { ino, size, extend: size > old, time })?;
        self.recharge(ino, size / BLOCK);
        let volume_bytes = self.volume_bytes;
        if let Some(inode) = self.tree.get_mut(ino) {
            inode.size = size;
            if size == 0 {
                (inode.born_at, inode.emptied_in) = (volume_bytes, frame);
            }
        }
        self.settle_size(ino)?;
        if size < old {
            self.notify_ranges(ino, &changed);
        }
        Ok(())
    }

    /// Journals the size when everything before it is on the device or a hole: after buffered blocks were dropped, no
    /// extents record will.
    pub(crate) fn settle_size(&mut self, ino: Ino) -> FsResult<()> {
        let inode = self.file(ino)?;
        let (size, time) = (inode.settled_size(), inode.mtime);
        if size == inode.disk_size {
            return Ok(());
        }
        self.begin_transaction()?;
        self.log(&Record::Truncate { ino, size, extend: true, time })
    }

    /// Sets the tag of an inode's data, in a transaction that has begun.
    pub(super) fn log_tag(&mut self, ino: Ino, tag: Tag) -> FsResult<()> {
        if self.inode(ino)?.tag == tag {
            return Ok(());
        }
        self.log(&Record::SetTag { ino, tag })?;
        self.stats.group(&tag).files += 1;
        Ok(())
    }

    /// Charges a buffered block anew after the piece below it changed.
    pub(crate) fn recharge(&mut self, ino: Ino, block: u64) {
        let Some(inode) = self.tree.get_mut(ino) else { return };
        let below = inode.charge_of(block);
        if let Some(dirty) = inode.dirty.block_mut(block) {
            let extra = BLOCK as u32 - below;
            self.space.recharge(dirty.extra, extra);
            dirty.extra = extra;
        }
    }
}

impl Lfs {
    pub(crate) fn op_getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(self.state.lock().inode(ino)?.attr(ino))
    }

    pub(crate) fn op_setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let state = &mut *self.locked()?;
        state.inode(ino)?;
        if let Some(size) = set.size {
            state.set_size(ino, size)?;
        }
        let time = set.ctime.map_or_else(|| state.now(), |t| t.0);
        let others = SetAttr { size: None, ..*set };
        if others != SetAttr::default() || set.size.is_none() {
            let record = state.attributes_record(ino, set, time)?;
            state.begin_transaction()?;
            state.log(&record)?;
        }
        Ok(state.inode(ino)?.attr(ino))
    }

    pub(crate) fn op_set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        let state = &mut *self.locked()?;
        if state.inode(ino)?.tag == tag {
            return Ok(());
        }
        state.expect_secrets(&tag)?;
        state.begin_transaction()?;
        state.log_tag(ino, tag)
    }

    pub(crate) fn op_tag(&self, ino: Ino) -> FsResult<Tag> {
        Ok(self.state.lock().inode(ino)?.tag)
    }

    pub(crate) fn op_statfs(&self) -> FsResult<FsStats> {
        let state = self.state.lock();
        let total = state.usable();
        let free = total.saturating_sub(state.space.used());
        let per_inode = (crate::state::inode::INODE_BYTES + crate::state::inode::ENTRY_BYTES + 24) as u64;
        Ok(FsStats {
            total_bytes: total,
            free_bytes: free,
            inodes: state.tree.inodes.count() as u64,
            // An inode costs two checkpoints' worth of its record, and so much less data fits.
            free_inodes: free / (per_inode * 2),
        })
    }
}
