//! Random operations do to this core what they do to the oracle, across remounts.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{assert_sound, options, small};
use std::cell::RefCell;
use std::sync::Arc;
use weft_conformance::model::{Effort, a_core_does_what_the_oracle_does};
use weft_device::PowerCut;
use weft_lfs::{FormatOptions, Lfs};
use weft_vfs::FileSystem;

#[test]
fn the_core_does_what_the_oracle_does_across_remounts() {
    let device: RefCell<Option<Arc<PowerCut>>> = RefCell::new(None);
    let make = || -> Box<dyn FileSystem> {
        let fresh = Arc::new(PowerCut::new(&small(128 << 20, 1 << 20)).unwrap());
        Lfs::format(fresh.clone(), &FormatOptions::default()).unwrap();
        *device.borrow_mut() = Some(fresh.clone());
        Box::new(Lfs::mount(fresh, options()).unwrap())
    };
    // Every second remount is after a power cut: the core has been synced, so nothing may be missing.
    let cut = RefCell::new(0u64);
    let remount = |old: Box<dyn FileSystem>| -> Box<dyn FileSystem> {
        drop(old);
        let mut device = device.borrow_mut();
        let mut now = device.take().unwrap();
        *cut.borrow_mut() += 1;
        if cut.borrow().is_multiple_of(2) {
            now = Arc::new(now.reopen(*cut.borrow()).unwrap());
        }
        assert_sound(&now);
        *device = Some(now.clone());
        let fs = Lfs::mount(now, options()).unwrap();
        assert_eq!(fs.recount(), [""; 0]);
        Box::new(fs)
    };
    a_core_does_what_the_oracle_does(&make, &remount, Effort { cases: 200, ops_max: 200, seed: 3 });
}
