//! The raw level after power cuts, failed reads and grown bad blocks, on random shapes.
//!
//! Each seed makes a device and sessions: open, with power that may go several times on the way; write, erase and read pages
//! of several blocks at once; lose power. A model knows what each block was promised to hold. After each opening every
//! acknowledged page is in its place, a page that was not acknowledged holds what it was to hold or nothing that can be
//! read, and a block whose erase was not answered is as it was or says that it has to be erased. At the end every block that
//! is good takes an erase and writes. `WEFT_CAMPAIGN=1` runs 20,000 seeds, otherwise a slice of them; `WEFT_SEED=n` runs one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use support::Random;
use support::flaky::{Flaky, Met, open_in_storm, random_shape, seeds, until_power_goes};
use weft_core::{Nanos, Tag};
use weft_flash::raw::{RawRead, RawWrite};
use weft_flash::{GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
/// Stands for a page whose program was interrupted or failed.
const TORN: u64 = 0;

#[derive(Clone, Default, Debug)]
struct Block {
    /// By page: its version.
    pages: Vec<u64>,
    /// Writes that were not answered, in order.
    under_way: Vec<u64>,
    /// An erase was not answered.
    erasing: bool,
    /// Its flash failed and nothing took its place.
    retired: bool,
    /// An erase of it failed: nothing that it held was promised from then on.
    given_up: bool,
}

struct Run {
    random: Random,
    flaky: Arc<Flaky>,
    places: Vec<GrantBlock>,
    /// As the places.
    blocks: Vec<Block>,
    version: u64,
    spoiled: u64,
    lost: BTreeSet<u64>,
    wounds: u64,
    met: Met,
}

fn open(flaky: &Arc<Flaky>) -> Result<RawLevel, LevelError> {
    Ok(RawLevel::new(Monitor::open(flaky.clone())?.attach("raw")?))
}

fn data_of(place: GrantBlock, page: u32, version: u64) -> Vec<u8> {
    let address = u64::from(place.channel) << 48 | u64::from(place.lun) << 40 | u64::from(place.block) << 16;
    let fields = [version, address | u64::from(page)].map(u64::to_le_bytes);
    fields.concat().into_iter().cycle().take(PAGE).collect()
}

impl Run {
    /// What a page holds: its version, or [`TORN`] when it cannot be read.
    fn read(&self, level: &RawLevel, at: usize, page: u32) -> Result<u64, LevelError> {
        let (mut data, mut oob) = (vec![0; PAGE], [0; 8]);
        let place = self.places[at];
        match level.page_read(T, place.page(page), 0, &mut data, &mut oob) {
            Ok(_) => {
                let version = u64::from_le_bytes(oob);
                assert!(data == data_of(place, page, version), "{place} page {page} holds something else");
                Ok(version)
            }
            Err(LevelError::Unreadable { .. }) => Ok(TORN),
            Err(other) => Err(other),
        }
    }

    /// A page that was promised.
    fn check(&mut self, at: usize, page: u32, found: u64) {
        let wanted = self.blocks[at].pages[page as usize];
        if found == wanted {
            return;
        }
        // What could not be read once may be read later.
        let place = self.places[at];
        assert!(found == TORN || wanted == TORN, "{place} page {page}: {found}, not {wanted}");
        if found == TORN {
            self.lost.insert(wanted);
            assert!(self.lost.len() as u64 <= self.spoiled, "{place} page {page}: {wanted} is lost");
        }
    }

    /// After an opening: the blocks hold what they were promised to.
    fn verify(&mut self, level: &RawLevel) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            let look = level.look(place).unwrap();
            let block = &mut self.blocks[at];
            let failed_before = std::mem::replace(&mut block.retired, look.retired);
            if std::mem::take(&mut block.erasing) {
                let as_it_was = !look.erase_incomplete && look.programmed >= block.pages.len() as u32;
                if !as_it_was || look.programmed == 0 {
                    (block.pages, block.under_way) = Default::default();
                    block.given_up |= look.retired;
                    if look.erase_incomplete {
                        assert!(matches!(
                            level.page_write(T, place.page(0), &[0; PAGE], &[]),
                            Err(LevelError::EraseIncomplete { .. } | LevelError::BlockRetired { .. })
                        ));
                    }
                    self.erase(level, &[at]).unwrap();
                    continue;
                }
            }
            let block = &mut self.blocks[at];
            assert!(!look.erase_incomplete, "{place}: nobody erases it");
            if block.given_up {
                continue;
            }
            let (promised, most) = (block.pages.len(), block.pages.len() + block.under_way.len());
            let most = most + usize::from(failed_before);
            assert!(
                (promised..=most).contains(&(look.programmed as usize)),
                "{place}: {} pages are programmed, {block:?}",
                look.programmed
            );
            let under_way = std::mem::take(&mut block.under_way);
            for page in 0..look.programmed {
                let found = self.read(level, at, page).unwrap();
                match (page as usize).checked_sub(promised) {
                    None => self.check(at, page, found),
                    Some(number) => {
                        assert!(
                            found == TORN || Some(&found) == under_way.get(number),
                            "{place} page {page}"
                        );
                        self.blocks[at].pages.push(found);
                    }
                }
            }
        }
    }

    /// Some blocks, neighbours most often: they lie in different planes.
    fn some(&mut self, most: u64) -> Vec<usize> {
        let count = 1 + self.random.below(most) as usize;
        let first = self.random.below(self.places.len() as u64) as usize;
        if self.random.below(3) > 0 {
            return (first..(first + count).min(self.places.len())).collect();
        }
        let other = self.random.below(self.places.len() as u64) as usize;
        BTreeSet::from([first, other]).into_iter().collect()
    }

    /// Writes the next pages of blocks, in turns as rows are written.
    fn write(&mut self, level: &RawLevel) -> Result<(), LevelError> {
        let pages_per_block = level.geometry().pages_per_block as usize;
        let rounds = 1 + self.random.below(2) as usize;
        let chosen = self.some(6);
        let mut writes = Vec::new();
        for round in 0..rounds {
            for at in &chosen {
                let block = &self.blocks[*at];
                let page = block.pages.len() + round;
                if !block.retired && !block.given_up && page < pages_per_block {
                    self.version += 1;
                    writes.push((
                        *at,
                        page as u32,
                        self.version,
                        data_of(self.places[*at], page as u32, self.version),
                    ));
                }
            }
        }
        if writes.is_empty() {
            return Ok(());
        }
        let oobs: Vec<[u8; 8]> = writes.iter().map(|(_, _, version, _)| version.to_le_bytes()).collect();
        let vector: Vec<RawWrite> = writes
            .iter()
            .zip(&oobs)
            .map(|((at, page, _, data), oob)| RawWrite {
                page: self.places[*at].page(*page),
                data,
                oob,
                tag: Tag::default(),
            })
            .collect();
        let results = level.page_write_vector(T, &vector)?;
        let mut power_lost = Ok(());
        for ((at, page, version, _), result) in writes.iter().zip(results) {
            let block = &mut self.blocks[*at];
            match result {
                Ok(_) => {
                    assert_eq!(block.pages.len() as u32, *page);
                    block.pages.push(*version);
                }
                Err(LevelError::BlockRetired { .. }) => {
                    block.retired = true;
                    // Its flash failed at its first page: there was nothing to keep.
                    block.given_up |= block.pages.is_empty();
                }
                Err(LevelError::OutOfOrder { .. }) if block.retired => {}
                Err(LevelError::PowerLost) => {
                    block.under_way.push(*version);
                    power_lost = Err(LevelError::PowerLost);
                }
                Err(other) => return Err(other),
            }
        }
        power_lost
    }

    fn erase(&mut self, level: &RawLevel, chosen: &[usize]) -> Result<(), LevelError> {
        let places: Vec<GrantBlock> = chosen.iter().map(|at| self.places[*at]).collect();
        let mut power_lost = Ok(());
        for (at, result) in chosen.iter().zip(level.block_erase_vector(T, &places)?) {
            let block = &mut self.blocks[*at];
            match result {
                Ok(_) => *block = Block::default(),
                Err(LevelError::BlockRetired { .. }) => (block.retired, block.given_up) = (true, true),
                Err(LevelError::PowerLost) => {
                    block.erasing = true;
                    power_lost = Err(LevelError::PowerLost);
                }
                Err(other) => return Err(other),
            }
        }
        power_lost
    }

    fn read_some(&mut self, level: &RawLevel) -> Result<(), LevelError> {
        let mut pages = Vec::new();
        for at in self.some(6) {
            let block = &self.blocks[at];
            if !block.given_up && !block.pages.is_empty() {
                pages.push((at, self.random.below(block.pages.len() as u64) as u32));
            }
        }
        if pages.is_empty() {
            return Ok(());
        }
        let mut data = vec![vec![0; PAGE]; pages.len()];
        let mut oobs = vec![[0; 8]; pages.len()];
        let parts = pages.iter().zip(&mut data).zip(&mut oobs);
        let mut vector: Vec<RawRead> = parts
            .map(|(((at, page), data), oob)| RawRead {
                page: self.places[*at].page(*page),
                offset: 0,
                data,
                oob,
            })
            .collect();
        let results = level.page_read_vector(T, &mut vector)?;
        for (number, result) in results.into_iter().enumerate() {
            let (at, page) = pages[number];
            let found = match result {
                Ok(_) => {
                    let version = u64::from_le_bytes(oobs[number]);
                    assert!(data[number] == data_of(self.places[at], page, version));
                    version
                }
                Err(LevelError::Unreadable { .. }) => TORN,
                Err(other) => return Err(other),
            };
            self.check(at, page, found);
        }
        Ok(())
    }

    fn step(&mut self, level: &RawLevel) -> Result<(), LevelError> {
        match self.random.below(100) {
            0..70 => self.write(level),
            70..80 => {
                let chosen = self.some(4);
                self.erase(level, &chosen)
            }
            80..99 => self.read_some(level),
            _ if self.wounds > 0 => {
                self.wounds -= 1;
                let log = 12u32.div_ceil(self.flaky.device.shape().luns());
                self.flaky.wound(&mut self.random, log);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn run(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let spares = if random.below(3) == 0 { 2 } else { 5 };
    let few = random.below(8) as u32;
    let device = random_shape(&mut random, |_, luns, _| 12u32.div_ceil(luns) + 1 + spares + 3 + few);
    let transient = [0, 5, 50, 300][random.below(4) as usize];
    let flaky = Flaky::new(device, transient, random.next());
    let monitor = Monitor::format(flaky.clone(), MonitorSetup { spares_per_lun: spares }).unwrap();
    let bytes = u64::from(flaky.device.shape().luns()) * monitor.lun_bytes();
    let request = GrantRequest { name: "raw".into(), bytes, over_provisioning_permille: 0 };
    let geometry = monitor.allocate(&request).unwrap().geometry().clone();
    drop(monitor);
    let on_lun =
        |(channel, lun)| (0..geometry.blocks_per_lun).map(move |block| GrantBlock { channel, lun, block });
    let places: Vec<GrantBlock> = geometry.lun_list().into_iter().flat_map(on_lun).collect();
    let blocks = vec![Block::default(); places.len()];
    let wounds = if random.below(2) == 0 { 6 } else { 0 };
    let spoils = random.below(4) == 0;
    let (version, spoiled, lost, met) = (0, 0, BTreeSet::new(), Met::default());
    let mut run = Run { random, flaky, places, blocks, version, spoiled, lost, wounds, met };
    let short = run.random.below(3) == 0;
    let sessions = if short { 30 } else { 4 + run.random.below(12) };
    for session in 0..sessions {
        let cuts = run.random.below(4);
        if spoils && session > 0 && run.random.below(2) == 0 {
            run.spoiled += u64::from(run.flaky.spoil(&mut run.random));
        }
        let (flaky, mut random, mut met) = (run.flaky.clone(), run.random.clone(), run.met);
        let level = open_in_storm(&flaky, &mut random, cuts, &mut met, || open(&flaky));
        (run.random, run.met) = (random, met);
        run.verify(&level);
        let most = if short { 8 } else { 4 << run.random.below(7) };
        let after = run.random.below(most);
        flaky.device.cut_after(after, run.random.next());
        run.met.cuts += u64::from(until_power_goes(400, || run.step(&level)));
        drop(level);
        flaky.device.power_on();
    }
    run.flaky.heal();
    let level = open(&run.flaky).unwrap_or_else(|error| panic!("not opened at the end: {error}"));
    run.verify(&level);
    let all: Vec<usize> = (0..run.places.len()).collect();
    all.chunks(8).for_each(|some| run.erase(&level, some).unwrap());
    all.iter().for_each(|_| run.write(&level).unwrap());
    run.flaky.device.verify_identity().unwrap();
    run.met.failed_blocks = run.flaky.device.bad_blocks().len() as u64;
    run.met
}

#[test]
fn blocks_hold_what_they_were_promised_to_and_take_writes_again() {
    seeds(600, 20_000, run);
}
