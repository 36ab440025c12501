//! What the tests share: the library, programs in C that are compiled against it, and a served volume.

#![allow(dead_code, clippy::unwrap_used, reason = "a test fails by panicking, and uses what it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use weft_client::{Client, ConnectOptions, FileRef};
use weft_device::Geometry;
use weft_server::{Server, Volume};
use weft_volume::{Device, MountChoice};

/// The directory with the libraries: that of the test's own program, or the one above.
pub fn library_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().skip(1).find(|directory| directory.join("libweft_c.so").exists());
    found.unwrap().to_path_buf()
}

/// Compiles a program without a warning. It needs the [`library_directory`] in `LD_LIBRARY_PATH`.
pub fn compile(source: &Path, program: &Path) {
    compile_with(source, program, &["libweft_c.so"], &[]);
}

/// The same, with all that it needs in it.
pub fn compile_statically(source: &Path, program: &Path) {
    compile_with(source, program, &["libweft_c.a"], &["-static", "-lpthread", "-lm", "-ldl"]);
}

fn compile_with(source: &Path, program: &Path, libraries: &[&str], options: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([program, source])
        .arg("-I")
        .arg(here.join("include"))
        .args(libraries.iter().map(|library| library_directory().join(library)))
        .args(options)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// A served volume, and a directory for programs.
pub struct Served {
    pub scratch: TempDir,
    pub socket: PathBuf,
    pub device: Device,
    pub server: Server,
}

impl Served {
    pub fn new() -> Served {
        let geometry = Geometry::preset("bbssd").unwrap().with_size(96 << 20).with_zone_bytes(1 << 20);
        let mounted = weft_volume::open_memory("mem".into(), &geometry, &MountChoice::default()).unwrap();
        let device = mounted.device().unwrap().clone();
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("socket");
        let server = Server::start(Volume::new(Arc::new(mounted)).unwrap(), &socket).unwrap();
        Served { scratch, socket, device, server }
    }

    /// As another process.
    pub fn client(&self) -> Client {
        let socket_path = self.socket.to_str().unwrap().as_bytes();
        Client::connect(&ConnectOptions { socket_path, mount_point: b"/weft" }).unwrap()
    }

    /// The content of a file, as another process sees it.
    pub fn content(&self, path: &[u8]) -> Vec<u8> {
        let client = self.client();
        let file = client.open(FileRef::ROOT, path, libc::O_RDONLY, 0).unwrap().file;
        let mut bytes = vec![0; 256];
        let len = client.pread(file, &mut bytes, 0).unwrap();
        bytes.truncate(len);
        bytes
    }
}
