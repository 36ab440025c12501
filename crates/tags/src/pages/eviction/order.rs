//! Eviction orders: which pages leave first, of the classes that may.
//!
//! An order knows frames by their numbers, and asks [`CacheFrames`] about them. It has no clock and does no I/O; the store and simulators call it
//! under a lock of theirs. What makes a page stay is that it was used since the order looked at it last. The store notes a use as a bit beside
//! the page, so a read that hits calls nothing here.

use super::super::classes::{PageClass, PerClass};
use std::fmt::Debug;

/// The frames of a cache, as an order sees them.
pub trait CacheFrames {
    /// The class of the page in a frame; `None` where no page is that could leave now: nobody is in it, it is being read, or it differs from
    /// the medium.
    fn class(&self, frame: u32) -> Option<PageClass>;

    /// Takes one use of the page away; whether there was one.
    fn take_use(&mut self, frame: u32) -> bool;

    /// The page leaves, and the frame is free.
    fn evict(&mut self, frame: u32);
}

/// In what order pages leave.
pub trait EvictionOrder: Debug + Send {
    /// A page is about to come into a frame, which was free.
    fn entered(&mut self, frame: u32);

    /// The page in a frame was used. The store never calls this, since that would cost each read a lock; an exact order in a simulator needs it.
    fn used(&mut self, _frame: u32) {}

    /// This page came into a frame that a page has entered. The store never calls this, since it takes frames before it knows for what; orders that
    /// remember pages which have left need it, in a simulator.
    fn holds(&mut self, _frame: u32, _page: u64) {}

    /// Evicts up to `wanted` pages, of each class as many as may `leave`, of which those are taken away. Ends after a bounded number of
    /// steps.
    fn sweep(&mut self, wanted: u64, leave: &mut PerClass, cache: &mut dyn CacheFrames);
}

/// The most times that a sweep passes a frame.
const ROUNDS: u64 = 4;

/// The clock, or second chance: a hand goes round the frames and takes pages that were not used since it passed. Close to least recently used
/// without moving anything when a page is used.
#[derive(Debug)]
pub struct Clock {
    frames: u32,
    hand: u32,
}

impl Clock {
    /// A clock of so many frames.
    pub fn new(frames: u32) -> Clock {
        Clock { frames, hand: 0 }
    }
}

impl EvictionOrder for Clock {
    fn entered(&mut self, _: u32) {}

    fn sweep(&mut self, wanted: u64, leave: &mut PerClass, cache: &mut dyn CacheFrames) {
        let (mut wanted, mut left) = (wanted, leave.sum());
        for _ in 0..u64::from(self.frames) * ROUNDS {
            if wanted == 0 || left == 0 {
                break;
            }
            let frame = self.hand;
            self.hand = (frame + 1) % self.frames;
            let Some(class) = cache.class(frame).filter(|class| leave[*class] > 0) else { continue };
            if cache.take_use(frame) {
                continue;
            }
            cache.evict(frame);
            leave[class] -= 1;
            (wanted, left) = (wanted - 1, left.saturating_sub(1));
        }
    }
}

const NONE: u32 = u32::MAX;
/// The hand has not passed since the page came in.
const UNSEEN: u8 = u8::MAX;
/// Heavier classes weigh so much.
const WEIGHT_MAX: u8 = 64;

/// SIEVE with weights of classes (Zhang and others, "SIEVE is Simpler than LRU", NSDI 2024).
///
/// ```text
///   newest -> o  o  o  o  o  o  o  o  o -> oldest       a page comes in at the newest end, and never moves
///                         ^ hand <-                     goes to newer pages: a used one stays where it is, another one leaves
/// ```
///
/// The clock examines a new page after all others. SIEVE keeps its hand where it is, so that new pages which nobody uses again leave before old ones
/// that are used. A page of a class with weight `w` stays for `w` passes of the hand after its last use, and for `w - 1` when it was not used since it
/// came in: 1 is SIEVE without weights, 0 lets used pages leave, too.
///
/// The access that brings a page in leaves a use beside it, which would count as a second one. So uses before the first sweep after a page came
/// in do not count: they are correlated references in the terms of LRU-K (O'Neil and others, SIGMOD 1993).
#[derive(Debug)]
pub struct SieveOrder {
    weights: PerClass,
    /// By frame: the next newer and the next older one.
    newer: Vec<u32>,
    older: Vec<u32>,
    /// By frame: passes of the hand for which it stays yet.
    passes: Vec<u8>,
    listed: Vec<bool>,
    newest: u32,
    oldest: u32,
    hand: u32,
    /// Frames that pages came into since the last sweep, each once.
    fresh: Vec<u32>,
    is_fresh: Vec<bool>,
}

impl SieveOrder {
    /// An empty order of so many frames.
    pub fn new(frames: u32, weights: PerClass) -> SieveOrder {
        let frames = frames as usize;
        SieveOrder {
            weights,
            newer: vec![NONE; frames],
            older: vec![NONE; frames],
            passes: vec![UNSEEN; frames],
            listed: vec![false; frames],
            newest: NONE,
            oldest: NONE,
            hand: NONE,
            fresh: Vec::new(),
            is_fresh: vec![false; frames],
        }
    }

    fn unlink(&mut self, frame: u32) {
        let at = frame as usize;
        let (newer, older) = (self.newer[at], self.older[at]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        if self.hand == frame {
            self.hand = newer;
        }
        self.listed[at] = false;
    }
}

impl EvictionOrder for SieveOrder {
    fn entered(&mut self, frame: u32) {
        let at = frame as usize;
        // A page that was given up has left its frame in the list.
        if self.listed[at] {
            self.unlink(frame);
        }
        (self.newer[at], self.older[at], self.passes[at]) = (NONE, self.newest, UNSEEN);
        match self.newest {
            NONE => self.oldest = frame,
            newest => self.newer[newest as usize] = frame,
        }
        self.newest = frame;
        self.listed[at] = true;
        if !std::mem::replace(&mut self.is_fresh[at], true) {
            self.fresh.push(frame);
        }
    }

    fn sweep(&mut self, wanted: u64, leave: &mut PerClass, cache: &mut dyn CacheFrames) {
        for frame in std::mem::take(&mut self.fresh) {
            self.is_fresh[frame as usize] = false;
            while cache.take_use(frame) {}
        }
        let (mut wanted, mut left) = (wanted, leave.sum());
        let heaviest =
            PageClass::all().map(|class| self.weights[class]).max().unwrap_or(1).min(u64::from(WEIGHT_MAX));
        for _ in 0..self.listed.len() as u64 * (ROUNDS + heaviest) {
            if self.hand == NONE {
                self.hand = self.oldest;
            }
            if wanted == 0 || left == 0 || self.hand == NONE {
                break;
            }
            let (frame, at) = (self.hand, self.hand as usize);
            self.hand = self.newer[at];
            let Some(class) = cache.class(frame).filter(|class| leave[*class] > 0) else { continue };
            let weight = self.weights[class].min(u64::from(WEIGHT_MAX)) as u8;
            if self.passes[at] == UNSEEN {
                self.passes[at] = weight.saturating_sub(1);
            }
            if cache.take_use(frame) && weight > 0 {
                self.passes[at] = weight - 1;
                continue;
            }
            if self.passes[at] > 0 {
                self.passes[at] -= 1;
                continue;
            }
            self.unlink(frame);
            cache.evict(frame);
            leave[class] -= 1;
            (wanted, left) = (wanted - 1, left.saturating_sub(1));
        }
    }
}

#[cfg(all(test, not(weft_shuttle)))]
mod tests {
    use super::super::super::classes::PagePart;
    use super::*;
    use weft_core::DataClass;

    const SMALL: PageClass = PageClass { data: DataClass::Small, part: PagePart::Nodes };
    const LARGE: PageClass = PageClass { data: DataClass::Immutable, part: PagePart::Nodes };

    /// Frames by their classes and uses.
    #[derive(Default)]
    struct Frames(Vec<Option<(PageClass, u8)>>);

    impl CacheFrames for Frames {
        fn class(&self, frame: u32) -> Option<PageClass> {
            self.0[frame as usize].map(|(class, _)| class)
        }

        fn take_use(&mut self, frame: u32) -> bool {
            let held = self.0[frame as usize].as_mut();
            held.is_some_and(|(_, uses)| std::mem::replace(uses, uses.saturating_sub(1)) > 0)
        }

        fn evict(&mut self, frame: u32) {
            self.0[frame as usize] = None;
        }
    }

    impl Frames {
        fn enter(&mut self, order: &mut dyn EvictionOrder, frame: usize, class: PageClass) {
            order.entered(frame as u32);
            self.0.resize(self.0.len().max(frame + 1), None);
            self.0[frame] = Some((class, 1));
        }

        fn touch(&mut self, frame: usize) {
            if let Some((_, uses)) = &mut self.0[frame] {
                *uses = 1;
            }
        }

        fn there(&self) -> Vec<usize> {
            (0..self.0.len()).filter(|frame| self.0[*frame].is_some()).collect()
        }
    }

    fn weights(small: u64, large: u64) -> PerClass {
        let mut weights = PerClass::all(1);
        (weights[SMALL], weights[LARGE]) = (small, large);
        weights
    }

    fn sweep(order: &mut dyn EvictionOrder, wanted: u64, frames: &mut Frames) {
        order.sweep(wanted, &mut PerClass::all(u64::MAX), frames);
    }

    #[test]
    fn sieve_keeps_what_is_used_in_its_place_and_takes_new_pages_that_nobody_uses_again() {
        let (mut order, mut frames) = (SieveOrder::new(6, weights(1, 1)), Frames::default());
        (0..6).for_each(|frame| frames.enter(&mut order, frame, LARGE));
        // The uses by which they came in do not count: the oldest leave.
        sweep(&mut order, 2, &mut frames);
        assert_eq!(frames.there(), [2, 3, 4, 5]);
        [2, 3].into_iter().for_each(|frame| frames.touch(frame));
        [0, 1].into_iter().for_each(|frame| frames.enter(&mut order, frame, LARGE));
        // The hand passes 2 and 3, and takes 4 and 5, then the new ones: a clock would take 2 and 3 before these.
        sweep(&mut order, 3, &mut frames);
        assert_eq!(frames.there(), [1, 2, 3]);
        sweep(&mut order, 1, &mut frames);
        assert_eq!(frames.there(), [2, 3]);
    }

    #[test]
    fn a_page_stays_for_as_many_passes_after_its_last_use_as_its_class_weighs() {
        for weight in 0..4 {
            let (mut order, mut frames) = (SieveOrder::new(8, weights(weight, 1)), Frames::default());
            frames.enter(&mut order, 0, SMALL);
            sweep(&mut order, 0, &mut frames);
            frames.touch(0);
            // One large page at a time comes in, and one page leaves.
            let mut turns = 0;
            while frames.there().contains(&0) {
                frames.enter(&mut order, 1, LARGE);
                sweep(&mut order, 1, &mut frames);
                turns += 1;
            }
            assert_eq!(turns, weight + 1, "weight {weight}");
        }
    }

    #[test]
    fn only_classes_that_may_leave_are_asked_and_an_order_ends_where_none_can() {
        let orders: [Box<dyn EvictionOrder>; 2] =
            [Box::new(Clock::new(4)), Box::new(SieveOrder::new(4, weights(1, 1)))];
        for mut order in orders {
            let mut frames = Frames::default();
            [SMALL, LARGE, SMALL, LARGE].into_iter().enumerate().for_each(|(frame, class)| {
                frames.enter(&mut *order, frame, class);
            });
            sweep(&mut *order, 0, &mut frames);
            frames.touch(0);
            let mut leave = PerClass::default();
            leave[LARGE] = 1;
            order.sweep(9, &mut leave, &mut frames);
            assert_eq!((leave.sum(), frames.there().len()), (0, 3), "{order:?}");
            assert_eq!(frames.0[0], Some((SMALL, 1)), "its use is not taken");
            // A frame that was given up has nobody in it, until it is taken again.
            frames.0[0] = None;
            frames.enter(&mut *order, 0, LARGE);
            sweep(&mut *order, 9, &mut frames);
            assert!(frames.there().is_empty(), "{order:?}");
            sweep(&mut *order, 9, &mut frames);
        }
    }
}
