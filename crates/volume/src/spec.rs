//! Names of volumes on the command line.

use crate::error::VolumeError;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use weft_core::refuse;
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
    /// A snapshot of the volume, instead of the volume as it is.
    pub snapshot: Option<String>,
    prefix: &'static str,
}

impl Place {
    /// Reads a name. `VOLUME@NAME` is a snapshot, unless there is a file of that name.
    pub fn of(name: &Path) -> Place {
        let whole = Place::of_volume(name);
        let split = name.to_str().and_then(|text| text.rsplit_once('@'));
        let Some((volume, snapshot)) = split.filter(|(_, snapshot)| !snapshot.is_empty()) else {
            return whole;
        };
        let of_volume = Place::of_volume(Path::new(volume));
        let is_file = whole.flash.is_none() && whole.path.exists();
        if is_file || snapshot.contains('/') || !of_volume.path.is_file() {
            return whole;
        }
        Place { snapshot: Some(snapshot.to_string()), ..of_volume }
    }

    fn of_volume(name: &Path) -> Place {
        let snapshot = None;
        if let Some(flash) = name.to_str().and_then(FlashSpec::parse) {
            return Place { path: flash.image.clone(), flash: Some(flash), snapshot, prefix: "" };
        }
        match name.as_os_str().as_bytes().strip_prefix(ZONEFS_PREFIX.as_bytes()) {
            Some(dir) if !dir.is_empty() => {
                let path = PathBuf::from(OsStr::from_bytes(dir));
                Place { path, flash: None, snapshot, prefix: ZONEFS_PREFIX }
            }
            _ => Place { path: name.to_path_buf(), flash: None, snapshot, prefix: "" },
        }
    }

    /// The path of a volume of the core lfs, which is all of the image and has no snapshots.
    ///
    /// # Errors
    /// [`VolumeError::NoSnapshots`].
    pub fn whole(&self) -> Result<&Path, VolumeError> {
        refuse(self.snapshot.is_some(), VolumeError::NoSnapshots(self.path.clone()))?;
        Ok(&self.path)
    }

    /// The volume of which it may be a snapshot.
    pub fn without_snapshot(self) -> Place {
        Place { snapshot: None, ..self }
    }

    /// What of the image the volume is; empty when it is all of it.
    pub fn part(&self) -> String {
        let grant = self.flash.as_ref().map(|flash| format!("#{}", flash.grant));
        let snapshot = self.snapshot.as_ref().map(|snapshot| format!("@{snapshot}"));
        grant.into_iter().chain(snapshot).collect()
    }

    /// The one name of the volume that is the same for all paths that lead to it.
    ///
    /// # Errors
    /// There is nothing at the path.
    pub fn plain_name(&self) -> io::Result<PathBuf> {
        let path = self.path.canonicalize()?;
        let mut name = OsString::from(self.prefix);
        match &self.flash {
            Some(flash) => name.push(FlashSpec { image: path, ..flash.clone() }.to_string()),
            None => name.push(path),
        }
        if let Some(snapshot) = &self.snapshot {
            name.push(format!("@{snapshot}"));
        }
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
        // A snapshot is one of a volume that is there, and no file's own name.
        let named = |name: &str| at(&format!("{}{name}", image.display()));
        assert_eq!(named("@daily").snapshot.as_deref(), Some("daily"));
        assert_eq!((named("@daily").path, named("@daily").part()), (image.clone(), "@daily".into()));
        assert_eq!(named("@daily").plain_name().unwrap(), Path::new(&format!("{}@daily", image.display())));
        assert_eq!(at(&format!("policy:{}#a@b", image.display())).part(), "#a@b");
        assert_eq!((named("one@daily").snapshot, named("@").snapshot), (None, None));
        std::fs::write(format!("{}@daily", image.display()), "").unwrap();
        assert_eq!(named("@daily").snapshot, None);
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
