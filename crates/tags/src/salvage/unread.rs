//! Pages of nodes that cannot be read, until the journal is replayed.
//!
//! A later commit may have written such a page anew, or freed its nodes. Then nothing is missing: opening the store reads no page to
//! replace it or to free its nodes, and finds nothing wrong. So the new store has the descriptor of such a page, which keeps the other
//! pages of its node, and no content. When the replay has ended, nodes that still lack content are given up.

use super::copy::Copy;
use crate::error::Result;
use crate::ids::{HomeId, NodeId, PAGE_BYTES};
use crate::inspect::held_in;
use crate::layout::node::{MOVED, NODE_HEADER, read_header, slot_at};
use crate::pages::desc::{Desc, PageKind, Slots, clear_slot, count_slots, slot_is_set};
use crate::tx::apply::free_nodes;
use std::ops::Range;

/// A page that cannot be read.
pub(super) struct Unread {
    /// The block that it was to be in.
    block: u64,
    /// The journal says so, not a leaf of descriptors.
    is_of_journal: bool,
    /// It is in the new store, with zeros for what is not known.
    is_placed: bool,
    /// Slab: the slots whose content is not known.
    slots: Slots,
}

impl Copy<'_> {
    /// Puts the descriptor of a page that cannot be read into the new store, in place of what is there under its number. Where its s-node
    /// is not there, its nodes are lost.
    pub(super) fn put_unread(&mut self, page: u32, desc: &Desc, is_of_journal: bool) -> Result<()> {
        self.forget_replaced(page, desc)?;
        let slots = if desc.kind == PageKind::Slab { desc.body } else { Slots::default() };
        let unread = Unread { block: desc.block, is_of_journal, is_placed: false, slots };
        if self.store.snodes.find(HomeId(desc.snode)).is_none() {
            self.report_unread(page, &unread);
            self.note_lost(page, desc);
            return Ok(());
        }
        self.store.pool.table.set(page, Desc { block: 0, crc: 0, ..desc.clone() });
        self.unread.insert(page, unread);
        Ok(())
    }

    pub(super) fn report_unread(&mut self, page: u32, unread: &Unread) {
        let whence = if unread.is_of_journal { ", in the journal," } else { "" };
        self.report.lost_pages += 1;
        self.report.remark(format!("page {page} at block {}{whence} cannot be read", unread.block));
    }

    /// Whether the content of a node is not known.
    pub(super) fn is_unread(&self, node: NodeId) -> bool {
        let unread = node.page().and_then(|page| Some((page, self.unread.get(&page)?)));
        unread.is_some_and(|(page, unread)| {
            let Desc { kind, class, .. } = self.store.pool.table.describe(page);
            kind != PageKind::Slab
                || slot_at(class, node.offset()).is_none_or(|slot| slot_is_set(&unread.slots, slot))
        })
    }

    /// Gives a page of slots that cannot be read a content that can be changed.
    pub(super) fn place_unread(&mut self, page: u32) -> Result<()> {
        let desc = self.store.pool.table.describe(page);
        if let Some(mut unread) = self.unread.remove(&page) {
            if !unread.is_placed && desc.kind == PageKind::Slab {
                unread.is_placed = self.put_page(page, &desc, &[0; PAGE_BYTES])?;
            }
            self.unread.insert(page, unread);
        }
        Ok(())
    }

    /// Notes slots whose content is known from now on, or that have none any more.
    pub(super) fn note_known(&mut self, page: u32, slots: Range<usize>) {
        if let Some(unread) = self.unread.get_mut(&page) {
            slots.for_each(|slot| clear_slot(&mut unread.slots, slot));
            if count_slots(&unread.slots) == 0 {
                self.unread.remove(&page);
            }
        }
    }

    /// Notes that the bytes of a node in a slab are these now, from its header on: they may be all of it.
    pub(super) fn note_changed(&mut self, node: NodeId, bytes: &[u8]) {
        let Some(page) = node.page().filter(|page| self.unread.contains_key(page)) else { return };
        let is_all = bytes.split_at_checked(NODE_HEADER).is_some_and(|(header, data)| {
            let len = read_header(header).1;
            len != MOVED && len <= data.len()
        });
        if is_all && let Some(slot) = slot_at(self.store.pool.table.describe(page).class, node.offset()) {
            self.note_known(page, slot..slot + 1);
        }
    }

    /// Notes that a node was freed, whose page had this descriptor.
    pub(super) fn note_freed(&mut self, node: NodeId, before: &Desc) {
        let Some(page) = node.page() else { return };
        if before.kind == PageKind::Slab {
            let slot = slot_at(before.class, node.offset());
            slot.into_iter().for_each(|slot| self.note_known(page, slot..slot + 1));
            return;
        }
        let end = u32::try_from(u64::from(page) + before.body[0]).unwrap_or(u32::MAX);
        let gone: Vec<u32> = self.unread.range(page..end).map(|(page, _)| *page).collect();
        gone.iter().for_each(|page| _ = self.unread.remove(page));
    }

    /// Gives up nodes whose content is not known, and nodes that lack pages.
    pub(super) fn give_up_unread(&mut self) -> Result<()> {
        let unread = std::mem::take(&mut self.unread);
        // First all that is lost: a further page of a node finds its first page there.
        for (page, unread) in &unread {
            self.report_unread(*page, unread);
            let desc = self.store.pool.table.describe(*page);
            match desc.kind {
                PageKind::Slab => self.note_lost(*page, &Desc { body: unread.slots, ..desc }),
                PageKind::RunTail if self.has_head(*page, &desc) => {}
                _ => self.note_lost(*page, &desc),
            }
        }
        for (page, unread) in unread {
            let desc = self.store.pool.table.describe(page);
            if desc.kind == PageKind::Slab && unread.is_placed {
                let (gone, _) = held_in(page, &Desc { body: unread.slots, ..desc.clone() });
                self.change(HomeId(desc.snode), |store, partition| free_nodes(store, partition, &gone))?;
            } else {
                self.forget_page(page)?;
            }
        }
        self.drop_torn_runs()
    }

    /// Whether the first page of a node is there, of which this is a further one.
    fn has_head(&self, page: u32, desc: &Desc) -> bool {
        let head =
            u64::from(page).checked_sub(desc.body[0]).map(|head| self.store.pool.table.describe(head as u32));
        head.is_some_and(|head| {
            (head.kind, head.snode) == (PageKind::RunHead, desc.snode) && desc.body[0] < head.body[0]
        })
    }
}
