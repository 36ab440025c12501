//! The levels of flash from the command line: an application compared on them, and the wear of a device.

use crate::volume::{Bench, status_of, wait_for};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use weft_core::Nanos;
use weft_flash::{GrantBlock, GrantRequest, LevelError, RawLevel, share};

#[test]
fn the_papers_table_is_printed_by_one_command_with_its_ratios() {
    let bench = Bench::empty();
    let table = bench.json(&["flash", "bench", "--table1", "--blocks", "64", "--json"]);
    assert_eq!(table["rows"][0]["level"], "Original");
    for row in table["rows"].as_array().unwrap() {
        let (ratio, paper) = (row["ratio"].as_f64().unwrap(), row["paper_ratio"].as_f64().unwrap());
        assert!((ratio - paper).abs() < 0.02, "{table}");
    }
    let text = bench.stdout(&["flash", "bench", "--table1", "--blocks", "64"]);
    assert!(text.contains("in the paper") && text.contains("0.892"), "{text}");
    bench.weft(&["flash", "bench"]).failure().stderr(contains("--table1"));
    bench.weft(&["flash", "bench", "--table1", "--blocks", "3"]).failure().stderr(contains("32 or more"));
}

#[test]
fn wear_is_shown_lun_by_lun_and_as_a_picture() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "1G", "f.img"]).success();
    let wear = bench.json(&["flash", "wear", "--json", "f.img"]);
    assert_eq!(wear["luns"].as_array().unwrap().len(), 64);
    assert_eq!((&wear["version"], &wear["erases_max"]), (&1.into(), &0.into()));
    let text = bench.stdout(&["flash", "wear", "--picture", "f.svg", "f.img"]);
    assert!(text.lines().next().unwrap().starts_with("channel 0 LUN 0"), "{text}");
    bench.weft(&["flash", "wear", "--picture", "f.png", "f.img"]).success();
    assert!(std::fs::read_to_string(bench.path("f.svg")).unwrap().starts_with("<svg"));
    assert!(std::fs::read(bench.path("f.png")).unwrap().starts_with(b"\x89PNG"));
    bench.weft(&["flash", "wear", "--picture", "f.jpg", "f.img"]).failure().stderr(contains(".svg or .png"));
    bench.weft(&["flash", "wear", "no.img"]).failure().stderr(contains("weft flash create"));
}

/// A simulation of a level on a small device, as JSON.
fn simulate(bench: &Bench, more: &[&str]) -> serde_json::Value {
    simulate_on(bench, "bbssd", more)
}

fn simulate_on(bench: &Bench, preset: &str, more: &[&str]) -> serde_json::Value {
    let device = ["--preset", preset, "--size", "1G", "--settle", "2", "--measure", "1"];
    let args: Vec<&str> =
        ["flash", "simulate", "--json"].iter().chain(&device).chain(more).copied().collect();
    bench.json(&args)
}

#[test]
fn under_uniform_writes_each_level_has_the_write_amplification_of_theory_and_counts_alike() {
    let bench = Bench::empty();
    for level in ["raw", "function", "policy"] {
        let found = simulate(&bench, &["--level", level, "--gc", "fifo", "--op", "25", "--wear"]);
        let (waf, theory) = (found["waf"].as_f64().unwrap(), found["theory"]["fifo"].as_f64().unwrap());
        assert!((waf / theory - 1.0).abs() < 0.03, "{level}: {waf} of {theory}");
        assert_eq!((&found["level"], &found["presentation"]), (&level.into(), &"open-channel".into()));
        let bytes = |field: &str| found[field].as_u64().unwrap();
        assert_eq!(bytes("host_bytes"), bytes("requests") * 4096);
        assert!(bytes("media_bytes") >= bytes("host_bytes") + bytes("moved_bytes"), "{found}");
        assert!(found["write"]["p99_ns"].as_u64() >= found["write"]["p50_ns"].as_u64());
        let rows = found["wear"]["rows"].as_array().unwrap();
        let erases = rows.iter().flat_map(|row| row["erases"].as_array().unwrap());
        let all: u64 = erases.map(|erases| erases.as_u64().unwrap()).sum();
        assert!(rows.len() == 64 && all >= bytes("erases") && all > 0, "{level}: {all}");
    }
}

#[test]
fn raw_and_function_clean_on_as_many_luns_and_planes_as_a_drive_does() {
    let bench = Bench::empty();
    // The LUNs of a unit of the levels.
    for (preset, width) in [("slc", "4"), ("mlc", "2"), ("tlc", "2")] {
        let rate = |more: &[&str]| {
            let uniform = ["--op", "25", "--workload", "uniform", "--request-size", "16K"];
            let found = simulate_on(&bench, preset, &[&uniform[..], more].concat());
            found["host_bytes_per_s"].as_f64().unwrap()
        };
        let drive = rate(&["--presentation", "conventional"]);
        let wide = rate(&["--presentation", "conventional", "--luns-per-unit", width]);
        let drive = drive.max(wide);
        for level in [&["--level", "raw"], &["--level", "function"], &["--presentation", "open-channel"]] {
            let found = rate(level);
            assert!(found >= drive, "{preset} {level:?}: {found} bytes/s beside {drive} of the drive");
        }
    }
}

#[test]
fn levels_take_skewed_workloads_traces_and_mappings_and_refuse_what_they_do_not_have() {
    let bench = Bench::empty();
    bench.file("a.csv", b"1,hm,0,Write,0,65536,1\n2,hm,0,Read,4096,4096,1\n");
    for level in ["raw", "function", "policy"] {
        let found = simulate(&bench, &["--level", level, "--trace", "a.csv"]);
        assert_eq!((&found["host_bytes"], &found["read"]["count"]), (&65536.into(), &1.into()));
        let zipf = simulate(&bench, &["--level", level, "--workload", "zipf", "--reads", "50", "--op", "25"]);
        assert!(zipf["read"]["count"].as_u64().unwrap() > 1000 && zipf["theory"].is_null());
    }
    let hot = ["--level", "policy", "--workload", "hot-cold", "--op", "25", "--gc", "cost-benefit"];
    let waf = |more: &[&str]| simulate(&bench, &[&hot[..], more].concat())["waf"].as_f64().unwrap();
    assert!(waf(&["--handles", "2"]) < waf(&["--handles", "1"]), "streams that are kept apart copy less");
    let blocks = ["--level", "policy", "--mapping", "block", "--workload", "sequential"];
    let found = simulate(&bench, &blocks);
    assert_eq!((&found["moved_bytes"], &found["alpha"]), (&0.into(), &serde_json::Value::Null));
    for (args, says) in [
        (&["--level", "raw", "--mapping", "block"][..], "--level policy"),
        (&["--level", "policy", "--reserve", "5"], "--level function"),
        (&["--level", "policy", "--presentation", "fdp"], "cannot be used with"),
        (&["--level", "policy", "--size", "256M"], "make a larger device"),
        (&["--picture", "a.gif"], ".svg or .png"),
    ] {
        let all = [&["flash", "simulate", "-q"], args].concat();
        bench.weft(&all).failure().stderr(contains(says));
    }
    let text = bench.stdout(&[
        "flash", "simulate", "-q", "--level", "raw", "--size", "1G", "--preset", "bbssd", "--wear",
    ]);
    assert!(text.starts_with("raw level") && text.contains("channel 7 LUN 7"), "{text}");
}

#[test]
fn a_served_monitor_gives_flash_to_programs_and_keeps_it_over_a_restart() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "1G", "f.img"]).success();
    bench.weft(&["flash", "serve", "f.img"]).failure().stderr(contains("--format"));
    let socket = bench.path("f.img.sock");
    let serve = |args: &[&str]| {
        let child = bench.spawn(&[&["flash", "serve", "f.img"], args].concat());
        wait_for("the socket", || socket.exists());
        child
    };
    let stop = |child: std::process::Child| {
        // SAFETY: the child is this process's and has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
        assert_eq!(status_of(child), Some(0));
        assert!(!socket.exists(), "the socket is left");
    };
    let request = |name: &str| GrantRequest { name: name.into(), bytes: 1, over_provisioning_permille: 0 };
    let page = GrantBlock { channel: 0, lun: 0, block: 0 }.page(0);

    let child = serve(&["--format"]);
    let raw = RawLevel::new(share::allocate(&socket, &request("a")).unwrap());
    raw.page_write(Nanos(0), page, &[7; 4096], b"mine").unwrap();
    let other = share::allocate(&socket, &request("b")).unwrap();
    assert!(matches!(share::attach(&socket, "a"), Err(LevelError::GrantInUse(_))));
    bench.weft(&["flash", "wear", "f.img"]).failure().stderr(contains("in use"));
    let listed = bench.json(&["flash", "grants", "--json", "f.img.sock"]);
    assert_eq!(listed["grants"][1]["name"], "b");
    assert_eq!(listed["grants"][1]["in_use"], true);
    let refused = bench.weft(&["flash", "release", "f.img.sock", "b"]).failure();
    refused.stderr(contains("the grant 'b' is in use")).stderr(contains("end the program that uses it"));
    drop((raw, other));
    share::allocate(&socket, &request("c")).unwrap();
    bench.weft(&["flash", "release", "f.img.sock", "c"]).success();
    bench.weft(&["flash", "release", "f.img.sock", "c"]).failure().stderr(contains("no grant"));
    stop(child);

    let child = serve(&[]);
    let raw = RawLevel::new(share::attach(&socket, "a").unwrap());
    let (mut data, mut oob) = ([0; 4096], [0; 4]);
    raw.page_read(Nanos(0), page, 0, &mut data, &mut oob).unwrap();
    assert_eq!((data, &oob), ([7; 4096], b"mine"));
    drop(raw);
    stop(child);
    let wear = bench.json(&["flash", "wear", "--json", "f.img"]);
    let grants = wear["luns"].as_array().unwrap().iter().filter_map(|lun| lun["grant"].as_str());
    assert_eq!(grants.collect::<Vec<_>>(), ["a", "b"]);
    bench.weft(&["flash", "serve", "f.img", "--socket", "f.img"]).failure().stderr(contains("no socket"));
    bench.weft(&["flash", "release", "f.img", "a"]).success();
    assert!(bench.stdout(&["flash", "grants", "f.img"]).contains("b"));
    bench.weft(&["flash", "release", "f.img", "b"]).success();
    assert_eq!(bench.stdout(&["flash", "grants", "f.img"]), "no grants\n");
}

#[test]
fn what_only_looks_at_a_device_leaves_every_byte_of_its_image_and_needs_read_permission_alone() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "1G", "f.img"]).success();
    let child = bench.spawn(&["flash", "serve", "--format", "f.img"]);
    let socket = bench.path("f.img.sock");
    wait_for("the socket", || socket.exists());
    let request = GrantRequest { name: "a".into(), bytes: 1, over_provisioning_permille: 0 };
    drop(share::allocate(&socket, &request).unwrap());
    // SAFETY: the child is this process's and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGKILL) }, 0);
    status_of(child);
    let image = || std::fs::read(bench.path("f.img")).unwrap();
    let before = image();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    std::fs::set_permissions(bench.path("f.img"), mode).unwrap();
    // The superuser may write all the same, unless it gives its powers up.
    let powerless = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];
    // SAFETY: a system call without arguments.
    let prefix = if unsafe { libc::geteuid() } == 0 { &powerless[..] } else { &["env"] };
    let run = |command| {
        std::process::Command::new(prefix[0])
            .args(&prefix[1..])
            .arg(bench.command().get_program())
            .args(["flash", command, "f.img"])
            .current_dir(bench.dir())
            .output()
            .unwrap()
    };
    let served = run("serve");
    let told = String::from_utf8_lossy(&served.stderr);
    assert!(!served.status.success() && told.contains("needs write permission on the image"), "{told}");
    for command in ["info", "wear", "grants"] {
        let output = run(command);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {told}");
        assert!(command != "grants" || output.stdout.starts_with(b"grant"), "{command}");
        assert!(image() == before, "weft flash {command} changed the image");
    }
    let drive = [
        "flash",
        "create",
        "--presentation",
        "conventional",
        "--preset",
        "bbssd",
        "--size",
        "256M",
        "--op",
        "25",
    ];
    bench.weft(&[&drive[..], &["d.img"]].concat()).success();
    bench.weft(&["flash", "grants", "d.img"]).failure().stderr(contains("d.img").and(contains("drive")));
}

#[test]
fn errors_of_a_device_its_monitor_and_its_geometry_name_the_file() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "1G", "f.img"]).success();
    for args in [&["grants", "f.img"][..], &["release", "f.img", "a"], &["serve", "f.img"]] {
        let all = [&["flash"], args].concat();
        bench
            .weft(&all)
            .failure()
            .stderr(contains("f.img: no flash monitor").and(contains("serve --format f.img")));
    }
    bench.file("g.toml", b"channels = \"many\"\n");
    bench.weft(&["flash", "info", "--geometry", "g.toml"]).failure().stderr(contains("g.toml"));
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "1G", "f.img"]).success();
    for args in [["flash", "info", "f.img"], ["flash", "wear", "f.img"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(bench.command().get_program());
        let output = command.args(args).current_dir(bench.dir()).stdout(writer).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{args:?}: {} {told}", output.status);
    }
}
