//! Names of volumes on the command line.

use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use weft_core::units::{BadSize, format_size, parse_size};

/// What stands before the directory of a zonefs where a path could be meant.
pub const ZONEFS_PREFIX: &str = "zonefs:";
const MEMORY_PREFIX: &str = "mem:";

/// What the user calls a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spec {
    /// An image file, or a real drive.
    Image(PathBuf),
    /// A volume on a modelled device in memory of this many bytes, made for one run.
    Memory(u64),
    /// Files in memory without a device, made for one run.
    MemFs,
}

impl Spec {
    /// Reads `IMAGE`, `DEVICE`, `zonefs:DIR`, `mem:SIZE` or `mem:`.
    pub fn parse(text: &str) -> Result<Spec, BadSize> {
        match text.strip_prefix(MEMORY_PREFIX) {
            Some("") => Ok(Spec::MemFs),
            Some(size) => Ok(Spec::Memory(parse_size(size)?)),
            None => Ok(Spec::Image(path_of(Path::new(text)))),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Image(path) => write!(f, "{}", path.display()),
            Spec::Memory(bytes) => write!(f, "{MEMORY_PREFIX}{}", format_size(*bytes).replace(' ', "")),
            Spec::MemFs => f.write_str(MEMORY_PREFIX),
        }
    }
}

/// The path that a volume's name means: `zonefs:DIR` is the directory.
pub fn path_of(name: &Path) -> PathBuf {
    match name.as_os_str().as_bytes().strip_prefix(ZONEFS_PREFIX.as_bytes()) {
        Some(dir) if !dir.is_empty() => PathBuf::from(OsStr::from_bytes(dir)),
        _ => name.to_path_buf(),
    }
}

/// Whether the path is a block device or a directory, rather than an image file or nothing.
pub fn is_drive(path: &Path) -> bool {
    let drive = |meta: Metadata| meta.is_dir() || meta.file_type().is_block_device();
    std::fs::metadata(path).is_ok_and(drive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_called_by_what_it_lies_on() {
        for (text, spec) in [
            ("vol.img", Spec::Image("vol.img".into())),
            ("zonefs:/mnt/z", Spec::Image("/mnt/z".into())),
            ("mem:64MiB", Spec::Memory(64 << 20)),
            ("mem:", Spec::MemFs),
        ] {
            assert_eq!(Spec::parse(text).unwrap(), spec);
        }
        assert!(Spec::parse("mem:much").is_err());
        assert_eq!(Spec::Memory(64 << 20).to_string(), "mem:64.0MiB");
        assert_eq!(Spec::MemFs.to_string(), "mem:");
    }
}
