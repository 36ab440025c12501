//! Space: what `statfs` counts, and what happens when there is none left.

use super::Make;
use super::fixture::{Fixture, args, assert_same, bytes};
use crate::{FsError, NewNode, SetAttr};
use weft_core::Ino;

const ROOT: Ino = Ino::ROOT;
/// Volumes larger than this are not filled.
const FILLED_BYTES_MAX: u64 = 512 << 20;

/// Free is part of the total, and an empty volume has space.
pub fn statfs_counts_free_space_within_the_total(make: Make<'_>) {
    let fs = &*make();
    let stats = fs.statfs().unwrap();
    assert!(0 < stats.free_bytes && stats.free_bytes <= stats.total_bytes, "{stats:?}");
    assert!(stats.free_inodes > 0, "{stats:?}");
}

/// Inodes are counted as they come and go.
pub fn statfs_counts_inodes(make: Make<'_>) {
    let fs = &*make();
    let before = fs.statfs().unwrap().inodes;
    let file = fs.file("file");
    fs.dir("dir");
    fs.link(file, ROOT, b"link").unwrap();
    assert_eq!(fs.statfs().unwrap().inodes, before + 2, "a link is not an inode");
    let unnamed = fs.create_unnamed(&args(NewNode::File)).unwrap().ino;
    assert_eq!(fs.statfs().unwrap().inodes, before + 3);
    fs.release(unnamed);
    fs.unlink(ROOT, b"file").unwrap();
    fs.unlink(ROOT, b"link").unwrap();
    fs.rmdir(ROOT, b"dir").unwrap();
    assert_eq!(fs.statfs().unwrap().inodes, before);
}

/// Stored data takes space, and deleting it gives it back.
pub fn statfs_counts_the_space_of_data(make: Make<'_>) {
    let fs = &*make();
    let size = 8 << 20;
    let free = || fs.statfs().unwrap().free_bytes;
    let empty = free();
    let ino = fs.file("file");
    for piece in 0..8 {
        fs.write_through(ino, piece << 20, &bytes(piece, 1 << 20)).unwrap();
    }
    fs.sync().unwrap();
    let used = empty.saturating_sub(free());
    assert!(used >= size / 8 * 7, "8 MiB of data take only {used} bytes");
    fs.unlink(ROOT, b"file").unwrap();
    fs.sync().unwrap();
    let left = empty.saturating_sub(free());
    assert!(left <= size / 4, "{left} bytes are still taken after the delete");
}

/// A file that is overwritten for more than the volume's size takes no more space than at first, and never runs into
/// the end of the volume.
pub fn overwriting_a_file_takes_no_more_space(make: Make<'_>) {
    let fs = &*make();
    let total = fs.statfs().unwrap().total_bytes;
    if total > FILLED_BYTES_MAX {
        return;
    }
    let piece = 1 << 20;
    let ino = fs.file("file");
    let write_all = |round: u64| {
        for n in 0..4 {
            fs.write_through(ino, n * piece, &bytes(round * 4 + n, piece as usize)).unwrap();
        }
        // Not whole blocks: what is left of the blocks at the edges stays.
        fs.write(ino, piece - 100, &bytes(round, 200)).unwrap();
        fs.sync().unwrap();
    };
    write_all(0);
    let free = fs.statfs().unwrap().free_bytes;
    let rounds = total * 5 / 4 / (4 * piece);
    for round in 1..=rounds {
        write_all(round);
    }
    let lost = free.saturating_sub(fs.statfs().unwrap().free_bytes);
    assert!(lost <= piece, "{rounds} overwrites of 4 MiB took {lost} bytes");
    let mut wanted = bytes(rounds * 4 + 3, piece as usize);
    assert_same(&fs.read_at(ino, 3 * piece, piece as usize), &wanted, "the last piece");
    wanted = bytes(rounds * 4, piece as usize);
    wanted[piece as usize - 100..].copy_from_slice(&bytes(rounds, 200)[..100]);
    assert_same(&fs.read_at(ino, 0, piece as usize), &wanted, "the first piece");
}

/// A file that is cut within a block and made longer again, time after time, takes no more space than at first.
pub fn cutting_and_regrowing_a_file_takes_no_more_space(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", &bytes(1, 20_000));
    fs.sync().unwrap();
    let free = fs.statfs().unwrap().free_bytes;
    for round in 0..2000 {
        fs.setattr(ino, &SetAttr { size: Some(9_000 + round), ..SetAttr::default() }).unwrap();
        fs.write(ino, 9_000 + round, &bytes(round, 11_000 - round as usize)).unwrap();
        if round % 4 == 0 {
            fs.fsync(ino).unwrap();
        } else {
            fs.write_back(ino).unwrap();
        }
    }
    fs.sync().unwrap();
    let lost = free.saturating_sub(fs.statfs().unwrap().free_bytes);
    assert!(lost <= 1 << 20, "2,000 cuts of a file of 20,000 bytes took {lost} bytes");
    assert_same(&fs.read_at(ino, 10_999, 9_001), &bytes(1999, 9_001), "the last growth");
}

/// A full volume refuses the write with `NoSpace`, keeps all that it took, and takes data again after a delete.
pub fn a_full_volume_refuses_writes_keeps_its_data_and_recovers(make: Make<'_>) {
    let fs = &*make();
    if fs.statfs().unwrap().total_bytes > FILLED_BYTES_MAX {
        return;
    }
    let piece = 256 << 10;
    let mut files = 0u64;
    'full: loop {
        let ino = fs.file(&format!("file{files}"));
        for n in 0..8 {
            match fs.write(ino, n * piece, &bytes(files * 8 + n, piece as usize)) {
                Ok(()) => {}
                Err(FsError::NoSpace) => break 'full,
                Err(other) => panic!("a full volume fails with NoSpace, not {other:?}"),
            }
        }
        // Buffered data may find out about the missing space only here.
        match fs.fsync(ino) {
            Ok(()) => files += 1,
            Err(FsError::NoSpace) => break 'full,
            Err(other) => panic!("a full volume fails with NoSpace, not {other:?}"),
        }
        assert!(files * 8 * piece <= FILLED_BYTES_MAX, "the volume never gets full");
    }
    assert!(files >= 3, "the volume is too small to prove anything: {files} files");
    for file in 0..files {
        let ino = fs.ino(&format!("file{file}")).unwrap();
        for n in 0..8 {
            let what = format!("file {file}, piece {n} on a full volume");
            assert_same(
                &fs.read_at(ino, n * piece, piece as usize),
                &bytes(file * 8 + n, piece as usize),
                &what,
            );
        }
    }
    // The file that did not fit and a few of the others go; then as much fits again.
    fs.unlink(ROOT, format!("file{files}").as_bytes()).unwrap();
    for file in 0..3 {
        fs.unlink(ROOT, format!("file{file}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    let ino = fs.file("again");
    for n in 0..8 {
        fs.write(ino, n * piece, &bytes(n, piece as usize)).unwrap();
    }
    fs.fsync(ino).unwrap();
    for n in 0..8 {
        assert_same(
            &fs.read_at(ino, n * piece, piece as usize),
            &bytes(n, piece as usize),
            "after the delete",
        );
    }
}
