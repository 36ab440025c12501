//! Device images as bytes that can be damaged: where what lies, and how its checksums are made again.

use crate::script::Script;
use std::path::{Path, PathBuf};
use weft_core::BLOCK_BYTES;
use weft_core::checksum::{crc32c, crc32c_append};
use weft_device::Geometry;

/// The first page, the session's, and the records (`docs/formats/device-image.md`).
pub const SESSION_AT: usize = 4096;
/// The counters' record.
pub const COUNTERS_AT: usize = 8192;
/// The zones' records.
pub const ZONES_AT: usize = 12288;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 256;
const CONTENT_BYTES: usize = 112;
/// Where the content of each slot of a record begins.
const SLOTS_AT: [usize; 2] = [8, 128];

/// The devices that are fuzzed: small, so that an input is tried in milliseconds.
pub fn geometry() -> Geometry {
    let geometry = Geometry::bbssd().with_size(6 << 20).with_zone_bytes(256 << 10);
    Geometry { open_max: 8, active_max: 8, ..geometry }
}

/// A copy of an image that can be damaged.
pub struct ImageFile {
    /// Its file.
    pub path: PathBuf,
    /// Its bytes as they will be.
    pub bytes: Vec<u8>,
    geometry: Geometry,
}

impl ImageFile {
    /// A copy of these bytes, to be written to `path`.
    pub fn new(path: &Path, bytes: &[u8]) -> ImageFile {
        ImageFile { path: path.to_path_buf(), bytes: bytes.to_vec(), geometry: geometry() }
    }

    /// Zones of the device.
    pub fn zones(&self) -> usize {
        self.geometry.zones() as usize
    }

    /// Blocks of a zone.
    pub fn zone_blocks(&self) -> usize {
        self.geometry.zone_bytes as usize / BLOCK_BYTES
    }

    /// Where the first zone begins.
    pub fn base(&self) -> usize {
        (ZONES_AT + RECORD_BYTES * self.zones()).next_multiple_of(BLOCK_BYTES)
    }

    /// Where the flush log begins.
    pub fn log_at(&self) -> usize {
        self.base() + self.zones() * self.geometry.zone_bytes as usize
    }

    /// Where a block lies.
    pub fn block_at(&self, zone: usize, block: usize) -> usize {
        self.base() + zone * self.geometry.zone_bytes as usize + block * BLOCK_BYTES
    }

    /// A block.
    pub fn block(&mut self, zone: usize, block: usize) -> &mut [u8] {
        let at = self.block_at(zone, block);
        &mut self.bytes[at..at + BLOCK_BYTES]
    }

    /// Blocks that the zone's record calls written.
    pub fn write_pointer(&self, zone: usize) -> usize {
        let record = self.record_at(zone);
        let slot = SLOTS_AT[usize::from(self.bytes[record] & 1)];
        let at = record + slot + 4;
        (self.u32_at(at) as usize).min(self.zone_blocks())
    }

    /// Where a zone's record begins; that of the counters for the number after the last.
    pub fn record_at(&self, zone: usize) -> usize {
        if zone < self.zones() { ZONES_AT + zone * RECORD_BYTES } else { COUNTERS_AT }
    }

    /// The integer at an offset.
    pub fn u32_at(&self, at: usize) -> u32 {
        self.bytes[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }

    /// Puts bytes at an offset, as far as the file reaches.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).min(self.bytes.len());
        if at < end {
            self.bytes[at..end].copy_from_slice(&bytes[..end - at]);
        }
    }

    /// Makes the checksum of the header page right.
    pub fn seal_header(&mut self) {
        let sum = crc32c(&self.bytes[..4092]);
        self.put(4092, &sum.to_le_bytes());
    }

    /// Makes the checksum of the session page right.
    pub fn seal_session(&mut self) {
        let sum = crc32c(&self.bytes[SESSION_AT..SESSION_AT + 60]);
        self.put(SESSION_AT + 60, &sum.to_le_bytes());
    }

    /// Makes the checksums of both slots of a record right.
    pub fn seal_record(&mut self, zone: usize) {
        let place = if zone < self.zones() { zone as u64 } else { u64::MAX };
        let record = self.record_at(zone);
        for slot in SLOTS_AT {
            let content = record + slot;
            let sum = crc32c(&self.bytes[content..content + CONTENT_BYTES]);
            let sum = crc32c_append(sum, &self.bytes[16..32]);
            let sum = crc32c_append(sum, &place.to_le_bytes());
            self.put(content + CONTENT_BYTES, &u64::from(sum).to_le_bytes());
        }
    }

    /// Sets a word of both slots of a record.
    pub fn set_word(&mut self, zone: usize, word: usize, value: u64) {
        let record = self.record_at(zone);
        for slot in SLOTS_AT {
            self.put(record + slot + word * 8, &value.to_le_bytes());
        }
        self.seal_record(zone);
    }

    /// Makes both slots of a zone's record tell of a zone in this state with so many blocks, with counts that add up.
    pub fn set_zone(&mut self, zone: usize, state: u32, blocks: u64) {
        self.set_word(zone, 0, blocks << 32 | u64::from(state));
        self.set_word(zone, 1, blocks << 32 | blocks);
        self.settle(zone);
    }

    /// Makes the counts of a zone's record add up to what its state and its other words say.
    pub fn settle(&mut self, zone: usize) {
        let record = self.record_at(zone);
        let capacity = self.geometry.zone_bytes;
        for slot in SLOTS_AT {
            let at = |word: usize| record + slot + word * 8;
            let mut words: Vec<u64> = (0..14)
                .map(|word| u64::from(self.u32_at(at(word))) | u64::from(self.u32_at(at(word) + 4)) << 32)
                .collect();
            // A program unit of this device is a block: none is ever half full.
            let standing = ((words[0] >> 32) * BLOCK_BYTES as u64).min(capacity);
            let erased = (words[3] & 0xffff_ffff) * capacity;
            words[10] = words[10].min(erased);
            words[13] = standing;
            words[7] = erased - words[10] + standing;
            let written = words[4..7].iter().fold(0u64, |sum, bytes| sum.wrapping_add(*bytes));
            words[8] = words[7].saturating_sub(written);
            words[9] = written.saturating_sub(words[7]);
            for (word, value) in words.iter().enumerate() {
                self.put(at(word), &value.to_le_bytes());
            }
        }
        self.seal_record(zone);
    }

    /// Makes it an image that was open when its host went down.
    pub fn crash_host(&mut self) {
        self.put(SESSION_AT + 8, &0u32.to_le_bytes());
        self.put(SESSION_AT + 16, &[0x55; 16]);
        self.seal_session();
    }

    /// Puts an entry into the flush log, as the script says.
    pub fn log_entry(&mut self, script: &mut Script<'_>) {
        let at = script.below(4) * 3 * BLOCK_BYTES;
        let head_at = self.log_at() + at;
        if head_at + 20 * BLOCK_BYTES > self.bytes.len() {
            return;
        }
        let count = script.below(4);
        let blocks = script.below(6);
        let mut head = vec![0; BLOCK_BYTES];
        head[..8].copy_from_slice(b"WEFTFLSH");
        let session = self.bytes[SESSION_AT + 32..SESSION_AT + 40].to_vec();
        head[8..16].copy_from_slice(&session);
        head[16..24].copy_from_slice(&(at as u64).to_le_bytes());
        head[24] = script.byte() & 7;
        head[32] = count as u8;
        head[36] = blocks as u8;
        for item in 0..count {
            let zone = script.below(self.zones());
            let place = 48 + 128 * item;
            let first = script.below(self.zone_blocks());
            for (offset, value) in [(0, zone), (4, first), (8, first + blocks / count.max(1))] {
                head[place + offset..place + offset + 4].copy_from_slice(&(value as u32).to_le_bytes());
            }
            let record = self.record_at(zone) + SLOTS_AT[0];
            head[place + 16..place + 16 + CONTENT_BYTES]
                .copy_from_slice(&self.bytes[record..record + CONTENT_BYTES]);
        }
        for _ in 0..script.below(5) {
            let to = script.below(48 + 128 * 4);
            let value = script.number().to_le_bytes();
            head[to..to + 4].copy_from_slice(&value[..4]);
        }
        let data_at = head_at + BLOCK_BYTES;
        let data = &self.bytes[data_at..data_at + blocks * BLOCK_BYTES];
        head[40..44].copy_from_slice(&crc32c(data).to_le_bytes());
        let sum = crc32c_append(crc32c(&head[..4092]), &self.bytes[16..32]);
        head[4092..].copy_from_slice(&sum.to_le_bytes());
        self.put(head_at, &head);
    }

    /// Writes the file.
    pub fn write(&self) {
        assert!(std::fs::write(&self.path, &self.bytes).is_ok(), "{} cannot be written", self.path.display());
    }
}

/// A folder in memory, if there is one.
pub fn folder() -> tempfile::TempDir {
    let here = ["/dev/shm", "/tmp"].into_iter().find_map(|dir| tempfile::tempdir_in(dir).ok());
    here.unwrap_or_else(|| panic!("neither /dev/shm nor /tmp can be written"))
}
