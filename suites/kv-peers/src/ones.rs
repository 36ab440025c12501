//! Operations one at a time, each a call of its own: what a program that has no batches sees. Gets in random order, scans of all pairs, values of
//! 1 MiB, and puts that are durable when they return, beside the least that a durable put can be: one direct write and a flush.

use crate::engine::{self, Config, Durability, Engine, Result};
use crate::workload::{Order, key, value};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a large value.
const LARGE: usize = 1 << 20;
/// Bytes of a direct write.
const BLOCK: usize = 4096;

#[derive(clap::Args, Debug, Clone)]
pub struct Ones {
    /// Stores, of those that measure this: weft, lmdb
    #[arg(long, value_delimiter = ',', default_value = "weft,lmdb")]
    stores: Vec<String>,
    /// A directory on the disk that is measured; a directory is made and removed in it.
    #[arg(long, default_value = "target/kv-peers")]
    dir: PathBuf,
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u64,
    /// Durable puts.
    #[arg(long, default_value_t = 2_000)]
    puts: u64,
    /// Values of 1 MiB.
    #[arg(long, default_value_t = 256)]
    large: u64,
    /// Bytes of each store's cache.
    #[arg(long, default_value_t = 1 << 30)]
    cache: u64,
    /// Times that everything is run, in turns; medians are printed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Operations a second of each kind, in turns.
type Rates = Vec<(String, Vec<f64>)>;

pub fn run(ones: &Ones) -> Result<()> {
    let mut rates = Rates::new();
    let mut add = |name: String, rate: f64| match rates.iter_mut().find(|(known, _)| *known == name) {
        Some((_, all)) => all.push(rate),
        None => rates.push((name, vec![rate])),
    };
    let dir = ones.dir.join("row");
    for _ in 0..ones.runs {
        for store in &ones.stores {
            let mut say = |what: &str, rate| add(format!("{what}: {store}"), rate);
            in_new(&dir, || reads(store, ones, &dir, &mut say))?;
            in_new(&dir, || large(store, ones, &dir, &mut say))?;
            in_new(&dir, || puts(store, ones, &dir, &mut say))?;
        }
        in_new(&dir, || {
            direct_writes(ones, &dir).map(|rate| add("durable puts: direct write and flush".into(), rate))
        })?;
    }
    rates.sort_by(|a, b| a.0.cmp(&b.0));
    println!("operations a second; median (lowest to highest) of {}", ones.runs);
    for (name, mut all) in rates {
        all.sort_by(f64::total_cmp);
        let (least, most) = (all[0], all[all.len() - 1]);
        println!("{name:50} {:>12.0} ({least:.0} to {most:.0})", all[all.len() / 2]);
    }
    Ok(())
}

fn in_new(dir: &Path, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir)?;
    run()?;
    Ok(fs::remove_dir_all(dir)?)
}

fn open(store: &str, ones: &Ones, dir: &Path, durability: Durability) -> Result<Box<dyn Engine>> {
    let (cache, pairs) = (ones.cache, ones.pairs);
    engine::open(store, &Config { dir, durability, cache, pairs, direct: false, mapped: false })
}

fn rate(count: u64, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

fn reads(store: &str, ones: &Ones, dir: &Path, say: &mut dyn FnMut(&str, f64)) -> Result<()> {
    let mut engine = open(store, ones, dir, Durability::End)?;
    let order = Order::new(ones.pairs, 1);
    for start in (0..ones.pairs).step_by(1000) {
        let numbers = (start..ones.pairs.min(start + 1000)).map(|place| order.at(place));
        engine.put(&numbers.map(|number| (key(number), value(number))).collect::<Vec<_>>())?;
    }
    engine.sync()?;
    let order = Order::new(ones.pairs, 2);
    let (mut missing, mut sum) = (0, 0u64);
    let began = Instant::now();
    for number in (0..ones.pairs).map(|place| order.at(place)) {
        let found = engine.get_one(&key(number), &mut |value| {
            sum += value.iter().step_by(32).map(|byte| u64::from(*byte)).sum::<u64>();
        })?;
        missing += u64::from(!found);
    }
    say("gets", rate(ones.pairs, began));
    let mut seen = 0;
    let began = Instant::now();
    engine.scan(&mut |_, value| {
        sum += value.iter().step_by(32).map(|byte| u64::from(*byte)).sum::<u64>();
        seen += 1;
    })?;
    say("pairs of a scan", rate(ones.pairs, began));
    std::hint::black_box(sum);
    if missing > 0 || seen != ones.pairs {
        return Err(format!("{store}: {missing} pairs are missing, a scan has seen {seen}").into());
    }
    engine.close()
}

fn large(store: &str, ones: &Ones, dir: &Path, say: &mut dyn FnMut(&str, f64)) -> Result<()> {
    let mut engine = open(store, ones, dir, Durability::End)?;
    let mut bytes: Vec<u8> = (0..LARGE as u64 / 8).flat_map(|number| key(number)[..8].to_vec()).collect();
    let began = Instant::now();
    for number in 0..ones.large {
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        engine.put_one(&key(number), &bytes)?;
    }
    engine.sync()?;
    say("puts of 1 MiB, one sync", rate(ones.large, began));
    let order = Order::new(ones.large, 2);
    let (mut right, mut sum) = (0, 0u64);
    let began = Instant::now();
    for number in (0..ones.large).map(|place| order.at(place)) {
        engine.get_one(&key(number), &mut |value| {
            right += u64::from(value.len() == LARGE && value[..8] == number.to_le_bytes());
            sum += value.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>();
        })?;
    }
    say("gets of 1 MiB", rate(ones.large, began));
    std::hint::black_box(sum);
    if right != ones.large {
        return Err(format!("{store}: {right} of {} large values are right", ones.large).into());
    }
    engine.close()
}

fn puts(store: &str, ones: &Ones, dir: &Path, say: &mut dyn FnMut(&str, f64)) -> Result<()> {
    let mut engine = open(store, ones, dir, Durability::Batch)?;
    // A store that has just been made has no room yet.
    (0..100).try_for_each(|number| engine.put_one(&key(number), &value(number)))?;
    let began = Instant::now();
    (100..100 + ones.puts).try_for_each(|number| engine.put_one(&key(number), &value(number)))?;
    say("durable puts", rate(ones.puts, began));
    engine.close()
}

/// What no durable put can do without: a block, written past the kernel's cache into room that is there, and a flush.
fn direct_writes(ones: &Ones, dir: &Path) -> Result<f64> {
    let path = dir.join("blocks");
    let blocks = ones.puts + 100;
    fs::write(&path, vec![0; blocks as usize * BLOCK])?;
    File::open(&path)?.sync_all()?;
    let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path)?;
    let mut room = vec![1; 2 * BLOCK];
    let at = room.as_ptr().align_offset(BLOCK);
    let block = &mut room[at..at + BLOCK];
    let mut write = |number: u64| {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all_at(block, number * BLOCK as u64)?;
        file.sync_data()
    };
    (0..100).try_for_each(&mut write)?;
    let began = Instant::now();
    (100..blocks).try_for_each(&mut write)?;
    Ok(rate(ones.puts, began))
}
