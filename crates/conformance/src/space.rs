//! Space: what `statfs` counts, and what happens when there is none left.

use super::Make;
use super::fixture::{BLOCK, Fixture, args, assert_fails, assert_same, bytes};
use super::ranges::data_segments;
use weft_core::Ino;
use weft_vfs::{FallocateMode, FileSystem, FsError, NewNode, RenameFlags, SetAttr};

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
    let unnamed = fs.create_unnamed(Ino::ROOT, &args(NewNode::File), true).unwrap().ino;
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
    // Files get longer names, and their own again.
    for file in 0..files {
        let (name, longer) = (format!("file{file}"), format!("{file}").repeat(200 / format!("{file}").len()));
        for (from, to) in [(&name, &longer), (&longer, &name)] {
            fs.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), RenameFlags::empty()).unwrap();
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

/// Writes to a file until the volume takes not even one more byte of new data. False for a volume that is not filled.
fn fill(fs: &dyn FileSystem, name: &str) -> bool {
    if fs.statfs().unwrap().total_bytes > FILLED_BYTES_MAX {
        return false;
    }
    let ino = fs.file(name);
    let mut end = 0;
    for piece in [1 << 20, 64 << 10, BLOCK, 1] {
        let data = bytes(end, piece as usize);
        loop {
            match fs.write(ino, end, &data) {
                Ok(()) if piece > 1 => end += piece,
                // Into a block of its own each.
                Ok(()) => end += BLOCK,
                Err(FsError::NoSpace) => break,
                Err(other) => panic!("a full volume fails with NoSpace, not {other:?}"),
            }
            assert!(end <= FILLED_BYTES_MAX, "the volume never gets full");
        }
    }
    fs.sync().unwrap();
    true
}

fn resize(fs: &dyn FileSystem, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// Allocated space is used space, of the volume and of the file, until a truncate, a hole, a collapse or the end of the
/// file gives it back.
pub fn what_is_allocated_counts_as_used_until_it_is_given_back(make: Make<'_>) {
    const MIB: u64 = 1 << 20;
    let fs = &*make();
    let free = || fs.statfs().unwrap().free_bytes;
    let ino = fs.file_with("file", &bytes(1, 5000));
    fs.sync().unwrap();
    let empty = free();
    // What names and maps take comes and goes, too.
    let assert_taken = |bytes: u64, what: &str| {
        let taken = empty.saturating_sub(free());
        assert!(taken.abs_diff(bytes) <= MIB / 2, "{what}: {taken} bytes are taken, not {bytes}");
        let blocks = fs.attr(ino).blocks * 512;
        assert!(
            blocks.abs_diff(bytes) <= MIB / 2,
            "{what}: the file has {blocks} bytes of blocks, not {bytes}"
        );
    };
    fs.fallocate(ino, FallocateMode::KeepSize, 0, 8 * MIB).unwrap();
    assert_taken(8 * MIB, "KeepSize");
    assert_eq!(fs.attr(ino).size, 5000);
    fs.fallocate(ino, FallocateMode::Allocate, MIB, 6 * MIB).unwrap();
    assert_taken(8 * MIB, "the same again");
    assert_eq!(fs.attr(ino).size, 7 * MIB);
    fs.write_through(ino, 2 * MIB, &bytes(2, MIB as usize)).unwrap();
    fs.write(ino, 4 * MIB + 3, &bytes(3, 100_000)).unwrap();
    assert_taken(8 * MIB, "written");
    fs.sync().unwrap();
    assert_taken(8 * MIB, "written and synced");
    fs.fallocate(ino, FallocateMode::PunchHole, 2 * MIB, 2 * MIB).unwrap();
    assert_taken(6 * MIB, "a hole");
    fs.fallocate(ino, FallocateMode::ZeroRange { keep_size: true }, 2 * MIB, MIB).unwrap();
    assert_taken(7 * MIB, "zeros");
    fs.fallocate(ino, FallocateMode::CollapseRange, 0, MIB).unwrap();
    assert_taken(6 * MIB, "a collapse");
    fs.fallocate(ino, FallocateMode::InsertRange, MIB, 3 * MIB).unwrap();
    assert_taken(6 * MIB, "an insertion");
    let size = fs.attr(ino).size;
    resize(fs, ino, size);
    assert_taken(5 * MIB, "cut to its size");
    resize(fs, ino, 4 * MIB);
    assert_taken(MIB, "cut");
    resize(fs, ino, 0);
    assert_taken(0, "cut to nothing");
    fs.fallocate(ino, FallocateMode::KeepSize, 100 * MIB, 2 * MIB).unwrap();
    assert_taken(2 * MIB, "far behind the end");
    fs.open(ino).unwrap();
    fs.unlink(ROOT, b"file").unwrap();
    assert_taken(2 * MIB, "unlinked and open");
    fs.release(ino);
    assert!(empty.saturating_sub(free()) <= MIB / 2, "released");
}

/// An allocation is had whole or not at all.
pub fn an_allocation_that_does_not_fit_is_no_space_and_changes_nothing(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    fs.sync().unwrap();
    let before = fs.statfs().unwrap();
    for mode in [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::ZeroRange { keep_size: false },
        FallocateMode::ZeroRange { keep_size: true },
    ] {
        assert_fails!(fs.fallocate(ino, mode, 0, before.total_bytes + BLOCK), FsError::NoSpace);
        assert_fails!(fs.fallocate(ino, mode, 1 << 40, before.free_bytes + (1 << 20)), FsError::NoSpace);
    }
    assert_eq!(fs.statfs().unwrap(), before);
    assert_eq!(fs.content(ino), b"abc");
}

/// A volume that has no room for anything else takes what comes to allocated ranges, in any order and size, time after
/// time.
pub fn what_was_allocated_takes_its_data_on_a_full_volume(make: Make<'_>) {
    const LEN: u64 = 3 << 20;
    let fs = &*make();
    let (log, table, other) = (fs.file("log"), fs.file("table"), fs.file("other"));
    fs.fallocate(log, FallocateMode::KeepSize, 0, LEN).unwrap();
    fs.fallocate(table, FallocateMode::Allocate, 0, LEN).unwrap();
    if !fill(fs, "ballast") {
        return;
    }
    assert_fails!(fs.write(other, 0, &[1]), FsError::NoSpace);
    let mut appended = Vec::new();
    let mut number = 0;
    while appended.len() as u64 + 30_000 < LEN {
        number += 1;
        let record = bytes(number, 1 + (number * 7919 % 30_000) as usize);
        fs.write(log, appended.len() as u64, &record).unwrap();
        appended.extend(record);
        match number % 4 {
            0 => fs.fsync(log).unwrap(),
            1 => fs.write_back(log).unwrap(),
            2 => fs.sync().unwrap(),
            _ => {}
        }
    }
    let mut stored = vec![0; LEN as usize];
    for round in 0..400u64 {
        let at = (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (LEN - 40_000);
        let data = bytes(round, 1 + (round * 104_729 % 40_000) as usize);
        if round % 3 == 0 {
            fs.write_through(table, at, &data).unwrap();
        } else {
            fs.write(table, at, &data).unwrap();
        }
        stored[at as usize..at as usize + data.len()].copy_from_slice(&data);
        if round % 7 == 0 {
            fs.fsync(table).unwrap();
        }
    }
    fs.sync().unwrap();
    assert_same(&fs.content(log), &appended, "the log");
    assert_same(&fs.content(table), &stored, "the table");
}

/// What is there can be changed on a full volume, however small the files are.
pub fn a_full_volume_takes_every_overwrite(make: Make<'_>) {
    let fs = &*make();
    let mut files: Vec<(Ino, Vec<u8>)> = (0..300u64)
        .map(|n| {
            let data = bytes(n, 1 + (n * 97 % 9000) as usize);
            (fs.file_with(&format!("file{n}"), &data), data)
        })
        .collect();
    fs.sync().unwrap();
    if !fill(fs, "ballast") {
        return;
    }
    for round in 0..3 {
        for (n, (ino, data)) in files.iter_mut().enumerate() {
            let new = bytes(n as u64 + round * 1000, data.len().div_ceil(1 + n % 3));
            let at = (data.len() - new.len()) / 2;
            fs.write(*ino, at as u64, &new).unwrap();
            data[at..at + new.len()].copy_from_slice(&new);
            if n % 50 == 0 {
                fs.fsync(*ino).unwrap();
            }
        }
        if round != 1 {
            fs.sync().unwrap();
        }
    }
    for (n, (ino, data)) in files.iter().enumerate() {
        assert_same(&fs.content(*ino), data, &format!("file {n}"));
    }
}

/// As on Linux: what is allocated and not written holds no data.
pub fn what_is_allocated_is_a_hole_until_it_is_written(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    fs.fallocate(ino, FallocateMode::Allocate, 0, 100 * BLOCK).unwrap();
    assert_eq!(data_segments(fs, ino).unwrap(), []);
    fs.write(ino, 10 * BLOCK + 5, &bytes(1, 3 * BLOCK as usize)).unwrap();
    for stored in [false, true] {
        if stored {
            fs.sync().unwrap();
        }
        let segments = data_segments(fs, ino).unwrap();
        assert_eq!(segments, [(10 * BLOCK, 14 * BLOCK)], "stored {stored}");
    }
    assert_eq!(fs.read_at(ino, 50 * BLOCK, BLOCK as usize), [0; BLOCK as usize]);
}
