//! A call through a slot: claim, fill, submit, wait.

use crate::busy::{self, Busy};
use crate::client::Client;
use crate::identity::IDENTITY_TRIES;
use crate::patience::{ANSWER_NS, CallerPatience, FLUSH_NS};
use crate::proto::{IDENTITY_UNKNOWN, Op};
use crate::shared::channel::{CLAIMED, DONE, FREE, PAYLOAD_BYTES, Request, Response, SLOTS, SUBMITTED, Slot};
use crate::shared::turn;
use crate::sys::{self, Errno};
use std::cell::Cell;
use std::sync::atomic::{Ordering::*, fence};
use weft_core::refuse;

/// Looks at the slot between two yields, or before the sleep of a thread that does not yield. On few processors the server
/// needs this one: looking long only delays it.
const LOOKS: u32 = 4;
/// After this long asleep, look whether the server still lives.
const WAIT_NS: u64 = 50_000_000;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    static LAST_SLOT: Cell<u32> = const { Cell::new(0) };
    // A signal handler that calls in the middle of a call loses what one of the two learned, and nothing else.
    static PATIENCE: Cell<CallerPatience> = const { Cell::new(CallerPatience::new()) };
}

/// A claimed slot; free again when dropped.
pub(crate) struct Call<'a> {
    client: &'a Client,
    slot: &'a Slot,
    index: usize,
    used: usize,
    request: Request,
    /// Dropped last: a handler that leaves the call for good finds the slot free.
    _busy: Busy,
}

/// A finished call, whose payload can be read until it is dropped.
pub(crate) struct Answer<'a> {
    call: Call<'a>,
    pub response: Response,
}

impl Client {
    /// Claims a slot for a request.
    pub(crate) fn call(&self, op: Op, args: &[u64]) -> Result<Call<'_>, Errno> {
        let busy = Busy::new();
        self.await_children();
        let thread = self.thread_to_name()?;
        let index = match self.claim_free_slot() {
            Some(index) => index,
            None => self.await_slot()?,
        };
        LAST_SLOT.with(|last| last.set(index as u32));
        let mut request = Request { op: op as u32, cpu: sys::current_cpu(), thread, ..Request::default() };
        request.args[..args.len()].copy_from_slice(args);
        Ok(Call { client: self, slot: self.slot(index), index, used: 0, request, _busy: busy })
    }

    fn claim_free_slot(&self) -> Option<usize> {
        let start = LAST_SLOT.with(Cell::get) as usize;
        (0..SLOTS).map(|i| (start + i) % SLOTS).find(|&i| {
            let state = &self.slot(i).state;
            state.load(Relaxed) == FREE && state.compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok()
        })
    }

    /// Claims a slot when more threads call at once than there are slots.
    #[cold]
    fn await_slot(&self) -> Result<usize, Errno> {
        let claimed = self.channel().slot_queue.wait(WAIT_NS, || self.claim_free_slot(), || !self.is_alive());
        claimed.ok_or(libc::EIO)
    }
}

impl<'a> Call<'a> {
    fn payload(&self) -> *mut u8 {
        let channel = self.client.channel.load(Relaxed);
        // SAFETY: `index` is a slot of the mapped channel; the claimed slot's payload is this call's.
        unsafe { (&raw mut (*channel).payloads[self.index]).cast() }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<u32, Errno> {
        refuse(self.used + bytes.len() > PAYLOAD_BYTES, libc::ENAMETOOLONG)?;
        // SAFETY: checked to be within the payload, which nobody else touches while the slot is claimed.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.payload().add(self.used), bytes.len()) };
        self.used += bytes.len();
        Ok(bytes.len() as u32)
    }

    /// Adds the first payload part, or more of it.
    pub fn part1(mut self, bytes: &[u8]) -> Result<Self, Errno> {
        self.request.len1 += self.put(bytes)?;
        Ok(self)
    }

    /// Adds the second payload part, or more of it.
    pub fn part2(mut self, bytes: &[u8]) -> Result<Self, Errno> {
        self.request.len2 += self.put(bytes)?;
        Ok(self)
    }

    /// Submits and waits.
    pub fn run(mut self) -> Result<Answer<'a>, Errno> {
        for _ in 0..IDENTITY_TRIES {
            let answer = self.run_once()?;
            if answer.response.ret != -i64::from(IDENTITY_UNKNOWN) {
                return answer.judge();
            }
            // Another thread has changed who all are, or this one has a number that another had.
            self = answer.call;
            self.client.forget_told();
            self.request.thread = self.client.thread_to_name()?;
        }
        Err(libc::EIO)
    }

    fn run_once(self) -> Result<Answer<'a>, Errno> {
        let slot = self.slot;
        // SAFETY: the request is the client's until the state says SUBMITTED.
        unsafe { *slot.request.get() = self.request };
        if slot.served.load(Acquire) == 0 {
            // The first use of a slot: the server gives it a thread when it hears of it. Two uses in a row before that
            // has happened ring twice, which the server sorts out.
            let number = [self.index as u8];
            sys::send_all(self.client.socket(), &number).map_err(|_| libc::EIO)?;
        }
        turn::pass(&slot.state, SUBMITTED, &slot.server_sleeps);
        let oversubscribed = self.client.channel().events.oversubscribed.load(Relaxed) != 0;
        let most = match self.request.op {
            op if op == Op::Fsync as u32 => FLUSH_NS,
            _ => ANSWER_NS,
        };
        if !answered_soon(slot, most, oversubscribed) {
            let client = self.client;
            let mut slept = false;
            let give_up =
                || std::mem::replace(&mut slept, true) && (!client.is_alive() || client.socket_ended());
            if !turn::sleep_until(&slot.state, DONE, &slot.client_sleeps, WAIT_NS, give_up) {
                // The slot is lost with the server: left in place, so that nobody takes a stale answer for a new one.
                std::mem::forget(self);
                busy::end();
                return Err(libc::EIO);
            }
        }
        self.finish()
    }

    fn finish(self) -> Result<Answer<'a>, Errno> {
        fence(Acquire);
        // SAFETY: the response is the client's once the state says DONE.
        let response = unsafe { *self.slot.response.get() };
        self.client.measured().calls.fetch_add(1, Relaxed);
        Ok(Answer { call: self, response })
    }
}

/// Waits awake for the answer as long as that pays; whether it is there.
fn answered_soon(slot: &Slot, most: u64, oversubscribed: bool) -> bool {
    let is_there = || {
        (0..LOOKS).any(|look| {
            if look > 0 {
                std::hint::spin_loop();
            }
            slot.state.load(Acquire) == DONE
        })
    };
    let mut patience = PATIENCE.with(Cell::get);
    let mut before = sys::monotonic_ns();
    let mut answered = is_there();
    if !answered && patience.submitted(before, most, oversubscribed) {
        loop {
            sys::yield_now();
            answered = is_there();
            let now = sys::monotonic_ns();
            if !patience.yielded(before, now, answered) {
                break;
            }
            before = now;
        }
        PATIENCE.with(|kept| kept.set(patience));
    }
    answered
}

impl<'a> Answer<'a> {
    /// A refusal is an error.
    fn judge(self) -> Result<Self, Errno> {
        if self.response.ret < 0 {
            return Err((-self.response.ret) as i32);
        }
        refuse(self.response.len as usize > PAYLOAD_BYTES, libc::EIO)?;
        Ok(self)
    }

    /// Another request by the same slot; what the answer brought is gone.
    pub fn again(self, op: Op, args: &[u64]) -> Call<'a> {
        let mut call = self.call;
        let Request { cpu, thread, .. } = call.request;
        call.request = Request { op: op as u32, cpu, thread, ..Request::default() };
        call.request.args[..args.len()].copy_from_slice(args);
        call.used = 0;
        call
    }

    pub fn ret(&self) -> i64 {
        self.response.ret
    }

    pub fn payload(&self) -> &[u8] {
        // SAFETY: the slot is still claimed and the length was checked against the payload's.
        unsafe { std::slice::from_raw_parts(self.call.payload(), self.response.len as usize) }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.slot.state.store(FREE, Release);
        self.client.channel().slot_queue.gave_back();
    }
}

impl Client {
    /// Sends any request and payload and waits for its answer: for tests of what a server does with a broken client.
    #[doc(hidden)]
    pub fn raw_request(&self, request: Request, payload: &[&[u8]]) -> Result<Response, Errno> {
        let mut call = self.call(Op::Sync, &[])?;
        for part in payload {
            call.put(part)?;
        }
        call.request = request;
        call.run().map(|answer| answer.response)
    }
}
