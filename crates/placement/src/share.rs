//! Decides which streams write enough to get a slot of their own.
//!
//! An open zone costs half a zone of capacity. A stream that writes next to nothing (a manifest, an info log, small
//! temporary files) fills its zone for hours, and what little of it dies could not have caused copies worth that
//! room. Such streams share one place; a stream that comes to write a fair share of what is written gets its own.

use rustc_hash::FxHashMap;
use weft_core::StreamId;

/// A stream earns a place with this part of what was written lately: a thirty-second.
const SHARE: u64 = 32;
/// What was written lately: halved whenever it exceeds this many bytes.
const WINDOW_BYTES: u64 = 128 << 20;
/// Shares are taken of at least this many bytes, so that the first to write does not count as large at once.
const LEAST_BYTES: u64 = 4 << 20;

/// What each stream wrote lately.
#[derive(Debug, Default)]
pub struct Shares {
    streams: FxHashMap<StreamId, u64>,
    total: u64,
}

impl Shares {
    /// Counts a write.
    pub fn wrote(&mut self, stream: StreamId, bytes: u64) {
        *self.streams.entry(stream).or_insert(0) += bytes;
        self.total += bytes;
        if self.total > WINDOW_BYTES {
            debug_assert_eq!(self.total, self.streams.values().sum(), "shares do not add up");
            self.streams.retain(|_, written| {
                *written /= 2;
                *written > 0
            });
            self.total = self.streams.values().sum();
        }
    }

    /// Whether a stream writes too little for a place of its own. While nothing was counted, none does.
    pub fn is_small(&self, stream: StreamId) -> bool {
        let written = self.streams.get(&stream).copied().unwrap_or(0);
        self.total > 0 && written.saturating_mul(SHARE) < self.total.max(LEAST_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: StreamId = StreamId(1);
    const TABLE: StreamId = StreamId(2);

    #[test]
    fn a_stream_is_small_until_it_writes_its_share() {
        let mut shares = Shares::default();
        assert!(!shares.is_small(LOG));
        shares.wrote(TABLE, 10 << 20);
        assert!(!shares.is_small(TABLE));
        shares.wrote(LOG, 300 << 10);
        assert!(shares.is_small(LOG));
        shares.wrote(LOG, 100 << 10);
        assert!(!shares.is_small(LOG));
    }

    #[test]
    fn what_was_written_long_ago_does_not_count() {
        let mut shares = Shares::default();
        shares.wrote(LOG, 20 << 20);
        for _ in 0..1000 {
            shares.wrote(TABLE, 1 << 20);
        }
        assert!(shares.is_small(LOG));
        assert!(!shares.is_small(TABLE));
        assert!(shares.total <= WINDOW_BYTES);
    }
}
