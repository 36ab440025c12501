//! Leases under fire: appends and reads that bypass the server, while it drains, remaps, cleans and truncates.

#![allow(clippy::unwrap_used)]

mod rig;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use weft_client::{Client, FileRef};
use weft_core::BLOCK_BYTES;

/// A served volume of which the device refuses nothing until the end.
struct Rig(rig::Rig);

impl Rig {
    fn new(bytes: u64) -> Rig {
        Rig(rig::Rig::new(bytes))
    }

    fn client(&self) -> Client {
        self.0.client()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.0.server.take());
        assert_eq!(self.0.device().counters().refused, 0, "commands that the device refused");
    }
}

fn open(client: &Client, path: &[u8], flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path, flags, 0o644).unwrap().file
}

/// Byte `at` of a file written in version `version`.
fn byte(version: u64, at: u64) -> u8 {
    let x = (at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(version.wrapping_mul(0xff51_afd7));
    (x >> (at % 8 * 8)) as u8
}

fn fill(version: u64, from: u64, out: &mut [u8]) {
    for (i, b) in out.iter_mut().enumerate() {
        *b = byte(version, from + i as u64);
    }
}

fn verify(version: u64, from: u64, got: &[u8]) {
    for (i, b) in got.iter().enumerate() {
        assert_eq!(
            *b,
            byte(version, from + i as u64),
            "byte {} of {}",
            from + i as u64,
            from + got.len() as u64
        );
    }
}

#[test]
fn an_append_is_readable_at_once_by_everyone_and_never_torn() {
    let rig = Rig::new(64 << 20);
    let accepted = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let client = rig.client();
            let (accepted, stop) = (&accepted, &stop);
            scope.spawn(move || {
                let file = open(&client, b"/log", libc::O_RDONLY | libc::O_CREAT);
                let mut out = vec![0; 20_000];
                let mut random = reader + 1;
                while !stop.load(Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let size = accepted.load(Acquire);
                    if size == 0 {
                        continue;
                    }
                    let from = (random >> 20) % size;
                    let len = (random >> 8) as usize % out.len() + 1;
                    let n = client.pread(file, &mut out[..len], from).unwrap();
                    assert!(n as u64 >= (size - from).min(len as u64), "{n} of {len} at {from} of {size}");
                    verify(0, from, &out[..n]);
                }
            });
        }
        let client = rig.client();
        let file = open(&client, b"/log", libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND);
        let mut data = vec![0; 100_000];
        let mut size = 0u64;
        for i in 0..6000u64 {
            let len = if i % 100 == 7 { 90_000 } else { 1 + (i * 7919) as usize % 900 };
            fill(0, size, &mut data[..len]);
            assert_eq!(client.write(file, &data[..len]).unwrap(), len);
            size += len as u64;
            accepted.store(size, Release);
            if i % 500 == 3 {
                client.fsync(file).unwrap();
            }
        }
        stop.store(true, Relaxed);
        assert!(client.measured().ring_bytes.load(Relaxed) > size / 2, "appends went through the server");
    });
}

#[test]
fn readers_see_old_or_new_blocks_while_the_cleaner_moves_them() {
    const FILES: usize = 6;
    let rig = Rig::new(32 << 20);
    let writer = rig.client();
    // Nearly full, so that a zone is written anew soon after it was emptied.
    let blocks = writer.statfs().unwrap().free_bytes * 92 / 100 / BLOCK_BYTES as u64 / FILES as u64;
    let files: Vec<FileRef> = (0..FILES)
        .map(|i| open(&writer, format!("/f{i}").as_bytes(), libc::O_RDWR | libc::O_CREAT))
        .collect();
    let mut block = vec![0; BLOCK_BYTES];
    // A block carries its file, number and version; a reader accepts any version of the right block.
    let stamp = |block: &mut [u8], file: usize, number: u64, version: u64| {
        for chunk in block.chunks_exact_mut(32) {
            for (to, value) in chunk.chunks_exact_mut(8).zip([file as u64, number, version, !version]) {
                to.copy_from_slice(&value.to_le_bytes());
            }
        }
    };
    for (i, file) in files.iter().enumerate() {
        for number in 0..blocks {
            stamp(&mut block, i, number, 0);
            writer.pwrite(*file, &block, number * BLOCK_BYTES as u64).unwrap();
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..4u64 {
            let client = rig.client();
            let stop = &stop;
            scope.spawn(move || {
                let files: Vec<FileRef> =
                    (0..FILES).map(|i| open(&client, format!("/f{i}").as_bytes(), libc::O_RDONLY)).collect();
                // Long reads: the cleaner has time to recycle what the map named when they began.
                let mut out = vec![0; 64 * BLOCK_BYTES];
                let mut random = reader + 1;
                let mut read = 0u64;
                while !stop.load(Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (file, number) = ((random >> 40) as usize % FILES, (random >> 20) % blocks);
                    let n = client.pread(files[file], &mut out, number * BLOCK_BYTES as u64).unwrap();
                    assert_eq!(n as u64, (blocks - number).min(64) * BLOCK_BYTES as u64);
                    for (i, block) in out[..n].chunks_exact(BLOCK_BYTES).enumerate() {
                        let words: Vec<u64> =
                            block.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
                        for part in words.chunks_exact(4) {
                            assert_eq!(
                                (part[0], part[1]),
                                (file as u64, number + i as u64),
                                "another block's bytes"
                            );
                            assert_eq!((part[2], part[3]), (words[2], !words[2]), "a torn block");
                        }
                    }
                    read += 1;
                }
                let direct = client.measured().direct_reads.load(Relaxed);
                assert!(direct > read / 10, "{direct} of {read} reads went without the server");
            });
        }
        let mut random = 99u64;
        for round in 1..40_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (file, number) = ((random >> 40) as usize % FILES, (random >> 20) % blocks);
            stamp(&mut block, file, number, round);
            writer.pwrite(files[file], &block, number * BLOCK_BYTES as u64).unwrap();
            if round % 300 == 0 {
                writer.fsync(files[file]).unwrap();
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(
        rig.0.device().counters().resets > 20,
        "the cleaner had nothing to do: {:?}",
        rig.0.device().counters()
    );
}

#[test]
fn truncation_and_appends_interleave_without_stale_bytes() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let other = rig.client();
    let file = open(&client, b"/t", libc::O_RDWR | libc::O_CREAT | libc::O_APPEND);
    let reader = open(&other, b"/t", libc::O_RDONLY);
    let mut data = vec![0; 70_000];
    let mut out = vec![0; 80_000];
    for version in 1..60u64 {
        let mut size = 0u64;
        for i in 0..40u64 {
            let len = 1 + ((i + version) * 7919) as usize % 3000;
            fill(version, size, &mut data[..len]);
            client.write(file, &data[..len]).unwrap();
            size += len as u64;
        }
        let n = other.pread(reader, &mut out, 0).unwrap();
        assert_eq!(n as u64, size);
        verify(version, 0, &out[..n]);
        let keep = size * 2 / 3;
        client.ftruncate(file, keep).unwrap();
        assert_eq!(other.pread(reader, &mut out, 0).unwrap() as u64, keep);
        verify(version, 0, &out[..keep as usize]);
        client.ftruncate(file, keep + 5000).unwrap();
        assert_eq!(other.pread(reader, &mut out, keep).unwrap(), 5000);
        assert!(out[..5000].iter().all(|&b| b == 0), "stale bytes after growing");
        client.ftruncate(file, 0).unwrap();
        assert_eq!(other.pread(reader, &mut out, 0).unwrap(), 0);
    }
}

#[test]
fn a_full_volume_says_so_to_the_writer_and_takes_data_again_after_a_delete() {
    let rig = Rig::new(32 << 20);
    let client = rig.client();
    let file = open(&client, b"/big", libc::O_WRONLY | libc::O_CREAT);
    let mut data = vec![0; 10_000];
    let mut size = 0u64;
    let error = loop {
        fill(1, size, &mut data);
        match client.write(file, &data) {
            Ok(n) => size += n as u64,
            Err(error) => break error,
        }
        assert!(size < 64 << 20, "more than the device holds");
    };
    assert_eq!(error, libc::ENOSPC);
    assert!(size > 16 << 20, "full after {size} bytes of 32 MiB");
    client.fsync(file).unwrap();
    let reader = open(&client, b"/big", libc::O_RDONLY);
    let mut at = 0;
    while at < size {
        let n = client.pread(reader, &mut data, at).unwrap();
        verify(1, at, &data[..n]);
        at += n as u64;
    }
    client.close(reader).unwrap();
    client.close(file).unwrap();
    client.unlink(FileRef::ROOT, b"/big", 0).unwrap();
    let again = open(&client, b"/again", libc::O_RDWR | libc::O_CREAT);
    for i in 0..1000u64 {
        fill(2, i * data.len() as u64, &mut data);
        client.write(again, &data).unwrap();
    }
    client.fsync(again).unwrap();
}
