//! The workload of a simulation: synthetic, or from a trace.

use super::simulate::SimulateArgs;
use crate::error::CliError;
use crate::progress;
use clap::ValueEnum;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use weft_core::BLOCK_BYTES;
use weft_core::units::format_size;
use weft_sim::block::{Pattern, Synthetic, SyntheticSetup, Trace, TraceFormat, Workload};

/// Where synthetic requests go.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PatternName {
    /// All places with equal probability.
    #[default]
    Uniform,
    /// From the start to the end, repeatedly.
    Sequential,
    /// Places with a Zipf distribution.
    Zipf,
    /// A part of the device gets most of the requests.
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

/// The workload that the options describe, with synthetic requests of so many bytes, on a device of so many blocks.
pub fn workload(args: &SimulateArgs, request_bytes: u64, capacity: u64) -> Result<Workload, CliError> {
    match &args.trace {
        Some(path) => Ok(Workload::Trace(trace(args, path, capacity)?)),
        None => synthetic(args, request_bytes, capacity),
    }
}

/// A workload in words.
pub fn name(workload: &Workload, args: &SimulateArgs) -> String {
    let Workload::Synthetic(_, setup) = workload else {
        return args.trace.as_deref().unwrap_or(Path::new("trace")).display().to_string();
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

fn synthetic(args: &SimulateArgs, request_bytes: u64, capacity: u64) -> Result<Workload, CliError> {
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

fn trace(args: &SimulateArgs, path: &Path, capacity: u64) -> Result<Trace, CliError> {
    let file = File::open(path).map_err(|e| CliError::io("open", path, e))?;
    let bytes = file.metadata().map_or(0, |found| found.len());
    let bar = progress::bytes("trace", bytes, args.quiet);
    let format = args.trace_format.map(|name| match name {
        TraceName::Fio => TraceFormat::Fio,
        TraceName::Msr => TraceFormat::Msr,
    });
    let trace = Trace::read(BufReader::with_capacity(1 << 20, file), format, |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let trace = trace.map_err(|error| {
        CliError::said(
            format!("{}: {error}", path.display()),
            "correct the line, or choose another --trace-format",
        )
    })?;
    if trace.requests().is_empty() {
        return Err(CliError::said(
            format!("{}: the trace has no requests", path.display()),
            "give another trace",
        ));
    }
    if trace.blocks() > capacity {
        let wanted = format_size(trace.blocks() * BLOCK_BYTES as u64);
        return Err(CliError::said(
            format!(
                "{}: the trace touches {wanted}, and the device has only {}",
                path.display(),
                format_size(capacity * BLOCK_BYTES as u64)
            ),
            "give a larger --size",
        ));
    }
    Ok(trace)
}
