//! Quotas: what the inodes of a directory tree take, and how much they may.
//!
//! A quota belongs to a directory, and its [counts](Counts) are of what is made below it. Each inode's record names the directory of its
//! quota, and never another one, so that a tree is counted without a walk. A step stores the counts that it changes in its own
//! transaction: they are exact after a power cut. Blocks that are buffered are counted in memory, and stored with their file.
//!
//! The limits are an attribute of the directory ([`QUOTA_XATTR`]). Without it, the tree is still counted.

use crate::error::{damaged, failed};
use crate::graph::Graph;
use crate::inode::Inode;
use crate::layout::{Counts, Form, QUOTA};
use weft_core::{BLOCK_BYTES, Ino};
use weft_tags::{Info, NodeId};
use weft_vfs::quota::{Limits, Usage};
use weft_vfs::{FsError, FsResult, QUOTA_XATTR};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The quota of a tree, in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Where the counts lie.
    pub node: NodeId,
    pub stored: Counts,
    /// Blocks that the tree's files have, and that are not stored.
    pub buffered: u64,
    pub limits: Limits,
}

/// What is more than before, or less.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Added {
    pub blocks: i64,
    pub inodes: i64,
    /// Blocks that are not stored.
    pub buffered: i64,
}

/// What a step makes of a quota.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QuotaChange {
    /// These are its counts, and so many blocks more are buffered.
    Counted(Counts, i64),
    Limited(Limits),
    /// It is no more.
    Ended,
}

impl Counts {
    pub(crate) const NO_LIMIT: Counts = Counts { blocks: u64::MAX, inodes: u64::MAX };

    /// The counts after a change. On a damaged volume more may go than was counted.
    pub(crate) fn after(self, added: Added) -> Counts {
        Counts {
            blocks: self.blocks.saturating_add_signed(added.blocks),
            inodes: self.inodes.saturating_add_signed(added.inodes),
        }
    }
}

impl Quota {
    fn used(&self) -> Counts {
        Counts { blocks: self.stored.blocks + self.buffered, inodes: self.stored.inodes }
    }

    /// Blocks and inodes that can still be added when these were.
    pub(crate) fn room(&self, added: Added) -> Counts {
        let used = self.used().after(added);
        let left = |limit: Option<u64>, used: u64| limit.map_or(u64::MAX, |limit| limit.saturating_sub(used));
        Counts {
            blocks: left(self.limits.bytes.map(|bytes| bytes / BLOCK), used.blocks),
            inodes: left(self.limits.files, used.inodes),
        }
    }

    /// Blocks that can still be added.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.room(Added::default()).blocks
    }

    pub(crate) fn usage(&self) -> Usage {
        let used = self.used();
        Usage { bytes: used.blocks * BLOCK, files: used.inodes, limits: self.limits }
    }

    /// Takes in what a committed step made of it.
    pub(crate) fn change(&mut self, change: QuotaChange) {
        match change {
            QuotaChange::Counted(counts, buffered) => {
                self.stored = counts;
                self.buffered = self.buffered.saturating_add_signed(buffered);
            }
            QuotaChange::Limited(limits) => self.limits = limits,
            QuotaChange::Ended => {}
        }
    }
}

impl Inode {
    /// What it counts for in its quota: stored blocks, those that are not, and itself.
    pub(crate) fn counted(&self) -> Added {
        let (blocks, stored) = match &self.record.form {
            Form::File(file) => (file.blocks as i64, self.stored_form.blocks as i64),
            _ => (0, 0),
        };
        Added { blocks: stored, inodes: 1, buffered: blocks - stored }
    }

    /// The limits that its attribute sets; `None` when that cannot be one.
    pub(crate) fn limits(&self) -> Option<Limits> {
        self.xattrs.get(QUOTA_XATTR).map_or(Some(Limits::default()), |value| Limits::parse(value))
    }
}

impl Graph {
    /// The quota that a directory has, as it is stored; `None` where there is no such directory any more, or a salvage has lost what was
    /// counted.
    pub(crate) fn quota(&self, dir: Ino) -> FsResult<Option<Quota>> {
        let Some(etype) = self.quota_type() else { return Ok(None) };
        let inode = match self.load(dir) {
            Err(FsError::Stale) => return Ok(None),
            inode => inode?,
        };
        if inode.record.quota != Some(dir) {
            return Ok(None);
        }
        let strange = || damaged(format!("the quota of directory {dir}"));
        let node = self.store.edge(inode.root, etype, Info::Number(0)).map_err(failed)?;
        let Some(node) = node else { return Ok(None) };
        let raw = self.store.read_node(node, QUOTA).map_err(failed)?;
        let stored = Counts::decode(&raw).ok_or_else(strange)?;
        let limits = inode.limits().ok_or_else(strange)?;
        Ok(Some(Quota { node, stored, buffered: 0, limits }))
    }
}
