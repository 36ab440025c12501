//! The eviction policies of a tag store's cache, under the requests of a web server.
//!
//! The policies and orders are those that the store itself calls ([`weft_tags::Evictor`]); here the frames are numbers, and a miss costs what a
//! modelled device takes. Beside them there are the exact LRU of the papers (ADAPT, section 5.4), which the store only approximates, and S3-FIFO.

mod frames;
mod lru;
mod replay;
mod s3_fifo;
mod web;

pub use frames::Cache;
pub use lru::{ExactLru, LruOrder};
pub use replay::{DeviceModel, Replay, replay};
pub use s3_fifo::{S3Fifo, S3FifoOrder};
pub use web::{SMALL_FILE_BYTES, WebSetup, WebTrace};
