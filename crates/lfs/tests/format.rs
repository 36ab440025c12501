//! What a freshly made volume is.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

mod rig;

use std::sync::Arc;
use weft_core::Ino;
use weft_device::PowerCut;
use weft_lfs::{FormatOptions, Lfs};
use weft_vfs::FileSystem;

#[test]
fn the_root_directory_belongs_to_whom_the_volume_is_made_for() {
    let device = Arc::new(PowerCut::new(&rig::small(64 << 20, 1 << 20)).unwrap());
    let options = FormatOptions { owner: (101, 104), ..FormatOptions::default() };
    Lfs::format(device.clone(), &options).unwrap();
    for _mount in 0..2 {
        let fs = Lfs::mount(device.clone(), rig::options()).unwrap();
        let root = fs.getattr(Ino::ROOT).unwrap();
        assert_eq!((root.uid, root.gid, root.perm & 0o7777), (101, 104, 0o755));
        fs.unmount().unwrap();
    }
    rig::assert_sound(&device);
}
