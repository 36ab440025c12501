//! Compression and decompression, in one go.
//!
//! lz4 is `lz4_flex` with its safe code, zstd is the C library by the crate `zstd`. What is decompressed is bounded before memory is taken for
//! it: by what its bytes say of it where they say it, otherwise by what they can come to at most, and by the caller's limit in any case.
//! What is compressed is at most a tenth longer than its input while it is made, and is compared with the limit then.

use crate::Error;
use lz4_flex::block::{DecompressError, get_maximum_output_size};
use lz4_flex::frame::{FrameDecoder, FrameEncoder, FrameInfo};
use std::io::{Read, Write};
use weft_core::refuse;
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer};
use zstd_safe::zstd_sys::{ZSTD_EndDirective, ZSTD_ErrorCode};

/// The highest level of a codec. zstd has higher ones, which take more time and memory than one caller of many should get.
pub const LEVEL_MAX: i32 = 9;

/// Bytes that zstd compresses between two check points of [`compress_in_slices`]: about 100 us at its usual level.
pub const SLICE_BYTES: usize = 32 << 10;
/// Bytes by which a slice can make a frame longer that does not get shorter: the header of a block.
const ZSTD_SLICE_EXTRA_BYTES: usize = 16;

/// Bytes of memory that are cleared for the blocks of LZ4 frames, at most.
const LZ4_CLEARED_MAX: usize = 256 << 20;

/// A codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// LZ4 frames, as the command `lz4` writes and reads them, with the size and a checksum of the content. Its one level is 0.
    Lz4,
    /// One LZ4 block, as table files hold it: it tells neither its size nor whether it is whole. Its one level is 0.
    Lz4Block,
    /// Zstandard frames, as the command `zstd` writes and reads them, with the size and a checksum of the content. Levels are 1 to
    /// [`LEVEL_MAX`]; 0 is zstd's usual one (3).
    Zstd,
}

impl Codec {
    /// Whether it has this level.
    pub fn has_level(self, level: i32) -> bool {
        match self {
            Codec::Lz4 | Codec::Lz4Block => level == 0,
            Codec::Zstd => (0..=LEVEL_MAX).contains(&level),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "LZ4 frames",
            Codec::Lz4Block => "an LZ4 block",
            Codec::Zstd => "Zstandard frames",
        }
    }
}

/// Compresses `bytes` to at most `max` bytes.
///
/// # Errors
/// [`Error::Level`]; [`Error::TooLong`] when the result has more than `max` bytes; [`Error::NoMemory`].
pub fn compress(bytes: &[u8], codec: Codec, level: i32, max: usize) -> Result<Vec<u8>, Error> {
    compress_in_slices(bytes, codec, level, max, None)
}

/// The same, with a call of `between` after each [`SLICE_BYTES`] that zstd has compressed: each is a block of its own then, so the frame is a
/// little longer. The other codecs go on to the end.
///
/// # Errors
/// Those of [`compress`].
pub fn compress_in_slices(
    bytes: &[u8],
    codec: Codec,
    level: i32,
    max: usize,
    between: Option<&mut dyn FnMut()>,
) -> Result<Vec<u8>, Error> {
    if !codec.has_level(level) {
        let levels = if codec == Codec::Zstd { "0 to 9" } else { "0" };
        return Err(Error::Level { codec: codec.name(), level, levels });
    }
    let packed = match codec {
        Codec::Lz4 => compress_lz4_frame(bytes)?,
        Codec::Lz4Block => {
            let mut packed = room(get_maximum_output_size(bytes.len()))?;
            packed.resize(packed.capacity(), 0);
            let len = lz4_flex::block::compress_into(bytes, &mut packed)
                .map_err(|_| Error::NoMemory("a compressor"))?;
            packed.truncate(len);
            packed
        }
        Codec::Zstd => {
            // The bound is that of whole blocks; the end of each slice may add the header of one.
            let slices = bytes.len() / SLICE_BYTES + 1;
            let mut packed = room(zstd_safe::compress_bound(bytes.len()) + slices * ZSTD_SLICE_EXTRA_BYTES)?;
            let mut context = zstd_safe::CCtx::try_create().ok_or(Error::NoMemory("a compressor"))?;
            context
                .set_parameter(CParameter::CompressionLevel(level))
                .and_then(|_| context.set_parameter(CParameter::ChecksumFlag(true)))
                .ok()
                .and_then(|_| match between {
                    None => context.compress2(&mut packed, bytes).ok(),
                    Some(between) => zstd_in_slices(&mut context, bytes, &mut packed, between),
                })
                .ok_or(Error::NoMemory("a compressor"))?;
            packed
        }
    };
    refuse(packed.len() > max, Error::TooLong { max })?;
    Ok(packed)
}

/// Decompresses `bytes` to at most `max` bytes. Frames that follow each other become one result.
///
/// # Errors
/// [`Error::Corrupt`]; [`Error::TooLong`] when the result has more than `max` bytes; [`Error::NoMemory`].
pub fn decompress(bytes: &[u8], codec: Codec, max: usize) -> Result<Vec<u8>, Error> {
    refuse(bytes.is_empty(), Error::Corrupt(codec.name()))?;
    match codec {
        Codec::Lz4 => decompress_lz4_frames(bytes, max),
        Codec::Lz4Block => {
            // A byte of a block adds 255 bytes at most.
            let mut unpacked = room(bytes.len().saturating_mul(255).min(max))?;
            unpacked.resize(unpacked.capacity(), 0);
            let len =
                lz4_flex::block::decompress_into(bytes, &mut unpacked).map_err(|error| match error {
                    DecompressError::OutputTooSmall { .. } => Error::TooLong { max },
                    _ => Error::Corrupt(codec.name()),
                })?;
            unpacked.truncate(len);
            Ok(unpacked)
        }
        Codec::Zstd => {
            let bound = zstd::bulk::Decompressor::upper_bound(bytes).ok_or(Error::Corrupt(codec.name()))?;
            // The size that the first frame tells, without which the bound is the result's size or more.
            let is_longer = zstd::decompressed_size(bytes).is_some_and(|first| first > max as u64);
            refuse(is_longer, Error::TooLong { max })?;
            let mut unpacked = room(bound.min(max))?;
            let mut context = zstd_safe::DCtx::try_create().ok_or(Error::NoMemory("a decompressor"))?;
            context.decompress(&mut unpacked, bytes).map_err(|code| {
                let is_longer = zstd_safe::is_error_kind(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall);
                if is_longer { Error::TooLong { max } } else { Error::Corrupt(codec.name()) }
            })?;
            Ok(unpacked)
        }
    }
}

/// Compresses slice by slice: how many bytes came, if there was room and memory for them.
fn zstd_in_slices(
    context: &mut CCtx<'_>,
    bytes: &[u8],
    packed: &mut Vec<u8>,
    between: &mut dyn FnMut(),
) -> Option<usize> {
    context.set_pledged_src_size(Some(bytes.len() as u64)).ok()?;
    let capacity = packed.capacity();
    let mut out = OutBuffer::around(packed);
    let mut slices = bytes.chunks(SLICE_BYTES).peekable();
    loop {
        let mut slice = InBuffer::around(slices.next().unwrap_or_default());
        let is_last = slices.peek().is_none();
        let directive = if is_last { ZSTD_EndDirective::ZSTD_e_end } else { ZSTD_EndDirective::ZSTD_e_flush };
        while context.compress_stream2(&mut out, &mut slice, directive).ok()? > 0 {
            if out.pos() == capacity {
                return None;
            }
        }
        if is_last {
            return Some(out.pos());
        }
        between();
    }
}

/// An empty vector with room for this many bytes.
fn room(len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Error::NoMemory("a result"))?;
    Ok(bytes)
}

fn compress_lz4_frame(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let info = FrameInfo::new().content_size(Some(bytes.len() as u64)).content_checksum(true);
    // A block that does not get shorter is stored as it is, behind its size.
    let packed = room(bytes.len() + bytes.len() / 1024 + 64)?;
    let mut encoder = FrameEncoder::with_frame_info(info, packed);
    let written = encoder.write_all(bytes).map_err(lz4_flex::frame::Error::IoError);
    written.and_then(|()| encoder.finish()).map_err(|_| Error::NoMemory("a compressor"))
}

fn decompress_lz4_frames(bytes: &[u8], max: usize) -> Result<Vec<u8>, Error> {
    let corrupt = || Error::Corrupt(Codec::Lz4.name());
    let mut frames = Vec::new();
    let (mut rest, mut bound, mut told, mut cleared) = (bytes, 0usize, 0usize, 0usize);
    while !rest.is_empty() {
        let frame = Lz4Frame::at(rest).ok_or_else(corrupt)?;
        bound = bound.saturating_add(frame.content_max);
        told = told.saturating_add(if frame.tells_size { frame.content_max } else { 0 });
        refuse(told > max, Error::TooLong { max })?;
        cleared = cleared.saturating_add(frame.cleared);
        refuse(cleared > LZ4_CLEARED_MAX, Error::NoMemory("the blocks of LZ4 frames"))?;
        let (frame, behind) = rest.split_at(frame.len);
        frames.push(frame);
        rest = behind;
    }
    let mut unpacked = room(bound.min(max))?;
    for frame in frames {
        let left = (max - unpacked.len()) as u64;
        let mut decoder = FrameDecoder::new(frame).take(left.saturating_add(1));
        let read = decoder.read_to_end(&mut unpacked).map_err(|_| corrupt())?;
        if read as u64 > left {
            return Err(Error::TooLong { max });
        }
        // The decoder takes an empty block for the end, and does not look at what is behind it.
        refuse(!decoder.into_inner().into_inner().is_empty(), corrupt())?;
    }
    Ok(unpacked)
}

/// The extent of an LZ4 frame, by its header and those of its blocks: the decoder takes one that is cut between two blocks for whole.
struct Lz4Frame {
    /// Its bytes.
    len: usize,
    /// Bytes of its content, at most.
    content_max: usize,
    /// Whether that is their number.
    tells_size: bool,
    /// Bytes of memory that its decoder clears for its blocks, however short these are.
    cleared: usize,
}

impl Lz4Frame {
    const MAGIC: u32 = 0x184D_2204;
    const BLOCK_CHECKSUMS: u8 = 1 << 4;
    const CONTENT_SIZE: u8 = 1 << 3;
    const CONTENT_CHECKSUM: u8 = 1 << 2;
    const DICTIONARY: u8 = 1 << 0;
    /// In a block's size: it is not compressed.
    const STORED: u32 = 1 << 31;

    /// The frame that `bytes` begin with.
    fn at(bytes: &[u8]) -> Option<Lz4Frame> {
        let num = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let flags = *bytes.get(4)?;
        if num(0)? != Lz4Frame::MAGIC || flags & Lz4Frame::DICTIONARY != 0 {
            return None;
        }
        let size = if flags & Lz4Frame::CONTENT_SIZE == 0 {
            None
        } else {
            Some(u64::from_le_bytes(*bytes.get(6..)?.first_chunk()?))
        };
        let mut at = if size.is_some() { 15 } else { 7 };
        // 64 KiB, 256 KiB, 1 MiB or 4 MiB; the decoder refuses others.
        let block_max = 1usize << (8 + 2 * u32::from(*bytes.get(5)? >> 4 & 7));
        let (mut blocks_max, mut cleared) = (0usize, 0usize);
        loop {
            let block = num(at)?;
            at += 4;
            if block == 0 {
                break;
            }
            let len = (block & !Lz4Frame::STORED) as usize;
            cleared = cleared.saturating_add(block_max);
            let grows = if block & Lz4Frame::STORED == 0 { 255 } else { 1 };
            blocks_max = blocks_max.saturating_add(len.saturating_mul(grows));
            at += len + if flags & Lz4Frame::BLOCK_CHECKSUMS == 0 { 0 } else { 4 };
        }
        at += if flags & Lz4Frame::CONTENT_CHECKSUM == 0 { 0 } else { 4 };
        let told = size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let is_whole = at <= bytes.len();
        is_whole.then(|| Lz4Frame {
            len: at,
            content_max: told.unwrap_or(blocks_max),
            tells_size: told.is_some(),
            cleared,
        })
    }
}
