//! Several users on one volume: what one may do to another's files is what the kernel allows on its own file systems.
//!
//! Threads take on the identities of users and do the same random things on the volume and in a directory of the host;
//! each result and the whole tree must be equal. One thread becomes another user before each of its attempts. Needs the superuser, since others cannot become somebody else.

#![allow(clippy::unwrap_used)]

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use weft_client::{AttrChange, Changed, Client, ConnectOptions, FileRef};
use weft_placement::Mode;
use weft_server::{Server, Volume};
use weft_volume::MountChoice;

/// Who acts: user, group, further groups.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
}

const ROOT: User = User { uid: 0, gid: 0, groups: &[] };
/// The last is in the group of some of the first one's files.
const USERS: [User; 4] = [
    ROOT,
    User { uid: 1001, gid: 1001, groups: &[] },
    User { uid: 1002, gid: 1002, groups: &[2000] },
    User { uid: 1003, gid: 1003, groups: &[2000, 1001] },
];

impl User {
    /// Makes the calling thread, and it alone, this user. With `for_now` it can become another later.
    fn become_it(self, for_now: bool) {
        let saved = if for_now { 0 } else { self.uid };
        // SAFETY: system calls on the identity of this thread; the list of groups outlives the call.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setresuid, 0, 0, 0), 0);
            assert_eq!(libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, self.uid, self.uid, saved), 0);
        }
    }

    /// Makes the calling thread this user for files alone; it can become another later.
    fn become_it_for_files(self) {
        ROOT.become_it(true);
        // SAFETY: as above.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()), 0);
            libc::setfsgid(self.gid);
            libc::setfsuid(self.uid);
        }
    }

    /// A connection of this user, and a thread that sees nothing but `dir` and is this user for good.
    fn enter(self, socket: &[u8], dir: &std::path::Path, for_now: bool) -> Client {
        self.become_it(true);
        let options = ConnectOptions { socket_path: socket, mount_point: b"/weft" };
        let client = Client::connect(&options).unwrap();
        ROOT.become_it(true);
        let dir = CString::new(dir.to_str().unwrap()).unwrap();
        // SAFETY: system calls that concern this thread, with a string that outlives them.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
            assert_eq!(libc::chroot(dir.as_ptr()), 0);
            assert_eq!(libc::chdir(c"/".as_ptr()), 0);
        }
        self.become_it(for_now);
        client
    }
}

#[derive(Clone, Debug)]
enum Attempt {
    Open {
        path: String,
        flags: i32,
        mode: u32,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Remove {
        path: String,
        dir: bool,
    },
    Rename {
        from: String,
        to: String,
        flags: u32,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Touch {
        path: String,
        now: bool,
    },
    /// A socket, or a device that only the superuser makes and nobody opens.
    Mknod {
        path: String,
        mode: u32,
    },
    Access {
        path: String,
        mode: i32,
    },
    SetXattr {
        path: String,
    },
    GetXattr {
        path: String,
    },
    /// Opens a file and writes to it: its set-id bits go.
    Write {
        path: String,
    },
    List {
        path: String,
    },
}

/// One of the two places where things are attempted.
trait World {
    fn attempt(&mut self, what: &Attempt) -> Result<(), i32>;
}

struct OnVolume(Client);
/// The thread's root directory.
struct OnHost;

fn sys(result: i64) -> Result<i64, i32> {
    if result >= 0 { Ok(result) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

/// The number of a device that no machine has.
const NO_DEVICE: u64 = 200 << 8 | 77;
const XATTR: &std::ffi::CStr = c"user.note";

fn c_path(path: &str) -> CString {
    CString::new(path).unwrap()
}

impl World for OnHost {
    fn attempt(&mut self, what: &Attempt) -> Result<(), i32> {
        let at = libc::AT_FDCWD;
        // SAFETY: system calls with strings and buffers that outlive them.
        unsafe {
            match what {
                Attempt::Open { path, flags, mode } => {
                    let fd = sys(libc::open(c_path(path).as_ptr(), *flags, *mode).into())?;
                    libc::close(fd as i32);
                }
                Attempt::Mkdir { path, mode } => {
                    sys(libc::mkdir(c_path(path).as_ptr(), *mode).into())?;
                }
                Attempt::Remove { path, dir } => {
                    let flags = if *dir { libc::AT_REMOVEDIR } else { 0 };
                    sys(libc::unlinkat(at, c_path(path).as_ptr(), flags).into())?;
                }
                Attempt::Rename { from, to, flags } => {
                    let (from, to) = (c_path(from), c_path(to));
                    sys(libc::renameat2(at, from.as_ptr(), at, to.as_ptr(), *flags).into())?;
                }
                Attempt::Link { from, to } => {
                    sys(libc::link(c_path(from).as_ptr(), c_path(to).as_ptr()).into())?;
                }
                Attempt::Symlink { target, path } => {
                    let target = CString::new(target.as_str()).unwrap();
                    sys(libc::symlink(target.as_ptr(), c_path(path).as_ptr()).into())?;
                }
                Attempt::Chmod { path, mode } => {
                    sys(libc::chmod(c_path(path).as_ptr(), *mode).into())?;
                }
                Attempt::Chown { path, uid, gid } => {
                    sys(libc::chown(c_path(path).as_ptr(), *uid, *gid).into())?;
                }
                Attempt::Truncate { path, size } => {
                    sys(libc::truncate(c_path(path).as_ptr(), *size as i64).into())?;
                }
                Attempt::Mknod { path, mode } => {
                    sys(libc::mknod(c_path(path).as_ptr(), *mode, NO_DEVICE).into())?;
                }
                Attempt::Touch { path, now } => {
                    let tv_nsec = if *now { libc::UTIME_NOW } else { 5 };
                    let times = [libc::timespec { tv_sec: 1, tv_nsec }; 2];
                    sys(libc::utimensat(at, c_path(path).as_ptr(), times.as_ptr(), 0).into())?;
                }
                Attempt::Access { path, mode } => {
                    sys(libc::faccessat(at, c_path(path).as_ptr(), *mode, 0).into())?;
                }
                Attempt::SetXattr { path } => {
                    let value = b"x".as_ptr().cast();
                    sys(libc::setxattr(c_path(path).as_ptr(), XATTR.as_ptr(), value, 1, 0).into())?;
                }
                Attempt::GetXattr { path } => {
                    let mut out = [0u8; 8];
                    let out = out.as_mut_ptr().cast();
                    sys(libc::getxattr(c_path(path).as_ptr(), XATTR.as_ptr(), out, 8) as i64)?;
                }
                Attempt::Write { path } => {
                    let fd = sys(libc::open(c_path(path).as_ptr(), libc::O_WRONLY).into())? as i32;
                    let wrote = sys(libc::write(fd, b"w".as_ptr().cast(), 1) as i64);
                    libc::close(fd);
                    wrote?;
                }
                Attempt::List { path } => {
                    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                    let fd = sys(libc::open(c_path(path).as_ptr(), flags).into())?;
                    libc::close(fd as i32);
                }
            }
        }
        Ok(())
    }
}

impl World for OnVolume {
    fn attempt(&mut self, what: &Attempt) -> Result<(), i32> {
        let (client, root) = (&self.0, FileRef::ROOT);
        let set = |path: &str, change: AttrChange| client.set_attr(root, path.as_bytes(), 0, &change);
        match what {
            Attempt::Open { path, flags, mode } => {
                client.close(client.open(root, path.as_bytes(), *flags, *mode)?.file)
            }
            Attempt::Mkdir { path, mode } => client.mkdir(root, path.as_bytes(), *mode),
            Attempt::Remove { path, dir } => {
                client.unlink(root, path.as_bytes(), if *dir { libc::AT_REMOVEDIR } else { 0 })
            }
            Attempt::Rename { from, to, flags } => {
                client.rename(root, from.as_bytes(), root, to.as_bytes(), *flags)
            }
            Attempt::Link { from, to } => client.link(root, from.as_bytes(), root, to.as_bytes(), 0),
            Attempt::Symlink { target, path } => client.symlink(target.as_bytes(), root, path.as_bytes()),
            Attempt::Chmod { path, mode } => {
                set(path, AttrChange { mode: Some(*mode), ..Default::default() })
            }
            Attempt::Chown { path, uid, gid } => {
                set(path, AttrChange { uid: Some(*uid), gid: Some(*gid), ..Default::default() })
            }
            Attempt::Truncate { path, size } => {
                set(path, AttrChange { size: Some(*size), ..Default::default() })
            }
            Attempt::Mknod { path, mode } => client.mknod(root, path.as_bytes(), *mode, NO_DEVICE),
            Attempt::Touch { path, now: true } => set(path, AttrChange { touch: true, ..Default::default() }),
            Attempt::Touch { path, now: false } => {
                let time = Some(1_000_000_005);
                set(path, AttrChange { atime_ns: time, mtime_ns: time, ..Default::default() })
            }
            Attempt::Access { path, mode } => client.access(root, path.as_bytes(), *mode, 0),
            Attempt::SetXattr { path } => {
                client.set_xattr(root, path.as_bytes(), 0, XATTR.to_bytes(), b"x", 0)
            }
            Attempt::GetXattr { path } => {
                client.get_xattr(root, path.as_bytes(), 0, XATTR.to_bytes(), &mut [0; 8]).map(drop)
            }
            Attempt::Write { path } => {
                let file = client.open(root, path.as_bytes(), libc::O_WRONLY, 0)?.file;
                let wrote = client.write(file, b"w");
                client.close(file)?;
                wrote.map(drop)
            }
            Attempt::List { path } => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                client.close(client.open(root, path.as_bytes(), flags, 0)?.file)
            }
        }
    }
}

/// A stream of numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % n as u64) as usize
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn path(&mut self) -> String {
        let dir = self.of(&["", "/open", "/sticky", "/alice", "/group", "/setgid", "/alice/deep"]);
        let name = self.of(&["a", "b", "secret", "shared", "link", "d"]);
        if self.below(8) == 0 { format!("{dir}/d/{name}") } else { format!("{dir}/{name}") }
    }

    fn place(&mut self) -> String {
        if self.below(5) == 0 {
            self.of(&["/open", "/sticky", "/alice", "/group", "/setgid", "/alice/deep", "/"]).to_string()
        } else {
            self.path()
        }
    }

    fn mode(&mut self) -> u32 {
        let bits = [0o600, 0o644, 0o640, 0o666, 0o755, 0o700, 0o711, 0o777, 0o770, 0];
        let special = [0, 0, 0, 0o1000, 0o2000, 0o4000, 0o6000];
        self.of(&bits) | self.of(&special)
    }

    fn attempt(&mut self) -> Attempt {
        let id = |dice: &mut Dice| dice.of(&[u32::MAX, 0, 1001, 1002, 1003, 2000]);
        match self.below(17) {
            0..3 => {
                let access = self.of(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR]);
                let more = [0, libc::O_CREAT, libc::O_CREAT | libc::O_EXCL, libc::O_TRUNC, libc::O_NOATIME];
                let nofollow = self.of(&[0, 0, libc::O_NOFOLLOW]);
                Attempt::Open {
                    path: self.place(),
                    flags: access | self.of(&more) | nofollow,
                    mode: self.mode(),
                }
            }
            3 => Attempt::Mkdir { path: self.path(), mode: self.mode() & 0o1777 },
            4 => Attempt::Remove { path: self.place(), dir: self.below(3) == 0 },
            5 => {
                let flags = self.of(&[0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE]);
                Attempt::Rename { from: self.path(), to: self.path(), flags }
            }
            6 => Attempt::Link { from: self.path(), to: self.path() },
            7 => {
                let target = self.of(&["a", "../alice/secret", "secret", "deep", "no"]).to_string();
                Attempt::Symlink { target, path: self.path() }
            }
            8 | 9 => Attempt::Chmod { path: self.place(), mode: self.mode() },
            10 => Attempt::Chown { path: self.place(), uid: id(self), gid: id(self) },
            11 => Attempt::Truncate { path: self.place(), size: self.below(3) as u64 },
            12 if self.below(3) == 0 => {
                let kind = self.of(&[libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFREG]);
                Attempt::Mknod { path: self.path(), mode: kind | self.mode() }
            }
            12 => Attempt::Touch { path: self.place(), now: self.below(2) == 0 },
            13 => Attempt::Access { path: self.place(), mode: self.below(8) as i32 },
            14 if self.below(2) == 0 => Attempt::SetXattr { path: self.place() },
            14 => Attempt::GetXattr { path: self.place() },
            15 => Attempt::Write { path: self.path() },
            _ => Attempt::List { path: self.place() },
        }
    }
}

/// What the superuser does first: places that are more or less closed to others.
fn furniture() -> Vec<Attempt> {
    let mut steps = Vec::new();
    for (dir, owner, mode) in [
        ("/", 0, 0o755),
        ("/open", 0, 0o777),
        ("/sticky", 0, 0o1777),
        ("/alice", 1001, 0o711),
        ("/alice/deep", 1001, 0o700),
        ("/group", 1001, 0o770),
        ("/setgid", 1002, 0o2777),
    ] {
        let group = if dir == "/alice" || dir == "/alice/deep" { 1001 } else { 2000 };
        let path = || dir.to_string();
        if dir != "/" {
            steps.push(Attempt::Mkdir { path: path(), mode: 0o700 });
        }
        steps.push(Attempt::Chown { path: path(), uid: owner, gid: group });
        steps.push(Attempt::Chmod { path: path(), mode });
        if dir == "/" {
            continue;
        }
        for (name, mode) in [("a", 0o644), ("secret", 0o600), ("shared", 0o6775)] {
            let path = || format!("{dir}/{name}");
            steps.push(Attempt::Open { path: path(), flags: libc::O_CREAT | libc::O_WRONLY, mode: 0o600 });
            steps.push(Attempt::Chown { path: path(), uid: 1001, gid: group });
            steps.push(Attempt::Chmod { path: path(), mode });
        }
    }
    steps
}

/// What removes everything.
fn clearance(dir: &std::path::Path, below: &str) -> Vec<Attempt> {
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}/{}", entry.file_name().to_str().unwrap());
        let dir = entry.file_type().unwrap().is_dir();
        if dir {
            steps.extend(clearance(&entry.path(), &path));
        }
        steps.push(Attempt::Remove { path, dir });
    }
    steps
}

type Answer = (Result<(), i32>, Result<(), i32>);

/// A thread with the identity of a user; does on both sides what it is sent.
fn actor(user: User, socket: Vec<u8>, dir: PathBuf) -> (Sender<Attempt>, Receiver<Answer>) {
    let (send, attempts) = channel::<Attempt>();
    let (answer, answers) = channel();
    std::thread::spawn(move || {
        let mut volume = OnVolume(user.enter(&socket, &dir, false));
        let mut host = OnHost;
        for attempt in attempts {
            if answer.send((volume.attempt(&attempt), host.attempt(&attempt))).is_err() {
                return;
            }
        }
    });
    (send, answers)
}

/// A thread that becomes the user with each attempt, for files alone or whole; then it does on both sides what it is sent.
fn chameleon(socket: Vec<u8>, dir: PathBuf) -> (Sender<(User, bool, Attempt)>, Receiver<Answer>) {
    let (send, attempts) = channel::<(User, bool, Attempt)>();
    let (answer, answers) = channel();
    std::thread::spawn(move || {
        let mut volume = OnVolume(ROOT.enter(&socket, &dir, true));
        let mut host = OnHost;
        for (user, for_files, attempt) in attempts {
            if for_files {
                user.become_it_for_files()
            } else {
                user.become_it(true)
            }
            volume.0.renew_identity(Changed::Thread).unwrap();
            if answer.send((volume.attempt(&attempt), host.attempt(&attempt))).is_err() {
                return;
            }
        }
    });
    (send, answers)
}

/// Every name with mode, owner, group and links, as the superuser sees it.
fn tree_on_host(dir: &std::path::Path, below: &str, out: &mut Vec<String>) {
    use std::os::unix::fs::MetadataExt;
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let path = dir.join(&name);
        let shown = format!("{below}/{}", name.to_str().unwrap());
        let meta = std::fs::symlink_metadata(&path).unwrap();
        out.push(line(&shown, meta.mode(), meta.uid(), meta.gid(), meta.nlink() as u32, meta.size()));
        if meta.is_dir() {
            tree_on_host(&path, &shown, out);
        }
    }
}

fn line(path: &str, mode: u32, uid: u32, gid: u32, nlink: u32, size: u64) -> String {
    let size = if mode & libc::S_IFMT == libc::S_IFREG { size } else { 0 };
    format!("{path} {mode:o} {uid} {gid} {nlink} {size}")
}

#[test]
fn users_may_do_to_each_other_what_the_kernel_allows_and_nothing_else() {
    // SAFETY: plain system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("left out: only the superuser can take on the identities of others");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().join("host");
    std::fs::create_dir(&host).unwrap();
    use std::os::unix::fs::PermissionsExt;
    for open in [dir.path(), host.as_path()] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // SAFETY: plain system call. Both sides get modes as they are given.
    unsafe { libc::umask(0) };
    let socket = dir.path().join("s");
    let choice = MountChoice { mode: Mode::Off, ..MountChoice::default() };
    let mounted = weft_volume::mount_memfs(Arc::default(), &choice).unwrap();
    let volume = Volume::new(Arc::new(mounted)).unwrap();
    let _server = Server::start(volume, &socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).unwrap();
    let name = socket.to_str().unwrap().as_bytes().to_vec();
    let actors: Vec<_> = USERS.iter().map(|user| actor(*user, name.clone(), host.clone())).collect();
    let act = |who: usize, what: &Attempt| -> Answer {
        actors[who].0.send(what.clone()).unwrap();
        actors[who].1.recv().unwrap()
    };
    let changing = chameleon(name.clone(), host.clone());
    let options = ConnectOptions { socket_path: &name, mount_point: b"/weft" };
    let superuser = Client::connect(&options).unwrap();
    superuser
        .set_attr(FileRef::ROOT, b"/", 0, &AttrChange { mode: Some(0o755), ..Default::default() })
        .unwrap();
    let cases = std::env::var("WEFT_CAMPAIGN").map_or(20_000, |_| 400_000);
    let dice = &mut Dice(1);
    let mut told = Vec::new();
    for case in 0..cases {
        if case % 500 == 0 {
            for step in clearance(&host, "").into_iter().chain(furniture()) {
                let (ours, theirs) = act(0, &step);
                assert_eq!((ours, theirs), (Ok(()), Ok(())), "{step:?}");
            }
        }
        let who = dice.of(&[0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        let what = dice.attempt();
        let (ours, theirs) = match dice.below(4) {
            0 => {
                let for_files = dice.below(2) == 0;
                changing.0.send((USERS[who], for_files, what.clone())).unwrap();
                changing.1.recv().unwrap()
            }
            _ => act(who, &what),
        };
        told.push(format!("{:?} {what:?}: {theirs:?}", USERS[who].uid));
        let last = || told[told.len().saturating_sub(12)..].join("\n");
        assert_eq!(ours, theirs, "after {case}:\n{}", last());
        if case % 50 == 0 {
            let mut expected = Vec::new();
            tree_on_host(&host, "", &mut expected);
            let found: Vec<String> = expected
                .iter()
                .map(|told| {
                    let path = told.split(' ').next().unwrap();
                    let attr = superuser.stat(FileRef::ROOT, path.as_bytes(), libc::AT_SYMLINK_NOFOLLOW);
                    attr.map_or_else(
                        |errno| format!("{path}: {errno}"),
                        |a| line(path, a.mode, a.uid, a.gid, a.links, a.size),
                    )
                })
                .collect();
            assert_eq!(found, expected, "after {case}:\n{}", last());
        }
    }
}
