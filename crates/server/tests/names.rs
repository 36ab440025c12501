//! Names and attributes that clients read in shared memory are those that the server would tell: after each change, with
//! nothing in between, whoever made it and whatever was read before.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Dice, Rig, connect, is_superuser};
use std::sync::atomic::{AtomicU64, Ordering::*};
use weft_client::{AttrChange, Client, FileRef, WireAttr, WireDirent};

const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;
const RW: i32 = libc::O_RDWR;

/// All paths that the operations are about: three directories, in one another, and names in each.
fn paths() -> Vec<String> {
    let dirs = ["", "/d0", "/d1", "/d0/d2", "/d1/d2"];
    let names = ["f0", "f1", "l0", "d0", "d1", "d2", "f0/", "d0/.", "d1/..", "d0/../f1", "l0/"];
    dirs.iter().flat_map(|dir| names.iter().map(move |name| format!("{dir}/{name}"))).collect()
}

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

/// What a client that has to ask is told.
fn asked(client: &Client, path: &str, flags: i32) -> Result<WireAttr, i32> {
    client.stat(FileRef::ROOT, path.as_bytes(), flags)
}

/// Extended attributes as a client tells them: all names, and some values.
fn xattrs(client: &Client, path: &str, flags: i32) -> Vec<Result<Vec<u8>, i32>> {
    let (root, path, mut out) = (FileRef::ROOT, path.as_bytes(), vec![0; 100]);
    let mut all = vec![client.list_xattr(root, path, flags, &mut out).map(|len| out[..len].to_vec())];
    for name in
        ["user.x", "security.selinux", "system.posix_acl_access", "trusted.x", "security.", "system.", "odd"]
    {
        let got = client.get_xattr(root, path, flags, name.as_bytes(), &mut out);
        all.push(got.map(|len| out[..len].to_vec()));
    }
    all
}

/// Name, inode, kind and cookie of each entry.
type Entries = Vec<(Vec<u8>, u64, u32, u64)>;

/// The entries of an open directory, read with a buffer of so many bytes.
fn entries(client: &Client, dir: FileRef, buffer: usize) -> Result<Entries, i32> {
    let (mut all, mut cookie, mut out) = (Vec::new(), 0, vec![0; buffer]);
    loop {
        let filled = client.read_dir(dir, cookie, &mut out)?;
        let mut rest = &out[..filled];
        while let Some((entry, name, others)) = WireDirent::split_first(rest) {
            all.push((name.to_vec(), entry.ino, entry.kind, entry.cookie));
            (cookie, rest) = (entry.cookie, others);
        }
        if filled == 0 {
            return Ok(all);
        }
    }
}

fn open_dir(client: &Client, path: &str) -> Result<FileRef, i32> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    client.open(FileRef::ROOT, path.as_bytes(), flags, 0).map(|opened| opened.file)
}

/// The entries of a directory by its name.
fn listed(client: &Client, path: &str) -> Result<Entries, i32> {
    let dir = open_dir(client, path)?;
    let found = entries(client, dir, 500);
    client.close(dir).unwrap();
    found
}

/// One operation of many; whether it succeeds does not matter.
fn act(dice: &mut Dice, client: &Client, open: &mut Vec<FileRef>, rig: &Rig) {
    let paths = paths();
    let mut path = || paths[dice.roll(paths.len() as u64) as usize].clone().into_bytes();
    let (one, two) = (path(), path());
    let (root, change) = (FileRef::ROOT, AttrChange::default());
    let file = |dice: &mut Dice, open: &Vec<FileRef>| {
        (!open.is_empty()).then(|| open[dice.roll(open.len() as u64) as usize])
    };
    match dice.roll(20) {
        0..3 => {
            if let Ok(made) = client.open(root, &one, RW | libc::O_CREAT, 0o644) {
                open.push(made.file);
            }
        }
        3 => drop(client.mkdir(root, &one, 0o755)),
        4 => drop(client.unlink(root, &one, 0)),
        5 => drop(client.unlink(root, &one, libc::AT_REMOVEDIR)),
        6 | 7 => drop(client.rename(root, &one, root, &two, 0)),
        8 => drop(client.rename(root, &one, root, &two, libc::RENAME_EXCHANGE)),
        9 => drop(client.link(root, &one, root, &two, 0)),
        10 => drop(client.symlink(&two[1..], root, &one)),
        11 => {
            let mode = [0o755, 0o775, 0o777, 0o1777][dice.roll(4) as usize];
            let _ = client.set_attr(root, &one, 0, &AttrChange { mode: Some(mode), ..change });
        }
        12 => drop(client.set_attr(root, &one, 0, &AttrChange { size: Some(dice.roll(99_999)), ..change })),
        13 if two.len() % 2 == 0 => drop(client.set_xattr(root, &one, 0, b"user.x", &two, 0)),
        13 => drop(client.remove_xattr(root, &one, 0, b"user.x")),
        14 => drop(client.set_attr(root, &one, 0, &AttrChange { touch: true, ..change })),
        15 | 16 => {
            if let Some(file) = file(dice, open) {
                let _ = client.pwrite(file, &vec![7; dice.roll(20_000) as usize], dice.roll(50_000));
            }
        }
        17 => {
            if let Some(file) = file(dice, open) {
                let end = client.fstat(file).unwrap().size;
                let _ = client.pwrite(file, &vec![7; dice.roll(9_000) as usize], end);
                let _ = client.pread(file, &mut [0; 100], 0);
            }
        }
        18 => {
            if !open.is_empty() {
                let file = open.swap_remove(dice.roll(open.len() as u64) as usize);
                client.close(file).unwrap();
            }
        }
        _ => match dice.roll(3) {
            0 => client.sync().unwrap(),
            1 => rig.mounted.core().tick().unwrap(),
            _ => drop(file(dice, open).map(|file| client.fsync(file))),
        },
    }
}

#[test]
fn what_is_told_without_a_call_is_what_the_server_tells() {
    if !is_superuser() {
        return;
    }
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1000 } else { 10 };
    for seed in 1..=seeds {
        let rig = if seed % 3 == 0 { Rig::tight(64 << 20) } else { Rig::new(64 << 20) };
        let (writer, reader) = (rig.client(), rig.client());
        let all = AttrChange { mode: Some(0o777), ..AttrChange::default() };
        writer.set_attr(FileRef::ROOT, b"/", 0, &all).unwrap();
        // A client of another user has no shared memory; it may ask.
        let asking = rig.as_user(1001, || connect(&rig.path));
        let (mut dice, mut open) = (Dice(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed)), Vec::new());
        let mut held = Vec::new();
        for step in 0..150 {
            act(&mut dice, &writer, &mut open, &rig);
            let what = |path: &str| format!("seed {seed}, step {step}, {path}");
            for path in paths() {
                for flags in [0, NOFOLLOW] {
                    let told = asked(&asking, &path, flags);
                    for client in [&reader, &writer, &reader] {
                        assert_eq!(asked(client, &path, flags), told, "{}", what(&path));
                    }
                    for mode in [libc::R_OK, libc::W_OK] {
                        let may = reader.access(FileRef::ROOT, path.as_bytes(), mode, flags);
                        assert_eq!(may, told.map(drop), "{}", what(&path));
                    }
                    assert_eq!(
                        xattrs(&reader, &path, flags),
                        xattrs(&asking, &path, flags),
                        "{}",
                        what(&path)
                    );
                    if matches!(told, Err(libc::ENOENT | libc::ENOTDIR)) {
                        let opened = reader.open(FileRef::ROOT, path.as_bytes(), 0, 0);
                        assert_eq!(opened.map(drop), told.map(drop), "{}", what(&path));
                    }
                }
            }
            for path in ["/", "/d0", "/d1", "/d0/d2", "/d1/d2"] {
                let told = listed(&asking, path);
                for client in [&reader, &writer, &reader] {
                    assert_eq!(listed(client, path), told, "{}", what(path));
                }
                if dice.roll(10) == 0
                    && let (Ok(ours), Ok(theirs)) = (open_dir(&reader, path), open_dir(&asking, path))
                {
                    held.push((ours, theirs));
                }
            }
            // Whatever has become of their names.
            for (ours, theirs) in &held {
                assert_eq!(
                    entries(&reader, *ours, 9000),
                    entries(&asking, *theirs, 9000),
                    "{}",
                    what("held")
                );
            }
            if held.len() > 8 {
                let (ours, theirs) = held.swap_remove(dice.roll(8) as usize);
                reader.close(ours).unwrap();
                asking.close(theirs).unwrap();
            }
            for file in &open {
                let told = writer.fstat(*file).unwrap();
                assert_eq!(writer.fstat(*file), Ok(told));
                if told.links == 0 {
                    continue;
                }
                assert_eq!(reader.fstat(*file).unwrap(), told, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn a_directory_that_was_listed_is_opened_listed_and_closed_without_a_call() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    client.mkdir(FileRef::ROOT, b"/dir", 0o755).unwrap();
    let make = |number: u64| {
        let path = format!("/dir/file-{number}");
        let file = other.open(FileRef::ROOT, path.as_bytes(), RW | libc::O_CREAT, 0o644).unwrap().file;
        other.close(file).unwrap();
    };
    let names = |number: usize| listed(&client, "/dir").unwrap().len() - 2 == number;
    // As many as need one page, several, and more than are published.
    for (number, most) in [(0, 0), (20, 0), (700, 0), (3000, u64::MAX)] {
        (listed(&client, "/dir").unwrap().len() as u64 - 2..number).for_each(make);
        assert!(names(number as usize));
        client.sync().unwrap();
        assert!(names(number as usize));
        let before = calls(&client);
        assert!(names(number as usize));
        let made = calls(&client) - before;
        assert!(made <= most, "{made} calls for {number} entries");
    }
    other.unlink(FileRef::ROOT, b"/dir/file-7", 0).unwrap();
    assert!(names(2999));
    // Of one that nobody has opened before, the open is the only call.
    for number in 0..20 {
        other.mkdir(FileRef::ROOT, format!("/{number}").as_bytes(), 0o755).unwrap();
        for name in 0..20 {
            let path = format!("/{number}/{name}");
            other.open(FileRef::ROOT, path.as_bytes(), RW | libc::O_CREAT, 0o644).unwrap();
        }
    }
    for number in 0..20 {
        let before = calls(&client);
        assert_eq!(listed(&client, &format!("/{number}")).unwrap().len(), 22);
        assert!(calls(&client) - before <= 1, "{number}");
    }
}

#[test]
fn a_name_that_a_listed_directory_has_not_needs_no_call() {
    let rig = tree(3, 20);
    let client = rig.client();
    assert_eq!(listed(&client, "/1").unwrap().len(), 22);
    let missing = |name: &str| asked(&client, &format!("/1/{name}"), 0).map(drop);
    let before = calls(&client);
    assert_eq!(["20", "none", "2\n"].map(missing), [Err(libc::ENOENT); 3]);
    assert_eq!(client.open(FileRef::ROOT, b"/1/.gitignore", 0, 0).map(drop), Err(libc::ENOENT));
    assert_eq!(calls(&client), before, "nothing was asked");
    let other = rig.client();
    for change in 0..3 {
        match change {
            0 => drop(other.open(FileRef::ROOT, b"/1/none", RW | libc::O_CREAT, 0o644).unwrap()),
            1 => other.rename(FileRef::ROOT, b"/1/none", FileRef::ROOT, b"/1/20", 0).unwrap(),
            _ => other.link(FileRef::ROOT, b"/1/20", FileRef::ROOT, b"/1/none", 0).unwrap(),
        }
        let there = ["20", "none"].map(|name| missing(name).is_ok());
        assert_eq!(there, [change > 0, change != 1]);
        assert_eq!(listed(&client, "/1").unwrap().len(), 23 + usize::from(change == 2));
    }
}

#[test]
fn listings_beside_changes_hold_what_is_there() {
    let rig = Rig::new(64 << 20);
    let (writer, readers) = (rig.client(), [rig.client(), rig.client()]);
    // Names come in order and go in order; `there` is the first that is there, `made` the last.
    let (there, made, done) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
    writer.mkdir(FileRef::ROOT, b"/dir", 0o755).unwrap();
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| {
                while done.load(Acquire) == 0 {
                    let last = made.load(Acquire);
                    // Of a listing that is published it is known at once that a name is not there.
                    let newest = asked(reader, &format!("/dir/{last}"), 0);
                    assert!(newest.is_ok() || last < there.load(Acquire).max(1), "{last}: {newest:?}");
                    let all = listed(reader, "/dir").unwrap();
                    let first = there.load(Acquire);
                    let numbers =
                        all.iter().filter_map(|(name, ..)| std::str::from_utf8(name).ok()?.parse().ok());
                    let numbers: Vec<u64> = numbers.collect();
                    // What was there all the time is there.
                    assert!(
                        (first..=last).all(|number| numbers.contains(&number)),
                        "{first} to {last}: {numbers:?}"
                    );
                }
            });
        }
        for number in 1..=3000 {
            writer.mkdir(FileRef::ROOT, format!("/dir/{number}").as_bytes(), 0o755).unwrap();
            made.store(number, Release);
            if number > 40 {
                there.store(number - 39, Release);
                let gone = format!("/dir/{}", number - 40);
                writer.unlink(FileRef::ROOT, gone.as_bytes(), libc::AT_REMOVEDIR).unwrap();
                let left = listed(&writer, "/dir").unwrap();
                assert!(left.iter().all(|(name, ..)| *name != gone.as_bytes()[5..]));
            }
        }
        done.store(1, Release);
    });
}

#[test]
fn what_was_told_once_needs_no_call() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/dir", 0o755).unwrap();
    let file = client.open(FileRef::ROOT, b"/dir/file", RW | libc::O_CREAT, 0o644).unwrap().file;
    let all = || {
        let told = ["/", "/dir", "/dir/file", "/dir/../dir/./file", "/none", "/dir/none", "/none/none"]
            .map(|path| asked(&client, path, 0));
        let opened = client.open(FileRef::ROOT, b"/dir/none", 0, 0).map(drop);
        let may = client.access(FileRef::ROOT, b"/dir/file", libc::R_OK | libc::W_OK, 0);
        let (path, mut out) = (b"/dir/file", [0; 100]);
        let listed = client.list_xattr(FileRef::ROOT, path, 0, &mut out);
        let label = client.get_xattr(FileRef::ROOT, path, 0, b"security.selinux", &mut out);
        (told, opened, may, client.fstat(file), (listed, label))
    };
    let first = all();
    let before = calls(&client);
    assert_eq!(all(), first);
    assert_eq!(calls(&client), before, "nothing was asked");
    assert_eq!(first.4, (Ok(0), Err(libc::ENODATA)));
    assert!(first.0[..4].iter().all(Result::is_ok) && first.1 == Err(libc::ENOENT) && first.2.is_ok());
    // What is appended in shared memory shows without a call, too.
    client.pwrite(file, b"ten bytes.", 0).unwrap();
    let before = calls(&client);
    assert_eq!((client.fstat(file).unwrap().size, asked(&client, "/dir/file", 0).unwrap().size), (10, 10));
    assert_eq!(calls(&client), before);
}

/// A tree of directories with as many files each, made by a client of a server that has ended.
fn tree(dirs: usize, files: usize) -> Rig {
    let rig = Rig::new(64 << 20);
    let maker = rig.client();
    for dir in 0..dirs {
        maker.mkdir(FileRef::ROOT, format!("/{dir}").as_bytes(), 0o755).unwrap();
        for file in 0..files {
            let path = format!("/{dir}/{file}");
            let open = maker.open(FileRef::ROOT, path.as_bytes(), RW | libc::O_CREAT, 0o644).unwrap();
            maker.close(open.file).unwrap();
        }
    }
    drop(maker);
    rig.restarted()
}

#[test]
fn who_asks_for_names_one_by_one_is_told_the_others() {
    let rig = tree(1, 1000);
    let client = rig.client();
    let stat = |file: usize| asked(&client, &format!("/0/{file}"), 0).unwrap();
    stat(500);
    let before = calls(&client);
    for file in (0..1000).rev() {
        stat(file);
    }
    let made = calls(&client) - before;
    assert!(made < 40, "{made} calls for 1000 names");
    // What was told ahead is as new as what was asked.
    let other = rig.client();
    other.unlink(FileRef::ROOT, b"/0/7", 0).unwrap();
    other.rename(FileRef::ROOT, b"/0/8", FileRef::ROOT, b"/0/9", 0).unwrap();
    assert_eq!([7, 8].map(|file| asked(&client, &format!("/0/{file}"), 0)), [Err(libc::ENOENT); 2]);
    assert!(asked(&client, "/0/9", 0).is_ok());
}

#[test]
fn who_opens_directories_one_by_one_finds_the_others_listed() {
    let rig = tree(200, 5);
    let client = rig.client();
    let before = calls(&client);
    for dir in (0..200).rev() {
        assert_eq!(listed(&client, &format!("/{dir}")).unwrap().len(), 7);
    }
    let made = calls(&client) - before;
    assert!(made < 60, "{made} calls for 200 directories");
    let other = rig.client();
    other.unlink(FileRef::ROOT, b"/7/3", 0).unwrap();
    other.mkdir(FileRef::ROOT, b"/8/new", 0o755).unwrap();
    assert_eq!([7, 8].map(|dir| listed(&client, &format!("/{dir}")).unwrap().len()), [6, 8]);
    // Nobody has them open.
    other.unlink(FileRef::ROOT, b"/8/new", libc::AT_REMOVEDIR).unwrap();
    (0..5).filter(|file| *file != 3).for_each(|file| {
        other.unlink(FileRef::ROOT, format!("/7/{file}").as_bytes(), 0).unwrap();
    });
    other.unlink(FileRef::ROOT, b"/7", libc::AT_REMOVEDIR).unwrap();
    assert_eq!(open_dir(&client, "/7"), Err(libc::ENOENT));
}

#[test]
fn nothing_old_is_told_after_a_change_that_another_client_knows_of() {
    let rig = Rig::new(64 << 20);
    let (writer, readers) = (rig.client(), [rig.client(), rig.client()]);
    let (made, going) = (AtomicU64::new(0), AtomicU64::new(0));
    let name = |n: u64| format!("/f{n}").into_bytes();
    const FILES: u64 = 4000;
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| {
                while made.load(Acquire) < FILES {
                    let before = made.load(Acquire);
                    let newest = reader.stat(FileRef::ROOT, &name(before), 0);
                    let older = reader.stat(FileRef::ROOT, &name(before.saturating_sub(1)), 0);
                    let is_going = going.load(Acquire) >= before;
                    // A file goes once the next one is there; the one before the newest has gone already.
                    assert!(newest.is_ok() || is_going, "file {before} is not there");
                    assert_eq!(older.map(drop), Err(libc::ENOENT), "file {before}'s predecessor is there");
                }
            });
        }
        for n in 1..=FILES {
            let file = writer.open(FileRef::ROOT, &name(n), RW | libc::O_CREAT, 0o644).unwrap().file;
            writer.close(file).unwrap();
            going.store(n - 1, Release);
            if n > 1 {
                writer.unlink(FileRef::ROOT, &name(n - 1), 0).unwrap();
            }
            made.store(n, Release);
        }
    });
}
