//! Threads that wait for slots, in all orders in which processors can meet: nobody sleeps while a slot is free. The sleepers here have no
//! timeout, so that a lost wake-up is a deadlock, which `loom` reports.

#![allow(clippy::unwrap_used)]

mod futex;

use futex::Futex;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use weft_client::shared::queue::Queue;

/// Threads that each take the only slot once, and give it back.
fn threads_for_one_slot<const FENCED: bool>(threads: u32, interruptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(interruptions);
    model.check(move || {
        let queue = Arc::new(Queue::<Futex<FENCED>> { waiting: Futex::new(0), freed: Futex::new(0) });
        let slot = Arc::new(AtomicU32::new(0));
        let all: Vec<_> = (0..threads)
            .map(|_| {
                let (queue, slot) = (queue.clone(), slot.clone());
                thread::spawn(move || {
                    let take = || slot.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok();
                    if take().is_none() {
                        queue.wait(0, take, || false).unwrap();
                    }
                    slot.store(0, Ordering::Release);
                    queue.gave_back();
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(queue.waiting.value.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn nobody_sleeps_while_a_slot_is_free() {
    threads_for_one_slot::<true>(2, 3);
}

#[test]
fn without_fences_a_wake_up_is_lost() {
    // What unwinds out of a deadlock may take the process with it, or leave it asleep.
    let mut broken = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "broken_without_fences"])
        .env("RUST_BACKTRACE", "0")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(broken.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_deadlock = said.into_iter().any(|line| line.contains("deadlock"));
    let _ = broken.kill();
    broken.wait().unwrap();
    assert!(is_deadlock);
}

#[test]
#[ignore = "ends in a deadlock"]
fn broken_without_fences() {
    threads_for_one_slot::<false>(2, 2);
}
