//! The file system: every operation by the traits of `vfs`.

use crate::data::{Editor, Heads, Room, end_of};
use crate::error::failed;
use crate::graph::Graph;
use crate::inode::Inode;
use crate::layout::Entry;
use crate::options::MountOptions;
use crate::quota::Quota;
use crate::state::State;
use crate::step::{Step, buffer_blocks, free_blocks, has_room};
use parking_lot::{Mutex, RwLock};
use std::time::{Duration, Instant};
use weft_core::{BLOCK_BYTES, Ino, Tag, refuse};
use weft_tags::ClassReport;
use weft_vfs::change::{self, Made, Node};
use weft_vfs::names::{Names, check_name};
use weft_vfs::quota::Limits;
use weft_vfs::{
    Attr, BlockMap, Change, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileSystem,
    FsError, FsResult, FsStats, NewNode, QUOTA_XATTR, QuotaRoom, Refused, RenameFlags, SeekTarget, SetAttr,
    TimeSpec, USAGE_XATTR, XattrChange, XattrMode,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Inodes that are stored with one transaction when many are due.
const INODES_AT_ONCE: usize = 64;
/// The part of the volume that the buffers hold at most, and what they may hold of the smallest, in blocks.
const BUFFERED_PART: u64 = 8;
const DIRTY_BLOCKS_MIN: u64 = 256;
/// Of what the buffers hold when they are full, the part that is stored at once.
const FLUSHED_PART: u64 = 8;
/// Entries that are listed under one lock.
const ENTRIES_AT_ONCE: usize = 128;
/// Inodes that a volume can hold: their numbers have 32 bits within a home.
const INODES_MAX: u64 = 1 << 32;

/// How data comes.
#[derive(Clone, Copy, Default)]
struct Arrival {
    /// When it was written, if that was before.
    when: Option<TimeSpec>,
    /// Large pieces in their order.
    through: bool,
    /// Whoever wrote it was told that it is written: no quota refuses it.
    is_accepted: bool,
}

/// A mounted volume: POSIX files in a tag store.
pub struct TagFs {
    pub(crate) graph: Graph,
    pub(crate) state: RwLock<State>,
    options: MountOptions,
    /// Blocks of a file that are buffered before they are stored.
    buffer_blocks: usize,
    /// Blocks of all files that are buffered before writers store some.
    buffered_max: u64,
    /// The store has snapshots: what is overwritten takes new space for good.
    keeps_old: bool,
    /// When everything was made durable last.
    synced: Mutex<Instant>,
    /// Of the [steps](State::given_up) that gave up bytes which are to be erased, those whose bytes are. Held while others are erased.
    erased: Mutex<u64>,
}

impl TagFs {
    pub(crate) fn new(graph: Graph, state: State, options: MountOptions) -> TagFs {
        let buffer_blocks = buffer_blocks(state.capacity()) as usize;
        let dirty_blocks_max = (options.dirty_bytes_max / BLOCK).max(1);
        let buffered_max = dirty_blocks_max.min((state.capacity() / BUFFERED_PART).max(DIRTY_BLOCKS_MIN));
        let synced = Mutex::new(Instant::now());
        let keeps_old = !graph.store.named_snapshots().is_empty();
        TagFs {
            graph,
            state: RwLock::new(state),
            options,
            buffer_blocks,
            buffered_max,
            keeps_old,
            synced,
            erased: Mutex::new(0),
        }
    }

    /// Does what `steps` does in one transaction.
    fn step<T>(&self, steps: impl FnOnce(&mut Step<'_>) -> FsResult<T>) -> FsResult<T> {
        let mut state = self.state.write();
        let done = self.step_in(&mut state, steps)?;
        self.reap(&mut state);
        Ok(done)
    }

    fn step_in<T>(&self, state: &mut State, steps: impl FnOnce(&mut Step<'_>) -> FsResult<T>) -> FsResult<T> {
        self.check_writable()?;
        let mut step = Step::new(&self.graph, state);
        let done = steps(&mut step)?;
        step.commit()?;
        Ok(done)
    }

    /// Takes inodes away that were too large to go at once.
    pub(crate) fn reap(&self, state: &mut State) {
        while let Some(ino) = state.ended.pop() {
            if let Err(error) = self.step_in(state, |step| step.inode_mut(ino).map(drop)) {
                // It has no name: the next mount takes it away.
                tracing::warn!(%ino, %error, "a file without a name stays until the next mount");
            }
        }
    }

    /// What the cache of the store did with the pages of each class since the mount.
    pub fn cache_report(&self) -> Vec<ClassReport> {
        self.graph.store.cache_report()
    }

    fn check_writable(&self) -> FsResult<()> {
        refuse(self.options.read_only, FsError::ReadOnly("it was mounted so".into()))
    }

    /// Looks at an inode. What comes to memory by that stays there, for the next look.
    fn look<T>(&self, ino: Ino, look: impl FnOnce(&Inode) -> FsResult<T>) -> FsResult<T> {
        let state = self.state.read();
        if let Some(inode) = state.inodes.get(&ino) {
            return look(inode);
        }
        drop(state);
        let mut state = self.state.write();
        state.make_room();
        look(state.inode(&self.graph, ino)?)
    }

    fn find(&self, dir: Ino, name: &[u8]) -> FsResult<Entry> {
        self.look(dir, |inode| {
            inode.directory()?;
            check_name(name)?;
            self.graph.entry(inode.root, name)?.ok_or(FsError::NotFound)
        })
    }

    fn change<T>(&self, ino: Ino, change: impl FnOnce(&mut Inode) -> FsResult<T>) -> FsResult<T> {
        self.step(|step| change(step.inode_mut(ino)?))
    }

    /// The quota that an inode counts to, and the directory that has it.
    fn quota(&self, ino: Ino) -> FsResult<Option<(Ino, Quota)>> {
        let Some(dir) = self.look(ino, |inode| Ok(inode.record.quota))? else { return Ok(None) };
        let mut state = self.state.write();
        Ok(state.quota(&self.graph, dir)?.map(|quota| (dir, *quota)))
    }

    /// Before an attribute is set: what the first quota of a volume needs is not made within a step.
    fn prepare_quota(&self, ino: Ino, name: &[u8], value: &[u8]) -> FsResult<()> {
        if name != QUOTA_XATTR || self.options.read_only || Limits::parse(value).is_none() {
            return Ok(());
        }
        if self.look(ino, |inode| Ok(inode.directory().is_ok_and(|directory| directory.entries == 0)))? {
            self.graph.make_quota_type().map_err(failed)?;
        }
        Ok(())
    }

    /// Stores what is not stored of an inode.
    fn flush(&self, state: &mut State, ino: Ino) -> FsResult<()> {
        if state.dirty.contains_key(&ino) {
            self.step_in(state, |step| step.flush(ino))?;
        }
        Ok(())
    }

    /// Stores what is not stored of all inodes, or of those that have waited for so long. Others come in between.
    fn flush_all(&self, waited: Duration) -> FsResult<()> {
        let due = |since: &Instant| waited.is_zero() || since.elapsed() >= waited;
        let mut inos: Vec<Ino> = {
            let state = self.state.read();
            state.dirty.iter().filter(|(_, since)| due(since)).map(|(ino, _)| *ino).collect()
        };
        inos.sort_unstable();
        let mut stored = Ok(());
        while !inos.is_empty() {
            stored = stored.and(self.flush_some(&mut self.state.write(), &mut inos));
        }
        stored
    }

    /// Stores what has waited longest, until so many blocks are left in the buffers. An error counts only where they stay full.
    fn flush_oldest(&self, left: u64) -> FsResult<()> {
        let mut oldest: Vec<(Instant, Ino)> =
            self.state.read().dirty.iter().map(|(ino, since)| (*since, *ino)).collect();
        oldest.sort_unstable();
        let mut inos: Vec<Ino> = oldest.into_iter().map(|(_, ino)| ino).collect();
        let mut stored = Ok(());
        loop {
            let mut state = self.state.write();
            if inos.is_empty() || state.buffered <= left {
                return if state.buffered > self.buffered_max { stored } else { Ok(()) };
            }
            stored = stored.and(self.flush_some(&mut state, &mut inos));
        }
    }

    /// Stores what is not stored of the first of some inodes, in one transaction, and takes them from the list. One that cannot be
    /// stored keeps no other from it.
    fn flush_some(&self, state: &mut State, inos: &mut Vec<Ino>) -> FsResult<()> {
        let (mut blocks, mut count) = (0, 0);
        for ino in &*inos {
            blocks += state.inodes.get(ino).map_or(0, |inode| inode.buffer.len());
            count += 1;
            if blocks >= self.buffer_blocks || count >= INODES_AT_ONCE {
                break;
            }
        }
        // Some may have been stored, or have gone, since the list was made.
        let group: Vec<Ino> = inos.drain(..count).filter(|ino| state.dirty.contains_key(ino)).collect();
        if group.is_empty() {
            return Ok(());
        }
        let stored = self.step_in(state, |step| group.iter().try_for_each(|ino| step.flush(*ino)));
        if stored.is_ok() || group.len() == 1 {
            return stored;
        }
        let mut each = Ok(());
        for ino in group {
            each = each.and(self.step_in(state, |step| step.flush(ino)));
        }
        each
    }

    /// Blocks that so many replaced ones, and those in the buffers, take besides: none, but where what they replace stays.
    fn room_of_replaced(&self, state: &State, replaced: u64) -> u64 {
        if self.keeps_old { replaced + state.buffered.saturating_sub(state.reserved) } else { 0 }
    }

    fn write_at(&self, ino: Ino, offset: u64, data: &[u8], arrival: Arrival) -> FsResult<()> {
        self.check_writable()?;
        let mut guard = self.state.write();
        let state = &mut *guard;
        let inode = state.inode(&self.graph, ino)?;
        let (before, (buffered, reserved)) = (inode.record.ctime, (inode.buffer.len(), inode.reserved));
        inode.file()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = end_of(offset, data.len() as u64)?;
        let mut heads = Heads::new();
        let mut editor = Editor { graph: &self.graph, ino, inode, heads: &mut heads };
        let missing = editor.missing(offset, end)?;
        let (quota, blocks) = (inode.record.quota, inode.file()?.blocks);
        let range = offset / BLOCK..end.div_ceil(BLOCK);
        let held = inode.buffer.range(range.clone()).count() as u64;
        let replaced = range.end - range.start - missing.min(range.end - range.start);
        let more = self.room_of_replaced(state, replaced.saturating_sub(held));
        if missing > 0 {
            let counted = quota.map(|dir| state.quota(&self.graph, dir)).transpose()?.flatten();
            let quota = counted.map_or(u64::MAX, |quota| quota.free_blocks());
            let quota = if arrival.is_accepted { u64::MAX } else { quota };
            Room { free: free_blocks(&self.graph, state), quota }.check(missing)?;
        }
        if self.keeps_old {
            refuse(missing + more > free_blocks(&self.graph, state), FsError::NoSpace)?;
        }
        if missing + more > 0 && !has_room(&self.graph, state, missing + more) {
            // What is in memory takes less when it is stored than what is kept for it.
            let mut inos: Vec<Ino> = state.dirty.keys().copied().collect();
            inos.sort_unstable();
            while !inos.is_empty() {
                // Who syncs a file hears that it cannot be stored; this one may still have room.
                let _ = self.flush_some(state, &mut inos);
            }
            self.graph.store.checkpoint().map_err(failed)?;
            // With what could not be stored: otherwise this would begin anew for ever.
            let more = self.room_of_replaced(state, replaced);
            refuse(!has_room(&self.graph, state, missing + more), FsError::NoSpace)?;
            drop(guard);
            return self.write_at(ino, offset, data, arrival);
        }
        let clock = state.superblock.volume_bytes;
        let inode = state.inode(&self.graph, ino)?;
        let file = inode.file_mut()?;
        if file.size == 0 && file.blocks == 0 {
            file.born = clock;
        }
        // What was written before an error is counted, too.
        let written = Editor { graph: &self.graph, ino, inode, heads: &mut heads }.write(offset, data);
        inode.touch_data();
        if let Some(when) = arrival.when {
            (inode.record.mtime, inode.record.ctime) = (when, when.max(before));
        }
        let (now, tag) = ((inode.buffer.len(), inode.reserved), inode.record.tag);
        let (size, more) = (inode.file()?.size, inode.file()?.blocks.saturating_sub(blocks));
        quota.into_iter().for_each(|dir| state.note_buffered(dir, more));
        state.watch.tell(ino, offset..end, size);
        state.buffered += (now.0 - buffered) as u64;
        state.reserved += now.1 - reserved;
        state.superblock.volume_bytes += data.len() as u64;
        state.group(&tag).bytes_written += data.len() as u64;
        state.note_dirty(ino);
        written?;
        if state.buffered > self.buffered_max {
            drop(guard);
            self.flush_oldest(self.buffered_max - self.buffered_max / FLUSHED_PART)?;
        } else if now.0 >= self.buffer_blocks || arrival.through && now.0 >= self.buffer_blocks / 4 {
            self.flush(state, ino)?;
        }
        Ok(())
    }

    /// Makes all commits so far durable, and has the store erase what those of them gave up that is to be erased: a checkpoint does both.
    fn make_durable(&self) -> FsResult<()> {
        if self.options.read_only {
            return Ok(());
        }
        let given_up = self.state.read().given_up;
        let mut erased = self.erased.lock();
        if *erased < given_up {
            self.graph.store.checkpoint().map_err(failed)?;
            *erased = given_up;
            return Ok(());
        }
        drop(erased);
        self.graph.store.sync().map_err(failed)
    }

    /// Does one change of several; returns the inode that it makes.
    fn change_in(step: &mut Step<'_>, made: &Made, change: &Change<'_>) -> FsResult<Option<Ino>> {
        let ino = |node| match node {
            Node::Ino(ino) => Ok(ino),
            Node::Made(at) => made.get(at).copied().flatten().ok_or(FsError::Stale),
        };
        match *change {
            Change::Expect { dir, name, ino: expected } => step.check_expected(ino(dir)?, name, expected)?,
            Change::Create { dir, name, ref args } => {
                return step.create(ino(dir)?, name, args).map(|attr| Some(attr.ino));
            }
            Change::Link { node, dir, name } => drop(step.link(ino(node)?, ino(dir)?, name)?),
            Change::Remove { dir, name, is_dir: true } => step.rmdir(ino(dir)?, name)?,
            Change::Remove { dir, name, is_dir: false } => step.unlink(ino(dir)?, name)?,
            Change::Rename { from, name, to, new_name, flags } => {
                step.rename(ino(from)?, name, ino(to)?, new_name, flags)?;
            }
            Change::SetAttr { node, ref set } => set_attr(step, ino(node)?, set)?,
            // It could be of what another change makes.
            Change::Xattr { name: QUOTA_XATTR, .. } => {
                return Err(FsError::Unsupported("a quota beside other changes"));
            }
            Change::Xattr { node, name, value, mode } => step.set_xattr(ino(node)?, name, value, mode)?,
            Change::Write { node, offset, data } => write_in(step, ino(node)?, offset, data)?,
            Change::Fallocate { node, mode, offset, len } => {
                fallocate_in(step, ino(node)?, mode, offset, len)?;
            }
            Change::SetTag { node, tag } => step.inode_mut(ino(node)?)?.set_tag(tag),
        }
        Ok(None)
    }
}

fn set_attr(step: &mut Step<'_>, ino: Ino, set: &SetAttr) -> FsResult<()> {
    if let Some(size) = set.size {
        let before = step.inode(ino)?.file()?.size;
        end_of(size, 0)?;
        if size == 0 {
            step.note_death(ino)?;
        }
        step.edit(ino, before.min(size)..u64::MAX, |editor, _| {
            editor.resize(size)?;
            editor.inode.touch_data();
            Ok(())
        })?;
    }
    step.inode_mut(ino)?.set(set);
    Ok(())
}

fn write_in(step: &mut Step<'_>, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
    step.inode(ino)?.file()?;
    if data.is_empty() {
        return Ok(());
    }
    let end = end_of(offset, data.len() as u64)?;
    step.edit(ino, offset..end, |editor, room| {
        room.check(editor.missing(offset, end)?)?;
        editor.write(offset, data)?;
        editor.inode.touch_data();
        Ok(())
    })?;
    step.count(data.len() as u64);
    Ok(())
}

fn fallocate_in(step: &mut Step<'_>, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
    let end = match mode {
        FallocateMode::CollapseRange | FallocateMode::InsertRange => u64::MAX,
        _ => offset.saturating_add(len),
    };
    step.edit(ino, offset..end, |editor, room| {
        editor.fallocate(mode, offset, len, room)?;
        editor.inode.touch_data();
        Ok(())
    })
}

impl FileSystem for TagFs {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        loop {
            let entry = self.find(dir, name)?;
            match self.getattr(entry.ino) {
                // It went between the two looks.
                Err(FsError::Stale) if self.find(dir, name).is_ok_and(|now| now == entry) => {
                    return Err(FsError::Stale);
                }
                Err(FsError::Stale) => {}
                found => return found,
            }
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.look(ino, |inode| Ok(inode.attr(ino)))
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.step(|step| {
            set_attr(step, ino, set)?;
            step.attr(ino)
        })
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        let mut state = self.state.write();
        let attr = self.step_in(&mut state, |step| step.create(dir, name, args))?;
        state.group(&args.tag).files += u64::from(args.node == NewNode::File);
        Ok(attr)
    }

    fn create_unnamed(&self, dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        refuse(args.node != NewNode::File, FsError::Invalid("only a file can be without a name"))?;
        self.step(|step| {
            step.inode(dir)?.directory()?;
            let ino = step.make_nameless(dir, args)?;
            let inode = step.inode_mut(ino)?;
            (inode.opens, inode.record.linkable) = (1, linkable);
            step.attr(ino)
        })
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.step(|step| step.link(ino, dir, name))
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.step(|step| step.unlink(dir, name))
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.step(|step| step.rmdir(dir, name))
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        self.step(|step| step.rename(from, name, to, new_name, flags))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.look(ino, |inode| match &inode.record.form {
            crate::layout::Form::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::Invalid("not a symlink")),
        })
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.look(dir, |inode| Ok(inode.directory()?.parent))
    }

    fn readdir(&self, dir: Ino, mut cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        loop {
            let mut entries: Vec<(Vec<u8>, Entry)> = Vec::new();
            let more = self.look(dir, |inode| {
                inode.directory()?;
                let show = |name: &[u8], entry| entries.push((name.to_vec(), entry));
                self.graph.list(dir, cookie, ENTRIES_AT_ONCE, show)
            })?;
            for (name, Entry { cookie: at, ino, kind }) in entries {
                cookie = at;
                if !each(DirEntry { name: &name, ino, kind, cookie }) {
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn newest_cookie(&self, dir: Ino) -> FsResult<u64> {
        self.look(dir, |inode| Ok(inode.directory()?.next_cookie - 1))
    }

    fn open(&self, ino: Ino) -> FsResult<()> {
        let mut state = self.state.write();
        state.make_room();
        state.inode(&self.graph, ino)?.opens += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut state = self.state.write();
        let Some(inode) = state.inodes.get_mut(&ino) else { return };
        inode.opens = inode.opens.saturating_sub(1);
        if inode.is_gone() {
            state.ended.push(ino);
            self.reap(&mut state);
        }
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.look(ino, |inode| self.graph.read(ino, inode, offset, out))
    }

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        if self.options.read_only {
            return;
        }
        let mut state = self.state.write();
        if let Some(inode) = state.inodes.get_mut(&ino)
            && let Some(atime) = inode.attr(ino).atime_after_read(when)
        {
            inode.record.atime = atime;
            state.note_dirty(ino);
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.write_at(ino, offset, data, Arrival::default())
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.write_at(ino, offset, data, Arrival { through: true, ..Arrival::default() })
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()> {
        self.write_at(ino, offset, data, Arrival { when: Some(when), through, is_accepted: false })
    }

    fn write_accepted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        through: bool,
        when: TimeSpec,
    ) -> FsResult<()> {
        self.write_at(ino, offset, data, Arrival { when: Some(when), through, is_accepted: true })
    }

    fn write_back(&self, ino: Ino) -> FsResult<()> {
        // A small file is better stored with others, when it is due.
        self.look(ino, |_| Ok(()))
    }

    fn write_in_order(&self, ino: Ino) -> FsResult<()> {
        let mut state = self.state.write();
        state.inode(&self.graph, ino)?;
        self.flush(&mut state, ino)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        self.step(|step| fallocate_in(step, ino, mode, offset, len))
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        let mut state = self.state.write();
        let (inode, mut heads) = (state.inode(&self.graph, ino)?, Heads::new());
        let mut editor = Editor { graph: &self.graph, ino, inode, heads: &mut heads };
        editor.seek(offset, target)?.ok_or(FsError::NoData)
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        {
            let mut state = self.state.write();
            state.inode(&self.graph, ino)?;
            if state.dirty.contains_key(&ino) {
                self.step_in(&mut state, |step| {
                    step.for_sync();
                    step.flush(ino)
                })?;
            }
        }
        self.make_durable()
    }

    fn sync(&self) -> FsResult<()> {
        let stored = self.flush_all(Duration::ZERO);
        self.make_durable()?;
        stored
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        if name == USAGE_XATTR
            && let Some((_, quota)) = self.quota(ino)?
        {
            return Ok(quota.usage().to_string().into_bytes());
        }
        self.look(ino, |inode| inode.xattrs.get(name).cloned().ok_or(FsError::NoAttribute))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.prepare_quota(ino, name, value)?;
        self.step(|step| step.set_xattr(ino, name, Some(value), mode))
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.look(ino, |inode| Ok(inode.xattrs.keys().cloned().collect()))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.step(|step| step.set_xattr(ino, name, None, XattrMode::Any))
    }

    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr> {
        refuse(set.size.is_some(), FsError::Invalid("a size does not change with attributes"))?;
        for (name, value) in xattrs {
            self.prepare_quota(ino, name, value.unwrap_or_default())?;
        }
        self.step(|step| {
            for (name, value) in xattrs {
                if value.is_some() || step.inode(ino)?.xattrs.contains_key(*name) {
                    step.set_xattr(ino, name, *value, XattrMode::Any)?;
                }
            }
            step.inode_mut(ino)?.set(set);
            step.attr(ino)
        })
    }

    fn statfs(&self) -> FsResult<FsStats> {
        let state = self.state.read();
        Ok(FsStats {
            total_bytes: state.superblock.capacity,
            free_bytes: free_blocks(&self.graph, &state) * BLOCK,
            inodes: state.count,
            free_inodes: INODES_MAX.saturating_sub(state.count),
        })
    }

    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        // Files are mostly opened again with the tag that they have.
        if self.tag(ino)? == tag {
            return Ok(());
        }
        self.change(ino, |inode| {
            inode.set_tag(tag);
            Ok(())
        })
    }

    fn tag(&self, ino: Ino) -> FsResult<Tag> {
        self.look(ino, |inode| Ok(inode.record.tag))
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        change::check(changes)?;
        let whole = |error| Refused { at: changes.len(), error };
        let mut refused = None;
        let made = self.step(|step| {
            let mut made = Made::with_capacity(changes.len());
            for (at, change) in changes.iter().enumerate() {
                match TagFs::change_in(step, &made, change) {
                    Ok(ino) => made.push(ino),
                    Err(error) => {
                        refused = Some(at);
                        return Err(error);
                    }
                }
            }
            Ok(made)
        });
        let made = made.map_err(|error| Refused { at: refused.unwrap_or(changes.len()), error })?;
        if durable {
            self.make_durable().map_err(whole)?;
        }
        Ok(made)
    }

    fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    fn block_map(&self) -> Option<&dyn BlockMap> {
        Some(self)
    }

    fn erases(&self) -> bool {
        self.graph.store.erases()
    }

    fn keeps_quotas(&self) -> bool {
        true
    }

    fn quota_room(&self, ino: Ino) -> FsResult<Option<QuotaRoom>> {
        let quota = self.quota(ino)?;
        Ok(quota.map(|(dir, quota)| QuotaRoom { dir, free_bytes: quota.free_blocks().saturating_mul(BLOCK) }))
    }
}

impl Core for TagFs {
    fn tick(&self) -> FsResult<()> {
        if self.options.read_only {
            return Ok(());
        }
        let interval = self.options.commit_interval;
        let stored = self.flush_all(interval);
        if self.synced.lock().elapsed() >= interval {
            *self.synced.lock() = Instant::now();
            let report = self.graph.store.report();
            let must_erase = *self.erased.lock() < self.state.read().given_up;
            if must_erase || report.durable_commit < report.last_commit {
                self.make_durable()?;
            }
        }
        stored
    }

    fn volume_bytes(&self) -> u64 {
        self.state.read().superblock.volume_bytes
    }

    fn close(&self) -> FsResult<()> {
        if self.options.read_only {
            return Ok(());
        }
        let synced = self.sync();
        self.graph.store.checkpoint().map_err(failed)?;
        synced
    }

    fn set_death_observer(&self, observer: DeathObserver) {
        self.state.write().observer = Some(observer);
    }

    fn core_stats(&self) -> CoreStats {
        let state = self.state.read();
        CoreStats {
            groups: state.groups.iter().map(|(of, stats)| (*of, *stats)).collect(),
            volume_bytes: state.superblock.volume_bytes,
            ..CoreStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::layout::CHUNK_BLOCKS;
    use crate::options::FormatOptions;
    use crate::step::CHUNKS_AT_ONCE;
    use std::sync::Arc;
    use weft_tags::MemoryStore;

    #[test]
    fn what_is_left_of_a_large_file_that_goes_in_parts_is_counted() {
        let medium = Arc::new(MemoryStore::new());
        let format = FormatOptions { capacity_bytes: 128 << 20, ..FormatOptions::default() };
        TagFs::format(Box::new(medium.clone()), &format).unwrap();
        let fs = TagFs::mount(Box::new(medium.clone()), MountOptions::default()).unwrap();
        let ino = fs.create(Ino::ROOT, b"large", &CreateArgs::new(NewNode::File, 0o644)).unwrap().ino;
        let chunk_bytes = CHUNK_BLOCKS * BLOCK;
        for chunk in 0..CHUNKS_AT_ONCE + 5 {
            fs.write(ino, chunk * chunk_bytes, b"data").unwrap();
        }
        let end = (CHUNKS_AT_ONCE + 3) * chunk_bytes;
        fs.fallocate(ino, FallocateMode::KeepSize, end + 2 * BLOCK, 3 * BLOCK).unwrap();
        fs.open(ino).unwrap();
        fs.sync().unwrap();
        // Not stored when the file goes.
        fs.write(ino, BLOCK, b"buffered").unwrap();
        fs.unlink(Ino::ROOT, b"large").unwrap();
        {
            let state = &mut *fs.state.write();
            state.inodes.get_mut(&ino).unwrap().opens = 0;
            let mut step = Step::new(&fs.graph, state);
            step.inode_mut(ino).unwrap();
            step.commit().unwrap();
            let left = state.inodes[&ino].file().unwrap();
            assert_eq!((left.chunks, left.blocks, left.promised), (5, 5, 0));
        }
        fs.sync().unwrap();
        drop(fs);
        let then = MemoryStore::from_bytes(medium.to_bytes());
        let report = TagFs::check(Box::new(then)).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }
}
