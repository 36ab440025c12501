//! The experiments that the documentation shows: tenants beside one another, and off-loading against computing on the host.
//!
//! Tests hold them to their bounds, and the example `cpus` prints them.

mod fairness;
mod offload;

pub use fairness::{
    Beside, CostChange, LongFunction, beside, cost_change, cost_changes, long_function, long_functions,
    tenants_beside,
};
pub use offload::{Compound, Offload, Place, loses_from, offload, offloads};

use super::{Machine, Outcome, Scheduling, Setup, SetupError, Tenant, run};

/// What experiments draw random arrivals from.
const SEED: u64 = 1;

fn simulate(
    scheduling: Scheduling,
    machine: Machine,
    tenants: Vec<Tenant>,
    duration_ns: u64,
) -> Result<Outcome, SetupError> {
    let mut scheduler = scheduling.scheduler(&tenants);
    run(&Setup { machine, tenants, duration_ns, seed: SEED }, scheduler.as_mut())
}
