//! From tags, of which there are thousands, to the few places that can be open at once.
//!
//! A place ("slot") is an open zone; kernel write hints and FDP placement handles are places in the same sense. A key
//! is a stream and a lifetime group. While there are enough slots, each key has its own. When there are not:
//!
//! 1. groups that have not been written for a while give their slot to new ones;
//! 2. groups of one stream share a slot: the stream is what separates best, so it is kept apart longest;
//! 3. streams that have not been written for long give up their slot;
//! 4. streams share, those first whose data is expected to die at the closest times.
//!
//! What the cleaner relocates has a slot of its own from two slots on: data that has outlived its zone once will
//! outlive what is written now. That slot is always number 0, so that it keeps its zone when the number of slots
//! changes.

use rustc_hash::FxHashMap;
use weft_core::{LifetimeGroup, Origin, StreamId, Tag};

/// Chooses among the places that are open now.
pub trait Resolver {
    /// The place for data with this tag, in `0..slots_now.max(1)`.
    fn slot(&mut self, tag: &Tag, slots_now: usize) -> usize;
}

/// Writes after which a group that had none gives up its slot to a group that needs one.
const GROUP_IDLE: u64 = 256;
/// Writes after which a stream that had none gives up its last slot.
const STREAM_IDLE: u64 = 4096;
/// Keys that are remembered; the one unused for longest is forgotten first.
const KEYS_MAX: usize = 512;
/// The cleaner's slot.
const GC_SLOT: usize = 0;

/// Gives streams and lifetime groups their open zones.
///
/// A key keeps its slot while the number of slots stays the same, unless it has been idle (see the module) or its
/// stream holds several slots and a stream that has none needs one of them. Memory is bounded: at most 512 keys are
/// remembered.
#[derive(Debug, Default)]
pub struct ZoneResolver {
    keys: FxHashMap<Key, Held>,
    slots: Vec<Slot>,
    /// Calls so far: the clock of idleness.
    clock: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    stream: StreamId,
    group: LifetimeGroup,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    slot: usize,
    used: u64,
}

/// What is in a slot. The fields tell of the latest write.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Whose it is; `None` = free.
    owner: Option<StreamId>,
    used: u64,
    death: u64,
}

impl Resolver for ZoneResolver {
    fn slot(&mut self, tag: &Tag, slots_now: usize) -> usize {
        let slots_now = slots_now.max(1);
        if self.slots.len() != slots_now {
            self.resize(slots_now);
        }
        self.clock += 1;
        if slots_now == 1 || tag.origin == Origin::Gc {
            return GC_SLOT;
        }
        let key = Key { stream: tag.stream, group: tag.group };
        let slot = match self.keys.get(&key) {
            Some(held) => held.slot,
            None => self.admit(tag),
        };
        self.keys.insert(key, Held { slot, used: self.clock });
        if self.keys.len() > KEYS_MAX {
            self.forget_oldest();
        }
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.used = self.clock;
            entry.death = tag.death;
        }
        slot
    }
}

impl ZoneResolver {
    /// A resolver that has seen nothing.
    pub fn new() -> ZoneResolver {
        ZoneResolver::default()
    }

    /// Finds a slot for a key that has none. There are at least two slots.
    fn admit(&mut self, tag: &Tag) -> usize {
        let host = GC_SLOT + 1..self.slots.len();
        if let Some(free) = host.clone().find(|&s| self.slots[s].owner.is_none()) {
            self.slots[free].owner = Some(tag.stream);
            return free;
        }
        let mine = |s: &usize| self.slots[*s].owner == Some(tag.stream);
        let my_oldest = host.clone().filter(mine).min_by_key(|&s| self.slots[s].used);
        let spare = host
            .clone()
            .filter(|&s| self.slots_of(self.slots[s].owner) >= 2)
            .min_by_key(|&s| self.slots[s].used);
        // An idle group's slot is free for the taking, whoever's it was.
        if let Some(slot) = spare.filter(|&s| self.idle(s) >= GROUP_IDLE) {
            return self.take_over(slot, tag.stream);
        }
        if let Some(slot) = my_oldest {
            return slot;
        }
        // The stream has no slot: a stream that has several does with fewer.
        if let Some(slot) = spare {
            return self.take_over(slot, tag.stream);
        }
        let oldest = host.clone().min_by_key(|&s| self.slots[s].used);
        if let Some(slot) = oldest.filter(|&s| self.idle(s) >= STREAM_IDLE) {
            return self.take_over(slot, tag.stream);
        }
        host.min_by_key(|&s| death_distance(self.slots[s].death, tag.death)).unwrap_or(GC_SLOT)
    }

    /// Gives a slot to a stream. Keys that had it are sent away and find another at their next write.
    fn take_over(&mut self, slot: usize, stream: StreamId) -> usize {
        self.keys.retain(|_, held| held.slot != slot);
        self.slots[slot].owner = Some(stream);
        slot
    }

    fn slots_of(&self, owner: Option<StreamId>) -> usize {
        self.slots.iter().filter(|s| s.owner == owner).count()
    }

    fn idle(&self, slot: usize) -> u64 {
        self.clock - self.slots[slot].used
    }

    /// Changes the number of slots. Keys whose slot is gone find another at their next write; when there are more
    /// slots, keys that share one part, and the one written last keeps it.
    fn resize(&mut self, slots_now: usize) {
        let grows = slots_now > self.slots.len();
        self.slots.resize(slots_now, Slot::default());
        self.keys.retain(|_, held| held.slot < slots_now);
        if grows {
            let last_use: Vec<u64> = self.slots.iter().map(|s| s.used).collect();
            self.keys.retain(|_, held| held.used == last_use[held.slot]);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.keys.iter().min_by_key(|(_, held)| held.used).map(|(key, _)| *key) {
            self.keys.remove(&oldest);
        }
    }
}

/// How far apart two deaths are; one that is unknown is as far as can be from one that is known.
fn death_distance(a: u64, b: u64) -> u64 {
    if (a == 0) != (b == 0) { u64::MAX } else { a.abs_diff(b) }
}
