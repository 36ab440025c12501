//! The user library of a weft volume: what the preload front and programs written for weft link.
//!
//! A [`Client`] is one process's connection to the server that owns the volume. Its operations neither allocate nor use
//! libc's hooked entries nor panic, so that they can run inside a preloaded library at any moment. What a lease allows
//! happens here without the server: appends are a copy into a shared ring, reads follow the shared block map to the
//! device's image. Everything else is a call through a slot of the process's channel.
//!
//! Errors are positive errno values. When the server dies, every operation returns `EIO`.

pub mod advice;
mod batch;
pub mod busy;
pub mod patience;
mod programs;
pub mod proto;
pub mod scratch;
pub mod shared;
pub mod sys;

mod call;
mod client;
mod connect;
mod duplicates;
mod durable;
mod files;
mod here;
mod identity;
mod lease;
mod lease_use;
mod listing;
mod long_write;
mod lookup;
mod mounted;
mod names;
mod one_file;
mod opening;
mod overwrite;
mod plainly;
mod records;
pub mod stepping;

pub use batch::{Batch, Posted};
pub use client::{Child, Client, ForkTicket, OpenFile, before_own_descriptor_closes};
pub use connect::ConnectOptions;
pub use identity::Changed;
pub use mounted::run_program_at;
pub use names::{AttrChange, LockRange, OpenPath, RESOLVED_MAX, Resolution};
pub use programs::Prepared;
pub use proto::{FileRef, OUTSIDE, WireAttr, WireDirent, WireStatfs};
pub use sys::Errno;
/// What clients pass on of the volume's types.
pub use weft_vfs::{InodeFlags, XFlags, flag_request};
