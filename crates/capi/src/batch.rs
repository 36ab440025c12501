//! Runs of chains with inputs, and batches: many runs by one request.

use crate::answer::WeftAnswer;
use crate::chain::{WeftChain, add, failure};
use crate::error::{Failure, bad, exports};
use crate::files::{WeftFile, WeftFiles, connection};
use crate::handle::{bytes, give, handle, list, put, take};
use crate::values::WeftValue;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_client::{Batch, Posted, Prepared};
use weft_vfs::compound::{Answer, BATCH_RUNS_MAX, Input, Kind};

/// What comes with a run of a chain: the value of weft_chain_input_number or weft_chain_input_bytes with the number that is its place.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftInput {
    /// The number, where the chain takes one.
    pub number: u64,
    /// The bytes, where the chain takes bytes. They stay where they are until the run has ended or, in a batch, until they are added.
    pub data: *const u8,
    /// How many.
    pub data_bytes: usize,
}

/// Runs of chains that one request makes.
pub struct WeftBatch {
    files: *const WeftFiles,
    state: Mutex<State>,
}

/// A run that a batch holds.
struct Run {
    chain: u64,
    prepared: Arc<Prepared>,
    given: Vec<WeftFile>,
    inputs: Vec<Owned>,
}

/// An input that the batch holds.
enum Owned {
    Number(u64),
    Bytes(Vec<u8>),
}

#[derive(Default)]
struct State {
    runs: Vec<Run>,
    /// Answers that nobody has taken yet, of the runs of the last request.
    answers: VecDeque<(u64, Arc<Prepared>, Answer)>,
    /// What the server is at, and the runs of that.
    posted: Option<(Posted<'static, Arc<Prepared>>, Vec<Run>)>,
}

impl State {
    /// Begins a request of all runs, and forgets the answers to the one before.
    fn begin(
        &mut self,
        files: &'static WeftFiles,
    ) -> Result<(Batch<'static, Arc<Prepared>>, Vec<Run>), Failure> {
        if self.posted.is_some() {
            return Err(bad("the batch is posted; wait for it first".into()));
        }
        self.answers.clear();
        let runs = std::mem::take(&mut self.runs);
        Ok((files.batch(runs.iter().map(Run::parts))?, runs))
    }

    fn finish(&mut self, runs: Vec<Run>, answers: Result<Vec<Answer>, i32>) -> Result<(), Failure> {
        let answers = answers.map_err(failed)?;
        let each = runs.into_iter().zip(answers);
        self.answers = each.map(|(run, answer)| (run.chain, run.prepared, answer)).collect();
        Ok(())
    }
}

fn failed(errno: i32) -> Failure {
    Failure::Files { what: "run a batch".into(), errno }
}

impl WeftBatch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owned {
    fn borrowed(&self) -> Input<'_> {
        match self {
            Owned::Number(number) => Input::Num(*number),
            Owned::Bytes(bytes) => Input::Bytes(bytes),
        }
    }
}

/// The inputs as what the program takes them for.
unsafe fn owned(prepared: &Prepared, inputs: &[WeftInput]) -> Result<Vec<Owned>, Failure> {
    let takes_number = |place: usize| {
        let is_it = |kind: &Kind| matches!(kind, Kind::InputNum { number } if usize::from(*number) == place);
        prepared.program().ops.iter().any(|op| is_it(&op.kind))
    };
    let of = |(place, input): (usize, &WeftInput)| {
        if takes_number(place) {
            return Ok(Owned::Number(input.number));
        }
        // SAFETY: the caller's promise.
        Ok(Owned::Bytes(unsafe { bytes(input.data, input.data_bytes) }?.to_vec()))
    };
    inputs.iter().enumerate().map(of).collect()
}

exports! {
    /// A number that comes with each run of the chain: the input at this place, from 0. The value is a number. Fails with EINVAL when the
    /// run has none there.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_input_number(chain: *mut WeftChain, place: u32) -> WeftValue {
        add(chain, |_| Ok(Kind::InputNum { number: input_place(place)? }))
    }

    /// Bytes that come with each run of the chain: the input at this place, from 0. The value is bytes. Fails with EINVAL when the run has
    /// none there.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_input_bytes(chain: *mut WeftChain, place: u32) -> WeftValue {
        add(chain, |_| Ok(Kind::InputBytes { number: input_place(place)? }))
    }

    /// As weft_chain_run, with inputs, at most 64 and about 256 KiB. The server keeps the chain, so that later runs send only the inputs.
    ///
    /// # Safety
    /// The handles are open; `given` has `given_count` files, `inputs` has `input_count` inputs whose bytes are there; `out` is null or can
    /// be written.
    fn weft_chain_run_with(
        files: *const WeftFiles,
        chain: *mut WeftChain,
        given: *const WeftFile,
        given_count: usize,
        inputs: *const WeftInput,
        input_count: usize,
        out: *mut *mut WeftAnswer,
    ) {
        if !out.is_null() {
            out.write(std::ptr::null_mut());
        }
        let (files, chain) = (connection(files)?, handle(chain, "chain")?);
        let prepared = chain.prepared()?;
        let inputs = owned(&prepared, list(inputs, input_count)?)?;
        let inputs: Vec<Input<'_>> = inputs.iter().map(Owned::borrowed).collect();
        let answer = files.run_prepared(list(given, given_count)?, &prepared, &inputs)?;
        let failed = failure(prepared.program(), &answer);
        if !out.is_null() {
            give(WeftAnswer { chain: chain.id(), answer }, out)?;
        }
        failed
    }

    /// Makes an empty batch: up to 64 runs of chains, which one request makes in their order. Other programs may come between two of them.
    ///
    /// # Safety
    /// The connection is open, and stays so as long as the batch; `out` can be written.
    fn weft_batch_new(files: *const WeftFiles, out: *mut *mut WeftBatch) {
        connection(files)?;
        give(WeftBatch { files, state: Mutex::default() }, out)
    }

    /// Frees a batch, and the answers that nobody has taken.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_batch_free(batch: *mut WeftBatch) -> () {
        drop(take(batch))
    }

    /// Adds a run of a chain, which is checked before if that was not done. The inputs are copied. `WEFT_EINVAL`: 64 runs are there already.
    ///
    /// # Safety
    /// The handles are open; `given` has `given_count` files, `inputs` has `input_count` inputs whose bytes are there.
    fn weft_batch_add(
        batch: *mut WeftBatch,
        chain: *mut WeftChain,
        given: *const WeftFile,
        given_count: usize,
        inputs: *const WeftInput,
        input_count: usize,
    ) {
        let (batch, chain) = (handle(batch, "batch")?, handle(chain, "chain")?);
        let prepared = chain.prepared()?;
        let inputs = owned(&prepared, list(inputs, input_count)?)?;
        let given = list(given, given_count)?.to_vec();
        let mut state = batch.state();
        if state.runs.len() == BATCH_RUNS_MAX {
            return Err(bad(format!("the batch has {BATCH_RUNS_MAX} runs; run it, and add more then")));
        }
        state.runs.push(Run { chain: chain.id(), prepared, given, inputs });
        Ok(())
    }

    /// Makes all runs of a batch, which is empty then. Their answers are taken one after the other by weft_batch_take; what nobody has taken
    /// before is gone. A run that fails leaves those behind it. `WEFT_EINVAL`: the runs take more than about 256 KiB together, a file is not
    /// open, or more; nothing was run. `WEFT_EIO` with the errno EIO: the server ended meanwhile, and some were run or were not.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_batch_run(batch: *mut WeftBatch) {
        let batch = handle(batch, "batch")?;
        let files = connection(batch.files)?;
        let mut state = batch.state();
        let (request, runs) = state.begin(files)?;
        state.finish(runs, request.run())
    }

    /// Has the server make all runs of a batch, as weft_batch_run does, and returns meanwhile. The runs of two posted batches go on at the
    /// same time. A posted batch that is freed goes on as long as the connection is open, and nobody hears how it ended: what the server has
    /// not begun when the connection is closed, or the process ends, is not made. `WEFT_EINVAL`, also: it is posted already.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_batch_post(batch: *mut WeftBatch) {
        let batch = handle(batch, "batch")?;
        let files = connection(batch.files)?;
        let mut state = batch.state();
        let (request, runs) = state.begin(files)?;
        state.posted = Some((request.post().map_err(failed)?, runs));
        Ok(())
    }

    /// Waits for the runs of a posted batch. Their answers are taken by weft_batch_take then. `WEFT_EINVAL`: the batch is not posted.
    /// Otherwise it fails as weft_batch_run does; in a child of the process that has posted it, `WEFT_EIO` with the errno EIO.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_batch_wait(batch: *mut WeftBatch) {
        let batch = handle(batch, "batch")?;
        connection(batch.files)?;
        let mut state = batch.state();
        let Some((posted, runs)) = state.posted.take() else {
            return Err(bad("the batch is not posted; post it first".into()));
        };
        state.finish(runs, posted.wait())
    }

    /// Whether weft_batch_wait returns at once: 1 or 0, also 1 for a batch that is not posted.
    ///
    /// # Safety
    /// The handle is open; `is_done` can be written.
    fn weft_batch_is_done(batch: *const WeftBatch, is_done: *mut u32) {
        let state = handle(batch, "batch")?.state();
        put(u32::from(state.posted.as_ref().is_none_or(|(posted, _)| posted.is_done())), is_done)
    }

    /// Takes the answer to the next run of the batch, in the order in which they were added. `WEFT_EFAILED`: an operation of that run failed;
    /// `out` has its answer all the same. `WEFT_EINVAL`: there is none left.
    ///
    /// # Safety
    /// The handle is open; `out` is null or can be written.
    fn weft_batch_take(batch: *mut WeftBatch, out: *mut *mut WeftAnswer) {
        if !out.is_null() {
            out.write(std::ptr::null_mut());
        }
        let next = handle(batch, "batch")?.state().answers.pop_front();
        let Some((chain, prepared, answer)) = next else {
            return Err(bad("there is no answer left; run the batch first".into()));
        };
        let failed = failure(prepared.program(), &answer);
        if !out.is_null() {
            give(WeftAnswer { chain, answer }, out)?;
        }
        failed
    }
}

impl Run {
    fn parts(&self) -> (Arc<Prepared>, &[WeftFile], Vec<Input<'_>>) {
        (self.prepared.clone(), &self.given, self.inputs.iter().map(Owned::borrowed).collect())
    }
}

fn input_place(place: u32) -> Result<u8, Failure> {
    match u8::try_from(place) {
        Ok(place) if usize::from(place) < weft_vfs::compound::INPUTS_MAX => Ok(place),
        _ => Err(bad(format!("input {place}; inputs have places of 0 to 63"))),
    }
}
