//! A volume that one process serves and others use.

use crate::volume::{Bench, shim, status_of, wait_for};
use predicates::str::contains;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_core::serve::connect_now;

/// A server that is stopped at the end.
pub struct Serving {
    child: Child,
}

impl Serving {
    /// Serves `vol.img`.
    pub fn start(bench: &Bench) -> Serving {
        Serving::start_with(bench, &[])
    }

    /// The same with further options.
    fn start_with(bench: &Bench, options: &[&str]) -> Serving {
        let mut child = bench.spawn(&[&["serve", "--quiet", "--volume", "vol.img"], options].concat());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("weft: serving vol.img on "), "{line}");
        Serving { child }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Tells it to stop; its exit status.
    pub fn stop(mut self) -> i32 {
        self.signal("-TERM");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the command, whose standard error is read.
fn spawn_with_stderr(bench: &Bench, args: &[&str]) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("weft"));
    let weft = bench.command();
    command.envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(bench.dir());
    command.args(args).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn commands_use_the_server_that_runs_and_leave_it_running() {
    let bench = Bench::with_volume();
    let server = Serving::start(&bench);
    bench.file("f", "through the server");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "through the server");
    for volume in ["vol.img", "vol.img:/", "vol.img:/f"] {
        assert_eq!(bench.json(&["df", "--json", volume])[0]["inodes"], 2);
    }
    let stats = bench.json(&["stats", "--json", "vol.img"]);
    let files: u64 = stats["streams"].as_array().unwrap().iter().map(|s| s["files"].as_u64().unwrap()).sum();
    assert!(files > 0, "the server has seen the copy: {stats}");
    bench.weft(&["fsck", "vol.img"]).code(2).stderr(contains("in use"));
    bench.weft(&["format", "--size", "64M", "--force", "vol.img"]).code(1).stderr(contains("in use"));
    bench.weft(&["serve", "--volume", "vol.img"]).code(1).stderr(contains("already served"));
    assert_eq!(server.stop(), 0);
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "through the server");
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_server_on_a_socket_of_its_own_is_found_by_its_image_and_by_its_socket() {
    let bench = Bench::with_volume();
    bench.file("f", "by whatever way");
    let cat = ["--quiet", "--", "cat", "/weft/f"];
    let by_socket = [&["run", "--socket", "own.sock"], &cat[..]].concat();
    bench
        .weft(&by_socket)
        .code(125)
        .stderr(contains("no server listens there"))
        .stderr(contains("weft serve"));
    for killed in [true, false] {
        let mut server = Serving::start_with(&bench, &["--socket", "own.sock"]);
        bench.weft(&["cp", "f", "vol.img:/f"]).success();
        let by_image = [&["run", "--volume", "vol.img"], &cat[..]].concat();
        assert_eq!(bench.stdout(&by_image), "by whatever way");
        assert_eq!(bench.stdout(&by_socket), "by whatever way");
        let placed = [&["run", "--socket", "own.sock", "--mode", "off"], &cat[..]].concat();
        bench.weft(&placed).code(125).stderr(contains("placement is decided there"));
        bench.weft(&["serve", "--volume", "vol.img"]).code(1).stderr(contains("already served"));
        if killed {
            server.signal("-KILL");
            server.child.wait().unwrap();
        } else {
            assert_eq!(server.stop(), 0);
        }
        // What leads to the socket of one that has ended is in nobody's way.
        assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "by whatever way");
    }
}

#[test]
fn commands_that_come_while_a_server_closes_find_the_next_one() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    for n in 0..20 {
        let (a, b) = (format!("vol.img:/a{n}"), format!("vol.img:/b{n}"));
        let runs = ["run", "--quiet", "--volume", "vol.img", "--", "true"];
        let appends = ["run", "--quiet", "--volume", "vol.img", "--", "sh", "-c", "echo line >> /weft/log"];
        // One of them serves the volume until no other one is connected.
        for pair in [[&["cp", "f", &a][..], &["cp", "f", &b]], [&runs, &appends]] {
            let children = pair.map(|args| bench.spawn(args));
            for (mut child, args) in children.into_iter().zip(pair) {
                assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}, round {n}");
            }
        }
        assert_eq!(bench.stdout(&["cat", &a, &b]), "contentcontent");
    }
    assert_eq!(bench.stdout(&["cat", "vol.img:/log"]), "line\n".repeat(20));
}

#[test]
fn a_command_whose_server_does_not_answer_can_be_interrupted() {
    let bench = Bench::with_volume();
    let server = Serving::start(&bench);
    server.signal("-STOP");
    for (name, number) in [("-INT", libc::SIGINT), ("-TERM", libc::SIGTERM), ("-HUP", libc::SIGHUP)] {
        let mut command = spawn_with_stderr(&bench, &["ls", "vol.img:"]);
        // When it waits for the server it has its signals set.
        let connected = || {
            let stack = std::fs::read_to_string(format!("/proc/{}/wchan", command.id())).unwrap();
            stack.contains("unix") || stack.contains("skb")
        };
        while !connected() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if number == libc::SIGINT {
            let mut told = String::new();
            BufReader::new(command.stderr.take().unwrap()).read_line(&mut told).unwrap();
            let expected = format!("the server of vol.img (process {}) does not answer", server.id());
            assert!(told.contains(&expected), "{told}");
        }
        let sent = Command::new("kill").args([name, &command.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let begun = Instant::now();
        while command.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = command.kill();
        assert_eq!(command.wait().unwrap().signal(), Some(number), "SIG{name}");
    }
    server.signal("-CONT");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_file_that_is_truncated_and_written_anew_is_not_empty_after_a_kill_of_the_server() {
    let bench = Bench::with_volume();
    let run = |script: &str| bench.weft(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]);
    run("for i in 1 2 3 4; do echo old >/weft/f$i; done; sync").success();
    for round in 0..4 {
        let mut server = Serving::start(&bench);
        // The truncations become durable with the flush of another file.
        let large = "head -c 3000000 /dev/zero >/weft/f4";
        let other = "dd if=/dev/zero of=/weft/other bs=4k count=1 conv=fsync 2>/dev/null";
        run(&format!("for i in 1 2 3; do echo new{round} >/weft/f$i; done; {large}; {other}")).success();
        server.signal("-KILL");
        server.child.wait().unwrap();
        for file in 1..4 {
            let found = bench.stdout(&["cat", &format!("vol.img:/f{file}")]);
            assert_eq!(found, format!("new{round}\n"), "f{file}");
        }
        assert_ne!(bench.stdout(&["cat", "vol.img:/f4"]), "");
    }
}

const STORES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    static char data[8192];
    memset(data, 'a', sizeof data);
    int fd = open("/weft/f", O_RDWR | O_CREAT, 0644);
    if (write(fd, data, sizeof data) != sizeof data || fsync(fd)) return 1;
    char *map = mmap(0, sizeof data, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return 2;
    map[100] = 'b';
    printf("%d\n", getpid());
    fflush(stdout);
    pause();
}
"#;

#[test]
fn what_a_killed_program_stored_to_a_map_is_not_lost_by_a_look_at_the_volume() {
    let bench = Bench::with_volume();
    bench.file("stores.c", STORES);
    let built = Command::new("cc").args(["-o", "stores", "stores.c"]).current_dir(bench.dir()).status();
    assert!(built.unwrap().success());
    let mut server = Serving::start(&bench);
    let mut program = bench.spawn(&["run", "-q", "--volume", "vol.img", "--", "./stores"]);
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.signal("-KILL");
    server.child.wait().unwrap();
    assert!(Command::new("kill").args(["-9", line.trim()]).status().unwrap().success());
    let _ = program.wait();
    for _ in 0..2 {
        assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "a".repeat(8192));
        bench.weft(&["export", "-f", "vol.img", "vol.tar"]).success();
    }
    let server = Serving::start(&bench);
    let found = bench.stdout(&["run", "-q", "--volume", "vol.img", "--", "cat", "/weft/f"]);
    assert_eq!((found.len(), found.find('b')), (8192, Some(100)));
    assert_eq!(server.stop(), 0);
}

#[test]
fn the_next_command_removes_the_private_socket_of_one_that_was_killed() {
    let bench = Bench::empty();
    let sockets = || -> Vec<String> {
        let listed = Command::new("find").arg(bench.dir()).args(["-name", "mem-*.sock"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let run = |script| bench.weft(&["run", "--quiet", "--volume", "mem:64M", "--", "sh", "-c", script]);
    run("kill -9 $PPID").failure();
    let left = sockets();
    assert_eq!(left.len(), 1);
    // Long ago: a younger one may be that of a process of another container.
    assert!(Command::new("touch").args(["-h", "-d", "@1", &left[0]]).status().unwrap().success());
    // The first is alive while the second runs.
    let waits = "echo; while [ ! -e go ]; do sleep 0.02; done";
    let mut first = bench.spawn(&["run", "--quiet", "--volume", "mem:64M", "--", "sh", "-c", waits]);
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let alive = sockets();
    assert_eq!(alive.len(), 1);
    run("true").success();
    assert_eq!(sockets(), alive);
    bench.file("go", "");
    assert!(first.wait().unwrap().success());
    assert_eq!(sockets().len(), 0);
}

#[test]
fn a_server_that_was_killed_leaves_a_volume_that_opens() {
    let bench = Bench::with_volume();
    let mut server = Serving::start(&bench);
    bench.file("f", "synced by cp");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    server.signal("-KILL");
    server.child.wait().unwrap();
    bench.weft(&["fsck", "vol.img"]).success();
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "synced by cp");
}

#[test]
fn a_signal_that_is_ignored_from_the_start_stays_ignored() {
    let bench = Bench::with_volume();
    // As under nohup, and in the background of a shell without job control.
    let started = |args: &[&str]| {
        let weft = bench.command();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]).arg(weft.get_program()).args(args);
        command
            .envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(bench.dir());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let ignored = |child: &Child| {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: a system call on numbers; the child is not yet waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    let mut child = started(&["serve", "--quiet", "--volume", "vol.img"]);
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let mut server = Serving { child };
    ignored(&server.child);
    assert_eq!(server.child.try_wait().unwrap(), None, "a signal ended the server");
    assert_eq!(server.stop(), 0);

    let script = "echo ready >ready; for i in $(seq 2000); do [ -e go ] && exit 7; sleep 0.05; done";
    let child = started(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]);
    wait_for("the program runs", || bench.path("ready").exists());
    ignored(&child);
    bench.file("go", "");
    assert_eq!(status_of(child), Some(7));

    // A command that looks for signals between two steps.
    bench.file("f", "content");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    let archive = bench.weft(&["export", "vol.img", "-"]).success().get_output().stdout.clone();
    bench.weft(&["rm", "vol.img:/f"]).success();
    let mut child = started(&["import", "-q", "vol.img", "-"]);
    std::thread::sleep(Duration::from_millis(500));
    ignored(&child);
    child.stdin.take().unwrap().write_all(&archive).unwrap();
    assert_eq!(status_of(child), Some(0));
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "content");
}

#[test]
fn a_program_whose_server_does_not_answer_can_be_interrupted() {
    let bench = Bench::with_volume();
    let server = Serving::start(&bench);
    server.signal("-STOP");
    let run = || spawn_with_stderr(&bench, &["run", "-q", "--volume", "vol.img", "--", "ls", "/weft"]);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let mut command = run();
        let is_told = signal == libc::SIGINT;
        std::thread::sleep(Duration::from_millis(if is_told { 4500 } else { 500 }));
        // SAFETY: a system call on numbers; the child is not yet waited for.
        unsafe { libc::kill(command.id() as i32, signal) };
        let begun = Instant::now();
        while command.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = command.kill();
        assert_eq!(command.wait().unwrap().signal(), Some(signal));
        let mut told = String::new();
        command.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        let expected = format!("the server of vol.img (process {}) does not answer", server.id());
        assert!(!is_told || told.contains(&expected), "{told}");
    }
    // So many wait for it that another connection has to wait to be made.
    let found = Command::new("find").arg(bench.dir()).args(["-name", "*.sock"]).output().unwrap();
    let socket = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    let waiting: Vec<_> = std::iter::repeat_with(|| connect_now(&socket)).take_while(Result::is_ok).collect();
    assert!(waiting.len() > 100, "{}", waiting.len());
    let mut command = run();
    std::thread::sleep(Duration::from_millis(500));
    // SAFETY: as above.
    unsafe { libc::kill(command.id() as i32, libc::SIGTERM) };
    wait_for("the end of one that cannot connect", || command.try_wait().unwrap().is_some());
    assert_eq!(command.wait().unwrap().signal(), Some(libc::SIGTERM));
    drop(waiting);
    // One that answers late is waited for.
    let command = run();
    std::thread::sleep(Duration::from_millis(500));
    server.signal("-CONT");
    assert_eq!(status_of(command), Some(0));
    assert_eq!(server.stop(), 0);
}

#[test]
fn the_runtime_directory_of_another_user_is_left_alone() {
    let bench = Bench::with_volume();
    let theirs = bench.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    if std::os::unix::fs::chown(&theirs, Some(12_345), None).is_err() {
        // Only the superuser can make one.
        return;
    }
    let mut command = bench.command();
    command.env("XDG_RUNTIME_DIR", &theirs).env("TMPDIR", bench.dir());
    command.args(["run", "-q", "--volume", "vol.img", "--", "ls", "/weft"]).assert().success();
    assert_eq!(std::fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn nobody_keeps_a_user_from_a_server_by_making_its_directory_first() {
    let bench = Bench::empty();
    if weft_sys::effective_user().0 != 0 {
        return;
    }
    let open_to = |name: &str, mode| {
        std::fs::set_permissions(bench.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    std::fs::create_dir_all(bench.path("tmp/weft-54321")).unwrap();
    open_to("tmp", 0o1777);
    open_to("", 0o755);
    let [weft, shim] = [assert_cmd::cargo::cargo_bin("weft"), shim()].map(|file| {
        let copy = bench.path(file.file_name().unwrap().to_str().unwrap());
        std::fs::copy(file, &copy).unwrap();
        copy
    });
    std::fs::create_dir(bench.path("home")).unwrap();
    std::os::unix::fs::chown(bench.path("home"), Some(54321), Some(54321)).unwrap();
    let command = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups"]).arg(&weft).args(args);
        command.current_dir(bench.path("home")).env("TMPDIR", bench.path("tmp")).env("WEFT_SHIM", &shim);
        command.env_remove("XDG_RUNTIME_DIR").stdout(Stdio::piped());
        command
    };
    let stdout = |args: &[&str]| {
        let output = command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    stdout(&["run", "-q", "--volume", "mem:64M", "--", "ls", "/weft"]);
    stdout(&["format", "-q", "--size", "64M", "--zone-size", "1M", "v.img"]);
    let mut server = Serving { child: command(&["serve", "-q", "--volume", "v.img"]).spawn().unwrap() };
    let mut line = String::new();
    BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("/tmp/weft-54321."), "{line}");
    stdout(&["mkdir", "v.img:/d"]);
    assert_eq!(stdout(&["run", "-q", "--volume", "v.img", "--", "ls", "/weft"]), "d\n");
    // One directory, also when the first name has become free, and the server is in the other one.
    std::fs::remove_dir(bench.path("tmp/weft-54321")).unwrap();
    assert_eq!(stdout(&["ls", "v.img:/"]), "d\n");
    let made = std::fs::read_dir(bench.path("tmp")).unwrap();
    assert_eq!(made.filter(|entry| entry.as_ref().unwrap().file_name() != "weft-54321").count(), 1);
    assert_eq!(server.stop(), 0);
    // Where no directory can be made, the error says what helps.
    let output = command(&["ls", "v.img:/"]).env("TMPDIR", "/proc").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("/proc/weft-54321") && told.contains("XDG_RUNTIME_DIR or TMPDIR"), "{told}");
}

#[test]
fn a_server_that_was_started_with_another_environment_is_found() {
    let bench = Bench::with_volume();
    let mut command = bench.process(&["serve", "--quiet", "--volume", "vol.img"]);
    let mut server = command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR").spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.contains("/weft") && !line.contains(bench.dir().to_str().unwrap()), "{line}");
    bench.weft(&["mkdir", "vol.img:/d"]).success();
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "d\n");
    server.kill().unwrap();
    server.wait().unwrap();
}
