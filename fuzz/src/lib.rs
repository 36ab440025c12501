//! Fuzzing on a stable compiler: `suites/fuzz.sh [SECONDS] [TARGET...]`.
//!
//! A [`Target`] makes something of any bytes: a text to parse, or a script of damages to an image or of a client's deeds.
//! [`mod@drive`] keeps a corpus of inputs, changes them ([`mutate`]) and keeps what reaches new code. What code was reached is
//! read from the counters that `-C instrument-coverage` puts into the program ([`coverage`]); without them, as in the
//! ordinary tests, all inputs are equal and the search is a random one.
//!
//! A finding is a panic in any thread, an abort, more memory than [`guard::MEMORY_MAX`] or more time than
//! [`guard::PATIENCE`] for one input. The input is then in the folder of findings, and `weft-fuzz TARGET --replay FILE`
//! does it again. Inputs that once were findings are in `regressions/` and are replayed by the ordinary tests.

// A panic is how a target tells of a finding, also one before its first input.
#![allow(clippy::expect_used)]

/// The command's reader and writer of archives; it has no library, and uses what is not used here.
#[allow(dead_code)]
#[path = "../../crates/cli/src/archive/mod.rs"]
mod archive;
pub mod coverage;
pub mod drive;
pub mod guard;
pub mod mutate;
pub mod script;
pub mod targets;

pub use drive::{Outcome, drive, replay};
pub use targets::{Target, by_name, names};

#[global_allocator]
static ALLOCATOR: guard::Limited = guard::Limited;
