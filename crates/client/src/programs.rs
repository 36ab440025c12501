//! Programs of several operations, which the server runs ([`weft_vfs::compound`]).

use crate::FileRef;
use crate::client::Client;
use crate::proto::{Op, PROGRAM_BYTES_MAX};
use crate::shared::channel::PAYLOAD_BYTES;
use crate::sys::{self, Errno};
use weft_core::refuse;
use weft_vfs::compound::{Answer, Checked, FILES_MAX};

/// Bytes of a program in one call: beside it go the files that are given, and the thread's name.
const PIECE_BYTES: usize = PAYLOAD_BYTES - 16 - FILES_MAX * size_of::<FileRef>();

impl Client {
    /// Runs a program, which `files` are given to, here if it changes nothing and what it looks at is to be seen here; its paths begin at `at` unless they begin elsewhere, and what it makes does not get
    /// the permission bits of `umask`.
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
        if let Some(answer) = self.run_here(at, files, program) {
            return Ok(answer);
        }
        let encoded = program.encode();
        refuse(encoded.len() > PROGRAM_BYTES_MAX || files.len() > FILES_MAX, libc::E2BIG)?;
        let (len, thread) = (encoded.len() as u64, sys::gettid().into());
        let args = |from: usize| [at.0, umask.into(), thread, len, from as u64, files.len() as u64];
        let given: Vec<u8> = files.iter().flat_map(|file| file.0.to_le_bytes()).collect();
        let mut name = [0; 16];
        let name = sys::thread_name(&mut name);
        let mut from = 0;
        let mut call = self.call(Op::Do, &args(0))?;
        let mut answer = loop {
            let piece = &encoded[from..encoded.len().min(from + PIECE_BYTES)];
            let done = call.part1(piece)?.part2(&given)?.part2(name)?.run()?;
            from += piece.len();
            if from == encoded.len() {
                break done;
            }
            call = done.again(Op::Do, &args(from));
        };
        let whole = answer.response.values[0] as usize;
        let mut bytes = answer.payload().to_vec();
        while bytes.len() < whole {
            answer = answer.again(Op::DoRest, &[bytes.len() as u64]).run()?;
            refuse(answer.payload().is_empty(), libc::EIO)?;
            bytes.extend_from_slice(answer.payload());
        }
        drop(answer);
        Answer::decode(&bytes).map_err(|_| libc::EIO)
    }
}
