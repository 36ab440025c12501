//! The page map on flash whose power goes again and again, a few operations apart: whatever the victim policy, it takes
//! writes again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use weft_device::gc::{GcError, MapperSetup, Media, Outcome, PageMapper, RestoredBlock, VictimPolicy};

const BLOCKS: u32 = 13;
const SLOTS: u32 = 4;
const PAGES: u32 = 30;

#[derive(Debug)]
struct PowerLost;

/// A slot that was programmed: the page and its number; none when the program was interrupted.
type Slot = Option<(u32, u64)>;

#[derive(Default)]
struct Flash {
    blocks: Vec<Vec<Slot>>,
    fronts: Vec<usize>,
    begun: Vec<u64>,
    sequence: u64,
    /// Operations until power goes.
    left: u64,
}

impl Flash {
    fn power(&mut self) -> Result<(), PowerLost> {
        self.left = self.left.checked_sub(1).ok_or(PowerLost)?;
        Ok(())
    }

    /// The map that the slots make; partly filled blocks are gone on with, the newest of each front.
    fn restore(&self, setup: &MapperSetup) -> PageMapper {
        let mut newest: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let mut open: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        let mut found = vec![RestoredBlock::default(); self.blocks.len()];
        for (number, block) in self.blocks.iter().enumerate() {
            found[number].filled = block.len() as u32;
            found[number].front = self.fronts[number];
            if !block.is_empty() && block.len() < SLOTS as usize {
                let last = open.entry(self.fronts[number]).or_default();
                *last = (*last).max((self.begun[number], number));
            }
            for (place, slot) in block.iter().enumerate() {
                let Some((page, sequence)) = slot else { continue };
                let entry = newest.entry(*page).or_default();
                *entry = (*entry).max((*sequence, number as u32 * SLOTS + place as u32));
            }
        }
        open.values().for_each(|(_, number)| found[*number].open = true);
        let valid = newest.iter().map(|(page, (_, slot))| (*slot, *page));
        PageMapper::restore::<PowerLost>(setup.clone(), &found, valid).unwrap()
    }
}

impl Media for Flash {
    type Error = PowerLost;

    fn program(&mut self, to: u32, page: u32, _: Option<u32>, front: usize) -> Result<Outcome, PowerLost> {
        let (number, place) = ((to / SLOTS) as usize, (to % SLOTS) as usize);
        assert_eq!(self.blocks[number].len(), place);
        self.sequence += 1;
        if place == 0 {
            (self.begun[number], self.fronts[number]) = (self.sequence, front);
        }
        let powered = self.power();
        self.blocks[number].push(powered.is_ok().then_some((page, self.sequence)));
        powered.map(|()| Outcome::Done)
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, PowerLost> {
        self.power()?;
        self.blocks[block as usize].clear();
        Ok(Outcome::Done)
    }
}

#[test]
fn a_page_map_takes_writes_again_after_cuts_one_after_the_other() {
    for policy in VictimPolicy::ALL {
        for seed in 1..200_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut below = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % bound
            };
            let setup = MapperSetup::single(BLOCKS, SLOTS, PAGES, policy, true);
            let blocks = BLOCKS as usize;
            let mut flash = Flash {
                blocks: vec![Vec::new(); blocks],
                fronts: vec![0; blocks],
                begun: vec![0; blocks],
                ..Flash::default()
            };
            for cut in 0..60 {
                let mut map = flash.restore(&setup);
                // At first long enough to fill the flash.
                flash.left = if cut == 0 { 200 } else { below(8) };
                loop {
                    match map.write(&mut flash, below(u64::from(PAGES)) as u32, 0) {
                        Ok(_) => {}
                        Err(GcError::Media(PowerLost)) => break,
                        Err(other) => panic!("{policy:?}, seed {seed}, cut {cut}: {other:?}"),
                    }
                }
                map.verify().unwrap();
            }
        }
    }
}
