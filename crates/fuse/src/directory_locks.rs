//! Locks of directories (`flock`) that programs under the library hold.
//!
//! The kernel asks the server for locks of files, but not of directories: those of the mount's programs exclude each other in the kernel,
//! and the server never hears of them. So the server locks the directory in the kernel as well, by a descriptor of its own on the mount,
//! for each open file of a program under the library that locks a directory:
//!
//! ```text
//!  program under the library -- flock --> server: its table of locks       excludes others under the library
//!                                            +--- flock --> kernel         excludes programs of the mount
//! ```
//!
//! A kernel that does ask the server would ask it for these locks, too. The first such request shows it, and the server then leaves the
//! locks to its table.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use weft_client::FileRef;
use weft_core::Ino;

/// Directories of a mount that programs under the library have locked.
pub struct DirectoryLocks {
    /// Where the volume is mounted.
    mounted: PathBuf,
    /// The directory, and the descriptor of it on the mount, of each open file, by its number, that has a lock or asks for one.
    held: Mutex<FxHashMap<u64, (Ino, Arc<File>)>>,
    /// The kernel asks the server for locks of directories.
    kernel_asks: AtomicBool,
}

impl DirectoryLocks {
    /// None yet, on a mount of this directory.
    pub fn new(mounted: &Path) -> DirectoryLocks {
        let (held, kernel_asks) = Default::default();
        DirectoryLocks { mounted: mounted.to_path_buf(), held, kernel_asks }
    }

    /// The kernel has asked for the lock of a whole file.
    pub fn kernel_asks(&self, ino: Ino) {
        if self.held.lock().values().any(|(dir, _)| *dir == ino) {
            self.kernel_asks.store(true, SeqCst);
        }
    }

    /// Locks a directory, or changes its lock, for an open file of a program under the library; false when a program of the mount has
    /// locked it. As in Linux, a lock that cannot be changed is lost.
    pub fn lock(&self, (dir, device): (Ino, u64), file: FileRef, path: &[u8], exclusive: bool) -> bool {
        if self.kernel_asks.load(SeqCst) {
            return true;
        }
        let known = self.held.lock().get(&file.0).map(|(_, on_mount)| on_mount.clone());
        let on_mount = match known.map_or_else(|| self.open(dir, device, path).map(Arc::new), Ok) {
            Ok(on_mount) => on_mount,
            Err(error) => {
                // It has no name any more, lies below another mount, or belongs to somebody who does not let the server in.
                tracing::debug!(%dir, %error, "a directory is not locked for programs of the mount");
                return true;
            }
        };
        self.held.lock().insert(file.0, (dir, on_mount.clone()));
        let kind = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let locked = rustix::fs::flock(&*on_mount, kind);
        if self.kernel_asks.load(SeqCst) {
            self.drop(file);
            return true;
        }
        match locked {
            Err(Errno::WOULDBLOCK) => {
                self.drop(file);
                false
            }
            Err(error) => {
                tracing::debug!(%dir, %error, "a directory is not locked for programs of the mount");
                true
            }
            Ok(()) => true,
        }
    }

    /// An open file has no lock any more.
    pub fn drop(&self, file: FileRef) {
        // The lock ends with the descriptor.
        let gone = self.held.lock().remove(&file.0);
        drop(gone);
    }

    /// The mount ends.
    pub fn drop_all(&self) {
        let gone = std::mem::take(&mut *self.held.lock());
        drop(gone);
    }

    fn open(&self, dir: Ino, device: u64, path: &[u8]) -> std::io::Result<File> {
        let below = path.strip_prefix(b"/").unwrap_or(path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.mounted.join(OsStr::from_bytes(below));
        let found = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        let is = found.metadata()?;
        match (is.ino(), is.dev()) == (dir.0, device) {
            true => Ok(found),
            false => Err(std::io::Error::other("its path leads elsewhere")),
        }
    }
}
