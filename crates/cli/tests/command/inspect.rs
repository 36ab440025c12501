//! Pictures and figures of volumes, also of ones that are in use.

use crate::server::Serving;
use crate::volume::{Bench, noise, wait_for};
use predicates::prelude::*;
use predicates::str::contains;

fn filled() -> Bench {
    let bench = Bench::with_volume();
    bench.file("dir/a.log", noise(3_500_000, 3));
    bench.file("dir/b.log", noise(2_000_000, 4));
    bench.weft(&["cp", "-qr", "dir", "vol.img:/"]).success();
    bench
}

/// The signs of the picture's cells.
fn cells(picture: &str) -> Vec<String> {
    let lines = picture.lines().filter(|line| line.get(..6).is_some_and(|n| n.trim().parse::<u32>().is_ok()));
    let cells = lines.flat_map(|line| {
        let line: Vec<char> = line[8..].chars().collect();
        line.chunks(3).map(|cell| cell.iter().collect::<String>().trim().to_string()).collect::<Vec<_>>()
    });
    cells.collect()
}

#[test]
fn the_picture_has_a_cell_for_every_zone_and_says_what_is_in_it() {
    let bench = filled();
    let picture = bench.stdout(&["zones", "vol.img"]);
    assert!(picture.is_ascii() && picture.starts_with("vol.img: "), "{picture}");
    let zones = bench.json(&["zones", "--json", "vol.img"]);
    let zones = zones.as_array().unwrap();
    let cells = cells(&picture);
    assert_eq!(cells.len(), zones.len(), "{picture}");
    for (cell, zone) in cells.iter().zip(zones) {
        let expected = match (zone["state"].as_str().unwrap(), zone["kind"].as_str().unwrap()) {
            ("free", _) => ".",
            (_, "meta") => "M",
            ("dying", _) => "-",
            _ => "",
        };
        assert!(
            cell == expected || expected.is_empty() && cell.starts_with(char::is_alphabetic),
            "{picture}"
        );
    }
    assert!(picture.contains("limit "), "{picture}");
    let stream = zones.iter().find(|z| z["kind"] == "data").unwrap()["stream"].as_str().unwrap();
    assert!(picture.contains(stream), "the legend names {stream}: {picture}");
    assert_eq!(bench.stdout(&["zones", "--table", "vol.img"]).lines().count(), 2 + zones.len());
}

#[test]
fn colours_are_for_those_who_see_them_and_want_them() {
    let bench = filled();
    let zones = |name: &str, value: &str| {
        let mut command = bench.command();
        command.args(["zones", "vol.img"]).env(name, value);
        String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
    };
    let coloured = zones("CLICOLOR_FORCE", "1");
    assert!(coloured.contains("\u{1b}[") && coloured.contains('█'), "{coloured}");
    assert!(zones("NO_COLOR", "1").is_ascii());
    let mut both = bench.command();
    both.args(["zones", "vol.img"]).envs([("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]);
    assert!(both.assert().success().get_output().stdout.is_ascii());
}

#[test]
fn a_running_program_counts_while_it_runs() {
    let bench = Bench::with_volume();
    let server = Serving::start(&bench);
    let script = "for i in $(seq 100); do echo line; done >/weft/f; cat /weft/f >/dev/null; touch wrote; \
                  while [ ! -e stop ]; do sleep 0.05; done";
    let mut child = bench.spawn(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]);
    wait_for("the program's writes", || bench.path("wrote").exists());
    let stats = bench.json(&["stats", "--json", "vol.img"]);
    let programs = &stats["programs"];
    assert!(programs["running"].as_array().unwrap().iter().any(|name| name == "sh"), "{programs}");
    assert!(programs["writes"]["count"].as_u64().unwrap() >= 100, "{programs}");
    assert!(stats["zones"]["free"].as_u64().unwrap() > 0);
    let mut lines = bench.command();
    lines.args(["stats", "--json", "--watch=0.1", "--count", "2", "vol.img"]);
    let output = String::from_utf8(lines.assert().success().get_output().stdout.clone()).unwrap();
    assert_eq!(output.lines().count(), 2, "{output}");
    for line in output.lines() {
        let snapshot: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(snapshot["programs"]["writes"]["count"].as_u64().unwrap() >= 100);
    }
    bench
        .weft(&["stats", "--watch=0", "vol.img"])
        .code(1)
        .stderr(contains("--watch=0: the figures are read at most every 0.05 seconds"));
    bench
        .weft(&["stats", "--watch=0.1", "--count", "1", "vol.img"])
        .success()
        .stdout(contains("programs   sh"))
        .stdout(contains("WAF   "))
        .stdout(contains("calls of programs"));
    bench.file("stop", "");
    assert!(child.wait().unwrap().success());
    // The server hears of a program's end from the kernel, which may be after its parent has.
    let stats = || bench.json(&["stats", "--json", "vol.img"]);
    wait_for("the program's end", || stats()["programs"]["running"].as_array().unwrap().is_empty());
    let after = stats();
    assert_eq!(after["programs"]["writes"]["count"], programs["writes"]["count"], "counted once");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_volume_that_nobody_serves_cannot_be_watched() {
    let bench = filled();
    bench
        .weft(&["stats", "--watch", "vol.img"])
        .code(1)
        .stderr(contains("no server runs"))
        .stderr(contains("weft serve"));
}

#[test]
fn watching_ends_with_the_server() {
    let bench = Bench::with_volume();
    let server = Serving::start(&bench);
    let watcher = bench.spawn(&["stats", "--watch=0.1", "vol.img"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(server.stop(), 0);
    assert_eq!(crate::volume::status_of(watcher), Some(0));
}

#[test]
fn the_figures_of_a_volume_in_a_tag_store_tell_of_its_cache_by_classes() {
    let bench = Bench::with_volume();
    bench.weft(&["format", "tags.img", "--core", "tagfs", "--size", "64M"]).success();
    let names = |stats: &serde_json::Value| -> Vec<String> {
        let cache = stats["cache"].as_array().unwrap();
        cache.iter().map(|class| class["class"].as_str().unwrap().to_string()).collect()
    };
    let stats = bench.json(&["stats", "--json", "tags.img"]);
    let found = names(&stats);
    assert!(
        found.iter().any(|name| name.ends_with("-edges")) && found.iter().any(|name| !name.contains("-")),
        "{found:?}"
    );
    for class in stats["cache"].as_array().unwrap() {
        assert!(class["hits"].as_u64().unwrap() + class["misses"].as_u64().unwrap() > 0, "{class}");
    }
    bench
        .weft(&["stats", "tags.img"])
        .success()
        .stdout(contains("pages in the cache").and(contains("hit ratio")));
    assert_eq!(names(&bench.json(&["stats", "--json", "vol.img"])), [""; 0]);
    // Whoever serves it says what stays.
    let run = ["run", "--drive-cache=16M", "--cache-class=unknown-large=0", "--cache-class=unknown=2:10-90"];
    let work = ["--volume=tags.img", "--", "sh", "-c", "seq 100000 >/weft/large; wc -l </weft/large"];
    bench.weft(&[&run[..], &work].concat()).success().stdout(contains("100000"));
    bench.weft(&[&run[..1], &["--cache-policy=sieve"], &work].concat()).success().stdout(contains("100000"));
    assert!(names(&bench.json(&["stats", "--json", "tags.img"])).len() > 1);
    for volume in ["vol.img", "mem:64M", "mem:"] {
        let run = ["run", "--cache-policy=sieve", "--volume", volume, "--", "true"];
        bench.weft(&run).failure().stderr(contains("tagfs").and(contains("--cache-policy")));
    }
}
