//! What the hot paths cost on a device that only copies: `cargo run --release --example hot_paths`.
//!
//! Each figure is the least of several rounds, per operation, the device's copying included.

// A measurement stops at the first thing that is not as it should be, and prints what it found.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_core::{BLOCK_BYTES, Ino, StreamId, Tag, ZoneId};
use weft_device::zoned::DeviceCounters;
use weft_device::{DeviceError, ZoneReport, ZoneState, ZonedDevice, ZonedInfo};
use weft_lfs::{FormatOptions, Lfs, MountOptions};
use weft_vfs::{BlockMap, CreateArgs, FileSystem, MapEntry, NewNode};

/// Memory with write pointers.
struct Copying {
    info: ZonedInfo,
    zones: Vec<Mutex<(u32, Vec<u8>)>>,
}

impl Copying {
    fn new(zones: u32, zone_blocks: u32) -> Copying {
        let bytes = zone_blocks as usize * BLOCK_BYTES;
        Copying {
            info: ZonedInfo { zones, zone_blocks, zone_capacity: zone_blocks, open_max: 14, active_max: 14 },
            zones: (0..zones).map(|_| Mutex::new((0, vec![1; bytes]))).collect(),
        }
    }
}

impl ZonedDevice for Copying {
    fn info(&self) -> ZonedInfo {
        self.info
    }
    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let write_pointer = self.zones[zone.index()].lock().0;
        let state = match write_pointer {
            0 => ZoneState::Empty,
            full if full == self.info.zone_capacity => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        Ok(ZoneReport { state, write_pointer })
    }
    fn write(&self, zone: ZoneId, at: u32, data: &[u8], _: &Tag) -> Result<(), DeviceError> {
        let mut z = self.zones[zone.index()].lock();
        assert_eq!(z.0, at);
        let first = at as usize * BLOCK_BYTES;
        z.1[first..first + data.len()].copy_from_slice(data);
        z.0 += (data.len() / BLOCK_BYTES) as u32;
        Ok(())
    }
    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        let at = self.zones[zone.index()].lock().0;
        self.write(zone, at, data, tag).map(|()| at)
    }
    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let z = self.zones[zone.index()].lock();
        let first = at as usize * BLOCK_BYTES;
        out.copy_from_slice(&z.1[first..first + out.len()]);
        Ok(())
    }
    fn open(&self, _: ZoneId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn close(&self, _: ZoneId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn finish(&self, _: ZoneId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.zones[zone.index()].lock().0 = 0;
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

const ROUNDS: usize = 15;

fn best(mut round: impl FnMut() -> (Duration, u32)) -> f64 {
    let one = |(time, count): (Duration, u32)| time.as_nanos() as f64 / f64::from(count);
    (0..ROUNDS).map(|_| one(round())).fold(f64::INFINITY, f64::min)
}

fn args(open: bool) -> CreateArgs<'static> {
    CreateArgs { open, ..CreateArgs::new(NewNode::File, 0o644) }
}

fn volume() -> Lfs {
    volume_of(Copying::new(64, 1024))
}

fn volume_of(device: Copying) -> Lfs {
    let device = Arc::new(device);
    Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
    Lfs::mount(device, MountOptions::default()).unwrap()
}

fn main() {
    let fs = volume();
    let log = fs.create(Ino::ROOT, b"log", &args(true)).unwrap().ino;
    let mut at = 0;
    let fsync = best(|| {
        let began = Instant::now();
        for _ in 0..5_000 {
            fs.write(log, at, &[7; 200]).unwrap();
            fs.fsync(log).unwrap();
            at += 200;
        }
        (began.elapsed(), 5_000)
    });
    println!("append 200 bytes and fsync      {:8.2} us", fsync / 1e3);
    drop(fs);

    for kib in [64, 256, 1024] {
        let fs = volume();
        let piece = vec![3u8; kib << 10];
        let mut serial = 0;
        let through = best(|| {
            serial += 1;
            let ino = fs.create(Ino::ROOT, format!("f{serial}").as_bytes(), &args(true)).unwrap().ino;
            let pieces = (32 << 10) / kib;
            let began = Instant::now();
            for i in 0..pieces {
                fs.write_through(ino, ((i * kib) << 10) as u64, &piece).unwrap();
            }
            let time = began.elapsed();
            fs.unlink(Ino::ROOT, format!("f{serial}").as_bytes()).unwrap();
            fs.release(ino);
            fs.sync().unwrap();
            (time, pieces as u32)
        });
        let rate = (kib << 10) as f64 / through;
        println!("write_through of {kib:4} KiB       {:8.2} us   {rate:.2} GB/s", through / 1e3);
    }

    for writers in [1, 2] {
        // What the device copies by itself, in zones and pieces as the core's below: no core can do more.
        let device = Copying::new(32, 8192);
        let piece = vec![3u8; 256 << 10];
        let copied = best(|| {
            let began = Instant::now();
            std::thread::scope(|scope| {
                for n in 0..writers {
                    let (device, piece) = (&device, &piece);
                    scope.spawn(move || {
                        for i in 0..512 {
                            device.append(ZoneId(n * 4 + i / 128), piece, &Tag::default()).unwrap();
                        }
                    });
                }
            });
            let time = began.elapsed();
            (0..writers * 4).for_each(|zone| device.reset(ZoneId(zone)).unwrap());
            (time, writers * 512)
        });
        let rate = piece.len() as f64 / copied;
        println!("copy alone, {writers} writers           {:8.2} us   {rate:.2} GB/s", copied / 1e3);
    }

    for writers in [1, 2] {
        // Zones as large as real ones are not: a quarter of the writes to those above are the last of a zone.
        let fs = volume_of(Copying::new(32, 8192));
        let piece = vec![3u8; 256 << 10];
        let through = best(|| {
            let files: Vec<Ino> = (0..writers)
                .map(|n| {
                    let tag = Tag { stream: StreamId(n), ..Tag::default() };
                    let args = CreateArgs { tag, ..args(true) };
                    fs.create(Ino::ROOT, format!("w{n}").as_bytes(), &args).unwrap().ino
                })
                .collect();
            let began = Instant::now();
            std::thread::scope(|scope| {
                for &ino in &files {
                    let (fs, piece) = (&fs, &piece);
                    scope
                        .spawn(move || (0..512).for_each(|i| fs.write_through(ino, i << 18, piece).unwrap()));
                }
            });
            let time = began.elapsed();
            for (n, ino) in files.iter().enumerate() {
                fs.unlink(Ino::ROOT, format!("w{n}").as_bytes()).unwrap();
                fs.release(*ino);
            }
            fs.sync().unwrap();
            (time, u32::from(writers) * 512)
        });
        let rate = piece.len() as f64 / through;
        println!("write_through, {writers} writers        {:8.2} us   {rate:.2} GB/s", through / 1e3);
    }

    let fs = volume();
    let create = best(|| {
        let began = Instant::now();
        for i in 0..10_000 {
            fs.create(Ino::ROOT, format!("n{i}").as_bytes(), &args(false)).unwrap();
        }
        let time = began.elapsed();
        for i in 0..10_000 {
            fs.unlink(Ino::ROOT, format!("n{i}").as_bytes()).unwrap();
        }
        (time, 10_000)
    });
    println!("create an empty file            {:8.2} us", create / 1e3);
    let unlink = best(|| {
        for i in 0..10_000 {
            fs.create(Ino::ROOT, format!("n{i}").as_bytes(), &args(false)).unwrap();
        }
        let began = Instant::now();
        for i in 0..10_000 {
            fs.unlink(Ino::ROOT, format!("n{i}").as_bytes()).unwrap();
        }
        (began.elapsed(), 10_000)
    });
    println!("unlink an empty file            {:8.2} us", unlink / 1e3);
    let small = best(|| {
        let began = Instant::now();
        for i in 0..5_000 {
            let ino = fs.create(Ino::ROOT, format!("n{i}").as_bytes(), &args(false)).unwrap().ino;
            fs.write(ino, 0, &[1; 1000]).unwrap();
            fs.write_back(ino).unwrap();
        }
        fs.sync().unwrap();
        let time = began.elapsed();
        for i in 0..5_000 {
            fs.unlink(Ino::ROOT, format!("n{i}").as_bytes()).unwrap();
        }
        (time, 5_000)
    });
    println!("create a file of 1000 bytes     {:8.2} us   (to the device, packed)", small / 1e3);

    let big = fs.create(Ino::ROOT, b"big", &args(true)).unwrap().ino;
    let mib = vec![5u8; 1 << 20];
    for i in 0..64 {
        fs.write_through(big, i << 20, &mib).unwrap();
    }
    let mut entries = vec![MapEntry::HOLE; 16_384];
    let watch = best(|| {
        let began = Instant::now();
        for _ in 0..50 {
            fs.watch(big, 0, &mut entries).unwrap();
        }
        (began.elapsed(), 50)
    });
    println!("watch a file of 64 MiB          {:8.2} us", watch / 1e3);
    let mut block = vec![0; BLOCK_BYTES];
    let read = best(|| {
        let began = Instant::now();
        for i in 0..10_000u64 {
            fs.read(big, (i * 7919 % 16_384) * BLOCK_BYTES as u64, &mut block).unwrap();
        }
        (began.elapsed(), 10_000)
    });
    println!("read 4 KiB                      {:8.2} us", read / 1e3);
    let mut mib = mib;
    let read = best(|| {
        let began = Instant::now();
        for i in 0..64u64 {
            fs.read(big, i << 20, &mut mib).unwrap();
        }
        (began.elapsed(), 64)
    });
    println!("read 1 MiB                      {:8.2} us   {:.2} GB/s", read / 1e3, (1 << 20) as f64 / read);
}
