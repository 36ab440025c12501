//! Overwrites that clients make without the server, beside everything else that happens to a file.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Dice, Rig};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use weft_client::{Client, FileRef};
use weft_core::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn open(client: &Client, path: &[u8], flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path, flags, 0o666).unwrap().file
}

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

/// A file of so many blocks that has been overwritten often enough to have an area.
fn overwritten(client: &Client, path: &[u8], blocks: u64) -> FileRef {
    let file = open(client, path, libc::O_RDWR | libc::O_CREAT);
    let zeros = vec![0; BLOCK_BYTES];
    for block in 0..blocks {
        assert_eq!(client.pwrite(file, &zeros, block * BLOCK), Ok(BLOCK_BYTES));
    }
    client.fsync(file).unwrap();
    for _ in 0..3 {
        assert_eq!(client.pwrite(file, &zeros, 0), Ok(BLOCK_BYTES));
    }
    file
}

fn read(client: &Client, file: FileRef, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let n = client.pread(file, &mut out, at).unwrap();
    out.truncate(n);
    out
}

#[test]
fn an_overwrite_and_a_read_of_it_make_no_call() {
    let rig = Rig::new(32 << 20);
    let (client, other) = (rig.client(), rig.client());
    let file = overwritten(&client, b"/data", 64);
    let seen = open(&other, b"/data", libc::O_RDONLY);
    // The map of the blocks.
    read(&client, file, 0, 64 * BLOCK_BYTES);
    let before = calls(&client);
    for round in 1..=200u64 {
        let (at, len) = (round * 977 % (60 * BLOCK), 1 + round as usize * 61 % 10_000);
        let bytes = vec![round as u8; len];
        assert_eq!(client.pwrite(file, &bytes, at), Ok(len));
        assert_eq!(read(&client, file, at, len), bytes);
        assert_eq!(read(&other, seen, at, len), bytes, "another process");
    }
    assert!(calls(&client) - before < 20, "{} calls", calls(&client) - before);
    // What the server reads for a client without leases.
    client.pwrite(file, b"here it is", 5000).unwrap();
    if rig::is_superuser() {
        let stranger = rig.as_user(1001, || rig.client());
        rig.as_user(1001, || {
            let seen = open(&stranger, b"/data", libc::O_RDONLY);
            assert_eq!(read(&stranger, seen, 5000, 10), b"here it is");
            client.pwrite(file, b"and now", 5000).unwrap();
            assert_eq!(read(&stranger, seen, 5000, 10), b"and now is");
        });
    }
}

#[test]
fn a_file_that_is_overwritten_once_gets_no_area() {
    let rig = Rig::new(32 << 20);
    let client = rig.client();
    let file = open(&client, b"/once", libc::O_RDWR | libc::O_CREAT);
    client.pwrite(file, &[1; 20_000], 0).unwrap();
    let before = calls(&client);
    client.pwrite(file, b"header", 0).unwrap();
    assert_eq!(calls(&client) - before, 1);
    // Bytes of a block that is not whole are the server's, however often.
    for _ in 0..10 {
        client.pwrite(file, b"tail", 19_000).unwrap();
    }
    assert_eq!(calls(&client) - before, 11);
}

/// Sets a flag when it goes.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What a file holds, and the clients that write and read it.
struct Model {
    rig: Rig,
    clients: [Client; 2],
    files: [FileRef; 2],
    bytes: Vec<u8>,
    dice: Dice,
}

impl Model {
    const BYTES_MAX: u64 = 500 * BLOCK;

    fn new(seed: u64) -> Model {
        let rig = if seed.is_multiple_of(3) { Rig::tight(48 << 20) } else { Rig::new(48 << 20) };
        let clients = [rig.client(), rig.client()];
        let files = [0, 1].map(|n| open(&clients[n], b"/model", libc::O_RDWR | libc::O_CREAT));
        Model { rig, clients, files, bytes: Vec::new(), dice: Dice(seed | 1) }
    }

    fn bytes_to_write(&mut self, at: u64) -> Vec<u8> {
        let len = match self.dice.roll(4) {
            0 => self.dice.roll(300),
            1 => BLOCK - at % BLOCK,
            2 => self.dice.roll(4 * BLOCK),
            _ => self.dice.roll(70_000),
        };
        let first = self.dice.roll(250) as u8;
        (0..len).map(|n| first.wrapping_add((n / 7) as u8)).collect()
    }

    fn write(&mut self, at: u64, bytes: &[u8], who: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at as usize + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at as usize..end].copy_from_slice(bytes);
        let (client, file) = (&self.clients[who], self.files[who]);
        let done = match self.dice.roll(3) {
            0 => {
                client.seek(file, at as i64, libc::SEEK_SET).unwrap();
                client.write(file, bytes)
            }
            1 => {
                let (first, rest) = bytes.split_at(bytes.len() / 3);
                client.writev(file, &[first, &[], rest], Some(at))
            }
            _ => client.pwrite(file, bytes, at),
        };
        assert_eq!(done, Ok(bytes.len()));
    }

    fn check(&mut self, who: usize) {
        let at = self.dice.roll(Self::BYTES_MAX);
        let len = self.dice.roll(100_000) as usize;
        let end = (at as usize + len).min(self.bytes.len());
        let wanted = self.bytes.get(at as usize..end).unwrap_or(&[]);
        let got = read(&self.clients[who], self.files[who], at, len);
        assert!(got == wanted, "{len} bytes at {at} of {}", self.bytes.len());
    }

    fn step(&mut self) {
        let who = self.dice.roll(2) as usize;
        let size = self.bytes.len() as u64;
        match self.dice.roll(40) {
            0 => self.clients[who].fsync(self.files[who]).unwrap(),
            1 if self.dice.roll(4) == 0 => {
                let size = self.dice.roll(Self::BYTES_MAX);
                self.bytes.resize(size as usize, 0);
                self.clients[who].ftruncate(self.files[who], size).unwrap();
            }
            2 if size > 0 => {
                let (at, len) = (self.dice.roll(size), 1 + self.dice.roll(40_000));
                let end = (at + len).min(size);
                self.bytes[at as usize..end as usize].fill(0);
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                self.clients[who].fallocate(self.files[who], mode, at, len).unwrap();
            }
            3 if size < Self::BYTES_MAX => {
                let bytes = self.bytes_to_write(size);
                self.write(size, &bytes, who);
            }
            4 => {
                // The last close and an open: what was in the area is with the core.
                for n in [0, 1] {
                    self.clients[n].close(self.files[n]).unwrap();
                }
                self.files = [0, 1].map(|n| open(&self.clients[n], b"/model", libc::O_RDWR));
            }
            5..10 => self.check(who),
            _ => {
                // Most where others were: blocks are overwritten again before the core has them.
                let within = if self.dice.roll(2) == 0 { 40 * BLOCK } else { Self::BYTES_MAX };
                let at = self.dice.roll(within.min(size + 1));
                let bytes = self.bytes_to_write(at);
                self.write(at, &bytes, who);
            }
        }
    }
}

#[test]
fn a_file_that_is_overwritten_at_random_holds_what_was_written() {
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 400 } else { 6 };
    let mut without_calls = 0;
    for seed in 1..=seeds {
        let mut model = Model::new(seed * 7919);
        for _ in 0..1500 {
            model.step();
        }
        without_calls += 1500u64.saturating_sub(model.clients.iter().map(calls).sum());
        let Model { mut rig, clients, files, bytes, .. } = model;
        // By way of the server, and after it has gone.
        let attr = clients[0].fstat(files[0]).unwrap();
        assert_eq!(attr.size, bytes.len() as u64);
        drop(clients);
        drop(rig.server.take());
        let core = rig.mounted.core();
        let mut out = vec![0; bytes.len()];
        let len = core.read(weft_core::Ino(attr.ino), 0, &mut out).unwrap();
        assert!(out[..len] == bytes[..], "seed {seed}: what the core has at the end");
        assert_eq!(rig.device().counters().refused, 0, "commands that the device refused");
    }
    assert!(without_calls > seeds * 200, "{without_calls} steps without a call");
}

#[test]
fn no_reader_sees_a_block_older_than_what_was_written_before_it_looked() {
    const BLOCKS: u64 = 400;
    let rig = Rig::new(32 << 20);
    let writer = rig.client();
    let file = overwritten(&writer, b"/versions", BLOCKS);
    let accepted: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let client = rig.client();
            let (accepted, stop) = (&accepted, &stop);
            scope.spawn(move || {
                let file = open(&client, b"/versions", libc::O_RDONLY);
                let mut dice = Dice(reader + 77);
                let mut out = vec![0; 4 * BLOCK_BYTES];
                while !stop.load(Relaxed) {
                    let first = if dice.roll(2) == 0 { dice.roll(8) } else { dice.roll(BLOCKS - 4) };
                    let least: Vec<u64> =
                        (first..first + 4).map(|block| accepted[block as usize].load(Acquire)).collect();
                    assert_eq!(client.pread(file, &mut out, first * BLOCK), Ok(out.len()));
                    for (block, least) in out.chunks_exact(BLOCK_BYTES).zip(least) {
                        let words = block.as_chunks::<8>().0;
                        let version = u64::from_le_bytes(words[0]);
                        assert!(version >= least, "version {version} after {least} was written");
                        assert!(words.iter().all(|word| *word == words[0]), "a torn block");
                    }
                }
            });
        }
        let mut dice = Dice(5);
        for version in 1..60_000u64 {
            let block = if dice.roll(2) == 0 { dice.roll(8) } else { dice.roll(BLOCKS) };
            let bytes = version.to_le_bytes().repeat(BLOCK_BYTES / 8);
            assert_eq!(writer.pwrite(file, &bytes, block * BLOCK), Ok(BLOCK_BYTES));
            accepted[block as usize].store(version, Release);
            match dice.roll(2000) {
                0 => writer.fsync(file).unwrap(),
                // By the server, which takes what is in the area first.
                1 => {
                    let bytes = version.to_le_bytes().repeat(BLOCK_BYTES * 20 / 8);
                    assert_eq!(writer.pwrite(file, &bytes, 100 * BLOCK), Ok(20 * BLOCK_BYTES));
                }
                _ => {}
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(calls(&writer) < 30_000, "{} calls", calls(&writer));
}

#[test]
fn what_was_accepted_before_an_fsync_is_with_the_core_after_it() {
    const BLOCKS: u64 = 4;
    let rig = Rig::new(32 << 20);
    let (writer, syncer) = (rig.client(), rig.client());
    let file = overwritten(&writer, b"/synced", 16);
    let ino = weft_core::Ino(writer.fstat(file).unwrap().ino);
    let accepted: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (accepted, stop) = (&accepted, &stop);
        scope.spawn(move || {
            let mut version = 0u64;
            while !stop.load(Relaxed) {
                version += 1;
                let bytes = version.to_le_bytes().repeat(BLOCK_BYTES / 8);
                let block = version % BLOCKS;
                assert_eq!(writer.pwrite(file, &bytes, block * BLOCK), Ok(BLOCK_BYTES));
                accepted[block as usize].store(version, Release);
            }
        });
        // The writer ends, too, when an assertion fails.
        let _stops = Stops(stop);
        let core = rig.mounted.core();
        let file = open(&syncer, b"/synced", libc::O_RDWR);
        for _ in 0..3000 {
            let least: Vec<u64> = accepted.iter().map(|version| version.load(Acquire)).collect();
            syncer.fsync(file).unwrap();
            for (block, least) in least.iter().enumerate() {
                let mut bytes = [0; BLOCK_BYTES];
                core.read(ino, block as u64 * BLOCK, &mut bytes).unwrap();
                let words = bytes.as_chunks::<8>().0;
                let version = u64::from_le_bytes(words[0]);
                assert!(version >= *least, "block {block}: version {version}, {least} was synced");
                assert!(words.iter().all(|word| *word == words[0]), "a torn block");
            }
        }
    });
}

#[test]
fn what_one_cannot_store_is_refused_before_it_is_accepted() {
    let rig = Rig::new(24 << 20);
    let client = rig.client();
    let file = overwritten(&client, b"/full", 64);
    let hog = open(&client, b"/hog", libc::O_RDWR | libc::O_CREAT);
    let mut at = 0;
    while client.pwrite(hog, &[9; 32 * 1024], at) == Ok(32 * 1024) {
        at += 32 * 1024;
    }
    // With the volume full, an overwrite is accepted or refused at once; what was accepted is there.
    let mut wanted = vec![0u8; 64 * BLOCK_BYTES];
    let mut refused = 0;
    for round in 1..500u64 {
        let block = (round * 37 % 64) as usize;
        let bytes = [round as u8; BLOCK_BYTES];
        match client.pwrite(file, &bytes, block as u64 * BLOCK) {
            Ok(len) => wanted[block * BLOCK_BYTES..][..len].copy_from_slice(&bytes[..len]),
            Err(error) => {
                assert_eq!(error, libc::ENOSPC);
                refused += 1;
            }
        }
    }
    assert_eq!(client.fsync(file), Ok(()), "{refused} refused");
    assert!(read(&client, file, 0, wanted.len()) == wanted);
    client.close(hog).unwrap();
    client.unlink(FileRef::ROOT, b"/hog", 0).unwrap();
    assert_eq!(client.pwrite(file, b"again", 0), Ok(5));
}
