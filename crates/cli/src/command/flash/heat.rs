//! How worn each part of a device is, as a picture: a row is a LUN (of a zoned device, some zones), a cell some blocks of
//! it; the fuller or redder the cell, the more erases, of the most worn block of the device.

mod png;
mod svg;

use crate::error::CliError;
use crate::sys::terminal;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use weft_device::nand::{FlashError, OpenChannel};

/// Fill of a cell, by eighths.
const CELLS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same where blocks cannot be shown.
const DIGITS: [char; 9] = ['0', '1', '2', '3', '4', '5', '6', '7', '8'];
/// Blocks of which all are bad, in a terminal.
pub const BAD: char = 'x';
/// Columns of what stands before a row.
const MARGIN: usize = 34;
/// Cells of a row of a picture in a file, and their size.
const FILE_CELLS: usize = 128;
const FILE_CELL: usize = 8;
/// Zones of a row.
const ZONES_OF_ROW: usize = 128;

/// A row of the picture.
#[derive(Clone, Debug, Serialize)]
pub struct HeatRow {
    /// Where it is, in words.
    pub place: String,
    /// The same in digits and slashes.
    #[serde(skip)]
    pub short: String,
    /// Whose it is.
    pub owner: Option<String>,
    /// Erases by block.
    pub erases: Vec<u32>,
    /// Bad blocks, by number in the row.
    pub bad: Vec<u32>,
}

/// A picture.
#[derive(Clone, Debug, Serialize)]
pub struct HeatMap {
    /// Erases of the most worn block.
    erases_max: u32,
    /// Mean erases of a block.
    erases_mean: f64,
    rows: Vec<HeatRow>,
}

/// A file for the picture; its ending says the form.
#[derive(Clone, Debug)]
pub struct PictureFile {
    path: PathBuf,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Svg,
    Png,
}

impl PictureFile {
    /// Judges the name of a file, for the command line.
    pub fn parse(name: &str) -> Result<PictureFile, String> {
        let path = PathBuf::from(name);
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_lowercase();
        let form = match ending.as_str() {
            "svg" => Form::Svg,
            "png" => Form::Png,
            _ => return Err("the name of a picture must end in .svg or .png".into()),
        };
        Ok(PictureFile { path, form })
    }

    /// Writes the picture.
    pub fn write(&self, map: &HeatMap) -> Result<(), CliError> {
        let bytes = match self.form {
            Form::Svg => svg::picture(map).into_bytes(),
            Form::Png => png::picture(map).map_err(|error| {
                CliError::said(format!("{}: {error}", self.path.display()), "write an .svg instead")
            })?,
        };
        std::fs::write(&self.path, bytes).map_err(|e| CliError::io("write", &self.path, e))
    }
}

/// A row for each LUN of open-channel flash; the owner of each is asked for by its number.
pub fn rows_of_luns(
    device: &OpenChannel,
    owner: impl Fn(u32) -> Option<String>,
) -> Result<Vec<HeatRow>, FlashError> {
    let shape = device.shape();
    let row = |number: u32| {
        let at = shape.lun_at(number);
        let infos = device.lun_info(at)?;
        let bad = infos.iter().enumerate().filter(|(_, info)| info.state.is_bad());
        let bad = bad.map(|(block, _)| block as u32).collect();
        let erases = infos.iter().map(|info| info.erases).collect();
        Ok(row_of_lun(at.channel, at.lun, owner(number), erases, bad))
    };
    (0..shape.luns()).map(row).collect()
}

/// The row of a LUN.
pub fn row_of_lun(channel: u32, lun: u32, owner: Option<String>, erases: Vec<u32>, bad: Vec<u32>) -> HeatRow {
    let (place, short) = (format!("channel {channel} LUN {lun}"), format!("{channel}/{lun}"));
    HeatRow { place, short, owner, erases, bad }
}

/// Rows of zones, in their order.
pub fn rows_of_zones(erases: &[u32]) -> Vec<HeatRow> {
    let row = |(number, erases): (usize, &[u32])| {
        let first = number * ZONES_OF_ROW;
        let place = format!("zones {first} to {}", first + erases.len() - 1);
        HeatRow { place, short: first.to_string(), owner: None, erases: erases.to_vec(), bad: Vec::new() }
    };
    erases.chunks(ZONES_OF_ROW).enumerate().map(row).collect()
}

impl HeatMap {
    pub fn new(rows: Vec<HeatRow>) -> HeatMap {
        let erases = || rows.iter().flat_map(|row| &row.erases);
        let (sum, count) = (erases().map(|erases| u64::from(*erases)).sum::<u64>(), erases().count());
        let (erases_max, erases_mean) =
            (erases().copied().max().unwrap_or(0), sum as f64 / count.max(1) as f64);
        HeatMap { erases_max, erases_mean, rows }
    }

    pub fn rows(&self) -> &[HeatRow] {
        &self.rows
    }

    /// The picture for the terminal at standard output.
    pub fn for_terminal(&self) -> String {
        self.text(terminal::columns(), terminal::shows_colours())
    }

    fn text(&self, columns: usize, blocks: bool) -> String {
        let signs = if blocks { CELLS } else { DIGITS };
        let mut out = String::new();
        for row in &self.rows {
            let owner = row.owner.as_deref().unwrap_or("-");
            let _ = write!(out, "{:<20} {owner:<12.12} ", row.place);
            for cell in row.cells(columns.saturating_sub(MARGIN)) {
                out.push(match cell {
                    Some(erases) => signs[self.level(erases, 8)],
                    None => BAD,
                });
            }
            out.push('\n');
        }
        out
    }

    /// Which of `levels` steps above 0 a number of erases is.
    fn level(&self, erases: u32, levels: u32) -> usize {
        (u64::from(erases) * u64::from(levels)).div_ceil(u64::from(self.erases_max.max(1))) as usize
    }

    /// The colour of a cell in a file: from white to a strong red, black when all of its blocks are bad.
    fn colour(&self, cell: Option<u32>) -> [u8; 3] {
        match cell {
            Some(erases) => {
                let rest = 255 - self.level(erases, 200) as u8;
                [255, rest, rest]
            }
            None => [0, 0, 0],
        }
    }

    /// Cells of the longest row in a file.
    fn file_columns(&self) -> usize {
        self.rows.iter().map(|row| row.cells(FILE_CELLS).len()).max().unwrap_or(0)
    }
}

impl HeatRow {
    /// The cells of the row: the most worn block of each group of blocks, or `None` when all of them are bad.
    fn cells(&self, most: usize) -> Vec<Option<u32>> {
        let group = self.erases.len().div_ceil(most.max(1)).max(1);
        let cell = |(number, erases): (usize, &[u32])| {
            let first = number * group;
            let good = |at: &usize| !self.bad.contains(&((first + at) as u32));
            (0..erases.len()).filter(good).map(|at| erases[at]).max()
        };
        self.erases.chunks(group).enumerate().map(cell).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn map() -> HeatMap {
        let row = |lun, erases, bad| row_of_lun(0, lun, Some("a<b".into()), erases, bad);
        HeatMap::new(vec![row(0, vec![0, 80, 40, 1], vec![]), row(1, vec![0, 0, 0, 0], vec![2])])
    }

    #[test]
    fn the_picture_has_a_row_for_each_lun_and_a_cell_for_each_block() {
        let picture = map().text(100, false);
        let rows: Vec<&str> = picture.lines().collect();
        assert!(rows[0].starts_with("channel 0 LUN 0") && rows[0].ends_with("0841"), "{picture}");
        assert!(rows[1].ends_with("00x0"), "{picture}");
        assert_eq!(map().rows[0].cells(2), [Some(80), Some(40)]);
    }

    #[test]
    fn zones_are_shown_in_rows_of_128() {
        let rows = rows_of_zones(&[1; 130]);
        assert_eq!((rows.len(), rows[1].place.as_str(), rows[1].erases.len()), (2, "zones 128 to 129", 2));
    }

    #[test]
    fn the_form_of_a_file_is_told_by_its_ending_and_others_are_refused() {
        assert_eq!(PictureFile::parse("a.SVG").unwrap().form, Form::Svg);
        assert_eq!(PictureFile::parse("a.b.png").unwrap().form, Form::Png);
        for other in ["a.jpg", "png", "a", ".png"] {
            assert!(PictureFile::parse(other).unwrap_err().contains(".svg or .png"), "{other}");
        }
    }
}
