//! `weft zones`: a picture of the volume, one cell for each zone.
//!
//! A cell's colour is the stream of the zone's first data, its fill how much of the zone lives. Where colours cannot be
//! shown, the stream is a letter and the fill a digit.

use crate::access::Access;
use crate::error::CliError;
use crate::report::size_or_dash;
use crate::say::{json_line, print};
use crate::sys::terminal;
use crate::table::Table;
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::PathBuf;
use weft_core::units::format_size;
use weft_lfs::{ZoneCondition, ZoneContent};
use weft_volume::report::{Snapshot, Zone, Zones};

/// Columns of the number that each line begins with.
const MARGIN: usize = 8;
/// Cells of a line are a multiple of this.
const CELLS_STEP: usize = 8;

/// `weft zones`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft zones vol.img\n  weft zones --table vol.img | grep wal\n\n\
    One cell is one zone. The colour of a cell shows the stream of the first data in the zone; the fill of a cell \
    shows the share of live data. When \
    standard output is not a terminal, or NO_COLOR is set, a letter shows the stream, and a digit shows how many tenths \
    of the zone are live. \
    CLICOLOR_FORCE=1 forces colours. When a server runs, the command asks the server for the current state. Without a \
    server, the command reads the image and does not change it.")]
pub struct ZonesArgs {
    /// Print a line for each zone instead of a picture.
    #[arg(long)]
    pub table: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "table")]
    pub json: bool,
    /// The volume: an image file, a zoned block device, or zonefs:DIR.
    pub image: PathBuf,
}
/// Fill of a cell, by eighths.
const BLOCKS: [char; 9] = ['▁', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Colours of the terminal's 256 that differ well on light and dark ground.
const COLOURS: [u8; 12] = [33, 208, 70, 199, 178, 99, 37, 160, 106, 27, 173, 133];
const GREY: u8 = 244;
const RED: u8 = 196;

/// Shows the zones of a volume.
pub fn run(args: &ZonesArgs) -> Result<(), CliError> {
    let access = Access::look(&args.image)?;
    let told = access.zones().and_then(|zones| Ok((zones, access.snapshot()?)));
    access.close()?;
    let (zones, snapshot) = told?;
    if snapshot.volume.zones == 0 {
        let remedy = "'weft df' and 'weft stats' tell of any volume";
        return Err(CliError::of(&args.image, "this volume lies on no zones", remedy));
    }
    print(&match (args.json, args.table) {
        (true, _) => json_line(&zones)?,
        (_, true) => table(&zones).to_string(),
        _ => {
            let style = if terminal::shows_colours() { Style::Colours } else { Style::Letters };
            picture(&zones, &snapshot, style, terminal::columns())
        }
    })
}

fn table(zones: &[Zone]) -> Table {
    let mut table = Table::new("zone> state< holds< stream of its first data< group> written> live>");
    for z in zones {
        let group: &dyn Display = if z.kind == ZoneContent::Data { &z.group } else { &"-" };
        let stream = if z.stream.is_empty() { "-" } else { &z.stream };
        let [written, live] = [z.written_bytes, z.live_bytes].map(size_or_dash);
        table.cells(&[&z.zone, &z.state, &z.kind, &stream, group, &written, &live]);
    }
    table
}

/// How a picture is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Block characters in colours.
    Colours,
    /// ASCII: a letter for the stream, a digit for the fill, `*` for an open zone.
    Letters,
}

/// What a zone is to the picture.
enum ZoneCell {
    Free,
    Metadata,
    /// Waits for its reset.
    Dying,
    Bad,
    Data {
        stream: usize,
        open: bool,
        /// From 0 to 1.
        live: f64,
    },
}

/// What the legend says of a stream.
#[derive(Default)]
struct Legend {
    name: String,
    zones: u32,
    written: u64,
    live: u64,
}

fn is_data(zone: &Zone) -> bool {
    use ZoneCondition::{Bad, Dying, Free};
    zone.kind == ZoneContent::Data && !matches!(zone.state, Free | Dying | Bad)
}

fn look(zone: &Zone, zone_bytes: u64, place: impl Fn(u16) -> usize) -> ZoneCell {
    match (zone.state, zone.kind) {
        (ZoneCondition::Bad, _) => ZoneCell::Bad,
        (ZoneCondition::Free, _) => ZoneCell::Free,
        (ZoneCondition::Dying, _) => ZoneCell::Dying,
        (_, ZoneContent::Metadata) => ZoneCell::Metadata,
        (state, _) => ZoneCell::Data {
            stream: place(zone.stream_id),
            open: state == ZoneCondition::Open,
            live: (zone.live_bytes as f64 / zone_bytes.max(1) as f64).min(1.0),
        },
    }
}

fn letter(stream: usize) -> char {
    let letters = ('a'..='z').chain('A'..='L').chain('N'..='Z');
    letters.clone().nth(stream % letters.count()).unwrap_or('?')
}

fn cell(look: &ZoneCell, style: Style) -> String {
    let paint = |colour: u8, extra: &str, sign: char| format!("\x1b[{extra}38;5;{colour}m{sign}\x1b[0m");
    match (look, style) {
        (ZoneCell::Free, Style::Letters) => ".  ".into(),
        (ZoneCell::Metadata, Style::Letters) => "M  ".into(),
        (ZoneCell::Dying, Style::Letters) => "-  ".into(),
        (ZoneCell::Bad, Style::Letters) => "x  ".into(),
        (ZoneCell::Data { stream, open, live }, Style::Letters) => {
            // Nine means nine tenths and more.
            let tenths = ((live * 10.0) as u32).min(9);
            format!("{}{tenths}{}", letter(*stream), if *open { '*' } else { ' ' })
        }
        (ZoneCell::Free, Style::Colours) => paint(GREY, "2;", '·'),
        (ZoneCell::Metadata, Style::Colours) => paint(GREY, "", '▒'),
        (ZoneCell::Dying, Style::Colours) => paint(GREY, "", '-'),
        (ZoneCell::Bad, Style::Colours) => paint(RED, "1;", 'x'),
        (ZoneCell::Data { stream, open, live }, Style::Colours) => {
            let fill = BLOCKS[((live * 8.0).round() as usize).min(8)];
            paint(COLOURS[stream % COLOURS.len()], if *open { "4;" } else { "" }, fill)
        }
    }
}

fn picture(zones: &[Zone], snapshot: &Snapshot, style: Style, columns: usize) -> String {
    let v = &snapshot.volume;
    let mut streams: BTreeMap<u16, Legend> = BTreeMap::new();
    for zone in zones.iter().filter(|zone| is_data(zone)) {
        let of = streams.entry(zone.stream_id).or_default();
        of.name.clone_from(&zone.stream);
        of.zones += 1;
        of.written += zone.written_bytes;
        of.live += zone.live_bytes;
    }
    let place = |id: u16| streams.keys().position(|known| *known == id).unwrap_or(0);
    let width = if style == Style::Letters { 3 } else { 1 };
    let cells = ((columns.saturating_sub(MARGIN) / width) / CELLS_STEP).max(1) * CELLS_STEP;
    let mut text = format!(
        "{}: {} zones of {}\n        {}\n\n",
        v.name,
        v.zones,
        format_size(v.zone_bytes),
        by_state(&snapshot.zones, v.open_zones_max)
    );
    for (line, part) in zones.chunks(cells).enumerate() {
        let drawn: String = part.iter().map(|zone| cell(&look(zone, v.zone_bytes, place), style)).collect();
        let _ = writeln!(text, "{:>6}  {}", line * cells, drawn.trim_end());
    }
    text.push('\n');
    let mut legend = Table::new("< stream< zones> written> live> >").indented(MARGIN);
    for (place, of) in streams.values().enumerate() {
        let share = of.live as f64 * 100.0 / of.written.max(1) as f64;
        let [written, live] = [of.written, of.live].map(size_or_dash);
        legend.cells(&[&letter(place), &of.name, &of.zones, &written, &live, &format!("{share:.0} %")]);
    }
    if !legend.is_empty() {
        text.push_str(&painted(&legend.to_string(), streams.len(), style));
        text.push('\n');
    }
    text.push_str(&signs(style));
    text
}

/// The legend's letters stand for colours where there are any.
fn painted(legend: &str, streams: usize, style: Style) -> String {
    if style == Style::Letters {
        return legend.to_string();
    }
    let mut text = String::new();
    for (index, line) in legend.lines().enumerate() {
        // Two lines of heading come first.
        match index.checked_sub(2).filter(|place| *place < streams) {
            Some(place) => {
                let sample = cell(&ZoneCell::Data { stream: place, open: false, live: 1.0 }, style);
                let rest: String = line.chars().skip(MARGIN + 1).collect();
                let _ = writeln!(text, "{}{sample}{rest}", " ".repeat(MARGIN));
            }
            None => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

/// Zones by state in words, with the limit.
pub fn by_state(zones: &Zones, open_max: u32) -> String {
    let mut text = format!("{} free, {} open (limit {open_max})", zones.free, zones.open);
    for (count, what) in [
        (zones.parked, "partly written"),
        (zones.full, "full"),
        (zones.metadata, "of metadata"),
        (zones.dying, "waiting for their reset"),
        (zones.bad, "bad"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

fn signs(style: Style) -> String {
    let of = |look: ZoneCell| cell(&look, style).trim_end().to_string();
    let others = format!(
        "{} free  {} metadata  {} waits for its reset  {} bad",
        of(ZoneCell::Free),
        of(ZoneCell::Metadata),
        of(ZoneCell::Dying),
        of(ZoneCell::Bad)
    );
    let data = match style {
        Style::Letters => "letter: stream; digit: tenths of the zone that live; * open".to_string(),
        Style::Colours => "colour: stream; fill: how much of the zone lives; underlined: open".to_string(),
    };
    format!("{0:MARGIN$}{data}\n{0:MARGIN$}{others}\n", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ZoneCondition::*;
    use ZoneContent::*;
    use weft_volume::report::VolumeFacts;

    fn zone(state: ZoneCondition, kind: ZoneContent, stream_id: u16, live_bytes: u64) -> Zone {
        Zone {
            zone: 0,
            state,
            kind,
            stream: if kind == Data { format!("p.{stream_id}") } else { String::new() },
            stream_id,
            group: 0,
            written_bytes: 100,
            live_bytes,
        }
    }

    fn zones() -> Vec<Zone> {
        vec![
            zone(Free, Nothing, 0, 0),
            zone(Full, Metadata, 0, 0),
            zone(Open, Data, 7, 50),
            zone(Full, Data, 3, 55),
            zone(Parked, Data, 3, 100),
            zone(Dying, Data, 9, 0),
            zone(Bad, Nothing, 0, 0),
        ]
    }

    fn snapshot() -> Snapshot {
        let volume = VolumeFacts {
            name: "v.img".into(),
            zones: 7,
            zone_bytes: 100,
            open_zones_max: 13,
            ..VolumeFacts::default()
        };
        let zones = Zones { free: 1, open: 1, metadata: 1, parked: 1, full: 1, dying: 1, bad: 1 };
        Snapshot { volume, zones, ..Snapshot::default() }
    }

    #[test]
    fn without_colours_a_cell_is_the_streams_letter_the_tenths_that_live_and_whether_it_is_open() {
        let text = picture(&zones(), &snapshot(), Style::Letters, 80);
        assert!(text.is_ascii(), "{text}");
        assert!(text.contains("\n     0  .  M  b5*a5 a9 -  x\n"), "{text}");
        assert!(text.contains("a  p.3         2    200 B  155 B  78 %"), "{text}");
        assert!(
            text.contains("1 free, 1 open (limit 13), 1 partly written, 1 full, 1 of metadata"),
            "{text}"
        );
    }

    #[test]
    fn colours_tell_streams_apart_and_blocks_tell_how_much_lives() {
        let text = picture(&zones(), &snapshot(), Style::Colours, 80);
        let cells = text.lines().find(|line| line.starts_with("     0  ")).unwrap();
        assert!(cells.contains(&format!("\x1b[4;38;5;{}m▄\x1b[0m", COLOURS[1])), "{cells:?}");
        assert!(cells.contains(&format!("\x1b[38;5;{}m▄\x1b[0m", COLOURS[0])), "{cells:?}");
        assert!(cells.contains(&format!("\x1b[38;5;{}m█\x1b[0m", COLOURS[0])), "{cells:?}");
        assert!(text.contains("█\x1b[0m  p.3"), "{text:?}");
    }

    #[test]
    fn lines_are_as_long_as_the_terminal_is_wide() {
        let many: Vec<Zone> = (0..100).map(|_| zone(Free, Nothing, 0, 0)).collect();
        let text = picture(&many, &snapshot(), Style::Letters, 80);
        let lines: Vec<&str> =
            text.lines().filter(|line| line.ends_with('.') && line.contains("  .")).collect();
        assert_eq!(lines.len(), 100_usize.div_ceil(24));
        assert!(lines[1].starts_with("    24  ."), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
    }
}
