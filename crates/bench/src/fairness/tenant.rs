//! One tenant: threads of one user's process that run one kind of program over and over.

use crate::error::BenchError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weft_client::{Client, ConnectOptions, FileRef, Prepared};
use weft_vfs::compound::{Chain, Codec};

/// Programs after which a file that is appended to begins anew.
const FILE_PROGRAMS: u64 = 64;
/// Fuel of a function.
const FUEL: u64 = 1_000_000_000;

/// What the programs of a tenant do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Writes 4 KiB.
    Write,
    /// Compresses so many KiB with zstd and appends the result.
    Compress,
    /// Calls a function of so many thousand rounds.
    Function,
}

/// What a tenant is to do.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Load {
    /// What.
    #[arg(long)]
    pub kind: Kind,
    /// KiB or thousands of rounds.
    #[arg(long)]
    pub amount: u64,
    /// Programs under way.
    #[arg(long)]
    pub outstanding: u32,
}

/// When what a tenant does is counted.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Window {
    /// Beginning, in milliseconds since 1970.
    #[arg(long)]
    pub begin_ms: u64,
    /// Length, in milliseconds.
    #[arg(long)]
    pub millis: u64,
}

/// What a tenant has done in its window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Done {
    /// Programs that were answered.
    pub completed: u64,
    /// Of their times from the call to the answer, in microseconds: half of them, 99 of 100, and all of them took at most so long.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub max_us: f64,
}

/// A connection.
pub fn connect(socket: &Path) -> io::Result<Client> {
    let options =
        ConnectOptions { socket_path: socket.as_os_str().as_encoded_bytes(), mount_point: b"/weft" };
    Client::connect(&options).map_err(|e| io::Error::other(e.to_string()))
}

/// Text of which zstd makes about a third.
fn text(bytes: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(format!("record {:04} ", word >> 52).as_bytes());
    }
    text.truncate(bytes);
    text
}

/// A function that counts so many rounds down.
fn counting(rounds: u64) -> Vec<u8> {
    // LEB128, signed.
    let (mut rest, mut number) = (rounds, Vec::new());
    while rest >= 64 {
        number.push(rest as u8 & 0x7f | 0x80);
        rest >>= 7;
    }
    number.push(rest as u8);
    // One local: it gets the number, and a loop takes 1 from it until it is 0.
    let mut code =
        [&[1, 1, 0x7e, 0x42][..], &number, &[0x21, 2, 0x03, 0x40, 0x20, 2, 0x42, 1, 0x7d]].concat();
    code.extend([0x22, 2, 0x50, 0x45, 0x0d, 0, 0x0b, 0x42, 0, 0x0b]);
    let bodies = [&[2, 4, 0, 0x41, 0, 0x0b, code.len() as u8][..], &code].concat();
    [
        &b"\0asm\x01\0\0\0"[..],
        // Types: i32 -> i32 and (i32, i32) -> i64; a function of each; one page of memory; the exports.
        &[1, 12, 2, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 2, 0x7f, 0x7f, 1, 0x7e],
        &[3, 3, 2, 0, 1, 5, 3, 1, 0, 1],
        &[7, 24, 3, 6],
        b"memory\x02\0\x05alloc\0\0\x03run\0\x01",
        &[10, bodies.len() as u8],
        &bodies,
    ]
    .concat()
}

fn program(kind: Kind, amount: u64) -> io::Result<Prepared> {
    let mut chain = Chain::all();
    match kind {
        Kind::Write => {
            let file = chain.given(0);
            chain.write(file, 0, vec![7; (amount as usize) << 10]);
        }
        Kind::Compress => {
            let file = chain.given(0);
            let packed = chain.compress(text((amount as usize) << 10), Codec::Zstd, 0);
            chain.append(file, packed);
        }
        Kind::Function => {
            chain.call(counting(amount * 1000), "", FUEL);
        }
    }
    chain.check().map(Prepared::new).map_err(io::Error::other)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Runs programs until the window has passed: the nanoseconds of those that are answered in it.
fn one_thread(socket: &Path, name: &str, load: Load, window: Window) -> io::Result<Vec<u64>> {
    let errno = io::Error::from_raw_os_error;
    let client = connect(socket)?;
    let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_RDWR;
    let file = client.open(FileRef::ROOT, name.as_bytes(), flags, 0o600).map_err(errno)?.file;
    let prepared = program(load.kind, load.amount)?;
    let (begin, end) = (window.begin_ms, window.begin_ms + window.millis);
    let mut nanos = Vec::new();
    for count in 1.. {
        let begun = Instant::now();
        let answer = client.run_prepared(FileRef::ROOT, 0o22, &prepared, &[file], &[]).map_err(errno)?;
        let took = begun.elapsed().as_nanos() as u64;
        // On a busy machine the server stops a function after 100 ms: it has had its time.
        let is_stopped = |error| load.kind == Kind::Function && error == libc::ETIME;
        if let Some((at, error)) = answer.failed().filter(|(_, error)| !is_stopped(*error)) {
            return Err(io::Error::other(format!("operation {at} of a program: {}", errno(error))));
        }
        match now_ms() {
            now if now >= end => break,
            now if now >= begin => nanos.push(took),
            _ => {}
        }
        if load.kind == Kind::Compress && count % FILE_PROGRAMS == 0 {
            client.ftruncate(file, 0).map_err(errno)?;
        }
    }
    Ok(nanos)
}

/// The child: what it has done in the window.
pub fn run(socket: &Path, load: Load, window: Window) -> Result<Done, BenchError> {
    let failed = |e| BenchError::io(socket.display(), e);
    let name = |thread| format!("/{:?}-{}-{thread}", load.kind, std::process::id());
    let threads = std::thread::scope(|scope| {
        let begin = |thread| scope.spawn(move || one_thread(socket, &name(thread), load, window));
        let threads: Vec<_> = (0..load.outstanding).map(begin).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        ended.collect::<io::Result<Vec<_>>>()
    });
    let mut nanos = threads.map_err(failed)?.concat();
    nanos.sort_unstable();
    let at = |part: f64| {
        let last = nanos.len().saturating_sub(1);
        nanos.get((nanos.len() as f64 * part) as usize).or(nanos.get(last)).map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    Ok(Done { completed: nanos.len() as u64, p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) })
}

/// A window that begins when a child has begun.
pub fn window(lead: Duration, millis: u64) -> Window {
    Window { begin_ms: now_ms() + lead.as_millis() as u64, millis }
}
