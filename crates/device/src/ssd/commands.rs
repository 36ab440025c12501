//! Commands of the drive on logical blocks: read, write, deallocate, flush.

use super::error::SsdError;
use super::fdp::{FdpEvent, FdpStatistics, HandleUsage};
use super::media::{FlashMedia, SlotAddr};
use super::protected::{KeptState, Protected, map_check};
use super::recover;
use super::setup::SsdSetup;
use crate::clock::{Latencies, Latency};
use crate::faults::FaultPlan;
use crate::gc::{MapperCounts, PageMapper};
use crate::nand::{
    BitErrors, FlashCounters, FlashError, FlashSetup, FlashShape, ISSUED_MAX_NS, Keep, OpenChannel, PageAddr,
};
use crate::path::Path;
use crate::timing::nanos_of;
use crate::wear::Wear;
use crate::zoned::DeviceCounters;
use parking_lot::Mutex;
use std::path::Path as FilePath;
use weft_core::{BLOCK_BYTES, Nanos};

/// Transfers that a link remembers, to find gaps between them.
const TRANSFERS_KNOWN: usize = 4096;

/// What the drive's lock guards.
#[derive(Debug)]
pub(super) struct State {
    pub mapper: PageMapper,
    pub media: FlashMedia,
    to_device: Path,
    to_host: Path,
    pub counters: DeviceCounters,
    pub host_bytes: Vec<u64>,
    pub before: Before,
    /// Why the drive takes no commands until it is opened again.
    pub stopped: Option<String>,
    /// The image was opened to be looked at.
    pub look: bool,
}

/// What was before the drive was opened; nothing for a new drive.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub host_bytes: u64,
    pub counts: MapperCounts,
    /// Blocks that were written anew to open it.
    pub rewritten: u64,
    /// Slots of the pages that were programmed, and of the write buffer.
    pub slots: u64,
}

/// A conventional or FDP drive. See the [module](super).
#[derive(Debug)]
pub struct Ssd {
    setup: SsdSetup,
    capacity: u64,
    state: Mutex<State>,
    /// Deallocations are its resets.
    latency: Latency,
}

impl Ssd {
    /// A new drive in memory.
    pub fn new(setup: &SsdSetup) -> Result<Ssd, SsdError> {
        Ssd::with_faults(setup, FaultPlan::default(), BitErrors::default())
    }

    /// A new drive in memory whose flash fails as planned. The spares of `plan` do not matter, those of the setup do.
    pub fn with_faults(setup: &SsdSetup, plan: FaultPlan, bits: BitErrors) -> Result<Ssd, SsdError> {
        let flash = OpenChannel::memory(&setup.flash)?.with_faults(plan).with_bit_errors(bits);
        let (media, units) = FlashMedia::new(setup, flash)?;
        let mapper = PageMapper::new::<FlashError>(setup.mapper(units)?)?;
        Ok(Ssd::assemble(setup, State::new(setup, mapper, media)))
    }

    /// A new drive in an image file, which is sparse; its flash has factory bad blocks as planned. An existing file is
    /// refused unless `overwrite` is set. `docs/formats/drive-image.md` draws the file.
    pub fn create(
        path: &FilePath,
        setup: &SsdSetup,
        plan: FaultPlan,
        overwrite: bool,
    ) -> Result<Ssd, SsdError> {
        if setup.flash.pairing.is_some() {
            let what = "a drive in an image has no pages that share cells; leave out the pairing".into();
            return Err(SsdError::BadSetup(what));
        }
        // Before a file is made: whether a drive can be made of flash without bad blocks.
        let flash = FlashSetup { keep: Keep::Nothing, ..setup.flash.clone() };
        Ssd::new(&SsdSetup { flash, ..setup.clone() })?;
        let setup = SsdSetup { luns_per_unit: Some(setup.unit_luns()), ..setup.clone() };
        let flash = OpenChannel::create_with(path, &setup.flash, &Protected::annex(&setup), overwrite)?;
        let (mut media, units) = FlashMedia::new(&setup, flash.with_faults(plan))?;
        media.protected = media.flash.image().map(|image| Box::new(Protected::new(&setup, image.clone())));
        media.keep_units()?;
        let mapper = PageMapper::new::<FlashError>(setup.mapper(units)?)?;
        let drive = Ssd::assemble(&setup, State::new(&setup, mapper, media));
        drive.flush(Nanos(0))?;
        Ok(drive)
    }

    /// Opens a drive in an image file. Each block is what was written last and acknowledged, also when power went or the
    /// process was killed; after a crash of the host, what was flushed last or later. What was counted goes on, but for
    /// latencies; after the end of a process without notice, reads since the last write are not counted.
    pub fn open(path: &FilePath) -> Result<Ssd, SsdError> {
        Ssd::open_prepared(path, |flash| flash)
    }

    /// The same, on flash that was prepared first: to let it fail, or to let power go while the drive opens.
    pub fn open_prepared(
        path: &FilePath,
        prepare: impl FnOnce(OpenChannel) -> OpenChannel,
    ) -> Result<Ssd, SsdError> {
        recover::open(path, false, prepare)
    }

    /// Opens a drive in an image file that is not to be changed; read permission is enough. It can be read.
    pub fn look(path: &FilePath) -> Result<Ssd, SsdError> {
        recover::open(path, true, |flash| flash)
    }

    pub(super) fn assemble(setup: &SsdSetup, state: State) -> Ssd {
        Ssd {
            setup: setup.clone(),
            capacity: u64::from(state.mapper.setup().pages),
            state: Mutex::new(state),
            latency: Latency::default(),
        }
    }

    /// Does something with the flash inside, such as to let it fail or to let power go. When power has gone, the drive has
    /// to be opened again.
    pub fn with_flash<T>(&self, act: impl FnOnce(&OpenChannel) -> T) -> T {
        act(&self.state.lock().media.flash)
    }

    /// Makes everything that was acknowledged survive a crash of the host. What power or the end of the process can take
    /// needs no flush: the write buffer has capacitors. Takes no time of the device.
    pub fn flush(&self, issued: Nanos) -> Result<Nanos, SsdError> {
        let mut state = self.state.lock();
        state.check_changes()?;
        state.counters.flushes += 1;
        let flushed = state.keep().and_then(|()| Ok(state.media.flash.sync()?));
        state.settle(flushed)?;
        if let Some(protected) = &mut state.media.protected {
            protected.synced();
        }
        Ok(issued)
    }

    /// What the drive was made from.
    pub fn setup(&self) -> &SsdSetup {
        &self.setup
    }

    /// Blocks of 4 KiB that the drive has.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity
    }

    /// Reclaim units, and the 4 KiB blocks of one.
    pub fn units(&self) -> (u32, u32) {
        let state = self.state.lock();
        (state.mapper.setup().blocks, state.mapper.setup().slots_per_block)
    }

    /// What write amplification depends on; see [`MapperSetup::alpha`](crate::gc::MapperSetup::alpha).
    pub fn alpha(&self) -> f64 {
        self.state.lock().mapper.setup().alpha()
    }

    /// How many of everything the flash has.
    pub fn shape(&self) -> FlashShape {
        self.state.lock().media.flash.shape()
    }

    /// Writes blocks from `block` on, through a placement handle. An FDP drive takes handle 0 when none is named; a
    /// conventional one has no handles. Data may be empty for `blocks` blocks when the flash does not keep data. Returns
    /// when the write is complete.
    ///
    /// When the flash gives out in the middle, blocks before that are written.
    pub fn write(
        &self,
        issued: Nanos,
        block: u64,
        blocks: u64,
        data: &[u8],
        handle: Option<u16>,
    ) -> Result<Nanos, SsdError> {
        let issued = Nanos(issued.0.min(ISSUED_MAX_NS));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_changes()?;
        let checked = self.check_range(block, blocks).and_then(|()| {
            self.check_length(data, blocks, state.media.keeps_data)?;
            self.check_handle(handle)
        });
        let front = match checked {
            Ok(front) => front,
            Err(error) => {
                state.counters.refused += 1;
                if let SsdError::NoSuchHandle { handle, .. } = error {
                    state.media.events.add(FdpEvent::InvalidPlacement { handle });
                }
                return state.settle(Err(error));
            }
        };
        let buffered = self.transfer(&mut state.to_device, issued.0, blocks * BLOCK_BYTES as u64);
        (state.media.now, state.media.taken) = (buffered, buffered);
        state.counters.writes += 1;
        let written = state.write(block, blocks, data, front);
        state.settle(written)?;
        let done = state.media.taken;
        self.latency.write.record(done - issued.0);
        Ok(Nanos(done))
    }

    /// Reads blocks from `block` on; those that were never written or were deallocated read as zero. `out` may be empty
    /// for `blocks` blocks: then only time passes. Returns when the read is complete.
    pub fn read(&self, issued: Nanos, block: u64, blocks: u64, out: &mut [u8]) -> Result<Nanos, SsdError> {
        let issued = Nanos(issued.0.min(ISSUED_MAX_NS));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_running()?;
        let checked = self.check_range(block, blocks).and_then(|()| self.check_length(out, blocks, false));
        if let Err(error) = checked {
            state.counters.refused += 1;
            return Err(error);
        }
        out.fill(0);
        state.counters.reads += 1;
        let mut ready = issued.0;
        let mut at = 0;
        let mut unreadable = None;
        while at < blocks {
            let logical = (block + at) as u32;
            let run = state.run_of(logical, blocks - at);
            if state.media.lost.contains(&logical) {
                unreadable = unreadable.or(Some(block + at));
            }
            let part = out.get_mut(at as usize * BLOCK_BYTES..(at + run) as usize * BLOCK_BYTES);
            match state.load(issued, logical, run, part.unwrap_or_default()) {
                Ok(done) => ready = ready.max(done),
                Err(FlashError::Uncorrectable { done, .. }) => {
                    ready = ready.max(done.0);
                    unreadable = unreadable.or(Some(block + at));
                }
                Err(error) => return state.settle(Err(error.into())),
            }
            at += run;
        }
        let bytes = blocks * BLOCK_BYTES as u64;
        state.counters.read_bytes += bytes;
        let done = self.transfer(&mut state.to_host, ready, bytes);
        self.latency.read.record(done - issued.0);
        match unreadable {
            Some(block) => Err(SsdError::Unreadable { block }),
            None => Ok(Nanos(done)),
        }
    }

    /// Deallocates blocks: the drive need not keep them any more, and they read as zero. Takes no time.
    pub fn deallocate(&self, issued: Nanos, block: u64, blocks: u64) -> Result<Nanos, SsdError> {
        let mut state = self.state.lock();
        state.check_changes()?;
        if let Err(error) = self.check_range(block, blocks) {
            state.counters.refused += 1;
            return state.settle(Err(error));
        }
        for logical in block..block + blocks {
            state.mapper.trim::<FlashError>(logical as u32)?;
            state.media.forget_loss(logical as u32);
            state.media.forget_alone(logical as u32);
        }
        let kept = state.media.keep_trim(block as u32, blocks as u32).map_err(SsdError::Flash);
        state.settle(kept)?;
        self.latency.reset.record(0);
        Ok(issued)
    }

    /// Gives a placement handle another reclaim unit before its own is full (NVMe "reclaim unit handle update"). What
    /// waits in the write buffer is padded and programmed.
    pub fn update_handle(&self, issued: Nanos, handle: u16) -> Result<(), SsdError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_changes()?;
        let front = self.check_handle(Some(handle)).inspect_err(|_| state.counters.refused += 1)?;
        let left = state.mapper.room(front);
        if left == 0 {
            return Ok(());
        }
        state.media.now = issued.0;
        let padded = state.media.pad(front);
        if padded.is_ok() {
            state.mapper.close(front);
            if let Some(protected) = &mut state.media.protected {
                protected.closed[front] = protected.sequence;
            }
            let left_bytes = u64::from(left) * BLOCK_BYTES as u64;
            state.media.events.add(FdpEvent::UnitNotFull { handle, left_bytes });
        }
        state.settle(padded.map_err(SsdError::Flash))
    }

    /// The flash page that holds a block; `None` while it waits in the write buffer, and when it was never written or was
    /// deallocated.
    pub fn page_of(&self, block: u64) -> Result<Option<PageAddr>, SsdError> {
        self.check_range(block, 1)?;
        let state = self.state.lock();
        let slot = state.mapper.slot_of(block as u32).filter(|slot| state.media.in_memory(*slot).is_none());
        Ok(slot.map(|slot| state.media.place(slot).page))
    }

    /// When the flash and the links have done everything issued so far.
    pub fn now(&self) -> Nanos {
        self.state.lock().media.flash.now()
    }

    /// What was counted, as other devices count it. What the drive moved is in `gc_bytes`; there are no zones to reset
    /// or to open.
    pub fn counters(&self) -> DeviceCounters {
        let state = self.state.lock();
        let flash = state.media.flash.counters();
        DeviceCounters {
            gc_bytes: state.counts().relocated * BLOCK_BYTES as u64,
            media_bytes: state.media.media_bytes,
            erases: flash.blocks_erased,
            now: state.media.flash.now(),
            ..state.counters
        }
    }

    /// What the flash inside counted.
    pub fn flash_counters(&self) -> FlashCounters {
        self.state.lock().media.flash.counters()
    }

    /// What the page map inside counted, in blocks of 4 KiB and in reclaim units.
    pub fn mapper_counts(&self) -> MapperCounts {
        self.state.lock().counts()
    }

    /// Latencies in device time; `reset` has the deallocations. A flush takes no time, since the write buffer has
    /// capacitors.
    pub fn latencies(&self) -> Latencies {
        self.latency.summary()
    }

    /// Erases of each erase block, in the order of the blocks' numbers.
    pub fn erases_by_block(&self) -> Result<Vec<u32>, SsdError> {
        let state = self.state.lock();
        let flash = &state.media.flash;
        let mut erases = Vec::new();
        for lun in 0..flash.shape().luns() {
            erases.extend(flash.lun_info(flash.shape().lun_at(lun))?.iter().map(|block| block.erases));
        }
        Ok(erases)
    }

    /// Wear of the flash.
    pub fn wear(&self) -> Result<Wear, SsdError> {
        Ok(Wear::of(&self.erases_by_block()?))
    }

    /// The FDP statistics log page; a conventional drive counts the same.
    pub fn fdp_statistics(&self) -> FdpStatistics {
        let state = self.state.lock();
        FdpStatistics {
            hbmw: state.counters.host_bytes,
            mbmw: state.media.media_bytes,
            mbe: state.media.erased_bytes,
        }
    }

    /// The use of each placement handle; none of a conventional drive.
    pub fn handle_usage(&self) -> Vec<HandleUsage> {
        let state = self.state.lock();
        let usage = |(handle, isolation): (usize, &_)| HandleUsage {
            handle: handle as u16,
            isolation: *isolation,
            host_bytes: state.host_bytes[handle],
            moved_bytes: state.media.moved_slots[handle] * BLOCK_BYTES as u64,
            available_bytes: u64::from(state.mapper.room(handle)) * BLOCK_BYTES as u64,
        };
        self.setup.handles.iter().enumerate().map(usage).collect()
    }

    /// The FDP events log page, the last [`EVENTS_MAX`](super::EVENTS_MAX) events.
    pub fn fdp_events(&self) -> Vec<FdpEvent> {
        self.state.lock().media.events.to_vec()
    }

    /// Media reallocated events since the drive was made, those that the log has dropped too.
    pub fn media_reallocated_events(&self) -> u64 {
        self.state.lock().media.events.reallocated
    }

    /// Checks the erase identity from the host's bytes down to the flash's pages:
    ///
    /// ```text
    ///  host + moved + rewritten after failures == slots filled                      (since the drive was opened)
    ///  slots filled + padding                  == slots of programmed pages + slots in the write buffer
    ///  bytes erased                            == erases of the flash x erase block
    /// ```
    ///
    /// and what [`PageMapper::verify`] and [`OpenChannel::verify_identity`] check.
    pub fn verify_identity(&self) -> Result<(), SsdError> {
        let state = self.state.lock();
        let media = &state.media;
        media.flash.verify_identity()?;
        state.mapper.verify().map_err(SsdError::EraseIdentity)?;
        let flash = media.flash.counters();
        let counts = state.mapper.counts();
        let slots_programmed = flash.pages_programmed * u64::from(media.slots_per_page);
        let checks = [
            (
                "host blocks written",
                (counts.written - state.before.rewritten) * BLOCK_BYTES as u64,
                state.counters.host_bytes - state.before.host_bytes,
            ),
            ("slots filled", media.slots_filled, counts.written + counts.relocated + counts.failed),
            (
                "slots programmed",
                state.before.slots + media.slots_filled + media.slots_padded,
                slots_programmed + media.slots_buffered(),
            ),
            ("media bytes", media.media_bytes, slots_programmed * BLOCK_BYTES as u64),
            ("bytes erased", media.erased_bytes, flash.blocks_erased * media.flash.shape().block_bytes()),
        ];
        match checks.into_iter().find(|(_, left, right)| left != right) {
            Some((what, left, right)) => {
                Err(SsdError::EraseIdentity(format!("{what}: {left} is not {right}")))
            }
            None => Ok(()),
        }
    }

    /// Moves bytes over a link from `ready` on; returns when they are moved.
    fn transfer(&self, link: &mut Path, ready: u64, bytes: u64) -> u64 {
        let duration = nanos_of(bytes, self.setup.flash.geometry.timing.host_bytes_per_s);
        let done = link.transfer(0, ready, duration);
        link.forget_beyond(TRANSFERS_KNOWN);
        done
    }

    fn check_range(&self, block: u64, blocks: u64) -> Result<(), SsdError> {
        match block.checked_add(blocks) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(SsdError::OutOfRange { block, blocks, capacity: self.capacity }),
        }
    }

    fn check_length(&self, data: &[u8], blocks: u64, has_to_be: bool) -> Result<(), SsdError> {
        let whole = data.len() as u64 == blocks * BLOCK_BYTES as u64;
        if whole || (data.is_empty() && !has_to_be) {
            return Ok(());
        }
        Err(SsdError::WrongLength { given: data.len(), blocks })
    }

    fn check_handle(&self, handle: Option<u16>) -> Result<usize, SsdError> {
        let handles = self.setup.handles.len() as u16;
        match handle {
            Some(handle) if handle >= handles => Err(SsdError::NoSuchHandle { handle, handles }),
            Some(handle) => Ok(usize::from(handle)),
            None => Ok(0),
        }
    }
}

impl Drop for Ssd {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Err(error) = state.keep_all() {
            tracing::error!(%error, "what the drive has counted was not kept");
        }
    }
}

impl State {
    pub fn new(setup: &SsdSetup, mapper: PageMapper, media: FlashMedia) -> State {
        State {
            mapper,
            media,
            to_device: Path::default(),
            to_host: Path::default(),
            counters: DeviceCounters::default(),
            host_bytes: vec![0; setup.handles.len().max(1)],
            before: Before::default(),
            stopped: None,
            look: false,
        }
    }

    /// What the page map has counted since the drive was made.
    fn counts(&self) -> MapperCounts {
        let (then, now) = (self.before.counts, self.mapper.counts());
        MapperCounts {
            written: then.written + now.written - self.before.rewritten,
            relocated: then.relocated + now.relocated,
            failed: then.failed + now.failed + self.before.rewritten,
            trimmed: then.trimmed + now.trimmed,
            collections: then.collections + now.collections,
            erases: then.erases + now.erases,
            erased: then.erased + now.erased,
        }
    }

    fn check_running(&self) -> Result<(), SsdError> {
        match &self.stopped {
            Some(_) if self.media.flash.is_cut() => Err(FlashError::PowerLost.into()),
            Some(why) => Err(SsdError::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    fn check_changes(&self) -> Result<(), SsdError> {
        if self.look {
            return Err(SsdError::Stopped(
                "its image was opened to be looked at, and this would change it".into(),
            ));
        }
        self.check_running()
    }

    /// Keeps what a command has counted. After an error that leaves a command half done, the drive stops.
    pub fn settle<T>(&mut self, outcome: Result<T, SsdError>) -> Result<T, SsdError> {
        let outcome = self.keep().and(outcome);
        if let Err(SsdError::Flash(error)) = &outcome {
            self.stopped = Some(error.to_string());
        }
        outcome
    }

    /// Keeps what the drive has counted in its image, if it is in one.
    pub fn keep(&mut self) -> Result<(), SsdError> {
        self.keep_with(0)
    }

    /// Keeps it at the end, with what the map is known by when the drive is opened again.
    fn keep_all(&mut self) -> Result<(), SsdError> {
        // What has stopped is found as after a power cut, and blocks that are in cells alone may find a place.
        let is_whole =
            self.stopped.is_none() && !self.media.flash.is_cut() && self.media.first_alone().is_none();
        let pages = 0..self.mapper.setup().pages;
        let mapped = pages.filter_map(|page| Some((self.mapper.slot_of(page)?, page)));
        self.keep_with(if is_whole { map_check(mapped) + 1 } else { 0 })
    }

    fn keep_with(&mut self, map_check: u64) -> Result<(), SsdError> {
        let counts = self.counts();
        let State { media, counters, host_bytes, .. } = self;
        let Some(protected) = &mut media.protected else { return Ok(()) };
        for event in media.events.take_unkept() {
            protected.keep_event(&event, media.events.reallocated)?;
        }
        let state = KeptState {
            counts: [
                protected.sequence,
                media.events.reallocated,
                counters.writes,
                counters.reads,
                counters.host_bytes,
                counters.read_bytes,
                counters.refused,
                counters.flushes,
                map_check,
                counts.written,
                counts.relocated,
                counts.failed,
                counts.trimmed,
                counts.collections,
                counts.erases,
                counts.erased,
            ],
            host_bytes: host_bytes.clone(),
            moved_slots: media.moved_slots.clone(),
            closed: protected.closed.clone(),
        };
        Ok(protected.keep_state(&state)?)
    }

    /// Goes on counting from what was kept.
    pub fn count_on(&mut self, kept: KeptState) {
        let [_, _, writes, reads, host_bytes, read_bytes, refused, flushes, _, rest @ ..] = kept.counts;
        let [written, relocated, failed, trimmed, collections, erases, erased] = rest;
        self.counters =
            DeviceCounters { writes, reads, host_bytes, read_bytes, refused, flushes, ..self.counters };
        self.host_bytes = kept.host_bytes;
        self.media.moved_slots = kept.moved_slots;
        self.before.host_bytes = host_bytes;
        self.before.counts =
            MapperCounts { written, relocated, failed, trimmed, collections, erases, erased };
    }

    fn write(&mut self, block: u64, blocks: u64, data: &[u8], front: usize) -> Result<(), SsdError> {
        for at in 0..blocks {
            let logical = (block + at) as u32;
            self.media.incoming.clear();
            if !data.is_empty() {
                let from = at as usize * BLOCK_BYTES;
                self.media.incoming.extend_from_slice(&data[from..from + BLOCK_BYTES]);
            }
            self.write_block(logical, front)?;
            self.media.forget_loss(logical);
            self.media.forget_alone(logical);
            self.counters.host_bytes += BLOCK_BYTES as u64;
            self.host_bytes[front] += BLOCK_BYTES as u64;
        }
        self.write_back()
    }

    /// How many of `most` logical blocks from this one on lie behind each other in one page of the flash; 1 when the
    /// first one is not in flash.
    fn run_of(&self, logical: u32, most: u64) -> u64 {
        let Some(first) = self.mapper.slot_of(logical) else { return 1 };
        let in_page = u64::from(self.media.slots_per_page - first % self.media.slots_per_page);
        if self.media.in_memory(first).is_some() {
            return 1;
        }
        let follows = |at: &u64| {
            let slot = first + *at as u32;
            self.mapper.slot_of(logical + *at as u32) == Some(slot)
                && !self.media.lost.contains(&(logical + *at as u32))
        };
        (1..most.min(in_page)).take_while(follows).count() as u64 + 1
    }

    /// Reads a run of blocks; returns when they are in the drive's memory.
    fn load(&self, issued: Nanos, logical: u32, run: u64, out: &mut [u8]) -> Result<u64, FlashError> {
        let slot = self.mapper.slot_of(logical);
        let known = slot.map_or_else(|| self.media.alone(logical), |slot| self.media.in_memory(slot));
        if let Some(known) = known {
            if known.len() == out.len() {
                out.copy_from_slice(known);
            }
            return Ok(issued.0);
        }
        let Some(slot) = slot else { return Ok(issued.0) };
        let SlotAddr { page, block_in_page } = self.media.place(slot);
        let bytes = run as u32 * BLOCK_BYTES as u32;
        let done = if out.is_empty() {
            self.media.flash.touch(issued, page, bytes)?
        } else {
            self.media.read(issued, page, block_in_page * BLOCK_BYTES as u32, out)?
        };
        Ok(done.done.0)
    }
}
