//! How long either side of a call slot waits awake before it sleeps, and when the server's thread moves to its caller's
//! processor. Policy only: no clock, no system call; times are nanoseconds of any clock that goes forwards.
//!
//! **Why wait awake.** Who sleeps has to be woken, and the scheduler wakes on an idle processor when there is one: in a
//! virtual machine that costs 30 to 60 us. Who stays awake and *yields* costs nothing of that. When both sides run on one
//! processor, a yield hands it to the other side, and back: some 3 us a call. When they run on two, a yield returns at once
//! and is a pause between two looks: less than 1 us a call.
//!
//! **Why not for ever.** A yield gives the processor to whoever wants it. One that takes long says that somebody else does;
//! then that side sleeps for a while as if there were nothing else: a sleeper that is woken gets the processor before a
//! thread that computes, one that has just yielded does not. The while doubles as often as that happens in a row. To try is
//! dear, so nobody tries on a machine that is [oversubscribed](CpuLoad) anyway. And nobody waits awake for what does not come soon:
//! a caller not for a request that takes long, the server not for a program that seldom asks.

/// How long a caller waits awake for its answer.
pub const ANSWER_NS: u64 = 50_000;
/// How long it waits awake for a flush of the device: flash takes 100 to 300 us, to which a sleeper's waking comes. (In alternating
/// runs on an idle machine, an append with `fdatasync` took 1.28 of ext4's time before, and 0.97 with this.)
pub const FLUSH_NS: u64 = 500_000;
/// How long the server waits awake for the next request of a program that asked twice within this time.
pub const REQUEST_NS: u64 = 50_000;
/// A yield that takes longer went to somebody who computes: requests take less, time slices of the kernel more.
const LONG_YIELD_NS: u64 = 300_000;
/// A yield that takes longer than this gave the processor to another thread.
const HANDED_NS: u64 = 800;
/// So often the server hands the processor on while it waits for one request. With many callers on a processor each
/// thread that is awake without need is one more on the way to the one that has something to do.
const HANDED_MAX: u32 = 2;
/// Requests that came soon, as the server remembers them: from two on it waits, and no more than this many count.
const SOON_MAX: u32 = 8;
const SOON_MIN: u32 = 2;
/// Answers in a row that a caller waited for in vain before it stops to.
const VAIN_MAX: u32 = 2;
/// Who has lost some time by a yield does not yield for so many times as long, within bounds.
const PENALTY_FACTOR: u64 = 32;
const PENALTY_MIN_NS: u64 = 16_000_000;
const PENALTY_MAX_NS: u64 = 1_000_000_000;
/// So many waits that went well in a row make a long penalty short again.
const FORGIVEN: u32 = 256;

/// A time during which waiting awake does not pay.
#[derive(Clone, Copy, Debug)]
struct Penalty {
    until: u64,
    next_ns: u64,
    well: u32,
}

impl Penalty {
    const NONE: Penalty = Penalty { until: 0, next_ns: PENALTY_MIN_NS, well: 0 };

    fn begin(&mut self, now: u64, lost_ns: u64) {
        let penalty = self.next_ns.max(lost_ns.saturating_mul(PENALTY_FACTOR)).min(PENALTY_MAX_NS);
        self.until = now + penalty;
        self.next_ns = (penalty * 2).min(PENALTY_MAX_NS);
        self.well = 0;
    }

    fn went_well(&mut self) {
        self.well += 1;
        if self.well >= FORGIVEN {
            self.next_ns = PENALTY_MIN_NS;
            self.well = 0;
        }
    }
}

/// What a thread of a program knows of its calls.
#[derive(Clone, Copy, Debug)]
pub struct CallerPatience {
    penalty: Penalty,
    vain: u32,
    begun: u64,
    most: u64,
}

impl CallerPatience {
    /// Nothing known.
    pub const fn new() -> CallerPatience {
        CallerPatience { penalty: Penalty::NONE, vain: 0, begun: 0, most: 0 }
    }

    /// A request has been submitted whose answer is worth to be awaited for `most` nanoseconds, on a machine that is
    /// oversubscribed or not. Whether to wait awake for it.
    pub fn submitted(&mut self, now: u64, most: u64, oversubscribed: bool) -> bool {
        (self.begun, self.most) = (now, most);
        !oversubscribed && now >= self.penalty.until
    }

    /// The thread has yielded since `before`, and has its answer or not. Whether to go on waiting awake for it.
    pub fn yielded(&mut self, before: u64, now: u64, answered: bool) -> bool {
        let took = now.saturating_sub(before);
        if took > LONG_YIELD_NS {
            self.penalty.begin(now, took);
            return false;
        }
        if answered {
            self.vain = 0;
            self.penalty.went_well();
            return false;
        }
        if now.saturating_sub(self.begun) < self.most {
            return true;
        }
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            self.vain = 0;
            self.penalty.begin(now, self.most);
        }
        false
    }
}

impl Default for CallerPatience {
    fn default() -> CallerPatience {
        CallerPatience::new()
    }
}

/// What the server's thread of a slot knows of its caller.
#[derive(Clone, Copy, Debug)]
pub struct ServerPatience {
    penalty: Penalty,
    /// Requests that came soon after an answer, lately.
    soon: u32,
    answered: u64,
    handed: u32,
}

impl ServerPatience {
    /// Nothing known.
    pub const fn new() -> ServerPatience {
        ServerPatience { penalty: Penalty::NONE, soon: 0, answered: 0, handed: 0 }
    }

    /// An answer has been given, on a machine that is oversubscribed or not. Whether to wait awake for the next request.
    pub fn answered(&mut self, now: u64, oversubscribed: bool) -> bool {
        self.answered = now;
        self.handed = 0;
        !oversubscribed && self.soon >= SOON_MIN && now >= self.penalty.until
    }

    /// The thread has yielded since `before`, and has a request or not. Whether to go on waiting awake for one.
    pub fn yielded(&mut self, before: u64, now: u64, asked: bool) -> bool {
        let took = now.saturating_sub(before);
        if took > LONG_YIELD_NS {
            self.penalty.begin(now, took);
            return false;
        }
        if asked {
            self.penalty.went_well();
            return false;
        }
        self.handed += u32::from(took > HANDED_NS);
        self.handed < HANDED_MAX && now.saturating_sub(self.answered) < REQUEST_NS
    }

    /// A request has come, to a thread that waited awake or slept.
    pub fn asked(&mut self, now: u64) {
        let soon = now.saturating_sub(self.answered) < REQUEST_NS;
        self.soon = if soon { (self.soon + 1).min(SOON_MAX) } else { self.soon / 2 };
    }
}

impl Default for ServerPatience {
    fn default() -> ServerPatience {
        ServerPatience::new()
    }
}

/// Whether more threads want the processors than there are, the two sides of a call not counted. Then a yield goes to one of
/// them, and who sleeps is woken where it slept, for no processor idles: sleeping is better.
#[derive(Clone, Copy, Debug)]
pub struct CpuLoad {
    oversubscribed: bool,
    /// Checks in a row that found an idle processor.
    idle_looks: u32,
}

/// Checks in a row that must find an idle processor: threads that compute also sleep for moments.
const IDLE_LOOKS_MIN: u32 = 3;

impl CpuLoad {
    /// Nothing known.
    pub const NONE: CpuLoad = CpuLoad { oversubscribed: false, idle_looks: 0 };

    /// A look found so many threads that run or could, `own` of them sides of the call that is being answered. Whether the
    /// machine is oversubscribed.
    pub fn update(&mut self, runnable: u32, own: u32, processors: u32) -> bool {
        if runnable.saturating_sub(own) >= processors {
            *self = CpuLoad { oversubscribed: true, idle_looks: 0 };
        } else {
            self.idle_looks = (self.idle_looks + 1).min(IDLE_LOOKS_MIN);
            self.oversubscribed &= self.idle_looks < IDLE_LOOKS_MIN;
        }
        self.oversubscribed
    }
}

/// On which processor the server's thread of a slot runs.
///
/// A thread that has to be woken is best on its caller's processor. One that is awake is best where it is: on the
/// caller's processor the two take turns, on another one they meet without. To move costs more than many calls, so a thread
/// moves when it has been woken from afar twice in a row, not at each step of a caller that the scheduler moves about.
#[derive(Clone, Copy, Debug)]
pub struct CpuChoice {
    cpu: u32,
    away: u32,
}

/// Requests from another processor to a thread that slept, in a row, before the thread moves there.
const AWAY_MAX: u32 = 2;

impl CpuChoice {
    /// Wherever the scheduler has put it.
    pub const ANYWHERE: CpuChoice = CpuChoice { cpu: u32::MAX, away: 0 };

    /// A request has come from a thread on `cpu` (`u32::MAX`: it did not say) to one that `slept` or waited awake.
    /// Returns the processor to move to, if any.
    pub fn requested_from(&mut self, cpu: u32, slept: bool) -> Option<u32> {
        if cpu == u32::MAX {
            return None;
        }
        if cpu == self.cpu {
            self.away = 0;
            return None;
        }
        self.away += u32::from(slept);
        if self.cpu != u32::MAX && self.away < AWAY_MAX {
            return None;
        }
        *self = CpuChoice { cpu, away: 0 };
        Some(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// One call of a caller whose yields take `yield_ns` each, answered after `answer_ns`. Returns how long it waited awake
    /// and whether it had its answer by then.
    fn call(caller: &mut CallerPatience, now: &mut u64, yield_ns: u64, answer_ns: u64) -> (u64, bool) {
        call_for(ANSWER_NS, caller, now, yield_ns, answer_ns)
    }

    /// The same when the answer is awaited for so long at most.
    fn call_for(
        most: u64,
        caller: &mut CallerPatience,
        now: &mut u64,
        yield_ns: u64,
        answer_ns: u64,
    ) -> (u64, bool) {
        let begun = *now;
        if !caller.submitted(begun, most, false) {
            *now = begun + answer_ns;
            return (0, false);
        }
        loop {
            let before = *now;
            *now += yield_ns;
            let answered = *now - begun >= answer_ns;
            if !caller.yielded(before, *now, answered) {
                let waited = *now - begun;
                *now = (*now).max(begun + answer_ns);
                return (waited, answered);
            }
        }
    }

    /// What the server does between an answer and a request `gap_ns` later. Returns how long it waited awake and whether the
    /// request met it awake.
    fn wait(server: &mut ServerPatience, now: &mut u64, yield_ns: u64, gap_ns: u64) -> (u64, bool) {
        let answered = *now;
        let mut waited = (0, false);
        if server.answered(answered, false) {
            loop {
                let before = *now;
                *now += yield_ns;
                let asked = *now - answered >= gap_ns;
                waited = (*now - answered, asked);
                if !server.yielded(before, *now, asked) {
                    break;
                }
            }
        }
        *now = (*now).max(answered + gap_ns);
        server.asked(*now);
        waited
    }

    #[test]
    fn a_caller_waits_awake_for_short_requests_and_sleeps_soon_in_long_ones() {
        let (mut caller, mut now) = (CallerPatience::new(), 0);
        for _ in 0..1000 {
            assert_eq!(call(&mut caller, &mut now, 300, 3 * US), (3 * US, true));
        }
        let (waited, answered) = call(&mut caller, &mut now, 300, 5 * MS);
        assert!(!answered && waited < ANSWER_NS + US, "{waited}");
    }

    #[test]
    fn a_caller_of_nothing_but_long_requests_stops_to_wait_awake() {
        let (mut caller, mut now) = (CallerPatience::new(), 0);
        let mut waited = 0;
        for _ in 0..10_000 {
            waited += call(&mut caller, &mut now, 300, MS).0;
        }
        assert!(waited < now / 1000, "{waited} of {now}");
    }

    #[test]
    fn a_caller_waits_awake_for_flushes_of_a_fast_device_only() {
        let (mut caller, mut now) = (CallerPatience::new(), 0);
        for _ in 0..1000 {
            assert!(call_for(FLUSH_NS, &mut caller, &mut now, 300, 200 * US).1);
        }
        let (mut caller, mut now, mut waited) = (CallerPatience::new(), 0, 0);
        for _ in 0..10_000 {
            waited += call_for(FLUSH_NS, &mut caller, &mut now, 300, 5 * MS).0;
        }
        assert!(waited < now / 500, "{waited} of {now}");
    }

    #[test]
    fn long_requests_among_short_ones_do_not_stop_a_caller() {
        let (mut caller, mut now) = (CallerPatience::new(), 0);
        for round in 0..1000 {
            assert!(!call(&mut caller, &mut now, 300, 100 * US).1);
            for _ in 0..3 {
                assert!(call(&mut caller, &mut now, 300, 3 * US).1, "round {round}");
            }
        }
    }

    #[test]
    fn where_others_compute_nobody_yields_but_to_try() {
        // Each yield costs a time slice of a thread that computes.
        let slice = 4 * MS;
        let (mut caller, mut now, mut yielded) = (CallerPatience::new(), 0, 0);
        while now < 100_000 * MS {
            yielded += call(&mut caller, &mut now, slice, 7 * US).0;
        }
        assert!(yielded < now / 100, "{yielded} of {now}");
        let (mut server, mut now, mut yielded) = (ServerPatience::new(), 0, 0);
        while now < 100_000 * MS {
            yielded += wait(&mut server, &mut now, slice, 7 * US).0;
        }
        assert!(yielded < now / 100, "{yielded} of {now}");
    }

    #[test]
    fn a_caller_yields_again_soon_after_the_processor_is_free_again() {
        let (mut caller, mut now) = (CallerPatience::new(), 0);
        while now < 10_000 * MS {
            call(&mut caller, &mut now, 4 * MS, 7 * US);
        }
        let freed = now;
        while !call(&mut caller, &mut now, 300, 3 * US).1 {}
        assert!(now - freed <= PENALTY_MAX_NS + MS, "{}", now - freed);
        // One more disturbance costs little, when all went well for long.
        for _ in 0..FORGIVEN {
            assert!(call(&mut caller, &mut now, 300, 3 * US).1);
        }
        call(&mut caller, &mut now, 4 * MS, 7 * US);
        let disturbed = now;
        while !call(&mut caller, &mut now, 300, 3 * US).1 {}
        assert!(now - disturbed <= PENALTY_FACTOR * 4 * MS + MS, "{}", now - disturbed);
    }

    #[test]
    fn the_server_stays_awake_for_a_program_that_asks_again_and_again() {
        for yield_ns in [300, 5 * US] {
            let (mut server, mut now) = (ServerPatience::new(), MS);
            let met = (0..1000).filter(|_| wait(&mut server, &mut now, yield_ns, 5 * US).1).count();
            assert!(met >= 1000 - SOON_MIN as usize, "{met} of 1000 with yields of {yield_ns}");
        }
    }

    #[test]
    fn the_server_sleeps_when_a_program_asks_seldom() {
        let (mut server, mut now) = (ServerPatience::new(), MS);
        let mut waited = 0;
        for _ in 0..1000 {
            waited += wait(&mut server, &mut now, 300, 100 * US).0;
        }
        assert_eq!(waited, 0);
        // Also after a burst: a few windows, and no more.
        for _ in 0..100 {
            wait(&mut server, &mut now, 300, 3 * US);
        }
        let waited: u64 = (0..1000).map(|_| wait(&mut server, &mut now, 300, 10 * MS).0).sum();
        assert!(waited <= 4 * REQUEST_NS, "{waited}");
    }

    #[test]
    fn the_server_hands_the_processor_on_a_few_times_and_sleeps() {
        let (mut server, mut now) = (ServerPatience::new(), MS);
        for _ in 0..10 {
            wait(&mut server, &mut now, 300, 3 * US);
        }
        // Each yield runs another caller's thread for 5 us.
        let (waited, met) = wait(&mut server, &mut now, 5 * US, 40 * US);
        assert_eq!((waited, met), (5 * US * u64::from(HANDED_MAX), false));
    }

    #[test]
    fn on_an_oversubscribed_machine_nobody_waits_awake() {
        let waits = |oversubscribed| CallerPatience::new().submitted(MS, ANSWER_NS, oversubscribed);
        assert!(waits(false) && !waits(true));
        let (mut server, mut now) = (ServerPatience::new(), MS);
        for _ in 0..10 {
            wait(&mut server, &mut now, 300, 3 * US);
        }
        assert!(server.answered(now, false) && !server.answered(now, true));
    }

    #[test]
    fn a_machine_is_oversubscribed_when_others_want_all_processors_and_until_they_stay_away() {
        let mut load = CpuLoad::NONE;
        // Both sides, and one that computes, on two processors.
        assert!(!load.update(3, 2, 2));
        assert!(load.update(4, 2, 2));
        assert!(load.update(2, 2, 2) && load.update(2, 2, 2));
        assert!(load.update(3, 1, 2), "again before the others stayed away for long");
        assert!(load.update(2, 2, 2) && load.update(2, 2, 2) && !load.update(2, 2, 2));
    }

    #[test]
    fn a_thread_moves_to_a_caller_that_wakes_it_from_afar_twice() {
        let mut cpu = CpuChoice::ANYWHERE;
        assert_eq!(cpu.requested_from(u32::MAX, true), None);
        assert_eq!(cpu.requested_from(1, true), Some(1));
        assert_eq!(cpu.requested_from(0, true), None);
        assert_eq!(cpu.requested_from(1, true), None, "the caller came back");
        assert_eq!(cpu.requested_from(0, true), None);
        assert_eq!(cpu.requested_from(0, true), Some(0));
    }

    #[test]
    fn a_thread_that_is_awake_stays_where_it_is() {
        let mut cpu = CpuChoice::ANYWHERE;
        assert_eq!(cpu.requested_from(1, true), Some(1));
        for _ in 0..100 {
            assert_eq!(cpu.requested_from(0, false), None);
        }
    }
}
