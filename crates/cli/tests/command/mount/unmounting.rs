//! Mounts that come and go: unmounted, mounted again, on a second directory, with other options; and what is left of one whose server was
//! killed.

use super::*;

#[test]
fn a_mount_that_stays_is_unmounted_by_its_directory_or_its_volume() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "noexec,noatime,ro,rw"]) else { return };
    fs::write(mount.dir.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(mount.dir.join("program"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(
        Command::new(mount.dir.join("program")).status().unwrap_err().raw_os_error(),
        Some(libc::EACCES)
    );
    // Somebody uses it.
    let used = fs::File::open(mount.dir.join("program")).unwrap();
    bench.weft(&["unmount", "mnt"]).code(1).stderr(contains("in use by programs").and(contains("fuser")));
    drop(used);
    bench.weft(&["unmount", "mnt"]).success();
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    for _ in 0..2 {
        // By the time that the command has returned, the image is free.
        let out = bench.stdout(&["mount", "--daemon", "--log", "log", "vol.img", "mnt"]);
        assert_eq!(out, "weft: vol.img is mounted on mnt\n");
        assert!(mount.dir.join("program").exists());
        bench.weft(&["unmount", "vol.img"]).success();
        bench.weft(&["fsck", "vol.img"]).success();
    }
    assert!(fs::read_to_string(bench.path("log")).unwrap().contains("placement"), "the report of the mount");
    bench.weft(&["unmount", "mnt"]).code(1).stderr(contains("no volume is mounted there"));
    bench.weft(&["mount", "--daemon", "none.img", "mnt"]).code(1).stderr(contains("none.img"));
    bench.weft(&["mount", "-o", "ro,compress", "vol.img", "mnt"]).code(1).stderr(contains("compress"));
    // As mount(8) starts it.
    let helper = bench.path("mount.weft");
    symlink(assert_cmd::cargo::cargo_bin("weft"), &helper).unwrap();
    let mut command = Command::new(&helper);
    command.args(["vol.img", "mnt", "-o", "ro"]).current_dir(bench.dir());
    command.env("XDG_RUNTIME_DIR", bench.dir());
    assert!(command.status().unwrap().success());
    assert_eq!(fs::write(mount.dir.join("f"), "").unwrap_err().raw_os_error(), Some(libc::EROFS));
    bench.weft(&["unmount", "mnt"]).success();
}

#[test]
fn a_volume_is_mounted_again_as_soon_as_umount_has_returned() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    // A process that another test is starting has the descriptors of all tests for a moment, and keeps the mount busy.
    let umount = || wait_for("umount", || Command::new("umount").arg(&mount.dir).status().unwrap().success());
    for options in [&[][..], &["-o", "writeback"]] {
        for _ in 0..3 {
            fs::write(mount.dir.join("f"), vec![7; 4 << 20]).unwrap();
            umount();
            bench.weft(&["fsck", "vol.img"]).success();
            bench.weft(&[&["mount", "--daemon", "--quiet", "vol.img", "mnt"], options].concat()).success();
            fs::write(mount.dir.join("g"), vec![7; 4 << 20]).unwrap();
            umount();
            bench.weft(&[&["mount", "--daemon", "--quiet", "vol.img", "mnt"], options].concat()).success();
            assert_eq!(fs::metadata(mount.dir.join("f")).unwrap().len(), 4 << 20);
        }
    }
    bench.weft(&["unmount", "mnt"]).success();
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_mount_by_mount_8_lacks_only_what_its_options_say() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    assert_eq!(mount.stop(), 0);
    let helper = bench.path("mount.weft");
    symlink(assert_cmd::cargo::cargo_bin("weft"), &helper).unwrap();
    for (options, lacks) in
        [("rw", [false, false]), ("rw,nosuid", [true, false]), ("rw,nosuid,nodev", [true, true])]
    {
        let mut command = Command::new(&helper);
        command.args(["vol.img", "mnt", "-o", options]).current_dir(bench.dir());
        command.env("XDG_RUNTIME_DIR", bench.dir());
        assert!(command.status().unwrap().success());
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let shown = table.lines().find(|line| line.contains(mount.dir.to_str().unwrap())).unwrap();
        assert_eq!(["nosuid", "nodev"].map(|word| shown.contains(word)), lacks, "{shown}");
        bench.weft(&["unmount", "mnt"]).success();
    }
}

#[test]
fn a_volume_is_mounted_on_two_directories() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    fs::create_dir(bench.path("other")).unwrap();
    bench
        .weft(&["mount", "-o", "ro", "vol.img", "other"])
        .success()
        .stdout("weft: vol.img is mounted on other\n");
    let other = Given(bench.path("other"));
    fs::create_dir(mount.dir.join("a")).unwrap();
    fs::write(mount.dir.join("a/f"), "text").unwrap();
    fs::rename(mount.dir.join("a/f"), mount.dir.join("f")).unwrap();
    assert_eq!(fs::read(other.0.join("f")).unwrap(), b"text");
    assert_eq!(fs::write(other.0.join("f"), "").unwrap_err().raw_os_error(), Some(libc::EROFS));
    // The first can go: the second keeps the server.
    bench
        .weft(&["unmount", "mnt"])
        .success()
        .stderr(contains("vol.img is still mounted on").and(contains("other")));
    assert_eq!(fs::read(other.0.join("f")).unwrap(), b"text");
    bench.weft(&["unmount", "vol.img"]).success().stderr("");
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn an_image_that_cannot_be_written_is_not_mounted_and_the_error_says_what_can_be_done() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    assert_eq!(mount.stop(), 0);
    let script = "mount --make-rprivate /; mount --bind . .; mount -o remount,bind,ro .; cd \"$PWD\"; exec \"$0\" mount -o ro vol.img mnt";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .arg(assert_cmd::cargo::cargo_bin("weft"))
        .current_dir(bench.dir());
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot be opened for writing") && told.contains("mount a copy of it"), "{told}");
    assert!(told.contains("export") && told.contains("salvage"), "{told}");
}

/// How many mounts are on a directory, one over the other.
fn layers(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().filter(|line| line.split(' ').nth(1) == dir.to_str()).count()
}

#[test]
fn a_mount_whose_server_was_killed_makes_way_and_is_no_mount() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let dir = fs::canonicalize(&mount.dir).unwrap();
    let kill = |child: &mut Child| {
        // The kernel keeps the attributes of the directory.
        fs::metadata(&dir).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(errno(fs::File::create(dir.join("f"))), Some(libc::ENOTCONN));
    };
    let begin = |dir: &str| {
        let mut child =
            bench.process(&["mount", "-q", "vol.img", dir]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("weft: vol.img is mounted on {dir}\n"));
        child
    };
    kill(&mut mount.child);
    let mut next = begin("mnt");
    assert_eq!(layers(&dir), 1);
    // In use by a program, and of no use to it.
    let used = fs::File::open(&dir).unwrap();
    kill(&mut next);
    let mut told = String::new();
    next.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(told.matches("mnt: detached a mount of").count(), 1, "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");

    bench.weft(&["unmount", "mnt"]).success().stderr("");
    drop(used);
    assert_eq!(layers(&dir), 0);

    // At once, while the server that was killed still ends.
    for options in [&["-o", "writeback"][..], &[]] {
        let mut ends = begin("mnt");
        fs::metadata(&dir).unwrap();
        ends.kill().unwrap();
        bench.weft(&[&["mount", "-q", "--daemon", "vol.img", "mnt"], options].concat()).success();
        ends.wait().unwrap();
        bench.weft(&["unmount", "mnt"]).success();
        assert_eq!(layers(&dir), 0);
    }
    // Under a program that is given a mount, too.
    kill(&mut begin("mnt"));
    let run = ["run", "-q", "--volume", "vol.img", "--mount", "mnt", "--", "true"];
    bench.weft(&run).success().stderr(contains("detached a mount of"));
    assert_eq!(layers(&dir), 0);

    // One that lives elsewhere, and over one that does not.
    let mut dead = begin("mnt");
    kill(&mut dead);
    fs::create_dir(bench.path("other")).unwrap();
    let other = Given(bench.path("other"));
    let mut lives = begin("other");
    fs::write(other.0.join("f"), "text").unwrap();
    assert!(Command::new("mount").arg("--bind").args([&other.0, &dir]).status().unwrap().success());
    assert_eq!(layers(&dir), 2);
    let still = contains("is still mounted on").and(contains("other"));
    bench.weft(&["unmount", "mnt"]).success().stderr(still.and(contains("detached a mount of")));
    assert_eq!((layers(&dir), fs::read(other.0.join("f")).unwrap()), (0, b"text".to_vec()));
    bench.weft(&["unmount", "vol.img"]).success().stderr("");
    assert_eq!(lives.wait().unwrap().code(), Some(0));
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn unmount_waits_for_an_image_on_another_mount_and_finds_one_by_its_new_name() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    bench.weft(&["format", "-q", "--size", "16M", "--zone-size", "1M", "mnt/inner.img"]).success();
    fs::create_dir(bench.path("inner")).unwrap();
    let inner = Given(bench.path("inner"));
    for n in 0..3 {
        bench.weft(&["mount", "-q", "--daemon", "mnt/inner.img", "inner"]).success();
        fs::write(inner.0.join(format!("f{n}")), vec![n; 1 << 20]).unwrap();
        bench.weft(&["unmount", "inner"]).success();
        bench.weft(&["fsck", "mnt/inner.img"]).success();
    }
    fs::rename(bench.path("vol.img"), bench.path("new.img")).unwrap();
    bench.weft(&["unmount", "new.img"]).success();
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    assert_eq!(layers(&fs::canonicalize(&mount.dir).unwrap()), 0);
    bench.weft(&["unmount", "new.img"]).code(1).stderr(contains("no volume is mounted there"));
    bench.weft(&["fsck", "new.img"]).success();
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let file = mount.dir.join("f");
    fs::write(&file, "text").unwrap();
    let remount = |options: &str| bench.weft(&["mount", "-o", options, "vol.img", "mnt"]);
    let open = fs::OpenOptions::new().append(true).open(&file).unwrap();
    remount("remount,ro").code(1).stderr(contains("have files open to write"));
    drop(open);
    // The kernel may be done with a file a moment after the program.
    wait_for("the mount becomes read-only", || {
        let args = ["mount", "-o", "remount,ro,noexec", "vol.img", "mnt"];
        bench.process(&args).status().unwrap().success()
    });
    assert_eq!(fs::write(&file, "").unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read(&file).unwrap(), b"text");
    remount("remount,rw").success();
    fs::write(&file, "more").unwrap();
    assert_eq!(mount.stop(), 0);
    bench
        .weft(&["mount", "-o", "remount,ro", "vol.img", "mnt"])
        .code(1)
        .stderr(contains("no volume is mounted there"));
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "more");
}

#[test]
fn mount_8_remounts_what_it_finds_in_the_table_of_mounts() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let tools = bench.path("tools");
    fs::create_dir(&tools).unwrap();
    for name in ["weft", "mount.fuse.weft"] {
        symlink(assert_cmd::cargo::cargo_bin("weft"), tools.join(name)).unwrap();
    }
    let options = || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let shown = table.lines().find(|line| line.contains(mount.dir.to_str().unwrap())).unwrap();
        shown.split(' ').nth(3).unwrap().to_owned()
    };
    let is_read_only = || options().starts_with("ro,");
    let shown = options();
    assert!(shown.contains("user_id=0"), "{shown}");
    // As mount(8) starts the helper of the type that the kernel shows.
    for (option, becomes) in [("ro", true), ("rw", false)] {
        let all = format!("{shown},remount,{option}");
        let mut helper = Command::new(tools.join("mount.fuse.weft"));
        helper.args([bench.path("vol.img"), mount.dir.clone()]).args(["-o", &all]);
        let output = helper.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(is_read_only(), becomes, "{}", options());
    }
    // By mount.fuse3 of libfuse, which finds the command in the directories of the system.
    if Path::new("/sbin/mount.fuse3").exists() && !Path::new("/sbin/mount.fuse.weft").exists() {
        let script = "set -e; mount --make-rprivate /; mount --bind \"$0\" /usr/local/bin
            for option in ro rw; do mount -o remount,$option \"$1\"; findmnt -nfo OPTIONS \"$1\"; done";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).args([&tools, &mount.dir]);
        let output = command.output().unwrap();
        let becomes = format!("{}\n{shown}\n", shown.replacen("rw,", "ro,", 1));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            becomes,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(options(), shown);
    assert_eq!(mount.stop(), 0);
}
