//! Programs of several operations by way of a mount: an `ioctl` on an open file or directory of it, without a connection to the server.

use crate::sys::{self, Errno};
use std::os::fd::{AsRawFd, BorrowedFd};
use weft_core::refuse;
use weft_vfs::compound::ioctl::{Command, DATA_BYTES_MAX, HEAD_BYTES, Head};
use weft_vfs::compound::{Answer, BARE_ANSWER_BYTES_MAX, Checked, PROGRAM_BYTES_MAX};

/// Has the mount that an open file or directory is on run a program. Its paths begin in the directory, and lead nowhere else; file 0 that
/// is given with it is the open file itself. What it makes does not get the permission bits of the process's umask.
///
/// # Errors
/// The errno of the call; failures of the program's operations are the answer's. `ENOTTY`: the file is on no mount of a volume. `EAGAIN`:
/// too many programs wait. `EINTR`: a signal came before the program had begun. `EROFS`: the program changes something, and the mount is
/// read-only. `EOPNOTSUPP`: the mount has the option `writeback`. `EIO`: the server has ended meanwhile, and the program was run, or was
/// not.
pub fn run_program_at(file: BorrowedFd<'_>, program: &Checked) -> Result<Answer, Errno> {
    let encoded = program.encode();
    refuse(encoded.len() > PROGRAM_BYTES_MAX, libc::E2BIG)?;
    let descriptor = file.as_raw_fd();
    // Bytes and attributes may need more room, which costs the kernel's copying of it.
    let has_values = program.ops.iter().any(|op| op.export);
    let room = if has_values { DATA_BYTES_MAX } else { BARE_ANSWER_BYTES_MAX };
    let mut argument = Vec::new();
    let mut ask = |command: Command, head: Head, data: &[u8], room: usize| {
        argument.clear();
        argument.extend_from_slice(&Head { descriptor, len: data.len() as u32, ..head }.to_bytes());
        argument.extend_from_slice(data);
        argument.resize(argument.len().max(HEAD_BYTES + room), 0);
        sys::ioctl(descriptor, command.number(argument.len()), &mut argument)?;
        let (head, data) = Head::parse(&argument).ok_or(libc::EIO)?;
        Ok::<_, Errno>((head, data.to_vec()))
    };
    let last = encoded.len().saturating_sub(1) / DATA_BYTES_MAX * DATA_BYTES_MAX;
    for (piece, offset) in encoded[..last].chunks(DATA_BYTES_MAX).zip((0..).step_by(DATA_BYTES_MAX)) {
        ask(Command::Put, Head { offset, ..Head::default() }, piece, 0)?;
    }
    let of_last = Head { offset: last as u32, ..Head::default() };
    let (head, mut answer) = ask(Command::Run, of_last, &encoded[last..], room)?;
    while answer.len() < head.whole as usize {
        let next = Head { answer: head.answer, offset: answer.len() as u32, ..Head::default() };
        let (_, piece) = ask(Command::Get, next, &[], DATA_BYTES_MAX)?;
        refuse(piece.is_empty(), libc::EIO)?;
        answer.extend_from_slice(&piece);
    }
    Answer::decode(&answer).map_err(|_| libc::EIO)
}
