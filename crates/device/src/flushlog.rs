//! Writes the flush log of an image; its format is in [`crate::image::log`].

use crate::image::log::{DATA_BLOCKS_MAX, ITEMS_MAX, Item, LogPosition, read, seal};
use std::io;
use weft_core::BLOCK_BYTES;
use weft_sys::AlignedBuf;
use weft_sys::file::DirectFile;

/// The log's end, and the entry that is being gathered.
pub struct FlushLog {
    file: DirectFile,
    /// Image and session; `at` is where the next entry begins.
    place: LogPosition,
    /// Where the log begins in the file, and how long it is.
    offset: u64,
    bytes: u64,
    seq: u64,
    /// Bytes from the beginning on that may hold something, of this session or of an earlier one.
    used: u64,
    items: Vec<Item>,
    data_blocks: usize,
    /// Head block and data of the entry.
    buffer: AlignedBuf,
}

impl std::fmt::Debug for FlushLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlushLog").field("place", &self.place).field("seq", &self.seq).finish_non_exhaustive()
    }
}

impl FlushLog {
    /// The empty log of a session.
    pub fn new(file: DirectFile, image: [u8; 16], session: u64, offset: u64, bytes: u64) -> FlushLog {
        FlushLog {
            file,
            place: LogPosition { image, session, at: 0 },
            offset,
            bytes,
            seq: 0,
            used: bytes,
            items: Vec::with_capacity(ITEMS_MAX),
            data_blocks: 0,
            buffer: AlignedBuf::zeroed((1 + DATA_BLOCKS_MAX) * BLOCK_BYTES),
        }
    }

    /// Begins an entry.
    pub fn begin(&mut self) {
        self.items.clear();
        self.data_blocks = 0;
    }

    /// Adds a zone to the entry; the room for its blocks, to be filled by the caller. `None` when the entry has no
    /// room for them: then it must not be written.
    pub fn add(&mut self, item: Item) -> Option<&mut [u8]> {
        let before = self.data_blocks;
        let after = before + (item.to - item.from) as usize;
        if self.items.len() == ITEMS_MAX || after > DATA_BLOCKS_MAX {
            return None;
        }
        self.items.push(item);
        self.data_blocks = after;
        Some(&mut self.buffer[(1 + before) * BLOCK_BYTES..(1 + after) * BLOCK_BYTES])
    }

    /// Whether the log has room for the entry.
    pub fn has_room(&self) -> bool {
        self.place.at + ((1 + self.data_blocks) * BLOCK_BYTES) as u64 <= self.bytes
    }

    /// Writes the entry; it is durable when this returns.
    pub fn write(&mut self) -> io::Result<()> {
        assert!(self.has_room(), "an entry goes beyond the log, over the copies of the records");
        let blocks = 1 + self.data_blocks;
        debug_assert_eq!(
            self.items.iter().map(|item| (item.to - item.from) as usize).sum::<usize>(),
            self.data_blocks
        );
        let bytes = &mut self.buffer[..blocks * BLOCK_BYTES];
        let (head, data) = bytes.split_at_mut(BLOCK_BYTES);
        seal(head, data, &self.items, self.place, self.seq);
        debug_assert!(
            read(bytes, self.place).is_some_and(|entry| entry.seq == self.seq && entry.items == self.items),
            "an entry that no start would read"
        );
        // A write that fails may leave a part of the entry.
        self.used = self.used.max(self.place.at + bytes.len() as u64);
        self.file.write_durably(bytes, self.offset + self.place.at)?;
        self.place.at += (blocks * BLOCK_BYTES) as u64;
        self.seq += 1;
        Ok(())
    }

    /// As [`restart`](FlushLog::restart), of a log that is overwritten. The bytes from its beginning on that hold something.
    pub fn restart_erased(&mut self) -> u64 {
        self.restart();
        std::mem::take(&mut self.used)
    }

    /// Everything that the entries say is durable where it belongs: the log begins anew.
    pub fn restart(&mut self) {
        self.place.at = 0;
    }
}
