//! Several threads at once.

use super::Make;
use super::fixture::{Fixture, args, assert_fails, assert_same, bytes};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use weft_core::Ino;
use weft_vfs::{FsError, NewNode, RenameFlags};

const ROOT: Ino = Ino::ROOT;
const THREADS: usize = 4;

/// Threads that write files of their own do not disturb each other.
pub fn threads_with_files_of_their_own_do_not_disturb_each_other(make: Make<'_>) {
    let fs = &*make();
    thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || {
                let ino = fs.file(&format!("file{t}"));
                let mut wanted = Vec::new();
                for n in 0..300 {
                    let record = bytes((t * 1000 + n) as u64, 1 + (n * 97 + t * 31) % 2000);
                    if n % 10 == 9 {
                        fs.write_through(ino, wanted.len() as u64, &record).unwrap();
                    } else {
                        fs.write(ino, wanted.len() as u64, &record).unwrap();
                    }
                    wanted.extend(record);
                    if n % 50 == 0 {
                        fs.fsync(ino).unwrap();
                    }
                }
                assert_same(&fs.content(ino), &wanted, &format!("thread {t}"));
            });
        }
    });
    assert_eq!(fs.list(ROOT).len(), THREADS);
}

/// Threads that write disjoint ranges of one file all find their bytes, even within one block.
pub fn threads_write_disjoint_ranges_of_one_file(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    let (len, pieces) = (333, 200);
    thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || {
                for n in 0..pieces {
                    let slot = n * THREADS + t;
                    fs.write(ino, (slot * len) as u64, &bytes(slot as u64, len)).unwrap();
                    if n % 64 == t {
                        fs.fsync(ino).unwrap();
                    }
                }
            });
        }
    });
    let content = fs.content(ino);
    assert_eq!(content.len(), THREADS * pieces * len);
    for (slot, piece) in content.chunks(len).enumerate() {
        assert_same(piece, &bytes(slot as u64, len), &format!("slot {slot}"));
    }
}

/// A write is seen whole or not at all: readers of a block never see parts of two writes.
pub fn a_write_of_one_block_is_seen_whole_or_not_at_all(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", &[0; 4096]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let content = fs.read_at(ino, 0, 4096);
                        assert!(content.iter().all(|byte| *byte == content[0]), "parts of two writes");
                    }
                })
            })
            .collect();
        for version in 0..500u32 {
            let block = [(version % 251) as u8; 4096];
            if version % 3 == 0 {
                fs.write_through(ino, 0, &block).unwrap();
            } else {
                fs.write(ino, 0, &block).unwrap();
            }
            if version % 20 == 0 {
                fs.fsync(ino).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// A reader of a growing log sees a prefix of it at every moment.
pub fn a_reader_of_a_growing_file_sees_a_prefix(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("log");
    let whole = bytes(77, 200_000);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let seen = fs.attr(ino).size as usize;
                let content = fs.read_at(ino, 0, seen);
                assert_same(&content, &whole[..seen], "what the size promises");
            }
        });
        let mut at = 0;
        while at < whole.len() {
            let end = (at + 443).min(whole.len());
            fs.write(ino, at as u64, &whole[at..end]).unwrap();
            at = end;
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_same(&fs.content(ino), &whole, "the log");
}

/// Of several threads that create one name, one succeeds.
pub fn one_of_several_creators_of_a_name_wins(make: Make<'_>) {
    let fs = &*make();
    for round in 0..50 {
        let name = format!("file{round}");
        let winners = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| match fs.create(ROOT, name.as_bytes(), &args(NewNode::File)) {
                    Ok(_) => drop(winners.fetch_add(1, Ordering::Relaxed)),
                    Err(FsError::Exists) => {}
                    Err(other) => panic!("{other:?}"),
                });
            }
        });
        assert_eq!(winners.into_inner(), 1, "{name}");
    }
    assert_eq!(fs.list(ROOT).len(), 50);
}

/// Threads fill and empty one directory without losing or inventing entries.
pub fn threads_share_a_directory(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || {
                for n in 0..200 {
                    let name = format!("{t}-{n}");
                    let ino = fs.make(dir, name.as_bytes(), NewNode::File);
                    fs.write(ino, 0, name.as_bytes()).unwrap();
                    if n % 2 == 1 {
                        fs.unlink(dir, name.as_bytes()).unwrap();
                    }
                    if n % 40 == 0 {
                        fs.entries(dir, 0, usize::MAX);
                        fs.fsync(dir).unwrap();
                    }
                }
            });
        }
    });
    let names = fs.list(dir);
    assert_eq!(names.len(), THREADS * 100);
    for name in names {
        let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
        assert_eq!(fs.content(ino), name.as_bytes());
    }
}

/// Directories that are moved into each other by two threads never form a loop, and link counts stay right.
pub fn concurrent_directory_moves_never_form_a_loop(make: Make<'_>) {
    let fs = &*make();
    let (a, b) = (fs.dir("a"), fs.dir("b"));
    thread::scope(|scope| {
        for (name, other, back) in [(&b"a"[..], b, &b"a"[..]), (b"b", a, b"b")] {
            scope.spawn(move || {
                for _ in 0..300 {
                    let moved = fs.rename(ROOT, name, other, b"moved", RenameFlags::empty());
                    match moved {
                        Ok(()) => fs.rename(other, b"moved", ROOT, back, RenameFlags::empty()).unwrap(),
                        Err(FsError::Invalid(_)) => {}
                        Err(unexpected) => panic!("{unexpected:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(fs.list(ROOT), ["a", "b"]);
    assert_eq!((fs.attr(ROOT).links, fs.attr(a).links, fs.attr(b).links), (4, 2, 2));
    assert_eq!((fs.parent(a).unwrap(), fs.parent(b).unwrap()), (ROOT, ROOT));
}

/// Links that are made and removed by several threads leave the count that the names have.
pub fn concurrent_links_are_counted(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || {
                for n in 0..200 {
                    let name = format!("{t}-{n}");
                    fs.link(ino, ROOT, name.as_bytes()).unwrap();
                    if n >= 10 {
                        fs.unlink(ROOT, format!("{t}-{}", n - 10).as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs.list(ROOT).len(), 1 + THREADS * 10);
    assert_eq!(fs.attr(ino).links as usize, 1 + THREADS * 10);
}

/// A file that is unlinked while others read and write it stays whole until the last of them closes it.
pub fn a_file_is_unlinked_while_others_use_it(make: Make<'_>) {
    let fs = &*make();
    for round in 0..20 {
        let data = bytes(round, 30_000);
        let ino = fs.file_with("file", &data);
        for _ in 0..THREADS {
            fs.open(ino).unwrap();
        }
        thread::scope(|scope| {
            for t in 0..THREADS {
                let data = &data;
                scope.spawn(move || {
                    for _ in 0..10 {
                        assert_same(&fs.read_at(ino, 0, 30_000), data, "while it is unlinked");
                        fs.write(ino, 30_000 + t as u64 * 100, &[t as u8; 100]).unwrap();
                    }
                    fs.release(ino);
                });
            }
            fs.unlink(ROOT, b"file").unwrap();
        });
        assert_fails!(fs.getattr(ino), FsError::Stale);
    }
}

/// A sync beside writers makes no write get lost.
pub fn syncing_beside_writers_loses_nothing(make: Make<'_>) {
    let fs = &*make();
    let inos: Vec<Ino> = (0..THREADS).map(|t| fs.file(&format!("file{t}"))).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs.sync().unwrap();
            }
        });
        let writers: Vec<_> = inos
            .iter()
            .enumerate()
            .map(|(t, ino)| {
                scope.spawn(move || {
                    for n in 0..150u64 {
                        fs.write(*ino, n * 1000, &bytes(t as u64 * 1000 + n, 1000)).unwrap();
                        fs.write(*ino, n * 500, &bytes(t as u64 * 7000 + n, 100)).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        syncer.join().unwrap();
    });
    for (t, ino) in inos.iter().enumerate() {
        let mut wanted = vec![0; 150_000];
        for n in 0..150u64 {
            let at = n as usize * 1000;
            wanted[at..at + 1000].copy_from_slice(&bytes(t as u64 * 1000 + n, 1000));
            let at = n as usize * 500;
            wanted[at..at + 100].copy_from_slice(&bytes(t as u64 * 7000 + n, 100));
        }
        assert_same(&fs.content(*ino), &wanted, &format!("file {t}"));
    }
}
