//! Why a file was placed where it was, in words.

use crate::context::{FileContext, OpenIntent};
use crate::name;
use crate::policy::{FileProperty, Policy};
use std::fmt;
use weft_core::units::format_size;
use weft_core::{DataClass, LifetimeGroup, StreamId};

/// Which policy and rule decided on a file, and what they decided. Printed, it takes five lines.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Explanation {
    /// The policy, or the mode when it has none.
    pub policy: String,
    /// Why that policy.
    pub why_policy: String,
    /// Line of the rule in the policy's file; `None` when no rule matched.
    pub rule_line: Option<usize>,
    /// What the rule asks for, or why there is none.
    pub why_stream: String,
    /// Number of the stream.
    pub stream: StreamId,
    /// Its name.
    pub stream_name: String,
    /// Its class.
    pub class: DataClass,
    /// The lifetime group.
    pub group: LifetimeGroup,
    /// How the stream forms groups.
    pub grouping: String,
    /// Bytes that the volume is expected to take from programs until the data dies; `None` = unknown.
    pub lifetime_bytes: Option<u64>,
    /// The rules that were tried, in order.
    pub considered: Vec<TriedRule>,
}

/// A rule that was tried on a file.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct TriedRule {
    /// Its policy.
    pub policy: String,
    /// The line in which it begins.
    pub line: usize,
    /// Its stream.
    pub stream: String,
    /// What it asks for, in words; empty when it takes every file.
    pub conditions: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a rule.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It decided.
    Decides,
    /// All that it asks for holds, but the rule in this line came first.
    TooLate(usize),
    /// This does not hold.
    Unmet {
        /// What it asks for.
        asked: FileProperty,
        /// What the file has instead.
        is: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Decides => f.write_str("decides"),
            Verdict::TooLate(line) => write!(f, "would match, but line {line} comes first"),
            Verdict::Unmet { asked, is } => {
                let what = match asked {
                    FileProperty::Path => "the path is",
                    FileProperty::Name => "the name is",
                    FileProperty::Shape => "the name's shape is",
                    FileProperty::Process => "the process is",
                    FileProperty::Thread => "the thread is",
                    FileProperty::Flags => "it is opened for",
                    FileProperty::Hint => "the hint is",
                    FileProperty::Size => "the size is",
                };
                let is = if is.is_empty() { "unknown" } else { is };
                write!(f, "{what} {is}")
            }
        }
    }
}

/// The rules of a policy as they were tried on a file. `decided` is the rule that decided, when one of them did.
pub(crate) fn consider(policy: &Policy, decided: Option<usize>, ctx: &FileContext<'_>) -> Vec<TriedRule> {
    let line_of = |index: usize| policy.rule(index).map_or(0, |rule| rule.line);
    let rules = policy.rules().zip(policy.unmet(ctx)).enumerate();
    rules
        .map(|(index, (rule, unmet))| TriedRule {
            policy: policy.name().to_string(),
            line: rule.line,
            stream: policy.streams().get(rule.stream).map_or_else(String::new, |s| s.name.clone()),
            conditions: rule.conditions.clone(),
            verdict: match (unmet, decided) {
                (Some(asked), _) => Verdict::Unmet { asked, is: of_file(asked, ctx) },
                (None, Some(first)) if first < index => Verdict::TooLate(line_of(first)),
                (None, _) => Verdict::Decides,
            },
        })
        .collect()
}

/// What a file has of what a rule asks for.
fn of_file(asked: FileProperty, ctx: &FileContext<'_>) -> String {
    let (_, file_name) = name::split(ctx.path);
    match asked {
        FileProperty::Path => String::from_utf8_lossy(ctx.path).into_owned(),
        FileProperty::Name => String::from_utf8_lossy(file_name).into_owned(),
        FileProperty::Shape => name::shape(file_name).to_string(),
        FileProperty::Process => ctx.process.to_string(),
        FileProperty::Thread => ctx.thread.to_string(),
        FileProperty::Flags => {
            let set = OpenIntent::NAMES.iter().filter(|(_, bit)| ctx.flags.contains(*bit));
            set.map(|(name, _)| *name).collect::<Vec<_>>().join("+")
        }
        FileProperty::Hint => ctx.hint.to_string(),
        FileProperty::Size => format_size(ctx.size),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy    {}: {}", self.policy, self.why_policy)?;
        match self.rule_line {
            Some(line) => writeln!(f, "rule      line {line}: {}", self.why_stream)?,
            None => writeln!(f, "rule      none: {}", self.why_stream)?,
        }
        let class = self.class.name();
        writeln!(f, "stream    {} (number {}, class {class})", self.stream_name, self.stream)?;
        writeln!(f, "group     {}: {}", self.group, self.grouping)?;
        match self.lifetime_bytes {
            Some(bytes) => write!(f, "lifetime  about {} written", format_size(bytes)),
            None => f.write_str("lifetime  unknown"),
        }
    }
}
