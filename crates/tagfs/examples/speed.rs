//! How fast the core is by itself, without a front: small files made, read and deleted, and one large file.
//!
//! `cargo run --release -p weft-tagfs --example speed -- IMAGE [FILES [MIB [fine]]]`

#![allow(clippy::print_stdout, reason = "it is its output")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;
use weft_tagfs::{FormatOptions, Layout, MountOptions, TagFs};
use weft_tags::{FileStore, ReadPath};
use weft_vfs::{CreateArgs, FileSystem, Ino, NewNode};

/// Names in a directory.
const PER_DIRECTORY: u64 = 1000;
const PIECE_BYTES: usize = 128 << 10;

fn timed<T>(
    what: &str,
    count: u64,
    unit: &str,
    run: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let begun = Instant::now();
    let done = run()?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{what:34} {seconds:8.2} s {:10.0} {unit}/s", count as f64 / seconds);
    Ok(done)
}

fn open(image: &Path) -> Result<TagFs, Box<dyn Error>> {
    let medium = FileStore::open(image, ReadPath::Kernel)?;
    Ok(TagFs::mount(Box::new(medium), MountOptions::default())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("give IMAGE [FILES [MIB [fine]]]")?;
    let (files, mib) =
        (args.next().map_or(Ok(100_000), |n| n.parse())?, args.next().map_or(Ok(1024), |n| n.parse())?);
    let (files, mib): (u64, u64) = (files, mib);
    let image = Path::new(&image);
    let medium = FileStore::create(image, ReadPath::Kernel)?;
    let capacity_bytes = (2 << 30) + 2 * (mib << 20);
    let layout =
        if args.next().is_some_and(|layout| layout == "fine") { Layout::Fine } else { Layout::Whole };
    TagFs::format(Box::new(medium), &FormatOptions { capacity_bytes, layout, ..FormatOptions::default() })?;
    for size in [0usize, 1000, 16 << 10] {
        let fs = open(image)?;
        let (data, name) = (vec![7; size], |n: u64| format!("file{n}").into_bytes());
        let top = format!("of{size}").into_bytes();
        let top = fs.create(Ino::ROOT, &top, &CreateArgs::new(NewNode::Directory, 0o755))?.ino;
        let mut dirs = Vec::new();
        let mut inos = Vec::new();
        timed(&format!("create {files} of {size} B, sync"), files, "files", || {
            for n in 0..files {
                if n % PER_DIRECTORY == 0 {
                    dirs.push(fs.create(top, &name(n), &CreateArgs::new(NewNode::Directory, 0o755))?.ino);
                }
                let args = CreateArgs { open: true, ..CreateArgs::new(NewNode::File, 0o644) };
                let ino = fs.create(dirs[(n / PER_DIRECTORY) as usize], &name(n), &args)?.ino;
                fs.write(ino, 0, &data)?;
                fs.release(ino);
                inos.push(ino);
            }
            Ok(fs.sync()?)
        })?;
        fs.unmount()?;
        let fs = open(image)?;
        timed("list all, cold", files, "names", || {
            for dir in &dirs {
                fs.readdir(*dir, 0, &mut |_| true)?;
            }
            Ok(())
        })?;
        let mut out = vec![0; size.max(1)];
        timed("lookup and read all, cold", files, "files", || {
            for n in 0..files {
                let ino = fs.lookup(dirs[(n / PER_DIRECTORY) as usize], &name(n))?.ino;
                fs.read(ino, 0, &mut out)?;
            }
            Ok(())
        })?;
        timed("getattr all, warm", files, "files", || {
            for ino in &inos {
                fs.getattr(*ino)?;
            }
            Ok(())
        })?;
        timed("delete all, sync", files, "files", || {
            for n in 0..files {
                fs.unlink(dirs[(n / PER_DIRECTORY) as usize], &name(n))?;
            }
            Ok(fs.sync()?)
        })?;
        fs.unmount()?;
    }
    let fs = open(image)?;
    let large = fs.create(Ino::ROOT, b"large", &CreateArgs::new(NewNode::File, 0o644))?.ino;
    let mut piece = vec![5; PIECE_BYTES];
    let pieces = (mib << 20) / PIECE_BYTES as u64;
    timed("write, in order, fsync", mib, "MiB", || {
        for n in 0..pieces {
            piece[0] = n as u8;
            fs.write(large, n * PIECE_BYTES as u64, &piece)?;
        }
        Ok(fs.fsync(large)?)
    })?;
    timed("write 4 KiB anywhere, fsync", mib / 4, "MiB", || {
        for n in 0..mib * 64 {
            let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (mib * 256);
            fs.write(large, at * 4096, &piece[..4096])?;
        }
        Ok(fs.fsync(large)?)
    })?;
    fs.unmount()?;
    let fs = open(image)?;
    for what in ["read, in order, cold", "read, in order, warm"] {
        timed(what, mib, "MiB", || {
            for n in 0..pieces {
                fs.read(large, n * PIECE_BYTES as u64, &mut piece)?;
            }
            Ok(())
        })?;
    }
    timed("read 4 KiB anywhere", mib / 4, "MiB", || {
        for n in 0..mib * 64 {
            let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (mib * 256);
            fs.read(large, at * 4096, &mut piece[..4096])?;
        }
        Ok(())
    })?;
    timed("append 4 KiB and fsync, 1000 times", 1000, "fsyncs", || {
        let log = fs.create(Ino::ROOT, b"log", &CreateArgs::new(NewNode::File, 0o644))?.ino;
        for n in 0..1000 {
            fs.write(log, n * 4096, &piece[..4096])?;
            fs.fsync(log)?;
        }
        Ok(())
    })?;
    timed("delete the large file, sync", 1, "files", || {
        fs.unlink(Ino::ROOT, b"large")?;
        Ok(fs.sync()?)
    })?;
    Ok(fs.unmount()?)
}
