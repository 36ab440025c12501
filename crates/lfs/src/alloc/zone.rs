//! The zones as the core sees them, and what lives in each.
//!
//! ```text
//!   Free -> Open -> Full -> Dying -> Free        Open <-> Parked (partly written, in no slot)
//! ```
//! A zone is `Dying` from the moment when nothing in it lives until the journal records that say so are durable; only
//! then may it be reset.

use super::space::charge_run;
use crate::layout::record::FileRun;
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use std::collections::VecDeque;
use weft_core::{BLOCK_BYTES, Ino, Tag, ZoneId};

/// What may be done with a zone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ZoneUse {
    /// Empty.
    #[default]
    Free,
    /// Being written.
    Open,
    /// Partly written; waits for a slot to take it.
    Parked,
    /// Written to the end or given up.
    Full,
    /// Nothing lives in it; may be reset when the journal is durable up to this frame.
    Dying(u64),
    /// The device does not allow it to be written again.
    Bad,
}

/// Blocks of one file, written to a zone together. Whether they still live there, the file's map tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryEntry {
    /// The file.
    pub ino: Ino,
    /// First block of the file.
    pub block: u64,
    /// Blocks.
    pub count: u32,
}

/// A zone.
#[derive(Clone, Default, Debug)]
pub struct Zone {
    /// What may be done with it.
    pub state: ZoneUse,
    /// What it holds; `None` when empty.
    pub kind: Option<ZoneKind>,
    /// The tag of its first data.
    pub tag: Tag,
    /// Blocks written.
    pub write_pointer: u32,
    /// What its live pieces are charged, in bytes: what they need at most when they are packed anew.
    pub live: u64,
    /// That of them which parts of blocks are charged.
    pub live_pieces: u64,
    /// Number of its opening.
    pub sequence: u64,
    /// Whether its CRCs stand in a footer.
    pub footer: bool,
    /// Whether the cleaner found data in it that it could not read: it is left as it is.
    pub damaged: bool,
    /// Whether the cleaner copied anything out of it.
    pub cleaned: bool,
    /// Whether it has held data that is to be erased when it dies.
    pub secure: bool,
    /// Whether some of that may have died.
    pub gives_up: bool,
    /// What was written, in order.
    pub summary: Vec<SummaryEntry>,
    /// Writers that have taken blocks, and have no file mapped to them yet.
    pub writers: u32,
    /// Writers that have taken blocks since the zone was opened.
    pub turns: u32,
}

impl Zone {
    /// Whether nothing lives in it, nor is about to.
    fn is_dead(&self) -> bool {
        self.live == 0 && self.writers == 0
    }
}

/// All zones. It alone changes a zone, by the transitions above; so its counts and lists agree with the zones.
#[derive(Debug)]
pub struct ZoneTable {
    zones: Vec<Zone>,
    free: VecDeque<ZoneId>,
    dying: Vec<ZoneId>,
    zone_bytes: u64,
    /// Number of the next opening.
    next_sequence: u64,
    bad: u32,
    meta: u32,
}

impl ZoneTable {
    /// A table of `count` zones of unknown state; the next opening has this number at least.
    pub fn new(count: u32, zone_blocks: u32, next_sequence: u64) -> ZoneTable {
        ZoneTable {
            zones: vec![Zone::default(); count as usize],
            free: VecDeque::new(),
            dying: Vec::new(),
            zone_bytes: u64::from(zone_blocks) * BLOCK_BYTES as u64,
            next_sequence,
            bad: 0,
            meta: 0,
        }
    }

    /// A zone.
    pub fn get(&self, zone: ZoneId) -> &Zone {
        &self.zones[zone.index()]
    }

    fn get_mut(&mut self, zone: ZoneId) -> &mut Zone {
        &mut self.zones[zone.index()]
    }

    /// All zones, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneId, &Zone)> {
        self.zones.iter().enumerate().map(|(i, zone)| (ZoneId(i as u32), zone))
    }

    /// Free zones.
    pub fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Zones that wait for their reset.
    pub fn dying(&self) -> &[ZoneId] {
        &self.dying
    }

    /// Zones that hold or held metadata, until they are reset.
    pub fn meta_count(&self) -> u32 {
        self.meta
    }

    fn set_kind(&mut self, zone: ZoneId, kind: Option<ZoneKind>) {
        let z = &mut self.zones[zone.index()];
        self.meta -= u32::from(z.kind == Some(ZoneKind::Meta));
        self.meta += u32::from(kind == Some(ZoneKind::Meta));
        z.kind = kind;
    }

    /// Zones that cannot be used.
    pub fn bad_count(&self) -> u32 {
        self.bad
    }

    /// The number of the next opening.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// A number for an opening, used or not.
    pub fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Notes a written zone that was found at mount, as one that takes no more data.
    pub fn set_found(&mut self, zone: ZoneId, kind: Option<ZoneKind>, opened: (Tag, u64), written: u32) {
        self.set_kind(zone, kind);
        let (tag, sequence) = opened;
        self.next_sequence = self.next_sequence.max(sequence + 1);
        let z = self.get_mut(zone);
        (z.tag, z.sequence, z.write_pointer, z.state) = (tag, sequence, written, ZoneUse::Full);
    }

    /// Notes whether a full zone that was found at mount has a footer.
    pub fn set_footer(&mut self, zone: ZoneId, footer: bool) {
        self.get_mut(zone).footer = footer;
    }

    /// Notes that a free zone has its header and takes data.
    pub fn set_opened(&mut self, zone: ZoneId, kind: ZoneKind, tag: Tag, sequence: u64) {
        self.set_kind(zone, Some(kind));
        let z = self.get_mut(zone);
        (z.state, z.tag, z.sequence, z.write_pointer) = (ZoneUse::Open, tag, sequence, HEADER_BLOCKS);
    }

    /// Notes that a partly written zone takes data again.
    pub fn reopen(&mut self, zone: ZoneId) {
        self.get_mut(zone).state = ZoneUse::Open;
    }

    /// Notes that a partly written zone waits for a slot.
    pub fn park(&mut self, zone: ZoneId) {
        self.get_mut(zone).state = ZoneUse::Parked;
    }

    /// Notes that blocks were written to an open zone.
    pub fn wrote(&mut self, zone: ZoneId, blocks: u32) {
        self.get_mut(zone).write_pointer += blocks;
    }

    /// Notes that nothing more is written to a zone of which `written` blocks are. A data zone in which nothing lives
    /// dies with frame `seq`.
    pub fn end(&mut self, zone: ZoneId, written: u32, footer: bool, seq: u64) {
        let z = self.get_mut(zone);
        (z.write_pointer, z.footer, z.state) = (written, footer, ZoneUse::Full);
        if z.is_dead() && z.kind != Some(ZoneKind::Meta) {
            self.set_dying(zone, seq);
        }
    }

    /// Takes the next blocks of an open zone for a writer. Returns its turn.
    pub fn take(&mut self, zone: ZoneId, blocks: u32) -> u32 {
        let z = self.get_mut(zone);
        z.write_pointer += blocks;
        z.writers += 1;
        z.turns += 1;
        z.turns - 1
    }

    /// A writer that took blocks is through. A full zone in which nothing lives dies with frame `seq`.
    pub fn leave(&mut self, zone: ZoneId, seq: u64) {
        let z = self.get_mut(zone);
        debug_assert!(z.writers > 0, "nobody writes to zone {zone}");
        z.writers -= 1;
        if z.state == ZoneUse::Full && z.is_dead() {
            self.set_dying(zone, seq);
        }
    }

    /// Notes that a zone holds data that is to be erased when it dies.
    pub fn set_secure(&mut self, zone: ZoneId) {
        self.get_mut(zone).secure = true;
    }

    /// Notes that a zone may hold such data that has died.
    pub fn set_given_up(&mut self, zone: ZoneId) {
        let z = self.get_mut(zone);
        (z.secure, z.gives_up) = (true, true);
    }

    /// Notes that the cleaner copied something out of a zone.
    pub fn set_cleaned(&mut self, zone: ZoneId) {
        self.get_mut(zone).cleaned = true;
    }

    /// Notes that the cleaner cannot empty a zone. Returns whether that was known.
    pub fn set_damaged(&mut self, zone: ZoneId) -> bool {
        std::mem::replace(&mut self.get_mut(zone).damaged, true)
    }

    /// Takes the zone that has been free for longest.
    pub fn take_free(&mut self) -> Option<ZoneId> {
        self.free.pop_front()
    }

    /// Notes that a zone is empty.
    pub fn set_free(&mut self, zone: ZoneId) {
        debug_assert_eq!(self.zones[zone.index()].live, 0, "zone {zone}");
        self.set_kind(zone, None);
        self.zones[zone.index()] = Zone::default();
        self.free.push_back(zone);
    }

    /// Notes that nothing lives in a zone any more as soon as frame `seq` is durable.
    pub fn set_dying(&mut self, zone: ZoneId, seq: u64) {
        let z = &mut self.zones[zone.index()];
        debug_assert!(z.is_dead(), "zone {zone}");
        if !matches!(z.state, ZoneUse::Dying(_)) {
            z.state = ZoneUse::Dying(seq);
            z.summary = Vec::new();
            self.dying.push(zone);
        }
    }

    /// Whether a zone waits for records that are not durable yet.
    pub fn waits_for_journal(&self, durable_seq: u64) -> bool {
        self.dying
            .iter()
            .any(|z| matches!(self.zones[z.index()].state, ZoneUse::Dying(seq) if seq > durable_seq))
    }

    /// Takes out a zone whose death is durable and that is `unread`.
    pub fn take_dead(&mut self, durable_seq: u64, unread: impl Fn(ZoneId) -> bool) -> Option<ZoneId> {
        let at = self.dying.iter().position(|z| match self.zones[z.index()].state {
            ZoneUse::Dying(seq) => seq <= durable_seq && unread(*z),
            _ => false,
        })?;
        Some(self.dying.swap_remove(at))
    }

    /// Notes that a zone cannot be written again.
    pub fn set_bad(&mut self, zone: ZoneId) {
        let z = &mut self.zones[zone.index()];
        if z.state == ZoneUse::Bad {
            return;
        }
        z.state = ZoneUse::Bad;
        self.bad += 1;
        // Metadata in it is in use no more or only read at mount; it does not count against what metadata may take.
        if z.kind == Some(ZoneKind::Meta) {
            self.set_kind(zone, None);
        }
    }

    /// The zone of a byte address.
    pub fn zone_of(&self, address: u64) -> ZoneId {
        ZoneId((address / self.zone_bytes) as u32)
    }

    /// Notes that blocks of a file were written.
    pub fn add_to_summary(&mut self, ino: Ino, run: &FileRun) {
        let zone = self.zone_of(run.run.address);
        let summary = &mut self.zones[zone.index()].summary;
        if let Some(last) = summary.last_mut()
            && last.ino == ino
            && last.block + u64::from(last.count) == run.block
            && let Some(count) = last.count.checked_add(run.run.count)
        {
            last.count = count;
            return;
        }
        summary.push(SummaryEntry { ino, block: run.block, count: run.run.count });
    }

    /// Adds live bytes.
    pub fn add_live(&mut self, run: &FileRun) {
        let zone = self.zone_of(run.run.address);
        debug_assert!(
            !matches!(self.zones[zone.index()].state, ZoneUse::Dying(_) | ZoneUse::Free),
            "zone {zone}"
        );
        let z = &mut self.zones[zone.index()];
        z.live += charge_run(&run.run);
        z.live_pieces += charge_piece(run);
    }

    /// Removes live bytes. `Some` when the zone holds nothing any more.
    pub fn remove_live(&mut self, run: &FileRun) -> Option<ZoneId> {
        let zone = self.zone_of(run.run.address);
        let z = &mut self.zones[zone.index()];
        let lost = charge_run(&run.run);
        debug_assert!(z.live >= lost, "zone {zone} has {} live bytes, loses {lost}", z.live);
        z.live = z.live.saturating_sub(lost);
        z.gives_up |= z.secure;
        z.live_pieces = z.live_pieces.saturating_sub(charge_piece(run));
        (z.is_dead() && z.state == ZoneUse::Full).then_some(zone)
    }
}

/// What a run is charged if it is part of a block.
fn charge_piece(run: &FileRun) -> u64 {
    if run.run.is_whole() { 0 } else { charge_run(&run.run) }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::layout::record::Run;

    #[test]
    fn a_zone_dies_when_nothing_lives_in_it_and_nobody_is_about_to_map_to_it() {
        let mut zones = ZoneTable::new(2, 64, 1);
        let zone = ZoneId(1);
        zones.set_opened(zone, ZoneKind::Data, Tag::default(), 1);
        let turns = [zones.take(zone, 8), zones.take(zone, 8)];
        assert_eq!(turns, [0, 1]);
        assert_eq!(zones.get(zone).write_pointer, HEADER_BLOCKS + 16);
        let first = (64 + u64::from(HEADER_BLOCKS)) * BLOCK_BYTES as u64;
        let run = Run { address: first, count: 8, len: BLOCK_BYTES as u32 };
        let run = FileRun { block: 0, run };
        zones.add_live(&run);
        zones.leave(zone, 5);
        zones.end(zone, 64, false, 6);
        // The first one's data is gone, and the second one has not mapped its own yet.
        assert_eq!(zones.remove_live(&run), None);
        assert_eq!(zones.get(zone).state, ZoneUse::Full);
        assert_eq!(zones.take_dead(u64::MAX, |_| true), None);
        zones.leave(zone, 7);
        assert_eq!(zones.get(zone).state, ZoneUse::Dying(7));
        assert_eq!(zones.take_dead(7, |_| true), Some(zone));
    }
}
