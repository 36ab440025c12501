//! Operations on names.

use crate::client::Client;
use crate::proto::{FileRef, Op, WireAttr, WireStatfs};
use crate::sys::Errno;
use bytemuck::Pod;
use weft_vfs::InodeFlags;

/// Bytes that a resolved path needs at most.
pub const RESOLVED_MAX: usize = 4096 + 256;

/// Attributes to change; `None` leaves one as it is. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttrChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner; the highest number leaves it as it is, as in `chown` (which clears set-id bits even so).
    pub uid: Option<u32>,
    /// Group; as the owner.
    pub gid: Option<u32>,
    /// Last access.
    pub atime_ns: Option<i64>,
    /// Last change of the data.
    pub mtime_ns: Option<i64>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Both times to the present. Unlike times that are given, this is allowed to whoever may write.
    pub touch: bool,
}

/// A range that is locked or to be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockRange {
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// First byte.
    pub start: u64,
    /// Bytes; 0 = to the end of the file.
    pub len: u64,
    /// Process that holds the lock; 0 for a lock of an open file.
    pub pid: u32,
}

/// Path of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenPath {
    /// Its bytes.
    pub len: usize,
    /// Whether the file has lost its name.
    pub deleted: bool,
}

/// Where a path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// To this many bytes of canonical path within the volume.
    Inside(usize),
    /// To this many bytes of a path elsewhere.
    Outside(usize),
}

fn copy_out(payload: &[u8], out: &mut [u8]) -> Result<usize, Errno> {
    out.get_mut(..payload.len()).ok_or(libc::ERANGE)?.copy_from_slice(payload);
    Ok(payload.len())
}

fn pod<T: Pod>(payload: &[u8]) -> Result<T, Errno> {
    payload.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned).ok_or(libc::EIO)
}

impl Client {
    /// Attributes of a name, or of `at` itself with an empty path and `AT_EMPTY_PATH`; `flags` as in `fstatat`.
    pub fn stat(&self, at: FileRef, path: &[u8], flags: i32) -> Result<WireAttr, Errno> {
        self.stat_with_flags(at, path, flags).map(|(attr, _)| attr)
    }

    /// The same with what was set by `chattr`.
    pub fn stat_with_flags(
        &self,
        at: FileRef,
        path: &[u8],
        flags: i32,
    ) -> Result<(WireAttr, InodeFlags), Errno> {
        if let Some(known) = self.stat_here(at, path, flags) {
            return known;
        }
        let answer = self.call(Op::Stat, &[at.0, flags as u64])?.part1(path)?.run()?;
        let flags = InodeFlags::from_bits_truncate(answer.response.values[0] as u32);
        Ok((pod(answer.payload())?, flags))
    }

    /// Changes those flags of an open file that are in `mask`.
    pub fn set_inode_flags(&self, file: FileRef, flags: u32, mask: u32) -> Result<(), Errno> {
        let args = [file.0, libc::AT_EMPTY_PATH as u64, u64::from(flags), u64::from(mask)];
        self.call(Op::SetInodeFlags, &args)?.part1(b"")?.run().map(drop)
    }

    /// Changes attributes; `flags` as in [`Client::stat`].
    pub fn set_attr(&self, at: FileRef, path: &[u8], flags: i32, change: &AttrChange) -> Result<(), Errno> {
        let given = [
            change.mode.is_some(),
            change.uid.is_some(),
            change.gid.is_some(),
            change.atime_ns.is_some(),
            change.mtime_ns.is_some(),
            change.size.is_some(),
            change.touch,
        ];
        let mask = given.iter().enumerate().fold(0, |mask, (bit, given)| mask | u64::from(*given) << bit);
        let owner = u64::from(change.uid.unwrap_or(0)) << 32 | u64::from(change.gid.unwrap_or(0));
        let args = [
            at.0,
            flags as u64,
            mask,
            u64::from(change.mode.unwrap_or(0)),
            owner,
            change.atime_ns.unwrap_or(0) as u64,
            change.mtime_ns.unwrap_or(0) as u64,
            change.size.unwrap_or(0),
        ];
        self.call(Op::SetAttr, &args)?.part1(path)?.run().map(drop)
    }

    /// Whether the caller may do `mode` (`R_OK`, ...).
    pub fn access(&self, at: FileRef, path: &[u8], mode: i32, flags: i32) -> Result<(), Errno> {
        if let Some(known) = self.access_here(at, path, mode, flags) {
            return known;
        }
        self.call(Op::Access, &[at.0, mode as u64, flags as u64])?.part1(path)?.run().map(drop)
    }

    /// Makes a directory. `mode` may hold a [umask](crate::proto::with_umask).
    pub fn mkdir(&self, at: FileRef, path: &[u8], mode: u32) -> Result<(), Errno> {
        self.call(Op::Mkdir, &[at.0, u64::from(mode)])?.part1(path)?.run().map(drop)
    }

    /// Makes a fifo, socket or device node, or an empty file. `mode` has type bits, and may hold a umask.
    pub fn mknod(&self, at: FileRef, path: &[u8], mode: u32, rdev: u64) -> Result<(), Errno> {
        self.call(Op::Mknod, &[at.0, u64::from(mode), rdev])?.part1(path)?.run().map(drop)
    }

    /// Removes a name; with `AT_REMOVEDIR` an empty directory.
    pub fn unlink(&self, at: FileRef, path: &[u8], flags: i32) -> Result<(), Errno> {
        self.call(Op::Unlink, &[at.0, flags as u64])?.part1(path)?.run().map(drop)
    }

    /// Renames; `flags` are `RENAME_NOREPLACE`, `RENAME_EXCHANGE` and `RENAME_WHITEOUT`.
    pub fn rename(
        &self,
        at: FileRef,
        path: &[u8],
        at2: FileRef,
        path2: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let args = [at.0, at2.0, u64::from(flags)];
        self.call(Op::Rename, &args)?.part1(path)?.part2(path2)?.run().map(drop)
    }

    /// Gives a file one more name; `flags` may hold `AT_SYMLINK_FOLLOW`.
    pub fn link(
        &self,
        at: FileRef,
        path: &[u8],
        at2: FileRef,
        path2: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        self.call(Op::Link, &[at.0, at2.0, flags as u64])?.part1(path)?.part2(path2)?.run().map(drop)
    }

    /// Gives an open file (perhaps one without a name) a name.
    pub fn link_file(&self, file: FileRef, at: FileRef, path: &[u8]) -> Result<(), Errno> {
        self.call(Op::LinkFile, &[file.0, at.0])?.part2(path)?.run().map(drop)
    }

    /// Makes a symlink at `path` that holds `target`.
    pub fn symlink(&self, target: &[u8], at: FileRef, path: &[u8]) -> Result<(), Errno> {
        self.call(Op::Symlink, &[at.0])?.part1(target)?.part2(path)?.run().map(drop)
    }

    /// Target of a symlink; cut when `out` is too short, as `readlink` does.
    pub fn readlink(&self, at: FileRef, path: &[u8], out: &mut [u8]) -> Result<usize, Errno> {
        let answer = self.call(Op::Readlink, &[at.0])?.part1(path)?.run()?;
        let n = answer.payload().len().min(out.len());
        out[..n].copy_from_slice(&answer.payload()[..n]);
        Ok(n)
    }

    /// Where a path leads: the canonical path in the volume, or the path outside that a symlink points to. `ERANGE` when
    /// `out` is shorter than [`RESOLVED_MAX`] and does not hold it.
    pub fn resolve(&self, at: FileRef, path: &[u8], flags: i32, out: &mut [u8]) -> Result<Resolution, Errno> {
        self.resolve_as(path, &[at.0, flags as u64], out)
    }

    /// The same, with `.` and `..` taken out by text as libc's `realpath` does: what they stand behind must be a directory,
    /// but need not be searched.
    pub fn real_path(&self, at: FileRef, path: &[u8], out: &mut [u8]) -> Result<Resolution, Errno> {
        self.resolve_as(path, &[at.0, 0, 1], out)
    }

    fn resolve_as(&self, path: &[u8], args: &[u64], out: &mut [u8]) -> Result<Resolution, Errno> {
        let answer = self.call(Op::Resolve, args)?.part1(path)?.run()?;
        let len = copy_out(answer.payload(), out)?;
        Ok(if answer.ret() == 0 { Resolution::Inside(len) } else { Resolution::Outside(len) })
    }

    /// Path of an open file in the volume now. When its name is gone, the path that it had, with ` (deleted)` behind it.
    pub fn path_of(&self, file: FileRef, out: &mut [u8]) -> Result<OpenPath, Errno> {
        let answer = self.call(Op::PathOf, &[file.0])?.run()?;
        Ok(OpenPath { len: copy_out(answer.payload(), out)?, deleted: answer.ret() != 0 })
    }

    /// An extended attribute. With an empty `out` only its length.
    pub fn get_xattr(
        &self,
        at: FileRef,
        path: &[u8],
        flags: i32,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        if let Some(error) = self.get_xattr_here(at, path, flags, name) {
            return Err(error);
        }
        let answer = self.call(Op::GetXattr, &[at.0, flags as u64])?.part1(path)?.part2(name)?.run()?;
        if out.is_empty() { Ok(answer.payload().len()) } else { copy_out(answer.payload(), out) }
    }

    /// Sets an extended attribute; `xattr_flags` are `XATTR_CREATE` and `XATTR_REPLACE`.
    pub fn set_xattr(
        &self,
        at: FileRef,
        path: &[u8],
        flags: i32,
        name: &[u8],
        value: &[u8],
        xattr_flags: i32,
    ) -> Result<(), Errno> {
        let args = [at.0, flags as u64, xattr_flags as u64, name.len() as u64];
        self.call(Op::SetXattr, &args)?.part1(path)?.part2(name)?.part2(value)?.run().map(drop)
    }

    /// Names of the extended attributes, each ended by NUL. With an empty `out` only the length.
    pub fn list_xattr(&self, at: FileRef, path: &[u8], flags: i32, out: &mut [u8]) -> Result<usize, Errno> {
        if let Some(none) = self.plain_here(at, path, flags) {
            return none.map(|_| 0);
        }
        let answer = self.call(Op::ListXattr, &[at.0, flags as u64])?.part1(path)?.run()?;
        if out.is_empty() { Ok(answer.payload().len()) } else { copy_out(answer.payload(), out) }
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, at: FileRef, path: &[u8], flags: i32, name: &[u8]) -> Result<(), Errno> {
        self.call(Op::RemoveXattr, &[at.0, flags as u64])?.part1(path)?.part2(name)?.run().map(drop)
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<WireStatfs, Errno> {
        pod(self.call(Op::Statfs, &[])?.run()?.payload())
    }

    /// What the volume's owner tells of a topic, from a place on: bytes put into `out`, and where to go on (0 = that was
    /// all).
    pub fn inspect(&self, topic: u64, from: u64, out: &mut [u8]) -> Result<(usize, u64), Errno> {
        let answer = self.call(Op::Inspect, &[topic, from])?.run()?;
        Ok((copy_out(answer.payload(), out)?, answer.ret() as u64))
    }

    /// After `exec`: keep one reference for each of `files` and give all others back.
    pub fn retain(&self, files: &[FileRef]) -> Result<(), Errno> {
        let mut call = self.call(Op::Retain, &[files.len() as u64])?;
        for file in files {
            call = call.part2(&file.0.to_le_bytes())?;
        }
        call.run().map(drop)
    }

    /// Puts a line into the report: something that the program asked for and weft refused.
    pub fn note(&self, line: &[u8]) -> Result<(), Errno> {
        self.call(Op::Note, &[])?.part1(line)?.run().map(drop)
    }
}
