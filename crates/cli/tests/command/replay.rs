//! Recording a program and playing the recording.

use crate::server::Serving;
use crate::volume::Bench;
use predicates::str::contains;

/// A small log-structured program: segments of a megabyte, of which eight live at a time, and an index that is
/// replaced.
const PROGRAM: &str = "cd /weft && for i in $(seq 60); do \
    head -c 1000000 /dev/zero >seg$i.log; echo $i >index.tmp; mv index.tmp index.txt; \
    [ $i -le 8 ] || rm seg$((i-8)).log; done";

fn record(bench: &Bench, script: &str) {
    bench
        .weft(&["run", "-q", "--volume", "mem:96M", "--record", "p.rec", "--", "sh", "-c", script])
        .success()
        .stderr("");
}

#[test]
fn a_recorded_program_is_played_in_every_mode_with_the_same_result_each_time() {
    let bench = Bench::empty();
    record(&bench, PROGRAM);
    let text = std::fs::read_to_string(bench.path("p.rec")).unwrap();
    assert!(text.starts_with("V 1 sh\n") && text.ends_with("\nE\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("D ")).count(), 52 + 59);
    let args = ["replay", "-q", "--json", "--zone", "1M,2M", "--full", "80,90", "p.rec"];
    let json = bench.stdout(&args);
    let replayed: serde_json::Value = serde_json::from_str(&json).unwrap();
    let recording = &replayed["recordings"][0];
    assert!(recording["written_bytes"].as_u64().unwrap() > 60_000_000);
    // Nine segments live when the next one is there and the oldest not yet gone.
    let peak = recording["peak_bytes"].as_u64().unwrap();
    assert!((9_000_000..9_100_000).contains(&peak), "{peak}");
    let rows = recording["rows"].as_array().unwrap();
    let shape = |row: &serde_json::Value| {
        (row["zone_bytes"].as_u64().unwrap() >> 20, row["full_percent"].as_u64().unwrap())
    };
    let shapes: Vec<_> = rows.iter().map(shape).collect();
    assert_eq!(shapes, [(1, 80), (1, 90), (2, 80), (2, 90)]);
    for row in rows {
        let modes: Vec<_> = row["modes"].as_array().unwrap().iter().map(|m| m["mode"].clone()).collect();
        assert_eq!(modes, ["off", "random", "suffix", "rules"]);
        for cell in row["modes"].as_array().unwrap() {
            assert!(cell["waf"].as_f64().unwrap() >= 1.0);
            assert!(cell["counted"]["host_bytes"].as_u64().unwrap() > 50_000_000);
        }
    }
    assert!(rows[0]["zones"].as_u64() > rows[1]["zones"].as_u64(), "fuller volumes are smaller");
    assert_eq!(bench.stdout(&args), json, "a replay is deterministic");
}

#[test]
fn a_zone_of_no_bytes_is_refused() {
    let bench = Bench::empty();
    record(&bench, "echo x >/weft/f");
    bench.weft(&["replay", "--zone", "0", "p.rec"]).code(1).stderr(contains("zone_size is 0 bytes"));
}

#[test]
fn the_table_has_a_row_for_each_volume_and_a_column_for_each_mode() {
    let bench = Bench::empty();
    record(&bench, PROGRAM);
    bench
        .weft(&[
            "replay",
            "--zone",
            "1M",
            "--full",
            "85",
            "--modes",
            "off,rules",
            "--policy",
            "generic",
            "p.rec",
        ])
        .success()
        .stdout(contains("p.rec: 57.2 MiB written, 8.6"))
        .stdout(contains("   off  rules\n"))
        .stdout(contains("85 %"));
}

#[test]
fn a_mangled_recording_is_refused_with_its_file_and_line() {
    let bench = Bench::empty();
    record(&bench, "echo hello >/weft/f; echo more >>/weft/f");
    let text = std::fs::read_to_string(bench.path("p.rec")).unwrap();
    let refused = |text: &str, says: &str| {
        std::fs::write(bench.path("bad.rec"), text).unwrap();
        bench
            .weft(&["replay", "bad.rec"])
            .code(1)
            .stderr(contains("weft: bad.rec: line"))
            .stderr(contains(says));
    };
    refused(text.strip_suffix("E\n").unwrap(), "it was cut short");
    refused(&text.replacen("W 1 6", "W 1 six", 1), "line 3: 'W 1 six' is not an event");
    refused(&text.replacen("V 1", "V 9", 1), "line 1: 'V 9 sh' is of another version");
    bench.weft(&["replay", "none.rec"]).code(1).stderr(contains("none.rec"));
    record(&bench, "true");
    bench.weft(&["replay", "p.rec"]).code(1).stderr(contains("nothing is written")).stderr(contains("--at"));
}

#[test]
fn a_volume_that_another_process_serves_is_not_recorded() {
    let bench = Bench::with_volume();
    let _server = Serving::start(&bench);
    bench
        .weft(&["run", "--volume", "vol.img", "--record", "p.rec", "--", "true"])
        .code(125)
        .stderr(contains("only the server can record"));
    assert!(!bench.path("p.rec").exists());
}

#[test]
fn what_lay_on_the_volume_before_is_part_of_the_recording() {
    let bench = Bench::with_volume();
    bench.file("old", "x".repeat(100_000));
    bench.weft(&["cp", "-q", "old", "vol.img:/"]).success();
    bench
        .weft(&["run", "-q", "--volume", "vol.img", "--record", "p.rec", "--", "sh", "-c", "rm /weft/old"])
        .success();
    let text = std::fs::read_to_string(bench.path("p.rec")).unwrap();
    assert_eq!(text, "V 1 sh\nO 1 0 - 41 /old -\nW 1 100000\nC 1\nD 1\nE\n");
}
