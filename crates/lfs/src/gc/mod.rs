//! The cleaner: frees zones in which some data still lives by copying that data elsewhere.
//!
//! It works in steps: in the writer's path as free zones get few ([`pace`] says how much), and from
//! [`crate::Lfs::tick`]. [`victim`] chooses the zone, [`relocate`] copies. A copy is made only of what the old block's
//! CRC confirms, keeps its tag with the cleaner's origin, and the old zone is reset only when the records that moved
//! its data are durable.
//!
//! It cannot get stuck: programs may not take the last [`crate::alloc::reserve::CLEANER_ZONES`] zones, and the space
//! accounts keep what lives below what the zones hold, so there is always a zone whose live data, packed anew, takes
//! less than the zone.

pub mod pace;
pub mod relocate;
pub mod victim;

use victim::{Candidate, Greedy, VictimPolicy};
use weft_core::ZoneId;

use crate::alloc::reserve::CLEANER_ZONES;
use crate::alloc::zone::ZoneUse;
use crate::core::State;
use crate::layout::zone_header::ZoneKind;
use weft_core::{BLOCK_BYTES, Origin, Tag};
use weft_vfs::FsResult;

/// How far the cleaner is.
pub struct Cleaner {
    policy: Box<dyn VictimPolicy + Send>,
    /// The zone being emptied, and how far: index into its summary and blocks of that entry.
    pub(crate) victim: Option<(ZoneId, usize, u32)>,
}

impl Default for Cleaner {
    fn default() -> Self {
        Cleaner { policy: Box::new(Greedy), victim: None }
    }
}

impl State {
    /// Bytes that data can take in a zone.
    pub(crate) fn zone_data_bytes(&self) -> u64 {
        u64::from(self.reserve.data_end - 1) * BLOCK_BYTES as u64
    }

    /// Free zones below which the cleaner works along with writers.
    pub(crate) fn start_mark(&self) -> u32 {
        let slots = (self.reserve.zones / 64).min(self.slots.open_max as u32);
        CLEANER_ZONES + 2 + slots
    }

    /// Makes sure that a zone can be taken for data with this tag.
    pub(crate) fn free_a_zone(&mut self, tag: &Tag) -> FsResult<()> {
        let keep = if tag.origin == Origin::Gc { 0 } else { CLEANER_ZONES };
        while self.free_for_data() <= keep {
            self.reset_dead()?;
            if self.free_for_data() > keep {
                break;
            }
            if !self.zones.dying().is_empty() {
                self.commit_durably()?;
                self.reset_dead()?;
                // Reads end without the lock that is held here.
                while self.free_for_data() <= keep
                    && !self.zones.dying().is_empty()
                    && !self.ground.is_unread()
                {
                    std::thread::yield_now();
                    self.reset_dead()?;
                }
                if self.free_for_data() > keep {
                    break;
                }
            }
            if tag.origin == Origin::Gc || !self.clean(u32::MAX)? {
                // Nothing can be gained; the zones kept for the cleaner are better used than the write refused.
                break;
            }
        }
        Ok(())
    }

    /// The cleaner's share of a program's write of `blocks` blocks.
    pub(crate) fn clean_along(&mut self, blocks: u32) -> FsResult<()> {
        let free = self.free_for_data();
        let mark = self.start_mark();
        if free >= mark {
            return Ok(());
        }
        self.reset_dead()?;
        let best = match self.cleaner.victim {
            Some((zone, ..)) => Some(zone),
            None => self.pick_victim(),
        };
        let Some(best) = best else { return Ok(()) };
        let live = self.zones.get(best).live.min(self.zone_data_bytes());
        let quota = pace::quota(blocks, free, CLEANER_ZONES, mark, live, self.zone_data_bytes());
        self.clean(quota)?;
        Ok(())
    }

    /// The zone that is cleaned next.
    fn pick_victim(&mut self) -> Option<ZoneId> {
        let size = self.zone_data_bytes();
        let mut candidates = self.zones.iter().filter_map(|(zone, z)| {
            let fit =
                z.state == ZoneUse::Full && z.kind == Some(ZoneKind::Data) && !z.damaged && z.live < size;
            fit.then_some(Candidate { zone, live: z.live, size, sequence: z.sequence })
        });
        self.cleaner.policy.pick(&mut candidates)
    }

    /// Copies up to about `quota` blocks, or with `u32::MAX` until one zone is empty. False when there is nothing to
    /// gain.
    pub(crate) fn clean(&mut self, quota: u32) -> FsResult<bool> {
        let mut copied = 0;
        let mut worked = false;
        while copied < quota {
            let (zone, index, offset) = match self.cleaner.victim {
                Some(at) => at,
                None => match self.pick_victim() {
                    Some(zone) => (zone, 0, 0),
                    None => return Ok(worked),
                },
            };
            worked = true;
            // It may have died on its own meanwhile.
            if self.zones.get(zone).state != ZoneUse::Full {
                self.cleaner.victim = None;
                if quota == u32::MAX {
                    break;
                }
                continue;
            }
            let (next, blocks) = self.relocate_some(zone, index, offset)?;
            copied = copied.saturating_add(blocks);
            self.cleaner.victim = next.map(|(index, offset)| (zone, index, offset));
            if next.is_none() {
                self.end_victim(zone);
                if quota == u32::MAX {
                    break;
                }
            }
        }
        Ok(worked)
    }

    fn end_victim(&mut self, zone: ZoneId) {
        let z = self.zones.get_mut(zone);
        if z.state == ZoneUse::Full {
            // Something lives there that could not be read, or that no summary names. It is left where it is.
            if !std::mem::replace(&mut z.damaged, true) {
                tracing::warn!(%zone, live = z.live, "zone cannot be cleaned");
            }
        } else {
            self.stats.gc_zones += 1;
        }
    }
}
