//! The in-memory core on a device that loses power: what it did is a list, and recovery plays as much of the list as
//! the promises demand and chance allows. It can be told to cheat, to see that the crash oracle notices.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_conformance::crash::Rig;
use weft_core::{Ino, Tag};
use weft_vfs::{
    Attr, CreateArgs, DirEntry, FallocateMode, FileKind, FileSystem, FsError, FsResult, FsStats, MemFs,
    NewNode, RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrChange, XattrMode,
};

/// How recovery cheats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Not at all.
    None,
    /// The last promised write of a file is lost.
    LosesPromisedData,
    /// The last promised metadata operation is lost.
    LosesPromisedNames,
    /// One metadata operation is lost, later ones are there.
    ReordersNames,
    /// A file has the size of an append, and zeros.
    ZerosInAppend,
    /// Half of a block that was overwritten is old, half is new.
    TearsABlock,
    /// A block of a file is another file's.
    ForeignBytes,
    /// A truncate is lost, later metadata is there.
    UndoesATruncate,
    /// Files without a name stay.
    LeaksInodes,
}

type Play = Arc<dyn Fn(&MemFs) + Send + Sync>;

#[derive(Clone)]
enum Logged {
    /// A metadata operation that makes an inode.
    Create(Play),
    /// Another metadata operation.
    Meta(Play),
    /// A change of a file's size or blocks.
    Reshape(Ino, Play),
    Write(Ino, u64, Vec<u8>),
    Promise(Option<Ino>),
}

impl Logged {
    fn play(&self, fs: &MemFs) {
        match self {
            Logged::Create(play) | Logged::Meta(play) | Logged::Reshape(_, play) => play(fs),

            Logged::Write(ino, offset, data) => drop(fs.write(*ino, *offset, data)),
            Logged::Promise(_) => {}
        }
    }

    fn is_metadata(&self) -> bool {
        matches!(self, Logged::Create(_) | Logged::Meta(_) | Logged::Reshape(..))
    }

    fn promises(&self, ino: Ino) -> bool {
        matches!(self, Logged::Promise(of) if of.is_none_or(|of| of == ino))
    }
}

fn truncate(ino: Ino, size: u64) -> Logged {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    Logged::Reshape(ino, Arc::new(move |fs| drop(fs.setattr(ino, &set))))
}

/// What the core has done, on a device that stops after some operations.
struct Device {
    log: Mutex<Vec<Logged>>,
    operations: AtomicU64,
    limit: u64,
}

impl Device {
    fn new(log: Vec<Logged>, limit: u64) -> Arc<Device> {
        Arc::new(Device { log: Mutex::new(log), operations: AtomicU64::new(0), limit })
    }
}

/// The core.
struct Cut {
    live: MemFs,
    device: Arc<Device>,
}

/// The arguments of `create`, without a lifetime.
struct NewInode {
    kind: FileKind,
    target: Vec<u8>,
    perm: u32,
    uid: u32,
    gid: u32,
    tag: Tag,
    open: bool,
}

impl NewInode {
    fn of(args: &CreateArgs<'_>) -> NewInode {
        assert!(args.xattrs.is_empty(), "the recorder sets them later");
        let (kind, target) = match args.node {
            NewNode::File => (FileKind::File, Vec::new()),
            NewNode::Directory => (FileKind::Directory, Vec::new()),
            NewNode::Symlink(target) => (FileKind::Symlink, target.to_vec()),
            NewNode::Special(kind, _) => (kind, Vec::new()),
        };
        NewInode {
            kind,
            target,
            perm: args.perm,
            uid: args.uid,
            gid: args.gid,
            tag: args.tag,
            open: args.open,
        }
    }

    fn args(&self) -> CreateArgs<'_> {
        let node = match self.kind {
            FileKind::File => NewNode::File,
            FileKind::Directory => NewNode::Directory,
            FileKind::Symlink => NewNode::Symlink(&self.target),
            kind => NewNode::Special(kind, 0),
        };
        CreateArgs {
            node,
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            tag: self.tag,
            open: self.open,
            xattrs: &[],
        }
    }
}

impl Cut {
    /// Does an operation, if there is power. The operation during which it goes may be on the device, too.
    fn run<T>(&self, logged: Logged, run: impl FnOnce(&MemFs) -> FsResult<T>) -> FsResult<T> {
        let at = self.device.operations.fetch_add(1, Ordering::Relaxed);
        if at >= self.device.limit {
            if at == self.device.limit && !matches!(logged, Logged::Promise(_)) {
                self.device.log.lock().push(logged);
            }
            return Err(FsError::Device("no power".into()));
        }
        let result = run(&self.live)?;
        self.device.log.lock().push(logged);
        Ok(result)
    }

    fn meta<T>(&self, run: impl Fn(&MemFs) -> FsResult<T> + Send + Sync + 'static) -> FsResult<T> {
        let run = Arc::new(run);
        let play = run.clone();
        self.run(Logged::Meta(Arc::new(move |fs| drop(play(fs)))), |fs| run(fs))
    }

    fn make(&self, run: impl Fn(&MemFs) -> FsResult<Attr> + Send + Sync + 'static) -> FsResult<Attr> {
        let run = Arc::new(run);
        let play = run.clone();
        self.run(Logged::Create(Arc::new(move |fs| drop(play(fs)))), |fs| run(fs))
    }
}

/// The core on its device, for the crash oracle.
pub struct CutRig {
    device: Arc<Device>,
    lie: Lie,
    rng: StdRng,
}

impl CutRig {
    pub fn new(seed: u64, lie: Lie) -> CutRig {
        CutRig { device: Device::new(Vec::new(), 0), lie, rng: StdRng::seed_from_u64(seed) }
    }

    fn pick(&mut self, from: &[usize]) -> Option<usize> {
        from.choose(&mut self.rng).copied()
    }

    /// What the device has kept of a log.
    fn kept(&mut self, log: &[Logged]) -> Vec<Logged> {
        let promised =
            log.iter().rposition(|logged| matches!(logged, Logged::Promise(_))).map_or(0, |at| at + 1);
        let metadata = |range: std::ops::Range<usize>| -> Vec<usize> {
            range.filter(|at| log[*at].is_metadata()).collect()
        };
        let mut ends: Vec<usize> = metadata(promised..log.len()).into_iter().map(|at| at + 1).collect();
        ends.push(promised);
        let end = self.pick(&ends).unwrap_or(promised);
        let lost = match self.lie {
            Lie::LosesPromisedNames => {
                metadata(0..promised).into_iter().rev().find(|at| matches!(log[*at], Logged::Meta(_)))
            }
            Lie::ReordersNames => {
                let last = metadata(promised..end).pop().unwrap_or(promised);
                let early =
                    metadata(promised..last).into_iter().filter(|at| matches!(log[*at], Logged::Meta(_)));
                self.pick(&early.collect::<Vec<_>>())
            }
            Lie::UndoesATruncate => {
                let truncates = (0..end).filter(|at| matches!(log[*at], Logged::Reshape(..)));
                self.pick(&truncates.collect::<Vec<_>>())
            }
            Lie::LosesPromisedData => {
                let is_promised = |at: &usize| match &log[*at] {
                    Logged::Write(ino, ..) => log[*at..].iter().any(|later| later.promises(*ino)),
                    _ => false,
                };
                (0..promised).rev().find(is_promised)
            }
            _ => None,
        };

        let scratch = MemFs::new();
        let mut kept = Vec::new();
        let mut keep = |logged: Logged| {
            logged.play(&scratch);
            kept.push(logged);
        };
        let mut writes_left: BTreeMap<Ino, usize> = BTreeMap::new();
        let mut ended = BTreeSet::new();
        let mut lie = self.lie;
        for (at, logged) in log.iter().enumerate() {
            if Some(at) == lost {
                continue;
            }
            let Logged::Write(ino, offset, data) = logged else {
                if logged.is_metadata() && at < end {
                    keep(logged.clone());
                } else if let Logged::Reshape(ino, _) = logged {
                    ended.insert(*ino);
                }
                continue;
            };
            if log[at..].iter().any(|later| later.promises(*ino)) {
                keep(logged.clone());
                continue;
            }
            // Of the writes that nothing promised, the first few are there, and the next in part.
            let all =
                log[at..].iter().filter(|later| matches!(later, Logged::Write(of, ..) if of == ino)).count();
            let left = writes_left.entry(*ino).or_insert_with(|| self.rng.random_range(0..=all));
            if *left == 0 || ended.contains(ino) {
                continue;
            }
            *left -= 1;
            let size = scratch.getattr(*ino).map_or(0, |attr| attr.size);
            let end = offset + data.len() as u64;
            match lie {
                Lie::ZerosInAppend if *offset == size => {
                    keep(truncate(*ino, end));
                    lie = Lie::None;
                }
                Lie::TearsABlock if end <= size && data.len() > 100 => {
                    keep(Logged::Write(*ino, *offset, data[..50].to_vec()));
                    lie = Lie::None;
                }
                Lie::ForeignBytes if size > 0 => {
                    keep(Logged::Write(*ino, size - 1, vec![0x3b]));
                    lie = Lie::None;
                }
                _ if *left > 0 => keep(logged.clone()),
                _ if *offset == size => {
                    let mut len = self.rng.random_range(0..=data.len());
                    if log[at..].iter().any(|later| matches!(later, Logged::Reshape(of, _) if of == ino)) {
                        // What follows may put zeros after what was stored, and that is whole blocks.
                        len = len.saturating_sub((offset + len as u64) as usize % 4096);
                    }
                    keep(Logged::Write(*ino, *offset, data[..len].to_vec()));
                }
                _ if end <= size => {
                    for block in offset / 4096..end.div_ceil(4096) {
                        let (from, to) = ((block * 4096).max(*offset), (block * 4096 + 4096).min(end));
                        if self.rng.random_bool(0.5) {
                            let piece = &data[(from - offset) as usize..(to - offset) as usize];
                            keep(Logged::Write(*ino, from, piece.to_vec()));
                        }
                    }
                }
                _ => keep(logged.clone()),
            }
        }
        kept
    }

    fn open(&mut self, log: Vec<Logged>, limit: u64, leak: bool) -> Box<dyn FileSystem> {
        let live = MemFs::new();
        for logged in &log {
            logged.play(&live);
        }
        if !leak {
            live.release_all();
        }
        self.device = Device::new(log, limit);
        Box::new(Cut { live, device: self.device.clone() })
    }
}

impl Rig for CutRig {
    fn start(&mut self, operations: u64) -> Box<dyn FileSystem> {
        self.open(Vec::new(), operations, false)
    }

    fn operations(&self) -> u64 {
        self.device.operations.load(Ordering::Relaxed)
    }

    fn recover(&mut self, core: Box<dyn FileSystem>) -> FsResult<Box<dyn FileSystem>> {
        drop(core);
        let log = self.device.log.lock().clone();
        let mut kept = self.kept(&log);
        kept.push(Logged::Promise(None));
        Ok(self.open(kept, u64::MAX, self.lie == Lie::LeaksInodes))
    }
}

impl FileSystem for Cut {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.live.lookup(dir, name)
    }
    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.live.getattr(ino)
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let set = *set;
        match set.size {
            Some(size) => self.run(truncate(ino, size), |fs| fs.setattr(ino, &set)),
            None => self.meta(move |fs| fs.setattr(ino, &set)),
        }
    }
    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        let (name, new) = (name.to_vec(), NewInode::of(args));
        self.make(move |fs| fs.create(dir, &name, &new.args()))
    }
    fn create_unnamed(&self, dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        let new = NewInode::of(args);
        self.make(move |fs| fs.create_unnamed(dir, &new.args(), linkable))
    }
    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let name = name.to_vec();
        self.meta(move |fs| fs.link(ino, dir, &name))
    }
    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let name = name.to_vec();
        self.meta(move |fs| fs.unlink(dir, &name))
    }
    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let name = name.to_vec();
        self.meta(move |fs| fs.rmdir(dir, &name))
    }
    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.meta(move |fs| fs.rename(from, &name, to, &new_name, flags))
    }
    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.live.readlink(ino)
    }
    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.live.parent(dir)
    }
    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        self.live.readdir(dir, cookie, each)
    }
    fn newest_cookie(&self, dir: Ino) -> FsResult<u64> {
        self.live.newest_cookie(dir)
    }
    fn open(&self, ino: Ino) -> FsResult<()> {
        self.live.open(ino)
    }
    fn release(&self, ino: Ino) {
        self.live.release(ino);
    }
    fn note_read(&self, ino: Ino, when: TimeSpec) {
        self.live.note_read(ino, when);
    }
    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.live.read(ino, offset, out)
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.run(Logged::Write(ino, offset, data.to_vec()), |fs| fs.write(ino, offset, data))
    }
    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.write(ino, offset, data)
    }
    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], _: bool, _: TimeSpec) -> FsResult<()> {
        self.write(ino, offset, data)
    }
    fn write_back(&self, ino: Ino) -> FsResult<()> {
        self.live.write_back(ino)
    }

    fn write_in_order(&self, ino: Ino) -> FsResult<()> {
        self.live.write_in_order(ino)
    }
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let play = Arc::new(move |fs: &MemFs| drop(fs.fallocate(ino, mode, offset, len)));
        self.run(Logged::Reshape(ino, play), |fs| fs.fallocate(ino, mode, offset, len))
    }
    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        self.live.seek(ino, offset, target)
    }
    fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.run(Logged::Promise(Some(ino)), |fs| fs.fsync(ino))
    }
    fn sync(&self) -> FsResult<()> {
        self.run(Logged::Promise(None), |fs| fs.sync())
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.live.getxattr(ino, name)
    }
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let (name, value) = (name.to_vec(), value.to_vec());
        self.meta(move |fs| fs.setxattr(ino, &name, &value, mode))
    }
    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr> {
        let set = *set;
        let owned: Vec<_> =
            xattrs.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect();
        self.meta(move |fs| {
            let xattrs: Vec<_> = owned.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
            fs.set_with_xattrs(ino, &set, &xattrs)
        })
    }
    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.live.listxattr(ino)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let name = name.to_vec();
        self.meta(move |fs| fs.removexattr(ino, &name))
    }
    fn statfs(&self) -> FsResult<FsStats> {
        self.live.statfs()
    }
    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        self.meta(move |fs| fs.set_tag(ino, tag))
    }
    fn tag(&self, ino: Ino) -> FsResult<Tag> {
        self.live.tag(ino)
    }
}
