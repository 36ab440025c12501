//! A front that keeps names and attributes of its own, and refers to inodes that nobody has open: the kernel, of a mount.
//!
//! ```text
//!  only the front's process      it keeps what it looks up, as long as it likes
//!     |  another one begins         it forgets all that it kept, before that process can change anything
//!  others, too                   it keeps nothing
//!     |  the last of them ends
//!  only the front's process
//! ```
//!
//! What the server does for others after their end (stores of killed programs to maps) comes from threads that are not the
//! front's: it hears of each.
//!
//! Of an inode that is about to lose its last name, the front may keep the inode, as a kernel does for descriptors of a path,
//! working directories and named pipes.

use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use weft_core::{Ino, Tag};
use weft_vfs::change::{Made, Refused};
use weft_vfs::{
    Attr, BlockMap, Change, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileKind,
    FileSystem, FsResult, FsStats, InodeFlags, Node, QuotaRoom, RenameFlags, SeekTarget, SetAttr, TimeSpec,
    XattrChange, XattrMode,
};

/// A front that keeps names, attributes and inodes. It is called with locks of the server held, and must not wait for anything
/// that needs them.
pub trait Watcher: Send + Sync {
    /// Others are about to use the volume: names and attributes that the front has kept may change from now on.
    fn others_come(&self);

    /// The attributes of an inode are others from now on.
    fn attr_changed(&self, ino: Ino);

    /// An inode is about to lose what may be its last name. Whether the front keeps it from now on, until it gives it back
    /// ([`Volume::release_kept`](super::volume::Volume::release_kept)).
    fn keeps(&self, ino: Ino) -> bool;
}

thread_local! {
    static IS_WATCHER: Cell<bool> = const { Cell::new(false) };
}

/// What this thread changes from now on, the watcher knows already.
pub fn acts_for_watcher() {
    IS_WATCHER.set(true);
}

/// No process.
const NONE: u64 = u64::MAX;

/// The watcher of a volume, when there is one.
pub struct Watch {
    watcher: RwLock<Option<Weak<dyn Watcher>>>,
    /// The watcher's process.
    own: AtomicU64,
    /// Processes but the watcher's own. Locked while they come and go.
    others: Mutex<u32>,
    /// How often it is held. Changed under the lock of `others`.
    holds: AtomicU32,
    /// Which time it is that the watcher's process is alone; 0: it is not.
    alone: AtomicU64,
    times: AtomicU64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            watcher: RwLock::default(),
            own: AtomicU64::new(NONE),
            others: Mutex::default(),
            holds: AtomicU32::new(0),
            alone: AtomicU64::new(0),
            times: AtomicU64::new(0),
        }
    }
}

impl Watch {
    /// There is a watcher from now on, and this process is its own.
    pub fn set(&self, process: u32, watcher: Weak<dyn Watcher>) {
        let mut others = self.others.lock();
        *self.watcher.write() = Some(watcher);
        self.own.store(process.into(), SeqCst);
        *others = others.saturating_sub(1);
        self.look(*others);
    }

    /// After a change, under the lock.
    fn look(&self, others: u32) {
        let is_alone = others == 0 && self.holds.load(Relaxed) == 0 && self.own.load(Relaxed) != NONE;
        let time = if is_alone { self.times.fetch_add(1, Relaxed) + 1 } else { 0 };
        self.alone.store(time, SeqCst);
    }

    fn any(&self) -> Option<Arc<dyn Watcher>> {
        (self.own.load(Acquire) != NONE).then(|| self.watcher.read().as_ref()?.upgrade()).flatten()
    }

    /// Which time it is that only the watcher's process uses the volume; 0: others do. What the watcher looks up, it may keep when
    /// this is the same afterwards.
    pub fn alone(&self) -> u64 {
        self.alone.load(SeqCst)
    }

    /// For a while, the watcher may keep nothing new, as if others came; what it keeps it forgets by itself.
    pub fn hold(&self) {
        let others = self.others.lock();
        self.holds.fetch_add(1, Relaxed);
        self.look(*others);
    }

    /// The end of a [`hold`](Watch::hold).
    pub fn release(&self) {
        let others = self.others.lock();
        self.holds.fetch_sub(1, Relaxed);
        self.look(*others);
    }

    /// A process is about to begin.
    pub fn process_begins(&self) {
        let mut others = self.others.lock();
        let is_first = *others == 0;
        *others += 1;
        self.alone.store(0, SeqCst);
        if is_first && let Some(watcher) = self.any() {
            watcher.others_come();
        }
    }

    /// A process has ended.
    pub fn process_ended(&self, process: u32) {
        let mut others = self.others.lock();
        if self.own.load(Relaxed) == u64::from(process) {
            self.own.store(NONE, SeqCst);
        } else {
            debug_assert!(*others > 0, "more processes end than have begun");
            *others = others.saturating_sub(1);
        }
        self.look(*others);
    }

    fn attr_changed(&self, ino: Ino) {
        if self.alone() != 0
            && !IS_WATCHER.get()
            && let Some(watcher) = self.any()
        {
            watcher.attr_changed(ino);
        }
    }
}

/// The core, watched.
pub struct Watched {
    core: Arc<dyn Core>,
    watch: Arc<Watch>,
}

impl Watched {
    /// A core whose inodes a watcher may keep.
    pub fn new(core: Arc<dyn Core>, watch: Arc<Watch>) -> Watched {
        Watched { core, watch }
    }

    /// Does what changes attributes of an inode.
    fn changing<T>(&self, ino: Ino, act: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let done = act();
        self.watch.attr_changed(ino);
        done
    }

    /// Lets the watcher keep what has a name that it is about to lose.
    fn keep(&self, dir: Ino, name: &[u8]) {
        let Some(watcher) = self.watch.any() else { return };
        let Ok(attr) = self.core.lookup(dir, name) else { return };
        // Whoever syncs the directory next is told that it is gone.
        if attr.marks.flags.contains(InodeFlags::SECURE_DELETE) {
            return;
        }
        if (attr.links <= 1 || attr.kind == FileKind::Directory)
            && self.core.open(attr.ino).is_ok()
            && !watcher.keeps(attr.ino)
        {
            self.core.release(attr.ino);
        }
    }
}

impl FileSystem for Watched {
    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.changing(ino, || self.core.setattr(ino, set))
    }

    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr> {
        self.changing(ino, || self.core.set_with_xattrs(ino, set, xattrs))
    }

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        self.core.note_read(ino, when);
        self.watch.attr_changed(ino);
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.changing(ino, || self.core.write(ino, offset, data))
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.changing(ino, || self.core.write_through(ino, offset, data))
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()> {
        self.changing(ino, || self.core.write_late(ino, offset, data, through, when))
    }

    fn write_accepted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        through: bool,
        when: TimeSpec,
    ) -> FsResult<()> {
        self.changing(ino, || self.core.write_accepted(ino, offset, data, through, when))
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.keep(dir, name);
        self.core.unlink(dir, name)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.keep(dir, name);
        self.core.rmdir(dir, name)
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        self.keep(to, new_name);
        self.core.rename(from, name, to, new_name, flags)
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        for change in changes {
            match *change {
                Change::Remove { dir: Node::Ino(dir), name, .. } => self.keep(dir, name),
                // The second name, too: a change behind this one may take it.
                Change::Rename { from, name, to, new_name, .. } => {
                    for (dir, name) in [(from, name), (to, new_name)] {
                        if let Node::Ino(dir) = dir {
                            self.keep(dir, name);
                        }
                    }
                }
                _ => {}
            }
        }
        let made = self.core.commit(changes, durable);
        for change in changes {
            if let Change::SetAttr { node: Node::Ino(ino), .. } | Change::Write { node: Node::Ino(ino), .. } =
                change
            {
                self.watch.attr_changed(*ino);
            }
        }
        made
    }

    fn block_map(&self) -> Option<&dyn BlockMap> {
        self.core.block_map()
    }

    weft_vfs::forward! {
        create => core.create(dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr>;
        link => core.link(ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;
        fallocate => core.fallocate(ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()>;
        setxattr => core.setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;
        removexattr => core.removexattr(ino: Ino, name: &[u8]) -> FsResult<()>;
        lookup => core.lookup(dir: Ino, name: &[u8]) -> FsResult<Attr>;
        getattr => core.getattr(ino: Ino) -> FsResult<Attr>;
        create_unnamed => core.create_unnamed(dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr>;
        parent => core.parent(dir: Ino) -> FsResult<Ino>;
        readlink => core.readlink(ino: Ino) -> FsResult<Vec<u8>>;
        readdir => core.readdir(dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()>;
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
        set_tag => core.set_tag(ino: Ino, tag: Tag) -> FsResult<()>;
        tag => core.tag(ino: Ino) -> FsResult<Tag>;
        statfs => core.statfs() -> FsResult<FsStats>;
        is_read_only => core.is_read_only() -> bool;
        erases => core.erases() -> bool;
        keeps_quotas => core.keeps_quotas() -> bool;
        quota_room => core.quota_room(ino: Ino) -> FsResult<Option<QuotaRoom>>;
    }
}

impl Core for Watched {
    weft_vfs::forward! {
        tick => core.tick() -> FsResult<()>;
        volume_bytes => core.volume_bytes() -> u64;
        close => core.close() -> FsResult<()>;
        set_death_observer => core.set_death_observer(observer: DeathObserver);
        core_stats => core.core_stats() -> CoreStats;
    }
}
