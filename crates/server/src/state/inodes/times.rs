//! Times of an inode, of which clients note reads and writes in shared memory.

use super::{Inodes, OpenInode};
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::*;
use weft_vfs::{Attr, FileKind, InodeFlags, TimeSpec};

impl Inodes {
    /// Notes that the server read for a client.
    pub fn note_read(&self, open: &OpenInode) {
        self.shared(open.slot).note_read(|| TimeSpec::now().0);
    }

    /// Passes the times of the clients' reads and last append on to the core.
    pub fn pass_times(&self, open: &OpenInode) {
        let shared = self.shared(open.slot);
        self.pass_reads(open, &shared.atime_ns);
        if shared.mtime_ns.load(Relaxed) != 0 {
            let mtime = TimeSpec(shared.mtime_ns.swap(0, Relaxed));
            // Most often the core has it, of what was written last. The inode may have been removed meanwhile; then nobody asks for
            // its times.
            if self.fs.getattr(open.ino).is_ok_and(|attr| attr.mtime != mtime) {
                let set = weft_vfs::SetAttr { mtime: Some(mtime), ..Default::default() };
                let _ = self.fs.setattr(open.ino, &set);
            }
        }
        self.pass_reads(open, &shared.atime_after_ns);
    }

    pub(super) fn pass_reads(&self, open: &OpenInode, noted: &AtomicI64) {
        // Most often there are none, and a swap is dearer than a look.
        if noted.load(Relaxed) != 0 {
            let when = noted.swap(0, Relaxed);
            if !open.flags().contains(InodeFlags::NO_ATIME) {
                self.fs.note_read(open.ino, TimeSpec(when));
            }
        }
    }

    /// The core's attributes with what clients changed since.
    pub fn overlay(&self, attr: Attr) -> Attr {
        // Nobody changes what is read-only, and reads are not noted there.
        if attr.kind != FileKind::File || self.fs.is_read_only() {
            return attr;
        }
        let Some(open) = self.find(attr.ino) else {
            // It may have been closed since the attributes were read; what its ring held is with the core by now.
            return self.fs.getattr(attr.ino).unwrap_or(attr);
        };
        loop {
            let step = self.await_step(&open);
            // What a step has changed since it was looked at comes from after the step, as the size does.
            let attr = if step == 0 { attr } else { self.fs.getattr(attr.ino).unwrap_or(attr) };
            let attr = self.with_what_clients_changed(attr, &open);
            if !self.has_stepped(&open, step) {
                return attr;
            }
        }
    }

    pub(super) fn with_what_clients_changed(&self, mut attr: Attr, open: &OpenInode) -> Attr {
        let shared = self.shared(open.slot);
        attr.size = shared.size.load(Acquire);
        let after_read = |attr: &Attr, noted: &AtomicI64| match noted.load(Relaxed) {
            0 => attr.atime,
            _ if attr.marks.flags.contains(InodeFlags::NO_ATIME) => attr.atime,
            when => attr.atime_after_read(TimeSpec(when)).unwrap_or(attr.atime),
        };
        attr.atime = after_read(&attr, &shared.atime_ns);
        let mtime = shared.mtime_ns.load(Relaxed);
        if mtime != 0 {
            attr.mtime = TimeSpec(mtime);
            attr.ctime = TimeSpec(mtime.max(attr.ctime.0));
        }
        attr.atime = after_read(&attr, &shared.atime_after_ns);
        attr
    }
}
