//! Names of volumes on the command line.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use weft_core::units::{BadSize, format_size, parse_size};
use weft_flash_pages::FlashSpec;

/// What stands before the directory of a zonefs where a path could be meant.
const ZONEFS_PREFIX: &str = "zonefs:";
/// What may stand before a path in the name of a volume.
pub const PREFIXES: [&str; 3] = [ZONEFS_PREFIX, "policy:", "function:"];
const MEMORY_PREFIX: &str = "mem:";

/// What the user calls a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spec {
    /// The name of an image file, a real drive, or a grant on flash: where it is, [`Place::of`] says.
    Image(PathBuf),
    /// A volume on a modelled device in memory of this many bytes, made for one run.
    Memory(u64),
    /// Files in memory without a device, made for one run.
    MemFs,
}

impl Spec {
    /// Reads `IMAGE`, `DEVICE`, `zonefs:DIR`, `policy:IMAGE#GRANT`, `function:IMAGE#GRANT`, `mem:SIZE` or `mem:`.
    pub fn parse(text: &str) -> Result<Spec, BadSize> {
        match text.strip_prefix(MEMORY_PREFIX) {
            Some("") => Ok(Spec::MemFs),
            Some(size) => Ok(Spec::Memory(parse_size(size)?)),
            None => Ok(Spec::Image(text.into())),
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

/// What the name of a volume leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The image file, the drive, or the directory of a zonefs.
    pub path: PathBuf,
    /// The grant of the flash in the image that holds the volume, and its level; `None` when the image is the volume.
    pub flash: Option<FlashSpec>,
    prefix: &'static str,
}

impl Place {
    /// Reads a name.
    pub fn of(name: &Path) -> Place {
        if let Some(flash) = name.to_str().and_then(FlashSpec::parse) {
            return Place { path: flash.image.clone(), flash: Some(flash), prefix: "" };
        }
        match name.as_os_str().as_bytes().strip_prefix(ZONEFS_PREFIX.as_bytes()) {
            Some(dir) if !dir.is_empty() => {
                Place { path: PathBuf::from(OsStr::from_bytes(dir)), flash: None, prefix: ZONEFS_PREFIX }
            }
            _ => Place { path: name.to_path_buf(), flash: None, prefix: "" },
        }
    }

    /// What of the image the volume is; empty when it is all of it.
    pub fn part(&self) -> String {
        self.flash.as_ref().map(|flash| format!("#{}", flash.grant)).unwrap_or_default()
    }

    /// The one name of the volume that is the same for all paths that lead to it.
    ///
    /// # Errors
    /// There is nothing at the path.
    pub fn plain_name(&self) -> io::Result<PathBuf> {
        let path = self.path.canonicalize()?;
        if let Some(flash) = &self.flash {
            return Ok(FlashSpec { image: path, ..flash.clone() }.to_string().into());
        }
        let mut name = OsString::from(self.prefix);
        name.push(path);
        Ok(name.into())
    }
}

/// The path that a volume's name leads to.
pub fn path_of(name: &Path) -> PathBuf {
    Place::of(name).path
}

/// Whether the path is a block device or a directory, rather than an image file or nothing.
pub fn is_drive(path: &Path) -> bool {
    let drive = |meta: Metadata| meta.is_dir() || meta.file_type().is_block_device();
    std::fs::metadata(path).is_ok_and(drive)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_leads_to_a_path_and_perhaps_to_a_grant_of_the_flash_there() {
        let at = |name: &str| Place::of(Path::new(name));
        assert_eq!(at("zonefs:/mnt/z").path, Path::new("/mnt/z"));
        assert_eq!((at("vol.img").path, at("vol.img").part()), ("vol.img".into(), String::new()));
        assert_eq!(at("policy:nand.img#a").path, Path::new("nand.img"));
        let parts = ["policy:n#a", "function:n#b", "policy:n"].map(|name| at(name).part());
        assert_eq!(parts, ["#a", "#b", "#tags"]);
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().canonicalize().unwrap().join("n");
        std::fs::write(&image, "").unwrap();
        let name =
            format!("policy:{}/../{}/n#a", dir.path().display(), dir.path().file_name().unwrap().display());
        assert_eq!(at(&name).plain_name().unwrap(), Path::new(&format!("policy:{}#a", image.display())));
        assert!(at("policy:none#a").plain_name().is_err());
    }

    #[test]
    fn a_volume_is_called_by_what_it_lies_on() {
        for (text, spec) in [
            ("vol.img", Spec::Image("vol.img".into())),
            ("zonefs:/mnt/z", Spec::Image("zonefs:/mnt/z".into())),
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
