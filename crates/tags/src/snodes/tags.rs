//! The tags of an s-node, which all its nodes share: they are the data of its root.

use super::access::Principal;
use crate::error::{Error, Result};
use crate::ids::{NodeType, Permission};
use crate::layout::node::{NODE_HEADER, write_header};
use weft_core::codec::put;
use weft_core::{Credentials, DataClass, TagFlags};

/// Bytes of the data of a root. What is not used yet is zero.
pub(crate) const ROOT_BYTES: usize = 32;
/// Bits of a mode.
const MODE_BITS: u16 = 0o7777;
/// Beside the mode: the owner has given up its control.
const NO_CONTROL: u16 = 1 << 12;

/// What an s-node says of all its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnodeTags {
    /// The user that controls it.
    pub owner: u32,
    /// Its group.
    pub group: u32,
    /// Who may read and write, as of a file: of the owner the bits 0o700, else of a member of the group 0o070, else 0o007. Bits 0o4 and 0o2
    /// count; the others are kept for who makes files of s-nodes.
    pub mode: u16,
    /// What kind of data its nodes are: the class of its pages in the cache ([`EvictionPolicy`](crate::EvictionPolicy)). An s-node that shares
    /// pages with others keeps the class there that it was made with.
    pub class: DataClass,
    /// Properties that are on or off, as secure deletion.
    pub flags: TagFlags,
}

impl SnodeTags {
    pub(crate) fn check(&self) -> Result<()> {
        if self.mode & !MODE_BITS != 0 {
            let (what, value) = ("the mode of an s-node", u64::from(self.mode));
            return Err(Error::BadOption { what, value, range: "at most 07777, as of files" });
        }
        Ok(())
    }
}

/// What the root of an s-node says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub tags: SnodeTags,
    /// The s-node's number in a home that is shared, else 0.
    pub number: u32,
    /// The owner has control.
    pub is_controlled: bool,
}

impl Root {
    /// The data of a root.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let SnodeTags { owner, group, mode, class, flags } = &self.tags;
        let mode = mode | if self.is_controlled { 0 } else { NO_CONTROL };
        let mut raw = Vec::with_capacity(ROOT_BYTES);
        put(&mut raw, &[owner, group, &(*class as u8), &flags.bits(), &mode, &self.number]);
        raw.resize(ROOT_BYTES, 0);
        raw
    }

    /// The root as a node, with its header.
    pub(crate) fn node(&self) -> Box<[u8]> {
        let data = self.encode();
        let mut bytes = vec![0; NODE_HEADER];
        write_header(&mut bytes, NodeType::ROOT.0, data.len());
        bytes.extend_from_slice(&data);
        bytes.into()
    }

    /// Reads what [`Root::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn decode(raw: &[u8]) -> Result<Root> {
        let strange = || Error::damaged("the tags of an s-node cannot be read");
        let raw: &[u8; ROOT_BYTES] = raw.try_into().map_err(|_| strange())?;
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let class = DataClass::from_u8(raw[8]).ok_or_else(strange)?;
        let flags = TagFlags::from_bits(raw[9]).ok_or_else(strange)?;
        let mode = u16::from_le_bytes([raw[10], raw[11]]);
        if mode & !(MODE_BITS | NO_CONTROL) != 0 {
            return Err(strange());
        }
        let tags = SnodeTags { owner: word(0), group: word(4), mode: mode & MODE_BITS, class, flags };
        Ok(Root { tags, number: word(12), is_controlled: mode & NO_CONTROL == 0 })
    }

    /// Whether owner, group and mode give a caller a permission. As of files, the first class that the caller is in decides.
    pub(crate) fn gives(&self, caller: &Credentials, permission: Permission) -> bool {
        let is_owner = caller.uid == self.tags.owner;
        let shift = match (is_owner, caller.in_group(self.tags.group)) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        match permission {
            Permission::Read => self.tags.mode >> shift & 0o4 != 0,
            Permission::Write => self.tags.mode >> shift & 0o2 != 0,
            Permission::Control => is_owner && self.is_controlled,
        }
    }

    /// The bits of the mode that stand for permissions, and for which.
    fn bits(&self) -> [(u16, (Principal, Permission)); 6] {
        let (owner, group) = (Principal::User(self.tags.owner), Principal::Group(self.tags.group));
        [
            (0o400, (owner, Permission::Read)),
            (0o200, (owner, Permission::Write)),
            (0o040, (group, Permission::Read)),
            (0o020, (group, Permission::Write)),
            (0o004, (Principal::Everyone, Permission::Read)),
            (0o002, (Principal::Everyone, Permission::Write)),
        ]
    }

    /// The permissions that owner, group and mode stand for.
    pub(crate) fn grants(&self) -> impl Iterator<Item = (Principal, Permission)> {
        let (mode, control) = (self.tags.mode, (Principal::User(self.tags.owner), Permission::Control));
        let set = self.bits().into_iter().filter(move |(bit, _)| mode & bit != 0);
        set.map(|(_, grant)| grant).chain(self.is_controlled.then_some(control))
    }

    /// Takes a permission back that owner, group and mode stand for; whether it was there.
    pub(crate) fn take(&mut self, principal: Principal, permission: Permission) -> bool {
        let before = *self;
        for (bit, _) in self.bits().into_iter().filter(|(_, grant)| *grant == (principal, permission)) {
            self.tags.mode &= !bit;
        }
        if (principal, permission) == (Principal::User(self.tags.owner), Permission::Control) {
            self.is_controlled = false;
        }
        before != *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_comes_back_and_unknown_tags_are_damage() {
        for (mode, is_controlled) in [(0o7777, true), (0, false), (0o1640, true)] {
            let flags = TagFlags::SECURE_DELETE;
            let tags = SnodeTags { owner: 7, group: u32::MAX, mode, class: DataClass::Log, flags };
            let root = Root { tags, number: 9, is_controlled };
            let mut raw = root.encode();
            assert_eq!(Root::decode(&raw).unwrap(), root);
            assert!(Root::decode(&raw[1..]).is_err());
            for (at, byte) in [(8, 99), (11, 0x80)] {
                let before = std::mem::replace(&mut raw[at], byte);
                assert!(Root::decode(&raw).is_err(), "byte {at}");
                raw[at] = before;
            }
        }
        assert!(SnodeTags { mode: 0o7777, ..SnodeTags::default() }.check().is_ok());
        assert!(SnodeTags { mode: 0o10000, ..SnodeTags::default() }.check().is_err());
    }

    /// What POSIX says of files: the owner's bits, else the group's, else those of others, and no other class's beside.
    #[test]
    fn the_class_of_the_caller_decides_for_every_mode_and_caller() {
        for mode in 0..=0o7777 {
            let tags = SnodeTags { owner: 1, group: 100, mode, ..SnodeTags::default() };
            let root = Root { tags, number: 0, is_controlled: true };
            for (user, groups, class) in
                [(1, &[][..], 6), (1, &[100], 6), (2, &[5, 100], 3), (2, &[5], 0), (2, &[], 0)]
            {
                let caller = Credentials::user(user, groups);
                let gives = |permission| root.gives(&caller, permission);
                assert_eq!(gives(Permission::Read), mode >> class & 4 == 4, "{mode:o} {user} {groups:?}");
                assert_eq!(gives(Permission::Write), mode >> class & 2 == 2, "{mode:o} {user} {groups:?}");
                assert_eq!(gives(Permission::Control), user == 1);
            }
        }
    }

    #[test]
    fn what_a_mode_stands_for_can_be_taken_back_once() {
        for mode in 0..=0o777 {
            let tags = SnodeTags { owner: 1, group: 1, mode, ..SnodeTags::default() };
            let mut root = Root { tags, number: 0, is_controlled: true };
            for (principal, permission) in root.grants().collect::<Vec<_>>() {
                assert!(root.take(principal, permission) && !root.take(principal, permission));
            }
            assert_eq!((root.grants().count(), root.tags.mode & 0o666), (0, 0));
        }
    }
}
