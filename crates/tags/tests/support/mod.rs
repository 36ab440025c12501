//! Threads that commit on a medium whose power fails, and what has to be there afterwards: for threads of the system and for
//! those of a scheduler.

pub mod power_cut;

use power_cut::PowerCutStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use weft_tags::{
    Durability, EdgeType, Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SnodeId, SnodeTags,
    Store, TagFlags,
};

const NUMBER: NodeType = NodeType(3);
const ITEM: NodeType = NodeType(4);
/// Items that a counter keeps.
const KEPT: u64 = 3;
/// What an account begins with.
const START: u64 = 100;

pub fn options() -> Options {
    let all = Options::default();
    // Where a scheduler chooses the order nothing is timed.
    let lock_wait = if cfg!(weft_shuttle) { std::time::Duration::MAX } else { all.lock_wait };
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, store_bytes_max: 4 << 20, lock_wait, ..all }
}

/// A thread's own s-node: a counter, with edges to items, and an account. And another one, with a shelf, to which commits that nobody
/// waits for only add: the writes of both threads' shelves are gathered.
#[derive(Clone, Copy)]
struct Place {
    snode: SnodeId,
    counter: NodeId,
    account: NodeId,
    shelf: NodeId,
}

/// How far a thread has come.
#[derive(Default)]
struct Progress {
    /// The transaction that was begun last.
    begun: AtomicU64,
    /// The last one that is durable by what a commit said.
    durable: AtomicU64,
}

/// An image with a place for each thread, and those.
pub struct Begin {
    image: Vec<u8>,
    places: [Place; 2],
    etype: EdgeType,
}

pub fn begin() -> Begin {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("e", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    // What the second gives up is erased.
    let places = [TagFlags::empty(), TagFlags::SECURE_DELETE].map(|flags| {
        let snode = tx.create_snode(&SnodeTags { flags, ..SnodeTags::default() }).unwrap();
        let root = tx.root(snode).unwrap();
        let mut number = |at: u64, value: u64| {
            let node = tx.create_node(snode, NUMBER, &value.to_le_bytes()).unwrap();
            tx.create_edge(root, etype, Info::Number(at), node).unwrap();
            node
        };
        let (counter, account) = (number(0, 0), number(1, START));
        let plain = tx.create_snode(&SnodeTags::default()).unwrap();
        let shelf = tx.create_node(plain, NUMBER, &0u64.to_le_bytes()).unwrap();
        let root = tx.root(plain).unwrap();
        tx.create_edge(root, etype, Info::Number(0), shelf).unwrap();
        Place { snode, counter, account, shelf }
    });
    tx.commit().unwrap();
    store.close().unwrap();
    Begin { image: medium.to_bytes(), places, etype }
}

fn number(raw: &[u8]) -> u64 {
    u64::from_le_bytes(raw.try_into().unwrap())
}

fn item(n: u64) -> Vec<u8> {
    // Now and then one with pages of its own.
    vec![n as u8; if n.is_multiple_of(6) { 9_000 } else { 40 + n as usize * 30 }]
}

/// What is on a shelf after turn `n`: two books of each turn, but those that were cleared away.
fn books(n: u64) -> std::ops::RangeInclusive<u64> {
    let cleared = (n / 8 * 8).saturating_sub(6);
    2 * cleared + 2..=2 * n + 1
}

/// A book fills a page.
fn book(number: u64) -> Vec<u8> {
    vec![number as u8; 4_000]
}

/// Puts the books of turn `n` on a thread's shelf.
fn shelve(store: &Store, begin: &Begin, me: usize, n: u64) -> Result<(), Error> {
    let shelf = begin.places[me].shelf;
    let mut tx = store.begin();
    tx.durability(Durability::None);
    for number in [2 * n, 2 * n + 1] {
        let book = tx.create_node(SnodeId::from(shelf.home()), ITEM, &book(number))?;
        tx.create_edge(shelf, begin.etype, Info::Number(number), book)?;
    }
    for number in *books(n - 1).start()..*books(n).start() {
        tx.delete_edge(shelf, begin.etype, Info::Number(number))?;
    }
    tx.commit().map(drop)
}

/// Transaction `n` of a thread.
fn turn(store: &Store, begin: &Begin, me: usize, n: u64, extra: &mut Option<SnodeId>) -> Result<(), Error> {
    let (mine, other, etype) = (begin.places[me], begin.places[1 - me], begin.etype);
    let mut tx = store.begin();
    tx.durability(if n.is_multiple_of(3) { Durability::Sync } else { Durability::None });
    tx.update_node(mine.counter, NUMBER, &n.to_le_bytes())?;
    let made = tx.create_node(mine.snode, ITEM, &item(n))?;
    tx.create_edge(mine.counter, etype, Info::Number(n), made)?;
    let savepoint = tx.savepoint();
    let never = tx.create_node(mine.snode, ITEM, b"never")?;
    tx.create_edge(made, etype, Info::Number(0), never)?;
    tx.undo_to(savepoint)?;
    if n > KEPT {
        tx.delete_edge(mine.counter, etype, Info::Number(n - KEPT))?;
    }
    if n.is_multiple_of(5) {
        let held = number(&tx.read_node(mine.account, NUMBER)?);
        let others = number(&tx.read_node(other.account, NUMBER)?);
        tx.update_node(mine.account, NUMBER, &(held - 1).to_le_bytes())?;
        tx.update_node(other.account, NUMBER, &(others + 1).to_le_bytes())?;
    }
    let before = *extra;
    let mut now = before;
    if n % 4 == 1 {
        now = Some(tx.create_snode(&SnodeTags::default())?);
        if let Some(before) = before {
            tx.delete_snode(before)?;
        }
    }
    tx.commit()?;
    *extra = now;
    Ok(())
}

fn work(store: &Store, begin: &Begin, me: usize, turns: u64, progress: &Progress, rest: fn()) {
    let mut extra = None;
    for n in 1..=turns {
        progress.begun.store(n, SeqCst);
        loop {
            match turn(store, begin, me, n, &mut extra).and_then(|()| shelve(store, begin, me, n)) {
                Ok(()) => break,
                Err(Error::Deadlock(_)) => rest(),
                Err(Error::Io { .. } | Error::Stopped { .. }) => return,
                Err(error) => panic!("thread {me}, turn {n}: {error}"),
            }
        }
        if n.is_multiple_of(3) {
            progress.durable.store(n, SeqCst);
        }
    }
}

type Join = Box<dyn FnOnce()>;

/// Runs both threads until power fails at operation `cut_at`, and looks at what is left. Returns the operations of the run.
pub fn cut_at(
    begin: &Arc<Begin>,
    cut_at: u64,
    turns: u64,
    spawn: fn(Box<dyn FnOnce() + Send>) -> Join,
    rest: fn(),
) -> u64 {
    let medium = Arc::new(PowerCutStore::new(begin.image.clone(), cut_at));
    let progress: Arc<[Progress; 2]> = Arc::default();
    if let Ok(store) = Store::open(Box::new(medium.clone()), &options()) {
        let store = Arc::new(store);
        let threads = [0, 1].map(|me| {
            let (store, begin, progress) = (store.clone(), begin.clone(), progress.clone());
            spawn(Box::new(move || work(&store, &begin, me, turns, &progress[me], rest)))
        });
        threads.into_iter().for_each(|join| join());
    }
    let operations = medium.operations();
    let store = Store::open(Box::new(medium.after_power_cut(cut_at)), &options())
        .unwrap_or_else(|error| panic!("cut at {cut_at}: {error}"));
    let mut items = 0;
    for (place, progress) in begin.places.iter().zip(progress.iter()) {
        let (durable, begun) = (progress.durable.load(SeqCst), progress.begun.load(SeqCst));
        let found = number(&store.read_node(place.counter, NUMBER).unwrap());
        assert!((durable..=begun).contains(&found), "cut at {cut_at}: {durable} <= {found} <= {begun}");
        let wanted: Vec<u64> = (found.saturating_sub(KEPT - 1).max(1)..=found).collect();
        items += wanted.len();
        let edges = store.edges(place.counter).unwrap();
        let mut numbers: Vec<u64> = edges.iter().map(|edge| edge.number.unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, wanted, "cut at {cut_at}");
        for edge in edges {
            let read = store.read_node(edge.to, ITEM).unwrap();
            assert!(read == item(edge.number.unwrap()), "cut at {cut_at}: item {:?}", edge.number);
        }
        let shelf = store.edges(place.shelf).unwrap();
        let mut numbers: Vec<u64> = shelf.iter().map(|edge| edge.number.unwrap()).collect();
        numbers.sort_unstable();
        let may_be = [found.saturating_sub(1), found].map(|n| books(n).filter(|_| n > 0).collect::<Vec<_>>());
        assert!(may_be.contains(&numbers), "cut at {cut_at}: turn {found}, books {numbers:?}");
        items += numbers.len();
        for edge in shelf {
            let read = store.read_node(edge.to, ITEM).unwrap();
            assert!(read == book(edge.number.unwrap()), "cut at {cut_at}: book {:?}", edge.number);
        }
    }
    let accounts = begin.places.map(|place| number(&store.read_node(place.account, NUMBER).unwrap()));
    assert_eq!(accounts.iter().sum::<u64>(), 2 * START, "cut at {cut_at}: half a transfer");
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "cut at {cut_at}");
    assert_eq!(report.nodes as usize, store.snodes().unwrap().len() + 6 + items, "cut at {cut_at}: garbage");
    operations
}
