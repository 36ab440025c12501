//! The protocol: a client that writes anything into what it shares with the server, at any moment.
//!
//! As another user than the server's (a *stranger*) it has its call slots and its socket, and can neither stop the server
//! nor change or read what others have, nor keep anything of it when it is gone. As the server's user (the *owner*) it has the memory of leases too; it could
//! overwrite the image as well, so what is asked is only that the server goes on serving others.

use super::Target;
use crate::script::Script;
use bytemuck::Zeroable;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use weft_client::proto::{HELLO_MAGIC, Hello, HelloReply};
use weft_client::shared::VERSION;
use weft_client::shared::channel::{Channel, DONE, FREE, PAYLOAD_BYTES, Request, SLOTS, SUBMITTED};
use weft_client::shared::volume::{Control, RING_BYTES, RINGS_MAX};
use weft_client::{AttrChange, Client, ConnectOptions, FileRef, LockRange, sys};
use weft_device::Geometry;
use weft_placement::Mode;
use weft_server::{Server, Volume};
use weft_volume::MountChoice;

/// Inputs that one server gets.
const RUNS_OF_A_SERVER: u32 = 50;
/// An answer that has not come by then is not waited for, in nanoseconds.
const WAIT_NS: u64 = 20_000_000;
const HONEST: u32 = 1001;
const STRANGER: u32 = 1002;

/// Whose client is hostile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Another user than the server's.
    Stranger,
    /// The server's.
    Owner,
}

/// See the module.
pub struct Protocol {
    who: Who,
    house: Option<House>,
    runs: u32,
    /// Before the first server.
    before: Held,
    /// Servers that are being stopped, which takes a while of waiting.
    stopping: Vec<JoinHandle<()>>,
}

/// A server, and two honest processes: of its user and of another.
struct House {
    owner: Client,
    owned: FileRef,
    other: Client,
    others: FileRef,
    path: Vec<u8>,
    /// Last, so that the clients end first.
    _server: Server,
    _dir: tempfile::TempDir,
}

fn is_superuser() -> bool {
    weft_sys::effective_user().0 == 0
}

/// Does something in a thread that is another user, when that can be.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if is_superuser() {
                // SAFETY: system calls on the identity of this thread, without pointers.
                unsafe {
                    libc::syscall(libc::SYS_setgroups, 0, 0);
                    libc::syscall(libc::SYS_setresgid, uid, uid, uid);
                    libc::syscall(libc::SYS_setresuid, uid, uid, uid);
                }
            }
            act()
        });
        thread.join().unwrap_or_else(|_| panic!("the thread of user {uid} panicked"))
    })
}

fn connect(path: &[u8]) -> Client {
    let options = ConnectOptions { socket_path: path, mount_point: b"/weft" };
    Client::connect(&options).unwrap_or_else(|errno| panic!("nobody can connect any more: {errno}"))
}

/// What honest files hold, again and again, and nothing else does.
const SECRET: &[u8; 16] = b"nobody else's 7!";

/// What an honest file holds.
fn content() -> Vec<u8> {
    SECRET.repeat(3125)
}

/// Entries of a folder of `/proc/self`.
fn count(folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{folder}")).map_or(0, Iterator::count)
}

/// Descriptors and threads of this process.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
}

impl Held {
    fn now() -> Held {
        Held { descriptors: count("fd"), threads: count("task") }
    }

    /// Panics unless no more is held than was before, but for what ends by itself in a moment.
    fn assert_given_back(self) {
        let enough = |now: Held| now.descriptors <= self.descriptors + 4 && now.threads <= self.threads + 4;
        for _ in 0..200 {
            if enough(Held::now()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("a server that has stopped left {:?} where there were {self:?}", Held::now());
    }
}

fn honest_file(client: &Client, name: &[u8]) -> FileRef {
    let flags = libc::O_CREAT | libc::O_RDWR;
    let file = client.open(FileRef::ROOT, name, flags, 0o600).map(|open| open.file);
    let file = file.unwrap_or_else(|errno| panic!("an honest file: {errno}"));
    assert_eq!(client.write(file, &content()), Ok(content().len()));
    file
}

impl House {
    fn new() -> House {
        let fine = "a server is made";
        let geometry = Geometry::bbssd().with_size(48 << 20).with_zone_bytes(1 << 20);
        let choice =
            MountChoice { mode: Mode::Suffix, dirty_bytes_max: Some(1 << 20), ..MountChoice::default() };
        let mounted = weft_volume::open_memory("mem".into(), &geometry, &choice).expect(fine);
        let volume = Volume::new(Arc::new(mounted)).expect(fine);
        let dir = tempfile::tempdir().expect(fine);
        let socket = dir.path().join("s");
        let server = Server::start(volume, &socket).expect(fine);
        for (open, mode) in [(dir.path(), 0o755), (socket.as_path(), 0o777)] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(mode)).expect(fine);
        }
        let path = socket.as_os_str().as_encoded_bytes().to_vec();
        let owner = connect(&path);
        let change = AttrChange { mode: Some(0o1777), ..Default::default() };
        owner.set_attr(FileRef::ROOT, b"/", 0, &change).expect(fine);
        let owned = honest_file(&owner, b"/owned");
        // It has an overwrite area, which is shared with the owner's clients.
        for _ in 0..4 {
            assert_eq!(owner.pwrite(owned, &content()[..5000], 0), Ok(5000));
        }
        let (other, others) = as_user(HONEST, || {
            let client = connect(&path);
            let file = honest_file(&client, b"/others");
            (client, file)
        });
        House { owner, owned, other, others, path, _server: server, _dir: dir }
    }

    /// What strangers must not be able to disturb.
    fn is_untouched(&self) {
        let mut out = vec![0; content().len() + 1];
        for (client, file, uid) in [(&self.owner, self.owned, 0), (&self.other, self.others, HONEST)] {
            assert_eq!(client.pread(file, &mut out, 0), Ok(content().len()));
            assert!(out[..content().len()] == content(), "somebody else's file has changed");
            let attr = client.fstat(file).unwrap_or_else(|errno| panic!("an honest stat: {errno}"));
            assert_eq!((attr.mode & 0o7777, attr.links), (0o600, 1));
            assert!(!is_superuser() || attr.uid == uid);
        }
        // And both go on as before.
        let end = content().len() as u64;
        assert_eq!(self.owner.pwrite(self.owned, b"more", end), Ok(4));
        assert_eq!(self.owner.ftruncate(self.owned, end), Ok(()));
        assert_eq!(self.owner.pwrite(self.owned, &content()[..100], 0), Ok(100));
        assert_eq!(self.other.pwrite(self.others, &content()[..10], 0), Ok(10));
        // The hostile client may lock what it can open, but neither keep others waiting nor have anything forged.
        for (client, file) in [(&self.owner, self.owned), (&self.other, self.others)] {
            for kind in [libc::F_WRLCK, libc::F_UNLCK] {
                let range = LockRange { kind, start: 3, len: 7, pid: 0 };
                let locked = client.record_lock(file, libc::F_SETLK, &range).map(drop);
                let may_be_refused = kind == libc::F_WRLCK && locked == Err(libc::EAGAIN);
                assert!(locked == Ok(()) || may_be_refused, "{locked:?}");
            }
        }
    }

    /// Whether somebody new is served.
    fn serves(&self) {
        as_user(HONEST, || {
            let client = connect(&self.path);
            let name = b"/somebody-new";
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
            let file = match client.open(FileRef::ROOT, name, flags, 0o600) {
                Ok(open) => open.file,
                // The hostile client made one, or took all there is: that is an answer.
                Err(libc::EEXIST | libc::ENOSPC | libc::ENFILE | libc::EACCES) => return,
                Err(errno) => panic!("a new client cannot open: {errno}"),
            };
            let wrote = client.write(file, b"something");
            assert!(matches!(wrote, Ok(9) | Err(libc::ENOSPC)), "{wrote:?}");
            let _ = client.close(file);
            assert_eq!(client.unlink(FileRef::ROOT, name, 0), Ok(()));
        });
    }
}

/// Memory that is shared with the server.
struct Mapped {
    at: *mut u8,
    len: usize,
}

impl Mapped {
    fn new(fd: &OwnedFd, len: usize) -> Option<Mapped> {
        sys::map_shared(fd.as_raw_fd(), 0, len, true).ok().map(|at| Mapped { at, len })
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        for (n, byte) in bytes.iter().enumerate() {
            if at + n < self.len {
                // SAFETY: within the mapping. The server reads it as atomics or copies it; that is what is tried here.
                unsafe { self.at.add(at + n).write_volatile(*byte) };
            }
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { sys::unmap(self.at, self.len) };
    }
}

/// The hostile client.
struct Hostile {
    socket: OwnedFd,
    channel: Mapped,
    /// Control memory and rings, of the owner's.
    control: Option<Mapped>,
    rings: Option<Mapped>,
    /// Files that it has opened.
    files: Vec<u64>,
}

impl Hostile {
    fn connect(path: &[u8], who: Who) -> Option<Hostile> {
        // SAFETY: descriptors that were just made and have no other owner.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = own(sys::connect_unix(path).ok()?);
        let hello = Hello { magic: HELLO_MAGIC, version: VERSION, ..Hello::zeroed() };
        sys::send_all(socket.as_raw_fd(), bytemuck::bytes_of(&hello)).ok()?;
        let (mut reply, mut fds) = (HelloReply::zeroed(), [-1; 8]);
        let count =
            sys::recv_with_fds(socket.as_raw_fd(), bytemuck::bytes_of_mut(&mut reply), &mut fds).ok()?;
        let fds: Vec<OwnedFd> = fds[..count].iter().map(|fd| own(*fd)).collect();
        if who == Who::Stranger && is_superuser() {
            assert_eq!((fds.len(), reply.leases), (1, 0), "a stranger was given leases");
        }
        let owner = who == Who::Owner;
        Some(Hostile {
            channel: Mapped::new(fds.first()?, size_of::<Channel>())?,
            control: fds.get(1).filter(|_| owner).and_then(|fd| Mapped::new(fd, size_of::<Control>())),
            rings: fds.get(4).filter(|_| owner).and_then(|fd| Mapped::new(fd, RINGS_MAX * RING_BYTES)),
            socket,
            files: vec![u64::MAX],
        })
    }

    fn channel(&self) -> &Channel {
        // SAFETY: the mapping has the type's size; what is shared in it is atomics and cells.
        unsafe { &*self.channel.at.cast() }
    }

    /// A request in a slot; waits a little for its answer.
    fn ask(&mut self, script: &mut Script<'_>) {
        let index = script.below(4) * script.below(17) % SLOTS;
        let op = script.below(48) as u32;
        let mut request = Request { op, cpu: u32::MAX, ..Request::default() };
        request.args[0] = match script.byte() {
            0..200 => script.of(&self.files),
            // Perhaps somebody else's.
            _ => (script.below(3) as u64) << 32 | script.below(5) as u64,
        };
        for arg in &mut request.args[1..] {
            *arg = script.number();
        }
        let texts: [&[u8]; 12] = [
            b"/mine",
            b"/mine/below",
            b"/others",
            b"/owned",
            b"/",
            b".",
            b"",
            b"../..",
            b"/somebody-new",
            b"user.x",
            b"/link",
            b"a\0b",
        ];
        let (first, second) = (script.of(&texts), script.of(&texts));
        (request.len1, request.len2) = match script.byte() {
            0..230 => (first.len() as u32, second.len() as u32),
            _ => (script.number() as u32, script.number() as u32),
        };
        // Opening is what all else rests on.
        if op >= 44 {
            request.op = 1;
            request.args[0] = u64::MAX;
            request.args[1] = u64::from(script.below(1 << 22) as u32);
            request.args[2] = 0o666;
        }
        let payload = std::mem::offset_of!(Channel, payloads) + index * PAYLOAD_BYTES;
        self.channel.put(payload, first);
        self.channel.put(payload + first.len(), second);
        let slot = &self.channel().slots[index];
        // SAFETY: the slot is this thread's, unless the server is misled about that, which is what is tried.
        unsafe { slot.request.get().write_volatile(request) };
        if slot.served.load(Relaxed) == 0 || script.byte() == 7 {
            let _ = sys::send_all(self.socket.as_raw_fd(), &[index as u8]);
        }
        slot.state.store(SUBMITTED, SeqCst);
        sys::futex_wake(&slot.state, u32::MAX >> 1);
        if script.byte() < 40 {
            return;
        }
        for _ in 0..5 {
            if slot.state.load(SeqCst) == DONE {
                break;
            }
            sys::futex_wait(&slot.state, SUBMITTED, WAIT_NS / 5);
        }
        // SAFETY: as above.
        let response = unsafe { slot.response.get().read_volatile() };
        slot.state.store(FREE, SeqCst);
        if self.control.is_none() {
            self.assert_told_no_secret(payload);
        }
        if request.op == 1 && response.ret >= 0 && self.files.len() < 64 {
            self.files.push(response.values[0]);
        }
    }

    /// What honest files hold is not in a stranger's payload.
    fn assert_told_no_secret(&self, payload: usize) {
        let told: Vec<u8> = (payload..(payload + 8192).min(self.channel.len))
            // SAFETY: within the mapping.
            .map(|at| unsafe { self.channel.at.add(at).read_volatile() })
            .collect();
        // A part of the secret that begins anywhere holds this one.
        let told = told.windows(8).any(|part| part == &SECRET[8..]);
        assert!(!told || !is_superuser(), "a stranger reads somebody else's file");
    }

    /// Anything into what is shared.
    fn scribble(&self, script: &mut Script<'_>) {
        let bytes = match script.byte() {
            0..128 => script.number().to_le_bytes()[..script.of(&[1, 2, 4, 8])].to_vec(),
            _ => script.bytes(64),
        };
        let slots = std::mem::offset_of!(Channel, slots);
        match (script.below(10), &self.control, &self.rings) {
            (0..3, Some(control), _) => {
                let inodes = std::mem::offset_of!(Control, inodes);
                control.put(inodes + script.below(8) * 256 + script.below(256), &bytes);
            }
            (3 | 4, Some(control), _) => {
                let files = std::mem::offset_of!(Control, open_files);
                control.put(files + script.below(8) * 64 + script.below(64), &bytes);
            }
            (5, Some(control), _) if script.byte() < 128 => control.put(script.below(4096), &bytes),
            (5, Some(control), _) => {
                let records = std::mem::offset_of!(Control, records);
                control.put(records + script.below(8) * 448 + script.below(448), &bytes);
            }
            (6, Some(control), _) => {
                let bits = std::mem::offset_of!(Control, kick_bits);
                control.put(bits + script.below(8192), &bytes);
            }
            (7, Some(control), _) => control.put(script.below(control.len), &bytes),
            // Most where the table of an overwrite area is.
            (8, _, Some(rings)) if script.byte() < 160 => {
                rings.put(script.below(4) * RING_BYTES + script.below(2048 + 16), &bytes);
            }
            (8, _, Some(rings)) => rings.put(script.below(rings.len), &bytes),
            (0..7, ..) => self.channel.put(slots + script.below(4) * 4096 + script.below(192), &bytes),
            (7, ..) => self.channel.put(slots + script.below(SLOTS * 4096), &bytes),
            _ => self.channel.put(script.below(self.channel.len), &bytes),
        }
    }

    /// Anything onto the socket, perhaps with a descriptor.
    fn speak(&self, script: &mut Script<'_>) {
        let fd = self.socket.as_raw_fd();
        match script.below(4) {
            0 => drop(sys::send_all(fd, &[script.byte() % 80])),
            1 => drop(sys::send_all(fd, &script.bytes(40))),
            _ => {
                let mut hello = Hello { magic: HELLO_MAGIC, version: VERSION, ..Hello::zeroed() };
                hello.flags = match script.byte() {
                    // One flag or two, as clients send them.
                    flags @ 0..240 => 1 << (flags & 7) | u32::from(flags & 16) << (flags >> 5 & 3),
                    _ => script.number() as u32,
                };
                hello.thread = script.number() as u32;
                hello.mount_point_len = script.number() as u32;
                hello.mount_point[..40].fill(script.byte());
                hello.comm = [script.byte(); 16];
                let Ok([ours, theirs]) = sys::socket_pair() else { return };
                let bytes = &bytemuck::bytes_of(&hello)[..size_of::<Hello>() - script.below(3)];
                let with = script.byte();
                let _ = match with & 3 {
                    0 => sys::send_all(fd, bytes),
                    1 => sys::send_with_fd(fd, bytes, Some(self.socket.as_raw_fd()), true),
                    _ => sys::send_with_fd(fd, bytes, Some(theirs), with & 4 != 0),
                };
                if with & 8 != 0 {
                    let _ = sys::send_all(ours, &[0, 1, 2, 119]);
                }
                let _ = (sys::close(ours), sys::close(theirs));
            }
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        for _ in 0..40 {
            match script.below(8) {
                _ if script.is_over() => return,
                0..4 => self.ask(script),
                4..7 => self.scribble(script),
                _ => self.speak(script),
            }
        }
    }
}

impl Protocol {
    /// A hostile client of this user.
    pub fn new(who: Who) -> Protocol {
        Protocol { who, house: None, runs: 0, before: Held::now(), stopping: Vec::new() }
    }
}

impl Target for Protocol {
    fn name(&self) -> &'static str {
        match self.who {
            Who::Stranger => "stranger",
            Who::Owner => "owner",
        }
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds: Vec<Vec<u8>> =
            (0..48).map(|op| vec![0, 1, 1, op, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 200]).collect();
        // Everything that can be asked of the first files, which are the honest ones'.
        let of_others = |op: u8, slot: u8| {
            [&[0, 0, 0, op, 200, 1, slot][..], &[0, 63, 63, 0, 0, 0, 0], &[6, 6, 0, 200, 200]].concat()
        };
        seeds.extend((0..44).flat_map(|op| [of_others(op, 0), of_others(op, 1)]));
        seeds.extend((0..10).map(|place| vec![4, 0, 9, 3, place, 0, 1, 2, 0, 1, 1, 44, 2, 64]));
        seeds.extend((0..8).map(|flags| vec![7, 3, flags, 0, 0, 0, 2]));
        seeds
    }

    fn run(&mut self, input: &[u8]) {
        self.runs += 1;
        if self.runs.is_multiple_of(RUNS_OF_A_SERVER) {
            self.house = None;
            self.stopping.drain(..).for_each(|stopping| stopping.join().expect("a server stops"));
            self.before.assert_given_back();
        }
        let who = self.who;
        let house = self.house.get_or_insert_with(House::new);
        let hostile = || {
            if let Some(mut hostile) = Hostile::connect(&house.path, who) {
                hostile.act(&mut Script(input));
            }
        };
        match who {
            Who::Stranger => {
                as_user(STRANGER, hostile);
                house.serves();
                house.is_untouched();
            }
            Who::Owner => {
                hostile();
                house.serves();
                // What it wrote into shared memory is there for all of its user.
                let house = self.house.take();
                self.stopping.push(std::thread::spawn(move || drop(house)));
            }
        }
    }
}
