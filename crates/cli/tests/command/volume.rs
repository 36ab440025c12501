//! A directory with a volume in it, and the command.

use assert_cmd::Command;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// What is not there after this long will not come.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A directory that goes at the end of the test, with sockets of its own.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// An empty directory.
    pub fn empty() -> Bench {
        // A shell's background job ignores some signals, and what it starts keeps that.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            // SAFETY: the default action of a signal of this process, whose tests handle none.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    /// A directory with a fresh volume `vol.img` of 64 MiB.
    pub fn with_volume() -> Bench {
        let bench = Bench::empty();
        bench.weft(&["format", "--quiet", "--size", "64M", "--zone-size", "1M", "vol.img"]).success();
        bench
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// The command, run in the directory.
    pub fn command(&self) -> Command {
        let mut command = Command::cargo_bin("weft").unwrap();
        command.current_dir(self.dir()).env("XDG_RUNTIME_DIR", self.dir()).env_remove("WEFT_LOG");
        command.env("WEFT_SHIM", shim());
        command.timeout(2 * PATIENCE);
        command
    }

    /// Runs the command with these arguments.
    pub fn weft(&self, args: &[&str]) -> assert_cmd::assert::Assert {
        self.command().args(args).assert()
    }

    /// Starts the command with these arguments.
    pub fn spawn(&self, args: &[&str]) -> std::process::Child {
        self.process(args).spawn().unwrap()
    }

    /// The command with these arguments, to be started with pipes.
    pub fn process(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"));
        command
            .args(args)
            .current_dir(self.dir())
            .env("XDG_RUNTIME_DIR", self.dir())
            .env("WEFT_SHIM", shim())
            .stdout(std::process::Stdio::piped());
        // SAFETY: prctl only asks the kernel for a signal, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // A test that fails leaves nobody behind who serves for ever.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        command
    }

    /// Standard output of a command that succeeds.
    pub fn stdout(&self, args: &[&str]) -> String {
        String::from_utf8(self.weft(args).success().get_output().stdout.clone()).unwrap()
    }

    /// Standard output as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.stdout(args)).unwrap()
    }

    /// Writes a file in the directory.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Waits until something holds; a test that waits in vain fails instead of hanging.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Waits for a child's exit status; one that does not end is killed.
pub fn status_of(mut child: std::process::Child) -> Option<i32> {
    let begun = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the command did not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The preloaded library, as it was built for this test.
pub fn shim() -> PathBuf {
    let beside_tests = std::env::current_exe().unwrap().with_file_name("libweft_shim.so");
    assert!(beside_tests.is_file(), "{}", beside_tests.display());
    beside_tests
}

/// Bytes that look like nothing else, the same in every run.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
