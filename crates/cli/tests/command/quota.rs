//! `weft quota`, and what a limit does to programs under `weft run` and on a mount.

use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

/// A directory with a fresh volume `vol.img` that keeps quotas.
pub fn bench() -> Bench {
    let bench = Bench::empty();
    bench.weft(&["format", "--quiet", "--core", "tagfs", "--size", "150M", "vol.img"]).success();
    bench
}

/// Runs a script under `weft run`, which finds the command as `$WEFT`.
fn under(bench: &Bench, script: &str) -> assert_cmd::assert::Assert {
    let weft = assert_cmd::cargo::cargo_bin("weft");
    let args = ["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", script];
    bench.command().env("WEFT", weft).args(args).assert()
}

#[test]
fn a_program_under_weft_run_takes_no_more_than_the_limit_and_is_told() {
    let bench = bench();
    under(&bench, "mkdir /weft/q && $WEFT quota set /weft/q --bytes 10M --files 3")
        .success()
        .stderr(contains("/weft/q: limited to 10.0 MiB and 3 files"));
    under(&bench, "dd if=/dev/zero of=/weft/q/f bs=10000 count=2000 conv=fsync")
        .failure()
        .stderr(contains("Disk quota exceeded"));
    let shown = under(&bench, "$WEFT quota show /weft/q /weft/q/f").success();
    let shown = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    assert!(shown.starts_with("path           space     limit  files  limit\n"), "{shown}");
    assert_eq!(shown.matches(" MiB  10.0 MiB      1      3\n").count(), 2, "{shown}");
    under(&bench, "touch /weft/q/a /weft/q/b /weft/q/c").failure().stderr(contains("Disk quota exceeded"));
    under(&bench, "touch /weft/a && ln /weft/a /weft/q/b").failure();
    // What moves is copied, and then counts.
    under(&bench, "rm /weft/q/a && mv /weft/a /weft/q/a && test ! -e /weft/a").success();
    let json = under(&bench, "$WEFT quota show --json /weft/q").success();
    let json: serde_json::Value = serde_json::from_slice(&json.get_output().stdout).unwrap();
    let quota = &json[0];
    assert_eq!(
        (&quota["path"], &quota["files"], &quota["files_max"]),
        (&"/weft/q".into(), &3.into(), &3.into())
    );
    assert_eq!(quota["bytes_max"], 10 << 20);
    assert!(quota["bytes"].as_u64().unwrap() <= 10 << 20);
    under(&bench, "$WEFT quota lift /weft/q && touch /weft/q/d && $WEFT quota show /weft/q")
        .success()
        .stdout(contains(" MiB      -      4      -\n"));
    bench.weft(&["fsck", "vol.img"]).success().stdout(contains("no problems"));
}

#[test]
fn what_cannot_be_limited_is_named_with_the_next_step() {
    let bench = bench();
    under(&bench, "mkdir -p /weft/full/dir /weft/q && touch /weft/f && $WEFT quota set /weft/q --files 9")
        .success();
    let fails = |script: &str, what: &str, remedy: &str| {
        under(&bench, script).failure().stderr(contains(what).and(contains(remedy)));
    };
    fails("$WEFT quota set /weft/full --bytes 1G", "/weft/full: the directory is not empty", "with 'mv'");
    fails("$WEFT quota set /weft/f --bytes 1G", "/weft/f: is no directory", "name one");
    let nested = "mkdir /weft/q/dir; $WEFT quota set /weft/q/dir --bytes 1G";
    fails(nested, "is in the tree of another quota", "quotas do not lie within each other");
    fails("$WEFT quota show /weft/full", "is in no directory tree with a quota", "'weft quota set'");
    fails("$WEFT quota lift /weft/full", "/weft/full: has no limits", "'weft quota show'");
    fails("$WEFT quota set /weft/none --bytes 1G", "/weft/none", "No such file");
    bench.weft(&["quota", "set", "q", "--bytes", "much"]).failure().stderr(contains("'much' is not a size"));
    bench.weft(&["quota", "set", "q"]).failure().stderr(contains("--bytes"));
    // On another file system, and on the other core.
    std::fs::create_dir(bench.path("here")).unwrap();
    let told = contains("here: ")
        .and(contains("is not on a volume that keeps quotas").or(contains("only the superuser")));
    bench.weft(&["quota", "set", "here", "--bytes", "1G"]).failure().stderr(told);
    assert!(!has_attributes(&bench.path("here")), "nothing of it is left");
    let other = Bench::with_volume();
    under(&other, "mkdir /weft/q && $WEFT quota set /weft/q --bytes 1G")
        .failure()
        .stderr(contains("is not on a volume that keeps quotas").and(contains("tagfs")));
}

fn has_attributes(path: &std::path::Path) -> bool {
    let output = std::process::Command::new("python3")
        .args(["-c", "import os, sys; print(*os.listxattr(sys.argv[1]))"])
        .arg(path)
        .output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("weft"))
}

#[test]
fn an_archive_keeps_quotas_and_a_copy_keeps_the_files() {
    if weft_sys::effective_user().0 != 0 {
        return;
    }
    let bench = bench();
    under(&bench, "mkdir /weft/q && $WEFT quota set /weft/q --bytes 1M && echo content >/weft/q/f").success();
    bench.weft(&["export", "vol.img", "files.tar"]).success();
    for volume in ["copy.img", "import.img"] {
        bench.weft(&["format", "--quiet", "--core", "tagfs", "--size", "100M", volume]).success();
    }
    bench.weft(&["cp", "-r", "vol.img:/q", "copy.img:/q"]).success();
    bench.weft(&["import", "import.img", "files.tar"]).success();
    for volume in ["copy.img", "import.img"] {
        assert_eq!(bench.stdout(&["cat", &format!("{volume}:/q/f")]), "content\n");
        bench.weft(&["fsck", volume]).success().stdout(contains("no problems"));
    }
    std::fs::rename(bench.path("import.img"), bench.path("vol.img")).unwrap();
    under(&bench, "$WEFT quota show /weft/q").success().stdout(contains("4.00 KiB  1.00 MiB      1      -"));
}
