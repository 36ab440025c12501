//! The guest's kernel and its tools: Debian packages, downloaded once by apt-get and unpacked in the cache.

use crate::error::CliError;
use crate::say::warn;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL_PACKAGE: &str = "linux-image-amd64";
const BUSYBOX_PACKAGE: &str = "busybox-static";

/// How the folder of a run is called, with the number of its process behind.
pub const RUN_PREFIX: &str = "run-";

/// Where the lab keeps what it has downloaded and built.
pub struct Cache {
    dir: PathBuf,
}

/// An unpacked kernel package.
pub struct Kernel {
    /// The image to boot.
    pub image: PathBuf,
    /// The folder with its modules.
    pub modules: PathBuf,
    /// A folder of its own for what is built from it.
    pub dir: PathBuf,
    /// The statically linked busybox for the first process.
    pub busybox: PathBuf,
}

impl Cache {
    /// The lab's folder in the user's cache.
    pub fn find() -> Result<Cache, CliError> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        let Some(base) = base else {
            return Err(CliError::said(
                "the lab has no cache directory: neither XDG_CACHE_HOME nor HOME is an absolute path",
                "set XDG_CACHE_HOME to a writable directory",
            ));
        };
        let cache = Cache { dir: base.join("weft").join("lab") };
        cache.folder("")?;
        Ok(cache)
    }

    /// A folder in it, made when it is not there.
    pub fn folder(&self, name: &str) -> Result<PathBuf, CliError> {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir).map_err(|e| CliError::io("make", &dir, e))?;
        Ok(dir)
    }

    /// Removes the folders of runs that were killed: their drives may be large.
    pub fn remove_left_runs(&self) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(RUN_PREFIX)?.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// The kernel of a package, or the cached one, downloaded when there is none yet.
    pub fn kernel(&self, deb: Option<&Path>, quiet: bool) -> Result<Kernel, CliError> {
        let dir = match deb {
            Some(deb) => self.unpack(deb)?,
            None => match self.newest("linux-image-") {
                Some(dir) => dir,
                None => self.unpack(&self.download(&kernel_package()?, "--kernel", quiet)?)?,
            },
        };
        let busybox = match self.newest("busybox-static") {
            Some(dir) => dir,
            None => self.unpack(&self.download(BUSYBOX_PACKAGE, "", quiet)?)?,
        };
        let strange = || {
            CliError::of(
                &dir,
                "the package contains no boot/vmlinuz-* with its lib/modules",
                "give a Debian kernel package with --kernel, such as linux-image-6.1.0-*-amd64_*.deb",
            )
        };
        let image = entry(&dir.join("boot"), "vmlinuz-").ok_or_else(strange)?;
        let modules = ["lib/modules", "usr/lib/modules"].iter().find_map(|at| entry(&dir.join(at), ""));
        let busybox =
            ["bin/busybox", "usr/bin/busybox"].iter().map(|at| busybox.join(at)).find(|b| b.is_file());
        let Some(busybox) = busybox else {
            return Err(CliError::of(
                &self.dir,
                "the directory contains no busybox",
                format!("remove {}; the next run downloads it again", self.dir.display()),
            ));
        };
        Ok(Kernel { image, modules: modules.ok_or_else(strange)?, dir, busybox })
    }

    /// The unpacked package whose name begins so; the last in the order of names.
    fn newest(&self, prefix: &str) -> Option<PathBuf> {
        entry(&self.dir, prefix).filter(|dir| dir.is_dir())
    }

    /// Downloads a package without installing it.
    fn download(&self, package: &str, option: &str, quiet: bool) -> Result<PathBuf, CliError> {
        let dir = self.folder(&format!("download-{}", std::process::id()))?;
        if !quiet {
            warn(format_args!("downloading {package} to {} (once)", self.dir.display()));
        }
        let done = done(Command::new("apt-get").arg("download").arg(package).current_dir(&dir));
        let found = entry(&dir, "").filter(|deb| deb.extension() == Some(OsStr::new("deb")));
        match (done, found) {
            (Ok(_), Some(deb)) => Ok(deb),
            (Ok(why) | Err(why), _) => {
                let _ = std::fs::remove_dir_all(&dir);
                let or = if option.is_empty() {
                    String::new()
                } else {
                    format!(", or give the package with {option} DEB")
                };
                Err(CliError::said(
                    format!("the package {package} cannot be downloaded: {why}"),
                    format!("try 'apt-get update' and 'apt-get download {package}'{or}"),
                ))
            }
        }
    }

    /// Unpacks a package; its folder bears the package's name. A downloaded package goes.
    fn unpack(&self, deb: &Path) -> Result<PathBuf, CliError> {
        let missing = |e| CliError::io("read", deb, e);
        let name = deb.file_stem().ok_or_else(|| missing(io::ErrorKind::InvalidInput.into()))?;
        std::fs::metadata(deb).map_err(missing)?;
        let dir = self.dir.join(name);
        if dir.is_dir() {
            return Ok(dir);
        }
        let made = self.folder(&format!("unpack-{}", std::process::id()))?;
        if let Err(why) = done(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&made)) {
            let _ = std::fs::remove_dir_all(&made);
            return Err(CliError::of(
                deb,
                format_args!("cannot be unpacked: {why}"),
                "give a Debian package (.deb); 'apt-get install dpkg' installs dpkg-deb",
            ));
        }
        // Whoever comes second finds the folder of the first, with the same content.
        if std::fs::rename(&made, &dir).is_err() {
            let _ = std::fs::remove_dir_all(&made);
        }
        if let Some(parent) = deb.parent().filter(|parent| parent.starts_with(&self.dir)) {
            let _ = std::fs::remove_dir_all(parent);
        }
        Ok(dir)
    }
}

/// Runs a program to its end; what it said on standard error, or why it did not start.
fn done(command: &mut Command) -> Result<String, String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// The package that the kernel's metapackage stands for at present.
fn kernel_package() -> Result<String, CliError> {
    let failed = |why: String| {
        CliError::said(
            format!("the kernel package cannot be found: {why}"),
            format!(
                "run 'apt-get update' and check 'apt-cache depends {KERNEL_PACKAGE}', or give a package with --kernel DEB"
            ),
        )
    };
    let output = Command::new("apt-cache")
        .args(["depends", "--important", KERNEL_PACKAGE])
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| failed(format!("apt-cache: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut named = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = named.find(|name| name.starts_with("linux-image-"));
    package.map(str::to_string).ok_or_else(|| failed(format!("{KERNEL_PACKAGE} is not known to apt")))
}

/// The entry of a folder whose name begins so; the last in the order of names.
fn entry(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let fits =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries.filter(fits).max()
}
