//! The policy level after power cuts, failed reads and grown bad blocks, on random shapes.
//!
//! Each seed makes a device, one range or two, and sessions: open, with power that may go several times on the way; work;
//! lose power. Each opening is asked for with other options. A model knows what each page was promised to be. After each opening a page is what was written last and
//! acknowledged, or what was under way; a trim that was not flushed may be undone, to the last acknowledged write and never
//! further. At the end every page takes a write again and the erase identity holds. In runs of their own the host fails reads,
//! programs, erases and syncs, once, several times or for a while, and the work goes on: a page is then as it was or as it was to be,
//! and maps, owners and units agree after each step. `WEFT_CAMPAIGN=1` runs 20,000 seeds for each mapping, otherwise a slice of
//! them; `WEFT_SEED=n` runs one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use support::Random;
use support::flaky::{
    Flaky, Met, Trouble, is_of_the_host, open_in_storm, random_shape, seeds, until_power_goes,
};
use weft_core::{Nanos, StreamId, Tag};
use weft_device::gc::VictimPolicy;
use weft_flash::{
    GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping, RangePolicy,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
const LOST: u64 = u64::MAX;

fn page_of(page: u64, version: u64) -> Vec<u8> {
    let mut data = vec![version as u8; PAGE];
    data[..8].copy_from_slice(&page.to_le_bytes());
    data[8..16].copy_from_slice(&version.to_le_bytes());
    data[PAGE - 8..].copy_from_slice(&version.to_le_bytes());
    data
}

fn version_of(page: u64, data: &[u8]) -> u64 {
    if data.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
    assert!(data == page_of(page, version), "page {page} holds something else");
    version
}

/// What is known of a page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// What a read gets now.
    now: u64,
    /// What it may get instead: an error of the host has ended a write or a trim.
    instead: BTreeSet<u64>,
    /// What it may be after a cut.
    after_cut: BTreeSet<u64>,
}

struct Run {
    random: Random,
    flaky: Arc<Flaky>,
    setup: PolicySetup,
    ranges: Vec<RangePolicy>,
    pages: Vec<(u64, Page)>,
    version: u64,
    /// Pages that were spoiled so far, and logical pages that were lost by it.
    spoiled: u64,
    lost: BTreeSet<u64>,
    trims: bool,
    unit_pages: u64,
    wounds: u64,
    /// The host fails calls.
    troubles: bool,
    met: Met,
    /// A change of a range that was not answered.
    changing: Option<(usize, RangePolicy)>,
}

impl Run {
    fn open(&self) -> Result<PolicyLevel, LevelError> {
        let monitor = Monitor::open(self.flaky.clone())?;
        PolicyLevel::open(monitor.attach("ftl")?, self.setup)
    }

    /// The next opening is asked for with another stripe, which does not matter, and another number of streams.
    fn choose_setup(&mut self) {
        self.setup.stripe = self.random.below(6) as u32;
        self.setup.streams = [1, 2, 3, 4, 9, 32][self.random.below(6) as usize];
    }

    fn read(&mut self, level: &PolicyLevel, at: usize) -> Result<u64, LevelError> {
        let page = self.pages[at].0;
        let mut data = vec![0; PAGE];
        match level.ftl_read(T, page, &mut data) {
            Ok(_) => Ok(version_of(page, &data)),
            Err(error @ LevelError::Unreadable { .. }) => {
                self.lost.insert(page);
                assert!(self.lost.len() as u64 <= self.spoiled, "{error}");
                Ok(LOST)
            }
            Err(other) => Err(other),
        }
    }

    /// A range is another one: pages beyond its end are gone, new ones are zeros.
    fn changed(&mut self, number: usize, policy: RangePolicy) {
        let (start, end) = (policy.start, policy.start + policy.pages);
        let old_end = start + self.ranges[number].pages;
        self.pages.retain(|(page, _)| !(end..old_end).contains(page));
        self.lost.retain(|page| !(end..old_end).contains(page));
        let zero = Page { after_cut: BTreeSet::from([0]), ..Page::default() };
        self.pages.extend((old_end..end).map(|page| (page, zero.clone())));
        self.pages.sort_by_key(|(page, _)| *page);
        self.ranges[number] = policy;
    }

    fn change(&mut self, level: &PolicyLevel) -> Result<(), LevelError> {
        let number = self.random.below(self.ranges.len() as u64) as usize;
        let old = self.ranges[number].clone();
        let units = 1 + self.random.below(6);
        let pages = match old.mapping {
            RangeMapping::Page => units * self.unit_pages - self.random.below(self.unit_pages),
            RangeMapping::Block => units * self.unit_pages,
        };
        let policy = RangePolicy {
            pages: if self.random.below(3) == 0 { old.pages } else { pages },
            gc: VictimPolicy::ALL[self.random.below(5) as usize],
            over_provisioning_permille: old.over_provisioning_permille.max(self.random.below(300) as u32),
            ..old
        };
        self.changing = Some((number, policy.clone()));
        let changed = level.change(&policy);
        match changed {
            Ok(()) => self.changed(number, policy),
            Err(LevelError::NoRoom { .. }) => {}
            Err(LevelError::PowerLost) => return Err(LevelError::PowerLost),
            Err(error) if self.troubles && is_of_the_host(&error) => {
                self.changing = None;
                // The range is another one, or nothing was changed.
                if level.ranges()[number].0 == policy {
                    self.changed(number, policy);
                }
                return Err(error);
            }
            Err(other) => panic!("change refused: {other}"),
        }
        self.changing = None;
        level.verify()
    }

    /// After an opening: each page is what it may be.
    fn verify(&mut self, level: &PolicyLevel) {
        level.verify().unwrap();
        let found: Vec<RangePolicy> = level.ranges().into_iter().map(|(policy, _)| policy).collect();
        assert_eq!(found.len(), self.ranges.len());
        if let Some((number, policy)) = self.changing.take()
            && found[number] == policy
        {
            self.changed(number, policy);
        }
        assert_eq!(found, self.ranges);
        for at in 0..self.pages.len() {
            let found = self.read(level, at).unwrap();
            if found == LOST {
                self.pages[at].1.now = LOST;
                continue;
            }
            let (page, known) = &mut self.pages[at];
            assert!(known.after_cut.contains(&found), "page {page}: {found}, not of {known:?}");
            *known = Page { now: found, after_cut: BTreeSet::from([found]), ..Page::default() };
        }
    }

    fn write(&mut self, level: &PolicyLevel, at: usize, count: usize) -> Result<(), LevelError> {
        let first = self.pages[at].0;
        let same = |page: &&mut (u64, Page)| page.0 < first + count as u64;
        self.version += 1;
        let version = self.version;
        let mut data = Vec::new();
        for (page, known) in self.pages[at..].iter_mut().take_while(same) {
            known.after_cut.insert(version);
            data.extend(page_of(*page, version));
        }
        let stream = StreamId(self.random.below(4) as u16);
        let written = level.ftl_write(T, first, &data, Tag { stream, ..Tag::default() });
        if written.is_err() {
            let named = self.pages[at..].iter_mut().take_while(same);
            named.for_each(|(_, known)| known.instead.extend([version]));
        }
        written?;
        for (page, known) in self.pages[at..].iter_mut().take_while(|page| page.0 < first + count as u64) {
            *known = Page { now: version, after_cut: BTreeSet::from([version]), ..Page::default() };
            self.lost.remove(page);
        }
        Ok(())
    }

    fn trim(&mut self, level: &PolicyLevel, at: usize) -> Result<(), LevelError> {
        let page = self.pages[at].0;
        let range = self.ranges.iter().find(|range| (range.start..range.start + range.pages).contains(&page));
        let range = range.unwrap().clone();
        let left = range.start + range.pages - page;
        let (first, count) = match (range.mapping, self.random.below(3)) {
            // A unit's worth of pages.
            (RangeMapping::Block, 0) => {
                let first = page - (page - range.start) % self.unit_pages;
                (first, self.unit_pages.min(range.start + range.pages - first))
            }
            (RangeMapping::Block, 1) => (page, left.min(1 + self.random.below(2 * self.unit_pages))),
            _ => (page, left.min(1 + self.random.below(3))),
        };
        let named = first..first + count;
        for (_, known) in self.pages.iter_mut().filter(|(page, _)| named.contains(page)) {
            known.after_cut.insert(0);
        }
        let trimmed = level.trim(T, first, count);
        for (_, known) in self.pages.iter_mut().filter(|(page, _)| named.contains(page)) {
            if trimmed.is_ok() {
                (known.now, known.instead) = (0, BTreeSet::new());
            } else {
                known.instead.insert(0);
            }
        }
        trimmed?;
        self.lost.retain(|page| !named.contains(page));
        Ok(())
    }

    fn flush(&mut self, level: &PolicyLevel) -> Result<(), LevelError> {
        level.flush(T)?;
        for (_, known) in self.pages.iter_mut().filter(|(_, known)| known.now != LOST) {
            known.after_cut = known.instead.clone();
            known.after_cut.insert(known.now);
        }
        Ok(())
    }

    /// Reads a page, which is what was written last.
    fn check(&mut self, level: &PolicyLevel, at: usize) -> Result<(), LevelError> {
        let found = self.read(level, at)?;
        let (page, known) = &mut self.pages[at];
        if known.instead.contains(&found) {
            known.now = found;
        }
        known.instead.clear();
        assert!(
            known.now == LOST || found == LOST || found == known.now,
            "page {page}: {found}, not {}",
            known.now
        );
        Ok(())
    }

    /// Takes a step while the host may fail calls.
    fn step_in_trouble(&mut self, level: &PolicyLevel, cursor: &mut usize) -> Result<(), LevelError> {
        if self.random.below(20) == 0 {
            self.flaky.trouble(Trouble::random(&mut self.random));
        }
        let stepped = match self.random.below(40) {
            0 => (0..self.pages.len()).try_for_each(|at| self.check(level, at)),
            _ => self.step(level, cursor),
        };
        match stepped {
            Err(error) if is_of_the_host(&error) => {
                self.met.host_errors += 1;
                if self.random.below(6) == 0 {
                    self.flaky.calm();
                }
            }
            other => other?,
        }
        level.verify()
    }

    fn step(&mut self, level: &PolicyLevel, cursor: &mut usize) -> Result<(), LevelError> {
        let count = self.pages.len() as u64;
        let at = self.random.below(count) as usize;
        match self.random.below(100) {
            0..50 => self.write(level, at, 1),
            50..60 => {
                let range = self.ranges.iter().find(|range| range.start + range.pages > self.pages[at].0);
                let range = range.unwrap();
                let left = range.start + range.pages - self.pages[at].0;
                let count = 1 + self.random.below(left.min(6));
                self.write(level, at, count as usize)
            }
            60..85 => {
                *cursor = (*cursor + 1) % count as usize;
                self.write(level, *cursor, 1)
            }
            85..92 => self.check(level, at),
            92..96 if self.trims => self.trim(level, at),
            96..98 if self.trims => self.flush(level),
            98 => level.checkpoint(T).map(|_| ()),
            99 if self.random.below(2) == 0 => self.change(level),
            _ if self.wounds > 0 => {
                self.wounds -= 1;
                // The monitor's log has a campaign of its own.
                let log = 12u32.div_ceil(self.flaky.device.shape().luns());
                self.flaky.wound(&mut self.random, log);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Works until power goes; true when it went.
    fn session(&mut self, level: &PolicyLevel, steps: u64) -> bool {
        let mut cursor = self.random.below(self.pages.len() as u64) as usize;
        until_power_goes(steps, || {
            if self.troubles {
                self.step_in_trouble(level, &mut cursor)
            } else {
                self.step(level, &mut cursor)
            }
        })
    }
}

fn run(seed: u64, mappings: &[RangeMapping], troubles: bool) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let few_spares = random.below(3) == 0;
    let spares = if few_spares { 2 } else { 6 };
    let device = random_shape(&mut random, |pages, luns, planes| {
        let monitor_log = 12u32.div_ceil(luns) + 4;
        let level_log = (24u32.div_ceil(pages.min(12)) * 2 + 5).div_ceil(luns);
        // A unit has a block in each plane.
        monitor_log + spares + planes * (level_log + 36u32.div_ceil(luns) + 4)
    });
    let transient = [0, 5, 50, 300][random.below(4) as usize];
    let flaky = Flaky::new(device, transient, random.next());
    let monitor = Monitor::format(flaky.clone(), MonitorSetup { spares_per_lun: spares }).unwrap();
    let luns = u64::from(flaky.device.shape().luns());
    let bytes = luns * monitor.lun_bytes();
    let request = GrantRequest { name: "ftl".into(), bytes, over_provisioning_permille: 0 };
    let grant = monitor.allocate(&request).unwrap();
    let setup = PolicySetup {
        stripe: if luns % 2 == 0 && random.below(2) == 0 { 2 } else { 1 },
        streams: 1 + random.below(3) as u32,
        checkpoint_pages: [30, 100, 1000][random.below(3) as usize],
    };
    let level = PolicyLevel::create(grant, setup).unwrap();
    let unit_pages = u64::from(level.unit_pages());
    let mut ranges = Vec::new();
    for (number, mapping) in mappings.iter().enumerate() {
        let policy = RangePolicy {
            start: 10_000 * number as u64,
            pages: unit_pages * (2 + random.below(4)) - random.below(unit_pages),
            mapping: *mapping,
            gc: VictimPolicy::ALL[random.below(5) as usize],
            // A unit that fails for want of spares needs one more; a block-mapped range has it.
            over_provisioning_permille: match mapping {
                RangeMapping::Page if few_spares => 1000,
                _ => [0, 70, 250][random.below(3) as usize],
            },
        };
        level.ftl_ioctl(&policy).unwrap();
        ranges.push(policy);
    }
    drop(level);
    drop(monitor);
    let pages = ranges.iter().flat_map(|range| range.start..range.start + range.pages);
    let zero = Page { after_cut: BTreeSet::from([0]), ..Page::default() };
    let pages = pages.map(|page| (page, zero.clone())).collect();
    let trims = random.below(2) == 0;
    let wounds = if random.below(2) == 0 && !troubles { 3 } else { 0 };
    let spoils = random.below(4) == 0 && !troubles;
    let met = Met::default();
    let (version, lost) = (0, BTreeSet::new());
    let mut run = Run {
        random,
        flaky,
        setup,
        ranges,
        pages,
        version,
        spoiled: 0,
        lost,
        trims,
        unit_pages,
        wounds,
        troubles,
        met,
        changing: None,
    };
    // Few long sessions, or many short ones: a cut again and again while the same is under way.
    let short = run.random.below(3) == 0;
    let sessions = if short { 30 } else { 4 + run.random.below(12) };
    for session in 0..sessions {
        let cuts = run.random.below(4);
        if spoils && session > 0 && run.random.below(2) == 0 {
            let tries = 1 + run.random.below(3);
            for _ in 0..tries {
                run.spoiled += u64::from(run.flaky.spoil(&mut run.random));
            }
        }
        run.choose_setup();
        let (flaky, mut random, mut met) = (run.flaky.clone(), run.random.clone(), run.met);
        if troubles && random.below(4) == 0 {
            flaky.trouble(Trouble::random(&mut random));
        }
        let level = open_in_storm(&flaky, &mut random, cuts, &mut met, || run.open());
        flaky.calm();
        (run.random, run.met) = (random, met);
        run.verify(&level);
        let most = if short { 8 } else { 4 << run.random.below(7) };
        let after = run.random.below(most);
        // Or the application ends, with power on.
        if !troubles || run.random.below(2) == 0 {
            flaky.device.cut_after(after, run.random.next());
        }
        run.met.cuts += u64::from(run.session(&level, 400));
        drop(level);
        flaky.calm();
        flaky.device.power_on();
    }
    run.flaky.heal();
    let level = run.open().unwrap_or_else(|error| panic!("not opened at the end: {error}"));
    run.verify(&level);
    for _ in 0..2 {
        for at in 0..run.pages.len() {
            run.write(&level, at, 1).unwrap_or_else(|error| panic!("refused at the end: {error}"));
        }
    }
    let level = level.close(T).map(drop).and_then(|()| run.open()).unwrap();
    run.verify(&level);
    run.flaky.device.verify_identity().unwrap();
    run.met.failed_blocks = run.flaky.device.bad_blocks().len() as u64;
    run.met
}

#[test]
fn a_page_mapped_range_keeps_what_it_acknowledged_and_takes_writes_again() {
    seeds(300, 20_000, |seed| run(seed, &[RangeMapping::Page], false));
}

#[test]
fn a_block_mapped_range_keeps_what_it_acknowledged_and_takes_writes_again() {
    seeds(300, 20_000, |seed| run(seed, &[RangeMapping::Block], false));
}

#[test]
fn ranges_of_both_mappings_side_by_side_keep_what_they_acknowledged() {
    seeds(100, 5_000, |seed| run(seed, &[RangeMapping::Block, RangeMapping::Page], false));
}

#[test]
fn a_page_mapped_range_goes_on_after_errors_of_the_host_with_all_that_it_acknowledged() {
    seeds(60, 20_000, |seed| run(seed, &[RangeMapping::Page], true));
}

#[test]
fn a_block_mapped_range_goes_on_after_errors_of_the_host_with_all_that_it_acknowledged() {
    seeds(60, 20_000, |seed| run(seed, &[RangeMapping::Block], true));
}
