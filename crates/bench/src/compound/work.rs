//! The kinds of work: as plain calls, as a program, and as a chain of io_uring.

use super::linked::Linked;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weft_core::checksum::crc32c;
use weft_core::{Ino, Tag};
use weft_vfs::compound::{Access, Arith, Chain, Codec, Input, Native, Near};
use weft_vfs::{CreateArgs, FileSystem, FsResult, NewNode, SetAttr};

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
    // What was appended in the round before.
    fs.setattr(log, &SetAttr { size: Some(0), ..SetAttr::default() })?;
    fs.sync()?;
    Ok([of_blocks, log])
}

/// A kind of work. The file and the log are given to its program.
pub struct Work {
    pub name: &'static str,
    pub calls: fn(&mut Files, u64) -> io::Result<()>,
    pub chain: fn() -> Chain,
    /// What comes with the run of the program with this number.
    pub inputs: fn(u64) -> Vec<Input<'static>>,
    /// Programs are posted, instead of being run in batches.
    pub is_posted: bool,
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

/// Bytes that are compressed.
const TEXT: usize = 64 << 10;

/// Bytes that compress to about a third, as records of a log do.
fn text() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let line = |i: u64| {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!(
                "2026-01-01 00:00:{:02} request {mixed:016x} of user {:05} took {} us\n",
                i % 60,
                mixed % 99_991,
                mixed >> 52
            )
        };
        let mut bytes: Vec<u8> = (0..TEXT as u64 / 32).flat_map(|i| line(i).into_bytes()).collect();
        bytes.truncate(TEXT);
        bytes
    })
}

fn places(i: u64) -> Vec<Input<'static>> {
    (i..i + PLACES as u64).map(|i| Input::Num(Files::place(i))).collect()
}

pub const WORK: [Work; 7] = [
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
        inputs: places,
        is_posted: false,
        linked: Some(Linked::open_read_close),
    },
    Work {
        name: "read 4 KiB, change, write",
        calls: |files, i| files.change(Files::place(i)),
        chain: || changing(1),
        inputs: places,
        is_posted: false,
        linked: None,
    },
    Work {
        name: "the same, 8 times",
        calls: |files, i| (i..i + PLACES as u64).try_for_each(|i| files.change(Files::place(i))),
        chain: || changing(PLACES as u8),
        inputs: places,
        is_posted: false,
        linked: None,
    },
    Work {
        name: "append 4 KiB and its CRC32C",
        calls: |files, _| append(files),
        chain: || appending(Chain::all()),
        inputs: places,
        is_posted: false,
        linked: None,
    },
    Work {
        name: "the same with the policy each",
        calls: |files, _| append(files),
        chain: || appending(Chain::each()),
        inputs: places,
        is_posted: false,
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
        inputs: places,
        is_posted: false,
        linked: Some(Linked::replace_durably),
    },
    Work {
        name: "compress 64 KiB and append",
        calls: |files, _| {
            let packed = Native.compress(text(), Codec::Lz4, 0, 2 * TEXT, None);
            files.log.write_all(&packed.map_err(io::Error::other)?)
        },
        chain: || {
            let mut chain = Chain::all();
            let log = chain.given(1);
            let bytes = chain.input_bytes(0);
            let packed = chain.compress(bytes, Codec::Lz4, 0);
            chain.append(log, packed);
            chain
        },
        inputs: |_| vec![Input::Bytes(text())],
        is_posted: true,
        linked: None,
    },
];
