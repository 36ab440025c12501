//! The second copy of the image's metadata, at the end of the file.
//!
//! ```text
//!  copy of the session page | of the counters page | of the zone table | of the header page |
//! ```
//! The header page never changes. The session page is written to both places whenever an image is opened or closed. The
//! records change all the time, so their copy is made when the image is closed, and counts only of an image that was
//! closed since: both session pages say so, with the same number of the session.

use super::header::{COUNTERS_OFFSET, Header, PAGE_BYTES, SESSION_OFFSET, data_offset};
use super::slot::RECORD_BYTES;
use super::table::Record;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;

/// Where the copy is in a file.
#[derive(Clone, Copy, Debug)]
pub struct Spare {
    offset: u64,
    zones: u64,
}

impl Spare {
    /// That of an image with this header.
    pub fn of(header: &Header) -> Spare {
        let zones = header.geometry.zones();
        Spare::at(header.image_bytes() - data_offset(zones), zones)
    }

    /// That of an image with records of so many zones or erase blocks; it takes `data_offset(zones)` bytes.
    pub fn at(offset: u64, zones: u64) -> Spare {
        Spare { offset, zones }
    }

    /// Where it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where what stands at `offset` of the image's start, below its data, stands in the copy.
    fn place(&self, offset: u64) -> u64 {
        match offset {
            0 => self.offset + data_offset(self.zones) - PAGE_BYTES as u64,
            offset => self.offset + offset - SESSION_OFFSET,
        }
    }

    /// Where the copy of the header page is.
    pub fn header(&self) -> u64 {
        self.place(0)
    }

    /// Where the copy of the session page is.
    pub fn session(&self) -> u64 {
        self.place(SESSION_OFFSET)
    }

    /// Copies the records: `words` are those of the image's start, as they are mapped.
    pub fn copy_records(&self, file: &File, words: &[AtomicU64]) -> io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let records = &words[COUNTERS_OFFSET as usize / 8..];
        let bytes: Vec<u8> = records.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        file.write_all_at(&bytes, self.place(COUNTERS_OFFSET))
    }

    /// The copy of a record; `None` when it cannot be read.
    pub fn record(&self, file: &File, record: Record) -> Option<Vec<AtomicU64>> {
        let mut bytes = [0; RECORD_BYTES];
        file.read_exact_at(&mut bytes, self.place(record.offset())).ok()?;
        let word = |chunk: &[u8]| chunk.try_into().ok().map(u64::from_ne_bytes).map(AtomicU64::new);
        bytes.chunks_exact(8).map(word).collect()
    }
}

/// The header of an image whose header page cannot be read: its copy is the last page of the file.
pub fn header_of(file: &File) -> Option<Header> {
    let bytes = file.metadata().ok()?.len();
    let mut page = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut page, bytes.checked_sub(PAGE_BYTES as u64)?).ok()?;
    Header::decode(&page).ok().filter(|header| header.image_bytes() == bytes)
}
