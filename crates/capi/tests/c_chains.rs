//! Programs of file operations from C: they compile without a warning, and a served volume runs them. The page on compound operations is
//! followed to the letter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Served, compile, library_directory};
use weft_client::FileRef;

const PAGE: &str = include_str!("../../../docs/how-to/compound-operations.md");

impl Served {
    /// Compiles a program, which gets the socket in its environment and as its argument.
    fn command(&self, source: &Path) -> Command {
        let program = self.scratch.path().join("program");
        compile(source, &program);
        let mut command = Command::new(&program);
        command
            .arg(&self.socket)
            .env("WEFT_SOCKET", &self.socket)
            .env("LD_LIBRARY_PATH", library_directory());
        command
    }

    /// Compiles a program and runs it; what it prints.
    fn run(&self, source: &Path) -> String {
        let output = self.command(source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The source of a program of these tests.
fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

#[test]
fn chains_swap_compare_verify_and_use_every_operation() {
    let served = Served::new();
    assert_eq!(served.run(&own("chains.c")), "chains from C: ok\n");
    assert_eq!(served.content(b"/config"), b"verbose = true\n");
    assert_eq!(served.content(b"/MANIFEST"), b"version 9");
    assert_eq!(served.content(b"/log"), b"a line\na line\na line\n");
}

#[test]
fn pairs_of_operations_are_one_call() {
    let served = Served::new();
    assert_eq!(served.run(&own("one_call.c")), "one call from C: ok\n");
    assert_eq!(served.content(b"/file"), b"AB2xy567cb!");
}

#[test]
fn a_chain_with_inputs_runs_alone_and_in_batches() {
    let served = Served::new();
    assert_eq!(served.run(&own("batch.c")), "batches from C: ok\n");
    assert!(served.content(b"/numbers").ends_with(b"some text, which the batch copies"));
}

#[test]
fn a_forked_child_cannot_take_answers_from_its_parents_connection() {
    let served = Served::new();
    assert_eq!(served.run(&own("forked.c")), "forked from C: ok\n");
}

#[test]
fn misuse_is_refused_with_a_reason() {
    assert_eq!(Served::new().run(&own("misuse.c")), "misuse from C: ok\n");
}

#[test]
fn the_page_shows_a_program_that_compiles_and_swaps_once() {
    let served = Served::new();
    let blocks: Vec<&str> =
        PAGE.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 1);
    let source = served.scratch.path().join("page.c");
    std::fs::write(&source, blocks[0]).unwrap();
    let client = served.client();
    let manifest =
        client.open(FileRef::ROOT, b"/MANIFEST", libc::O_CREAT | libc::O_WRONLY, 0o644).unwrap().file;
    client.pwrite(manifest, b"version 7", 0).unwrap();
    assert_eq!(served.run(&source), "version 8 is there\n");
    assert_eq!(served.content(b"/MANIFEST"), b"version 8");
    assert_eq!(served.run(&source), "somebody was faster: version 8\n");
    assert_eq!(served.content(b"/MANIFEST"), b"version 8");
}

#[test]
fn a_server_that_ends_is_told_by_the_next_call() {
    let served = Served::new();
    let mut command = served.command(&own("server_ends.c"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    served.server.stop();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((&ready, &output.stdout[..]), (b"ready\n", &b"the end of a server from C: ok\n"[..]));
}

#[test]
fn what_is_to_be_durable_is_flushed_and_nothing_else() {
    let served = Served::new();
    served.command(&own("durable.c"));
    let program = served.scratch.path().join("program");
    let flushes = |change: &str, durable: &str| {
        let before = served.device.counters().flushes;
        let mut command = Command::new(&program);
        command.arg(&served.socket).args([change, durable]).env("LD_LIBRARY_PATH", library_directory());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        served.device.counters().flushes - before
    };
    for change in ["0", "1", "2", "3", "4"] {
        // On a busy machine the server may flush meanwhile, because some time has passed.
        assert!((0..5).any(|_| flushes(change, "0") == 0), "change {change} flushes though it need not");
        assert!(flushes(change, "1") > 0, "change {change} is not flushed");
    }
}
