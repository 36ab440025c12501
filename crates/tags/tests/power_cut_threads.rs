//! Power cuts while threads commit to s-nodes of their own and to each other's. `WEFT_CAMPAIGN=1` cuts 12,000 times; a
//! scheduler's orders of the same are in `orders.rs`.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

#[test]
fn after_a_power_cut_each_thread_finds_what_was_durable_and_no_transaction_in_part() {
    let begin = Arc::new(support::begin());
    let cuts = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 12_000 } else { 600 };
    let turns = 60;
    let run = |at| {
        support::cut_at(
            &begin,
            at,
            turns,
            |work| {
                let thread = std::thread::spawn(work);
                Box::new(move || thread.join().unwrap())
            },
            std::thread::yield_now,
        )
    };
    let operations = run(u64::MAX);
    assert!(operations > 40, "{operations}");
    for cut in 0..cuts {
        run(cut % operations);
    }
}
