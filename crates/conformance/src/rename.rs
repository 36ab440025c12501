//! Names move.

use super::Make;
use super::fixture::{Fixture, assert_fails, assert_same, bytes};
use weft_core::Ino;
use weft_vfs::{FileKind, FsError, NewNode, RenameFlags};

const PLAIN: RenameFlags = RenameFlags::empty();
const NO_REPLACE: RenameFlags = RenameFlags::NO_REPLACE;
const EXCHANGE: RenameFlags = RenameFlags::EXCHANGE;
const WHITEOUT: RenameFlags = RenameFlags::WHITEOUT;
const ROOT: Ino = Ino::ROOT;

/// The inode stays the same, the old name is gone.
pub fn a_renamed_file_is_the_same_inode(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("a", b"content");
    fs.rename(ROOT, b"a", ROOT, b"b", PLAIN).unwrap();
    assert_fails!(fs.ino("a"), FsError::NotFound);
    assert_eq!(fs.ino("b").unwrap(), ino);
    assert_eq!(fs.attr(ino).links, 1);
    assert_eq!(fs.content(ino), b"content");
    assert_eq!(fs.list(ROOT), ["b"]);
}

/// A file moves between directories.
pub fn a_file_moves_to_another_directory(make: Make<'_>) {
    let fs = &*make();
    let (from, to) = (fs.dir("from"), fs.dir("to"));
    let ino = fs.make(from, b"file", NewNode::File);
    fs.rename(from, b"file", to, b"moved", PLAIN).unwrap();
    assert!(fs.list(from).is_empty());
    assert_eq!(fs.lookup(to, b"moved").unwrap().ino, ino);
}

/// A directory that moves takes what is in it along, and the link counts and the parent follow.
pub fn a_directory_moves_with_all_that_is_in_it(make: Make<'_>) {
    let fs = &*make();
    let (from, to) = (fs.dir("from"), fs.dir("to"));
    let dir = fs.make(from, b"dir", NewNode::Directory);
    let file = fs.make(dir, b"file", NewNode::File);
    fs.rename(from, b"dir", to, b"dir", PLAIN).unwrap();
    assert_eq!(fs.lookup(to, b"dir").unwrap().ino, dir);
    assert_eq!(fs.lookup(dir, b"file").unwrap().ino, file);
    assert_eq!(fs.parent(dir).unwrap(), to);
    assert_eq!((fs.attr(from).links, fs.attr(to).links, fs.attr(dir).links), (2, 3, 2));
}

/// What had the new name is gone, and with it its inode.
pub fn a_rename_replaces_the_file_that_had_the_name(make: Make<'_>) {
    let fs = &*make();
    let new = fs.file_with("new", b"new");
    let old = fs.file_with("old", b"old content");
    fs.rename(ROOT, b"new", ROOT, b"old", PLAIN).unwrap();
    assert_eq!(fs.list(ROOT), ["old"]);
    assert_eq!(fs.ino("old").unwrap(), new);
    assert_eq!(fs.content(new), b"new");
    assert_fails!(fs.getattr(old), FsError::Stale);
}

/// A replaced file that has another name loses one link.
pub fn a_replaced_file_keeps_its_other_names(make: Make<'_>) {
    let fs = &*make();
    fs.file("new");
    let old = fs.file_with("old", b"old");
    fs.link(old, ROOT, b"other").unwrap();
    fs.rename(ROOT, b"new", ROOT, b"old", PLAIN).unwrap();
    assert_eq!(fs.attr(old).links, 1);
    assert_eq!(fs.content(fs.ino("other").unwrap()), b"old");
}

/// A replaced file that is open is there until it is closed.
pub fn a_file_that_is_replaced_while_open_stays_readable(make: Make<'_>) {
    let fs = &*make();
    let content = bytes(3, 9000);
    let old = fs.file_with("CURRENT", &content);
    fs.open(old).unwrap();
    let new = fs.file_with("CURRENT.tmp", b"new");
    fs.rename(ROOT, b"CURRENT.tmp", ROOT, b"CURRENT", PLAIN).unwrap();
    assert_eq!(fs.ino("CURRENT").unwrap(), new);
    assert_eq!(fs.attr(old).links, 0);
    assert_same(&fs.content(old), &content, "the replaced file");
    fs.write(old, 9000, b"more").unwrap();
    assert_eq!(fs.attr(old).size, 9004);
    fs.release(old);
    assert_fails!(fs.getattr(old), FsError::Stale);
}

/// A source that is not there is `NotFound`, and nothing changes.
pub fn renaming_a_missing_name_is_not_found(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("b");
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", PLAIN), FsError::NotFound);
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"c", PLAIN), FsError::NotFound);
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"a", PLAIN), FsError::NotFound);
    assert_eq!(fs.ino("b").unwrap(), ino);
}

/// A rename from or into what is no directory fails.
pub fn a_rename_is_between_directories(make: Make<'_>) {
    let fs = &*make();
    let (a, b) = (fs.file("a"), fs.file("b"));
    assert_fails!(fs.rename(ROOT, b"a", b, b"x", PLAIN), FsError::NotDirectory);
    assert_fails!(fs.rename(b, b"x", ROOT, b"a", PLAIN), FsError::NotDirectory);
    assert_eq!((fs.ino("a").unwrap(), fs.ino("b").unwrap()), (a, b));
}

/// A name that is renamed to itself stays.
pub fn renaming_a_name_to_itself_changes_nothing(make: Make<'_>) {
    let fs = &*make();
    let (file, dir) = (fs.file_with("file", b"x"), fs.dir("dir"));
    fs.rename(ROOT, b"file", ROOT, b"file", PLAIN).unwrap();
    fs.rename(ROOT, b"dir", ROOT, b"dir", PLAIN).unwrap();
    fs.rename(ROOT, b"file", ROOT, b"file", EXCHANGE).unwrap();
    assert_eq!((fs.ino("file").unwrap(), fs.ino("dir").unwrap()), (file, dir));
    assert_eq!((fs.attr(file).links, fs.attr(dir).links, fs.attr(ROOT).links), (1, 2, 3));
}

/// POSIX: when both names are the same inode's, both stay.
pub fn renaming_one_hard_link_to_another_changes_nothing(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    let ino = fs.file("a");
    fs.link(ino, dir, b"b").unwrap();
    fs.rename(ROOT, b"a", dir, b"b", PLAIN).unwrap();
    assert_eq!((fs.ino("a").unwrap(), fs.lookup(dir, b"b").unwrap().ino), (ino, ino));
    assert_eq!(fs.attr(ino).links, 2);
}

/// An empty directory is replaced by a directory.
pub fn a_directory_replaces_an_empty_directory(make: Make<'_>) {
    let fs = &*make();
    let parent = fs.dir("parent");
    let moved = fs.dir("moved");
    let file = fs.make(moved, b"file", NewNode::File);
    let replaced = fs.make(parent, b"empty", NewNode::Directory);
    fs.rename(ROOT, b"moved", parent, b"empty", PLAIN).unwrap();
    assert_eq!(fs.lookup(parent, b"empty").unwrap().ino, moved);
    assert_eq!(fs.lookup(moved, b"file").unwrap().ino, file);
    assert_fails!(fs.getattr(replaced), FsError::Stale);
    assert_eq!((fs.attr(ROOT).links, fs.attr(parent).links), (3, 3));
    assert_eq!(fs.parent(moved).unwrap(), parent);
}

/// Within one directory the parent loses the replaced directory's link.
pub fn replacing_a_sibling_directory_drops_a_link_of_the_parent(make: Make<'_>) {
    let fs = &*make();
    let a = fs.dir("a");
    fs.dir("b");
    fs.rename(ROOT, b"a", ROOT, b"b", PLAIN).unwrap();
    assert_eq!(fs.ino("b").unwrap(), a);
    assert_eq!(fs.attr(ROOT).links, 3);
}

/// A directory with entries is not replaced.
pub fn a_directory_that_is_not_empty_is_not_replaced(make: Make<'_>) {
    let fs = &*make();
    let (a, b) = (fs.dir("a"), fs.dir("b"));
    fs.make(b, b"file", NewNode::File);
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", PLAIN), FsError::NotEmpty);
    assert_eq!((fs.ino("a").unwrap(), fs.ino("b").unwrap()), (a, b));
}

/// A file does not replace a directory, nor a directory a file.
pub fn files_and_directories_do_not_replace_each_other(make: Make<'_>) {
    let fs = &*make();
    let (file, dir) = (fs.file("file"), fs.dir("dir"));
    assert_fails!(fs.rename(ROOT, b"file", ROOT, b"dir", PLAIN), FsError::IsDirectory);
    assert_fails!(fs.rename(ROOT, b"dir", ROOT, b"file", PLAIN), FsError::NotDirectory);
    assert_eq!((fs.ino("file").unwrap(), fs.ino("dir").unwrap()), (file, dir));
    assert_eq!(fs.attr(ROOT).links, 3);
}

/// A symlink is replaced itself, not what it points to.
pub fn a_rename_replaces_a_symlink_itself(make: Make<'_>) {
    let fs = &*make();
    let target = fs.file_with("target", b"target");
    let symlink = fs.make(ROOT, b"symlink", NewNode::Symlink(b"target"));
    let file = fs.file("file");
    fs.rename(ROOT, b"file", ROOT, b"symlink", PLAIN).unwrap();
    assert_eq!(fs.ino("symlink").unwrap(), file);
    assert_eq!(fs.content(target), b"target");
    assert_fails!(fs.getattr(symlink), FsError::Stale);
}

/// A directory does not move into itself or what is below it.
pub fn a_directory_does_not_move_below_itself(make: Make<'_>) {
    let fs = &*make();
    let a = fs.dir("a");
    let b = fs.make(a, b"b", NewNode::Directory);
    let c = fs.make(b, b"c", NewNode::Directory);
    for dir in [a, b, c] {
        assert_fails!(fs.rename(ROOT, b"a", dir, b"x", PLAIN), FsError::Invalid(_));
        assert_fails!(fs.rename(ROOT, b"a", dir, b"x", NO_REPLACE), FsError::Invalid(_));
    }
    assert_eq!(fs.ino("a").unwrap(), a);
    assert_eq!((fs.list(a), fs.list(b), fs.list(c)), (vec!["b".into()], vec!["c".into()], vec![]));
}

/// A directory above the source cannot be replaced: it is not empty.
pub fn a_rename_does_not_replace_a_directory_above(make: Make<'_>) {
    let fs = &*make();
    let a = fs.dir("a");
    let b = fs.make(a, b"b", NewNode::Directory);
    let c = fs.make(b, b"c", NewNode::Directory);
    assert_fails!(fs.rename(a, b"b", ROOT, b"a", PLAIN), FsError::NotEmpty);
    assert_fails!(fs.rename(b, b"c", ROOT, b"a", PLAIN), FsError::NotEmpty);
    assert_eq!(fs.parent(c).unwrap(), b);
    assert_eq!(fs.ino("a").unwrap(), a);
}

/// NO_REPLACE renames to a free name only.
pub fn no_replace_keeps_what_has_the_name(make: Make<'_>) {
    let fs = &*make();
    let (a, b) = (fs.file("a"), fs.file("b"));
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", NO_REPLACE), FsError::Exists);
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"a", NO_REPLACE), FsError::Exists);
    assert_eq!((fs.ino("a").unwrap(), fs.ino("b").unwrap()), (a, b));
    fs.rename(ROOT, b"a", ROOT, b"c", NO_REPLACE).unwrap();
    assert_eq!(fs.ino("c").unwrap(), a);
    assert_fails!(fs.ino("a"), FsError::NotFound);
}

/// EXCHANGE swaps two names, files or directories, in one or two directories.
pub fn exchange_swaps_two_names(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    let (a, b) = (fs.file("a"), fs.make(dir, b"b", NewNode::File));
    fs.rename(ROOT, b"a", dir, b"b", EXCHANGE).unwrap();
    assert_eq!((fs.ino("a").unwrap(), fs.lookup(dir, b"b").unwrap().ino), (b, a));
    assert_eq!((fs.attr(a).links, fs.attr(b).links), (1, 1));
    let c = fs.file("c");
    fs.rename(ROOT, b"a", ROOT, b"c", EXCHANGE).unwrap();
    assert_eq!((fs.ino("a").unwrap(), fs.ino("c").unwrap()), (c, b));
}

/// A swapped directory is counted and found where it is now.
pub fn exchange_of_a_file_and_a_directory_moves_the_link_count(make: Make<'_>) {
    let fs = &*make();
    let outer = fs.dir("outer");
    let inner = fs.make(outer, b"inner", NewNode::Directory);
    let below = fs.make(inner, b"below", NewNode::File);
    let file = fs.file("file");
    fs.rename(ROOT, b"file", outer, b"inner", EXCHANGE).unwrap();
    assert_eq!((fs.ino("file").unwrap(), fs.lookup(outer, b"inner").unwrap().ino), (inner, file));
    assert_eq!(fs.parent(inner).unwrap(), ROOT);
    assert_eq!(fs.lookup(inner, b"below").unwrap().ino, below);
    assert_eq!((fs.attr(ROOT).links, fs.attr(outer).links, fs.attr(inner).links), (4, 2, 2));
}

/// Both names must be there.
pub fn exchange_with_a_missing_name_is_not_found(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("a");
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", EXCHANGE), FsError::NotFound);
    assert_fails!(fs.rename(ROOT, b"b", ROOT, b"a", EXCHANGE), FsError::NotFound);
    assert_eq!(fs.ino("a").unwrap(), ino);
}

/// Neither directory may end up below itself.
pub fn exchange_does_not_move_a_directory_below_itself(make: Make<'_>) {
    let fs = &*make();
    let a = fs.dir("a");
    let b = fs.make(a, b"b", NewNode::Directory);
    let c = fs.make(b, b"c", NewNode::Directory);
    assert_fails!(fs.rename(ROOT, b"a", b, b"c", EXCHANGE), FsError::Invalid(_));
    assert_fails!(fs.rename(b, b"c", ROOT, b"a", EXCHANGE), FsError::Invalid(_));
    assert_eq!((fs.parent(b).unwrap(), fs.parent(c).unwrap()), (a, b));
}

/// The two flags contradict each other.
pub fn no_replace_and_exchange_exclude_each_other(make: Make<'_>) {
    let fs = &*make();
    fs.file("a");
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", NO_REPLACE | EXCHANGE), FsError::Invalid(_));
    assert_eq!(fs.list(ROOT), ["a"]);
}

/// WHITEOUT leaves a character device 0:0 at the old name, whether the new one replaces something or not; and not with EXCHANGE.
pub fn a_rename_leaves_a_whiteout(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    let (a, b) = (fs.file_with("a", b"content"), fs.file("b"));
    let leaves_one = |name: &str| {
        let left = fs.attr(fs.ino(name).unwrap());
        assert_eq!((left.kind, left.rdev, left.perm, left.links), (FileKind::CharDevice, 0, 0, 1));
        left.ino
    };
    fs.rename(ROOT, b"a", dir, b"moved", WHITEOUT).unwrap();
    assert_eq!(fs.lookup(dir, b"moved").unwrap().ino, a);
    assert_eq!(fs.content(a), b"content");
    let first = leaves_one("a");
    // Over a whiteout, as an overlay does.
    fs.rename(ROOT, b"b", ROOT, b"a", WHITEOUT).unwrap();
    assert_eq!(fs.ino("a").unwrap(), b);
    assert_ne!(leaves_one("b"), first);
    fs.rename(ROOT, b"dir", ROOT, b"other", WHITEOUT | NO_REPLACE).unwrap();
    leaves_one("dir");
    assert_eq!((fs.attr(dir).links, fs.attr(ROOT).links), (2, 3));
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", WHITEOUT | NO_REPLACE), FsError::Exists);
    assert_fails!(fs.rename(ROOT, b"a", ROOT, b"b", WHITEOUT | EXCHANGE), FsError::Invalid(_));
    assert_eq!(fs.list(ROOT), ["a", "b", "dir", "other"]);
}

/// A reader of a name that is replaced again and again finds it at every moment, whole: the old or the new one.
pub fn a_replaced_name_is_never_missing(make: Make<'_>) {
    let fs = &*make();
    fs.file_with("CURRENT", &[0; 64]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let ino = fs.ino("CURRENT").expect("the name is always there");
                // Between lookup and open it may be replaced, and be gone, or its number be another file's.
                if fs.open(ino).is_ok() {
                    if fs.ino("CURRENT").expect("the name is always there") == ino {
                        let content = fs.content(ino);
                        assert_eq!(content.len(), 64);
                        assert!(content.iter().all(|byte| *byte == content[0]), "one version or the other");
                    }
                    fs.release(ino);
                }
            }
        });
        for version in 1..=200u8 {
            fs.file_with("tmp", &[version; 64]);
            fs.rename(ROOT, b"tmp", ROOT, b"CURRENT", PLAIN).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(fs.list(ROOT), ["CURRENT"]);
    assert_eq!(fs.content(fs.ino("CURRENT").unwrap()), [200; 64]);
}
