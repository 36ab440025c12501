//! The processors of a modelled device, which execute the programs of all processes.
//!
//! A program runs on the thread that it came to, but only while it has one of the processors. A [`Scheduler`] decides which one is next, and
//! this module does what a scheduler does not: it counts the processors, measures turns, and wakes whoever has one.
//!
//! ```text
//!  enter --arrive--> waits --next--> its turn --check point: it makes room--> the slowdown's time --ended(Preempted)--> waits
//!                                       `-------- the program is done ------> the slowdown's time --ended(Finished)---> gone
//! ```
//!
//! A turn is measured by the monotonic clock, from the moment at which the program is given the processor until it gives it back. A program
//! that waits for its thread to be woken or for the medium keeps the processor from others all the same, so the processor's time is what it
//! pays; the thread's own processor time would not show that. A slower processor is a host's processor that goes on to hold the program
//! after its turn: completions are late by that, and so is the next turn.
//!
//! One lock guards everything here; it is taken after all other locks, and nobody waits with it for anything but a turn.

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_vfs::compound::schedule::{Ended, Processors, Refused, Request, RequestId, Scheduler, UserId};

/// The rest of the slowdown's time that is not slept but spent, because a sleep may end that much late.
const SPIN: Duration = Duration::from_micros(100);

/// What a scheduler has to know of a program before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Whose program.
    pub user: u32,
    /// Whether it has check points.
    pub preemptible: bool,
    /// Memory that it takes at most, in bytes.
    pub memory_bytes: u64,
}

/// What the processors do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuLoad {
    /// Processors.
    pub processors: u32,
    /// Those of them that a program has.
    pub busy: u32,
    /// Programs that wait for a turn.
    pub waiting: usize,
}

/// The processors.
pub struct ProgramCpus {
    choice: Processors,
    state: Mutex<State>,
}

struct State {
    scheduler: Box<dyn Scheduler + Send>,
    free: u32,
    /// Numbers given to programs.
    numbers: u64,
    /// Those who wait.
    waiting: FxHashMap<RequestId, Waiting>,
}

struct Waiting {
    wakes: Arc<Condvar>,
    turn: Option<Turn>,
}

#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    /// When it is to end, if before the program.
    slice: Option<Duration>,
}

impl State {
    /// Gives free processors away.
    fn dispatch(&mut self) {
        while self.free > 0
            && let Some(next) = self.scheduler.next()
        {
            // Whoever the scheduler knows has a turn or waits here.
            let Some(waiting) = self.waiting.get_mut(&next.id) else { continue };
            self.free -= 1;
            let slice = next.slice_ns.map(Duration::from_nanos);
            waiting.turn = Some(Turn { began: Instant::now(), slice });
            waiting.wakes.notify_one();
        }
    }
}

impl ProgramCpus {
    /// All are free.
    pub fn new(choice: &Processors) -> ProgramCpus {
        let scheduler = choice.scheduler();
        let state = State { scheduler, free: choice.count, numbers: 0, waiting: FxHashMap::default() };
        ProgramCpus { choice: choice.clone(), state: Mutex::new(state) }
    }

    /// Waits for a processor.
    ///
    /// # Errors
    /// The scheduler does not take the program.
    pub fn enter(&self, demand: Demand) -> Result<OnCpu<'_>, Refused> {
        let mut state = self.state.lock();
        state.numbers += 1;
        let id = RequestId(state.numbers);
        let Demand { user, preemptible, memory_bytes } = demand;
        state.scheduler.arrive(Request { id, user: UserId(user), preemptible, memory_bytes })?;
        let wakes = Arc::<Condvar>::default();
        let turn = wait(&mut state, id, &wakes);
        Ok(OnCpu { cpus: self, id, wakes, turn })
    }

    /// What they do now.
    pub fn load(&self) -> CpuLoad {
        let state = self.state.lock();
        let waiting = state.waiting.values().filter(|waiting| waiting.turn.is_none()).count();
        CpuLoad { processors: self.choice.count, busy: self.choice.count - state.free, waiting }
    }

    /// What a device's processor takes for what took so long.
    fn slowed(&self, ran: Duration) -> Duration {
        ran.saturating_mul(self.choice.slowdown_percent) / 100
    }
}

/// Waits until the program that the scheduler knows has a turn.
fn wait(state: &mut MutexGuard<'_, State>, id: RequestId, wakes: &Arc<Condvar>) -> Turn {
    state.waiting.insert(id, Waiting { wakes: wakes.clone(), turn: None });
    state.dispatch();
    loop {
        if let Some(turn) = state.waiting.get(&id).and_then(|waiting| waiting.turn) {
            state.waiting.remove(&id);
            return turn;
        }
        wakes.wait(state);
    }
}

/// Spends time, to some microseconds.
fn spend(until: Instant) {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left > 2 * SPIN {
            std::thread::sleep(left - SPIN);
        } else if left > Duration::ZERO {
            std::hint::spin_loop();
        } else {
            return;
        }
    }
}

/// A program that has a processor. Who drops it gives the processor back.
pub struct OnCpu<'a> {
    cpus: &'a ProgramCpus,
    id: RequestId,
    wakes: Arc<Condvar>,
    turn: Turn,
}

impl OnCpu<'_> {
    /// Lets others have the processor, if it is their turn, and comes back with another turn of its own.
    pub fn check_point(&mut self) {
        let Some(slice) = self.turn.slice else { return };
        let ran = self.cpus.slowed(self.turn.began.elapsed());
        if ran < slice && !self.cpus.state.lock().scheduler.yields(self.id, ran.as_nanos() as u64) {
            return;
        }
        self.hold();
        let mut state = self.cpus.state.lock();
        if self.give_back(&mut state, Ended::Preempted) {
            self.turn = wait(&mut state, self.id, &self.wakes);
        }
    }

    /// Holds the processor for the time that the slowdown adds.
    fn hold(&self) {
        if self.cpus.choice.slowdown_percent > 100 {
            spend(self.turn.began + self.cpus.slowed(self.turn.began.elapsed()));
        }
    }

    /// Ends the turn; whether there was one.
    fn give_back(&self, state: &mut State, ended: Ended) -> bool {
        let ran = self.turn.began.elapsed();
        state.free += 1;
        state.scheduler.ended(self.id, ran.as_nanos() as u64, ended).is_ok()
    }
}

impl Drop for OnCpu<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.hold();
        }
        let mut state = self.cpus.state.lock();
        self.give_back(&mut state, Ended::Finished);
        state.dispatch();
    }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::sync::mpsc::channel;
    use weft_vfs::compound::schedule::Policy;

    fn demand(user: u32) -> Demand {
        Demand { user, preemptible: true, memory_bytes: 0 }
    }

    fn idle(cpus: &ProgramCpus) -> bool {
        cpus.load() == CpuLoad { processors: cpus.choice.count, busy: 0, waiting: 0 }
    }

    fn until_waiting(cpus: &ProgramCpus, count: usize) {
        while cpus.load().waiting < count {
            std::thread::yield_now();
        }
    }

    /// The order in which the programs of users get the one processor that is taken when they come.
    fn order(policy: Policy, users: &[u32]) -> Vec<u32> {
        let cpus = ProgramCpus::new(&Processors { policy, ..Processors::new(1) });
        let (began, begins) = channel();
        std::thread::scope(|scope| {
            let first = cpus.enter(demand(9)).unwrap();
            for (count, user) in users.iter().enumerate() {
                let (cpus, began) = (&cpus, began.clone());
                scope.spawn(move || {
                    let _turn = cpus.enter(demand(*user)).unwrap();
                    began.send(*user).unwrap();
                });
                until_waiting(cpus, count + 1);
            }
            drop(first);
        });
        assert!(idle(&cpus));
        drop(began);
        begins.iter().collect()
    }

    #[test]
    fn turns_are_given_in_the_order_of_the_policy() {
        let users = [1, 1, 1, 2, 2];
        assert_eq!(order(Policy::Fifo, &users), [1, 1, 1, 2, 2]);
        assert_eq!(order(Policy::RoundRobin, &users), [1, 2, 1, 2, 1]);
        let fair = order(Policy::Fair, &users);
        assert_eq!(&fair[..2], [1, 2], "after one turn of user 1, user 2 is behind");
    }

    #[test]
    fn a_program_that_comes_to_a_check_point_after_its_slice_comes_back_behind_others() {
        for (policy, makes_room) in [(Policy::Fifo, false), (Policy::RoundRobin, true), (Policy::Fair, true)]
        {
            let cpus = ProgramCpus::new(&Processors { policy, ..Processors::new(1) });
            let (said, says) = channel();
            std::thread::scope(|scope| {
                let mut long = cpus.enter(demand(1)).unwrap();
                let (cpus, others) = (&cpus, said.clone());
                scope.spawn(move || {
                    let _turn = cpus.enter(demand(2)).unwrap();
                    others.send("short").unwrap();
                });
                until_waiting(cpus, 1);
                spend(Instant::now() + Duration::from_micros(200));
                long.check_point();
                said.send("long").unwrap();
            });
            assert!(idle(&cpus));
            let first = if makes_room { "short" } else { "long" };
            assert_eq!(says.recv(), Ok(first), "{policy}");
        }
    }

    #[test]
    fn a_panic_gives_the_processor_back() {
        let cpus = ProgramCpus::new(&Processors::new(1));
        let panicked = std::thread::scope(|scope| {
            let program = scope.spawn(|| {
                let _turn = cpus.enter(demand(1)).unwrap();
                panic!("a defect, made by this test");
            });
            program.join()
        });
        assert!(panicked.is_err() && idle(&cpus));
        drop(cpus.enter(demand(1)).unwrap());
    }

    #[test]
    fn a_turn_lasts_at_least_as_long_as_the_slowdown_makes_it() {
        let cpus = ProgramCpus::new(&Processors { slowdown_percent: 300, ..Processors::new(1) });
        let began = Instant::now();
        let turn = cpus.enter(demand(1)).unwrap();
        let worked = Instant::now();
        spend(worked + Duration::from_millis(2));
        let ran = worked.elapsed();
        drop(turn);
        assert!(began.elapsed() >= 3 * ran);
    }

    #[test]
    fn many_threads_lose_no_processor_and_no_turn() {
        for policy in Policy::ALL {
            let cpus = ProgramCpus::new(&Processors { policy, ..Processors::new(2) });
            std::thread::scope(|scope| {
                for user in 0..6 {
                    let cpus = &cpus;
                    scope.spawn(move || {
                        for _ in 0..200 {
                            let mut turn = cpus.enter(demand(user % 3)).unwrap();
                            turn.check_point();
                            assert!(cpus.load().busy <= 2);
                        }
                    });
                }
            });
            assert!(idle(&cpus), "{policy}");
        }
    }
}
