use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

#[test]
fn an_image_for_which_there_is_no_room_is_refused_before_anything_is_written() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    let format = ["format", "--size", "64T", "--zone-size", "1G"];
    let told = || contains("no space is left").and(contains("the image needs 64.0 TiB"));
    bench.weft(&[&format[..], &["--force", "vol.img"]].concat()).code(1).stderr(told());
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "content");
    bench.weft(&[&format[..], &["new.img"]].concat()).code(1).stderr(told());
    assert!(!bench.path("new.img").exists());
}

#[test]
fn a_formatted_image_is_an_empty_volume_of_the_size_asked_for() {
    let bench = Bench::empty();
    bench
        .weft(&["format", "--size", "64M", "--zone-size", "1M", "vol.img"])
        .success()
        .stderr(contains("64.0 MiB in 64 zones of 1.00 MiB"));
    let df = bench.json(&["df", "--json", "vol.img"]);
    assert_eq!(df[0]["used_bytes"], 0);
    let total = df[0]["total_bytes"].as_u64().unwrap();
    assert!((32 << 20..64 << 20).contains(&total), "{total}");
}

#[test]
fn attributes_of_a_tagfs_volume_lie_apart_when_that_is_asked_for() {
    let bench = Bench::empty();
    let fine = ["format", "--layout", "fine", "vol.img"];
    bench
        .weft(&fine)
        .code(1)
        .stderr(contains("option of volumes with the core tagfs").and(contains("--core tagfs")));
    assert!(!bench.path("vol.img").exists());
    let nodes = |layout| {
        bench
            .weft(&["format", "--force", "--core", "tagfs", "--layout", layout, "--size", "64M", "vol.img"])
            .success();
        bench.file("f", "content");
        bench.weft(&["cp", "f", "vol.img:/f"]).success();
        assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "content");
        bench.json(&["fsck", "--json", "vol.img"])["nodes"].as_u64().unwrap()
    };
    let (whole, apart) = (nodes("whole"), nodes("fine"));
    // Two i-nodes of ten fields and more each.
    assert!(apart > whole + 16, "{whole} nodes, {apart} with fields apart");
}

#[test]
fn an_existing_file_is_not_overwritten_without_force() {
    let bench = Bench::empty();
    let path = bench.file("vol.img", "precious");
    bench.weft(&["format", "--size", "64M", "vol.img"]).code(1).stderr(contains("--force"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    bench.weft(&["format", "--size", "64M", "--force", "vol.img"]).success();
    bench.weft(&["ls", "vol.img:"]).success().stdout("");
}

#[test]
fn a_geometry_file_says_what_the_device_is_and_the_command_line_wins() {
    let bench = Bench::empty();
    bench
        .file("drive.toml", "preset = 'tlc'\nsize = '64M'\nzone_size = '2M'\nopen_max = 6\nactive_max = 6\n");
    bench
        .weft(&["format", "--geometry", "drive.toml", "a.img"])
        .success()
        .stderr(contains("64.0 MiB in 32 zones of 2.00 MiB, 6 open at most"));
    bench
        .weft(&["format", "--geometry", "drive.toml", "--size", "128M", "--zone-size", "4M", "b.img"])
        .success()
        .stderr(contains("128 MiB in 32 zones of 4.00 MiB, 6 open at most"));
}

#[test]
fn what_makes_no_device_is_refused_with_the_value_and_nothing_is_left_behind() {
    let bench = Bench::empty();
    for (args, says) in [
        (["--size", "1M"].as_slice(), "is the least"),
        (&["--size", "lots"], "'lots' is not a size"),
        (&["--size", "64M", "--preset", "floppy"], "floppy"),
        (&["--size", "64M", "--zone-size", "1000"], "multiple of 4096"),
        (&["--geometry", "missing.toml"], "missing.toml"),
    ] {
        let args: Vec<&str> = ["format"].iter().chain(args).chain(&["vol.img"]).copied().collect();
        bench.weft(&args).failure().stderr(contains(says));
        assert!(!bench.path("vol.img").exists(), "{args:?}");
    }
}

#[test]
fn what_holds_no_volume_is_refused_before_anything_is_written_with_the_least_that_does() {
    let bench = Bench::with_volume();
    let before = std::fs::read(bench.path("vol.img")).unwrap();
    let long = "x".repeat(1000);
    for args in [
        &["--size", "16M"][..],
        &["--size", "1M"],
        &["--size", "40M"],
        &["--size", "64M", "--zone-size", "64K"],
        &["--size", "64M", "--zone-size", "16M"],
        &["--size", "64M", "--label", &long],
    ] {
        let args = [&["format", "--force"], args, &["vol.img"]].concat();
        let told = bench.weft(&args).code(1).get_output().stderr.clone();
        let told = String::from_utf8(told).unwrap();
        assert!(std::fs::read(bench.path("vol.img")).unwrap() == before, "{args:?}: {told}");
        // The size that is named is the least that works.
        let Some((_, rest)) = told.split_once("give --size ") else { continue };
        let least = weft_core::units::parse_size(rest.split(' ').next().unwrap()).unwrap();
        for (size, works) in [(least, true), (least - 1, false)] {
            let size = size.to_string();
            let mut args: Vec<&str> = ["format", "--size", &size].to_vec();
            args.extend(if told.contains("zones of 16.0 MiB") { &["--zone-size", "16M"][..] } else { &[] });
            args.push("new.img");
            assert_eq!(bench.command().args(&args).output().unwrap().status.success(), works, "{args:?}");
            let _ = std::fs::remove_file(bench.path("new.img"));
        }
    }
    for size in ["1M", "16M", "40M"] {
        bench
            .weft(&["format", "--size", size, "new.img"])
            .code(1)
            .stderr(contains("a volume does not fit on").and(contains("is the least")));
        let volume = format!("mem:{size}");
        bench.weft(&["run", "--volume", &volume, "--", "true"]).failure().stderr(contains("is the least"));
    }
    bench.weft(&["ls", "vol.img:/"]).success();
}

#[test]
fn a_served_image_is_not_formatted_and_the_user_learns_who_serves_it() {
    let bench = Bench::with_volume();
    let server = crate::server::Serving::start(&bench);
    let told = bench.weft(&["format", "--force", "--size", "64M", "vol.img"]).code(1);
    told.stderr(
        contains(format!("vol.img: in use, served by process {} on ", server.id()))
            .and(contains("stop it with")),
    );
    drop(server);
}
