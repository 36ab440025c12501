//! How fast the NAND model runs on this machine, on one core: page operations without data, and bytes with data. Time is
//! that of the processor, so that other programs do not matter much. Then (by the clock on the wall) how long a large grant
//! takes, and how much faster threads are on LUNs of their own, of a device in memory and of one in an image. Beside the image,
//! what the machine does with the same bytes: threads that write, read and sync a file each, or a part of one file each.
//!
//! ```text
//! cargo run --release -p weft-sim --example flash_speed [DIRECTORY]
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people to run")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, Keep, OpenChannel};
use weft_device::ssd::{Ssd, SsdSetup};
use weft_flash::{GrantRequest, Monitor, MonitorSetup};
use weft_sim::block::HostQueue;

/// Seconds of the processor that this process has had, to a hundredth.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name in parentheses may hold spaces; user and system time are the 12th and 13th field behind it.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// Programs and reads every page of a device and erases every block, `rounds` times; page operations done.
fn whole_device(device: &OpenChannel, rounds: u32) -> u64 {
    let shape = device.shape();
    let keeps = device.setup().keep == Keep::All;
    let mut data = vec![7; if keeps { shape.page_bytes as usize } else { 0 }];
    let mut operations = 0;
    for _ in 0..rounds {
        for block in 0..shape.blocks_per_plane {
            for page in 0..shape.pages_per_block {
                for lun in 0..shape.luns() {
                    let address = shape.lun_at(lun).block(0, block).page(page);
                    device.program(Nanos(0), address, &data, &[]).unwrap();
                    if keeps {
                        device.read(Nanos(0), address, 0, &mut data, &mut []).unwrap();
                    } else {
                        device.touch(Nanos(0), address, shape.page_bytes).unwrap();
                    }
                    operations += 2;
                }
            }
            for lun in 0..shape.luns() {
                device.erase(Nanos(0), shape.lun_at(lun).block(0, block)).unwrap();
                operations += 1;
            }
        }
    }
    device.verify_identity().unwrap();
    operations
}

/// What each thread does with the pages of a block, block after block.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    /// Programs and reads each.
    Access,
    /// The same, and then erases the block, which syncs an image. A file is synced.
    Erase,
    /// Programs each and makes it durable before the next.
    Sync,
    /// Reads each once, in an order that the kernel does not read ahead in. Nothing of it is in memory before.
    Fetch,
}

#[derive(Clone, Copy)]
struct Work {
    act: Act,
    pages: u32,
    blocks: u32,
}

impl Work {
    fn operations(self) -> u32 {
        match self.act {
            Act::Access => self.blocks * 2 * self.pages,
            Act::Erase => self.blocks * (2 * self.pages + 1),
            Act::Sync | Act::Fetch => self.blocks * self.pages,
        }
    }

    /// Pages of a thread in the order in which it reads them.
    fn scattered(self) -> impl Iterator<Item = u32> {
        let count = self.blocks * self.pages;
        // The stride is odd and the count a power of two, so that each page comes once.
        (0..count).map(move |at| (u64::from(at) * 7919 % u64::from(count)) as u32)
    }

    /// Brings the device to where the threads begin.
    fn prepare(self, device: &OpenChannel, image: &Path) {
        let data = vec![7; device.shape().page_bytes as usize];
        for (lun, block) in (0..4).flat_map(|lun| (0..self.blocks).map(move |block| (lun, block))) {
            let block = device.shape().lun_at(lun).block(0, block);
            let programmed = device.block_info(block).unwrap().programmed;
            if self.act != Act::Fetch && programmed > 0 {
                device.erase(Nanos(0), block).unwrap();
            }
            if self.act == Act::Fetch && programmed == 0 {
                for page in 0..self.pages {
                    device.program(Nanos(0), block.page(page), &data, &[]).unwrap();
                }
            }
        }
        if self.act == Act::Fetch {
            device.sync().unwrap();
            forget(&File::open(image).unwrap());
        }
    }

    /// Blocks of LUN `lun`.
    fn on_flash(self, device: &OpenChannel, lun: u32) {
        let shape = device.shape();
        let mut data = vec![lun as u8; shape.page_bytes as usize];
        let block_of = |block| shape.lun_at(lun).block(0, block);
        if self.act == Act::Fetch {
            for page in self.scattered() {
                let page = block_of(page / self.pages).page(page % self.pages);
                device.read(Nanos(0), page, 0, &mut data, &mut []).unwrap();
            }
            return;
        }
        for block in (0..self.blocks).map(block_of) {
            for page in 0..self.pages {
                device.program(Nanos(0), block.page(page), &data, &[]).unwrap();
                if self.act == Act::Sync {
                    device.sync().unwrap();
                } else {
                    device.read(Nanos(0), block.page(page), 0, &mut data, &mut []).unwrap();
                }
            }
            if self.act == Act::Erase {
                device.erase(Nanos(0), block).unwrap();
            }
        }
    }

    /// As many bytes in a file, from there on.
    fn on_file(self, file: &File, begin: u64) {
        let mut data = vec![7; 4096];
        if self.act == Act::Fetch {
            let pages = self.scattered().map(|page| begin + u64::from(page) * 4096);
            return pages.for_each(|offset| file.read_exact_at(&mut data, offset).unwrap());
        }
        let mut offset = begin;
        for _ in 0..self.blocks {
            for _ in 0..self.pages {
                file.write_all_at(&data, offset).unwrap();
                match self.act {
                    Act::Sync => file.sync_data().unwrap(),
                    _ => file.read_exact_at(&mut data, offset).unwrap(),
                }
                offset += data.len() as u64;
            }
            if self.act == Act::Erase {
                file.sync_data().unwrap();
            }
        }
    }

    /// Page operations per second of `threads` threads.
    fn rate(self, threads: u32, act: impl Fn(u32) + Sync) -> f64 {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let act = &act;
            (0..threads).for_each(|thread| drop(scope.spawn(move || act(thread))));
        });
        f64::from(threads * self.operations()) / begun.elapsed().as_secs_f64()
    }

    fn compare(self, name: &str, before: impl Fn(), act: impl Fn(u32) + Sync) {
        let mut ratios = Vec::new();
        // The first round finds the files empty.
        for _ in 0..6 {
            before();
            let one = self.rate(1, &act);
            before();
            let four = self.rate(4, &act);
            ratios.push((four / one, one, four));
        }
        ratios.remove(0);
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, one, four) = ratios[2];
        println!(
            "  {name}: {:.0} thousand page operations per second with one thread, {:.0} with 4: {ratio:.2} times ({:.2} to {:.2})",
            one / 1e3,
            four / 1e3,
            ratios[0].0,
            ratios[4].0
        );
    }
}

/// Has the kernel forget what it keeps of a file in memory.
fn forget(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Threads on LUNs of their own, and beside them on files.
fn threads(directory: &Path) {
    let works = [
        ("programs and reads", Work { act: Act::Access, pages: 256, blocks: 32 }),
        ("erases of blocks of 256 pages", Work { act: Act::Erase, pages: 256, blocks: 32 }),
        ("erases of blocks of 8 pages", Work { act: Act::Erase, pages: 8, blocks: 200 }),
        ("programs, each synced", Work { act: Act::Sync, pages: 256, blocks: 2 }),
        ("reads of what is not in memory", Work { act: Act::Fetch, pages: 256, blocks: 16 }),
    ];
    for (name, work) in works {
        println!("{name}:");
        let geometry =
            Geometry { channels: 4, luns_per_channel: 1, pages_per_block: work.pages, ..Geometry::bbssd() };
        let block_bytes = u64::from(work.pages) * 4096;
        let setup = FlashSetup::new(geometry.with_size(4 * u64::from(work.blocks) * block_bytes));
        let path = directory.join("flash.img");
        let devices = [
            ("memory", OpenChannel::memory(&setup).unwrap()),
            ("image", OpenChannel::create(&path, &setup, true).unwrap()),
        ];
        for (name, device) in &devices {
            work.compare(name, || work.prepare(device, &path), |lun| work.on_flash(device, lun));
        }
        let thread_bytes = u64::from(work.blocks) * block_bytes;
        let files = [0, 1, 2, 3].map(|number| {
            let path = directory.join(format!("{number}"));
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
        });
        if work.act == Act::Fetch {
            let whole = vec![7; 4 * thread_bytes as usize];
            files.iter().for_each(|file| file.write_all_at(&whole, 0).unwrap());
        }
        let before = || {
            if work.act == Act::Fetch {
                files.iter().for_each(forget);
            }
        };
        work.compare("a file each", before, |number| work.on_file(&files[number as usize], 0));
        work.compare("one file", before, |number| work.on_file(&files[0], u64::from(number) * thread_bytes));
    }
}

/// How long a grant of all of a device of 192 LUNs of 1,024 blocks takes.
fn grant() {
    let geometry = Geometry { channels: 12, luns_per_channel: 16, pages_per_block: 8, ..Geometry::bbssd() };
    let setup = FlashSetup::new(geometry.with_size(192 * 1024 * 8 * 4096)).keeping(Keep::Oob);
    let device = Arc::new(OpenChannel::memory(&setup).unwrap());
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let mut times: Vec<_> = (0..5)
        .map(|round| {
            let name = format!("{round}");
            let request = GrantRequest { name: name.clone(), bytes, over_provisioning_permille: 0 };
            let begun = Instant::now();
            drop(monitor.allocate(&request).unwrap());
            let taken = begun.elapsed();
            monitor.release(&name).unwrap();
            taken
        })
        .collect();
    times.sort();
    println!("a grant of 192 LUNs of 1024 blocks: {:.1?} ({:.1?} to {:.1?})", times[2], times[0], times[4]);
}

fn main() {
    let geometry = Geometry::bbssd().with_size(1 << 30);
    for (keep, rounds) in [(Keep::Nothing, 20), (Keep::All, 2)] {
        let device = OpenChannel::memory(&FlashSetup::new(geometry.clone()).keeping(keep)).unwrap();
        let begun = cpu_seconds();
        let operations = whole_device(&device, rounds);
        let seconds = cpu_seconds() - begun;
        let bytes = (device.counters().bytes_programmed + device.counters().bytes_read) as f64;
        println!(
            "raw, keeping {keep:?}: {:.2} million page operations and {:.2} GB per second of the processor",
            operations as f64 / seconds / 1e6,
            bytes / seconds / 1e9
        );
    }
    grant();
    let directory = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    threads(tempfile::tempdir_in(directory).unwrap().path());
    let flash = FlashSetup::new(geometry).keeping(Keep::Nothing);
    let drive = Ssd::new(&SsdSetup::conventional(flash, 0.125)).unwrap();
    let capacity = drive.capacity_blocks();
    let begun = cpu_seconds();
    let mut state = 1u64;
    let mut queue = HostQueue::new(64, Nanos(0));
    for _ in 0..8 * capacity {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = ((state >> 33) * capacity) >> 31;
        let issued = queue.admit();
        queue.issued(drive.write(issued, block, 1, &[], None).unwrap());
    }
    let seconds = cpu_seconds() - begun;
    let flash = drive.flash_counters();
    println!(
        "conventional drive, uniform writes, OP 12.5 %: {:.2} million page operations and {:.2} million host writes per \
         second of the processor, WAF {:.2}",
        (flash.pages_programmed + flash.pages_read + flash.blocks_erased) as f64 / seconds / 1e6,
        8.0 * capacity as f64 / seconds / 1e6,
        drive.counters().waf()
    );
    drive.verify_identity().unwrap();
}
