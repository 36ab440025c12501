//! Full volumes: what is refused is reported, what was accepted is kept, what was promised is had.
//!
//! By default a slice of the campaign runs. `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{assert_sound, check, fresh, options, small};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_core::Ino;
use weft_device::{PowerCut, ZonedDevice};
use weft_lfs::Lfs;
use weft_vfs::{
    CreateArgs, FallocateMode, FileSystem, FsError, FsResult, NewNode, RenameFlags, SetAttr, XattrMode,
};

const BLOCK: u64 = 4096;

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

/// Numbers without a pattern, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % below.max(1)
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let seed = self.roll(251) as u8;
        (0..len).map(|at| seed.wrapping_add((at / 3) as u8) | 1).collect()
    }
}

/// What a file is to be.
#[derive(Clone, Default)]
struct File {
    ino: u64,
    names: BTreeSet<String>,
    content: Vec<u8>,
    /// Blocks that `fallocate` promised and nothing has taken back.
    promised: BTreeSet<u64>,
    xattr: Option<Vec<u8>>,
}

/// A volume and what it has to hold.
struct Case {
    fs: Lfs,
    dice: Dice,
    files: BTreeMap<u64, File>,
    others: BTreeMap<String, Option<Vec<u8>>>,
    next: u64,
    refused: u64,
    /// Bytes that the case tries to leave free.
    level: u64,
}

impl Case {
    fn name(&mut self) -> String {
        self.next += 1;
        let long = self.dice.roll(20) == 0;
        format!("n{}{}", self.next, if long { "x".repeat(200) } else { String::new() })
    }

    fn any_file(&mut self) -> Option<u64> {
        let at = self.dice.roll(self.files.len() as u64) as usize;
        self.files.keys().nth(at).copied()
    }

    /// Whether the operation was done; a full volume may refuse it, unless it was `promised`.
    fn done<T>(&mut self, what: &str, promised: bool, result: FsResult<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(FsError::NoSpace) if !promised => {
                self.refused += 1;
                None
            }
            Err(error) => panic!("{what} (promised: {promised}): {error:?}; {:?}", self.fs.statfs()),
        }
    }

    fn step(&mut self) {
        let free = self.fs.statfs().unwrap().free_bytes;
        // Around the level: what is above goes, what is below comes.
        let shrink = free < self.level && self.dice.roll(3) == 0;
        match self.dice.roll(if shrink { 4 } else { 20 }) {
            0 | 1 if shrink => self.remove(),
            2 | 3 if shrink => self.truncate(),
            0 => self.create(),
            1 => self.directory(),
            2 => self.symlink(),
            3 => self.link(),
            4 => self.rename(),
            5 => self.set_xattr(),
            6 => self.truncate(),
            7 => self.remove(),
            8..=10 => self.allocate(),
            11 => self.punch(),
            12 => self.shift(),
            13 => self.sync(),
            14 => self.fs.tick().unwrap(),
            _ => self.write(),
        }
    }

    fn create(&mut self) {
        let name = self.name();
        let args = CreateArgs::new(NewNode::File, 0o644);
        let made = self.fs.create(Ino::ROOT, name.as_bytes(), &args);
        if let Some(attr) = self.done("create", false, made) {
            let file = File { ino: attr.ino.0, names: BTreeSet::from([name]), ..File::default() };
            self.files.insert(attr.ino.0, file);
        }
    }

    fn directory(&mut self) {
        let name = self.name();
        let args = CreateArgs::new(NewNode::Directory, 0o755);
        let made = self.fs.create(Ino::ROOT, name.as_bytes(), &args);
        if self.done("mkdir", false, made).is_some() {
            self.others.insert(name, None);
        }
    }

    fn symlink(&mut self) {
        let name = self.name();
        let len = 1 + self.dice.roll(4000);
        let target = self.dice.bytes(len);
        let args = CreateArgs::new(NewNode::Symlink(&target), 0o777);
        let made = self.fs.create(Ino::ROOT, name.as_bytes(), &args);
        if self.done("symlink", false, made).is_some() {
            self.others.insert(name, Some(target));
        }
    }

    fn link(&mut self) {
        let (Some(ino), name) = (self.any_file(), self.name()) else { return };
        let linked = self.fs.link(Ino(ino), Ino::ROOT, name.as_bytes());
        if self.done("link", false, linked).is_some() {
            self.files.get_mut(&ino).unwrap().names.insert(name);
        }
    }

    fn rename(&mut self) {
        let (Some(ino), name) = (self.any_file(), self.name()) else { return };
        let old = self.files[&ino].names.first().unwrap().clone();
        let renamed =
            self.fs.rename(Ino::ROOT, old.as_bytes(), Ino::ROOT, name.as_bytes(), RenameFlags::empty());
        if self.done("rename", name.len() <= old.len(), renamed).is_some() {
            let names = &mut self.files.get_mut(&ino).unwrap().names;
            names.remove(&old);
            names.insert(name);
        }
    }

    fn set_xattr(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let len = self.dice.roll(6000);
        let value = self.dice.bytes(len);
        let set = self.fs.setxattr(Ino(ino), b"user.x", &value, XattrMode::Any);
        if self.done("setxattr", false, set).is_some() {
            self.files.get_mut(&ino).unwrap().xattr = Some(value);
        }
    }

    fn truncate(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.files[&ino].content.len() as u64;
        let size = match self.dice.roll(4) {
            0 => 0,
            1 => size + self.dice.roll(20_000),
            _ => self.dice.roll(size + 1),
        };
        let cut = self.fs.setattr(Ino(ino), &SetAttr { size: Some(size), ..SetAttr::default() });
        // A larger size may have to store what is buffered before it; it takes no space.
        self.done("truncate", true, cut);
        let file = self.files.get_mut(&ino).unwrap();
        if size <= file.content.len() as u64 {
            // Of the block with the new end, what lies behind it is given back.
            file.promised.split_off(&(size / BLOCK));
        }
        file.content.resize(size as usize, 0);
    }

    fn remove(&mut self) {
        if self.dice.roll(4) == 0
            && let Some((name, target)) = self.others.pop_first()
        {
            let removed = match target {
                None => self.fs.rmdir(Ino::ROOT, name.as_bytes()),
                Some(_) => self.fs.unlink(Ino::ROOT, name.as_bytes()),
            };
            return removed.unwrap();
        }
        let Some(ino) = self.any_file() else { return };
        let name = self.files.get_mut(&ino).unwrap().names.pop_first().unwrap();
        self.fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        if self.files[&ino].names.is_empty() {
            self.files.remove(&ino);
        }
    }

    fn range(&mut self, most: u64) -> (u64, u64) {
        let shift = self.dice.roll(8);
        let len = 1 + self.dice.roll((most >> shift).max(1));
        (self.dice.roll(300_000), len)
    }

    fn write(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let (at, len) = self.range(300_000);
        let file = &self.files[&ino];
        let size = file.content.len() as u64;
        let at = match self.dice.roll(3) {
            0 => size,
            1 => at % (size + 1),
            // Where something was promised, if anything was.
            _ => file.promised.first().map_or(at, |block| block * BLOCK + at % BLOCK),
        };
        let data = self.dice.bytes(len);
        let file = &self.files[&ino];
        let is_promised = |block| file.promised.contains(&block);
        let promised = (at / BLOCK..(at + len).div_ceil(BLOCK)).all(is_promised);
        let result = if self.dice.roll(3) == 0 {
            self.fs.write_through(Ino(ino), at, &data)
        } else {
            self.fs.write(Ino(ino), at, &data)
        };
        if self.done("write", promised, result).is_some() {
            let content = &mut self.files.get_mut(&ino).unwrap().content;
            content.resize(content.len().max((at + len) as usize), 0);
            content[at as usize..(at + len) as usize].copy_from_slice(&data);
        }
    }

    fn allocate(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let (at, len) = self.range(1 << 20);
        let mode = match self.dice.roll(4) {
            0 => FallocateMode::KeepSize,
            1 => FallocateMode::ZeroRange { keep_size: true },
            2 => FallocateMode::ZeroRange { keep_size: false },
            _ => FallocateMode::Allocate,
        };
        let before = self.fs.statfs().unwrap();
        let allocated = self.fs.fallocate(Ino(ino), mode, at, len);
        if self.done("fallocate", false, allocated).is_none() {
            // To look for room may make some. It takes none, and there was not enough.
            let after = self.fs.statfs().unwrap();
            assert!(
                after.free_bytes >= before.free_bytes,
                "a refused fallocate takes nothing: {before:?}, {after:?}"
            );
            assert_eq!((after.total_bytes, after.inodes), (before.total_bytes, before.inodes));
            let again = self.fs.fallocate(Ino(ino), mode, at, len);
            assert!(
                matches!(again, Err(FsError::NoSpace)),
                "refused in vain: {again:?}, {before:?}, {after:?}"
            );
            assert_eq!(self.fs.statfs().unwrap(), after, "a second refusal changes nothing");
            return;
        }
        let file = self.files.get_mut(&ino).unwrap();
        file.promised.extend(at / BLOCK..(at + len).div_ceil(BLOCK));
        let keep = matches!(mode, FallocateMode::KeepSize | FallocateMode::ZeroRange { keep_size: true });
        if !keep {
            file.content.resize(file.content.len().max((at + len) as usize), 0);
        }
        if matches!(mode, FallocateMode::ZeroRange { .. }) {
            let end = ((at + len) as usize).min(file.content.len());
            file.content[(at as usize).min(end)..end].fill(0);
        }
    }

    fn punch(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let (at, len) = self.range(400_000);
        // The rest of a block at its edge stays, and may have to be stored anew.
        let punched = self.fs.fallocate(Ino(ino), FallocateMode::PunchHole, at, len);
        if self.done("punch", false, punched).is_none() {
            return;
        }
        let file = self.files.get_mut(&ino).unwrap();
        file.promised.retain(|block| block * BLOCK + BLOCK <= at || block * BLOCK >= at + len);
        let end = ((at + len) as usize).min(file.content.len());
        file.content[(at as usize).min(end)..end].fill(0);
    }

    fn shift(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let blocks = self.files[&ino].content.len() as u64 / BLOCK;
        if blocks < 3 {
            return;
        }
        let (first, count) = (self.dice.roll(blocks - 2), 1 + self.dice.roll(2));
        let file = self.files.get_mut(&ino).unwrap();
        let (from, to) = ((first * BLOCK) as usize, ((first + count) * BLOCK) as usize);
        if self.dice.roll(2) == 0 && to < file.content.len() {
            self.fs.fallocate(Ino(ino), FallocateMode::CollapseRange, first * BLOCK, count * BLOCK).unwrap();
            file.content.drain(from..to);
            file.promised.retain(|block| !(first..first + count).contains(block));
            let moved = file.promised.split_off(&first);
            file.promised.extend(moved.into_iter().map(|block| block - count));
        } else {
            self.fs.fallocate(Ino(ino), FallocateMode::InsertRange, first * BLOCK, count * BLOCK).unwrap();
            file.content.splice(from..from, vec![0; to - from]);
            let moved = file.promised.split_off(&first);
            file.promised.extend(moved.into_iter().map(|block| block + count));
        }
    }

    fn sync(&mut self) {
        match self.any_file() {
            Some(ino) if self.dice.roll(3) > 0 => self.fs.fsync(Ino(ino)).unwrap(),
            _ => self.fs.sync().unwrap(),
        }
    }

    /// Compares everything.
    fn compare(&self, fs: &Lfs, when: &str) {
        assert_eq!(fs.recount(), [""; 0], "{when}");
        for file in self.files.values() {
            for name in &file.names {
                assert_eq!(fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino.0, file.ino, "{when}");
            }
            let attr = fs.getattr(Ino(file.ino)).unwrap();
            assert_eq!(attr.size, file.content.len() as u64, "{when}: size of {}", file.ino);
            assert!(
                attr.blocks * 512 >= file.promised.len() as u64 * BLOCK,
                "{when}: blocks of {}",
                file.ino
            );
            let mut out = vec![0xa5; file.content.len()];
            assert_eq!(fs.read(Ino(file.ino), 0, &mut out).unwrap(), out.len());
            let differs = out.iter().zip(&file.content).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{when}: byte of {}", file.ino);
            let xattr = match fs.getxattr(Ino(file.ino), b"user.x") {
                Err(FsError::NoAttribute) => None,
                value => Some(value.unwrap()),
            };
            assert!(xattr == file.xattr, "{when}: attribute of {}", file.ino);
        }
        for (name, target) in &self.others {
            let attr = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap();
            if let Some(target) = target {
                assert!(fs.readlink(attr.ino).unwrap() == *target, "{when}: {name}");
            }
        }
    }
}

/// One volume, used around a level of free space, with remounts; every second one after a power cut.
fn around(seed: u64, total: u64, zone: u64, level: u64, steps: u64) -> u64 {
    let (mut device, fs) = fresh(&small(total, zone));
    let mut case = Case {
        fs,
        dice: Dice(seed),
        files: BTreeMap::new(),
        others: BTreeMap::new(),
        next: 0,
        refused: 0,
        level,
    };
    for remount in 0..4 {
        for _ in 0..steps {
            case.step();
        }
        let when = format!("seed {seed}, level {level}, remount {remount}");
        case.compare(&case.fs, &when);
        case.fs.sync().unwrap();
        if remount % 2 == 0 {
            case.fs.close().unwrap();
            assert_sound(&device);
        }
        // The old mount goes with its device, as if the power did.
        device = Arc::new(device.reopen(seed + remount).unwrap());
        assert!(check(&device).is_clean(), "{when}: {:?}", check(&device).problems);
        case.fs = Lfs::mount(device.clone(), options()).unwrap();
        case.compare(&case.fs, &format!("{when}, after it"));
    }
    case.refused
}

#[test]
fn around_every_fill_level_nothing_accepted_is_lost_and_what_was_promised_is_had() {
    let (seeds, steps) = if campaign() { (60, 1500) } else { (2, 400) };
    let mut refused = 0;
    for level in [0, 4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        for seed in 0..seeds {
            refused += around(seed * 31 + level, 10 << 20, 192 << 10, level, steps);
        }
    }
    println!("{refused} operations were refused");
    assert!(refused > 50, "the volumes were full too seldom: {refused} refusals");
}

/// Programs write at random to files on a volume with little room beside ballast, and remove some. Returns how many times
/// over what they wrote was relocated.
fn wear(seed: u64, total: u64, zone: u64, ballast_percent: u64, scale: u64, steps: u64) -> f64 {
    let (device, fs) = fresh(&small(total, zone));
    let when = format!("seed {seed}, {total} bytes, zones of {zone}, {ballast_percent} % ballast, {scale}");
    let args = CreateArgs::new(NewNode::File, 0o644);
    let ballast = fs.create(Ino::ROOT, b"ballast", &args).unwrap().ino;
    let bytes = fs.statfs().unwrap().free_bytes * ballast_percent / 100 / BLOCK * BLOCK;
    for at in (0..bytes).step_by(256 << 10) {
        fs.write(ballast, at, &vec![9; (bytes - at).min(256 << 10) as usize]).unwrap();
    }
    let mut dice = Dice(seed);
    let mut files: BTreeMap<String, (Ino, Vec<u8>)> = BTreeMap::new();
    let mut refused = 0;
    for step in 0..steps {
        let name = format!("f{}", dice.roll(200));
        if dice.roll(100) < 15 {
            if files.remove(&name).is_some() {
                fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            }
            continue;
        }
        if !files.contains_key(&name) {
            match fs.create(Ino::ROOT, name.as_bytes(), &args) {
                Ok(attr) => drop(files.insert(name.clone(), (attr.ino, Vec::new()))),
                Err(FsError::NoSpace) => continue,
                Err(error) => panic!("{when}, step {step}: {error:?}"),
            }
        }
        let (ino, content) = files.get_mut(&name).unwrap();
        let len = [1, 10, 100, 4096, 9000, 70_000, 400_000][dice.roll(7) as usize] * scale / 16;
        let at = dice.roll(500_000 * scale / 16);
        let data = dice.bytes(len.max(1));
        match fs.write(*ino, at, &data) {
            Ok(()) => {
                let end = at as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[at as usize..end].copy_from_slice(&data);
            }
            Err(FsError::NoSpace) => refused += 1,
            Err(error) => panic!("{when}, step {step}, {refused} refused: {error:?}"),
        }
        if step % 64 == 0 {
            fs.tick().unwrap();
            assert_eq!(fs.recount(), [""; 0], "{when}, step {step}");
        }
    }
    let fs = {
        fs.close().unwrap();
        drop(fs);
        assert_sound(&device);
        Lfs::mount(device.clone(), options()).unwrap()
    };
    for (ino, content) in files.values() {
        let mut out = vec![0xa5; content.len()];
        assert_eq!(fs.read(*ino, 0, &mut out).unwrap(), out.len());
        assert!(out == *content, "{when}: {ino}");
    }
    let counters = device.device().counters();
    println!(
        "{when}: {refused} refused, relocated {:.2} times",
        counters.gc_bytes as f64 / counters.host_bytes as f64
    );
    counters.gc_bytes as f64 / counters.host_bytes as f64
}

#[test]
fn small_writes_everywhere_on_a_full_volume_end_and_lose_nothing() {
    let seeds = if campaign() { 6 } else { 1 };
    let mut worst = 0.0f64;
    for (total, zone) in [(64, 2048), (64, 4096), (32, 1024), (10, 192), (48, 512), (128, 4096)] {
        for ballast in [0, 43, 75, 90, 97] {
            for scale in [1, 4, 16] {
                for seed in 0..seeds {
                    worst = worst.max(wear(
                        seed,
                        total << 20,
                        zone << 10,
                        ballast,
                        scale,
                        if campaign() { 10_000 } else { 1500 },
                    ));
                }
            }
        }
    }
    println!("at worst {worst:.2} times what was written was relocated");
    assert!(worst < 8.0, "{worst} times what was written was relocated");
}

/// Small files, as many as the volume takes, come and go at random. Returns how many times over what they have was relocated.
fn wear_by_files(seed: u64, total: u64, zone: u64, least: u64, most: u64) -> f64 {
    let (device, fs) = fresh(&small(total, zone));
    let when = format!("seed {seed}, {total} bytes, zones of {zone}, files of {least} to {most}");
    let args = CreateArgs::new(NewNode::File, 0o644);
    let mut dice = Dice(seed);
    let mut files: Vec<(String, Ino, Vec<u8>)> = Vec::new();
    let (mut refused, mut after) = (0u64, 0u64);
    let mut step = 0;
    while after < 3 * files.len() as u64 + 100 {
        step += 1;
        after += u64::from(refused > 0);
        // Full from the first refusal on: some go, some come.
        if refused > 0 && dice.roll(2) == 0 && !files.is_empty() {
            let (name, ..) = files.swap_remove(dice.roll(files.len() as u64) as usize);
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            continue;
        }
        let (name, len) = (format!("f{step}"), least + dice.roll(most - least + 1));
        let data = dice.bytes(len);
        let made = fs.create(Ino::ROOT, name.as_bytes(), &args).and_then(|attr| {
            match fs.write(attr.ino, 0, &data) {
                Ok(()) => Ok(attr.ino),
                Err(error) => {
                    fs.unlink(Ino::ROOT, name.as_bytes())?;
                    Err(error)
                }
            }
        });
        match made {
            Ok(ino) => files.push((name, ino, data)),
            Err(FsError::NoSpace) => refused += 1,
            Err(error) => panic!("{when}, step {step}, {refused} refused: {error:?}"),
        }
        if step % 4096 == 0 {
            fs.tick().unwrap();
        }
    }
    fs.close().unwrap();
    drop(fs);
    assert_sound(&device);
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    for (name, ino, content) in &files {
        let mut out = vec![0xa5; content.len()];
        assert_eq!(fs.read(*ino, 0, &mut out).unwrap(), out.len());
        assert!(out == *content, "{when}: {name}");
    }
    let counters = device.device().counters();
    let times = counters.gc_bytes as f64 / counters.host_bytes as f64;
    println!("{when}: {} files, {refused} refused, relocated {times:.2} times", files.len());
    times
}

#[test]
fn small_files_that_come_and_go_on_a_full_volume_end_and_lose_nothing() {
    let seeds = if campaign() { 10 } else { 1 };
    let mut worst = 0.0f64;
    for (total, zone) in [(24, 1024), (10, 192), (48, 2048)] {
        for (least, most) in
            [(1400, 1400), (1366, 1500), (3000, 3000), (2000, 4095), (1, 4095), (1, 300), (100, 9000)]
        {
            for seed in 0..seeds {
                worst = worst.max(wear_by_files(seed, total << 20, zone << 10, least, most));
            }
        }
    }
    println!("at worst {worst:.2} times what was written was relocated");
    assert!(worst < 8.0, "{worst} times what was written was relocated");
}

/// Fills a volume to the last byte.
fn fill(fs: &Lfs, ino: Ino) {
    let mut end = 0;
    for piece in [64 << 10, BLOCK] {
        while match fs.write(ino, end, &vec![3; piece as usize]) {
            Ok(()) => true,
            Err(FsError::NoSpace) => false,
            Err(error) => panic!("{error:?}"),
        } {
            end += piece;
        }
    }
}

/// A file with a promise of 1 MiB on a full volume, into which synced records go until the power goes. Returns the device
/// and the records that were synced.
fn promised_and_cut(operations: u64) -> (Arc<PowerCut>, u64, bool) {
    let (device, fs) = fresh(&small(10 << 20, 256 << 10));
    let args = CreateArgs::new(NewNode::File, 0o644);
    let ballast = fs.create(Ino::ROOT, b"ballast", &args).unwrap().ino;
    let log = fs.create(Ino::ROOT, b"log", &args).unwrap().ino;
    fs.fallocate(log, FallocateMode::KeepSize, 0, PROMISED).unwrap();
    fs.fsync(log).unwrap();
    fill(&fs, ballast);
    fs.sync().unwrap();
    device.cut_after(operations);
    let mut synced = 0;
    while (synced + 1) * RECORD <= PROMISED {
        let record = vec![synced as u8 | 1; RECORD as usize];
        match fs.write(log, synced * RECORD, &record).and_then(|()| fs.fsync(log)) {
            Ok(()) => synced += 1,
            Err(FsError::NoSpace) => panic!("the promised space is not there for record {synced}"),
            Err(_) => break,
        }
        if synced % 16 == 0 && fs.sync().is_err() {
            break;
        }
    }
    let cut = device.is_cut();
    drop(fs);
    (Arc::new(device.reopen(operations).unwrap()), synced, cut)
}

const PROMISED: u64 = 1 << 20;
const RECORD: u64 = 5000;

#[test]
fn a_promise_outlives_a_cut_at_any_operation_on_a_full_volume() {
    let every = if campaign() { 1 } else { 29 };
    for cut in (0..).step_by(every) {
        let (device, synced, was_cut) = promised_and_cut(cut);
        assert!(check(&device).is_clean(), "cut {cut}: {:?}", check(&device).problems);
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        assert_eq!(fs.recount(), [""; 0], "cut {cut}");
        let log = fs.lookup(Ino::ROOT, b"log").unwrap();
        assert!(log.size >= synced * RECORD, "cut {cut}: {} bytes of {synced} records", log.size);
        assert!(log.blocks * 512 >= PROMISED, "cut {cut}: {} bytes of blocks", log.blocks * 512);
        let mut out = vec![0; (synced * RECORD) as usize];
        fs.read(log.ino, 0, &mut out).unwrap();
        for (record, bytes) in out.chunks(RECORD as usize).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == record as u8 | 1), "cut {cut}, record {record}");
        }
        for at in (0..PROMISED - 777).step_by(777) {
            let written = fs.write(log.ino, at, &[9; 777]);
            assert!(written.is_ok(), "cut {cut}, byte {at}: {written:?}");
            if at % 20 == 0 {
                fs.fsync(log.ino).unwrap();
            }
        }
        fs.unmount().unwrap();
        assert_sound(&device);
        if !was_cut {
            assert!(cut > 50, "the records did nothing");
            break;
        }
    }
}

#[test]
fn what_was_stored_beyond_full_leaves_less_room_for_more() {
    let (device, fs) = fresh(&small(128 << 20, 1 << 20));
    let args = CreateArgs::new(NewNode::File, 0o644);
    let ino = fs.create(Ino::ROOT, b"f", &args).unwrap().ino;
    let room = fs.room_beyond_full();
    let mut size = 0;
    while fs.write_through(ino, size, &[1; 4096]).is_ok() {
        size += BLOCK;
    }
    assert!(room > 1 << 20);
    assert_eq!(fs.room_beyond_full(), room);
    let more = room / 2 / BLOCK * BLOCK;
    fs.beyond_full(|| fs.write_through(ino, size, &vec![2; more as usize])).unwrap();
    let left = fs.room_beyond_full();
    assert!(left <= room - more + BLOCK, "{left} of {room} bytes, {more} are used");
    assert!(matches!(
        fs.beyond_full(|| fs.write_through(ino, size + more, &vec![2; room as usize])),
        Err(FsError::NoSpace)
    ));
    fs.unmount().unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    assert!(fs.room_beyond_full() <= left);
    fs.unmount().unwrap();
    assert_sound(&device);
}
