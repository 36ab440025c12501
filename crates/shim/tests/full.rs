//! Programs on a full volume: refused writes return an error, and accepted ones are there.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use support::{Served, native, probe, run, said};

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

/// How often a kind of operation was refused, of what the probe printed.
fn refused(told: &str, kind: &str) -> u32 {
    let line = told.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(": ")).unwrap();
    let (_, refused) = line.split_once("taken, ").unwrap();
    refused.trim_end_matches(" refused").parse().unwrap()
}

#[test]
fn what_a_full_volume_takes_is_there_and_what_it_does_not_take_is_told() {
    let program = probe("full");
    let (seeds, steps) = if campaign() { (60, 1_500) } else { (3, 500) };
    let kinds = [
        "create", "write", "append", "store", "allocate", "extend", "rename", "mkdir", "symlink", "link",
        "setxattr",
    ];
    let mut met = [0; 11];
    for seed in 0..seeds {
        let leases = seed % 2 == 0;
        let mut served = Served::new(leases);
        let mirror = native();
        let probe = |served: &Served, arguments: &[&str]| {
            let mut command: Command = served.command(&program);
            said(&run(command.arg("/weft").arg(mirror.path().join("mirror")).args(arguments)))
        };
        std::fs::create_dir(mirror.path().join("mirror")).unwrap();
        let told = probe(&served, &[&seed.to_string(), &steps.to_string()]);
        assert!(told.ends_with("[exit status: 0]"), "seed {seed}: {told}");
        for (met, kind) in met.iter_mut().zip(kinds) {
            *met += refused(&told, kind);
        }
        served.restart();
        assert_eq!(probe(&served, &["compare"]), "same\n[exit status: 0]", "seed {seed}, mounted again");
        // It is a volume like any other once something is removed.
        let told = served
            .shell("rm -r /weft/fill-* && dd if=/dev/zero of=/weft/new bs=1M count=8 conv=fsync 2>/dev/null");
        assert_eq!(told, "[exit status: 0]", "seed {seed}");
    }
    // To make a file longer takes no room, and longer names have room of their own.
    let is_taken = |kind: &str| kind == "extend" || kind == "rename";
    let never: Vec<_> = kinds.iter().zip(met).filter(|(kind, met)| *met == 0 && !is_taken(kind)).collect();
    assert!(never.is_empty(), "never met a full volume: {never:?}");
}
