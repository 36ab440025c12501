//! An image on a disk whose own storage runs out under it: writes succeed, and the sync fails. Needs root, a loop device and ext4;
//! elsewhere it says so and passes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it did not run"
)]

mod support;

use parking_lot::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use support::flaky::is_of_the_host;
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashError, FlashSetup, OpenChannel};
use weft_flash::{
    GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping, RangePolicy,
};

const T: Nanos = Nanos(0);

fn shell(command: &str) -> bool {
    Command::new("sh").arg("-c").arg(command).output().is_ok_and(|output| output.status.success())
}

/// One at a time: what the kernel forgets is not one test's alone.
static ALONE: Mutex<()> = Mutex::new(());

/// Takes all room below the disk.
fn fill(dir: &Path) {
    shell(&format!("cat /dev/zero > {}/small/filler", dir.display()));
}

/// A file system in a file on a small one; unmounted at the end.
struct Thin {
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Thin {
    fn new() -> Option<Thin> {
        let thin = Thin { _alone: ALONE.lock(), dir: tempfile::tempdir().unwrap() };
        let dir = thin.dir.path().display();
        // The file system's own blocks lie at the front and have their room, so that it goes on when its files' blocks have none.
        let made = shell(&format!(
            "cd {dir} && mkdir small disk && mount -t tmpfs -o size=64m tmpfs small && truncate -s 400M small/back && \
             mkfs.ext4 -q -b 4096 -N 64 -J size=4 -E packed_meta_blocks=1,lazy_itable_init=0,lazy_journal_init=0,nodiscard small/back && \
             dd if=small/back of=small/back bs=1M count=5 conv=notrunc status=none && mount -o loop small/back disk"
        ));
        if !made {
            println!("not run: it needs root, loop devices and ext4");
        }
        made.then_some(thin)
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn give_room(&self) {
        std::fs::remove_file(self.dir.path().join("small/filler")).unwrap();
    }

    /// Lets the kernel write what it can of a file, and forget what it takes for written.
    fn forget(&self, file: &Path) {
        shell(&format!("sync -d {}", file.display()));
        assert!(shell("echo 3 > /proc/sys/vm/drop_caches"));
    }

    /// An image as it is, in another file: what a process leaves that dies now.
    fn copy(&self, image: &Path) -> PathBuf {
        let copy = self.disk().join("copy");
        assert!(shell(&format!("cp {} {copy} && sync {copy}", image.display(), copy = copy.display())));
        copy
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        let dir = self.dir.path().display();
        shell(&format!("umount -l {dir}/disk; umount -l {dir}/small"));
    }
}

fn open(path: &Path) -> PolicyLevel {
    let device = Arc::new(OpenChannel::open(path).unwrap());
    PolicyLevel::open(Monitor::open(device).unwrap().attach("all").unwrap(), PolicySetup::default()).unwrap()
}

fn page_of(page: u64) -> Vec<u8> {
    vec![(page % 251) as u8 + 1; 4096]
}

#[test]
fn after_a_sync_that_failed_nothing_is_written_until_the_image_is_opened_again() {
    let Some(thin) = Thin::new() else { return };
    let path = thin.disk().join("nand");
    let setup = FlashSetup::new(support::geometry(2, 2, 200, 16));
    let device = Arc::new(OpenChannel::create(&path, &setup, false).unwrap());
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), PolicySetup::default()).unwrap();
    let policy = RangePolicy {
        start: 0,
        pages: 6000,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 100,
    };
    level.ftl_ioctl(&policy).unwrap();
    let write = |level: &PolicyLevel, pages: std::ops::Range<u64>| {
        pages
            .into_iter()
            .try_for_each(|page| level.ftl_write(T, page, &page_of(page), Tag::default()).map(drop))
    };
    write(&level, 0..1000).unwrap();
    level.flush(T).unwrap();
    fill(thin.dir.path());
    let stopped = |result: Result<(), LevelError>| {
        let error = result.unwrap_err();
        assert!(is_of_the_host(&error) && error.to_string().contains("opened again"), "{error}");
    };
    stopped(write(&level, 1000..4000).and_then(|()| level.flush(T).map(drop)));
    thin.give_room();
    stopped(level.flush(T).map(drop));
    stopped(write(&level, 0..1));
    drop((level, monitor));
    let level = open(&path);
    let read = |level: &PolicyLevel, page: u64| {
        let mut data = vec![0; 4096];
        level.ftl_read(T, page, &mut data).unwrap();
        data
    };
    for page in 0..4000 {
        let data = read(&level, page);
        assert!(data == page_of(page) || page >= 1000 && data == [0; 4096], "page {page}");
    }
    // There is room, and work goes on.
    write(&level, 1000..4000).unwrap();
    level.flush(T).unwrap();
    std::mem::forget(level);
    thin.forget(&path);
    let level = open(&thin.copy(&path));
    (0..4000).for_each(|page| assert!(read(&level, page) == page_of(page), "page {page}"));
}

/// A device on a thin disk: of each block, so many pages were synced, and as many follow, for which the disk has no room any more.
struct Unwritten {
    device: OpenChannel,
    path: PathBuf,
    thin: Thin,
}

/// Blocks that are used; pages of each that were synced, and all that are programmed.
const BLOCKS: u32 = 200;
const SYNCED: u32 = 5;
const PROGRAMMED: u32 = 16;

fn image_of(dir: &Path) -> PathBuf {
    dir.join("disk/nand")
}

fn content(block: u32, page: u32) -> Vec<u8> {
    page_of(u64::from(block) * 24 + u64::from(page))
}

fn program(device: &OpenChannel, pages: std::ops::Range<u32>) {
    let lun = device.shape().lun_at(0);
    for (number, page) in (0..BLOCKS).flat_map(|number| pages.clone().map(move |page| (number, page))) {
        device.program(T, lun.block(0, number).page(page), &content(number, page), &[]).unwrap();
    }
}

/// How many pages that are programmed cannot be read. What can be read is right, and what was synced can.
fn unreadable(device: &OpenChannel) -> usize {
    let mut count = 0;
    for number in 0..BLOCKS {
        let block = device.shape().lun_at(0).block(0, number);
        let programmed = device.block_info(block).unwrap().programmed;
        assert!((SYNCED..PROGRAMMED + 2).contains(&programmed));
        for page in 0..programmed {
            let mut data = vec![0; 4096];
            match device.read(T, block.page(page), 0, &mut data, &mut []) {
                Ok(_) => assert!(data == content(number, page), "block {number}, page {page}"),
                Err(FlashError::Uncorrectable { .. }) if page >= SYNCED => count += 1,
                Err(error) => panic!("block {number}, page {page}: {error}"),
            }
        }
    }
    count
}

impl Unwritten {
    fn new() -> Option<Unwritten> {
        let thin = Thin::new()?;
        let device = Unwritten::written(thin.dir.path());
        Some(Unwritten { device, path: image_of(thin.dir.path()), thin })
    }

    fn written(dir: &Path) -> OpenChannel {
        let setup = FlashSetup::new(support::geometry(1, 1, BLOCKS + 20, 24));
        let device = OpenChannel::create(&image_of(dir), &setup, false).unwrap();
        program(&device, 0..SYNCED);
        device.sync().unwrap();
        fill(dir);
        program(&device, SYNCED..PROGRAMMED);
        device
    }
}

#[test]
fn an_image_whose_sync_failed_ends_before_what_is_lost_however_it_is_left() {
    let Some(Unwritten { device, path, thin }) = Unwritten::new() else { return };
    device.sync().unwrap_err();
    thin.give_room();
    let copy = thin.copy(&path);
    drop(device);
    for path in [copy, path] {
        thin.forget(&path);
        let after = OpenChannel::open(&path).unwrap();
        assert_eq!(unreadable(&after), 0);
        after.verify_identity().unwrap();
        drop(after);
        assert_eq!(unreadable(&OpenChannel::open(&path).unwrap()), 0);
    }
}

#[test]
#[ignore = "a process of the next test"]
fn a_process_that_dies_before_it_syncs() {
    let Ok(dir) = std::env::var("WEFT_THIN") else { return };
    std::mem::forget(Unwritten::written(Path::new(&dir)));
}

#[test]
fn what_a_process_has_left_to_a_disk_without_room_ends_before_what_is_lost() {
    let Some(thin) = Thin::new() else { return };
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--ignored", "--exact", "a_process_that_dies_before_it_syncs"]);
    assert!(process.env("WEFT_THIN", thin.dir.path()).output().unwrap().status.success());
    // What it wrote is in the memory of the host, which cannot write it.
    let path = image_of(thin.dir.path());
    for _ in 0..2 {
        let device = OpenChannel::open(&path).unwrap();
        assert_eq!(unreadable(&device), 0);
        device.verify_identity().unwrap();
        thin.forget(&path);
    }
    thin.give_room();
    assert_eq!(unreadable(&OpenChannel::open(&path).unwrap()), 0);
}
