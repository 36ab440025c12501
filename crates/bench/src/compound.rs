//! What programs of several operations cost, beside the same operations as plain calls, on a volume and on the disk's file system.
//!
//! A child does each kind of work some thousand times and prints the median of each. On the disk, which has no programs, the plain calls
//! stand on both lines.

use crate::Common;
use crate::disk::{Scratch, format, under};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit, median};
use crate::rounds;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use weft_client::{Client, ConnectOptions, FileRef, OpenFile};
use weft_core::checksum::crc32c;
use weft_vfs::compound::{Access, Chain, Checked, Num};

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Blocks of the file that is read and changed.
const BLOCKS: u64 = 16;
/// Changes in a batch.
const BATCH: u64 = 8;
/// Work that flushes takes so much longer that there is less of it.
const FLUSHES_LESS: u32 = 10;

/// Compares all work.
pub fn compare(common: &Common, count: u32) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("own path", e))?;
    let scratch = Scratch::new(common, "compound")?;
    let (native, image) = (scratch.fresh("native")?, scratch.fresh("vol.img")?);
    fs::create_dir(&native).map_err(|e| BenchError::io(native.display(), e))?;
    format(&weft, &image, "512M")?;
    let child = |mut command: Command, dir: &Path| {
        command.arg("compound-loop").arg(dir).arg(count.to_string());
        Ok(command)
    };
    rounds::compare(
        "",
        Unit::MicrosPerOperation,
        common.pairs,
        || child(Command::new(&own), &native),
        || child(under(&weft, &image, &own), Path::new("/weft")),
    )
}

/// What work is done on.
struct Files {
    dir: PathBuf,
    file: File,
    log: File,
    block: [u8; BLOCK],
}

impl Files {
    fn make(dir: &Path) -> io::Result<Files> {
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
    fn place(i: u64) -> u64 {
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

/// Work as plain calls, and as a program to which the file and the log are given.
struct Work {
    name: &'static str,
    calls: fn(&mut Files, u64) -> io::Result<()>,
    program: fn(u64) -> Chain,
}

fn changes(chain: &mut Chain, places: impl Iterator<Item = u64>) {
    let file = chain.given(0);
    for at in places {
        let block = chain.read(file, at, BLOCK as u64);
        let number = chain.unpack(block, 0, 8);
        let next = chain.arith(number, weft_vfs::compound::Arith::Add, 1);
        let bytes = chain.pack(next, 8);
        let changed = chain.patch(block, 0, bytes);
        chain.write(file, at, changed);
    }
}

const WORK: [Work; 5] = [
    Work {
        name: "open, read 4 KiB, close",
        calls: |files, _| File::open(files.dir.join("file"))?.read_exact(&mut files.block),
        program: |_| {
            let mut chain = Chain::all();
            let file = chain.open("/compound/file", Access::Read);
            let bytes = chain.read(file, 0, BLOCK as u64);
            chain.export(bytes);
            chain
        },
    },
    Work {
        name: "read 4 KiB, change, write",
        calls: |files, i| files.change(Files::place(i)),
        program: |i| {
            let mut chain = Chain::all();
            changes(&mut chain, std::iter::once(Files::place(i)));
            chain
        },
    },
    Work {
        name: "the same, 8 times",
        calls: |files, i| (i..i + BATCH).try_for_each(|i| files.change(Files::place(i))),
        program: |i| {
            let mut chain = Chain::all();
            changes(&mut chain, (i..i + BATCH).map(Files::place));
            chain
        },
    },
    Work {
        name: "append 4 KiB and its CRC32C",
        calls: |files, _| {
            let crc = crc32c(&files.block).to_le_bytes();
            files.log.write_all(&[&files.block[..], &crc].concat())
        },
        program: |_| {
            let mut chain = Chain::all();
            let log = chain.given(1);
            let block = vec![7; BLOCK];
            let crc = chain.crc32c(block.as_slice());
            let crc = chain.pack(crc, 4);
            let both = chain.concat([block.into(), crc.into()]);
            chain.append(log, both);
            chain
        },
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
        program: |_| {
            let mut chain = Chain::all().durable();
            let file = chain.create("/compound/config.new", 0o644, true);
            chain.write(file, Num::Lit(0), vec![7; BLOCK]);
            chain.rename("/compound/config.new", "/compound/config");
            chain
        },
    },
];

fn median_micros(count: u32, mut act: impl FnMut(u64) -> io::Result<()>) -> io::Result<f64> {
    let mut micros = Vec::with_capacity(count as usize);
    for i in 0..u64::from(count) {
        let begun = Instant::now();
        act(i)?;
        micros.push(begun.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(median(&micros))
}

/// The connection by which the child runs programs, with the file and the log open; none on the disk.
fn connected() -> io::Result<Option<(Client, [FileRef; 2])>> {
    let Some(socket) = std::env::var_os("WEFT_SOCKET") else { return Ok(None) };
    let errno = io::Error::from_raw_os_error;
    let socket = socket.into_encoded_bytes();
    let options = ConnectOptions { socket_path: &socket, mount_point: b"/weft" };
    let client = Client::connect(&options).map_err(|e| io::Error::other(e.to_string()))?;
    let open = |path: &[u8], flags| client.open(FileRef::ROOT, path, flags, 0).map_err(errno);
    let [OpenFile { file, .. }, OpenFile { file: log, .. }] =
        [open(b"/compound/file", libc::O_RDWR)?, open(b"/compound/log", libc::O_WRONLY | libc::O_APPEND)?];
    Ok(Some((client, [file, log])))
}

fn run(client: &Client, given: &[FileRef], program: &Checked) -> io::Result<()> {
    let answer =
        client.run_program(FileRef::ROOT, 0o22, given, program).map_err(io::Error::from_raw_os_error)?;
    match answer.failed() {
        None => Ok(()),
        Some((at, errno)) => {
            let error = io::Error::from_raw_os_error(errno);
            Err(io::Error::other(format!("operation {at} of a program: {error}")))
        }
    }
}

/// The child: prints the microseconds of each kind of work, as calls and as a program.
pub fn compound_loop(dir: &Path, count: u32) -> Result<(), BenchError> {
    let failed = |e| BenchError::io(dir.display(), e);
    let mut files = Files::make(dir).map_err(failed)?;
    let connected = connected().map_err(failed)?;
    for Work { name, calls, program } in &WORK {
        let count = if name.ends_with("durably") { count.div_ceil(FLUSHES_LESS) } else { count };
        let by_calls = median_micros(count, |i| calls(&mut files, i)).map_err(failed)?;
        let by_program = match &connected {
            None => by_calls,
            Some((client, given)) => {
                let checked: Result<Vec<Checked>, _> = (0..BLOCKS).map(|i| program(i).check()).collect();
                let checked = checked.map_err(|e| failed(io::Error::other(e.to_string())))?;
                median_micros(count, |i| run(client, given, &checked[(i % BLOCKS) as usize]))
                    .map_err(failed)?
            }
        };
        let mut out = io::stdout();
        writeln!(out, "{name}: calls {by_calls:.3}\n{name}: one program {by_program:.3}")
            .map_err(|e| BenchError::io("standard output", e))?;
    }
    Ok(())
}
