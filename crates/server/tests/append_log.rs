//! Appends that clients make durable without the server, which is killed again and again.
//!
//! The server is a process of its own, on an image in a file. Each round makes random changes to some files, some of them
//! followed by an `fsync`, and kills the server: between two calls, or while one is under way. The next server has to show of
//! each file what was synced last, or something later. `WEFT_CAMPAIGN=1` makes 600 rounds, otherwise a slice of them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::Dice;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weft_client::{Client, FileRef};
use weft_device::{Geometry, ZonedModel};
use weft_server::{Server, Volume};
use weft_volume::MountChoice;

const IMAGE: &str = "WEFT_TEST_IMAGE";
const FILES: usize = 3;

fn image_in(dir: &Path) -> PathBuf {
    let image = dir.join("image");
    let geometry = Geometry::preset("bbssd").unwrap().with_size(64 << 20).with_zone_bytes(1 << 20);
    let device = ZonedModel::create(&image, &geometry, false, &mut |_, _| {}).unwrap();
    weft_volume::format(std::sync::Arc::new(device), "test", "").unwrap();
    image
}

fn socket_of(image: &Path) -> PathBuf {
    image.with_extension("sock")
}

/// Serves until it is killed, or its standard input ends. The other tests run it as a process of its own.
#[test]
#[ignore = "run by the other tests"]
fn serve() {
    let image = PathBuf::from(std::env::var_os(IMAGE).unwrap());
    let mounted = std::sync::Arc::new(weft_volume::open(&image, &MountChoice::default()).unwrap());
    let server = Server::start(Volume::new(mounted.clone()).unwrap(), &socket_of(&image)).unwrap();
    println!("serving");
    let _ = std::io::stdin().read_line(&mut String::new());
    server.stop();
    mounted.close().unwrap();
}

/// A server in another process.
struct Served(Child);

impl Served {
    fn begin(image: &Path) -> Served {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "serve"])
            .env(IMAGE, image)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("serving")), "the server did not start");
        // What it prints later goes nowhere, and must not fail.
        std::thread::spawn(move || lines.for_each(drop));
        Served(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file and what it may hold after a kill: what was synced last comes first, what it holds now last.
struct Known {
    path: String,
    states: Vec<Vec<u8>>,
}

impl Known {
    fn now(&self) -> &Vec<u8> {
        self.states.last().unwrap()
    }

    fn check(&mut self, found: Vec<u8>, round: u64) {
        let (least, most) = (
            self.states.iter().map(Vec::len).min().unwrap(),
            self.states.iter().map(Vec::len).max().unwrap(),
        );
        assert!(
            (least..=most).contains(&found.len()),
            "round {round}: {} has {} bytes, not {least} to {most}",
            self.path,
            found.len()
        );
        for (at, byte) in found.iter().enumerate() {
            let is_known = self.states.iter().any(|state| state.get(at).copied().unwrap_or(0) == *byte);
            assert!(is_known, "round {round}: byte {at} of {} is {byte}", self.path);
        }
        self.states = vec![found];
    }
}

fn open(client: &Client, path: &str) -> FileRef {
    client.open(FileRef::ROOT, path.as_bytes(), libc::O_RDWR | libc::O_CREAT, 0o644).unwrap().file
}

fn content(client: &Client, file: FileRef) -> Vec<u8> {
    let mut out = vec![0; client.fstat(file).unwrap().size as usize];
    let mut done = 0;
    while done < out.len() {
        let n = client.pread(file, &mut out[done..], done as u64).unwrap();
        assert!(n > 0);
        done += n;
    }
    out
}

/// One change of a file; the result of the call that tells whether the server is still there.
fn change(client: &Client, file: &mut FileRef, known: &mut Known, dice: &mut Dice) -> Result<(), i32> {
    let fill = dice.roll(255) as u8 + 1;
    let size = known.now().len() as u64;
    match dice.roll(40) {
        0..24 => {
            let most = [100, 3000, 9000][dice.roll(3) as usize];
            let len = 1 + dice.roll(most) as usize;
            append(client, *file, known, vec![fill; len])
        }
        // More than a ring takes.
        24 if size < 4 << 20 => append(client, *file, known, vec![fill; 700_000]),
        25 | 26 => {
            let to = dice.roll(size + 1);
            let mut next = known.now().clone();
            next.truncate(to as usize);
            known.states.push(next);
            client.ftruncate(*file, to)
        }
        27 | 28 if size > 0 => {
            let at = dice.roll(size) as usize;
            let len = (1 + dice.roll(5000) as usize).min(size as usize - at);
            let mut next = known.now().clone();
            next[at..at + len].fill(fill);
            known.states.push(next);
            client.pwrite(*file, &vec![fill; len], at as u64).map(drop)
        }
        29 if size > 0 => {
            let at = dice.roll(size) as usize;
            let len = (1 + dice.roll(9000) as usize).min(size as usize - at);
            let mut next = known.now().clone();
            next[at..at + len].fill(0);
            known.states.push(next);
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            client.fallocate(*file, mode, at as u64, len as u64)
        }
        30 => client.fallocate(*file, libc::FALLOC_FL_KEEP_SIZE, size, 1 << 16),
        31 | 32 => {
            client.close(*file)?;
            let opened = client.open(FileRef::ROOT, known.path.as_bytes(), libc::O_RDWR, 0)?;
            *file = opened.file;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn append(client: &Client, file: FileRef, known: &mut Known, bytes: Vec<u8>) -> Result<(), i32> {
    let at = known.now().len() as u64;
    known.states.push([known.now(), &bytes[..]].concat());
    client.pwrite(file, &bytes, at).map(drop)
}

fn rounds(seed: u64, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let mut dice = Dice(seed | 1);
    let mut files: Vec<Known> =
        (0..FILES).map(|at| Known { path: format!("/f{at}"), states: vec![Vec::new()] }).collect();
    let (mut syncs, mut calls) = (0, 0);
    for round in 0..rounds {
        let mut served = Served::begin(&image);
        let client = rig::connect(socket_of(&image).to_str().unwrap().as_bytes());
        let mut open_files: Vec<FileRef> = files.iter().map(|known| open(&client, &known.path)).collect();
        for (file, known) in open_files.iter().zip(&mut files) {
            known.check(content(&client, *file), round);
            client.fsync(*file).unwrap();
        }
        client.sync().unwrap();
        if dice.roll(8) == 0 {
            drop(client);
            served.end();
            continue;
        }
        // In the middle of something, or between two calls.
        let pid = served.0.id() as libc::pid_t;
        let after = Duration::from_micros(dice.roll(60_000));
        let killer = (dice.roll(2) == 0).then(|| {
            std::thread::spawn(move || {
                std::thread::sleep(after);
                // SAFETY: a child of this process that nobody has waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) }
            })
        });
        let steps = if killer.is_some() { u64::MAX } else { dice.roll(400) };
        for _ in 0..steps {
            let at = dice.roll(FILES as u64) as usize;
            let (file, known) = (&mut open_files[at], &mut files[at]);
            if change(&client, file, known, &mut dice).is_err() {
                break;
            }
            if dice.roll(4) > 0 {
                let before = client.measured().calls.load(Relaxed);
                if client.fsync(*file).is_err() {
                    break;
                }
                syncs += 1;
                calls += u64::from(client.measured().calls.load(Relaxed) != before);
                known.states = vec![known.now().clone()];
            }
        }
        served.kill();
        killer.map(|killer| killer.join().unwrap());
    }
    println!("{rounds} rounds: {syncs} flushes, {calls} of them by the server");
    assert!(calls < syncs * 3 / 4, "{calls} of {syncs} flushes were the server's");
}

#[test]
fn what_a_program_has_made_durable_survives_kills_of_the_server() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    rounds(seed, if campaign { 600 } else { 12 });
}
