//! `weft stats`: shows the counters of a volume, once or continuously.

use crate::access::Access;
use crate::command::zones::by_state;
use crate::error::CliError;
use crate::report::{SnapshotText, call_table, shared_line, size_or_dash};
use crate::say::{json_line, print, say};
use crate::sys::signal;
use crate::table::Table;
use clap::Args;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weft_core::units::format_size;
use weft_volume::report::Snapshot;

/// Interval between checks for an interrupt.
const STEP: Duration = Duration::from_millis(50);
/// Moves to the upper left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// `weft stats`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft stats vol.img\n  weft stats --watch vol.img\n  \
    weft stats --json --watch=10 --count 6 vol.img | jq .device.media_bytes\n\n\
    The counters of the device start at zero when the volume is formatted. The figures of streams and latencies start \
    at zero when a server mounts the volume. To see these figures, run 'weft stats' while the server runs. They \
    include programs that are still running.")]
pub struct StatsArgs {
    /// Show rates every SECONDS seconds (default 1) until the server ends. The option needs a running server
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub watch: Option<f64>,
    /// With --watch, print the figures N times, then stop.
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
    /// Print JSON; docs/formats/report-json.md describes it.
    #[arg(long)]
    pub json: bool,
    /// The volume: an image file, a zoned block device, zonefs:DIR, or policy:IMAGE#GRANT or function:IMAGE#GRANT.
    pub image: PathBuf,
}

/// Shows what a volume has counted.
pub fn run(args: &StatsArgs) -> Result<(), CliError> {
    let access = Access::look(&args.image)?;
    let done = match args.watch {
        Some(seconds) => watch(&access, args, seconds),
        None => access.snapshot().and_then(|now| {
            print(&if args.json { json_line(&now)? } else { SnapshotText(&now).to_string() })
        }),
    };
    access.close()?;
    done
}

fn watch(access: &Access, args: &StatsArgs, seconds: f64) -> Result<(), CliError> {
    if !access.is_served_elsewhere() {
        return Err(CliError::of(
            &args.image,
            "no server runs, so there is nothing to watch",
            "start a server with 'weft serve' or 'weft run', or leave out --watch",
        ));
    }
    if seconds.is_nan() || seconds < STEP.as_secs_f64() {
        return Err(CliError::said(
            format!("--watch={seconds}: the figures are read at most every {} seconds", STEP.as_secs_f64()),
            "give a longer interval",
        ));
    }
    let interval = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let clears = io::stdout().is_terminal();
    let first = access.snapshot()?;
    let begun = Instant::now();
    let (mut before, mut then) = (first.clone(), begun);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 && pause(interval) {
        let now = match access.snapshot() {
            Ok(now) => now,
            // Its end is no failure of who watched it.
            Err(CliError::File { source, .. }) if source.raw_os_error() == Some(libc::EIO) => {
                say(format_args!("weft: the server of {} has ended", args.image.display()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let text = if args.json {
            let line = serde_json::to_string(&now);
            line.map_err(|e| CliError::io("write", Path::new("JSON"), e.into()))? + "\n"
        } else {
            let interval = Interval { before: &before, now: &now, seconds: then.elapsed().as_secs_f64() };
            let screen = interval.screen(&first, begun.elapsed());
            if clears { format!("{CLEAR}{screen}") } else { format!("{screen}\n") }
        };
        print(&text)?;
        (before, then) = (now, Instant::now());
        left -= 1;
    }
    Ok(())
}

/// Waits; false when the user interrupts.
fn pause(interval: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < interval {
        if signal::was_interrupted() {
            return false;
        }
        std::thread::sleep(STEP.min(interval.saturating_sub(begun.elapsed())));
    }
    !signal::was_interrupted()
}

/// Two moments, and how far apart they are.
struct Interval<'a> {
    before: &'a Snapshot,
    now: &'a Snapshot,
    seconds: f64,
}

impl Interval<'_> {
    fn per_second(&self, now: u64, before: u64) -> u64 {
        (now.saturating_sub(before) as f64 / self.seconds.max(1e-3)) as u64
    }

    /// Bytes in a second, `-` for none.
    fn rate(&self, now: u64, before: u64) -> String {
        match self.per_second(now, before) {
            0 => "-".to_string(),
            bytes => format!("{}/s", format_size(bytes)),
        }
    }

    fn screen(&self, first: &Snapshot, watched: Duration) -> String {
        let (now, before) = (self.now, self.before);
        let (v, space) = (&now.volume, &now.space);
        let used = space.total_bytes - space.free_bytes.min(space.total_bytes);
        let percent = used as f64 * 100.0 / space.total_bytes.max(1) as f64;
        let mut text = format!(
            "{}  {percent:.0} % full ({} used, {} free)  mode {}, policy {}\n",
            v.name,
            format_size(used),
            format_size(space.free_bytes),
            v.mode,
            v.policy
        );
        let programs = &now.programs.running;
        let names = if programs.is_empty() { "none".to_string() } else { programs.join(", ") };
        let _ = writeln!(text, "programs   {names}");
        let since_first = now.since(first);
        let _ = writeln!(
            text,
            "WAF        {:.3} in the last {:.1} s, {:.3} in {} s, {:.3} since the format (by cleaning alone {:.3}, {:.3}, {:.3})",
            now.since(before).waf(),
            self.seconds,
            since_first.waf(),
            watched.as_secs(),
            now.waf(),
            now.since(before).data_waf(),
            since_first.data_waf(),
            now.data_waf()
        );
        let (d, b) = (&now.device, &before.device);
        let _ = writeln!(
            text,
            "device     programs {}, relocated {}, metadata {}, read {}",
            self.rate(d.host_bytes, b.host_bytes),
            self.rate(d.gc_bytes, b.gc_bytes),
            self.rate(d.metadata_bytes, b.metadata_bytes),
            self.rate(d.read_bytes, b.read_bytes)
        );
        let _ = writeln!(text, "zones      {}", by_state(&now.zones, v.open_zones_max));
        let streams = self.streams();
        if !streams.is_empty() {
            let _ = write!(text, "\n{streams}");
        }
        let p = &now.programs;
        let latencies = call_table(p);
        if !latencies.is_empty() {
            let (r, w, s) = (
                self.per_second(p.reads.count, before.programs.reads.count),
                self.per_second(p.writes.count, before.programs.writes.count),
                self.per_second(p.syncs.count, before.programs.syncs.count),
            );
            let _ = write!(text, "\n{latencies}  now {r} reads/s, {w} writes/s, {s} fsyncs/s\n");
        }
        if p.shared.limit_bytes > 0 {
            let _ = write!(text, "\n{}\n", shared_line(&p.shared));
        }
        text
    }

    fn streams(&self) -> Table {
        let mut table = Table::new("stream< written> now> relocated> now> zones> live>").indented(2);
        for s in &self.now.streams {
            let before = self.before.streams.iter().find(|b| b.id == s.id);
            let (bytes, gc_bytes) = before.map_or((0, 0), |b| (b.bytes, b.gc_bytes));
            let [all, moved, live] = [s.bytes, s.gc_bytes, s.live_bytes].map(size_or_dash);
            let (now, moved_now) = (self.rate(s.bytes, bytes), self.rate(s.gc_bytes, gc_bytes));
            table.cells(&[&s.name, &all, &now, &moved, &moved_now, &s.zones, &live]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_volume::report::Stream;

    #[test]
    fn rates_are_of_the_interval_and_sums_of_all_time() {
        let stream = |bytes| Stream { id: 3, name: "p.wal".into(), bytes, zones: 2, ..Stream::default() };
        let mut before = Snapshot { streams: vec![stream(10 << 20)], ..Snapshot::default() };
        before.device.host_bytes = 10 << 20;
        before.device.media_bytes = 10 << 20;
        let mut now = Snapshot { streams: vec![stream(14 << 20)], ..before.clone() };
        now.device.host_bytes = 14 << 20;
        now.device.gc_bytes = 2 << 20;
        now.device.media_bytes = 16 << 20;
        now.programs.running = vec!["db_bench".into(), "sh".into()];
        let interval = Interval { before: &before, now: &now, seconds: 2.0 };
        let text = interval.screen(&before, Duration::from_secs(2));
        assert!(text.contains("programs   db_bench, sh\n"), "{text}");
        assert!(text.contains("1.500 in the last 2.0 s"), "{text}");
        assert!(text.contains("programs 2.00 MiB/s, relocated 1.00 MiB/s, metadata -, read -"), "{text}");
        let row = text.lines().find(|line| line.contains("p.wal")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["p.wal", "14.0", "MiB", "2.00", "MiB/s", "-", "-", "2", "-"]);
    }
}
