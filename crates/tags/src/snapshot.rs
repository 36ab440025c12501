//! Snapshots: one commit's state, to be read while others commit.
//!
//! A snapshot begins between two commits. Its reads hold an s-node's share only for a step of some memory accesses, as
//! other reads outside of transactions do, and take what has changed since from the
//! versions of pages and of directories; they wait for no transaction and no write, and keep none waiting.

use crate::begins::{Begins, Begun};
use crate::committed::Committed;
use crate::error::{Error, Result, Step, StepError};
use crate::ids::{HomeId, NodeId, PAGE_BYTES};
use crate::pages::access::{PageReader, Pages, StatePages};
use crate::pages::desc::Desc;
use crate::pages::table::Descriptors;
use crate::pages::versions::{SnapshotPage, View};
use crate::partition::Contents;
use crate::store::Store;
use crate::sync::unlock_fair;

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
    begun: Begun,
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
        let Begins { turns: all, ended } = &self.begins;
        let mut turns = all.lock();
        let turn = turns.begun + 1;
        turns.coming += 1;
        loop {
            if let Some((begun, left)) = turns.ended.get_mut(&turn) {
                let begun = begun.clone();
                *left -= 1;
                if *left == 0 {
                    turns.ended.remove(&turn);
                }
                return Snapshot { store: self, begun };
            }
            if turns.is_led {
                ended.wait(&mut turns);
                continue;
            }
            turns.is_led = true;
            drop(turns);
            let alone = self.gate.write();
            turns = all.lock();
            turns.begun += 1;
            let snapshots = std::mem::take(&mut turns.coming);
            drop(turns);
            let (commit, shares) = (self.journal.last(), self.snodes.visible().into());
            let begun = Begun { stamp: self.pool.versions.begin(snapshots), commit, shares };
            // A commit that waits goes on before the next turn.
            unlock_fair(alone);
            turns = all.lock();
            turns.is_led = false;
            turns.ended.insert(turn, (begun, snapshots));
            ended.notify_all();
        }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let Some(freed) = self.store.pool.versions.end(self.begun.stamp) else { return };
        let mut space = self.store.space.lock();
        let erasure = &self.store.pool.erasure;
        freed.into_iter().for_each(|(block, snode)| space.release(block, 1, erasure.owner(snode)));
        drop(space);
        for share in self.begun.shares.values() {
            // What somebody holds now is looked at by the next that changes it, or the next end.
            match share.try_write() {
                Some(mut partition) => partition.forget_frozen(&self.store.pool.versions, self.begun.stamp),
                None => self.store.pool.versions.note_missed(),
            }
        }
    }
}

impl Snapshot<'_> {
    /// The number of the commit whose state this is.
    pub fn commit(&self) -> u64 {
        self.begun.commit
    }

    /// Whether a home may have been changed since the snapshot began, or is newer. The caller holds its lock.
    ///
    /// # Errors
    /// [`Error::SnapshotLost`].
    pub(crate) fn has_changed(&self, home: HomeId) -> Result<bool> {
        drop(self.store.pool.versions.view(self.begun.stamp)?);
        Ok(self.begun.shares.get(&home).is_none_or(|share| share.read().is_frozen_for(self.begun.stamp)))
    }

    /// Whether a node of this state was freed since, so that its place may be another's.
    ///
    /// # Errors
    /// [`Error::SnapshotLost`].
    pub(crate) fn has_freed(&self, node: NodeId) -> Result<bool> {
        let view = self.store.pool.versions.view(self.begun.stamp)?;
        Ok(node.page().is_some_and(|page| view.has_freed(page, node.offset())))
    }

    /// Sees to it that a step that has come to `halt` can go on.
    fn overcome(&self, halt: StepError, loads: &mut usize) -> Result<()> {
        let (store, versions) = (self.store, &self.store.pool.versions);
        let mut is_loaded = |page: u32| {
            *loads += 1;
            // No step needs so many pages: they have driven each other out.
            let must_stay = *loads > store.pool.capacity();
            versions.load(self.begun.stamp, page, must_stay, |block, out| {
                store.journal.writes.read(&mut vec![(block, out)], &*store.medium)
            })
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
        let share = self.begun.shares.get(&home).ok_or(Error::NoSuchSnode(home.into()))?;
        let root = share.read().root;
        Ok(root)
    }

    fn homes(&self) -> Vec<HomeId> {
        let mut ids: Vec<_> = self.begun.shares.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn step<T>(
        &self,
        snode: HomeId,
        mut step: impl FnMut(&SnapshotPages<'_>, &Contents) -> Step<T>,
    ) -> Result<T> {
        let (store, mut loads, mut halts) = (self.store, 0, 0);
        let share = self.begun.shares.get(&snode).ok_or(Error::NoSuchSnode(snode.into()))?;
        loop {
            let partition = share.read();
            let now = PageReader::new(&store.pool, &partition.token);
            let pages = SnapshotPages { now, versions: store.pool.versions.view(self.begun.stamp)? };
            let result = step(&pages, partition.contents_at(self.begun.stamp));
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

#[cfg(all(test, not(weft_shuttle)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};
    use std::sync::atomic::Ordering;

    #[test]
    fn the_end_of_a_snapshot_looks_at_few_versions_however_many_snapshots_are_open() {
        let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
        let (root, of) =
            (store.root(SnodeId::FIRST).unwrap(), store.edge_type("of", InfoForm::Number).unwrap());
        let mut tx = store.begin();
        let nodes: Vec<_> = (0..1_000)
            .map(|n| {
                let node = tx.create_node(SnodeId::FIRST, NodeType(1), &[0; 3_000]).unwrap();
                tx.create_edge(root, of, Info::Number(n), node).unwrap();
                node
            })
            .collect();
        tx.commit().unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        for order in 0..3 {
            let per_end: Vec<usize> = [100, 800]
                .map(|count| {
                    let mut snapshots: Vec<_> = (0..count)
                        .map(|n| {
                            let snapshot = store.snapshot();
                            // One that all change, and others.
                            let mut tx = store.begin();
                            for at in [0, n, rng.random_range(0..1_000)] {
                                tx.update_node(nodes[at], NodeType(1), &[n as u8; 3_000]).unwrap();
                            }
                            tx.commit().unwrap();
                            snapshot
                        })
                        .collect();
                    match order {
                        0 => {}
                        1 => snapshots.reverse(),
                        _ => snapshots.shuffle(&mut rng),
                    }
                    store.pool.versions.looks.store(0, Ordering::Relaxed);
                    snapshots.into_iter().for_each(drop);
                    assert_eq!(store.pool.versions.bytes(), 0);
                    store.pool.versions.looks.load(Ordering::Relaxed) / count
                })
                .into();
            // Some pages each; where it looks at all that are open, eight times as many.
            assert!(per_end[0] > 0 && per_end[1] <= 3 * per_end[0], "order {order}: {per_end:?}");
        }
    }

    #[test]
    fn snapshots_that_wait_for_a_commit_begin_in_one_turn() {
        let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
        let before = store.snapshot().begun.stamp;
        let commit = store.gate.read();
        let stamps: Vec<u64> = std::thread::scope(|scope| {
            let begin = || scope.spawn(|| store.snapshot().begun.stamp);
            let threads: Vec<_> = (0..16).map(|_| begin()).collect();
            while store.begins.turns.lock().coming < threads.len() {
                std::thread::yield_now();
            }
            drop(commit);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(stamps, [before + 1; 16]);
        assert!(store.begins.turns.lock().ended.is_empty());
        assert_eq!((store.pool.versions.newest(), store.snapshot().begun.stamp), (0, before + 2));
    }
}
