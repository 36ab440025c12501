//! Small flash in memory, with one grant on it.

#![allow(dead_code, reason = "not every test looks at everything")]

use std::sync::Arc;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{Backend, Grant, GrantRequest, Monitor, MonitorSetup, PolicySetup};
use weft_flash_pages::{PolicyPages, PolicyPagesSetup};
use weft_tags::Options;

/// Name of the grant.
pub const GRANT: &str = "store";

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

/// A device and what a store on it is made with.
pub struct Rig {
    pub device: Arc<OpenChannel>,
    pub setup: PolicyPagesSetup,
}

impl Rig {
    /// 2 channels of 2 LUNs, of 64 blocks of 32 pages each: 32 MiB.
    pub fn new() -> Rig {
        Rig::on(geometry(2, 2, 64, 32))
    }

    pub fn on(geometry: Geometry) -> Rig {
        let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry)).unwrap());
        let level = PolicySetup { stripe: 1, ..PolicyPagesSetup::default().level };
        Rig { device, setup: PolicyPagesSetup { level, ..PolicyPagesSetup::default() } }
    }

    /// The whole device as a new grant.
    pub fn grant(&self) -> Grant {
        let monitor = Monitor::format(self.device.clone(), MonitorSetup::default()).unwrap();
        let luns = u64::from(monitor.free_luns().unwrap());
        let bytes = luns * monitor.lun_bytes() * 9 / 10;
        let request = GrantRequest { name: GRANT.into(), bytes, over_provisioning_permille: 100 };
        monitor.allocate(&request).unwrap()
    }

    pub fn create_policy(&self) -> PolicyPages {
        PolicyPages::create(self.grant(), self.setup).unwrap()
    }

    pub fn open_policy(&self) -> PolicyPages {
        PolicyPages::open(attach(self.device.clone()), self.setup).unwrap()
    }
}

/// The grant as it is found on a device.
pub fn attach(device: Arc<dyn Backend>) -> Grant {
    Monitor::open(device).unwrap().attach(GRANT).unwrap()
}
