//! Policies: TOML files that assign files to streams.
//!
//! A policy names streams and, in order, the rules that send files to them; the first rule that matches decides. It is
//! compiled when it is read: the patterns of one kind are one automaton, and each rule is a bit, so that finding the
//! rule costs one pass over the name and a few ands, however many rules there are.

mod compile;
mod describe;
mod error;
mod file;
mod shipped;
mod stream;

pub use compile::{Applies, FileProperty, Match, Policy, Rule};
pub use error::{PolicyError, Problem};
pub use file::SplitBy;
pub use stream::{GroupKey, GroupSpec, SLOTS_MAX, SPLIT_MAX, Split, StreamSpec, Window};
