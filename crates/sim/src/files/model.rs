//! Plays a workload against a model of zones with a greedy cleaner.
//!
//! The model knows how many blocks of a file lie in each zone, but not which: what is overwritten, punched or cut off
//! is taken to be the file's oldest data or, for a cut, its newest.

use rustc_hash::FxHashMap;
use weft_core::{BLOCK_BYTES, Tag};
use weft_device::gc::{ClosedBlock, VictimPolicy};
use weft_placement::Engine;
use weft_placement::Resolver;
use weft_placement::budget;
use weft_placement::recording::{Event, FileAction, Opener, Workload};
use weft_placement::{FileContext, OpenIntent, WriteHint};

/// The volume on which a workload is played.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// Zones that hold data.
    pub zones: u32,
    /// Zones that may be open at once.
    pub open_max: usize,
    /// Blocks that a file gathers in memory before they get their place.
    pub flush_blocks: u32,
}

impl Volume {
    /// A volume on which the workload's live data takes the given share at its peak.
    pub fn for_utilisation(workload: &Workload, zone_bytes: u64, utilisation: f64) -> Volume {
        let zones = (workload.live_peak_bytes() as f64 / utilisation / zone_bytes as f64).ceil();
        Volume {
            zone_blocks: (zone_bytes / BLOCK_BYTES as u64) as u32,
            zones: zones as u32,
            open_max: 12,
            flush_blocks: 64,
        }
    }
}

/// The outcome of a simulation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Blocks that the workload wrote.
    pub host_blocks: u64,
    /// Blocks that the cleaner copied.
    pub gc_blocks: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Of these, zones in which everything had died: nothing was copied.
    pub whole_resets: u64,
    /// Whether the volume became full, and the simulation ended early.
    pub full: bool,
}

impl Outcome {
    /// Write amplification.
    pub fn waf(&self) -> f64 {
        super::waf(self.host_blocks, self.gc_blocks)
    }
}

/// Zones that the cleaner keeps free for its own copies.
const RESERVE: usize = 2;
/// Free zones below which it works.
const CLEAN_BELOW: usize = 4;

#[derive(Clone, Default)]
struct Zone {
    used: u32,
    live: u32,
    /// Live blocks of each file.
    files: FxHashMap<u32, u32>,
    open: bool,
}

struct File {
    path: Vec<u8>,
    opener: Opener,
    hint: WriteHint,
    tag: Tag,
    bytes: u64,
    pending: u64,
    born: u64,
    zones: Vec<u32>,
}

/// Which of a file's blocks die.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Oldest,
    Newest,
}

fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}

struct State<'a> {
    volume: Volume,
    engine: &'a Engine,
    resolver: &'a mut dyn Resolver,
    zones: Vec<Zone>,
    free: Vec<u32>,
    /// The open zone of each slot.
    slots: Vec<Option<u32>>,
    /// Partly written zones whose slot is gone; they are written on before a free zone is taken.
    orphans: Vec<u32>,
    files: FxHashMap<u32, File>,
    outcome: Outcome,
    cleaning: bool,
}

/// Plays the workload to its end, or until the volume is full. Everything counts, the fill of
/// the empty volume too: it is the same for every policy.
pub fn simulate(
    workload: &Workload,
    volume: Volume,
    engine: &Engine,
    resolver: &mut dyn Resolver,
) -> Outcome {
    let mut state = State {
        volume,
        engine,
        resolver,
        zones: vec![Zone::default(); volume.zones as usize],
        free: (0..volume.zones).rev().collect(),
        slots: Vec::new(),
        orphans: Vec::new(),
        files: FxHashMap::default(),
        outcome: Outcome::default(),
        cleaning: false,
    };
    for event in &workload.events {
        state.play(event);
        if state.outcome.full {
            break;
        }
    }
    state.outcome
}

impl State<'_> {
    fn play(&mut self, event: &Event) {
        let file = event.file;
        match &event.action {
            FileAction::Create { path, opener } => {
                let created = File {
                    path: path.clone(),
                    opener: opener.clone(),
                    hint: WriteHint::NotSet,
                    tag: Tag::default(),
                    bytes: 0,
                    pending: 0,
                    born: self.clock(),
                    zones: Vec::new(),
                };
                self.files.insert(file, created);
                self.place_as(file, |_| ());
            }
            FileAction::Reopen { path, opener } => {
                self.place_as(file, |entry| (entry.path, entry.opener) = (path.clone(), opener.clone()));
            }
            FileAction::Rename { path } => self.place_as(file, |entry| {
                entry.path = path.clone();
                entry.opener.flags = OpenIntent::empty();
            }),
            FileAction::Hint(hint) => self.place_as(file, |entry| entry.hint = *hint),
            FileAction::Write { bytes } => self.write(file, *bytes),
            FileAction::Overwrite { offset, bytes } => self.overwrite(file, *offset, *bytes),
            FileAction::Resize { size } => self.resize(file, *size),
            FileAction::Punch { bytes, .. } => {
                self.flush(file, true);
                self.kill(file, blocks_of(*bytes), Age::Oldest);
            }
            FileAction::Close | FileAction::Sync => self.flush(file, true),
            FileAction::Delete => self.delete(file),
        }
    }

    fn clock(&self) -> u64 {
        self.outcome.host_blocks * BLOCK_BYTES as u64
    }

    /// Changes what is known of a file, and places its next data by that.
    fn place_as(&mut self, number: u32, change: impl FnOnce(&mut File)) {
        let volume_bytes = self.clock();
        let Some(file) = self.files.get_mut(&number) else { return };
        change(file);
        file.tag = self.engine.place(&FileContext {
            process: &file.opener.process,
            thread: &file.opener.thread,
            thread_id: file.opener.thread_id,
            flags: file.opener.flags,
            hint: file.hint,
            size: file.bytes,
            volume_bytes,
            ..FileContext::new(&file.path)
        });
    }

    fn write(&mut self, number: u32, bytes: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.bytes += bytes;
            file.pending += bytes;
        }
        self.flush(number, false);
    }

    fn overwrite(&mut self, number: u32, offset: u64, bytes: u64) {
        self.flush(number, true);
        let Some(file) = self.files.get_mut(&number) else { return };
        let replaced = file.bytes.saturating_sub(offset).min(bytes);
        file.bytes = file.bytes.max(offset.saturating_add(bytes));
        let tag = file.tag;
        self.kill(number, blocks_of(replaced), Age::Oldest);
        self.outcome.host_blocks += blocks_of(bytes);
        self.append(number, tag, blocks_of(bytes));
    }

    fn resize(&mut self, number: u32, size: u64) {
        self.flush(number, true);
        let Some(file) = self.files.get_mut(&number) else { return };
        let cut = blocks_of(file.bytes).saturating_sub(blocks_of(size));
        file.bytes = size;
        self.kill(number, cut, Age::Newest);
    }

    /// Lets as many of a file's blocks die, if it has them.
    fn kill(&mut self, number: u32, mut blocks: u64, age: Age) {
        let Some(file) = self.files.get(&number) else { return };
        let mut zones = file.zones.clone();
        if age == Age::Newest {
            zones.reverse();
        }
        for zone in zones {
            let entry = &mut self.zones[zone as usize];
            let Some(here) = entry.files.get_mut(&number) else { continue };
            let taken = u64::from(*here).min(blocks) as u32;
            *here -= taken;
            entry.live -= taken;
            blocks -= u64::from(taken);
            if *here == 0 {
                entry.files.remove(&number);
                if let Some(file) = self.files.get_mut(&number) {
                    file.zones.retain(|z| *z != zone);
                }
            }
            self.reset_if_dead(zone);
            if blocks == 0 {
                return;
            }
        }
    }

    /// Gives pending bytes their place, in pieces of the volume's flush size; the rest too when the file is closed.
    fn flush(&mut self, number: u32, all: bool) {
        let piece = u64::from(self.volume.flush_blocks) * BLOCK_BYTES as u64;
        while let Some(file) = self.files.get_mut(&number) {
            let bytes = if file.pending >= piece {
                piece
            } else if all && file.pending > 0 {
                file.pending
            } else {
                return;
            };
            file.pending -= bytes;
            let tag = file.tag;
            self.outcome.host_blocks += blocks_of(bytes);
            self.append(number, tag, blocks_of(bytes));
            if self.outcome.full {
                return;
            }
        }
    }

    fn delete(&mut self, number: u32) {
        let Some(file) = self.files.remove(&number) else { return };
        self.engine.observe_death(&file.tag, &file.path, file.bytes, file.born, self.clock());
        for zone in file.zones {
            let entry = &mut self.zones[zone as usize];
            if let Some(blocks) = entry.files.remove(&number) {
                entry.live -= blocks;
                self.reset_if_dead(zone);
            }
        }
    }

    /// A full zone in which nothing lives is free at once.
    fn reset_if_dead(&mut self, zone: u32) {
        let entry = &mut self.zones[zone as usize];
        if entry.live == 0 && !entry.open && entry.used > 0 {
            *entry = Zone::default();
            self.orphans.retain(|z| *z != zone);
            self.free.push(zone);
            self.outcome.resets += 1;
            self.outcome.whole_resets += 1;
        }
    }

    fn append(&mut self, number: u32, tag: Tag, mut blocks: u64) {
        while blocks > 0 {
            let Some((slot, zone)) = self.open_place(&tag) else {
                self.outcome.full = true;
                return;
            };
            let entry = &mut self.zones[zone as usize];
            let room = self.volume.zone_blocks - entry.used;
            let taken = blocks.min(u64::from(room)) as u32;
            entry.used += taken;
            entry.live += taken;
            *entry.files.entry(number).or_default() += taken;
            let is_full = entry.used == self.volume.zone_blocks;
            if let Some(file) = self.files.get_mut(&number)
                && !file.zones.contains(&zone)
            {
                file.zones.push(zone);
            }
            blocks -= u64::from(taken);
            if is_full {
                self.zones[zone as usize].open = false;
                self.slots[slot] = None;
                self.reset_if_dead(zone);
            }
        }
    }

    /// The slot and open zone for data with this tag. When no zone can be opened, all data shares what is open.
    fn open_place(&mut self, tag: &Tag) -> Option<(usize, u32)> {
        // The model cleans early and knows its free zones alone: two places for each.
        let slots_now = budget(2 * self.free.len(), self.zones.len(), self.volume.open_max);
        for slots_now in [slots_now, 1] {
            let slot = self.resolver.slot(tag, slots_now);
            self.fit_slots(slots_now);
            if let Some(zone) = self.open_zone(slot) {
                return Some((slot, zone));
            }
        }
        None
    }

    fn fit_slots(&mut self, slots_now: usize) {
        if self.slots.len() > slots_now {
            for zone in self.slots.drain(slots_now..).flatten() {
                self.zones[zone as usize].open = false;
                self.orphans.push(zone);
            }
        }
        self.slots.resize(slots_now, None);
        for at in (0..self.orphans.len()).rev() {
            if let Some(zone) = self.orphans.get(at).copied() {
                self.reset_if_dead(zone);
            }
        }
    }

    fn open_zone(&mut self, slot: usize) -> Option<u32> {
        if let Some(zone) = self.slots[slot] {
            return Some(zone);
        }
        if !self.cleaning {
            self.clean();
            // Cleaning may have opened the very slot.
            if let Some(zone) = self.slots.get(slot).copied().flatten() {
                return Some(zone);
            }
        }
        let keep = if self.cleaning { 0 } else { RESERVE };
        let zone = match self.orphans.pop() {
            Some(zone) => zone,
            None if self.free.len() > keep => self.free.pop()?,
            None => return None,
        };
        self.zones[zone as usize].open = true;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = Some(zone);
        Some(zone)
    }

    /// Frees zones until there are enough, by copying what lives in the zones with the least of it.
    fn clean(&mut self) {
        self.cleaning = true;
        while self.free.len() < CLEAN_BELOW && !self.outcome.full {
            let size = self.volume.zone_blocks;
            let closed = self.zones.iter().enumerate().filter_map(|(number, zone)| {
                let fit = !zone.open && zone.used == size && zone.live < size;
                let (number, valid) = (number as u32, u64::from(zone.live));
                fit.then_some(ClosedBlock { number, valid, size: u64::from(size), closed: 0, changed: 0 })
            });
            let Some(victim) = VictimPolicy::Greedy.search(closed, 0) else { break };
            // Victims so full that a zone's worth of space costs dozens of zones of copies are no gain.
            let live = self.zones[victim as usize].live;
            if u64::from(live) * 64 > u64::from(self.volume.zone_blocks) * 63 {
                break;
            }
            let mut files: Vec<(u32, u32)> = self.zones[victim as usize].files.drain().collect();
            files.sort_unstable();
            self.zones[victim as usize].live = 0;
            for (number, blocks) in files {
                let Some(file) = self.files.get_mut(&number) else { continue };
                file.zones.retain(|z| *z != victim);
                let tag = file.tag.relocated();
                self.outcome.gc_blocks += u64::from(blocks);
                self.append(number, tag, u64::from(blocks));
            }
            self.zones[victim as usize] = Zone::default();
            self.free.push(victim);
            self.outcome.resets += 1;
        }
        self.cleaning = false;
    }
}
