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
fn a_bad_policy_is_refused_with_file_and_line() {
    let bench = Bench::empty();
    bench.file("bad.toml", "name = 'bad'\n[[stream]]\nname = 'a'\n[[rule]]\nname = '*.x'\nstream = 'b'\n");
    bench.weft(&["policy", "check", "bad.toml"]).code(1).stderr(contains("bad.toml")).stderr(contains("6"));
    bench.weft(&["run", "--volume", "mem:64M", "--policy", "bad.toml", "--", "true"]).code(125);
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
}
