//! S-nodes in a transaction: made, deleted, their tags and permissions.

use super::apply;
use super::write_set::NONE;
use super::{Transaction, Which};
use crate::error::{Error, Result};
use crate::ids::{EdgeType, NodeId, NodeType, SnodeId};
use crate::journal::record::RecordWriter;
use crate::layout::catalog::SnodeEntry;
use crate::layout::node::{NODE_HEADER, write_header};
use crate::snodes::access::{Permission, Principal, edge_of};
use crate::snodes::tags::SnodeTags;
use weft_core::TagFlags;

impl Transaction<'_> {
    /// Makes an s-node with a root. It becomes visible with the commit. A caller with credentials needs permission to
    /// write in [`SnodeId::FIRST`], and becomes the owner.
    ///
    /// # Errors
    /// [`Error::BadOption`] for the mode; [`Error::Forbidden`], [`Error::NoSuchSnode`] (of the first s-node) without
    /// permission; [`Error::Full`] when all ids are taken; [`Error::CacheFull`], [`Error::Deadlock`].
    pub fn create_snode(&mut self, tags: &SnodeTags) -> Result<SnodeId> {
        tags.check()?;
        let mut tags = *tags;
        if self.access.is_some() {
            self.enter(SnodeId::FIRST, Permission::Write)?;
        }
        if let Some(access) = &self.access {
            tags.owner = access.credentials.user;
        }
        let store = self.store;
        if tags.flags.contains(TagFlags::SECURE_DELETE) {
            store.begin_erasing()?;
        }
        let snode = store.snodes.reserve(store.secret, store.journal.durable())?;
        store.pool.erasure.set(snode.0, tags.flags);
        // Nobody else can find it, so this does not wait.
        store.locks.take(self.thread, snode, store.lock_wait)?;
        self.held.push(snode);
        let root = match self.make_node(snode, NodeType::ROOT, &[&tags.encode()]) {
            Ok(root) => root,
            Err(error) => {
                self.take_back_snode(snode)?;
                return Err(error);
            }
        };
        store.partition(snode)?.write().root = root;
        self.set.make_snode(snode, root);
        for ((principal, permission), is_set) in tags.grants() {
            self.set_permission(root, principal, permission, is_set)?;
        }
        Ok(snode)
    }

    /// Deletes an s-node, which has no nodes but its root any more, and no edges but its permissions.
    ///
    /// # Errors
    /// [`Error::SnodeNotEmpty`], [`Error::FirstSnode`]; [`Error::NoSuchSnode`], [`Error::Forbidden`],
    /// [`Error::Deadlock`].
    pub fn delete_snode(&mut self, snode: SnodeId) -> Result<()> {
        if snode == SnodeId::FIRST {
            return Err(Error::FirstSnode);
        }
        self.enter(snode, Permission::Control)?;
        if !self.is_empty(snode)? {
            return Err(Error::SnodeNotEmpty(snode));
        }
        self.set.drop_snode(snode);
        self.forget_permissions();
        Ok(())
    }

    /// The root of an s-node, also of one that this transaction has made.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], [`Error::Deadlock`].
    pub fn root(&mut self, snode: SnodeId) -> Result<NodeId> {
        self.enter_any(snode, &Permission::ALL)?;
        self.root_of(snode)
    }

    /// The tags of an s-node.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], [`Error::Forbidden`], [`Error::Deadlock`], and what reading the medium gives.
    pub fn snode_tags(&mut self, snode: SnodeId) -> Result<SnodeTags> {
        self.enter_any(snode, &[Permission::Read, Permission::Control])?;
        self.tags_of(snode)
    }

    /// Gives an s-node other tags. The permissions that owner, group and mode stood for are taken back, and those that they
    /// stand for now are granted.
    ///
    /// # Errors
    /// [`Error::BadOption`] for the mode; as [`Transaction::snode_tags`].
    pub fn set_snode_tags(&mut self, snode: SnodeId, tags: &SnodeTags) -> Result<()> {
        tags.check()?;
        self.enter(snode, Permission::Control)?;
        let before = self.tags_of(snode)?;
        let root = self.root_of(snode)?;
        if tags.flags.contains(TagFlags::SECURE_DELETE) {
            self.store.begin_erasing()?;
            // At once, also for a transaction that is aborted: more is erased than has to be until the store is opened again.
            self.store.pool.erasure.set(snode.0, tags.flags);
        }
        for ((principal, permission), _) in before.grants() {
            self.set_permission(root, principal, permission, false)?;
        }
        for ((principal, permission), is_set) in tags.grants() {
            if is_set {
                self.set_permission(root, principal, permission, true)?;
            }
        }
        let data = tags.encode();
        let mut bytes = vec![0; NODE_HEADER];
        write_header(&mut bytes, NodeType::ROOT.0, data.len());
        bytes.extend_from_slice(&data);
        self.set.update(root, bytes.into_boxed_slice());
        Ok(())
    }

    /// Gives a permission on an s-node.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], [`Error::Forbidden`], [`Error::Deadlock`], and what reading the medium gives.
    pub fn grant(&mut self, snode: SnodeId, principal: Principal, permission: Permission) -> Result<()> {
        self.enter(snode, Permission::Control)?;
        let root = self.root_of(snode)?;
        self.set_permission(root, principal, permission, true)
    }

    /// Takes a permission on an s-node back; whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::grant`].
    pub fn revoke(&mut self, snode: SnodeId, principal: Principal, permission: Permission) -> Result<bool> {
        self.enter(snode, Permission::Control)?;
        let root = self.root_of(snode)?;
        let was_there = self.look_up(&edge_of(root, principal, permission))?.2 != NONE;
        self.set_permission(root, principal, permission, false)?;
        Ok(was_there)
    }

    pub(super) fn root_of(&self, snode: SnodeId) -> Result<NodeId> {
        let share = self.store.partition(snode)?;
        let root = share.read().root;
        Ok(root)
    }

    fn tags_of(&mut self, snode: SnodeId) -> Result<SnodeTags> {
        let root = self.root_of(snode)?;
        let mut tags = SnodeTags::decode(&self.data_of(root, NodeType::ROOT)?)?;
        tags.fill_mode(|principal, permission| {
            Ok(self.look_up(&edge_of(root, principal, permission))?.2 != NONE)
        })?;
        Ok(tags)
    }

    fn set_permission(
        &mut self,
        root: NodeId,
        principal: Principal,
        permission: Permission,
        is_set: bool,
    ) -> Result<()> {
        let edge = edge_of(root, principal, permission);
        let (touched, old, now) = self.look_up(&edge)?;
        let wanted = if is_set { root } else { NONE };
        if now != wanted {
            self.set.set_edge(&edge, touched, old, wanted);
            self.forget_permissions();
        }
        Ok(())
    }

    /// Whether an s-node, as this transaction leaves it, has only its root, and that only permissions.
    fn is_empty(&mut self, snode: SnodeId) -> Result<bool> {
        let root = self.root_of(snode)?;
        let store = self.store;
        let raw = self.raw_edges(root)?;
        let held = if self.which(root) == Which::Reserved {
            0
        } else {
            store.read(snode, |pages, contents| contents.count_of(pages, root))?
        };
        let ins = held.saturating_add_signed(self.set.touched(root).ins);
        if raw.iter().any(|edge| edge.etype != EdgeType::PERMISSION) || ins != raw.len() as u64 + 1 {
            return Ok(false);
        }
        // In the midst of counting, bodies may be taken off before they are added.
        let mut nodes = store.partition(snode)?.read().contents.nodes as i64;
        // `touched` has told the map of all nodes.
        let of_it = self.set.nodes().iter().filter(|(node, _)| node.snode() == snode);
        let touched: Vec<_> = of_it.map(|(node, touched)| (*node, *touched)).collect();
        for (node, touched) in touched {
            let (ins, outs) = if touched.created {
                nodes += 1;
                (0, 0)
            } else {
                store.read(snode, |pages, contents| {
                    Ok((contents.count_of(pages, node)? as i64, contents.out_edges(pages, node)?))
                })?
            };
            // A root is held by its s-node, and what it has of permissions counts above.
            if node != root && ins + touched.ins == 0 && outs + touched.outs == 0 {
                // Its body goes with it.
                nodes -= 1 + i64::from(self.body_of(node)?.is_some());
            }
        }
        Ok(nodes == 1)
    }

    /// Takes back an s-node that this transaction has made, after its nodes.
    pub(super) fn take_back_snode(&mut self, snode: SnodeId) -> Result<()> {
        let share = self.store.partition(snode)?;
        apply::clear_snode(self.store, &mut share.write())?;
        self.store.snodes.retire(snode, 0);
        self.let_go(snode);
        Ok(())
    }

    /// Writes down the s-nodes that are new, before anything of them.
    pub(super) fn record_new_snodes(&self, record: &mut RecordWriter) {
        self.set.new_snodes.iter().for_each(|(_, root)| record.snode(*root));
    }

    /// Gives up what is left of the s-nodes that are gone, after all else was applied.
    pub(super) fn apply_gone_snodes(&self, record: &mut RecordWriter) -> Result<()> {
        for snode in &self.set.gone_snodes {
            let share = self.store.partition(*snode)?;
            apply::drop_snode(self.store, &mut share.write())?;
            record.snode_gone(*snode);
        }
        Ok(())
    }

    /// Makes new s-nodes visible, and takes away those that are gone, with the commit `lsn`.
    pub(super) fn publish_snodes(&self, lsn: u64) {
        let (new, gone) = (&self.set.new_snodes, &self.set.gone_snodes);
        if new.is_empty() && gone.is_empty() {
            return;
        }
        let mut catalog = self.store.catalog.write();
        catalog.snodes.extend(new.iter().map(|(id, root)| SnodeEntry { id: *id, root: *root }));
        catalog.snodes.retain(|entry| !gone.contains(&entry.id));
        drop(catalog);
        new.iter().for_each(|(id, _)| self.store.snodes.publish(*id));
        gone.iter().for_each(|id| self.store.snodes.retire(*id, lsn));
    }
}
