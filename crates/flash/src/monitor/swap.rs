//! Exchanging the contents of two LUNs, so that a power cut at any operation loses nothing.
//!
//! ```text
//!  for each block:   LUN p: [ a ] [scratch]      copy a -> scratch of q, b -> scratch of p     (nothing changed so far)
//!                    LUN q: [ b ] [scratch]      record both new places in one change          (here it happens)
//!                                                the old blocks are the scratch of the next turn
//! ```
//!
//! A swap that was under way when power went is finished when the monitor is opened: the records say that it runs, and
//! the place of each block says whether it has moved.
//!
//! Blocks that go bad on the way can leave a LUN without scratch. The swap then stays where it is: every block has one
//! place, on one LUN or the other, and commands find it there. It goes on when there is room, at the latest when one of the
//! two grants is released; until then no other swap begins.

use super::Monitor;
use super::copy::Moved;
use super::grant::GrantState;
use super::layout::PhysBlock;
use super::records::{Change, GrantLun, SwapRow};
use crate::error::LevelError;
use parking_lot::RwLock;
use std::sync::Arc;
use weft_core::Nanos;

/// A table of places and where it is.
type Table<'a> = Option<(GrantLun, &'a RwLock<Vec<PhysBlock>>)>;

impl Monitor {
    /// Exchanges two LUNs, at least one of which is granted. Commands of their applications go on meanwhile; each waits
    /// for one block at most. False when it came to a stop for want of good blocks.
    pub(super) fn swap(&self, swap: SwapRow, now: &mut Nanos, moved: &mut Moved) -> Result<bool, LevelError> {
        let begins = Change::SwapBegins(swap);
        *now = self.control.lock().commit(&*self.backend, &self.layout, begins, *now)?;
        self.run_swap(swap, now, moved)
    }

    /// Goes on with the swap that is under way, if there is one. False when it came to a stop for want of good blocks.
    pub(super) fn finish_swap(&self, now: &mut Nanos, moved: &mut Moved) -> Result<bool, LevelError> {
        let pending = self.control.lock().records.swap;
        let Some(swap) = pending else { return Ok(true) };
        tracing::info!(from = swap.from, to = swap.to, "going on with a swap of LUNs");
        self.run_swap(swap, now, moved)
    }

    fn run_swap(&self, swap: SwapRow, now: &mut Nanos, moved: &mut Moved) -> Result<bool, LevelError> {
        let (first, second) = {
            let control = self.control.lock();
            let state = |grant_lun: GrantLun| control.states.get(&grant_lun.grant).cloned();
            (state(swap.first), swap.second.and_then(state))
        };
        let first = table_of(&first, Some(swap.first));
        let second = table_of(&second, swap.second);
        for block in 0..self.layout.blocks_granted {
            match self.swap_block(swap, block, first, second, *now, moved) {
                Ok(done) => *now = done,
                Err(LevelError::NoSpare { lun }) => {
                    tracing::warn!(lun, block, "a swap of LUNs waits: a LUN has no good block to spare");
                    return Ok(false);
                }
                Err(other) => return Err(other),
            }
        }
        *now = self.control.lock().commit(&*self.backend, &self.layout, Change::SwapEnds, *now)?;
        Ok(true)
    }

    fn swap_block(
        &self,
        swap: SwapRow,
        block: u32,
        first: Table,
        second: Table,
        issued: Nanos,
        moved: &mut Moved,
    ) -> Result<Nanos, LevelError> {
        // In the order of seats, as everybody locks tables.
        let swapped = matches!((first, second), (Some((a, _)), Some((b, _))) if b < a);
        let (low, high) = if swapped { (second, first) } else { (first, second) };
        let low = low.map(|(_, table)| table.write());
        let high = high.map(|(_, table)| table.write());
        let (first, mut second) = if swapped { (high, low) } else { (low, high) };
        let Some(mut first) = first else {
            return Err(super::records::damaged("a swap of a grant that is not there"));
        };
        let at = block as usize;
        if first[at].lun == swap.to {
            return Ok(issued);
        }
        let mut control = self.control.lock();
        let mut now = issued;
        let no_spare = |lun| LevelError::NoSpare { lun };
        let old = (first[at], second.as_ref().map(|table| table[at]));
        let copied = self.copy_to_lun(&mut control, old.0, None, swap.to, &mut now)?;
        let (new_first, mut pages) = copied.ok_or_else(|| no_spare(swap.to))?;
        let mut new_second = None;
        if let Some(from) = old.1 {
            let copied = self.copy_to_lun(&mut control, from, None, swap.from, &mut now);
            let Ok(Some((place, more))) = copied else {
                control.give_back(new_first);
                copied?;
                return Err(no_spare(swap.from));
            };
            new_second = Some(place);
            pages += more;
        }
        assert_eq!(new_first.lun, swap.to, "a swap moves the first grant to the other LUN");
        assert!(new_second.is_none_or(|place| place.lun == swap.from));
        let change = Change::Swapped { block, first: new_first, second: new_second };
        let committed = control.commit(&*self.backend, &self.layout, change, now);
        if committed.is_err() {
            control.give_back(new_first);
            new_second.into_iter().for_each(|place| control.give_back(place));
        }
        now = committed?;
        control.give_back(old.0);
        first[at] = new_first;
        if let (Some(table), Some(old), Some(new)) = (&mut second, old.1, new_second) {
            control.give_back(old);
            table[at] = new;
        }
        moved.pages += u64::from(pages);
        moved.blocks += 1 + u64::from(new_second.is_some());
        Ok(now)
    }
}

fn table_of(state: &Option<Arc<GrantState>>, grant_lun: Option<GrantLun>) -> Table<'_> {
    let (state, grant_lun) = (state.as_ref()?, grant_lun?);
    Some((grant_lun, state.tables.get(grant_lun.position as usize)?))
}
