//! The way of a program to its volume.

use crate::access::Access;
use crate::error::CliError;
use crate::host::served_elsewhere;
use rustix::process::getgroups;
use std::path::Path;
use weft_core::Credentials;
use weft_sys::effective_user;
use weft_vfs::compound::{Answer, Checked, Local, run};

/// Runs a program on a volume that this process has for itself, as the user of this process.
///
/// # Errors
/// Another process serves the volume: its server does not take programs yet. What fails in the program is in the answer.
pub fn run_program(access: &Access, volume: &Path, program: &Checked) -> Result<Answer, CliError> {
    let core = access.core().ok_or_else(|| served_elsewhere(volume))?;
    let (uid, gid) = effective_user();
    let groups = getgroups().map_err(|error| CliError::io("groups of the user of", volume, error.into()))?;
    let caller = Credentials::new(uid, gid, groups.into_iter().map(|group| group.as_raw()).collect());
    Ok(run(&Local::of(&*core, caller), program))
}
