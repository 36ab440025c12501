//! Modelled flash: what it is, and what workloads and traces do to it.

use crate::volume::Bench;
use predicates::str::contains;

/// A simulation of a small drive, as JSON.
fn simulate(bench: &Bench, more: &[&str]) -> serde_json::Value {
    let drive = [
        "flash",
        "simulate",
        "--json",
        "--preset",
        "bbssd",
        "--size",
        "256M",
        "--settle",
        "3",
        "--measure",
        "2",
    ];
    let args: Vec<&str> = drive.iter().chain(more).copied().collect();
    bench.json(&args)
}

#[test]
fn under_uniform_writes_each_presentation_has_the_write_amplification_of_theory() {
    let bench = Bench::empty();
    for presentation in ["conventional", "fdp", "open-channel"] {
        let found = simulate(&bench, &["--presentation", presentation, "--op", "25", "--gc", "fifo"]);
        let (waf, theory) = (found["waf"].as_f64().unwrap(), found["theory"]["fifo"].as_f64().unwrap());
        assert!((waf / theory - 1.0).abs() < 0.03, "{presentation}: {waf} of {theory}");
        assert_eq!(found["presentation"], presentation);
        assert_eq!(found["host_bytes"].as_u64().unwrap(), found["requests"].as_u64().unwrap() * 4096);
        assert!(found["write"]["p99_ns"].as_u64() >= found["write"]["p50_ns"].as_u64());
    }
}

#[test]
fn a_result_is_the_same_each_time_and_another_with_another_seed() {
    let bench = Bench::empty();
    let run = |seed: &str| {
        let mut found =
            simulate(&bench, &["--workload", "zipf", "--reads", "40", "--op", "30", "--seed", seed]);
        // What depends on the machine.
        found["wall_ns"] = 0.into();
        found["flash_operations_per_s"] = 0.into();
        found
    };
    let first = run("7");
    assert_eq!(run("7"), first);
    assert_ne!(run("8")["device_ns"], first["device_ns"]);
    assert!(first["read"]["count"].as_u64().unwrap() > 1000 && first["theory"].is_null());
}

#[test]
fn handles_report_what_was_written_through_them() {
    let bench = Bench::empty();
    let args = ["--presentation", "fdp", "--workload", "hot-cold", "--op", "30"];
    let found = simulate(&bench, &args);
    let fdp = &found["fdp"];
    assert_eq!(fdp["hbmw"], found["host_bytes"]);
    assert_eq!(fdp["mbmw"], found["media_bytes"]);
    assert_eq!(fdp["handles"].as_array().unwrap().len(), 2);
    let written = |handle: usize| fdp["handles"][handle]["host_bytes"].as_u64().unwrap();
    assert!(written(0) > 2 * written(1), "nine of ten requests are hot: {fdp}");
    let text = bench.stdout(&[
        "flash",
        "simulate",
        "-q",
        "--size",
        "256M",
        "--preset",
        "bbssd",
        "--op",
        "30",
        "--settle",
        "1",
        "--measure",
        "1",
        "--presentation",
        "fdp",
        "--handles",
        "3",
        "--isolation",
        "persistently",
    ]);
    assert!(text.contains("FDP statistics: HBMW") && text.contains("write amplification"), "{text}");
}

#[test]
fn a_zoned_device_is_cleaned_by_the_host() {
    let bench = Bench::empty();
    let found = bench.json(&[
        "flash",
        "simulate",
        "--json",
        "--presentation",
        "zoned",
        "--size",
        "64M",
        "--zone-size",
        "256K",
        "--preset",
        "bbssd",
        "--op",
        "30",
        "--settle",
        "1",
        "--measure",
        "1",
    ]);
    let waf = found["waf"].as_f64().unwrap();
    assert!((1.5..3.0).contains(&waf), "{found}");
    assert_eq!(found["erases_by_block"]["blocks"], 256);
}

#[test]
fn traces_are_told_apart_by_their_first_line_and_need_room_only_for_what_they_touch() {
    let bench = Bench::empty();
    bench.file(
        "a.log",
        b"fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 1099511627776 65536\n\
          /dev/sdb read 1099511631872 4096\n/dev/sdb trim 1099511627776 4096\n/dev/sdb close\n",
    );
    bench.file(
        "b.csv",
        b"128166372003061629,hm,0,Write,383496192,32768,1\n128166372016382155,hm,1,Read,0,4096,1\n",
    );
    let args = ["--op", "30", "--trace"];
    let fio = simulate(&bench, &[&args[..], &["a.log"]].concat());
    assert_eq!((&fio["requests"], &fio["host_bytes"]), (&3.into(), &65536.into()));
    let msr = simulate(&bench, &[&args[..], &["b.csv", "--recorded-times"]].concat());
    assert_eq!(msr["host_bytes"], 32768);
    // 1.33 s lie between the two requests.
    assert!(msr["device_ns"].as_u64().unwrap() > 1_332_000_000, "{msr}");
    bench.file("c.csv", b"1,h,0,Write,0,4096,1\n1,h,0,Jump,0,4096,1\n");
    bench
        .weft(&["flash", "simulate", "--trace", "c.csv"])
        .failure()
        .stderr(contains("c.csv: line 2: type 'Jump'; expected Read or Write"));
    bench.weft(&["flash", "simulate", "--trace", "none.csv"]).failure().stderr(contains("none.csv"));
}

#[test]
fn a_device_in_an_image_is_made_shown_and_kept() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "mlc", "--size", "512M", "f.img"]).success().stdout("");
    let text = bench.stdout(&["flash", "info", "f.img"]);
    assert!(text.contains("8 x 8 x 2") && text.contains("0 open, 0 full, 0 bad"), "{text}");
    let info = bench.json(&["flash", "info", "--json", "f.img"]);
    assert_eq!((&info["version"], &info["image"]["full"]), (&1.into(), &0.into()));
    let blocks = info["image"]["free"].as_u64().unwrap();
    assert_eq!((blocks * 2) << 20, info["flash_bytes"].as_u64().unwrap());
    bench.weft(&["flash", "create", "f.img"]).failure().stderr(contains("--force"));
    bench.weft(&["flash", "create", "--force", "--size", "256M", "f.img"]).success();
    bench.weft(&["flash", "info", "no.img"]).failure().stderr(contains("weft flash create"));
    bench.file("x.img", b"hello, this is no image");
    bench.weft(&["flash", "info", "x.img"]).failure().stderr(contains("not an open-channel image"));
    assert!(bench.stdout(&["flash", "info", "--preset", "tlc"]).contains("2.93 ms"));
}

#[test]
fn a_simulation_that_cannot_be_is_refused_with_the_remedy() {
    let bench = Bench::empty();
    for (args, says) in [
        (&["--preset", "bbssd", "--size", "256M", "--op", "0"][..], "--op"),
        (&["--gc", "best"], "greedy, fifo, lru, random, cost-benefit"),
        (&["--request-size", "1000"], "multiple of 4K"),
        (&["--workload", "zipf", "--theta", "1.5"], "below 1"),
        (&["--op", "5000"], "'5000' for '--op <PERCENT>': expected 0 to 1000"),
    ] {
        let all = [&["flash", "simulate", "-q"], args].concat();
        bench.weft(&all).failure().stderr(contains(says));
    }
}

#[test]
fn a_size_of_zones_is_refused_for_a_device_without_zones() {
    let bench = Bench::empty();
    for args in [
        &["info"][..],
        &["create", "f.img"],
        &["create", "--presentation", "conventional", "f.img"],
        &["simulate", "-q"],
        &["simulate", "-q", "--presentation", "open-channel"],
        &["simulate", "-q", "--level", "raw"],
    ] {
        let all = [&["flash"], args, &["--size", "64M", "--zone-size", "256K"]].concat();
        bench.weft(&all).failure().stderr(predicates::str::contains("--zone-size: this device has no zones"));
    }
    assert!(!bench.path("f.img").exists());
}
