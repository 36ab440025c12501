//! Appends and overwrites that clients make durable without the server, which is killed again and again.
//!
//! The server is a process of its own, on an image in a file. Each round makes random changes to some files, some of them
//! followed by an `fsync`, and kills the server: between two calls, or while one is under way. The next server has to show of
//! each file what was synced last, or something later. `WEFT_CAMPAIGN=1` makes 600 rounds, otherwise a slice of them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::Dice;
use rig::served::{Served, begin, image_in};
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weft_client::stepping::{self, Point};
use weft_client::{Client, FileRef};
use weft_core::append_log::{Append, ENTRY_HEAD_BYTES, FIRST_BLOCK, LogHead, seal};
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::compound::Chain;

const FILES: usize = 6;
const THREADS: usize = 3;

/// Serves until it is killed, or its standard input ends. The other tests run it as a process of its own.
#[test]
#[ignore = "run by the other tests"]
fn serve() {
    rig::served::serve();
}

/// A file and what it may hold after a kill: what was synced last comes first, what it holds now last.
struct Known {
    path: String,
    is_rewritten: bool,
    /// Open with `O_DSYNC`.
    is_synced: bool,
    states: Vec<Vec<u8>>,
}

impl Known {
    fn now(&self) -> &Vec<u8> {
        self.states.last().unwrap()
    }

    /// All of it is durable.
    fn synced(&mut self) {
        self.states = vec![self.now().clone()];
    }

    fn open(&self, client: &Client) -> FileRef {
        let flags = if self.is_synced { libc::O_DSYNC } else { 0 } | libc::O_RDWR | libc::O_CREAT;
        client.open(FileRef::ROOT, self.path.as_bytes(), flags, 0o644).unwrap().file
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
    // Every other file is overwritten most of the time.
    let what = match dice.roll(40) {
        0..22 if known.is_rewritten && size > 20_000 => 27,
        what => what,
    };
    match what {
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
            write(client, *file, known, at as u64, &vec![fill; len])
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
        33 | 34 if size > 0 => client.seek(*file, 0, libc::SEEK_DATA).map(drop),
        31 | 32 => {
            client.close(*file)?;
            let flags = if known.is_synced { libc::O_DSYNC } else { 0 } | libc::O_RDWR;
            *file = client.open(FileRef::ROOT, known.path.as_bytes(), flags, 0)?.file;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn append(client: &Client, file: FileRef, known: &mut Known, bytes: Vec<u8>) -> Result<(), i32> {
    let at = known.now().len() as u64;
    known.states.push([known.now(), &bytes[..]].concat());
    write(client, file, known, at, &bytes)
}

fn write(client: &Client, file: FileRef, known: &mut Known, at: u64, bytes: &[u8]) -> Result<(), i32> {
    // A kill may come between the pieces of a long write.
    if client.pwrite(file, bytes, at)? == bytes.len() && known.is_synced {
        known.synced();
    }
    Ok(())
}

/// Steps of each thread until it is held at one of the client's points.
const STEPS_BETWEEN: u64 = 24;

/// Entries that clients have written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static HOLDS: Cell<u64> = const { Cell::new(0) };
}

/// Holds a thread at a point of the client now and then: for a moment, or so long that the server ends turns meanwhile.
fn hold(point: Point) {
    if point == Point::EntryWritten {
        WRITTEN.fetch_add(1, Relaxed);
    }
    HOLDS.with(|state| {
        let seed = match state.get() {
            // A thread that is not one of a round.
            0 => return,
            seed => seed,
        };
        let mut dice = Dice(seed);
        if dice.roll(STEPS_BETWEEN) == 0 {
            let most = if dice.roll(8) == 0 { 20_000 } else { 300 };
            std::thread::sleep(Duration::from_micros(dice.roll(most)));
        }
        state.set(dice.0);
    });
}

/// Changes files at random until the server is gone, or so many times; each change of a file is followed by an `fsync` mostly.
fn work(client: &Client, files: &mut [(FileRef, &mut Known)], dice: &mut Dice, steps: u64) -> u64 {
    let mut syncs = 0;
    for _ in 0..steps {
        let at = dice.roll(files.len() as u64) as usize;
        let (file, known) = &mut files[at];
        if change(client, file, known, dice).is_err() {
            break;
        }
        if dice.roll(4) > 0 {
            if client.fsync(*file).is_err() {
                break;
            }
            syncs += 1;
            known.synced();
        }
    }
    syncs
}

fn rounds(seed: u64, rounds: u64) {
    stepping::set_hook(hold);
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let mut dice = Dice(seed | 1);
    let new_file = |at| Known {
        path: format!("/f{at}"),
        is_rewritten: at % 2 == 1,
        is_synced: at % 3 == 2,
        states: vec![Vec::new()],
    };
    let mut files: Vec<Known> = (0..FILES).map(new_file).collect();
    let mut syncs = 0;
    for round in 0..rounds {
        let (mut served, client) = begin(&image);
        let open_files: Vec<FileRef> = files.iter().map(|known| known.open(&client)).collect();
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
        // In the middle of something, or between two calls of each thread.
        let after = Duration::from_micros(dice.roll(120_000));
        let in_the_middle = dice.roll(2) == 0;
        let steps = if in_the_middle { u64::MAX } else { dice.roll(300) };
        let mut all: Vec<(FileRef, &mut Known)> = open_files.into_iter().zip(&mut files).collect();
        syncs += std::thread::scope(|scope| {
            let threads: Vec<_> = all
                .chunks_mut(FILES / THREADS)
                .map(|files| {
                    let (mut dice, client) = (Dice(dice.roll(u64::MAX) | 1), &client);
                    scope.spawn(move || {
                        HOLDS.set(dice.roll(u64::MAX) | 1);
                        work(client, files, &mut dice, steps)
                    })
                })
                .collect();
            if in_the_middle {
                std::thread::sleep(after);
                served.kill();
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        served.kill();
    }
    let written = WRITTEN.load(Relaxed);
    println!("{rounds} rounds: {syncs} flushes, {written} of them by clients");
    // How many depends on how soon the server begins turns; that clients write entries at all is what the rounds need.
    assert!(written > rounds, "{written} of {syncs} flushes were the clients'");
}

#[test]
fn a_client_that_appends_and_flushes_asks_the_server_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (served, client) = begin(&image);
    let file = open(&client, "/f");
    let append = |times: u64| {
        for _ in 0..times {
            let end = client.fstat(file).unwrap().size;
            client.pwrite(file, b"more", end).unwrap();
            client.fsync(file).unwrap();
        }
    };
    append(8);
    let before = client.measured().calls.load(Relaxed);
    append(50);
    assert_eq!(client.measured().calls.load(Relaxed), before);
    drop(client);
    served.end();
}

#[test]
fn a_client_that_overwrites_and_flushes_asks_the_server_for_little() {
    overwrites_and_flushes(0);
}

#[test]
fn a_client_whose_writes_are_durable_asks_the_server_for_little() {
    overwrites_and_flushes(libc::O_DSYNC);
}

fn overwrites_and_flushes(flags: i32) {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (served, client) = begin(&image);
    let flags = flags | libc::O_RDWR | libc::O_CREAT;
    let file = client.open(FileRef::ROOT, b"/f", flags, 0o644).unwrap().file;
    client.pwrite(file, &[1; 40 * BLOCK_BYTES], 0).unwrap();
    client.fsync(file).unwrap();
    // Blocks apart, in a row, and parts of one; now and then it grows.
    let mut known = content(&client, file);
    let mut change = |round: usize| {
        let fill = round as u8 | 2;
        let at = [round * 5000 % 100_000, 0, 30_000][round % 3];
        let end = if round.is_multiple_of(7) { known.len() } else { at };
        for (at, len) in [(at, 100 + round % 9000), (end, 200), (60_000, 4096)] {
            known.resize(known.len().max(at + len), 0);
            known[at..at + len].fill(fill);
            client.pwrite(file, &vec![fill; len], at as u64).unwrap();
        }
        if flags & libc::O_DSYNC == 0 {
            client.fsync(file).unwrap();
        }
    };
    (0..20).for_each(&mut change);
    let before = client.measured().calls.load(Relaxed);
    (20..100).for_each(&mut change);
    let calls = client.measured().calls.load(Relaxed) - before;
    assert!(calls < 40, "{calls} calls");
    assert!(after_kill(served, client, &image) == known);
}

/// A file of some blocks whose client overwrites it without the server.
fn granted(client: &Client) -> FileRef {
    let file = open(client, "/f");
    client.pwrite(file, &[1; 8 * BLOCK_BYTES], 0).unwrap();
    let is_without_call = |fill| {
        client.pwrite(file, &[fill; 100], 0).unwrap();
        let before = client.measured().calls.load(Relaxed);
        client.fsync(file).unwrap();
        client.measured().calls.load(Relaxed) == before
    };
    assert!((1..12).any(is_without_call), "its flushes are calls");
    file
}

/// Kills the server; what the file has under the next one.
fn after_kill(mut served: Served, client: Client, image: &Path) -> Vec<u8> {
    served.kill();
    drop(client);
    let (served, client) = begin(image);
    let found = content(&client, open(&client, "/f"));
    drop(client);
    served.end();
    found
}

/// The server takes all that was written to a file, and does not make it durable.
fn take(client: &Client, file: FileRef) {
    client.seek(file, 0, libc::SEEK_DATA).unwrap();
}

#[test]
fn blocks_that_the_server_takes_before_a_flush_are_durable_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    for takes_before in [true, false] {
        let (served, client) = begin(&image);
        let file = granted(&client);
        // The log has an entry with the block's content of before.
        client.pwrite(file, &[77; 100], 0).unwrap();
        client.fsync(file).unwrap();
        client.pwrite(file, &[88; 100], 0).unwrap();
        if takes_before {
            take(&client, file);
        } else {
            // What makes the server flush.
            client.fallocate(file, libc::FALLOC_FL_KEEP_SIZE, 1 << 20, 4096).unwrap();
        }
        client.fsync(file).unwrap();
        assert_eq!(after_kill(served, client, &image)[..100], [88; 100]);
    }
}

#[test]
fn appended_bytes_that_are_overwritten_before_the_flush_are_durable_as_they_are_then() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (served, client) = begin(&image);
    let file = granted(&client);
    // A ring for what is appended now, as others have made it by then.
    let append = |fill| {
        let end = client.fstat(file).unwrap().size;
        client.pwrite(file, &[fill; 2 * BLOCK_BYTES], end).unwrap();
        end as usize
    };
    append(60);
    client.fsync(file).unwrap();
    let begun = append(70);
    take(&client, file);
    client.pwrite(file, &[80; BLOCK_BYTES], (begun + BLOCK_BYTES) as u64).unwrap();
    let before = client.measured().calls.load(Relaxed);
    client.fsync(file).unwrap();
    assert_eq!(client.measured().calls.load(Relaxed), before);
    let found = after_kill(served, client, &image);
    assert_eq!((found[begun], found[begun + BLOCK_BYTES]), (70, 80));
    assert!(found[begun + BLOCK_BYTES..] == [80; BLOCK_BYTES]);
}

#[test]
fn what_the_whole_volume_has_made_durable_is_not_undone_by_an_entry() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    for closes in [true, false] {
        let (served, client) = begin(&image);
        let file = granted(&client);
        client.pwrite(file, &[88; 100], 0).unwrap();
        if closes {
            client.close(file).unwrap();
        }
        client.sync().unwrap();
        assert_eq!(after_kill(served, client, &image)[..100], [88; 100]);
    }
}

/// Bytes that a thread writes as one, beside those of another in each block.
const SLOT: usize = 40;

#[test]
fn threads_that_overwrite_the_same_blocks_find_each_what_it_has_made_durable() {
    stepping::set_hook(hold);
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1000 } else { 12 };
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let mut dice = Dice(5);
    for round in 0..rounds {
        let (mut served, client) = begin(&image);
        let file = granted(&client);
        client.sync().unwrap();
        let after = Duration::from_micros(5_000 + dice.roll(60_000));
        // In the middle of something, or when all are done: then no later entry hides what the last ones did.
        let counts = if round % 4 == 0 { u64::MAX } else { 4 + dice.roll(20) };
        let promised: Vec<[(u64, u64); 4]> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (mut dice, client) = (Dice(dice.roll(u64::MAX) | 1), &client);
                    scope.spawn(move || {
                        HOLDS.set(dice.roll(u64::MAX) | 1);
                        write_slots(client, file, thread, counts, &mut dice)
                    })
                })
                .collect();
            if counts == u64::MAX {
                std::thread::sleep(after);
                served.kill();
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        served.kill();
        drop(client);
        let (served, client) = begin(&image);
        let found = content(&client, open(&client, "/f"));
        for (thread, blocks) in promised.iter().enumerate() {
            for (block, (durable, written)) in blocks.iter().enumerate() {
                let slot = &found[block * BLOCK_BYTES + 200 + thread * SLOT..][..SLOT];
                let count = u64::from_le_bytes(slot[..8].try_into().unwrap());
                let is_known = *durable == 0 || (*durable..=*written).contains(&count);
                assert!(
                    is_known,
                    "round {round}: thread {thread}, block {block}: {count}, not {durable} to {written}"
                );
                assert!(
                    *durable == 0 || slot.chunks(8).all(|part| part == &slot[..8]),
                    "round {round}: torn"
                );
            }
        }
        drop(client);
        served.end();
    }
}

/// Counts in slots of some blocks until the server is gone, or so far: of each the count that is durable, and what was written last.
fn write_slots(
    client: &Client,
    file: FileRef,
    thread: usize,
    counts: u64,
    dice: &mut Dice,
) -> [(u64, u64); 4] {
    let mut blocks = [(0, 0); 4];
    for count in 1..counts {
        let at = dice.roll(blocks.len() as u64) as usize;
        blocks[at].1 = count;
        let offset = (at * BLOCK_BYTES + 200 + thread * SLOT) as u64;
        if client.pwrite(file, &count.to_le_bytes().repeat(SLOT / 8), offset).is_err() {
            break;
        }
        match dice.roll(40) {
            0 if client.seek(file, 0, libc::SEEK_DATA).is_err() => break,
            1..20 => continue,
            _ => {}
        }
        let written = blocks;
        if client.fsync(file).is_err() {
            break;
        }
        for (block, written) in blocks.iter_mut().zip(written) {
            block.0 = written.1;
        }
    }
    blocks
}

#[test]
fn what_a_program_has_made_durable_survives_kills_of_the_server() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    rounds(seed, if campaign { 600 } else { 12 });
}

#[test]
fn a_file_that_was_written_anew_and_closed_survives_a_kill_though_others_have_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    for (round, len) in [4, 5000, 443_701].into_iter().enumerate() {
        let path = format!("/f{round}");
        let (old, new) = (vec![1; 3000], vec![2; len]);
        let (mut served, client) = begin(&image);
        let (holder, other) = (open(&client, &path), open(&client, "/other"));
        client.pwrite(holder, &old, 0).unwrap();
        client.fsync(holder).unwrap();
        let flags = libc::O_WRONLY | libc::O_TRUNC;
        let writer = client.open(FileRef::ROOT, path.as_bytes(), flags, 0).unwrap().file;
        client.pwrite(writer, &new, 0).unwrap();
        client.close(writer).unwrap();
        // What makes the truncation durable.
        client.fallocate(other, 0, 0, 1 << 20).unwrap();
        client.fsync(other).unwrap();
        served.kill();
        drop(client);
        let (served, client) = begin(&image);
        let file = open(&client, &path);
        assert!(content(&client, file) == new, "{} bytes of {len}", client.fstat(file).unwrap().size);
        drop(client);
        served.end();
    }
}

#[test]
fn what_a_program_writes_to_a_file_that_is_open_so_is_durable_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (mut served, client) = begin(&image);
    let policies: [fn() -> Chain; 3] = [Chain::all, Chain::prefix, Chain::each];
    let mut expected = Vec::new();
    for (at, (policy, flag)) in
        policies.iter().flat_map(|policy| [(policy, libc::O_SYNC), (policy, libc::O_DSYNC)]).enumerate()
    {
        for appends in [true, false] {
            let path = format!("/{at} {appends}");
            let flags = flag | libc::O_RDWR | libc::O_CREAT;
            let file = client.open(FileRef::ROOT, path.as_bytes(), flags, 0o644).unwrap().file;
            let mut content = vec![1; 5_000];
            client.pwrite(file, &content, 0).unwrap();
            for round in 0..5u8 {
                let mut chain = policy();
                let given = chain.given(0);
                if appends {
                    chain.append(given, [round; 100].as_slice());
                    content.extend_from_slice(&[round; 100]);
                } else {
                    chain.write(given, 300, [round; 100].as_slice());
                    content[300..400].fill(round);
                }
                let answer = client.run_program(FileRef::ROOT, 0, &[file], &chain.check().unwrap()).unwrap();
                assert_eq!(answer.failed(), None);
            }
            expected.push((path, content));
        }
    }
    served.kill();
    drop(client);
    let (served, client) = begin(&image);
    for (path, expected) in expected {
        let file = open(&client, &path);
        assert!(content(&client, file) == expected, "{path}");
    }
    drop(client);
    served.end();
}

#[test]
fn a_program_that_syncs_a_file_makes_all_names_durable_with_it_though_the_file_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (mut served, client) = begin(&image);
    let (synced, renamed) = (open(&client, "/synced"), open(&client, "/old"));
    for file in [synced, renamed] {
        client.pwrite(file, b"content", 0).unwrap();
        client.fsync(file).unwrap();
    }
    let mut chain = Chain::each();
    let given = chain.given(0);
    chain.sync(given);
    let program = chain.check().unwrap();
    let sync = || client.run_program(FileRef::ROOT, 0, &[synced], &program).unwrap().failed();
    // From here on the file is known to be durable.
    assert_eq!([sync(), sync()], [None; 2]);
    client.rename(FileRef::ROOT, b"/old", FileRef::ROOT, b"/new", 0).unwrap();
    assert_eq!(sync(), None);
    served.kill();
    drop(client);
    let (served, client) = begin(&image);
    let missing = client.stat(FileRef::ROOT, b"/old", 0).map(drop);
    assert_eq!((client.stat(FileRef::ROOT, b"/new", 0).map(drop), missing), (Ok(()), Err(libc::ENOENT)));
    drop(client);
    served.end();
}

/// Changes the first byte of each copy of some bytes in an image, as a drive that loses them does; the places.
fn damage(image: &Path, bytes: &[u8]) -> Vec<usize> {
    let file = std::fs::File::options().read(true).write(true).open(image).unwrap();
    let content = std::fs::read(image).unwrap();
    let found: Vec<usize> = content
        .windows(8)
        .enumerate()
        .filter(|(at, window)| *window == &bytes[..8] && content[*at..].starts_with(bytes))
        .map(|(at, _)| at)
        .collect();
    found.iter().for_each(|at| file.write_all_at(&[!bytes[0]], *at as u64).unwrap());
    found
}

#[test]
fn a_file_that_is_damaged_where_it_ends_keeps_no_other_from_being_changed() {
    for is_closed in [false, true] {
        change_beside_a_damaged_file(is_closed);
    }
}

fn change_beside_a_damaged_file(is_closed: bool) {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (served, client) = begin(&image);
    let (damaged, sound) = (open(&client, "/damaged"), open(&client, "/sound"));
    let tail: Vec<u8> = (0..1000u32).map(|n| (n * n % 251) as u8).collect();
    client.pwrite(damaged, &[&[7; 8192], &tail[..]].concat(), 0).unwrap();
    let (mut end, mut sound_end) = (9192, 0);
    for _ in 0..8 {
        end += client.pwrite(damaged, b"more", end).unwrap() as u64;
        client.fsync(damaged).unwrap();
        sound_end += client.pwrite(sound, &[1; 5000], sound_end).unwrap() as u64;
        client.fsync(sound).unwrap();
    }
    client.sync().unwrap();
    let places = damage(&image, &tail[..500]);
    assert!(!places.is_empty());
    // Made durable by the client; the server cannot store it.
    let before = client.measured().calls.load(Relaxed);
    client.pwrite(damaged, b"lost", end).unwrap();
    client.fsync(damaged).unwrap();
    client.pwrite(sound, &[2; 5000], sound_end).unwrap();
    client.fsync(sound).unwrap();
    assert_eq!(client.measured().calls.load(Relaxed), before, "the flushes were the client's");
    if is_closed {
        assert_eq!(client.close(damaged), Err(libc::EIO));
    }
    client.ftruncate(sound, 3).unwrap();
    client.pwrite(sound, &[3; 10], 0).unwrap();
    client.fsync(sound).unwrap();
    if !is_closed {
        assert_eq!(client.fsync(damaged), Err(libc::EIO));
    }
    drop(client);
    drop(served);
    // The journal, too, has a copy, and the volume would be damaged without it.
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    places.iter().for_each(|at| file.write_all_at(&tail[..1], *at as u64).unwrap());
    let (served, client) = begin(&image);
    assert_eq!(content(&client, open(&client, "/sound")), [3; 10]);
    drop(client);
    served.end();
}

/// The newest head of the append log in an image, and where the log begins.
fn head_of(image: &Path) -> (LogHead, u64) {
    let content = std::fs::read(image).unwrap();
    let heads = content.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| block.starts_with(b"WEFTAPLG"));
    let heads: Vec<_> = heads.map(|(at, block)| (at * BLOCK_BYTES, block)).collect();
    let id: [u8; 16] = heads[0].1[8..24].try_into().unwrap();
    let newest =
        heads.iter().map(|(_, block)| LogHead::decode(block, id).unwrap()).max_by_key(|head| head.count);
    (newest.unwrap(), heads[0].0 as u64)
}

#[test]
fn what_a_program_of_a_killed_server_writes_late_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (mut served, client) = begin(&image);
    let file = open(&client, "/f");
    let mut end = 0;
    for _ in 0..8 {
        end += client.pwrite(file, b"old ", end).unwrap() as u64;
        client.fsync(file).unwrap();
    }
    // This ends the turn, and the next one has no entries.
    client.ftruncate(file, 5).unwrap();
    client.fsync(file).unwrap();
    let ino = client.fstat(file).unwrap().ino;
    served.kill();
    let (head, log) = head_of(&image);
    assert!(head.is_live && head.turn.number > 1, "{head:?}");
    drop(client);
    // The next server knows nothing of an entry.
    Served::begin(&image).end();
    let mut entry = vec![0; BLOCK_BYTES];
    entry[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + 5].copy_from_slice(b"stale");
    let append = Append { ino: Ino(ino), offset: 0, mtime_ns: 1 };
    seal(&mut entry, &head.turn, FIRST_BLOCK, &append, 5);
    let raw = std::fs::File::options().write(true).open(&image).unwrap();
    raw.write_all_at(&entry, log + u64::from(FIRST_BLOCK) * BLOCK_BYTES as u64).unwrap();
    let (served, client) = begin(&image);
    assert_eq!(content(&client, open(&client, "/f")), b"old o");
    drop(client);
    served.end();
    assert!(!head_of(&image).0.is_live);
}

#[test]
fn a_name_that_is_removed_is_gone_after_the_next_flush_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_in(dir.path());
    let (mut served, client) = begin(&image);
    let file = open(&client, "/a");
    client.link(FileRef::ROOT, b"/a", FileRef::ROOT, b"/b", 0).unwrap();
    let mut end = 0;
    for _ in 0..8 {
        end += client.pwrite(file, b"more", end).unwrap() as u64;
        client.fsync(file).unwrap();
    }
    client.unlink(FileRef::ROOT, b"/b", 0).unwrap();
    client.fsync(file).unwrap();
    served.kill();
    drop(client);
    let (served, client) = begin(&image);
    assert_eq!(client.fstat(open(&client, "/a")).unwrap().links, 1);
    assert_eq!(client.stat(FileRef::ROOT, b"/b", 0).err(), Some(libc::ENOENT));
    drop(client);
    served.end();
}
