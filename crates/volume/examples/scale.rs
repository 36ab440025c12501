//! How a volume grows with its files: `scale IMAGE FILES build`, then `scale IMAGE FILES mount` for each mount to be measured.
//!
//! `build` makes FILES files of 100 bytes, a third of them in one directory and the others in directories of 1,000, and with `cut` as
//! a fourth argument ends without closing the volume. `mount` opens it, looks at each file, removes a tenth and makes them anew; `open`
//! does no more than open it.
//! Each line says what was done, how long it took, what memory the process has of its own afterwards, and the most that it had by
//! then, the shared table of checksums included (4 bytes for each block of the image).

// A measurement stops at the first thing that is not as it should be, and prints what it found.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;
use weft_core::Ino;
use weft_vfs::{CreateArgs, FileSystem, NewNode};
use weft_volume::mount::{self, MountChoice};

const IN_DIRECTORY: u64 = 1000;

fn memory_mib(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn step<R>(what: &str, count: u64, act: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = act();
    let time = began.elapsed().as_secs_f64();
    let (now, peak) = (memory_mib("RssAnon:"), memory_mib("VmHWM:"));
    println!("{what:24} {time:8.3} s {:10.0} /s {now:6} MiB, at most {peak} MiB", count as f64 / time);
    result
}

fn args(node: NewNode<'static>) -> CreateArgs<'static> {
    CreateArgs::new(node, 0o644)
}

/// Directory and name of a file.
fn place(file: u64, files: u64) -> (Option<u64>, String) {
    if file < files / 3 {
        (None, format!("file-{file:08}"))
    } else {
        (Some(file / IN_DIRECTORY), format!("file-{:08}", file % IN_DIRECTORY))
    }
}

fn directory(fs: &dyn FileSystem, number: Option<u64>, create: bool) -> Ino {
    let name = number.map_or("large".to_string(), |number| format!("dir-{number:06}"));
    match fs.lookup(Ino::ROOT, name.as_bytes()) {
        Err(_) if create => fs.create(Ino::ROOT, name.as_bytes(), &args(NewNode::Directory)).unwrap().ino,
        found => found.unwrap().ino,
    }
}

fn make(fs: &dyn FileSystem, numbers: impl Iterator<Item = u64>, files: u64) {
    let mut last = (u64::MAX, Ino::ROOT);
    for file in numbers {
        let (dir, name) = place(file, files);
        let key = dir.unwrap_or(0);
        if last.0 != key {
            last = (key, directory(fs, dir, true));
        }
        let ino = fs.create(last.1, name.as_bytes(), &args(NewNode::File)).unwrap().ino;
        fs.write(ino, 0, &[7; 100]).unwrap();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (image, files) = (Path::new(&args[1]), args[2].parse::<u64>().unwrap());
    let mounted = step("mount", 1, || mount::open(image, &MountChoice::default()).unwrap());
    if args[3] == "open" {
        return;
    }
    let core = mounted.core();
    let fs: &dyn FileSystem = &*core;
    if args[3] == "build" {
        step("create and write", files, || make(fs, 0..files, files));
        step("sync", 1, || fs.sync().unwrap());
        if args.get(4).is_some_and(|how| how == "cut") {
            // As a power cut leaves it: nothing is closed.
            std::process::exit(0);
        }
    } else {
        step("stat", files, || {
            let mut last = (u64::MAX, Ino::ROOT);
            for file in 0..files {
                let (dir, name) = place(file, files);
                let key = dir.unwrap_or(0);
                if last.0 != key {
                    last = (key, directory(fs, dir, false));
                }
                assert_eq!(fs.lookup(last.1, name.as_bytes()).unwrap().size, 100);
            }
        });
        let tenth = files / 10;
        step("unlink", tenth, || {
            for file in (0..files).step_by(10) {
                let (dir, name) = place(file, files);
                fs.unlink(directory(fs, dir, false), name.as_bytes()).unwrap();
            }
        });
        step("create and write", tenth, || make(fs, (0..files).step_by(10), files));
    }
    step("close", 1, || core.close().unwrap());
}
