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
    /// For so many nanoseconds it waits awake for the answer.
    awake_ns: u64,
    /// Dropped last: a handler that leaves the call for good finds the slot free.
    _busy: Busy,
}

/// A finished call, whose payload can be read until it is dropped.
pub(crate) struct Answer<'a> {
    call: Call<'a>,
    pub response: Response,
}

/// A call that the server is at while its caller goes on. Dropped, its slot is taken again when the server has answered.
pub(crate) struct Posted<'a> {
    client: &'a Client,
    /// That by which it was made: a child has another one.
    connection: u32,
    index: usize,
    request: Request,
    awake_ns: u64,
}

impl<'a> Posted<'a> {
    fn is_own(&self) -> bool {
        // A child that has not heard yet has its parent's number until then.
        self.client.channel();
        self.client.connection.load(Relaxed) == self.connection
    }

    /// Whether the answer is there, or will not come.
    pub fn is_done(&self) -> bool {
        !self.is_own() || !self.client.is_alive() || self.client.slot(self.index).state.load(Acquire) == DONE
    }

    /// Waits for the answer.
    pub fn wait(self) -> Result<Answer<'a>, Errno> {
        refuse(!self.is_own(), libc::EIO)?;
        let Posted { client, index, request, awake_ns, .. } = self;
        let busy = Busy::new();
        std::mem::forget(self);
        Call { client, slot: client.slot(index), index, used: 0, request, awake_ns, _busy: busy }
            .await_answer()?
            .identified()
    }
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        if self.is_own() {
            self.client.unwatched.fetch_or(1 << self.index, Release);
        }
    }
}

impl Client {
    /// Frees the slots whose answers have come and that nobody waits for.
    fn free_unwatched(&self) {
        let mut left = self.unwatched.load(Acquire);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let slot = self.slot(bit.trailing_zeros() as usize);
            if slot.state.load(Acquire) == DONE && self.unwatched.fetch_and(!bit, AcqRel) & bit != 0 {
                slot.state.store(FREE, Release);
                self.channel().slot_queue.gave_back();
            }
        }
    }

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
        let slot = self.slot(index);
        Ok(Call { client: self, slot, index, used: 0, request, awake_ns: ANSWER_NS, _busy: busy })
    }

    fn claim_free_slot(&self) -> Option<usize> {
        if self.unwatched.load(Relaxed) != 0 {
            self.free_unwatched();
        }
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

    /// The answer comes when the device has flushed, if `flushes`.
    pub fn that_flushes(mut self, flushes: bool) -> Self {
        self.awake_ns = if flushes { FLUSH_NS } else { ANSWER_NS };
        self
    }

    /// Submits and waits.
    pub fn run(self) -> Result<Answer<'a>, Errno> {
        self.submit()?;
        self.await_answer()?.identified()
    }

    /// Submits, and lets the caller go on.
    pub fn post(self) -> Result<Posted<'a>, Errno> {
        self.submit()?;
        let Call { client, index, request, awake_ns, .. } = self;
        let connection = client.connection.load(Relaxed);
        // The slot is the posted call's from here on.
        std::mem::forget(self);
        busy::end();
        Ok(Posted { client, connection, index, request, awake_ns })
    }

    fn submit(&self) -> Result<(), Errno> {
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
        Ok(())
    }

    fn await_answer(self) -> Result<Answer<'a>, Errno> {
        let slot = self.slot;
        let oversubscribed = self.client.channel().events.oversubscribed.load(Relaxed) != 0;
        if !answered_soon(slot, self.awake_ns, oversubscribed) {
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
    /// The answer for a thread that the server knows: as long as it does not, the thread tells and asks again.
    fn identified(self) -> Result<Answer<'a>, Errno> {
        let mut answer = self;
        for _ in 0..IDENTITY_TRIES {
            if answer.response.ret != -i64::from(IDENTITY_UNKNOWN) {
                return answer.judge();
            }
            // Another thread has changed who all are, or this one has a number that another had.
            let mut call = answer.call;
            call.client.forget_told();
            call.request.thread = call.client.thread_to_name()?;
            call.submit()?;
            answer = call.await_answer()?;
        }
        Err(libc::EIO)
    }

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
    /// The payload of a slot: for tests of what a server does when it changes under its eyes.
    #[doc(hidden)]
    pub fn raw_payload(&self, slot: usize) -> *mut u8 {
        assert!(slot < SLOTS);
        let channel = self.channel.load(Relaxed);
        // SAFETY: a slot of the mapped channel, of which only the address is taken.
        unsafe { (&raw mut (*channel).payloads[slot]).cast() }
    }

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
