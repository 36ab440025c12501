//! A server in a process of its own, on an image in a file, to be killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weft_client::Client;
use weft_device::{Geometry, ZonedModel};
use weft_server::{Server, Volume};
use weft_volume::MountChoice;

/// The environment variable that names the image.
const IMAGE: &str = "WEFT_TEST_IMAGE";

/// A formatted image of 64 MiB.
pub fn image_in(dir: &Path) -> PathBuf {
    let image = dir.join("image");
    let geometry = Geometry::preset("bbssd").unwrap().with_size(64 << 20).with_zone_bytes(1 << 20);
    let device = ZonedModel::create(&image, &geometry, false, &mut |_, _| {}).unwrap();
    weft_volume::format(std::sync::Arc::new(device), "test", "").unwrap();
    image
}

/// The socket of its server.
pub fn socket_of(image: &Path) -> PathBuf {
    image.with_extension("sock")
}

/// Serves until it is killed, or its standard input ends: the test `serve` of whoever begins a [`Served`].
pub fn serve() {
    let image = PathBuf::from(std::env::var_os(IMAGE).unwrap());
    let mounted = std::sync::Arc::new(weft_volume::open(&image, &MountChoice::default()).unwrap());
    let server = Server::start(Volume::new(mounted.clone()).unwrap(), &socket_of(&image)).unwrap();
    println!("serving");
    let _ = std::io::stdin().read_line(&mut String::new());
    server.stop();
    mounted.close().unwrap();
}

/// A server in another process.
pub struct Served(pub Child);

impl Served {
    pub fn begin(image: &Path) -> Served {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "serve"])
            .env(IMAGE, image)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("serving")), "the server did not start");
        // What it prints later goes nowhere, and must not fail.
        std::thread::spawn(move || lines.for_each(drop));
        Served(child)
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server in another process, and a client of it in this one.
pub fn begin(image: &Path) -> (Served, Client) {
    let served = Served::begin(image);
    (served, super::connect(socket_of(image).to_str().unwrap().as_bytes()))
}
