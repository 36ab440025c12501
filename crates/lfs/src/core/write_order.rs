//! The order of data writes in a zone.
//!
//! A zone is written at its write pointer only. With the lock of the state held, a writer takes the next blocks of a zone, and
//! with them the next turn; it may write them without the lock. Here it waits until the turns before have ended.

use crate::core::Shared;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::Relaxed;
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::DeviceError;

/// Blocks of a zone that a writer has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenBlocks {
    pub zone: ZoneId,
    /// The first, within the zone.
    pub at: u32,
    pub count: u32,
    /// Writers that had taken blocks of the zone before, since it was opened.
    pub turn: u32,
    /// Whether the zone takes no data behind them.
    pub are_last: bool,
}

/// Why blocks were not written.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The device refused.
    Refused(DeviceError),
    /// It refused those before.
    Behind,
}

/// The turns of a zone.
#[derive(Default)]
pub(crate) struct ZoneTurns {
    state: Mutex<Turns>,
    ended: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Turns {
    ended: u32,
    has_failed: bool,
}

impl ZoneTurns {
    /// The zone has been opened, and nobody writes to it.
    pub fn begin(&self) {
        *self.state.lock() = Turns::default();
    }
}

impl Shared {
    /// Writes taken blocks in their turn, after their CRCs.
    pub fn write_taken(&self, taken: &TakenBlocks, bytes: &[u8], tag: &Tag) -> Result<(), Unwritten> {
        debug_assert_eq!(bytes.len(), taken.count as usize * BLOCK_BYTES);
        let first = self.device_block(taken.zone, taken.at) as usize;
        for (block, crc) in bytes.chunks_exact(BLOCK_BYTES).zip(&self.crcs()[first..]) {
            crc.store(crc32c(block), Relaxed);
        }
        let turns = &self.turns[taken.zone.index()];
        let mut state = turns.state.lock();
        while state.ended != taken.turn && !state.has_failed {
            turns.ended.wait(&mut state);
        }
        if state.has_failed {
            return Err(Unwritten::Behind);
        }
        let written = self.dev.write(taken.zone, taken.at, bytes, tag);
        state.has_failed = written.is_err();
        state.ended += 1;
        drop(state);
        turns.ended.notify_all();
        written.map_err(Unwritten::Refused)
    }
}
