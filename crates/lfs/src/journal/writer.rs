//! The end of the journal, and the buffer of records for the next frame.

use crate::layout::frame::HEADER_BYTES;
use crate::layout::record::Record;
use weft_core::ZoneId;
use weft_core::codec::Reader;

/// The end of the journal and the records to write there.
#[derive(Default)]
pub struct Journal {
    /// The zone being written, if any.
    pub zone: Option<ZoneId>,
    /// The mount's number.
    pub epoch: u64,
    /// Number of the next frame.
    pub next_seq: u64,
    /// Room for the header, then the records of whole transactions.
    pub(crate) buffer: Vec<u8>,
    /// Whether anything changed since the last checkpoint.
    pub changed: bool,
    /// Whether the last frame is the end of a clean checkpoint.
    pub closed: bool,
    /// Zones of the chain before `zone`, oldest first.
    pub zones: Vec<ZoneId>,
    /// Zones of the other copy of the checkpoint with which the volume was closed.
    pub spare: Vec<ZoneId>,
    /// Largest payload of a frame.
    pub frame_max: usize,
    /// First 8 bytes of the volume's UUID.
    pub volume: u64,
    /// When it was last committed for its age, in nanoseconds of the volume's clock.
    pub last_commit: i64,
}

impl Journal {
    /// A journal that begins with frame `next_seq`, in a zone yet to be opened.
    pub fn new(epoch: u64, next_seq: u64, volume: u64, frame_max: usize, now: i64) -> Journal {
        Journal {
            epoch,
            next_seq,
            buffer: vec![0; HEADER_BYTES],
            frame_max,
            volume,
            last_commit: now,
            ..Journal::default()
        }
    }

    /// Adds a record to the transaction at hand.
    pub fn push(&mut self, record: &Record<'_>) {
        let at = self.buffer.len();
        record.encode(&mut self.buffer);
        debug_assert_eq!(Record::decode(&mut Reader::new(&self.buffer[at..])).as_ref(), Ok(record));
        debug_assert!(self.pending() <= self.frame_max, "{} bytes of records", self.pending());
        self.changed = true;
    }

    /// The frame of the last record that was added, written or not. While a frame is being written, the one before it.
    pub fn seq_of_last_record(&self) -> u64 {
        self.next_seq - u64::from(self.buffer.len() <= HEADER_BYTES)
    }

    /// Bytes of records that are not written yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - HEADER_BYTES
    }
}
