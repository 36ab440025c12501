//! The limits of a block device's queue, from sysfs.

use crate::sys::zone_ioctl::SECTOR_BYTES;
use crate::zoned::ZonedInfo;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use weft_core::BLOCK_BYTES;

/// Limits of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// Bytes from one zone to the next; 0 of a device without zones.
    pub zone_bytes: u64,
    /// Zones that may be open at once; 0 for no limit.
    pub open_max: u32,
    /// Zones that may be active at once; 0 for no limit.
    pub active_max: u32,
    /// Most blocks that go to the drive in one command. Were a write split, the parts might be exchanged on the way.
    pub command_blocks_max: u32,
}

impl Queue {
    /// The queue of a block device, or of the block device under a file or directory.
    pub fn of(file: &File) -> io::Result<Queue> {
        let meta = file.metadata()?;
        let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
        Ok(Queue::read(&queue_folder(device)?))
    }

    /// Reads the files of a queue's folder. What an older kernel does not tell is taken as unlimited; of the bytes of
    /// a command, as little as any device takes.
    fn read(queue: &Path) -> Queue {
        let number = |name: &str| -> Option<u64> {
            std::fs::read_to_string(queue.join(name)).ok()?.trim().parse().ok()
        };
        let limit = |name: &str| number(name).map_or(0, |n| u32::try_from(n).unwrap_or(0));
        let block = BLOCK_BYTES as u64;
        let is_zoned = std::fs::read_to_string(queue.join("zoned")).is_ok_and(|text| text.trim() != "none");
        let by_bytes = number("max_sectors_kb").map_or(16, |kib| kib * 1024 / block);
        // Each block may need a segment of its own: pages that follow in a buffer need not follow in memory.
        let by_segments = number("max_segments").unwrap_or(16);
        Queue {
            block_bytes: number("logical_block_size").unwrap_or(512),
            zone_bytes: if is_zoned { number("chunk_sectors").unwrap_or(0) * SECTOR_BYTES } else { 0 },
            open_max: limit("max_open_zones"),
            active_max: limit("max_active_zones"),
            command_blocks_max: by_bytes.min(by_segments).clamp(1, 1 << 16) as u32,
        }
    }

    /// Refuses a device whose blocks are larger than those of this program.
    pub fn check_blocks(&self) -> Result<(), String> {
        if self.block_bytes <= BLOCK_BYTES as u64 {
            return Ok(());
        }
        Err(format!("has blocks of {} bytes; at most {BLOCK_BYTES} can be used", self.block_bytes))
    }

    /// A drive with the queue's limits. Where there is none, all its zones may be open.
    pub fn limited(&self, info: ZonedInfo) -> ZonedInfo {
        let limit = |max: u32| if max == 0 { info.zones } else { max.min(info.zones) };
        let active_max = limit(self.active_max);
        ZonedInfo { open_max: limit(self.open_max).min(active_max), active_max, ..info }
    }
}

fn queue_folder(device: u64) -> io::Result<PathBuf> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let of = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has the queue of its disk.
    let places = [of.join("queue"), of.join("../queue")];
    places.into_iter().find(|queue| queue.is_dir()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{} has no queue: not a block device", of.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_the_queues_files() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("logical_block_size", "4096\n"),
            ("zoned", "host-managed\n"),
            ("chunk_sectors", "32768\n"),
            ("max_open_zones", "14\n"),
            ("max_active_zones", "0\n"),
            ("max_sectors_kb", "512\n"),
            ("max_segments", "127\n"),
        ];
        for (name, content) in files {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let queue = Queue::read(dir.path());
        let expected = Queue {
            block_bytes: 4096,
            zone_bytes: 16 << 20,
            open_max: 14,
            active_max: 0,
            command_blocks_max: 127,
        };
        assert_eq!(queue, expected);
        let info = ZonedInfo { zones: 64, zone_blocks: 9, zone_capacity: 9, open_max: 0, active_max: 0 };
        assert_eq!(queue.limited(info), ZonedInfo { open_max: 14, active_max: 64, ..info });
        let fewer = Queue { active_max: 6, ..queue };
        std::fs::write(dir.path().join("zoned"), "none\n").unwrap();
        assert_eq!(Queue::read(dir.path()).zone_bytes, 0, "other devices have chunks, too");
        assert_eq!(fewer.limited(info), ZonedInfo { open_max: 6, active_max: 6, ..info });
    }
}
