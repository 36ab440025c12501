//! Lists of edges by parts: whoever goes through one sees each edge that is there all the time once, whatever comes and goes meanwhile.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_tags::{
    Direction, EdgePlace, EdgeType, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, PlacedEdge,
    SnodeId, Store, Transaction,
};

const KEYED: NodeType = NodeType(5 | NodeType::KEYED);

struct List {
    form: InfoForm,
    etype: EdgeType,
    root: NodeId,
}

impl List {
    fn new(store: &Store, form: InfoForm) -> List {
        let name = if form == InfoForm::Key { "by key" } else { "by number" };
        List { form, etype: store.edge_type(name, form).unwrap(), root: store.root(SnodeId::FIRST).unwrap() }
    }

    /// Calls `with` with the info of edge `n`.
    fn info<T>(&self, n: u64, with: impl FnOnce(Info<'_>) -> T) -> T {
        match self.form {
            InfoForm::Key => with(Info::Key(format!("name {n}").as_bytes())),
            InfoForm::Number => with(Info::Number(n)),
        }
    }

    fn put(&self, tx: &mut Transaction<'_>, n: u64) -> NodeId {
        let key = format!("name {n}");
        let data = [&(key.len() as u16).to_le_bytes()[..], key.as_bytes()].concat();
        let node = tx.create_node(SnodeId::FIRST, KEYED, &data).unwrap();
        self.info(n, |info| tx.create_edge(self.root, self.etype, info, node)).unwrap();
        node
    }

    fn delete(&self, tx: &mut Transaction<'_>, n: u64) {
        self.info(n, |info| tx.delete_edge(self.root, self.etype, info)).unwrap();
    }
}

/// Goes through a list by parts of up to `most`, and lets `between` happen after each.
fn go(
    direction: Direction,
    most: usize,
    mut part: impl FnMut(EdgePlace, usize) -> Vec<PlacedEdge>,
    mut between: impl FnMut(),
) -> Vec<NodeId> {
    let (mut seen, mut last): (Vec<NodeId>, Option<EdgePlace>) = (Vec::new(), None);
    let mut place = if direction == Direction::Up { EdgePlace::FIRST } else { EdgePlace::LAST };
    loop {
        let edges = part(place, most);
        assert!(edges.len() <= most);
        for edge in &edges {
            let is_behind = last.is_none_or(|last| (edge.place > last) == (direction == Direction::Up));
            assert!(is_behind, "in their order");
            last = Some(edge.place);
            seen.push(edge.edge.to);
        }
        let Some(end) = edges.last() else { return seen };
        place = if direction == Direction::Up { end.behind() } else { end.place };
        // A place can be kept as two words.
        place = EdgePlace::from_words(place.to_words());
        between();
    }
}

#[test]
fn every_edge_that_stays_is_seen_once() {
    for form in [InfoForm::Key, InfoForm::Number] {
        for (seed, count) in [0, 1, 10, 40, 300, 6_000].into_iter().enumerate() {
            let mut rng = StdRng::seed_from_u64(seed as u64);
            let medium = Arc::new(MemoryStore::new());
            let options = Options { cache_bytes: 2 << 20, ..Options::default() };
            let store = Store::create(Box::new(medium.clone()), &options).unwrap();
            let list = List::new(&store, form);
            let mut tx = store.begin();
            let mut stays: BTreeMap<u64, NodeId> = (0..count).map(|n| (n, list.put(&mut tx, n))).collect();
            tx.commit().unwrap();
            let mut comes: BTreeSet<u64> = BTreeSet::new();
            let mut next = 1_000_000;
            for (direction, most) in
                [(Direction::Up, 1), (Direction::Down, 3), (Direction::Up, 50), (Direction::Down, 1_000)]
            {
                if most < 50 && count > 300 {
                    continue;
                }
                let part =
                    |place, most| store.edges_from(list.root, list.etype, place, direction, most).unwrap();
                let seen = go(direction, most, part, || {
                    let mut tx = store.begin();
                    // Enough to make a table of the list, and to let it go.
                    for _ in 0..rng.random_range(0..40) {
                        if comes.len() > 200 || rng.random_bool(0.5) {
                            let gone = comes.iter().nth(rng.random_range(0..comes.len().max(1))).copied();
                            gone.inspect(|n| list.delete(&mut tx, *n));
                            gone.inspect(|n| assert!(comes.remove(n)));
                        } else {
                            list.put(&mut tx, next);
                            comes.insert(next);
                            next += 1;
                        }
                    }
                    tx.commit().unwrap();
                });
                let mut seen_of = BTreeMap::new();
                seen.into_iter().for_each(|node| *seen_of.entry(node).or_insert(0) += 1);
                for (n, node) in &stays {
                    assert_eq!(seen_of.get(node), Some(&1), "edge {n} of {count}, {most} at a time");
                }
            }
            // The order is the same in a snapshot and when the store is opened anew.
            let all = |store: &Store| {
                store.edges_from(list.root, list.etype, EdgePlace::FIRST, Direction::Up, usize::MAX).unwrap()
            };
            let before = all(&store);
            let mut down = store
                .snapshot()
                .edges_from(list.root, list.etype, EdgePlace::LAST, Direction::Down, usize::MAX)
                .unwrap();
            down.reverse();
            assert_eq!(before, down);
            assert_eq!(before.len(), stays.len() + comes.len());
            store.close().unwrap();
            let store = Store::open(Box::new(medium), &options).unwrap();
            assert_eq!(before, all(&store));
            // An info says where to go on, also when its edge is gone.
            let some: Vec<u64> = stays.keys().copied().step_by(37).collect();
            for n in some {
                let place = list.info(n, |info| store.edge_place(list.etype, info)).unwrap();
                let at = before.iter().position(|edge| edge.edge.to == stays[&n]).unwrap();
                let find = || {
                    let found = store.edges_from(list.root, list.etype, place, Direction::Up, 1).unwrap();
                    found.first().map(|edge| edge.edge.to)
                };
                assert_eq!(find(), Some(stays[&n]));
                let mut tx = store.begin();
                list.delete(&mut tx, n);
                let within = tx.edges_from(list.root, list.etype, place, Direction::Up, 1).unwrap();
                let next = before.get(at + 1).map(|edge| edge.edge.to);
                assert_eq!(within.first().map(|edge| edge.edge.to), next);
                tx.abort();
                stays.remove(&n);
            }
        }
    }
}

#[test]
fn a_transaction_sees_its_own_changes_in_their_places() {
    for form in [InfoForm::Key, InfoForm::Number] {
        let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
        let list = List::new(&store, form);
        let mut tx = store.begin();
        let mut wanted: BTreeMap<u64, NodeId> = (0..900).map(|n| (n, list.put(&mut tx, n))).collect();
        tx.commit().unwrap();
        let mut tx = store.begin();
        for n in (0..900).step_by(2) {
            list.delete(&mut tx, n);
            wanted.remove(&n);
        }
        for n in 2_000..2_400 {
            wanted.insert(n, list.put(&mut tx, n));
        }
        for n in (1..400).step_by(2) {
            // It leads elsewhere.
            list.delete(&mut tx, n);
            wanted.insert(n, list.put(&mut tx, n));
        }
        let mut nodes: Vec<NodeId> = wanted.values().copied().collect();
        nodes.sort_unstable();
        let mut inside = Vec::new();
        for (direction, most) in [(Direction::Up, 7), (Direction::Down, 100)] {
            let part = |place, most| tx.edges_from(list.root, list.etype, place, direction, most).unwrap();
            let seen = go(direction, most, part, || {});
            let mut sorted = seen.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, nodes);
            inside = seen;
        }
        tx.commit().unwrap();
        inside.reverse();
        let after =
            store.edges_from(list.root, list.etype, EdgePlace::FIRST, Direction::Up, usize::MAX).unwrap();
        assert_eq!(after.iter().map(|edge| edge.edge.to).collect::<Vec<_>>(), inside);
    }
}

/// The source of an edge that leads elsewhere has as many edges as before.
#[test]
fn a_transaction_lists_edges_where_it_has_led_them() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let list = List::new(&store, InfoForm::Number);
    let mut tx = store.begin();
    let nodes: Vec<NodeId> = (0..3).map(|n| list.put(&mut tx, n)).collect();
    tx.commit().unwrap();
    let mut tx = store.begin();
    let savepoint = tx.savepoint();
    tx.set_edge(list.root, list.etype, Info::Number(0), nodes[2]).unwrap();
    let led = |tx: &mut Transaction<'_>| {
        let mut edges: Vec<_> =
            tx.edges(list.root).unwrap().iter().map(|edge| (edge.number, edge.to)).collect();
        edges.sort_unstable();
        edges
    };
    let now = vec![(Some(0), nodes[2]), (Some(1), nodes[1]), (Some(2), nodes[2])];
    assert_eq!(led(&mut tx), now);
    tx.undo_to(savepoint).unwrap();
    assert_eq!(led(&mut tx)[0], (Some(0), nodes[0]));
    tx.set_edge(list.root, list.etype, Info::Number(0), nodes[2]).unwrap();
    tx.commit().unwrap();
    assert_eq!(led(&mut store.begin()), now);
}
