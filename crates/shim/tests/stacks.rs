//! How much of a program's stack the hooks need. The probe paints stacks and tells how deep each case went, and runs each
//! case on a thread with the least stack that there is.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use support::{Served, native, probe, run};

/// Bytes that weft may add to what a call needs natively.
const OURS_MAX: i64 = 8 * 1024;

/// Runs the probe; its lines, case by case.
fn cases(command: &mut Command, dir: &Path, mode: &str) -> BTreeMap<String, String> {
    let output = run(command.arg(dir).arg(mode));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty() && output.status.success(), "{dir:?}: {errors}[{}]", output.status);
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect()
}

/// Deepest point of a case on a painted stack: the first time in a process, and the second.
fn depths(line: &str) -> [i64; 2] {
    let mut numbers = line.split(' ').map(|number| number.parse().unwrap_or_else(|_| panic!("it {line}")));
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

#[test]
fn no_hook_needs_more_than_8_kib_of_stack() {
    let program = probe("stacks");
    let dir = native();
    let plain = cases(&mut Command::new(&program), dir.path(), "measure");
    for leases in [true, false] {
        let served = Served::new(leases);
        let weft = cases(&mut served.command(&program), Path::new("/weft"), "measure");
        assert_eq!(plain.len(), weft.len());
        let mut ours: Vec<_> = plain
            .iter()
            .map(|(name, line)| {
                let (native, weft) = (depths(line), depths(&weft[name]));
                (weft[0] - native[0], weft[1] - native[1], name)
            })
            .collect();
        ours.sort_unstable();
        println!("bytes of stack more than natively, first and second time (leases: {leases})");
        for (first, second, name) in ours.iter().rev() {
            println!("{first:>8} {second:>8}  {name}");
        }
        for (first, second, name) in ours {
            assert!(first.max(second) <= OURS_MAX, "{name}: {first} the first time, then {second}");
        }
    }
}

#[test]
fn every_hook_runs_on_a_thread_with_the_least_stack() {
    let program = probe("stacks");
    let dir = native();
    let plain = cases(&mut Command::new(&program), dir.path(), "threads");
    assert!(plain.values().all(|end| end == "ok"), "{plain:?}");
    for leases in [true, false] {
        let served = Served::new(leases);
        let weft = cases(&mut served.command(&program), Path::new("/weft"), "threads");
        assert_eq!(plain, weft, "leases: {leases}");
    }
}
