//! Quotas: how much the files of a directory tree may take, and how much they take.
//!
//! A quota is set by the attribute [`QUOTA_XATTR`] of a directory. What is made in the directory, and below it, counts to it. Both
//! attributes hold text, which this module reads and writes.

use std::fmt;
use weft_core::Ino;
use weft_core::units::parse_size;

/// The attribute that holds the limits of a directory tree: `bytes=10G files=1000`, or one of the two.
pub const QUOTA_XATTR: &[u8] = b"trusted.weft.quota";
/// The attribute that tells what a directory tree takes, and its limits: `bytes=8192 files=2 bytes_max=10737418240`. Nobody sets it, and
/// no list of attributes has it.
pub const USAGE_XATTR: &[u8] = b"user.weft.usage";

/// Limits of what a tree may take. `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Space of file data and of promises, in bytes.
    pub bytes: Option<u64>,
    /// Inodes of all kinds.
    pub files: Option<u64>,
}

impl Limits {
    /// Reads `bytes=10G files=1000`, where either may be missing. `None` when the text is something else, or limits nothing.
    ///
    /// ```
    /// use weft_vfs::quota::Limits;
    /// let limits = Limits::parse(b"bytes=1M files=20").unwrap();
    /// assert_eq!((limits.bytes, limits.files), (Some(1 << 20), Some(20)));
    /// assert_eq!(limits.to_string(), "bytes=1048576 files=20");
    /// assert_eq!(Limits::parse(b"bytes=much"), None);
    /// ```
    pub fn parse(text: &[u8]) -> Option<Limits> {
        let mut limits = Limits::default();
        for (name, value) in fields(text)? {
            let (limit, value) = match name {
                "bytes" => (&mut limits.bytes, parse_size(value).ok()?),
                "files" => (&mut limits.files, value.parse().ok()?),
                _ => return None,
            };
            if limit.replace(value).is_some() {
                return None;
            }
        }
        (limits != Limits::default()).then_some(limits)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("bytes", self.bytes), ("files", self.files)];
        let parts = parts.into_iter().filter_map(|(name, limit)| Some(format!("{name}={}", limit?)));
        f.write_str(&parts.collect::<Vec<_>>().join(" "))
    }
}

/// What a tree takes, and its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Space of file data and of promises, in bytes.
    pub bytes: u64,
    /// Inodes of all kinds, without the directory that has the quota.
    pub files: u64,
    /// The most that it may take.
    pub limits: Limits,
}

impl Usage {
    /// Reads what `Display` writes.
    pub fn parse(text: &[u8]) -> Option<Usage> {
        let mut usage = Usage::default();
        for (name, value) in fields(text)? {
            let value = value.parse().ok()?;
            match name {
                "bytes" => usage.bytes = value,
                "files" => usage.files = value,
                "bytes_max" => usage.limits.bytes = Some(value),
                "files_max" => usage.limits.files = Some(value),
                _ => return None,
            }
        }
        Some(usage)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes={} files={}", self.bytes, self.files)?;
        for (name, limit) in [("bytes_max", self.limits.bytes), ("files_max", self.limits.files)] {
            if let Some(limit) = limit {
                write!(f, " {name}={limit}")?;
            }
        }
        Ok(())
    }
}

/// Names and values of a text such as `bytes=10G files=1000`.
fn fields(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().map(|field| field.split_once('=')).collect()
}

/// What the quota that an inode counts to leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaRoom {
    /// The directory that has the quota.
    pub dir: Ino,
    /// Space that files of the tree can still take, in bytes.
    pub free_bytes: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written_and_nothing_else_is() {
        for (text, bytes, files) in [
            ("bytes=10G files=1000", Some(10 << 30), Some(1000)),
            ("files=0", None, Some(0)),
            (" bytes=4096\n", Some(4096), None),
        ] {
            let limits = Limits::parse(text.as_bytes()).unwrap();
            assert_eq!(limits, Limits { bytes, files }, "{text}");
            assert_eq!(Limits::parse(limits.to_string().as_bytes()), Some(limits));
        }
        for text in
            ["", " ", "bytes", "bytes=", "bytes=-1", "files=1.5", "files=1K", "bytes=1 bytes=2", "inodes=4"]
        {
            assert_eq!(Limits::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Limits::parse(b"bytes=\xff"), None);
    }

    #[test]
    fn usage_is_read_as_it_is_written() {
        for limits in [Limits::default(), Limits { bytes: Some(8192), files: Some(3) }] {
            let usage = Usage { bytes: 4096, files: 2, limits };
            assert_eq!(Usage::parse(usage.to_string().as_bytes()), Some(usage));
        }
        assert_eq!(Usage::parse(b"bytes=1M"), None);
        assert_eq!(Usage::parse(b"other=1"), None);
    }
}
