//! What programs of several operations cost, beside the same operations as plain calls, on a volume and on the disk's file system.
//!
//! A child does each kind of work some thousand times, in each form that its side has, and prints the median of each. The disk has no
//! programs: beside each of their forms stand its plain calls, and a chain of io_uring where the work can be one.

mod linked;
mod work;

use self::linked::Linked;
use self::work::{Files, PLACES, WORK, Work};
use crate::Common;
use crate::disk::{Scratch, format, under};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit, median};
use crate::rounds;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use weft_client::{Batch, Client, ConnectOptions, FileRef, OpenFile, Prepared};
use weft_core::Ino;
use weft_vfs::FileSystem;
use weft_vfs::compound::{Access, Answer, Input, Local, run};
use weft_volume::MountChoice;

/// Work that flushes takes so much longer that there is less of it.
const FLUSHES_LESS: u32 = 10;
/// The form of a program in this process.
const IN_PROCESS: &str = "program in process";
/// Runs of a batch.
const BATCH: u64 = 32;

/// Which work is done, and how often.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// How often.
    pub count: u32,
    /// What its name begins with.
    #[arg(default_value = "")]
    pub only: String,
}

impl Choice {
    fn work(&self) -> impl Iterator<Item = (&'static Work, u32)> {
        let chosen = WORK.iter().filter(|work| work.name.starts_with(&self.only));
        chosen.map(|work| {
            let flushes = work.name.ends_with("durably");
            (work, if flushes { self.count.div_ceil(FLUSHES_LESS) } else { self.count })
        })
    }

    fn put(&self, command: &mut Command) {
        command.arg(self.count.to_string()).arg(&self.only);
    }
}

/// Compares all work that is chosen.
pub fn compare(common: &Common, choice: &Choice) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("own path", e))?;
    let scratch = Scratch::new(common, "compound")?;
    let (native, image, own_image) =
        (scratch.fresh("native")?, scratch.fresh("vol.img")?, scratch.fresh("own.img")?);
    fs::create_dir(&native).map_err(|e| BenchError::io(native.display(), e))?;
    [&image, &own_image].into_iter().try_for_each(|image| format(&weft, image, "512M"))?;
    let child = |mut command: Command, dir: &Path| {
        command.arg("compound-loop").arg(dir);
        choice.put(&mut command);
        command
    };
    rounds::compare(
        "",
        Unit::MicrosPerOperation,
        common.pairs,
        || Ok(child(Command::new(&own), &native)),
        || {
            let then = child(under(&weft, &image, &own), Path::new("/weft"));
            let mut command = Command::new(&own);
            command.arg("compound-in-process").arg(&own_image);
            choice.put(&mut command);
            command.arg("--").arg(then.get_program()).args(then.get_args());
            Ok(command)
        },
    )
}

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

fn succeeded(answer: &Answer) -> io::Result<()> {
    match answer.failed() {
        None => Ok(()),
        Some((at, errno)) => {
            let error = io::Error::from_raw_os_error(errno);
            Err(io::Error::other(format!("operation {at} of a program: {error}")))
        }
    }
}

/// Inputs of the run with this number.
fn inputs(i: u64) -> Vec<Input<'static>> {
    (i..i + PLACES as u64).map(|i| Input::Num(Files::place(i))).collect()
}

fn run_one(client: &Client, given: &[FileRef], prepared: &Prepared, i: u64) -> io::Result<()> {
    let answer = client.run_prepared(FileRef::ROOT, 0o22, prepared, given, &inputs(i));
    succeeded(&answer.map_err(io::Error::from_raw_os_error)?)
}

fn run_batch(client: &Client, given: &[FileRef], prepared: &Prepared, i: u64) -> io::Result<()> {
    let errno = io::Error::from_raw_os_error;
    let mut batch = Batch::new(client, FileRef::ROOT, 0o22);
    for i in i * BATCH..(i + 1) * BATCH {
        batch.add(prepared, given, &inputs(i)).map_err(errno)?;
    }
    batch.run().map_err(errno)?.iter().try_for_each(succeeded)
}

/// Programs on a volume that this process has for itself.
struct InProcess {
    fs: Arc<dyn FileSystem>,
    /// Ends it.
    _mounted: weft_volume::Mounted,
    given: Vec<(Ino, Access)>,
}

impl InProcess {
    fn new(image: &Path) -> Result<InProcess, BenchError> {
        let failed =
            |e: &dyn std::fmt::Display| BenchError::io(image.display(), io::Error::other(e.to_string()));
        let mounted = weft_volume::open(image, &MountChoice::default()).map_err(|e| failed(&e))?;
        let fs: Arc<dyn FileSystem> = mounted.core();
        let given = work::make_in(&*fs).map_err(|e| failed(&e))?;
        Ok(InProcess { fs, _mounted: mounted, given: given.map(|ino| (ino, Access::ReadWrite)).to_vec() })
    }

    fn run(&self, prepared: &Prepared, i: u64) -> io::Result<()> {
        let inputs = inputs(i);
        let host = Local::new(&*self.fs).given(&self.given).inputs(&inputs);
        succeeded(&run(&host, prepared.program()))
    }
}

fn print(name: &str, form: &str, micros: f64) -> Result<(), BenchError> {
    writeln!(io::stdout(), "{name}: {form} {micros:.3}").map_err(|e| BenchError::io("standard output", e))
}

fn prepared(work: &Work) -> io::Result<Prepared> {
    (work.chain)().check().map(Prepared::new).map_err(io::Error::other)
}

/// Prints the microseconds of each kind of work as programs in this process, and becomes the command.
pub fn in_process(image: &Path, choice: &Choice, command: &[OsString]) -> Result<(), BenchError> {
    let failed = |e| BenchError::io(image.display(), e);
    let own = InProcess::new(image)?;
    for (work, count) in choice.work() {
        let prepared = prepared(work).map_err(failed)?;
        print(work.name, IN_PROCESS, median_micros(count, |i| own.run(&prepared, i)).map_err(failed)?)?;
    }
    drop(own);
    let Some((program, args)) = command.split_first() else { return Ok(()) };
    Err(BenchError::io(program.display(), Command::new(program).args(args).exec()))
}

/// The child: prints the microseconds of each kind of work in each form.
pub fn compound_loop(dir: &Path, choice: &Choice) -> Result<(), BenchError> {
    let failed = |e| BenchError::io(dir.display(), e);
    let mut files = Files::make(dir).map_err(failed)?;
    let connected = connected().map_err(failed)?;
    let mut linked = if connected.is_none() { Some(Linked::new(dir).map_err(failed)?) } else { None };
    for (work, count) in choice.work() {
        let &Work { name, calls, .. } = work;
        let by_calls = median_micros(count, |i| calls(&mut files, i)).map_err(failed)?;
        print(name, "calls", by_calls)?;
        let prepared = prepared(work).map_err(failed)?;
        let (mut one, mut batch) = (by_calls, by_calls);
        match &connected {
            Some((client, given)) => {
                one = median_micros(count, |i| run_one(client, given, &prepared, i)).map_err(failed)?;
                let batches = count.div_ceil(BATCH as u32);
                let whole =
                    median_micros(batches, |i| run_batch(client, given, &prepared, i)).map_err(failed)?;
                batch = whole / BATCH as f64;
            }
            None => print(name, IN_PROCESS, by_calls)?,
        }
        print(name, "one program", one)?;
        print(name, "program in a batch of 32", batch)?;
        if let Some(link) = work.linked {
            let micros = match &mut linked {
                Some(linked) => median_micros(count, |_| link(linked)).map_err(failed)?,
                None => one,
            };
            print(name, "one program, io_uring", micros)?;
        }
    }
    Ok(())
}
