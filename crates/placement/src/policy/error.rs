//! The errors of policies: each names the line, the value and the remedy.

use std::fmt;

/// A policy that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyError {
    /// The file, or the name under which the text was given.
    pub origin: String,
    /// The line of the text, counted from 1; 0 when the whole is meant.
    pub line: usize,
    /// The column of the line, in characters counted from 1; 0 when the line or the whole is meant.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(f, "{}: {}", self.origin, self.problem),
            (line, 0) => write!(f, "{}:{line}: {}", self.origin, self.problem),
            (line, column) => write!(f, "{}:{line}:{column}: {}", self.origin, self.problem),
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// What can be wrong with a policy. Each text names the value and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// Not TOML, an unknown key, a missing key or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// A pattern that is not a glob.
    #[error("{key} = \"{value}\" is not a pattern: {why}; use *, ?, [abc], {{a,b}} and, in paths, **")]
    BadGlob {
        /// Key with the wrong value.
        key: &'static str,
        /// Value as the file has it.
        value: String,
        /// What the pattern's reader said.
        why: String,
    },
    /// A rule or default that sends files to a stream that is not defined.
    #[error("there is no stream \"{name}\"; define it with [[stream]], or use one of: {known}")]
    UnknownStream {
        /// Name as the file has it.
        name: String,
        /// The streams that are defined.
        known: String,
    },
    /// Two streams of one name.
    #[error("stream \"{0}\" is defined twice; rename one of them")]
    DuplicateStream(String),
    /// A name that reports cannot show.
    #[error("\"{0}\" is not a name; use 1 to 32 letters, digits, '-' and '_'")]
    BadName(String),
    /// A size that cannot be read.
    #[error("{key}: {why}")]
    BadSize {
        /// Key with the wrong value.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A lifetime that cannot be read.
    #[error(
        "lifetime = \"{0}\" is none; use short, medium, long, extreme, unknown, or the bytes that the volume takes until the data dies, such as \"256M\""
    )]
    BadLifetime(String),
    /// A window that cannot be read.
    #[error("window = \"{value}\" does not go with by = \"{by}\"; use {remedy}")]
    BadWindow {
        /// Value as the file has it.
        value: String,
        /// How the group is formed.
        by: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// A group without what it needs, or with what it cannot use.
    #[error("group = {{ by = \"{by}\" }}: {remedy}")]
    BadGroup {
        /// How the group is formed.
        by: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// A number beyond its limits.
    #[error("{key} = {value} is out of range; use {min} to {max}")]
    OutOfRange {
        /// Key with the wrong value.
        key: &'static str,
        /// Its value.
        value: u64,
        /// Least value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A rule that no file can match.
    #[error("min_size = {min} is above max_size = {max}, so no file can match; swap them")]
    EmptySizes {
        /// Least size.
        min: u64,
        /// Largest size.
        max: u64,
    },
    /// A rule behind one without conditions.
    #[error(
        "this rule is never reached, because the rule in line {0} matches every file; move that one to the end"
    )]
    Unreachable(usize),
    /// No streams at all.
    #[error("the policy has no streams; add at least one [[stream]] with a name")]
    NoStreams,
}
