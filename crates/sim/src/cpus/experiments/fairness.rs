//! Tenants beside one another on few processors.
//!
//! Costs of 5 us, 1 ms and 50 ms are set, not measured: round figures for a write of 4 KiB, a compression of some hundred KiB and a
//! long user function. Slowdown is 1 throughout: it would scale all costs alike.

use super::simulate;
use crate::cpus::{Machine, Operation, Outcome, Phase, Scheduling, SetupError, Tenant, WINDOWS};
use serde::Serialize;

/// A write of 4 KiB, in nanoseconds.
const LIGHT_NS: u64 = 5_000;
/// A compression, in nanoseconds.
const HEAVY_NS: u64 = 1_000_000;
/// A long user function, in nanoseconds.
const FUNCTION_NS: u64 = 50_000_000;
/// What an operation costs after its cost has changed, in nanoseconds.
const CHANGED_NS: u64 = 50_000;
/// Operations that a compressing tenant has under way.
const HEAVY_OUTSTANDING: u32 = 8;
/// Simulated time of each experiment.
const DURATION_NS: u64 = 2_000_000_000;

fn write_4k(ns: u64) -> Operation {
    Operation::on_device("write-4k", ns, false, 4096)
}

/// Two tenants: one compresses, one writes 4 KiB at a time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// Who runs next.
    pub scheduling: Scheduling,
    /// Processors of the device.
    pub device_cpus: u32,
    /// Whether a compression has check points.
    pub preemptible: bool,
    /// Writes under way.
    pub outstanding: u32,
    /// Jain's index over metered device time.
    pub jain: f64,
    /// The writer's part of the device time that both used.
    pub light_share: f64,
    /// The writer's 99th percentile without the other, in nanoseconds.
    pub alone_p99_ns: u64,
    /// The writer's 99th percentile beside the other, in nanoseconds.
    pub beside_p99_ns: u64,
    /// The second over the first.
    pub p99_ratio: f64,
    /// Writes in a second.
    pub light_per_second: f64,
    /// Compressions in a second.
    pub heavy_per_second: f64,
}

/// One such pair.
///
/// # Errors
/// Numbers that a machine cannot have.
pub fn beside(
    scheduling: Scheduling,
    device_cpus: u32,
    preemptible: bool,
    outstanding: u32,
) -> Result<Beside, SetupError> {
    let machine = Machine::paper(device_cpus, 100);
    let light = Tenant::closed("light", outstanding, write_4k(LIGHT_NS));
    let compress = Operation::on_device("compress", HEAVY_NS, preemptible, 256 << 10);
    let heavy = Tenant::closed("heavy", HEAVY_OUTSTANDING, compress);
    let alone = simulate(scheduling, machine, vec![light.clone()], DURATION_NS)?;
    let both = simulate(scheduling, machine, vec![light, heavy], DURATION_NS)?;
    let (light, heavy) = (&both.tenants[0], &both.tenants[1]);
    let (alone_p99_ns, beside_p99_ns) = (alone.tenants[0].latency.p99_ns, light.latency.p99_ns);
    Ok(Beside {
        scheduling,
        device_cpus,
        preemptible,
        outstanding,
        jain: both.jain,
        light_share: light.device_ns as f64 / (light.device_ns + heavy.device_ns) as f64,
        alone_p99_ns,
        beside_p99_ns,
        p99_ratio: beside_p99_ns as f64 / alone_p99_ns as f64,
        light_per_second: light.per_second,
        heavy_per_second: heavy.per_second,
    })
}

/// The pairs that are shown.
///
/// # Errors
/// None: their numbers are good.
pub fn tenants_beside() -> Result<Vec<Beside>, SetupError> {
    let mut rows = Vec::new();
    for scheduling in Scheduling::ALL {
        rows.push(beside(scheduling, 1, true, 32)?);
    }
    for (cpus, outstanding) in [(1, 8), (1, 1), (4, 32), (4, 1)] {
        rows.push(beside(Scheduling::Fair, cpus, true, outstanding)?);
    }
    for (cpus, outstanding) in [(1, 32), (1, 1), (4, 32)] {
        rows.push(beside(Scheduling::Fair, cpus, false, outstanding)?);
    }
    Ok(rows)
}

/// Two tenants with operations of 5 us; those of one take 50 us from the middle of the simulation on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CostChange {
    /// Who runs next.
    pub scheduling: Scheduling,
    /// Share of the tenant whose cost changes, before.
    pub share_before: f64,
    /// The same, after.
    pub share_after: f64,
    /// Jain's index over metered device time, before.
    pub jain_before: f64,
    /// The same, after.
    pub jain_after: f64,
}

/// With one scheduler.
///
/// # Errors
/// None: its numbers are good.
pub fn cost_change(scheduling: Scheduling) -> Result<CostChange, SetupError> {
    let steady = Tenant::closed("steady", 16, write_4k(LIGHT_NS));
    let mut changing = Tenant::closed("changing", 16, write_4k(LIGHT_NS));
    changing.phases.push(Phase { from_ns: DURATION_NS / 2, operations: vec![write_4k(CHANGED_NS)] });
    let both = simulate(scheduling, Machine::paper(1, 100), vec![steady, changing], DURATION_NS)?;
    // What was issued before the change runs in the window after it.
    let (before, after) = (0..WINDOWS / 2, WINDOWS / 2 + 1..WINDOWS);
    let share = |both: &Outcome, windows: std::ops::Range<usize>| {
        let [steady, changing] = [0, 1].map(|n| both.tenants[n].windows_ns(windows.clone()) as f64);
        changing / (steady + changing)
    };
    Ok(CostChange {
        scheduling,
        share_before: share(&both, before.clone()),
        share_after: share(&both, after.clone()),
        jain_before: both.jain_of(before),
        jain_after: both.jain_of(after),
    })
}

/// With each scheduler.
///
/// # Errors
/// None: its numbers are good.
pub fn cost_changes() -> Result<Vec<CostChange>, SetupError> {
    Scheduling::ALL.into_iter().map(cost_change).collect()
}

/// A tenant with functions of 50 ms, two under way, beside three tenants that write 4 KiB at a time, 8 under way each.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LongFunction {
    /// Who runs next.
    pub scheduling: Scheduling,
    /// Processors of the device.
    pub device_cpus: u32,
    /// Whether a function has check points.
    pub preemptible: bool,
    /// The largest 99th percentile of the writers without the functions, in nanoseconds.
    pub alone_p99_ns: u64,
    /// The same beside the functions.
    pub beside_p99_ns: u64,
    /// The writers' largest latency beside the functions, in nanoseconds.
    pub beside_max_ns: u64,
    /// Writes in a second, of all writers.
    pub writes_per_second: f64,
    /// Functions in a second.
    pub functions_per_second: f64,
}

/// With one scheduler.
///
/// # Errors
/// Numbers that a machine cannot have.
pub fn long_function(
    scheduling: Scheduling,
    device_cpus: u32,
    preemptible: bool,
) -> Result<LongFunction, SetupError> {
    let machine = Machine::paper(device_cpus, 100);
    let writer = |n| Tenant::closed(&format!("writer {n}"), 8, write_4k(LIGHT_NS));
    let mut tenants: Vec<Tenant> = (1..=3).map(writer).collect();
    let alone = simulate(scheduling, machine, tenants.clone(), DURATION_NS)?;
    let function = Operation::on_device("function", FUNCTION_NS, preemptible, 1 << 20);
    tenants.push(Tenant::closed("function", 2, function));
    let all = simulate(scheduling, machine, tenants, DURATION_NS)?;
    let writers = &all.tenants[..3];
    let p99 = |outcome: &Outcome| outcome.tenants[..3].iter().map(|t| t.latency.p99_ns).max().unwrap_or(0);
    Ok(LongFunction {
        scheduling,
        device_cpus,
        preemptible,
        alone_p99_ns: p99(&alone),
        beside_p99_ns: p99(&all),
        beside_max_ns: writers.iter().map(|writer| writer.latency.max_ns).max().unwrap_or(0),
        writes_per_second: writers.iter().map(|writer| writer.per_second).sum(),
        functions_per_second: all.tenants[3].per_second,
    })
}

/// The rows that are shown.
///
/// # Errors
/// None: their numbers are good.
pub fn long_functions() -> Result<Vec<LongFunction>, SetupError> {
    let mut rows = Vec::new();
    for (cpus, preemptible) in [(1, true), (1, false), (4, true)] {
        for scheduling in [Scheduling::Fifo, Scheduling::RoundRobin, Scheduling::Fair] {
            rows.push(long_function(scheduling, cpus, preemptible)?);
        }
    }
    Ok(rows)
}
