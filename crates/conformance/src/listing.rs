//! Directories are listed, also while they change.

use super::Make;
use super::fixture::{Fixture, args, assert_fails};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::Ino;
use weft_core::random::SplitMix;
use weft_vfs::{FileKind, FileSystem, FsError, NewNode, RenameFlags};

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

/// Entries that come later, also by a rename to a new name, come behind the newest cookie; the others do not.
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

/// A name keeps its cookie when another inode takes its place: by a rename over it from the same directory or another one, by an
/// exchange, and by the whiteout that a rename leaves.
pub fn a_name_that_gets_another_inode_keeps_its_cookie(make: Make<'_>) {
    let fs = &*make();
    let other = fs.dir("other");
    for n in 0..10 {
        fs.file(&format!("file{n}"));
        fs.make(other, format!("there{n}").as_bytes(), NewNode::File);
    }
    fs.dir("dir0");
    fs.dir("dir1");
    let places = |dir: Ino| -> Vec<(Vec<u8>, u64)> {
        fs.entries(dir, 0, usize::MAX).into_iter().map(|(name, _, _, cookie)| (name, cookie)).collect()
    };
    let (here, there) = (places(ROOT), places(other));
    let (over, exchange) = (RenameFlags::empty(), RenameFlags::EXCHANGE);
    let whiteout = RenameFlags::WHITEOUT;
    fs.file("new");
    let new = fs.ino("new").unwrap();
    fs.rename(ROOT, b"new", ROOT, b"file0", over).unwrap();
    assert_eq!(fs.ino("file0").unwrap(), new);
    fs.make(other, b"new", NewNode::File);
    fs.rename(other, b"new", ROOT, b"file9", over).unwrap();
    fs.make(ROOT, b"new", NewNode::Directory);
    fs.rename(ROOT, b"new", ROOT, b"dir0", over).unwrap();
    fs.rename(ROOT, b"file1", ROOT, b"file2", exchange).unwrap();
    fs.rename(ROOT, b"file3", other, b"there3", exchange).unwrap();
    fs.rename(ROOT, b"dir1", other, b"there4", exchange).unwrap();
    assert_eq!((places(ROOT), places(other)), (here.clone(), there.clone()));
    // What a rename with a whiteout moves keeps its name; where it goes, a name that was there keeps its place, too.
    fs.rename(ROOT, b"file4", ROOT, b"file5", whiteout).unwrap();
    fs.rename(ROOT, b"file6", other, b"there6", whiteout).unwrap();
    assert_eq!((places(ROOT), places(other)), (here, there.clone()));
    let newest = fs.newest_cookie(other).unwrap();
    fs.rename(other, b"there0", other, b"moved", whiteout).unwrap();
    let behind: Vec<Vec<u8>> =
        fs.entries(other, newest, usize::MAX).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(behind, [b"moved".to_vec()]);
    assert_eq!(places(other)[..there.len()], there);
}

/// The names of a directory that changes while it is listed.
struct Changing<'a> {
    fs: &'a dyn FileSystem,
    /// The directory that is listed, and another one.
    dirs: [Ino; 2],
    random: SplitMix,
    /// Names of the first directory that have been there since the listing began.
    lasting: BTreeSet<Vec<u8>>,
}

impl Changing<'_> {
    fn any_name(&mut self) -> Vec<u8> {
        format!("name{}", self.random.below(60)).into_bytes()
    }

    /// Changes a name; that it is refused is no fault.
    fn change(&mut self) {
        let (from, to) = (self.random.below(2) as usize, self.random.below(2) as usize);
        let (name, new_name) = (self.any_name(), self.any_name());
        let flags = match self.random.below(8) {
            0 => RenameFlags::WHITEOUT,
            1 | 2 => RenameFlags::EXCHANGE,
            3 => RenameFlags::NO_REPLACE,
            _ => RenameFlags::empty(),
        };
        let (fs, dir) = (self.fs, self.dirs[from]);
        match self.random.below(6) {
            0 => drop(fs.create(dir, &name, &args(NewNode::File))),
            1 => drop(fs.unlink(dir, &name)),
            2 => drop(fs.lookup(dir, &name).map(|attr| fs.link(attr.ino, self.dirs[to], &new_name))),
            _ => drop(fs.rename(dir, &name, self.dirs[to], &new_name, flags)),
        }
        self.lasting.retain(|name| fs.lookup(self.dirs[0], name).is_ok());
    }
}

/// A listing in pieces shows each name exactly once that is there all the time, also when other inodes take its place meanwhile. It
/// shows it before it comes to what was added since its beginning.
pub fn a_listing_shows_once_what_is_replaced_meanwhile(make: Make<'_>) {
    let fs = &*make();
    let dirs = [fs.dir("listed"), fs.dir("other")];
    for seed in 0..40 {
        let random = SplitMix::new(seed, &[]);
        let mut changing = Changing { fs, dirs, random, lasting: BTreeSet::new() };
        (0..60).for_each(|_| changing.change());
        changing.lasting = fs.list(dirs[0]).into_iter().map(String::into_bytes).collect();
        let newest = fs.newest_cookie(dirs[0]).unwrap();
        let (mut cookie, mut seen) = (0, Vec::new());
        loop {
            let page = fs.entries(dirs[0], cookie, 1 + changing.random.below(5) as usize);
            let Some(last) = page.last() else { break };
            cookie = last.3;
            seen.extend(page.into_iter().filter(|entry| entry.3 <= newest).map(|entry| entry.0));
            if cookie <= newest {
                (0..changing.random.below(6)).for_each(|_| changing.change());
            }
        }
        for name in &changing.lasting {
            let times = seen.iter().filter(|other| *other == name).count();
            assert_eq!(times, 1, "seed {seed}: {}", String::from_utf8_lossy(name));
        }
        let listed = fs.entries(dirs[0], 0, usize::MAX).len();
        assert_eq!(fs.list(dirs[0]).into_iter().collect::<BTreeSet<_>>().len(), listed, "seed {seed}");
    }
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
