//! A device that gives some blocks back changed, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::{BLOCK_BYTES, ZoneId};
use weft_device::{DeviceError, ZonedDevice};

/// A device with damage.
pub struct Damaged {
    pub inner: Arc<dyn ZonedDevice>,
    /// Zone, block, byte, bits to flip.
    pub flips: Vec<(u32, u32, usize, u8)>,
    /// Zone and block of what cannot be read.
    pub lost: Vec<(u32, u32)>,
    /// Blocks read.
    pub blocks_read: AtomicU64,
    /// Commands that would have changed the device.
    pub changes: AtomicU64,
}

impl Damaged {
    pub fn new(inner: Arc<dyn ZonedDevice>) -> Damaged {
        Damaged {
            inner,
            flips: Vec::new(),
            lost: Vec::new(),
            blocks_read: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    pub fn flipped(inner: Arc<dyn ZonedDevice>, flips: Vec<(u32, u32, usize, u8)>) -> Arc<Damaged> {
        Arc::new(Damaged { flips, ..Damaged::new(inner) })
    }

    pub fn losing(inner: Arc<dyn ZonedDevice>, lost: Vec<(u32, u32)>) -> Arc<Damaged> {
        Arc::new(Damaged { lost, ..Damaged::new(inner) })
    }

    fn inner(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        Ok(&*self.inner)
    }

    fn change(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        self.changes.fetch_add(1, Relaxed);
        self.inner()
    }
}

impl ZonedDevice for Damaged {
    crate::pass_on! {
        inner => shape report flush;
        change => write append open close finish reset;
    }

    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(zone, at, out)?;
        let blocks = (out.len() / BLOCK_BYTES) as u32;
        self.blocks_read.fetch_add(u64::from(blocks), Relaxed);
        if let Some((_, block)) =
            self.lost.iter().find(|(z, b)| *z == zone.0 && (at..at + blocks).contains(b))
        {
            out.fill(0xee);
            return Err(DeviceError::Media { zone, at: *block, what: "read" });
        }
        for (z, block, byte, bits) in &self.flips {
            let first = at as usize * BLOCK_BYTES;
            let place = *block as usize * BLOCK_BYTES + byte;
            if *z == zone.0 && (first..first + out.len()).contains(&place) {
                out[place - first] ^= bits;
            }
        }
        Ok(())
    }
}
