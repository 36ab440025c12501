//! Sizes and ranges: truncate, fallocate, seek.

use super::Make;
use super::fixture::{BLOCK, Fixture, assert_fails, assert_same, bytes, soil};
use weft_core::Ino;
use weft_vfs::{FallocateMode, FileSystem, FsError, FsResult, SeekTarget, SetAttr};

fn truncate(fs: &dyn FileSystem, ino: Ino, size: u64) {
    let attr = fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    assert_eq!(attr.size, size);
    assert_eq!(fs.attr(ino).size, size);
}

/// Where the bytes of a file are when a property begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// In the core's buffers alone.
    Buffered,
    /// Stored.
    Stored,
    /// Stored, and in each block a few bytes have been overwritten since.
    Overwritten,
}

/// A file of 10 blocks and a bit, and what it holds.
fn ten_blocks(fs: &dyn FileSystem, kept: Kept) -> (Ino, Vec<u8>) {
    let mut data = bytes(42, (10 * BLOCK + 100) as usize);
    let ino = fs.file_with("file", &data);
    if kept != Kept::Buffered {
        fs.fsync(ino).unwrap();
    }
    if kept == Kept::Overwritten {
        for block in 0..=10 {
            let (offset, new) = ((block * BLOCK) as usize + 3, bytes(block, 5));
            fs.write(ino, offset as u64, &new).unwrap();
            data[offset..offset + 5].copy_from_slice(&new);
        }
    }
    (ino, data)
}

/// Proves the same wherever the bytes of the file are.
fn wherever_it_is_kept(make: Make<'_>, prove: impl Fn(&dyn FileSystem, Ino, Vec<u8>)) {
    for kept in [Kept::Buffered, Kept::Stored, Kept::Overwritten] {
        let fs = &*make();
        soil(fs);
        let (ino, data) = ten_blocks(fs, kept);
        prove(fs, ino, data);
    }
}

/// A smaller size cuts the file; what stays is unchanged.
pub fn truncate_down_keeps_what_is_before(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, data| {
        for size in [9 * BLOCK + 5, 9 * BLOCK, 5 * BLOCK + 1, BLOCK - 1, 1, 0] {
            truncate(fs, ino, size);
            assert_same(&fs.content(ino), &data[..size as usize], &format!("cut to {size}"));
        }
    });
}

/// A larger size shows zeros at the end.
pub fn truncate_up_shows_zeros(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for size in [10 * BLOCK + 101, 11 * BLOCK, 13 * BLOCK + 7] {
            truncate(fs, ino, size);
            data.resize(size as usize, 0);
            assert_same(&fs.content(ino), &data, &format!("extended to {size}"));
        }
    });
}

/// What was cut off never comes back: down and up again shows zeros.
pub fn truncate_down_then_up_shows_zeros(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for (down, up) in
            [(10 * BLOCK, 10 * BLOCK + 100), (8 * BLOCK + 17, 9 * BLOCK), (100, 6 * BLOCK), (0, 50)]
        {
            truncate(fs, ino, down);
            truncate(fs, ino, up);
            data.truncate(down as usize);
            data.resize(up as usize, 0);
            assert_same(&fs.content(ino), &data, &format!("to {down}, then {up}"));
            fs.fsync(ino).unwrap();
            assert_same(&fs.content(ino), &data, &format!("to {down}, then {up}, synced"));
        }
    });
}

/// Cut within a block, then extended by a write: the gap is zeros.
pub fn a_write_after_a_cut_within_a_block_leaves_zeros_between(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        let cut = (3 * BLOCK + 10) as usize;
        truncate(fs, ino, cut as u64);
        fs.write(ino, cut as u64 + 50, b"later").unwrap();
        data.truncate(cut);
        data.resize(cut + 50, 0);
        data.extend(b"later");
        assert_same(&fs.content(ino), &data, "after the write");
        fs.fsync(ino).unwrap();
        assert_same(&fs.content(ino), &data, "after fsync");
    });
}

/// Appends go on where a cut left the end.
pub fn appends_follow_a_truncate(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        truncate(fs, ino, 5000);
        data.truncate(5000);
        for n in 0..20 {
            let record = bytes(n, 333);
            fs.write(ino, data.len() as u64, &record).unwrap();
            data.extend(record);
        }
        assert_same(&fs.content(ino), &data, "after appends");
    });
}

/// A size of 4 TiB is a number, not space.
pub fn truncate_up_takes_no_space(make: Make<'_>) {
    let fs = &*make();
    soil(fs);
    let ino = fs.file_with("file", b"abc");
    truncate(fs, ino, 4 << 40);
    assert_eq!(fs.read_at(ino, (4 << 40) - 3, 10), [0; 3]);
    assert!(fs.attr(ino).blocks * 512 < 1 << 20);
    truncate(fs, ino, 2);
    assert_eq!(fs.content(ino), b"ab");
}

/// `Allocate` extends the size with zeros and keeps the content.
pub fn allocate_extends_and_keeps_content(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        fs.fallocate(ino, FallocateMode::Allocate, 0, 4 * BLOCK).unwrap();
        assert_same(&fs.content(ino), &data, "within the file");
        fs.fallocate(ino, FallocateMode::Allocate, 10 * BLOCK, 2 * BLOCK + 9).unwrap();
        data.resize((12 * BLOCK + 9) as usize, 0);
        assert_same(&fs.content(ino), &data, "past the end");
    });
}

/// `KeepSize` changes neither size nor content.
pub fn keep_size_changes_nothing_that_can_be_read(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, data| {
        fs.fallocate(ino, FallocateMode::KeepSize, 5 * BLOCK, 100 * BLOCK).unwrap();
        assert_same(&fs.content(ino), &data, "after KeepSize");
        // What it promised space for is still zeros when the size grows.
        truncate(fs, ino, 12 * BLOCK);
        let mut longer = data;
        longer.resize((12 * BLOCK) as usize, 0);
        assert_same(&fs.content(ino), &longer, "after extending");
    });
}

/// Ranges at all alignments, within the file, across its end and past it.
const RANGES: [(u64, u64); 9] = [
    (0, BLOCK),
    (BLOCK, 2 * BLOCK),
    (3, 10),
    (BLOCK - 1, 2),
    (BLOCK + 5, 3 * BLOCK),
    (2 * BLOCK, BLOCK + 1),
    (10 * BLOCK, 50),
    (9 * BLOCK + 5, 4 * BLOCK),
    (20 * BLOCK, BLOCK),
];

/// `PunchHole` makes exactly its range zeros and keeps the size.
pub fn punch_hole_makes_its_range_zeros(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for (offset, len) in RANGES {
            fs.fallocate(ino, FallocateMode::PunchHole, offset, len).unwrap();
            let end = ((offset + len) as usize).min(data.len());
            data[(offset as usize).min(end)..end].fill(0);
            assert_same(&fs.content(ino), &data, &format!("{len} bytes at {offset}"));
        }
        fs.fsync(ino).unwrap();
        assert_same(&fs.content(ino), &data, "after fsync");
    });
}

/// `ZeroRange` makes its range zeros and extends the file.
pub fn zero_range_makes_its_range_zeros_and_extends(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for (offset, len) in RANGES {
            fs.fallocate(ino, FallocateMode::ZeroRange { keep_size: false }, offset, len).unwrap();
            let end = (offset + len) as usize;
            data.resize(data.len().max(end), 0);
            data[offset as usize..end].fill(0);
            assert_same(&fs.content(ino), &data, &format!("{len} bytes at {offset}"));
        }
    });
}

/// `ZeroRange` with `keep_size` keeps the size.
pub fn zero_range_can_keep_the_size(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for (offset, len) in RANGES {
            fs.fallocate(ino, FallocateMode::ZeroRange { keep_size: true }, offset, len).unwrap();
            let end = ((offset + len) as usize).min(data.len());
            data[(offset as usize).min(end)..end].fill(0);
            assert_same(&fs.content(ino), &data, &format!("{len} bytes at {offset}"));
        }
    });
}

/// `CollapseRange` cuts its range out and moves the rest down.
pub fn collapse_range_moves_the_rest_down(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for (first, blocks) in [(1, 1), (0, 2), (3, 2), (4, 1)] {
            let (offset, len) = (first * BLOCK, blocks * BLOCK);
            fs.fallocate(ino, FallocateMode::CollapseRange, offset, len).unwrap();
            data.drain(offset as usize..(offset + len) as usize);
            assert_same(&fs.content(ino), &data, &format!("{blocks} blocks at block {first}"));
        }
        // The moved end is a place to write at like any other.
        fs.write(ino, data.len() as u64, b"append").unwrap();
        data.extend(b"append");
        fs.fsync(ino).unwrap();
        assert_same(&fs.content(ino), &data, "after an append");
    });
}

/// `InsertRange` moves the rest up and leaves zeros.
pub fn insert_range_moves_the_rest_up(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, mut data| {
        for (first, blocks) in [(1, 1), (0, 2), (5, 3), (16, 1)] {
            let (offset, len) = (first * BLOCK, blocks * BLOCK);
            fs.fallocate(ino, FallocateMode::InsertRange, offset, len).unwrap();
            data.splice(offset as usize..offset as usize, vec![0; len as usize]);
            assert_same(&fs.content(ino), &data, &format!("{blocks} blocks at block {first}"));
        }
        fs.write(ino, BLOCK + 7, b"filled").unwrap();
        data[BLOCK as usize + 7..BLOCK as usize + 13].copy_from_slice(b"filled");
        fs.fsync(ino).unwrap();
        assert_same(&fs.content(ino), &data, "after a write into the hole");
    });
}

/// Collapsing and inserting work on whole blocks within the file; nothing else changes anything.
pub fn collapse_and_insert_refuse_what_they_cannot_do(make: Make<'_>) {
    wherever_it_is_kept(make, |fs, ino, data| {
        for mode in [FallocateMode::CollapseRange, FallocateMode::InsertRange] {
            for (offset, len) in [(1, BLOCK), (BLOCK, 1), (512, 512), (0, BLOCK + 1), (BLOCK - 1, BLOCK)] {
                assert_fails!(fs.fallocate(ino, mode, offset, len), FsError::Invalid(_));
            }
            assert_fails!(fs.fallocate(ino, mode, 11 * BLOCK, BLOCK), FsError::Invalid(_));
            assert_fails!(fs.fallocate(ino, mode, 100 * BLOCK, BLOCK), FsError::Invalid(_));
        }
        // A collapse that reaches the end is a truncate, which it is not for.
        assert_fails!(
            fs.fallocate(ino, FallocateMode::CollapseRange, 10 * BLOCK, BLOCK),
            FsError::Invalid(_)
        );
        assert_fails!(fs.fallocate(ino, FallocateMode::CollapseRange, 0, 20 * BLOCK), FsError::Invalid(_));
        assert_same(&fs.content(ino), &data, "nothing happened");
    });
    let fs = &*make();
    let exact = fs.file_with("exact", &bytes(1, 2 * BLOCK as usize));
    assert_fails!(fs.fallocate(exact, FallocateMode::CollapseRange, BLOCK, BLOCK), FsError::Invalid(_));
    assert_fails!(fs.fallocate(exact, FallocateMode::InsertRange, 2 * BLOCK, BLOCK), FsError::Invalid(_));
}

/// All modes of `fallocate`.
const MODES: [FallocateMode; 7] = [
    FallocateMode::Allocate,
    FallocateMode::KeepSize,
    FallocateMode::PunchHole,
    FallocateMode::ZeroRange { keep_size: false },
    FallocateMode::ZeroRange { keep_size: true },
    FallocateMode::CollapseRange,
    FallocateMode::InsertRange,
];

/// An empty range is `Invalid`, one that no file can reach is `TooLarge`.
pub fn fallocate_refuses_empty_and_endless_ranges(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    for mode in MODES {
        assert_fails!(fs.fallocate(ino, mode, 0, 0), FsError::Invalid(_));
    }
    for mode in [FallocateMode::Allocate, FallocateMode::ZeroRange { keep_size: false }] {
        assert_fails!(fs.fallocate(ino, mode, i64::MAX as u64, 1), FsError::TooLarge);
        assert_fails!(fs.fallocate(ino, mode, 1, u64::MAX), FsError::TooLarge);
    }
    assert_eq!(fs.content(ino), b"abc");
}

/// An insert that would make the file larger than any can be is `TooLarge`.
pub fn insert_refuses_to_exceed_the_largest_size(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", &bytes(1, 2 * BLOCK as usize));
    let most = i64::MAX as u64 / BLOCK * BLOCK;
    assert_fails!(fs.fallocate(ino, FallocateMode::InsertRange, 0, most), FsError::TooLarge);
    assert_same(&fs.content(ino), &bytes(1, 2 * BLOCK as usize), "nothing happened");
}

/// Directories have no ranges.
pub fn fallocate_is_for_files(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    for mode in MODES {
        assert_fails!(fs.fallocate(dir, mode, 0, BLOCK), FsError::IsDirectory);
    }
}

/// The data segments that a core reports, from SEEK_DATA and SEEK_HOLE in turns.
pub(super) fn data_segments(fs: &dyn FileSystem, ino: Ino) -> FsResult<Vec<(u64, u64)>> {
    let mut segments = Vec::new();
    let mut at = 0;
    loop {
        let start = match fs.seek(ino, at, SeekTarget::Data) {
            Ok(start) => start,
            Err(FsError::NoData) => return Ok(segments),
            Err(error) => return Err(error),
        };
        assert!(start >= at, "data at {start} is before {at}");
        let end = fs.seek(ino, start, SeekTarget::Hole)?;
        assert!(end > start, "the hole after data at {start} is at {end}");
        segments.push((start, end));
        at = end;
    }
}

/// What lies outside the reported data is zeros; data may be reported where there is a hole, never the other way.
pub fn what_seek_calls_a_hole_is_zeros(make: Make<'_>) {
    for stored in [false, true] {
        let fs = &*make();
        soil(fs);
        let ino = fs.file("file");
        let mut wanted = vec![0; (200 * BLOCK) as usize];
        for (offset, len) in
            [(5, 10), (10 * BLOCK, 3 * BLOCK), (50 * BLOCK - 1, 2), (120 * BLOCK, 20 * BLOCK)]
        {
            let data = bytes(offset, len as usize);
            fs.write(ino, offset, &data).unwrap();
            wanted[offset as usize..(offset + len) as usize].copy_from_slice(&data);
        }
        truncate(fs, ino, 200 * BLOCK);
        fs.fallocate(ino, FallocateMode::PunchHole, 125 * BLOCK, 5 * BLOCK).unwrap();
        wanted[(125 * BLOCK) as usize..(130 * BLOCK) as usize].fill(0);
        if stored {
            fs.fsync(ino).unwrap();
        }
        let segments = data_segments(fs, ino).unwrap();
        let mut covered = vec![false; wanted.len()];
        for (start, end) in &segments {
            assert!(*end <= 200 * BLOCK, "data ends with the file");
            covered[*start as usize..*end as usize].fill(true);
        }
        let lost = wanted.iter().zip(&covered).position(|(byte, covered)| *byte != 0 && !covered);
        assert_eq!(lost, None, "a byte of data is reported as a hole: {segments:?}");
    }
}

/// The end of the file is a hole; at and past it there is nothing to seek.
pub fn seek_ends_with_the_file(make: Make<'_>) {
    let fs = &*make();
    let empty = fs.file("empty");
    let full = fs.file_with("full", &bytes(1, 10_000));
    for target in [SeekTarget::Data, SeekTarget::Hole] {
        assert_fails!(fs.seek(empty, 0, target), FsError::NoData);
        assert_fails!(fs.seek(full, 10_000, target), FsError::NoData);
        assert_fails!(fs.seek(full, u64::MAX, target), FsError::NoData);
    }
    assert_eq!(fs.seek(full, 0, SeekTarget::Data).unwrap(), 0);
    assert_eq!(fs.seek(full, 9_999, SeekTarget::Data).unwrap(), 9_999);
    assert_eq!(fs.seek(full, 0, SeekTarget::Hole).unwrap(), 10_000);
    assert_eq!(fs.seek(full, 9_999, SeekTarget::Hole).unwrap(), 10_000);
}
