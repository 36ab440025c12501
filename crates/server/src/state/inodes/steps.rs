//! Steps that change several inodes at once ([`weft_vfs::change`]): nobody sees one inode as it is after the step and then another as it
//! was before.
//!
//! Each inode that a step changes has an odd [`Inode::step`] while it does. Who reads such an inode waits, or asks the server, which
//! waits; who was reading it when the step began reads again.

use super::{Inodes, OpenInode, WriteGuard};
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};
use std::time::Duration;
use weft_client::shared::lock;
use weft_client::shared::volume::Inode;
use weft_vfs::FsResult;

/// Looks at a step between two yields, and yields before the first sleep: a step takes microseconds, unless the core has to clean.
const LOOKS: u32 = 64;
const YIELDS: u32 = 16;
const SLEEP: Duration = Duration::from_micros(50);

/// Ends a step with its drop. Sizes are set before.
pub struct Step<'a> {
    inodes: &'a Inodes,
    opens: Vec<Arc<OpenInode>>,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        for open in &self.opens {
            let number = self.inodes.count_step(open);
            debug_assert!(number & 1 == 0, "a step ends that has not begun");
        }
    }
}

impl Inodes {
    /// From now until the guard goes, nobody reads these inodes. The caller excludes their writers.
    pub fn begin_step(&self, opens: Vec<Arc<OpenInode>>) -> Step<'_> {
        for open in &opens {
            let number = self.count_step(open);
            debug_assert!(number & 1 != 0, "two steps change one inode at a time");
        }
        // Whoever sees anything of the step sees that it is under way.
        fence(SeqCst);
        Step { inodes: self, opens }
    }

    /// Clients see the number, and could write anything in its place: the server does not look there.
    fn count_step(&self, open: &OpenInode) -> u32 {
        let number = open.step.fetch_add(1, AcqRel).wrapping_add(1);
        self.shared(open.slot).step.store(number, Release);
        number
    }

    /// Waits until no step changes an inode; the number of the step that comes next.
    pub fn await_step(&self, open: &OpenInode) -> u32 {
        let mut looks = 0;
        loop {
            let number = open.step.load(Acquire);
            if number & 1 == 0 {
                return number;
            }
            looks += 1;
            match looks {
                _ if looks % LOOKS != 0 => std::hint::spin_loop(),
                _ if looks / LOOKS <= YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(SLEEP),
            }
        }
    }

    /// Whether a step has changed an inode, or changes it, since the next one had this number. What was read meanwhile may be half of it.
    pub fn has_stepped(&self, open: &OpenInode, number: u32) -> bool {
        fence(Acquire);
        open.step.load(Relaxed) != number
    }

    /// Like [`exclude_and_drain`](Self::exclude_and_drain), which waits for nobody: `None` when somebody writes.
    pub fn try_exclude_and_drain<'a>(&'a self, open: &OpenInode) -> FsResult<Option<WriteGuard<'a>>> {
        let inode: &Inode = self.shared(open.slot);
        if !inode.write_lock.try_lock(lock::SERVER) {
            return Ok(None);
        }
        let guard = WriteGuard { inode, excludes_long: None };
        if inode.long_write.holder() != 0 {
            return Ok(None);
        }
        if open.is_haunted.load(Relaxed) && !open.ring.lock().has_none() {
            self.revoke_excluded(open);
        }
        self.take_all(open)?;
        Ok(Some(guard))
    }

    /// Whether [`before_rewrite`](Self::before_rewrite) would have to make everything durable.
    pub fn rewrite_needs_sync(&self, open: &OpenInode) -> bool {
        self.log.as_ref().is_some_and(|log| log.has_entries(self.shared(open.slot)))
    }
}
