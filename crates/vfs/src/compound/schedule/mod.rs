//! Who runs next: the order in which programs of several users get the few processors that execute them.
//!
//! A [`Scheduler`] decides and does nothing else. It has no clock, no thread and no queue of a front: whoever owns the processors calls it
//! when a request comes, when a processor is free, at the check points of a request that can be interrupted, and when a turn is over,
//! each time with the nanoseconds that it measured. A server and a simulator so call the same code.
//!
//! ```text
//!  a request comes --arrive-->  +-----------+  --next-->  Turn { request, slice }  -->  a processor
//!                               | Scheduler |  <--yields?--  at each check point of a preemptible request
//!                               +-----------+  <--ended--    Finished, or Preempted: the request waits again
//! ```
//!
//! | scheduler | who is next | a turn | for |
//! |---|---|---|---|
//! | [`Fifo`] | the request that came first | to its end | what CompoundFS (HotStorage 2020, section 4.2.1) does: the control |
//! | [`RoundRobin`] | the next user in the circle | one slice | a second control: fair in turns, not in time |
//! | [`Fair`] | the user with the least measured time for its weight | one slice | users that do not trust one another |
//!
//! # What the caller promises
//! Ids are unique among the requests that have not finished. Each turn that [`next`](Scheduler::next) returns is ended once. Between two calls
//! any time may pass; a request that is not preemptible runs to its end, whatever the slice.

mod account;
mod fair;
mod fifo;
mod processors;
mod round_robin;
#[cfg(test)]
mod tests;

pub use account::Weight;
pub use fair::{Fair, FairSettings};
pub use fifo::Fifo;
pub use processors::{NoPolicy, Policy, Processors};
pub use round_robin::RoundRobin;

/// The longest turn of a preemptible request while others wait, in nanoseconds.
pub const SLICE_NS: u64 = 100_000;

/// Someone who is to get a share of the processors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UserId(pub u32);

/// A request, among those that have not finished.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// What a scheduler knows of a request before it runs. It does not know how long the request will take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which request.
    pub id: RequestId,
    /// Whose it is.
    pub user: UserId,
    /// Whether its turn can end before the request does.
    pub preemptible: bool,
    /// Memory that it holds from its first turn to its end, in bytes.
    pub memory_bytes: u64,
}

/// A request that is to run now on the processor that is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Which request.
    pub id: RequestId,
    /// Whose it is.
    pub user: UserId,
    /// When the turn is to end, in nanoseconds from its start; `None`: when the request does.
    pub slice_ns: Option<u64>,
}

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The request is done, well or not.
    Finished,
    /// The request waits for another turn.
    Preempted,
}

/// Why a scheduler does not take a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The user has as many requests waiting as it may.
    #[error("user {}: {max} requests wait already, which is the limit; wait for an answer first", user.0)]
    Waiting {
        /// Whose request.
        user: UserId,
        /// Requests of a user that may wait.
        max: usize,
    },
    /// The request alone needs more memory than its user may hold.
    #[error("user {}: a request of {bytes} bytes exceeds the memory budget of {max} bytes; split it", user.0)]
    Memory {
        /// Whose request.
        user: UserId,
        /// Memory of the request, in bytes.
        bytes: u64,
        /// Memory that a user may hold, in bytes.
        max: u64,
    },
}

/// A turn was ended that had not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {} has no turn", .0.0)]
pub struct NotRunning(pub RequestId);

/// The policy: which request runs next, and for how long.
///
/// ```
/// use weft_vfs::compound::schedule::{Ended, Fair, FairSettings, Request, RequestId, Scheduler, UserId};
/// let mut fair = Fair::new(FairSettings::default());
/// let request = |id, user| Request { id: RequestId(id), user: UserId(user), preemptible: false, memory_bytes: 0 };
/// for (id, user) in [(1, 7), (2, 7), (3, 8)] {
///     fair.arrive(request(id, user))?;
/// }
/// let first = fair.next().unwrap();
/// assert_eq!(first.user, UserId(7));
/// fair.ended(first.id, 50_000, Ended::Finished)?;
/// assert_eq!(fair.next().unwrap().user, UserId(8), "user 7 has had 50 us, user 8 nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Scheduler {
    /// A request has come.
    ///
    /// # Errors
    /// A limit of its user, where the scheduler has limits. The request is forgotten then.
    fn arrive(&mut self, request: Request) -> Result<(), Refused>;

    /// The request for a processor that is free; `None` when there is none that may run.
    fn next(&mut self) -> Option<Turn>;

    /// Whether a preemptible request that has run for so many nanoseconds of its turn should make room for another that waits. The slice of
    /// the turn is the caller's to keep; this is for what came after the turn began.
    fn yields(&self, id: RequestId, ran_ns: u64) -> bool {
        let _ = (id, ran_ns);
        false
    }

    /// A turn has ended after so many measured nanoseconds.
    ///
    /// # Errors
    /// The request had no turn; nothing has changed.
    fn ended(&mut self, id: RequestId, ran_ns: u64, ended: Ended) -> Result<(), NotRunning>;
}
