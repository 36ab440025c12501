//! The metadata in memory: what records change and checkpoints save.

pub mod block_set;
pub mod directory;
pub mod dirty;
pub mod extent_map;
pub mod inode;
pub mod inodes;
pub mod names;
pub mod rarely;
pub mod runs;
pub mod tree;
