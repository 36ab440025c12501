//! The simulation: events in the order of virtual time.

use super::host::{HostCpus, HostStep};
use super::machine::{TIME_MAX_NS, check_tenants};
use super::meter::Meter;
use super::{Load, Machine, Outcome, SetupError, Step, Tenant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weft_core::random::SplitMix;
use weft_vfs::compound::schedule::{Ended, Request, RequestId, Scheduler, UserId};

/// Most operations that are issued.
const OPERATIONS_MAX: u64 = 100_000_000;
/// A tenant issues again this long after a refusal, in nanoseconds, so that time goes on.
const AFTER_REFUSAL_NS: u64 = 1_000;

/// What is simulated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The host and the device.
    pub machine: Machine,
    /// Who uses them. Tenant number n is user n of the scheduler.
    pub tenants: Vec<Tenant>,
    /// Simulated time, in nanoseconds.
    pub duration_ns: u64,
    /// What random arrivals are drawn from.
    pub seed: u64,
}

/// Simulates from time 0, with all empty.
///
/// # Errors
/// A setup that cannot be simulated.
///
/// # Panics
/// When the scheduler does not know a turn that it gave.
pub fn run(setup: &Setup, scheduler: &mut dyn Scheduler) -> Result<Outcome, SetupError> {
    setup.machine.check()?;
    check_tenants(&setup.tenants)?;
    if !(1..=TIME_MAX_NS).contains(&setup.duration_ns) {
        let (what, value) = ("simulated time in ns", setup.duration_ns);
        return Err(SetupError::Range { what, value, expected: "1 ns to 1 day" });
    }
    let mut simulation = Simulation::new(setup, scheduler);
    simulation.begin();
    simulation.play()?;
    Ok(simulation.meter.outcome(&setup.tenants, setup.machine.device_cpus))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A tenant issues an operation.
    Issue { tenant: usize },
    /// A device step has reached the device.
    Reached { job: usize },
    /// A device processor is at a check point, at the end of a slice or of the step.
    Point { cpu: usize },
    /// A step is done, and the host knows.
    StepDone { job: usize },
    /// A host processor is done with a step.
    HostDone { job: usize },
}

/// An operation under way.
struct Job {
    tenant: usize,
    phase: usize,
    operation: usize,
    step: usize,
    issued_ns: u64,
    /// What the step on the device still takes.
    left_ns: u64,
    /// Whether that step has had a turn.
    begun: bool,
}

/// The turn of a device processor.
struct Running {
    job: usize,
    preemptible: bool,
    slice_ns: u64,
    began_ns: u64,
    /// Until when it is counted.
    counted_ns: u64,
}

struct Simulation<'a> {
    setup: &'a Setup,
    scheduler: &'a mut dyn Scheduler,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Events made: those of one time happen in the order in which they were made.
    made: u64,
    now: u64,
    jobs: Vec<Job>,
    unused: Vec<usize>,
    issued: u64,
    /// Operations issued, for each phase of each tenant.
    cursors: Vec<Vec<u64>>,
    random: Vec<SplitMix>,
    cpus: Vec<Option<Running>>,
    host: HostCpus,
    meter: Meter,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, scheduler: &'a mut dyn Scheduler) -> Self {
        let tenants = &setup.tenants;
        Simulation {
            setup,
            scheduler,
            events: BinaryHeap::new(),
            made: 0,
            now: 0,
            jobs: Vec::new(),
            unused: Vec::new(),
            issued: 0,
            cursors: tenants.iter().map(|tenant| vec![0; tenant.phases.len()]).collect(),
            random: (0..tenants.len()).map(|n| SplitMix::new(setup.seed, &[n as u64])).collect(),
            cpus: (0..setup.machine.device_cpus).map(|_| None).collect(),
            host: HostCpus::new(setup.machine.host_cpus),
            meter: Meter::new(tenants.len(), setup.duration_ns),
        }
    }

    fn begin(&mut self) {
        for (tenant, Tenant { load, .. }) in self.setup.tenants.iter().enumerate() {
            match *load {
                Load::Closed { outstanding } => {
                    (0..outstanding).for_each(|_| self.after(0, Event::Issue { tenant }));
                }
                Load::Open { .. } => self.next_arrival(tenant),
            }
        }
    }

    fn play(&mut self) -> Result<(), SetupError> {
        while let Some(Reverse((at, _, event))) = self.events.pop()
            && at <= self.setup.duration_ns
        {
            self.now = at;
            match event {
                Event::Issue { tenant } => self.issue(tenant)?,
                Event::Reached { job } => self.reached(job),
                Event::Point { cpu } => self.point(cpu),
                Event::StepDone { job } => self.step_done(job),
                Event::HostDone { job } => {
                    self.host.end();
                    self.step_done(job);
                    self.begin_host();
                }
            }
        }
        self.now = self.setup.duration_ns;
        for cpu in 0..self.cpus.len() {
            self.count(cpu);
        }
        Ok(())
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((self.now.saturating_add(ns), self.made, event)));
    }

    /// The next arrival of an open tenant, after an exponential time.
    fn next_arrival(&mut self, tenant: usize) {
        if let Load::Open { mean_ns } = self.setup.tenants[tenant].load {
            let draw = (self.random[tenant].next() >> 11) as f64 / (1u64 << 53) as f64;
            let gap = -(1.0 - draw).ln() * mean_ns as f64;
            self.after((gap as u64).max(1), Event::Issue { tenant });
        }
    }

    fn issue(&mut self, tenant: usize) -> Result<(), SetupError> {
        self.next_arrival(tenant);
        self.issued += 1;
        if self.issued > OPERATIONS_MAX {
            return Err(SetupError::TooMany(OPERATIONS_MAX));
        }
        let phase = self.setup.tenants[tenant].phase(self.now);
        let operations = self.setup.tenants[tenant].phases[phase].operations.len() as u64;
        let cursor = &mut self.cursors[tenant][phase];
        let operation = (*cursor % operations) as usize;
        *cursor += 1;
        let job = Job { tenant, phase, operation, step: 0, issued_ns: self.now, left_ns: 0, begun: false };
        let number = match self.unused.pop() {
            Some(number) => {
                self.jobs[number] = job;
                number
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() - 1
            }
        };
        self.begin_step(number);
        Ok(())
    }

    fn step(&self, job: &Job) -> Option<Step> {
        let operations = &self.setup.tenants[job.tenant].phases[job.phase].operations;
        operations[job.operation].steps.get(job.step).copied()
    }

    /// Begins the step that an operation is at, or answers it when there is none.
    fn begin_step(&mut self, number: usize) {
        match self.step(&self.jobs[number]) {
            None => self.answer(number),
            Some(Step::Host { host_ns }) => {
                self.host.wait(HostStep { job: number, host_ns });
                self.begin_host();
            }
            Some(Step::Device { host_ns, sent_bytes, .. }) => {
                let job = &mut self.jobs[number];
                (job.left_ns, job.begun) = (self.setup.machine.device_ns(host_ns), false);
                self.after(self.setup.machine.link(sent_bytes), Event::Reached { job: number });
            }
        }
    }

    fn begin_host(&mut self) {
        while let Some(HostStep { job, host_ns }) = self.host.begin() {
            self.meter.host(self.jobs[job].tenant, host_ns);
            self.after(host_ns, Event::HostDone { job });
        }
    }

    fn step_done(&mut self, number: usize) {
        self.jobs[number].step += 1;
        self.begin_step(number);
    }

    fn answer(&mut self, number: usize) {
        let Job { tenant, issued_ns, .. } = self.jobs[number];
        self.meter.answered(tenant, self.now - issued_ns);
        self.leave(number, 0);
    }

    /// An operation is over, and a closed tenant issues another so much later.
    fn leave(&mut self, number: usize, pause_ns: u64) {
        let tenant = self.jobs[number].tenant;
        self.unused.push(number);
        if matches!(self.setup.tenants[tenant].load, Load::Closed { .. }) {
            self.after(pause_ns, Event::Issue { tenant });
        }
    }

    fn reached(&mut self, number: usize) {
        let job = &self.jobs[number];
        let Some(Step::Device { preemptible, memory_bytes, .. }) = self.step(job) else { return };
        let (id, user) = (RequestId(number as u64), UserId(job.tenant as u32));
        if self.scheduler.arrive(Request { id, user, preemptible, memory_bytes }).is_err() {
            self.meter.refused(job.tenant);
            self.leave(number, self.setup.machine.link(0) + AFTER_REFUSAL_NS);
        }
        self.dispatch();
    }

    /// Gives turns to processors until none is free or nothing may run.
    fn dispatch(&mut self) {
        while let Some(cpu) = self.cpus.iter().position(Option::is_none)
            && let Some(turn) = self.scheduler.next()
        {
            let number = turn.id.0 as usize;
            let preemptible =
                matches!(self.step(&self.jobs[number]), Some(Step::Device { preemptible: true, .. }));
            let job = &mut self.jobs[number];
            job.left_ns += if job.begun { self.setup.machine.resume_ns } else { 0 };
            job.begun = true;
            let slice_ns = turn.slice_ns.unwrap_or(u64::MAX);
            let turn =
                Running { job: number, preemptible, slice_ns, began_ns: self.now, counted_ns: self.now };
            self.next_point(cpu, &turn);
            self.cpus[cpu] = Some(turn);
        }
    }

    /// Makes the event at which a turn is looked at again.
    fn next_point(&mut self, cpu: usize, turn: &Running) {
        let left = self.jobs[turn.job].left_ns;
        let slice_left = turn.slice_ns.saturating_sub(self.now - turn.began_ns);
        let point =
            if turn.preemptible { left.min(slice_left).min(self.setup.machine.check_ns) } else { left };
        self.after(point, Event::Point { cpu });
    }

    /// Counts what a processor has done since it was counted last; returns the turn so far.
    fn count(&mut self, cpu: usize) -> Option<(usize, u64)> {
        let turn = self.cpus[cpu].as_mut()?;
        let job = &mut self.jobs[turn.job];
        self.meter.device(job.tenant, turn.counted_ns, self.now);
        job.left_ns -= self.now - turn.counted_ns;
        turn.counted_ns = self.now;
        Some((turn.job, self.now - turn.began_ns))
    }

    fn point(&mut self, cpu: usize) {
        let Some((number, ran_ns)) = self.count(cpu) else { return };
        let id = RequestId(number as u64);
        let Some(turn) = self.cpus[cpu].take() else { return };
        let ended = if self.jobs[number].left_ns == 0 {
            Ended::Finished
        } else if ran_ns >= turn.slice_ns || self.scheduler.yields(id, ran_ns) {
            Ended::Preempted
        } else {
            self.next_point(cpu, &turn);
            self.cpus[cpu] = Some(turn);
            return;
        };
        let told = self.scheduler.ended(id, ran_ns, ended);
        assert!(told.is_ok(), "the scheduler does not know the turn of {id:?}");
        if ended == Ended::Finished
            && let Some(Step::Device { returned_bytes, .. }) = self.step(&self.jobs[number])
        {
            self.after(self.setup.machine.link(returned_bytes), Event::StepDone { job: number });
        }
        self.dispatch();
    }
}
