//! The guest's first file system: busybox, the kernel modules that the lab needs in the order of their loading, and
//! the first process. It is an archive in cpio's "newc" format, uncompressed: the guest would only have to unpack it.

use super::kernel::{Cache, Kernel};
use crate::error::CliError;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// Modules that every guest loads; what they depend on comes along. Those that have no file are built into the kernel.
const MODULES: [&str; 13] = [
    "crc32c_intel",
    "crc32c_generic",
    "crc32_generic",
    "crc32_pclmul",
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "9pnet_virtio",
    "9p",
    "nvme",
    "zonefs",
    "f2fs",
    "fuse",
];

/// Modules that a guest loads on request.
pub const OPTIONAL: [&str; 2] = ["btrfs", "null_blk"];

const INIT: &str = include_str!("init.sh");
const DIRECTORY: u32 = 0o40755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// A module's name and content.
type Module = (String, Vec<u8>);
/// A file that could not be read, and why.
type Unreadable = (PathBuf, io::Error);

/// Builds the file system of a kernel, unless it is there already; returns its path.
pub fn build(cache: &Cache, kernel: &Kernel) -> Result<PathBuf, CliError> {
    let recipe = [INIT, &MODULES.concat(), &OPTIONAL.concat()].concat();
    let tag = weft_core::checksum::crc32c(recipe.as_bytes());
    let path = kernel.dir.join(format!("initramfs-{tag:08x}.cpio"));
    if path.is_file() {
        return Ok(path);
    }
    let archive = archive(kernel).map_err(|(at, e)| CliError::io("read", &at, e))?;
    let part = cache.folder("")?.join(format!("initramfs-{}.part", std::process::id()));
    std::fs::write(&part, archive).map_err(|e| CliError::io("write", &part, e))?;
    std::fs::rename(&part, &path).map_err(|e| CliError::io("write", &path, e))?;
    Ok(path)
}

fn archive(kernel: &Kernel) -> Result<Vec<u8>, Unreadable> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| (path.to_path_buf(), e));
    let mut cpio = Cpio::default();
    for dir in ["bin", "modules", "proc", "sys", "dev", "host", "control", "seen"] {
        cpio.add(dir, DIRECTORY, &[]);
    }
    cpio.add("bin/busybox", PROGRAM, &read(&kernel.busybox)?);
    cpio.add("init", PROGRAM, INIT.as_bytes());
    let files = list_modules(&kernel.modules).map_err(|e| (kernel.modules.clone(), e))?;
    let mut done = HashSet::new();
    let lists = [("order", &MODULES[..])]
        .into_iter()
        .chain(OPTIONAL.iter().map(|name| (*name, std::slice::from_ref(name))));
    for (list, wanted) in lists {
        let mut order = String::new();
        for (name, content) in modules(wanted, &files, &mut done)? {
            cpio.add(&format!("modules/{name}.ko"), FILE, &content);
            order.push_str(&name);
            order.push('\n');
        }
        let name =
            if list == "order" { "modules/order".to_string() } else { format!("modules/order-{list}") };
        cpio.add(&name, FILE, order.as_bytes());
    }
    Ok(cpio.finish())
}

/// The wanted modules and all that they depend on and is not done yet, each behind its dependencies.
fn modules(
    wanted: &[&str],
    files: &HashMap<String, PathBuf>,
    done: &mut HashSet<String>,
) -> Result<Vec<Module>, Unreadable> {
    let mut order = Vec::new();
    for name in wanted {
        add_module(name, files, done, &mut order)?;
    }
    Ok(order)
}

fn add_module(
    name: &str,
    files: &HashMap<String, PathBuf>,
    done: &mut HashSet<String>,
    order: &mut Vec<Module>,
) -> Result<(), Unreadable> {
    let name = name.replace('-', "_");
    let Some(path) = files.get(&name) else { return Ok(()) };
    if !done.insert(name.clone()) {
        return Ok(());
    }
    let content = std::fs::read(path).map_err(|e| (path.clone(), e))?;
    for needed in dependencies(&content) {
        add_module(&needed, files, done, order)?;
    }
    order.push((name, content));
    Ok(())
}

/// What a module's own description says that it depends on.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else { return Vec::new() };
    let list = module[at + KEY.len()..].split(|b| *b == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(list).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect()
}

/// The files of modules, by name.
fn list_modules(dir: &Path) -> io::Result<HashMap<String, PathBuf>> {
    let mut files = HashMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                dirs.push(path);
            } else if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".ko")) {
                files.insert(name.replace('-', "_"), path.clone());
            }
        }
    }
    Ok(files)
}

/// An archive under construction.
#[derive(Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let len = content.len();
        let name_len = name.len() + 1;
        // Magic, inode, mode, user, group, links, time, length, device, special device, length of the name, checksum.
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{len:08x}{:08x}{:08x}{:08x}{:08x}{name_len:08x}{:08x}",
            self.entries, 0, 0, 1, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_behind_what_it_depends_on() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("kernel/fs");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join("9p.ko"), b"\x7fELF\0license=GPL\0depends=9pnet,net-fs\0x").unwrap();
        std::fs::write(sub.join("9pnet.ko"), b"\x7fELF\0depends=net-fs\0").unwrap();
        std::fs::write(sub.join("net-fs.ko"), b"\x7fELF\0depends=\0").unwrap();
        std::fs::write(sub.join("other.ko"), b"\x7fELF\0depends=\0").unwrap();
        let files = list_modules(dir.path()).unwrap();
        let mut done = HashSet::new();
        let mut names = |wanted: &[&str]| -> Vec<String> {
            modules(wanted, &files, &mut done).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&["9p", "built-in"]), ["net_fs", "9pnet", "9p"]);
        assert_eq!(names(&["other", "9pnet"]), ["other"], "what is done is not done again");
    }

    #[test]
    fn an_archive_entry_is_padded_to_four_bytes() {
        let mut cpio = Cpio::default();
        cpio.add("a", FILE, b"12345");
        let header = 110;
        assert_eq!(&cpio.bytes[..6], b"070701");
        assert_eq!(&cpio.bytes[header..header + 2], b"a\0");
        assert_eq!(&cpio.bytes[112..120], b"12345\0\0\0");
        assert!(cpio.finish().len().is_multiple_of(4));
    }
}
