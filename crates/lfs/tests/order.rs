//! What becomes durable before what, each rule with the cut that would show it broken.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

mod rig;

use rig::{check, fresh, options, small};
use std::sync::Arc;
use weft_core::Ino;
use weft_device::{PowerCut, ZonedDevice as _};
use weft_lfs::Lfs;
use weft_vfs::{CreateArgs, FallocateMode, FileSystem, FsError, NewNode, RenameFlags, SetAttr, TimeSpec};

const LOOKS: u64 = 16;

fn volume() -> (Arc<PowerCut>, Lfs) {
    fresh(&small(12 << 20, 256 << 10))
}

fn create(fs: &Lfs, name: &str) -> Ino {
    let args = CreateArgs::new(NewNode::File, 0o644);
    fs.create(Ino::ROOT, name.as_bytes(), &args).unwrap().ino
}

/// Commits the journal without touching any other file's data.
fn commit(fs: &Lfs) {
    fs.fsync(Ino::ROOT).unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

/// Cuts the power now; gives every volume that may be left to `judge`.
fn after_a_cut(device: &PowerCut, judge: impl Fn(&Lfs)) {
    for look in 0..LOOKS {
        let after = Arc::new(device.reopen(look).unwrap());
        assert!(check(&after).is_clean(), "{:?}", check(&after).problems);
        let fs = Lfs::mount(after, options()).unwrap();
        assert_eq!(fs.recount(), [""; 0]);
        judge(&fs);
    }
}

fn content(fs: &Lfs, name: &str) -> Option<Vec<u8>> {
    let attr = match fs.lookup(Ino::ROOT, name.as_bytes()) {
        Ok(attr) => attr,
        Err(FsError::NotFound) => return None,
        Err(error) => panic!("{error}"),
    };
    let mut out = vec![0; attr.size as usize];
    assert_eq!(fs.read(attr.ino, 0, &mut out).unwrap(), out.len());
    Some(out)
}

#[test]
fn a_file_that_was_appended_to_is_a_prefix_of_what_was_written() {
    // Pieces that end anywhere in a block, through the buffer and past it.
    let pieces: [&[(usize, bool)]; 7] = [
        &[(10_000, true)],
        &[(100, false), (40_000, true)],
        &[(5000, true), (3000, true), (200, false)],
        &[(4096, false), (1, false), (8192, true), (4095, true)],
        &[(70_000, true), (70_000, false), (70_000, true)],
        &[(1, true), (300_000, true), (1, true)],
        &[(9000, false)],
    ];
    let all = pattern(400_000);
    for pieces in pieces {
        let (device, fs) = volume();
        let ino = create(&fs, "f");
        let mut at = 0;
        for (len, through) in pieces {
            let data = &all[at..at + len];
            if *through {
                fs.write_through(ino, at as u64, data).unwrap();
            } else {
                fs.write(ino, at as u64, data).unwrap();
            }
            at += len;
            commit(&fs);
            let written = at;
            let look = |fs: &Lfs| {
                let found = content(fs, "f").unwrap();
                assert!(found.len() <= written && found == all[..found.len()], "{pieces:?} after {written}");
            };
            after_a_cut(&device, look);
            fs.write_back(ino).unwrap();
            commit(&fs);
            after_a_cut(&device, look);
        }
        fs.fsync(ino).unwrap();
        after_a_cut(&device, |fs| assert!(content(fs, "f").unwrap() == all[..at]));
    }
}

/// A volume with a file that was truncated and has so many new bytes, in order; perhaps its truncation was told before.
fn written_anew(len: usize, is_told: bool) -> (Arc<PowerCut>, Lfs, Vec<u8>) {
    let (device, fs) = volume();
    let ino = create(&fs, "f");
    fs.write(ino, 0, b"old").unwrap();
    fs.sync().unwrap();
    fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    if is_told {
        commit(&fs);
    }
    let new = pattern(len);
    fs.write(ino, 0, &new).unwrap();
    fs.write_in_order(ino).unwrap();
    (device, fs, new)
}

#[test]
fn a_file_that_was_written_anew_has_its_new_content_before_any_later_change() {
    for len in [4, 5000, 300_000] {
        let (device, fs, new) = written_anew(len, false);
        after_a_cut(&device, |fs| {
            let found = content(fs, "f").unwrap();
            assert!(found == b"old" || found == new, "{} bytes of {len}", found.len());
        });
        create(&fs, "later");
        commit(&fs);
        after_a_cut(&device, |fs| assert!(content(fs, "f").unwrap() == new, "{len} bytes"));
    }
}

#[test]
fn a_file_whose_truncation_was_told_before_has_its_new_content_when_the_process_is_killed() {
    for len in [4, 5000, 300_000] {
        let (device, _fs, new) = written_anew(len, true);
        // A kill takes nothing from the device that it has accepted.
        device.flush().unwrap();
        after_a_cut(&device, |fs| assert!(content(fs, "f").unwrap() == new, "{len} bytes"));
    }
}

#[test]
fn blocks_written_out_of_order_leave_no_hole_that_was_never_there() {
    let (device, fs) = volume();
    let ino = create(&fs, "f");
    let all = pattern(60_000);
    // The buffer has the start, the device what follows.
    fs.write(ino, 0, &all[..5000]).unwrap();
    fs.write_through(ino, 8192, &all[8192..60_000]).unwrap();
    fs.write(ino, 5000, &all[5000..8192]).unwrap();
    commit(&fs);
    after_a_cut(&device, |fs| {
        let found = content(fs, "f").unwrap();
        // Between 5000 and 8192 there was a hole once, and zeros there are right.
        for (i, byte) in found.iter().enumerate() {
            assert!(
                *byte == all[i] || (*byte == 0 && (5000..8192).contains(&i)),
                "byte {i} of {}",
                found.len()
            );
        }
    });
}

#[test]
fn a_size_without_data_behind_it_is_durable_too() {
    let (device, fs) = volume();
    let ino = create(&fs, "punched");
    fs.write(ino, 0, &pattern(8192)).unwrap();
    fs.fallocate(ino, FallocateMode::PunchHole, 0, 8192).unwrap();
    fs.fsync(ino).unwrap();
    let ino = create(&fs, "zeroed");
    fs.write(ino, 0, &pattern(100)).unwrap();
    fs.fallocate(ino, FallocateMode::ZeroRange { keep_size: false }, 0, 9000).unwrap();
    fs.fsync(ino).unwrap();
    let ino = create(&fs, "extended");
    fs.write(ino, 0, &pattern(100)).unwrap();
    fs.fallocate(ino, FallocateMode::Allocate, 0, 50_000).unwrap();
    fs.fsync(ino).unwrap();
    after_a_cut(&device, |fs| {
        assert!(content(fs, "punched").unwrap() == [0; 8192]);
        assert!(content(fs, "zeroed").unwrap() == [0; 9000]);
        let extended = content(fs, "extended").unwrap();
        assert!(
            extended.len() == 50_000 && extended[..100] == pattern(100) && extended[100..] == [0; 49_900]
        );
    });
}

#[test]
fn a_file_that_replaces_another_is_whole_when_the_name_is_its() {
    for len in [300, 5000, 100_000] {
        let (device, fs) = volume();
        let old = create(&fs, "f");
        fs.write(old, 0, &[7; 2000]).unwrap();
        fs.sync().unwrap();
        let new = create(&fs, "f.new");
        fs.write(new, 0, &pattern(len)).unwrap();
        fs.rename(Ino::ROOT, b"f.new", Ino::ROOT, b"f", RenameFlags::empty()).unwrap();
        after_a_cut(&device, |fs| {
            let found = content(fs, "f").unwrap();
            assert!(found == [7; 2000] || found == pattern(len));
        });
        commit(&fs);
        after_a_cut(&device, |fs| assert!(content(fs, "f").unwrap() == pattern(len)));
    }
}

#[test]
fn what_an_unlink_that_is_not_durable_frees_is_still_there_after_a_cut() {
    let (device, fs) = volume();
    let big = create(&fs, "big");
    let data = pattern(3 << 20);
    fs.write_through(big, 0, &data).unwrap();
    fs.sync().unwrap();
    let other = create(&fs, "other");
    fs.fsync(other).unwrap();
    fs.unlink(Ino::ROOT, b"big").unwrap();
    let whole_or_gone = |fs: &Lfs| {
        if let Some(found) = content(fs, "big") {
            assert!(found == data);
        }
    };
    after_a_cut(&device, whole_or_gone);
    // Data that wants the freed zones comes, up to a full volume.
    let mut at = 0;
    while fs.write_through(other, at, &[9; 128 << 10]).is_ok() {
        at += 128 << 10;
        after_a_cut(&device, whole_or_gone);
    }
    assert!(at > 4 << 20, "the freed space was not used: {at}");
}

#[test]
fn an_overwrite_that_is_not_durable_leaves_the_old_data_where_it_was() {
    let (device, fs) = volume();
    let ino = create(&fs, "f");
    let free = fs.statfs().unwrap().free_bytes / 4096 * 9 / 10;
    for block in 0..free {
        fs.write_through(ino, block * 4096, &[1; 4096]).unwrap();
    }
    fs.sync().unwrap();
    // Overwrites for more than a volume, none of them promised; the cleaner has to run meanwhile.
    for i in 0..2 * free {
        fs.write_through(ino, (i * 7919) % free * 4096, &[2; 4096]).unwrap();
        if i % 400 == 0 {
            after_a_cut(&device, |fs| {
                let found = content(fs, "f").unwrap();
                assert_eq!(found.len() as u64, free * 4096);
                for block in found.chunks_exact(4096) {
                    assert!(block == [1; 4096] || block == [2; 4096]);
                }
            });
        }
    }
    assert!(fs.stats().core.cleaned_segments > 10);
}

#[test]
fn a_zone_that_only_one_piece_keeps_lives_on_when_the_piece_is_cut_shorter() {
    let (device, fs) = volume();
    let piece = create(&fs, "piece");
    fs.write(piece, 0, &pattern(1000)).unwrap();
    fs.sync().unwrap();
    let rest = create(&fs, "rest");
    fs.write_through(rest, 0, &pattern(512 << 10)).unwrap();
    fs.unlink(Ino::ROOT, b"rest").unwrap();
    fs.setattr(piece, &weft_vfs::SetAttr { size: Some(500), ..Default::default() }).unwrap();
    fs.sync().unwrap();
    let next = create(&fs, "next");
    fs.write_through(next, 0, &pattern(512 << 10)).unwrap();
    fs.sync().unwrap();
    assert!(content(&fs, "piece").unwrap() == pattern(500));
    after_a_cut(&device, |fs| assert!(content(fs, "piece").unwrap() == pattern(500)));
}

#[test]
fn the_time_of_a_read_is_there_after_a_clean_close_even_if_nothing_else_has_changed() {
    let (device, fs) = volume();
    let ino = create(&fs, "file");
    fs.unmount().unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let when = TimeSpec(fs.getattr(ino).unwrap().ctime.0 + 1);
    fs.note_read(ino, when);
    fs.unmount().unwrap();
    let fs = Lfs::mount(device, options()).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().atime, when);
}
