//! Levels on an image whose host crashes again and again, at any moment: what was flushed is there, nothing is older than that, nobody
//! is refused, and work goes on. Of what was written since, anything may be there. `WEFT_CAMPAIGN=1` runs 5,000 seeds of each level.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::crash::Crashing;
use support::flaky::{Met, random_geometry, seeds};
use support::{Random, page_of};
use weft_core::{Nanos, StreamId, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::function::Mapping;
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel,
    PolicySetup, RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;

/// A device in an image with a grant of most of it.
struct Rig {
    path: PathBuf,
    random: Random,
    device: Arc<OpenChannel>,
    monitor: Arc<Monitor>,
    crashing: Crashing,
    met: Met,
}

impl Rig {
    fn new(seed: u64, kind: &str, dir: &Path) -> (Rig, Grant) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let geometry = random_geometry(&mut random, |pages, luns, planes| {
            let level_log = (24u32.div_ceil(pages.min(12)) * 2 + 5).div_ceil(luns);
            12u32.div_ceil(luns) + 6 + planes * (level_log + 36u32.div_ceil(luns) + 4)
        });
        let path = dir.join(format!("{kind}{seed}"));
        let device = Arc::new(OpenChannel::create(&path, &FlashSetup::new(geometry), true).unwrap());
        let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        let luns = monitor.free_luns().unwrap();
        // One LUN is left for others, if there are several.
        let bytes = u64::from(luns.max(2) - 1) * monitor.lun_bytes();
        let request = GrantRequest { name: "ours".into(), bytes, over_provisioning_permille: 0 };
        let grant = monitor.allocate(&request).unwrap();
        device.sync().unwrap();
        let crashing = Crashing::new(&device, &path);
        (Rig { path, random, device, monitor, crashing, met: Met::default() }, grant)
    }

    /// Crashes the host. What of the image was used before is to be dropped by the caller, when this has returned what the disk has.
    fn crashed(&mut self) -> Vec<u8> {
        self.met.cuts += 1;
        self.crashing.crashed(&mut self.random)
    }

    /// Ends the use of the image, by a close or by the death of the process, and opens it again. The caller has let go of it, with
    /// `image` as it was then.
    fn come_back(&mut self, image: &[u8]) -> Grant {
        self.close();
        if self.random.below(2) == 0 {
            std::fs::write(&self.path, image).unwrap();
        }
        self.attach()
    }

    fn attach(&mut self) -> Grant {
        self.device = Arc::new(OpenChannel::open(&self.path).unwrap());
        self.crashing = Crashing::new(&self.device, &self.path);
        self.monitor = Monitor::open(self.device.clone()).unwrap();
        self.monitor.attach("ours").unwrap()
    }

    /// Opens what a crash has left. The host may crash while it opens.
    fn open(&mut self, image: &[u8], open: impl Fn(Grant) -> Result<(), LevelError>) -> Grant {
        std::fs::write(&self.path, image).unwrap();
        loop {
            let grant = self.attach();
            if self.random.below(3) > 0 {
                return grant;
            }
            open(grant).unwrap();
            let image = self.crashed();
            self.met.cuts_while_opening += 1;
            self.close();
            std::fs::write(&self.path, image).unwrap();
        }
    }

    /// Lets go of the device; whoever uses it has gone.
    fn close(&mut self) {
        let nothing = OpenChannel::memory(&FlashSetup::new(support::geometry(1, 1, 40, 8))).unwrap();
        self.device = Arc::new(nothing);
        self.monitor = Monitor::format(self.device.clone(), MonitorSetup::default()).unwrap();
    }

    /// Another tenant comes or goes, without a sync.
    fn neighbour(&mut self) {
        let request = GrantRequest { name: "other".into(), bytes: 1, over_provisioning_permille: 0 };
        match self.monitor.attach("other") {
            Ok(grant) => {
                drop(grant);
                self.monitor.release("other").unwrap();
            }
            Err(LevelError::NoSuchGrant { .. }) if self.monitor.free_luns().unwrap() > 0 => {
                drop(self.monitor.allocate(&request).unwrap());
            }
            Err(_) => {}
        }
    }

    fn end(mut self) -> Met {
        self.device.verify_identity().unwrap();
        self.close();
        std::fs::remove_file(&self.path).unwrap();
        self.met
    }
}

/// The version that a page of this key has; 0 when it has none.
fn version_of(key: u64, data: &[u8]) -> u64 {
    let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
    if version == 0 {
        assert!(data.iter().all(|byte| *byte == 0), "page {key} holds half of something");
        return 0;
    }
    assert!(data == page_of(key, version), "page {key} holds something else");
    version
}

/// What a key may have after a crash: what was flushed, or anything since.
#[derive(Default)]
struct Promises(BTreeMap<u64, BTreeSet<u64>>);

impl Promises {
    fn write(&mut self, key: u64, version: u64) {
        self.0.entry(key).or_insert_with(|| BTreeSet::from([0])).insert(version);
    }

    fn only(&mut self, key: u64, version: u64) {
        self.0.insert(key, BTreeSet::from([version]));
    }

    fn check(&mut self, key: u64, found: u64) {
        let may = self.0.get(&key).cloned().unwrap_or_else(|| BTreeSet::from([0]));
        assert!(may.contains(&found), "{key} has version {found}, not one of {may:?}");
        self.only(key, found);
    }
}

/// What is read is what was promised, and is what there is from now on.
fn check(level: &PolicyLevel, pages: u64, promises: &mut Promises, now: &mut BTreeMap<u64, u64>) {
    level.verify().unwrap();
    for page in 0..pages {
        let mut data = vec![0xee; PAGE];
        level.ftl_read(T, page, &mut data).unwrap();
        let found = version_of(page, &data);
        promises.check(page, found);
        now.insert(page, found);
    }
}

fn ranges(seed: u64, mapping: RangeMapping, dir: &Path) -> Met {
    let (mut rig, grant) = Rig::new(seed, "range", dir);
    let luns = u64::from(grant.geometry().luns());
    let setup = PolicySetup {
        stripe: if luns % 2 == 0 && rig.random.below(2) == 0 { 2 } else { 1 },
        streams: 1 + rig.random.below(2) as u32,
        checkpoint_pages: [0, 50, 500][rig.random.below(3) as usize],
    };
    let mut level = PolicyLevel::create(grant, setup).unwrap();
    let policy = RangePolicy {
        start: 0,
        pages: 0,
        mapping,
        gc: VictimPolicy::ALL[rig.random.below(5) as usize],
        over_provisioning_permille: 100,
    };
    let pages = (level.pages_max(&policy) / 2).clamp(1, 120);
    level.ftl_ioctl(&RangePolicy { pages, ..policy }).unwrap();
    level.flush(T).unwrap();
    // The last version of each page, and what a crash may leave of it.
    let (mut now, mut promises, mut version) = (BTreeMap::new(), Promises::default(), 0);
    for _ in 0..2 + rig.random.below(3) {
        let most = 2 << rig.random.below(9);
        for _ in 0..rig.random.below(most) {
            let page = rig.random.below(pages);
            match rig.random.below(40) {
                0 => {
                    level.flush(T).unwrap();
                    now.iter().for_each(|(page, version)| promises.only(*page, *version));
                }
                1 => {
                    level.checkpoint(T).unwrap();
                }
                2..6 => {
                    let count = 1 + rig.random.below(pages - page).min(9);
                    level.trim(T, page, count).unwrap();
                    for page in page..page + count {
                        promises.write(page, 0);
                        now.insert(page, 0);
                    }
                }
                6 => rig.neighbour(),
                7 if rig.random.below(3) == 0 => {
                    let image = std::fs::read(&rig.path).unwrap();
                    drop(level);
                    level = PolicyLevel::open(rig.come_back(&image), setup).unwrap();
                    // A trim that was not flushed need not be there.
                    let written = now.iter().filter(|(_, version)| **version > 0);
                    written.for_each(|(page, version)| promises.only(*page, *version));
                    check(&level, pages, &mut promises, &mut now);
                }
                _ => {
                    version += 1;
                    let tag = Tag { stream: StreamId(rig.random.below(3) as u16), ..Tag::default() };
                    level.ftl_write(T, page, &page_of(page, version), tag).unwrap();
                    promises.write(page, version);
                    now.insert(page, version);
                }
            }
        }
        let image = rig.crashed();
        drop(level);
        rig.close();
        let setup = PolicySetup { stripe: 0, ..setup };
        let grant = rig.open(&image, |grant| PolicyLevel::open(grant, setup).map(drop));
        level = PolicyLevel::open(grant, setup).unwrap();
        check(&level, pages, &mut promises, &mut now);
    }
    drop(level);
    rig.end()
}

fn functions(seed: u64, dir: &Path) -> Met {
    let (mut rig, grant) = Rig::new(seed, "function", dir);
    let mut level = FunctionLevel::open(grant).unwrap();
    let (channels, most_pages) = (level.geometry().channels(), level.geometry().pages_per_block);
    // By label: the block, its pages, and how many of them have been flushed.
    let mut blocks: BTreeMap<u64, (GrantBlock, u32, u32)> = BTreeMap::new();
    // Trimmed, which has not been flushed.
    let mut trimmed: BTreeMap<u64, (GrantBlock, u32)> = BTreeMap::new();
    let mut label = 0;
    for _ in 0..2 + rig.random.below(3) {
        let most = 2 << rig.random.below(9);
        for _ in 0..rig.random.below(most) {
            let chosen = blocks.keys().copied().nth(rig.random.below(blocks.len().max(1) as u64) as usize);
            match (rig.random.below(40), chosen) {
                (0, _) => {
                    level.flush(T).unwrap();
                    blocks.values_mut().for_each(|(_, written, flushed)| *flushed = *written);
                    trimmed.clear();
                }
                (1..6, Some(gone)) => {
                    let (block, written, _) = blocks.remove(&gone).unwrap();
                    level.flash_trim(block).unwrap();
                    trimmed.insert(gone, (block, written));
                }
                (6, _) => rig.neighbour(),
                (7..12, _) | (_, None) => {
                    let channel = rig.random.below(u64::from(channels)) as u32;
                    match level.address_mapper(T, channel, Mapping::Block, label + 1) {
                        Ok(mapped) => {
                            label += 1;
                            // What lay there was erased: the trim is over.
                            trimmed.retain(|_, (block, _)| *block != mapped.block);
                            blocks.insert(label, (mapped.block, 0, 0));
                        }
                        Err(LevelError::NoFreeBlock { .. } | LevelError::TooManyMapped { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                (_, Some(label)) => {
                    let (block, written, _) = blocks.get_mut(&label).unwrap();
                    if *written < most_pages {
                        let data = page_of(label, u64::from(*written) + 1);
                        level.flash_write(T, *block, *written, &data).unwrap();
                        *written += 1;
                    }
                }
            }
        }
        let image = rig.crashed();
        drop(level);
        rig.close();
        let grant = rig.open(&image, |grant| FunctionLevel::open(grant).map(drop));
        level = FunctionLevel::open(grant).unwrap();
        let found: BTreeMap<u64, _> =
            level.mapped_blocks().into_iter().map(|found| (found.label, found)).collect();
        let before = std::mem::take(&mut blocks);
        for (label, (block, _, flushed)) in &before {
            if *flushed == 0 {
                continue;
            }
            let found = found.get(label).unwrap_or_else(|| panic!("the block with label {label} is gone"));
            assert!(found.block == *block && found.written >= *flushed, "{found:?}, {flushed} were flushed");
        }
        for (label, found) in &found {
            let flushed = before.get(label).map_or(0, |(_, _, flushed)| *flushed);
            let known =
                before.get(label).map(|(block, ..)| block).or(trimmed.get(label).map(|(block, _)| block));
            assert_eq!(known, Some(&found.block), "label {label}");
            for page in 0..found.written {
                let mut data = vec![0xee; PAGE];
                match level.flash_read(T, found.block, page, 0, &mut data) {
                    Ok(_) => assert_eq!(version_of(*label, &data), u64::from(page) + 1),
                    Err(LevelError::Unreadable { why, .. }) if page >= flushed && why.is_interrupted() => {}
                    Err(other) => panic!("label {label}, page {page}, {flushed} flushed: {other}"),
                }
            }
            blocks.insert(*label, (found.block, found.written, flushed));
        }
        trimmed.clear();
        // Those without a page that was flushed may be gone.
        level.flush(T).unwrap();
        blocks.retain(|_, (block, written, _)| {
            let whole =
                (0..*written).all(|page| level.flash_read(T, *block, page, 0, &mut [0; PAGE]).is_ok());
            if !whole {
                level.flash_trim(*block).unwrap();
            }
            whole
        });
        level.flush(T).unwrap();
        blocks.values_mut().for_each(|(_, written, flushed)| *flushed = *written);
    }
    drop(level);
    rig.end()
}

fn raw_pages(seed: u64, dir: &Path) -> Met {
    let (mut rig, grant) = Rig::new(seed, "raw", dir);
    let mut level = RawLevel::new(grant);
    let luns = level.geometry().lun_list();
    let place = |at: usize| {
        let (channel, lun) = luns[at % luns.len()];
        GrantBlock { channel, lun, block: (at / luns.len()) as u32 }
    };
    let places: Vec<GrantBlock> = (0..12).map(place).collect();
    let most_pages = level.geometry().pages_per_block;
    // By block: versions of its pages, how many of them are synced; and whether it was erased since.
    let mut blocks: Vec<(Vec<u64>, usize, bool)> = vec![(Vec::new(), 0, false); places.len()];
    let mut version = 0;
    for _ in 0..2 + rig.random.below(4) {
        let most = 2 << rig.random.below(9);
        for _ in 0..rig.random.below(most) {
            let at = rig.random.below(places.len() as u64) as usize;
            let (pages, synced, erased) = &mut blocks[at];
            match rig.random.below(40) {
                0 => {
                    level.sync().unwrap();
                    blocks.iter_mut().for_each(|(pages, synced, erased)| {
                        (*synced, *erased) = (pages.len(), false);
                    });
                }
                1 => rig.neighbour(),
                2..5 => {
                    level.block_erase(T, places[at]).unwrap();
                    (*pages, *synced, *erased) = (Vec::new(), 0, true);
                }
                _ if pages.len() < most_pages as usize => {
                    version += 1;
                    let page = pages.len() as u32;
                    let data = page_of(at as u64, version);
                    level.page_write(T, places[at].page(page), &data, &version.to_le_bytes()).unwrap();
                    pages.push(version);
                }
                _ => {}
            }
        }
        let image = rig.crashed();
        drop(level);
        rig.close();
        level = RawLevel::new(rig.open(&image, |_| Ok(())));
        for (at, (pages, synced, erased)) in blocks.iter_mut().enumerate() {
            let look = level.look(places[at]).unwrap();
            assert!(!look.retired, "no flash has failed");
            assert!(!look.erase_incomplete || *erased, "an erase that nobody has asked for");
            let mut found = Vec::new();
            for page in 0..look.programmed {
                let (mut data, mut oob) = (vec![0xee; PAGE], [0; 8]);
                match level.page_read(T, places[at].page(page), 0, &mut data, &mut oob) {
                    Ok(_) => {
                        let version = version_of(at as u64, &data);
                        assert_eq!(version, u64::from_le_bytes(oob));
                        found.push(version);
                    }
                    Err(LevelError::Unreadable { why, .. }) if why.is_interrupted() => found.push(0),
                    Err(other) => panic!(
                        "block {at}, page {page}: {other}; {synced} of {pages:?} synced; erased {erased}"
                    ),
                }
            }
            assert!(*erased || found.len() >= *synced, "block {at}: {found:?}, {synced} were synced");
            // Of a block that was erased without a sync, it may also be as it was before.
            if !*erased {
                for (page, found) in found.iter().enumerate() {
                    let wanted = pages[page];
                    assert!(
                        *found == wanted || *found == 0 && page >= *synced,
                        "block {at}, page {page}: {found}, not {wanted}; {synced} of {pages:?} were synced"
                    );
                }
            }
            if look.erase_incomplete || found.contains(&0) {
                level.block_erase(T, places[at]).unwrap();
                found.clear();
            }
            (*pages, *synced, *erased) = (found, 0, false);
        }
        level.sync().unwrap();
        blocks.iter_mut().for_each(|(pages, synced, _)| *synced = pages.len());
    }
    drop(level);
    rig.end()
}

fn run(level: impl Fn(u64, &Path) -> Met + Sync) {
    // In memory, where there is such a file system: each sync copies the image.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dir = dir.unwrap();
    seeds(30, 5_000, |seed| level(seed, dir.path()));
}

#[test]
fn a_page_mapped_range_survives_crashes_of_the_host() {
    run(|seed, dir| ranges(seed, RangeMapping::Page, dir));
}

#[test]
fn a_block_mapped_range_survives_crashes_of_the_host() {
    run(|seed, dir| ranges(seed, RangeMapping::Block, dir));
}

#[test]
fn blocks_of_the_function_level_survive_crashes_of_the_host() {
    run(functions);
}

#[test]
fn raw_pages_survive_crashes_of_the_host() {
    run(raw_pages);
}
