//! A front that refers to inodes which nobody has open: the kernel, of a mount. Of an inode that is about to lose its last name,
//! it may keep what it refers to, as the kernel does for descriptors of a path, working directories and named pipes.

use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};
use weft_core::{Ino, Tag};
use weft_vfs::{
    Attr, BlockMap, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileKind,
    FileSystem, FsResult, FsStats, RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrMode,
};

/// A front that refers to inodes. It is called with locks of the server held, and must not wait for anything that needs them.
pub trait Watcher: Send + Sync {
    /// An inode is about to lose what may be its last name. Whether the front keeps it from now on, until it gives it back
    /// ([`Volume::release_kept`](super::volume::Volume::release_kept)).
    fn keeps(&self, ino: Ino) -> bool;
}

/// The watcher of a volume, when there is one.
#[derive(Default)]
pub struct Watch {
    is_set: AtomicBool,
    watcher: RwLock<Option<Weak<dyn Watcher>>>,
}

impl Watch {
    /// There is a watcher from now on.
    pub fn set(&self, watcher: Weak<dyn Watcher>) {
        *self.watcher.write() = Some(watcher);
        self.is_set.store(true, SeqCst);
    }

    fn any(&self) -> Option<Arc<dyn Watcher>> {
        self.is_set.load(Acquire).then(|| self.watcher.read().as_ref()?.upgrade()).flatten()
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

    /// Lets the watcher keep what has a name that it is about to lose.
    fn keep(&self, dir: Ino, name: &[u8]) {
        let Some(watcher) = self.watch.any() else { return };
        let Ok(attr) = self.core.lookup(dir, name) else { return };
        if (attr.links <= 1 || attr.kind == FileKind::Directory)
            && self.core.open(attr.ino).is_ok()
            && !watcher.keeps(attr.ino)
        {
            self.core.release(attr.ino);
        }
    }
}

impl FileSystem for Watched {
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

    fn block_map(&self) -> Option<&dyn BlockMap> {
        self.core.block_map()
    }

    weft_vfs::forward! {
        setattr => core.setattr(ino: Ino, set: &SetAttr) -> FsResult<Attr>;
        create => core.create(dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr>;
        link => core.link(ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;
        note_read => core.note_read(ino: Ino, when: TimeSpec);
        write => core.write(ino: Ino, offset: u64, data: &[u8]) -> FsResult<()>;
        write_through => core.write_through(ino: Ino, offset: u64, data: &[u8]) -> FsResult<()>;
        write_late => core.write_late(ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()>;
        fallocate => core.fallocate(ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()>;
        setxattr => core.setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;
        removexattr => core.removexattr(ino: Ino, name: &[u8]) -> FsResult<()>;
        lookup => core.lookup(dir: Ino, name: &[u8]) -> FsResult<Attr>;
        getattr => core.getattr(ino: Ino) -> FsResult<Attr>;
        create_unnamed => core.create_unnamed(args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr>;
        parent => core.parent(dir: Ino) -> FsResult<Ino>;
        readlink => core.readlink(ino: Ino) -> FsResult<Vec<u8>>;
        readdir => core.readdir(dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()>;
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
