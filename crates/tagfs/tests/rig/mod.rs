//! A volume on a medium whose power can be cut: blocks in memory behind a write cache, or modelled flash at one of its levels.

// Each test binary uses its part of the rig.
#![allow(dead_code)]

#[path = "../../../flash-pages/tests/support/mod.rs"]
pub mod flash;
#[path = "../../../tags/tests/support/power_cut.rs"]
mod power_cut;

pub use power_cut::PowerCutStore;

use flash::Level;
use std::sync::Arc;
use weft_conformance::crash::Rig;
use weft_device::nand::OpenChannel;
use weft_flash_pages::StreamChoice;
use weft_tagfs::{FormatOptions, Layout, MountOptions, TagFs, TagFsError};
use weft_tags::{MemoryStore, PageStore};
use weft_vfs::{CreateArgs, FileSystem, FsError, FsResult, Ino, NewNode};

/// A buffer that is full soon.
pub fn options() -> MountOptions {
    MountOptions { cache_bytes: 16 << 20, dirty_bytes_max: 1 << 20, ..MountOptions::default() }
}

fn format_options(capacity_bytes: u64) -> FormatOptions {
    FormatOptions { label: "test".into(), uuid: [7; 16], capacity_bytes, ..FormatOptions::default() }
}

/// An empty volume of so many bytes, in blocks.
pub fn formatted(capacity_bytes: u64) -> Vec<u8> {
    formatted_as(&format_options(capacity_bytes))
}

fn formatted_as(options: &FormatOptions) -> Vec<u8> {
    let medium = Arc::new(MemoryStore::new());
    TagFs::format(Box::new(medium.clone()), options).unwrap();
    medium.to_bytes()
}

/// What a medium holds, without power.
#[derive(Clone)]
pub enum Contents {
    Blocks(Vec<u8>),
    Flash(Level, Arc<OpenChannel>),
}

/// A medium that a volume runs on.
pub enum Medium {
    Blocks(Arc<PowerCutStore>),
    Flash(Level, Arc<OpenChannel>),
}

impl Contents {
    /// An empty volume of so many bytes.
    pub fn formatted(capacity_bytes: u64) -> Contents {
        Contents::Blocks(formatted(capacity_bytes))
    }

    /// The same with each attribute in a node of its own.
    pub fn formatted_fine(capacity_bytes: u64) -> Contents {
        let options = FormatOptions { layout: Layout::Fine, ..format_options(capacity_bytes) };
        Contents::Blocks(formatted_as(&options))
    }

    /// A volume with a few files on all of a small flash device. More was written than it has room for, so that the cleaner has work.
    pub fn used_on(level: Level) -> Contents {
        let device = flash::device(flash::geometry(2, 1, 160, 16));
        let medium = level.create_on(device.clone(), StreamChoice::ByTag);
        TagFs::format(medium.boxed(), &format_options(0)).unwrap();
        let fs = TagFs::mount(medium.boxed(), options()).unwrap();
        for n in 0..120u32 {
            let name = |n: u32| format!("old {n}").into_bytes();
            let ino = fs.create(Ino::ROOT, &name(n), &CreateArgs::new(NewNode::File, 0o644)).unwrap().ino;
            fs.write(ino, 0, &vec![n as u8; 200 << 10]).unwrap();
            fs.fsync(ino).unwrap();
            // What is left of a stretch of time lies among what has gone.
            if let Some(old) = n.checked_sub(12).filter(|old| old % 24 != 0) {
                fs.unlink(Ino::ROOT, &name(old)).unwrap();
            }
        }
        fs.unmount().unwrap();
        Contents::Flash(level, device)
    }

    /// A copy that goes its own way.
    fn fork(&self) -> Contents {
        match self {
            Contents::Blocks(bytes) => Contents::Blocks(bytes.clone()),
            Contents::Flash(level, device) => Contents::Flash(*level, Arc::new(device.fork().unwrap())),
        }
    }

    fn open(self) -> FsResult<Box<dyn PageStore>> {
        Ok(match self {
            Contents::Blocks(bytes) => Box::new(MemoryStore::from_bytes(bytes)),
            Contents::Flash(level, device) => open_flash(level, &device)?,
        })
    }
}

fn open_flash(level: Level, device: &Arc<OpenChannel>) -> FsResult<Box<dyn PageStore>> {
    let medium = level.open_on(device.clone(), StreamChoice::ByTag);
    medium.map(|medium| medium.boxed()).map_err(|error| FsError::Device(error.to_string()))
}

impl Medium {
    /// Writes and syncs of blocks so far; programs and erases of flash, those of its cleaner and of the levels' logs included.
    fn operations(&self) -> u64 {
        match self {
            Medium::Blocks(store) => store.operations(),
            Medium::Flash(_, device) => {
                let counters = device.counters();
                counters.pages_programmed + counters.blocks_erased
            }
        }
    }

    fn erases(&self) -> u64 {
        match self {
            Medium::Blocks(_) => 0,
            Medium::Flash(_, device) => device.counters().blocks_erased,
        }
    }

    pub fn is_cut(&self) -> bool {
        match self {
            Medium::Blocks(store) => store.is_cut(),
            Medium::Flash(_, device) => device.is_cut(),
        }
    }

    /// What it holds when power comes back. Of blocks that were not synced, `seed` draws what is there.
    fn after_power_cut(&self, seed: u64) -> Contents {
        match self {
            Medium::Blocks(store) => Contents::Blocks(store.after_power_cut(seed).to_bytes()),
            Medium::Flash(level, device) => {
                // What the cut has torn was drawn when it was planned.
                Contents::Flash(*level, Arc::new(device.fork().unwrap()))
            }
        }
    }
}

/// Volumes for [`weft_conformance::crash::survive_cuts`].
pub struct CutRig {
    empty: Contents,
    medium: Option<Medium>,
    /// Of what the next cut leaves.
    seed: u64,
    base: u64,
    /// Cuts recovered from.
    pub recoveries: u64,
    /// Erases of flash by all workloads.
    pub erases: u64,
    erases_before: u64,
}

impl CutRig {
    pub fn new(empty: Contents, seed: u64) -> CutRig {
        CutRig { empty, medium: None, seed, base: 0, recoveries: 0, erases: 0, erases_before: 0 }
    }

    fn mount(&mut self, contents: Contents, operations: u64) -> FsResult<TagFs> {
        match contents {
            Contents::Blocks(bytes) => {
                // What the mount itself does is not of the workload: it is counted first, on a copy.
                let probe = Arc::new(PowerCutStore::new(bytes.clone(), u64::MAX));
                drop(TagFs::mount(Box::new(probe.clone()), options()).map_err(failed)?);
                self.base = probe.operations();
                let medium = Arc::new(PowerCutStore::new(bytes, operations.saturating_add(self.base)));
                self.medium = Some(Medium::Blocks(medium.clone()));
                TagFs::mount(Box::new(medium), options()).map_err(failed)
            }
            Contents::Flash(level, device) => {
                let fs = TagFs::mount(open_flash(level, &device)?, options()).map_err(failed)?;
                let medium = Medium::Flash(level, device.clone());
                (self.base, self.erases_before) = (medium.operations(), medium.erases());
                self.medium = Some(medium);
                if operations < u64::MAX {
                    device.cut_after(operations, self.seed ^ operations);
                }
                Ok(fs)
            }
        }
    }

    /// [`start`](Rig::start), of a volume that is known to be one.
    pub fn start_volume(&mut self, operations: u64) -> TagFs {
        self.mount(self.empty.fork(), operations).unwrap()
    }

    /// The medium of the volume that was started, and that was dropped as a crash does.
    pub fn lost(&mut self) -> Medium {
        let medium = self.medium.take().unwrap();
        self.erases += medium.erases() - self.erases_before;
        medium
    }

    /// One of the volumes that the cut of a medium may have left, checked.
    pub fn look(&mut self, cut: &Medium, seed: u64) -> FsResult<TagFs> {
        let after = cut.after_power_cut(seed);
        self.recoveries += 1;
        let report = TagFs::check(after.fork().open()?).map_err(failed)?;
        if let Some(problem) = report.problems.first() {
            let rest = report.problems.len() - 1;
            return Err(FsError::Device(format!("the check finds: {problem} and {rest} more")));
        }
        self.mount(after, u64::MAX)
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
