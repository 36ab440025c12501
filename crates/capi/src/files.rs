//! A connection to the server of a volume, and the files that are open on it.

use crate::error::{Failure, bad, exports, null, put_handlers_off};
use crate::handle::{c_string, give, handle, put, take};
use std::collections::HashSet;
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weft_client::{Batch, Client, ConnectOptions, FileRef, Prepared};
use weft_sys::fork::Process;
use weft_vfs::compound::{Answer, Checked, Input, Native};

/// Where a volume appears, unless something else is said.
const MOUNT_POINT: &[u8] = b"/weft";
/// The variable by which 'weft run' tells programs the socket.
const SOCKET_VARIABLE: &str = "WEFT_SOCKET";
/// The variable by which it tells them the mount point.
const MOUNT_POINT_VARIABLE: &str = "WEFT_AT";
/// Permission bits of a file that is made. What is above them would be taken for a umask.
const PERM_BITS: u32 = 0o7777;

/// A number that no other chain or connection of this process has.
pub(crate) fn fresh_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}

/// A connection to the server of a volume.
pub struct WeftFiles {
    id: u64,
    /// A child takes answers away from its parent, and what it holds when it is killed is its parent's.
    process: Process,
    client: Client,
    open: Mutex<HashSet<u64>>,
}

/// An open file of a connection.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftFile {
    /// The connection.
    pub files: u64,
    /// The file.
    pub file: u64,
}

/// A connection that a function works on: signal handlers that can be put off wait until the function returns. What it holds of the
/// volume meanwhile, they would wait for in vain.
///
/// # Safety
/// As [`handle`].
pub(crate) unsafe fn connection<'a>(files: *const WeftFiles) -> Result<&'a WeftFiles, Failure> {
    put_handlers_off();
    // SAFETY: the caller's promise.
    let files = unsafe { handle(files, "files") }?;
    if files.process.is_current() {
        return Ok(files);
    }
    let what = "the connection is of the process that has forked this one; connect again";
    Err(Failure::Files { what: what.into(), errno: libc::EIO })
}

impl WeftFiles {
    fn open(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a program, which gets these files.
    pub(crate) fn run(&self, given: &[WeftFile], program: &Checked) -> Result<Answer, Failure> {
        let given = self.references(given)?;
        // Permission bits are what the caller says: no umask takes any from them.
        let answer = self.client.run_program(FileRef::ROOT, 0, &given, program);
        answer.map_err(|errno| Failure::Files { what: "run a chain".into(), errno })
    }

    /// Runs a prepared program.
    pub(crate) fn run_prepared(
        &self,
        given: &[WeftFile],
        prepared: &Prepared,
        inputs: &[Input<'_>],
    ) -> Result<Answer, Failure> {
        let given = self.references(given)?;
        let answer = self.client.run_prepared(FileRef::ROOT, 0, prepared, &given, inputs);
        answer.map_err(|errno| Failure::Files { what: "run a chain".into(), errno })
    }

    /// One request of runs of prepared programs.
    pub(crate) fn batch<'r>(
        &self,
        runs: impl IntoIterator<Item = (Arc<Prepared>, &'r [WeftFile], Vec<Input<'r>>)>,
    ) -> Result<Batch<'_, Arc<Prepared>>, Failure> {
        let mut batch = Batch::new(&self.client, FileRef::ROOT, 0);
        for (prepared, given, inputs) in runs {
            let given = self.references(given)?;
            batch.add(prepared, &given, &inputs).map_err(|_| {
                bad("the runs of the batch do not fit one request of 256 KiB; make more batches".into())
            })?;
        }
        Ok(batch)
    }

    fn references(&self, given: &[WeftFile]) -> Result<Vec<FileRef>, Failure> {
        let open = self.open();
        given.iter().map(|file| self.reference(&open, *file)).collect()
    }

    pub(crate) fn close(&self, file: WeftFile) -> Result<(), Failure> {
        let mut open = self.open();
        let reference = self.reference(&open, file)?;
        open.remove(&reference.0);
        drop(open);
        self.client.close(reference).map_err(|errno| Failure::Files { what: "close a file".into(), errno })
    }

    fn reference(&self, open: &HashSet<u64>, file: WeftFile) -> Result<FileRef, Failure> {
        if file.files != self.id {
            return Err(bad("a file is not of this connection; pass one that it has opened".into()));
        }
        if !open.contains(&file.file) {
            return Err(bad("a file is not open any more; open it again".into()));
        }
        Ok(FileRef(file.file))
    }
}

exports! {
    /// Connects to the server of a volume ('weft serve', 'weft run', 'weft mount') at its socket. When `socket` is null, at the socket in
    /// the environment variable WEFT_SOCKET, which programs under 'weft run' have. `mount_point` is where the volume appears: absolute
    /// symlinks below it stay on the volume. Null: what WEFT_AT says, or /weft. The connection keeps the rights that the process has now:
    /// after setuid, setgid or setgroups, connect again. A forked child connects for itself: calls with its parent's connection fail there,
    /// `WEFT_EIO` with the errno EIO, and its parent's connection does not end before the child has closed its copy, has executed a program,
    /// or has ended.
    ///
    /// # Safety
    /// `socket` and `mount_point` are null or strings; `out` can be written.
    fn weft_files_connect(socket: *const c_char, mount_point: *const c_char, out: *mut *mut WeftFiles) {
        if out.is_null() {
            return Err(null("out"));
        }
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let (in_socket, in_mount_point) = (variable(SOCKET_VARIABLE), variable(MOUNT_POINT_VARIABLE));
        let socket_path = match (socket.is_null(), &in_socket) {
            (false, _) => c_string(socket, "socket")?,
            (true, Some(path)) => path.as_bytes(),
            (true, None) => {
                let what = "socket is a null pointer and WEFT_SOCKET is not set; pass the server's socket, or run the \
                    program under 'weft run'";
                return Err(bad(what.into()));
            }
        };
        let mount_point = match (mount_point.is_null(), &in_mount_point) {
            (false, _) => c_string(mount_point, "mount_point")?,
            (true, Some(path)) => path.as_bytes(),
            (true, None) => MOUNT_POINT,
        };
        let process = Process::current();
        let connected = Client::connect(&ConnectOptions { socket_path, mount_point });
        let mut client = connected.map_err(|errno| {
            let what = format!("connect to {}", OsStr::from_bytes(socket_path).display());
            Failure::Files { what, errno }
        })?;
        client.lend(&Native);
        give(WeftFiles { id: fresh_id(), process, client, open: Mutex::default() }, out)
    }

    /// Ends a connection, and closes the files that it has opened. Runs that are posted and that the server has not begun are not made, as
    /// when the process ends. A forked child ends only what it has of its parent's connection, which
    /// goes on.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_files_close(files: *mut WeftFiles) -> () {
        drop(take(files))
    }

    /// Opens a file, to be given with chains. `path` begins at the root of the volume; `flags` are those of open(2); a file that is made
    /// has the permission bits `mode`, from which no umask is taken.
    ///
    /// # Safety
    /// The handle is open; `path` is a string; `out` can be written.
    fn weft_file_open(
        files: *const WeftFiles,
        path: *const c_char,
        flags: i32,
        mode: u32,
        out: *mut WeftFile,
    ) {
        let (files, path) = (connection(files)?, c_string(path, "path")?);
        if out.is_null() {
            return Err(null("out"));
        }
        let opened = files.client.open(FileRef::ROOT, path, flags, mode & PERM_BITS);
        let opened = opened.map_err(|errno| {
            Failure::Files { what: format!("open {}", OsStr::from_bytes(path).display()), errno }
        })?;
        files.open().insert(opened.file.0);
        put(WeftFile { files: files.id, file: opened.file.0 }, out)
    }

    /// Closes a file.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_file_close(files: *const WeftFiles, file: WeftFile) {
        connection(files)?.close(file)
    }
}
