//! Workloads for simulated devices: synthetic ones, block traces, and the closed loop that issues them.
//!
//! [`Synthetic`] makes requests from a [`Pattern`]; [`Trace`] reads them from fio iologs and MSR-Cambridge traces, and
//! lays what the trace touches close together. [`HostQueue`] is a host that keeps so many requests under way.

mod synthetic;
mod trace;
mod workload;

use std::ops::Range;

pub(crate) use synthetic::Zipf;
pub use synthetic::{Pattern, Synthetic, SyntheticSetup};
pub use trace::{EXTENT_BLOCKS, Trace, TraceError, TraceFormat};
pub use weft_device::HostQueue;
pub use workload::Workload;

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

impl Request {
    /// The pages of so many blocks that it is about: those that it touches; of a deallocation those that it covers.
    ///
    /// ```
    /// # use weft_sim::block::{Action, Request};
    /// let request = Request { action: Action::Write, block: 3, blocks: 6, stream: 0, at_ns: 0 };
    /// assert_eq!(request.pages(4), 0..3);
    /// assert_eq!(Request { action: Action::Deallocate, ..request }.pages(4), 1..2);
    /// ```
    pub fn pages(&self, page_blocks: u64) -> Range<u64> {
        let end = self.block + u64::from(self.blocks);
        match self.action {
            Action::Deallocate => self.block.div_ceil(page_blocks)..end / page_blocks,
            Action::Read | Action::Write => self.block / page_blocks..end.div_ceil(page_blocks),
        }
    }
}
