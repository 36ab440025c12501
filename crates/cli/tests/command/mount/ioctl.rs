//! Compound programs that come through a mount, by an `ioctl` on an open file or directory of it.

use super::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use weft_client::{run_program_at, sys};
use weft_vfs::compound::ioctl::{ARGUMENT_BYTES_MAX, Command as Ask, DATA_BYTES_MAX, HEAD_BYTES, Head};
use weft_vfs::compound::{Access, Answer, Bytes, Chain, PROGRAM_BYTES_MAX};

/// Nothing that is answered takes so long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(100);

/// Runs a chain on an open file or directory.
fn run_on(file: &fs::File, chain: Chain) -> Result<Answer, i32> {
    run_program_at(file.as_fd(), &chain.check().unwrap())
}

/// Runs a chain on a directory; the operation that failed, and its errno.
fn run_at(dir: &Path, chain: Chain) -> Result<Option<(usize, i32)>, i32> {
    run_on(&fs::File::open(dir).unwrap(), chain).map(|answer| answer.failed())
}

/// The content of a configuration with this number: more than a block, so that half of it would show.
fn content(number: u64) -> Vec<u8> {
    format!("{number} ").repeat(2000).into_bytes()
}

fn number_of(path: &Path) -> u64 {
    let found = fs::read(path).unwrap();
    let number = found.split(|byte| *byte == b' ').next().unwrap();
    let number = String::from_utf8(number.to_vec()).unwrap().parse().unwrap();
    assert!(found == content(number), "half of a configuration");
    number
}

/// Replaces two configurations in one step.
fn swap(number: u64) -> Chain {
    let mut chain = Chain::all();
    for name in ["a", "b"] {
        let new = chain.create(format!("/{name}.new").as_str(), 0o644, true);
        chain.append(new, content(number).as_slice());
        chain.rename(format!("{name}.new").as_str(), name);
    }
    chain
}

/// Programs wait for requests of the server's own, and queues of the kernel have not all their threads when they begin.
pub fn a_program_right_after_the_mount_is_answered(by: &[&str]) {
    let bench = Bench::with_volume();
    for round in 0..6 {
        let Some(mut mount) = Mounted::new(&bench, by) else { return };
        let (told, is_told) = mpsc::channel();
        let programs: Vec<_> = (0..6)
            .map(|number| {
                let (told, dir) = (told.clone(), mount.dir.clone());
                thread::spawn(move || {
                    let mut chain = Chain::all();
                    chain.create(format!("/{round}.{number}").as_str(), 0o644, true);
                    told.send(run_at(&dir, chain)).unwrap();
                })
            })
            .collect();
        let answers: Vec<_> = programs.iter().map(|_| is_told.recv_timeout(PATIENCE)).collect();
        if answers.iter().any(Result::is_err) {
            // What waits is told so.
            mount.child.kill().unwrap();
        }
        programs.into_iter().for_each(|program| program.join().unwrap());
        assert_eq!(answers, [Ok(Ok(None)); 6], "round {round}");
        assert_eq!(mount.stop(), 0);
    }
}

pub fn who_reads_sees_a_program_by_ioctl_whole_or_not_at_all(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    let [a, b] = ["a", "b"].map(|name| dir.join(name));
    assert_eq!(run_at(&dir, swap(0)), Ok(None));
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 5000 } else { 150 };
    let script = "cd /weft; while test ! -e stop; do \
        a=$(cat a); b=$(cat b); test ${a%% *} -le ${b%% *} || exit 7; \
        b=$(cat b); a=$(cat a); test ${b%% *} -le ${a%% *} || exit 8; done";
    // First the mount alone uses the volume, and the kernel keeps names and attributes.
    for (first, with_others) in [(1, false), (rounds + 1, true)] {
        let beside = with_others.then(|| {
            let args = ["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", script];
            bench.process(&args).spawn().unwrap()
        });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers = [(&a, &b), (&b, &a)].map(|(one, other)| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        // What is looked at later is not older.
                        let seen = [one, other].map(|path| number_of(path));
                        assert!(seen[0] <= seen[1], "{seen:?}");
                    }
                })
            });
            let all_done = (first..first + rounds).all(|number| {
                let done = run_at(&dir, swap(number));
                // Whoever runs a program sees at once what it has done.
                done == Ok(None) && [&a, &b].map(|path| number_of(path)) == [number; 2]
            });
            stop.store(true, Relaxed);
            assert!(all_done);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        if let Some(mut beside) = beside {
            fs::write(dir.join("stop"), "").unwrap();
            assert_eq!(beside.wait().unwrap().code(), Some(0));
        }
    }
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

/// A map of a file that is shared with it.
struct Map(*mut u8, usize);

impl Map {
    fn of(file: &fs::File, bytes: usize) -> Map {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new map, wherever the kernel likes.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        Map(map.cast(), bytes)
    }

    fn store(&self, at: usize, byte: u8) {
        assert!(at < self.1);
        // SAFETY: within the map, which only this thread uses.
        unsafe { self.0.add(at).write_volatile(byte) }
    }

    fn load(&self, at: usize) -> u8 {
        assert!(at < self.1);
        // SAFETY: within the map, which is of a file that is at least so long.
        unsafe { self.0.add(at).read_volatile() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nobody uses the map any more.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

pub fn what_a_program_by_ioctl_has_changed_is_seen_whatever_the_kernel_has_kept(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    let at = |name: &str| dir.join(name);
    fs::write(at("f"), vec![b'.'; 8192]).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(at("f")).unwrap();
    let map = Map::of(&file, 8192);
    for round in 0..20u8 {
        let names = ["old", "new", "gone", "made", "sub", "linked", "hard", "cut"];
        for name in ["old", "gone", "linked", "cut"] {
            fs::write(at(name), format!("{name} {round}")).unwrap();
        }
        // The kernel keeps what is there, and what is not.
        let seen = names.map(|name| fs::metadata(at(name)).is_ok());
        assert_eq!(seen, [true, false, true, false, false, true, false, true], "round {round}");
        let before = fs::metadata(&dir).unwrap();
        // Not on its way to the server yet.
        map.store(100, round);
        assert_eq!(map.load(5000), if round == 0 { b'.' } else { round - 1 });
        let mut chain = Chain::all();
        let f = chain.open("f", Access::ReadWrite);
        let read = chain.read(f, 100, 1);
        chain.export(read);
        chain.write(f, 5000, &[round][..]);
        chain.append(f, "more");
        chain.rename("old", "new");
        chain.unlink("gone");
        chain.create("made", 0o600, true);
        chain.mkdir("sub", 0o700);
        chain.link("linked", "hard");
        let cut = chain.open("cut", Access::Write);
        chain.truncate(cut, 1);
        let answer = run_on(&fs::File::open(&dir).unwrap(), chain).unwrap();
        assert_eq!(answer.failed(), None);
        assert_eq!(answer.bytes(1), Some(&[round][..]), "a store to a map that the kernel kept");
        let seen = names.map(|name| fs::metadata(at(name)).is_ok());
        assert_eq!(seen, [false, true, false, true, true, true, true, true], "round {round}");
        assert_eq!(map.load(5000), round, "what a map shows");
        assert_eq!(map.load(100), round, "what was stored to the map");
        assert_eq!(fs::metadata(at("f")).unwrap().len(), 8192 + 4 * (u64::from(round) + 1));
        assert_eq!(file.metadata().unwrap().len(), 8192 + 4 * (u64::from(round) + 1));
        assert_eq!(fs::read_to_string(at("new")).unwrap(), format!("old {round}"));
        assert_eq!(fs::metadata(at("made")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(["linked", "hard"].map(|name| fs::metadata(at(name)).unwrap().nlink()), [2; 2]);
        assert_eq!(fs::read(at("cut")).unwrap(), b"c");
        let after = fs::metadata(&dir).unwrap();
        assert_eq!(after.nlink(), before.nlink() + 1, "a directory more");
        fs::remove_dir(at("sub")).unwrap();
        for name in ["new", "made", "linked", "hard", "cut"] {
            fs::remove_file(at(name)).unwrap();
        }
    }
    drop((map, file));
    assert_eq!(mount.stop(), 0);
    let stored = bench.stdout(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", "tail -c 8 /weft/f"]);
    assert_eq!(stored, "moremore");
    bench.weft(&["fsck", "vol.img"]).success();
}

/// Acts by a thread as another user, with these further groups, and with a umask of its own.
fn as_user<T: Send>(groups: &[u32], umask: u32, act: impl FnOnce() -> T + Send) -> T {
    const USER: u32 = 54321;
    let act = move || {
        // SAFETY: these calls change the calling thread alone, unlike their namesakes in libc, and take numbers and a list.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
            libc::umask(umask);
            assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, USER, USER, USER), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, USER, USER, USER), 0);
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

pub fn a_program_by_ioctl_has_the_rights_of_its_caller_and_of_what_is_open(by: &[&str]) {
    const GROUP: u32 = 7777;
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    fs::set_permissions(bench.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(dir.join("secret"), "secret").unwrap();
    chown(dir.join("secret"), Some(0), Some(GROUP)).unwrap();
    fs::set_permissions(dir.join("secret"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::create_dir(dir.join("team")).unwrap();
    chown(dir.join("team"), Some(0), Some(GROUP)).unwrap();
    fs::set_permissions(dir.join("team"), PermissionsExt::from_mode(0o770)).unwrap();
    let open = |access| {
        let mut chain = Chain::all();
        chain.open("secret", access);
        chain
    };
    let make = || {
        let mut chain = Chain::all();
        chain.create("team/made", 0o666, true);
        chain
    };
    let refused = Ok(Some((0, libc::EACCES)));
    as_user(&[1, 2], 0, || {
        assert_eq!(run_at(&dir, open(Access::Read)), refused);
        assert_eq!(run_at(&dir, make()), refused);
    });
    as_user(&[1, GROUP, 2], 0o027, || {
        assert_eq!(run_at(&dir, open(Access::Read)), Ok(None));
        assert_eq!(run_at(&dir, open(Access::ReadWrite)), refused);
        assert_eq!(run_at(&dir, make()), Ok(None));
    });
    let made = fs::metadata(dir.join("team/made")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (54321, 54321, 0o640));
    assert_eq!(run_at(&dir, open(Access::ReadWrite)), Ok(None), "the superuser may");

    // Nothing leads out of the directory.
    fs::write(dir.join("team/inner"), "inner").unwrap();
    symlink("../secret", dir.join("team/up")).unwrap();
    symlink(dir.join("secret"), dir.join("team/absolute")).unwrap();
    let within = |path: &str| {
        let mut chain = Chain::all();
        chain.open(path, Access::Read);
        run_at(&dir.join("team"), chain).unwrap()
    };
    for path in ["inner", "/inner", "./../team/inner", "../secret", "/../secret", "up", "absolute", "/secret"]
    {
        let wanted = match path {
            "inner" | "/inner" => None,
            "/secret" => Some((0, libc::ENOENT)),
            _ => Some((0, libc::EXDEV)),
        };
        assert_eq!(within(path), wanted, "{path}");
    }

    // An open file is given, for what it was opened for, and has no paths.
    let given = |writes: bool, path: Option<&str>| {
        let mut chain = Chain::all();
        let file = chain.given(0);
        let found = chain.read(file, 0, 100);
        chain.export(found);
        if writes {
            chain.write(file, 0, "S");
        }
        if let Some(path) = path {
            chain.open(path, Access::Read);
        }
        chain
    };
    let secret =
        |write: bool| fs::OpenOptions::new().read(true).write(write).open(dir.join("secret")).unwrap();
    let answer = run_on(&secret(false), given(false, None)).unwrap();
    assert_eq!((answer.failed(), answer.bytes(1)), (None, Some(&b"secret"[..])));
    assert_eq!(run_on(&secret(false), given(true, None)).unwrap().failed(), Some((2, libc::EBADF)));
    assert_eq!(run_on(&secret(true), given(true, None)).unwrap().failed(), None);
    assert_eq!(fs::read(dir.join("secret")).unwrap(), b"Secret");
    assert_eq!(
        run_on(&secret(true), given(false, Some("/secret"))).unwrap().failed(),
        Some((2, libc::ENOTDIR))
    );
    // Whoever got it from somebody who may read it reads it.
    let lent = secret(false);
    as_user(&[], 0, || assert_eq!(run_on(&lent, given(false, None)).unwrap().failed(), None));
    drop(lent);
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

pub fn a_program_of_1_mib_has_an_answer_of_2_mib(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = fs::File::open(&mount.dir).unwrap();
    let literal: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    for len in [1 << 20, (1 << 20) - 1, 3 * DATA_BYTES_MAX - 50, DATA_BYTES_MAX, DATA_BYTES_MAX / 2] {
        let literal = &literal[..len];
        let mut chain = Chain::all();
        let file = chain.create("large", 0o600, false);
        chain.truncate(file, 0);
        chain.append(file, literal);
        let first = chain.read(file, 0, 1 << 20);
        let twice = chain.concat([Bytes::Of(first.into()), Bytes::Of(first.into())]);
        chain.export(twice);
        let answer = run_on(&dir, chain).unwrap();
        assert_eq!(answer.failed(), None);
        assert!(answer.bytes(4).unwrap() == [literal, literal].concat(), "{len} bytes");
        assert!(fs::read(mount.dir.join("large")).unwrap() == literal);
    }
    drop(dir);
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

/// A command as a program gives it that says what it likes; its errno, 0 when it is done.
fn ask(file: &fs::File, command: Ask, head: Head, data: &[u8], room: usize) -> i32 {
    let mut argument = [&head.to_bytes(), data].concat();
    argument.resize(argument.len().max(room), 0);
    sys::ioctl(file.as_raw_fd(), command.number(argument.len()), &mut argument).err().unwrap_or(0)
}

pub fn what_is_wrong_with_a_command_is_told_and_harms_nobody(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = fs::File::open(&mount.dir).unwrap();
    let descriptor = dir.as_raw_fd();
    let head = |len: usize| Head { descriptor, len: len as u32, ..Head::default() };
    let good = swap(1).check().unwrap().encode();
    let len = good.len();
    let other_version = [&[9][..], &good[1..]].concat();
    let (put, run, get) = (Ask::Put, Ask::Run, Ask::Get);
    for (what, found, wanted) in [
        ("another version", ask(&dir, run, Head { version: 2, ..head(0) }, b"", 0), libc::EPROTONOSUPPORT),
        ("flags", ask(&dir, run, Head { flags: 1, ..head(0) }, b"", 0), libc::EINVAL),
        ("more than there is", ask(&dir, run, head(10), b"123456789", 0), libc::EINVAL),
        ("no program", ask(&dir, run, head(5), &[1, 0, 9, 9, 9], 64), libc::EINVAL),
        ("a program of another version", ask(&dir, run, head(len), &other_version, 0), libc::EPROTONOSUPPORT),
        ("half a program", ask(&dir, run, head(len - 1), &good, 0), libc::EINVAL),
        ("another descriptor", ask(&dir, run, Head { descriptor: 0, ..head(len) }, &good, 0), libc::EBADF),
        ("no descriptor", ask(&dir, run, Head { descriptor: -1, ..head(len) }, &good, 0), libc::EBADF),
        ("what was not put", ask(&dir, run, Head { offset: 5, ..head(len) }, &good, 0), libc::ENODATA),
        ("behind what was not put", ask(&dir, put, Head { offset: 5, ..head(len) }, &good, 0), libc::ENODATA),
        ("no answer", ask(&dir, get, Head { answer: 1, ..head(0) }, b"", 64), libc::ENODATA),
        ("a piece", ask(&dir, put, head(len), &good, 0), 0),
        ("the same piece", ask(&dir, put, Head { offset: 1, ..head(len) }, &good, 0), libc::EINVAL),
        ("a part of it", ask(&dir, run, Head { offset: 1, ..head(0) }, b"", 0), libc::ENODATA),
        ("the whole", ask(&dir, run, Head { offset: len as u32, ..head(0) }, b"", 0), 0),
        ("once more", ask(&dir, run, Head { offset: len as u32, ..head(0) }, b"", 0), libc::ENODATA),
    ] {
        assert_eq!(found, wanted, "{what}");
    }
    assert_eq!(number_of(&mount.dir.join("a")), 1);
    let piece = vec![7; DATA_BYTES_MAX];
    let pieces = (0..).step_by(DATA_BYTES_MAX).map(|offset| {
        (offset, ask(&dir, put, Head { offset: offset as u32, ..head(piece.len()) }, &piece, 0))
    });
    let (offset, errno) =
        pieces.take_while(|(offset, _)| *offset < 64 << 20).find(|(_, errno)| *errno != 0).unwrap();
    assert_eq!((errno, offset), (libc::E2BIG, PROGRAM_BYTES_MAX / DATA_BYTES_MAX * DATA_BYTES_MAX));
    let mut bytes = [0; HEAD_BYTES];
    for other in [0x2000_7702, 0xc020_7704, 0xc020_7600, 0x8020_7702, 0xc008_7701] {
        let told = sys::ioctl(descriptor, other, &mut [bytes.as_slice(), &[0; 9000]].concat());
        assert_eq!(told, Err(libc::ENOTTY), "{other:#x}");
    }
    assert_eq!(sys::ioctl(descriptor, run.number(8), &mut bytes), Err(libc::EINVAL), "no room for a head");

    // Anything.
    let mut state = 88172645463325252u64;
    let mut dice = move |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 200_000 } else { 4000 };
    for _ in 0..rounds {
        let size = if dice(4) == 0 { dice(ARGUMENT_BYTES_MAX as u64 + 1) } else { 32 + dice(300) } as usize;
        let mut argument = vec![0; size];
        if dice(3) == 0 {
            argument.fill_with(|| dice(256) as u8);
        } else if size > HEAD_BYTES {
            let room = size - HEAD_BYTES;
            let mut program = good[..good.len().min(room)].to_vec();
            for _ in 0..dice(4) {
                let at = dice(program.len() as u64) as usize;
                program[at] = dice(256) as u8;
            }
            let offset = [0, 0, 1, dice(9000), u64::from(u32::MAX)][dice(5) as usize] as u32;
            let head = Head { offset, answer: dice(3), ..head(program.len()) };
            argument[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
            argument[HEAD_BYTES..][..program.len()].copy_from_slice(&program);
        }
        let command = [put, run, run, get][dice(4) as usize];
        let _ = sys::ioctl(descriptor, command.number(size), &mut argument);
    }
    assert_eq!(run_on(&dir, swap(2)).map(|answer| answer.failed()), Ok(None));
    assert_eq!(number_of(&mount.dir.join("a")), 2);
    drop(dir);
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

pub fn who_is_killed_with_a_program_leaves_nothing_behind(by: &[&str]) {
    let bench = Bench::with_volume();
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    fs::write(mount.dir.join("f"), vec![1; 1 << 20]).unwrap();
    // Nearly all that a user may have with a server, in pieces; then programs whose answers do not fit, by several threads.
    let script = r#"
import fcntl, os, struct, sys, threading
DATA = 16344
def ask(number, fd, offset, data, room, answer=0):
    arg = bytearray(struct.pack("=IiQIIII", 1, fd, answer, offset, len(data), 0, 0) + data)
    arg += bytes(max(0, 32 + room - len(arg)))
    way = 1 if number == 1 else 3
    fcntl.ioctl(fd, way << 30 | len(arg) << 16 | ord("w") << 8 | number, arg)
    return struct.unpack("=IiQIIII", arg[:32])
kept = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(8)]
for fd in kept:
    for offset in range(0, 5 << 20, DATA):
        ask(1, fd, offset, bytes(min(DATA, (5 << 20) - offset)), 0)
path = b"f"
read = struct.pack("<HBBB", 1, 0, 0, 2)
read += struct.pack("<BBBBI", 0, 0, 0, 0, len(path)) + path + struct.pack("<BB", 1, 1)
read += struct.pack("<BBBBQBQ", 1, 5, 0, 0, 0, 0, 1 << 20)
def loop():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    while True:
        try: assert ask(2, fd, 0, read, DATA)[5] > 1 << 20
        except BlockingIOError: pass
        except AssertionError: os._exit(3)
for _ in range(6): threading.Thread(target=loop).start()
print("ready", flush=True)
"#;
    let held = || {
        let status = fs::read_to_string(format!("/proc/{}/status", mount.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let mut after_first = 0;
    for round in 0..12 {
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", script]).arg(&mount.dir).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // With what was left by those before, there would be no room for these.
        assert_eq!(line, "ready\n", "round {round}");
        std::thread::sleep(Duration::from_millis(20 * round));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None);
        after_first = if round == 1 { held() } else { after_first };
    }
    assert!(held() < after_first + 200, "{} MiB after {after_first} MiB", held());
    assert_eq!(run_at(&mount.dir, swap(1)), Ok(None));
    assert_eq!(mount.stop(), 0, "nothing is in use");
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_program_by_ioctl_changes_nothing_through_a_mount_that_is_read_only() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    fs::create_dir(bench.path("other")).unwrap();
    bench.weft(&["mount", "-q", "-o", "ro", "vol.img", "other"]).success();
    let other = Given(bench.path("other"));
    let look = || {
        let mut chain = Chain::all();
        chain.open("a", Access::Read);
        chain
    };
    assert_eq!(run_at(&other.0, swap(1)), Err(libc::EROFS));
    assert_eq!(run_at(&mount.dir, swap(1)), Ok(None));
    assert_eq!(run_at(&other.0, look()), Ok(None));
    // Nor does who says that it has another descriptor.
    let (read_only, writable) =
        (fs::File::open(&other.0).unwrap(), fs::File::open(mount.dir.join("a")).unwrap());
    let program = swap(2).check().unwrap().encode();
    let head =
        |file: &fs::File| Head { descriptor: file.as_raw_fd(), len: program.len() as u32, ..Head::default() };
    assert_eq!(ask(&read_only, Ask::Run, head(&read_only), &program, 0), libc::EROFS);
    assert_eq!(ask(&read_only, Ask::Run, head(&writable), &program, 0), libc::EBADF);
    drop((read_only, writable));
    let remount = |option: &str| {
        let done = Command::new("mount").args(["-i", "-o", option]).arg(&mount.dir).status().unwrap();
        assert!(done.success());
    };
    remount("remount,ro,bind");
    assert_eq!(run_at(&mount.dir, swap(2)), Err(libc::EROFS));
    remount("remount,rw,bind");
    assert_eq!(run_at(&mount.dir, swap(2)), Ok(None));
    assert_eq!(number_of(&other.0.join("b")), 2);
    drop(other);
    assert_eq!(mount.stop(), 0);
    drop(mount);
    fs::remove_dir(bench.path("mnt")).unwrap();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "writeback"]) else { return };
    assert_eq!(run_at(&mount.dir, look()), Err(libc::EOPNOTSUPP));
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_program_that_no_mount_has_asked_for_is_refused_elsewhere() {
    let beside = tempfile::tempdir().unwrap();
    assert_eq!(run_at(beside.path(), swap(1)), Err(libc::ENOTTY));
}
