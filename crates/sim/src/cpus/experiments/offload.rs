//! Four operations as one compound on the device, as four requests, with the host computing, and without the device.
//!
//! | place | on the device | on the host | trips |
//! |---|---|---|---|
//! | compound | all four, in one request | | 1 |
//! | separate | each in a request of its own; its data comes and goes | | 4 |
//! | host computes | what touches files | what computes | 1 or 2 for each file operation |
//! | host only | | all, with a system call for each file operation | 0 |
//!
//! Costs of operations are [measured](crate::cpus::Costs); slowdown, link and the number of processors are modelled.

use super::simulate;
use crate::cpus::{
    Costs, LZ4_NS_PER_KIB, LZ4_PERCENT, MEASURED, Machine, NAMES_NS, Operation, REQUEST_NS, SYSCALL_NS,
    Scheduling, SetupError, Step, Tenant,
};
use serde::Serialize;

/// Time of the link for a KiB, in nanoseconds: about 4 GB/s, as of four lanes of PCIe 3.0.
const LINK_NS_PER_KIB: u64 = 250;
/// Simulated time.
const DURATION_NS: u64 = 20_000_000;
/// Processors of the device.
const DEVICE_CPUS: u32 = 4;
/// Slowdowns of the papers, in percent.
const SLOWDOWNS: [u32; 4] = [100, 200, 250, 400];
/// Slowest device that is tried for the point at which off-loading begins to lose, in percent.
const SLOWDOWN_MAX: u32 = 2_000;
/// Part of a record that a patch replaces, in bytes.
const PATCH_BYTES: u64 = 64;

/// Four operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compound {
    /// Read, patch, CRC32C, write.
    Modify,
    /// Open, compress by lz4, CRC32C, write what is left.
    Compress,
}

/// Where they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// One request to the device.
    Compound,
    /// Four requests to the device.
    Separate,
    /// File operations on the device, computation on the host.
    HostComputes,
    /// All on the host.
    HostOnly,
}

/// One of four operations.
struct Part {
    host_ns: u64,
    computes: bool,
    sent_bytes: u64,
    returned_bytes: u64,
}

impl Compound {
    /// The same four whatever the place.
    fn parts(self, costs: Costs) -> [Part; 4] {
        let bytes = costs.bytes;
        let file = |host_ns, sent_bytes, returned_bytes| Part {
            host_ns,
            computes: false,
            sent_bytes,
            returned_bytes,
        };
        let compute = |host_ns, sent_bytes, returned_bytes| Part {
            host_ns,
            computes: true,
            sent_bytes,
            returned_bytes,
        };
        match self {
            Compound::Modify => [
                file(costs.read_ns, 0, bytes),
                compute(costs.patch_ns, bytes + PATCH_BYTES, bytes),
                compute(costs.crc32c_ns, bytes, 4),
                file(costs.write_ns, bytes, 0),
            ],
            Compound::Compress => {
                let packed = bytes * LZ4_PERCENT / 100;
                let share = |ns: u64| (ns * LZ4_PERCENT / 100).max(1);
                [
                    file(NAMES_NS, 0, 0),
                    compute((bytes * LZ4_NS_PER_KIB / 1024).max(1), bytes, packed),
                    compute(share(costs.crc32c_ns), packed, 4),
                    file(share(costs.write_ns), packed, 0),
                ]
            }
        }
    }

    /// The four as one request: what goes in, and nothing that only they need comes out.
    fn sent_bytes(self, bytes: u64) -> u64 {
        match self {
            Compound::Modify => PATCH_BYTES,
            Compound::Compress => bytes,
        }
    }

    /// The steps of the four at a place.
    fn steps(self, place: Place, costs: Costs) -> Vec<Step> {
        let parts = self.parts(costs);
        let device = |ns: u64, sent_bytes, returned_bytes| Step::Device {
            host_ns: ns + REQUEST_NS,
            preemptible: false,
            memory_bytes: costs.bytes,
            sent_bytes,
            returned_bytes,
        };
        let each = |part: &Part| device(part.host_ns, part.sent_bytes, part.returned_bytes);
        let all = parts.iter().map(|part| part.host_ns).sum();
        match place {
            Place::Compound => vec![device(all, self.sent_bytes(costs.bytes), 0)],
            Place::Separate => parts.iter().map(each).collect(),
            Place::HostComputes => {
                let step = |part: &Part| match part.computes {
                    true => Step::Host { host_ns: part.host_ns },
                    false => each(part),
                };
                parts.iter().map(step).collect()
            }
            Place::HostOnly => {
                let calls = parts.iter().filter(|part| !part.computes).count() as u64;
                vec![Step::Host { host_ns: all + calls * SYSCALL_NS }]
            }
        }
    }
}

/// A compound of one size on a device of one speed: how many times as many as elsewhere it completes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Offload {
    /// Which four operations.
    pub compound: Compound,
    /// Size of the data, in bytes.
    pub bytes: u64,
    /// Operations under way.
    pub outstanding: u32,
    /// Time of a device processor for what takes the host 100.
    pub slowdown_percent: u32,
    /// Compounds in a second.
    pub per_second: f64,
    /// Over four requests.
    pub over_separate: f64,
    /// Over computing on the host.
    pub over_host_computes: f64,
    /// Over the host alone.
    pub over_host_only: f64,
}

/// Compounds in a second at a place.
fn rate(
    compound: Compound,
    place: Place,
    costs: Costs,
    outstanding: u32,
    slowdown_percent: u32,
) -> Result<f64, SetupError> {
    let machine =
        Machine { link_ns_per_kib: LINK_NS_PER_KIB, ..Machine::paper(DEVICE_CPUS, slowdown_percent) };
    let operation = Operation { kind: "compound".into(), steps: compound.steps(place, costs) };
    let client = Tenant::closed("client", outstanding, operation);
    let outcome = simulate(Scheduling::Fifo, machine, vec![client], DURATION_NS)?;
    Ok(outcome.tenants[0].per_second)
}

/// One row.
///
/// # Errors
/// Numbers that a machine cannot have.
pub fn offload(
    compound: Compound,
    costs: Costs,
    outstanding: u32,
    slowdown_percent: u32,
) -> Result<Offload, SetupError> {
    let at = |place| rate(compound, place, costs, outstanding, slowdown_percent);
    let per_second = at(Place::Compound)?;
    Ok(Offload {
        compound,
        bytes: costs.bytes,
        outstanding,
        slowdown_percent,
        per_second,
        over_separate: per_second / at(Place::Separate)?,
        over_host_computes: per_second / at(Place::HostComputes)?,
        over_host_only: per_second / at(Place::HostOnly)?,
    })
}

/// The rows that are shown: each size at the slowdowns of the papers, with one client that waits and with 16 operations under way.
///
/// # Errors
/// None: their numbers are good.
pub fn offloads() -> Result<Vec<Offload>, SetupError> {
    let mut rows = Vec::new();
    for compound in [Compound::Modify, Compound::Compress] {
        for outstanding in [1, 16] {
            for costs in MEASURED {
                for slowdown in SLOWDOWNS {
                    rows.push(offload(compound, costs, outstanding, slowdown)?);
                }
            }
        }
    }
    Ok(rows)
}

/// From which slowdown on, in percent, a compound on the device completes fewer than another place; `None`: not up to 20 times slower.
///
/// # Errors
/// None: its numbers are good.
pub fn loses_from(
    compound: Compound,
    place: Place,
    costs: Costs,
    outstanding: u32,
) -> Result<Option<u32>, SetupError> {
    for slowdown in (100..=SLOWDOWN_MAX).step_by(20) {
        let at = |place| rate(compound, place, costs, outstanding, slowdown);
        if at(Place::Compound)? < at(place)? {
            return Ok(Some(slowdown));
        }
    }
    Ok(None)
}
