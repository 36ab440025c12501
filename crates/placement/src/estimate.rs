//! Estimates the lifetime of a stream's data from the files that died.
//!
//! Lifetimes are counted in bytes that the volume takes from programs, because that is what fills zones: an idle hour
//! ages nothing. They spread over orders of magnitude, so the mean that predicts is that of the logarithm; old
//! observations decay, so that a phase of the workload that is over is forgotten after some dozen deaths.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Deaths after which what was observed replaces what the policy expects.
pub const TRUSTED_AFTER: u64 = 8;
/// Weight of the newest observation, once there are enough.
const DECAY: f64 = 1.0 / 16.0;
/// Powers of two that lifetimes are counted in: up to 2^63 bytes.
const BUCKETS: usize = 64;

/// What is known of the lifetimes of a stream's data.
#[derive(Debug)]
pub struct LifetimeEstimate {
    /// What a reader gets without a lock: the expected lifetime in bytes, 0 = unknown.
    expected: AtomicU64,
    observed: Mutex<Observed>,
}

#[derive(Debug)]
struct Observed {
    deaths: u64,
    bytes: u64,
    mean_log2: f64,
    variance_log2: f64,
    by_power: [u64; BUCKETS],
    longest: u64,
}

/// Lifetimes as a report shows them, in bytes that the volume took from programs meanwhile.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct LifetimeSummary {
    /// Files that died.
    pub deaths: u64,
    /// Bytes that died with them.
    pub dead_bytes: u64,
    /// What the next file of the stream is expected to live; 0 = unknown.
    pub expected_bytes: u64,
    /// Half of the files lived at most about so long; exact to a power of two.
    pub p50_bytes: u64,
    /// Nine in ten lived at most about so long; exact to a power of two.
    pub p90_bytes: u64,
    /// The longest life.
    pub max_bytes: u64,
    /// Standard deviation of the binary logarithm of lifetimes: 1 = within a factor of two.
    pub spread_log2: f64,
}

impl LifetimeEstimate {
    /// An estimate that begins with what a policy expects.
    pub fn new(prior_bytes: Option<u64>) -> LifetimeEstimate {
        LifetimeEstimate {
            expected: AtomicU64::new(prior_bytes.unwrap_or(0)),
            observed: Mutex::new(Observed {
                deaths: 0,
                bytes: 0,
                mean_log2: 0.0,
                variance_log2: 0.0,
                by_power: [0; BUCKETS],
                longest: 0,
            }),
        }
    }

    /// Takes the death of a file of `size` bytes that lived for `lived_bytes`.
    pub fn observe(&self, size: u64, lived_bytes: u64) {
        let mut seen = self.observed.lock();
        seen.deaths += 1;
        seen.bytes += size;
        seen.longest = seen.longest.max(lived_bytes);
        let log2 = (lived_bytes.max(1) as f64).log2();
        seen.by_power[(log2 as usize).min(BUCKETS - 1)] += 1;
        // A plain mean at first, so that the first death does not weigh for ever.
        let weight = (1.0 / seen.deaths as f64).max(DECAY);
        let off = log2 - seen.mean_log2;
        seen.mean_log2 += weight * off;
        seen.variance_log2 = (1.0 - weight) * (seen.variance_log2 + weight * off * off);
        debug_assert_eq!(seen.by_power.iter().sum::<u64>(), seen.deaths, "a death is in one bucket");
        debug_assert!((0.0..=64.0).contains(&seen.mean_log2) && seen.variance_log2 >= 0.0);
        if seen.deaths >= TRUSTED_AFTER {
            self.expected.store(seen.mean_log2.exp2() as u64, Relaxed);
        }
    }

    /// The expected lifetime of new data in bytes; `None` = unknown.
    pub fn expected_bytes(&self) -> Option<u64> {
        Some(self.expected.load(Relaxed)).filter(|b| *b > 0)
    }

    /// What a report shows.
    pub fn summary(&self) -> LifetimeSummary {
        let seen = self.observed.lock();
        let at = |fraction: f64| {
            let rank = (seen.deaths as f64 * fraction).ceil() as u64;
            let mut count = 0;
            for (power, n) in seen.by_power.iter().enumerate() {
                count += n;
                if count >= rank && count > 0 {
                    return (1u64 << power).saturating_mul(2).min(seen.longest);
                }
            }
            0
        };
        LifetimeSummary {
            deaths: seen.deaths,
            dead_bytes: seen.bytes,
            expected_bytes: self.expected.load(Relaxed),
            p50_bytes: at(0.5),
            p90_bytes: at(0.9),
            max_bytes: seen.longest,
            spread_log2: seen.variance_log2.sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prior_holds_until_enough_deaths_were_seen() {
        let estimate = LifetimeEstimate::new(Some(1000));
        for _ in 0..TRUSTED_AFTER - 1 {
            estimate.observe(10, 1 << 20);
        }
        assert_eq!(estimate.expected_bytes(), Some(1000));
        estimate.observe(10, 1 << 20);
        assert_eq!(estimate.expected_bytes(), Some(1 << 20));
        assert_eq!(LifetimeEstimate::new(None).expected_bytes(), None);
    }

    #[test]
    fn a_workload_that_changes_is_followed_within_a_hundred_deaths() {
        let estimate = LifetimeEstimate::new(None);
        for _ in 0..1000 {
            estimate.observe(1, 1 << 30);
        }
        for _ in 0..100 {
            estimate.observe(1, 1 << 20);
        }
        let expected = estimate.expected_bytes().unwrap();
        assert!(expected < 1 << 21, "{expected}");
    }

    #[test]
    fn percentiles_are_exact_to_a_power_of_two() {
        let estimate = LifetimeEstimate::new(None);
        for lived in 1..=1000u64 {
            estimate.observe(1, lived << 10);
        }
        let summary = estimate.summary();
        assert_eq!((summary.deaths, summary.dead_bytes), (1000, 1000));
        assert_eq!(summary.max_bytes, 1000 << 10);
        assert!((500 << 10..=1000 << 10).contains(&summary.p50_bytes), "{summary:?}");
        assert!(
            summary.p50_bytes <= summary.p90_bytes && summary.p90_bytes <= summary.max_bytes,
            "{summary:?}"
        );
        assert_eq!(LifetimeEstimate::new(None).summary(), LifetimeSummary::default());
    }
}
