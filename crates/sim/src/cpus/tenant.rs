//! Tenants: who issues which operations, and how fast.

use weft_vfs::compound::schedule::Weight;

/// A part of an operation that runs on one processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The host computes.
    Host {
        /// Time on a host core, in nanoseconds.
        host_ns: u64,
    },
    /// The device computes: one trip over the link and back.
    Device {
        /// Time that a host core would take, in nanoseconds.
        host_ns: u64,
        /// Whether it has check points.
        preemptible: bool,
        /// Memory that it holds on the device while it runs, in bytes.
        memory_bytes: u64,
        /// Data that goes to the device, in bytes.
        sent_bytes: u64,
        /// Data that comes back, in bytes.
        returned_bytes: u64,
    },
}

impl Step {
    /// Time on a host core, in nanoseconds.
    pub fn host_ns(&self) -> u64 {
        match self {
            Step::Host { host_ns } | Step::Device { host_ns, .. } => *host_ns,
        }
    }
}

/// Steps that run one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// What it is called.
    pub kind: String,
    /// At least one.
    pub steps: Vec<Step>,
}

impl Operation {
    /// One step on the device, with so much data sent to it and held by it.
    pub fn on_device(kind: &str, host_ns: u64, preemptible: bool, bytes: u64) -> Operation {
        let step =
            Step::Device { host_ns, preemptible, memory_bytes: bytes, sent_bytes: bytes, returned_bytes: 0 };
        Operation { kind: kind.to_string(), steps: vec![step] }
    }
}

/// When a tenant issues its next operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// When an earlier one is answered: so many are always under way.
    Closed {
        /// Operations under way.
        outstanding: u32,
    },
    /// At random times, whatever was answered (a Poisson process).
    Open {
        /// Mean time between two, in nanoseconds.
        mean_ns: u64,
    },
}

/// What a tenant issues from some time on: its operations in turn, again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// From when on, in nanoseconds; 0 in the first phase.
    pub from_ns: u64,
    /// At least one.
    pub operations: Vec<Operation>,
}

/// Someone who shares the device with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// What it is called.
    pub name: String,
    /// Its share against that of others, under a fair scheduler.
    pub weight: Weight,
    /// How it issues operations.
    pub load: Load,
    /// What it issues: at least one phase, in the order of time.
    pub phases: Vec<Phase>,
}

impl Tenant {
    /// A tenant with so many operations of one kind under way, and the default weight.
    pub fn closed(name: &str, outstanding: u32, operation: Operation) -> Tenant {
        Tenant {
            name: name.to_string(),
            weight: Weight::DEFAULT,
            load: Load::Closed { outstanding },
            phases: vec![Phase { from_ns: 0, operations: vec![operation] }],
        }
    }

    /// The phase at a time.
    pub(super) fn phase(&self, at_ns: u64) -> usize {
        self.phases.iter().rposition(|phase| phase.from_ns <= at_ns).unwrap_or(0)
    }
}
