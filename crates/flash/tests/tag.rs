//! What is known of data arrives beside its page at every level, in this process and over a socket, and stays there when the page
//! is moved by a spare, by wear leveling and by the cleaner, and after a restart.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use support::{Random, geometry};
use weft_core::{DataClass, LifetimeGroup, Nanos, StreamId, Tag, TagFlags};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{Fault, FlashSetup, OpenChannel, PageAddr};
use weft_flash::function::{BlockWrite, Mapping};
use weft_flash::raw::RawWrite;
use weft_flash::share::{self, MonitorServer};
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel,
    PolicySetup, RangeMapping, RangePolicy, RawLevel, tag_in,
};

const T: Nanos = Nanos(0);
const MAGIC: [u8; 8] = *b"followed";

/// One for each property, all of them at once, and none.
fn tags() -> [Tag; 7] {
    let none = Tag::default();
    let secure = TagFlags::SECURE_DELETE;
    [
        Tag { class: DataClass::Log, ..none },
        Tag { owner: 1000, ..none },
        Tag { flags: secure, ..none },
        Tag { death: 1 << 40, ..none },
        Tag { stream: StreamId(3), group: LifetimeGroup(700), ..none },
        Tag { class: DataClass::Temporary, owner: u32::MAX, flags: secure, death: 9, ..none },
        none,
    ]
}

/// A page of data with the number of its tag in it.
fn data_of(tag: usize) -> Vec<u8> {
    let mut data = vec![tag as u8; 4096];
    data[..8].copy_from_slice(&MAGIC);
    data
}

/// Checks the out-of-band bytes of every page on the device that holds such data. Returns how many there are.
fn check_bytes(device: &OpenChannel) -> usize {
    let shape = device.shape();
    let mut seen = [0; 7];
    for block in shape.all_blocks() {
        for page in 0..device.block_info(block).unwrap().programmed {
            let (mut data, mut oob) = ([0; 16], vec![0; shape.oob_bytes as usize]);
            if device.read(T, block.page(page), 0, &mut data, &mut oob).is_ok() && data[..8] == MAGIC {
                let tag = data[8] as usize;
                assert_eq!(tag_in(&oob), Some(tags()[tag]), "{block} page {page}");
                seen[tag] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    seen.iter().sum()
}

struct Shared {
    device: Arc<OpenChannel>,
    monitor: Arc<Monitor>,
    _server: MonitorServer,
    scratch: tempfile::TempDir,
}

impl Shared {
    fn new(planes: u32) -> Shared {
        let bytes = u64::from(planes) * 2 * 24 * 8 * 4096;
        let geometry = Geometry { planes, ..geometry(1, 2, 24, 8) }.with_size(bytes);
        let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry)).unwrap());
        let monitor = Monitor::format(device.clone(), MonitorSetup { spares_per_lun: 3 }).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let server = MonitorServer::start(monitor.clone(), &scratch.path().join("socket")).unwrap();
        let name = String::from("a");
        let bytes = 2 * monitor.lun_bytes();
        drop(monitor.allocate(&GrantRequest { name, bytes, over_provisioning_permille: 0 }).unwrap());
        Shared { device, monitor, _server: server, scratch }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.scratch.path().join("socket")
    }

    fn grant(&self, far: bool) -> Grant {
        if far { attach(&self.socket()) } else { self.monitor.attach("a").unwrap() }
    }

    /// Where on the device such data is.
    fn place_of(&self, tag: usize) -> PageAddr {
        let shape = self.device.shape();
        let mut pages = shape.all_blocks().flat_map(|block| (0..8).map(move |page| block.page(page)));
        let holds = |page: &PageAddr| {
            let mut data = [0; 9];
            self.device.read(T, *page, 0, &mut data, &mut []).is_ok() && data[..] == data_of(tag)[..9]
        };
        pages.find(holds).unwrap()
    }
}

fn attach(socket: &Path) -> Grant {
    share::attach(socket, "a").unwrap()
}

#[test]
fn a_tag_arrives_beside_a_page_of_the_raw_level_and_moves_to_a_spare_with_it() {
    for far in [false, true] {
        let shared = Shared::new(1);
        let raw = RawLevel::new(shared.grant(far));
        let block = |block| GrantBlock { channel: 0, lun: 0, block };
        let data: Vec<Vec<u8>> = (0..tags().len()).map(data_of).collect();
        let write = |at: usize, block: GrantBlock| RawWrite {
            page: block.page(at as u32),
            data: &data[at],
            oob: &[7; 36],
            tag: tags()[at],
        };
        let numbers = 0..tags().len();
        for at in numbers.clone() {
            raw.page_write_tagged(T, &write(at, block(0))).unwrap();
        }
        let many: Vec<RawWrite> = numbers.clone().map(|at| write(at, block(1))).collect();
        raw.page_write_vector(T, &many).unwrap().into_iter().for_each(|result| assert!(result.is_ok()));
        assert_eq!(check_bytes(&shared.device), 14);

        shared.device.inject(Fault::Program(shared.place_of(0).block.page(7))).unwrap();
        raw.page_write(T, block(0).page(7), &[0; 4096], &[6; 60]).unwrap();
        assert_eq!(check_bytes(&shared.device), 14 + 7, "the block was moved");

        let check = |raw: &RawLevel| {
            for (at, block) in numbers.clone().flat_map(|at| [(at, block(0)), (at, block(1))]) {
                let (mut data, mut oob) = ([0; 4096], [9; 60]);
                raw.page_read(T, block.page(at as u32), 0, &mut data, &mut oob).unwrap();
                assert_eq!(raw.tag_of(T, block.page(at as u32)).unwrap(), tags()[at], "far {far}");
                assert!(data[..] == data_of(at) && oob[..36] == [7; 36] && oob[36..] == [0; 24]);
            }
            let mut oob = [0; 60];
            raw.page_read(T, block(0).page(7), 0, &mut [], &mut oob).unwrap();
            assert_eq!((oob, raw.tag_of(T, block(0).page(7)).unwrap()), ([6; 60], Tag::default()));
        };
        check(&raw);
        drop(raw);
        check(&RawLevel::new(shared.grant(!far)));

        // There has to be room for it, and only then.
        let raw = RawLevel::new(shared.grant(far));
        let full = |tag| RawWrite { page: block(2).page(0), data: &data[0], oob: &[7; 37], tag };
        let refused = raw.page_write_tagged(T, &full(tags()[0])).unwrap_err();
        assert!(matches!(refused, LevelError::WrongLength { given: 61, wanted: 60, .. }), "{refused}");
        let refused = raw.page_write_vector(T, &[full(tags()[0]), full(tags()[1])]).unwrap();
        assert!(refused.iter().all(|result| matches!(result, Err(LevelError::WrongLength { .. }))));
        raw.page_write_tagged(T, &full(Tag::default())).unwrap();
    }
}

#[test]
fn a_tag_arrives_beside_a_page_of_the_function_level_and_wear_leveling_takes_it_along() {
    for (far, mapping) in [(false, Mapping::Block), (true, Mapping::Page)] {
        let shared = Shared::new(1);
        let level = FunctionLevel::open(shared.grant(far)).unwrap();
        let take = || level.address_mapper(T, 0, mapping, 1).unwrap().block;
        let [alone, together] = [take(), take()];
        let data: Vec<Vec<u8>> = (0..tags().len()).map(data_of).collect();
        let write =
            |at: usize, block| BlockWrite { block, page: at as u32, data: &data[at], tag: tags()[at] };
        for at in 0..tags().len() {
            level.flash_write_tagged(T, &write(at, alone)).unwrap();
        }
        let many: Vec<BlockWrite> = (0..tags().len()).map(|at| write(at, together)).collect();
        level.flash_write_vector(T, &many).into_iter().for_each(|result| assert!(result.is_ok()));
        assert_eq!(check_bytes(&shared.device), 14);
        let check = |level: &FunctionLevel, blocks: [GrantBlock; 2]| {
            for (at, block) in (0..tags().len()).flat_map(|at| blocks.map(|block| (at, block))) {
                assert_eq!(level.tag_of(T, block, at as u32).unwrap(), tags()[at], "far {far}, {block}");
            }
        };
        check(&level, [alone, together]);

        // The other blocks become worn; those two move.
        for _ in 0..400 {
            let block = take();
            level.flash_trim(block).unwrap();
            level.flash_write(T, take(), 0, &[0; 4096]).unwrap();
            let last = level.mapped_blocks().into_iter().max_by_key(|found| found.id).unwrap();
            level.flash_trim(last.block).unwrap();
        }
        level.flush(T).unwrap();
        let report = level.wear_leveler(T, 2, 8).unwrap();
        let moved = |block| {
            let steps = report.shuffled.iter();
            steps.fold(block, |at, step| if step.from == at { step.to } else { at })
        };
        let blocks = [moved(alone), moved(together)];
        assert!(blocks[0] != alone && blocks[1] != together, "{report:?}");
        assert_eq!(check_bytes(&shared.device), 14);
        check(&level, blocks);
        drop(level);
        check(&FunctionLevel::open(shared.grant(!far)).unwrap(), blocks);
    }
}

#[test]
fn a_tag_arrives_beside_a_page_of_the_policy_level_and_the_cleaner_takes_it_along() {
    let ranges = [(0, RangeMapping::Page), (200, RangeMapping::Block)];
    // Pages of two planes are programmed and copied together.
    for (planes, far) in [(1, false), (2, true)] {
        let shared = Shared::new(planes);
        let setup = PolicySetup { stripe: 1, streams: 2, checkpoint_pages: 40 };
        let level = PolicyLevel::create(shared.grant(far), setup).unwrap();
        for (start, mapping) in ranges {
            let gc = VictimPolicy::Greedy;
            let policy = RangePolicy { start, pages: 56, mapping, gc, over_provisioning_permille: 300 };
            level.ftl_ioctl(&policy).unwrap();
        }
        // Each fourth page stays, and others make the cleaner move it.
        let stays = |page: u64| page.is_multiple_of(4);
        for (start, _) in ranges {
            for page in 0..56 {
                let tag = page as usize / 4 % tags().len();
                let (data, tag) =
                    if stays(page) { (data_of(tag), tags()[tag]) } else { (vec![0; 4096], Tag::METADATA) };
                level.ftl_write(T, start + page, &data, tag).unwrap();
            }
        }
        let mut random = Random(5);
        for _ in 0..600 {
            let page = random.below(56);
            if !stays(page) {
                let (start, _) = ranges[random.below(2) as usize];
                level.ftl_write(T, start + page, &[1; 4096], Tag::METADATA).unwrap();
            }
        }
        assert!(level.ranges().iter().all(|(_, counts)| counts.copied > 20), "{:?}", level.ranges());
        check_bytes(&shared.device);
        let check = |level: &PolicyLevel| {
            for (page, (start, _)) in (0..56).flat_map(|page| ranges.map(|range| (page, range))) {
                let tag = if stays(page) { tags()[page as usize / 4 % tags().len()] } else { Tag::METADATA };
                assert_eq!(level.tag_of(T, start + page).unwrap(), tag, "far {far}, page {page} of {start}");
            }
        };
        check(&level);
        drop(level);
        let level = PolicyLevel::open(shared.grant(!far), setup).unwrap();
        check(&level);
        level.trim(T, 0, 1).unwrap();
        assert_eq!(level.tag_of(T, 0).unwrap(), Tag::default());
        assert!(matches!(level.tag_of(T, 99), Err(LevelError::NoRange { .. })));
    }
}

#[test]
fn pages_without_tags_need_no_room_for_them_and_one_with_a_tag_says_that_it_has_none() {
    let setup = FlashSetup { oob_bytes: 40, ..FlashSetup::new(geometry(1, 2, 24, 8)) };
    let monitor =
        Monitor::format(Arc::new(OpenChannel::memory(&setup).unwrap()), MonitorSetup::default()).unwrap();
    let request =
        GrantRequest { name: "a".into(), bytes: 2 * monitor.lun_bytes(), over_provisioning_permille: 0 };
    let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), PolicySetup::default()).unwrap();
    let (mapping, gc) = (RangeMapping::Page, VictimPolicy::Greedy);
    let policy = RangePolicy { start: 0, pages: 8, mapping, gc, over_provisioning_permille: 0 };
    level.ftl_ioctl(&policy).unwrap();
    level.ftl_write(T, 0, &[1; 4096], Tag::default()).unwrap();
    let refused = level.ftl_write(T, 0, &[2; 4096], Tag::METADATA).unwrap_err();
    assert!(
        refused.to_string().contains("60 bytes of out-of-band bytes with a tag, 36 expected"),
        "{refused}"
    );
    assert_eq!(level.tag_of(T, 0).unwrap(), Tag::default());
}
