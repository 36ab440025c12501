//! Whether names and inodes fit together: every name leads to an inode, every inode has as many names as links, and
//! directories are a tree.
//!
//! What this code writes always does. A volume that somebody made, or that was written by a defect, may not, and then
//! what works on names would destroy what they stand for: so a mount looks first.

use super::inode::{ENTRY_BYTES, Inode};
use super::tree::Tree;
use crate::layout::record::NewInode;
use rustc_hash::{FxHashMap, FxHashSet};
use weft_core::Ino;
use weft_vfs::FileKind;

/// Something about an inode that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameProblem {
    /// The inode.
    pub ino: Ino,
    /// What does not fit.
    pub what: String,
}

/// A count for each inode. Numbers of inodes are mostly dense: then there is a table of them.
#[derive(Default)]
struct Counts {
    dense: Vec<u32>,
    others: FxHashMap<u64, u32>,
}

impl Counts {
    /// For the inodes of a tree.
    fn of(tree: &Tree) -> Counts {
        let end = tree.next_ino.min(tree.inodes.count() as u64 * 4) as usize;
        Counts { dense: vec![0; end], others: FxHashMap::default() }
    }

    fn add(&mut self, ino: Ino) {
        match self.dense.get_mut(usize::try_from(ino.0).unwrap_or(usize::MAX)) {
            Some(count) => *count += 1,
            None => *self.others.entry(ino.0).or_default() += 1,
        }
    }

    fn get(&self, ino: Ino) -> u32 {
        let dense = self.dense.get(usize::try_from(ino.0).unwrap_or(usize::MAX));
        dense.or_else(|| self.others.get(&ino.0)).copied().unwrap_or(0)
    }
}

/// A walk over all names from the root.
#[derive(Default)]
struct Walk {
    /// Names of each inode.
    names: Counts,
    /// Directories among the entries of each directory.
    subdirectories: FxHashMap<u64, u32>,
    /// Entries that lead nowhere, or to a directory that has a name already: directory, name.
    astray: Vec<(Ino, Box<[u8]>)>,
    /// The directory that each directory was reached from.
    parents: FxHashMap<u64, Ino>,
    problems: Vec<NameProblem>,
}

impl Walk {
    fn over(tree: &Tree) -> Walk {
        let mut walk = Walk { names: Counts::of(tree), ..Walk::default() };
        let mut todo = vec![Ino::ROOT];
        let mut entered = FxHashSet::from_iter([Ino::ROOT.0]);
        while let Some(dir) = todo.pop() {
            let Some(directory) = tree.get(dir).and_then(Inode::directory) else { continue };
            for (_, name, ino) in directory.after(0) {
                let shown = String::from_utf8_lossy(name);
                let Some(inode) = tree.get(ino) else {
                    walk.note(dir, format!("entry '{shown}' names inode {ino}, which does not exist"));
                    walk.astray.push((dir, name.into()));
                    continue;
                };
                if let Some(child) = inode.directory() {
                    if !entered.insert(ino.0) {
                        walk.note(ino, format!("directory with a second name '{shown}' in {dir}"));
                        walk.astray.push((dir, name.into()));
                        continue;
                    }
                    if child.parent != dir {
                        walk.note(ino, format!("parent is {}, but it is named in {dir}", child.parent));
                    }
                    walk.parents.insert(ino.0, dir);
                    *walk.subdirectories.entry(dir.0).or_default() += 1;
                    todo.push(ino);
                }
                walk.names.add(ino);
            }
        }
        for (ino, inode) in tree.inodes.iter() {
            if !walk.reaches(Ino(ino)) {
                walk.note(Ino(ino), format!("orphan: no name leads to it, {} links", inode.links));
                continue;
            }
            let links = walk.links(Ino(ino), inode);
            if inode.links != links {
                walk.note(Ino(ino), format!("has {} links, {links} are found", inode.links));
            }
            if inode.directory().is_some_and(|directory| directory.subdirectories != walk.below(Ino(ino))) {
                walk.note(
                    Ino(ino),
                    format!("counts other directories in it than the {}", walk.below(Ino(ino))),
                );
            }
            if ino >= tree.next_ino {
                walk.note(Ino(ino), format!("number not below the next one, {}", tree.next_ino));
            }
        }
        walk
    }

    fn note(&mut self, ino: Ino, what: String) {
        self.problems.push(NameProblem { ino, what });
    }

    fn reaches(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.names.get(ino) > 0
    }

    fn below(&self, dir: Ino) -> u32 {
        self.subdirectories.get(&dir.0).copied().unwrap_or(0)
    }

    /// Links that an inode has to have.
    fn links(&self, ino: Ino, inode: &Inode) -> u32 {
        match inode.directory() {
            Some(_) => 2 + self.below(ino),
            None => self.names.get(ino),
        }
    }
}

/// What does not fit.
pub fn problems(tree: &Tree) -> Vec<NameProblem> {
    Walk::over(tree).problems
}

/// Name of the directory for what no name leads to.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";

/// What [`mend`] did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Mended {
    /// Names that went, because they led nowhere: directory, name.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Inodes that no name led to. They have names `#NUMBER` in [`LOST_AND_FOUND`] now.
    pub orphans: Vec<Ino>,
}

/// Makes names and inodes fit: names that lead nowhere go, what no name leads to comes to [`LOST_AND_FOUND`] with all
/// below it.
pub fn mend(tree: &mut Tree) -> Mended {
    let walk = Walk::over(tree);
    let names: Vec<_> = walk.astray.iter().map(|(dir, name)| (*dir, name.to_vec())).collect();
    for (dir, name) in &names {
        remove_name(tree, *dir, name);
    }
    let orphans = find_orphans(tree, &walk);
    if !orphans.is_empty() {
        let home = lost_and_found(tree);
        for ino in &orphans {
            let is_dir = tree.get(*ino).is_some_and(|inode| inode.directory().is_some());
            if is_dir && let Some(directory) = tree.get_mut(*ino).and_then(Inode::directory_mut) {
                directory.parent = home;
            }
            let name = format!("#{ino}");
            add_name(tree, home, name.as_bytes(), *ino);
        }
    }
    let walk = Walk::over(tree);
    // What is named below an orphan may be named twice, as directories must not be.
    for (dir, name) in &walk.astray {
        remove_name(tree, *dir, name);
    }
    for (ino, inode) in tree.inodes.iter_mut() {
        inode.links = walk.links(Ino(ino), inode);
        if let Some(directory) = inode.directory_mut() {
            directory.subdirectories = walk.below(Ino(ino));
            directory.parent = walk.parents.get(&ino).copied().unwrap_or(Ino::ROOT);
        }
    }
    let last = tree.inodes.keys().max().unwrap_or(0);
    tree.next_ino = tree.next_ino.max(last + 1);
    Mended { names, orphans }
}

/// Inodes that no name leads to, but for what is below them. Where they name each other in a circle, their names go.
fn find_orphans(tree: &mut Tree, walk: &Walk) -> Vec<Ino> {
    let mut unreached: Vec<Ino> = tree.inodes.keys().map(Ino).filter(|ino| !walk.reaches(*ino)).collect();
    unreached.sort_unstable();
    let below = |tree: &Tree, dirs: &[Ino]| -> FxHashSet<u64> {
        let named = dirs.iter().filter_map(|ino| tree.get(*ino)?.directory());
        named.flat_map(|directory| directory.after(0).map(|(_, _, ino)| ino.0)).collect()
    };
    let named = below(tree, &unreached);
    let mut tops: Vec<Ino> = unreached.iter().copied().filter(|ino| !named.contains(&ino.0)).collect();
    let mut reached: FxHashSet<u64> = tops.iter().map(|ino| ino.0).collect();
    let mut todo = tops.clone();
    while let Some(dir) = todo.pop() {
        for ino in below(tree, &[dir]) {
            if reached.insert(ino) {
                todo.push(Ino(ino));
            }
        }
    }
    let is_dir = |ino: &Ino| tree.get(*ino).is_some_and(|inode| inode.directory().is_some());
    let circles: Vec<Ino> =
        unreached.into_iter().filter(|ino| !reached.contains(&ino.0) && is_dir(ino)).collect();
    let among: FxHashSet<u64> = circles.iter().map(|ino| ino.0).collect();
    for dir in &circles {
        let named = tree.get(*dir).and_then(Inode::directory).into_iter().flat_map(|d| d.after(0));
        let names: Vec<Box<[u8]>> =
            named.filter(|(.., ino)| among.contains(&ino.0)).map(|(_, name, _)| name.into()).collect();
        names.iter().for_each(|name| remove_name(tree, *dir, name));
    }
    tops.extend(circles);
    tops
}

fn remove_name(tree: &mut Tree, dir: Ino, name: &[u8]) {
    if let Some(directory) = tree.get_mut(dir).and_then(Inode::directory_mut)
        && directory.remove(name).is_some()
    {
        tree.saved_bytes = tree.saved_bytes.saturating_sub((ENTRY_BYTES + name.len()) as u64);
    }
}

fn add_name(tree: &mut Tree, dir: Ino, name: &[u8], ino: Ino) {
    if let Some(directory) = tree.get_mut(dir).and_then(Inode::directory_mut)
        && directory.insert(name, ino)
    {
        tree.saved_bytes += (ENTRY_BYTES + name.len()) as u64;
    }
}

/// The directory for orphans; made when it is not there.
fn lost_and_found(tree: &mut Tree) -> Ino {
    let mut name = LOST_AND_FOUND.to_vec();
    while let Some(entry) = tree.get(Ino::ROOT).and_then(Inode::directory).and_then(|root| root.get(&name)) {
        let there = tree.get(entry.ino).and_then(Inode::directory);
        // Orphans are known by their numbers, so that a name can be taken only by what was given it earlier.
        if there.is_some_and(|directory| directory.after(0).all(|(_, name, _)| !name.starts_with(b"#"))) {
            return entry.ino;
        }
        name.push(b'.');
    }
    let last = tree.inodes.keys().max().unwrap_or(0);
    let ino = Ino(tree.next_ino.max(last + 1));
    tree.add_inode(&NewInode::bare(ino, FileKind::Directory, 0o700), Ino::ROOT);
    add_name(tree, Ino::ROOT, &name, ino);
    ino
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::layout::record::Record;

    type Spoil = fn(&mut Tree);

    const DIR: Ino = Ino(2);
    const BELOW: Ino = Ino(3);
    const FILE: Ino = Ino(4);

    fn create(tree: &mut Tree, dir: Ino, name: &[u8], ino: Ino, kind: FileKind) {
        let tag = weft_core::Tag::default();
        let node = NewInode {
            ino,
            kind,
            perm: 0o700,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: b"",
            tag,
            time: 1,
            born_at: 0,
        };
        tree.apply(&Record::Create { dir, name, node }, &mut ()).unwrap();
    }

    /// `/d/below`, and a file with two names.
    fn tree() -> Tree {
        let mut tree = Tree::new(1 << 20, (0, 0), 0);
        create(&mut tree, Ino::ROOT, b"d", DIR, FileKind::Directory);
        create(&mut tree, DIR, b"below", BELOW, FileKind::Directory);
        create(&mut tree, DIR, b"f", FILE, FileKind::File);
        tree.apply(&Record::Link { ino: FILE, dir: Ino::ROOT, name: b"g", time: 2 }, &mut ()).unwrap();
        tree
    }

    fn apply(tree: &mut Tree, record: Record<'_>) {
        tree.apply(&record, &mut ()).unwrap();
    }

    #[test]
    fn what_records_make_fits() {
        assert_eq!(problems(&tree()), []);
    }

    #[test]
    fn what_does_not_fit_is_told_and_mended() {
        let rename =
            |from, to, name, new_name| Record::Rename { from, to, name, new_name, exchange: false, time: 3 };
        let cases: [(Spoil, Record<'_>, &str, usize); 6] = [
            (|_| {}, Record::Free { ino: FILE }, "names inode 4, which does not exist", 3),
            // A directory into itself: nothing leads to it any more.
            (|_| {}, rename(Ino::ROOT, BELOW, b"d", b"d"), "orphan: no name leads to it", 5),
            (
                |t| t.get_mut(FILE).unwrap().links = 1,
                Record::Free { ino: BELOW },
                "has 1 links, 2 are found",
                3,
            ),
            (
                |t| t.get_mut(DIR).unwrap().links = 9,
                Record::Free { ino: BELOW },
                "has 9 links, 2 are found",
                3,
            ),
            (
                |t| t.get_mut(BELOW).unwrap().directory_mut().unwrap().parent = FILE,
                Record::Unlink { dir: DIR, name: b"f", time: 1 },
                "parent is 4, but it is named in 2",
                4,
            ),
            (
                |t| assert!(t.get_mut(BELOW).unwrap().directory_mut().unwrap().insert(b"up", DIR)),
                Record::Unlink { dir: DIR, name: b"f", time: 1 },
                "directory with a second name 'up' in 3",
                4,
            ),
        ];
        for (spoil, record, says, left) in cases {
            let mut tree = tree();
            spoil(&mut tree);
            apply(&mut tree, record);
            let told: Vec<String> = problems(&tree).into_iter().map(|problem| problem.what).collect();
            assert!(told.iter().any(|what| what.contains(says)), "{told:?}\nwanted {says}");
            mend(&mut tree);
            assert_eq!((problems(&tree), tree.inodes.count()), (Vec::new(), left), "{says}");
        }
    }
}
