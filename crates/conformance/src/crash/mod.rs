//! The crash oracle: what must be on a volume after its power was cut.
//!
//! A [`Recorder`] runs operations on a core and remembers each one, and each promise that `fsync` and `sync` made.
//! When the core fails because its device lost power, and has been opened again from what the device kept,
//! [`Recorder::check`] judges what is there:
//!
//! - **Metadata** (names, links, modes, extended attributes, symlinks, truncates, blocks punched or moved) is the state after some prefix of
//!   the metadata operations, and the prefix has in it everything that had happened at the last promise. Nothing is
//!   half done; the operation that was under way is done or not.
//! - **A file's data** up to its last promise is there, unless something that came later replaced it.
//! - **Later data** is there, in part, or not at all, but is never anything else: each block is as it was after one of
//!   the writes to it; what was appended is there up to some byte. A byte that was appended never reads as zero,
//!   unless a write past the end or a truncate made the file longer than what was stored of it.
//! - The tree is sound in itself: link counts, parents, lookups and listings agree, and `statfs` counts no inode that
//!   cannot be reached.
//!
//! ```text
//! events:   create a | write a | fsync a | write a | create b | rename b c | write c | (cut)
//!                                   ^promise: a, its data, all names so far
//! names:                            |- one of:  a  -  a b  -  a c ---------|
//! a:                                |- with or without each block of the second write
//! c:                                                          |- any prefix of what was appended
//! ```
//!
//! [`survive_cuts`] is the driver: it cuts at every k-th device operation of a [`CrashCase`], on a [`Rig`] that a core
//! supplies. [`programs`] does the same for compound programs.

mod check;
mod content;
mod cuts;
pub mod programs;
mod recorder;
mod tree;
mod workload;

pub use check::Violation;
pub use cuts::{Casualty, CrashCase, CutReport, End, Rig, run_until_error, survive_cuts, takes_new_writes};
pub use recorder::Recorder;
pub(crate) use recorder::is_power_cut;
