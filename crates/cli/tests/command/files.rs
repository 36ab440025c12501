use crate::volume::{Bench, noise};
use predicates::str::contains;

#[test]
fn what_is_copied_in_is_listed_shown_and_read_back() {
    let bench = Bench::with_volume();
    let content = noise(700_001, 7);
    bench.file("a.bin", &content);
    bench.weft(&["cp", "a.bin", "vol.img:/b.bin"]).success().stdout("").stderr("");
    assert_eq!(bench.stdout(&["ls", "vol.img:"]), "b.bin\n");
    let long = bench.stdout(&["ls", "-l", "vol.img:/b.bin"]);
    assert!(long.starts_with("-rw") && long.contains(" 700001 ") && long.ends_with(" /b.bin\n"), "{long}");
    assert_eq!(bench.weft(&["cat", "vol.img:/b.bin"]).success().get_output().stdout, content);
    let stat = bench.stdout(&["stat", "vol.img:/b.bin"]);
    assert!(stat.contains("regular file") && stat.contains("700001 bytes"), "{stat}");
}

#[test]
fn a_tree_is_listed_with_everything_below_it() {
    let bench = Bench::with_volume();
    bench.weft(&["mkdir", "-p", "vol.img:/x/y/z", "vol.img:/x/w"]).success();
    bench.file("f", "1");
    bench.weft(&["cp", "f", "vol.img:/x/y/f"]).success();
    let listing = bench.stdout(&["ls", "-R", "vol.img:/x"]);
    assert_eq!(listing, "vol.img:/x:\nw\ny\n\nvol.img:/x/w:\n\nvol.img:/x/y:\nf\nz\n\nvol.img:/x/y/z:\n");
}

#[test]
fn directories_are_made_once_and_with_their_parents_when_asked() {
    let bench = Bench::with_volume();
    bench.weft(&["mkdir", "vol.img:/a/b"]).code(1).stderr(contains("vol.img:/a/b"));
    bench.weft(&["mkdir", "vol.img:/a"]).success();
    bench.weft(&["mkdir", "vol.img:/a"]).code(1).stderr(contains("exists"));
    bench.weft(&["mkdir", "-p", "vol.img:/a/b", "vol.img:/a"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:/a"]), "b\n");
}

#[test]
fn removing_a_tree_takes_its_consent_and_gives_the_space_back() {
    let bench = Bench::with_volume();
    let used = || bench.json(&["df", "--json", "vol.img"])[0]["used_bytes"].as_u64().unwrap();
    let empty = used();
    for name in ["1", "2", "3"] {
        bench.file(&format!("tree/{name}"), noise(300_000, 3));
    }
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    assert!(used() > empty + 800_000, "{}", used());
    bench.weft(&["rm", "vol.img:/tree"]).code(1).stderr(contains("-r"));
    bench.weft(&["rm", "vol.img:/tree/1"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:/tree"]), "2\n3\n");
    bench.weft(&["rm", "-r", "vol.img:/tree"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:"]), "");
    assert_eq!(used(), empty);
    bench.weft(&["rm", "vol.img:/tree"]).code(1).stderr(contains("No such file"));
    bench.weft(&["rm", "-f", "vol.img:/tree"]).success();
    bench.weft(&["rm", "-r", "vol.img:/"]).code(1).stderr(contains("the root stays"));
}

#[test]
fn files_are_renamed_and_moved_into_directories() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    bench.weft(&["mkdir", "vol.img:/d"]).success();
    bench.weft(&["cp", "f", "vol.img:/a"]).success();
    bench.weft(&["cp", "f", "vol.img:/b"]).success();
    bench.weft(&["mv", "vol.img:/a", "vol.img:/c"]).success();
    bench.weft(&["mv", "vol.img:/b", "vol.img:/c", "vol.img:/d"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:/d"]), "b\nc\n");
    assert_eq!(bench.stdout(&["cat", "vol.img:/d/c"]), "content");
    bench
        .weft(&["mv", "vol.img:/d/b", "vol.img:/d/c", "vol.img:/none"])
        .code(1)
        .stderr(contains("not a directory"));
}

#[test]
fn one_file_that_cannot_be_read_does_not_keep_the_others_back() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    bench
        .weft(&["cat", "vol.img:/missing", "vol.img:/f"])
        .code(1)
        .stdout("content")
        .stderr(contains("vol.img:/missing"))
        .stderr(contains("1 failed"));
}

#[test]
fn zones_hold_what_was_copied_and_metadata() {
    let bench = Bench::with_volume();
    bench.file("f", noise(2_500_000, 1));
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    let zones = bench.json(&["zones", "--json", "vol.img"]);
    let zones = zones.as_array().unwrap();
    assert_eq!(zones.len(), 64);
    let live: u64 = zones.iter().map(|z| z["live_bytes"].as_u64().unwrap()).sum();
    assert!(live >= 2_500_000, "{live}");
    assert!(zones.iter().any(|z| z["kind"] == "meta"));
}

#[test]
fn stats_add_up_and_have_the_documented_fields() {
    let bench = Bench::with_volume();
    bench.file("f", noise(1_000_000, 1));
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    let stats = bench.json(&["stats", "--json", "vol.img"]);
    let device = &stats["device"];
    let bytes = |name: &str| device[name].as_u64().unwrap();
    assert!(bytes("host_bytes") >= 1_000_000);
    assert!(bytes("metadata_bytes") > 0);
    assert_eq!(bytes("refused"), 0);
    let written = bytes("host_bytes") + bytes("gc_bytes") + bytes("metadata_bytes");
    let programmed = bytes("media_bytes") as i64 + stats["buffered_bytes"].as_i64().unwrap();
    assert!(programmed >= written as i64, "{stats}");
    for field in ["volume", "space", "device_latency", "zones", "core", "streams", "programs"] {
        assert!(!stats[field].is_null(), "{field}");
    }
    assert!(bench.stdout(&["stats", "vol.img"]).contains("WAF"));
}

#[test]
fn what_lies_deeper_than_a_path_of_one_call_leads_is_listed_copied_archived_and_removed() {
    let bench = Bench::with_volume();
    let (deep, deeper) = (vec!["d".repeat(200); 15].join("/"), vec!["p".repeat(200); 15].join("/"));
    bench.file("leaf", "at the end");
    bench.weft(&["mkdir", "-p", &format!("vol.img:/src/{deep}")]).success();
    bench.weft(&["cp", "leaf", &format!("vol.img:/src/{deep}/leaf")]).success();
    bench.weft(&["mkdir", "-p", &format!("vol.img:/dst/{deeper}")]).success();
    bench.weft(&["mv", "vol.img:/src", &format!("vol.img:/dst/{deeper}/moved")]).success();
    let leaf = format!("{deeper}/moved/{deep}/leaf");
    let there =
        |dir: &str| assert_eq!(bench.stdout(&["cat", &format!("vol.img:/{dir}/{leaf}")]), "at the end");
    there("dst");
    assert!(bench.stdout(&["ls", "-lR", "vol.img:/dst"]).contains("leaf"));
    bench.weft(&["stat", &format!("vol.img:/dst/{leaf}")]).success();
    bench.weft(&["cp", "-r", "vol.img:/dst", "out"]).success();
    bench.weft(&["cp", "-r", "out", "vol.img:/in"]).success();
    there("in");
    bench.weft(&["export", "vol.img:/dst", "vol.tar"]).success();
    bench.weft(&["import", "vol.img:/imported", "vol.tar"]).success();
    there("imported");
    bench.weft(&["cp", "-r", "vol.img:/in", "vol.img:/again"]).success();
    there("again");
    bench.weft(&["mv", &format!("vol.img:/again/{leaf}"), "vol.img:/leaf"]).success();
    bench.weft(&["rm", "-r", "vol.img:/dst", "vol.img:/in", "vol.img:/imported", "vol.img:/again"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "leaf\n");
    bench.weft(&["fsck", "vol.img"]).success();
    let removed = std::process::Command::new("rm").arg("-rf").arg(bench.path("out")).status();
    assert!(removed.unwrap().success());
}
