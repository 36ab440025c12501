//! Counts what ran, by itself: it sees intervals of processors, and nothing of the scheduler.

use super::Tenant;
use serde::Serialize;
use weft_core::hist::{Histogram, Summary};

/// Equal parts of a simulation that processor time is also counted in.
pub const WINDOWS: usize = 100;

/// What one tenant got.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Served {
    /// The tenant's name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Operations answered.
    pub completed: u64,
    /// Operations that the scheduler refused.
    pub refused: u64,
    /// Operations answered in a second.
    pub per_second: f64,
    /// Time of device processors, in nanoseconds of the device.
    pub device_ns: u64,
    /// Time of host processors, in nanoseconds.
    pub host_ns: u64,
    /// From issue to answer; percentiles are up to a sixteenth too small.
    pub latency: Summary,
    /// Time of device processors in each [window](WINDOWS).
    #[serde(skip)]
    pub windows: Vec<u64>,
}

/// What a simulation counted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Simulated time, in nanoseconds.
    pub duration_ns: u64,
    /// Jain's index over the device time of the tenants by weight: 1 when all have the same, 1/n when one has all.
    pub jain: f64,
    /// Part of the time of all device processors that was used.
    pub busy: f64,
    /// Each tenant, in the order of the setup.
    pub tenants: Vec<Served>,
}

impl Outcome {
    /// Jain's index over some windows alone.
    pub fn jain_of(&self, windows: std::ops::Range<usize>) -> f64 {
        jain(self.tenants.iter().map(|t| by_weight(t.windows_ns(windows.clone()), t.weight)))
    }
}

impl Served {
    /// Device time in some windows, in nanoseconds.
    pub fn windows_ns(&self, windows: std::ops::Range<usize>) -> u64 {
        self.windows.get(windows).map_or(0, |windows| windows.iter().sum())
    }
}

fn by_weight(ns: u64, weight: u32) -> f64 {
    ns as f64 / f64::from(weight)
}

/// Jain's index; 1 for nobody and for nothing.
fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        (n, sum, squares) = (n + 1.0, sum + share, squares + share * share);
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

#[derive(Default)]
struct Count {
    completed: u64,
    refused: u64,
    device_ns: u64,
    host_ns: u64,
    latency: Histogram,
    windows: Vec<u64>,
}

/// The meter of a simulation.
pub(super) struct Meter {
    duration_ns: u64,
    counts: Vec<Count>,
}

impl Meter {
    pub(super) fn new(tenants: usize, duration_ns: u64) -> Meter {
        let count = || Count { windows: vec![0; WINDOWS], ..Count::default() };
        Meter { duration_ns, counts: (0..tenants).map(|_| count()).collect() }
    }

    /// A device processor worked for a tenant.
    pub(super) fn device(&mut self, tenant: usize, from_ns: u64, to_ns: u64) {
        let count = &mut self.counts[tenant];
        count.device_ns += to_ns - from_ns;
        let window_of = |ns: u64| (u128::from(ns) * WINDOWS as u128 / u128::from(self.duration_ns)) as usize;
        let mut at = from_ns;
        while at < to_ns {
            let window = window_of(at).min(WINDOWS - 1);
            let next = (u128::from(self.duration_ns) * (window as u128 + 1)).div_ceil(WINDOWS as u128) as u64;
            let end = if window + 1 == WINDOWS { to_ns } else { next.min(to_ns) };
            count.windows[window] += end - at;
            at = end;
        }
    }

    /// A host processor worked for a tenant.
    pub(super) fn host(&mut self, tenant: usize, ns: u64) {
        self.counts[tenant].host_ns += ns;
    }

    /// An operation of a tenant was answered.
    pub(super) fn answered(&mut self, tenant: usize, latency_ns: u64) {
        self.counts[tenant].completed += 1;
        self.counts[tenant].latency.record(latency_ns);
    }

    /// An operation of a tenant was refused.
    pub(super) fn refused(&mut self, tenant: usize) {
        self.counts[tenant].refused += 1;
    }

    pub(super) fn outcome(self, tenants: &[Tenant], device_cpus: u32) -> Outcome {
        let served = |(tenant, count): (&Tenant, Count)| Served {
            name: tenant.name.clone(),
            weight: tenant.weight.get(),
            completed: count.completed,
            refused: count.refused,
            per_second: count.completed as f64 * 1e9 / self.duration_ns as f64,
            device_ns: count.device_ns,
            host_ns: count.host_ns,
            latency: count.latency.summary(),
            windows: count.windows,
        };
        let tenants: Vec<Served> = tenants.iter().zip(self.counts).map(served).collect();
        let used: u64 = tenants.iter().map(|tenant| tenant.device_ns).sum();
        Outcome {
            duration_ns: self.duration_ns,
            jain: jain(tenants.iter().map(|t| by_weight(t.device_ns, t.weight))),
            busy: used as f64 / (self.duration_ns as f64 * f64::from(device_cpus)),
            tenants,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_one_who_has_all() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain([3.0, 0.0, 0.0].into_iter()), 1.0 / 3.0);
        assert!((jain([1000.0, 5.0].into_iter()) - 0.505).abs() < 1e-3);
        assert_eq!(jain(std::iter::empty()), 1.0);
    }

    #[test]
    fn time_is_split_over_the_windows_in_which_it_was_used() {
        let mut meter = Meter::new(1, 1003);
        meter.device(0, 5, 1003);
        let outcome =
            meter.outcome(&[Tenant::closed("a", 1, crate::cpus::Operation::on_device("x", 1, false, 0))], 1);
        let served = &outcome.tenants[0];
        assert_eq!((served.device_ns, served.windows_ns(0..WINDOWS)), (998, 998));
        assert_eq!(served.windows[0], 6);
        assert!(served.windows[1..].iter().all(|ns| (10..=11).contains(ns)), "{:?}", served.windows);
    }
}
