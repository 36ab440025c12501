//! The result of a simulation, as text and as JSON.

use super::heat::HeatMap;
use crate::report::latency_table;
use crate::table::Table;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt;
use weft_core::hist::Summary;
use weft_core::units::{format_nanos, format_size};
use weft_device::Wear;
use weft_sim::flash::{FdpReport, HeatRow};

/// Version of the JSON; it grows without a new number, and gets one when a field changes its meaning or goes.
pub const SIMULATION_VERSION: u32 = 1;

/// How a device presents itself.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presentation {
    /// Logical blocks; the drive maps addresses and cleans flash.
    #[default]
    Conventional,
    /// Logical blocks with placement handles; the drive maps addresses and cleans flash.
    Fdp,
    /// Zones; the host maps addresses and cleans zones.
    Zoned,
    /// Physical addresses; the host maps addresses and cleans blocks.
    OpenChannel,
}

/// How an application uses open-channel flash.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelName {
    /// Blocks and pages; the application keeps a log, maps addresses, and cleans and erases blocks.
    Raw,
    /// Blocks that the library allocates and erases; the application maps pages to blocks and cleans blocks.
    Function,
    /// Logical pages; the library maps addresses and cleans blocks.
    Policy,
}

/// Erases of the blocks of a device since it was made.
#[derive(Serialize)]
pub struct Erases {
    blocks: u64,
    least: u32,
    mean: f64,
    most: u32,
    deviation: f64,
}

/// What theory says of uniform writes.
#[derive(Serialize)]
pub struct Theory {
    /// With FIFO cleaning; greedy comes close to it from below.
    pub fifo: f64,
    /// With random victims.
    pub random: f64,
}

/// The report of a simulation.
#[derive(Serialize)]
pub struct Report {
    pub version: u32,
    pub presentation: Presentation,
    pub level: Option<LevelName>,
    pub capacity_bytes: u64,
    pub flash_bytes: u64,
    pub over_provisioning_percent: f64,
    pub alpha: Option<f64>,
    pub gc: &'static str,
    pub shared_relocation: bool,
    pub workload: String,
    pub queue_depth: u32,
    pub requests: u64,
    pub host_bytes: u64,
    pub media_bytes: u64,
    pub moved_bytes: u64,
    pub waf: f64,
    pub theory: Option<Theory>,
    pub erases: u64,
    pub erases_by_block: Erases,
    pub read: Summary,
    pub write: Summary,
    /// Of the device's time.
    pub device_ns: u64,
    pub host_bytes_per_s: f64,
    pub fdp: Option<FdpReport>,
    /// Erases of each block since the device was made, when asked for.
    pub wear: Option<HeatMap>,
    /// Operations of the flash that this machine simulated in a second.
    pub flash_operations_per_s: f64,
    pub wall_ns: u64,
}

impl Erases {
    pub fn of(rows: &[HeatRow]) -> Erases {
        let erases: Vec<u32> = rows.iter().flat_map(|row| &row.erases).copied().collect();
        let Wear { blocks, erases_min, erases_mean, erases_max, erases_sd, .. } = Wear::of(&erases);
        Erases { blocks, least: erases_min, mean: erases_mean, most: erases_max, deviation: erases_sd }
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
        let mut table = Table::new("measured< >");
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
        let columns = "latency< requests> mean> p50> p99> p99.9> max>";
        let table = latency_table(columns, &[("read", &self.read), ("write", &self.write)]);
        writeln!(f, "{table}")?;
        if let Some(fdp) = &self.fdp {
            writeln!(
                f,
                "FDP statistics: HBMW {}, MBMW {}, MBE {}; {} media reallocated events so far\n",
                format_size(fdp.statistics.hbmw),
                format_size(fdp.statistics.mbmw),
                format_size(fdp.statistics.mbe),
                fdp.media_reallocated_events
            )?;
            let mut table = Table::new("handle> written so far> moved since> left in its unit>");
            for usage in &fdp.handles {
                let bytes = [usage.host_bytes, usage.moved_bytes, usage.available_bytes].map(format_size);
                table.row([usage.handle.to_string()].into_iter().chain(bytes));
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
