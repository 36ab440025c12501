//! The text of a program, and the names of its operations.

use super::error::{FormError, Place, Problem};
use std::fmt;
use std::ops::Range;
use toml::de::DeValue;
use weft_vfs::compound::{Kind, Ref};

/// Characters of a value that an error shows, at most.
const SHOWN_CHARS_MAX: usize = 60;

/// An operation as messages name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpName {
    /// Its place, counted from 1.
    pub number: usize,
    /// Its name, when it has one.
    pub name: Option<String>,
    /// What it does, when that is known.
    pub kind: Option<&'static str>,
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}", self.number)?;
        if let Some(name) = &self.name {
            write!(f, " '{name}'")?;
        }
        self.kind.map_or(Ok(()), |kind| write!(f, " ({kind})"))
    }
}

/// The names of a program's operations, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names(pub Vec<Option<String>>);

impl Names {
    /// The operation with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known.as_deref() == Some(name))
    }

    /// The name of an operation.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.0.get(at)?.as_deref()
    }

    /// An operation for a message.
    pub fn told(&self, at: usize, kind: Option<&Kind>) -> OpName {
        OpName { number: at + 1, name: self.get(at).map(str::to_string), kind: kind.map(Kind::name) }
    }

    /// A reference as it is written; by number when the operation has no name.
    pub fn reference(&self, Ref(at): Ref) -> String {
        let at = usize::from(at);
        self.get(at).map_or_else(|| format!("${}", at + 1), |name| format!("${name}"))
    }
}

/// The text of a program.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What messages call it.
    pub origin: &'a str,
    /// The text.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a place in the text.
    pub fn error(&self, span: Option<Range<usize>>, place: Place, problem: Problem) -> Box<FormError> {
        let line = span.map(|span| {
            let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
            before.iter().filter(|byte| **byte == b'\n').count() + 1
        });
        Box::new(FormError { origin: self.origin.to_string(), place: Place { line, ..place }, problem })
    }
}

/// What a value is, for messages.
pub fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(text) if is_reference(text) => "a reference",
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Whether text refers to a value: it begins with one dollar.
pub fn is_reference(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(|rest| !rest.starts_with('$'))
}

/// A value as an error shows it: as it is written, and cut when it is long.
pub fn shown(value: &DeValue<'_>) -> String {
    let text = written(value);
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(values) => {
            let values: Vec<_> = values.iter().map(|value| written(value.get_ref())).collect();
            format!("[{}]", values.join(", "))
        }
        DeValue::Table(table) => {
            let pairs =
                table.iter().map(|(key, value)| format!("{} = {}", key.get_ref(), written(value.get_ref())));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}
