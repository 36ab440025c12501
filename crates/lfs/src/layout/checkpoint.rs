//! Checkpoint records: the whole state, written out in an order in which it can be read back.
//!
//! `Volume` first, and what may have to be erased after a crash; then each inode, its attributes, runs and reserved blocks; then directory entries (their inodes exist by then); then
//! blocks that are in no data zone; then the CRCs of zones that have no footer yet.

use super::record::{
    COUNT_MAX, COUNT_MOUNTED_MAX, FileRun, NewInode, RUN_BYTES, RecordError, block_range, bounded, list,
    name, size, take_node, take_run,
};
use smallvec::SmallVec;
use weft_core::codec::{Encode, Reader, put};
use weft_core::{BLOCK_BYTES, Ino, ZoneId, refuse};
use weft_vfs::XATTR_VALUE_MAX;

/// Longest label of a volume, in bytes.
pub const LABEL_MAX: usize = 64;
/// Most runs of one record.
pub const RUNS_MAX: usize = 1024;
/// Most zones of one record.
pub const ZONES_MAX: usize = 8192;
/// Most CRCs of one record.
pub const CRCS_MAX: usize = 8192;

/// An inode as a checkpoint holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedInode<'a> {
    /// What it was created as; `time` is the creation time.
    pub node: NewInode<'a>,
    /// Names.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Times of access, modification and change.
    pub times: [i64; 3],
    /// Of a directory: its parent.
    pub parent: Ino,
    /// Of a directory: the cookie of the next entry.
    pub next_cookie: u64,
    /// How much of it other records have, so that a reader knows whether it has all: runs of its map.
    pub runs: u64,
    /// Extended attributes.
    pub xattrs: u32,
    /// Blocks that are in no data zone.
    pub blocks: u32,
}

/// A part of the state.
#[derive(Clone, PartialEq, Debug)]
pub enum Item<'a> {
    /// The volume.
    Volume {
        /// Its label.
        label: &'a [u8],
        /// When it was formatted.
        formatted_at: i64,
        /// The next inode number.
        next_ino: u64,
        /// The next zone opening's number.
        next_sequence: u64,
    },
    /// An inode.
    Inode(SavedInode<'a>),
    /// Runs of a file.
    Runs {
        /// The inode.
        ino: Ino,
        /// Runs; most files have one.
        runs: SmallVec<[FileRun; 1]>,
    },
    /// Blocks that a file was promised room for, and that nothing is mapped to.
    Reserved {
        /// The inode.
        ino: Ino,
        /// First block and number of blocks of each range.
        ranges: Vec<(u64, u64)>,
    },
    /// An extended attribute.
    Xattr {
        /// The inode.
        ino: Ino,
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A directory entry.
    Entry {
        /// The directory.
        dir: Ino,
        /// Its cookie.
        cookie: u64,
        /// The inode that it names.
        ino: Ino,
        /// The name.
        name: &'a [u8],
    },
    /// A block of a file that is in no data zone yet: its whole content.
    Block {
        /// The inode.
        ino: Ino,
        /// Block of the file.
        block: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// There may be bytes to erase of which no record tells, in these zones, in those that were opened since and in free space.
    Secrets {
        /// Data zones.
        zones: Vec<ZoneId>,
    },
    /// CRCs of blocks of a zone without a footer.
    Crcs {
        /// The zone.
        zone: ZoneId,
        /// First block.
        block: u32,
        /// A CRC for each block.
        crcs: Vec<u32>,
    },
}

const VOLUME: u8 = 1;
const INODE: u8 = 2;
const RUNS: u8 = 3;
const XATTR: u8 = 4;
const ENTRY: u8 = 5;
const CRCS: u8 = 6;
const BLOCK: u8 = 7;
const RESERVED: u8 = 8;
const SECRETS: u8 = 9;

/// Bytes of an encoded range.
const RANGE_BYTES: usize = 16;

impl<'a> Item<'a> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Item::Volume { label, formatted_at, next_ino, next_sequence } => {
                put(out, &[&VOLUME, label, formatted_at, next_ino, next_sequence]);
            }
            Item::Inode(inode) => {
                let SavedInode { node, links, size, times, parent, next_cookie, runs, xattrs, blocks } =
                    inode;
                put(out, &[&INODE, node, links, size, times, parent, next_cookie, runs, xattrs, blocks]);
            }
            Item::Runs { ino, runs } => {
                put(out, &[&RUNS, ino, &(runs.len() as u32)]);
                runs.iter().for_each(|run| run.put(out));
            }
            Item::Reserved { ino, ranges } => {
                put(out, &[&RESERVED, ino, &(ranges.len() as u32)]);
                ranges.iter().for_each(|(block, count)| put(out, &[block, count]));
            }
            Item::Xattr { ino, name, value } => put(out, &[&XATTR, ino, name, value]),
            Item::Entry { dir, cookie, ino, name } => put(out, &[&ENTRY, dir, cookie, ino, name]),
            Item::Block { ino, block, bytes } => put(out, &[&BLOCK, ino, block, bytes]),
            Item::Secrets { zones } => {
                put(out, &[&SECRETS, &(zones.len() as u32)]);
                zones.iter().for_each(|zone| zone.0.put(out));
            }
            Item::Crcs { zone, block, crcs } => {
                put(out, &[&CRCS, zone, block, &(crcs.len() as u32)]);
                crcs.iter().for_each(|crc| crc.put(out));
            }
        }
    }

    /// Reads the next record.
    pub fn decode(r: &mut Reader<'a>) -> Result<Item<'a>, RecordError> {
        let at = r.position();
        let bad = |what| RecordError::Bad { at, what };
        Ok(match r.u8()? {
            VOLUME => {
                let label = bounded(r, LABEL_MAX, "label")?;
                let (formatted_at, next_ino, next_sequence) = (r.i64()?, r.u64()?, r.u64()?);
                refuse(next_ino > COUNT_MAX || next_sequence > COUNT_MAX, bad("next number"))?;
                Item::Volume { label, formatted_at, next_ino, next_sequence }
            }
            INODE => {
                let (node, links, size) = (take_node(r)?, r.u32()?, size(r)?);
                let times = [r.i64()?, r.i64()?, r.i64()?];
                let (parent, next_cookie) = (Ino(r.u64()?), r.u64()?);
                refuse(next_cookie > COUNT_MOUNTED_MAX, bad("next cookie"))?;
                let (runs, xattrs, blocks) = (r.u64()?, r.u32()?, r.u32()?);
                let node = SavedInode { node, links, size, times, parent, next_cookie, runs, xattrs, blocks };
                Item::Inode(node)
            }
            RUNS => Item::Runs { ino: Ino(r.u64()?), runs: list(r, at, RUN_BYTES, "run count", take_run)? },
            RESERVED => Item::Reserved {
                ino: Ino(r.u64()?),
                ranges: list(r, at, RANGE_BYTES, "range count", block_range)?,
            },
            XATTR => Item::Xattr {
                ino: Ino(r.u64()?),
                name: name(r)?,
                value: bounded(r, XATTR_VALUE_MAX, "attribute value")?,
            },
            ENTRY => {
                let (dir, cookie, ino) = (Ino(r.u64()?), r.u64()?, Ino(r.u64()?));
                refuse(cookie > COUNT_MOUNTED_MAX, bad("cookie"))?;
                Item::Entry { dir, cookie, ino, name: name(r)? }
            }
            BLOCK => {
                let (ino, block) = (Ino(r.u64()?), r.u64()?);
                refuse(block > crate::layout::FILE_BYTES_MAX / BLOCK_BYTES as u64, bad("block"))?;
                Item::Block { ino, block, bytes: bounded(r, BLOCK_BYTES, "block length")? }
            }
            CRCS => Item::Crcs {
                zone: ZoneId(r.u32()?),
                block: r.u32()?,
                crcs: list(r, at, 4, "CRC count", |r| Ok(r.u32()?))?,
            },
            SECRETS => Item::Secrets { zones: list(r, at, 4, "zone count", |r| Ok(ZoneId(r.u32()?)))? },
            _ => return Err(bad("checkpoint record kind")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::record::Run;
    use proptest::prelude::*;
    use smallvec::smallvec;
    use weft_core::Tag;
    use weft_vfs::FileKind;

    #[test]
    fn cookies_leave_room_for_those_of_new_names() {
        let item = |cookie| Item::Entry { dir: Ino::ROOT, cookie, ino: Ino(5), name: b"f" };
        for (cookie, is_read) in
            [(COUNT_MOUNTED_MAX, true), (COUNT_MOUNTED_MAX + 1, false), (u64::MAX, false)]
        {
            let mut raw = Vec::new();
            item(cookie).encode(&mut raw);
            assert_eq!(Item::decode(&mut Reader::new(&raw)).is_ok(), is_read, "{cookie}");
        }
    }

    #[test]
    fn every_item_comes_back() {
        let node = NewInode {
            ino: Ino(2),
            kind: FileKind::Directory,
            perm: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: b"",
            tag: Tag::METADATA,
            time: 1,
            born_at: 2,
        };
        let items = [
            Item::Volume { label: b"disk", formatted_at: 3, next_ino: 4, next_sequence: 5 },
            Item::Secrets { zones: vec![ZoneId(3), ZoneId(9)] },
            Item::Secrets { zones: vec![] },
            Item::Inode(SavedInode {
                node,
                links: 2,
                size: 0,
                times: [1, 2, 3],
                parent: Ino(1),
                next_cookie: 9,
                runs: 1,
                xattrs: 2,
                blocks: 3,
            }),
            Item::Runs {
                ino: Ino(3),
                runs: smallvec![FileRun { block: 1, run: Run { address: 8, count: 1, len: 9 } }],
            },
            Item::Reserved { ino: Ino(3), ranges: vec![(2, 5), (9, 1)] },
            Item::Xattr { ino: Ino(3), name: b"user.x", value: b"y" },
            Item::Entry { dir: Ino(1), cookie: 4, ino: Ino(2), name: b"d" },
            Item::Block { ino: Ino(3), block: 5, bytes: b"tail" },
            Item::Crcs { zone: ZoneId(4), block: 1, crcs: vec![1, 2] },
        ];
        let mut raw = Vec::new();
        items.iter().for_each(|item| item.encode(&mut raw));
        let mut r = Reader::new(&raw);
        for item in &items {
            assert_eq!(Item::decode(&mut r).as_ref(), Ok(item));
        }
        assert_eq!(r.remaining(), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut r = Reader::new(&raw);
            while Item::decode(&mut r).is_ok() {}
        }
    }
}
