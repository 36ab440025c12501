//! Programs on a volume.

use crate::volume::{Bench, status_of, wait_for};
use predicates::prelude::*;
use predicates::str::contains;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_program_sees_the_volume_and_what_it_writes_is_there_afterwards() {
    let bench = Bench::with_volume();
    let run = |script: &str| bench.weft(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]);
    run("echo hello >/weft/f; mkdir /weft/d; cp /weft/f /weft/d/g").success().stdout("").stderr("");
    run("cat /weft/d/g; ls /weft").success().stdout("hello\nd\nf\n");
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "hello\n");
}

#[test]
fn a_name_that_goes_and_comes_again_is_listed_once() {
    let bench = Bench::with_volume();
    let script = r#"
import os
os.mkdir("/weft/d")
for i in range(11): open("/weft/d/%d" % i, "w").close()
listing = os.scandir("/weft/d")
names = [next(listing).name for _ in range(11)]
os.rename("/weft/d/3", "/weft/away"); open("/weft/d/3", "w").close()
os.unlink("/weft/d/4"); open("/weft/d/4", "w").close()
names += [entry.name for entry in listing]
print(sorted(map(int, names)) == list(range(11)), len(os.listdir("/weft/d")))
"#;
    bench
        .weft(&["run", "-q", "--volume", "vol.img", "--", "python3", "-c", script])
        .success()
        .stdout("True 11\n");
}

#[test]
fn commands_that_run_on_a_volume_copy_from_and_to_it() {
    let bench = Bench::with_volume();
    bench.file("tree/a", "host\n");
    let script = r#"set -e
        mkdir -p /weft/d; echo volume >/weft/one
        setfattr -n user.a -v b /weft/one 2>/dev/null || :
        "$WEFT" cp -q tree/a vol.img:/in; cat /weft/in
        "$WEFT" cp -q vol.img:/one out; cat out
        "$WEFT" cp -q vol.img:/one /weft/two; cat /weft/two; touch -r /weft/one /weft/ref
        test "$(stat -c %Y /weft/two)" = "$(stat -c %Y /weft/one)"
        "$WEFT" cp -q -r tree /weft/tree; "$WEFT" cp -q -r /weft/tree vol.img:/again; cat /weft/again/a
        "$WEFT" cp -q -r vol.img:/ all; diff -r --exclude lost+found /weft all
        for target in /weft/one vol.img:/one; do
            if "$WEFT" cp -q vol.img:/one $target; then exit 1; fi
            if "$WEFT" cp -q /weft/one $target; then exit 1; fi
            cat /weft/one
        done
        if "$WEFT" cp -q -r vol.img:/ /weft/d; then exit 1; fi
        cat /weft/d/one
        "$WEFT" format -q --size 16M --zone-size 256K /weft/i.img; "$WEFT" fsck -q /weft/i.img >/dev/null
        for use in "ls /weft/i.img:/" "serve --volume /weft/i.img --socket s" "run --volume /weft/i.img -- true"; do
            if "$WEFT" $use >/dev/null; then exit 1; fi
        done"#;
    let weft = env!("CARGO_BIN_EXE_weft");
    let args = ["run", "-q", "--volume", "vol.img", "--", "env", &format!("WEFT={weft}"), "sh", "-c", script];
    let same = "source and target are the same file";
    bench.weft(&args).success().stdout(format!("host\n{0}{0}host\n{0}{0}{0}", "volume\n")).stderr(
        contains(same)
            .count(4)
            .and(contains("was made during the copy"))
            .and(contains("the image lies on a volume").count(3)),
    );
}

#[test]
fn whoever_writes_to_a_program_takes_its_capabilities() {
    let bench = Bench::with_volume();
    let script = r#"
import os
rights = bytes.fromhex("0100000202000000000000000000000000000000")
for way in range(4):
    p = "/weft/p%d" % way
    # Open before it gets them, or afterwards; with a lease, or by the server.
    early = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o777)
    if way % 2: os.write(early, b"x" * 5000)
    try: os.setxattr(p, "security.capability", rights)
    except OSError: pass
    fd = early if way < 2 else os.open(p, os.O_WRONLY)
    os.write(fd, b"y")
    print(os.listxattr(p))
try: os.setxattr(p, "security.capability", rights)
except OSError: pass
os.chown(p, 1, 1)
print(os.listxattr(p))"#;
    if std::process::Command::new("python3").arg("--version").output().is_ok() {
        let args = ["run", "-q", "--volume", "vol.img", "--", "python3", "-c", script];
        bench.weft(&args).success().stdout("[]\n".repeat(5));
    }
}

#[test]
fn a_process_in_the_background_that_becomes_another_program_keeps_the_volume() {
    let bench = Bench::with_volume();
    // The program connects when it first uses the volume, which may take a while.
    let script = "(echo a >/weft/a; exec sh -c 'sleep 1; echo b >/weft/b; exec sh -c \"sleep 1; echo c >/weft/c\"') & \
                  while ! test -e /weft/a; do sleep 0.01; done";
    bench
        .weft(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script])
        .success()
        .stderr(contains("1 other process still uses the volume"));
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "a\nb\nc\n");
}

#[test]
fn a_program_on_a_volume_that_is_mounted_read_only_reads_and_changes_nothing() {
    let bench = Bench::with_volume();
    let run = |read_only: bool, script: &str| {
        let mut args = vec!["run", "-q", "--volume", "vol.img"];
        args.extend(read_only.then_some("--read-only"));
        args.extend(["--", "sh", "-c", script]);
        bench.weft(&args)
    };
    run(false, "echo hello >/weft/f; mkdir /weft/d").success();
    let before = std::fs::read(bench.path("vol.img")).unwrap();
    run(true, "cat /weft/f; ls /weft").success().stdout("hello\nd\nf\n").stderr("");
    for change in ["echo x >/weft/f", "echo x >>/weft/f", "echo x >/weft/new", "rm /weft/f", "rmdir /weft/d"]
    {
        run(true, change).failure().stderr(contains("Read-only file system"));
    }
    assert!(std::fs::read(bench.path("vol.img")).unwrap() == before, "the image was changed");
    run(false, "cat /weft/f").success().stdout("hello\n");
}

#[test]
fn a_programs_own_system_calls_may_be_intercepted_too() {
    let bench = Bench::empty();
    let run = |how: &str| {
        let script = "echo hello >/weft/f && cat /weft/f";
        bench.weft(&["run", "-q", "--intercept", how, "--volume", "mem:64M", "--", "sh", "-c", script])
    };
    run("preload").success().stdout("hello\n").stderr("");
    run("sud").success().stdout("hello\n").stderr("");
    run("ptrace").code(125).stderr(contains("preload, sud"));
}

#[test]
fn a_program_runs_on_files_in_memory_without_a_device() {
    let bench = Bench::empty();
    let script = "mkdir /weft/d && head -c 300000 /dev/urandom >/weft/d/f && cp /weft/d/f /weft/d/g && ln /weft/d/g /weft/h \
                  && mv /weft/d/f /weft/f && cmp /weft/f /weft/h && stat -c '%h %s' /weft/h && rm /weft/d/g && ls /weft /weft/d";
    bench
        .weft(&["run", "--volume", "mem:", "--report", "r.json", "--", "sh", "-c", script])
        .success()
        .stdout("2 300000\n/weft:\nd\nf\nh\n\n/weft/d:\n")
        .stderr(contains("mem:: files in memory").and(contains("zone").not()));
    let text = std::fs::read_to_string(bench.path("r.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["during"]["core"]["user_bytes"], 600_000);
    assert_eq!(report["during"]["volume"]["zones"], 0);
    // It is new each time.
    bench.weft(&["run", "-q", "--volume", "mem:", "--", "ls", "/weft"]).success().stdout("");
    for (option, told) in
        [("--zone-size=8M", "has no device"), ("--real-time", "has no device"), ("--read-only", "read-only")]
    {
        bench.weft(&["run", option, "--volume", "mem:", "--", "true"]).code(125).stderr(contains(told));
    }
}

#[test]
fn what_programs_do_to_files_in_memory_is_recorded() {
    let bench = Bench::empty();
    let script = "head -c 300000 /dev/zero >/weft/a.log && rm /weft/a.log";
    bench.weft(&["run", "-q", "--volume", "mem:", "--record", "p.rec", "--", "sh", "-c", script]).success();
    let text = std::fs::read_to_string(bench.path("p.rec")).unwrap();
    assert!(text.contains("/a.log") && text.contains("\nD 1\n") && text.ends_with("\nE\n"), "{text}");
}

#[test]
fn the_exit_status_is_the_programs_and_the_signal_that_ended_it() {
    let bench = Bench::empty();
    let run = |script: &str| bench.weft(&["run", "-q", "--volume", "mem:64M", "--", "sh", "-c", script]);
    run("exit 0").code(0);
    run("exit 7").code(7);
    run("kill -KILL $$").code(128 + 9);
    run("kill -TERM $$").code(128 + 15);
    bench.weft(&["run", "--volume", "mem:64M", "--nosuch", "--", "true"]).code(125);
    bench.weft(&["run", "--help"]).code(0);
}

#[test]
fn the_report_goes_to_standard_error_and_to_the_file_asked_for() {
    let bench = Bench::empty();
    let script = "dd if=/dev/zero of=/weft/x bs=4096 count=100 2>/dev/null; cat /weft/x >/dev/null; echo out";
    bench
        .weft(&[
            "run", "--volume", "mem:64M", "--report", "r.json", "--mode", "suffix", "--", "sh", "-c", script,
        ])
        .success()
        .stdout("out\n")
        .stderr(contains("exit status 0"))
        .stderr(contains("programs wrote"))
        .stderr(contains("mode suffix"));
    let text = std::fs::read_to_string(bench.path("r.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["version"], 1);
    assert_eq!(report["status"], 0);
    assert_eq!(report["command"][0], "sh");
    assert_eq!(report["during"]["core"]["user_bytes"], 409_600);
    assert!(report["during"]["programs"]["writes"]["count"].as_u64().unwrap() >= 100);
    assert!(report["waf"].as_f64().unwrap() >= 1.0);
}

#[test]
fn a_program_that_cannot_run_is_refused_before_anything_happens() {
    let bench = Bench::empty();
    let run = |program: &str| bench.weft(&["run", "--volume", "mem:64M", "--", program]);
    run("no-such-program").code(127).stderr(contains("not found in PATH"));
    bench.file("text", "not a program");
    run("./text").code(126).stderr(contains("not an executable file"));
    let path = bench.file("odd", "not a program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    run("./odd").code(126).stderr(contains("neither an ELF program"));
    run("/weft/program").code(126).stderr(contains("sh -c"));
    for at in ["weft", "/", "/a/../b", "/./w"] {
        bench
            .weft(&["run", "--volume", "mem:64M", "--at", at, "--", "true"])
            .code(125)
            .stderr(contains(format!("--at {at}:")));
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let bench = Bench::empty();
    let mut command = bench.command();
    command.args(["run", "--volume", "mem:64M", "--", "true"]).env("WEFT_SHIM", "/no/such.so");
    command.assert().code(125).stderr(contains("/no/such.so"));
}

#[test]
fn every_mode_is_compared_on_a_volume_of_its_own() {
    let bench = Bench::empty();
    // It would fail on a volume that another mode has used.
    let script = "mkdir /weft/once && head -c 300000 /dev/zero >/weft/once/f.log";
    bench
        .weft(&[
            "compare",
            "--size",
            "64M",
            "--modes",
            "off,rules",
            "--repeat",
            "2",
            "--json",
            "c.json",
            "--",
            "sh",
            "-c",
            script,
        ])
        .success()
        .stdout(contains("medians of 2 runs"))
        .stdout(contains("\nrules"));
    let text = std::fs::read_to_string(bench.path("c.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["modes"][1]["mode"], "rules");
    assert_eq!(all["modes"][0]["runs"].as_array().unwrap().len(), 2);
    assert_eq!(all["modes"][0]["runs"][0]["during"]["core"]["user_bytes"], 300_000);
}

#[test]
fn what_is_sent_to_weft_is_passed_on_to_the_program() {
    let bench = Bench::with_volume();
    let script = "trap 'echo caught >/weft/caught; exit 5' TERM; echo ready >ready; for i in $(seq 2000); do sleep 0.05; done";
    let child = bench.spawn(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script]);
    wait_for("the program runs", || bench.path("ready").exists());
    let told = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(told.unwrap().success());
    assert_eq!(status_of(child), Some(5));
    assert_eq!(bench.stdout(&["cat", "vol.img:/caught"]), "caught\n");
}

#[test]
fn a_process_that_the_program_left_is_waited_for() {
    let bench = Bench::with_volume();
    let script = "echo early >/weft/early; (sleep 1; echo late >/weft/late) >/dev/null 2>&1 & exit 0";
    bench
        .weft(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", script])
        .success()
        .stderr(contains("but 1 other process still uses the volume; waiting for it"));
    assert_eq!(bench.stdout(&["cat", "vol.img:/late"]), "late\n");
}

#[test]
fn a_program_joins_the_server_that_runs() {
    let bench = Bench::with_volume();
    let first = "echo 1 >/weft/first; echo ready >ready; for i in $(seq 2000); do [ -e /weft/second ] && exit 0; sleep 0.05; done; exit 1";
    let child = bench.spawn(&["run", "-q", "--volume", "vol.img", "--", "sh", "-c", first]);
    wait_for("the program runs", || bench.path("ready").exists());
    bench
        .weft(&["run", "--volume", "vol.img", "--", "sh", "-c", "cat /weft/first; echo 2 >/weft/second"])
        .success()
        .stdout("1\n")
        .stderr(contains("another process serves the volume"));
    assert_eq!(status_of(child), Some(0));
    assert_eq!(bench.stdout(&["ls", "vol.img:"]), "first\nsecond\n");
}

/// The command in a bash that sets a limit before; without the right to lift hard limits unless `may_lift`.
fn limited(bench: &Bench, limit: &str, may_lift: bool, args: &[&str]) -> std::process::Output {
    let weft = bench.command();
    let before: &[&str] =
        if may_lift { &["env"] } else { &["setpriv", "--inh-caps=-all", "--bounding-set=-all"] };
    let mut command = std::process::Command::new(before[0]);
    let script = format!("ulimit {limit} && exec \"$@\"");
    command.args(&before[1..]).args(["bash", "-c", &script, "bash"]);
    command.arg(weft.get_program()).args(args).current_dir(bench.dir());
    command.envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("WEFT_LOG");
    command.output().unwrap()
}

#[test]
fn limits_of_the_shell_are_the_programs_and_do_not_stop_the_server() {
    let bench = Bench::with_volume();
    let large = "seq 100000 > /weft/f && tail -n 1 /weft/f && ";
    for (limit, script, expected) in [
        ("-S -f 100", "seq 100 > /weft/g && tail -n 1 /weft/g && ulimit -S -f", "100\n100\n"),
        ("-S -v 100000", &format!("{large} ulimit -S -v"), "100000\n100000\n"),
        ("-S -s 64", &format!("{large} ulimit -S -s"), "100000\n64\n"),
        ("-S -n 20", &format!("{large} ulimit -S -n"), "100000\n20\n"),
    ] {
        let args = ["run", "-q", "--volume", "vol.img", "--", "bash", "-c", script];
        let ran = limited(&bench, limit, true, &args);
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{limit}: {told}");
        assert!(ran.status.success() && told.is_empty(), "{limit}: {told}");
    }
    let args = ["run", "-q", "--volume", "vol.img", "--", "bash", "-c", "seq 100000 > /weft/h"];
    // As natively, the limit ends the program; the server lives.
    assert_eq!(limited(&bench, "-S -f 100", true, &args).status.code(), Some(128 + libc::SIGXFSZ));
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_shell_forks_with_few_descriptors() {
    let bench = Bench::with_volume();
    let pipe = "cat /weft/f | tr a b && echo $(cat /weft/f) && (cat /weft/f; (cat /weft/f))";
    let nested =
        "x=$(y=$(cat /weft/f | tr a b); echo $y $y | cat); cat /weft/f | tr a b | tr b c | tr c d; echo $x";
    for (limit, script, expected) in [(6, pipe, "b\na\na\na\n"), (8, nested, "d\nb b\n")] {
        for shell in ["bash", "sh"] {
            // Without redirections: a shell keeps what they replace at a number from 10 up.
            let script = format!("echo a > /weft/f; ulimit -n {limit}; {script}");
            let ran = bench.weft(&["run", "-q", "--volume", "vol.img", "--", shell, "-c", &script]);
            ran.success().stdout(expected).stderr("");
        }
    }
}

#[test]
fn a_limit_that_cannot_be_lifted_is_named_with_what_is_needed() {
    let bench = Bench::with_volume();
    let args = ["run", "-q", "--volume", "vol.img", "--", "true"];
    for (limit, told) in [
        ("-f 100", "the limit on file size (ulimit -f) is 100 KiB; weft needs 262144 KiB"),
        ("-v 600000", "the limit on address space (ulimit -v) is 600000"),
        ("-s 64", "the limit on stack (ulimit -s) is 64 KiB; weft needs 1024 KiB"),
        ("-n 20", "the limit on open files (ulimit -n) is 20; weft needs 64"),
    ] {
        let ran = limited(&bench, limit, false, &args);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains(told), "{limit}: {said}");
        assert_eq!(ran.status.code(), Some(125), "{limit}: {said}");
    }
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn a_standard_error_that_takes_nothing_stops_no_program() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let bench = Bench::empty();
    let weft = bench.command();
    let mut command = std::process::Command::new(weft.get_program());
    command.envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["run", "--volume", "mem:64M", "--", "sh", "-c", "echo kept > /weft/f; sync; cat /weft/f"]);
    let output = command.env("WEFT_LOG", "trace").stderr(full).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"kept\n"[..]));
}
