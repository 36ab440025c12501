//! Eviction policies under the requests of a web server: the store's own code, on a modelled device.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_sim::cache::{Cache, DeviceModel, ExactLru, Replay, S3Fifo, WebSetup, WebTrace, replay};
use weft_tags::{
    ClassPriorities, ClassShare, DataClass, EvictionPolicy, PageClass, PagePart, SecondChance, Sieve,
};

const CACHE_PAGES: u32 = 4096;

fn nodes(data: DataClass) -> PageClass {
    PageClass { data, part: PagePart::Nodes }
}

fn priorities() -> ClassPriorities {
    let mut classes = ClassPriorities::default();
    classes.set(nodes(DataClass::Metadata), ClassShare { priority: 2, ..ClassShare::default() });
    classes.set(nodes(DataClass::Small), ClassShare { priority: 1, ..ClassShare::default() });
    classes
}

fn sieve(weight: u8) -> Sieve {
    let mut sieve = Sieve::default();
    sieve.set(nodes(DataClass::Metadata), weight);
    sieve.set(nodes(DataClass::Small), weight);
    sieve
}

fn run(policy: impl EvictionPolicy + 'static, seed: u64) -> Replay {
    let setup = WebSetup { unique_bytes: 4 * u64::from(CACHE_PAGES) * 4096, theta: 0.9, seed };
    let mut cache = Cache::new(Arc::new(policy), CACHE_PAGES);
    replay(&mut WebTrace::new(setup), 30_000, &mut cache, DeviceModel::DISK)
}

#[test]
fn what_prefers_small_files_takes_less_modelled_time_than_lru_and_the_clock_is_close_to_its_exact_form() {
    for seed in 1..4 {
        let lru = run(ExactLru(SecondChance), seed);
        let clock = run(SecondChance, seed);
        let by_priority = run(ExactLru(priorities()), seed);
        let by_priority_clock = run(priorities(), seed);
        let (plain, weighted) = (run(sieve(1), seed), run(sieve(8), seed));
        assert!(by_priority.small > lru.small && by_priority.large < lru.large, "seed {seed}");
        assert!(
            by_priority.preferred > 0.85 && lru.preferred < 0.5,
            "seed {seed}: {}",
            by_priority.preferred
        );
        assert!(by_priority.elapsed < lru.elapsed && weighted.elapsed < plain.elapsed, "seed {seed}");
        assert!(plain.all > lru.all, "seed {seed}");
        // S3-FIFO has more hits than LRU, as SIEVE has, and knows nothing of classes: what does takes less time.
        let s3_fifo = run(S3Fifo(SecondChance), seed);
        assert!(s3_fifo.all > lru.all && s3_fifo.elapsed < lru.elapsed, "seed {seed}");
        assert!(weighted.elapsed < s3_fifo.elapsed, "seed {seed}");
        for (exact, approximate) in [(&lru, &clock), (&by_priority, &by_priority_clock)] {
            let (exact, approximate) = (exact.all.unwrap(), approximate.all.unwrap());
            assert!((exact - approximate).abs() < 0.03, "seed {seed}: {exact} and {approximate}");
        }
        assert!(lru.within(lru.quantile(0.5)) >= 0.5 && lru.quantile(0.0) <= lru.quantile(0.999));
    }
}

#[test]
fn a_cache_as_large_as_all_files_misses_each_page_once() {
    let setup = WebSetup { unique_bytes: 1 << 20, theta: 0.5, seed: 3 };
    let mut cache = Cache::new(Arc::new(Sieve::default()), 4096);
    replay(&mut WebTrace::new(setup), 20_000, &mut cache, DeviceModel::SSD);
    let first = cache.resident();
    replay(&mut WebTrace::new(setup), 20_000, &mut cache, DeviceModel::SSD);
    assert_eq!(cache.resident(), first);
}
