//! Functions of libc that reach files by its inner functions, which no hook sees: they are done here by those that are hooked.

pub mod fts;
pub mod print;
pub mod temp;
pub mod walk;
pub mod wide;
