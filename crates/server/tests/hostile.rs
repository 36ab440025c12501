//! Requests that no honest client makes: any numbers, any payload. The server answers each with a result or an errno,
//! and still serves others afterwards.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use weft_client::proto::Op;
use weft_client::shared::channel::{PAYLOAD_BYTES, Request};
use weft_client::{Client, ConnectOptions, FileRef};
use weft_device::Geometry;
use weft_placement::Mode;
use weft_server::{Server, Volume};
use weft_vfs::compound::{Chain, Input, Run};
use weft_volume::MountChoice;

fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(i64::MAX as u64),
        Just(1 << 32),
        Just(1 << 32 | 1),
        0..10u64,
        4090..5000u64,
        any::<u64>()
    ]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"/a/b".to_vec()),
        Just(b"/a".to_vec()),
        Just(b"..//./".to_vec()),
        Just(b"user.x".to_vec()),
        proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..300),
        Just(vec![b'x'; 5000]),
    ]
}

#[derive(Clone, Debug)]
struct Shot {
    op: u32,
    args: [u64; 8],
    parts: (Vec<u8>, Vec<u8>),
    lens: Option<(u32, u32)>,
}

fn shot() -> impl Strategy<Value = Shot> {
    let lens = prop_oneof![
        8 => Just(None),
        1 => (any::<u32>(), any::<u32>()).prop_map(Some),
        1 => (0..2 * PAYLOAD_BYTES as u32, 0..2 * PAYLOAD_BYTES as u32).prop_map(Some),
    ];
    let op = prop_oneof![20 => 0..46u32, 1 => any::<u32>()];
    (op, proptest::array::uniform8(argument()), (payload(), payload()), lens)
        .prop_map(|(op, args, parts, lens)| Shot { op, args, parts, lens })
        // A lock that is waited for is answered when it is free, which here is never.
        .prop_filter("waits for ever", |shot| !(shot.op == 27 && matches!(shot.args[1], 7 | 38)))
}

#[test]
fn no_request_kills_the_server_or_goes_unanswered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let choice = MountChoice { mode: Mode::Rules, ..MountChoice::default() };
    let mounted = weft_volume::mount_memfs(Arc::default(), &choice).unwrap();
    let volume = Volume::new(Arc::new(mounted)).unwrap();
    static PANICKED: AtomicBool = AtomicBool::new(false);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("weft-")) {
            PANICKED.store(true, SeqCst);
        }
        default(info);
    }));
    let _server = Server::start(volume, &path).unwrap();
    let socket = path.to_str().unwrap().as_bytes().to_vec();
    let options = ConnectOptions { socket_path: &socket, mount_point: b"/weft" };
    let client = Client::connect(&options).unwrap();
    client.mkdir(FileRef::ROOT, b"/a", 0o755).unwrap();
    let file = client.open(FileRef::ROOT, b"/a/b", libc::O_CREAT | libc::O_RDWR, 0o644).unwrap().file;
    let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&shot(), |mut shot| {
            // Half of the shots hit a file that is open.
            if shot.args[7] % 2 == 0 && shot.op != 2 && shot.op != 32 {
                shot.args[0] = file.0;
            }
            let mut request = Request { op: shot.op, args: shot.args, cpu: u32::MAX, ..Request::default() };
            (request.len1, request.len2) =
                shot.lens.unwrap_or((shot.parts.0.len() as u32, shot.parts.1.len() as u32));
            let _ = client.raw_request(request, &[&shot.parts.0, &shot.parts.1]);
            prop_assert!(!PANICKED.load(SeqCst), "the server panicked");
            Ok(())
        })
        .unwrap();
    let other = Client::connect(&options).unwrap();
    other.statfs().unwrap();
}

/// Ends another thread, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A thread of the process changes the memory of its requests while the server reads programs and batches out of it.
#[test]
fn programs_that_change_while_the_server_reads_them_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let geometry = Geometry::preset("bbssd").unwrap().with_size(64 << 20).with_zone_bytes(1 << 20);
    let mounted =
        Arc::new(weft_volume::open_memory("mem".into(), &geometry, &MountChoice::default()).unwrap());
    let path = dir.path().join("s");
    static PANICKED: AtomicBool = AtomicBool::new(false);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_servers = |name: &str| name.starts_with("weft-");
        PANICKED.fetch_or(std::thread::current().name().is_some_and(is_servers), SeqCst);
        default(info);
    }));
    let server = Server::start(Volume::new(mounted.clone()).unwrap(), &path).unwrap();
    let options = ConnectOptions { socket_path: path.to_str().unwrap().as_bytes(), mount_point: b"/weft" };
    let (client, other) = (Client::connect(&options).unwrap(), Client::connect(&options).unwrap());
    let file = client.open(FileRef::ROOT, b"/a", libc::O_CREAT | libc::O_RDWR, 0o644).unwrap().file;
    client.write(file, &[1; 9000]).unwrap();
    let program = |value: u8| {
        let mut chain = Chain::all();
        let (given, number) = (chain.given(0), chain.input_num(0));
        let found = chain.read(given, number, 500);
        let crc = chain.crc32c(found);
        chain.export(crc);
        let packed = chain.pack(crc, 8);
        let both = chain.concat([found.into(), packed.into()]);
        chain.write(given, number, both);
        let made = chain.create("/made", 0o644, false);
        chain.append(made, vec![value; 100]);
        chain.rename("/made", "/renamed");
        chain.check().unwrap()
    };
    let done = AtomicBool::new(false);
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 300_000 } else { 6_000 };
    let answered = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 88_172_645_463_325_252u64;
            while !done.load(Relaxed) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Programs and batches are that short, and the slots are taken in turns.
                let at = (random >> 16) as usize % 700;
                // SAFETY: within the payload of the mapped slot. That others read it meanwhile is what this is about.
                unsafe { client.raw_payload(0).add(at).write_volatile(random as u8) };
            }
        });
        let _ends = Ends(&done);
        let mut answered = 0;
        for round in 0..rounds {
            let (op, bytes, args) = if round % 3 == 0 {
                let mut bytes = Vec::new();
                for number in 0..3 {
                    let inputs = vec![Input::Num(round % 8000), Input::Bytes(b"bytes")];
                    Run { program: number + 1, files: vec![file.0], inputs }.put(&mut bytes);
                }
                (Op::DoKept, bytes, [FileRef::ROOT.0, 0, 0, 0, 0, 0, 0, 0])
            } else {
                let bytes = program(round as u8).encode();
                // Every other one is kept, for the batches.
                let kept = if round % 3 == 1 { round / 3 % 3 + 1 } else { 0 };
                (Op::Do, bytes.clone(), [FileRef::ROOT.0, 0, 0, bytes.len() as u64, 0, 1, kept, 0])
            };
            let mut request = Request { op: op as u32, args, cpu: u32::MAX, ..Request::default() };
            (request.len1, request.len2) = (bytes.len() as u32, 8);
            let response = client.raw_request(request, &[&bytes, &file.0.to_le_bytes()]);
            answered += u64::from(response.is_ok());
            assert!(!PANICKED.load(SeqCst), "the server panicked");
        }
        answered
    });
    assert!(answered > 0, "some get through");
    other.statfs().unwrap();
    let mut bytes = [0; 100];
    let file = other.open(FileRef::ROOT, b"/a", libc::O_RDONLY, 0).unwrap().file;
    other.pread(file, &mut bytes, 0).unwrap();
    drop((client, other));
    server.stop();
    assert!(mounted.lfs().is_none_or(|lfs| lfs.recount().is_empty()));
}

/// Threads of one process close a file while another one says what it still holds: the references of others stay.
#[test]
fn whoever_retains_and_closes_at_once_takes_no_references_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = weft_volume::mount_memfs(Arc::default(), &MountChoice::default()).unwrap();
    let path = dir.path().join("s");
    let server = Server::start(Volume::new(Arc::new(mounted)).unwrap(), &path).unwrap();
    let path = path.to_str().unwrap().as_bytes();
    let options = ConnectOptions { socket_path: path, mount_point: b"/weft" };
    let honest = Client::connect(&options).unwrap();
    let file = honest.open(FileRef::ROOT, b"/x", libc::O_CREAT | libc::O_RDWR, 0o644).unwrap().file;
    let hostile = Client::connect(&options).unwrap();
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 20_000 } else { 500 };
    for _ in 0..rounds {
        hostile.take(file, honest.pass(file).unwrap(), false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| hostile.retain(&[file]));
            let _ = hostile.close(file);
        });
        while hostile.close(file).is_ok() {}
        assert!(honest.fstat(file).is_ok(), "a reference of another process is gone");
    }
    drop(server);
}
