//! A device whose commands fail for a while, or from some command on, and that is whole otherwise.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::ZoneId;
use weft_device::{DeviceError, ZonedDevice};

/// Which commands are counted and fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Reads,
    Changes,
    /// Writes, of which flash refuses the place: another zone has to take them.
    Writes,
    /// Ends of zones that are not full, which flash refuses for good.
    Finishes,
}

/// A device with errors that are not damage: the next attempt may succeed.
pub struct Failing {
    inner: Arc<dyn ZonedDevice>,
    kind: Kind,
    /// Numbers of the commands of this kind that fail.
    fail: Range<u64>,
    /// Commands of this kind so far.
    pub commands: AtomicU64,
}

impl Failing {
    pub fn new(inner: Arc<dyn ZonedDevice>, kind: Kind, fail: Range<u64>) -> Arc<Failing> {
        Arc::new(Failing { inner, kind, fail, commands: AtomicU64::new(0) })
    }

    fn turn(&self, kind: Kind) -> Result<&dyn ZonedDevice, DeviceError> {
        if kind == self.kind && self.fail.contains(&self.commands.fetch_add(1, Relaxed)) {
            let source = std::io::Error::from_raw_os_error(5);
            return Err(DeviceError::Io { path: "the drive".into(), source });
        }
        Ok(&*self.inner)
    }

    fn read_turn(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        self.turn(Kind::Reads)
    }

    fn change_turn(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        self.turn(Kind::Changes)
    }
}

impl ZonedDevice for Failing {
    crate::pass_on! {
        read_turn => shape report read;
        change_turn => append open close reset flush;
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &weft_core::Tag) -> Result<(), DeviceError> {
        let refused = DeviceError::Media { zone, at, what: "program" };
        self.turn(Kind::Writes).map_err(|_| refused)?;
        self.change_turn()?.write(zone, at, data, tag)
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let refused = DeviceError::Media { zone, at: 0, what: "program" };
        self.turn(Kind::Finishes).map_err(|_| refused)?;
        self.change_turn()?.finish(zone)
    }
}
