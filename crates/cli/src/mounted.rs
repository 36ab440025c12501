//! Where volumes are mounted, as the kernel tells.

use crate::error::CliError;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use weft_fuse::unmount;
use weft_sys::effective_user;
use weft_volume::spec::Place;

/// What the kernel shows as the type of a mounted volume.
const TYPE: &[u8] = b"fuse.weft";

/// A server answers within this time, or it does not answer.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// Something that is mounted.
pub struct Mounted {
    /// What the kernel shows as its source.
    pub source: PathBuf,
    /// Where.
    pub dir: PathBuf,
    kind: Vec<u8>,
    options: Vec<u8>,
}

impl Mounted {
    /// Whether it is a volume.
    pub fn is_volume(&self) -> bool {
        self.kind == TYPE
    }

    /// Whether its source is what it says, as far as this user is concerned: root does not believe others.
    pub fn is_believed(&self) -> bool {
        self.is_of_root() || effective_user().0 != 0
    }

    /// Whether root has mounted it. What others mount may be anything, whatever it is called.
    pub fn is_of_root(&self) -> bool {
        self.options.split(|&byte| byte == b',').any(|option| option == b"user_id=0")
    }
}

/// Where a volume is mounted, if it is. A mount whose server has ended is none.
pub fn mounted_on(volume: &Path) -> Option<PathBuf> {
    mount_of(volume).map(|mount| mount.dir)
}

/// The last mount of a volume whose server lives.
pub fn mount_of(volume: &Path) -> Option<Mounted> {
    let volume = Place::of(volume).plain_name().ok()?;
    let all = mounts().ok()?;
    let is_it = |mount: &Mounted| mount.is_volume() && mount.source == volume && mount.is_believed();
    all.into_iter().rev().find(|mount| is_it(mount) && !is_dead(&mount.dir))
}

/// Whether the server of what is mounted on a directory has ended. One that does not answer has not.
pub fn is_dead(dir: &Path) -> bool {
    let (answer, answers) = mpsc::channel();
    let dir = dir.to_path_buf();
    // Such a server may be stopped: this process must not wait for it.
    let asked = std::thread::Builder::new().spawn(move || answer.send(has_no_server(&dir)));
    asked.is_ok() && answers.recv_timeout(ANSWER_PATIENCE).unwrap_or(false)
}

fn has_no_server(dir: &Path) -> bool {
    // The kernel may have kept attributes; this it always asks the server. The other error is that of a server that ends meanwhile.
    rustix::fs::statfs(dir).is_err_and(|error| matches!(error, Errno::NOTCONN | Errno::CONNABORTED))
}

/// Detaches mounts of volumes from a directory whose servers have ended; they would stay below the next mount. Returns what they
/// were.
///
/// # Errors
/// The kernel or `fusermount3` refuses.
pub fn detach_dead(dir: &Path) -> Result<Vec<Mounted>, CliError> {
    let mut detached = Vec::new();
    while has_no_server(dir) {
        let path = std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir));
        let path = path.map_err(|error| CliError::io("find", dir, error))?;
        let top = mounts()?.into_iter().rev().find(|mount| mount.dir == path);
        let Some(dead) = top.filter(Mounted::is_volume) else { break };
        unmount(&path, true).map_err(|error| CliError::io("unmount", dir, error))?;
        detached.push(dead);
    }
    Ok(detached)
}

/// The mount that a process serves, as the kernel tells of its connection.
pub fn mount_by(server: u32) -> Option<Mounted> {
    let process = Path::new("/proc").join(server.to_string());
    let connection = std::fs::read_dir(process.join("fd")).ok()?.flatten().find_map(|entry| {
        let is_fuse = std::fs::read_link(entry.path()).is_ok_and(|target| target == Path::new("/dev/fuse"));
        let told = std::fs::read_to_string(process.join("fdinfo").join(entry.file_name())).ok();
        let told = told.filter(|_| is_fuse)?;
        // The minor number of the device that files of the mount show. Older kernels do not tell it.
        told.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse::<u32>().ok())
    })?;
    let device = format!("0:{connection}");
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    // "36 35 0:57 / /mnt rw,noatime master:1 - fuse.weft ..."
    let mut dirs = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let dir = words.get(4).filter(|_| words[2] == device.as_bytes())?;
        Some(PathBuf::from(unescaped(dir)))
    });
    let dir = dirs.next_back()?;
    mounts().ok()?.into_iter().rev().find(|mount| mount.dir == dir && mount.is_volume())
}

/// What is mounted, in the order of the mounts.
pub fn mounts() -> Result<Vec<Mounted>, CliError> {
    let path = Path::new("/proc/self/mounts");
    let table = std::fs::read(path).map_err(|error| CliError::io("read", path, error))?;
    let lines = table.split(|&byte| byte == b'\n');
    Ok(lines
        .filter_map(|line| {
            let mut words = line.split(|&byte| byte == b' ');
            let (source, dir, kind) = (words.next()?, words.next()?, words.next()?);
            let options = words.next()?.to_vec();
            let path = |word| PathBuf::from(unescaped(word));
            Some(Mounted { source: path(source), dir: path(dir), kind: kind.to_vec(), options })
        })
        .collect())
}

/// A name as it was before the kernel wrote blanks as three octal digits.
fn unescaped(word: &[u8]) -> OsString {
    let mut name = Vec::new();
    let mut rest = word;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, code) {
            (b'\\', Some(code)) => {
                name.push(code);
                rest = &behind[3..];
            }
            _ => {
                name.push(first);
                rest = behind;
            }
        }
    }
    OsStr::from_bytes(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_names_come_back() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescaped(b"/a\\9"), "/a\\9");
    }
}
