//! Model-based tests: random operations on a core and on [`MemFs`], compared after each one.
//!
//! Operations name inodes by *slots*: a creation names the slot for its inode, later operations take the inode from
//! there, and an operation with an empty slot does nothing. So an operation means the same when others before it are left out,
//! and a failing sequence shrinks to the few operations that matter.
//!
//! Compared are return values, error variants, attributes (times only where they were set, and not the blocks), the content of the file
//! that the operation touched, and after the last operation the whole tree. Inode numbers are the core's own; what is
//! compared is that they are used consistently.

mod op;
mod pair;

pub use op::{Flavour, Node, Offset, Op, ops};

use super::Make;
use pair::Pair;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weft_vfs::{FileSystem, MemFs};

/// Sequences that are tried to make a failing one simpler.
const SHRINK_STEPS_MAX: u32 = 20_000;

/// Drops a core and opens it again from what it stored. The core has been synced before.
pub type Remount<'a> = &'a dyn Fn(Box<dyn FileSystem>) -> Box<dyn FileSystem>;

/// How much to try.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Sequences.
    pub cases: u32,
    /// Most operations of a sequence.
    pub ops_max: usize,
    /// Which sequences: equal seeds try equal ones.
    pub seed: u64,
}

impl Default for Effort {
    /// What a core's test run has time for: some seconds.
    fn default() -> Self {
        Effort { cases: 400, ops_max: 200, seed: 0 }
    }
}

/// A core did something else than the oracle.
#[derive(Clone, Debug, thiserror::Error)]
#[error("operation {at} ({op}): {what}")]
pub struct Mismatch {
    /// Which operation of the sequence, counted from 0; the sequence's length for the comparison at the end.
    pub at: usize,
    /// Operation after which the two differ.
    pub op: String,
    /// What was different.
    pub what: String,
}

/// A sequence on which a core and the oracle differ, as short as could be found.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The sequence; [`run_ops`] takes it.
    pub ops: Vec<Op>,
    /// What was different after it.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}\nafter these operations:", self.what)?;
        for (at, op) in self.ops.iter().enumerate() {
            writeln!(f, "{at:4}: {op:?}")?;
        }
        Ok(())
    }
}

/// Tries random sequences; panics with the shortest one it finds on which the core and the oracle differ. How many operations
/// there were.
pub fn a_core_does_what_the_oracle_does(make: Make<'_>, remount: Remount<'_>, effort: Effort) -> u64 {
    search(make, remount, effort).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Like [`a_core_does_what_the_oracle_does`], but returns what it would panic with.
pub fn search(make: Make<'_>, remount: Remount<'_>, effort: Effort) -> Result<u64, Failure> {
    // The sequences of a seed are reproduced by the seed; nothing is kept in files beside the sources.
    let config = Config {
        cases: effort.cases,
        failure_persistence: None,
        max_shrink_iters: SHRINK_STEPS_MAX,
        ..Config::default()
    };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&effort.seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let done = Cell::new(0);
    let found = runner.run(&ops(effort.ops_max), |ops| match difference(make, remount, &ops) {
        Some(what) => Err(TestCaseError::fail(what)),
        None => {
            done.set(done.get() + ops.len() as u64);
            Ok(())
        }
    });
    match found {
        Ok(()) => Ok(done.get()),
        Err(TestError::Fail(reason, ops)) => Err(without_what_does_not_matter(
            make,
            remount,
            Failure { ops, what: reason.message().to_string() },
        )),
        Err(TestError::Abort(reason)) => Err(Failure { ops: Vec::new(), what: reason.message().to_string() }),
    }
}

/// What a sequence shows to be wrong with a core; a panic is, too.
fn difference(make: Make<'_>, remount: Remount<'_>, ops: &[Op]) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run_ops(make(), remount, ops))) {
        Ok(result) => result.err().map(|mismatch| mismatch.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of some kind");
            Some(format!("a panic: {text}"))
        }
    }
}

/// Leaves out operations until each that is left is needed: shrinking goes over the sequence only once, before it
/// makes the operations themselves simpler.
fn without_what_does_not_matter(make: Make<'_>, remount: Remount<'_>, mut failure: Failure) -> Failure {
    let mut at = 0;
    while at < failure.ops.len() {
        let mut ops = failure.ops.clone();
        ops.remove(at);
        match difference(make, remount, &ops) {
            Some(what) => {
                failure = Failure { ops, what };
                at = 0;
            }
            None => at += 1,
        }
    }
    failure
}

/// Runs one sequence on a core that is empty, and compares it with the oracle. What a regression test calls with a
/// sequence that was found.
pub fn run_ops(core: Box<dyn FileSystem>, remount: Remount<'_>, ops: &[Op]) -> Result<(), Mismatch> {
    let mut pair = Pair::new(core, MemFs::new());
    for (at, op) in ops.iter().enumerate() {
        pair.apply(op, remount).map_err(|what| Mismatch { at, op: format!("{op:?}"), what })?;
    }
    pair.compare_all().map_err(|what| Mismatch { at: ops.len(), op: "comparison at the end".into(), what })
}
