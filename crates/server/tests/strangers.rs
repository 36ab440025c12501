//! What a client of another user than the server's gets, and what it can do with what it guesses: nothing of others'.

#![allow(clippy::unwrap_used)]

mod rig;

use bytemuck::Zeroable;
use rig::{Rig, become_user, connect, is_superuser};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use weft_client::proto::{
    HELLO_CLONE, HELLO_HEIR, HELLO_HERE, HELLO_IDENTITY, HELLO_MAGIC, HELLO_MEMORY, HELLO_QUIET,
    HELLO_RESUME, HELLO_UNLEASED, Hello, HelloReply, Op,
};
use weft_client::shared::VERSION;
use weft_client::shared::channel::{Channel, Request};
use weft_client::{AttrChange, Changed, Client, FileRef, RESOLVED_MAX, sys};

const USER: u32 = 1001;

fn hello(flags: u32) -> Hello {
    Hello { magic: HELLO_MAGIC, version: VERSION, flags, ..Hello::zeroed() }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the descriptor was just made and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The answer on a socket, and the descriptors with it.
fn reply(socket: &OwnedFd) -> Result<(HelloReply, Vec<OwnedFd>), i32> {
    let (mut reply, mut fds) = (HelloReply::zeroed(), [-1; 8]);
    let count = sys::recv_with_fds(socket.as_raw_fd(), bytemuck::bytes_of_mut(&mut reply), &mut fds)?;
    Ok((reply, fds[..count].iter().map(|fd| owned(*fd)).collect()))
}

/// A connection by hand.
fn greet(path: &[u8], hello: &Hello) -> (OwnedFd, HelloReply, Vec<OwnedFd>) {
    let socket = owned(sys::connect_unix(path).unwrap());
    sys::send_all(socket.as_raw_fd(), bytemuck::bytes_of(hello)).unwrap();
    let (reply, fds) = reply(&socket).unwrap();
    (socket, reply, fds)
}

fn names(fds: &[OwnedFd]) -> Vec<String> {
    let name = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    fds.iter().map(|fd| name(fd).to_string_lossy().replace(" (deleted)", "")).collect()
}

#[test]
fn another_user_gets_no_memory_but_its_call_slots() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let (_socket, own, fds) = greet(&rig.path, &hello(0));
    assert_eq!((own.leases, fds.len()), (1, 7), "{:?}", names(&fds));
    rig.as_user(USER, || {
        let (_socket, reply, fds) = greet(&rig.path, &hello(0));
        assert_eq!((reply.status, reply.leases, reply.image_bytes), (0, 0, 0));
        assert_eq!(names(&fds), ["/memfd:weft-channel"]);
        // Each process has its own.
        let (_socket, _, more) = greet(&rig.path, &hello(0));
        let inode = |fd: &OwnedFd| std::fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_ne!(inode(&fds[0]).ino(), inode(&more[0]).ino());
    });
}

#[test]
fn a_client_without_leases_gets_no_ring() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let root = rig.client();
    root.set_attr(FileRef::ROOT, b"/", 0, &AttrChange { mode: Some(0o777), ..Default::default() }).unwrap();
    rig.as_user(USER, || {
        let client = connect(&rig.path);
        let flags = libc::O_CREAT | libc::O_RDWR | libc::O_APPEND;
        let file = client.open(FileRef::ROOT, b"/mine", flags, 0o600).unwrap().file;
        assert_eq!(client.raw_request(request(Op::Lease, file), &[]).unwrap().ret, 0);
        client.write(file, b"by the server").unwrap();
        let mut out = [0; 20];
        assert_eq!(client.pread(file, &mut out, 0).unwrap(), 13);
        assert_eq!(client.measured().ring_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
    });
}

fn request(op: Op, file: FileRef) -> Request {
    Request { op: op as u32, args: [file.0, 0, 0, 0, 0, 0, 0, 0], cpu: u32::MAX, ..Request::default() }
}

/// Operations that name an open file first, with further arguments that make sense.
fn on_open_files(file: FileRef) -> Vec<(Request, &'static [u8])> {
    let with = |op, args: &[u64]| {
        let mut request = request(op, file);
        request.args[1..=args.len()].copy_from_slice(args);
        request
    };
    let path = |mut request: Request, path: &'static [u8]| {
        request.len1 = path.len() as u32;
        (request, path)
    };
    let lock = [libc::F_SETLK as u64, libc::F_RDLCK as u64, 0, 0, 1, 1];
    let mut all: Vec<(Request, &'static [u8])> = [
        with(Op::Close, &[]),
        with(Op::Ref, &[]),
        with(Op::Read, &[0, 100]),
        with(Op::Lease, &[]),
        with(Op::Drain, &[]),
        with(Op::Fsync, &[]),
        with(Op::Stat, &[libc::AT_EMPTY_PATH as u64]),
        with(Op::SetAttr, &[libc::AT_EMPTY_PATH as u64, 32]),
        with(Op::ReadDir, &[0, 1000]),
        with(Op::Fallocate, &[0, 0, 4096]),
        with(Op::Seek, &[0, 0]),
        with(Op::Flock, &[libc::LOCK_EX as u64 | libc::LOCK_NB as u64]),
        with(Op::PosixLock, &lock),
        with(Op::PathOf, &[]),
        with(Op::SetFlags, &[libc::O_APPEND as u64]),
        with(Op::GetFlags, &[]),
        with(Op::SetHint, &[2]),
        with(Op::Pass, &[]),
        with(Op::Take, &[77]),
    ]
    .into_iter()
    .map(|request| (request, &b""[..]))
    .collect();
    all.push(path(with(Op::Write, &[0]), b"x"));
    all.push(path(with(Op::Open, &[libc::O_RDONLY as u64]), b"."));
    all.push(path(with(Op::Mkdir, &[0o755]), b"made"));
    let link = Request { len2: 7, args: [file.0, u64::MAX, 0, 0, 0, 0, 0, 0], ..request(Op::LinkFile, file) };
    all.push((link, b"/linked"));
    all
}

#[test]
fn no_number_opens_a_file_of_another_connection() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let root = rig.client();
    root.set_attr(FileRef::ROOT, b"/", 0, &AttrChange { mode: Some(0o777), ..Default::default() }).unwrap();
    let mut live = Vec::new();
    for n in 0..24 {
        let name = format!("/{n}");
        let file =
            root.open(FileRef::ROOT, name.as_bytes(), libc::O_CREAT | libc::O_RDWR, 0o600).unwrap().file;
        root.write(file, b"secret").unwrap();
        live.push(file);
        if n % 3 == 0 {
            // Slots with a past.
            root.close(file).unwrap();
            live.pop();
        }
    }
    live.push(root.open(FileRef::ROOT, b"/", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file);
    let guess = |client: &Client| {
        for (slot, generation) in
            (0..40).flat_map(|slot| (0..24).chain([u32::MAX]).map(move |generation| (slot, generation)))
        {
            let file = FileRef::new(slot, generation);
            for (request, payload) in on_open_files(file) {
                if file == FileRef::ROOT {
                    continue;
                }
                let answer = client.raw_request(request, &[payload]);
                assert_eq!(answer.map(|response| response.ret), Err(libc::EBADF), "{request:?}");
            }
        }
        // To keep what one does not hold is to keep nothing.
        client.retain(&live).unwrap();
        assert_eq!(client.path_of(live[0], &mut [0; RESOLVED_MAX]).map(drop), Err(libc::EBADF));
    };
    rig.as_user(USER, || guess(&connect(&rig.path)));
    // Nor of one's own user's: what is open is the process's.
    guess(&rig.client());
    for file in &live {
        let mut out = [0; 10];
        let read = root.pread(*file, &mut out, 0);
        assert!(matches!(read, Ok(6) | Err(libc::EISDIR)), "{read:?}");
        root.close(*file).unwrap();
        // Asked of the server, which then hears of what was closed.
        let path = root.path_of(*file, &mut [0; RESOLVED_MAX]);
        assert_eq!(path.map(drop), Err(libc::EBADF), "nobody has taken a reference");
    }
}

#[test]
fn a_new_socket_speaks_for_no_other_connection() {
    let rig = Rig::new(64 << 20);
    let _other = rig.client();
    let quietly = HELLO_CLONE | HELLO_QUIET;
    let others = [HELLO_RESUME, HELLO_IDENTITY, HELLO_HEIR, HELLO_MEMORY, 1 << 31];
    for flags in [HELLO_CLONE, HELLO_CLONE | HELLO_HEIR, quietly].into_iter().chain(others) {
        let (_socket, reply, fds) = greet(&rig.path, &hello(flags));
        assert_eq!((reply.status, fds.len()), (libc::EPROTO, 0), "{flags:x}");
        // Nor with a socket for the answer.
        let socket = owned(sys::connect_unix(&rig.path).unwrap());
        let [ours, theirs] = sys::socket_pair().unwrap().map(owned);
        let bytes = hello(flags);
        sys::send_with_fd(socket.as_raw_fd(), bytemuck::bytes_of(&bytes), Some(theirs.as_raw_fd()), true)
            .unwrap();
        drop(theirs);
        assert!(reply_of(&ours).is_none(), "{flags:x}");
    }
}

fn reply_of(socket: &OwnedFd) -> Option<HelloReply> {
    reply(socket).ok().map(|(reply, _)| reply)
}

/// Says a further hello on the socket of a connection; the answer, and the descriptors with it.
fn greet_again(socket: &OwnedFd, flags: u32) -> (HelloReply, Vec<OwnedFd>) {
    let [ours, theirs] = sys::socket_pair().unwrap().map(owned);
    let bytes = hello(flags);
    sys::send_with_fd(socket.as_raw_fd(), bytemuck::bytes_of(&bytes), Some(theirs.as_raw_fd()), true)
        .unwrap();
    drop(theirs);
    reply(&ours).unwrap()
}

#[test]
fn a_forked_child_has_leases_when_its_parent_has_and_gets_their_memory_from_nobody_else() {
    let rig = Rig::new(64 << 20);
    let (parent, first, _) = greet(&rig.path, &hello(0));
    assert_eq!(first.leases, 1);
    for leased in [1, 0] {
        if leased == 0 {
            assert_eq!(greet_again(&parent, HELLO_UNLEASED).0.leases, 0);
        }
        let [child, theirs] = sys::socket_pair().unwrap().map(owned);
        let bytes = hello(HELLO_CLONE | HELLO_QUIET);
        sys::send_with_fd(parent.as_raw_fd(), bytemuck::bytes_of(&bytes), Some(theirs.as_raw_fd()), false)
            .unwrap();
        drop(theirs);
        let (_, fds) = greet_again(&child, HELLO_MEMORY);
        assert_eq!(names(&fds), ["/memfd:weft-channel"]);
        // The answer to this says what the server takes the child for.
        assert_eq!(greet_again(&child, HELLO_IDENTITY).0.leases, leased);
    }
}

#[test]
fn whoever_has_one_descriptor_left_hears_on_the_connections_own_socket() {
    let rig = Rig::new(64 << 20);
    let (parent, first, _) = greet(&rig.path, &hello(0));
    let ask = |socket: &OwnedFd, flags: u32| {
        let bytes = hello(flags | HELLO_HERE);
        sys::send_with_fd(socket.as_raw_fd(), bytemuck::bytes_of(&bytes), Some(socket.as_raw_fd()), true)
            .unwrap();
        reply(socket).unwrap()
    };
    let (began, mut fds) = ask(&parent, HELLO_CLONE | HELLO_QUIET);
    assert_eq!((began.status, fds.len()), (0, 1));
    let child = fds.remove(0);
    let (memory, fds) = ask(&child, HELLO_MEMORY);
    assert_ne!((memory.status, memory.connection), (0, first.connection));
    assert_eq!(names(&fds), ["/memfd:weft-channel"]);
    assert_eq!(ask(&parent, HELLO_IDENTITY).0.leases, 1);
    // Whatever comes with it: a hello without a descriptor may be what another process was brought to write.
    for flags in [HELLO_CLONE, HELLO_IDENTITY] {
        sys::send_all(parent.as_raw_fd(), bytemuck::bytes_of(&hello(flags | HELLO_HERE))).unwrap();
        let (refusal, fds) = reply(&parent).unwrap();
        assert_eq!((refusal.status, fds.len()), (libc::EPROTO, 0));
    }
    // On a new socket it means nothing.
    assert_eq!(greet(&rig.path, &hello(HELLO_HERE)).1.status, libc::EPROTO);
}

#[test]
fn what_is_no_socket_becomes_no_connection() {
    let rig = Rig::new(64 << 20);
    let file = std::fs::File::open("/dev/null").unwrap();
    let client = rig.client();
    for flags in [HELLO_CLONE, HELLO_IDENTITY] {
        let bytes = hello(flags);
        let client = rig.client();
        sys::send_with_fd(client.socket(), bytemuck::bytes_of(&bytes), Some(file.as_raw_fd()), true).unwrap();
        // The connection that tried it is closed; a call that came before that is answered.
        let last = std::iter::repeat_with(|| client.statfs().map(drop)).find(Result::is_err);
        assert_eq!(last, Some(Err(libc::EIO)));
    }
    client.statfs().unwrap();
}

/// Threads of this process that have such a name.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

#[test]
fn a_slot_gets_one_thread_however_often_its_client_asks() {
    let rig = Rig::new(64 << 20);
    // Threads are known by name and number, and those of other tests run in this process, too: a number that none of them has.
    for _ in 0..100 {
        greet(&rig.path, &hello(0));
    }
    let (socket, own, fds) = greet(&rig.path, &hello(0));
    let channel = sys::map_shared(fds[0].as_raw_fd(), 0, size_of::<Channel>(), true).unwrap();
    // SAFETY: just mapped, of the type's size, and made of atomics and cells.
    let slots = unsafe { &(*channel.cast::<Channel>()).slots };
    for _ in 0..50 {
        // As if nobody served it yet.
        slots[0].served.store(0, SeqCst);
        sys::send_all(socket.as_raw_fd(), &[0]).unwrap();
    }
    // What is said last is heard last. A thread gives itself its name when it first runs.
    sys::send_all(socket.as_raw_fd(), &[1]).unwrap();
    for slot in [1, 0] {
        while threads_named(&format!("weft-{}.{slot}", own.connection)) == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(threads_named(&format!("weft-{}.0", own.connection)), 1);
}

#[test]
fn who_cannot_be_told_loses_the_connection() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    client.statfs().unwrap();
    let [ours, theirs] = sys::socket_pair().unwrap().map(owned);
    // No thread of this process has the number 1.
    let bytes = Hello { thread: 1, ..hello(HELLO_IDENTITY) };
    sys::send_with_fd(client.socket(), bytemuck::bytes_of(&bytes), Some(theirs.as_raw_fd()), true).unwrap();
    let answer = reply_of(&ours).map(|reply| reply.status);
    assert_eq!(answer, Some(libc::EACCES));
    assert_eq!(client.statfs().map(drop), Err(libc::EIO));
    rig.client().renew_identity(Changed::Process).unwrap();
}

#[test]
fn a_thread_that_becomes_a_user_acts_as_that_user_and_no_other_thread_does() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = |name: &[u8]| client.open(FileRef::ROOT, name, libc::O_CREAT | libc::O_RDWR, 0o600);
    let owner = |name: &[u8]| client.stat(FileRef::ROOT, name, 0).unwrap().uid;
    let open = |mode| AttrChange { mode: Some(mode), ..Default::default() };
    client.set_attr(FileRef::ROOT, b"/", 0, &open(0o777)).unwrap();
    file(b"/secret").unwrap();
    // In turns: first the user, then the superuser, then the user once more.
    let turns = [(); 3].map(|()| std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user(USER);
            client.renew_identity(Changed::Thread).unwrap();
            assert_eq!(file(b"/secret").map(drop), Err(libc::EACCES));
            file(b"/mine").unwrap();
            turns[0].wait();
            turns[1].wait();
            assert_eq!(file(b"/secret").map(drop), Err(libc::EACCES));
            // Whoever forks is who its child is.
            let ticket = client.prepare_child(weft_client::Child::Forked).unwrap();
            let child = connect(&rig.path);
            child.adopt(ticket);
            child.hear().unwrap();
            assert_eq!(child.open(FileRef::ROOT, b"/secret", libc::O_RDONLY, 0).map(drop), Err(libc::EACCES));
        });
        turns[0].wait();
        file(b"/secret").unwrap();
        file(b"/roots").unwrap();
        // Before this thread goes on, all tell who they are again.
        client.renew_identity(Changed::Process).unwrap();
        file(b"/secret").unwrap();
        turns[1].wait();
    });
    assert_eq!((owner(b"/mine"), owner(b"/roots")), (USER, 0));
}

#[test]
fn what_no_thread_is_any_more_nobody_asks_by() {
    if !is_superuser() {
        return;
    }
    // Threads of one process, of which none is the superuser in the end: a process of its own.
    let own = std::env::current_exe().unwrap();
    let inner = "what_a_process_of_dropped_threads_can_do";
    let output =
        std::process::Command::new(own).args([inner, "--exact", "--ignored", "--test-threads=1"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "makes its process another user's for good; run by what_no_thread_is_any_more_nobody_asks_by"]
fn what_a_process_of_dropped_threads_can_do() {
    let rig = Rig::new(64 << 20);
    let root = rig.client();
    root.open(FileRef::ROOT, b"/secret", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap();
    // A forked process: its server is the other one.
    let ticket = root.prepare_child(weft_client::Child::Forked).unwrap();
    // SAFETY: the child makes system calls and calls of a library that needs no other thread and no memory of the heap.
    let child = unsafe { libc::fork() };
    if child == 0 {
        root.adopt(ticket);
        root.hear().unwrap();
        let status = dropped_threads(&root);
        // SAFETY: ends the child without what the test's process would do at its end.
        unsafe { libc::_exit(status) };
    }
    root.forget(ticket);
    let mut status = 0;
    // SAFETY: waits for the child; the status is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's step that failed is its status");
}

/// Two threads drop the superuser one after the other; the number of the step that fails.
fn dropped_threads(client: &Client) -> i32 {
    let as_process = || {
        let request = Request { len1: 7, ..request(Op::Open, FileRef::ROOT) };
        client.raw_request(request, &[b"/secret"])
    };
    if client.renew_identity(Changed::Thread).is_err() || as_process().is_err() {
        return 1;
    }
    let second = std::sync::Barrier::new(2);
    let failed = std::sync::atomic::AtomicI32::new(0);
    let fail = |step| failed.store(step, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user(USER);
            if client.renew_identity(Changed::Thread).is_err() {
                fail(2);
            }
            // The first thread is still what the process was.
            if as_process().is_err() {
                fail(3);
            }
            second.wait();
            second.wait();
        });
        second.wait();
        become_user(USER);
        if client.renew_identity(Changed::Thread).is_err() {
            fail(4);
        }
        if as_process().map(drop) != Err(libc::EACCES) {
            fail(5);
        }
        if client.measured().calls.load(SeqCst) == 0 || client.own_descriptors()[1] != -1 {
            fail(6);
        }
        second.wait();
    });
    failed.load(SeqCst)
}

#[test]
fn two_senders_make_no_hello() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let bytes = hello(HELLO_IDENTITY);
    let bytes = bytemuck::bytes_of(&bytes);
    let [ours, theirs] = sys::socket_pair().unwrap().map(owned);
    // A user begins a hello, and brings a process of the superuser to write the end of it to a descriptor it was given.
    let (socket, first) = rig.as_user(USER, || {
        let (socket, reply, _) = greet(&rig.path, &hello(0));
        sys::send_with_fd(socket.as_raw_fd(), &bytes[..1], Some(theirs.as_raw_fd()), true).unwrap();
        (socket, reply)
    });
    assert_eq!(first.status, 0);
    sys::send_all(socket.as_raw_fd(), &bytes[1..]).unwrap();
    let (refusal, fds) = reply(&socket).unwrap();
    assert_eq!((refusal.status, fds.len()), (libc::EPROTO, 0));
    drop(theirs);
    assert!(reply_of(&ours).is_none());
}

#[test]
fn a_child_has_the_identity_and_the_files_of_its_parent_and_no_more() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let root = rig.client();
    let secret = root.open(FileRef::ROOT, b"/secret", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap().file;
    root.set_attr(FileRef::ROOT, b"/", 0, &AttrChange { mode: Some(0o777), ..Default::default() }).unwrap();
    rig.as_user(USER, || {
        let client = connect(&rig.path);
        let mine = client.open(FileRef::ROOT, b"/mine", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap().file;
        let ticket = client.prepare_child(weft_client::Child::Forked).unwrap();
        client.adopt(ticket);
        client.hear().unwrap();
        client.write(mine, b"as before").unwrap();
        assert_eq!(client.fstat(secret).map(drop), Err(libc::EBADF));
        let denied = client.open(FileRef::ROOT, b"/secret", libc::O_RDONLY, 0);
        assert_eq!(denied.map(drop), Err(libc::EACCES));
        assert_eq!(client.fstat(mine).unwrap().uid, USER);
    });
    // With the parent's own socket it makes no difference who asks.
    become_user(USER);
    let ticket = root.prepare_child(weft_client::Child::Forked).unwrap();
    root.adopt(ticket);
    root.hear().unwrap();
    root.fstat(secret).unwrap();
}

#[test]
fn a_file_with_set_id_bits_has_no_ring_and_loses_them_by_anothers_write() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let root = rig.client();
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND;
    let file = root.open(FileRef::ROOT, b"/program", flags, 0o777).unwrap().file;
    let chmod = |mode| {
        let change = AttrChange { mode: Some(mode), ..Default::default() };
        root.set_attr(file, b"", libc::AT_EMPTY_PATH, &change).unwrap();
    };
    let rings = || root.measured().ring_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let mode = || root.fstat(file).unwrap().mode & 0o7777;
    root.write(file, b"one").unwrap();
    assert_eq!(rings(), 3, "an append of the server's user goes into the ring");
    chmod(0o6777);
    root.write(file, b"two").unwrap();
    assert_eq!((rings(), mode()), (3, 0o6777), "the superuser's write goes to the server and keeps the bits");
    rig.as_user(USER, || {
        let client = connect(&rig.path);
        let file = client.open(FileRef::ROOT, b"/program", libc::O_WRONLY, 0).unwrap().file;
        client.write(file, b"").unwrap();
        assert_eq!(client.fstat(file).unwrap().mode & 0o7777, 0o6777);
        client.write(file, b"evil").unwrap();
    });
    assert_eq!(mode(), 0o777);
    root.write(file, b"three").unwrap();
    assert_eq!(rings(), 8, "without them it has a ring again");
}
