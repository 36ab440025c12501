//! Processors of the host: first come, first served, each step to its end.

use std::collections::VecDeque;

/// A step that waits for a host processor.
#[derive(Clone, Copy)]
pub(super) struct HostStep {
    pub(super) job: usize,
    pub(super) host_ns: u64,
}

/// The host's processors, which are all alike.
pub(super) struct HostCpus {
    free: u32,
    waiting: VecDeque<HostStep>,
}

impl HostCpus {
    pub(super) fn new(cpus: u32) -> HostCpus {
        HostCpus { free: cpus, waiting: VecDeque::new() }
    }

    pub(super) fn wait(&mut self, step: HostStep) {
        self.waiting.push_back(step);
    }

    /// The step that begins now, if there is one and a processor for it.
    pub(super) fn begin(&mut self) -> Option<HostStep> {
        let step = if self.free > 0 { self.waiting.pop_front() } else { None };
        self.free -= u32::from(step.is_some());
        step
    }

    pub(super) fn end(&mut self) {
        self.free += 1;
    }
}
