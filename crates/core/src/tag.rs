//! The tag: what the layers above know about data, carried with it down every write path.
//!
//! No layer guesses what another one knew. For files, the server asks placement for the tag when a file is created, opened for
//! writing, renamed or hinted at, and keeps owner and flags with the file. The file core records the tag in the inode and passes
//! it with every write, those of the cleaner too; it chooses zones by stream and group. The tag store makes the tag of a page from
//! those of its s-node: owner, class, secure deletion. A device counts by origin. The levels of
//! flash keep the tag in the out-of-band bytes of each page, where a read finds it again ([`Tag::encode`]). The idea is the one
//! that ADAPT, Tags and TrueErase share: semantic hints are metadata of the data itself.

use crate::ids::{LifetimeGroup, StreamId};
use serde::{Deserialize, Serialize};

/// What kind of data it is.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataClass {
    /// Nothing is known.
    #[default]
    Unknown = 0,
    /// The file core's own metadata: journal and checkpoints.
    Metadata = 1,
    /// A log that is written in order and dies as a whole.
    Log = 2,
    /// A file that is written once and then read.
    Immutable = 3,
    /// A file that is overwritten in place.
    InPlace = 4,
    /// A small file.
    Small = 5,
    /// A file that is meant to be gone soon.
    Temporary = 6,
}

impl DataClass {
    /// The class with this number in a record.
    pub fn from_u8(value: u8) -> Option<DataClass> {
        use DataClass::*;
        [Unknown, Metadata, Log, Immutable, InPlace, Small, Temporary].into_iter().find(|c| *c as u8 == value)
    }

    /// Each of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = DataClass> {
        (0..).map_while(DataClass::from_u8)
    }

    /// The class with this [name](DataClass::name).
    pub fn named(name: &str) -> Option<DataClass> {
        DataClass::all().find(|class| class.name() == name)
    }

    /// The name that policies and reports use.
    pub fn name(self) -> &'static str {
        match self {
            DataClass::Unknown => "unknown",
            DataClass::Metadata => "metadata",
            DataClass::Log => "log",
            DataClass::Immutable => "immutable",
            DataClass::InPlace => "in-place",
            DataClass::Small => "small",
            DataClass::Temporary => "temporary",
        }
    }
}

/// Who causes a device write; what write amplification is counted by.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A program's data.
    #[default]
    Host = 0,
    /// Live data that the cleaner relocates.
    Gc = 1,
    /// The file core's journal, checkpoints and headers.
    Metadata = 2,
}

impl Origin {
    /// Every origin, in the order of its number.
    pub const ALL: [Origin; 3] = [Origin::Host, Origin::Gc, Origin::Metadata];
}

bitflags::bitflags! {
    /// Properties that are on or off.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct TagFlags: u8 {
        /// The data must be destroyed, not only forgotten, when the file dies.
        const SECURE_DELETE = 1;
    }
}

/// What travels with every write.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tag {
    /// When the data is expected to die, in bytes that the volume will have taken from programs by then, counted
    /// from the volume's format. 0 = unknown.
    pub death: u64,
    /// User id of the owner.
    pub owner: u32,
    /// The stream the data belongs to.
    pub stream: StreamId,
    /// The lifetime group within the stream.
    pub group: LifetimeGroup,
    /// The class of the data.
    pub class: DataClass,
    /// Who causes the write.
    pub origin: Origin,
    /// Properties that are on or off.
    pub flags: TagFlags,
}

impl Tag {
    /// The tag of a file core's own metadata.
    pub const METADATA: Tag = Tag {
        death: 0,
        owner: 0,
        stream: StreamId(0),
        group: LifetimeGroup(0),
        class: DataClass::Metadata,
        origin: Origin::Metadata,
        flags: TagFlags::empty(),
    };

    /// The same tag, for a copy that the cleaner makes.
    pub fn relocated(self) -> Tag {
        Tag { origin: Origin::Gc, ..self }
    }

    /// The tag of a block that holds data of both: it has all their flags and dies with the later one. A property in which they
    /// differ otherwise is unknown of the whole; stream and group, which say where it goes, are this one's.
    pub fn beside(self, other: Tag) -> Tag {
        let death = if self.death == 0 || other.death == 0 { 0 } else { self.death.max(other.death) };
        let owner = if self.owner == other.owner { self.owner } else { 0 };
        let class = if self.class == other.class { self.class } else { DataClass::Unknown };
        Tag { death, owner, class, flags: self.flags | other.flags, ..self }
    }

    /// Bytes of an encoded tag.
    pub const ENCODED_BYTES: usize = 20;

    /// The tag as it stands in on-disk records and beside pages of flash. The last byte is the version of this form, 0.
    pub fn encode(&self) -> [u8; Tag::ENCODED_BYTES] {
        let mut out = [0; Tag::ENCODED_BYTES];
        out[0..8].copy_from_slice(&self.death.to_le_bytes());
        out[8..12].copy_from_slice(&self.owner.to_le_bytes());
        out[12..14].copy_from_slice(&self.stream.0.to_le_bytes());
        out[14..16].copy_from_slice(&self.group.0.to_le_bytes());
        out[16] = self.class as u8;
        out[17] = self.origin as u8;
        out[18] = self.flags.bits();
        out
    }

    /// Reads what [`Tag::encode`] wrote; `None` when a field has no such value, or the form is of a later version.
    pub fn decode(raw: &[u8; Tag::ENCODED_BYTES]) -> Option<Tag> {
        if raw[19] != 0 {
            return None;
        }
        let u16_at = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        Some(Tag {
            death: u64::from_le_bytes([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7]]),
            owner: u32::from_le_bytes([raw[8], raw[9], raw[10], raw[11]]),
            stream: StreamId(u16_at(12)),
            group: LifetimeGroup(u16_at(14)),
            class: DataClass::from_u8(raw[16])?,
            origin: Origin::ALL.into_iter().find(|o| *o as u8 == raw[17])?,
            flags: TagFlags::from_bits(raw[18])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    const CLASSES: u64 = DataClass::Temporary as u64 + 1;

    #[test]
    fn any_tag_survives_encoding() {
        let mut random = SplitMix::new(1, &[]);
        for _ in 0..100_000 {
            // Numbers of all lengths.
            let mut number = || random.next() >> random.below(64);
            let tag = Tag {
                death: number(),
                owner: number() as u32,
                stream: StreamId(number() as u16),
                group: LifetimeGroup(number() as u16),
                class: DataClass::from_u8((number() % CLASSES) as u8).unwrap(),
                origin: Origin::ALL[(number() % 3) as usize],
                flags: TagFlags::from_bits_truncate(number() as u8),
            };
            assert_eq!(Tag::decode(&tag.encode()), Some(tag));
        }
    }

    #[test]
    fn what_lies_beside_secure_data_is_erased_with_it() {
        let secure = Tag {
            flags: TagFlags::SECURE_DELETE,
            owner: 5,
            death: 7,
            class: DataClass::Log,
            ..Tag::default()
        };
        let plain =
            Tag { stream: StreamId(3), owner: 5, death: 9, class: DataClass::Small, ..Tag::default() };
        let both = plain.beside(secure);
        assert_eq!(both, Tag { flags: TagFlags::SECURE_DELETE, class: DataClass::Unknown, ..plain });
        assert_eq!(secure.beside(plain), Tag { stream: StreamId(0), ..both });
        assert_eq!(plain.beside(plain), plain);
        let endless = Tag { death: 0, owner: 6, ..plain };
        assert_eq!(plain.beside(endless), Tag { owner: 0, ..endless });
    }

    #[test]
    fn bytes_are_the_tag_that_is_encoded_so_or_none() {
        let mut random = SplitMix::new(2, &[]);
        let mut tags = 0;
        for round in 0..100_000 {
            let mut raw = [0; Tag::ENCODED_BYTES];
            let below = if round % 2 == 0 { 3 } else { 256 };
            raw.iter_mut().for_each(|byte| *byte = random.below(below) as u8);
            raw[19] = u8::from(random.below(4) == 0);
            if let Some(tag) = Tag::decode(&raw) {
                assert_eq!(tag.encode(), raw);
                tags += 1;
            }
        }
        assert!((10_000..60_000).contains(&tags), "{tags}");
        // Each byte that has few values, with one that it has not.
        for (at, value) in [(16, CLASSES as u8), (17, 3), (18, 2), (19, 1)] {
            let mut raw = Tag::METADATA.encode();
            raw[at] = value;
            assert_eq!(Tag::decode(&raw), None, "{at}");
        }
    }
}
