//! A latency histogram with bounded relative error that also works in shared memory.
//!
//! Values are nanoseconds. Each power of two is split into 16 buckets, so a reported percentile is at most 6.25 % off.
//! Buckets are relaxed atomics: several threads and processes may record at once, and a reader sees a sum that is
//! consistent enough to report (nothing is derived from two buckets being in step).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// Largest power of two told apart: 2^40 ns is 18 minutes.
const TOP_BITS: usize = 40;
/// Buckets of a histogram.
pub const BUCKETS: usize = (TOP_BITS - SUB_BITS as usize + 2) * SUB;

/// Counts of values by size. All-zero memory is a valid, empty histogram.
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

/// What a report shows of a histogram, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Values recorded.
    pub count: u64,
    /// Mean of the values.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest value.
    pub max_ns: u64,
}

fn bucket_of(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let top = 63 - value.leading_zeros();
    let sub = (value >> (top - SUB_BITS)) as usize & (SUB - 1);
    (((top - SUB_BITS + 1) as usize) * SUB + sub).min(BUCKETS - 1)
}

fn bucket_floor(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let top = (bucket / SUB) as u32 - 1 + SUB_BITS;
    (1 << top) | (((bucket % SUB) as u64) << (top - SUB_BITS))
}

impl Histogram {
    /// Counts one value, in nanoseconds.
    pub fn record(&self, value_ns: u64) {
        self.buckets[bucket_of(value_ns)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value_ns, Relaxed);
        if value_ns > self.max.load(Relaxed) {
            self.max.fetch_max(value_ns, Relaxed);
        }
    }

    /// Adds the counts of another histogram.
    pub fn add(&self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter().zip(&other.buckets) {
            let n = theirs.load(Relaxed);
            if n > 0 {
                mine.fetch_add(n, Relaxed);
            }
        }
        self.sum.fetch_add(other.sum.load(Relaxed), Relaxed);
        self.max.fetch_max(other.max.load(Relaxed), Relaxed);
    }

    /// The percentiles of what was recorded; all zero when nothing was.
    pub fn summary(&self) -> Summary {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Relaxed)).collect();
        // What a process counts it may write, and write nonsense.
        let count = counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        if count == 0 {
            return Summary::default();
        }
        let max_ns = self.max.load(Relaxed);
        let at = |fraction: f64| {
            let rank = ((count as f64 * fraction).ceil() as u64).clamp(1, count);
            let mut seen = 0;
            for (bucket, n) in counts.iter().enumerate() {
                seen = u64::saturating_add(seen, *n);
                if seen >= rank {
                    return bucket_floor(bucket).min(max_ns);
                }
            }
            max_ns
        };
        Summary {
            count,
            mean_ns: self.sum.load(Relaxed) / count,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_sixteenth() {
        let h = Histogram::default();
        for v in 1..=100_000u64 {
            h.record(v);
        }
        let s = h.summary();
        assert_eq!(s.count, 100_000);
        assert_eq!(s.max_ns, 100_000);
        for (got, want) in [(s.p50_ns, 50_000.0), (s.p99_ns, 99_000.0), (s.p999_ns, 99_900.0)] {
            let ratio = got as f64 / want;
            assert!((0.93..=1.0001).contains(&ratio), "{got} for {want}");
        }
    }

    #[test]
    fn counts_that_nobody_can_have_made_give_some_summary() {
        let h = Histogram::default();
        h.buckets.iter().for_each(|bucket| bucket.store(u64::MAX, Relaxed));
        h.max.store(7, Relaxed);
        assert_eq!((h.summary().count, h.summary().p999_ns), (u64::MAX, 0));
    }

    #[test]
    fn every_bucket_begins_where_the_one_before_ends() {
        for b in 1..BUCKETS {
            assert_eq!(bucket_of(bucket_floor(b)), b);
            assert_eq!(bucket_of(bucket_floor(b) - 1), b - 1);
        }
    }
}
