//! Wear leveling within a grant: blocks that have not been erased for long keep their flash young; their data moves to
//! worn blocks, so that the young ones come into use.

use super::oob::{EMPTY, LOST, PageNote};
use super::{FunctionLevel, Holder, Mapping, State, Use};
use crate::address::GrantBlock;
use crate::error::LevelError;
use weft_core::Nanos;

/// A block that was moved. The application has to replace the one address by the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shuffled {
    /// Where it was.
    pub from: GrantBlock,
    /// Where it is.
    pub to: GrantBlock,
    /// Its label.
    pub label: u64,
}

/// What wear leveling did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WearReport {
    /// The blocks that were moved, in order.
    pub shuffled: Vec<Shuffled>,
    /// Erases of the most worn block.
    pub max: u32,
    /// Erases of the least worn block.
    pub min: u32,
    /// Mean erases of a block.
    pub mean: f64,
    /// When it was over.
    pub done: Nanos,
}

impl FunctionLevel {
    /// Moves up to `moves_max` blocks that are erased least to free blocks that are erased most, as long as they differ by
    /// more than `threshold` erases. Blocks stay on their channel. A power cut leaves each block once, in its old place or
    /// in its new one.
    ///
    /// No other call may be under way on the blocks: wear leveling belongs into the application's own turn.
    pub fn wear_leveler(
        &self,
        issued: Nanos,
        threshold: u32,
        moves_max: u32,
    ) -> Result<WearReport, LevelError> {
        let mut state = self.state.lock();
        let mut report = WearReport { done: issued, ..WearReport::default() };
        while (report.shuffled.len() as u32) < moves_max {
            let Some((from, to)) = self.pair(&state, threshold) else { break };
            let Some(shuffled) = self.shuffle(&mut state, from, to, &mut report.done)? else { continue };
            report.shuffled.push(shuffled);
        }
        let counted = || {
            let good = |number: &usize| state.blocks[*number] != Use::Retired;
            (0..state.blocks.len()).filter(good).map(|number| state.erases[number])
        };
        report.max = counted().max().unwrap_or(0);
        report.min = counted().min().unwrap_or(0);
        report.mean = counted().map(f64::from).sum::<f64>() / counted().count().max(1) as f64;
        Ok(report)
    }

    /// The least worn mapped block and the most worn free one of the channel where they differ most.
    fn pair(&self, state: &State, threshold: u32) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32, u32)> = None;
        for (channel, free) in state.free.iter().enumerate() {
            let worn = free.iter().copied().max_by_key(|number| state.erases[*number as usize]);
            let mapped = |number: &u32| {
                self.block(*number).channel == channel as u32
                    && matches!(state.blocks[*number as usize], Use::Mapped(_))
            };
            let young = (0..state.blocks.len() as u32).filter(mapped);
            let young = young.min_by_key(|number| state.erases[*number as usize]);
            let (Some(young), Some(worn)) = (young, worn) else { continue };
            let gap = state.erases[worn as usize].saturating_sub(state.erases[young as usize]);
            if gap > threshold && best.is_none_or(|(most, ..)| gap > most) {
                best = Some((gap, young, worn));
            }
        }
        best.map(|(_, young, worn)| (young, worn))
    }

    /// Moves a block; `None` when the flash it was to move to failed.
    fn shuffle(
        &self,
        state: &mut State,
        from: u32,
        to: u32,
        now: &mut Nanos,
    ) -> Result<Option<Shuffled>, LevelError> {
        let (source, target) = (self.block(from), self.block(to));
        let Use::Mapped(mut holder) = state.blocks[from as usize].clone() else { return Ok(None) };
        holder.moves = holder.moves.saturating_add(1);
        holder.lost.clear();
        let mut data = vec![0; self.geometry().page_bytes as usize];
        for page in 0..holder.written {
            let mut raw = [0; super::oob::BYTES];
            let read = self.grant.read(*now, source.page(page), 0, &mut data, &mut raw);
            let mut note = match read {
                Ok(done) => {
                    *now = done.done;
                    PageNote::decode(&raw).unwrap_or_else(|| holder.note_without_data(page))
                }
                Err(LevelError::Unreadable { done, .. }) => {
                    *now = done;
                    holder.note_without_data(page)
                }
                Err(other) => return Err(other),
            };
            note.moves = holder.moves;
            if note.flags & LOST != 0 {
                holder.lost.push(page);
            }
            match self.grant.program(*now, target.page(page), &data, &note.encode()) {
                Ok(done) => *now = done.done,
                Err(LevelError::BlockRetired { .. }) => {
                    state.free[target.channel as usize].retain(|number| *number != to);
                    state.blocks[to as usize] = Use::Trimmed;
                    // What it got can be read, and would be found when the other one is gone.
                    self.erase_number(state, to, now)?;
                    return Ok(None);
                }
                Err(other) => return Err(other),
            }
        }
        state.free[target.channel as usize].retain(|number| *number != to);
        let label = holder.label;
        state.blocks[to as usize] = Use::Mapped(holder);
        state.blocks[from as usize] = Use::Trimmed;
        // At once: the two have one id.
        self.erase_number(state, from, now)?;
        Ok(Some(Shuffled { from: source, to: target, label }))
    }

    /// Erases a block that is trimmed before all others.
    pub(super) fn erase_number(
        &self,
        state: &mut State,
        number: u32,
        now: &mut Nanos,
    ) -> Result<(), LevelError> {
        state.trimmed.retain(|other| *other != number);
        state.trimmed.push_front(number);
        self.erase_one(state, None, now).map(|_| ())
    }
}

impl Holder {
    /// The note of a place whose data there is none to copy of: it keeps its place, so that the others keep theirs.
    fn note_without_data(&self, place: u32) -> PageNote {
        let number = self.pages.iter().position(|at| *at == place);
        let unknown = self.unread.is_some_and(|last| place <= last);
        // Interrupted, or written again later.
        let nothing = self.mapping == Mapping::Page && number.is_none() && !unknown;
        let number = number.map_or(super::NO_PAGE, |number| number as u32);
        let flags = if nothing { LOST | EMPTY } else { LOST };
        PageNote { flags, ..PageNote::of(self.id, self.label, self.mapping, number) }
    }
}
