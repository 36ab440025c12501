//! What tests share that need a device below: a served volume on a log-structured core, whose owner gets leases, and threads
//! that are other users.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

pub mod served;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use weft_client::{Client, ConnectOptions};
use weft_device::Geometry;
use weft_placement::Mode;
use weft_server::{Server, Volume};
use weft_volume::{Device, MountChoice, Mounted};

/// A served volume that everybody may connect to.
pub struct Rig {
    pub server: Option<Server>,
    pub mounted: Arc<Mounted>,
    pub path: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub fn new(bytes: u64) -> Rig {
        Rig::with(bytes, MountChoice { mode: Mode::Suffix, ..MountChoice::default() })
    }

    /// With the shipped policies.
    pub fn rules(bytes: u64) -> Rig {
        Rig::with(bytes, MountChoice { mode: Mode::Rules, ..MountChoice::default() })
    }

    /// With memory that is shared for little: one ring, 128 pages of maps, 128 sets of names.
    pub fn tight(bytes: u64) -> Rig {
        Rig::with(bytes, MountChoice { shared_memory_bytes: 1 << 20, ..MountChoice::default() })
    }

    pub fn with(bytes: u64, choice: MountChoice) -> Rig {
        let geometry = Geometry::preset("bbssd").unwrap().with_size(bytes).with_zone_bytes(1 << 20);
        // Little is buffered, so that most blocks are on the device, where readers find them by themselves.
        let choice = MountChoice { dirty_bytes_max: Some(1 << 20), ..choice };
        let mounted = Arc::new(weft_volume::open_memory("mem".into(), &geometry, &choice).unwrap());
        let volume = Volume::new(mounted.clone()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = Server::start(volume, Path::new(&path)).unwrap();
        for (open, mode) in [(dir.path(), 0o755), (path.as_path(), 0o777)] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Rig { server: Some(server), mounted, path: path.to_str().unwrap().as_bytes().to_vec(), _dir: dir }
    }

    /// The same volume on another server, which has looked up nothing yet.
    pub fn restarted(mut self) -> Rig {
        drop(self.server.take().map(Server::stop));
        let path = std::str::from_utf8(&self.path).unwrap();
        let volume = Volume::new(self.mounted.clone()).unwrap();
        self.server = Some(Server::start(volume, Path::new(path)).unwrap());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        self
    }

    pub fn device(&self) -> &Device {
        self.mounted.device().unwrap()
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
    let options = ConnectOptions { socket_path: path, mount_point: b"/weft" };
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

/// Numbers that look random, the same for a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
