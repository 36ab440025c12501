//! A store's blocks on the policy level.
//!
//! One page-mapped range holds all blocks: block `n` of the store is page `n` of the range. What lives for different times lies apart since it
//! has different streams. The medium has a fixed size, all of the grant but its over-provisioning, as a block device has.
//!
//! A page is durable when its write has returned; a sync makes that hold for a crash of the host, too, and records the trims of before.
//! Trims that power takes back bring back what was in a free block, and a store that is opened trims all that is free.

use crate::clock::Clock;
use crate::error::{FlashPagesError, beyond_end, to_io};
use crate::stream::StreamChoice;
use std::io::{self, IoSlice};
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_flash::policy::RangeCounts;
use weft_flash::{Grant, GrantGeometry, LevelError, PolicyLevel, PolicySetup, RangeMapping, RangePolicy};
use weft_tags::{PAGE_BYTES, PageStore};

/// First page of the range.
const START: u64 = 0;

/// Units that a stripe which nobody asked for leaves: a dozen are open or kept free.
const UNITS_MIN: u32 = 128;

/// How a store lies on the policy level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicyPagesSetup {
    /// The level's own: LUNs of a unit (0: as many as leave 128 units), streams that have units of their own, how often it writes a
    /// checkpoint.
    pub level: PolicySetup,
    /// Which unit is cleaned next.
    pub gc: VictimPolicy,
    /// Which stream a page goes to.
    pub streams: StreamChoice,
}

impl Default for PolicyPagesSetup {
    fn default() -> PolicyPagesSetup {
        // Checkpoints, the journal, pages of files of some classes.
        let level = PolicySetup { streams: 6, ..PolicySetup::default() };
        PolicyPagesSetup { level, gc: VictimPolicy::Greedy, streams: StreamChoice::ByTag }
    }
}

/// A store's blocks on a grant at the policy level.
#[derive(Debug)]
pub struct PolicyPages {
    level: PolicyLevel,
    blocks: u64,
    streams: StreamChoice,
    clock: Clock,
}

impl PolicyPages {
    /// Begins anew on a grant. What an earlier use at this level or the raw one left on it is forgotten; over-provisioning is that of the grant.
    ///
    /// # Errors
    /// [`FlashPagesError::PageSize`], [`FlashPagesError::TooSmall`]; [`FlashPagesError::Level`], also when the grant holds data of
    /// the function level.
    pub fn create(grant: Grant, setup: PolicyPagesSetup) -> Result<PolicyPages, FlashPagesError> {
        check_pages(&grant)?;
        let name = grant.name().to_string();
        let over_provisioning_permille = grant.geometry().over_provisioning_permille;
        let clock = Clock::at(grant.now()?);
        let stripe = stripe_of(grant.geometry(), setup.level.stripe);
        let level = PolicyLevel::create(grant, PolicySetup { stripe, ..setup.level })?;
        let policy = RangePolicy {
            start: START,
            pages: 1,
            mapping: RangeMapping::Page,
            gc: setup.gc,
            over_provisioning_permille,
        };
        let pages = level.pages_max(&policy);
        if pages == 0 {
            let what = format!(
                "{} units of {} pages are less than open units, reserve and over-provisioning take",
                level.free_units(),
                level.unit_pages()
            );
            return Err(FlashPagesError::TooSmall { grant: name, what });
        }
        level.ftl_ioctl(&RangePolicy { pages, ..policy })?;
        Ok(PolicyPages { level, blocks: pages, streams: setup.streams, clock })
    }

    /// Opens what [`PolicyPages::create`] made.
    ///
    /// # Errors
    /// [`FlashPagesError::NotAStore`], [`FlashPagesError::PageSize`], [`FlashPagesError::Level`].
    pub fn open(grant: Grant, setup: PolicyPagesSetup) -> Result<PolicyPages, FlashPagesError> {
        check_pages(&grant)?;
        let name = grant.name().to_string();
        let clock = Clock::at(grant.now()?);
        let level = match PolicyLevel::open(grant, setup.level) {
            Err(error @ LevelError::NotUsed { .. }) => {
                let what = error.to_string();
                return Err(FlashPagesError::NotAStore { grant: name, what });
            }
            opened => opened?,
        };
        let ranges = level.ranges();
        let blocks = match &ranges[..] {
            [(policy, _)] if policy.start == START && policy.mapping == RangeMapping::Page => policy.pages,
            _ => {
                let count = ranges.len();
                let what = format!("it has {count} ranges, not one from page {START} on that is page-mapped");
                return Err(FlashPagesError::NotAStore { grant: name, what });
            }
        };
        Ok(PolicyPages { level, blocks, streams: setup.streams, clock })
    }

    /// What the range has counted since the level was opened.
    pub fn counts(&self) -> RangeCounts {
        self.level.ranges().first().map(|(_, counts)| *counts).unwrap_or_default()
    }

    /// The tag that a block was written with; one that says nothing when it was not, or is free.
    ///
    /// # Errors
    /// Those of [`PolicyLevel::tag_of`].
    pub fn tag_of(&self, block: u64) -> Result<Tag, LevelError> {
        self.level.tag_of(self.clock.now(), START + block)
    }

    /// The level below.
    pub fn level(&self) -> &PolicyLevel {
        &self.level
    }

    /// The moment up to which the store has waited, in the device's virtual time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn check(&self, block: u64, blocks: u64) -> io::Result<()> {
        let end = block.checked_add(blocks).filter(|end| *end <= self.blocks);
        end.map(drop).ok_or_else(|| beyond_end(block))
    }
}

/// LUNs of a unit: those that were asked for, or as many as leave enough units for open ones and a reserve to be a small part.
fn stripe_of(geometry: &GrantGeometry, asked: u32) -> u32 {
    let luns = geometry.luns();
    let units = |stripe: &u32| geometry.blocks() / (stripe * geometry.planes);
    let fits = |stripe: &u32| luns.is_multiple_of(*stripe) && units(stripe) >= UNITS_MIN;
    match asked {
        0 => (1..=luns).rev().find(fits).unwrap_or(1),
        asked => asked,
    }
}

/// Refuses flash whose pages are not blocks of a store.
pub(crate) fn check_pages(grant: &Grant) -> Result<(), FlashPagesError> {
    check_page_bytes(grant.geometry().page_bytes)
}

pub(crate) fn check_page_bytes(page_bytes: u32) -> Result<(), FlashPagesError> {
    match page_bytes {
        page_bytes if page_bytes as usize == PAGE_BYTES => Ok(()),
        page_bytes => Err(FlashPagesError::PageSize { page_bytes }),
    }
}

impl PageStore for PolicyPages {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_many(&mut [(block, out)])
    }

    /// All are issued at once.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        let issued = self.clock.now();
        for (block, out) in reads {
            self.check(*block, (out.len() / PAGE_BYTES) as u64)?;
            let done = self.level.ftl_read(issued, START + *block, out).map_err(to_io)?;
            self.clock.waited(done.done);
        }
        Ok(())
    }

    fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.check(block, (bytes / PAGE_BYTES) as u64)?;
        let (tag, issued) = (self.streams.place(tag), self.clock.now());
        let mut page = START + block;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let done = self.level.ftl_write(issued, page, part, tag).map_err(to_io)?;
            self.clock.will_have_written(done.done);
            page += (part.len() / PAGE_BYTES) as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let end = self.level.flush(self.clock.written()).map_err(to_io)?;
        self.clock.waited(end);
        Ok(())
    }

    fn discard(&self, block: u64, blocks: u64) {
        self.free(&[(block, blocks)]);
    }

    fn uses_free(&self) -> bool {
        true
    }

    fn free(&self, runs: &[(u64, u64)]) {
        for (block, blocks) in merged(runs) {
            // The cleaner moves these pages then, which costs time and nothing else.
            if let Err(error) = self.level.trim(self.clock.now(), START + block, blocks) {
                tracing::warn!(block, blocks, %error, "blocks that are free were not trimmed");
                return;
            }
        }
    }

    fn overwrites(&self) -> bool {
        false
    }

    fn erase(&self, runs: &[(u64, u64)]) -> io::Result<()> {
        let runs: Vec<_> = runs.iter().map(|(block, blocks)| (START + block, *blocks)).collect();
        let end = self.level.erase_stale(self.clock.written(), &runs).map_err(to_io)?;
        self.clock.waited(end);
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        if blocks <= self.blocks {
            return Ok(());
        }
        let what = format!("the range on the flash has {} blocks, and {blocks} are wanted", self.blocks);
        Err(io::Error::new(io::ErrorKind::StorageFull, what))
    }
}

/// Runs of blocks in their order, those that touch as one: a trim each.
fn merged(runs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted: Vec<(u64, u64)> = runs.iter().copied().filter(|(_, blocks)| *blocks > 0).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for (block, blocks) in sorted {
        match merged.last_mut() {
            Some((first, count)) if *first + *count == block => *count += blocks,
            _ => merged.push((block, blocks)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn runs_that_touch_are_one_trim() {
        assert_eq!(merged(&[(9, 1), (4, 2), (6, 3), (20, 0), (30, 5), (11, 1)]), [(4, 6), (11, 1), (30, 5)]);
        assert_eq!(merged(&[]), []);
    }
}
