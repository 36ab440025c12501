//! Which pages leave the cache: by their use alone, or by the classes of their s-nodes. What is counted is the same in each run, since one
//! thread asks for nodes by their ids.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_tags::{
    ClassPriorities, ClassReport, ClassShare, DataClass, EvictionPolicy, Info, InfoForm, MemoryStore, NodeId,
    NodeType, Options, PageClass, PagePart, PerClass, SecondChance, Sieve, SnodeTags, Store,
};

const FILE: NodeType = NodeType(1);
const SMALL: PageClass = PageClass { data: DataClass::Small, part: PagePart::Nodes };
const LARGE: PageClass = PageClass { data: DataClass::Immutable, part: PagePart::Large };
/// Small files, each in a page of its own, a third of what the cache has room for.
const SMALL_FILES: usize = 85;
/// Pages of large files, eight times as many as the cache has room for.
const LARGE_PAGES: usize = 2048;

fn options(eviction: Arc<dyn EvictionPolicy>) -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 1 << 20, eviction, ..Options::default() }
}

/// Makes files of these classes, one s-node for each of the classes; their nodes.
fn fill(medium: Arc<MemoryStore>, apart: bool) -> [Vec<NodeId>; 2] {
    let store = Store::create(Box::new(medium), &options(Arc::new(SecondChance))).unwrap();
    let holds = store.edge_type("holds", InfoForm::Number).unwrap();
    // Those that follow share pages.
    let mut tx = store.begin();
    (0..20).for_each(|_| assert!(tx.create_snode(&SnodeTags::default()).is_ok()));
    tx.commit().unwrap();
    let nodes =
        [(SMALL, SMALL_FILES, 4_000), (LARGE, LARGE_PAGES / 8, 8 * 4_096 - 8)].map(|(class, count, len)| {
            let tags = SnodeTags { class: class.data, ..SnodeTags::default() };
            let mut tx = store.begin();
            let snode = if apart { tx.create_snode_apart(&tags) } else { tx.create_snode(&tags) }.unwrap();
            let root = tx.root(snode).unwrap();
            let nodes = (0..count).map(|n| {
                let node = tx.create_node(snode, FILE, &vec![n as u8; len]).unwrap();
                tx.create_edge(root, holds, Info::Number(n as u64), node).unwrap();
                node
            });
            let nodes = nodes.collect();
            tx.commit().unwrap();
            nodes
        });
    store.close().unwrap();
    nodes
}

fn report(store: &Store, class: PageClass) -> ClassReport {
    store.cache_report().into_iter().find(|report| report.class == class).unwrap()
}

/// Reads all small files, then large ones, five times; what the cache did with both.
fn replay(eviction: Arc<dyn EvictionPolicy>, apart: bool) -> [ClassReport; 2] {
    let medium = Arc::new(MemoryStore::new());
    let files = fill(medium.clone(), apart);
    let store = Store::open(Box::new(medium), &options(eviction)).unwrap();
    for _ in 0..5 {
        for file in files.iter().flatten() {
            store.read_node(*file, FILE).unwrap();
        }
    }
    let all = store.cache_report();
    let sum = |count: fn(&ClassReport) -> u64| all.iter().map(count).sum::<u64>();
    let resident = sum(|report| report.resident);
    assert!(resident <= 256, "{resident} pages in 256 frames");
    assert_eq!(sum(|report| report.misses) - sum(|report| report.evictions), resident);
    [SMALL, LARGE].map(|class| report(&store, class))
}

#[test]
fn a_scan_of_large_files_evicts_small_ones_unless_they_have_priority() {
    for apart in [false, true] {
        let [small, large] = replay(Arc::new(SecondChance), apart);
        // All of them, each time.
        assert!(small.misses >= 5 * SMALL_FILES as u64, "{small:?}");
        let scanned = large.misses;
        let mut classes = ClassPriorities::default();
        classes.set(SMALL, ClassShare { priority: 1, ..ClassShare::default() });
        let [small, large] = replay(Arc::new(classes), apart);
        // Each once. The page of the root was read before it was known what it is of.
        assert_eq!((small.misses, small.evictions), (SMALL_FILES as u64, 0), "{small:?}");
        assert!((85..=86).contains(&small.resident), "{small:?}");
        assert!(small.hits >= 5 * SMALL_FILES as u64, "{small:?}");
        assert!(large.misses <= scanned, "the others do not pay for it: {} and {scanned}", large.misses);
    }
}

/// Reads the small files twice with a few large ones in between, then many large ones, in several rounds; what the cache did with small ones.
fn reuse(eviction: Arc<dyn EvictionPolicy>) -> ClassReport {
    let medium = Arc::new(MemoryStore::new());
    let [small, large] = fill(medium.clone(), true);
    let store = Store::open(Box::new(medium), &options(eviction)).unwrap();
    let mut scanned = large.iter().cycle();
    for _ in 0..6 {
        // A large file has eight pages.
        for files in [15, 55] {
            small.iter().for_each(|file| drop(store.read_node(*file, FILE).unwrap()));
            scanned.by_ref().take(files).for_each(|file| drop(store.read_node(*file, FILE).unwrap()));
        }
    }
    report(&store, SMALL)
}

#[test]
fn what_is_used_again_outlives_a_scan_for_as_long_as_its_class_weighs() {
    let by = |weight| {
        let mut sieve = Sieve::default();
        sieve.set(SMALL, weight);
        reuse(Arc::new(sieve))
    };
    let (clock, light, heavy) = (reuse(Arc::new(SecondChance)), by(1), by(6));
    assert!(clock.misses > 5 * SMALL_FILES as u64, "the scans are long enough: {clock:?}");
    assert!(heavy.misses < 2 * SMALL_FILES as u64, "{heavy:?}");
    assert!(heavy.misses < light.misses, "{heavy:?} {light:?}");
    assert!(heavy.hit_ratio() > clock.hit_ratio() && heavy.hit_ratio() < Some(1.0), "{heavy:?} {clock:?}");
}

#[test]
fn quotas_bound_a_class_from_both_sides() {
    // Large files may have an eighth of the cache, whatever is free beside.
    let mut classes = ClassPriorities::default();
    classes.set(LARGE, ClassShare { priority: 7, most_percent: 12, ..ClassShare::default() });
    let [small, _] = replay(Arc::new(classes), true);
    assert_eq!(small.evictions, 0, "{small:?}");
    // Small ones would lose all, but for a tenth.
    let mut classes = ClassPriorities::default();
    classes.set(LARGE, ClassShare { priority: 1, ..ClassShare::default() });
    classes.set(SMALL, ClassShare { least_percent: 10, ..ClassShare::default() });
    let [small, _] = replay(Arc::new(classes), true);
    assert_eq!(small.resident, 25, "{small:?}");
}

#[test]
fn a_policy_that_names_no_class_leaves_no_room() {
    #[derive(Debug)]
    struct Nobody;
    impl EvictionPolicy for Nobody {
        fn leave(&self, _: &PerClass, _: u64, _: u64) -> PerClass {
            PerClass::default()
        }
    }
    let medium = Arc::new(MemoryStore::new());
    let files = fill(medium.clone(), true);
    let store = Store::open(Box::new(medium), &options(Arc::new(Nobody))).unwrap();
    let read = files.iter().flatten().try_for_each(|file| store.read_node(*file, FILE).map(drop));
    assert!(matches!(read, Err(weft_tags::Error::CacheFull { .. })), "{read:?}");
}

#[test]
fn what_a_page_counts_as_follows_the_tags_of_its_s_node() {
    let store = Store::create(Box::new(MemoryStore::new()), &options(Arc::new(SecondChance))).unwrap();
    let mut tx = store.begin();
    let snode = tx.create_snode_apart(&SnodeTags::default()).unwrap();
    let root = tx.root(snode).unwrap();
    tx.commit().unwrap();
    let before = report(&store, PageClass { data: DataClass::Unknown, part: PagePart::Nodes }).resident;
    let mut tx = store.begin();
    tx.set_snode_tags(snode, &SnodeTags { class: DataClass::Small, ..SnodeTags::default() }).unwrap();
    tx.commit().unwrap();
    assert_eq!(report(&store, SMALL).resident, 1);
    assert_eq!(
        report(&store, PageClass { data: DataClass::Unknown, part: PagePart::Nodes }).resident,
        before - 1
    );
    // Deleted, nothing of it is left.
    let mut tx = store.begin();
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    assert!(store.view(root, 0).is_err());
    assert_eq!(report(&store, SMALL).resident, 0);
}

#[test]
fn pages_beyond_quotas_leave_then_the_lowest_priority_and_the_least_shares_last() {
    let nodes = |data| PageClass { data, part: PagePart::Nodes };
    let [small, large, log] = [DataClass::Small, DataClass::Immutable, DataClass::Log].map(nodes);
    let mut policy = ClassPriorities::default();
    let share = |priority, least_percent, most_percent| ClassShare { priority, least_percent, most_percent };
    policy.set(small, share(2, 0, 100));
    policy.set(large, share(1, 10, 100));
    policy.set(log, share(9, 0, 20));
    let leave = |counts: [u64; 3]| {
        let mut resident = PerClass::default();
        [small, large, log].into_iter().zip(counts).for_each(|(class, count)| resident[class] = count);
        let leave = policy.leave(&resident, 1000, 16);
        let named = [small, large, log].map(|class| leave[class]);
        assert_eq!(named.iter().sum::<u64>(), leave.sum(), "no others leave");
        named
    };
    assert_eq!(leave([500, 250, 250]), [0, 0, 50], "beyond its most");
    assert_eq!(leave([500, 300, 200]), [0, 200, 0], "the lowest priority, but for its least");
    assert_eq!(leave([700, 100, 200]), [700, 0, 0]);
    assert_eq!(leave([0, 100, 0]), [0, 100, 0], "there is nothing else");
    assert_eq!(leave([0, 0, 0]), [0; 3]);
}
