//! One user of the fair scheduler: its virtual time, the requests that wait, and the memory that it holds.

use super::Request;
use std::collections::VecDeque;

/// The share of a user against that of others: with twice the weight a user gets twice the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Weight(u32);

impl Weight {
    /// Of a user of whom nothing else is known.
    pub const DEFAULT: Weight = Weight(100);
    /// The smallest weight.
    pub const MIN: u32 = 1;
    /// The largest weight.
    pub const MAX: u32 = 10_000;

    /// A weight from [`MIN`](Weight::MIN) to [`MAX`](Weight::MAX), as `cpu.weight` of a control group has it; `None` for another number.
    pub fn new(weight: u32) -> Option<Weight> {
        (Self::MIN..=Self::MAX).contains(&weight).then_some(Weight(weight))
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Time divided by weight: nanoseconds of a user with [`Weight::DEFAULT`], with 20 bits behind the point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Virtual(u128);

impl Virtual {
    /// What so many nanoseconds are to a user of this weight.
    pub(super) fn of(ns: u64, weight: Weight) -> Virtual {
        Virtual(((u128::from(ns) * u128::from(Weight::DEFAULT.0)) << 20) / u128::from(weight.0))
    }

    /// Later by so much.
    pub(super) fn plus(self, other: Virtual) -> Virtual {
        Virtual(self.0 + other.0)
    }
}

/// A user that has a request, or more virtual time than those who have.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) weight: Weight,
    /// What was measured, by weight.
    pub(super) time: Virtual,
    /// Requests without a turn so far, with the number of their place.
    fresh: VecDeque<(u64, Request)>,
    /// Preempted requests, likewise. They hold their memory, so they can always go on.
    preempted: VecDeque<(u64, Request)>,
    /// Requests that have a turn now.
    pub(super) running: u32,
    /// Memory of the requests that have begun, in bytes.
    pub(super) held_bytes: u64,
}

impl Account {
    pub(super) fn new(weight: Weight, time: Virtual) -> Account {
        let (fresh, preempted) = (VecDeque::new(), VecDeque::new());
        Account { weight, time, fresh, preempted, running: 0, held_bytes: 0 }
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.fresh.len() + self.preempted.len()
    }

    /// Whether it has no request.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting() == 0 && self.running == 0
    }

    pub(super) fn wait(&mut self, place: u64, request: Request, begun: bool) {
        let queue = if begun { &mut self.preempted } else { &mut self.fresh };
        queue.push_back((place, request));
    }

    /// Whether a request may run with so much memory for all of this user's.
    pub(super) fn may_run(&self, memory_max_bytes: u64) -> bool {
        !self.preempted.is_empty() || self.fresh.front().is_some_and(|(_, r)| self.fits(r, memory_max_bytes))
    }

    /// Takes the request that has waited longest of those that may run.
    pub(super) fn take(&mut self, memory_max_bytes: u64) -> Option<Request> {
        let place = |queue: &VecDeque<(u64, Request)>| queue.front().map(|(place, _)| *place);
        let fresh =
            self.fresh.front().filter(|(_, r)| self.fits(r, memory_max_bytes)).map(|(place, _)| *place);
        match (fresh, place(&self.preempted)) {
            (Some(fresh), preempted) if preempted.is_none_or(|preempted| fresh < preempted) => {
                let (_, request) = self.fresh.pop_front()?;
                self.held_bytes += request.memory_bytes;
                Some(request)
            }
            _ => self.preempted.pop_front().map(|(_, request)| request),
        }
    }

    fn fits(&self, request: &Request, memory_max_bytes: u64) -> bool {
        request.memory_bytes <= memory_max_bytes.saturating_sub(self.held_bytes)
    }
}
