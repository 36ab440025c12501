//! Power cuts through a mount: programs work on it, and at every k-th command the device is kept as a cut at this moment could leave
//! it, together with how far each program was. A judge opens what was kept and compares it with what had been promised by then.
//!
//! ```text
//!  load (processes) --> kernel --> front, server, core --> device --- every k-th command ---> moment --> judge
//!     |                                                                                         ^
//!     +-- operations begun, operations returned (memory beside the volume) ---------------------+
//! ```
//!
//! What a process does is a function of the seed and its number, so two counters tell all about it. Each process has a directory of its
//! own, and blocks of a file that all share.

pub mod device;
pub mod judge;
pub mod load;
pub mod operations;
pub mod progress;

use device::{CutDevice, Lie, Moment};
use parking_lot::Mutex;
use progress::Progress;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use weft_device::{Geometry, PowerCut, ZonedDevice};
use weft_fuse::{Kept, Mount, MountChoice};
use weft_server::{Server, Volume};
use weft_volume::{Device, MountChoice as VolumeChoice};

/// Moments that wait for a judge; beyond these, the device waits.
const MOMENTS_MAX: usize = 16;
const JUDGES: usize = 2;
/// Time for a load to end; one that hangs is a finding.
const PATIENCE: Duration = Duration::from_secs(300);

/// A run of the campaign.
#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    /// Mounted with `-o writeback`.
    pub write_back: bool,
    /// Commands of the device from one cut to the next.
    pub every: u64,
    pub processes: u64,
    /// Operations of each process.
    pub operations: u64,
    /// The volume begins nearly full, and its blocks lie in disorder.
    pub is_full: bool,
    pub lie: Lie,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub cuts: u64,
    /// Operations that had promised something when power was cut, over all cuts.
    pub promises: u64,
    pub commands: u64,
    /// Bytes that the cleaner copied.
    pub copied_bytes: u64,
}

/// Whether this user can mount here.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.is_ok() && weft_sys::effective_user().0 == 0
}

fn geometry() -> Geometry {
    Geometry {
        open_max: 8,
        active_max: 8,
        ..Geometry::zn540().with_size(12 << 20).with_zone_bytes(256 << 10)
    }
}

/// Runs a case; the first violation.
pub fn run(case: &Case) -> Result<Tally, String> {
    let dir = tempfile::tempdir().unwrap();
    let (mnt, beside) = (dir.path().join("mnt"), dir.path().join("progress"));
    std::fs::create_dir(&mnt).unwrap();
    let progress = Arc::new(Progress::create(&beside, case.processes));
    let (sender, receiver) = sync_channel::<Moment>(MOMENTS_MAX);
    let device =
        Arc::new(CutDevice::new(PowerCut::new(&geometry()).unwrap(), case, progress.clone(), sender));
    weft_volume::format(device.clone(), "cut", "").unwrap();
    let choice = VolumeChoice { leases: false, dirty_bytes_max: Some(1 << 20), ..VolumeChoice::default() };
    let mounted = Arc::new(weft_volume::mount(Device::Other(device.clone()), "cut".into(), &choice).unwrap());
    let server = Server::start(Volume::new(mounted.clone()).unwrap(), &dir.path().join("s")).unwrap();
    let choice = MountChoice { source: "cut".into(), write_back: case.write_back, ..MountChoice::default() };
    let mount = Mount::new(server.volume().clone(), &mnt, &choice, Kept::new().unwrap()).unwrap();
    load::prepare(&mnt, case);

    let receiver = Mutex::new(receiver);
    let violation = Mutex::new(None);
    let tally = Mutex::new(Tally::default());
    let copied_before = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..JUDGES {
            scope.spawn(|| {
                loop {
                    let Ok(moment) = receiver.lock().recv() else { return };
                    if violation.lock().is_some() {
                        // The load ends sooner when nobody looks.
                        continue;
                    }
                    match judge::judge(case, moment) {
                        Ok(promises) => {
                            let mut tally = tally.lock();
                            (tally.cuts, tally.promises) = (tally.cuts + 1, tally.promises + promises);
                        }
                        Err(told) => drop(violation.lock().get_or_insert(told)),
                    }
                }
            });
        }
        copied_before.store(device.counters().gc_bytes, SeqCst);
        device.arm(true);
        let children: Vec<Child> =
            (0..case.processes).map(|process| start(case, &mnt, &beside, process)).collect();
        let begun = Instant::now();
        for mut child in children {
            let status = loop {
                match child.try_wait().unwrap() {
                    Some(status) => break status,
                    None if begun.elapsed() > PATIENCE => panic!("{case:?}: the load hangs"),
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            assert!(status.success(), "{case:?}: a process of the load ended with {status}");
        }
        // A cut during the unmount, too; afterwards everything is durable.
        mount.unmount().unwrap();
        let volume = server.stop();
        drop(volume);
        mounted.close().unwrap();
        device.arm(false);
        device.end();
    });
    let mut tally = *tally.lock();
    tally.commands = device.commands();
    tally.copied_bytes = device.counters().gc_bytes - copied_before.into_inner();
    match violation.into_inner() {
        Some(told) => Err(told),
        None => judge::judge_closed(case, device.closed()).map(|()| tally),
    }
}

/// A process that works on the mount: this program once more.
fn start(case: &Case, mnt: &Path, beside: &Path, process: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "load_of_a_cut", "--ignored", "--nocapture", "-q"]);
    command.env(load::WHAT, load::describe(case, mnt, beside, process));
    command.stdout(std::process::Stdio::null()).spawn().unwrap()
}
