//! Tests of programs as a whole.

mod codec;
mod names;
mod near;
mod operations;
mod policies;
mod random;

use super::*;
use crate::{FileKind, FileSystem, MemFs};
use weft_core::Ino;

/// All that programs see of a volume but times, as text.
fn dump(fs: &MemFs) -> String {
    let stats = fs.statfs().unwrap();
    let mut out = format!("{} inodes, {} bytes free\n", stats.inodes, stats.free_bytes);
    dump_node(fs, Ino::ROOT, "", &mut out);
    out
}

fn dump_node(fs: &MemFs, ino: Ino, path: &str, out: &mut String) {
    let attr = fs.getattr(ino).unwrap();
    *out += &format!(
        "{path}/ {ino} {:?} {:o} {} {}:{} {} {}",
        attr.kind, attr.perm, attr.links, attr.uid, attr.gid, attr.size, attr.blocks
    );
    let mut xattrs = fs.listxattr(ino).unwrap();
    xattrs.sort();
    for name in xattrs {
        *out += &format!(" {}={:?}", name.escape_ascii(), fs.getxattr(ino, &name).unwrap());
    }
    match attr.kind {
        FileKind::File => {
            let mut content = vec![0; attr.size as usize];
            fs.read(ino, 0, &mut content).unwrap();
            *out += &format!(" {:08x}\n", weft_core::checksum::crc32c(&content));
        }
        FileKind::Symlink => *out += &format!(" {}\n", fs.readlink(ino).unwrap().escape_ascii()),
        FileKind::Directory => {
            *out += "\n";
            let mut entries = Vec::new();
            let mut each = |entry: crate::DirEntry<'_>| {
                entries.push((entry.name.to_vec(), entry.ino));
                true
            };
            fs.readdir(ino, 0, &mut each).unwrap();
            entries.sort();
            for (name, ino) in entries {
                dump_node(fs, ino, &format!("{path}/{}", name.escape_ascii()), out);
            }
        }
        _ => *out += "\n",
    }
}

/// Runs a program as the superuser.
#[track_caller]
fn run_on(fs: &MemFs, chain: Chain) -> Answer {
    run(&Local::new(fs), &chain.check().unwrap())
}

/// Runs a program that succeeds.
#[track_caller]
fn done(fs: &MemFs, chain: Chain) -> Answer {
    let answer = run_on(fs, chain);
    assert_eq!(answer.failed(), None, "{answer:?}");
    answer
}

/// Makes a file.
fn file(fs: &MemFs, path: &str, content: &str) {
    let mut chain = Chain::each();
    let file = chain.create(path, 0o644, true);
    chain.append(file, content);
    done(fs, chain);
}

/// The content of a file.
fn content(fs: &MemFs, path: &str) -> Result<String, i32> {
    let mut chain = Chain::each();
    let file = chain.open(path, Access::Read);
    let bytes = chain.read(file, 0, 1 << 20);
    chain.export(bytes);
    let answer = run_on(fs, chain);
    match answer.failed() {
        Some((_, errno)) => Err(errno),
        None => Ok(String::from_utf8(answer.bytes(1).unwrap().to_vec()).unwrap()),
    }
}
