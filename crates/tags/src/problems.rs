//! What a check or a salvage finds that does not hold: a list that ends somewhere, and the errors that go into it.

use crate::error::{Error, Result};

/// Problems that are listed one by one.
const PROBLEMS_MAX: usize = 100;

/// Lists a problem, if there is room for one more.
pub(crate) fn note(problems: &mut Vec<String>, text: impl Into<String>) {
    if problems.len() < PROBLEMS_MAX {
        problems.push(text.into());
    }
}

/// Lists damage as a problem; other errors end the check.
pub(crate) fn tolerate<T>(problems: &mut Vec<String>, step: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    match step() {
        Err(error @ (Error::Damaged { .. } | Error::NoSuchNode(_))) => {
            note(problems, error.to_string());
            Ok(None)
        }
        done => done.map(Some),
    }
}
