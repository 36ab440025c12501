//! Where volumes are mounted, as the kernel tells.

use crate::error::CliError;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the kernel shows as the type of a mounted volume.
const TYPE: &[u8] = b"fuse.weft";

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

    /// Whether root has mounted it. What others mount may be anything, whatever it is called.
    pub fn is_of_root(&self) -> bool {
        self.options.split(|&byte| byte == b',').any(|option| option == b"user_id=0")
    }
}

/// Where a volume is mounted, if it is.
pub fn mounted_on(volume: &Path) -> Option<PathBuf> {
    mount_of(volume).map(|mount| mount.dir)
}

/// The last mount of a volume.
pub fn mount_of(volume: &Path) -> Option<Mounted> {
    let volume = volume.canonicalize().ok()?;
    let all = mounts().ok()?;
    all.into_iter().rev().find(|mount| mount.is_volume() && mount.source == volume)
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
