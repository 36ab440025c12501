//! Computation on bytes for whoever holds the data: codecs, and functions that a user brings along.
//!
//! Everything here is bytes in, bytes out, within limits that hold before the work is done: a [codec](Codec) never makes more than its caller
//! has room for, and a [function](Module) has no way to anything but its own memory. The crate knows no files and no programs.
//!
//! ```
//! use weft_compute::{Codec, compress, decompress};
//!
//! let packed = compress(&[7; 10_000], Codec::Zstd, 0, 1_000)?;
//! assert_eq!(decompress(&packed, Codec::Zstd, 10_000)?, [7; 10_000]);
//! // Who has room for 9,999 bytes gets an error, and takes no memory for the result.
//! assert!(decompress(&packed, Codec::Zstd, 9_999).is_err());
//! # Ok::<(), weft_compute::Error>(())
//! ```

mod codec;
mod error;
mod function;

pub use codec::{Codec, LEVEL_MAX, SLICE_BYTES, compress, compress_in_slices, decompress};
pub use error::Error;
pub use function::{
    EXPORTS_MAX, FUEL_MAX, LOCALS_MAX, Limits, MEMORY_BYTES_MAX, MODULE_BYTES_MAX, MODULES_BYTES_MAX,
    MODULES_MAX, Module, Modules, Returned, SLICE_NS, STACK_BYTES_MAX, TABLE_ELEMENTS_MAX,
};
