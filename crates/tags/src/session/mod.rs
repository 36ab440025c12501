//! Sessions: a part of a store for a caller that is not trusted with it.
//!
//! A session begins at a root and hands out ids of its own ([`ids`]) for what is reached from there by edges: they cannot
//! be guessed, mean nothing in another session, and end with it or with their node. Every crossing goes through a
//! transaction with the caller's credentials, which are checked against the s-nodes. A program in the store's own
//! process that needs none of this uses [`Transaction`] and pays nothing for it. "ADAPT", section 3.5, proposes sessions;
//! over a socket: [`server`].

mod client;
mod error;
pub(crate) mod ids;
mod server;
mod wire;

pub use client::RemoteSession;
pub use error::{Refusal, SessionError};
pub use ids::{SESSION_IDS_MAX, SessionNode};
pub use server::{SessionServer, SessionSetup};

use crate::ids::{EdgeType, Info, InfoForm, NodeId, NodeType};
use crate::options::Durability;
use crate::partition::Which;
use crate::snodes::access::{Credentials, Permission, Principal};
use crate::snodes::tags::SnodeTags;
use crate::store::Store;
use crate::sync::Mutex;
use crate::tx::{Savepoint, Transaction};
use ids::SessionIds;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// The destination.
    pub to: SessionNode,
}

/// A session. Dropping it ends it and aborts its transaction.
pub struct Session<'s> {
    store: &'s Store,
    credentials: Credentials,
    ids: Arc<Mutex<SessionIds>>,
    root: SessionNode,
    idle_timeout: Duration,
    last_use: Instant,
    tx: Option<Transaction<'s>>,
    savepoints: Vec<Savepoint>,
    types: u32,
    durability: Durability,
    ended: bool,
}

type Outcome<T> = std::result::Result<T, SessionError>;

/// A transaction with the ids of the session that it is for.
struct Crossing<'a, 's> {
    tx: &'a mut Transaction<'s>,
    ids: &'a Mutex<SessionIds>,
}

impl Crossing<'_, '_> {
    /// The node of an id. Its s-node's lock is held then, so that it stays.
    fn node(&mut self, id: SessionNode) -> Outcome<NodeId> {
        let node = self.ids.lock().node(id)?;
        self.tx.root(node.snode())?;
        // While the lock was waited for, the node may have gone, and its place may be another's.
        let again = self.ids.lock().node(id)?;
        if again == node { Ok(node) } else { Err(Refusal::NoSuchId.into()) }
    }

    fn give(&self, node: NodeId) -> Outcome<SessionNode> {
        self.ids.lock().give(node)
    }
}

impl Store {
    /// Opens a session at a node, for a caller who has a permission in its s-node. Without use for `idle_timeout` it ends: that
    /// is looked at when it is used next, so whoever keeps one with a transaction and lets it lie keeps its locks until it is
    /// dropped. [`SessionServer`] drops it in time.
    ///
    /// # Errors
    /// [`Refusal::NoSuchNode`] when the caller has no permission there, or the node is not there.
    pub fn open_session(
        &self,
        root: NodeId,
        credentials: Credentials,
        idle_timeout: Duration,
    ) -> Outcome<Session<'_>> {
        let mut tx = self.begin_as(&credentials);
        tx.root(root.snode())?;
        self.place_of(root, Which::Committed)?;
        let ids = self.sessions.add();
        let root = ids.lock().give(root)?;
        drop(tx);
        Ok(Session {
            store: self,
            credentials,
            ids,
            root,
            idle_timeout,
            last_use: Instant::now(),
            tx: None,
            savepoints: Vec::new(),
            types: 0,
            durability: Durability::Sync,
            ended: false,
        })
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
        self.savepoints.clear();
        self.tx = None;
        self.ids.lock().clear();
    }

    /// Notes a use, of a session that has not ended.
    fn enter(&mut self) -> Outcome<()> {
        let now = Instant::now();
        if !self.ended && now.duration_since(self.last_use) > self.idle_timeout {
            self.close();
        }
        if self.ended {
            return Err(Refusal::Ended.into());
        }
        self.last_use = now;
        Ok(())
    }

    /// Does something that changes nothing: in the transaction, or in one of its own.
    fn look<T>(&mut self, look: impl FnOnce(&mut Crossing<'_, 's>) -> Outcome<T>) -> Outcome<T> {
        self.enter()?;
        match &mut self.tx {
            Some(tx) => look(&mut Crossing { tx, ids: &self.ids }),
            None => {
                let mut tx = self.store.begin_as(&self.credentials);
                look(&mut Crossing { tx: &mut tx, ids: &self.ids })
            }
        }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Crossing<'_, 's>) -> Outcome<T>) -> Outcome<T> {
        self.enter()?;
        let tx = self.tx.as_mut().ok_or(Refusal::NoTransaction)?;
        change(&mut Crossing { tx, ids: &self.ids })
    }

    /// Begins a transaction; a session has one at a time.
    ///
    /// # Errors
    /// [`Refusal::InTransaction`]; as all of the session's calls, [`Refusal::Ended`].
    pub fn begin(&mut self) -> Outcome<()> {
        self.enter()?;
        if self.tx.is_some() {
            return Err(Refusal::InTransaction.into());
        }
        let mut tx = self.store.begin_as(&self.credentials);
        tx.durability(self.durability);
        self.tx = Some(tx);
        Ok(())
    }

    /// Commits; returns when it is durable as the session's [`Durability`] says, with the number of the commit.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], and what [`Transaction::commit`] gives; the transaction is gone either way.
    pub fn commit(&mut self) -> Outcome<u64> {
        self.enter()?;
        self.savepoints.clear();
        let tx = self.tx.take().ok_or(Refusal::NoTransaction)?;
        let committed = tx.commit();
        // A long wait for the medium is no idleness of the caller.
        self.last_use = Instant::now();
        Ok(committed?)
    }

    /// Aborts the transaction.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`].
    pub fn abort(&mut self) -> Outcome<()> {
        self.enter()?;
        self.savepoints.clear();
        self.tx.take().map(Transaction::abort).ok_or_else(|| Refusal::NoTransaction.into())
    }

    /// A savepoint of the transaction: its number, from 0.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`]; [`Refusal::BadRequest`] after [`SAVEPOINTS_MAX`].
    pub fn savepoint(&mut self) -> Outcome<u32> {
        self.enter()?;
        let tx = self.tx.as_mut().ok_or(Refusal::NoTransaction)?;
        if self.savepoints.len() >= SAVEPOINTS_MAX {
            let text = format!("a session's transaction has {SAVEPOINTS_MAX} savepoints at most");
            return Err(SessionError::new(Refusal::BadRequest, text));
        }
        self.savepoints.push(tx.savepoint());
        Ok(self.savepoints.len() as u32 - 1)
    }

    /// Takes the transaction back to a savepoint; it and those after it are gone then.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`]; [`Refusal::BadRequest`] without such a savepoint.
    pub fn undo_to(&mut self, savepoint: u32) -> Outcome<()> {
        self.enter()?;
        let tx = self.tx.as_mut().ok_or(Refusal::NoTransaction)?;
        let missing = || SessionError::from(crate::error::Error::NoSuchSavepoint);
        let found = *self.savepoints.get(savepoint as usize).ok_or_else(missing)?;
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
        self.change(|crossing| {
            let snode = crossing.node(near)?.snode();
            let node = crossing.tx.create_node(snode, kind, data)?;
            crossing.give(node)
        })
    }

    /// The data of a node.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], and what [`Transaction::read_node`] gives.
    pub fn read_node(&mut self, node: SessionNode, kind: NodeType) -> Outcome<Vec<u8>> {
        self.look(|crossing| {
            let node = crossing.node(node)?;
            Ok(crossing.tx.read_node(node, kind)?)
        })
    }

    /// Gives a node other data.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::update_node`] gives.
    pub fn update_node(&mut self, node: SessionNode, kind: NodeType, data: &[u8]) -> Outcome<()> {
        self.change(|crossing| {
            let node = crossing.node(node)?;
            Ok(crossing.tx.update_node(node, kind, data)?)
        })
    }

    /// Deletes a node without edges.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::delete_node`] gives.
    pub fn delete_node(&mut self, node: SessionNode, kind: NodeType) -> Outcome<()> {
        self.change(|crossing| {
            let node = crossing.node(node)?;
            Ok(crossing.tx.delete_node(node, kind)?)
        })
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
            let (source, to) = (crossing.node(source)?, crossing.node(to)?);
            Ok(crossing.tx.create_edge(source, etype, info, to)?)
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
            let (source, to) = (crossing.node(source)?, crossing.node(to)?);
            let before = crossing.tx.set_edge(source, etype, info, to)?;
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
            let to = crossing.tx.delete_edge(source, etype, info)?;
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
        self.look(|crossing| {
            let source = crossing.node(source)?;
            let to = crossing.tx.edge(source, etype, info)?;
            to.map(|to| crossing.give(to)).transpose()
        })
    }

    /// All edges out of a node, in no order.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], [`Refusal::TooManyIds`], and what [`Transaction::edges`] gives.
    pub fn edges(&mut self, source: SessionNode) -> Outcome<Vec<SessionEdge>> {
        self.look(|crossing| {
            let source = crossing.node(source)?;
            let edges = crossing.tx.edges(source)?;
            let known = |edge: crate::tx::Edge| {
                let to = crossing.give(edge.to)?;
                Ok(SessionEdge { etype: edge.etype, number: edge.number, to })
            };
            edges.into_iter().map(known).collect()
        })
    }

    /// The edge type of a name, which is registered if it is new and the caller may write in the root's s-node.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for a type with another form, or after [`TYPES_PER_SESSION_MAX`] of them;
    /// [`Refusal::Forbidden`].
    pub fn edge_type(&mut self, name: &str, form: InfoForm) -> Outcome<EdgeType> {
        self.enter()?;
        if self.types >= TYPES_PER_SESSION_MAX {
            let text = format!("a session asks for {TYPES_PER_SESSION_MAX} edge types at most");
            return Err(SessionError::new(Refusal::BadRequest, text));
        }
        if !self.store.edge_types().iter().any(|known| known.name == name) {
            let root = self.root;
            self.look(|crossing| {
                let root = crossing.node(root)?;
                Ok(crossing.tx.enter(root.snode(), Permission::Write)?)
            })?;
        }
        self.types += 1;
        Ok(self.store.edge_type(name, form)?)
    }

    /// Makes an s-node; its root.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], and what [`Transaction::create_snode`] gives.
    pub fn create_snode(&mut self, tags: &SnodeTags) -> Outcome<SessionNode> {
        self.change(|crossing| {
            let snode = crossing.tx.create_snode(tags)?;
            let root = crossing.tx.root(snode)?;
            crossing.give(root)
        })
    }

    /// Deletes the s-node of a node, which is its root then.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::delete_snode`] gives.
    pub fn delete_snode(&mut self, node: SessionNode) -> Outcome<()> {
        self.change(|crossing| {
            let snode = crossing.node(node)?.snode();
            Ok(crossing.tx.delete_snode(snode)?)
        })
    }

    /// The tags of the s-node of a node.
    ///
    /// # Errors
    /// [`Refusal::NoSuchId`], and what [`Transaction::snode_tags`] gives.
    pub fn snode_tags(&mut self, node: SessionNode) -> Outcome<SnodeTags> {
        self.look(|crossing| {
            let snode = crossing.node(node)?.snode();
            Ok(crossing.tx.snode_tags(snode)?)
        })
    }

    /// Gives the s-node of a node other tags.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::set_snode_tags`] gives.
    pub fn set_snode_tags(&mut self, node: SessionNode, tags: &SnodeTags) -> Outcome<()> {
        self.change(|crossing| {
            let snode = crossing.node(node)?.snode();
            Ok(crossing.tx.set_snode_tags(snode, tags)?)
        })
    }

    /// Grants a permission in the s-node of a node.
    ///
    /// # Errors
    /// [`Refusal::NoTransaction`], [`Refusal::NoSuchId`], and what [`Transaction::grant`] gives.
    pub fn grant(&mut self, node: SessionNode, principal: Principal, permission: Permission) -> Outcome<()> {
        self.change(|crossing| {
            let snode = crossing.node(node)?.snode();
            Ok(crossing.tx.grant(snode, principal, permission)?)
        })
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
        self.change(|crossing| {
            let snode = crossing.node(node)?.snode();
            Ok(crossing.tx.revoke(snode, principal, permission)?)
        })
    }

    /// Lets the session forget an id. The node stays.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for the root's.
    pub fn forget(&mut self, id: SessionNode) -> Outcome<()> {
        self.enter()?;
        if id == self.root {
            return Err(SessionError::new(Refusal::BadRequest, "the root's id stays with the session"));
        }
        self.ids.lock().forget(id);
        Ok(())
    }
}
