//! What a served volume is at any moment, whichever front its processes use.
//!
//! [`volume`] puts it together: [`inodes`] that some process has open, with their append rings, block [`maps`] and
//! [`failures`]; [`open_files`], which descriptors stand for; [`locks`]; the [`processes`]; and what killed ones left
//! ([`leftovers`]). Clients share some of it in memory ([`weft_client::shared`]), so what they can write is validated here.
//! Nothing here knows how a request arrives.

pub mod inodes;
pub mod leftovers;
pub mod locks;
pub mod maps;
pub mod open_files;
pub mod processes;
mod shared;
pub mod volume;
pub mod writeback_errors;
