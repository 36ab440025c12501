//! Reading directories.

use super::Error::Errno;
use super::{Result, Session};
use weft_client::FileRef;
use weft_core::Ino;
use weft_vfs::{DirEntry, FileKind};

/// Cookies of `.` and `..`; the core's own come after them.
const AFTER_DOT: u64 = 1;
const AFTER_DOT_DOT: u64 = 2;

impl Session<'_> {
    /// Calls `each` with the entries of an open directory behind `cookie` (0: from the start, with `.` and `..`) until it
    /// returns false.
    pub fn read_dir(
        &self,
        file: FileRef,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let ino = self.open_file(file)?.inode.ino;
        let fs = &self.volume.fs;
        let parent = fs.parent(ino).map_err(|_| Errno(libc::ENOTDIR))?;
        if fs.getattr(ino)?.links == 0 {
            // Removed: as in Linux, not even `.` and `..` are there.
            return Err(Errno(libc::ENOENT));
        }
        let dot =
            |name: &'static [u8], ino: Ino, cookie| DirEntry { name, ino, kind: FileKind::Directory, cookie };
        if cookie < AFTER_DOT && !each(dot(b".", ino, AFTER_DOT))
            || cookie < AFTER_DOT_DOT && !each(dot(b"..", parent, AFTER_DOT_DOT))
        {
            return Ok(());
        }
        let behind = cookie.saturating_sub(AFTER_DOT_DOT);
        Ok(fs.readdir(ino, behind, &mut |entry| {
            each(DirEntry { cookie: entry.cookie + AFTER_DOT_DOT, ..entry })
        })?)
    }
}
