//! A zoned block device (`/dev/nvme0n1`), through the kernel's commands for zones and direct I/O.
//!
//! Zones are counted from the first that has to be written in order; conventional zones before it are left alone. The
//! device is opened exclusively, so that nobody mounts or opens it meanwhile, and locked as udev and others expect.

pub(crate) mod queue;

use crate::DeviceError;
use crate::drive::access::{DriveInfo, Opening, RawZone, ZoneAccess};
use crate::store::lock;
use crate::sys::zone_ioctl::{self, BlkZone, Management, SECTOR_BYTES, TYPE_SEQUENTIAL};
use crate::zoned::{ZoneState, ZonedInfo};
use queue::Queue;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use weft_core::BLOCK_BYTES;
use weft_sys::file::LockedFile;

const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

/// An open zoned block device.
#[derive(Debug)]
pub struct BlockDevice {
    file: LockedFile,
    drive: DriveInfo,
    /// First sector of zone 0.
    first: u64,
}

impl BlockDevice {
    /// Opens a device for this process alone.
    pub fn open(path: &Path) -> Result<BlockDevice, DeviceError> {
        let io = |source: io::Error| match source.raw_os_error() {
            Some(libc::EBUSY) => DeviceError::Busy(path.to_path_buf()),
            _ => DeviceError::Io { path: path.to_path_buf(), source },
        };
        let bad = |what: String| DeviceError::BadDrive { path: path.to_path_buf(), what };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_EXCL)
            .open(path)
            .map_err(io)?;
        if !file.metadata().map_err(io)?.file_type().is_block_device() {
            return Err(bad("not a block device".into()));
        }
        let file = lock(file, path)?;
        let zone_sectors = u64::from(zone_ioctl::zone_sectors(&file).unwrap_or(0));
        let count = zone_ioctl::zone_count(&file).unwrap_or(0);
        if zone_sectors == 0 || count == 0 {
            return Err(bad(
                "not a zoned block device; 'lsblk -z' lists them, and an image file can stand for one".into(),
            ));
        }
        let queue = Queue::of(&file).map_err(io)?;
        queue.check_blocks().map_err(bad)?;
        let all = report_from(&file, 0, count as usize).map_err(io)?;
        let info = shape(&all, zone_sectors, &queue).map_err(bad)?;
        let first = all[all.len() - info.zones as usize].start;
        let command_blocks_max = queue.command_blocks_max;
        let drive = DriveInfo { path: path.to_path_buf(), zoned: info, command_blocks_max };
        Ok(BlockDevice { file, drive, first })
    }

    fn sector(&self, zone: u32, at: u32) -> u64 {
        self.first
            + u64::from(zone) * u64::from(self.drive.zoned.zone_blocks) * SECTORS_PER_BLOCK
            + u64::from(at) * SECTORS_PER_BLOCK
    }

    fn manage(&self, what: Management, zone: u32) -> io::Result<()> {
        let sectors = u64::from(self.drive.zoned.zone_blocks) * SECTORS_PER_BLOCK;
        zone_ioctl::manage(&self.file, what, self.sector(zone, 0), sectors)
    }

    /// Resets every zone, then writes the first block of the device and ends the zone that it lies in: how a super
    /// block gets there. A conventional zone is only written. The block is aligned.
    pub fn write_super_block(&self, block: &[u8]) -> io::Result<()> {
        for zone in 0..self.drive.zoned.zones {
            if !matches!(
                self.report(zone)?.state,
                ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline
            ) {
                self.reset(zone)?;
            }
        }
        let written = self.file.write_at(block, 0)?;
        if written != block.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.first == 0 {
            self.manage(Management::Finish, 0)?;
        }
        self.file.sync_data()
    }
}

/// The shape and limits that all sequential zones have in common; they have to be alike and side by side.
fn shape(all: &[BlkZone], zone_sectors: u64, queue: &Queue) -> Result<ZonedInfo, String> {
    let begin = all.iter().position(|zone| zone.kind == TYPE_SEQUENTIAL);
    let zones = &all[begin.ok_or("has no zones that are written in order")?..];
    let whole =
        zones.iter().take_while(|zone| zone.kind == TYPE_SEQUENTIAL && zone.len == zone_sectors).count();
    // The last zone may be a short one; it is not used.
    if whole + 1 < zones.len() || !zone_sectors.is_multiple_of(SECTORS_PER_BLOCK) {
        return Err("its sequential zones are not alike and side by side; such drives cannot be used".into());
    }
    let zones = &zones[..whole];
    let alive = zones.iter().filter(|zone| zone.cond != ZoneState::Offline as u8);
    let capacity = alive.clone().map(|zone| zone.capacity / SECTORS_PER_BLOCK).min().unwrap_or(0);
    if capacity == 0 || alive.clone().any(|zone| zone.capacity / SECTORS_PER_BLOCK != capacity) {
        return Err("its zones differ in their capacity; such drives cannot be used".into());
    }
    let number = |n: u64| u32::try_from(n).map_err(|_| "its zones are too large".to_string());
    Ok(queue.limited(ZonedInfo {
        zones: number(whole as u64)?,
        zone_blocks: number(zone_sectors / SECTORS_PER_BLOCK)?,
        zone_capacity: number(capacity)?,
        open_max: 0,
        active_max: 0,
    }))
}

fn report_from(file: &std::fs::File, mut sector: u64, wanted: usize) -> io::Result<Vec<BlkZone>> {
    let mut zones: Vec<BlkZone> = Vec::with_capacity(wanted);
    while zones.len() < wanted {
        let more = zone_ioctl::report(file, sector, wanted - zones.len())?;
        let Some(last) = more.last() else { break };
        sector = last.start + last.len;
        zones.extend(more);
    }
    if zones.len() < wanted {
        return Err(io::Error::other(format!("{} of {wanted} zones were reported", zones.len())));
    }
    Ok(zones)
}

/// A zone as the kernel tells of it.
fn raw(zone: &BlkZone) -> RawZone {
    let state = ZoneState::from_number(zone.cond).unwrap_or(ZoneState::Offline);
    let blocks = zone.wp.checked_sub(zone.start).map(|sectors| sectors / SECTORS_PER_BLOCK);
    let within = blocks.filter(|blocks| *blocks <= zone.capacity / SECTORS_PER_BLOCK);
    RawZone { state, write_pointer: within.map(|blocks| blocks as u32) }
}

impl ZoneAccess for BlockDevice {
    fn drive(&self) -> &DriveInfo {
        &self.drive
    }

    fn report_all(&self) -> io::Result<Vec<RawZone>> {
        let zones = report_from(&self.file, self.first, self.drive.zoned.zones as usize)?;
        Ok(zones.iter().map(raw).collect())
    }

    fn report(&self, zone: u32) -> io::Result<RawZone> {
        let zones = zone_ioctl::report(&self.file, self.sector(zone, 0), 1)?;
        zones.first().map(raw).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn write(&self, zone: u32, at: u32, data: &[u8]) -> io::Result<usize> {
        self.file.write_at(data, self.sector(zone, at) * SECTOR_BYTES)
    }

    fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(out, self.sector(zone, at) * SECTOR_BYTES)
    }

    fn open(&self, zone: u32, how: Opening) -> io::Result<()> {
        match how {
            Opening::ForWrite => Ok(()),
            Opening::Explicit => self.manage(Management::Open, zone),
        }
    }

    fn close(&self, zone: u32) -> io::Result<()> {
        self.manage(Management::Close, zone)
    }

    fn release(&self, _: u32) {}

    fn finish(&self, zone: u32) -> io::Result<()> {
        self.manage(Management::Finish, zone)
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        self.manage(Management::Reset, zone)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u64 = 1024;

    fn zone(i: u64, kind: u8, len: u64, capacity: u64) -> BlkZone {
        BlkZone { start: i * ZONE, len, wp: i * ZONE, kind, cond: 1, capacity, ..BlkZone::default() }
    }

    fn unlimited() -> Queue {
        Queue {
            block_bytes: 4096,
            zone_bytes: ZONE * 512,
            open_max: 0,
            active_max: 0,
            command_blocks_max: 128,
        }
    }

    #[test]
    fn conventional_zones_before_and_a_short_one_behind_are_left_out() {
        let mut all = vec![zone(0, 1, ZONE, ZONE), zone(1, 2, ZONE, 800), zone(2, 2, ZONE, 800)];
        all.push(zone(3, 2, 100, 100));
        let info = shape(&all, ZONE, &Queue { open_max: 5, ..unlimited() }).unwrap();
        let expected =
            ZonedInfo { zones: 2, zone_blocks: 128, zone_capacity: 100, open_max: 2, active_max: 2 };
        assert_eq!(info, expected, "limits are never above the number of zones");
    }

    #[test]
    fn zones_that_are_not_alike_are_refused() {
        let refused = |all: &[BlkZone]| shape(all, ZONE, &unlimited()).unwrap_err();
        let gap = [zone(0, 2, ZONE, 800), zone(1, 1, ZONE, 800), zone(2, 2, ZONE, 800)];
        assert!(refused(&gap).contains("side by side"));
        assert!(refused(&[zone(0, 2, ZONE, 800), zone(1, 2, ZONE, 808)]).contains("capacity"));
        assert!(refused(&[zone(0, 1, ZONE, 800)]).contains("in order"));
    }

    #[test]
    fn a_write_pointer_that_is_nowhere_is_not_believed() {
        let at = |wp| raw(&BlkZone { wp, cond: ZoneState::ReadOnly as u8, ..zone(3, 2, ZONE, 800) });
        assert_eq!(at(3 * ZONE + 80), RawZone { state: ZoneState::ReadOnly, write_pointer: Some(10) });
        assert_eq!(at(u64::MAX).write_pointer, None);
        assert_eq!(at(0).write_pointer, None);
    }
}
