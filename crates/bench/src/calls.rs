//! What calls on a volume's files cost, beside the same calls on the disk's file system: on an idle machine, beside a
//! thread that computes, and on one processor, whichever it is.
//!
//! A child makes one kind of operation after another, each some thousand times, and prints the median of each. Of many
//! threads each has files of its own, and the medians of all are averaged.

use crate::Common;
use crate::disk::{Scratch, format, under};
use crate::error::BenchError;
use crate::loads::{Load, Spinners};
use crate::pairs::{Comparison, Unit, median};
use crate::rounds;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Compares all operations under each load.
pub fn compare(
    common: &Common,
    loads: &[Load],
    threads: u32,
    count: u32,
) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("own path", e))?;
    let scratch = Scratch::new(common, "calls")?;
    let (native, image) = (scratch.fresh("native")?, scratch.fresh("vol.img")?);
    fs::create_dir(&native).map_err(|e| BenchError::io(native.display(), e))?;
    format(&weft, &image, "512M")?;
    let mut all = Vec::new();
    for load in loads {
        let _spinners = Spinners::start(*load)?;
        let child = |mut command: Command, dir: &Path| {
            command.arg("operation-loop").arg(dir).args([threads.to_string(), count.to_string()]);
            load.place(&mut command);
            Ok(command)
        };
        all.extend(rounds::compare(
            load.name(),
            Unit::MicrosPerOperation,
            common.pairs,
            || child(Command::new(&own), &native),
            || child(under(&weft, &image, &own), Path::new("/weft")),
        )?);
    }
    Ok(all)
}

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Blocks of the file that is read and overwritten.
const BLOCKS: u64 = 16;
/// A flush takes so much longer than other operations that there are fewer of them.
const SYNCS_LESS: u32 = 20;

/// What operations work on; a thread's own.
struct Files {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    log: File,
    /// Written to without a page cache, each write durable when it returns.
    direct: File,
    block: [u8; BLOCK],
    aligned: Aligned,
}

#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

impl Files {
    fn make(dir: &Path, thread: u32) -> io::Result<Files> {
        let dir = dir.join(format!("t{thread}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("list"))?;
        for name in 0..20 {
            fs::write(dir.join("list").join(name.to_string()), b"x")?;
        }
        let path = dir.join("file");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let block = [7; BLOCK];
        for at in 0..BLOCKS {
            file.write_all_at(&block, at * BLOCK as u64)?;
        }
        file.sync_all()?;
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join("log"))?;
        let path_of_direct = dir.join("direct");
        fs::write(&path_of_direct, vec![7; BLOCKS as usize * BLOCK])?;
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_DSYNC)
            .open(&path_of_direct)?;
        direct.sync_all()?;
        Ok(Files { dir, path, file, log, direct, block, aligned: Aligned(block) })
    }
}

type Operation = fn(&mut Files, u64) -> io::Result<()>;

/// The operations by name.
const OPERATIONS: [(&str, Operation); 13] = [
    ("stat", |files, _| fs::metadata(&files.path).map(|found| assert!(found.size() > 0))),
    ("fstat", |files, _| files.file.metadata().map(|found| assert!(found.size() > 0))),
    ("access", |files, _| {
        let path = CString::new(files.path.as_os_str().as_bytes())?;
        // SAFETY: a C string that outlives the call.
        let code = unsafe { libc::access(path.as_ptr(), libc::R_OK) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }),
    ("open of a missing file", |files, _| match File::open(files.dir.join("missing")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(io::Error::other("nobody has made it")),
        Err(error) => Err(error),
    }),
    ("open and close", |files, _| File::open(&files.path).map(drop)),
    ("open, read 4 KiB, close", |files, _| File::open(&files.path)?.read_exact(&mut files.block)),
    ("pread 4 KiB", |files, i| files.file.read_exact_at(&mut files.block, i % BLOCKS * BLOCK as u64)),
    ("overwrite 4 KiB", |files, i| files.file.write_all_at(&files.block, i % BLOCKS * BLOCK as u64)),
    ("create, close, rename, unlink", |files, _| {
        let (new, named) = (files.dir.join("new"), files.dir.join("named"));
        drop(File::create_new(&new)?);
        fs::rename(&new, &named)?;
        fs::remove_file(&named)
    }),
    ("readdir of 20", |files, _| fs::read_dir(files.dir.join("list"))?.try_for_each(|entry| entry.map(drop))),
    ("append 100 bytes, fdatasync", |files, _| {
        files.log.write_all(&files.block[..100])?;
        files.log.sync_data()
    }),
    ("overwrite 4 KiB, fdatasync", |files, i| {
        files.file.write_all_at(&files.block, i % BLOCKS * BLOCK as u64)?;
        files.file.sync_data()
    }),
    // On the disk, no flush can be faster.
    ("write 4 KiB directly, durable by O_DSYNC", |files, i| {
        files.direct.write_all_at(&files.aligned.0, i % BLOCKS * BLOCK as u64)
    }),
];

fn is_flush(name: &str) -> bool {
    name.ends_with("sync") || name.ends_with("SYNC")
}

fn medians(dir: &Path, thread: u32, count: u32) -> io::Result<Vec<f64>> {
    let mut files = Files::make(dir, thread)?;
    let mut medians = Vec::new();
    for (name, operation) in OPERATIONS {
        let count = if is_flush(name) { count.div_ceil(SYNCS_LESS) } else { count };
        let mut micros = Vec::with_capacity(count as usize);
        for i in 0..u64::from(count) {
            let begun = Instant::now();
            operation(&mut files, i)?;
            micros.push(begun.elapsed().as_nanos() as f64 / 1e3);
        }
        medians.push(median(&micros));
    }
    Ok(medians)
}

/// The child: prints the microseconds of each operation.
pub fn operation_loop(dir: &Path, threads: u32, count: u32) -> Result<(), BenchError> {
    let failed = |e| BenchError::io(dir.display(), e);
    let of_threads: io::Result<Vec<Vec<f64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || medians(dir, thread, count))).collect();
        let panicked = |_| Err(io::Error::other("a thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let of_threads = of_threads.map_err(failed)?;
    for (at, (name, _)) in OPERATIONS.iter().enumerate() {
        let mean = of_threads.iter().map(|medians| medians[at]).sum::<f64>() / of_threads.len().max(1) as f64;
        writeln!(io::stdout(), "{name} {mean:.3}").map_err(|e| BenchError::io("standard output", e))?;
    }
    Ok(())
}
