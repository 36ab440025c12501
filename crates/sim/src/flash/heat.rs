//! Erases of the parts of a device: a row is a LUN, or of a zoned device some zones.

use serde::Serialize;
use weft_device::nand::{FlashError, OpenChannel};

/// Zones of a row.
const ZONES_OF_ROW: usize = 128;

/// A part of a device, and the erases of its blocks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_128_zones() {
        let rows = rows_of_zones(&[1; 130]);
        assert_eq!((rows.len(), rows[1].place.as_str(), rows[1].erases.len()), (2, "zones 128 to 129", 2));
    }
}
