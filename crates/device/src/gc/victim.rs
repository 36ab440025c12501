//! Which block to clean next.
//!
//! All policies but one work on lists that are threaded through arrays, so that nothing is allocated after the start:
//!
//! ```text
//!  greedy         a list for each number of valid pages; the victim is the head of the first list that is not empty
//!  cost-benefit   a set for each number of valid pages, in the order of closing; the victim is the best first one
//!  FIFO, LRU      one list, in the order of closing, or of the last invalidation
//!  random         a dense table
//! ```
//!
//! Closing, invalidating and taking a block out cost constant time, or that of an ordered set; picking costs constant time for FIFO, LRU and random,
//! a step for each empty list passed for greedy (each was passed down before, so it is constant on average), and one
//! step for each list for cost-benefit.
//!
//! [`VictimPolicy::search`] defines the policies, by a look at all closed blocks. It is for those who have few, or whose
//! blocks lose data other than page by page.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weft_core::random::SplitMix;

/// How a victim is chosen among closed blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VictimPolicy {
    /// The block with the fewest valid pages; of several the one that has been so for longest.
    #[default]
    Greedy,
    /// The block that was closed first.
    Fifo,
    /// The block whose last invalidation is longest ago.
    Lru,
    /// Any block, each as likely as another.
    Random,
    /// The block with the largest (1 - u) / 2u x age, where u is the valid fraction and age the time since it was closed, in
    /// pages invalidated (Rosenblum and Ousterhout's rule, SOSP 1991, whose age is that of the youngest data, with the cost
    /// of reading and erasing flash by Kawaguchi, Nishioka and Motoda, USENIX 1995). An age since the last invalidation,
    /// as the latter have it, takes a block whose hot part has just died for a hot one: it moves up to 7 % more.
    CostBenefit,
}

impl VictimPolicy {
    /// Every policy.
    pub const ALL: [VictimPolicy; 5] = [
        VictimPolicy::Greedy,
        VictimPolicy::Fifo,
        VictimPolicy::Lru,
        VictimPolicy::Random,
        VictimPolicy::CostBenefit,
    ];

    /// Its name, as on a command line.
    pub fn name(self) -> &'static str {
        match self {
            VictimPolicy::Greedy => "greedy",
            VictimPolicy::Fifo => "fifo",
            VictimPolicy::Lru => "lru",
            VictimPolicy::Random => "random",
            VictimPolicy::CostBenefit => "cost-benefit",
        }
    }

    /// The block to clean next of these, at a moment of the clock that their times are of.
    pub fn search(self, closed: impl Iterator<Item = ClosedBlock>, clock: u64) -> Option<u32> {
        let found = match self {
            VictimPolicy::Greedy => closed.min_by_key(|block| (block.valid, block.changed)),
            VictimPolicy::Fifo => closed.min_by_key(|block| block.closed),
            VictimPolicy::Lru => closed.min_by_key(|block| block.changed),
            VictimPolicy::Random => {
                closed.min_by_key(|block| SplitMix::new(clock, &[u64::from(block.number)]).next())
            }
            VictimPolicy::CostBenefit => closed.reduce(|best, other| {
                let [a, b] = [&best, &other].map(|block| {
                    benefit(block.valid as f64 / block.size as f64, (clock - block.closed + 1) as f64)
                });
                // Of equals the emptiest, then the oldest.
                if (b, best.valid, best.closed) > (a, other.valid, other.closed) { other } else { best }
            }),
        };
        found.map(|block| block.number)
    }

    /// The policy with this name.
    pub fn by_name(name: &str) -> Option<VictimPolicy> {
        VictimPolicy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// A closed block, as a search sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedBlock {
    /// Its number.
    pub number: u32,
    /// How much of it is valid, in the unit of `size`.
    pub valid: u64,
    /// How much it holds.
    pub size: u64,
    /// When it was closed.
    pub closed: u64,
    /// When a part of it last became invalid; when it was closed, if none has.
    pub changed: u64,
}

/// What cleaning a block of this age is worth, of which the fraction `u` is valid.
fn benefit(u: f64, age: f64) -> f64 {
    if u == 0.0 { f64::INFINITY } else { (1.0 - u) / (2.0 * u) * age }
}

const NONE: u32 = u32::MAX;

/// A closed block.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    before: u32,
    after: u32,
    /// Valid pages; `NONE` when the block is no candidate.
    valid: u32,
    /// For random: where it stands in the table.
    place: u32,
    /// When it last changed; for cost-benefit, when it was closed.
    changed: u64,
}

const NO_CANDIDATE: Candidate = Candidate { before: NONE, after: NONE, valid: NONE, place: NONE, changed: 0 };

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// The closed blocks of a device and the next victim among them.
#[derive(Clone, Debug)]
pub struct Victims {
    policy: VictimPolicy,
    pages_per_block: u32,
    blocks: Vec<Candidate>,
    lists: Vec<List>,
    /// For cost-benefit, by valid pages: when blocks were closed, and which.
    ages: Vec<BTreeSet<(u64, u32)>>,
    /// No list below this one has a block.
    lowest: usize,
    table: Vec<u32>,
    random: SplitMix,
    /// Invalidations and closings so far.
    clock: u64,
    len: usize,
}

impl Victims {
    /// No closed block yet, of `blocks` blocks. The seed is for [`VictimPolicy::Random`].
    pub fn new(policy: VictimPolicy, blocks: u32, pages_per_block: u32, seed: u64) -> Victims {
        let lists = match policy {
            VictimPolicy::Greedy => pages_per_block as usize + 1,
            VictimPolicy::Fifo | VictimPolicy::Lru => 1,
            VictimPolicy::Random | VictimPolicy::CostBenefit => 0,
        };
        let ages = if policy == VictimPolicy::CostBenefit { pages_per_block as usize + 1 } else { 0 };
        Victims {
            policy,
            pages_per_block,
            blocks: vec![NO_CANDIDATE; blocks as usize],
            lists: vec![List { head: NONE, tail: NONE }; lists],
            ages: vec![BTreeSet::new(); ages],
            lowest: lists,
            table: Vec::new(),
            random: SplitMix::new(seed, &[]),
            clock: 0,
            len: 0,
        }
    }

    /// How the next victim is chosen.
    pub fn policy(&self) -> VictimPolicy {
        self.policy
    }

    /// Closed blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the block is closed.
    pub fn contains(&self, block: u32) -> bool {
        self.blocks.get(block as usize).is_some_and(|candidate| candidate.valid != NONE)
    }

    /// A block has been filled and has so many valid pages: it is a candidate from now on. A block that is one already
    /// begins anew.
    pub fn close(&mut self, block: u32, valid: u32) {
        debug_assert!(valid <= self.pages_per_block);
        self.remove(block);
        debug_assert!(self.len < self.blocks.len() && !self.contains(block));
        self.clock += 1;
        self.len += 1;
        let candidate = &mut self.blocks[block as usize];
        candidate.valid = valid;
        candidate.changed = self.clock;
        match self.policy {
            VictimPolicy::Random => {
                candidate.place = self.table.len() as u32;
                self.table.push(block);
            }
            VictimPolicy::CostBenefit => drop(self.ages[valid as usize].insert((self.clock, block))),
            VictimPolicy::Greedy | VictimPolicy::Fifo | VictimPolicy::Lru => self.append(block),
        }
    }

    /// A valid page of the block became invalid. Does nothing when the block is no candidate.
    pub fn invalidate(&mut self, block: u32) {
        self.clock += 1;
        let clock = self.clock;
        let candidate = &mut self.blocks[block as usize];
        if candidate.valid == NONE {
            return;
        }
        debug_assert!(candidate.valid > 0);
        match self.policy {
            VictimPolicy::Fifo | VictimPolicy::Random => {
                candidate.valid -= 1;
                candidate.changed = clock;
            }
            VictimPolicy::CostBenefit => {
                let entry = (candidate.changed, block);
                let was_there = self.ages[candidate.valid as usize].remove(&entry);
                debug_assert!(was_there, "a candidate is listed under another count");
                candidate.valid -= 1;
                self.ages[candidate.valid as usize].insert(entry);
            }
            VictimPolicy::Greedy | VictimPolicy::Lru => {
                self.unlink(block);
                let candidate = &mut self.blocks[block as usize];
                candidate.valid -= 1;
                candidate.changed = clock;
                self.append(block);
            }
        }
    }

    /// The block to clean next; it stays a candidate until it is [removed](Victims::remove). `None` when no block is
    /// closed.
    pub fn pick(&mut self) -> Option<u32> {
        match self.policy {
            VictimPolicy::Greedy => {
                while self.lists.get(self.lowest)?.head == NONE {
                    self.lowest += 1;
                }
                Some(self.lists[self.lowest].head)
            }
            VictimPolicy::Fifo | VictimPolicy::Lru => Some(self.lists[0].head).filter(|head| *head != NONE),
            VictimPolicy::Random => {
                let at = self.random.below(self.table.len() as u64);
                self.table.get(at as usize).copied()
            }
            VictimPolicy::CostBenefit => self.best_by_cost(),
        }
    }

    /// The closed block with the fewest valid pages, whatever the policy. Looks at all blocks.
    pub fn fewest(&self) -> Option<(u32, u32)> {
        let closed = self.blocks.iter().enumerate().filter(|(_, candidate)| candidate.valid != NONE);
        closed.map(|(block, candidate)| (block as u32, candidate.valid)).min_by_key(|(_, valid)| *valid)
    }

    fn best_by_cost(&self) -> Option<u32> {
        let mut best = None;
        let mut best_score = -1.0;
        for (valid, ages) in self.ages.iter().enumerate() {
            let Some((closed, block)) = ages.first() else { continue };
            let u = valid as f64 / f64::from(self.pages_per_block);
            let age = (self.clock - closed + 1) as f64;
            let score = benefit(u, age);
            if score > best_score {
                (best, best_score) = (Some(*block), score);
            }
        }
        best
    }

    /// Takes a block out: it is being cleaned. Does nothing when the block is no candidate.
    pub fn remove(&mut self, block: u32) {
        let candidate = self.blocks[block as usize];
        if candidate.valid == NONE {
            return;
        }
        self.len -= 1;
        match self.policy {
            VictimPolicy::Random => {
                self.table.swap_remove(candidate.place as usize);
                if let Some(moved) = self.table.get(candidate.place as usize) {
                    self.blocks[*moved as usize].place = candidate.place;
                }
            }
            VictimPolicy::CostBenefit => {
                self.ages[candidate.valid as usize].remove(&(candidate.changed, block));
            }
            VictimPolicy::Greedy | VictimPolicy::Fifo | VictimPolicy::Lru => self.unlink(block),
        }
        self.blocks[block as usize] = NO_CANDIDATE;
    }

    fn list_of(&self, block: u32) -> usize {
        if self.lists.len() == 1 { 0 } else { self.blocks[block as usize].valid as usize }
    }

    fn append(&mut self, block: u32) {
        let at = self.list_of(block);
        let tail = self.lists[at].tail;
        match tail {
            NONE => self.lists[at].head = block,
            tail => self.blocks[tail as usize].after = block,
        }
        self.lists[at].tail = block;
        let candidate = &mut self.blocks[block as usize];
        (candidate.before, candidate.after) = (tail, NONE);
        self.lowest = self.lowest.min(at);
    }

    fn unlink(&mut self, block: u32) {
        let at = self.list_of(block);
        let Candidate { before, after, .. } = self.blocks[block as usize];
        match before {
            NONE => self.lists[at].head = after,
            before => self.blocks[before as usize].after = after,
        }
        match after {
            NONE => self.lists[at].tail = before,
            after => self.blocks[after as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 40;
    const PAGES: u32 = 16;

    #[test]
    fn every_policy_picks_what_a_search_of_all_blocks_does() {
        for policy in VictimPolicy::ALL {
            let mut victims = Victims::new(policy, BLOCKS, PAGES, 1);
            let mut plain: Vec<Option<ClosedBlock>> = vec![None; BLOCKS as usize];
            let mut random = SplitMix::new(2, &[]);
            let mut clock = 0;
            for step in 0..20_000 {
                let block = random.below(u64::from(BLOCKS)) as u32;
                match (random.below(8), plain[block as usize]) {
                    (0..6, Some(p)) if p.valid > 0 => {
                        victims.invalidate(block);
                        clock += 1;
                        plain[block as usize] = Some(ClosedBlock { valid: p.valid - 1, changed: clock, ..p });
                    }
                    (0..6, None) => {
                        let valid = random.below(u64::from(PAGES) + 1) as u32;
                        victims.close(block, valid);
                        clock += 1;
                        plain[block as usize] = Some(ClosedBlock {
                            number: block,
                            valid: u64::from(valid),
                            size: u64::from(PAGES),
                            closed: clock,
                            changed: clock,
                        });
                    }
                    _ => {
                        let picked = victims.pick();
                        if policy == VictimPolicy::Random {
                            assert_eq!(picked.is_some(), plain.iter().any(Option::is_some));
                        } else {
                            let searched = policy.search(plain.iter().flatten().copied(), clock);
                            assert_eq!(picked, searched, "{policy:?} at step {step}");
                        }
                        if let Some(picked) = picked {
                            assert!(plain[picked as usize].is_some());
                            victims.remove(picked);
                            plain[picked as usize] = None;
                        }
                    }
                }
                assert_eq!(victims.len(), plain.iter().flatten().count());
                assert_eq!(victims.contains(block), plain[block as usize].is_some());
            }
        }
    }

    #[test]
    fn each_policy_has_its_own_choice_among_the_same_blocks() {
        let b = |number, valid, closed, changed| ClosedBlock { number, valid, size: 100, closed, changed };
        // Emptiest and, of two, so for longest; closed first; untouched for longest; old and half empty.
        let blocks =
            [b(1, 20, 80, 99), b(2, 20, 70, 90), b(3, 99, 1, 95), b(4, 90, 60, 60), b(5, 40, 10, 70)];
        for (policy, number) in [
            (VictimPolicy::Greedy, 2),
            (VictimPolicy::Fifo, 3),
            (VictimPolicy::Lru, 4),
            (VictimPolicy::CostBenefit, 5),
        ] {
            assert_eq!(policy.search(blocks.into_iter(), 100), Some(number), "{policy:?}");
        }
        let empty = b(6, 0, 100, 100);
        let all = blocks.into_iter().chain([empty]);
        assert_eq!(VictimPolicy::CostBenefit.search(all, 100), Some(6));
        let drawn = |clock| VictimPolicy::Random.search(blocks.into_iter(), clock);
        let mut seen = [0; 6];
        (0..5_000).for_each(|clock| seen[drawn(clock).unwrap() as usize] += 1);
        assert!(seen[1..].iter().all(|n| (900..1100).contains(n)), "{seen:?}");
        assert!(VictimPolicy::ALL.iter().all(|policy| policy.search(std::iter::empty(), 100).is_none()));
    }

    #[test]
    fn random_picks_each_block_as_often() {
        let mut victims = Victims::new(VictimPolicy::Random, 10, PAGES, 7);
        (0..10).for_each(|block| victims.close(block, 3));
        victims.remove(4);
        let mut seen = [0; 10];
        (0..9_000).for_each(|_| seen[victims.pick().unwrap() as usize] += 1);
        assert_eq!(seen[4], 0);
        assert!(seen.iter().enumerate().all(|(b, n)| b == 4 || (850..1150).contains(n)), "{seen:?}");
    }

    #[test]
    fn names_are_read_back() {
        for policy in VictimPolicy::ALL {
            assert_eq!(VictimPolicy::by_name(policy.name()), Some(policy));
        }
        assert_eq!(VictimPolicy::by_name("best"), None);
    }
}
