//! Snapshots of volumes.

use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

#[test]
fn a_snapshot_is_listed_read_run_on_checked_and_deleted_and_files_change_meanwhile() {
    for volume in ["vol.img", "policy:nand.img#files"] {
        let bench = Bench::empty();
        bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "512M", "nand.img"]).success();
        bench.weft(&["format", "--core", "tagfs", "--size", "150M", volume]).success();
        let at = |name: &str, path: &str| format!("{volume}{name}:{path}");
        bench.file("a", "first");
        bench.weft(&["cp", "a", &at("", "/a")]).success();
        bench.weft(&["snapshot", "create", volume, "one"]).success();
        bench.file("a", "second");
        bench.weft(&["cp", "a", &at("", "/a")]).success();
        bench.weft(&["rm", &at("", "/a")]).success();
        bench.weft(&["snapshot", "create", "--quiet", volume, "two"]).success();
        assert_eq!(bench.stdout(&["cat", &at("@one", "/a")]), "first");
        assert_eq!(bench.stdout(&["ls", &at("@two", "/")]), "");
        let listed = bench.json(&["snapshot", "list", "--json", volume]);
        assert_eq!(
            (&listed["snapshots"][0]["name"], &listed["snapshots"][1]["name"]),
            (&"one".into(), &"two".into())
        );
        let snapshot = format!("{volume}@one");
        let script = "cat /weft/a; echo more 2>/dev/null >/weft/a || echo refused";
        let ran = bench.stdout(&["run", "--quiet", "--volume", &snapshot, "--", "sh", "-c", script]);
        assert_eq!(ran, "firstrefused\n");
        bench.weft(&["rm", &at("@one", "/a")]).failure().stderr(contains("Read-only file system"));
        // One process at a time has the image to change it, so a file comes back by way of the host.
        bench.weft(&["cp", &at("@one", "/a"), "kept"]).success();
        bench.weft(&["cp", "kept", &at("", "/back")]).success();
        assert_eq!(bench.stdout(&["cat", &at("", "/back")]), "first");
        bench.weft(&["fsck", &snapshot]).success().stdout(contains("1 files").and(contains("no problems")));
        bench.weft(&["fsck", volume]).success();
        bench.weft(&["snapshot", "delete", volume, "one"]).success();
        bench.weft(&["cat", &at("@one", "/a")]).failure().stderr(contains("no snapshot 'one'"));
        bench.weft(&["snapshot", "delete", volume, "one"]).failure().stderr(contains("weft snapshot list"));
        bench.weft(&["snapshot", "create", volume, "two"]).failure().stderr(contains("take another name"));
        bench.weft(&["fsck", volume]).success();
    }
}

#[test]
fn a_volume_without_snapshots_says_what_to_do_instead() {
    let bench = Bench::with_volume();
    for args in [
        &["snapshot", "create", "vol.img", "one"][..],
        &["snapshot", "list", "vol.img"],
        &["cat", "vol.img@one:/a"],
        &["fsck", "vol.img@one"],
        &["salvage", "vol.img@one", "new.img"],
    ] {
        let refused = bench.weft(args).code(predicates::ord::ne(0));
        refused.stderr(
            contains("no snapshots").and(contains("weft cp -r vol.img:/").and(contains("--core tagfs"))),
        );
    }
    bench.weft(&["snapshot", "list", "none.img"]).failure().stderr(contains("none.img"));
    bench.weft(&["snapshot", "create", "vol.img", "a/b"]).failure().stderr(contains("no name of a snapshot"));
    // Such a name is that of a new file here.
    bench.weft(&["format", "--core", "tagfs", "--size", "64M", "vol.img@new"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img@new:/"]), "");
    bench.weft(&["fsck", "vol.img"]).success();
}
