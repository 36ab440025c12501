//! What users see when something is wrong: what, where, and what to do.

use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::{contains, starts_with};

#[test]
fn an_image_that_is_not_there_is_named_with_the_way_to_make_one() {
    let bench = Bench::empty();
    for command in [["ls", "none.img:"], ["df", "none.img"], ["stats", "none.img"]] {
        bench.weft(&command).code(1).stderr(contains("none.img").and(contains("weft format")));
    }
}

#[test]
fn a_file_that_is_no_image_is_refused_and_not_changed() {
    let bench = Bench::empty();
    let text = "just some text\n".repeat(10_000);
    let path = bench.file("notes", &text);
    bench.weft(&["ls", "notes:"]).code(1).stderr(contains("not a weft device image"));
    bench
        .weft(&["run", "--volume", "notes", "--", "true"])
        .code(125)
        .stderr(contains("not a weft device image"));
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn a_file_of_another_kind_is_named_with_the_commands_for_it() {
    let bench = Bench::with_volume();
    bench.weft(&["tags", "create", "t.tags"]).success();
    bench.weft(&["flash", "create", "--size", "256M", "f.img"]).success();
    bench.file("short", "text");
    let volume = "vol.img is a weft volume; 'weft --help' lists the commands for it";
    let store = "t.tags is a tag store; 'weft tags', 'weft kv' and 'weft btree' are the commands for it";
    let flash = "f.img is a flash device of weft; 'weft flash --help' lists the commands for it";
    for (args, code, told) in [
        (&["ls", "t.tags:"][..], 1, store),
        (&["fsck", "f.img"], 2, flash),
        (&["salvage", "t.tags", "new.img"], 2, store),
        (&["run", "--volume", "f.img", "--", "true"], 125, flash),
        (&["tags", "check", "vol.img"], 2, volume),
        (&["kv", "get", "f.img", "key"], 1, flash),
        (&["flash", "info", "vol.img"], 1, volume),
        (&["flash", "serve", "t.tags"], 1, store),
        (&["ls", "short:"], 1, "short: not a weft device image"),
        (&["flash", "info", "short"], 1, "short: not an open-channel image"),
    ] {
        bench.weft(args).code(code).stderr(contains(told));
    }
}

#[test]
fn the_paths_after_one_that_is_missing_are_listed() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    for command in ["ls", "stat"] {
        let told = contains("vol.img:/none").and(contains("1 failed"));
        let shown = bench.weft(&[command, "vol.img:/none", "vol.img:/f"]).code(1).stderr(told);
        shown.stdout(contains("/f"));
    }
}

#[test]
fn a_directory_that_is_missing_is_not_made_by_a_format() {
    let bench = Bench::empty();
    let told = contains("directory is not there").and(contains("weft format").not());
    bench.weft(&["format", "--size", "64M", "none/vol.img"]).code(1).stderr(told);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_program_runs() {
    let bench = Bench::with_volume();
    for file in ["none/report.json", "."] {
        let args = ["run", "--volume", "vol.img", "--report", file, "--", "sh", "-c", "echo ran"];
        bench.weft(&args).code(125).stdout(contains("ran").not()).stderr(contains(file));
    }
}

#[test]
fn a_volume_is_not_made_in_what_is_neither_a_file_nor_a_drive() {
    let bench = Bench::empty();
    std::os::unix::fs::symlink("nowhere", bench.path("link")).unwrap();
    for (name, told) in [("/dev/null", "neither a file nor a block device"), ("link", "leads nowhere")] {
        bench
            .weft(&["format", "--size", "64M", name])
            .code(1)
            .stderr(contains(told).and(contains("--force").not()));
    }
}

#[test]
fn a_path_without_an_image_is_explained() {
    let bench = Bench::empty();
    bench.weft(&["ls", "/db"]).code(1).stderr(contains("not on a volume").and(contains("IMAGE:/path")));
}

#[test]
fn an_argument_that_names_no_file_at_all_is_said_to_be_missing() {
    let bench = Bench::with_volume();
    bench.file("notes", "text");
    let plain = || contains("not on a volume").not();
    for args in [
        &["ls", "none.img"][..],
        &["stat", "none.img"],
        &["cat", "none.img"],
        &["rm", "none.img"],
        &["mkdir", "none.img"],
        &["mv", "none.img", "vol.img:/f"],
        &["cp", "none.img", "f"],
    ] {
        let told = contains("none.img: No such file or directory").and(contains("IMAGE:/path"));
        bench.weft(args).code(1).stderr(told.and(plain()));
    }
    bench.weft(&["ls", "notes"]).code(1).stderr(contains("not on a volume").and(contains("IMAGE:/path")));
    let told = contains("the volume, not a file on it").and(contains("vol.img:/ for its root"));
    bench.weft(&["ls", "vol.img"]).code(1).stderr(told.and(plain()));
}

#[test]
fn errors_begin_with_the_name_of_the_command_and_have_no_debug_output() {
    let bench = Bench::with_volume();
    for command in ["cat", "stat"] {
        let plain = contains("CliError").or(contains("Error {")).not();
        let begins = starts_with(format!("weft: {command} vol.img:/none: "));
        bench.weft(&[command, "vol.img:/none"]).code(1).stderr(begins.and(plain));
    }
}

#[test]
fn an_unknown_mode_is_refused_with_the_choice() {
    let bench = Bench::empty();
    bench
        .weft(&["run", "--volume", "mem:64M", "--mode", "clever", "--", "true"])
        .code(125)
        .stderr(contains("off, random, suffix or rules"));
}

#[test]
fn help_has_examples_for_every_command() {
    let bench = Bench::empty();
    let all = bench.stdout(&["--help"]);
    let commands = all.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1);
    let names: Vec<&str> = commands.map_while(|l| l.split_whitespace().next()).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in names.iter().filter(|name| !["version", "help"].contains(name)) {
        let help = bench.stdout(&[name, "--help"]);
        assert!(help.contains("EXAMPLES") && help.contains("  weft "), "{name}: {help}");
    }
}

#[test]
fn options_of_device_processors_are_refused_by_value_and_with_what_to_do() {
    let bench = Bench::with_volume();
    for (options, value, remedy) in [
        (&["--program-slowdown", "200"][..], "required", "--program-cpus <N>"),
        (&["--program-cpus", "0"], "'0'", "1..=64"),
        (&["--program-cpus", "1", "--program-slowdown", "99"], "'99'", "100..=10000"),
        (&["--program-cpus", "1", "--program-scheduler", "lifo"], "'lifo'", "give fifo, round-robin or fair"),
        (&["--program-cpus", "1", "--program-weight", "1001"], "'1001'", "such as 1001=200"),
        (&["--program-cpus", "1", "--program-weight", "root=5"], "'root'", "id -u NAME"),
        (&["--program-cpus", "1", "--program-weight", "1001=0"], "'0'", "from 1 to 10000"),
        (
            &["--program-cpus", "1", "--program-scheduler", "fifo", "--program-weight", "1001=200"],
            "--program-weight 1001=200: the scheduler fifo",
            "--program-scheduler fair",
        ),
        (
            &["--program-cpus", "1", "--program-scheduler", "round-robin", "--program-memory", "1M"],
            "--program-memory 1M",
            "--program-scheduler fair",
        ),
    ] {
        let told = || contains(value).and(contains(remedy));
        bench.weft(&[&["serve", "--volume", "vol.img"], options].concat()).failure().stderr(told());
        let run = [&["run", "--volume", "vol.img"], options, &["--", "true"]].concat();
        bench.weft(&run).failure().stderr(told());
    }
    let all = ["--program-cpus", "2", "--program-slowdown", "150", "--program-weight", "0=200"];
    bench.weft(&[&["run", "--volume", "vol.img"], &all[..], &["--", "true"]].concat()).success();
    let hints = [&["run", "--hints"], &all[..2], &["--", "true"]].concat();
    bench.weft(&hints).failure().stderr(contains("cannot be used with"));
}
