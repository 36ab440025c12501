//! References to open files. A process holds one reference for each of its descriptors.

use super::Error::Errno;
use super::{Result, Session};
use crate::state::locks::Owner;
use crate::state::open_files::OpenFile;
use crate::state::volume::secret;
use rustc_hash::FxHashMap;
use weft_client::FileRef;
use weft_core::refuse;

impl Session<'_> {
    /// Gives back one reference. When a descriptor is closed with it, the process's record locks on the file go, as POSIX has
    /// it, and the result says whether bytes that it had written could not be stored.
    pub fn close(&self, file: FileRef, descriptor: bool) -> Result<()> {
        let open = self.open_file(file)?;
        self.volume.before_close(self.process, &open);
        refuse(!self.process.give_up(file), Errno(libc::EBADF))?;
        if descriptor && !self.stands_for_name(&open) {
            // After the descriptor: a thread that is given a lock from now on finds the descriptor closed.
            self.volume.locks.drop_records(open.inode.ino, Owner::Process(self.process.id));
        }
        let last = self.volume.files.release(file, 1);
        // The reference is given back whatever is said of it.
        last.and_then(|last| self.volume.close(&last, descriptor)).map_or(Ok(()), |errno| Err(Errno(errno)))
    }

    /// Whether it was opened with `O_PATH`: nothing is locked by way of it, and closing it drops no locks.
    fn stands_for_name(&self, open: &OpenFile) -> bool {
        self.open_flags(open) & libc::O_PATH != 0
    }

    /// The process has closed a file by itself, of an inode that the server may have kept for that.
    pub fn closed_itself(&self, inode_slot: u32) {
        self.volume.inodes.settle(inode_slot);
    }

    /// One more reference: a descriptor is duplicated.
    pub fn reference(&self, file: FileRef) -> Result<()> {
        self.open_file(file)?;
        refuse(!self.volume.files.reference(file), Errno(libc::EBADF))?;
        self.process.hold(file);
        Ok(())
    }

    /// Keeps a reference for whoever knows the secret that is returned.
    pub fn pass(&self, file: FileRef) -> Result<u64> {
        self.open_file(file)?;
        let secret = secret().map_err(|_| Errno(libc::EIO))?;
        let (passed, forgotten) = self.volume.files.pass(file, secret);
        if let Some(last) = forgotten {
            self.volume.close(&last, false);
        }
        if passed { Ok(secret) } else { Err(Errno(libc::EBADF)) }
    }

    /// Takes a reference that was kept; with `leaves`, another one stays for who comes next.
    pub fn take(&self, file: FileRef, secret: u64, leaves: bool) -> Result<()> {
        refuse(!self.volume.files.take(file, secret, leaves), Errno(libc::EBADF))?;
        self.process.hold(file);
        Ok(())
    }

    /// After `exec`: of each file, as many references are kept as it stands among `files`, and all others given back.
    pub fn retain(&self, files: impl Iterator<Item = FileRef>) {
        let mut wanted = FxHashMap::default();
        files.for_each(|file| *wanted.entry(file.0).or_insert(0) += 1);
        for (file, count) in self.process.retain(&wanted, &self.volume.files) {
            if let Some(open) = self.volume.files.get(file).filter(|open| !self.stands_for_name(open)) {
                // As closing does: exec closed a descriptor of it.
                self.volume.locks.drop_records(open.inode.ino, Owner::Process(self.process.id));
            }
            if let Some(last) = self.volume.files.release(file, count) {
                self.volume.close(&last, false);
            }
        }
    }
}
