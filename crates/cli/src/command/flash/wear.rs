//! `weft flash wear`: how worn each part of a device is, as a picture.
//!
//! A row is a LUN, a cell some blocks of it; the fuller the cell, the more erases, of the most worn block of the device.

use crate::command::stats::{json_line, print};
use crate::error::CliError;
use crate::sys::terminal;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use weft_device::nand::{FlashShape, OpenChannel};
use weft_flash::{LevelError, Monitor};

/// Version of the JSON.
const WEAR_VERSION: u32 = 1;
/// Fill of a cell, by eighths.
const CELLS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same where blocks cannot be shown.
const DIGITS: [char; 9] = ['0', '1', '2', '3', '4', '5', '6', '7', '8'];
const BAD: char = 'x';
/// Cells of a row of the SVG, and their size.
const SVG_CELLS: usize = 128;
const SVG_CELL: usize = 8;
const SVG_MARGIN: usize = 150;
/// Columns of what stands before a row.
const MARGIN: usize = 34;

/// `weft flash wear`
#[derive(Args, Debug)]
pub struct WearArgs {
    /// An image that 'weft flash create' made.
    image: PathBuf,
    /// Write the picture as SVG, too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What `weft flash wear --json` prints.
#[derive(Serialize)]
struct Wear {
    version: u32,
    erases_max: u32,
    erases_mean: f64,
    /// The most worn LUN's erases over the mean.
    lun_max_over_mean: f64,
    luns: Vec<LunRow>,
}

#[derive(Serialize)]
struct LunRow {
    channel: u32,
    lun: u32,
    grant: Option<String>,
    /// Erases by block.
    erases: Vec<u32>,
    /// Bad blocks, by number.
    bad: Vec<u32>,
}

/// Shows the wear of a device.
pub fn run(args: &WearArgs) -> Result<(), CliError> {
    let device = OpenChannel::open(&args.image)?;
    let wear = look(&device)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, svg(&wear)).map_err(|e| CliError::io("write", path, e))?;
    }
    print(&match args.json {
        true => json_line(&wear)?,
        false => picture(&wear, terminal::columns(), terminal::shows_colours()),
    })
}

fn look(device: &OpenChannel) -> Result<Wear, CliError> {
    let shape = device.shape();
    let grants = grants(device, &shape)?;
    let mut luns = Vec::new();
    for (index, grant) in grants.into_iter().enumerate() {
        let address = shape.lun_at(index as u32);
        let infos = device.lun_info(address)?;
        let bad = infos.iter().enumerate().filter(|(_, info)| info.state.is_bad());
        luns.push(LunRow {
            channel: address.channel,
            lun: address.lun,
            grant,
            bad: bad.map(|(block, _)| block as u32).collect(),
            erases: infos.iter().map(|info| info.erases).collect(),
        });
    }
    let total = |row: &LunRow| row.erases.iter().map(|erases| u64::from(*erases)).sum::<u64>();
    let all: u64 = luns.iter().map(total).sum();
    let most = luns.iter().map(total).max().unwrap_or(0);
    let lun_mean = all as f64 / luns.len().max(1) as f64;
    Ok(Wear {
        version: WEAR_VERSION,
        erases_max: luns.iter().flat_map(|row| &row.erases).copied().max().unwrap_or(0),
        erases_mean: all as f64 / shape.blocks() as f64,
        lun_max_over_mean: if all == 0 { 1.0 } else { most as f64 / lun_mean },
        luns,
    })
}

/// By LUN: the grant that has it, if there is a monitor on the device.
fn grants(device: &OpenChannel, shape: &FlashShape) -> Result<Vec<Option<String>>, CliError> {
    let mut grants = vec![None; shape.luns() as usize];
    let found = match Monitor::look(device) {
        Ok(found) => found,
        Err(LevelError::NotFormatted(_) | LevelError::BadRequest(_)) => return Ok(grants),
        Err(other) => return Err(other.into()),
    };
    for info in found {
        info.luns.iter().for_each(|lun| grants[*lun as usize] = Some(info.name.clone()));
    }
    Ok(grants)
}

/// The cells of a row: the most worn block of each group of blocks, or `None` when all of them are bad.
fn cells(row: &LunRow, most: usize) -> Vec<Option<u32>> {
    let group = row.erases.len().div_ceil(most.max(1)).max(1);
    let cell = |(number, erases): (usize, &[u32])| {
        let first = number * group;
        let good = |at: &usize| !row.bad.contains(&((first + at) as u32));
        (0..erases.len()).filter(good).map(|at| erases[at]).max()
    };
    row.erases.chunks(group).enumerate().map(cell).collect()
}

fn picture(wear: &Wear, columns: usize, blocks: bool) -> String {
    let signs = if blocks { CELLS } else { DIGITS };
    let mut out = String::new();
    for row in &wear.luns {
        let place = format!("channel {} LUN {}", row.channel, row.lun);
        let grant = row.grant.as_deref().unwrap_or("-");
        let _ = write!(out, "{place:<20} {grant:<12.12} ");
        for cell in cells(row, columns.saturating_sub(MARGIN)) {
            out.push(match cell {
                Some(erases) => signs[level(erases, wear.erases_max, 8)],
                None => BAD,
            });
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "\nerases of a block: {:.1} on average, {} at most (a full cell); most worn LUN: {:.2} times the mean; {BAD} = bad",
        wear.erases_mean, wear.erases_max, wear.lun_max_over_mean
    );
    out
}

/// Which of `levels` steps above 0 a number is.
fn level(erases: u32, most: u32, levels: u32) -> usize {
    (u64::from(erases) * u64::from(levels)).div_ceil(u64::from(most.max(1))) as usize
}

fn svg(wear: &Wear) -> String {
    let width =
        wear.luns.iter().map(|row| cells(row, SVG_CELLS).len()).max().unwrap_or(0) * SVG_CELL + SVG_MARGIN;
    let height = (wear.luns.len() + 3) * SVG_CELL;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"{SVG_CELL}\">\n"
    );
    for (number, row) in wear.luns.iter().enumerate() {
        let y = number * SVG_CELL;
        let grant = row.grant.as_deref().map_or(String::new(), |name| format!(" {}", escaped(name)));
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"{}\">{}/{}{grant}</text>",
            y + SVG_CELL - 1,
            row.channel,
            row.lun
        );
        for (column, cell) in cells(row, SVG_CELLS).into_iter().enumerate() {
            let colour = match cell {
                // From white to a strong red.
                Some(erases) => {
                    let rest = 255 - level(erases, wear.erases_max, 200);
                    format!("rgb(255,{rest},{rest})")
                }
                None => "black".to_string(),
            };
            let x = SVG_MARGIN + column * SVG_CELL;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{SVG_CELL}\" height=\"{SVG_CELL}\" fill=\"{colour}\"/>"
            );
        }
    }
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"{}\">erases of a block: mean {:.1}, most {}; black: bad</text>\n</svg>",
        (wear.luns.len() + 2) * SVG_CELL,
        wear.erases_mean,
        wear.erases_max
    );
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wear() -> Wear {
        let row = |lun, erases, bad| LunRow { channel: 0, lun, grant: Some("a<b".into()), erases, bad };
        Wear {
            version: 1,
            erases_max: 80,
            erases_mean: 20.0,
            lun_max_over_mean: 1.5,
            luns: vec![row(0, vec![0, 80, 40, 1], vec![]), row(1, vec![0, 0, 0, 0], vec![2])],
        }
    }

    #[test]
    fn the_picture_has_a_row_for_each_lun_and_a_cell_for_each_block() {
        let picture = picture(&wear(), 100, false);
        let rows: Vec<&str> = picture.lines().collect();
        assert!(rows[0].starts_with("channel 0 LUN 0") && rows[0].ends_with("0841"), "{picture}");
        assert!(rows[1].ends_with("00x0"), "{picture}");
        assert_eq!(cells(&wear().luns[0], 2), [Some(80), Some(40)]);
    }

    #[test]
    fn the_svg_has_a_cell_for_each_block_and_escapes_names() {
        let svg = svg(&wear());
        assert_eq!(svg.matches("<rect").count(), 8);
        assert!(svg.contains("a&lt;b") && svg.contains("fill=\"black\"") && svg.contains("rgb(255,55,55)"));
    }
}
