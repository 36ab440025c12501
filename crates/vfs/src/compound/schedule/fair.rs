//! Fair shares of measured time.
//!
//! Each user has a virtual time: the nanoseconds that its turns were measured to take, divided by its weight. The user with the smallest
//! virtual time runs next, so the virtual times stay together and users get time by weight, whatever their requests cost. Costs are not
//! estimated: a turn that runs counts as one slice for the choice until it is measured.
//!
//! A user that comes, comes back or may run again (its memory, or its only request, was in use) starts at the virtual time of the last
//! turn that began, if its own is smaller: it gets no credit for time in which it had nothing to run. A user that is ahead stays ahead
//! until nothing is left to do; then all begin anew.
//! This is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996; over several processors SFQ(D), Jin, Chase and Kaur,
//! SIGMETRICS 2004) with measured times in place of lengths known beforehand.
//!
//! On one processor, two users that both have requests waiting throughout differ in time by weight by at most the longest turn of
//! the one plus the longest turn of the other. A turn is at most a slice, or one request that is not preemptible.

use super::account::{Account, Virtual, Weight};
use super::{Ended, NotRunning, Refused, Request, RequestId, SLICE_NS, Scheduler, Turn, UserId};
use std::collections::{BTreeMap, BTreeSet};

/// Limits of [`Fair`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairSettings {
    /// The longest turn of a preemptible request while others wait, in nanoseconds.
    pub slice_ns: u64,
    /// How far a running request's user may get ahead of a user that waits before the request [makes room](Scheduler::yields), in
    /// nanoseconds of a user with [`Weight::DEFAULT`].
    pub lead_ns: u64,
    /// Memory that the begun requests of one user may hold together, in bytes.
    pub memory_max_bytes: u64,
    /// Requests of one user that may wait.
    pub waiting_max: usize,
}

impl Default for FairSettings {
    /// Slices of 100 us, a lead of 10 us, 64 MiB and 1024 requests a user.
    fn default() -> Self {
        FairSettings { slice_ns: SLICE_NS, lead_ns: 10_000, memory_max_bytes: 64 << 20, waiting_max: 1024 }
    }
}

/// Virtual run time from measured nanoseconds.
#[derive(Debug)]
pub struct Fair {
    settings: FairSettings,
    /// Weights other than the default.
    weights: BTreeMap<UserId, Weight>,
    users: BTreeMap<UserId, Account>,
    /// Users with a request that may run, by virtual time with their running turns.
    ready: BTreeSet<(Virtual, UserId)>,
    /// Users without a request, by virtual time. They are forgotten when time has passed them.
    idle: BTreeSet<(Virtual, UserId)>,
    running: BTreeMap<RequestId, Request>,
    /// Virtual time of the last turn that began, or when nothing was left to do, of whoever was furthest; it never goes back.
    now: Virtual,
    /// The largest virtual time of a user.
    furthest: Virtual,
    /// Places given out in the queues.
    places: u64,
}

impl Fair {
    /// Without a user.
    pub fn new(settings: FairSettings) -> Fair {
        Fair {
            settings,
            weights: BTreeMap::new(),
            users: BTreeMap::new(),
            ready: BTreeSet::new(),
            idle: BTreeSet::new(),
            running: BTreeMap::new(),
            now: Virtual::default(),
            furthest: Virtual::default(),
            places: 0,
        }
    }

    /// Sets a user's weight for what is measured from now on.
    pub fn set_weight(&mut self, user: UserId, weight: Weight) {
        self.change(user, |account| account.weight = weight);
        if weight == Weight::DEFAULT {
            self.weights.remove(&user);
        } else {
            self.weights.insert(user, weight);
        }
    }

    /// Users of whom something is kept besides a weight: those with a request, and those ahead of them.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// The place in [`ready`](Fair::ready) of a user that may run.
    fn key(&self, account: &Account) -> Option<Virtual> {
        let turns = self.settings.slice_ns.saturating_mul(u64::from(account.running));
        let key = account.time.plus(Virtual::of(turns, account.weight));
        account.may_run(self.settings.memory_max_bytes).then_some(key)
    }

    /// Changes a user's account and its places by it.
    fn change<T>(&mut self, user: UserId, change: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let mut account = self.users.remove(&user)?;
        let before = self.key(&account);
        if let Some(key) = before {
            self.ready.remove(&(key, user));
        }
        self.idle.remove(&(account.time, user));
        let result = change(&mut account);
        if before.is_none() && self.key(&account).is_some() {
            account.time = account.time.max(self.now);
        }
        if let Some(key) = self.key(&account) {
            self.ready.insert((key, user));
        }
        if account.is_idle() {
            self.idle.insert((account.time, user));
        }
        self.users.insert(user, account);
        Some(result)
    }

    /// Forgets users without a request that would start at the present time if they came back.
    fn forget(&mut self) {
        while let Some(&(time, user)) = self.idle.first()
            && time <= self.now
        {
            self.idle.pop_first();
            self.users.remove(&user);
        }
    }
}

impl Scheduler for Fair {
    fn arrive(&mut self, request: Request) -> Result<(), Refused> {
        let FairSettings { memory_max_bytes: max, waiting_max, .. } = self.settings;
        let (user, bytes) = (request.user, request.memory_bytes);
        if bytes > max {
            return Err(Refused::Memory { user, bytes, max });
        }
        if self.users.get(&user).is_some_and(|account| account.waiting() >= waiting_max) {
            return Err(Refused::Waiting { user, max: waiting_max });
        }
        let weight = self.weights.get(&user).copied().unwrap_or(Weight::DEFAULT);
        self.users.entry(user).or_insert_with(|| Account::new(weight, self.now));
        self.places += 1;
        let place = self.places;
        self.change(user, |account| account.wait(place, request, false));
        Ok(())
    }

    fn next(&mut self) -> Option<Turn> {
        let &(_, user) = self.ready.first()?;
        let max = self.settings.memory_max_bytes;
        let (request, time) = self.change(user, |account| {
            let request = account.take(max);
            account.running += u32::from(request.is_some());
            (request, account.time)
        })?;
        let request = request?;
        self.now = self.now.max(time);
        self.forget();
        self.running.insert(request.id, request);
        let slice_ns = request.preemptible.then_some(self.settings.slice_ns);
        Some(Turn { id: request.id, user, slice_ns })
    }

    fn yields(&self, id: RequestId, ran_ns: u64) -> bool {
        let Some(account) = self.running.get(&id).and_then(|request| self.users.get(&request.user)) else {
            return false;
        };
        let reached = account.time.plus(Virtual::of(ran_ns, account.weight));
        let lead = Virtual::of(self.settings.lead_ns, Weight::DEFAULT);
        self.ready.first().is_some_and(|(first, _)| first.plus(lead) <= reached)
    }

    fn ended(&mut self, id: RequestId, ran_ns: u64, ended: Ended) -> Result<(), NotRunning> {
        let request = self.running.remove(&id).ok_or(NotRunning(id))?;
        self.places += 1;
        let place = self.places;
        let time = self.change(request.user, |account| {
            // A turn that took no measurable time counts, or a user of such turns would keep all others out.
            account.time = account.time.plus(Virtual::of(ran_ns.max(1), account.weight));
            account.running -= 1;
            match ended {
                Ended::Finished => account.held_bytes -= request.memory_bytes,
                Ended::Preempted => account.wait(place, request, true),
            }
            account.time
        });
        self.furthest = self.furthest.max(time.unwrap_or_default());
        if self.running.is_empty() && self.ready.is_empty() {
            // Whoever is ahead has kept nobody waiting.
            self.now = self.furthest;
        }
        self.forget();
        Ok(())
    }
}
