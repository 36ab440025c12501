//! Transactions.
//!
//! A transaction takes the lock of each s-node that it reads or changes and keeps it to its end, so transactions are
//! serialisable and those on different s-nodes run and commit in parallel. New nodes are written into their pages at
//! once; edges stay in the transaction's [`write_set`] until the [`commit`].

mod access;
pub(crate) mod apply;
mod bodies;
pub(crate) mod bulk;
mod commit;
pub(crate) mod edges;
pub(crate) mod patch;
pub(crate) mod runs;
mod snodes;
pub(crate) mod write_set;

use crate::error::{Error, Result};
use crate::ids::{HomeId, NodeId, NodeType, Permission, SnodeId};
use crate::layout::node::{NODE_HEADER, class_of, slot_bytes, write_header};
use crate::options::{Durability, EdgeRule};
use crate::partition::{NodePlace, NodeScope, find_node, header_at};
use crate::store::Store;
use crate::sync::ThreadId;
use access::Access;
use runs::{Fill, copy_of_all};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weft_core::Credentials;
use write_set::WriteSet;

/// Checkpoints that one operation asks for, at most: others may fill the room that one has made.
const CHECKPOINTS_MAX: usize = 16;

/// A transaction. Dropping it aborts it.
pub struct Transaction<'s> {
    store: &'s Store,
    id: u64,
    /// The thread that has used it last.
    thread: ThreadId,
    /// When it waits no longer for others.
    until: Option<Instant>,
    held: Vec<HomeId>,
    set: WriteSet,
    durability: Durability,
    /// The data of its new nodes goes to the journal, also where it fills pages.
    by_journal: bool,
    known_types: edges::KnownTypes,
    /// Who the caller is; `None` for one that may do everything.
    access: Option<Box<Access>>,
    /// Which edges the caller may make; `None` for all.
    rule: Option<EdgeRule>,
    /// When it began, so that ids of s-nodes rest while it may know them.
    era: u64,
    ended: bool,
}

/// A place in a transaction to come back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    tx: u64,
    depth: usize,
    mark: usize,
}

impl Store {
    /// Begins a transaction that may do everything: that of the store's own process.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self, self.next_tx.fetch_add(1, Ordering::Relaxed), None)
    }

    /// Begins a transaction for a caller, which may do what the permissions of the s-nodes say, and makes the edges that
    /// [`Options::edge_rule`](crate::Options::edge_rule) allows.
    pub fn begin_as(&self, credentials: &Credentials) -> Transaction<'_> {
        Transaction::new(self, self.next_tx.fetch_add(1, Ordering::Relaxed), Some(credentials))
    }

    /// Commits what `change` does in a transaction.
    pub(crate) fn change<T>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut tx = self.begin();
        let changed = change(tx.durability(durability))?;
        tx.commit().map(|_| changed)
    }
}

impl<'s> Transaction<'s> {
    fn new(store: &'s Store, id: u64, credentials: Option<&Credentials>) -> Transaction<'s> {
        let durability = Durability::default();
        let rule = credentials.map(|_| store.options.edge_rule);
        let limited = credentials.filter(|credentials| !credentials.is_superuser());
        let access = limited.map(|credentials| Box::new(Access::new(credentials)));
        Transaction {
            store,
            id,
            thread: ThreadId::here(),
            until: None,
            held: Vec::new(),
            set: WriteSet::default(),
            durability,
            by_journal: false,
            known_types: edges::KnownTypes::default(),
            access,
            rule,
            era: store.snodes.eras.enter(),
            ended: false,
        }
    }

    /// Says when the commit is durable; [`Durability::Sync`] unless said.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = durability;
        self
    }

    /// Says that a sync follows at once: the data of new nodes goes to the journal, also where it fills pages, unless it is much. The sync then
    /// waits for one write, to blocks that were written before; a checkpoint writes the pages of nodes that are still there.
    pub fn for_sync(&mut self) -> &mut Self {
        self.by_journal = true;
        self
    }

    /// Says when it waits no longer for others.
    pub(crate) fn wait_until(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Whether nothing was changed.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.set.is_empty()
    }

    /// Takes the lock of a home, unless it is held; whether it was not.
    pub(crate) fn hold(&mut self, home: HomeId) -> Result<bool> {
        let here = ThreadId::here();
        if self.thread != here {
            self.thread = here;
            self.store.locks.hand_over(&self.held, here);
        }
        let absent = || Error::NoSuchSnode(home.into());
        if self.held.contains(&home) {
            return if self.set.gone_homes.contains(&home) { Err(absent()) } else { Ok(false) };
        }
        if !self.store.snodes.is_visible(home) {
            return Err(absent());
        }
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let most = self.store.options.lock_wait;
        self.store.locks.take(here, home, left.map_or(most, |left| left.min(most)))?;
        // Who was waited for may have deleted it.
        if !self.store.snodes.is_visible(home) {
            self.store.locks.release(&[home]);
            return Err(absent());
        }
        self.held.push(home);
        Ok(true)
    }

    /// Makes a node in an s-node. It becomes visible with the commit, if an edge leads to it or out of it then.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], [`Error::Forbidden`], [`Error::RootType`], [`Error::TooLarge`], [`Error::Full`],
    /// [`Error::CacheFull`], [`Error::Deadlock`].
    pub fn create_node(&mut self, snode: SnodeId, kind: NodeType, data: &[u8]) -> Result<NodeId> {
        if kind == NodeType::ROOT {
            return Err(Error::RootType);
        }
        self.create_node_of(snode, kind, &[data])
    }

    /// As [`Transaction::create_node`], of data that lies in pieces in memory.
    ///
    /// # Errors
    /// As [`Transaction::create_node`].
    pub fn create_node_of(&mut self, snode: SnodeId, kind: NodeType, pieces: &[&[u8]]) -> Result<NodeId> {
        if kind == NodeType::ROOT {
            return Err(Error::RootType);
        }
        let home = self.enter(snode, Permission::Write)?;
        let node = self.make_node(home, kind, pieces)?;
        self.own(snode, &[node])?;
        Ok(node)
    }

    /// As [`Transaction::create_node`], of several nodes, in the order of their data.
    ///
    /// # Errors
    /// As [`Transaction::create_node`].
    pub fn create_nodes(&mut self, snode: SnodeId, kind: NodeType, data: &[&[u8]]) -> Result<Vec<NodeId>> {
        if kind == NodeType::ROOT {
            return Err(Error::RootType);
        }
        let home = self.enter(snode, Permission::Write)?;
        let nodes: Result<Vec<_>> = data.iter().map(|data| self.make_node(home, kind, &[data])).collect();
        let nodes = nodes?;
        self.own(snode, &nodes)?;
        Ok(nodes)
    }

    /// Makes a node in a home whose lock is held.
    fn make_node(&mut self, snode: HomeId, kind: NodeType, pieces: &[&[u8]]) -> Result<NodeId> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let node = match class_of(len) {
            Some(class) => self.create_small(snode, kind, class, len, &mut copy_of_all(pieces)),
            None => self.create_large(snode, kind, (len, len), false, &mut copy_of_all(pieces)),
        }?;
        self.set.create(node);
        Ok(node)
    }

    fn create_small(
        &self,
        snode: HomeId,
        kind: NodeType,
        class: u8,
        len: usize,
        fill: Fill<'_>,
    ) -> Result<NodeId> {
        let store = self.store;
        let partition = store.partition(snode)?;
        self.with_room(|| {
            store.write(&mut partition.write(), |pages, contents| {
                let slab = &mut contents.slabs[usize::from(class)];
                let (page, slots) = slab.reserve(pages, class, 1)?;
                let offset = slots.start * slot_bytes(class).unwrap_or(crate::PAGE_BYTES);
                let out = &mut pages.bytes_mut(page)?[offset..];
                write_header(out, kind.0, len);
                fill(0, &mut out[NODE_HEADER..NODE_HEADER + len])?;
                Ok(NodeId::at(snode, page, offset))
            })
        })
    }

    /// Runs `attempt`, again after a checkpoint when the cache is full of pages that this transaction, or others, have filled:
    /// they can be written now.
    fn with_room<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut result = attempt();
        for _ in 0..CHECKPOINTS_MAX {
            if !matches!(result, Err(Error::CacheFull { .. })) {
                break;
            }
            self.store.checkpoint()?;
            result = attempt();
        }
        result
    }

    /// Takes back the room of a node that this transaction has made.
    fn take_back_node(&self, node: NodeId) -> Result<()> {
        let store = self.store;
        if store.pool.erasure.is_of(node.home().0) && !store.pool.may_change() {
            // Its bytes are cleared, in a page that may be clean.
            store.checkpoint()?;
        }
        let partition = store.partition(node.home())?;
        apply::release(store, &mut partition.write(), node, NodeScope::Reserved)
    }

    fn which(&mut self, node: NodeId) -> NodeScope {
        if self.set.touched(node).created { NodeScope::Reserved } else { NodeScope::Committed }
    }

    /// Where a node is, in an s-node in which the caller has a permission. Its lock is held from here on.
    fn place(&mut self, node: NodeId, needed: Permission) -> Result<NodePlace> {
        self.enter_node(node, &[needed])?;
        self.place_held(node)
    }

    /// As [`Transaction::place`], of a node whose s-node is held.
    pub(super) fn place_held(&mut self, node: NodeId) -> Result<NodePlace> {
        if self.set.deleted.contains(&node) {
            return Err(Error::NoSuchNode(node));
        }
        let which = self.which(node);
        find_node(&self.store.pool.table, node, which)
    }

    /// Deletes a node, which has no edges any more: from here on this transaction does not see it. A node that loses its last edge
    /// goes with the commit anyway.
    ///
    /// # Errors
    /// [`Error::HasEdges`]; [`Error::NoSuchNode`], [`Error::WrongType`], [`Error::Forbidden`], [`Error::Deadlock`].
    pub fn delete_node(&mut self, node: NodeId, kind: NodeType) -> Result<()> {
        let place = self.place(node, Permission::Write)?;
        let store = self.store;
        let found = store.read(node.home(), |pages, _| Ok(header_at(pages, place)?.0))?;
        if found != kind.0 {
            return Err(Error::wrong_type(node, found, kind));
        }
        if self.has_edges(node)? {
            return Err(Error::HasEdges(node));
        }
        self.set.delete(node);
        Ok(())
    }

    /// A place to come back to with [`Transaction::undo_to`]: a transaction within this one.
    pub fn savepoint(&mut self) -> Savepoint {
        let (depth, mark) = self.set.savepoint();
        Savepoint { tx: self.id, depth, mark }
    }

    /// Undoes everything since a savepoint, which stays: the transaction within is aborted, and another may begin.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`].
    pub fn undo_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.keep_savepoints(savepoint, savepoint.depth)?;
        self.forget_permissions();
        let undone = self.set.undo_to(savepoint.mark);
        for node in undone.nodes {
            self.take_back_node(node)?;
        }
        undone.homes.into_iter().try_for_each(|home| self.take_back_home(home))
    }

    /// Forgets a savepoint: what was done since becomes part of the transaction around it.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`].
    pub fn forget(&mut self, savepoint: Savepoint) -> Result<()> {
        self.keep_savepoints(savepoint, savepoint.depth - 1)
    }

    fn keep_savepoints(&mut self, Savepoint { tx, depth, mark }: Savepoint, kept: usize) -> Result<()> {
        let is_known = tx == self.id && self.set.keep_savepoints((depth, mark), kept);
        if is_known { Ok(()) } else { Err(Error::NoSuchSavepoint) }
    }

    /// Makes all changes visible, and durable as the transaction's [`Durability`] says. Returns the commit's number.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::CacheFull`], [`Error::Full`]: nothing has changed. [`Error::Io`],
    /// [`Error::Stopped`]: whether the transaction is durable is known when the store is opened again.
    pub fn commit(mut self) -> Result<u64> {
        if self.set.is_empty() {
            return Ok(self.store.journal.last());
        }
        let store = self.store;
        let lsn = self.commit_changes().map_err(|error| store.periodic.reason(error))?;
        self.ended = true;
        self.release();
        let done = match self.durability {
            Durability::Sync => store.journal.sync_to(lsn, &*store.medium),
            Durability::Periodic(ms) => {
                let after = Duration::from_millis(ms.into());
                store.periodic.sync_after(after, lsn, &store.journal, &store.medium)
            }
            Durability::None => Ok(()),
        };
        done.map(|()| lsn).map_err(|error| store.periodic.reason(error))
    }

    /// Forgets all changes.
    pub fn abort(self) {}

    fn release(&mut self) {
        self.store.pool.numbers.settle(|snode| self.held.contains(snode));
        self.store.locks.release(&self.held);
        self.held.clear();
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let blocks = std::mem::take(&mut self.set.blocks);
            self.give_up_blocks(blocks);
            for node in std::mem::take(&mut self.set.created) {
                // A store that has stopped may have lost track of the node; it is reclaimed when the store is opened.
                if let Err(error) = self.take_back_node(node) {
                    tracing::debug!(%node, %error, "a node of an aborted transaction is left to recovery");
                }
            }
            for (home, _) in std::mem::take(&mut self.set.new_homes) {
                if let Err(error) = self.take_back_home(home) {
                    tracing::debug!(%home, %error, "a home of an aborted transaction is left to recovery");
                }
            }
        }
        self.release();
        self.store.snodes.eras.leave(self.era);
    }
}
