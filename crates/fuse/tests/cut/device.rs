//! A device that goes on working, and keeps what cuts would have left of it.

use super::Case;
use super::progress::Progress;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::SyncSender;
use weft_core::{Tag, ZoneId};
use weft_device::zoned::DeviceCounters;
use weft_device::{DeviceError, PowerCut, ZoneReport, ZonedDevice, ZonedInfo};

/// How a device cheats, so that the judge is seen to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    None,
    /// It makes nothing durable.
    SkipsFlushes,
    /// The same of one flush in four.
    SkipsSomeFlushes,
}

/// The device as it is after a cut, and how far the load was.
pub struct Moment {
    pub device: PowerCut,
    /// The command that power went with.
    pub command: u64,
    /// Operations that had returned before, by process.
    pub returned: Vec<u64>,
    /// Operations that had begun, by process; perhaps one that began a little later.
    pub begun: Vec<u64>,
}

/// See the module.
pub struct CutDevice {
    power: PowerCut,
    every: u64,
    seed: u64,
    lie: Lie,
    is_armed: AtomicBool,
    commands: AtomicU64,
    flushes: AtomicU64,
    progress: Arc<Progress>,
    moments: Mutex<Option<SyncSender<Moment>>>,
}

impl CutDevice {
    pub fn new(
        power: PowerCut,
        case: &Case,
        progress: Arc<Progress>,
        moments: SyncSender<Moment>,
    ) -> CutDevice {
        CutDevice {
            power,
            every: case.every,
            seed: case.seed,
            lie: case.lie,
            is_armed: AtomicBool::new(false),
            commands: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            progress,
            moments: Mutex::new(Some(moments)),
        }
    }

    /// From now on power is cut, or not any more.
    pub fn arm(&self, on: bool) {
        self.is_armed.store(on, SeqCst);
    }

    /// No moment follows.
    pub fn end(&self) {
        *self.moments.lock() = None;
    }

    pub fn commands(&self) -> u64 {
        self.commands.load(SeqCst)
    }

    /// The device after the volume was closed and power was cut.
    pub fn closed(&self) -> PowerCut {
        self.power.reopen(self.seed).unwrap()
    }

    /// Keeps the device as a cut now would leave it, when it is time.
    fn cut(&self) {
        if !self.is_armed.load(SeqCst) {
            return;
        }
        let command = self.commands.fetch_add(1, SeqCst);
        if command % self.every != self.seed % self.every {
            return;
        }
        // In this order: what had returned is promised; what the device has had begun before.
        let returned = self.progress.all_returned();
        let device = self.power.reopen(self.seed ^ command << 16).unwrap();
        let begun = self.progress.all_begun();
        if let Some(moments) = &*self.moments.lock() {
            moments.send(Moment { device, command, returned, begun }).unwrap();
        }
    }

    /// Power goes with a command: it is done whole, in part, or not at all, as the device's history says.
    fn change<T>(&self, command: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        let result = command();
        self.cut();
        result
    }
}

impl ZonedDevice for CutDevice {
    fn info(&self) -> ZonedInfo {
        self.power.info()
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.power.report(zone)
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        self.change(|| self.power.write(zone, at, data, tag))
    }

    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        self.change(|| self.power.append(zone, data, tag))
    }

    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.power.read(zone, at, out)
    }

    fn open(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(|| self.power.open(zone))
    }

    fn close(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(|| self.power.close(zone))
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(|| self.power.finish(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(|| self.power.reset(zone))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        // A flush that power is lost in has made nothing certain.
        self.cut();
        let number = self.flushes.fetch_add(1, SeqCst);
        let skips = match self.lie {
            Lie::None => false,
            Lie::SkipsFlushes => true,
            Lie::SkipsSomeFlushes => number.is_multiple_of(4),
        };
        if skips && self.is_armed.load(SeqCst) { Ok(()) } else { self.power.flush() }
    }

    fn counters(&self) -> DeviceCounters {
        self.power.counters()
    }

    fn verify_identity(&self) -> Result<(), DeviceError> {
        self.power.verify_identity()
    }
}
