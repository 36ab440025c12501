//! Errors of the host in the middle of a command: its disk is full for a while, or it reports an input/output error once. What a
//! command did before such an error is known exactly, and work goes on as soon as the host can, without opening anything again.
//!
//! Guarded here: a program of several planes that the host ended half-way made a range refuse all writes, and a block whose
//! replacement failed on a full disk lost its next page. The campaigns run a slice of their seeds, and with `WEFT_CAMPAIGN=1` all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use support::flaky::{Met, seeds};
use support::host::Host;
use support::{Random, page_of};
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{BlockState, Fault, FlashSetup, OpenChannel, PageAddr};
use weft_flash::function::{BlockWrite, Mapping, WearReport};
use weft_flash::monitor::LevelPolicy;
use weft_flash::raw::{RawRead, RawWrite};
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel,
    PolicySetup, RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;

fn setup(channels: u32, luns: u32, planes: u32, blocks: u32, pages: u32) -> FlashSetup {
    let mut geometry = support::geometry(channels, luns, blocks, pages);
    geometry.planes = planes;
    let bytes = u64::from(channels * luns * blocks * pages) * PAGE as u64;
    FlashSetup::new(geometry.with_size(bytes))
}

fn allocate(monitor: &Arc<Monitor>, luns: u64) -> Grant {
    let request =
        GrantRequest { name: "a".into(), bytes: luns * monitor.lun_bytes(), over_provisioning_permille: 0 };
    monitor.allocate(&request).unwrap()
}

/// The page that is programmed next in the blocks that hold this data in their first page, by the order of `datas`.
fn next_pages(device: &OpenChannel, datas: &[u8]) -> Vec<PageAddr> {
    let shape = device.shape();
    let holds = |value: u8| {
        let mut blocks = (0..shape.blocks()).map(|number| shape.block_at(number));
        let block = blocks.find(|block| {
            let mut data = [0; PAGE];
            let read = device.read(T, block.page(0), 0, &mut data, &mut []);
            read.is_ok() && data == [value; PAGE] && !device.block_info(*block).unwrap().state.is_bad()
        });
        let block = block.unwrap();
        block.page(device.block_info(block).unwrap().programmed)
    };
    datas.iter().map(|value| holds(*value)).collect()
}

fn is_of_host<T>(result: &Result<T, LevelError>) -> bool {
    matches!(result, Err(LevelError::HostFull(_) | LevelError::Device(_)))
}

#[test]
fn a_vector_that_the_host_ends_in_one_plane_is_programmed_in_none_and_succeeds_when_given_again() {
    for failing in 0..2 {
        let device = Arc::new(OpenChannel::memory(&setup(1, 1, 2, 32, 8)).unwrap());
        let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        let raw = RawLevel::new(allocate(&monitor, 1));
        let block = |block| GrantBlock { channel: 0, lun: 0, block };
        let data = [[7; PAGE], [8; PAGE]];
        let write = |at: usize, page| RawWrite {
            page: block(at as u32).page(page),
            data: &data[at],
            oob: &[],
            tag: Tag::default(),
        };
        assert!(raw.page_write_vector(T, &[write(0, 0), write(1, 0)]).unwrap().iter().all(Result::is_ok));
        let next = next_pages(&device, &[7, 8]);
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            device.inject(Fault::Host(next[failing], kind)).unwrap();
            let results = raw.page_write_vector(T, &[write(0, 1), write(1, 1)]).unwrap();
            assert!(results.iter().all(is_of_host), "plane {failing}: {results:?}");
            for at in 0..2 {
                assert_eq!(raw.look(block(at)).unwrap().programmed, 1, "plane {failing} of {at}");
            }
        }
        let results = raw.page_write_vector(T, &[write(0, 1), write(1, 1)]).unwrap();
        assert!(results.iter().all(Result::is_ok), "plane {failing}: {results:?}");
        device.verify_identity().unwrap();
    }
}

#[test]
fn a_bad_block_is_replaced_later_as_it_would_have_been_at_first() {
    for reopen in [false, true] {
        let device = Arc::new(OpenChannel::memory(&setup(1, 1, 1, 64, 8)).unwrap());
        let mut monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        let mut raw = RawLevel::new(allocate(&monitor, 1));
        let block = GrantBlock { channel: 0, lun: 0, block: 0 };
        for page in 0..3 {
            raw.page_write(T, block.page(page), &[9 + page as u8; PAGE], &[]).unwrap();
        }
        let next = next_pages(&device, &[9])[0];
        device.inject(Fault::Program(next)).unwrap();
        // The spares are erased, and the first page of each meets a full disk.
        let shape = device.shape();
        let spares = (0..shape.blocks()).map(|number| shape.block_at(number));
        for spare in spares.filter(|spare| *spare != next.block) {
            device.inject(Fault::Host(spare.page(0), ErrorKind::StorageFull)).unwrap();
        }
        let full = raw.page_write(T, block.page(3), &[5; PAGE], &[]);
        assert!(matches!(full, Err(LevelError::HostFull(_))), "{full:?}");
        assert!(device.block_info(next.block).unwrap().state.is_bad());
        let look = raw.look(block).unwrap();
        assert!(look.retired && look.programmed == 3, "{look:?}");
        if reopen {
            drop(raw);
            drop(monitor);
            monitor = loop {
                if let Ok(monitor) = Monitor::open(device.clone()) {
                    break monitor;
                }
            };
            raw = loop {
                if let Ok(grant) = monitor.attach("a") {
                    break RawLevel::new(grant);
                }
            };
            assert_eq!(raw.look(block).unwrap().programmed, 3);
        }
        // Each attempt uses up one of the errors that were asked for.
        let mut tries = 0;
        while raw.page_write(T, block.page(3), &[5; PAGE], &[]).is_err() {
            tries += 1;
            let look = raw.look(block).unwrap();
            assert!(tries < 64 && look.programmed == 3, "try {tries}: {look:?}");
        }
        let look = raw.look(block).unwrap();
        assert!(!look.retired && look.programmed == 4, "{look:?}");
        let mut data = [0; PAGE];
        for (page, value) in [9, 10, 11, 5].into_iter().enumerate() {
            raw.page_read(T, block.page(page as u32), 0, &mut data, &mut []).unwrap();
            assert_eq!(data, [value; PAGE], "page {page}");
        }
    }
}

/// A page-mapped range of 40 pages, the first two of which hold 7 and 8.
fn begin_range(level: &PolicyLevel) {
    let policy = RangePolicy {
        start: 0,
        pages: 40,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 500,
    };
    level.ftl_ioctl(&policy).unwrap();
    level.ftl_write(T, 0, &[[7; PAGE], [8; PAGE]].concat(), Tag::default()).unwrap();
}

#[test]
fn a_write_of_several_planes_that_the_host_ends_is_there_or_not_and_the_range_goes_on() {
    // The program is one of both planes, or page by page; the flash fails beside it, or not.
    for (split, failing, fails) in (0..8).map(|n| (n & 1 > 0, n >> 1 & 1, n & 4 > 0)) {
        let device = OpenChannel::memory(&setup(1, 1, 2, 128, 8)).unwrap();
        let host = Host::new(device, split, 1);
        let monitor = Monitor::format(host.clone(), MonitorSetup::default()).unwrap();
        let level = PolicyLevel::create(allocate(&monitor, 1), PolicySetup::default()).unwrap();
        begin_range(&level);
        let next = next_pages(&host.device, &[7, 8]);
        if fails {
            // Its replacement meets the host's error.
            host.device.inject(Fault::Program(next[failing])).unwrap();
            host.fill(if split { 2 - failing as u64 } else { 2 });
        } else {
            host.fill(failing as u64);
        }
        let new = [[17; PAGE], [18; PAGE]];
        let result = level.ftl_write(T, 0, &new.concat(), Tag::default());
        assert!(matches!(result, Err(LevelError::HostFull(_))), "{result:?}");
        let case = format!("split {split}, plane {failing}, flash fails {fails}");
        let mut found = [[0; PAGE]; 2];
        for (page, data) in found.iter_mut().enumerate() {
            level.ftl_read(T, page as u64, data).unwrap();
            assert!(*data == new[page] || *data == [7 + page as u8; PAGE], "{case}: page {page}");
        }
        if !split && !fails {
            assert_eq!(found, [[7; PAGE], [8; PAGE]], "a program of all planes is done in none: {case}");
        }
        host.free();
        level.verify().unwrap();
        for page in 2..40 {
            level.ftl_write(T, page, &[9; PAGE], Tag::default()).unwrap();
        }
        level.flush(T).unwrap();
        drop(level);
        let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
        for (page, wanted) in found.iter().enumerate() {
            let mut data = [0; PAGE];
            level.ftl_read(T, page as u64, &mut data).unwrap();
            assert_eq!(data[0], wanted[0], "{case}: page {page} has changed its mind");
        }
        level.verify().unwrap();
        host.device.verify_identity().unwrap();
    }
}

#[test]
fn a_page_beside_one_whose_program_failed_counts_when_the_host_fails_before_both_are_written_again() {
    for failing in 0..2 {
        let host = Host::new(OpenChannel::memory(&setup(1, 1, 2, 128, 8)).unwrap(), false, 1);
        let monitor = Monitor::format(host.clone(), MonitorSetup::default()).unwrap();
        let grant = allocate(&monitor, 1);
        let last = GrantBlock { channel: 0, lun: 0, block: grant.geometry().blocks_per_lun - 1 };
        let raw = RawLevel::new(grant);
        // All spares take the place of one block, and then it has none.
        raw.page_write(T, last.page(0), &[99; PAGE], &[]).unwrap();
        loop {
            host.device.inject(Fault::Program(next_pages(&host.device, &[99])[0])).unwrap();
            match raw.page_write(T, last.page(1), &[1; PAGE], &[]) {
                Ok(_) => raw.block_erase(T, last).map(drop).unwrap(),
                Err(LevelError::BlockRetired { .. }) => break,
                Err(other) => panic!("{other}"),
            }
            raw.page_write(T, last.page(0), &[99; PAGE], &[]).unwrap();
        }
        assert!(raw.block_erase(T, last).is_err());
        let level = PolicyLevel::create(raw.into_grant(), PolicySetup::default()).unwrap();
        begin_range(&level);
        host.device.inject(Fault::Program(next_pages(&host.device, &[7, 8])[failing])).unwrap();
        host.fill(2);
        let written = level.ftl_write(T, 0, &[[17; PAGE], [18; PAGE]].concat(), Tag::default());
        assert!(matches!(written, Err(LevelError::HostFull(_))), "{written:?}");
        let read = |level: &PolicyLevel| {
            let mut first = [[0; PAGE]; 2];
            first
                .iter_mut()
                .zip(0..)
                .for_each(|(data, page)| level.ftl_read(T, page, data).map(drop).unwrap());
            [first[0][0], first[1][0]]
        };
        let found = read(&level);
        host.free();
        level.verify().unwrap();
        level.flush(T).unwrap();
        drop(level);
        let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
        assert_eq!(read(&level), found, "plane {failing}: a page has changed its mind");
        level.verify().unwrap();
    }
}

#[test]
fn an_exchange_of_luns_that_the_host_interrupts_again_and_again_keeps_its_spare_blocks() {
    let device = OpenChannel::memory(&setup(1, 2, 1, 40, 4)).unwrap();
    let host = Host::new(device, false, 1);
    let monitor = Monitor::format(host.clone(), MonitorSetup::default()).unwrap();
    let raw = RawLevel::new(allocate(&monitor, 1));
    let block = |block| GrantBlock { channel: 0, lun: 0, block };
    for number in 0..raw.geometry().blocks_per_lun {
        raw.block_erase(T, block(number)).unwrap();
        raw.page_write(T, block(number).page(0), &[number as u8 + 1; PAGE], &[]).unwrap();
    }
    let policy = LevelPolicy { max_over_mean: 1.0, gap_erases_min: 0, swaps_max: 1 };
    // The exchange begins, and the record of the first block that has moved meets a full disk.
    for pages in [2].into_iter().chain([1; 40]) {
        host.fill(pages);
        let interrupted = monitor.level_wear(policy, T);
        assert!(is_of_host(&interrupted), "{interrupted:?}");
    }
    host.free();
    let report = monitor.level_wear(policy, T).unwrap();
    assert!(!report.waits && report.blocks_moved > 0, "{report:?}");
    for number in 0..raw.geometry().blocks_per_lun {
        let mut data = [0; PAGE];
        raw.page_read(T, block(number).page(0), 0, &mut data, &mut []).unwrap();
        assert_eq!(data, [number as u8 + 1; PAGE]);
    }
    host.device.verify_identity().unwrap();
}

fn version_of(key: u64, data: &[u8]) -> u64 {
    if data.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
    assert!(data == &page_of(key, version)[..], "page {key} holds something else");
    version
}

/// A device of a random shape with up to four planes, with failures of the flash that the spares bear.
fn device(random: &mut Random, spares: u32) -> (Arc<Host>, u64, Arc<Monitor>) {
    let planes = 1 + random.below(4) as u32;
    let luns = 1 + random.below(2) as u32;
    let pages = 3 + random.below(8) as u32;
    let blocks = (60 + spares + random.below(40) as u32 + 24 * planes).next_multiple_of(planes);
    let device = OpenChannel::memory(&setup(1, luns, planes, blocks, pages)).unwrap();
    let split = random.below(2) == 0;
    let host = Host::new(device, split, random.next());
    let monitor = Monitor::format(host.clone(), MonitorSetup { spares_per_lun: spares }).unwrap();
    (host, u64::from(luns), monitor)
}

/// Lets the flash fail in the next program of some open block, as long as there are spares for it.
fn wound(host: &Host, random: &mut Random, wounds: &mut u32) {
    let shape = host.device.shape();
    let next = |number| {
        let block = shape.block_at(number);
        let info = host.device.block_info(block).unwrap();
        (info.state == BlockState::Open).then(|| block.page(info.programmed))
    };
    let open: Vec<PageAddr> = (0..shape.blocks()).filter_map(next).collect();
    if *wounds > 0 && !open.is_empty() {
        *wounds -= 1;
        let page = open[random.below(open.len() as u64) as usize];
        host.device.inject(Fault::Program(page)).unwrap();
    }
}

/// The weather of the next steps: mostly good.
fn weather(host: &Host, random: &mut Random) {
    match random.below(4) {
        0 => host.fill(random.below(6)),
        1 => host.fail_once(random.below(6)),
        _ => host.free(),
    }
}

const SPARES: u32 = 12;

fn raw_campaign(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (host, luns, mut monitor) = device(&mut random, SPARES);
    let mut raw = RawLevel::new(allocate(&monitor, luns));
    let geometry = raw.geometry().clone();
    let blocks: Vec<GrantBlock> = geometry
        .lun_list()
        .into_iter()
        .flat_map(|(channel, lun)| (0..8).map(move |block| GrantBlock { channel, lun, block }))
        .collect();
    let mut model: BTreeMap<GrantBlock, Vec<u64>> = blocks.iter().map(|block| (*block, Vec::new())).collect();
    let mut wounds = SPARES - 3;
    let mut version = 0;
    for _ in 0..12 {
        weather(&host, &mut random);
        for _ in 0..20 {
            if random.below(6) == 0 {
                wound(&host, &mut random, &mut wounds);
            }
            let first = random.below(blocks.len() as u64) as usize;
            if random.below(8) == 0 {
                let erased = raw.block_erase(T, blocks[first]);
                assert!(erased.is_ok() || is_of_host(&erased), "seed {seed}: {erased:?}");
                let held = raw.look(blocks[first]).unwrap().programmed as usize;
                let was = model.get_mut(&blocks[first]).unwrap();
                assert!(held == 0 || (erased.is_err() && held == was.len()), "seed {seed}: {held}");
                was.truncate(held);
                continue;
            }
            // Neighbouring blocks, at the page that most of them have next, and behind it.
            let count = 1 + random.below(5) as usize;
            let named: Vec<GrantBlock> = (first..first + count).map(|at| blocks[at % blocks.len()]).collect();
            let mut next: BTreeMap<GrantBlock, u32> =
                named.iter().map(|block| (*block, model[block].len() as u32)).collect();
            let mut pages = Vec::new();
            for _ in 0..1 + random.below(2) {
                for block in &named {
                    let page = next.get_mut(block).unwrap();
                    if *page < geometry.pages_per_block {
                        version += 1;
                        pages.push((block.page(*page), version, page_of(version, version)));
                        *page += 1;
                    }
                }
            }
            if pages.is_empty() {
                continue;
            }
            let writes: Vec<RawWrite> = pages
                .iter()
                .map(|(page, _, data)| RawWrite { page: *page, data, oob: &[], tag: Tag::default() })
                .collect();
            let mut ended = false;
            for ((page, version, _), result) in pages.iter().zip(raw.page_write_vector(T, &writes).unwrap()) {
                let held = model.get_mut(&page.block).unwrap();
                match result {
                    Ok(_) => {
                        assert_eq!(held.len(), page.page as usize, "seed {seed}");
                        held.push(*version);
                    }
                    Err(LevelError::OutOfOrder { next, .. }) if ended => {
                        assert!(next < page.page, "seed {seed}: {page}");
                    }
                    result => {
                        assert!(is_of_host(&result), "seed {seed}: {page}: {result:?}");
                        ended = true;
                    }
                }
            }
            for block in &named {
                let look = raw.look(*block).unwrap();
                assert_eq!(look.programmed as usize, model[block].len(), "seed {seed}: {block}");
            }
        }
        host.free();
        if random.below(3) == 0 {
            drop(raw);
            if random.below(2) == 0 {
                drop(monitor);
                monitor = Monitor::open(host.clone()).unwrap();
            }
            raw = RawLevel::new(monitor.attach("a").unwrap());
        }
        // All is as it was acknowledged, and each block takes its next page.
        for (block, held) in &mut model {
            let mut found = vec![vec![0; PAGE]; held.len()];
            let mut reads: Vec<RawRead> = found
                .iter_mut()
                .enumerate()
                .map(|(at, data)| RawRead { page: block.page(at as u32), offset: 0, data, oob: &mut [] })
                .collect();
            if !reads.is_empty() {
                let results = raw.page_read_vector(T, &mut reads).unwrap();
                assert!(results.iter().all(Result::is_ok), "seed {seed}: {block}: {results:?}");
            }
            for (data, version) in found.iter().zip(held.iter()) {
                assert_eq!(version_of(*version, data), *version, "seed {seed}: {block}");
            }
            if (held.len() as u32) < geometry.pages_per_block {
                version += 1;
                let page = block.page(held.len() as u32);
                raw.page_write(T, page, &page_of(version, version), &[]).unwrap();
                held.push(version);
            }
        }
    }
    host.device.verify_identity().unwrap();
    Met { cuts: host.errors(), failed_blocks: host.device.bad_blocks().len() as u64, ..Met::default() }
}

#[test]
fn raw_level_knows_what_is_programmed_after_every_error_of_the_host() {
    seeds(60, 4000, raw_campaign);
}

/// A block that the function level gave out: what its pages hold.
struct Taken {
    block: GrantBlock,
    mapping: Mapping,
    written: u32,
    pages: BTreeMap<u32, u64>,
}

fn function_campaign(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (host, luns, mut monitor) = device(&mut random, SPARES);
    let mut level = FunctionLevel::open(allocate(&monitor, luns)).unwrap();
    let pages_per_block = level.geometry().pages_per_block;
    let mut taken: BTreeMap<u64, Taken> = BTreeMap::new();
    let (mut wounds, mut version, mut label) = (SPARES - 3, 0, 0);
    for _ in 0..12 {
        weather(&host, &mut random);
        for _ in 0..30 {
            if random.below(6) == 0 {
                wound(&host, &mut random, &mut wounds);
            }
            if taken.len() < 12 && random.below(4) == 0 {
                label += 1;
                let mapping = if random.below(2) == 0 { Mapping::Page } else { Mapping::Block };
                // One after the other they lie in different planes.
                let mapped = level.address_mapper(T, 0, mapping, label);
                assert!(mapped.is_ok() || is_of_host(&mapped), "seed {seed}: {mapped:?}");
                if let Ok(mapped) = mapped {
                    let (block, pages) = (mapped.block, BTreeMap::new());
                    taken.insert(label, Taken { block, mapping, written: 0, pages });
                }
            }
            let known: Vec<u64> = taken.keys().copied().collect();
            if known.is_empty() {
                continue;
            }
            let at = random.below(known.len() as u64) as usize;
            match random.below(12) {
                0 => {
                    level.flash_trim(taken[&known[at]].block).unwrap();
                    taken.remove(&known[at]);
                }
                1 => {
                    let flushed = level.flush(T);
                    assert!(flushed.is_ok() || is_of_host(&flushed), "seed {seed}: {flushed:?}");
                }
                2 => {
                    let report = level.wear_leveler(T, random.below(2) as u32, 2);
                    assert!(report.is_ok() || is_of_host(&report), "seed {seed}: {report:?}");
                    if let Ok(WearReport { shuffled, stopped, .. }) = report {
                        let stopped = stopped.map_or(Ok(()), Err);
                        assert!(stopped.is_ok() || is_of_host(&stopped), "seed {seed}: {stopped:?}");
                        for moved in shuffled {
                            let one = taken.get_mut(&moved.label).unwrap();
                            assert_eq!(one.block, moved.from, "seed {seed}");
                            one.block = moved.to;
                        }
                    }
                    // The application knows where its blocks are, whatever happened.
                    for found in level.mapped_blocks() {
                        assert_eq!(taken[&found.label].block, found.block, "seed {seed}: {}", found.label);
                    }
                }
                _ => {
                    let named = &known[at..known.len().min(at + 1 + random.below(5) as usize)];
                    let mut pages = Vec::new();
                    for label in named {
                        let one = &taken[label];
                        if one.written < pages_per_block {
                            version += 1;
                            let any = random.below(u64::from(pages_per_block)) as u32;
                            let page = if one.mapping == Mapping::Page { any } else { one.written };
                            pages.push((*label, page, version, page_of(version, version)));
                        }
                    }
                    let writes: Vec<BlockWrite> = pages
                        .iter()
                        .map(|(label, page, _, data)| BlockWrite {
                            block: taken[label].block,
                            page: *page,
                            data,
                            tag: Tag::default(),
                        })
                        .collect();
                    let results = level.flash_write_vector(T, &writes);
                    for ((label, page, version, _), result) in pages.into_iter().zip(results) {
                        let one = taken.get_mut(&label).unwrap();
                        if result.is_ok() {
                            one.written += 1;
                            one.pages.insert(page, version);
                        } else {
                            assert!(is_of_host(&result), "seed {seed}: {result:?}");
                        }
                    }
                }
            }
        }
        host.free();
        // Every block takes another page, before anything is opened again.
        for one in taken.values_mut().filter(|one| one.written < pages_per_block) {
            version += 1;
            let page = if one.mapping == Mapping::Page { 0 } else { one.written };
            level.flash_write(T, one.block, page, &page_of(version, version)).unwrap();
            one.written += 1;
            one.pages.insert(page, version);
        }
        level.flush(T).unwrap();
        if random.below(3) == 0 {
            // What nobody wrote to is free again.
            taken.retain(|_, one| one.written > 0);
            let grant = level.into_grant();
            level = if random.below(2) == 0 {
                drop(grant);
                drop(monitor);
                monitor = Monitor::open(host.clone()).unwrap();
                FunctionLevel::open(monitor.attach("a").unwrap()).unwrap()
            } else {
                FunctionLevel::open(grant).unwrap()
            };
            assert_eq!(level.mapped_blocks().len(), taken.len(), "seed {seed}");
        }
        let mut data = vec![0; PAGE];
        for (page, version, block) in taken
            .values()
            .flat_map(|one| one.pages.iter().map(|(page, version)| (*page, *version, one.block)))
        {
            level.flash_read(T, block, page, 0, &mut data).unwrap();
            assert_eq!(version_of(version, &data), version, "seed {seed}: {block} page {page}");
        }
        for one in taken.values() {
            let found = level.mapped_blocks().into_iter().find(|found| found.block == one.block);
            assert_eq!(found.map(|found| found.written), Some(one.written), "seed {seed}");
        }
    }
    host.device.verify_identity().unwrap();
    Met { cuts: host.errors(), failed_blocks: host.device.bad_blocks().len() as u64, ..Met::default() }
}

#[test]
fn function_level_goes_on_behind_what_is_programmed_after_every_error_of_the_host() {
    seeds(60, 4000, function_campaign);
}

fn policy_campaign(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (host, luns, mut monitor) = device(&mut random, SPARES);
    let setup = PolicySetup {
        streams: 1 + random.below(3) as u32,
        checkpoint_pages: [30, 100, 1000][random.below(3) as usize],
        ..PolicySetup::default()
    };
    let mut level = PolicyLevel::create(allocate(&monitor, luns), setup).unwrap();
    let pages = u64::from(level.unit_pages()) * (1 + random.below(3));
    let policy = RangePolicy {
        start: 0,
        pages,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::ALL[random.below(VictimPolicy::ALL.len() as u64) as usize],
        over_provisioning_permille: [70, 250, 1000][random.below(3) as usize],
    };
    level.ftl_ioctl(&policy).unwrap();
    let mut now = vec![0; pages as usize];
    let (mut wounds, mut version) = (SPARES - 3, 0);
    let mut data = vec![0; PAGE];
    for _ in 0..12 {
        weather(&host, &mut random);
        for _ in 0..60 {
            if random.below(10) == 0 {
                wound(&host, &mut random, &mut wounds);
            }
            let first = random.below(pages);
            let count = 1 + random.below((pages - first).min(9));
            version += 1;
            let new: Vec<u8> = (first..first + count).flat_map(|page| page_of(page, version)).collect();
            let written = level.ftl_write(T, first, &new, Tag::default());
            assert!(written.is_ok() || is_of_host(&written), "seed {seed}: {written:?}");
            for page in first..first + count {
                level.ftl_read(T, page, &mut data).unwrap();
                let found = version_of(page, &data);
                let old = now[page as usize];
                assert!(found == version || (written.is_err() && found == old), "seed {seed}: {found}");
                now[page as usize] = found;
            }
            if random.below(20) == 0 {
                let done = if random.below(2) == 0 { level.flush(T) } else { level.checkpoint(T) };
                assert!(done.is_ok() || is_of_host(&done), "seed {seed}: {done:?}");
            }
        }
        host.free();
        level.verify().unwrap();
        for _ in 0..pages.min(20) {
            let page = random.below(pages);
            version += 1;
            level.ftl_write(T, page, &page_of(page, version), Tag::default()).unwrap();
            now[page as usize] = version;
        }
        if random.below(2) == 0 {
            drop(level);
            if random.below(2) == 0 {
                drop(monitor);
                monitor = Monitor::open(host.clone()).unwrap();
            }
            level = PolicyLevel::open(monitor.attach("a").unwrap(), setup).unwrap();
            level.verify().unwrap();
        }
        for page in 0..pages {
            level.ftl_read(T, page, &mut data).unwrap();
            assert_eq!(version_of(page, &data), now[page as usize], "seed {seed}: page {page}");
        }
    }
    host.device.verify_identity().unwrap();
    Met { cuts: host.errors(), failed_blocks: host.device.bad_blocks().len() as u64, ..Met::default() }
}

#[test]
fn page_mapped_range_never_changes_its_mind_after_an_error_of_the_host_and_goes_on() {
    seeds(40, 3000, policy_campaign);
}
