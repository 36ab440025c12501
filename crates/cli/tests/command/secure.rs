use crate::volume::{Bench, noise};
use predicates::str::contains;
use serde_json::Value;

fn found(bench: &Bench, args: &[&str]) -> Value {
    let output =
        bench.weft(&[&["secure", "verify", "--json"], args].concat()).code(1).get_output().stdout.clone();
    serde_json::from_slice(&output).unwrap()
}

#[test]
fn a_deleted_file_is_found_on_a_volume_and_what_never_was_there_is_not() {
    let bench = Bench::with_volume();
    bench.file("secret", noise(100_000, 2));
    bench.file("other", noise(100_000, 8));
    bench.weft(&["cp", "secret", "vol.img:/a-name-of-many-letters"]).success();
    bench.weft(&["rm", "vol.img:/a-name-of-many-letters"]).success();
    let report = found(&bench, &["vol.img", "--marker", "secret", "--text", "a-name-of-many-letters"]);
    assert_eq!(report["clean"], false);
    let places = report["found"].as_array().unwrap();
    assert!(
        places.len() < 20 && places.iter().any(|place| place["bytes"].as_u64() > Some(90_000)),
        "{report}"
    );
    let place = &places[0];
    assert!(place["zone"].is_u64() && place["block"].is_u64() && place["valid"].is_boolean(), "{report}");
    bench.weft(&["secure", "verify", "vol.img", "--marker", "secret"]).code(1).stdout(contains("zone "));
    bench
        .weft(&["secure", "verify", "vol.img", "--marker", "other"])
        .success()
        .stdout(contains("none found"));
    let report = bench.json(&["secure", "verify", "--json", "vol.img", "--marker", "other"]);
    assert_eq!((report["clean"].as_bool(), report["pieces"].as_u64()), (Some(true), Some(6_250)));
}

#[test]
fn a_piece_that_begins_in_one_part_of_the_image_and_ends_in_the_next_is_found() {
    let bench = Bench::empty();
    let mut raw = vec![0; 9 << 20];
    let marker = noise(16, 5);
    raw[(4 << 20) - 7..][..16].copy_from_slice(&marker);
    bench.file("raw", raw);
    let digits: String = marker.iter().map(|byte| format!("{byte:02x}")).collect();
    let report = found(&bench, &["raw", "--hex", &digits]);
    assert_eq!(report["found"].as_array().unwrap().len(), 1);
    assert_eq!(report["found"][0]["offset"], (4 << 20) - 7);
    assert_eq!(report["found"][0]["bytes"], 16);
}

#[test]
fn what_says_nothing_or_cannot_be_read_exits_with_2() {
    let bench = Bench::empty();
    bench.file("raw", "some bytes that are not a marker");
    bench.file("zeros", vec![0; 100]);
    bench.weft(&["secure", "verify", "raw", "--marker", "zeros"]).code(2).stderr(contains("16 bytes"));
    bench.weft(&["secure", "verify", "raw", "--text", "short"]).code(2);
    bench.weft(&["secure", "verify", "raw", "--hex", "0g"]).code(2).stderr(contains("hexadecimal"));
    bench.weft(&["secure", "verify", "none", "--text", "0123456789abcdef"]).code(2);
    bench.weft(&["secure", "verify", "raw"]).code(2);
}

#[test]
fn a_snapshot_keeps_what_is_deleted_securely_until_it_is_deleted_too() {
    let bench = Bench::empty();
    bench.weft(&["format", "--core", "tagfs", "--size", "100M", "vol.img"]).success();
    bench.file("marker", noise(50_000, 3));
    let under = |script: &str| {
        bench.weft(&["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", script]).success();
    };
    // The flag by the system call that `chattr` makes, which not every machine has.
    let set_flag = "import fcntl, os, struct; \
        fcntl.ioctl(os.open('/weft/secrets', 0), 0x40086602, struct.pack('q', 1))";
    under(&format!(
        "mkdir /weft/secrets && python3 -c \"{set_flag}\" && cp marker /weft/secrets/file && sync"
    ));
    bench.weft(&["snapshot", "create", "vol.img", "before"]).success();
    under("rm /weft/secrets/file && sync");
    bench.weft(&["secure", "verify", "vol.img", "--marker", "marker"]).code(1);
    assert_eq!(bench.stdout(&["ls", "vol.img@before:/secrets"]), "file\n");
    bench.weft(&["snapshot", "delete", "vol.img", "before"]).success();
    bench
        .weft(&["secure", "verify", "vol.img", "--marker", "marker"])
        .success()
        .stdout(contains("none found"));
    bench.weft(&["fsck", "vol.img"]).success().stdout(contains("no problems"));
}
