//! A frame: what metadata zones are made of. A frame is a header, a payload and zeros up to the next block.
//!
//! Frames of one mount (epoch) carry consecutive sequence numbers across zones; the payload is records
//! ([`super::record`] in journal entries, [`super::checkpoint`] in checkpoint parts), whole transactions only.

use super::record::COUNT_MAX;
use weft_core::BLOCK_BYTES;
use weft_core::codec::{Reader, Truncated, put, seal, unseal};

/// First bytes of a frame.
pub const MAGIC: u32 = u32::from_le_bytes(*b"WFRM");
/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 64;
/// Largest transaction, in bytes of records: an attribute of the largest size, and then some.
pub const TRANSACTION_MAX: usize = 72 * 1024;

/// What a frame holds.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A journal entry.
    Entry = 1,
    /// A part of a checkpoint.
    Part = 2,
    /// The end of a checkpoint: only with it the parts before count.
    End = 3,
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// What the frame holds.
    pub kind: FrameKind,
    /// Of a checkpoint's end: the volume was closed with it.
    pub clean: bool,
    /// The mount that wrote the frame.
    pub epoch: u64,
    /// The frame's number; consecutive.
    pub seq: u64,
    /// Frames up to this number, and all data written before them, were durable when this one was written.
    pub flushed_upto: u64,
    /// Bytes that the volume had taken from programs.
    pub volume_bytes: u64,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// First 8 bytes of the volume's UUID.
    pub volume: u64,
    /// Of a checkpoint's end: its parts, which are the frames just before.
    pub parts: u32,
}

impl FrameHeader {
    /// The header as it stands on the device.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        let FrameHeader { kind, clean, epoch, seq, flushed_upto, volume_bytes, .. } = self;
        put(&mut out, &[&MAGIC, &(*kind as u8), clean, &0u16, epoch, seq, flushed_upto, volume_bytes]);
        put(&mut out, &[&self.payload_len, &self.payload_crc, &self.volume, &self.parts]);
        seal(&mut out);
        let mut raw = [0; HEADER_BYTES];
        raw.copy_from_slice(&out);
        raw
    }

    /// Reads a header; `None` when there is none.
    pub fn decode(raw: &[u8]) -> Option<FrameHeader> {
        let raw = raw.get(..HEADER_BYTES)?;
        Self::fields(unseal(raw)?).ok().flatten()
    }

    fn fields(raw: &[u8]) -> Result<Option<FrameHeader>, Truncated> {
        let mut r = Reader::new(raw);
        if r.u32()? != MAGIC {
            return Ok(None);
        }
        let kind = match r.u8()? {
            1 => FrameKind::Entry,
            2 => FrameKind::Part,
            3 => FrameKind::End,
            _ => return Ok(None),
        };
        let clean = r.u8()? != 0;
        r.u16()?;
        let [epoch, seq, flushed_upto, volume_bytes] = [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        if [epoch, seq, volume_bytes].iter().any(|count| *count > COUNT_MAX) {
            return Ok(None);
        }
        Ok(Some(FrameHeader {
            kind,
            clean,
            epoch,
            seq,
            flushed_upto,
            volume_bytes,
            payload_len: r.u32()?,
            payload_crc: r.u32()?,
            volume: r.u64()?,
            parts: r.u32()?,
        }))
    }

    /// Blocks of the whole frame.
    pub fn blocks(&self) -> u32 {
        frame_blocks(self.payload_len as usize)
    }
}

/// Blocks of a frame with a payload of `len` bytes.
pub const fn frame_blocks(len: usize) -> u32 {
    (HEADER_BYTES + len).div_ceil(BLOCK_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_comes_back_and_a_flipped_byte_is_seen() {
        let header = FrameHeader {
            kind: FrameKind::End,
            clean: true,
            epoch: 4,
            seq: 17,
            flushed_upto: 12,
            volume_bytes: 1 << 40,
            payload_len: 9000,
            payload_crc: 5,
            volume: 77,
            parts: 3,
        };
        let raw = header.encode();
        assert_eq!(FrameHeader::decode(&raw), Some(header));
        assert_eq!(header.blocks(), 3);
        for at in 0..HEADER_BYTES {
            let mut bad = raw;
            bad[at] ^= 1;
            assert_eq!(FrameHeader::decode(&bad), None, "byte {at}");
        }
    }
}
