//! A policy in words, for those who check it.

use super::compile::Policy;
use super::stream::StreamSpec;
use std::fmt;
use weft_core::units::format_size;

/// Prints the streams and, in the order in which they are tried, the rules.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.about() {
            "" => writeln!(f, "policy {}", self.name())?,
            about => writeln!(f, "policy {}: {about}", self.name())?,
        }
        let width = self.streams().iter().map(|s| s.name.len()).max().unwrap_or(0);
        writeln!(f, "\nstreams")?;
        for stream in self.streams() {
            writeln!(f, "  {:width$}  {}", stream.name, stream_in_words(stream))?;
        }
        writeln!(f, "\nrules, the first that matches decides")?;
        for rule in self.rules() {
            let stream = self.streams().get(rule.stream).map_or("", |s| s.name.as_str());
            let conditions = if rule.conditions.is_empty() { "every file" } else { &rule.conditions };
            writeln!(f, "  {stream:width$}  line {:<4} {conditions}", rule.line)?;
        }
        match self.default_stream() {
            Some(stream) => write!(f, "  {:width$}  every other file", stream.name),
            None => write!(f, "  {:width$}  every other file, by the policy generic", "-"),
        }
    }
}

fn stream_in_words(stream: &StreamSpec) -> String {
    let lifetime = match stream.lifetime_bytes {
        Some(bytes) => format!("lives for about {}", format_size(bytes)),
        None => "unknown lifetime".to_string(),
    };
    let split = match stream.split {
        Some(split) => format!(", a stream per {} (at most {})", split.by, split.max),
        None => String::new(),
    };
    format!("{}, {lifetime}, {}{split}", stream.class.name(), stream.group)
}
