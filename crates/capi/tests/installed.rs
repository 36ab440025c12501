//! The page on weft from C, followed to the letter against the library as it is installed: each of its commands links the list, which then
//! runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use support::library_directory;

const PAGE: &str = include_str!("../../../docs/how-to/use-weft-from-c.md");

fn bash(script: &str, directory: &Path) -> String {
    let mut command = Command::new("bash");
    command
        .args(["-euc", script])
        .current_dir(directory)
        .env("WEFT", directory)
        .env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_in_c_is_linked_as_the_page_says_and_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // What `make build` does, below a `WEFT` of the test's own.
    let prefix = scratch.path().join("target/release/c");
    let installed = Command::new(here.join("../../scripts/install-c.sh"))
        .args([&library_directory(), &prefix])
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    std::fs::copy(here.join("examples/list.c"), scratch.path().join("list.c")).unwrap();
    let blocks: Vec<&str> =
        PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2, "one for each library");
    let both = "./list store push\n./list store push\n./list store print";
    let items = bash(&[blocks[0], both].concat(), scratch.path());
    assert_eq!(items.split_whitespace().collect::<Vec<_>>(), ["1", "0"], "with the shared library");
    // In the same shell, as the page is read. It needs no library of weft's when it runs.
    let alone = format!("rm list store\n{}{}rm -r target\n{both}", blocks[0], blocks[1]);
    let items = bash(&alone, scratch.path());
    assert_eq!(items.split_whitespace().collect::<Vec<_>>(), ["1", "0"], "with the static library");
}
