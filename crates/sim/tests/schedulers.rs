//! What each scheduler promises, on random loads: no processor idles while a request may run, nobody starves, shares follow weights,
//! the same load gives the same result. A recorder stands between the simulation and the scheduler and keeps books of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::collections::BTreeMap;
use weft_sim::cpus::{Load, Machine, Operation, Phase, Scheduling, Setup, Tenant, Trace, run};
use weft_vfs::compound::schedule::{
    Ended, FairSettings, NotRunning, Refused, Request, RequestId, SLICE_NS, Scheduler, Turn, UserId, Weight,
};

/// A scheduler and what it was asked and said.
struct Recorder {
    inner: Box<dyn Scheduler>,
    /// Memory that a user may hold.
    memory_max_bytes: u64,
    /// Requests that wait, whether they have begun, in the order of arrival.
    waiting: Vec<(Request, bool)>,
    running: BTreeMap<RequestId, Request>,
    held: BTreeMap<UserId, u64>,
    arrived: Vec<RequestId>,
    begun: Vec<RequestId>,
    /// Time that all turns took, and for each user what it was when the user had its last turn, or began to wait.
    ran_ns: u64,
    since_ns: BTreeMap<UserId, u64>,
    longest_wait_ns: BTreeMap<UserId, u64>,
}

impl Recorder {
    fn new(inner: Box<dyn Scheduler>, memory_max_bytes: u64) -> Recorder {
        Recorder {
            inner,
            memory_max_bytes,
            waiting: Vec::new(),
            running: BTreeMap::new(),
            held: BTreeMap::new(),
            arrived: Vec::new(),
            begun: Vec::new(),
            ran_ns: 0,
            since_ns: BTreeMap::new(),
            longest_wait_ns: BTreeMap::new(),
        }
    }

    fn held(&self, user: UserId) -> u64 {
        self.held.get(&user).copied().unwrap_or(0)
    }

    /// Whether the first request of its user that has not begun fits, or one has begun.
    fn may_run(&self, user: UserId) -> bool {
        let of_user = || self.waiting.iter().filter(|(request, _)| request.user == user);
        let first = of_user().find(|(_, begun)| !begun);
        of_user().any(|(_, begun)| *begun)
            || first
                .is_some_and(|(request, _)| self.held(user) + request.memory_bytes <= self.memory_max_bytes)
    }

    fn waits(&mut self, request: Request, begun: bool) {
        if !self.waiting.iter().any(|(other, _)| other.user == request.user) {
            self.since_ns.insert(request.user, self.ran_ns);
        }
        self.waiting.push((request, begun));
    }
}

impl Scheduler for Recorder {
    fn arrive(&mut self, request: Request) -> Result<(), Refused> {
        self.inner.arrive(request)?;
        self.arrived.push(request.id);
        self.waits(request, false);
        Ok(())
    }

    fn next(&mut self) -> Option<Turn> {
        let Some(turn) = self.inner.next() else {
            let idle = self.waiting.iter().find(|(request, _)| self.may_run(request.user));
            assert!(idle.is_none(), "a processor stays free and {idle:?} could run");
            return None;
        };
        let at = self.waiting.iter().position(|(request, _)| request.id == turn.id).expect("it waits");
        let (request, begun) = self.waiting.remove(at);
        assert_eq!(turn.user, request.user);
        assert!(turn.slice_ns.is_none() || request.preemptible);
        if !begun {
            self.begun.push(request.id);
            *self.held.entry(request.user).or_default() += request.memory_bytes;
            assert!(
                self.held(request.user) <= self.memory_max_bytes,
                "user {:?} holds too much",
                request.user
            );
        }
        let since = self.since_ns.insert(request.user, self.ran_ns).unwrap_or(0);
        let longest = self.longest_wait_ns.entry(request.user).or_default();
        *longest = (*longest).max(self.ran_ns - since);
        self.running.insert(request.id, request);
        Some(turn)
    }

    fn yields(&self, id: RequestId, ran_ns: u64) -> bool {
        self.inner.yields(id, ran_ns)
    }

    fn ended(&mut self, id: RequestId, ran_ns: u64, ended: Ended) -> Result<(), NotRunning> {
        self.inner.ended(id, ran_ns, ended)?;
        self.ran_ns += ran_ns;
        let request = self.running.remove(&id).expect("it runs");
        match ended {
            Ended::Finished => *self.held.entry(request.user).or_default() -= request.memory_bytes,
            Ended::Preempted => self.waits(request, true),
        }
        Ok(())
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    (1_000u64..400_000, any::<bool>(), 0u64..40 << 20)
        .prop_map(|(ns, preemptible, bytes)| Operation::on_device("x", ns, preemptible, bytes))
}

fn tenant(outstanding: std::ops::Range<u32>) -> impl Strategy<Value = Tenant> {
    (outstanding, 20u32..500, prop::collection::vec(operation(), 1..4)).prop_map(
        |(outstanding, weight, operations)| Tenant {
            weight: Weight::new(weight).unwrap(),
            phases: vec![Phase { from_ns: 0, operations }],
            ..Tenant::closed("t", outstanding, Operation::on_device("x", 1, false, 0))
        },
    )
}

/// Any tenants: a few operations under way, or open arrivals.
fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let any = (tenant(1..12), prop::option::of(20_000u64..2_000_000)).prop_map(|(tenant, mean)| Tenant {
        load: mean.map_or(tenant.load, |mean_ns| Load::Open { mean_ns }),
        ..tenant
    });
    prop::collection::vec(any, 1..6)
}

/// Tenants that always have requests waiting, of little memory.
fn backlogged() -> impl Strategy<Value = Vec<Tenant>> {
    let small = tenant(24..32).prop_map(|mut tenant| {
        for operation in &mut tenant.phases[0].operations {
            let ns = operation.steps[0].host_ns();
            let preemptible = ns.is_multiple_of(2);
            *operation = Operation::on_device("x", ns, preemptible, 4096);
        }
        tenant
    });
    prop::collection::vec(small, 2..5)
}

fn setup(tenants: Vec<Tenant>, device_cpus: u32, duration_ns: u64) -> Setup {
    Setup { machine: Machine::paper(device_cpus, 100), tenants, duration_ns, seed: 7 }
}

/// The longest turn of a tenant: a slice, its last check interval and a resumption, or an operation.
fn longest_turn(tenant: &Tenant) -> u64 {
    let costs = tenant.phases[0].operations.iter().map(|operation| operation.steps[0].host_ns());
    costs.max().unwrap_or(0).max(SLICE_NS) + 500
}

fn memory_max(scheduling: Scheduling) -> u64 {
    match scheduling {
        Scheduling::Fair | Scheduling::FairByCount => FairSettings::default().memory_max_bytes,
        Scheduling::Fifo | Scheduling::RoundRobin => u64::MAX,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_processor_idles_while_a_request_may_run_and_no_budget_is_exceeded(
        tenants in tenants(), cpus in 1u32..=8, kind in 0usize..4,
    ) {
        let scheduling = Scheduling::ALL[kind];
        let mut recorder = Recorder::new(scheduling.scheduler(&tenants), memory_max(scheduling));
        run(&setup(tenants, cpus, 20_000_000), &mut recorder).unwrap();
        prop_assert!(!recorder.begun.is_empty());
    }

    #[test]
    fn first_come_first_served_begins_requests_in_the_order_of_arrival(tenants in tenants(), cpus in 1u32..=8) {
        let mut recorder = Recorder::new(Scheduling::Fifo.scheduler(&tenants), u64::MAX);
        run(&setup(tenants, cpus, 20_000_000), &mut recorder).unwrap();
        prop_assert_eq!(&recorder.begun[..], &recorder.arrived[..recorder.begun.len()]);
    }

    #[test]
    fn the_same_load_gives_the_same_result(tenants in tenants(), cpus in 1u32..=8, kind in 0usize..4) {
        let outcome = || {
            let mut scheduler = Scheduling::ALL[kind].scheduler(&tenants);
            run(&setup(tenants.clone(), cpus, 10_000_000), scheduler.as_mut()).unwrap()
        };
        prop_assert_eq!(outcome(), outcome());
    }

    /// The bound of start-time fair queueing: the longest turns of both, on one processor; as often again for each further one.
    #[test]
    fn users_that_always_wait_get_time_by_weight(tenants in backlogged(), cpus in 1u32..=4, ms in 5u64..60) {
        let mut fair = Scheduling::Fair.scheduler(&tenants);
        let outcome = run(&setup(tenants.clone(), cpus, ms * 1_000_000), fair.as_mut()).unwrap();
        let by_weight = |ns: u64, n: usize| ns as f64 * 100.0 / f64::from(tenants[n].weight.get());
        let turns = if cpus == 1 { 1.0 } else { f64::from(cpus + 1) };
        for one in 0..tenants.len() {
            for two in 0..one {
                let [first, second] = [one, two].map(|n| by_weight(outcome.tenants[n].device_ns, n));
                let [a, b] = [one, two].map(|n| by_weight(longest_turn(&tenants[n]), n));
                prop_assert!(
                    (first - second).abs() <= (a + b) * turns,
                    "{first} and {second} by weight, longest turns {a} and {b}, {cpus} processors"
                );
            }
        }
    }

    #[test]
    fn nobody_starves_under_fair_shares(tenants in backlogged()) {
        let mut recorder = Recorder::new(Scheduling::Fair.scheduler(&tenants), u64::MAX);
        run(&setup(tenants.clone(), 1, 60_000_000), &mut recorder).unwrap();
        for (n, tenant) in tenants.iter().enumerate() {
            let own = longest_turn(tenant) as f64 / f64::from(tenant.weight.get());
            let others = tenants.iter().enumerate().filter(|(other, _)| *other != n).map(|(_, other)| {
                // What it may get until the waiting user is the last: its turn, and its share of the user's last turn.
                longest_turn(other) as f64 + own * f64::from(other.weight.get())
            });
            let bound = others.sum::<f64>() + longest_turn(tenant) as f64;
            let waited = recorder.longest_wait_ns[&UserId(n as u32)] as f64;
            prop_assert!(waited <= bound, "user {n} waited {waited} ns, bound {bound} ns");
        }
    }

    #[test]
    fn bytes_that_are_no_trace_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Trace::read(&bytes[..]);
        let _ = Trace::read(&[&b"weft-cpu-trace 1\n"[..], &bytes].concat()[..]);
    }

    #[test]
    fn a_damaged_trace_is_refused_or_runs(at in 0usize..150, byte in any::<u8>()) {
        let mut text = b"weft-cpu-trace 1\nuser a outstanding=3 weight=7\nuser b every=90000\n\
            a write 5000 no 4096\nb compress 100000 yes 262144\n".to_vec();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(trace) = Trace::read(&text[..]) {
            let mut fair = Scheduling::Fair.scheduler(&trace.tenants);
            run(&setup(trace.tenants, 2, 1_000_000), fair.as_mut()).unwrap();
        }
    }
}
