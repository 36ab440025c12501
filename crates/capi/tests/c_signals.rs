//! Signal handlers of programs that run chains on a served volume: with a preloaded library in front of them they wait, and without one a
//! function that they call in the middle of another one is refused. None waits for what its own thread holds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Served, compile, library_directory};

/// A run that takes longer hangs: the server takes a lock away after five seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program, which has not begun.
fn command(served: &Served, mode: &str) -> Command {
    let program = served.scratch.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/signals.c");
    compile(&source, &program);
    let mut command = Command::new(&program);
    command.arg(&served.socket).args([mode, "/weft/signals"]).env("LD_LIBRARY_PATH", library_directory());
    command
}

/// As 'weft run' starts it.
fn preloaded(served: &Served, mode: &str) -> Command {
    let mut command = command(served, mode);
    let library: PathBuf = library_directory().join("libweft_shim.so");
    assert!(library.exists(), "{} is not built", library.display());
    command.env("LD_PRELOAD", library).env("WEFT_SOCKET", &served.socket).env("WEFT_AT", "/weft");
    command
}

/// Runs it to its end; how many of its handlers did what they wanted, and how many were refused it.
fn end(mut command: Command) -> (u32, u32) {
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    let numbers = told.trim_end().strip_prefix("made ").and_then(|rest| rest.split_once(", refused "));
    numbers.map(|(made, refused)| (made.parse().unwrap(), refused.parse().unwrap())).unwrap()
}

#[test]
fn a_handler_writes_to_the_file_that_its_thread_runs_a_chain_on() {
    let (_, refused) = end(preloaded(&Served::new(), "pwrite"));
    assert_eq!(refused, 0);
}

#[test]
fn a_handler_that_can_be_put_off_runs_chains_when_its_threads_chain_has_run() {
    // It may come at the first instructions of a function, before it is put off.
    let (made, refused) = end(preloaded(&Served::new(), "chain"));
    assert!(made > 4 * refused, "made {made}, refused {refused}");
}

#[test]
fn a_handler_that_cannot_be_put_off_is_refused_a_chain_in_the_middle_of_one() {
    let (_, refused) = end(command(&Served::new(), "chain"));
    assert!(refused > 0);
}
