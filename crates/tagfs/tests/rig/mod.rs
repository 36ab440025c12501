//! A volume on a medium in memory whose power can be cut.

// Each test binary uses its part of the rig.
#![allow(dead_code)]

#[path = "../../../tags/tests/support/power_cut.rs"]
mod power_cut;

pub use power_cut::PowerCutStore;

use std::sync::Arc;
use weft_conformance::crash::Rig;
use weft_tagfs::{FormatOptions, MountOptions, TagFs, TagFsError};
use weft_tags::MemoryStore;
use weft_vfs::{FileSystem, FsError, FsResult};

/// A buffer that is full soon.
pub fn options() -> MountOptions {
    MountOptions { cache_bytes: 16 << 20, dirty_bytes_max: 1 << 20, ..MountOptions::default() }
}

/// The bytes of an empty volume.
pub fn formatted(capacity_bytes: u64) -> Vec<u8> {
    let medium = Arc::new(MemoryStore::new());
    let options =
        FormatOptions { label: "test".into(), uuid: [7; 16], capacity_bytes, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    medium.to_bytes()
}

/// Volumes for [`weft_conformance::crash::survive_cuts`].
pub struct CutRig {
    empty: Vec<u8>,
    medium: Option<Arc<PowerCutStore>>,
    /// Of what the next cut leaves.
    seed: u64,
    base: u64,
    /// Cuts recovered from.
    pub recoveries: u64,
}

impl CutRig {
    pub fn new(capacity_bytes: u64, seed: u64) -> CutRig {
        CutRig { empty: formatted(capacity_bytes), medium: None, seed, base: 0, recoveries: 0 }
    }

    fn mount(&mut self, bytes: Vec<u8>, operations: u64) -> FsResult<TagFs> {
        // What the mount itself does is not of the workload: it is counted first, on a copy.
        let probe = Arc::new(PowerCutStore::new(bytes.clone(), u64::MAX));
        drop(TagFs::mount(Box::new(probe.clone()), options()).map_err(failed)?);
        self.base = probe.operations();
        let medium = Arc::new(PowerCutStore::new(bytes, operations.saturating_add(self.base)));
        self.medium = Some(medium.clone());
        TagFs::mount(Box::new(medium), options()).map_err(failed)
    }

    /// [`start`](Rig::start), of a volume that is known to be one.
    pub fn start_volume(&mut self, operations: u64) -> TagFs {
        self.mount(self.empty.clone(), operations).unwrap()
    }

    /// The medium of the volume that was started, and that was dropped as a crash does.
    pub fn lost(&mut self) -> Arc<PowerCutStore> {
        self.medium.take().unwrap()
    }

    /// One of the volumes that the cut of a medium may have left, checked.
    pub fn look(&mut self, cut: &PowerCutStore, seed: u64) -> FsResult<TagFs> {
        let after = cut.after_power_cut(seed);
        self.recoveries += 1;
        let bytes = after.to_bytes();
        let report = TagFs::check(Box::new(after)).map_err(failed)?;
        if let Some(problem) = report.problems.first() {
            let rest = report.problems.len() - 1;
            return Err(FsError::Device(format!("the check finds: {problem} and {rest} more")));
        }
        self.mount(bytes, u64::MAX)
    }
}

fn failed(error: TagFsError) -> FsError {
    FsError::Device(error.to_string())
}

impl Rig for CutRig {
    fn start(&mut self, operations: u64) -> Box<dyn FileSystem> {
        Box::new(self.start_volume(operations))
    }

    fn operations(&self) -> u64 {
        self.medium.as_ref().map_or(0, |medium| medium.operations() - self.base)
    }

    fn recover(&mut self, core: Box<dyn FileSystem>) -> FsResult<Box<dyn FileSystem>> {
        drop(core);
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let cut = self.lost();
        Ok(Box::new(self.look(&cut, self.seed)?))
    }
}
