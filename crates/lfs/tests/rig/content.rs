//! Volumes with everything that a volume can hold, and what is on a volume, to be compared.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use weft_core::checksum::crc32c;
use weft_core::{Ino, StreamId, Tag};
use weft_lfs::Lfs;
use weft_vfs::{
    CreateArgs, FallocateMode, FileKind, FileSystem, FsError, FsResult, NewNode, SeekTarget, SetAttr,
    TimeSpec, XattrMode,
};

/// What a volume is filled with.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub seed: u64,
    /// Names.
    pub files: u32,
    /// Largest file, in bytes.
    pub bytes_max: u64,
    /// Depth of the deepest directory.
    pub depth: u32,
    /// Overwrites in no order, so that the cleaner has to work.
    pub overwrites: u32,
}

fn args(node: NewNode<'_>, rng: &mut StdRng) -> CreateArgs<'static> {
    // The target is leaked: a test lives as long as its process.
    let node = match node {
        NewNode::Symlink(target) => NewNode::Symlink(Box::leak(target.to_vec().into_boxed_slice())),
        NewNode::File => NewNode::File,
        NewNode::Directory => NewNode::Directory,
        NewNode::Special(kind, rdev) => NewNode::Special(kind, rdev),
    };
    let tag = Tag { stream: StreamId(rng.random_range(0..4)), ..Tag::default() };
    CreateArgs {
        uid: rng.random_range(0..9),
        gid: 5,
        tag,
        ..CreateArgs::new(node, rng.random_range(0..0o777))
    }
}

/// Fills a volume.
pub fn fill(fs: &Lfs, recipe: &Recipe) {
    let mut rng = StdRng::seed_from_u64(recipe.seed);
    let rng = &mut rng;
    let mut dirs = vec![(Ino::ROOT, 0)];
    let mut files: Vec<(Ino, u64)> = Vec::new();
    for n in 0..recipe.files {
        let (dir, depth) = dirs[if rng.random() { dirs.len() - 1 } else { rng.random_range(0..dirs.len()) }];
        let name = format!("{n}-{}", "x".repeat(rng.random_range(0..40)));
        match rng.random_range(0..20) {
            0..=2 if depth < recipe.depth => {
                let made = fs.create(dir, name.as_bytes(), &args(NewNode::Directory, rng)).unwrap();
                dirs.push((made.ino, depth + 1));
            }
            3 => {
                let target = "t".repeat(rng.random_range(1..300));
                fs.create(dir, name.as_bytes(), &args(NewNode::Symlink(target.as_bytes()), rng)).unwrap();
            }
            4 => {
                let node = NewNode::Special(FileKind::Fifo, 0);
                fs.create(dir, name.as_bytes(), &args(node, rng)).unwrap();
            }
            5 if !files.is_empty() => {
                let (ino, _) = files[rng.random_range(0..files.len())];
                match fs.link(ino, dir, name.as_bytes()) {
                    Ok(_) | Err(FsError::Stale | FsError::NotFound) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            6 => {
                // A file that goes again.
                let made = fs.create(dir, name.as_bytes(), &args(NewNode::File, rng)).unwrap();
                fs.write(made.ino, 0, &noise(rng, 5000)).unwrap();
                fs.unlink(dir, name.as_bytes()).unwrap();
            }
            _ => {
                let ino = fs.create(dir, name.as_bytes(), &args(NewNode::File, rng)).unwrap().ino;
                let len = match rng.random_range(0..4) {
                    0 => rng.random_range(0..200),
                    1 => rng.random_range(0..9000),
                    _ => rng.random_range(0..recipe.bytes_max),
                };
                let data = noise(rng, len);
                match rng.random_range(0..3) {
                    0 => fs.write_through(ino, 0, &data).unwrap(),
                    // A hole before it.
                    1 if len > 0 => fs.write(ino, rng.random_range(0..100_000), &data).unwrap(),
                    _ => fs.write(ino, 0, &data).unwrap(),
                }
                if rng.random_range(0..4) == 0 && len > 20_000 {
                    fs.fallocate(ino, FallocateMode::PunchHole, 4096, 8192).unwrap();
                }
                if rng.random_range(0..3) == 0 {
                    for x in 0..rng.random_range(1..4) {
                        let len = rng.random_range(0..3000);
                        let value = noise(rng, len);
                        fs.setxattr(ino, format!("user.{x}").as_bytes(), &value, XattrMode::Any).unwrap();
                    }
                }
                if rng.random_range(0..4) == 0 {
                    let time = |rng: &mut StdRng| Some(TimeSpec(rng.random_range(0..1 << 60)));
                    let set = SetAttr { atime: time(rng), mtime: time(rng), ..SetAttr::default() };
                    fs.setattr(ino, &set).unwrap();
                }
                if rng.random_range(0..5) == 0 {
                    fs.fsync(ino).unwrap();
                }
                files.push((ino, len));
            }
        }
    }
    for _ in 0..recipe.overwrites {
        let (ino, len) = files[rng.random_range(0..files.len())];
        if len > 4096 {
            let at = rng.random_range(0..len / 4096) * 4096;
            let data = noise(rng, (len - at).min(16384));
            fs.write_through(ino, at, &data).unwrap();
        }
    }
    fs.sync().unwrap();
}

fn noise(rng: &mut StdRng, len: u64) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    rng.fill(&mut data[..]);
    data
}

/// Length and CRC of a file's bytes, and where its data is.
pub type Content = (usize, u32, Vec<(u64, u64)>);

/// A node of a volume.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub perm: u32,
    pub links: u32,
    pub owner: (u32, u32),
    pub rdev: u64,
    pub size: u64,
    pub times: [TimeSpec; 2],
    /// Names, lengths and CRCs.
    pub xattrs: BTreeMap<Vec<u8>, (usize, u32)>,
    pub target: Vec<u8>,
    /// Length and CRC of the content, and where its data and holes are.
    pub content: Content,
    /// The first path of the inode.
    pub first: Vec<u8>,
}

/// A path, and what is there or why it cannot be read.
pub type Tree = BTreeMap<Vec<u8>, Result<Node, String>>;

/// Everything on a volume, by path.
pub fn dump(fs: &dyn FileSystem) -> FsResult<Tree> {
    let mut tree = Tree::new();
    let mut firsts: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut todo = vec![(Ino::ROOT, Vec::new())];
    while let Some((ino, path)) = todo.pop() {
        let first = firsts.entry(ino.0).or_insert_with(|| path.clone()).clone();
        tree.insert(path.clone(), node(fs, ino, first).map_err(|error| error.to_string()));
        if fs.getattr(ino)?.kind == FileKind::Directory {
            let mut names = Vec::new();
            fs.readdir(ino, 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.ino));
                true
            })?;
            // In an order that is the same everywhere: which path of an inode is its first depends on it.
            names.sort();
            for (name, ino) in names.into_iter().rev() {
                todo.push((ino, [&path[..], b"/", &name[..]].concat()));
            }
        }
    }
    Ok(tree)
}

fn node(fs: &dyn FileSystem, ino: Ino, first: Vec<u8>) -> FsResult<Node> {
    let attr = fs.getattr(ino)?;
    let mut xattrs = BTreeMap::new();
    for name in fs.listxattr(ino)? {
        let value = fs.getxattr(ino, &name)?;
        xattrs.insert(name, (value.len(), crc32c(&value)));
    }
    let target = if attr.kind == FileKind::Symlink { fs.readlink(ino)? } else { Vec::new() };
    let content = if attr.kind == FileKind::File { content(fs, ino, attr.size)? } else { (0, 0, Vec::new()) };
    let size = if attr.kind == FileKind::Directory { 0 } else { attr.size };
    Ok(Node {
        kind: attr.kind,
        perm: attr.perm,
        links: attr.links,
        owner: (attr.uid, attr.gid),
        rdev: attr.rdev,
        size,
        times: [attr.atime, attr.mtime],
        xattrs,
        target,
        content,
        first,
    })
}

fn content(fs: &dyn FileSystem, ino: Ino, size: u64) -> FsResult<Content> {
    let mut data = vec![0; size as usize];
    let len = fs.read(ino, 0, &mut data)?;
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let from = match fs.seek(ino, at, SeekTarget::Data) {
            Ok(from) => from,
            Err(FsError::NoData) => break,
            Err(error) => return Err(error),
        };
        at = fs.seek(ino, from, SeekTarget::Hole)?;
        ranges.push((from, at));
    }
    Ok((len, crc32c(&data[..len]), ranges))
}
