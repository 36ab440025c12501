//! Answering requests.
//!
//! A request's arguments and payload come from a process that may be broken or hostile: lengths are checked against the
//! slot, open files against what the connection holds, paths and names by the resolver and the core.

mod attributes;
mod data;
mod directory;
mod names;
mod open;
mod whereabouts;

use crate::fronts::slots::Connection;
use crate::fronts::slots::identity::Identity;
use crate::state::locks::Owner;
use crate::state::open_files::OpenFile;
use crate::state::volume::Volume;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;
use weft_client::proto::{
    IDENTITY_UNKNOWN, INSPECT_SNAPSHOT, INSPECT_ZONES, ITSELF, Op, WireStatfs, is_readable, is_writable,
};
use weft_client::shared::channel::{Request, Response};
use weft_client::{FileRef, LockRange, OUTSIDE};
use weft_core::Ino;
use weft_vfs::path::{Ending, Last, Options, Place, Resolved, resolve};
use weft_vfs::{Cred, FileKind, FsError};

/// Walks of one path before a file that loses its name each time counts as not there.
const WALKS_MAX: u32 = 100;

/// An errno, as a request's failure.
#[derive(Clone, Copy, Debug)]
pub struct Failure(pub i32);

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        if matches!(error, FsError::Checksum(_) | FsError::Device(_)) {
            tracing::error!(%error, "a program gets EIO");
        }
        Failure(error.errno())
    }
}

pub(crate) type Outcome = Result<Response, Failure>;

/// A request being answered.
pub(crate) struct Ask<'a> {
    pub volume: &'a Arc<Volume>,
    pub connection: &'a Connection,
    /// Who asks, as it was when the answer began.
    pub identity: Arc<Identity>,
    pub request: &'a Request,
    payload: *mut u8,
    payload_len: usize,
}

fn done(ret: i64) -> Outcome {
    Ok(Response { ret, ..Response::default() })
}

impl<'a> Ask<'a> {
    pub fn arg(&self, index: usize) -> u64 {
        self.request.args[index]
    }

    fn file_arg(&self, index: usize) -> FileRef {
        FileRef(self.arg(index))
    }

    /// A copy of a payload part; copied because the client can change it at any time.
    fn bytes(&self, from: usize, len: usize) -> Result<Vec<u8>, Failure> {
        if from.checked_add(len).is_none_or(|end| end > self.payload_len) {
            return Err(Failure(libc::EINVAL));
        }
        // SAFETY: within the slot's payload (checked above), which is mapped as long as the connection.
        Ok(unsafe { std::slice::from_raw_parts(self.payload.add(from), len) }.to_vec())
    }

    /// `EROFS` when nothing of the volume can be changed. Linux looks at it before permissions.
    pub fn check_writable(&self) -> Result<(), Failure> {
        if self.volume.fs.is_read_only() { Err(Failure(libc::EROFS)) } else { Ok(()) }
    }

    pub fn part1(&self) -> Result<Vec<u8>, Failure> {
        self.bytes(0, self.request.len1 as usize)
    }

    pub fn part2(&self) -> Result<Vec<u8>, Failure> {
        self.bytes(self.request.len1 as usize, self.request.len2 as usize)
    }

    /// Whether there is a second part.
    pub fn has_part2(&self) -> bool {
        self.request.len2 != 0
    }

    /// The first part in place, for data that the core copies anyway.
    pub fn data(&self) -> Result<&'a [u8], Failure> {
        let len = self.request.len1 as usize;
        if len > self.payload_len {
            return Err(Failure(libc::EINVAL));
        }
        // SAFETY: as in `bytes`; a client that changes the data meanwhile changes what it writes, no more.
        Ok(unsafe { std::slice::from_raw_parts(self.payload, len) })
    }

    /// The payload as the place for an answer of up to `len` bytes.
    pub fn out(&self, len: usize) -> &'a mut [u8] {
        // SAFETY: as in `bytes`; the slot's thread is the only one that answers in it.
        unsafe { std::slice::from_raw_parts_mut(self.payload, len.min(self.payload_len)) }
    }

    pub fn reply_bytes(&self, ret: i64, bytes: &[u8]) -> Outcome {
        if bytes.len() > self.payload_len {
            return Err(Failure(libc::ERANGE));
        }
        self.out(bytes.len()).copy_from_slice(bytes);
        Ok(Response { ret, len: bytes.len() as u64, ..Response::default() })
    }

    /// An open file that the connection holds.
    pub fn open_file(&self, index: usize) -> Result<Arc<OpenFile>, Failure> {
        let file = self.file_arg(index);
        if !self.connection.process.holds(file) {
            return Err(Failure(libc::EBADF));
        }
        self.volume.files.get(file).ok_or(Failure(libc::EBADF))
    }

    /// An open file whose data is meant: not one that was opened with `O_PATH`, which stands for a name only.
    pub fn open_data(&self, index: usize) -> Result<Arc<OpenFile>, Failure> {
        let open = self.open_file(index)?;
        if open_flags(self, &open) & libc::O_PATH != 0 { Err(Failure(libc::EBADF)) } else { Ok(open) }
    }

    /// The directory that a path starts from.
    pub fn base(&self, index: usize) -> Result<Ino, Failure> {
        if self.file_arg(index) == FileRef::ROOT {
            Ok(Ino::ROOT)
        } else {
            Ok(self.open_file(index)?.inode.ino)
        }
    }

    /// Walks a path from the directory in argument `at`.
    pub fn walk(&self, at: usize, path: &[u8], last: Last) -> Result<Resolved, Failure> {
        self.walk_to(at, path, last, false)
    }

    /// The same; with `creates`, to make what is missing at the end.
    pub fn walk_to(&self, at: usize, path: &[u8], last: Last, creates: bool) -> Result<Resolved, Failure> {
        self.walk_as(&self.identity.cred, at, path, last, creates)
    }

    /// The same, by the rights of `who`.
    pub fn walk_as(
        &self,
        who: &Cred,
        at: usize,
        path: &[u8],
        last: Last,
        creates: bool,
    ) -> Result<Resolved, Failure> {
        self.walk_with(who, at, path, Options { creates, ..self.walking(last) })
    }

    /// How a path is walked usually.
    pub fn walking(&self, last: Last) -> Options<'_> {
        let mount_point = &self.connection.process.mount_point;
        Options {
            last,
            creates: false,
            dots_by_text: false,
            protections: self.volume.protections,
            mount_point,
        }
    }

    /// Walks a path as `options` want it.
    pub fn walk_with(
        &self,
        who: &Cred,
        at: usize,
        path: &[u8],
        options: Options<'_>,
    ) -> Result<Resolved, Failure> {
        if path == ITSELF {
            let ino = self.open_file(at)?.inode.ino;
            let place = Place { dir: ino, name: Vec::new(), must_be_dir: false, ending: Ending::Dot };
            return Ok(Resolved::Found(place, self.volume.fs.getattr(ino)?));
        }
        // As in Linux, a path that starts at the root does not need what it could have started from.
        let start = if path.first() == Some(&b'/') { Ino::ROOT } else { self.base(at)? };
        Ok(resolve(self.volume.fs.as_ref(), who, start, path, options)?)
    }
}

/// Answers one request.
pub fn answer(
    volume: &Arc<Volume>,
    connection: &Connection,
    request: &Request,
    payload: *mut u8,
    payload_len: usize,
) -> Response {
    let Some(identity) = connection.identity(request.thread) else {
        return Response { ret: -i64::from(IDENTITY_UNKNOWN), ..Response::default() };
    };
    let ask = Ask { volume, connection, identity, request, payload, payload_len };
    let outcome = match Op::from_u32(request.op) {
        Some(op) => dispatch_to_an_end(&ask, op),
        None => Err(Failure(libc::ENOSYS)),
    };
    outcome.unwrap_or_else(|Failure(errno)| Response { ret: -i64::from(errno), ..Response::default() })
}

/// A file may lose its name, to another file or to none, between the walk of a path and what is done at its end. As in Linux the
/// path is walked again then: the call is one before or after that change.
fn dispatch_to_an_end(ask: &Ask<'_>, op: Op) -> Outcome {
    for _ in 0..WALKS_MAX {
        match dispatch(ask, op) {
            Err(Failure(libc::ESTALE)) if goes_by_path(op) => {}
            outcome => return outcome,
        }
    }
    Err(Failure(libc::ENOENT))
}

/// Whether a request walks a path, and changes nothing before it ends.
fn goes_by_path(op: Op) -> bool {
    use Op::*;
    matches!(
        op,
        Open | Stat
            | SetAttr
            | Access
            | Readlink
            | Resolve
            | GetXattr
            | SetXattr
            | ListXattr
            | RemoveXattr
            | Mkdir
            | Mknod
            | Symlink
            | Link
            | LinkFile
            | Unlink
            | Rename
    )
}

fn dispatch(ask: &Ask<'_>, op: Op) -> Outcome {
    match op {
        Op::Open => open::open(ask),
        Op::Close => close(ask),
        Op::Ref => reference(ask),
        Op::Retain => retain(ask),
        Op::Read => data::read(ask),
        Op::Write => data::write(ask),
        Op::Lease => data::lease(ask),
        Op::Drain => data::drain(ask),
        Op::Fsync => data::fsync(ask),
        Op::Sync => data::sync(ask),
        Op::Fallocate => data::fallocate(ask),
        Op::Seek => data::seek(ask),
        Op::Stat => attributes::stat(ask),
        Op::SetAttr => attributes::set(ask),
        Op::Access => attributes::access(ask),
        Op::GetXattr => attributes::get_xattr(ask),
        Op::SetXattr => attributes::set_xattr(ask),
        Op::ListXattr => attributes::list_xattr(ask),
        Op::RemoveXattr => attributes::remove_xattr(ask),
        Op::Mkdir => names::mkdir(ask),
        Op::Mknod => names::mknod(ask),
        Op::Symlink => names::symlink(ask),
        Op::Unlink => names::unlink(ask),
        Op::Rename => names::rename(ask),
        Op::Link => names::link(ask),
        Op::LinkFile => names::link_file(ask),
        Op::Readlink => names::readlink(ask),
        Op::Resolve => names::resolve_path(ask),
        Op::PathOf => whereabouts::path_of(ask),
        Op::ReadDir => directory::read_dir(ask),
        Op::Statfs => statfs(ask),
        Op::Flock => flock(ask),
        Op::PosixLock => record_lock(ask),
        Op::Note => {
            let line = ask.part1()?;
            let comm = ask.connection.process.name();
            ask.volume.note(&format!("{comm}: {}", String::from_utf8_lossy(&line)));
            done(0)
        }
        Op::SetFlags => open::set_flags(ask),
        Op::GetFlags => {
            let open = ask.open_file(0)?;
            let flags = ask.volume.files.shared(open.file).flags.load(std::sync::atomic::Ordering::Relaxed);
            Ok(Response { values: [u64::from(flags), 0, 0, 0, 0, 0], ..Response::default() })
        }
        Op::SetHint => open::set_hint(ask),
        Op::Inspect => inspect(ask),
        Op::Pass => pass(ask),
        Op::Take => take(ask),
        Op::Withdraw => {
            ask.volume.locks.withdraw(ask.connection.process.id, ask.arg(0));
            done(0)
        }
    }
}

fn close(ask: &Ask<'_>) -> Outcome {
    let file = ask.file_arg(0);
    let open = ask.open_file(0)?;
    if !ask.connection.process.give_up(file) {
        return Err(Failure(libc::EBADF));
    }
    if ask.arg(1) == 0 {
        // Closing any descriptor of a file drops the process's record locks on it (POSIX). After the descriptor: a thread
        // that is given a lock from now on finds the descriptor closed.
        ask.volume.locks.drop_process_locks(open.inode.ino, ask.connection.process.id);
    }
    let last = ask.volume.files.release(file, 1);
    // The reference is given back whatever is said of it.
    match last.and_then(|last| ask.volume.close(&last, ask.arg(1) == 0)) {
        Some(errno) => Err(Failure(errno)),
        None => done(0),
    }
}

fn reference(ask: &Ask<'_>) -> Outcome {
    let file = ask.open_file(0)?.file;
    if !ask.volume.files.reference(file) {
        return Err(Failure(libc::EBADF));
    }
    ask.connection.process.hold(file);
    done(0)
}

fn pass(ask: &Ask<'_>) -> Outcome {
    let file = ask.open_file(0)?.file;
    let secret = crate::state::volume::secret().map_err(|_| Failure(libc::EIO))?;
    let (passed, forgotten) = ask.volume.files.pass(file, secret);
    if let Some(last) = forgotten {
        ask.volume.close(&last, false);
    }
    if !passed {
        return Err(Failure(libc::EBADF));
    }
    Ok(Response { values: [secret, 0, 0, 0, 0, 0], ..Response::default() })
}

fn take(ask: &Ask<'_>) -> Outcome {
    let file = ask.file_arg(0);
    if !ask.volume.files.take(file, ask.arg(1), ask.arg(2) != 0) {
        return Err(Failure(libc::EBADF));
    }
    ask.connection.process.hold(file);
    done(0)
}

/// After exec: what the new program still has is kept, the rest given back.
fn retain(ask: &Ask<'_>) -> Outcome {
    let bytes = ask.part2()?;
    let mut kept: FxHashMap<u64, u32> = FxHashMap::default();
    for raw in bytes.as_chunks::<8>().0 {
        let file = u64::from_le_bytes(*raw);
        if ask.connection.process.holds(FileRef(file)) {
            *kept.entry(file).or_insert(0) += 1;
        }
    }
    let before = ask.connection.process.replace_held(kept.clone());
    for (file, count) in before {
        let still = kept.get(&file).copied().unwrap_or(0);
        for _ in count..still {
            ask.volume.files.reference(FileRef(file));
        }
        if count > still {
            if let Some(open) = ask.volume.files.get(FileRef(file)) {
                // As closing does: exec closed a descriptor of it.
                ask.volume.locks.drop_process_locks(open.inode.ino, ask.connection.process.id);
            }
            if let Some(last) = ask.volume.files.release(FileRef(file), count - still) {
                ask.volume.close(&last, false);
            }
        }
    }
    done(0)
}

fn statfs(ask: &Ask<'_>) -> Outcome {
    let stats = ask.volume.fs.statfs()?;
    let wire = WireStatfs {
        total_bytes: stats.total_bytes,
        free_bytes: stats.free_bytes,
        inodes: stats.inodes,
        free_inodes: stats.free_inodes,
        fsid: ask.volume.id(),
        flags: if ask.volume.fs.is_read_only() { libc::ST_RDONLY } else { 0 },
    };
    ask.reply_bytes(0, bytemuck::bytes_of(&wire))
}

/// Zones told in one answer.
const ZONES_PER_PART: usize = 512;

fn inspect(ask: &Ask<'_>) -> Outcome {
    let mounted = &ask.volume.mounted;
    let (text, next) = match ask.arg(0) {
        INSPECT_SNAPSHOT => (serde_json::to_vec(&mounted.snapshot(ask.volume.program_view())), 0),
        INSPECT_ZONES => {
            let (zones, next) = mounted.zones(ask.arg(1), ZONES_PER_PART);
            (serde_json::to_vec(&zones), next)
        }
        _ => return Err(Failure(libc::EINVAL)),
    };
    ask.reply_bytes(next as i64, &text.map_err(|_| Failure(libc::EIO))?)
}

fn flock(ask: &Ask<'_>) -> Outcome {
    let operation = ask.arg(1) as i32;
    if !matches!(operation & !libc::LOCK_NB, libc::LOCK_SH | libc::LOCK_EX | libc::LOCK_UN) {
        return Err(Failure(libc::EINVAL));
    }
    let open = ask.open_data(0)?;
    let flags = open_flags(ask, &open);
    if operation & !libc::LOCK_NB != libc::LOCK_UN && !is_readable(flags) && !is_writable(flags) {
        return Err(Failure(libc::EBADF));
    }
    let waiter = ask.connection.process.waiter(ask.arg(2));
    let owner = Owner::File(open.file.0);
    let ino = open.inode.ino;
    let set = || ask.volume.locks.set_whole(ino, owner, operation, Some(&waiter));
    while_open(ask, open.file, || among_the_living(ask, set))?;
    done(0)
}

/// Does something with locks of an open file, which stays open over it: what closes it in the meantime leaves it to this call
/// to drop the locks.
fn while_open(
    ask: &Ask<'_>,
    file: FileRef,
    act: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !ask.volume.files.reference(file) {
        return Err(Failure(libc::EBADF));
    }
    let result = act();
    if let Some(last) = ask.volume.files.release(file, 1) {
        ask.volume.close(&last, false);
        return Err(Failure(libc::EBADF));
    }
    result
}

/// Does something with locks in whose way no process is that has ended. The kernel gives back the locks of a process before
/// anybody can see that it has ended; here the news take a moment, for which the caller waits.
fn among_the_living<T>(ask: &Ask<'_>, act: impl Fn() -> Result<T, i32>) -> Result<T, Failure> {
    const TRIES: u32 = 3_000;
    const PAUSE: Duration = Duration::from_millis(1);
    for _ in 0..TRIES {
        match act() {
            Err(libc::EAGAIN | libc::EDEADLK) if ask.volume.processes.any_is_ending() => {
                std::thread::sleep(PAUSE)
            }
            result => return result.map_err(Failure),
        }
    }
    act().map_err(Failure)
}

fn record_lock(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    let command = ask.arg(1) as i32;
    // The process's own word for its number: a forked child's connection was made by its parent.
    let range =
        LockRange { kind: ask.arg(2) as i32, start: ask.arg(3), len: ask.arg(4), pid: ask.arg(5) as u32 };
    if !matches!(range.kind, libc::F_RDLCK | libc::F_WRLCK | libc::F_UNLCK) {
        return Err(Failure(libc::EINVAL));
    }
    let by_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let owner = if by_file { Owner::File(open.file.0) } else { Owner::Process(ask.connection.process.id) };
    let ino = open.inode.ino;
    match command {
        libc::F_GETLK | libc::F_OFD_GETLK => {
            let look = || match ask.volume.locks.in_the_way(ino, owner, &range) {
                Some(_) if ask.volume.processes.any_is_ending() => Err(libc::EAGAIN),
                found => Ok(found),
            };
            let found = among_the_living(ask, look)?;
            let lock = found.unwrap_or(LockRange { kind: libc::F_UNLCK, ..range });
            let values = [lock.kind as u64, lock.start, lock.len, u64::from(lock.pid), 0, 0];
            Ok(Response { values, ..Response::default() })
        }
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            let flags = open_flags(ask, &open);
            let (readable, writable) = (is_readable(flags), is_writable(flags));
            if range.kind == libc::F_WRLCK && !writable || range.kind == libc::F_RDLCK && !readable {
                return Err(Failure(libc::EBADF));
            }
            let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
            let waiter = waits.then(|| ask.connection.process.waiter(ask.arg(6)));
            let set = || ask.volume.locks.set_record(ino, owner, &range, waiter.as_ref());
            if by_file {
                while_open(ask, open.file, || among_the_living(ask, set))?;
                return done(0);
            }
            among_the_living(ask, set)?;
            if !ask.connection.process.holds(open.file) {
                // Another thread has closed the descriptor, and the process's locks were dropped before this one was set.
                let nothing = LockRange { kind: libc::F_UNLCK, ..range };
                ask.volume.locks.set_record(ino, owner, &nothing, None).map_err(Failure)?;
                return Err(Failure(libc::EBADF));
            }
            done(0)
        }
        _ => Err(Failure(libc::EINVAL)),
    }
}

/// The flags that a file was opened with, as they are now.
fn open_flags(ask: &Ask<'_>, open: &OpenFile) -> i32 {
    ask.volume.files.shared(open.file).flags.load(std::sync::atomic::Ordering::Relaxed) as i32
}

fn is_file(kind: FileKind) -> bool {
    kind == FileKind::File
}

/// A path that leaves the volume.
fn outside<T>() -> Result<T, Failure> {
    Err(Failure(OUTSIDE))
}
