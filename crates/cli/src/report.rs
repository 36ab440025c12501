//! The report of a run: the program's work on the volume, and the effect of placement. As text for people, as JSON
//! (docs/formats/report-json.md) for programs.

use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_core::hist::Summary;
use weft_core::units::{format_nanos, format_size};
use weft_volume::report::{CacheClass, ProgramView, SharedUse, Snapshot, Stream};

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
    let mut table =
        Table::new("stream< files> deleted> groups> written> relocated> zones> live> lifetime p50> p90>")
            .indented(2);
    for s in streams {
        let [files, deleted, groups, zones] =
            [s.files, s.deleted, u64::from(s.groups), u64::from(s.zones)].map(count_or_dash);
        let [written, moved, live] = [s.bytes, s.gc_bytes, s.live_bytes].map(size_or_dash);
        let [p50, p90] = [s.lifetime.p50_bytes, s.lifetime.p90_bytes].map(size_or_dash);
        table.row([s.name.clone(), files, deleted, groups, written, moved, zones, live, p50, p90]);
    }
    table
}

/// Latencies below these headings, one row each; those that were never recorded are left out.
pub fn latency_table(columns: &str, rows: &[(&str, &Summary)]) -> Table {
    let mut table = Table::new(columns);
    for (name, s) in rows.iter().filter(|(_, s)| s.count > 0) {
        let ns = [s.mean_ns, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns];
        table.row([name.to_string(), s.count.to_string()].into_iter().chain(ns.map(format_nanos)));
    }
    table
}

/// Latencies of the calls of programs.
pub fn call_table(programs: &ProgramView) -> Table {
    let calls = [("reads", &programs.reads), ("writes", &programs.writes), ("fsyncs", &programs.syncs)];
    latency_table("calls of programs< count> mean> p50> p99> p99.9> longest>", &calls).indented(2)
}

/// Memory that the server shares with programs.
pub fn shared_line(shared: &SharedUse) -> String {
    let [all, limit, names, maps, rings, open] = [
        shared.bytes(),
        shared.limit_bytes,
        shared.name_bytes,
        shared.map_bytes,
        shared.ring_bytes,
        shared.open_bytes,
    ]
    .map(format_size);
    format!(
        "shared with programs: {all} of {limit} (names {names}, maps {maps}, buffers {rings}, open files {open})"
    )
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
            false if v.device_bytes > 0 => write!(f, "{} in a tag store (", format_size(v.device_bytes))?,
            false => write!(f, "files in memory (")?,
        }
        writeln!(f, "{} used, {} free)", format_size(used), format_size(told.space.free_bytes))?;
        writeln!(f, "placement  mode {}, policy {}", v.mode, v.policy)?;
        let streams = streams_table(&told.streams);
        if !streams.is_empty() {
            write!(f, "\n{streams}")?;
        }
        writeln!(f)?;
        let mut bytes = Table::new("bytes< > <").indented(2);
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
        let seen = call_table(p);
        if !seen.is_empty() {
            write!(f, "\n{seen}")?;
        }
        if p.shared.limit_bytes > 0 {
            writeln!(f, "\n  {}", shared_line(&p.shared))?;
        }
        if !told.cache.is_empty() {
            write!(f, "\n{}", cache_table(&told.cache))?;
        }
        let l = &told.device_latency;
        let commands =
            [("reads", &l.read), ("writes", &l.write), ("flushes", &l.flush), ("resets", &l.reset)];
        let commands = [&commands[..], &[("writers' waits", &c.stalls)]].concat();
        let columns = "device commands< count> mean> p50> p99> p99.9> longest>";
        let device = latency_table(columns, &commands).indented(2);
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

/// The cache of a tag store, by classes.
fn cache_table(classes: &[CacheClass]) -> Table {
    let mut table = Table::new("pages in the cache< held> hits> misses> hit ratio> evicted>").indented(2);
    for class in classes {
        let CacheClass { resident_bytes, hits, misses, evictions, .. } = class;
        let ratio = class.hit_ratio().map_or_else(|| "-".to_string(), |ratio| format!("{ratio:.3}"));
        let numbers = [hits.to_string(), misses.to_string(), ratio, evictions.to_string()];
        let [hits, misses, ratio, evicted] = numbers;
        table.row([class.class.clone(), size_or_dash(*resident_bytes), hits, misses, ratio, evicted]);
    }
    table
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
