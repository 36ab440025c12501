//! `weft export` and `weft import`: a volume, or a part of one, as a tar archive.

pub mod export;
pub mod import;

use crate::error::CliError;
use crate::file_arg::FileArg;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A volume, and the directory or file on it that is meant; the whole volume when none is named.
fn volume(text: &OsStr) -> Result<(PathBuf, Vec<u8>), CliError> {
    Ok(match FileArg::parse(text)? {
        FileArg::Volume { image, path } => (image, path),
        FileArg::Local(path) => (PathBuf::from(OsStr::from_bytes(&path)), b"/".to_vec()),
    })
}

/// The file that is named; none for -, which stands for standard input and output.
fn named(file: &Path) -> Option<&Path> {
    (file != Path::new("-")).then_some(file)
}
