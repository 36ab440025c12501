//! Programs of several operations ([`weft_vfs::compound`]): a session as their host.
//!
//! A turn is a whole program, or one operation of an [`Each`](weft_vfs::compound::Policy::Each). In a turn
//! ```text
//!  space is reserved -> write locks of inodes            -> what is looked at, computation -> permissions -> the step -> locks are given back
//!                       `-- of a turn that begins anew --'                                                          -> maps, names, rings -> durable
//! ```
//! Nobody who has locks waits for an inode's write lock: a turn that meets another inode takes its lock if that is free, and begins anew
//! otherwise. Only the inodes that it has met wait for its computation.
//!
//! Where the device has processors for programs ([`ProgramCpus`](crate::ProgramCpus)), a try has one from `what is looked at` to `the step`, and
//! waits for it when nothing is locked yet but what a try before has met. At its check points it may have to wait for another turn, with
//! the locks that it has: nobody waits for these on a processor, so all of them come to an end.

mod demand;
mod effects;
mod space;
mod view;

use self::demand::demand_of;
use self::effects::{Before, Effects, Written};
use self::space::space_for;
use self::view::View;
use super::{Base, Error, Result, Session};
use crate::state::inodes::OpenInode;
use crate::state::open_files::{Opener, path_from};
use crate::state::program_cpus::OnCpu;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weft_client::FileRef;
use weft_client::proto::access_of;
use weft_core::{Credentials, Ino, Tag};
use weft_placement::{OpenIntent, WriteHint};
use weft_vfs::change::{Made, Refused};
use weft_vfs::compound::{
    Access, Answer, Checked, Host, Input, Native, Near, Op, Stale, TRIES_MAX, run, schedule,
};
use weft_vfs::{Attr, Change, FileSystem, FsError, FsResult, NewNode, Protections, TimeSpec};

/// How often a turn begins anew because somebody writes to what it has met.
const LOCKS_MAX: u32 = 100;

/// Of what a durable program has written at once, clients have so many bytes before they ask.
const PUBLISHED_MAX: u64 = 32 << 10;

/// For so long the functions of a program run, all together: writers of its files wait.
const CALLS_NS_MAX: u64 = 100_000_000;

/// Where and how a program begins.
pub struct Beginning<'a> {
    /// The directory in which paths begin.
    pub dir: Base<'a>,
    /// Permission bits that what is made does not get.
    pub umask: u32,
    /// The thread that runs it.
    pub opener: Opener,
    /// Open files that are given with it.
    pub given: Vec<FileRef>,
    /// What comes with this run.
    pub inputs: Vec<Input<'a>>,
    /// No path leads out of the directory, and those with a slash in front begin there, too.
    pub stays: bool,
    /// Somebody who keeps what the program looks at or changes.
    pub keeper: Option<&'a dyn Keeper>,
}

/// A front that keeps data, names and attributes of files, such as the kernel, for a program that comes through it.
pub trait Keeper: Sync {
    /// Whether what was stored to a file may be with the front.
    fn may_have_stores(&self, ino: Ino) -> bool;

    /// The front passes on what was stored to a file. It is asked while the program has no locks.
    fn pass_on(&self, ino: Ino);

    /// Whether the front keeps nothing of this, and will not until the program has ended.
    fn has_forgotten(&self, changed: &Changed) -> bool;

    /// The front forgets this, which the program is about to change in one step, and keeps nothing of it until the program has ended. It
    /// is asked while the program has no locks.
    fn forget(&self, changed: Changed);

    /// A turn of the program has changed this. It is told while the program has no locks, before the program has its answer.
    fn changed(&self, changed: Changed);

    /// Whether reads change access times.
    fn notes_reads(&self) -> bool;
}

/// What a turn of a program has changed.
#[derive(Default, Debug)]
pub struct Changed {
    /// Names that lead elsewhere, or nowhere.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Inodes with other attributes, those with other content included.
    pub inodes: BTreeSet<Ino>,
    /// Inodes with other content.
    pub content: BTreeSet<Ino>,
    /// What has another name, with its directory and the name.
    pub moved: Vec<(Ino, Ino, Vec<u8>)>,
    /// Something may take no space any more.
    pub removes: bool,
}

impl Session<'_> {
    /// Keeps a program of the process, whose encoding has so many bytes, under a number.
    pub fn keep_program(&self, number: u64, program: Checked, bytes: usize) {
        self.process.programs.lock().keep(number, program, bytes);
    }

    /// The program of the process that is kept under a number.
    pub fn kept_program(&self, number: u64) -> Option<Arc<Checked>> {
        self.process.programs.lock().get(number)
    }

    /// Runs a program. Every failure of an operation is the answer's.
    ///
    /// # Errors
    /// The directory is none that the process has; the process has ended.
    pub fn run_program(&self, beginning: Beginning<'_>, program: &Checked) -> Result<Answer> {
        if program.ops.is_empty() {
            // Whoever sends it asks whether there are steps.
            self.volume.fs.commit(&[], false).map_err(|refused| refused.error)?;
        }
        let dir_path = match beginning.dir {
            Base::Inode(_, path) => path.to_vec(),
            Base::Open(_) => self.canonical(super::At { dir: beginning.dir, path: b"" }),
        };
        let host = Programs {
            session: self,
            view: View::new(*self, beginning.keeper),
            start: self.base(beginning.dir)?,
            stays: beginning.stays,
            keeper: beginning.keeper,
            start_path: dir_path,
            umask: beginning.umask,
            opener: beginning.opener,
            given: beginning.given,
            inputs: beginning.inputs,
            rewrites: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            to_forget: Mutex::default(),
            turn: Mutex::default(),
            on_cpu: Mutex::default(),
            waited_ns: AtomicU64::new(0),
        };
        let answer = run(&host, program);
        if host.has_ended.load(Relaxed) { Err(Error::Ended) } else { Ok(answer) }
    }
}

/// A session as the host of a program.
struct Programs<'s, 'a> {
    session: &'s Session<'a>,
    view: View<'a>,
    start: Ino,
    stays: bool,
    keeper: Option<&'a dyn Keeper>,
    start_path: Vec<u8>,
    umask: u32,
    opener: Opener,
    given: Vec<FileRef>,
    inputs: Vec<Input<'s>>,
    /// The turn overwrites what is there.
    rewrites: AtomicBool,
    has_ended: AtomicBool,
    /// What the keeper is to forget before the next try.
    to_forget: Mutex<Option<Changed>>,
    turn: Mutex<Turn>,
    /// The processor that a try has; of this thread alone.
    on_cpu: Mutex<Option<OnCpu<'a>>>,
    /// For so long the calls of users' functions have waited for other programs.
    waited_ns: AtomicU64,
}

/// What a turn has done so far.
#[derive(Default)]
struct Turn {
    effects: Vec<Effects>,
    syncs: BTreeSet<Ino>,
    /// Ranges of files that have been written.
    written: Vec<Written>,
    /// Paths under which files are made, and of files that were renamed: for the recorder.
    made: Vec<Vec<u8>>,
    renamed: Vec<(Ino, Vec<u8>)>,
}

/// What became of a turn.
enum Turned {
    Done,
    Stale,
    /// It could not have a lock.
    Contended,
}

impl Programs<'_, '_> {
    /// Waits for a processor, where there are such.
    fn enter(&self, ops: &[Op]) -> Result<()> {
        let session = self.session;
        let Some(cpus) = &session.volume.program_cpus else { return Ok(()) };
        let entered = cpus.enter(demand_of(ops, &self.inputs, session.cred().uid)).map_err(|refused| {
            session.note(refused.to_string().as_bytes());
            Error::Errno(match refused {
                schedule::Refused::Waiting { .. } => libc::EAGAIN,
                schedule::Refused::Memory { .. } => libc::ENOMEM,
            })
        })?;
        *self.on_cpu.lock() = Some(entered);
        // It may have waited for long. Who has ended has had its turn.
        session.check_lives().inspect_err(|_| self.leave())
    }

    /// Gives the processor back.
    fn leave(&self) {
        let on_cpu = self.on_cpu.lock().take();
        drop(on_cpu);
    }

    /// Gives `run` one try.
    fn turn_once(&self, ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> Result<Turned> {
        let session = self.session;
        {
            let mut turn = self.turn.lock();
            let syncs = std::mem::take(&mut turn.syncs);
            *turn = Turn { syncs, ..Turn::default() };
        }
        if let (Some(keeper), Some(changed)) = (self.keeper, self.to_forget.lock().take()) {
            keeper.forget(changed);
        }
        self.view.lock_wanted(self.rewrites.load(Relaxed))?;
        self.enter(ops)?;
        let outcome = run();
        self.leave();
        self.view.unlock();
        let mut turn = self.turn.lock();
        for mut effects in std::mem::take(&mut turn.effects) {
            if let Some(keeper) = self.keeper {
                keeper.changed(std::mem::take(&mut effects.told));
            }
            let (syncs, written) = effects.settle(session);
            let is_given = |open: &Arc<OpenInode>| {
                let given = self.given.iter().filter_map(|file| session.open_file(*file).ok());
                given.into_iter().any(|file| Arc::ptr_eq(&file.inode, open))
            };
            written.iter().filter(|(open, _)| is_given(open)).for_each(|(open, range)| {
                session.written_by_program(open, range);
            });
            turn.syncs.extend(syncs);
            turn.written.extend(written);
        }
        drop(turn);
        Ok(match outcome {
            Ok(()) => Turned::Done,
            Err(Stale) if self.view.is_contended() => Turned::Contended,
            Err(Stale) => Turned::Stale,
        })
    }

    fn turn_in_tries(&self, ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> Result<()> {
        let (mut stale, mut contended) = (0, 0);
        let waited_ns = self.waited_ns.load(Relaxed);
        while stale < TRIES_MAX && contended < LOCKS_MAX && !self.has_ended.load(Relaxed) {
            self.waited_ns.store(waited_ns, Relaxed);
            match self.turn_once(ops, run).inspect_err(|_| self.view.unlock())? {
                Turned::Done => return Ok(()),
                Turned::Stale => stale += 1,
                Turned::Contended => contended += 1,
            }
        }
        Ok(())
    }

    /// Makes durable what has to be. Its clients know what it is now, and ask for nothing.
    fn make_durable(&self) -> FsResult<()> {
        let (session, inodes) = (self.session, &self.session.volume.inodes);
        let (syncs, written) = {
            let mut turn = self.turn.lock();
            (std::mem::take(&mut turn.syncs), std::mem::take(&mut turn.written))
        };
        for &ino in &syncs {
            let open = self.view.open_file(ino).or_else(|| inodes.find(ino));
            match open {
                Some(open) => {
                    let synced = session.sync_inode(&open)?;
                    self.check_errors(ino)?;
                    session.grant_sync(&open, synced);
                }
                None => match session.fs().fsync(ino) {
                    // One that has been removed since has nothing to keep.
                    Err(FsError::NotFound | FsError::Stale) => {}
                    synced => synced?,
                },
            }
        }
        for (open, range) in written.iter().filter(|(open, _)| syncs.contains(&open.ino)) {
            if range.end - range.start <= PUBLISHED_MAX {
                session.publish(open, range.clone());
            }
        }
        Ok(())
    }

    /// Fails when bytes that were accepted before could not be stored, and a file that is given has not told so yet.
    fn check_errors(&self, ino: Ino) -> FsResult<()> {
        let files = self.given.iter().filter_map(|file| self.session.open_file(*file).ok());
        for open in files.filter(|open| open.inode.ino == ino) {
            if open.inode.errors.check_and_advance(&open.errors_seen).is_some() {
                return Err(FsError::Device("bytes that were accepted before could not be stored".into()));
            }
        }
        Ok(())
    }

    /// Has `act` make changes, with all that they mean for others.
    fn carry_out(
        &self,
        changes: &[Change<'_>],
        durable: bool,
        act: impl FnOnce() -> Result<Made, Refused>,
    ) -> Result<Made, Refused> {
        let volume = self.session.volume;
        let refused = |error| Refused { at: 0, error };
        let before = Before::look(self.session, &self.view, changes).map_err(refused)?;
        // Without locks, since requests of the front may wait for them. Otherwise it would show one change before the other.
        if let Some(keeper) = self.keeper {
            let changed = before.told(changes, &Made::new());
            if !keeper.has_forgotten(&changed) {
                *self.to_forget.lock() = Some(changed);
                self.view.begin_anew();
                return Err(refused(FsError::Stale));
            }
        }
        // Not with locks, at first: others would wait for the device.
        let needs_sync = before.rewrites.iter().any(|open| volume.inodes.rewrite_needs_sync(open));
        if needs_sync && !self.rewrites.swap(true, Relaxed) {
            self.view.begin_anew();
            return Err(refused(FsError::Stale));
        }
        for open in &before.rewrites {
            volume.inodes.before_rewrite(open).map_err(refused)?;
        }
        // Until the end: nobody changes what permission checks rest on.
        let alone = before.takes_names.then(|| self.session.alone());
        let among = (!before.takes_names).then(|| self.session.among_others());
        if matches!(alone, Some(Err(_))) || matches!(among, Some(Err(_))) {
            self.has_ended.store(true, Relaxed);
            return Err(refused(FsError::Stale));
        }
        if !self.view.is_still(changes) {
            return Err(refused(FsError::Stale));
        }
        let opens: Vec<_> = before.touched.iter().map(|(open, _)| open.clone()).collect();
        let step = volume.inodes.begin_step(opens);
        let made = act()?;
        for (open, size) in &before.touched {
            let now = volume.fs.getattr(open.ino).map_or(*size, |attr| attr.size);
            volume.inodes.size_changed(open, now);
            if now == 0 && *size > 0 {
                volume.inodes.content_replaced(open);
            }
        }
        drop(step);
        // The changes that an operation makes after this one rest on what this one has left.
        self.view.forget_looks();
        let mut turn = self.turn.lock();
        self.record(&turn, changes, &made);
        turn.effects.push(before.done(self.session, changes, &made, durable));
        Ok(made)
    }

    /// Tells the recorder, when there is one, of files that were made or renamed.
    fn record(&self, turn: &Turn, changes: &[Change<'_>], made: &Made) {
        let Some(recorder) = self.session.volume.mounted.recorder() else { return };
        for (change, made) in changes.iter().zip(made) {
            if let (Change::Create { name, args, .. }, Some(ino)) = (change, made)
                && args.node == NewNode::File
                && let Some(path) = turn.made.iter().rfind(|path| path.ends_with(name))
            {
                self.session.record_open(*ino, path, &self.opener, OpenIntent::CREATE | OpenIntent::WRITE);
            }
        }
        turn.renamed.iter().for_each(|(ino, path)| recorder.renamed(*ino, path));
    }

    fn path_of(&self, start: Ino, path: &[u8]) -> Vec<u8> {
        let slashes = path.iter().take_while(|byte| **byte == b'/').count();
        if self.stays && slashes > 0 {
            return path_from(&self.start_path, &path[slashes..]);
        }
        path_from(if start == self.start { &self.start_path } else { b"" }, path)
    }
}

impl Host for Programs<'_, '_> {
    fn files(&self) -> &dyn FileSystem {
        &self.view
    }

    fn open(&self, ino: Ino, purpose: Access) -> FsResult<()> {
        self.view.open_for(ino, purpose)
    }

    fn near(&self) -> Option<&dyn Near> {
        Some(&Native)
    }

    fn goes_on(&self, ns: u64) -> bool {
        let ran_ns = ns.saturating_sub(self.waited_ns.load(Relaxed));
        if !self.has_check_points() {
            return ran_ns < CALLS_NS_MAX;
        }
        let paused = Instant::now();
        self.check_point();
        self.waited_ns.fetch_add(paused.elapsed().as_nanos() as u64, Relaxed);
        // Nobody waits for what an ended process computes, but others do for the processor.
        ran_ns < CALLS_NS_MAX && !self.session.process.is_ending()
    }

    fn has_check_points(&self) -> bool {
        self.session.volume.program_cpus.is_some()
    }

    fn check_point(&self) {
        if let Some(on_cpu) = &mut *self.on_cpu.lock() {
            on_cpu.check_point();
        }
    }

    fn caller(&self) -> &Credentials {
        self.session.cred()
    }

    fn start(&self) -> Ino {
        self.start
    }

    fn given(&self, number: u8) -> Option<(Ino, Access)> {
        let open = self.session.open_file(*self.given.get(usize::from(number))?).ok()?;
        let flags = self.session.open_flags(&open);
        let access = access_of(flags);
        if self.session.regular(&open).is_ok() {
            // What fails here fails when the interpreter opens it.
            let _ = self.view.given(open.inode.ino);
        }
        Some((open.inode.ino, access))
    }

    fn syncs(&self, number: u8) -> bool {
        let open = self.given.get(usize::from(number)).and_then(|file| self.session.open_file(*file).ok());
        let flags = open.map_or(0, |open| self.session.open_flags(&open));
        flags & (libc::O_SYNC | libc::O_DSYNC) != 0
    }

    fn input(&self, number: u8) -> Option<Input<'_>> {
        self.inputs.get(usize::from(number)).copied()
    }

    fn umask(&self) -> u32 {
        self.umask
    }

    fn mount_point(&self) -> &[u8] {
        &self.session.process.mount_point
    }

    fn within(&self) -> Option<Ino> {
        self.stays.then_some(self.start)
    }

    fn protections(&self) -> Protections {
        self.session.volume.protections
    }

    fn now(&self) -> TimeSpec {
        TimeSpec::now()
    }

    fn tag(&self, start: Ino, path: &[u8]) -> Tag {
        let path = self.path_of(start, path);
        let (intent, owner) = (OpenIntent::CREATE | OpenIntent::WRITE, self.session.cred().uid);
        let tag = self.session.place_tag(&self.opener, &path, intent, (owner, 0), WriteHint::NotSet);
        if self.session.volume.mounted.recorder().is_some() {
            self.turn.lock().made.push(path);
        }
        tag
    }

    fn tag_of_renamed(&self, file: &Attr, start: Ino, path: &[u8]) -> Option<Tag> {
        let path = self.path_of(start, path);
        let tag = self.session.tag_after_rename(file, &path);
        if self.session.volume.mounted.recorder().is_some() {
            self.turn.lock().renamed.push((file.ino, path));
        }
        tag
    }

    fn turn(&self, ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()> {
        let volume = self.session.volume;
        let bytes = space_for(ops, || volume.fs.statfs().map_or(0, |stats| stats.free_bytes));
        self.rewrites.store(false, Relaxed);
        self.view.begin_turn();
        let _reserved = (bytes > 0).then(|| volume.inodes.reserve(bytes));
        match self.turn_in_tries(ops, run) {
            Ok(()) => self.make_durable(),
            Err(Error::Errno(libc::ENOSPC)) => Err(FsError::NoSpace),
            Err(Error::Errno(libc::EBUSY)) => Err(FsError::Stale),
            Err(Error::Errno(errno @ (libc::EAGAIN | libc::ENOMEM))) => Err(FsError::Call(errno)),
            Err(Error::Errno(_)) => Err(FsError::Device("what was written before cannot be stored".into())),
            Err(_) => {
                self.has_ended.store(true, Relaxed);
                Err(FsError::Stale)
            }
        }
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        self.carry_out(changes, durable, || self.session.volume.fs.commit(changes, false))
    }

    fn change(&self, change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>> {
        let fs = self.session.fs();
        let act = || Ok(vec![change.alone(fs).map_err(|error| Refused { at: 0, error })?]);
        let made = self.carry_out(&[*change], durable, act).map_err(|refused| refused.error)?;
        let made = made.first().copied().flatten();
        if let (Change::Create { args, .. }, Some(ino)) = (change, made)
            && args.open
        {
            self.view.adopt(&fs.getattr(ino)?)?;
        }
        Ok(made)
    }

    fn sync(&self, ino: Ino) -> FsResult<()> {
        self.turn.lock().syncs.insert(ino);
        // The flush comes at the end, for all of them; until then, no later change survives a crash that this file does not.
        let inodes = &self.session.volume.inodes;
        if let Some(open) = self.view.open_file(ino).or_else(|| inodes.find(ino)) {
            inodes.drain(&open, true)?;
            inodes.pass_times(&open);
        }
        match self.session.fs().write_in_order(ino) {
            Err(FsError::NotFound | FsError::Stale) => Ok(()),
            ordered => ordered,
        }
    }
}
