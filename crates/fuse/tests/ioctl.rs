//! Programs by an `ioctl` of callers that no honest kernel lets a test be: over a socket in place of `/dev/fuse`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use weft_device::Geometry;
use weft_fuse::{Kept, Mount, MountChoice};
use weft_server::Volume;
use weft_vfs::compound::ioctl::{Command, Head};
use weft_vfs::compound::{Access, Chain};

const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const IOCTL: u32 = 39;
/// Bit of the number of a request that the kernel gives once more.
const RESENT: u64 = 1 << 63;
const ROOT: u64 = 1;

/// The kernel's end of a mount.
struct Kernel {
    socket: File,
    unique: u64,
    gid: u32,
}

impl Kernel {
    /// Sends a request of a caller; its number.
    fn send(&mut self, opcode: u32, (uid, pid): (u32, u32), is_resent: bool, body: &[u8]) -> u64 {
        self.unique += 2;
        let unique = self.unique | if is_resent { RESENT } else { 0 };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let len = 40 + body.len() as u32;
        let head = [
            &words(&[len, opcode])[..],
            &unique.to_ne_bytes(),
            &ROOT.to_ne_bytes(),
            &words(&[uid, self.gid, pid, 0]),
        ];
        self.socket.write_all(&[&head.concat(), body].concat()).unwrap();
        unique
    }

    /// The answer to a request: an errno and what follows.
    fn answer(&mut self, unique: u64) -> (i32, Vec<u8>) {
        let mut message = vec![0; 1 << 16];
        loop {
            let len = self.socket.read(&mut message).unwrap();
            let error = i32::from_ne_bytes(*message[4..].first_chunk().unwrap());
            if message[8..16] == unique.to_ne_bytes() {
                return (-error, message[16..len].to_vec());
            }
        }
    }

    fn ask(&mut self, opcode: u32, who: (u32, u32), is_resent: bool, body: &[u8]) -> (i32, Vec<u8>) {
        let unique = self.send(opcode, who, is_resent, body);
        self.answer(unique)
    }
}

/// The body of a request that runs a program, on an open file.
fn run(handle: u64, program: &[u8]) -> Vec<u8> {
    let argument = [&Head { len: program.len() as u32, ..Head::default() }.to_bytes(), program].concat();
    let len = argument.len() as u32;
    let number = Command::Run.number(argument.len());
    let words = [0, number, 0, 0, len, len].map(u32::to_ne_bytes).concat();
    [&handle.to_ne_bytes()[..], &words, &argument].concat()
}

#[test]
fn who_cannot_be_identified_runs_nothing_and_no_program_runs_twice() {
    let geometry = Geometry::preset("bbssd").unwrap().with_size(64 << 20).with_zone_bytes(1 << 20);
    let mounted = weft_volume::open_memory("mem".into(), &geometry, &weft_volume::MountChoice::default());
    let volume = Arc::new(Volume::new(Arc::new(mounted.unwrap())).unwrap());
    let mut both = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors, which have no other owner.
    let [kernel, front] = unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, both.as_mut_ptr()), 0);
        both.map(|socket| OwnedFd::from_raw_fd(socket))
    };
    let choice = MountChoice::default();
    let mount = Mount::resume(volume, Path::new("/nowhere"), &choice, Kept::new().unwrap(), front).unwrap();
    let ((uid, gid), pid) = (weft_sys::effective_user(), std::process::id());
    let mut kernel = Kernel { socket: File::from(kernel), unique: 0, gid };
    let init = [7u32, 45, 1 << 17, 0, 0].map(u32::to_ne_bytes).concat();
    assert_eq!(kernel.ask(INIT, (uid, pid), false, &init).0, 0);
    let (errno, opened) = kernel.ask(OPENDIR, (uid, pid), false, &[0; 8]);
    assert_eq!(errno, 0);
    let handle = u64::from_ne_bytes(*opened.first_chunk().unwrap());
    let mut chain = Chain::all();
    chain.open("none", Access::Read);
    let body = run(handle, &chain.check().unwrap().encode());
    let nobody = u32::MAX / 2;
    for (what, who, is_resent, wanted) in [
        ("of this process", (uid, pid), false, 0),
        ("of a process that is not seen", (uid, 0), false, libc::ESRCH),
        ("of a process that there is not", (uid, nobody), false, libc::ESRCH),
        ("of another user than the process is", (uid + 1, pid), false, libc::EPERM),
        ("given once more", (uid, pid), true, libc::EIO),
    ] {
        assert_eq!(kernel.ask(IOCTL, who, is_resent, &body).0, wanted, "a request {what}");
    }
    assert_eq!(kernel.ask(IOCTL, (uid, pid), false, &run(handle + 1, b"")).0, libc::EBADF);
    assert_eq!(kernel.ask(RELEASEDIR, (uid, pid), false, &[&opened[..8], &[0; 16]].concat()).0, 0);
    assert_eq!(kernel.ask(IOCTL, (uid, pid), false, &body).0, libc::EBADF, "the directory is closed");
    drop(kernel);
    while !mount.has_ended() {
        std::thread::yield_now();
    }
}
