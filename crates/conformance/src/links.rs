//! Several names of one inode.

use super::Make;
use super::fixture::{Fixture, assert_fails, assert_same, bytes};
use weft_core::Ino;
use weft_vfs::{FileKind, FsError, LINK_MAX, NewNode};

/// Both names lead to one inode, which counts them.
pub fn a_hard_link_is_one_more_name_of_the_same_inode(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("a", b"content");
    let linked = fs.link(ino, Ino::ROOT, b"b").unwrap();
    assert_eq!((linked.ino, linked.links), (ino, 2));
    assert_eq!(fs.ino("b").unwrap(), ino);
    assert_eq!(fs.attr(ino).links, 2);
    assert_eq!(fs.list(Ino::ROOT), ["a", "b"]);
}

/// What is written by one name is read by the other.
pub fn hard_links_share_content_and_attributes(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    let ino = fs.file("a");
    fs.link(ino, dir, b"b").unwrap();
    let data = bytes(1, 10_000);
    fs.write(ino, 0, &data).unwrap();
    let other = fs.lookup(dir, b"b").unwrap();
    assert_eq!(other.size, 10_000);
    assert_same(&fs.content(other.ino), &data, "the other name");
}

/// The inode lives until its last name goes.
pub fn an_inode_lives_until_its_last_name_goes(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("a", b"content");
    fs.link(ino, Ino::ROOT, b"b").unwrap();
    fs.unlink(Ino::ROOT, b"a").unwrap();
    assert_eq!(fs.attr(ino).links, 1);
    assert_eq!(fs.content(ino), b"content");
    fs.unlink(Ino::ROOT, b"b").unwrap();
    assert_fails!(fs.getattr(ino), FsError::Stale);
}

/// A taken name is not given to another inode.
pub fn a_link_does_not_replace(make: Make<'_>) {
    let fs = &*make();
    let (a, b, dir) = (fs.file("a"), fs.file("b"), fs.dir("dir"));
    assert_fails!(fs.link(a, Ino::ROOT, b"b"), FsError::Exists);
    assert_fails!(fs.link(a, Ino::ROOT, b"a"), FsError::Exists);
    assert_fails!(fs.link(a, Ino::ROOT, b"dir"), FsError::Exists);
    assert_eq!((fs.attr(a).links, fs.attr(b).links, fs.attr(dir).links), (1, 1, 2));
}

/// A directory has one name.
pub fn a_directory_cannot_be_linked(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    assert_fails!(fs.link(dir, Ino::ROOT, b"again"), FsError::NotPermitted);
    assert_fails!(fs.link(Ino::ROOT, dir, b"root"), FsError::NotPermitted);
    assert_eq!(fs.list(Ino::ROOT), ["dir"]);
    assert_eq!(fs.attr(dir).links, 2);
}

/// Symlinks and special files can have several names, too.
pub fn symlinks_and_special_files_can_be_linked(make: Make<'_>) {
    let fs = &*make();
    let symlink = fs.make(Ino::ROOT, b"symlink", NewNode::Symlink(b"target"));
    let fifo = fs.make(Ino::ROOT, b"fifo", NewNode::Special(FileKind::Fifo, 0));
    fs.link(symlink, Ino::ROOT, b"symlink2").unwrap();
    fs.link(fifo, Ino::ROOT, b"fifo2").unwrap();
    fs.unlink(Ino::ROOT, b"symlink").unwrap();
    assert_eq!(fs.readlink(fs.ino("symlink2").unwrap()).unwrap(), b"target");
    assert_eq!(fs.attr(fifo).links, 2);
}

/// A file has up to 65,000 names; one more is `TooManyLinks` and changes nothing.
pub fn a_file_has_up_to_65000_names(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("0");
    for n in 1..LINK_MAX {
        fs.link(ino, Ino::ROOT, n.to_string().as_bytes()).unwrap();
    }
    assert_eq!(fs.attr(ino).links, LINK_MAX);
    assert_fails!(fs.link(ino, Ino::ROOT, b"one more"), FsError::TooManyLinks);
    assert_fails!(fs.ino("one more"), FsError::NotFound);
    fs.unlink(Ino::ROOT, b"17").unwrap();
    fs.link(ino, Ino::ROOT, b"one more").unwrap();
    assert_eq!(fs.attr(ino).links, LINK_MAX);
}
