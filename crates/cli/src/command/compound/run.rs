//! The way of a program to its volume.

use crate::access::Access;
use crate::error::CliError;
use crate::sys::file::umask;
use weft_client::FileRef;
use weft_vfs::compound::{Answer, Checked};

/// Has the volume's server run a program, as the user of this process and with its umask.
///
/// # Errors
/// The server does not take it, or ends. What fails in the program is in the answer.
pub fn run_program(access: &Access, program: &Checked) -> Result<Answer, CliError> {
    let answer = access.client().run_program(FileRef::ROOT, umask(), &[], program);
    answer.map_err(|errno| access.error("run a program on", errno))
}
