//! Names and attributes for clients to read without a call: what the server has looked up, published in shared memory, and
//! withdrawn before it changes.
//!
//! [`Cached`] stands before the core: a look-up through it publishes what it finds, and an operation that changes something
//! holds the sets that tell of it ([`Published::changing_name`], [`Published::changing_attr`]) from before it begins until
//! it has happened. Nothing is published of a set that is held, nor what was looked up before a set was held last.

use super::maps::Maps;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use weft_client::WireAttr;
use weft_client::shared::listing::Listing;
use weft_client::shared::names::{ATTR_WORDS, AttrSet, Cell, NameKey, NameSet, Names, SetHead, SlotWord};
use weft_core::{Ino, Tag};
use weft_sys::SharedMemory;
use weft_vfs::change::{Made, Refused};
use weft_vfs::{
    Attr, BlockMap, Change, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileKind,
    FileSystem, FsError, FsResult, FsStats, QuotaRoom, RenameFlags, SeekTarget, SetAttr, TimeSpec,
    XattrChange, XattrMode, atime_after_read,
};

/// Locks for each of the two kinds of sets.
const LOCKS: usize = 256;

/// The slots of open inodes, as far as the sets of a lock are theirs.
type OpenSlots = FxHashMap<u64, u32>;

/// The memory with names and attributes.
pub struct Published {
    memory: SharedMemory,
    name_locks: [Mutex<OpenSlots>; LOCKS],
    attr_locks: [Mutex<OpenSlots>; LOCKS],
    device: Arc<AtomicU64>,
    /// Where listings of directories are.
    maps: Arc<Maps>,
}

/// A set that tells nothing while this lives.
#[must_use]
pub struct Held<'a>(Set<'a>);

/// What all sets have, and the lock of this one.
#[derive(Clone, Copy)]
struct Set<'a> {
    head: &'a SetHead,
    lock: &'a Mutex<OpenSlots>,
}

/// Permission to publish what is looked up from now on, unless it changes meanwhile.
#[derive(Clone, Copy)]
struct Ticket(u32);

impl<'a> Set<'a> {
    /// Nothing is told of the set from now on; `forget` takes out what is about to change.
    fn hold(self, forget: impl FnOnce()) -> Held<'a> {
        let _locked = self.lock.lock();
        self.head.held.fetch_add(1, Relaxed);
        self.head.changes.fetch_add(1, Relaxed);
        self.head.seq.store(self.head.seq.load(Relaxed) | 1, Relaxed);
        // Clients see that before anything of what changes.
        fence(SeqCst);
        forget();
        Held(self)
    }

    fn ticket(self) -> Option<Ticket> {
        let seq = self.head.seq.load(Acquire);
        (seq & 1 == 0).then_some(Ticket(seq))
    }

    /// Changes what the set tells, unless it was held since the ticket was taken.
    fn publish(self, ticket: Ticket, write: impl FnOnce(&OpenSlots)) {
        let open = self.lock.lock();
        if self.head.seq.load(Relaxed) == ticket.0 {
            self.write(|| write(&open));
        }
    }

    /// Changes what the set tells; the caller has its lock.
    fn write(self, write: impl FnOnce()) {
        let seq = self.head.seq.load(Relaxed);
        self.head.seq.store(seq | 1, Relaxed);
        fence(Release);
        write();
        // A held set stays odd, and whoever looked during this sees another number even so.
        self.head.seq.store(seq.wrapping_add(2), Release);
    }

    /// The cell that is used next: one that is free, or else each in its turn.
    fn next_cell<T: Cell>(self, cells: &[T]) -> &T {
        let free = cells.iter().find(|cell| cell.is_free());
        free.unwrap_or_else(|| &cells[self.head.next.fetch_add(1, Relaxed) as usize % cells.len()])
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _locked = self.0.lock.lock();
        if self.0.head.held.fetch_sub(1, Relaxed) == 1 {
            self.0.head.seq.fetch_add(1, Release);
        }
    }
}

impl Published {
    /// Memory of so many sets in which nothing is told yet; `device` is the `st_dev` of all files, which may be `writable`.
    /// Listings go to `maps`.
    pub fn create(
        sets: usize,
        device: Arc<AtomicU64>,
        writable: bool,
        maps: Arc<Maps>,
    ) -> io::Result<Published> {
        let memory = SharedMemory::create("weft-names", size_of::<Names>())?;
        let locks = || std::array::from_fn(|_| Mutex::default());
        let published = Published { memory, name_locks: locks(), attr_locks: locks(), device, maps };
        let head = &published.names().head;
        for half in &head.secret {
            half.store(super::volume::secret()?, Relaxed);
        }
        head.writable.store(writable.into(), Relaxed);
        head.sets.store(sets as u64, Release);
        Ok(published)
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// A descriptor for clients.
    pub fn read_only_fd(&self) -> io::Result<OwnedFd> {
        self.memory.read_only_fd()
    }

    fn names(&self) -> &Names {
        // SAFETY: the memory is as long as `Names`, which is made of atomics.
        unsafe { self.memory.view() }
    }

    fn name_set(&self, dir: Ino, name: &[u8]) -> (NameKey, &NameSet, Set<'_>) {
        let (key, number) = self.names().key(dir.0, name);
        let set = &self.names().name_sets[number];
        (key, set, Set { head: &set.head, lock: &self.name_locks[number % LOCKS] })
    }

    fn attr_set(&self, ino: Ino) -> (&AttrSet, Set<'_>) {
        let number = self.names().attr_set(ino.0);
        let set = &self.names().attr_sets[number];
        (set, Set { head: &set.head, lock: &self.attr_locks[number % LOCKS] })
    }

    /// From now until the guard goes, nobody learns here who has this name.
    pub fn changing_name(&self, dir: Ino, name: &[u8]) -> Held<'_> {
        let (key, cells, set) = self.name_set(dir, name);
        set.hold(|| {
            if let Some(cell) = cells.cell(key) {
                cell.key[0].store(0, Relaxed);
            }
        })
    }

    /// From now until the guard goes, nobody learns here what the attributes of this inode are.
    pub fn changing_attr(&self, ino: Ino) -> Held<'_> {
        let (cells, set) = self.attr_set(ino);
        set.hold(|| {
            if let Some(cell) = cells.cell(ino.0) {
                cell.words[0].store(0, Relaxed);
            }
        })
    }

    /// The same of a directory, and of what it holds.
    fn changing_dir(&self, dir: Ino) -> Held<'_> {
        let (cells, set) = self.attr_set(dir);
        set.hold(|| {
            if let Some(cell) = cells.cell(dir.0) {
                cell.words[0].store(0, Relaxed);
            }
            // Under the set's lock, as listings are published.
            self.maps.forget_listing(dir);
        })
    }

    /// Calls `list`, and publishes what it has found an open directory to hold unless that has changed meanwhile.
    pub fn tell_listing(&self, dir: Ino, list: impl FnOnce() -> Option<Listing>) {
        let (_, Set { head, lock }) = self.attr_set(dir);
        // Not a ticket: what is published meanwhile, of the directory and of what is in it, is no change.
        let unchanged = || (head.held.load(Relaxed) == 0).then(|| head.changes.load(Relaxed));
        let before = {
            let _locked = lock.lock();
            unchanged()
        };
        if let Some(listing) = list() {
            let _locked = lock.lock();
            if before.is_some() && unchanged() == before {
                self.maps.put_listing(dir, listing.bytes());
            }
        }
    }

    /// An inode is open and has this slot from now on (`None`: it is not), where its size and times are.
    pub fn slot_changed(&self, ino: Ino, slot: Option<u32>) {
        let (cells, set) = self.attr_set(ino);
        let mut open = set.lock.lock();
        match slot {
            Some(slot) => open.insert(ino.0, slot),
            None => open.remove(&ino.0),
        };
        set.write(|| {
            if let Some(cell) = cells.cell(ino.0) {
                let word = SlotWord(cell.slot.load(Relaxed));
                cell.slot.store(word.with_slot(slot).0, Relaxed);
            }
        });
    }

    /// Whether the cache has a name, perhaps with an old inode.
    fn tells_name(&self, dir: Ino, name: &[u8]) -> bool {
        let (key, cells, _) = self.name_set(dir, name);
        cells.cell(key).is_some()
    }

    /// Whether the cache has attributes of an inode, perhaps old ones.
    fn tells_attr(&self, ino: Ino) -> bool {
        self.attr_set(ino).0.cell(ino.0).is_some()
    }

    /// Whether a read may change an inode's access time.
    fn would_read_change(&self, ino: Ino, when: TimeSpec) -> bool {
        self.names().attr(ino.0, |attr, _| Some(attr)).is_none_or(|attr| {
            let [atime, mtime, ctime] = [attr.atime_ns, attr.mtime_ns, attr.ctime_ns].map(TimeSpec);
            atime_after_read(atime, mtime, ctime, when).is_some()
        })
    }
}

/// The core, as the server's operations see it.
pub struct Cached {
    core: Arc<dyn Core>,
    names: Arc<Published>,
}

impl Cached {
    /// A core whose names and attributes are told in `names`.
    pub fn new(core: Arc<dyn Core>, names: Arc<Published>) -> Cached {
        Cached { core, names }
    }

    /// What changes when a directory gets or loses a name.
    fn changing(&self, dir: Ino, name: &[u8]) -> (Held<'_>, Held<'_>) {
        (self.names.changing_name(dir, name), self.names.changing_dir(dir))
    }

    /// What changes when an inode gets or loses a name: its attributes, and a directory's parent.
    fn changing_inode(&self, attr: &Attr) -> (Held<'_>, Option<Held<'_>>) {
        if attr.kind != FileKind::Directory {
            return (self.names.changing_attr(attr.ino), None);
        }
        (self.names.changing_dir(attr.ino), Some(self.names.changing_name(attr.ino, PARENT)))
    }

    /// The same of what has a name now, if anything has.
    fn changing_named(&self, dir: Ino, name: &[u8]) -> Option<(Held<'_>, Option<Held<'_>>)> {
        self.core.lookup(dir, name).ok().map(|attr| self.changing_inode(&attr))
    }
}

impl Cached {
    /// Publishes who has a name, which a program is likely to look for.
    fn tell_name(&self, dir: Ino, name: &[u8]) {
        let (key, cells, set) = self.names.name_set(dir, name);
        if let Some(ticket) = set.ticket()
            && let Ok(attr) = self.core.lookup(dir, name)
        {
            set.publish(ticket, |_| {
                let cell = cells.cell(key).unwrap_or_else(|| set.next_cell(&cells.cells));
                cell.set(key, attr.ino.0);
            });
        }
    }
}

/// The name under which the cache tells the parent of a directory.
const PARENT: &[u8] = b"..";

impl FileSystem for Cached {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let (key, cells, set) = self.names.name_set(dir, name);
        let ticket = set.ticket().filter(|_| cells.cell(key).is_none());
        let found = self.core.lookup(dir, name);
        let ino = match &found {
            Ok(attr) => attr.ino,
            Err(FsError::NotFound) => Ino(0),
            Err(_) => return found,
        };
        if let Some(ticket) = ticket {
            set.publish(ticket, |_| set.next_cell(&cells.cells).set(key, ino.0));
        }
        if let Ok(attr) = &found
            && !self.names.tells_attr(attr.ino)
        {
            // What has been found may have changed before the ticket that is needed to publish it.
            let _ = self.getattr(attr.ino);
        }
        found
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let (cells, set) = self.names.attr_set(ino);
        let ticket = set.ticket().filter(|_| cells.cell(ino.0).is_none());
        let attr = self.core.getattr(ino)?;
        // What has no name any more may go without a word.
        if let Some(ticket) = ticket.filter(|_| attr.links > 0) {
            let wire: [u64; ATTR_WORDS] =
                bytemuck::cast(WireAttr::of(&attr, self.names.device.load(Relaxed)));
            let is_plain = self.core.listxattr(ino).is_ok_and(|names| names.is_empty());
            set.publish(ticket, |open| {
                let slot = SlotWord::new(open.get(&ino.0).copied(), is_plain, attr.marks);
                set.next_cell(&cells.cells).set(&wire, slot);
            });
        }
        Ok(attr)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let changing = self.names.changing_attr(ino);
        let attr = self.core.setattr(ino, set)?;
        drop(changing);
        let _ = self.getattr(ino);
        Ok(attr)
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        let changing = self.changing(dir, name);
        let created = self.core.create(dir, name, args)?;
        drop(changing);
        self.tell_name(dir, name);
        Ok(created)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let _changing = (self.changing(dir, name), self.names.changing_attr(ino));
        self.core.link(ino, dir, name)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let _changing = (self.changing_named(dir, name), self.changing(dir, name));
        self.core.unlink(dir, name)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let _changing = (self.changing_named(dir, name), self.changing(dir, name));
        self.core.rmdir(dir, name)
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        let inodes = (self.changing_named(from, name), self.changing_named(to, new_name));
        let names = (self.changing(from, name), self.changing(to, new_name));
        self.core.rename(from, name, to, new_name, flags)?;
        drop((inodes, names));
        self.tell_name(to, new_name);
        Ok(())
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        let mut held = Vec::new();
        let mut names = Vec::new();
        for change in changes {
            match *change {
                Change::Expect { .. } => {}
                Change::Create { dir, name, .. } => names.push((dir, name)),
                Change::Link { node, dir, name } => {
                    names.push((dir, name));
                    held.extend(node.existing().map(|ino| self.names.changing_attr(ino)));
                }
                Change::Remove { dir, name, .. } => names.push((dir, name)),
                Change::Rename { from, name, to, new_name, .. } => {
                    names.extend([(from, name), (to, new_name)]);
                }
                Change::SetAttr { node, .. }
                | Change::Xattr { node, .. }
                | Change::Write { node, .. }
                | Change::Fallocate { node, .. }
                | Change::SetTag { node, .. } => {
                    held.extend(node.existing().map(|ino| self.names.changing_attr(ino)));
                }
            }
        }
        // What the step makes has no names yet that anybody could know.
        let names: Vec<(Ino, &[u8])> =
            names.into_iter().filter_map(|(dir, name)| Some((dir.existing()?, name))).collect();
        for (dir, name) in &names {
            held.extend(
                self.changing_named(*dir, name)
                    .into_iter()
                    .flat_map(|(attr, parent)| [Some(attr), parent])
                    .flatten(),
            );
            held.extend(<[Held<'_>; 2]>::from(self.changing(*dir, name)));
        }
        let made = self.core.commit(changes, durable)?;
        drop(held);
        for (dir, name) in names {
            self.tell_name(dir, name);
        }
        Ok(made)
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        let (key, cells, set) = self.names.name_set(dir, PARENT);
        let ticket = set.ticket().filter(|_| cells.cell(key).is_none());
        let parent = self.core.parent(dir)?;
        if let Some(ticket) = ticket {
            set.publish(ticket, |_| set.next_cell(&cells.cells).set(key, parent.0));
        }
        Ok(parent)
    }

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        let changing = self.names.would_read_change(ino, when).then(|| self.names.changing_attr(ino));
        self.core.note_read(ino, when);
        if changing.is_some() {
            drop(changing);
            // Told again: whoever reads a file looks at it again soon.
            let _ = self.getattr(ino);
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.write(ino, offset, data)
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.write_through(ino, offset, data)
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.write_late(ino, offset, data, through, when)
    }

    fn write_accepted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        through: bool,
        when: TimeSpec,
    ) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.write_accepted(ino, offset, data, through, when)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.fallocate(ino, mode, offset, len)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.setxattr(ino, name, value, mode)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.removexattr(ino, name)
    }

    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr> {
        let _changing = self.names.changing_attr(ino);
        self.core.set_with_xattrs(ino, set, xattrs)
    }

    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        let _changing = self.names.changing_attr(ino);
        self.core.set_tag(ino, tag)
    }

    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        let (mut names, mut found) = (Vec::new(), Vec::new());
        self.core.readdir(dir, cookie, &mut |entry| {
            let begin = names.len();
            names.extend_from_slice(entry.name);
            found.push((begin..names.len(), entry.ino));
            each(entry)
        })?;
        // Whoever lists a directory asks for the attributes of what is in it next.
        for (name, ino) in found {
            let name = &names[name];
            if !self.names.tells_name(dir, name) || !self.names.tells_attr(ino) {
                let _ = self.lookup(dir, name);
            }
        }
        Ok(())
    }

    fn block_map(&self) -> Option<&dyn BlockMap> {
        self.core.block_map()
    }

    weft_vfs::forward! {
        create_unnamed => core.create_unnamed(dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr>;
        readlink => core.readlink(ino: Ino) -> FsResult<Vec<u8>>;
        newest_cookie => core.newest_cookie(dir: Ino) -> FsResult<u64>;
        open => core.open(ino: Ino) -> FsResult<()>;
        release => core.release(ino: Ino);
        read => core.read(ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize>;
        write_back => core.write_back(ino: Ino) -> FsResult<()>;
        write_in_order => core.write_in_order(ino: Ino) -> FsResult<()>;
        seek => core.seek(ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64>;
        fsync => core.fsync(ino: Ino) -> FsResult<()>;
        sync => core.sync() -> FsResult<()>;
        getxattr => core.getxattr(ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;
        listxattr => core.listxattr(ino: Ino) -> FsResult<Vec<Vec<u8>>>;
        statfs => core.statfs() -> FsResult<FsStats>;
        tag => core.tag(ino: Ino) -> FsResult<Tag>;
        is_read_only => core.is_read_only() -> bool;
        erases => core.erases() -> bool;
        keeps_quotas => core.keeps_quotas() -> bool;
        quota_room => core.quota_room(ino: Ino) -> FsResult<Option<QuotaRoom>>;
    }
}

impl Core for Cached {
    weft_vfs::forward! {
        tick => core.tick() -> FsResult<()>;
        volume_bytes => core.volume_bytes() -> u64;
        close => core.close() -> FsResult<()>;
        set_death_observer => core.set_death_observer(observer: DeathObserver);
        core_stats => core.core_stats() -> CoreStats;
    }
}
