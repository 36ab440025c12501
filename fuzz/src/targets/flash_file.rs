//! Open-channel images as bytes that can be damaged: where what lies, and how its checksums are made again
//! (`docs/formats/open-channel-image.md`, `docs/formats/flash-levels.md`).

use std::path::{Path, PathBuf};
use weft_core::checksum::{crc32c, crc32c_append};
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, FlashShape};

/// The session page.
pub const SESSION_AT: usize = 4096;
/// The blocks' records; that of the counters is a page before them.
const BLOCKS_AT: usize = 12288;
const RECORD_BYTES: usize = 256;
const CONTENT_BYTES: usize = 112;
/// Where the content of each slot of a record begins.
const SLOTS_AT: [usize; 2] = [8, 128];
/// What follows the out-of-band bytes of a page.
const TRAILER_BYTES: usize = 8;
/// Out-of-band bytes that are the monitor's.
const MONITOR_OOB: usize = 4;

/// The devices that are fuzzed: small, so that an input is tried in milliseconds.
pub fn setup() -> FlashSetup {
    let geometry = Geometry {
        channels: 2,
        luns_per_channel: 2,
        planes: 1,
        pages_per_block: 8,
        page_bytes: 4096,
        ..Geometry::bbssd()
    };
    FlashSetup::new(geometry.with_size(4 * 24 * 8 * 4096))
}

/// A copy of an image that can be damaged.
pub struct FlashFile {
    /// Its file.
    pub path: PathBuf,
    /// Its bytes as they will be.
    pub bytes: Vec<u8>,
    /// The device's shape as it was made.
    pub shape: FlashShape,
}

impl FlashFile {
    /// A copy of these bytes, to be written to `path`.
    pub fn new(path: &Path, bytes: &[u8]) -> FlashFile {
        FlashFile { path: path.to_path_buf(), bytes: bytes.to_vec(), shape: setup().shape() }
    }

    /// Erase blocks of the device.
    pub fn blocks(&self) -> usize {
        self.shape.blocks() as usize
    }

    /// Where the first page begins.
    pub fn base(&self) -> usize {
        (BLOCKS_AT + RECORD_BYTES * self.blocks()).next_multiple_of(4096)
    }

    /// Bytes of data and out-of-band bytes of a page.
    pub fn content_bytes(&self) -> usize {
        (self.shape.page_bytes + self.shape.oob_bytes) as usize
    }

    /// Where a page lies.
    pub fn page_at(&self, block: usize, page: usize) -> usize {
        let stride = self.content_bytes() + TRAILER_BYTES;
        let block_stride = (stride * self.shape.pages_per_block as usize).next_multiple_of(4096);
        self.base() + block * block_stride + page * stride
    }

    /// Where the out-of-band bytes of a page that are not the monitor's lie.
    pub fn note_at(&self, block: usize, page: usize) -> usize {
        self.page_at(block, page) + self.shape.page_bytes as usize + MONITOR_OOB
    }

    /// Where a block's record begins; that of the counters for the number after the last.
    pub fn record_at(&self, block: usize) -> usize {
        if block < self.blocks() { BLOCKS_AT + block * RECORD_BYTES } else { BLOCKS_AT - 4096 }
    }

    /// Puts bytes at an offset, as far as the file reaches.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).min(self.bytes.len());
        if at < end {
            self.bytes[at..end].copy_from_slice(&bytes[..end - at]);
        }
    }

    /// The integer at an offset; 0 beyond the end.
    pub fn u32_at(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).unwrap_or(&[0; 4]);
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
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
    pub fn seal_record(&mut self, block: usize) {
        let place = if block < self.blocks() { block as u64 } else { u64::MAX };
        for slot in SLOTS_AT {
            let content = self.record_at(block) + slot;
            let sum = crc32c(&self.bytes[content..content + CONTENT_BYTES]);
            let sum = crc32c_append(sum, &self.bytes[16..32]);
            let sum = crc32c_append(sum, &place.to_le_bytes());
            self.put(content + CONTENT_BYTES, &u64::from(sum).to_le_bytes());
        }
    }

    /// Sets a word of both slots of a record.
    pub fn set_word(&mut self, block: usize, word: usize, value: u64) {
        for slot in SLOTS_AT {
            self.put(self.record_at(block) + slot + word * 8, &value.to_le_bytes());
        }
        self.seal_record(block);
    }

    /// Makes the checksum of a page right.
    pub fn seal_page(&mut self, block: usize, page: usize) {
        let (at, len) = (self.page_at(block, page), self.content_bytes());
        let erases = self.bytes[at + len + 4..at + len + 8].to_vec();
        let sum = crc32c_append(crc32c(&self.bytes[at..at + len]), &self.bytes[16..32]);
        let sum = crc32c_append(sum, &(block as u64).to_le_bytes());
        let sum = crc32c_append(crc32c_append(sum, &(page as u32).to_le_bytes()), &erases);
        self.put(at + len, &sum.to_le_bytes());
    }

    /// The bytes of a page that are a part of a record of a log, header included, if it is one.
    pub fn log_part(&self, block: usize, page: usize) -> Option<(usize, usize)> {
        let at = self.page_at(block, page);
        let payload = self.u32_at(at + 12) as usize;
        let is_log = self.bytes.get(at..at + 8) == Some(b"WEFTFLOG".as_slice());
        (is_log && payload + 36 <= self.shape.page_bytes as usize).then_some((at, 36 + payload))
    }

    /// Makes the checksums of a part of a record right, and those of its page.
    pub fn seal_log_part(&mut self, block: usize, page: usize) {
        let at = self.page_at(block, page);
        let payload = (self.u32_at(at + 12) as usize).min(self.shape.page_bytes as usize - 36);
        let sum = crc32c_append(crc32c(&self.bytes[at..at + 32]), &[0; 4]);
        let sum = crc32c_append(sum, &self.bytes[at + 36..at + 36 + payload]);
        self.put(at + 32, &sum.to_le_bytes());
        self.seal_page(block, page);
    }

    /// Makes the checksum of what a level wrote beside a page right, and that of the page.
    pub fn seal_note(&mut self, block: usize, page: usize) {
        let at = self.note_at(block, page);
        let bytes = match self.bytes.get(at..at + 4) {
            Some(b"WFNB") => 28,
            _ => 32,
        };
        let sum = crc32c(&self.bytes[at..at + bytes]);
        self.put(at + bytes, &sum.to_le_bytes());
        self.seal_page(block, page);
    }

    /// Makes it an image that was open when its host went down.
    pub fn crash_host(&mut self) {
        self.put(SESSION_AT + 8, &0u32.to_le_bytes());
        self.put(SESSION_AT + 16, &[0x55; 16]);
        self.seal_session();
    }

    /// Writes the file.
    pub fn write(&self) {
        assert!(std::fs::write(&self.path, &self.bytes).is_ok(), "{} cannot be written", self.path.display());
    }
}
