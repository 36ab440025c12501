//! System calls that the standard library does not have, each with a safe face.

pub mod file;
pub mod heap;
pub mod limit;
pub mod memory;
pub mod process;
pub mod signal;
pub mod terminal;
pub mod time;
pub mod xattr;
