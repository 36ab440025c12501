//! The commands, one file each.

pub mod archive;
pub mod btree;
pub mod compare;
pub mod copy;
pub mod files;
pub mod flash;
pub mod format;
pub mod fsck;
pub mod hints;
pub mod kv;
pub mod lab;
pub mod list;
pub mod policy;
pub mod replay;
pub mod run;
pub mod salvage;
pub mod serve;
pub mod stats;
pub mod tags;
pub mod zones;
