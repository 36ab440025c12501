//! Many files, large directories, deep trees.

use super::Make;
use super::fixture::{Fixture, assert_fails, assert_same, bytes};
use std::collections::BTreeSet;
use weft_core::Ino;
use weft_vfs::{FsError, NewNode};

const ROOT: Ino = Ino::ROOT;

/// 2,000 small files keep their content.
pub fn two_thousand_small_files_keep_their_content(make: Make<'_>) {
    let fs = &*make();
    let length = |n: usize| n * 7919 % 5000;
    let dirs: Vec<Ino> = (0..20).map(|n| fs.dir(&format!("dir{n}"))).collect();
    let mut inos = Vec::new();
    for n in 0..2000 {
        let ino = fs.make(dirs[n % 20], format!("file{n}").as_bytes(), NewNode::File);
        fs.write(ino, 0, &bytes(n as u64, length(n))).unwrap();
        inos.push(ino);
    }
    fs.sync().unwrap();
    for n in (0..2000).rev() {
        let attr = fs.lookup(dirs[n % 20], format!("file{n}").as_bytes()).unwrap();
        assert_eq!((attr.ino, attr.size), (inos[n], length(n) as u64));
        assert_same(&fs.content(attr.ino), &bytes(n as u64, length(n)), &format!("file {n}"));
    }
}

/// A directory of 5,000 entries finds each, lists each once, and loses those that are deleted while it is listed.
pub fn a_directory_of_5000_entries_is_listed_while_entries_are_deleted(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    for n in 0..5000 {
        fs.make(dir, format!("{n:05}").as_bytes(), NewNode::File);
    }
    for n in (0..5000).step_by(37) {
        fs.lookup(dir, format!("{n:05}").as_bytes()).unwrap();
    }
    assert_eq!(fs.entries(dir, 0, usize::MAX).len(), 5000);

    let mut shown = BTreeSet::new();
    let mut cookie = 0;
    loop {
        let page = fs.entries(dir, cookie, 100);
        let Some(last) = page.last() else { break };
        cookie = last.3;
        for (at, entry) in page.iter().enumerate() {
            assert!(shown.insert(entry.0.clone()), "{:?} is shown twice", entry.0);
            if at % 2 == 0 {
                fs.unlink(dir, &entry.0).unwrap();
            }
        }
    }
    assert_eq!(shown.len(), 5000);
    assert_eq!(fs.entries(dir, 0, usize::MAX).len(), 2500);
    assert_fails!(fs.rmdir(ROOT, b"dir"), FsError::NotEmpty);
}

/// A chain of 300 directories is walked down and up, and taken away from below.
pub fn deep_trees_are_walked_and_removed(make: Make<'_>) {
    let fs = &*make();
    let mut chain = vec![ROOT];
    for n in 0..300 {
        chain.push(fs.make(chain[n], b"d", NewNode::Directory));
    }
    let file = fs.make(chain[300], b"bottom", NewNode::File);
    let mut dir = ROOT;
    for wanted in &chain[1..] {
        dir = fs.lookup(dir, b"d").unwrap().ino;
        assert_eq!(dir, *wanted);
    }
    assert_eq!(fs.lookup(dir, b"bottom").unwrap().ino, file);
    for wanted in chain[..300].iter().rev() {
        dir = fs.parent(dir).unwrap();
        assert_eq!(dir, *wanted);
    }
    assert_fails!(fs.rename(ROOT, b"d", chain[300], b"loop", Default::default()), FsError::Invalid(_));
    fs.unlink(chain[300], b"bottom").unwrap();
    for dir in chain[..300].iter().rev() {
        fs.rmdir(*dir, b"d").unwrap();
    }
    assert!(fs.list(ROOT).is_empty());
}

/// Names that are made and removed thousands of times leave nothing behind.
pub fn a_name_is_made_and_removed_again_and_again(make: Make<'_>) {
    let fs = &*make();
    let before = fs.statfs().unwrap().inodes;
    for round in 0..2000 {
        let ino = fs.file_with("file", &round.to_string().into_bytes());
        if round % 100 == 0 {
            fs.fsync(ino).unwrap();
        }
        fs.unlink(ROOT, b"file").unwrap();
    }
    assert!(fs.list(ROOT).is_empty());
    assert_eq!(fs.statfs().unwrap().inodes, before);
}
