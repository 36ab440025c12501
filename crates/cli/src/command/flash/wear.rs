//! `weft flash wear`: draws the wear of each part of a device.

use super::grants::of_target;
use super::heat::{self, HeatMap, PictureFile};
use crate::error::CliError;
use crate::say::{json_line, print};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use weft_device::nand::{FlashShape, OpenChannel};
use weft_flash::{LevelError, Monitor};
use weft_sim::flash::{HeatRow, rows_of_luns};

/// Version of the JSON.
const WEAR_VERSION: u32 = 1;

/// `weft flash wear`
#[derive(Args, Debug)]
pub struct WearArgs {
    /// An image that 'weft flash create' made.
    image: PathBuf,
    /// Also write a picture of the wear to a .svg or .png file.
    #[arg(long, value_name = "FILE", value_parser = PictureFile::parse)]
    picture: Option<PictureFile>,
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
    if let Some(file) = &args.picture {
        file.check(&[&args.image])?;
    }
    let device = OpenChannel::look(&args.image)?;
    let shape = device.shape();
    let grants = grants(&args.image, &device, &shape)?;
    let rows = rows_of_luns(&device, |lun| grants[lun as usize].clone())?;
    let map = HeatMap::new(rows);
    let wear = Wear::of(&shape, map.rows());
    if let Some(file) = &args.picture {
        file.write(&map)?;
    }
    print(&match args.json {
        true => json_line(&wear)?,
        false => format!(
            "{}\nerases of a block: {:.1} on average, {} at most (a full cell); most worn LUN: {:.2} times the mean; \
             {} = bad\n",
            map.for_terminal(),
            wear.erases_mean,
            wear.erases_max,
            wear.lun_max_over_mean,
            heat::BAD
        ),
    })
}

impl Wear {
    fn of(shape: &FlashShape, rows: &[HeatRow]) -> Wear {
        let total = |row: &HeatRow| row.erases.iter().map(|erases| u64::from(*erases)).sum::<u64>();
        let all: u64 = rows.iter().map(total).sum();
        let most = rows.iter().map(total).max().unwrap_or(0);
        let lun_mean = all as f64 / rows.len().max(1) as f64;
        let lun = |(number, row): (usize, &HeatRow)| {
            let at = shape.lun_at(number as u32);
            LunRow {
                channel: at.channel,
                lun: at.lun,
                grant: row.owner.clone(),
                erases: row.erases.clone(),
                bad: row.bad.clone(),
            }
        };
        Wear {
            version: WEAR_VERSION,
            erases_max: rows.iter().flat_map(|row| &row.erases).copied().max().unwrap_or(0),
            erases_mean: all as f64 / shape.blocks() as f64,
            lun_max_over_mean: if all == 0 { 1.0 } else { most as f64 / lun_mean },
            luns: rows.iter().enumerate().map(lun).collect(),
        }
    }
}

/// By LUN: the grant that has it, if there is a monitor on the device.
fn grants(image: &Path, device: &OpenChannel, shape: &FlashShape) -> Result<Vec<Option<String>>, CliError> {
    let mut grants = vec![None; shape.luns() as usize];
    if device.holds_drive() {
        return Ok(grants);
    }
    let found = match Monitor::look(device) {
        Ok(found) => found,
        Err(LevelError::NotFormatted(_) | LevelError::BadRequest(_)) => return Ok(grants),
        Err(other) => return Err(of_target(image, other)),
    };
    for info in found {
        info.luns.iter().for_each(|lun| grants[*lun as usize] = Some(info.name.clone()));
    }
    Ok(grants)
}
