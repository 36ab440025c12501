//! The text form of a program: TOML, made to be written by people.
//!
//! A text is read in two passes. The first one takes the names of all operations, so that a reference to a later operation is told
//! from one to none. The second one reads each operation by the keys of its kind ([`kinds`]), and refuses all other keys. What the text
//! gives is then [checked](weft_vfs::compound::check) as any program is. Every error names the place, what stands there, and what would be
//! right ([`error`]).

mod error;
mod fields;
mod kinds;
mod source;
#[cfg(test)]
mod tests;

pub use error::FormError;
pub use source::Names;

use error::{Place, Problem, Read};
use fields::Fields;
use kinds::{COMMON_KEYS, KINDS, KindForm};
use source::{OpName, Source, shown, type_of};
use std::cell::Cell;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weft_vfs::compound::{CheckError, Checked, INPUT_BYTES_MAX, OPS_MAX, Op, Policy, Program, check};

/// The keys of a program.
const TOP_KEYS: [&str; 3] = ["policy", "durable", "op"];
/// Bytes of the name of an operation, at most.
const NAME_BYTES_MAX: usize = 64;

/// A program as a person wrote it.
#[derive(Debug)]
pub struct Form {
    /// The program.
    pub program: Checked,
    /// The names of its operations.
    pub names: Names,
}

/// An operation's table and where it begins.
type Entry<'a> = (&'a DeTable<'a>, Range<usize>);

/// Reads the text of a program and checks it. `origin` is what errors call the text.
///
/// # Errors
/// The first thing that is wrong.
pub fn read(text: &str, origin: &str) -> Read<Form> {
    let source = Source { origin, text };
    let top = DeTable::parse(text).map_err(|error| {
        source.error(error.span(), Place::default(), Problem::Syntax(error.message().to_string()))
    })?;
    let top = top.get_ref();
    refuse_unknown(source, top, None, "in a program", &TOP_KEYS)?;
    let (policy, durable) = (policy(source, top)?, durable(source, top)?);
    let entries = entries(source, top)?;
    let names = names(source, &entries)?;
    let (mut ops, file_bytes_left) = (Vec::with_capacity(entries.len()), Cell::new(INPUT_BYTES_MAX));
    for (table, span) in &entries {
        let (span, op) = (span.clone(), names.told(ops.len(), None));
        let of = Fields {
            source,
            op,
            table,
            span,
            earlier: &ops,
            names: &names,
            file_bytes_left: &file_bytes_left,
        };
        ops.push(op_of(of)?);
    }
    let kinds: Vec<_> = ops.iter().map(|op: &Op| op.kind.name()).collect();
    let program = check(Program { policy, durable, ops }).map_err(|error| {
        let name = |at| OpName { kind: Some(kinds[at]), ..names.told(at, None) }.to_string();
        let span = error.at().map(|at| entries[at].1.clone());
        source.error(span, Place::default(), Problem::Check { told: error.told(name), error })
    })?;
    Ok(Form { program, names })
}

/// Refuses keys that are not among the known ones, the first in the text.
fn refuse_unknown(
    source: Source<'_>,
    table: &DeTable<'_>,
    op: Option<OpName>,
    of: &str,
    keys: &[&'static str],
) -> Read<()> {
    let unknown = table.keys().filter(|key| !keys.contains(&&**key.get_ref()));
    let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
    let place = Place { op, key: Some(key.get_ref().to_string()), ..Place::default() };
    Err(source.error(
        Some(key.span()),
        place,
        Problem::UnknownKey { of: of.to_string(), keys: keys.to_vec() },
    ))
}

/// An error of a key of the program itself.
fn top_error(
    source: Source<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problem: Problem,
) -> Box<FormError> {
    let value_text = Some(shown(value.get_ref()));
    let place = Place { key: Some(key.to_string()), value: value_text, ..Place::default() };
    source.error(Some(value.span()), place, problem)
}

fn policy(source: Source<'_>, top: &DeTable<'_>) -> Read<Policy> {
    let Some(value) = top.get("policy") else { return Ok(Policy::default()) };
    let found = match value.get_ref() {
        DeValue::String(name) => Policy::EVERY.into_iter().find(|policy| policy.name() == name),
        _ => None,
    };
    found.ok_or_else(|| {
        let words = Policy::EVERY.map(Policy::name).to_vec();
        top_error(source, "policy", value, Problem::Choice { words })
    })
}

fn durable(source: Source<'_>, top: &DeTable<'_>) -> Read<bool> {
    match top.get("durable").map(|value| (value, value.get_ref())) {
        None => Ok(false),
        Some((_, DeValue::Boolean(is))) => Ok(*is),
        Some((value, other)) => {
            let problem = Problem::Type { found: type_of(other), wanted: "true or false" };
            Err(top_error(source, "durable", value, problem))
        }
    }
}

/// The tables of the operations.
fn entries<'a>(source: Source<'_>, top: &'a DeTable<'a>) -> Read<Vec<Entry<'a>>> {
    let none = || source.error(None, Place::default(), Problem::NoOperations);
    let value = top.get("op").ok_or_else(none)?;
    let wrong = |value: &Spanned<DeValue<'_>>| {
        let problem =
            Problem::Type { found: type_of(value.get_ref()), wanted: "a table [[op]] for each operation" };
        top_error(source, "op", value, problem)
    };
    let DeValue::Array(ops) = value.get_ref() else { return Err(wrong(value)) };
    if ops.is_empty() {
        return Err(none());
    }
    if ops.len() > OPS_MAX {
        // References behind this place have no numbers.
        let error = CheckError::TooLong(ops.len());
        let told = error.to_string();
        return Err(source.error(None, Place::default(), Problem::Check { told, error }));
    }
    let table = |value: &'a Spanned<DeValue<'a>>| match value.get_ref() {
        DeValue::Table(table) => Ok((table, value.span())),
        _ => Err(wrong(value)),
    };
    ops.iter().map(table).collect()
}

/// The names of all operations.
fn names(source: Source<'_>, entries: &[Entry<'_>]) -> Read<Names> {
    let mut names = Names::default();
    for (at, (table, _)) in entries.iter().enumerate() {
        let Some(value) = table.get("name") else {
            names.0.push(None);
            continue;
        };
        let fail = |problem| {
            let op = Some(OpName { number: at + 1, name: None, kind: None });
            let (key, shown) = (Some("name".to_string()), Some(shown(value.get_ref())));
            source.error(Some(value.span()), Place { op, key, value: shown, line: None }, problem)
        };
        let DeValue::String(name) = value.get_ref() else { return Err(fail(Problem::BadName)) };
        if !is_name(name) {
            return Err(fail(Problem::BadName));
        }
        if let Some(taken) = names.find(name) {
            return Err(fail(Problem::TakenName(OpName { name: None, ..names.told(taken, None) })));
        }
        names.0.push(Some(name.to_string()));
    }
    Ok(names)
}

/// Whether an operation can be called so.
fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    begins && name.chars().all(goes_on) && name.len() <= NAME_BYTES_MAX
}

/// One operation.
fn op_of(mut of: Fields<'_>) -> Read<Op> {
    let words: Vec<_> = KINDS.iter().map(|form| (form.name, form)).collect();
    let form: &KindForm = of.choice("do", &words, None)?;
    of.op.kind = Some(form.name);
    let keys = [&COMMON_KEYS[..], form.keys].concat();
    refuse_unknown(of.source, of.table, Some(of.op.clone()), &format!("of {}", form.name), &keys)?;
    let when = if of.table.contains_key("when") { Some(of.guard("when")?) } else { None };
    Ok(Op { when, export: of.flag("export", false)?, kind: (form.read)(&of)? })
}
