//! What the tests share: the library, and programs in C that are compiled against it.

#![allow(dead_code, clippy::unwrap_used, reason = "a test fails by panicking, and uses what it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory with the libraries: that of the test's own program, or the one above.
pub fn library_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().skip(1).find(|directory| directory.join("libweft_c.so").exists());
    found.unwrap().to_path_buf()
}

/// Compiles a program without a warning. It needs the [`library_directory`] in `LD_LIBRARY_PATH`.
pub fn compile(source: &Path, program: &Path) {
    compile_with(source, program, &["libweft_c.so"], &[]);
}

/// The same, with all that it needs in it.
pub fn compile_statically(source: &Path, program: &Path) {
    compile_with(source, program, &["libweft_c.a"], &["-static", "-lpthread", "-lm", "-ldl"]);
}

fn compile_with(source: &Path, program: &Path, libraries: &[&str], options: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([program, source])
        .arg("-I")
        .arg(here.join("include"))
        .args(libraries.iter().map(|library| library_directory().join(library)))
        .args(options)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
