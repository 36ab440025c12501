//! The zone table and the counters record, in a shared mapping of the image's start.

use super::header::{COUNTERS_OFFSET, TABLE_OFFSET, data_offset};
use super::slot::{self, Content, RECORD_BYTES, RECORD_WORDS, Salt, TornSlots};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use weft_sys::file::drop_cached;
use weft_sys::{Advice, Map};

/// Largest page that the kernel caches a file in. Only whole pages can be dropped.
const CACHED_PAGE_MAX: u64 = 4 << 20;

/// Names a record of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The counters of the device.
    Counters,
    /// A zone or an erase block, by its number.
    Zone(u32),
}

impl Record {
    /// What tells it from other records in its checksum.
    fn place(self) -> u64 {
        match self {
            Record::Counters => u64::MAX,
            Record::Zone(zone) => u64::from(zone),
        }
    }

    /// Its byte offset in the image.
    pub fn offset(self) -> u64 {
        match self {
            Record::Counters => COUNTERS_OFFSET,
            Record::Zone(zone) => TABLE_OFFSET + u64::from(zone) * RECORD_BYTES as u64,
        }
    }
}

/// The mapped records of an image.
#[derive(Debug)]
pub struct Table {
    map: Map,
    image: [u8; 16],
}

impl Table {
    /// Maps the table of an image that is long enough for `zones` zones. What is stored in it survives the death of the
    /// process, and an `fdatasync` of the file makes it durable. The image's exclusive lock keeps others from truncating it.
    ///
    /// The kernel caches a file that was written in large pieces in pages of up to megabytes, and one store into such
    /// a page makes the next `fdatasync` write all of it. So what is cached of the range is dropped first, and read
    /// back without read-ahead, in small pages.
    ///
    /// Of a file that was `left` without a close, the kernel may take what it could not write for written: the table is written
    /// again before it can be read back from the disk.
    pub fn map(file: &File, image: [u8; 16], zones: u64, left: bool) -> io::Result<Table> {
        let bytes = usize::try_from(data_offset(zones)).map_err(io::Error::other)?;
        if left {
            let mut cached = vec![0; bytes];
            file.read_exact_at(&mut cached, 0)?;
            file.write_all_at(&cached, 0)?;
        }
        file.sync_data()?;
        drop_cached(file, 0, (bytes as u64).next_multiple_of(CACHED_PAGE_MAX));
        Table::of(Map::shared(file, bytes)?, image)
    }

    /// The same of an image that is not to be changed: records that are set are set for this process.
    pub fn map_private(file: &File, image: [u8; 16], zones: u64) -> io::Result<Table> {
        let bytes = usize::try_from(data_offset(zones)).map_err(io::Error::other)?;
        Table::of(Map::private(file, bytes)?, image)
    }

    fn of(map: Map, image: [u8; 16]) -> io::Result<Table> {
        // A hint, which costs time alone when it is not taken.
        let _ = map.advise(0..map.len(), Advice::Random);
        Ok(Table { map, image })
    }

    fn words_of(&self, record: Record) -> &[AtomicU64] {
        &self.map.atomics()[record.offset() as usize / 8..][..RECORD_WORDS]
    }

    fn salt(&self, record: Record) -> Salt {
        Salt { image: self.image, place: record.place() }
    }

    /// Reads a record and the slot that counts; `None` when it is damaged.
    pub fn read(&self, record: Record, torn: TornSlots) -> Option<(Content, u32)> {
        slot::read(self.words_of(record), self.salt(record), torn)
    }

    /// Replaces a record; returns the slot that counts now.
    pub fn set(&self, record: Record, current: u32, content: &Content) -> u32 {
        slot::update(self.words_of(record), self.salt(record), current, content)
    }

    /// Reads a record from a copy of it.
    pub fn read_copy(&self, record: Record, words: &[AtomicU64]) -> Option<Content> {
        slot::read(words, self.salt(record), TornSlots::Refuse).map(|(content, _)| content)
    }

    /// Everything before the data, as it is mapped.
    pub fn words(&self) -> &[AtomicU64] {
        self.map.atomics()
    }

    /// Makes the table durable, without the data.
    pub fn sync(&self) -> io::Result<()> {
        self.map.sync()
    }
}
