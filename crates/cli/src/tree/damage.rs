//! Files that are read past what is damaged in them, block by block, to lose no more than must be.

use super::Source;
use std::fmt;
use std::io;
use weft_core::BLOCK_BYTES;
use weft_lfs::salvage::{RANGES_MAX, note_range};

/// Ranges that are shown of a file; the bytes of all are.
const SHOWN_MAX: usize = 8;

/// The ranges of a file that cannot be read.
#[derive(Default, Debug)]
pub struct LostRanges {
    bytes: u64,
    ranges: Vec<(u64, u64)>,
}

impl LostRanges {
    /// Whether all can be read.
    pub fn is_nothing(&self) -> bool {
        self.bytes == 0
    }

    /// Where it begins.
    pub fn begin(&self) -> Option<u64> {
        self.ranges.first().map(|(at, _)| *at)
    }
}

impl fmt::Display for LostRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (at, bytes)) in self.ranges.iter().take(SHOWN_MAX).enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{bytes} bytes at {at}")?;
        }
        match self.ranges.len() {
            0..=SHOWN_MAX => Ok(()),
            RANGES_MAX.. => write!(f, " and many more ranges, {} bytes in all,", self.bytes),
            n => write!(f, " and {} more ranges, {} bytes in all,", n - SHOWN_MAX, self.bytes),
        }?;
        f.write_str(" cannot be read")
    }
}

/// Reads a file to its end: returns zeros for what cannot be read, and records the range.
pub struct ZeroingReader<'a> {
    source: Box<dyn Source + 'a>,
    size: u64,
    lost: LostRanges,
}

impl<'a> ZeroingReader<'a> {
    /// Reads a file of `size` bytes.
    pub fn new(source: Box<dyn Source + 'a>, size: u64) -> ZeroingReader<'a> {
        ZeroingReader { source, size, lost: LostRanges::default() }
    }

    /// Forgets what could not be read, for a reader who begins anew.
    pub fn begin_again(&mut self) {
        self.lost = LostRanges::default();
    }

    /// What could not be read up to now.
    pub fn lost(&self) -> &LostRanges {
        &self.lost
    }

    /// Ends the reading; what could not be read.
    pub fn into_lost(self) -> LostRanges {
        self.lost
    }
}

impl Source for ZeroingReader<'_> {
    fn data_at(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        self.source.data_at(offset)
    }

    fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.source.read_at(out, offset) {
            Err(error) if self.source.is_damage(&error) => {}
            read => return read,
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let block = BLOCK_BYTES - (at % BLOCK_BYTES as u64) as usize;
            let part = block.min(out.len() - done);
            let out = &mut out[done..done + part];
            let n = match self.source.read_at(out, at) {
                Err(error) if self.source.is_damage(&error) => {
                    let left = self.size.saturating_sub(at).min(part as u64);
                    out.fill(0);
                    self.lost.bytes += left;
                    if left > 0 {
                        note_range(&mut self.lost.ranges, at, left);
                    }
                    left as usize
                }
                read => read?,
            };
            done += n;
            if n < part {
                break;
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20,000 bytes of which some blocks cannot be read.
    struct Bad(&'static [u64]);

    impl Source for Bad {
        fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize> {
            let end = (offset + out.len() as u64).min(20_000);
            if self.0.iter().any(|block| offset < (block + 1) * 4096 && end > block * 4096) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let n = end.saturating_sub(offset) as usize;
            out[..n].fill(7);
            Ok(n)
        }

        fn is_damage(&self, error: &io::Error) -> bool {
            error.raw_os_error() == Some(libc::EIO)
        }
    }

    fn read(bad: &'static [u64], from: u64) -> (Vec<u8>, String) {
        let mut source = ZeroingReader::new(Box::new(Bad(bad)), 20_000);
        let mut out = vec![1; 100_000];
        let n = source.read_at(&mut out, from).unwrap();
        out.truncate(n);
        (out, source.lost().to_string())
    }

    #[test]
    fn only_the_blocks_that_cannot_be_read_are_zero() {
        let (out, told) = read(&[1, 2, 4], 100);
        assert_eq!(out.len(), 19_900);
        let bad = |at: usize| (4096..12288).contains(&at) || at >= 16384;
        assert!((100..20_000).all(|at| out[at - 100] == if bad(at) { 0 } else { 7 }));
        assert_eq!(told, "8192 bytes at 4096, 3616 bytes at 16384 cannot be read");
        assert!(read(&[], 0).0 == [7; 20_000]);
    }
}
