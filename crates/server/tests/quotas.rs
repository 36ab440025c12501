//! Quotas under programs that append and overwrite in shared memory: whoever exceeds one hears of it from the write, and what was accepted
//! is stored.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{connect, is_superuser};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use weft_client::{Client, FileRef};
use weft_server::{Server, Volume};
use weft_tagfs::TagFs;
use weft_vfs::quota::{Limits, QUOTA_XATTR, USAGE_XATTR, Usage};
use weft_volume::spec::Place;
use weft_volume::{Layout, MountChoice, Mounted};

const USER: u32 = 1000;
const MIB: u64 = 1 << 20;

/// A served volume of the core on a tag store.
struct Rig {
    server: Option<Server>,
    mounted: Arc<Mounted>,
    socket: Vec<u8>,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (image, socket) = (dir.path().join("vol.img"), dir.path().join("s"));
        weft_volume::format_tagfs(&image, 256 * MIB, "", Layout::default()).unwrap();
        let mounted = Arc::new(weft_volume::open(&image, &MountChoice::default()).unwrap());
        let server = Server::start(Volume::new(mounted.clone()).unwrap(), Path::new(&socket)).unwrap();
        for (open, mode) in [(dir.path(), 0o755), (socket.as_path(), 0o777)] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let socket = socket.to_str().unwrap().as_bytes().to_vec();
        Rig { server: Some(server), mounted, socket, dir }
    }

    /// A client, and a directory with a quota.
    fn with_quota(limits: &str) -> (Rig, Client) {
        let rig = Rig::new();
        let client = connect(&rig.socket);
        client.mkdir(FileRef::ROOT, b"/q", 0o777).unwrap();
        limit(&client, limits).unwrap();
        (rig, client)
    }

    /// Ends the server, and checks the volume.
    fn end(mut self) {
        self.server.take().unwrap().stop();
        self.mounted.close().unwrap();
        drop(self.mounted);
        let medium = weft_volume::tag_medium(&Place::of(&self.dir.path().join("vol.img")), true).unwrap();
        let report = TagFs::check(medium).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }
}

fn limit(client: &Client, limits: &str) -> Result<(), i32> {
    client.set_xattr(FileRef::ROOT, b"/q", 0, QUOTA_XATTR, limits.as_bytes(), 0)
}

fn usage(client: &Client) -> Usage {
    let mut out = [0; 256];
    let len = client.get_xattr(FileRef::ROOT, b"/q", 0, USAGE_XATTR, &mut out).unwrap();
    Usage::parse(&out[..len]).unwrap()
}

fn open(client: &Client, path: &str, flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path.as_bytes(), flags, 0o644).unwrap().file
}

/// Appends until a write fails; the bytes that were accepted.
fn append(client: &Client, file: FileRef, piece: usize) -> (u64, i32) {
    let (mut size, data) = (0, vec![7; piece]);
    loop {
        match client.write(file, &data) {
            Ok(len) => size += len as u64,
            Err(error) => return (size, error),
        }
        assert!(size < 200 * MIB, "no write was refused");
    }
}

#[test]
fn a_program_that_appends_in_shared_memory_hears_of_its_quota_from_the_write() {
    for piece in [443, 10_000, 300_000] {
        let (rig, client) = Rig::with_quota("bytes=12M");
        let file = open(&client, "/q/file", libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND);
        let (size, error) = append(&client, file, piece);
        assert_eq!(error, libc::EDQUOT);
        assert!((11 * MIB..=12 * MIB).contains(&size), "{size}");
        client.fsync(file).unwrap();
        client.close(file).unwrap();
        assert_eq!(usage(&client).bytes, size.next_multiple_of(4096), "exactly what was accepted");
        assert!(usage(&client).bytes <= 12 * MIB);
        // Others are not concerned.
        let other = open(&client, "/other", libc::O_WRONLY | libc::O_CREAT);
        client.write(other, &[1; 100_000]).unwrap();
        client.fsync(other).unwrap();
        // What is there may be written anew, and what goes makes room.
        let file = open(&client, "/q/file", libc::O_RDWR);
        for at in 0..20 {
            client.pwrite(file, &[8; 4096], at * 8192).unwrap();
        }
        client.ftruncate(file, MIB).unwrap();
        client.pwrite(file, &[9; 4096], 2 * MIB).unwrap();
        client.fsync(file).unwrap();
        client.close(file).unwrap();
        drop(client);
        rig.end();
    }
}

#[test]
fn programs_that_fill_a_quota_together_lose_nothing_of_what_was_accepted() {
    let (rig, client) = Rig::with_quota("bytes=24M");
    let sizes: Vec<(String, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number: usize| {
                let socket = &rig.socket;
                scope.spawn(move || {
                    let client = connect(socket);
                    let path = format!("/q/file{number}");
                    let file = open(&client, &path, libc::O_WRONLY | libc::O_CREAT);
                    let (size, error) = append(&client, file, 500 + 3_000 * number);
                    assert_eq!(error, libc::EDQUOT);
                    client.fsync(file).unwrap();
                    client.close(file).unwrap();
                    (path, size)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let total: u64 = sizes.iter().map(|(_, size)| size.next_multiple_of(4096)).sum();
    assert_eq!(usage(&client).bytes, total);
    assert!((22 * MIB..=24 * MIB).contains(&total), "{total}");
    for (path, size) in sizes {
        let file = open(&client, &path, libc::O_RDONLY);
        let (mut at, mut out) = (0, vec![0; 100_000]);
        while at < size {
            let len = client.pread(file, &mut out, at).unwrap();
            assert!(len > 0 && out[..len].iter().all(|byte| *byte == 7), "{path}: {at}");
            at += len as u64;
        }
        assert_eq!(client.fstat(file).unwrap().size, size);
        client.close(file).unwrap();
    }
    drop(client);
    rig.end();
}

#[test]
fn what_was_accepted_is_stored_when_the_limit_comes_after_it() {
    let (rig, client) = Rig::with_quota("bytes=64M");
    let file = open(&client, "/q/file", libc::O_RDWR | libc::O_CREAT);
    // Some of it is where only the client has put it.
    for _ in 0..100 {
        client.write(file, &[7; 5_000]).unwrap();
    }
    client.fsync(file).unwrap();
    for round in 0..40 {
        client.pwrite(file, &[round; 4096], 4096 * u64::from(round % 20)).unwrap();
    }
    client.pwrite(file, &[7; 300_000], 500_000).unwrap();
    limit(&client, "bytes=4K").unwrap();
    client.fsync(file).unwrap();
    assert_eq!(client.pwrite(file, &[1], 900_000), Err(libc::EDQUOT));
    let mut size = 800_000u64;
    let error = (0..100).find_map(|_| match client.pwrite(file, &[7; 443], size) {
        Ok(len) => {
            size += len as u64;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(error, Some(libc::EDQUOT));
    client.pwrite(file, &[9; 4096], 0).unwrap();
    client.fsync(file).unwrap();
    assert_eq!(client.fstat(file).unwrap().size, size);
    assert_eq!(usage(&client).bytes, size.next_multiple_of(4096));
    client.close(file).unwrap();
    drop(client);
    rig.end();
}

#[test]
fn a_plain_user_sees_a_quota_and_cannot_change_it() {
    if !is_superuser() {
        return;
    }
    let (rig, client) = Rig::with_quota("bytes=1M files=2");
    let socket = rig.socket.clone();
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            rig::become_user(USER);
            let client = connect(&socket);
            let seen = usage(&client);
            assert_eq!(seen.limits, Limits { bytes: Some(MIB), files: Some(2) });
            let remove = |name| client.remove_xattr(FileRef::ROOT, b"/q", 0, name);
            assert_eq!(limit(&client, "bytes=1G"), Err(libc::EPERM));
            assert_eq!(remove(QUOTA_XATTR), Err(libc::EPERM));
            let mut out = [0; 64];
            let read = client.get_xattr(FileRef::ROOT, b"/q", 0, QUOTA_XATTR, &mut out);
            assert_eq!(read, Err(libc::ENODATA));
            let told = client.set_xattr(FileRef::ROOT, b"/q", 0, USAGE_XATTR, b"bytes=0", 0);
            assert_eq!(told, Err(libc::EPERM));
            // Its own directory in the tree is counted, and cannot have limits of its own.
            client.mkdir(FileRef::ROOT, b"/q/own", 0o755).unwrap();
            let own = client.set_xattr(FileRef::ROOT, b"/q/own", 0, QUOTA_XATTR, b"bytes=1G", 0);
            assert_eq!(own, Err(libc::EPERM));
            let file = open(&client, "/q/own/file", libc::O_WRONLY | libc::O_CREAT);
            assert_eq!(append(&client, file, 5_000).1, libc::EDQUOT);
            let more = client.open(FileRef::ROOT, b"/q/own/more", libc::O_WRONLY | libc::O_CREAT, 0o644);
            assert_eq!(more.map(|_| ()), Err(libc::EDQUOT));
            let unnamed = client.open(FileRef::ROOT, b"/q/own", libc::O_WRONLY | libc::O_TMPFILE, 0o644);
            assert_eq!(unnamed.map(|_| ()), Err(libc::EDQUOT));
            assert_eq!(client.mkdir(FileRef::ROOT, b"/q/dir", 0o755), Err(libc::EDQUOT));
            let moved = client.rename(FileRef::ROOT, b"/q/own/file", FileRef::ROOT, b"/file", 0);
            assert!(matches!(moved, Err(libc::EXDEV | libc::EACCES)), "{moved:?}");
        });
        user.join().unwrap();
    });
    let moved = client.rename(FileRef::ROOT, b"/q/own/file", FileRef::ROOT, b"/file", 0);
    assert_eq!(moved, Err(libc::EXDEV));
    let below = client.set_xattr(FileRef::ROOT, b"/q/own", 0, QUOTA_XATTR, b"bytes=1G", 0);
    assert_eq!(below, Err(libc::EINVAL));
    drop(client);
    rig.end();
}

#[test]
fn a_core_without_quotas_is_given_none() {
    let rig = rig::Rig::new(64 * MIB);
    let client = rig.client();
    client.mkdir(FileRef::ROOT, b"/q", 0o777).unwrap();
    assert_eq!(limit(&client, "bytes=1M"), Err(libc::EOPNOTSUPP));
}
