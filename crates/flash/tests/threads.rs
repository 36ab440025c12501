//! Threads that share a level: writes by number to one block, and reads beside erases of other LUNs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use support::gate::Gate;
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::LunAddr;
use weft_flash::function::{BlockRead, BlockWrite, Mapping};
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;

fn grant(backend: Arc<dyn weft_flash::Backend>) -> Grant {
    let monitor = Monitor::format(backend, MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    monitor.allocate(&GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 }).unwrap()
}

fn page_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(PAGE).collect()
}

#[test]
fn threads_write_one_block_by_number_at_once_and_each_write_is_there() {
    const THREADS: u64 = 4;
    let level = FunctionLevel::open(grant(Arc::new(support::device(1, 1, 40, 256)))).unwrap();
    level.set_ops(0).unwrap();
    let pages = level.geometry().pages_per_block;
    for round in 0..20 {
        let block = level.address_mapper(T, 0, Mapping::Page, round).unwrap().block;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let level = &level;
                scope.spawn(move || {
                    for page in (thread as u32..pages).step_by(THREADS as usize) {
                        let number = round << 32 | u64::from(page);
                        if page % 3 == 0 {
                            let data = page_of(number);
                            let write = BlockWrite { block, page, data: &data, tag: Tag::default() };
                            level.flash_write_vector(T, &[write]).pop().unwrap().unwrap();
                        } else {
                            level.flash_write(T, block, page, &page_of(number)).unwrap();
                        }
                    }
                });
            }
        });
        let mut data = vec![0; PAGE];
        for page in 0..pages {
            level.flash_read(T, block, page, 0, &mut data).unwrap();
            assert_eq!(data, page_of(round << 32 | u64::from(page)));
        }
    }
}

#[test]
fn threads_that_take_write_and_trim_blocks_find_what_they_wrote() {
    let level = FunctionLevel::open(grant(Arc::new(support::device(2, 2, 40, 8)))).unwrap();
    level.set_ops(0).unwrap();
    let write_and_read = |thread: u64| {
        for round in 0..300 {
            let mapping = if round % 2 == 0 { Mapping::Page } else { Mapping::Block };
            let channel = (round % 2) as u32;
            let block = level.address_mapper(T, channel, mapping, thread << 32 | round).unwrap().block;
            for page in 0..8 {
                level.flash_write(T, block, page, &page_of(thread << 32 | round)).unwrap();
            }
            let mut data = vec![0; PAGE];
            let read = BlockRead { block, page: 3, offset: 0, data: &mut data };
            level.flash_read_vector(T, &mut [read]).pop().unwrap().unwrap();
            assert_eq!(data, page_of(thread << 32 | round));
            level.flash_trim(block).unwrap();
            match round % 16 {
                3 => assert!(level.flush(T).unwrap() >= T),
                9 => assert!(level.reclaim(level.free_at(block).unwrap()).unwrap() < 200),
                _ => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || write_and_read(thread));
        }
    });
    level.flush(T).unwrap();
    let (mapped, free, retired) = level.census();
    assert_eq!((mapped, free, retired), (0, level.geometry().blocks(), 0));
}

/// Runs `erasing`, which comes to erase a block of the LUN behind the gate, and `reading` while it stands there.
fn beside_an_erase(gate: &Gate, lun: LunAddr, erasing: impl FnOnce() + Send, reading: impl FnOnce() + Send) {
    gate.shut(lun);
    let (read, is_read) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(erasing);
        gate.wait_for_one();
        scope.spawn(move || {
            reading();
            read.send(()).unwrap();
        });
        let found = is_read.recv_timeout(Duration::from_secs(20));
        gate.open();
        assert!(found.is_ok(), "a read waits for an erase of another LUN");
    });
}

const BUSY: LunAddr = LunAddr { channel: 0, lun: 0 };

#[test]
fn at_the_raw_level_a_read_does_not_wait_for_an_erase_of_another_lun() {
    let gate = Gate::new(support::device(2, 1, 30, 8));
    let raw = RawLevel::new(grant(gate.clone()));
    // Which of them lies on the LUN behind the gate the geometry does not say: the erase does.
    let of_channel = |channel| GrantBlock { channel, lun: 0, block: 0 };
    for channel in 0..2 {
        raw.page_write(T, of_channel(channel).page(0), &page_of(1), &[]).unwrap();
    }
    let (busy, other) = if gate.lun_of_erase(|| assert!(raw.block_erase(T, of_channel(0)).is_ok())) == BUSY {
        (of_channel(0), of_channel(1))
    } else {
        (of_channel(1), of_channel(0))
    };
    raw.page_write(T, of_channel(0).page(0), &page_of(1), &[]).unwrap();
    let read = || {
        let mut data = vec![0; PAGE];
        raw.page_read(T, other.page(0), 0, &mut data, &mut []).unwrap();
        assert_eq!(data, page_of(1));
    };
    beside_an_erase(&gate, BUSY, || assert!(raw.block_erase(T, busy).is_ok()), read);
}

#[test]
fn at_the_function_level_a_read_does_not_wait_for_an_erase_of_another_lun() {
    for flush in [false, true] {
        let gate = Gate::new(support::device(2, 1, 30, 8));
        let level = FunctionLevel::open(grant(gate.clone())).unwrap();
        level.set_ops(0).unwrap();
        let take = |channel| {
            let block = level.address_mapper(T, channel, Mapping::Block, 0).unwrap().block;
            level.flash_write(T, block, 0, &page_of(7)).unwrap();
            block
        };
        let first = take(0);
        level.flash_trim(first).unwrap();
        let on_gate = gate.lun_of_erase(|| assert!(level.flush(T).is_ok())) == BUSY;
        let (busy, other) = if on_gate { (0, 1) } else { (1, 0) };
        let (gone, kept) = (take(busy), take(other));
        level.flash_trim(gone).unwrap();
        let erase = || {
            if flush {
                level.flush(T).unwrap();
            } else {
                level.reclaim(Nanos(1 << 40)).unwrap();
            }
        };
        let read = || {
            let mut data = vec![0; PAGE];
            level.flash_read(T, kept, 0, 0, &mut data).unwrap();
            assert_eq!(data, page_of(7));
            level.flash_write(T, kept, 1, &page_of(8)).unwrap();
            let taken = level.address_mapper(T, other, Mapping::Block, 0).unwrap();
            level.flash_trim(taken.block).unwrap();
        };
        beside_an_erase(&gate, BUSY, erase, read);
    }
}

#[test]
fn at_the_policy_level_a_read_does_not_wait_for_an_erase_of_another_range() {
    let gate = Gate::new(support::device(1, 2, 60, 8));
    let setup = PolicySetup { stripe: 1, streams: 1, checkpoint_pages: 1 << 30 };
    let level = PolicyLevel::create(grant(gate.clone()), setup).unwrap();
    let range = |start| RangePolicy {
        start,
        pages: 64,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 250,
    };
    level.ftl_ioctl(&range(0)).unwrap();
    level.ftl_ioctl(&range(1000)).unwrap();
    let write = |page| assert!(level.ftl_write(T, page, &page_of(page), Tag::default()).is_ok());
    (0..64).for_each(|page| write(1000 + page));
    let erase = || (0..400).for_each(|page| write(page % 64));
    let read = || {
        let mut data = vec![0; PAGE];
        level.ftl_read(T, 1003, &mut data).unwrap();
        assert_eq!(data, page_of(1003));
        level.ftl_write(T, 1004, &page_of(1004), Tag::default()).unwrap();
    };
    // Whichever LUN the range erases first.
    gate.shut_all();
    let (read_done, is_read) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(erase);
        gate.wait_for_one();
        scope.spawn(move || {
            read();
            read_done.send(()).unwrap();
        });
        let found = is_read.recv_timeout(Duration::from_secs(20));
        gate.open();
        assert!(found.is_ok(), "a read waits for an erase of another range");
    });
}
