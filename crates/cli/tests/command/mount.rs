//! A volume that is mounted: programs that no library reaches see the files of those that it reaches, at the same time.

mod beside;
mod ioctl;
mod locks;
mod programs;
mod quotas;
mod restart;
mod tag_thread;
mod unmounting;

use self::ioctl::{
    a_program_by_ioctl_has_the_rights_of_its_caller_and_of_what_is_open,
    a_program_of_1_mib_has_an_answer_of_2_mib, a_program_right_after_the_mount_is_answered,
    what_a_program_by_ioctl_has_changed_is_seen_whatever_the_kernel_has_kept,
    what_is_wrong_with_a_command_is_told_and_harms_nobody,
    who_is_killed_with_a_program_leaves_nothing_behind,
    who_reads_sees_a_program_by_ioctl_whole_or_not_at_all,
};
use self::locks::locks_exclude_programs_of_the_mount_and_of_the_library;
use crate::volume::{Bench, wait_for};
use predicates::prelude::*;
use predicates::str::contains;
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A mount that is given up at the end.
struct Mounted {
    child: Child,
    dir: PathBuf,
}

impl Mounted {
    /// Mounts `vol.img`; none where this user cannot.
    fn new(bench: &Bench, options: &[&str]) -> Option<Mounted> {
        Mounted::of(bench, "vol.img", options)
    }

    /// Mounts a volume.
    fn of(bench: &Bench, volume: &str, options: &[&str]) -> Option<Mounted> {
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if device.is_err() || weft_sys::effective_user().0 != 0 {
            return None;
        }
        let dir = bench.dir().join("mnt");
        fs::create_dir_all(&dir).unwrap();
        let mut child = bench.spawn(&[&["mount", "--quiet", volume, "mnt"], options].concat());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("weft: {volume} is mounted on mnt\n"));
        Some(Mounted { child, dir })
    }

    /// Tells it to stop; its exit status.
    fn stop(&mut self) -> i32 {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.dir).output();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_mount_with_a_bound_on_memory_has_its_metadata_in_a_file_beside_the_image() {
    let bench = Bench::with_volume();
    for (options, why) in [
        (&["--memory", "1M"][..], "is too little; give 64.0 MiB or more"),
        (&["--memory", "64M", "--memory-dir", "nowhere"], "--memory-dir"),
        (&["--memory-dir", "."], "--memory"),
    ] {
        let args = [&["mount", "vol.img", "."], options].concat();
        bench.weft(&args).failure().stderr(contains(why));
    }
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(bench.dir()).output().unwrap().stdout;
    if kind == b"tmpfs\n" {
        bench.weft(&["fsck", "--memory", "64M", "vol.img"]).failure().stderr(contains("in memory itself"));
        return;
    }
    let Some(mut mount) = Mounted::new(&bench, &["--memory", "64M"]) else { return };
    for number in 0..2000 {
        fs::write(mount.dir.join(number.to_string()), format!("{number}")).unwrap();
    }
    let descriptors = fs::read_dir(format!("/proc/{}/fd", mount.child.id())).unwrap();
    let beside = bench.dir().canonicalize().unwrap();
    let unnamed = |file: &PathBuf| file.starts_with(&beside) && file.to_string_lossy().ends_with("(deleted)");
    let files = descriptors.map(|entry| fs::read_link(entry.unwrap().path()).unwrap());
    assert_eq!(files.filter(unnamed).count(), 1);
    assert_eq!(mount.stop(), 0);
    bench.stdout(&["fsck", "--memory", "64M", "vol.img"]);
    let files = bench.stdout(&[
        "run",
        "-q",
        "--memory",
        "64M",
        "--volume",
        "vol.img",
        "--",
        "sh",
        "-c",
        "cat /weft/*",
    ]);
    assert_eq!(files.len(), (0..2000).map(|number| format!("{number}").len()).sum::<usize>());
    let in_memory = ["run", "--memory", "64M", "--volume", "mem:64M", "--", "true"];
    bench.weft(&in_memory).failure().stderr(contains("--memory is an option of volumes on a disk"));
}

fn what_is_done_through_the_mount_and_under_the_library_is_one_tree(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    let under =
        |script: &str| bench.stdout(&["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", script]);
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("d/f"), "mount\n").unwrap();
    fs::hard_link(dir.join("d/f"), dir.join("hard")).unwrap();
    symlink("d/f", dir.join("soft")).unwrap();
    assert_eq!(under("cd /weft; cat d/f hard soft; echo library >>d/f; mv hard d/g"), "mount\n".repeat(3));
    assert_eq!(fs::read_to_string(dir.join("soft")).unwrap(), "mount\nlibrary\n");
    assert!(!dir.join("hard").exists());
    assert_eq!(fs::metadata(dir.join("d/g")).unwrap().nlink(), 2);
    // One file that is open here: a program changes it meanwhile.
    let mut open = fs::OpenOptions::new().read(true).append(true).open(dir.join("d/f")).unwrap();
    assert_eq!(under("cd /weft/d; truncate -s 6 f; echo again >>f; stat -c %s f"), "12\n");
    open.write_all(b"append\n").unwrap();
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "mount\nagain\nappend\n");
    assert_eq!(under("cat /weft/d/f"), text);
    // Commands tell that both names are one file.
    for (from, to) in [("vol.img:/d/f", "mnt/d/f"), ("mnt/d/f", "vol.img:/d/f")] {
        bench.weft(&["cp", from, to]).failure().stderr(contains("source and target are the same file"));
    }
    bench
        .weft(&["cp", "-q", "-r", "vol.img:/", "mnt/d"])
        .failure()
        .stderr(contains("was made during the copy"));
    assert_eq!(fs::read_to_string(dir.join("d/d/f")).unwrap(), text);
    fs::remove_dir_all(dir.join("d/d")).unwrap();
    fs::remove_file(dir.join("d/soft")).unwrap();
    // A file without a name lives on.
    under("rm /weft/d/f /weft/d/g /weft/soft");
    open.write_all(b"end\n").unwrap();
    assert_eq!((open.metadata().unwrap().nlink(), open.metadata().unwrap().len()), (0, 23));
    drop(open);
    assert_eq!(fs::read_dir(dir.join("d")).unwrap().count(), 0);
    assert_eq!(fs::remove_dir(dir.join("none")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert_eq!(fs::remove_dir(&dir).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    // Pieces anywhere, holes, and a size.
    let file = fs::OpenOptions::new().create_new(true).write(true).read(true).open(dir.join("s")).unwrap();
    file.write_all_at(b"behind a hole", 3 << 20).unwrap();
    file.set_len((3 << 20) + 6).unwrap();
    file.sync_all().unwrap();
    assert_eq!(under("cd /weft; stat -c %s s; tail -c 6 s"), "3145734\nbehind");
    assert!(fs::metadata(dir.join("s")).unwrap().blocks() <= 8, "a hole takes no space");
    drop(file);
    assert_eq!(mount.stop(), 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "the directory is itself again");
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "d\ns\n");
    bench.weft(&["fsck", "vol.img"]).success();
}

fn users_get_through_the_mount_what_the_bits_give_them(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o1777)).unwrap();
    let mut options = fs::OpenOptions::new();
    options.create_new(true).write(true).mode(0o600).open(dir.join("secret")).unwrap();
    // Whoever makes a file owns it.
    fs::set_permissions(bench.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_user = |script: &str| {
        let user = ["--reuid=54321", "--regid=54321", "--clear-groups", "sh", "-c", script];
        Command::new("setpriv").args(user).current_dir(&dir).output().unwrap()
    };
    assert!(as_user("echo mine >own").status.success());
    let own = fs::metadata(dir.join("own")).unwrap();
    assert_eq!((own.uid(), own.gid()), (54321, 54321));
    // Whoever changes a program that runs as another user does not change what that user runs.
    assert!(as_user("cp /bin/true program; chmod 6755 program; echo >>program").status.success());
    assert_eq!(fs::metadata(dir.join("program")).unwrap().mode() & 0o7777, 0o755);
    for refused in ["cat secret", "rm -f secret", "mv secret own", "chmod 777 secret", "chown 0 own"] {
        assert!(!as_user(refused).status.success(), "{refused}");
    }
    assert_eq!(mount.stop(), 0);
}

#[test]
fn a_mount_ends_when_it_is_unmounted_and_says_what_it_cannot() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["--read-only"]) else { return };
    let refused = fs::write(mount.dir.join("f"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    bench.weft(&["mount", "vol.img", "mnt"]).code(1).stderr(contains("already served"));
    assert!(Command::new("umount").arg(&mount.dir).status().unwrap().success());
    wait_for("the command to end", || mount.child.try_wait().unwrap().is_some());
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    bench.weft(&["mount", "vol.img", "none"]).code(1).stderr(contains("none: cannot mount"));
    bench.weft(&["fsck", "vol.img"]).success();
}

/// A program that holds a lock until it reads a line from its input; it writes one when it has the lock.
fn holder(command: &mut Command, ask: &str) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(ask.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child
}

fn release(mut child: Child, ask: &str) {
    child.stdin.take().unwrap().write_all(ask.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_map_under_the_library_shows_what_is_written_through_the_mount() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let path = mount.dir.join("f");
    fs::write(&path, vec![b'x'; 10000]).unwrap();
    // A line each: where to look, and what to store there first.
    let script = "import mmap, sys\n\
        file = open('/weft/f', 'r+b')\n\
        map = mmap.mmap(file.fileno(), 10000)\n\
        for line in sys.stdin:\n\
        \x20   at, *store = line.split()\n\
        \x20   at = int(at)\n\
        \x20   if store: map[at:at + len(store[0])] = store[0].encode()\n\
        \x20   print(map[at:at + 6].replace(bytes(1), b'.').decode(), flush=True)\n";
    let args = ["run", "--quiet", "--volume", "vol.img", "--", "python3", "-c", script];
    let mut mapper = bench.process(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) =
        (mapper.stdin.take().unwrap(), BufReader::new(mapper.stdout.take().unwrap()));
    let mut tell = |line: &str| {
        writeln!(input, "{line}").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    };
    assert_eq!(tell("5000 stored"), "stored");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"mount", 4998).unwrap();
    assert_eq!(tell("4998"), "mountr", "the last write counts");
    assert_eq!(tell("9000 last"), "lastxx");
    weft_sys::file::allocate(&file, 0, 10000).unwrap();
    assert_eq!(tell("9000"), "lastxx", "no byte of it has changed");
    file.set_len(4999).unwrap();
    file.set_len(10000).unwrap();
    assert_eq!(tell("4997"), "xm....");
    assert_eq!(tell("9000"), "......");
    tell("9001 map");
    fs::write(&path, b"new").unwrap();
    file.set_len(9000).unwrap();
    file.write_all_at(b"grown", 9995).unwrap();
    assert_eq!((tell("0"), tell("9000"), tell("9995")), ("new...".into(), "......".into(), "grown".into()));
    assert_eq!(tell("100 kept"), "kept..");
    drop(input);
    assert!(mapper.wait().unwrap().success());
    let mut wanted = vec![0; 10000];
    wanted[..3].copy_from_slice(b"new");
    wanted[100..104].copy_from_slice(b"kept");
    wanted[9995..].copy_from_slice(b"grown");
    assert!(fs::read(&path).unwrap() == wanted);
    drop(file);
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

/// A directory that is unmounted at the end.
struct Given(PathBuf);

impl Drop for Given {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn rename_with(from: &Path, to: &Path, flags: u32) -> std::io::Result<()> {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    // SAFETY: both are strings that live until the call returns.
    let result =
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_mount_has_whiteouts_and_so_the_upper_layer_of_an_overlay() {
    for options in [&[][..], &["-o", "writeback"]] {
        let bench = Bench::with_volume();
        let Some(mut mount) = Mounted::new(&bench, &[&["-o", "dev"], options].concat()) else { return };
        let dir = mount.dir.clone();
        let path = |name: &str| dir.join(name);
        fs::write(path("a"), "content").unwrap();
        rename_with(&path("a"), &path("b"), libc::RENAME_WHITEOUT).unwrap();
        assert_eq!(fs::read(path("b")).unwrap(), b"content");
        let left = fs::symlink_metadata(path("a")).unwrap();
        assert_eq!((left.mode(), left.rdev(), left.nlink(), left.uid()), (libc::S_IFCHR, 0, 1, 0));
        let refused = rename_with(&path("b"), &path("a"), libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE);
        assert_eq!(errno(refused), Some(libc::EEXIST));
        rename_with(&path("b"), &path("a"), libc::RENAME_WHITEOUT).unwrap();
        assert_eq!(fs::read(path("a")).unwrap(), b"content");
        fs::remove_file(path("b")).unwrap();

        let overlays = fs::read_to_string("/proc/filesystems").unwrap().contains("overlay");
        let script = "set -eu; mount --make-rprivate /; cd \"$0\"
            mkdir lower upper work merged; mkdir lower/d; echo below >lower/f; echo moved >lower/d/g; : >lower/gone
            mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
            cd merged; echo more >>f; rm gone; mv d/g g; rm -r d; mkdir d; : >new; mv new f2; ls; cat f g
            cd ..; umount merged; stat -c '%F %t %T' upper/gone; cat lower/f; getfattr -n trusted.overlay.opaque --only-values upper/d";
        if overlays {
            let out = Command::new("unshare").args(["-m", "sh", "-c", script]).arg(&dir).output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&out.stdout),
                "d\nf\nf2\ng\nbelow\nmore\nmoved\ncharacter special file 0 0\nbelow\ny",
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        assert_eq!(mount.stop(), 0);
        bench.weft(&["fsck", "vol.img"]).success();
    }
}

fn a_listing_ends_while_the_program_renames_what_it_finds(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.join("d");
    fs::create_dir(&dir).unwrap();
    // More than the kernel asks for at once.
    const FILES: usize = 2000;
    for n in 0..FILES {
        fs::write(dir.join(format!("f{n}")), "").unwrap();
    }
    let mut found = 0;
    for entry in fs::read_dir(&dir).unwrap().take(3 * FILES) {
        fs::rename(entry.unwrap().path(), dir.join("other")).unwrap();
        fs::rename(dir.join("other"), dir.join(format!("g{found}"))).unwrap();
        found += 1;
    }
    assert_eq!(found, FILES);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), FILES);
    assert_eq!(mount.stop(), 0);
}

fn a_listing_shows_a_name_once_that_is_replaced_meanwhile(by: &[&str]) {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.join("dir");
    fs::create_dir(&dir).unwrap();
    for n in 0..2000 {
        fs::write(dir.join(format!("f{n:04}")), "").unwrap();
    }
    // One of the first names and one of the last are replaced again and again.
    let script = "import os, sys\nd, seen = sys.argv[1], []\nfor n, e in enumerate(os.scandir(d)):\n  seen.append(e.name)\n  \
                  if n % 100 == 50:\n    for name in ('f0010', 'f1990'):\n      open(d + '/.new', 'w').close()\n      \
                  os.rename(d + '/.new', d + '/' + name)\nprint(len(seen), len(set(seen)))\n";
    let by_mount = Command::new("python3").args(["-c", script]).arg(&dir).output().unwrap();
    let args = ["run", "--quiet", "--volume", "vol.img", "--", "python3", "-c", script, "/weft/dir"];
    let by_library = bench.process(&args).output().unwrap();
    for output in [by_mount, by_library] {
        assert_eq!(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()), "2000 2000\n");
    }
    assert_eq!(mount.stop(), 0);
}

#[test]
fn a_file_is_opened_by_a_handle_from_before_an_unmount() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let [handle_of, open] = ["name_to_handle_at", "open_by_handle_at"];
    let script = format!(
        r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
mount = os.open(sys.argv[2], os.O_RDONLY)
if sys.argv[1] == "get":
    handle, number = Handle(bytes=128), ctypes.c_int()
    assert libc.{handle_of}(-100, (sys.argv[2] + sys.argv[3]).encode(), ctypes.byref(handle), ctypes.byref(number), 0) == 0
    sys.stdout.write(bytes(handle).hex())
else:
    handle = Handle.from_buffer_copy(bytes.fromhex(sys.argv[3]))
    file = libc.{open}(mount, ctypes.byref(handle), os.O_RDONLY)
    if file < 0:
        sys.stdout.write(os.strerror(ctypes.get_errno()))
    elif os.path.isdir("/proc/self/fd/%d" % file):
        os.fchdir(file)
        sys.stdout.write(" ".join(os.listdir(".")) + " " + os.path.relpath(os.getcwd(), sys.argv[2]))
    else:
        sys.stdout.write(os.read(file, 100).decode())
"#
    );
    let python = |args: [&str; 3]| {
        let out = Command::new("python3").arg("-c").arg(&script).args(args).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    if Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    let dir = mount.dir.to_str().unwrap().to_owned();
    fs::create_dir_all(mount.dir.join("a/b")).unwrap();
    fs::write(mount.dir.join("a/b/f"), "text").unwrap();
    fs::write(mount.dir.join("gone"), "text").unwrap();
    let handles = ["/a/b/f", "/a/b", "/gone"].map(|path| python(["get", &dir, path]));
    fs::remove_file(mount.dir.join("gone")).unwrap();
    assert_eq!(mount.stop(), 0);
    for options in [&[][..], &["-o", "writeback"]] {
        bench.weft(&[&["mount", "--daemon", "--quiet", "vol.img", "mnt"], options].concat()).success();
        let found = handles.each_ref().map(|handle| python(["open", &dir, handle]));
        assert_eq!(found, ["text", "f a/b", "Stale file handle"]);
        bench.weft(&["unmount", "mnt"]).success();
    }
}

#[test]
fn reads_change_access_times_unless_the_mount_is_to_leave_them() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    fs::write(mount.dir.join("f"), "text").unwrap();
    assert_eq!(mount.stop(), 0);
    let atime = || {
        let meta = fs::metadata(mount.dir.join("f")).unwrap();
        (meta.atime(), meta.atime_nsec())
    };
    // By the rules of relatime, the first of these reads changes it, and all the others would once more after a change.
    for (options, changes) in [("noatime", false), ("ro", false), ("noatime,writeback", false), ("rw", true)]
    {
        bench.weft(&["mount", "--daemon", "--quiet", "-o", options, "vol.img", "mnt"]).success();
        let before = atime();
        assert_eq!(fs::read(mount.dir.join("f")).unwrap(), b"text");
        let after = atime();
        assert_eq!(after != before, changes, "{options}");
        bench.weft(&["unmount", "mnt"]).success();
        // What was seen is stored.
        bench.weft(&["mount", "--daemon", "--quiet", "-o", "ro", "vol.img", "mnt"]).success();
        assert_eq!(atime(), after, "{options}");
        bench.weft(&["unmount", "mnt"]).success();
    }
}

#[test]
fn reads_leave_access_times_from_when_an_open_file_is_told_to() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let path = mount.dir.join("f");
    fs::write(&path, "text").unwrap();
    let file = fs::File::open(&path).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    for (flags, changes) in [(libc::O_NOATIME, false), (0, true), (libc::O_NOATIME, false)] {
        // SAFETY: plain system call on an open file.
        assert_eq!(unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_SETFL, flags) }, 0);
        file.set_times(fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago)).unwrap();
        file.read_at(&mut [0; 4], 0).unwrap();
        assert_eq!(file.metadata().unwrap().atime() != 1000, changes, "{flags:#o}");
    }
    drop(file);
    assert_eq!(mount.stop(), 0);
}

#[test]
fn a_new_owner_takes_only_the_set_id_bits_of_programs() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let file = mount.dir.join("f");
    fs::write(&file, "text").unwrap();
    // As the superuser: the set-group-id bit of what no group can execute is that of no program.
    for (before, after) in [(0o6644, 0o2644), (0o6744, 0o2744), (0o6654, 0o654), (0o6754, 0o754)] {
        chown(&file, Some(1), Some(1)).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(before)).unwrap();
        chown(&file, Some(0), None).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, after, "{before:o}");
    }
    assert_eq!(mount.stop(), 0);
}

fn what_is_open_when_a_mount_stops_fails_and_the_volume_is_whole(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let mut open = fs::File::create(mount.dir.join("f")).unwrap();
    open.write_all(b"before").unwrap();
    assert_eq!(mount.stop(), 1);
    assert!(open.write_all(b"after").is_err());
    drop(open);
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 0);
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "before");
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_program_of_the_library_and_one_of_the_mount_run_side_by_side() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    assert_eq!(mount.stop(), 0);
    let both =
        "echo library >/weft/f; LD_PRELOAD= cat mnt/f; LD_PRELOAD= sh -c 'echo mount >mnt/f'; cat /weft/f";
    let run = |volume: &str| {
        let args = ["run", "-q", "--volume", volume, "--mount", "mnt", "--", "sh", "-c", both];
        bench.weft(&args).success().stdout("library\nmount\n").stderr("");
    };
    run("vol.img");
    run("mem:");
    assert_eq!(fs::read_dir(bench.path("mnt")).unwrap().count(), 0);
}

fn inodes_without_names_live_as_long_as_programs_refer_to_them(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    let under =
        |script: &str| bench.weft(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]).success();
    // Each is removed through the mount, or by a program of the library.
    let removals: [&dyn Fn(&str); 2] = [
        &|name| {
            let path = dir.join(name);
            if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        },
        &|name| drop(under(&format!("rm -rf /weft/{name}"))),
    ];
    for remove in removals {
        for name in ["file", "link", "pipe", "dir"] {
            under("cd /weft; echo content >file; ln -s nowhere link; mkfifo pipe; mkdir dir; ln file other");
            let mut options = fs::OpenOptions::new();
            let named = options
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
                .open(dir.join(name))
                .unwrap();
            remove(name);
            remove("other");
            let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&named));
            let (meta, is_dir) = (named.metadata().unwrap(), name == "dir");
            assert_eq!((meta.nlink(), meta.is_dir()), (0, is_dir), "{name}");
            match name {
                "file" => assert_eq!(fs::read_to_string(&itself).unwrap(), "content\n"),
                "dir" => assert_eq!(fs::read_dir(&itself).unwrap().count(), 0),
                "pipe" => fs::set_permissions(&itself, PermissionsExt::from_mode(0o600)).unwrap(),
                _ => {}
            }
            drop(named);
            under("rm -rf /weft/*");
        }
    }
    // A working directory that is removed.
    let script = "mkdir d; cd d; rmdir ../d; stat -c %h . && ls -a . && ! touch f 2>/dev/null && echo end";
    let here = Command::new("sh").args(["-c", script]).current_dir(&dir).output().unwrap();
    assert_eq!(String::from_utf8(here.stdout).unwrap(), "0\nend\n");
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "");
}

#[test]
fn programs_that_see_both_can_tell_that_two_names_are_one_file() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let script = "echo precious >/weft/p
        test \"$(stat -c '%d %i' /weft/p)\" = \"$(stat -c '%d %i' mnt/p)\" || exit 1
        cp /weft/p mnt/p 2>/dev/null && exit 2; cp mnt/p /weft/p 2>/dev/null && exit 3
        mv mnt/p /weft/p 2>/dev/null && exit 4; cat mnt/p >>/weft/p 2>/dev/null && exit 5
        ln mnt/p /weft/q 2>/dev/null && exit 6; cat /weft/p";
    let args = ["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script];
    bench.weft(&args).success().stdout("precious\n");
    bench.weft(&["export", "-q", "vol.img", "mnt/x.tar"]).success();
    let listed = Command::new("tar").args(["tf", "mnt/x.tar"]).current_dir(bench.dir()).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "./\n./p\n");
    assert_eq!(mount.stop(), 0);
    bench.file("regular", "");
    bench.weft(&["mount", "vol.img", "regular"]).code(1).stderr(contains("Not a directory"));
}

fn what_the_kernel_has_kept_is_forgotten_before_a_program_of_the_library_changes_it(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    let under =
        |script: &str| bench.weft(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]).success();
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/f"), "1").unwrap();
    let open = fs::File::open(dir.join("a/b/f")).unwrap();
    let size_of = |name: &str| fs::metadata(dir.join(name)).map(|meta| meta.len()).map_err(|e| e.kind());
    let gone = Err(std::io::ErrorKind::NotFound);
    for round in 0..5 {
        // While the mount is alone, everything is looked at twice, what is not there too.
        for _ in 0..2 {
            assert_eq!(
                (size_of("a/b/f"), size_of("a/b/new"), size_of("c/b/f")),
                (Ok(1), gone, gone),
                "{round}"
            );
            assert_eq!((open.metadata().unwrap().len(), open.metadata().unwrap().mode() & 0o777), (1, 0o644));
            assert_eq!(fs::metadata(dir.join("a/b")).unwrap().mode() & 0o777, 0o755);
        }
        if round == 0 {
            // Answers that are older than this are recalled once only.
            std::thread::sleep(std::time::Duration::from_millis(1500));
        }
        under("cd /weft; printf 23 >>a/b/f; chmod 600 a/b/f; echo >a/b/new; chmod 700 a/b");
        assert_eq!((open.metadata().unwrap().len(), open.metadata().unwrap().mode() & 0o777), (3, 0o600));
        assert_eq!((size_of("a/b/f"), size_of("a/b/new")), (Ok(3), Ok(1)), "{round}");
        assert_eq!(fs::metadata(dir.join("a/b")).unwrap().mode() & 0o777, 0o700);
        under("cd /weft; rm a/b/new; mv a c; chmod 755 c/b");
        assert_eq!((size_of("a/b/f"), size_of("c/b/f"), size_of("c/b/new")), (gone, Ok(3), gone), "{round}");
        assert_eq!(fs::metadata(dir.join("c/b")).unwrap().mode() & 0o777, 0o755);
        under("cd /weft; mv c a; truncate -s 1 a/b/f; chmod 644 a/b/f");
    }
    // Beside a program of the library that stays, all through its life.
    let mut beside = bench.process(&["run", "-q", "--volume", "vol.img", "--", "sh"]);
    let mut beside = beside.stdin(Stdio::piped()).spawn().unwrap();
    let mut ask = beside.stdin.take().unwrap();
    let mut out = BufReader::new(beside.stdout.take().unwrap());
    for round in 0..50 {
        let (now, old) = (format!("n{round}"), format!("n{}", round - 1));
        let change = format!("cd /weft; rm -f {old}; printf %{round}s >{now}; printf x >>a/b/f; echo done\n");
        assert_eq!(size_of(&now), gone);
        ask.write_all(change.as_bytes()).unwrap();
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!((size_of(&now), size_of(&old)), (Ok(round as u64), gone));
        assert_eq!(
            (size_of("a/b/f"), open.metadata().unwrap().len()),
            (Ok(round as u64 + 2), round as u64 + 2)
        );
    }
    drop((ask, open));
    assert!(beside.wait().unwrap().success());
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

fn flags_of_open_files_count_as_they_are_and_stores_to_maps_stay_in_place(by: &[&str]) {
    let bench = Bench::with_volume();
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let Some(mut mount) = Mounted::new(&bench, &[by, &["-o", "suid"]].concat()) else { return };
    let dir = mount.dir.clone();
    let script = r#"
import ctypes, fcntl, mmap, os, stat, sys
d = sys.argv[1]
# O_APPEND that is given up, and taken.
fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
os.write(fd, b"0123456789")
fcntl.fcntl(fd, fcntl.F_SETFL, 0)
os.pwrite(fd, b"ab", 0)
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
os.write(fd, b"end")
print(os.pread(fd, 100, 0).decode())
# A map of a file that is open to append.
m = mmap.mmap(fd, 13)
m[4:6] = b"XY"
m.flush(); m.close(); os.close(fd)
print(open(d + "/f").read())
# A lock that is taken again after a close is not given back with the open file that was closed.
for i in range(200):
    a = os.open(d + "/f", os.O_RDWR); fcntl.lockf(a, fcntl.LOCK_EX); os.close(a)
    b = os.open(d + "/f", os.O_RDWR); fcntl.lockf(b, fcntl.LOCK_EX)
    r, w = os.pipe()
    if os.fork() == 0:
        c = os.open(d + "/f", os.O_RDWR)
        try: fcntl.lockf(c, fcntl.LOCK_EX | fcntl.LOCK_NB); os.write(w, b"got")
        except OSError: os.write(w, b"no")
        os._exit(0)
    os.wait()
    said = os.read(r, 3)
    os.close(r); os.close(w); os.close(b)
    if said != b"no": print("round", i, said); break
# Set-id bits go with another user's write, whatever was kept of them.
p = d + "/program"
open(p, "w").close(); os.chmod(p, 0o6777)
os.stat(p); os.stat(p)
if os.fork() == 0:
    os.setgid(54321); os.setuid(54321)
    fd = os.open(p, os.O_WRONLY); os.write(fd, b"x"); os._exit(0)
os.wait()
print(oct(os.stat(p).st_mode & 0o7777))
# So do capabilities, whoever writes, and set-id bits with space that another user takes.
rights = bytes.fromhex("0100000202000000000000000000000000000000")
try: os.setxattr(p, "security.capability", rights)
except OSError: pass
os.chmod(p, 0o777)
fd = os.open(p, os.O_WRONLY); os.write(fd, b"x"); os.close(fd)
print(os.listxattr(p))
os.chmod(p, 0o6777); os.stat(p)
if os.fork() == 0:
    os.setgid(54321); os.setuid(54321)
    os.posix_fallocate(os.open(p, os.O_WRONLY), 0, 300); os._exit(0)
os.wait()
print(oct(os.stat(p).st_mode & 0o7777))
# Files without names, and new ones that must be new.
t = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(t, b"unnamed"); ctypes.CDLL(None).linkat(t, b"", -100, (d + "/named").encode(), 0x1000)
print(open(d + "/named").read())
for flags in (os.O_EXCL, 0):
    try: os.close(os.open(d + "/named", os.O_CREAT | os.O_RDWR | flags)); print("opened")
    except FileExistsError: print("exists")
"#;
    let native = tempfile::tempdir().unwrap();
    let said = |dir: &std::path::Path| {
        let output = Command::new("python3").args(["-c", script]).arg(dir).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let wanted = "ab23456789end\nab23XY6789end\n0o777\n[]\n0o777\nunnamed\nexists\nopened\n";
    assert_eq!(said(native.path()), wanted, "natively");
    assert_eq!(said(&dir), wanted);
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_volume_that_a_mount_has_for_itself_is_in_use_and_keeps_what_was_written() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "writeback"]) else { return };
    let path = mount.dir.join("f");
    // Pieces of blocks, out of order, by a file that is open for writing only, and one that appends.
    let file = fs::OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    for at in [9000, 100, 5000, 0] {
        file.write_all_at(&[at as u8 | 1; 700], at).unwrap();
    }
    let mut appended = fs::OpenOptions::new().append(true).open(&path).unwrap();
    appended.write_all(b"end").unwrap();
    let wanted = fs::read(&path).unwrap();
    assert_eq!((wanted.len(), &wanted[9700..], wanted[8000]), (9703, &b"end"[..], 0));
    // What is written and not yet stored is no hole.
    let raw = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the descriptor is open; the call has no memory.
    assert_eq!(unsafe { libc::lseek(raw, 0, libc::SEEK_DATA) }, 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let times = |path: &PathBuf| {
        let meta = fs::metadata(path).unwrap();
        (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec(), meta.mode(), meta.size())
    };
    let before = times(&path);
    // At once, and not after the time that a server may take to open or to close a volume.
    let begun = Instant::now();
    bench
        .weft(&["ls", "vol.img:/"])
        .failure()
        .stderr(contains("in use, mounted with -o writeback on").and(contains("weft unmount")));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    bench.weft(&["mount", "--socket", "s", "-o", "writeback", "vol.img", "mnt"]).failure();
    drop((file, appended));
    assert_eq!(mount.stop(), 0);
    drop(mount);
    fs::remove_dir(bench.dir().join("mnt")).unwrap();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    assert!(fs::read(mount.dir.join("f")).unwrap() == wanted);
    assert_eq!(times(&mount.dir.join("f")), before);
    assert_eq!(mount.stop(), 0);
}

/// What a program may do beside what its user may, as the kernel stores it.
fn set_capability(file: &fs::File) {
    let value = [1u8, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = c"security.capability".as_ptr();
    let raw = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: the descriptor is open, the name a C string, and the value as long as is said.
    assert_eq!(unsafe { libc::fsetxattr(raw, name, value.as_ptr().cast(), value.len(), 0) }, 0);
}

#[test]
fn what_was_written_to_files_that_are_open_when_a_mount_stops_is_stored() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "writeback"]) else { return };
    let path = mount.dir.join("f");
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[7; 3_000_000]).unwrap();
    // Later than what is written, which the kernel passes on only now.
    set_capability(&file);
    assert_ne!(mount.stop(), 0, "it is in use");
    drop(file);
    drop(mount);
    fs::remove_dir(bench.dir().join("mnt")).unwrap();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let path = mount.dir.join("f");
    assert!(fs::read(&path).unwrap() == [7; 3_000_000]);
    let script = "import os, sys; os.getxattr(sys.argv[1], 'security.capability')";
    assert!(Command::new("python3").args(["-c", script]).arg(&path).status().unwrap().success());
    assert_eq!(mount.stop(), 0);
}

#[test]
fn a_volume_that_is_full_says_so_to_the_flush_of_what_the_kernel_kept() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "writeback"]) else { return };
    let path = mount.dir.join("large");
    let mut file = fs::File::create(&path).unwrap();
    let piece = vec![1; 1 << 20];
    let failed = (0..4096).find_map(|_| file.write_all(&piece).and_then(|()| file.sync_data()).err());
    assert_eq!(failed.unwrap().raw_os_error(), Some(libc::ENOSPC));
    fs::remove_file(&path).unwrap();
    // The kernel says a moment later that a file is closed altogether.
    let closes = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(file);
    });
    let mut small = fs::File::create(mount.dir.join("small")).unwrap();
    small.write_all(&piece).and_then(|()| small.sync_all()).unwrap();
    closes.join().unwrap();
    drop(small);
    assert_ne!(mount.stop(), 0, "it says that something is lost");
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn times_that_the_kernel_keeps_come_back_and_a_mount_below_another_stays() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "writeback"]) else { return };
    let names: Vec<String> = (0..400).map(|n| format!("f{n}")).collect();
    names.iter().for_each(|name| fs::write(mount.dir.join(name), vec![3; 5000]).unwrap());
    let times = |dir: &PathBuf| -> Vec<_> {
        let of = |name: &String| {
            let meta = fs::metadata(dir.join(name)).unwrap();
            (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
        };
        names.iter().map(of).collect()
    };
    let before = times(&mount.dir);
    assert_eq!(mount.stop(), 0);
    drop(mount);
    fs::remove_dir(bench.dir().join("mnt")).unwrap();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    assert!(times(&mount.dir) == before);
    // Another file system over it.
    let dir = mount.dir.to_str().unwrap().to_string();
    assert!(Command::new("mount").args(["-t", "tmpfs", "none", &dir]).status().unwrap().success());
    bench.weft(&["unmount", "vol.img"]).failure().stderr(contains("mounted over it"));
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert_eq!(mount.stop(), 0);
}

/// The program with which lists and flags are compared.
fn acl_program(bench: &Bench) -> PathBuf {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shim/tests/probes/acl.c");
    let program = bench.dir().join("acl");
    let compiled =
        Command::new("cc").args(["-O1", "-Wno-unused-result", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.unwrap().success());
    program
}

/// With a flag, a mount may fail for another reason than ext4: the kernel looks at permissions and kinds before it asks.
fn without_reasons(text: &str) -> String {
    let line = |line: &str| match line.split_once(" = -") {
        Some((call, result)) => {
            format!("{call} = - {}", result.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line.into(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn lists_and_flags_let_users_do_through_the_mount_what_they_let_them_do_on_ext4(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let native = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stat = Command::new("stat").args(["-f", "-c", "%T"]).arg(native.path()).output().unwrap();
    if stat.stdout != b"ext2/ext3\n" {
        return;
    }
    let program = acl_program(&bench);
    let runs: [(&str, &[&str]); 5] = [
        ("a", &["1", "2000"]),
        ("b", &["2", "2000"]),
        ("c", &["3", "1500", "flags"]),
        ("d", &["4", "1500", "flags"]),
        ("e", &["held", "mount"]),
    ];
    for (name, args) in runs {
        let of = |above: &std::path::Path| {
            let dir = above.join(name);
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
            let output = Command::new(&program).arg(&dir).args(args).output().unwrap();
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            if args.contains(&"flags") { without_reasons(&text) } else { text }
        };
        let (wanted, got) = (of(native.path()), of(&mount.dir));
        let first = wanted.lines().zip(got.lines()).find(|(wanted, got)| wanted != got);
        assert_eq!(first, None, "{args:?}");
        assert_eq!(wanted.lines().count(), got.lines().count());
    }
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn weft_class_sets_the_classes_of_files_below_a_mount() {
    let bench = Bench::empty();
    bench.weft(&["format", "--quiet", "--core", "tagfs", "--size", "64M", "vol.img"]).success();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    fs::create_dir(mount.dir.join("dir")).unwrap();
    bench.weft(&["class", "set", "small", "mnt/dir"]).success();
    fs::write(mount.dir.join("dir/file"), "1").unwrap();
    bench.weft(&["class", "set", "log", "mnt/dir"]).success();
    let shown = bench.json(&["class", "show", "--json", "--recursive", "mnt/dir"]);
    assert_eq!((&shown[0]["class"], &shown[1]["class"]), (&"log".into(), &"small".into()));
    assert_eq!(mount.stop(), 0);
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// The option by which the kernel sends requests by io_uring; none where it does not.
fn by_io_uring() -> Option<[&'static str; 2]> {
    const OFFER: &str = "/sys/module/fuse/parameters/enable_uring";
    if fs::read_to_string(OFFER).is_ok_and(|offer| offer.trim() == "Y") {
        return Some(["-o", "io_uring"]);
    }
    eprintln!("skipped: the kernel does not offer FUSE over io_uring ('echo Y >{OFFER}' turns it on)");
    None
}

/// Tests of what does not depend on how requests come.
macro_rules! by_both_ways {
    ($($test:ident,)*) => {
        mod by_dev_fuse {
            $(#[test] fn $test() { super::$test(&[]) })*
        }
        mod by_io_uring {
            $(#[test] fn $test() { if let Some(option) = super::by_io_uring() { super::$test(&option) } })*
        }
    };
}

by_both_ways! {
    a_program_right_after_the_mount_is_answered,
    who_reads_sees_a_program_by_ioctl_whole_or_not_at_all,
    what_a_program_by_ioctl_has_changed_is_seen_whatever_the_kernel_has_kept,
    a_program_by_ioctl_has_the_rights_of_its_caller_and_of_what_is_open,
    a_program_of_1_mib_has_an_answer_of_2_mib,
    what_is_wrong_with_a_command_is_told_and_harms_nobody,
    who_is_killed_with_a_program_leaves_nothing_behind,
    what_is_done_through_the_mount_and_under_the_library_is_one_tree,
    users_get_through_the_mount_what_the_bits_give_them,
    locks_exclude_programs_of_the_mount_and_of_the_library,
    a_listing_ends_while_the_program_renames_what_it_finds,
    a_listing_shows_a_name_once_that_is_replaced_meanwhile,
    what_is_open_when_a_mount_stops_fails_and_the_volume_is_whole,
    inodes_without_names_live_as_long_as_programs_refer_to_them,
    what_the_kernel_has_kept_is_forgotten_before_a_program_of_the_library_changes_it,
    flags_of_open_files_count_as_they_are_and_stores_to_maps_stay_in_place,
    lists_and_flags_let_users_do_through_the_mount_what_they_let_them_do_on_ext4,
}

#[test]
fn a_mount_by_io_uring_ends_when_its_server_is_killed() {
    let Some(option) = by_io_uring() else { return };
    for more in [&[][..], &["-o", "writeback"]] {
        let bench = Bench::with_volume();
        let Some(mut mount) = Mounted::new(&bench, &[&option, more].concat()) else { return };
        let mut open = fs::File::create(mount.dir.join("f")).unwrap();
        open.write_all(b"before").unwrap();
        open.sync_all().unwrap();
        let held = holder(
            Command::new("flock").args(["f", "sh", "-c", "echo held; read line"]).current_dir(&mount.dir),
            "",
        );
        let mut waits = Command::new("flock").args(["f", "true"]).current_dir(&mount.dir).spawn().unwrap();
        mount.child.kill().unwrap();
        mount.child.wait().unwrap();
        wait_for("the end", || errno(open.metadata()) == Some(libc::ENOTCONN));
        // With write-back, it is the flush that fails.
        assert!(open.write_all(b"after").and_then(|()| open.sync_all()).is_err());
        release(held, "\n");
        waits.wait().unwrap();
        drop(open);
        // A process that another test has just begun may have a copy of it for a moment.
        let umount = || Command::new("umount").arg(&mount.dir).status().unwrap().success();
        wait_for("umount", umount);
        assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "before");
        bench.weft(&["fsck", "vol.img"]).success();
    }
}

#[test]
fn a_mount_by_io_uring_has_no_second_server() {
    let bench = Bench::with_volume();
    fs::create_dir(bench.path("mnt")).unwrap();
    bench
        .weft(&["mount", "-o", "io_uring,restart", "vol.img", "mnt"])
        .code(1)
        .stderr(contains("leave out one of the two"));
}
