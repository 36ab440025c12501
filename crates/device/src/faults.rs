//! Flash that fails: which operations do is a function of the seed and of the place and age of the flash, never of
//! the order in which commands arrive.
//!
//! - A **program failure** makes its zone read-only. The write that met it fails; everything before it stays readable,
//!   also what was only buffered, since the device still has it.
//! - An **erase failure** is a grown bad block. A spare takes its place while there is one; after that the zone goes
//!   offline. A block past its **endurance** fails its next erase and takes the zone offline: every block of a zone
//!   has the same age, so no spare would help for long.
//! - A **factory bad block** is replaced by a spare when the device is new, or leaves its zone offline from the start.
//! - An **uncorrectable read** fails every read of its page until the zone is reset. Reads that others make directly
//!   do not meet it.

use serde::{Deserialize, Serialize};
use weft_core::random::SplitMix;

/// How often what fails, in failures per million. All zero, the default, is flash without faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultPlan {
    /// What the failures are drawn from.
    pub seed: u64,
    /// Of a million programs of a unit, how many fail.
    pub program_failures: u32,
    /// Of a million erases of a block, how many fail.
    pub erase_failures: u32,
    /// Of a million pages, how many cannot be read, in each life of a zone.
    pub uncorrectable_reads: u32,
    /// Of a million blocks, how many are bad from the factory.
    pub factory_bad_blocks: u32,
    /// Blocks of the whole device that can take the place of bad ones.
    pub spare_blocks: u32,
}

/// A flash operation that may fail.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Program,
    Erase,
    Read,
    Factory,
}

impl FaultPlan {
    /// Whether the operation fails on this place (a unit, block or page) of the zone at this age (its erases).
    #[inline]
    pub(crate) fn fails(&self, operation: Operation, zone: u32, age: u32, place: u64) -> bool {
        let per_million = match operation {
            Operation::Program => self.program_failures,
            Operation::Erase => self.erase_failures,
            Operation::Read => self.uncorrectable_reads,
            Operation::Factory => self.factory_bad_blocks,
        };
        per_million > 0
            && SplitMix::new(self.seed, &[operation as u64, u64::from(zone), u64::from(age), place])
                .below(1_000_000)
                < u64::from(per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_come_as_often_as_planned_and_the_same_for_the_same_seed() {
        let plan = FaultPlan { seed: 1, program_failures: 10_000, ..FaultPlan::default() };
        let fails =
            |plan: FaultPlan| (0..100_000).filter(|at| plan.fails(Operation::Program, 3, 0, *at)).collect();
        let first: Vec<u64> = fails(plan);
        assert!((900..1100).contains(&first.len()), "{}", first.len());
        assert_eq!(first, fails(plan));
        assert_ne!(first, fails(FaultPlan { seed: 2, ..plan }));
        assert!((0..1000).all(|at| !plan.fails(Operation::Erase, 3, 0, at)));
    }
}
