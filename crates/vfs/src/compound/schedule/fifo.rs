//! First come, first served: each request runs to its end in the order of arrival. The control of the papers.

use super::{Ended, NotRunning, Refused, Request, RequestId, Scheduler, Turn};
use std::collections::{BTreeMap, VecDeque};

/// First come, first served. It has no limits: it holds what it is given.
#[derive(Debug, Default)]
pub struct Fifo {
    waiting: VecDeque<Request>,
    running: BTreeMap<RequestId, Request>,
}

impl Scheduler for Fifo {
    fn arrive(&mut self, request: Request) -> Result<(), Refused> {
        self.waiting.push_back(request);
        Ok(())
    }

    fn next(&mut self) -> Option<Turn> {
        let request = self.waiting.pop_front()?;
        self.running.insert(request.id, request);
        Some(Turn { id: request.id, user: request.user, slice_ns: None })
    }

    fn ended(&mut self, id: RequestId, _ran_ns: u64, ended: Ended) -> Result<(), NotRunning> {
        let request = self.running.remove(&id).ok_or(NotRunning(id))?;
        if ended == Ended::Preempted {
            // It came before all that wait.
            self.waiting.push_front(request);
        }
        Ok(())
    }
}
