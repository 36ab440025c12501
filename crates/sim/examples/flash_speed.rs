//! How fast the NAND model runs on this machine, on one core: page operations without data, and bytes with data. Time is
//! that of the processor, so that other programs do not matter much. Then how much faster threads are on LUNs of their own, of a
//! device in memory and of one in an image (by the clock on the wall).
//!
//! ```text
//! cargo run --release -p weft-sim --example flash_speed
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people to run")]

use std::time::Instant;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, Keep, OpenChannel};
use weft_device::ssd::{Ssd, SsdSetup};
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

/// Programs, reads and erases blocks on `threads` LUNs, a thread each; page operations per second.
fn on_luns(device: &OpenChannel, threads: u32, blocks: u32) -> f64 {
    let shape = device.shape();
    let begun = Instant::now();
    let work = |lun: u32| {
        let mut data = vec![lun as u8; shape.page_bytes as usize];
        for block in 0..blocks {
            let block = shape.lun_at(lun).block(0, block % shape.blocks_per_plane);
            for page in 0..shape.pages_per_block {
                device.program(Nanos(0), block.page(page), &data, &[]).unwrap();
                device.read(Nanos(0), block.page(page), 0, &mut data, &mut []).unwrap();
            }
            device.erase(Nanos(0), block).unwrap();
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|lun| drop(scope.spawn(move || work(lun))));
    });
    let operations = u64::from(threads * blocks) * (2 * u64::from(shape.pages_per_block) + 1);
    operations as f64 / begun.elapsed().as_secs_f64()
}

fn threads(name: &str, device: &OpenChannel) {
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let (one, four) = (on_luns(device, 1, 32), on_luns(device, 4, 32));
        ratios.push((four / one, one, four));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, one, four) = ratios[2];
    println!(
        "{name}: {:.0} thousand page operations per second with one thread, {:.0} with 4 on 4 LUNs: {ratio:.2} times",
        one / 1e3,
        four / 1e3
    );
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
    let setup = FlashSetup::new(geometry.clone());
    threads("memory", &OpenChannel::memory(&setup).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let image = OpenChannel::create(&directory.path().join("flash.img"), &setup, false).unwrap();
    threads("image", &image);
    drop(image);
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
