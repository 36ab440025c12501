//! A B+tree in memory that is loaded from a file and stored to it whole, breadth first: what programs do that have no store.
//!
//! A node in the file is its level, its count, its keys, and, in a leaf, its values; the children of a level follow it in
//! order, so no pointer is stored.

use crate::{Result, TREES, Trees};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const FANOUT: usize = 342;

enum Node {
    Leaf(Box<Leaf>),
    Inner(Box<Inner>),
}

struct Leaf {
    count: usize,
    keys: [u32; FANOUT],
    values: [u64; FANOUT],
}

struct Inner {
    /// The least key of each child but the first.
    keys: Vec<u32>,
    children: Vec<Node>,
}

fn new_leaf() -> Box<Leaf> {
    Box::new(Leaf { count: 0, keys: [0; FANOUT], values: [0; FANOUT] })
}

impl Leaf {
    fn search(&self, key: u32) -> std::result::Result<usize, usize> {
        self.keys[..self.count].binary_search(&key)
    }

    fn insert(&mut self, at: usize, key: u32, value: u64) {
        self.keys.copy_within(at..self.count, at + 1);
        self.values.copy_within(at..self.count, at + 1);
        (self.keys[at], self.values[at]) = (key, value);
        self.count += 1;
    }
}

impl Node {
    fn get(&self, key: u32) -> Option<u64> {
        let mut node = self;
        loop {
            match node {
                Node::Inner(inner) => {
                    node = &inner.children[inner.keys.partition_point(|least| *least <= key)]
                }
                Node::Leaf(leaf) => return leaf.search(key).ok().map(|at| leaf.values[at]),
            }
        }
    }

    /// Puts a pair in; what split off, with its least key.
    fn insert(&mut self, key: u32, value: u64) -> Option<(u32, Node)> {
        match self {
            Node::Leaf(leaf) => match leaf.search(key) {
                Ok(at) => {
                    leaf.values[at] = value;
                    None
                }
                Err(at) if leaf.count < FANOUT => {
                    leaf.insert(at, key, value);
                    None
                }
                Err(at) => {
                    let (half, mut right) = (FANOUT / 2, new_leaf());
                    right.count = FANOUT - half;
                    right.keys[..FANOUT - half].copy_from_slice(&leaf.keys[half..]);
                    right.values[..FANOUT - half].copy_from_slice(&leaf.values[half..]);
                    leaf.count = half;
                    if at <= half {
                        leaf.insert(at, key, value)
                    } else {
                        right.insert(at - half, key, value)
                    }
                    Some((right.keys[0], Node::Leaf(right)))
                }
            },
            Node::Inner(inner) => {
                let at = inner.keys.partition_point(|least| *least <= key);
                let (least, node) = inner.children[at].insert(key, value)?;
                inner.keys.insert(at, least);
                inner.children.insert(at + 1, node);
                if inner.children.len() <= FANOUT {
                    return None;
                }
                let half = inner.children.len() / 2;
                let children = inner.children.split_off(half);
                let keys = inner.keys.split_off(half);
                let least = inner.keys.pop()?;
                Some((least, Node::Inner(Box::new(Inner { keys, children }))))
            }
        }
    }

    /// Takes a key out. Nodes are not joined: at 80 % full none becomes empty.
    fn delete(&mut self, key: u32) -> bool {
        match self {
            Node::Inner(inner) => {
                inner.children[inner.keys.partition_point(|least| *least <= key)].delete(key)
            }
            Node::Leaf(leaf) => match leaf.search(key) {
                Ok(at) => {
                    leaf.keys.copy_within(at + 1..leaf.count, at);
                    leaf.values.copy_within(at + 1..leaf.count, at);
                    leaf.count -= 1;
                    true
                }
                Err(_) => false,
            },
        }
    }
}

fn bytes_of<T>(items: &[T]) -> &[u8] {
    // SAFETY: numbers without padding; the length is that of the slice.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

fn bytes_of_mut<T>(items: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a number.
    unsafe { std::slice::from_raw_parts_mut(items.as_mut_ptr().cast(), size_of_val(items)) }
}

fn store(path: &Path, root: &Node) -> Result<()> {
    let next = path.with_extension("new");
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&next)?);
    let mut queue = VecDeque::from([root]);
    while let Some(node) = queue.pop_front() {
        match node {
            Node::Leaf(leaf) => {
                out.write_all(bytes_of(&[0u32, leaf.count as u32]))?;
                out.write_all(bytes_of(&leaf.keys[..leaf.count]))?;
                out.write_all(bytes_of(&leaf.values[..leaf.count]))?;
            }
            Node::Inner(inner) => {
                out.write_all(bytes_of(&[1u32, inner.keys.len() as u32]))?;
                out.write_all(bytes_of(&inner.keys))?;
                queue.extend(&inner.children);
            }
        }
    }
    out.into_inner()?.sync_all()?;
    Ok(std::fs::rename(next, path)?)
}

fn load(path: &Path) -> Result<Node> {
    let mut from = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut level = vec![read(&mut from)?];
    let mut levels = Vec::new();
    while let Some((Node::Inner(_), _)) = level.first() {
        let children: usize = level.iter().map(|(_, children)| children).sum();
        let below = (0..children).map(|_| read(&mut from)).collect::<Result<Vec<_>>>()?;
        levels.push(std::mem::replace(&mut level, below));
    }
    // From the leaves up, each node takes its children.
    while let Some(above) = levels.pop() {
        let mut below = level.into_iter();
        level = above
            .into_iter()
            .map(|(mut node, children)| {
                if let Node::Inner(inner) = &mut node {
                    inner.children = below.by_ref().take(children).map(|(node, _)| node).collect();
                }
                (node, children)
            })
            .collect();
    }
    Ok(level.pop().ok_or("an empty file")?.0)
}

/// A node without its children, and how many it has.
fn read(from: &mut impl Read) -> Result<(Node, usize)> {
    let mut head = [0u32; 2];
    from.read_exact(bytes_of_mut(&mut head))?;
    let count = head[1] as usize;
    if head[0] == 0 {
        let mut leaf = new_leaf();
        leaf.count = count;
        from.read_exact(bytes_of_mut(&mut leaf.keys[..count]))?;
        from.read_exact(bytes_of_mut(&mut leaf.values[..count]))?;
        return Ok((Node::Leaf(leaf), 0));
    }
    let mut keys = vec![0u32; count];
    from.read_exact(bytes_of_mut(&mut keys))?;
    Ok((Node::Inner(Box::new(Inner { keys, children: Vec::new() })), count + 1))
}

pub struct FileTrees {
    dir: PathBuf,
    trees: Vec<Node>,
    is_changed: bool,
}

fn path(dir: &Path, at: usize) -> PathBuf {
    dir.join(format!("tree-{at}"))
}

/// Stores trees whose nodes are `percent` full.
pub fn fill<I: Iterator<Item = (u32, u64)>>(dir: &Path, percent: usize, pairs: impl Fn() -> I) -> Result<()> {
    for at in 0..TREES {
        let most = FANOUT * percent / 100;
        let mut level: Vec<(u32, Node)> = Vec::new();
        for (key, value) in pairs() {
            match level.last_mut() {
                Some((_, Node::Leaf(leaf))) if leaf.count < most => leaf.insert(leaf.count, key, value),
                _ => {
                    let mut leaf = new_leaf();
                    leaf.insert(0, key, value);
                    level.push((key, Node::Leaf(leaf)));
                }
            }
        }
        while level.len() > 1 {
            let mut above = Vec::new();
            let mut nodes = level.into_iter().peekable();
            while nodes.peek().is_some() {
                let group: Vec<_> = nodes.by_ref().take(FANOUT).collect();
                let keys = group[1..].iter().map(|(key, _)| *key).collect();
                let least = group[0].0;
                let children = group.into_iter().map(|(_, node)| node).collect();
                above.push((least, Node::Inner(Box::new(Inner { keys, children }))));
            }
            level = above;
        }
        let root = level.pop().map_or_else(|| Node::Leaf(new_leaf()), |(_, root)| root);
        store(&path(dir, at), &root)?;
    }
    Ok(())
}

impl FileTrees {
    pub fn open(dir: &Path) -> Result<FileTrees> {
        let trees = (0..TREES).map(|at| load(&path(dir, at))).collect::<Result<_>>()?;
        Ok(FileTrees { dir: dir.to_owned(), trees, is_changed: false })
    }
}

impl Trees for FileTrees {
    fn get(&mut self, tree: usize, keys: &[u32], each: &mut dyn FnMut(Option<u64>)) -> Result<()> {
        keys.iter().for_each(|key| each(self.trees[tree].get(*key)));
        Ok(())
    }

    fn insert(&mut self, tree: usize, pairs: &[(u32, u64)]) -> Result<()> {
        self.is_changed = true;
        for (key, value) in pairs {
            let root = &mut self.trees[tree];
            if let Some((least, node)) = root.insert(*key, *value) {
                let left = std::mem::replace(root, Node::Leaf(new_leaf()));
                *root = Node::Inner(Box::new(Inner { keys: vec![least], children: vec![left, node] }));
            }
        }
        Ok(())
    }

    fn delete(&mut self, tree: usize, keys: &[u32]) -> Result<u64> {
        self.is_changed = true;
        Ok(keys.iter().map(|key| u64::from(self.trees[tree].delete(*key))).sum())
    }

    fn sync(&mut self) -> Result<()> {
        if self.is_changed {
            for (at, root) in self.trees.iter().enumerate() {
                store(&path(&self.dir, at), root)?;
            }
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        // The process ends; there is nothing to be gained from giving every node back.
        std::mem::forget(self);
        Ok(())
    }
}
