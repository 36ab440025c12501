//! Round robin: the users that have something to run take turns of one slice each, whatever a turn costs.

use super::{Ended, NotRunning, Refused, Request, RequestId, SLICE_NS, Scheduler, Turn, UserId};
use std::collections::{BTreeMap, VecDeque};

/// Users take turns. It has no limits: it holds what it is given.
#[derive(Debug, Default)]
pub struct RoundRobin {
    /// Users with a request that waits, each once.
    circle: VecDeque<UserId>,
    /// Requests that wait, of the users in the circle.
    waiting: BTreeMap<UserId, VecDeque<Request>>,
    running: BTreeMap<RequestId, Request>,
}

impl RoundRobin {
    fn wait(&mut self, request: Request) {
        let queue = self.waiting.entry(request.user).or_default();
        if queue.is_empty() {
            self.circle.push_back(request.user);
        }
        queue.push_back(request);
    }
}

impl Scheduler for RoundRobin {
    fn arrive(&mut self, request: Request) -> Result<(), Refused> {
        self.wait(request);
        Ok(())
    }

    fn next(&mut self) -> Option<Turn> {
        let user = self.circle.pop_front()?;
        let queue = self.waiting.get_mut(&user)?;
        let request = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&user);
        } else {
            self.circle.push_back(user);
        }
        self.running.insert(request.id, request);
        Some(Turn { id: request.id, user, slice_ns: request.preemptible.then_some(SLICE_NS) })
    }

    fn ended(&mut self, id: RequestId, _ran_ns: u64, ended: Ended) -> Result<(), NotRunning> {
        let request = self.running.remove(&id).ok_or(NotRunning(id))?;
        if ended == Ended::Preempted {
            self.wait(request);
        }
        Ok(())
    }
}
