//! The monitor and the raw level after power cuts, failed reads and grown bad blocks, on random shapes.
//!
//! Each seed makes a device and sessions: open, with power that may go several times on the way; allocate, release, write,
//! erase, exchange LUNs; lose power. After each opening the grants are those that were acknowledged, no LUN is missing, and
//! each block holds what it was promised to hold. At the end every block takes an erase and a write. `WEFT_CAMPAIGN=1` runs 20,000
//! seeds, otherwise a slice of them; `WEFT_SEED=n` runs one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use support::Random;
use support::flaky::{Flaky, Met, open_in_storm, random_shape, seeds};
use weft_core::Nanos;
use weft_flash::monitor::LevelPolicy;
use weft_flash::{GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
/// Stands for a page whose program was interrupted.
const TORN: u64 = 0;

#[derive(Clone, Debug, PartialEq)]
enum UnderWay {
    Program(u64),
    Erase,
}

#[derive(Clone, Debug, Default)]
struct Block {
    pages: Vec<u64>,
    under_way: Option<UnderWay>,
    /// Its erase was interrupted.
    half: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Allocating(String),
    Releasing(String),
}

struct Run {
    random: Random,
    flaky: Arc<Flaky>,
    /// By name and by block.
    grants: BTreeMap<String, BTreeMap<GrantBlock, Block>>,
    change: Option<Change>,
    version: u64,
    spoiled: u64,
    lost: BTreeSet<u64>,
    wounds: u64,
    names: u64,
    met: Met,
}

struct Open {
    monitor: Arc<Monitor>,
    raw: BTreeMap<String, RawLevel>,
}

fn blocks_of(raw: &RawLevel) -> Vec<GrantBlock> {
    let geometry = raw.geometry();
    let per_lun = geometry.blocks_per_lun;
    let luns = geometry.lun_list();
    luns.into_iter()
        .flat_map(|(channel, lun)| (0..per_lun).map(move |block| GrantBlock { channel, lun, block }))
        .collect()
}

fn open(flaky: &Arc<Flaky>) -> Result<Open, LevelError> {
    let monitor = Monitor::open(flaky.clone())?;
    let attach = |name: String| Ok((name.clone(), RawLevel::new(monitor.attach(&name)?)));
    let names = monitor.grants().into_iter().map(|grant| grant.name);
    let raw = names.map(attach).collect::<Result<_, LevelError>>()?;
    Ok(Open { monitor, raw })
}

impl Run {
    fn verify(&mut self, open: &Open) {
        let found: BTreeSet<String> = open.raw.keys().cloned().collect();
        match self.change.take() {
            Some(Change::Allocating(name)) if found.contains(&name) => {
                let blocks = blocks_of(&open.raw[&name]).into_iter().map(|b| (b, Block::default())).collect();
                self.grants.insert(name, blocks);
            }
            Some(Change::Releasing(name)) if !found.contains(&name) => {
                self.grants.remove(&name);
            }
            _ => {}
        }
        assert_eq!(found, self.grants.keys().cloned().collect());
        if self.flaky.device.bad_blocks().is_empty() {
            let taken: u32 = open.raw.values().map(|raw| raw.geometry().luns()).sum();
            assert_eq!(taken + open.monitor.free_luns().unwrap(), self.flaky.device.shape().luns());
        }
        for (name, blocks) in &mut self.grants {
            let raw = &open.raw[name];
            for (at, block) in blocks {
                let look = raw.look(*at).unwrap();
                let under_way = block.under_way.take();
                let erased = look.erase_incomplete || look.programmed == 0;
                if erased && (under_way == Some(UnderWay::Erase) || block.half) {
                    *block = Block { half: look.erase_incomplete, ..Block::default() };
                    continue;
                }
                assert!(!look.erase_incomplete, "{name} {at}: half erased");
                if let Some(UnderWay::Program(version)) = under_way
                    && look.programmed as usize == block.pages.len() + 1
                {
                    let read = raw.page_read(T, at.page(look.programmed - 1), 0, &mut [], &mut [0; 8]);
                    let torn =
                        matches!(read, Err(LevelError::Unreadable { why, .. }) if why.is_interrupted());
                    block.pages.push(if torn { TORN } else { version });
                }
                assert_eq!(look.programmed as usize, block.pages.len(), "{name} {at}");
                for (page, version) in block.pages.iter().enumerate() {
                    let (mut data, mut oob) = (vec![0; PAGE], [0; 8]);
                    let read = raw.page_read(T, at.page(page as u32), 0, &mut data, &mut oob);
                    match read {
                        Ok(_) => {
                            assert_eq!(u64::from_le_bytes(oob), *version, "{name} {at} page {page}");
                            assert!(data.chunks(8).all(|part| part == version.to_le_bytes()));
                        }
                        Err(LevelError::Unreadable { .. }) if *version == TORN => {}
                        Err(LevelError::Unreadable { .. }) => {
                            self.lost.insert(*version);
                            assert!(self.lost.len() as u64 <= self.spoiled, "{name} {at} page {page}");
                        }
                        Err(other) => panic!("{name} {at} page {page}: {other}"),
                    }
                }
            }
        }
    }

    fn write_or_erase(&mut self, open: &Open, name: &str, at: GrantBlock) -> Result<(), LevelError> {
        let raw = &open.raw[name];
        let full = raw.geometry().pages_per_block as usize;
        self.version += 1;
        let version = self.version;
        let erase = self.random.below(20) == 0;
        let Some(block) = self.grants.get_mut(name).and_then(|blocks| blocks.get_mut(&at)) else {
            return Ok(());
        };
        let done = if block.half || block.pages.len() == full || erase {
            block.under_way = Some(UnderWay::Erase);
            let done = raw.block_erase(T, at);
            if matches!(done, Ok(_) | Err(LevelError::BlockRetired { .. })) {
                *block = Block::default();
            }
            done
        } else {
            block.under_way = Some(UnderWay::Program(version));
            let data = version.to_le_bytes().repeat(PAGE / 8);
            let page = at.page(block.pages.len() as u32);
            let done = raw.page_write(T, page, &data, &version.to_le_bytes());
            match done {
                Ok(_) => block.pages.push(version),
                // The program failed, or that of an earlier page had.
                Err(LevelError::BlockRetired { .. })
                    if raw.look(at)?.programmed as usize > block.pages.len() =>
                {
                    block.pages.push(TORN);
                }
                _ => {}
            }
            done
        };
        match done {
            Err(LevelError::PowerLost) => Err(LevelError::PowerLost),
            Ok(_) | Err(LevelError::BlockRetired { .. }) => {
                block.under_way = None;
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    fn step(&mut self, open: &mut Open) -> Result<(), LevelError> {
        let names: Vec<String> = self.grants.keys().cloned().collect();
        let any = names.get(self.random.below(names.len().max(1) as u64) as usize);
        match (self.random.below(200), any) {
            (0..4, Some(name)) if self.random.below(4) == 0 => {
                open.raw.remove(name);
                self.change = Some(Change::Releasing(name.clone()));
                open.monitor.release(name)?;
                self.change = None;
                self.grants.remove(name);
            }
            (4..8, _) => {
                let free = open.monitor.free_luns()?;
                if free > 0 {
                    self.names += 1;
                    // Of any length, the longest more often than the others.
                    let width = (1 + self.random.below(400) as usize).min(255 - "grant ".len());
                    let name = format!("grant {:0width$}", self.names);
                    let luns = 1 + self.random.below(u64::from(free).min(3));
                    let bytes = luns * open.monitor.lun_bytes();
                    self.change = Some(Change::Allocating(name.clone()));
                    let request = GrantRequest { name: name.clone(), bytes, over_provisioning_permille: 0 };
                    match open.monitor.allocate(&request) {
                        Ok(grant) => {
                            let raw = RawLevel::new(grant);
                            let fresh = |at| {
                                assert_eq!(raw.look(at).unwrap().programmed, 0);
                                (at, Block::default())
                            };
                            self.grants
                                .insert(name.clone(), blocks_of(&raw).into_iter().map(fresh).collect());
                            open.raw.insert(name, raw);
                        }
                        Err(LevelError::NoSpare { .. }) if self.wounds < 2 => {}
                        Err(other) => return Err(other),
                    }
                    self.change = None;
                }
            }
            (8..11, _) => {
                let policy = LevelPolicy { max_over_mean: 1.0001, gap_erases_min: 0, swaps_max: 1 };
                open.monitor.level_wear(policy, T)?;
            }
            (11, _) if self.wounds > 0 => {
                self.wounds -= 1;
                self.flaky.wound(&mut self.random, 0);
            }
            (_, Some(name)) => {
                let blocks = blocks_of(&open.raw[name]);
                // Mostly few blocks, so that they fill and are erased.
                let most = if self.random.below(3) == 0 { blocks.len() } else { 2.min(blocks.len()) };
                let at = blocks[self.random.below(most as u64) as usize];
                self.write_or_erase(open, name, at)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn run(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let spares = if random.below(3) == 0 { 2 } else { 5 };
    let few = random.below(6) as u32;
    let device = random_shape(&mut random, |_, luns, _| 12u32.div_ceil(luns) + 1 + spares + 2 + few);
    let transient = [0, 5, 50, 300][random.below(4) as usize];
    let flaky = Flaky::new(device, transient, random.next());
    drop(Monitor::format(flaky.clone(), MonitorSetup { spares_per_lun: spares }).unwrap());
    // The monitor's log stands two bad blocks.
    let wounds = if random.below(2) == 0 { 2 } else { 0 };
    let spoils = random.below(4) == 0;
    let (grants, lost, met) = (BTreeMap::new(), BTreeSet::new(), Met::default());
    let (change, version, spoiled, names) = (None, 0, 0, 0);
    let mut run = Run { random, flaky, grants, change, version, spoiled, lost, wounds, names, met };
    let sessions = 4 + run.random.below(12);
    for session in 0..=sessions {
        let last = session == sessions;
        let cuts = if last { 0 } else { run.random.below(4) };
        if last {
            run.flaky.heal();
        } else if spoils && session > 0 && run.random.below(2) == 0 {
            run.spoiled += u64::from(run.flaky.spoil(&mut run.random));
        }
        let (flaky, mut random, mut met) = (run.flaky.clone(), run.random.clone(), run.met);
        let mut opened = open_in_storm(&flaky, &mut random, cuts, &mut met, || open(&flaky));
        (run.random, run.met) = (random, met);
        run.verify(&opened);
        let most = 4 << run.random.below(7);
        let after = run.random.below(most);
        if !last {
            flaky.device.cut_after(after, run.random.next());
        }
        for _ in 0..400 {
            match run.step(&mut opened) {
                Ok(()) => {}
                Err(LevelError::PowerLost) => {
                    run.met.cuts += 1;
                    break;
                }
                Err(other) => panic!("refused: {other}"),
            }
        }
        drop(opened);
        flaky.device.power_on();
    }
    let opened = open(&run.flaky).unwrap();
    run.verify(&opened);
    finish(&opened, &run.flaky);
    run.flaky.device.verify_identity().unwrap();
    run.met.failed_blocks = run.flaky.device.bad_blocks().len() as u64;
    run.met
}

/// Every block takes an erase and writes again, but those whose flash failed and that have no spare.
fn finish(open: &Open, flaky: &Flaky) {
    let mut refused = 0;
    for raw in open.raw.values() {
        for at in blocks_of(raw) {
            let erased = raw.block_erase(T, at);
            match erased.and_then(|_| raw.page_write(T, at.page(0), &[7; PAGE], &[7; 8])) {
                Ok(_) => {}
                Err(LevelError::BlockRetired { .. }) => refused += 1,
                Err(other) => panic!("{at} is refused at the end: {other}"),
            }
        }
    }
    let bad = flaky.device.bad_blocks().len();
    assert!(refused <= bad, "{refused} blocks are refused, and {bad} are bad");
}

#[test]
fn grants_and_what_is_on_them_are_there_after_cuts_failed_reads_and_bad_blocks() {
    seeds(600, 20_000, run);
}
