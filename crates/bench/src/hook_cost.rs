//! What a call on a file that is not weft's costs under the preloaded library.
//!
//! A child process makes one kind of call over and over and prints the time of its fastest batch: what disturbs a batch
//! only ever makes it slower. Children with and without the library take turns. Under the library the child touches the
//! volume first, so that it is connected and nothing is decided at start-up.

use crate::Common;
use crate::db_bench::output_of;
use crate::disk::{IDLE_VOLUME, under};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit};
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Batches of a run.
const BATCHES: u32 = 60;
/// Calls of a batch.
const CALLS: u32 = 20_000;

/// The calls: the cheapest ones there are, so that what is added shows.
const NAMES: [&str; 7] = ["lseek", "read", "pread", "write", "fstat", "open-close", "stat"];

/// Compares each call with and without the library.
pub fn compare(common: &Common) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("own path", e))?;
    std::fs::create_dir_all(&common.dir).map_err(|e| BenchError::io(common.dir.display(), e))?;
    let file = common.dir.join(format!("hook-cost-{}", std::process::id()));
    std::fs::write(&file, [7; 4096]).map_err(|e| BenchError::io(file.display(), e))?;
    let figure = |command: &mut Command, name: &str| {
        let output = output_of(command.args(["call-loop", name]).arg(&file))?;
        output.trim().parse::<f64>().map_err(|_| BenchError::NoFigure { command: name.into(), output })
    };
    let compared = NAMES.map(|name| {
        Comparison::run(
            name,
            Unit::NanosPerCall,
            "libc",
            common.pairs,
            |_| figure(&mut Command::new(&own), name),
            |_| figure(&mut under(&weft, IDLE_VOLUME, &own), name),
        )
    });
    let _ = std::fs::remove_file(&file);
    compared.into_iter().collect()
}

/// The child: prints the nanoseconds of one call.
pub fn call_loop(name: &str, file: &Path) -> Result<(), BenchError> {
    let failed = |e| BenchError::io(file.display(), e);
    let path = CString::new(file.as_os_str().as_bytes()).map_err(|e| failed(e.into()))?;
    if let Some(at) = std::env::var_os("WEFT_AT") {
        // Connects; that there is something at the prefix is not at stake here.
        let _ = std::fs::metadata(at);
    }
    // SAFETY: a C string that outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: a C string that outlives the call.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd < 0 || null < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    let mut buffer = [0u8; 8];
    // SAFETY: all-zero bytes are a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let at = buffer.as_mut_ptr().cast::<libc::c_void>();
    // SAFETY: open descriptors, a C string, and buffers of at least the lengths given, all of which outlive the calls.
    let mut call = || unsafe {
        match name {
            "lseek" => i64::from(libc::lseek(fd, 0, libc::SEEK_SET) >= 0),
            "read" => (libc::read(fd, at, 0) >= 0).into(),
            "pread" => (libc::pread(fd, at, 8, 0) == 8).into(),
            "write" => (libc::write(null, at, 8) == 8).into(),
            "fstat" => (libc::fstat(fd, &raw mut stat) == 0).into(),
            "stat" => (libc::stat(path.as_ptr(), &raw mut stat) == 0).into(),
            "open-close" => {
                let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                i64::from(fd >= 0 && libc::close(fd) == 0)
            }
            _ => -1,
        }
    };
    if call() != 1 {
        return Err(failed(io::Error::other(format!("'{name}' does not work"))));
    }
    let mut fastest = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(call());
        }
        fastest = fastest.min(begun.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    writeln!(io::stdout(), "{fastest:.2}").map_err(|e| BenchError::io("standard output", e))
}
