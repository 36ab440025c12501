//! The first blocks of every zone: whose zone it is and what it holds. They are two, and the same, so that a lost one costs
//! nothing.

use super::record::COUNT_MAX;
use super::{MAJOR, MINOR};
use weft_core::codec::{Reader, Truncated, put, seal_page, unseal};
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::ZonedInfo;

/// Blocks that the header takes: each is the whole header.
pub const HEADER_BLOCKS: u32 = 2;

/// First bytes of every zone of a volume.
pub const MAGIC: [u8; 8] = *b"WEFTZONE";

/// What a zone holds.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneKind {
    /// Checkpoint and journal frames.
    Meta = 1,
    /// File data.
    Data = 2,
}

/// A zone header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneHeader {
    /// The volume.
    pub uuid: [u8; 16],
    /// What the zone holds.
    pub kind: ZoneKind,
    /// Counts zone openings of the volume, so that zones can be put in order.
    pub sequence: u64,
    /// The mount that opened the zone.
    pub epoch: u64,
    /// The tag of the first data in it.
    pub tag: Tag,
    /// The zone's own number.
    pub zone: ZoneId,
    /// Zones of the device at format.
    pub zones: u32,
    /// Blocks from zone to zone.
    pub zone_blocks: u32,
    /// Writable blocks of a zone.
    pub zone_capacity: u32,
}

/// What a block of a zone's header turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// A header.
    Header(ZoneHeader),
    /// A header of a format version that is not understood.
    Unsupported(u16),
    /// Something else, or a damaged header.
    Garbage,
}

impl ZoneHeader {
    /// The header as it stands in a zone: [`HEADER_BLOCKS`] times the same block.
    pub fn encode(&self) -> Vec<u8> {
        self.block().repeat(HEADER_BLOCKS as usize)
    }

    fn block(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        let ZoneHeader { sequence, epoch, tag, zone, zones, zone_blocks, zone_capacity, .. } = self;
        put(&mut out, &[&MAGIC, &MAJOR, &MINOR, &(self.kind as u8), &[0u8; 3], &self.uuid]);
        put(&mut out, &[sequence, epoch, tag, zone, zones, zone_blocks, zone_capacity]);
        seal_page(out, BLOCK_BYTES)
    }

    /// Reads a block.
    pub fn decode(block: &[u8]) -> Decoded {
        if block.len() != BLOCK_BYTES || block[..8] != MAGIC || unseal(block).is_none() {
            return Decoded::Garbage;
        }
        let major = u16::from_le_bytes([block[8], block[9]]);
        if major != MAJOR {
            return Decoded::Unsupported(major);
        }
        match Self::fields(&block[12..]) {
            Ok(Some(header)) => Decoded::Header(header),
            _ => Decoded::Garbage,
        }
    }

    fn fields(raw: &[u8]) -> Result<Option<ZoneHeader>, Truncated> {
        let mut r = Reader::new(raw);
        let kind = match r.u8()? {
            1 => ZoneKind::Meta,
            2 => ZoneKind::Data,
            _ => return Ok(None),
        };
        r.bytes(3)?;
        let uuid = r.array()?;
        let (sequence, epoch) = (r.u64()?, r.u64()?);
        if sequence > COUNT_MAX || epoch > COUNT_MAX {
            return Ok(None);
        }
        let Some(tag) = Tag::decode(&r.array()?) else { return Ok(None) };
        let zone = ZoneId(r.u32()?);
        let (zones, zone_blocks, zone_capacity) = (r.u32()?, r.u32()?, r.u32()?);
        Ok(Some(ZoneHeader { uuid, kind, sequence, epoch, tag, zone, zones, zone_blocks, zone_capacity }))
    }

    /// Whether the header was written for a device of this shape.
    pub fn fits(&self, info: &ZonedInfo) -> bool {
        (self.zones, self.zone_blocks, self.zone_capacity)
            == (info.zones, info.zone_blocks, info.zone_capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::codec::SEAL_BYTES;

    fn header() -> ZoneHeader {
        ZoneHeader {
            uuid: [7; 16],
            kind: ZoneKind::Data,
            sequence: 9,
            epoch: 3,
            tag: Tag::METADATA,
            zone: ZoneId(5),
            zones: 64,
            zone_blocks: 1024,
            zone_capacity: 1000,
        }
    }

    #[test]
    fn a_header_comes_back_and_any_flipped_byte_makes_it_garbage() {
        let raw = header().block();
        assert_eq!(raw.len(), BLOCK_BYTES);
        assert_eq!(ZoneHeader::decode(&raw), Decoded::Header(header()));
        for at in (0..BLOCK_BYTES).step_by(7) {
            let mut bad = raw.clone();
            bad[at] ^= 0x40;
            assert_eq!(ZoneHeader::decode(&bad), Decoded::Garbage, "byte {at}");
        }
    }

    #[test]
    fn another_major_version_is_told_apart_from_garbage() {
        let mut raw = header().block();
        raw[8] = 9;
        raw.truncate(BLOCK_BYTES - SEAL_BYTES);
        assert_eq!(ZoneHeader::decode(&seal_page(raw, BLOCK_BYTES)), Decoded::Unsupported(9));
    }
}
