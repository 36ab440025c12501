//! Data that cannot be stored, because what lies beside it is damaged or a snapshot keeps the room, costs nothing else.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_tagfs::{FormatOptions, MountOptions, TagFs};
use weft_tags::MemoryStore;
use weft_vfs::{CreateArgs, FileSystem, FsError, Ino, NewNode};

const BLOCK: usize = 4096;

fn formatted(capacity_bytes: u64) -> Arc<MemoryStore> {
    let medium = Arc::new(MemoryStore::new());
    let options = FormatOptions { capacity_bytes, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    medium
}

fn mount(medium: &Arc<MemoryStore>, dirty_bytes_max: u64) -> TagFs {
    let options = MountOptions { dirty_bytes_max, ..MountOptions::default() };
    TagFs::mount(Box::new(medium.clone()), options).unwrap()
}

fn file(fs: &TagFs, name: &[u8]) -> Ino {
    fs.create(Ino::ROOT, name, &CreateArgs::new(NewNode::File, 0o644)).unwrap().ino
}

/// A volume with a file `old` of 5000 bytes, of which the second piece is damaged.
fn with_damage() -> Arc<MemoryStore> {
    const SPOT: &[u8; 16] = b"damaged soon: it";
    let medium = formatted(64 << 20);
    let fs = mount(&medium, 64 << 20);
    let old = file(&fs, b"old");
    let mut content = vec![b'.'; 5000];
    content[4500..4500 + SPOT.len()].copy_from_slice(SPOT);
    fs.write(old, 0, &content).unwrap();
    fs.unmount().unwrap();
    let mut bytes = medium.to_bytes();
    let mut found = 0;
    for at in 0..bytes.len() - SPOT.len() {
        if bytes[at] == SPOT[0] && bytes[at..at + SPOT.len()] == *SPOT {
            bytes[at] ^= 1;
            found += 1;
        }
    }
    assert!(found > 0);
    Arc::new(MemoryStore::from_bytes(bytes))
}

#[test]
fn a_file_that_cannot_be_stored_keeps_no_other_from_it() {
    let medium = with_damage();
    let fs = mount(&medium, 2 << 20);
    let old = fs.lookup(Ino::ROOT, b"old").unwrap().ino;
    // The damaged piece begins in this block, and reaches beyond it.
    fs.write(old, 0, &[b'n'; BLOCK]).unwrap();
    for n in 0..100 {
        // More than the buffers hold, and the oldest of them cannot be stored.
        fs.write(file(&fs, format!("other{n}").as_bytes()), 0, &[7; 10 * BLOCK]).unwrap();
    }
    assert!(matches!(fs.sync(), Err(FsError::Checksum(_))));
    assert!(matches!(fs.fsync(old), Err(FsError::Checksum(_))));
    drop(fs);
    let fs = mount(&medium, 64 << 20);
    for n in 0..100 {
        let other = fs.lookup(Ino::ROOT, format!("other{n}").as_bytes()).unwrap();
        let mut out = vec![0; 10 * BLOCK];
        assert_eq!((other.size, fs.read(other.ino, 0, &mut out).unwrap()), (10 * BLOCK as u64, 10 * BLOCK));
        assert!(out.iter().all(|byte| *byte == 7), "file {n}");
    }
}

#[test]
fn a_close_stores_what_it_can() {
    let medium = with_damage();
    let fs = mount(&medium, 64 << 20);
    let old = fs.lookup(Ino::ROOT, b"old").unwrap().ino;
    fs.write(old, 0, &[b'n'; BLOCK]).unwrap();
    fs.write(file(&fs, b"other"), 0, &[7; 3 * BLOCK]).unwrap();
    assert!(fs.unmount().is_err());
    let fs = mount(&medium, 64 << 20);
    assert_eq!(fs.lookup(Ino::ROOT, b"other").unwrap().size, 3 * BLOCK as u64);
}

#[test]
fn what_is_overwritten_beside_a_snapshot_is_stored_or_refused_at_once() {
    let medium = formatted(64 << 20);
    let fs = mount(&medium, 64 << 20);
    let ino = file(&fs, b"file");
    let mut blocks = 0;
    while fs.statfs().unwrap().free_bytes > 6 << 20 {
        fs.write(ino, blocks * BLOCK as u64, &[1; 32 * BLOCK]).unwrap();
        blocks += 32;
    }
    fs.sync().unwrap();
    fs.store().create_snapshot("then").unwrap();
    fs.unmount().unwrap();

    let fs = mount(&medium, 64 << 20);
    let mut written = 0;
    let refused = loop {
        if written == blocks {
            break None;
        }
        match fs.write(ino, written * BLOCK as u64, &[2; 32 * BLOCK]) {
            Ok(()) => written += 32,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(refused, Some(FsError::NoSpace)), "{refused:?} after {written} of {blocks} blocks");
    assert!(written > 0);
    // All that was accepted can be stored.
    fs.sync().unwrap();
    fs.unmount().unwrap();
    let fs = mount(&medium, 64 << 20);
    let mut out = vec![0; written as usize * BLOCK];
    assert_eq!(fs.read(ino, 0, &mut out).unwrap(), out.len());
    assert!(out.iter().all(|byte| *byte == 2));
}

#[test]
fn a_write_ends_when_what_is_buffered_beside_a_snapshot_cannot_be_stored() {
    let medium = with_damage();
    let fs = mount(&medium, 64 << 20);
    fs.store().create_snapshot("then").unwrap();
    fs.unmount().unwrap();
    let fs = mount(&medium, 64 << 20);
    let old = fs.lookup(Ino::ROOT, b"old").unwrap().ino;
    fs.write(old, 0, &[b'n'; BLOCK]).unwrap();
    let full = file(&fs, b"full");
    let mut at = 0;
    let refused = loop {
        match fs.write(full, at, &[1; 32 * BLOCK]) {
            Ok(()) => at += 32 * BLOCK as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, FsError::NoSpace), "{refused}");
    fs.fsync(full).unwrap();
}
