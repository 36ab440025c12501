//! What a volume is to programs: refusals that say so, a server that goes, real programs.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use support::{Served, can_build, difference, library, native, probe, run, said};

#[test]
fn a_ring_is_refused_with_one_line_and_the_program_falls_back() {
    for (name, intercept) in [("liburing", ""), ("liburing", "sud"), ("liburing-static", "sud")] {
        if !can_build(name) {
            continue;
        }
        let (program, dir) = (probe(name), native());
        let plain = run(Command::new(&program).arg(dir.path()));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let served = Served::new(true);
        let weft = run(served.command(&program).arg("/weft").env("WEFT_INTERCEPT", intercept));
        assert!(weft.status.success(), "{}", said(&weft));
        let difference = difference(&text(&plain.stdout), &text(&weft.stdout));
        assert_eq!(difference, None, "{name}, intercept: {intercept:?}");
        let errors = text(&weft.stderr);
        assert!(errors.starts_with("weft: io_uring: ") && errors.lines().count() == 1, "{errors:?}");
        let notes = served.notes();
        assert_eq!(notes.iter().filter(|note| note.contains(": io_uring: ")).count(), 1, "{notes:?}");
    }
}

#[test]
fn a_volume_that_is_mounted_read_only_refuses_what_the_kernel_refuses_there() {
    let (program, dir) = (probe("read_only"), native());
    let path = dir.path().to_str().unwrap();
    run(Command::new(&program).arg(path));
    let script = "mount --bind $1 $1 && mount -o remount,bind,ro $1 && exec $0 $1";
    let mut native = Command::new("unshare");
    native.args(["-m", "sh", "-c", script]).arg(&program).arg(path);
    let native = said(&run(&mut native)).replace(path, "ROOT");
    for leases in [true, false] {
        let mut served = Served::new(leases);
        run(served.command(&program).arg("/weft"));
        served.restart_read_only();
        let weft = said(&run(served.command(&program).arg("/weft"))).replace("/weft", "ROOT");
        let (refused, _) = weft.split_once("otherwise\n").unwrap();
        for line in refused.lines().skip(1) {
            assert!(line.ends_with("= -1 EROFS"), "{line}");
        }
        // Not everybody may mount.
        if native.contains("otherwise") {
            assert_eq!(difference(&native, &weft), None, "leases: {leases}");
        }
    }
}

#[test]
fn a_ring_is_the_kernels_as_long_as_weft_is_off() {
    if !can_build("liburing") {
        return;
    }
    let (program, dir) = (probe("liburing"), native());
    let ring = || std::fs::read_to_string(dir.path().join("ring")).unwrap();
    let plain = (said(&run(Command::new(&program).arg(dir.path()))), ring());
    support::clear(dir.path());
    let mut preloaded = Command::new(&program);
    let preloaded = (said(&run(preloaded.arg(dir.path()).env("LD_PRELOAD", library()))), ring());
    assert_eq!(plain, preloaded);
}

#[test]
fn a_ring_that_the_hooks_do_not_see_fails_on_weft_files() {
    if !can_build("liburing-static") {
        return;
    }
    // SAFETY: makes a descriptor, or not.
    let secret = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
    let (program, dir) = (probe("liburing-static"), native());
    run(Command::new(&program).arg(dir.path()));
    let ring = std::fs::read_to_string(dir.path().join("ring")).unwrap();
    if secret < 0 || ring != "yes" {
        return;
    }
    let served = Served::new(true);
    let output = said(&run(served.command(&program).arg("/weft")));
    for call in ["put(fd, \"0123456789\", 0)", "make_durable(fd)", "get(fd, text, sizeof text, 2)"] {
        assert!(output.contains(&format!("{call} = -{} ", libc::EINVAL)), "{call} in\n{output}");
    }
    assert!(output.contains("by a pipe\n"), "{output}");
}

#[test]
fn programs_that_will_not_see_the_volume_stand_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let (source, fixed) = (dir.path().join("fixed.c"), dir.path().join("fixed"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    assert!(Command::new("cc").arg("-static").arg("-o").args([&fixed, &source]).status().unwrap().success());
    let served = Served::new(true);
    let said_of = |name: &str| served.notes().iter().filter(|note| note.contains(name)).count();
    // By execve, and by posix_spawn.
    for script in [
        r#""$0""#,
        r#"python3 -c 'import os, sys; os.waitpid(os.posix_spawn(sys.argv[1], ["x"], {}), 0)' "$0""#,
    ] {
        run(served.command("/bin/sh").args(["-c", script]).arg(&fixed));
    }
    assert_eq!(said_of("/fixed is statically linked"), 2, "{:?}", served.notes());
    // The loader is static, and preloads into what it is given.
    let loader = "/lib64/ld-linux-x86-64.so.2 /bin/true";
    run(served.command("/bin/sh").args(["-c", loader]));
    assert_eq!(said_of("ld-linux"), 0, "{:?}", served.notes());
}

/// The kernel resolves the relative names of a program that the library is not in.
#[test]
fn relative_names_of_programs_that_do_not_see_the_volume_meet_no_file_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let (source, fixed) = (dir.path().join("fixed.c"), dir.path().join("fixed"));
    let text = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/stat.h>
        #include <unistd.h>
        #define TRY(call) (errno = 0, printf("%s %s\n", #call, (call) < 0 ? strerrorname_np(errno) : "done"))
        int main(int argc, char **argv) {
            char path[64];
            TRY(access(argv[1], F_OK));
            TRY(access("..", R_OK));
            for (int up = 0; up < 8; up++) {
                memcpy(path, "../../../../../../../../", 24);
                snprintf(path + 3 * up, 40, "%s", argv[2]);
                TRY(open(path, O_CREAT | O_WRONLY, 0600));
                TRY(mkdir(path, 0700));
                unlink(path), rmdir(path);
            }
            if (argc > 3) return chdir(argv[3]) || execlp("bash", "bash", "-c", "pwd; echo *", (char *)NULL);
            return 0;
        }"#;
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("cc").arg("-static").arg("-o").args([&fixed, &source]).status().unwrap().success());
    let name = format!("weft-relative-{}", std::process::id());
    for leases in [true, false] {
        let served = Served::new(leases);
        let script = r#"mkdir -p /weft/d/e; cd /weft/d; "$0" etc "$1"; cd e; "$0" etc "$1"; cd /; cd /weft; (cd d; "$0" etc "$1")
            find -name x | "$0" etc "$1"; "$0" etc "$1" "$2" 2>&1 | tail -n 2"#;
        let mut command = served.command("bash");
        command.args(["-c", script]).arg(&fixed).arg(&name).arg(dir.path());
        let said = said(&run(&mut command));
        let here = dir.path().display();
        let (programs, moved) = said.split_at(said.find(&here.to_string()).unwrap_or(said.len()));
        let tried: Vec<_> =
            programs.lines().filter(|line| line.starts_with("open") || line.starts_with("mkdir")).collect();
        assert!(tried.len() == 4 * 16 && tried.iter().all(|line| line.ends_with(" ENOENT")), "{said}");
        assert!(
            programs.contains("access(argv[1], F_OK) ENOENT\n") && !programs.contains("F_OK) done"),
            "{said}"
        );
        // It has changed the directory itself, and starts a program that the library is in.
        assert_eq!(moved, format!("{here}\nfixed fixed.c\n[exit status: 0]"), "{said}");
    }
    let left: Vec<_> = ["/dev/shm", "/tmp"]
        .into_iter()
        .flat_map(|dir| std::fs::read_dir(dir).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap_or_default())
        .filter(|left| *left == name)
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Not everybody may mount.
fn may_mount() -> bool {
    run(Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])).status.success()
}

#[test]
fn the_mount_point_itself_is_not_renamed() {
    let (program, dir) = (probe("mount_point"), native());
    let mount = dir.path().join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let shown = dir.path().to_str().unwrap();
    let script = "mount -t tmpfs none $1 && exec $0 $1";
    let mut plain = Command::new("unshare");
    plain.args(["-m", "sh", "-c", script]).arg(&program).arg(&mount);
    let plain = said(&run(&mut plain)).replace(shown, "ROOT");
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut command = served.command(&program);
        let weft = said(&run(command.arg(&mount).env("WEFT_AT", &mount))).replace(shown, "ROOT");
        assert!(weft.contains("rename(mount, beside(\"new\")) = -1 EBUSY\n"), "{weft}");
        if may_mount() {
            assert_eq!(difference(&plain, &weft), None, "leases: {leases}\n{weft}");
        }
    }
}

#[test]
fn file_systems_without_a_source_are_mounted_from_a_directory_of_the_volume() {
    if !may_mount() {
        return;
    }
    let served = Served::new(true);
    let script = "cd /weft && mkdir tmpfs sub && unshare -m sh -c '
        mount -t tmpfs tmpfs /mnt && mkdir /mnt/a && mount -t tmpfs none ../mnt/a && stat -f -c %T /mnt /mnt/a
        mount --bind tmpfs /mnt/a || mount --bind ../mnt sub || mount -t tmpfs /weft/sub /mnt/a || echo refused
        mount --bind ../etc /mnt/a && test -r /mnt/a/passwd && echo bound' 2> errors; grep -c permission errors";
    assert_eq!(served.shell(script), "tmpfs\ntmpfs\nrefused\nbound\n3\n[exit status: 0]");
    assert!(served.notes().iter().any(|note| note.contains("mount: nothing can be mounted")));
}

#[test]
fn programs_with_the_thread_sanitizer_start_and_use_the_volume() {
    let dir = native();
    let (source, program) = (dir.path().join("checked.c"), dir.path().join("checked"));
    let text = r#"
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static long sum;
        static void *work(void *directory) {
            char path[4096], text[100];
            for (int i = 0; i < 50; i++) {
                snprintf(path, sizeof path, "%s/f%d", (char *)directory, i);
                int fd = open(path, O_CREAT | O_RDWR, 0644);
                write(fd, "0123456789", 10);
                lseek(fd, 0, SEEK_SET);
                long n = read(fd, text, sizeof text);
                close(fd);
                pthread_mutex_lock(&lock);
                sum += n;
                pthread_mutex_unlock(&lock);
            }
            return NULL;
        }
        int main(int argc, char **argv) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, argv[1]);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
            printf("%ld\n", sum);
            fflush(stdout);
            chdir(argv[1]);
            if (!fork()) _exit(access("f7", R_OK));
            int status;
            wait(&status);
            printf("%d\n", status);
            fflush(stdout);
            FILE *listed = popen("ls | wc -l", "r");
            char line[100] = "";
            fgets(line, sizeof line, listed);
            printf("%d %s", pclose(listed), line);
            return 0;
        }"#;
    std::fs::write(&source, text).unwrap();
    // gcc links the sanitizer as a library, clang into the program.
    for compiler in ["gcc", "clang"] {
        let mut compile = Command::new("sh");
        compile.args(["-c", "exec $0 -g -O1 -w -fsanitize=thread -pthread -o $1 $2", compiler]);
        compile.args([&program, &source]);
        if !run(&mut compile).status.success()
            || !run(Command::new(&program).arg("/nothing")).status.success()
        {
            eprintln!("skipped: {compiler} or the kernel does not support ThreadSanitizer");
            continue;
        }
        for leases in [true, false] {
            let served = Served::new(leases);
            let mut command = served.command(&program);
            command.arg("/weft").env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
            let weft = said(&run(&mut command));
            assert_eq!(weft, "2000\n0\n0 50\n[exit status: 0]", "{compiler}, leases: {leases}");
            assert!(served.is_idle_soon());
        }
    }
}

#[test]
fn a_library_that_binds_to_its_own_dependencies_first_sees_the_volume() {
    let dir = native();
    let build = |name: &str, flags: &[&str], text: &str| {
        let (source, out) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
        std::fs::write(&source, text).unwrap();
        assert!(run(Command::new("cc").args(flags).arg("-o").args([&out, &source])).status.success());
        out
    };
    let plugin = build(
        "plugin.so",
        &["-shared", "-fPIC"],
        r#"#include <stdio.h>
        int work(const char *path) {
            FILE *file = fopen(path, "w");
            return !file || fputs("important", file) < 0 || fclose(file);
        }"#,
    );
    let program = build(
        "program",
        &["-w", "-D_GNU_SOURCE"],
        r#"#include <dlfcn.h>
        int main(int count, char **words) {
            void *plugin = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
            int (*work)(const char *) = dlsym(plugin, "work");
            return work(words[2]);
        }"#,
    );
    let served = Served::new(true);
    let mut command = served.command(&program);
    assert_eq!(said(&run(command.arg(&plugin).arg("/weft/data"))), "[exit status: 0]");
    assert_eq!(served.shell("cat /weft/data"), "important[exit status: 0]");
}

#[test]
fn the_kernel_is_in_a_removed_directory_where_one_can_be_made() {
    let served = Served::new(true);
    // Of the shell, as the kernel sees it; in a child, and after a change of directory on the volume and away from it.
    let script = "cd /weft && readlink /proc/$$/cwd && mkdir -p d && cd d && readlink /proc/$$/cwd && pwd
        cd /etc && readlink /proc/$$/cwd; cd /weft/d; (umask 777; cd /etc; cd /weft/d; readlink /proc/$BASHPID/cwd; true)
        echo content > f; cat f; cat ../d/f";
    let kernel = |shown: &str| -> Vec<String> {
        let said = served.shell(&format!("{shown} bash -c '{script}'"));
        let lines: Vec<_> = said.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 8, "{said}");
        let rest = ["/weft/d", "/etc", "content", "content", "[exit status: 0]"];
        assert_eq!([&lines[2], &lines[3], &lines[5], &lines[6], &lines[7]], rest, "{said}");
        vec![lines[0].clone(), lines[1].clone(), lines[4].clone()]
    };
    let is_removed = |line: &str, below: &str| {
        line.starts_with(&format!("{below}/weft-nowhere-")) && line.ends_with("/w/w/w/w/w/w/w (deleted)")
    };
    let shown = kernel("");
    assert!(shown.iter().all(|line| is_removed(line, "/dev/shm")), "{shown:?}");
    assert_eq!(shown[0], shown[1], "it is not changed on the volume");
    if may_mount() {
        let read_only = "mount --bind -o ro /dev/shm /dev/shm";
        let shown = kernel(&format!("unshare -m sh -c '{read_only}; exec \"$@\"' sh"));
        assert!(shown.iter().all(|line| is_removed(line, "/tmp")), "{shown:?}");
        let read_only = format!("{read_only}; mount --bind -o ro /tmp /tmp");
        let shown = kernel(&format!("unshare -m sh -c '{read_only}; exec \"$@\"' sh"));
        assert!(shown.iter().all(|line| line == "/"), "{shown:?}");
    }
}

#[test]
fn what_is_not_supported_fails_with_an_errno_and_a_line_in_the_report() {
    let served = Served::new(true);
    let output = said(&run(served.command(probe("refused")).arg("/weft")));
    let expected = [
        ("open(at(\"node\"), O_RDWR)", "ENXIO"),
        ("clone(child, stack + sizeof stack, SIGCHLD | CLONE_FILES, NULL)", "EINVAL"),
        ("clone(child, stack + sizeof stack, SIGCHLD | CLONE_VM, NULL)", "EINVAL"),
        ("syscall(SYS_clone, SIGCHLD | CLONE_FILES, 0, 0, 0, 0)", "EINVAL"),
        ("close_range(900, 900, CLOSE_RANGE_UNSHARE)", "EINVAL"),
        ("syscall(SYS_unshare, CLONE_FILES)", "EINVAL"),
        ("syscall(SYS_unshare, CLONE_FS)", "EINVAL"),
        ("ioctl(fd, 0x6666, 0)", "ENOTTY"),
        ("fcntl(fd, 9999, 0)", "EINVAL"),
        ("fcntl(fd, F_SETLEASE, F_RDLCK)", "EINVAL"),
        ("fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)", "EINVAL"),
        ("syscall(SYS_io_uring_setup, 8, NULL)", "ENOSYS"),
        ("chroot(root)", "EPERM"),
        ("inotify_add_watch(watcher, at(\"f\"), IN_MODIFY)", "ENOSYS"),
        ("name_to_handle_at", "EOPNOTSUPP"),
        ("copy_file_range(fd, NULL, outside", "EXDEV"),
        ("copy_file_range(fd, NULL, ends[1]", "EINVAL"),
        ("copy_file_range(ends[0]", "EINVAL"),
        ("copy_file_range(open(\"/tmp\", O_RDONLY)", "EISDIR"),
        ("copy_file_range(fd, NULL, open(\"/dev/null\"", "EINVAL"),
        ("copy_file_range(open(\"/tmp\", O_PATH)", "EBADF"),
        ("rename", "EXDEV"),
        ("link", "EXDEV"),
        ("freopen", "EOPNOTSUPP"),
        ("mremap", "EINVAL"),
    ];
    for (call, errno) in expected {
        let line = output.lines().find(|line| line.starts_with(call)).unwrap_or_default();
        assert!(line.ends_with(&format!("= -1 {errno}")), "{call}: {line:?} in\n{output}");
    }
    // In a process with one thread it changes nothing; in a thread beside others it is refused.
    assert!(output.contains("unshare(CLONE_FILES) = 0\n"), "{output}");
    assert!(output.contains("unshare(CLONE_FILES) = -1 EINVAL\n"), "{output}");
    assert!(output.contains("unshare(CLONE_FS) = 0\n"), "{output}");
    assert!(output.contains("unshare(CLONE_FS) = -1 EINVAL\n"), "{output}");
    assert!(output.contains("weft: clone, unshare"), "{output}");
    assert!(output.contains("f: 7 bytes: content"), "{output}");
    let notes = served.notes().join("\n");
    let told = [
        "open: sockets",
        "ioctl:",
        "fcntl: an unknown",
        "fcntl: leases",
        "io_uring:",
        "chroot:",
        "inotify:",
        "name_to_handle_at:",
        "freopen:",
        "mremap:",
    ];
    for start in told {
        assert!(
            notes.lines().any(|line| line.contains(&format!(": {start}"))),
            "no note says {start:?}:\n{notes}"
        );
    }
}

#[test]
fn a_process_outside_gets_no_descriptor_of_a_weft_file() {
    let served = Served::new(true);
    let program = probe("outside");
    let dir = native();
    let socket = dir.path().join("socket");
    for inside in [false, true] {
        let mut listen = if inside { served.command(&program) } else { Command::new(&program) };
        let mut listener =
            listen.arg("-").env("LISTEN", "1").env("SOCKET", &socket).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(listener.stdout.take().unwrap());
        let mut text = String::new();
        output.read_line(&mut text).unwrap();
        let sent = said(&run(served.command(&program).arg("/weft").env("SOCKET", &socket)));
        output.read_to_string(&mut text).unwrap();
        assert!(listener.wait().unwrap().success());
        std::fs::remove_file(&socket).unwrap();
        let (sent_expected, received) = match inside {
            true => ("sendmsg(s, &message, 0) = 1", "received 1"),
            false => ("sendmsg(s, &message, 0) = -1 EOPNOTSUPP", "received 0"),
        };
        assert!(sent.contains(sent_expected), "inside {inside}: {sent}");
        assert!(text.contains(received), "inside {inside}: {text}");
    }
    assert!(served.notes().iter().any(|line| line.contains("sendmsg:")), "{:?}", served.notes());
}

#[test]
fn when_the_server_goes_everything_on_the_volume_fails_with_eio() {
    for leases in [true, false] {
        let mut served = Served::new(leases);
        let dir = native();
        let gone = dir.path().join("gone");
        let mut command = served.command(probe("gone"));
        command.arg("/weft").env("GONE", &gone).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        while !text.contains("ready") {
            assert_ne!(output.read_line(&mut text).unwrap(), 0, "{text}");
        }
        served.stop();
        std::fs::write(&gone, "").unwrap();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        let after = text.split("ready\n").nth(1).unwrap();
        for line in after.lines() {
            let unharmed =
                ["access(", "close(", "read(native", "system("].iter().any(|call| line.starts_with(call));
            if unharmed {
                assert!(!line.contains("EIO") || line.starts_with("close"), "{line}");
            } else {
                // `fgetc` has only -1 to say, with errno as here.
                assert!(line.ends_with("= -1 EIO"), "leases {leases}: {line} in\n{text}");
            }
        }
        assert!(after.contains("system(\"exit 3\") >> 8 = 3"), "{after}");
    }
}

#[test]
fn without_a_server_paths_on_the_volume_are_eio_and_one_line_says_so() {
    let mut command = Command::new("bash");
    command.args(["-c", "cat /weft/a /weft/b; echo x > /weft/c; cat /etc/hostname > /dev/null && echo fine"]);
    command.env("LD_PRELOAD", library()).env("WEFT_SOCKET", "/nonexistent/socket").env("LC_ALL", "C");
    let output = run(&mut command);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.matches("Input/output error").count(), 3, "{errors}");
    // One per process: bash and cat.
    assert_eq!(errors.matches("weft: no server at /nonexistent/socket").count(), 2, "{errors}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "fine\n");
}

#[test]
fn settings_that_mean_nothing_turn_weft_off_and_say_so() {
    for (at, complaint) in
        [("weft", "WEFT_AT must be an absolute path"), ("/", "WEFT_AT must be an absolute path")]
    {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", library()).env("WEFT_SOCKET", "/s").env("WEFT_AT", at);
        let output = said(&run(&mut command));
        assert!(output.contains(complaint), "{at}: {output}");
    }
}

#[test]
fn a_connection_that_is_not_a_socket_any_more_is_not_used() {
    let served = Served::new(true);
    let mut command = served.command("bash");
    // Descriptor 0 is not that socket.
    command.args(["-c", "echo works > /weft/f; cat /weft/f"]).env("WEFT_FD", "0:12345");
    assert_eq!(said(&run(&mut command)), "works\n[exit status: 0]");
}

#[test]
fn a_volume_can_appear_anywhere() {
    let served = Served::new(true);
    for at in ["/weft", "/data/flash/", "/tmp/a.b/c", "/usr"] {
        let mut command = served.command("bash");
        command.env("WEFT_AT", at);
        let at = at.trim_end_matches('/');
        let script = format!(
            "echo content > {at}/f && cd {at} && cat f && pwd && cd / && cat .{at}/f && cat {at}/../{at}/f /etc/..{at}/f && rm {at}/f"
        );
        command.args(["-c", &script]);
        let expected = format!("content\n{at}\ncontent\ncontent\ncontent\n[exit status: 0]");
        let double = format!("{at}/../{at}/f");
        // Only for a prefix of one component does that path lead back.
        let expected = if at.matches('/').count() > 1 { None } else { Some(expected) };
        let output = said(&run(&mut command));
        if let Some(expected) = expected {
            assert_eq!(output, expected, "at {at}");
        } else {
            assert!(output.contains("content\n") && output.contains(&double), "at {at}: {output}");
        }
    }
}

/// The same script natively and on a volume; paths are relative to the directory.
fn same_as_native(script: &str) {
    for leases in [true, false] {
        let dir = native();
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(dir.path()).env("DIR", dir.path()).env("LC_ALL", "C.UTF-8");
        let plain = said(&run(&mut command)).replace(dir.path().to_str().unwrap(), "DIR");
        let served = Served::new(leases);
        let mut command = served.command("bash");
        command.args(["-c", &format!("cd /weft; {script}")]).env("DIR", "/weft");
        let weft = said(&run(&mut command)).replace("/weft", "DIR");
        assert_eq!(difference(&plain, &weft), None, "leases {leases}:\n{plain}");
        assert!(served.is_idle_soon());
    }
}

#[test]
fn shell_redirections_and_coreutils_work() {
    same_as_native(
        "mkdir -p d/e; echo one > d/f; echo two >> d/f; cat d/f; cat < d/f; wc d/f < d/f; exec 3<> d/f; read a <&3; echo $a; \
         echo three >&3; exec 3>&-; cat d/f; cp d/f g; mv g d/e/; ln d/f h; ln -s d/f l; readlink l; realpath l; ls -1R; \
         stat -c '%n %s %A %h' d/f l; md5sum d/f h; head -c 5 d/f; tail -n 1 d/f; sort -r d/f; touch -d @86400 t; stat -c %Y t; \
         chmod 640 t; stat -c %a t; install -m 711 d/f i; stat -c %a i; dd if=/dev/zero of=z bs=1000 count=3 2>/dev/null; \
         truncate -s 10 z; stat -c %s z; mktemp XXXXXX | xargs rm -v | wc -c; du -a --apparent-size d | wc -l; find . -type f | sort; \
         rm -r d; ls; ls > listing; cat listing; cat listing | tee a b | wc -l; cmp a b && cat nothing; echo {a,b,?}; \
         (cd /; cat $DIR/a | wc -l); sync a; test -w a && echo w; [ a -nt t ] && echo newer; sed -i s/a/A/ a; cat a; \
         env -i /bin/ls -1 $DIR; echo $(< b) | xargs -n 1 echo; cat << EOF > here\nhere\nEOF\ncat here; rmdir i; echo $?",
    );
}

#[test]
fn trees_are_copied_archived_and_removed() {
    same_as_native(
        "mkdir src; for i in $(seq 300); do mkdir -p src/d$((i % 17)); seq $i > src/d$((i % 17))/f$i; done; ln -s f1 src/l; \
         cp -a src dst; diff -r src dst && echo same; tar cf t.tar src; mkdir out; tar xf t.tar -C out; diff -r src out/src && \
         echo same; tar tf t.tar | wc -l; find dst -type f -exec md5sum {} + | sort | md5sum; grep -rl '^299$' dst | wc -l; \
         find dst -name 'f1*' -delete; find dst -type f | wc -l; mv dst moved; ls moved | wc -l; rm -rf src moved out; ls; \
         gzip t.tar; gzip -t t.tar.gz && echo ok; split -b 3000 t.tar.gz p.; cat p.* | cmp - t.tar.gz && echo ok",
    );
}

#[test]
fn sqlite_keeps_its_promises_in_both_journal_modes() {
    let insert = "with recursive c(x) as (select 1 union all select x+1 from c where x<500) insert into t(b) select x from c;";
    same_as_native(&format!(
        "for mode in delete wal; do f=$mode.db; sqlite3 $f 'pragma journal_mode='$mode'; create table t(a integer primary key, b);'; \
         for w in 1 2 3; do (for i in 1 2 3; do sqlite3 $f '.timeout 30000' '{insert}'; done) & done; wait; \
         sqlite3 $f 'select count(*), sum(b) from t; pragma integrity_check;'; done; ls -1"
    ));
}

#[test]
fn python_and_git_work() {
    if Command::new("git").arg("--version").output().is_err() {
        return;
    }
    same_as_native(
        "git init -q -b main g && cd g && git config user.email a@b && git config user.name n && seq 500 > f && git add . && \
         GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000' git commit -qm one && git rev-parse HEAD; \
         git gc -q; git fsck; git clone -q . ../h; cd ../h && git log --oneline | cat; cat f | wc -l; cd ..; \
         python3 -c 'import os, subprocess, mmap, tempfile\n\
f = open(\"m\", \"w+b\"); f.write(b\"x\" * 9000); f.flush(); m = mmap.mmap(f.fileno(), 0); m[5:7] = b\"ab\"; m.flush()\n\
print(open(\"m\", \"rb\").read(8), os.path.getsize(\"m\"), len(os.listdir(\".\")))\n\
print(subprocess.run([\"cat\", \"m\"], stdout=open(\"n\", \"w\"), cwd=\".\").returncode, os.stat(\"n\").st_size)\n\
print(subprocess.check_output(\"wc -c < n\", shell=True), os.getcwd() == os.environ[\"DIR\"])\n\
d = tempfile.mkdtemp(dir=\".\"); open(d + \"/f\", \"w\").write(\"t\"); print(os.listdir(d)); import shutil; shutil.rmtree(d)\n\
print(os.path.realpath(\"g/../m\") == os.environ[\"DIR\"] + \"/m\")'",
    );
}

#[test]
fn threads_that_open_and_close_never_meet_each_others_files() {
    let served = Served::new(true);
    let output = said(&run(served.command(probe("race")).arg("/weft")));
    assert_eq!(output, "wrong 0\n[exit status: 0]");
    assert!(served.is_idle_soon());
}

#[test]
fn what_a_killed_process_stored_through_a_map_is_there_for_the_next() {
    let served = Served::new(true);
    let program = probe("killed");
    let output = run(served.command(&program).arg("/weft"));
    assert_eq!(output.status.signal(), Some(9));
    let output = said(&run(served.command(&program).arg("/weft").env("LOOK", "1")));
    assert_eq!(output, "map: stored\nfile: stored\n[exit status: 0]");
}

#[test]
fn names_of_pipes_and_sockets_in_memory_go_with_the_server() {
    let mut served = Served::new(true);
    let script = "mkfifo p; echo through > p & cat p; wait
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'";
    assert_eq!(served.shell(&format!("cd /weft && {script}")), "through\n[exit status: 0]");
    assert!(!served.memory_files().is_empty());
    served.stop();
    assert_eq!(served.memory_files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn sync_in_a_process_that_has_not_used_the_volume_syncs_it() {
    let mut served = Served::new(true);
    assert_eq!(served.shell("echo kept > /weft/f"), "[exit status: 0]");
    // Syncs by the command, then leaves everything that is not synced behind.
    served.restart();
    assert_eq!(served.shell("cat /weft/f"), "kept\n[exit status: 0]");
}

#[test]
fn streams_of_cpp_follow_redirections_to_a_volume() {
    let program = probe("iostream");
    same_as_native(&format!(
        "seq 77 > in; {} . < in > out 2> err; cat out err; md5sum made",
        program.display()
    ));
}

#[test]
fn broken_lifetime_hints_of_old_programs_reach_the_kernel_whole() {
    // The upper half of the 64-bit hint is garbage, as old programs pass it: an error natively, repaired while weft is on.
    let dir = native();
    let program = probe("hint");
    let mut plain = Command::new(&program);
    let mut repaired = Command::new(&program);
    repaired.env("LD_PRELOAD", library()).env("WEFT_SOCKET", "/nonexistent/socket");
    assert_eq!(said(&run(plain.arg(dir.path()))), "hint = -1 EINVAL\n[exit status: 0]");
    assert_eq!(said(&run(repaired.arg(dir.path()))), "hint = 0\n[exit status: 0]");
    let served = Served::new(true);
    assert_eq!(said(&run(served.command(&program).arg("/weft"))), "hint = 0\n[exit status: 0]");
}

#[test]
fn system_calls_past_libc_are_seen_when_a_program_asks_for_it() {
    let program = probe("inlined");
    let dir = native();
    let plain =
        said(&run(Command::new(&program).arg(dir.path()))).replace(dir.path().to_str().unwrap(), "ROOT");
    assert!(plain.ends_with("[exit status: 0]"), "{plain}");
    for leases in [true, false] {
        let served = Served::new(leases);
        let unseen = said(&run(served.command(&program).arg("/weft")));
        assert!(unseen.starts_with("opened 0\n"), "{unseen}");
        let mut command = served.command(&program);
        let weft = said(&run(command.arg("/weft").env("WEFT_INTERCEPT", "sud"))).replace("/weft", "ROOT");
        assert_eq!(difference(&plain, &weft), None, "leases {leases}:\n{weft}");
        assert!(served.is_idle_soon());
    }
    // Elsewhere it changes nothing.
    support::clear(dir.path());
    let served = Served::new(true);
    let mut command = served.command(&program);
    let elsewhere = said(&run(command.arg(dir.path()).env("WEFT_INTERCEPT", "sud")));
    assert_eq!(difference(&plain, &elsewhere.replace(dir.path().to_str().unwrap(), "ROOT")), None);
}

/// Whatever stack a program calls on, and whatever it does with alternate stacks and masks, is as without interception.
#[test]
#[cfg(target_arch = "x86_64")]
fn calls_past_libc_need_no_stack_of_the_program_and_leave_it_its_alternate_stack() {
    let program = probe("alternate");
    let dir = native();
    let native = dir.path().to_str().unwrap();
    let plain = said(&run(Command::new(&program).arg(dir.path()))).replace(native, "ROOT");
    assert!(
        plain.contains("2 KiB: 0, 0 bytes touched below") && plain.ends_with("[exit status: 0]"),
        "{plain}"
    );
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut command = served.command(&program);
        let weft = said(&run(command.arg("/weft").env("WEFT_INTERCEPT", "sud"))).replace("/weft", "ROOT");
        assert_eq!(difference(&plain, &weft), None, "leases {leases}:\n{weft}");
        assert!(served.is_idle_soon());
    }
}

#[test]
fn a_long_here_document_of_a_shell_lies_on_the_volume() {
    let served = Served::new(true);
    let script = "export TMPDIR=/weft
cat /dev/fd/3 3<<X | wc -c
$(seq 30000 | head -c 100000)
X";
    assert_eq!(served.shell(script).lines().next().map(str::trim), Some("100001"));
}

#[test]
fn who_confines_itself_is_told_what_weft_needs() {
    let served = Served::new(true);
    let told = said(&run(served.command(probe("confined")).arg("/weft")));
    assert!(told.contains("weft: seccomp: the program is about to confine itself"), "{told}");
    assert!(told.contains("strict: killed\nset 0, written 6\nfilter: ended\nset 0, written 6\n"), "{told}");
    assert!(told.contains("f: 18 bytes: beforewithinwithin"), "{told}");
    let notes = served.notes().join("\n");
    assert!(notes.contains("seccomp: a program filters its system calls"), "{notes}");
}
