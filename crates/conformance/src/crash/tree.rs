//! The names of a volume at one moment, and how metadata operations change them.

use super::content::Shape;
use std::collections::BTreeMap;
use weft_vfs::FileKind;

/// A node of the recorded tree: an inode, under a number that is never used again.
pub(super) type NodeId = usize;

/// The root of every tree.
pub(super) const ROOT: NodeId = 0;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) kind: FileKind,
    pub(super) perm: u32,
    /// Target of a symlink.
    pub(super) target: Vec<u8>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Entries of a directory.
    pub(super) entries: BTreeMap<Vec<u8>, NodeId>,
    /// Names that lead here.
    pub(super) names: u32,
}

/// A metadata operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MetaOp {
    Create {
        node: NodeId,
        dir: NodeId,
        name: Vec<u8>,
        kind: FileKind,
        perm: u32,
        target: Vec<u8>,
    },
    CreateUnnamed {
        node: NodeId,
        perm: u32,
    },
    Link {
        node: NodeId,
        dir: NodeId,
        name: Vec<u8>,
    },
    /// `unlink` and `rmdir`.
    Remove {
        dir: NodeId,
        name: Vec<u8>,
    },
    Rename {
        from: NodeId,
        name: Vec<u8>,
        to: NodeId,
        new_name: Vec<u8>,
        exchange: bool,
    },
    Chmod {
        node: NodeId,
        perm: u32,
    },
    /// A mode and an extended attribute in one step.
    SetBoth {
        node: NodeId,
        perm: u32,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    SetXattr {
        node: NodeId,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveXattr {
        node: NodeId,
        name: Vec<u8>,
    },
    /// Its effect is on the content, but it takes its turn among the metadata operations.
    Reshape {
        node: NodeId,
        shape: Shape,
    },
}

/// All nodes that ever were, and what leads to them now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
}

impl Node {
    pub(super) fn new(kind: FileKind, perm: u32) -> Node {
        Node { kind, perm, target: Vec::new(), xattrs: BTreeMap::new(), entries: BTreeMap::new(), names: 0 }
    }
}

impl Tree {
    /// A tree of a root.
    pub(super) fn new(root: Node) -> Tree {
        Tree { nodes: BTreeMap::from([(ROOT, root)]) }
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    pub(super) fn insert(&mut self, id: NodeId, node: Node) {
        self.nodes.insert(id, node);
    }

    /// Nodes that a name leads to.
    pub(super) fn named(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().filter(|(id, node)| **id == ROOT || node.names > 0).map(|(id, node)| (*id, node))
    }

    /// Gives a node a name, which takes it from the node that had it.
    pub(super) fn set_name(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        self.clear_name(dir, name);
        if let Some(dir) = self.nodes.get_mut(&dir) {
            dir.entries.insert(name.to_vec(), node);
        }
        if let Some(node) = self.nodes.get_mut(&node) {
            node.names += 1;
        }
    }

    fn clear_name(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let old = self.nodes.get_mut(&dir)?.entries.remove(name)?;
        if let Some(old) = self.nodes.get_mut(&old) {
            old.names -= 1;
        }
        Some(old)
    }

    pub(super) fn lookup(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.node(dir)?.entries.get(name).copied()
    }

    pub(super) fn apply(&mut self, op: &MetaOp) {
        match op {
            MetaOp::Create { node, dir, name, kind, perm, target } => {
                self.insert(*node, Node { target: target.clone(), ..Node::new(*kind, *perm) });
                self.set_name(*dir, name, *node);
            }
            MetaOp::CreateUnnamed { node, perm } => self.insert(*node, Node::new(FileKind::File, *perm)),
            MetaOp::Link { node, dir, name } => self.set_name(*dir, name, *node),
            MetaOp::Remove { dir, name } => drop(self.clear_name(*dir, name)),
            MetaOp::Rename { from, name, to, new_name, exchange } => {
                let (Some(moved), other) = (self.lookup(*from, name), self.lookup(*to, new_name)) else {
                    return;
                };
                if other == Some(moved) {
                    return;
                }
                self.clear_name(*from, name);
                self.set_name(*to, new_name, moved);
                if let (Some(other), true) = (other, *exchange) {
                    self.set_name(*from, name, other);
                }
            }
            MetaOp::Chmod { node, perm } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.perm = *perm;
                }
            }
            MetaOp::SetBoth { node, perm, name, value } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.perm = *perm;
                    node.xattrs.insert(name.clone(), value.clone());
                }
            }
            MetaOp::SetXattr { node, name, value } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.xattrs.insert(name.clone(), value.clone());
                }
            }
            MetaOp::RemoveXattr { node, name } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.xattrs.remove(name);
                }
            }
            MetaOp::Reshape { .. } => {}
        }
    }

    /// Whether `dir` is `above` or below it.
    pub(super) fn is_within(&self, dir: NodeId, above: NodeId) -> bool {
        dir == above
            || self
                .node(above)
                .is_some_and(|node| node.entries.values().any(|child| self.is_within(dir, *child)))
    }
}
