use crate::volume::Bench;
use predicates::str::contains;

#[test]
fn a_shipped_policy_is_listed_shown_and_passes_its_own_check() {
    let bench = Bench::empty();
    let list = bench.stdout(&["policy", "list"]);
    for name in ["rocksdb", "leveldb", "sqlite", "wiredtiger", "cachelib", "generic"] {
        assert!(list.contains(name), "{list}");
        bench.file("shown.toml", bench.stdout(&["policy", "show", name]));
        bench.weft(&["policy", "check", "shown.toml"]).success().stdout(contains("rules"));
    }
    bench.weft(&["policy", "show", "none"]).code(1).stderr(contains("rocksdb"));
}

#[test]
fn a_bad_policy_is_refused_with_its_file_line_and_column_and_what_to_do() {
    let bench = Bench::empty();
    bench.file("bad.toml", "name = 'bad'\n[[stream]]\nname = 'a'\n[[rule]]\nname = '*.x'\nstream = 'b'\n");
    bench
        .weft(&["policy", "check", "bad.toml"])
        .code(1)
        .stderr(contains("weft: bad.toml:6:10: there is no stream \"b\"; define it with [[stream]]"))
        .stderr(contains("      6 | stream = 'b'\n        |          ^\n"))
        .stderr(contains("docs/formats/policy-toml.md"));
    bench.weft(&["run", "--volume", "mem:64M", "--policy", "bad.toml", "--", "true"]).code(125);
}

#[test]
fn files_that_never_end_are_refused() {
    let bench = Bench::empty();
    for (args, told) in [
        (&["policy", "check", "/dev/zero"][..], "policy /dev/zero: it has more than 1 MiB"),
        (&["format", "--geometry", "/dev/zero", "new.img"], "geometry /dev/zero: it has more than 1 MiB"),
        (&["replay", "/dev/zero"], "/dev/zero: line 1: "),
    ] {
        bench.weft(args).code(1).stderr(contains(told));
    }
    assert!(std::process::Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap().success());
    let mut yes = std::process::Command::new("sh");
    let mut yes = yes.args(["-c", "exec yes >fifo"]).current_dir(bench.dir()).spawn().unwrap();
    bench.weft(&["replay", "fifo"]).code(1).stderr(contains("fifo: line 1: 'y' is not an event"));
    yes.wait().unwrap();
}

#[test]
fn what_a_terminal_would_obey_is_shown_in_another_form() {
    let explained = Bench::empty().stdout(&["policy", "explain", "/a\u{1b}[31m/b.sst"]);
    assert!(!explained.contains('\u{1b}') && explained.contains("a?[31m"), "{explained:?}");
}

#[test]
fn the_place_of_a_file_is_explained() {
    let bench = Bench::empty();
    bench
        .weft(&["policy", "explain", "--process", "db_bench", "--thread", "rocksdb:low0", "/db/000012.sst"])
        .success()
        .stdout(contains("rocksdb.compaction"));
    bench
        .weft(&["policy", "explain", "--mode", "off", "/db/000012.sst"])
        .success()
        .stdout(contains("mode off"));
    // Options that cannot change where a file goes are refused, not ignored.
    bench.weft(&["policy", "explain", "--real-time", "/x"]).code(2).stderr(contains("--real-time"));
    bench.weft(&["policy", "explain", "--drive-cache", "1M", "/x"]).code(2).stderr(contains("--drive-cache"));
}

#[test]
fn rules_that_did_not_match_say_why() {
    let bench = Bench::empty();
    bench
        .weft(&["policy", "explain", "--program", "db_bench", "--thread", "rocksdb:low0", "/db/000012.sst"])
        .success()
        .stdout(contains("it applies to process db_bench"))
        .stdout(contains("the name's shape is #.sst"))
        .stdout(contains("the thread is rocksdb:low0"))
        .stdout(contains("decides"))
        .stdout(contains("the name is 000012.sst"));
    bench.file("my.toml", "name = 'my'\n[[stream]]\nname = 'a'\n[[rule]]\nmin_size = '1M'\nstream = 'a'\n");
    bench
        .weft(&["policy", "explain", "--policy", "my.toml", "--size", "4K", "/x.log"])
        .success()
        .stdout(contains("the size is 4.00 KiB"))
        .stdout(contains("generic"));
}
