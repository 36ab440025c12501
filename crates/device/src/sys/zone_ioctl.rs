//! The kernel's commands for zoned block devices (`linux/blkzoned.h`), and `truncate` by path, which zonefs gives the
//! same meaning.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a sector, the kernel's unit.
pub const SECTOR_BYTES: u64 = 512;

/// Type of a zone that has to be written in order.
pub const TYPE_SEQUENTIAL: u8 = 2;

/// Zones that one report command asks for.
const REPORT_ZONES: usize = 64;

/// A zone as the kernel reports it; `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlkZone {
    /// First sector.
    pub start: u64,
    /// Sectors to the next zone.
    pub len: u64,
    /// Where the next write has to begin.
    pub wp: u64,
    /// Conventional or sequential.
    pub kind: u8,
    /// Condition, by the numbers of [`crate::ZoneState`].
    pub cond: u8,
    /// Not used here.
    pub flags: [u8; 6],
    /// Writable sectors.
    pub capacity: u64,
    /// Zero.
    pub reserved: [u8; 24],
}

#[repr(C)]
struct Report {
    sector: u64,
    nr_zones: u32,
    flags: u32,
    zones: [BlkZone; REPORT_ZONES],
}

#[repr(C)]
struct Range {
    sector: u64,
    nr_sectors: u64,
}

/// Size of `struct blk_zone_report` without its zones.
const REPORT_HEADER_BYTES: usize = 16;

const WRITE: u64 = 1;
const READ: u64 = 2;

const fn request(direction: u64, number: u64, bytes: usize) -> u64 {
    direction << 30 | (bytes as u64) << 16 | 0x12 << 8 | number
}

const BLKREPORTZONE: u64 = request(READ | WRITE, 130, REPORT_HEADER_BYTES);
const BLKGETZONESZ: u64 = request(READ, 132, size_of::<u32>());
const BLKGETNRZONES: u64 = request(READ, 133, size_of::<u32>());

/// The commands for a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Management {
    /// BLKRESETZONE
    Reset = request(WRITE, 131, size_of::<Range>()),
    /// BLKOPENZONE
    Open = request(WRITE, 134, size_of::<Range>()),
    /// BLKCLOSEZONE
    Close = request(WRITE, 135, size_of::<Range>()),
    /// BLKFINISHZONE
    Finish = request(WRITE, 136, size_of::<Range>()),
}

fn number(file: &File, request: u64) -> io::Result<u32> {
    let mut value = 0u32;
    // SAFETY: these requests write one u32 to the address.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, &raw mut value) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Sectors from one zone to the next; 0 of a device without zones.
pub fn zone_sectors(file: &File) -> io::Result<u32> {
    number(file, BLKGETZONESZ)
}

/// Zones of the device; 0 of one without zones.
pub fn zone_count(file: &File) -> io::Result<u32> {
    number(file, BLKGETNRZONES)
}

/// Up to `wanted` zones from the one that holds `sector` on.
pub fn report(file: &File, sector: u64, wanted: usize) -> io::Result<Vec<BlkZone>> {
    let mut report = Box::new(Report {
        sector,
        nr_zones: wanted.min(REPORT_ZONES) as u32,
        flags: 0,
        zones: [BlkZone::default(); REPORT_ZONES],
    });
    // SAFETY: the request reads the header and writes at most `nr_zones` zones behind it, for which there is room.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKREPORTZONE as libc::Ioctl, &raw mut *report) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut zones = report.zones[..(report.nr_zones as usize).min(REPORT_ZONES)].to_vec();
    // Kernels before 5.9 do not tell of a capacity; there it is the whole zone.
    const TELLS_CAPACITY: u32 = 1;
    if report.flags & TELLS_CAPACITY == 0 {
        zones.iter_mut().for_each(|zone| zone.capacity = zone.len);
    }
    Ok(zones)
}

/// Tells zones what to do.
pub fn manage(file: &File, what: Management, sector: u64, sectors: u64) -> io::Result<()> {
    let range = Range { sector, nr_sectors: sectors };
    // SAFETY: these requests read one range from the address.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), what as u64 as libc::Ioctl, &raw const range) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets a file's length without opening it.
pub fn truncate(path: &Path, bytes: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    let result = unsafe { libc::truncate(path.as_ptr(), bytes as libc::off_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_structures_are_the_kernels() {
        assert_eq!(size_of::<BlkZone>(), 64);
        assert_eq!(std::mem::offset_of!(BlkZone, capacity), 32);
        assert_eq!(std::mem::offset_of!(Report, zones), REPORT_HEADER_BYTES);
        let requests = [BLKREPORTZONE, BLKGETZONESZ, BLKGETNRZONES];
        assert_eq!(requests, [0xc010_1282, 0x8004_1284, 0x8004_1285]);
        let management = [Management::Reset, Management::Open, Management::Close, Management::Finish];
        assert_eq!(management.map(|m| m as u64), [0x4010_1283, 0x4010_1286, 0x4010_1287, 0x4010_1288]);
    }
}
