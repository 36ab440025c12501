//! Secure deletion: random operations on files, half of them with [`InodeFlags::SECURE_DELETE`], with power cuts and recoveries between
//! them. After each `sync`, the raw medium has nothing of what was deleted securely.
//!
//! Everything that is written consists of cells, each with 16 random bytes again and again, and so does each name. A cell that is on
//! the medium, was written for a secure file, and is in no file, name, attribute or symlink any more was not erased. What that is, is
//! looked up on the volume itself: so the campaign also knows it after a power cut, when it cannot know which operations have survived.
//!
//! The files without the flag are the control: what is deleted of them is found, or else the look at the medium would prove nothing.

use crate::crash::is_power_cut;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::Ino;
use weft_core::markers::{Markers, PIECE_BYTES};
use weft_core::random::SplitMix;
use weft_vfs::{
    CreateArgs, FLAGS_XATTR, FallocateMode, FileKind, FileSystem, FsError, FsResult, InodeFlags, NewNode,
    RenameFlags, SetAttr, XattrMode,
};

/// Bytes of a cell.
const CELL_BYTES: usize = 256;
/// Names that there are in a directory at most.
const NAMES_MAX: usize = 12;
/// Lengths of what is written at once.
const LENGTHS: [usize; 8] = [40, 300, 1_500, 4_096, 6_000, 20_000, 70_000, 300_000];
/// Operations between two mounts at most.
const SESSION: u64 = 120;
/// Operations of the medium after which the power goes, at most.
const CUT_MAX: u64 = 600;

/// A volume on a medium whose bytes can be looked at.
pub trait EraseRig {
    /// Mounts the volume. The power goes after so many operations of its medium from then on; `u64::MAX`: never.
    fn mount(&mut self, operations: u64) -> FsResult<Box<dyn FileSystem>>;

    /// Drops the core as a crash does, and gives the power back. What the medium has lost is drawn from the seed.
    fn lose(&mut self, fs: Box<dyn FileSystem>, seed: u64);

    /// Loses the power within a mount that has failed, and gives it back.
    fn lose_mount(&mut self, seed: u64);

    /// Shows all that the medium holds, in parts: what is valid there and what is not.
    fn raw(&self, show: &mut dyn FnMut(&[u8]));
}

/// What a campaign has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Campaign {
    /// Operations on files.
    pub operations: u64,
    /// Mounts after a power cut.
    pub recoveries: u64,
    /// Looks at the medium.
    pub looks: u64,
    /// Cells that were written for secure files, and are in none.
    pub erased: u64,
    /// Cells of other files that were found although they are in none: the control.
    pub left: u64,
}

/// What a name leads to: its whole content.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Content {
    File(Vec<u8>, Option<Vec<u8>>),
    Symlink(Vec<u8>),
    Directory,
}

type Tree = BTreeMap<(bool, Vec<u8>), Content>;

const ATTRIBUTE: &[u8] = b"user.marker";

struct Run<'r> {
    rig: &'r mut dyn EraseRig,
    random: SplitMix,
    markers: Markers,
    /// Of each cell, whether it was written for a secure file.
    is_secure: Vec<bool>,
    dirs: [Ino; 2],
    /// What the volume held at the last sync.
    synced: Tree,
    /// What has been changed since.
    touched: BTreeSet<(bool, Vec<u8>)>,
    done: Campaign,
}

/// Runs so many operations on a volume that is empty. Panics when a secure deletion has left something, or a file is not what it was.
pub fn run(rig: &mut dyn EraseRig, seed: u64, operations: u64) -> Campaign {
    let fs = rig.mount(u64::MAX).unwrap();
    assert!(fs.erases());
    let dir = |name: &[u8], xattrs| {
        let args = CreateArgs { xattrs, ..CreateArgs::new(NewNode::Directory, 0o755) };
        fs.create(Ino::ROOT, name, &args).unwrap().ino
    };
    let value = InodeFlags::SECURE_DELETE.to_value();
    let dirs = [dir(b"plain", &[]), dir(b"secure", &[(FLAGS_XATTR, &value)])];
    fs.sync().unwrap();
    let mut run = Run {
        rig,
        random: SplitMix::new(seed, &[]),
        markers: Markers::default(),
        is_secure: Vec::new(),
        dirs,
        synced: Tree::new(),
        touched: BTreeSet::new(),
        done: Campaign::default(),
    };
    run.rig.lose(fs, seed);
    while run.done.operations < operations {
        run.session();
    }
    run.done
}

impl Run<'_> {
    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    /// Mounts the volume, works on it until the power goes or the session ends, and looks at what a crash has left.
    fn session(&mut self) {
        let cut = if self.chance(3) { u64::MAX } else { self.random.below(CUT_MAX) };
        let fs = self.recover();
        self.check(&*fs, true);
        self.rig.lose(fs, 0);
        let seed = self.random.next();
        let Ok(fs) = self.rig.mount(cut) else { return self.rig.lose_mount(seed) };
        for _ in 0..self.random.below(SESSION) {
            let done = if self.chance(12) { self.sync(&*fs) } else { self.operate(&*fs) };
            match done {
                Ok(()) => self.done.operations += 1,
                Err(FsError::NoSpace) => {}
                Err(error) if is_power_cut(&error) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        self.rig.lose(fs, seed);
    }

    /// Mounts what a crash has left; the power may go in the midst of it.
    fn recover(&mut self) -> Box<dyn FileSystem> {
        self.done.recoveries += 1;
        if self.chance(2) {
            let (cut, seed) = (self.random.below(40), self.random.next());
            match self.rig.mount(cut) {
                Ok(fs) => self.rig.lose(fs, seed),
                Err(error) if is_power_cut(&error) => self.rig.lose_mount(seed),
                Err(error) => panic!("{error:?}"),
            }
        }
        self.rig.mount(u64::MAX).unwrap()
    }

    /// Makes all durable, in one of the ways that erase, and looks at the medium.
    fn sync(&mut self, fs: &dyn FileSystem) -> FsResult<()> {
        if self.chance(2) {
            fs.sync()?;
        } else {
            let mut inos = self.dirs.to_vec();
            for dir in self.dirs {
                inos.extend(entries(fs, dir)?.into_iter().map(|(_, ino, _)| ino));
            }
            inos.into_iter().try_for_each(|ino| fs.fsync(ino))?;
        }
        self.check(fs, false);
        Ok(())
    }

    /// Compares the files with what they were at the last sync, and the medium with the files. After a crash all is synced first.
    fn check(&mut self, fs: &dyn FileSystem, is_recovered: bool) {
        let now = read_all(fs, self.dirs).unwrap();
        for (name, content) in &self.synced {
            if !self.touched.contains(name) {
                assert!(now.get(name) == Some(content), "{} is not what it was", shown(name));
            }
        }
        if is_recovered {
            fs.sync().unwrap();
        }
        let mut live = BTreeSet::new();
        for ((_, name), content) in &now {
            let mut note = |bytes: &[u8]| {
                self.markers.find(bytes, |_, cell| live.extend([cell]));
            };
            note(name);
            match content {
                Content::File(bytes, attribute) => {
                    note(bytes);
                    attribute.iter().for_each(|value| note(value));
                }
                Content::Symlink(target) => note(target),
                Content::Directory => {}
            }
        }
        let (mut left, mut part, mut places) = (BTreeSet::new(), 0, BTreeMap::new());
        let markers = &self.markers;
        self.rig.raw(&mut |bytes| {
            markers.find(bytes, |at, cell| {
                left.insert(cell);
                places.entry(cell).or_insert((part, at));
            });
            part += 1;
        });
        for cell in left.difference(&live) {
            assert!(
                !self.is_secure[*cell as usize],
                "cell {cell} of {} was not erased: part {}, byte {}; after {:?}",
                self.is_secure.len(),
                places[cell].0,
                places[cell].1,
                self.done,
            );
        }
        let secure = |cells: usize| self.is_secure.iter().filter(|is_secure| **is_secure).count() - cells;
        self.done.erased = secure(live.iter().filter(|cell| self.is_secure[**cell as usize]).count()) as u64;
        self.done.left = self.done.left.max(left.difference(&live).count() as u64);
        self.done.looks += 1;
        (self.synced, self.touched) = (now, BTreeSet::new());
    }

    /// Random bytes that are looked for.
    fn cells(&mut self, secure: bool, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.next_multiple_of(CELL_BYTES));
        while bytes.len() < len {
            let mut piece = [0; PIECE_BYTES];
            piece.as_chunks_mut().0.iter_mut().for_each(|half| *half = self.random.next().to_le_bytes());
            self.markers.add(&piece);
            self.is_secure.push(secure);
            bytes.extend(piece.iter().cycle().take(CELL_BYTES));
        }
        bytes.truncate(len);
        bytes
    }

    fn name(&mut self, secure: bool) -> Vec<u8> {
        let piece = loop {
            let piece = self.cells(secure, PIECE_BYTES);
            if !piece.iter().any(|byte| matches!(byte, 0 | b'/')) {
                break piece;
            }
            self.is_secure.pop();
            self.is_secure.push(false);
        };
        piece.iter().copied().cycle().take(40).collect()
    }

    fn operate(&mut self, fs: &dyn FileSystem) -> FsResult<()> {
        let secure = self.chance(2);
        let dir = self.dirs[usize::from(secure)];
        let all = entries(fs, dir)?;
        let len = LENGTHS[self.random.below(LENGTHS.len() as u64) as usize];
        if all.len() < 4 || all.len() < NAMES_MAX && self.chance(4) {
            return self.create(fs, secure, len);
        }
        let (name, ino, kind) = all[self.random.below(all.len() as u64) as usize].clone();
        self.touched.insert((secure, name.clone()));
        if kind == FileKind::Directory {
            return fs.rmdir(dir, &name);
        }
        if kind == FileKind::Symlink || self.chance(5) {
            return fs.unlink(dir, &name);
        }
        let size = fs.getattr(ino)?.size;
        let at = self.random.below(size + 1);
        match self.random.below(9) {
            0 | 1 => fs.write(ino, at, &self.cells(secure, len)),
            2 => fs.write(ino, size, &self.cells(secure, len)),
            3 => {
                let set = SetAttr { size: Some(at), ..SetAttr::default() };
                fs.setattr(ino, &set).map(drop)
            }
            4 => fs.fallocate(ino, FallocateMode::PunchHole, at, (len as u64).max(1)),
            5 => {
                let (other, _, kind) = &all[self.random.below(all.len() as u64) as usize];
                if *kind == FileKind::Directory {
                    return Ok(());
                }
                self.touched.insert((secure, other.clone()));
                fs.rename(dir, &name, dir, other, RenameFlags::empty())
            }
            6 => {
                let new = self.name(secure);
                self.touched.insert((secure, new.clone()));
                fs.rename(dir, &name, dir, &new, RenameFlags::empty())
            }
            7 => {
                let value = self.cells(secure, len.min(1_500));
                fs.setxattr(ino, ATTRIBUTE, &value, XattrMode::Any)
            }
            _ => match fs.removexattr(ino, ATTRIBUTE) {
                Err(FsError::NoAttribute) => fs.fsync(ino),
                done => done,
            },
        }
    }

    fn create(&mut self, fs: &dyn FileSystem, secure: bool, len: usize) -> FsResult<()> {
        let (dir, name) = (self.dirs[usize::from(secure)], self.name(secure));
        self.touched.insert((secure, name.clone()));
        let target = self.cells(secure, 200).into_iter().map(|byte| byte.max(1)).collect::<Vec<_>>();
        let node = match self.random.below(8) {
            0 => NewNode::Symlink(&target),
            1 => NewNode::Directory,
            _ => NewNode::File,
        };
        // As a front has it: what is made in a directory inherits the flag.
        let flags = fs.getattr(dir)?.marks.flags.inherited(FileKind::File).to_value();
        let xattrs: &[(&[u8], &[u8])] = if secure { &[(FLAGS_XATTR, &flags)] } else { &[] };
        let args = CreateArgs { xattrs, ..CreateArgs::new(node, 0o644) };
        let ino = fs.create(dir, &name, &args)?.ino;
        if node == NewNode::File { fs.write(ino, 0, &self.cells(secure, len)) } else { Ok(()) }
    }
}

fn entries(fs: &dyn FileSystem, dir: Ino) -> FsResult<Vec<(Vec<u8>, Ino, FileKind)>> {
    let mut all = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        all.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    })?;
    Ok(all)
}

fn read_all(fs: &dyn FileSystem, dirs: [Ino; 2]) -> FsResult<Tree> {
    let mut tree = Tree::new();
    for (secure, dir) in [false, true].into_iter().zip(dirs) {
        for (name, ino, kind) in entries(fs, dir)? {
            let content = match kind {
                FileKind::Symlink => Content::Symlink(fs.readlink(ino)?),
                FileKind::Directory => Content::Directory,
                _ => {
                    let mut bytes = vec![0; fs.getattr(ino)?.size as usize];
                    assert_eq!(fs.read(ino, 0, &mut bytes)?, bytes.len());
                    Content::File(bytes, fs.getxattr(ino, ATTRIBUTE).ok())
                }
            };
            tree.insert((secure, name), content);
        }
    }
    Ok(tree)
}

fn shown((secure, name): &(bool, Vec<u8>)) -> String {
    let dir = if *secure { "secure" } else { "plain" };
    format!("{dir}/{}", name.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}
