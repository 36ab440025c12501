//! A volume that is mounted: programs that no library reaches see the files of those that it reaches, at the same time.

use crate::volume::{Bench, wait_for};
use predicates::str::contains;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command};

/// A mount that is given up at the end.
struct Mounted {
    child: Child,
    dir: PathBuf,
}

impl Mounted {
    /// Mounts `vol.img`; none where this user cannot.
    fn new(bench: &Bench, options: &[&str]) -> Option<Mounted> {
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if device.is_err() || weft_sys::effective_user().0 != 0 {
            return None;
        }
        let dir = bench.dir().join("mnt");
        fs::create_dir(&dir).unwrap();
        let mut child = bench.spawn(&[&["mount", "--quiet", "vol.img", "mnt"], options].concat());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "weft: vol.img is mounted on mnt\n");
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
fn what_is_done_through_the_mount_and_under_the_library_is_one_tree() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
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

#[test]
fn users_get_through_the_mount_what_the_bits_give_them() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let dir = mount.dir.clone();
    fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let mut options = fs::OpenOptions::new();
    options.create_new(true).write(true).mode(0o600).open(dir.join("secret")).unwrap();
    // Whoever makes a file owns it.
    fs::set_permissions(bench.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
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
