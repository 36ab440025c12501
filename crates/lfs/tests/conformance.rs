//! The core passes the suite that every core must pass.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use weft_device::{Geometry, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, MountOptions};
use weft_vfs::FileSystem;

fn make() -> Box<dyn FileSystem> {
    let geometry = Geometry::zn540().with_size(128 << 20).with_zone_bytes(1 << 20);
    let device = Arc::new(ZonedModel::memory(&geometry).unwrap());
    Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
    Box::new(Lfs::mount(device, MountOptions::default()).unwrap())
}

weft_conformance::conformance_tests!(make);
