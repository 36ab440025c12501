//! What the caller of a transaction may do. Transactions of the store's own process, which are those without
//! credentials, pay a comparison for it.
//!
//! The rule for edges, which changes two s-nodes at once, is the table of `docs/tags.md`: writing takes permission in the
//! source's s-node, and, where it is another, in the destination's.

use super::Transaction;
use super::write_set::NONE;
use crate::committed::node_of_snode;
use crate::error::{Error, Result};
use crate::ids::{HomeId, NodeId, Permission, SnodeId};
use crate::snodes::access::{decide, edge_of, principals};
use rustc_hash::FxHashMap;
use weft_core::Credentials;

/// A caller, and what is known of its permissions.
pub(super) struct Access {
    pub(super) credentials: Credentials,
    decided: FxHashMap<(SnodeId, Permission), bool>,
}

impl Access {
    pub(super) fn new(credentials: &Credentials) -> Access {
        Access { credentials: credentials.clone(), decided: FxHashMap::default() }
    }
}

impl Transaction<'_> {
    /// Takes the lock of the home, which it returns, of an s-node in which the caller has a permission.
    #[inline]
    pub(crate) fn enter(&mut self, snode: SnodeId, needed: Permission) -> Result<HomeId> {
        self.enter_any(snode, &[needed])
    }

    /// Takes the lock of the home of an s-node in which the caller has one of these permissions.
    #[inline]
    pub(crate) fn enter_any(&mut self, snode: SnodeId, needed: &[Permission]) -> Result<HomeId> {
        let home = snode.home().ok_or(Error::NoSuchSnode(snode))?;
        let is_new = self.hold(home)?;
        if self.access.is_none() && !home.is_shared() {
            return Ok(home);
        }
        let checked = self.check(snode, needed);
        self.keep_if(checked, is_new, home).map(|()| home)
    }

    /// As [`Transaction::enter_any`], for the s-node that a node belongs to.
    #[inline]
    pub(crate) fn enter_node(&mut self, node: NodeId, needed: &[Permission]) -> Result<()> {
        let home = node.home();
        let entered = if self.access.is_none() {
            self.hold(home).map(drop)
        } else if !home.is_shared() {
            self.enter_any(home.into(), needed).map(drop)
        } else {
            self.hold(home).and_then(|is_new| {
                let checked = self.snode_of(node).and_then(|snode| self.check(snode, needed));
                self.keep_if(checked, is_new, home)
            })
        };
        entered.map_err(|error| node_of_snode(error, node))
    }

    /// Who may do nothing in a home that is held anew keeps nobody waiting.
    fn keep_if(&mut self, checked: Result<()>, is_new: bool, home: HomeId) -> Result<()> {
        checked.inspect_err(|_| {
            if is_new {
                self.let_go(home);
            }
        })
    }

    fn check(&mut self, snode: SnodeId, needed: &[Permission]) -> Result<()> {
        if self.access.is_none() {
            return self.root_of(snode).map(drop);
        }
        decide(snode, needed, |permission| self.may(snode, permission))
    }

    /// Whether the caller has a permission in an s-node whose lock is held.
    fn may(&mut self, snode: SnodeId, permission: Permission) -> Result<bool> {
        let Some(access) = &self.access else { return Ok(true) };
        if let Some(known) = access.decided.get(&(snode, permission)) {
            return Ok(*known);
        }
        let caller = access.credentials.clone();
        let root = self.root_of(snode)?;
        let mut found = self.root_data(root)?.gives(&caller, permission);
        for principal in principals(&caller) {
            let (_, now) = self.look_up(&edge_of(root, principal, permission))?;
            found |= now != NONE;
        }
        if let Some(access) = &mut self.access {
            access.decided.insert((snode, permission), found);
        }
        Ok(found)
    }

    /// Forgets what is known of permissions: some may have changed.
    pub(super) fn forget_permissions(&mut self) {
        if let Some(access) = &mut self.access {
            access.decided.clear();
        }
    }

    /// Gives back the lock of a home of which nothing was read or changed for the caller.
    pub(super) fn let_go(&mut self, home: HomeId) {
        self.store.pool.numbers.settle(|snode| *snode == home);
        self.store.locks.release(&[home]);
        self.held.retain(|held| *held != home);
        self.forget_permissions();
    }
}
