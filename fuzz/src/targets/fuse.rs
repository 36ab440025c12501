//! The kernel's side of a mount: requests with any fields, lengths and numbers, in any order, over a socket in place of `/dev/fuse`. Each
//! that says how long it is is answered, or may wait for a lock until it is interrupted. Afterwards the front still serves, the volume
//! can be closed, and the check finds nothing.

use super::Target;
use crate::script::Script;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_device::{Geometry, ZonedModel};
use weft_fuse::{Kept, Mount, MountChoice};
use weft_lfs::fsck;
use weft_server::Volume;
use weft_vfs::compound::ioctl::{Command as About, Head};
use weft_vfs::compound::{Access, Chain};
use weft_volume::{Device, MountChoice as VolumeChoice, Mounted};

/// See the module.
pub struct KernelRequests;

/// Longest wait for an answer; an honest one takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(20);
/// A request for a lock that is not answered by then waits for it.
const LOCK_PATIENCE: Duration = Duration::from_millis(2);
const HEAD_BYTES: usize = 40;
/// Bytes of an answer of a front, at most.
const ANSWER_BYTES: usize = (1 << 20) + 4096;
/// Requests of an input, at most.
const REQUESTS_MAX: usize = 80;
const ENTRY_BYTES: usize = 128;
/// Where the body of an `ioctl` has the number of the command.
const COMMAND_AT: usize = 12;
/// Commands about programs.
const ABOUT_PROGRAMS: [About; 3] = [About::Put, About::Run, About::Get];

/// A part of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Node,
    Handle,
    /// A file offset or length.
    Offset,
    /// So many bytes of data, or room for an answer.
    Size,
    Number,
    LongNumber,
    Flags,
    Mode,
    Zero,
    Name,
    Data,
    /// The number of an earlier request.
    Unique,
    LockKind,
    Command,
    Argument,
    Version,
    Forgets,
}

use Part::*;

const FORGET: u32 = 2;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const SETLKW: u32 = 33;
const CREATE: u32 = 35;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const TMPFILE: u32 = 51;
/// Answered by an entry of a directory.
const MAKERS: [u32; 5] = [1, 6, 8, 9, 13];

/// Requests of the kernel by number, and what they are made of.
const REQUESTS: [(u32, &[Part]); 42] = [
    (1, &[Name]),
    (FORGET, &[LongNumber]),
    (3, &[Number, Zero, Handle]),
    (
        4,
        &[
            Number, Zero, Handle, Offset, LongNumber, LongNumber, LongNumber, LongNumber, Number, Number,
            Number, Mode, Number, Number, Number, Number,
        ],
    ),
    (5, &[]),
    (6, &[Name, Name]),
    (8, &[Mode, Number, Number, Zero, Name]),
    (9, &[Mode, Number, Name]),
    (10, &[Name]),
    (11, &[Name]),
    (12, &[Node, Name, Name]),
    (13, &[Node, Name]),
    (OPEN, &[Flags, Number]),
    (15, &[Handle, Offset, Size, Number, LongNumber, Flags, Zero]),
    (16, &[Handle, Offset, Size, Number, LongNumber, Flags, Zero, Data]),
    (17, &[]),
    (RELEASE, &[Handle, Flags, Number, LongNumber]),
    (20, &[Handle, Number, Zero]),
    (21, &[Size, Number, Number, Zero, Name, Data]),
    (22, &[Size, Zero, Name]),
    (23, &[Size, Zero]),
    (24, &[Name]),
    (25, &[Handle, Number, Zero, LongNumber]),
    (INIT, &[Version, Number, Number, Number]),
    (OPENDIR, &[Flags, Number]),
    (28, &[Handle, Offset, Size, Number, LongNumber, Flags, Zero]),
    (RELEASEDIR, &[Handle, Flags, Number, LongNumber]),
    (30, &[Handle, Number, Zero]),
    (31, &[Handle, LongNumber, Offset, Offset, LockKind, Number, Number, Zero]),
    (32, &[Handle, LongNumber, Offset, Offset, LockKind, Number, Number, Zero]),
    (SETLKW, &[Handle, LongNumber, Offset, Offset, LockKind, Number, Number, Zero]),
    (CREATE, &[Flags, Mode, Number, Number, Name]),
    (INTERRUPT, &[Unique]),
    (38, &[]),
    (39, &[Handle, Number, Command, LongNumber, Size, Size, Argument]),
    (BATCH_FORGET, &[Number, Zero, Forgets]),
    (43, &[Handle, Offset, Offset, Number, Zero]),
    (44, &[Handle, Offset, Size, Number, LongNumber, Flags, Zero]),
    (45, &[Node, Number, Zero, Name, Name]),
    (46, &[Handle, Offset, Number, Zero]),
    (TMPFILE, &[Flags, Mode, Number, Number, Name]),
    (52, &[Number, Zero, Handle, Number, Number]),
];

/// An answer: an error or 0, and what follows the head.
type Answered = (i32, Vec<u8>);

/// The other end of the connection.
struct Kernel {
    socket: OwnedFd,
    unique: u64,
    nodes: Vec<u64>,
    handles: Vec<u64>,
    /// Requests that may wait for locks.
    waiting: BTreeSet<u64>,
    buffer: Vec<u8>,
}

fn seqpacket_pair() -> (OwnedFd, OwnedFd) {
    let mut both = [-1; 2];
    // SAFETY: room for two descriptors, which have no other owner.
    let (kernel, front) = unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, both.as_mut_ptr()), 0, "a pair of sockets");
        (OwnedFd::from_raw_fd(both[0]), OwnedFd::from_raw_fd(both[1]))
    };
    for socket in [&kernel, &front] {
        let bytes: libc::c_int = 4 << 20;
        for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            // SAFETY: the option is an int, which outlives the call.
            let _ = unsafe {
                let len = size_of::<libc::c_int>() as libc::socklen_t;
                libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const bytes).cast(), len)
            };
        }
    }
    (kernel, front)
}

impl Kernel {
    fn new(socket: OwnedFd) -> Kernel {
        let buffer = vec![0; ANSWER_BYTES];
        Kernel { socket, unique: 2, nodes: vec![1], handles: vec![0], waiting: BTreeSet::new(), buffer }
    }

    /// Sends a message; false where buffers are too small for it.
    fn send(&self, request: &[u8]) -> bool {
        // SAFETY: the bytes outlive the call.
        let sent = unsafe { libc::write(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len()) };
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert!(sent >= 0 || errno == Some(libc::EMSGSIZE), "the front has closed the connection");
        sent >= 0
    }

    /// The next message that comes in time: its number, and the answer.
    fn receive(&mut self, until: Instant) -> Option<(u64, Answered)> {
        let left = until.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = left.as_millis().clamp(1, 60_000) as libc::c_int;
        // SAFETY: one entry, which outlives the call.
        if unsafe { libc::poll(&raw mut poll, 1, millis) } <= 0 {
            return None;
        }
        // SAFETY: the buffer is as long as is said.
        let read = unsafe {
            libc::read(self.socket.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len())
        };
        assert!(read >= 16, "an answer of {read} bytes");
        let message = &self.buffer[..read as usize];
        let word =
            |at: usize| u32::from_ne_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
        assert_eq!(word(0) as usize, message.len(), "an answer is as long as it says");
        let unique = u64::from(word(8)) | u64::from(word(12)) << 32;
        Some((unique, (word(4) as i32, message[16..].to_vec())))
    }

    /// The answer to a request, if it comes in time.
    fn answer(&mut self, unique: u64, patience: Duration) -> Option<Answered> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Some((of, answered)) = self.receive(until) {
                self.waiting.remove(&of);
                if of == unique {
                    return Some(answered);
                }
            }
        }
        None
    }

    /// Sends a request that is well formed, and waits for its answer.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Answered {
        self.unique += 2;
        let unique = self.unique;
        self.send(&request(opcode, unique, node, (0, 0, std::process::id()), body));
        let answered = self.answer(unique, PATIENCE);
        answered.unwrap_or_else(|| panic!("request {opcode} of an honest kernel is not answered"))
    }

    /// Part of a request, as the script has it.
    fn part(&self, part: Part, size: &mut Option<u32>, script: &mut Script<'_>, body: &mut Vec<u8>) {
        let mut short = |number: u32| body.extend_from_slice(&number.to_ne_bytes());
        match part {
            Zero => short(0),
            Number => short(script.number() as u32),
            Size => {
                let number = match script.byte() {
                    0..200 => script.below(9000) as u32,
                    200..230 => script.below(1 << 20) as u32,
                    _ => script.number() as u32,
                };
                *size = Some(number);
                short(number);
            }
            Flags => {
                let common = [0, 1, 2, libc::O_RDWR | libc::O_TRUNC, libc::O_RDWR | libc::O_APPEND];
                short(match script.byte() {
                    0..200 => script.of(&common) as u32,
                    _ => script.number() as u32,
                });
            }
            Mode => short(match script.byte() {
                0..200 => {
                    script.of(&[0o100_644, 0o644, 0o755, 0o040_755, 0o106_755, 0o020_600, 0o010_600, 0])
                }
                _ => script.number() as u32,
            }),
            LockKind => short(match script.byte() {
                0..230 => u32::from(script.byte() % 3),
                _ => script.number() as u32,
            }),
            Command => {
                let known = [0x8008_6601, 0x4008_6602, 0x801c_581f, 0x401c_5820];
                short(match script.byte() {
                    0..180 => script.of(&known),
                    180..240 => script.of(&ABOUT_PROGRAMS).number(script.below(1 << 14)),
                    _ => script.number() as u32,
                });
            }
            Argument => {
                let command = body.get(COMMAND_AT..).and_then(|rest| rest.first_chunk());
                match command.and_then(|command| About::of(u32::from_ne_bytes(*command))) {
                    Some(_) => Kernel::program(script, body),
                    None => self.part(Data, size, script, body),
                }
            }
            Version => {
                let (major, minor) =
                    if script.byte() < 220 { (7, 45) } else { (script.number(), script.number()) };
                short(major as u32);
                short(minor as u32);
            }
            Node => body.extend_from_slice(&self.node(script).to_ne_bytes()),
            Handle => {
                let handle = if script.byte() < 235 { script.of(&self.handles) } else { script.number() };
                body.extend_from_slice(&handle.to_ne_bytes());
            }
            Offset => {
                let offset = match script.byte() {
                    0..180 => script.below(40_000) as u64,
                    180..200 => i64::MAX as u64 - script.below(9000) as u64,
                    200..220 => u64::MAX - script.below(9000) as u64,
                    _ => script.number(),
                };
                body.extend_from_slice(&offset.to_ne_bytes());
            }
            LongNumber => body.extend_from_slice(&script.number().to_ne_bytes()),
            Unique => {
                let unique = match script.byte() {
                    0..200 => self.unique.saturating_sub(2 * script.below(8) as u64),
                    _ => script.number(),
                };
                body.extend_from_slice(&unique.to_ne_bytes());
            }
            Name => self.name(script, body),
            Data => {
                // As long as was said, or not.
                let said = size.unwrap_or(0) as usize;
                let len = if script.byte() < 235 { said.min(1 << 20) } else { script.below(9000) };
                body.resize(body.len() + len, script.byte());
            }
            Forgets => {
                for _ in 0..script.below(5) {
                    body.extend_from_slice(&self.node(script).to_ne_bytes());
                    body.extend_from_slice(&script.number().to_ne_bytes());
                }
            }
        }
    }

    /// The argument of a command about a program.
    fn program(script: &mut Script<'_>, body: &mut Vec<u8>) {
        let mut chain = Chain::each();
        let file = chain.given(0);
        let found = chain.read(file, 0, 40_000);
        chain.export(found);
        let other = chain.open("honest", Access::Read);
        let attr = chain.stat(other);
        chain.export(attr);
        let mut program = chain.check().map(|program| program.encode()).unwrap_or_default();
        for _ in 0..script.below(4) {
            let at = script.below(program.len());
            program[at] = script.byte();
        }
        program.truncate(if script.byte() < 200 { program.len() } else { script.below(program.len()) });
        let offset = match script.byte() {
            0..150 => 0,
            150..220 => program.len() as u32,
            _ => script.number() as u32,
        };
        let (answer, len) = (script.below(4) as u64, program.len() as u32);
        body.extend_from_slice(&Head { answer, offset, len, ..Head::default() }.to_bytes());
        body.extend_from_slice(&program);
    }

    fn node(&self, script: &mut Script<'_>) -> u64 {
        match script.byte() {
            0..200 => script.of(&self.nodes),
            200..230 => script.below(20) as u64,
            _ => script.number(),
        }
    }

    fn name(&self, script: &mut Script<'_>, body: &mut Vec<u8>) {
        let known: [&[u8]; 14] = [
            b"a",
            b"b",
            b"c",
            b"honest",
            b"d",
            b"d/e",
            b".",
            b"..",
            b"",
            b"/",
            b"user.x",
            b"system.posix_acl_access",
            b"system.posix_acl_default",
            b"security.capability",
        ];
        match script.byte() {
            0..220 => body.extend_from_slice(script.of(&known)),
            220..240 => body.resize(body.len() + script.below(5000), b'n'),
            _ => body.extend_from_slice(&script.bytes(40)),
        }
        if script.byte() < 245 {
            body.push(0);
        }
    }

    /// One request, as the script has it.
    fn act(&mut self, script: &mut Script<'_>) {
        let (mut opcode, parts) = script.of(&REQUESTS);
        let mut body = Vec::new();
        let mut size = None;
        for part in parts {
            self.part(*part, &mut size, script, &mut body);
        }
        if script.byte() >= 245 {
            opcode = script.number() as u32;
        }
        match script.byte() {
            0..235 => {}
            235..245 => body.truncate(script.below(body.len() + 1)),
            _ => body.extend_from_slice(&script.bytes(60)),
        }
        body.truncate(ANSWER_BYTES - HEAD_BYTES);
        self.unique += 2;
        let is_new = script.byte() < 240;
        let unique = match script.byte() {
            _ if is_new => self.unique,
            0..100 => self.unique.saturating_sub(2 * script.below(6) as u64),
            100..200 => self.unique | 1 << 63,
            _ => script.number(),
        };
        let who = match script.byte() {
            0..200 => (0, 0, 1),
            _ => (script.number() as u32, script.number() as u32, script.number() as u32),
        };
        let mut bytes = request(opcode, unique, self.node(script), who, &body);
        let is_whole = script.byte() < 250;
        if !is_whole {
            match script.byte() & 1 {
                0 => bytes[..4].copy_from_slice(&(script.number() as u32).to_ne_bytes()),
                _ => bytes.truncate(1 + script.below(bytes.len())),
            }
        }
        if !self.send(&bytes) || !is_whole || matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT) {
            // Some are answered by an error.
            return;
        }
        let patience = if opcode == SETLKW { LOCK_PATIENCE } else { PATIENCE };
        match self.answer(unique, patience) {
            Some((0, answer)) => self.learn(opcode, &answer),
            Some(_) => {}
            None if opcode == SETLKW => drop(self.waiting.insert(unique)),
            // An interrupt may have come before.
            None => panic!("request {opcode} is not answered"),
        }
    }

    /// Nodes and handles of an answer.
    fn learn(&mut self, opcode: u32, answer: &[u8]) {
        let word =
            |at: usize| answer.get(at..at + 8).and_then(|raw| raw.try_into().ok()).map(u64::from_ne_bytes);
        let has_node = MAKERS.contains(&opcode) || matches!(opcode, CREATE | TMPFILE);
        let handle_at = match opcode {
            CREATE | TMPFILE => Some(ENTRY_BYTES),
            OPEN | OPENDIR => Some(0),
            _ => None,
        };
        if has_node {
            self.nodes.extend(word(0));
        }
        self.handles.extend(handle_at.and_then(word));
    }

    /// What an honest kernel may ask afterwards, too.
    fn is_served(&mut self) {
        let waiting: Vec<u64> = self.waiting.iter().copied().collect();
        for unique in waiting {
            self.send(&request(INTERRUPT, self.unique | 1, 0, (0, 0, 0), &unique.to_ne_bytes()));
        }
        let (errno, attr) = self.ask(3, 1, &[0; 16]);
        assert_eq!((errno, attr.len()), (0, 104), "the root has attributes");
        assert_eq!(self.ask(17, 1, &[]).0, 0, "the space of the volume");
        let (errno, opened) = self.ask(OPENDIR, 1, &[0; 8]);
        assert_eq!(errno, 0, "the root can be opened");
        let handle = &opened[..8];
        let read = [handle, &[0; 8], &4096u32.to_ne_bytes(), &[0; 20]].concat();
        let (errno, listed) = self.ask(28, 1, &read);
        assert!(errno == 0 && !listed.is_empty(), "the root can be listed: {errno}");
        assert_eq!(self.ask(RELEASEDIR, 1, &[handle, &[0; 16]].concat()).0, 0);
        // One of these may be full, immutable, or somebody else's by now: that is an answer.
        let (errno, made) = self.ask(
            CREATE,
            1,
            &[&[2, 0, 0, 0, 0o244, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], b"new\0"].concat(),
        );
        if errno == 0 {
            let node = made[..8].try_into().map_or(0, u64::from_ne_bytes);
            let handle = &made[ENTRY_BYTES..ENTRY_BYTES + 8];
            let write = [handle, &[0; 8], &5u32.to_ne_bytes(), &[0; 20], b"hello"].concat();
            let written = self.ask(16, node, &write).0;
            let read = [handle, &[0; 8], &9u32.to_ne_bytes(), &[0; 20]].concat();
            let (errno, content) = self.ask(15, node, &read);
            let wanted: &[u8] = if written == 0 { b"hello" } else { b"" };
            assert_eq!((errno, &content[..]), (0, wanted), "a new file has what was written ({written})");
            assert_eq!(self.ask(RELEASE, node, &[handle, &[0; 16]].concat()).0, 0);
            // By now the root may be a directory that names are only added to.
            assert!(matches!(-self.ask(10, 1, b"new\0").0, 0 | libc::EPERM), "a new file is removed");
        }
        let until = Instant::now() + PATIENCE;
        while !self.waiting.is_empty() {
            let received = self.receive(until);
            let (unique, _) = received
                .unwrap_or_else(|| panic!("locks are waited for after an interrupt: {:?}", self.waiting));
            self.waiting.remove(&unique);
        }
    }
}

fn request(opcode: u32, unique: u64, node: u64, (uid, gid, pid): (u32, u32, u32), body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend_from_slice(&((HEAD_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&opcode.to_ne_bytes());
    bytes.extend_from_slice(&unique.to_ne_bytes());
    bytes.extend_from_slice(&node.to_ne_bytes());
    for number in [uid, gid, pid, 0] {
        bytes.extend_from_slice(&number.to_ne_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

/// A volume in memory with a mount that the script's kernel has.
struct House {
    device: Arc<ZonedModel>,
    mounted: Arc<Mounted>,
    volume: Arc<Volume>,
    mount: Mount,
    kernel: Kernel,
}

impl House {
    fn new(write_back: bool) -> House {
        let fine = "a volume is made";
        let geometry = Geometry::bbssd().with_size(16 << 20).with_zone_bytes(512 << 10);
        let device = Arc::new(ZonedModel::memory(&geometry).expect(fine));
        weft_volume::format(device.clone(), "fuzz", "").expect(fine);
        let choice =
            VolumeChoice { leases: false, dirty_bytes_max: Some(1 << 20), ..VolumeChoice::default() };
        let mounted = weft_volume::mount(Device::Model(device.clone()), "fuzz".into(), &choice).expect(fine);
        let mounted = Arc::new(mounted);
        let volume = Arc::new(Volume::new(mounted.clone()).expect(fine));
        let (kernel, front) = seqpacket_pair();
        let choice = MountChoice { write_back, ..MountChoice::default() };
        let kept = Kept::new().expect(fine);
        let mount = Mount::resume(volume.clone(), Path::new("/fuzz"), &choice, kept, front).expect(fine);
        let mut house = House { device, mounted, volume, mount, kernel: Kernel::new(kernel) };
        let kernel = &mut house.kernel;
        let init = [7u32, 45, 1 << 17, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat();
        assert_eq!(kernel.ask(INIT, 0, &init).0, 0, "the first request");
        for (opcode, body) in [
            (9, [&[0o355, 1, 0, 0, 0, 0, 0, 0][..], b"d\0"].concat()),
            (CREATE, [&[2, 0, 0, 0, 0o244, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], b"honest\0"].concat()),
            (OPENDIR, vec![0; 8]),
        ] {
            let (errno, answer) = kernel.ask(opcode, 1, &body);
            assert_eq!(errno, 0, "request {opcode}");
            kernel.learn(opcode, &answer);
        }
        house
    }

    fn end(self) {
        let House { device, mounted, volume, mount, kernel } = self;
        drop(kernel);
        let begun = Instant::now();
        while !mount.has_ended() {
            assert!(begun.elapsed() < PATIENCE, "the mount does not end");
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(mount);
        volume.drain_all();
        drop(volume);
        mounted.close().unwrap_or_else(|error| panic!("the volume cannot be closed: {error}"));
        drop(mounted);
        let report = fsck::check(device).unwrap_or_else(|error| panic!("the check: {error}"));
        assert!(report.is_clean(), "{:?}", report.problems);
    }
}

impl Target for KernelRequests {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        // Each request alone, with fields that are in order, and each with fields that are not.
        let one = |n: usize, fields: u8| {
            let mut script = vec![0, n as u8];
            script.resize(80, fields);
            script
        };
        (0..REQUESTS.len()).flat_map(|n| [one(n, 0), one(n, 1), one(n, 210), one(n, 255)]).collect()
    }

    fn run(&mut self, input: &[u8]) {
        let mut script = Script(input);
        let mut house = House::new(script.byte() % 4 == 3);
        for _ in 0..REQUESTS_MAX {
            if script.is_over() {
                break;
            }
            house.kernel.act(&mut script);
        }
        house.kernel.is_served();
        house.end();
    }
}
