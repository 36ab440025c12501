//! Vectored commands and rows: planes of a LUN work as one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use weft_core::{Nanos, Tag};
use weft_device::nand::{Fault, FlashSetup, OpenChannel};
use weft_flash::function::{BlockRead, BlockWrite, Mapping};
use weft_flash::raw::{RawRead, RawWrite};
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel, share,
};

fn granted(setup: &FlashSetup) -> (Arc<OpenChannel>, Grant) {
    let device = Arc::new(OpenChannel::memory(setup).unwrap());
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let grant = monitor.allocate(&request).unwrap();
    (device, grant)
}

/// A small device of two planes.
fn two_planes() -> FlashSetup {
    let mut geometry = support::geometry(1, 2, 16, 8);
    geometry.planes = 2;
    FlashSetup::new(geometry.with_size(2 * 16 * 8 * 4096))
}

#[test]
fn a_vector_is_one_operation_in_planes_and_a_failure_is_its_addresss_alone() {
    let (device, grant) = granted(&two_planes());
    let multi_plane = || device.counters().multi_plane;
    let raw = RawLevel::new(grant);
    let block = |block| GrantBlock { channel: 0, lun: 0, block };
    let data: Vec<Vec<u8>> = (0..4).map(|n| vec![n as u8 + 1; 4096]).collect();
    let write = |number: usize, page| RawWrite {
        page: block(number as u32).page(page),
        data: &data[number],
        oob: b"x",
        tag: Tag::default(),
    };

    let done =
        raw.page_write_vector(Nanos(0), &[write(0, 0), write(1, 0), write(2, 0), write(3, 0)]).unwrap();
    let done: Vec<_> = done.into_iter().map(Result::unwrap).collect();
    assert_eq!(multi_plane(), 2);
    assert!(done[0] == done[1] && done[2] == done[3] && done[1].done < done[3].done);

    // The flash fails in one plane: a spare takes that block's place, with what it held, and the other is as it was.
    let victim = (0..2).flat_map(|plane| (0..8).map(move |block| (plane, block)));
    let lun = device.shape().lun_at(0);
    let full = victim.map(|(plane, at)| lun.block(plane, at));
    let programmed: Vec<_> = full
        .filter(|at| device.block_info(*at).unwrap().programmed == 1)
        .filter(|at| {
            let mut content = vec![0; 4096];
            device.read(Nanos(0), at.page(0), 0, &mut content, &mut []).unwrap();
            content == data[0]
        })
        .collect();
    assert_eq!(programmed.len(), 1);
    device.inject(Fault::Program(programmed[0].page(1))).unwrap();
    let results = raw.page_write_vector(Nanos(0), &[write(0, 1), write(1, 1), write(2, 0)]).unwrap();
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    assert!(matches!(results[2], Err(LevelError::AlreadyProgrammed { .. })), "{results:?}");
    let mut got = vec![vec![0; 4096]; 4];
    let mut oobs = [[0; 1]; 4];
    let mut reads: Vec<_> = got
        .iter_mut()
        .zip(&mut oobs)
        .enumerate()
        .map(|(at, (data, oob))| RawRead {
            page: block(at as u32 / 2).page(at as u32 % 2),
            offset: 0,
            data,
            oob,
        })
        .collect();
    raw.page_read_vector(Nanos(0), &mut reads).unwrap().into_iter().for_each(|read| assert!(read.is_ok()));
    assert!(got[0] == data[0] && got[1] == data[0] && got[2] == data[1] && got[3] == data[1]);
    assert_eq!(oobs, [*b"x"; 4]);

    let before = multi_plane();
    let erased = raw.block_erase_vector(Nanos(0), &[block(2), block(3)]).unwrap();
    assert!(erased.iter().all(Result::is_ok) && multi_plane() == before + 1);
    device.verify_identity().unwrap();
}

#[test]
fn neighbouring_blocks_lie_in_different_planes_whatever_the_monitor_keeps_and_after_replacements() {
    for spares in 2..6 {
        let device = Arc::new(OpenChannel::memory(&two_planes()).unwrap());
        let setup = MonitorSetup { spares_per_lun: spares };
        let monitor = Monitor::format(device.clone(), setup).unwrap();
        let request = GrantRequest { name: "a".into(), bytes: 1, over_provisioning_permille: 0 };
        let raw = RawLevel::new(monitor.allocate(&request).unwrap());
        let blocks = raw.geometry().blocks_per_lun;
        assert!(blocks.is_multiple_of(2) && blocks >= 16 - spares - 4, "{blocks}");
        let data = vec![1; 4096];
        let pairs = |page: u32| {
            let before = device.counters().multi_plane;
            for first in (0..blocks).step_by(2) {
                let write = |block| {
                    let page = GrantBlock { channel: 0, lun: 0, block }.page(page);
                    RawWrite { page, data: &data, oob: &[], tag: Tag::default() }
                };
                let results = raw.page_write_vector(Nanos(0), &[write(first), write(first + 1)]).unwrap();
                assert!(results.iter().all(Result::is_ok), "{results:?}");
            }
            device.counters().multi_plane - before
        };
        assert_eq!(pairs(0), u64::from(blocks / 2), "{spares} spares");
        // Two blocks fail, and spares of their planes take their places.
        let lun = device.shape().lun_at(0);
        for plane in 0..2 {
            let mut at = (0..8).rev().map(|block| lun.block(plane, block));
            let full = at.find(|at| device.block_info(*at).unwrap().programmed == 1);
            device.inject(Fault::Program(full.unwrap().page(1))).unwrap();
        }
        pairs(1);
        let bad = device.lun_info(lun).unwrap().iter().filter(|info| info.state.is_bad()).count();
        assert_eq!(bad, 2);
        assert_eq!(pairs(2), u64::from(blocks / 2), "{spares} spares");
        device.verify_identity().unwrap();
    }
}

#[test]
fn a_vector_over_a_socket_does_what_it_does_in_the_process() {
    let device = Arc::new(OpenChannel::memory(&two_planes()).unwrap());
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    let _server = share::MonitorServer::start(monitor, &path).unwrap();
    let request = GrantRequest { name: "far".into(), bytes: 1, over_provisioning_permille: 0 };
    let level = FunctionLevel::open(share::allocate(&path, &request).unwrap()).unwrap();
    level.set_ops(0).unwrap();
    let mut blocks: Vec<_> =
        (0..2).map(|_| level.address_mapper(Nanos(0), 0, Mapping::Block, 0).unwrap().block).collect();
    blocks.sort_unstable();
    let data = [vec![7; 4096], vec![8; 4096]];
    let writes: Vec<_> = (0..4)
        .map(|at| BlockWrite {
            block: blocks[at % 2],
            page: at as u32 / 2,
            data: &data[at % 2],
            tag: Tag::default(),
        })
        .collect();
    let other = GrantBlock { channel: 0, lun: 0, block: blocks[1].block + 1 };
    let results = level
        .flash_write_vector(Nanos(0), &[&writes[..], &[BlockWrite { block: other, ..writes[0] }]].concat());
    assert!(results[..4].iter().all(Result::is_ok), "{results:?}");
    assert!(matches!(results[4], Err(LevelError::NotMapped(_))), "{results:?}");
    assert_eq!(device.counters().multi_plane, 2);
    let mut got = vec![vec![0; 100]; 3];
    let mut reads: Vec<_> = got
        .iter_mut()
        .enumerate()
        .map(|(at, data)| BlockRead { block: blocks[at % 2], page: at as u32, offset: 96, data })
        .collect();
    let results = level.flash_read_vector(Nanos(0), &mut reads);
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    assert!(matches!(results[2], Err(LevelError::NotProgrammed { .. })), "{results:?}");
    assert!(got[0] == [7; 100] && got[1] == [8; 100]);
    // More than a request takes are several requests.
    let block = level.address_mapper(Nanos(0), 0, Mapping::Page, 0).unwrap().block;
    let writes: Vec<_> =
        (0..200).map(|at| BlockWrite { block, page: at % 8, data: &data[0], tag: Tag::default() }).collect();
    let results = level.flash_write_vector(Nanos(0), &writes);
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 8, "{results:?}");
    assert!(matches!(results[8], Err(LevelError::BlockFull(_))), "{results:?}");
    let mut got = vec![vec![0; 100]; 200];
    let mut reads: Vec<_> = got
        .iter_mut()
        .enumerate()
        .map(|(at, data)| BlockRead { block, page: at as u32 % 8, offset: 0, data })
        .collect();
    assert!(level.flash_read_vector(Nanos(0), &mut reads).iter().all(Result::is_ok));
    assert!(got.iter().all(|got| *got == [7; 100]));
}

#[test]
fn a_row_has_a_block_in_each_plane_of_neighbouring_luns_and_rows_go_round() {
    let mut geometry = support::geometry(2, 2, 16, 8);
    geometry.planes = 2;
    let setup = FlashSetup::new(geometry.with_size(4 * 16 * 8 * 4096));
    let (device, grant) = granted(&setup);
    let level = FunctionLevel::open(grant).unwrap();
    level.set_ops(0).unwrap();
    let luns = level.geometry().lun_list();
    let take = |label| level.address_mapper_row(Nanos(0), 2, Mapping::Block, label);
    let pairs = level.geometry().blocks_per_lun / 2;
    let mut rows = Vec::new();
    for number in 0..2 * pairs {
        let row = take(u64::from(number)).unwrap();
        // LUN by LUN, each with both planes.
        let on: Vec<_> = row.iter().map(|block| (block.channel, block.lun)).collect();
        let first = number as usize % 2 * 2;
        assert_eq!(on, [luns[first], luns[first], luns[first + 1], luns[first + 1]]);
        assert!(row.chunks(2).all(|lun| lun[0].block % 2 == 0 && lun[1].block % 2 == 1), "{row:?}");
        let before = device.counters().multi_plane;
        let writes: Vec<_> = row
            .iter()
            .map(|block| BlockWrite { block: *block, page: 0, data: &[5; 4096], tag: Tag::default() })
            .collect();
        assert!(level.flash_write_vector(Nanos(0), &writes).iter().all(Result::is_ok));
        assert_eq!(device.counters().multi_plane - before, 2);
        rows.push(row);
    }
    let mut all: Vec<_> = rows.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u32, level.geometry().blocks());
    assert!(matches!(take(0), Err(LevelError::TooManyMapped { .. })));
    for luns in [0, 5] {
        let refused = level.address_mapper_row(Nanos(0), luns, Mapping::Block, 0);
        assert!(matches!(refused, Err(LevelError::BadRequest(what)) if what.contains("1 to 4")));
    }

    // As many blocks are free as a row takes, and not side by side; then as they should be, trimmed and not yet erased.
    [&rows[0][..2], &rows[1][..2]].concat().iter().for_each(|block| level.flash_trim(*block).unwrap());
    assert!(matches!(take(0), Err(LevelError::NoFreeRow { luns: 2 })));
    rows[0][2..].iter().for_each(|block| level.flash_trim(*block).unwrap());
    let mut again = take(77).unwrap();
    again.sort_unstable();
    let mut first = rows[0].clone();
    first.sort_unstable();
    assert_eq!(again, first);

    // After a restart the written blocks are found with their label.
    let writes: Vec<_> = again
        .iter()
        .map(|block| BlockWrite { block: *block, page: 0, data: &[6; 4096], tag: Tag::default() })
        .collect();
    assert!(level.flash_write_vector(Nanos(0), &writes).iter().all(Result::is_ok));
    let level = FunctionLevel::open(level.into_grant()).unwrap();
    let found = level.mapped_blocks().into_iter().filter(|found| found.label == 77);
    assert_eq!(
        found.map(|found| found.block).collect::<std::collections::BTreeSet<_>>(),
        again.into_iter().collect()
    );
    device.verify_identity().unwrap();
}

#[test]
fn a_row_lies_on_the_luns_with_the_least_worn_blocks() {
    let (_, grant) = granted(&FlashSetup::new(support::geometry(2, 1, 8, 4)));
    let level = FunctionLevel::open(grant).unwrap();
    level.set_ops(0).unwrap();
    let take = || level.address_mapper_row(Nanos(0), 1, Mapping::Block, 0).unwrap()[0];
    // All blocks of channel 0 are worn, those of channel 1 are not.
    let blocks = level.geometry().blocks_per_lun;
    for _ in 0..8 {
        let taken: Vec<_> = (0..blocks)
            .map(|_| level.address_mapper(Nanos(0), 0, Mapping::Block, 0).unwrap().block)
            .collect();
        taken.iter().for_each(|block| level.flash_trim(*block).unwrap());
        level.flush(Nanos(0)).unwrap();
    }
    let channels: Vec<_> = (0..2 * blocks).map(|_| take().channel).collect();
    assert_eq!(channels[..blocks as usize], vec![1; blocks as usize]);
    assert_eq!(channels[blocks as usize..], vec![0; blocks as usize]);
}
