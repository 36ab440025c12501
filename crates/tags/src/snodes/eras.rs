//! Eras of transactions: tell when every transaction that was open at some moment has ended, without a list of them.
//!
//! Each transaction counts in the era it begins in. An era may follow only when nobody is left from the one before the
//! current, so two counters are enough, and what happened in era *e* lies before every open transaction from era
//! *e + 2* on. (The scheme is epoch-based reclamation, Fraser 2004.)

use std::sync::atomic::{AtomicU64, Ordering};

/// The eras of a store's transactions.
#[derive(Default)]
pub(crate) struct Eras {
    now: AtomicU64,
    open: [AtomicU64; 2],
}

impl Eras {
    fn open_in(&self, era: u64) -> &AtomicU64 {
        &self.open[(era % 2) as usize]
    }

    /// Counts a transaction; returns the era to leave.
    #[inline]
    pub(crate) fn enter(&self) -> u64 {
        loop {
            let era = self.now();
            // Sequentially consistent: either `advance` sees the count, or the era is seen to have changed.
            self.open_in(era).fetch_add(1, Ordering::SeqCst);
            if self.now() == era {
                return era;
            }
            self.leave(era);
        }
    }

    /// A transaction of `era` has ended.
    #[inline]
    pub(crate) fn leave(&self, era: u64) {
        self.open_in(era).fetch_sub(1, Ordering::SeqCst);
    }

    /// The current era.
    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Goes on to the next era if it can begin. One caller at a time.
    pub(super) fn advance(&self) {
        let era = self.now();
        if self.open_in(era + 1).load(Ordering::SeqCst) == 0 {
            self.now.store(era + 1, Ordering::SeqCst);
        }
    }

    /// Whether all that were open in `era` have ended.
    pub(super) fn is_past(&self, era: u64) -> bool {
        self.now() >= era + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_is_past_when_all_that_were_open_in_it_have_left() {
        let eras = Eras::default();
        let (early, happened) = (eras.enter(), eras.now());
        (0..5).for_each(|_| eras.advance());
        assert!(!eras.is_past(happened));
        let late = eras.enter();
        eras.leave(early);
        assert!(!eras.is_past(happened));
        (0..2).for_each(|_| eras.advance());
        assert!(eras.is_past(happened), "who came after the first advance does not matter");
        assert!(!eras.is_past(late));
        eras.leave(late);
        (0..2).for_each(|_| eras.advance());
        assert!(eras.is_past(late));
    }
}
