//! The B+tree experiment of ADAPT (section 5.2): five trees of fixed pairs, 500,000 random queries at 80 % full, insertions
//! at 40 %, deletions at 80 %, on weft's tree, on a tree that is loaded and stored whole, on LMDB and on redb.
//!
//! Each phase is a process of its own that opens, works in batches, makes everything durable, and closes. Before it the trees
//! are filled by another process, so that no store has anything in memory of its own; then memory is touched and given back,
//! and the files are read, so that the kernel's cache has them.

mod file_tree;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb_trees;
mod weft;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Trees of the experiment.
pub const TREES: usize = 5;
/// Keys of a tree of depth 3 and fan-out 342 that is full: 480 MB.
const FULL: u64 = 342 * 342 * 342;

/// Trees of 4-byte keys and 8-byte values.
pub trait Trees {
    /// Calls `each` with the value of each key.
    fn get(&mut self, tree: usize, keys: &[u32], each: &mut dyn FnMut(Option<u64>)) -> Result<()>;
    /// Puts pairs in, together.
    fn insert(&mut self, tree: usize, pairs: &[(u32, u64)]) -> Result<()>;
    /// Takes keys away, together; how many there were.
    fn delete(&mut self, tree: usize, keys: &[u32]) -> Result<u64>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
    /// Shuts down cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Store {
    Weft,
    File,
    #[cfg(feature = "lmdb")]
    Lmdb,
    #[cfg(feature = "redb")]
    Redb,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Query,
    Insert,
    Delete,
}

impl Phase {
    /// How full the trees are, in percent.
    fn fill(self) -> u64 {
        if self == Phase::Insert { 40 } else { 80 }
    }
}

#[derive(Parser, Debug)]
#[command(name = "btree-peers", max_term_width = 100)]
struct Cli {
    /// Stores [default: all that this program was built with]
    #[arg(long, value_delimiter = ',')]
    stores: Vec<Store>,
    #[arg(long, value_delimiter = ',', default_value = "query,insert,delete")]
    phases: Vec<Phase>,
    /// Keys of a tree that is full [default: 4,000,000, that is 48 MB]
    #[arg(long, default_value_t = 4_000_000)]
    keys: u64,
    /// Trees as in the paper: 40 million keys each when full.
    #[arg(long)]
    full: bool,
    /// Operations of a phase, over all trees.
    #[arg(long, default_value_t = 500_000)]
    operations: u64,
    /// Operations of a batch.
    #[arg(long, default_value_t = 1000)]
    batch: u64,
    /// Bytes of weft's and redb's cache.
    #[arg(long, default_value_t = 6 << 30)]
    cache: u64,
    /// Bytes of memory that are touched and given back before each phase. In a virtual machine whose host takes
    /// back what is free, memory is some thirty times slower the first time, and who comes first would pay for it.
    #[arg(long, default_value_t = 4 << 30)]
    warm_bytes: usize,
    /// Times that each row is run; medians are printed.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Writes every run as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// A directory on the disk that is measured.
    #[arg(long, default_value = "target/btree-peers")]
    dir: PathBuf,
    /// What a process of a row does; what the program starts.
    #[arg(long, hide = true)]
    step: Option<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Step {
    Fill,
    Warm,
    Work,
}

/// What a phase took, in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Took {
    open: f64,
    work: f64,
    sync: f64,
    close: f64,
    /// Peak resident bytes.
    memory: u64,
}

impl Took {
    /// Until everything is durable.
    fn total(&self) -> f64 {
        self.open + self.work + self.sync
    }
}

#[derive(Serialize)]
struct Row {
    store: Store,
    phase: Phase,
    run: u32,
    keys: u64,
    operations: u64,
    batch: u64,
    #[serde(flatten)]
    took: Took,
}

/// The keys of a tree: `count` of them, spread over all numbers.
struct Keys {
    count: u64,
    stride: u64,
}

impl Keys {
    fn new(count: u64) -> Keys {
        Keys { count, stride: (1 << 32) / count }
    }

    fn there(&self, at: u64) -> u32 {
        (at * self.stride) as u32
    }
}

fn value(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Calls `get` with keys in their order, which page-copying trees like best, and `each` with what it gives in the order of `keys`.
#[cfg(any(feature = "lmdb", feature = "redb"))]
fn get_sorted(
    keys: &[u32],
    mut get: impl FnMut(u32) -> Result<Option<u64>>,
    each: &mut dyn FnMut(Option<u64>),
) -> Result<()> {
    let mut sorted: Vec<(u32, usize)> = keys.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut found = vec![None; keys.len()];
    for (key, at) in sorted {
        found[at] = get(key)?;
    }
    found.into_iter().for_each(each);
    Ok(())
}

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

fn open(store: Store, dir: &Path, cache: u64) -> Result<Box<dyn Trees>> {
    Ok(match store {
        Store::Weft => Box::new(weft::Weft::open(dir, cache)?),
        Store::File => Box::new(file_tree::FileTrees::open(dir)?),
        #[cfg(feature = "lmdb")]
        Store::Lmdb => Box::new(lmdb::Lmdb::open(dir)?),
        #[cfg(feature = "redb")]
        Store::Redb => Box::new(redb_trees::Redb::open(dir, cache)?),
    })
}

fn fill(store: Store, dir: &Path, keys: &Keys, percent: u64, cache: u64) -> Result<()> {
    let pairs = || (0..keys.count).map(|at| (keys.there(at), value(keys.there(at))));
    match store {
        Store::Weft => weft::fill(dir, cache, percent as u8, pairs),
        Store::File => file_tree::fill(dir, percent as usize, pairs),
        #[cfg(feature = "lmdb")]
        Store::Lmdb => lmdb::fill(dir, pairs),
        #[cfg(feature = "redb")]
        Store::Redb => redb_trees::fill(dir, cache, pairs),
    }
}

fn work(cli: &Cli, store: Store, phase: Phase, keys: &Keys) -> Result<Took> {
    let mut random = Random(7);
    let begun = Instant::now();
    let mut trees = open(store, &cli.dir, cli.cache)?;
    let open = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut done = 0;
    // Each key to delete is there once: a step through all of them that has no factor in common with their number.
    let mut next = [0u64; TREES];
    let step = (keys.count * 38 / 100) | 1;
    let step = (step..).find(|step| gcd(*step, keys.count) == 1).unwrap_or(1);
    while done < cli.operations {
        let tree = (done / cli.batch) as usize % TREES;
        let batch = cli.batch.min(cli.operations - done);
        match phase {
            Phase::Query => {
                let wanted: Vec<u32> = (0..batch).map(|_| keys.there(random.below(keys.count))).collect();
                let mut at = 0;
                let mut wrong = 0;
                trees.get(tree, &wanted, &mut |found| {
                    wrong += u64::from(found != Some(value(wanted[at])));
                    at += 1;
                })?;
                if wrong > 0 || at != wanted.len() {
                    return Err(format!("{wrong} wrong values").into());
                }
            }
            Phase::Insert => {
                let new = |random: &mut Random| {
                    let key = keys.there(random.below(keys.count)) + 1 + random.below(keys.stride - 1) as u32;
                    (key, value(key))
                };
                let pairs: Vec<(u32, u64)> = (0..batch).map(|_| new(&mut random)).collect();
                trees.insert(tree, &pairs)?;
            }
            Phase::Delete => {
                let gone = |next: &mut u64| {
                    *next = (*next + step) % keys.count;
                    keys.there(*next)
                };
                let gone: Vec<u32> = (0..batch).map(|_| gone(&mut next[tree])).collect();
                if trees.delete(tree, &gone)? != batch {
                    return Err("a key to delete was not there".into());
                }
            }
        }
        done += batch;
    }
    let work = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    if phase != Phase::Query {
        trees.sync()?;
    }
    let sync = begun.elapsed().as_secs_f64();
    let memory = peak_memory()?;
    let begun = Instant::now();
    trees.close()?;
    Ok(Took { open, work, sync, close: begun.elapsed().as_secs_f64(), memory })
}

/// Touches memory, and reads the files as far as they have something in them.
fn warm(cli: &Cli) -> Result<()> {
    std::hint::black_box(vec![1u8; cli.warm_bytes]);
    for file in std::fs::read_dir(&cli.dir)? {
        let file = std::fs::File::open(file?.path())?;
        // LMDB's file is as long as its map, and nearly all of it a hole at the end.
        let bytes = file.metadata()?.blocks() * 512;
        std::io::copy(&mut file.take(bytes), &mut std::io::sink())?;
    }
    Ok(())
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn peak_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    Ok(line.split_whitespace().next().unwrap_or("0").parse::<u64>()? << 10)
}

fn name<V: ValueEnum>(value: V) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn start(cli: &Cli, step: Step, store: Store, phase: Phase) -> Result<Option<Took>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--step", &name(step), "--stores", &name(store), "--phases", &name(phase)]);
    command.args(["--keys", &cli.keys.to_string(), "--operations", &cli.operations.to_string()]);
    command.args(["--batch", &cli.batch.to_string(), "--cache", &cli.cache.to_string()]);
    command.args(["--warm-bytes", &cli.warm_bytes.to_string()]);
    let output =
        command.arg("--dir").arg(&cli.dir).stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", name(step), output.status).into());
    }
    if step != Step::Work { Ok(None) } else { Ok(Some(serde_json::from_slice(&output.stdout)?)) }
}

fn run(mut cli: Cli) -> Result<()> {
    if cli.full {
        cli.keys = FULL;
    }
    let stores = if cli.stores.is_empty() { Store::value_variants().to_vec() } else { cli.stores.clone() };
    if let Some(step) = cli.step {
        let (store, phase) = (stores[0], cli.phases[0]);
        let keys = Keys::new(cli.keys * phase.fill() / 100);
        if step == Step::Warm {
            return warm(&cli);
        }
        if step == Step::Fill {
            return fill(store, &cli.dir, &keys, phase.fill(), cli.cache);
        }
        println!("{}", serde_json::to_string(&work(&cli, store, phase, &keys)?)?);
        return Ok(());
    }
    let mut rows = Vec::new();
    for phase in &cli.phases {
        for store in &stores {
            for run in 0..cli.runs {
                if cli.dir.exists() {
                    std::fs::remove_dir_all(&cli.dir)?;
                }
                std::fs::create_dir_all(&cli.dir)?;
                start(&cli, Step::Fill, *store, *phase)?;
                // SAFETY: a call without arguments.
                unsafe { libc::sync() };
                start(&cli, Step::Warm, *store, *phase)?;
                let Some(took) = start(&cli, Step::Work, *store, *phase)? else { continue };
                eprintln!("{phase:?} {store:?}: {took:?}");
                let Cli { keys, operations, batch, .. } = cli;
                rows.push(Row { store: *store, phase: *phase, run, keys, operations, batch, took });
            }
            std::fs::remove_dir_all(&cli.dir)?;
        }
    }
    if let Some(path) = &cli.json {
        serde_json::to_writer_pretty(std::fs::File::create(path)?, &rows)?;
    }
    println!(
        "{:<8} {:<6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "phase", "store", "open s", "work s", "sync s", "total s", "close s", "memory MB"
    );
    for phase in &cli.phases {
        for store in &stores {
            let mut took: Vec<Took> = rows
                .iter()
                .filter(|row| (row.phase, row.store) == (*phase, *store))
                .map(|row| row.took)
                .collect();
            took.sort_by(|a, b| a.total().total_cmp(&b.total()));
            let t = took[took.len() / 2];
            println!(
                "{:<8} {:<6} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>9}",
                name(*phase),
                name(*store),
                t.open,
                t.work,
                t.sync,
                t.total(),
                t.close,
                t.memory >> 20
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("btree-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
