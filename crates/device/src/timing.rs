//! How long flash operations take.

use crate::DeviceError;
use serde::{Deserialize, Serialize};
use weft_core::codec::{Reader, Truncated};

/// The longest that an operation may take, in nanoseconds: a minute.
pub(crate) const NS_MAX: u64 = 60_000_000_000;

/// Durations and rates of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Timing {
    /// From the flash array into the register of a plane, in nanoseconds.
    pub page_read_ns: u64,
    /// From the registers into one program unit, in nanoseconds.
    pub program_ns: u64,
    /// Erase of one erase-block group, in nanoseconds.
    pub erase_ns: u64,
    /// Rate of a channel, in bytes per second.
    pub channel_bytes_per_s: u64,
    /// Rate between host and device, in bytes per second.
    pub host_bytes_per_s: u64,
    /// Commands that may be under way at once.
    pub queue_depth: u32,
}

impl Timing {
    /// What the presets share: the host link of NVMeVirt's configurations (3,360 MB/s) and a queue of 64 commands.
    pub(crate) const COMMON: Timing = Timing {
        page_read_ns: 0,
        program_ns: 0,
        erase_ns: 0,
        channel_bytes_per_s: 1_000_000_000,
        host_bytes_per_s: 3_360_000_000,
        queue_depth: 64,
    };

    /// Times and rates, as the headers of images have them: all but the queue.
    pub(crate) fn words(&self) -> [u64; 5] {
        [self.page_read_ns, self.program_ns, self.erase_ns, self.channel_bytes_per_s, self.host_bytes_per_s]
    }

    /// Reads what [`words`](Timing::words) gave.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Timing, Truncated> {
        Ok(Timing {
            page_read_ns: r.u64()?,
            program_ns: r.u64()?,
            erase_ns: r.u64()?,
            channel_bytes_per_s: r.u64()?,
            host_bytes_per_s: r.u64()?,
            ..Timing::COMMON
        })
    }

    pub(crate) fn validate(&self) -> Result<(), DeviceError> {
        let bad = |what: String| Err(DeviceError::BadGeometry(what));
        for (name, value) in [
            ("page_read_ns", self.page_read_ns),
            ("program_ns", self.program_ns),
            ("erase_ns", self.erase_ns),
        ] {
            if value > NS_MAX {
                return bad(format!("timing.{name} is {value}; a minute ({NS_MAX}) is the most"));
            }
        }
        for (name, value) in
            [("channel_bytes_per_s", self.channel_bytes_per_s), ("host_bytes_per_s", self.host_bytes_per_s)]
        {
            if !(1_000..=1 << 50).contains(&value) {
                return bad(format!("timing.{name} is {value}; it has to be 1000 to 2^50"));
            }
        }
        if !(1..=1 << 16).contains(&self.queue_depth) {
            return bad(format!("timing.queue_depth is {}; it has to be 1 to 65536", self.queue_depth));
        }
        Ok(())
    }
}

/// How long `bytes` take at this rate, in nanoseconds, rounded down.
pub(crate) fn nanos_of(bytes: u64, bytes_per_s: u64) -> u64 {
    // Within 64 bits a division is several times as fast, and pages are small.
    match bytes.checked_mul(1_000_000_000) {
        Some(product) => product / bytes_per_s,
        None => (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64,
    }
}

/// The `[timing]` table of a geometry file: any field of [`Timing`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimingFile {
    page_read_ns: Option<u64>,
    program_ns: Option<u64>,
    erase_ns: Option<u64>,
    channel_bytes_per_s: Option<u64>,
    host_bytes_per_s: Option<u64>,
    queue_depth: Option<u32>,
}

impl TimingFile {
    pub(crate) fn apply(self, timing: &mut Timing) {
        macro_rules! take {
            ($($field:ident),*) => {$( if let Some(v) = self.$field { timing.$field = v; } )*};
        }
        take!(page_read_ns, program_ns, erase_ns, channel_bytes_per_s, host_bytes_per_s, queue_depth);
    }
}
