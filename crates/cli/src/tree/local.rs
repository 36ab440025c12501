//! The host's files.

use super::{Meta, Sink, Source, Tree, Xattr, kind_of_mode};
use crate::output;
use crate::sys::{file, xattr};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};
use weft_sys::file::seek;
use weft_vfs::FileKind;

/// The host's files.
#[derive(Debug)]
pub struct LocalTree<'a> {
    /// The volumes that the command uses.
    pub volumes: Vec<&'a Path>,
}

/// A path as the system takes it: of one that is too long for a call, the directories on the way are open.
struct Local {
    path: PathBuf,
    /// Keeps the directory open that the path begins with.
    _from: Option<File>,
}

impl AsRef<Path> for Local {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

fn local(path: &[u8]) -> io::Result<Local> {
    let below = |from: &Option<File>, path: &[u8]| match from {
        Some(dir) => Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(OsStr::from_bytes(path)),
        None => PathBuf::from(OsStr::from_bytes(path)),
    };
    let (mut from, mut path) = (None, path);
    while let Some((begin, rest)) = super::cut(path) {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        from = Some(options.open(below(&from, begin))?);
        path = rest;
    }
    Ok(Local { path: below(&from, path), _from: from })
}

impl Source for File {
    fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, out, offset)
    }

    fn data_at(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let begin = match seek(self, offset, libc::SEEK_DATA) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
            // Not every file system knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Some((offset, u64::MAX))),
            begin => begin?,
        };
        seek(self, begin, libc::SEEK_HOLE).map(|end| Some((begin, end)))
    }
}

impl Sink for File {
    fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }
}

/// A pipe, a terminal or another device, which takes one byte after the other.
struct Stream {
    to: File,
    at: u64,
}

impl Sink for Stream {
    fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        self.set_len(offset)?;
        self.to.write_all(data)?;
        self.at += data.len() as u64;
        Ok(())
    }

    /// What a file would have as a hole is written.
    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        debug_assert!(bytes >= self.at, "a stream does not go back");
        let zeros = bytes.saturating_sub(self.at);
        io::copy(&mut io::repeat(0).take(zeros), &mut self.to)?;
        self.at = bytes;
        Ok(())
    }
}

impl Tree for LocalTree<'_> {
    fn show(&self, path: &[u8]) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    fn stat(&self, path: &[u8], follow: bool) -> io::Result<Meta> {
        let found = if follow { fs::metadata(local(path)?) } else { fs::symlink_metadata(local(path)?) }?;
        let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        Ok(Meta {
            kind: kind_of_mode(found.mode())?,
            perm: found.mode() & 0o7777,
            links: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            rdev: found.rdev(),
            size: found.size(),
            blocks: found.blocks(),
            id: (found.dev(), found.ino()),
            atime_ns: nanos(found.atime(), found.atime_nsec()),
            mtime_ns: nanos(found.mtime(), found.mtime_nsec()),
            ctime_ns: nanos(found.ctime(), found.ctime_nsec()),
        })
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let entries = fs::read_dir(local(path)?)?;
        let mut names: Vec<Vec<u8>> =
            entries.map(|e| Ok(e?.file_name().into_vec())).collect::<io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        Ok(fs::read_link(local(path)?)?.into_os_string().into_vec())
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Source + '_>> {
        Ok(Box::new(File::open(local(path)?)?))
    }

    fn create(&self, path: &[u8], perm: u32) -> io::Result<Box<dyn Sink + '_>> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(perm).open(local(path)?)?;
        Ok(if file.metadata()?.is_file() { Box::new(file) } else { Box::new(Stream { to: file, at: 0 }) })
    }

    fn may_replace(&self, path: &[u8], kind: FileKind) -> io::Result<()> {
        // A file is written to where a symlink leads; others take the place of the link.
        if kind != FileKind::File && fs::symlink_metadata(local(path)?).is_ok_and(|meta| meta.is_symlink()) {
            return Ok(());
        }
        output::holds_no_data(local(path)?.as_ref(), &self.volumes).map_err(|error| {
            let name = self.show(path);
            let into = match error.is_volume() {
                true => format!("to copy into it, write {name}:/ or {name}:/NAME; "),
                false => String::new(),
            };
            io::Error::other(format!("{error}; {into}to replace it, remove it first"))
        })
    }

    fn mkdir(&self, path: &[u8], perm: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(perm).create(local(path)?)
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        std::os::unix::fs::symlink(OsStr::from_bytes(target), local(path)?)
    }

    fn mknod(&self, path: &[u8], kind: FileKind, perm: u32, rdev: u64) -> io::Result<()> {
        file::mknod(local(path)?.as_ref(), kind.mode_bits() | perm, rdev)
    }

    fn link(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        fs::hard_link(local(path)?, local(new)?)
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        fs::remove_file(local(path)?)
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        fs::remove_dir(local(path)?)
    }

    fn rename(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        fs::rename(local(path)?, local(new)?)
    }

    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<Xattr>> {
        xattr::all(local(path)?.as_ref())
    }

    fn change_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>, flags: i32) -> io::Result<()> {
        xattr::change(local(path)?.as_ref(), name, value, flags)
    }

    fn set_owner(&self, path: &[u8], meta: &Meta) -> io::Result<()> {
        if !file::is_superuser() {
            return Ok(());
        }
        let chown = if meta.kind == FileKind::Symlink { lchown::<Local> } else { chown::<Local> };
        chown(local(path)?, Some(meta.uid), Some(meta.gid))
    }

    fn set_meta(&self, path: &[u8], meta: &Meta) -> io::Result<()> {
        let is_symlink = meta.kind == FileKind::Symlink;
        if !is_symlink {
            fs::set_permissions(local(path)?, fs::Permissions::from_mode(meta.perm))?;
        }
        file::set_times(local(path)?.as_ref(), meta.atime_ns, meta.mtime_ns, is_symlink)
    }
}
