//! Tag stores and the key-value stores in them, from the command line.

use crate::volume::{Bench, status_of, wait_for};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::{contains, is_empty};
use std::os::unix::fs::PermissionsExt;
use weft_tags::{
    FileStore, Info, InfoForm, Kv, KvChange, NodeType, Options, ReadPath, RemoteSession, SnodeId, Store,
};

fn with_pairs() -> Bench {
    let bench = Bench::empty();
    bench.weft(&["kv", "put", "--create", "a.tags", "apple", "red"]).success().stdout(is_empty());
    bench.weft(&["kv", "put", "a.tags", "plum", "blue"]).success();
    bench
}

#[test]
fn a_pair_that_was_put_is_got_listed_counted_and_deleted() {
    let bench = with_pairs();
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "red");
    assert_eq!(bench.stdout(&["kv", "count", "a.tags"]), "2\n");
    assert_eq!(bench.json(&["kv", "count", "--json", "a.tags"])["keys"], 2);
    assert_eq!(bench.json(&["kv", "get", "--json", "a.tags", "plum"])["value"], "blue");
    let mut lines: Vec<String> = bench.stdout(&["kv", "scan", "a.tags"]).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["apple\tred", "plum\tblue"]);
    assert_eq!(bench.stdout(&["kv", "scan", "--keys", "--limit", "1", "a.tags"]).lines().count(), 1);
    bench.weft(&["kv", "delete", "a.tags", "apple"]).success();
    bench
        .weft(&["kv", "get", "a.tags", "apple"])
        .code(1)
        .stderr(contains("weft: a.tags: no key 'apple' in 'default'"))
        .stderr(contains("weft kv scan --keys"));
    bench.weft(&["kv", "delete", "a.tags", "apple"]).code(1);
    bench.weft(&["tags", "check", "a.tags"]).success().stdout(contains("no problems"));
}

#[test]
fn bytes_that_are_no_text_go_in_and_come_out_as_they_are() {
    let bench = with_pairs();
    let every: Vec<u8> = (0..=255).collect();
    bench.command().args(["kv", "put", "a.tags", "every", "-"]).write_stdin(every.clone()).assert().success();
    let got = bench.weft(&["kv", "get", "a.tags", "every"]).success();
    assert_eq!(got.get_output().stdout, every);
    bench.weft(&["kv", "put", "--hex", "a.tags", "00ff", "0a"]).success();
    assert_eq!(bench.stdout(&["kv", "get", "--hex", "a.tags", "00ff"]), "0a\n");
    assert!(bench.stdout(&["kv", "scan", "--json", "a.tags"]).contains(r#"{"key_hex":"00ff","value":"\n"}"#));
    assert!(bench.stdout(&["kv", "scan", "a.tags"]).lines().any(|line| line == "\\x00\\xff\t\\n"));
    bench
        .weft(&["kv", "put", "--hex", "a.tags", "0x", "0a"])
        .code(1)
        .stderr(contains("key: '0x' is not hex"));
}

#[test]
fn a_value_of_many_pieces_goes_in_and_comes_out_as_a_stream() {
    let bench = with_pairs();
    let value: Vec<u8> = (0..9_000_001u32).map(|at| (at ^ at >> 9) as u8).collect();
    let put = |value: Vec<u8>| {
        bench.command().args(["kv", "put", "a.tags", "apple", "-"]).write_stdin(value).assert().success();
    };
    for value in [value, Vec::new()] {
        put(value.clone());
        let got = bench.weft(&["kv", "get", "a.tags", "apple"]).success();
        assert!(got.get_output().stdout == value);
    }
    bench.weft(&["tags", "check", "a.tags"]).success().stdout(contains("no problems"));
}

#[test]
fn a_copy_of_the_superblock_that_was_destroyed_is_told_of_once() {
    let bench = with_pairs();
    for copy in [0, 1] {
        let mut image = std::fs::read(bench.path("a.tags")).unwrap();
        image[copy * 4096..][..4096].fill(0xff);
        std::fs::write(bench.path("a.tags"), image).unwrap();
        let told = format!(
            "copy {copy} of the superblock was damaged; opening the store to change it writes it anew"
        );
        let check = bench.weft(&["tags", "check", "a.tags"]).code(1);
        check.stdout(contains(told.as_str())).stderr(contains("look for errors of the disk"));
        bench.weft(&["tags", "check", "a.tags"]).success().stdout(contains("no problems"));
    }
}

#[test]
fn what_a_scan_writes_a_load_puts_in() {
    let bench = with_pairs();
    let pairs: String = (0..3000).map(|n| format!("key {n}\tvalue\\n{n}\n")).collect();
    bench.file("pairs.txt", &pairs);
    bench
        .weft(&["kv", "load", "--sync-within", "5", "a.tags", "pairs.txt"])
        .success()
        .stderr(contains("3000 pairs loaded"));
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "key 2999"]), "value\n2999");
    let scan = bench.stdout(&["kv", "scan", "a.tags"]);
    bench
        .command()
        .args(["kv", "load", "--create", "b.tags", "-"])
        .write_stdin(scan.clone())
        .assert()
        .success();
    let mut lines: Vec<&str> = scan.lines().collect();
    let copy = bench.stdout(&["kv", "scan", "b.tags"]);
    let mut copied: Vec<&str> = copy.lines().collect();
    lines.sort();
    copied.sort();
    assert_eq!(lines, copied);
    bench.file("bad.txt", "a\tb\nno tab\n");
    bench
        .weft(&["kv", "load", "a.tags", "bad.txt"])
        .code(1)
        .stderr(contains("weft: bad.txt: line 2: no tab in the line; expected a key, a tab and a value"));
}

#[test]
fn a_load_that_ends_at_a_wrong_line_keeps_the_batches_before_it() {
    let bench = with_pairs();
    let pairs: String = (0..25).map(|n| format!("key {n}\tvalue\n")).collect();
    bench.file("pairs.txt", pairs + "no tab\n");
    bench
        .weft(&["kv", "load", "--batch", "10", "a.tags", "pairs.txt"])
        .code(1)
        .stderr(contains("line 26: no tab").and(contains("the batches before this line have been loaded")));
    assert_eq!(bench.stdout(&["kv", "count", "a.tags"]), "22\n", "two pairs, and two batches of ten");
}

#[test]
fn a_load_that_the_cache_has_no_room_for_says_which_pairs_are_there_and_which_options_help() {
    let bench = with_pairs();
    let pairs: String = (0..60_000).map(|n| format!("key {n}\tvalue\n")).collect();
    bench.file("pairs.txt", pairs);
    let load = ["kv", "load", "--cache", "1M", "a.tags", "pairs.txt"];
    let said = bench.weft(&load).code(1).get_output().stderr.clone();
    let said = String::from_utf8(said).unwrap();
    let number_after = |what: &str| {
        let words = said.split(what).skip(1).filter_map(|rest| rest.split(' ').next());
        words.filter_map(|word| word.parse::<u64>().ok()).next().unwrap()
    };
    let loaded = number_after("the ");
    assert_eq!(number_after("before line "), loaded + 1, "{said}");
    assert!(said.contains("a smaller --batch or a larger --cache"), "{said}");
    assert_eq!(bench.stdout(&["kv", "count", "a.tags"]), format!("{}\n", loaded + 2));
}

#[test]
fn several_key_value_stores_live_in_one_tag_store() {
    let bench = with_pairs();
    bench.weft(&["kv", "put", "--name", "other", "a.tags", "apple", "green"]).success();
    assert_eq!(bench.stdout(&["kv", "get", "--name", "other", "a.tags", "apple"]), "green");
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "red");
    bench
        .weft(&["kv", "get", "--name", "none", "a.tags", "apple"])
        .code(1)
        .stderr(contains("no key-value store 'none'"))
        .stderr(contains("there are default, other"));
    let stat = bench.json(&["tags", "stat", "--json", "a.tags"]);
    assert_eq!(stat["snodes"][0]["kv"], serde_json::json!(["default", "other"]));
    bench.weft(&["tags", "stat", "a.tags"]).success().stdout(contains("s1:0x1000  default, other"));
}

#[test]
fn a_tree_keeps_pairs_in_the_order_of_their_keys() {
    let bench = Bench::empty();
    bench.weft(&["btree", "create", "a.tags"]).success().stdout(is_empty());
    bench
        .weft(&["btree", "create", "a.tags"])
        .code(1)
        .stderr(contains("the B+tree 'default' exists already"));
    for (key, value) in [("pear", "green"), ("apple", "red"), ("plum", "blue"), ("fig", "purple")] {
        bench.weft(&["btree", "put", "a.tags", key, value]).success();
    }
    assert_eq!(bench.stdout(&["btree", "get", "a.tags", "fig"]), "purple");
    assert_eq!(bench.stdout(&["btree", "scan", "--keys", "a.tags"]), "apple\nfig\npear\nplum\n");
    assert_eq!(
        bench.stdout(&["btree", "scan", "--from", "b", "--to", "plum", "--reverse", "a.tags"]),
        "pear\tgreen\nfig\tpurple\n"
    );
    bench.weft(&["btree", "delete", "a.tags", "fig"]).success();
    bench.weft(&["btree", "delete", "a.tags", "fig"]).code(1).stderr(contains("no key 'fig' in 'default'"));
    let pairs: String = (0..5000).map(|n| format!("q{n:06}\t{n}\n")).collect();
    bench.file("pairs.txt", &pairs);
    bench.weft(&["btree", "load", "a.tags", "pairs.txt"]).success().stderr(contains("5000 pairs loaded"));
    bench
        .weft(&["btree", "load", "a.tags", "pairs.txt"])
        .code(1)
        .stderr(contains("pairs.txt: line 1: the key is not greater than"));
    bench.file("unsorted.txt", "r1\t1\nr3\t3\nr2\t2\n");
    bench
        .weft(&["btree", "load", "a.tags", "unsorted.txt"])
        .code(1)
        .stderr(contains("unsorted.txt: line 3: "));
    let stat = bench.json(&["btree", "stat", "--json", "a.tags"]);
    assert_eq!((&stat["pairs"], &stat["levels"]), (&5003.into(), &2.into()));
    bench.weft(&["btree", "check", "a.tags"]).success().stdout(contains("5003"));
    bench.weft(&["tags", "check", "a.tags"]).success();
    bench
        .weft(&["btree", "get", "--name", "x", "a.tags", "k"])
        .code(1)
        .stderr(contains("the trees in the store are default"));
}

#[test]
fn a_tree_of_fixed_pairs_takes_numbers() {
    let bench = Bench::empty();
    bench.weft(&["btree", "create", "--form", "fixed", "a.tags"]).success();
    bench.weft(&["btree", "put", "a.tags", "300", "7"]).success();
    bench.weft(&["btree", "put", "a.tags", "5", "18446744073709551615"]).success();
    assert_eq!(bench.stdout(&["btree", "scan", "a.tags"]), "5\t18446744073709551615\n300\t7\n");
    assert_eq!(bench.json(&["btree", "get", "--json", "a.tags", "300"])["value"], 7);
    bench
        .weft(&["btree", "put", "a.tags", "x", "7"])
        .code(1)
        .stderr(contains("key 'x' is not a number below 2^32"));
    bench
        .weft(&["btree", "put", "--hex", "a.tags", "00", "00"])
        .code(1)
        .stderr(contains("the key has 1 bytes"));
}

#[test]
fn nodes_are_listed_told_of_and_drawn() {
    let bench = with_pairs();
    let scan = bench.stdout(&["tags", "scan", "a.tags"]);
    assert_eq!(scan.lines().count(), 5, "a heading, the root, the anchor, two pairs: {scan}");
    assert_eq!(bench.stdout(&["tags", "scan", "--json", "--type", "0", "a.tags"]).lines().count(), 1);
    let dump = bench.stdout(&["tags", "dump", "--data", "a.tags"]);
    assert!(dump.contains("  weft.kv.name \"default\" -> s1:0x"), "{dump}");
    assert!(dump.contains("  weft.kv \"plum\" -> s1:0x") && dump.contains("  data  blue"), "{dump}");
    let dot = bench.stdout(&["tags", "dump", "--dot", "--depth", "1", "a.tags"]);
    assert!(dot.starts_with("digraph store {") && dot.ends_with("}\n"), "{dot}");
    assert!(dot.contains("[label=\"weft.kv.name \\\"default\\\"\"]") && !dot.contains("plum"), "{dot}");
    bench
        .weft(&["tags", "dump", "--nodes", "2", "a.tags"])
        .success()
        .stderr(contains("only the first 2 nodes"));
    bench
        .weft(&["tags", "dump", "--from", "s1:0x9999", "a.tags"])
        .code(1)
        .stderr(contains("no node s1:0x9999"));
    bench.weft(&["tags", "dump", "--from", "x", "a.tags"]).code(2).stderr(contains("s1:0x2010"));
}

#[test]
fn a_store_is_not_overwritten_unless_told_and_other_files_are_refused() {
    let bench = with_pairs();
    bench
        .weft(&["tags", "create", "a.tags"])
        .code(1)
        .stderr(contains("weft: a.tags exists"))
        .stderr(contains("--force"));
    bench.weft(&["tags", "create", "--force", "a.tags"]).success();
    bench.weft(&["kv", "get", "a.tags", "apple"]).code(1).stderr(contains("no key-value store 'default'"));
    bench.weft(&["kv", "get", "none.tags", "a"]).code(1).stderr(contains("weft tags create STORE"));
    for args in [["kv", "put", "none.tags", "a", "b"], ["kv", "load", "--quiet", "none.tags", "pairs.txt"]] {
        bench.file("pairs.txt", "a\tb\n");
        bench.weft(&args).code(1).stderr(contains("none.tags: No such file").and(contains("--create makes")));
    }
    assert!(!bench.path("none.tags").exists());
    bench.file("empty", "");
    bench
        .weft(&["kv", "get", "empty", "a"])
        .code(1)
        .stderr(contains("--force overwrites").or(contains("with --force")));
    bench.file("text", "not a store".repeat(1000));
    bench.weft(&["tags", "stat", "text"]).code(1).stderr(contains("weft: text: no tag store here"));
    bench.weft(&["tags", "check", "text"]).code(2).stderr(contains("text: cannot be checked"));
    bench.weft(&["tags", "create", "--journal", "1K", "b.tags"]).code(1).stderr(contains("at least 256 KiB"));
    assert!(!bench.path("b.tags").exists(), "nothing is left of a store that was not made");
}

#[test]
fn a_store_that_another_process_has_open_is_refused() {
    let bench = with_pairs();
    // A load that waits for its input has the store open.
    let mut other = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"))
        .args(["kv", "load", "a.tags", "-"])
        .current_dir(bench.dir())
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    crate::volume::wait_for("the other process opens the store", || {
        !bench.command().args(["kv", "count", "a.tags"]).output().unwrap().status.success()
    });
    bench
        .weft(&["kv", "get", "a.tags", "apple"])
        .code(1)
        .stderr(contains("weft: a.tags: in use by another process; close the store there first"));
    bench
        .weft(&["tags", "backup", "a.tags", "b.tags"])
        .code(1)
        .stderr(contains(
            "weft: a.tags: another process has the store open, and only that process can copy it",
        ))
        .stderr(contains("Store::backup").and(contains("SIGTERM")));
    assert!(!bench.path("b.tags").exists());
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "red");
}

#[test]
fn a_backup_is_a_store_of_its_own() {
    let bench = with_pairs();
    bench.weft(&["tags", "backup", "a.tags", "b.tags"]).success().stdout(contains("b.tags: "));
    bench.weft(&["kv", "put", "a.tags", "apple", "brown"]).success();
    assert_eq!(bench.stdout(&["kv", "get", "b.tags", "apple"]), "red");
    bench.weft(&["tags", "check", "b.tags"]).success();
    bench.weft(&["tags", "backup", "a.tags", "b.tags"]).code(1).stderr(contains("b.tags exists"));
    bench.weft(&["tags", "backup", "--force", "--quiet", "a.tags", "b.tags"]).success().stdout(is_empty());
    assert_eq!(bench.stdout(&["kv", "get", "b.tags", "apple"]), "brown");
    bench.weft(&["tags", "backup", "none.tags", "c.tags"]).code(1).stderr(contains("none.tags"));
    for (command, status) in [("backup", 1), ("salvage", 2)] {
        let refused = bench.weft(&["tags", command, "a.tags", "none/c.tags"]).code(status);
        refused.stderr(contains("none/c.tags").and(contains("directory is not there")));
    }
    assert!(!bench.path("c.tags").exists());
}

#[test]
fn a_backup_takes_the_place_of_another_when_it_is_whole() {
    let bench = with_pairs();
    let pairs: String = (0..3000).map(|n| format!("key {n}\tvalue {n}\n")).collect();
    bench.file("pairs.txt", &pairs);
    bench.weft(&["kv", "load", "--quiet", "a.tags", "pairs.txt"]).success();
    bench.weft(&["tags", "backup", "a.tags", "b.tags"]).success();
    std::os::unix::fs::symlink("b.tags", bench.path("link.tags")).unwrap();
    for same in ["a.tags", "./a.tags"] {
        bench
            .weft(&["tags", "backup", "--force", "a.tags", same])
            .code(1)
            .stderr(contains(format!("a.tags and {same} are the same file")));
    }
    let whole = std::fs::read(bench.path("a.tags")).unwrap();
    let mut damaged = whole.clone();
    let at = damaged.windows(10).rposition(|window| window == b"value 1234").unwrap();
    damaged[at] ^= 1;
    bench.file("a.tags", damaged);
    bench
        .weft(&["tags", "backup", "--force", "a.tags", "b.tags"])
        .code(1)
        .stderr(contains("its checksum does not hold"));
    assert_eq!(bench.stdout(&["kv", "count", "b.tags"]), "3002\n", "the backup before is lost");
    bench.weft(&["tags", "backup", "a.tags", "c.tags"]).code(1);
    assert!(!bench.path("c.tags").exists(), "what is no store is left");
    bench.file("a.tags", whole);
    bench.weft(&["kv", "put", "a.tags", "apple", "brown"]).success();
    // Somebody's own store has this name.
    bench.weft(&["kv", "put", "--create", "b.tags.weft-part", "own", "data"]).success();
    bench
        .weft(&["tags", "backup", "--force", "a.tags", "link.tags"])
        .code(1)
        .stderr(contains("b.tags.weft-part: this store is in the way"));
    assert_eq!(bench.stdout(&["kv", "get", "b.tags.weft-part", "own"]), "data");
    // One that was killed leaves this.
    bench.file("b.tags.weft-part", "half a backup");
    bench.weft(&["tags", "backup", "--force", "a.tags", "link.tags"]).success();
    assert_eq!(bench.stdout(&["kv", "get", "b.tags", "apple"]), "brown");
    assert!(bench.path("link.tags").is_symlink());
    let left = std::fs::read_dir(bench.dir()).unwrap();
    assert!(left.into_iter().all(|file| !file.unwrap().file_name().to_string_lossy().contains("weft-part")));
}

#[test]
fn a_copy_without_room_names_its_place_and_leaves_nothing() {
    let bench = with_pairs();
    std::fs::create_dir(bench.path("small")).unwrap();
    // SAFETY: a system call without arguments.
    let spaces = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-Urm" };
    let script =
        "mount -t tmpfs -o size=64k none small || exit 77; \"$@\"; status=$?; ls small; exit $status";
    for (command, status) in [("backup", 1), ("salvage", 2)] {
        let mut within = std::process::Command::new("unshare");
        within.args([spaces, "sh", "-c", script, "sh"]).arg(bench.command().get_program());
        let done = within
            .args(["tags", command, "--quiet", "a.tags", "small/b.tags"])
            .current_dir(bench.dir())
            .output()
            .unwrap();
        let told = String::from_utf8(done.stderr).unwrap();
        if done.status.code() == Some(77) || told.contains("unshare failed") {
            return;
        }
        assert_eq!(done.status.code(), Some(status), "{command}: {told}");
        assert!(told.contains("small/b.tags: no room for the copy"), "{told}");
        assert!(told.contains("free space there, or name a file in a place with more room"), "{told}");
        assert_eq!(String::from_utf8(done.stdout).unwrap(), "", "what is no store is left");
    }
}

#[test]
fn a_salvage_refuses_at_once_what_is_no_file_and_no_device() {
    let bench = Bench::empty();
    std::fs::create_dir(bench.path("folder")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap().success());
    bench
        .weft(&["tags", "check", "fifo"])
        .code(2)
        .stderr(contains("fifo: neither a file nor a block device"));
    for (source, why) in [("folder", "Is a directory"), ("fifo", "neither a file nor a block device")] {
        bench.weft(&["tags", "salvage", source, "new.tags"]).code(2).stderr(contains(why));
    }
    assert!(!bench.path("new.tags").exists());
}

#[test]
fn an_interrupted_salvage_leaves_nothing_under_the_name_of_the_new_store() {
    let bench = with_pairs();
    let new = bench.path("new.tags");
    let mut cut_off = 0;
    for ms in 0..30 {
        let mut child = bench.spawn(&["tags", "salvage", "--quiet", "a.tags", "new.tags"]);
        std::thread::sleep(std::time::Duration::from_millis(ms));
        child.kill().unwrap();
        child.wait().unwrap();
        if new.exists() {
            bench.weft(&["tags", "check", "new.tags"]).success();
            std::fs::remove_file(&new).unwrap();
        } else {
            cut_off += 1;
        }
    }
    assert!(cut_off > 0);
    // What one that was killed has left is replaced.
    bench.file("new.tags.weft-part", "half a salvage");
    bench.weft(&["tags", "salvage", "--quiet", "a.tags", "new.tags"]).success();
    assert!(!bench.path("new.tags.weft-part").exists());
    // Where a limit of this process ends it, the error says which.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]).arg(bench.command().get_program());
    let limited = limited.args(["tags", "salvage", "a.tags", "less.tags"]).current_dir(bench.dir()).output();
    let limited = limited.unwrap();
    let told = String::from_utf8_lossy(&limited.stderr);
    assert!(limited.status.code() == Some(2) && told.contains("ulimit -f"), "{told}");
    let left = std::fs::read_dir(bench.dir()).unwrap();
    assert!(left.into_iter().all(|file| !file.unwrap().file_name().to_string_lossy().contains("less.tags")));
}

#[test]
fn only_the_owner_has_access_to_the_file_of_a_new_store_and_a_server_warns_of_others() {
    let bench = with_pairs();
    let mode = |name: &str| std::fs::metadata(bench.path(name)).unwrap().permissions().mode() & 0o777;
    bench.weft(&["tags", "create", "made.tags"]).success();
    bench.weft(&["tags", "backup", "--quiet", "a.tags", "copy.tags"]).success();
    bench.weft(&["tags", "salvage", "--quiet", "a.tags", "new.tags"]).success();
    for name in ["a.tags", "made.tags", "copy.tags", "new.tags"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    // A file that is there keeps its mode.
    for name in ["made.tags", "copy.tags"] {
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    bench.weft(&["tags", "create", "--force", "made.tags"]).success();
    bench.weft(&["tags", "backup", "--quiet", "--force", "a.tags", "copy.tags"]).success();
    assert_eq!((mode("made.tags"), mode("copy.tags")), (0o640, 0o640));
    for (name, warns) in [("copy.tags", true), ("new.tags", false)] {
        bench
            .weft(&["tags", "serve", "--socket", name, name])
            .failure()
            .stderr(contains("mode 0640 gives other users access").count(usize::from(warns)));
    }
}

#[test]
fn a_store_for_whose_journal_there_is_no_room_names_the_option() {
    let bench = Bench::empty();
    std::fs::create_dir(bench.path("small")).unwrap();
    // SAFETY: a system call without arguments.
    let spaces = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-Urm" };
    let script = "mount -t tmpfs -o size=64k none small || exit 77; exec \"$@\"";
    let mut within = std::process::Command::new("unshare");
    within.args([spaces, "sh", "-c", script, "sh"]).arg(bench.command().get_program());
    let done = within.args(["tags", "create", "small/a.tags"]).current_dir(bench.dir()).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    if done.status.code() != Some(77) && !told.contains("unshare failed") {
        assert!(told.contains("give a --journal smaller than 64.0 MiB"), "{told}");
    }
}

#[test]
fn names_that_clients_have_given_are_escaped_by_stat() {
    let bench = with_pairs();
    let medium = FileStore::open(&bench.path("a.tags"), ReadPath::Kernel).unwrap();
    let store = Store::open(Box::new(medium), &Options::default()).unwrap();
    store.edge_type("\x1b[31mred\nforged", InfoForm::Number).unwrap();
    Kv::open(&store, SnodeId::FIRST, "pairs\n\x1b[2J").unwrap();
    store.close().unwrap();
    let text = bench.stdout(&["tags", "stat", "a.tags"]);
    assert!(text.contains("\\x1b[31mred\\nforged") && text.contains("pairs\\n\\x1b[2J"), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn a_cache_that_the_machine_has_no_memory_for_is_refused() {
    let bench = with_pairs();
    bench
        .weft(&["kv", "get", "--cache", "99999G", "a.tags", "apple"])
        .code(2)
        .stderr(contains("--cache").and(contains("of memory; give a smaller size")));
}

#[test]
fn a_store_that_has_lost_most_of_its_pairs_gives_back_what_they_took() {
    let bench = with_pairs();
    let pairs: String = (0..3000).map(|n| format!("key {n}\t{}\n", "v".repeat(3900))).collect();
    bench.file("pairs.txt", &pairs);
    bench.weft(&["kv", "load", "--quiet", "a.tags", "pairs.txt"]).success();
    let file = FileStore::open(&bench.path("a.tags"), ReadPath::Kernel).unwrap();
    let store = Store::open(Box::new(file), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "default").unwrap();
    let keys: Vec<String> = (0..2900).map(|n| format!("key {n}")).collect();
    let gone: Vec<_> = keys.iter().map(|key| KvChange::Delete(key.as_bytes())).collect();
    assert_eq!(kv.change(&gone).unwrap(), 2900);
    store.close().unwrap();
    let bytes = || std::fs::metadata(bench.path("a.tags")).unwrap().len();
    let before = bytes();
    let report = bench.json(&["tags", "shrink", "--json", "a.tags"]);
    let after = bytes();
    assert_eq!(
        (report["bytes_before"].as_u64(), report["bytes_after"].as_u64()),
        (Some(before), Some(after))
    );
    assert!(after + (10 << 20) < before, "{before}, {after}");
    assert!(report["pages_moved"].as_u64().unwrap() > 0 && report["tables_merged"].as_u64().unwrap() > 0);
    bench.weft(&["tags", "check", "a.tags"]).success();
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "key 2999"]), "v".repeat(3900));
    bench.weft(&["tags", "shrink", "a.tags"]).success().stdout(contains("0 pages of edges merged"));
    bench.weft(&["tags", "shrink", "--quiet", "a.tags"]).success().stdout(is_empty());
    assert_eq!(bytes(), after);
    bench.weft(&["tags", "shrink", "none.tags"]).code(1).stderr(contains("none.tags"));
}

#[test]
fn a_damaged_store_is_found_by_its_check() {
    let bench = with_pairs();
    let pairs: String = (0..3000).map(|n| format!("key {n}\tvalue {n}\n")).collect();
    bench.file("pairs.txt", &pairs);
    bench.weft(&["kv", "load", "--quiet", "a.tags", "pairs.txt"]).success().stderr(is_empty());
    let mut bytes = std::fs::read(bench.path("a.tags")).unwrap();
    let at = bytes.windows(10).rposition(|window| window == b"value 1234").unwrap();
    bytes[at] ^= 1;
    bench.file("a.tags", bytes);
    bench
        .weft(&["tags", "check", "a.tags"])
        .code(1)
        .stdout(contains("its checksum does not hold"))
        .stderr(contains("found"));
    bench.weft(&["kv", "get", "a.tags", "key 1234"]).code(1).stderr(contains("its checksum does not hold"));
}

#[test]
fn what_can_be_read_of_a_damaged_store_comes_into_a_new_one() {
    let bench = with_pairs();
    let pairs: String = (0..3000).map(|n| format!("key {n}\tvalue {n}\n")).collect();
    bench.file("pairs.txt", &pairs);
    bench.weft(&["kv", "load", "--quiet", "a.tags", "pairs.txt"]).success();
    bench
        .weft(&["tags", "salvage", "a.tags", "whole.tags"])
        .success()
        .stdout(contains("everything was there"))
        .stdout(contains("nodes copied"));
    assert_eq!(bench.stdout(&["kv", "count", "whole.tags"]), "3002\n");
    let mut damaged = std::fs::read(bench.path("a.tags")).unwrap();
    let at = damaged.windows(10).rposition(|window| window == b"value 1234").unwrap();
    damaged[at] ^= 1;
    bench.file("a.tags", &damaged);
    bench
        .weft(&["tags", "salvage", "a.tags", "b.tags"])
        .code(1)
        .stdout(contains("nodes known to be lost"))
        .stdout(contains("cannot be read"))
        .stderr(contains("weft: a.tags: not everything could be salvaged"));
    assert_eq!(std::fs::read(bench.path("a.tags")).unwrap(), damaged, "the damaged store has changed");
    bench.weft(&["tags", "check", "b.tags"]).success();
    bench.weft(&["kv", "get", "b.tags", "key 1234"]).code(1).stderr(contains("no key 'key 1234'"));
    assert_eq!(bench.stdout(&["kv", "get", "b.tags", "key 2999"]), "value 2999");
    let told = bench.weft(&["tags", "salvage", "--json", "a.tags", "c.tags"]).code(1);
    let told: serde_json::Value = serde_json::from_slice(&told.get_output().stdout).unwrap();
    assert_eq!(
        (&told["complete"], &told["lost_pages"], &told["commits_lost"]),
        (&false.into(), &1.into(), &0.into())
    );
    let left: usize = bench.stdout(&["kv", "count", "b.tags"]).trim().parse().unwrap();
    assert_eq!(told["lost_nodes"], 3002 - left);
    damaged[..8192].fill(0);
    bench.file("a.tags", &damaged);
    bench
        .weft(&["tags", "salvage", "a.tags", "d.tags"])
        .code(2)
        .stderr(contains("weft: a.tags: nothing can be salvaged"));
    assert!(!bench.path("d.tags").exists(), "what is no store is left");
}

#[test]
fn a_salvage_that_makes_no_new_store_says_why_and_does_not_pass_for_one_that_lost_something() {
    let bench = with_pairs();
    bench.weft(&["kv", "put", "--create", "there.tags", "own", "data"]).success();
    bench.weft(&["kv", "put", "--create", "way.tags.weft-part", "own", "data"]).success();
    bench.file("file", "no directory");
    std::os::unix::fs::symlink("nowhere.tags", bench.path("link.tags")).unwrap();
    let cases = [
        ("there.tags", "there.tags exists", "a file that does not exist"),
        ("link.tags", "link.tags exists", "a file that does not exist"),
        ("none/new.tags", "none/new.tags", "directory is not there"),
        ("file/new.tags", "file/new.tags", ""),
        ("way.tags", "way.tags.weft-part: this store is in the way", "move it to another name"),
        ("/proc/new.tags", "/proc/new.tags", "name a file in a directory in which you may make files"),
        ("policy:new.img", "on flash, not in a file", "name a file"),
    ];
    for (target, what, remedy) in cases {
        bench
            .weft(&["tags", "salvage", "a.tags", target])
            .code(2)
            .stdout(is_empty())
            .stderr(contains(what).and(contains(remedy)).and(contains("tags create").not()));
    }
    bench.weft(&["tags", "salvage", "policy:none.img", "new.tags"]).code(2);
    assert_eq!(bench.stdout(&["kv", "get", "way.tags.weft-part", "own"]), "data");
    bench.weft(&["tags", "salvage", "--quiet", "a.tags", "new.tags"]).success();
}

#[test]
fn a_store_that_cannot_be_made_says_what_to_do() {
    let bench = with_pairs();
    std::os::unix::fs::symlink("nowhere.tags", bench.path("link.tags")).unwrap();
    let to_link = "link.tags: this is a link to a file that does not exist";
    let commands: [&[&str]; 4] = [
        &["tags", "create", "link.tags"],
        &["tags", "create", "--force", "link.tags"],
        &["kv", "put", "--create", "link.tags", "key", "value"],
        &["tags", "backup", "a.tags", "/proc/b.tags"],
    ];
    for command in &commands[..3] {
        bench.weft(command).code(1).stderr(contains(to_link).and(contains("remove the link")));
    }
    let no_place = contains("/proc/b.tags").and(contains("in which you may make files"));
    bench.weft(commands[3]).code(1).stderr(no_place);
    assert!(!bench.path("nowhere.tags").exists());
}

#[test]
fn keys_and_values_that_are_not_text_are_refused_with_the_way_to_give_them() {
    use std::os::unix::ffi::OsStrExt;
    let bench = with_pairs();
    bench.weft(&["btree", "create", "a.tags"]).success();
    let bytes = std::ffi::OsStr::from_bytes(b"k\xff");
    let commands: [&[&str]; 8] = [
        &["kv", "put", "a.tags", "?", "value"],
        &["kv", "put", "a.tags", "key", "?"],
        &["kv", "get", "a.tags", "?"],
        &["kv", "delete", "a.tags", "?"],
        &["btree", "put", "a.tags", "?", "value"],
        &["btree", "get", "a.tags", "?"],
        &["btree", "scan", "a.tags", "--from", "?"],
        &["btree", "scan", "a.tags", "--to", "?"],
    ];
    for command in commands {
        let arguments =
            command.iter().map(|word| if *word == "?" { bytes } else { std::ffi::OsStr::new(word) });
        let refused = bench.command().args(arguments).assert().code(2);
        refused.stderr(contains("not text (UTF-8)").and(contains("hex digits, with --hex")));
    }
    bench.weft(&["kv", "put", "--hex", "a.tags", "6bff", "00"]).success();
    assert_eq!(bench.stdout(&["kv", "get", "--hex", "a.tags", "6bff"]), "00\n");
}

#[test]
fn a_served_store_has_sessions_and_is_closed_in_order() {
    let bench = with_pairs();
    let socket = bench.path("a.tags.sock");
    let child = bench.spawn(&["tags", "serve", "a.tags"]);
    wait_for("the socket", || socket.exists());
    bench.weft(&["kv", "get", "a.tags", "apple"]).failure().stderr(contains("in use by another process"));
    let mut session = RemoteSession::connect(&socket).unwrap();
    let etype = session.edge_type("seen", InfoForm::Number).unwrap();
    let root = session.root();
    session.begin().unwrap();
    let node = session.create_node(root, NodeType(7), b"by a session").unwrap();
    session.create_edge(root, etype, Info::Number(0), node).unwrap();
    session.commit().unwrap();
    // SAFETY: the child is this process's and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(status_of(child), Some(0));
    assert!(!socket.exists(), "the socket is left");
    assert!(bench.stdout(&["tags", "dump", "--data", "a.tags"]).contains("by a session"));
    bench.weft(&["tags", "check", "a.tags"]).success();
    bench.weft(&["tags", "serve", "a.tags", "--socket", "a.tags"]).failure().stderr(contains("no socket"));
    bench.weft(&["tags", "serve", "a.tags", "--root", "s1:0x999000"]).failure().stderr(contains("no node"));
}

#[test]
fn what_an_s_node_says_of_its_nodes_is_shown_and_changed() {
    let bench = with_pairs();
    let of = |arguments: &[&str]| {
        let all: Vec<&str> = ["tags", "snode", "--json"].iter().chain(arguments).copied().collect();
        bench.json(&all)["snodes"].as_array().unwrap().clone()
    };
    let [first] = of(&["a.tags"]).try_into().unwrap();
    assert_eq!(first["snode"], 1);
    assert_eq!(first["secure_delete"], false);
    let [now] = of(&["--secure-delete", "on", "--class", "log", "a.tags", "s1"]).try_into().unwrap();
    assert_eq!((&now["secure_delete"], &now["class"]), (&true.into(), &"log".into()));
    assert_eq!((&now["owner"], &now["mode"]), (&first["owner"], &first["mode"]), "what was not named stays");
    let new = ["--new", "--owner", "1000", "--group", "100", "--mode", "0640", "a.tags"];
    let [made] = of(&new).try_into().unwrap();
    assert_eq!((&made["owner"], &made["group"], &made["mode"]), (&1000.into(), &100.into(), &"0640".into()));
    let name = format!("s{}", made["snode"]);
    let [made] = of(&["--owner", "1001", "a.tags", &name]).try_into().unwrap();
    assert_eq!((&made["owner"], &made["mode"]), (&1001.into(), &"0640".into()));
    let [_, _] = of(&["a.tags"]).try_into().unwrap();
    let text = bench.stdout(&["tags", "snode", "a.tags"]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["s1", "0", "0", "0000", "log", "on"]), "{text}");
    bench
        .weft(&["tags", "snode", "--secure-delete", "off", "a.tags", "s1"])
        .success()
        .stdout(contains("off"));
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "red");
    bench.weft(&["tags", "snode", "--owner", "7", "a.tags"]).code(1).stderr(contains("which s-node"));
    bench.weft(&["tags", "snode", "a.tags", "s77"]).code(1).stderr(contains("no s-node"));
    bench.weft(&["tags", "snode", "--mode", "10000", "a.tags", "s1"]).code(1).stderr(contains("07777"));
    bench
        .weft(&["tags", "snode", "--class", "warm", "a.tags", "s1"])
        .failure()
        .stderr(contains("there is no class"));
}

#[test]
fn stat_shows_what_the_cache_did_and_owner_whose_blocks_are() {
    let bench = with_pairs();
    bench.weft(&["tags", "snode", "--new", "--class", "small", "--secure-delete", "on", "a.tags"]).success();
    let share = ["--cache-class", "small=2:5-50", "--cache-class", "small-edges=1"];
    let passes = ["--erase-pass", "random", "--erase-pass", "0xff"];
    let stat = [&["tags", "stat"][..], &share, &passes, &["a.tags"]].concat();
    assert!(bench.stdout(&stat).contains("cached class"));
    let cache = bench.json(&[&stat[..], &["--json"]].concat())["cache"].clone();
    let unknown = cache.as_array().unwrap().iter().find(|of| of["class"] == "unknown").unwrap();
    assert!(unknown["misses"].as_u64() > Some(0) && unknown["evictions"] == 0, "{cache}");
    bench
        .weft(&["tags", "stat", "--cache-class", "warm=1", "a.tags"])
        .code(2)
        .stderr(contains("there is no class 'warm'"));
    bench.weft(&["tags", "stat", "--cache-class", "small=1:9-8", "a.tags"]).code(2).stderr(contains("5-50"));
    bench.weft(&["tags", "stat", "--erase-pass", "7", "a.tags"]).code(2).stderr(contains("0xff"));
    // Each block of the file, and the pages of an s-node.
    let lines = bench.stdout(&["tags", "owner", "--json", "a.tags"]);
    let told: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len() as u64, std::fs::metadata(bench.path("a.tags")).unwrap().len() / 4096);
    let root = told.iter().find(|of| of["use"] == "nodes" && of["snodes"] == serde_json::json!([2])).unwrap();
    let block = root["block"].to_string();
    let text = bench.stdout(&["tags", "owner", "a.tags", &block]);
    assert!(text.contains("  nodes     s2 "), "{text}");
    assert_eq!(bench.stdout(&["tags", "owner", "--snode", "s2", "a.tags"]), text);
    bench
        .weft(&["tags", "owner", "a.tags", "99999999"])
        .code(1)
        .stderr(contains("there is no block 99999999"));
}

#[test]
fn commands_that_read_a_store_leave_its_file_as_it_is() {
    let bench = with_pairs();
    bench.weft(&["btree", "create", "a.tags"]).success();
    bench.weft(&["btree", "put", "a.tags", "pear", "green"]).success();
    let reads: [&[&str]; 11] = [
        &["kv", "get", "a.tags", "apple"],
        &["kv", "scan", "a.tags"],
        &["kv", "count", "a.tags"],
        &["btree", "get", "a.tags", "pear"],
        &["btree", "scan", "a.tags"],
        &["tags", "stat", "a.tags"],
        &["tags", "check", "a.tags"],
        &["tags", "dump", "a.tags"],
        &["tags", "scan", "a.tags"],
        &["tags", "owner", "a.tags"],
        &["tags", "snode", "a.tags"],
    ];
    let path = bench.path("a.tags");
    let state = || (std::fs::metadata(&path).unwrap().modified().unwrap(), std::fs::read(&path).unwrap());
    for is_erased in [false, true] {
        if is_erased {
            bench.weft(&["tags", "snode", "--secure-delete", "on", "a.tags", "s1"]).success();
        }
        let before = state();
        for args in reads {
            bench.weft(args).success();
            let now = state();
            assert_eq!(now.0, before.0, "{args:?} wrote, secure deletion {is_erased}");
            assert!(now.1 == before.1, "{args:?} changed the file");
        }
        // What changes it is still there after the next opening.
        bench.weft(&["kv", "put", "a.tags", "apple", "brown"]).success();
        assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "brown");
    }
}
