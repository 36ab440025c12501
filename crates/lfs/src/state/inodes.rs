//! The table of inodes.
//!
//! Inodes that are made one after the other have numbers one after the other, and are mostly used so: what a checkpoint, a listing or
//! the removal of a directory goes through lies together here.

use super::inode::Inode;
use rustc_hash::FxHashMap;
use weft_sys::paging;

/// Inodes of a page. One that is left alone in its page costs as much memory as 16.
const PAGE: u64 = 16;

type Page = [Option<Box<Inode>>; PAGE as usize];

/// Inodes by their numbers.
#[derive(Default, Debug)]
pub struct Inodes {
    /// By number of the first inode, in pages. None is empty.
    pages: FxHashMap<u64, Box<Page>>,
    len: usize,
}

impl Inodes {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.len
    }

    /// An inode.
    pub fn get(&self, ino: u64) -> Option<&Inode> {
        self.pages.get(&(ino / PAGE))?[(ino % PAGE) as usize].as_deref()
    }

    /// An inode, to be changed.
    pub fn get_mut(&mut self, ino: u64) -> Option<&mut Inode> {
        self.pages.get_mut(&(ino / PAGE))?[(ino % PAGE) as usize].as_deref_mut()
    }

    /// Whether there is an inode of this number.
    pub fn contains(&self, ino: u64) -> bool {
        self.get(ino).is_some()
    }

    /// Puts in an inode, in the place of one of the same number.
    pub fn insert(&mut self, ino: u64, inode: Inode) -> &mut Inode {
        let place = &mut self.pages.entry(ino / PAGE).or_default()[(ino % PAGE) as usize];
        self.len += usize::from(place.is_none());
        place.insert(Box::new(inode))
    }

    /// Takes out an inode.
    pub fn remove(&mut self, ino: u64) -> Option<Box<Inode>> {
        let page = self.pages.get_mut(&(ino / PAGE))?;
        let inode = page[(ino % PAGE) as usize].take()?;
        if page.iter().all(Option::is_none) {
            self.pages.remove(&(ino / PAGE));
        }
        self.len -= 1;
        Some(inode)
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Inode)> {
        let mut pages: Vec<(u64, &Page)> = self.pages.iter().map(|(at, page)| (*at, &**page)).collect();
        pages.sort_unstable_by_key(|(at, _)| *at);
        let numbered = pages.into_iter().flat_map(|(at, page)| (at * PAGE..).zip(page.iter()));
        numbered.filter_map(|(ino, inode)| Some((ino, inode.as_deref()?)))
    }

    /// Their numbers, in order.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.iter().map(|(ino, _)| ino)
    }

    /// All of them, in the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = &Inode> {
        self.iter().map(|(_, inode)| inode)
    }

    /// All of them, to be changed, in the order of their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Inode)> {
        let mut pages: Vec<(u64, &mut Page)> =
            self.pages.iter_mut().map(|(at, page)| (*at, &mut **page)).collect();
        pages.sort_unstable_by_key(|(at, _)| *at);
        let numbered = pages.into_iter().flat_map(|(at, page)| (at * PAGE..).zip(page.iter_mut()));
        numbered.filter_map(|(ino, inode)| Some((ino, inode.as_deref_mut()?)))
    }
}

impl Drop for Inodes {
    /// In the order in which most were made, and so lie in memory: where memory is bounded, each part of it is read once.
    fn drop(&mut self) {
        let _in_order = paging::in_order();
        let mut pages: Vec<_> = std::mem::take(&mut self.pages).into_iter().collect();
        pages.sort_unstable_by_key(|(at, _)| *at);
    }
}

#[cfg(test)]
mod tests {
    use crate::state::tree::Tree;
    use weft_core::Ino;
    use weft_vfs::FileKind;

    #[test]
    fn inodes_come_in_order_and_pages_go_with_the_last_of_theirs() {
        let mut tree = Tree::new(1, (0, 0), 0);
        let numbers = [17, 16, 900, 2, 15, 1 << 61];
        for ino in numbers {
            let bare = crate::layout::record::NewInode::bare(Ino(ino), FileKind::File, 0o600);
            tree.add_inode(&bare, Ino::ROOT);
        }
        let inodes = &mut tree.inodes;
        assert_eq!(inodes.iter().map(|(ino, _)| ino).collect::<Vec<_>>(), [1, 2, 15, 16, 17, 900, 1 << 61]);
        assert_eq!((inodes.count(), inodes.pages.len()), (7, 4));
        for ino in numbers {
            assert!(inodes.contains(ino) && inodes.remove(ino).is_some());
            assert!(!inodes.contains(ino) && inodes.remove(ino).is_none());
        }
        assert_eq!((inodes.count(), inodes.pages.len()), (1, 1));
    }
}
