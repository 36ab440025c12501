//! Maps tags, of which there are thousands, to the few zones that can be open at once.
//!
//! A place ("slot") is an open zone; kernel write hints and FDP placement handles are places in the same sense. A key
//! is a stream and a lifetime group. While there are enough slots, each key has its own. When there are not:
//!
//! 1. groups that have not been written for a while give their slot to new ones;
//! 2. groups of one stream share a slot: the stream is what separates best, so it is kept apart longest;
//! 3. streams that have not been written for long give up their slot;
//! 4. streams share, those first whose data is expected to die at the closest times.
//!
//! Streams that write too little for a place of their own share one ([`crate::share`]).
//!
//! What the cleaner relocates has a slot of its own from two slots on: data that has outlived its zone once will
//! outlive what is written now. That slot is always number 0, so that it keeps its zone when the number of slots
//! changes.

use crate::share::Shares;
use rustc_hash::FxHashMap;
use weft_core::{LifetimeGroup, Origin, StreamId, Tag};

/// Chooses among the places that are open now.
pub trait Resolver {
    /// The place for data with this tag, in `0..slots_now.max(1)`.
    fn slot(&mut self, tag: &Tag, slots_now: usize) -> usize;

    /// Told what was written, in bytes.
    fn wrote(&mut self, _tag: &Tag, _bytes: u64) {}
}

/// Writes after which a group that had none gives up its slot to a group that needs one.
const GROUP_IDLE: u64 = 256;
/// Writes after which a stream that had none gives up its last slot.
const STREAM_IDLE: u64 = 4096;
/// Keys that are remembered; the one unused for longest is forgotten first.
const KEYS_MAX: usize = 512;
/// The stream shared by all that write too little for a slot of their own.
const SMALL: StreamId = StreamId(u16::MAX);
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
    shares: Shares,
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
        let small = Tag { stream: SMALL, group: LifetimeGroup(0), ..*tag };
        let tag = if self.shares.is_small(tag.stream) { &small } else { tag };
        let key = Key { stream: tag.stream, group: tag.group };
        let slot = match self.keys.get_mut(&key) {
            Some(held) => {
                held.used = self.clock;
                held.slot
            }
            None => {
                let slot = self.admit(tag);
                self.keys.insert(key, Held { slot, used: self.clock });
                if self.keys.len() > KEYS_MAX {
                    self.forget_oldest();
                }
                slot
            }
        };
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.used = self.clock;
            entry.death = tag.death;
        }
        debug_assert!((GC_SLOT + 1..slots_now).contains(&slot), "host data in slot {slot} of {slots_now}");
        debug_assert!(self.keys.len() <= KEYS_MAX && self.slots[slot].owner.is_some());
        slot
    }

    fn wrote(&mut self, tag: &Tag, bytes: u64) {
        if tag.origin == Origin::Host {
            self.shares.wrote(tag.stream, bytes);
        }
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
            debug_assert!(self.keys.values().all(|held| held.slot != free), "a free slot has keys");
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
        debug_assert_ne!(slot, GC_SLOT, "the cleaner's slot goes to a stream");
        self.keys.retain(|_, held| held.slot != slot);
        self.slots[slot].owner = Some(stream);
        slot
    }

    fn slots_of(&self, owner: Option<StreamId>) -> usize {
        self.slots.iter().filter(|s| s.owner == owner).count()
    }

    fn idle(&self, slot: usize) -> u64 {
        debug_assert!(self.slots[slot].used <= self.clock);
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
        debug_assert!(self.slots[GC_SLOT].owner.is_none(), "a stream has the cleaner's slot");
        debug_assert!(self.keys.values().all(|held| self.slots[held.slot].owner.is_some()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(stream: u16, group: u16, death: u64) -> Tag {
        Tag { stream: StreamId(stream), group: LifetimeGroup(group), death, ..Tag::default() }
    }

    #[test]
    fn streams_share_by_nearest_death_when_each_has_only_one_slot() {
        let mut zones = ZoneResolver::new();
        let (wal, table) = (zones.slot(&tag(1, 0, 100), 3), zones.slot(&tag(2, 0, 9000), 3));
        assert_ne!(wal, table);
        assert_eq!(zones.slot(&tag(3, 0, 120), 3), wal);
        assert_eq!(zones.slot(&tag(4, 0, 8000), 3), table);
    }

    #[test]
    fn an_unknown_death_is_nearest_to_another_unknown_death() {
        let mut zones = ZoneResolver::new();
        let (unknown, known) = (zones.slot(&tag(1, 0, 0), 3), zones.slot(&tag(2, 0, 5), 3));
        assert_ne!(unknown, known);
        assert_eq!(zones.slot(&tag(3, 0, 0), 3), unknown);
        assert_eq!(zones.slot(&tag(4, 0, u64::MAX), 3), known);
    }

    #[test]
    fn groups_of_one_stream_merge_before_streams_do() {
        let mut zones = ZoneResolver::new();
        let groups: Vec<usize> = (0..3).map(|g| zones.slot(&tag(1, g, 100), 4)).collect();
        assert_eq!(groups, [1, 2, 3]);
        // A second stream comes although all slots are taken: one of the first stream's groups makes room.
        let other = zones.slot(&tag(2, 0, 100), 4);
        let regrouped: Vec<usize> = (0..3).map(|g| zones.slot(&tag(1, g, 100), 4)).collect();
        assert!(!regrouped.contains(&other), "{regrouped:?} and {other}");
        // A fourth group of the first stream joins one of its own.
        assert_ne!(zones.slot(&tag(1, 3, 100), 4), other);
    }

    #[test]
    fn an_idle_group_gives_its_slot_to_a_new_one_and_a_busy_one_does_not() {
        let mut zones = ZoneResolver::new();
        let (idle, busy) = (zones.slot(&tag(1, 0, 0), 3), zones.slot(&tag(1, 1, 0), 3));
        for _ in 0..GROUP_IDLE {
            assert_eq!(zones.slot(&tag(1, 1, 0), 3), busy);
        }
        assert_eq!(zones.slot(&tag(1, 2, 0), 3), idle);
        assert_eq!(zones.slot(&tag(1, 1, 0), 3), busy);
    }

    #[test]
    fn an_idle_group_gives_its_slot_to_a_new_group_of_another_stream_too_but_not_before() {
        for (calls, takes_it) in [(GROUP_IDLE / 4, false), (GROUP_IDLE, true)] {
            let mut zones = ZoneResolver::new();
            let [idle, _, own] = [tag(1, 0, 0), tag(1, 1, 0), tag(2, 0, 0)].map(|t| zones.slot(&t, 4));
            for _ in 0..calls {
                zones.slot(&tag(1, 1, 0), 4);
                zones.slot(&tag(2, 0, 0), 4);
            }
            let expected = if takes_it { idle } else { own };
            assert_eq!(zones.slot(&tag(2, 1, 0), 4), expected, "after {calls} rounds");
        }
    }

    #[test]
    fn a_stream_gives_up_its_last_slot_only_after_a_long_time() {
        let mut zones = ZoneResolver::new();
        let (rare, busy) = (zones.slot(&tag(1, 0, 1000), 3), zones.slot(&tag(2, 0, 5), 3));
        for _ in 0..GROUP_IDLE * 2 {
            zones.slot(&tag(2, 0, 5), 3);
        }
        // Not yet: a third stream shares with the one that dies like it.
        assert_eq!(zones.slot(&tag(3, 0, 5), 3), busy);
        for _ in 0..STREAM_IDLE {
            zones.slot(&tag(2, 0, 5), 3);
        }
        assert_eq!(zones.slot(&tag(4, 0, 5), 3), rare);
    }

    #[test]
    fn streams_part_again_when_there_are_more_slots() {
        let mut zones = ZoneResolver::new();
        let tags = [tag(1, 0, 5), tag(2, 0, 6), tag(3, 0, 7)];
        let merged: Vec<usize> = tags.iter().map(|t| zones.slot(t, 2)).collect();
        assert_eq!(merged, [1, 1, 1]);
        let mut parted: Vec<usize> = tags.iter().map(|t| zones.slot(t, 4)).collect();
        parted.sort_unstable();
        assert_eq!(parted, [1, 2, 3]);
    }

    #[test]
    fn streams_that_write_little_share_a_slot_until_they_write_more() {
        let mut zones = ZoneResolver::new();
        zones.wrote(&tag(1, 0, 0), 64 << 20);
        let table = zones.slot(&tag(1, 0, 0), 8);
        let [manifest, info_log] = [tag(2, 0, 5), tag(3, 4, 900)].map(|t| zones.slot(&t, 8));
        assert_ne!(manifest, table);
        assert_eq!(manifest, info_log);
        zones.wrote(&tag(3, 4, 900), 16 << 20);
        assert_ne!(zones.slot(&tag(3, 4, 900), 8), manifest);
    }

    #[test]
    fn memory_is_bounded_however_many_groups_there_are() {
        let mut zones = ZoneResolver::new();
        for n in 0..10_000u32 {
            zones.slot(&tag((n % 7) as u16, n as u16, u64::from(n)), 8);
        }
        assert!(zones.keys.len() <= KEYS_MAX, "{}", zones.keys.len());
    }

    fn any_tag(streams: u16, groups: u16) -> impl Strategy<Value = Tag> {
        (1..=streams, 0..groups, 0u64..1 << 40, any::<bool>()).prop_map(|(stream, group, death, gc)| {
            let host = tag(stream, group, death);
            if gc { host.relocated() } else { host }
        })
    }

    proptest! {
        #[test]
        fn a_slot_is_always_one_of_those_that_are_open(
            calls in prop::collection::vec((any_tag(12, 9), 0usize..15), 1..400),
        ) {
            let mut zones = ZoneResolver::new();
            for (tag, slots_now) in calls {
                prop_assert!(zones.slot(&tag, slots_now) < slots_now.max(1));
            }
        }

        #[test]
        fn relocated_data_never_shares_a_slot_with_host_data(
            calls in prop::collection::vec((any_tag(12, 9), 2usize..15), 1..400),
        ) {
            let mut zones = ZoneResolver::new();
            for (tag, slots_now) in calls {
                let slot = zones.slot(&tag, slots_now);
                prop_assert_eq!(slot == GC_SLOT, tag.origin == Origin::Gc);
            }
        }

        #[test]
        fn while_there_are_enough_slots_every_key_has_its_own_and_keeps_it(
            order in prop::collection::vec((1u16..4, 0u16..3), 1..600),
        ) {
            // Three streams of three groups: nine keys, and one slot for the cleaner.
            let mut zones = ZoneResolver::new();
            let mut seen: FxHashMap<(u16, u16), usize> = FxHashMap::default();
            for (stream, group) in order {
                let slot = zones.slot(&tag(stream, group, 0), 10);
                let first = *seen.entry((stream, group)).or_insert(slot);
                prop_assert_eq!(first, slot);
            }
            let mut slots: Vec<usize> = seen.values().copied().collect();
            slots.sort_unstable();
            slots.dedup();
            prop_assert_eq!(slots.len(), seen.len());
        }

        #[test]
        fn a_key_that_is_written_again_at_once_keeps_its_slot(
            calls in prop::collection::vec((any_tag(12, 9), 1usize..15), 1..400),
        ) {
            let mut zones = ZoneResolver::new();
            for (tag, slots_now) in calls {
                let slot = zones.slot(&tag, slots_now);
                prop_assert_eq!(zones.slot(&tag, slots_now), slot);
            }
        }

        #[test]
        fn as_many_streams_as_slots_stay_apart_however_many_groups_they_have(
            order in prop::collection::vec((1u16..5, 0u16..6), 1..600),
        ) {
            let mut zones = ZoneResolver::new();
            for (stream, group) in order {
                zones.slot(&tag(stream, group, 0), 5);
            }
            // Once around, because a stream that has not come yet takes its slot when it comes.
            (1..5).for_each(|stream| { zones.slot(&tag(stream, 0, 0), 5); });
            let mut slots: Vec<usize> = (1..5).map(|stream| zones.slot(&tag(stream, 0, 0), 5)).collect();
            slots.sort_unstable();
            prop_assert_eq!(slots, [1, 2, 3, 4]);
        }
    }
}
