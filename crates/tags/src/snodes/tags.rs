//! The tags of an s-node, which all its nodes share: they are the data of its root.
//!
//! The mode is not kept: it says which of the owner, the group and everyone have the edges of [`super::access`].

use super::access::{Permission, Principal};
use crate::error::{Error, Result};
use weft_core::{DataClass, TagFlags};

/// Bytes of the data of a root. What is not used yet is zero.
pub(crate) const ROOT_BYTES: usize = 32;
/// Bits of a mode that have a meaning.
const MODE_BITS: u16 = 0o666;

/// What an s-node says of all its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnodeTags {
    /// The user that controls it.
    pub owner: u32,
    /// Its group.
    pub group: u32,
    /// Who may read and write: the bits 0o400 and 0o200 for the owner, 0o040 and 0o020 for the group, 0o004 and 0o002
    /// for everyone.
    pub mode: u16,
    /// What kind of data its nodes are.
    pub class: DataClass,
    /// Properties that are on or off, as secure deletion.
    pub flags: TagFlags,
}

impl SnodeTags {
    /// The tags without the mode, as they are on the medium.
    pub(crate) fn encode(&self) -> [u8; ROOT_BYTES] {
        let mut raw = [0; ROOT_BYTES];
        raw[..4].copy_from_slice(&self.owner.to_le_bytes());
        raw[4..8].copy_from_slice(&self.group.to_le_bytes());
        (raw[8], raw[9]) = (self.class as u8, self.flags.bits());
        raw
    }

    /// Reads what [`SnodeTags::encode`] wrote.
    pub(crate) fn decode(raw: &[u8]) -> Result<SnodeTags> {
        let strange = || Error::damaged("the tags of an s-node cannot be read");
        let raw: &[u8; ROOT_BYTES] = raw.try_into().map_err(|_| strange())?;
        let class = DataClass::from_u8(raw[8]).ok_or_else(strange)?;
        let flags = TagFlags::from_bits(raw[9]).ok_or_else(strange)?;
        let owner = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
        let group = u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]);
        Ok(SnodeTags { owner, group, mode: 0, class, flags })
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.mode & !MODE_BITS != 0 {
            let range = "made of the bits 0666: reading and writing; control is the owner's";
            return Err(Error::BadOption {
                what: "the mode of an s-node",
                value: u64::from(self.mode),
                range,
            });
        }
        Ok(())
    }

    /// What the bits of a mode stand for. The last, the owner's control, has no bit.
    fn grants_of_bits(&self) -> [(u16, (Principal, Permission)); 7] {
        let (owner, group) = (Principal::User(self.owner), Principal::Group(self.group));
        [
            (0o400, (owner, Permission::Read)),
            (0o200, (owner, Permission::Write)),
            (0o040, (group, Permission::Read)),
            (0o020, (group, Permission::Write)),
            (0o004, (Principal::Everyone, Permission::Read)),
            (0o002, (Principal::Everyone, Permission::Write)),
            (0, (owner, Permission::Control)),
        ]
    }

    /// The permissions that owner, group and mode may stand for, and whether they do.
    pub(crate) fn grants(&self) -> impl Iterator<Item = ((Principal, Permission), bool)> {
        let mode = self.mode;
        self.grants_of_bits().into_iter().map(move |(bit, grant)| (grant, bit == 0 || mode & bit != 0))
    }

    /// Sets the mode's bits whose permissions are there.
    pub(crate) fn fill_mode(
        &mut self,
        mut is_there: impl FnMut(Principal, Permission) -> Result<bool>,
    ) -> Result<()> {
        self.mode = 0;
        for (bit, (principal, permission)) in self.grants_of_bits() {
            if bit != 0 && is_there(principal, permission)? {
                self.mode |= bit;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_and_unknown_ones_are_damage() {
        let tags = SnodeTags {
            owner: 7,
            group: u32::MAX,
            mode: 0,
            class: DataClass::Log,
            flags: TagFlags::SECURE_DELETE,
        };
        let mut raw = tags.encode();
        assert_eq!(SnodeTags::decode(&raw).unwrap(), tags);
        raw[8] = 99;
        assert!(SnodeTags::decode(&raw).is_err());
        assert!(SnodeTags::decode(&raw[1..]).is_err());
    }

    #[test]
    fn a_mode_comes_back_from_its_permissions() {
        for mode in (0..=0o777).filter(|mode| mode & !MODE_BITS == 0) {
            let tags = SnodeTags { owner: 1, group: 1, mode, ..SnodeTags::default() };
            let there: Vec<_> = tags.grants().filter(|(_, on)| *on).map(|(grant, _)| grant).collect();
            let mut back = SnodeTags { mode: 0o777, ..tags };
            back.fill_mode(|principal, permission| Ok(there.contains(&(principal, permission)))).unwrap();
            assert_eq!(back.mode, mode);
        }
        assert!(SnodeTags { mode: 0o644, ..SnodeTags::default() }.check().is_ok());
        assert!(SnodeTags { mode: 0o755, ..SnodeTags::default() }.check().is_err());
    }
}
