//! One user cannot keep all others from being served. A test of its own: it lowers the limit of this process's descriptors.

#![allow(clippy::unwrap_used)]

mod rig;

use bytemuck::Zeroable;
use rig::{Rig, is_superuser};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use weft_client::proto::{HELLO_CLONE, HELLO_MAGIC, Hello, HelloReply};
use weft_client::shared::VERSION;
use weft_client::sys;

const USER: u32 = 1001;

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the descriptor was just made and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn hello(flags: u32) -> Hello {
    Hello { magic: HELLO_MAGIC, version: VERSION, flags, ..Hello::zeroed() }
}

/// The status that the server answers on a socket.
fn status(socket: &OwnedFd) -> i32 {
    let (mut reply, mut fds) = (HelloReply::zeroed(), [-1; 8]);
    let count = sys::recv_with_fds(socket.as_raw_fd(), bytemuck::bytes_of_mut(&mut reply), &mut fds).unwrap();
    fds[..count].iter().for_each(|fd| drop(owned(*fd)));
    reply.status
}

fn connect(path: &[u8]) -> (OwnedFd, i32) {
    let socket = owned(sys::connect_unix(path).unwrap());
    // The server may have refused before it hears this.
    let _ = sys::send_all(socket.as_raw_fd(), bytemuck::bytes_of(&hello(0)));
    let status = status(&socket);
    (socket, status)
}

#[test]
fn one_user_cannot_take_all_places() {
    if !is_superuser() {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 300, rlim_max: 300 };
    // SAFETY: a system call that reads the struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let rig = Rig::new(64 << 20);
    let mut held = Vec::new();
    rig.as_user(USER, || {
        loop {
            let (socket, status) = connect(&rig.path);
            if status != 0 {
                assert_eq!(status, libc::EAGAIN);
                break;
            }
            held.push(socket);
        }
        assert_eq!(held.len(), 50);
        // Nor by children of what it has.
        let [ours, theirs] = sys::socket_pair().unwrap().map(owned);
        let clone = hello(HELLO_CLONE);
        sys::send_with_fd(held[0].as_raw_fd(), bytemuck::bytes_of(&clone), Some(theirs.as_raw_fd()), false)
            .unwrap();
        assert_eq!(status(&ours), libc::EAGAIN);
    });
    rig.client().statfs().unwrap();
    assert_eq!(rig.as_user(USER + 1, || connect(&rig.path).1), 0);
    // Who goes makes room.
    held.truncate(40);
    let begun = std::time::Instant::now();
    while rig.as_user(USER, || connect(&rig.path).1) != 0 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "places are not given back");
    }
}
