//! Conventional and FDP drives in an image: made, written, killed, opened again.

use crate::volume::{Bench, noise};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const BLOCK: usize = 4096;

fn made(presentation: &[&str]) -> Bench {
    let bench = Bench::empty();
    let flash = ["flash", "create", "--preset", "bbssd", "--size", "64M", "--op", "60", "drive.img"];
    bench.weft(&[&flash[..], &["--presentation"], presentation].concat()).success().stdout("");
    bench
}

fn info(bench: &Bench) -> serde_json::Value {
    bench.json(&["flash", "info", "--json", "drive.img"])
}

fn read(bench: &Bench, bytes: usize) -> Vec<u8> {
    let bytes = bytes.to_string();
    let done = bench.weft(&["flash", "read", "--bytes", &bytes, "drive.img"]).success();
    done.get_output().stdout.clone()
}

#[test]
fn what_a_drive_was_given_is_there_for_the_next_command_and_so_are_its_figures() {
    for presentation in [&["conventional"][..], &["fdp", "--handles", "3", "--isolation", "persistently"]] {
        let bench = made(presentation);
        let data = noise(1_000_000, 5);
        bench.file("data", &data);
        bench.weft(&["flash", "write", "drive.img", "data"]).failure().stderr(contains("--pad"));
        let mut args = vec!["flash", "write", "--pad", "--at", "64K", "drive.img", "data"];
        if presentation[0] == "fdp" {
            args.extend(["--handle", "2"]);
        }
        bench.weft(&args).success();
        let found = read(&bench, (64 << 10) + data.len());
        assert!(found[..64 << 10].iter().all(|byte| *byte == 0) && found[64 << 10..] == data);
        let drive = &info(&bench)["drive"];
        assert_eq!(drive["presentation"], presentation[0]);
        assert_eq!(drive["host_bytes"], data.len().next_multiple_of(BLOCK));
        if presentation[0] == "fdp" {
            let handles = drive["fdp"]["handles"].as_array().unwrap();
            assert_eq!((handles.len(), &handles[2]["host_bytes"]), (3, &drive["host_bytes"]));
            assert_eq!(handles[2]["isolation"], "persistently");
            bench
                .weft(&["flash", "write", "--pad", "--handle", "3", "drive.img", "data"])
                .failure()
                .stderr(contains("drive.img: placement handle 3: the drive has 3"));
        }
        bench.weft(&["flash", "deallocate", "--at", "64K", "--bytes", "8K", "drive.img"]).success();
        let found = read(&bench, (64 << 10) + data.len());
        assert!(found[..72 << 10].iter().all(|byte| *byte == 0) && found[72 << 10..] == data[8 << 10..]);
        bench.weft(&["flash", "read", "--at", "1G", "--bytes", "4K", "drive.img"]).failure();
        bench
            .weft(&["flash", "deallocate", "--at", "1", "--bytes", "4K", "drive.img"])
            .failure()
            .stderr(contains("--at 1: expected a multiple of 4K"));
        bench.weft(&["flash", "wear", "drive.img"]).success();
    }
}

#[test]
fn a_workload_runs_on_a_drive_in_an_image_and_the_next_one_goes_on_from_there() {
    let bench = made(&["conventional", "--gc", "fifo"]);
    let run = || {
        bench.json(&[
            "flash",
            "simulate",
            "--image",
            "drive.img",
            "--json",
            "--settle",
            "0",
            "--measure",
            "1",
        ])
    };
    let first = run();
    assert_eq!((&first["gc"], &first["presentation"]), (&"fifo".into(), &"conventional".into()));
    let before = info(&bench)["drive"].clone();
    // Filled once, and written over once.
    let capacity = before["capacity_bytes"].as_u64().unwrap();
    assert_eq!(before["host_bytes"].as_u64().unwrap(), 2 * capacity);
    let second = run();
    let after = info(&bench)["drive"].clone();
    let more = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    for name in ["host_bytes", "media_bytes", "moved_bytes", "erases"] {
        assert_eq!(more(name), second[name].as_u64().unwrap(), "{name}");
    }
    assert!(more("moved_bytes") > 0 && more("erases") > 0);
    bench
        .weft(&["flash", "simulate", "--image", "drive.img", "--op", "9"])
        .failure()
        .stderr(contains("cannot be used with"));
}

#[test]
fn a_drive_whose_writer_is_killed_keeps_all_that_came_before_and_takes_more() {
    let bench = made(&["fdp"]);
    let bytes = 24 << 20;
    let blocks = |version: u8| -> Vec<u8> {
        (0..bytes / BLOCK)
            .flat_map(|block| [&(block as u64).to_le_bytes()[..], &[version; BLOCK - 8]].concat())
            .collect()
    };
    bench.file("data", blocks(1));
    bench.weft(&["flash", "write", "drive.img", "data"]).success();
    let mut whole = 0;
    for version in 2..8 {
        let before = info(&bench)["drive"].clone();
        let data = blocks(version);
        let mut writer = Command::new(assert_cmd::cargo::cargo_bin("weft"))
            .args(["flash", "write", "drive.img"])
            .current_dir(bench.dir())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = writer.stdin.take().unwrap();
        // The writer takes what the pipe has no room for, and dies somewhere in that.
        let given = usize::from(version) * 2_500_000;
        pipe.write_all(&data[..given.min(data.len())]).unwrap();
        writer.kill().unwrap();
        writer.wait().unwrap();
        let found = read(&bench, bytes);
        // Nothing older than the writes before, and the new blocks in the order in which they came.
        let versions: Vec<u8> = found.chunks(BLOCK).map(|block| block[8]).collect();
        let new = versions.iter().take_while(|found| **found == version).count();
        let older = versions[new..].iter().all(|found| *found < version);
        assert!(
            older && found.chunks(BLOCK).zip(data.chunks(BLOCK)).all(|(a, b)| a[..8] == b[..8]),
            "{version}"
        );
        assert!(found.chunks(BLOCK).all(|block| block[8..].iter().all(|byte| *byte == block[8])));
        // The pipe held 64 KiB at most, and a command has a mebibyte.
        assert!(new * BLOCK + (1 << 20) + (64 << 10) >= given.min(data.len()), "{version}: {new}");
        whole += new;
        let after = info(&bench)["drive"].clone();
        let written =
            (after["host_bytes"].as_u64().unwrap() - before["host_bytes"].as_u64().unwrap()) as usize;
        // Of the command that was under way nothing is counted.
        assert!((written..=written + (1 << 20)).contains(&(new * BLOCK)), "{version}: {written} and {new}");
        assert!(after["media_bytes"].as_u64() > before["media_bytes"].as_u64());
    }
    assert!(whole > 0);
    bench.file("data", blocks(9));
    bench.weft(&["flash", "write", "drive.img", "data"]).success();
    assert!(read(&bench, bytes) == blocks(9));
}

#[test]
fn a_drive_that_its_user_may_not_write_can_be_read_and_shown_and_says_so_to_writers() {
    let bench = made(&["conventional"]);
    bench.file("data", noise(BLOCK * 100, 7));
    bench.weft(&["flash", "write", "drive.img", "data"]).success();
    let mut rights = std::fs::metadata(bench.path("drive.img")).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(bench.path("drive.img"), rights).unwrap();
    let image = |bench: &Bench| {
        let mut bytes = Vec::new();
        std::fs::File::open(bench.path("drive.img")).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let before = image(&bench);
    let weft = assert_cmd::cargo::cargo_bin("weft");
    let run = |args: &[&str]| {
        // The superuser may write all the same, unless it gives its powers up.
        // SAFETY: a system call without arguments.
        let mut command = match unsafe { libc::geteuid() } {
            0 => {
                let mut command = Command::new("setpriv");
                command.args(["--inh-caps=-all", "--bounding-set=-all"]).arg(&weft);
                command
            }
            _ => Command::new(&weft),
        };
        command.args(args).current_dir(bench.dir()).output().unwrap()
    };
    let done = run(&["flash", "read", "--bytes", "400K", "drive.img"]);
    assert!(done.status.success() && done.stdout == noise(BLOCK * 100, 7));
    assert!(run(&["flash", "info", "drive.img"]).status.success());
    assert!(run(&["flash", "wear", "drive.img"]).status.success());
    for args in [
        &["flash", "write", "drive.img", "data"][..],
        &["flash", "deallocate", "--bytes", "4K", "drive.img"],
        &["flash", "simulate", "-q", "--image", "drive.img"],
    ] {
        let done = run(args);
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && told.contains("drive.img: Permission denied"), "{args:?}: {told}");
    }
    assert!(image(&bench) == before, "the image was changed");
}

#[test]
fn an_image_of_another_kind_and_a_damaged_one_are_refused_with_the_remedy() {
    let bench = made(&["conventional"]);
    bench
        .weft(&["flash", "serve", "drive.img"])
        .failure()
        .stderr(contains("drive.img: a conventional or FDP drive"));
    bench.weft(&["flash", "create", "--size", "64M", "--preset", "bbssd", "flash.img"]).success();
    bench
        .weft(&["flash", "read", "flash.img"])
        .failure()
        .stderr(contains("flash.img: an open-channel device").and(contains("--presentation conventional")));
    bench.weft(&["flash", "read", "no.img"]).failure().stderr(contains("weft flash create --presentation"));
    bench
        .weft(&["flash", "create", "--op", "9", "x.img"])
        .failure()
        .stderr(contains("give --presentation conventional"));
    bench
        .weft(&[
            "flash",
            "create",
            "--presentation",
            "fdp",
            "--preset",
            "bbssd",
            "--size",
            "64M",
            "--op",
            "1",
            "x.img",
        ])
        .failure()
        .stderr(contains("--op"));
    assert!(!bench.path("x.img").exists());
    let length = std::fs::metadata(bench.path("drive.img")).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("drive.img")).unwrap();
    file.set_len(length / 2).unwrap();
    for args in [&["flash", "read", "drive.img"][..], &["flash", "info", "drive.img"]] {
        bench.weft(args).failure().stderr(contains("drive.img: ").and(contains("cut short")));
    }
}
