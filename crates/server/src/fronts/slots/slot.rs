//! The thread of a call slot: it waits for requests and answers them.

use super::Connection;
use super::cpu_load::LoadMonitor;
use super::decode::answer;
use super::program::Pieces;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::*;
use weft_client::patience::{CpuChoice, ServerPatience};
use weft_client::shared::channel::{DONE, Response, SUBMITTED, Slot};
use weft_client::shared::turn;
use weft_client::sys;
use weft_sys::thread::Affinity;

/// A thread looks at its slot this often between two yields, or before it sleeps.
const LOOKS: u32 = 4;
/// A sleeping thread checks this often that the connection still stands.
const WAIT_NS: u64 = 500_000_000;

/// Answers the requests of one slot.
pub fn serve(connection: &Connection, index: usize) {
    let link = &connection.link;
    let slot = &link.channel().slots[index];
    let (mut patience, mut cpu_choice) = (ServerPatience::new(), CpuChoice::ANYWHERE);
    let mut affinity = Affinity::of_this_thread();
    let mut pieces = Pieces::default();
    while let Some(wake_state) = wait_submitted(connection, slot, &mut patience) {
        if connection.process.is_ending() {
            return;
        }
        let request = link.request(index);
        if let Some(cpu) = cpu_choice.requested_from(request.cpu, wake_state == WakeState::Asleep) {
            // A wake there costs a tenth of one across processors.
            affinity.restrict_to(cpu);
        }
        // This thread, and the caller's unless it sleeps.
        let own = 1 + u32::from(slot.client_sleeps.load(Relaxed) == 0);
        publish_cpu_load(connection, own);
        // A defect that one request meets must not leave its caller, and all others of the slot, waiting for ever.
        let answered = std::panic::catch_unwind(AssertUnwindSafe(|| {
            answer(connection, &request, link.payload(index), &mut pieces)
        }));
        let response = answered.unwrap_or_else(|_| {
            tracing::error!(op = request.op, "answering a request panicked; the caller gets EIO");
            Response { ret: -i64::from(libc::EIO), ..Response::default() }
        });
        link.respond(index, response);
        turn::pass(&slot.state, DONE, &slot.client_sleeps);
    }
}

/// Checks the load of the processors when a check is due, and publishes the result to the process.
pub fn publish_cpu_load(connection: &Connection, own: u32) {
    let known = &connection.link.channel().events.oversubscribed;
    let oversubscribed = LoadMonitor::of_process().is_oversubscribed(sys::monotonic_ns(), own).into();
    if known.load(Relaxed) != oversubscribed {
        known.store(oversubscribed, Relaxed);
    }
}

/// Whether the thread was awake when its request came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WakeState {
    Awake,
    Asleep,
}

/// Waits for a request; `None` when the connection ends.
fn wait_submitted(connection: &Connection, slot: &Slot, patience: &mut ServerPatience) -> Option<WakeState> {
    let is_there = || {
        (0..LOOKS).any(|look| {
            if look > 0 {
                std::hint::spin_loop();
            }
            slot.state.load(Acquire) == SUBMITTED
        })
    };
    let mut before = sys::monotonic_ns();
    // What the client makes of this word is its own loss: what may be lost here is 50 us of an awake thread.
    let oversubscribed = connection.link.channel().events.oversubscribed.load(Relaxed) != 0;
    let mut go_on = patience.answered(before, oversubscribed);
    let mut asked = is_there();
    while !asked && go_on {
        sys::yield_now();
        asked = is_there();
        let now = sys::monotonic_ns();
        go_on = patience.yielded(before, now, asked);
        before = now;
    }
    let wake_state = if asked {
        WakeState::Awake
    } else {
        let give_up = || connection.process.is_ending();
        if !turn::sleep_until(&slot.state, SUBMITTED, &slot.server_sleeps, WAIT_NS, give_up) {
            return None;
        }
        WakeState::Asleep
    };
    patience.asked(sys::monotonic_ns());
    Some(wake_state)
}
