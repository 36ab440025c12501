//! The monitor's log has room for all that the monitor accepts: grants with the longest names on every LUN, whatever wear leveling,
//! releases and power cuts come after.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::Random;
use weft_core::Nanos;
use weft_device::nand::OpenChannel;
use weft_flash::monitor::LevelPolicy;
use weft_flash::{GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
const LONGEST: usize = 255;

struct Rig {
    device: Arc<OpenChannel>,
    monitor: Arc<Monitor>,
    random: Random,
    /// By name, with the number that its first page has.
    raw: BTreeMap<String, (RawLevel, u64)>,
    names: u64,
}

const FIRST: GrantBlock = GrantBlock { channel: 0, lun: 0, block: 0 };

impl Rig {
    fn new(device: OpenChannel) -> Rig {
        let device = Arc::new(device);
        let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        Rig { device, monitor, random: Random(7), raw: BTreeMap::new(), names: 0 }
    }

    /// A grant of one LUN with a name of so many bytes.
    fn allocate(&mut self, name_bytes: usize) -> Result<(), LevelError> {
        self.names += 1;
        let name = format!("{:0name_bytes$}", self.names);
        let request = GrantRequest { name: name.clone(), bytes: 1, over_provisioning_permille: 0 };
        let raw = RawLevel::new(self.monitor.allocate(&request)?);
        raw.page_write(T, FIRST.page(0), &[7; PAGE], &self.names.to_le_bytes())?;
        self.raw.insert(name, (raw, self.names));
        Ok(())
    }

    /// Grants on all LUNs.
    fn fill(&mut self) {
        while self.monitor.free_luns().unwrap() > 0 {
            self.allocate(LONGEST).unwrap();
        }
    }

    fn any(&mut self) -> String {
        let at = self.random.below(self.raw.len() as u64) as usize;
        self.raw.keys().nth(at).unwrap().clone()
    }

    /// One tenant erases, and its LUN changes places with another one.
    fn wear(&mut self) -> Result<u32, LevelError> {
        let name = self.any();
        let raw = &self.raw[&name].0;
        for block in (1..raw.geometry().blocks_per_lun).cycle().take(20) {
            raw.block_erase(T, GrantBlock { block, ..FIRST })?;
        }
        let policy = LevelPolicy { max_over_mean: 1.0, gap_erases_min: 0, swaps_max: 1 };
        Ok(self.monitor.level_wear(policy, T)?.swaps)
    }

    fn replace_one(&mut self) -> Result<(), LevelError> {
        let name = self.any();
        self.raw.remove(&name);
        self.monitor.release(&name)?;
        self.allocate(LONGEST)
    }

    /// Opens the device again; grants that were under way are there or not.
    fn reopen(&mut self) {
        self.device.power_on();
        let known: BTreeMap<String, u64> =
            std::mem::take(&mut self.raw).into_iter().map(|(name, (_, number))| (name, number)).collect();
        self.monitor = Monitor::open(self.device.clone()).unwrap();
        for info in self.monitor.grants() {
            let raw = RawLevel::new(self.monitor.attach(&info.name).unwrap());
            let mut oob = [0; 8];
            let number = info.name.parse().unwrap();
            if known.contains_key(&info.name) {
                raw.page_read(T, FIRST.page(0), 0, &mut [], &mut oob).unwrap();
                assert_eq!(u64::from_le_bytes(oob), number);
            } else {
                raw.block_erase(T, FIRST).unwrap();
                raw.page_write(T, FIRST.page(0), &[7; PAGE], &u64::to_le_bytes(number)).unwrap();
            }
            self.raw.insert(info.name, (raw, number));
        }
        assert!(known.keys().all(|name| self.raw.contains_key(name)), "a grant is gone");
    }
}

/// Each LUN is a grant with the longest name. First the log is filled with deltas alone, each swap with so many that it has gone round; then
/// grants come and go, which are snapshots, and power is cut.
fn goes_on(channels: u32, luns: u32, pages: u32) {
    const BLOCKS: u32 = 8;
    let mut rig = Rig::new(support::device(channels, luns, BLOCKS, pages));
    rig.fill();
    assert_eq!(rig.raw.len() as u32, channels * luns);
    // A block of the log on each LUN, and at least 5 deltas a swap.
    let round_the_log = channels * luns * pages / 5;
    let mut swaps = 0;
    while swaps < round_the_log {
        swaps += rig.wear().unwrap_or_else(|error| panic!("after {swaps} swaps: {error}"));
    }
    for round in 0..20 {
        rig.replace_one().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let after = rig.random.below(60);
        rig.device.cut_after(after, round);
        let cut = loop {
            let done = if rig.random.below(6) == 0 { rig.replace_one() } else { rig.wear().map(drop) };
            if let Err(error) = done {
                break error;
            }
        };
        assert!(matches!(cut, LevelError::PowerLost), "round {round}: {cut}");
        rig.reopen();
        rig.fill();
    }
    rig.reopen();
    for name in rig.raw.keys().cloned().collect::<Vec<_>>() {
        rig.raw.remove(&name);
        rig.monitor.release(&name).unwrap();
    }
}

#[test]
fn a_small_device_with_the_longest_names_on_all_luns_goes_on() {
    [3, 16, 64].into_iter().for_each(|pages| goes_on(4, 4, pages));
}

#[test]
fn a_middling_device_with_the_longest_names_on_all_luns_goes_on() {
    goes_on(4, 64, 3);
    goes_on(4, 64, 16);
    if support::campaign() {
        goes_on(4, 64, 64);
    }
}

#[test]
fn a_large_device_with_the_longest_names_on_all_luns_goes_on() {
    goes_on(8, 128, 3);
    if support::campaign() {
        goes_on(8, 128, 16);
        goes_on(8, 128, 64);
    }
}

/// Of this shape the log has as many blocks as names of the usual length need, and not one more.
#[test]
fn a_grant_whose_records_do_not_fit_is_refused_before_anything_is_written_and_all_others_go_on() {
    let mut rig = Rig::new(support::device(4, 8, 197, 1));
    let refused = loop {
        let before = rig.device.counters();
        if let Err(error) = rig.allocate(LONGEST) {
            assert_eq!(rig.device.counters(), before);
            break error;
        }
    };
    assert!(matches!(&refused, LevelError::BadRequest(why) if why.contains("name")), "{refused}");
    assert!(rig.raw.len() > 16 && rig.monitor.free_luns().unwrap() > 0);
    for round in 0..10 {
        rig.wear().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    rig.allocate(12).unwrap();
    rig.reopen();
    let name = rig.any();
    rig.raw.remove(&name);
    rig.monitor.release(&name).unwrap();
    rig.allocate(LONGEST.min(name.len())).unwrap();
}
