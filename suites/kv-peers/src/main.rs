//! The key-value workload of ADAPT on weft's store, on a bound and on other stores, each row in processes of its own.
//!
//! A row: a process inserts all pairs in batches, gets each once in another order, and is killed with SIGKILL. A second
//! one opens what is left, compares every value, and closes. A third opens that, gets everything once more so that caches
//! are warm, and deletes all pairs in batches. See `docs/benchmarks.md`.

mod engine;
mod engines;
mod measure;
mod ones;
mod report;
mod workload;

use clap::{Parser, Subcommand, ValueEnum};
use engine::{Config, Durability, Engine, Result};
use measure::{Mark, Phase};
use report::{Row, Step};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use workload::{Order, key, value};

#[derive(Parser, Debug)]
#[command(name = "kv-peers", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Runs rows and prints a table.
    Run {
        /// Stores, of those this program was built with [default: all]
        #[arg(long, value_delimiter = ',')]
        stores: Vec<String>,
        #[arg(long, value_delimiter = ',', default_value = "batch,end")]
        durability: Vec<Durability>,
        /// Times that each row is run, in turns; medians are printed.
        #[arg(long, default_value_t = 1)]
        runs: u32,
        /// Writes every run as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
        #[command(flatten)]
        load: Load,
    },
    /// Runs operations one at a time, and prints a table.
    Ones(ones::Ones),
    /// Touches memory; what `run` starts.
    #[command(hide = true)]
    Warm { bytes: usize },
    /// One process of a row; what `run` starts.
    #[command(hide = true)]
    Step {
        step: Step,
        store: String,
        durability: Durability,
        #[command(flatten)]
        load: Load,
    },
}

#[derive(clap::Args, Debug, Clone)]
struct Load {
    /// A directory on the disk that is measured; each row makes and removes a directory in it.
    #[arg(long, default_value = "target/kv-peers")]
    dir: PathBuf,
    #[arg(long, default_value_t = 10_000_000)]
    pairs: u64,
    /// Operations of a batch.
    #[arg(long, default_value_t = 1000)]
    batch: u64,
    /// Bytes of each store's cache, or `quarter` of the data.
    #[arg(long, default_value = "2147483648")]
    cache: String,
    /// weft reads past the kernel's cache.
    #[arg(long)]
    direct: bool,
    /// weft reads where the kernel's cache has its pages.
    #[arg(long, conflicts_with = "direct")]
    mapped: bool,
    /// Seconds after which a phase is stopped.
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    /// Pairs that are there, where a time limit has stopped the insert.
    #[arg(long, hide = true)]
    inserted: Option<u64>,
    /// Leaves out opening again, comparing and deleting.
    #[arg(long)]
    brief: bool,
    /// Bytes of memory that are touched and given back before each process starts. In a virtual machine whose host takes
    /// back what is free, memory is some thirty times slower the first time, and who comes first would pay for it.
    #[arg(long, default_value_t = 4 << 30)]
    warm_bytes: usize,
    /// Starts each process in this memory control group (version 1), which bounds the kernel's cache too.
    #[arg(long)]
    cgroup: Option<PathBuf>,
}

impl Load {
    fn cache_bytes(&self) -> Result<u64> {
        if self.cache == "quarter" {
            return Ok(self.pairs * (workload::KEY + workload::VALUE) as u64 / 4);
        }
        self.cache.parse().map_err(|_| format!("--cache {}: give bytes, or 'quarter'", self.cache).into())
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Action::Run { stores, durability, runs, json, load } => run(&stores, &durability, runs, json, &load),
        Action::Ones(ones) => ones::run(&ones),
        Action::Warm { bytes } => warm(bytes),
        Action::Step { step, store, durability, load } => run_step(step, &store, durability, &load),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    stores: &[String],
    durability: &[Durability],
    runs: u32,
    json: Option<PathBuf>,
    load: &Load,
) -> Result<()> {
    let all: Vec<String> = engine::NAMES.iter().map(|name| (*name).to_owned()).collect();
    let stores = if stores.is_empty() { &all } else { stores };
    let mut rows = Vec::new();
    for run in 0..runs {
        for durability in durability {
            for store in stores {
                match run_row(store, *durability, load) {
                    Ok(row) => {
                        eprintln!("run {}: {}", run + 1, report::line(&row));
                        rows.push(row);
                    }
                    Err(error) => eprintln!("run {}: {store}: {error}", run + 1),
                }
            }
        }
    }
    if let Some(path) = json {
        serde_json::to_writer_pretty(std::fs::File::create(path)?, &rows)?;
    }
    print!("{}", report::table(&rows));
    Ok(())
}

fn run_row(store: &str, durability: Durability, load: &Load) -> Result<Row> {
    let dir = load.dir.join("row");
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    // What the row before has left in the kernel's cache must not be written during this one.
    // SAFETY: a call without arguments.
    unsafe { libc::sync() };
    let mut row = Row { store: store.to_owned(), durability: name_of(durability), ..Row::default() };
    let steps: &[Step] = if load.brief { &[Step::Load] } else { &[Step::Load, Step::Check, Step::Delete] };
    for step in steps {
        let load = Load { inserted: (*step != Step::Load).then_some(row.insert.ops), ..load.clone() };
        let outcome = start_step(*step, store, durability, &load)?;
        row.add(*step, &outcome);
        if *step == Step::Check {
            row.disk_bytes = bytes_of(&dir)?;
        }
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(row)
}

fn warm(bytes: usize) -> Result<()> {
    engines::bound::Region::new(bytes)?.bytes_mut().chunks_mut(4096).for_each(|page| page[0] = 1);
    Ok(())
}

fn name_of<V: ValueEnum>(value: V) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn start_step(step: Step, store: &str, durability: Durability, load: &Load) -> Result<Vec<(String, Phase)>> {
    if load.warm_bytes > 0 {
        let warmed =
            Command::new(std::env::current_exe()?).args(["warm", &load.warm_bytes.to_string()]).status()?;
        if !warmed.success() {
            return Err(format!("warming memory ended with {warmed}").into());
        }
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["step", &name_of(step), store, &name_of(durability)]);
    command.arg("--dir").arg(&load.dir);
    command.args(["--pairs", &load.pairs.to_string(), "--batch", &load.batch.to_string()]);
    command.args(["--cache", &load.cache, "--seconds", &load.seconds.to_string()]);
    if let Some(inserted) = load.inserted {
        command.args(["--inserted", &inserted.to_string()]);
    }
    if load.direct {
        command.arg("--direct");
    }
    if load.mapped {
        command.arg("--mapped");
    }
    if let Some(cgroup) = &load.cgroup {
        command.arg("--cgroup").arg(cgroup);
    }
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let phases = text.lines().map(serde_json::from_str).collect::<std::result::Result<Vec<_>, _>>()?;
    // The first step ends with SIGKILL, after its last line.
    let complete = if step == Step::Load { phases.len() == 3 } else { output.status.success() };
    if complete { Ok(phases) } else { Err(format!("{} ended with {}", name_of(step), output.status).into()) }
}

fn bytes_of(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { bytes_of(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(bytes)
}

fn run_step(step: Step, store: &str, durability: Durability, load: &Load) -> Result<()> {
    if let Some(cgroup) = &load.cgroup {
        std::fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())?;
    }
    let dir = load.dir.join("row");
    let config = Config {
        dir: &dir,
        durability,
        cache: load.cache_bytes()?,
        pairs: load.pairs,
        direct: load.direct,
        mapped: load.mapped,
    };
    let mark = Mark::now();
    let mut engine = engine::open(store, &config)?;
    let mut found = false;
    engine.get(&[key(0)], &mut |_, value| found = value.is_some())?;
    say("open", &mark.phase(1, 1));
    match step {
        Step::Load => {
            let inserted = insert(&mut *engine, durability, load)?;
            say("get", &get(&mut *engine, load, inserted)?);
            // SAFETY: a signal to this process, which does not return.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        Step::Check => {
            check(&mut *engine, load)?;
            let mark = Mark::now();
            engine.close()?;
            say("close", &mark.phase(1, 1));
        }
        Step::Delete => {
            say("get again", &get(&mut *engine, load, load.inserted.unwrap_or(load.pairs))?);
            say("delete", &delete(&mut *engine, durability, load)?);
            let mark = Mark::now();
            engine.close()?;
            say("close", &mark.phase(1, 1));
        }
    }
    Ok(())
}

fn say(name: &str, phase: &Phase) {
    let line = serde_json::to_string(&(name, phase)).unwrap_or_default();
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn insert(engine: &mut dyn Engine, durability: Durability, load: &Load) -> Result<u64> {
    let order = Order::new(load.pairs, 1);
    let mut batch = Vec::with_capacity(load.batch as usize);
    let mark = Mark::now();
    let mut done = 0;
    while done < load.pairs && mark.seconds() < load.seconds as f64 {
        batch.clear();
        let end = load.pairs.min(done + load.batch);
        batch.extend((done..end).map(|place| order.at(place)).map(|number| (key(number), value(number))));
        engine.put(&batch)?;
        done = end;
    }
    if durability == Durability::End {
        engine.sync()?;
    }
    say("insert", &mark.phase(done, load.pairs));
    Ok(done)
}

/// Gets pairs in another order, those that the insert has come to.
fn get(engine: &mut dyn Engine, load: &Load, inserted: u64) -> Result<Phase> {
    let (inserts, order) = (Order::new(load.pairs, 1), Order::new(inserted, 2));
    let all = inserted == load.pairs;
    let mut keys = Vec::with_capacity(load.batch as usize);
    let (mut done, mut missing, mut sum) = (0, 0u64, 0u64);
    let mark = Mark::now();
    while done < inserted && mark.seconds() < load.seconds as f64 {
        keys.clear();
        let end = inserted.min(done + load.batch);
        // A random order of all numbers is one of the pairs that are there only if all are.
        keys.extend(
            (done..end).map(|place| order.at(place)).map(|at| key(if all { at } else { inserts.at(at) })),
        );
        engine.get(&keys, &mut |_, found| match found {
            // Every line of the value is read.
            Some(value) => sum += value.iter().step_by(32).map(|byte| u64::from(*byte)).sum::<u64>(),
            None => missing += 1,
        })?;
        done = end;
    }
    let phase = mark.phase(done, load.pairs);
    std::hint::black_box(sum);
    if missing > 0 && all {
        return Err(format!("{missing} of {done} pairs are missing").into());
    }
    Ok(phase)
}

/// Compares every value.
fn check(engine: &mut dyn Engine, load: &Load) -> Result<()> {
    let order = Order::new(load.pairs, 1);
    let (mut wrong, mut missing) = (0u64, 0u64);
    let inserted = load.inserted.unwrap_or(load.pairs);
    for start in (0..inserted).step_by(load.batch as usize) {
        let numbers: Vec<_> =
            (start..inserted.min(start + load.batch)).map(|place| order.at(place)).collect();
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        engine.get(&keys, &mut |at, found| match found {
            Some(found) => wrong += u64::from(found != value(numbers[at])),
            None => missing += 1,
        })?;
    }
    if wrong > 0 {
        return Err(format!("{wrong} values are wrong").into());
    }
    if missing > 0 {
        return Err(format!("{missing} of {inserted} pairs are lost").into());
    }
    Ok(())
}

fn delete(engine: &mut dyn Engine, durability: Durability, load: &Load) -> Result<Phase> {
    let wanted = load.inserted.unwrap_or(load.pairs);
    let all = wanted == load.pairs;
    let (inserts, order) = (Order::new(load.pairs, 1), Order::new(wanted, 3));
    let mut keys = Vec::with_capacity(load.batch as usize);
    let mark = Mark::now();
    let mut done = 0;
    while done < wanted && mark.seconds() < load.seconds as f64 {
        keys.clear();
        let end = wanted.min(done + load.batch);
        let numbers = (done..end).map(|place| order.at(place));
        keys.extend(numbers.map(|at| key(if all { at } else { inserts.at(at) })));
        engine.delete(&keys)?;
        done = end;
    }
    if durability == Durability::End {
        engine.sync()?;
    }
    Ok(mark.phase(done, load.pairs))
}
