//! A step of several changes does what these do one after the other, or it does nothing.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rig::content::{Tree, dump};
use rig::steps::{Known, apply, changes};
use rig::{assert_sound, fresh, options, small};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use weft_core::Ino;
use weft_device::PowerCut;
use weft_lfs::Lfs;
use weft_vfs::{
    BlockMap, Change, CreateArgs, FallocateMode, FileKind, FileSystem, MapEntry, MapObserver, MemFs, NewNode,
    Node, SetAttr, TimeSpec,
};

/// What is done to both.
#[derive(Clone, Debug)]
enum Item {
    Step(Vec<u64>, bool),
    /// Changes, each on its own; those that are refused are left out.
    Plain(Vec<u64>),
    Sync,
    Tick,
    Remount,
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let seeds = || proptest::collection::vec(any::<u64>(), 1..9);
    let item = prop_oneof![
        8 => (seeds(), any::<bool>()).prop_map(|(seeds, durable)| Item::Step(seeds, durable)),
        4 => seeds().prop_map(Item::Plain),
        1 => Just(Item::Sync),
        1 => Just(Item::Tick),
        1 => Just(Item::Remount),
    ];
    proptest::collection::vec(item, 1..30)
}

/// What has been done to the oracle, to make it anew.
enum Done {
    Step(Vec<Change<'static>>),
    Plain(Change<'static>),
}

/// A core and the oracle, side by side.
struct Pair {
    device: Arc<PowerCut>,
    core: Option<Lfs>,
    oracle: MemFs,
    known: Vec<Known>,
    /// The oracle's number of each of the core's inodes.
    numbers: BTreeMap<Ino, Ino>,
    done: Vec<Done>,
    steps: u32,
    refused: u32,
}

/// The oracle's numbers of what a step makes, or the change that it refuses.
type Outcome = Result<Vec<Option<(Ino, FileKind)>>, (usize, i32)>;

/// Does the changes of a step one after the other. What loses its name meanwhile lives until the last.
fn one_after_the_other(oracle: &MemFs, changes: &[Change<'_>], numbers: &BTreeMap<Ino, Ino>) -> Outcome {
    let mut held: Vec<Ino> = numbers.values().copied().filter(|ino| oracle.open(*ino).is_ok()).collect();
    let mut made: Vec<Option<(Ino, FileKind)>> = Vec::new();
    let mut refused = None;
    for (at, change) in changes.iter().enumerate() {
        let number = |node| match node {
            Node::Ino(ino) => numbers[&ino],
            Node::Made(at) => made[at].unwrap().0,
        };
        match apply(oracle, change, &number) {
            Ok(new) => {
                if let Some((ino, _)) = new {
                    oracle.open(ino).unwrap();
                    held.push(ino);
                }
                made.push(new);
            }
            Err(error) => {
                refused = Some((at, error.errno()));
                break;
            }
        }
    }
    held.into_iter().for_each(|ino| oracle.release(ino));
    refused.map_or(Ok(made), Err)
}

/// Whether the core and the oracle may each tell another of a change's faults.
fn may_have_several_faults(change: &Change<'_>) -> bool {
    matches!(change, Change::Rename { .. } | Change::Link { .. })
}

/// Everything but the times, and where holes are: the oracle takes blocks of zeros for data.
fn whole(fs: &dyn FileSystem) -> Tree {
    let mut tree = dump(fs).unwrap();
    for node in tree.values_mut() {
        let node = node.as_mut().unwrap();
        node.times = [TimeSpec(0); 2];
        node.content.2.clear();
    }
    tree
}

impl Pair {
    fn new() -> Pair {
        let (device, core) = fresh(&small(64 << 20, 1 << 20));
        Pair {
            device,
            core: Some(core),
            oracle: MemFs::new(),
            known: vec![Known { ino: Ino::ROOT, kind: FileKind::Directory }],
            numbers: BTreeMap::from([(Ino::ROOT, Ino::ROOT)]),
            done: Vec::new(),
            steps: 0,
            refused: 0,
        }
    }

    fn core(&self) -> &Lfs {
        self.core.as_ref().unwrap()
    }

    fn apply(&mut self, item: &Item) -> Result<(), String> {
        match item {
            Item::Step(seeds, durable) => self.step(seeds, *durable)?,
            Item::Plain(seeds) => self.plain(seeds)?,
            Item::Sync => self.core().sync().unwrap(),
            Item::Tick => self.core().tick().unwrap(),
            Item::Remount => {
                self.core.take().unwrap().unmount().unwrap();
                assert_sound(&self.device);
                self.core = Some(Lfs::mount(self.device.clone(), options()).unwrap());
            }
        }
        self.compare()
    }

    fn step(&mut self, seeds: &[u64], durable: bool) -> Result<(), String> {
        let changes = changes(self.core(), seeds, &self.known);
        let expected = one_after_the_other(&self.oracle, &changes, &self.numbers);
        let done = self.core().commit(&changes, durable);
        match (done, expected) {
            (Ok(made), Ok(expected)) => {
                self.steps += 1;
                for (ino, number) in made.iter().zip(&expected) {
                    match (ino, number) {
                        (None, None) => {}
                        (Some(ino), Some((number, kind))) => {
                            self.known.push(Known { ino: *ino, kind: *kind });
                            self.numbers.insert(*ino, *number);
                        }
                        _ => return Err(format!("{changes:?} made {made:?}, not {expected:?}")),
                    }
                }
                self.done.push(Done::Step(changes));
            }
            (Err(refused), Err(expected)) => {
                self.refused += 1;
                let is_ambiguous = changes.get(refused.at).is_some_and(may_have_several_faults);
                if refused.at != expected.0 || (refused.error.errno() != expected.1 && !is_ambiguous) {
                    return Err(format!("{changes:?} was refused with {refused:?}, not {expected:?}"));
                }
                self.remake();
            }
            (done, expected) => return Err(format!("{changes:?} came to {done:?}, not {expected:?}")),
        }
        Ok(())
    }

    fn plain(&mut self, seeds: &[u64]) -> Result<(), String> {
        for seed in seeds {
            let change = changes(self.core(), &[*seed], &self.known)[0];
            let plain = |ino| if let Node::Ino(ino) = ino { ino } else { panic!("nothing is made") };
            let ours = apply(self.core(), &change, &plain);
            let theirs = apply(&self.oracle, &change, &|node| self.numbers[&plain(node)]);
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => {
                    if let (Some((ino, kind)), Some((number, _))) = (ours, theirs) {
                        self.known.push(Known { ino, kind });
                        self.numbers.insert(ino, number);
                    }
                    self.done.push(Done::Plain(change));
                }
                (Err(ours), Err(theirs))
                    if ours.errno() == theirs.errno() || may_have_several_faults(&change) => {}
                (ours, theirs) => return Err(format!("{change:?} alone came to {ours:?}, not {theirs:?}")),
            }
        }
        Ok(())
    }

    /// Makes the oracle anew, without the beginning of a step that was refused.
    fn remake(&mut self) {
        self.oracle = MemFs::new();
        for done in &self.done {
            match done {
                Done::Step(changes) => {
                    one_after_the_other(&self.oracle, changes, &self.numbers).unwrap();
                }
                Done::Plain(change) => {
                    let number = |node| match node {
                        Node::Ino(ino) => self.numbers[&ino],
                        Node::Made(_) => panic!("nothing is made"),
                    };
                    apply(&self.oracle, change, &number).unwrap();
                }
            }
        }
    }

    fn compare(&self) -> Result<(), String> {
        let wrong = self.core().recount();
        if !wrong.is_empty() {
            return Err(format!("{wrong:?}"));
        }
        let (ours, theirs) = (whole(self.core()), whole(&self.oracle));
        let paths = ours.keys().chain(theirs.keys());
        match paths.into_iter().find(|path| ours.get(*path) != theirs.get(*path)) {
            Some(path) => Err(format!(
                "{}: {:?}, not {:?}",
                String::from_utf8_lossy(path),
                ours.get(path),
                theirs.get(path)
            )),
            None => Ok(()),
        }
    }
}

#[test]
fn a_step_does_what_its_changes_do_one_after_the_other_or_nothing() {
    let config = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let counts = std::cell::Cell::new((0, 0));
    let found = runner.run(&items(), |items| {
        let mut pair = Pair::new();
        for item in items.iter().chain([&Item::Remount]) {
            pair.apply(item).map_err(|what| TestCaseError::fail(format!("{item:?}: {what}")))?;
        }
        counts.set((counts.get().0 + pair.steps, counts.get().1 + pair.refused));
        Ok(())
    });
    if let Err(error) = found {
        panic!("{error}");
    }
    let (steps, refused) = counts.get();
    println!("{steps} steps done, {refused} refused");
    assert!(steps > 4000 && refused > 3000, "{steps} steps done, {refused} refused");
}

/// The maps of files, as the core tells of their changes.
#[derive(Default)]
struct Mirror(Mutex<BTreeMap<(Ino, u64), MapEntry>>);

impl MapObserver for Mirror {
    fn remapped(&self, ino: Ino, first: u64, entries: &[MapEntry]) {
        let mut maps = self.0.lock().unwrap();
        for (block, entry) in (first..).zip(entries) {
            maps.insert((ino, block), *entry);
        }
    }
}

#[test]
fn the_map_observer_knows_where_the_blocks_are_behind_a_step() {
    let (_, fs) = fresh(&small(16 << 20, 256 << 10));
    let mirror = Arc::new(Mirror::default());
    fs.set_observer(mirror.clone());
    let args = CreateArgs::new(NewNode::File, 0o644);
    let files = [b"a", b"b", b"c"].map(|name| fs.create(Ino::ROOT, name, &args).unwrap().ino);
    let mut entries = [MapEntry::HOLE; 32];
    for ino in files {
        fs.write_through(ino, 0, &[1; 20 * 4096]).unwrap();
        fs.write(ino, 20 * 4096, &[1; 100]).unwrap();
        fs.watch(ino, 0, &mut entries).unwrap();
        mirror.remapped(ino, 0, &entries);
    }
    let [a, b, c] = files;
    let data = [2; 6 * 4096 + 9];
    let size = Some(7000);
    let step = [
        Change::Write { node: Node::Ino(a), offset: 9000, data: &data },
        Change::SetAttr { node: Node::Ino(b), set: SetAttr { size, ..SetAttr::default() } },
        Change::Write { node: Node::Ino(b), offset: 25 * 4096, data: &data[..10] },
        Change::Remove { dir: Node::Ino(Ino::ROOT), name: b"c", is_dir: false },
    ];
    fs.commit(&step, false).unwrap();
    for ino in [a, b] {
        fs.watch(ino, 0, &mut entries).unwrap();
        let maps = mirror.0.lock().unwrap();
        for (block, entry) in (0..).zip(&entries) {
            assert_eq!(maps[&(ino, block)], *entry, "inode {ino}, block {block}");
        }
    }
    let maps = mirror.0.lock().unwrap();
    assert!((0..32).all(|block| maps[&(c, block)] == MapEntry::HOLE), "the file is gone");
}

#[test]
fn a_block_that_a_step_cuts_keeps_the_room_that_was_promised_for_it() {
    let blocks = |cut: &dyn Fn(&Lfs, Ino, &SetAttr)| {
        let fs = fresh(&small(16 << 20, 256 << 10)).1;
        let file = fs.create(Ino::ROOT, b"f", &CreateArgs::new(NewNode::File, 0o644)).unwrap().ino;
        fs.fallocate(file, FallocateMode::Allocate, 0, 8192).unwrap();
        fs.write(file, 4096, &[7; 100]).unwrap();
        fs.fsync(file).unwrap();
        cut(&fs, file, &SetAttr { size: Some(4146), ..SetAttr::default() });
        fs.sync().unwrap();
        fs.getattr(file).unwrap().blocks
    };
    let plain = blocks(&|fs, file, set| {
        fs.setattr(file, set).unwrap();
    });
    let step = blocks(&|fs, file, set| {
        let set = Change::SetAttr { node: Node::Ino(file), set: *set };
        fs.commit(&[set], true).unwrap();
    });
    assert_eq!((plain, step), (16, 16));
}
