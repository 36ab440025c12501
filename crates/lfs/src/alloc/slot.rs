//! Open zones: which one takes data of which tag.
//!
//! The resolver names a slot; a slot has at most one zone. When there are fewer slots than before, the zones of those
//! that went are parked, and a slot that needs a zone takes a parked one first: so partly written zones are filled
//! rather than wasted, and never more zones are open than there were.

use super::zone::ZoneTable;
use weft_core::{Origin, Tag, ZoneId};
use weft_placement::Resolver;

/// The open data zones.
pub struct Slots {
    zones: Vec<Option<ZoneId>>,
    parked: Vec<ZoneId>,
    resolver: Box<dyn Resolver + Send>,
    open_max: usize,
}

impl Slots {
    /// No open zones yet but those that an earlier mount left.
    pub fn new(resolver: Box<dyn Resolver + Send>, open_max: usize, parked: Vec<ZoneId>) -> Slots {
        Slots { zones: Vec::new(), parked, resolver, open_max }
    }

    /// Most zones that data may hold open.
    pub fn open_max(&self) -> usize {
        self.open_max
    }

    /// Zones that are partly written.
    pub fn open_count(&self) -> usize {
        self.zones.iter().flatten().count() + self.parked.len()
    }

    /// Sets the number of slots; returns nothing open beyond it.
    pub fn resize(&mut self, slots_now: usize, table: &mut ZoneTable) {
        let slots_now = slots_now.clamp(1, self.open_max.max(1));
        while self.zones.len() > slots_now {
            if let Some(Some(zone)) = self.zones.pop() {
                self.park(zone, table);
            }
        }
        self.zones.resize(slots_now, None);
    }

    /// The slot for data with this tag.
    pub fn slot_for(&mut self, tag: &Tag) -> usize {
        let slots_now = self.zones.len().max(1);
        self.resolver.slot(tag, slots_now).min(slots_now - 1)
    }

    /// Notes what was written.
    pub fn wrote(&mut self, tag: &Tag, bytes: u64) {
        self.resolver.wrote(tag, bytes);
    }

    /// The zone of a slot.
    pub fn zone(&self, slot: usize) -> Option<ZoneId> {
        self.zones.get(slot).copied().flatten()
    }

    /// Gives a slot that has no room a parked zone: one that began with data of the same stream, or when no further zone may be
    /// opened, any.
    pub fn adopt(&mut self, slot: usize, tag: &Tag, table: &mut ZoneTable) -> Option<ZoneId> {
        let same = |z: &ZoneId| {
            let t = table.get(*z).tag;
            (t.stream, t.origin) == (tag.stream, tag.origin)
        };
        let at = match self.parked.iter().position(same) {
            Some(at) => at,
            None if !self.parked.is_empty() => 0,
            None => return None,
        };
        let zone = self.parked.swap_remove(at);
        table.reopen(zone);
        self.zones[slot] = Some(zone);
        Some(zone)
    }

    /// Slots now.
    pub fn count(&self) -> usize {
        self.zones.len()
    }

    /// The open zone that the cleaner copies to.
    pub fn cleaners_zone(&self, table: &ZoneTable) -> Option<ZoneId> {
        self.zones.iter().flatten().copied().find(|zone| table.get(*zone).tag.origin == Origin::Gc)
    }

    /// Blocks of room in the zone that data of this tag goes to next; of several that it may go to, in the fullest.
    pub fn room_of(&self, tag: &Tag, table: &ZoneTable, room: impl Fn(ZoneId) -> u32) -> u32 {
        let held = self.zones.iter().flatten();
        let of = |own: bool| {
            held.clone()
                .filter(|zone| !own || table.get(**zone).tag.stream == tag.stream)
                .map(|zone| room(*zone))
                .min()
        };
        of(true).or_else(|| of(false)).unwrap_or(0)
    }

    /// An open zone with room that data of this tag may go to although it is another slot's: of the same stream, else
    /// the cleaner's, else the one with the most room.
    pub fn share(&self, tag: &Tag, table: &ZoneTable, room: impl Fn(ZoneId) -> u32) -> Option<ZoneId> {
        let open = self.open_zones().filter(|zone| room(*zone) > 0);
        open.max_by_key(|zone| {
            let held = table.get(*zone).tag;
            (held.stream == tag.stream, held.origin == Origin::Gc, room(*zone))
        })
    }

    /// Gives a slot a zone. Returns the one that it had.
    #[must_use]
    pub fn set(&mut self, slot: usize, zone: ZoneId) -> Option<ZoneId> {
        self.zones[slot].replace(zone)
    }

    /// An open zone of no slot waits for one.
    pub fn park(&mut self, zone: ZoneId, table: &mut ZoneTable) {
        table.park(zone);
        self.parked.push(zone);
    }

    /// A zone is full or given up: no slot has it any more.
    pub fn forget(&mut self, zone: ZoneId) {
        for held in &mut self.zones {
            if *held == Some(zone) {
                *held = None;
            }
        }
        self.parked.retain(|z| *z != zone);
    }

    /// The partly written zones.
    pub fn open_zones(&self) -> impl Iterator<Item = ZoneId> {
        self.zones.iter().flatten().chain(&self.parked).copied()
    }
}
