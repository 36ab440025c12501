//! Journal records: one logical change each, replayable on the state before it.

use std::borrow::Cow;
use weft_core::codec::{Encode, Reader, Truncated, put};
use weft_core::{BLOCK_BYTES, Ino, Tag, refuse};
use weft_vfs::{FileKind, NAME_MAX, PATH_MAX, XATTR_VALUE_MAX};

/// Most blocks of one extents record.
pub const EXTENT_BLOCKS_MAX: u32 = 1024;
/// Bytes of an encoded run.
pub const RUN_BYTES: usize = 24;

/// Why bytes are not a record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A field or the whole record ends too early.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A field has no such value.
    #[error("record at byte {at}: bad {what}")]
    Bad {
        /// Offset of the record in its payload.
        at: usize,
        /// The field.
        what: &'static str,
    },
}

/// Consecutive blocks of a file at consecutive places of the device, or one piece of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRun {
    /// First block of the file.
    pub block: u64,
    /// Where they lie.
    pub run: Run,
}

/// A place on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Byte address of the first block or of the piece.
    pub address: u64,
    /// Blocks.
    pub count: u32,
    /// Bytes of the piece; a whole block's when there are several blocks.
    pub len: u32,
}

impl Run {
    /// Whether it is made of whole blocks.
    pub fn is_whole(&self) -> bool {
        self.len as usize == BLOCK_BYTES
    }

    /// Device block of the first block.
    pub fn device_block(&self) -> u64 {
        self.address / BLOCK_BYTES as u64
    }

    /// Device bytes that it keeps alive.
    pub fn space(&self) -> u64 {
        u64::from(self.count) * u64::from(super::piece_space(self.len))
    }
}

/// What a new node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode<'a> {
    /// Its number.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u64,
    /// Target of a symlink.
    pub target: &'a [u8],
    /// Tag of its data.
    pub tag: Tag,
    /// Creation time.
    pub time: i64,
    /// The volume's byte clock at creation.
    pub born_at: u64,
}

impl NewInode<'_> {
    /// A node of the superuser that nothing is known of.
    pub fn bare(ino: Ino, kind: FileKind, perm: u32) -> NewInode<'static> {
        let tag = Tag::default();
        NewInode { ino, kind, perm, uid: 0, gid: 0, rdev: 0, target: b"", tag, time: 0, born_at: 0 }
    }
}

/// A logical change.
#[derive(Clone, PartialEq, Debug)]
pub enum Record<'a> {
    /// A node comes to be, with a name (or none: `dir` 0).
    Create {
        /// Directory of the name; 0 for none.
        dir: Ino,
        /// The name.
        name: &'a [u8],
        /// The node.
        node: NewInode<'a>,
    },
    /// An inode gets one more name.
    Link {
        /// The inode.
        ino: Ino,
        /// Directory of the name.
        dir: Ino,
        /// The name.
        name: &'a [u8],
        /// When.
        time: i64,
    },
    /// A name goes. The inode goes only by [`Record::Free`].
    Unlink {
        /// Directory of the name.
        dir: Ino,
        /// The name.
        name: &'a [u8],
        /// When.
        time: i64,
    },
    /// A name moves; what had the new name loses it, or gets the old one (`exchange`).
    Rename {
        /// Directory of the old name.
        from: Ino,
        /// Directory of the new name.
        to: Ino,
        /// The old name.
        name: &'a [u8],
        /// The new name.
        new_name: &'a [u8],
        /// Whether the two are swapped.
        exchange: bool,
        /// When.
        time: i64,
    },
    /// An inode goes for good.
    Free {
        /// The inode.
        ino: Ino,
    },
    /// Attributes, as they are after the change.
    Attributes {
        /// The inode.
        ino: Ino,
        /// Permission bits.
        perm: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Times of access, modification and change.
        times: [i64; 3],
    },
    /// The size changes other than by a write.
    Truncate {
        /// The inode.
        ino: Ino,
        /// Blocks from here on go.
        size: u64,
        /// The size grows to `size` if smaller (else it shrinks to it if larger).
        extend: bool,
        /// When.
        time: i64,
    },
    /// Blocks of a file now lie elsewhere: written, or (`relocated`) copied by the cleaner.
    Extents {
        /// The inode.
        ino: Ino,
        /// Copied by the cleaner: size and time are to be left alone.
        relocated: bool,
        /// Size of the file, as far as its data is on the device.
        size: u64,
        /// Modification time.
        mtime: i64,
        /// Where the blocks lie.
        runs: Cow<'a, [FileRun]>,
        /// CRC32C of each device block, run after run.
        crcs: Cow<'a, [u32]>,
    },
    /// Bytes of a file, kept in the journal until they are written with an extents record.
    Inline {
        /// The inode.
        ino: Ino,
        /// Where; within one block.
        offset: u64,
        /// Size of the file, as far as its data is on the device.
        size: u64,
        /// Modification time.
        mtime: i64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Blocks become a hole.
    Punch {
        /// The inode.
        ino: Ino,
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
        /// When.
        time: i64,
    },
    /// Blocks are cut out (`insert` false) or a hole is inserted; the blocks behind move.
    Shift {
        /// The inode.
        ino: Ino,
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
        /// Whether a hole is inserted.
        insert: bool,
        /// Size afterwards.
        size: u64,
        /// When.
        time: i64,
    },
    /// Room is promised for blocks; those that are mapped have it.
    Reserve {
        /// The inode.
        ino: Ino,
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
    },
    /// An extended attribute is set (`value`) or removed.
    Xattr {
        /// The inode.
        ino: Ino,
        /// Its name.
        name: &'a [u8],
        /// Its value; `None` removes it.
        value: Option<&'a [u8]>,
        /// When.
        time: i64,
    },
    /// The file's data carries another tag from now on.
    SetTag {
        /// The inode.
        ino: Ino,
        /// The tag.
        tag: Tag,
    },
}

const CREATE: u8 = 1;
const LINK: u8 = 2;
const UNLINK: u8 = 3;
const RENAME: u8 = 4;
const FREE: u8 = 5;
const ATTRIBUTES: u8 = 6;
const TRUNCATE: u8 = 7;
const EXTENTS: u8 = 8;
const INLINE: u8 = 9;
const PUNCH: u8 = 10;
const SHIFT: u8 = 11;
const XATTR: u8 = 12;
const SET_TAG: u8 = 13;
const RESERVE: u8 = 14;

impl Encode for FileRun {
    fn put(&self, out: &mut Vec<u8>) {
        let FileRun { block, run: Run { address, count, len } } = self;
        put(out, &[block, address, count, len]);
    }
}

/// Reads a run; refuses one that no writer makes.
pub fn take_run(r: &mut Reader<'_>) -> Result<FileRun, RecordError> {
    let at = r.position();
    let (block, address, count, len) = (r.u64()?, r.u64()?, r.u32()?, r.u32()?);
    let bad = |what| RecordError::Bad { at, what };
    let block_bytes = BLOCK_BYTES as u32;
    let is_length = count > 0 && (len == block_bytes || count == 1 && (1..block_bytes).contains(&len));
    refuse(!is_length, bad("run length"))?;
    let crosses = address % u64::from(block_bytes) + u64::from(len) > u64::from(block_bytes);
    refuse(address >= 1 << 54 || address % 8 != 0 || crosses, bad("run address"))?;
    let end_max = crate::layout::FILE_BYTES_MAX / u64::from(block_bytes);
    let is_position = block.checked_add(u64::from(count)).is_some_and(|end| end <= end_max);
    refuse(!is_position, bad("run position"))?;
    Ok(FileRun { block, run: Run { address, count, len } })
}

/// Highest inode number, byte clock, epoch, number of a frame and of a zone opening that is read: low enough to be counted on
/// from.
pub const COUNT_MAX: u64 = 1 << 62;
/// The highest from which a mount goes on: beyond what any volume gets to, and what it then writes can be read.
pub const COUNT_MOUNTED_MAX: u64 = COUNT_MAX / 2;

impl Encode for NewInode<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        let NewInode { ino, kind, perm, uid, gid, rdev, target, tag, time, born_at } = self;
        put(out, &[ino, &(*kind as u8), perm, uid, gid, rdev, tag, time, born_at, target]);
    }
}

/// Reads a node's fixed fields.
pub fn take_node<'a>(r: &mut Reader<'a>) -> Result<NewInode<'a>, RecordError> {
    let at = r.position();
    let bad = |what| RecordError::Bad { at, what };
    let ino = Ino(r.u64()?);
    let kind = FileKind::from_u8(r.u8()?).ok_or(bad("file kind"))?;
    let (perm, uid, gid, rdev) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?);
    let tag = Tag::decode(&r.array()?).ok_or(bad("tag"))?;
    let (time, born_at) = (r.i64()?, r.u64()?);
    let target = bounded(r, PATH_MAX, "symlink target")?;
    refuse(ino.0 > COUNT_MAX || born_at > COUNT_MAX, bad("inode number or byte clock"))?;
    Ok(NewInode { ino, kind, perm, uid, gid, rdev, target, tag, time, born_at })
}

/// Reads a byte string of at most `max` bytes.
pub fn bounded<'a>(r: &mut Reader<'a>, max: usize, what: &'static str) -> Result<&'a [u8], RecordError> {
    let at = r.position();
    let out = r.string()?;
    if out.len() > max { Err(RecordError::Bad { at, what }) } else { Ok(out) }
}

impl<'a> Record<'a> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Create { dir, name, node } => put(out, &[&CREATE, dir, name, node]),
            Record::Link { ino, dir, name, time } => put(out, &[&LINK, ino, dir, name, time]),
            Record::Unlink { dir, name, time } => put(out, &[&UNLINK, dir, name, time]),
            Record::Rename { from, to, name, new_name, exchange, time } => {
                put(out, &[&RENAME, from, to, name, new_name, exchange, time]);
            }
            Record::Free { ino } => put(out, &[&FREE, ino]),
            Record::Attributes { ino, perm, uid, gid, times } => {
                put(out, &[&ATTRIBUTES, ino, perm, uid, gid, times]);
            }
            Record::Truncate { ino, size, extend, time } => put(out, &[&TRUNCATE, ino, size, extend, time]),
            Record::Extents { ino, relocated, size, mtime, runs, crcs } => {
                put(out, &[&EXTENTS, ino, relocated, size, mtime, &(runs.len() as u32)]);
                runs.iter().for_each(|run| run.put(out));
                crcs.iter().for_each(|crc| crc.put(out));
            }
            Record::Inline { ino, offset, size, mtime, bytes } => {
                put(out, &[&INLINE, ino, offset, size, mtime, bytes]);
            }
            Record::Punch { ino, block, count, time } => put(out, &[&PUNCH, ino, block, count, time]),
            Record::Shift { ino, block, count, insert, size, time } => {
                put(out, &[&SHIFT, ino, block, count, insert, size, time]);
            }
            Record::Reserve { ino, block, count } => put(out, &[&RESERVE, ino, block, count]),
            Record::Xattr { ino, name, value, time } => {
                put(out, &[&XATTR, ino, name, &value.is_some(), &value.unwrap_or_default(), time]);
            }
            Record::SetTag { ino, tag } => put(out, &[&SET_TAG, ino, tag]),
        }
    }

    /// Reads the next record.
    pub fn decode(r: &mut Reader<'a>) -> Result<Record<'a>, RecordError> {
        let at = r.position();
        let bad = |what| RecordError::Bad { at, what };
        let kind = r.u8()?;
        Ok(match kind {
            CREATE => Record::Create { dir: Ino(r.u64()?), name: name(r)?, node: take_node(r)? },
            LINK => Record::Link { ino: Ino(r.u64()?), dir: Ino(r.u64()?), name: name(r)?, time: r.i64()? },
            UNLINK => Record::Unlink { dir: Ino(r.u64()?), name: name(r)?, time: r.i64()? },
            RENAME => Record::Rename {
                from: Ino(r.u64()?),
                to: Ino(r.u64()?),
                name: name(r)?,
                new_name: name(r)?,
                exchange: r.u8()? != 0,
                time: r.i64()?,
            },
            FREE => Record::Free { ino: Ino(r.u64()?) },
            ATTRIBUTES => Record::Attributes {
                ino: Ino(r.u64()?),
                perm: r.u32()?,
                uid: r.u32()?,
                gid: r.u32()?,
                times: [r.i64()?, r.i64()?, r.i64()?],
            },
            TRUNCATE => {
                Record::Truncate { ino: Ino(r.u64()?), size: size(r)?, extend: r.u8()? != 0, time: r.i64()? }
            }
            EXTENTS => {
                let (ino, relocated) = (Ino(r.u64()?), r.u8()? != 0);
                let (size, mtime) = (size(r)?, r.i64()?);
                let runs: Vec<FileRun> = list(r, at, RUN_BYTES, "run count", take_run)?;
                let blocks = runs.iter().map(|run| u64::from(run.run.count)).sum::<u64>();
                refuse(blocks * 4 > r.remaining() as u64, bad("CRC count"))?;
                let crcs = (0..blocks).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
                Record::Extents {
                    ino,
                    relocated,
                    size,
                    mtime,
                    runs: Cow::Owned(runs),
                    crcs: Cow::Owned(crcs),
                }
            }
            INLINE => {
                let (ino, offset, size, mtime) = (Ino(r.u64()?), r.u64()?, size(r)?, r.i64()?);
                let bytes = bounded(r, BLOCK_BYTES, "inline length")?;
                let crosses = offset as usize % BLOCK_BYTES + bytes.len() > BLOCK_BYTES;
                refuse(offset > crate::layout::FILE_BYTES_MAX || crosses, bad("inline offset"))?;
                Record::Inline { ino, offset, size, mtime, bytes }
            }
            PUNCH => {
                let (ino, (block, count)) = (Ino(r.u64()?), block_range(r)?);
                Record::Punch { ino, block, count, time: r.i64()? }
            }
            SHIFT => {
                let (ino, (block, count)) = (Ino(r.u64()?), block_range(r)?);
                Record::Shift { ino, block, count, insert: r.u8()? != 0, size: size(r)?, time: r.i64()? }
            }
            RESERVE => {
                let (ino, (block, count)) = (Ino(r.u64()?), block_range(r)?);
                Record::Reserve { ino, block, count }
            }
            XATTR => {
                let (ino, name) = (Ino(r.u64()?), name(r)?);
                let set = r.u8()? != 0;
                let value = bounded(r, XATTR_VALUE_MAX, "attribute value")?;
                Record::Xattr { ino, name, value: set.then_some(value), time: r.i64()? }
            }
            SET_TAG => {
                let ino = Ino(r.u64()?);
                Record::SetTag { ino, tag: Tag::decode(&r.array()?).ok_or(bad("tag"))? }
            }
            _ => return Err(bad("record kind")),
        })
    }
}

/// Reads the number of a list's entries, and these, each of so many bytes. `at` is the place of the record.
pub fn list<'a, T, L: FromIterator<T>>(
    r: &mut Reader<'a>,
    at: usize,
    entry_bytes: usize,
    what: &'static str,
    take: impl Fn(&mut Reader<'a>) -> Result<T, RecordError>,
) -> Result<L, RecordError> {
    let count = r.u32()? as usize;
    refuse(count.saturating_mul(entry_bytes) > r.remaining(), RecordError::Bad { at, what })?;
    (0..count).map(|_| take(r)).collect()
}

/// Reads a name of a directory entry or attribute.
pub fn name<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], RecordError> {
    bounded(r, NAME_MAX, "name length")
}

/// Reads a file size.
pub fn size(r: &mut Reader<'_>) -> Result<u64, RecordError> {
    let at = r.position();
    let size = r.u64()?;
    refuse(size > crate::layout::FILE_BYTES_MAX, RecordError::Bad { at, what: "file size" })?;
    Ok(size)
}

/// Reads a first block and a number of blocks.
pub fn block_range(r: &mut Reader<'_>) -> Result<(u64, u64), RecordError> {
    let at = r.position();
    let (block, count) = (r.u64()?, r.u64()?);
    let end_max = crate::layout::FILE_BYTES_MAX / BLOCK_BYTES as u64 + 1;
    let is_range = block.checked_add(count).is_some_and(|end| end <= end_max);
    refuse(!is_range, RecordError::Bad { at, what: "block range" })?;
    Ok((block, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<Record<'static>> {
        let node = NewInode {
            ino: Ino(12),
            kind: FileKind::Symlink,
            perm: 0o777,
            uid: 1,
            gid: 2,
            rdev: 3,
            target: b"to/there",
            tag: Tag::METADATA,
            time: -5,
            born_at: 99,
        };
        let runs = vec![
            FileRun { block: 0, run: Run { address: 4096 * 7, count: 2, len: 4096 } },
            FileRun { block: 9, run: Run { address: 4096 * 9 + 16, count: 1, len: 77 } },
        ];
        vec![
            Record::Create { dir: Ino(1), name: b"n", node },
            Record::Link { ino: Ino(12), dir: Ino(1), name: b"m", time: 4 },
            Record::Unlink { dir: Ino(1), name: b"m", time: 4 },
            Record::Rename { from: Ino(1), to: Ino(2), name: b"a", new_name: b"b", exchange: true, time: 8 },
            Record::Free { ino: Ino(3) },
            Record::Attributes { ino: Ino(3), perm: 0o600, uid: 5, gid: 6, times: [1, 2, 3] },
            Record::Truncate { ino: Ino(3), size: 100, extend: false, time: 1 },
            Record::Extents {
                ino: Ino(3),
                relocated: false,
                size: 5,
                mtime: 6,
                runs: Cow::Owned(runs),
                crcs: Cow::Owned(vec![1, 2, 3]),
            },
            Record::Inline { ino: Ino(3), offset: 4000, size: 4010, mtime: 6, bytes: b"0123456789" },
            Record::Punch { ino: Ino(3), block: 1, count: 2, time: 3 },
            Record::Shift { ino: Ino(3), block: 1, count: 2, insert: true, size: 9, time: 3 },
            Record::Reserve { ino: Ino(3), block: 7, count: 100 },
            Record::Xattr { ino: Ino(3), name: b"user.a", value: Some(b"v"), time: 3 },
            Record::Xattr { ino: Ino(3), name: b"user.a", value: None, time: 3 },
            Record::SetTag { ino: Ino(3), tag: Tag::METADATA },
        ]
    }

    #[test]
    fn every_record_comes_back() {
        let mut raw = Vec::new();
        let records = samples();
        records.iter().for_each(|record| record.encode(&mut raw));
        let mut r = Reader::new(&raw);
        for record in &records {
            assert_eq!(Record::decode(&mut r).as_ref(), Ok(record));
        }
        assert_eq!(r.remaining(), 0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut r = Reader::new(&raw);
            while Record::decode(&mut r).is_ok() {}
        }

        #[test]
        fn a_damaged_record_parses_or_is_refused(which in 0usize..15, at in 0usize..400, bit in 0u8..8) {
            let mut raw = Vec::new();
            samples()[which].encode(&mut raw);
            let at = at % raw.len();
            raw[at] ^= 1 << bit;
            let _ = Record::decode(&mut Reader::new(&raw));
            let _ = Record::decode(&mut Reader::new(&raw[..at]));
        }
    }
}
