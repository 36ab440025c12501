//! What the core has in memory: inodes in use, and sums.
//!
//! One lock guards it, and with it the order of changes: a change holds it from its first look to its commit, a read shares it. So a read
//! of the store sees what the state in memory belongs to.

use crate::graph::Graph;
use crate::inode::Inode;
use crate::layout::Super;
use crate::quota::{Quota, QuotaChange};
use crate::watch::Watch;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::time::Instant;
use weft_core::{BLOCK_BYTES, Ino};
use weft_tags::NodeId;
use weft_vfs::{DeathObserver, FsResult, GroupStats};

/// Inodes that are kept in memory although nobody has them open.
const INODES_KEPT: usize = 1 << 16;
/// Quotas that are kept in memory although nothing of their trees is buffered.
const QUOTAS_KEPT: usize = 1 << 12;

pub(crate) struct State {
    pub inodes: FxHashMap<Ino, Inode>,
    /// Inodes of which something is not stored, since when.
    pub dirty: FxHashMap<Ino, Instant>,
    /// Blocks in the buffers of all files.
    pub buffered: u64,
    /// Of these, blocks that take space which they did not have before.
    pub reserved: u64,
    /// Inodes there are.
    pub count: u64,
    /// The volume, with the sums as they are now.
    pub superblock: Super,
    /// The same, as it is stored.
    pub stored: Super,
    pub super_node: NodeId,
    /// Inodes without a name that are too large to go with the operation that ended them.
    pub ended: Vec<Ino>,
    /// Steps so far that gave up bytes which are to be erased.
    pub given_up: u64,
    /// Quotas of directories, of those whose trees were changed.
    quotas: FxHashMap<Ino, Quota>,
    pub groups: BTreeMap<(u16, u16), GroupStats>,
    pub observer: Option<DeathObserver>,
    /// Inodes in memory above which some are let go.
    pub inodes_max: usize,
    pub watch: Watch,
}

impl State {
    pub(crate) fn new(superblock: Super, super_node: NodeId, count: u64) -> State {
        State {
            inodes: FxHashMap::default(),
            dirty: FxHashMap::default(),
            buffered: 0,
            reserved: 0,
            count,
            stored: superblock.clone(),
            superblock,
            super_node,
            ended: Vec::new(),
            given_up: 0,
            quotas: FxHashMap::default(),
            groups: BTreeMap::new(),
            observer: None,
            inodes_max: INODES_KEPT,
            watch: Watch::default(),
        }
    }

    /// An inode, from the store if it is not in memory.
    pub(crate) fn inode(&mut self, graph: &Graph, ino: Ino) -> FsResult<&mut Inode> {
        Ok(match self.inodes.entry(ino) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(graph.load(ino)?),
        })
    }

    /// The quota that a directory has, if it is there and has one.
    pub(crate) fn quota(&mut self, graph: &Graph, dir: Ino) -> FsResult<Option<&mut Quota>> {
        Ok(match self.quotas.entry(dir) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => graph.quota(dir)?.map(|quota| place.insert(quota)),
        })
    }

    /// Counts blocks that a file has more than before, and that are not stored, to a quota that is in memory.
    pub(crate) fn note_buffered(&mut self, dir: Ino, blocks: u64) {
        if let Some(quota) = self.quotas.get_mut(&dir) {
            quota.buffered += blocks;
        }
    }

    /// Counts what a committed step made of quotas. Those that are not in memory are read when somebody asks.
    pub(crate) fn change_quotas(&mut self, changes: Vec<(Ino, QuotaChange)>) {
        for (dir, change) in changes {
            if let QuotaChange::Ended = change {
                self.quotas.remove(&dir);
            } else if let Some(quota) = self.quotas.get_mut(&dir) {
                quota.change(change);
            }
        }
    }

    /// Lets go of inodes that are as the store has them and that nobody has open, when there are many, and of quotas.
    pub(crate) fn make_room(&mut self) {
        if self.quotas.len() > QUOTAS_KEPT {
            self.quotas.retain(|_, quota| quota.buffered > 0);
        }
        if self.inodes.len() < self.inodes_max {
            return;
        }
        let dirty = &self.dirty;
        self.inodes.retain(|ino, inode| inode.opens > 0 || dirty.contains_key(ino));
        self.inodes_max = (2 * self.inodes.len()).max(INODES_KEPT);
    }

    /// Notes that something of an inode is not stored.
    pub(crate) fn note_dirty(&mut self, ino: Ino) {
        self.dirty.entry(ino).or_insert_with(Instant::now);
    }

    /// Blocks of the volume, used or not.
    pub(crate) fn capacity(&self) -> u64 {
        self.superblock.capacity / BLOCK_BYTES as u64
    }

    /// The counts of a stream and group.
    pub(crate) fn group(&mut self, tag: &weft_core::Tag) -> &mut GroupStats {
        self.groups.entry((tag.stream.0, tag.group.0)).or_default()
    }
}
