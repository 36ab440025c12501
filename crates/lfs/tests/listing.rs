//! A mount goes on with the cookies that listings had before: after a clean end from the checkpoint, after a power cut from the journal.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

mod rig;

use rig::{assert_sound, fresh, options, small};
use std::sync::Arc;
use weft_core::{Ino, Tag};
use weft_device::PowerCut;
use weft_lfs::Lfs;
use weft_vfs::{CreateArgs, FileSystem, NewNode, RenameFlags};

const ROOT: Ino = Ino::ROOT;

fn create(fs: &Lfs, name: &str) -> Ino {
    let (node, tag) = (NewNode::File, Tag::default());
    let args = CreateArgs { node, perm: 0o644, uid: 0, gid: 0, tag, open: false, xattrs: &[] };
    fs.create(ROOT, name.as_bytes(), &args).unwrap().ino
}

/// Names, inodes and cookies, in order.
fn listed(fs: &Lfs) -> Vec<(String, Ino, u64)> {
    let mut found = Vec::new();
    fs.readdir(ROOT, 0, &mut |entry| {
        found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino, entry.cookie));
        true
    })
    .unwrap();
    found
}

/// A volume whose names were replaced and exchanged, and what it lists.
fn changed() -> (Arc<PowerCut>, Lfs, Vec<(String, Ino, u64)>) {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let inos: Vec<Ino> = (0..8).map(|n| create(&fs, &format!("file{n}"))).collect();
    let before = listed(&fs);
    let new = create(&fs, "new");
    fs.rename(ROOT, b"new", ROOT, b"file0", RenameFlags::empty()).unwrap();
    fs.rename(ROOT, b"file1", ROOT, b"file5", RenameFlags::EXCHANGE).unwrap();
    fs.rename(ROOT, b"file2", ROOT, b"file7", RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs.lookup(ROOT, b"file2").unwrap().ino;
    let (mut wanted, now) = (before, [new, inos[5], whiteout, inos[3], inos[4], inos[1], inos[6], inos[2]]);
    wanted.iter_mut().zip(now).for_each(|(entry, ino)| entry.1 = ino);
    assert_eq!(listed(&fs), wanted);
    (device, fs, wanted)
}

#[test]
fn what_comes_while_a_directory_is_listed_is_not_listed_and_no_name_is_twice() {
    for count in [12, 64, 300] {
        let (_, fs) = fresh(&small(16 << 20, 256 << 10));
        for n in 0..count {
            create(&fs, &format!("file{n}"));
        }
        let (mut names, mut last) = (Vec::new(), 0);
        fs.readdir(ROOT, 0, &mut |entry| {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            // It goes, and comes again behind all others.
            fs.unlink(ROOT, entry.name).unwrap();
            create(&fs, &name);
            names.push(name);
            last = entry.cookie;
            true
        })
        .unwrap();
        assert_eq!(names, (0..count).map(|n| format!("file{n}")).collect::<Vec<_>>());
        // Who goes on finds them.
        let mut more = 0;
        fs.readdir(ROOT, last, &mut |_| {
            more += 1;
            true
        })
        .unwrap();
        assert_eq!(more, count);
    }
}

#[test]
fn a_replaced_name_keeps_its_cookie_over_a_clean_end() {
    let (device, fs, wanted) = changed();
    let newest = fs.newest_cookie(ROOT).unwrap();
    fs.unmount().unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    assert_eq!((listed(&fs), fs.newest_cookie(ROOT).unwrap()), (wanted, newest));
    fs.unmount().unwrap();
    assert_sound(&device);
}

#[test]
fn a_replaced_name_keeps_its_cookie_over_a_power_cut() {
    let (device, fs, wanted) = changed();
    let newest = fs.newest_cookie(ROOT).unwrap();
    fs.sync().unwrap();
    let cut = Arc::new(device.reopen(3).unwrap());
    let fs = Lfs::mount(cut.clone(), options()).unwrap();
    assert_eq!((listed(&fs), fs.newest_cookie(ROOT).unwrap()), (wanted, newest));
    create(&fs, "later");
    assert_eq!(listed(&fs).last().unwrap().2, newest + 1, "a cookie is never used twice");
    fs.unmount().unwrap();
    assert_sound(&cut);
}
