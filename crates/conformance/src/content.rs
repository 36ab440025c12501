//! Bytes are written and read.

use super::Make;
use super::fixture::{BLOCK, Fixture, assert_fails, assert_same, bytes, soil};
use weft_core::Ino;
use weft_vfs::{FileKind, FsError, NewNode, SetAttr};

/// Lengths and offsets around the edges of blocks.
const EDGES: [u64; 12] =
    [0, 1, 7, 511, 512, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 5, 16 * BLOCK, 16 * BLOCK + 3];

/// An empty file reads as nothing.
pub fn an_empty_file_reads_as_nothing(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    assert!(fs.read_at(ino, 0, 100).is_empty());
    assert!(fs.read_at(ino, 1 << 40, 100).is_empty());
}

/// What is written is read, for lengths around the edges of blocks.
pub fn what_is_written_is_read(make: Make<'_>) {
    let fs = &*make();
    for len in EDGES {
        let data = bytes(len, len as usize);
        let ino = fs.file_with(&format!("file{len}"), &data);
        assert_eq!(fs.attr(ino).size, len);
        assert_same(&fs.content(ino), &data, &format!("{len} bytes"));
    }
}

/// Reads at every edge give the bytes that are there, and stop at the end.
pub fn a_read_stops_at_the_end_of_the_file(make: Make<'_>) {
    let fs = &*make();
    let data = bytes(1, (16 * BLOCK + 3) as usize);
    let ino = fs.file_with("file", &data);
    for offset in EDGES {
        for len in EDGES {
            let end = ((offset + len) as usize).min(data.len());
            let got = fs.read_at(ino, offset, len as usize);
            assert_same(&got, &data[(offset as usize).min(end)..end], &format!("{len} bytes at {offset}"));
        }
    }
    assert!(fs.read_at(ino, u64::MAX - 5, 100).is_empty());
}

/// A write of nothing changes nothing, also past the end.
pub fn a_write_of_nothing_changes_nothing(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    fs.write(ino, 0, b"").unwrap();
    fs.write(ino, 1 << 20, b"").unwrap();
    fs.write_through(ino, 1 << 20, b"").unwrap();
    assert_eq!(fs.content(ino), b"abc");
}

/// A write within the file replaces exactly its bytes.
pub fn an_overwrite_replaces_exactly_its_bytes(make: Make<'_>) {
    let fs = &*make();
    let mut data = bytes(1, (8 * BLOCK) as usize);
    let ino = fs.file_with("file", &data);
    fs.write_back(ino).unwrap();
    for (n, offset) in EDGES.into_iter().enumerate().filter(|(_, offset)| *offset < 4 * BLOCK) {
        for len in EDGES.into_iter().filter(|len| offset + len <= 8 * BLOCK) {
            let new = bytes(100 + n as u64 * 100 + len, len as usize);
            fs.write(ino, offset, &new).unwrap();
            data[offset as usize..(offset + len) as usize].copy_from_slice(&new);
        }
        assert_same(&fs.content(ino), &data, &format!("overwritten at {offset}"));
    }
    assert_eq!(fs.attr(ino).size, 8 * BLOCK);
}

/// A file that is overwritten again and again holds what was written last.
pub fn an_in_place_overwrite_shows_the_last_version(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", &bytes(0, (4 * BLOCK) as usize));
    for version in 1..=50 {
        fs.write(ino, BLOCK, &bytes(version, BLOCK as usize)).unwrap();
        if version % 7 == 0 {
            fs.fsync(ino).unwrap();
        }
    }
    let mut wanted = bytes(0, (4 * BLOCK) as usize);
    wanted[BLOCK as usize..2 * BLOCK as usize].copy_from_slice(&bytes(50, BLOCK as usize));
    assert_same(&fs.content(ino), &wanted, "after 50 overwrites");
}

/// Overlapping unaligned writes leave each byte as the last write of it left it.
pub fn unaligned_overlapping_writes_leave_the_last_bytes(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    let ino = fs.file("file");
    let mut wanted = vec![0; 40_000];
    let mut size = 0;
    let mut state = 12_345u64;
    for step in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 33) as usize % 30_000;
        let len = (state >> 13) as usize % 10_000;
        let data = bytes(step, len);
        fs.write(ino, offset as u64, &data).unwrap();
        wanted[offset..offset + len].copy_from_slice(&data);
        size = if len > 0 { size.max(offset + len) } else { size };
        if step % 40 == 0 {
            fs.write_back(ino).unwrap();
        }
    }
    assert_same(&fs.content(ino), &wanted[..size], "after 400 writes");
}

/// Small appends follow one another without a gap, whether or not they are written back in between.
pub fn small_appends_follow_one_another(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("log");
    let mut wanted = Vec::new();
    for n in 0..1500usize {
        let record = bytes(n as u64, 1 + n * 37 % 443);
        fs.write(ino, wanted.len() as u64, &record).unwrap();
        wanted.extend(record);
        match n % 100 {
            33 => fs.write_back(ino).unwrap(),
            66 => fs.fsync(ino).unwrap(),
            _ => {}
        }
        assert_eq!(fs.attr(ino).size, wanted.len() as u64);
    }
    assert_same(&fs.content(ino), &wanted, "the log");
}

/// A write past the end leaves a hole of zeros before it, and an append after the hole follows on.
pub fn a_write_past_the_end_leaves_zeros(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    let ino = fs.file_with("file", b"head");
    fs.write(ino, 20_000, b"tail").unwrap();
    fs.write(ino, 20_004, b"append").unwrap();
    let mut wanted = b"head".to_vec();
    wanted.resize(20_000, 0);
    wanted.extend(b"tailappend");
    assert_same(&fs.content(ino), &wanted, "with a hole");
}

/// A byte at 5 GiB: sizes and offsets are 64 bits wide and a hole costs nothing.
pub fn offsets_are_64_bits_wide(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    let ino = fs.file("file");
    let far = 5 << 30;
    fs.write(ino, far, b"x").unwrap();
    assert_eq!(fs.attr(ino).size, far + 1);
    assert_eq!(fs.read_at(ino, far, 10), b"x");
    assert_eq!(fs.read_at(ino, far - 3, 10), b"\0\0\0x");
    assert_eq!(fs.read_at(ino, 1 << 30, 5000), vec![0; 5000]);
    assert_eq!(fs.read_at(ino, (1 << 32) - 2, 4), [0; 4]);
    // The same offset modulo 2^32 must be another place.
    fs.write(ino, 1 << 30, b"y").unwrap();
    assert_eq!(fs.read_at(ino, far, 1), b"x");
    fs.fsync(ino).unwrap();
    assert_eq!((fs.read_at(ino, far, 1), fs.read_at(ino, 1 << 30, 1)), (b"x".to_vec(), b"y".to_vec()));
}

/// A sparse file of 8 TiB has bytes at both ends.
pub fn sparse_files_reach_8_tebibytes(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    let size = 8 << 40;
    fs.write(ino, 0, b"first").unwrap();
    fs.write(ino, size - 4, b"last").unwrap();
    assert_eq!(fs.attr(ino).size, size);
    fs.fsync(ino).unwrap();
    assert_eq!((fs.read_at(ino, 0, 5), fs.read_at(ino, size - 4, 9)), (b"first".to_vec(), b"last".to_vec()));
    assert_eq!(fs.read_at(ino, 4 << 40, 3), [0; 3]);
    let space = fs.attr(ino).blocks * 512;
    assert!(space < 1 << 20, "a hole takes no space, yet the file takes {space} bytes");
}

/// What cannot be in a file of 2^63 - 1 bytes is `TooLarge`, and nothing changes.
pub fn what_is_past_the_largest_size_is_too_large(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    for offset in [i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX] {
        assert_fails!(fs.write(ino, offset, b"xy"), FsError::TooLarge);
        assert_fails!(fs.write_through(ino, offset, b"xy"), FsError::TooLarge);
    }
    for size in [i64::MAX as u64 + 1, u64::MAX] {
        assert_fails!(
            fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }),
            FsError::TooLarge
        );
    }
    assert_eq!(fs.content(ino), b"abc");
}

/// Directories, symlinks and special files hold no bytes to read or write.
pub fn only_files_have_content(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    assert_fails!(fs.read(dir, 0, &mut [0; 8]), FsError::IsDirectory);
    assert_fails!(fs.write(dir, 0, b"x"), FsError::IsDirectory);
    assert_fails!(fs.write_through(dir, 0, b"x"), FsError::IsDirectory);
    assert_fails!(fs.setattr(dir, &SetAttr { size: Some(0), ..SetAttr::default() }), FsError::IsDirectory);
    let symlink = fs.make(Ino::ROOT, b"symlink", NewNode::Symlink(b"target"));
    let fifo = fs.make(Ino::ROOT, b"fifo", NewNode::Special(FileKind::Fifo, 0));
    for ino in [symlink, fifo] {
        assert_fails!(fs.read(ino, 0, &mut [0; 8]), FsError::Invalid(_));
        assert_fails!(fs.write(ino, 0, b"x"), FsError::Invalid(_));
        assert_fails!(fs.setattr(ino, &SetAttr { size: Some(9), ..SetAttr::default() }), FsError::Invalid(_));
    }
    assert_eq!(fs.readlink(symlink).unwrap(), b"target");
}

/// `write_through` is `write` for what a reader sees, at any alignment.
pub fn write_through_is_read_like_write(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    for (n, offset) in EDGES.into_iter().enumerate() {
        let data = bytes(n as u64, (3 * BLOCK + 17 * n as u64) as usize);
        let ino = fs.file(&format!("file{n}"));
        fs.write_through(ino, offset, &data).unwrap();
        let mut wanted = vec![0; offset as usize];
        wanted.extend(&data);
        assert_same(&fs.content(ino), &wanted, &format!("written through at {offset}"));
    }
}

/// Any mixture of `write`, `write_through`, `write_back` and `fsync` gives the same content.
pub fn mixtures_of_writes_give_the_same_content(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    for seed in 0..6u64 {
        let ino = fs.file(&format!("file{seed}"));
        let mut wanted: Vec<u8> = Vec::new();
        let mut state = seed + 1;
        for step in 0..80 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = |bits: u32, below: u64| (state >> bits) % below;
            // Half of the writes append, as programs do; the others land anywhere.
            let offset =
                if pick(20, 2) == 0 { wanted.len() as u64 } else { pick(24, wanted.len() as u64 + 5000) };
            let aligned = pick(40, 2) == 0;
            let (offset, len) = if aligned {
                (offset / BLOCK * BLOCK, (1 + pick(44, 4)) * BLOCK)
            } else {
                (offset, 1 + pick(44, 9000))
            };
            let data = bytes(seed * 1000 + step, len as usize);
            if pick(60, 2) == 0 {
                fs.write(ino, offset, &data).unwrap();
            } else {
                fs.write_through(ino, offset, &data).unwrap();
            }
            let end = (offset + len) as usize;
            wanted.resize(wanted.len().max(end), 0);
            wanted[offset as usize..end].copy_from_slice(&data);
            match pick(50, 8) {
                0 => fs.write_back(ino).unwrap(),
                1 => fs.fsync(ino).unwrap(),
                2 => fs.sync().unwrap(),
                _ => {}
            }
        }
        assert_same(&fs.content(ino), &wanted, &format!("seed {seed}"));
    }
}

/// `write_back`, `fsync` and `sync` change nothing that can be seen.
pub fn syncing_changes_nothing_that_can_be_seen(make: Make<'_>) {
    let fs = &*make();
    let data = bytes(5, 12_345);
    let ino = fs.file_with("file", &data);
    let dir = fs.dir("dir");
    let before = fs.attr(ino);
    for _ in 0..2 {
        fs.write_back(ino).unwrap();
        fs.fsync(ino).unwrap();
        fs.fsync(dir).unwrap();
        fs.fsync(Ino::ROOT).unwrap();
        fs.sync().unwrap();
    }
    let after = fs.attr(ino);
    assert_eq!(weft_vfs::Attr { blocks: before.blocks, ..after }, before);
    assert_same(&fs.content(ino), &data, "after syncing");
}

/// A read of a large file in one call gives all of it, holes and buffered parts included.
pub fn one_read_spans_stored_buffered_and_missing_parts(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    let ino = fs.file("file");
    let mut wanted = vec![0; 300_000];
    let pieces =
        [(0, 50_000, true), (70_001, 9_999, false), (100_000, 100_000, true), (299_000, 1000, false)];
    for (n, (offset, len, stored)) in pieces.into_iter().enumerate() {
        let data = bytes(n as u64, len);
        fs.write(ino, offset as u64, &data).unwrap();
        wanted[offset..offset + len].copy_from_slice(&data);
        if stored {
            fs.fsync(ino).unwrap();
        }
    }
    assert_same(&fs.content(ino), &wanted, "in one read");
    assert_same(&fs.read_at(ino, 49_990, 60_000), &wanted[49_990..109_990], "across the edges");
}

/// Files do not share bytes: many files written in turns keep their own.
pub fn files_written_in_turns_keep_their_own_bytes(make: Make<'_>) {
    let fs = &*make();
    let inos: Vec<Ino> = (0..20).map(|n| fs.file(&format!("file{n}"))).collect();
    let mut wanted = vec![Vec::new(); inos.len()];
    for round in 0..30u64 {
        for (n, ino) in inos.iter().enumerate() {
            let piece = bytes(round * 100 + n as u64, 100 + (round as usize * 131 + n * 17) % 900);
            fs.write(*ino, wanted[n].len() as u64, &piece).unwrap();
            wanted[n].extend(piece);
        }
        if round % 10 == 9 {
            fs.sync().unwrap();
        }
    }
    for (n, ino) in inos.iter().enumerate() {
        assert_same(&fs.content(*ino), &wanted[n], &format!("file {n}"));
    }
}

/// A large file written through in order is read back, in order and at random places.
pub fn a_large_file_is_read_back(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    let piece = 256 << 10;
    for n in 0..32u64 {
        fs.write_through(ino, n * piece, &bytes(n, piece as usize)).unwrap();
    }
    fs.fsync(ino).unwrap();
    assert_eq!(fs.attr(ino).size, 32 * piece);
    for n in (0..32).rev() {
        assert_same(
            &fs.read_at(ino, n * piece, piece as usize),
            &bytes(n, piece as usize),
            &format!("piece {n}"),
        );
    }
    let across = fs.read_at(ino, 5 * piece - 100, 200);
    assert_same(&across[..100], &bytes(4, piece as usize)[piece as usize - 100..], "before the seam");
    assert_same(&across[100..], &bytes(5, piece as usize)[..100], "after the seam");
}
