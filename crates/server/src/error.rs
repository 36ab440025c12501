//! Why a server did not start.

use std::path::PathBuf;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Shared memory or a thread was refused.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// What clients read of the volume by themselves cannot be opened.
    #[error(transparent)]
    Volume(#[from] weft_volume::VolumeError),
    /// The socket cannot be made.
    #[error("{path}: cannot listen: {source}")]
    Listen {
        /// Path of the socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
