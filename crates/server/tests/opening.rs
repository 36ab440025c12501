//! What a client opens without a call is open for whoever could notice: it reads what it opened, whatever becomes of the name,
//! and nothing of it stays behind.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Dice, Rig};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use weft_client::proto::ITSELF;
use weft_client::{Child, Client, FileRef, LockRange};

const ROOT: FileRef = FileRef::ROOT;
const RW: i32 = libc::O_RDWR;

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

/// Makes a file of a content, all of which is on the device.
fn make(client: &Client, path: &[u8], content: &[u8]) {
    let file = client.open(ROOT, path, RW | libc::O_CREAT | libc::O_TRUNC, 0o644).unwrap().file;
    assert_eq!(client.pwrite(file, content, 0), Ok(content.len()));
    client.fsync(file).unwrap();
    client.close(file).unwrap();
}

fn open(client: &Client, path: &[u8]) -> FileRef {
    client.open(ROOT, path, libc::O_RDONLY, 0).unwrap().file
}

/// Opens a file by itself, after the calls that it takes until that can be.
fn open_itself(client: &Client, path: &[u8]) -> FileRef {
    for _ in 0..4 {
        let before = calls(client);
        let file = open(client, path);
        if calls(client) == before {
            return file;
        }
        client.close(file).unwrap();
    }
    panic!("not opened without a call");
}

fn content(client: &Client, file: FileRef) -> Vec<u8> {
    let mut all = vec![0; 100_000];
    let len = client.pread(file, &mut all, 0).unwrap();
    all.truncate(len);
    all
}

fn free(client: &Client) -> u64 {
    client.sync().unwrap();
    client.statfs().unwrap().free_bytes
}

#[test]
fn what_was_open_is_opened_read_and_closed_without_a_call() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    for number in 0..100 {
        make(&other, format!("/{number}").as_bytes(), &[number; 5000]);
    }
    // The last one is closed with the next request.
    other.sync().unwrap();
    // Of reads, those of what the core still buffers are calls.
    let all = || {
        let mut made = 0;
        for number in 0..100 {
            let before = calls(&client);
            let file = open(&client, format!("/{number}").as_bytes());
            made += calls(&client) - before;
            assert_eq!(content(&client, file), [number; 5000]);
            let before = calls(&client);
            client.close(file).unwrap();
            made += calls(&client) - before;
        }
        made
    };
    all();
    // The last ones are closed with the next request.
    client.sync().unwrap();
    assert_eq!(all(), 0);
    // As many at once as are granted, which are more and more.
    for _ in 0..6 {
        let files: Vec<_> = (0..100).map(|number| open(&client, format!("/{number}").as_bytes())).collect();
        for (number, file) in (0..).zip(&files) {
            assert_eq!(content(&client, *file), [number; 5000]);
        }
        files.into_iter().for_each(|file| client.close(file).unwrap());
    }
    let before = calls(&client);
    let files: Vec<_> = (0..60).map(|number| open(&client, format!("/{number}").as_bytes())).collect();
    assert_eq!(calls(&client), before);
    // A reference to one that is closed is none to the next one.
    let (gone, kept) = (files[0], &files[1..]);
    client.close(gone).unwrap();
    let next = open_itself(&client, b"/99");
    assert_ne!(gone, next);
    assert_eq!(client.pread(gone, &mut [0; 10], 0), Err(libc::EBADF));
    assert_eq!(client.fstat(gone).map(drop), Err(libc::EBADF));
    assert_eq!(content(&client, next), [99; 5000]);
    kept.iter().for_each(|file| client.close(*file).unwrap());
}

#[test]
fn the_first_read_of_a_small_file_makes_no_call_and_what_the_core_buffers_takes_one() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let read = |wanted: &[u8]| {
        let file = open(&client, b"/small");
        let before = calls(&client);
        assert!(content(&client, file) == wanted);
        let made = calls(&client) - before;
        client.close(file).unwrap();
        made
    };
    make(&other, b"/small", &[1; 30_000]);
    other.sync().unwrap();
    assert_eq!(read(&[1; 30_000]), 0, "where its blocks are is told with the open");
    // What is written from now on is in the core's buffer, and copied for whoever asks.
    let file = other.open(ROOT, b"/small", RW | libc::O_DSYNC, 0).unwrap().file;
    let mut wanted = vec![1; 30_000];
    for round in 2..20 {
        wanted[5000..15_000].fill(round);
        assert_eq!(other.pwrite(file, &wanted[5000..15_000], 5000), Ok(10_000));
        assert!(read(&wanted) <= 1, "round {round}");
        assert_eq!(read(&wanted), 0, "round {round}");
    }
    other.ftruncate(file, 6000).unwrap();
    other.ftruncate(file, 9000).unwrap();
    wanted.truncate(9000);
    wanted[6000..].fill(0);
    read(&wanted);
    assert_eq!(read(&wanted), 0);
    // Once they are on the device, their pages serve others.
    other.sync().unwrap();
    assert_eq!(read(&wanted), 0);
    // A file that was large, with copies of its first blocks, and is opened again when it is small.
    let large = other.open(ROOT, b"/large", RW | libc::O_CREAT, 0o644).unwrap().file;
    assert_eq!(other.pwrite(large, &[5; 50_000], 0), Ok(50_000));
    other.fsync(large).unwrap();
    assert_eq!(other.pwrite(large, &[5; 10_000], 0), Ok(10_000));
    assert_eq!(content(&other, large), [5; 50_000]);
    other.ftruncate(large, 20_000).unwrap();
    for _ in 0..2 {
        let file = open(&client, b"/large");
        assert_eq!(content(&client, file), [5; 20_000]);
        client.close(file).unwrap();
    }
}

#[test]
fn requests_name_what_a_client_has_opened_by_itself() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    other.mkdir(ROOT, b"/d", 0o755).unwrap();
    make(&other, b"/d/a", &[7; 5000]);
    make(&other, b"/b", &[8; 5000]);
    let path = |file| {
        let mut out = [0; 4096];
        let found = client.path_of(file, &mut out).unwrap();
        String::from_utf8(out[..found.len].to_vec()).unwrap()
    };
    // Each of these is the first that the server hears of it.
    let file = open_itself(&client, b"/d/a");
    client.add_ref(file).unwrap();
    client.close(file).unwrap();
    assert_eq!(content(&client, file), [7; 5000]);
    client.close(file).unwrap();
    let file = open_itself(&client, b"/d/a");
    assert_eq!(path(file), "/d/a");
    client.close(file).unwrap();
    let file = open_itself(&client, b"/d/a");
    let secret = client.pass(file).unwrap();
    client.close(file).unwrap();
    other.take(file, secret, false).unwrap();
    assert_eq!(content(&other, file), [7; 5000]);
    other.close(file).unwrap();
    let file = open_itself(&client, b"/d/a");
    let again = client.open(file, ITSELF, RW, 0).unwrap().file;
    assert_eq!(client.pwrite(again, b"x", 0), Ok(1));
    assert_eq!(content(&client, file)[..2], [b'x', 7]);
    assert_eq!(client.pwrite(file, b"y", 0), Err(libc::EBADF));
    client.close(again).unwrap();
    client.close(file).unwrap();
    // Locks, of the file and of the process.
    let file = open_itself(&client, b"/b");
    let theirs = other.open(ROOT, b"/b", RW, 0).unwrap().file;
    client.flock(file, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    assert_eq!(other.flock(theirs, libc::LOCK_EX | libc::LOCK_NB), Err(libc::EAGAIN));
    client.close(file).unwrap();
    other.flock(theirs, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    other.flock(theirs, libc::LOCK_UN).unwrap();
    let (file, second) = (open_itself(&client, b"/b"), open_itself(&client, b"/b"));
    let all = |kind| LockRange { kind, start: 0, len: 0, pid: 0 };
    client.record_lock(file, libc::F_SETLK, &all(libc::F_RDLCK)).unwrap();
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &all(libc::F_WRLCK)).err(), Some(libc::EAGAIN));
    client.close(second).unwrap();
    other.record_lock(theirs, libc::F_SETLK, &all(libc::F_WRLCK)).unwrap();
    client.close(file).unwrap();
    other.close(theirs).unwrap();
    // A directory that is closed and renamed takes nothing away from what was opened from it.
    let dir = client.open(ROOT, b"/d", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    let from_dir = || client.open(dir, b"a", libc::O_RDONLY, 0).unwrap().file;
    client.close(from_dir()).unwrap();
    let before = calls(&client);
    let file = from_dir();
    assert_eq!(calls(&client), before);
    client.close(dir).unwrap();
    client.sync().unwrap();
    other.unlink(ROOT, b"/d/a", 0).unwrap();
    other.unlink(ROOT, b"/d", libc::AT_REMOVEDIR).unwrap();
    assert_eq!(path(file), "/d/a (deleted)");
    client.close(file).unwrap();
    // Nor does one that the client has opened by itself, from another one.
    other.mkdir(ROOT, b"/x", 0o755).unwrap();
    other.mkdir(ROOT, b"/x/y", 0o755).unwrap();
    make(&other, b"/x/y/z", &[9; 5000]);
    for path in [&b"/x"[..], b"/x/y", b"/x/y/z"] {
        client.close(open(&client, path)).unwrap();
    }
    client.sync().unwrap();
    let itself = |at, path: &[u8]| {
        let before = calls(&client);
        let file = client.open(at, path, libc::O_RDONLY, 0).unwrap().file;
        assert_eq!(calls(&client), before, "{}", String::from_utf8_lossy(path));
        file
    };
    for binds_all in [false, true] {
        let above = itself(ROOT, b"/x");
        let dir = itself(above, if binds_all { b"y//" } else { b"y" });
        let file = itself(dir, b"z");
        if binds_all {
            client.forget(client.prepare_child(Child::Forked).unwrap());
        } else {
            client.close(above).unwrap();
            client.close(dir).unwrap();
        }
        assert_eq!((path(file).as_str(), content(&client, file)), ("/x/y/z", vec![9; 5000]));
        client.close(file).unwrap();
        if !binds_all {
            for closed in [above, dir] {
                assert_eq!(client.path_of(closed, &mut [0; 100]).map(drop), Err(libc::EBADF), "it is closed");
            }
        }
        if binds_all {
            assert_eq!((path(dir).as_str(), path(above).as_str()), ("/x/y", "/x"));
            client.close(dir).unwrap();
            client.close(above).unwrap();
        }
    }
}

#[test]
fn a_name_that_changes_changes_what_it_names_for_open_files_too() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    make(&other, b"/a", &[7; 5000]);
    make(&other, b"/b", &[8; 5000]);
    let (a, b) = (open_itself(&client, b"/a"), open_itself(&client, b"/b"));
    other.rename(ROOT, b"/a", ROOT, b"/c", 0).unwrap();
    assert_eq!(client.open(ROOT, b"/a", libc::O_RDONLY, 0).map(drop), Err(libc::ENOENT));
    let mut out = [0; 4096];
    let found = client.path_of(a, &mut out).unwrap();
    assert_eq!(out[..found.len], *b"/c");
    other.rename(ROOT, b"/c", ROOT, b"/b", 0).unwrap();
    assert_eq!((content(&client, a), content(&client, b)), (vec![7; 5000], vec![8; 5000]));
    let new = open_itself(&client, b"/b");
    assert_eq!(content(&client, new), [7; 5000]);
    [a, b, new].into_iter().for_each(|file| client.close(file).unwrap());
}

#[test]
fn what_loses_its_name_stays_as_long_as_it_is_open_and_no_longer() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    make(&other, b"/left", &[1; 100]);
    client.close(open_itself(&client, b"/left")).unwrap();
    let empty = free(&other);
    let big = vec![9; 8 << 20];
    for way in 0..5 {
        make(&other, b"/a", &big);
        let file = open_itself(&client, b"/a");
        match way {
            // Closed before: nothing keeps it.
            0 => {
                client.close(file).unwrap();
                other.unlink(ROOT, b"/a", 0).unwrap();
            }
            // Open: it can be read to its end.
            1 | 2 => {
                if way == 1 {
                    other.unlink(ROOT, b"/a", 0).unwrap();
                } else {
                    make(&other, b"/b", &[1; 10]);
                    other.rename(ROOT, b"/b", ROOT, b"/a", 0).unwrap();
                    other.unlink(ROOT, b"/a", 0).unwrap();
                }
                let mut end = [0; 5000];
                assert_eq!(client.pread(file, &mut end, (8 << 20) - 5000), Ok(5000));
                assert_eq!(end, [9; 5000]);
                assert!(empty - free(&other) >= 8 << 20, "way {way}: an open file has no space");
                client.close(file).unwrap();
            }
            // In two processes, of which one ends.
            3 => {
                let third = rig.client();
                let theirs = open_itself(&third, b"/a");
                other.unlink(ROOT, b"/a", 0).unwrap();
                client.close(file).unwrap();
                assert!(empty - free(&other) >= 8 << 20);
                // The server has not heard of this one.
                assert_eq!(third.flags(theirs).unwrap() & libc::O_ACCMODE, libc::O_RDONLY);
                drop(third);
                for _ in 0..500 {
                    if empty.saturating_sub(free(&other)) < 1 << 20 {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            // A child has it, too.
            _ => {
                let ticket = client.prepare_child(Child::Forked).unwrap();
                other.unlink(ROOT, b"/a", 0).unwrap();
                client.close(file).unwrap();
                assert!(empty - free(&other) >= 8 << 20, "a child has lost its file");
                client.adopt(ticket);
                client.hear().unwrap();
                assert_eq!(client.pread(file, &mut [0; 10], 0), Ok(10));
                client.close(file).unwrap();
            }
        }
        let now = free(&other);
        assert!(empty.saturating_sub(now) < 1 << 20, "way {way}: {} bytes are kept", empty - now);
    }
}

#[test]
fn more_files_than_are_kept_are_opened_one_after_the_other() {
    let rig = Rig::new(256 << 20);
    let (client, other) = (rig.client(), rig.client());
    let count = 40_000u32;
    make(&other, b"/held", &[3; 5000]);
    let held = open_itself(&client, b"/held");
    for number in 0..count {
        let path = format!("/{number}");
        let file = other.open(ROOT, path.as_bytes(), RW | libc::O_CREAT, 0o644).unwrap().file;
        assert_eq!(other.pwrite(file, &number.to_le_bytes(), 0), Ok(4));
        other.close(file).unwrap();
    }
    for number in 0..count {
        let file = open(&client, format!("/{number}").as_bytes());
        let mut found = [0; 4];
        assert_eq!(client.pread(file, &mut found, 0), Ok(4));
        assert_eq!(u32::from_le_bytes(found), number);
        client.close(file).unwrap();
    }
    assert_eq!(content(&client, held), [3; 5000]);
    client.close(held).unwrap();
}

#[test]
fn any_sequence_of_operations_leaves_open_files_as_they_were_opened() {
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1000 } else { 20 };
    let mut without = 0;
    for seed in 1..=seeds {
        let rig = if seed % 3 == 0 { Rig::tight(64 << 20) } else { Rig::new(64 << 20) };
        let clients = [rig.client(), rig.client()];
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let empty = free(&clients[0]);
        // Which file has a name, and what is in each file; what is open, by whom.
        let (mut names, mut contents) = (BTreeMap::<Vec<u8>, usize>::new(), Vec::<Vec<u8>>::new());
        let mut files: Vec<(usize, FileRef, usize)> = Vec::new();
        for step in 0..600 {
            let what = format!("seed {seed}, step {step}");
            let name = |dice: &mut Dice| format!("/{}", dice.roll(8)).into_bytes();
            let who = dice.roll(2) as usize;
            let client = &clients[who];
            let (one, two) = (name(&mut dice), name(&mut dice));
            match dice.roll(20) {
                0..3 => {
                    if let Entry::Vacant(name) = names.entry(one) {
                        let content = vec![contents.len() as u8; 1 + dice.roll(9000) as usize];
                        make(client, name.key(), &content);
                        name.insert(contents.len());
                        contents.push(content);
                    }
                }
                3 => {
                    assert_eq!(client.unlink(ROOT, &one, 0).is_ok(), names.remove(&one).is_some(), "{what}");
                }
                4 => {
                    let moved = client.rename(ROOT, &one, ROOT, &two, 0).is_ok();
                    assert_eq!(moved, names.contains_key(&one), "{what}");
                    if one != two
                        && let Some(file) = names.remove(&one)
                        && names.get(&two) != Some(&file)
                    {
                        names.insert(two, file);
                    } else if let Some(file) = names.get(&two).copied()
                        && moved
                    {
                        // Two names of one file: nothing happens.
                        names.insert(one, file);
                    }
                }
                5 => {
                    let linked = client.link(ROOT, &one, ROOT, &two, 0).is_ok();
                    let may = names.contains_key(&one) && !names.contains_key(&two);
                    assert_eq!(linked, may, "{what}");
                    if linked {
                        names.insert(two, names[&one]);
                    }
                }
                6 => {
                    if let Some(file) = names.get(&one) {
                        let len = dice.roll(9000) as usize;
                        let content = &mut contents[*file];
                        let byte = content.first().copied().unwrap_or(*file as u8);
                        content.resize(len, byte);
                        make(client, &one, content);
                    }
                }
                7..13 => {
                    let before = calls(client);
                    match (client.open(ROOT, &one, libc::O_RDONLY, 0), names.get(&one)) {
                        (Ok(opened), Some(file)) => {
                            without += u64::from(calls(client) == before);
                            files.push((who, opened.file, *file));
                        }
                        (Err(libc::ENOENT), None) => {}
                        (opened, known) => panic!("{what}: {opened:?}, and {known:?} is there"),
                    }
                }
                13..17 => {
                    if !files.is_empty() {
                        let (who, file, _) = files.swap_remove(dice.roll(files.len() as u64) as usize);
                        clients[who].close(file).unwrap();
                    }
                }
                17 => client.sync().unwrap(),
                18 => {
                    let ticket = client.prepare_child(Child::Forked).unwrap();
                    if dice.roll(2) == 0 {
                        client.forget(ticket)
                    } else {
                        client.adopt(ticket);
                        client.hear().unwrap();
                    }
                }
                _ => {
                    if let Some((who, file, _)) = files.first() {
                        clients[*who].flock(*file, libc::LOCK_SH | libc::LOCK_NB).unwrap();
                    }
                }
            }
            for (who, file, of) in &files {
                assert_eq!(content(&clients[*who], *file), contents[*of], "{what}");
            }
        }
        files.into_iter().for_each(|(who, file, _)| clients[who].close(file).unwrap());
        names.keys().for_each(|name| clients[0].unlink(ROOT, name, 0).unwrap());
        // Connections that were made for children may end later.
        for _ in 0..500 {
            if empty.saturating_sub(free(&clients[1])) < 64 << 10 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let kept = empty.saturating_sub(free(&clients[1]));
        assert!(kept < 64 << 10, "seed {seed}: {kept} bytes are kept");
    }
    assert!(without > 100, "{without} files were opened without a call");
}

#[test]
fn opens_beside_changes_of_names_find_one_file_or_the_other() {
    let rig = Rig::new(64 << 20);
    let (writer, readers) = (rig.client(), [rig.client(), rig.client()]);
    let empty = free(&writer);
    let (stop, opened, without) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    make(&writer, b"/a", &[1; 6000]);
    std::thread::scope(|scope| {
        for reader in &readers {
            let (stop, opened, without) = (&stop, &opened, &without);
            scope.spawn(move || {
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let before = calls(reader);
                    let Ok(open) = reader.open(ROOT, b"/a", libc::O_RDONLY, 0) else { continue };
                    without.fetch_add(u64::from(calls(reader) == before), Relaxed);
                    let found = content(reader, open.file);
                    assert_eq!(found.len(), 6000);
                    assert!(found.iter().all(|byte| *byte == found[0]), "of two files");
                    // Newer and newer ones, modulo 256.
                    assert!(found[0].wrapping_sub(last) < 128, "{} after {last}", found[0]);
                    last = found[0];
                    reader.close(open.file).unwrap();
                    opened.fetch_add(1, Relaxed);
                }
            });
        }
        let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 20_000u32 } else { 400 };
        for round in 2..rounds {
            make(&writer, b"/new", &[round as u8; 6000]);
            if round % 3 == 0 {
                writer.unlink(ROOT, b"/a", 0).unwrap();
                assert_eq!(writer.open(ROOT, b"/a", libc::O_RDONLY, 0).map(drop), Err(libc::ENOENT));
            }
            writer.rename(ROOT, b"/new", ROOT, b"/a", 0).unwrap();
            // Readers come in between, not with each change.
            let seen = opened.load(Relaxed);
            while opened.load(Relaxed) < seen + 3 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(without.load(Relaxed) > 100, "{} without a call", without.load(Relaxed));
    writer.unlink(ROOT, b"/a", 0).unwrap();
    let kept = empty.saturating_sub(free(&writer));
    assert!(kept < 64 << 10, "{kept} bytes are kept");
}
