//! Writes of any size are whole to other writers: records that several append do not mix, nor do pieces of overwrites and
//! truncations.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Rig, connect, is_superuser};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use weft_client::stepping::{self, Point};
use weft_client::{AttrChange, Client, FileRef};

const RECORD: usize = 700_000;
const RECORDS: usize = 8;

/// Clients with shared memory, and one without it when there is another user.
fn clients(rig: &Rig) -> Vec<Client> {
    let mut clients = vec![rig.client(), rig.client()];
    if is_superuser() {
        let all = AttrChange { mode: Some(0o777), ..AttrChange::default() };
        clients[0].set_attr(FileRef::ROOT, b"/", 0, &all).unwrap();
        clients.push(rig.as_user(1001, || connect(&rig.path)));
        clients.push(rig.as_user(1001, || connect(&rig.path)));
    }
    clients
}

fn open(client: &Client, flags: i32) -> FileRef {
    client.open(FileRef::ROOT, b"/f", flags | libc::O_CREAT, 0o666).unwrap().file
}

fn content(client: &Client, file: FileRef) -> Vec<u8> {
    let mut out = vec![0; client.fstat(file).unwrap().size as usize];
    let mut done = 0;
    while done < out.len() {
        done += client.pread(file, &mut out[done..], done as u64).unwrap();
    }
    out
}

fn mixed(content: &[u8]) -> usize {
    content.chunks(RECORD).filter(|record| record.iter().any(|byte| *byte != record[0])).count()
}

/// Runs `write` for each client at the same time, with a byte of its own; twice each, by two threads.
fn at_once(clients: &[Client], write: impl Fn(&Client, u8) + Sync) {
    std::thread::scope(|scope| {
        for (number, client) in clients.iter().chain(clients).enumerate() {
            let write = &write;
            scope.spawn(move || write(client, number as u8 + 1));
        }
    });
}

#[test]
fn appended_records_stay_whole() {
    let rig = Rig::new(512 << 20);
    let clients = clients(&rig);
    at_once(&clients, |client, byte| {
        let file = open(client, libc::O_WRONLY | libc::O_APPEND);
        for _ in 0..RECORDS {
            assert_eq!(client.write(file, &vec![byte; RECORD]), Ok(RECORD));
        }
        client.close(file).unwrap();
    });
    let file = open(&clients[0], libc::O_RDONLY);
    let content = content(&clients[0], file);
    assert_eq!(content.len(), 2 * clients.len() * RECORDS * RECORD);
    assert_eq!(mixed(&content), 0, "records that are mixed");
}

#[test]
fn records_stay_whole_beside_small_ones() {
    let rig = Rig::new(512 << 20);
    let clients = clients(&rig);
    at_once(&clients, |client, byte| {
        let file = open(client, libc::O_WRONLY | libc::O_APPEND);
        for _ in 0..RECORDS {
            let len = if byte % 2 == 0 { RECORD } else { 100 };
            assert_eq!(client.write(file, &vec![byte; len]), Ok(len));
        }
    });
    let file = open(&clients[0], libc::O_RDONLY);
    let content = content(&clients[0], file);
    let mut rest = &content[..];
    while let Some(byte) = rest.first() {
        let len = if byte % 2 == 0 { RECORD } else { 100 };
        assert!(rest[..len].iter().all(|other| other == byte), "a record of {byte} is mixed");
        rest = &rest[len..];
    }
}

#[test]
fn of_several_writes_to_one_place_the_last_one_stays() {
    let rig = Rig::new(512 << 20);
    let clients = clients(&rig);
    let file = open(&clients[0], libc::O_RDWR);
    for _ in 0..RECORDS {
        at_once(&clients, |client, byte| {
            let file = open(client, libc::O_WRONLY);
            assert_eq!(client.pwrite(file, &vec![byte; RECORD], 0), Ok(RECORD));
        });
        assert_eq!(mixed(&content(&clients[0], file)), 0);
    }
}

#[test]
fn a_truncation_comes_before_or_after_a_write() {
    let rig = Rig::new(512 << 20);
    let clients = clients(&rig);
    let file = open(&clients[0], libc::O_RDWR);
    for round in 0..6 * RECORDS {
        std::thread::scope(|scope| {
            let (writer, other) = (&clients[round % clients.len()], &clients[(round + 1) % clients.len()]);
            scope.spawn(move || writer.pwrite(open(writer, libc::O_WRONLY), &vec![1; RECORD], 0).unwrap());
            scope.spawn(move || other.ftruncate(open(other, libc::O_WRONLY), 0).unwrap());
        });
        let content = content(&clients[0], file);
        assert!(content.is_empty() || content == vec![1; RECORD], "round {round}: {} bytes", content.len());
    }
}

#[test]
fn others_get_their_turn_however_long_records_are_appended() {
    let rig = Rig::new(256 << 20);
    let clients = clients(&rig);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in &clients {
            let is_over = &is_over;
            scope.spawn(move || {
                let file = open(client, libc::O_WRONLY | libc::O_APPEND);
                while !is_over.load(Relaxed) {
                    client.write(file, &vec![1; RECORD]).unwrap();
                }
            });
        }
        let others: Vec<_> = clients
            .iter()
            .map(|client| {
                scope.spawn(move || {
                    let file = open(client, libc::O_WRONLY | libc::O_APPEND);
                    for _ in 0..20 {
                        client.ftruncate(file, 0).unwrap();
                        client.write(file, b"small").unwrap();
                    }
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        is_over.store(true, Relaxed);
    });
}

thread_local! {
    /// A thread that has both stops after its first piece: it says so, and goes on when it is told.
    static STOPS: RefCell<Option<(Sender<()>, Receiver<()>)>> = const { RefCell::new(None) };
}

fn stop(point: Point) {
    let stops = if point == Point::PieceWritten { STOPS.take() } else { None };
    if let Some((says, goes_on)) = stops {
        says.send(()).unwrap();
        goes_on.recv().unwrap();
    }
}

#[test]
fn a_writer_that_ends_in_the_middle_keeps_nobody_waiting() {
    stepping::set_hook(stop);
    let rig = Rig::new(64 << 20);
    for kind in 0..clients(&rig).len() {
        let clients = clients(&rig);
        let (ends, waits) = (&clients[kind], &rig.client());
        std::thread::scope(|scope| {
            let (says, stopped) = channel();
            let (go_on, goes_on) = channel();
            scope.spawn(move || {
                STOPS.set(Some((says, goes_on)));
                let file = open(ends, libc::O_WRONLY | libc::O_APPEND);
                // What it is told then does not matter.
                let _ = ends.write(file, &vec![1; RECORD]);
            });
            stopped.recv().unwrap();
            let other = scope.spawn(move || {
                let file = open(waits, libc::O_WRONLY | libc::O_APPEND);
                waits.write(file, &[2; 100]).unwrap()
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!other.is_finished(), "somebody writes between the pieces of client {kind}");
            let _ = weft_client::sys::close(ends.socket());
            assert_eq!(other.join().unwrap(), 100);
            go_on.send(()).unwrap();
        });
        std::mem::forget(clients);
    }
}

#[test]
fn nobody_waits_for_a_writer_when_the_server_has_ended() {
    stepping::set_hook(stop);
    let mut rig = Rig::new(64 << 20);
    let (ends, waits) = (rig.client(), rig.client());
    let file = open(&waits, libc::O_WRONLY | libc::O_APPEND);
    waits.write(file, b"small").unwrap();
    std::thread::scope(|scope| {
        let (says, stopped) = channel();
        let (go_on, goes_on) = channel();
        let ends = &ends;
        scope.spawn(move || {
            STOPS.set(Some((says, goes_on)));
            let file = open(ends, libc::O_WRONLY | libc::O_APPEND);
            assert!(ends.write(file, &vec![1; RECORD]).is_ok_and(|len| len < RECORD));
        });
        stopped.recv().unwrap();
        let waiting = scope.spawn(|| waits.write(file, b"small"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(rig.server.take().map(weft_server::Server::stop));
        assert_eq!(waiting.join().unwrap(), Err(libc::EIO));
        go_on.send(()).unwrap();
    });
}
