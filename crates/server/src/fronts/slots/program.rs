//! Programs of several operations, by calls: what does not fit a slot's payload comes and goes in pieces.

use super::decode::{Call, INVALID, Outcome};
use crate::ops::{Base, Beginning, Error, Session};
use crate::state::open_files::Opener;
use weft_client::FileRef;
use weft_client::proto::{PROGRAM_BYTES_MAX, PROGRAM_UNKNOWN};
use weft_client::shared::channel::{PAYLOAD_BYTES, Response};
use weft_core::refuse;
use weft_vfs::compound::{FILES_MAX, OUTPUT_BYTES_MAX, Program, Run, check};

/// What a slot holds between two calls.
#[derive(Default)]
pub struct Pieces {
    /// Of a program, as far as it has come.
    program: Vec<u8>,
    /// What the last call answered, when it did not fit.
    answer: Vec<u8>,
}

/// Where a call's programs begin.
fn beginning<'a>(call: &Call<'_>, thread: &[u8]) -> Beginning<'a> {
    let thread = String::from_utf8_lossy(thread).into_owned();
    let opener = Opener { thread, thread_id: call.arg(2) as u32 };
    let (dir, umask) = (Base::Open(call.file(0)), call.arg(1) as u32 & 0o777);
    Beginning { dir, umask, opener, given: Vec::new(), inputs: Vec::new(), stays: false, keeper: None }
}

impl Pieces {
    /// Takes a piece of a program. When the program is whole, runs it, or keeps it.
    pub fn run(&mut self, session: &Session<'_>, call: &Call<'_>) -> Outcome {
        self.answer = Vec::new();
        let (whole, from) = (call.arg(3) as usize, call.arg(4) as usize);
        // Copied: the client can change it at any time.
        let piece = call.part1()?;
        if from == 0 {
            self.program.clear();
        }
        let fits = whole <= PROGRAM_BYTES_MAX
            && from == self.program.len()
            && piece.len() <= whole - from.min(whole);
        refuse(!fits, INVALID)?;
        self.program.extend_from_slice(&piece);
        if self.program.len() < whole {
            refuse(piece.is_empty(), INVALID)?;
            return Ok(Response::default());
        }
        let encoded = std::mem::take(&mut self.program);
        let program = Program::decode(&encoded).map_err(|_| INVALID)?;
        let program = check(program).map_err(|_| INVALID)?;
        if call.arg(6) != 0 {
            session.keep_program(call.arg(6), program, encoded.len());
            return Ok(Response::default());
        }
        let beside = call.part2()?;
        let given = (call.arg(5) as usize).min(FILES_MAX) * size_of::<FileRef>();
        let (given, thread) = beside.split_at_checked(given).ok_or(INVALID)?;
        let given = given.as_chunks::<8>().0.iter().map(|file| FileRef(u64::from_le_bytes(*file))).collect();
        let answer = session.run_program(Beginning { given, ..beginning(call, thread) }, &program)?.encode();
        self.reply(call, answer, 1)
    }

    /// Runs programs that are kept, one after the other.
    pub fn run_kept(&mut self, session: &Session<'_>, call: &Call<'_>) -> Outcome {
        self.answer = Vec::new();
        let (batch, thread) = (call.part1()?, call.part2()?);
        let runs = Run::get_all(&batch).map_err(|_| INVALID)?;
        let programs = runs.iter().map(|run| session.kept_program(run.program)).collect::<Option<Vec<_>>>();
        let Some(programs) = programs else {
            return Ok(Response { ret: -i64::from(PROGRAM_UNKNOWN), ..Response::default() });
        };
        let (mut answers, mut count) = (Vec::new(), 0);
        for (run, program) in runs.into_iter().zip(&programs) {
            // One of them may be as long as that.
            if count > 0 && answers.len() > OUTPUT_BYTES_MAX {
                break;
            }
            let given = run.files.into_iter().map(FileRef).collect();
            let beginning = Beginning { given, inputs: run.inputs, ..beginning(call, &thread) };
            let answer = session.run_program(beginning, program)?.encode();
            answers.extend_from_slice(&(answer.len() as u32).to_le_bytes());
            answers.extend_from_slice(&answer);
            count += 1;
        }
        self.reply(call, answers, count)
    }

    /// Answers with as much as fits, and holds the rest.
    fn reply(&mut self, call: &Call<'_>, answer: Vec<u8>, runs: u64) -> Outcome {
        let first = call.reply(0, &answer[..answer.len().min(PAYLOAD_BYTES)])?;
        let values = [answer.len() as u64, runs, 0, 0, 0, 0];
        if answer.len() > PAYLOAD_BYTES {
            self.answer = answer;
        }
        Ok(Response { values, ..first })
    }

    /// Another piece of the last answer.
    pub fn more(&mut self, call: &Call<'_>) -> Outcome {
        let rest = self.answer.get(call.arg(0) as usize..).ok_or(Error::Errno(libc::ERANGE))?;
        let response = call.reply(0, &rest[..rest.len().min(PAYLOAD_BYTES)])?;
        if rest.len() <= PAYLOAD_BYTES {
            self.answer = Vec::new();
        }
        Ok(response)
    }
}
