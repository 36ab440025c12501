//! The cleaner: frees zones in which some data still lives by copying that data elsewhere.
//!
//! It works in steps: in the writer's path as free zones get few ([`pace`] says how much), and from
//! [`crate::Lfs::tick`]. [`crate::gc::victim`] chooses the zone, [`super::relocate`] copies. A copy is made only of what the old block's
//! CRC confirms, keeps its tag with the cleaner's origin, and the old zone is reset only when the records that moved
//! its data are durable.
//!
//! It cannot get stuck. A victim's live data takes less than a zone, so with one free zone at its start the cleaner
//! ends with at least one free zone and more room in the zone that it copies to. Programs leave it
//! [`CLEANER_ZONES`]: one for that, and one for the copy that a power cut makes void. The space accounts keep what
//! lives below what the zones hold, so there is always a victim that gains. And when no more zones can be freed in
//! short time, programs write to any open zone, whichever slot it is in, so they can use all space.

use super::relocate::needed_bytes;
use crate::alloc::reserve::CLEANER_ZONES;
use crate::alloc::zone::ZoneUse;
use crate::core::State;
use crate::gc::{POLICY, pace};
use crate::layout::zone_header::ZoneKind;
use std::sync::atomic::Ordering::Acquire;
use weft_core::{BLOCK_BYTES, Origin, Tag, ZoneId};
use weft_device::gc::ClosedBlock;
use weft_vfs::FsResult;

/// Device time after which a writer that waits for a free zone goes to another slot's zone, in nanoseconds.
const WAIT_NS: u64 = 200_000_000;
/// Zones' worth of copies for one zone above which a writer goes to another slot's zone at once.
const WORK_ZONES_MAX: u64 = 16;
/// Blocks copied between two looks at the clock.
const STEP_BLOCKS: u32 = 1024;

/// Where to write data whose slot has no zone with space.
pub(crate) enum Destination {
    /// To a free zone.
    FreeZone,
    /// To an open zone, maybe of another slot.
    OpenZone(ZoneId),
}

impl State {
    /// Bytes that data can take in a zone.
    pub(crate) fn zone_data_bytes(&self) -> u64 {
        u64::from(self.reserve.data_blocks()) * BLOCK_BYTES as u64
    }

    /// Free zones below which the cleaner works along with writers.
    pub(crate) fn start_mark(&self) -> u32 {
        CLEANER_ZONES + 1
    }

    /// Finds a zone for data with this tag, and cleans for it: its slot has no space, and no parked zone is left.
    pub(crate) fn find_destination(&mut self, tag: &Tag, slot: usize) -> FsResult<Destination> {
        let gc = tag.origin == Origin::Gc;
        let keep = if gc { 0 } else { CLEANER_ZONES };
        let began = self.shared.dev.counters().now.0;
        loop {
            self.reset_dying(keep)?;
            let free = self.free_for_data();
            if free > keep {
                return Ok(Destination::FreeZone);
            }
            // The cleaner's zones come first: only when it has them may its own open zone be filled with other data.
            if free == keep {
                // The cleaner may share the slot and have opened a zone for it.
                if let Some((zone, _)) = self.slots.zone(slot).and_then(|zone| self.with_space(zone, tag)) {
                    return Ok(Destination::OpenZone(zone));
                }
                let waited = self.shared.dev.counters().now.0.saturating_sub(began);
                let most = WORK_ZONES_MAX * u64::from(self.reserve.data_end);
                if (gc || waited > WAIT_NS || self.work_for_a_zone() > most)
                    && let Some(zone) = self.slots.share(tag, &self.zones, |zone| self.room(zone))
                {
                    return Ok(Destination::OpenZone(zone));
                }
            }
            if gc || !self.clean(STEP_BLOCKS)? {
                // Nothing can be gained. The zones that are kept are better used than the write refused.
                let shared = self.slots.share(tag, &self.zones, |zone| self.room(zone));
                return Ok(shared.map_or(Destination::FreeZone, Destination::OpenZone));
            }
        }
    }

    /// Blocks of the room in its open zone that the cleaner needs for the rest of its victim, because it has not all its
    /// free zones.
    pub(crate) fn blocks_for_cleaner(&self) -> u32 {
        match self.cleaner.victim() {
            Some(zone) if self.free_for_data() < CLEANER_ZONES => {
                needed_bytes(self.zones.get(zone), self.reserve.data_blocks()).div_ceil(BLOCK_BYTES as u64)
                    as u32
            }
            _ => 0,
        }
    }

    /// Blocks to copy until there is a free zone more.
    fn work_for_a_zone(&mut self) -> u64 {
        let size = u64::from(self.reserve.data_blocks());
        let Some(victim) = self.current_victim() else { return 0 };
        let live = self.zones.get(victim).live.div_ceil(BLOCK_BYTES as u64);
        let room = self.slots.cleaners_zone(&self.zones).map_or(0, |zone| u64::from(self.room(zone)));
        pace::work_for_a_zone(live, live, size, room)
    }

    /// Resets zones until more than `keep` are free, if some wait for it: for records to be durable, or for readers.
    fn reset_dying(&mut self, keep: u32) -> FsResult<()> {
        self.reset_dead()?;
        if self.free_for_data() > keep || self.zones.dying().is_empty() {
            return Ok(());
        }
        self.commit_durably()?;
        self.reset_dead()?;
        // Reads end without the lock that is held here.
        while self.free_for_data() <= keep && !self.zones.dying().is_empty() && !self.shared.is_unread() {
            std::thread::yield_now();
            self.reset_dead()?;
        }
        Ok(())
    }

    /// The cleaner's share of a program's write of `blocks` blocks with this tag.
    pub(crate) fn clean_for_write(&mut self, tag: &Tag, blocks: u32) -> FsResult<()> {
        let mark = self.start_mark();
        if self.free_for_data() >= mark {
            return Ok(());
        }
        // A zone that has died costs a flush, a victim many copies.
        if self.zones.waits_for_journal(self.shared.durable_seq.load(Acquire)) {
            self.commit_durably()?;
        }
        self.reset_dead()?;
        if self.free_for_data() >= mark {
            return Ok(());
        }
        let room = self.slots.room_of(tag, &self.zones, |zone| self.room(zone));
        let work = if self.slots.count() == 1 {
            let victim = self.current_victim();
            victim.map_or(0, |zone| self.zones.get(zone).live.div_ceil(BLOCK_BYTES as u64))
        } else {
            self.work_for_a_zone()
        };
        let quota = pace::quota(blocks, u64::from(room), work);
        self.clean(quota)?;
        Ok(())
    }

    /// Gets free zones back that are kept for the cleaner, until it has `zones` of them: power cuts may have left fewer.
    /// Until it has one, what room there is in open zones is its own.
    pub(crate) fn refill_cleaner_zones(&mut self, zones: u32) -> FsResult<()> {
        while self.free_for_data() < zones {
            self.reset_dying(zones - 1)?;
            if self.free_for_data() >= zones || !self.clean(1)? {
                break;
            }
        }
        Ok(())
    }

    /// The zone that is being cleaned, or will be.
    fn current_victim(&mut self) -> Option<ZoneId> {
        match self.cleaner.victim() {
            Some(zone) if self.can_be_emptied(zone) => Some(zone),
            _ => self.pick_victim(),
        }
    }

    /// Whether a victim still is one: it may have died on its own meanwhile.
    fn can_be_emptied(&self, zone: ZoneId) -> bool {
        self.zones.get(zone).state == ZoneUse::Full
    }

    /// The zone that is cleaned next. To empty one to which a writer is about to map gains nothing.
    fn pick_victim(&mut self) -> Option<ZoneId> {
        let size = self.zone_data_bytes();
        let fit = self.zones.iter().filter(|(_, z)| {
            z.state == ZoneUse::Full
                && z.kind == Some(ZoneKind::Data)
                && z.writers == 0
                && !z.damaged
                && needed_bytes(z, self.reserve.data_blocks()) < size
        });
        // A zone's place in time is its opening.
        let closed = fit.map(|(zone, z)| ClosedBlock {
            number: zone.0,
            valid: z.live,
            size,
            closed: z.sequence,
            changed: z.sequence,
        });
        POLICY.search(closed, self.zones.next_sequence()).map(ZoneId)
    }

    /// Copies up to about `quota` blocks. False when there is nothing to gain.
    pub(crate) fn clean(&mut self, quota: u32) -> FsResult<bool> {
        let mut copied = 0;
        let mut worked = false;
        while copied < quota {
            let begun = self.cleaner.place();
            let Some((zone, place)) = begun.or_else(|| Some((self.pick_victim()?, (0, 0)))) else { break };
            worked = true;
            if !self.can_be_emptied(zone) {
                self.cleaner.forget(zone);
                continue;
            }
            let (next, blocks) = self.relocate_some(zone, place)?;
            copied = copied.saturating_add(blocks);
            if self.free_for_data() < CLEANER_ZONES {
                // A power cut would make void what is not durable, and the room is needed.
                self.commit_durably()?;
            }
            self.cleaner.go_on(zone, next);
            if next.is_none() {
                self.end_victim(zone);
            }
        }
        Ok(worked)
    }

    fn end_victim(&mut self, zone: ZoneId) {
        let z = self.zones.get(zone);
        if z.state == ZoneUse::Full && z.live > 0 {
            // Something lives there that could not be read, or that no summary names. It is left where it is.
            if !self.zones.set_damaged(zone) {
                tracing::warn!(%zone, live = self.zones.get(zone).live, "zone cannot be cleaned");
            }
        } else {
            tracing::debug!(%zone, "zone cleaned");
            self.stats.gc_zones += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use crate::alloc::zone::ZoneUse;
    use crate::{FormatOptions, Lfs, MountOptions};
    use std::sync::Arc;
    use weft_core::Ino;
    use weft_device::{Geometry, ZonedModel};
    use weft_vfs::{CreateArgs, FileSystem, NewNode, SetAttr};

    #[test]
    fn the_place_in_a_victim_is_forgotten_when_it_dies_by_itself_and_is_reset() {
        let geometry = Geometry::zn540().with_size(32 << 20).with_zone_bytes(1 << 20);
        let device = Arc::new(ZonedModel::memory(&geometry).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let fs = Lfs::mount(device, MountOptions::default()).unwrap();
        let args = CreateArgs::new(NewNode::File, 0o644);
        let names: [&[u8]; 3] = [b"a", b"b", b"c"];
        for name in names {
            let ino = fs.create(Ino::ROOT, name, &args).unwrap().ino;
            fs.write_through(ino, 0, &vec![7; 800 << 10]).unwrap();
        }
        // Full zones of which nothing is dead are no victims.
        let ino = fs.lookup(Ino::ROOT, b"a").unwrap().ino;
        fs.setattr(ino, &SetAttr { size: Some(700 << 10), ..SetAttr::default() }).unwrap();
        let victim = {
            let mut state = fs.state.lock();
            state.clean(1).unwrap();
            let (victim, place) = state.cleaner.place().unwrap();
            assert!(place > (0, 0), "one batch leaves the cleaner amid the zone");
            victim
        };
        for name in names {
            fs.unlink(Ino::ROOT, name).unwrap();
        }
        fs.sync().unwrap();
        let state = fs.state.lock();
        assert_eq!(state.zones.get(victim).state, ZoneUse::Free);
        assert_eq!(
            state.cleaner.victim(),
            None,
            "another life of the zone would be cleaned from its middle on"
        );
    }
}
