//! Which symbols the library takes over, and from whom.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::process::Command;
use support::{library, probe, run, said};

fn defined(object: &std::path::Path) -> BTreeSet<String> {
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(object));
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect()
}

/// The table of hooks, as the library itself tells it.
fn table() -> BTreeSet<String> {
    let output = run(Command::new(probe("names")).env("LD_PRELOAD", library()));
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn every_hook_is_what_the_loader_binds() {
    // The probe asks the loader for each name and fails when it is bound elsewhere.
    let names = table();
    assert!(names.len() > 200, "{} hooks", names.len());
    let exported = defined(&library());
    let missing: Vec<_> = names.difference(&exported).collect();
    assert!(missing.is_empty(), "in the table but not exported: {missing:?}");
}

#[test]
fn nothing_else_is_exported() {
    let mut extra: BTreeSet<_> = defined(&library()).difference(&table()).cloned().collect();
    for own in ["weft_shim_names", "weft_shim_busy"] {
        assert!(extra.remove(own), "{own} is not exported");
    }
    assert!(extra.is_empty(), "exported but not in the table: {extra:?}");
}
