//! Compound operations: several file operations, with data flowing between them, as one program.
//!
//! A [`Program`] is a straight line of at most [`OPS_MAX`] typed operations. An operation may use the value of an earlier one (a file,
//! bytes, a number, attributes) and of no later one, and there are no jumps, so its length bounds what it does. Whoever runs a program
//! [checks](check) it first; [`run`] takes nothing else. The interpreter knows no front and no core: it works over a [`Host`], which
//! lends it a [`FileSystem`](crate::FileSystem) to look at, a caller's identity, and one [`commit`](Host::commit).
//!
//! # How a program ends
//! The first operation that fails ends the program, whatever its policy: those behind it are skipped. The [`Policy`] decides what stays:
//!
//! | policy | reads see | changes are made | after a failure | after a power cut |
//! |---|---|---|---|---|
//! | [`All`](Policy::All) | the state before, with the program's own changes | in one step at the end | none is left | all or none |
//! | [`Prefix`](Policy::Prefix) | likewise | in one step at the end | those before the failed operation are left | those, or none |
//! | [`Each`](Policy::Each) | the state of the moment | one at a time | those before the failed operation are left | any that came first |
//!
//! Under `All` and `Prefix` an operation may also fail at the step, when the core refuses its change: then it counts as the one that
//! failed, and what came behind it as skipped. Under `All` the interpreter asks the core for nothing when it has found a failure itself: the
//! answer then tells of that one, even if the core would have refused a change before it.
//!
//! # Guards
//! An operation whose [guard](Op::when) does not hold is skipped, and so is every operation that uses the value of a skipped one, in its
//! guard or elsewhere, an `expect` included: a guard before the first operation of a branch guards the branch.
//!
//! # What the program sees of others
//! Under `All` and `Prefix` the step carries each name that was looked up, and is refused when one leads elsewhere by then; the
//! interpreter then runs the program again, at most [`TRIES_MAX`] times in all. It carries the last component of each path alone: like any
//! walk of a path, it does not notice that a directory on the way was moved. Content that was read is not compared again: a host that
//! lets others write at the same time locks the inodes around [`run`].
//!
//! # Limits
//! A program has at most [`OPS_MAX`] operations, [`FILES_MAX`] of which open or make a file, and [`INPUT_BYTES_MAX`] of literal bytes. While
//! it runs, its values take at most [`WORK_BYTES_MAX`], those that it exports [`OUTPUT_BYTES_MAX`], and the data that it writes
//! [`CHANGE_BYTES_MAX`](crate::change::CHANGE_BYTES_MAX); what it [finds](Kind::Find) is not longer than [`FIND_BYTES_MAX`]. Its
//! changes, and the names that were looked up, keep to the limits of a [step](crate::change): a step that goes beyond them fails at its
//! first change with `EINVAL`.
//!
//! It compresses at most [`COMPRESS_BYTES_MAX`]. Its [calls](Kind::Call) of users' functions take, all of them together, at most
//! [`FUEL_MAX`](weft_compute::FUEL_MAX) units of fuel, and [`CALLS_NS_MAX`] unless the host says otherwise; [`weft_compute`] has the limits of
//! each.

mod answer;
mod batch;
mod chain;
mod check;
mod codec;
mod compute;
mod computed;
mod data;
mod host;
pub mod ioctl;
mod local;
mod names;
mod near;
mod overlay;
mod paths;
mod plan;
mod program;
mod run;
pub mod schedule;
mod wire;

pub use answer::{Answer, Failure, Outcome, Value};
pub use batch::{BATCH_RUNS_MAX, INPUTS_MAX, Run};
pub use chain::{AttrOf, BytesOf, Chain, NumOf};
pub use check::{CheckError, Checked, check};
pub use codec::DecodeError;
pub use host::{Host, Stale};
pub use local::Local;
pub use near::{Native, Near};
pub use program::{
    Access, Allocate, Arith, At, Bytes, Compare, Dir, Field, File, Guard, Input, Kind, NOT_FOUND, Num, Op,
    Operand, Policy, Program, Ref, Type,
};
pub use run::run;
pub use weft_compute::{Codec, MEMORY_BYTES_MAX as CALL_BYTES_MAX};

/// Operations of a program, at most.
pub const OPS_MAX: usize = 64;
/// Operations of a program that open or make a file, at most.
pub const FILES_MAX: usize = crate::change::CHANGE_INODES_MAX;
/// Literal bytes of a program, at most.
pub const INPUT_BYTES_MAX: usize = 4 << 20;
/// Bytes of an encoded program, at most: its literal bytes, and what its operations take.
pub const PROGRAM_BYTES_MAX: usize = INPUT_BYTES_MAX + (1 << 20);
/// Bytes of the values that a program exports, at most.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Bytes of the answer to a program that exports nothing, at most.
pub const BARE_ANSWER_BYTES_MAX: usize = 3 + 5 * OPS_MAX;
/// Bytes of all values of a program while it runs, at most.
pub const WORK_BYTES_MAX: usize = 16 << 20;
/// Bytes that [`Kind::Find`] looks for, at most.
pub const FIND_BYTES_MAX: usize = 4096;
/// Bytes that a program compresses, at most.
pub const COMPRESS_BYTES_MAX: usize = 4 << 20;
/// Bytes that all [`Kind::Find`] of a program look through, at most.
pub const SEARCH_BYTES_MAX: usize = 64 << 20;
/// Nanoseconds that a program's calls of users' functions take, at most, unless its [host](Host::goes_on) says otherwise.
pub const CALLS_NS_MAX: u64 = 1_000_000_000;
/// How often a program is run, at most, when names change under it.
pub const TRIES_MAX: u32 = 3;

#[cfg(test)]
mod tests;
