//! A write that goes to the medium while others go on.

use crate::error::{Error, Result};
use crate::page_store::{PageStore, PendingWrite};
use crate::sync::Mutex;
use crate::sys::frames::PageAddresses;
use std::sync::Arc;

/// A write that is due, under way, or over.
pub(crate) struct Flight<S> {
    what: &'static str,
    block: u64,
    state: Mutex<State<S>>,
}

/// What is written from outlives the write: fields are dropped in their order.
enum State<S> {
    /// Nobody has begun it yet.
    Due(PageAddresses, S),
    UnderWay(PendingWrite, S),
    /// On the medium, or in its cache.
    Arrived(S),
    /// Who waited for it took what was written from.
    Over,
    /// It stays so: who comes later, for a sync, must not take it for one that arrived.
    Failed(Arc<str>),
}

impl<S> Flight<S> {
    /// A write to the blocks from `block` on, which its first [`Flight::begin`] begins, or who waits for it; `what` is said in errors.
    ///
    /// # Safety
    /// The bytes of the pages `from` can be read until the write was dropped, and, where it begins, has been waited for. They may be those
    /// of `kept`, which is dropped after that.
    pub(crate) unsafe fn due(what: &'static str, block: u64, from: PageAddresses, kept: S) -> Flight<S> {
        Flight { what, block, state: Mutex::new(State::Due(from, kept)) }
    }

    /// Takes `next` on, which follows at once; neither has begun.
    pub(crate) fn join(&self, next: Flight<S>) {
        if let State::Due(from, _) = &mut *self.state.lock()
            && let State::Due(more, _) = std::mem::replace(&mut *next.state.lock(), State::Over)
        {
            from.extend(more);
        }
    }

    /// Begins the write, if nobody has. To begin one takes long enough for others to be in want of any lock but its own.
    ///
    /// # Errors
    /// [`Error::Io`] for who begins it.
    pub(crate) fn begin(&self, medium: &dyn PageStore) -> Result<()> {
        self.advance(&mut self.state.lock(), medium, false)
    }

    /// Waits until the write has arrived, and begins it first if nobody has.
    ///
    /// # Errors
    /// [`Error::Io`] for the first who waits, [`Error::Stopped`] for the others.
    pub(crate) fn arrive(&self, medium: &dyn PageStore) -> Result<()> {
        self.advance(&mut self.state.lock(), medium, true)
    }

    /// As [`Flight::arrive`]; the first who ends the write is given what it was written from, before anybody else is told that it is over.
    ///
    /// # Errors
    /// As [`Flight::arrive`].
    pub(crate) fn end(&self, medium: &dyn PageStore, take: impl FnOnce(S)) -> Result<()> {
        let mut state = self.state.lock();
        self.advance(&mut state, medium, true)?;
        if let State::Arrived(kept) = std::mem::replace(&mut *state, State::Over) {
            take(kept);
        }
        Ok(())
    }

    fn advance(&self, state: &mut State<S>, medium: &dyn PageStore, waits: bool) -> Result<()> {
        loop {
            let next = match std::mem::replace(state, State::Over) {
                State::Due(from, kept) => {
                    // SAFETY: the promise of `Flight::due`.
                    let write = unsafe { medium.begin_write(self.block, from.as_slice()) };
                    write.map(|write| State::UnderWay(write, kept))
                }
                State::UnderWay(write, kept) if waits => write.wait().map(|()| State::Arrived(kept)),
                State::Failed(reason) => {
                    *state = State::Failed(reason.clone());
                    return if waits { Err(Error::Stopped { reason }) } else { Ok(()) };
                }
                other => {
                    *state = other;
                    return Ok(());
                }
            };
            match next {
                Ok(next) => *state = next,
                Err(source) => {
                    let error = Error::Io { what: self.what, block: self.block, source };
                    *state = State::Failed(error.reason());
                    return Err(error);
                }
            }
        }
    }
}
