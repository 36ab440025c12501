//! A client and a server in one process, over the in-memory core: the protocol and what it promises.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier};
use weft_client::{AttrChange, Client, ConnectOptions, FileRef, LockRange, Resolution, WireDirent};
use weft_server::{Server, Volume};
use weft_volume::MountChoice;

struct Rig {
    server: Option<Server>,
    _dir: tempfile::TempDir,
    path: Vec<u8>,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let mounted = weft_volume::mount_memfs(Arc::default(), &MountChoice::default()).unwrap();
        let volume = Volume::new(Arc::new(mounted)).unwrap();
        let path = dir.path().join("s");
        let server = Server::start(volume, &path).unwrap();
        Rig { path: path.to_str().unwrap().as_bytes().to_vec(), _dir: dir, server: Some(server) }
    }

    fn client(&self) -> Client {
        let options = ConnectOptions { socket_path: &self.path, mount_point: b"/weft" };
        Client::connect(&options).unwrap()
    }
}

fn create(client: &Client, path: &[u8]) -> FileRef {
    client.open(FileRef::ROOT, path, libc::O_CREAT | libc::O_RDWR, 0o644).unwrap().file
}

#[test]
fn what_is_written_is_read_back_by_another_client() {
    let rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let file = create(&a, b"/x");
    assert_eq!(a.write(file, b"hello ").unwrap(), 6);
    assert_eq!(a.write(file, b"world").unwrap(), 5);
    let other = b.open(FileRef::ROOT, b"/x", libc::O_RDONLY, 0).unwrap().file;
    let mut out = [0; 32];
    assert_eq!(b.read(other, &mut out).unwrap(), 11);
    assert_eq!(&out[..11], b"hello world");
    assert_eq!(b.read(other, &mut out).unwrap(), 0);
    assert_eq!(b.write(other, b"x").unwrap_err(), libc::EBADF);
}

#[test]
fn a_file_that_the_connection_does_not_hold_is_refused() {
    let rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let file = create(&a, b"/x");
    assert_eq!(b.fstat(file).unwrap_err(), libc::EBADF);
    assert_eq!(b.close(file).unwrap_err(), libc::EBADF);
    a.close(file).unwrap();
    assert_eq!(a.fstat(file).unwrap_err(), libc::EBADF);
}

#[test]
fn an_unlinked_file_lives_until_its_process_ends() {
    let rig = Rig::new();
    let a = rig.client();
    let file = create(&a, b"/x");
    a.unlink(FileRef::ROOT, b"/x", 0).unwrap();
    a.write(file, b"still here").unwrap();
    assert_eq!(a.fstat(file).unwrap().size, 10);
    let before = rig.client().statfs().unwrap().inodes;
    let _ = weft_client::sys::close(a.socket());
    let server = rig.server.as_ref().unwrap();
    let waited = std::time::Instant::now();
    while rig.client().statfs().unwrap().inodes == before {
        assert!(waited.elapsed().as_secs() < 10, "{} clients", server.clients());
    }
}

#[test]
fn a_child_shares_offsets_and_keeps_files_that_its_parent_closed() {
    let rig = Rig::new();
    let parent = rig.client();
    let file = create(&parent, b"/x");
    parent.write(file, b"abc").unwrap();
    let ticket = parent.prepare_child(weft_client::Child::Forked).unwrap();
    parent.close(file).unwrap();
    parent.adopt(ticket);
    parent.hear().unwrap();
    assert_eq!(parent.write(file, b"def").unwrap(), 3);
    assert_eq!(parent.fstat(file).unwrap().size, 6);
}

#[test]
fn a_child_has_the_files_of_the_moment_of_its_fork_whatever_its_parent_does_next() {
    let rig = Rig::new();
    for round in 0..100 {
        let parent = rig.client();
        let before = create(&parent, b"/before");
        parent.write(before, b"abc").unwrap();
        let itself = parent.open(FileRef::ROOT, b"/before", libc::O_RDONLY, 0).unwrap().file;
        let ticket = parent.prepare_child(weft_client::Child::Forked).unwrap();
        let after = match round % 4 {
            0 => create(&parent, b"/after"),
            1 => parent.open(FileRef::ROOT, b"/before", libc::O_RDONLY, 0).unwrap().file,
            2 => parent.close(before).map(|()| itself).unwrap(),
            _ => parent.close(itself).map(|()| before).unwrap(),
        };
        let expects = if round % 4 < 2 { Err(libc::EBADF) } else { Ok(()) };
        // What the parent had from the server before is the child's; the parent goes on as that.
        parent.adopt(ticket);
        parent.hear().unwrap();
        for file in [before, itself] {
            assert_eq!(parent.pread(file, &mut [0; 8], 0), Ok(3), "round {round}");
            assert!(parent.set_flags(file, 0).is_ok(), "round {round}");
        }
        assert_eq!(parent.set_flags(after, 0).map(drop), expects, "round {round}");
    }
}

#[test]
fn a_program_with_the_connection_of_the_fork_waits_for_its_own_children() {
    let rig = Rig::new();
    for _ in 0..50 {
        let forked = rig.client();
        forked.adopt(forked.prepare_child(weft_client::Child::Forked).unwrap());
        // It has children of its own before it becomes another program, which has the same connection.
        for _ in 0..3 {
            forked.forget(forked.prepare_child(weft_client::Child::Forked).unwrap());
        }
        let socket = forked.hand_on().unwrap().socket();
        let program = Client::take_over(socket, &[]).unwrap();
        let file = create(&program, b"/file");
        program.write(file, b"abc").unwrap();
        let ticket = program.prepare_child(weft_client::Child::Forked).unwrap();
        program.close(file).unwrap();
        program.adopt(ticket);
        assert_eq!(program.fstat(file).map(|attr| attr.size > 0), Ok(true));
    }
}

#[test]
fn of_a_process_that_is_killed_the_socket_is_closed_first() {
    let rig = Rig::new();
    let client = rig.client();
    let [socket, others @ ..] = client.own_descriptors();
    // Linux closes the descriptors of a killed process from the highest down.
    assert!(others.iter().all(|other| *other < socket), "{socket}, {others:?}");
    let ticket = client.prepare_child(weft_client::Child::Forked).unwrap();
    assert!(ticket.socket() >= 1000 || socket < 1000, "{}", ticket.socket());
    client.forget(ticket);
}

#[test]
fn a_connection_for_a_child_that_nobody_asks_for_ends_with_its_socket() {
    let rig = Rig::new();
    let parent = rig.client();
    let file = create(&parent, b"/gone");
    let open_inodes = rig.client().statfs().unwrap().inodes;
    let tickets: Vec<_> =
        (0..20).map(|_| parent.prepare_child(weft_client::Child::Forked).unwrap()).collect();
    parent.unlink(FileRef::ROOT, b"/gone", 0).unwrap();
    parent.close(file).unwrap();
    // The children hold it.
    assert_eq!(rig.client().statfs().unwrap().inodes, open_inodes);
    for ticket in tickets {
        parent.forget(ticket);
    }
    let waited = std::time::Instant::now();
    while rig.client().statfs().unwrap().inodes == open_inodes {
        assert!(waited.elapsed().as_secs() < 10, "a child's files stay open");
    }
}

#[test]
fn directories_list_in_pieces() {
    let rig = Rig::new();
    let a = rig.client();
    for i in 0..500 {
        let file = create(&a, format!("/file{i}").as_bytes());
        a.close(file).unwrap();
    }
    let dir = a.open(FileRef::ROOT, b"/", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    let mut names = std::collections::BTreeSet::new();
    let mut cookie = 0;
    let mut out = [0; 1000];
    loop {
        let n = a.read_dir(dir, cookie, &mut out).unwrap();
        if n == 0 {
            break;
        }
        let mut rest = &out[..n];
        while let Some((head, name, others)) = WireDirent::split_first(rest) {
            assert!(names.insert(name.to_vec()), "twice: {}", String::from_utf8_lossy(name));
            (cookie, rest) = (head.cookie, others);
        }
    }
    assert_eq!(names.len(), 502);
}

#[test]
fn record_locks_exclude_other_processes_and_go_with_the_descriptor() {
    let rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let (fa, fb) = (create(&a, b"/x"), create(&b, b"/x"));
    let range = LockRange { kind: libc::F_WRLCK, start: 0, len: 10, pid: 0 };
    a.record_lock(fa, libc::F_SETLK, &range).unwrap();
    assert_eq!(b.record_lock(fb, libc::F_SETLK, &range).unwrap_err(), libc::EAGAIN);
    assert_eq!(b.record_lock(fb, libc::F_GETLK, &range).unwrap().kind, libc::F_WRLCK);
    a.close(fa).unwrap();
    b.record_lock(fb, libc::F_SETLK, &range).unwrap();
}

#[test]
fn a_descriptor_that_is_closed_while_another_thread_locks_leaves_no_lock() {
    let rig = Rig::new();
    let (a, b) = (rig.client(), rig.client());
    let other = create(&b, b"/x");
    let range = LockRange { kind: libc::F_WRLCK, start: 0, len: 10, pid: 0 };
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 60_000 } else { 2_000 };
    for round in 0..rounds {
        for (set, is_alone) in [(libc::F_SETLK, false), (libc::F_OFD_SETLK, true)] {
            let file = create(&a, b"/x");
            let together = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    together.wait();
                    let _ = a.record_lock(file, set, &range);
                });
                together.wait();
                // At all moments of the other's call.
                (0..round % 200 * 20).for_each(|_| std::hint::spin_loop());
                a.close(file).unwrap();
            });
            let got = b.record_lock(other, libc::F_SETLK, &range);
            assert!(got.is_ok(), "round {round}, a lock of the open file alone: {is_alone}: {got:?}");
            b.record_lock(other, libc::F_SETLK, &LockRange { kind: libc::F_UNLCK, ..range }).unwrap();
        }
    }
}

#[test]
fn a_stopped_server_gives_eio() {
    let mut rig = Rig::new();
    let a = rig.client();
    let file = create(&a, b"/x");
    drop(rig.server.take());
    assert_eq!(a.write(file, b"x").unwrap_err(), libc::EIO);
    assert_eq!(a.fstat(file).unwrap_err(), libc::EIO);
}

#[test]
fn absolute_symlinks_stay_inside_or_tell_where_they_lead() {
    let rig = Rig::new();
    let a = rig.client();
    a.mkdir(FileRef::ROOT, b"/d", 0o755).unwrap();
    let file = create(&a, b"/d/x");
    a.close(file).unwrap();
    a.symlink(b"/weft/d", FileRef::ROOT, b"/in").unwrap();
    a.symlink(b"/etc", FileRef::ROOT, b"/out").unwrap();
    let mut out = [0; weft_client::RESOLVED_MAX];
    assert_eq!(a.resolve(FileRef::ROOT, b"/in/./x", 0, &mut out).unwrap(), Resolution::Inside(4));
    assert_eq!(&out[..4], b"/d/x");
    assert_eq!(a.stat(FileRef::ROOT, b"/out/passwd", 0).unwrap_err(), weft_client::OUTSIDE);
    assert_eq!(a.resolve(FileRef::ROOT, b"/out/passwd", 0, &mut out).unwrap(), Resolution::Outside(11));
    assert_eq!(&out[..11], b"/etc/passwd");
}

#[test]
fn many_threads_call_at_once() {
    let rig = Rig::new();
    let client = rig.client();
    std::thread::scope(|scope| {
        for t in 0..8 {
            let client = &client;
            scope.spawn(move || {
                let file = create(client, format!("/t{t}").as_bytes());
                for i in 0..200u64 {
                    client.pwrite(file, &i.to_le_bytes(), i * 8).unwrap();
                }
                assert_eq!(client.fstat(file).unwrap().size, 1600);
                client.close(file).unwrap();
            });
        }
    });
}

#[test]
fn attributes_are_set_one_by_one() {
    let rig = Rig::new();
    let a = rig.client();
    let file = create(&a, b"/x");
    let change =
        AttrChange { mode: Some(0o600), mtime_ns: Some(1_500_000_000_000_000_001), ..AttrChange::default() };
    a.set_attr(FileRef::ROOT, b"/x", 0, &change).unwrap();
    let attr = a.fstat(file).unwrap();
    assert_eq!(attr.mode, libc::S_IFREG | 0o600);
    assert_eq!(attr.mtime_ns, 1_500_000_000_000_000_001);
    a.ftruncate(file, 5000).unwrap();
    assert_eq!(a.fstat(file).unwrap().size, 5000);
}

#[test]
fn an_offset_does_not_keep_an_append_descriptor_from_appending() {
    let rig = Rig::new();
    let a = rig.client();
    let file =
        a.open(FileRef::ROOT, b"/x", libc::O_CREAT | libc::O_RDWR | libc::O_APPEND, 0o644).unwrap().file;
    a.write(file, b"abc").unwrap();
    a.pwrite(file, b"def", 0).unwrap();
    let mut out = [0; 8];
    assert_eq!(a.pread(file, &mut out, 0).unwrap(), 6);
    assert_eq!(&out[..6], b"abcdef");
}

#[test]
fn a_read_of_a_file_that_grows_ends_where_the_offset_has_moved_to() {
    const PIECE: u64 = 4096;
    const BEHIND: i64 = 300 << 10;
    let rig = Rig::new();
    let (writer, reader) = (rig.client(), rig.client());
    let file = create(&writer, b"/log");
    writer.ftruncate(file, BEHIND as u64).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = BEHIND as u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                writer.pwrite(file, &[1; PIECE as usize], at).unwrap();
                at += PIECE;
            }
        });
        let log = reader.open(FileRef::ROOT, b"/log", libc::O_RDONLY, 0).unwrap().file;
        // More than the answer to one call holds, so that the file grows between two of them.
        let mut out = vec![0; 1 << 20];
        let rounds: Vec<_> = (0..100)
            .map(|_| {
                let from = reader.seek(log, -BEHIND, libc::SEEK_END).unwrap();
                let read = reader.read(log, &mut out).unwrap();
                (from + read as u64, reader.seek(log, 0, libc::SEEK_CUR).unwrap())
            })
            .collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(rounds.iter().all(|(read, offset)| read == offset), "the next read returns bytes again");
    });
}

#[test]
fn the_parts_of_a_vectored_append_stay_together() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        for t in 0..4u8 {
            let client = rig.client();
            scope.spawn(move || {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND;
                let file = client.open(FileRef::ROOT, b"/log", flags, 0o644).unwrap().file;
                let part = [t; 8];
                for _ in 0..100 {
                    assert_eq!(client.writev(file, &[&part[..]; 40], None).unwrap(), 320);
                }
            });
        }
    });
    let client = rig.client();
    let file = client.open(FileRef::ROOT, b"/log", libc::O_RDONLY, 0).unwrap().file;
    let mut out = vec![0; 4 * 100 * 320];
    assert_eq!(client.pread(file, &mut out, 0).unwrap(), out.len());
    assert!(out.chunks(320).all(|record| record.iter().all(|b| *b == record[0])));
}

#[test]
fn more_threads_than_slots_can_wait_for_one_lock() {
    let rig = Rig::new();
    let client = rig.client();
    create(&client, b"/lock");
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..weft_client::shared::channel::SLOTS + 6 {
            let (client, inside) = (&client, &inside);
            scope.spawn(move || {
                let file = client.open(FileRef::ROOT, b"/lock", libc::O_RDWR, 0).unwrap().file;
                client.flock(file, libc::LOCK_EX).unwrap();
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                client.fstat(file).unwrap();
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                client.flock(file, libc::LOCK_UN).unwrap();
                client.close(file).unwrap();
            });
        }
    });
}

#[test]
fn a_connection_that_says_nothing_does_not_keep_the_server_from_stopping() {
    let mut rig = Rig::new();
    let path = std::str::from_utf8(&rig.path).unwrap().to_string();
    let _silent = std::os::unix::net::UnixStream::connect(path).unwrap();
    drop(rig.server.take());
}

#[test]
fn a_truncate_by_path_races_with_opens_and_closes_without_touching_other_files() {
    let rig = Rig::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (truncating, stop) = (rig.client(), &stop);
        scope.spawn(move || {
            let cut = AttrChange { size: Some(0), ..AttrChange::default() };
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // It may not be there yet, or not any more.
                let _ = truncating.set_attr(FileRef::ROOT, b"/victim", 0, &cut);
            }
        });
        let client = rig.client();
        for i in 0..300u32 {
            let victim = create(&client, b"/victim");
            client.write(victim, b"short").unwrap();
            client.close(victim).unwrap();
            let other = create(&client, b"/other");
            client.pwrite(other, &i.to_le_bytes(), 0).unwrap();
            assert_eq!(client.fstat(other).unwrap().size, 4);
            client.close(other).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn programs_that_run_count_in_the_view_and_count_once_when_they_have_ended() {
    let rig = Rig::new();
    let view = || rig.server.as_ref().unwrap().volume().program_view();
    let a = rig.client();
    let file = create(&a, b"/x");
    for _ in 0..10 {
        a.write(file, b"data").unwrap();
    }
    a.fsync(file).unwrap();
    let running = view();
    assert_eq!(running.running.len(), 1);
    assert!(running.calls >= 12, "{running:?}");
    let calls = running.calls;
    let b = rig.client();
    create(&b, b"/y");
    assert_eq!(view().running.len(), 2);
    for client in [a, b] {
        for fd in client.own_descriptors() {
            let _ = weft_client::sys::close(fd);
        }
    }
    assert!(rig.server.as_ref().unwrap().wait_idle(std::time::Duration::from_secs(10)));
    let ended = view();
    assert_eq!(ended.running.len(), 0);
    assert_eq!(ended.calls, calls + 1);
}

#[test]
fn a_directory_that_was_removed_takes_no_file_without_a_name() {
    let rig = Rig::new();
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/gone", 0o755).unwrap();
    let gone = client.open(FileRef::ROOT, b"/gone", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    client.unlink(FileRef::ROOT, b"/gone", libc::AT_REMOVEDIR).unwrap();
    let unnamed = client.open(gone, b".", libc::O_RDWR | libc::O_TMPFILE, 0o600);
    assert_eq!(unnamed.err(), Some(libc::EPERM), "as ext4");
    assert_eq!(client.open(gone, b"x", libc::O_RDWR | libc::O_CREAT, 0o600).err(), Some(libc::ENOENT));
}
