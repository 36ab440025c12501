//! Page numbers: a buddy allocator over the single-level store.
//!
//! A number is free in exactly one block, of the largest power of two that is free around it. A run of n pages takes
//! the smallest block that holds it and gives the rest back. Nothing of this is kept on the medium: it follows from
//! the descriptors.

use crate::error::{Error, Result};
use crate::ids::{DATA_PAGES_MAX, HomeId};
use crate::sync::Mutex;
use roaring::RoaringBitmap;

const ORDERS: usize = 32;

/// Which page numbers of a range are free.
pub(crate) struct PageNumbers {
    /// By order: the first numbers of blocks, divided by their size.
    free: [RoaringBitmap; ORDERS],
    first: u32,
    /// Numbers from here on were never given out.
    end: u32,
    limit: u32,
}

impl PageNumbers {
    /// Numbers from `first`, below `limit`, all free.
    pub(crate) fn new(first: u32, limit: u32) -> PageNumbers {
        PageNumbers { free: Default::default(), first, end: first, limit }
    }

    /// Numbers below this may be in use.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Takes `count` numbers that follow each other.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let order = count.max(1).next_power_of_two().trailing_zeros() as usize;
        let size = 1u32 << order;
        let found = (order..ORDERS).find_map(|at| Some((at, self.free[at].min()?)));
        let (start, spare) = match found {
            Some((at, block)) => {
                self.free[at].remove(block);
                (block << at, 1u32 << at)
            }
            None => {
                let start = self.end.checked_next_multiple_of(size)?;
                let end = start.checked_add(size).filter(|end| *end <= self.limit)?;
                let before = self.end;
                self.end = end;
                self.give_back(before, start - before);
                (start, size)
            }
        };
        self.give_back(start + count, spare - count);
        Some(start)
    }

    /// Gives numbers back.
    pub(crate) fn give_back(&mut self, mut start: u32, mut count: u32) {
        while count > 0 {
            let aligned = if start == 0 { ORDERS as u32 - 1 } else { start.trailing_zeros() };
            let mut order = aligned.min(count.ilog2()) as usize;
            let taken = 1u32 << order;
            let mut block = start >> order;
            while order + 1 < ORDERS && self.free[order].remove(block ^ 1) {
                block >>= 1;
                order += 1;
            }
            self.free[order].insert(block);
            start += taken;
            count -= taken;
        }
    }

    /// Declares everything below `end` in use, for a store that is opened; gaps are then given back.
    pub(crate) fn restore_end(&mut self, end: u32) {
        self.end = self.end.max(end);
    }

    /// Takes one particular run, for a replay. Numbers of it that are in use already are the replay's to judge.
    pub(crate) fn take_exactly(&mut self, start: u32, count: u32) {
        if start + count > self.end {
            let before = self.end;
            self.end = start + count;
            self.give_back(before, self.end - before);
        }
        for page in start..start + count {
            let found = (0..ORDERS).find(|order| self.free[*order].remove(page >> order));
            if let Some(order) = found {
                let block = page >> order << order;
                self.give_back(block, page - block);
                self.give_back(page + 1, block + (1 << order) - page - 1);
            }
        }
    }

    /// Numbers that are in use.
    pub(crate) fn used(&self) -> u64 {
        let free: u64 = self.free.iter().enumerate().map(|(order, set)| set.len() << order).sum();
        u64::from(self.end - self.first) - free
    }
}

/// The numbers of a store's pages.
pub(crate) struct Numbers {
    /// Of pages of nodes.
    pub(crate) data: Mutex<PageNumbers>,
    /// Of pages of edge tables.
    pub(crate) tables: Mutex<PageNumbers>,
    /// Those of nodes that transactions still running have given up: s-node, first page, pages.
    freed: Mutex<Vec<(HomeId, u32, u32)>>,
}

impl Numbers {
    /// All numbers free, those of tables below a limit.
    pub(crate) fn new(limit: u32) -> Numbers {
        Numbers {
            // Number 0 is not used: no id is 0.
            data: Mutex::new(PageNumbers::new(1, DATA_PAGES_MAX)),
            tables: Mutex::new(PageNumbers::new(DATA_PAGES_MAX, limit)),
            freed: Mutex::default(),
        }
    }

    /// Notes that pages of an s-node are given up; their numbers are free when the transaction is over.
    pub(crate) fn give_up(&self, snode: HomeId, page: u32, pages: u32) {
        self.freed.lock().push((snode, page, pages));
    }

    /// Lets the numbers be used again that were given up in these s-nodes. Called when that is in the journal, by who
    /// holds their locks: whoever takes a number then has a later record, and a replay finds the page given up before it is
    /// another's.
    pub(crate) fn settle(&self, is_over: impl Fn(&HomeId) -> bool) {
        let mut freed = self.freed.lock();
        if freed.is_empty() {
            return;
        }
        let mut numbers = self.data.lock();
        freed
            .extract_if(.., |(snode, ..)| is_over(snode))
            .for_each(|(_, page, pages)| numbers.give_back(page, pages));
    }

    /// Forgets which numbers were given up.
    pub(crate) fn forget_given_up(&self) {
        self.freed.lock().clear();
    }
}

/// Takes the numbers of pages that follow each other.
///
/// # Errors
/// [`Error::Full`].
pub(crate) fn take_numbers(numbers: &Mutex<PageNumbers>, count: u32) -> Result<u32> {
    numbers.lock().take(count).ok_or(Error::Full { what: "page numbers" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn a_number_is_given_out_once_and_all_free_space_merges() {
        let mut rng = StdRng::seed_from_u64(3);
        let mut numbers = PageNumbers::new(5, 1 << 20);
        let mut held: Vec<(u32, u32)> = Vec::new();
        let mut owner = std::collections::HashSet::new();
        for _ in 0..20_000 {
            if rng.random_bool(0.55) {
                let count = if rng.random_bool(0.1) { rng.random_range(1..200) } else { 1 };
                let start = numbers.take(count).unwrap();
                assert!((start..start + count).all(|page| page >= 5 && owner.insert(page)));
                held.push((start, count));
            } else if !held.is_empty() {
                let (start, count) = held.swap_remove(rng.random_range(0..held.len()));
                (start..start + count).for_each(|page| assert!(owner.remove(&page)));
                numbers.give_back(start, count);
            }
            if held.len() % 1000 == 999 {
                assert_eq!(numbers.used(), owner.len() as u64);
            }
        }
        for (start, count) in held.drain(..) {
            numbers.give_back(start, count);
        }
        assert_eq!(numbers.used(), 0);
        let blocks: usize = numbers.free.iter().map(|set| set.len() as usize).sum();
        assert!(blocks <= 40, "free space is in few blocks, not {blocks}");
    }

    #[test]
    fn a_particular_number_can_be_taken_from_the_middle_of_a_free_block() {
        let mut numbers = PageNumbers::new(0, 1 << 20);
        numbers.take_exactly(70, 3);
        assert_eq!((numbers.end(), numbers.used()), (73, 3));
        numbers.take_exactly(33, 1);
        assert_eq!(numbers.used(), 4);
        let taken: Vec<u32> = (0..69).map(|_| numbers.take(1).unwrap()).collect();
        assert!(taken.iter().all(|page| *page < 70 && *page != 33));
    }

    #[test]
    fn the_limit_is_kept() {
        let mut numbers = PageNumbers::new(0, 8);
        assert_eq!(numbers.take(5), Some(0));
        assert_eq!(numbers.take(5), None);
        assert_eq!(numbers.take(2), Some(6));
        assert_eq!(numbers.take(1), Some(5));
        assert_eq!(numbers.take(1), None);
    }
}
