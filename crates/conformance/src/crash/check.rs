//! Judges what is on a volume after a power cut.

use super::content::Possible;
use super::recorder::{Event, Recorder};
use super::tree::{MetaOp, NodeId, ROOT, Tree};
use std::collections::BTreeMap;
use weft_core::Ino;
use weft_vfs::{Attr, FileKind, FileSystem, FsError, FsResult};

/// Why a recovered volume is not one that the power cut may leave.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// The core fails to read what it has.
    #[error("{path} cannot be read: {error}")]
    Unreadable {
        /// What was read.
        path: String,
        /// The core's error.
        error: String,
    },
    /// The tree contradicts itself.
    #[error("the recovered tree is not sound: {0}")]
    Unsound(String),
    /// The names are those after no prefix of the metadata operations that has everything promised in it.
    #[error(
        "the recovered names are those of no moment since the last promise: at the promise (after event {promised}) {at_promise}; \
         at the end (after event {end}) {at_end}"
    )]
    Names {
        /// Events up to the last promise.
        promised: usize,
        /// How the names differ from those at the promise.
        at_promise: String,
        /// Events in all.
        end: usize,
        /// How the names differ from those at the end.
        at_end: String,
    },
    /// The content of a file is not one that it may have.
    #[error("{path} (names as after event {names_at} of {end}): {what}")]
    Content {
        /// Where it is.
        path: String,
        /// The moment that the names are of.
        names_at: usize,
        /// Events in all.
        end: usize,
        /// What speaks against it.
        what: String,
    },
    /// The volume does not work any more.
    #[error("the recovered volume does not take new writes: {0}")]
    Unusable(String),
}

fn unreadable(path: &str, error: &FsError) -> Violation {
    Violation::Unreadable { path: path.to_string(), error: format!("{error:?}") }
}

/// An inode as it was recovered.
#[derive(Clone, Debug)]
pub(super) struct RecoveredInode {
    pub(super) attr: Attr,
    pub(super) path: String,
    pub(super) target: Vec<u8>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) entries: BTreeMap<Vec<u8>, Ino>,
    names: u32,
}

/// Everything but the contents.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) inodes: BTreeMap<Ino, RecoveredInode>,
    /// What `statfs` says.
    pub(super) counted_inodes: u64,
}

impl Recovered {
    /// Reads the whole tree and makes sure that it is sound in itself.
    pub(super) fn read(fs: &dyn FileSystem) -> Result<Recovered, Violation> {
        let mut inodes: BTreeMap<Ino, RecoveredInode> = BTreeMap::new();
        let mut todo = vec![(Ino::ROOT, Ino::ROOT, String::from("/"))];
        while let Some((ino, parent, path)) = todo.pop() {
            if let Some(known) = inodes.get_mut(&ino) {
                if known.attr.kind == FileKind::Directory {
                    return Err(Violation::Unsound(format!(
                        "{path} and {} are the same directory",
                        known.path
                    )));
                }
                known.names += 1;
                continue;
            }
            let inode = read_inode(fs, ino, &path).map_err(|error| unreadable(&path, &error))?;
            if inode.attr.kind == FileKind::Directory {
                let above = fs.parent(ino).map_err(|error| unreadable(&path, &error))?;
                if above != parent {
                    return Err(Violation::Unsound(format!(
                        "the parent of {path} is inode {above}, not {parent}"
                    )));
                }
                for (name, child) in &inode.entries {
                    let path = format!("{}/{}", path.trim_end_matches('/'), String::from_utf8_lossy(name));
                    match fs.lookup(ino, name) {
                        Ok(attr) if attr.ino == *child => {}
                        found => {
                            let found = found.map(|attr| attr.ino);
                            let what =
                                format!("{path} is listed as inode {child}, but looked up as {found:?}");
                            return Err(Violation::Unsound(what));
                        }
                    }
                    todo.push((*child, ino, path));
                }
            }
            inodes.insert(ino, inode);
        }
        for (ino, inode) in &inodes {
            let subdirs =
                inode.entries.values().filter(|child| inodes[child].attr.kind == FileKind::Directory).count();
            let is_dir = inode.attr.kind == FileKind::Directory;
            let links = if is_dir { 2 + subdirs as u32 } else { inode.names };
            if inode.attr.links != links || inode.attr.ino != *ino {
                let what = format!("{} has {links} links, its attributes are {:?}", inode.path, inode.attr);
                return Err(Violation::Unsound(what));
            }
        }
        let stats = fs.statfs().map_err(|error| unreadable("statfs", &error))?;
        Ok(Recovered { inodes, counted_inodes: stats.inodes })
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<&RecoveredInode, Violation> {
        self.inodes.get(&ino).ok_or_else(|| Violation::Unsound(format!("inode {ino} is not in the tree")))
    }

    /// The content of a file.
    pub(super) fn content(&self, fs: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>, Violation> {
        let inode = self.inode(ino)?;
        let mut content = vec![0xa5; inode.attr.size as usize];
        let read = fs.read(ino, 0, &mut content).map_err(|error| unreadable(&inode.path, &error))?;
        if read as u64 != inode.attr.size {
            let what = format!("{} has {} bytes, of which {read} can be read", inode.path, inode.attr.size);
            return Err(Violation::Unsound(what));
        }
        Ok(content)
    }
}

fn read_inode(fs: &dyn FileSystem, ino: Ino, path: &str) -> FsResult<RecoveredInode> {
    let attr = fs.getattr(ino)?;
    let mut xattrs = BTreeMap::new();
    for name in fs.listxattr(ino)? {
        let value = fs.getxattr(ino, &name)?;
        xattrs.insert(name, value);
    }
    let target = if attr.kind == FileKind::Symlink { fs.readlink(ino)? } else { Vec::new() };
    let mut entries = BTreeMap::new();
    if attr.kind == FileKind::Directory {
        fs.readdir(ino, 0, &mut |entry| {
            entries.insert(entry.name.to_vec(), entry.ino);
            true
        })?;
    }
    Ok(RecoveredInode { attr, path: path.to_string(), target, xattrs, entries, names: 1 })
}

impl Recorder {
    /// Judges a volume that was opened again after the power was cut; or at any other moment, for an open volume is
    /// as if everything had been stored in time.
    pub fn check(&self, recovered: &dyn FileSystem) -> Result<(), Violation> {
        let found = Recovered::read(recovered)?;
        let reachable = found.inodes.len() as u64;
        if found.counted_inodes != self.inodes_base + reachable {
            let what = format!("statfs counts {} inodes, {reachable} can be reached", found.counted_inodes);
            return Err(Violation::Unsound(what));
        }
        let is_promise = |event: &Event| matches!(event, Event::Promise { .. });
        let promised = self.events.iter().rposition(is_promise).map_or(0, |at| at + 1);
        let mut tree = self.start.clone();
        let mut at_promise = None;
        let mut wrong_content = None;
        let mut last_difference = String::new();
        for at in 0..=self.events.len() {
            // `tree` is as after the first `at` events.
            let is_moment =
                at == promised || (at > promised && matches!(self.events[at - 1], Event::Meta(_)));
            if is_moment {
                match self.compare_names(&tree, &found) {
                    Ok(nodes) => match self.check_contents(recovered, &found, &nodes, at) {
                        Ok(()) => return Ok(()),
                        Err(violation) => wrong_content = Some(violation),
                    },
                    Err(difference) => {
                        at_promise.get_or_insert_with(|| difference.clone());
                        last_difference = difference;
                    }
                }
            }
            if let Some(Event::Meta(op)) = self.events.get(at) {
                tree.apply(op);
            }
        }
        Err(wrong_content.unwrap_or_else(|| Violation::Names {
            promised,
            at_promise: at_promise.unwrap_or_default(),
            end: self.events.len(),
            at_end: last_difference,
        }))
    }

    /// Matches the recorded names with the recovered ones: the inode of each node, or the first difference.
    fn compare_names(&self, tree: &Tree, found: &Recovered) -> Result<BTreeMap<NodeId, Ino>, String> {
        let mut inos = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        let mut todo = vec![(ROOT, Ino::ROOT)];
        while let Some((id, ino)) = todo.pop() {
            let (Some(node), Some(inode)) = (tree.node(id), found.inodes.get(&ino)) else {
                return Err(format!("inode {ino} is missing"));
            };
            let path = &inode.path;
            match (inos.insert(id, ino), nodes.insert(ino, id)) {
                (None, None) => {}
                (Some(same), Some(_)) if same == ino => continue,
                _ => return Err(format!("{path} is not the inode that its other names are")),
            }
            if self.inos.get(id).copied().flatten().is_some_and(|known| known != ino) {
                return Err(format!("{path} is inode {ino}, it was {:?}", self.inos[id]));
            }
            if (node.kind, node.perm) != (inode.attr.kind, inode.attr.perm) {
                let (kind, perm) = (inode.attr.kind, inode.attr.perm);
                return Err(format!("{path} is {kind:?} {perm:o}, not {:?} {:o}", node.kind, node.perm));
            }
            if node.target != inode.target {
                return Err(format!("{path} has another target"));
            }
            if node.xattrs != inode.xattrs {
                return Err(format!("{path} has other extended attributes"));
            }
            let missing = node.entries.keys().find(|name| !inode.entries.contains_key(*name));
            let extra = inode.entries.keys().find(|name| !node.entries.contains_key(*name));
            match (missing, extra) {
                (None, None) => {}
                (Some(name), _) => return Err(format!("{path} lacks {}", String::from_utf8_lossy(name))),
                (_, Some(name)) => {
                    return Err(format!("{path} has {} besides", String::from_utf8_lossy(name)));
                }
            }
            todo.extend(node.entries.iter().map(|(name, child)| (*child, inode.entries[name])));
        }
        Ok(inos)
    }

    /// Judges the content of every file, given that the first `names_at` events' metadata is what is durable.
    fn check_contents(
        &self,
        fs: &dyn FileSystem,
        found: &Recovered,
        nodes: &BTreeMap<NodeId, Ino>,
        names_at: usize,
    ) -> Result<(), Violation> {
        for (node, ino) in nodes {
            let inode = found.inode(*ino)?;
            if inode.attr.kind != FileKind::File {
                continue;
            }
            let possible = self.possible_contents(*node, names_at);
            possible.explain(&found.content(fs, *ino)?).map_err(|what| Violation::Content {
                path: inode.path.clone(),
                names_at,
                end: self.events.len(),
                what,
            })?;
        }
        Ok(())
    }

    /// What a file may hold when the metadata of the first `names_at` events, and no other, is durable.
    fn possible_contents(&self, file: NodeId, names_at: usize) -> Possible {
        let promises_file = |event: &Event| match event {
            Event::Promise { node } => node.is_none_or(|node| node == file),
            _ => false,
        };
        let promised = self.events.iter().rposition(promises_file).unwrap_or(0);
        let mut content = self.start_contents.get(&file).cloned().unwrap_or_default();
        for event in &self.events[..promised] {
            match event {
                Event::Write { node, offset, data } if *node == file => {
                    let (start, end) = (*offset as usize, *offset as usize + data.len());
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(data);
                }
                Event::Meta(MetaOp::Reshape { node, shape }) if *node == file => shape.apply(&mut content),
                _ => {}
            }
        }
        let mut possible = Possible::promised(content);
        for (at, event) in self.events.iter().enumerate().skip(promised) {
            match event {
                Event::Write { node, offset, data } if *node == file => possible.write(*offset, data),
                Event::Meta(MetaOp::Reshape { node, shape }) if *node == file => {
                    // What was written after a change that is not durable is not durable either.
                    if at >= names_at {
                        break;
                    }
                    possible.reshape(*shape);
                }
                _ => {}
            }
        }
        possible
    }
}
