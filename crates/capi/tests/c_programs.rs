//! The examples in C compile without a warning and do what they say: in memory, on an image file, and with flash of another
//! process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::share::MonitorServer;
use weft_flash::{Monitor, MonitorSetup};

/// The directory with the shared library: that of the test's own program, or the one above.
fn library_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().skip(1).find(|directory| directory.join("libweft_c.so").exists());
    found.unwrap().to_path_buf()
}

/// Compiles an example and runs it with these arguments, each list in turn.
fn run(example: &str, scratch: &Path, runs: &[&[&Path]]) -> Vec<Output> {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, library) = (scratch.join("program"), library_directory());
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(crate_directory.join("examples").join(example))
        .arg("-I")
        .arg(crate_directory.join("include"))
        .arg(library.join("libweft_c.so"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = |arguments: &&[&Path]| {
        let run = Command::new(&program).args(*arguments).env("LD_LIBRARY_PATH", &library).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        run
    };
    runs.iter().map(run).collect()
}

#[test]
fn the_example_compiles_and_uses_all_three_levels() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("flash.img");
    for output in run("levels.c", scratch.path(), &[&[], &[&image]]) {
        assert_eq!(output.stdout, b"three levels from C: ok\n");
    }
}

#[test]
fn pages_of_several_luns_and_planes_are_written_and_read_together() {
    let scratch = tempfile::tempdir().unwrap();
    assert_eq!(run("vectors.c", scratch.path(), &[&[]])[0].stdout, b"pages together from C: ok\n");
}

#[test]
fn a_program_in_c_has_flash_of_a_monitor_that_another_process_serves() {
    let scratch = tempfile::tempdir().unwrap();
    let setup = FlashSetup::new(Geometry::bbssd().with_size(1 << 30));
    let monitor =
        Monitor::format(Arc::new(OpenChannel::memory(&setup).unwrap()), MonitorSetup::default()).unwrap();
    let socket = scratch.path().join("socket");
    let server = MonitorServer::start(monitor.clone(), &socket).unwrap();
    let outputs = run("served.c", scratch.path(), &[&[&socket]]);
    assert_eq!(outputs[0].stdout, b"flash of another process from C: ok\n");
    drop(server);
    assert_eq!(monitor.grants()[0].name, "mine");
}
