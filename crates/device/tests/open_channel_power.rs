//! Power is cut in every operation of a workload, and what was reported before is there afterwards.
//!
//! The workload writes records to blocks, round and round, as a log would. Before each operation the device is forked
//! and the fork loses power in it; then every record that was ever reported and not erased has to be there, the page
//! that power met is whole or cannot be read, and the fork takes new writes everywhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{
    BlockAddr, BlockState, FlashError, FlashSetup, Keep, OpenChannel, PageAddr, Pairing,
};

const PAGES: u32 = 8;
const OPERATIONS: u64 = 20_000;
/// Pages apart of the two bits of a cell.
const STRIDE: u32 = 2;

fn record(device: &OpenChannel, page: PageAddr) -> Result<u64, FlashError> {
    let mut oob = [0; 8];
    device.read(Nanos(0), page, 0, &mut [], &mut oob)?;
    Ok(u64::from_le_bytes(oob))
}

/// The command that the power cut interrupts.
enum CutCommand {
    Program(PageAddr, u64),
    Erase(BlockAddr),
}

fn check(after: &OpenChannel, reported: &BTreeMap<PageAddr, u64>, command: &CutCommand) {
    for (page, value) in reported {
        let may_be_gone = match command {
            // A torn page of a cell's upper bit takes that of the lower bit along.
            CutCommand::Program(torn, _) => {
                page.block == torn.block
                    && torn.page % (2 * STRIDE) >= STRIDE
                    && page.page + STRIDE == torn.page
            }
            CutCommand::Erase(block) => page.block == *block,
        };
        match record(after, *page) {
            Ok(found) => assert_eq!(found, *value, "{page}"),
            Err(FlashError::Uncorrectable { .. } | FlashError::NotProgrammed { .. }) => {
                assert!(may_be_gone, "{page} is gone");
            }
            Err(error) => panic!("{page}: {error}"),
        }
    }
    match command {
        CutCommand::Program(page, value) => match record(after, *page) {
            Ok(found) => assert_eq!(found, *value),
            Err(FlashError::Uncorrectable { .. } | FlashError::NotProgrammed { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        CutCommand::Erase(block) => {
            // Erased, half erased or as before: never a part of its pages.
            let readable = (0..PAGES).filter(|page| record(after, block.page(*page)).is_ok()).count();
            let before = reported.keys().filter(|page| page.block == *block).count();
            assert!(readable == 0 || readable == before, "{readable} of {before} pages are left");
        }
    }
    // No block is lost: each takes a program, after an erase where that is needed.
    for block in after.shape().all_blocks() {
        let info = after.block_info(block).unwrap();
        assert!(!info.state.is_bad());
        let next = match info.state {
            BlockState::Full | BlockState::EraseIncomplete => {
                after.erase(Nanos(0), block).unwrap();
                0
            }
            _ => info.programmed,
        };
        after.program(Nanos(0), block.page(next), &[], &[1]).unwrap();
    }
    after.verify_identity().unwrap();
}

#[test]
fn a_cut_in_any_of_20_000_operations_loses_nothing_that_was_reported() {
    let geometry = Geometry {
        channels: 2,
        luns_per_channel: 1,
        planes: 2,
        pages_per_block: PAGES,
        total_bytes: 2 * 2 * 3 * u64::from(PAGES) * 4096,
        ..Geometry::bbssd()
    };
    let pairing = Some(Pairing::even(STRIDE, &geometry.timing));
    let setup = FlashSetup { pairing, ..FlashSetup::new(geometry) }.keeping(Keep::Oob);
    let device = OpenChannel::memory(&setup).unwrap();
    let blocks: Vec<BlockAddr> = device.shape().all_blocks().collect();
    let mut reported = BTreeMap::new();
    let (mut operations, mut lap) = (0, 0);
    'work: loop {
        for block in &blocks {
            for step in 0..=PAGES {
                // Each block is erased first, from the second time round on.
                let command = match step {
                    0 if lap == 0 => continue,
                    0 => CutCommand::Erase(*block),
                    page => CutCommand::Program(block.page(page - 1), operations),
                };
                let fork = device.fork().unwrap();
                fork.cut_after(0, operations);
                let cut = match &command {
                    CutCommand::Erase(block) => fork.erase(Nanos(0), *block),
                    CutCommand::Program(page, value) => {
                        fork.program(Nanos(0), *page, &[], &value.to_le_bytes())
                    }
                };
                assert!(matches!(cut, Err(FlashError::PowerLost)));
                fork.power_on();
                check(&fork, &reported, &command);
                match command {
                    CutCommand::Erase(block) => {
                        device.erase(Nanos(0), block).unwrap();
                        reported.retain(|page: &PageAddr, _| page.block != block);
                    }
                    CutCommand::Program(page, value) => {
                        device.program(Nanos(0), page, &[], &value.to_le_bytes()).unwrap();
                        reported.insert(page, value);
                    }
                }
                operations += 1;
                if operations == OPERATIONS {
                    break 'work;
                }
            }
        }
        lap += 1;
    }
    device.verify_identity().unwrap();
}
