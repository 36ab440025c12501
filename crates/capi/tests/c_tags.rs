//! The examples in C of tag stores: they compile without a warning, find their data again after a restart, and whatever kills
//! them, the list is a list. `WEFT_CAMPAIGN=1` kills 1,000 times.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::{compile, library_directory};
use weft_tags::{Durability, MemoryStore, Options, SessionServer, SessionSetup, SnodeId, Store};

/// A compiled example.
struct Program(PathBuf);

impl Program {
    fn compile(example: &str, scratch: &Path) -> Program {
        let program = scratch.join("program");
        compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example), &program);
        Program(program)
    }

    fn command(&self, store: &Path, what: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(store).args(what).env("LD_LIBRARY_PATH", library_directory());
        command
    }

    fn run(&self, store: &Path, what: &[&str]) -> Output {
        let output = self.command(store, what).output().unwrap();
        assert!(output.status.success(), "{what:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The items of the list.
    fn items(&self, store: &Path) -> Vec<u64> {
        let text = String::from_utf8(self.run(store, &["print"]).stdout).unwrap();
        text.split_whitespace().map(|item| item.parse().unwrap()).collect()
    }
}

#[test]
fn a_forked_child_does_not_use_the_store_of_its_parent() {
    let scratch = tempfile::tempdir().unwrap();
    let program = Program::compile("../tests/c/forked_store.c", scratch.path());
    assert_eq!(program.run(&scratch.path().join("store"), &[]).stdout, b"forked with a store from C: ok\n");
}

#[test]
fn a_key_value_store_and_a_tree_are_used_from_c() {
    let scratch = tempfile::tempdir().unwrap();
    let program = Program::compile("maps.c", scratch.path());
    assert_eq!(program.run(&scratch.path().join("store"), &[]).stdout, b"maps from C: ok\n");
}

#[test]
fn snapshots_edges_by_key_and_s_nodes_are_used_from_c() {
    let scratch = tempfile::tempdir().unwrap();
    let program = Program::compile("snapshots.c", scratch.path());
    let another = scratch.path().join("another");
    let ran = program.run(&scratch.path().join("store"), &[another.to_str().unwrap()]);
    assert_eq!(ran.stdout, b"snapshots from C: ok\n");
}

#[test]
fn parts_of_nodes_lists_and_many_pairs_are_used_from_c() {
    let scratch = tempfile::tempdir().unwrap();
    let program = Program::compile("parts.c", scratch.path());
    assert_eq!(program.run(&scratch.path().join("store"), &[]).stdout, b"parts from C: ok\n");
}

#[test]
fn processes_insert_and_delete_by_id_in_one_list() {
    let scratch = tempfile::tempdir().unwrap();
    let (program, socket) =
        (Program::compile("shared_list.c", scratch.path()), scratch.path().join("socket"));
    let store = Arc::new(Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap());
    let root = store.root(SnodeId::FIRST).unwrap();
    let setup = SessionSetup { durability: Durability::None, ..SessionSetup::new(root) };
    let server = SessionServer::start(store.clone(), &socket, setup).unwrap();
    let start = |what: &[&str]| {
        program.command(&socket, what).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Two processes that insert in the same places, and two that delete half of it at the same time.
    let running = [
        start(&["insert", "1000", "60"]),
        start(&["insert", "1030", "60"]),
        start(&["delete", "1000", "30"]),
        start(&["delete", "1060", "30"]),
    ];
    for process in running {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // What both have inserted is there twice.
    let wanted: Vec<u64> = (1030..1060).flat_map(|id| [id, id]).collect();
    assert_eq!(program.items(&socket), wanted);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    drop(server);
}

#[test]
fn a_list_from_c_is_there_after_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let (program, store) = (Program::compile("list.c", scratch.path()), scratch.path().join("store"));
    assert_eq!(program.items(&store), [0; 0]);
    (0..5).for_each(|_| drop(program.run(&store, &["push"])));
    program.run(&store, &["pop"]);
    assert_eq!(program.items(&store), [3, 2, 1, 0]);
}

#[test]
fn a_program_that_is_killed_anywhere_leaves_a_list() {
    let scratch = tempfile::tempdir().unwrap();
    let (program, store) = (Program::compile("list.c", scratch.path()), scratch.path().join("store"));
    let kills = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1000 } else { 25 };
    let mut longest = 0;
    for kill in 0..kills {
        let mut churn = program.command(&store, &["churn"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(churn.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        // Anywhere from its first operations on, at another place of its loop each time.
        std::thread::sleep(Duration::from_micros(kill * 7919 % 40_000));
        churn.kill().unwrap();
        churn.wait().unwrap();
        let items = program.items(&store);
        let wanted: Vec<u64> = (0..items.len() as u64).rev().collect();
        assert_eq!(items, wanted, "kill {kill}");
        longest = longest.max(items.len());
    }
    assert!(longest > 3, "the list never grew");
}
