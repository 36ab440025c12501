//! Small flash in memory with one grant on it, and a store's medium on it at either level.

#![allow(dead_code, reason = "not every test looks at everything")]

use std::fmt;
use std::sync::Arc;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{Backend, Grant, GrantRequest, Monitor, MonitorSetup, PolicySetup};
use weft_flash_pages::{
    FlashPagesError, FunctionPages, FunctionPagesSetup, PolicyPages, PolicyPagesSetup, StreamChoice,
};
use weft_tags::{Options, PageStore};

/// Name of the grant.
pub const GRANT: &str = "store";

/// Whether the long campaigns are asked for.
pub fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some()
}

pub fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, huge_pages: false, ..Options::default() }
}

/// A geometry of these counts, with pages of 4 KiB.
pub fn geometry(channels: u32, luns: u32, blocks: u32, pages: u32) -> Geometry {
    let geometry = Geometry {
        channels,
        luns_per_channel: luns,
        planes: 1,
        pages_per_block: pages,
        page_bytes: 4096,
        ..Geometry::bbssd()
    };
    let bytes = u64::from(channels * luns) * u64::from(blocks) * u64::from(pages) * 4096;
    geometry.with_size(bytes)
}

pub fn device(geometry: Geometry) -> Arc<OpenChannel> {
    Arc::new(OpenChannel::memory(&FlashSetup::new(geometry)).unwrap())
}

/// The whole device as a new grant, of which so many thousandths on top of the rest are over-provisioning.
pub fn allocate(device: Arc<dyn Backend>, over_provisioning_permille: u32) -> Grant {
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let all = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let bytes = all * 1000 / (1000 + u64::from(over_provisioning_permille)) / 4096 * 4096;
    let request = GrantRequest { name: GRANT.into(), bytes, over_provisioning_permille };
    monitor.allocate(&request).unwrap()
}

/// The grant as it is found on a device.
pub fn attach(device: Arc<dyn Backend>) -> Result<Grant, FlashPagesError> {
    Ok(Monitor::open(device)?.attach(GRANT)?)
}

/// A medium of a store at one of the levels.
#[derive(Clone)]
pub enum Medium {
    Policy(Arc<PolicyPages>),
    Function(Arc<FunctionPages>),
}

/// Which level, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Level {
    Policy,
    Function,
}

/// What a test runs with, in turns: in one stream pages that die at different times lie together, and the cleaner has more to move.
pub fn streams(seed: u64) -> StreamChoice {
    if seed.is_multiple_of(2) { StreamChoice::One } else { StreamChoice::ByTag }
}

pub const LEVELS: [Level; 2] = [Level::Policy, Level::Function];

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} level")
    }
}

fn policy_setup(streams: StreamChoice) -> PolicyPagesSetup {
    // Units of one block, so that small flash has many.
    let level = PolicySetup { stripe: 1, ..PolicyPagesSetup::default().level };
    PolicyPagesSetup { level, streams, ..PolicyPagesSetup::default() }
}

fn function_setup(streams: StreamChoice) -> FunctionPagesSetup {
    FunctionPagesSetup { streams, ..FunctionPagesSetup::default() }
}

impl Level {
    pub fn create(self, grant: Grant, streams: StreamChoice) -> Result<Medium, FlashPagesError> {
        Ok(match self {
            Level::Policy => Medium::Policy(PolicyPages::create(grant, policy_setup(streams))?.into()),
            Level::Function => {
                Medium::Function(FunctionPages::create(grant, function_setup(streams))?.into())
            }
        })
    }

    pub fn open(self, grant: Grant, streams: StreamChoice) -> Result<Medium, FlashPagesError> {
        Ok(match self {
            Level::Policy => Medium::Policy(PolicyPages::open(grant, policy_setup(streams))?.into()),
            Level::Function => Medium::Function(FunctionPages::open(grant, function_setup(streams))?.into()),
        })
    }

    /// On all of a device, with a tenth of over-provisioning.
    pub fn create_on(self, device: Arc<dyn Backend>, streams: StreamChoice) -> Medium {
        self.create(allocate(device, 100), streams).unwrap()
    }

    pub fn open_on(self, device: Arc<dyn Backend>, streams: StreamChoice) -> Result<Medium, FlashPagesError> {
        self.open(attach(device)?, streams)
    }
}

impl Medium {
    pub fn boxed(&self) -> Box<dyn PageStore> {
        match self {
            Medium::Policy(pages) => Box::new(pages.clone()),
            Medium::Function(pages) => Box::new(pages.clone()),
        }
    }

    pub fn shared(&self) -> Arc<dyn PageStore> {
        match self {
            Medium::Policy(pages) => pages.clone(),
            Medium::Function(pages) => pages.clone(),
        }
    }

    /// Map, owners and blocks agree.
    pub fn verify(&self) {
        match self {
            Medium::Policy(pages) => pages.level().verify().unwrap(),
            Medium::Function(pages) => pages.verify().unwrap(),
        }
    }

    /// Units or blocks that were erased.
    pub fn erased(&self) -> u64 {
        match self {
            Medium::Policy(pages) => pages.counts().units_erased,
            Medium::Function(pages) => pages.counts().erases,
        }
    }

    /// Pages that the store has written, and that the cleaner has moved.
    pub fn written_and_moved(&self) -> (u64, u64) {
        match self {
            Medium::Policy(pages) => (pages.counts().written, pages.counts().copied),
            Medium::Function(pages) => (pages.counts().written, pages.counts().relocated),
        }
    }
}
