//! The Python package: the page on weft from Python is followed to the letter against the wheel as `make python` builds it, and the package's
//! own tests run against a served volume and a mounted one.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skips"
)]

mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::{Served, library_directory};
use weft_client::FileRef;
use weft_fuse::{Kept, Mount, MountChoice};

const PAGE: &str = include_str!("../../../docs/how-to/use-weft-from-python.md");

/// A program whose server ends between its line of output and the next run. It leaves its files and connection to the finalisers, too.
const SERVER_ENDS: &str = r"
import errno, sys, weft

volume = weft.connect()
file = volume.open('/')
chain = weft.Chain()
chain.create('/file')
volume.run(chain)
batch = weft.Batch(volume)
batch.add(chain)
print('ready', flush=True)
sys.stdin.read()
told = []
for call in (lambda: volume.run(chain), batch.run, lambda: volume.open('/')):
    try:
        call()
    except OSError as error:
        told.append(errno.errorcode[error.errno])
print(*told)
";

/// The blocks of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    PAGE.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command, which is to succeed.
fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [&output.stdout, &output.stderr].map(|told| String::from_utf8_lossy(told));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

/// The machine's Python, of a version that the package is for.
fn python() -> Command {
    let is_new_enough = "import sys; sys.exit(sys.version_info < (3, 9))";
    match Command::new("python3").args(["-c", is_new_enough]).status() {
        Ok(status) if status.success() => (),
        Ok(_) => panic!("python3 is too old for the Python package; install Python 3.9 or later"),
        Err(error) => panic!(
            "python3 cannot be run ({error}), which the tests of the Python package need; install python3 and python3-venv"
        ),
    }
    let mut command = Command::new("python3");
    // The sources stay as they are, and nothing of them gets in before the wheel.
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH").env_remove("WEFT_LIBRARY");
    command
}

/// Has `make python` put the wheel with the library of this build into `target` below a directory. Nothing is compiled again.
fn build_wheel(weft: &Path) -> PathBuf {
    // What is missing is told in its own words, not in those of make.
    python();
    let target = weft.join("target");
    std::fs::create_dir_all(target.join("release")).unwrap();
    let library = "libweft_c.so";
    std::os::unix::fs::symlink(library_directory().join(library), target.join("release").join(library))
        .unwrap();
    let mut make = Command::new("make");
    make.args(["python", "CARGO=true"])
        .arg(format!("CARGO_TARGET_DIR={}", target.display()))
        .current_dir(sources())
        .env_remove("MAKEFLAGS");
    output(&mut make);
    let name = format!("weft-{}-py3-none-linux_{}.whl", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    target.join(name)
}

/// The package as a wheel has it, in a directory.
fn unpacked(scratch: &Path) -> PathBuf {
    let (wheel, package) = (build_wheel(scratch), scratch.join("package"));
    output(python().args(["-m", "zipfile", "-e"]).args([&wheel, &package]));
    package
}

/// The package's own tests.
fn own_tests(package: &Path, modules: &[&str]) -> Command {
    let mut command = python();
    command
        .args(["-m", "unittest"])
        .args(modules)
        .current_dir(sources().join("bindings/python/tests"))
        .env("PYTHONPATH", package);
    command
}

#[test]
fn the_page_installs_the_package_and_its_programs_say_what_they_do() {
    let served = Served::new();
    let scratch = served.scratch.path();
    assert!(build_wheel(scratch).exists(), "the wheel has another name");
    let [install] = blocks("sh")[..] else { panic!("the page has other commands than those that install") };
    let mut bash = Command::new("bash");
    bash.args(["-euc", install]).current_dir(scratch).env("WEFT", scratch);
    output(bash.env_remove("PYTHONPATH").env_remove("WEFT_LIBRARY"));

    let mount_dir = scratch.join("mnt");
    std::fs::create_dir(&mount_dir).unwrap();
    let run = |program: &str| {
        let file = scratch.join("program.py");
        std::fs::write(&file, program).unwrap();
        let mut command = Command::new(scratch.join("env/bin/python"));
        command.arg(&file).arg(&mount_dir).env("WEFT_SOCKET", &served.socket);
        text(output(command.env_remove("PYTHONPATH").env_remove("WEFT_LIBRARY")))
    };
    let [swap, compare_and_swap, verify, many_times, through_a_mount] = blocks("python")[..] else {
        panic!("the page has other programs than this test knows")
    };
    assert_eq!(run(swap), "b'verbose = true\\n'\n");
    assert_eq!(served.content(b"/config"), b"verbose = true\n");

    let client = served.client();
    let manifest =
        client.open(FileRef::ROOT, b"/MANIFEST", libc::O_CREAT | libc::O_WRONLY, 0o644).unwrap().file;
    client.pwrite(manifest, b"version 7", 0).unwrap();
    assert_eq!(run(compare_and_swap), "version 8 is there\n");
    assert_eq!(run(compare_and_swap), "somebody was faster: version 8\n");
    assert_eq!(served.content(b"/MANIFEST"), b"version 8");

    assert_eq!(run(verify), "b'a block'\noperation 5 (verify) failed: Bad message\n");
    assert_eq!(run(many_times), "0\n6\n13\n");
    assert_eq!(served.content(b"/log"), b"first\nsecond\nthird\n");

    let Some(mount) = mount(&served, &mount_dir) else { return };
    std::fs::remove_file(mount_dir.join("config")).unwrap();
    let names = run(through_a_mount);
    assert!(names.contains("'config'") && !names.contains("config.new"), "{names}");
    assert_eq!(served.content(b"/config"), b"verbose = true\n");
    mount.unmount().unwrap();
}

#[test]
fn the_package_does_what_its_own_tests_say() {
    let served = Served::new();
    let package = unpacked(served.scratch.path());
    let modules = ["test_operations", "test_chains", "test_connections", "test_wheel"];
    output(own_tests(&package, &modules).env("WEFT_SOCKET", &served.socket));
}

#[test]
fn chains_run_through_a_mount() {
    let served = Served::new();
    let package = unpacked(served.scratch.path());
    let dir = served.scratch.path().join("mnt");
    std::fs::create_dir(&dir).unwrap();
    let Some(mount) = mount(&served, &dir) else { return };
    output(own_tests(&package, &["test_mount"]).env("WEFT_MOUNT", &dir));
    mount.unmount().unwrap();
}

#[test]
fn a_server_that_ends_is_told_by_the_next_run() {
    let served = Served::new();
    let package = unpacked(served.scratch.path());
    let mut command = python();
    command.args(["-c", SERVER_ENDS]).env("PYTHONPATH", &package).env("WEFT_SOCKET", &served.socket);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    served.server.stop();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{}: {told}", output.status);
    assert_eq!((&ready, text(output).as_str()), (b"ready\n", "EIO EIO EIO\n"));
}

#[test]
fn what_is_to_be_durable_is_flushed_and_nothing_else() {
    let served = Served::new();
    let package = unpacked(served.scratch.path());
    let flushes = |call: &str, durable: &str| {
        let before = served.device.counters().flushes;
        let program = format!(
            "import os, weft\n\
             durable = {durable}\n\
             chain = weft.Chain(durable=durable)\n\
             chain.append(chain.create('/file'), b'some data')\n\
             with weft.connect() as volume, volume.open('/file', os.O_CREAT | os.O_RDWR) as file:\n\
             \x20   {call}\n"
        );
        let mut command = python();
        command.args(["-c", &program]).env("PYTHONPATH", &package).env("WEFT_SOCKET", &served.socket);
        output(&mut command);
        served.device.counters().flushes - before
    };
    for call in [
        "volume.run(chain)",
        "volume.open_write('/file', b'other data', durable=durable)",
        "file.write_close(b'other data', durable=durable)",
        "file.read_modify_write(0, 4, 0, b'data', durable=durable)",
        "file.write_checksum(b'data', durable=durable)",
    ] {
        // On a busy machine the server may flush meanwhile, because some time has passed.
        assert!((0..5).any(|_| flushes(call, "False") == 0), "{call} flushes though it need not");
        assert!(flushes(call, "True") > 0, "{call} is not flushed");
    }
}

/// The served volume on a directory, where this user can mount.
fn mount(served: &Served, dir: &Path) -> Option<Mount> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if device.is_err() || weft_sys::effective_user().0 != 0 {
        eprintln!("skipped: this user cannot mount");
        return None;
    }
    let choice = MountChoice { source: "mem".into(), ..MountChoice::default() };
    Some(Mount::new(served.server.volume().clone(), dir, &choice, Kept::new().unwrap()).unwrap())
}
