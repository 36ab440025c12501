//! What a second thread brings: key-value stores on separate s-nodes, and readers beside a writer.
//!
//! `cargo run --release -p weft-tags --example kv_threads -- [FILE] [PAIRS] [RUNS]`. The file is made anew and removed.

#![allow(clippy::print_stdout)]

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weft_tags::{Durability, FileStore, Kv, KvChange, Options, ReadPath, SnodeId, SnodeTags, Store};

const BATCH: usize = 1_000;
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Keys and values of one thread.
struct Pairs {
    keys: Vec<[u8; 16]>,
    values: Vec<u8>,
}

impl Pairs {
    fn new(count: usize, seed: u64) -> Pairs {
        let mut rng = StdRng::seed_from_u64(seed);
        let keys = (0..count).map(|_| rng.random()).collect();
        let mut values = vec![0; 100 + 8 * count];
        rng.fill(&mut values[..]);
        Pairs { keys, values }
    }

    fn value(&self, n: usize) -> &[u8] {
        &self.values[n * 8..n * 8 + 100]
    }

    fn insert(&self, store: &Store, snode: SnodeId) -> Outcome<()> {
        let mut kv = Kv::open(store, snode, "pairs")?;
        kv.durability(Durability::None);
        let mut changes = Vec::with_capacity(BATCH);
        for first in (0..self.keys.len()).step_by(BATCH) {
            changes.clear();
            let batch = first..(first + BATCH).min(self.keys.len());
            changes.extend(batch.map(|n| KvChange::Put(&self.keys[n], self.value(n))));
            kv.change(&changes)?;
        }
        Ok(())
    }

    fn delete(&self, store: &Store, snode: SnodeId) -> Outcome<()> {
        let mut kv = Kv::open(store, snode, "pairs")?;
        kv.durability(Durability::None);
        for batch in self.keys.chunks(BATCH) {
            let changes: Vec<_> = batch.iter().map(|key| KvChange::Delete(key)).collect();
            kv.change(&changes)?;
        }
        Ok(())
    }

    /// Gets all pairs in this order; pairs a second. Ends early when told to.
    fn get(&self, store: &Store, snode: SnodeId, order: &[usize], stop: &AtomicBool) -> Outcome<f64> {
        let kv = Kv::open(store, snode, "pairs")?;
        let (begun, mut done) = (Instant::now(), 0);
        for batch in order.chunks(BATCH) {
            let keys: Vec<&[u8; 16]> = batch.iter().map(|n| &self.keys[*n]).collect();
            let mut found = 0;
            kv.get_many(&keys, |_, value| found += usize::from(value.is_some()))?;
            if found != batch.len() {
                return Err("a pair is missing".into());
            }
            done += batch.len();
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(done as f64 / begun.elapsed().as_secs_f64())
    }
}

/// A store with an s-node for each of the pairs, which were in it and are not any more: its memory was touched, which is
/// the dearest part of the first insert in a virtual machine.
fn fresh(path: &Path, pairs: &[Pairs]) -> Outcome<(Store, Vec<SnodeId>)> {
    let _ = std::fs::remove_file(path);
    let options = Options { cache_bytes: 3 << 29, ..Options::default() };
    let store = Store::create(Box::new(FileStore::create(path, ReadPath::Kernel)?), &options)?;
    let mut tx = store.begin();
    let made = pairs.iter().map(|_| tx.create_snode(&SnodeTags::default()));
    let made = made.collect::<Result<Vec<SnodeId>, weft_tags::Error>>()?;
    tx.commit()?;
    for (pairs, snode) in pairs.iter().zip(&made) {
        pairs.insert(&store, *snode)?;
    }
    for (pairs, snode) in pairs.iter().zip(&made) {
        pairs.delete(&store, *snode)?;
    }
    // Else a checkpoint, which commits wait for, would fall due in one measurement and not in another.
    store.checkpoint()?;
    Ok((store, made))
}

/// Seconds that so many threads take, each with pairs and an s-node of its own.
fn together(threads: usize, work: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<f64> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|n| {
                scope.spawn({
                    let work = &work;
                    move || work(n)
                })
            })
            .collect();
        all.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread failed".into())))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The rate of a reader of the first pairs while the second are written anew, over its rate alone.
fn beside_a_writer(
    pairs: &[Pairs; 2],
    order: &[usize],
    read: (&Store, SnodeId),
    written: (&Store, SnodeId),
) -> Outcome<f64> {
    let stop = AtomicBool::new(false);
    let alone = pairs[0].get(read.0, read.1, order, &stop)?;
    let repeated: Vec<usize> = order.iter().copied().cycle().take(order.len() * 20).collect();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let written = pairs[1].insert(written.0, written.1);
            stop.store(true, Ordering::Relaxed);
            written
        });
        let rate = pairs[0].get(read.0, read.1, &repeated, &stop);
        writer.join().unwrap_or_else(|_| Err("the writer failed".into()))?;
        Ok(rate? / alone)
    })
}

fn median(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[0], all[all.len() - 1])
}

fn show(what: &str, ratios: Vec<f64>) {
    let (middle, least, most) = median(ratios);
    println!("{what}: {middle:.2} ({least:.2} to {most:.2})");
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().map_or_else(|| std::env::temp_dir().join("weft-kv-threads"), PathBuf::from);
    let count = args.next().map_or(Ok(1_000_000), |n| n.parse::<usize>())?;
    let runs = args.next().map_or(Ok(5), |n| n.parse::<usize>())?;
    let pairs = [Pairs::new(count, 1), Pairs::new(count, 2)];
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut StdRng::seed_from_u64(3));
    let other_path = path.with_extension("other");
    let mut ratios: [Vec<f64>; 5] = Default::default();
    let never = AtomicBool::new(false);
    for _ in 0..runs {
        let (store, snodes) = fresh(&path, &pairs)?;
        let one = together(1, |n| pairs[n].insert(&store, snodes[n]))?;
        drop(store);
        // Two stores share nothing but the machine: what these reach is what there is to reach.
        let stores = [fresh(&path, &pairs)?, fresh(&other_path, &pairs)?];
        let apart = together(2, |n| pairs[n].insert(&stores[n].0, stores[n].1[n]))?;
        ratios[1].push(2.0 * one / apart);
        let beside =
            beside_a_writer(&pairs, &order, (&stores[0].0, stores[0].1[0]), (&stores[1].0, stores[1].1[1]))?;
        ratios[4].push(beside);
        drop(stores);
        let (store, snodes) = fresh(&path, &pairs)?;
        let two = together(2, |n| pairs[n].insert(&store, snodes[n]))?;
        ratios[0].push(2.0 * one / two);
        let one = together(1, |n| pairs[n].get(&store, snodes[n], &order, &never).map(drop))?;
        let two = together(2, |n| pairs[n].get(&store, snodes[n], &order, &never).map(drop))?;
        ratios[2].push(2.0 * one / two);
        ratios[3].push(beside_a_writer(&pairs, &order, (&store, snodes[0]), (&store, snodes[1]))?);
        store.close()?;
    }
    std::fs::remove_file(&other_path)?;
    std::fs::remove_file(&path)?;
    println!("{count} pairs a thread, {runs} runs, medians (lowest to highest)");
    let titles = [
        "inserts, two threads over one",
        "inserts, two threads on two stores over one",
        "gets, two threads over one",
        "gets beside a writer over alone",
        "gets beside a writer of another store over alone",
    ];
    titles.into_iter().zip(ratios).for_each(|(what, ratios)| show(what, ratios));
    Ok(())
}
