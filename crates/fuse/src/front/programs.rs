//! Programs of several operations by an `ioctl`: what is asked, by whose rights, and what the kernel has to forget afterwards.

use super::{Front, is_resent, warn_of};
use crate::abi::{InHeader, InvalEntryOut, InvalInodeOut, IoctlIn, IoctlOut, notice, op};
use crate::channel::{Answer, Channel, Errno, Outcome, Request};
use crate::programs::Job;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::*;
use weft_core::{Ino, refuse};
use weft_server::ops::{Base, Beginning, Changed, Keeper, Session};
use weft_server::{Watcher, acts_for_watcher, caller_of_thread};
use weft_sys::clock::monotonic_ns;
use weft_vfs::compound::ioctl::{Command, HEAD_BYTES, Head, VERSION};
use weft_vfs::compound::{DecodeError, Program, check};
use zerocopy::{FromBytes, IntoBytes};

/// Whether the answer to a request may come from another thread later: that it has a lock, or that a program has run.
pub fn may_be_answered_later(opcode: u32, argument: &[u8]) -> bool {
    opcode == op::SETLKW
        || opcode == op::IOCTL
            && IoctlIn::read_from_prefix(argument)
                .is_ok_and(|(ask, _)| Command::of(ask.command) == Some(Command::Run))
}

impl Front {
    /// Takes a command about a program. The answer of a program that is to be run comes later.
    pub(super) fn program(
        &self,
        request: &Request<'_>,
        command: Command,
        ask: &IoctlIn,
        argument: &[u8],
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Errno> {
        // The server that has ended may have run it, and had its pieces.
        refuse(is_resent(request), Errno(libc::EIO))?;
        // The kernel may have newer data than the server, and learns of no change while it does.
        refuse(self.writes_back.load(Relaxed), Errno(libc::EOPNOTSUPP))?;
        let (head, data) = Head::parse(argument).ok_or(Errno(libc::EINVAL))?;
        refuse(head.version != VERSION, Errno(libc::EPROTONOSUPPORT))?;
        refuse(head.flags != 0, Errno(libc::EINVAL))?;
        let (handle, uid, offset) = (ask.handle, request.head.uid, head.offset as usize);
        self.handles.file(handle)?;
        refuse(!self.handles.is_open(handle), Errno(libc::EBADF))?;
        let room = || (ask.out_size as usize).checked_sub(HEAD_BYTES).ok_or(Errno(libc::EINVAL));
        match command {
            Command::Put => {
                self.programs.put(handle, uid, offset, data, || self.handles.is_open(handle))?;
                answer.put(&IoctlOut::default());
                Ok(Outcome::Answered)
            }
            Command::Get => {
                let (head, piece) = self.programs.get(handle, uid, head.answer, offset, room()?)?;
                answer.put_bytes(&told(&head, &piece));
                Ok(Outcome::Answered)
            }
            Command::Run => {
                let job = self.job(request, handle, head.descriptor, data, room()?)?;
                self.programs.submit(job, offset)?;
                Ok(Outcome::Pending)
            }
        }
    }

    /// A program with what has to be known of the thread that asks for it, as long as it waits: its number may be another's later.
    fn job(
        &self,
        request: &Request<'_>,
        handle: u64,
        descriptor: i32,
        program: &[u8],
        room: usize,
    ) -> Result<Job, Errno> {
        let &InHeader { unique, node, uid, gid, pid, .. } = &request.head;
        // Of a process namespace that the server does not see.
        refuse(pid == 0, Errno(libc::ESRCH))?;
        let (caller, umask) = caller_of_thread(pid, uid, gid).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Errno(libc::ESRCH),
            _ => Errno(libc::EPERM),
        })?;
        let place = format!("/proc/{pid}/fd/{descriptor}");
        let descriptor = rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let program = program.to_vec();
        Ok(Job { unique, handle, ino: Ino(node), caller, umask, thread: pid, descriptor, program, room })
    }

    /// Runs programs, one after the other, until the mount ends.
    pub fn serve_programs(&self, channel: &Channel) {
        acts_for_watcher();
        while let Some(job) = self.programs.next() {
            let answered = self.run(&job, channel);
            let unique = job.unique;
            self.programs.settle(job);
            if let Err(error) = channel.answer_later(unique, answered) {
                tracing::warn!(%error, "the kernel does not take the answer to a program");
            }
        }
    }

    /// Runs a program; what to answer.
    fn run(&self, job: &Job, channel: &Channel) -> Result<Vec<u8>, Errno> {
        let program = Program::decode(&job.program).map_err(|error| match error {
            DecodeError::Version(_) => Errno(libc::EPROTONOSUPPORT),
            _ => Errno(libc::EINVAL),
        })?;
        let program = check(program).map_err(|_| Errno(libc::EINVAL))?;
        if program.ops.iter().any(|op| op.kind.is_change()) {
            self.check_writable(job.ino, job.descriptor.as_ref())?;
        }
        let file = self.handles.file(job.handle)?;
        let path = self.nodes.path(job.ino);
        let keeper = Kernel {
            front: self,
            channel,
            asked: Mutex::default(),
            forgotten: Mutex::default(),
            noted: Mutex::default(),
        };
        let beginning = Beginning {
            dir: Base::Inode(job.ino, &path),
            umask: job.umask,
            opener: self.openers.of(job.thread),
            given: vec![file],
            inputs: Vec::new(),
            stays: true,
            keeper: Some(&keeper),
        };
        self.programs.begin(job)?;
        let session = Session::new(&self.volume, &self.process, &job.caller);
        let answer = session.run_program(beginning, &program);
        if program.durable && answer.as_ref().is_ok_and(|answer| answer.failed().is_none()) {
            let Noted { inodes, before } = std::mem::take(&mut *keeper.noted.lock());
            inodes.into_iter().for_each(|ino| self.handles.note_settled(ino, before));
        }
        let answer = answer.map(|answer| answer.encode());
        let outcome = answer.as_ref().map(drop).map_err(|error| Errno::from(*error));
        let (head, first) =
            self.programs.end(job, answer.unwrap_or_default(), || self.handles.is_open(job.handle));
        outcome.map(|()| told(&head, &first))
    }

    /// Whether the caller may change what it sees by this descriptor. The kernel does not say by which mount a request comes, and one of
    /// several may be read-only.
    fn check_writable(&self, ino: Ino, descriptor: Option<&OwnedFd>) -> Result<(), Errno> {
        let descriptor = descriptor.ok_or(Errno(libc::EBADF))?.as_fd();
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(descriptor, "", flags, StatxFlags::INO);
        let found = found.map_err(|error| Errno(error.raw_os_error()))?;
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let is_it = (device, found.stx_ino) == (self.handles.device(), ino.0);
        refuse(!is_it, Errno(libc::EBADF))?;
        let mount = rustix::fs::fstatvfs(descriptor).map_err(|error| Errno(error.raw_os_error()))?;
        refuse(mount.f_flag.contains(StatVfsMountFlags::RDONLY), Errno(libc::EROFS))
    }
}

/// An answer with data.
fn told(head: &Head, data: &[u8]) -> Vec<u8> {
    [IoctlOut::default().as_bytes(), &head.to_bytes(), data].concat()
}

/// The kernel, of a program that came through it.
struct Kernel<'a> {
    front: &'a Front,
    channel: &'a Channel,
    /// Inodes whose stores it has passed on since the program began.
    asked: Mutex<FxHashSet<Ino>>,
    forgotten: Mutex<Forgotten>,
    noted: Mutex<Noted>,
}

/// What the kernel keeps nothing of until the program has ended.
#[derive(Default)]
struct Forgotten {
    names: FxHashSet<(Ino, Vec<u8>)>,
    inodes: FxHashSet<Ino>,
    is_held: bool,
}

/// Inodes that a program has changed, and a time since when it has changed no more.
#[derive(Default)]
struct Noted {
    inodes: FxHashSet<Ino>,
    before: u64,
}

impl Kernel<'_> {
    /// It writes what it has of the content of an inode, and forgets it.
    fn forget_content(&self, ino: Ino) {
        let whole = InvalInodeOut { ino: ino.0, offset: 0, len: 0 };
        let told = self.channel.notify(notice::INVAL_INODE, &whole);
        if told.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound) {
            warn_of(told);
        }
    }

    /// It drops a name. One that it only looked up again could be found as it was before, by a look-up that is under way.
    fn drop_name(&self, dir: Ino, name: &[u8]) {
        let head = InvalEntryOut { parent: dir.0, name_len: name.len() as u32, flags: 0 };
        let told = self.channel.notify_with(notice::INVAL_ENTRY, &head, &[name, &[0]].concat());
        let is_gone = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENOTDIR)
        };
        if !told.as_ref().is_err_and(is_gone) {
            warn_of(told);
        }
    }
}

impl Drop for Kernel<'_> {
    fn drop(&mut self) {
        if self.forgotten.get_mut().is_held {
            self.front.volume.release_watcher();
        }
    }
}

impl Keeper for Kernel<'_> {
    fn has_forgotten(&self, changed: &Changed) -> bool {
        let forgotten = self.forgotten.lock();
        forgotten.is_held
            && changed.names.iter().all(|name| forgotten.names.contains(name))
            && changed.inodes.iter().chain(&changed.content).all(|ino| forgotten.inodes.contains(ino))
    }

    fn forget(&self, changed: Changed) {
        let Front { nodes, entries, volume, .. } = self.front;
        let mut forgotten = self.forgotten.lock();
        if !std::mem::replace(&mut forgotten.is_held, true) {
            // What is looked up from now on, or was and is not answered yet, the kernel may not keep.
            volume.hold_watcher();
        }
        for (dir, name) in changed.names.iter().filter(|(dir, _)| nodes.has(*dir)) {
            entries.remove(*dir, name);
            self.drop_name(*dir, name);
        }
        for ino in changed.inodes.iter().chain(&changed.content) {
            self.front.attr_changed(*ino);
        }
        forgotten.names.extend(changed.names);
        forgotten.inodes.extend(changed.inodes.into_iter().chain(changed.content));
    }

    fn may_have_stores(&self, ino: Ino) -> bool {
        self.front.handles.may_have_stores(ino) && !self.asked.lock().contains(&ino)
    }

    fn pass_on(&self, ino: Ino) {
        self.asked.lock().insert(ino);
        self.forget_content(ino);
    }

    fn changed(&self, changed: Changed) {
        let Front { handles, nodes, entries, room, .. } = self.front;
        for (ino, dir, name) in &changed.moved {
            nodes.rename(*ino, *dir, name);
        }
        changed.inodes.iter().for_each(|ino| handles.note_changed(*ino));
        changed.content.iter().for_each(|ino| handles.note_content_changed(*ino));
        for (dir, name) in changed.names.iter().filter(|(dir, _)| nodes.has(*dir)) {
            entries.remove(*dir, name);
            // Even if it is looked up again anyway: until then, the kernel would keep an inode that has gone, and its space.
            self.drop_name(*dir, name);
        }
        for ino in changed.inodes.iter().chain(&changed.content) {
            self.front.attr_changed(*ino);
        }
        for ino in changed.content.iter().filter(|ino| nodes.has(**ino)) {
            self.forget_content(*ino);
        }
        if changed.removes {
            room.note_removed();
        }
        let mut noted = self.noted.lock();
        noted.inodes.extend(changed.inodes);
        noted.inodes.extend(changed.content);
        // Before the server makes it durable, if it does.
        noted.before = monotonic_ns();
    }

    fn notes_reads(&self) -> bool {
        !self.front.keeps_atime
    }
}
