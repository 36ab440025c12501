//! What tenants do to each other: nothing to write amplification and latency on LUNs of their own; and what global wear
//! leveling does about the wear that a busy one leaves, and at what cost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use support::{Random, device, shadow};
use weft_core::{Nanos, StreamId, Tag};
use weft_device::gc::VictimPolicy;
use weft_flash::monitor::{LevelPolicy, Spread};
use weft_flash::{
    GrantBlock, GrantRequest, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping, RangePolicy,
    RawLevel,
};

/// A tenant of the policy level that writes random pages, with a clock of its own.
struct Tenant {
    level: PolicyLevel,
    pages: u64,
    random: Random,
    now: Nanos,
    latency_ns: Vec<u64>,
    think_ns: u64,
}

impl Tenant {
    fn new(monitor: &Arc<Monitor>, name: &str, luns: u64, permille: u32, think_ns: u64) -> Tenant {
        let flash = luns * monitor.lun_bytes();
        let bytes = flash * 1000 / (1000 + u64::from(permille));
        let request = GrantRequest { name: name.into(), bytes, over_provisioning_permille: permille };
        let grant = monitor.allocate(&request).unwrap();
        assert_eq!(u64::from(grant.geometry().luns()), luns);
        let setup = PolicySetup { stripe: 1, streams: 1, checkpoint_pages: 1 << 40 };
        let level = PolicyLevel::create(grant, setup).unwrap();
        // All units that are left, less what is open or in reserve.
        let usable = u64::from(level.free_units() - 5) * u64::from(level.unit_pages());
        let pages = usable * 1000 / (1000 + u64::from(permille));
        let policy = RangePolicy {
            start: 0,
            pages,
            mapping: RangeMapping::Page,
            gc: VictimPolicy::Greedy,
            over_provisioning_permille: permille,
        };
        level.ftl_ioctl(&policy).unwrap();
        let seed = 7 + u64::from(permille);
        Tenant { level, pages, random: Random(seed), now: Nanos(0), latency_ns: Vec::new(), think_ns }
    }

    fn write(&mut self, page: u64) {
        let done = self.level.ftl_write(self.now, page, &[0; 4096], Tag::default()).unwrap();
        self.latency_ns.push(done.done.0 - self.now.0);
        self.now = Nanos(done.done.0 + self.think_ns);
    }

    fn step(&mut self) {
        let page = self.random.below(self.pages);
        self.write(page);
    }

    fn waf(&self) -> f64 {
        self.level.ranges()[0].1.waf()
    }
}

/// What the quiet tenant gets: write amplification and the 99th and 99.9th percentile of latency in microseconds.
#[derive(Debug)]
struct Quiet {
    waf: f64,
    p99_us: f64,
    p999_us: f64,
}

fn quiet_tenant(blocks: u32, pages_per_block: u32, hammered: bool) -> Quiet {
    let device = Arc::new(shadow(4, 2, blocks, pages_per_block));
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let mut quiet = Tenant::new(&monitor, "quiet", 4, 250, 400_000);
    let mut loud = Tenant::new(&monitor, "loud", 4, 70, 0);
    (0..quiet.pages).for_each(|page| quiet.write(page));
    (0..loud.pages).for_each(|page| loud.write(page));
    let start = quiet.now.max(loud.now);
    (quiet.now, loud.now, quiet.latency_ns) = (start, start, Vec::new());
    for _ in 0..4 * quiet.pages {
        while hammered && loud.now <= quiet.now {
            loud.step();
        }
        quiet.step();
    }
    assert!(!hammered || loud.waf() > 2.0, "the loud tenant's flash is hardly at work: {}", loud.waf());
    device.verify_identity().unwrap();
    quiet.latency_ns.sort_unstable();
    let percentile = |permille| quiet.latency_ns[quiet.latency_ns.len() * permille / 1000] as f64 / 1000.0;
    Quiet { waf: quiet.waf(), p99_us: percentile(990), p999_us: percentile(999) }
}

/// Each tenant has one LUN of each channel. What a cleaning transfers reaches far ahead of the other tenant's clock: the
/// more pages a block has, the more transfers, between which the channel has to find the gaps.
#[test]
fn a_hammering_neighbour_changes_neither_write_amplification_nor_p99_whatever_the_block_size() {
    for (blocks, pages_per_block) in [(160, 8), (160, 32), (120, 64), (60, 256)] {
        let alone = quiet_tenant(blocks, pages_per_block, false);
        let hammered = quiet_tenant(blocks, pages_per_block, true);
        println!(
            "blocks of {pages_per_block} pages: alone {alone:?}, beside a hammering tenant {hammered:?}"
        );
        for (now, before) in
            [(hammered.waf, alone.waf), (hammered.p99_us, alone.p99_us), (hammered.p999_us, alone.p999_us)]
        {
            assert!((now / before - 1.0).abs() <= 0.05, "{pages_per_block} pages: {alone:?} {hammered:?}");
        }
    }
}

fn block(lun: u32, block: u32) -> GrantBlock {
    GrantBlock { channel: lun % 4, lun: lun / 4, block }
}

/// Erases and fills blocks of a raw tenant, one after the other, until it has written so many pages.
fn fill(raw: &RawLevel, luns: u32, cursor: &mut u32, pages: u64) {
    let geometry = raw.geometry().clone();
    let mut written = 0;
    while written < pages {
        let number = *cursor % (luns * geometry.blocks_per_lun);
        *cursor += 1;
        let at = block(number % luns, number / luns);
        raw.block_erase(Nanos(0), at).unwrap();
        for page in 0..geometry.pages_per_block {
            raw.page_write(Nanos(0), at.page(page), &[], &[]).unwrap();
        }
        written += u64::from(geometry.pages_per_block);
    }
}

#[test]
fn global_wear_leveling_keeps_luns_within_a_tenth_of_the_mean_after_a_hundred_device_writes() {
    let spread = |leveled: bool| {
        let device = Arc::new(shadow(4, 2, 40, 16));
        let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        let half = 4 * monitor.lun_bytes();
        let grant = |name: &str| {
            let request = GrantRequest { name: name.into(), bytes: half, over_provisioning_permille: 0 };
            RawLevel::new(monitor.allocate(&request).unwrap())
        };
        let (hot, cold) = (grant("hot"), grant("cold"));
        let device_pages = device.shape().pages();
        let (mut hot_at, mut cold_at) = (0, 0);
        fill(&cold, 4, &mut cold_at, device_pages / 2);
        let (mut swaps, mut copied) = (0, 0);
        for _ in 0..100 {
            // Nineteen writes of twenty are the hot tenant's.
            fill(&hot, 4, &mut hot_at, device_pages * 19 / 20);
            fill(&cold, 4, &mut cold_at, device_pages / 20);
            if leveled {
                let policy = LevelPolicy { max_over_mean: 1.04, gap_erases_min: 14, swaps_max: 4 };
                let report = monitor.level_wear(policy, device.now()).unwrap();
                (swaps, copied) = (swaps + report.swaps, copied + report.pages_copied);
            }
        }
        device.verify_identity().unwrap();
        let erases: Vec<u64> = monitor.wear().unwrap().iter().map(|lun| lun.erases).collect();
        let mean = erases.iter().sum::<u64>() as f64 / erases.len() as f64;
        let spread = Spread { mean, max: *erases.iter().max().unwrap(), min: *erases.iter().min().unwrap() };
        (spread.max_over_mean(), swaps, copied as f64 / (100 * device_pages) as f64)
    };
    let (without, with) = (spread(false), spread(true));
    println!(
        "max/mean of LUN erases after 100 device writes: {:.2} without, {:.3} with {} swaps, which copied {:.2} % of what \
         was written",
        without.0,
        with.0,
        with.1,
        with.2 * 100.0
    );
    assert!(without.0 > 1.5, "{without:?}");
    assert!(with.0 <= 1.1 && with.2 < 0.1, "{with:?}");
}

#[test]
fn tags_that_tell_short_lives_from_long_ones_lower_write_amplification() {
    let waf = |tagged: bool| {
        let device = Arc::new(shadow(2, 1, 80, 32));
        let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        let bytes = 2 * monitor.lun_bytes();
        let request = GrantRequest { name: "a".into(), bytes, over_provisioning_permille: 0 };
        let setup = PolicySetup { stripe: 1, streams: 2, checkpoint_pages: 1 << 40 };
        let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), setup).unwrap();
        let pages = u64::from(level.free_units() - 6) * 32 * 1000 / 1125;
        let (mapping, gc) = (RangeMapping::Page, VictimPolicy::Greedy);
        level
            .ftl_ioctl(&RangePolicy { start: 0, pages, mapping, gc, over_provisioning_permille: 125 })
            .unwrap();
        // Two logs that go round: one is rewritten nine times as often as the other.
        let mut random = Random(3);
        let short = pages / 3;
        let mut at = [0, short];
        for _ in 0..20 * pages {
            let number = usize::from(random.below(10) == 9);
            let page = at[number];
            at[number] += 1;
            if at[number] == [short, pages][number] {
                at[number] = [0, short][number];
            }
            let stream = StreamId(if tagged { number as u16 } else { 0 });
            level.ftl_write(Nanos(0), page, &[0; 4096], Tag { stream, ..Tag::default() }).unwrap();
        }
        level.verify().unwrap();
        device.verify_identity().unwrap();
        level.ranges()[0].1.waf()
    };
    let (untagged, tagged) = (waf(false), waf(true));
    println!("two logs at 12.5 % over-provisioning: WAF {untagged:.2} untagged, {tagged:.2} tagged");
    assert!(tagged < 1.1 && untagged > tagged + 0.1, "{tagged} of {untagged}");
}

#[test]
fn a_block_mapped_range_that_is_rewritten_in_order_copies_nothing_and_one_written_at_random_does() {
    let device = Arc::new(device(2, 1, 24, 8));
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let request =
        GrantRequest { name: "a".into(), bytes: 2 * monitor.lun_bytes(), over_provisioning_permille: 0 };
    let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), PolicySetup::default()).unwrap();
    let pages = 6 * u64::from(level.unit_pages());
    level
        .ftl_ioctl(&RangePolicy {
            start: 0,
            pages,
            mapping: RangeMapping::Block,
            gc: VictimPolicy::Fifo,
            over_provisioning_permille: 0,
        })
        .unwrap();
    for round in 0..10u8 {
        for page in 0..pages {
            level.ftl_write(Nanos(0), page, &[round; 4096], Tag::default()).unwrap();
        }
    }
    let (_, counts) = level.ranges()[0].clone();
    assert_eq!((counts.copied, counts.waf()), (0, 1.0));
    let mut random = Random(1);
    (0..200).for_each(|_| {
        let page = random.below(pages);
        level.ftl_write(Nanos(0), page, &[99; 4096], Tag::default()).unwrap();
    });
    assert!(level.ranges()[0].1.copied > 0);
    level.verify().unwrap();
    device.verify_identity().unwrap();
}
