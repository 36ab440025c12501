//! The C interface to flash at three levels, to tag stores and to programs of file operations: `include/weft.h`, which a test makes from
//! these files.
//!
//! Names are those of Prism-SSD's library, and of ADAPT for tag stores, with `weft_` before them. A function returns 0 or a negative
//! [`code`], except for those that make a value of a chain; [`weft_error_message`] has the text of the calling thread's last error.
//! Handles are made by this library, may be used by several threads at once, and are closed once, when no call on them is under way.
//! Times of flash are virtual: each level has a clock that a call moves to the end of what it did.

mod answer;
mod batch;
mod chain;
pub mod code;
mod error;
mod file_operations;
mod files;
mod function;
mod handle;
mod keyed;
mod maps;
mod monitor;
mod one_call;
mod policy;
mod raw;
mod sessions;
mod snapshots;
mod snodes;
mod store;
mod tag;
mod value_operations;
mod values;

pub use answer::*;
pub use batch::*;
pub use chain::*;
pub use error::{weft_error_errno, weft_error_message};
pub use file_operations::*;
pub use files::*;
pub use function::*;
pub use keyed::*;
pub use maps::*;
pub use monitor::*;
pub use one_call::*;
pub use policy::*;
pub use raw::*;
pub use sessions::*;
pub use snapshots::*;
pub use snodes::*;
pub use store::*;
pub use tag::WeftTag;
pub use value_operations::*;
pub use values::*;
