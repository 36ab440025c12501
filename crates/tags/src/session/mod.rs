//! Sessions: access to a part of a store for a caller that is not trusted with all of it.
//!
//! A session begins at a root and hands out ids of its own ([`ids`]) for what is reached from there by edges: they cannot
//! be guessed, mean nothing in another session, and end with it or with their node. Every crossing goes through a
//! transaction with the caller's credentials, which are checked against the s-nodes. A program in the store's own
//! process that needs none of this uses [`Transaction`] and pays nothing for it. "ADAPT", section 3.5, proposes sessions;
//! over a socket: [`server`].

mod checked;
mod client;
mod error;
mod field;
mod ids;
pub(crate) mod server;
mod wire;

pub use client::RemoteSession;
pub use error::{Refusal, SessionError};
pub use ids::{SESSION_IDS_MAX, SessionNode};
pub use server::{SessionServer, SessionSetup};

use crate::committed::Committed;
use crate::edges::Edge;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, HomeId, Info, InfoForm, NodeId, NodeType, Permission, SnodeId};
use crate::options::Durability;
use crate::pages::access::StatePages;
use crate::snapshot::Snapshot;
use crate::snodes::access::Principal;
use crate::snodes::tags::SnodeTags;
use crate::store::Store;
use crate::sync::Mutex;
use crate::tx::{Savepoint, Transaction};
use crate::watchers::NodeWatcher;
use checked::{CheckedState, SessionRead};
use error::changed;
use ids::SessionIds;
use server::FRAME_BYTES_MAX;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_core::Credentials;
use weft_core::serve::{FRAME_WITHIN, is_gone};

/// Bytes of a node that a session reads at once, at most.
pub const PIECE_BYTES_MAX: usize = 15 << 20;
/// Most edges of a node that a session in another process lists: what an answer has room for.
pub const EDGES_MAX: usize = (FRAME_BYTES_MAX - 5) / 21;
/// Most savepoints of a session's transaction.
pub const SAVEPOINTS_MAX: usize = 1024;
/// Most edge types that a session may look up or register, so that a stranger does not fill the catalog.
pub const TYPES_PER_SESSION_MAX: u32 = 256;

/// An edge as a session knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionEdge {
    /// Its type.
    pub etype: EdgeType,
    /// Its number, for types of [`InfoForm::Number`]; `None` for keys, which the destination's data begins with.
    pub number: Option<u64>,
    /// Node that the edge leads to, by its id in the session.
    pub to: SessionNode,
}

/// How long a session may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Without use for so long it ends.
    pub idle: Duration,
    /// In another process: a client's first request, a request that has begun, and the taking of an answer last at most so long.
    pub request: Duration,
    /// A transaction that has not ended so long after it began is aborted.
    pub transaction: Duration,
}

impl Default for SessionLimits {
    /// Five minutes without use, ten seconds for a request and for a transaction.
    fn default() -> SessionLimits {
        let (idle, transaction) = (Duration::from_secs(300), Duration::from_secs(10));
        SessionLimits { idle, request: FRAME_WITHIN, transaction }
    }
}

/// A session. Dropping it ends it and aborts its transaction.
pub struct Session<'s> {
    store: &'s Store,
    credentials: Credentials,
    ids: Arc<Mutex<SessionIds>>,
    root: SessionNode,
    limits: SessionLimits,
    last_use: Instant,
    open: Option<Open<'s>>,
    /// Its transaction was aborted at its limit, and the caller does not know yet.
    is_overdue: bool,
    savepoints: Vec<Savepoint>,
    types: u32,
    durability: Durability,
    ended: bool,
    /// The connection to the client, where it is in another process.
    client: Option<&'s UnixStream>,
}

type Outcome<T> = std::result::Result<T, SessionError>;
/// Gives ids to nodes of the state that is read.
type Give<'a> = &'a dyn Fn(NodeId) -> Outcome<SessionNode>;

/// Refuses a request that cannot be.
fn refuse<T>(text: impl Into<String>) -> Outcome<T> {
    Err(SessionError::new(Refusal::BadRequest, text))
}

/// Times that the last commit is looked at, before a snapshot is taken because it changes each time meanwhile.
const LOOKS_MAX: usize = 3;

/// A session's transaction.
///
/// What it changes it locks. What it only reads it reads from a snapshot, so that it keeps nobody waiting; the commit of
/// changes, which are to follow from what was read, finds out whether that is still so.
struct Open<'s> {
    tx: Transaction<'s>,
    /// When it is aborted; never, where that is beyond all times.
    until: Option<Instant>,
    /// What is read of s-nodes that are not its own.
    snapshot: Option<Snapshot<'s>>,
    /// Homes of s-nodes that were read there.
    read: Vec<HomeId>,
    /// Homes that it has locked, and that were as they were read.
    own: Vec<HomeId>,
}

impl Open<'_> {
    fn is_overdue(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Makes a home one that only this transaction changes.
    fn make_own(&mut self, snode: HomeId) -> Outcome<()> {
        if self.own.contains(&snode) {
            return Ok(());
        }
        self.tx.hold(snode)?;
        if let Some(then) = self.snapshot.as_ref().filter(|_| self.read.contains(&snode))
            && then.has_changed(snode)?
        {
            return Err(changed());
        }
        self.own.push(snode);
        if self.read.iter().all(|read| self.own.contains(read)) {
            // Nothing that it knows can change any more: without a snapshot its own changes are cheaper.
            self.snapshot = None;
            self.read.clear();
        }
        Ok(())
    }
}

/// A transaction with the ids of the session that it is for.
struct Crossing<'a, 's> {
    open: &'a mut Open<'s>,
    ids: &'a Mutex<SessionIds>,
}

impl Crossing<'_, '_> {
    /// The node of an id in an s-node in which the caller has a permission. Its s-node is held then, so that it stays.
    fn node(&mut self, id: SessionNode) -> Outcome<NodeId> {
        let node = self.ids.lock().node(id)?;
        self.open.tx.enter_node(node, &Permission::ALL)?;
        self.end(id)
    }

    /// The node of an id that an edge from `source` is to lead to.
    fn destination(&mut self, source: NodeId, id: SessionNode) -> Outcome<NodeId> {
        let node = self.ids.lock().node(id)?;
        self.open.tx.may_lead(source, node)?;
        self.end(id)
    }

    /// The node of an id, whatever the caller may do there.
    fn end(&mut self, id: SessionNode) -> Outcome<NodeId> {
        let node = self.ids.lock().node(id)?;
        self.open.make_own(node.home())?;
        // While the lock was waited for, the node may have gone, and its place may be another's.
        self.ids.lock().node(id)
    }

    fn give(&self, node: NodeId) -> Outcome<SessionNode> {
        self.ids.lock().give(node)
    }
}

impl Store {
    /// Opens a session at a node, for a caller who has a permission in its s-node. Its limits are looked at when it is used next, so whoever
    /// keeps one with a transaction and lets it lie keeps its locks until it is dropped. [`SessionServer`] ends it in time.
    ///
    /// # Errors
    /// [`Refusal::NoSuchNode`] when the caller has no permission there, or the node is not there.
    pub fn open_session(
        &self,
        root: NodeId,
        credentials: Credentials,
        limits: SessionLimits,
    ) -> Outcome<Session<'_>> {
        let ids = Arc::new(Mutex::new(SessionIds::default()));
        let known: Arc<dyn NodeWatcher> = ids.clone();
        self.watchers.add(Arc::downgrade(&known));
        // What goes from here on is known to have gone.
        let id = ids.lock().give(root)?;
        let mut session = Session {
            store: self,
            credentials,
            ids,
            root: id,
            limits,
            last_use: Instant::now(),
            open: None,
            is_overdue: false,
            savepoints: Vec::new(),
            types: 0,
            durability: Durability::Sync,
            ended: false,
            client: None,
        };
        session.look(id, |checked, node, _| {
            checked.check(node, &Permission::ALL)?;
            Ok(self.look_for(node)?)
        })?;
        Ok(session)
    }
}

impl<'s> Session<'s> {
    /// The node that the session began at.
    pub fn root(&self) -> SessionNode {
        self.root
    }

    /// Says when the transactions that begin from now on are durable; [`Durability::Sync`] unless said.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = durability;
        self
    }

    /// Ends the session: its transaction is aborted and its ids mean nothing any more.
    pub fn close(&mut self) {
        self.ended = true;
        self.end_transaction();
        *self.ids.lock() = SessionIds::default();
    }

    /// Gives up all that belongs to the transaction; it, where there is one.
    fn end_transaction(&mut self) -> Option<Open<'s>> {
        self.savepoints.clear();
        self.ids.lock().end_then();
        self.open.take()
    }

    /// Aborts a transaction whose time is over.
    fn end_overdue(&mut self) {
        if self.open.as_ref().is_some_and(Open::is_overdue) {
            self.is_overdue = true;
            self.end_transaction();
        }
    }

    /// Notes a use, of a session that has not ended.
    fn enter(&mut self) -> Outcome<()> {
        let now = Instant::now();
        if !self.ended && now.duration_since(self.last_use) > self.limits.idle {
            self.close();
        }
        if self.ended {
            return Err(Refusal::Ended.into());
        }
        self.last_use = now;
        self.end_overdue();
        if std::mem::take(&mut self.is_overdue) {
            let text = format!(
                "the transaction was not over after {} ms, and was aborted; begin another one",
                self.limits.transaction.as_millis()
            );
            return Err(SessionError::new(Refusal::TransactionEnded, text));
        }
        Ok(())
    }

    /// Looks at what there is at a node: nobody waits for it, and it waits for nobody. In a transaction, at what the transaction sees.
    fn look<T>(
        &mut self,
        id: SessionNode,
        mut look: impl FnMut(&mut dyn SessionRead, NodeId, Give<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        self.enter()?;
        let Session { store, credentials, ids, open, .. } = self;
        let (store, caller) = (*store, &*credentials);
        let Some(open) = open else { return look_now(store, caller, ids, id, look) };
        let now = ids.lock().node(id);
        if let Some(node) = now.ok().filter(|node| open.own.contains(&node.home())) {
            return look(&mut open.tx, node, &|to| ids.lock().give(to));
        }
        let snapshot = &*open.snapshot.get_or_insert_with(|| begin_then(store, ids));
        let node = ids.lock().node_then(id, snapshot)?;
        if open.own.contains(&node.home()) {
            return Err(Refusal::NoSuchId.into());
        }
        if !open.read.contains(&node.home()) {
            open.read.push(node.home());
        }
        let mut then = CheckedState { state: snapshot, caller };
        look(&mut then, node, &|to| ids.lock().give_then(to, snapshot))
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Crossing<'_, 's>) -> Outcome<T>) -> Outcome<T> {
        self.enter()?;
        let open = self.open.as_mut().ok_or(Refusal::NoTransaction)?;
        let changed = change(&mut Crossing { open, ids: &self.ids });
        // A long wait for others is no idleness of the caller.
        self.last_use = Instant::now();
        if changed.is_err() {
            // It may have waited until its time was over.
            self.end_overdue();
        }
        changed
    }

    /// Changes a node.
    fn change_node<T>(
        &mut self,
        id: SessionNode,
        change: impl FnOnce(&mut Transaction<'s>, NodeId) -> Outcome<T>,
    ) -> Outcome<T> {
        self.change(|crossing| {
            let node = crossing.node(id)?;
            change(&mut crossing.open.tx, node)
        })
    }

    /// Changes the s-node of a node.
    fn change_snode<T>(
        &mut self,
        id: SessionNode,
        change: impl FnOnce(&mut Transaction<'s>, SnodeId) -> Result<T>,
    ) -> Outcome<T> {
        self.change_node(id, |tx, node| {
            let snode = tx.snode_of(node)?;
            Ok(change(tx, snode)?)
        })
    }

    fn tx(&mut self) -> Outcome<&mut Transaction<'s>> {
        self.enter()?;
        Ok(&mut self.open.as_mut().ok_or(Refusal::NoTransaction)?.tx)
    }

    /// Begins a transaction; a session has one at a time. What it reads is of one state, and keeps nobody waiting.
    ///
    /// # Errors
    /// [`Refusal::InTransaction`]; as all of the session's calls, [`Refusal::Ended`], and [`Refusal::TransactionEnded`] where its
    /// transaction was aborted at its limit since the last call.
    pub fn begin(&mut self) -> Outcome<()> {
        self.enter()?;
        if self.open.is_some() {
            return Err(Refusal::InTransaction.into());
        }
        let mut tx = self.store.begin_as(&self.credentials);
        tx.durability(self.durability);
        let until = self.last_use.checked_add(self.limits.transaction);
        tx.wait_until(until);
        self.open = Some(Open { tx, until, snapshot: None, read: Vec::new(), own: Vec::new() });
        Ok(())
    }

    /// Commits; returns when it is durable as the session's [`Durability`] says, with the number of the commit.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`]; [`Refusal::Deadlock`] also where others have changed what it has read; what
    /// [`Transaction::commit`] gives. The transaction is gone either way.
    pub fn commit(&mut self) -> Outcome<u64> {
        self.enter()?;
        let mut open = self.end_transaction().ok_or(Refusal::NoTransaction)?;
        if !open.tx.changes_nothing() {
            for snode in open.read.clone() {
                open.make_own(snode)?;
            }
        }
        // It would keep what the commit changes.
        drop(open.snapshot);
        let committed = open.tx.commit();
        // Nor is one for the medium.
        self.last_use = Instant::now();
        Ok(committed?)
    }

    /// Aborts the transaction.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`].
    pub fn abort(&mut self) -> Outcome<()> {
        self.enter()?;
        self.end_transaction().map(drop).ok_or_else(|| Refusal::NoTransaction.into())
    }

    /// A savepoint of the transaction: its number, from 0.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`]; [`Refusal::BadRequest`] after `SAVEPOINTS_MAX`.
    pub fn savepoint(&mut self) -> Outcome<u32> {
        let known = self.savepoints.len();
        let tx = self.tx()?;
        if known >= SAVEPOINTS_MAX {
            return refuse(format!("a session's transaction has {SAVEPOINTS_MAX} savepoints at most"));
        }
        let savepoint = tx.savepoint();
        self.savepoints.push(savepoint);
        Ok(known as u32)
    }

    /// Takes the transaction back to a savepoint; it and those after it are gone then.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`]; [`Refusal::BadRequest`] without such a savepoint.
    pub fn undo_to(&mut self, savepoint: u32) -> Outcome<()> {
        let found = self.savepoints.get(savepoint as usize).copied();
        let tx = self.tx()?;
        let found = found.ok_or(Error::NoSuchSavepoint)?;
        tx.undo_to(found)?;
        tx.forget(found)?;
        self.savepoints.truncate(savepoint as usize);
        Ok(())
    }

    /// Makes a node in the s-node of another one.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], [`Refusal::TooManyIds`], and what
    /// [`Transaction::create_node`] gives.
    pub fn create_node(&mut self, near: SessionNode, kind: NodeType, data: &[u8]) -> Outcome<SessionNode> {
        let node = self.change_snode(near, |tx, snode| tx.create_node(snode, kind, data))?;
        self.ids.lock().give(node)
    }

    /// The data of a node.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], and what [`Transaction::read_node`] gives.
    pub fn read_node(&mut self, node: SessionNode, kind: NodeType) -> Outcome<Vec<u8>> {
        let (data, len) =
            self.look(node, |checked, node, _| Ok(checked.read_part(node, kind, 0, PIECE_BYTES_MAX)?))?;
        if len > data.len() as u64 {
            return refuse(format!(
                "a node of {len} bytes; a session reads {PIECE_BYTES_MAX} at once: read it by parts"
            ));
        }
        Ok(data)
    }

    /// A part of a node's data, from byte `at` on: up to `bytes`, which are no more than `PIECE_BYTES_MAX`, and fewer at the end.
    ///
    /// # Errors
    /// As [`Session::read_node`].
    pub fn read_at(&mut self, node: SessionNode, kind: NodeType, at: u64, bytes: usize) -> Outcome<Vec<u8>> {
        self.look(node, |checked, node, _| {
            Ok(checked.read_part(node, kind, at, bytes.min(PIECE_BYTES_MAX))?.0)
        })
    }

    /// Writes into a node's data, from byte `at` on, which is not behind its end.
    ///
    /// # Errors
    /// As [`Session::update_node`]; [`Refusal::BadRequest`].
    pub fn write_at(&mut self, node: SessionNode, kind: NodeType, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.change_node(node, |tx, node| {
            if at > tx.node_len(node, kind)? {
                // One request would else write gigabytes.
                return refuse(
                    "a session writes no further than behind the end of a node; append what lies between",
                );
            }
            Ok(tx.write_at(node, kind, at, bytes)?)
        })
    }

    /// Writes behind the end of a node's data; where that was.
    ///
    /// # Errors
    /// As [`Session::update_node`].
    pub fn append(&mut self, node: SessionNode, kind: NodeType, bytes: &[u8]) -> Outcome<u64> {
        self.change_node(node, |tx, node| Ok(tx.append(node, kind, bytes)?))
    }

    /// Gives a node other data.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::update_node`] gives.
    pub fn update_node(&mut self, node: SessionNode, kind: NodeType, data: &[u8]) -> Outcome<()> {
        self.change_node(node, |tx, node| Ok(tx.update_node(node, kind, data)?))
    }

    /// Deletes a node without edges.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::delete_node`] gives.
    pub fn delete_node(&mut self, node: SessionNode, kind: NodeType) -> Outcome<()> {
        self.change_node(node, |tx, node| Ok(tx.delete_node(node, kind)?))
    }

    /// Makes an edge.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::create_edge`] gives.
    pub fn create_edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
        to: SessionNode,
    ) -> Outcome<()> {
        self.change(|crossing| {
            let source = crossing.node(source)?;
            let to = crossing.destination(source, to)?;
            Ok(crossing.open.tx.create_edge(source, etype, info, to)?)
        })
    }

    /// Leads an edge elsewhere, or makes it; says where it led.
    ///
    /// # Errors
    /// As [`Session::create_edge`].
    pub fn set_edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
        to: SessionNode,
    ) -> Outcome<Option<SessionNode>> {
        self.change(|crossing| {
            let source = crossing.node(source)?;
            let to = crossing.destination(source, to)?;
            let before = crossing.open.tx.set_edge(source, etype, info, to)?;
            before.map(|node| crossing.give(node)).transpose()
        })
    }

    /// Deletes an edge; says where it led.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::delete_edge`] gives.
    pub fn delete_edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
    ) -> Outcome<SessionNode> {
        self.change(|crossing| {
            let source = crossing.node(source)?;
            let to = crossing.open.tx.delete_edge(source, etype, info)?;
            crossing.give(to)
        })
    }

    /// Where an edge leads.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], and what [`Transaction::edge`] gives.
    pub fn edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
    ) -> Outcome<Option<SessionNode>> {
        self.look(source, |checked, source, give| checked.edge(source, etype, info)?.map(give).transpose())
    }

    /// All edges out of a node, in no order.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], [`Refusal::TooManyIds`], and what [`Transaction::edges`] gives; [`Refusal::TransactionEnded`]. In another
    /// process [`Refusal::BadRequest`] where they are more than `EDGES_MAX`.
    pub fn edges(&mut self, source: SessionNode) -> Outcome<Vec<SessionEdge>> {
        let (store, until, client) = (self.store, self.attend(), self.client);
        let listed = self.look(source, |checked, source, give| {
            let mut known = Vec::new();
            checked.each_out(source, &mut |edges| {
                if until.is_some_and(|until| Instant::now() >= until) || client.is_some_and(is_gone) {
                    return Err(Refusal::Ended.into());
                }
                let mut seen = Vec::new();
                store.add_edges(edges, &mut seen)?;
                if client.is_some() && known.len() + seen.len() > EDGES_MAX {
                    return refuse(format!(
                        "the node has more than {EDGES_MAX} edges, which an answer has room for"
                    ));
                }
                for Edge { etype, number, to } in seen {
                    known.push(SessionEdge { etype, number, to: give(to)? });
                }
                Ok(())
            })?;
            Ok(known)
        });
        self.last_use = Instant::now();
        // Where it was the transaction's time that was over, this says so.
        listed.or_else(|error| self.enter().and(Err(error)))
    }

    /// The edge type of a name, which is registered if it is new and the caller may write in the root's s-node.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for a type with another form, or after `TYPES_PER_SESSION_MAX` of them;
    /// [`Refusal::Forbidden`].
    pub fn edge_type(&mut self, name: &str, form: InfoForm) -> Outcome<EdgeType> {
        self.enter()?;
        if self.types >= TYPES_PER_SESSION_MAX {
            return refuse(format!("a session asks for {TYPES_PER_SESSION_MAX} edge types at most"));
        }
        if self.store.catalog.read().find_type(name).is_none() {
            self.look(self.root, |checked, root, _| Ok(checked.check(root, &[Permission::Write])?))?;
        }
        self.types += 1;
        Ok(self.store.edge_type(name, form)?)
    }

    /// Deletes an edge type, which has no edges any more. Takes permission to control the first s-node.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], and what [`Store::delete_edge_type`] gives: [`Refusal::NotEmpty`], [`Refusal::BadRequest`].
    pub fn delete_edge_type(&mut self, etype: EdgeType) -> Outcome<()> {
        self.enter()?;
        let mut checked = CheckedState { state: self.store, caller: &self.credentials };
        checked.check(self.store.root(SnodeId::FIRST)?, &[Permission::Control])?;
        Ok(self.store.delete_edge_type(etype)?)
    }

    /// Makes an s-node; its root.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], and what [`Transaction::create_snode`] gives.
    pub fn create_snode(&mut self, tags: SnodeTags) -> Outcome<SessionNode> {
        self.change(|crossing| {
            let snode = crossing.open.tx.create_snode(&tags)?;
            let root = crossing.open.tx.root(snode)?;
            crossing.open.make_own(root.home())?;
            crossing.give(root)
        })
    }

    /// Deletes the s-node of a node, which is its root then.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::delete_snode`] gives.
    pub fn delete_snode(&mut self, node: SessionNode) -> Outcome<()> {
        self.change_snode(node, |tx, snode| tx.delete_snode(snode))
    }

    /// The tags of the s-node of a node.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], and what [`Transaction::snode_tags`] gives.
    pub fn snode_tags(&mut self, node: SessionNode) -> Outcome<SnodeTags> {
        self.look(node, |checked, node, _| Ok(checked.snode_tags(node)?))
    }

    /// Gives the s-node of a node other tags.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::set_snode_tags`] gives.
    pub fn set_snode_tags(&mut self, node: SessionNode, tags: SnodeTags) -> Outcome<()> {
        self.change_snode(node, |tx, snode| tx.set_snode_tags(snode, &tags))
    }

    /// Grants a permission in the s-node of a node.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::grant`] gives.
    pub fn grant(&mut self, node: SessionNode, principal: Principal, permission: Permission) -> Outcome<()> {
        self.change_snode(node, |tx, snode| tx.grant(snode, principal, permission))
    }

    /// Takes a permission back; says whether it was there.
    ///
    /// # Errors
    /// As [`Session::grant`].
    pub fn revoke(
        &mut self,
        node: SessionNode,
        principal: Principal,
        permission: Permission,
    ) -> Outcome<bool> {
        self.change_snode(node, |tx, snode| tx.revoke(snode, principal, permission))
    }

    /// Lets the session forget an id. The node stays.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for the root's.
    pub fn forget(&mut self, id: SessionNode) -> Outcome<()> {
        self.enter()?;
        if id == self.root {
            return refuse("the root's id stays with the session");
        }
        self.ids.lock().forget(id);
        Ok(())
    }
}

/// Looks at the last commit. What is read by several steps is of one state where nothing of the s-node has changed meanwhile.
fn look_now<T>(
    store: &Store,
    caller: &Credentials,
    ids: &Mutex<SessionIds>,
    id: SessionNode,
    mut look: impl FnMut(&mut dyn SessionRead, NodeId, Give<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let turns = |node: NodeId| store.step(node.home(), |pages, _| Ok(pages.turns()));
    for _ in 0..LOOKS_MAX {
        // The ids are let go before pages are read: a commit has these while it makes sessions forget ids.
        let node = ids.lock().node(id)?;
        let before = turns(node)?;
        ids.lock().node(id)?;
        // What an edge led to was there when it was given its id, unless the s-node of the edge has changed by then.
        let looked = look(&mut CheckedState { state: store, caller }, node, &|to| ids.lock().give(to));
        if turns(node).is_ok_and(|after| after == before) {
            return looked;
        }
    }
    let snapshot = begin_then(store, ids);
    let node = ids.lock().node_then(id, &snapshot);
    let mut then = CheckedState { state: &snapshot, caller };
    let looked = node.and_then(|node| look(&mut then, node, &|to| ids.lock().give_then(to, &snapshot)));
    ids.lock().end_then();
    looked
}

/// Begins to read a snapshot. What goes before the session looks at it has gone without its id: another node may have come to its place
/// before the snapshot began.
fn begin_then<'s>(store: &'s Store, ids: &Mutex<SessionIds>) -> Snapshot<'s> {
    let snapshot = store.snapshot();
    ids.lock().begin_then();
    snapshot
}
