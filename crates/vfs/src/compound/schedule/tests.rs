//! Each scheduler by itself, call by call. `weft-sim` tests their properties on random loads.

use super::*;

fn request(id: u64, user: u32) -> Request {
    Request { id: RequestId(id), user: UserId(user), preemptible: true, memory_bytes: 1000 }
}

fn turn(scheduler: &mut dyn Scheduler) -> (u64, u32) {
    let turn = scheduler.next().expect("something waits");
    (turn.id.0, turn.user.0)
}

#[test]
fn a_user_that_slept_or_is_new_gets_no_credit() {
    let mut fair = Fair::new(FairSettings::default());
    fair.arrive(request(1, 1)).unwrap();
    // User 1 works alone for a second.
    for _ in 0..10_000 {
        assert_eq!(turn(&mut fair), (1, 1));
        fair.ended(RequestId(1), 100_000, Ended::Preempted).unwrap();
    }
    fair.arrive(request(2, 2)).unwrap();
    let mut got = [0u32; 2];
    for _ in 0..1000 {
        let (id, user) = turn(&mut fair);
        got[user as usize - 1] += 1;
        fair.ended(RequestId(id), 100_000, Ended::Preempted).unwrap();
    }
    assert!(got[0].abs_diff(got[1]) <= 2, "{got:?}");
}

#[test]
fn a_user_with_nothing_waiting_while_it_runs_gets_no_credit_either() {
    let mut fair = Fair::new(FairSettings::default());
    fair.arrive(request(1, 1)).unwrap();
    fair.arrive(request(2, 2)).unwrap();
    assert_eq!(turn(&mut fair), (1, 1));
    // The request of user 1 stays on one processor; user 2 has the other for a second.
    for _ in 0..10_000 {
        assert_eq!(turn(&mut fair), (2, 2));
        fair.ended(RequestId(2), 100_000, Ended::Preempted).unwrap();
    }
    fair.ended(RequestId(1), 100_000, Ended::Preempted).unwrap();
    let mut got = [0u32; 2];
    for _ in 0..1000 {
        let (id, user) = turn(&mut fair);
        got[user as usize - 1] += 1;
        fair.ended(RequestId(id), 100_000, Ended::Preempted).unwrap();
    }
    assert!(got[0].abs_diff(got[1]) <= 2, "{got:?}");
}

#[test]
fn a_user_that_is_ahead_stays_ahead_when_it_leaves_for_a_moment() {
    let mut fair = Fair::new(FairSettings::default());
    fair.arrive(request(1, 1)).unwrap();
    fair.arrive(request(2, 2)).unwrap();
    assert_eq!(turn(&mut fair), (1, 1));
    fair.ended(RequestId(1), 1_000_000, Ended::Finished).unwrap();
    fair.arrive(request(3, 1)).unwrap();
    for round in 0..10 {
        assert_eq!(turn(&mut fair), (2, 2), "round {round}");
        fair.ended(RequestId(2), 100_000, Ended::Preempted).unwrap();
    }
    assert_eq!(turn(&mut fair), (3, 1));
}

#[test]
fn users_are_forgotten_when_time_has_passed_them() {
    let mut fair = Fair::new(FairSettings::default());
    for id in 0..1000 {
        fair.arrive(request(id, id as u32)).unwrap();
        let (id, _) = turn(&mut fair);
        fair.ended(RequestId(id), 1_000, Ended::Finished).unwrap();
        assert!(fair.users() <= 2, "{} users are kept", fair.users());
    }
}

#[test]
fn a_memory_budget_holds_back_its_user_and_nobody_else() {
    let mut fair = Fair::new(FairSettings { memory_max_bytes: 1500, ..FairSettings::default() });
    let large = Request { memory_bytes: 1501, ..request(9, 1) };
    assert_eq!(fair.arrive(large), Err(Refused::Memory { user: UserId(1), bytes: 1501, max: 1500 }));
    for (id, user) in [(1, 1), (2, 1), (3, 2)] {
        fair.arrive(request(id, user)).unwrap();
    }
    assert_eq!((turn(&mut fair), turn(&mut fair)), ((1, 1), (3, 2)));
    assert_eq!(fair.next(), None, "request 2 needs the memory of request 1");
    fair.ended(RequestId(1), 100, Ended::Preempted).unwrap();
    assert_eq!(turn(&mut fair), (1, 1), "what has begun has its memory");
    fair.ended(RequestId(1), 100, Ended::Finished).unwrap();
    assert_eq!(turn(&mut fair), (2, 1));
}

#[test]
fn requests_that_may_wait_are_limited_by_user() {
    let mut fair = Fair::new(FairSettings { waiting_max: 2, ..FairSettings::default() });
    fair.arrive(request(1, 1)).unwrap();
    fair.arrive(request(2, 1)).unwrap();
    assert_eq!(fair.arrive(request(3, 1)), Err(Refused::Waiting { user: UserId(1), max: 2 }));
    fair.arrive(request(4, 2)).unwrap();
    assert_eq!(turn(&mut fair), (1, 1));
    fair.arrive(request(3, 1)).unwrap();
}

#[test]
fn a_running_request_makes_room_for_a_user_that_is_behind_by_the_lead() {
    let mut fair = Fair::new(FairSettings::default());
    fair.arrive(request(1, 1)).unwrap();
    assert_eq!(turn(&mut fair), (1, 1));
    assert!(!fair.yields(RequestId(1), 90_000), "nobody waits");
    fair.arrive(request(2, 2)).unwrap();
    assert!(!fair.yields(RequestId(1), 9_999));
    assert!(fair.yields(RequestId(1), 10_000));
}

#[test]
fn turns_that_take_no_time_keep_nobody_out() {
    let mut fair = Fair::new(FairSettings::default());
    fair.arrive(request(1, 1)).unwrap();
    fair.arrive(request(2, 2)).unwrap();
    let mut users = Vec::new();
    for _ in 0..4 {
        let (id, user) = turn(&mut fair);
        users.push(user);
        fair.ended(RequestId(id), 0, Ended::Preempted).unwrap();
    }
    assert_eq!(users, [1, 2, 1, 2]);
}

#[test]
fn users_take_turns_in_round_robin() {
    let mut circle = RoundRobin::default();
    for (id, user) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        circle.arrive(request(id, user)).unwrap();
    }
    let mut turns = Vec::new();
    for _ in 0..4 {
        let (id, user) = turn(&mut circle);
        turns.push((id, user));
        circle.ended(RequestId(id), 1, Ended::Finished).unwrap();
    }
    assert_eq!(turns, [(1, 1), (4, 2), (2, 1), (3, 1)]);
    assert_eq!(circle.next(), None);
}

#[test]
fn a_turn_that_has_not_begun_cannot_be_ended() {
    let mut schedulers: [Box<dyn Scheduler>; 3] = [
        Box::new(Fifo::default()),
        Box::new(RoundRobin::default()),
        Box::new(Fair::new(FairSettings::default())),
    ];
    for scheduler in &mut schedulers {
        scheduler.arrive(request(1, 1)).unwrap();
        assert_eq!(scheduler.ended(RequestId(1), 1, Ended::Finished), Err(NotRunning(RequestId(1))));
        assert_eq!(turn(scheduler.as_mut()), (1, 1));
        scheduler.ended(RequestId(1), 1, Ended::Finished).unwrap();
    }
}

#[test]
fn a_weight_is_a_number_from_1_to_10000() {
    assert_eq!(Weight::new(100), Some(Weight::DEFAULT));
    assert!(Weight::new(0).is_none() && Weight::new(10_001).is_none());
}
