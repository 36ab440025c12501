//! A workload that behaves like leveled RocksDB: fill in random order, then overwrite at random.
//!
//! Keys are numbers and tables are sorted lists of them, so that overlaps, merges and the sizes of outputs are real
//! and not assumed. A write goes to the log and the memtable; a full memtable is flushed to level 0 by the one thread
//! `rocksdb:high`; `rocksdb:low` threads compact the level that is furthest above its target, of it the table that
//! overlaps least with the next level. Work advances in turns: each running job writes one piece, so that files of
//! concurrent jobs are interleaved as they are in the real program.

use std::collections::{BTreeSet, VecDeque};
use weft_core::random::spread;
use weft_placement::recording::{Event, FileAction, Opener, Workload};
use weft_placement::{OpenIntent, WriteHint};

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct LsmShape {
    /// Distinct keys.
    pub keys: u32,
    /// Bytes of a key with its value.
    pub entry_bytes: u32,
    /// Times that as many keys as there are get overwritten after the fill.
    pub overwrites: u32,
    /// Bytes of a memtable, and so of a log.
    pub memtable_bytes: u32,
    /// Bytes of a table that a compaction writes.
    pub table_bytes: u32,
    /// Bytes of level 1; each further level holds ten times as much.
    pub level1_bytes: u64,
    /// Threads that compact.
    pub compactions: u32,
    /// The seed of the keys.
    pub seed: u64,
}

impl Default for LsmShape {
    /// Tables of 2 MiB: half and a quarter of the zones that they are to be tried on.
    fn default() -> LsmShape {
        LsmShape {
            keys: 400_000,
            entry_bytes: 1024,
            overwrites: 2,
            memtable_bytes: 4 << 20,
            table_bytes: 2 << 20,
            level1_bytes: 16 << 20,
            compactions: 1,
            seed: 1,
        }
    }
}

/// Tables of level 0 at which they are compacted.
const L0_TRIGGER: usize = 4;
/// Tables of level 0 at which writes stop.
const L0_STOP: usize = 20;
/// Full memtables that may wait for their flush.
const MEMTABLES_WAITING: usize = 1;
const LEVELS: usize = 6;
const LEVEL_FACTOR: u64 = 10;
/// Bytes that a job writes in one turn.
const PIECE: u64 = 256 << 10;
const FLUSH_THREAD: u32 = 100;
const COMPACTION_THREAD: u32 = 200;

#[derive(Clone, Debug)]
struct Table {
    file: u32,
    keys: Vec<u32>,
    busy: bool,
}

/// A flush or compaction under way.
#[derive(Debug, Default)]
struct Job {
    thread: &'static str,
    thread_id: u32,
    to_level: usize,
    inputs: Vec<(usize, u32)>,
    logs: Vec<u32>,
    /// Tables still to be written.
    waiting: VecDeque<Vec<u32>>,
    /// The table that is being written: file, keys, bytes left.
    current: Option<(u32, Vec<u32>, u64)>,
    done: Vec<Table>,
}

/// What became of a level that is due.
enum Compaction {
    Job(Job),
    Moved,
    Nothing,
}

#[derive(Default)]
struct Lsm {
    shape: LsmShape,
    events: Vec<Event>,
    levels: Vec<Vec<Table>>,
    memtable: BTreeSet<u32>,
    log: u32,
    log_bytes: u64,
    /// Full memtables with their logs.
    immutable: VecDeque<(BTreeSet<u32>, u32)>,
    /// The flush, and behind it a compaction for each worker.
    jobs: Vec<Option<Job>>,
    next_file: u32,
}

/// Generates the events.
pub fn leveled(shape: LsmShape) -> Workload {
    let mut lsm = Lsm {
        shape,
        levels: vec![Vec::new(); LEVELS],
        jobs: (0..=shape.compactions.max(1)).map(|_| None).collect(),
        next_file: 1,
        ..Lsm::default()
    };
    lsm.new_log();
    let total = u64::from(shape.keys) * u64::from(shape.overwrites + 1);
    let per_turn = PIECE / u64::from(shape.entry_bytes).max(1);
    let mut written = 0;
    while written < total {
        if lsm.may_write() {
            let count = per_turn.min(total - written);
            lsm.write(count, written);
            written += count;
        }
        lsm.work();
    }
    while lsm.work() {}
    Workload { events: lsm.events }
}

impl Lsm {
    fn may_write(&self) -> bool {
        self.immutable.len() <= MEMTABLES_WAITING && self.levels[0].len() < L0_STOP
    }

    fn write(&mut self, count: u64, before: u64) {
        for n in before..before + count {
            let draw = spread(self.shape.seed.wrapping_mul(0x9e37_79b9).wrapping_add(n + 1));
            // Filling visits each key once, in an order that is as good as random.
            let key = if n < u64::from(self.shape.keys) {
                scatter(n as u32, self.shape.keys)
            } else {
                (draw % u64::from(self.shape.keys)) as u32
            };
            self.memtable.insert(key);
        }
        let bytes = count * u64::from(self.shape.entry_bytes);
        self.log_bytes += bytes;
        self.events.push(Event::new(self.log, FileAction::Write { bytes }));
        if self.log_bytes >= u64::from(self.shape.memtable_bytes) {
            let full = std::mem::take(&mut self.memtable);
            let log = self.log;
            self.immutable.push_back((full, log));
            self.new_log();
        }
    }

    /// Lets every job write one piece, ends those that are done and begins those that are due. False when nothing is.
    fn work(&mut self) -> bool {
        self.begin_flush();
        for worker in 1..self.jobs.len() {
            if self.jobs[worker].is_none() {
                self.jobs[worker] = self.pick_compaction(worker as u32 - 1);
            }
        }
        let mut busy = false;
        for worker in 0..self.jobs.len() {
            if let Some(mut job) = self.jobs[worker].take() {
                busy = true;
                self.jobs[worker] = self.advance(&mut job).then_some(job);
            }
        }
        busy
    }

    fn begin_flush(&mut self) {
        if self.jobs[0].is_some() {
            return;
        }
        let Some((memtable, log)) = self.immutable.pop_front() else { return };
        self.jobs[0] = Some(Job {
            thread: "rocksdb:high",
            thread_id: FLUSH_THREAD,
            to_level: 0,
            logs: vec![log],
            waiting: VecDeque::from([memtable.into_iter().collect()]),
            ..Job::default()
        });
    }

    /// Writes one piece of a job; false when the job has ended.
    fn advance(&mut self, job: &mut Job) -> bool {
        if job.current.is_none()
            && let Some(keys) = job.waiting.pop_front()
        {
            let file = self.new_table(job);
            let bytes = keys.len() as u64 * u64::from(self.shape.entry_bytes);
            job.current = Some((file, keys, bytes));
        }
        let Some((file, keys, left)) = job.current.take() else {
            self.finish(job);
            return false;
        };
        let bytes = left.min(PIECE);
        self.events.push(Event::new(file, FileAction::Write { bytes }));
        if left > bytes {
            job.current = Some((file, keys, left - bytes));
        } else {
            self.events.push(Event::new(file, FileAction::Close));
            job.done.push(Table { file, keys, busy: false });
        }
        true
    }

    fn finish(&mut self, job: &mut Job) {
        for (level, file) in job.inputs.drain(..) {
            self.levels[level].retain(|t| t.file != file);
            self.events.push(Event::new(file, FileAction::Delete));
        }
        for file in job.logs.drain(..) {
            self.events.push(Event::new(file, FileAction::Close));
            self.events.push(Event::new(file, FileAction::Delete));
        }
        let level = &mut self.levels[job.to_level];
        level.append(&mut job.done);
        if job.to_level > 0 {
            level.sort_by_key(|t| t.keys.first().copied());
        }
    }

    fn target(&self, level: usize) -> u64 {
        self.shape.level1_bytes * LEVEL_FACTOR.pow(level as u32 - 1)
    }

    fn bytes(&self, table: &Table) -> u64 {
        table.keys.len() as u64 * u64::from(self.shape.entry_bytes)
    }

    fn pick_compaction(&mut self, worker: u32) -> Option<Job> {
        'moved: loop {
            for level in self.levels_due() {
                match self.compact(level, worker) {
                    Compaction::Job(job) => return Some(job),
                    Compaction::Moved => continue 'moved,
                    Compaction::Nothing => {}
                }
            }
            return None;
        }
    }

    /// Levels that are above their target, the furthest first.
    fn levels_due(&self) -> Vec<usize> {
        let mut scores: Vec<(f64, usize)> = Vec::new();
        if !self.levels[0].iter().any(|t| t.busy) {
            scores.push((self.levels[0].len() as f64 / L0_TRIGGER as f64, 0));
        }
        for level in 1..LEVELS - 1 {
            let idle: u64 = self.levels[level].iter().filter(|t| !t.busy).map(|t| self.bytes(t)).sum();
            scores.push((idle as f64 / self.target(level) as f64, level));
        }
        scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        scores.into_iter().take_while(|(score, _)| *score >= 1.0).map(|(_, level)| level).collect()
    }

    /// A compaction out of a level, if one can run beside those that do.
    fn compact(&mut self, level: usize, worker: u32) -> Compaction {
        let upper: Vec<usize> = if level == 0 {
            (0..self.levels[0].len()).collect()
        } else {
            self.least_overlapping(level).into_iter().collect()
        };
        let first = upper.iter().filter_map(|&t| self.levels[level][t].keys.first()).min().copied();
        let last = upper.iter().filter_map(|&t| self.levels[level][t].keys.last()).max().copied();
        let (Some(first), Some(last)) = (first, last) else { return Compaction::Nothing };
        let lower = overlapping(&self.levels[level + 1], first, last);
        if lower.iter().any(|&t| self.levels[level + 1][t].busy) {
            return Compaction::Nothing;
        }
        if let (true, 1.., [table]) = (lower.is_empty(), level, upper.as_slice()) {
            // Nothing to merge with: the table moves down without being written.
            let table = self.levels[level].remove(*table);
            let below = &mut self.levels[level + 1];
            below.push(table);
            below.sort_by_key(|t| t.keys.first().copied());
            return Compaction::Moved;
        }
        let mut keys: Vec<u32> = Vec::new();
        let mut inputs = Vec::new();
        for (level, tables) in [(level, &upper), (level + 1, &lower)] {
            for &at in tables {
                let table = &mut self.levels[level][at];
                table.busy = true;
                keys.extend(&table.keys);
                inputs.push((level, table.file));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let per_table = (self.shape.table_bytes / self.shape.entry_bytes).max(1) as usize;
        Compaction::Job(Job {
            thread: "rocksdb:low",
            thread_id: COMPACTION_THREAD + worker,
            to_level: level + 1,
            inputs,
            waiting: keys.chunks(per_table).map(<[u32]>::to_vec).collect(),
            ..Job::default()
        })
    }

    fn least_overlapping(&self, level: usize) -> Option<usize> {
        let below = &self.levels[level + 1];
        let ratio = |table: &Table| {
            let (first, last) = (*table.keys.first()?, *table.keys.last()?);
            let over = overlapping(below, first, last);
            if over.iter().any(|&t| below[t].busy) {
                return None;
            }
            let bytes: u64 = over.iter().map(|&t| self.bytes(&below[t])).sum();
            Some(bytes as f64 / self.bytes(table).max(1) as f64)
        };
        let tables = self.levels[level].iter().enumerate().filter(|(_, t)| !t.busy);
        tables
            .filter_map(|(at, table)| Some((ratio(table)?, at)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, at)| at)
    }

    fn new_log(&mut self) {
        self.log = self.create("log", "db_bench", 1, WriteHint::Short);
        self.log_bytes = 0;
    }

    fn new_table(&mut self, job: &Job) -> u32 {
        let hint = match job.to_level {
            0 | 1 => WriteHint::Medium,
            2 => WriteHint::Long,
            _ => WriteHint::Extreme,
        };
        self.create("sst", job.thread, job.thread_id, hint)
    }

    fn create(&mut self, suffix: &str, thread: &str, thread_id: u32, hint: WriteHint) -> u32 {
        let file = self.next_file;
        self.next_file += 1;
        let path = format!("/db/{file:06}.{suffix}").into_bytes();
        let opener = Opener {
            process: "db_bench".to_string(),
            thread: thread.to_string(),
            thread_id,
            flags: OpenIntent::CREATE | OpenIntent::WRITE | OpenIntent::TRUNC,
        };
        self.events.push(Event::new(file, FileAction::Create { path, opener }));
        self.events.push(Event::new(file, FileAction::Hint(hint)));
        file
    }
}

/// Tables whose keys overlap with a range; the level is sorted and its tables are disjoint.
fn overlapping(level: &[Table], first: u32, last: u32) -> Vec<usize> {
    (0..level.len())
        .filter(|&at| {
            let keys = &level[at].keys;
            keys.first().is_some_and(|k| *k <= last) && keys.last().is_some_and(|k| *k >= first)
        })
        .collect()
}

/// A permutation of `0..count`: multiplication by a number that has no divisor in common with it.
fn scatter(n: u32, count: u32) -> u32 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let count = u64::from(count.max(1));
    let mut factor = (count as f64 * 0.618_033_988_75) as u64 | 1;
    while gcd(factor, count) != 1 {
        factor += 2;
    }
    (u64::from(n) * factor % count) as u32
}
