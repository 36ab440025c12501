//! `weft stats` and `weft zones`.

use crate::access::Access;
use crate::args::{StatsArgs, ZonesArgs};
use crate::error::CliError;
use crate::report::size_or_dash;
use crate::say::Out;
use crate::snapshot::Zone;
use crate::table::{Align, Table};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// Zones in one line of the picture.
const PER_LINE: usize = 64;

fn print(text: &str) -> Result<(), CliError> {
    let mut out = Out::new();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| CliError::io("write", Path::new("standard output"), e))
}

/// One value as a line of JSON.
pub fn json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(value);
    text.map(|t| t + "\n").map_err(|e| CliError::io("write", Path::new("JSON"), e.into()))
}

/// Shows what a volume has counted.
pub fn stats(args: &StatsArgs) -> Result<(), CliError> {
    let access = Access::look(&args.image)?;
    let snapshot = access.snapshot();
    access.close()?;
    let snapshot = snapshot?;
    print(&if args.json { json_line(&snapshot)? } else { snapshot.to_string() })
}

/// Shows the zones of a volume.
pub fn zones(args: &ZonesArgs) -> Result<(), CliError> {
    let access = Access::look(&args.image)?;
    let told = access.zones().and_then(|zones| Ok((zones, access.snapshot()?.volume.zone_bytes)));
    access.close()?;
    let (zones, zone_bytes) = told?;
    print(&match (args.json, args.table) {
        (true, _) => json_line(&zones)?,
        (_, true) => table(&zones).to_string(),
        _ => picture(&zones, zone_bytes),
    })
}

fn table(zones: &[Zone]) -> Table {
    let mut table = Table::new(&[
        ("zone", Align::Right),
        ("state", Align::Left),
        ("holds", Align::Left),
        ("stream of its first data", Align::Left),
        ("group", Align::Right),
        ("written", Align::Right),
        ("live", Align::Right),
    ]);
    for z in zones {
        let group = if z.kind == "data" { z.group.to_string() } else { "-".to_string() };
        let stream = if z.stream.is_empty() { "-".to_string() } else { z.stream.clone() };
        let bytes = [size_or_dash(z.written_bytes), size_or_dash(z.live_bytes)];
        let head = [z.zone.to_string(), z.state.clone(), z.kind.clone(), stream, group];
        table.row(head.into_iter().chain(bytes));
    }
    table
}

fn sign(zone: &Zone, zone_bytes: u64) -> char {
    match (zone.state.as_str(), zone.kind.as_str()) {
        ("bad", _) => 'x',
        ("free", _) => '.',
        ("dying", _) => '-',
        (_, "meta") => 'M',
        ("open", _) => 'o',
        _ => {
            let tenths = zone.live_bytes.saturating_mul(10) / zone_bytes.max(1);
            char::from_digit(tenths.min(9) as u32, 10).unwrap_or('9')
        }
    }
}

fn picture(zones: &[Zone], zone_bytes: u64) -> String {
    let mut text = String::new();
    for (line, part) in zones.chunks(PER_LINE).enumerate() {
        let signs: String = part.iter().map(|zone| sign(zone, zone_bytes)).collect();
        let _ = writeln!(text, "{:>6}  {signs}", line * PER_LINE);
    }
    text.push_str("\n        . free  M metadata  o open  0-9 tenths live  - waits for its reset  x bad\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_drawn_by_what_it_is_and_how_much_of_it_lives() {
        let zone = |state: &str, kind: &str, live_bytes| Zone {
            zone: 0,
            state: state.into(),
            kind: kind.into(),
            stream: String::new(),
            group: 0,
            written_bytes: 100,
            live_bytes,
        };
        let zones = [
            zone("free", "-", 0),
            zone("full", "meta", 0),
            zone("open", "data", 50),
            zone("full", "data", 55),
            zone("full", "data", 100),
            zone("dying", "data", 0),
            zone("bad", "-", 0),
        ];
        assert!(picture(&zones, 100).starts_with("     0  .Mo59-x\n"), "{}", picture(&zones, 100));
    }
}
