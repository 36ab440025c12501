//! The workload of a simulation: synthetic, or from a trace.

use super::drive::within;
use crate::error::CliError;
use crate::progress;
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weft_core::BLOCK_BYTES;
use weft_core::units::{format_size, parse_size};
use weft_sim::block::{Pattern, Synthetic, SyntheticSetup, Trace, TraceFormat, Workload};

/// Where synthetic requests go.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PatternName {
    /// All addresses with equal probability.
    #[default]
    Uniform,
    /// From the start to the end of the device, repeatedly.
    Sequential,
    /// Addresses with a Zipf distribution.
    Zipf,
    /// Most requests go to a small part of the device.
    HotCold,
}

/// The form of a trace.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceName {
    /// fio's iolog, version 2 or 3.
    Fio,
    /// MSR-Cambridge CSV.
    Msr,
}

/// What is asked of the device.
#[derive(Args, Clone, Debug)]
pub struct WorkloadArgs {
    /// Distribution of the requests.
    #[arg(long, value_enum, default_value_t, conflicts_with = "trace")]
    pub workload: PatternName,
    /// Exponent of workload zipf, below 1.
    #[arg(long, value_name = "X", default_value_t = 0.99)]
    pub theta: f64,
    /// Size of the hot part in workload hot-cold, in percent of the device.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = |text: &str| within(text, 0.01..=99.99))]
    pub hot_space: f64,
    /// Share of the requests that go to the hot part in workload hot-cold, in percent of all requests.
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = |text: &str| within(text, 0.0..=100.0))]
    pub hot_requests: f64,
    /// Size of a request [default: 4K; a flash page with --level]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub request_size: Option<u64>,
    /// Share of reads, in percent of the requests.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub reads: u32,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Play a block trace instead of a workload: an fio iolog or an MSR-Cambridge CSV.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Format of the trace [default: weft recognises the format by the first line]
    #[arg(long, value_enum, requires = "trace")]
    pub trace_format: Option<TraceName>,
}

/// The workload that the options describe, with synthetic requests of so many bytes, on a device of so many blocks.
pub fn workload(
    args: &WorkloadArgs,
    request_bytes: u64,
    capacity: u64,
    quiet: bool,
) -> Result<Workload, CliError> {
    match &args.trace {
        Some(path) => Ok(Workload::Trace(trace(args, path, capacity, quiet)?)),
        None => synthetic(args, request_bytes, capacity),
    }
}

/// A workload in words.
pub fn name(workload: &Workload, trace: Option<&Path>) -> String {
    let Workload::Synthetic(_, setup) = workload else {
        return trace.unwrap_or(Path::new("trace")).display().to_string();
    };
    let pattern = match setup.pattern {
        Pattern::Uniform => "uniform".to_string(),
        Pattern::Sequential => "sequential".to_string(),
        Pattern::Zipf { theta } => format!("zipf {theta}"),
        Pattern::HotCold { hot_space, hot_requests } => {
            format!("{:.0} % of requests to {:.0} % of the device", hot_requests * 100.0, hot_space * 100.0)
        }
    };
    let size = format_size(u64::from(setup.request_blocks) * BLOCK_BYTES as u64);
    format!("{pattern}, {size}, {} % reads", setup.read_percent)
}

fn synthetic(args: &WorkloadArgs, request_bytes: u64, capacity: u64) -> Result<Workload, CliError> {
    let request_blocks = request_bytes / BLOCK_BYTES as u64;
    if request_blocks == 0 || !request_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(CliError::said(
            format!("--request-size {request_bytes}: expected a multiple of 4K"),
            "give another --request-size, such as 4K or 16K",
        ));
    }
    let pattern = match args.workload {
        PatternName::Uniform => Pattern::Uniform,
        PatternName::Sequential => Pattern::Sequential,
        PatternName::Zipf => Pattern::Zipf { theta: args.theta },
        PatternName::HotCold => {
            Pattern::HotCold { hot_space: args.hot_space / 100.0, hot_requests: args.hot_requests / 100.0 }
        }
    };
    let setup = SyntheticSetup {
        pattern,
        blocks: capacity,
        request_blocks: u32::try_from(request_blocks).unwrap_or(u32::MAX),
        read_percent: args.reads,
        seed: args.seed,
    };
    let workload = Synthetic::new(setup).map_err(|what| CliError::said(what, ""))?;
    Ok(Workload::Synthetic(Box::new(workload), setup))
}

fn trace(args: &WorkloadArgs, path: &Path, capacity: u64, quiet: bool) -> Result<Trace, CliError> {
    let file = File::open(path).map_err(|e| CliError::io("open", path, e))?;
    let bytes = file.metadata().map_or(0, |found| found.len());
    let bar = progress::bytes("trace", bytes, quiet);
    let format = args.trace_format.map(|name| match name {
        TraceName::Fio => TraceFormat::Fio,
        TraceName::Msr => TraceFormat::Msr,
    });
    let trace = Trace::read(BufReader::with_capacity(1 << 20, file), format, |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let trace = trace
        .map_err(|error| CliError::of(path, error, "correct the line, or choose another --trace-format"))?;
    if trace.requests().is_empty() {
        return Err(CliError::of(path, "the trace has no requests", "give another trace"));
    }
    if trace.blocks() > capacity {
        let wanted = format_size(trace.blocks() * BLOCK_BYTES as u64);
        return Err(CliError::of(
            path,
            format_args!(
                "the trace touches {wanted}, and the device has only {}",
                format_size(capacity * BLOCK_BYTES as u64)
            ),
            "give a larger --size",
        ));
    }
    Ok(trace)
}
