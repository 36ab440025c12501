//! The engine: from what is known of a file to the tag its data carries.
//!
//! A file passes three steps. *Which policy*: the one given, or the shipped one that suits; a directory whose files
//! betray a program counts before the process's name, because tools (`cp`, `ldb`) touch other programs' directories.
//! *Which stream*: the first rule that matches, else the policy's default, else the generic policy's. *Which lifetime
//! group*, and when the data will die: by the stream's own grouping and by the deaths that were observed.
//!
//! Numbers of streams are recorded on volumes, so they must mean the same in every run: the streams of policies are
//! numbered in the order of the files, those that a stream splits into by a hash of their value.
//!
//! Concurrency: everything is `&self`. Streams live in a table that only grows, read without a lock; the maps (process
//! to policy, directory to policy, split value to stream) are bounded, read-mostly and each behind a lock of its own,
//! of which none is held while another is taken.

use crate::context::{FileContext, OpenIntent};
use crate::estimate::{LifetimeEstimate, LifetimeSummary};
use crate::explain::{self, Explanation, TriedRule};
use crate::group::Grouper;
use crate::hash::stable_hash;
use crate::mode::{Mode, RANDOM_STREAMS};
use crate::name;
use crate::policy::{GroupSpec, Match, Policy, PolicyError, Problem, Split, SplitBy, StreamSpec};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use weft_core::random::spread;
use weft_core::{DataClass, LifetimeGroup, Origin, StreamId, Tag, TagFlags};

/// First number of the streams that others split into.
const SPLIT_FIRST: usize = 256;
/// Numbers of streams in all. Number 0 is the file core's metadata.
const STREAMS_END: usize = 1024;
/// Names of processes that are remembered.
const PROCESSES_MAX: usize = 1024;
/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 16_384;

const SUFFIX_POLICY: &str = include_str!("../policies/suffix.toml");

/// Decides which stream and lifetime group data belongs to.
#[derive(Debug)]
pub struct Engine {
    mode: Mode,
    seed: u64,
    /// The policies, in the order in which programs are looked for. None in modes without rules.
    policies: Vec<Policy>,
    /// Number of the first stream of each policy.
    first_stream: Vec<u16>,
    /// Whether one policy was given and decides for every program.
    fixed: bool,
    /// Index of the policy for files that no rule of theirs matched.
    fallback: usize,
    table: Box<[OnceLock<Box<Stream>>]>,
    by_process: RwLock<FxHashMap<Box<str>, Option<u8>>>,
    by_directory: RwLock<FxHashMap<u64, u8>>,
    by_split: RwLock<FxHashMap<u64, u16>>,
}

#[derive(Debug)]
struct Stream {
    name: String,
    policy: String,
    class: DataClass,
    grouper: Grouper,
    lifetime: LifetimeEstimate,
    split: Option<Split>,
    /// How many streams it was split into.
    splits: AtomicU32,
    files: AtomicU64,
}

impl Stream {
    /// A stream that holds nothing yet; the name of `spec` is the whole name.
    fn new(policy: String, spec: StreamSpec) -> Stream {
        Stream {
            name: spec.name,
            policy,
            class: spec.class,
            grouper: Grouper::new(spec.group),
            lifetime: LifetimeEstimate::new(spec.lifetime_bytes),
            split: spec.split,
            splits: AtomicU32::new(0),
            files: AtomicU64::new(0),
        }
    }
}

/// A stream, for reports.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct StreamInfo {
    /// Its number, as tags carry it.
    pub id: StreamId,
    /// Its name: `policy.stream`, with `:value` when it was split.
    pub name: String,
    /// The policy that it belongs to.
    pub policy: String,
    /// What kind of data it holds.
    pub class: DataClass,
    /// Files placed in it; one that is opened again counts again.
    pub files: u64,
    /// What is known of its lifetimes.
    pub lifetime: LifetimeSummary,
}

/// Which policy decides, and why that one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChosenBy {
    Given,
    Directory,
    Process,
    Path,
    Fallback,
}

impl Engine {
    /// An engine. Without a policy, [`Mode::Rules`] chooses a shipped one for each program. Other modes have no use
    /// for a policy and ignore it. The seed matters to [`Mode::Random`] only.
    ///
    /// # Errors
    /// When a shipped policy has more streams than there are numbers, or cannot be read: a defect of the build.
    pub fn new(mode: Mode, policy: Option<Policy>, seed: u64) -> Result<Engine, PolicyError> {
        let generic = || Policy::parse(generic_text(), "shipped policy generic");
        let (policies, fixed) = match (mode, policy) {
            (Mode::Off | Mode::Random, _) => (Vec::new(), true),
            (Mode::Suffix, _) => (vec![Policy::parse(SUFFIX_POLICY, "mode suffix")?], true),
            (Mode::Rules, Some(policy)) => (vec![policy, generic()?], true),
            (Mode::Rules, None) => (Policy::shipped()?, false),
        };
        let mut engine = Engine {
            mode,
            seed,
            first_stream: Vec::with_capacity(policies.len()),
            fixed,
            fallback: policies.len().saturating_sub(1),
            table: (0..STREAMS_END).map(|_| OnceLock::new()).collect(),
            by_process: RwLock::default(),
            by_directory: RwLock::default(),
            by_split: RwLock::default(),
            policies,
        };
        engine.number_streams()?;
        Ok(engine)
    }

    /// The tag of a file's data: to be asked when it is created or opened for writing, and again when it is renamed or
    /// the program tells a [`WriteHint`](crate::WriteHint).
    pub fn place(&self, ctx: &FileContext<'_>) -> Tag {
        if ctx.flags.contains(OpenIntent::CREATE) {
            self.learn_name(ctx.path);
        }
        let id = self.stream_of(ctx);
        let Some(stream) = self.stream(id) else { return Tag { owner: ctx.uid, ..Tag::default() } };
        stream.files.fetch_add(1, Relaxed);
        Tag {
            death: stream.lifetime.expected_bytes().map_or(0, |b| ctx.volume_bytes.saturating_add(b)),
            owner: ctx.uid,
            stream: id,
            group: stream.grouper.group(ctx),
            class: stream.class,
            origin: Origin::Host,
            flags: TagFlags::empty(),
        }
    }

    /// Takes note of a file that is on the volume, so that its directory's program is known before it runs. [`place`]
    /// does this for files that it sees created; the owner of a volume may do it for those that were there before.
    ///
    /// [`place`]: Engine::place
    pub fn learn_name(&self, path: &[u8]) {
        if self.fixed {
            return;
        }
        let (directory, name) = name::split(path);
        let Some(policy) = self.policies.iter().position(|p| p.applies().is_evidence(name)) else { return };
        let key = stable_hash(&[directory]);
        if self.by_directory.read().get(&key) == Some(&(policy as u8)) {
            return;
        }
        let mut map = self.by_directory.write();
        if map.len() < DIRECTORIES_MAX {
            map.insert(key, policy as u8);
            tracing::debug!(
                directory = %String::from_utf8_lossy(directory),
                policy = self.policies[policy].name(),
                evidence = %String::from_utf8_lossy(name),
                "directory recognised"
            );
        }
    }

    /// Takes the death of a file's data: `size` bytes that were written when the volume had taken `born_at_bytes` from
    /// programs, deleted when it had taken `died_at_bytes`.
    pub fn observe_death(&self, tag: &Tag, path: &[u8], size: u64, born_at_bytes: u64, died_at_bytes: u64) {
        let Some(stream) = self.stream(tag.stream) else {
            tracing::trace!(stream = tag.stream.0, path = %String::from_utf8_lossy(path), "death in an unknown stream");
            return;
        };
        stream.lifetime.observe(size, died_at_bytes.saturating_sub(born_at_bytes));
    }

    /// Name of a stream; `None` when no file was ever placed in one of this number and no policy has it.
    pub fn stream_name(&self, id: StreamId) -> Option<&str> {
        self.stream(id).map(|s| s.name.as_str())
    }

    /// The streams that hold or held files, in the order of their numbers.
    pub fn streams(&self) -> Vec<StreamInfo> {
        let used = |stream: &Stream| stream.files.load(Relaxed) > 0 || stream.lifetime.summary().deaths > 0;
        self.table
            .iter()
            .enumerate()
            .filter_map(|(id, slot)| slot.get().map(|stream| (id, stream)))
            .filter(|(_, stream)| used(stream))
            .map(|(id, stream)| StreamInfo {
                id: StreamId(id as u16),
                name: stream.name.clone(),
                policy: stream.policy.clone(),
                class: stream.class,
                files: stream.files.load(Relaxed),
                lifetime: stream.lifetime.summary(),
            })
            .collect()
    }

    /// Bytes that the volume is expected to take until data of a stream dies; `None` when nothing is known.
    pub fn lifetime_bytes(&self, id: StreamId) -> Option<u64> {
        self.stream(id)?.lifetime.expected_bytes()
    }

    /// How the engine decides.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Name of the policy that decides; `auto` when one is chosen for each program, the mode's name when it has none.
    pub fn policy_name(&self) -> &str {
        match (self.fixed, self.policies.first()) {
            (false, _) => "auto",
            (true, Some(policy)) => policy.name(),
            (true, None) => self.mode.name(),
        }
    }

    /// What [`place`](Engine::place) would do with a file and why, without counting it.
    pub fn explain(&self, ctx: &FileContext<'_>) -> Explanation {
        let id = self.stream_of(ctx);
        let stream = self.stream(id);
        let decided = self.decide(ctx);
        let policy = decided.map(|(at, _, _)| &self.policies[at]);
        let rule = decided.and_then(|(at, matched, _)| self.policies[at].rule(matched.rule?));
        let why_policy = match decided.map(|(_, _, chosen)| chosen) {
            None => format!("mode {} has no policy", self.mode),
            Some(ChosenBy::Given) => "it was given".to_string(),
            Some(ChosenBy::Directory) => "files of its kind are in the directory".to_string(),
            Some(ChosenBy::Process) => format!("it applies to process {}", ctx.process),
            Some(ChosenBy::Path) => "it applies to the path".to_string(),
            Some(ChosenBy::Fallback) => "no other policy has a rule for the file".to_string(),
        };
        Explanation {
            policy: policy.map_or(self.mode.name(), Policy::name).to_string(),
            why_policy,
            rule_line: rule.map(|r| r.line),
            why_stream: match (rule, policy) {
                (Some(rule), _) if rule.conditions.is_empty() => "the rule takes every file".to_string(),
                (Some(rule), _) => rule.conditions.clone(),
                (None, Some(_)) => "no rule matches; this is the policy's default stream".to_string(),
                (None, None) => format!("mode {}", self.mode),
            },
            stream: id,
            stream_name: stream.map_or_else(String::new, |s| s.name.clone()),
            class: stream.map_or(DataClass::Unknown, |s| s.class),
            group: stream.map_or(LifetimeGroup(0), |s| s.grouper.peek(ctx)),
            grouping: stream.map_or_else(String::new, |s| s.grouper.spec().to_string()),
            lifetime_bytes: stream.and_then(|s| s.lifetime.expected_bytes()),
            considered: self.considered(ctx, decided),
        }
    }

    /// The rules that were tried, of the policy that was chosen and of the one that took what it left.
    fn considered(&self, ctx: &FileContext<'_>, decided: Option<(usize, Match, ChosenBy)>) -> Vec<TriedRule> {
        let Some((deciding, matched, _)) = decided else { return Vec::new() };
        let chosen = self.choose(ctx).map(|(policy, _)| policy);
        let mut tried = Vec::new();
        if let Some(chosen) = chosen.filter(|&chosen| chosen != deciding) {
            tried.extend(explain::consider(&self.policies[chosen], None, ctx));
        }
        tried.extend(explain::consider(&self.policies[deciding], matched.rule, ctx));
        tried
    }

    fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.table.get(usize::from(id.0))?.get().map(Box::as_ref)
    }

    fn stream_of(&self, ctx: &FileContext<'_>) -> StreamId {
        match self.mode {
            Mode::Off => StreamId(1),
            Mode::Random => {
                let draw = spread(stable_hash(&[&self.seed.to_le_bytes(), ctx.path]));
                StreamId(1 + (draw % u64::from(RANDOM_STREAMS)) as u16)
            }
            Mode::Suffix | Mode::Rules => match self.decide(ctx) {
                Some((policy, matched, _)) => {
                    self.split(StreamId(self.first_stream[policy] + matched.stream as u16), ctx.path)
                }
                None => StreamId(0),
            },
        }
    }

    /// The policy that decides on a file, and what it decides.
    fn decide(&self, ctx: &FileContext<'_>) -> Option<(usize, Match, ChosenBy)> {
        let (policy, chosen) = self.choose(ctx)?;
        if let Some(matched) = self.policies[policy].classify(ctx) {
            return Some((policy, matched, chosen));
        }
        let matched = self.policies[self.fallback].classify(ctx)?;
        Some((self.fallback, matched, ChosenBy::Fallback))
    }

    fn choose(&self, ctx: &FileContext<'_>) -> Option<(usize, ChosenBy)> {
        if self.policies.is_empty() {
            return None;
        }
        if self.fixed {
            return Some((0, ChosenBy::Given));
        }
        let directory = stable_hash(&[name::split(ctx.path).0]);
        if let Some(policy) = self.by_directory.read().get(&directory) {
            return Some((usize::from(*policy), ChosenBy::Directory));
        }
        if let Some(policy) = self.policy_of_process(ctx.process) {
            return Some((policy, ChosenBy::Process));
        }
        let of_path = self.policies.iter().position(|p| p.applies().to_path(ctx.path));
        Some(of_path.map_or((self.fallback, ChosenBy::Fallback), |policy| (policy, ChosenBy::Path)))
    }

    fn policy_of_process(&self, process: &str) -> Option<usize> {
        if let Some(known) = self.by_process.read().get(process) {
            return known.map(usize::from);
        }
        let found = self.policies.iter().position(|p| p.applies().to_process(process));
        let mut map = self.by_process.write();
        if map.len() < PROCESSES_MAX {
            map.insert(process.into(), found.map(|p| p as u8));
        }
        found
    }

    /// The stream itself or, when it stands for several, the one for the file's value of the property.
    fn split(&self, base: StreamId, path: &[u8]) -> StreamId {
        let Some(stream) = self.stream(base) else { return base };
        let Some(split) = stream.split else { return base };
        let (directory, file_name) = name::split(path);
        let shape;
        let value = match split.by {
            SplitBy::Suffix => name::suffix(file_name),
            SplitBy::Directory => directory,
            SplitBy::Shape => {
                shape = name::shape(file_name);
                shape.as_bytes()
            }
        };
        let key = stable_hash(&[stream.name.as_bytes(), value]);
        if let Some(id) = self.by_split.read().get(&key) {
            return StreamId(*id);
        }
        self.add_split(base, stream, split, key, value)
    }

    fn add_split(&self, base: StreamId, stream: &Stream, split: Split, key: u64, value: &[u8]) -> StreamId {
        // The write lock orders the makers of streams, so a free place stays free until it is taken here.
        let mut map = self.by_split.write();
        if let Some(id) = map.get(&key) {
            return StreamId(*id);
        }
        if stream.splits.load(Relaxed) >= u32::from(split.max) {
            return base;
        }
        let places = STREAMS_END - SPLIT_FIRST;
        let first = (spread(key) % places as u64) as usize;
        let free = (0..places)
            .map(|step| SPLIT_FIRST + (first + step) % places)
            .find(|&at| self.table[at].get().is_none());
        let Some(at) = free else { return base };
        let shown = if value.is_empty() { "(none)".into() } else { String::from_utf8_lossy(value) };
        let spec = StreamSpec {
            name: format!("{}:{shown}", stream.name),
            class: stream.class,
            lifetime_bytes: stream.lifetime.expected_bytes(),
            group: stream.grouper.spec(),
            split: None,
        };
        if self.table[at].set(Box::new(Stream::new(stream.policy.clone(), spec))).is_err() {
            return base;
        }
        stream.splits.fetch_add(1, Relaxed);
        map.insert(key, at as u16);
        StreamId(at as u16)
    }

    /// Gives every stream that a mode or policy defines its number, from 1.
    fn number_streams(&mut self) -> Result<(), PolicyError> {
        let plain = |name: String| StreamSpec {
            name,
            class: DataClass::Unknown,
            lifetime_bytes: None,
            group: GroupSpec::ONE,
            split: None,
        };
        let mut specs: Vec<(String, StreamSpec)> = match self.mode {
            Mode::Off => vec![("off".to_string(), plain("all".to_string()))],
            Mode::Random => {
                (0..RANDOM_STREAMS).map(|n| ("random".to_string(), plain(n.to_string()))).collect()
            }
            Mode::Suffix | Mode::Rules => Vec::new(),
        };
        for policy in &self.policies {
            self.first_stream.push(1 + specs.len() as u16);
            specs.extend(policy.streams().iter().map(|s| (policy.name().to_string(), s.clone())));
        }
        if specs.len() >= SPLIT_FIRST {
            let (value, max) = (specs.len() as u64, SPLIT_FIRST as u64 - 1);
            return Err(PolicyError {
                origin: "policies".to_string(),
                line: 0,
                column: 0,
                problem: Problem::OutOfRange { key: "number of streams", value, min: 1, max },
            });
        }
        for (slot, (policy, spec)) in self.table.iter_mut().skip(1).zip(specs) {
            let spec = StreamSpec { name: format!("{policy}.{}", spec.name), ..spec };
            *slot = OnceLock::from(Box::new(Stream::new(policy, spec)));
        }
        Ok(())
    }
}

fn generic_text() -> &'static str {
    Policy::shipped_texts().last().map_or("", |(_, text)| text)
}
