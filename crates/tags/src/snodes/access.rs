//! Who may do what in an s-node: a permission is an edge from the root of the s-node to itself whose info is the principal
//! and the permission, so it is looked up at one place in the s-node's edge table and nowhere else (ADAPT, section 3.5).

use crate::edges::EdgeKey;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, Info, NodeId, Permission, SnodeId};
use weft_core::Credentials;

/// Whom a permission is given to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Principal {
    /// The user with this id.
    User(u32),
    /// The members of the group with this id.
    Group(u32),
    /// Everyone.
    Everyone,
}

impl Principal {
    /// As records and messages have it: a kind, and the number of a user or group.
    pub(crate) fn to_raw(self) -> (u8, u32) {
        match self {
            Principal::User(id) => (1, id),
            Principal::Group(id) => (2, id),
            Principal::Everyone => (3, 0),
        }
    }

    pub(crate) fn from_raw(kind: u8, id: u32) -> Option<Principal> {
        match kind {
            1 => Some(Principal::User(id)),
            2 => Some(Principal::Group(id)),
            3 => Some(Principal::Everyone),
            _ => None,
        }
    }
}

/// Those whose permissions a caller has. Of an s-node's mode its class decides; what is granted to the user, to its groups and
/// to everyone adds to that.
pub(crate) fn principals(caller: &Credentials) -> impl Iterator<Item = Principal> + '_ {
    let groups = [caller.gid].into_iter().chain(caller.groups.iter().copied()).map(Principal::Group);
    [Principal::User(caller.uid), Principal::Everyone].into_iter().chain(groups)
}

/// Whether who needs one of these permissions in an s-node may go on; `has` says which there are.
///
/// # Errors
/// [`Error::NoSuchSnode`] for who has none there: nobody learns of an s-node that way. [`Error::Forbidden`] for who has others.
pub(crate) fn decide(
    snode: SnodeId,
    needed: &[Permission],
    mut has: impl FnMut(Permission) -> Result<bool>,
) -> Result<()> {
    let mut is_known = false;
    for permission in Permission::ALL {
        if has(permission)? {
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

const KIND_SHIFT: u32 = 56;
const PERMISSION_SHIFT: u32 = 48;

/// The number that stands for a permission of a principal.
fn number_of(principal: Principal, permission: Permission) -> u64 {
    let (kind, id) = principal.to_raw();
    u64::from(kind) << KIND_SHIFT | (permission as u64) << PERMISSION_SHIFT | u64::from(id)
}

/// What a number stands for.
pub(crate) fn grant_of(number: u64) -> Option<(Principal, Permission)> {
    let principal = Principal::from_raw((number >> KIND_SHIFT) as u8, number as u32)?;
    let permission = Permission::ALL.into_iter().find(|p| number_of(principal, *p) == number)?;
    Some((principal, permission))
}

/// The edge that says that a principal has a permission.
pub(crate) fn edge_of(root: NodeId, principal: Principal, permission: Permission) -> EdgeKey<'static> {
    let number = number_of(principal, permission);
    EdgeKey { source: root, etype: EdgeType::PERMISSION, key: number, info: Info::Number(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_comes_back_from_its_number_and_no_two_share_one() {
        let principals =
            [Principal::User(0), Principal::User(u32::MAX), Principal::Group(0), Principal::Everyone];
        let mut seen = std::collections::HashSet::new();
        for principal in principals {
            for permission in Permission::ALL {
                let number = number_of(principal, permission);
                assert!(seen.insert(number));
                assert_eq!(grant_of(number), Some((principal, permission)));
                assert_eq!(grant_of(number | 9 << 32), None);
            }
        }
        assert_eq!(grant_of(0), None);
    }
}
