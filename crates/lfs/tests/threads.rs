//! Several threads at once: each finds its own files as it left them, the accounts are right, the check is clean; on volumes that
//! are nearly full, on flash that fails, and after a power cut. `WEFT_CAMPAIGN=1` makes 100 times as many rounds.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::{assert_sound, check, fresh, options, small};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use weft_core::{Ino, LifetimeGroup, StreamId, Tag, ZoneId};
use weft_device::{DeviceError, FaultPlan, ZonedDevice, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, ZoneCondition, fsck};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode, RenameFlags, SetAttr};

const THREADS: u64 = 4;
const STEPS: usize = 1500;

fn rounds(few: u64) -> u64 {
    if std::env::var_os("WEFT_CAMPAIGN").is_some() { few * 100 } else { few }
}

fn tag_of(thread: u64, has_own_stream: bool) -> Tag {
    let stream = StreamId(if has_own_stream { thread as u16 } else { 0 });
    Tag { stream, group: LifetimeGroup(0), ..Tag::default() }
}

fn work(fs: &Lfs, thread: u64, seed: u64) -> BTreeMap<String, Vec<u8>> {
    let mut rng = StdRng::seed_from_u64(seed * THREADS + thread);
    let tag = tag_of(thread, seed.is_multiple_of(2));
    let args = |node| CreateArgs { tag, ..CreateArgs::new(node, 0o755) };
    let dir = fs.create(Ino::ROOT, format!("d{thread}").as_bytes(), &args(NewNode::Directory)).unwrap().ino;
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for step in 0..STEPS {
        let name = format!("f{}", rng.random_range(0..12));
        match rng.random_range(0..12) {
            0..7 => {
                let ino = match fs.lookup(dir, name.as_bytes()) {
                    Ok(attr) => attr.ino,
                    Err(_) => match fs.create(dir, name.as_bytes(), &args(NewNode::File)) {
                        Ok(attr) => attr.ino,
                        Err(FsError::NoSpace) => continue,
                        Err(error) => panic!("{error}"),
                    },
                };
                let content = files.entry(name).or_default();
                let at = rng.random_range(0..=content.len().min(200_000));
                let len = if rng.random() { rng.random_range(1..500) } else { rng.random_range(1..100_000) };
                let data: Vec<u8> = (0..len).map(|_| rng.random()).collect();
                let written = if rng.random() {
                    fs.write(ino, at as u64, &data)
                } else {
                    fs.write_through(ino, at as u64, &data)
                };
                match written {
                    Ok(()) => {
                        content.resize(content.len().max(at + len), 0);
                        content[at..at + len].copy_from_slice(&data);
                    }
                    Err(FsError::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
                if rng.random_range(0..3) == 0 {
                    fs.fsync(ino).unwrap();
                }
            }
            7 => {
                if files.remove(&name).is_some() {
                    fs.unlink(dir, name.as_bytes()).unwrap();
                }
            }
            8 => {
                let to = format!("f{}", rng.random_range(0..12));
                if to != name && files.contains_key(&name) {
                    fs.rename(dir, name.as_bytes(), dir, to.as_bytes(), RenameFlags::empty()).unwrap();
                    let content = files.remove(&name).unwrap();
                    files.insert(to, content);
                }
            }
            9 => {
                if let Some(content) = files.get_mut(&name) {
                    let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
                    let size = rng.random_range(0..=content.len());
                    content.truncate(size);
                    fs.setattr(ino, &SetAttr { size: Some(size as u64), ..SetAttr::default() }).unwrap();
                }
            }
            _ => {
                if let Some(content) = files.get(&name) {
                    let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
                    let mut out = vec![0; content.len() + 10];
                    let len = fs.read(ino, 0, &mut out).unwrap();
                    assert!(out[..len] == content[..], "thread {thread}, step {step}, {name}");
                }
            }
        }
    }
    files
}

/// Leaves so much room, and lets the threads work.
fn run(fs: Lfs, leave: u64, seed: u64) -> (Arc<Lfs>, Vec<BTreeMap<String, Vec<u8>>>) {
    let fs = Arc::new(fs);
    let args = CreateArgs::new(NewNode::File, 0o644);
    let ballast = fs.create(Ino::ROOT, b"ballast", &args).unwrap().ino;
    let bytes = fs.statfs().unwrap().free_bytes.saturating_sub(leave);
    fs.write_through(ballast, 0, &vec![1; bytes as usize]).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let ticker = {
        let (fs, done) = (fs.clone(), done.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                fs.tick().unwrap();
                std::thread::yield_now();
            }
        })
    };
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let fs = fs.clone();
            std::thread::spawn(move || work(&fs, thread, seed))
        })
        .collect();
    let files: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    done.store(true, Ordering::Relaxed);
    ticker.join().unwrap();
    assert_eq!(fs.recount(), [""; 0], "seed {seed}");
    fs.close().unwrap();
    (fs, files)
}

fn compare(fs: &Lfs, files: &[BTreeMap<String, Vec<u8>>], seed: u64) {
    for (thread, files) in files.iter().enumerate() {
        let dir = fs.lookup(Ino::ROOT, format!("d{thread}").as_bytes()).unwrap().ino;
        for (name, content) in files {
            let attr = fs.lookup(dir, name.as_bytes()).unwrap();
            let mut out = vec![0; attr.size as usize];
            fs.read(attr.ino, 0, &mut out).unwrap();
            assert!(out == *content, "seed {seed}, thread {thread}, {name}");
        }
    }
}

#[test]
fn threads_on_a_nearly_full_volume_find_their_files_as_they_left_them() {
    for seed in 0..rounds(4) {
        // A little less than the threads would like to have, and zones of several writes or of one.
        let zone_bytes = [256 << 10, 1 << 20][seed as usize / 2 % 2];
        let (device, fs) = fresh(&small(20 * zone_bytes.max(1 << 20), zone_bytes));
        let (fs, files) = run(fs, 5 << 20, seed);
        assert_sound(&device);
        compare(&fs, &files, seed);
    }
}

#[test]
fn threads_on_a_volume_with_room_find_their_files_as_they_left_them() {
    for seed in 0..rounds(4) {
        let zone_bytes = [512 << 10, 4 << 20][seed as usize / 2 % 2];
        let (device, fs) = fresh(&small(96 << 20, zone_bytes));
        let (fs, files) = run(fs, 40 << 20, seed);
        assert_sound(&device);
        compare(&fs, &files, seed);
    }
}

#[test]
fn threads_on_failing_flash_find_their_files_as_they_left_them() {
    for seed in 0..rounds(4) {
        let plan = FaultPlan { seed, program_failures: 300, ..FaultPlan::default() };
        let device = ZonedModel::memory(&small(192 << 20, 512 << 10)).unwrap().with_faults(plan);
        let device = Arc::new(device);
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        let (fs, files) = run(fs, 100 << 20, seed);
        compare(&fs, &files, seed);
        assert!(fsck::check(device).unwrap().is_clean());
    }
}

/// A file and what it may hold after a power cut: what was synced last comes first, what it holds now last.
struct Known {
    ino: Ino,
    states: Vec<Vec<u8>>,
}

impl Known {
    fn check(&self, fs: &Lfs, what: &str) {
        let mut found = vec![0; fs.getattr(self.ino).unwrap().size as usize];
        fs.read(self.ino, 0, &mut found).unwrap();
        let lens = self.states.iter().map(Vec::len);
        assert!(found.len() >= lens.clone().min().unwrap() && found.len() <= lens.max().unwrap(), "{what}");
        for (at, byte) in found.iter().enumerate() {
            let is_known = self.states.iter().any(|state| state.get(at).copied().unwrap_or(0) == *byte);
            assert!(is_known, "{what}: byte {at} is {byte}");
        }
    }
}

/// Writes to a file until the power is gone.
fn write_until_cut(fs: &Lfs, known: &mut Known, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        let before = known.states.last().unwrap();
        let mut now = before.clone();
        let done = if rng.random_range(0..10) == 0 {
            now.truncate(rng.random_range(0..=now.len()));
            let set = SetAttr { size: Some(now.len() as u64), ..SetAttr::default() };
            known.states.push(now);
            fs.setattr(known.ino, &set).map(drop)
        } else {
            // Appends mostly; what is overwritten stays without holes.
            let at = if rng.random() { now.len() } else { rng.random_range(0..=now.len()) };
            let at = if at > 600_000 { 0 } else { at };
            let data = vec![rng.random_range(1..=255); rng.random_range(1..150_000)];
            now.resize(now.len().max(at + data.len()), 0);
            now[at..at + data.len()].copy_from_slice(&data);
            known.states.push(now);
            fs.write_through(known.ino, at as u64, &data)
        };
        if done.is_err() {
            return;
        }
        if rng.random_range(0..3) == 0 {
            if fs.fsync(known.ino).is_err() {
                return;
            }
            known.states.drain(..known.states.len() - 1);
        }
    }
}

#[test]
fn what_threads_have_synced_survives_a_power_cut() {
    let mut cuts = 0;
    for seed in 0..rounds(12) {
        let mut rng = StdRng::seed_from_u64(seed);
        let (device, fs) = fresh(&small(48 << 20, [256 << 10, 1 << 20][seed as usize / 2 % 2]));
        let mut files: Vec<Known> = (0..THREADS)
            .map(|thread| {
                let tag = tag_of(thread, seed.is_multiple_of(2));
                let args = CreateArgs { tag, ..CreateArgs::new(NewNode::File, 0o644) };
                let ino = fs.create(Ino::ROOT, format!("f{thread}").as_bytes(), &args).unwrap().ino;
                Known { ino, states: vec![Vec::new()] }
            })
            .collect();
        fs.sync().unwrap();
        device.cut_after(rng.random_range(1..400));
        std::thread::scope(|scope| {
            for known in &mut files {
                let (fs, seed) = (&fs, rng.random());
                scope.spawn(move || write_until_cut(fs, known, seed));
            }
        });
        for look in 0..4 {
            let after = Arc::new(device.reopen(look).unwrap());
            let fs = Lfs::mount(after.clone(), options()).unwrap();
            for known in &files {
                known.check(&fs, &format!("seed {seed}, look {look}, inode {}", known.ino.0));
            }
            assert_eq!(fs.recount(), [""; 0], "seed {seed}, look {look}");
            fs.unmount().unwrap();
            assert!(check(&after).is_clean(), "seed {seed}, look {look}");
            cuts += 1;
        }
    }
    println!("{cuts} states after power cuts");
}

/// A device that holds writes of many blocks of stream 1 until it may go on, or for a long time.
struct Holding {
    inner: Arc<dyn ZonedDevice>,
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Nobody,
    Writer,
    GoOn,
}

impl Holding {
    fn inner(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        Ok(&*self.inner)
    }

    fn new() -> Arc<Holding> {
        let inner = Arc::new(ZonedModel::memory(&small(64 << 20, 2 << 20)).unwrap());
        Lfs::format(inner.clone(), &FormatOptions::default()).unwrap();
        Arc::new(Holding { inner, state: Mutex::new(Held::Nobody), changed: Condvar::new() })
    }

    fn set(&self, state: Held) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    /// Whether it came to this state before a long time was over.
    fn wait_for(&self, state: Held) -> bool {
        let patience = Duration::from_secs(10);
        let now = self.state.lock().unwrap();
        let (now, _) = self.changed.wait_timeout_while(now, patience, |now| *now != state).unwrap();
        *now == state
    }
}

impl ZonedDevice for Holding {
    crate::pass_on! {
        inner => shape report append read open close finish reset flush;
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        if data.len() >= 512 << 10 && tag.stream == StreamId(1) && *self.state.lock().unwrap() == Held::Nobody
        {
            self.set(Held::Writer);
            self.wait_for(Held::GoOn);
        }
        self.inner.write(zone, at, data, tag)
    }
}

fn file(fs: &Lfs, name: &[u8], stream: u64) -> Ino {
    let tag = tag_of(stream, true);
    let args = CreateArgs { tag, ..CreateArgs::new(NewNode::File, 0o644) };
    fs.create(Ino::ROOT, name, &args).unwrap().ino
}

#[test]
fn a_writer_waits_for_no_other_that_the_device_holds() {
    let device = Holding::new();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let (held, other) = (file(&fs, b"held", 1), file(&fs, b"other", 2));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write_through(held, 0, &[1; 600 << 10]));
        assert!(device.wait_for(Held::Writer));
        fs.write_through(other, 0, &vec![2; 3 << 20]).unwrap();
        fs.fsync(other).unwrap();
        assert_eq!((fs.getattr(other).unwrap().size, fs.getattr(held).unwrap().size), (3 << 20, 0));
        assert_eq!(*device.state.lock().unwrap(), Held::Writer, "the device held nobody for so long");
        device.set(Held::GoOn);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(fs.getattr(held).unwrap().size, 600 << 10);
    fs.unmount().unwrap();
    assert!(fsck::check(device).unwrap().is_clean());
}

#[test]
fn what_is_being_written_leaves_less_room_for_others() {
    let device = Holding::new();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let (held, other) = (file(&fs, b"held", 1), file(&fs, b"other", 2));
    let room = fs.statfs().unwrap().free_bytes - (1 << 20);
    fs.write_through(other, 0, &vec![3; room as usize]).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write_through(held, 0, &[1; 600 << 10]));
        assert!(device.wait_for(Held::Writer));
        let refused = fs.write_through(other, room, &[2; 600 << 10]);
        assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
        device.set(Held::GoOn);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(fs.recount(), [""; 0]);
    fs.unmount().unwrap();
}

#[test]
fn space_that_others_free_and_fill_while_the_device_writes_is_checked_again() {
    let device = Holding::new();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let (held, other) = (file(&fs, b"held", 1), file(&fs, b"other", 2));
    let room = (fs.statfs().unwrap().free_bytes - (64 << 10)) as usize;
    device.set(Held::GoOn);
    fs.write_through(held, 0, &vec![1; room]).unwrap();
    device.set(Held::Nobody);
    std::thread::scope(|scope| {
        // It overwrites what it has, for which there is always room.
        let writer = scope.spawn(|| fs.write_through(held, 0, &vec![2; room]));
        assert!(device.wait_for(Held::Writer));
        fs.setattr(held, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        fs.write_through(other, 0, &vec![3; room - (1 << 20)]).unwrap();
        device.set(Held::GoOn);
        assert!(matches!(writer.join().unwrap(), Err(FsError::NoSpace)));
    });
    assert_eq!(fs.recount(), [""; 0]);
    fs.unmount().unwrap();
    assert!(fsck::check(device).unwrap().is_clean());
}

#[test]
fn a_zone_that_a_removed_file_was_to_take_is_free_after_the_next_sync() {
    let device = Holding::new();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let (held, other) = (file(&fs, b"held", 1), file(&fs, b"other", 1));
    let free = |fs: &Lfs| fs.zones().iter().filter(|zone| zone.state == ZoneCondition::Free).count();
    let before = free(&fs);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write_through(held, 0, &[1; 600 << 10]));
        assert!(device.wait_for(Held::Writer));
        fs.unlink(Ino::ROOT, b"held").unwrap();
        let filler = scope.spawn(|| fs.write_through(other, 0, &vec![3; 1800 << 10]));
        device.set(Held::GoOn);
        assert!(matches!(writer.join().unwrap(), Err(FsError::Stale)));
        filler.join().unwrap().unwrap();
    });
    fs.unlink(Ino::ROOT, b"other").unwrap();
    fs.sync().unwrap();
    assert!(free(&fs) + 1 >= before, "{before} zones were free, {} are", free(&fs));
    fs.unmount().unwrap();
    assert!(fsck::check(device).unwrap().is_clean());
}

#[test]
fn a_file_that_is_removed_while_the_device_writes_takes_no_room() {
    let device = Holding::new();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let held = file(&fs, b"held", 1);
    let free = fs.statfs().unwrap().free_bytes;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write_through(held, 0, &[1; 600 << 10]));
        assert!(device.wait_for(Held::Writer));
        fs.unlink(Ino::ROOT, b"held").unwrap();
        device.set(Held::GoOn);
        assert!(matches!(writer.join().unwrap(), Err(FsError::Stale)));
    });
    assert!(fs.statfs().unwrap().free_bytes >= free);
    assert_eq!(fs.recount(), [""; 0]);
    fs.unmount().unwrap();
    assert!(fsck::check(device).unwrap().is_clean());
}
