//! Ground of weft: what every layer above shares and nothing else.
//!
//! - [`ids`]: newtypes for what must not be mixed up.
//! - [`tag`]: the [`Tag`] that travels with every write, through every layer.
//! - [`credentials`]: by whose rights a call is made.
//! - [`checksum`]: CRC32C, the one checksum of every on-disk format.
//! - [`codec`]: bounded little-endian reading and writing of records.
//! - [`random`]: numbers that are a function of their seed.
//! - [`markers`]: finds bytes that must not be on a medium.
//! - [`hist`]: a latency histogram that also works in shared memory.
//! - [`padded`]: a value on cache lines of its own.
//! - [`text`]: the characters that a name must not have.
//! - [`units`]: the one place where a number changes its unit.

pub mod append_log;
pub mod cached;
pub mod checksum;
pub mod codec;
pub mod credentials;
pub mod frame;
pub mod hist;
pub mod ids;
pub mod markers;
pub mod padded;
pub mod random;
#[cfg(feature = "serve")]
pub mod serve;
pub mod tag;
pub mod text;
pub mod units;

pub use credentials::{Capabilities, Capability, Credentials};
pub use ids::{Ino, LifetimeGroup, Nanos, StreamId, ZoneId};
pub use tag::{DataClass, Origin, Tag, TagFlags};

/// Bytes of a block: the smallest unit that a device takes and a file maps.
pub const BLOCK_BYTES: usize = 4096;

/// The error, where `is_wrong` holds: a check as one statement.
#[inline]
pub fn refuse<E>(is_wrong: bool, error: E) -> Result<(), E> {
    if is_wrong { Err(error) } else { Ok(()) }
}
