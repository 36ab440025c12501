//! The result of a simulation, as text and as JSON.

use super::heat::HeatMap;
use super::simulate::{LevelName, Presentation, SimulateArgs};
use super::workload;
use crate::table::{Align, Table};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use weft_core::BLOCK_BYTES;
use weft_core::hist::Summary;
use weft_core::units::{format_nanos, format_size};
use weft_device::Geometry;
use weft_device::gc::{VictimPolicy, waf};
use weft_device::ssd::HandleUsage;
use weft_sim::block::Workload;
use weft_sim::flash::{HeatRow, Phase, Target};

/// Version of the JSON; it grows without a new number, and gets one when a field changes its meaning or goes.
const SIMULATION_VERSION: u32 = 1;

/// Erases of the blocks of a device since it was made.
#[derive(Serialize)]
struct Erases {
    blocks: u64,
    least: u32,
    mean: f64,
    most: u32,
    deviation: f64,
}

/// What theory says of uniform writes.
#[derive(Serialize)]
struct Theory {
    /// With FIFO cleaning; greedy comes close to it from below.
    fifo: f64,
    /// With random victims.
    random: f64,
}

#[derive(Serialize)]
struct Fdp {
    /// While measured.
    hbmw: u64,
    mbmw: u64,
    mbe: u64,
    /// Since the drive was made.
    media_reallocated_events: u64,
    handles: Vec<HandleUsage>,
}

/// The report of a simulation.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    presentation: Presentation,
    level: Option<LevelName>,
    capacity_bytes: u64,
    flash_bytes: u64,
    over_provisioning_percent: f64,
    alpha: Option<f64>,
    gc: &'static str,
    shared_relocation: bool,
    workload: String,
    queue_depth: u32,
    requests: u64,
    host_bytes: u64,
    media_bytes: u64,
    moved_bytes: u64,
    waf: f64,
    theory: Option<Theory>,
    erases: u64,
    erases_by_block: Erases,
    read: Summary,
    write: Summary,
    /// Of the device's time.
    device_ns: u64,
    host_bytes_per_s: f64,
    fdp: Option<Fdp>,
    /// Erases of each block since the device was made, when asked for.
    wear: Option<HeatMap>,
    /// Operations of the flash that this machine simulated in a second.
    flash_operations_per_s: f64,
    wall_ns: u64,
}

impl Report {
    /// The report of a simulation that is over.
    #[allow(clippy::too_many_arguments, reason = "each is a part of the simulation, and this is called once")]
    pub fn new(
        args: &SimulateArgs,
        geometry: &Geometry,
        queue_depth: u32,
        target: &Target,
        workload: &Workload,
        phase: Phase,
        wall: Duration,
        map: HeatMap,
    ) -> Report {
        let Phase { before, after, .. } = phase;
        let host_bytes = after.host_bytes - before.host_bytes;
        let media_bytes = after.media_bytes - before.media_bytes;
        let per_second =
            |amount: u64, seconds: f64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        let alpha = target.alpha();
        let uniform =
            args.reads < 100 && workload.is_uniform(target.blocks_per_page(), target.capacity_blocks());
        let known = alpha.filter(|alpha| uniform && *alpha > 1.0);
        let theory = known.map(|alpha| Theory { fifo: waf::fifo(alpha), random: waf::random(alpha) });
        let fdp = target.fdp().map(|fdp| {
            let before = phase.fdp_before.unwrap_or_default();
            Fdp {
                hbmw: fdp.statistics.hbmw - before.hbmw,
                mbmw: fdp.statistics.mbmw - before.mbmw,
                mbe: fdp.statistics.mbe - before.mbe,
                media_reallocated_events: fdp.media_reallocated,
                handles: fdp.handles,
            }
        });
        Report {
            version: SIMULATION_VERSION,
            presentation: match args.level {
                Some(_) => Presentation::OpenChannel,
                None => args.presentation,
            },
            level: args.level,
            capacity_bytes: target.capacity_blocks() * BLOCK_BYTES as u64,
            flash_bytes: geometry.total_bytes,
            over_provisioning_percent: args.op,
            alpha,
            gc: VictimPolicy::name(args.gc),
            shared_relocation: args.shared_relocation,
            workload: workload::name(workload, args),
            queue_depth,
            requests: phase.requests,
            host_bytes,
            media_bytes,
            moved_bytes: after.moved_bytes - before.moved_bytes,
            waf: if host_bytes == 0 { 1.0 } else { media_bytes as f64 / host_bytes as f64 },
            theory,
            erases: after.erases - before.erases,
            erases_by_block: Erases::of(map.rows()),
            read: phase.read,
            write: phase.write,
            device_ns: phase.device_ns,
            host_bytes_per_s: per_second(host_bytes, phase.device_ns as f64 / 1e9),
            fdp,
            wear: args.wear.then_some(map),
            flash_operations_per_s: per_second(
                after.flash_operations - before.flash_operations,
                phase.wall.as_secs_f64(),
            ),
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl Erases {
    fn of(rows: &[HeatRow]) -> Erases {
        let erases: Vec<u32> = rows.iter().flat_map(|row| &row.erases).copied().collect();
        let count = erases.len().max(1) as f64;
        let mean = erases.iter().map(|n| f64::from(*n)).sum::<f64>() / count;
        let variance = erases.iter().map(|n| (f64::from(*n) - mean).powi(2)).sum::<f64>() / count;
        Erases {
            blocks: erases.len() as u64,
            least: erases.iter().copied().min().unwrap_or(0),
            mean,
            most: erases.iter().copied().max().unwrap_or(0),
            deviation: variance.sqrt(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let presentation = match (self.level, self.presentation) {
            (Some(LevelName::Raw), _) => "raw level, with a log of the application's own",
            (Some(LevelName::Function), _) => "function level, with a page map in the application",
            (Some(LevelName::Policy), _) => "policy level",
            (None, Presentation::Conventional) => "conventional",
            (None, Presentation::Fdp) => "FDP",
            (None, Presentation::Zoned) => "zoned, with a page map in the host",
            (None, Presentation::OpenChannel) => "open-channel, with a page map in the host",
        };
        let alpha = self.alpha.map_or_else(|| "mapped by block".into(), |alpha| format!("alpha {alpha:.3}"));
        writeln!(
            f,
            "{presentation}: {} of {} of flash (over-provisioning {} %, {alpha})",
            format_size(self.capacity_bytes),
            format_size(self.flash_bytes),
            self.over_provisioning_percent,
        )?;
        writeln!(
            f,
            "workload: {}; {} requests, {} under way\n",
            self.workload, self.requests, self.queue_depth
        )?;
        let mut table = Table::new(&[("measured", Align::Left), ("", Align::Right)]);
        let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
        row("written by the host", format_size(self.host_bytes));
        row("programmed", format_size(self.media_bytes));
        row(&format!("moved ({})", self.gc), format_size(self.moved_bytes));
        row("write amplification", format!("{:.3}", self.waf));
        if let Some(theory) = &self.theory {
            row("  theory, FIFO", format!("{:.3}", theory.fifo));
            row("  theory, random victims", format!("{:.3}", theory.random));
        }
        row("erases", self.erases.to_string());
        let by_block = &self.erases_by_block;
        row(
            "erases of a block so far",
            format!("{} least, {:.1} mean, {} most", by_block.least, by_block.mean, by_block.most),
        );
        row("device time", format_nanos(self.device_ns));
        row("host writes", format!("{:.1} MB/s", self.host_bytes_per_s / 1e6));
        writeln!(f, "{table}")?;
        let mut table = Table::new(&[
            ("latency", Align::Left),
            ("requests", Align::Right),
            ("mean", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("p99.9", Align::Right),
            ("max", Align::Right),
        ]);
        for (name, summary) in [("read", &self.read), ("write", &self.write)] {
            if summary.count > 0 {
                let times =
                    [summary.mean_ns, summary.p50_ns, summary.p99_ns, summary.p999_ns, summary.max_ns];
                table.row(
                    [name.to_string(), summary.count.to_string()].into_iter().chain(times.map(format_nanos)),
                );
            }
        }
        writeln!(f, "{table}")?;
        if let Some(fdp) = &self.fdp {
            writeln!(
                f,
                "FDP statistics: HBMW {}, MBMW {}, MBE {}; {} media reallocated events so far\n",
                format_size(fdp.hbmw),
                format_size(fdp.mbmw),
                format_size(fdp.mbe),
                fdp.media_reallocated_events
            )?;
            let mut table = Table::new(&[
                ("handle", Align::Right),
                ("written so far", Align::Right),
                ("moved since", Align::Right),
                ("left in its unit", Align::Right),
            ]);
            for usage in &fdp.handles {
                table.row([
                    usage.handle.to_string(),
                    format_size(usage.host_bytes),
                    format_size(usage.moved_bytes),
                    format_size(usage.available_bytes),
                ]);
            }
            writeln!(f, "{table}")?;
        }
        if let Some(map) = &self.wear {
            writeln!(f, "{}\n(a full cell: {} erases)\n", map.for_terminal(), by_block.most)?;
        }
        writeln!(
            f,
            "simulated in {}, {:.1} million flash operations a second",
            format_nanos(self.wall_ns),
            self.flash_operations_per_s / 1e6
        )
    }
}
