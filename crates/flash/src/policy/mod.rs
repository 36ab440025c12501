//! The policy level: logical pages, and a translation layer whose mapping and cleaning the application chooses, for each
//! logical range apart.
//!
//! The calls are those of Prism-SSD's user-policy level (ICDCS 2019, section IV): [`ftl_ioctl`], [`ftl_read`],
//! [`ftl_write`]; [`trim`], [`flush`] and tags come on top.
//!
//! ```text
//!  logical pages   [ range 0: page-mapped, greedy ][ range 1: block-mapped, fifo ]   nothing   [ range 2 ... ]
//!  units           [log][ of range 0 .......... ][ of range 1 ...... ][ free ....................... ]
//!  unit            one erase block in each plane of `stripe` LUNs; its slots go round them
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
//! **Wear.** A page-mapped range opens its youngest free unit first, and moves data that keeps a unit younger than another one by
//! more than 32 erases.
//!
//! **Locks.** Each range has a lock: reads share it, writes and trims have it alone, and hold it over what the flash does for them.
//! Which ranges there are is under another one, held for look-ups. Free units and the log of checkpoints are under the lock of
//! control, which a write takes only when it holds no other. Order: control; the list of ranges; one range. What several calls
//! issue at one moment on different LUNs overlaps in virtual time, and the cleaner issues all copies of a unit at once. A write is
//! over when its own pages are programmed; it feels the cleaner on the LUNs that that keeps busy.
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
use crate::level::LevelName;
use crate::log::{OnUnreadable, RecordLog};
use block::BlockRange;
use page::{MapError, PageRange};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use units::{Flash, OobRecord, UnitLog};
use weft_core::{Nanos, Tag};
use weft_device::gc::{GcError, Outcome, VictimPolicy};
use weft_device::nand::Done;

/// Most ranges of a grant.
pub const RANGES_MAX: usize = 1024;
/// LUNs that a unit lies on whatever number of units is left.
const STRIPE_NARROW: u32 = 8;
/// Units that wider ones leave. Wider ones write faster, and more of the flash is open or kept free.
const UNITS_WANTED: u32 = 64;
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
    /// LUNs that a unit lies on, with a block in each plane; a divisor of the grant's LUNs. 0 = the largest one up to 8, or a
    /// larger one that leaves 64 units. It is chosen when the grant is first used; an opening takes the one that it finds.
    pub stripe: u32,
    /// Open units for new data of page-mapped ranges: so many kinds of tags are kept apart. 1 to 32. A range has units for as many
    /// as the level had when the range was made; opened with more, the range keeps as many apart as it has units for.
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

#[derive(Clone, Debug)]
enum Kind {
    Page(Box<PageRange>),
    Block(Box<BlockRange>),
}

/// What the lock of a range guards.
#[derive(Clone, Debug)]
struct Range {
    policy: RangePolicy,
    /// Units of the range, as its map numbers them.
    units: Vec<u32>,
    kind: Kind,
    /// Trims that have not been recorded, in order.
    trims: Vec<Trim>,
    /// Nobody finds it any more.
    removed: bool,
}

#[derive(Debug)]
struct RangeCell {
    /// What notes and checkpoints name it by.
    number: u16,
    state: RwLock<Range>,
}

/// A range by where it begins.
#[derive(Clone, Debug)]
struct Listed {
    end: u64,
    cell: Arc<RangeCell>,
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

/// What the lock of control guards.
#[derive(Debug)]
struct Control {
    /// Units of no range, last first. What is on them counts for nothing.
    free: Vec<u32>,
    /// Units of no range whose flash is bad.
    bad: Vec<u32>,
    log: RecordLog,
}

/// A grant at the policy level. Threads share it by reference.
#[derive(Debug)]
pub struct PolicyLevel {
    setup: PolicySetup,
    flash: Flash,
    ranges: RwLock<BTreeMap<u64, Listed>>,
    control: Mutex<Control>,
    /// Pages programmed when the last checkpoint was written.
    checkpointed: AtomicU64,
}

impl PolicyLevel {
    /// Begins anew on a grant: what an earlier use at this level or the raw one left on it is forgotten.
    ///
    /// [`LevelError::OtherLevel`] when the grant holds data of the function level.
    pub fn create(grant: Grant, setup: PolicySetup) -> Result<PolicyLevel, LevelError> {
        LevelName::Policy.refuse_others(&grant)?;
        let (setup, flash) = prepare(grant, setup)?;
        let (log, _) =
            RecordLog::recover(&mut UnitLog::new(&flash, Nanos(0)), flash.log_shape(), OnUnreadable::Ignore)?;
        let free: Vec<u32> = (flash.log_units..flash.units).rev().collect();
        for unit in &free {
            flash.clean(*unit)?;
        }
        let level = PolicyLevel::assemble(setup, flash, Vec::new(), Control { free, bad: Vec::new(), log });
        level.checkpoint(Nanos(0))?;
        // An earlier use with another stripe had its log in other blocks, and may have been forgotten only in a part of them.
        level.control.lock().log.erase_others(&mut UnitLog::new(&level.flash, Nanos(0)))?;
        Ok(level)
    }

    fn assemble(
        setup: PolicySetup,
        flash: Flash,
        ranges: Vec<(u16, Range)>,
        control: Control,
    ) -> PolicyLevel {
        let listed = |(number, range): (u16, Range)| {
            let (start, end) = (range.policy.start, range.end());
            (start, Listed { end, cell: Arc::new(RangeCell { number, state: RwLock::new(range) }) })
        };
        PolicyLevel {
            setup,
            ranges: RwLock::new(ranges.into_iter().map(listed).collect()),
            control: Mutex::new(control),
            checkpointed: AtomicU64::new(flash.programmed()),
            flash,
        }
    }

    /// Opens what is on a grant: the last checkpoint and what was written after it. The stripe is that of the grant's
    /// first use, whatever `setup` says; `setup` is for the rest.
    ///
    /// [`LevelError::NotUsed`] when the grant was not used at this level, [`LevelError::OtherLevel`] when it holds data
    /// of the function level.
    pub fn open(grant: Grant, setup: PolicySetup) -> Result<PolicyLevel, LevelError> {
        recover::open(grant, setup)
    }

    /// Sets up a logical range, which must not overlap another one; its pages read as zeros until they are written.
    ///
    /// [`LevelError::BadRequest`] with the reason; [`LevelError::NoRoom`] when the grant has too little flash left.
    pub fn ftl_ioctl(&self, policy: &RangePolicy) -> Result<(), LevelError> {
        let mut control = self.control.lock();
        let end = self.check_pages(policy, None)?;
        let number = {
            let ranges = self.ranges.read();
            if ranges.len() == RANGES_MAX {
                let what = format!("{RANGES_MAX} ranges are the most; use one of them for more pages");
                return Err(LevelError::BadRequest(what));
            }
            let known: HashSet<u16> = ranges.values().map(|range| range.cell.number).collect();
            (0..=u16::MAX).find(|number| !known.contains(number)).unwrap_or(u16::MAX)
        };
        let units = self
            .take_units(&mut control, policy, self.units_for(policy), |free| self.pages_in(policy, free))?;
        let made = match policy.mapping {
            RangeMapping::Page => {
                PageRange::new(policy, units.len(), &self.flash, &self.setup).map(Box::new).map(Kind::Page)
            }
            RangeMapping::Block => {
                Ok(Kind::Block(Box::new(BlockRange::new(policy, units.len(), &self.flash))))
            }
        };
        let recorded = made.and_then(|kind| {
            let range = Range::new(policy.clone(), units.clone(), kind);
            self.snapshot(&mut control, Nanos(0), Some((number, Some(&range))))?;
            Ok(range)
        });
        match recorded {
            Ok(range) => {
                let cell = Arc::new(RangeCell { number, state: RwLock::new(range) });
                self.ranges.write().insert(policy.start, Listed { end, cell });
                Ok(())
            }
            Err(error) => {
                control.free.extend(units.into_iter().rev());
                Err(error)
            }
        }
    }

    /// Removes the range that begins at this page. Its pages are gone for good when this returns, and its units are free.
    ///
    /// [`LevelError::NoRange`] when no range begins there.
    pub fn remove(&self, start: u64) -> Result<(), LevelError> {
        let mut control = self.control.lock();
        let cell = self.beginning_at(start)?;
        let mut range = cell.state.write();
        self.snapshot(&mut control, Nanos(0), Some((cell.number, None)))?;
        range.removed = true;
        self.ranges.write().remove(&start);
        let units = std::mem::take(&mut range.units);
        range.trims.clear();
        // The range is gone whatever comes of this; a unit is cleaned, if it has to be, before another range gets it.
        if let Err(error) = units.iter().try_for_each(|unit| self.flash.clean(*unit).map(|_| ())) {
            tracing::warn!(start, "the units of a range that was removed were not cleaned: {error}");
        }
        control.free.extend(units.into_iter().rev());
        Ok(())
    }

    /// Changes the range that begins where this policy says: its end, its victim policy and its over-provisioning. Pages beyond a
    /// new end are gone for good; those that are added read as zeros. Flash that the range does not need any more is cleaned and
    /// becomes free; when that fails, the level logs it, and the next change of the range tries again. Calls on the range wait
    /// meanwhile.
    ///
    /// [`LevelError::NoRange`] when no range begins there; [`LevelError::BadRequest`] when the mapping is another one, the new pages are
    /// another range's, or a block-mapped range would end in the middle of a unit's worth of pages that it has;
    /// [`LevelError::NoRoom`] when the grant has too little flash left. Nothing is changed then.
    pub fn change(&self, policy: &RangePolicy) -> Result<(), LevelError> {
        let mut control = self.control.lock();
        let cell = self.beginning_at(policy.start)?;
        let end = self.check_pages(policy, Some(policy.start))?;
        let mut range = cell.state.write();
        let bad = |what: String| Err(LevelError::BadRequest(what));
        if policy.mapping != range.policy.mapping {
            return bad("a range keeps its mapping; copy the pages to a new range".into());
        }
        let unit_pages = u64::from(self.flash.slots_per_unit);
        let shrinks = policy.pages < range.policy.pages;
        if policy.mapping == RangeMapping::Block && shrinks && !policy.pages.is_multiple_of(unit_pages) {
            return bad(format!(
                "a block-mapped range that becomes smaller has whole units of {unit_pages} pages, not {} pages",
                policy.pages
            ));
        }
        // What earlier pages beyond the end have left would count for new ones.
        self.erase_given(&cell, &mut range, Nanos(0))?;
        self.replace(&mut control, &cell, &mut range, policy)?;
        self.ranges.write().insert(policy.start, Listed { end, cell: cell.clone() });
        // The range is changed whatever comes of this.
        if let Err(error) = self.give_excess(&mut control, &cell, &mut range) {
            let start = policy.start;
            tracing::warn!(start, "a range keeps units that it does not need after a change: {error}");
        }
        Ok(())
    }

    /// Cleans what a range does not need any more, and lets it be free.
    fn give_excess(
        &self,
        control: &mut Control,
        cell: &RangeCell,
        range: &mut Range,
    ) -> Result<(), LevelError> {
        self.erase_given(cell, range, Nanos(0))?;
        let excess = range.good_units().saturating_sub(range.units_for(&range.policy, &self.flash));
        if excess == 0 {
            return Ok(());
        }
        let Range { policy, units, kind, .. } = range;
        let mut batch = units::IoBatch::new(&self.flash, units, cell.number, Nanos(0));
        if let Kind::Page(kind) = kind {
            kind.free_up(&mut batch, excess).map_err(|error| page::level_error(error, policy.start))?;
        }
        let policy = policy.clone();
        self.replace(control, cell, range, &policy)
    }

    /// Erases the units of a block-mapped range that are to be erased.
    fn erase_given(&self, cell: &RangeCell, range: &mut Range, issued: Nanos) -> Result<Nanos, LevelError> {
        let Range { units, kind: Kind::Block(kind), removed: false, .. } = range else { return Ok(issued) };
        let mut batch = units::IoBatch::new(&self.flash, units, cell.number, issued);
        kind.erase_given(&mut batch)?;
        Ok(batch.settled)
    }

    /// Lets a range be another one with the same mapping: takes units that it needs more, and releases those that it can do
    /// without now.
    fn replace(
        &self,
        control: &mut Control,
        cell: &RangeCell,
        range: &mut Range,
        policy: &RangePolicy,
    ) -> Result<(), LevelError> {
        let wanted = range.units_for(policy, &self.flash);
        let added = match wanted.saturating_sub(self.units_held(range)) {
            0 => Vec::new(),
            more => {
                self.take_units(control, policy, more, |free| self.pages_in_changed(range, policy, free))?
            }
        };
        self.rebuild(control, cell, range, policy, added)
    }

    /// The same, with these units more, which are clean.
    fn rebuild(
        &self,
        control: &mut Control,
        cell: &RangeCell,
        range: &mut Range,
        policy: &RangePolicy,
        added: Vec<u32>,
    ) -> Result<(), LevelError> {
        let (wanted, have) = (range.units_for(policy, &self.flash), range.units.len() as u64);
        let most = range.good_units().saturating_sub(wanted);
        let released = match &range.kind {
            Kind::Page(kind) => kind.dispensable(most),
            Kind::Block(kind) => kind.dispensable(most),
        };
        let gone: HashSet<u32> = released.iter().copied().collect();
        let kept: Vec<u32> = (0..have as u32).filter(|unit| !gone.contains(unit)).collect();
        debug_assert_eq!(kept.len() + released.len(), have as usize, "a unit is released twice");
        let mut units = Vec::new();
        units.extend(kept.iter().map(|unit| range.units[*unit as usize]).chain(added.iter().copied()));
        let made = match &range.kind {
            Kind::Page(kind) => {
                kind.changed(policy, &kept, added.len(), &self.flash).map(Box::new).map(Kind::Page)
            }
            Kind::Block(kind) => Ok(Kind::Block(Box::new(kind.changed(policy, &kept, added.len())))),
        };
        let recorded = made.and_then(|kind| {
            // Its map knows the trims that have not been recorded.
            let changed = Range::new(policy.clone(), units, kind);
            self.snapshot(control, Nanos(0), Some((cell.number, Some(&changed))))?;
            Ok(changed)
        });
        match recorded {
            Ok(changed) => {
                let free = released.iter().map(|unit| range.units[*unit as usize]);
                control.free.extend(free);
                *range = changed;
                Ok(())
            }
            Err(error) => {
                control.free.extend(added.into_iter().rev());
                Err(error)
            }
        }
    }

    /// Gives a range that has no room left free units of the grant in place of those that have become bad, as far as there are any;
    /// whether it got some. No lock may be held.
    fn replace_bad(&self, cell: &RangeCell) -> Result<bool, LevelError> {
        let mut control = self.control.lock();
        let mut range = cell.state.write();
        if range.removed {
            // Whoever asks finds that out.
            return Ok(true);
        }
        let policy = range.policy.clone();
        let missing = range.units_for(&policy, &self.flash).saturating_sub(range.good_units());
        let added = self.take_free(&mut control, missing)?;
        if added.is_empty() {
            return Ok(false);
        }
        tracing::info!(
            start = policy.start,
            units = added.len(),
            "bad units of a range were replaced by free ones"
        );
        self.rebuild(&mut control, cell, &mut range, &policy, added)?;
        Ok(true)
    }

    /// Lets a range that has no room go on, or says why it cannot.
    fn make_room(&self, cell: &RangeCell) -> Result<(), LevelError> {
        if self.replace_bad(cell)? { Ok(()) } else { Err(self.no_room(cell)) }
    }

    /// Why a range has no room and gets none.
    fn no_room(&self, cell: &RangeCell) -> LevelError {
        let (free, bad_free) = {
            let control = self.control.lock();
            (control.free.len(), control.bad.len())
        };
        let range = cell.state.read();
        let (units, parts) = (range.units.len(), self.flash.parts());
        let bad_blocks: u32 = range.units.iter().map(|unit| self.flash.bad_blocks(*unit)).sum();
        let bad = units as u64 - range.good_units();
        let why = format!(
            "{bad_blocks} blocks are bad and spoil {bad} of its {units} units of {parts} blocks, the others are full; outside of \
             its ranges, the grant has {free} free units and {bad_free} bad ones left"
        );
        LevelError::NoRoom { start: range.policy.start, why }
    }

    /// The end of a range like this, when it may be there; `but` names the range that it replaces.
    fn check_pages(&self, policy: &RangePolicy, but: Option<u64>) -> Result<u64, LevelError> {
        let bad = |what: String| Err(LevelError::BadRequest(what));
        if policy.pages == 0 {
            return bad(format!("a range of 0 pages from page {}; give it some", policy.start));
        }
        let Some(end) = policy.start.checked_add(policy.pages) else {
            return bad(format!(
                "a range of {} pages from page {} goes beyond the last page number, {}; give it fewer",
                policy.pages,
                policy.start,
                u64::MAX - 1
            ));
        };
        let ranges = self.ranges.read();
        let before = ranges.range(..end).rev().find(|(start, _)| Some(**start) != but);
        if let Some((start, listed)) = before.filter(|(_, listed)| policy.start < listed.end) {
            return bad(format!(
                "pages {} to {end} overlap the range from {start} to {}; choose others",
                policy.start, listed.end
            ));
        }
        Ok(end)
    }

    fn beginning_at(&self, start: u64) -> Result<Arc<RangeCell>, LevelError> {
        let ranges = self.ranges.read();
        ranges.get(&start).map(|listed| listed.cell.clone()).ok_or(LevelError::NoRange { page: start })
    }

    /// Takes so many free units, which are clean then. `pages_in` says for an error how many pages fit with so many free units.
    fn take_units(
        &self,
        control: &mut Control,
        policy: &RangePolicy,
        wanted: u64,
        pages_in: impl FnOnce(u64) -> u64,
    ) -> Result<Vec<u32>, LevelError> {
        let enough = wanted <= control.free.len() as u64;
        let units = if enough { self.take_free(control, wanted)? } else { Vec::new() };
        if !enough || (units.len() as u64) < wanted {
            control.free.extend(units.into_iter().rev());
            let (free, bad) = (control.free.len() as u64, control.bad.len());
            let why = format!(
                "{} pages take {wanted} units of flash more, and {free} are free and {bad} bad of those that no range has; the \
                 range can have at most {} pages",
                policy.pages,
                pages_in(free)
            );
            return Err(LevelError::NoRoom { start: policy.start, why });
        }
        Ok(units)
    }

    /// The same, or as many as there are.
    fn take_free(&self, control: &mut Control, most: u64) -> Result<Vec<u32>, LevelError> {
        let mut units = Vec::new();
        while (units.len() as u64) < most {
            let Some(unit) = control.free.pop() else { break };
            debug_assert!((self.flash.log_units..self.flash.units).contains(&unit) && !units.contains(&unit));
            match self.flash.clean(unit) {
                Ok(Outcome::Done) => units.push(unit),
                Ok(Outcome::Bad) => control.bad.push(unit),
                Err(error) => {
                    control.free.push(unit);
                    control.free.extend(units.into_iter().rev());
                    return Err(error);
                }
            }
        }
        Ok(units)
    }

    /// Units that a new range takes.
    fn units_for(&self, policy: &RangePolicy) -> u64 {
        match policy.mapping {
            RangeMapping::Page => page::units_for(policy, &self.flash, self.setup.streams),
            RangeMapping::Block => block::units_for(policy, &self.flash),
        }
    }

    /// Most pages that a new range kept like this can have, with the units that are free now: its own `pages` do not matter.
    /// 0 when there are too few units for any. [`changed_pages_max`](PolicyLevel::changed_pages_max) is for a range that exists.
    pub fn pages_max(&self, policy: &RangePolicy) -> u64 {
        self.pages_in(policy, u64::from(self.free_units()))
    }

    /// Most pages that [`change`](PolicyLevel::change) can give the range that begins where this policy says, with the units that
    /// the range has and those that are free now. The `pages` of the policy do not matter, nor do the pages of other ranges.
    ///
    /// [`LevelError::NoRange`] when no range begins there.
    pub fn changed_pages_max(&self, policy: &RangePolicy) -> Result<u64, LevelError> {
        let free = u64::from(self.free_units());
        let cell = self.beginning_at(policy.start)?;
        let range = cell.state.read();
        Ok(self.pages_in_changed(&range, policy, free))
    }

    /// Most pages of a new range with so many units.
    fn pages_in(&self, policy: &RangePolicy, units: u64) -> u64 {
        self.most_pages(policy, units, |policy| self.units_for(policy))
    }

    /// Most pages of a range that is changed and gets up to so many free units.
    fn pages_in_changed(&self, range: &Range, policy: &RangePolicy, free: u64) -> u64 {
        let units = self.units_held(range) + free;
        self.most_pages(policy, units, |policy| range.units_for(policy, &self.flash))
    }

    /// Most pages for which so many units are enough.
    fn most_pages(&self, policy: &RangePolicy, units: u64, units_for: impl Fn(&RangePolicy) -> u64) -> u64 {
        let fits = |pages| units_for(&RangePolicy { pages, ..policy.clone() }) <= units;
        let (mut most, mut too_many) = (0, units * u64::from(self.flash.slots_per_unit) + 1);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            *(if fits(middle) { &mut most } else { &mut too_many }) = middle;
        }
        most
    }

    /// Units that a change of a range need not take: what has become bad is no reason to refuse one that takes no more flash than the
    /// range did.
    fn units_held(&self, range: &Range) -> u64 {
        range.units_for(&range.policy, &self.flash).max(range.good_units())
    }

    /// What write amplification of the range with this page depends on
    /// ([`MapperSetup::alpha`](weft_device::gc::MapperSetup::alpha)); `None` when the page has no range or that is
    /// block-mapped.
    pub fn alpha(&self, page: u64) -> Option<f64> {
        let cell = self.find(page, 1).ok()?;
        match &cell.state.read().kind {
            Kind::Page(range) => Some(range.alpha()),
            Kind::Block(_) => None,
        }
    }

    /// Writes whole pages from a logical page on; they have to be in one range. Each page is durable when this returns,
    /// and when power goes each is as it was or as it was to be. The tag decides which open unit a page goes to.
    pub fn ftl_write(&self, issued: Nanos, page: u64, data: &[u8], tag: Tag) -> Result<Done, LevelError> {
        let page_bytes = self.flash.geometry.page_bytes as usize;
        let pages = whole_pages(data.len(), page_bytes)?;
        let (mut at, mut end) = (0, issued);
        while at < pages {
            let cell = self.find(page, pages)?;
            let mut is_full = false;
            if let Some(mut range) = RangeCell::write(&cell, page, pages) {
                while at < pages && !is_full {
                    let data = &data[at as usize * page_bytes..];
                    match range.write_some(&self.flash, cell.number, page + at, data, tag, issued) {
                        Ok(Some((count, done))) => (at, end) = (at + u64::from(count), end.max(done)),
                        Ok(None) => break,
                        Err(LevelError::NoRoom { .. }) => is_full = true,
                        Err(other) => return Err(other),
                    }
                }
            }
            if is_full {
                self.make_room(&cell)?;
            } else if at < pages {
                self.record_trims(issued)?;
            }
        }
        if self.is_checkpoint_due() {
            let mut control = self.control.lock();
            // Unless somebody else has written one meanwhile.
            if self.is_checkpoint_due() {
                self.snapshot(&mut control, end, None)?;
            }
        }
        Ok(Done { began: issued, moved: end, done: end })
    }

    fn is_checkpoint_due(&self) -> bool {
        self.flash.programmed() - self.checkpointed.load(Relaxed) >= self.setup.checkpoint_pages
    }

    /// Reads whole pages from a logical page on, in one range. What was never written, or trimmed, is zeros.
    ///
    /// [`LevelError::Unreadable`] when the flash failed.
    pub fn ftl_read(&self, issued: Nanos, page: u64, data: &mut [u8]) -> Result<Done, LevelError> {
        let page_bytes = self.flash.geometry.page_bytes as usize;
        let pages = whole_pages(data.len(), page_bytes)?;
        loop {
            let cell = self.find(page, pages)?;
            let Some(range) = RangeCell::read(&cell, page, pages) else { continue };
            let Range { policy, units, kind, .. } = &*range;
            let batch = units::IoBatch::new(&self.flash, units, cell.number, issued);
            let mut end = issued;
            for (at, data) in data.chunks_mut(page_bytes).enumerate() {
                let local = page + at as u64 - policy.start;
                let place = match kind {
                    Kind::Page(range) => range.slot_of(local as u32),
                    Kind::Block(range) => range.slot_of(local),
                };
                match place {
                    Some(slot) => end = end.max(batch.read_checked(slot, local, policy.mapping, data)?),
                    None => data.fill(0),
                }
            }
            return Ok(Done { began: issued, moved: end, done: end });
        }
    }

    /// The tag that a page was written with; one that says nothing when it was written without, never, or trimmed.
    ///
    /// [`LevelError::Unreadable`] when the flash failed; [`LevelError::Damaged`] when what is stored is no tag.
    pub fn tag_of(&self, issued: Nanos, page: u64) -> Result<Tag, LevelError> {
        loop {
            let cell = self.find(page, 1)?;
            let Some(range) = RangeCell::read(&cell, page, 1) else { continue };
            let Range { policy, units, kind, .. } = &*range;
            let place = match kind {
                Kind::Page(range) => range.slot_of((page - policy.start) as u32),
                Kind::Block(range) => range.slot_of(page - policy.start),
            };
            let batch = units::IoBatch::new(&self.flash, units, cell.number, issued);
            return place.map_or(Ok(Tag::default()), |slot| batch.tag_of(slot));
        }
    }

    /// Forgets pages of one range; they read as zeros. A block-mapped range erases units of which nothing is left, and writes holes in
    /// place of other pages: that costs what writing them costs. Durable after [`flush`](PolicyLevel::flush).
    ///
    /// [`LevelError::NoRoom`] when a block-mapped range has no room for that.
    pub fn trim(&self, issued: Nanos, page: u64, pages: u64) -> Result<Nanos, LevelError> {
        let (end, many) = loop {
            let cell = self.find(page, pages)?;
            let Some(mut range) = RangeCell::write(&cell, page, pages) else { continue };
            let Range { policy, units, kind, trims, .. } = &mut *range;
            let first = page - policy.start;
            let mut batch = units::IoBatch::new(&self.flash, units, cell.number, issued);
            let trimmed = match kind {
                Kind::Page(range) => {
                    let trimmed = range.trim(first as u32, pages as u32);
                    if trimmed.is_ok() {
                        let sequence = self.flash.sequence();
                        trims.push(Trim { range: u32::from(cell.number), first, pages, sequence });
                    }
                    trimmed
                }
                Kind::Block(range) => range.trim(&mut batch, first, pages),
            };
            match trimmed.map_err(|error| page::level_error(error, policy.start)) {
                Ok(()) => break (batch.settled, trims.len() >= TRIMS_PENDING_MAX),
                Err(LevelError::NoRoom { .. }) => {
                    drop(range);
                    self.make_room(&cell)?;
                }
                Err(other) => return Err(other),
            }
        };
        if many { self.record_trims(end) } else { Ok(end) }
    }

    /// Erases every unit that has something of these pages that does not count any more: what they held before they were written again or
    /// trimmed. What counts in those units is moved. Afterwards only flash that has become bad may hold it, and pages that still hold it.
    /// Each run is its first page and their number; all are in one page-mapped range. Records trims first. Looks at all units of the
    /// range, and reads out-of-band bytes of pages written before the level was opened.
    ///
    /// [`LevelError::BadRequest`] for a block-mapped range; [`LevelError::NoRoom`] when there is no room to move what counts.
    pub fn erase_stale(&self, issued: Nanos, runs: &[(u64, u64)]) -> Result<Nanos, LevelError> {
        let mut sorted: Vec<(u64, u64)> = runs.iter().copied().filter(|(_, pages)| *pages > 0).collect();
        sorted.sort_unstable();
        let (Some((first, _)), Some((last, pages))) = (sorted.first(), sorted.last()) else {
            return Ok(issued);
        };
        let (first, all) = (*first, last.saturating_add(*pages) - first);
        loop {
            let now = self.record_trims(issued)?;
            let cell = self.find(first, all)?;
            let Some(mut range) = RangeCell::write(&cell, first, all) else { continue };
            let Range { policy, units, kind, trims, .. } = &mut *range;
            // Somebody has trimmed meanwhile.
            if !trims.is_empty() {
                continue;
            }
            let Kind::Page(kind) = kind else {
                let start = policy.start;
                return Err(LevelError::BadRequest(format!(
                    "the range from page {start} on is block-mapped; stale copies are erased in page-mapped ranges"
                )));
            };
            let start = policy.start;
            let is_wanted = |page: u32| {
                let page = start + u64::from(page);
                let before = sorted.partition_point(|(first, _)| *first <= page);
                before > 0 && page - sorted[before - 1].0 < sorted[before - 1].1
            };
            let mut batch = units::IoBatch::new(&self.flash, units, cell.number, now);
            kind.erase_stale(&mut batch, is_wanted).map_err(|error| page::level_error(error, start))?;
            let settled = batch.settled;
            drop(range);
            self.flash.grant.forget_erased()?;
            return Ok(settled);
        }
    }

    /// Makes trims durable, and everything else too against a crash of the host. That includes a trim of a block-mapped range that
    /// returned an error of the host: what reads get now, they get when the level is opened again.
    pub fn flush(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        let end = self.erase_trimmed(issued)?.max(self.record_trims(issued)?);
        self.flash.grant.sync()?;
        Ok(end)
    }

    /// Writes a checkpoint: the next open reads little beside it.
    pub fn checkpoint(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        self.snapshot(&mut self.control.lock(), issued, None)
    }

    /// The ranges and what they counted.
    pub fn ranges(&self) -> Vec<(RangePolicy, RangeCounts)> {
        let ranges = self.cells();
        let counts = |cell: &Arc<RangeCell>| {
            let range = cell.state.read();
            let counts = match &range.kind {
                Kind::Page(kind) => kind.counts(),
                Kind::Block(kind) => kind.counts(),
            };
            (!range.removed).then(|| (range.policy.clone(), counts))
        };
        ranges.iter().filter_map(counts).collect()
    }

    /// Pages of a unit: what a block-mapped range rewrites without copies.
    pub fn unit_pages(&self) -> u32 {
        self.flash.slots_per_unit
    }

    /// Units that no range has.
    pub fn free_units(&self) -> u32 {
        self.control.lock().free.len() as u32
    }

    /// The grant's geometry.
    pub fn geometry(&self) -> GrantGeometry {
        self.flash.geometry.clone()
    }

    /// Checks that maps, owners and units agree. Takes time in proportion to the grant.
    pub fn verify(&self) -> Result<(), LevelError> {
        let control = self.control.lock();
        let mut seen = vec![0; self.flash.units as usize];
        control.free.iter().chain(&control.bad).for_each(|unit| seen[*unit as usize] += 1);
        for listed in self.ranges.read().values() {
            let range = listed.cell.state.read();
            match &range.kind {
                Kind::Page(kind) => kind.verify(),
                Kind::Block(kind) => kind.verify(),
            }
            .map_err(LevelError::Damaged)?;
            range.units.iter().for_each(|unit| seen[*unit as usize] += 1);
        }
        let log = self.flash.log_units as usize;
        if seen[..log].iter().any(|n| *n != 0) || seen[log..].iter().any(|n| *n != 1) {
            return Err(LevelError::Damaged("a unit belongs to nobody or to two".into()));
        }
        Ok(())
    }

    /// Records what is pending and gives the grant back.
    pub fn close(self, issued: Nanos) -> Result<Grant, LevelError> {
        self.checkpoint(issued)?;
        Ok(self.flash.grant)
    }

    /// The range that has all of these pages.
    fn find(&self, page: u64, pages: u64) -> Result<Arc<RangeCell>, LevelError> {
        let ranges = self.ranges.read();
        let found = ranges.range(..=page).next_back().filter(|(_, listed)| page < listed.end);
        let (_, listed) = found.ok_or(LevelError::NoRange { page })?;
        if pages > listed.end - page {
            return Err(LevelError::BadRequest(format!(
                "pages {page} to {} go beyond the range, which ends at {}; one call is for one range",
                page.saturating_add(pages),
                listed.end
            )));
        }
        Ok(listed.cell.clone())
    }

    /// Writes a checkpoint. `instead`: this range is another one, or gone, or new; its lock is the caller's.
    fn snapshot(
        &self,
        control: &mut Control,
        issued: Nanos,
        instead: Option<(u16, Option<&Range>)>,
    ) -> Result<Nanos, LevelError> {
        let programmed = self.flash.programmed();
        let (raw, trims) = self.encode(instead);
        debug_assert!(raw.len() <= self.flash.snapshot_bytes_max(), "a checkpoint outgrows its log");
        // A crash of the host may lose what was not synced, and must not keep a checkpoint that names it.
        self.flash.grant.sync()?;
        let mut media = UnitLog::new(&self.flash, issued);
        control.log.snapshot(&mut media, &raw)?;
        let end = media.now;
        trims.recorded();
        self.checkpointed.store(programmed, Relaxed);
        Ok(end)
    }

    /// A checkpoint, and the trims that it has.
    fn encode(&self, instead: Option<(u16, Option<&Range>)>) -> (Vec<u8>, PendingTrims) {
        let ranges = self.ranges.read();
        let other = instead.map(|(number, _)| number);
        let others = || ranges.values().filter(|listed| Some(listed.cell.number) != other);
        let given = instead.and_then(|(number, range)| Some((number, range?)));
        let mut raw =
            checkpoint::begin(&self.flash, &self.setup, others().count() + usize::from(given.is_some()));
        let mut trims = PendingTrims::default();
        for listed in others() {
            let range = listed.cell.state.read();
            checkpoint::put_range(&mut raw, &self.flash, listed.cell.number, &range);
            trims.of.push((listed.cell.clone(), range.trims.len()));
        }
        if let Some((number, range)) = given {
            checkpoint::put_range(&mut raw, &self.flash, number, range);
        }
        (raw, trims)
    }

    fn cells(&self) -> Vec<Arc<RangeCell>> {
        self.ranges.read().values().map(|listed| listed.cell.clone()).collect()
    }

    /// Erases what block-mapped ranges have trimmed and could not erase because of an error.
    fn erase_trimmed(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        let mut end = issued;
        for cell in self.cells() {
            let waits = matches!(&cell.state.read().kind, Kind::Block(kind) if kind.has_to_erase());
            if waits {
                end = end.max(self.erase_given(&cell, &mut cell.state.write(), issued)?);
            }
        }
        Ok(end)
    }

    fn record_trims(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        let mut control = self.control.lock();
        let cells = self.cells();
        let (mut pending, mut taken) = (Vec::new(), PendingTrims::default());
        for cell in cells {
            let trims = cell.state.read().trims.clone();
            if !trims.is_empty() {
                taken.of.push((cell, trims.len()));
                pending.extend(trims);
            }
        }
        if pending.is_empty() {
            return Ok(issued);
        }
        // Pages written from now on are not meant, nor is the number of the last page used again.
        let delta = checkpoint::encode_trims(&pending);
        let mut media = UnitLog::new(&self.flash, issued);
        let programmed = self.flash.programmed();
        let mut whole = false;
        let snapshot = || {
            whole = true;
            let (raw, trims) = self.encode(None);
            taken = trims;
            // As in a snapshot.
            self.flash.grant.sync()?;
            Ok(raw)
        };
        control.log.commit(&mut media, &delta, snapshot, self.flash.snapshot_bytes_max())?;
        let end = media.now;
        taken.recorded();
        if whole {
            self.checkpointed.store(programmed, Relaxed);
        }
        Ok(end)
    }
}

/// The first trims of ranges, as many of each.
#[derive(Default)]
struct PendingTrims {
    of: Vec<(Arc<RangeCell>, usize)>,
}

impl PendingTrims {
    /// They are durable.
    fn recorded(self) {
        for (cell, count) in self.of.into_iter().filter(|(_, count)| *count > 0) {
            let mut range = cell.state.write();
            let count = count.min(range.trims.len());
            range.trims.drain(..count);
        }
    }
}

impl RangeCell {
    /// The range, to read these pages; `None` when it has changed and does not have them.
    fn read(cell: &Arc<RangeCell>, page: u64, pages: u64) -> Option<RwLockReadGuard<'_, Range>> {
        Some(cell.state.read()).filter(|range| range.has(page, pages))
    }

    /// The same, to change them.
    fn write(cell: &Arc<RangeCell>, page: u64, pages: u64) -> Option<RwLockWriteGuard<'_, Range>> {
        Some(cell.state.write()).filter(|range| range.has(page, pages))
    }
}

impl Range {
    fn new(policy: RangePolicy, units: Vec<u32>, kind: Kind) -> Range {
        Range { policy, units, kind, trims: Vec::new(), removed: false }
    }

    fn end(&self) -> u64 {
        self.policy.start + self.policy.pages
    }

    /// Units that the range takes with this policy and the streams that it has.
    fn units_for(&self, policy: &RangePolicy, flash: &Flash) -> u64 {
        match &self.kind {
            Kind::Page(kind) => page::units_for(policy, flash, kind.streams()),
            Kind::Block(_) => block::units_for(policy, flash),
        }
    }

    /// Units whose flash is not bad.
    fn good_units(&self) -> u64 {
        let bad = match &self.kind {
            Kind::Page(kind) => kind.bad_units(),
            Kind::Block(kind) => kind.bad_units(),
        };
        self.units.len() as u64 - u64::from(bad)
    }

    fn has(&self, page: u64, pages: u64) -> bool {
        !self.removed && self.policy.start <= page && page < self.end() && pages <= self.end() - page
    }

    /// Writes the first of these pages, those that are programmed together; returns how many and when that is over, `None`
    /// when trims have to be recorded first.
    fn write_some(
        &mut self,
        flash: &Flash,
        number: u16,
        page: u64,
        data: &[u8],
        tag: Tag,
        issued: Nanos,
    ) -> Result<Option<(u32, Nanos)>, LevelError> {
        let Range { policy, units, kind, trims, .. } = self;
        let local = page - policy.start;
        let mut batch = units::IoBatch::new(flash, units, number, issued);
        let written = match kind {
            Kind::Page(range) => range.write(&mut batch, local as u32, data, tag, !trims.is_empty()),
            Kind::Block(range) => {
                let page = &data[..flash.geometry.page_bytes as usize];
                range
                    .write(&mut batch, local, page, tag)
                    .map(|()| 1)
                    .map_err(|error| error.map_media(MapError::Level))
            }
        };
        match written {
            Ok(count) => Ok(Some((count, batch.written))),
            Err(GcError::Media(MapError::TrimsFirst)) => Ok(None),
            Err(GcError::Media(MapError::Level(error))) => Err(error),
            Err(other) => Err(page::refused(&other, policy.start)),
        }
    }
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
    if (geometry.oob_bytes as usize) < OobRecord::BYTES {
        return bad(format!(
            "pages have {} out-of-band bytes and the policy level needs {}; make a device with more",
            geometry.oob_bytes,
            OobRecord::BYTES
        ));
    }
    if !(1..=32).contains(&setup.streams) {
        return bad(format!("{} streams; 1 to 32 can be had", setup.streams));
    }
    let luns = geometry.luns();
    let stripe = match setup.stripe {
        0 => {
            let fits = |stripe: &u32| {
                let units = geometry.blocks() / (stripe * geometry.planes);
                luns.is_multiple_of(*stripe) && (*stripe <= STRIPE_NARROW || units >= UNITS_WANTED)
            };
            (1..=luns).rev().find(fits).unwrap_or(1)
        }
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
