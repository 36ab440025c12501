//! Files on the host that commands write.
//!
//! An option or a target that names such a file replaces what is there. When a user gives the name of an image there, or
//! forgets the colon of `IMAGE:/path`, that would destroy a volume, even under a server that has it open. So each command asks
//! here before it opens the file. Only `--force` and its like replace data of weft.

use crate::error::CliError;
use crate::kind::Kind;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file that must not be written, because it holds data of weft.
#[derive(Debug, thiserror::Error)]
#[error("{} is {}", path.display(), kind.map_or_else(|| "the device that this command uses".to_string(), |kind| kind.to_string()))]
pub struct HoldsData {
    path: PathBuf,
    /// None when it is one of those that the command uses.
    kind: Option<Kind>,
}

impl HoldsData {
    /// Whether files can be copied into it.
    pub fn is_volume(&self) -> bool {
        self.kind == Some(Kind::Volume)
    }
}

/// Refuses a file for a command's output when it holds a volume, a flash device or a tag store, or is one of those that the
/// command uses.
pub fn check(path: &Path, used: &[&Path]) -> Result<(), CliError> {
    let remedy = "give the name of another file; to replace this one, remove it first";
    if CliError::has_no_directory(path) {
        return Err(CliError::io("write", path, io::Error::from_raw_os_error(libc::ENOENT)));
    }
    if path.is_dir() {
        return Err(CliError::io("write", path, io::Error::from_raw_os_error(libc::EISDIR)));
    }
    holds_no_data(path, used).map_err(|error| CliError::said(error.to_string(), remedy))
}

/// As [`check`], for a caller with a remedy of its own.
pub fn holds_no_data(path: &Path, used: &[&Path]) -> Result<(), HoldsData> {
    let Ok(meta) = path.metadata() else { return Ok(()) };
    let refused = |kind| Err(HoldsData { path: path.to_path_buf(), kind });
    if let Some(kind) = Kind::of(path, &meta) {
        return refused(Some(kind));
    }
    // An image whose beginning is damaged is still one to salvage; a drive may begin with anything.
    let same = |used: &&Path| used.metadata().is_ok_and(|used| identity(&used) == identity(&meta));
    if used.iter().any(same) { refused(None) } else { Ok(()) }
}

/// What two names of one file have in common, and two nodes of one drive.
fn identity(meta: &Metadata) -> (u64, u64) {
    if meta.file_type().is_block_device() { (u64::MAX, meta.rdev()) } else { (meta.dev(), meta.ino()) }
}
