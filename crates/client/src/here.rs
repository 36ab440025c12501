//! Programs that change nothing, run by the client itself: what they look up, and what they read, it finds in shared memory.
//!
//! Nobody is kept out meanwhile. So the client notes what it has seen of each name and file, and takes the answer only if all that is
//! still so when the program has ended: then everything was so at one time. Otherwise, and when something is not to be found here, the
//! server runs the program.

use crate::client::{Client, Leases};
use crate::lease::LeaseRead;
use crate::proto::{FileRef, WireAttr, access_of};
use crate::shared::names::{Seen, SlotWord};
use crate::shared::volume::Inode;
use crate::sys;
use std::sync::Mutex;
use std::sync::atomic::{Ordering::*, fence};
use weft_core::{Credentials, Ino};
use weft_vfs::change::{Made, Refused};
use weft_vfs::compound::{Access, Answer, Checked, Host, Input, Kind, Near, Op, Stale, run};
use weft_vfs::{Attr, Change, FileKind, FileSystem, FsError, FsResult, Marks, TimeSpec, access};

/// Tries before the server is asked.
const TRIES: u32 = 2;

/// What is seen of a file: it changes with each write, whoever makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub ino: u64,
    step: u32,
    seq: u32,
    by_call: u32,
    /// Bytes of the ring lie behind it: the server moves it before it changes them.
    pub head: u64,
    pub ring: u32,
    pub size: u64,
    pub area: Option<u32>,
}

#[derive(Default)]
struct State<'a> {
    /// Slots of open files, as they were met.
    files: Vec<(u32, Stamp)>,
    names: Vec<Seen<'a>>,
    /// The server has to be asked.
    asks: bool,
}

/// A program's view of the volume, and its host.
struct Here<'a> {
    client: &'a Client,
    leases: &'a Leases,
    caller: Credentials,
    start: Ino,
    given: &'a [FileRef],
    inputs: &'a [Input<'a>],
    state: Mutex<State<'a>>,
}

impl Client {
    /// Runs a program that changes nothing, if everything that it looks at is to be seen here.
    pub(crate) fn run_here(
        &self,
        at: FileRef,
        (given, inputs): (&[FileRef], &[Input<'_>]),
        program: &Checked,
    ) -> Option<Answer> {
        // Users' functions are the server's.
        let looks = |op: &Op| {
            let asks = matches!(op.kind, Kind::Sync { .. } | Kind::GetXattr { .. } | Kind::Call { .. });
            !asks && !op.kind.is_change()
        };
        // An empty one asks whether the core does steps.
        if program.ops.is_empty() || !program.ops.iter().all(looks) {
            return None;
        }
        let leases = self.leases()?;
        (0..TRIES).find_map(|_| {
            self.judge(|caller| {
                let start = Ino(leases.base(at)?);
                let state = Mutex::default();
                let caller = caller.credentials();
                let here = Here { client: self, leases: &leases, caller, start, given, inputs, state };
                let answer = run(&here, program);
                here.is_still().then_some(answer)
            })
        })
    }
}

impl<'a> Here<'a> {
    fn with<T>(&self, act: impl FnOnce(&mut State<'a>) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The server has to say.
    fn ask<T>(&self) -> FsResult<T> {
        self.with(|state| state.asks = true);
        Err(FsError::Unsupported("only the server can tell"))
    }

    fn inode(&self, slot: u32) -> Option<&'a Inode> {
        self.leases.control().inodes.get(slot as usize)
    }

    /// The inode of a file that the program has open.
    fn open_inode(&self, ino: Ino) -> Option<&'a Inode> {
        let slot =
            self.with(|state| state.files.iter().find(|(_, stamp)| stamp.ino == ino.0).map(|file| file.0))?;
        self.inode(slot)
    }

    /// Notes a file as it is now.
    fn meet(&self, ino: Ino, slot: u32) -> FsResult<()> {
        let stamp =
            self.inode(slot).and_then(|inode| self.leases.stamp(inode, 0)).filter(|stamp| stamp.ino == ino.0);
        let Some(stamp) = stamp else { return self.ask() };
        self.with(|state| {
            if !state.files.iter().any(|(known, _)| *known == slot) {
                state.files.push((slot, stamp));
            }
        });
        Ok(())
    }

    /// Whether everything is as it was when it was met.
    fn is_still(&self) -> bool {
        fence(SeqCst);
        let is_alive = self.leases.control().volume.is_alive();
        self.with(|state| {
            let file = |(slot, stamp): &(u32, Stamp)| {
                self.inode(*slot).and_then(|inode| self.leases.stamp(inode, 0)) == Some(*stamp)
            };
            is_alive && !state.asks && state.files.iter().all(file) && state.names.iter().all(Seen::is_still)
        })
    }

    fn found(&self, ino: u64) -> FsResult<(Attr, SlotWord)> {
        match self.leases.attr(ino) {
            Some((attr, word)) if word.is_judged_by_mode(access::READ) => match attr_of(&attr, word) {
                Some(attr) => Ok((attr, word)),
                None => self.ask(),
            },
            _ => self.ask(),
        }
    }
}

impl Leases {
    /// What is seen of an inode whose write lock `holder` has; `None` while a step or somebody else changes it.
    pub(crate) fn stamp(&self, inode: &Inode, holder: u32) -> Option<Stamp> {
        let (step, seq) = (inode.step.load(Acquire), inode.seq.load(Acquire));
        let size = inode.size.load(Acquire);
        let area = self.overwrites(inode).map(|area| area.version());
        let (by_call, ring) = (inode.by_call.load(SeqCst), inode.ring.load(Relaxed));
        let head = inode.head.load(Acquire);
        fence(Acquire);
        // A write that is under way may be seen in part. The holder may exclude long writes, too.
        let long = inode.long_write.holder();
        let is_written = inode.write_lock.holder() != holder || long != 0 && long != holder;
        let is_quiet = (step | seq) & 1 == 0 && by_call == 0 && !is_written;
        is_quiet.then(|| Stamp { ino: inode.ino.load(Relaxed), step, seq, by_call, head, ring, size, area })
    }
}

/// What is told of an inode, as a core tells it.
pub(crate) fn attr_of(wire: &WireAttr, word: SlotWord) -> Option<Attr> {
    let marks = Marks { flags: word.flags(), ..Marks::default() };
    Some(Attr {
        ino: Ino(wire.ino),
        kind: FileKind::from_mode(wire.mode)?,
        perm: wire.mode & 0o7777,
        links: wire.links,
        uid: wire.uid,
        gid: wire.gid,
        rdev: wire.rdev,
        size: wire.size,
        blocks: wire.blocks,
        atime: TimeSpec(wire.atime_ns),
        mtime: TimeSpec(wire.mtime_ns),
        ctime: TimeSpec(wire.ctime_ns),
        btime: TimeSpec(wire.btime_ns),
        marks,
    })
}

impl FileSystem for Here<'_> {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let Some((ino, seen)) = self.leases.names().ino(dir.0, name) else { return self.ask() };
        self.with(|state| state.names.push(seen));
        if ino == 0 { Err(FsError::NotFound) } else { self.found(ino).map(|(attr, _)| attr) }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.found(ino.0).map(|(attr, _)| attr)
    }

    fn open(&self, ino: Ino) -> FsResult<()> {
        if self.open_inode(ino).is_some() {
            return Ok(());
        }
        match self.found(ino.0)? {
            (Attr { kind: FileKind::File, .. }, word) => match word.slot() {
                Some(slot) => self.meet(ino, slot),
                None => self.ask(),
            },
            (Attr { kind: FileKind::Directory, .. }, _) => Ok(()),
            _ => self.ask(),
        }
    }

    fn release(&self, _ino: Ino) {}

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let Some(inode) = self.open_inode(ino) else { return self.ask() };
        match self.client.read_here(self.leases, inode, offset, out) {
            Ok(LeaseRead::Done(len)) => Ok(len),
            _ => self.ask(),
        }
    }

    fn note_read(&self, ino: Ino, _when: TimeSpec) {
        if let Some(inode) = self.open_inode(ino) {
            inode.note_read(sys::coarse_now_ns);
        }
    }

    fn readlink(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        self.ask()
    }

    fn parent(&self, _dir: Ino) -> FsResult<Ino> {
        self.ask()
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        self.ask()
    }

    weft_vfs::only_looks!("the client changes nothing by itself");
}

impl Host for Here<'_> {
    fn files(&self) -> &dyn FileSystem {
        self
    }

    fn caller(&self) -> &Credentials {
        &self.caller
    }

    fn start(&self) -> Ino {
        self.start
    }

    fn given(&self, number: u8) -> Option<(Ino, Access)> {
        let (open, inode, slot) = self.leases.open_file(*self.given.get(usize::from(number))?).ok()?;
        let flags = open.flags.load(Relaxed) as i32;
        let access = access_of(flags);
        let ino = Ino(inode.ino.load(Relaxed));
        // What fails here is asked of the server.
        let _ = self.meet(ino, slot);
        // Another thread may have closed it, and the slot may be another file's.
        self.leases.open_file(*self.given.get(usize::from(number))?).ok()?;
        Some((ino, access))
    }

    fn input(&self, number: u8) -> Option<Input<'_>> {
        self.inputs.get(usize::from(number)).copied()
    }

    fn near(&self) -> Option<&dyn Near> {
        self.client.near()
    }

    weft_vfs::without_front!();

    fn turn(&self, _ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()> {
        let _ = run();
        Ok(())
    }

    fn commit(&self, _changes: &[Change<'_>], _durable: bool) -> Result<Made, Refused> {
        Err(Refused { at: 0, error: self.ask::<()>().err().unwrap_or(FsError::Stale) })
    }

    fn change(&self, _change: &Change<'_>, _durable: bool) -> FsResult<Option<Ino>> {
        self.ask()
    }

    fn sync(&self, _ino: Ino) -> FsResult<()> {
        self.ask()
    }
}
