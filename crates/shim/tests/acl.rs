//! Access control lists and inode flags: several users get on a volume what they get on ext4, call by call.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::path::Path;
use std::process::Command;
use support::{Served, difference, native, probe, run, said};

/// Of the file system that the results are taken from.
const EXT4: i64 = 0xef53;

/// Whether the tests run as somebody who can become somebody else, on the file system whose rules are meant.
fn can_compare(dir: &Path) -> bool {
    // SAFETY: plain system calls; the string ends with NUL, and an all-zero `statfs` is valid.
    let (superuser, kind) = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        let path = std::ffi::CString::new(dir.to_str().unwrap()).unwrap();
        assert_eq!(libc::statfs(path.as_ptr(), &raw mut stat), 0);
        (libc::geteuid() == 0, stat.f_type)
    };
    if !superuser || kind != EXT4 {
        eprintln!("left out: needs the superuser, and a build directory on ext4");
    }
    superuser && kind == EXT4
}

fn are_the_same(args: &[&str]) {
    let (program, dir) = (probe("acl"), native());
    if !can_compare(dir.path()) {
        return;
    }
    let plain = said(&run(Command::new(&program).arg(dir.path()).args(args)));
    assert!(plain.ends_with("[exit status: 0]"), "{plain}");
    for (leases, intercept) in [(true, ""), (false, ""), (true, "sud")] {
        let served = Served::new(leases);
        let weft =
            said(&run(served.command(&program).arg("/weft").args(args).env("WEFT_INTERCEPT", intercept)));
        assert_eq!(difference(&plain, &weft), None, "{args:?}, leases: {leases}, intercept: {intercept:?}");
    }
}

#[test]
fn lists_let_users_do_what_they_let_them_do_on_ext4() {
    for seed in ["1", "2"] {
        are_the_same(&[seed, "2000"]);
    }
}

#[test]
fn flags_keep_from_happening_what_they_do_on_ext4() {
    for seed in ["3", "4"] {
        are_the_same(&[seed, "1000", "flags"]);
    }
}

#[test]
fn flags_hold_for_files_that_are_open() {
    are_the_same(&["held"]);
}
