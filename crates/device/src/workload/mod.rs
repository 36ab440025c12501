//! Workloads for simulated devices: synthetic ones, block traces, and the closed loop that issues them.
//!
//! [`Synthetic`] makes requests from a [`Pattern`]; [`Trace`] reads them from fio iologs and MSR-Cambridge traces, and
//! lays what the trace touches close together. [`HostQueue`] is a host that keeps so many requests under way.

mod queue;
mod synthetic;
mod trace;

pub use queue::HostQueue;
pub use synthetic::{Pattern, Synthetic, SyntheticSetup};
pub use trace::{EXTENT_BLOCKS, Trace, TraceError, TraceFormat};

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Reads blocks.
    Read,
    /// Writes blocks.
    Write,
    /// Deallocates blocks.
    Deallocate,
}

/// A request for blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What it does.
    pub action: Action,
    /// The first block.
    pub block: u64,
    /// Blocks, at least one.
    pub blocks: u32,
    /// Data of one kind: the hot and the cold part of a synthetic workload, the disks or files of a trace.
    pub stream: u16,
    /// When it was issued, in nanoseconds from the trace's start; 0 in a synthetic workload.
    pub at_ns: u64,
}
