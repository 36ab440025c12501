//! Random steps of several changes, and the same changes one after the other.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weft_core::{Ino, StreamId, Tag};
use weft_vfs::{
    Change, CreateArgs, FallocateMode, FileKind, FileSystem, FsError, FsResult, NewNode, Node, RenameFlags,
    SetAttr, TimeSpec, XattrMode,
};

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"a-name-that-is-longer", b"e"];
const XATTRS: [&[u8]; 3] = [b"user.x", b"user.y", b"user.zzz"];
const FILE_BYTES: u64 = 80_000;
/// Bytes that writes take their data from.
static NOISE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
    let mut bytes = vec![0; 200_000];
    StdRng::seed_from_u64(77).fill(&mut bytes[..]);
    bytes
});

/// An inode that steps have made, or that was there.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub ino: Ino,
    pub kind: FileKind,
}

/// A part of the noise.
fn noise(rng: &mut StdRng, len_max: usize) -> &'static [u8] {
    let len = match rng.random_range(0..4) {
        0 => rng.random_range(0..200),
        1 => rng.random_range(0..len_max.min(9000)),
        _ => rng.random_range(0..len_max),
    };
    let at = rng.random_range(0..NOISE.len() - len);
    &NOISE[at..at + len]
}

/// A place in a file: often at the edge of a block.
fn place(rng: &mut StdRng) -> u64 {
    let at = rng.random_range(0..FILE_BYTES);
    match rng.random_range(0..3) {
        0 => at,
        1 => at / 4096 * 4096,
        _ => rng.random_range(0..5000),
    }
}

/// What changes can be about.
struct Pool {
    nodes: Vec<(Node, FileKind)>,
    /// Names that are there, as far as the changes before are done.
    names: Vec<(Node, &'static [u8])>,
}

/// Random changes, one for each seed, of what is known of a volume. Most of them can be done.
pub fn changes(fs: &dyn FileSystem, seeds: &[u64], known: &[Known]) -> Vec<Change<'static>> {
    let mut pool = Pool { nodes: Vec::new(), names: Vec::new() };
    for k in known {
        // Now and then one that is gone.
        if fs.getattr(k.ino).is_ok() || seeds[0] % 64 == k.ino.0 % 64 {
            pool.nodes.push((Node::Ino(k.ino), k.kind));
        }
        let there =
            NAMES.iter().filter(|name| k.kind == FileKind::Directory && fs.lookup(k.ino, name).is_ok());
        pool.names.extend(there.map(|name| (Node::Ino(k.ino), *name)));
    }
    let mut changes = Vec::new();
    for (at, seed) in seeds.iter().enumerate() {
        let change = pool.change(&mut StdRng::seed_from_u64(*seed));
        pool.note(at, &change);
        changes.push(change);
    }
    changes
}

impl Pool {
    fn note(&mut self, at: usize, change: &Change<'static>) {
        match *change {
            Change::Create { dir, name, ref args } => {
                let kind = match args.node {
                    NewNode::File => FileKind::File,
                    NewNode::Directory => FileKind::Directory,
                    NewNode::Symlink(_) => FileKind::Symlink,
                    NewNode::Special(kind, _) => kind,
                };
                self.nodes.push((Node::Made(at), kind));
                self.names.push((dir, name));
            }
            Change::Link { dir, name, .. } => self.names.push((dir, name)),
            Change::Remove { dir, name, .. } => self.names.retain(|there| *there != (dir, name)),
            Change::Rename { from, name, to, new_name, flags } => {
                if flags.is_empty() {
                    self.names.retain(|there| *there != (from, name));
                }
                self.names.push((to, new_name));
            }
            _ => {}
        }
    }

    fn pick(&self, rng: &mut StdRng, kind: FileKind) -> Node {
        // Now and then one of the wrong kind.
        let fits: Vec<Node> = match rng.random_range(0..60) {
            0 => Vec::new(),
            _ => self.nodes.iter().filter(|(_, k)| *k == kind).map(|(node, _)| *node).collect(),
        };
        if fits.is_empty() {
            return self.nodes[rng.random_range(0..self.nodes.len())].0;
        }
        // What was made last is what steps are about.
        if rng.random_range(0..3) == 0 { fits[fits.len() - 1] } else { fits[rng.random_range(0..fits.len())] }
    }

    fn name(&self, rng: &mut StdRng, is_there: bool) -> (Node, &'static [u8]) {
        let any =
            |rng: &mut StdRng| (self.pick(rng, FileKind::Directory), NAMES[rng.random_range(0..NAMES.len())]);
        match is_there && !self.names.is_empty() && rng.random_range(0..20) > 0 {
            true => self.names[rng.random_range(0..self.names.len())],
            false => (0..if is_there { 0 } else { 9 })
                .map(|_| any(rng))
                .find(|name| !self.names.contains(name))
                .unwrap_or_else(|| any(rng)),
        }
    }

    fn change(&self, rng: &mut StdRng) -> Change<'static> {
        let file = self.pick(rng, FileKind::File);
        let any = self.nodes[rng.random_range(0..self.nodes.len())].0;
        match rng.random_range(0..32) {
            0 => {
                let (dir, name) = self.name(rng, false);
                Change::Expect { dir, name, ino: None }
            }
            1..=6 => {
                let (dir, name) = self.name(rng, false);
                let node = match rng.random_range(0..8) {
                    0 => NewNode::Symlink(b"somewhere"),
                    1 => NewNode::Special(FileKind::Fifo, 0),
                    2..=3 => NewNode::Directory,
                    _ => NewNode::File,
                };
                let xattrs: &[(&[u8], &[u8])] =
                    if rng.random_range(0..4) == 0 { &[(b"user.x", b"given")] } else { &[] };
                let tag = Tag { stream: StreamId(rng.random_range(0..4)), ..Tag::default() };
                let args = CreateArgs {
                    uid: rng.random_range(0..4),
                    tag,
                    xattrs,
                    ..CreateArgs::new(node, rng.random_range(0..0o1000))
                };
                Change::Create { dir, name, args }
            }
            7 => {
                let (dir, name) = self.name(rng, false);
                Change::Link { node: file, dir, name }
            }
            8..=10 => {
                let (dir, name) = self.name(rng, true);
                Change::Remove { dir, name, is_dir: rng.random_range(0..5) == 0 }
            }
            11..=14 => {
                let flags = match rng.random_range(0..8) {
                    0 => RenameFlags::EXCHANGE,
                    1 => RenameFlags::NO_REPLACE,
                    2 => RenameFlags::WHITEOUT,
                    _ => RenameFlags::empty(),
                };
                let (from, name) = self.name(rng, true);
                let (to, new_name) = self.name(rng, rng.clone().random());
                Change::Rename { from, name, to, new_name, flags }
            }
            15..=16 => Change::SetAttr {
                node: any,
                set: SetAttr {
                    perm: Some(rng.random_range(0..0o1000)),
                    uid: Some(rng.random_range(0..9)),
                    mtime: Some(TimeSpec(rng.random_range(0..1_000_000))),
                    ..SetAttr::default()
                },
            },
            17..=19 => {
                let size = if rng.random_range(0..4) == 0 { 0 } else { place(rng) };
                let perm = (rng.random_range(0..4) == 0).then_some(0o640);
                Change::SetAttr { node: file, set: SetAttr { size: Some(size), perm, ..SetAttr::default() } }
            }
            20..=21 => {
                let value = (rng.random_range(0..8) > 0).then(|| noise(rng, 600));
                let mode = match rng.random_range(0..9) {
                    0 => XattrMode::Create,
                    1 => XattrMode::Replace,
                    _ => XattrMode::Any,
                };
                Change::Xattr { node: any, name: XATTRS[rng.random_range(0..XATTRS.len())], value, mode }
            }
            22..=27 => Change::Write { node: file, offset: place(rng), data: noise(rng, 30_000) },
            28..=30 => {
                let mode = match rng.random_range(0..6) {
                    0 => FallocateMode::Allocate,
                    1 => FallocateMode::KeepSize,
                    2..=3 => FallocateMode::PunchHole,
                    _ => FallocateMode::ZeroRange { keep_size: rng.random() },
                };
                let len = 1 + rng.random_range(0..30_000);
                Change::Fallocate { node: file, mode, offset: place(rng), len }
            }
            _ => {
                let tag = Tag { stream: StreamId(rng.random_range(0..4)), ..Tag::default() };
                Change::SetTag { node: file, tag }
            }
        }
    }
}

/// A change about other nodes.
pub fn with_nodes<'a>(mut change: Change<'a>, other: &dyn Fn(Node) -> Node) -> Change<'a> {
    match &mut change {
        Change::Expect { dir, .. } | Change::Create { dir, .. } | Change::Remove { dir, .. } => {
            *dir = other(*dir);
        }
        Change::Link { node, dir, .. } => (*node, *dir) = (other(*node), other(*dir)),
        Change::Rename { from, to, .. } => (*from, *to) = (other(*from), other(*to)),
        Change::SetAttr { node, .. }
        | Change::Xattr { node, .. }
        | Change::Write { node, .. }
        | Change::Fallocate { node, .. }
        | Change::SetTag { node, .. } => *node = other(*node),
    }
    change
}

/// Does a change as an operation of its own; `ino` names inodes. The attributes of what it makes.
pub fn apply(
    fs: &dyn FileSystem,
    change: &Change<'_>,
    ino: &dyn Fn(Node) -> Ino,
) -> FsResult<Option<(Ino, FileKind)>> {
    match *change {
        Change::Expect { dir, name, ino: wanted } => {
            let found = match fs.lookup(ino(dir), name) {
                Ok(attr) => Some(attr.ino),
                Err(FsError::NotFound) => None,
                // It is nobody's name, and will be: all that the step is to rest on is gone.
                Err(_) => return Err(FsError::Stale),
            };
            if found != wanted.map(|wanted| ino(Node::Ino(wanted))) {
                return Err(FsError::Stale);
            }
        }
        Change::Create { dir, name, ref args } => {
            let attr = fs.create(ino(dir), name, args)?;
            return Ok(Some((attr.ino, attr.kind)));
        }
        Change::Link { node, dir, name } => drop(fs.link(ino(node), ino(dir), name)?),
        Change::Remove { dir, name, is_dir: true } => fs.rmdir(ino(dir), name)?,
        Change::Remove { dir, name, is_dir: false } => fs.unlink(ino(dir), name)?,
        Change::Rename { from, name, to, new_name, flags } => {
            fs.rename(ino(from), name, ino(to), new_name, flags)?;
        }
        Change::SetAttr { node, ref set } => drop(fs.setattr(ino(node), set)?),
        Change::Xattr { node, name, value: Some(value), mode } => {
            fs.setxattr(ino(node), name, value, mode)?
        }
        Change::Xattr { node, name, value: None, .. } => fs.removexattr(ino(node), name)?,
        Change::Write { node, offset, data } => fs.write(ino(node), offset, data)?,
        Change::Fallocate { node, mode, offset, len } => fs.fallocate(ino(node), mode, offset, len)?,
        Change::SetTag { node, tag } => fs.set_tag(ino(node), tag)?,
    }
    Ok(None)
}
