//! The open-channel device in an image file: what survives a close, a kill and a damaged file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Nanos;
use weft_device::nand::{BlockAddr, BlockState, Fault, FlashError, FlashSetup, Keep, OpenChannel, Pairing};
use weft_device::{DeviceError, FaultPlan, Geometry};

fn setup() -> FlashSetup {
    let geometry = Geometry {
        channels: 2,
        luns_per_channel: 2,
        planes: 2,
        pages_per_block: 8,
        total_bytes: 2 * 2 * 2 * 8 * 8 * 4096,
        ..Geometry::bbssd()
    };
    let pairing = Some(Pairing::even(2, &geometry.timing));
    FlashSetup { pairing, ..FlashSetup::new(geometry) }
}

fn block(channel: u32, lun: u32, plane: u32, block: u32) -> BlockAddr {
    BlockAddr { channel, lun, plane, block }
}

fn read(device: &OpenChannel, block: BlockAddr, page: u32) -> Result<(u8, [u8; 3]), FlashError> {
    let (mut data, mut oob) = ([0; 4096], [0; 3]);
    device.read(Nanos(0), block.page(page), 0, &mut data, &mut oob)?;
    Ok((data[4095], oob))
}

fn program(device: &OpenChannel, block: BlockAddr, page: u32, byte: u8) -> Result<(), FlashError> {
    device.program(Nanos(0), block.page(page), &[byte; 4096], &[byte, page as u8, 9]).map(|_| ())
}

/// Something of everything that a device can be.
fn used(path: &Path) -> OpenChannel {
    let plan = FaultPlan { seed: 1, factory_bad_blocks: 50_000, ..FaultPlan::default() };
    let device = OpenChannel::create(path, &setup(), false).unwrap().with_faults(plan);
    let good: Vec<BlockAddr> = device
        .shape()
        .all_blocks()
        .filter(|b| device.block_info(*b).unwrap().state == BlockState::Free)
        .collect();
    for (number, b) in good.iter().enumerate() {
        for page in 0..number as u32 % 9 {
            program(&device, *b, page, number as u8).unwrap();
        }
        if number % 3 == 0 {
            device.erase(Nanos(0), *b).unwrap();
            program(&device, *b, 0, 100 + number as u8).unwrap();
        }
    }
    device.inject(Fault::Erase(good[1])).unwrap();
    device.erase(Nanos(0), good[1]).unwrap_err();
    device.inject(Fault::Program(good[2].page(2))).unwrap();
    program(&device, good[2], 2, 1).unwrap_err();
    for seed in 0..8 {
        device.cut_after(0, seed);
        device.erase(Nanos(0), good[10 + seed as usize]).unwrap_err();
        device.cut_after(0, seed);
        let next = device.block_info(good[20]).unwrap().programmed;
        if next < 8 {
            program(&device, good[20], next, 1).unwrap_err();
        }
        device.power_on();
    }
    device
}

type Page = Result<(u8, [u8; 3]), String>;

/// Everything that can be seen of a device, but for reads.
fn seen(device: &OpenChannel) -> Vec<(BlockState, u32, u32, Vec<Page>)> {
    let pages = |b: BlockAddr| (0..8).map(|page| read(device, b, page).map_err(|e| kind(&e))).collect();
    let one = |b: BlockAddr| {
        let info = device.block_info(b).unwrap();
        (info.state, info.programmed, info.erases, pages(b))
    };
    device.shape().all_blocks().map(one).collect()
}

fn kind(error: &FlashError) -> String {
    match error {
        FlashError::Uncorrectable { .. } => "uncorrectable".into(),
        other => format!("{:?}", other.refusal()),
    }
}

#[test]
fn a_device_that_was_closed_is_there_again_with_its_clock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = used(&path);
    let (before, now) = (seen(&device), device.now());
    let erases = device.counters().blocks_erased;
    assert!(matches!(OpenChannel::open(&path), Err(FlashError::Device(DeviceError::Busy(_)))));
    drop(device);
    let device = OpenChannel::open(&path).unwrap();
    assert_eq!(device.setup().pairing, setup().pairing);
    assert!(device.now() >= now, "{} before {now}", device.now());
    assert_eq!(seen(&device), before);
    assert_eq!(device.counters().blocks_erased, erases);
    assert!(before.iter().any(|b| b.0 == BlockState::EraseIncomplete));
    assert!(before.iter().any(|b| b.0 == BlockState::FactoryBad));
    device.verify_identity().unwrap();
}

/// The file as it would be found if the process had been killed now.
fn killed(path: &Path, number: u32) -> PathBuf {
    let copy = path.with_extension(number.to_string());
    std::fs::copy(path, &copy).unwrap();
    copy
}

#[test]
fn what_was_programmed_survives_the_death_of_the_process_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = used(&path);
    let good: Vec<BlockAddr> = device
        .shape()
        .all_blocks()
        .filter(|b| device.block_info(*b).unwrap().state == BlockState::Full)
        .collect();
    for (number, b) in good.into_iter().enumerate() {
        device.erase(Nanos(0), b).unwrap();
        program(&device, b, 0, number as u8).unwrap();
        let copy = killed(&path, number as u32);
        let after = OpenChannel::open(&copy).unwrap();
        assert_eq!(seen(&after), seen(&device));
        after.verify_identity().unwrap();
        drop(after);
        std::fs::remove_file(copy).unwrap();
    }
}

#[test]
fn a_file_takes_room_as_pages_are_programmed_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let big = FlashSetup::new(Geometry::bbssd().with_size(1 << 30));
    let device = OpenChannel::create(&path, &big, false).unwrap();
    let room = || path.metadata().unwrap().blocks() * 512;
    let empty = room();
    assert!(path.metadata().unwrap().len() > 1 << 30 && empty < 8 << 20, "{empty}");
    let a = block(3, 2, 0, 1);
    (0..256).for_each(|page| program(&device, a, page, 1).unwrap());
    device.sync().unwrap();
    assert!(room() >= empty + (1 << 20));
    device.erase(Nanos(0), a).unwrap();
    device.sync().unwrap();
    assert!(room() >= empty + (1 << 20), "kept for the next life of the block");
    drop(device);
    assert!(room() < empty + (512 << 10), "{} after {empty}", room());
}

#[test]
fn a_page_that_is_damaged_in_the_file_is_not_given_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = OpenChannel::create(&path, &setup(), false).unwrap();
    let a = block(0, 0, 0, 0);
    (0..3).for_each(|page| program(&device, a, page, 7).unwrap());
    drop(device);
    // The pages begin behind 12 KiB and a record of 256 bytes for each of the 64 blocks.
    let page = 4096 + 64 + 8;
    let base = 12288 + 64 * 256;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, base + page + 100).unwrap();
    assert_eq!(byte, [7]);
    file.write_all_at(&[6], base + page + 100).unwrap();
    let device = OpenChannel::open(&path).unwrap();
    assert_eq!(read(&device, a, 0).unwrap(), (7, [7, 0, 9]));
    assert!(matches!(read(&device, a, 1), Err(FlashError::Uncorrectable { .. })));
    assert_eq!(read(&device, a, 2).unwrap(), (7, [7, 2, 9]));
    assert_eq!(device.counters().uncorrectable_reads, 1);
}

#[test]
fn after_a_crash_of_the_host_what_was_synced_is_there_and_a_block_ends_before_what_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = OpenChannel::create(&path, &setup(), false).unwrap();
    let made = std::fs::read(&path).unwrap();
    let (a, b) = (block(0, 0, 0, 0), block(0, 0, 0, 1));
    (0..3).for_each(|page| program(&device, a, page, 7).unwrap());
    device.sync().unwrap();
    (3..5).for_each(|page| program(&device, a, page, 8).unwrap());
    program(&device, b, 0, 9).unwrap();
    let copy = killed(&path, 0);
    // Page 4 and the record of the second block never reached the disk.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&copy).unwrap();
    crash(&file);
    lose(&file, 0, 4);
    let (page, base) = (4096 + 64 + 8, 12288 + 64 * 256);
    // A page that was synced is lost by no crash.
    file.write_all_at(&[1], base + page + 100).unwrap();
    let record = 12288 + 256;
    file.write_all_at(&made[record..record + 256], record as u64).unwrap();
    let after = OpenChannel::open(&copy).unwrap();
    for (page, wanted) in [(0, 7), (2, 7), (3, 8)] {
        assert_eq!(read(&after, a, page).unwrap(), (wanted, [wanted, page as u8, 9]));
    }
    let damaged =
        |error: &FlashError| matches!(error, FlashError::Uncorrectable { why, .. } if !why.is_interrupted());
    assert!(read(&after, a, 1).is_err_and(|error| damaged(&error)));
    assert!(matches!(read(&after, a, 4), Err(FlashError::NotProgrammed { .. })));
    assert_eq!(after.block_info(a).unwrap().programmed, 4);
    program(&after, a, 4, 3).unwrap();
    assert_eq!(read(&after, a, 4).unwrap(), (3, [3, 4, 9]));
    assert_eq!(after.block_info(b).unwrap().state, BlockState::Free);
    program(&after, b, 0, 1).unwrap();
    after.erase(Nanos(0), a).unwrap();
    program(&after, a, 0, 2).unwrap();
    assert_eq!((read(&after, a, 0).unwrap().0, read(&after, b, 0).unwrap().0), (2, 1));
    after.verify_identity().unwrap();
}

/// Makes an image one whose host went down: it has another boot id now.
fn crash(file: &std::fs::File) {
    let mut session = [0; 64];
    file.read_exact_at(&mut session, 4096).unwrap();
    session[16] ^= 1;
    let crc = weft_core::checksum::crc32c(&session[..60]);
    session[60..].copy_from_slice(&crc.to_le_bytes());
    for place in [4096, copy_of(4096, file.metadata().unwrap().len() as usize)] {
        file.write_all_at(&session, place as u64).unwrap();
    }
}

/// A page of the block with this number never reached the disk.
fn lose(file: &std::fs::File, block: u64, page: u64) {
    let (bytes, base) = (4096 + 64 + 8, 12288 + 64 * 256);
    let block_bytes = (8u64 * bytes).next_multiple_of(4096);
    file.write_all_at(&vec![0; bytes as usize], base + block * block_bytes + page * bytes).unwrap();
}

/// Where the second copy of a byte before the pages stands, in an image of 64 blocks.
fn copy_of(at: usize, len: usize) -> usize {
    if at < 4096 { len - 4096 + at } else { len - (12288 + 64 * 256) + at - 4096 }
}

#[test]
fn damage_before_the_pages_costs_nothing_while_the_other_copy_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = used(&path);
    let before = seen(&device);
    let open = std::fs::read(&path).unwrap();
    drop(device);
    let closed = std::fs::read(&path).unwrap();
    let damaged = |bytes: &[u8], from: usize, to: usize| {
        let mut bytes = bytes.to_vec();
        bytes[from..to].fill(0);
        std::fs::write(&path, bytes).unwrap();
    };
    // Each page of the table, single bytes, and everything before the pages at once; then the same of the copies.
    let mut places: Vec<_> = (0..7).map(|page| (page * 4096, page * 4096 + 4096)).collect();
    places.extend((0..28_000).step_by(1_117).map(|at| (at, at + 1)));
    places.push((0, 28_672));
    places.extend(places.clone().iter().filter(|(from, to)| to - from == 4096).map(|(from, _)| {
        let copy = copy_of(*from, closed.len());
        (copy, copy + 4096)
    }));
    for (from, to) in places {
        damaged(&closed, from, to);
        let device = OpenChannel::open(&path).unwrap_or_else(|error| panic!("{from}..{to}: {error}"));
        assert_eq!(seen(&device), before, "{from}..{to}");
        device.verify_identity().unwrap();
        drop(device);
        // What was damaged is whole again: now the other copy may go.
        let mended = std::fs::read(&path).unwrap();
        damaged(&mended, mended.len() - 28_672, mended.len());
        assert_eq!(seen(&OpenChannel::open(&path).unwrap()), before, "{from}..{to}");
    }
    // The copy of an image that was not closed is older than the image.
    damaged(&open, 12288, 12288 + 4096);
    let error = OpenChannel::open(&path).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("erase block 0")), "{error:?}");
}

#[test]
fn all_that_is_mapped_has_its_room_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device =
        OpenChannel::create(&path, &FlashSetup::new(Geometry::bbssd().with_size(1 << 30)), false).unwrap();
    let records = 12288 + 256 * device.shape().blocks();
    let file = std::fs::File::open(&path).unwrap();
    let hole = weft_sys::file::seek(&file, 0, libc::SEEK_HOLE).unwrap();
    assert!(hole >= records, "a hole at {hole} of {records} bytes: a full disk would end the process");
    let len = file.metadata().unwrap().len();
    let data = weft_sys::file::seek(&file, len - records.next_multiple_of(4096), libc::SEEK_HOLE).unwrap();
    assert_eq!(data, len, "nor one in the copy");
}

#[test]
fn a_file_that_is_no_image_or_a_damaged_one_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    drop(used(&path));
    let whole = std::fs::read(&path).unwrap();
    let says = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        match OpenChannel::open(&path) {
            Err(error) => error.to_string(),
            Ok(_) => "opened".into(),
        }
    };
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes[copy_of(at, whole.len())] = byte;
        bytes
    };
    assert!(says(b"").contains("cut short"));
    assert!(says(&with(0, b'X')).contains("not an open-channel image"));
    assert!(says(&with(8, 9)).contains("version 9"));
    assert!(says(&with(100, 0xee)).contains("checksum of the header"));
    assert!(says(&with(4096, 0)).contains("session page"));
    assert!(says(&with(8192, 0xee)).contains("the counters"));
    assert!(says(&with(12288 + 256 * 63, 0xee)).contains("erase block 63"));
    assert!(says(&whole[..whole.len() - 1]).contains("cut short"));
    assert_eq!(says(&whole), "opened");
    let again = OpenChannel::create(&path, &setup(), false);
    assert!(matches!(again, Err(FlashError::Device(DeviceError::Io { .. }))));
    OpenChannel::create(&path, &setup(), true).unwrap().verify_identity().unwrap();
    let less = OpenChannel::create(&dir.path().join("b"), &setup().keeping(Keep::Oob), false).unwrap_err();
    assert!(less.to_string().contains("take a device in memory"));
    assert!(OpenChannel::open(&path).unwrap().fork().is_err());
}

#[test]
fn blocks_that_are_erased_together_need_one_sync_and_empty_ones_none() {
    let dir = tempfile::tempdir().unwrap();
    let device = OpenChannel::create(&dir.path().join("flash"), &setup(), false).unwrap();
    let syncs = Arc::new(AtomicU64::new(0));
    let seen = syncs.clone();
    device.after_syncs(move || {
        seen.fetch_add(1, Relaxed);
    });
    let shape = device.shape();
    let blocks: Vec<BlockAddr> = (0..shape.luns()).map(|lun| shape.lun_at(lun).block(0, 0)).collect();
    assert!(blocks.len() > 1);
    blocks.iter().for_each(|block| program(&device, *block, 0, 7).unwrap());
    let erase = || {
        let before = syncs.load(Relaxed);
        device.erase_vector(Nanos(0), &blocks).unwrap().into_iter().for_each(|done| assert!(done.is_ok()));
        syncs.load(Relaxed) - before
    };
    assert_eq!(erase(), 1);
    assert_eq!(erase(), 0, "nothing can be lost");
    assert!(blocks.iter().all(|block| device.block_info(*block).unwrap().erases == 2));
}

#[test]
fn a_page_that_a_killed_process_wrote_and_did_not_count_is_not_taken_for_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = OpenChannel::create(&path, &setup(), false).unwrap();
    let a = block(0, 0, 0, 0);
    program(&device, a, 0, 7).unwrap();
    let before = std::fs::read(&path).unwrap();
    program(&device, a, 1, 8).unwrap();
    let copy = killed(&path, 0);
    // Killed between the write of the page and the store of its record.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&copy).unwrap();
    let (page, base) = (4096 + 64 + 8, 12288 + 64 * 256);
    file.write_all_at(&before[12288..base], 12288).unwrap();
    let holds = |wanted: u8| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, (base + page + 100) as u64).unwrap();
        byte == [wanted]
    };
    assert!(holds(8));
    let after = OpenChannel::open(&copy).unwrap();
    assert_eq!(after.block_info(a).unwrap().programmed, 1);
    assert!(holds(0), "were the next program of the page lost, this would be read in its place");
    program(&after, a, 1, 9).unwrap();
    assert_eq!(read(&after, a, 1).unwrap(), (9, [9, 1, 9]));
}

#[test]
fn who_only_looks_changes_nothing_and_sees_what_an_opening_would() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = used(&path);
    let full: Vec<BlockAddr> = (0..2).map(|plane| block(1, 1, plane, 3)).collect();
    let programmed = |b: &BlockAddr| device.block_info(*b).unwrap().programmed;
    for b in &full {
        (programmed(b)..8).for_each(|page| program(&device, *b, page, 5).unwrap());
    }
    let open = |b: &BlockAddr| device.block_info(*b).unwrap().state == BlockState::Open;
    let not_full = device.shape().all_blocks().find(open).unwrap();
    let (dead, crashed) = (killed(&path, 0), killed(&path, 1));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&crashed).unwrap();
    crash(&file);
    lose(&file, device.shape().block_index(full[1]), 3);
    for copy in [dead, crashed] {
        let before = std::fs::read(&copy).unwrap();
        let looked = OpenChannel::look(&copy).unwrap();
        let refused = |error: FlashError| assert!(error.to_string().contains("looked at"), "{error}");
        refused(looked.erase(Nanos(0), full[0]).unwrap_err());
        refused(looked.erase_planes(Nanos(0), &full).unwrap_err());
        for done in looked.erase_vector(Nanos(0), &full).unwrap() {
            refused(done.unwrap_err());
        }
        refused(program(&looked, not_full, programmed(&not_full), 1).unwrap_err());
        looked.sync().unwrap();
        let saw = seen(&looked);
        drop(looked);
        assert!(std::fs::read(&copy).unwrap() == before);
        assert_eq!(saw, seen(&OpenChannel::open(&copy).unwrap()));
    }
}
