//! Programs of several operations that clients send, beside plain calls and leases of others.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Dice, Rig, is_superuser};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use weft_client::proto::{LONG_BEGINS, LONG_ENDS, Op};
use weft_client::shared::channel::Request;
use weft_client::{AttrChange, Client, FileRef, WireDirent};
use weft_vfs::InodeFlags;
use weft_vfs::compound::{
    Access, Allocate, Answer, Arith, Chain, Codec, Compare, Field, Kind, Num, OUTPUT_BYTES_MAX, Outcome,
};

fn open(client: &Client, path: &[u8], flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path, flags, 0o644).unwrap().file
}

fn do_by(client: &Client, chain: Chain) -> Answer {
    client.run_program(FileRef::ROOT, 0o22, &[], &chain.check().unwrap()).unwrap()
}

fn done(client: &Client, chain: Chain) -> Answer {
    let answer = do_by(client, chain);
    assert_eq!(answer.failed(), None, "{answer:?}");
    answer
}

fn content(client: &Client, path: &[u8]) -> Result<Vec<u8>, i32> {
    let file = client.open(FileRef::ROOT, path, libc::O_RDONLY, 0)?.file;
    let mut bytes = vec![0; client.fstat(file)?.size as usize + 1];
    let len = client.pread(file, &mut bytes, 0)?;
    bytes.truncate(len);
    client.close(file)?;
    Ok(bytes)
}

fn put(client: &Client, path: &[u8], bytes: &[u8]) {
    let file = open(client, path, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY);
    assert_eq!(client.write(file, bytes).unwrap(), bytes.len());
    client.close(file).unwrap();
}

fn chmod(client: &Client, path: &[u8], mode: u32) {
    let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
    client.set_attr(FileRef::ROOT, path, 0, &change).unwrap();
}

#[test]
fn a_program_of_a_client_is_seen_by_others_and_all_is_all_or_nothing() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    put(&client, b"/config", b"old");
    let held = open(&other, b"/config", libc::O_RDONLY);
    let replace = |fails: bool| {
        let mut chain = Chain::all().durable();
        let new = chain.create("/config.new", 0o666, true);
        chain.append(new, "new content");
        chain.rename("/config.new", "/config");
        if fails {
            chain.rmdir("/config");
        }
        chain
    };
    assert_eq!(do_by(&client, replace(true)).failed(), Some((3, libc::ENOTDIR)));
    assert_eq!(content(&other, b"/config").unwrap(), b"old");
    assert_eq!(content(&other, b"/config.new"), Err(libc::ENOENT));
    done(&client, replace(false));
    assert_eq!(content(&other, b"/config").unwrap(), b"new content");
    assert_eq!(content(&other, b"/config.new"), Err(libc::ENOENT));
    let attr = other.stat(FileRef::ROOT, b"/config", 0).unwrap();
    assert_eq!(attr.mode & 0o7777, 0o644, "the umask counts");
    let mut bytes = [0; 9];
    assert_eq!(other.pread(held, &mut bytes, 0).unwrap(), 3, "who had the old one open has it still");
    assert_eq!(other.fstat(held).unwrap().links, 0);
}

#[test]
fn a_program_sees_what_clients_hold_in_rings_and_areas_and_they_see_what_it_writes() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let file = open(&client, b"/log", libc::O_CREAT | libc::O_RDWR);
    let reader = open(&other, b"/log", libc::O_RDONLY);
    let mut expected = Vec::new();
    let mut dice = Dice(7);
    for round in 0..400u64 {
        let piece = vec![round as u8; dice.roll(9000) as usize + 1];
        match dice.roll(4) {
            0 => {
                client.pwrite(file, &piece, expected.len() as u64).unwrap();
                expected.extend_from_slice(&piece);
            }
            1 if !expected.is_empty() => {
                let at = dice.roll(expected.len() as u64) as usize;
                let len = piece.len().min(expected.len() - at);
                client.pwrite(file, &piece[..len], at as u64).unwrap();
                expected[at..at + len].copy_from_slice(&piece[..len]);
            }
            2 => {
                let mut chain = Chain::all();
                let log = chain.open("/log", Access::ReadWrite);
                let at = chain.append(log, piece.as_slice());
                chain.export(at);
                let whole = chain.read(log, 0, 1 << 22);
                let crc = chain.crc32c(whole);
                chain.export(crc);
                let answer = done(&client, chain);
                assert_eq!(answer.num(1), Some(expected.len() as u64));
                expected.extend_from_slice(&piece);
                assert_eq!(answer.num(3), Some(weft_core::checksum::crc32c(&expected).into()));
            }
            _ => {
                let size = dice.roll(expected.len() as u64 + 2000);
                let mut chain = if round % 2 == 0 { Chain::all() } else { Chain::each() };
                let log = chain.open("/log", Access::Write);
                chain.truncate(log, size);
                done(&client, chain);
                expected.resize(size as usize, 0);
            }
        }
        assert_eq!(other.fstat(reader).unwrap().size, expected.len() as u64);
        let mut bytes = vec![0; expected.len() + 1];
        let mut len = 0;
        while len < expected.len() {
            len += other.pread(reader, &mut bytes[len..], len as u64).unwrap();
        }
        assert!(bytes[..len] == expected[..], "round {round}");
    }
    assert!(client.measured().ring_bytes.load(Relaxed) > 0, "appends went through the server");
}

#[test]
fn programs_and_answers_of_megabytes_come_and_go_in_pieces() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let bytes: Vec<u8> = (0..3_500_000u32).map(|at| (at / 7) as u8).collect();
    let mut chain = Chain::all();
    let file = chain.create("/large", 0o644, true);
    chain.append(file, bytes.as_slice());
    let read = chain.read(file, 5, bytes.len() as u64);
    chain.export(read);
    let answer = done(&client, chain);
    assert!(answer.bytes(2).unwrap() == &bytes[5..]);
    // More than may be exported.
    let mut chain = Chain::all();
    let file = chain.open("/large", Access::Read);
    let halves = [0, 1].map(|_| chain.read(file, 0, bytes.len() as u64));
    halves.into_iter().for_each(|half| chain.export(half));
    const { assert!(OUTPUT_BYTES_MAX < 7_000_000) };
    assert_eq!(do_by(&client, chain).failed(), Some((2, libc::EMSGSIZE)));
    assert!(content(&client, b"/large").unwrap() == bytes);
}

/// Writers move an amount between two files by programs; nobody ever sees half of that, by whatever he looks.
#[test]
fn nobody_sees_half_of_a_step() {
    let rig = Rig::new(64 << 20);
    let setup = rig.client();
    put(&setup, b"/a", &0u64.to_le_bytes());
    put(&setup, b"/b", &0u64.to_le_bytes());
    let (stop, steps, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 20_000 } else { 400 };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (client, steps) = (rig.client(), &steps);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        // Both files grow, and their sizes stay the same, too.
                        let mut chain = Chain::all();
                        let files = ["/a", "/b"].map(|path| chain.open(path, Access::ReadWrite));
                        let counts = files.map(|file| {
                            let bytes = chain.read(file, 0, 8);
                            chain.unpack(bytes, 0, 8)
                        });
                        chain.expect(counts[0], Compare::Equal, counts[1]);
                        let next = chain.arith(counts[0], Arith::Add, 1);
                        let bytes = chain.pack(next, 8);
                        for file in files {
                            chain.write(file, 0, bytes);
                            // Little: more than 256 KiB would be read by several calls.
                            chain.append(file, [7u8; 5].as_slice());
                        }
                        done(&client, chain);
                        steps.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        // A program that only reads finds both as they are between two steps.
        let (client, stop_programs) = (rig.client(), &stop);
        scope.spawn(move || {
            while !stop_programs.load(Relaxed) {
                let mut chain = Chain::all();
                let both = ["/b", "/a"].map(|path| {
                    let file = chain.open(path, Access::Read);
                    let attr = chain.stat(file);
                    (chain.read(file, 0, 8), chain.field(attr, Field::Size))
                });
                chain.expect(both[0].0, Compare::Equal, both[1].0);
                chain.expect(both[0].1, Compare::Equal, both[1].1);
                done(&client, chain);
            }
        });
        for reader in 0..3 {
            let (client, stop, looks) = (rig.client(), &stop, &looks);
            scope.spawn(move || {
                let files = [&b"/a"[..], b"/b"].map(|path| open(&client, path, libc::O_RDONLY));
                let mut ring = 0u64;
                while !stop.load(Relaxed) {
                    // What is looked at later is not older.
                    let seen = files.map(|file| match reader {
                        0 => {
                            let mut bytes = [0; 8];
                            assert_eq!(client.pread(file, &mut bytes, 0).unwrap(), 8);
                            u64::from_le_bytes(bytes)
                        }
                        1 => client.fstat(file).unwrap().size,
                        _ => client.seek(file, 0, libc::SEEK_END).unwrap(),
                    });
                    assert!(seen[0] <= seen[1], "reader {reader}: {seen:?}");
                    let mut whole = vec![0; 8 + 2 * rounds as usize * 5];
                    let len = client.pread(files[0], &mut whole, 0).unwrap();
                    let count = u64::from_le_bytes(*whole.first_chunk().unwrap());
                    assert_eq!(len as u64, 8 + count * 5, "a read of one file sees all of a step or nothing");
                    ring += 1;
                }
                looks.fetch_add(ring, Relaxed);
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Relaxed);
    });
    assert_eq!(steps.load(Relaxed), 2 * rounds);
    assert!(looks.load(Relaxed) > 0);
    let both = [&b"/a"[..], b"/b"].map(|path| content(&setup, path).unwrap());
    assert!(both[0] == both[1] && both[0][..8] == (2 * rounds).to_le_bytes());
}

/// Programs that append to two files, and clients that append to them by themselves: nothing is lost, nothing torn.
#[test]
fn programs_and_appends_of_clients_do_not_lose_each_others_bytes() {
    let rig = Rig::new(64 << 20);
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 20_000u64 } else { 500 };
    let setup = rig.client();
    put(&setup, b"/x", b"");
    put(&setup, b"/y", b"");
    std::thread::scope(|scope| {
        for worker in 0..4u8 {
            let client = rig.client();
            scope.spawn(move || {
                let files =
                    [&b"/x"[..], b"/y"].map(|path| open(&client, path, libc::O_WRONLY | libc::O_APPEND));
                for round in 0..rounds {
                    let line = [worker; 16];
                    if worker < 2 {
                        client.write(files[round as usize % 2], &line).unwrap();
                    } else {
                        // In different orders.
                        let mut paths = ["/x", "/y"];
                        paths.rotate_left(usize::from(worker % 2));
                        let mut chain = if round % 5 == 0 { Chain::each() } else { Chain::all() };
                        for path in paths {
                            let file = chain.open(path, Access::Write);
                            chain.append(file, line.as_slice());
                        }
                        done(&client, chain);
                    }
                }
            });
        }
    });
    let mut counts = [0u64; 4];
    for path in [&b"/x"[..], b"/y"] {
        for line in content(&setup, path).unwrap().chunks(16) {
            assert!(line.len() == 16 && line.iter().all(|byte| *byte == line[0]), "{line:?}");
            counts[usize::from(line[0])] += 1;
        }
    }
    assert_eq!(counts, [rounds, rounds, 2 * rounds, 2 * rounds]);
}

#[test]
fn names_of_open_files_follow_what_a_program_renames_twice() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    put(&client, b"/a", b"a");
    put(&client, b"/c", b"c");
    let held = [&b"/a"[..], b"/c"].map(|path| open(&client, path, libc::O_RDONLY));
    let mut chain = Chain::all();
    chain.mkdir("/d", 0o755);
    chain.rename("/a", "/d/b");
    chain.rename("/d/b", "/c");
    let c = chain.open("/c", Access::Read);
    let attr = chain.stat(c);
    let size = chain.field(attr, Field::Size);
    chain.export(size);
    assert_eq!(done(&client, chain).num(5), Some(1));
    let mut path = [0; 64];
    let named = client.path_of(held[0], &mut path).unwrap();
    assert_eq!((&path[..named.len], named.deleted), (&b"/c"[..], false));
    assert!(client.path_of(held[1], &mut path).unwrap().deleted, "the file that was replaced has no name");
    assert_eq!(content(&client, b"/c").unwrap(), b"a");
}

#[test]
fn a_program_begins_where_it_is_told_and_may_do_what_its_user_may() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/open", 0o777).unwrap();
    chmod(&client, b"/open", 0o777);
    put(&client, b"/secret", b"secret");
    chmod(&client, b"/secret", 0o600);
    let dir = open(&client, b"/open", libc::O_RDONLY | libc::O_DIRECTORY);
    let make = |path: &str| {
        let mut chain = Chain::all();
        chain.create(path, 0o666, true);
        chain.check().unwrap()
    };
    assert_eq!(client.run_program(dir, 0o77, &[], &make("mine")).unwrap().failed(), None);
    assert_eq!(client.stat(FileRef::ROOT, b"/open/mine", 0).unwrap().mode & 0o7777, 0o600);
    rig.as_user(1000, || {
        let stranger = rig.client();
        assert_eq!(
            stranger.run_program(FileRef::ROOT, 0, &[], &make("/theirs")).unwrap().failed(),
            Some((0, libc::EACCES))
        );
        assert_eq!(
            stranger.run_program(FileRef::ROOT, 0, &[], &make("/open/theirs")).unwrap().failed(),
            None
        );
        let mut chain = Chain::prefix();
        chain.mkdir("/open/dir", 0o755);
        chain.open("/secret", Access::Read);
        let answer = do_by(&stranger, chain);
        assert_eq!(answer.failed(), Some((1, libc::EACCES)));
        assert_eq!(answer.outcomes[0], Outcome::Done(None));
        assert_eq!(
            stranger.run_program(dir, 0, &[], &make("x")),
            Err(libc::EBADF),
            "the directory of another process"
        );
        stranger.stat(FileRef::ROOT, b"/open/dir", 0).unwrap();
    });
}

/// A right that was taken away is not used any more, however long the program computes between its check and its step.
#[test]
fn a_program_does_nothing_by_a_right_that_was_taken_away() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let owner = rig.client();
    owner.mkdir(FileRef::ROOT, b"/shared", 0o777).unwrap();
    let stop = AtomicBool::new(false);
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 2000 } else { 60 };
    let names = || {
        let dir = open(&owner, b"/shared", libc::O_RDONLY | libc::O_DIRECTORY);
        let mut out = vec![0; 128 << 10];
        let (mut cookie, mut count) = (0, 0);
        loop {
            let len = owner.read_dir(dir, cookie, &mut out).unwrap();
            let mut rest = &out[..len];
            while let Some((entry, _, others)) = WireDirent::split_first(rest) {
                count += 1;
                (cookie, rest) = (entry.cookie, others);
            }
            if len == 0 {
                owner.close(dir).unwrap();
                return count;
            }
        }
    };
    std::thread::scope(|scope| {
        let (rig, stop) = (&rig, &stop);
        let stranger = scope.spawn(move || {
            rig.as_user(1000, || {
                let (client, mut made) = (rig.client(), 0);
                while !stop.load(Relaxed) {
                    let mut chain = Chain::all();
                    let file = chain.create(format!("/shared/{made}").as_str(), 0o600, true);
                    // Computation takes a while.
                    let bytes = vec![7; 200_000];
                    let mut crc = chain.crc32c(bytes.as_slice());
                    for _ in 0..8 {
                        crc = chain.arith(crc, Arith::Max, crc);
                        chain.crc32c(bytes.as_slice());
                    }
                    let packed = chain.pack(crc, 8);
                    chain.append(file, packed);
                    match do_by(&client, chain).failed() {
                        None => made += 1,
                        Some((_, errno)) => assert_eq!(errno, libc::EACCES),
                    }
                }
                made
            })
        });
        let misused = (0..rounds).find(|_| {
            chmod(&owner, b"/shared", 0o777);
            std::thread::sleep(std::time::Duration::from_millis(2));
            chmod(&owner, b"/shared", 0o700);
            let before = names();
            std::thread::sleep(std::time::Duration::from_millis(2));
            names() != before
        });
        stop.store(true, Relaxed);
        assert_eq!(misused, None, "something was made in a directory that is closed to its maker");
        assert!(stranger.join().unwrap() > 0);
    });
}

#[test]
fn a_program_that_changes_nothing_makes_no_call_when_all_is_to_be_seen_here() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/d", 0o755).unwrap();
    let bytes: Vec<u8> = (0..20_000u32).map(|at| at as u8).collect();
    put(&client, b"/d/file", &bytes);
    let held = open(&client, b"/d/file", libc::O_RDWR);
    let mut read = vec![0; bytes.len()];
    client.pread(held, &mut read, 0).unwrap();
    let look = |client: &Client| {
        let mut chain = Chain::all();
        let file = chain.open("/d/file", Access::Read);
        let block = chain.read(file, 4000, 200);
        chain.export(block);
        let crc = chain.crc32c(block);
        chain.expect(crc, Compare::NotEqual, 0);
        let given = chain.given(0);
        let attr = chain.stat(given);
        let size = chain.field(attr, Field::Size);
        chain.export(size);
        let calls = client.measured().calls.load(Relaxed);
        let answer = client.run_program(FileRef::ROOT, 0, &[held], &chain.check().unwrap()).unwrap();
        assert_eq!(answer.failed(), None);
        let block = answer.bytes(1).unwrap().to_vec();
        (client.measured().calls.load(Relaxed) - calls, block, answer.num(6).unwrap())
    };
    look(&client);
    assert_eq!(look(&client), (0, bytes[4000..4200].to_vec(), 20_000));
    // What is in a ring or an overwrite area is seen, too.
    client.pwrite(held, b"appended", 20_000).unwrap();
    client.pwrite(held, &[7; 100], 4050).unwrap();
    let mut expected = bytes[4000..4200].to_vec();
    expected[50..150].fill(7);
    let (_, block, size) = look(&client);
    assert_eq!((block, size), (expected, 20_008));
    // A name that is not there, and one that the caller may not read.
    let mut chain = Chain::all();
    chain.open("/d/none", Access::Read);
    let failed = |chain: Chain| do_by(&client, chain).failed();
    assert_eq!(failed(chain), Some((0, libc::ENOENT)));
}

#[test]
fn files_that_are_given_are_open_for_what_the_caller_opened_them_for() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    put(&client, b"/x", b"one ");
    let files = [libc::O_RDONLY, libc::O_WRONLY].map(|flags| open(&client, b"/x", flags));
    client.unlink(FileRef::ROOT, b"/x", 0).unwrap();
    let copy = |from: u8, to: u8| {
        let mut chain = Chain::all();
        let [from, to] = [from, to].map(|number| chain.given(number));
        let bytes = chain.read(from, 0, 4);
        chain.append(to, bytes);
        chain.check().unwrap()
    };
    let run =
        |client: &Client, program| client.run_program(FileRef::ROOT, 0, &files, &program).unwrap().failed();
    assert_eq!(run(&client, copy(0, 1)), None);
    assert_eq!(run(&client, copy(1, 0)), Some((2, libc::EBADF)), "not open for reading");
    assert_eq!(run(&client, copy(0, 0)), Some((3, libc::EBADF)), "not open for writing");
    assert_eq!(run(&client, copy(0, 2)), Some((1, libc::EBADF)), "not given");
    assert_eq!(run(&other, copy(0, 1)), Some((0, libc::EBADF)), "of another process");
    let mut bytes = [0; 9];
    assert_eq!(client.pread(files[0], &mut bytes, 0).unwrap(), 8);
    assert_eq!(&bytes[..8], b"one one ");
}

#[test]
fn what_a_client_cannot_compute_the_server_does() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    put(&client, b"/x", &[7; 9000]);
    for _ in 0..2 {
        let mut chain = Chain::all();
        let file = chain.open("/x", Access::Read);
        let bytes = chain.read(file, 0, 9000);
        let packed = chain.compress(bytes, Codec::Zstd, 0);
        let unpacked = chain.decompress(packed, Codec::Zstd, 9000);
        chain.expect(unpacked, Compare::Equal, bytes);
        let size = chain.len(packed);
        chain.export(size);
        assert!(done(&client, chain).num(5).unwrap() < 1000);
    }
}

#[test]
fn a_program_does_not_change_what_is_immutable_whoever_has_it_open() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    put(&client, b"/x", b"fixed");
    let file = open(&client, b"/x", libc::O_RDWR);
    let immutable = InodeFlags::IMMUTABLE.bits();
    client.set_inode_flags(file, immutable, immutable).unwrap();
    for change in 0..3 {
        let mut chain = Chain::each();
        let target = chain.given(0);
        match change {
            0 => drop(chain.append(target, "more")),
            1 => chain.truncate(target, 0),
            _ => drop(chain.push(Kind::Fallocate {
                file: target,
                mode: Allocate::Extend,
                offset: Num::Lit(0),
                len: Num::Lit(99),
            })),
        }
        let program = chain.check().unwrap();
        let answer = client.run_program(FileRef::ROOT, 0, &[file], &program).unwrap();
        assert_eq!(answer.failed(), Some((1, libc::EPERM)), "change {change}");
    }
    assert_eq!(content(&client, b"/x").unwrap(), b"fixed");
}

/// The new name is of another stream, so that the operation makes two changes; and it replaces a file.
#[test]
fn an_operation_of_several_changes_is_done_once() {
    let rig = Rig::rules(64 << 20);
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/db", 0o755).unwrap();
    for round in 0..3u8 {
        put(&client, b"/db/000001.dbtmp", &[round]);
        let mut chain = Chain::each().durable();
        chain.rename("/db/000001.dbtmp", "/db/000002.log");
        chain.rename("/db/000002.log", "/db/000003.sst");
        done(&client, chain);
        assert_eq!(content(&client, b"/db/000003.sst").unwrap(), [round]);
    }
}

/// Many clients keep writing to some files in several pieces; a program on them and on another one does not keep that one from others.
#[test]
fn a_program_that_waits_for_one_file_keeps_no_other_one() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    put(&client, b"/a", b"a");
    put(&client, b"/b", b"b");
    let (a, b) = (open(&other, b"/a", libc::O_WRONLY), open(&client, b"/b", libc::O_WRONLY));
    // The first piece of a long write to /b, which goes on.
    let mut request = Request { op: Op::Write as u32, cpu: u32::MAX, len1: 4096, ..Request::default() };
    request.args[..4].copy_from_slice(&[b.0, 0, 0, LONG_BEGINS]);
    client.raw_request(request, &[&[1; 4096]]).unwrap();
    let has_run = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (rig, has_run) = (&rig, &has_run);
        scope.spawn(move || {
            let mut chain = Chain::all();
            for path in ["/a", "/b"] {
                let file = chain.open(path, Access::Write);
                chain.append(file, "program");
            }
            done(&rig.client(), chain);
            has_run.store(true, Relaxed);
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!has_run.load(Relaxed), "it does not write in between");
        for _ in 0..50 {
            assert_eq!(other.pwrite(a, b"w", 0).unwrap(), 1);
            assert!(!has_run.load(Relaxed));
        }
        request.args[3] = LONG_ENDS;
        request.args[1] = 4096;
        client.raw_request(request, &[&[2; 4096]]).unwrap();
    });
    assert!(content(&client, b"/b").unwrap().ends_with(b"program"));
}

#[test]
fn what_is_no_program_is_refused() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let ask = |args: [u64; 5], piece: &[u8]| {
        let mut request =
            Request { op: Op::Do as u32, cpu: u32::MAX, len1: piece.len() as u32, ..Request::default() };
        request.args[..5].copy_from_slice(&args);
        client.raw_request(request, &[piece]).map(|response| response.ret)
    };
    let root = FileRef::ROOT.0;
    let refused = |ret: Result<i64, i32>| {
        matches!(ret, Err(libc::EINVAL)) || ret.is_ok_and(|ret| ret == -i64::from(libc::EINVAL))
    };
    assert!(refused(ask([root, 0, 0, 3, 0], b"abc")));
    assert!(refused(ask([root, 0, 0, u64::MAX, 0], b"abc")), "too long");
    assert!(refused(ask([root, 0, 0, 2, 0], b"abc")), "more than was said");
    assert!(refused(ask([root, 0, 0, 9, 5], b"abcd")), "the end alone");
    assert!(refused(ask([root, 0, 0, 9, 0], b"")), "nothing, for ever");
    put(&client, b"/x", b"x");
    assert_eq!(content(&client, b"/x").unwrap(), b"x");
}
