//! The inodes that the kernel knows: for each, the name by which it was met last, from which placement and reports make a path.
//!
//! A node lives from its first look-up until the kernel has forgotten as many as there were.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use weft_core::Ino;

/// More components than a path of the kernel can have; a name that was moved meanwhile could lead round in a circle.
const DEPTH_MAX: usize = 2048;

struct Node {
    parent: Ino,
    name: Box<[u8]>,
    lookups: u64,
    /// The server keeps the inode for the kernel, without a name perhaps.
    is_kept: bool,
}

/// All nodes but the root.
#[derive(Default)]
pub struct Nodes(Mutex<FxHashMap<Ino, Node>>);

impl Nodes {
    /// The kernel is told of an inode that has this name. Whether it did not know it.
    pub fn meet(&self, ino: Ino, parent: Ino, name: &[u8]) -> bool {
        let mut nodes = self.0.lock();
        let node = nodes.entry(ino).or_insert_with(|| Node {
            parent,
            name: name.into(),
            lookups: 0,
            is_kept: false,
        });
        node.lookups += 1;
        if node.parent != parent || *node.name != *name {
            (node.parent, node.name) = (parent, name.into());
        }
        node.lookups == 1
    }

    /// The same of an inode of which the kernel gave the number; a name that it has been met by stays.
    pub fn meet_unnamed(&self, ino: Ino) {
        if ino == Ino::ROOT {
            return;
        }
        let unnamed = || Node { parent: Ino::ROOT, name: Box::default(), lookups: 0, is_kept: false };
        self.0.lock().entry(ino).or_insert_with(unnamed).lookups += 1;
    }

    /// Whether the kernel knows an inode.
    pub fn has(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.0.lock().contains_key(&ino)
    }

    /// All inodes that the kernel knows.
    pub fn all(&self) -> Vec<Ino> {
        std::iter::once(Ino::ROOT).chain(self.0.lock().keys().copied()).collect()
    }

    /// An inode has got another name.
    pub fn rename(&self, ino: Ino, parent: Ino, name: &[u8]) {
        if let Some(node) = self.0.lock().get_mut(&ino) {
            (node.parent, node.name) = (parent, name.into());
        }
    }

    /// The kernel forgets that it was told of an inode, so many times. Whether the inode was kept until now.
    pub fn forget(&self, ino: Ino, lookups: u64) -> bool {
        let mut nodes = self.0.lock();
        let Some(node) = nodes.get_mut(&ino) else { return false };
        node.lookups = node.lookups.saturating_sub(lookups);
        node.lookups == 0 && nodes.remove(&ino).is_some_and(|node| node.is_kept)
    }

    /// Notes that an inode is kept, unless it is already, or the kernel does not know it.
    pub fn keep(&self, ino: Ino) -> bool {
        let mut nodes = self.0.lock();
        let Some(node) = nodes.get_mut(&ino) else { return false };
        !std::mem::replace(&mut node.is_kept, true)
    }

    /// Forgets all; those that were kept.
    pub fn forget_all(&self) -> Vec<Ino> {
        let nodes = std::mem::take(&mut *self.0.lock());
        nodes.into_iter().filter(|(_, node)| node.is_kept).map(|(ino, _)| ino).collect()
    }

    /// The path by which an inode was met, from the volume's root.
    pub fn path(&self, ino: Ino) -> Vec<u8> {
        let nodes = self.0.lock();
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while let (Some(node), true) = (nodes.get(&at), names.len() < DEPTH_MAX) {
            names.push(&node.name);
            at = node.parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_path_of_its_last_name_until_it_is_forgotten() {
        let nodes = Nodes::default();
        let (dir, file) = (Ino(2), Ino(3));
        nodes.meet(dir, Ino::ROOT, b"d");
        nodes.meet(file, dir, b"f");
        nodes.meet(file, dir, b"g");
        assert_eq!((nodes.path(Ino::ROOT), nodes.path(file)), (b"/".to_vec(), b"/d/g".to_vec()));
        nodes.rename(dir, Ino::ROOT, b"e");
        assert_eq!(nodes.path(file), b"/e/g");
        nodes.meet_unnamed(file);
        assert!(!nodes.forget(file, 2));
        assert_eq!(nodes.path(file), b"/e/g");
        nodes.meet_unnamed(Ino(4));
        nodes.meet_unnamed(Ino::ROOT);
        assert_eq!((nodes.path(Ino(4)), nodes.path(Ino::ROOT)), (b"/".to_vec(), b"/".to_vec()));
        assert!(!nodes.forget(Ino(4), 1) && !nodes.has(Ino(4)));
        // It is kept once.
        assert!(nodes.keep(file) && !nodes.keep(file) && !nodes.keep(Ino(9)));
        assert!(nodes.forget(file, 1) && !nodes.forget(file, 1));
        assert_eq!(nodes.path(file), b"/");
        // A name that was moved below itself, as the front may see two renames.
        nodes.rename(dir, dir, b"e");
        assert_eq!(nodes.path(dir).len(), 2 * DEPTH_MAX);
        assert!(nodes.keep(dir));
        assert_eq!((nodes.forget_all(), nodes.path(dir)), (vec![dir], b"/".to_vec()));
    }
}
