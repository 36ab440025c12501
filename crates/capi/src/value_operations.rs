//! The operations of chains that compute.

use crate::chain::{WeftChain, add};
use crate::error::{Failure, bad, exports};
use crate::handle::list;
use crate::values::{WeftBytes, WeftNumber, WeftValue};
use weft_vfs::compound::{Arith, Codec, Kind};

/// Where weft_chain_find finds nothing.
pub const WEFT_NOT_FOUND: u64 = 0xffffffffffffffff;

/// Addition.
pub const WEFT_ADD: u32 = 0;
/// Subtraction.
pub const WEFT_SUB: u32 = 1;
/// Multiplication.
pub const WEFT_MUL: u32 = 2;
/// Division, rounded down.
pub const WEFT_DIV: u32 = 3;
/// The remainder of a division.
pub const WEFT_REM: u32 = 4;
/// The smaller one.
pub const WEFT_MIN: u32 = 5;
/// The larger one.
pub const WEFT_MAX: u32 = 6;

/// LZ4 frames, as the command `lz4` reads them. Its level is 0.
pub const WEFT_LZ4: u32 = 0;
/// One LZ4 block, which tells neither its size nor whether it is whole. Its level is 0.
pub const WEFT_LZ4_BLOCK: u32 = 1;
/// Zstandard frames, as the command `zstd` reads them. Levels are 1 to 9, and 0 for its usual one.
pub const WEFT_ZSTD: u32 = 2;

exports! {
    /// A part of bytes. The value is bytes. Fails with ERANGE unless all of it is there.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_slice(
        chain: *mut WeftChain,
        bytes: WeftBytes,
        from: WeftNumber,
        len: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (from, len) = (arguments.num(from)?, arguments.num(len)?);
            Ok(Kind::Slice { bytes: arguments.bytes(bytes)?, from, len })
        })
    }

    /// Bytes, one behind the other; at most 255 parts. The value is bytes.
    ///
    /// # Safety
    /// The handle is open; there are `count` parts, whose bytes are there.
    fn weft_chain_concat(chain: *mut WeftChain, parts: *const WeftBytes, count: usize) -> WeftValue {
        add(chain, |arguments| {
            let parts = list(parts, count)?.iter().map(|part| arguments.bytes(*part));
            Ok(Kind::Concat { parts: parts.collect::<Result<_, _>>()? })
        })
    }

    /// The number of bytes. The value is a number.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_len(chain: *mut WeftChain, bytes: WeftBytes) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Len { bytes: arguments.bytes(bytes)? }))
    }

    /// A number in `width` (1 to 8) little-endian bytes. The value is bytes. Fails with EOVERFLOW when they do not hold it.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_pack(chain: *mut WeftChain, number: WeftNumber, width: u32) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Pack { num: arguments.num(number)?, width: width_of(width) }))
    }

    /// The number in `width` (1 to 8) little-endian bytes. The value is a number. Fails with ERANGE unless all of them are there.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_unpack(
        chain: *mut WeftChain,
        bytes: WeftBytes,
        from: WeftNumber,
        width: u32,
    ) -> WeftValue {
        add(chain, |arguments| {
            let from = arguments.num(from)?;
            Ok(Kind::Unpack { bytes: arguments.bytes(bytes)?, from, width: width_of(width) })
        })
    }

    /// Of two numbers another one (WEFT_ADD, ...). The value is a number. Fails with EOVERFLOW when it does not fit into 64 bits, is below
    /// 0, or divides by 0.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_arith(
        chain: *mut WeftChain,
        left: WeftNumber,
        arith: u32,
        right: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let arith = match arith {
                WEFT_ADD => Arith::Add,
                WEFT_SUB => Arith::Sub,
                WEFT_MUL => Arith::Mul,
                WEFT_DIV => Arith::Div,
                WEFT_REM => Arith::Rem,
                WEFT_MIN => Arith::Min,
                WEFT_MAX => Arith::Max,
                other => return Err(bad(format!("arithmetic {other}; pass one of WEFT_ADD to WEFT_MAX"))),
            };
            Ok(Kind::Arith { arith, left: arguments.num(left)?, right: arguments.num(right)? })
        })
    }

    /// The first offset, not before `from`, at which bytes have `what`, or WEFT_NOT_FOUND. The value is a number.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_find(
        chain: *mut WeftChain,
        bytes: WeftBytes,
        what: WeftBytes,
        from: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (bytes, what) = (arguments.bytes(bytes)?, arguments.bytes(what)?);
            Ok(Kind::Find { bytes, what, from: arguments.num(from)? })
        })
    }

    /// `base` with `with` in place of as many bytes at offset `at`. The value is bytes. Fails with ERANGE when `with` goes beyond the end.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_patch(
        chain: *mut WeftChain,
        base: WeftBytes,
        at: WeftNumber,
        with: WeftBytes,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (base, with) = (arguments.bytes(base)?, arguments.bytes(with)?);
            Ok(Kind::Patch { base, at: arguments.num(at)?, with })
        })
    }

    /// The CRC32C (Castagnoli) of bytes. The value is a number.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_crc32c(chain: *mut WeftChain, bytes: WeftBytes) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Crc32c { bytes: arguments.bytes(bytes)? }))
    }

    /// The chain fails with EBADMSG unless the bytes have this CRC32C.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_verify(chain: *mut WeftChain, bytes: WeftBytes, crc: WeftNumber) -> WeftValue {
        add(chain, |arguments| {
            Ok(Kind::Verify { bytes: arguments.bytes(bytes)?, crc: arguments.num(crc)? })
        })
    }

    /// Bytes, compressed (WEFT_LZ4, ...), with level 0 in the codec's usual way. The value is bytes. Fails with EINVAL when the codec has no
    /// such level.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_compress(chain: *mut WeftChain, bytes: WeftBytes, codec: u32, level: i32) -> WeftValue {
        add(chain, |arguments| {
            Ok(Kind::Compress { bytes: arguments.bytes(bytes)?, codec: codec_of(codec)?, level })
        })
    }

    /// Bytes, decompressed to at most `max` bytes. The value is bytes. Fails with EBADMSG when they are damaged, and with EMSGSIZE when they
    /// would become more.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_decompress(
        chain: *mut WeftChain,
        bytes: WeftBytes,
        codec: u32,
        max: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (bytes, codec) = (arguments.bytes(bytes)?, codec_of(codec)?);
            Ok(Kind::Decompress { bytes, codec, max: arguments.num(max)? })
        })
    }

    /// What a function makes of `input`, for at most `fuel` units: that of a WebAssembly module, which the bytes `module` are. The value is
    /// bytes. The server runs it; docs/how-to/compound-operations.md says what a module has to be and how it fails.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_call(
        chain: *mut WeftChain,
        module: WeftBytes,
        input: WeftBytes,
        fuel: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (module, input) = (arguments.bytes(module)?, arguments.bytes(input)?);
            Ok(Kind::Call { module, input, fuel: arguments.num(fuel)? })
        })
    }
}

/// A codec by its number.
pub(crate) fn codec_of(codec: u32) -> Result<Codec, Failure> {
    match codec {
        WEFT_LZ4 => Ok(Codec::Lz4),
        WEFT_LZ4_BLOCK => Ok(Codec::Lz4Block),
        WEFT_ZSTD => Ok(Codec::Zstd),
        other => Err(bad(format!("codec {other}; pass one of WEFT_LZ4 to WEFT_ZSTD"))),
    }
}

/// A width; what is not one becomes 0, which the check of the chain refuses.
fn width_of(width: u32) -> u8 {
    u8::try_from(width).unwrap_or(0)
}
