//! The bound: what any durable store of pairs has to do, and nothing else.
//!
//! Records go to a log, with a checksum for each batch, by direct I/O into preallocated blocks, with one fdatasync where a batch
//! has to be durable. The log is kept in memory, so it is also what gets read; an open hash table of 8 bytes a cell (24 bits
//! of the key's hash, 40 of the record's place) leads to the records. Cells and records of a whole batch are asked for together. Nothing is
//! ever reclaimed, the log has to fit memory, and opening reads all of it.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{KEY, Key, Pair, VALUE};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const BLOCK: usize = 4096;
/// Batch header: bytes of the batch, CRC.
const HEADER: usize = 8;
const PLACE_MASK: u64 = (1 << 40) - 1;
/// Written together when a batch need not be durable.
const WRITE_BYTES: usize = 1 << 20;

pub struct Bound {
    file: File,
    log: Region,
    end: usize,
    written: usize,
    index: Region,
    cells: usize,
    durability: Durability,
}

/// Anonymous memory on huge pages.
pub struct Region {
    start: *mut u8,
    bytes: usize,
}

impl Region {
    pub fn new(bytes: usize) -> Result<Region> {
        const HUGE: usize = 2 << 20;
        let bytes = bytes.next_multiple_of(HUGE) + HUGE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the mapping has a huge page more than is used, and advice changes no content.
        unsafe {
            let skip = start.cast::<u8>().align_offset(HUGE);
            let start = start.cast::<u8>().add(skip);
            libc::madvise(start.cast(), bytes - HUGE, libc::MADV_HUGEPAGE);
            Ok(Region { start, bytes: bytes - HUGE })
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as the process and has so many bytes.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above; the mapping is aligned to a page.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.bytes / 8) }
    }

    fn words(&self) -> &[u64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes / 8) }
    }

    fn prefetch(&self, at: usize) {
        debug_assert!(at < self.bytes);
        // SAFETY: a prefetch reads nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.start.add(at).cast());
        }
    }
}

fn hash(key: &Key) -> u64 {
    let (words, _) = key.as_chunks::<8>();
    let product = u128::from(u64::from_le_bytes(words[0]) ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(u64::from_le_bytes(words[1]) ^ 0xbf58_476d_1ce4_e5b9);
    (product >> 64) as u64 ^ product as u64
}

impl Bound {
    pub fn open(config: &Config<'_>) -> Result<Bound> {
        let path = config.dir.join("log");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_DIRECT)
            .open(path)?;
        let bytes =
            (config.pairs as usize * (KEY + VALUE + 1) * 3 / 2).next_multiple_of(1 << 20) + (64 << 20);
        let had = file.metadata()?.len() as usize;
        // SAFETY: a call on an open descriptor with numbers alone.
        if had == 0 && unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let cells = (config.pairs as usize * 8 / 5).next_power_of_two().max(1024);
        let mut bound = Bound {
            file,
            log: Region::new(bytes.max(had))?,
            end: 0,
            written: 0,
            index: Region::new(cells * 8)?,
            cells,
            durability: config.durability,
        };
        if had > 0 {
            bound.replay(had)?;
        }
        Ok(bound)
    }

    fn replay(&mut self, had: usize) -> Result<()> {
        for at in (0..had).step_by(WRITE_BYTES) {
            let piece = &mut self.log.bytes_mut()[at..had.min(at + WRITE_BYTES)];
            self.file.read_exact_at(piece, at as u64)?;
            while let Some(end) = self.batch_at(self.end).filter(|end| *end <= at + WRITE_BYTES) {
                let mut record = self.end + HEADER;
                let ops_end = record + self.word(self.end) as usize;
                while record < ops_end {
                    let put = self.log.bytes()[record] == 1;
                    let key = self.key_at(record);
                    self.point(&key, put.then_some(record as u64));
                    record += if put { 1 + KEY + VALUE } else { 1 + KEY };
                }
                self.end = end;
            }
        }
        self.written = self.end;
        Ok(())
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.log.bytes();
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// The end of the batch that begins here, if there is one.
    fn batch_at(&self, at: usize) -> Option<usize> {
        let len = self.word(at) as usize;
        let end = at + HEADER + len;
        if len == 0
            || end > self.log.bytes
            || crc32c::crc32c(&self.log.bytes()[at + HEADER..end]) != self.word(at + 4)
        {
            return None;
        }
        Some(end.next_multiple_of(BLOCK))
    }

    fn key_at(&self, record: usize) -> Key {
        let mut key = [0; KEY];
        key.copy_from_slice(&self.log.bytes()[record + 1..record + 1 + KEY]);
        key
    }

    /// Leads a key to a record, or nowhere.
    fn point(&mut self, key: &Key, place: Option<u64>) {
        let hash = hash(key);
        let mask = self.cells - 1;
        let mut cell = hash as usize & mask;
        loop {
            let word = self.index.words()[cell];
            if word == 0 {
                break;
            }
            if word >> 40 == hash >> 40 && self.key_at((word & PLACE_MASK) as usize) == *key {
                break;
            }
            cell = (cell + 1) & mask;
        }
        match place {
            Some(place) => self.index.words_mut()[cell] = (hash >> 40) << 40 | place,
            None if self.index.words()[cell] != 0 => self.unlink(cell),
            None => {}
        }
    }

    /// Empties a cell and closes the gap.
    fn unlink(&mut self, mut hole: usize) {
        let mask = self.cells - 1;
        let mut cell = hole;
        loop {
            cell = (cell + 1) & mask;
            let word = self.index.words()[cell];
            if word == 0 {
                break;
            }
            let home = hash(&self.key_at((word & PLACE_MASK) as usize)) as usize & mask;
            if (cell.wrapping_sub(home) & mask) >= (cell.wrapping_sub(hole) & mask) {
                self.index.words_mut()[hole] = word;
                hole = cell;
            }
        }
        self.index.words_mut()[hole] = 0;
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let hash = hash(key);
        let mask = self.cells - 1;
        let mut cell = hash as usize & mask;
        loop {
            let word = self.index.words()[cell];
            if word == 0 {
                return None;
            }
            let place = (word & PLACE_MASK) as usize;
            if word >> 40 == hash >> 40 && self.log.bytes()[place + 1..place + 1 + KEY] == *key {
                return Some(place);
            }
            cell = (cell + 1) & mask;
        }
    }

    fn prefetch_cells<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        for key in keys {
            self.index.prefetch((hash(key) as usize & (self.cells - 1)) * 8);
        }
    }

    fn append(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<usize> {
        let start = self.end;
        let log = self.log.bytes_mut();
        let len = fill(&mut log[start + HEADER..]);
        let crc = crc32c::crc32c(&log[start + HEADER..start + HEADER + len]);
        log[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        log[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        self.end = (start + HEADER + len).next_multiple_of(BLOCK);
        if self.durability == Durability::Batch {
            self.sync()?;
        } else if self.end - self.written >= WRITE_BYTES {
            self.write()?;
        }
        Ok(start + HEADER)
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_all_at(&self.log.bytes()[self.written..self.end], self.written as u64)?;
        self.written = self.end;
        Ok(())
    }
}

impl Engine for Bound {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        self.prefetch_cells(batch.iter().map(|(key, _)| key));
        let mut place = self.append(|out| {
            let mut at = 0;
            for (key, value) in batch {
                out[at] = 1;
                out[at + 1..at + 1 + KEY].copy_from_slice(key);
                out[at + 1 + KEY..at + 1 + KEY + VALUE].copy_from_slice(value);
                at += 1 + KEY + VALUE;
            }
            at
        })?;
        for group in batch.chunks(32) {
            self.prefetch_cells(group.iter().map(|(key, _)| key));
            for (key, _) in group {
                self.point(key, Some(place as u64));
                place += 1 + KEY + VALUE;
            }
        }
        Ok(())
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (group_at, group) in keys.chunks(64).enumerate() {
            self.prefetch_cells(group.iter());
            for key in group {
                let word = self.index.words()[hash(key) as usize & (self.cells - 1)];
                let place = (word & PLACE_MASK) as usize;
                self.log.prefetch(place);
                self.log.prefetch(place + 64);
            }
            for (at, key) in group.iter().enumerate() {
                let value =
                    self.find(key).map(|place| &self.log.bytes()[place + 1 + KEY..place + 1 + KEY + VALUE]);
                each(group_at * 64 + at, value);
            }
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        self.append(|out| {
            let mut at = 0;
            for key in keys {
                out[at] = 2;
                out[at + 1..at + 1 + KEY].copy_from_slice(key);
                at += 1 + KEY;
            }
            at
        })?;
        for group in keys.chunks(64) {
            self.prefetch_cells(group.iter());
            for key in group {
                let word = self.index.words()[hash(key) as usize & (self.cells - 1)];
                self.log.prefetch((word & PLACE_MASK) as usize);
            }
            for key in group {
                self.point(key, None);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.write()?;
        Ok(self.file.sync_data()?)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.sync()
    }
}
