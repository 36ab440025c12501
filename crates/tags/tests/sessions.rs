//! Sessions: ids that mean nothing elsewhere, credentials that are checked at each crossing, in one process and over a socket.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weft_tags::{
    Credentials, Durability, EdgeType, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, PageStore,
    Permission, Principal, Refusal, RemoteSession, Session, SessionError, SessionLimits, SessionNode,
    SessionServer, SessionSetup, SnodeId, SnodeTags, Store,
};

const TEXT: NodeType = NodeType(1);
const LONG: SessionLimits = SessionLimits {
    idle: Duration::from_secs(60),
    request: Duration::from_secs(60),
    transaction: Duration::from_secs(60),
};
const SOME_USER: u32 = 4242;

fn store() -> Store {
    let options = Options {
        cache_bytes: 4 << 20,
        journal_bytes: 256 << 10,
        store_bytes_max: 64 << 20,
        ..Options::default()
    };
    Store::create(Box::new(MemoryStore::new()), &options).unwrap()
}

fn next(store: &Store) -> EdgeType {
    store.edge_type("next", InfoForm::Number).unwrap()
}

fn root(store: &Store) -> NodeId {
    store.root(SnodeId::FIRST).unwrap()
}

fn as_superuser(store: &Store) -> Session<'_> {
    store.open_session(root(store), Credentials::superuser(0), LONG).unwrap()
}

fn as_user(store: &Store) -> Result<Session<'_>, SessionError> {
    store.open_session(root(store), Credentials::user(SOME_USER, &[7]), LONG)
}

fn grant(store: &Store, snode: SnodeId, permission: Permission) {
    let mut tx = store.begin();
    tx.grant(snode, Principal::User(SOME_USER), permission).unwrap();
    tx.commit().unwrap();
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, SessionError>, refusal: Refusal) {
    assert_eq!(result.unwrap_err().refusal, refusal);
}

/// A node at edge `number` of the root.
fn put(session: &mut Session<'_>, etype: EdgeType, number: u64, data: &[u8]) -> SessionNode {
    session.begin().unwrap();
    let root = session.root();
    let node = session.create_node(root, TEXT, data).unwrap();
    session.create_edge(root, etype, Info::Number(number), node).unwrap();
    session.commit().unwrap();
    node
}

#[test]
fn a_session_does_what_a_transaction_does() {
    let store = store();
    let etype = next(&store);
    let mut session = as_superuser(&store);
    let root = session.root();
    refused(session.create_node(root, TEXT, b"x"), Refusal::NoTransaction);
    let a = put(&mut session, etype, 1, b"a");
    assert_eq!(session.read_node(a, TEXT).unwrap(), b"a");
    assert_eq!(session.edge(root, etype, Info::Number(1)).unwrap(), Some(a));
    refused(session.read_node(a, NodeType(2)), Refusal::WrongType);
    session.begin().unwrap();
    refused(session.begin(), Refusal::InTransaction);
    session.update_node(a, TEXT, b"b").unwrap();
    let savepoint = session.savepoint().unwrap();
    let lost = session.create_node(a, TEXT, b"lost").unwrap();
    session.set_edge(root, etype, Info::Number(1), lost).unwrap();
    session.undo_to(savepoint).unwrap();
    refused(session.read_node(lost, TEXT), Refusal::NoSuchId);
    refused(session.undo_to(savepoint), Refusal::BadRequest);
    session.commit().unwrap();
    assert_eq!(session.read_node(a, TEXT).unwrap(), b"b");
    // What a transaction has changed it sees, by ids that stay.
    session.begin().unwrap();
    let more = session.create_node(root, TEXT, b"more").unwrap();
    session.create_edge(root, etype, Info::Number(2), more).unwrap();
    assert_eq!(session.edge(root, etype, Info::Number(2)).unwrap(), Some(more));
    assert_eq!(session.edges(root).unwrap().len(), 2);
    assert_eq!(session.edge(root, etype, Info::Number(1)).unwrap(), Some(a));
    session.abort().unwrap();
    let edges = session.edges(root).unwrap();
    assert_eq!((edges.len(), edges[0].number, edges[0].to), (1, Some(1), a));
    session.begin().unwrap();
    refused(session.delete_node(a, TEXT), Refusal::NotEmpty);
    assert_eq!(session.delete_edge(root, etype, Info::Number(1)).unwrap(), a);
    session.abort().unwrap();
    assert_eq!(session.read_node(a, TEXT).unwrap(), b"b");
}

#[test]
fn an_id_of_another_session_a_forged_one_and_one_of_the_store_are_refused() {
    let store = store();
    let etype = next(&store);
    let (mut one, mut other) = (as_superuser(&store), as_superuser(&store));
    let a = put(&mut one, etype, 1, b"a");
    let in_store = store.edge(root(&store), etype, Info::Number(1)).unwrap().unwrap();
    let foreign = other.edge(other.root(), etype, Info::Number(1)).unwrap().unwrap();
    assert_ne!(a, foreign);
    assert_ne!(one.root(), other.root());
    for forged in [foreign, SessionNode(in_store.0), SessionNode(0), SessionNode(a.0 ^ 1), other.root()] {
        refused(one.read_node(forged, TEXT), Refusal::NoSuchId);
        refused(one.edges(forged), Refusal::NoSuchId);
        one.begin().unwrap();
        refused(one.create_node(forged, TEXT, b""), Refusal::NoSuchId);
        refused(one.create_edge(a, etype, Info::Number(1), forged), Refusal::NoSuchId);
        refused(one.update_node(forged, TEXT, b""), Refusal::NoSuchId);
        refused(one.grant(forged, Principal::Everyone, Permission::Read), Refusal::NoSuchId);
        one.abort().unwrap();
    }
    assert_eq!(other.read_node(foreign, TEXT).unwrap(), b"a");
}

#[test]
fn an_id_does_not_outlive_its_node_though_another_takes_its_place() {
    let store = store();
    let etype = next(&store);
    let (mut one, mut other) = (as_superuser(&store), as_superuser(&store));
    let a = put(&mut one, etype, 1, b"a");
    let place = store.edge(root(&store), etype, Info::Number(1)).unwrap().unwrap();
    let seen = other.edge(other.root(), etype, Info::Number(1)).unwrap().unwrap();
    one.begin().unwrap();
    one.delete_edge(one.root(), etype, Info::Number(1)).unwrap();
    one.commit().unwrap();
    refused(one.read_node(a, TEXT), Refusal::NoSuchId);
    // Until another node has the place.
    for number in 2..2000 {
        put(&mut one, etype, number, b"n");
        let now = store.edge(root(&store), etype, Info::Number(number)).unwrap().unwrap();
        refused(other.read_node(seen, TEXT), Refusal::NoSuchId);
        if now == place {
            return;
        }
    }
    panic!("the place was not used again");
}

#[test]
fn a_node_that_was_made_and_aborted_is_no_id_any_more() {
    let store = store();
    let mut session = as_superuser(&store);
    session.begin().unwrap();
    let node = session.create_node(session.root(), TEXT, b"x").unwrap();
    session.abort().unwrap();
    refused(session.read_node(node, TEXT), Refusal::NoSuchId);
}

#[test]
fn after_its_end_or_a_time_without_use_a_session_refuses_all_and_holds_nothing() {
    let store = store();
    let etype = next(&store);
    let mut session = as_superuser(&store);
    let a = put(&mut session, etype, 1, b"a");
    session.begin().unwrap();
    session.update_node(a, TEXT, b"never").unwrap();
    session.close();
    refused(session.read_node(a, TEXT), Refusal::Ended);
    refused(session.commit(), Refusal::Ended);
    refused(session.begin(), Refusal::Ended);
    let idle = Duration::from_millis(30);
    let limits = SessionLimits { idle, ..LONG };
    let mut session = store.open_session(root(&store), Credentials::superuser(0), limits).unwrap();
    let a = session.edge(session.root(), etype, Info::Number(1)).unwrap().unwrap();
    session.begin().unwrap();
    session.update_node(a, TEXT, b"never").unwrap();
    std::thread::sleep(idle * 3);
    refused(session.commit(), Refusal::Ended);
    // The lock of the s-node is free again, and nothing was written.
    let node = store.edge(root(&store), etype, Info::Number(1)).unwrap().unwrap();
    assert_eq!(store.begin().read_node(node, TEXT).unwrap(), b"a");
}

#[test]
fn credentials_are_checked_at_each_crossing_and_a_permission_taken_back_ends_at_once() {
    let store = store();
    let etype = next(&store);
    put(&mut as_superuser(&store), etype, 1, b"a");
    refused(as_user(&store).map(drop), Refusal::NoSuchNode);
    grant(&store, SnodeId::FIRST, Permission::Read);
    let mut session = as_user(&store).unwrap();
    let root = session.root();
    let a = session.edge(root, etype, Info::Number(1)).unwrap().unwrap();
    assert_eq!(session.read_node(a, TEXT).unwrap(), b"a");
    session.begin().unwrap();
    refused(session.update_node(a, TEXT, b"b"), Refusal::Forbidden);
    refused(session.create_node(root, TEXT, b"b"), Refusal::Forbidden);
    refused(session.create_edge(root, etype, Info::Number(2), a), Refusal::Forbidden);
    refused(session.delete_edge(root, etype, Info::Number(1)), Refusal::Forbidden);
    refused(session.grant(root, Principal::User(SOME_USER), Permission::Control), Refusal::Forbidden);
    refused(session.set_snode_tags(root, SnodeTags::default()), Refusal::Forbidden);
    refused(session.create_snode(SnodeTags::default()), Refusal::Forbidden);
    session.abort().unwrap();
    refused(session.edge_type("new", InfoForm::Number), Refusal::Forbidden);
    assert_eq!(session.edge_type("next", InfoForm::Number).unwrap(), etype);
    let mut tx = store.begin();
    tx.revoke(SnodeId::FIRST, Principal::User(SOME_USER), Permission::Read).unwrap();
    tx.commit().unwrap();
    refused(session.read_node(a, TEXT), Refusal::NoSuchNode);
    refused(session.edges(root), Refusal::NoSuchNode);
}

#[test]
fn an_edge_into_an_s_node_that_is_not_the_callers_shows_an_id_and_nothing_else() {
    let store = store();
    let etype = next(&store);
    let mut owner = as_superuser(&store);
    owner.begin().unwrap();
    let hidden = owner.create_snode(SnodeTags { owner: 1, mode: 0o600, ..SnodeTags::default() }).unwrap();
    let secret = owner.create_node(hidden, TEXT, b"secret").unwrap();
    owner.create_edge(hidden, etype, Info::Number(0), secret).unwrap();
    // To another s-node only its root is led to, also by those who may do everything; the store's own process does as it likes.
    refused(owner.create_edge(owner.root(), etype, Info::Number(0), secret), Refusal::Forbidden);
    owner.create_edge(owner.root(), etype, Info::Number(1), hidden).unwrap();
    owner.commit().unwrap();
    let snode = *store.snodes().unwrap().last().unwrap();
    let secret = store.edge(store.root(snode).unwrap(), etype, Info::Number(0)).unwrap().unwrap();
    let mut tx = store.begin();
    tx.create_edge(root(&store), etype, Info::Number(0), secret).unwrap();
    tx.commit().unwrap();
    grant(&store, SnodeId::FIRST, Permission::Read);
    grant(&store, SnodeId::FIRST, Permission::Write);
    let mut session = as_user(&store).unwrap();
    let shown = session.edge(session.root(), etype, Info::Number(0)).unwrap().unwrap();
    refused(session.read_node(shown, TEXT), Refusal::NoSuchNode);
    refused(session.edges(shown), Refusal::NoSuchNode);
    refused(session.snode_tags(shown), Refusal::NoSuchNode);
    session.begin().unwrap();
    refused(session.create_edge(session.root(), etype, Info::Number(5), shown), Refusal::Forbidden);
    refused(session.delete_snode(shown), Refusal::NoSuchNode);
    // An edge to the s-node itself may be made; what is there is found out by nobody who may not.
    let shown = session.edge(session.root(), etype, Info::Number(1)).unwrap().unwrap();
    session.create_edge(session.root(), etype, Info::Number(5), shown).unwrap();
    session.commit().unwrap();
    refused(session.edges(shown), Refusal::NoSuchNode);
}

#[test]
fn who_controls_the_first_s_node_deletes_edge_types_that_have_no_edges() {
    let store = store();
    let etype = next(&store);
    put(&mut as_superuser(&store), etype, 1, b"a");
    grant(&store, SnodeId::FIRST, Permission::Write);
    let mut session = as_user(&store).unwrap();
    let mine = session.edge_type("mine", InfoForm::Number).unwrap();
    refused(session.delete_edge_type(mine), Refusal::Forbidden);
    grant(&store, SnodeId::FIRST, Permission::Control);
    refused(session.delete_edge_type(etype), Refusal::NotEmpty);
    session.delete_edge_type(mine).unwrap();
    refused(session.delete_edge_type(mine), Refusal::BadRequest);
    refused(session.edge_type("weft.kv", InfoForm::Number), Refusal::BadRequest);
}

fn serve(setup: impl FnOnce(&mut SessionSetup)) -> (tempfile::TempDir, Arc<Store>, SessionServer) {
    let scratch = tempfile::tempdir().unwrap();
    let store = Arc::new(store());
    next(&store);
    let mut options = SessionSetup::new(root(&store));
    setup(&mut options);
    let server = SessionServer::start(store.clone(), &scratch.path().join("s"), options).unwrap();
    (scratch, store, server)
}

#[test]
fn sessions_over_a_socket_do_the_same_and_end_with_their_connection() {
    let (scratch, store, server) = serve(|_| {});
    let path = scratch.path().join("s");
    let mut session = RemoteSession::connect(&path).unwrap();
    let etype = session.edge_type("next", InfoForm::Number).unwrap();
    let root = session.root();
    refused(session.create_node(root, TEXT, b"x"), Refusal::NoTransaction);
    session.begin().unwrap();
    let a = session.create_node(root, TEXT, b"a").unwrap();
    session.create_edge(root, etype, Info::Number(1), a).unwrap();
    let savepoint = session.savepoint().unwrap();
    session.delete_edge(root, etype, Info::Number(1)).unwrap();
    session.undo_to(savepoint).unwrap();
    assert!(session.commit().unwrap() > 0);
    assert_eq!(session.read_node(a, TEXT).unwrap(), b"a");
    assert_eq!(session.edges(root).unwrap()[0].to, a);
    assert_eq!(session.edge(root, etype, Info::Number(9)).unwrap(), None);
    session.begin().unwrap();
    session.update_node(a, TEXT, b"bb").unwrap();
    assert_eq!(session.set_edge(root, etype, Info::Number(1), a).unwrap(), Some(a));
    session.commit().unwrap();
    session.begin().unwrap();
    let mine = SnodeTags { owner: 9, mode: 0o640, ..SnodeTags::default() };
    let home = session.create_snode(mine).unwrap();
    session.grant(home, Principal::Group(3), Permission::Write).unwrap();
    assert!(session.revoke(home, Principal::Group(3), Permission::Write).unwrap());
    session.commit().unwrap();
    session.begin().unwrap();
    session.set_snode_tags(home, SnodeTags { mode: 0o600, ..mine }).unwrap();
    session.commit().unwrap();
    assert_eq!(session.snode_tags(home).unwrap().mode, 0o600);
    session.begin().unwrap();
    session.delete_snode(home).unwrap();
    session.commit().unwrap();
    let mut other = RemoteSession::connect(&path).unwrap();
    refused(other.read_node(a, TEXT), Refusal::NoSuchId);
    session.forget(a).unwrap();
    refused(session.read_node(a, TEXT), Refusal::NoSuchId);
    // What one holds is free when it is gone, however it went.
    session.begin().unwrap();
    let again = session.edge(root, etype, Info::Number(1)).unwrap().unwrap();
    session.update_node(again, TEXT, b"never").unwrap();
    drop(session);
    other.begin().unwrap();
    let seen = other.edge(other.root(), etype, Info::Number(1)).unwrap().unwrap();
    assert_eq!(other.read_node(seen, TEXT).unwrap(), b"bb");
    other.close().unwrap();
    drop(server);
    assert!(store.check().unwrap().problems.is_empty());
    refused(RemoteSession::connect(&path).map(drop), Refusal::Connection);
}

#[test]
fn nodes_are_read_and_written_by_parts_over_a_socket() {
    let (scratch, store, _server) = serve(|_| {});
    let mut session = RemoteSession::connect(&scratch.path().join("s")).unwrap();
    let (root, etype) = (session.root(), session.edge_type("next", InfoForm::Number).unwrap());
    session.begin().unwrap();
    let node = session.create_node(root, TEXT, b"").unwrap();
    session.create_edge(root, etype, Info::Number(0), node).unwrap();
    // More than a message has room for.
    for n in 0..20u64 {
        assert_eq!(session.append(node, TEXT, &[n as u8; 1 << 20]).unwrap(), n << 20);
    }
    session.write_at(node, TEXT, (7 << 20) - 1, b"part").unwrap();
    refused(session.write_at(node, TEXT, (20 << 20) + 1, b"far behind"), Refusal::BadRequest);
    assert_eq!(session.read_at(node, TEXT, (7 << 20) - 2, 6).unwrap(), b"\x06part\x07");
    session.commit().unwrap();
    assert_eq!(session.read_at(node, TEXT, (7 << 20) - 2, 6).unwrap(), b"\x06part\x07");
    assert_eq!(session.read_at(node, TEXT, (20 << 20) - 3, 100).unwrap(), [19; 3]);
    refused(session.read_node(node, TEXT), Refusal::BadRequest);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn over_a_socket_the_kernel_says_who_the_caller_is() {
    let (scratch, store, _server) = serve(|setup| setup.owner_is_superuser = false);
    let path = scratch.path().join("s");
    refused(RemoteSession::connect(&path).map(drop), Refusal::NoSuchNode);
    // SAFETY: asks for a number.
    let me = unsafe { libc::geteuid() };
    let mut tx = store.begin();
    tx.grant(SnodeId::FIRST, Principal::User(me), Permission::Read).unwrap();
    tx.commit().unwrap();
    let mut session = RemoteSession::connect(&path).unwrap();
    session.begin().unwrap();
    refused(session.create_node(session.root(), TEXT, b""), Refusal::Forbidden);
}

#[test]
fn a_client_that_falls_silent_in_a_transaction_keeps_writers_waiting_to_its_limit_and_readers_not_at_all() {
    let short = Duration::from_millis(200);
    for (limits, refusal) in [
        (SessionLimits { idle: short, ..LONG }, Refusal::Ended),
        (SessionLimits { transaction: short, ..LONG }, Refusal::TransactionEnded),
    ] {
        let (scratch, _store, _server) = serve(|setup| setup.limits = limits);
        let path = scratch.path().join("s");
        let mut silent = RemoteSession::connect(&path).unwrap();
        let etype = silent.edge_type("next", InfoForm::Number).unwrap();
        silent.begin().unwrap();
        let root = silent.root();
        let node = silent.create_node(root, TEXT, b"x").unwrap();
        silent.create_edge(root, etype, Info::Number(0), node).unwrap();
        let mut other = RemoteSession::connect(&path).unwrap();
        assert_eq!(other.edge(other.root(), etype, Info::Number(0)).unwrap(), None);
        // This waits for the lock of the s-node until the other's time is over, and has time left then.
        std::thread::sleep(short / 2);
        other.begin().unwrap();
        other.create_node(other.root(), TEXT, b"y").unwrap();
        other.abort().unwrap();
        refused(silent.commit(), refusal);
    }
}

#[test]
fn a_session_that_reads_in_a_transaction_keeps_nobody_waiting_and_sees_one_state() {
    let store = store();
    let etype = next(&store);
    put(&mut as_superuser(&store), etype, 1, b"before");
    let mut reader = as_superuser(&store);
    reader.begin().unwrap();
    let root = reader.root();
    let then = reader.edge(root, etype, Info::Number(1)).unwrap().unwrap();
    assert_eq!(reader.read_node(then, TEXT).unwrap(), b"before");
    // Another session opens, reads and changes, and so does the store's own process.
    let mut other = as_superuser(&store);
    let seen = other.edge(other.root(), etype, Info::Number(1)).unwrap().unwrap();
    other.begin().unwrap();
    other.update_node(seen, TEXT, b"after").unwrap();
    other.commit().unwrap();
    put(&mut other, etype, 2, b"new");
    let mut tx = store.begin();
    tx.delete_edge(store.root(SnodeId::FIRST).unwrap(), etype, Info::Number(1)).unwrap();
    tx.commit().unwrap();
    // What has gone and what is new: in the transaction all is as it was.
    assert_eq!(reader.read_node(then, TEXT).unwrap(), b"before");
    let edges = reader.edges(root).unwrap();
    assert_eq!((edges.len(), edges[0].to), (1, then));
    assert_eq!(reader.edge(root, etype, Info::Number(2)).unwrap(), None);
    reader.commit().unwrap();
    refused(reader.read_node(then, TEXT), Refusal::NoSuchId);
    assert_eq!(reader.edge(root, etype, Info::Number(1)).unwrap(), None);
    assert!(reader.edge(root, etype, Info::Number(2)).unwrap().is_some());
}

#[test]
fn an_id_that_was_got_of_what_had_gone_already_ends_with_its_transaction() {
    let store = store();
    let etype = next(&store);
    put(&mut as_superuser(&store), etype, 1, b"first");
    let mut reader = as_superuser(&store);
    reader.begin().unwrap();
    let root = reader.root();
    assert_eq!(reader.edge(root, etype, Info::Number(7)).unwrap(), None);
    let mut tx = store.begin();
    let here = store.root(SnodeId::FIRST).unwrap();
    let place = tx.delete_edge(here, etype, Info::Number(1)).unwrap();
    tx.commit().unwrap();
    // Another node comes to its place.
    let mut taken = NodeId(0);
    for number in 2..2000 {
        let mut tx = store.begin();
        taken = tx.create_node(SnodeId::FIRST, TEXT, b"other").unwrap();
        tx.create_edge(here, etype, Info::Number(number), taken).unwrap();
        tx.commit().unwrap();
        if taken == place {
            break;
        }
    }
    assert_eq!(taken, place, "the place was not used again");
    let late = reader.edge(root, etype, Info::Number(1)).unwrap().unwrap();
    assert_eq!(reader.edges(root).unwrap()[0].to, late);
    assert_eq!(reader.read_node(late, TEXT).unwrap(), b"first");
    reader.abort().unwrap();
    refused(reader.read_node(late, TEXT), Refusal::NoSuchId);
}

/// An s-node of its own with an edge from the root.
fn put_home(session: &mut Session<'_>, etype: EdgeType, number: u64) -> SessionNode {
    session.begin().unwrap();
    let home = session.create_snode(SnodeTags::default()).unwrap();
    session.create_edge(session.root(), etype, Info::Number(number), home).unwrap();
    session.commit().unwrap();
    home
}

#[test]
fn the_id_of_a_new_node_is_valid_at_once_whatever_was_freed_at_its_place_since_the_transaction_read() {
    let store = store();
    let etype = next(&store);
    let (mut one, mut other) = (as_superuser(&store), as_superuser(&store));
    put(&mut one, etype, 0, b"read");
    let [home, read] = [1, 2].map(|number| put_home(&mut one, etype, number));
    let root = one.root();
    // Its own, undone.
    one.begin().unwrap();
    one.edge(root, etype, Info::Number(0)).unwrap().unwrap();
    let savepoint = one.savepoint().unwrap();
    let undone = one.create_node(root, TEXT, b"undone").unwrap();
    one.undo_to(savepoint).unwrap();
    let node = one.create_node(root, TEXT, b"stays").unwrap();
    refused(one.read_node(undone, TEXT), Refusal::NoSuchId);
    one.append(node, TEXT, b"!").unwrap();
    one.create_edge(root, etype, Info::Number(3), node).unwrap();
    one.commit().unwrap();
    assert_eq!(one.read_node(node, TEXT).unwrap(), b"stays!");
    // Those of others: deleted by a commit, or made and aborted.
    let other_home = other.edge(other.root(), etype, Info::Number(1)).unwrap().unwrap();
    for is_committed in [true, false] {
        other.begin().unwrap();
        let gone = other.create_node(other_home, TEXT, b"gone").unwrap();
        if is_committed {
            other.create_edge(other_home, etype, Info::Number(0), gone).unwrap();
            other.commit().unwrap();
        }
        one.begin().unwrap();
        one.edges(read).unwrap();
        if is_committed {
            other.begin().unwrap();
            other.delete_edge(other_home, etype, Info::Number(0)).unwrap();
            other.commit().unwrap();
        } else {
            other.abort().unwrap();
        }
        let node = one.create_node(home, TEXT, b"of one").unwrap();
        one.set_edge(home, etype, Info::Number(1), node).unwrap();
        assert_eq!(one.read_node(node, TEXT).unwrap(), b"of one");
        one.commit().unwrap();
    }
}

#[test]
fn a_node_of_the_snapshot_and_a_later_one_in_its_place_have_different_ids() {
    let store = store();
    let etype = next(&store);
    let mut one = as_superuser(&store);
    let home = put_home(&mut one, etype, 1);
    let snode = *store.snodes().unwrap().last().unwrap();
    // The store's own process leads an edge into the midst of an s-node.
    let mut tx = store.begin();
    let old = tx.create_node(snode, TEXT, b"old").unwrap();
    tx.create_edge(root(&store), etype, Info::Number(2), old).unwrap();
    tx.commit().unwrap();
    one.begin().unwrap();
    assert_eq!(one.edge(one.root(), etype, Info::Number(9)).unwrap(), None);
    let mut tx = store.begin();
    tx.delete_edge(root(&store), etype, Info::Number(2)).unwrap();
    tx.commit().unwrap();
    let savepoint = one.savepoint().unwrap();
    let new = one.create_node(home, TEXT, b"new").unwrap();
    one.undo_to(savepoint).unwrap();
    let seen = one.edge(one.root(), etype, Info::Number(2)).unwrap().unwrap();
    assert_ne!(seen, new);
    let kept = one.create_node(home, TEXT, b"kept").unwrap();
    assert_ne!(kept, seen);
    assert_eq!(one.edge(one.root(), etype, Info::Number(2)).unwrap(), Some(seen));
    assert_eq!(one.read_node(kept, TEXT).unwrap(), b"kept");
    refused(one.update_node(seen, TEXT, b"no more"), Refusal::Deadlock);
}

#[test]
fn what_others_free_in_s_nodes_that_were_not_read_counts_against_no_transaction() {
    let store = store();
    let etype = next(&store);
    let mut one = as_superuser(&store);
    let [home, theirs] = [1, 2].map(|number| put_home(&mut one, etype, number));
    assert_eq!(one.edges(one.root()).unwrap().len(), 2);
    let mut other = as_superuser(&store);
    let other_home = other.edge(other.root(), etype, Info::Number(2)).unwrap().unwrap();
    one.begin().unwrap();
    assert_eq!(one.edge(home, etype, Info::Number(0)).unwrap(), None);
    other.begin().unwrap();
    (0..17_000).for_each(|_| _ = other.create_node(other_home, TEXT, b"n").unwrap());
    other.abort().unwrap();
    for _ in 0..17 {
        other.begin().unwrap();
        let nodes: Vec<_> = (0..1_000).map(|_| other.create_node(other_home, TEXT, b"n").unwrap()).collect();
        for (number, node) in nodes.iter().enumerate() {
            other.create_edge(other_home, etype, Info::Number(number as u64), *node).unwrap();
        }
        other.commit().unwrap();
        other.begin().unwrap();
        for number in 0..nodes.len() {
            other.delete_edge(other_home, etype, Info::Number(number as u64)).unwrap();
        }
        other.commit().unwrap();
    }
    let node = one.create_node(home, TEXT, b"x").unwrap();
    one.create_edge(home, etype, Info::Number(0), node).unwrap();
    one.commit().unwrap();
    assert!(one.edges(theirs).unwrap().is_empty());
}

#[test]
fn changes_that_follow_from_what_others_have_changed_meanwhile_are_refused() {
    let store = store();
    let etype = next(&store);
    let mut one = as_superuser(&store);
    let a = put(&mut one, etype, 1, b"0");
    one.begin().unwrap();
    let home = one.create_snode(SnodeTags::default()).unwrap();
    let b = one.create_node(home, TEXT, b"0").unwrap();
    one.create_edge(home, etype, Info::Number(1), b).unwrap();
    one.create_edge(one.root(), etype, Info::Number(2), home).unwrap();
    one.commit().unwrap();
    let mut other = as_superuser(&store);
    let other_a = other.edge(other.root(), etype, Info::Number(1)).unwrap().unwrap();
    let other_home = other.edge(other.root(), etype, Info::Number(2)).unwrap().unwrap();
    let other_b = other.edge(other_home, etype, Info::Number(1)).unwrap().unwrap();
    // What it is about to change has changed since it was read.
    one.begin().unwrap();
    assert_eq!(one.read_node(a, TEXT).unwrap(), b"0");
    other.begin().unwrap();
    other.update_node(other_a, TEXT, b"1").unwrap();
    other.commit().unwrap();
    refused(one.update_node(a, TEXT, b"0 and more"), Refusal::Deadlock);
    one.abort().unwrap();
    // Each reads what the other changes: one of them has to begin again.
    for (session, from, to) in [(&mut one, a, b), (&mut other, other_b, other_a)] {
        session.begin().unwrap();
        let seen = session.read_node(from, TEXT).unwrap();
        session.update_node(to, TEXT, &[&seen[..], b"+"].concat()).unwrap();
    }
    let outcomes = std::thread::scope(|scope| {
        let one = scope.spawn(|| one.commit().is_ok());
        [other.commit().is_ok(), one.join().unwrap()]
    });
    assert!(outcomes.iter().filter(|is_done| **is_done).count() <= 1, "{outcomes:?}");
}

/// Who leads an edge to an s-node holds that one too, and changes nothing of it where another edge to the same node goes.
#[test]
fn an_s_node_to_which_others_lead_edges_meanwhile_has_not_changed() {
    let store = store();
    let etype = next(&store);
    let mut one = as_superuser(&store);
    one.begin().unwrap();
    let home = one.create_snode(SnodeTags::default()).unwrap();
    one.create_edge(one.root(), etype, Info::Number(2), home).unwrap();
    one.commit().unwrap();
    let mut other = as_superuser(&store);
    let other_home = other.edge(other.root(), etype, Info::Number(2)).unwrap().unwrap();
    one.begin().unwrap();
    assert!(one.edges(home).unwrap().is_empty());
    other.begin().unwrap();
    other.delete_edge(other.root(), etype, Info::Number(2)).unwrap();
    other.set_edge(other.root(), etype, Info::Number(3), other_home).unwrap();
    other.commit().unwrap();
    let node = one.create_node(home, TEXT, b"of what was read").unwrap();
    one.create_edge(home, etype, Info::Number(1), node).unwrap();
    one.commit().unwrap();
}

#[test]
fn a_transaction_ends_at_its_limit_and_the_next_call_says_so() {
    let store = store();
    let etype = next(&store);
    let node = put(&mut as_superuser(&store), etype, 1, b"before");
    let limits = SessionLimits { transaction: Duration::from_millis(30), ..LONG };
    let mut session = store.open_session(root(&store), Credentials::superuser(0), limits).unwrap();
    refused(session.read_node(node, TEXT), Refusal::NoSuchId);
    let node = session.edge(session.root(), etype, Info::Number(1)).unwrap().unwrap();
    for call in 0..4 {
        session.begin().unwrap();
        session.update_node(node, TEXT, b"never").unwrap();
        std::thread::sleep(Duration::from_millis(40));
        let error = match call {
            0 => session.commit().map(drop),
            1 => session.begin(),
            2 => session.read_node(node, TEXT).map(drop),
            _ => session.update_node(node, TEXT, b"never"),
        };
        assert!(error.as_ref().unwrap_err().to_string().contains("30 ms"), "{error:?}");
        refused(error, Refusal::TransactionEnded);
        refused(session.commit(), Refusal::NoTransaction);
        assert_eq!(session.read_node(node, TEXT).unwrap(), b"before");
    }
    // Nor does it wait for others beyond its limit.
    let mut holder = store.begin();
    holder.root(SnodeId::FIRST).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            session.begin().unwrap();
            refused(session.update_node(node, TEXT, b"never"), Refusal::Deadlock);
            refused(session.commit(), Refusal::TransactionEnded);
        });
    });
}

/// A medium whose reads take a while, once it is said so, and are counted.
struct Slow(Arc<MemoryStore>, Arc<AtomicU64>);

impl PageStore for Slow {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        if self.1.load(Relaxed) > 0 {
            self.1.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.grow(blocks)
    }
}

/// Edges out of the root of a slow store, in some two hundred pages.
const SLOW_EDGES: u64 = 50_000;

/// A store on a slow medium whose root has many edges, none of them in the cache, and the reads that it has made.
fn slow() -> (Arc<Store>, Arc<AtomicU64>) {
    let medium = Arc::new(MemoryStore::new());
    let options = Options { cache_bytes: 1 << 20, journal_bytes: 8 << 20, ..Options::default() };
    let large = Options { cache_bytes: 64 << 20, ..options.clone() };
    let store = Store::create(Box::new(medium.clone()), &large).unwrap();
    let (etype, root) = (next(&store), root(&store));
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, TEXT, b"").unwrap();
    (0..SLOW_EDGES).for_each(|number| tx.create_edge(root, etype, Info::Number(number), node).unwrap());
    tx.commit().unwrap();
    store.close().unwrap();
    let reads = Arc::new(AtomicU64::new(0));
    (Arc::new(Store::open(Box::new(Slow(medium, reads.clone())), &options).unwrap()), reads)
}

#[test]
fn a_list_of_edges_ends_with_the_limit_of_its_transaction() {
    for has_changed in [false, true] {
        let (store, reads) = slow();
        let limits = SessionLimits { transaction: Duration::from_millis(100), ..LONG };
        let mut session = store.open_session(root(&store), Credentials::superuser(0), limits).unwrap();
        session.begin().unwrap();
        if has_changed {
            session.create_node(session.root(), TEXT, b"mine").unwrap();
        }
        reads.store(1, Relaxed);
        refused(session.edges(session.root()), Refusal::TransactionEnded);
        assert!(reads.load(Relaxed) < 100, "{reads:?}");
        refused(session.commit(), Refusal::NoTransaction);
        reads.store(0, Relaxed);
        assert_eq!(session.edges(session.root()).unwrap().len() as u64, SLOW_EDGES);
    }
}

#[test]
fn a_list_of_edges_ends_with_its_client_and_with_the_server() {
    for client_goes in [true, false] {
        let (store, reads) = slow();
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("s");
        let server = SessionServer::start(store.clone(), &path, SessionSetup::new(root(&store))).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(&frame(&[1])).unwrap();
        let mut root = [0; 13];
        client.read_exact(&mut root).unwrap();
        root[4] = 15;
        client.write_all(&frame(&root[4..])).unwrap();
        reads.store(1, Relaxed);
        while reads.load(Relaxed) < 3 {
            std::thread::yield_now();
        }
        let client = Some(client).filter(|_| !client_goes);
        if client_goes {
            // Its thread has ended, and nobody else has the store.
            while Arc::strong_count(&store) > 2 {
                std::thread::yield_now();
            }
        }
        drop(server);
        assert!(reads.load(Relaxed) < 100, "{reads:?}");
        drop(client);
    }
}

#[test]
fn any_bytes_get_an_answer() {
    let store = store();
    let mut session = as_superuser(&store);
    assert_eq!(session.answer(&[])[0], Refusal::BadRequest as u8);
    assert_eq!(session.answer(&[99])[0], Refusal::BadRequest as u8);
    assert_eq!(session.answer(&[2])[0], 0);
    assert_eq!(session.answer(&[24])[0], 0);
    assert_eq!(session.answer(&[2])[0], Refusal::Ended as u8);
}

/// A frame as it goes over the socket.
fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

#[test]
fn a_client_that_sends_nothing_or_half_a_request_loses_its_connection_and_an_idle_session_stays() {
    let request = Duration::from_millis(100);
    let (scratch, _store, _server) = serve(|setup| setup.limits = SessionLimits { request, ..LONG });
    let path = scratch.path().join("s");
    let mut idle = RemoteSession::connect(&path).unwrap();
    let mut half = hold_raw(&path).unwrap();
    // The answer to what made the node.
    half.read_exact(&mut [0; 13]).unwrap();
    half.write_all(&frame(&[2; 100])[..50]).unwrap();
    for mut client in [UnixStream::connect(&path).unwrap(), half] {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert_eq!(said[4], Refusal::Ended as u8);
    }
    std::thread::sleep(2 * request);
    idle.edges(idle.root()).unwrap();
}

/// What a hostile client does with one connection, or more of them, until `ended`.
type Hostile = fn(&Path, EdgeType, &AtomicBool) -> Option<()>;

/// Begins a transaction that holds the first s-node.
fn hold(path: &Path) -> Option<RemoteSession> {
    let mut session = RemoteSession::connect(path).ok()?;
    session.begin().ok()?;
    session.create_node(session.root(), TEXT, b"held").ok()?;
    Some(session)
}

/// A connection as it is, with a transaction that holds the first s-node.
fn hold_raw(path: &Path) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(path).ok()?;
    let mut answer = [0; 13];
    stream.write_all(&frame(&[1])).ok()?;
    stream.read_exact(&mut answer).ok()?;
    stream.write_all(&frame(&[2])).ok()?;
    stream.read_exact(&mut [0; 5]).ok()?;
    // A node without data beside the root.
    let create = [&[7], &answer[5..], &1u32.to_le_bytes()[..], &0u32.to_le_bytes()[..]].concat();
    stream.write_all(&frame(&create)).ok()?;
    Some(stream)
}

const HOSTILE: [Hostile; 7] = [
    // Idle, with what it holds.
    |path, _, ended| {
        let _session = hold(path)?;
        while !ended.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    },
    // In a loop without a commit.
    |path, etype, ended| {
        let mut session = RemoteSession::connect(path).ok()?;
        while !ended.load(Relaxed) {
            session.begin().ok()?;
            let root = session.root();
            while let Ok(node) = session.create_node(root, TEXT, &[1; 300]) {
                session.set_edge(root, etype, Info::Number(1), node).ok()?;
                if ended.load(Relaxed) {
                    return None;
                }
            }
            // Where it waited in vain the transaction is still there.
            session
                .abort()
                .or_else(|error| if error.refusal == Refusal::Ended { Err(error) } else { Ok(()) })
                .ok()?;
        }
        None
    },
    // Slow: a byte now and then.
    |path, _, ended| {
        let mut stream = hold_raw(path)?;
        for byte in frame(&[0; 500]) {
            stream.write_all(&[byte]).ok()?;
            std::thread::sleep(Duration::from_millis(20));
            if ended.load(Relaxed) {
                return None;
            }
        }
        Some(())
    },
    // Half a message, and then nothing.
    |path, _, ended| {
        let mut stream = hold_raw(path)?;
        stream.write_all(&(1u32 << 20).to_le_bytes()).ok()?;
        stream.write_all(&[2; 1000]).ok()?;
        while !ended.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    },
    // Takes no answers.
    |path, _, ended| {
        let mut stream = hold_raw(path)?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
        let name = [&[16, 0], &4u32.to_le_bytes()[..], b"next"].concat();
        while stream.write_all(&frame(&name)).is_ok() && !ended.load(Relaxed) {}
        std::thread::sleep(Duration::from_millis(200));
        Some(())
    },
    // Killed in a transaction.
    |path, _, _| {
        drop(hold(path)?);
        Some(())
    },
    // Lists edges, and makes them anew in the order of the listing.
    |path, etype, _| {
        let mut session = RemoteSession::connect(path).ok()?;
        let edges = session.edges(session.root()).ok()?;
        let copy = session.edge_type("copy", InfoForm::Number).ok()?;
        let other = if edges.iter().any(|edge| edge.etype == copy) { etype } else { copy };
        for group in edges.chunks(200) {
            session.begin().ok()?;
            for edge in group {
                let Some(number) = edge.number else { continue };
                session.delete_edge(session.root(), edge.etype, Info::Number(number)).ok()?;
                session.set_edge(session.root(), other, Info::Number(number), edge.to).ok()?;
            }
            session.commit().ok()?;
        }
        Some(())
    },
];

/// The s-node of an honest client, wherever the edge to it has been put: in one state it is there once.
fn home(session: &mut RemoteSession, types: [EdgeType; 2], number: u64) -> Result<SessionNode, SessionError> {
    session.begin()?;
    let root = session.root();
    let found = [
        session.edge(root, types[0], Info::Number(number))?,
        session.edge(root, types[1], Info::Number(number))?,
    ];
    session.abort()?;
    let ([Some(home), None] | [None, Some(home)]) = found else { panic!("{number} is at {found:?}") };
    Ok(home)
}

/// An honest client: reads what the others change, and changes what is its own. Begins again where it was refused for the time that it
/// took, as the machine may be busy, or for the memory that states take; never for a lock.
fn be_honest(path: &Path, types: [EdgeType; 2], number: u64, steps: u64) {
    let mut done = 0;
    while done < steps {
        let mut session = RemoteSession::connect(path).unwrap();
        let mut work = || -> Result<(), SessionError> {
            let at = home(&mut session, types, number)?;
            while done < steps {
                assert!(session.edges(session.root())?.len() >= 500);
                session.begin()?;
                assert_eq!(session.edges(at)?.len() as u64, done, "what was committed is there");
                let node = session.create_node(at, TEXT, &done.to_le_bytes())?;
                session.create_edge(at, types[0], Info::Number(done), node)?;
                session.commit()?;
                done += 1;
            }
            Ok(())
        };
        if let Err(error) = work() {
            // A state that is read is kept as long as there is memory for what has changed since.
            let is_lost = error.refusal == Refusal::Deadlock && error.to_string().contains("is kept for it");
            assert!(
                is_lost || matches!(error.refusal, Refusal::Ended | Refusal::TransactionEnded),
                "{error}"
            );
        }
    }
}

#[test]
fn hostile_sessions_neither_stop_the_store_nor_those_who_work_beside_them() {
    let (hostile, honest, steps) =
        if std::env::var_os("WEFT_CAMPAIGN").is_some() { (1_000, 8, 1_000) } else { (42, 3, 100) };
    let options = Options { cache_bytes: 16 << 20, journal_bytes: 4 << 20, ..Options::default() };
    let store = Arc::new(Store::create(Box::new(MemoryStore::new()), &options).unwrap());
    let types = [next(&store), store.edge_type("copy", InfoForm::Number).unwrap()];
    let mut tx = store.begin();
    for number in 10..510 {
        let to = if number < 10 + honest {
            let snode = tx.create_snode(&SnodeTags::default()).unwrap();
            tx.root(snode).unwrap()
        } else {
            tx.create_node(SnodeId::FIRST, TEXT, &[2; 100]).unwrap()
        };
        tx.create_edge(root(&store), types[0], Info::Number(number), to).unwrap();
    }
    tx.commit().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s");
    let setup = SessionSetup {
        limits: SessionLimits {
            idle: Duration::from_secs(3),
            transaction: Duration::from_millis(500),
            ..LONG
        },
        connections_max: 2 * hostile + honest as usize,
        durability: Durability::None,
        ..SessionSetup::new(root(&store))
    };
    let server = SessionServer::start(store.clone(), &path, setup).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in 0..hostile {
            let (path, ended, act) = (&path, &ended, HOSTILE[at % HOSTILE.len()]);
            scope.spawn(move || {
                while !ended.load(Relaxed) {
                    act(path, types[0], ended);
                }
            });
        }
        let clients: Vec<_> = (0..honest)
            .map(|client| {
                scope.spawn({
                    let path = &path;
                    move || be_honest(path, types, 10 + client, steps)
                })
            })
            .collect();
        // Where all the others are: whoever holds the s-node when this one comes has to end within its limit, far below that of a wait.
        let writer = scope.spawn(|| {
            for number in 0..steps / 20 {
                let mut tx = store.begin();
                let node = tx.create_node(SnodeId::FIRST, TEXT, b"written")?;
                tx.set_edge(root(&store), types[0], Info::Number(1_000 + number), node)?;
                tx.durability(Durability::None);
                tx.commit()?;
            }
            Ok::<_, weft_tags::Error>(())
        });
        let mut outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        outcomes.push(writer.join().map(Result::unwrap));
        ended.store(true, Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    drop(server);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    let numbers: BTreeSet<_> =
        store.edges(root(&store)).unwrap().iter().filter_map(|edge| edge.number).collect();
    assert!(
        (10..510).chain(1_000..1_000 + steps / 20).all(|number| numbers.contains(&number)),
        "{numbers:?}"
    );
}
