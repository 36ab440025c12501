//! A recording of what programs do to their files, while it is made.

use crate::error::CliError;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use weft_server::Recorder;
use weft_vfs::FileSystem;

/// A recording to make.
#[derive(Clone, Debug)]
pub struct Record {
    /// The file to write it to.
    pub path: PathBuf,
    /// The program of which it is made.
    pub program: String,
}

/// A recording that is being made.
pub struct Recording {
    path: PathBuf,
    recorder: Arc<Recorder>,
}

impl Recording {
    /// Begins a recording with what is on the volume already.
    pub fn begin(record: &Record, fs: &dyn FileSystem) -> Result<Recording, CliError> {
        let path = record.path.clone();
        let file = File::create(&path).map_err(|e| CliError::io("record to", &path, e))?;
        let recorder = Recorder::new(Box::new(file), &record.program)
            .map_err(|e| CliError::io("record to", &path, e))?;
        recorder.note_present(fs).map_err(|error| {
            CliError::said(
                format!("files on the volume cannot be recorded: {error}"),
                "'weft fsck' tells more",
            )
        })?;
        Ok(Recording { path, recorder })
    }

    /// What writes it.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Ends it, and tells whether it could be written.
    pub fn end(&self) -> Result<(), CliError> {
        let ended = self.recorder.finish();
        ended.map(drop).map_err(|e| CliError::io("record to", &self.path, e))
    }
}
