//! Trees of files, on the host and on a volume, behind one trait, so that copying is written once.

pub mod damage;
pub mod local;
pub mod volume;

pub use crate::sys::xattr::Xattr;

use crate::error::CliError;
use std::io;
use weft_vfs::{FileKind, PATH_MAX};

/// What is known of a file.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub perm: u32,
    /// Names.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte units that its data occupies.
    pub blocks: u64,
    /// Tells the file from all others of its tree: device and inode.
    pub id: (u64, u64),
    /// Last access, in nanoseconds since 1970.
    pub atime_ns: i64,
    /// Last change of the data.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
}

impl Meta {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether both are one file. A volume that is also a directory of the host (a mount, `weft run`) may have another device
    /// number there.
    pub fn is_same(&self, other: &Meta) -> bool {
        let inode = |meta: &Meta| (meta.id.1, meta.kind, meta.size, meta.mtime_ns, meta.ctime_ns);
        self.id == other.id || inode(self) == inode(other)
    }
}

/// The kind that the type bits of `st_mode` name.
pub fn kind_of_mode(mode: u32) -> io::Result<FileKind> {
    let of_bits = |kind: &FileKind| kind.mode_bits() == mode & libc::S_IFMT;
    (1..=7).filter_map(FileKind::from_u8).find(of_bits).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
}

/// A file opened for reading.
pub trait Source {
    /// Reads up to `out.len()` bytes at `offset`; 0 at the end.
    fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Where data begins and ends at `offset` or behind it, as far as the tree knows; `None` where only a hole follows. The
    /// last part may end behind the file's end.
    fn data_at(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        Ok(Some((offset, u64::MAX)))
    }

    /// Whether a read failed because of damage where it read: what lies elsewhere in the file may be whole.
    fn is_damage(&self, _error: &io::Error) -> bool {
        false
    }
}

/// A file opened for writing.
pub trait Sink {
    /// Writes all of `data` at `offset`.
    fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Sets the size.
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;
}

/// Offset and length of the parts of a file that are no holes, ascending. `blocks` is what the file occupies.
pub fn data_parts(source: &mut dyn Source, size: u64, blocks: u64) -> io::Result<Vec<(u64, u64)>> {
    if blocks.saturating_mul(512) >= size {
        return Ok(vec![(0, size)]);
    }
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut offset = 0;
    while offset < size {
        let Some((begin, end)) = source.data_at(offset)?.filter(|(begin, _)| *begin < size) else { break };
        // A part that does not end behind its begin would be asked for without end.
        let (begin, end) = (begin.max(offset), end.min(size));
        if end <= begin {
            return Err(io::Error::other("the file system reports data without an end"));
        }
        match parts.last_mut() {
            Some((start, len)) if *start + *len == begin => *len += end - begin,
            _ => parts.push((begin, end - begin)),
        }
        offset = end;
    }
    Ok(parts)
}

/// A tree of files. Paths are bytes; symlinks in the last component are followed only where it is said.
pub trait Tree {
    /// How a path is shown to the user.
    fn show(&self, path: &[u8]) -> String;

    /// Attributes; of a symlink itself unless `follow`.
    fn stat(&self, path: &[u8], follow: bool) -> io::Result<Meta>;

    /// Names in a directory without `.` and `..`, sorted.
    fn list(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>>;

    /// Target of a symlink.
    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>>;

    /// Opens a file for reading; follows symlinks.
    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Source + '_>>;

    /// Opens a file for writing, creating or emptying it; follows symlinks.
    fn create(&self, path: &[u8], perm: u32) -> io::Result<Box<dyn Sink + '_>>;

    /// Makes a directory.
    fn mkdir(&self, path: &[u8], perm: u32) -> io::Result<()>;

    /// Makes a symlink.
    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()>;

    /// Makes a fifo, socket or device node.
    fn mknod(&self, path: &[u8], kind: FileKind, perm: u32, rdev: u64) -> io::Result<()>;

    /// Gives a file one more name.
    fn link(&self, path: &[u8], new: &[u8]) -> io::Result<()>;

    /// Removes a name that is not a directory's.
    fn unlink(&self, path: &[u8]) -> io::Result<()>;

    /// Refuses to replace what is at `path` by a file of this kind, when it holds data of weft.
    fn may_replace(&self, _path: &[u8], _kind: FileKind) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file, if it is there.
    fn unlink_if_there(&self, path: &[u8]) -> io::Result<()> {
        match self.unlink(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes an empty directory.
    fn rmdir(&self, path: &[u8]) -> io::Result<()>;

    /// Moves a name, replacing what has the new one.
    fn rename(&self, path: &[u8], new: &[u8]) -> io::Result<()>;

    /// Extended attributes of what is at the path itself, names and values, sorted.
    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<Xattr>>;

    /// Sets an extended attribute of what is at the path itself.
    fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> io::Result<()> {
        self.change_xattr(path, name, Some(value), 0)
    }

    /// Sets an extended attribute of what is at the path itself, as `flags` (`XATTR_CREATE`, `XATTR_REPLACE`) say; without a value,
    /// removes it.
    fn change_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>, flags: i32) -> io::Result<()>;

    /// Sets the owner, where the user may. Before attributes: a new owner takes a file's capabilities away.
    fn set_owner(&self, path: &[u8], meta: &Meta) -> io::Result<()>;

    /// Sets permission bits and times; of a symlink its own, and no bits.
    fn set_meta(&self, path: &[u8], meta: &Meta) -> io::Result<()>;
}

impl CliError {
    /// A file of a tree.
    pub fn file(what: &'static str, tree: &dyn Tree, path: &[u8], source: io::Error) -> CliError {
        CliError::File { what, path: tree.show(path), source }
    }
}

/// Directories within directories that commands follow: as many as a path of one call can name.
pub const DEPTH_MAX: usize = weft_vfs::PATH_MAX / 2;

/// The error for what lies deeper.
pub fn too_deep() -> io::Error {
    io::Error::other(format!("more than {DEPTH_MAX} directories within one another"))
}

/// `dir/name`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") && !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The first directories of a path that is too long for one system call, and the rest; `None` for all others.
fn cut(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() < PATH_MAX {
        return None;
    }
    // Room for what a tree puts in front, too. A name that is too long by itself is left to the call to refuse.
    let slash = path[..PATH_MAX - 64].iter().rposition(|&b| b == b'/').filter(|&at| at > 0)?;
    let rest = &path[slash..];
    let begin = rest.iter().position(|&b| b != b'/')?;
    Some((&path[..slash], &rest[begin..]))
}

/// The last component of a path, without slashes at its end; `None` for `/`, `.` and `..`.
pub fn base_name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|&b| b != b'/')? + 1;
    let begin = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let name = &path[begin..end];
    (name != b"." && name != b"..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_taken_apart_at_whole_components() {
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"/", b"b"), b"/b");
        assert_eq!(join(b"", b"b"), b"b");
        assert_eq!(base_name(b"/a/b//"), Some(&b"b"[..]));
        assert_eq!(base_name(b"b"), Some(&b"b"[..]));
        for none in [&b"/"[..], b"", b"..", b"/a/."] {
            assert_eq!(base_name(none), None);
        }
    }

    #[test]
    fn kinds_are_read_from_type_bits() {
        assert_eq!(kind_of_mode(libc::S_IFLNK | 0o777).unwrap(), FileKind::Symlink);
        assert!(kind_of_mode(0).is_err());
    }
}
