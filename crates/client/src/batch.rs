//! Batches: runs of prepared programs, many of them in one request, waited for or not.

use crate::FileRef;
use crate::call::{Answer as Answered, Posted as PostedCall};
use crate::client::Client;
use crate::programs::Prepared;
use crate::proto::{Op, PROGRAM_UNKNOWN};
use crate::shared::channel::PAYLOAD_BYTES;
use crate::sys::{self, Errno};
use std::ops::Deref;
use weft_core::refuse;
use weft_vfs::compound::{Answer, BATCH_RUNS_MAX, Checked, Codec, FILES_MAX, INPUTS_MAX, Input, Kind, Run};

/// Bytes of the runs of a batch, at most: beside them goes the thread's name.
const BATCH_BYTES_MAX: usize = PAYLOAD_BYTES - 16;
/// How often programs that the server does not keep are sent once more: it may have no room for all of them at once.
const SENDS_MAX: u32 = 3;

/// Runs of programs in their order, to be made by one request. `P` is a `&Prepared`, or an `Arc` of one.
///
/// Other programs may come between two of them. The runs of two batches that are [posted](Batch::post) go on at the same time, in any order.
pub struct Batch<'c, P> {
    client: &'c Client,
    at: FileRef,
    umask: u32,
    runs: Runs<P>,
}

/// The runs of a batch that are still to be made.
struct Runs<P> {
    bytes: Vec<u8>,
    /// The program of each, and where its run begins in `bytes`.
    programs: Vec<(P, usize)>,
}

/// A batch that the server is at.
///
/// Dropped, it goes on, and nobody hears how it ended.
pub struct Posted<'c, P> {
    batch: Batch<'c, P>,
    /// Of the runs that have been made before.
    answers: Vec<Answer>,
    /// `None` when these are all.
    call: Option<PostedCall<'c>>,
}

/// Whether a program takes no longer than its way to the server and back would. Bytes that come with it are sent no faster than LZ4 compresses
/// them.
fn is_short(program: &Checked) -> bool {
    let reads = program.ops.iter().any(|op| matches!(op.kind, Kind::Read { .. }));
    program.ops.iter().all(|op| match op.kind {
        Kind::Compress { codec, .. } => codec == Codec::Lz4 && !reads,
        Kind::Decompress { .. } => false,
        _ => true,
    })
}

impl<P> Runs<P> {
    /// Those behind the first `count`.
    fn split_off(&mut self, count: usize) {
        let from = self.programs.get(count).map_or(self.bytes.len(), |(_, from)| *from);
        self.bytes.drain(..from);
        self.programs.drain(..count);
        self.programs.iter_mut().for_each(|(_, at)| *at -= from);
    }
}

impl<'c, P: Deref<Target = Prepared>> Batch<'c, P> {
    /// An empty batch; see [`Client::run_program`] for `at` and `umask`.
    pub fn new(client: &'c Client, at: FileRef, umask: u32) -> Batch<'c, P> {
        Batch { client, at, umask, runs: Runs { bytes: Vec::new(), programs: Vec::new() } }
    }

    /// Runs so far.
    pub fn len(&self) -> usize {
        self.runs.programs.len()
    }

    /// Whether nothing is to be run.
    pub fn is_empty(&self) -> bool {
        self.runs.programs.is_empty()
    }

    /// Adds a run of a program with these open files and inputs.
    ///
    /// # Errors
    /// `E2BIG`: there are [`BATCH_RUNS_MAX`] runs already, all together would take more than about 256 KiB, or the files or inputs are too many.
    /// The batch is as it was.
    pub fn add(&mut self, prepared: P, files: &[FileRef], inputs: &[Input<'_>]) -> Result<(), Errno> {
        let too_many = self.len() == BATCH_RUNS_MAX || files.len() > FILES_MAX || inputs.len() > INPUTS_MAX;
        refuse(too_many, libc::E2BIG)?;
        let from = self.runs.bytes.len();
        let files = files.iter().map(|file| file.0).collect();
        Run { program: prepared.number, files, inputs: inputs.to_vec() }.put(&mut self.runs.bytes);
        if self.runs.bytes.len() > BATCH_BYTES_MAX {
            self.runs.bytes.truncate(from);
            return Err(libc::E2BIG);
        }
        self.runs.programs.push((prepared, from));
        Ok(())
    }

    /// Makes all runs, and waits for their answers.
    ///
    /// # Errors
    /// Those of [`Client::run_program`]. The first runs may have been made then.
    pub fn run(mut self) -> Result<Vec<Answer>, Errno> {
        let mut answers = Vec::with_capacity(self.len());
        self.run_here(|_| true, &mut answers)?;
        self.run_rest(&mut answers)?;
        Ok(answers)
    }

    /// Has the server make all runs while the caller goes on, but for the first ones that need less here than their way to the server. These
    /// wait for other writers of their file, as a write does.
    ///
    /// # Errors
    /// Those of [`Client::run_program`]. The first runs may have been made then.
    pub fn post(mut self) -> Result<Posted<'c, P>, Errno> {
        let mut answers = Vec::with_capacity(self.len());
        self.run_here(is_short, &mut answers)?;
        let call = if self.is_empty() {
            None
        } else {
            // Nobody may be there to send them when the server asks for them.
            self.keep_programs(|prepared| !self.client.has_sent(prepared))?;
            Some(self.request(|call| call.post())?)
        };
        Ok(Posted { batch: self, answers, call })
    }

    /// Makes the first runs here, as far as that can be and `wants` them.
    fn run_here(&mut self, wants: impl Fn(&Checked) -> bool, answers: &mut Vec<Answer>) -> Result<(), Errno> {
        let mut made = Ok(());
        let before = answers.len();
        for (prepared, from) in &self.runs.programs {
            let program = prepared.program();
            if !wants(program) {
                break;
            }
            let run = Run::first(&self.runs.bytes[*from..]).map_err(|_| libc::EIO)?;
            let files: Vec<FileRef> = run.files.into_iter().map(FileRef).collect();
            match self.client.run_without_server(self.at, (&files, &run.inputs), program) {
                Some(Ok(answer)) => answers.push(answer),
                Some(Err(errno)) => {
                    made = Err(errno);
                    break;
                }
                None => break,
            }
        }
        self.runs.split_off(answers.len() - before);
        made
    }

    fn request<T>(&self, send: impl FnOnce(crate::call::Call<'c>) -> Result<T, Errno>) -> Result<T, Errno> {
        let args = [self.at.0, self.umask.into(), sys::gettid().into()];
        let mut name = [0; 16];
        let name = sys::thread_name(&mut name);
        let flushes = self.runs.programs.iter().any(|(prepared, _)| prepared.program().flushes());
        let call = self.client.call(Op::DoKept, &args)?.that_flushes(flushes);
        send(call.part1(&self.runs.bytes)?.part2(name)?)
    }

    fn run_rest(&mut self, answers: &mut Vec<Answer>) -> Result<(), Errno> {
        let mut sends = 0;
        while !self.is_empty() {
            match self.request(|call| call.run()) {
                Ok(answered) => self.take(answered, answers)?,
                Err(PROGRAM_UNKNOWN) if sends < SENDS_MAX => {
                    sends += 1;
                    self.keep_programs(|_| true)?;
                }
                Err(PROGRAM_UNKNOWN) => return Err(libc::EIO),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Has the server keep those of the programs that are `wanted`.
    fn keep_programs(&self, wanted: impl Fn(&Prepared) -> bool) -> Result<(), Errno> {
        let mut numbers = Vec::new();
        for (prepared, _) in &self.runs.programs {
            if !numbers.contains(&prepared.number) && wanted(prepared) {
                numbers.push(prepared.number);
                self.client.keep_program(prepared)?;
            }
        }
        Ok(())
    }

    /// Takes the answers of the runs that were made; those behind them are left.
    fn take(&mut self, answered: Answered<'_>, answers: &mut Vec<Answer>) -> Result<(), Errno> {
        let made = answered.response.values[1] as usize;
        refuse(made == 0 || made > self.len(), libc::EIO)?;
        let bytes = self.client.whole_answer(answered)?;
        let mut rest = &bytes[..];
        for _ in 0..made {
            let (len, behind) = rest.split_first_chunk().ok_or(libc::EIO)?;
            let (answer, behind) =
                behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(libc::EIO)?;
            answers.push(Answer::decode(answer).map_err(|_| libc::EIO)?);
            rest = behind;
        }
        self.runs.split_off(made);
        Ok(())
    }
}

impl<P: Deref<Target = Prepared>> Posted<'_, P> {
    /// Whether [`wait`](Posted::wait) has its answers at once, as far as is known.
    pub fn is_done(&self) -> bool {
        self.call.as_ref().is_none_or(PostedCall::is_done)
    }

    /// Waits for all answers.
    ///
    /// # Errors
    /// Those of [`Client::run_program`]. `EIO` also in a child of the process that has posted the batch.
    pub fn wait(self) -> Result<Vec<Answer>, Errno> {
        let Posted { mut batch, mut answers, call } = self;
        let Some(call) = call else { return Ok(answers) };
        match call.wait() {
            Ok(answered) => batch.take(answered, &mut answers)?,
            Err(PROGRAM_UNKNOWN) => batch.keep_programs(|_| true)?,
            Err(errno) => return Err(errno),
        }
        batch.run_rest(&mut answers)?;
        Ok(answers)
    }
}

impl Client {
    /// Runs a prepared program once: as [`run_program`](Client::run_program), with inputs.
    ///
    /// # Errors
    /// Those of [`run_program`](Client::run_program), and of [`Batch::add`].
    pub fn run_prepared(
        &self,
        at: FileRef,
        umask: u32,
        prepared: &Prepared,
        files: &[FileRef],
        inputs: &[Input<'_>],
    ) -> Result<Answer, Errno> {
        // The same wherever it runs.
        refuse(files.len() > FILES_MAX || inputs.len() > INPUTS_MAX, libc::E2BIG)?;
        if let Some(answer) = self.run_without_server(at, (files, inputs), prepared.program()) {
            return answer;
        }
        let mut batch = Batch::new(self, at, umask);
        batch.add(prepared, files, inputs)?;
        let mut answers = Vec::new();
        batch.run_rest(&mut answers)?;
        answers.pop().ok_or(libc::EIO)
    }
}
