//! A file core on the tag store.
//!
//! An i-node is an s-node: its owner, group, mode, class and flags are the s-node's tags, so that each page with data of a file
//! carries what is known of the file. Directory entries, extended attributes and blocks hang on the root of the s-node by edges. Each
//! operation is one transaction of the store, and a program of several changes is one, too. Allocation, caching, recovery,
//! check, backup, shrinking and salvage are the store's, and nothing of them is here.
//!
//! ```text
//! fs ---------> step ------> data ---> graph ---> weft_tags
//! the traits    one          written   how files
//! of vfs        transaction  blocks    lie in the store
//! ```
//!
//! The idea is that of "ADAPT: An auxiliary storage data path toolkit" (Journal of Systems Architecture 2020), section 5.3. How it
//! works: `docs/architecture.md`; what lies in the nodes: `docs/formats/tagfs.md`.
//!
//! ```
//! use weft_tagfs::{FormatOptions, MountOptions, TagFs};
//! use weft_tags::MemoryStore;
//! use weft_vfs::{CreateArgs, FileSystem, Ino, NewNode};
//! use std::sync::Arc;
//!
//! let medium = Arc::new(MemoryStore::new());
//! TagFs::format(Box::new(medium.clone()), &FormatOptions::default())?;
//! let fs = TagFs::mount(Box::new(medium), MountOptions::default())?;
//! let file = fs.create(Ino::ROOT, b"file", &CreateArgs::new(NewNode::File, 0o644))?;
//! fs.write(file.ino, 0, b"hello")?;
//! fs.fsync(file.ino)?;
//! assert_eq!(fs.lookup(Ino::ROOT, b"file")?.size, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attributes;
mod block_map;
mod check;
mod data;
mod error;
mod fs;
mod graph;
mod inode;
mod layout;
mod mount;
mod namespace;
mod options;
mod quota;
mod record;
mod state;
mod step;
mod watch;

pub use check::CheckReport;
pub use error::TagFsError;
pub use fs::TagFs;
pub use inode::CLASS_XATTR;
pub use options::{FormatOptions, Layout, MountOptions};
