//! Bit errors of reads: from wear, from read disturb, and from retention.

use super::block::Block;
use serde::{Deserialize, Serialize};
use weft_core::random::SplitMix;

/// Expected wrong bits of a page read; the default is none. The expectation is
///
/// ```text
///  per_page + per_erase x erases of the block + per_read x reads of the block since its erase
///           + per_hour x hours of device time since the block's first program
/// ```
///
/// Its fraction is decided by a draw that is a function of the seed, the page, the block's erases and its reads. Up to
/// `correctable` bits are corrected and counted; with more the read fails.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BitErrors {
    /// What the fractions are drawn from.
    pub seed: u64,
    /// Wrong bits of a page of fresh flash.
    pub per_page: f64,
    /// More for each erase of the block (wear).
    pub per_erase: f64,
    /// More for each read of the block since its erase (read disturb).
    pub per_read: f64,
    /// More for each hour of device time since the block's first program (retention).
    pub per_hour: f64,
    /// Wrong bits that the code of a page corrects.
    pub correctable: u32,
}

impl BitErrors {
    /// Wrong bits of a read, at a moment of device time, of a page of this block, which is the block `at` of the LUN.
    #[inline]
    pub(crate) fn bits(&self, page: (u32, u32, u32), block: &Block, now_ns: u64) -> u32 {
        if self.per_page == 0.0 && self.per_erase == 0.0 && self.per_read == 0.0 && self.per_hour == 0.0 {
            return 0;
        }
        self.bits_as_planned(page, block, now_ns)
    }

    fn bits_as_planned(&self, (lun, at, page): (u32, u32, u32), block: &Block, now_ns: u64) -> u32 {
        const HOUR_NS: f64 = 3.6e12;
        let age_ns = now_ns.saturating_sub(block.written_at);
        let expected = self.per_page
            + self.per_erase * f64::from(block.erases)
            + self.per_read * f64::from(block.reads)
            + self.per_hour * (age_ns as f64 / HOUR_NS);
        let of = [
            u64::from(lun) << 32 | u64::from(at),
            u64::from(page),
            u64::from(block.erases) << 32 | u64::from(block.reads),
        ];
        let draw = SplitMix::new(self.seed, &of).below(1 << 32) as f64 / (1u64 << 32) as f64;
        // Casts of floats saturate, so a plan without sense makes pages unreadable and nothing else.
        (expected + draw) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bits_come_as_often_as_expected() {
        let plan = BitErrors { seed: 3, per_page: 0.25, per_read: 0.5, ..BitErrors::default() };
        let bits = |page| plan.bits((1, 2, page), &Block { reads: 4, ..Block::default() }, 0);
        let total: u32 = (0..10_000).map(bits).sum();
        assert!((22_000..23_000).contains(&total), "{total}");
        assert!((0..100).all(|page| (2..=3).contains(&bits(page))));
    }
}
