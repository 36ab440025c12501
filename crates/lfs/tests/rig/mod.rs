//! A volume on a device in memory whose power can be cut.

// Each test binary uses its part of the rig.
#![allow(dead_code)]

pub mod content;
pub mod damaged;
pub mod failing;
mod pass_on;
pub mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use weft_conformance::crash::Rig;
use weft_core::Ino;
use weft_device::{Geometry, PowerCut, ZonedDevice};
use weft_lfs::fsck::{self, FsckReport};
use weft_lfs::{FormatOptions, Lfs, MountOptions};
use weft_vfs::{CreateArgs, FileSystem, FsError, FsResult, NewNode, TimeSpec};

/// Small zones, so that little data fills many of them.
pub fn small(total_bytes: u64, zone_bytes: u64) -> Geometry {
    Geometry {
        open_max: 8,
        active_max: 8,
        ..Geometry::zn540().with_size(total_bytes).with_zone_bytes(zone_bytes)
    }
}

/// Options with a clock that moves on by a millisecond at each look: equal runs are equal.
pub fn options() -> MountOptions {
    let now = AtomicI64::new(1_700_000_000_000_000_000);
    MountOptions {
        clock: Arc::new(move || TimeSpec(now.fetch_add(1_000_000, Ordering::Relaxed))),
        dirty_bytes_max: 1 << 20,
        ..MountOptions::default()
    }
}

/// A fresh volume.
pub fn fresh(geometry: &Geometry) -> (Arc<PowerCut>, Lfs) {
    let device = Arc::new(PowerCut::new(geometry).unwrap());
    Lfs::format(device.clone(), &FormatOptions { label: "test".into(), uuid: [7; 16], owner: (0, 0) })
        .unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    (device, fs)
}

/// What the check says of a device.
pub fn check(device: &Arc<PowerCut>) -> FsckReport {
    fsck::check(device.clone()).unwrap()
}

/// Fails unless the check finds nothing and the device refused no command.
pub fn assert_sound(device: &Arc<PowerCut>) {
    let report = check(device);
    assert!(report.is_clean(), "{:#?}", report.problems);
    let counters = device.device().counters();
    assert_eq!(counters.refused, 0, "commands refused");
    device.device().verify_identity().unwrap();
}

/// Volumes for [`weft_conformance::crash::survive_cuts`].
pub struct CutRig {
    geometry: Geometry,
    device: Option<Arc<PowerCut>>,
    /// Of what the next cut leaves.
    pub seed: u64,
    base: u64,
    /// Cuts recovered from.
    pub recoveries: u64,
    /// Bytes that a file leaves free. It is overwritten here and there, so that the cleaner has to work from the start.
    pub leave_free: Option<u64>,
    prepared: Option<Arc<PowerCut>>,
    gc_before: u64,
    /// Bytes that the cleaner copied on devices that were cut.
    pub gc_bytes: u64,
}

impl CutRig {
    pub fn new(geometry: Geometry, seed: u64) -> CutRig {
        CutRig {
            geometry,
            device: None,
            seed,
            base: 0,
            recoveries: 0,
            leave_free: None,
            prepared: None,
            gc_before: 0,
            gc_bytes: 0,
        }
    }

    /// [`start`](Rig::start), of a volume that is known to be one.
    pub fn start_volume(&mut self, operations: u64) -> Lfs {
        let (device, fs) = match self.leave_free {
            None => fresh(&self.geometry),
            Some(free) => {
                let geometry = self.geometry.clone();
                let prepared = self.prepared.get_or_insert_with(|| nearly_full(&geometry, free));
                let device = Arc::new(prepared.reopen(0).unwrap());
                let fs = Lfs::mount(device.clone(), options()).unwrap();
                (device, fs)
            }
        };
        self.gc_before = device.device().counters().gc_bytes;
        self.base = device.operations();
        if operations != u64::MAX {
            device.cut_after(operations);
        }
        self.device = Some(device);
        fs
    }

    /// The device of the volume that was started, and that was dropped as a crash does.
    pub fn lost(&mut self) -> Arc<PowerCut> {
        let device = self.device.take().unwrap();
        assert_eq!(device.device().counters().refused, 0, "commands refused before the cut");
        self.gc_bytes += device.device().counters().gc_bytes.saturating_sub(self.gc_before);
        self.gc_before = 0;
        device
    }

    /// One of the volumes that the cut of a device may have left, checked.
    pub fn look(&mut self, cut: &PowerCut) -> FsResult<(Arc<PowerCut>, Lfs)> {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let failed = |e: &dyn std::fmt::Display| FsError::Device(e.to_string());
        let device = Arc::new(cut.reopen(self.seed).map_err(|e| failed(&e))?);
        self.recoveries += 1;
        let report = fsck::check(device.clone()).map_err(|e| failed(&e))?;
        if let Some(problem) = report.problems.first() {
            return Err(failed(&format!(
                "the check finds: {problem} and {} more",
                report.problems.len() - 1
            )));
        }
        let fs = Lfs::mount(device.clone(), options()).map_err(|e| failed(&e))?;
        Ok((device, fs))
    }
}

impl Rig for CutRig {
    fn start(&mut self, operations: u64) -> Box<dyn FileSystem> {
        Box::new(self.start_volume(operations))
    }

    fn operations(&self) -> u64 {
        self.device.as_ref().map_or(0, |device| device.operations() - self.base)
    }

    fn recover(&mut self, core: Box<dyn FileSystem>) -> FsResult<Box<dyn FileSystem>> {
        drop(core);
        let cut = self.lost();
        let (device, fs) = self.look(&cut)?;
        self.device = Some(device);
        Ok(Box::new(fs))
    }
}

/// A device with a file that leaves so many bytes free and whose blocks lie in disorder.
fn nearly_full(geometry: &Geometry, free: u64) -> Arc<PowerCut> {
    let (device, fs) = fresh(geometry);
    let args = CreateArgs::new(NewNode::File, 0o600);
    let ballast = fs.create(Ino::ROOT, b"ballast", &args).unwrap().ino;
    let blocks = fs.statfs().unwrap().free_bytes.saturating_sub(free) / 4096;
    // In no order that would come again: what is written in the same order twice dies zone by zone.
    for i in 0..3 * blocks {
        let at = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i << 17).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        fs.write_through(ballast, at % blocks * 4096, &[i as u8; 4096]).unwrap();
    }
    fs.sync().unwrap();
    device
}
