//! The state of a zone in memory: writers take its lock, readers read the published copy.

use crate::zoned::{ZoneReport, ZoneState};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// A zone.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Its state, as this process made it or the drive told.
    pub state: ZoneState,
    /// Blocks of data.
    pub write_pointer: u32,
    /// Checksum of its first block, when it is known.
    pub first_block_crc: Option<u32>,
}

impl Zone {
    /// What readers see of it.
    pub fn report(&self) -> ZoneReport {
        ZoneReport { state: self.state, write_pointer: self.write_pointer }
    }
}

/// A zone, its lock, and what readers see without it.
#[derive(Debug)]
pub struct ZoneCell {
    zone: Mutex<Zone>,
    /// The write pointer above the state. Stored (release) when the lock is given back, so whoever sees a write
    /// pointer (acquire) finds the blocks below it on the drive.
    published: AtomicU64,
}

impl ZoneCell {
    /// A zone as it was found.
    pub fn new(zone: Zone) -> ZoneCell {
        ZoneCell { zone: Mutex::new(zone), published: AtomicU64::new(zone.report().pack()) }
    }

    /// The zone, to be changed.
    pub fn lock(&self) -> Held<'_> {
        Held { published: &self.published, zone: self.zone.lock() }
    }

    /// How the zone was when somebody last gave its lock back. Does not wait for a write that is under way.
    pub fn report(&self) -> ZoneReport {
        ZoneReport::unpack(self.published.load(Acquire))
    }
}

/// A locked zone.
pub struct Held<'a> {
    published: &'a AtomicU64,
    zone: MutexGuard<'a, Zone>,
}

impl Deref for Held<'_> {
    type Target = Zone;

    fn deref(&self) -> &Zone {
        &self.zone
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Zone {
        &mut self.zone
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Before the lock goes, which is dropped after this.
        self.published.store(self.zone.report().pack(), Release);
    }
}
