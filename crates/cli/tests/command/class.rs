//! Classes of files and directories.

use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

/// A volume of the core tagfs with the directory `/dir`, in which `file` and `below/other` are.
fn filled() -> Bench {
    let bench = Bench::empty();
    bench.weft(&["format", "--quiet", "--core", "tagfs", "--size", "64M", "vol.img"]).success();
    bench.file("dir/file", "1");
    bench.file("dir/below/other", "2");
    std::os::unix::fs::symlink("file", bench.path("dir/link")).unwrap();
    bench.weft(&["cp", "-r", "dir", "vol.img:/"]).success();
    bench
}

/// Runs a script under `weft run`, in which `$WEFT` is the command; what it prints.
fn under(bench: &Bench, script: &str) -> String {
    let script = format!("WEFT={}; {script}", assert_cmd::cargo::cargo_bin("weft").display());
    bench.stdout(&["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", &script])
}

#[test]
fn a_class_is_set_shown_inherited_and_cleared() {
    let bench = filled();
    bench.weft(&["class", "set", "small", "vol.img:/dir"]).success().stdout("");
    let shown = bench.stdout(&["class", "show", "vol.img:/dir", "vol.img:/dir/file"]);
    assert_eq!(
        shown,
        "class  path\n-----  -----------------\nsmall  vol.img:/dir\n-      vol.img:/dir/file\n"
    );
    bench.weft(&["cp", "dir/file", "vol.img:/dir/new"]).success();
    let shown = bench.json(&["class", "show", "--json", "-r", "vol.img:/dir"]);
    let file =
        |path: &str, class: Option<&str>| json!({ "path": format!("vol.img:/dir{path}"), "class": class });
    let classes = |of: [Option<&str>; 5]| {
        let paths = ["", "/below", "/below/other", "/file", "/new"];
        json!(paths.into_iter().zip(of).map(|(path, class)| file(path, class)).collect::<Vec<_>>())
    };
    assert_eq!(shown, classes([Some("small"), None, None, None, Some("small")]));
    bench.weft(&["class", "set", "-r", "log", "vol.img:/dir"]).success();
    let shown = bench.json(&["class", "show", "--json", "-r", "vol.img:/dir"]);
    assert_eq!(shown, classes([Some("log"); 5]));
    bench.weft(&["class", "clear", "-r", "vol.img:/dir/below"]).success();
    bench.weft(&["class", "clear", "vol.img:/dir", "vol.img:/dir"]).success();
    let shown = bench.json(&["class", "show", "--json", "-r", "vol.img:/dir"]);
    assert_eq!(shown, classes([None, None, None, Some("log"), Some("log")]));
}

#[test]
fn a_program_under_weft_run_sets_classes_by_the_paths_that_it_sees() {
    let bench = filled();
    let shown = under(
        &bench,
        "$WEFT class set -r in-place /weft/dir/below && cd /weft/dir && $WEFT class show below below/other file",
    );
    assert_eq!(
        shown,
        "class     path\n--------  -----------\nin-place  below\nin-place  below/other\n-         file\n"
    );
}

#[test]
fn what_is_no_class_and_what_has_none_is_told() {
    let bench = filled();
    bench.weft(&["class", "set", "smal", "vol.img:/dir"]).code(2).stderr(
        contains("there is no class 'smal'")
            .and(contains("unknown, metadata, log, immutable, in-place, small, temporary")),
    );
    let refused =
        bench.weft(&["class", "set", "small", "vol.img:/none", "vol.img:/dir/link", "vol.img:/dir/file"]);
    refused.code(1).stderr(
        contains("set the class of vol.img:/none: No such file")
            .and(contains("vol.img:/dir/link: only files and directories have a class"))
            .and(contains("2 failed")),
    );
    let shown = bench.json(&["class", "show", "--json", "vol.img:/dir/file"]);
    assert_eq!(shown[0]["class"], "small");
}

#[test]
fn other_file_systems_keep_no_class() {
    let bench = filled();
    bench.weft(&["format", "--quiet", "--size", "64M", "--zone-size", "1M", "other.img"]).success();
    bench.weft(&["cp", "dir/file", "other.img:/file"]).success();
    for path in ["dir/file", "dir", "other.img:/file"] {
        for args in [&["class", "set", "small", path][..], &["class", "clear", path]] {
            bench
                .weft(args)
                .code(1)
                .stderr(contains("no classes of data").and(contains("weft format --core tagfs")));
        }
    }
    for path in ["dir/file", "other.img:/file"] {
        bench.weft(&["class", "show", path]).code(1).stderr(contains("no classes of data"));
    }
}
