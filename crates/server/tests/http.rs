//! A second front: lists and reads a volume over HTTP, while another program writes to it by call slots and rings. It needs
//! nothing of the server but a process and its [`Session`].

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use weft_client::FileRef;
use weft_core::Credentials;
use weft_server::ops::{At, Base, Caller, Error, Opener, Read, Session};
use weft_server::{Peer, Volume};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// What comes over a TCP connection shares no memory and waits for no locks.
struct Remote;

impl Peer for Remote {}

/// Serves each connection in a thread of its own, as the user of `caller`.
fn listen(volume: Arc<Volume>, caller: Caller) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (volume, caller) = (volume.clone(), caller.clone());
            std::thread::spawn(move || {
                let process = volume.begin_process("http".into(), b"/weft".to_vec(), None, Arc::new(Remote));
                let Some(process) = process else { return };
                // Whoever goes away in the middle of an answer has not asked for the rest.
                let _ = answer(&Session::new(&volume, &process, &caller), &stream);
                volume.end_process(&process, None);
            });
        }
    });
    address
}

fn answer(session: &Session<'_>, mut stream: &TcpStream) -> io::Result<()> {
    let mut line = String::new();
    let mut lines = BufReader::new(stream);
    lines.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some("GET"), Some(path)) = (words.next(), words.next()) else {
        return stream.write_all(b"HTTP/1.0 405 Method Not Allowed\r\n\r\n");
    };
    // Nothing in the header changes the answer.
    let mut header = String::new();
    while lines.read_line(&mut header)? > 2 {}
    match session.open(At::root(path.as_bytes()), libc::O_RDONLY, 0, Opener::default()) {
        Ok((open, mode)) => {
            let body = if mode & libc::S_IFMT == libc::S_IFDIR { list } else { send };
            body(session, open.file, stream)?;
            session.close(open.file, true).map_err(io::Error::other)
        }
        Err(error) => {
            let status = match error {
                Error::Errno(libc::EACCES | libc::EPERM) => "403 Forbidden",
                Error::Errno(libc::ENOENT | libc::ENOTDIR) | Error::Outside => "404 Not Found",
                _ => "500 Internal Server Error",
            };
            write!(stream, "HTTP/1.0 {status}\r\n\r\n{error}\n")
        }
    }
}

/// The names in a directory, one in a line; those of directories with a slash.
fn list(session: &Session<'_>, dir: FileRef, mut stream: &TcpStream) -> io::Result<()> {
    let mut names = Vec::new();
    let listed = session.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.extend_from_slice(entry.name);
            names.extend_from_slice(if entry.kind == weft_vfs::FileKind::Directory { b"/\n" } else { b"\n" });
        }
        true
    });
    listed.map_err(io::Error::other)?;
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", names.len())?;
    stream.write_all(&names)
}

fn send(session: &Session<'_>, file: FileRef, mut stream: &TcpStream) -> io::Result<()> {
    let itself = At { dir: Base::Open(file), path: b"" };
    let size = session.stat(itself, libc::AT_EMPTY_PATH).map_err(io::Error::other)?.size;
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {size}\r\n\r\n")?;
    let (mut at, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    while at < size {
        let wanted = CHUNK_BYTES.min((size - at) as usize);
        let read = Read { offset: Some(at), ..Read::default() };
        match session.read(file, read, &mut chunk[..wanted]).map_err(io::Error::other)?.len {
            // Somebody has cut it off.
            0 => break,
            len => {
                stream.write_all(&chunk[..len])?;
                at += len as u64;
            }
        }
    }
    Ok(())
}

/// The status and the body.
fn get(address: SocketAddr, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: weft\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer.split_off(head + 4))
}

fn nobody() -> Caller {
    Credentials::user(65_534, &[65_534]).into()
}

#[test]
fn a_volume_is_listed_and_read_over_http_while_a_program_appends_to_it() {
    let rig = Rig::new(64 << 20);
    let address = listen(rig.server.as_ref().unwrap().volume().clone(), nobody());
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/dir", 0o755).unwrap();
    let create = |path: &[u8], mode| {
        client.open(FileRef::ROOT, path, libc::O_CREAT | libc::O_RDWR | libc::O_APPEND, mode).unwrap().file
    };
    let log = create(b"/dir/log", 0o644);
    let mut written = Vec::new();
    // Larger than a chunk, and the end of it still in the ring.
    for line in 0..5_000 {
        let line = format!("line {line} of the log\n");
        client.write(log, line.as_bytes()).unwrap();
        written.extend_from_slice(line.as_bytes());
        if line.starts_with("line 1000 ") {
            assert_eq!(get_len(address, "/dir/log"), written.len());
        }
    }
    assert!(get(address, "/dir/log") == (200, written));
    create(b"/dir/private", 0o600);
    client.mkdir(FileRef::ROOT, b"/dir/sub", 0o700).unwrap();
    client.symlink(b"log", FileRef::ROOT, b"/dir/current").unwrap();
    assert_eq!(get(address, "/"), (200, b"dir/\n".to_vec()));
    let (status, names) = get(address, "/dir/");
    let mut names: Vec<&str> = std::str::from_utf8(&names).unwrap().lines().collect();
    names.sort_unstable();
    assert_eq!((status, names.as_slice()), (200, ["current", "log", "private", "sub/"].as_slice()));
    assert_eq!(get(address, "/dir/current").1.len(), get_len(address, "/dir/log"));
    assert_eq!([get(address, "/dir/private").0, get(address, "/dir/sub/").0], [403, 403]);
    assert_eq!([get(address, "/missing").0, get(address, "/dir/log/x").0], [404, 404]);
    client.unlink(FileRef::ROOT, b"/dir/log", 0).unwrap();
    assert_eq!(get(address, "/dir/current").0, 404);
}

fn get_len(address: SocketAddr, path: &str) -> usize {
    get(address, path).1.len()
}
