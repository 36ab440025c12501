//! The policy level: logical pages, and a translation layer whose mapping and cleaning the application chooses, for each
//! logical range apart.
//!
//! The calls are those of Prism-SSD's user-policy level (ICDCS 2019, section IV): [`ftl_ioctl`], [`ftl_read`],
//! [`ftl_write`]; [`trim`], [`flush`] and tags come on top.
//!
//! ```text
//!  logical pages   [ range 0: page-mapped, greedy ][ range 1: block-mapped, fifo ]   nothing   [ range 2 ... ]
//!  units           [log][ of range 0 .......... ][ of range 1 ...... ][ free ....................... ]
//!  unit            one erase block on each of `stripe` LUNs; its slots go round them
//! ```
//!
//! - A **page-mapped** range writes anywhere and cleans ([`weft_device::gc::PageMapper`]). Writes of different tags go
//!   to different open units, and what the cleaner moves goes to one of its own.
//! - A **block-mapped** range keeps a unit's worth of logical pages in one unit. It needs next to no map and no cleaning
//!   when whole blocks are rewritten in order, and copies much when they are not.
//!
//! **Durable.** A page is durable when [`ftl_write`] has returned. A trim is durable after [`flush`]; before that a cut may bring
//! back what was written last, never anything older. The map is in
//! checkpoints and, since the last one, in the out-of-band bytes of the pages ([format](../../../docs/formats/flash-levels.md));
//! [`PolicyLevel::open`] puts the two together.
//!
//! **Locks.** One lock for the whole level: its calls follow each other. The flash works in parallel all the same, in
//! virtual time: what several calls issue at one moment on different LUNs overlaps, and the cleaner issues all copies of a
//! unit at once. A write is over when its own pages are programmed; it feels the cleaner on the LUNs that that keeps busy.
//!
//! [`ftl_ioctl`]: PolicyLevel::ftl_ioctl
//! [`ftl_read`]: PolicyLevel::ftl_read
//! [`ftl_write`]: PolicyLevel::ftl_write
//! [`trim`]: PolicyLevel::trim
//! [`flush`]: PolicyLevel::flush

mod block;
mod checkpoint;
mod page;
mod recover;
mod stream;
mod units;

use crate::address::GrantGeometry;
use crate::error::LevelError;
use crate::grant::Grant;
use crate::log::{RecordLog, Unread};
use block::BlockRange;
use page::{Halt, PageRange};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use units::{Flash, Note, UnitLog};
use weft_core::{Nanos, Tag};
use weft_device::gc::{GcError, VictimPolicy};
use weft_device::nand::Done;

/// Most ranges of a grant.
pub const RANGES_MAX: usize = 1024;
/// Trims that wait for a flush before they are recorded anyway.
const TRIMS_PENDING_MAX: usize = 1024;

/// How a logical range is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RangeMapping {
    /// Page by page.
    Page,
    /// Unit by unit.
    Block,
}

/// How a logical range is to be kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangePolicy {
    /// First logical page.
    pub start: u64,
    /// Logical pages.
    pub pages: u64,
    /// How they are mapped.
    pub mapping: RangeMapping,
    /// Which unit is cleaned next; for a block-mapped range, which rewritten unit is completed next.
    pub gc: VictimPolicy,
    /// Flash on top of the pages, in thousandths of them. A few units more are taken for what is being written.
    pub over_provisioning_permille: u32,
}

/// How a grant is used at the policy level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicySetup {
    /// LUNs that a unit lies on; a divisor of the grant's LUNs. 0 = the largest one up to 8.
    pub stripe: u32,
    /// Open units for new data of page-mapped ranges: so many kinds of tags are kept apart. 1 to 32.
    pub streams: u32,
    /// Pages programmed from one checkpoint to the next. 0 = a quarter of the grant.
    pub checkpoint_pages: u64,
}

impl Default for PolicySetup {
    fn default() -> PolicySetup {
        PolicySetup { stripe: 0, streams: 4, checkpoint_pages: 0 }
    }
}

/// What a range has counted since the level was opened, in pages.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct RangeCounts {
    /// Written by the application.
    pub written: u64,
    /// Copied by the cleaner.
    pub copied: u64,
    /// Programmed with nothing, so that a page behind them could be written: of block-mapped ranges.
    pub holes: u64,
    /// Trimmed.
    pub trimmed: u64,
    /// Units erased.
    pub units_erased: u64,
}

impl RangeCounts {
    /// Write amplification: pages programmed over pages written; 1 when nothing was written.
    pub fn waf(&self) -> f64 {
        if self.written == 0 {
            return 1.0;
        }
        (self.written + self.copied + self.holes) as f64 / self.written as f64
    }
}

#[derive(Debug)]
enum Kind {
    Page(PageRange),
    Block(BlockRange),
}

#[derive(Debug)]
struct Range {
    policy: RangePolicy,
    /// Units of the range, as its map numbers them.
    units: Vec<u32>,
    kind: Kind,
}

/// A trim that has not been recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trim {
    range: u32,
    /// First page, counted from the range's start.
    first: u64,
    pages: u64,
    /// Pages written later are not meant.
    sequence: u64,
}

#[derive(Debug)]
struct State {
    ranges: Vec<Range>,
    /// Units of no range, last first.
    free: Vec<u32>,
    trims: Vec<Trim>,
    log: RecordLog,
    flash: Flash,
    since_checkpoint: u64,
}

/// A grant at the policy level. Threads share it by reference.
#[derive(Debug)]
pub struct PolicyLevel {
    setup: PolicySetup,
    state: Mutex<State>,
}

impl PolicyLevel {
    /// Begins anew on a grant: what an earlier use left on it is forgotten.
    pub fn create(grant: Grant, setup: PolicySetup) -> Result<PolicyLevel, LevelError> {
        let (setup, flash) = prepare(grant, setup)?;
        let (log, _) =
            RecordLog::recover(&mut UnitLog::new(&flash, Nanos(0)), flash.log_shape(), Unread::Ignored)?;
        let free = (flash.log_units..flash.units).rev().collect();
        let mut state =
            State { ranges: Vec::new(), free, trims: Vec::new(), log, flash, since_checkpoint: 0 };
        state.flash.erase_leftovers()?;
        state.checkpoint(&setup, Nanos(0))?;
        Ok(PolicyLevel { setup, state: Mutex::new(state) })
    }

    /// Opens what is on a grant: the last checkpoint and what was written after it. The stripe is that of the grant's
    /// first use; `setup` is for the rest.
    ///
    /// [`LevelError::NotFormatted`] when the grant was not used at this level.
    pub fn open(grant: Grant, setup: PolicySetup) -> Result<PolicyLevel, LevelError> {
        recover::open(grant, setup)
    }

    /// Sets up a logical range, which must not overlap another one; its pages read as zeros until they are written.
    ///
    /// [`LevelError::BadRequest`] with the reason; [`LevelError::NoRoom`] when the grant has too little flash left.
    pub fn ftl_ioctl(&self, policy: &RangePolicy) -> Result<(), LevelError> {
        let mut state = self.state.lock();
        let bad = |what: String| Err(LevelError::BadRequest(what));
        let end = policy.start.checked_add(policy.pages);
        let Some(end) = end.filter(|_| policy.pages > 0) else {
            return bad(format!(
                "a range of {} pages from page {}; give it some",
                policy.pages, policy.start
            ));
        };
        let overlaps = |other: &&Range| policy.start < other.end() && other.policy.start < end;
        if let Some(other) = state.ranges.iter().find(overlaps) {
            return bad(format!(
                "pages {} to {end} overlap the range from {} to {}; choose others",
                policy.start,
                other.policy.start,
                other.end()
            ));
        }
        if state.ranges.len() == RANGES_MAX {
            return bad(format!("{RANGES_MAX} ranges are the most; use one of them for more pages"));
        }
        let wanted = self.units_for(policy, &state.flash);
        if wanted > state.free.len() as u64 {
            let why = format!("it takes {wanted} units of flash and {} are free", state.free.len());
            return Err(LevelError::NoRoom { start: policy.start, why });
        }
        let at = state.free.len() - wanted as usize;
        let mut units = state.free.split_off(at);
        units.reverse();
        let made = match policy.mapping {
            RangeMapping::Page => {
                PageRange::new(policy, units.len(), &state.flash, &self.setup).map(Kind::Page)
            }
            RangeMapping::Block => Ok(Kind::Block(BlockRange::new(policy, units.len(), &state.flash))),
        };
        let kind = match made {
            Ok(kind) => kind,
            Err(error) => {
                state.free.extend(units.into_iter().rev());
                return Err(error);
            }
        };
        state.ranges.push(Range { policy: policy.clone(), units, kind });
        state.checkpoint(&self.setup, Nanos(0)).map(|_| ())
    }

    fn units_for(&self, policy: &RangePolicy, flash: &Flash) -> u64 {
        match policy.mapping {
            RangeMapping::Page => page::units_for(policy, flash, &self.setup),
            RangeMapping::Block => block::units_for(policy, flash),
        }
    }

    /// Most pages that a range kept like this can have, with the units that are free now: its own `pages` do not matter.
    /// 0 when there are too few units for any.
    pub fn pages_max(&self, policy: &RangePolicy) -> u64 {
        let state = self.state.lock();
        let free = state.free.len() as u64;
        let fits = |pages| self.units_for(&RangePolicy { pages, ..policy.clone() }, &state.flash) <= free;
        let (mut most, mut too_many) = (0, free * u64::from(state.flash.slots_per_unit) + 1);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            *(if fits(middle) { &mut most } else { &mut too_many }) = middle;
        }
        most
    }

    /// What write amplification of the range with this page depends on
    /// ([`MapperSetup::alpha`](weft_device::gc::MapperSetup::alpha)); `None` when the page has no range or that is
    /// block-mapped.
    pub fn alpha(&self, page: u64) -> Option<f64> {
        let state = self.state.lock();
        let number = find(&state.ranges, page, 1).ok()?;
        match &state.ranges[number].kind {
            Kind::Page(range) => Some(range.alpha()),
            Kind::Block(_) => None,
        }
    }

    /// Writes whole pages from a logical page on; they have to be in one range. Each page is durable when this returns,
    /// and when power goes each is as it was or as it was to be. The tag decides which open unit a page goes to.
    pub fn ftl_write(&self, issued: Nanos, page: u64, data: &[u8], tag: Tag) -> Result<Done, LevelError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let page_bytes = state.flash.geometry.page_bytes as usize;
        let pages = whole_pages(data.len(), page_bytes)?;
        let number = find(&state.ranges, page, pages)?;
        let mut end = issued;
        for (at, data) in data.chunks(page_bytes).enumerate() {
            let before = state.flash.programmed;
            end = end.max(state.write_page(&self.setup, number, page + at as u64, data, tag, issued)?);
            state.since_checkpoint += state.flash.programmed - before;
        }
        if state.since_checkpoint >= self.setup.checkpoint_pages {
            state.checkpoint(&self.setup, end)?;
        }
        Ok(Done { began: issued, moved: end, done: end })
    }

    /// Reads whole pages from a logical page on, in one range. What was never written, or trimmed, is zeros.
    ///
    /// [`LevelError::Unreadable`] when the flash failed.
    pub fn ftl_read(&self, issued: Nanos, page: u64, data: &mut [u8]) -> Result<Done, LevelError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let page_bytes = state.flash.geometry.page_bytes as usize;
        let pages = whole_pages(data.len(), page_bytes)?;
        let number = find(&state.ranges, page, pages)?;
        let Range { policy, units, kind } = &state.ranges[number];
        let mut end = issued;
        for (at, data) in data.chunks_mut(page_bytes).enumerate() {
            let local = page + at as u64 - policy.start;
            let place = match kind {
                Kind::Page(range) => range.slot_of(local as u32),
                Kind::Block(range) => range.slot_of(local),
            };
            let Some(slot) = place else {
                data.fill(0);
                continue;
            };
            let turn = units::Turn::new(&mut state.flash, units, number as u16, issued);
            end = end.max(turn.read_checked(slot, local, policy.mapping, data)?);
        }
        Ok(Done { began: issued, moved: end, done: end })
    }

    /// Forgets pages of one range; they read as zeros. A block-mapped range forgets only whole units' worth of pages and
    /// leaves the rest of what is named as it is. Durable after [`flush`](PolicyLevel::flush).
    pub fn trim(&self, issued: Nanos, page: u64, pages: u64) -> Result<Nanos, LevelError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let number = find(&state.ranges, page, pages)?;
        let Range { policy, units, kind } = &mut state.ranges[number];
        let first = page - policy.start;
        let mut turn = units::Turn::new(&mut state.flash, units, number as u16, issued);
        match kind {
            Kind::Page(range) => {
                range
                    .trim(first as u32, pages as u32)
                    .map_err(|error| page::level_error(error, policy.start))?;
                let sequence = turn.flash.sequence;
                state.trims.push(Trim { range: number as u32, first, pages, sequence });
            }
            Kind::Block(range) => range.trim(&mut turn, first, pages)?,
        }
        let end = turn.settled;
        if state.trims.len() >= TRIMS_PENDING_MAX {
            return state.record_trims(&self.setup, end);
        }
        Ok(end)
    }

    /// Makes trims durable, and everything else too against a crash of the host.
    pub fn flush(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        let mut state = self.state.lock();
        let end = state.record_trims(&self.setup, issued)?;
        state.flash.grant.sync()?;
        Ok(end)
    }

    /// Writes a checkpoint: the next open reads little beside it.
    pub fn checkpoint(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        self.state.lock().checkpoint(&self.setup, issued)
    }

    /// The ranges and what they counted.
    pub fn ranges(&self) -> Vec<(RangePolicy, RangeCounts)> {
        let state = self.state.lock();
        let counts = |range: &Range| match &range.kind {
            Kind::Page(kind) => kind.counts(),
            Kind::Block(kind) => kind.counts(),
        };
        state.ranges.iter().map(|range| (range.policy.clone(), counts(range))).collect()
    }

    /// Pages of a unit: what a block-mapped range rewrites without copies.
    pub fn unit_pages(&self) -> u32 {
        self.state.lock().flash.slots_per_unit
    }

    /// Units that no range has.
    pub fn free_units(&self) -> u32 {
        self.state.lock().free.len() as u32
    }

    /// The grant's geometry.
    pub fn geometry(&self) -> GrantGeometry {
        self.state.lock().flash.geometry.clone()
    }

    /// Checks that maps, owners and units agree. Takes time in proportion to the grant.
    pub fn verify(&self) -> Result<(), LevelError> {
        let state = self.state.lock();
        for range in &state.ranges {
            match &range.kind {
                Kind::Page(kind) => kind.verify(),
                Kind::Block(kind) => kind.verify(),
            }
            .map_err(LevelError::Damaged)?;
        }
        let units = state.ranges.iter().flat_map(|range| &range.units).chain(&state.free);
        let mut seen = vec![0; state.flash.units as usize];
        units.for_each(|unit| seen[*unit as usize] += 1);
        let log = state.flash.log_units as usize;
        if seen[..log].iter().any(|n| *n != 0) || seen[log..].iter().any(|n| *n != 1) {
            return Err(LevelError::Damaged("a unit belongs to nobody or to two".into()));
        }
        Ok(())
    }

    /// Records what is pending and gives the grant back.
    pub fn close(self, issued: Nanos) -> Result<Grant, LevelError> {
        let mut state = self.state.into_inner();
        state.checkpoint(&self.setup, issued)?;
        Ok(state.flash.grant)
    }
}

impl State {
    /// Writes one page of a range; returns when it is programmed.
    fn write_page(
        &mut self,
        setup: &PolicySetup,
        number: usize,
        page: u64,
        data: &[u8],
        tag: Tag,
        issued: Nanos,
    ) -> Result<Nanos, LevelError> {
        loop {
            let trims = self.trims.iter().any(|trim| trim.range == number as u32);
            let Range { policy, units, kind } = &mut self.ranges[number];
            let local = page - policy.start;
            let mut turn = units::Turn::new(&mut self.flash, units, number as u16, issued);
            let written = match kind {
                Kind::Page(range) => range.write(&mut turn, local as u32, data, tag, trims),
                Kind::Block(range) => {
                    range.write(&mut turn, local, data).map_err(|error| error.map_media(Halt::Level))
                }
            };
            match written {
                Ok(()) => return Ok(turn.written),
                Err(GcError::Media(Halt::TrimsFirst)) => {}
                Err(GcError::Media(Halt::Level(error))) => return Err(error),
                Err(other) => return Err(page::refused(&other, policy.start)),
            }
            self.record_trims(setup, issued)?;
        }
    }

    fn checkpoint(&mut self, setup: &PolicySetup, issued: Nanos) -> Result<Nanos, LevelError> {
        let raw = checkpoint::encode(self, setup);
        let mut media = UnitLog::new(&self.flash, issued);
        self.log.snapshot(&mut media, &raw)?;
        let end = media.now;
        self.trims.clear();
        self.since_checkpoint = 0;
        Ok(end)
    }

    fn record_trims(&mut self, setup: &PolicySetup, issued: Nanos) -> Result<Nanos, LevelError> {
        if self.trims.is_empty() {
            return Ok(issued);
        }
        // Pages written from now on are not meant, nor is the number of the last page used again.
        let delta = checkpoint::encode_trims(&self.trims);
        let mut log = self.log.clone();
        let mut media = UnitLog::new(&self.flash, issued);
        let mut whole = false;
        let snapshot = || {
            whole = true;
            checkpoint::encode(self, setup)
        };
        let written = log.commit(&mut media, &delta, snapshot, self.flash.snapshot_bytes_max());
        let end = media.now;
        self.log = log;
        written?;
        self.trims.clear();
        if whole {
            self.since_checkpoint = 0;
        }
        Ok(end)
    }
}

impl Range {
    fn end(&self) -> u64 {
        self.policy.start + self.policy.pages
    }
}

/// The number of the range that has all of these pages.
fn find(ranges: &[Range], page: u64, pages: u64) -> Result<usize, LevelError> {
    let has = |page: u64| ranges.iter().position(|range| (range.policy.start..range.end()).contains(&page));
    let number = has(page).ok_or(LevelError::NoRange { page })?;
    let end = ranges[number].end();
    if pages > end - page {
        return Err(LevelError::BadRequest(format!(
            "pages {page} to {} go beyond the range, which ends at {end}; one call is for one range",
            page.saturating_add(pages)
        )));
    }
    Ok(number)
}

fn whole_pages(bytes: usize, page_bytes: usize) -> Result<u64, LevelError> {
    if bytes == 0 || !bytes.is_multiple_of(page_bytes) {
        let what = format!("{bytes} bytes are not one or more whole pages of {page_bytes}; give whole pages");
        return Err(LevelError::BadRequest(what));
    }
    Ok((bytes / page_bytes) as u64)
}

/// Judges the setup and lays the units over the grant.
fn prepare(grant: Grant, setup: PolicySetup) -> Result<(PolicySetup, Flash), LevelError> {
    let geometry = grant.geometry().clone();
    let bad = |what: String| Err(LevelError::BadRequest(what));
    if (geometry.oob_bytes as usize) < Note::BYTES {
        return bad(format!(
            "pages have {} out-of-band bytes and the policy level needs {}; make a device with more",
            geometry.oob_bytes,
            Note::BYTES
        ));
    }
    if !(1..=32).contains(&setup.streams) {
        return bad(format!("{} streams; 1 to 32 can be had", setup.streams));
    }
    let luns = geometry.luns();
    let stripe = match setup.stripe {
        0 => (1..=luns.min(8)).rev().find(|stripe| luns.is_multiple_of(*stripe)).unwrap_or(1),
        given => given,
    };
    if stripe > luns || !luns.is_multiple_of(stripe) {
        return bad(format!("a stripe of {stripe} LUNs, and the grant has {luns}; choose a divisor of that"));
    }
    let checkpoint_pages = match setup.checkpoint_pages {
        0 => (geometry.pages() / 4).max(1),
        given => given,
    };
    let setup = PolicySetup { stripe, checkpoint_pages, ..setup };
    let flash = Flash::new(grant, stripe)?;
    Ok((setup, flash))
}
