//! How fast codecs and functions are on this machine: `cargo run --release -p weft-compute --example speed`.

// A command prints, and what it unwraps cannot fail.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};
use weft_compute::{Codec, Limits, Module, Modules, compress, decompress};
use weft_core::checksum::crc32c;

const LIMITS: Limits = Limits { fuel: 1_000_000_000, output_bytes: 16 << 20 };

/// The median of many rounds, in nanoseconds.
fn ns(mut round: impl FnMut()) -> f64 {
    let mut took = Vec::new();
    let begun = Instant::now();
    while took.len() < 9 || begun.elapsed() < Duration::from_millis(500) {
        let begun = Instant::now();
        round();
        took.push(begun.elapsed().as_nanos() as f64);
    }
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// Lines of a log: text that repeats itself, with numbers that do not.
fn log(len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut num = 1u64;
    while bytes.len() < len {
        num = num.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (user, time) = (num >> 50, num >> 40);
        bytes.extend(
            format!("INFO user={user} request served in {time} us, cache=hit, key={num:016x}\n").bytes(),
        );
    }
    bytes.truncate(len);
    bytes
}

fn main() {
    println!("MB/s of content             4 KiB      4 MiB    compressed to");
    for (codec, level) in
        [(Codec::Lz4, 0), (Codec::Lz4Block, 0), (Codec::Zstd, 1), (Codec::Zstd, 3), (Codec::Zstd, 9)]
    {
        let speeds = [4 << 10, 4 << 20].map(|len| {
            let bytes = log(len);
            let packed = compress(&bytes, codec, level, usize::MAX).unwrap();
            let forth = ns(|| drop(compress(&bytes, codec, level, usize::MAX)));
            let back = ns(|| drop(decompress(&packed, codec, len)));
            let speed = |ns: f64| len as f64 * 1e3 / ns;
            (speed(forth), speed(back), packed.len() * 100 / len)
        });
        let [(small_forth, small_back, _), (forth, back, percent)] = speeds;
        let name = format!("{codec:?} {level}");
        println!("{name:<12} compress   {small_forth:>8.0}   {forth:>8.0}    {percent:>3} %");
        println!("{name:<12} decompress {small_back:>8.0}   {back:>8.0}");
    }
    let crc = |len: usize| {
        let bytes = log(len);
        let mut sum = 0;
        len as f64 * 1e3 / ns(|| sum ^= crc32c(std::hint::black_box(&bytes)))
    };
    println!("{:<23} {:>8.0}   {:>8.0}", "CRC32C", crc(4 << 10), crc(4 << 20));

    let sum = wat::parse_str(include_str!("../modules/sum_column.wat")).unwrap();
    let rows = |rows: usize| [&8u32.to_le_bytes()[..], &0u32.to_le_bytes(), &vec![0; 8 * rows]].concat();
    let (modules, few, many) = (Modules::new(), rows(16), rows(500_000));
    let call = |module: &Module, input: &[u8]| drop(module.call(input, LIMITS, &mut |_| true).unwrap());
    println!("a module of {} bytes that sums 16 rows:", sum.len());
    println!("  compile                {:>8.0} ns", ns(|| drop(Module::compile(&sum).unwrap())));
    println!("  compile and call       {:>8.0} ns", ns(|| call(&Module::compile(&sum).unwrap(), &few)));
    println!("  call, module kept      {:>8.0} ns", ns(|| call(&modules.get(&sum).unwrap(), &few)));
    let module = Module::compile(&sum).unwrap();
    println!("  4 MB of rows           {:>8.0} MB/s", many.len() as f64 * 1e3 / ns(|| call(&module, &many)));
    let used = module.call(&many, LIMITS, &mut |_| true).unwrap().fuel;
    println!("  a unit of fuel         {:>8.2} ns", ns(|| call(&module, &many)) / used as f64);
}
