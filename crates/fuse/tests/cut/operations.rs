//! What a process does, as a function of the seed and its number; and what the volume may then hold.

use std::collections::{BTreeMap, VecDeque};
use weft_core::BLOCK_BYTES;
use weft_core::random::SplitMix;

/// Most bytes of a file of one process.
const SIZE_MAX: u64 = 64 << 10;
/// Files of a process with a name, but for those below.
const FILES_MAX: usize = 6;
const DIRS: u64 = 3;
/// Bytes of the file that is written by stores to memory.
const MAP_BYTES: u64 = 32 << 10;
/// Blocks of the shared file that belong to each process.
pub const SHARED_BLOCKS: u64 = 8;

/// A file of a process, whatever it is called. Numbers are never given again.
pub type File = u32;
/// The file that all processes share.
pub const SHARED: File = 0;
/// The file that is mapped.
const MAP: File = 1;

/// By which call bytes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    Plain,
    Append,
    /// `O_SYNC`, `O_DSYNC`: a promise.
    Sync,
    DataSync,
    /// Stores to a shared map.
    Store,
}

/// One operation. Paths are below the directory of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Create { file: File, path: String },
    Write { file: File, offset: u64, len: u64, how: How },
    Truncate { file: File, size: u64 },
    Punch { file: File, offset: u64, len: u64 },
    Fsync { file: File },
    Fdatasync { file: File },
    Msync { file: File },
    Close { file: File },
    Rename { from: String, to: String },
    Unlink { path: String },
    Mkdir { path: String },
    Rmdir { path: String },
    FsyncDir { path: String },
    Syncfs,
}

impl Op {
    /// The file whose content this promises, if it does.
    fn promised(&self) -> Option<File> {
        match *self {
            Op::Fsync { file } | Op::Fdatasync { file } | Op::Msync { file } => Some(file),
            Op::Write { file, how: How::Sync | How::DataSync, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether it promises all names of its process.
    pub fn promises(&self) -> bool {
        self.promised().is_some() || matches!(self, Op::FsyncDir { .. })
    }
}

/// A name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    Dir,
    File(File),
}

pub type Tree = BTreeMap<String, Node>;

/// The operations of a process, in turn.
pub struct Operations {
    random: SplitMix,
    process: u64,
    processes: u64,
    made: u64,
    next_file: File,
    tree: Tree,
    sizes: BTreeMap<File, u64>,
    /// Operations that belong together.
    planned: VecDeque<Op>,
}

impl Operations {
    pub fn new(seed: u64, process: u64, processes: u64) -> Operations {
        let mut all = Operations {
            random: SplitMix::new(seed, &[process]),
            process,
            processes,
            made: 0,
            next_file: MAP + 1,
            tree: Tree::new(),
            sizes: BTreeMap::from([(SHARED, shared_bytes(processes))]),
            planned: VecDeque::new(),
        };
        all.planned.extend([
            Op::Create { file: MAP, path: "map".into() },
            Op::Truncate { file: MAP, size: MAP_BYTES },
            Op::Fsync { file: MAP },
        ]);
        all
    }

    fn any_file(&mut self) -> Option<(String, File)> {
        let files: Vec<_> = self
            .tree
            .iter()
            .filter_map(|(path, node)| match node {
                Node::File(file) if *file != MAP => Some((path.clone(), *file)),
                _ => None,
            })
            .collect();
        if files.is_empty() {
            None
        } else {
            Some(files[self.random.below(files.len() as u64) as usize].clone())
        }
    }

    /// A place for a name, in a directory that is there.
    fn any_path(&mut self, prefix: &str) -> String {
        let name = format!("{prefix}{}", self.random.below(FILES_MAX as u64));
        let dirs: Vec<_> =
            self.tree.iter().filter(|(_, node)| **node == Node::Dir).map(|(path, _)| path.clone()).collect();
        match self.random.below(3) {
            0 if !dirs.is_empty() => {
                format!("{}/{name}", dirs[self.random.below(dirs.len() as u64) as usize])
            }
            _ => name,
        }
    }

    fn write(&mut self, file: File) -> Op {
        let size = self.sizes[&file];
        let len = match self.random.below(4) {
            0 => 1 + self.random.below(200),
            1 => BLOCK_BYTES as u64,
            2 => 1 + self.random.below(6000),
            _ => 1 + self.random.below(20_000),
        };
        let how = match self.random.below(8) {
            0 | 1 if size + len <= SIZE_MAX => How::Append,
            2 => How::Sync,
            3 => How::DataSync,
            _ => How::Plain,
        };
        let offset = match (how, self.random.below(4)) {
            (How::Append, _) => size,
            (_, 0) => size.min(SIZE_MAX - len),
            (_, 1) => self.random.below(SIZE_MAX - len) & !(BLOCK_BYTES as u64 - 1),
            _ => self.random.below(size.min(SIZE_MAX - len) + 1),
        };
        Op::Write { file, offset, len, how }
    }

    fn stripe_write(&mut self) -> Op {
        let block = self.random.below(SHARED_BLOCKS) * self.processes + self.process;
        let within = self.random.below(BLOCK_BYTES as u64 - 1);
        let len = 1 + self.random.below(BLOCK_BYTES as u64 - within);
        let how = if self.random.below(5) == 0 { How::DataSync } else { How::Plain };
        Op::Write { file: SHARED, offset: block * BLOCK_BYTES as u64 + within, len, how }
    }

    /// A file that takes the place of another one, as editors and databases write.
    fn replace(&mut self, to: String) {
        let file = self.next_file;
        self.next_file += 1;
        let from = format!("tmp{file}");
        let len = 1 + self.random.below(12_000);
        self.planned.push_back(Op::Create { file, path: from.clone() });
        self.planned.push_back(Op::Write { file, offset: 0, len, how: How::Plain });
        let is_synced = self.random.below(4) > 0;
        if is_synced {
            self.planned.push_back(Op::Fsync { file });
        }
        let dir = to.rsplit_once('/').map_or(".", |(dir, _)| dir).to_string();
        self.planned.push_back(Op::Rename { from, to });
        if is_synced && self.random.below(3) > 0 {
            self.planned.push_back(Op::FsyncDir { path: dir });
        }
    }

    fn choose(&mut self) -> Op {
        let count = self.tree.values().filter(|node| matches!(node, Node::File(_))).count();
        let choice = self.random.below(100);
        if choice < 12 {
            let offset = self.random.below(MAP_BYTES - 1);
            let len = 1 + self.random.below((MAP_BYTES - offset).min(9000));
            return Op::Write { file: MAP, offset, len, how: How::Store };
        }
        if choice < 17 {
            return Op::Msync { file: MAP };
        }
        if choice < 23 {
            return self.stripe_write();
        }
        if choice < 25 {
            return Op::Fdatasync { file: SHARED };
        }
        let picked = self.any_file();
        let Some((path, file)) = picked.filter(|_| count > 2 || choice.is_multiple_of(2)) else {
            let path = self.any_path("f");
            if self.tree.contains_key(&path) {
                return Op::Syncfs;
            }
            let file = self.next_file;
            self.next_file += 1;
            return Op::Create { file, path };
        };
        match choice {
            25..55 => self.write(file),
            55..65 => Op::Fsync { file },
            65..70 => Op::Fdatasync { file },
            70..74 => Op::Truncate { file, size: self.random.below(SIZE_MAX) },
            74..76 => {
                let offset = self.random.below(SIZE_MAX / 2);
                Op::Punch { file, offset, len: 1 + self.random.below(SIZE_MAX / 4) }
            }
            76..79 => Op::Unlink { path },
            79..86 => {
                self.replace(path);
                self.planned.pop_front().unwrap_or(Op::Syncfs)
            }
            86..90 => {
                let to = self.any_path("f");
                if to == path { Op::Syncfs } else { Op::Rename { from: path, to } }
            }
            90..93 => {
                let path = format!("d{}", self.random.below(DIRS));
                match self.tree.get(&path) {
                    None => Op::Mkdir { path },
                    Some(_) if !self.tree.keys().any(|other| other.starts_with(&format!("{path}/"))) => {
                        Op::Rmdir { path }
                    }
                    Some(_) => Op::FsyncDir { path },
                }
            }
            93..96 => Op::FsyncDir { path: ".".into() },
            96..98 => Op::Close { file },
            _ => Op::Syncfs,
        }
    }
}

impl Iterator for Operations {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let op = match self.planned.pop_front() {
            Some(op) => op,
            None => self.choose(),
        };
        apply_names(&mut self.tree, &op);
        match op {
            Op::Create { file, .. } => drop(self.sizes.insert(file, 0)),
            Op::Write { file, offset, len, .. } => {
                let size = self.sizes.entry(file).or_default();
                *size = (*size).max(offset + len);
            }
            Op::Truncate { file, size } => drop(self.sizes.insert(file, size)),
            _ => {}
        }
        self.made += 1;
        Some(op)
    }
}

pub fn shared_bytes(processes: u64) -> u64 {
    SHARED_BLOCKS * processes * BLOCK_BYTES as u64
}

fn apply_names(tree: &mut Tree, op: &Op) {
    match op {
        Op::Create { file, path } => drop(tree.insert(path.clone(), Node::File(*file))),
        Op::Mkdir { path } => drop(tree.insert(path.clone(), Node::Dir)),
        Op::Unlink { path } | Op::Rmdir { path } => drop(tree.remove(path)),
        Op::Rename { from, to } => {
            if let Some(node) = tree.remove(from) {
                tree.insert(to.clone(), node);
            }
        }
        _ => {}
    }
}

/// What an operation of a process writes at an offset: never a zero, and nothing that another one writes.
pub fn fill(process: u64, operation: u64, offset: u64, out: &mut [u8]) {
    for (at, byte) in (offset..).zip(out) {
        let word = (process << 56 ^ operation << 32 ^ at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *byte = (word >> (8 * (at & 7))) as u8 | 1;
    }
}

/// The contents that a file may have: of each piece, one of these.
#[derive(Clone, Debug)]
pub struct Possible {
    versions: Vec<Vec<u8>>,
    /// Bytes that are stored together.
    piece: usize,
    /// Writes that may have been stored by half, from one size to another.
    growths: Vec<(usize, usize)>,
    /// Pieces of which a part was promised, each with the first version that it may have.
    oldest: BTreeMap<usize, usize>,
    /// A promised end, which no truncate has taken back.
    size_min: usize,
}

impl Possible {
    fn new(content: Vec<u8>, piece: usize) -> Possible {
        Possible { versions: vec![content], piece, growths: Vec::new(), oldest: BTreeMap::new(), size_min: 0 }
    }

    fn change(&mut self, act: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.versions.last().cloned().unwrap_or_default();
        act(&mut next);
        self.versions.push(next);
    }

    fn promise(&mut self) {
        let last = self.versions.pop().unwrap_or_default();
        *self = Possible::new(last, self.piece);
    }

    /// Only what was written last is promised, from one offset to another: what the kernel keeps of the rest, it keeps.
    fn promise_part(&mut self, from: usize, to: usize) {
        let newest = self.versions.len() - 1;
        self.oldest.extend((from / self.piece..to.div_ceil(self.piece)).map(|piece| (piece, newest)));
        self.size_min = self.size_min.max(to);
    }

    /// The versions that a piece may have.
    fn of_piece(&self, from: usize) -> &[Vec<u8>] {
        &self.versions[self.oldest.get(&(from / self.piece)).copied().unwrap_or(0)..]
    }

    /// Why this cannot be the content. With `late`, what was written since the promise may be zeros: the kernel passes on what it
    /// keeps in any order.
    pub fn refuses(&self, content: &[u8], late: bool) -> Option<String> {
        let size = content.len();
        let is_size = self.versions.iter().any(|version| version.len() == size)
            || self.growths.iter().any(|&(from, to)| (from..=to).contains(&size));
        if !is_size || size < self.size_min {
            let sizes: Vec<_> = self.versions.iter().map(Vec::len).collect();
            return Some(format!("a size of {size}, of {sizes:?}, at least {}", self.size_min));
        }
        let grew = self.versions.len() > 1;
        (0..size).step_by(self.piece).find_map(|from| {
            let piece = &content[from..(from + self.piece).min(size)];
            let known = self.of_piece(from).iter().any(|version| is_piece(piece, version, from));
            let is_hole = late
                && grew
                && !self.oldest.contains_key(&(from / self.piece))
                && piece.iter().all(|byte| *byte == 0);
            (!known && !is_hole).then(|| self.told(piece, from))
        })
    }

    fn told(&self, piece: &[u8], from: usize) -> String {
        let differs = |version: &Vec<u8>| {
            let byte = |at: usize| version.get(from + at).copied().unwrap_or(0);
            (0..piece.len()).find(|at| piece[*at] != byte(*at)).map(|at| from + at)
        };
        let all: Vec<_> = self.of_piece(from).iter().map(differs).collect();
        let zeros = piece.iter().all(|byte| *byte == 0);
        format!("bytes at {from} that are no version (first difference to each: {all:?}; zeros: {zeros})")
    }

    /// Whether the bytes of a block of this process are as they may be.
    pub fn refuses_stripe(&self, content: &[u8], process: u64, processes: u64) -> Option<String> {
        (0..SHARED_BLOCKS).find_map(|n| {
            let from = ((n * processes + process) as usize) * BLOCK_BYTES;
            let Some(piece) = content.get(from..from + BLOCK_BYTES) else {
                return Some(format!("a size of {}", content.len()));
            };
            let known = self.of_piece(from).iter().any(|version| is_piece(piece, version, from));
            (!known).then(|| self.told(piece, from))
        })
    }
}

/// Whether a version of a file has this piece; behind its end are zeros.
fn is_piece(piece: &[u8], version: &[u8], from: usize) -> bool {
    let old = version.get(from..).unwrap_or(&[]);
    let both = old.len().min(piece.len());
    piece[..both] == old[..both] && piece[both..].iter().all(|byte| *byte == 0)
}

/// What the volume may hold of a process.
pub struct Expected {
    /// The names at each moment since the last promise.
    pub trees: Vec<Tree>,
    pub files: BTreeMap<File, Possible>,
    /// Operations that had promised something.
    pub promises: u64,
}

/// What the volume may hold when so many operations had begun and so many had returned. With `late`, the kernel keeps data, and a write
/// with `O_SYNC` makes only its own durable.
pub fn expected(operations: Operations, returned: u64, begun: u64, late: bool) -> Expected {
    let (process, processes) = (operations.process, operations.processes);
    let shared = Possible::new(vec![0; shared_bytes(processes) as usize], BLOCK_BYTES);
    let mut all =
        Expected { trees: vec![Tree::new()], files: BTreeMap::from([(SHARED, shared)]), promises: 0 };
    for (number, op) in (0..begun).zip(operations) {
        let mut tree = all.trees.last().cloned().unwrap_or_default();
        apply_names(&mut tree, &op);
        if all.trees.last() != Some(&tree) {
            all.trees.push(tree);
        }
        all.apply(process, number, &op);
        if number < returned && op.promises() {
            all.promises += 1;
            all.trees.drain(..all.trees.len() - 1);
            let Some(file) = op.promised().and_then(|file| all.files.get_mut(&file)) else { continue };
            match op {
                Op::Write { offset, len, .. } if late => {
                    file.promise_part(offset as usize, (offset + len) as usize);
                }
                _ => file.promise(),
            }
        }
    }
    all
}

impl Expected {
    fn apply(&mut self, process: u64, number: u64, op: &Op) {
        match *op {
            Op::Create { file, .. } => {
                let piece = if file == MAP { 1 } else { BLOCK_BYTES };
                self.files.insert(file, Possible::new(Vec::new(), piece));
            }
            Op::Write { file, offset, len, .. } => {
                let Some(possible) = self.files.get_mut(&file) else { return };
                let (from, to) = (offset as usize, (offset + len) as usize);
                let size = possible.versions.last().map_or(0, Vec::len);
                if to > size {
                    possible.growths.push((size, to));
                }
                possible.change(|content| {
                    content.resize(content.len().max(to), 0);
                    fill(process, number, offset, &mut content[from..to]);
                });
            }
            Op::Truncate { file, size } => {
                if let Some(possible) = self.files.get_mut(&file) {
                    possible.change(|content| content.resize(size as usize, 0));
                    possible.size_min = possible.size_min.min(size as usize);
                }
            }
            Op::Punch { file, offset, len } => {
                if let Some(possible) = self.files.get_mut(&file) {
                    possible.change(|content| {
                        let end = ((offset + len) as usize).min(content.len());
                        content[(offset as usize).min(end)..end].fill(0);
                    });
                }
            }
            _ => {}
        }
    }
}
