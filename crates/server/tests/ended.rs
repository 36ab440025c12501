//! A process that has ended changes nothing any more: what it had asked for and what had not begun does not come after what
//! others did when they saw its end.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use weft_client::LockRange;
use weft_core::Credentials;
use weft_server::Peer;
use weft_server::ops::{At, Caller, Change, Error, LockOwner, Opener, Position, Read, Session};

/// A process that ends when the test says so, and of which the front has not noticed it yet.
#[derive(Default)]
struct Mortal(AtomicBool);

impl Peer for Mortal {
    fn has_ended(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[test]
fn what_a_process_asked_for_before_it_ended_and_what_has_not_begun_does_not_happen() {
    let rig = Rig::new(64 << 20);
    let volume = rig.server.as_ref().unwrap().volume().clone();
    let peer = Arc::new(Mortal::default());
    let process = volume.begin_process("dies".into(), b"/weft".to_vec(), None, peer.clone()).unwrap();
    let caller = Caller::from(Credentials::superuser(0));
    let session = Session::new(&volume, &process, &caller);
    let at = |name| At::root(name);
    let create = libc::O_RDWR | libc::O_CREAT;
    let open = |name, flags| session.open(at(name), flags, 0o644, Opener::default());
    let file = open(b"/there", create).unwrap().0.file;
    session.write(file, Position::At(0), b"before").unwrap();
    session.fallocate(file, libc::FALLOC_FL_KEEP_SIZE, 4096, 4096).unwrap();

    peer.0.store(true, Relaxed);
    let ended = Err(Error::Ended);
    let store = Position::InPlace { offset: 0, old: Some(b"before") };
    assert_eq!(session.write(file, Position::At(0), b"after!").map(drop), ended);
    assert_eq!(session.write(file, store, b"stored").map(drop), ended);
    assert_eq!(session.fallocate(file, libc::FALLOC_FL_ZERO_RANGE, 0, 3), ended);
    let size = Change { size: Some(1), ..Change::default() };
    assert_eq!(session.set_attr(at(b"/there"), 0, &size), ended);
    let perm = Change { perm: Some(0), ..Change::default() };
    assert_eq!(session.set_attr(at(b"/there"), 0, &perm), ended);
    assert_eq!(session.set_xattr(at(b"/there"), 0, b"user.x", b"1", 0), ended);
    assert_eq!(open(b"/there", libc::O_RDWR | libc::O_TRUNC).map(drop), ended);
    assert_eq!(open(b"/new", create).map(drop), ended);
    assert_eq!(session.mkdir(at(b"/new"), 0o755).map(drop), ended);
    assert_eq!(session.symlink(b"/there", at(b"/new")).map(drop), ended);
    assert_eq!(session.link(at(b"/there"), at(b"/new"), 0), ended);
    assert_eq!(session.rename(at(b"/there"), at(b"/new"), 0), ended);
    assert_eq!(session.unlink(at(b"/there"), 0), ended);

    // Nothing of it is there, and nobody else hears of it.
    peer.0.store(false, Relaxed);
    assert_eq!(open(b"/new", libc::O_RDONLY).map(drop), Err(Error::Errno(libc::ENOENT)));
    assert_eq!(session.fsync(file), Ok(()));
    let attr = session.stat(at(b"/there"), 0).unwrap();
    assert_eq!((attr.size, attr.perm, attr.links), (6, 0o644, 1));
    assert_eq!(session.list_xattr(at(b"/there"), 0).unwrap(), b"");
    let mut content = [0; 6];
    session.read(file, Read { offset: Some(0), ..Read::default() }, &mut content).unwrap();
    assert_eq!(&content, b"before");
    volume.end_process(&process, None);
}

/// A process that has ended when it is looked at for the first time, and is gone when it is looked at again.
#[derive(Default)]
struct Passing(AtomicU32);

impl Peer for Passing {
    fn has_ended(&self) -> bool {
        self.0.fetch_add(1, Relaxed) == 0
    }
}

#[test]
fn a_process_that_ends_meanwhile_disturbs_nobody_who_asks_for_the_lock_in_the_way() {
    let rig = Rig::new(64 << 20);
    let volume = rig.server.as_ref().unwrap().volume().clone();
    let begin =
        |peer: Arc<dyn Peer>| volume.begin_process("p".into(), b"/weft".to_vec(), None, peer).unwrap();
    let caller = Caller::from(Credentials::superuser(0));
    let (one, two) = (begin(Arc::new(Mortal::default())), begin(Arc::new(Mortal::default())));
    let (first, second) = (Session::new(&volume, &one, &caller), Session::new(&volume, &two, &caller));
    let flags = libc::O_RDWR | libc::O_CREAT;
    let [file, theirs] = [&first, &second]
        .map(|session| session.open(At::root(b"/a"), flags, 0o644, Opener::default()).unwrap().0.file);
    let range = |kind, start| LockRange { kind, start, len: 1, pid: 7 };
    first.set_lock(file, LockOwner::Process, range(libc::F_WRLCK, 5), None).unwrap();
    for _ in 0..3 {
        let passing = begin(Arc::new(Passing::default()));
        let found = second.get_lock(theirs, LockOwner::Process, range(libc::F_RDLCK, 5)).unwrap();
        assert_eq!((found.kind, found.start), (libc::F_WRLCK, 5));
        volume.end_process(&passing, None);
    }
    volume.end_process(&two, None);
    volume.end_process(&one, None);
}
