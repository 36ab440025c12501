//! Levels and drives on an image whose host crashes again and again, at any moment, and fails syncs; or their process dies. What was
//! flushed is there, nothing is older than that, nobody is refused, and work goes on. Of what was written since, anything may be there;
//! all of it when the process died and no sync has failed. `WEFT_CAMPAIGN=1` runs 2,000 seeds of each.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/disk.rs"]
mod disk;
mod support;

use disk::{End, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use support::flaky::{Met, is_of_the_host, random_geometry, seeds};
use support::{Random, page_of};
use weft_core::{Nanos, StreamId, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashError, FlashSetup, OpenChannel};
use weft_device::ssd::{Isolation, Ssd, SsdError, SsdSetup};
use weft_device::{DeviceError, FaultPlan, Geometry};
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
    disk: Watched,
    /// Syncs may fail.
    fails: bool,
    /// One has failed in this use.
    failed: bool,
    /// Nothing happens at the next opening.
    calm: bool,
    met: Met,
}

/// Calls within which an opening may end.
const CALLS_OF_AN_OPENING: u64 = 40;

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
        let (disk, fails) = (Watched::new(&path, random.next()), random.below(2) == 0);
        let (failed, calm, met) = Default::default();
        (Rig { path, random, device, monitor, disk, fails, failed, calm, met }, grant)
    }

    /// Some sync may fail from now on.
    fn weather(&mut self) {
        if self.fails && self.random.below(60) == 0 {
            self.disk.fail_syncs(self.random.below(2), 1);
        }
    }

    /// What a call has returned; `None` after an error of the host.
    fn got<T>(&mut self, result: Result<T, LevelError>) -> Option<T> {
        let refused = |error: LevelError| assert!(self.fails && is_of_the_host(&error), "{error}");
        let got = result.map_err(refused).ok();
        self.failed |= got.is_none();
        got
    }

    /// Ends the use of the image; `close` lets go of what uses the device. Whether all will be there that was acknowledged.
    fn end_use(&mut self, close: impl FnOnce()) -> bool {
        let ends = [End::Crashed, End::Crashed, End::Crashed, End::Killed, End::Closed];
        let how = ends[self.random.below(5) as usize];
        self.met.cuts += u64::from(how == End::Crashed);
        // A sync that fails while the image is closed is told to nobody.
        self.disk.fail_syncs(0, 0);
        self.end(how, close);
        self.calm = how != End::Crashed && !self.failed && self.random.below(2) == 0;
        self.failed = false;
        self.calm
    }

    fn end(&mut self, how: End, close: impl FnOnce()) {
        let Rig { disk, device, monitor, .. } = self;
        disk.end(how, || {
            close();
            let nothing = OpenChannel::memory(&FlashSetup::new(support::geometry(1, 1, 40, 8))).unwrap();
            *device = Arc::new(nothing);
            *monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        });
    }

    fn attach(&mut self) -> Result<Grant, LevelError> {
        self.device = Arc::new(OpenChannel::open(&self.path)?);
        self.monitor = Monitor::open(self.device.clone())?;
        self.monitor.attach("ours")
    }

    /// Opens what was left. Meanwhile the process may die, the host may crash, and syncs may fail.
    fn open(&mut self, open: impl Fn(Grant) -> Result<(), LevelError>) -> Grant {
        loop {
            let ends = !self.calm && self.random.below(3) == 0;
            if ends {
                self.disk.end_after(self.random.below(CALLS_OF_AN_OPENING));
            }
            if self.fails && !self.calm && self.random.below(3) == 0 {
                self.disk.fail_syncs(self.random.below(4), 1);
            }
            let opened = self.attach();
            if let Some(grant) = self.got(opened) {
                if !ends {
                    self.disk.fail_syncs(0, 0);
                    self.failed = false;
                    return grant;
                }
                self.got(open(grant));
            }
            self.met.cuts_while_opening += 1;
            let how = [End::Crashed, End::Killed][self.random.below(2) as usize];
            self.end(how, || {});
        }
    }

    /// Another tenant comes or goes, without a sync.
    fn neighbour(&mut self) {
        let request = GrantRequest { name: "other".into(), bytes: 1, over_provisioning_permille: 0 };
        match self.monitor.attach("other") {
            Ok(grant) => {
                drop(grant);
                let released = self.monitor.release("other");
                self.got(released);
            }
            Err(LevelError::NoSuchGrant { .. }) if self.monitor.free_luns().unwrap() > 0 => {
                let allocated = self.monitor.allocate(&request);
                self.got(allocated.map(drop));
            }
            Err(_) => {}
        }
    }

    fn finish(mut self) -> Met {
        self.device.verify_identity().unwrap();
        self.end(End::Closed, || {});
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
            rig.weather();
            let page = rig.random.below(pages);
            match rig.random.below(40) {
                0 => rig.got(level.flush(T)).into_iter().for_each(|_| {
                    now.iter().for_each(|(page, version)| promises.only(*page, *version));
                }),
                1 => drop(rig.got(level.checkpoint(T))),
                2..6 => {
                    let count = 1 + rig.random.below(pages - page).min(9);
                    for page in page..page + count {
                        promises.write(page, 0);
                        now.insert(page, 0);
                    }
                    rig.got(level.trim(T, page, count));
                }
                6 => rig.neighbour(),
                _ => {
                    version += 1;
                    let tag = Tag { stream: StreamId(rig.random.below(3) as u16), ..Tag::default() };
                    promises.write(page, version);
                    now.insert(page, version);
                    rig.got(level.ftl_write(T, page, &page_of(page, version), tag));
                }
            }
            if rig.failed {
                break;
            }
        }
        if rig.end_use(|| drop(level)) {
            // A trim that was not flushed need not be there.
            let written = now.iter().filter(|(_, version)| **version > 0);
            written.for_each(|(page, version)| promises.only(*page, *version));
        }
        let setup = PolicySetup { stripe: 0, ..setup };
        let grant = rig.open(|grant| PolicyLevel::open(grant, setup).map(drop));
        level = PolicyLevel::open(grant, setup).unwrap();
        check(&level, pages, &mut promises, &mut now);
    }
    drop(level);
    rig.finish()
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
            rig.weather();
            let chosen = blocks.keys().copied().nth(rig.random.below(blocks.len().max(1) as u64) as usize);
            match (rig.random.below(40), chosen) {
                (0, _) => rig.got(level.flush(T)).into_iter().for_each(|_| {
                    blocks.values_mut().for_each(|(_, written, flushed)| *flushed = *written);
                    trimmed.clear();
                }),
                (1..6, Some(gone)) => {
                    let (block, written, _) = blocks.remove(&gone).unwrap();
                    trimmed.insert(gone, (block, written));
                    rig.got(level.flash_trim(block));
                }
                (6, _) => rig.neighbour(),
                (7..12, _) | (_, None) => {
                    let channel = rig.random.below(u64::from(channels)) as u32;
                    match level.address_mapper(T, channel, Mapping::Block, label + 1) {
                        Err(LevelError::NoFreeBlock { .. } | LevelError::TooManyMapped { .. }) => {}
                        mapped => rig.got(mapped).into_iter().for_each(|mapped| {
                            label += 1;
                            // What lay there was erased: the trim is over.
                            trimmed.retain(|_, (block, _)| *block != mapped.block);
                            blocks.insert(label, (mapped.block, 0, 0));
                        }),
                    }
                }
                (_, Some(label)) => {
                    let (block, written, _) = blocks.get_mut(&label).unwrap();
                    if *written < most_pages {
                        let data = page_of(label, u64::from(*written) + 1);
                        let done = rig.got(level.flash_write(T, *block, *written, &data));
                        *written += u32::from(done.is_some());
                    }
                }
            }
            if rig.failed {
                break;
            }
        }
        if rig.end_use(|| drop(level)) {
            blocks.values_mut().for_each(|(_, written, flushed)| *flushed = *written);
        }
        level = FunctionLevel::open(rig.open(|grant| FunctionLevel::open(grant).map(drop))).unwrap();
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
    rig.finish()
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
            rig.weather();
            let at = rig.random.below(places.len() as u64) as usize;
            let (pages, synced, erased) = &mut blocks[at];
            match rig.random.below(40) {
                0 => rig.got(level.sync()).into_iter().for_each(|()| {
                    blocks.iter_mut().for_each(|(pages, synced, erased)| {
                        (*synced, *erased) = (pages.len(), false);
                    });
                }),
                1 => rig.neighbour(),
                2..5 => {
                    // What was asked for and failed may still be half done.
                    *erased = true;
                    if rig.got(level.block_erase(T, places[at])).is_some() {
                        (*pages, *synced) = (Vec::new(), 0);
                    }
                }
                _ if pages.len() < most_pages as usize => {
                    version += 1;
                    let page = pages.len() as u32;
                    let data = page_of(at as u64, version);
                    pages.push(version);
                    let written = level.page_write(T, places[at].page(page), &data, &version.to_le_bytes());
                    rig.got(written);
                }
                _ => {}
            }
            if rig.failed {
                break;
            }
        }
        if rig.end_use(|| drop(level)) {
            blocks.iter_mut().for_each(|(pages, synced, erased)| (*synced, *erased) = (pages.len(), false));
        }
        level = RawLevel::new(rig.open(|_| Ok(())));
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
    rig.finish()
}

/// A drive of two LUNs.
fn drive_setup(random: &mut Random, fdp: bool) -> SsdSetup {
    let mut geometry = support::geometry(2, 1, 30, 8);
    geometry.page_bytes <<= random.below(2);
    let geometry = Geometry { total_bytes: 2 * 30 * 8 * u64::from(geometry.page_bytes), ..geometry };
    let handles = if fdp { vec![Isolation::Persistently; 1 + random.below(3) as usize] } else { Vec::new() };
    SsdSetup {
        luns_per_unit: Some(1 + random.below(2) as u32),
        handles,
        ..SsdSetup::conventional(FlashSetup::new(geometry), 0.5)
    }
}

fn drives(seed: u64, fdp: bool, dir: &Path) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let path = dir.join(format!("drive{seed}{fdp}"));
    let setup = drive_setup(&mut random, fdp);
    let mut drive = Ssd::create(&path, &setup, FaultPlan::default(), true).unwrap();
    let (blocks, handles) = (drive.capacity_blocks(), setup.handles.len() as u64);
    drive.flush(T).unwrap();
    let (disk, fails, mut met) = (Watched::new(&path, random.next()), random.below(2) == 0, Met::default());
    let refused = |error: SsdError| {
        use DeviceError::{HostFull, Io, SyncFailed};
        let of_the_host = matches!(
            error,
            SsdError::Flash(FlashError::Device(HostFull { .. } | Io { .. } | SyncFailed { .. }))
        );
        assert!(fails && of_the_host, "{error}");
    };
    let (mut now, mut promises, mut version) = (BTreeMap::new(), Promises::default(), 0);
    for _ in 0..2 + random.below(3) {
        let (most, mut failed) = (2 << random.below(9), false);
        for _ in 0..random.below(most) {
            if fails && random.below(60) == 0 {
                disk.fail_syncs(random.below(2), 1);
            }
            let block = random.below(blocks);
            let done = match random.below(40) {
                0 => drive.flush(T).map(|_| {
                    now.iter().for_each(|(block, version)| promises.only(*block, *version));
                }),
                1..4 => {
                    promises.write(block, 0);
                    now.insert(block, 0);
                    drive.deallocate(T, block, 1).map(drop)
                }
                _ => {
                    version += 1;
                    promises.write(block, version);
                    now.insert(block, version);
                    let handle = (handles > 0).then(|| random.below(handles) as u16);
                    drive.write(T, block, 1, &page_of(block, version), handle).map(drop)
                }
            };
            failed = done.map_err(refused).is_err();
            if failed {
                break;
            }
        }
        disk.fail_syncs(0, 0);
        let how = [End::Crashed, End::Crashed, End::Killed, End::Closed][random.below(4) as usize];
        met.cuts += u64::from(how == End::Crashed);
        disk.end(how, || drop(drive));
        let calm = how != End::Crashed && !failed && random.below(2) == 0;
        if calm {
            now.iter().for_each(|(block, version)| promises.only(*block, *version));
        }
        drive = loop {
            let ends = !calm && random.below(3) == 0;
            if ends {
                disk.end_after(random.below(CALLS_OF_AN_OPENING));
            }
            if fails && !calm && random.below(3) == 0 {
                disk.fail_syncs(random.below(4), 1);
            }
            let opened = Ssd::open(&path).map_err(refused).ok();
            match opened {
                Some(drive) if !ends => break drive,
                opened => {
                    met.cuts_while_opening += 1;
                    disk.end([End::Crashed, End::Killed][random.below(2) as usize], || drop(opened));
                }
            }
        };
        disk.fail_syncs(0, 0);
        drive.verify_identity().unwrap();
        for block in 0..blocks {
            let mut data = vec![0xee; PAGE];
            drive.read(T, block, 1, &mut data).unwrap();
            let found = version_of(block, &data);
            promises.check(block, found);
            now.insert(block, found);
        }
    }
    disk.end(End::Closed, || drop(drive));
    std::fs::remove_file(&path).unwrap();
    met
}

fn run(level: impl Fn(u64, &Path) -> Met + Sync) {
    // In memory, where there is such a file system: each sync copies the image.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dir = dir.unwrap();
    seeds(30, 2_000, |seed| level(seed, dir.path()));
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

#[test]
fn a_conventional_drive_survives_crashes_of_the_host() {
    run(|seed, dir| drives(seed, false, dir));
}

#[test]
fn an_fdp_drive_survives_crashes_of_the_host() {
    run(|seed, dir| drives(seed, true, dir));
}

/// A device of one LUN and its disk.
fn small(path: &Path, seed: u64) -> (OpenChannel, Watched) {
    let device = OpenChannel::create(path, &FlashSetup::new(support::geometry(1, 1, 40, 8)), true).unwrap();
    let disk = Watched::new(path, Random(seed).next());
    (device, disk)
}

fn program(device: &OpenChannel, block: u32, pages: std::ops::Range<u32>) {
    let lun = device.shape().lun_at(0);
    for page in pages {
        let data = page_of(u64::from(block), u64::from(page) + 1);
        device.program(T, lun.block(0, block).page(page), &data, &[]).unwrap();
    }
}

fn read(device: &OpenChannel, block: u32, page: u32) -> Result<u64, FlashError> {
    let mut data = vec![0xee; PAGE];
    let place = device.shape().lun_at(0).block(0, block).page(page);
    device.read(T, place, 0, &mut data, &mut []).map(|_| version_of(u64::from(block), &data))
}

/// The disk knows of what was synced last after some crashes, and not after others.
fn each_crash(dir: &Path, check: impl Fn(OpenChannel, Watched, &Path)) {
    for seed in 1..=100 {
        let path = dir.join(format!("{seed}"));
        let (device, disk) = small(&path, seed);
        check(device, disk, &path);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn while_the_host_cannot_read_a_page_that_may_have_been_flushed_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let refused = AtomicU64::new(0);
    each_crash(dir.path(), |device, disk, path| {
        program(&device, 0, 0..6);
        device.sync().unwrap();
        disk.end(End::Crashed, || drop(device));
        let image = std::fs::read(path).unwrap();
        let wanted = page_of(0, 3);
        let at = image.windows(PAGE).position(|bytes| bytes == wanted).unwrap() as u64;
        disk.fail_reads(at..at + 1);
        match OpenChannel::open(path) {
            Ok(device) => {
                assert!(matches!(read(&device, 0, 2), Err(FlashError::Device(DeviceError::Io { .. }))));
                assert_eq!(read(&device, 0, 5).unwrap(), 6);
            }
            Err(error) => {
                assert!(matches!(error, FlashError::Device(DeviceError::Io { .. })), "{error}");
                refused.fetch_add(1, Relaxed);
            }
        }
        // It was the cable.
        disk.fail_reads(0..0);
        let device = OpenChannel::open(path).unwrap();
        (0..6).for_each(|page| assert_eq!(read(&device, 0, page).unwrap(), u64::from(page) + 1));
    });
    assert!(refused.into_inner() > 0);
}

#[test]
fn a_crash_in_the_sync_of_an_erase_leaves_what_was_flushed_or_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    each_crash(dir.path(), |device, disk, path| {
        program(&device, 0, 0..4);
        device.sync().unwrap();
        program(&device, 0, 4..8);
        let lun = device.shape().lun_at(0);
        let copy = page_of(0, 1);
        device.program(T, lun.block(0, 1).page(0), &copy, &[]).unwrap();
        disk.end_after(0);
        device.erase(T, lun.block(0, 0)).unwrap();
        disk.end(End::Crashed, || drop(device));
        let device = OpenChannel::open(path).unwrap();
        let mut data = vec![0; PAGE];
        let copied = device.read(T, lun.block(0, 1).page(0), 0, &mut data, &mut []).is_ok();
        assert!(copied && data == copy || read(&device, 0, 0).is_ok_and(|version| version == 1));
    });
}

#[test]
fn pages_of_a_life_that_the_host_has_lost_are_in_no_later_one_where_files_have_no_holes() {
    let dir = tempfile::tempdir().unwrap();
    each_crash(dir.path(), |device, disk, path| {
        disk.without_holes();
        let block = device.shape().lun_at(0).block(0, 0);
        // An erased block is erased again and programmed, and the host may lose the erase alone.
        device.erase(T, block).unwrap();
        program(&device, 0, 0..4);
        disk.end(End::Crashed, || drop(device));
        let device = OpenChannel::open(path).unwrap();
        let before = device.block_info(block).unwrap().erases;
        device.sync().unwrap();
        device.erase(T, block).unwrap();
        let other = page_of(0, 77);
        for page in 0..4 {
            device.program(T, block.page(page), &other, &[]).unwrap();
        }
        disk.end(End::Crashed, || drop(device));
        let device = OpenChannel::open(path).unwrap();
        let after = device.block_info(block).unwrap();
        for page in 0..after.programmed {
            assert!(read(&device, 0, page).is_ok_and(|version| version == 77 || after.erases == before));
        }
    });
}
