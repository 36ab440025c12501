//! The new store, and the pages of nodes that it takes over.

use super::known::{LostTable, class_in, whole_page};
use super::report::SalvageReport;
use super::source::Source;
use super::survey::Survey;
use super::unread::Unread;
use crate::error::Result;
use crate::ids::{DATA_PAGES_MAX, HomeId, NodeId, NodeType, PAGE_BYTES};
use crate::inspect::{free_slots, nodes_in};
use crate::layout::catalog::{Catalog, Guests, HomeEntry};
use crate::layout::leaves::{LEAF_PAGES, Leaves};
use crate::layout::node::{NODE_HEADER, read_header};
use crate::layout::superblock::{ERASES, LEAVES_BYTES, Superblock};
use crate::options::Options;
use crate::page_store::PageStore;
use crate::pages::desc::{Desc, PageKind};
use crate::pages::numbers::PageNumbers;
use crate::partition::run_of;
use crate::snodes::tags::Root;
use crate::store::Store;
use crate::tx::apply::drop_page;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use weft_core::checksum::crc32c;

/// A root that is not known.
pub(super) const NOWHERE: NodeId = NodeId(0);

fn home_of(id: HomeId) -> HomeEntry {
    HomeEntry { id, root: NOWHERE, guests: Guests::default() }
}

/// A salvage under way.
pub(super) struct Copy<'s> {
    pub source: &'s Source<'s>,
    pub store: Store,
    pub report: SalvageReport,
    /// Some s-node may have been of the class of secure deletion.
    pub may_erase: bool,
    /// Edge types and s-nodes are those that the catalog names.
    pub has_catalog: bool,
    /// Nodes that were in pages that cannot be read, and the class of the slots there.
    pub lost: FxHashMap<NodeId, u8>,
    /// Pages of nodes that cannot be read, before the end of the replay.
    pub unread: BTreeMap<u32, Unread>,
    /// Leaves of descriptors that cannot be read.
    pub lost_leaves: Vec<u32>,
    /// Pages of edge tables that cannot be read.
    pub lost_tables: Vec<LostTable>,
    /// Nodes that edges led to which were dropped.
    pub cut_off: FxHashSet<NodeId>,
    /// Roots of s-nodes that were made up in shared homes.
    pub made_up: FxHashMap<HomeId, NodeId>,
    /// Progress: bytes done, of how many.
    pub done: (u64, u64),
}

impl<'s> Copy<'s> {
    /// Makes the new store, which is none until its superblocks are written at the end.
    pub(super) fn begin(
        source: &'s Source<'s>,
        target: Box<dyn PageStore>,
        options: &Options,
        survey: &Survey,
        report: SalvageReport,
    ) -> Result<Copy<'s>> {
        let (space, ground) = crate::recover::prepare(&*target, options)?;
        let Superblock { secret, lsn, .. } = survey.superblock;
        let superblock = Superblock { secret, lsn, ..ground };
        let has_catalog = survey.catalog.is_some();
        let mut catalog = survey.catalog.clone().unwrap_or_else(|| Catalog::of(vec![home_of(HomeId::FIRST)]));
        let mut seen = FxHashSet::default();
        catalog.homes.retain(|entry| entry.id.0 != 0 && seen.insert(entry.id));
        if !has_catalog {
            for (_, desc) in &survey.pages {
                if seen.insert(HomeId(desc.snode)) {
                    catalog.homes.push(home_of(HomeId(desc.snode)));
                }
            }
        }
        let pool = options.pool(target.mapping())?;
        let leaves = Leaves::default();
        let store = Store::assemble(target, pool, space, superblock, catalog, leaves, options);
        let may_erase = survey.superblock.has(ERASES | LEAVES_BYTES);
        if may_erase || !has_catalog {
            store.pool.erasure.suspect_all();
        }
        let done = (0, survey.pages.len() as u64 * PAGE_BYTES as u64);
        let lost_leaves = survey.lost_leaves.clone();
        Ok(Copy {
            source,
            store,
            report,
            may_erase,
            has_catalog,
            lost: FxHashMap::default(),
            unread: BTreeMap::new(),
            lost_leaves,
            lost_tables: Vec::new(),
            cut_off: FxHashSet::default(),
            made_up: FxHashMap::default(),
            done,
        })
    }

    /// Takes over the pages of nodes whose checksums hold, each under its number.
    pub(super) fn take_pages(&mut self, survey: &Survey, progress: &mut impl FnMut(u64, u64)) -> Result<()> {
        let mut wanted: Vec<(u64, usize)> = Vec::new();
        for (at, (page, desc)) in survey.pages.iter().enumerate() {
            if *page < DATA_PAGES_MAX {
                wanted.push((desc.block, at));
            }
        }
        wanted.sort_unstable();
        let blocks: Vec<u64> = wanted.iter().map(|(block, _)| *block).collect();
        let mut unread = Vec::new();
        crate::reads::read_each(self.source.medium, &blocks, |at, raw| {
            let (page, desc) = &survey.pages[wanted[at].1];
            self.advance(progress);
            match raw.filter(|raw| desc.block != 0 && crc32c(*raw) == desc.crc) {
                Some(raw) => {
                    self.report.bytes += PAGE_BYTES as u64;
                    if !self.put_page(*page, desc, raw)? {
                        unread.push((page, desc));
                    }
                }
                None => unread.push((page, desc)),
            }
            Ok::<(), crate::Error>(())
        })?;
        unread.sort_unstable_by_key(|(page, _)| *page);
        for (page, desc) in unread {
            self.put_unread(*page, desc, false)?;
        }
        self.drop_torn_runs()?;
        self.count_numbers();
        Ok(())
    }

    /// Tells of one more page that is done.
    pub(super) fn advance(&mut self, progress: &mut impl FnMut(u64, u64)) {
        self.done.0 += PAGE_BYTES as u64;
        if self.done.0.is_multiple_of(1 << 20) || self.done.0 == self.done.1 {
            progress(self.done.0, self.done.1);
        }
    }

    /// Puts a page of nodes into the new store, in place of what is there under its number; `false` when its s-node is not there.
    pub(super) fn put_page(&mut self, page: u32, desc: &Desc, raw: &[u8; PAGE_BYTES]) -> Result<bool> {
        let snode = HomeId(desc.snode);
        if self.store.snodes.find(snode).is_none() {
            return Ok(false);
        }
        self.forget_replaced(page, desc)?;
        let placed = Desc { block: 0, crc: 0, ..desc.clone() };
        self.change(snode, |store, partition| {
            store.write(partition, |pages, _| {
                if store.pool.table.describe(page).kind == PageKind::Free {
                    pages.place_all_new(vec![(page, placed.clone())])?;
                }
                let out = pages.bytes_mut(page)?;
                out.copy_from_slice(raw);
                // What free slots have was given up.
                free_slots(&placed).for_each(|slot| out[slot].fill(0));
                Ok(())
            })
        })?;
        if !self.has_catalog {
            self.note_roots(page, desc, raw)?;
        }
        Ok(true)
    }

    /// Gives up what is under the number of a page to be put there, and, where that begins a node, the pages that the node there has no more.
    pub(super) fn forget_replaced(&mut self, page: u32, desc: &Desc) -> Result<()> {
        let before = self.store.pool.table.describe(page);
        if (before.kind, desc.kind) == (PageKind::RunHead, PageKind::RunHead) {
            for at in desc.body[0]..before.body[0] {
                let further = page + at as u32;
                let tail = self.store.pool.table.describe(further);
                if (tail.kind, tail.snode, tail.body[0]) == (PageKind::RunTail, before.snode, at) {
                    self.unread.remove(&further);
                    self.forget_page(further)?;
                }
            }
        }
        self.unread.remove(&page);
        self.forget_page(page)
    }

    /// Gives up what is under a page's number.
    pub(super) fn forget_page(&self, page: u32) -> Result<()> {
        let before = self.store.pool.table.describe(page);
        if before.kind != PageKind::Free {
            let share = self.store.snodes.find(HomeId(before.snode));
            let _alone = share.as_ref().map(|share| share.write());
            drop_page(&self.store, page);
        }
        Ok(())
    }

    /// Roots are the only nodes of their type.
    fn note_roots(&self, page: u32, desc: &Desc, raw: &[u8; PAGE_BYTES]) -> Result<()> {
        let snode = HomeId(desc.snode);
        let root = nodes_in(page, desc).into_iter().find(|node| {
            let (header, rest) = raw[node.offset()..].split_at(NODE_HEADER);
            let (kind, len) = read_header(header);
            let data = rest.get(..len).filter(|_| kind == NodeType::ROOT.0 && desc.kind == PageKind::Slab);
            // Those of s-nodes that share a home have numbers.
            data.is_some_and(|data| Root::decode(data).is_ok_and(|root| root.number == 0))
        });
        // Its s-node is there: the page has been put there.
        root.map_or(Ok(()), |root| self.set_root(snode, root))
    }

    /// Notes the root of an s-node.
    pub(super) fn set_root(&self, snode: HomeId, root: NodeId) -> Result<()> {
        self.store.partition(snode)?.write().root = root;
        let mut catalog = self.store.catalog.write();
        catalog.homes.iter_mut().filter(|entry| entry.id == snode).for_each(|entry| entry.root = root);
        Ok(())
    }

    /// Notes the nodes of a page that cannot be read.
    pub(super) fn note_lost(&mut self, page: u32, desc: &Desc) {
        match desc.kind {
            PageKind::RunTail => {
                if let Some(head) = u64::from(page).checked_sub(desc.body[0]) {
                    self.lost.insert(NodeId::at(HomeId(desc.snode), head as u32, 0), whole_page());
                }
            }
            _ => self.lost.extend(nodes_in(page, desc).into_iter().map(|node| (node, class_in(desc)))),
        }
    }

    /// Gives up nodes with pages of their own that lack some, and pages of such that lack their first.
    pub(super) fn drop_torn_runs(&mut self) -> Result<()> {
        let mut torn = Vec::new();
        let table = &self.store.pool.table;
        // The pages of the run that was begun last which are still to come, and its s-node.
        let (mut next, mut end, mut of) = (0, 0, 0);
        for page in table.known(DATA_PAGES_MAX) {
            let desc = table.describe(page);
            match desc.kind {
                PageKind::RunTail if page >= next && page < end && desc.snode == of => {}
                PageKind::RunTail => torn.push(page),
                PageKind::RunHead => {
                    if table.has_run(page, &desc) {
                        (next, end, of) = (page + 1, page + run_of(&desc), desc.snode);
                    } else {
                        torn.push(page);
                        if desc.body[2] == 0 {
                            self.lost.insert(NodeId::at(HomeId(desc.snode), page, 0), whole_page());
                        }
                    }
                }
                _ => {}
            }
        }
        for page in torn {
            if let Some(unread) = self.unread.remove(&page) {
                self.report_unread(page, &unread);
            }
            self.forget_page(page)?;
        }
        Ok(())
    }

    /// The numbers of pages of nodes in leaves that cannot be read. A list of leaves can name more than any medium has.
    pub(super) fn pages_of_lost_leaves(&self) -> impl Iterator<Item = u32> {
        let leaves = self.lost_leaves.iter().filter(|leaf| **leaf < DATA_PAGES_MAX / LEAF_PAGES);
        leaves.flat_map(|leaf| (leaf * LEAF_PAGES).max(1)..(leaf + 1) * LEAF_PAGES)
    }

    /// Counts which numbers of pages of nodes are in use, or have to be held for what is lost.
    pub(super) fn count_numbers(&self) {
        let table = &self.store.pool.table;
        let is_used = |page: &u32| table.describe(*page).kind != PageKind::Free;
        let mut pages: Vec<u32> = table.known(DATA_PAGES_MAX).filter(is_used).collect();
        pages.extend(self.lost.keys().filter_map(|node| node.page()).filter(|page| *page > 0));
        pages.extend(self.pages_of_lost_leaves().take(self.source.medium.blocks() as usize));
        pages.sort_unstable();
        pages.dedup();
        *self.store.pool.numbers.data.lock() = PageNumbers::new(1, DATA_PAGES_MAX);
        self.store.pool.numbers.forget_given_up();
        crate::recover::restore_numbers(&self.store, &pages);
    }
}
