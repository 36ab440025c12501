//! The suite that every core must pass.
//!
//! Four parts, each stronger and slower than the one before:
//!
//! - **Properties** ([`run_all`], [`conformance_tests!`](crate::conformance_tests)): one function per sentence that a
//!   core must make true, with the exact error variant where one is due.
//! - **[`model`]**: random operations on a core and on [`MemFs`](weft_vfs::MemFs), compared after each one.
//! - **[`crash`]**: workloads that remember what was promised, and judge what is there after a power cut; one of them is of
//!   [`programs`].
//! - **[`erase`]**: what is deleted securely is not on the medium any more, whenever the power fails.
//!
//! A core's `tests/conformance.rs` is:
//!
//! ```
//! # use weft_vfs::{FileSystem, MemFs};
//! fn make() -> Box<dyn FileSystem> {
//!     Box::new(MemFs::new())
//! }
//! weft_conformance::conformance_tests!(make);
//! # fn main() {}
//! ```
//!
//! `make` gives an empty volume that stores at least 64 MiB and 20,000 inodes. A property fails by panicking, as tests do.
//!
//! What the suite holds a core to where [`FileSystem`] leaves words short:
//!
//! | case | error |
//! |---|---|
//! | a name longer than [`NAME_MAX`](weft_vfs::NAME_MAX), a symlink target of [`PATH_MAX`](weft_vfs::PATH_MAX) bytes or more | `NameTooLong` |
//! | an entry operation in what is no directory | `NotDirectory` |
//! | a new name in a removed directory that is still open | `NotFound` |
//! | data operations on a directory | `IsDirectory` |
//! | data operations on a symlink or special file; `readlink` of anything else | `Invalid` |
//! | a range beyond 2^63 - 1 | `TooLarge` |
//! | `fallocate` of an empty range; collapse or insert of part of a block, or at or past the end | `Invalid` |
//! | a hard link of a directory | `NotPermitted` |
//! | the 65,001st name of a file | `TooManyLinks` |
//! | rename with EXCHANGE and another flag, or of a directory to below itself | `Invalid` |
//! | rename over a directory above the source | `NotEmpty` |
//! | exchange with a name that does not exist | `NotFound` |
//! | an extended attribute's name over 255 bytes or value over [`XATTR_VALUE_MAX`](weft_vfs::XATTR_VALUE_MAX) | `AttributeTooLarge` |
//! | an inode that is gone | `Stale` |

// A property fails by panicking: what it unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod attributes;
pub mod concurrency;
pub mod content;
pub mod crash;
pub mod erase;
pub mod links;
pub mod listing;
pub mod model;
pub mod names;
pub mod open_files;
pub mod programs;
pub mod ranges;
pub mod rename;
pub mod scale;
pub mod space;

mod fixture;
mod list;

use weft_vfs::FileSystem;

/// Makes an empty volume.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn FileSystem>;

/// One sentence that a core must make true.
#[derive(Clone, Copy)]
pub struct Property {
    /// The sentence, as the name of its function: `module::a_sentence_in_snake_case`.
    pub name: &'static str,
    /// Panics when the sentence is false.
    pub prove: fn(Make<'_>),
}

/// Proves every property, each on a fresh volume. Panics at the first that is false.
pub fn run_all(make: Make<'_>) {
    for property in properties() {
        (property.prove)(make);
    }
}

/// Every property.
pub fn properties() -> &'static [Property] {
    list::PROPERTIES
}
