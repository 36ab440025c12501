//! Log blocks of the function level: pages with numbers of the application's, whose order over all blocks survives a restart.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::{CutEverywhere, Random, page_of};
use weft_core::{DataClass, Nanos, Tag};
use weft_flash::function::{BlockWrite, LogPage, Mapping};
use weft_flash::{Backend, FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup};

const T: Nanos = Nanos(0);
const NUMBERS: u64 = 12;

fn allocate(device: Arc<dyn Backend>) -> FunctionLevel {
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "a".into(), bytes, over_provisioning_permille: 0 };
    FunctionLevel::open(monitor.allocate(&request).unwrap()).unwrap()
}

fn open(device: Arc<dyn Backend>) -> FunctionLevel {
    FunctionLevel::open(Monitor::open(device).unwrap().attach("a").unwrap()).unwrap()
}

/// By number, the version that was written last, as the pages tell.
fn newest(level: &FunctionLevel) -> BTreeMap<u32, u64> {
    let mut found: BTreeMap<u32, (u64, GrantBlock, u32)> = BTreeMap::new();
    for mapped in level.mapped_blocks() {
        for LogPage { place, number, sequence } in level.log_pages(T, mapped.block).unwrap() {
            let entry = found.entry(number.unwrap()).or_insert((sequence, mapped.block, place));
            *entry = (*entry).max((sequence, mapped.block, place));
        }
    }
    let version = |(number, (_, block, place)): (u32, (u64, GrantBlock, u32))| {
        let mut data = vec![0; 4096];
        let (_, tag) = level.flash_read_tagged(T, block, place, &mut data).unwrap();
        let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
        assert_eq!(data, page_of(u64::from(number), version));
        assert_eq!(tag, tag_of(number));
        (number, version)
    };
    found.into_iter().map(version).collect()
}

fn tag_of(number: u32) -> Tag {
    let class = if number.is_multiple_of(2) { DataClass::Log } else { DataClass::Small };
    Tag { owner: number, class, ..Tag::default() }
}

fn write(level: &FunctionLevel, block: GrantBlock, number: u32, version: u64) -> Result<(), LevelError> {
    let data = page_of(u64::from(number), version);
    level
        .flash_write_tagged(T, &BlockWrite { block, page: number, data: &data, tag: tag_of(number) })
        .map(drop)
}

/// The newest page of each block, and that of a block that is being written.
type Known = (BTreeMap<u32, u64>, Option<(u32, u64)>);

#[test]
fn after_a_cut_anywhere_the_page_written_last_is_told_from_older_ones_in_other_blocks() {
    let cut = CutEverywhere::new(support::device(2, 1, 30, 8));
    let level = allocate(cut.clone());
    // What is durable, and what is under way.
    let known: Arc<parking_lot::Mutex<Known>> = Arc::default();
    let seen = known.clone();
    cut.arm(1, move |device, operation| {
        let found = newest(&open(Arc::new(device)));
        let (wanted, under_way) = seen.lock().clone();
        let mut other = wanted.clone();
        other.extend(under_way);
        assert!(
            found == wanted || found == other,
            "cut {operation}: {found:?}, wanted {wanted:?} {under_way:?}"
        );
    });
    let mut random = Random(7);
    let take = |channel| level.address_mapper(T, channel, Mapping::Log, 9).unwrap().block;
    // Blocks that are open at the same time, and take numbers from each other.
    let mut blocks = [take(0), take(1), take(0)];
    for version in 1..120 {
        let (at, number) = (random.below(3) as usize, random.below(NUMBERS) as u32);
        known.lock().1 = Some((number, version));
        match write(&level, blocks[at], number, version) {
            Err(LevelError::BlockFull(_)) => {
                blocks[at] = take(at as u32 % 2);
                write(&level, blocks[at], number, version).unwrap();
            }
            done => done.unwrap(),
        }
        let mut known = known.lock();
        known.0.insert(number, version);
        known.1 = None;
    }
    assert!(cut.operations() > 120);
    cut.disarm();
    let before = newest(&level);
    drop(level);
    let level = open(cut.clone());
    assert_eq!(newest(&level), before);
    // New writes come after all that was found, in a block that was found, too.
    let open_block = level.mapped_blocks().into_iter().find(|found| found.written < 8).unwrap().block;
    write(&level, open_block, 3, 1000).unwrap();
    assert_eq!(newest(&level)[&3], 1000);
}

#[test]
fn wear_leveling_moves_a_log_block_with_its_numbers_and_their_order() {
    let device = Arc::new(support::device(1, 1, 12, 8));
    let level = allocate(device.clone());
    let take = || level.address_mapper(T, 0, Mapping::Log, 9).unwrap().block;
    let (a, b) = (take(), take());
    write(&level, b, 1, 1).unwrap();
    write(&level, a, 1, 2).unwrap();
    write(&level, a, 5, 3).unwrap();
    write(&level, b, 5, 4).unwrap();
    // Others are worn meanwhile.
    for _ in 0..40 {
        level.flash_trim(take()).unwrap();
        level.flush(T).unwrap();
    }
    let report = level.wear_leveler(T, 1, 2).unwrap();
    assert_eq!(report.shuffled.len(), 2, "{report:?}");
    let wanted = BTreeMap::from([(1, 2), (5, 4)]);
    assert_eq!(newest(&level), wanted);
    drop(level);
    assert_eq!(newest(&open(device)), wanted);
}

#[test]
fn a_log_block_is_refused_where_its_notes_have_no_room() {
    let mut setup = weft_device::nand::FlashSetup::new(support::geometry(1, 1, 12, 8));
    setup.oob_bytes = 36;
    let level = allocate(Arc::new(weft_device::nand::OpenChannel::memory(&setup).unwrap()));
    let refused = level.address_mapper(T, 0, Mapping::Log, 0).unwrap_err();
    assert!(refused.to_string().contains("out-of-band bytes"), "{refused}");
    let block = level.address_mapper(T, 0, Mapping::Block, 0).unwrap().block;
    assert!(level.log_pages(T, block).is_err());
}
