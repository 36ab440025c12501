//! The report of a run: the program's work on the volume, and the effect of placement. As text for people, as JSON
//! (docs/formats/report-json.md) for programs.

use crate::table::{Align, Table};
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_core::hist::Summary;
use weft_core::units::{format_nanos, format_size};
use weft_volume::report::{Snapshot, Stream};

/// Version of the JSON; it grows without a new number, and gets one when a field changes its meaning or goes.
pub const REPORT_VERSION: u32 = 1;

/// The report of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its exit status; 128 and the signal's number when a signal ended it.
    pub status: i32,
    /// How long it ran, in nanoseconds of the host's time.
    pub wall_ns: u64,
    /// Whether another process served the volume, so that other programs may be in the figures.
    pub shared: bool,
    /// [`Snapshot::waf`] of the run.
    pub waf: f64,
    /// [`Snapshot::data_waf`] of the run.
    pub data_waf: f64,
    /// What the volume counted during the run.
    pub during: Snapshot,
}

impl Report {
    /// A report from what was counted before and after.
    pub fn new(
        command: Vec<String>,
        status: i32,
        wall_ns: u64,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Report {
        let during = after.since(before);
        Report {
            version: REPORT_VERSION,
            command,
            status,
            wall_ns,
            shared: false,
            waf: during.waf(),
            data_waf: during.data_waf(),
            during,
        }
    }
}

/// Whole per cent of a part.
fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (part as f64 * 100.0 / whole as f64).round() as u64 }
}

/// `-` for nothing, so that tables show where something happened.
pub fn size_or_dash(bytes: u64) -> String {
    if bytes == 0 { "-".to_string() } else { format_size(bytes) }
}

fn count_or_dash(n: u64) -> String {
    if n == 0 { "-".to_string() } else { n.to_string() }
}

/// The streams of a snapshot.
pub fn streams_table(streams: &[Stream]) -> Table {
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("files", Align::Right),
        ("deleted", Align::Right),
        ("groups", Align::Right),
        ("written", Align::Right),
        ("relocated", Align::Right),
        ("zones", Align::Right),
        ("live", Align::Right),
        ("lifetime p50", Align::Right),
        ("p90", Align::Right),
    ])
    .indented(2);
    for s in streams {
        table.row([
            s.name.clone(),
            count_or_dash(s.files),
            count_or_dash(s.deleted),
            count_or_dash(u64::from(s.groups)),
            size_or_dash(s.bytes),
            size_or_dash(s.gc_bytes),
            count_or_dash(u64::from(s.zones)),
            size_or_dash(s.live_bytes),
            size_or_dash(s.lifetime.p50_bytes),
            size_or_dash(s.lifetime.p90_bytes),
        ]);
    }
    table
}

/// Latencies, one row each; those that were never recorded are left out.
pub fn latency_table(head: &'static str, rows: &[(&str, &Summary)]) -> Table {
    let mut table = Table::new(&[
        (head, Align::Left),
        ("count", Align::Right),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("longest", Align::Right),
    ])
    .indented(2);
    for (name, s) in rows.iter().filter(|(_, s)| s.count > 0) {
        let ns = [s.mean_ns, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns];
        let figures = ns.into_iter().map(format_nanos);
        table.row([name.to_string(), s.count.to_string()].into_iter().chain(figures));
    }
    table
}

/// What a volume has counted, as text.
pub struct SnapshotText<'a>(pub &'a Snapshot);

impl SnapshotText<'_> {
    fn write_device(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0;
        let (d, c) = (&told.device, &told.core);
        let written =
            if d.host_bytes == 0 { "nothing was written".to_string() } else { format!("{:.3}", told.waf()) };
        writeln!(f, "\n  WAF {written} (by cleaning alone {:.3})", told.data_waf())?;
        writeln!(
            f,
            "  {} zone resets ({} of zones that died whole), {} erases, {} zones cleaned, {} flushes",
            d.resets, c.whole_zone_deaths, d.erases, c.cleaned_zones, d.flushes
        )?;
        writeln!(
            f,
            "  {} zones free, {} open now, {} at most (limit {}), {} of metadata; device time {}",
            told.zones.free,
            told.zones.open,
            d.open_high_water,
            told.volume.open_zones_max,
            told.zones.metadata,
            format_nanos(d.now.0)
        )
    }
}

impl fmt::Display for SnapshotText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0;
        let (v, d, c) = (&told.volume, &told.device, &told.core);
        let used = told.space.total_bytes - told.space.free_bytes.min(told.space.total_bytes);
        // Files in memory have no device below them, and nothing to tell of one.
        let has_device = v.zones > 0;
        write!(f, "volume     {}: ", v.name)?;
        match has_device {
            true => write!(
                f,
                "{} in {} zones of {}, {} % full (",
                format_size(v.device_bytes),
                v.zones,
                format_size(v.zone_bytes),
                percent(used, told.space.total_bytes)
            )?,
            false => write!(f, "files in memory (")?,
        }
        writeln!(f, "{} used, {} free)", format_size(used), format_size(told.space.free_bytes))?;
        writeln!(f, "placement  mode {}, policy {}", v.mode, v.policy)?;
        let streams = streams_table(&told.streams);
        if !streams.is_empty() {
            write!(f, "\n{streams}")?;
        }
        writeln!(f)?;
        let mut bytes =
            Table::new(&[("bytes", Align::Left), ("", Align::Right), ("", Align::Left)]).indented(2);
        let share = |part: u64| match d.host_bytes {
            0 => String::new(),
            host => format!("{:.3} of what was written for programs", part as f64 / host as f64),
        };
        let rows = [
            ("programs wrote", c.user_bytes, String::new()),
            ("written for programs", d.host_bytes, String::new()),
            ("relocated by the cleaner", d.gc_bytes, share(d.gc_bytes)),
            ("metadata", d.metadata_bytes, share(d.metadata_bytes)),
            ("programmed into flash", d.media_bytes, String::new()),
            ("in the write buffer", told.buffered_bytes.max(0) as u64, String::new()),
            ("read", d.read_bytes, format!("{} reads", d.reads)),
        ];
        let rows = if has_device { &rows[..] } else { &rows[..1] };
        for (name, bytes_of, note) in rows {
            bytes.row([name.to_string(), format_size(*bytes_of), note.clone()]);
        }
        write!(f, "{bytes}")?;
        if has_device {
            self.write_device(f)?;
        }
        let p = &told.programs;
        let seen = latency_table(
            "calls of programs",
            &[("reads", &p.reads), ("writes", &p.writes), ("fsyncs", &p.syncs)],
        );
        if !seen.is_empty() {
            write!(f, "\n{seen}")?;
        }
        let l = &told.device_latency;
        let device = latency_table(
            "device commands",
            &[
                ("reads", &l.read),
                ("writes", &l.write),
                ("flushes", &l.flush),
                ("resets", &l.reset),
                ("writers' waits", &c.stalls),
            ],
        );
        if !device.is_empty() {
            write!(f, "\n{device}")?;
        }
        for (name, count) in [("device commands refused", d.refused), ("checksum errors", c.checksum_errors)]
        {
            if count > 0 {
                writeln!(f, "\n  {name}: {count}")?;
            }
        }
        if !p.notes.is_empty() {
            writeln!(f, "\n  refused to programs")?;
            for (line, count) in &p.notes {
                writeln!(
                    f,
                    "    {line}{}",
                    if *count > 1 { format!(" ({count} times)") } else { String::new() }
                )?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = match self.status {
            signal @ 129.. => format!("ended by signal {}", signal - 128),
            status => format!("exit status {status}"),
        };
        let program = self.command.first().map_or("", String::as_str);
        writeln!(f, "weft: {program}, {ended}, {}", format_nanos(self.wall_ns))?;
        if self.shared {
            writeln!(f, "another process serves the volume: other programs may be in these figures")?;
        }
        write!(f, "{}", SnapshotText(&self.during))
    }
}
