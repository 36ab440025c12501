//! Why a file was placed where it was, in words.

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
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy    {}: {}", self.policy, self.why_policy)?;
        match self.rule_line {
            Some(line) => writeln!(f, "rule      line {line}: {}", self.why_stream)?,
            None => writeln!(f, "rule      none: {}", self.why_stream)?,
        }
        let class = class_name(self.class);
        writeln!(f, "stream    {} (number {}, class {class})", self.stream_name, self.stream)?;
        writeln!(f, "group     {}: {}", self.group, self.grouping)?;
        match self.lifetime_bytes {
            Some(bytes) => write!(f, "lifetime  about {} written", format_size(bytes)),
            None => f.write_str("lifetime  unknown"),
        }
    }
}

/// The class by the name that policies use.
pub fn class_name(class: DataClass) -> &'static str {
    match class {
        DataClass::Unknown => "unknown",
        DataClass::Metadata => "metadata",
        DataClass::Log => "log",
        DataClass::Immutable => "immutable",
        DataClass::InPlace => "in-place",
        DataClass::Small => "small",
        DataClass::Temporary => "temporary",
    }
}
