//! The zone table and the counters record, in a shared mapping of the image's start.

use super::header::{COUNTERS_OFFSET, TABLE_OFFSET, data_offset};
use super::slot::{self, Content, RECORD_WORDS, Salt, TornSlots};
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;
use weft_sys::file::drop_cached;
use weft_sys::{Advice, Map};

/// The place of the counters record; zones take the places below.
const COUNTERS_PLACE: u64 = u64::MAX;

/// Largest page that the kernel caches a file in. Only whole pages can be dropped.
const CACHED_PAGE_MAX: u64 = 4 << 20;

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
    pub fn map(file: &File, image: [u8; 16], zones: u64) -> io::Result<Table> {
        let bytes = usize::try_from(data_offset(zones)).map_err(io::Error::other)?;
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

    fn record(&self, place: u64) -> (&[AtomicU64], Salt) {
        let start = match place {
            COUNTERS_PLACE => COUNTERS_OFFSET as usize / 8,
            zone => TABLE_OFFSET as usize / 8 + zone as usize * RECORD_WORDS,
        };
        (&self.map.atomics()[start..start + RECORD_WORDS], Salt { image: self.image, place })
    }

    /// Reads the record of a zone and the slot that counts; `None` when it is damaged.
    pub fn zone(&self, zone: u32, torn: TornSlots) -> Option<(Content, u32)> {
        let (words, salt) = self.record(u64::from(zone));
        slot::read(words, salt, torn)
    }

    /// Replaces the record of a zone; returns the slot that counts now.
    pub fn set_zone(&self, zone: u32, current: u32, content: &Content) -> u32 {
        let (words, salt) = self.record(u64::from(zone));
        slot::update(words, salt, current, content)
    }

    /// Reads the counters record.
    pub fn counters(&self, torn: TornSlots) -> Option<(Content, u32)> {
        let (words, salt) = self.record(COUNTERS_PLACE);
        slot::read(words, salt, torn)
    }

    /// Replaces the counters record; returns the slot that counts now.
    pub fn set_counters(&self, current: u32, content: &Content) -> u32 {
        let (words, salt) = self.record(COUNTERS_PLACE);
        slot::update(words, salt, current, content)
    }

    /// Everything before the data, as it is mapped.
    pub fn words(&self) -> &[AtomicU64] {
        self.map.atomics()
    }

    /// Reads the record of a zone from a copy of it.
    pub fn zone_in(&self, words: &[AtomicU64], zone: u32) -> Option<(Content, u32)> {
        slot::read(words, Salt { image: self.image, place: u64::from(zone) }, TornSlots::Refuse)
    }

    /// Reads the counters record from a copy of it.
    pub fn counters_in(&self, words: &[AtomicU64]) -> Option<(Content, u32)> {
        slot::read(words, Salt { image: self.image, place: COUNTERS_PLACE }, TornSlots::Refuse)
    }

    /// Makes the table durable, without the data.
    pub fn sync(&self) -> io::Result<()> {
        self.map.sync()
    }
}
