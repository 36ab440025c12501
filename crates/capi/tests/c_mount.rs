//! A program in C that is linked statically runs a chain through a mount.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use support::compile_statically;
use weft_device::Geometry;
use weft_fuse::{Kept, Mount, MountChoice};
use weft_server::Volume;

#[test]
fn a_static_program_replaces_two_files_while_readers_see_both_or_none() {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if device.is_err() || weft_sys::effective_user().0 != 0 {
        eprintln!("skipped: this user cannot mount");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("through_a_mount");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/through_a_mount.c");
    compile_statically(&source, &program);
    let elf = std::fs::read(&program).unwrap();
    assert!(!elf.windows(12).any(|bytes| bytes == b"/lib64/ld-li"), "it has a dynamic loader");

    let geometry = Geometry::preset("bbssd").unwrap().with_size(96 << 20).with_zone_bytes(1 << 20);
    let mounted = weft_volume::open_memory("mem".into(), &geometry, &weft_volume::MountChoice::default());
    let volume = Arc::new(Volume::new(Arc::new(mounted.unwrap())).unwrap());
    let dir = scratch.path().join("mnt");
    std::fs::create_dir(&dir).unwrap();
    let choice = MountChoice { source: "mem".into(), ..MountChoice::default() };
    let mount = Mount::new(volume, &dir, &choice, Kept::new().unwrap()).unwrap();
    let replace = |dir: &Path, number: u32| {
        let text = format!("{number} ").repeat(2000);
        Command::new(&program).arg(dir).arg(text).output().unwrap()
    };
    let number_of = |name: &str| -> u32 {
        let text = std::fs::read_to_string(dir.join(name)).unwrap();
        let number = text.split(' ').next().unwrap();
        assert_eq!(text, format!("{number} ").repeat(2000));
        number.parse().unwrap()
    };
    assert!(replace(&dir, 0).status.success());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [["first", "second"], ["second", "first"]].map(|names| {
            let (stop, number_of) = (&stop, &number_of);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    // What is looked at later is not older.
                    let seen = names.map(number_of);
                    assert!(seen[0] <= seen[1], "{seen:?}");
                }
            })
        });
        let all_done = (1..50).all(|number| replace(&dir, number).status.success());
        stop.store(true, Relaxed);
        assert!(all_done);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(["first", "second"].map(number_of), [49; 2]);
    let elsewhere = replace(scratch.path(), 1);
    let told = String::from_utf8(elsewhere.stderr).unwrap();
    assert!(!elsewhere.status.success() && told.contains("run a chain through a mount"), "{told}");
    mount.unmount().unwrap();
}
