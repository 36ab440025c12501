//! What the tests share: the library, compiled probes, a served volume.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weft_device::Geometry;
use weft_placement::Mode;
use weft_server::{Server, Volume};
use weft_volume::{Device, MountChoice};

/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Path of the library that cargo built beside this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libweft_shim.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// The library that a probe needs besides libc; `-static` at the end of its name: as a part of the program.
fn library_of(probe: &str) -> Option<&'static str> {
    match probe {
        "libaio" => Some("libaio.so"),
        "libaio-static" => Some("libaio.a"),
        "liburing" => Some("liburing.so"),
        "liburing-static" => Some("liburing.a"),
        _ => None,
    }
}

/// Whether this system has what a probe needs besides libc; says so when it has not.
pub fn can_build(name: &str) -> bool {
    let Some(library) = library_of(name) else { return true };
    let found = Command::new("cc").arg(format!("-print-file-name={library}")).output().unwrap();
    // The compiler prints the bare name when it finds none.
    let can = found.stdout.contains(&b'/');
    if !can {
        eprintln!("skipped: the probe {name} needs {library} (Debian: libaio-dev, liburing-dev)");
    }
    can
}

/// Compiles a probe; its program.
pub fn probe(name: &str) -> PathBuf {
    static PROBES: OnceLock<TempDir> = OnceLock::new();
    static MADE: AtomicU32 = AtomicU32::new(0);
    let dir = PROBES.get_or_init(|| tempfile::tempdir().unwrap()).path();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes");
    let stem = name.trim_end_matches("-static");
    let (source, compiler) = match sources.join(format!("{stem}.cc")) {
        source if source.exists() => (source, "c++"),
        _ => (sources.join(format!("{stem}.c")), "cc"),
    };
    let program = dir.join(format!("{name}-{}", MADE.fetch_add(1, Ordering::Relaxed)));
    let compiled = Command::new(compiler)
        .args([
            "-O1",
            "-Wall",
            "-Wno-unused-result",
            "-Wno-nonnull",
            "-Wno-unused-function",
            "-Wno-fortify-source",
        ])
        .args(["-Wno-stringop-overflow", "-Wno-deprecated-declarations"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        // Bound at once: what the loader needs for a first call is not the library's.
        .args(["-Wl,-z,now", "-lpthread", "-lutil"])
        .args(library_of(name).map(|library| format!("-l:{library}")))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    };
    let out = read(Box::new(child.stdout.take().unwrap()));
    let err = read(Box::new(child.stderr.take().unwrap()));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                child.kill().unwrap();
                panic!("{command:?} hangs");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// What a run printed, with how it ended.
pub fn said(output: &Output) -> String {
    format!(
        "{}{}[{}]",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status
    )
}

/// The first line in which two texts differ, for a message that can be read.
pub fn difference(native: &str, weft: &str) -> Option<String> {
    let (mut a, mut b) = (native.lines(), weft.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (a.next(), b.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => return Some(format!("line {number}\n  native: {a:?}\n  weft:   {b:?}")),
        }
    }
}

/// A served volume, fresh.
pub struct Served {
    server: Option<Server>,
    device: Device,
    choice: MountChoice,
    id: u64,
    socket: PathBuf,
    _dir: TempDir,
}

impl Served {
    /// `leases`: clients read and append without the server.
    pub fn new(leases: bool) -> Served {
        let geometry = Geometry::preset("bbssd").unwrap().with_size(96 << 20).with_zone_bytes(1 << 20);
        let choice = MountChoice {
            mode: Mode::Suffix,
            dirty_bytes_max: Some(1 << 20),
            leases,
            ..MountChoice::default()
        };
        let mounted = weft_volume::open_memory("mem".into(), &geometry, &choice).unwrap();
        let (device, id) = (mounted.device().unwrap().clone(), mounted.id());
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let server = Server::start(Volume::new(Arc::new(mounted)).unwrap(), &socket).unwrap();
        Served { server: Some(server), device, choice, id, socket, _dir: dir }
    }

    /// Another server serves the volume at the same socket.
    pub fn restart(&mut self) {
        self.serve_again(false);
    }

    /// As [`Served::restart`]; nothing can be changed from then on.
    pub fn restart_read_only(&mut self) {
        self.serve_again(true);
    }

    fn serve_again(&mut self, read_only: bool) {
        self.shell("sync");
        self.stop();
        let choice = MountChoice { read_only, ..self.choice.clone() };
        let mounted = weft_volume::mount(self.device.clone(), "mem".into(), &choice).unwrap();
        assert_eq!(mounted.id(), self.id, "it is the same volume");
        self.server = Some(Server::start(Volume::new(Arc::new(mounted)).unwrap(), &self.socket).unwrap());
    }

    /// A command that sees the volume at `/weft`.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("WEFT_SOCKET", &self.socket).env("WEFT_AT", "/weft");
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Runs a shell script that sees the volume at `/weft`; what it printed.
    pub fn shell(&self, script: &str) -> String {
        said(&run(self.command("bash").args(["-c", script])))
    }

    /// Lines of the report about what was refused.
    pub fn notes(&self) -> Vec<String> {
        let view = self.server.as_ref().unwrap().volume().program_view();
        view.notes.into_iter().map(|(line, _)| line).collect()
    }

    /// Processes that are connected.
    pub fn clients(&self) -> usize {
        self.server.as_ref().unwrap().clients()
    }

    /// Waits until nobody is connected.
    pub fn is_idle_soon(&self) -> bool {
        self.server.as_ref().unwrap().wait_idle(Duration::from_secs(5))
    }

    /// Files that stand for inodes of the volume in memory, in the order of their names.
    pub fn memory_files(&self) -> Vec<PathBuf> {
        // SAFETY: a system call without arguments.
        let user = unsafe { libc::geteuid() };
        let dir = PathBuf::from(format!("/dev/shm/weft-{}-{user}", self.id));
        let entries = fs::read_dir(dir).into_iter().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Stops the server, as if it had gone.
    pub fn stop(&mut self) {
        drop(self.server.take());
    }
}

/// A directory of the native file system.
pub fn native() -> TempDir {
    // Not below /tmp: that may be a file system without extended attributes.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Removes what a run left behind.
pub fn clear(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}
