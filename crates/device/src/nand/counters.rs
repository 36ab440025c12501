//! The counters of the flash.

use super::error::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Programs and erases are counted since the device was made, everything else since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlashCounters {
    /// Pages read.
    pub pages_read: u64,
    /// Pages programmed, failed and torn ones included.
    pub pages_programmed: u64,
    /// Blocks erased, interrupted erases included.
    pub blocks_erased: u64,
    /// Programmed pages that erases took away.
    pub pages_erased: u64,
    /// Bytes moved from the flash, out-of-band bytes included.
    pub bytes_read: u64,
    /// Bytes moved to the flash, out-of-band bytes included.
    pub bytes_programmed: u64,
    /// Operations on more than one plane at once.
    pub multi_plane: u64,
    /// Programs that failed.
    pub program_failures: u64,
    /// Erases that failed, worn-out blocks included.
    pub erase_failures: u64,
    /// Reads that could not be corrected, torn pages included.
    pub uncorrectable_reads: u64,
    /// Wrong bits that were corrected.
    pub bits_corrected: u64,
    /// Time that the LUNs were at work, all together, in nanoseconds.
    pub lun_busy_ns: u64,
    /// Commands refused, by rule; rules that nothing broke are left out.
    pub refused: BTreeMap<Refusal, u64>,
}

impl FlashCounters {
    /// Adds the counts of another part of the device.
    pub fn add(&mut self, other: &FlashCounters) {
        macro_rules! sum {
            ($($field:ident),*) => {$( self.$field += other.$field; )*};
        }
        sum!(
            pages_read,
            pages_programmed,
            blocks_erased,
            pages_erased,
            bytes_read,
            bytes_programmed,
            multi_plane,
            program_failures,
            erase_failures,
            uncorrectable_reads,
            bits_corrected,
            lun_busy_ns
        );
        for (rule, count) in &other.refused {
            *self.refused.entry(*rule).or_default() += count;
        }
    }

    /// Commands refused, whatever the rule.
    pub fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }
}
