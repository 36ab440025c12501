//! Reading directories.

use super::Error::Errno;
use super::{Result, Session};
use std::sync::atomic::Ordering::Relaxed;
use weft_client::FileRef;
use weft_client::shared::listing::Listing;
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
        if cookie == 0 && self.may_lease() {
            self.list_and_tell(ino, each)
        } else {
            self.list(ino, cookie, each)
        }
    }

    /// The same for a caller that begins each listing with the cookie 0, without the entries that have come since then. A program that
    /// renames what it finds would otherwise find it again, and never come to an end.
    pub fn read_dir_of_start(
        &self,
        file: FileRef,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let open = self.open_file(file)?;
        if cookie == 0 || open.listed_to.load(Relaxed) == 0 {
            let newest = self.volume.fs.newest_cookie(open.inode.ino).unwrap_or(0);
            open.listed_to.store(newest + AFTER_DOT_DOT, Relaxed);
        }
        let end = open.listed_to.load(Relaxed);
        self.read_dir(file, cookie, &mut |entry| entry.cookie <= end && each(entry))
    }

    /// The same of a directory with an open inode, from the start; clients that may have memory find there what it holds.
    pub(super) fn list_and_tell(&self, ino: Ino, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        let Some(names) = &self.volume.names else { return self.list(ino, 0, each) };
        let mut listed = Ok(());
        names.tell_listing(ino, || {
            let (mut listing, mut is_whole, mut goes_on) = (Listing::default(), true, true);
            listed = self.list(ino, 0, &mut |entry| {
                is_whole = is_whole && listing.add(&entry);
                goes_on = goes_on && each(entry);
                is_whole || goes_on
            });
            (is_whole && listed.is_ok()).then_some(listing)
        });
        listed
    }

    /// Publishes what a directory holds that is opened to be listed.
    pub(super) fn publish_listing(&self, file: FileRef) {
        // It fails as listing does.
        let _ = self.read_dir(file, 0, &mut |_| false);
    }

    fn list(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
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
