use crate::volume::{Bench, noise};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use std::os::unix::fs::FileExt;

#[test]
fn a_sound_volume_exits_with_0_and_counts_what_is_on_it() {
    let bench = Bench::with_volume();
    bench.file("tree/a", noise(100_000, 2));
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench
        .weft(&["fsck", "vol.img"])
        .success()
        .stdout(contains("1 files, 2 directories").and(contains("no problems")));
    let report = bench.json(&["fsck", "--json", "vol.img"]);
    assert_eq!(report["clean"], true);
    assert_eq!(report["files"], 1);
    assert_eq!(report["problems"].as_array().unwrap().len(), 0);
    assert!(report["bytes_checked"].as_u64().unwrap() >= 100_000);
}

#[test]
fn a_damaged_block_exits_with_1_and_is_named() {
    let bench = Bench::with_volume();
    let content = noise(100_000, 2);
    bench.file("a", &content);
    bench.weft(&["cp", "a", "vol.img:/a"]).success();
    let path = bench.path("vol.img");
    let image = std::fs::read(&path).unwrap();
    let at = image.windows(64).position(|w| w == &content[50_000..50_064]).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[image[at] ^ 1], at as u64).unwrap();
    drop(file);
    bench.weft(&["fsck", "vol.img"]).code(1).stdout(contains("zone ")).stderr(contains("1 problem"));
    let output = bench.weft(&["fsck", "--json", "vol.img"]).code(1).get_output().stdout.clone();
    let report: serde_json::Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(report["clean"], false);
    assert!(report["problems"][0]["zone"].is_u64(), "{report}");
    bench.weft(&["cat", "vol.img:/a"]).code(1).stderr(contains("Input/output error"));
}

#[test]
fn what_cannot_be_checked_exits_with_2() {
    let bench = Bench::empty();
    bench.weft(&["fsck", "none.img"]).code(2).stderr(contains("cannot be checked"));
    bench.file("text", "no image");
    bench.weft(&["fsck", "text"]).code(2);
}
