//! Every durable byte: one file per structure. `docs/formats/lfs.md` draws them.

pub mod checkpoint;
pub mod footer;
pub mod frame;
pub mod record;
pub mod zone_header;

/// Major version of the format; a reader refuses any other.
pub const MAJOR: u16 = 2;
/// Minor version; a reader accepts any.
pub const MINOR: u16 = 0;

/// Bytes of a block, as a 64-bit number.
pub const BLOCK: u64 = weft_core::BLOCK_BYTES as u64;

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = (1 << 62) - 4096;

/// A length rounded up to the alignment of pieces.
pub fn piece_space(len: u32) -> u32 {
    len.next_multiple_of(weft_vfs::MapEntry::ALIGN as u32)
}
