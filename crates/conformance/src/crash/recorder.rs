//! Runs operations on a core and remembers them.

use super::Violation;
use super::check::Recovered;
use super::content::Shape;
use super::tree::{MetaOp, Node, NodeId, ROOT, Tree};
use crate::fixture::{BLOCK, args};
use std::collections::BTreeMap;
use weft_core::Ino;
use weft_vfs::{
    CreateArgs, FallocateMode, FileKind, FileSystem, FsError, FsResult, NewNode, RenameFlags, SetAttr,
    XattrMode,
};

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Meta(MetaOp),
    Write {
        node: NodeId,
        offset: u64,
        data: Vec<u8>,
    },
    /// An `fsync` of the node, or a `sync`, has returned: all metadata so far, and the data of the node or of all.
    Promise {
        node: Option<NodeId>,
    },
}

/// What was done to a volume, and what was promised.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// Names and contents at the start, all of them durable.
    pub(super) start: Tree,
    pub(super) start_contents: BTreeMap<NodeId, Vec<u8>>,
    pub(super) events: Vec<Event>,
    /// The core's number of each node, once it is known.
    pub(super) inos: Vec<Option<Ino>>,
    /// Inodes that `statfs` counts and that no name leads to, such as ones that the core uses itself.
    pub(super) inodes_base: u64,
    /// Names and contents now.
    now: Tree,
    contents: BTreeMap<NodeId, Vec<u8>>,
}

/// Whether a core that gives this error has lost its device.
pub(crate) fn is_power_cut(error: &FsError) -> bool {
    matches!(error, FsError::Device(_) | FsError::ReadOnly(_))
}

impl Recorder {
    /// Begins with what is on a volume, all of which must be durable: freshly made, synced, or just recovered.
    pub fn new(fs: &dyn FileSystem) -> Result<Recorder, Violation> {
        let recovered = Recovered::read(fs)?;
        let root = recovered.inode(Ino::ROOT)?;
        let mut tree = Tree::new(Node::new(FileKind::Directory, root.attr.perm));
        let mut contents = BTreeMap::new();
        let mut inos = vec![Some(Ino::ROOT)];
        let mut ids = BTreeMap::from([(Ino::ROOT, ROOT)]);
        for (ino, inode) in recovered.inodes.iter().filter(|(ino, _)| **ino != Ino::ROOT) {
            ids.insert(*ino, inos.len());
            inos.push(Some(*ino));
            let node = Node { target: inode.target.clone(), ..Node::new(inode.attr.kind, inode.attr.perm) };
            tree.insert(ids[ino], node);
        }
        for (ino, inode) in &recovered.inodes {
            let id = ids[ino];
            for (name, value) in &inode.xattrs {
                tree.apply(&MetaOp::SetXattr { node: id, name: name.clone(), value: value.clone() });
            }
            for (name, child) in &inode.entries {
                tree.set_name(id, name, ids[child]);
            }
            if inode.attr.kind == FileKind::File {
                contents.insert(id, recovered.content(fs, *ino)?);
            }
        }
        Ok(Recorder {
            start: tree.clone(),
            start_contents: contents.clone(),
            events: Vec::new(),
            inodes_base: recovered.counted_inodes.saturating_sub(inos.len() as u64),
            inos,
            now: tree,
            contents,
        })
    }

    /// Events recorded so far.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Events so far that promised something.
    pub fn promises(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Promise { .. })).count()
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.now
    }

    /// The content of a file as a reader sees it now.
    pub(super) fn content(&self, node: NodeId) -> &[u8] {
        self.contents.get(&node).map_or(&[], Vec::as_slice)
    }

    fn ino(&self, node: NodeId) -> FsResult<Ino> {
        self.inos.get(node).copied().flatten().ok_or(FsError::Stale)
    }

    fn new_node(&mut self) -> NodeId {
        self.inos.push(None);
        self.inos.len() - 1
    }

    /// Records a metadata operation and runs it. When the power goes meanwhile, it stays on record: it may have
    /// happened.
    fn meta(&mut self, op: MetaOp, run: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        self.events.push(Event::Meta(op.clone()));
        match run() {
            Ok(()) => {
                if let MetaOp::Reshape { node, shape } = &op {
                    shape.apply(self.contents.entry(*node).or_default());
                }
                self.now.apply(&op);
                Ok(())
            }
            Err(error) => {
                if !is_power_cut(&error) {
                    self.events.pop();
                }
                Err(error)
            }
        }
    }

    pub(super) fn create(
        &mut self,
        fs: &dyn FileSystem,
        dir: NodeId,
        name: &[u8],
        new: NewNode<'_>,
    ) -> FsResult<NodeId> {
        let (kind, target) = match new {
            NewNode::File => (FileKind::File, Vec::new()),
            NewNode::Directory => (FileKind::Directory, Vec::new()),
            NewNode::Symlink(target) => (FileKind::Symlink, target.to_vec()),
            NewNode::Special(kind, _) => (kind, Vec::new()),
        };
        let dir_ino = self.ino(dir)?;
        let args = args(new);
        let node = self.new_node();
        let mut ino = None;
        self.meta(MetaOp::Create { node, dir, name: name.to_vec(), kind, perm: args.perm, target }, || {
            ino = Some(fs.create(dir_ino, name, &args)?.ino);
            Ok(())
        })?;
        self.inos[node] = ino;
        Ok(node)
    }

    pub(super) fn create_unnamed(&mut self, fs: &dyn FileSystem) -> FsResult<NodeId> {
        let args = CreateArgs { open: true, ..args(NewNode::File) };
        let node = self.new_node();
        let mut ino = None;
        self.meta(MetaOp::CreateUnnamed { node, perm: args.perm }, || {
            ino = Some(fs.create_unnamed(Ino::ROOT, &args, true)?.ino);
            Ok(())
        })?;
        self.inos[node] = ino;
        Ok(node)
    }

    pub(super) fn release(&mut self, fs: &dyn FileSystem, node: NodeId) -> FsResult<()> {
        fs.release(self.ino(node)?);
        Ok(())
    }

    pub(super) fn link(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        dir: NodeId,
        name: &[u8],
    ) -> FsResult<()> {
        let (ino, dir_ino) = (self.ino(node)?, self.ino(dir)?);
        self.meta(MetaOp::Link { node, dir, name: name.to_vec() }, || fs.link(ino, dir_ino, name).map(|_| ()))
    }

    pub(super) fn remove(&mut self, fs: &dyn FileSystem, dir: NodeId, name: &[u8]) -> FsResult<()> {
        let dir_ino = self.ino(dir)?;
        let victim = self.now.lookup(dir, name).and_then(|node| self.now.node(node));
        let is_dir = victim.is_some_and(|node| node.kind == FileKind::Directory);
        self.meta(MetaOp::Remove { dir, name: name.to_vec() }, || {
            if is_dir { fs.rmdir(dir_ino, name) } else { fs.unlink(dir_ino, name) }
        })
    }

    pub(super) fn rename(
        &mut self,
        fs: &dyn FileSystem,
        (from, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        exchange: bool,
    ) -> FsResult<()> {
        let (from_ino, to_ino) = (self.ino(from)?, self.ino(to)?);
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        let op = MetaOp::Rename { from, name: name.to_vec(), to, new_name: new_name.to_vec(), exchange };
        self.meta(op, || fs.rename(from_ino, name, to_ino, new_name, flags))
    }

    pub(super) fn chmod(&mut self, fs: &dyn FileSystem, node: NodeId, perm: u32) -> FsResult<()> {
        let ino = self.ino(node)?;
        let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
        self.meta(MetaOp::Chmod { node, perm }, || fs.setattr(ino, &set).map(|_| ()))
    }

    pub(super) fn set_xattr(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        name: &[u8],
        value: &[u8],
    ) -> FsResult<()> {
        let ino = self.ino(node)?;
        let op = MetaOp::SetXattr { node, name: name.to_vec(), value: value.to_vec() };
        self.meta(op, || fs.setxattr(ino, name, value, XattrMode::Any))
    }

    pub(super) fn set_both(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        perm: u32,
        (name, value): (&[u8], &[u8]),
    ) -> FsResult<()> {
        let ino = self.ino(node)?;
        let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
        let op = MetaOp::SetBoth { node, perm, name: name.to_vec(), value: value.to_vec() };
        self.meta(op, || fs.set_with_xattrs(ino, &set, &[(name, Some(value))]).map(|_| ()))
    }

    pub(super) fn remove_xattr(&mut self, fs: &dyn FileSystem, node: NodeId, name: &[u8]) -> FsResult<()> {
        let ino = self.ino(node)?;
        self.meta(MetaOp::RemoveXattr { node, name: name.to_vec() }, || fs.removexattr(ino, name))
    }

    pub(super) fn truncate(&mut self, fs: &dyn FileSystem, node: NodeId, size: u64) -> FsResult<()> {
        let ino = self.ino(node)?;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let op = MetaOp::Reshape { node, shape: Shape::Truncate { size } };
        self.meta(op, || fs.setattr(ino, &set).map(|_| ()))
    }

    /// Promises space for a range, and extends the file to its end unless `keep_size`.
    pub(super) fn allocate(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        range: std::ops::Range<u64>,
        keep_size: bool,
    ) -> FsResult<()> {
        let (ino, len) = (self.ino(node)?, range.end - range.start);
        if keep_size || range.end <= self.content(node).len() as u64 {
            let mode = if keep_size { FallocateMode::KeepSize } else { FallocateMode::Allocate };
            // Nothing changes that can be read.
            return fs.fallocate(ino, mode, range.start, len);
        }
        let op = MetaOp::Reshape { node, shape: Shape::Truncate { size: range.end } };
        self.meta(op, || fs.fallocate(ino, FallocateMode::Allocate, range.start, len))
    }

    /// Punches or zeroes a range within the file. Its whole blocks go in order with the metadata; what it has of
    /// others is written over with zeros.
    pub(super) fn punch(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        mode: FallocateMode,
        range: std::ops::Range<u64>,
    ) -> FsResult<()> {
        let ino = self.ino(node)?;
        let (start, end) = (range.start.next_multiple_of(BLOCK), range.end / BLOCK * BLOCK);
        let edges = if start <= end { [range.start..start, end..range.end] } else { [range.clone(), 0..0] };
        for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
            let data = vec![0; (edge.end - edge.start) as usize];
            if let Some(content) = self.contents.get_mut(&node) {
                content[edge.start as usize..edge.end as usize].fill(0);
            }
            self.events.push(Event::Write { node, offset: edge.start, data });
        }
        let op = MetaOp::Reshape { node, shape: Shape::Punch { start, end: end.max(start) } };
        self.meta(op, || fs.fallocate(ino, mode, range.start, range.end - range.start))
    }

    /// Cuts out or inserts whole blocks of a file that has been synced just before.
    pub(super) fn shift(&mut self, fs: &dyn FileSystem, node: NodeId, shape: Shape) -> FsResult<()> {
        let ino = self.ino(node)?;
        let (mode, offset, len) = match shape {
            Shape::Collapse { start, end } => (FallocateMode::CollapseRange, start, end - start),
            Shape::Insert { start, len } => (FallocateMode::InsertRange, start, len),
            Shape::Truncate { .. } | Shape::Punch { .. } => return Err(FsError::Invalid("not a shift")),
        };
        self.meta(MetaOp::Reshape { node, shape }, || fs.fallocate(ino, mode, offset, len))
    }

    /// Writes with `write`, or with `write_through`.
    pub(super) fn write(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        offset: u64,
        data: Vec<u8>,
        through: bool,
    ) -> FsResult<()> {
        let ino = self.ino(node)?;
        self.events.push(Event::Write { node, offset, data: data.clone() });
        let written =
            if through { fs.write_through(ino, offset, &data) } else { fs.write(ino, offset, &data) };
        match &written {
            Ok(()) => {
                let content = self.contents.entry(node).or_default();
                let (start, end) = (offset as usize, offset as usize + data.len());
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&data);
            }
            Err(error) if is_power_cut(error) => {}
            Err(_) => drop(self.events.pop()),
        }
        written
    }

    pub(super) fn write_back(&mut self, fs: &dyn FileSystem, node: NodeId) -> FsResult<()> {
        fs.write_back(self.ino(node)?)
    }

    pub(super) fn fsync(&mut self, fs: &dyn FileSystem, node: NodeId) -> FsResult<()> {
        fs.fsync(self.ino(node)?)?;
        self.events.push(Event::Promise { node: Some(node) });
        Ok(())
    }

    pub(super) fn sync(&mut self, fs: &dyn FileSystem) -> FsResult<()> {
        fs.sync()?;
        self.events.push(Event::Promise { node: None });
        Ok(())
    }
}
