//! Commands that only look at a volume.

use crate::volume::{Bench, noise, wait_for};
use std::os::unix::fs::PermissionsExt;

/// Every command that changes nothing.
const LOOKS: [&[&str]; 7] = [
    &["ls", "-lR", "vol.img:/"],
    &["stat", "vol.img:/dir/f"],
    &["cat", "vol.img:/dir/f"],
    &["df", "vol.img"],
    &["stats", "vol.img"],
    &["zones", "vol.img"],
    &["cp", "vol.img:/dir/f", "copy"],
];

fn filled() -> Bench {
    let bench = Bench::with_volume();
    bench.file("dir/f", noise(300_000, 3));
    bench.weft(&["cp", "-r", "dir", "vol.img:/"]).success();
    bench
}

fn image(bench: &Bench) -> Vec<u8> {
    std::fs::read(bench.path("vol.img")).unwrap()
}

#[test]
fn what_only_looks_leaves_every_byte_of_the_image_as_it_is() {
    let bench = filled();
    let before = image(&bench);
    for args in LOOKS {
        bench.weft(args).success();
        assert!(image(&bench) == before, "{args:?} changed the image");
    }
    assert_eq!(std::fs::read(bench.path("copy")).unwrap(), noise(300_000, 3));
}

#[test]
fn an_image_whose_server_was_killed_is_looked_at_without_replaying_its_journal_into_it() {
    let bench = filled();
    let script = "cp /weft/dir/f /weft/g; sync /weft/g; touch done; sleep 5";
    let mut child = bench.spawn(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]);
    wait_for("the copy", || bench.path("done").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let before = image(&bench);
    for args in LOOKS {
        bench.weft(args).success();
        assert!(image(&bench) == before, "{args:?} changed the image");
    }
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "dir\ng\n");
    bench.weft(&["rm", "vol.img:/g"]).success();
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn several_look_at_once() {
    let bench = filled();
    let children: Vec<_> = (0..4).map(|_| bench.spawn(&["ls", "-R", "vol.img:/"])).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("vol.img:/dir:\nf\n"));
    }
}

#[test]
fn permission_to_read_the_image_is_enough() {
    let bench = filled();
    let mode = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(bench.path("vol.img"), mode).unwrap();
    assert_eq!(bench.stdout(&["ls", "vol.img:/dir"]), "f\n");
}

#[test]
fn df_takes_an_image_or_a_path_on_it_which_has_to_exist() {
    let bench = filled();
    let whole = bench.stdout(&["df", "vol.img"]);
    assert_eq!(bench.stdout(&["df", "vol.img:/"]), whole);
    assert_eq!(bench.stdout(&["df", "vol.img:/dir/f"]), whole);
    bench.weft(&["df", "vol.img:/none"]).code(1).stderr(predicates::str::contains("/none"));
}
