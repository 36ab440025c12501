//! Programs of several operations, which the server runs ([`weft_vfs::compound`]), or the client where it can.

use crate::FileRef;
use crate::busy::Busy;
use crate::call::{Answer as Answered, Call};
use crate::client::Client;
use crate::proto::{Op, PROGRAM_BYTES_MAX};
use crate::shared::channel::PAYLOAD_BYTES;
use crate::sys::{self, Errno};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::refuse;
use weft_vfs::compound::{Answer, Checked, FILES_MAX, Input, Near};

/// Bytes of a program in one call: beside it go the files that are given, and the thread's name.
const PIECE_BYTES: usize = PAYLOAD_BYTES - 16 - FILES_MAX * size_of::<FileRef>();

/// A program that is run again and again: the server keeps it, so that a run sends only its number and what comes with it.
///
/// It may be run on several connections, and by several threads at once.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) number: u64,
    program: Checked,
}

impl Prepared {
    /// A program that nobody has run yet.
    pub fn new(program: Checked) -> Prepared {
        // A child goes on from its parent's numbers, and has a connection of its own.
        static LAST: AtomicU64 = AtomicU64::new(0);
        Prepared { number: LAST.fetch_add(1, Relaxed) + 1, program }
    }

    /// The program.
    pub fn program(&self) -> &Checked {
        &self.program
    }
}

/// The programs that were sent to the server last: so few that it keeps them all, whatever other threads send meanwhile.
#[derive(Default)]
pub(crate) struct SentPrograms {
    /// The connection that they were sent by, which a child does not share.
    connection: u32,
    /// Their numbers, and the bytes of each.
    programs: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl SentPrograms {
    /// Half of what the server keeps, and half of its bytes.
    const PROGRAMS_MAX: usize = 128;
    const BYTES_MAX: usize = 2 << 20;

    fn note(&mut self, connection: u32, number: u64, bytes: usize) {
        if self.connection != connection {
            *self = SentPrograms { connection, ..SentPrograms::default() };
        }
        self.programs.push_back((number, bytes));
        self.bytes += bytes;
        while self.programs.len() > Self::PROGRAMS_MAX || self.bytes > Self::BYTES_MAX {
            let Some((_, bytes)) = self.programs.pop_front() else { break };
            self.bytes -= bytes;
        }
    }

    fn has(&self, connection: u32, number: u64) -> bool {
        self.connection == connection && self.programs.iter().any(|(sent, _)| *sent == number)
    }
}

impl Client {
    /// Lends codecs to programs that this client runs by itself; those that compress or decompress are the server's otherwise.
    pub fn lend(&mut self, near: &'static dyn Near) {
        self.near = Some(near);
    }

    pub(crate) fn near(&self) -> Option<&dyn Near> {
        self.near.map(|near| near as &dyn Near)
    }

    /// Runs a program, which `files` are given to, here if that can be: if it changes nothing and what it looks at is to be seen here, if it
    /// changes just one of these files in one place, or if it makes its changes one at a time, and only of these files. Its paths begin at `at` unless they begin elsewhere, and what it
    /// makes does not get the permission bits of `umask`.
    ///
    /// # Errors
    /// The errno of a call; failures of the program's operations are the answer's. `EIO` when the server ends meanwhile: the program was
    /// run, or was not.
    pub fn run_program(
        &self,
        at: FileRef,
        umask: u32,
        files: &[FileRef],
        program: &Checked,
    ) -> Result<Answer, Errno> {
        // The same wherever it runs.
        refuse(files.len() > FILES_MAX, libc::E2BIG)?;
        match self.run_without_server(at, (files, &[]), program) {
            Some(answer) => answer,
            None => self.run_by_server(at, umask, files, program),
        }
    }

    /// Runs a program here, if everything that it uses is here.
    pub(crate) fn run_without_server(
        &self,
        at: FileRef,
        given: (&[FileRef], &[Input<'_>]),
        program: &Checked,
    ) -> Option<Result<Answer, Errno>> {
        let is_servers = self.leases()?.control().volume.runs_programs.load(Relaxed) != 0;
        if is_servers || self.near.is_none() && program.ops.iter().any(|op| op.kind.needs_codec()) {
            return None;
        }
        let answer = self.run_here(at, given, program).or_else(|| self.run_plainly(given, program));
        answer.map(Ok).or_else(|| self.run_on_one_file(given, program))
    }

    /// Has the server run a program.
    pub(crate) fn run_by_server(
        &self,
        at: FileRef,
        umask: u32,
        files: &[FileRef],
        program: &Checked,
    ) -> Result<Answer, Errno> {
        let bytes = self.whole_answer(self.send_program(at, umask, files, program, 0)?)?;
        Answer::decode(&bytes).map_err(|_| libc::EIO)
    }

    /// Has the server keep a program.
    pub(crate) fn keep_program(&self, prepared: &Prepared) -> Result<(), Errno> {
        self.send_program(FileRef::ROOT, 0, &[], &prepared.program, prepared.number).map(drop)
    }

    /// Notes that the server keeps a program, whose encoding is so long.
    fn note_sent(&self, number: u64, bytes: usize) {
        let _busy = Busy::new();
        // Where another thread has it, the program is sent once more before it is posted.
        if let Ok(mut sent) = self.sent.try_lock() {
            sent.note(self.connection.load(Relaxed), number, bytes);
        }
    }

    /// Whether the server is known to keep a program.
    pub(crate) fn has_sent(&self, prepared: &Prepared) -> bool {
        let _busy = Busy::new();
        let connection = self.connection.load(Relaxed);
        self.sent.try_lock().is_ok_and(|sent| sent.has(connection, prepared.number))
    }

    /// Sends a program to be run, or to be kept under a number that is not 0.
    fn send_program(
        &self,
        at: FileRef,
        umask: u32,
        files: &[FileRef],
        program: &Checked,
        number: u64,
    ) -> Result<Answered<'_>, Errno> {
        let encoded = program.encode();
        refuse(encoded.len() > PROGRAM_BYTES_MAX || files.len() > FILES_MAX, libc::E2BIG)?;
        let (len, thread) = (encoded.len() as u64, sys::gettid().into());
        let args = |from: usize| [at.0, umask.into(), thread, len, from as u64, files.len() as u64, number];
        let given: Vec<u8> = files.iter().flat_map(|file| file.0.to_le_bytes()).collect();
        let mut name = [0; 16];
        let name = sys::thread_name(&mut name);
        let mut from = 0;
        let flushes = number == 0 && program.flushes();
        let mut call: Call<'_> = self.call(Op::Do, &args(0))?.that_flushes(flushes);
        loop {
            let piece = &encoded[from..encoded.len().min(from + PIECE_BYTES)];
            let done = call.part1(piece)?.part2(&given)?.part2(name)?.run()?;
            from += piece.len();
            if from == encoded.len() {
                if number != 0 {
                    self.note_sent(number, encoded.len());
                }
                return Ok(done);
            }
            call = done.again(Op::Do, &args(from));
        }
    }

    /// What a call has answered of which the first piece has come.
    pub(crate) fn whole_answer(&self, mut answer: Answered<'_>) -> Result<Vec<u8>, Errno> {
        let whole = answer.response.values[0] as usize;
        let mut bytes = answer.payload().to_vec();
        while bytes.len() < whole {
            answer = answer.again(Op::DoRest, &[bytes.len() as u64]).run()?;
            refuse(answer.payload().is_empty(), libc::EIO)?;
            bytes.extend_from_slice(answer.payload());
        }
        Ok(bytes)
    }
}
