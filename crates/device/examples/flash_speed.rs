//! How fast the NAND model runs on this machine, on one core: page operations without data, and bytes with data.
//!
//! ```text
//! cargo run --release -p weft-device --example flash_speed
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people to run")]

use std::time::Instant;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, Keep, OpenChannel};
use weft_device::ssd::{Ssd, SsdSetup};

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

fn main() {
    let geometry = Geometry::bbssd().with_size(1 << 30);
    for (keep, rounds) in [(Keep::Nothing, 20), (Keep::All, 2)] {
        let device = OpenChannel::memory(&FlashSetup::new(geometry.clone()).keeping(keep)).unwrap();
        let begun = Instant::now();
        let operations = whole_device(&device, rounds);
        let seconds = begun.elapsed().as_secs_f64();
        let bytes = (device.counters().bytes_programmed + device.counters().bytes_read) as f64;
        println!(
            "raw, keeping {keep:?}: {:.2} million page operations/s, {:.2} GB/s",
            operations as f64 / seconds / 1e6,
            bytes / seconds / 1e9
        );
    }
    let flash = FlashSetup::new(geometry).keeping(Keep::Nothing);
    let drive = Ssd::new(&SsdSetup::conventional(flash, 0.125)).unwrap();
    let capacity = drive.capacity_blocks();
    let begun = Instant::now();
    let mut state = 1u64;
    for _ in 0..8 * capacity {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = ((state >> 33) * capacity) >> 31;
        drive.write(Nanos(0), block, 1, &[], None).unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let flash = drive.flash_counters();
    println!(
        "conventional drive, uniform writes, OP 12.5 %: {:.2} million page operations of the flash/s, {:.2} million \
         host writes/s, WAF {:.2}",
        (flash.pages_programmed + flash.pages_read + flash.blocks_erased) as f64 / seconds / 1e6,
        8.0 * capacity as f64 / seconds / 1e6,
        drive.counters().waf()
    );
    drive.verify_identity().unwrap();
}
