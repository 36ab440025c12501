//! A front of a served volume: the kernel mounts it (FUSE), and any program sees its files.
//!
//! The front runs in the server's process. Each request of the kernel becomes one call of a [`weft_server::ops::Session`], so a
//! program under the shim and one that comes through the mount meet in the same inodes, maps and rings.
//!
//! The kernel checks permissions (`default_permissions`) and does what follows from the caller's groups; the session acts
//! with the caller's user and group, and may do everything. The kernel keeps no names, attributes or data for longer than a call
//! (time-outs of 0, direct I/O), so nothing that another program changes is seen late. What it keeps is the pages of shared maps.

mod front;
mod nodes;

use front::Front;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_server::Volume;

/// Requests that are worked on at the same time.
const THREADS: usize = 4;

/// Why a volume is not mounted, or was not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The kernel or `fusermount3` refuses.
    #[error("{dir}: cannot mount: {source}")]
    Mount {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is in use, perhaps.
    #[error("{dir}: cannot unmount: {source}")]
    Unmount {
        /// From where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server stops.
    #[error("the volume is served no more")]
    Stopped,
}

/// How a volume is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountChoice {
    /// What `mount` and `df` show as its source.
    pub source: String,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Users other than the one who mounts see it, too.
    pub allow_other: bool,
}

/// A mounted volume. It is unmounted with this.
pub struct Mount {
    session: Option<BackgroundSession>,
    dir: PathBuf,
}

impl Mount {
    /// Mounts a served volume on a directory.
    ///
    /// # Errors
    /// [`FuseError::Mount`] when the directory does not exist, or the user may not mount there.
    pub fn new(volume: Arc<Volume>, dir: &Path, choice: &MountChoice) -> Result<Mount, FuseError> {
        let refused = |source| FuseError::Mount { dir: dir.to_path_buf(), source };
        let dir_seen = dir.canonicalize().map_err(refused)?;
        let front = Front::new(volume, &dir_seen).ok_or(FuseError::Stopped)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(choice.source.clone()),
            MountOption::Subtype("weft".into()),
            MountOption::DefaultPermissions,
        ];
        if choice.read_only {
            config.mount_options.push(MountOption::RO);
        }
        config.acl = if choice.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        let session = fuser::Session::new(front, &dir_seen, &config).and_then(fuser::Session::spawn);
        Ok(Mount { session: Some(session.map_err(refused)?), dir: dir_seen })
    }

    /// Whether somebody else has unmounted it (`umount`).
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts it, and waits for the requests that are under way.
    ///
    /// # Errors
    /// [`FuseError::Unmount`] when the kernel refuses.
    pub fn unmount(mut self) -> Result<(), FuseError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), FuseError> {
        let ended = self.has_ended();
        let Some(session) = self.session.take() else { return Ok(()) };
        let result = if ended { session.join() } else { session.umount_and_join() };
        result.map_err(|source| FuseError::Unmount { dir: self.dir.clone(), source })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "a mount that was given up");
        }
    }
}
