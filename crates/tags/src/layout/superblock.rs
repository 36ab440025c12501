//! The superblock: where the last checkpoint is. Two copies, in blocks 0 and 1.
//!
//! A checkpoint writes copy 0, syncs, writes copy 1, syncs. Whichever copy is read after a power cut, all that it refers to is
//! still there, since nothing it refers to is reused before both are written.

use super::{FORMAT_VERSION, SNAPSHOTS_VERSION};
use crate::error::{Error, Result};
use crate::hash::Secret;
use crate::ids::PAGE_BYTES;
use crate::space::Run;
use weft_core::checksum::crc32c;
use weft_core::codec::{put, seal_page, unseal};
use weft_sys::AlignedBuf;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"WEFTTAGS";

/// Copies of the superblock, which are the first blocks.
pub(crate) const COPIES: u64 = 2;

/// Least bytes of a journal.
pub(crate) const JOURNAL_BYTES_MIN: u64 = 256 << 10;
/// Most bytes of a journal: it is read whole when a store is opened.
pub(crate) const JOURNAL_BYTES_MAX: u64 = 4 << 30;
/// The highest epoch and number of a commit: at a thousand million a second they are reached after a century.
const COUNT_MAX: u64 = 1 << 62;
/// The most bytes of a list of leaves or of a catalog: as many as the list of all leaves that there can be.
const BLOB_BYTES_MAX: u64 = 1 << 30;

/// A structure that is written whole at each checkpoint, to two places.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Blob {
    pub block: u64,
    /// The first block of the second copy.
    pub second: u64,
    pub bytes: u64,
    pub crc: u32,
    zero: u32,
}

impl Blob {
    /// A structure of these bytes, whose copies begin at `blocks`.
    pub(crate) fn of(raw: &[u8], [block, second]: [u64; COPIES as usize]) -> Blob {
        Blob { block, second, bytes: raw.len() as u64, crc: crc32c(raw), zero: 0 }
    }

    /// Blocks that each copy takes: at least one, once it was written.
    pub(crate) fn blocks(&self) -> u64 {
        if self.block == 0 { 0 } else { self.bytes.div_ceil(PAGE_BYTES as u64).max(1) }
    }

    /// The copies' blocks.
    pub(crate) fn copies(&self) -> [Run; COPIES as usize] {
        [self.block, self.second].map(|block| Run { block, blocks: self.blocks() })
    }
}

/// Some s-node is of the class of secure deletion.
pub(crate) const ERASES: u64 = 1;
/// Bytes of such may lie where nothing knows of them: the store was not closed.
pub(crate) const LEAVES_BYTES: u64 = 2;

/// What the superblock says.
#[derive(Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Superblock {
    /// Counts checkpoints; the journal's records carry it.
    pub epoch: u64,
    pub secret: Secret,
    pub journal_block: u64,
    pub journal_blocks: u64,
    /// The number of the last commit in the checkpoint.
    pub lsn: u64,
    /// Where the leaves of descriptors are.
    pub leaves: Blob,
    pub catalog: Blob,
    /// [`ERASES`], [`LEAVES_BYTES`].
    pub flags: u64,
    /// The list of [named snapshots](crate::named); of no bytes, and nowhere, where there are none.
    pub snapshots: Blob,
}

impl Superblock {
    /// The block's bytes.
    pub(crate) fn encode(&self) -> AlignedBuf {
        let mut raw = Vec::with_capacity(PAGE_BYTES);
        let version = if self.snapshots.block == 0 { FORMAT_VERSION } else { SNAPSHOTS_VERSION };
        put(&mut raw, &[&MAGIC, &version, &(PAGE_BYTES as u32)]);
        raw.extend_from_slice(self.as_bytes());
        let mut out = AlignedBuf::zeroed(PAGE_BYTES);
        out.copy_from_slice(&seal_page(raw, PAGE_BYTES));
        out
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::Version`], [`Error::Damaged`].
    pub(crate) fn decode(raw: &[u8]) -> Result<Superblock> {
        if raw.len() != PAGE_BYTES || raw[..8] != MAGIC {
            return Err(Error::NotAStore { what: "the first block has another magic number".into() });
        }
        if unseal(raw).is_none() {
            return Err(Error::damaged("a copy of the superblock: its checksum does not hold"));
        }
        let version = u32::from_le_bytes([raw[8], raw[9], raw[10], raw[11]]);
        if !(FORMAT_VERSION..=SNAPSHOTS_VERSION).contains(&version) {
            return Err(Error::Version { found: version, known: SNAPSHOTS_VERSION });
        }
        let Ok((superblock, _)) = Superblock::read_from_prefix(&raw[16..]) else {
            return Err(Error::damaged("superblock: it is too short"));
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// Blocks of one copy of the list of leaves and of the catalog.
    pub(crate) fn list_blocks(&self) -> u64 {
        self.leaves.blocks() + self.catalog.blocks()
    }

    /// Whether these flags are set.
    pub(crate) fn has(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    /// Whether its numbers can be: what follows from them is added up and has memory taken for it.
    pub(crate) fn check(&self) -> Result<()> {
        for (what, value, max) in [
            ("epoch", self.epoch, COUNT_MAX),
            ("number of a commit", self.lsn, COUNT_MAX),
            ("number of blocks of the journal", self.journal_blocks, JOURNAL_BYTES_MAX / PAGE_BYTES as u64),
            ("length of the list of leaves", self.leaves.bytes, BLOB_BYTES_MAX),
            ("length of the catalog", self.catalog.bytes, BLOB_BYTES_MAX),
            ("length of the list of snapshots", self.snapshots.bytes, BLOB_BYTES_MAX),
        ] {
            if value > max {
                return Err(Error::damaged(format!("superblock: a {what} of {value}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_comes_back_and_any_flipped_bit_is_seen() {
        let (leaves, catalog) = (Blob::of(&[1; 6], [5, 12]), Blob::of(&[2; 9], [8, 13]));
        let sb = Superblock {
            epoch: 1,
            secret: Secret(2, 3),
            journal_block: 2,
            journal_blocks: 4,
            lsn: 11,
            leaves,
            catalog,
            flags: ERASES,
            snapshots: Blob::default(),
        };
        assert_eq!(sb.encode()[8], FORMAT_VERSION as u8);
        let kept = Superblock { snapshots: Blob::of(&[7; 3], [20, 21]), ..sb };
        assert_eq!(kept.encode()[8], SNAPSHOTS_VERSION as u8);
        assert!(Superblock::decode(&kept.encode()).unwrap() == kept);
        let raw = sb.encode();
        let back = Superblock::decode(&raw).unwrap();
        assert_eq!((back.epoch, back.lsn, back.leaves, back.catalog), (1, 11, leaves, catalog));
        assert_eq!((back.has(ERASES), back.has(LEAVES_BYTES)), (true, false));
        for change in [
            |sb: &mut Superblock| sb.epoch = u64::MAX,
            |sb: &mut Superblock| sb.lsn = u64::MAX,
            |sb: &mut Superblock| sb.journal_blocks = 1 << 31,
            |sb: &mut Superblock| sb.leaves.bytes = 1 << 43,
            |sb: &mut Superblock| sb.catalog.bytes = 1 << 43,
            |sb: &mut Superblock| sb.snapshots.bytes = 1 << 43,
        ] {
            let mut made_up = sb;
            change(&mut made_up);
            assert!(Superblock::decode(&made_up.encode()).is_err());
        }
        for at in 0..PAGE_BYTES {
            let mut bad = raw.to_vec();
            bad[at] ^= 4;
            assert!(Superblock::decode(&bad).is_err(), "byte {at}");
        }
    }
}
