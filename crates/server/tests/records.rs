//! Record locks that processes set by themselves exclude what they would if the server set them.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Dice, Rig, connect, is_superuser};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;
use weft_client::{AttrChange, Child, Client, FileRef, LockRange};

const ROOT: FileRef = FileRef::ROOT;
const RW: i32 = libc::O_RDWR;

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

fn range(kind: i32, start: u64, len: u64) -> LockRange {
    LockRange { kind, start, len, pid: 0 }
}

fn open(client: &Client, path: &[u8]) -> FileRef {
    client.open(ROOT, path, RW | libc::O_CREAT, 0o666).unwrap().file
}

#[test]
fn a_process_alone_locks_and_unlocks_without_a_call() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let (file, theirs) = (open(&client, b"/a"), open(&other, b"/a"));
    let set = |kind, start, len| client.record_lock(file, libc::F_SETLK, &range(kind, start, len)).map(drop);
    assert_eq!(set(libc::F_RDLCK, 0, 1), Ok(()));
    let before = calls(&client);
    for start in 0..100 {
        assert_eq!(set(libc::F_WRLCK, start, 10), Ok(()));
        assert_eq!(
            client.record_lock(file, libc::F_SETLKW, &range(libc::F_RDLCK, start, 1)).map(drop),
            Ok(())
        );
        let found = client.record_lock(file, libc::F_GETLK, &range(libc::F_WRLCK, 0, 0)).unwrap();
        assert_eq!(found.kind, libc::F_UNLCK, "its own");
        assert_eq!(set(libc::F_UNLCK, 0, 0), Ok(()));
    }
    assert_eq!(set(libc::F_WRLCK, 5, 5), Ok(()));
    assert_eq!(calls(&client), before);
    // Another process that is refused learns by whom.
    let wanted = range(libc::F_RDLCK, 0, 0);
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &wanted).err(), Some(libc::EAGAIN));
    let found = other.record_lock(theirs, libc::F_GETLK, &wanted).unwrap();
    assert_eq!((found.kind, found.start, found.len), (libc::F_WRLCK, 5, 5));
    assert_eq!(found.pid, std::process::id());
    // It gets a lock beside it by itself.
    assert_eq!(set(libc::F_UNLCK, 9, 1), Ok(()));
    other.record_lock(theirs, libc::F_SETLK, &range(libc::F_WRLCK, 20, 5)).unwrap();
    let before = (calls(&client), calls(&other));
    other.record_lock(theirs, libc::F_SETLK, &range(libc::F_WRLCK, 9, 5)).unwrap();
    assert_eq!(set(libc::F_WRLCK, 0, 9), Ok(()));
    assert_eq!((calls(&client), calls(&other)), before);
    // What stands for a name only takes no locks with it.
    let name = client.open(ROOT, b"/a", libc::O_PATH, 0).unwrap().file;
    client.duplicate(name).unwrap();
    client.close(name).unwrap();
    client.close(name).unwrap();
    assert_eq!(
        other.record_lock(theirs, libc::F_SETLK, &range(libc::F_WRLCK, 0, 9)).err(),
        Some(libc::EAGAIN)
    );
    // A descriptor that is closed takes the locks with it, and so does a process that ends.
    client.close(open(&client, b"/a")).unwrap();
    other.record_lock(theirs, libc::F_SETLK, &range(libc::F_WRLCK, 0, 0)).unwrap();
    assert_eq!(set(libc::F_RDLCK, 0, 1), Err(libc::EAGAIN));
    drop(other);
    assert_eq!(set(libc::F_WRLCK, 0, 0), Ok(()));
}

/// Who holds what of each byte: a process (0 to 2), or an open file of one (3 to 5).
type Bytes = [Vec<(usize, bool)>; 30];

fn is_free(bytes: &Bytes, owner: usize, exclusive: bool, from: u64, len: u64) -> bool {
    let held = bytes[from as usize..(from + len) as usize].iter().flatten();
    held.filter(|(other, _)| *other != owner).all(|(_, theirs)| !exclusive && !theirs)
}

#[test]
fn any_sequence_of_locks_is_granted_and_refused_as_by_one_table() {
    if !is_superuser() {
        return;
    }
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 2000 } else { 40 };
    let (mut without, mut refused) = (0, 0);
    for seed in 1..=seeds {
        let rig = Rig::new(64 << 20);
        let owner = rig.client();
        let all = AttrChange { mode: Some(0o777), ..AttrChange::default() };
        owner.set_attr(ROOT, b"/", 0, &all).unwrap();
        let first = open(&owner, b"/a");
        owner.set_attr(ROOT, b"/a", 0, &AttrChange { mode: Some(0o666), ..AttrChange::default() }).unwrap();
        // The last one has no shared memory.
        let clients = [owner, rig.client(), rig.as_user(1001, || connect(&rig.path))];
        let mut files = [first, open(&clients[1], b"/a"), open(&clients[2], b"/a")];
        let (mut dice, mut bytes) = (Dice(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed)), Bytes::default());
        // Most seeds have few that differ from plain locks of processes.
        let odd = [2, 20, 60][dice.roll(3) as usize];
        for step in 0..400 {
            let what = format!("seed {seed}, step {step}");
            let who = if dice.roll(100) < odd { 2 } else { dice.roll(2) as usize };
            let by_file = dice.roll(100) < odd / 2;
            let (client, file) = (&clients[who], files[who]);
            let owner = if by_file { who + 3 } else { who };
            let from = dice.roll(30);
            let len = 1 + dice.roll(30 - from);
            let kind = [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK, libc::F_UNLCK][dice.roll(4) as usize];
            let exclusive = kind == libc::F_WRLCK;
            let before = calls(client);
            match dice.roll(20) {
                0 => {
                    // Any descriptor that is closed.
                    let again = open(client, b"/a");
                    client.close(again).unwrap();
                    bytes.iter_mut().for_each(|held| held.retain(|(other, _)| *other != who));
                }
                1 if odd > 2 => {
                    files[who] = open(client, b"/a");
                    client.close(file).unwrap();
                    bytes.iter_mut().for_each(|held| held.retain(|(other, _)| other % 3 != who));
                }
                2 if kind != libc::F_UNLCK => {
                    let command = if by_file { libc::F_OFD_GETLK } else { libc::F_GETLK };
                    let found = client.record_lock(file, command, &range(kind, from, len)).unwrap();
                    let free = is_free(&bytes, owner, exclusive, from, len);
                    assert_eq!(found.kind == libc::F_UNLCK, free, "{what}");
                }
                3 => {
                    let ticket = client.prepare_child(Child::Forked).unwrap();
                    client.forget(ticket);
                }
                _ => {
                    let command = if by_file { libc::F_OFD_SETLK } else { libc::F_SETLK };
                    let done = client.record_lock(file, command, &range(kind, from, len)).map(drop);
                    let free = kind == libc::F_UNLCK || is_free(&bytes, owner, exclusive, from, len);
                    assert_eq!(done, if free { Ok(()) } else { Err(libc::EAGAIN) }, "{what}");
                    refused += u64::from(!free);
                    without += u64::from(calls(client) == before);
                    for held in bytes[from as usize..(from + len) as usize].iter_mut().filter(|_| free) {
                        held.retain(|(other, _)| *other != owner);
                        held.extend((kind != libc::F_UNLCK).then_some((owner, exclusive)));
                    }
                }
            }
        }
    }
    assert!(without > 1000 && refused > 1000, "{without} without a call, {refused} refused");
}

#[test]
fn waits_end_when_a_lock_that_was_set_without_a_call_is_cleared() {
    let rig = Rig::new(64 << 20);
    let (one, two) = (rig.client(), rig.client());
    let (file, theirs) = (open(&one, b"/a"), open(&two, b"/a"));
    let (inside, rounds) = (AtomicU64::new(0), 2000);
    let run = |client: &Client, file| {
        for round in 0..rounds {
            let (start, len) = (round % 3, 4);
            client.record_lock(file, libc::F_SETLKW, &range(libc::F_WRLCK, start, len)).unwrap();
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold a lock that excludes all others");
            if round % 50 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            inside.fetch_sub(1, SeqCst);
            client.record_lock(file, libc::F_SETLK, &range(libc::F_UNLCK, 0, 0)).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(&one, file));
        scope.spawn(|| run(&two, theirs));
    });
}

#[test]
fn a_program_that_is_executed_keeps_the_locks_of_the_one_before() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let (file, theirs) = (open(&client, b"/a"), open(&other, b"/a"));
    for start in [0, 10] {
        client.record_lock(file, libc::F_SETLK, &range(libc::F_WRLCK, start, 5)).unwrap();
    }
    let ticket = client.prepare_child(Child::Executed).unwrap();
    let heir = Client::take_over(ticket.socket(), &[file]).unwrap();
    drop(client);
    let all = range(libc::F_WRLCK, 0, 0);
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &all).err(), Some(libc::EAGAIN));
    let found = other.record_lock(theirs, libc::F_GETLK, &range(libc::F_RDLCK, 3, 9)).unwrap();
    assert_eq!((found.kind, found.start, found.len), (libc::F_WRLCK, 0, 5));
    heir.record_lock(file, libc::F_SETLK, &range(libc::F_UNLCK, 0, 10)).unwrap();
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &range(libc::F_WRLCK, 0, 10)).map(drop), Ok(()));
    drop(heir);
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &all).map(drop), Ok(()));
}

#[test]
fn a_program_that_is_executed_loses_the_locks_of_files_of_which_a_descriptor_is_closed_with_it() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let (file, theirs) = (open(&client, b"/a"), open(&other, b"/a"));
    client.record_lock(file, libc::F_SETLK, &range(libc::F_WRLCK, 0, 5)).unwrap();
    client.duplicate(file).unwrap();
    client.tell_duplicates().unwrap();
    let ticket = client.prepare_child(Child::Executed).unwrap();
    // One of the two was close-on-exec.
    let heir = Client::take_over(ticket.socket(), &[file]).unwrap();
    drop(client);
    assert_eq!(other.record_lock(theirs, libc::F_SETLK, &range(libc::F_WRLCK, 0, 5)).map(drop), Ok(()));
    assert!(heir.fstat(file).is_ok());
}
