//! Files on the host that commands write.
//!
//! An option or a target that names such a file replaces what is there. When a user gives the name of an image there, or
//! forgets the colon of `IMAGE:/path`, that would destroy a volume, even under a server that has it open. So each command asks
//! here before it opens the file. Only `--force` and its like replace data of weft.

use crate::error::CliError;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const VOLUME: &str = "a weft volume";
/// The first bytes of what weft keeps data in; docs/formats describes each.
const MAGICS: [(&[u8; 8], &str); 4] = [
    (b"WEFTZNS\0", VOLUME),
    (b"WEFTZONE", "a zone of a weft volume"),
    (b"WEFTOCF\0", "a flash device of weft"),
    (b"WEFTTAGS", "a tag store"),
];

/// A file that must not be written, because it holds data of weft.
#[derive(Debug, thiserror::Error)]
#[error("{} is {kind}", path.display())]
pub struct HoldsData {
    path: PathBuf,
    kind: &'static str,
}

impl HoldsData {
    /// Whether files can be copied into it.
    pub fn is_volume(&self) -> bool {
        self.kind == VOLUME
    }
}

/// Refuses a file for a command's output when it holds a volume, a flash device or a tag store, or is one of those that the
/// command uses.
pub fn check(path: &Path, used: &[&Path]) -> Result<(), CliError> {
    let remedy = "give the name of another file; to replace this one, remove it first";
    holds_no_data(path, used).map_err(|error| CliError::said(error.to_string(), remedy))
}

/// As [`check`], for a caller with a remedy of its own.
pub fn holds_no_data(path: &Path, used: &[&Path]) -> Result<(), HoldsData> {
    let Ok(meta) = path.metadata() else { return Ok(()) };
    let refused = |kind| Err(HoldsData { path: path.to_path_buf(), kind });
    // Nothing is read of a pipe, whose other end may be waited for.
    if meta.is_file() || meta.file_type().is_block_device() {
        let mut first = [0; 8];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
        if let (Ok(()), Some((_, kind))) = (read, MAGICS.iter().find(|(magic, _)| **magic == first)) {
            return refused(kind);
        }
    }
    // An image whose beginning is damaged is still one to salvage; a drive may begin with anything.
    let same = |used: &&Path| used.metadata().is_ok_and(|used| identity(&used) == identity(&meta));
    if used.iter().any(same) { refused("the device that this command uses") } else { Ok(()) }
}

/// Whether a file that begins so is the image of a volume.
pub fn holds_volume(first: &[u8; 8]) -> bool {
    MAGICS.iter().any(|(magic, kind)| *magic == first && *kind == VOLUME)
}

/// What two names of one file have in common, and two nodes of one drive.
fn identity(meta: &Metadata) -> (u64, u64) {
    if meta.file_type().is_block_device() { (u64::MAX, meta.rdev()) } else { (meta.dev(), meta.ino()) }
}
