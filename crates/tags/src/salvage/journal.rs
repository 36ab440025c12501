//! The journal of a damaged store, as far as it can be read.
//!
//! Commits are applied in their order up to the first that cannot be read: what came after it may stand on it. Where an entry speaks of
//! a node that is lost, it is passed over; one that has the whole of something brings that back.

use super::copy::{Copy, NOWHERE};
use super::known::LostTable;
use super::survey::Survey;
use crate::committed::Committed;
use crate::edges::{EdgeChange, RawEdge};
use crate::error::{Error, Result};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::journal::log::{
    Found, HEADER_BYTES, Header, Journal, MAGIC, follow_chain, may_begin_later_record, record_at,
};
use crate::journal::record::{Entry, RecordReader};
use crate::layout::node::slot_bytes;
use crate::layout::superblock::Superblock;
use crate::pages::desc::Desc;
use crate::partition::{NodeScope, find_any};
use crate::reads;
use crate::replay::{is_of_nodes, is_whole};
use crate::tx::apply;
use crate::tx::write_set::NONE;
use weft_sys::AlignedBuf;

impl Copy<'_> {
    /// Replays the journal.
    pub(super) fn replay(&mut self, survey: &Survey) -> Result<()> {
        let Superblock { epoch, lsn, .. } = survey.superblock;
        let area = self.read_area(&survey.superblock);
        if survey.is_alone && area.chunks_exact(PAGE_BYTES).any(|block| may_begin_later_record(block, epoch))
        {
            self.report
                .fault("journal: it has commits since a later checkpoint, whose superblock cannot be read");
        }
        let (records, _, next) = follow_chain(&area, 0, epoch, lsn + 1);
        let end = records.last().map_or(0, |record| record.entries.end.next_multiple_of(8));
        let durable = records.iter().map(|record| record.durable).max().unwrap_or(lsn);
        let mut last = lsn;
        for record in &records {
            let entries = &area[record.entries.clone()];
            // Its pages may not have arrived before power failed; then the journal ends here. If they had, and were damaged since,
            // the commit is lost.
            let is_lost =
                || matches!(is_whole(self.source.medium, entries), Ok(false) | Err(Error::Io { .. }));
            if record.lsn > durable && is_lost() {
                let (from, lost) = (record.lsn, next - record.lsn);
                self.report.remark(format!(
                    "journal: pages of commit {from} cannot be read; it may not have been durable"
                ));
                self.report.commits_lost += lost;
                break;
            }
            self.apply(entries)?;
            // Numbers are counted anew at the end.
            self.store.pool.numbers.forget_given_up();
            last = record.lsn;
            self.report.commits_applied += 1;
        }
        self.look_behind(&area, end, epoch, next);
        self.give_up_unread()?;
        self.report_lost_tables();
        self.count_numbers();
        self.report.last_commit = last;
        let ours = *self.store.superblock.lock();
        self.store.journal = Journal::new(ours.journal_block, ours.journal_blocks, ours.epoch, last).into();
        Ok(())
    }

    /// Reports the pages of edge tables that cannot be read, of s-nodes that are still there.
    fn report_lost_tables(&mut self) {
        self.report.lost_table_pages = self.lost_tables.len() as u64;
        for LostTable { page, block, .. } in &self.lost_tables {
            self.report.remark(format!("page {page} of an edge table, at block {block}, cannot be read"));
        }
    }

    /// The journal's area, as far as the medium has it.
    fn read_area(&mut self, superblock: &Superblock) -> AlignedBuf {
        let here = self.source.medium.blocks().saturating_sub(superblock.journal_block);
        let blocks = superblock.journal_blocks.min(here);
        if blocks < superblock.journal_blocks {
            self.report.fault("journal: the medium ends before it does");
        }
        let (area, unread) = reads::area(self.source.medium, superblock.journal_block, blocks);
        if unread > 0 {
            self.report.fault(format!("journal: {unread} blocks cannot be read"));
        }
        area
    }

    /// Looks whether the journal ends where its records do, or was damaged there: the next commit is known by what is left of its header, or by those
    /// behind it, or by bytes where a write was filled up with zeros.
    fn look_behind(&mut self, area: &[u8], end: usize, epoch: u64, next: u64) {
        let mut lost = 0;
        let first = end.next_multiple_of(PAGE_BYTES);
        let rest = &area[end.min(area.len())..first.min(area.len())];
        if rest.iter().any(|byte| *byte != 0) || is_like_record(area, first, epoch, next) {
            lost = 1;
        }
        // The area has no room for more records than these.
        let last = next + (area.len() / HEADER_BYTES) as u64;
        let mut at = first;
        while at < area.len() {
            let found = record_at(area, at, epoch).filter(|record| (next..last).contains(&record.lsn));
            if let Some(Found { lsn, .. }) = found {
                let (_, end, behind) = follow_chain(area, at, epoch, lsn);
                lost = lost.max(behind - next);
                at = end.next_multiple_of(PAGE_BYTES).max(at + PAGE_BYTES);
                continue;
            }
            if Header::at(area, at).is_some_and(|header| header.is_of(epoch) && header.lsn >= next) {
                // What number it says may be damaged too.
                lost = lost.max(1);
            }
            at += PAGE_BYTES;
        }
        if lost > 0 {
            self.report.commits_lost += lost;
            self.report
                .remark(format!("journal: commit {next} cannot be read, so those from it on are lost"));
        }
    }

    /// Applies a record. What it says of things that are lost is passed over.
    fn apply(&mut self, entries: &[u8]) -> Result<()> {
        let mut reader = RecordReader::new(entries);
        let mut next = reader.next();
        while let Ok(Some(entry)) = &next {
            match self.apply_entry(entry) {
                Ok(()) => {}
                Err(error @ (Error::Damaged { .. } | Error::NoSuchNode(_) | Error::NoSuchSnode(_))) => {
                    self.report.fault(super::survey::what_of(&error));
                }
                Err(error) => return Err(error),
            }
            next = reader.next();
        }
        next.map_or_else(|error| self.report.fault(super::survey::what_of(&error)), drop);
        Ok(())
    }

    fn apply_entry(&mut self, entry: &Entry<'_>) -> Result<()> {
        match *entry {
            Entry::Page { page, ref desc } => self.replay_page(page, desc.clone()),
            Entry::Slots { page, class, first, bytes, .. } => {
                self.place_unread(page)?;
                self.replay_entry(entry)?;
                let (first, slot) = (usize::from(first), slot_bytes(class).unwrap_or(PAGE_BYTES));
                self.note_known(page, first..first + bytes.len() / slot);
                Ok(())
            }
            Entry::Bytes { node, bytes } => {
                node.page().map_or(Ok(()), |page| self.place_unread(page))?;
                self.replay_entry(entry)?;
                self.note_changed(node, bytes);
                Ok(())
            }
            Entry::Patches { node, .. } if self.is_unread(node) => Ok(()),
            Entry::Patches { .. } => self.replay_entry(entry),
            Entry::Type { .. } | Entry::TypeGone { .. } if self.has_catalog => self.replay_entry(entry),
            // Edge types are made up at the end then, and counts are made anew.
            Entry::Type { .. } | Entry::TypeGone { .. } | Entry::Count { .. } => Ok(()),
            Entry::Edge(EdgeChange { source, etype, form, key, old, new }) => {
                if old != NONE {
                    // One that was in a page that is lost is not there.
                    let is_out = self.take_out(source, RawEdge { etype, key, to: old })?;
                    self.report.complete &= is_out;
                }
                let edge = RawEdge { etype, key, to: new };
                if new != NONE && !(self.has_form(etype, form) && self.put_edge(source, form, edge)?) {
                    return Err(Error::NoSuchNode(source));
                }
                Ok(())
            }
            Entry::Free { node } => {
                let is_lost = self.lost.remove(&node).is_some();
                let page = node.page().unwrap_or(0);
                if find_any(&self.store.pool.table, node, NodeScope::Committed).is_ok() {
                    self.place_unread(page)?;
                    let before = self.store.pool.table.describe(page);
                    self.replay_entry(entry)?;
                    self.note_freed(node, &before);
                } else {
                    self.report.complete &= is_lost;
                }
                Ok(())
            }
            Entry::Snode { root } => {
                let id = root.home();
                if id.0 == 0 || self.store.snodes.find(id).is_none() {
                    return self.replay_entry(entry);
                }
                self.set_root(id, root)
            }
            Entry::SnodeGone { snode } => self.drop_snode(snode),
        }
    }

    /// Applies an entry as a recovery does.
    fn replay_entry(&self, entry: &Entry<'_>) -> Result<()> {
        crate::replay::keep_room(&self.store)?;
        crate::replay::apply_entry(&self.store, entry)
    }

    fn replay_page(&mut self, page: u32, desc: Desc) -> Result<()> {
        if desc.snode == 0 || !is_of_nodes(page, &desc) {
            return Err(Error::damaged("journal: a page that is none of a node"));
        }
        let raw = reads::page(self.source.medium, desc.block, desc.crc);
        if let Some(raw) = raw.as_ref().and_then(|raw| raw.first_chunk())
            && self.put_page(page, &desc, raw)?
        {
            self.report.bytes += PAGE_BYTES as u64;
            return Ok(());
        }
        self.put_unread(page, &desc, true)
    }

    /// Gives up an s-node of which nothing is left but what is lost.
    fn drop_snode(&mut self, snode: HomeId) -> Result<()> {
        if self.store.snodes.find(snode).is_none() {
            return Ok(());
        }
        let root = self.store.root_of_home(snode)?;
        root.page().map_or(Ok(()), |page| self.place_unread(page))?;
        self.change(snode, |store, partition| {
            let root = partition.root;
            if root != NOWHERE && find_any(&store.pool.table, root, NodeScope::Committed).is_ok() {
                apply::free_nodes(store, partition, &[root])?;
            }
            partition.contents.nodes = 0;
            apply::clear_snode(store, partition)
        })?;
        self.store.snodes.remove(snode);
        self.store.catalog.write().homes.retain(|entry| entry.id != snode);
        let table = &self.store.pool.table;
        let is_there = |page: u32| ![0, snode.0].contains(&table.describe(page).snode);
        self.unread.retain(|page, _| is_there(*page));
        self.lost.retain(|node, _| node.home() != snode);
        self.lost_tables.retain(|table| table.snode != snode);
        Ok(())
    }
}

/// Whether two of three things that tell a record are there.
fn is_like_record(area: &[u8], at: usize, epoch: u64, next: u64) -> bool {
    Header::at(area, at).is_some_and(|header| {
        let likenesses = [header.magic == MAGIC, header.epoch == epoch, header.lsn == next];
        likenesses.iter().filter(|is| **is).count() >= 2
    })
}
