//! What the caller of a transaction may do. Transactions of the store's own process, which are those without
//! credentials, pay a comparison for it.
//!
//! The rule for edges, which changes two s-nodes at once, is the table of `docs/tags.md`: writing takes permission in the
//! source's s-node, and, where it is another, in the destination's.

use super::Transaction;
use super::write_set::NONE;
use crate::error::{Error, Result};
use crate::ids::SnodeId;
use crate::snodes::access::{Credentials, Permission, edge_of};
use rustc_hash::FxHashMap;

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
    /// Takes the lock of an s-node in which the caller has a permission.
    #[inline]
    pub(crate) fn enter(&mut self, snode: SnodeId, needed: Permission) -> Result<()> {
        self.enter_any(snode, &[needed])
    }

    /// Takes the lock of an s-node in which the caller has one of these permissions.
    #[inline]
    pub(crate) fn enter_any(&mut self, snode: SnodeId, needed: &[Permission]) -> Result<()> {
        let is_new = self.hold(snode)?;
        if self.access.is_none() {
            return Ok(());
        }
        let checked = self.check(snode, needed);
        if checked.is_err() && is_new {
            // Who may do nothing here keeps nobody waiting.
            self.let_go(snode);
        }
        checked
    }

    fn check(&mut self, snode: SnodeId, needed: &[Permission]) -> Result<()> {
        let mut is_known = false;
        for permission in Permission::ALL {
            if self.may(snode, permission)? {
                if needed.contains(&permission) {
                    return Ok(());
                }
                is_known = true;
            }
        }
        match needed.first() {
            Some(needed) if is_known => Err(Error::Forbidden { snode, needed: *needed }),
            _ => Err(Error::NoSuchSnode(snode)),
        }
    }

    /// Whether the caller has a permission in an s-node whose lock is held.
    fn may(&mut self, snode: SnodeId, permission: Permission) -> Result<bool> {
        let Some(access) = &self.access else { return Ok(true) };
        if let Some(known) = access.decided.get(&(snode, permission)) {
            return Ok(*known);
        }
        let principals: Vec<_> = access.credentials.principals().collect();
        let root = self.root_of(snode)?;
        let mut found = false;
        for principal in principals {
            let (_, _, now) = self.look_up(&edge_of(root, principal, permission))?;
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

    /// Gives back the lock of an s-node of which nothing was read or changed for the caller.
    pub(super) fn let_go(&mut self, snode: SnodeId) {
        self.store.give_back_numbers(&[snode]);
        self.store.locks.release(&[snode]);
        self.held.retain(|held| *held != snode);
        self.forget_permissions();
    }
}
