//! A process that can no longer become the server's user has nothing left of what leases share.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use support::{Served, difference, library, native, probe, run, said};

/// Whether the tests run as somebody who can become somebody else, and who that is can read the library.
fn can_drop() -> bool {
    // SAFETY: plain system call without arguments.
    let superuser = unsafe { libc::geteuid() } == 0;
    let open =
        |path: &std::path::Path| path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o005 == 0o005);
    let able = superuser && library().ancestors().filter(|path| path.is_dir()).all(open);
    if !able {
        eprintln!("left out: needs the superuser, and a library that all may read");
    }
    able
}

#[test]
fn whoever_drops_the_servers_user_for_good_keeps_no_memory_of_leases() {
    if !can_drop() {
        return;
    }
    let served = Served::new(true);
    let program = probe("dropped");
    for (how, before, after) in
        [("for good", 6, 0), ("for a time", 6, 6), ("by number", 6, 0), ("in threads", 6, 0)]
    {
        let told = said(&run(served.command(&program).args(["/weft", how])));
        assert_eq!(
            told,
            format!(
                "before: {before} maps\nafter: {after} maps, 0 descriptors of an image\nread: 3, appended: 3\n[exit status: 0]"
            ),
            "{how}"
        );
    }
}

#[test]
fn programs_that_drop_the_superuser_keep_the_volume_and_not_the_rights() {
    if !can_drop() {
        return;
    }
    let served = Served::new(true);
    served.shell("cd /weft; chmod 777 .; echo s > s; chmod 600 s");
    let setpriv = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let all = "cat s; touch new-$1; stat -c %u:%g new-$1; sh -c 'cat s; id -u'";
    let told = served.shell(
        &format!("cd /weft; {setpriv} sh -c \"$0\" sh 1 2>&1",)
            .replace("$0", &all.replace('"', "\\\"").replace('$', "\\$")),
    );
    let expected =
        "cat: s: Permission denied\n65534:65534\ncat: s: Permission denied\n65534\n[exit status: 0]";
    assert_eq!(told, expected);
    // A process that has never used the volume connects before it may no more.
    let direct =
        format!("exec {setpriv} sh -c 'cat /weft/s 2>&1; cd /weft; touch direct; stat -c %u:%g direct'");
    let told = served.shell(&direct);
    assert_eq!(told, "cat: /weft/s: Permission denied\n65534:65534\n[exit status: 0]");
}

#[test]
fn changes_by_intercepted_system_calls_are_heard_of() {
    let program = probe("identity");
    let dir = native();
    let plain = said(&run(Command::new(&program).arg(dir.path())));
    let served = Served::new(true);
    served.shell("mkdir /weft/d");
    let told = said(&run(served.command(&program).arg("/weft/d").env("WEFT_INTERCEPT", "sud")));
    assert_eq!(difference(&plain, &told), None);
}
