//! Commands of the drive on logical blocks: read, write, deallocate, flush.

use super::error::SsdError;
use super::fdp::{FdpEvent, FdpStatistics, HandleUsage};
use super::media::{FlashMedia, SlotAddr};
use super::setup::SsdSetup;
use crate::clock::Latencies;
use crate::faults::FaultPlan;
use crate::gc::{MapperCounts, PageMapper};
use crate::nand::{BitErrors, FlashCounters, FlashError, FlashShape, ISSUED_MAX_NS, OpenChannel, PageAddr};
use crate::path::Path;
use crate::timing::nanos_of;
use crate::wear::Wear;
use crate::zoned::DeviceCounters;
use parking_lot::Mutex;
use weft_core::hist::Histogram;
use weft_core::{BLOCK_BYTES, Nanos};

/// Transfers that a link remembers, to find gaps between them.
const TRANSFERS_KNOWN: usize = 4096;

/// What the drive's lock guards.
#[derive(Debug)]
struct State {
    mapper: PageMapper,
    media: FlashMedia,
    to_device: Path,
    to_host: Path,
    counters: DeviceCounters,
    host_bytes: Vec<u64>,
}

/// A conventional or FDP drive. See the [module](super).
#[derive(Debug)]
pub struct Ssd {
    setup: SsdSetup,
    capacity: u64,
    state: Mutex<State>,
    read: Histogram,
    write: Histogram,
    deallocate: Histogram,
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
        let capacity = u64::from(mapper.setup().pages);
        let state = State {
            mapper,
            media,
            to_device: Path::default(),
            to_host: Path::default(),
            counters: DeviceCounters::default(),
            host_bytes: vec![0; setup.handles.len().max(1)],
        };
        Ok(Ssd {
            setup: setup.clone(),
            capacity,
            state: Mutex::new(state),
            read: Histogram::default(),
            write: Histogram::default(),
            deallocate: Histogram::default(),
        })
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
        let checked = self.check_range(block, blocks).and_then(|()| {
            self.check_length(data, blocks, state.media.keeps_data())?;
            self.check_handle(handle)
        });
        let front = match checked {
            Ok(front) => front,
            Err(error) => {
                state.counters.refused += 1;
                if let SsdError::NoSuchHandle { handle, .. } = error {
                    state.media.events.add(FdpEvent::InvalidPlacement { handle });
                }
                return Err(error);
            }
        };
        let bytes = blocks * BLOCK_BYTES as u64;
        let duration = nanos_of(bytes, self.setup.flash.geometry.timing.host_bytes_per_s);
        let buffered = state.to_device.transfer(0, issued.0, duration);
        state.to_device.forget_beyond(TRANSFERS_KNOWN);
        (state.media.now, state.media.taken) = (buffered, buffered);
        state.counters.writes += 1;
        for at in 0..blocks {
            let logical = (block + at) as u32;
            state.media.incoming.clear();
            if !data.is_empty() {
                let from = at as usize * BLOCK_BYTES;
                state.media.incoming.extend_from_slice(&data[from..from + BLOCK_BYTES]);
            }
            state.mapper.write(&mut state.media, logical, front)?;
            state.media.forget_loss(logical);
            state.counters.host_bytes += BLOCK_BYTES as u64;
            state.host_bytes[front] += BLOCK_BYTES as u64;
        }
        let done = state.media.taken;
        self.write.record(done - issued.0);
        Ok(Nanos(done))
    }

    /// Reads blocks from `block` on; those that were never written or were deallocated read as zero. `out` may be empty
    /// for `blocks` blocks: then only time passes. Returns when the read is complete.
    pub fn read(&self, issued: Nanos, block: u64, blocks: u64, out: &mut [u8]) -> Result<Nanos, SsdError> {
        let issued = Nanos(issued.0.min(ISSUED_MAX_NS));
        let mut guard = self.state.lock();
        let state = &mut *guard;
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
            if state.media.is_lost(logical) {
                unreadable = unreadable.or(Some(block + at));
            }
            let part = out.get_mut(at as usize * BLOCK_BYTES..(at + run) as usize * BLOCK_BYTES);
            match state.load(issued, logical, run, part.unwrap_or_default()) {
                Ok(done) => ready = ready.max(done),
                Err(FlashError::Uncorrectable { done, .. }) => {
                    ready = ready.max(done.0);
                    unreadable = unreadable.or(Some(block + at));
                }
                Err(error) => return Err(error.into()),
            }
            at += run;
        }
        let bytes = blocks * BLOCK_BYTES as u64;
        state.counters.read_bytes += bytes;
        let duration = nanos_of(bytes, self.setup.flash.geometry.timing.host_bytes_per_s);
        let done = state.to_host.transfer(0, ready, duration);
        state.to_host.forget_beyond(TRANSFERS_KNOWN);
        self.read.record(done - issued.0);
        match unreadable {
            Some(block) => Err(SsdError::Unreadable { block }),
            None => Ok(Nanos(done)),
        }
    }

    /// Deallocates blocks: the drive need not keep them any more, and they read as zero. Takes no time.
    pub fn deallocate(&self, issued: Nanos, block: u64, blocks: u64) -> Result<Nanos, SsdError> {
        let mut state = self.state.lock();
        if let Err(error) = self.check_range(block, blocks) {
            state.counters.refused += 1;
            return Err(error);
        }
        for logical in block..block + blocks {
            state.mapper.trim::<FlashError>(logical as u32)?;
            state.media.forget_loss(logical as u32);
        }
        self.deallocate.record(0);
        Ok(issued)
    }

    /// Gives a placement handle another reclaim unit before its own is full (NVMe "reclaim unit handle update"). What
    /// waits in the write buffer is padded and programmed.
    pub fn update_handle(&self, issued: Nanos, handle: u16) -> Result<(), SsdError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let front = self.check_handle(Some(handle)).inspect_err(|_| state.counters.refused += 1)?;
        let left = state.mapper.room(front);
        if left == 0 {
            return Ok(());
        }
        state.media.now = issued.0;
        state.media.pad(front)?;
        state.mapper.close(front);
        let left_bytes = u64::from(left) * BLOCK_BYTES as u64;
        state.media.events.add(FdpEvent::UnitNotFull { handle, left_bytes });
        Ok(())
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
            gc_bytes: state.mapper.counts().relocated * BLOCK_BYTES as u64,
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
        self.state.lock().mapper.counts()
    }

    /// Latencies in device time; `reset` has the deallocations. A flush takes no time, since the write buffer has
    /// capacitors.
    pub fn latencies(&self) -> Latencies {
        Latencies {
            read: self.read.summary(),
            write: self.write.summary(),
            reset: self.deallocate.summary(),
            ..Latencies::default()
        }
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
    ///  host + moved + rewritten after failures == slots filled
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
        let slots_programmed = flash.pages_programmed * u64::from(media.slots_per_page());
        let checks = [
            ("host blocks written", counts.written * BLOCK_BYTES as u64, state.counters.host_bytes),
            ("slots filled", media.slots_filled, counts.written + counts.relocated + counts.failed),
            (
                "slots programmed",
                media.slots_filled + media.slots_padded,
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

impl State {
    /// How many of `most` logical blocks from this one on lie behind each other in one page of the flash; 1 when the
    /// first one is not in flash.
    fn run_of(&self, logical: u32, most: u64) -> u64 {
        let Some(first) = self.mapper.slot_of(logical) else { return 1 };
        let in_page = u64::from(self.media.slots_per_page() - first % self.media.slots_per_page());
        if self.media.in_memory(first).is_some() {
            return 1;
        }
        let follows = |at: &u64| {
            let slot = first + *at as u32;
            self.mapper.slot_of(logical + *at as u32) == Some(slot)
                && !self.media.is_lost(logical + *at as u32)
        };
        (1..most.min(in_page)).take_while(follows).count() as u64 + 1
    }

    /// Reads a run of blocks; returns when they are in the drive's memory.
    fn load(&self, issued: Nanos, logical: u32, run: u64, out: &mut [u8]) -> Result<u64, FlashError> {
        let Some(slot) = self.mapper.slot_of(logical) else { return Ok(issued.0) };
        if let Some(known) = self.media.in_memory(slot) {
            if known.len() == out.len() {
                out.copy_from_slice(known);
            }
            return Ok(issued.0);
        }
        let SlotAddr { page, block_in_page } = self.media.place(slot);
        let bytes = run as u32 * BLOCK_BYTES as u32;
        let done = if out.is_empty() {
            self.media.flash.touch(issued, page, bytes)?
        } else {
            self.media.flash.read(issued, page, block_in_page * BLOCK_BYTES as u32, out, &mut [])?
        };
        Ok(done.done.0)
    }
}
