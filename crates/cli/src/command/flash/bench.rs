//! `weft flash bench`: compares an application at each level of flash.

use crate::error::CliError;
use crate::say::{json_line, print};
use crate::table::Table;
use clap::Args;
use weft_core::units::format_size;
use weft_sim::levels::{Table1, table1};

/// `weft flash bench`
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Repeat Table I of the Prism-SSD paper at small scale: copies and erases of a slab cache at each level.
    #[arg(long, required = true)]
    table1: bool,
    /// Number of erase blocks in each of the 32 LUNs; this number sets the scale
    #[arg(long, value_name = "N", default_value_t = 64)]
    blocks: u32,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the comparison.
pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    let table = table1(args.blocks, args.seed)?;
    print(&if args.json { json_line(&table)? } else { text(&table) })
}

fn text(table: &Table1) -> String {
    let mut rows = Table::new("level< items copied> flash copied> erases> ratio> in the paper>");
    for row in &table.rows {
        let [items, flash] = [row.item_copy_bytes, row.flash_copy_bytes].map(format_size);
        let [ratio, paper] = [row.ratio, row.paper_ratio].map(|ratio| format!("{ratio:.3}"));
        rows.cells(&[&row.level, &items, &flash, &row.erases, &ratio, &paper]);
    }
    let set = table.rows.first().map_or(0, |row| row.set_bytes);
    format!(
        "{rows}\n{} of items were set in each row, on {} of flash in blocks of {}. Erases x block = bytes programmed in \
         each.\n",
        format_size(set),
        format_size(table.flash_bytes),
        format_size(table.block_bytes)
    )
}
