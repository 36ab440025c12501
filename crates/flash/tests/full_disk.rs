//! A device in an image on a disk of the host. When the disk is full, what needs no room works, and all else says what is full. What
//! a checkpoint names is synced before it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use weft_core::{Nanos, Tag};
use weft_device::DeviceError;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{BlockAddr, Done, FlashError, OpenChannel, PageAddr, PageRead};
use weft_flash::share::{self, MonitorServer};
use weft_flash::{
    Backend, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping,
    RangePolicy,
};

const T: Nanos = Nanos(0);

/// A device that programs nothing while the disk is full.
#[derive(Debug)]
struct OnDisk {
    device: OpenChannel,
    is_full: AtomicBool,
    /// Pages of data programmed since the last sync.
    unsynced: AtomicU64,
    /// Syncs fail.
    is_failing: AtomicBool,
    /// Snapshots of a log, and the most that this was before one.
    snapshots: AtomicU64,
    worst: AtomicU64,
}

impl OnDisk {
    fn new(device: OpenChannel) -> Arc<OnDisk> {
        let [unsynced, snapshots, worst] = Default::default();
        let [is_full, is_failing] = Default::default();
        Arc::new(OnDisk { device, is_full, unsynced, is_failing, snapshots, worst })
    }
}

impl Backend for OnDisk {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.device.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        if self.is_full.load(Relaxed) {
            let (path, source) = ("/disk/nand.img".into(), std::io::ErrorKind::StorageFull.into());
            return Err(DeviceError::HostFull { path, source }.into());
        }
        // The kind of the record: 1 is a snapshot.
        if data.starts_with(b"WEFTFLOG") {
            if data[8] == 1 {
                self.snapshots.fetch_add(1, Relaxed);
                self.worst.fetch_max(self.unsynced.load(Relaxed), Relaxed);
            }
        } else {
            self.unsynced.fetch_add(1, Relaxed);
        }
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.device.erase(issued, block)
    }

    fn sync(&self) -> Result<(), FlashError> {
        if self.is_failing.load(Relaxed) {
            let (path, source) = ("/disk/nand.img".into(), std::io::Error::from_raw_os_error(5));
            return Err(DeviceError::Io { path, source }.into());
        }
        self.unsynced.store(0, Relaxed);
        self.device.sync()
    }
}

#[test]
fn on_a_full_disk_grants_open_and_are_read_and_what_needs_room_names_the_image_and_the_remedy() {
    let disk = OnDisk::new(support::device(2, 1, 60, 8));
    let monitor = Monitor::format(disk.clone(), MonitorSetup::default()).unwrap();
    let request =
        GrantRequest { name: "a".into(), bytes: 2 * monitor.lun_bytes(), over_provisioning_permille: 0 };
    let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), PolicySetup::default()).unwrap();
    let policy = RangePolicy {
        start: 0,
        pages: 40,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 100,
    };
    level.ftl_ioctl(&policy).unwrap();
    level.ftl_write(T, 7, &[7; 4096], Tag::default()).unwrap();
    level.trim(T, 7, 1).unwrap();
    level.flush(T).unwrap();
    level.ftl_write(T, 9, &[9; 4096], Tag::default()).unwrap();
    drop((level, monitor));

    disk.is_full.store(true, Relaxed);
    let monitor = Monitor::open(disk.clone()).unwrap();
    let full = |error: LevelError| {
        let text = error.to_string();
        assert!(matches!(error, LevelError::HostFull(_)), "{text}");
        assert!(text.contains("/disk/nand.img: no space is left") && text.contains("free some"), "{text}");
    };
    let mut data = [1; 4096];
    for _ in 0..2 {
        let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
        for (page, value) in [(7, 0), (9, 9)] {
            level.ftl_read(T, page, &mut data).unwrap();
            assert_eq!(data, [value; 4096], "page {page}");
        }
        full(level.ftl_write(T, 9, &data, Tag::default()).unwrap_err());
    }
    full(monitor.release("a").unwrap_err());
    assert_eq!(monitor.grants().len(), 1);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let server = MonitorServer::start(monitor.clone(), &socket).unwrap();
    full(share::release(&socket, "a").unwrap_err());
    drop(server);

    disk.is_full.store(false, Relaxed);
    let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
    level.ftl_write(T, 7, &[8; 4096], Tag::default()).unwrap();
    drop(level);
    let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
    for (page, value) in [(7, 8), (9, 9)] {
        level.ftl_read(T, page, &mut data).unwrap();
        assert_eq!(data, [value; 4096], "page {page}");
    }
    level.verify().unwrap();
    drop(level);
    monitor.release("a").unwrap();
}

/// A page-mapped range of 40 pages, with a checkpoint after so many.
fn page_range(disk: &Arc<OnDisk>, checkpoint_pages: u64) -> PolicyLevel {
    let monitor = Monitor::format(disk.clone(), MonitorSetup::default()).unwrap();
    let request =
        GrantRequest { name: "a".into(), bytes: 2 * monitor.lun_bytes(), over_provisioning_permille: 0 };
    let setup = PolicySetup { checkpoint_pages, ..PolicySetup::default() };
    let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), setup).unwrap();
    let policy = RangePolicy {
        start: 0,
        pages: 40,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 100,
    };
    level.ftl_ioctl(&policy).unwrap();
    level
}

#[test]
fn a_checkpoint_names_nothing_that_a_crash_of_the_host_can_take_back() {
    let disk = OnDisk::new(support::device(2, 1, 60, 8));
    let level = page_range(&disk, 40);
    for turn in 0..2000 {
        level.ftl_write(T, turn % 40, &[7; 4096], Tag::default()).unwrap();
        // Trims fill the log, and lead to snapshots too.
        level.trim(T, (turn + 5) % 40, 1).unwrap();
        if turn % 3 == 0 {
            level.flush(T).unwrap();
        }
    }
    drop(level.close(T).unwrap());
    assert!(disk.snapshots.load(Relaxed) > 30);
    assert_eq!(disk.worst.load(Relaxed), 0, "pages were not synced before the checkpoint that names them");
}

#[test]
fn while_syncs_fail_no_checkpoint_is_written_and_trims_are_recorded_once_they_succeed() {
    let disk = OnDisk::new(support::device(2, 1, 60, 8));
    let level = page_range(&disk, u64::MAX);
    let before = disk.snapshots.load(Relaxed);
    disk.is_failing.store(true, Relaxed);
    // Until the log has no room for trims without a checkpoint.
    let refused = (0..10_000).find(|turn| {
        level.ftl_write(T, turn % 40, &[7; 4096], Tag::default()).is_err()
            || level.trim(T, turn % 40, 1).is_err()
            || level.flush(T).is_ok()
    });
    assert_eq!((disk.snapshots.load(Relaxed), disk.worst.load(Relaxed)), (before, 0), "{refused:?}");
    assert!(level.flush(T).is_err() && refused.is_some());
    disk.is_failing.store(false, Relaxed);
    level.flush(T).unwrap();
    level.verify().unwrap();
    assert!(disk.snapshots.load(Relaxed) > before && disk.worst.load(Relaxed) == 0);
}
