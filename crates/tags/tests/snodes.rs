//! S-nodes: made and deleted in transactions, their tags, who may do what in them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_tags::{
    Credentials, DataClass, EdgeRule, EdgeType, Error, Info, InfoForm, MemoryStore, NodeId, NodeType,
    Options, Permission, Principal, SnodeId, SnodeTags, Store, TagFlags, Transaction,
};

const TEXT: NodeType = NodeType(3);

fn options() -> Options {
    Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() }
}

fn created() -> (Arc<MemoryStore>, Store, EdgeType) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    (medium, store, etype)
}

fn owned(owner: u32, mode: u16) -> SnodeTags {
    SnodeTags { owner, group: 100, mode, ..SnodeTags::default() }
}

/// A committed s-node with these tags, and a node that its root leads to.
fn with_node(store: &Store, etype: EdgeType, tags: &SnodeTags) -> (SnodeId, NodeId) {
    let mut tx = store.begin();
    let snode = tx.create_snode(tags).unwrap();
    let node = tx.create_node(snode, TEXT, b"text").unwrap();
    let root = tx.root(snode).unwrap();
    tx.create_edge(root, etype, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    (snode, node)
}

fn check(store: &Store) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn an_s_node_is_there_from_its_commit_to_the_commit_of_its_deletion() {
    let (medium, mut store, etype) = created();
    let tags =
        SnodeTags { owner: 7, group: 8, mode: 0o640, class: DataClass::Log, flags: TagFlags::SECURE_DELETE };
    let mut tx = store.begin();
    let snode = tx.create_snode(&tags).unwrap();
    assert_eq!(store.snodes().unwrap(), [SnodeId::FIRST]);
    assert!(matches!(store.root(snode), Err(Error::NoSuchSnode(_))));
    assert!(matches!(store.begin().root(snode), Err(Error::NoSuchSnode(_))), "another transaction");
    assert_eq!(tx.snode_tags(snode).unwrap(), tags);
    tx.commit().unwrap();
    let (other, node) = with_node(&store, etype, &owned(1, 0));
    for step in 0..3 {
        assert_eq!(store.snodes().unwrap(), [SnodeId::FIRST, snode, other]);
        assert_eq!(store.snode_tags(snode).unwrap(), tags);
        assert_eq!(store.read_node(node, TEXT).unwrap(), b"text");
        check(&store);
        // After a crash, from the journal; after a close, from the checkpoint.
        if step == 1 {
            store.close().unwrap();
        } else {
            drop(store);
        }
        store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    }
    let mut tx = store.begin();
    tx.delete_snode(snode).unwrap();
    assert!(matches!(tx.root(snode), Err(Error::NoSuchSnode(_))));
    assert!(store.root(snode).is_ok(), "not committed yet");
    tx.commit().unwrap();
    for step in 0..3 {
        assert_eq!(store.snodes().unwrap(), [SnodeId::FIRST, other]);
        assert!(matches!(store.snode_tags(snode), Err(Error::NoSuchSnode(_))));
        check(&store);
        if step == 1 {
            store.close().unwrap();
        } else {
            drop(store);
        }
        store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    }
}

#[test]
fn an_s_node_with_nodes_or_edges_stays_and_an_empty_one_leaves_no_page_behind() {
    let (_, store, etype) = created();
    store.checkpoint().unwrap();
    let before = store.report();
    let (snode, node) = with_node(&store, etype, &owned(1, 0o666));
    let (root, first) = (store.root(snode).unwrap(), store.root(SnodeId::FIRST).unwrap());
    let refused =
        |tx: &mut Transaction<'_>| assert!(matches!(tx.delete_snode(snode), Err(Error::SnodeNotEmpty(_))));
    let mut tx = store.begin();
    assert!(matches!(tx.delete_snode(SnodeId::FIRST), Err(Error::FirstSnode)));
    refused(&mut tx);
    for (from, to) in [(first, root), (root, first), (root, root), (first, node), (node, node)] {
        let savepoint = tx.savepoint();
        tx.delete_edge(root, etype, Info::Number(0)).unwrap();
        tx.create_edge(from, etype, Info::Number(1), to).unwrap();
        refused(&mut tx);
        tx.undo_to(savepoint).unwrap();
    }
    tx.delete_edge(root, etype, Info::Number(0)).unwrap();
    // A large node, and so many edges that they have a table of their own.
    for number in 0..500 {
        let node = tx.create_node(snode, TEXT, &vec![1; if number == 0 { 10_000 } else { 100 }]).unwrap();
        tx.create_edge(root, etype, Info::Number(number), node).unwrap();
    }
    tx.commit().unwrap();
    assert!(store.report().table_pages > before.table_pages + 3);
    let mut tx = store.begin();
    for number in 0..500 {
        tx.delete_edge(root, etype, Info::Number(number)).unwrap();
    }
    let garbage = tx.create_node(snode, TEXT, b"of no use").unwrap();
    tx.delete_snode(snode).unwrap();
    assert!(matches!(tx.read_node(garbage, TEXT), Err(Error::NoSuchNode(_))));
    assert!(matches!(tx.create_node(snode, TEXT, b""), Err(Error::NoSuchSnode(_))));
    assert!(matches!(tx.create_edge(first, etype, Info::Number(1), root), Err(Error::NoSuchNode(_))));
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    let after = store.report();
    assert_eq!((after.data_pages, after.table_pages), (before.data_pages, before.table_pages));
    assert_eq!(after.medium_bytes - after.free_bytes, before.medium_bytes - before.free_bytes);
    assert!(matches!(store.read_node(node, TEXT), Err(Error::NoSuchNode(_))));
    check(&store);
}

#[test]
fn an_s_node_of_an_aborted_or_undone_transaction_was_never_there() {
    let (_, store, etype) = created();
    let before = store.report();
    let mut tx = store.begin();
    let savepoint = tx.savepoint();
    let undone = tx.create_snode(&owned(1, 0o600)).unwrap();
    let root = tx.root(undone).unwrap();
    let node = tx.create_node(undone, TEXT, b"x").unwrap();
    tx.create_edge(root, etype, Info::Number(0), node).unwrap();
    tx.undo_to(savepoint).unwrap();
    assert!(matches!(tx.root(undone), Err(Error::NoSuchSnode(_))));
    let aborted = tx.create_snode(&owned(1, 0o600)).unwrap();
    assert_ne!(aborted, undone, "the id rests while this transaction may know it");
    tx.create_node(aborted, TEXT, &[1; 9_000]).unwrap();
    tx.abort();
    let mut tx = store.begin();
    let both = tx.create_snode(&owned(1, 0o600)).unwrap();
    tx.delete_snode(both).unwrap();
    tx.commit().unwrap();
    let after = store.report();
    assert_eq!(store.snodes().unwrap(), [SnodeId::FIRST]);
    assert_eq!((after.data_pages, after.table_pages), (before.data_pages, before.table_pages));
    check(&store);
}

#[test]
fn permissions_that_are_taken_back_do_not_keep_an_s_node_from_going() {
    let (_, store, etype) = created();
    let (snode, _) = with_node(&store, etype, &owned(1, 0o666));
    let root = store.root(snode).unwrap();
    let wanted = store.grants(snode).unwrap().len();
    let mut tx = store.begin();
    tx.delete_edge(root, etype, Info::Number(0)).unwrap();
    for (taken, (principal, permission)) in store.grants(snode).unwrap().into_iter().enumerate() {
        tx.revoke(snode, principal, permission).unwrap();
        let savepoint = tx.savepoint();
        tx.delete_snode(snode).unwrap_or_else(|error| panic!("{taken} of {wanted} taken back: {error}"));
        tx.undo_to(savepoint).unwrap();
    }
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    check(&store);
}

#[test]
fn who_waits_for_an_s_node_that_is_deleted_meanwhile_is_told_that_it_is_gone() {
    let (_, store, etype) = created();
    let (snode, _) = with_node(&store, etype, &owned(1, 0));
    let root = store.root(snode).unwrap();
    let mut tx = store.begin();
    tx.delete_edge(root, etype, Info::Number(0)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.begin().create_node(snode, TEXT, b"late"));
        tx.delete_snode(snode).unwrap();
        tx.commit().unwrap();
        // Whether it waited or came too late altogether, it has to hear the same.
        assert!(matches!(waiting.join().unwrap(), Err(Error::NoSuchSnode(_))));
    });
}

/// What a caller may do in an s-node, as the mode for everyone.
const NOTHING: u16 = 0;
const READ: u16 = 0o004;
const WRITE: u16 = 0o002;
const BOTH: u16 = 0o006;

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Cell {
    Made,
    /// The destination is in another s-node and not its root.
    NotARoot,
    /// The caller may do something there, but not this.
    Forbidden,
    /// The caller may do nothing there, and is not told that there is anything.
    Unknown,
}
use Cell::{Forbidden, Made, NotARoot, Unknown};

fn try_edge(store: &Store, caller: &Credentials, etype: EdgeType, from: NodeId, to: NodeId) -> Cell {
    let outcomes = [false, true].map(|sets| {
        let mut tx = store.begin_as(caller);
        let made = if sets {
            tx.set_edge(from, etype, Info::Number(9), to).map(drop)
        } else {
            tx.create_edge(from, etype, Info::Number(9), to)
        };
        match made {
            Ok(()) => Made,
            Err(Error::NotARoot(node)) if node == to => NotARoot,
            Err(Error::Forbidden { needed: Permission::Write, .. }) => Forbidden,
            Err(Error::NoSuchNode(_)) => Unknown,
            Err(error) => panic!("{error}"),
        }
    });
    assert_eq!(outcomes[0], outcomes[1], "made anew, and led elsewhere");
    outcomes[0]
}

fn someone() -> Credentials {
    Credentials::user(55, &[66])
}

#[test]
fn every_cell_of_table_3_5_1_of_adapt_holds_for_whoever_may_write_the_source() {
    let (_, store, etype) = created();
    // Rows: from s-node A, s-node B, A's nodes, B's nodes; columns likewise.
    let table = [
        [Made, Made, Made, NotARoot],
        [Made, Made, NotARoot, Made],
        [Made, Made, Made, NotARoot],
        [Made, Made, NotARoot, Made],
    ];
    for (a_mode, b_mode) in [(WRITE, WRITE), (BOTH, BOTH), (BOTH, WRITE)] {
        let (a, in_a) = with_node(&store, etype, &owned(1, a_mode));
        let (b, in_b) = with_node(&store, etype, &owned(1, b_mode));
        let places = [store.root(a).unwrap(), store.root(b).unwrap(), in_a, in_b];
        for (from, row) in places.into_iter().zip(table) {
            for (to, wanted) in places.into_iter().zip(row) {
                // The table makes no exception for those who may do everything.
                for caller in [someone(), Credentials::superuser(5)] {
                    assert_eq!(try_edge(&store, &caller, etype, from, to), wanted, "{from} to {to}");
                }
                store.begin().create_edge(from, etype, Info::Number(9), to).unwrap();
            }
        }
    }
}

#[test]
fn under_the_table_of_adapt_a_root_asks_for_no_permission_and_the_source_for_writing() {
    let (_, store, etype) = created();
    let table = [(NOTHING, Unknown), (READ, Forbidden), (WRITE, Made), (BOTH, Made)];
    for (source, wanted) in table {
        let (a, in_a) = with_node(&store, etype, &owned(1, source));
        for destination in [NOTHING, READ, WRITE, BOTH] {
            let (b, in_b) = with_node(&store, etype, &owned(1, destination));
            for from in [store.root(a).unwrap(), in_a] {
                let told = |to| try_edge(&store, &someone(), etype, from, to);
                assert_eq!(told(store.root(b).unwrap()), wanted, "{source:o} to a root of {destination:o}");
                let to_node = if wanted == Made { NotARoot } else { wanted };
                assert_eq!(told(in_b), to_node, "{source:o} to a node of {destination:o}");
                // Whether there is such a node is not said.
                assert_eq!(told(NodeId(in_b.0 + 512)), to_node);
                assert_eq!(told(in_a), wanted, "{source:o}, the same s-node");
            }
        }
    }
}

#[test]
fn an_edge_by_the_table_keeps_the_s_node_that_it_leads_to_and_can_be_taken_back() {
    let (_, store, etype) = created();
    let (_, from) = with_node(&store, etype, &owned(1, BOTH));
    let mut tx = store.begin();
    let to = tx.create_snode(&owned(1, NOTHING)).unwrap();
    let root = tx.root(to).unwrap();
    tx.commit().unwrap();
    let mut tx = store.begin_as(&someone());
    tx.create_edge(from, etype, Info::Number(9), root).unwrap();
    tx.commit().unwrap();
    assert!(matches!(store.begin().delete_snode(to), Err(Error::SnodeNotEmpty(_))));
    let mut tx = store.begin_as(&someone());
    // To follow it takes permission there.
    assert_eq!(tx.edge(from, etype, Info::Number(9)).unwrap(), Some(root));
    assert!(matches!(tx.edges(root), Err(Error::NoSuchNode(_))));
    tx.delete_edge(from, etype, Info::Number(9)).unwrap();
    tx.commit().unwrap();
    let mut tx = store.begin();
    tx.delete_snode(to).unwrap();
    tx.commit().unwrap();
    check(&store);
}

#[test]
fn every_cell_of_the_other_rule_for_edges_is_as_documented() {
    let medium = Arc::new(MemoryStore::new());
    let options = Options { edge_rule: EdgeRule::Writable, ..options() };
    let store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    drop(store);
    // The rule is the opener's.
    let store = Store::open(Box::new(medium), &options).unwrap();
    let permissions = [NOTHING, READ, WRITE, BOTH];
    // By the source's permissions, then by the destination's: the same s-node, then another with each of the permissions.
    let table = [
        [Unknown, Unknown, Unknown, Unknown, Unknown],
        [Forbidden, Forbidden, Forbidden, Forbidden, Forbidden],
        [Made, Unknown, Forbidden, Made, Made],
        [Made, Unknown, Forbidden, Made, Made],
    ];
    for (source, row) in permissions.into_iter().zip(table) {
        let (_, from) = with_node(&store, etype, &owned(1, source));
        let told = |to| try_edge(&store, &someone(), etype, from, to);
        assert_eq!(told(from), row[0], "{source:o}, the same s-node");
        for (destination, wanted) in permissions.into_iter().zip(&row[1..]) {
            let (snode, to) = with_node(&store, etype, &owned(1, destination));
            for to in [to, store.root(snode).unwrap()] {
                assert_eq!(told(to), *wanted, "{source:o} to {destination:o}");
                // Whoever may do everything, and the store's own process, are not asked.
                for mut tx in [store.begin(), store.begin_as(&Credentials::superuser(5))] {
                    tx.create_edge(from, etype, Info::Number(9), to).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_node_that_is_deleted_is_gone_inside_its_transaction() {
    let (_, store, etype) = created();
    let root = store.root(SnodeId::FIRST).unwrap();
    let (_, kept) = with_node(&store, etype, &owned(1, 0));
    let mut tx = store.begin();
    let old = tx.create_node(SnodeId::FIRST, TEXT, b"old").unwrap();
    tx.create_edge(root, etype, Info::Number(0), old).unwrap();
    tx.commit().unwrap();
    let gone = |tx: &mut Transaction<'_>, node: NodeId| {
        let all = [
            tx.read_node(node, TEXT).map(drop),
            tx.update_node(node, TEXT, b"new"),
            tx.delete_node(node, TEXT),
            tx.edges(node).map(drop),
            tx.edge(node, etype, Info::Number(0)).map(drop),
            tx.create_edge(node, etype, Info::Number(1), root),
            tx.create_edge(root, etype, Info::Number(1), node),
            tx.set_edge(root, etype, Info::Number(1), node).map(drop),
        ];
        for (at, result) in all.into_iter().enumerate() {
            assert!(matches!(result, Err(Error::NoSuchNode(found)) if found == node), "{at}: {result:?}");
        }
    };
    let mut tx = store.begin();
    assert!(matches!(tx.delete_node(old, TEXT), Err(Error::HasEdges(_))));
    assert!(matches!(tx.delete_node(kept, TEXT), Err(Error::HasEdges(_))));
    tx.delete_edge(root, etype, Info::Number(0)).unwrap();
    let new = tx.create_node(SnodeId::FIRST, TEXT, b"new").unwrap();
    for node in [old, new] {
        let savepoint = tx.savepoint();
        tx.delete_node(node, TEXT).unwrap();
        gone(&mut tx, node);
        tx.undo_to(savepoint).unwrap();
        tx.read_node(node, TEXT).unwrap();
        tx.delete_node(node, TEXT).unwrap();
        tx.forget(savepoint).unwrap();
        gone(&mut tx, node);
    }
    // Until the commit it is there for others.
    assert_eq!(store.read_node(old, TEXT).unwrap(), b"old");
    tx.commit().unwrap();
    for node in [old, new] {
        assert!(matches!(store.read_node(node, TEXT), Err(Error::NoSuchNode(_))));
    }
    check(&store);
}

#[test]
fn an_edge_type_without_edges_is_deleted_for_good_and_its_number_stays_unused() {
    let (medium, mut store, etype) = created();
    let root = store.root(SnodeId::FIRST).unwrap();
    let (_, node) = with_node(&store, etype, &owned(1, 0));
    let many = store.edge_type("many", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let at = tx.create_node(SnodeId::FIRST, TEXT, b"at").unwrap();
    // So many that they have a table of their own.
    (0..600).for_each(|n| tx.create_edge(root, many, Info::Number(n), at).unwrap());
    tx.commit().unwrap();
    let in_use = |store: &Store, etype, source| {
        let refused = store.delete_edge_type(etype).unwrap_err();
        assert!(
            matches!(refused, Error::EdgeTypeInUse { source_node, .. } if source_node == source),
            "{refused}"
        );
    };
    in_use(&store, etype, store.root(SnodeId::from(node.home())).unwrap());
    in_use(&store, many, root);
    assert!(matches!(store.delete_edge_type(EdgeType(99)), Err(Error::NoSuchEdgeType(_))));
    let kv = weft_tags::Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    kv.delete(b"nothing").unwrap();
    let own = store.edge_types().into_iter().find(|known| known.name == "weft.kv").unwrap();
    assert!(matches!(store.delete_edge_type(own.etype), Err(Error::ReservedName(_))));
    // What is about to get an edge when the type goes is refused whole.
    let mut tx = store.begin();
    (0..600).for_each(|n| _ = tx.delete_edge(root, many, Info::Number(n)).unwrap());
    tx.commit().unwrap();
    let snapshot_before = store.snapshot();
    let mut late = store.begin();
    let new = late.create_node(SnodeId::FIRST, TEXT, b"late").unwrap();
    late.create_edge(root, many, Info::Number(0), new).unwrap();
    late.create_edge(root, etype, Info::Number(77), new).unwrap();
    store.delete_edge_type(many).unwrap();
    assert!(matches!(late.commit(), Err(Error::NoSuchEdgeType(found)) if found == many));
    drop(snapshot_before);
    assert_eq!(store.edge(root, etype, Info::Number(77)).unwrap(), None);
    for step in 0..3 {
        assert!(matches!(store.edge(root, many, Info::Number(0)), Err(Error::NoSuchEdgeType(_))));
        assert!(matches!(store.delete_edge_type(many), Err(Error::NoSuchEdgeType(_))));
        assert!(store.edge_types().iter().all(|known| known.etype != many));
        check(&store);
        // After a crash, from the journal; after a close, from the checkpoint.
        if step == 1 {
            store.close().unwrap();
        } else {
            drop(store);
        }
        store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    }
    // The name is free, in any form; the number is not given out again.
    let again = store.edge_type("many", InfoForm::Key).unwrap();
    assert!(again > many);
    assert!(matches!(store.edge_type("", InfoForm::Number), Err(Error::ReservedName(_))));
}

/// Tries every operation; those that were refused for want of a permission.
fn refusals(
    store: &Store,
    etype: EdgeType,
    snode: SnodeId,
    node: NodeId,
    caller: &Credentials,
) -> Vec<&'static str> {
    let mut refused = Vec::new();
    let mut attempt =
        |what: &'static str, step: &dyn Fn(&mut Transaction<'_>) -> Result<(), Error>| match step(
            &mut store.begin_as(caller),
        ) {
            Ok(()) => {}
            Err(Error::Forbidden { .. } | Error::NoSuchNode(_) | Error::NoSuchSnode(_)) => refused.push(what),
            Err(error) => panic!("{what}: {error}"),
        };
    let root = store.root(snode).unwrap();
    let zero = Info::Number(0);
    attempt("read", &|tx| tx.read_node(node, TEXT).map(drop));
    attempt("follow", &|tx| tx.edge(root, etype, zero).map(drop));
    attempt("list", &|tx| tx.edges(root).map(drop));
    attempt("create", &|tx| tx.create_node(snode, TEXT, b"new").map(drop));
    attempt("update", &|tx| tx.update_node(node, TEXT, b"new"));
    attempt("link", &|tx| tx.create_edge(root, etype, Info::Number(5), node));
    attempt("relink", &|tx| tx.set_edge(root, etype, zero, root).map(drop));
    attempt("unlink", &|tx| tx.delete_edge(root, etype, zero).map(drop));
    attempt("delete", &|tx| match tx.delete_node(node, TEXT) {
        Err(Error::HasEdges(_)) => Ok(()),
        other => other,
    });
    attempt("tags", &|tx| tx.snode_tags(snode).map(drop));
    attempt("change tags", &|tx| tx.set_snode_tags(snode, &owned(9, 0)));
    attempt("grant", &|tx| tx.grant(snode, Principal::Everyone, Permission::Control));
    attempt("revoke", &|tx| tx.revoke(snode, Principal::Everyone, Permission::Read).map(drop));
    attempt("delete s-node", &|tx| match tx.delete_snode(snode) {
        Err(Error::SnodeNotEmpty(_)) => Ok(()),
        other => other,
    });
    refused
}

#[test]
fn each_operation_takes_its_permission_from_user_group_or_everyone() {
    let (_, store, etype) = created();
    let (snode, node) = with_node(&store, etype, &owned(1, 0o644));
    let refused = |caller: &Credentials| refusals(&store, etype, snode, node, caller);
    let reading = ["read", "follow", "list"];
    let writing = ["create", "update", "link", "relink", "unlink", "delete"];
    let control = ["change tags", "grant", "revoke", "delete s-node"];
    let no_write = [&writing[..], &control].concat();
    assert_eq!(refused(&Credentials::user(1, &[])), Vec::<&str>::new(), "the owner");
    assert_eq!(refused(&Credentials::superuser(77)), Vec::<&str>::new());
    assert_eq!(refused(&Credentials::user(2, &[])), no_write, "everyone");
    let mut tx = store.begin_as(&Credentials::user(1, &[]));
    tx.set_snode_tags(snode, &owned(1, 0o460)).unwrap();
    tx.grant(snode, Principal::User(4), Permission::Control).unwrap();
    tx.grant(snode, Principal::Group(5), Permission::Read).unwrap();
    tx.commit().unwrap();
    let nobody = [&reading[..], &writing, &["tags"], &control].concat();
    assert_eq!(refused(&Credentials::user(2, &[9])), nobody);
    assert_eq!(
        refused(&Credentials::user(1, &[])),
        writing,
        "the owner has taken its own permission to write"
    );
    assert_eq!(refused(&Credentials::user(2, &[99, 100])), control, "the group");
    assert_eq!(refused(&Credentials::user(2, &[5])), no_write);
    assert_eq!(refused(&Credentials::user(4, &[])), [&reading[..], &writing].concat());
    assert_eq!(refused(&Credentials::user(4, &[100])), Vec::<&str>::new(), "permissions add up");
    let mut tx = store.begin_as(&Credentials::user(4, &[]));
    assert!(tx.revoke(snode, Principal::Group(100), Permission::Write).unwrap());
    assert!(!tx.revoke(snode, Principal::Group(100), Permission::Write).unwrap());
    tx.commit().unwrap();
    assert_eq!(refused(&Credentials::user(2, &[100])), no_write);
    check(&store);
}

#[test]
fn a_permission_counts_at_once_in_its_transaction_and_not_after_it_is_undone() {
    let (_, store, etype) = created();
    let (snode, node) = with_node(&store, etype, &owned(1, 0));
    let mut tx = store.begin_as(&Credentials::user(1, &[]));
    assert!(matches!(tx.read_node(node, TEXT), Err(Error::Forbidden { needed: Permission::Read, .. })));
    let savepoint = tx.savepoint();
    tx.grant(snode, Principal::Everyone, Permission::Read).unwrap();
    assert_eq!(tx.read_node(node, TEXT).unwrap(), b"text");
    tx.undo_to(savepoint).unwrap();
    assert!(tx.read_node(node, TEXT).is_err());
    tx.revoke(snode, Principal::User(1), Permission::Control).unwrap();
    assert!(tx.grant(snode, Principal::Everyone, Permission::Read).is_err(), "it has given its control away");
}

#[test]
fn who_may_write_in_the_first_s_node_makes_s_nodes_that_are_its_own() {
    let (_, store, _) = created();
    let caller = Credentials::user(30, &[31]);
    assert!(matches!(store.begin_as(&caller).create_snode(&owned(30, 0)), Err(Error::NoSuchSnode(_))));
    let mut tx = store.begin();
    tx.grant(SnodeId::FIRST, Principal::Group(31), Permission::Write).unwrap();
    tx.commit().unwrap();
    let mut tx = store.begin_as(&caller);
    let snode = tx.create_snode(&owned(1, 0o600)).unwrap();
    tx.create_node(snode, TEXT, b"mine").unwrap();
    tx.commit().unwrap();
    assert_eq!(store.snode_tags(snode).unwrap().owner, 30);
    let wanted = Permission::ALL.map(|permission| (Principal::User(30), permission));
    assert_eq!(store.grants(snode).unwrap(), wanted);
    assert!(matches!(store.begin_as(&caller).delete_snode(SnodeId::FIRST), Err(Error::FirstSnode)));
    let mut tx = store.begin_as(&caller);
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    assert_eq!(store.snodes().unwrap(), [SnodeId::FIRST]);
    check(&store);
}

#[test]
fn the_stores_own_edges_and_nodes_are_out_of_reach_of_programs() {
    let (_, store, etype) = created();
    let (snode, _) = with_node(&store, etype, &owned(1, 0o666));
    let root = store.root(snode).unwrap();
    assert_eq!(store.edges(root).unwrap().len(), 1);
    assert_eq!(store.in_edges(root).unwrap(), 1, "the s-node holds it");
    let mut tx = store.begin();
    assert_eq!(tx.edges(root).unwrap().len(), 1);
    let stolen = EdgeType(u32::MAX);
    assert!(matches!(tx.edge(root, stolen, Info::Number(1)), Err(Error::NoSuchEdgeType(_))));
    assert!(matches!(tx.create_edge(root, stolen, Info::Number(1), root), Err(Error::NoSuchEdgeType(_))));
    assert!(matches!(tx.create_node(snode, NodeType::ROOT, b""), Err(Error::RootType)));
    assert!(matches!(tx.update_node(root, NodeType::ROOT, &[0; 32]), Err(Error::RootType)));
    let bad = SnodeTags { mode: 0o10000, ..SnodeTags::default() };
    assert!(matches!(tx.create_snode(&bad), Err(Error::BadOption { .. })));
    assert!(matches!(tx.set_snode_tags(snode, &bad), Err(Error::BadOption { .. })));
}
