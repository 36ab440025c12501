//! A volume's files, through its server.

use super::{Meta, Sink, Source, Tree, Xattr, kind_of_mode};
use crate::sys::{file, xattr};
use std::io;
use weft_client::shared::channel::PAYLOAD_BYTES;
use weft_client::{AttrChange, Client, Errno, FileRef, OUTSIDE, WireDirent};
use weft_vfs::{FileKind, XATTR_VALUE_MAX};

/// Bytes of a read of a directory.
const LIST_BYTES: usize = 64 << 10;

/// The files of one volume.
pub struct VolumeTree<'a> {
    client: &'a Client,
    /// What the user calls the volume.
    name: &'a str,
}

impl<'a> VolumeTree<'a> {
    /// The tree of a connected volume.
    pub fn new(client: &'a Client, name: &'a str) -> VolumeTree<'a> {
        VolumeTree { client, name }
    }
}

/// An errno of the client as the system's error.
pub fn system(errno: Errno) -> io::Error {
    if errno == OUTSIDE {
        return io::Error::other("a symlink on the way leads out of the volume");
    }
    io::Error::from_raw_os_error(errno)
}

/// An open file on a volume, closed when it goes.
struct Open<'a> {
    client: &'a Client,
    file: FileRef,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let _ = self.client.close(self.file);
    }
}

impl Source for Open<'_> {
    fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.client.pread(self.file, out, offset).map_err(system)
    }

    fn data_at(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let Ok(offset) = i64::try_from(offset) else { return Ok(None) };
        let begin = match self.client.seek(self.file, offset, libc::SEEK_DATA) {
            Err(libc::ENXIO) => return Ok(None),
            begin => begin.map_err(system)?,
        };
        let end = self.client.seek(self.file, begin as i64, libc::SEEK_HOLE).map_err(system)?;
        Ok(Some((begin, end)))
    }

    fn is_damage(&self, error: &io::Error) -> bool {
        // A server that has gone gives the same error for everything.
        error.raw_os_error() == Some(libc::EIO) && self.client.is_alive()
    }
}

impl Sink for Open<'_> {
    fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.client.pwrite(self.file, &data[done..], offset + done as u64).map_err(system)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        self.client.ftruncate(self.file, bytes).map_err(system)
    }
}

/// The directory from which a path is walked.
struct From<'a>(Option<Open<'a>>);

impl From<'_> {
    fn file(&self) -> FileRef {
        self.0.as_ref().map_or(FileRef::ROOT, |dir| dir.file)
    }
}

impl VolumeTree<'_> {
    /// Where a path begins for the server, which takes only so many bytes at once: of a longer one the directories on the way
    /// are opened.
    fn walk<'p>(&self, path: &'p [u8]) -> io::Result<(From<'_>, &'p [u8])> {
        let (mut from, mut path) = (From(None), path);
        while let Some((begin, rest)) = super::cut(path) {
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
            let opened = self.client.open(from.file(), begin, flags, 0).map_err(system)?;
            from = From(Some(Open { client: self.client, file: opened.file }));
            path = rest;
        }
        Ok((from, path))
    }

    /// Calls the server about a path, from the directory that the walk to it has reached.
    fn at<T>(&self, path: &[u8], call: impl FnOnce(FileRef, &[u8]) -> Result<T, Errno>) -> io::Result<T> {
        let (from, path) = self.walk(path)?;
        call(from.file(), path).map_err(system)
    }

    fn open_flags(&self, path: &[u8], flags: i32, perm: u32) -> io::Result<Open<'_>> {
        let flags = flags | libc::O_CLOEXEC;
        let opened = self.at(path, |from, path| self.client.open(from, path, flags, perm))?;
        Ok(Open { client: self.client, file: opened.file })
    }
}

impl Tree for VolumeTree<'_> {
    fn show(&self, path: &[u8]) -> String {
        format!("{}:{}", self.name, String::from_utf8_lossy(path))
    }

    fn stat(&self, path: &[u8], follow: bool) -> io::Result<Meta> {
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let found = self.at(path, |from, path| self.client.stat(from, path, flags))?;
        Ok(Meta {
            kind: kind_of_mode(found.mode)?,
            perm: found.mode & 0o7777,
            links: u64::from(found.links),
            uid: found.uid,
            gid: found.gid,
            rdev: found.rdev,
            size: found.size,
            blocks: found.blocks,
            id: (found.dev, found.ino),
            atime_ns: found.atime_ns,
            mtime_ns: found.mtime_ns,
            ctime_ns: found.ctime_ns,
        })
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let dir = self.open_flags(path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let mut names = Vec::new();
        let mut cookie = 0;
        let mut buffer = vec![0; LIST_BYTES];
        loop {
            let filled = self.client.read_dir(dir.file, cookie, &mut buffer).map_err(system)?;
            if filled == 0 {
                break;
            }
            let mut rest = &buffer[..filled];
            while let Some((head, name, others)) = WireDirent::split_first(rest) {
                if name != b"." && name != b".." {
                    names.push(name.to_vec());
                }
                (cookie, rest) = (head.cookie, others);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let mut target = vec![0; weft_vfs::PATH_MAX];
        let len = self.at(path, |from, path| self.client.readlink(from, path, &mut target))?;
        target.truncate(len);
        Ok(target)
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Source + '_>> {
        Ok(Box::new(self.open_flags(path, libc::O_RDONLY, 0)?))
    }

    fn create(&self, path: &[u8], perm: u32) -> io::Result<Box<dyn Sink + '_>> {
        Ok(Box::new(self.open_flags(path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, perm)?))
    }

    fn mkdir(&self, path: &[u8], perm: u32) -> io::Result<()> {
        self.at(path, |from, path| self.client.mkdir(from, path, perm))
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        self.at(path, |from, path| self.client.symlink(target, from, path))
    }

    fn mknod(&self, path: &[u8], kind: FileKind, perm: u32, rdev: u64) -> io::Result<()> {
        self.at(path, |from, path| self.client.mknod(from, path, kind.mode_bits() | perm, rdev))
    }

    fn link(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        let ((from, path), (to, new)) = (self.walk(path)?, self.walk(new)?);
        self.client.link(from.file(), path, to.file(), new, 0).map_err(system)
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.at(path, |from, path| self.client.unlink(from, path, 0))
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.at(path, |from, path| self.client.unlink(from, path, libc::AT_REMOVEDIR))
    }

    fn rename(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        let ((from, path), (to, new)) = (self.walk(path)?, self.walk(new)?);
        self.client.rename(from.file(), path, to.file(), new, 0).map_err(system)
    }

    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<Xattr>> {
        let (from, path) = self.walk(path)?;
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let mut names = vec![0; PAYLOAD_BYTES];
        let len = self.client.list_xattr(from.file(), path, flags, &mut names).map_err(system)?;
        xattr::of_names(&names[..len], |name| {
            let mut value = vec![0; XATTR_VALUE_MAX];
            let len = self.client.get_xattr(from.file(), path, flags, name, &mut value).map_err(system)?;
            value.truncate(len);
            Ok(value)
        })
    }

    fn change_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>, flags: i32) -> io::Result<()> {
        let itself = libc::AT_SYMLINK_NOFOLLOW;
        self.at(path, |from, path| match value {
            Some(value) => self.client.set_xattr(from, path, itself, name, value, flags),
            None => self.client.remove_xattr(from, path, itself, name),
        })
    }

    fn set_owner(&self, path: &[u8], meta: &Meta) -> io::Result<()> {
        if !file::is_superuser() {
            return Ok(());
        }
        let change = AttrChange { uid: Some(meta.uid), gid: Some(meta.gid), ..AttrChange::default() };
        let flags = if meta.kind == FileKind::Symlink { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
        self.at(path, |from, path| self.client.set_attr(from, path, flags, &change))
    }

    fn set_meta(&self, path: &[u8], meta: &Meta) -> io::Result<()> {
        let is_symlink = meta.kind == FileKind::Symlink;
        let change = AttrChange {
            mode: (!is_symlink).then_some(meta.perm),
            atime_ns: Some(meta.atime_ns),
            mtime_ns: Some(meta.mtime_ns),
            ..AttrChange::default()
        };
        let flags = if is_symlink { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
        self.at(path, |from, path| self.client.set_attr(from, path, flags, &change))
    }
}
