//! Requests of the kernel as calls of a session.

mod attributes;
mod files;
mod listing;
mod names;
mod programs;
mod restart;

pub use programs::may_be_answered_later;

use crate::MountChoice;
use crate::abi::{
    self, BatchForgetIn, FallocateIn, FlushIn, ForgetIn, ForgetOne, FsyncIn, InHeader, InitIn, InitOut,
    InterruptIn, InvalInodeOut, LockIn, LseekIn, LseekOut, OpenIn, ReadIn, ReleaseIn, Rename2In, SetAttrIn,
    WriteIn, can, fattr, fopen, notice, op,
};
use crate::attr::{attr_out, entry_out, no_entry_out, statx_out};
use crate::channel::{Answer, Channel, DATA_BYTES_MAX, Errno, Outcome, Request, name};
use crate::entries::{Entries, TooMany, recall};
use crate::handles::Handles;
use crate::locks::Locks;
use crate::nodes::Nodes;
use crate::openers::Openers;
use crate::programs::Programs;
use crate::room::Room;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use weft_client::FileRef;
use weft_core::{BLOCK_BYTES, Capabilities, Capability, Credentials, Ino, refuse};
use weft_server::ops::{At, Base, Caller, Error, Session};
use weft_server::{Process, Volume, Watcher};
use weft_vfs::Attr;
use zerocopy::FromBytes;

/// How long the kernel keeps names and attributes while the mount alone uses the volume.
const KEPT: Duration = Duration::from_secs(3600);
/// Tries to have the kernel forget attributes that it is just about to keep, and the pause between them.
const RECALLS: u32 = 500;
const RECALL_PAUSE: Duration = Duration::from_millis(1);
/// Pauses before names are recalled again whose answers the kernel may not have read before: others wait for the first time.
const AGAIN: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(90),
    Duration::from_millis(900),
    Duration::from_secs(9),
];
/// The kernel keeps no data, and the server orders writes.
const DIRECT: u32 = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
const NO_ROOM: Result<Outcome, Errno> = Err(Errno(libc::ENOSPC));
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;
/// How often everything is made durable where another server may go on.
const SETTLED_EVERY: Duration = Duration::from_secs(5);
/// Bits of a mode by which a program runs as another user or group.
const SET_ID: u32 = 0o6000;
/// Flags of `rename`.
const RENAME_EXCHANGE: u32 = libc::RENAME_EXCHANGE;
/// Bytes of the argument of an `ioctl`, whose number has 14 bits for them.
const IOCTL_BYTES_MAX: u32 = (1 << 14) - 1;
/// A read or a write of more bytes takes long.
const SHORT_BYTES: u32 = 64 << 10;
/// A read that took longer has waited for the device, and the next one may, too.
const QUICK_READ: Duration = Duration::from_micros(100);
/// The kernel has passed on what it kept when it has written nothing for so long, and the longest wait for that.
const QUIET: Duration = Duration::from_millis(200);
const QUIET_MAX: Duration = Duration::from_secs(60);
/// Requests that the kernel may send ahead of programs, and of how many it holds back others.
const BACKGROUND_MAX: u16 = 64;
const CONGESTION: u16 = 48;

/// Requests that change directories.
const NAMES: [u32; 9] =
    [op::MKNOD, op::MKDIR, op::SYMLINK, op::LINK, op::CREATE, op::UNLINK, op::RMDIR, op::RENAME, op::RENAME2];

/// Requests that change inodes. Writes of data have flags of their own.
const INODES: [u32; 4] = [op::SETATTR, op::SETXATTR, op::REMOVEXATTR, op::FALLOCATE];

/// What a mount asks the kernel for.
const WANTED: u64 = can::ASYNC_READ
    | can::EXPORT_SUPPORT
    | can::POSIX_LOCKS
    | can::FLOCK_LOCKS
    | can::DO_READDIRPLUS
    | can::READDIRPLUS_AUTO
    | can::ATOMIC_O_TRUNC
    | can::BIG_WRITES
    // The server takes the umask away, or what a default list says instead.
    | can::DONT_MASK
    | can::POSIX_ACL
    | can::SETXATTR_EXT
    | can::ASYNC_DIO
    | can::PARALLEL_DIROPS
    | can::MAX_PAGES
    | can::HANDLE_KILLPRIV_V2
    | can::HAS_EXPIRE_ONLY
    | can::INIT_EXT
    // Otherwise programs could not share maps of files that the kernel does not keep.
    | can::DIRECT_IO_ALLOW_MMAP;

/// A mounted volume, as the kernel asks for it.
pub struct Front {
    volume: Arc<Volume>,
    process: Arc<Process>,
    nodes: Nodes,
    entries: Arc<Entries>,
    locks: Locks,
    openers: Openers,
    programs: Programs,
    handles: Handles,
    channel: OnceLock<Arc<Channel>>,
    /// Each change of a directory is durable when it returns.
    syncs_names: bool,
    /// So is each change of an inode.
    syncs_inodes: bool,
    /// Reads leave access times as they are.
    keeps_atime: bool,
    /// The kernel can be made to forget the names that it keeps.
    forgets_names: AtomicBool,
    /// The kernel keeps data, and what is written for a while: nobody else uses the volume.
    writes_back: AtomicBool,
    /// Writes of what the kernel has kept, so far.
    kept_writes: AtomicU64,
    /// Of these, those that could not be stored.
    refused_writes: AtomicU64,
    room: Room,
    /// Requests are to come by io_uring, too.
    has_rings: bool,
    /// The last read waited for the device.
    reads_wait: AtomicBool,
    has_stopped: AtomicBool,
    /// Whether the mount has ended, and the news of it.
    ended: Mutex<bool>,
    ends: Condvar,
}

/// All rights, but that of keeping set-id bits where the kernel says that the caller has it not.
fn capabilities(kills_set_id: bool) -> Capabilities {
    if kills_set_id { all_without(Capability::Fsetid) } else { Capabilities::ALL }
}

fn all_without(capability: Capability) -> Capabilities {
    Capabilities::from_bits(Capabilities::ALL.bits() & !(1 << capability as u32))
}

fn caller(uid: u32, gid: u32, capabilities: Capabilities) -> Caller {
    Caller::from(Credentials { uid, gid, groups: Vec::new(), capabilities })
}

impl Watcher for Front {
    fn others_come(&self) {
        let Some(channel) = self.channel.get() else { return };
        if !self.forgets_names.load(SeqCst) {
            return;
        }
        let recent = self.entries.recall(channel);
        let known = self.nodes.all();
        // Inodes of which the kernel gets the answer only now.
        let mut late: Vec<Ino> = known.into_iter().filter(|ino| !forgets(channel, *ino)).collect();
        for _ in 0..RECALLS {
            late.retain(|ino| self.nodes.has(*ino) && !forgets(channel, *ino));
            if late.is_empty() {
                break;
            }
            std::thread::sleep(RECALL_PAUSE);
        }
        if recent.is_empty() {
            return;
        }
        let [first, later @ ..] = AGAIN;
        std::thread::sleep(first);
        recent.iter().for_each(|entry| recall(channel, entry));
        let channel = channel.clone();
        // Without a thread, only those stay known that the kernel has not read in all this time.
        let _ = std::thread::Builder::new().name("weft-mount-again".into()).spawn(move || {
            for pause in later {
                std::thread::sleep(pause);
                recent.iter().for_each(|entry| recall(&channel, entry));
            }
        });
    }

    fn attr_changed(&self, ino: Ino) {
        let Some(channel) = self.channel.get() else { return };
        for _ in 0..RECALLS {
            if !self.nodes.has(ino) || forgets(channel, ino) {
                break;
            }
            std::thread::sleep(RECALL_PAUSE);
        }
    }

    fn keeps(&self, ino: Ino) -> bool {
        self.nodes.keep(ino)
    }
}

/// Has the kernel forget the attributes of an inode; false when it does not know it, or not yet.
fn forgets(channel: &Channel, ino: Ino) -> bool {
    let told = channel.notify(notice::INVAL_INODE, &InvalInodeOut { ino: ino.0, offset: -1, len: 0 });
    let is_known = told.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound);
    if is_known {
        warn_of(told);
    }
    is_known
}

fn warn_of(told: io::Result<()>) {
    match told {
        // A mount that has ended needs no word.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOTCONN)) => {
            tracing::warn!(%error, "the kernel does not forget what it has kept");
        }
        _ => {}
    }
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: Ino,
    name: &'a [u8],
}

/// An inode by its number.
fn inode(ino: Ino) -> At<'static> {
    At { dir: Base::Inode(ino, b""), path: b"" }
}

impl Front {
    /// `None` when the server stops.
    pub fn new(
        volume: Arc<Volume>,
        dir: &Path,
        choice: &MountChoice,
        handles: Handles,
    ) -> Option<Arc<Front>> {
        let mount_point = dir.as_os_str().as_bytes().to_vec();
        let locks = Locks::default();
        let process = volume.begin_process("mount".into(), mount_point, None, locks.kernel.clone())?;
        let front = Arc::new(Front {
            volume,
            process,
            nodes: Nodes::default(),
            entries: Arc::default(),
            locks,
            openers: Openers::default(),
            programs: Programs::default(),
            handles,
            channel: OnceLock::new(),
            syncs_names: choice.sync || choice.dir_sync,
            syncs_inodes: choice.sync,
            keeps_atime: choice.read_only || choice.no_atime,
            forgets_names: AtomicBool::new(false),
            writes_back: AtomicBool::new(choice.write_back),
            kept_writes: AtomicU64::new(0),
            refused_writes: AtomicU64::new(0),
            room: Room::default(),
            has_rings: choice.io_uring,
            reads_wait: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            ended: Mutex::new(false),
            ends: Condvar::new(),
        });
        let watcher: Weak<dyn Watcher> = Arc::<Front>::downgrade(&front);
        front.volume.set_watcher(&front.process, watcher);
        Some(front)
    }

    /// By this channel, the kernel hears of what it has to forget.
    pub fn connect(&self, channel: Arc<Channel>) {
        let _ = self.channel.set(channel);
    }

    /// How long the kernel may keep what it gets in answer to a request: others may change it at any time, unless there have been
    /// none since the request came.
    fn kept(&self, request: &Request<'_>) -> Duration {
        let alone = request.alone.get();
        let may_keep = alone != 0 && alone == self.volume.watcher_alone();
        if may_keep && self.forgets_names.load(Relaxed) { KEPT } else { Duration::ZERO }
    }

    /// The files of the volume have this `st_dev`.
    pub fn set_device(&self, device: u64) {
        self.handles.set_device(device);
        self.volume.set_device(device);
    }

    /// Whether requests come by io_uring, too; none before the kernel was asked.
    pub fn agrees_on_rings(&self) -> Option<bool> {
        self.handles.agreed().map(|agreed| agreed & can::OVER_IO_URING != 0)
    }

    /// The kernel can do this.
    fn agree(&self, agreed: u64) {
        self.forgets_names.store(agreed & can::HAS_EXPIRE_ONLY != 0, SeqCst);
        self.writes_back.store(agreed & can::WRITEBACK_CACHE != 0, SeqCst);
    }

    /// The kernel passes on what it keeps of files on the mount, which is about to go while programs use it.
    pub fn store_kept(&self, dir: &Path) -> io::Result<()> {
        if !self.writes_back.load(Relaxed) {
            return Ok(());
        }
        let root = std::fs::File::open(dir)?;
        rustix::fs::syncfs(&root)?;
        // Of a mount like this, the kernel does not wait for the answers.
        let begun = Instant::now();
        let mut seen = self.kept_writes.load(SeqCst);
        while begun.elapsed() < QUIET_MAX {
            std::thread::sleep(QUIET);
            match self.kept_writes.load(SeqCst) {
                now if now == seen => break,
                now => seen = now,
            }
        }
        Ok(())
    }

    /// Writes of what the kernel had kept that could not be stored: who wrote it may not have asked.
    pub fn refused_writes(&self) -> u64 {
        self.refused_writes.load(SeqCst)
    }

    /// Nothing is answered any more but with an error, and everything is given up that the mount holds.
    pub fn stop(&self) {
        *self.ended.lock() = true;
        self.ends.notify_all();
        if !self.has_stopped.swap(true, Relaxed) {
            self.locks.end();
            self.programs.stop();
            self.volume.end_process(&self.process, None);
            self.nodes.forget_all().into_iter().for_each(|ino| self.volume.release_kept(ino));
        }
    }

    /// Gives locks to those who wait for them, until the mount ends.
    pub fn serve_locks(&self, channel: &Channel) {
        let caller = caller(0, 0, Capabilities::ALL);
        self.locks.serve(&Session::new(&self.volume, &self.process, &caller), &self.handles, channel);
    }

    /// The same of a name.
    fn kept_name(&self, request: &Request<'_>, place: Place<'_>) -> Duration {
        // Remembered first: others who come from now on find it.
        if request.alone.get() == 0 {
            return Duration::ZERO;
        }
        match self.entries.add(place.dir, place.name) {
            Ok(()) => self.kept(request),
            Err(too_many) => {
                if too_many == TooMany::MakeRoom {
                    self.make_room_for_names();
                }
                Duration::ZERO
            }
        }
    }

    /// Has the kernel give up some names, in a thread of its own.
    fn make_room_for_names(&self) {
        let (Some(channel), entries) = (self.channel.get().cloned(), self.entries.clone()) else { return };
        let thread = std::thread::Builder::new().name("weft-mount-names".into());
        if thread.spawn(move || entries.make_room(&channel)).is_err() {
            self.entries.stay();
        }
    }

    /// What the sender of a request asks for. The kernel has checked that it may.
    fn ask<T>(
        &self,
        request: &Request<'_>,
        act: impl FnOnce(&Session<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        self.ask_with(request, Capabilities::ALL, act)
    }

    fn ask_with<T>(
        &self,
        request: &Request<'_>,
        capabilities: Capabilities,
        act: impl FnOnce(&Session<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        self.with_session(request, capabilities, act).map_err(Errno::from)
    }

    fn with_session<T>(
        &self,
        request: &Request<'_>,
        capabilities: Capabilities,
        act: impl FnOnce(&Session<'_>) -> T,
    ) -> T {
        let caller = caller(request.head.uid, request.head.gid, capabilities);
        act(&Session::new(&self.volume, &self.process, &caller))
    }

    /// The same for a name in a directory.
    fn at_name<T>(
        &self,
        request: &Request<'_>,
        place: Place<'_>,
        act: impl FnOnce(&Session<'_>, At<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        self.at_name_with(request, Capabilities::ALL, place, act)
    }

    fn at_name_with<T>(
        &self,
        request: &Request<'_>,
        capabilities: Capabilities,
        place: Place<'_>,
        act: impl FnOnce(&Session<'_>, At<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let path = self.nodes.path(place.dir);
        let at = At { dir: Base::Inode(place.dir, &path), path: place.name };
        self.ask_with(request, capabilities, |session| act(session, at))
    }

    /// The same for names that go. The kernel has checked the inodes that it knew by them, and others may have these names by now: whoever
    /// may not pass sticky directories does not pass them here, either.
    fn at_name_that_goes<T>(
        &self,
        request: &Request<'_>,
        place: Place<'_>,
        act: impl Fn(&Session<'_>, At<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        if request.head.uid == 0 {
            return self.at_name(request, place, act);
        }
        match self.at_name_with(request, all_without(Capability::Fowner), place, &act) {
            Err(Errno(libc::EPERM)) if has_capability(request.head.pid, Capability::Fowner) => {
                self.at_name(request, place, act)
            }
            done => done,
        }
    }

    /// Answers with what `act` finds or makes at a name; the kernel will know the inode by it. It may be gone by then.
    fn entry(
        &self,
        request: &Request<'_>,
        place: Place<'_>,
        answer: &mut Answer<'_>,
        act: impl FnOnce(&Session<'_>, At<'_>) -> Result<Attr, Error>,
    ) -> Result<(), Errno> {
        let attr = self.at_name(request, place, act);
        if attr == Err(Errno(libc::ENOENT)) && request.head.opcode == op::LOOKUP {
            let kept = self.kept_name(request, place);
            if !kept.is_zero() {
                answer.put(&no_entry_out(kept));
                return Ok(());
            }
        }
        self.meet(request, attr?, place, answer)
    }

    fn meet(
        &self,
        request: &Request<'_>,
        mut attr: Attr,
        place: Place<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let is_new = self.nodes.meet(attr.ino, place.dir, place.name);
        let kept = self.kept_name(request, place);
        if is_new && !kept.is_zero() {
            // From now on the kernel is told of changes; there may have been one before.
            let ino = attr.ino;
            let now = self.ask(request, |session| session.stat(inode(ino), libc::AT_EMPTY_PATH));
            attr = now.inspect_err(|_| self.forget(ino, 1))?;
        }
        answer.put(&entry_out(&attr, kept));
        Ok(())
    }

    /// Whether requests of this kind are durable when they are answered.
    fn syncs(&self, opcode: u32) -> bool {
        self.syncs_names && NAMES.contains(&opcode) || self.syncs_inodes && INODES.contains(&opcode)
    }

    /// Whether a request does not wait for the kernel, which may wait for other answers, and as a rule not for a device.
    pub fn is_short(&self, request: &Request<'_>) -> bool {
        if self.syncs(request.head.opcode) {
            return false;
        }
        match request.head.opcode {
            // What the kernel keeps, it asks for when it has to come from the device. Otherwise the last read tells.
            op::READ => {
                let is_little = |(read, _): (ReadIn, _)| read.size <= SHORT_BYTES;
                !self.writes_back.load(Relaxed)
                    && !self.reads_wait.load(Relaxed)
                    && request.argument().is_ok_and(is_little)
            }
            op::WRITE => {
                // Who keeps set-id bits is told when a write has cleared them.
                let is_plain = |(write, _): (WriteIn, _)| {
                    write.size <= SHORT_BYTES
                        && write.write_flags & abi::WRITE_KILL_SUIDGID == 0
                        && write.flags as i32 & (libc::O_SYNC | libc::O_DSYNC) == 0
                };
                // Programs of the library may be in the middle of a write to the same file.
                self.volume.watcher_alone() != 0 && request.argument().is_ok_and(is_plain)
            }
            op::OPEN | op::CREATE | op::TMPFILE => {
                let flags = request.argument::<OpenIn>().map_or(0, |(open, _)| open.flags as i32);
                flags & libc::O_TRUNC == 0
            }
            op::SETATTR => {
                let waits = fattr::SIZE | fattr::MODE;
                request.argument().is_ok_and(|(set, _): (SetAttrIn, _)| set.valid & waits == 0)
            }
            // Clients lose the memory by which they write to a file that is changed so.
            op::IOCTL | op::SETXATTR => false,
            op::FSYNC
            | op::FSYNCDIR
            | op::FALLOCATE
            | op::LSEEK
            | op::SETLK
            | op::SETLKW
            | op::INIT
            | op::DESTROY => false,
            _ => true,
        }
    }

    /// Whoever waits for the answer to a request of this number is to have it now.
    pub fn interrupt(&self, head: &InHeader, unique: u64, channel: &Channel) {
        if self.programs.withdraw(unique) {
            warn_of(channel.refuse(unique, Errno(libc::EINTR)));
            return;
        }
        let caller = caller(head.uid, head.gid, Capabilities::ALL);
        self.locks.interrupt(&Session::new(&self.volume, &self.process, &caller), unique, channel);
    }

    /// Answers a request. `may_wait` is asked before it waits for what others ask for: that the kernel gives up what was removed.
    pub fn handle(
        &self,
        request: &Request<'_>,
        answer: &mut Answer<'_>,
        channel: &Channel,
        may_wait: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, Errno> {
        // Done twice, an exchange is undone, and a whiteout replaces what was moved.
        let once = request.head.opcode == op::RENAME2
            && request.argument().is_ok_and(|(rename, _): (Rename2In, _)| {
                rename.flags & (RENAME_EXCHANGE | libc::RENAME_WHITEOUT) != 0
            });
        refuse(once && is_resent(request), Errno(libc::EIO))?;
        let empty = answer.len();
        let mut outcome = self.answer(request, answer, channel, may_wait);
        if outcome == NO_ROOM && self.has_done_nothing(request) {
            self.room.wait(may_wait, || {
                answer.cut(empty);
                match self.answer(request, answer, channel, &mut || false) {
                    // The mount has ended.
                    Err(Errno(libc::ENOTCONN)) => return true,
                    again => outcome = again,
                }
                outcome != NO_ROOM
            });
        }
        if let Err(Errno(errno)) = outcome
            && errno != libc::ENOTCONN
            && self.is_kept_write(request)
        {
            self.lose_write(request, errno);
        }
        match outcome {
            // The kernel has kept an inode that went with the last server: it looks the name up again.
            Err(Errno(libc::ENOENT)) if names_inode(request) => Err(Errno(libc::ESTALE)),
            // Perhaps because the server that has ended had done it.
            Err(Errno(libc::EEXIST | libc::ENOENT | libc::ENOTEMPTY | libc::ENODATA))
                if is_resent(request) && changes_names(request) =>
            {
                Err(Errno(libc::EIO))
            }
            outcome => outcome,
        }
    }

    /// Whether a request that found no room has changed nothing, and no error is known of it: it may be tried again. What is made durable
    /// as well may have been done before.
    fn has_done_nothing(&self, request: &Request<'_>) -> bool {
        let opcode = request.head.opcode;
        let is_plain = match opcode {
            op::WRITE => request.argument().is_ok_and(|(write, _): (WriteIn, _)| {
                let is_kept = write.write_flags & abi::WRITE_CACHE != 0;
                let is_sync = write.flags as i32 & (libc::O_SYNC | libc::O_DSYNC) != 0;
                // Of what was stored to a map, the error is kept for an fsync.
                !is_sync && (!is_kept || self.writes_back.load(Relaxed))
            }),
            op::FALLOCATE => !self.syncs_inodes,
            op::CREATE | op::TMPFILE | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK => !self.syncs_names,
            _ => false,
        };
        let is_sync = |attr: Attr| attr.marks.flags.sync_names();
        is_plain
            && self
                .ask(request, |session| session.stat(inode(Ino(request.head.node)), libc::AT_EMPTY_PATH))
                .is_ok_and(|attr| !is_sync(attr))
    }

    /// Whether a program wrote before what is written now, to a file that is not lost altogether.
    fn is_kept_write(&self, request: &Request<'_>) -> bool {
        request.head.opcode == op::WRITE
            && request.argument().is_ok_and(|(write, _): (WriteIn, _)| {
                write.write_flags & abi::WRITE_CACHE != 0 && self.handles.file(write.handle).is_ok()
            })
    }

    /// The kernel had kept what cannot be stored: whoever wrote it may not ask.
    fn lose_write(&self, request: &Request<'_>, errno: i32) {
        let first = self.refused_writes.fetch_add(1, SeqCst) == 0;
        if first || errno != libc::ENOSPC {
            let ino = request.head.node;
            tracing::error!(ino, errno, "what a program has written cannot be stored, and is lost");
        }
    }

    fn answer(
        &self,
        request: &Request<'_>,
        answer: &mut Answer<'_>,
        channel: &Channel,
        may_wait: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, Errno> {
        let head = &request.head;
        let ino = Ino(head.node);
        request.alone.set(self.volume.watcher_alone());
        if self.has_stopped.load(Relaxed) {
            return match head.opcode {
                op::FORGET | op::BATCH_FORGET | op::INTERRUPT => Ok(Outcome::Unanswered),
                _ => Err(Errno(libc::ENOTCONN)),
            };
        }
        match head.opcode {
            op::FORGET => {
                let (forget, _) = request.argument::<ForgetIn>()?;
                self.forget(ino, forget.lookups);
                return Ok(Outcome::Unanswered);
            }
            op::BATCH_FORGET => {
                self.forget_all(request)?;
                return Ok(Outcome::Unanswered);
            }
            op::INTERRUPT => {
                let (interrupt, _) = request.argument::<InterruptIn>()?;
                self.interrupt(head, interrupt.unique, channel);
                return Ok(Outcome::Unanswered);
            }
            op::SETLK | op::SETLKW => {
                let (lock, _) = request.argument::<LockIn>()?;
                let waits = head.opcode == op::SETLKW;
                return self.with_session(request, Capabilities::ALL, |session| {
                    self.locks.set(session, &self.handles, head.unique, &lock, waits)
                });
            }
            op::INIT => {
                let wanted = match self.writes_back.load(Relaxed) {
                    // No program but the kernel's has locks to exclude: it does so itself, and shows them (/proc/locks).
                    true => WANTED & !(can::POSIX_LOCKS | can::FLOCK_LOCKS) | can::WRITEBACK_CACHE,
                    false => WANTED,
                };
                let wanted = wanted | if self.has_rings { can::OVER_IO_URING } else { 0 };
                let agreed = init(request, wanted, answer)?;
                self.agree(agreed);
                self.handles.set_agreed(agreed);
            }
            // The kernel asks for nothing more.
            op::DESTROY => {}
            op::LOOKUP | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK => self.make(request, answer)?,
            op::UNLINK | op::RMDIR => {
                let (name, _) = name(request.body())?;
                let flags = if head.opcode == op::RMDIR { libc::AT_REMOVEDIR } else { 0 };
                let place = Place { dir: ino, name };
                self.at_name_that_goes(request, place, |session, at| session.unlink(at, flags))?;
                self.room.note_removed();
                self.handles.note_changed(ino);
                self.entries.remove(ino, name);
            }
            op::RENAME | op::RENAME2 => self.rename(request)?,
            op::GETATTR | op::STATX => {
                let attr = self.ask(request, |session| session.stat(inode(ino), libc::AT_EMPTY_PATH))?;
                match head.opcode {
                    op::STATX => answer.put(&statx_out(&attr, self.kept(request))),
                    _ => answer.put(&attr_out(&attr, self.kept(request))),
                }
            }
            op::SETATTR => self.set_attr(request, answer)?,
            op::READLINK => {
                let target = self.ask(request, |session| session.readlink(inode(ino)))?;
                answer.put_bytes(&target);
            }
            op::OPEN | op::OPENDIR => self.open(request, answer)?,
            op::CREATE | op::TMPFILE => self.create(request, answer)?,
            op::READ => self.read(request, answer)?,
            op::WRITE => self.write(request, answer)?,
            op::READDIR | op::READDIRPLUS => self.read_dir(request, answer)?,
            op::FLUSH => {
                let (flush, _) = request.argument::<FlushIn>()?;
                self.with_session(request, Capabilities::ALL, |session| {
                    self.locks.closed(session, &self.handles, flush.handle, flush.lock_owner)
                })?;
                refuse(self.handles.tells_close(flush.handle), Errno(libc::EIO))?;
            }
            op::RELEASE | op::RELEASEDIR => {
                let (release, _) = request.argument::<ReleaseIn>()?;
                let file = self.handles.remove(release.handle)?;
                // Not before: nothing is added any more.
                self.programs.release(release.handle);
                if let Some(file) = file {
                    self.ask(request, |session| {
                        self.locks.released(session, file);
                        session.close(file, false)
                    })?;
                }
            }
            op::FSYNC | op::FSYNCDIR => {
                let (fsync, _) = request.argument::<FsyncIn>()?;
                let file = self.handles.file(fsync.handle)?;
                let act = || self.ask(request, |session| session.fsync(file));
                self.handles.settled(fsync.handle, head.pid, is_resent(request), act)?;
            }
            op::IOCTL => return self.ioctl(request, answer),
            op::STATFS => self.statfs(request, answer)?,
            op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR => self.xattr(request, answer)?,
            op::FALLOCATE => {
                let (range, _) = request.argument::<FallocateIn>()?;
                let (file, mode) = (self.handles.file(range.handle)?, range.mode as i32);
                // The kernel does not say who may keep set-id bits.
                let kills = head.uid != 0;
                let had_set_id = kills && self.keeps_set_id(request);
                let end = match mode & !libc::FALLOC_FL_KEEP_SIZE {
                    // No byte changes.
                    0 => range.offset,
                    // Those that the kernel passes on move nothing.
                    _ => range.offset.saturating_add(range.len),
                };
                let done = self.ask_with(request, capabilities(kills), |session| {
                    session.fallocate(file, mode, range.offset, range.len)?;
                    self.show(request, session, file, range.offset..end)
                });
                // An error may come after a first change.
                self.handles.note_written(range.handle);
                done?;
                if had_set_id {
                    self.attr_changed(ino);
                }
            }
            // The kernel does not write what it keeps before it asks for holes; without an answer, it sees none.
            op::LSEEK if self.writes_back.load(Relaxed) => return Err(Errno(libc::ENOSYS)),
            op::LSEEK => {
                let (seek, _) = request.argument::<LseekIn>()?;
                let file = self.handles.file(seek.handle)?;
                let (offset, whence) = (seek.offset as i64, seek.whence as i32);
                // The kernel passes on what programs have stored to maps, if others can take it meanwhile; else nothing is told of holes.
                let knows = may_wait() && self.stores_maps(ino);
                let offset = self.ask(request, |session| match knows {
                    true => session.seek(file, offset, whence, true),
                    false => {
                        let size = session.stat(inode(ino), libc::AT_EMPTY_PATH)?.size;
                        let offset = u64::try_from(offset).ok().filter(|offset| *offset < size);
                        let offset = offset.ok_or(Error::Errno(libc::ENXIO))?;
                        Ok(if whence == libc::SEEK_HOLE { size } else { offset })
                    }
                })?;
                answer.put(&LseekOut { offset });
            }
            op::GETLK => {
                let (lock, _) = request.argument::<LockIn>()?;
                let file = self.handles.file(lock.handle)?;
                let found = self.with_session(request, Capabilities::ALL, |session| {
                    self.locks.get(session, file, (&lock, head.pid))
                });
                answer.put(&found?);
            }
            // The kernel does by itself, or refuses, what it is not answered.
            _ => return Err(Errno(libc::ENOSYS)),
        }
        if self.syncs(head.opcode) {
            self.ask(request, |session| session.sync(None))?;
        }
        Ok(Outcome::Answered)
    }

    /// The kernel's number for a file that has been opened.
    fn add_handle(&self, request: &Request<'_>, file: FileRef, ino: Ino, flags: i32) -> Result<u64, Errno> {
        let once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW;
        let unnamed = if flags & libc::O_TMPFILE == libc::O_TMPFILE { libc::O_TMPFILE } else { 0 };
        let handle = self.handles.add(file, ino, flags & !once & !unnamed);
        if handle.is_err() {
            self.ask(request, |session| session.close(file, false))?;
        }
        handle
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        if self.nodes.forget(ino, lookups) {
            self.volume.release_kept(ino);
        }
    }

    fn forget_all(&self, request: &Request<'_>) -> Result<(), Errno> {
        let (batch, mut rest) = request.argument::<BatchForgetIn>()?;
        for _ in 0..batch.count {
            let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) else { break };
            self.forget(Ino(one.node), one.lookups);
            rest = behind;
        }
        Ok(())
    }
}

/// Whether the kernel gives a request once more, which a server had read that has ended.
fn is_resent(request: &Request<'_>) -> bool {
    request.head.unique & abi::UNIQUE_RESEND != 0
}

/// Whether a process has a capability, in the user namespace of this one.
fn has_capability(pid: u32, capability: Capability) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let process = pid.to_string();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits & (1 << capability as u32) != 0
        && namespace("self").is_some_and(|own| namespace(&process) == Some(own))
}

/// Whether a request is about an inode alone, by its number.
fn names_inode(request: &Request<'_>) -> bool {
    let opcode = request.head.opcode;
    matches!(opcode, op::OPEN | op::OPENDIR | op::GETATTR | op::STATX | op::SETATTR | op::READLINK)
}

/// Whether a request does something else when it is done twice.
fn changes_names(request: &Request<'_>) -> bool {
    NAMES.contains(&request.head.opcode) || matches!(request.head.opcode, op::SETXATTR | op::REMOVEXATTR)
}

/// Agrees on a version and on what both sides can do; the latter.
fn init(request: &Request<'_>, wanted: u64, answer: &mut Answer<'_>) -> Result<u64, Errno> {
    let (init, rest) = request.argument::<InitIn>()?;
    let more = rest.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let offered = u64::from(init.flags) | u64::from(more) << 32;
    if init.major < abi::MAJOR || init.major == abi::MAJOR && init.minor < abi::MINOR_MIN {
        let (major, minor) = (init.major, init.minor);
        tracing::error!(major, minor, "the kernel is older than Linux 5.13: it cannot mount a volume");
        return Err(Errno(libc::EPROTO));
    }
    let knows_epochs = if init.minor >= abi::MINOR_INC_EPOCH { can::INC_EPOCH } else { 0 };
    let agreed = offered & (wanted | can::HAS_RESEND);
    let missing = wanted & !agreed;
    if missing != 0 {
        tracing::warn!(missing, "the kernel does not know what a mount wants");
    }
    answer.put(&InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: init.max_readahead,
        flags: agreed as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: CONGESTION,
        max_write: DATA_BYTES_MAX as u32,
        time_gran: 1,
        max_pages: (DATA_BYTES_MAX / BLOCK_BYTES) as u16,
        flags2: (agreed >> 32) as u32,
        ..InitOut::default()
    });
    Ok(agreed | knows_epochs)
}
