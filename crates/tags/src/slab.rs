//! Slots for small nodes: pages cut into slots of one size, one slab for each class of sizes of an s-node.
//!
//! Slots are given out in the order of their position, from a page that is new or at least half empty, so that the
//! nodes of a transaction lie together and their pages are written once, whole, one after the other.

use crate::error::Step;
use crate::layout::node::{slot_bytes, slots_of};
use crate::pages::access::PageWriter;
use crate::pages::desc::{Desc, PageKind, count_slots, first_clear, slot_is_set, slot_range};
use crate::pages::numbers::take_numbers;
use crate::pages::table::PageTable;
use std::ops::Range;

/// The pages with room of one class.
#[derive(Default)]
pub(crate) struct Slab {
    /// The page that slots are being given out from.
    pub(crate) open: Option<u32>,
    /// Seldom there: an s-node has dozens of slabs.
    refill: Option<Box<RefillList>>,
}

/// The pages that are worth filling again. One may be given up meanwhile, and become another one's, so each is looked at again before it is
/// filled. None is listed twice: it is listed when half of its slots have become free, its slots are given out again only after it was taken
/// off the list, and a number that was given up comes back as a new page only when the list is empty. Before a replay has ended this does not hold.
#[derive(Default)]
struct RefillList(Vec<u32>);

/// Whether a page has so much room that it is worth filling again: each page that is filled is written whole.
pub(crate) fn has_room(taken: usize, slots: usize) -> bool {
    taken * 2 <= slots
}

impl Slab {
    /// Forgets which pages were listed.
    pub(crate) fn forget_refill(&mut self) {
        self.refill = None;
    }

    /// Notes a page that has come to have room.
    pub(crate) fn list(&mut self, page: u32) {
        if self.open == Some(page) {
            return;
        }
        self.refill.get_or_insert_default().0.push(page);
    }

    /// Gives up the page that slots are being given out from if none of them is taken; the caller gives up that page.
    pub(crate) fn close_empty(&mut self, table: &PageTable) -> Option<u32> {
        let page = self.open.filter(|page| count_slots(&table.describe(*page).taken()) == 0)?;
        self.open = None;
        Some(page)
    }

    /// Reserves at least one and up to `wanted` slots of `class` that follow each other in a page, which it returns with
    /// them. Halts before anything has changed.
    pub(crate) fn reserve(
        &mut self,
        pages: &mut PageWriter<'_>,
        class: u8,
        wanted: usize,
    ) -> Step<(u32, Range<usize>)> {
        let bytes = slot_bytes(class).unwrap_or(crate::ids::PAGE_BYTES);
        let snode = pages.snode();
        loop {
            if let Some(page) = self.open {
                if let Some(desc) = pages.pool().table.desc(page) {
                    let count = slots_of(bytes);
                    let first = first_clear(&desc.lock().taken(), count);
                    if let Some(first) = first {
                        // Not under the descriptor's lock: the page's bytes may be kept for a snapshot.
                        pages.uncommitted_mut(page)?;
                        let mut desc = desc.lock();
                        let taken = desc.taken();
                        let last = count.min(first + wanted);
                        let end = (first..last).find(|slot| slot_is_set(&taken, *slot)).unwrap_or(last);
                        desc.reserve(&slot_range(first, end - first));
                        return Ok((page, first..end));
                    }
                }
                self.open = None;
            }
            if let Some(page) = self.refill.as_mut().and_then(|refill| refill.0.pop()) {
                if let Some(desc) = pages.pool().table.desc(page) {
                    let desc = desc.lock();
                    let is_mine = (desc.kind, desc.snode, desc.class) == (PageKind::Slab, snode.0, class);
                    if is_mine && has_room(count_slots(&desc.taken()), slots_of(bytes)) {
                        self.open = Some(page);
                    }
                }
                continue;
            }
            let page = take_numbers(&pages.pool().numbers.data, 1)?;
            if let Err(halt) = pages.place_uncommitted(page, Desc::slab(snode, class)) {
                pages.pool().numbers.data.lock().give_back(page, 1);
                return Err(halt);
            }
            self.open = Some(page);
        }
    }

    /// Gives a slot back that was reserved or that no commit has any more. Whether its page is empty now and was
    /// taken from the slab: the caller gives up the page.
    pub(crate) fn release(&mut self, desc: &mut Desc, page: u32, slot: usize, slots: usize) -> bool {
        // Counted before: a look at words of which one was just written waits for the write.
        let before = desc.taken();
        debug_assert!(slot_is_set(&before, slot), "slot {slot} of page {page} is given back twice");
        let taken = count_slots(&before).saturating_sub(1);
        desc.release(slot);
        if taken == 0 && self.open != Some(page) {
            return true;
        }
        // It was listed before if it had room before.
        if has_room(taken, slots) && !has_room(taken + 1, slots) {
            self.list(page);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::{Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::sync::Arc;

    const SIZES: [usize; 3] = [24, 200, 1_500];

    /// How many pages are listed, none of which may be twice in a slab's list, or be the one that slots are given out from.
    fn listed(store: &Store) -> usize {
        let mut count = 0;
        for partition in store.snodes.all() {
            let partition = partition.read();
            for slab in &partition.contents.slabs {
                let pages = slab.refill.as_ref().map_or(&[][..], |refill| &refill.0);
                let different: HashSet<u32> = pages.iter().copied().chain(slab.open).collect();
                assert_eq!(different.len(), pages.len() + usize::from(slab.open.is_some()), "{pages:?}");
                count += pages.len();
            }
        }
        count
    }

    #[test]
    fn no_page_is_listed_twice_whatever_is_made_freed_aborted_and_replayed() {
        let options =
            Options { cache_bytes: 4 << 20, journal_bytes: 4 << 20, huge_pages: false, ..Options::default() };
        let most = std::cell::Cell::new(0);
        // How many nodes are made or freed at once, of which size, from which on, and what becomes of the transaction.
        let step = (any::<bool>(), 1usize..200, 0usize..SIZES.len(), any::<prop::sample::Index>(), 0..10);
        proptest!(ProptestConfig::with_cases(64), |(steps in prop::collection::vec(step, 1..40))| {
            let medium = Arc::new(MemoryStore::new());
            let mut store = Store::create(Box::new(medium.clone()), &options).unwrap();
            let root = store.root(SnodeId::FIRST).unwrap();
            let etype = store.edge_type("n", InfoForm::Number).unwrap();
            let mut nodes = Vec::new();
            let mut next = 0;
            for (makes, count, size, from, end) in steps {
                let mut tx = store.begin();
                let before = nodes.clone();
                for _ in 0..count {
                    if makes {
                        let node = tx.create_node(SnodeId::FIRST, NodeType(1), &vec![1; SIZES[size]]).unwrap();
                        tx.create_edge(root, etype, Info::Number(next), node).unwrap();
                        nodes.push(next);
                        next += 1;
                    } else if !nodes.is_empty() {
                        let number = nodes.swap_remove(from.index(nodes.len()));
                        tx.delete_edge(root, etype, Info::Number(number)).unwrap();
                    }
                }
                if end == 0 {
                    tx.abort();
                    nodes = before;
                } else {
                    tx.commit().unwrap();
                }
                if end == 1 {
                    // Without a checkpoint, so that what was committed is replayed.
                    drop(store);
                    store = Store::open(Box::new(medium.clone()), &options).unwrap();
                }
                most.set(most.get().max(listed(&store)));
            }
        });
        assert!(most.get() > 2, "pages are listed, {}", most.get());
    }
}
