//! Access control lists, as POSIX.1e (the withdrawn draft) and Linux have them: permissions of further users and groups.
//!
//! An inode's access list is in the extended attribute [`ACCESS`], and a directory's default list, which what is made in it inherits,
//! in [`DEFAULT`]. The value is Linux's: a version, and entries of tag, permissions and id, all little-endian.
//!
//! Mode bits and access list share three entries: the owner's, the mask (the mode's group bits) and that of others. The mode has them;
//! what the stored list says of them does not count ([`Acl::with_perm`]). So `chmod` changes nothing but the mode, and a list that mode bits can
//! express alone is none: it has no mask.

pub use crate::types::{ACCESS_XATTR as ACCESS, DEFAULT_XATTR as DEFAULT};

use crate::subject::{EXECUTE, READ, Subject, WRITE};
use crate::{Attr, FileSystem, FsError, FsResult};
use weft_core::refuse;

/// Longest value of either, in bytes: what the kernel takes of a mount.
pub const VALUE_MAX: usize = 4096;

/// Version of the value.
const VERSION: u32 = 2;
/// Bytes of the version, and of an entry.
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id in entries that name nobody; and no user's or group's.
const NOBODY: u32 = u32::MAX;

/// Whose permissions an entry has. The order is that of entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tag {
    /// The owner's.
    Owner,
    /// A further user's.
    User(u32),
    /// The owning group's.
    OwningGroup,
    /// A further group's.
    Group(u32),
    /// The most that users and groups get, but for the owner.
    Mask,
    /// Everybody else's.
    Other,
}

/// An entry: of [`READ`], [`WRITE`] and [`EXECUTE`], what it grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// To whom.
    pub tag: Tag,
    /// What.
    pub perm: u32,
}

/// A list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl(Vec<Entry>);

impl Tag {
    fn from_wire(tag: u16, id: u32) -> Option<Tag> {
        Some(match tag {
            0x01 => Tag::Owner,
            0x02 => Tag::User(id),
            0x04 => Tag::OwningGroup,
            0x08 => Tag::Group(id),
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }

    fn to_wire(self) -> (u16, u32) {
        match self {
            Tag::Owner => (0x01, NOBODY),
            Tag::User(id) => (0x02, id),
            Tag::OwningGroup => (0x04, NOBODY),
            Tag::Group(id) => (0x08, id),
            Tag::Mask => (0x10, NOBODY),
            Tag::Other => (0x20, NOBODY),
        }
    }
}

impl Acl {
    /// The list in an attribute's value, which need not be [valid](Acl::check); `None` when it has no entries, which stands for no list.
    ///
    /// # Errors
    /// `Unsupported` for another version, `Invalid` for what is no list.
    pub fn parse(value: &[u8]) -> FsResult<Option<Acl>> {
        let invalid = FsError::Invalid("not an access control list");
        let Some((head, entries)) = value.split_first_chunk::<HEAD_BYTES>() else {
            return if value.is_empty() { Ok(None) } else { Err(invalid) };
        };
        refuse(
            u32::from_le_bytes(*head) != VERSION,
            FsError::Unsupported("a version of access control lists"),
        )?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        refuse(!rest.is_empty(), invalid.clone())?;
        let entry = |bytes: &[u8; ENTRY_BYTES]| {
            let [tag0, tag1, perm0, perm1, id @ ..] = *bytes;
            let tag = Tag::from_wire(u16::from_le_bytes([tag0, tag1]), u32::from_le_bytes(id))?;
            let names_nobody = matches!(tag, Tag::User(NOBODY) | Tag::Group(NOBODY));
            if names_nobody {
                return None;
            }
            Some(Entry { tag, perm: u16::from_le_bytes([perm0, perm1]).into() })
        };
        let entries: Vec<Entry> = entries.iter().map(entry).collect::<Option<_>>().ok_or(invalid)?;
        Ok((!entries.is_empty()).then_some(Acl(entries)))
    }

    /// The value of the attribute.
    pub fn to_value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for Entry { tag, perm } in &self.0 {
            let (tag, id) = tag.to_wire();
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&(*perm as u16).to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// Fails unless it is a list that an inode can have: one entry each for owner, owning group and others, at most one mask, which
    /// further users and groups need, all in their order.
    pub fn check(&self) -> FsResult<()> {
        let invalid = || FsError::Invalid("not a valid access control list");
        let rank = |tag: Tag| tag.to_wire().0;
        let count = |wanted: u16| self.0.iter().filter(|entry| rank(entry.tag) == wanted).count();
        let is_ordered = self.0.is_sorted_by_key(|entry| rank(entry.tag));
        let is_right = |entry: &Entry| entry.perm & !(READ | WRITE | EXECUTE) == 0;
        let [owner, users, group, groups, mask, other] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20].map(count);
        let is_whole = (owner, group, other) == (1, 1, 1) && mask <= 1 && (mask == 1 || users + groups == 0);
        refuse(!(is_whole && is_ordered && self.0.iter().all(is_right)), invalid())?;
        refuse(HEAD_BYTES + self.0.len() * ENTRY_BYTES > VALUE_MAX, FsError::AttributeTooLarge)
    }

    fn entry(&self, tag: Tag) -> Option<u32> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// The mode bits (of 0777) that say the same, or as much of it as they can; and whether that is all.
    pub fn mode_bits(&self) -> (u32, bool) {
        let class = |tag| self.entry(tag).unwrap_or(0);
        let group = self.entry(Tag::Mask).unwrap_or_else(|| class(Tag::OwningGroup));
        let is_all =
            !self.0.iter().any(|entry| matches!(entry.tag, Tag::User(_) | Tag::Group(_) | Tag::Mask));
        (class(Tag::Owner) << 6 | group << 3 | class(Tag::Other), is_all)
    }

    /// The list of an inode with these mode bits.
    pub fn with_perm(mut self, perm: u32) -> Acl {
        let group = if self.entry(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup };
        for entry in &mut self.0 {
            match entry.tag {
                Tag::Owner => entry.perm = perm >> 6 & 7,
                tag if tag == group => entry.perm = perm >> 3 & 7,
                Tag::Other => entry.perm = perm & 7,
                _ => {}
            }
        }
        self
    }

    /// Whether somebody who is not the owner may do all of `wanted` with an inode of group `gid`. As in Linux, of several groups one
    /// has to grant all of it.
    pub fn grants(&self, who: &impl Subject, gid: u32, wanted: u32) -> bool {
        let mask = self.entry(Tag::Mask).unwrap_or(READ | WRITE | EXECUTE);
        let has = |perm: u32| perm & wanted == wanted;
        let mut is_in_group = false;
        for Entry { tag, perm } in &self.0 {
            let group = match *tag {
                Tag::User(id) if id == who.uid() => return has(perm & mask),
                Tag::OwningGroup => gid,
                Tag::Group(id) => id,
                Tag::Other => return !is_in_group && has(*perm),
                _ => continue,
            };
            if who.in_group(group) {
                is_in_group = true;
                if has(*perm) {
                    return has(perm & mask);
                }
            }
        }
        false
    }

    /// What a new inode gets from the default list of its directory when `perm` is asked for: its permission bits, and its list unless the
    /// bits are all of it.
    pub fn inherit(&self, perm: u32) -> (u32, Option<Acl>) {
        let (most, is_all) = self.mode_bits();
        let bits = perm & !0o777 | perm & most;
        (bits, (!is_all).then(|| self.clone().with_perm(bits)))
    }
}

/// The list of an inode with these attributes, if it has one, and the attributes that belong to it.
pub fn of(fs: &(impl FileSystem + ?Sized), attr: &Attr) -> FsResult<(Attr, Option<Acl>)> {
    let mut attr = *attr;
    while attr.marks.has_acl {
        let value = fs.getxattr(attr.ino, ACCESS);
        let now = fs.getattr(attr.ino)?;
        let is_same = (now.perm, now.marks) == (attr.perm, attr.marks);
        attr = now;
        match value {
            // Both of one moment: a mask of another one could grant what never was.
            Ok(value) if is_same => {
                return Ok((attr, Acl::parse(&value)?.map(|acl| acl.with_perm(attr.perm))));
            }
            Ok(_) | Err(FsError::NoAttribute) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((attr, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::Credentials;

    fn acl(entries: &[(Tag, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, perm)| Entry { tag, perm }).collect())
    }

    fn usual() -> Acl {
        use Tag::*;
        acl(&[
            (Owner, 6),
            (User(5), 7),
            (OwningGroup, 4),
            (Group(8), 2),
            (Group(9), 4),
            (Mask, 6),
            (Other, 1),
        ])
    }

    fn cred(uid: u32, groups: &[u32]) -> Credentials {
        Credentials::new(uid, 1000, groups.to_vec())
    }

    #[test]
    fn values_come_back_and_what_is_none_is_refused() {
        let value = usual().to_value();
        assert_eq!(value.len(), 4 + 7 * 8);
        assert_eq!(&value[..20], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 5, 0, 0, 0]);
        assert_eq!(Acl::parse(&value).unwrap(), Some(usual()));
        assert_eq!(Acl::parse(b"").unwrap(), None);
        assert_eq!(Acl::parse(&value[..4]).unwrap(), None);
        let with = |at: usize, byte: u8| {
            let mut value = value.clone();
            value[at] = byte;
            Acl::parse(&value)
        };
        assert!(matches!(with(0, 1), Err(FsError::Unsupported(_))));
        assert!(matches!(with(4, 3), Err(FsError::Invalid(_))), "a tag that is none");
        let nobody = acl(&[(Tag::User(NOBODY), 7)]).to_value();
        assert!(matches!(Acl::parse(&nobody), Err(FsError::Invalid(_))));
        for cut in [1, 3, 5, value.len() - 1] {
            assert!(matches!(Acl::parse(&value[..cut]), Err(FsError::Invalid(_))), "{cut}");
        }
    }

    #[test]
    fn a_valid_list_has_all_classes_in_order_and_a_mask_where_it_needs_one() {
        use Tag::*;
        let good = [
            usual(),
            acl(&[(Owner, 0), (OwningGroup, 0), (Other, 0)]),
            acl(&[(Owner, 7), (OwningGroup, 7), (Mask, 0), (Other, 7)]),
            // As Linux, which does not look at the order of ids, nor for the same one twice.
            acl(&[
                (Owner, 7),
                (User(9), 1),
                (User(3), 1),
                (User(3), 2),
                (OwningGroup, 7),
                (Mask, 0),
                (Other, 7),
            ]),
        ];
        for list in good {
            assert!(list.check().is_ok(), "{list:?}");
        }
        let bad = [
            acl(&[(Owner, 7), (Other, 7)]),
            acl(&[(OwningGroup, 7), (Other, 7)]),
            acl(&[(Owner, 7), (OwningGroup, 7)]),
            acl(&[(Owner, 8), (OwningGroup, 7), (Other, 7)]),
            acl(&[(Owner, 7), (Owner, 7), (OwningGroup, 7), (Other, 7)]),
            acl(&[(OwningGroup, 7), (Owner, 7), (Other, 7)]),
            acl(&[(Owner, 7), (User(1), 7), (OwningGroup, 7), (Other, 7)]),
            acl(&[(Owner, 7), (OwningGroup, 7), (Mask, 7), (Mask, 7), (Other, 7)]),
            acl(&[(Owner, 7), (OwningGroup, 7), (Mask, 7), (Group(1), 7), (Other, 7)]),
        ];
        for list in bad {
            assert!(matches!(list.check(), Err(FsError::Invalid(_))), "{list:?}");
        }
        let many = |count| {
            let users = (0..count).map(|id| (User(id), 7));
            acl(&[(Owner, 7)]
                .into_iter()
                .chain(users)
                .chain([(OwningGroup, 7), (Mask, 7), (Other, 7)])
                .collect::<Vec<_>>())
        };
        assert!(many(507).check().is_ok());
        assert!(matches!(many(508).check(), Err(FsError::AttributeTooLarge)));
    }

    #[test]
    fn the_first_entry_that_fits_decides_but_one_of_the_groups_has_to_grant_all() {
        let list = usual();
        let granted = |who: &Credentials| {
            (0..8).filter(|wanted| list.grants(who, 7, *wanted)).fold(0, |all, wanted| all | 1 << wanted)
        };
        let all_of = |perm: u32| {
            (0..8).filter(|wanted| perm & wanted == *wanted).fold(0, |all, wanted| all | 1 << wanted)
        };
        assert_eq!(granted(&cred(5, &[])), all_of(6), "the user's, as far as the mask lets it");
        assert_eq!(granted(&cred(5, &[7, 8])), all_of(6));
        assert_eq!(granted(&cred(1, &[7])), all_of(4));
        assert_eq!(granted(&cred(1, &[8])), all_of(2));
        assert_eq!(granted(&cred(1, &[8, 9])), all_of(4) | all_of(2), "nobody grants both");
        assert_eq!(granted(&cred(1, &[])), all_of(1));
    }

    #[test]
    fn mode_bits_are_the_classes_and_the_mask() {
        use Tag::*;
        assert_eq!(usual().mode_bits(), (0o661, false));
        assert_eq!(acl(&[(Owner, 6), (OwningGroup, 4), (Other, 0)]).mode_bits(), (0o640, true));
        assert_eq!(acl(&[(Owner, 6), (OwningGroup, 4), (Mask, 4), (Other, 0)]).mode_bits(), (0o640, false));
        let changed = usual().with_perm(0o4714);
        assert_eq!((changed.mode_bits().0, changed.entry(OwningGroup)), (0o714, Some(4)));
        assert_eq!(
            acl(&[(Owner, 0), (OwningGroup, 0), (Other, 0)]).with_perm(0o751).mode_bits(),
            (0o751, true)
        );
    }

    #[test]
    fn what_is_made_gets_no_more_than_is_asked_for() {
        use Tag::*;
        let (perm, list) = usual().inherit(0o2640);
        assert_eq!(perm, 0o2640);
        assert_eq!(list.unwrap(), usual().with_perm(0o640));
        assert_eq!(usual().inherit(0o777).0, 0o661);
        let plain = acl(&[(Owner, 7), (OwningGroup, 5), (Other, 0)]);
        assert_eq!(plain.inherit(0o666), (0o640, None));
    }
}
