//! Where data goes: streams, lifetime groups, rules, modes.
//!
//! Pure decisions, no I/O: from what is known of a file ([`FileContext`]) to the [`Tag`](weft_core::Tag) that its data
//! carries ([`Engine`]), and from tags to the few places that can be open at once ([`Resolver`], [`budget()`]). The crate
//! knows nothing of how files are stored or programs are hooked.
//!
//! ```
//! use weft_placement::{Engine, FileContext, Mode, Resolver, ZoneResolver};
//!
//! let engine = Engine::new(Mode::Rules, None, 0)?;
//! let log = engine.place(&FileContext { process: "db_bench", ..FileContext::new(b"/db/000004.log") });
//! let table = engine.place(&FileContext {
//!     process: "db_bench",
//!     thread: "rocksdb:low",
//!     ..FileContext::new(b"/db/000012.sst")
//! });
//! assert_eq!(engine.stream_name(log.stream), Some("rocksdb.wal"));
//! assert_eq!(engine.stream_name(table.stream), Some("rocksdb.compaction"));
//!
//! let mut zones = ZoneResolver::new();
//! assert_ne!(zones.slot(&log, 8), zones.slot(&table, 8));
//! assert_eq!(zones.slot(&log, 1), zones.slot(&table, 1));
//! # Ok::<(), weft_placement::PolicyError>(())
//! ```

pub mod budget;
pub mod context;
pub mod engine;
pub mod estimate;
pub mod explain;
mod group;
mod hash;
pub mod mode;
pub mod name;
pub mod policy;
pub mod recording;
pub mod resolver;
pub mod share;
pub mod temperature;

pub use budget::budget;
pub use context::{FileContext, OpenIntent, WriteHint};
pub use engine::{Engine, StreamInfo};
pub use estimate::LifetimeSummary;
pub use explain::{Explanation, TriedRule, Verdict};
pub use mode::{BadMode, Mode};
pub use policy::{Policy, PolicyError};
pub use resolver::{Resolver, ZoneResolver};
pub use temperature::write_hint;
