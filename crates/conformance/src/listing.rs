//! Directories are listed, also while they change.

use super::Make;
use super::fixture::{Fixture, assert_fails};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::Ino;
use weft_vfs::{FileKind, FsError, NewNode, RenameFlags};

const ROOT: Ino = Ino::ROOT;

/// Every entry is listed once, with its inode and kind.
pub fn a_listing_shows_each_entry_once_with_inode_and_kind(make: Make<'_>) {
    let fs = &*make();
    let mut wanted = BTreeMap::new();
    let nodes = [
        ("file", NewNode::File, FileKind::File),
        ("dir", NewNode::Directory, FileKind::Directory),
        ("symlink", NewNode::Symlink(b"x"), FileKind::Symlink),
        ("fifo", NewNode::Special(FileKind::Fifo, 0), FileKind::Fifo),
    ];
    for (name, node, kind) in nodes {
        wanted.insert(name.as_bytes().to_vec(), (fs.make(ROOT, name.as_bytes(), node), kind));
    }
    let entries = fs.entries(ROOT, 0, usize::MAX);
    assert_eq!(entries.len(), wanted.len());
    for (name, ino, kind, _) in entries {
        assert_eq!(wanted.remove(&name), Some((ino, kind)), "{name:?}");
    }
}

/// A cookie is never 0, which means the start, is below 2^62, and no two entries share one.
pub fn cookies_are_distinct_and_in_range(make: Make<'_>) {
    let fs = &*make();
    for n in 0..300 {
        fs.file(&format!("file{n}"));
    }
    let cookies: BTreeSet<u64> = fs.entries(ROOT, 0, usize::MAX).into_iter().map(|entry| entry.3).collect();
    assert_eq!(cookies.len(), 300);
    assert!(cookies.iter().all(|cookie| (1..1 << 62).contains(cookie)));
}

/// Entries that come later, also by a rename, come behind the newest cookie; the others do not.
pub fn later_entries_come_behind_the_newest_cookie(make: Make<'_>) {
    let fs = &*make();
    assert!(fs.newest_cookie(ROOT).unwrap() < 1 << 62);
    for n in 0..10 {
        fs.file(&format!("file{n}"));
    }
    let newest = fs.newest_cookie(ROOT).unwrap();
    assert!(fs.entries(ROOT, newest, usize::MAX).is_empty());
    fs.file("later");
    fs.rename(ROOT, b"file3", ROOT, b"renamed", RenameFlags::empty()).unwrap();
    let names = |entries: Vec<(Vec<u8>, Ino, FileKind, u64)>| -> BTreeSet<Vec<u8>> {
        entries.into_iter().map(|(name, ..)| name).collect()
    };
    let behind = names(fs.entries(ROOT, newest, usize::MAX));
    assert_eq!(behind, BTreeSet::from([b"later".to_vec(), b"renamed".to_vec()]));
    let file = fs.ino("file5").unwrap();
    assert_fails!(fs.newest_cookie(file), FsError::NotDirectory);
}

/// The callback ends a listing by returning false.
pub fn a_listing_stops_when_it_is_told_to(make: Make<'_>) {
    let fs = &*make();
    for n in 0..10 {
        fs.file(&format!("file{n}"));
    }
    for limit in 1..=10 {
        assert_eq!(fs.entries(ROOT, 0, limit).len(), limit);
    }
}

/// A listing continues after an entry's cookie with the entries that had not been shown.
pub fn a_listing_continues_after_a_cookie(make: Make<'_>) {
    let fs = &*make();
    for n in 0..40 {
        fs.file(&format!("file{n}"));
    }
    let all = fs.entries(ROOT, 0, usize::MAX);
    for (at, entry) in all.iter().enumerate() {
        assert_eq!(fs.entries(ROOT, entry.3, usize::MAX), all[at + 1..], "after entry {at}");
    }
    let mut paged = Vec::new();
    let mut cookie = 0;
    loop {
        let page = fs.entries(ROOT, cookie, 7);
        let Some(last) = page.last() else { break };
        cookie = last.3;
        paged.extend(page);
    }
    assert_eq!(paged, all);
}

/// The cookie of an entry that has gone since still continues the listing where it was.
pub fn a_cookie_outlives_its_entry(make: Make<'_>) {
    let fs = &*make();
    for n in 0..20 {
        fs.file(&format!("file{n}"));
    }
    let all = fs.entries(ROOT, 0, usize::MAX);
    let (before, after) = all.split_at(10);
    for entry in before {
        fs.unlink(ROOT, &entry.0).unwrap();
    }
    assert_eq!(fs.entries(ROOT, before[9].3, usize::MAX), after);
}

/// Entries that are there during a whole listing are shown exactly once, whatever comes and goes meanwhile.
pub fn a_listing_shows_what_stays_once_while_others_come_and_go(make: Make<'_>) {
    let fs = &*make();
    for n in 0..200 {
        fs.file(&format!("stays{n}"));
        fs.file(&format!("goes{n}"));
    }
    let mut seen = Vec::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let page = fs.entries(ROOT, cookie, 13);
        let Some(last) = page.last() else { break };
        cookie = last.3;
        seen.extend(page.iter().map(|entry| String::from_utf8(entry.0.clone()).unwrap()));
        if round < 200 {
            fs.unlink(ROOT, format!("goes{round}").as_bytes()).unwrap();
            fs.unlink(ROOT, format!("goes{}", round + 1).as_bytes()).unwrap();
            if round < 100 {
                fs.file(&format!("comes{round}"));
            }
            round += 2;
        }
    }
    for n in 0..200 {
        let name = format!("stays{n}");
        assert_eq!(seen.iter().filter(|other| **other == name).count(), 1, "{name}");
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "nothing is shown twice");
}

/// A directory is emptied by listing and deleting page after page, as `rm -r` does.
pub fn a_directory_is_emptied_while_it_is_listed(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    for n in 0..500 {
        fs.make(dir, format!("file{n}").as_bytes(), NewNode::File);
    }
    let mut cookie = 0;
    loop {
        let page = fs.entries(dir, cookie, 32);
        let Some(last) = page.last() else { break };
        cookie = last.3;
        for entry in page {
            fs.unlink(dir, &entry.0).unwrap();
        }
    }
    fs.rmdir(ROOT, b"dir").unwrap();
}

/// A listing from after the last entry is empty; so is one from a cookie that is past every entry.
pub fn a_listing_past_the_end_is_empty(make: Make<'_>) {
    let fs = &*make();
    fs.file("a");
    fs.file("b");
    let last = fs.entries(ROOT, 0, usize::MAX)[1].3;
    assert!(fs.entries(ROOT, last, usize::MAX).is_empty());
    assert!(fs.entries(ROOT, (1 << 62) - 1, usize::MAX).is_empty());
}
