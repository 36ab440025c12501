//! What a policy would do, tried on a model before it is tried on a device.
//!
//! A [`workload`] is a list of file events: made by a generator that behaves like leveled RocksDB, or read from a
//! [`recording`]. [`replay()`] plays it against an engine, a resolver and a model of zones with a greedy cleaner, and
//! tells the write amplification. Extents, journals and timing are left out: what is compared is where data goes.
//! Deterministic: the same events, engine and volume give the same numbers on every machine.

pub mod lsm;
pub mod recording;
pub mod replay;
pub mod workload;

pub use recording::BadRecording;
pub use replay::{Outcome, Volume, replay};
pub use workload::{Event, Opener, Workload};
