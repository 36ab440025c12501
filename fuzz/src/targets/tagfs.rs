//! Volumes of the core on a tag store, in which records say anything. The store below is sound: nodes and edges are changed by its own
//! transactions. The check and the mount give a report, a volume or an error, and a volume that is mounted takes every operation.

use super::Target;
use crate::script::Script;
use std::sync::Arc;
use weft_tagfs::{FormatOptions, MountOptions, TagFs};
use weft_tags::{
    BTree, BTreeForm, Direction, EdgeType, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SnodeId,
    SnodeTags, Store,
};
use weft_vfs::{
    CreateArgs, FallocateMode, FileKind, FileSystem, FsResult, Ino, NewNode, RenameFlags, SeekTarget,
    SetAttr, XattrMode,
};

/// The types of edges by numbers, and of the nodes that they lead to.
const KINDS: [(&str, &[u32]); 4] = [
    ("tagfs.super", &[0x7466_0001]),
    ("tagfs.record", &[0x7466_0002]),
    ("tagfs.xattrs", &[0x7466_0003]),
    ("tagfs.data", &[0x7466_0004, 0x7466_0006]),
];
const ENTRY: NodeType = NodeType(NodeType::KEYED | 0x7466_0005);
const CAPACITY_BYTES: u64 = 16 << 20;
/// Names and inodes that a walk looks at: directories may lead to each other.
const WALK_MAX: usize = 64;
/// Bytes that are read of a file at each place.
const READ_BYTES: usize = 20_000;

fn store_options() -> Options {
    Options { cache_bytes: 8 << 20, journal_bytes: 1 << 20, huge_pages: false, ..Options::default() }
}

fn mount_options() -> MountOptions {
    MountOptions { cache_bytes: MountOptions::CACHE_BYTES_MIN, ..MountOptions::default() }
}

fn expect<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// See the module.
pub struct TagFsRecords {
    image: Arc<MemoryStore>,
}

impl TagFsRecords {
    /// Makes the volume.
    pub fn new() -> TagFsRecords {
        let image = Arc::new(MemoryStore::new());
        let format = FormatOptions { capacity_bytes: CAPACITY_BYTES, ..FormatOptions::default() };
        expect("format", TagFs::format(Box::new(image.clone()), &format));
        let fs = expect("mount", TagFs::mount(Box::new(image.clone()), mount_options()));
        expect("fill", fill(&fs));
        // With files that are open and have no name.
        expect("sync", fs.sync());
        drop(fs);
        let store = expect("store", Store::open(Box::new(image.clone()), &store_options()));
        expect("close", store.close());
        TagFsRecords { image }
    }
}

fn fill(fs: &TagFs) -> FsResult<()> {
    let args = |node| CreateArgs::new(node, 0o644);
    let dir = fs.create(Ino::ROOT, b"dir", &args(NewNode::Directory))?.ino;
    let below = fs.create(dir, b"below", &args(NewNode::Directory))?.ino;
    fs.create(below, b"deep", &args(NewNode::Directory))?;
    for (name, bytes) in [(&b"inline"[..], 900), (b"pieces", 30_000), (b"chunks", 90_000)] {
        let ino = fs.create(dir, name, &args(NewNode::File))?.ino;
        fs.write(ino, 0, &vec![name[0]; bytes])?;
        fs.setxattr(ino, b"user.a", &[7; 40], XattrMode::Any)?;
    }
    let sparse = fs.create(Ino::ROOT, b"sparse", &args(NewNode::File))?.ino;
    fs.write(sparse, 5 << 20, b"data")?;
    fs.fallocate(sparse, FallocateMode::KeepSize, 8 << 20, 20_000)?;
    fs.link(sparse, below, b"again")?;
    fs.create(dir, b"link", &args(NewNode::Symlink(b"../sparse")))?;
    fs.create(dir, b"fifo", &args(NewNode::Special(FileKind::Fifo, 0)))?;
    let gone = fs.create_unnamed(Ino::ROOT, &args(NewNode::File), true)?.ino;
    fs.write(gone, 0, &[1; 10_000])
}

/// The nodes of a volume, by how they are reached.
struct Found {
    roots: Vec<(SnodeId, NodeId)>,
    /// Source, type and number of the edge, node and its type.
    nodes: Vec<(NodeId, EdgeType, u64, NodeId, NodeType)>,
    entries: Vec<NodeId>,
}

fn found(store: &Store) -> weft_tags::Result<Found> {
    let mut found = Found { roots: Vec::new(), nodes: Vec::new(), entries: Vec::new() };
    let entry = store.edge_type("tagfs.entry", InfoForm::Key)?;
    for snode in store.snodes()? {
        let root = store.root(snode)?;
        found.roots.push((snode, root));
        for edge in store.edges(root)? {
            if edge.etype == entry {
                found.entries.push(edge.to);
            }
            for (name, types) in KINDS {
                let (etype, number) = (store.edge_type(name, InfoForm::Number)?, edge.number.unwrap_or(0));
                if edge.etype == etype {
                    let is_it = |kind: &&u32| store.read_node(edge.to, NodeType(**kind)).is_ok();
                    let kind = types.iter().find(is_it).copied().unwrap_or_default();
                    found.nodes.push((root, etype, number, edge.to, NodeType(kind)));
                }
            }
        }
    }
    Ok(found)
}

/// Changes something by a transaction. What the store refuses stays as it is.
fn damage(store: &Store, found: &Found, script: &mut Script<'_>) -> weft_tags::Result<()> {
    let mut tx = store.begin();
    let value = script.number().to_le_bytes();
    let len = script.of(&[1, 2, 4, 8]);
    match script.below(10) {
        0..=4 => {
            // Bytes of a node: of a record most often, whose fields are all within its first hundred.
            let records: Vec<usize> =
                (0..found.nodes.len()).filter(|at| found.nodes[*at].4.0 == 0x7466_0002).collect();
            let at =
                if script.byte() & 1 == 0 { script.of(&records) } else { script.below(found.nodes.len()) };
            let (.., node, kind) = found.nodes[at];
            let mut raw = tx.read_node(node, kind)?;
            let at = script.below(raw.len().min(128));
            let end = (at + len).min(raw.len());
            raw[at..end].copy_from_slice(&value[..end - at]);
            tx.update_node(node, kind, &raw)?;
        }
        5 => {
            // A node that is shorter or longer.
            let (.., node, kind) = found.nodes[script.below(found.nodes.len())];
            let mut raw = tx.read_node(node, kind)?;
            let wanted = script.of(&[0, 3, 59, 84, 100, 512, 4_000, 5_000, 70_000]);
            raw.resize(wanted, value[0]);
            tx.update_node(node, kind, &raw)?;
        }
        6 => {
            // An entry: not its name, by which the store finds it.
            let node = script.of(&found.entries);
            let mut raw = tx.read_node(node, ENTRY)?;
            let from = 2 + usize::from(raw[0]);
            let at = from + script.below(raw.len().saturating_sub(from));
            let end = (at + len).min(raw.len());
            raw[at..end].copy_from_slice(&value[..end - at]);
            tx.update_node(node, ENTRY, &raw)?;
        }
        7 => {
            // An edge that is gone, or leads elsewhere, or has another number.
            let (source, etype, number, to, _) = found.nodes[script.below(found.nodes.len())];
            let other = script.of(&found.roots).1;
            match script.below(4) {
                0 => drop(tx.delete_edge(source, etype, Info::Number(number))?),
                1 => drop(tx.set_edge(source, etype, Info::Number(number), other)?),
                2 => tx.create_edge(source, etype, Info::Number(u64::from_le_bytes(value)), to)?,
                _ => tx.create_edge(other, etype, Info::Number(number), to)?,
            }
        }
        8 => {
            // The tags of an s-node; what is said to have no name.
            let (snode, root) = script.of(&found.roots);
            let first = found.roots[0].1;
            if script.byte() & 1 == 0 {
                let mode = u16::from_le_bytes([value[0], value[1]]);
                tx.set_snode_tags(snode, &SnodeTags { mode, ..SnodeTags::default() })?;
            } else {
                let orphan = store.edge_type("tagfs.orphan", InfoForm::Number)?;
                tx.create_edge(first, orphan, Info::Number(snode.0), root)?;
            }
        }
        _ => {
            // The listing of directories.
            let tree = BTree::open(store, SnodeId::FIRST, "tagfs.listing", BTreeForm::Bytes)?;
            let all = vec![0u8; 0]..=vec![u8::MAX; 16];
            let pairs: Vec<_> = tree.range(all, Direction::Up)?.collect::<weft_tags::Result<_>>()?;
            if !pairs.is_empty() {
                let (mut key, node) = script.of(&pairs);
                let at = script.below(key.len());
                let end = (at + len).min(key.len());
                match script.below(3) {
                    0 => drop(tree.delete_in(&mut tx, &key)?),
                    1 => drop(tree.insert_in(&mut tx, &key, &value[..len])?),
                    _ => {
                        key[at..end].copy_from_slice(&value[..end - at]);
                        tree.insert_in(&mut tx, &key, &node)?;
                    }
                }
            }
        }
    }
    tx.commit().map(drop)
}

impl Target for TagFsRecords {
    fn name(&self) -> &'static str {
        "tagfs"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let kinds = 0..10u8;
        kinds.flat_map(|kind| [vec![65, 3, kind, 2, 9, 9], vec![87, 3, kind, 1, 40, 1, 1]]).collect()
    }

    fn run(&mut self, input: &[u8]) {
        let mut script = Script(input);
        let medium = Arc::new(MemoryStore::over(Box::new(self.image.clone())));
        let store = expect("store", Store::open(Box::new(medium.clone()), &store_options()));
        let all = expect("nodes", found(&store));
        for _ in 0..6 {
            if let Err(error) = damage(&store, &all, &mut script) {
                assert!(!error.to_string().is_empty());
            }
            if script.is_over() {
                break;
            }
        }
        expect("close", store.close());
        for _ in 0..2 {
            match TagFs::check(Box::new(medium.clone())) {
                Ok(report) => assert!(report.problems.iter().all(|problem| !problem.is_empty())),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            match TagFs::mount(Box::new(medium.clone()), mount_options()) {
                Ok(fs) => {
                    use_it(&fs);
                    if let Err(error) = fs.unmount() {
                        assert!(!error.to_string().is_empty());
                    }
                }
                Err(error) => return assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// Reads and changes everything that a walk finds. Whatever is refused is refused; a panic is a finding.
fn use_it(fs: &TagFs) {
    let _ = fs.statfs();
    let (mut names, mut inos) = (Vec::new(), vec![Ino::ROOT]);
    let mut at = 0;
    while at < inos.len() && inos.len() < WALK_MAX {
        let dir = inos[at];
        let _ = fs.readdir(dir, 0, &mut |entry| {
            names.push((dir, entry.name.to_vec()));
            if !inos.contains(&entry.ino) {
                inos.push(entry.ino);
            }
            names.len() < WALK_MAX
        });
        at += 1;
    }
    let mut out = vec![0; READ_BYTES];
    for ino in &inos {
        let ino = *ino;
        let size = fs.getattr(ino).map_or(0, |attr| attr.size);
        for offset in [0, 3_000, size / 2, size.saturating_sub(5_000)] {
            let _ = fs.read(ino, offset, &mut out);
            let _ = fs.seek(ino, offset, SeekTarget::Data);
            let _ = fs.seek(ino, offset, SeekTarget::Hole);
        }
        let _ = fs.readlink(ino);
        let _ = (fs.parent(ino), fs.newest_cookie(ino), fs.tag(ino));
        for name in fs.listxattr(ino).unwrap_or_default() {
            let _ = fs.getxattr(ino, &name);
        }
    }
    for (n, ino) in inos.iter().enumerate() {
        let ino = *ino;
        let _ = fs.setxattr(ino, b"user.b", &[1; 9], XattrMode::Any);
        let _ = fs.write(ino, n as u64 * 5_000, &[3; 6_000]);
        let _ = fs.fallocate(ino, FallocateMode::PunchHole, 4_096, 9_000);
        let _ = fs.fallocate(ino, FallocateMode::InsertRange, 4_096, 8_192);
        let _ = fs.fallocate(ino, FallocateMode::CollapseRange, 0, 4_096);
        let _ = fs.fsync(ino);
        let size = (n % 3 * 2_500) as u64;
        let _ = fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() });
        let _ = fs.create(ino, b"new", &CreateArgs::new(NewNode::Directory, 0o755));
    }
    let _ = fs.sync();
    for (n, (dir, name)) in names.iter().enumerate() {
        let (to, _) = &names[n * 7 % names.len()];
        let flags = if n % 3 == 0 { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        let _ = fs.rename(*dir, name, *to, &names[n * 5 % names.len()].1, flags);
        let _ = fs.rename(*dir, name, *to, b"moved", RenameFlags::WHITEOUT);
        let _ = if n % 2 == 0 { fs.unlink(*dir, name) } else { fs.rmdir(*dir, name) };
    }
}
