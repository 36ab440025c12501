//! Eviction policies: which classes of pages leave the cache first.
//!
//! A policy is asked for the classes of the next victims; which page of these goes, its [order](EvictionOrder) says: the hand of a clock, which
//! passes over what was used lately, or SIEVE. The idea is that of "prioritized caching" in "ADAPT", section 5.4: an LRU cache that
//! prefers small files and metadata. Nothing here does I/O or knows a clock, so a simulator calls the same code
//! (`weft_sim::cache`).

mod evictor;
mod order;

pub use evictor::Evictor;
pub use order::{CacheFrames, Clock, EvictionOrder, SieveOrder};

use super::classes::{PageClass, PerClass};
use std::fmt::Debug;

/// Chooses the classes whose pages leave the cache.
pub trait EvictionPolicy: Debug + Send + Sync {
    /// How many pages of each class may leave next, of those `resident` in a cache of `capacity` pages, when room for `wanted` more is to be
    /// made. Where that is more than `wanted` in all, the pages that were not used for the longest time leave, of whatever of these classes.
    /// Where it is less, or fewer can leave since they are in use or differ from the medium, this is asked again: classes
    /// of which none can leave now have no page `resident` then.
    fn leave(&self, resident: &PerClass, capacity: u64, wanted: u64) -> PerClass;

    /// The order in which pages of these classes leave, for a cache of so many frames. By default the [`Clock`].
    fn order(&self, frames: u32) -> Box<dyn EvictionOrder> {
        Box::new(Clock::new(frames))
    }
}

/// [SIEVE](SieveOrder) with weights of classes.
///
/// ```
/// use weft_tags::{DataClass, Options, PageClass, PagePart, Sieve};
/// use std::sync::Arc;
///
/// // Pages of small files stay three times as long after their last use as others.
/// let mut sieve = Sieve::default();
/// sieve.set(PageClass { data: DataClass::Small, part: PagePart::Nodes }, 3);
/// let options = Options { eviction: Arc::new(sieve), ..Options::default() };
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sieve {
    weights: PerClass,
}

impl Default for Sieve {
    /// All classes have weight 1.
    fn default() -> Sieve {
        Sieve { weights: PerClass::all(1) }
    }
}

impl Sieve {
    /// Gives a class its weight, up to 64: how many passes of the hand its pages stay for after their last use.
    pub fn set(&mut self, class: PageClass, weight: u8) {
        self.weights[class] = u64::from(weight);
    }
}

impl EvictionPolicy for Sieve {
    fn leave(&self, _: &PerClass, _: u64, _: u64) -> PerClass {
        PerClass::all(u64::MAX)
    }

    fn order(&self, frames: u32) -> Box<dyn EvictionOrder> {
        Box::new(SieveOrder::new(frames, self.weights))
    }
}

/// Pages leave by their use alone, those of edges later than those of nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SecondChance;

impl EvictionPolicy for SecondChance {
    fn leave(&self, _: &PerClass, _: u64, _: u64) -> PerClass {
        PerClass::all(u64::MAX)
    }
}

/// What a class has of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassShare {
    /// Pages of classes with a lower priority leave before those of classes with a higher one.
    pub priority: u8,
    /// So much of the cache, in percent, stays with the class while pages of others can leave, whatever their priority.
    pub least_percent: u8,
    /// What the class has beyond so much of the cache, in percent, leaves first.
    pub most_percent: u8,
}

impl Default for ClassShare {
    fn default() -> ClassShare {
        ClassShare { priority: 0, least_percent: 0, most_percent: 100 }
    }
}

/// Classes have priorities and quotas: pages beyond the most that a class may have leave first, then those of the lowest priority,
/// down to the least that a class keeps. Classes of the same priority are one.
///
/// ```
/// use weft_tags::{ClassPriorities, ClassShare, DataClass, Options, PageClass, PagePart};
/// use std::sync::Arc;
///
/// // Small files stay before all others, but for a twentieth of the cache that is kept for large ones.
/// let mut classes = ClassPriorities::default();
/// let small = PageClass { data: DataClass::Small, part: PagePart::Nodes };
/// classes.set(small, ClassShare { priority: 1, ..ClassShare::default() });
/// let large = PageClass { data: DataClass::Immutable, part: PagePart::Nodes };
/// classes.set(large, ClassShare { least_percent: 5, ..ClassShare::default() });
/// let options = Options { eviction: Arc::new(classes), ..Options::default() };
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClassPriorities(Vec<(PageClass, ClassShare)>);

impl ClassPriorities {
    /// Gives a class its share. Those that are not set have priority 0 and no quotas.
    pub fn set(&mut self, class: PageClass, share: ClassShare) {
        self.0.retain(|(known, _)| *known != class);
        self.0.push((class, share));
    }

    fn share(&self, class: PageClass) -> ClassShare {
        self.0.iter().find(|(known, _)| *known == class).map_or_else(ClassShare::default, |(_, share)| *share)
    }
}

impl EvictionPolicy for ClassPriorities {
    fn leave(&self, resident: &PerClass, capacity: u64, _: u64) -> PerClass {
        let beyond = |limit: &dyn Fn(ClassShare) -> u64, priority: Option<u8>| {
            let mut leave = PerClass::default();
            for class in PageClass::all() {
                let share = self.share(class);
                if priority.is_none_or(|priority| priority == share.priority) {
                    leave[class] = resident[class].saturating_sub(limit(share));
                }
            }
            leave
        };
        let percent = |percent: u8| capacity * u64::from(percent) / 100;
        let mut priorities: Vec<u8> = PageClass::all().map(|class| self.share(class).priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let most = |share: ClassShare| percent(share.most_percent);
        let least = |share: ClassShare| percent(share.least_percent);
        let first = std::iter::once(beyond(&most, None));
        let quotas = priorities.iter().map(|priority| beyond(&least, Some(*priority)));
        // Where all that is left are the least that classes keep, the lowest priority gives way.
        let rest = priorities.iter().map(|priority| beyond(&|_| 0, Some(*priority)));
        first.chain(quotas).chain(rest).find(|leave| leave.sum() > 0).unwrap_or_default()
    }
}
