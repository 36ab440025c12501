//! RocksDB's own benchmark.

use crate::error::BenchError;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of output that an error shows.
const SHOWN: usize = 600;

/// What db_bench does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Workload {
    /// Random keys.
    Fillrandom,
    /// Random keys, each synced.
    Fillsync,
    /// Random reads of a database filled by random keys, in a process of its own.
    Readrandom,
    /// The same while another thread writes 5 MB/s.
    Readwhilewriting,
}

impl Workload {
    /// The benchmark's name.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Fillrandom => "fillrandom",
            Workload::Fillsync => "fillsync",
            Workload::Readrandom => "readrandom",
            Workload::Readwhilewriting => "readwhilewriting",
        }
    }

    /// Whether it needs a database that another process has filled.
    pub fn reads(self) -> bool {
        matches!(self, Workload::Readrandom | Workload::Readwhilewriting)
    }

    /// db_bench's arguments.
    pub fn args(self, db: &Path, keys: u64, syncs: u64) -> Vec<String> {
        let mut args = common(db, self.name());
        match self {
            Workload::Fillrandom => args.push(format!("--num={keys}")),
            // Some versions divide --num by a thousand here; --writes is what it says in all of them.
            Workload::Fillsync => args.extend([format!("--num={keys}"), format!("--writes={syncs}")]),
            Workload::Readrandom | Workload::Readwhilewriting => {
                args.extend([format!("--num={keys}"), "--use_existing_db".into()]);
                args.push(format!("--reads={}", keys / 2));
            }
        }
        if self == Workload::Readwhilewriting {
            args.push("--benchmark_write_rate_limit=5000000".into());
        }
        args
    }

    /// Arguments that fill the database that it reads.
    pub fn fill_args(db: &Path, keys: u64) -> Vec<String> {
        let mut args = common(db, "fillrandom,waitforcompaction");
        args.push(format!("--num={keys}"));
        args
    }
}

fn common(db: &Path, benchmarks: &str) -> Vec<String> {
    let mut args = vec![format!("--db={}", db.display()), format!("--benchmarks={benchmarks}")];
    let fixed = [
        "--value_size=400",
        "--compression_type=none",
        "--compaction_style=0",
        "--threads=1",
        "--seed=1",
        "--stats_interval=100000000",
        "--write_buffer_size=16777216",
        "--target_file_size_base=16777216",
        "--max_bytes_for_level_base=67108864",
    ];
    args.extend(fixed.map(String::from));
    args
}

/// The end of a program's output, for an error.
fn end_of(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let from = text.len().saturating_sub(SHOWN);
    text.chars().skip(from).collect::<String>().trim().to_string()
}

/// Runs a command to its end and returns its standard output.
pub fn output_of(command: &mut Command) -> Result<String, BenchError> {
    let shown = format!("{:?}", command.get_program());
    let output = command.stdin(Stdio::null()).output().map_err(|e| BenchError::io(&shown, e))?;
    if !output.status.success() {
        let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
        return Err(BenchError::Program {
            command: shown,
            status: output.status.code().unwrap_or(-1),
            output: end_of(said),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Operations per second of a benchmark in db_bench's output.
pub fn ops_per_second(output: &str, benchmark: &str) -> Result<f64, BenchError> {
    let line = output.lines().rev().find(|line| line.starts_with(benchmark) && line.contains(" ops/sec"));
    let figure = line.and_then(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "ops/sec")?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    });
    figure.ok_or_else(|| BenchError::NoFigure {
        command: format!("db_bench {benchmark}"),
        output: end_of(output.as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_read_from_the_benchmarks_line() {
        let output = "fillrandom   :       3.489 micros/op 286509 ops/sec 0.349 seconds 100000 operations;  113.7 MB/s\n\
                      readrandom   :       2.000 micros/op 500000 ops/sec 0.2 seconds; (63 of 100 found)\n";
        assert_eq!(ops_per_second(output, "fillrandom").unwrap(), 286_509.0);
        assert_eq!(ops_per_second(output, "readrandom").unwrap(), 500_000.0);
        assert!(ops_per_second(output, "fillsync").is_err());
    }
}
