//! A step: one transaction of the store, and the inodes that it changes.
//!
//! Operations work on copies of inodes. At the end everything that has changed goes into the transaction: records, buffered data, heads of
//! chunks, and inodes that nothing leads to any more go. After the commit the copies take the place of the inodes in memory. A
//! step that fails leaves both as they were.

use crate::data::{Editor, Heads, Room};
use crate::error::{damaged, failed};
use crate::graph::{Graph, Head};
use crate::inode::{Block, Inode};
use crate::layout::{
    CHUNK, CHUNK_BLOCKS, Counts, ENTRY, Entry, FileForm, Form, HEAD_BYTES, INLINE_BYTES_MAX,
    PACKED_BYTES_MAX, PIECE, PIECE_BYTES, PROMISED, QUOTA, QUOTAS, Record, SLOTS_AT, SUPER, Super, XATTRS,
    encode_xattrs, slot_at,
};
use crate::quota::{Added, QuotaChange};
use crate::record;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino, TagFlags};
use weft_tags::{Durability, Info, NodeId, SnodeId, SnodeTags, Transaction};
use weft_vfs::{Attr, Death, FsError, FsResult};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Chunks of an inode that goes within the step that ends it; a larger one goes afterwards, in parts.
pub(crate) const CHUNKS_AT_ONCE: u64 = 4096;
/// Slots without a block that a chunk keeps, at least, before it is written anew.
const SPARE_SLOTS: usize = 16;

/// The head of a chunk after the commit; none where the chunk has gone.
type KeptHead = ((Ino, u64), Option<Arc<Head>>);

/// The entry with a name, if there is one, and its node.
type FoundEntry = Option<(NodeId, Entry)>;

/// An inode of a step.
struct Work {
    now: Inode,
    /// It was made by the step.
    is_new: bool,
    is_changed: bool,
    /// Its data has changed, or what is buffered of it is due: all of that is stored.
    is_edited: bool,
    /// Nothing leads to it, and nobody has it open.
    ends: bool,
}

/// A transaction and what it changes.
pub(crate) struct Step<'s> {
    graph: &'s Graph,
    state: &'s mut State,
    tx: Transaction<'s>,
    work: BTreeMap<Ino, Work>,
    heads: Heads,
    /// The entry that was looked for last, by directory and name: who checks it mostly changes it next.
    looked_for: Option<(Ino, Box<[u8]>, FoundEntry)>,
    /// Heads as they are after the commit.
    kept: Vec<KeptHead>,
    written: u64,
    deaths: Vec<Death>,
    /// Bytes of files that are others after the commit.
    changed: Vec<(Ino, Range<u64>)>,
    /// What becomes of quotas.
    quotas: Vec<(Ino, QuotaChange)>,
    begins_quota: bool,
}

impl<'s> Step<'s> {
    pub(crate) fn new(graph: &'s Graph, state: &'s mut State) -> Step<'s> {
        state.make_room();
        let mut tx = graph.store.begin();
        tx.durability(Durability::None);
        Step {
            graph,
            state,
            tx,
            work: BTreeMap::new(),
            heads: Heads::new(),
            looked_for: None,
            kept: Vec::new(),
            written: 0,
            deaths: Vec::new(),
            changed: Vec::new(),
            quotas: Vec::new(),
            begins_quota: false,
        }
    }

    fn load(&mut self, ino: Ino) -> FsResult<&mut Work> {
        if !self.work.contains_key(&ino) {
            let now = self.state.inode(self.graph, ino)?.clone();
            self.work
                .insert(ino, Work { now, is_new: false, is_changed: false, is_edited: false, ends: false });
        }
        self.work.get_mut(&ino).ok_or(FsError::Stale)
    }

    pub(crate) fn inode(&mut self, ino: Ino) -> FsResult<&Inode> {
        Ok(&self.load(ino)?.now)
    }

    /// An inode that changes with the step.
    pub(crate) fn inode_mut(&mut self, ino: Ino) -> FsResult<&mut Inode> {
        let work = self.load(ino)?;
        work.is_changed = true;
        Ok(&mut work.now)
    }

    /// Says that a sync follows the step at once.
    pub(crate) fn for_sync(&mut self) {
        self.tx.for_sync();
    }

    /// Stores all that is buffered of an inode with the step.
    pub(crate) fn flush(&mut self, ino: Ino) -> FsResult<()> {
        let work = self.load(ino)?;
        (work.is_changed, work.is_edited) = (true, true);
        Ok(())
    }

    pub(crate) fn attr(&mut self, ino: Ino) -> FsResult<Attr> {
        Ok(self.inode(ino)?.attr(ino))
    }

    /// Changes a file's data with `edit`, in a range of bytes.
    pub(crate) fn edit<T>(
        &mut self,
        ino: Ino,
        changed: Range<u64>,
        edit: impl FnOnce(&mut Editor<'_>, Room) -> FsResult<T>,
    ) -> FsResult<T> {
        let inode = self.inode(ino)?;
        inode.file()?;
        let quota = inode.record.quota;
        let room = Room { free: self.room(), quota: self.room_in(quota)?.blocks };
        let graph = self.graph;
        let work = self.work.get_mut(&ino).ok_or(FsError::Stale)?;
        (work.is_changed, work.is_edited) = (true, true);
        self.changed.push((ino, changed));
        edit(&mut Editor { graph, ino, inode: &mut work.now, heads: &mut self.heads }, room)
    }

    /// Blocks that files can still take.
    fn room(&self) -> u64 {
        let reserved = |inode: &Inode| inode.reserved as i64;
        let before = |ino: &Ino| self.state.inodes.get(ino).map_or(0, reserved);
        let more: i64 = self.work.iter().map(|(ino, work)| reserved(&work.now) - before(ino)).sum();
        free_blocks(self.graph, self.state).saturating_add_signed(-(more + self.promised()))
    }

    /// Promised blocks more than before.
    fn promised(&self) -> i64 {
        let promised = |inode: &Inode| match &inode.record.form {
            Form::File(file) => file.promised as i64,
            _ => 0,
        };
        let before = |ino: &Ino| self.state.inodes.get(ino).map_or(0, promised);
        let now = |work: &Work| if work.ends { 0 } else { promised(&work.now) };
        self.work.iter().map(|(ino, work)| now(work) - before(ino)).sum()
    }

    /// Blocks and inodes that can still be added to a quota.
    pub(crate) fn room_in(&mut self, quota: Option<Ino>) -> FsResult<Counts> {
        let Some(dir) = quota else { return Ok(Counts::NO_LIMIT) };
        let added = self.added(dir);
        Ok(self.state.quota(self.graph, dir)?.map_or(Counts::NO_LIMIT, |quota| quota.room(added)))
    }

    /// What the step has added to a quota so far, where nothing has gone yet; blocks are not told apart.
    fn added(&self, dir: Ino) -> Added {
        let mut added = Added::default();
        let counted =
            self.work.iter().filter(|(ino, work)| work.now.record.quota == Some(dir) && **ino != dir);
        for (ino, work) in counted {
            let before = self.counted_before(*ino, work);
            let now = work.now.counted();
            added.blocks += now.blocks + now.buffered - before.blocks - before.buffered;
            added.inodes += now.inodes - before.inodes;
        }
        added
    }

    /// What an inode was counted for before the step.
    fn counted_before(&self, ino: Ino, work: &Work) -> Added {
        let before = self.state.inodes.get(&ino).filter(|_| !work.is_new);
        before.map_or_else(Added::default, Inode::counted)
    }

    /// Notes what becomes of a quota.
    pub(crate) fn change_quota(&mut self, dir: Ino, change: QuotaChange) {
        self.quotas.push((dir, change));
    }

    /// Gives a directory, which is empty, a quota: what is made in it counts to it from now on.
    pub(crate) fn begin_quota(&mut self, dir: Ino) -> FsResult<()> {
        let etype = self.graph.quota_type().ok_or(FsError::Unsupported("a quota beside other changes"))?;
        let node = self.tx.create_node(SnodeId(dir.0), QUOTA, &Counts::default().encode()).map_err(failed)?;
        let inode = self.inode_mut(dir)?;
        inode.record.quota = Some(dir);
        let root = inode.root;
        self.tx.create_edge(root, etype, Info::Number(0), node).map_err(failed)?;
        self.begins_quota = true;
        Ok(())
    }

    /// Takes the quota from a directory when nothing counts to it.
    pub(crate) fn end_quota_if_unused(&mut self, dir: Ino) -> FsResult<()> {
        let is_unused =
            self.state.quota(self.graph, dir)?.is_some_and(|quota| quota.stored == Counts::default());
        if !is_unused || self.added(dir) != Added::default() {
            return Ok(());
        }
        let inode = self.inode_mut(dir)?;
        inode.record.quota = None;
        let root = inode.root;
        self.drop_quota(root)?;
        self.change_quota(dir, QuotaChange::Ended);
        Ok(())
    }

    /// Takes what is counted of a quota from the store.
    fn drop_quota(&mut self, root: NodeId) -> FsResult<()> {
        let Some(etype) = self.graph.quota_type() else { return Ok(()) };
        self.tx.delete_edge(root, etype, Info::Number(0)).map(drop).map_err(failed)
    }

    /// Notes that programs have written bytes to a file.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Notes that a file's content goes, and that another begins.
    pub(crate) fn note_death(&mut self, ino: Ino) -> FsResult<()> {
        let clock = self.clock();
        let inode = self.inode_mut(ino)?;
        let death = death_of(ino, inode, inode.file()?, clock);
        inode.file_mut()?.born = clock;
        self.deaths.extend((death.size > 0).then_some(death));
        Ok(())
    }

    /// The byte clock.
    pub(crate) fn clock(&self) -> u64 {
        self.state.superblock.volume_bytes + self.written
    }

    /// Makes an inode without a name.
    pub(crate) fn make(&mut self, tags: SnodeTags, record: Record) -> FsResult<Ino> {
        let snode = self.tx.create_snode(&tags).map_err(failed)?;
        let root = self.tx.root(snode).map_err(failed)?;
        let now = Inode {
            root,
            stored: None,
            tags,
            record,
            xattrs: Arc::default(),
            stored_form: FileForm::default(),
            buffer: Arc::default(),
            reserved: 0,
            chunks: None,
            gives_up: false,
            opens: 0,
            is_orphan: false,
        };
        self.work
            .insert(Ino(snode.0), Work { now, is_new: true, is_changed: true, is_edited: true, ends: false });
        Ok(Ino(snode.0))
    }

    /// Looks for the entry with this name.
    pub(crate) fn find_entry(&mut self, dir: Ino, name: &[u8]) -> FsResult<FoundEntry> {
        if let Some((of, known, entry)) = &self.looked_for
            && (*of, &**known) == (dir, name)
        {
            return Ok(*entry);
        }
        let (root, etype) = (self.inode(dir)?.root, self.graph.types.entry);
        let found = match self.tx.edge(root, etype, Info::Key(name)).map_err(failed)? {
            Some(node) => {
                let raw = self.tx.read_node(node, ENTRY).map_err(failed)?;
                let (_, entry) = Entry::decode(&raw).ok_or_else(|| damaged(format!("the entry {node}")))?;
                Some((node, entry))
            }
            None => None,
        };
        self.looked_for = Some((dir, name.into(), found));
        Ok(found)
    }

    /// Lets a name lead to an inode. A name that is there already keeps its cookie: a reader sees it once.
    pub(crate) fn set_entry(&mut self, dir: Ino, name: &[u8], ino: Ino) -> FsResult<()> {
        let kind = self.inode(ino)?.record.kind();
        let found = self.find_entry(dir, name)?;
        self.looked_for = None;
        if let Some((node, entry)) = found {
            let raw = Entry { ino, kind, ..entry }.encode(name);
            return self.tx.update_node(node, ENTRY, &raw).map_err(failed);
        }
        let directory = self.inode_mut(dir)?.directory_mut()?;
        let cookie = directory.next_cookie;
        directory.next_cookie += 1;
        directory.entries += 1;
        let root = self.inode(dir)?.root;
        let raw = Entry { cookie, ino, kind }.encode(name);
        let node = self.tx.create_node(SnodeId(dir.0), ENTRY, &raw).map_err(failed)?;
        self.tx.create_edge(root, self.graph.types.entry, Info::Key(name), node).map_err(failed)?;
        let (tree, key) = (self.graph.listing(), crate::layout::listing_key(dir, cookie));
        tree.insert_in(&mut self.tx, &key, &node.0.to_le_bytes()).map_err(failed)?;
        Ok(())
    }

    pub(crate) fn remove_entry(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let Some((_, entry)) = self.find_entry(dir, name)? else { return Err(FsError::NotFound) };
        self.looked_for = None;
        let inode = self.inode_mut(dir)?;
        inode.gives_up = true;
        let directory = inode.directory_mut()?;
        // On a damaged volume there may be more than it says.
        directory.entries = directory.entries.saturating_sub(1);
        let root = self.inode(dir)?.root;
        self.tx.delete_edge(root, self.graph.types.entry, Info::Key(name)).map_err(failed)?;
        let (tree, key) = (self.graph.listing(), crate::layout::listing_key(dir, entry.cookie));
        tree.delete_in(&mut self.tx, &key).map_err(failed)?;
        Ok(())
    }

    /// Stores everything that has changed in one transaction. After an error nothing has.
    pub(crate) fn commit(mut self) -> FsResult<()> {
        let inos: Vec<Ino> = self.work.keys().copied().collect();
        for ino in inos {
            let Some(mut work) = self.work.remove(&ino) else { continue };
            if work.is_changed {
                if work.now.is_gone() && ino != Ino::ROOT {
                    self.end(ino, &mut work)?;
                } else {
                    self.store(ino, &mut work)?;
                }
            }
            self.work.insert(ino, work);
        }
        self.store_quotas()?;
        let sums = self.store_sums()?;
        self.tx.commit().map_err(failed)?;
        // From here on nothing fails.
        let state = self.state;
        state.change_quotas(self.quotas);
        for ((ino, chunk), head) in self.kept {
            self.graph.keep_head(ino, chunk, head);
        }
        for (ino, mut work) in self.work {
            if !work.is_changed {
                continue;
            }
            state.given_up += u64::from(work.now.leaves_secrets());
            // What the buffer has was not given up yet.
            work.now.gives_up &= !work.is_edited && !work.now.buffer.is_empty();
            let before = state.inodes.get(&ino);
            let (buffered, reserved) =
                before.map_or((0, 0), |inode| (inode.buffer.len() as u64, inode.reserved));
            state.buffered -= buffered;
            state.reserved -= reserved;
            if work.is_edited || work.ends {
                state.dirty.remove(&ino);
            } else {
                state.buffered += buffered;
                state.reserved += reserved;
            }
            if work.ends {
                state.inodes.remove(&ino);
                state.count -= u64::from(!work.is_new);
                continue;
            }
            state.count += u64::from(work.is_new);
            if work.now.is_gone() && ino != Ino::ROOT {
                state.ended.push(ino);
            }
            state.make_room();
            state.inodes.insert(ino, work.now);
        }
        for (ino, changed) in self.changed {
            if let Some(file) = state.inodes.get(&ino).and_then(|inode| inode.file().ok()) {
                state.watch.tell(ino, changed, file.size);
            }
        }
        (state.superblock, state.stored) = (sums.clone(), sums);
        if let Some(observer) = &state.observer {
            self.deaths.iter().for_each(observer);
        }
        Ok(())
    }

    /// Stores the counts of the quotas that the changed inodes count to.
    fn store_quotas(&mut self) -> FsResult<()> {
        let mut sums: BTreeMap<Ino, Added> = BTreeMap::new();
        for (ino, work) in self.work.iter().filter(|(_, work)| work.is_changed) {
            let Some(dir) = work.now.record.quota.filter(|dir| dir != ino) else { continue };
            let before = self.counted_before(*ino, work);
            let now = if work.ends { Added::default() } else { work.now.counted() };
            let sum = sums.entry(dir).or_default();
            sum.blocks += now.blocks - before.blocks;
            sum.inodes += now.inodes - before.inodes;
            sum.buffered += now.buffered - before.buffered;
        }
        for (dir, added) in sums {
            if added == Added::default() || self.work.get(&dir).is_some_and(|work| work.ends) {
                continue;
            }
            // The directory may have gone before the last of its tree.
            let Some(quota) = self.state.quota(self.graph, dir)? else { continue };
            let (node, before) = (quota.node, quota.stored);
            let counts = before.after(added);
            if counts != before {
                self.tx.update_node(node, QUOTA, &counts.encode()).map_err(failed)?;
            }
            self.quotas.push((dir, QuotaChange::Counted(counts, added.buffered)));
        }
        Ok(())
    }

    /// Stores the sums over all files; they are as returned after the commit.
    fn store_sums(&mut self) -> FsResult<Super> {
        let mut now = self.state.superblock.clone();
        now.promised = now.promised.saturating_add_signed(self.promised());
        now.volume_bytes += self.written;
        now.features |= if self.begins_quota { QUOTAS } else { 0 };
        if now != self.state.stored {
            self.tx.update_node(self.state.super_node, SUPER, &now.encode()).map_err(failed)?;
        }
        Ok(now)
    }

    /// Stores an inode that stays.
    fn store(&mut self, ino: Ino, work: &mut Work) -> FsResult<()> {
        let (inode, types) = (&mut work.now, self.graph.types);
        let is_edited = work.is_edited;
        if is_edited && let Form::File(_) = inode.record.form {
            self.store_data(ino, inode)?;
            inode.stored_form = inode.file()?.clone();
        }
        if inode.is_orphan != (inode.record.links == 0) {
            inode.is_orphan = !inode.is_orphan;
            let (source, info) = (self.graph.first, Info::Number(ino.0));
            if inode.is_orphan {
                self.tx.create_edge(source, types.orphan, info, inode.root).map_err(failed)?;
            } else {
                self.tx.delete_edge(source, types.orphan, info).map_err(failed)?;
            }
        }
        let before = self.state.inodes.get(&ino);
        let had_tags = before.map(|inode| inode.tags);
        let had_xattrs = before.map(|inode| inode.xattrs.clone()).unwrap_or_default();
        if !Arc::ptr_eq(&had_xattrs, &inode.xattrs) && had_xattrs != inode.xattrs {
            self.store_xattrs(ino, inode, had_xattrs.is_empty())?;
        }
        if had_tags.is_some_and(|tags| tags != inode.tags) {
            self.tx.set_snode_tags(SnodeId(ino.0), &inode.tags).map_err(failed)?;
        }
        inode.record.has_xattrs = !inode.xattrs.is_empty();
        let raw = match &inode.record.form {
            // Data that stays in the buffer is not told of.
            Form::File(_) if !is_edited => {
                Record { form: Form::File(inode.stored_form.clone()), ..inode.record.clone() }.encode()
            }
            _ => inode.record.encode(),
        };
        let (snode, before) = (SnodeId(ino.0), inode.stored.take());
        let stored = record::store(&mut self.tx, self.graph.records, snode, inode.root, &raw, before);
        inode.stored = Some(stored.map_err(failed)?);
        Ok(())
    }

    fn store_xattrs(&mut self, ino: Ino, inode: &Inode, is_first: bool) -> FsResult<()> {
        let (etype, info) = (self.graph.types.xattrs, Info::Number(0));
        if inode.xattrs.is_empty() {
            return self.tx.delete_edge(inode.root, etype, info).map(drop).map_err(failed);
        }
        let raw = encode_xattrs(&inode.xattrs);
        let old = if is_first { None } else { self.tx.edge(inode.root, etype, info).map_err(failed)? };
        if let Some(node) = old {
            return self.tx.update_node(node, XATTRS, &raw).map_err(failed);
        }
        let node = self.tx.create_node(SnodeId(ino.0), XATTRS, &raw).map_err(failed)?;
        self.tx.create_edge(inode.root, etype, info, node).map_err(failed)
    }

    /// Stores what is buffered of a file, and its changed heads.
    fn store_data(&mut self, ino: Ino, inode: &mut Inode) -> FsResult<()> {
        let new: Vec<u64> =
            self.heads.range((ino, 0)..=(ino, u64::MAX)).map(|((_, chunk), _)| *chunk).collect();
        let file = inode.file()?;
        let is_packed_so = file.packed == inode.stored_form.packed && [0, file.size].contains(&file.packed);
        if inode.buffer.is_empty() && new.is_empty() && is_packed_so {
            return Ok(());
        }
        let file = inode.file()?;
        let has_chunks = file.chunks > 0 || !new.is_empty();
        let is_one = !has_chunks && file.packed == 0 && inode.buffer.keys().all(|block| *block == 0);
        if is_one && let Some(bytes) = inode.buffer.get(&0) {
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if used <= INLINE_BYTES_MAX {
                let inline = Some(bytes[..used].into());
                inode.file_mut()?.inline = inline;
                (inode.buffer, inode.reserved) = (Arc::default(), 0);
                return self.drop_pieces(inode, 0);
            }
        }
        let is_whole = file.blocks == file.size.div_ceil(BLOCK) && file.promised == 0;
        if !has_chunks && is_whole && (1..=PACKED_BYTES_MAX).contains(&file.size) {
            return self.pack(ino, inode);
        }
        Editor { graph: self.graph, ino, inode, heads: &mut self.heads }.unpack()?;
        self.drop_pieces(inode, 0)?;
        let mut blocks: BTreeMap<u64, Vec<(usize, Arc<Block>)>> = BTreeMap::new();
        if let Some(inline) = inode.file_mut()?.inline.take()
            && !inode.buffer.contains_key(&0)
        {
            let mut block = Arc::new([0; BLOCK_BYTES]);
            Arc::make_mut(&mut block)[..inline.len()].copy_from_slice(&inline);
            blocks.entry(0).or_default().push((0, block));
        }
        for (block, bytes) in std::mem::take(&mut inode.buffer).iter() {
            let at = (block % CHUNK_BLOCKS) as usize;
            blocks.entry(block / CHUNK_BLOCKS).or_default().push((at, bytes.clone()));
        }
        inode.reserved = 0;
        let chunks: BTreeSet<u64> = new.into_iter().chain(blocks.keys().copied()).collect();
        for chunk in chunks {
            self.store_chunk(ino, inode, chunk, blocks.remove(&chunk).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Stores a file without holes in pieces. Those that are as before stay.
    fn pack(&mut self, ino: Ino, inode: &mut Inode) -> FsResult<()> {
        let (size, before) = (inode.file()?.size as usize, inode.file()?.packed as usize);
        let (source, etype) = (inode.root, self.graph.types.data);
        let (mut new, mut bytes) = (Vec::new(), Vec::with_capacity(size));
        for (at, from) in (0..).zip((0..size).step_by(PIECE_BYTES)) {
            let (to, end) = (size.min(from + PIECE_BYTES), before.min(from + PIECE_BYTES));
            let is_as_long = to == end;
            let blocks = (from / BLOCK_BYTES) as u64..to.div_ceil(BLOCK_BYTES) as u64;
            if is_as_long && inode.buffer.range(blocks).next().is_none() {
                continue;
            }
            let start = bytes.len();
            let is_other = self.piece(inode, from..to, before, &mut bytes)?;
            if !is_as_long {
                new.push((at, start..bytes.len()));
                continue;
            }
            if is_other {
                let node = self.tx.edge(source, etype, Info::Number(at)).map_err(failed)?;
                let node = node.ok_or_else(|| damaged(format!("piece {at} of inode {ino}")))?;
                self.tx.update_node(node, PIECE, &bytes[start..]).map_err(failed)?;
            }
            bytes.truncate(start);
        }
        let pieces: Vec<&[u8]> = new.iter().map(|(_, range)| &bytes[range.clone()]).collect();
        let nodes = self.tx.create_nodes(SnodeId(ino.0), PIECE, &pieces).map_err(failed)?;
        for ((at, _), node) in new.iter().zip(nodes) {
            self.tx.set_edge(source, etype, Info::Number(*at), node).map_err(failed)?;
        }
        let file = inode.file_mut()?;
        (file.packed, file.inline) = (size as u64, None);
        (inode.buffer, inode.reserved) = (Arc::default(), 0);
        self.drop_pieces(inode, size as u64)
    }

    /// Appends a range of a small file's bytes as they are now to `out`; whether some of them are other than stored, of which there are
    /// `stored` in pieces.
    fn piece(&self, inode: &Inode, range: Range<usize>, stored: usize, out: &mut Vec<u8>) -> FsResult<bool> {
        let start = out.len();
        out.resize(start + range.len(), 0);
        let out = &mut out[start..];
        let held = stored.clamp(range.start, range.end) - range.start;
        self.graph.read_pieces(inode, range.start as u64, &mut out[..held])?;
        if let Some(inline) = &inode.file()?.inline {
            let inline = inline.get(range.start..inline.len().min(range.end)).unwrap_or_default();
            out[..inline.len()].copy_from_slice(inline);
        }
        let mut is_other = held < range.len();
        let blocks = (range.start / BLOCK_BYTES) as u64..range.end.div_ceil(BLOCK_BYTES) as u64;
        for (block, bytes) in inode.buffer.range(blocks) {
            let begun = *block as usize * BLOCK_BYTES;
            let (from, to) = (range.start.max(begun), range.end.min(begun + BLOCK_BYTES));
            let (old, new) =
                (&mut out[from - range.start..to - range.start], &bytes[from - begun..to - begun]);
            is_other |= old != new;
            old.copy_from_slice(new);
        }
        Ok(is_other)
    }

    /// Takes the pieces away that are stored behind the first `kept` bytes.
    fn drop_pieces(&mut self, inode: &Inode, kept: u64) -> FsResult<()> {
        let pieces = |bytes: u64| bytes.div_ceil(PIECE_BYTES as u64);
        for piece in pieces(kept)..pieces(inode.stored_form.packed) {
            let edge = self.tx.delete_edge(inode.root, self.graph.types.data, Info::Number(piece));
            edge.map_err(failed)?;
        }
        Ok(())
    }

    fn store_chunk(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        chunk: u64,
        blocks: Vec<(usize, Arc<Block>)>,
    ) -> FsResult<()> {
        let committed = self.graph.head(ino, inode, chunk)?;
        let old = committed.as_deref().cloned().unwrap_or_default();
        let mut head = self.heads.remove(&(ino, chunk)).unwrap_or_else(|| old.clone());
        for (at, _) in &blocks {
            if head.slots[*at] == PROMISED {
                head.slots[*at] = 0;
                let file = inode.file_mut()?;
                file.promised = file.promised.saturating_sub(1);
            }
        }
        let new = blocks.iter().filter(|(at, _)| head.slots[*at] == 0).count();
        let live = head.blocks() as usize + new;
        let source = (inode.root, self.graph.types.data, Info::Number(chunk));
        if live == 0 && head.promised() == 0 {
            if old.node.is_some() {
                self.tx.delete_edge(source.0, source.1, source.2).map_err(failed)?;
                self.note_chunk(inode, chunk, false)?;
            }
            self.kept.push(((ino, chunk), None));
            return Ok(());
        }
        let spare = usize::from(head.used).saturating_sub(live);
        let is_sparse = spare > SPARE_SLOTS && spare > live;
        match head.node {
            Some(node) if !is_sparse && (head.used > 0 || live == 0) => {
                let erases = inode.tags.flags.contains(TagFlags::SECURE_DELETE);
                self.change_chunk(node, &old, &mut head, &blocks, erases)?;
            }
            _ => {
                let node = self.write_chunk(ino, &old, &mut head, &blocks)?;
                self.tx.set_edge(source.0, source.1, source.2, node).map_err(failed)?;
                if old.node.is_none() {
                    self.note_chunk(inode, chunk, true)?;
                }
            }
        }
        self.kept.push(((ino, chunk), Some(Arc::new(head))));
        Ok(())
    }

    /// Notes that a chunk has come or gone.
    fn note_chunk(&mut self, inode: &mut Inode, chunk: u64, is_there: bool) -> FsResult<()> {
        if let Some(chunks) = &mut inode.chunks {
            let chunks = Arc::make_mut(chunks);
            match chunks.binary_search(&chunk) {
                Ok(at) if !is_there => drop(chunks.remove(at)),
                Err(at) if is_there => chunks.insert(at, chunk),
                _ => {}
            }
        }
        let file = inode.file_mut()?;
        file.chunks = if is_there { file.chunks + 1 } else { file.chunks.saturating_sub(1) };
        Ok(())
    }

    /// Writes a chunk to a new node, without slots that no block has.
    fn write_chunk(
        &mut self,
        ino: Ino,
        old: &Head,
        head: &mut Head,
        blocks: &[(usize, Arc<Block>)],
    ) -> FsResult<NodeId> {
        let new: BTreeMap<usize, &Block> = blocks.iter().map(|(at, bytes)| (*at, &**bytes)).collect();
        let mut kept: BTreeMap<usize, Box<Block>> = BTreeMap::new();
        for (at, slot) in head.slots.iter().enumerate() {
            if !Head::holds(*slot) || new.contains_key(&at) {
                continue;
            }
            let node = old.node.ok_or_else(|| damaged("a chunk with slots and without a node"))?;
            let mut bytes = Box::new([0; BLOCK_BYTES]);
            self.graph.read_slots(node, *slot, 0, &mut bytes[..])?;
            kept.insert(at, bytes);
        }
        let live = (0..head.slots.len()).filter_map(|at| {
            let bytes = new.get(&at).copied().or_else(|| kept.get(&at).map(|bytes| &**bytes));
            bytes.map(|bytes| (at, bytes))
        });
        let live: Vec<(usize, &Block)> = live.collect();
        for (place, (at, _)) in live.iter().enumerate() {
            head.slots[*at] = place as u16 + 1;
        }
        head.used = live.len() as u16;
        let mut front = head.encode();
        front.resize(if live.is_empty() { HEAD_BYTES } else { SLOTS_AT }, 0);
        let data: Vec<&[u8]> =
            std::iter::once(&front[..]).chain(live.iter().map(|(_, bytes)| &bytes[..])).collect();
        let node = self.tx.create_node_of(SnodeId(ino.0), CHUNK, &data).map_err(failed)?;
        head.node = Some(node);
        Ok(node)
    }

    /// Writes blocks of a chunk to its node, and its head when that has changed.
    fn change_chunk(
        &mut self,
        node: NodeId,
        old: &Head,
        head: &mut Head,
        blocks: &[(usize, Arc<Block>)],
        erases: bool,
    ) -> FsResult<()> {
        let taken: BTreeSet<u16> = head.slots.iter().copied().filter(|slot| Head::holds(*slot)).collect();
        let mut free = (1u16..).filter(|slot| !taken.contains(slot));
        let mut writes: BTreeMap<u16, &Block> = BTreeMap::new();
        for (at, bytes) in blocks {
            if head.slots[*at] == 0 {
                // There are as many slots as blocks.
                head.slots[*at] = free.next().unwrap_or_default();
            }
            writes.insert(head.slots[*at], bytes);
        }
        // Slots that follow each other are written at once.
        let writes: Vec<(u16, &Block)> = writes.into_iter().collect();
        for run in writes.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
            self.tx.write_at(node, CHUNK, slot_at(run[0].0), &bytes).map_err(failed)?;
        }
        let used = head.slots.iter().copied().filter(|slot| Head::holds(*slot)).max().unwrap_or(0);
        if used < old.used {
            let len = if used == 0 { HEAD_BYTES } else { SLOTS_AT + usize::from(used) * BLOCK_BYTES };
            self.tx.resize_node(node, CHUNK, len).map_err(failed)?;
        }
        head.used = used;
        if erases {
            // A slot that no block has stays within the node, which lives.
            let held: BTreeSet<u16> = head.slots.iter().copied().collect();
            let left = old.slots.iter().filter(|slot| Head::holds(**slot) && **slot <= used);
            for slot in left.filter(|slot| !held.contains(slot)) {
                self.tx.write_at(node, CHUNK, slot_at(*slot), &[0; BLOCK_BYTES]).map_err(failed)?;
            }
        }
        if head.slots != old.slots {
            self.tx.write_at(node, CHUNK, 0, &head.encode()).map_err(failed)?;
        }
        Ok(())
    }

    /// Takes an inode that nothing leads to from the store. A large one is left there without a name, to go in parts.
    fn end(&mut self, ino: Ino, work: &mut Work) -> FsResult<()> {
        let inode = &mut work.now;
        let chunks = match &inode.record.form {
            Form::File(file) if file.chunks > CHUNKS_AT_ONCE => self.graph.chunks(inode)?,
            _ => Arc::default(),
        };
        // A damaged record may say more than there are.
        if let Some(left) = chunks.len().checked_sub(CHUNKS_AT_ONCE as usize) {
            // What is buffered of it, and heads that are not stored, go.
            let mut file = inode.stored_form.clone();
            if inode.is_orphan {
                for chunk in &chunks[left..] {
                    if let Some(head) = self.graph.head(ino, inode, *chunk)? {
                        file.blocks = file.blocks.saturating_sub(head.blocks() + head.promised());
                        file.promised = file.promised.saturating_sub(head.promised());
                    }
                    self.drop_chunk(ino, inode, *chunk)?;
                }
                inode.chunks = Some(Arc::new(chunks[..left].to_vec()));
                file.chunks = left as u64;
            }
            *inode.file_mut()? = file;
            (inode.buffer, inode.reserved) = (Arc::default(), 0);
            self.heads.retain(|(of, _), _| *of != ino);
            work.is_edited = true;
            return self.store(ino, work);
        }
        let types = self.graph.types;
        if let Form::File(file) = &inode.record.form {
            let chunks = file.chunks;
            self.deaths.push(death_of(ino, inode, file, self.clock()));
            self.drop_pieces(inode, 0)?;
            if chunks > 0 {
                for chunk in self.graph.chunks(inode)?.iter() {
                    self.drop_chunk(ino, inode, *chunk)?;
                }
            }
        }
        self.heads.retain(|(of, _), _| *of != ino);
        if let Some(stored) = &inode.stored {
            record::remove(&mut self.tx, self.graph.records, inode.root, stored).map_err(failed)?;
            if inode.record.has_xattrs {
                self.tx.delete_edge(inode.root, types.xattrs, Info::Number(0)).map_err(failed)?;
            }
            if inode.record.quota == Some(ino) {
                self.drop_quota(inode.root)?;
                self.quotas.push((ino, QuotaChange::Ended));
            }
            if inode.is_orphan {
                let orphan = self.tx.delete_edge(self.graph.first, types.orphan, Info::Number(ino.0));
                orphan.map_err(failed)?;
            }
        }
        self.tx.delete_snode(SnodeId(ino.0)).map_err(failed)?;
        (work.ends, inode.gives_up) = (true, true);
        Ok(())
    }

    /// Takes a chunk from a file that goes.
    fn drop_chunk(&mut self, ino: Ino, inode: &Inode, chunk: u64) -> FsResult<()> {
        let edge = self.tx.delete_edge(inode.root, self.graph.types.data, Info::Number(chunk));
        edge.map_err(failed)?;
        self.kept.push(((ino, chunk), None));
        Ok(())
    }
}

fn death_of(ino: Ino, inode: &Inode, file: &FileForm, died_at_bytes: u64) -> Death {
    let FileForm { size, born: born_at_bytes, .. } = *file;
    Death { ino, tag: inode.record.tag, size, born_at_bytes, died_at_bytes }
}

/// Blocks that files can still take, as users are told: what is kept for transactions, for promises and for what is buffered is not
/// among them.
pub(crate) fn free_blocks(graph: &Graph, state: &State) -> u64 {
    let report = graph.store.report();
    let (used, total) = (report.medium_bytes - report.free_bytes, state.capacity());
    let free = total.saturating_sub(used / BLOCK);
    // What the store keeps for deletions, as long as it is full.
    let deletions = total / 64 + 256.min(total / 32);
    let rest = free.saturating_sub(deletions + kept_blocks(total));
    // What leads to a page takes the 32nd part of it.
    (rest - rest / 32).saturating_sub(state.superblock.promised + state.reserved)
}

/// Whether the next transactions have room for so many new blocks: what the store has in memory takes some, too, until its next
/// checkpoint.
pub(crate) fn has_room(graph: &Graph, state: &State, blocks: u64) -> bool {
    let total = state.capacity();
    let taken = state.superblock.promised + state.reserved + blocks;
    graph.store.room_bytes() / BLOCK >= taken + taken / 16 + kept_blocks(total)
}

/// Blocks that are kept for transactions, since what is written goes to new blocks before those that held it are free: a full
/// buffer, two chunks that are moved, and what the store wants to be free while one of these is written: as many again, and the
/// leaves that lead to them, twice.
fn kept_blocks(total: u64) -> u64 {
    buffer_blocks(total) + 3 * CHUNK_BLOCKS + 2 * (2 * CHUNK_BLOCKS + 2).min(total / 64 + 4)
}

/// Blocks of a file that are buffered before they are stored: some chunks, so that most are written once; of a small volume less.
pub(crate) fn buffer_blocks(total: u64) -> u64 {
    (total / 128).clamp(64, 4 * CHUNK_BLOCKS)
}
