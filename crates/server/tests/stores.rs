//! Stores to maps that the volume does not take: whoever stored them hears of it by `fsync`.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use weft_client::FileRef;
use weft_core::BLOCK_BYTES;
use weft_device::ZonedDevice;

/// Overwrites each block of the device that holds nothing but `byte`.
fn damage(device: &dyn ZonedDevice, byte: u8) -> usize {
    let direct = device.direct_read().unwrap();
    // SAFETY: the device is alive, and so its descriptor.
    let file =
        std::fs::File::from(unsafe { BorrowedFd::borrow_raw(direct.fd) }.try_clone_to_owned().unwrap());
    let (mut block, mut damaged) = ([0; BLOCK_BYTES], 0);
    for at in (0..file.metadata().unwrap().len()).step_by(BLOCK_BYTES) {
        if file.read_exact_at(&mut block, at).is_ok() && block.iter().all(|&found| found == byte) {
            file.write_all_at(&[!byte; 64], at).unwrap();
            damaged += 1;
        }
    }
    damaged
}

#[test]
fn a_store_over_a_block_that_cannot_be_read_is_told_by_fsync() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let open = || client.open(FileRef::ROOT, b"/mapped", libc::O_RDWR | libc::O_CREAT, 0o644).unwrap().file;
    let (file, other) = (open(), open());
    let old = [0xa7; BLOCK_BYTES];
    client.pwrite(file, &old, 0).unwrap();
    client.fsync(file).unwrap();
    assert!(damage(&**rig.device(), 0xa7) > 0);
    let mut new = old;
    new[100..200].fill(1);
    assert_eq!(client.store_changes(file, &new, &old, 0), Err(libc::EIO));
    assert_eq!(client.fsync(other), Err(libc::EIO), "whoever has the file open hears of it");
    assert_eq!(client.fsync(other), Ok(()), "once");
    assert_eq!(client.fsync(file), Err(libc::EIO), "and whoever stored");
}
