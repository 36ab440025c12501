//! A simulation: the workload fills the device, lets it settle, then is measured.

use super::{SimError, Target, Totals};
use crate::block::{Action, HostQueue, Request, Workload};
use std::time::{Duration, Instant};
use weft_core::hist::{Histogram, Summary};
use weft_core::{BLOCK_BYTES, Nanos};
use weft_device::ssd::FdpStatistics;

/// Requests between two reports of progress.
const REQUESTS_BETWEEN_REPORTS: u64 = 4096;

/// What happened while a simulation was measured.
pub struct Phase {
    /// Requests issued.
    pub requests: u64,
    /// Counters of the device at the start.
    pub before: Totals,
    /// The same at the end.
    pub after: Totals,
    /// Statistics of an FDP drive at the start.
    pub fdp_before: Option<FdpStatistics>,
    /// Time of the device.
    pub device_ns: u64,
    /// Latencies of reads.
    pub read: Summary,
    /// Latencies of writes.
    pub write: Summary,
    /// Time that this machine took.
    pub wall: Duration,
}

/// How many requests a simulation issues after the device is full.
pub struct Plan {
    settle: u64,
    measure: u64,
    request_bytes: u64,
    filled_bytes: u64,
}

impl Plan {
    /// So many passes of a synthetic workload over the device before and during the measurement; of a trace, one
    /// measured pass.
    pub fn new(workload: &Workload, settle: f64, measure: f64) -> Plan {
        let blocks = workload.blocks();
        let (settle, measure, request_blocks) = match workload {
            Workload::Synthetic(_, setup) => {
                let pass = blocks as f64 / f64::from(setup.request_blocks);
                ((pass * settle) as u64, (pass * measure) as u64, setup.request_blocks)
            }
            Workload::Trace(trace) => (0, trace.requests().len() as u64, 1),
        };
        let bytes = |blocks| blocks * BLOCK_BYTES as u64;
        Plan { settle, measure, request_bytes: bytes(u64::from(request_blocks)), filled_bytes: bytes(blocks) }
    }

    /// The same on a device that is full already.
    pub fn without_filling(self) -> Plan {
        Plan { filled_bytes: 0, ..self }
    }

    /// Bytes of all requests, about.
    pub fn bytes(&self) -> u64 {
        self.filled_bytes + (self.settle + self.measure) * self.request_bytes
    }
}

/// A simulation under way.
pub struct Run<'a> {
    target: &'a mut dyn Target,
    queue: HostQueue,
    recorded_times: bool,
    /// Is called with the bytes issued since the last call.
    issued: &'a dyn Fn(u64),
    read: Histogram,
    write: Histogram,
}

impl<'a> Run<'a> {
    /// With so many requests in flight; `recorded_times`: no request earlier than in its trace.
    pub fn new(
        target: &'a mut dyn Target,
        queue_depth: u32,
        recorded_times: bool,
        issued: &'a dyn Fn(u64),
    ) -> Run<'a> {
        let queue = HostQueue::new(queue_depth as usize, Nanos(0));
        Run { target, queue, recorded_times, issued, read: Histogram::default(), write: Histogram::default() }
    }

    /// Fills the device, lets it settle, and measures.
    pub fn play(mut self, workload: &mut Workload, plan: &Plan) -> Result<Phase, SimError> {
        if plan.filled_bytes > 0 {
            self.fill(workload)?;
        }
        match workload {
            Workload::Synthetic(synthetic, _) => {
                self.issue(plan.settle, plan, &mut || synthetic.request())?;
                self.measured(plan, &mut || synthetic.request())
            }
            Workload::Trace(trace) => {
                let mut requests = trace.requests().iter().copied();
                self.measured(plan, &mut || requests.next().unwrap_or(trace.requests()[0]))
            }
        }
    }

    /// Writes everything that the workload touches once, from the start to the end.
    fn fill(&mut self, workload: &Workload) -> Result<(), SimError> {
        let page = self.target.blocks_per_page().max(1);
        let (mut block, mut reported) = (0, 0);
        while block < workload.blocks() {
            let blocks = page.min(workload.blocks() - block) as u32;
            let stream = workload.stream_of(block);
            let request = Request { action: Action::Write, block, blocks, stream, at_ns: 0 };
            self.one(&request, self.queue.now())?;
            block += u64::from(blocks);
            if block - reported >= REQUESTS_BETWEEN_REPORTS {
                (self.issued)((block - reported) * BLOCK_BYTES as u64);
                reported = block;
            }
        }
        self.queue.drain();
        Ok(())
    }

    /// Issues so many requests.
    fn issue(
        &mut self,
        requests: u64,
        plan: &Plan,
        next: &mut dyn FnMut() -> Request,
    ) -> Result<(), SimError> {
        let base = self.queue.now();
        for number in 1..=requests {
            let request = next();
            self.one(&request, base)?;
            if number.is_multiple_of(REQUESTS_BETWEEN_REPORTS) {
                (self.issued)(REQUESTS_BETWEEN_REPORTS * plan.request_bytes);
            }
        }
        Ok(())
    }

    /// Issues the measured requests and tells what they did.
    fn measured(&mut self, plan: &Plan, next: &mut dyn FnMut() -> Request) -> Result<Phase, SimError> {
        (self.read, self.write) = Default::default();
        let (before, begun_ns) = (self.target.totals(), self.queue.drain());
        let fdp_before = self.target.fdp().map(|fdp| fdp.statistics);
        let begun = Instant::now();
        self.issue(plan.measure, plan, next)?;
        let wall = begun.elapsed();
        let device_ns = self.queue.drain().0 - begun_ns.0;
        let after = self.target.totals();
        let latencies = self.target.own_latencies();
        let (read, write) = latencies.unwrap_or_else(|| (self.read.summary(), self.write.summary()));
        Ok(Phase { requests: plan.measure, before, after, fdp_before, device_ns, read, write, wall })
    }

    fn one(&mut self, request: &Request, base: Nanos) -> Result<(), SimError> {
        if self.recorded_times {
            self.queue.wait_until(Nanos(base.0.saturating_add(request.at_ns)));
        }
        let issued = self.queue.admit();
        let done = self.target.request(issued, request)?;
        self.queue.issued(done);
        match request.action {
            Action::Read => self.read.record(done.0.saturating_sub(issued.0)),
            Action::Write => self.write.record(done.0.saturating_sub(issued.0)),
            Action::Deallocate => {}
        }
        Ok(())
    }
}
