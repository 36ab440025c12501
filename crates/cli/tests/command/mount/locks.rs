//! Locks of programs of the mount and of the library.

use super::*;

pub fn locks_exclude_programs_of_the_mount_and_of_the_library(by: &[&str]) {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, by) else { return };
    let dir = mount.dir.clone();
    // The same program by both ways: `{}` is the directory.
    let under = |script: &str| {
        let script = script.replace("{}", "/weft");
        bench.process(&["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", &script])
    };
    let through = |script: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script.replace("{}", dir.to_str().unwrap()));
        command
    };
    let ways: [&dyn Fn(&str) -> Command; 2] = [&under, &through];
    let said = |mut command: Command| {
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    // Record locks.
    assert_eq!(said(through("sqlite3 {}/db 'create table t(a)'")), (0, String::new()));
    for (first, second) in [(0, 1), (1, 0), (1, 1)] {
        let held = holder(
            // Who waits for its turn looks at the data base now and then: its end waits for that.
            &mut ways[first]("sqlite3 -cmd '.timeout 30000' {}/db"),
            "begin immediate;\ninsert into t values(1);\nselect 'held';\n",
        );
        let (code, text) = said(ways[second]("sqlite3 {}/db 'insert into t values(2)'"));
        assert!(code != 0 && text.contains("database is locked"), "{first} {second}: {code} {text}");
        let mut waits = ways[second]("sqlite3 -cmd '.timeout 30000' {}/db 'insert into t values(3)'").spawn();
        release(held, "commit;\n");
        assert!(waits.as_mut().unwrap().wait().unwrap().success(), "{first} {second}");
    }
    assert_eq!(said(under("sqlite3 {}/db 'select count(*), sum(a) from t'")), (0, "6|12\n".into()));
    // Locks of whole files: at once, after a wait, and given up on a signal. They can be shared.
    for (first, second) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
        let case = format!("{first} {second}");
        let held = holder(&mut ways[first]("flock {}/lock sh -c 'echo held; read line'"), "");
        assert_eq!(said(ways[second]("flock -n {}/lock true")), (1, String::new()), "{case}");
        assert_eq!(said(ways[second]("flock -s -n {}/lock true")), (1, String::new()), "{case}");
        assert_eq!(said(ways[second]("flock -w 0.2 {}/lock true")).0, 1, "{case}");
        let waits = ways[second]("flock {}/lock echo had").stdout(Stdio::piped()).spawn().unwrap();
        release(held, "\n");
        assert_eq!(waits.wait_with_output().unwrap().stdout, b"had\n", "{case}");
        let held = holder(&mut ways[first]("flock -s {}/lock sh -c 'echo held; read line'"), "");
        assert_eq!(said(ways[second]("flock -s -n {}/lock echo had")), (0, "had\n".into()), "{case}");
        assert_eq!(said(ways[second]("flock -n {}/lock true")), (1, String::new()), "{case}");
        release(held, "\n");
        assert_eq!(said(ways[second]("flock -n {}/lock echo had")), (0, "had\n".into()), "{case}");
    }
    // A holder that is killed.
    let mut held = holder(&mut through("exec setsid flock {}/lock -c 'echo held; read line'"), "");
    let group = held.id();
    assert!(said(through(&format!("kill -s KILL -- -{group}"))).0 == 0);
    held.wait().unwrap();
    assert_eq!(said(under("flock -w 20 {}/lock echo had")), (0, "had\n".into()));
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn the_kernel_looks_after_locks_of_a_mount_that_has_the_volume_for_itself() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "writeback"]) else { return };
    let file = fs::File::create(mount.dir.join("f")).unwrap();
    let other = fs::File::open(mount.dir.join("f")).unwrap();
    file.lock().unwrap();
    assert!(other.try_lock().is_err());
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    assert!(fs::read_to_string("/proc/locks").unwrap().contains(&inode));
    drop(file);
    // Another test may have begun a process, which had it open as well for a moment.
    wait_for("the lock", || other.try_lock().is_ok());
    drop(other);
    assert_eq!(mount.stop(), 0);
}

/// By its own process, too: POSIX locks are the process's, this one is not.
#[test]
fn a_lock_of_an_open_file_is_in_the_way_of_all_processes() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let script = r#"
import errno, fcntl, os, struct, sys
file = os.open(sys.argv[1] + "/f", os.O_RDWR | os.O_CREAT)
os.write(file, bytes(100))
F_OFD_SETLK = 37
fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 10, 10, 0))
def taken(at, len):
    os.lseek(file, at, os.SEEK_SET)
    try: os.lockf(file, os.F_TEST, len)
    except OSError as error: return error.errno in (errno.EACCES, errno.EAGAIN)
    return False
own = [taken(0, 0), taken(0, 10), taken(15, 1), taken(20, 0)]
os.lseek(file, 50, os.SEEK_SET)
os.lockf(file, os.F_LOCK, 10)
own.append(taken(40, 0))
other = os.fork()
if other == 0: os._exit(0 if [taken(0, 0), taken(20, 30), taken(40, 0)] == [True, False, True] else 1)
print(own, os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"#;
    let output = Command::new("python3").args(["-c", script]).arg(&mount.dir).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "[True, False, True, False, False] 0\n",
        "{output:?}"
    );
    assert_eq!(mount.stop(), 0);
}

#[test]
fn programs_that_wait_for_locks_hold_up_no_others_of_their_processor() {
    let Some(option) = by_io_uring() else { return };
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &option) else { return };
    let on_one = |script: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "bash", "-c", script]).current_dir(&mount.dir);
        command
    };
    let held = holder(&mut on_one("flock lock sh -c 'echo held; read line'"), "");
    let all = "for i in {1..30}; do flock lock sh -c 'echo x >>had' & done; wait";
    let mut waiting = on_one(all).spawn().unwrap();
    // More than a queue has threads at first.
    let tasks = format!("/proc/{}/task", mount.child.id());
    wait_for("more threads", || fs::read_dir(&tasks).unwrap().count() > 40);
    assert!(
        on_one("echo other >other && cat other && ! timeout 0.2 flock lock true").status().unwrap().success()
    );
    assert!(!mount.dir.join("had").exists());
    release(held, "\n");
    assert!(waiting.wait().unwrap().success());
    assert_eq!(fs::read_to_string(mount.dir.join("had")).unwrap(), "x\n".repeat(30));
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}
