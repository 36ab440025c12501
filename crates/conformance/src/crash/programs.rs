//! Programs among plain calls under power cuts.
//!
//! A [`Script`] runs in memory first. That gives the answer to each of its acts, and an event for each change, with the names and contents
//! behind it. A core then does the same until its device loses power. What is on the device afterwards must be what there was in memory
//! at some event: not before the last promise, and not behind the call that was under way.
//!
//! A step of several changes is one event. The data that it writes, and what was written before to the files that it changes, comes with
//! it: a program with the policy `all` is there over all its inodes, or not at all, and none is there without those before it. What plain
//! calls wrote to other files may be there in part, as [without programs](super).
//!
//! ```text
//! acts:    write a | program: write a, write b | write a | program, durable: create c | write b | (cut)
//! events:  write     step: a, b                  write     step           ^promise      write
//! names:                                                                  |- those of here --------|
//! a, b:                        |- all of this, with or without each block that was written later --|
//! ```

use super::check::{Recovered, Violation};
use super::content::{Possible, Shape};
use super::recorder::is_power_cut;
use crate::fixture::BLOCK;
use crate::programs::{Maker, NAMES, at_path, comparable, text};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weft_core::{Credentials, Ino, Tag};
use weft_vfs::change::{Made, Refused};
use weft_vfs::compound::{Answer, Checked, Host, Local, Near, Op, Policy, Program, Stale, check, run};
use weft_vfs::{
    Change, FallocateMode, FileKind, FileSystem, FsError, FsResult, MemFs, Protections, RenameFlags, SetAttr,
    TimeSpec,
};

/// Something that a script does.
#[derive(Clone, Debug)]
pub enum Act {
    /// A program.
    Program(Checked),
    /// A plain write to the file at a path, in which programs may find it buffered.
    Write {
        /// One of the programs' paths.
        path: &'static str,
        /// The first byte.
        offset: u64,
        /// What.
        data: Vec<u8>,
        /// Whether it goes past the buffer.
        through: bool,
    },
    /// The file at a path is made durable.
    Sync {
        /// One of the programs' paths.
        path: &'static str,
    },
}

/// Acts, and what each of them comes to.
#[derive(Clone, Debug)]
pub struct Script {
    /// What is done.
    pub acts: Vec<Act>,
    /// What each act answers; nothing when it is no program.
    answers: Vec<Answer>,
    /// The first call of each act.
    calls: Vec<u64>,
    start: State,
    events: Vec<Event>,
}

/// Names, attributes and contents at one moment.
#[derive(Clone, Debug)]
struct State {
    names: Arc<Recovered>,
    contents: BTreeMap<Ino, Arc<Vec<u8>>>,
}

#[derive(Clone, Debug)]
struct Event {
    /// The number of the call that it is of.
    call: u64,
    what: Happened,
    after: State,
}

#[derive(Clone, Debug)]
enum Happened {
    /// A change of names or attributes, or a step: it is there before all such that come later.
    InOrder(Vec<(Ino, Touch)>),
    Write {
        ino: Ino,
        offset: u64,
        data: Vec<u8>,
    },
    /// Everything in order so far is durable, and this data.
    Promise(Data),
}

/// What comes with a change in order.
#[derive(Clone, Debug)]
enum Touch {
    /// The whole content of the file.
    Content,
    /// This change of it.
    Shape(Shape),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Data {
    Of(Ino),
    OfAll,
    OfNone,
}

/// How the steps of programs are done on a core: by [`FileSystem::commit`], unless somebody wants to see a core that does not.
pub type Commit<'a> = &'a dyn Fn(&dyn FileSystem, &[Change<'_>], bool) -> Result<Made, Refused>;

/// How far a core came with a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Acts that were done.
    pub acts: usize,
    /// Where the program failed that is the next act.
    pub failed: Option<usize>,
    /// Calls that the core has done.
    done: u64,
    /// Calls that it has begun.
    begun: u64,
}

/// What a recovered core has of a script, in events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The last that is there.
    pub last: usize,
    /// Up to the last promise.
    pub promised: usize,
    /// That had happened before the power went.
    pub happened: usize,
}

/// A core that works does something else than memory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("act {act}: {what}")]
pub struct Differs {
    /// The act.
    pub act: usize,
    /// What it did.
    pub what: String,
}

impl State {
    /// What there is, which shares the contents that are as `before`.
    fn of(fs: &dyn FileSystem, before: Option<&State>) -> Result<State, Violation> {
        let names = Recovered::read(fs)?;
        let mut contents = BTreeMap::new();
        for (ino, _) in names.inodes.iter().filter(|(_, inode)| inode.attr.kind == FileKind::File) {
            let content = names.content(fs, *ino)?;
            let same = before.and_then(|state| state.contents.get(ino)).filter(|same| ***same == content);
            contents.insert(*ino, same.map_or_else(|| Arc::new(content), Arc::clone));
        }
        Ok(State { names: Arc::new(names), contents })
    }

    fn content(&self, ino: Ino) -> &[u8] {
        self.contents.get(&ino).map_or(&[], |content| content)
    }
}

impl Script {
    /// So many programs, most of them with plain calls before them, made on an empty file system in memory.
    ///
    /// # Panics
    /// Only if the files in memory are none.
    pub fn new(seed: u64, programs: usize) -> Script {
        let fs = MemFs::new();
        let start = State::of(&fs, None).expect("an empty file system in memory");
        let mut maker = Maker::new(seed);
        let (mut acts, mut answers, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let commit: Commit<'_> = &|fs, changes, durable| fs.commit(changes, durable);
        let host = Noting { events: Some((&start, RefCell::default())), ..Noting::new(&fs, commit) };
        // Of the programs that fail and leave nothing, a quarter is enough.
        let (mut failing, mut made) = (0, 0);
        let mut does = |act: Act| {
            let (first, answer) = (host.calls.get(), host.act(&act).expect("memory takes all plain calls"));
            let changes_nothing = answer.failed().is_some() && !host.has_changed_since(first);
            failing += u32::from(changes_nothing);
            if changes_nothing && failing % 4 != 0 {
                host.calls.set(first);
                return 0;
            }
            calls.push(first);
            answers.push(answer);
            acts.push(act);
            1
        };
        while made < programs {
            for _ in 0..maker.roll(4) {
                plain_act(&mut maker, &fs).map(&mut does);
            }
            maker.look(&fs);
            made += does(Act::Program(maker.program().check().expect("a program that was made")));
        }
        let events = host.events.map(|(_, events)| events.into_inner()).unwrap_or_default();
        Script { acts, answers, calls, start, events }
    }

    /// Does the acts from `first` on, on a core that has done those before, until it fails with its device or has no space. `before` is
    /// called before each of them, and fails as the core does.
    pub fn run(
        &self,
        first: usize,
        fs: &dyn FileSystem,
        commit: Commit<'_>,
        before: &mut dyn FnMut(usize) -> FsResult<()>,
    ) -> Result<Progress, Differs> {
        let host = Noting::new(fs, commit);
        host.calls.set(self.calls.get(first).copied().unwrap_or(0));
        for (act, (what, expected)) in self.acts.iter().zip(&self.answers).enumerate().skip(first) {
            let differs = |what| Err(Differs { act, what });
            let answer = match before(act).and_then(|()| host.act(what)) {
                Ok(answer) => answer,
                Err(error) if is_end(&error) => return Ok(host.progress(act, None)),
                Err(error) => return differs(error.to_string()),
            };
            // A read may be what finds the device without power.
            let is_read = answer.failed().is_some_and(|(_, errno)| [libc::EIO, libc::EROFS].contains(&errno));
            if is_read || host.failed.get().is_some() {
                return Ok(host.progress(act, answer.failed().map(|(at, _)| at)));
            }
            if answer != *expected {
                let program = if let Act::Program(program) = what { text(program) } else { String::new() };
                return differs(format!("{answer:?} instead of {expected:?} to\n{program}"));
            }
        }
        Ok(host.progress(self.acts.len(), None))
    }

    /// Having done the acts before this one, and nothing of it.
    pub fn before(&self, act: usize) -> Progress {
        let calls = self.calls.get(act).copied().unwrap_or(u64::MAX);
        Progress { acts: act, failed: None, done: calls, begun: calls }
    }

    /// Programs, and those of them that do all their operations.
    pub fn programs(&self) -> (usize, usize) {
        let answers = || self.answers.iter().filter(|answer| !answer.outcomes.is_empty());
        (answers().count(), answers().filter(|answer| answer.failed().is_none()).count())
    }

    /// Events of the calls that were done, and of those that were begun.
    fn between(&self, progress: Progress) -> [usize; 2] {
        [progress.done, progress.begun].map(|calls| self.events.partition_point(|event| event.call < calls))
    }

    /// What there is when the act failed that is the next one.
    fn left_by(&self, progress: Progress) -> Result<State, Violation> {
        let (Some(Act::Program(program)), Some(end)) = (self.acts.get(progress.acts), progress.failed) else {
            return Ok(self.state(self.between(progress)[0]).clone());
        };
        let (fs, commit): (_, Commit<'_>) =
            (MemFs::new(), &|fs, changes, durable| fs.commit(changes, durable));
        let host = Noting::new(&fs, commit);
        for act in &self.acts[..progress.acts] {
            host.act(act).expect("memory takes all plain calls");
        }
        if program.policy != Policy::All && end > 0 {
            let ops = program.ops[..end].to_vec();
            let begin =
                check(Program { ops, ..Program::clone(program) }).expect("the beginning of a program");
            run(&host, &begin);
        }
        State::of(&fs, None)
    }

    /// What there is after so many events.
    fn state(&self, events: usize) -> &State {
        events.checked_sub(1).map_or(&self.start, |at| &self.events[at].after)
    }
}

/// Whether a core that fails so goes no further with a script.
fn is_end(error: &FsError) -> bool {
    is_power_cut(error) || matches!(error, FsError::NoSpace)
}

/// A plain call on a file that there is, if there is one where it looks.
fn plain_act(maker: &mut Maker, fs: &MemFs) -> Option<Act> {
    let path = NAMES[maker.roll(NAMES.len() as u64) as usize];
    let attr = fs.getattr(at_path(fs, path)?).ok().filter(|attr| attr.kind == FileKind::File)?;
    if maker.roll(8) == 0 {
        return Some(Act::Sync { path });
    }
    let offset = if maker.roll(2) == 0 { attr.size } else { maker.roll(attr.size + 1) };
    Some(Act::Write { path, offset, data: maker.bytes(), through: maker.roll(4) == 0 })
}

/// The host of a script's programs. It counts the calls that change the core or promise something, and notes in memory what they do.
struct Noting<'a> {
    local: Local<'a>,
    fs: &'a dyn FileSystem,
    commit: Commit<'a>,
    calls: Cell<u64>,
    /// The first call that failed as the end of a script does.
    failed: Cell<Option<u64>>,
    /// What happened since this state.
    events: Option<(&'a State, RefCell<Vec<Event>>)>,
}

impl<'a> Noting<'a> {
    fn new(fs: &'a dyn FileSystem, commit: Commit<'a>) -> Noting<'a> {
        let (calls, failed) = (Cell::new(0), Cell::new(None));
        Noting { local: Local::new(fs), fs, commit, calls, failed, events: None }
    }

    fn progress(&self, acts: usize, failed: Option<usize>) -> Progress {
        let calls = self.calls.get();
        match self.failed.get() {
            Some(call) => Progress { acts, failed, done: call, begun: call + 1 },
            None => Progress { acts, failed, done: calls, begun: calls },
        }
    }

    /// Whether a call from this one on has done something.
    fn has_changed_since(&self, call: u64) -> bool {
        let last = |events: &Vec<Event>| events.last().is_some_and(|event| event.call >= call);
        self.events.as_ref().is_some_and(|(_, events)| last(&events.borrow()))
    }

    fn act(&self, act: &Act) -> FsResult<Answer> {
        let at = |path| at_path(self.fs, path).ok_or(FsError::NotFound);
        match act {
            Act::Program(program) => return Ok(comparable(run(self, program))),
            Act::Write { path, offset, data, through } => {
                let ino = at(path)?;
                let write = || match through {
                    true => self.fs.write_through(ino, *offset, data),
                    false => self.fs.write(ino, *offset, data),
                };
                self.call(
                    write,
                    |error| error,
                    |_, _, ()| vec![Happened::Write { ino, offset: *offset, data: data.clone() }],
                )?;
            }
            Act::Sync { path } => self.sync(at(path)?)?,
        }
        Ok(Answer::default())
    }

    /// Makes a call; `what` is told what there was before it and is behind it.
    fn call<T, E>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
        error: impl Fn(&E) -> &FsError,
        what: impl FnOnce(&State, &State, &T) -> Vec<Happened>,
    ) -> Result<T, E> {
        let number = self.calls.replace(self.calls.get() + 1);
        let done = call();
        match (&done, &self.events) {
            (Ok(done), Some((start, events))) => {
                let mut events = events.borrow_mut();
                let before = events.last().map_or(*start, |event| &event.after);
                let after = State::of(self.fs, Some(before)).expect("memory can be read");
                let what = what(before, &after, done);
                events.extend(what.into_iter().map(|what| Event {
                    call: number,
                    what,
                    after: after.clone(),
                }));
            }
            (Err(failed), _) if is_end(error(failed)) && self.failed.get().is_none() => {
                self.failed.set(Some(number));
            }
            _ => {}
        }
        done
    }
}

/// What a plain change does.
fn happens(change: &Change<'_>, before: &State) -> Vec<Happened> {
    let existing = |node: weft_vfs::Node| node.existing().unwrap_or_default();
    let in_order = |touches| vec![Happened::InOrder(touches)];
    match *change {
        Change::Write { node, offset, data } => {
            vec![Happened::Write { ino: existing(node), offset, data: data.into() }]
        }
        Change::SetAttr { node, set: SetAttr { size: Some(size), .. } } => {
            let is_other = size != before.content(existing(node)).len() as u64;
            in_order(
                is_other
                    .then_some((existing(node), Touch::Shape(Shape::Truncate { size })))
                    .into_iter()
                    .collect(),
            )
        }
        Change::Fallocate { node, mode, offset, len } => {
            let (ino, size) = (existing(node), before.content(existing(node)).len() as u64);
            let end = offset + len;
            let mut what = match mode {
                FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => {
                    punched(ino, offset.min(size)..end.min(size))
                }
                _ => Vec::new(),
            };
            let grows =
                matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange { keep_size: false });
            let extends = grows && end > size;
            what.push(Happened::InOrder(
                extends.then_some((ino, Touch::Shape(Shape::Truncate { size: end }))).into_iter().collect(),
            ));
            what
        }
        _ => in_order(Vec::new()),
    }
}

/// Whole blocks become a hole, in order; what the range has of others is written over.
fn punched(ino: Ino, range: Range<u64>) -> Vec<Happened> {
    let (start, end) = (range.start.next_multiple_of(BLOCK), range.end / BLOCK * BLOCK);
    let edges = if start <= end { [range.start..start, end..range.end] } else { [range, 0..0] };
    let zeros = |edge: Range<u64>| Happened::Write {
        ino,
        offset: edge.start,
        data: vec![0; (edge.end - edge.start) as usize],
    };
    let mut what: Vec<Happened> = edges.into_iter().filter(|edge| !edge.is_empty()).map(zeros).collect();
    if start < end {
        what.push(Happened::InOrder(vec![(ino, Touch::Shape(Shape::Punch { start, end }))]));
    }
    what
}

/// The files whose contents come with a step: those that it changes, and those that it puts in the place of others.
fn files_of(changes: &[Change<'_>], made: &Made, before: &State, after: &State) -> Vec<(Ino, Touch)> {
    let mut files = BTreeSet::new();
    for change in changes {
        match *change {
            Change::Write { node, .. }
            | Change::Fallocate { node, .. }
            | Change::SetAttr { node, set: SetAttr { size: Some(_), .. } } => files.extend(node.after(made)),
            Change::Rename { to, new_name, flags, .. } if flags == RenameFlags::empty() => {
                let named =
                    |state: &State| state.names.inodes.get(&to.existing()?)?.entries.get(new_name).copied();
                if let (Some(old), Some(new)) = (named(before), named(after)) {
                    let is_gone = !after.names.inodes.contains_key(&old);
                    files.extend((is_gone && before.contents.contains_key(&new)).then_some(new));
                }
            }
            _ => {}
        }
    }
    files.into_iter().map(|ino| (ino, Touch::Content)).collect()
}

impl Host for Noting<'_> {
    fn files(&self) -> &dyn FileSystem {
        self.fs
    }
    fn caller(&self) -> &Credentials {
        self.local.caller()
    }
    fn start(&self) -> Ino {
        self.local.start()
    }
    fn umask(&self) -> u32 {
        self.local.umask()
    }
    fn mount_point(&self) -> &[u8] {
        self.local.mount_point()
    }
    fn protections(&self) -> Protections {
        self.local.protections()
    }
    fn now(&self) -> TimeSpec {
        self.local.now()
    }
    fn tag(&self, start: Ino, path: &[u8]) -> Tag {
        self.local.tag(start, path)
    }
    fn near(&self) -> Option<&dyn Near> {
        self.local.near()
    }
    fn turn(&self, ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()> {
        self.local.turn(ops, run)
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        self.call(
            || (self.commit)(self.fs, changes, durable),
            |refused| &refused.error,
            |before, after, made| {
                let step = Happened::InOrder(files_of(changes, made, before, after));
                [step].into_iter().chain(durable.then_some(Happened::Promise(Data::OfNone))).collect()
            },
        )
    }

    fn change(&self, change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>> {
        let made = self.call(
            || self.local.change(change, false),
            |error| error,
            |before, _, _| happens(change, before),
        )?;
        if durable {
            self.call(|| self.fs.sync(), |error| error, |_, _, ()| vec![Happened::Promise(Data::OfAll)])?;
        }
        Ok(made)
    }

    fn sync(&self, ino: Ino) -> FsResult<()> {
        self.call(|| self.local.sync(ino), |error| error, |_, _, ()| vec![Happened::Promise(Data::Of(ino))])
    }
}

/// Judges volumes on which a script ran.
pub struct Judge<'a> {
    script: &'a Script,
    /// Names in the root that were there before, and that are none of its business.
    besides: BTreeSet<Vec<u8>>,
    /// Inodes that `statfs` counts and that no name leads to.
    inodes_base: u64,
}

impl<'a> Judge<'a> {
    /// For volumes that begin as this one.
    pub fn new(script: &'a Script, start: &dyn FileSystem) -> Result<Judge<'a>, Violation> {
        let found = Recovered::read(start)?;
        let besides = found.inode(Ino::ROOT)?.entries.keys().cloned().collect();
        let inodes_base = found.counted_inodes.saturating_sub(found.inodes.len() as u64);
        Ok(Judge { script, besides, inodes_base })
    }

    /// Judges a volume that was opened again after the power was cut when the script had come so far.
    pub fn check(&self, recovered: &dyn FileSystem, progress: Progress) -> Result<Found, Violation> {
        let found = Recovered::read(recovered)?;
        let reachable = found.inodes.len() as u64;
        if found.counted_inodes != self.inodes_base + reachable {
            let what = format!("statfs counts {} inodes, {reachable} can be reached", found.counted_inodes);
            return Err(Violation::Unsound(what));
        }
        let events = &self.script.events;
        let [happened, end] = self.script.between(progress);
        let is_promise = |event: &Event| matches!(event.what, Happened::Promise(_));
        let promised = events[..happened].iter().rposition(is_promise).map_or(0, |at| at + 1);
        let (mut at_promise, mut at_end, mut wrong_content) = (None, String::new(), None);
        for last in promised..=end {
            let is_moment = last == promised || matches!(events[last - 1].what, Happened::InOrder(_));
            if !is_moment {
                continue;
            }
            match self.compare_names(&self.script.state(last).names, &found) {
                Ok(inos) => match self.check_contents(recovered, &found, &inos, (last, happened, end)) {
                    Ok(()) => return Ok(Found { last, promised, happened }),
                    Err(violation) => wrong_content = Some(violation),
                },
                Err(difference) => {
                    at_promise.get_or_insert_with(|| difference.clone());
                    at_end = difference;
                }
            }
        }
        let at_promise = at_promise.unwrap_or_default();
        Err(wrong_content.unwrap_or(Violation::Names { promised, at_promise, end, at_end }))
    }

    /// Judges a volume that is still open, on which an act has failed: all that it was to do is there, or what its policy leaves. Whether
    /// it is done, if that makes a difference.
    pub fn check_open(&self, fs: &dyn FileSystem, progress: Progress) -> Result<Option<bool>, Violation> {
        let found = Recovered::read(fs)?;
        let [_, begun] = self.script.between(progress);
        let is = |state: &State, what: &str| -> Result<(), Violation> {
            let violation = |how| Violation::Unsound(format!("not as {what}: {how}"));
            for (of_memory, ino) in self.compare_names(&state.names, &found).map_err(violation)? {
                let inode = found.inode(ino)?;
                if inode.attr.kind == FileKind::File {
                    let exactly = Possible::promised(state.content(of_memory).to_vec());
                    let explained = exactly.explain(&found.content(fs, ino)?);
                    explained.map_err(|how| violation(format!("{}: {how}", inode.path)))?;
                }
            }
            Ok(())
        };
        let left = is(&self.script.left_by(progress)?, "its policy leaves it");
        match (left, is(self.script.state(begun), "it is done")) {
            (Ok(()), Ok(())) => Ok(None),
            (Ok(()), Err(_)) => Ok(Some(false)),
            (Err(_), Ok(())) => Ok(Some(true)),
            (Err(violation), Err(_)) => Err(violation),
        }
    }

    /// Matches the names in memory with those found: the inode of each inode in memory, or the first difference.
    fn compare_names(&self, wanted: &Recovered, found: &Recovered) -> Result<BTreeMap<Ino, Ino>, String> {
        let (mut inos, mut back) = (BTreeMap::new(), BTreeMap::new());
        let mut todo = vec![(Ino::ROOT, Ino::ROOT)];
        while let Some((of_memory, ino)) = todo.pop() {
            let (Some(want), Some(got)) = (wanted.inodes.get(&of_memory), found.inodes.get(&ino)) else {
                return Err(format!("inode {ino} is missing"));
            };
            let path = &got.path;
            match (inos.insert(of_memory, ino), back.insert(ino, of_memory)) {
                (None, None) => {}
                (Some(same), Some(_)) if same == ino => continue,
                _ => return Err(format!("{path} is not the inode that its other names are")),
            }
            let facts = |attr: &weft_vfs::Attr| (attr.kind, attr.perm, attr.uid, attr.gid);
            if ino != Ino::ROOT && facts(&want.attr) != facts(&got.attr) {
                return Err(format!("{path} is {:?}, not {:?}", facts(&got.attr), facts(&want.attr)));
            }
            if want.target != got.target {
                return Err(format!("{path} has another target"));
            }
            if want.xattrs != got.xattrs {
                return Err(format!("{path} has other extended attributes"));
            }
            let is_besides = |name: &Vec<u8>| ino == Ino::ROOT && self.besides.contains(name);
            for (name, child) in &want.entries {
                let Some(found) = got.entries.get(name) else {
                    return Err(format!("{path} lacks {}", name.escape_ascii()));
                };
                todo.push((*child, *found));
            }
            let mut others = got.entries.keys().filter(|name| !is_besides(name));
            if let Some(name) = others.find(|name| !want.entries.contains_key(*name)) {
                return Err(format!("{path} has {} besides", name.escape_ascii()));
            }
        }
        Ok(inos)
    }

    fn check_contents(
        &self,
        fs: &dyn FileSystem,
        found: &Recovered,
        inos: &BTreeMap<Ino, Ino>,
        (last, happened, end): (usize, usize, usize),
    ) -> Result<(), Violation> {
        for (of_memory, ino) in inos {
            let inode = found.inode(*ino)?;
            if inode.attr.kind != FileKind::File {
                continue;
            }
            let possible = self.possible(*of_memory, last, happened, end);
            possible.explain(&found.content(fs, *ino)?).map_err(|what| Violation::Content {
                path: inode.path.clone(),
                names_at: last,
                end,
                what,
            })?;
        }
        Ok(())
    }

    /// What a file may hold when of the changes in order those up to event `last` are there, and no other.
    fn possible(&self, file: Ino, last: usize, happened: usize, end: usize) -> Possible {
        let events = &self.script.events;
        let promises = |event: &Event| match event.what {
            Happened::Promise(Data::Of(ino)) => ino == file,
            Happened::Promise(data) => data == Data::OfAll,
            _ => false,
        };
        let promised = events[..happened].iter().rposition(promises);
        let start = promised.map_or(&self.script.start, |at| &events[at].after);
        let mut possible = Possible::promised(start.content(file).to_vec());
        for (at, event) in events[..end].iter().enumerate().skip(promised.unwrap_or(0)) {
            match &event.what {
                Happened::Write { ino, offset, data } if *ino == file => possible.write(*offset, data),
                Happened::InOrder(touches) => {
                    for (_, touch) in touches.iter().filter(|(ino, _)| *ino == file) {
                        // What was written behind a change that is not there is not there either.
                        if at >= last {
                            return possible;
                        }
                        match touch {
                            Touch::Content => {
                                possible = Possible::promised(event.after.content(file).to_vec())
                            }
                            Touch::Shape(shape) => possible.reshape(*shape),
                        }
                    }
                }
                _ => {}
            }
        }
        possible
    }
}
