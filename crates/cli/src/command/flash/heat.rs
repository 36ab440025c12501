//! How worn each part of a device is, as a picture: a row is a LUN (of a zoned device, some zones), a cell some blocks of
//! it; the fuller or redder the cell, the more erases, of the most worn block of the device.

mod png;
mod svg;

use crate::error::CliError;
use crate::output;
use crate::sys::terminal;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weft_device::Wear;
use weft_sim::flash::HeatRow;

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

    /// Refuses a file that holds data of weft; `used` are the images that the command uses.
    pub fn check(&self, used: &[&Path]) -> Result<(), CliError> {
        output::check(&self.path, used)
    }

    /// Writes the picture, to a file that [`PictureFile::check`] allowed.
    pub fn write(&self, map: &HeatMap) -> Result<(), CliError> {
        let bytes = match self.form {
            Form::Svg => svg::picture(map).into_bytes(),
            Form::Png => {
                png::picture(map).map_err(|error| CliError::of(&self.path, error, "write an .svg instead"))?
            }
        };
        std::fs::write(&self.path, bytes).map_err(|e| CliError::io("write", &self.path, e))
    }
}

impl HeatMap {
    pub fn new(rows: Vec<HeatRow>) -> HeatMap {
        let erases: Vec<u32> = rows.iter().flat_map(|row| &row.erases).copied().collect();
        let Wear { erases_max, erases_mean, .. } = Wear::of(&erases);
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
            for cell in cells(row, columns.saturating_sub(MARGIN)) {
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
        self.rows.iter().map(|row| cells(row, FILE_CELLS).len()).max().unwrap_or(0)
    }
}

/// The cells of the row: the most worn block of each group of blocks, or `None` when all of them are bad.
fn cells(row: &HeatRow, most: usize) -> Vec<Option<u32>> {
    let group = row.erases.len().div_ceil(most.max(1)).max(1);
    let cell = |(number, erases): (usize, &[u32])| {
        let first = number * group;
        let good = |at: &usize| !row.bad.contains(&((first + at) as u32));
        (0..erases.len()).filter(good).map(|at| erases[at]).max()
    };
    row.erases.chunks(group).enumerate().map(cell).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use weft_sim::flash::row_of_lun;

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
        assert_eq!(cells(&map().rows[0], 2), [Some(80), Some(40)]);
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
