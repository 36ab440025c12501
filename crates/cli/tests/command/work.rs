//! What commands read of the device: over ten times as many files and as much data, no more than that much more.

use crate::server::Serving;
use crate::volume::{Bench, noise};

/// By how much the second volume is larger.
const TIMES: u64 = 10;
/// Files of the first, and bytes of its large file. A larger one than ten times this is read twice by an export to a pipe.
const FILES: u64 = 40;
const LARGE_BYTES: u64 = 400_000;
/// What ten times as much may cost more than ten times as much: whole blocks are read.
const SLACK: u64 = 2;

/// Bytes that a command reads of the device, and those of its files.
fn costs(times: u64, commands: &[&[&str]]) -> (Vec<u64>, u64) {
    let bench = Bench::with_volume();
    for n in 0..FILES * times {
        bench.file(&format!("tree/{n}"), noise(5000, n));
    }
    bench.file("tree/large", noise((LARGE_BYTES * times) as usize, 3));
    bench.weft(&["cp", "-qr", "tree", "vol.img:/"]).success();
    let server = Serving::start(&bench);
    let read = || bench.json(&["stats", "--json", "vol.img"])["device"]["read_bytes"].as_u64().unwrap();
    let costs = commands
        .iter()
        .map(|args| {
            let before = read();
            bench.weft(args).success();
            read() - before
        })
        .collect();
    drop(server);
    (costs, FILES * times * 5000 + LARGE_BYTES * times)
}

#[test]
fn commands_read_in_proportion_to_what_there_is_and_each_byte_once() {
    let commands: [&[&str]; 7] = [
        &["df", "vol.img"],
        &["stats", "vol.img"],
        &["zones", "vol.img"],
        &["ls", "-lR", "vol.img:/"],
        &["export", "vol.img", "vol.tar"],
        &["export", "vol.img"],
        &["cp", "-qr", "vol.img:/", "out"],
    ];
    let (few, few_bytes) = costs(1, &commands);
    let (many, many_bytes) = costs(TIMES, &commands);
    for ((args, few), many) in commands.iter().zip(&few).zip(&many) {
        let most = few * (TIMES + SLACK) + (64 << 10);
        assert!(*many <= most, "{args:?}: {few} bytes of few files, {many} of {TIMES} times as many");
        let metadata = if args[0] == "export" || args[0] == "cp" { many_bytes } else { 0 };
        // A packed tail is read as a whole block.
        let (least, most) = (metadata / 2, metadata * 2);
        assert!(metadata == 0 || (least..most).contains(many), "{args:?}: {many} bytes of {metadata}");
        assert!(metadata > 0 || *many <= few + (64 << 10), "{args:?}: {few}, then {many} bytes");
    }
    assert!(few_bytes * TIMES == many_bytes);
}
