//! The C interface to flash at three levels and to tag stores: `include/weft.h`, which a test makes from these files.
//!
//! Names are those of Prism-SSD's library, and of ADAPT for tag stores, with `weft_` before them. Every function returns 0 or a negative [`code`];
//! [`weft_error_message`] has the text of the calling thread's last error. Handles are made by this library, may be used by
//! several threads at once, and are closed once, when no call on them is under way. Times are virtual: each level has a
//! clock that a call moves to the end of what it did.

pub mod code;
mod error;
mod function;
mod handle;
mod keyed;
mod maps;
mod monitor;
mod policy;
mod raw;
mod sessions;
mod snapshots;
mod snodes;
mod store;
mod tag;

pub use error::weft_error_message;
pub use function::*;
pub use keyed::*;
pub use maps::*;
pub use monitor::*;
pub use policy::*;
pub use raw::*;
pub use sessions::*;
pub use snapshots::*;
pub use snodes::*;
pub use store::*;
pub use tag::WeftTag;
