//! A policy that has been checked and compiled, and how a file is matched against it.

use super::error::{PolicyError, Problem};
use super::file::{Patterns, PolicyFile, RuleFile, StreamFile};
use super::stream::{GroupSpec, SPLIT_DEFAULT, SPLIT_MAX, Split, StreamSpec, read_lifetime};
use crate::context::{FileContext, OpenIntent, WriteHint};
use crate::name;
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use toml::Spanned;
use weft_core::units::{format_size, parse_size};

/// Most rules of a policy: one bit each.
pub const RULES_MAX: usize = 128;
/// Most streams of a policy.
pub const STREAMS_MAX: usize = 64;

/// A set of rules, one bit each.
type RuleMask = u128;

/// What patterns of a kind test, their key, whether they are for paths, and the list of a rule.
type PatternKind = (FileProperty, &'static str, bool, fn(&RuleFile) -> &Patterns);

/// The kinds of patterns; [`Policy::matching`] has the text that each is for.
const PATTERN_KINDS: [PatternKind; 5] = [
    (FileProperty::Path, "path", true, |rule| &rule.path),
    (FileProperty::Name, "name", false, |rule| &rule.name),
    (FileProperty::Shape, "shape", false, |rule| &rule.shape),
    (FileProperty::Process, "process", false, |rule| &rule.process),
    (FileProperty::Thread, "thread", false, |rule| &rule.thread),
];

/// A policy, ready to be asked.
#[derive(Debug)]
pub struct Policy {
    name: String,
    about: String,
    applies: Applies,
    streams: Vec<StreamSpec>,
    default: Option<usize>,
    rules: Vec<Rule>,
    /// By kind, as [`PATTERN_KINDS`] has them.
    patterns: Vec<PatternSet>,
}

/// To what a policy applies when none is chosen by hand.
#[derive(Debug)]
pub struct Applies {
    process: PatternSet,
    path: PatternSet,
    evidence: PatternSet,
}

/// Where a policy sends a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// Index of the stream in [`Policy::streams`].
    pub stream: usize,
    /// Index of the rule in [`Policy::rules`]; `None` when no rule matched and the policy's default stream took it.
    pub rule: Option<usize>,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// The line in which it begins.
    pub line: usize,
    /// Its conditions in words; empty when it takes every file.
    pub conditions: String,
    /// Index of its stream in [`Policy::streams`].
    pub stream: usize,
    flags: OpenIntent,
    /// One bit per hint; 0 = any.
    hints: u8,
    min_size: u64,
    max_size: u64,
}

/// The patterns of one kind, of all rules.
#[derive(Debug)]
struct PatternSet {
    set: GlobSet,
    /// The rule of each pattern.
    owner: Vec<u8>,
    /// Rules that have no pattern of this kind and take anything.
    indifferent: RuleMask,
}

impl Applies {
    /// Whether the policy is meant for a program of this name.
    pub fn to_process(&self, process: &str) -> bool {
        self.process.matches_any(process.as_bytes())
    }

    /// Whether the policy is meant for a path.
    pub fn to_path(&self, path: &[u8]) -> bool {
        self.path.matches_any(path)
    }

    /// Whether a file of this name tells that its directory belongs to a program that the policy is meant for.
    pub fn is_evidence(&self, name: &[u8]) -> bool {
        self.evidence.matches_any(name)
    }
}

impl Policy {
    /// Reads a policy. `origin` is what errors call the text: usually its file's path.
    pub fn parse(text: &str, origin: &str) -> Result<Policy, PolicyError> {
        let source = Source { text, origin };
        let file: PolicyFile = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|s| s.start);
            source.error(Problem::Syntax(e.message().to_string()), at)
        })?;
        source.check_name(&file.name)?;
        let streams = source.streams(&file.stream)?;
        let default = file.default.as_ref().map(|name| source.find(&streams, name)).transpose()?;
        source.check_range("number of rules", file.rule.len() as u64, 0..=RULES_MAX as u64, None)?;
        let mut rules = Vec::with_capacity(file.rule.len());
        for rule in &file.rule {
            rules.push(source.rule(rule, &streams, &rules)?);
        }
        let of_rules = |(_, key, path, pick): PatternKind| {
            let lists: Vec<&Patterns> = file.rule.iter().map(|r| pick(r.get_ref())).collect();
            PatternSet::compile(&source, key, path, &lists)
        };
        let alone =
            |list: &Patterns, key: &'static str, path: bool| PatternSet::compile(&source, key, path, &[list]);
        Ok(Policy {
            applies: Applies {
                process: alone(&file.applies.process, "process", false)?,
                path: alone(&file.applies.path, "path", true)?,
                evidence: alone(&file.applies.evidence, "evidence", false)?,
            },
            patterns: PATTERN_KINDS.into_iter().map(of_rules).collect::<Result<_, _>>()?,
            name: file.name.into_inner(),
            about: file.about,
            streams,
            default,
            rules,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says of itself, in a sentence; may be empty.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// To what it applies when none is chosen by hand.
    pub fn applies(&self) -> &Applies {
        &self.applies
    }

    /// Its streams, in the order of the file.
    pub fn streams(&self) -> &[StreamSpec] {
        &self.streams
    }

    /// The stream of files that no rule matches; without one, the generic policy decides on them.
    pub fn default_stream(&self) -> Option<&StreamSpec> {
        self.streams.get(self.default?)
    }

    /// Its rules, in the order in which they are tried.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// A rule by its index.
    pub fn rule(&self, index: usize) -> Option<&Rule> {
        self.rules.get(index)
    }

    /// The stream of a file: that of the first rule that matches, else the default; `None` when there is neither.
    pub fn classify(&self, ctx: &FileContext<'_>) -> Option<Match> {
        let mut candidates = self.matching(ctx).into_iter().fold(RuleMask::MAX, |all, mask| all & mask);
        while candidates != 0 {
            let index = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            if let Some(rule) = self.rules.get(index).filter(|rule| rule.admits(ctx)) {
                return Some(Match { stream: rule.stream, rule: Some(index) });
            }
        }
        self.default.map(|stream| Match { stream, rule: None })
    }
}

/// The properties of a file that a rule can test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileProperty {
    /// Its path.
    Path,
    /// Its name.
    Name,
    /// Its name with digits collapsed.
    Shape,
    /// The process that opens it.
    Process,
    /// The thread that opens it.
    Thread,
    /// How it is opened.
    Flags,
    /// The lifetime that the program told.
    Hint,
    /// Its size.
    Size,
}

impl Policy {
    /// For each kind of pattern, the rules whose patterns match the file.
    fn matching(&self, ctx: &FileContext<'_>) -> [RuleMask; PATTERN_KINDS.len()] {
        let (_, file_name) = name::split(ctx.path);
        let shape = if self.patterns[2].is_empty() { String::new() } else { name::shape(file_name) };
        let texts: [&[u8]; PATTERN_KINDS.len()] =
            [ctx.path, file_name, shape.as_bytes(), ctx.process.as_bytes(), ctx.thread.as_bytes()];
        std::array::from_fn(|kind| self.patterns[kind].matching(texts[kind]))
    }

    /// For each rule, in order, the first thing it asks for that does not hold of the file; `None` when all hold.
    pub fn unmet(&self, ctx: &FileContext<'_>) -> Vec<Option<FileProperty>> {
        let patterns = self.matching(ctx);
        let of_rule = |(index, rule): (usize, &Rule)| {
            let mut kinds = PATTERN_KINDS.iter().zip(patterns);
            let unmatched = kinds.find(|(_, mask)| mask & (1 << index) == 0);
            unmatched.map(|((asked, ..), _)| *asked).or_else(|| rule.refuses(ctx))
        };
        self.rules.iter().enumerate().map(of_rule).collect()
    }
}

impl Rule {
    /// The first condition that is no pattern and does not hold.
    fn refuses(&self, ctx: &FileContext<'_>) -> Option<FileProperty> {
        if !ctx.flags.contains(self.flags) {
            return Some(FileProperty::Flags);
        }
        if self.hints != 0 && self.hints & (1 << ctx.hint as u8) == 0 {
            return Some(FileProperty::Hint);
        }
        (!(self.min_size..=self.max_size).contains(&ctx.size)).then_some(FileProperty::Size)
    }

    /// Whether the conditions that are not patterns hold.
    fn admits(&self, ctx: &FileContext<'_>) -> bool {
        self.refuses(ctx).is_none()
    }
}

impl PatternSet {
    fn compile(
        source: &Source<'_>,
        key: &'static str,
        path: bool,
        lists: &[&Patterns],
    ) -> Result<PatternSet, PolicyError> {
        let mut builder = GlobSetBuilder::new();
        let mut owner = Vec::new();
        let mut indifferent = 0;
        let bad = |value: &str, why: String, at| {
            source.error(Problem::BadGlob { key, value: value.to_string(), why }, at)
        };
        for (index, list) in lists.iter().enumerate() {
            if list.0.is_empty() {
                indifferent |= 1 << index;
            }
            for pattern in &list.0 {
                let text = pattern.get_ref();
                let glob = GlobBuilder::new(text)
                    .literal_separator(path)
                    .backslash_escape(true)
                    .build()
                    .map_err(|e| bad(text, e.kind().to_string(), Some(pattern.span().start)))?;
                builder.add(glob);
                owner.push(index as u8);
            }
        }
        let set = builder.build().map_err(|e| bad("", e.to_string(), None))?;
        Ok(PatternSet { set, owner, indifferent })
    }

    fn is_empty(&self) -> bool {
        self.owner.is_empty()
    }

    /// The rules whose patterns of this kind match, with those that have none.
    fn matching(&self, text: &[u8]) -> RuleMask {
        if self.is_empty() {
            return self.indifferent;
        }
        let candidate = Candidate::new(Path::new(OsStr::from_bytes(text)));
        let mut found = Vec::new();
        self.set.matches_candidate_into(&candidate, &mut found);
        found.iter().fold(self.indifferent, |mask, &pattern| mask | 1 << self.owner[pattern])
    }

    fn matches_any(&self, text: &[u8]) -> bool {
        !self.is_empty() && self.set.is_match(Path::new(OsStr::from_bytes(text)))
    }
}

/// The text of a policy while it is read, for errors that name the line.
struct Source<'a> {
    text: &'a str,
    origin: &'a str,
}

impl Source<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|&&b| b == b'\n').count()
    }

    /// Characters of the line up to a place, that place included.
    fn column(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        1 + before.chars().rev().take_while(|&c| c != '\n').count()
    }

    fn error(&self, problem: Problem, at: Option<usize>) -> PolicyError {
        let (line, column) = at.map_or((0, 0), |at| (self.line(at), self.column(at)));
        PolicyError { origin: self.origin.to_string(), line, column, problem }
    }

    fn check_range(
        &self,
        key: &'static str,
        value: u64,
        range: RangeInclusive<u64>,
        at: Option<usize>,
    ) -> Result<(), PolicyError> {
        if range.contains(&value) {
            return Ok(());
        }
        let (min, max) = range.into_inner();
        Err(self.error(Problem::OutOfRange { key, value, min, max }, at))
    }

    fn check_name(&self, name: &Spanned<String>) -> Result<(), PolicyError> {
        let text = name.get_ref();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=32).contains(&text.len()) && text.chars().all(good) {
            return Ok(());
        }
        Err(self.error(Problem::BadName(text.clone()), Some(name.span().start)))
    }

    fn streams(&self, files: &[StreamFile]) -> Result<Vec<StreamSpec>, PolicyError> {
        if files.is_empty() {
            return Err(self.error(Problem::NoStreams, None));
        }
        self.check_range("number of streams", files.len() as u64, 1..=STREAMS_MAX as u64, None)?;
        let mut streams: Vec<StreamSpec> = Vec::with_capacity(files.len());
        for file in files {
            self.check_name(&file.name)?;
            let name = file.name.get_ref();
            let at = file.name.span().start;
            if streams.iter().any(|s| s.name == *name) {
                return Err(self.error(Problem::DuplicateStream(name.clone()), Some(at)));
            }
            streams.push(StreamSpec {
                name: name.clone(),
                class: file.class,
                lifetime_bytes: self.lifetime(file)?,
                group: self.group(file)?,
                split: self.split(file)?,
            });
        }
        Ok(streams)
    }

    fn lifetime(&self, file: &StreamFile) -> Result<Option<u64>, PolicyError> {
        let Some(text) = &file.lifetime else { return Ok(None) };
        read_lifetime(text.get_ref())
            .ok_or_else(|| self.error(Problem::BadLifetime(text.get_ref().clone()), Some(text.span().start)))
    }

    fn group(&self, file: &StreamFile) -> Result<GroupSpec, PolicyError> {
        let Some(group) = &file.group else { return Ok(GroupSpec::ONE) };
        GroupSpec::read(group.get_ref())
            .map_err(|(problem, at)| self.error(problem, Some(at.unwrap_or(group.span().start))))
    }

    fn split(&self, file: &StreamFile) -> Result<Option<Split>, PolicyError> {
        let (value, at) = match &file.split_max {
            None => (u64::from(SPLIT_DEFAULT), None),
            Some(max) => (*max.get_ref(), Some(max.span().start)),
        };
        match (file.split, at) {
            (None, Some(at)) => {
                let remedy = "split_max needs split = \"suffix\", \"shape\" or \"directory\" beside it";
                Err(self.error(Problem::Syntax(remedy.to_string()), Some(at)))
            }
            (None, None) => Ok(None),
            (Some(by), _) => {
                self.check_range("split_max", value, 1..=u64::from(SPLIT_MAX), at)?;
                Ok(Some(Split { by, max: value as u16 }))
            }
        }
    }

    fn find(&self, streams: &[StreamSpec], name: &Spanned<String>) -> Result<usize, PolicyError> {
        streams.iter().position(|s| s.name == *name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = streams.iter().map(|s| s.name.as_str()).collect();
            let problem = Problem::UnknownStream { name: name.get_ref().clone(), known: known.join(", ") };
            self.error(problem, Some(name.span().start))
        })
    }

    fn rule(
        &self,
        spanned: &Spanned<RuleFile>,
        streams: &[StreamSpec],
        before: &[Rule],
    ) -> Result<Rule, PolicyError> {
        let file = spanned.get_ref();
        let at = spanned.span().start;
        if let Some(all) = before.iter().find(|r| r.conditions.is_empty()) {
            return Err(self.error(Problem::Unreachable(all.line), Some(at)));
        }
        let min_size = self.size("min_size", file.min_size.as_ref())?;
        let max_size = self.size("max_size", file.max_size.as_ref())?;
        if let (Some(min), Some(max)) = (min_size, max_size)
            && min > max
        {
            return Err(self.error(Problem::EmptySizes { min, max }, Some(at)));
        }
        let flags = file.flags.iter().fold(OpenIntent::empty(), |all, flag| {
            all | OpenIntent::NAMES.get(*flag as usize).map_or(OpenIntent::empty(), |(_, bit)| *bit)
        });
        Ok(Rule {
            line: self.line(at),
            conditions: conditions_in_words(file, flags, min_size, max_size),
            flags,
            hints: file.hint.iter().fold(0, |mask, hint| mask | 1 << *hint as u8),
            min_size: min_size.unwrap_or(0),
            max_size: max_size.unwrap_or(u64::MAX),
            stream: self.find(streams, &file.stream)?,
        })
    }

    fn size(&self, key: &'static str, text: Option<&Spanned<String>>) -> Result<Option<u64>, PolicyError> {
        let Some(text) = text else { return Ok(None) };
        match parse_size(text.get_ref()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) => Err(self.error(Problem::BadSize { key, why: e.to_string() }, Some(text.span().start))),
        }
    }
}

/// `name *.sst, thread rocksdb:high`; empty when the rule takes every file.
fn conditions_in_words(file: &RuleFile, flags: OpenIntent, min: Option<u64>, max: Option<u64>) -> String {
    let mut words: Vec<String> = Vec::new();
    for (_, kind, _, list_of) in PATTERN_KINDS {
        let list = list_of(file);
        if !list.0.is_empty() {
            let patterns: Vec<&str> = list.0.iter().map(|p| p.get_ref().as_str()).collect();
            words.push(format!("{kind} {}", patterns.join(" or ")));
        }
    }
    let names: Vec<&str> =
        OpenIntent::NAMES.iter().filter(|(_, bit)| flags.contains(*bit)).map(|(name, _)| *name).collect();
    if !names.is_empty() {
        words.push(format!("opened for {}", names.join("+")));
    }
    if !file.hint.is_empty() {
        let hints: Vec<String> = file.hint.iter().map(WriteHint::to_string).collect();
        words.push(format!("hint {}", hints.join(" or ")));
    }
    let mut size = String::new();
    if let Some(min) = min {
        let _ = write!(size, " of at least {}", format_size(min));
    }
    if let Some(max) = max {
        let _ = write!(size, " of at most {}", format_size(max));
    }
    if !size.is_empty() {
        words.push(format!("size{size}"));
    }
    words.join(", ")
}
