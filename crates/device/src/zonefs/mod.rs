//! A zonefs directory: a file for each zone, whose size is the zone's write pointer.
//!
//! A zone is reset by truncating its file to nothing, and finished by extending it to the zone's capacity (which the
//! file's blocks tell). Mounted with `explicit-open`, a file that is open for writing holds its zone open; so a file is
//! opened for writing when its zone is, and closed with it. Modes tell of zones that are read-only or offline.
//!
//! The zone that holds the super block has no file: files are counted from the next.

mod super_block;

pub use super_block::{FormatError, format};

use crate::DeviceError;
use crate::drive::access::{DriveInfo, Opening, RawZone, ZoneAccess};
use crate::store::lock;
use crate::sys::aio::Writes;
use crate::sys::zone_ioctl::{self, SECTOR_BYTES};
use crate::zbd::queue::Queue;
use crate::zoned::{ZoneState, ZonedInfo};
use parking_lot::RwLock;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weft_core::BLOCK_BYTES;
use weft_sys::file::LockedFile;

/// Where the files of zones that are written in order lie.
const SEQUENTIAL: &str = "seq";

/// A zone's files.
#[derive(Debug, Default)]
struct Files {
    /// To read; opened at the first read.
    reader: Option<File>,
    /// To write; open as long as the zone is.
    writer: Option<File>,
}

/// A mounted zonefs.
#[derive(Debug)]
pub struct Directory {
    /// Locked for this process.
    _lock: LockedFile,
    drive: DriveInfo,
    /// Guards the descriptors, not what is written: a writer's is changed only by the thread that holds the zone.
    files: Box<[RwLock<Files>]>,
    writes: Writes,
}

impl Directory {
    /// Opens the directory on which a zonefs is mounted, for this process alone.
    pub fn open(path: &Path) -> Result<Directory, DeviceError> {
        let io = |source: io::Error| DeviceError::Io { path: path.to_path_buf(), source };
        let bad = |what: String| DeviceError::BadDrive { path: path.to_path_buf(), what };
        let root = File::open(path).map_err(io)?;
        let lock = lock(root, path)?;
        let folder = path.join(SEQUENTIAL);
        let zones = match std::fs::read_dir(&folder) {
            Ok(entries) => entries.count(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(bad(format!(
                    "a directory without a volume: a zonefs would have a folder '{SEQUENTIAL}'; name an image file, or mount a \
                     drive there with 'mount -t zonefs -o explicit-open,errors=zone-ro DEVICE {}'",
                    path.display()
                )));
            }
            Err(error) => return Err(io(error)),
        };
        let queue =
            Queue::of(&lock).map_err(|_| bad("not a zonefs: no block device is mounted there".into()))?;
        if queue.zone_bytes == 0 {
            return Err(bad("not a zonefs: the block device that is mounted there has no zones".into()));
        }
        queue.check_blocks().map_err(bad)?;
        let mut capacity = None;
        for zone in 0..zones {
            let meta = std::fs::metadata(folder.join(zone.to_string())).map_err(io)?;
            let of_zone = meta.blocks() * SECTOR_BYTES / BLOCK_BYTES as u64;
            if is_offline(&meta) || capacity == Some(of_zone) {
                continue;
            }
            if capacity.is_some() {
                return Err(bad("its zones differ in their capacity; such drives cannot be used".into()));
            }
            capacity = Some(of_zone);
        }
        let number = |n: u64| u32::try_from(n).map_err(|_| bad("its zones are too many or too large".into()));
        let info = queue.limited(ZonedInfo {
            zones: number(zones as u64)?,
            zone_blocks: number(queue.zone_bytes / BLOCK_BYTES as u64)?,
            zone_capacity: number(capacity.unwrap_or(0))?,
            open_max: 0,
            active_max: 0,
        });
        if info.zone_capacity == 0 {
            return Err(bad("has no zone that can be used".into()));
        }
        let command_blocks_max = queue.command_blocks_max;
        Ok(Directory {
            _lock: lock,
            drive: DriveInfo { path: path.to_path_buf(), zoned: info, command_blocks_max },
            files: (0..zones).map(|_| RwLock::new(Files::default())).collect(),
            writes: Writes::default(),
        })
    }

    fn file(&self, zone: u32) -> PathBuf {
        self.drive.path.join(SEQUENTIAL).join(zone.to_string())
    }

    fn state(&self, meta: &Metadata) -> RawZone {
        let blocks = meta.len() / BLOCK_BYTES as u64;
        let state = if is_offline(meta) {
            ZoneState::Offline
        } else if meta.permissions().mode() & 0o222 == 0 {
            ZoneState::ReadOnly
        } else if blocks >= u64::from(self.drive.zoned.zone_capacity) {
            ZoneState::Full
        } else if blocks == 0 {
            ZoneState::Empty
        } else {
            ZoneState::Closed
        };
        RawZone { state, write_pointer: u32::try_from(blocks).ok() }
    }
}

/// Nobody may do anything with the file of a dead zone.
fn is_offline(meta: &Metadata) -> bool {
    meta.permissions().mode() & 0o777 == 0
}

impl ZoneAccess for Directory {
    fn drive(&self) -> &DriveInfo {
        &self.drive
    }

    fn report_all(&self) -> io::Result<Vec<RawZone>> {
        (0..self.drive.zoned.zones).map(|zone| self.report(zone)).collect()
    }

    fn report(&self, zone: u32) -> io::Result<RawZone> {
        Ok(self.state(&std::fs::metadata(self.file(zone))?))
    }

    fn write(&self, zone: u32, at: u32, data: &[u8]) -> io::Result<usize> {
        let files = self.files[zone as usize].read();
        let Some(writer) = &files.writer else { return Err(io::Error::from_raw_os_error(libc::EBADF)) };
        self.writes.write_at(writer, data, u64::from(at) * BLOCK_BYTES as u64)
    }

    fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> io::Result<usize> {
        let offset = u64::from(at) * BLOCK_BYTES as u64;
        let files = &self.files[zone as usize];
        if let Some(reader) = &files.read().reader {
            return reader.read_at(out, offset);
        }
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(self.file(zone))?;
        files.write().reader.get_or_insert(opened).read_at(out, offset)
    }

    fn open(&self, zone: u32, _: Opening) -> io::Result<()> {
        let mut files = self.files[zone as usize].write();
        if files.writer.is_none() {
            let options = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(self.file(zone));
            files.writer = Some(options?);
        }
        Ok(())
    }

    fn close(&self, zone: u32) -> io::Result<()> {
        self.release(zone);
        Ok(())
    }

    fn release(&self, zone: u32) {
        self.files[zone as usize].write().writer = None;
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        let bytes = u64::from(self.drive.zoned.zone_capacity) * BLOCK_BYTES as u64;
        zone_ioctl::truncate(&self.file(zone), bytes)
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        // A file that is open for writing would have its empty zone opened again.
        self.release(zone);
        zone_ioctl::truncate(&self.file(zone), 0)
    }

    fn flush(&self) -> io::Result<()> {
        // A flush of any file is one of the whole drive.
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for zone in 0..self.drive.zoned.zones {
            match File::open(self.file(zone)) {
                Ok(file) => return file.sync_data(),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}
