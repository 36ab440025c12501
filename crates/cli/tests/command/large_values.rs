//! Values that are larger than the memory of the commands that store, show, list and load them.

use crate::volume::Bench;
use predicates::str::contains;
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const VALUE_BYTES: usize = 72 << 20;
/// What a command may have of memory, with a cache of 8 MiB.
const PEAK_BYTES_MAX: u64 = 64 << 20;

/// Runs a command of key-value stores with little cache, and returns how much memory it had at most.
fn peak_bytes(bench: &Bench, args: &[&str], from: Stdio, to: Stdio) -> u64 {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("weft"));
    command.args(["kv", args[0], "--cache", "8M"]).args(&args[1..]).current_dir(bench.dir());
    let mut child = command.stdin(from).stdout(to).spawn().unwrap();
    let status_path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let status = loop {
        let status = fs::read_to_string(&status_path).unwrap_or_default();
        // For a moment the child still has the memory of this process.
        let is_it = status.starts_with("Name:\tweft\n");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).filter(|_| is_it);
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success(), "{args:?}");
    peak
}

#[test]
fn commands_take_little_memory_for_values_of_any_size() {
    let bench = Bench::empty();
    let mut value = Vec::with_capacity(VALUE_BYTES);
    // Text, beside what no text has: a byte that begins nothing, ends of lines, halves of characters.
    let parts = [
        &b"abcdefghijklmnopqrstuvwxyz 0123456789"[..],
        "gr\u{fc}n \u{1f332}".as_bytes(),
        b"\\\n\t\x00\xff\xf0\x9f",
    ];
    while value.len() < VALUE_BYTES {
        value.extend_from_slice(parts[value.len() % 257 % 3]);
    }
    bench.file("value", &value);
    let text = "gr\u{fc}n \u{1f332}\u{85}\n\"".repeat(200_000);
    bench.weft(&["kv", "put", "--create", "a.tags", "", "an empty key"]).success();
    bench.command().args(["kv", "put", "a.tags", "text", "-"]).write_stdin(text.clone()).assert().success();
    bench.weft(&["kv", "put", "a.tags", "no value", ""]).success();
    let mut peaks = Vec::new();
    let mut run = |args: &[&str], from: Option<&str>, to: &str| {
        let from = from.map_or(Stdio::null(), |name| File::open(bench.path(name)).unwrap().into());
        let peak = peak_bytes(&bench, args, from, File::create(bench.path(to)).unwrap().into());
        peaks.push((peak, args.join(" ")));
    };
    run(&["put", "a.tags", "large", "-"], Some("value"), "none");
    run(&["get", "a.tags", "large"], None, "got");
    assert!(fs::read(bench.path("got")).unwrap() == value);
    run(&["get", "--hex", "a.tags", "6c61726765"], None, "got");
    run(&["get", "--json", "a.tags", "large"], None, "got.json");
    run(&["scan", "a.tags"], None, "pairs");
    run(&["scan", "--hex", "a.tags"], None, "pairs.hex");
    run(&["scan", "--json", "a.tags"], None, "pairs.json");
    run(&["scan", "--keys", "a.tags"], None, "keys");
    run(&["load", "--quiet", "--create", "b.tags"], Some("pairs"), "none");
    run(&["load", "--quiet", "--create", "--hex", "c.tags", "pairs.hex"], None, "none");
    for store in ["b.tags", "c.tags"] {
        run(&["get", store, "large"], None, "got");
        assert!(fs::read(bench.path("got")).unwrap() == value, "{store}");
        assert_eq!(bench.stdout(&["kv", "get", store, "text"]), text);
        assert_eq!(bench.stdout(&["kv", "get", store, ""]), "an empty key");
        assert_eq!(bench.stdout(&["kv", "get", store, "no value"]), "");
        assert_eq!(bench.stdout(&["kv", "count", store]), "4\n");
        bench.weft(&["tags", "check", store]).success();
    }
    // What a program reads is the same, whether the value came by pieces or not.
    let lines = fs::read_to_string(bench.path("pairs.json")).unwrap();
    let pairs: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |key: &str| pairs.iter().find(|pair| pair["key"] == key).unwrap();
    assert_eq!(of("text")["value"], text);
    assert_eq!(
        *of("large"),
        serde_json::from_str::<serde_json::Value>(&fs::read_to_string(bench.path("got.json")).unwrap())
            .unwrap()
    );
    let hex: String = value[..1000].iter().map(|byte| format!("{byte:02x}")).collect();
    let got = of("large")["value_hex"].as_str().unwrap();
    assert!(got.len() == 2 * value.len() && got.starts_with(&hex));
    assert_eq!(bench.json(&["kv", "get", "--json", "a.tags", "text"])["value"], text);
    assert_eq!(fs::read_to_string(bench.path("keys")).unwrap().lines().count(), 4);
    for (peak, args) in peaks {
        assert!(peak < PEAK_BYTES_MAX, "weft kv {args}: {peak} bytes");
    }
}

#[test]
fn a_value_that_is_too_large_is_refused_before_it_is_written_and_leaves_what_was_there() {
    let bench = Bench::empty();
    bench.weft(&["kv", "put", "--create", "a.tags", "apple", "red"]).success();
    let length = || fs::metadata(bench.path("a.tags")).unwrap().len();
    let before = length();
    let untouched = || {
        assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "red");
        bench.weft(&["tags", "check", "a.tags"]).success();
    };
    // A file has its size with it, and holes have no bytes to wait for.
    File::create(bench.path("huge")).unwrap().set_len(2 << 30).unwrap();
    let file = |name: &str| Stdio::from(File::open(bench.path(name)).unwrap());
    let put = |args: &[&str], from: Stdio| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("weft"));
        let output =
            command.args(["kv", "put"]).args(args).current_dir(bench.dir()).stdin(from).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = put(&["a.tags", "apple", "-"], file("huge"));
    assert_eq!(code, Some(1));
    assert!(said.contains("a node of 2147483655 bytes; the most is"), "{said}");
    let (code, said) = put(&["--size", "3G", "a.tags", "apple", "-"], Stdio::null());
    assert!(code == Some(1) && said.contains("a node of 3221225479 bytes"), "{said}");
    assert_eq!(length(), before, "nothing was written");
    untouched();
    // The size that is said is that of the value.
    for (size, why) in [("5", "more than 5 bytes; --size is 5"), ("7", "only 6 bytes; --size is 7")] {
        let put = ["kv", "put", "--size", size, "a.tags", "apple", "-"];
        bench.command().args(put).write_stdin("yellow").assert().code(1).stderr(contains(why));
        untouched();
    }
    bench
        .command()
        .args(["kv", "put", "--size", "6", "a.tags", "apple", "-"])
        .write_stdin("yellow")
        .assert()
        .success();
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "yellow");
}

#[test]
fn a_stream_of_unknown_size_that_has_no_room_is_undone() {
    let bench = Bench::empty();
    bench.weft(&["kv", "put", "--create", "a.tags", "apple", "red"]).success();
    // The file may not grow beyond 128 MiB (256 where the shell counts in KiB): the journal's 64 and some of the value.
    let mut command = Command::new("sh");
    let weft = assert_cmd::cargo::cargo_bin("weft");
    command.arg("-c").arg("ulimit -f 262144; trap '' XFSZ; exec \"$0\" kv put a.tags apple -").arg(weft);
    let mut child =
        command.current_dir(bench.dir()).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let piece = vec![b'x'; 1 << 20];
    // The command does not read on when it has failed.
    let written = (0..1000).take_while(|_| to.write_all(&piece).is_ok()).count();
    drop(to);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("full") && (10..1000).contains(&written), "{said}, {written} MiB");
    assert_eq!(bench.stdout(&["kv", "get", "a.tags", "apple"]), "red");
    assert_eq!(bench.stdout(&["kv", "count", "a.tags"]), "1\n");
    bench.weft(&["tags", "check", "a.tags"]).success();
    let stat = bench.json(&["tags", "stat", "--json", "a.tags"]);
    assert!(stat["node_bytes"].as_u64().unwrap() < 1 << 20, "{stat}");
}
