//! The job of `docs/how-to/choose-your-level.md` at the policy level: keep the newest value of each key, over a restart.
//!
//! A key is a logical page. Mapping and cleaning are chosen in one call, and that is all.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use weft_core::{Nanos, Tag};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{
    GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping, RangePolicy,
};

const KEYS: u64 = 100;
const ROUNDS: u64 = 200;

fn main() -> Result<(), LevelError> {
    let device = Arc::new(OpenChannel::memory(&FlashSetup::new(Geometry::bbssd().with_size(1 << 30)))?);
    let monitor = Monitor::format(device.clone(), MonitorSetup::default())?;
    let request = GrantRequest { name: "values".into(), bytes: 16 << 20, over_provisioning_permille: 250 };
    let level = PolicyLevel::create(monitor.allocate(&request)?, PolicySetup::default())?;
    level.ftl_ioctl(&RangePolicy {
        start: 0,
        pages: KEYS,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 250,
    })?;
    let page_bytes = level.geometry().page_bytes as usize;
    let mut now = Nanos(0);
    for number in 0..KEYS * ROUNDS {
        let data = vec![(number / KEYS) as u8; page_bytes];
        now = level.ftl_write(now, number % KEYS, &data, Tag::default())?.done;
    }
    level.flush(now)?;
    drop(level);

    // The restart: everything is opened again.
    drop(monitor);
    let monitor = Monitor::open(device.clone())?;
    let level = PolicyLevel::open(monitor.attach("values")?, PolicySetup::default())?;
    let mut data = vec![0; page_bytes];
    for key in 0..KEYS {
        level.ftl_read(now, key, &mut data)?;
        assert!(data.iter().all(|byte| *byte == (ROUNDS - 1) as u8));
    }
    let counters = device.counters();
    println!(
        "policy level: {} values written, {} pages programmed, {} blocks erased; all {KEYS} are there after a restart",
        KEYS * ROUNDS,
        counters.pages_programmed,
        counters.blocks_erased
    );
    Ok(())
}
