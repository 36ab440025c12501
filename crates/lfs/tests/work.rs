//! What commands cost, in bytes that the device moves: over ten times as many files, or as much data, no more than that much
//! more; and what one operation costs does not depend on how much there is.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{fresh, options, small};
use std::sync::Arc;
use weft_core::Ino;
use weft_device::{PowerCut, ZonedDevice};
use weft_lfs::salvage::salvage;
use weft_lfs::{Lfs, MountOptions, fsck};
use weft_vfs::{CreateArgs, FileSystem, NewNode, RenameFlags};

/// By how much the second volume is larger.
const TIMES: u64 = 10;
/// Files of the first.
const FILES: u64 = 300;
/// What ten times as much may cost more than ten times as much: whole zones and blocks are moved.
const SLACK: u64 = 2;
/// Operations of which the mean is taken.
const OPERATIONS: u64 = 200;

fn args() -> CreateArgs<'static> {
    CreateArgs::new(NewNode::File, 0o644)
}

fn name(n: u64) -> Vec<u8> {
    format!("a file of the directory, {n}").into_bytes()
}

/// Bytes read and written, with a command for each block that a command moves none of.
fn moved(device: &PowerCut) -> u64 {
    let counters = device.device().counters();
    let written = counters.host_bytes + counters.gc_bytes + counters.metadata_bytes;
    counters.read_bytes + written + 4096 * (counters.flushes + counters.resets)
}

/// A volume with this many files in one directory, and one file with as many blocks, of which each second one was overwritten.
fn filled(files: u64) -> (Arc<PowerCut>, Lfs) {
    let (device, fs) = fresh(&small(256 << 20, 1 << 20));
    for n in 0..files {
        let ino = fs.create(Ino::ROOT, &name(n), &args()).unwrap().ino;
        fs.write(ino, 0, &[n as u8; 5000]).unwrap();
    }
    let large = fs.create(Ino::ROOT, b"large", &args()).unwrap().ino;
    fs.write_through(large, 0, &vec![1; files as usize * 4096]).unwrap();
    for n in (0..files).step_by(2) {
        fs.write_through(large, n * 4096, &[2; 4096]).unwrap();
    }
    fs.sync().unwrap();
    (device, fs)
}

/// What a volume of `files` files costs: a name, and bytes.
fn of_the_whole(files: u64) -> Vec<(&'static str, u64)> {
    let (device, fs) = filled(files);
    let mut costs = Vec::new();
    let mut measure = |what, device: &PowerCut, work: &mut dyn FnMut()| {
        let before = moved(device);
        work();
        costs.push((what, moved(device) - before));
    };
    let crashed = Arc::new(device.reopen(1).unwrap());
    measure("mount after a power cut", &crashed, &mut || {
        drop(Lfs::mount(crashed.clone(), options()).unwrap())
    });
    fs.unmount().unwrap();
    measure("check", &device, &mut || assert!(fsck::check(device.clone()).unwrap().is_clean()));
    let mut mounted = None;
    measure("mount", &device, &mut || mounted = Some(Lfs::mount(device.clone(), options()).unwrap()));
    let fs = mounted.unwrap();
    measure("list, space and zones", &device, &mut || {
        let mut seen = 0;
        let mut each = |_: weft_vfs::DirEntry<'_>| {
            seen += 1;
            true
        };
        fs.readdir(Ino::ROOT, 0, &mut each).unwrap();
        assert_eq!(seen, files + 1);
        fs.statfs().unwrap();
        fs.zones();
    });
    measure("read all", &device, &mut || {
        let mut out = vec![0; 5000];
        for n in 0..files {
            let ino = fs.lookup(Ino::ROOT, &name(n)).unwrap().ino;
            assert_eq!(fs.read(ino, 0, &mut out).unwrap(), 5000);
        }
    });
    measure("close", &device, &mut || fs.close().unwrap());
    drop(fs);
    let from = MountOptions { salvage: true, ..options() };
    let from = Lfs::mount(device.clone(), from).unwrap();
    measure("salvage", &device, &mut || assert!(salvage(&from, None, &mut |_, _| {}).unwrap().is_complete()));
    costs
}

#[test]
fn ten_times_as_much_costs_about_ten_times_as_much() {
    let (once, more) = (of_the_whole(FILES), of_the_whole(FILES * TIMES));
    for ((what, once), (_, more)) in once.into_iter().zip(more) {
        println!("{what}: {once} bytes for {FILES} files, {more} for {TIMES} times as many");
        assert!(
            more <= once.max(4096) * TIMES * SLACK,
            "{what}: {once} bytes, {more} for {TIMES} times as many"
        );
    }
}

/// What an operation on a volume of `files` files costs: a name, and bytes of [`OPERATIONS`] of them, each made durable.
fn of_one(files: u64) -> Vec<(&'static str, u64)> {
    let (device, fs) = filled(files);
    let large = fs.lookup(Ino::ROOT, b"large").unwrap().ino;
    let new = |n: u64| format!("new {n}").into_bytes();
    let renamed = |n: u64| format!("renamed {n}").into_bytes();
    type Operation<'a> = (&'static str, Box<dyn Fn(u64) + 'a>);
    let operations: [Operation<'_>; 7] = [
        ("create", Box::new(|n| _ = fs.create(Ino::ROOT, &new(n), &args()).unwrap())),
        (
            "rename",
            Box::new(|n| {
                fs.rename(Ino::ROOT, &new(n), Ino::ROOT, &renamed(n), RenameFlags::empty()).unwrap()
            }),
        ),
        ("unlink", Box::new(|n| fs.unlink(Ino::ROOT, &renamed(n)).unwrap())),
        ("append", Box::new(|n| fs.write(large, files * 4096 + n * 100, &[3; 100]).unwrap())),
        ("overwrite", Box::new(|n| fs.write(large, n * 4096, &[4; 4096]).unwrap())),
        ("read", Box::new(|n| assert_eq!(fs.read(large, n * 4096, &mut [0; 4096]).unwrap(), 4096))),
        ("look up", Box::new(|n| _ = fs.lookup(Ino::ROOT, &name(n)).unwrap())),
    ];
    let measured = operations.iter().map(|(what, operation)| {
        let before = moved(&device);
        for n in 0..OPERATIONS {
            operation(n);
            fs.fsync(large).unwrap();
        }
        (*what, moved(&device) - before)
    });
    measured.collect()
}

#[test]
fn an_operation_costs_the_same_however_much_there_is() {
    let (few, many) = (of_one(FILES), of_one(FILES * TIMES));
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        println!("{what}: {few} bytes among {FILES} files, {many} among {TIMES} times as many");
        assert!(many <= few.max(4096) * SLACK, "{what}: {few} bytes, {many} among {TIMES} times as many");
    }
}
