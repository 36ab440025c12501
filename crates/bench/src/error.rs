//! Why a benchmark has no figures.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a benchmark has no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// On what.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// There is no weft command.
    #[error("{0} does not exist; build it ('make build') or name it with --weft")]
    NoWeft(PathBuf),
    /// A program failed.
    #[error("{command}: status {status}: {output}")]
    Program {
        /// What was run.
        command: String,
        /// How it ended.
        status: i32,
        /// The last of what it said.
        output: String,
    },
    /// A program's output has no figure.
    #[error("{command}: no figure in its output: {output}")]
    NoFigure {
        /// What was run.
        command: String,
        /// The last of what it said.
        output: String,
    },
}

impl BenchError {
    /// An error of the operating system.
    pub fn io(what: impl fmt::Display, source: io::Error) -> BenchError {
        BenchError::Io { what: what.to_string(), source }
    }
}
