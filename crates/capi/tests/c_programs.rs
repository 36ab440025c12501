//! The examples in C compile without a warning and do what they say: in memory, on an image file, and with flash of another
//! process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use support::{compile, library_directory};
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::share::MonitorServer;
use weft_flash::{Monitor, MonitorSetup};

/// Compiles an example and runs it with these arguments, each list in turn.
fn run(example: &str, scratch: &Path, runs: &[&[&Path]]) -> Vec<Output> {
    let program = scratch.join("program");
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example), &program);
    let run = |arguments: &&[&Path]| {
        let mut command = Command::new(&program);
        let run = command.args(*arguments).env("LD_LIBRARY_PATH", library_directory()).output().unwrap();
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
