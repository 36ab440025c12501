//! One device, several processes: grants over a socket, at every level, and what is left of a process that is killed.
//!
//! The test's own program is started again as the other process, with what to do in the environment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use support::geometry;
use weft_core::serve::ServeError;
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::share::{self, MonitorServer};
use weft_flash::{
    FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const SOCKET: &str = "WEFT_TEST_SOCKET";
const NAME: &str = "WEFT_TEST_GRANT";

fn request(name: &str, bytes: u64) -> GrantRequest {
    GrantRequest { name: name.into(), bytes, over_provisioning_permille: 70 }
}

/// Not a test of its own: the other process. Writes pages for ever and says how many were acknowledged.
#[test]
fn other_process() {
    let (Ok(socket), Ok(name)) = (std::env::var(SOCKET), std::env::var(NAME)) else { return };
    let level = PolicyLevel::create(
        share::allocate(Path::new(&socket), &request(&name, 1)).unwrap(),
        PolicySetup::default(),
    )
    .unwrap();
    let (mapping, gc) = (RangeMapping::Page, VictimPolicy::Greedy);
    level
        .ftl_ioctl(&RangePolicy { start: 0, pages: 100, mapping, gc, over_provisioning_permille: 70 })
        .unwrap();
    for number in 0u64.. {
        let mut data = vec![name.as_bytes()[0]; 4096];
        data[..8].copy_from_slice(&number.to_le_bytes());
        level.ftl_write(T, number % 100, &data, Tag::default()).unwrap();
        println!("acknowledged {number}");
    }
}

fn start(socket: &Path, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["other_process", "--exact", "--nocapture"])
        .env(SOCKET, socket)
        .env(NAME, name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn processes_use_their_grants_at_once_and_what_a_killed_one_was_promised_is_there() {
    let scratch = tempfile::tempdir().unwrap();
    let (image, socket) = (scratch.path().join("flash"), scratch.path().join("socket"));
    let setup = FlashSetup::new(geometry(2, 2, 64, 8));
    let device = Arc::new(OpenChannel::create(&image, &setup, false).unwrap());
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let server = MonitorServer::start(monitor.clone(), &socket).unwrap();
    let names = ["a", "b"];
    let mut children = names.map(|name| start(&socket, name));
    let mut last = [0u64; 2];
    for (child, last) in children.iter_mut().zip(&mut last) {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut numbers = lines.filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok());
        *last = numbers.by_ref().take(700).last().unwrap();
        // SIGKILL, in the middle of something: its output is still open.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(last, [699, 699]);
    // Another process cannot open the device beside the server.
    assert!(OpenChannel::open(&image).is_err());
    for name in names {
        // The server notices the end of a connection when it reads from it.
        let grant = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            share::attach(&socket, name).ok()
        });
        let level = PolicyLevel::open(grant.unwrap(), PolicySetup::default()).unwrap();
        level.verify().unwrap();
        for page in 0..100u64 {
            let mut data = [0; 4096];
            level.ftl_read(T, page, &mut data).unwrap();
            let number = u64::from_le_bytes(data[..8].try_into().unwrap());
            assert!(number >= 600 + page && number % 100 == page, "{name} page {page}: {number}");
            assert!(data[8..].iter().all(|byte| *byte == name.as_bytes()[0]));
        }
    }
    drop(server);
    assert!(!socket.exists());
    device.verify_identity().unwrap();
}

#[test]
fn a_server_replaces_what_a_dead_one_left_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let monitor =
        || Monitor::format(Arc::new(support::device(2, 2, 16, 8)), MonitorSetup::default()).unwrap();
    let file = scratch.path().join("flash.img");
    std::fs::write(&file, b"precious").unwrap();
    assert!(matches!(
        MonitorServer::start(monitor(), &file),
        Err(LevelError::Serve(ServeError::InTheWay(_)))
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let socket = scratch.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let server = MonitorServer::start(monitor(), &socket).unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(
        MonitorServer::start(monitor(), &socket),
        Err(LevelError::Serve(ServeError::Served(_)))
    ));
    drop(server);
    assert!(!socket.exists());
}

#[test]
fn a_server_takes_so_many_connections_and_no_more_until_one_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    let device = Arc::new(support::device(2, 2, 16, 8));
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let _server = MonitorServer::start(monitor, &socket).unwrap();
    let connect = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let mut held: Vec<_> = (0..share::CONNECTIONS_MAX).map(|_| connect()).collect();
    let refused = share::grants(&socket).unwrap_err();
    assert!(refused.to_string().contains("takes no more"), "{refused}");
    held.pop();
    // The server notices the end of a connection when it reads from it.
    let served = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        share::grants(&socket).is_ok()
    });
    assert!(served);
}

#[test]
fn grants_are_listed_and_released_over_the_socket_when_nobody_has_them() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    let device = Arc::new(support::device(2, 2, 16, 8));
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let _server = MonitorServer::start(monitor.clone(), &socket).unwrap();
    let grant = share::allocate(&socket, &request("a", 1)).unwrap();
    assert_eq!(share::grants(&socket).unwrap(), monitor.grants());
    assert!(matches!(share::release(&socket, "a"), Err(LevelError::GrantInUse(_))));
    assert!(matches!(share::release(&socket, "b"), Err(LevelError::NoSuchGrant(_))));
    drop(grant);
    share::release(&socket, "a").unwrap();
    assert!(share::grants(&socket).unwrap().is_empty());
    assert_eq!(monitor.free_luns().unwrap(), 4);
}

#[test]
fn a_server_whose_socket_is_gone_or_replaced_ends_and_leaves_the_other_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    let start = || {
        let device = Arc::new(support::device(2, 2, 16, 8));
        MonitorServer::start(Monitor::format(device, MonitorSetup::default()).unwrap(), &socket).unwrap()
    };
    let first = start();
    std::fs::remove_file(&socket).unwrap();
    let second = start();
    drop(first);
    share::allocate(&socket, &request("raw", 1)).unwrap();
    std::fs::remove_file(&socket).unwrap();
    drop(second);
}

#[test]
fn a_page_that_is_far_too_long_is_refused_and_the_grant_still_works() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    let device = Arc::new(support::device(2, 2, 16, 8));
    let _server =
        MonitorServer::start(Monitor::format(device, MonitorSetup::default()).unwrap(), &socket).unwrap();
    let raw = RawLevel::new(share::allocate(&socket, &request("raw", 1)).unwrap());
    let at = GrantBlock { channel: 0, lun: 0, block: 3 };
    let refused = raw.page_write(T, at.page(0), &vec![5; 20 << 20], b"");
    assert!(matches!(refused, Err(LevelError::WrongLength { .. })));
    raw.page_write(T, at.page(0), &[5; 4096], b"").unwrap();
}

#[test]
fn over_the_socket_each_level_works_and_refuses_as_in_one_process() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    let device = Arc::new(support::device(2, 2, 16, 8));
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let _server = MonitorServer::start(monitor.clone(), &socket).unwrap();
    assert!(matches!(
        MonitorServer::start(monitor.clone(), &socket),
        Err(LevelError::Serve(ServeError::Served(_)))
    ));
    assert!(matches!(share::attach(&socket, "x"), Err(LevelError::NoSuchGrant(_))));
    let raw = RawLevel::new(share::allocate(&socket, &request("raw", 1)).unwrap());
    assert!(matches!(share::attach(&socket, "raw"), Err(LevelError::GrantInUse(_))));
    assert!(matches!(monitor.attach("raw"), Err(LevelError::GrantInUse(_))));
    let at = GrantBlock { channel: 0, lun: 0, block: 3 };
    raw.page_write(T, at.page(0), &[5; 4096], b"beside").unwrap();
    let (mut data, mut oob) = ([0; 100], [0; 6]);
    raw.page_read(T, at.page(0), 3996, &mut data, &mut oob).unwrap();
    assert_eq!((data, &oob), ([5; 100], b"beside"));
    let again = raw.page_write(T, at.page(0), &[5; 4096], b"");
    assert!(matches!(again, Err(LevelError::AlreadyProgrammed { address }) if address == at.page(0)));
    assert!(matches!(raw.page_write(T, at.page(1), &[5; 4095], b""), Err(LevelError::WrongLength { .. })));
    let outside = GrantBlock { channel: 9, ..at };
    let refused = raw.block_erase(T, outside);
    assert!(matches!(refused, Err(LevelError::OutsideGrant { part: "channel", given: 9, .. })));
    let long = raw.page_read(T, at.page(0), 0, &mut vec![0; 1 << 20], &mut []);
    assert!(matches!(long, Err(LevelError::WrongLength { .. })), "{long:?}");
    let function = FunctionLevel::open(share::allocate(&socket, &request("function", 1)).unwrap()).unwrap();
    let taken = function.address_mapper(T, 0, weft_flash::function::Mapping::Block, 8).unwrap();
    function.flash_write(T, taken.block, 0, &[6; 4096]).unwrap();
    drop(function);
    let grant = (0..1000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        share::attach(&socket, "function").ok()
    });
    let found = FunctionLevel::open(grant.unwrap()).unwrap().mapped_blocks();
    assert_eq!((found.len(), found[0].label), (1, 8));
    device.verify_identity().unwrap();
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_refused_with_the_limit() {
    let monitor = Monitor::format(Arc::new(support::device(1, 1, 60, 8)), MonitorSetup::default()).unwrap();
    let path = std::path::PathBuf::from("/tmp").join("a".repeat(103));
    assert_eq!(path.as_os_str().len(), 108);
    for error in [MonitorServer::start(monitor, &path).unwrap_err(), share::grants(&path).unwrap_err()] {
        let text = error.to_string();
        let named = text.contains(path.to_str().unwrap());
        assert!(
            named && text.contains("107 bytes") && text.contains("108") && text.contains("shorter"),
            "{text}"
        );
    }
}
