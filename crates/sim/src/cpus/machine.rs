//! The machine: processors of the host and of the device, and the link between them.

use super::Tenant;

/// Most processors of a device.
const DEVICE_CPUS_MAX: u32 = 8;
/// Most processors of a host.
const HOST_CPUS_MAX: u32 = 256;
/// Slowdowns that make sense, in percent.
const SLOWDOWN_PERCENT: std::ops::RangeInclusive<u32> = 100..=10_000;
/// Longest simulation, and longest step: a day.
pub(super) const TIME_MAX_NS: u64 = 86_400_000_000_000;

/// Why a simulation cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetupError {
    /// A number that the machine cannot have.
    #[error("{what} is {value}; take {expected}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it can be.
        expected: &'static str,
    },
    /// A tenant that has nothing to issue.
    #[error("tenant {0} has no operation in its first phase; give it one, from 0 ns on")]
    Idle(String),
    /// An operation without work.
    #[error("tenant {tenant}: operation {kind} has {what}; give each step 1 ns to 1 day")]
    Operation {
        /// Whose operation.
        tenant: String,
        /// Its kind.
        kind: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// More operations than a simulation counts.
    #[error("more than {0} operations were issued; simulate less time")]
    TooMany(u64),
}

/// A host and a device with processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Machine {
    /// Processors of the device, 1 to 8.
    pub device_cpus: u32,
    /// Time that a device processor takes for what takes a host core 100; at least 100.
    pub slowdown_percent: u32,
    /// Processors of the host, for steps that run there.
    pub host_cpus: u32,
    /// Latency of the link each way, in nanoseconds.
    pub link_ns: u64,
    /// Time of the link for each KiB of data, in nanoseconds. Transfers do not wait for one another.
    pub link_ns_per_kib: u64,
    /// Time between two check points of a preemptible operation, in nanoseconds of the device.
    pub check_ns: u64,
    /// What it costs to resume a preempted operation, in nanoseconds of the device.
    pub resume_ns: u64,
}

impl Machine {
    /// The machine of the papers: 900 ns each way, no bound on the bandwidth, 2 host processors. Check points every 10 us and 500 ns for a
    /// resumption are this model's own.
    pub const fn paper(device_cpus: u32, slowdown_percent: u32) -> Machine {
        Machine {
            device_cpus,
            slowdown_percent,
            host_cpus: 2,
            link_ns: 900,
            link_ns_per_kib: 0,
            check_ns: 10_000,
            resume_ns: 500,
        }
    }

    /// What a device processor takes for so many nanoseconds of a host core.
    pub(super) fn device_ns(&self, host_ns: u64) -> u64 {
        host_ns * u64::from(self.slowdown_percent) / 100
    }

    /// What so much data takes from one end of the link to the other.
    pub(super) fn link(&self, bytes: u64) -> u64 {
        self.link_ns + bytes.saturating_mul(self.link_ns_per_kib) / 1024
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        let range = |fits: bool, what, value, expected| match fits {
            true => Ok(()),
            false => Err(SetupError::Range { what, value, expected }),
        };
        let (device, host, slow) = (self.device_cpus, self.host_cpus, self.slowdown_percent);
        range((1..=DEVICE_CPUS_MAX).contains(&device), "device processors", device.into(), "1 to 8")?;
        range((1..=HOST_CPUS_MAX).contains(&host), "host processors", host.into(), "1 to 256")?;
        range(SLOWDOWN_PERCENT.contains(&slow), "slowdown in percent", slow.into(), "100 to 10000")?;
        range(self.link_ns <= 1_000_000_000, "link latency in ns", self.link_ns, "at most 1 s")?;
        range(
            self.link_ns_per_kib <= 1_000_000,
            "link time in ns for a KiB",
            self.link_ns_per_kib,
            "at most 1 ms",
        )?;
        range(
            (1..=TIME_MAX_NS).contains(&self.check_ns),
            "check interval in ns",
            self.check_ns,
            "1 ns to 1 day",
        )?;
        range(self.resume_ns <= 1_000_000_000, "resumption in ns", self.resume_ns, "at most 1 s")
    }
}

/// Refuses tenants that would do nothing, or that never end a step.
pub(super) fn check_tenants(tenants: &[Tenant]) -> Result<(), SetupError> {
    for tenant in tenants {
        let first = tenant.phases.first();
        if first.is_none_or(|phase| phase.from_ns != 0)
            || tenant.phases.iter().any(|p| p.operations.is_empty())
        {
            return Err(SetupError::Idle(tenant.name.clone()));
        }
        for operation in tenant.phases.iter().flat_map(|phase| &phase.operations) {
            let wrong = |what| SetupError::Operation {
                tenant: tenant.name.clone(),
                kind: operation.kind.clone(),
                what,
            };
            if operation.steps.is_empty() {
                return Err(wrong("no step"));
            }
            if !operation.steps.iter().all(|step| (1..=TIME_MAX_NS).contains(&step.host_ns())) {
                return Err(wrong("a step of no time or of more than a day"));
            }
        }
    }
    Ok(())
}
