//! Snapshots: one commit's state, to be read while others commit.
//!
//! A snapshot begins between two commits. Its reads hold an s-node's share only for a step of some memory accesses, as
//! other reads outside of transactions do, and take what has changed since from the
//! versions of pages and of directories; they wait for no transaction and no write, and keep none waiting.

use crate::committed::Committed;
use crate::error::{Error, Result, Step, StepError};
use crate::ids::{HomeId, NodeId, PAGE_BYTES};
use crate::pages::access::{PageReader, Pages, StatePages};
use crate::pages::desc::Desc;
use crate::pages::table::Descriptors;
use crate::pages::versions::{SnapshotPage, View};
use crate::partition::Contents;
use crate::snodes::registry::SharedPartition;
use crate::store::Store;
use rustc_hash::FxHashMap;

/// One commit's state of a store.
///
/// It takes memory for what changes while it is open, at most half of the cache's bytes for all snapshots together;
/// when that is not enough, the oldest is lost and its reads give [`Error::SnapshotLost`]. An s-node that is deleted meanwhile
/// keeps its id to the end of the snapshot.
///
/// ```
/// use weft_tags::{Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
///
/// const TEXT: NodeType = NodeType(1);
/// let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
/// let next = store.edge_type("next", InfoForm::Number)?;
/// let root = store.root(SnodeId::FIRST)?;
/// let snapshot = store.snapshot();
/// let mut tx = store.begin();
/// let node = tx.create_node(SnodeId::FIRST, TEXT, b"later")?;
/// tx.create_edge(root, next, Info::Number(0), node)?;
/// tx.commit()?;
/// assert_eq!(snapshot.edge(root, next, Info::Number(0))?, None);
/// assert!(snapshot.read_node(node, TEXT).is_err());
/// # Ok::<(), weft_tags::Error>(())
/// ```
pub struct Snapshot<'s> {
    pub(crate) store: &'s Store,
    stamp: u64,
    commit: u64,
    shares: FxHashMap<HomeId, SharedPartition>,
}

/// The pages of an s-node as a snapshot sees them.
pub(crate) struct SnapshotPages<'g> {
    now: PageReader<'g>,
    versions: View<'g>,
}

impl Pages for SnapshotPages<'_> {
    fn bytes(&self, page: u32) -> Step<&[u8; PAGE_BYTES]> {
        match self.versions.bytes(page) {
            SnapshotPage::Now => self.now.bytes(page),
            SnapshotPage::Copy(bytes) => Ok(bytes),
            SnapshotPage::OnMedium => Err(StepError::Miss(page)),
        }
    }

    fn prefetch(&self, page: u32, offset: usize) -> bool {
        match self.versions.bytes(page) {
            SnapshotPage::Now => self.now.prefetch(page, offset),
            // Copies are few, and seldom in the processor's cache by luck.
            SnapshotPage::Copy(_) => true,
            SnapshotPage::OnMedium => false,
        }
    }

    fn step_pages(&self) -> usize {
        self.now.step_pages()
    }
}

impl StatePages for SnapshotPages<'_> {
    fn turns(&self) -> u64 {
        // A snapshot stays as it is.
        0
    }
}

impl Descriptors for SnapshotPages<'_> {
    fn look_up<T>(&self, page: u32, look: impl FnOnce(&Desc) -> T) -> Option<T> {
        match self.versions.desc(page) {
            Some(desc) => Some(look(desc)),
            None => self.now.look_up(page, look),
        }
    }
}

impl Store {
    /// The last committed state, to be read while others commit.
    ///
    /// Waits for commits that are being applied, and for a checkpoint.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let _alone = self.gate.write();
        let shares = self.snodes.visible();
        let commit = self.journal.last();
        Snapshot { store: self, stamp: self.pool.versions.begin(), commit, shares }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let freed = self.store.pool.versions.end(self.stamp);
        let mut space = self.store.space.lock();
        let erasure = &self.store.pool.erasure;
        freed.into_iter().for_each(|(block, snode)| space.release(block, 1, erasure.owner(snode)));
        drop(space);
        for share in self.shares.values() {
            // What a writer holds now is looked at by the next that changes it.
            if let Some(mut partition) = share.try_write() {
                partition.forget_frozen(&self.store.pool.versions);
            }
        }
    }
}

impl Snapshot<'_> {
    /// The number of the commit whose state this is.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Whether a home may have been changed since the snapshot began, or is newer. The caller holds its lock.
    ///
    /// # Errors
    /// [`Error::SnapshotLost`].
    pub(crate) fn has_changed(&self, home: HomeId) -> Result<bool> {
        drop(self.store.pool.versions.view(self.stamp)?);
        Ok(self.shares.get(&home).is_none_or(|share| share.read().is_frozen_for(self.stamp)))
    }

    /// Sees to it that a step that has come to `halt` can go on.
    fn overcome(&self, halt: StepError, loads: &mut usize) -> Result<()> {
        let (store, versions) = (self.store, &self.store.pool.versions);
        let mut is_loaded = |page: u32| {
            *loads += 1;
            // No step needs so many pages: they have driven each other out.
            let must_stay = *loads > store.pool.capacity();
            versions.load(self.stamp, page, must_stay, &*store.medium)
        };
        match halt {
            StepError::Miss(page) if is_loaded(page)? => Ok(()),
            StepError::MissMany(pages) => {
                let mut others = Vec::with_capacity(pages.len());
                for page in pages {
                    if !is_loaded(page)? {
                        others.push(page);
                    }
                }
                store.overcome(StepError::MissMany(others))
            }
            halt => store.overcome(halt),
        }
    }
}

impl Committed for Snapshot<'_> {
    type View<'g> = SnapshotPages<'g>;

    fn store(&self) -> &Store {
        self.store
    }

    fn root_of_home(&self, home: HomeId) -> Result<NodeId> {
        let share = self.shares.get(&home).ok_or(Error::NoSuchSnode(home.into()))?;
        let root = share.read().root;
        Ok(root)
    }

    fn homes(&self) -> Vec<HomeId> {
        let mut ids: Vec<_> = self.shares.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn step<T>(
        &self,
        snode: HomeId,
        mut step: impl FnMut(&SnapshotPages<'_>, &Contents) -> Step<T>,
    ) -> Result<T> {
        let (store, mut loads, mut halts) = (self.store, 0, 0);
        let share = self.shares.get(&snode).ok_or(Error::NoSuchSnode(snode.into()))?;
        loop {
            let partition = share.read();
            let now = PageReader::new(&store.pool, &partition.token);
            let pages = SnapshotPages { now, versions: store.pool.versions.view(self.stamp)? };
            let result = step(&pages, partition.contents_at(self.stamp));
            drop(pages);
            drop(partition);
            match result {
                Ok(value) => return Ok(value),
                Err(halt) => {
                    store.break_circle(&mut halts)?;
                    self.overcome(halt, &mut loads)?;
                }
            }
        }
    }
}
