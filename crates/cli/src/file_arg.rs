//! `IMAGE:/path` or a path on the host.

use crate::error::CliError;
use crate::kind::Kind;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use weft_volume::spec::{PREFIXES, path_of};

/// A file argument: a path on the host, or on a volume (`IMAGE:/path`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileArg {
    /// On the host.
    Local(Vec<u8>),
    /// On a volume.
    Volume {
        image: PathBuf,
        /// The path, beginning with a slash.
        path: Vec<u8>,
    },
}

impl FileArg {
    /// Parses an argument. What stands before `:/` (or a colon at the end) is an image, unless the whole is a file's name.
    pub fn parse(text: &OsStr) -> Result<FileArg, CliError> {
        let bytes = text.as_bytes();
        // The colon of `zonefs:DIR` is not the one that ends a volume's name, nor that of `policy:IMAGE`.
        let skipped = PREFIXES
            .iter()
            .find(|prefix| bytes.starts_with(prefix.as_bytes()))
            .map_or(0, |found| found.len());
        let split = bytes[skipped..]
            .windows(2)
            .position(|two| two == b":/")
            .map(|at| at + skipped)
            .or_else(|| bytes.last().filter(|&&last| last == b':').map(|_| bytes.len() - 1));
        let Some(at) = split.filter(|&at| at > 0) else { return Ok(FileArg::Local(bytes.to_vec())) };
        let image = PathBuf::from(OsString::from_vec(bytes[..at].to_vec()));
        let is_there = skipped > 0 && path_of(&image).exists();
        if image.is_dir() || (!image.exists() && !is_there && PathBuf::from(text).exists()) {
            return Ok(FileArg::Local(bytes.to_vec()));
        }
        let path = if at + 1 == bytes.len() { b"/".to_vec() } else { bytes[at + 1..].to_vec() };
        Ok(FileArg::Volume { image, path })
    }

    /// Parses an argument that must name a file on a volume.
    pub fn on_volume(text: &OsStr) -> Result<(PathBuf, Vec<u8>), CliError> {
        match FileArg::parse(text)? {
            FileArg::Volume { image, path } => Ok((image, path)),
            FileArg::Local(path) => Err(no_volume(Path::new(OsStr::from_bytes(&path)))),
        }
    }
}

/// How a file on a volume is written.
pub const ON_VOLUME: &str = "name a file on a volume as IMAGE:/path, for example vol.img:/db";

/// An argument that is to name a file on a volume, and names no image.
fn no_volume(path: &Path) -> CliError {
    match path.metadata() {
        Ok(meta) if Kind::of(path, &meta) == Some(Kind::Volume) => {
            let image = path.display();
            let remedy = format!(
                "name a file on it as IMAGE:/path: {image}:/path, or {image}:/ for its root directory"
            );
            CliError::of(path, "this is the volume, not a file on it", remedy)
        }
        // An absolute path may be meant as one on the volume.
        Err(_) if path.is_absolute() => {
            CliError::of(path, "not on a volume, and no such file on the host", ON_VOLUME)
        }
        Err(error) => CliError::of(path, error, ON_VOLUME),
        Ok(_) => CliError::of(path, "not on a volume", ON_VOLUME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_stands_before_a_colon_and_a_slash() {
        let volume = |image: &str, path: &str| FileArg::Volume { image: image.into(), path: path.into() };
        let parse = |text: &str| FileArg::parse(OsStr::new(text)).unwrap();
        assert_eq!(parse("vol.img:/a:b/c"), volume("vol.img", "/a:b/c"));
        assert_eq!(parse("dir/vol.img:"), volume("dir/vol.img", "/"));
        assert_eq!(parse("/a/b"), FileArg::Local(b"/a/b".to_vec()));
        assert_eq!(parse("a:b"), FileArg::Local(b"a:b".to_vec()));
        assert_eq!(parse(":/x"), FileArg::Local(b":/x".to_vec()));
    }

    #[test]
    fn a_zonefs_directory_stands_behind_its_prefix() {
        let volume = |image: &str, path: &str| FileArg::Volume { image: image.into(), path: path.into() };
        let parse = |text: &str| FileArg::parse(OsStr::new(text)).unwrap();
        assert_eq!(parse("zonefs:/mnt/z:/db"), volume("zonefs:/mnt/z", "/db"));
        assert_eq!(parse("zonefs:/mnt/z:"), volume("zonefs:/mnt/z", "/"));
        assert_eq!(parse("zonefs:z:/db"), volume("zonefs:z", "/db"));
    }

    #[test]
    fn a_grant_on_flash_stands_behind_the_prefix_of_its_level() {
        let volume = |image: &str, path: &str| FileArg::Volume { image: image.into(), path: path.into() };
        let parse = |text: &str| FileArg::parse(OsStr::new(text)).unwrap();
        assert_eq!(parse("policy:/a/nand.img#b:/db"), volume("policy:/a/nand.img#b", "/db"));
        assert_eq!(parse("function:nand.img:"), volume("function:nand.img", "/"));
    }

    #[test]
    fn a_file_of_that_name_is_meant_when_there_is_one_and_no_image() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a:")).unwrap();
        std::fs::write(dir.path().join("a:/b"), "").unwrap();
        let text = dir.path().join("a:/b").into_os_string();
        assert_eq!(FileArg::parse(&text).unwrap(), FileArg::Local(text.as_bytes().to_vec()));
    }
}
