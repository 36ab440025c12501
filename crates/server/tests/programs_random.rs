//! Random programs of a client, among its plain calls, against the same on a file system in memory: the same answers, the same tree.
//!
//! `WEFT_CAMPAIGN=1` makes 100,000 programs, `WEFT_CAMPAIGN=10` ten times as many, otherwise a slice of them; `WEFT_SEED=n` runs the hundred of one seed, and compares the trees
//! after each.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::collections::BTreeMap;
use weft_client::{Client, FileRef, WireDirent};
use weft_conformance::programs::{Maker, NAMES, comparable, text};
use weft_core::Ino;
use weft_vfs::compound::{Local, run};
use weft_vfs::{FileKind, FileSystem, MemFs};

/// What is at each path: kind and permission bits, links, and content.
type Tree = BTreeMap<Vec<u8>, (u32, u32, Vec<u8>)>;

fn tree_of(fs: &MemFs, dir: Ino, path: &[u8], out: &mut Tree) {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.ino));
        true
    })
    .unwrap();
    for (name, ino) in entries {
        let (attr, path) = (fs.getattr(ino).unwrap(), [path, b"/", &name].concat());
        let content = match attr.kind {
            FileKind::File => {
                let mut bytes = vec![0; attr.size as usize];
                fs.read(ino, 0, &mut bytes).unwrap();
                bytes.extend(fs.getxattr(ino, b"user.x").unwrap_or_default());
                bytes
            }
            FileKind::Symlink => fs.readlink(ino).unwrap(),
            _ => fs.getxattr(ino, b"user.x").unwrap_or_default(),
        };
        out.insert(path.clone(), (attr.mode(), attr.links, content));
        if attr.kind == FileKind::Directory {
            tree_of(fs, ino, &path, out);
        }
    }
}

fn xattr(client: &Client, path: &[u8]) -> Vec<u8> {
    let mut value = [0; 16];
    let len =
        client.get_xattr(FileRef::ROOT, path, libc::AT_SYMLINK_NOFOLLOW, b"user.x", &mut value).unwrap_or(0);
    value[..len].to_vec()
}

fn tree_by(client: &Client, path: &[u8], out: &mut Tree) {
    let at = if path.is_empty() { b"/" } else { path };
    let dir = client.open(FileRef::ROOT, at, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    let (mut names, mut cookie, mut buffer) = (Vec::new(), 0, vec![0; 64 << 10]);
    loop {
        let len = client.read_dir(dir, cookie, &mut buffer).unwrap();
        let mut rest = &buffer[..len];
        while let Some((entry, name, others)) = WireDirent::split_first(rest) {
            names.push(name.to_vec());
            (cookie, rest) = (entry.cookie, others);
        }
        if len == 0 {
            break;
        }
    }
    client.close(dir).unwrap();
    for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
        let path = [path, b"/", &name].concat();
        let attr = client.stat(FileRef::ROOT, &path, libc::AT_SYMLINK_NOFOLLOW).unwrap();
        let content = match attr.mode & libc::S_IFMT {
            libc::S_IFREG => {
                let file = client.open(FileRef::ROOT, &path, libc::O_RDONLY, 0).unwrap().file;
                let mut bytes = vec![0; attr.size as usize];
                let mut done = 0;
                while done < bytes.len() {
                    done += client.pread(file, &mut bytes[done..], done as u64).unwrap();
                }
                client.close(file).unwrap();
                bytes.extend(xattr(client, &path));
                bytes
            }
            libc::S_IFLNK => {
                let mut target = [0; 256];
                let len = client.readlink(FileRef::ROOT, &path, &mut target).unwrap();
                target[..len].to_vec()
            }
            _ => xattr(client, &path),
        };
        out.insert(path.clone(), (attr.mode, attr.links, content));
        if attr.mode & libc::S_IFMT == libc::S_IFDIR {
            tree_by(client, &path, out);
        }
    }
}

/// A plain call of a client that holds a file open, by ring and area where it may, and the same on the other side.
fn plain_call(client: &Client, fs: &MemFs, maker: &mut Maker) {
    let path = NAMES[maker.roll(3) as usize].as_bytes();
    let Ok(open) = client.open(FileRef::ROOT, path, libc::O_RDWR | libc::O_NOFOLLOW, 0) else { return };
    let ino = fs.lookup(Ino::ROOT, &path[1..]).unwrap().ino;
    for _ in 0..maker.roll(4) {
        let bytes = maker.bytes();
        let size = client.fstat(open.file).unwrap().size;
        let at = if maker.roll(2) == 0 { size } else { maker.roll(size + 1) };
        client.pwrite(open.file, &bytes, at).unwrap();
        fs.write(ino, at, &bytes).unwrap();
    }
    // Kept open now and then, with what its ring holds.
    if maker.roll(3) != 0 {
        client.close(open.file).unwrap();
    }
}

#[test]
fn programs_among_plain_calls_answer_and_leave_what_they_do_in_memory() {
    let times = std::env::var("WEFT_CAMPAIGN").map_or(0, |times| times.parse().unwrap_or(1));
    let rounds = if times > 0 { 1000 * times } else { 12 };
    let seed: Option<u64> = std::env::var("WEFT_SEED").ok().map(|seed| seed.parse().unwrap());
    let (seeds, every) = seed.map_or((1..=rounds, 10), |seed| (seed..=seed, 1));
    let (mut done, mut failed) = (0u32, 0u32);
    for seed in seeds {
        let rig = Rig::new(64 << 20);
        let client = rig.client();
        let fs = MemFs::new();
        let mut maker = Maker::new(seed);
        for step in 0..100 {
            if maker.roll(2) == 0 {
                plain_call(&client, &fs, &mut maker);
            }
            maker.look(&fs);
            let program = maker.program().check().unwrap();
            let expected = comparable(run(&Local::new(&fs), &program));
            let answer = comparable(client.run_program(FileRef::ROOT, 0, &[], &program).unwrap());
            assert!(
                answer == expected,
                "seed {seed}, step {step}: {}\n{answer:?}\ninstead of\n{expected:?}",
                text(&program)
            );
            if answer.failed().is_some() {
                failed += 1
            } else {
                done += 1
            }
            if step % every == every - 1 {
                let (mut there, mut wanted) = (Tree::new(), Tree::new());
                tree_by(&client, b"", &mut there);
                tree_of(&fs, Ino::ROOT, b"", &mut wanted);
                let differs: Vec<_> = wanted
                    .keys()
                    .chain(there.keys())
                    .filter(|path| wanted.get(*path) != there.get(*path))
                    .collect();
                assert!(
                    differs.is_empty(),
                    "seed {seed}, step {step}: {:?} differ",
                    differs.iter().map(|path| path.escape_ascii().to_string()).collect::<Vec<_>>()
                );
            }
        }
    }
    assert!(seed.is_some() || done > failed / 5 && failed > done / 5, "{done} done, {failed} failed");
}
