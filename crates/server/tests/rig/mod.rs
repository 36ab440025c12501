//! What tests share that need a device below: a served volume on a log-structured core, whose owner gets leases, and threads
//! that are other users.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use weft_client::{Client, ConnectOptions};
use weft_device::{Geometry, ZonedDevice, ZonedModel};
use weft_lfs::{CrcTable, FormatOptions, Lfs, MountOptions};
use weft_placement::{Engine, Mode};
use weft_server::{DirectImage, ImageKind, Server, Volume, VolumeOptions};
use weft_sys::SharedMemory;

struct SharedCrc(Arc<SharedMemory>, usize);

impl CrcTable for SharedCrc {
    fn slots(&self) -> &[AtomicU32] {
        &self.0.atomics()[..self.1]
    }
}

/// A served volume that everybody may connect to.
pub struct Rig {
    pub server: Option<Server>,
    pub lfs: Arc<Lfs>,
    pub device: Arc<ZonedModel>,
    pub path: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub fn new(bytes: u64) -> Rig {
        let geometry = Geometry::preset("bbssd").unwrap().with_size(bytes).with_zone_bytes(1 << 20);
        let device = Arc::new(ZonedModel::memfd(&geometry).unwrap());
        let info = device.info();
        let blocks = u64::from(info.zones) * u64::from(info.zone_blocks);
        let crc = Arc::new(SharedMemory::create("crc", blocks as usize * 4).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let options = MountOptions {
            crc_table: Some(Arc::new(SharedCrc(crc.clone(), blocks as usize))),
            // Little is buffered, so that most blocks are on the device, where readers find them by themselves.
            dirty_bytes_max: 1 << 20,
            ..MountOptions::default()
        };
        let lfs = Arc::new(Lfs::mount(device.clone(), options).unwrap());
        let direct = device.direct_read().unwrap();
        // SAFETY: the device is alive, and so its descriptor.
        let file: OwnedFd = unsafe { BorrowedFd::borrow_raw(direct.fd) }.try_clone_to_owned().unwrap();
        let (ticking, counting) = (lfs.clone(), device.clone());
        let volume = Volume::new(VolumeOptions {
            fs: lfs.clone(),
            engine: Arc::new(Engine::new(Mode::Suffix, None, 0).unwrap()),
            direct: Some(DirectImage {
                file,
                base: direct.base,
                mappable: direct.mappable,
                kind: ImageKind::Device,
                zone_bytes: info.zone_bytes(),
                device_blocks: blocks,
                crc,
                count_reads: Box::new(move |reads, bytes| counting.count_direct_reads(reads, bytes)),
            }),
            tag: 7,
            volume_bytes: Box::new(|| 0),
            tick: Box::new(move || ticking.tick()),
        })
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = Server::start(volume, Path::new(&path)).unwrap();
        for (open, mode) in [(dir.path(), 0o755), (path.as_path(), 0o777)] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Rig { server: Some(server), lfs, device, path: path.to_str().unwrap().as_bytes().to_vec(), _dir: dir }
    }

    pub fn client(&self) -> Client {
        connect(&self.path)
    }

    /// Runs `act` in a thread that is another user, in its own group and no further one.
    pub fn as_user<T: Send>(&self, uid: u32, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                become_user(uid);
                act()
            });
            thread.join().unwrap()
        })
    }
}

pub fn connect(path: &[u8]) -> Client {
    let options = ConnectOptions { socket_path: path, mount_point: b"/weft", inherited_socket: None };
    Client::connect(&options).unwrap()
}

/// Whether tests can take on the identities of others; says so when they cannot.
pub fn is_superuser() -> bool {
    // SAFETY: plain system call without arguments.
    let superuser = unsafe { libc::geteuid() } == 0;
    if !superuser {
        eprintln!("left out: only the superuser can take on the identities of others");
    }
    superuser
}

/// Makes the calling thread, and it alone, another user for good.
pub fn become_user(uid: u32) {
    // SAFETY: system calls on the identity of this thread, without pointers.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, uid, uid, uid), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
    }
}
