//! The store: what is open, and how its parts are reached.
//!
//! Locks, in the order in which they are taken: that of a shrink, s-nodes ([`SnodeLocks`], by transactions), the gate (shared by commits, alone by
//! a checkpoint), the ids and the map of s-nodes, partitions (those of all homes of a commit together), the pool's residency or its extent, versions of pages, descriptors; then the journal, the allocators and the catalog,
//! of which no two are held at once, but for page numbers under the list of those that were given up. A write is begun and
//! waited for under a lock of its own, in which nothing but hot words is touched.

use crate::begins::Begins;
use crate::error::{Error, Result, Step, StepError};
use crate::hash::Secret;
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId};
use crate::journal::log::Journal;
use crate::journal::periodic::Periodic;
use crate::journal::record::RecordWriter;
use crate::journal::writes::PageWrite;
use crate::layout::catalog::{Catalog, NAME_BYTES_MAX};
use crate::layout::leaves::Leaves;
use crate::layout::superblock::Superblock;
use crate::named::Named;
use crate::options::Options;
use crate::page_store::{MemoryStore, PageStore};
use crate::pages::access::{PageReader, PageWriter};
use crate::pages::classes::ClassReport;
use crate::pages::pool::Pool;
use crate::partition::{Contents, Partition};
use crate::snodes::locks::SnodeLocks;
use crate::snodes::registry::{Registry, SharedPartition};
use crate::space::Space;
use crate::sync::{Mutex, RwLock};
use crate::watchers::Watchers;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the names of edge types begin with that only the store makes.
const OWN_NAMES: &str = "weft.";

/// An open tag store.
///
/// ```
/// use weft_tags::{Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
///
/// const TEXT: NodeType = NodeType(1);
/// let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
/// let next = store.edge_type("next", InfoForm::Number)?;
/// let mut tx = store.begin();
/// let node = tx.create_node(SnodeId::FIRST, TEXT, b"hello")?;
/// tx.create_edge(store.root(SnodeId::FIRST)?, next, Info::Number(0), node)?;
/// tx.commit()?;
/// assert_eq!(store.read_node(node, TEXT)?, b"hello");
/// # Ok::<(), weft_tags::Error>(())
/// ```
pub struct Store {
    pub(crate) medium: Arc<dyn PageStore>,
    pub(crate) pool: Pool,
    pub(crate) secret: Secret,
    pub(crate) space: Mutex<Space>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) periodic: Periodic,
    pub(crate) catalog: RwLock<Catalog>,
    pub(crate) snodes: Registry,
    pub(crate) watchers: Watchers,
    pub(crate) locks: SnodeLocks,
    pub(crate) options: Options,
    /// Edge types of which no commit may make an edge: they are being deleted, or were since the store was opened.
    pub(crate) ending_types: RwLock<FxHashSet<EdgeType>>,
    pub(crate) gate: RwLock<()>,
    pub(crate) begins: Begins,
    pub(crate) superblock: Mutex<Superblock>,
    /// Guarded by the gate, too: who changes it has that alone.
    pub(crate) named: Mutex<Named>,
    /// The copy of the superblock that is written first.
    pub(crate) first_copy: u64,
    pub(crate) leaves: Mutex<Leaves>,
    /// Held by whoever makes the store smaller, before all other locks.
    pub(crate) shrinking: Mutex<()>,
    pub(crate) next_tx: AtomicU64,
    pub(crate) recovered: u64,
    /// What opening has mended.
    pub(crate) mended: Option<String>,
    /// There was no room on the medium to end a recovery.
    pub(crate) is_read_only: bool,
}

/// What a store holds and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreReport {
    /// Bytes of the medium.
    pub medium_bytes: u64,
    /// Of these, bytes that are free or will be after the next checkpoint.
    pub free_bytes: u64,
    /// Pages of nodes, whole or in part.
    pub data_pages: u64,
    /// Pages of edge tables and counts.
    pub table_pages: u64,
    /// Pages that the cache has room for.
    pub cache_pages: u64,
    /// Pages in it that differ from the medium.
    pub dirty_pages: u64,
    /// Pages that were read from the medium since the store was opened.
    pub page_reads: u64,
    /// Bytes of memory for what snapshots see and is no more.
    pub snapshot_bytes: u64,
    /// Bytes of the journal that are taken since the last checkpoint.
    pub journal_bytes: u64,
    /// S-nodes.
    pub snodes: u64,
    /// Number of the last commit.
    pub last_commit: u64,
    /// Number of the last commit that is durable.
    pub durable_commit: u64,
    /// Commits that were replayed when the store was opened.
    pub recovered_commits: u64,
}

impl Store {
    /// A store of these parts, whose journal is empty.
    pub(crate) fn assemble(
        medium: Box<dyn PageStore>,
        pool: Pool,
        space: Space,
        superblock: Superblock,
        catalog: Catalog,
        leaves: Leaves,
        options: &Options,
    ) -> Store {
        let sb = &superblock;
        let snodes = Registry::default();
        catalog.homes.iter().for_each(|entry| snodes.insert(*entry, sb.secret));
        Store {
            medium: medium.into(),
            pool,
            secret: sb.secret,
            space: Mutex::new(space),
            journal: Arc::new(Journal::new(sb.journal_block, sb.journal_blocks, sb.epoch, sb.lsn)),
            periodic: Periodic::default(),
            catalog: RwLock::new(catalog),
            snodes,
            watchers: Watchers::default(),
            locks: SnodeLocks::default(),
            options: options.clone(),
            ending_types: RwLock::default(),
            gate: RwLock::new(()),
            begins: Begins::default(),
            superblock: Mutex::new(superblock),
            named: Mutex::default(),
            first_copy: 0,
            leaves: Mutex::new(leaves),
            shrinking: Mutex::new(()),
            next_tx: AtomicU64::new(1),
            recovered: 0,
            mended: None,
            is_read_only: false,
        }
    }

    /// Opens a store whose medium is only read, also one that was not closed: what recovery would write stays in memory. Commits are
    /// refused.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_read_only(medium: Box<dyn PageStore>, options: &Options) -> Result<Store> {
        let mut store = Store::open(Box::new(MemoryStore::over(medium)), options)?;
        store.is_read_only = true;
        Ok(store)
    }

    /// Makes all commits so far durable.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Stopped`].
    pub fn sync(&self) -> Result<()> {
        let done = self.journal.sync_to(self.journal.last(), &*self.medium);
        done.map_err(|error| self.periodic.reason(error))
    }

    /// Says how many bytes the medium may grow to from here on, for who reads that in the store; what it has stays.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.space.lock().set_limit(bytes / crate::PAGE_BYTES as u64);
    }

    /// The edge type of this name, registered if it is new.
    ///
    /// # Errors
    /// [`Error::TypeTaken`] when its infos have another form; [`Error::ReservedName`], [`Error::TooLarge`].
    pub fn edge_type(&self, name: &str, form: InfoForm) -> Result<EdgeType> {
        if is_own_name(name) {
            // Whoever made one in another form would keep the key-value stores and B+trees of the store from being made.
            return self.find_edge_type(name, form)?.ok_or_else(|| Error::ReservedName(name.to_owned()));
        }
        self.own_edge_type(name, form)
    }

    /// Deletes an edge type, which has no edges any more; its number is not given out again. Looks at the edges of all nodes, while
    /// others commit.
    ///
    /// # Errors
    /// [`Error::NoSuchEdgeType`], also where somebody else deletes it; [`Error::ReservedName`], [`Error::EdgeTypeInUse`];
    /// [`Error::Io`], [`Error::Stopped`].
    pub fn delete_edge_type(&self, etype: EdgeType) -> Result<()> {
        let name = {
            // Between two commits: those before are looked at, those after make no edge of it.
            let _alone = self.gate.write();
            let name = self.catalog.read().types.get(etype.0 as usize).map(|entry| entry.name.clone());
            let name = name.filter(|name| !name.is_empty()).ok_or(Error::NoSuchEdgeType(etype))?;
            if is_own_name(&name) {
                return Err(Error::ReservedName(name.to_string()));
            }
            if !self.ending_types.write().insert(etype) {
                return Err(Error::NoSuchEdgeType(etype));
            }
            name
        };
        let deleted = self.source_of_type(etype).and_then(|found| match found {
            Some(source_node) => Err(Error::EdgeTypeInUse { name: name.to_string(), source_node }),
            None => self.change_catalog(0, |catalog, record| {
                record.edge_type_gone(etype);
                catalog.end_type(etype);
                Ok(())
            }),
        });
        if deleted.is_err() {
            self.ending_types.write().remove(&etype);
        }
        deleted
    }

    /// A node with a committed edge of a type, if there is one.
    fn source_of_type(&self, etype: EdgeType) -> Result<Option<NodeId>> {
        for snode in self.snodes.ids() {
            let mut next = Some(0);
            while let Some(from) = next {
                let step = self.read(snode, |pages, contents| contents.edges.edges_near(pages, etype, from));
                let (found, behind) = match step {
                    // It went meanwhile.
                    Err(Error::NoSuchSnode(_)) => break,
                    other => other?,
                };
                if let Some((source, _)) = found.first() {
                    return Ok(Some(*source));
                }
                next = behind;
            }
        }
        Ok(None)
    }

    /// As [`Store::edge_type`], for the store's own.
    pub(crate) fn own_edge_type(&self, name: &str, form: InfoForm) -> Result<EdgeType> {
        if let Some(found) = self.find_edge_type(name, form)? {
            return Ok(found);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::too_large("the name of an edge type", name.len(), NAME_BYTES_MAX));
        }
        self.change_catalog(name.len(), |catalog, record| {
            if let Some(at) = find_type(catalog, name, form)? {
                return Ok(at);
            }
            if catalog.types.len() >= EdgeType::REGISTERED_MAX {
                return Err(Error::Full { what: "numbers of edge types" });
            }
            record.edge_type(form as u8, name);
            Ok(catalog.add_type(name, form))
        })
    }

    /// Refuses changes of a store that is only read.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotRecovered`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only { self.check_recovered().and(Err(Error::ReadOnly)) } else { Ok(()) }
    }

    /// Fails for a store that is read only because there was no room to end its recovery.
    ///
    /// # Errors
    /// [`Error::NotRecovered`].
    pub fn check_recovered(&self) -> Result<()> {
        match self.journal.check() {
            Err(Error::Stopped { reason }) if self.is_read_only => Err(Error::NotRecovered { reason }),
            _ => Ok(()),
        }
    }

    /// Changes the catalog, and writes it to the journal, up to `bytes` of names; durable afterwards.
    fn change_catalog<T>(
        &self,
        bytes: usize,
        change: impl FnOnce(&mut Catalog, &mut RecordWriter) -> Result<T>,
    ) -> Result<T> {
        self.check_writable()?;
        let _room = self.admit(bytes + 64, || 0, None)?;
        let mut catalog = self.catalog.write();
        let mut record = RecordWriter::default();
        let changed = change(&mut catalog, &mut record)?;
        if record.bytes.is_empty() {
            return Ok(changed);
        }
        let appended = self.journal.append(&record.bytes, &*self.medium);
        let lsn = appended.inspect_err(|error| self.journal.stop(error))?;
        drop(catalog);
        self.journal.sync_to(lsn, &*self.medium)?;
        Ok(changed)
    }

    /// The number of an edge type, if there is one of this name.
    ///
    /// # Errors
    /// [`Error::TypeTaken`].
    pub(crate) fn find_edge_type(&self, name: &str, form: InfoForm) -> Result<Option<EdgeType>> {
        find_type(&self.catalog.read(), name, form)
    }

    /// The form of an edge type's infos, of one that can have edges.
    pub(crate) fn live_form_of(&self, etype: EdgeType) -> Result<InfoForm> {
        let catalog = self.catalog.read();
        let known = catalog.types.get(etype.0 as usize).filter(|entry| !entry.name.is_empty());
        known.map(|entry| entry.form).ok_or(Error::NoSuchEdgeType(etype))
    }

    /// The form of an edge type's infos, also of one that was deleted.
    pub(crate) fn form_of(&self, etype: EdgeType) -> Result<InfoForm> {
        let catalog = self.catalog.read();
        catalog.types.get(etype.0 as usize).map(|entry| entry.form).ok_or(Error::NoSuchEdgeType(etype))
    }

    /// What the store holds and where it stands.
    pub fn report(&self) -> StoreReport {
        let (blocks, free) = self.space.lock().totals();
        StoreReport {
            medium_bytes: blocks * crate::PAGE_BYTES as u64,
            free_bytes: free * crate::PAGE_BYTES as u64,
            data_pages: self.pool.numbers.data.lock().used(),
            table_pages: self.pool.numbers.tables.lock().used(),
            cache_pages: self.pool.capacity() as u64,
            dirty_pages: self.pool.dirty() as u64,
            page_reads: self.pool.faults(),
            snapshot_bytes: self.pool.versions.bytes() as u64,
            journal_bytes: self.journal.taken() as u64,
            snodes: self.snodes.count(),
            last_commit: self.journal.last(),
            durable_commit: self.journal.durable(),
            recovered_commits: self.recovered,
        }
    }

    /// What the cache did since the store was opened, by classes of pages.
    pub fn cache_report(&self) -> Vec<ClassReport> {
        self.pool.classes.report()
    }

    /// The share of an s-node, visible or not: where only a transaction's own ids or committed nodes can lead.
    #[inline]
    pub(crate) fn partition(&self, home: HomeId) -> Result<SharedPartition> {
        self.snodes.find(home).ok_or(Error::NoSuchSnode(home.into()))
    }

    /// Runs `step` with shared access to an s-node, again whenever a page had to be read first.
    pub(crate) fn read<T>(
        &self,
        snode: HomeId,
        mut step: impl FnMut(&PageReader<'_>, &Contents) -> Step<T>,
    ) -> Result<T> {
        let partition = self.partition(snode)?;
        let mut halts = 0;
        loop {
            let guard = partition.read();
            let pages = PageReader::new(&self.pool, &guard.token);
            let result = step(&pages, &guard.contents);
            drop(pages);
            drop(guard);
            match result {
                Ok(value) => return Ok(value),
                Err(halt) => {
                    self.break_circle(&mut halts)?;
                    self.overcome(halt)?;
                }
            }
        }
    }

    /// Counts the halts of a read. One that has had more of them than there are frames needs more pages at once than are left beside
    /// those that differ from the medium, and reads them in a circle: these are written then, unless a commit is about to.
    pub(crate) fn break_circle(&self, halts: &mut usize) -> Result<()> {
        *halts += 1;
        if halts.is_multiple_of(self.pool.capacity())
            && self.pool.dirty() > 0
            && let Some(_alone) = self.gate.try_write()
        {
            return self.checkpoint_alone();
        }
        Ok(())
    }

    /// Runs `step` with exclusive access to a partition that the caller holds, again whenever a page had to be read first.
    pub(crate) fn write<T>(
        &self,
        partition: &mut Partition,
        mut step: impl FnMut(&mut PageWriter<'_>, &mut Contents) -> Step<T>,
    ) -> Result<T> {
        partition.freeze(&self.pool.versions);
        loop {
            let mut pages = PageWriter::new(&self.pool, &mut partition.token);
            let result = step(&mut pages, &mut partition.contents);
            drop(pages);
            match result {
                Ok(value) => return Ok(value),
                Err(halt) => self.overcome(halt)?,
            }
        }
    }

    /// Does what a halted step needs. No access to pages is held.
    pub(crate) fn overcome(&self, halt: StepError) -> Result<()> {
        match halt {
            StepError::Miss(page) => self.fault(&[page]),
            StepError::MissMany(pages) => self.fault(&pages),
            StepError::NoFrames(frames) => self.pool.make_room(frames),
            StepError::Failed(error) => Err(error),
        }
    }

    /// Plans a write of pages that are in no frame, before anybody is led to where it goes.
    pub(crate) fn put_later(&self, write: PageWrite) -> Result<()> {
        let writes = &self.journal.writes;
        let gathered = writes.gather(write, self.pool.capacity(), &*self.medium);
        gathered.inspect_err(|error| self.journal.stop(error))?;
        self.settle(&writes.oldest(self.pool.capacity() / 8))
    }

    /// Reads pages that are not in memory.
    pub(crate) fn fault(&self, pages: &[u32]) -> Result<()> {
        self.pool.fault(pages, |reads| self.journal.writes.read(reads, &*self.medium))
    }

    /// Waits for writes of pages that commits have begun. What did not arrive stops the store: nothing after it may be durable.
    pub(crate) fn settle(&self, writes: &[Arc<PageWrite>]) -> Result<()> {
        let done = self.journal.writes.settle(writes, &*self.medium, |page| self.pool.clean(page));
        done.inspect_err(|error| self.journal.stop(error))
    }

    /// The pages of nodes that there are, and some numbers between them.
    pub(crate) fn data_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.pool.table.known(self.pool.numbers.data.lock().end())
    }

    /// Gives up a block that a page of an s-node was in.
    pub(crate) fn release_block(&self, block: u64, snode: u16) {
        self.space.lock().release(block, 1, self.pool.erasure.owner(snode));
    }
}

/// Whether only the store itself makes edge types of this name. Those that were deleted have none.
fn is_own_name(name: &str) -> bool {
    name.is_empty() || name.starts_with(OWN_NAMES)
}

/// The number of an edge type.
///
/// # Errors
/// [`Error::TypeTaken`].
fn find_type(catalog: &Catalog, name: &str, form: InfoForm) -> Result<Option<EdgeType>> {
    let found = catalog.find_type(name);
    if found.is_some_and(|etype| catalog.types[etype.0 as usize].form != form) {
        return Err(Error::TypeTaken(name.to_owned()));
    }
    Ok(found)
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(Error::Forked) = self.journal.check() {
            // They are its parent's.
            std::mem::forget(self.journal.writes.all());
            return;
        }
        // They read frames, which go with the store. Whether they have arrived, the journal says at the next opening.
        if let Err(error) = self.journal.writes.arrive(&*self.medium) {
            tracing::debug!(%error, "a write of a store that is dropped failed");
        }
    }
}
