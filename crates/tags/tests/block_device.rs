//! A store on a block device: needs the right to make a loop device, and passes without a look where there is none.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_tags::{FileStore, PageStore, ReadPath};

const PAGE: usize = 4096;
const BLOCKS: u64 = 256;

/// A loop device on a file.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?;
        (made.status.success() && !name.trim().is_empty()).then(|| Loop(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[repr(align(4096))]
struct Page([u8; PAGE]);

#[test]
fn a_block_that_the_kernel_reads_ahead_while_it_is_written_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap().set_len(BLOCKS * PAGE as u64).unwrap();
    let Some(device) = Loop::over(&image) else { return };
    for reads in [ReadPath::Kernel, ReadPath::Mapped, ReadPath::Direct] {
        let store = FileStore::open(&device.0, reads).unwrap();
        let end = AtomicBool::new(false);
        let stale = std::thread::scope(|threads| {
            // What reads ahead, of a window or of a file, does to the blocks beside the one that was asked for.
            threads.spawn(|| {
                let device = File::open(&device.0).unwrap();
                let mut out = vec![0; 32 * PAGE];
                while !end.load(Ordering::Relaxed) {
                    (0..BLOCKS).step_by(32).for_each(|block| {
                        device.read_exact_at(&mut out, block * PAGE as u64).unwrap();
                    });
                }
            });
            let mut stale = 0;
            for round in 0..400u64 {
                let page = Page([round as u8; PAGE]);
                let pages: Vec<*const [u8; PAGE]> = vec![&raw const page.0; 32];
                let first = round * 32 % BLOCKS;
                // SAFETY: the page outlives the write, which is waited for.
                unsafe { store.begin_write(first, &weft_core::Tag::default(), &pages) }
                    .unwrap()
                    .wait()
                    .unwrap();
                let mut out = Page([0; PAGE]);
                for block in first..first + 32 {
                    store.read(block, &mut out.0).unwrap();
                    stale += u32::from(out.0 != page.0);
                }
            }
            end.store(true, Ordering::Relaxed);
            stale
        });
        assert_eq!(stale, 0, "{reads:?}");
    }
}

#[test]
fn a_device_with_two_names_has_one_store_open() {
    let dir = tempfile::tempdir().unwrap();
    let (image, other) = (dir.path().join("image"), dir.path().join("other-name"));
    File::create(&image).unwrap().set_len(BLOCKS * PAGE as u64).unwrap();
    let Some(device) = Loop::over(&image) else { return };
    let number = std::fs::metadata(&device.0).unwrap().rdev();
    let numbers = [libc::major(number).to_string(), libc::minor(number).to_string()];
    let made = Command::new("mknod").arg(&other).arg("b").args(numbers).status();
    if !made.is_ok_and(|made| made.success()) {
        return;
    }
    let open = |path: &Path| FileStore::open(path, ReadPath::Kernel);
    let first = open(&device.0).unwrap();
    let refused = open(&device.0).map(drop).unwrap_err().to_string();
    assert!(refused.contains("in use by this process"), "{refused}");
    let refused = open(&other).map(drop).unwrap_err().to_string();
    assert!(refused.contains("in use"), "{refused}");
    assert!(FileStore::open_read_only(&other).is_err());
    drop(first);
    open(&other).map(drop).unwrap();
}
