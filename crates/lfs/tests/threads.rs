//! Several threads at once on a volume that is nearly full: each finds its own files as it left them, the accounts are
//! right, the check is clean.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::{assert_sound, fresh, small};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{Ino, LifetimeGroup, StreamId, Tag};
use weft_lfs::Lfs;
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode, RenameFlags, SetAttr};

const THREADS: u64 = 4;
const STEPS: usize = 1500;

fn work(fs: &Lfs, thread: u64) -> BTreeMap<String, Vec<u8>> {
    let mut rng = StdRng::seed_from_u64(thread);
    let tag = Tag { stream: StreamId(thread as u16), group: LifetimeGroup(0), ..Tag::default() };
    let args = |node| CreateArgs { node, perm: 0o755, uid: 0, gid: 0, tag, open: false };
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

#[test]
fn threads_on_a_nearly_full_volume_find_their_files_as_they_left_them() {
    let (device, fs) = fresh(&small(20 << 20, 256 << 10));
    let fs = Arc::new(fs);
    // Leaves a little less than the threads would like to have.
    let args =
        CreateArgs { node: NewNode::File, perm: 0o644, uid: 0, gid: 0, tag: Tag::default(), open: false };
    let ballast = fs.create(Ino::ROOT, b"ballast", &args).unwrap().ino;
    let bytes = fs.statfs().unwrap().free_bytes.saturating_sub(5 << 20);
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
            std::thread::spawn(move || work(&fs, thread))
        })
        .collect();
    let files: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    done.store(true, Ordering::Relaxed);
    ticker.join().unwrap();
    assert_eq!(fs.recount(), [""; 0]);
    fs.close().unwrap();
    assert_sound(&device);
    for (thread, files) in files.iter().enumerate() {
        let dir = fs.lookup(Ino::ROOT, format!("d{thread}").as_bytes()).unwrap().ino;
        for (name, content) in files {
            let attr = fs.lookup(dir, name.as_bytes()).unwrap();
            let mut out = vec![0; attr.size as usize];
            fs.read(attr.ino, 0, &mut out).unwrap();
            assert!(out == *content, "thread {thread}, {name}");
        }
    }
}
