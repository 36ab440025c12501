//! Programs of file operations on a volume. The programs of docs/how-to/compound-operations.md run as they stand there.

use crate::server::Serving;
use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::{contains, is_empty};
use serde_json::{Value, json};
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/how-to/compound-operations.md");

/// The programs of the page, in their order, as `swap.toml`, `change.toml` and `read.toml`.
fn with_programs(bench: &Bench) {
    let blocks: Vec<&str> =
        PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [swap, change, read] = &blocks[..] else { panic!("{} programs are on the page", blocks.len()) };
    for (name, text) in [("swap.toml", swap), ("change.toml", change), ("read.toml", read)] {
        bench.file(name, text);
    }
}

/// A volume, and the programs of the page beside it.
fn bench() -> Bench {
    let bench = Bench::with_volume();
    with_programs(&bench);
    bench
}

/// Puts a file on the volume.
fn put(bench: &Bench, path: &str, content: impl AsRef<[u8]>) {
    bench.file("content", content);
    bench.weft(&["cp", "content", &format!("vol.img:{path}")]).success();
}

fn cat(bench: &Bench, path: &str) -> Vec<u8> {
    bench.weft(&["cat", &format!("vol.img:{path}")]).success().get_output().stdout.clone()
}

fn image(bench: &Bench) -> Vec<u8> {
    std::fs::read(bench.path("vol.img")).unwrap()
}

/// Runs a program that comes by standard input.
fn run(bench: &Bench, options: &[&str], program: &str) -> assert_cmd::assert::Assert {
    let args = [&["do"], options, &["vol.img"]].concat();
    bench.command().args(args).write_stdin(program).assert()
}

#[test]
fn a_configuration_is_replaced_in_one_step_by_the_program_of_the_page() {
    let bench = bench();
    put(&bench, "/config", "verbose = false and more\n");
    let table = bench.stdout(&["do", "vol.img", "swap.toml"]);
    assert!(PAGE.contains(&format!("```\n{table}```")), "another table is on the page:\n{table}");
    assert_eq!(cat(&bench, "/config"), b"verbose = true\n");
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "config\n");
    // The new file is left from a program that was none of weft's: it is not taken over, and the old one stays.
    put(&bench, "/config.new", "unfinished");
    bench
        .weft(&["do", "vol.img", "swap.toml"])
        .code(1)
        .stdout(contains("EEXIST: File exists").and(contains("skipped")))
        .stderr(
            contains("vol.img: operation 1 'new' (create) failed: EEXIST")
                .and(contains("has changed nothing")),
        );
    assert_eq!(cat(&bench, "/config"), b"verbose = true\n");
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn of_two_that_expect_the_same_content_the_second_one_fails_and_changes_nothing() {
    let bench = bench();
    put(&bench, "/MANIFEST", "version 7");
    bench
        .weft(&["do", "vol.img", "change.toml"])
        .success()
        .stdout(contains("\"version 7\""))
        .stderr(is_empty());
    assert_eq!(cat(&bench, "/MANIFEST"), b"version 8");
    bench.weft(&["do", "vol.img", "change.toml"]).code(1).stdout(contains("\"version 8\""));
    assert_eq!(cat(&bench, "/MANIFEST"), b"version 8");
    put(&bench, "/MANIFEST", "version 9 of somebody else");
    bench
        .weft(&["do", "vol.img", "change.toml"])
        .code(1)
        .stdout(contains("\"version 9 of somebody else\""))
        .stderr(contains("operation 3 (expect) failed: ECANCELED: an expected comparison does not hold"));
    assert_eq!(cat(&bench, "/MANIFEST"), b"version 9 of somebody else");
    let answer =
        run(&bench, &["--json"], &std::fs::read_to_string(bench.path("change.toml")).unwrap()).code(1);
    let answer: Value = serde_json::from_slice(&answer.get_output().stdout).unwrap();
    assert_eq!(answer["failed"], 3);
    assert_eq!(answer["operations"][2]["error"]["name"], "ECANCELED");
    assert_eq!(answer["operations"][3]["result"], "skipped");
}

/// Writes the table of the page: a block and its checksum.
const WRITE_TABLE: &str = r#"
[[op]]
do = "create"
name = "table"
path = "/table"
[[op]]
do = "crc32c"
name = "crc"
bytes = "a block"
[[op]]
do = "pack"
name = "trailer"
num = "$crc"
width = 4
[[op]]
do = "concat"
name = "whole"
parts = ["a block", "$trailer"]
[[op]]
do = "write"
file = "$table"
data = "$whole"
"#;

#[test]
fn a_block_is_read_with_its_checksum_and_a_damaged_one_is_refused() {
    let bench = bench();
    run(&bench, &[], WRITE_TABLE).success();
    let before = image(&bench);
    bench
        .weft(&["do", "--out", "block=block.bin", "vol.img", "read.toml"])
        .success()
        .stdout(contains("\"a block\""));
    assert_eq!(std::fs::read(bench.path("block.bin")).unwrap(), b"a block");
    bench
        .weft(&["do", "--out", "block=-", "vol.img", "read.toml"])
        .success()
        .stdout("a block")
        .stderr(is_empty());
    assert!(image(&bench) == before, "a program that only reads changed the image");
    let mut damaged = cat(&bench, "/table");
    damaged[3] ^= 1;
    put(&bench, "/table", &damaged);
    bench
        .weft(&["do", "vol.img", "read.toml"])
        .code(1)
        .stderr(contains("operation 5 (verify) failed: EBADMSG: bytes do not have the CRC32C"));
}

/// Makes two files and a directory, and fails between them.
fn fails_in_the_middle(policy: &str) -> String {
    format!(
        r#"
policy = "{policy}"
[[op]]
do = "create"
name = "first"
path = "/first"
[[op]]
do = "write"
file = "$first"
data = "written"
[[op]]
do = "unlink"
path = "/none"
[[op]]
do = "mkdir"
path = "/second"
"#
    )
}

#[test]
fn a_failure_in_the_middle_leaves_nothing_or_what_came_before_as_the_policy_says() {
    for (policy, left, told) in [
        ("all", "", "policy all: the program has changed nothing"),
        (
            "prefix",
            "first\n",
            "policy prefix: the changes of the operations before it were made, in one step",
        ),
        ("each", "first\n", "policy each: the changes of the operations before it were made, one at a time"),
    ] {
        let bench = bench();
        run(&bench, &[], &fails_in_the_middle(policy)).code(1).stderr(
            contains("operation 3 (unlink) failed: ENOENT: No such file or directory").and(contains(told)),
        );
        assert_eq!(bench.stdout(&["ls", "vol.img:/"]), left, "{policy}");
        if !left.is_empty() {
            assert_eq!(cat(&bench, "/first"), b"written");
        }
        bench.weft(&["fsck", "vol.img"]).success();
    }
}

#[test]
fn what_a_guard_skips_is_no_failure() {
    let bench = bench();
    put(&bench, "/log", "0123456789");
    let rotate = |limit: u32| {
        format!(
            r#"
[[op]]
do = "open"
name = "log"
path = "/log"
[[op]]
do = "stat"
name = "attr"
file = "$log"
[[op]]
do = "field"
name = "size"
attr = "$attr"
field = "size"
export = true
[[op]]
do = "rename"
path = "/log"
new_path = "/log.old"
when = ["$size", ">=", {limit}]
"#
        )
    };
    run(&bench, &[], &rotate(11)).success().stdout(contains("skipped")).stderr(is_empty());
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "log\n");
    run(&bench, &[], &rotate(10)).success().stdout(contains("skipped").not());
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "log.old\n");
}

#[test]
fn what_the_json_shows_in_hex_can_be_written_by_another_program() {
    let bench = bench();
    let bytes: Vec<u8> = (0..=255).collect();
    put(&bench, "/bytes", &bytes);
    let read = r#"
        [[op]]
        do = "open"
        name = "f"
        path = "/bytes"
        [[op]]
        do = "read"
        name = "all"
        file = "$f"
        len = 1000
        export = true
        [[op]]
        do = "stat"
        file = "$f"
        export = true
        [[op]]
        do = "len"
        bytes = "$all"
        export = true"#;
    let answer = run(&bench, &["--json"], read).success();
    let answer: Value = serde_json::from_slice(&answer.get_output().stdout).unwrap();
    let ops = &answer["operations"];
    assert_eq!(
        (&answer["volume"], &answer["policy"], &answer["durable"], &answer["failed"]),
        (&json!("vol.img"), &json!("all"), &json!(false), &Value::Null)
    );
    assert_eq!(
        (&ops[1]["number"], &ops[1]["name"], &ops[1]["do"]),
        (&json!(2), &json!("all"), &json!("read"))
    );
    assert_eq!((&ops[1]["result"], &ops[1]["value"]["bytes"]), (&json!("done"), &json!(256)));
    let attributes = &ops[2]["value"]["attributes"];
    assert_eq!((&attributes["kind"], &attributes["size"]), (&json!("regular file"), &json!(256)));
    assert_eq!(ops[3]["value"]["number"], 256);
    let hex = ops[1]["value"]["hex"].as_str().unwrap();
    let write = format!(
        "[[op]]\ndo = 'create'\nname = 'f'\npath = '/copy'\n[[op]]\ndo = 'write'\nfile = '$f'\ndata = {{ hex = '{hex}' }}\n"
    );
    run(&bench, &[], &write).success();
    assert_eq!(cat(&bench, "/copy"), bytes);
}

#[test]
fn a_program_that_is_wrong_is_refused_before_the_volume_is_opened() {
    let bench = bench();
    let before = image(&bench);
    bench.file("bad.toml", "[[op]]\ndo = 'unlink'\npath = '/f'\ndirectory = '$d'\n");
    let told = || {
        contains("bad.toml:4: operation 1 (unlink): directory: there is no such key of unlink")
            .and(contains("the keys are do, name, export, when, path, dir"))
    };
    for volume in ["vol.img", "none.img"] {
        bench.weft(&["do", volume, "bad.toml"]).code(2).stdout("").stderr(told());
    }
    let read = std::fs::read_to_string(bench.path("read.toml")).unwrap();
    bench.file("read.toml", read.replace("len = 11", "len = \"many\""));
    let told = bench.weft(&["do", "vol.img", "read.toml"]).code(2).get_output().stderr.clone();
    let told = String::from_utf8(told).unwrap();
    assert!(PAGE.contains(&format!("```\n{told}```")), "another error is on the page:\n{told}");
    bench.weft(&["do", "vol.img", "none.toml"]).code(2).stderr(contains("none.toml"));
    bench
        .weft(&["do", "swap.toml", "vol.img"])
        .code(2)
        .stderr(contains("vol.img: this is a weft volume, and not a program").and(contains("VOLUME FILE")));
    run(&bench, &[], "").code(2).stderr(contains("standard input: the program has no operations"));
    bench
        .weft(&["do", "--check", "none.img", "swap.toml"])
        .success()
        .stdout("the program is correct: 4 operations, policy all, durable\n");
    let checked = bench.json(&["do", "--check", "--json", "none.img", "swap.toml"]);
    assert_eq!((&checked["checked_only"], &checked["operations"][3]["do"]), (&json!(true), &json!("sync")));
    assert!(image(&bench) == before, "the image was changed");
}

#[test]
fn a_file_for_a_value_is_checked_before_the_program_runs() {
    let bench = bench();
    put(&bench, "/MANIFEST", "version 7");
    for (out, told) in [
        ("nobody=x", "no operation is called 'nobody'"),
        ("manifest=x", "operation 1 'manifest' (open) does not give bytes"),
        ("found=vol.img", "vol.img is a weft volume"),
        ("found=none/x", "none/x"),
        ("found", "NAME=FILE"),
    ] {
        bench.weft(&["do", "--out", out, "vol.img", "change.toml"]).code(2).stdout("").stderr(contains(told));
    }
    let twice = ["do", "--out", "found=-", "--json", "vol.img", "change.toml"];
    bench.weft(&twice).code(2).stderr(contains("the value and the JSON"));
    assert_eq!(cat(&bench, "/MANIFEST"), b"version 7");
}

#[test]
fn a_volume_that_is_missing_is_named_and_one_that_is_served_takes_programs_beside_others() {
    let bench = bench();
    bench
        .weft(&["do", "none.img", "swap.toml"])
        .code(1)
        .stderr(contains("none.img").and(contains("weft format")));
    let server = Serving::start(&bench);
    bench.weft(&["do", "vol.img", "swap.toml"]).success();
    let config = cat(&bench, "/config");
    server.stop();
    assert_eq!(cat(&bench, "/config"), config);
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn on_a_volume_that_its_user_may_not_write_programs_that_change_nothing_run() {
    let bench = bench();
    run(&bench, &[], WRITE_TABLE).success();
    let mut rights = std::fs::metadata(bench.path("vol.img")).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(bench.path("vol.img"), rights).unwrap();
    // The superuser may write all the same, unless it gives its powers up.
    let powerless = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];
    let before = if weft_sys::effective_user().0 == 0 { &powerless[..] } else { &["env"] };
    let weft = |program: &str| {
        let command = bench.command();
        let mut within = Command::new(before[0]);
        within.args(&before[1..]).arg(command.get_program()).args(["do", "vol.img", program]);
        within.current_dir(bench.dir()).env("XDG_RUNTIME_DIR", bench.dir()).output().unwrap()
    };
    let read = weft("read.toml");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert!(String::from_utf8_lossy(&read.stdout).contains("\"a block\""));
    let swap = weft("swap.toml");
    let told = String::from_utf8_lossy(&swap.stderr).into_owned();
    assert_eq!((swap.status.code(), swap.stdout.is_empty()), (Some(1), true), "{told}");
    assert!(
        told.contains("vol.img") && told.contains("Permission denied") && told.contains("read permission"),
        "{told}"
    );
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "table\n");
}

#[test]
fn programs_at_the_same_time_run_one_after_the_other() {
    let bench = bench();
    let append = r#"
        [[op]]
        do = "create"
        name = "f"
        path = "/log"
        [[op]]
        do = "write"
        file = "$f"
        at = "end"
        data = "line\n""#;
    bench.file("append.toml", append);
    let children: Vec<_> = (0..4).map(|_| bench.spawn(&["do", "vol.img", "append.toml"])).collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_eq!(cat(&bench, "/log"), b"line\n".repeat(4));
}
