//! Programs of several operations whose server or client is killed, again and again: each is there whole, or not at all.
//!
//! Each worker has a directory. A program of it counts on in two files, adds a record to one of them, makes a file named after the count
//! and removes the one made some counts before. Then come two programs that clients run by themselves: one appends a record to a file, the
//! other overwrites a block of another file. What was durable when it was answered has to be there. A durable program also syncs a file
//! that plain calls wrote before: where there is the count, there is all of this file. `WEFT_CAMPAIGN=1` makes 200 kills of each kind,
//! otherwise a slice of them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::Dice;
use rig::served::{Served, begin, image_in, socket_of};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;
use weft_client::{Client, ConnectOptions, FileRef, Prepared, WireDirent};
use weft_vfs::compound::{Access, Arith, Chain, Compare, Input};

const WORKERS: u64 = 3;
const SOCKET: &str = "WEFT_TEST_SOCKET";
const WORKER: &str = "WEFT_TEST_WORKER";
/// Bytes of a record: several blocks, so that it can be torn.
const RECORD: usize = 9000;
/// Blocks of the file that is overwritten, and their length.
const BLOCKS: u64 = 5;
const BLOCK: u64 = 4096;
/// Files made by the last counts that are kept.
const KEPT: u64 = 3;

fn rounds() -> u64 {
    if std::env::var_os("WEFT_CAMPAIGN").is_some() { 200 } else { 6 }
}

/// Serves until it is killed, or its standard input ends. The other tests run it as a process of its own.
#[test]
#[ignore = "run by the other tests"]
fn serve() {
    rig::served::serve();
}

/// Counts on until it is killed, and prints each count that was answered. The other tests run it as a process of its own.
#[test]
#[ignore = "run by the other tests"]
fn count() {
    let socket = std::env::var(SOCKET).unwrap();
    let worker = std::env::var(WORKER).unwrap().parse().unwrap();
    let client = rig::connect(socket.as_bytes());
    let mut count = check(&client, worker);
    let own = Own::open(&client, worker).unwrap();
    loop {
        count += 1;
        step(&client, worker, count).unwrap();
        own.step(&client, count).unwrap();
        println!("counted {count}");
    }
}

fn is_durable(count: u64) -> bool {
    count.is_multiple_of(3)
}

fn record(worker: u64, count: u64) -> Vec<u8> {
    let word = (worker << 56 | count).to_le_bytes();
    word.iter().copied().cycle().take(RECORD).collect()
}

/// Counts on to `count`.
fn step(client: &Client, worker: u64, count: u64) -> Result<(), i32> {
    let mut chain = Chain::all();
    if is_durable(count) {
        chain = chain.durable();
        let path = synced(worker, count);
        let flags = libc::O_CREAT | libc::O_WRONLY;
        let file = client.open(FileRef::ROOT, path.as_bytes(), flags, 0o644)?.file;
        client.pwrite(file, &record(worker, count), 0)?;
        client.close(file)?;
        let file = chain.open(path.as_str(), Access::Read);
        chain.sync(file);
    }
    let path = |name: &str| format!("/{worker}/{name}");
    let files = ["a", "b"].map(|name| chain.open(path(name).as_str(), Access::ReadWrite));
    let counts = files.map(|file| {
        let bytes = chain.read(file, 0, 8);
        chain.unpack(bytes, 0, 8)
    });
    chain.expect(counts[0], Compare::Equal, counts[1]);
    let next = chain.arith(counts[0], Arith::Add, 1);
    chain.expect(next, Compare::Equal, count);
    let bytes = chain.pack(next, 8);
    chain.write(files[0], 0, bytes);
    chain.append(files[1], record(worker, count));
    chain.write(files[1], 0, bytes);
    let made = chain.create(path("new").as_str(), 0o644, true);
    chain.append(made, bytes);
    chain.rename(path("new").as_str(), path(&format!("n{count}")).as_str());
    if count > KEPT {
        chain.unlink(path(&format!("n{}", count - KEPT)).as_str());
    }
    let answer = client.run_program(FileRef::ROOT, 0, &[], &chain.check().unwrap())?;
    match answer.failed() {
        None => Ok(()),
        Some((_, libc::EIO)) => Err(libc::EIO),
        Some(failed) => panic!("worker {worker}, count {count}: {failed:?}"),
    }
}

/// Files that programs change which clients run by themselves.
struct Own {
    worker: u64,
    log: FileRef,
    blocks: FileRef,
    append: Prepared,
    overwrite: Prepared,
}

impl Own {
    fn open(client: &Client, worker: u64) -> Result<Own, i32> {
        let open = |name: &str, flags| {
            let path = format!("/{worker}-own/{name}");
            Ok::<_, i32>(client.open(FileRef::ROOT, path.as_bytes(), flags, 0o644)?.file)
        };
        let (mut append, mut overwrite) = (Chain::all(), Chain::all());
        let (log, record) = (append.given(0), append.input_bytes(0));
        append.append(log, record);
        let (blocks, at, block) = (overwrite.given(0), overwrite.input_num(0), overwrite.input_bytes(1));
        overwrite.write(blocks, at, block);
        Ok(Own {
            worker,
            log: open("log", libc::O_WRONLY)?,
            blocks: open("blocks", libc::O_RDWR)?,
            append: Prepared::new(append.check().unwrap()),
            overwrite: Prepared::new(overwrite.check().unwrap()),
        })
    }

    fn step(&self, client: &Client, count: u64) -> Result<(), i32> {
        let run = |program, file, inputs: &[Input<'_>]| {
            let answer = client.run_prepared(FileRef::ROOT, 0, program, &[file], inputs)?;
            answer.failed().map_or(Ok(()), |(_, errno)| Err(errno))
        };
        let record = record(self.worker, count);
        run(&self.append, self.log, &[Input::Bytes(&record)])?;
        let at = count % BLOCKS * BLOCK;
        run(&self.overwrite, self.blocks, &[Input::Num(at), Input::Bytes(&record[..BLOCK as usize])])
    }

    /// Nothing of them is there in part.
    fn check(client: &Client, worker: u64) {
        let log = content(client, &format!("/{worker}-own/log"));
        assert!(log.len().is_multiple_of(RECORD), "worker {worker}: a part of a record, {}", log.len());
        let mut last = 0;
        for found in log.chunks(RECORD) {
            let count = u64::from_le_bytes(*found.first_chunk().unwrap()) & u64::MAX >> 8;
            assert!(found == record(worker, count), "worker {worker}: the record of {count}");
            assert!(last < count, "worker {worker}: {count} after {last}");
            last = count;
        }
        for block in content(client, &format!("/{worker}-own/blocks")).chunks(BLOCK as usize) {
            assert!(block.chunks(8).all(|word| word == &block[..8]), "worker {worker}: a part of a block");
        }
    }
}

/// The file that the program of a count syncs.
fn synced(worker: u64, count: u64) -> String {
    format!("/{worker}-synced/{count}")
}

fn make(client: &Client, worker: u64) {
    let mut chain = Chain::all().durable();
    chain.mkdir(format!("/{worker}").as_str(), 0o755);
    chain.mkdir(format!("/{worker}-synced").as_str(), 0o755);
    chain.mkdir(format!("/{worker}-own").as_str(), 0o755);
    chain.create(format!("/{worker}-own/log").as_str(), 0o644, true);
    let blocks = chain.create(format!("/{worker}-own/blocks").as_str(), 0o644, true);
    chain.append(blocks, [0; (BLOCKS * BLOCK) as usize].as_slice());
    for name in ["a", "b"] {
        let file = chain.create(format!("/{worker}/{name}").as_str(), 0o644, true);
        chain.append(file, [0; 8].as_slice());
    }
    let answer = client.run_program(FileRef::ROOT, 0, &[], &chain.check().unwrap()).unwrap();
    assert_eq!(answer.failed(), None);
}

fn content(client: &Client, path: &str) -> Vec<u8> {
    let file = client.open(FileRef::ROOT, path.as_bytes(), libc::O_RDONLY, 0).unwrap().file;
    let mut out = vec![0; client.fstat(file).unwrap().size as usize];
    let mut done = 0;
    while done < out.len() {
        done += client.pread(file, &mut out[done..], done as u64).unwrap();
    }
    client.close(file).unwrap();
    out
}

/// The count of a worker, of which everything is there and nothing else.
fn check(client: &Client, worker: u64) -> u64 {
    Own::check(client, worker);
    let [a, b] = ["a", "b"].map(|name| content(client, &format!("/{worker}/{name}")));
    let count = u64::from_le_bytes(*a.first_chunk().unwrap());
    assert_eq!((a.len(), &a[..8]), (8, &b[..8]), "worker {worker}: half of a step");
    assert_eq!(b.len() as u64, 8 + count * RECORD as u64, "worker {worker}, count {count}");
    for (at, bytes) in b[8..].chunks(RECORD).enumerate() {
        assert!(bytes == record(worker, at as u64 + 1), "worker {worker}: record {at} of {count}");
    }
    let mut names = names_in(client, &format!("/{worker}"));
    names.sort();
    let kept = count.saturating_sub(KEPT) + 1..=count;
    let mut expected: Vec<String> = kept.clone().map(|count| format!("n{count}")).collect();
    expected.extend(["a".to_string(), "b".to_string()]);
    expected.sort();
    assert_eq!(names, expected, "worker {worker}, count {count}");
    for count in kept {
        assert_eq!(content(client, &format!("/{worker}/n{count}")), count.to_le_bytes());
        if is_durable(count) {
            let found = content(client, &synced(worker, count));
            assert_eq!(found.len(), RECORD, "worker {worker}, count {count}: what it has synced");
            assert!(found == record(worker, count), "worker {worker}, count {count}: what it has synced");
        }
    }
    count
}

fn names_in(client: &Client, path: &str) -> Vec<String> {
    let dir =
        client.open(FileRef::ROOT, path.as_bytes(), libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    let (mut names, mut cookie) = (Vec::new(), 0);
    let mut out = vec![0; 64 << 10];
    loop {
        let len = client.read_dir(dir, cookie, &mut out).unwrap();
        if len == 0 {
            client.close(dir).unwrap();
            return names;
        }
        let mut rest = &out[..len];
        while let Some((entry, name, others)) = WireDirent::split_first(rest) {
            if name != b"." && name != b".." {
                names.push(String::from_utf8(name.to_vec()).unwrap());
            }
            (cookie, rest) = (entry.cookie, others);
        }
    }
}

#[test]
fn a_program_whose_server_is_killed_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let mut dice = Dice(11);
    let (mut kills, mut lost) = (0, 0);
    let mut acked = [0u64; WORKERS as usize];
    let mut sent = acked;
    for round in 0..=rounds() {
        let (mut served, client) = begin(&image);
        for worker in 0..WORKERS {
            if round == 0 {
                make(&client, worker);
                continue;
            }
            let count = check(&client, worker);
            let at = worker as usize;
            let durable = (0..=acked[at]).rev().find(|count| is_durable(*count)).unwrap_or(0);
            assert!(
                (durable..=sent[at]).contains(&count),
                "round {round}: {count} of {durable}..={}",
                sent[at]
            );
            lost += sent[at] - count;
            (acked[at], sent[at]) = (count, count);
        }
        if round == rounds() {
            served.end();
            break;
        }
        let counts: Vec<[AtomicU64; 2]> =
            acked.iter().map(|count| [AtomicU64::new(*count), AtomicU64::new(*count)]).collect();
        let pause = Duration::from_millis(3 + dice.roll(60));
        std::thread::scope(|scope| {
            for (worker, counts) in (0..).zip(&counts) {
                let socket = socket_of(&image);
                scope.spawn(move || {
                    let socket_path = socket.to_str().unwrap().as_bytes();
                    // The server may be killed before.
                    let options = ConnectOptions { socket_path, mount_point: b"/weft" };
                    let Ok(client) = Client::connect(&options) else { return };
                    let Ok(own) = Own::open(&client, worker) else { return };
                    loop {
                        let count = counts[0].fetch_add(1, SeqCst) + 1;
                        if step(&client, worker, count).and_then(|()| own.step(&client, count)).is_err() {
                            return;
                        }
                        counts[1].store(count, SeqCst);
                    }
                });
            }
            std::thread::sleep(pause);
            served.kill();
            kills += 1;
        });
        for (at, counts) in counts.iter().enumerate() {
            (sent[at], acked[at]) = (counts[0].load(SeqCst), counts[1].load(SeqCst));
        }
        // The counts are small enough that records do not fill the volume.
        if 2 * acked.iter().sum::<u64>() * RECORD as u64 > 20 << 20 {
            std::fs::remove_file(&image).unwrap();
            image_in(dir.path());
            let (served, client) = begin(&image);
            (0..WORKERS).for_each(|worker| make(&client, worker));
            drop(client);
            served.end();
            (acked, sent) = ([0; WORKERS as usize], [0; WORKERS as usize]);
        }
    }
    println!("{kills} kills of the server, {lost} programs that were under way or not durable are not there");
}

#[test]
fn a_program_whose_client_is_killed_is_done_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (served, client) = begin(&image);
    let socket = socket_of(&image);
    let mut dice = Dice(23);
    let mut worker = 0;
    make(&client, worker);
    for _ in 0..rounds() {
        let before = check(&client, worker);
        if 2 * before * RECORD as u64 > 20 << 20 {
            worker += 1;
            make(&client, worker);
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "count"])
            .env(SOCKET, &socket)
            .env(WORKER, worker.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("counted")));
        std::thread::sleep(Duration::from_micros(dice.roll(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = lines.filter_map(|line| line.strip_prefix("counted ")?.parse::<u64>().ok()).last();
        // What it had asked for when it ended may be under way still, but does not come after a program of somebody else.
        let mut chain = Chain::all();
        chain.open(format!("/{worker}/a").as_str(), Access::Read);
        assert_eq!(
            client.run_program(FileRef::ROOT, 0, &[], &chain.check().unwrap()).unwrap().failed(),
            None
        );
        let count = check(&client, worker);
        let last = last.unwrap_or(count);
        assert!((last..=last + 1).contains(&count), "{count} counts, {last} of which were answered");
        assert_eq!(step(&client, worker, count + 1), Ok(()), "others go on");
        assert_eq!(check(&client, worker), count + 1);
    }
    drop(client);
    Served::end(served);
}
