//! The example in C compiles without a warning and does what it says, in memory and on an image file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory with the shared library: that of the test's own program, or the one above.
fn library_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().skip(1).find(|directory| directory.join("libweft_c.so").exists());
    found.unwrap().to_path_buf()
}

#[test]
fn the_example_compiles_and_uses_all_three_levels() {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("levels");
    let library = library_directory();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(crate_directory.join("examples/levels.c"))
        .arg("-I")
        .arg(crate_directory.join("include"))
        .arg(library.join("libweft_c.so"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let image = scratch.path().join("flash.img");
    for arguments in [vec![], vec![image.as_os_str()]] {
        let run = Command::new(&program).args(arguments).env("LD_LIBRARY_PATH", &library).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(run.stdout, b"three levels from C: ok\n");
    }
}
