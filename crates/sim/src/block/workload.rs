//! A workload: synthetic requests, or those of a trace.

use super::{Pattern, Synthetic, SyntheticSetup, Trace};

/// Requests for a device.
pub enum Workload {
    /// Endless.
    Synthetic(Box<Synthetic>, SyntheticSetup),
    /// As many as the trace has.
    Trace(Trace),
}

impl Workload {
    /// Blocks that it touches, from the first one on.
    pub fn blocks(&self) -> u64 {
        match self {
            Workload::Synthetic(_, setup) => setup.blocks,
            Workload::Trace(trace) => trace.blocks(),
        }
    }

    /// Whether theory knows the write amplification of it on a map of pages of so many blocks.
    pub fn is_uniform(&self, page_blocks: u64, capacity: u64) -> bool {
        match self {
            Workload::Synthetic(_, setup) => {
                setup.pattern == Pattern::Uniform
                    && u64::from(setup.request_blocks) == page_blocks
                    && setup.blocks == capacity
            }
            Workload::Trace(_) => false,
        }
    }

    /// Data of which kind a block is filled with: cold data is filled as cold data.
    pub fn stream_of(&self, block: u64) -> u16 {
        match self {
            Workload::Synthetic(
                _,
                SyntheticSetup { pattern: Pattern::HotCold { hot_space, .. }, blocks, .. },
            ) => u16::from(block as f64 >= *blocks as f64 * hot_space),
            Workload::Synthetic(..) | Workload::Trace(_) => 0,
        }
    }
}
