//! What programs of several operations cost, beside the same operations as plain calls, on a volume and on the disk's file system.
//!
//! A child does each kind of work some thousand times, in each form that its side has, and prints the median of each. The disk has no
//! programs: beside each of their forms stand its plain calls, and a chain of io_uring where the work can be one.

mod cpu;
mod linked;
mod work;

use self::cpu::Measured;
use self::linked::Linked;
use self::work::{Files, WORK, Work};
use crate::Common;
use crate::disk::{Scratch, format, under};
use crate::error::BenchError;
use crate::loads::{Load, Spinners};
use crate::pairs::{Comparison, Unit, median};
use crate::rounds;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use weft_client::{Batch, Client, ConnectOptions, FileRef, OpenFile, Posted, Prepared};
use weft_core::Ino;
use weft_vfs::FileSystem;
use weft_vfs::compound::{Access, Answer, Local, Native, run};
use weft_volume::MountChoice;

/// Work that flushes, or computes, takes so much longer that there is less of it.
const LONG_LESS: u32 = 10;
/// The form of a program in this process.
const IN_PROCESS: &str = "program in process";
/// Posted programs under way at once.
const POSTS: usize = 4;
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
            let is_long = work.is_posted || work.name.ends_with("durably");
            (work, if is_long { self.count.div_ceil(LONG_LESS) } else { self.count })
        })
    }

    fn put(&self, command: &mut Command) {
        command.arg(self.count.to_string()).arg(&self.only);
    }
}

/// Compares all work that is chosen.
pub fn compare(common: &Common, loads: &[Load], choice: &Choice) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("own path", e))?;
    let scratch = Scratch::new(common, "compound")?;
    let (native, image, own_image) =
        (scratch.fresh("native")?, scratch.fresh("vol.img")?, scratch.fresh("own.img")?);
    fs::create_dir(&native).map_err(|e| BenchError::io(native.display(), e))?;
    [&image, &own_image].into_iter().try_for_each(|image| format(&weft, image, "512M"))?;
    let mut all = Vec::new();
    for load in loads {
        let _spinners = Spinners::start(*load)?;
        let child = |mut command: Command, dir: &Path| {
            command.arg("compound-loop").arg(dir);
            choice.put(&mut command);
            load.place(&mut command);
            command
        };
        all.extend(rounds::compare(
            load.name(),
            Unit::MicrosPerOperation,
            common.pairs,
            || Ok(child(Command::new(&own), &native)),
            || {
                let then = child(under(&weft, &image, &own), Path::new("/weft"));
                let mut command = Command::new(&own);
                command.arg("compound-in-process").arg(&own_image);
                choice.put(&mut command);
                load.place(&mut command);
                command.arg("--").arg(then.get_program()).args(then.get_args());
                Ok(command)
            },
        )?);
    }
    Ok(all)
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
    let mut client = Client::connect(&options).map_err(|e| io::Error::other(e.to_string()))?;
    client.lend(&Native);
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

/// A program of a kind of work, and by what it is run.
struct Runs<'a> {
    client: &'a Client,
    given: &'a [FileRef],
    prepared: &'a Prepared,
    work: &'static Work,
}

impl<'a> Runs<'a> {
    fn one(&self, i: u64) -> io::Result<()> {
        let Runs { client, given, prepared, work } = self;
        let answer = client.run_prepared(FileRef::ROOT, 0o22, prepared, given, &(work.inputs)(i));
        succeeded(&answer.map_err(io::Error::from_raw_os_error)?)
    }

    fn batch(&self, from: u64, runs: u64) -> io::Result<Batch<'a, &'a Prepared>> {
        let mut batch = Batch::new(self.client, FileRef::ROOT, 0o22);
        for i in from..from + runs {
            let added = batch.add(self.prepared, self.given, &(self.work.inputs)(i));
            added.map_err(io::Error::from_raw_os_error)?;
        }
        Ok(batch)
    }

    fn in_a_batch(&self, i: u64) -> io::Result<()> {
        let answers = self.batch(i * BATCH, BATCH)?.run().map_err(io::Error::from_raw_os_error)?;
        answers.iter().try_for_each(succeeded)
    }

    /// Posts runs while others are under way; the microseconds of one.
    fn posted(&self, count: u32) -> io::Result<f64> {
        let errno = io::Error::from_raw_os_error;
        let mut under_way = VecDeque::new();
        let begun = Instant::now();
        for i in 0..u64::from(count) {
            if under_way.len() == POSTS {
                let oldest: Option<Posted<'_, &Prepared>> = under_way.pop_front();
                oldest.map_or(Ok(Vec::new()), Posted::wait).map_err(errno)?.iter().try_for_each(succeeded)?;
            }
            under_way.push_back(self.batch(i, 1)?.post().map_err(errno)?);
        }
        for posted in under_way {
            posted.wait().map_err(errno)?.iter().try_for_each(succeeded)?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / 1e3 / f64::from(count))
    }
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

    fn run(&self, work: &Work, prepared: &Prepared, i: u64) -> io::Result<()> {
        let inputs = (work.inputs)(i);
        let host = Local::new(&*self.fs).given(&self.given).inputs(&inputs);
        succeeded(&run(&host, prepared.program()))
    }
}

fn print(name: &str, form: &str, micros: f64) -> Result<(), BenchError> {
    writeln!(io::stdout(), "{name}: {form} {micros:.3}").map_err(|e| BenchError::io("standard output", e))
}

/// Prints the processor time of all processes, too.
fn print_both(name: &str, form: &str, measured: Measured) -> Result<(), BenchError> {
    print(name, form, measured.micros)?;
    print(name, &format!("{form}, CPU"), measured.cpu_micros)
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
        let median = median_micros(count, |i| own.run(work, &prepared, i));
        print(work.name, IN_PROCESS, median.map_err(failed)?)?;
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
    let server = connected.is_some().then(std::os::unix::process::parent_id);
    for (work, count) in choice.work() {
        let &Work { name, calls, .. } = work;
        let by_calls = cpu::measured(server, count, || median_micros(count, |i| calls(&mut files, i)))
            .map_err(failed)?;
        print_both(name, "calls", by_calls)?;
        let prepared = prepared(work).map_err(failed)?;
        let [mut one, mut batch, mut posted] = [by_calls; 3];
        match &connected {
            Some((client, given)) => {
                let runs = Runs { client, given, prepared: &prepared, work };
                one =
                    cpu::measured(server, count, || median_micros(count, |i| runs.one(i))).map_err(failed)?;
                if work.is_posted {
                    posted = cpu::measured(server, count, || runs.posted(count)).map_err(failed)?;
                } else {
                    let batches = count.div_ceil(BATCH as u32);
                    let whole = || Ok(median_micros(batches, |i| runs.in_a_batch(i))? / BATCH as f64);
                    batch = cpu::measured(server, batches * BATCH as u32, whole).map_err(failed)?;
                }
            }
            None => print(name, IN_PROCESS, by_calls.micros)?,
        }
        print_both(name, "one program", one)?;
        if work.is_posted {
            print_both(name, "program posted, 4 under way", posted)?;
        } else {
            print_both(name, "program in a batch of 32", batch)?;
        }
        if let Some(link) = work.linked {
            let micros = match &mut linked {
                Some(linked) => median_micros(count, |_| link(linked)).map_err(failed)?,
                None => one.micros,
            };
            print(name, "one program, io_uring", micros)?;
        }
    }
    Ok(())
}
