//! What an image is worth after a crash: of the process, of the host, or of the bytes themselves.
//!
//! A crash of the host is staged on a copy of the image: the copy gets a session page of another boot, and loses
//! bytes that no flush had made durable, as the host is free to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, ZoneState, ZonedDevice, ZonedModel};

const TAG: Tag = Tag::METADATA;
const SESSION_OFFSET: u64 = 4096;
/// Where the data begins: behind three pages and the records of eight zones. The second copy of what stands before is as
/// long, and begins with the session page.
const DATA_OFFSET: u64 = 4 * 4096;

fn geometry() -> Geometry {
    Geometry::bbssd().with_size(512 << 10).with_zone_bytes(64 << 10)
}

fn create(dir: &Path) -> (PathBuf, ZonedModel) {
    std::fs::create_dir_all(dir).unwrap();
    let path = dir.join("image");
    let device = ZonedModel::create(&path, &geometry(), false, &mut |_, _| ()).unwrap();
    (path, device)
}

fn block(stamp: u8) -> Vec<u8> {
    vec![stamp; BLOCK_BYTES]
}

fn stamps(device: &ZonedModel, zone: u32) -> Vec<u8> {
    let report = device.report(ZoneId(zone)).unwrap();
    let mut out = vec![0; report.write_pointer as usize * BLOCK_BYTES];
    device.read(ZoneId(zone), 0, &mut out).unwrap();
    out.chunks(BLOCK_BYTES).map(|b| b[0]).collect()
}

/// Copies the image as the page cache has it now, as if the host had gone down.
fn host_crash(path: &Path) -> PathBuf {
    let copy = path.with_file_name(format!("{}-copy", path.file_name().unwrap().to_str().unwrap()));
    std::fs::copy(path, &copy).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&copy).unwrap();
    let second = file.metadata().unwrap().len() - DATA_OFFSET;
    let mut session = [0; 64];
    file.read_exact_at(&mut session, SESSION_OFFSET).unwrap();
    session[16..32].fill(0xAB);
    let crc = crc32c(&session[..60]);
    session[60..].copy_from_slice(&crc.to_le_bytes());
    for place in [SESSION_OFFSET, second] {
        file.write_all_at(&session, place).unwrap();
    }
    copy
}

fn lose_block(device: &ZonedModel, copy: &Path, zone: u32, at: u32) {
    let file = std::fs::OpenOptions::new().write(true).open(copy).unwrap();
    let base = device.direct_read().unwrap().base;
    let offset = base + u64::from(zone) * device.info().zone_bytes() + u64::from(at) * BLOCK_BYTES as u64;
    file.write_all_at(&block(0), offset).unwrap();
}

#[test]
fn after_a_host_crash_a_zone_ends_where_its_blocks_are_proven() {
    let dir = tempfile::tempdir().unwrap();
    let (path, device) = create(dir.path());
    for zone in 0..3 {
        device.append(ZoneId(zone), &block(1).repeat(3), &TAG).unwrap();
    }
    device.flush().unwrap();
    for zone in 0..3 {
        device.append(ZoneId(zone), &block(2).repeat(2), &TAG).unwrap();
    }
    device.append(ZoneId(3), &block(3).repeat(16), &TAG).unwrap();

    // Everything happened to reach the disk.
    let whole = host_crash(&path);
    assert_eq!(stamps(&ZonedModel::open(&whole).unwrap(), 0), [1, 1, 1, 2, 2]);

    // Something did not.
    let torn = host_crash(&path);
    lose_block(&device, &torn, 0, 4);
    lose_block(&device, &torn, 1, 3);
    lose_block(&device, &torn, 3, 7);
    let after = ZonedModel::open(&torn).unwrap();
    assert_eq!(stamps(&after, 0), [1, 1, 1]);
    assert_eq!(stamps(&after, 1), [1, 1, 1]);
    assert_eq!(stamps(&after, 2), [1, 1, 1, 2, 2]);
    assert_eq!((stamps(&after, 3), after.report(ZoneId(3)).unwrap().state), (vec![], ZoneState::Empty));
    after.verify_identity().unwrap();
    after.append(ZoneId(0), &block(9), &TAG).unwrap();
    assert_eq!(stamps(&after, 0), [1, 1, 1, 9]);
    after.verify_identity().unwrap();
}

#[test]
fn what_was_flushed_outlives_any_number_of_host_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut path, mut device) = create(dir.path());
    let mut expected = Vec::new();
    for round in 1..=5u8 {
        device.append(ZoneId(2), &block(round).repeat(2), &TAG).unwrap();
        expected.extend([round, round]);
        device.flush().unwrap();
        device.append(ZoneId(2), &block(100), &TAG).unwrap();
        let copy = host_crash(&path);
        lose_block(&device, &copy, 2, expected.len() as u32);
        drop(device);
        std::fs::rename(&copy, &path).unwrap();
        device = ZonedModel::open(&path).unwrap();
        assert_eq!(stamps(&device, 2), expected);
        let next = path.with_file_name(format!("image{round}"));
        std::fs::rename(&path, &next).unwrap();
        path = next;
    }
    device.verify_identity().unwrap();
}

/// A stream of numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % n
    }
}

/// Takes any pages of table and data back to what they were in `base`, as a host may that wrote none of them since.
fn lose_pages(copy: &Path, base: &[u8], end: u64, dice: &mut Dice) {
    let file = std::fs::OpenOptions::new().write(true).open(copy).unwrap();
    let odds = 1 + dice.below(4);
    for page in (8192..end).step_by(BLOCK_BYTES) {
        if dice.below(4) < odds {
            file.write_all_at(&base[page as usize..page as usize + BLOCK_BYTES], page).unwrap();
        }
    }
}

#[test]
fn a_small_flush_holds_though_the_host_wrote_nothing_where_it_belongs() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..100 {
        let dice = &mut Dice(seed);
        let (path, device) = create(&dir.path().join(format!("{seed}")));
        let base = std::fs::read(&path).unwrap();
        let end = device.direct_read().unwrap().base + 8 * device.info().zone_bytes();
        // What the last flush promised, and what was written since.
        let (mut flushed, mut now) = (vec![Vec::new(); 8], vec![Vec::<u8>::new(); 8]);
        let mut full = [false; 8];
        for step in 0..dice.below(40) {
            let zone = dice.below(8) as usize;
            let id = ZoneId(zone as u32);
            match dice.below(8) {
                0 => {
                    device.reset(id).unwrap();
                    device.flush().unwrap();
                    (now[zone], full[zone]) = (Vec::new(), false);
                    flushed = now.clone();
                }
                1 if !full[zone] => {
                    device.finish(id).unwrap();
                    device.flush().unwrap();
                    full[zone] = true;
                    flushed = now.clone();
                }
                2 | 3 => {
                    device.flush().unwrap();
                    flushed = now.clone();
                }
                // Few enough at a time that no flush needs to sync the image.
                _ if !full[zone] && now[zone].len() < 15 && pending(&now, &flushed) < 14 => {
                    let blocks = 1 + dice.below(2) as usize;
                    device.append(id, &block(step as u8 + 1).repeat(blocks), &TAG).unwrap();
                    now[zone].extend(vec![step as u8 + 1; blocks]);
                }
                _ => {}
            }
        }
        let copy = host_crash(&path);
        lose_pages(&copy, &base, end, dice);
        let after = ZonedModel::open(&copy).unwrap();
        after.verify_identity().unwrap();
        for zone in 0..8 {
            let found = stamps(&after, zone as u32);
            let promised = flushed[zone].len();
            assert!(found.len() >= promised, "seed {seed}, zone {zone}: {found:?} of {:?}", flushed[zone]);
            assert_eq!(found, now[zone][..found.len()], "seed {seed}, zone {zone}");
            if full[zone] {
                assert_eq!(after.report(ZoneId(zone as u32)).unwrap().state, ZoneState::Full, "seed {seed}");
            }
        }
        // The device goes on from there, and another crash takes nothing of it away.
        after.append(ZoneId(0), &block(99), &TAG).err();
        after.flush().unwrap();
        let expected: Vec<_> = (0..8).map(|zone| stamps(&after, zone)).collect();
        let again = ZonedModel::open(&host_crash(&copy)).unwrap();
        assert_eq!((0..8).map(|zone| stamps(&again, zone)).collect::<Vec<_>>(), expected, "seed {seed}");
    }
}

#[test]
fn the_log_brings_back_no_block_of_a_zones_former_life() {
    let dir = tempfile::tempdir().unwrap();
    let (path, device) = create(dir.path());
    device.append(ZoneId(0), &block(1).repeat(3), &TAG).unwrap();
    device.flush().unwrap();
    device.reset(ZoneId(0)).unwrap();
    for zone in 0..2 {
        device.append(ZoneId(zone), &block(2).repeat(16), &TAG).unwrap();
    }
    // Too much for the log: the image is synced, and the entry of the first flush is still there.
    device.flush().unwrap();
    let after = ZonedModel::open(&host_crash(&path)).unwrap();
    assert_eq!(stamps(&after, 0), [2; 16]);
}

fn pending(now: &[Vec<u8>], flushed: &[Vec<u8>]) -> usize {
    now.iter().zip(flushed).map(|(now, flushed)| now.len() - flushed.len()).sum()
}

#[test]
fn the_log_of_flushes_begins_anew_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let (path, device) = create(dir.path());
    // The log of this device has 64 blocks, and each flush takes two: it goes round several times.
    let mut expected = Vec::new();
    for round in 0..200u32 {
        let zone = ZoneId(round / 16 % 8);
        if round % 16 == 0 {
            device.reset(zone).unwrap();
            expected.clear();
        }
        device.append(zone, &block(round as u8), &TAG).unwrap();
        expected.push(round as u8);
        device.flush().unwrap();
        if round % 7 == 0 {
            assert_eq!(stamps(&ZonedModel::open(&host_crash(&path)).unwrap(), zone.0), expected);
        }
    }
}

#[test]
fn an_image_that_was_closed_or_whose_process_was_killed_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, device) = create(dir.path());
    device.append(ZoneId(0), &block(1).repeat(3), &TAG).unwrap();
    // The same boot and no clean end: a process that was killed. Its blocks are in the page cache, all of them.
    let copy = path.with_extension("killed");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(stamps(&ZonedModel::open(&copy).unwrap(), 0), [1, 1, 1]);
    drop(device);
    assert_eq!(stamps(&ZonedModel::open(&path).unwrap(), 0), [1, 1, 1]);
}

#[test]
fn no_flipped_bit_before_the_data_or_in_the_second_copy_of_it_makes_a_difference() {
    // Opening syncs, and there are thousands of openings: in memory where there is such a place.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (path, device) = create(dir.path());
    device.append(ZoneId(0), &block(1).repeat(3), &TAG).unwrap();
    device.append(ZoneId(0), &block(2), &TAG).unwrap();
    device.append(ZoneId(5), &block(3).repeat(16), &TAG).unwrap();
    device.reset(ZoneId(5)).unwrap();
    device.finish(ZoneId(6)).unwrap();
    let header_bytes = device.direct_read().unwrap().base;
    drop(device);
    let view = |path: &Path| {
        ZonedModel::open(path).map(|d| {
            let zones: Vec<_> = (0..8).map(|z| (d.report(ZoneId(z)).unwrap().state, stamps(&d, z))).collect();
            (zones, d.counters(), d.geometry().clone())
        })
    };
    let original = std::fs::read(&path).unwrap();
    let expected = view(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let second = original.len() as u64 - header_bytes;
    for at in (0..header_bytes).chain((second..original.len() as u64).step_by(7)) {
        // The image as it was closed, but for one bit; opening it changes it, so it is put back each time.
        for from in [0, second] {
            file.write_all_at(&original[from as usize..(from + header_bytes) as usize], from).unwrap();
        }
        file.write_all_at(&[original[at as usize] ^ (1 << (at % 8))], at).unwrap();
        match view(&path) {
            Ok(found) => assert!(found == expected, "byte {at}: {found:?}"),
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn what_is_no_image_is_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let says = |what: &str| {
        let error = ZonedModel::open(&path).unwrap_err();
        assert!(matches!(error, DeviceError::BadImage { .. }), "{error}");
        assert!(error.to_string().contains(what), "'{error}' does not say '{what}'");
    };
    std::fs::write(&path, b"").unwrap();
    says("cut short");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    says("weft format");
    drop(ZonedModel::create(&path, &geometry(), true, &mut |_, _| ()).unwrap());
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    says("cut short");
    assert!(matches!(ZonedModel::open(&dir.path().join("none")), Err(DeviceError::Io { .. })));
}

const CHILD: &str = "WEFT_DEVICE_TEST_CHILD_IMAGE";

/// The process that gets killed: writes one block after another and says so after each.
fn write_until_killed(path: &Path) {
    let device = ZonedModel::open(path).unwrap();
    let mut out = std::io::stdout();
    for n in 0u32.. {
        let zone = ZoneId(n / 16 % 8);
        if n % 16 == 0 {
            device.reset(zone).unwrap();
        }
        device.append(zone, &n.to_le_bytes().repeat(BLOCK_BYTES / 4), &TAG).unwrap();
        out.write_all(format!("wrote {n}\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_killed_process_loses_no_write_that_had_returned() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, device) = create(dir.path());
    drop(device);
    for round in 0..20u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_loses_no_write_that_had_returned", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|l| l.unwrap());
        let wrote = |line: String| line.split_once("wrote ").map(|(_, n)| n.parse::<u32>().unwrap());
        let target = 5 + round * 37;
        let mut last = lines.by_ref().find_map(wrote).unwrap();
        while last < target {
            last = lines.by_ref().find_map(wrote).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said between our looking and its end.
        last = lines.filter_map(wrote).last().unwrap_or(last);

        let device = ZonedModel::open(&path).unwrap();
        device.verify_identity().unwrap();
        let zone = ZoneId(last / 16 % 8);
        let written = device.report(zone).unwrap().write_pointer;
        // The write after the last that was told may have happened as well.
        assert!(written > last % 16, "{written} blocks after write {last}");
        let mut out = block(0);
        for at in 0..=last % 16 {
            device.read(zone, at, &mut out).unwrap();
            assert_eq!(out[..4], (last - last % 16 + at).to_le_bytes());
        }
    }
}
