//! S-nodes in a transaction: made, deleted, their tags and permissions.

use super::apply;
use super::write_set::{NONE, Touched};
use super::{NodeScope, Transaction};
use crate::edges::EdgeKey;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, HomeId, Info, NodeId, NodeType, Permission, SnodeId};
use crate::journal::record::RecordWriter;
use crate::layout::catalog::{Guests, HomeEntry};
use crate::snodes::access::{Principal, edge_of, grant_of};
use crate::snodes::registry::{HOMES_TRIED, HomeChoice};
use crate::snodes::tags::{Root, SnodeTags};
use std::time::Duration;
use weft_core::TagFlags;

impl Transaction<'_> {
    /// Makes an s-node with a root. It becomes visible with the commit. A caller with credentials needs permission to
    /// write in [`SnodeId::FIRST`], and becomes the owner.
    ///
    /// The first s-nodes of a store have pages and a lock of their own. Later ones share those of others, so that an s-node that holds
    /// little takes little: a hundred bytes when it is empty. A node there takes some fifty bytes more than elsewhere.
    ///
    /// # Errors
    /// [`Error::BadOption`] for the mode; [`Error::Forbidden`], [`Error::NoSuchSnode`] (of the first s-node) without
    /// permission; [`Error::Full`] when all ids are taken; [`Error::CacheFull`], [`Error::Deadlock`].
    pub fn create_snode(&mut self, tags: &SnodeTags) -> Result<SnodeId> {
        let tags = self.tags_to_make(tags)?;
        match self.shared_home(&tags)? {
            Some(home) => self.make_guest(home, tags),
            None => self.make_own(tags),
        }
    }

    /// As [`Transaction::create_snode`], of an s-node that is to hold much, or to be changed beside others: it has pages and a lock of its own.
    ///
    /// # Errors
    /// As [`Transaction::create_snode`]; [`Error::Full`] when there are 32,767 such.
    pub fn create_snode_apart(&mut self, tags: &SnodeTags) -> Result<SnodeId> {
        let tags = self.tags_to_make(tags)?;
        self.make_own(tags)
    }

    /// The tags of an s-node that the caller may make.
    fn tags_to_make(&mut self, tags: &SnodeTags) -> Result<SnodeTags> {
        tags.check()?;
        let mut tags = *tags;
        if self.access.is_some() {
            self.enter(SnodeId::FIRST, Permission::Write)?;
        }
        if let Some(access) = &self.access {
            tags.owner = access.credentials.uid;
        }
        if tags.flags.contains(TagFlags::SECURE_DELETE) {
            self.store.begin_erasing()?;
        }
        Ok(tags)
    }

    fn make_own(&mut self, tags: SnodeTags) -> Result<SnodeId> {
        self.make_home(false, Root { tags, number: 0, is_controlled: true }).map(SnodeId::from)
    }

    /// Makes a home with a root, and takes its lock.
    fn make_home(&mut self, is_shared: bool, root: Root) -> Result<HomeId> {
        let store = self.store;
        let home = store.snodes.reserve(is_shared, store.secret, store.journal.durable())?;
        store.set_erasure(home, root.tags.flags);
        store.pool.classes.set(home, root.tags.owner, root.tags.class);
        // Nobody else can find it, so this does not wait.
        store.locks.take(self.thread, home, store.options.lock_wait)?;
        self.held.push(home);
        let root = match self.make_node(home, NodeType::ROOT, &[&root.encode()]) {
            Ok(root) => root,
            Err(error) => {
                self.take_back_home(home)?;
                return Err(error);
            }
        };
        store.partition(home)?.write().root = root;
        self.set.make_home(home, root);
        Ok(home)
    }

    /// The shared home that a new s-node goes to, with its lock; `None` when it is to have one of its own.
    fn shared_home(&mut self, tags: &SnodeTags) -> Result<Option<HomeId>> {
        let (store, class) = (self.store, tags.class);
        let erases = tags.flags.contains(TagFlags::SECURE_DELETE);
        let is_of_class = |home: HomeId| store.pool.classes.is_of(home, class);
        let is_fit =
            |home: &&HomeId| home.is_shared() && is_of_class(**home) && store.snodes.erases(**home) == erases;
        if let Some(home) = self.held.iter().rfind(is_fit) {
            return Ok(Some(*home));
        }
        for tried in 0.. {
            match store.snodes.room(is_of_class, erases, tried) {
                HomeChoice::Own => break,
                HomeChoice::New => {
                    let flags = if erases { TagFlags::SECURE_DELETE } else { TagFlags::default() };
                    let tags = SnodeTags { flags, class, ..SnodeTags::default() };
                    return Ok(Some(self.make_home(true, Root { tags, number: 0, is_controlled: false })?));
                }
                // Others may hold it, and there are more.
                HomeChoice::Shared(home) if tried < HOMES_TRIED => {
                    if store.locks.take(self.thread, home, Duration::ZERO).is_ok() {
                        self.held.push(home);
                        return Ok(Some(home));
                    }
                }
                HomeChoice::Shared(home) => {
                    self.hold(home)?;
                    return Ok(Some(home));
                }
            }
        }
        Ok(None)
    }

    /// Makes an s-node in a shared home, whose lock is held.
    fn make_guest(&mut self, home: HomeId, tags: SnodeTags) -> Result<SnodeId> {
        let full = Error::Full { what: "numbers of s-nodes" };
        let number = self.store.snodes.next_number(home).ok_or(full)?;
        let data = Root { tags, number, is_controlled: true }.encode();
        let root = self.make_node(home, NodeType::ROOT, &[&data])?;
        let snode = SnodeId::guest(home, number);
        let edge = self.edge_to_guest(snode, home)?;
        self.set.set_edge(&edge, NONE, root);
        Ok(snode)
    }

    fn edge_to_guest(&self, snode: SnodeId, home: HomeId) -> Result<EdgeKey<'static>> {
        let source = self.store.partition(home)?.read().root;
        let key = u64::from(snode.number());
        Ok(EdgeKey { source, etype: EdgeType::GUEST, key, info: Info::Number(key) })
    }

    /// Notes to which s-node nodes belong that were just made, where it shares its home.
    pub(super) fn own(&mut self, snode: SnodeId, nodes: &[NodeId]) -> Result<()> {
        if snode.number() == 0 {
            return Ok(());
        }
        let root = self.root_of(snode)?;
        for node in nodes {
            self.set.set_edge(&edge_to_owner(*node), NONE, root);
        }
        Ok(())
    }

    /// The s-node that a node belongs to.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`], [`Error::Deadlock`].
    pub fn snode_of(&mut self, node: NodeId) -> Result<SnodeId> {
        let home = node.home();
        let absent = |_| Error::NoSuchNode(node);
        self.hold(home)?;
        self.place_held(node)?;
        if !home.is_shared() {
            return Ok(home.into());
        }
        let owner = self.look_up(&edge_to_owner(node))?.1;
        let root = self.root_data(if owner == NONE { node } else { owner }).map_err(absent)?;
        let snode = SnodeId::guest(home, root.number);
        self.root_of(snode).map_err(absent)?;
        Ok(snode)
    }

    /// Takes nodes that go with the commit, since they have lost their last edge or have none yet, from their s-nodes.
    pub(super) fn disown_garbage(&mut self) -> Result<()> {
        if !self.held.iter().any(|home| home.is_shared()) {
            return Ok(());
        }
        let nodes = self.set.nodes().keys().copied();
        let mut nodes: Vec<_> = nodes.filter(|node| node.home().is_shared()).collect();
        // Those of a home one after the other: they are looked for in the same pages.
        nodes.sort_unstable();
        for node in nodes {
            if !self.has_edges(node)? && self.look_up(&edge_to_owner(node))?.1 != NONE {
                self.lead(&edge_to_owner(node), NONE)?;
            }
        }
        Ok(())
    }

    /// The nodes of the s-node with this root, in a shared home, that have lost their last edge, or have none yet.
    fn garbage_of(&mut self, root: NodeId) -> Result<Vec<NodeId>> {
        let mut fresh = self.set.take_fresh();
        fresh.sort_unstable();
        for node in fresh {
            let owner = self.look_up(&edge_to_owner(node))?.1;
            self.set.owned.entry(owner).or_default().insert(node);
        }
        let mut garbage = Vec::new();
        for node in self.set.owned.get(&root).cloned().unwrap_or_default() {
            let is_owned = self.look_up(&edge_to_owner(node))?.1 == root;
            if is_owned && !self.has_edges(node)? {
                garbage.push(node);
            }
        }
        Ok(garbage)
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
        let home = self.enter(snode, Permission::Control)?;
        let root = self.root_of(snode)?;
        let mut raw = Vec::new();
        self.each_out::<Error>(root, &mut |edges| {
            raw.extend(edges);
            Ok(())
        })?;
        // Beside its s-node and its permissions, nodes that go with the commit may still lead to it.
        let others = self.in_edges(root)?.saturating_sub(1 + raw.len() as u64);
        let garbage = if home.is_shared() && others > 0 { self.garbage_of(root)? } else { Vec::new() };
        if raw.iter().any(|edge| edge.etype != EdgeType::PERMISSION)
            || others != garbage.len() as u64
            || !home.is_shared() && !self.is_alone(home, root)?
        {
            return Err(Error::SnodeNotEmpty(snode));
        }
        if home.is_shared() {
            // Its root goes with the last edge to it, as every node does.
            let permissions = raw.iter().filter_map(|edge| grant_of(edge.key));
            let permissions = permissions.map(|(principal, permission)| edge_of(root, principal, permission));
            let owned = garbage.into_iter().map(edge_to_owner);
            let guest = self.edge_to_guest(snode, home)?;
            for edge in permissions.chain(owned).chain([guest]) {
                self.lead(&edge, NONE)?;
            }
        } else {
            self.set.drop_home(home);
        }
        self.forget_permissions();
        Ok(())
    }

    /// Whether a node that is held has an edge that keeps it, as this transaction leaves it.
    pub(super) fn has_edges(&mut self, node: NodeId) -> Result<bool> {
        let Touched { created, ins, outs } = self.set.touched(node);
        if created {
            return Ok((ins, outs) != (0, 0));
        }
        self.store.read(node.home(), |pages, contents| {
            let ins = contents.count_of(pages, node)?.saturating_add_signed(ins);
            Ok(ins > 0 || contents.has_more_out_edges(pages, node, -outs)?)
        })
    }

    /// The in-edges of a node as this transaction leaves them.
    fn in_edges(&mut self, node: NodeId) -> Result<u64> {
        let held = match self.which(node) {
            NodeScope::Reserved => 0,
            NodeScope::Committed => {
                self.store.read(node.home(), |pages, contents| contents.count_of(pages, node))?
            }
        };
        Ok(held.saturating_add_signed(self.set.touched(node).ins))
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
        let root = self.root_of(snode)?;
        Ok(self.root_data(root)?.tags)
    }

    /// Gives an s-node other tags. What was [granted](Transaction::grant) stays.
    ///
    /// # Errors
    /// [`Error::BadOption`] for the mode; as [`Transaction::snode_tags`].
    pub fn set_snode_tags(&mut self, snode: SnodeId, tags: &SnodeTags) -> Result<()> {
        tags.check()?;
        let home = self.enter(snode, Permission::Control)?;
        let at = self.root_of(snode)?;
        let root = self.root_data(at)?;
        if tags.flags.contains(TagFlags::SECURE_DELETE) {
            self.store.begin_erasing()?;
            // At once, also for a transaction that is aborted: more is erased than has to be until the store is opened again.
            self.store.set_erasure(home, tags.flags);
        }
        if (tags.owner, tags.class) != (root.tags.owner, root.tags.class) && !home.is_shared() {
            // At once, too. It is only for the cache and the medium.
            self.store.pool.classes.set(home, tags.owner, tags.class);
            if tags.class != root.tags.class {
                self.store.pool.reclass();
            }
        }
        // A new owner has control.
        let is_controlled = root.is_controlled || tags.owner != root.tags.owner;
        self.set_root(at, &Root { tags: *tags, is_controlled, ..root });
        Ok(())
    }

    fn set_root(&mut self, at: NodeId, root: &Root) {
        self.set.update(at, root.node(), None);
        self.forget_permissions();
    }

    /// Gives a permission on an s-node, beside those of its mode.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], [`Error::Forbidden`], [`Error::Deadlock`], and what reading the medium gives.
    pub fn grant(&mut self, snode: SnodeId, principal: Principal, permission: Permission) -> Result<()> {
        self.enter(snode, Permission::Control)?;
        let root = self.root_of(snode)?;
        self.set_permission(root, principal, permission, true).map(drop)
    }

    /// Takes a permission on an s-node back, also one of its mode; whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::grant`].
    pub fn revoke(&mut self, snode: SnodeId, principal: Principal, permission: Permission) -> Result<bool> {
        self.enter(snode, Permission::Control)?;
        let at = self.root_of(snode)?;
        let mut root = self.root_data(at)?;
        let was_of_mode = root.take(principal, permission);
        if was_of_mode {
            self.set_root(at, &root);
        }
        Ok(self.set_permission(at, principal, permission, false)? | was_of_mode)
    }

    /// The root of an s-node whose home is held.
    pub(super) fn root_of(&mut self, snode: SnodeId) -> Result<NodeId> {
        let absent = || Error::NoSuchSnode(snode);
        let home = snode.home().ok_or_else(absent)?;
        if !home.is_shared() {
            return Ok(self.store.partition(home)?.read().root);
        }
        let edge = self.edge_to_guest(snode, home)?;
        match self.look_up(&edge)?.1 {
            NONE => Err(absent()),
            root => Ok(root),
        }
    }

    /// What the root of an s-node whose home is held says.
    pub(super) fn root_data(&mut self, root: NodeId) -> Result<Root> {
        Root::decode(&self.data_of(root, NodeType::ROOT)?)
    }

    /// Whether the permission was other than it is set to.
    fn set_permission(
        &mut self,
        root: NodeId,
        principal: Principal,
        permission: Permission,
        is_set: bool,
    ) -> Result<bool> {
        let edge = edge_of(root, principal, permission);
        let (old, now) = self.look_up(&edge)?;
        let wanted = if is_set { root } else { NONE };
        if now != wanted {
            self.set.set_edge(&edge, old, wanted);
            self.forget_permissions();
        }
        Ok(now != wanted)
    }

    /// Whether a home of an s-node's own, as this transaction leaves it, has only its root.
    fn is_alone(&mut self, snode: HomeId, root: NodeId) -> Result<bool> {
        // In the midst of counting, bodies may be taken off before they are added.
        let mut nodes = self.store.partition(snode)?.read().contents.nodes as i64;
        let of_it = self.set.nodes().iter().filter(|(node, _)| node.home() == snode);
        let touched: Vec<_> = of_it.map(|(node, touched)| (*node, *touched)).collect();
        for (node, touched) in touched {
            nodes += i64::from(touched.created);
            // A root is held by its s-node, and what it has of permissions counts above.
            if node != root && !self.has_edges(node)? {
                // Its body goes with it.
                nodes -= 1 + i64::from(self.body_of(node)?.is_some());
            }
        }
        Ok(nodes == 1)
    }

    /// Takes back a home that this transaction has made, after its nodes.
    pub(super) fn take_back_home(&mut self, home: HomeId) -> Result<()> {
        let share = self.store.partition(home)?;
        apply::clear_snode(self.store, &mut share.write())?;
        self.store.snodes.retire(home, 0);
        self.let_go(home);
        Ok(())
    }

    /// Gives up what is left of the homes that are gone, after all else was applied.
    pub(super) fn apply_gone_homes(&self, record: &mut RecordWriter) -> Result<()> {
        for home in &self.set.gone_homes {
            let share = self.store.partition(*home)?;
            apply::drop_snode(self.store, &mut share.write())?;
            record.snode_gone(*home);
        }
        Ok(())
    }

    /// Makes new homes and s-nodes visible, and takes away those that are gone, with the commit `lsn`.
    pub(super) fn publish_homes(&self, lsn: u64) {
        if self.held.iter().any(|home| home.is_shared()) {
            let moved = self.set.changes.iter().filter(|change| change.etype == EdgeType::GUEST);
            for change in moved.filter(|change| change.old != change.new) {
                self.store.snodes.note_guest(change.source.home(), change.key, change.new != NONE);
            }
        }
        let (new, gone) = (&self.set.new_homes, &self.set.gone_homes);
        if new.is_empty() && gone.is_empty() {
            return;
        }
        let mut catalog = self.store.catalog.write();
        let entry =
            |(id, root): &(HomeId, NodeId)| HomeEntry { id: *id, root: *root, guests: Guests::default() };
        catalog.homes.extend(new.iter().map(entry));
        catalog.homes.retain(|entry| !gone.contains(&entry.id));
        drop(catalog);
        new.iter().for_each(|(id, _)| self.store.snodes.publish(*id));
        gone.iter().for_each(|id| self.store.snodes.retire(*id, lsn));
    }
}

fn edge_to_owner(node: NodeId) -> EdgeKey<'static> {
    EdgeKey { source: node, etype: EdgeType::OWNER, key: 0, info: Info::Number(0) }
}
