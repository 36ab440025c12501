//! Atomic writes of one file by the requests of F2FS.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Served, probe, run, said};

#[test]
fn a_batch_is_the_open_files_until_its_commit_makes_all_of_it() {
    let program = probe("batch");
    for leases in [true, false] {
        let mut served = Served::new(leases);
        let told = said(&run(served.command(&program).arg("/weft")));
        assert_eq!(told, "done\n[exit status: 0]", "leases: {leases}");
        served.restart();
        assert_eq!(served.shell("head -c 6 /weft/file"), "forked[exit status: 0]", "leases: {leases}");
    }
}

#[test]
fn a_write_that_is_to_be_atomic_is_refused_as_linux_refuses_it_or_made_in_one_step() {
    let program = probe("atomic");
    for leases in [true, false] {
        let mut served = Served::new(leases);
        let told = said(&run(served.command(&program).arg("/weft")));
        assert_eq!(told, "done\n[exit status: 0]", "leases: {leases}");
        served.restart();
        assert_eq!(served.shell("wc -c </weft/log"), "32768\n[exit status: 0]", "leases: {leases}");
    }
}
