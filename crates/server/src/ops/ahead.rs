//! Telling programs ahead what they are likely to ask for next, in memory that they share.

use super::{Result, Session};
use crate::state::readahead::{Ahead, Readahead};
use weft_core::Ino;
use weft_vfs::{Access, DirEntry, FileKind, access};

/// For each directory that is to be listed ahead: entries that are looked at for directories.
const LOOKS: u32 = 16;
/// And entries that are listed, in all of them together.
const LISTED: u32 = 64;

impl Session<'_> {
    /// After a question about what has a name in a directory: tells others of it, when names of it are asked for one by one.
    pub(super) fn tell_names_ahead(&self, dir: Ino, asked: Ino) {
        let readahead = &self.volume.names_ahead;
        let Some(ahead) = self.is_due(readahead, dir, asked) else { return };
        let (mut names, mut behind) = (0, None);
        let told = self.volume.fs.readdir(dir, ahead.cookie, &mut |entry| {
            names += 1;
            behind = (names == ahead.entries).then_some(entry.cookie);
            behind.is_none()
        });
        if told.is_ok() {
            readahead.told(dir, names, behind);
        }
    }

    /// After a directory was opened to be listed that is in `dir`: lists others that are there, and those in them. Of a volume that is
    /// read-only no inodes are kept that nobody has open.
    pub(super) fn list_ahead(&self, dir: Ino, opened: Ino) {
        let readahead = &self.volume.lists_ahead;
        if !self.volume.fs.is_read_only()
            && let Some(ahead) = self.is_due(readahead, dir, opened)
        {
            self.list_from(readahead, dir, ahead);
        }
    }

    fn list_from(&self, readahead: &Readahead, dir: Ino, ahead: Ahead) {
        let (mut dirs, mut looks, mut behind, mut before) = (Vec::new(), 0, None, ahead.cookie);
        let read = self.volume.fs.readdir(dir, ahead.cookie, &mut |entry| {
            looks += 1;
            if entry.kind == FileKind::Directory {
                dirs.push((entry.ino, before));
            }
            before = entry.cookie;
            let is_enough = looks == LOOKS * ahead.entries || dirs.len() as u32 == ahead.entries;
            behind = is_enough.then_some(entry.cookie);
            behind.is_none()
        });
        if read.is_err() {
            return;
        }
        let (mut listed_dirs, mut listed_entries) = (0, 0);
        let (mut dirs, mut below) = (dirs.into_iter().peekable(), Vec::new());
        let most = LISTED * ahead.entries;
        while listed_dirs < ahead.entries && listed_entries < most {
            // As programs walk trees: what is in a directory comes before what is behind it.
            let Some(next) = below.pop().or_else(|| dirs.next().map(|(dir, _)| dir)) else { break };
            let first = below.len();
            // One that is gone meanwhile, that has been listed, or that may not be, is not.
            let add = &mut |entry: DirEntry<'_>| {
                listed_entries += 1;
                if entry.kind == FileKind::Directory && entry.name != b"." && entry.name != b".." {
                    below.push(entry.ino);
                }
                listed_entries < most
            };
            listed_dirs += u32::from(self.list_unopened(next, add).is_ok_and(|is_listed| is_listed));
            below[first..].reverse();
        }
        // The next time goes on from the first that was not reached.
        let reached = dirs.peek().map(|(_, before)| *before);
        readahead.told(dir, listed_dirs, reached.or(behind));
    }

    fn is_due(&self, readahead: &Readahead, dir: Ino, entry: Ino) -> Option<Ahead> {
        if !self.may_lease() {
            return None;
        }
        let above = self.volume.fs.parent(dir).ok()?;
        readahead.asked((above, dir, entry)).filter(|_| self.check_list(dir).is_ok())
    }

    fn check_list(&self, dir: Ino) -> Result<()> {
        Ok(self.cred().check(self.fs(), &self.volume.fs.getattr(dir)?, access::READ)?)
    }

    /// Publishes what a directory holds that has no open inode yet; whether it did.
    fn list_unopened(&self, dir: Ino, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<bool> {
        if self.volume.inodes.find(dir).is_some() {
            return Ok(false);
        }
        self.check_list(dir)?;
        let open = self.volume.inodes.open(dir)?;
        let listed = self.list_and_tell(dir, each);
        self.volume.inodes.release(&open, None);
        listed.map(|()| true)
    }
}
