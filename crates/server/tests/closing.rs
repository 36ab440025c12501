//! What a client closes without a call is closed for whoever could notice.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::sync::atomic::Ordering::*;
use weft_client::proto::ITSELF;
use weft_client::{Child, Client, FileRef, LockRange};

const ROOT: FileRef = FileRef::ROOT;
const RW: i32 = libc::O_RDWR;

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

/// Makes a file of some blocks.
fn make(client: &Client, path: &[u8], bytes: usize) {
    let file = client.open(ROOT, path, RW | libc::O_CREAT, 0o644).unwrap().file;
    assert_eq!(client.pwrite(file, &vec![7; bytes], 0), Ok(bytes));
    client.fsync(file).unwrap();
    client.close(file).unwrap();
}

fn open(client: &Client, path: &[u8]) -> FileRef {
    client.open(ROOT, path, libc::O_RDONLY, 0).unwrap().file
}

/// Blocks that are free once the core has taken back what nobody has any more.
fn free(client: &Client) -> u64 {
    client.sync().unwrap();
    client.statfs().unwrap().free_bytes
}

#[test]
fn a_file_that_was_open_for_reading_is_closed_without_a_call() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    make(&client, b"/a", 5000);
    let before = calls(&client);
    for _ in 0..500 {
        client.close(open(&client, b"/a")).unwrap();
    }
    let files: Vec<_> = (0..500).map(|_| open(&client, b"/a")).collect();
    // As many as there is room for, and then one that is told with them.
    files.into_iter().for_each(|file| client.close(file).unwrap());
    let made = calls(&client) - before;
    assert!(made < 1020, "{made} calls for 1000 opens and closes");
}

#[test]
fn a_file_that_loses_its_name_behind_its_close_takes_no_space() {
    let rig = Rig::new(64 << 20);
    let (reader, other) = (rig.client(), rig.client());
    make(&other, b"/left", 5000);
    let empty = free(&other);
    for way in 0..4 {
        make(&other, b"/a", 8 << 20);
        make(&other, b"/b", 10);
        let held = free(&other);
        assert!(empty - held >= 8 << 20);
        let file = open(&reader, b"/a");
        let before = calls(&reader);
        match way {
            // Closed, then the name goes.
            0 => {
                reader.close(file).unwrap();
                other.unlink(ROOT, b"/a", 0).unwrap();
            }
            1 => {
                reader.close(file).unwrap();
                other.rename(ROOT, b"/b", ROOT, b"/a", 0).unwrap();
                make(&other, b"/b", 10);
                other.unlink(ROOT, b"/a", 0).unwrap();
            }
            // The other way round: then it is told.
            2 => {
                other.unlink(ROOT, b"/a", 0).unwrap();
                reader.close(file).unwrap();
                assert_eq!(calls(&reader), before + 1);
            }
            // A child that was on its way has nothing of it.
            _ => {
                reader.close(file).unwrap();
                let ticket = reader.prepare_child(Child::Forked).unwrap();
                other.unlink(ROOT, b"/a", 0).unwrap();
                let now = free(&other);
                assert!(empty - now < 1 << 20, "the child's connection keeps {}", empty - now);
                reader.forget(ticket);
            }
        }
        other.unlink(ROOT, b"/b", 0).unwrap();
        let now = free(&other);
        assert!(empty.saturating_sub(now) < 1 << 20, "way {way}: {} bytes are kept", empty - now);
    }
    // A directory likewise.
    other.mkdir(ROOT, b"/d", 0o755).unwrap();
    let dir = reader.open(ROOT, b"/d", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    reader.close(dir).unwrap();
    other.unlink(ROOT, b"/d", libc::AT_REMOVEDIR).unwrap();
}

#[test]
fn locks_end_with_the_descriptor_that_is_closed() {
    let rig = Rig::new(64 << 20);
    let (one, other) = (rig.client(), rig.client());
    make(&one, b"/a", 10);
    let theirs = other.open(ROOT, b"/a", RW, 0).unwrap().file;
    let exclusive = libc::LOCK_EX | libc::LOCK_NB;
    let all = |kind| LockRange { kind, start: 0, len: 0, pid: 0 };
    // A lock of the open file.
    let file = open(&one, b"/a");
    one.flock(file, exclusive).unwrap();
    assert_eq!(other.flock(theirs, exclusive), Err(libc::EAGAIN));
    one.close(file).unwrap();
    other.flock(theirs, exclusive).unwrap();
    other.flock(theirs, libc::LOCK_UN).unwrap();
    // A lock of the process goes with any descriptor of the file.
    let (file, second) = (open(&one, b"/a"), open(&one, b"/a"));
    one.record_lock(file, libc::F_SETLK, &all(libc::F_RDLCK)).unwrap();
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &all(libc::F_WRLCK)).err(), Some(libc::EAGAIN));
    one.close(second).unwrap();
    other.record_lock(theirs, libc::F_SETLK, &all(libc::F_WRLCK)).unwrap();
    one.close(file).unwrap();
    // One that was closed before the lock was asked for takes none away.
    make(&one, b"/b", 10);
    let (file, second) = (open(&one, b"/b"), open(&one, b"/b"));
    let theirs = other.open(ROOT, b"/b", RW, 0).unwrap().file;
    one.close(second).unwrap();
    one.record_lock(file, libc::F_SETLK, &all(libc::F_RDLCK)).unwrap();
    one.fstat(file).unwrap();
    one.sync().unwrap();
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &all(libc::F_WRLCK)).err(), Some(libc::EAGAIN));
    one.close(file).unwrap();
    other.record_lock(theirs, libc::F_SETLK, &all(libc::F_WRLCK)).unwrap();
}

#[test]
fn a_file_that_never_had_a_name_is_closed_by_a_call() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = client.open(ROOT, b"/", RW | libc::O_TMPFILE, 0o600).unwrap().file;
    let reader = client.open(file, ITSELF, libc::O_RDONLY, 0).unwrap().file;
    let before = calls(&client);
    client.close(reader).unwrap();
    assert_eq!(calls(&client), before + 1);
}

#[test]
fn what_the_server_has_not_taken_yet_is_closed_by_a_call_that_tells_of_errors() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let open = |flags| client.open(ROOT, b"/a", libc::O_RDWR | flags, 0o644).unwrap().file;
    let closes = |file| {
        let before = calls(&client);
        client.close(file).unwrap();
        calls(&client) - before
    };
    assert_eq!(closes(open(libc::O_CREAT)), 0, "nothing was written");
    let file = open(0);
    client.write(file, &[1; 10_000]).unwrap();
    assert_eq!(closes(file), 1, "the ring holds something");
    let file = open(0);
    client.pwrite(file, &[2; 100], 0).unwrap();
    assert_eq!(closes(file), 0, "written by the server");
    let file = open(0);
    for _ in 0..4 {
        client.pwrite(file, &[3; 100], 0).unwrap();
    }
    assert_eq!(closes(file), 1, "overwritten without it");
    // Beside another one that has it open, too.
    let (file, kept) = (open(0), open(0));
    client.write(file, &[4; 10_000]).unwrap();
    client.fsync(file).unwrap();
    assert_eq!((closes(file), closes(kept)), (0, 0), "the server has taken it");
}

#[test]
fn threads_that_close_while_names_go_leave_nothing_open() {
    let rig = Rig::new(64 << 20);
    let other = rig.client();
    let empty = free(&other);
    let reader = rig.client();
    for round in 0..200 {
        let path = format!("/{round}").into_bytes();
        make(&other, &path, 256 << 10);
        let files: Vec<_> = (0..4).map(|_| open(&reader, &path)).collect();
        std::thread::scope(|scope| {
            let reader = &reader;
            files.into_iter().for_each(|file| drop(scope.spawn(move || reader.close(file).unwrap())));
            other.unlink(ROOT, &path, 0).unwrap();
        });
    }
    let now = free(&other);
    assert!(empty.saturating_sub(now) < 2 << 20, "{} bytes are kept", empty - now);
}
