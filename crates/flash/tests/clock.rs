//! One device, one clock: what applications with wrong ideas of time, and hostile ones, do to it and to others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use support::{Random, geometry};
use weft_core::Nanos;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::monitor::LEAD_MAX;
use weft_flash::share::{self, MonitorServer};
use weft_flash::{Grant, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup};

/// The time of day, as a program might take it for device time.
const UNIX_NS: Nanos = Nanos(1_795_000_000_000_000_000);
const PAGE: [u8; 4096] = [7; 4096];

fn request(monitor: &Monitor, name: &str, luns: u64) -> GrantRequest {
    GrantRequest { name: name.into(), bytes: luns * monitor.lun_bytes(), over_provisioning_permille: 0 }
}

fn block(block: u32) -> GrantBlock {
    GrantBlock { channel: 0, lun: 0, block }
}

#[test]
fn no_command_takes_an_image_beyond_its_time() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("flash");
    let setup = FlashSetup::new(geometry(1, 2, 16, 8));
    let device = Arc::new(OpenChannel::create(&image, &setup, false).unwrap());
    let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
    let grant = monitor.allocate(&request(&monitor, "a", 1)).unwrap();
    for issued in [UNIX_NS, Nanos(u64::MAX)] {
        let page = block(0).page(0);
        let refused = [
            grant.program(issued, page, &PAGE, b"").unwrap_err(),
            grant.read(issued, page, 0, &mut [], &mut []).unwrap_err(),
            grant.erase(issued, block(0)).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, LevelError::IssuedAhead { .. }), "{error}");
        }
    }
    // As far as the clock allows, again and again; and what the owner lets pass.
    let lead = LEAD_MAX.as_nanos() as u64;
    for page in 0..3 {
        let issued = Nanos(grant.now().unwrap().0 + lead);
        assert_eq!(grant.program(issued, block(0).page(page), &PAGE, b"").unwrap().began, issued);
    }
    monitor.advance(UNIX_NS);
    assert_eq!(grant.now().unwrap(), UNIX_NS);
    grant.program(UNIX_NS, block(0).page(3), &PAGE, b"").unwrap();
    monitor.advance(Nanos(u64::MAX));
    grant.program(Nanos(u64::MAX), block(0).page(4), &PAGE, b"").unwrap();
    grant.sync().unwrap();
    drop((grant, monitor));
    for _ in 0..3 {
        let monitor = Monitor::open(Arc::new(OpenChannel::open(&image).unwrap())).unwrap();
        let grant = monitor.attach("a").unwrap();
        let mut data = [0; 4096];
        (0..5).for_each(|page| {
            grant.read(Nanos(0), block(0).page(page), 0, &mut data, &mut []).unwrap();
            assert_eq!(data, PAGE);
        });
        grant.erase(grant.now().unwrap(), block(1)).unwrap();
        grant.sync().unwrap();
    }
}

/// Latencies in device time of a tenant that erases, programs and reads blocks, with pauses; sorted.
fn latencies(grant: &Grant, rounds: u32) -> Vec<u64> {
    let blocks = grant.geometry().blocks_per_lun;
    let mut random = Random(3);
    let mut now = grant.now().unwrap();
    let mut all = Vec::new();
    let mut did = |now: &mut Nanos, done: Nanos| {
        all.push(done.0 - now.0);
        *now = done;
    };
    for round in 0..rounds {
        let block = block(round % blocks);
        let done = grant.erase(now, block).unwrap().done;
        did(&mut now, done);
        for page in 0..8 {
            let done = grant.program(now, block.page(page), &PAGE, b"").unwrap().done;
            did(&mut now, done);
            let page = block.page(random.below(u64::from(page) + 1) as u32);
            let done = grant.read(now, page, 0, &mut [0; 4096], &mut []).unwrap().done;
            did(&mut now, done);
        }
    }
    all.sort_unstable();
    all
}

/// Writes as fast as it can, each command issued at the end of all time.
fn far_future(grant: &Grant, over: &AtomicBool) {
    let blocks = grant.geometry().blocks_per_lun;
    for round in (0..blocks).cycle() {
        grant.erase(UNIX_NS, block(round)).unwrap();
        for page in 0..8 {
            grant.program(Nanos(u64::MAX), block(round).page(page), &PAGE, b"").unwrap();
        }
        if over.load(Relaxed) {
            return;
        }
    }
}

/// Connects, sends what no client sends, and goes.
fn nuisance(socket: &Path, over: &AtomicBool) {
    let mut random = Random(5);
    while !over.load(Relaxed) {
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        let _ = match random.below(4) {
            0 => stream.write_all(&[9, 0]),
            1 => stream.write_all(&[200, 0, 0, 0, 3, 1, 1]),
            2 => stream.write_all(&[0xff; 64]),
            _ => {
                let name = "\u{1b}[2J\n\0";
                let mut frame = vec![1 + 4 + name.len() as u8 + 12, 0, 0, 0, 2, name.len() as u8, 0, 0, 0];
                frame.extend_from_slice(name.as_bytes());
                frame.extend_from_slice(&[0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                let _ = stream.write_all(&frame);
                let mut answer = [0; 64];
                assert!(stream.read(&mut answer).is_ok_and(|bytes| bytes > 4 && answer[4] == 1), "refused");
                Ok(())
            }
        };
    }
}

#[test]
fn hostile_tenants_leave_a_third_one_its_latencies() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("socket");
    // All tenants on one channel.
    let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry(1, 4, 64, 8))).unwrap());
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let _server = MonitorServer::start(monitor.clone(), &socket).unwrap();
    let rounds = if support::campaign() { 20_000 } else { 500 };
    let quiet = share::allocate(&socket, &request(&monitor, "quiet", 1)).unwrap();
    let alone = latencies(&quiet, rounds);
    let over = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        for name in ["b", "c"] {
            let (monitor, socket, over) = (&monitor, &socket, &over);
            scope.spawn(move || {
                far_future(&share::allocate(socket, &request(monitor, name, 1)).unwrap(), over);
            });
            scope.spawn(move || nuisance(socket, over));
        }
        let beside = latencies(&quiet, rounds);
        over.store(true, Relaxed);
        beside
    });
    let p99 = |sorted: &[u64]| sorted[sorted.len() * 99 / 100];
    let (before, now) = (p99(&alone), p99(&beside));
    assert!(
        now.abs_diff(before) * 20 <= before,
        "99th percentile: {before} ns alone, {now} ns beside others"
    );
    assert!(monitor.now().unwrap() < UNIX_NS, "the clock has gone further than anybody worked");
    assert_eq!(monitor.grants().len(), 3);
    device.verify_identity().unwrap();
}
