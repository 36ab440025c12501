//! The kinds of work: as plain calls, as a program, and as a chain of io_uring.

use super::linked::Linked;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_core::checksum::crc32c;
use weft_core::{Ino, Tag};
use weft_vfs::compound::{Access, Arith, Chain};
use weft_vfs::{CreateArgs, FileSystem, FsResult, NewNode};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Blocks of the file that is read and changed.
const BLOCKS: u64 = 16;
/// Changes of a program, at most: as many places are its inputs.
pub const PLACES: usize = 8;

/// What work is done on.
pub struct Files {
    pub dir: PathBuf,
    file: File,
    log: File,
    block: [u8; BLOCK],
}

impl Files {
    pub fn make(dir: &Path) -> io::Result<Files> {
        let dir = dir.join("compound");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let block = [7; BLOCK];
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("file"))?;
        for at in 0..BLOCKS {
            file.write_all_at(&block, at * BLOCK as u64)?;
        }
        file.sync_all()?;
        let log = OpenOptions::new().append(true).create_new(true).open(dir.join("log"))?;
        fs::write(dir.join("config"), block)?;
        Ok(Files { dir, file, log, block })
    }

    /// A block of the file, in turns.
    pub fn place(i: u64) -> u64 {
        i % BLOCKS * BLOCK as u64
    }

    /// Changes a number in a block.
    fn change(&mut self, at: u64) -> io::Result<()> {
        self.file.read_exact_at(&mut self.block, at)?;
        let number = self.block.first_chunk_mut::<8>().map_or([0; 8], |number| *number);
        let next = u64::from_le_bytes(number).wrapping_add(1);
        self.block[..8].copy_from_slice(&next.to_le_bytes());
        self.file.write_all_at(&self.block, at)
    }
}

/// The file and the log on a volume of this process, which are given to its programs.
pub fn make_in(fs: &dyn FileSystem) -> FsResult<[Ino; 2]> {
    let file = |dir: Ino, name: &[u8]| {
        let args = CreateArgs { tag: Tag::default(), ..CreateArgs::new(NewNode::File, 0o644) };
        match fs.lookup(dir, name) {
            Ok(attr) => Ok(attr.ino),
            Err(_) => fs.create(dir, name, &args).map(|attr| attr.ino),
        }
    };
    let dir = match fs.lookup(Ino::ROOT, b"compound") {
        Ok(attr) => attr.ino,
        Err(_) => fs.create(Ino::ROOT, b"compound", &CreateArgs::new(NewNode::Directory, 0o755))?.ino,
    };
    let [of_blocks, log, config] = [file(dir, b"file")?, file(dir, b"log")?, file(dir, b"config")?];
    fs.write(of_blocks, 0, &[7; BLOCKS as usize * BLOCK])?;
    fs.write(config, 0, &[7; BLOCK])?;
    fs.sync()?;
    Ok([of_blocks, log])
}

/// A kind of work. The file and the log are given to its program.
pub struct Work {
    pub name: &'static str,
    pub calls: fn(&mut Files, u64) -> io::Result<()>,
    pub chain: fn() -> Chain,
    pub linked: Option<fn(&mut Linked) -> io::Result<()>>,
}

/// Changes a number in each of the first `count` places that are the program's inputs.
fn changing(count: u8) -> Chain {
    let mut chain = Chain::all();
    let file = chain.given(0);
    for place in 0..count {
        let at = chain.input_num(place);
        let block = chain.read(file, at, BLOCK as u64);
        let number = chain.unpack(block, 0, 8);
        let next = chain.arith(number, Arith::Add, 1);
        let bytes = chain.pack(next, 8);
        let changed = chain.patch(block, 0, bytes);
        chain.write(file, at, changed);
    }
    chain
}

/// Appends a block and its CRC32C.
fn appending(mut chain: Chain) -> Chain {
    let log = chain.given(1);
    let block = vec![7; BLOCK];
    let crc = chain.crc32c(block.as_slice());
    let crc = chain.pack(crc, 4);
    let both = chain.concat([block.into(), crc.into()]);
    chain.append(log, both);
    chain
}

fn append(files: &mut Files) -> io::Result<()> {
    let crc = crc32c(&files.block).to_le_bytes();
    files.log.write_all(&[&files.block[..], &crc].concat())
}

pub const WORK: [Work; 6] = [
    Work {
        name: "open, read 4 KiB, close",
        calls: |files, _| File::open(files.dir.join("file"))?.read_exact(&mut files.block),
        chain: || {
            let mut chain = Chain::all();
            let file = chain.open("/compound/file", Access::Read);
            let bytes = chain.read(file, 0, BLOCK as u64);
            chain.export(bytes);
            chain
        },
        linked: Some(Linked::open_read_close),
    },
    Work {
        name: "read 4 KiB, change, write",
        calls: |files, i| files.change(Files::place(i)),
        chain: || changing(1),
        linked: None,
    },
    Work {
        name: "the same, 8 times",
        calls: |files, i| (i..i + PLACES as u64).try_for_each(|i| files.change(Files::place(i))),
        chain: || changing(PLACES as u8),
        linked: None,
    },
    Work {
        name: "append 4 KiB and its CRC32C",
        calls: |files, _| append(files),
        chain: || appending(Chain::all()),
        linked: None,
    },
    Work {
        name: "the same with the policy each",
        calls: |files, _| append(files),
        chain: || appending(Chain::each()),
        linked: None,
    },
    Work {
        name: "replace a file durably",
        calls: |files, _| {
            let (new, named) = (files.dir.join("config.new"), files.dir.join("config"));
            let mut file = File::create_new(&new)?;
            file.write_all(&files.block)?;
            file.sync_all()?;
            fs::rename(&new, &named)?;
            File::open(&files.dir)?.sync_all()
        },
        chain: || {
            let mut chain = Chain::all().durable();
            let file = chain.create("/compound/config.new", 0o644, true);
            chain.write(file, 0, vec![7; BLOCK]);
            chain.rename("/compound/config.new", "/compound/config");
            chain
        },
        linked: Some(Linked::replace_durably),
    },
];
