//! The reports of an FDP drive, named as the NVMe log pages.

use super::setup::Isolation;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Events that a drive keeps; older ones are dropped, as in the log page.
pub const EVENTS_MAX: usize = 1024;

/// The FDP statistics log page, in bytes since the drive was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FdpStatistics {
    /// HBMW: host bytes with metadata written.
    pub hbmw: u64,
    /// MBMW: media bytes with metadata written, to program what the host wrote and what the drive moved.
    pub mbmw: u64,
    /// MBE: media bytes erased.
    pub mbe: u64,
}

/// The reclaim unit handle usage log page and status of one placement handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandleUsage {
    /// Placement handle, from 0.
    pub handle: u16,
    /// Its isolation.
    pub isolation: Isolation,
    /// Bytes that the host wrote through it.
    pub host_bytes: u64,
    /// Bytes written through it that the drive has moved since.
    pub moved_bytes: u64,
    /// RUAMW: bytes that its reclaim unit still takes; 0 when the next write begins another one.
    pub available_bytes: u64,
}

/// An entry of the FDP events log page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum FdpEvent {
    /// The drive has moved data of a reclaim unit (type 80h, "media reallocated").
    MediaReallocated {
        /// The handle that the unit was filled through; none when it held data that was moved before.
        handle: Option<u16>,
        /// NLBAM: blocks moved.
        blocks: u32,
        /// When, in nanoseconds of device time.
        at_ns: u64,
    },
    /// A handle was given another reclaim unit before its own was full (type 00h, "reclaim unit not fully written to
    /// capacity").
    UnitNotFull {
        /// Placement handle, from 0.
        handle: u16,
        /// Bytes that were not written.
        left_bytes: u64,
    },
    /// A write named a handle that is not there (type 03h, "invalid placement identifier"). It was refused.
    InvalidPlacement {
        /// Placement handle, from 0.
        handle: u16,
    },
}

/// The events that are kept.
#[derive(Default, Debug)]
pub(super) struct Events {
    kept: VecDeque<FdpEvent>,
    /// Media reallocated events, dropped ones too.
    pub reallocated: u64,
    /// The last events that the drive's image does not have yet.
    unkept: usize,
}

impl Events {
    pub fn add(&mut self, event: FdpEvent) {
        self.reallocated += u64::from(matches!(event, FdpEvent::MediaReallocated { .. }));
        if self.kept.len() == EVENTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
        self.unkept = (self.unkept + 1).min(EVENTS_MAX);
    }

    /// The events that the drive's image does not have yet, in their order; from now on it has them.
    pub fn take_unkept(&mut self) -> Vec<FdpEvent> {
        let unkept = std::mem::take(&mut self.unkept);
        self.kept.range(self.kept.len() - unkept..).copied().collect()
    }

    /// Events of a drive that was opened.
    pub fn restore(kept: Vec<FdpEvent>, reallocated: u64) -> Events {
        Events { kept: kept.into(), reallocated, unkept: 0 }
    }

    pub fn to_vec(&self) -> Vec<FdpEvent> {
        self.kept.iter().copied().collect()
    }
}
