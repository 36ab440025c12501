//! An image on a disk whose own storage runs out under it: writes succeed, and the sync fails. Needs root, a loop device and ext4;
//! elsewhere it says so and passes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it did not run"
)]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{GrantRequest, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping, RangePolicy};

const T: Nanos = Nanos(0);

fn shell(command: &str) -> bool {
    Command::new("sh").arg("-c").arg(command).output().is_ok_and(|output| output.status.success())
}

/// A file system in a file on a small one; unmounted at the end.
struct Thin {
    dir: tempfile::TempDir,
}

impl Thin {
    fn new() -> Option<Thin> {
        let thin = Thin { dir: tempfile::tempdir().unwrap() };
        let dir = thin.dir.path().display();
        let made = shell(&format!(
            "cd {dir} && mkdir small disk && mount -t tmpfs -o size=40m tmpfs small && truncate -s 400M small/back && \
             mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard small/back && mount -o loop small/back disk"
        ));
        made.then_some(thin)
    }

    fn disk(&self) -> std::path::PathBuf {
        self.dir.path().join("disk")
    }

    /// Takes all room below the disk.
    fn fill(&self) {
        shell(&format!("cat /dev/zero > {}/small/filler", self.dir.path().display()));
    }

    fn give_room(&self) {
        std::fs::remove_file(self.dir.path().join("small/filler")).unwrap();
    }

    /// Lets the kernel forget what it takes for written.
    fn forget(&self) {
        assert!(shell("echo 3 > /proc/sys/vm/drop_caches"));
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        let dir = self.dir.path().display();
        shell(&format!("umount {dir}/disk; umount {dir}/small"));
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
fn what_a_sync_that_failed_had_to_write_is_written_again_before_one_succeeds() {
    let Some(thin) = Thin::new() else {
        println!("not run: it needs root, loop devices and ext4");
        return;
    };
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
    level.flush(T).unwrap();
    thin.fill();
    for page in 0..3000 {
        level.ftl_write(T, page, &page_of(page), Tag::default()).unwrap();
    }
    let failed = (0..3).filter(|_| level.flush(T).is_err()).count();
    assert!(failed > 0, "the disk had room");
    thin.give_room();
    // What the kernel still reports belongs to what was written when there was no room.
    let flushed = (0..5).any(|_| level.flush(T).is_ok());
    assert!(flushed, "there is room again");
    // Not closed: nothing is written after this.
    std::mem::forget((level, monitor));
    let copy = thin.disk().join("copy");
    thin.forget();
    assert!(shell(&format!("cp {} {}", path.display(), copy.display())));
    let level = open(&copy);
    for page in 0..3000 {
        let mut data = vec![0; 4096];
        level.ftl_read(T, page, &mut data).unwrap();
        assert!(data == page_of(page), "page {page}");
    }
    drop(level);
    std::fs::remove_file(&copy).unwrap();
}
