//! Writes of pages that commits have begun and did not wait for.
//!
//! The record of a commit speaks of pages that may still be under way when it goes to the journal: it counts only with
//! them, so all that has to wait for their arrival is a sync, and who changes the pages again. So a sync waits for all
//! writes first, a commit that changes what was there for those of the commits to its s-node before it, and a checkpoint
//! for all. A page is dirty, and so keeps its frame, until then.
//!
//! A commit that nobody waits for need not even begin its write: its blocks mostly follow those of the commit before, and one write of
//! many pages costs the kernel, and a virtual machine's host, little more than one of few. So such writes are gathered
//! until they are large, or somebody waits for them.

use crate::error::{Error, Result};
use crate::ids::SnodeId;
use crate::page_store::{PageStore, PendingWrite};
use crate::sync::Mutex;
use crate::sys::frames::PageAddresses;
use std::sync::Arc;

/// Writes that nobody has waited for, at most: each of them has a ring of its own, and frames that cannot be evicted.
const UNDER_WAY_MAX: usize = 8;

/// Pages that are gathered before their write begins.
const GATHERED_MAX: usize = 128;

/// A write of pages of one s-node that has not begun.
pub(crate) struct Planned {
    snode: SnodeId,
    block: u64,
    pages: Vec<u32>,
    from: PageAddresses,
}

impl Planned {
    /// A write of `pages` to the blocks from `block` on.
    ///
    /// # Safety
    /// The pages' bytes, `from`, can be read until the write was dropped, and, where it begins, has been waited for.
    pub(crate) unsafe fn new(snode: SnodeId, block: u64, pages: Vec<u32>, from: PageAddresses) -> Planned {
        Planned { snode, block, pages, from }
    }

    /// The pages that are to be written.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// The s-node whose pages they are.
    pub(crate) fn snode(&self) -> SnodeId {
        self.snode
    }

    /// Where they are to be written.
    pub(crate) fn blocks(&self) -> std::ops::Range<u64> {
        self.block..self.block + self.pages.len() as u64
    }

    /// Begins it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn begin(self, medium: &dyn PageStore) -> Result<Begun> {
        let Planned { snode, block, pages, from } = self;
        // SAFETY: the promise of `new`.
        let write = unsafe { medium.begin_write(block, from.as_slice()) };
        let write = write.map_err(|source| Error::Io { what: WHAT, block, source })?;
        Ok(Begun { snode, block, pages, state: Mutex::new(State::UnderWay(write)) })
    }

    /// Takes `next` on, where it follows at once; otherwise gives it back.
    fn join(&mut self, next: Planned) -> Option<Planned> {
        if self.snode != next.snode || self.block + self.pages.len() as u64 != next.block {
            return Some(next);
        }
        self.pages.extend(next.pages);
        self.from.extend(next.from);
        None
    }
}

/// What is done, for errors.
const WHAT: &str = "write nodes";

/// A write of pages of one s-node.
pub(crate) struct Begun {
    snode: SnodeId,
    block: u64,
    pages: Vec<u32>,
    state: Mutex<State>,
}

enum State {
    UnderWay(PendingWrite),
    /// On the medium, or in its cache.
    Arrived,
    /// Its pages are said to be as they are on the medium.
    Settled,
    Failed(Arc<str>),
}

impl Begun {
    /// Waits until the write has arrived.
    ///
    /// # Errors
    /// [`Error::Io`] for the first who waits, [`Error::Stopped`] for the others.
    pub(crate) fn arrive(&self) -> Result<()> {
        self.wait(&mut self.state.lock())
    }

    fn wait(&self, state: &mut State) -> Result<()> {
        match std::mem::replace(state, State::Arrived) {
            State::UnderWay(write) => write.wait().map_err(|source| {
                let error = Error::Io { what: WHAT, block: self.block, source };
                *state = State::Failed(error.reason());
                error
            }),
            State::Failed(reason) => {
                *state = State::Failed(reason.clone());
                Err(Error::Stopped { reason })
            }
            other => {
                *state = other;
                Ok(())
            }
        }
    }

    /// The s-node that the pages are of.
    pub(crate) fn snode(&self) -> SnodeId {
        self.snode
    }

    /// The blocks that are written.
    pub(crate) fn blocks(&self) -> std::ops::Range<u64> {
        self.block..self.block + self.pages.len() as u64
    }

    /// The pages that are written.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Waits until the write has arrived, and calls `clean` with each of its pages, once and before anybody else is told
    /// that it has.
    ///
    /// # Errors
    /// As [`Begun::arrive`].
    pub(crate) fn settle(&self, clean: impl FnMut(u32)) -> Result<()> {
        let mut state = self.state.lock();
        self.wait(&mut state)?;
        if let State::Arrived = *state {
            self.pages.iter().copied().for_each(clean);
            *state = State::Settled;
        }
        Ok(())
    }
}

/// The writes of a store.
#[derive(Default)]
pub(crate) struct Writes {
    /// What has not begun. Its lock is taken before that of the list, and held until what begins is there.
    gathered: Mutex<Option<Planned>>,
    /// In the order in which they were begun.
    list: Mutex<Vec<Arc<Begun>>>,
}

impl Writes {
    /// Adds the writes of a commit whose pages are where they will be, before its record is appended.
    pub(crate) fn keep(&self, writes: Vec<Begun>) {
        if !writes.is_empty() {
            self.list.lock().extend(writes.into_iter().map(Arc::new));
        }
    }

    /// As [`Writes::keep`], for a write that can begin later; at once where it is of more than an eighth of `pages_max`, or with
    /// those gathered before.
    ///
    /// # Errors
    /// [`Error::Io`] for this write or one before.
    pub(crate) fn gather(&self, write: Planned, pages_max: usize, medium: &dyn PageStore) -> Result<()> {
        let mut gathered = self.gathered.lock();
        let apart = match gathered.as_mut() {
            Some(before) => before.join(write),
            None => Some(write),
        };
        if let Some(write) = apart {
            self.begin(&mut gathered, medium)?;
            *gathered = Some(write);
        }
        let is_large = |planned: &Planned| planned.pages.len() >= GATHERED_MAX.min(pages_max / 8);
        if gathered.as_ref().is_some_and(is_large) { self.begin(&mut gathered, medium) } else { Ok(()) }
    }

    /// Begins what was gathered.
    fn begin(&self, gathered: &mut Option<Planned>, medium: &dyn PageStore) -> Result<()> {
        let Some(write) = gathered.take() else { return Ok(()) };
        let (snode, block) = (write.snode, write.block);
        let begun = write.begin(medium);
        // One that failed stays in the list, as it would when it is waited for.
        let failed =
            |reason| Begun { snode, block, pages: Vec::new(), state: Mutex::new(State::Failed(reason)) };
        let (begun, done) = match begun {
            Ok(begun) => (begun, Ok(())),
            Err(error) => (failed(error.reason()), Err(error)),
        };
        self.list.lock().push(Arc::new(begun));
        done
    }

    /// Waits until all writes have arrived, or failed: after this none of them reads a frame. Those that failed stay, so that no sync
    /// says that they were durable.
    ///
    /// # Errors
    /// As [`Begun::arrive`].
    pub(crate) fn arrive(&self, medium: &dyn PageStore) -> Result<()> {
        let mut done = self.begin(&mut self.gathered.lock(), medium);
        let writes = self.list.lock().clone();
        for write in writes {
            done = done.and(write.arrive());
        }
        done
    }

    /// Waits for the writes of pages of these s-nodes, whose locks the caller holds, and calls `clean` with each page.
    ///
    /// # Errors
    /// As [`Begun::arrive`].
    pub(crate) fn settle_of(
        &self,
        snodes: &[SnodeId],
        medium: &dyn PageStore,
        clean: impl FnMut(u32),
    ) -> Result<()> {
        let mut gathered = self.gathered.lock();
        if gathered.as_ref().is_some_and(|write| snodes.contains(&write.snode)) {
            self.begin(&mut gathered, medium)?;
        }
        drop(gathered);
        let mine = |write: &&Arc<Begun>| snodes.contains(&write.snode);
        let writes: Vec<_> = self.list.lock().iter().filter(mine).cloned().collect();
        self.settle(&writes, clean)
    }

    /// Waits for the oldest writes until few are left, of at most so many pages, and calls `clean` with each page. What is gathered does
    /// not count.
    ///
    /// # Errors
    /// As [`Begun::arrive`].
    pub(crate) fn settle_oldest(&self, pages_max: usize, clean: impl FnMut(u32)) -> Result<()> {
        let list = self.list.lock();
        let mut pages = 0;
        let newest = list.iter().rev().take(UNDER_WAY_MAX).take_while(|write| {
            pages += write.pages.len();
            pages <= pages_max
        });
        let writes = list[..list.len() - newest.count()].to_vec();
        drop(list);
        self.settle(&writes, clean)
    }

    /// Waits for all writes and calls `clean` with each page.
    ///
    /// # Errors
    /// As [`Begun::arrive`].
    pub(crate) fn settle_all(&self, medium: &dyn PageStore, clean: impl FnMut(u32)) -> Result<()> {
        self.begin(&mut self.gathered.lock(), medium)?;
        let writes = self.list.lock().clone();
        self.settle(&writes, clean)
    }

    fn settle(&self, writes: &[Arc<Begun>], mut clean: impl FnMut(u32)) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        writes.iter().try_for_each(|write| write.settle(&mut clean))?;
        let is_settled = |kept: &Arc<Begun>| writes.iter().any(|write| Arc::ptr_eq(kept, write));
        self.list.lock().retain(|kept| !is_settled(kept));
        Ok(())
    }
}
