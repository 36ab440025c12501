//! One user cannot take all connections of a served socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::Uid;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weft_core::frame;
use weft_core::serve::{Serve, ServeOptions, SocketServer, TooMany};

const MOST: usize = 8;

/// Greets, and keeps the connection until the client goes.
struct Greet;

impl Serve for Greet {
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        frame::send(&mut stream, b"welcome")?;
        stream.read(&mut [0]).map(drop)
    }

    fn refusal(&self, why: &TooMany) -> Vec<u8> {
        why.to_string().into_bytes()
    }
}

/// What the server says to one more client.
fn connect(path: &Path) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(path).unwrap();
    let said = frame::receive(&mut stream, 1000).unwrap().unwrap();
    (stream, String::from_utf8(said).unwrap())
}

/// As many connections as a user gets, and what the server says to one more.
fn take_all(path: &Path, user: u32) -> (Vec<UnixStream>, String) {
    let path = path.to_path_buf();
    let taking = std::thread::spawn(move || {
        let user = Uid::from_raw(user);
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut held = Vec::new();
        loop {
            match connect(&path) {
                (stream, said) if said == "welcome" => held.push(stream),
                (_, said) => return (held, said),
            }
        }
    });
    taking.join().unwrap()
}

#[test]
fn a_user_leaves_connections_to_others_and_those_who_go_make_room() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only the superuser can take on the identities of others");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = scratch.path().join("s");
    let options = ServeOptions { connections_max: MOST, for_everyone: true };
    let server = SocketServer::start(&path, options, Arc::new(Greet)).unwrap();
    let (mut first, said) = take_all(&path, 1001);
    assert_eq!(first.len(), MOST / 2);
    assert_eq!(said, "user 1001 has 4 connections, and 4 of 8 are left for others; close some");
    // However many users come, one that has none gets one.
    let others: Vec<_> = [1002, 1003].map(|user| take_all(&path, user).0).into();
    assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    let (last, said) = take_all(&path, 0);
    assert_eq!((last.len(), said), (1, TooMany::OfAll { most: MOST }.to_string()));
    first.truncate(1);
    let served = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        connect(&path).1 == "welcome"
    });
    assert!(served);
    drop(server);
    // The server's own user may take all where nobody else is let in.
    let options = ServeOptions { for_everyone: false, ..options };
    let server = SocketServer::start(&path, options, Arc::new(Greet)).unwrap();
    let (all, said) = take_all(&path, 0);
    assert_eq!((all.len(), said), (MOST, TooMany::OfAll { most: MOST }.to_string()));
    drop(server);
    // Others, whom a change of its mode lets in, may not.
    let _server = SocketServer::start(&path, options, Arc::new(Greet)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(take_all(&path, 1001).0.len(), MOST / 2);
}
