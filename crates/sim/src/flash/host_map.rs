//! A page map in the host: what a log-structured program does on flash that does not map for it, as simply as can be. It
//! gives zoned and open-channel devices, and the raw and function levels, the same workloads that drives with a map of
//! their own get.
//!
//! On a zoned device a page is a block of 4 KiB and a block of the map is a zone. On other flash they are a flash page and
//! a unit of erase blocks on several LUNs, whose pages are written in turns: LUNs work at the same time, for new data as
//! for copies. A write of a part of a page writes the page.

use super::SimError;
use super::heat::HeatRow;
use super::host_flash::{HostFlash, MapSize, Slot};
use super::target::{Target, Totals};
use crate::block::{Action, Request};
use std::collections::VecDeque;
use weft_core::hist::Summary;
use weft_core::{BLOCK_BYTES, Nanos};
use weft_device::gc::{MapperSetup, Media, Outcome, PageMapper, VictimPolicy};

/// The write front of new data.
const NEW_DATA: usize = 0;

/// How a map in the host works.
pub struct MapChoice {
    /// (flash - capacity) / capacity.
    pub over_provisioning: f64,
    /// Which block is cleaned.
    pub victim: VictimPolicy,
    /// Whether moved data shares the open block of new data.
    pub shared: bool,
    /// Free blocks below which the map cleans.
    pub reserve: u32,
    /// What random choices are drawn from.
    pub seed: u64,
}

/// Pages that are programmed together when there is one for each plane.
#[derive(Default)]
struct Waiting {
    slots: Vec<u32>,
    /// When the last of them was in the host.
    ready: Nanos,
}

struct Host {
    flash: Box<dyn HostFlash>,
    room: MapSize,
    /// By write front: the pages that wait for those in the other planes.
    waiting: [Waiting; 2],
    /// Pages that were read to be copied, and when they were there.
    ahead: VecDeque<(u32, Nanos)>,
    /// When the request under way was issued, and when it is complete.
    now: Nanos,
    done: Nanos,
}

/// A mapped device.
pub struct HostMap {
    map: PageMapper,
    host: Host,
    /// Blocks of 4 KiB of a page.
    page_blocks: u64,
    host_bytes: u64,
}

impl HostMap {
    /// A map on this flash, all of which is erased.
    pub fn new(flash: Box<dyn HostFlash>, choice: &MapChoice) -> Result<HostMap, SimError> {
        let room = flash.room();
        let (pages_per_block, blocks_per_unit) = (room.pages_per_block, room.blocks_per_unit());
        let (blocks, slots_per_block) = (room.blocks / blocks_per_unit, pages_per_block * blocks_per_unit);
        let slots = u64::from(blocks) * u64::from(slots_per_block);
        let setup = MapperSetup {
            blocks,
            slots_per_block,
            pages: (slots as f64 / (1.0 + choice.over_provisioning)) as u32,
            reserve_blocks: choice.reserve,
            victim: choice.victim,
            relocation: if choice.shared { vec![0] } else { vec![1, 1] },
            seed: choice.seed,
        };
        let map = PageMapper::new::<SimError>(setup)?;
        let (now, done) = (Nanos(0), Nanos(0));
        let (waiting, ahead) = Default::default();
        let host = Host { flash, room, waiting, ahead, now, done };
        let page_blocks = room.page_bytes / BLOCK_BYTES as u64;
        Ok(HostMap { map, host, page_blocks, host_bytes: 0 })
    }
}

/// Zoned and open-channel, the raw and the function level, with a page map in the host.
impl Target for HostMap {
    fn capacity_blocks(&self) -> u64 {
        u64::from(self.map.setup().pages) * self.page_blocks
    }

    fn alpha(&self) -> Option<f64> {
        Some(self.map.setup().alpha())
    }

    fn blocks_per_page(&self) -> u64 {
        self.page_blocks
    }

    fn request(&mut self, issued: Nanos, request: &Request) -> Result<Nanos, SimError> {
        (self.host.now, self.host.done) = (issued, issued);
        if request.action == Action::Write {
            self.host_bytes += u64::from(request.blocks) * BLOCK_BYTES as u64;
        }
        for page in request.pages(self.page_blocks) {
            let page = page as u32;
            match request.action {
                Action::Read => {
                    if let Some(slot) = self.map.slot_of(page) {
                        let read = self.host.read(slot)?;
                        self.host.done = self.host.done.max(read);
                    }
                }
                Action::Write => drop(self.map.write(&mut self.host, page, NEW_DATA)?),
                Action::Deallocate => drop(self.map.trim::<SimError>(page)?),
            }
        }
        Ok(self.host.done)
    }

    fn totals(&self) -> Totals {
        let moved_bytes = self.map.counts().relocated * self.page_blocks * BLOCK_BYTES as u64;
        self.host.flash.device().totals(self.host_bytes, moved_bytes)
    }

    fn heat(&self) -> Result<Vec<HeatRow>, SimError> {
        self.host.flash.device().heat()
    }

    fn own_latencies(&self) -> Option<(Summary, Summary)> {
        self.host.flash.device().own_latencies()
    }

    fn verify(&self) -> Result<(), SimError> {
        self.map.verify().map_err(SimError::Identity)?;
        self.host.flash.device().verify()
    }
}

impl Host {
    fn slot(&self, slot: u32) -> Slot {
        let width = self.room.blocks_per_unit();
        let (row, part) = (slot / width, slot % width);
        Slot { block: row / self.room.pages_per_block * width + part, page: row % self.room.pages_per_block }
    }

    /// Reads what is in a slot; returns when it is in the host.
    fn read(&mut self, slot: u32) -> Result<Nanos, SimError> {
        if self.waiting.iter().any(|waiting| waiting.slots.contains(&slot)) {
            return Ok(self.now);
        }
        self.flash.read(self.now, self.slot(slot))
    }
}

impl Media for Host {
    type Error = SimError;

    fn program(&mut self, to: u32, _page: u32, from: Option<u32>, front: usize) -> Result<Outcome, SimError> {
        let ready = match (from, self.ahead.front()) {
            (None, _) => self.now,
            (Some(from), Some((slot, read))) if *slot == from => {
                let read = *read;
                self.ahead.pop_front();
                read
            }
            (Some(from), _) => self.read(from)?,
        };
        if self.room.planes == 1 {
            let done = self.flash.program(ready, &[self.slot(to)], from.is_some())?;
            self.done = if from.is_none() { self.done.max(done) } else { self.done };
            return Ok(Outcome::Done);
        }
        let waiting = &mut self.waiting[front];
        waiting.slots.push(to);
        waiting.ready = waiting.ready.max(ready);
        if waiting.slots.len() < self.room.planes as usize {
            return Ok(Outcome::Done);
        }
        let Waiting { slots, ready } = std::mem::take(waiting);
        let slots: Vec<Slot> = slots.into_iter().map(|slot| self.slot(slot)).collect();
        let done = self.flash.program(ready, &slots, from.is_some())?;
        if from.is_none() {
            self.done = self.done.max(done);
        }
        Ok(Outcome::Done)
    }

    fn copying(&mut self, slots: &[u32]) -> Result<(), SimError> {
        self.ahead.clear();
        if self.flash.reads_ahead() {
            for slot in slots {
                let read = self.read(*slot)?;
                self.ahead.push_back((*slot, read));
            }
        }
        Ok(())
    }

    fn erase(&mut self, unit: u32) -> Result<Outcome, SimError> {
        let width = self.room.blocks_per_unit();
        self.flash.erase(self.now, unit * width..(unit + 1) * width)?;
        Ok(Outcome::Done)
    }
}
