//! Wear leveling within a grant: blocks that have not been erased for long keep their flash young; their data moves to
//! worn blocks, so that the young ones come into use.

use super::oob::{EMPTY, LOST, PageNote};
use super::{FunctionLevel, Holder, Mapping, Use};
use crate::address::GrantBlock;
use crate::error::LevelError;
use crate::grant::RawWrite;
use crate::oob;
use weft_core::{Nanos, Tag};

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
#[derive(Debug, Default)]
pub struct WearReport {
    /// The blocks that were moved, in order.
    pub shuffled: Vec<Shuffled>,
    /// What ended it before it was done. The blocks above have moved all the same.
    pub stopped: Option<LevelError>,
    /// Erases of the most worn block.
    pub max: u32,
    /// Erases of the least worn block.
    pub min: u32,
    /// Mean erases of a block.
    pub mean: f64,
    /// When it was over.
    pub done: Nanos,
}

/// What became of a block that was to be moved.
enum Outcome {
    Moved(Shuffled),
    /// It was moved, and the old one was not erased: the next call that erases blocks does that.
    MovedBeforeError(Shuffled, LevelError),
    /// It was given back meanwhile.
    NotMapped,
    /// It stays; the other one's flash failed.
    TargetFailed,
}

impl FunctionLevel {
    /// Moves up to `moves_max` blocks that are erased least to free blocks that are erased most, as long as they differ by
    /// more than `threshold` erases. Blocks stay on their channel. A power cut leaves each block once, in its old place or
    /// in its new one.
    ///
    /// Calls on the blocks that are moved wait until that is over, and then find them [not mapped](LevelError::NotMapped): where
    /// they are is in the report. An application whose threads use their blocks meanwhile levels wear in a turn of its own.
    ///
    /// An error that comes after blocks have moved is in the report ([`WearReport::stopped`]), because the application has to know where
    /// they are. This call fails only when it has moved none.
    pub fn wear_leveler(
        &self,
        issued: Nanos,
        threshold: u32,
        moves_max: u32,
    ) -> Result<WearReport, LevelError> {
        let mut report = WearReport { done: issued, ..WearReport::default() };
        // By channel: mapped blocks, the least worn one last.
        let mut mapped: Vec<Vec<(u32, u32)>> = vec![Vec::new(); self.geometry().channels() as usize];
        {
            let state = self.state.lock();
            for (number, used) in state.blocks.iter().enumerate() {
                if matches!(used, Use::Mapped(_)) {
                    let channel = self.block(number as u32).channel as usize;
                    mapped[channel].push((state.erases[number], number as u32));
                }
            }
        }
        mapped.iter_mut().for_each(|blocks| blocks.sort_by(|a, b| b.cmp(a)));
        while (report.shuffled.len() as u32) < moves_max {
            let Some((from, to)) = self.pair(&mut mapped, threshold) else { break };
            match self.shuffle(from, to, &mut report.done) {
                Ok(Outcome::Moved(shuffled)) => report.shuffled.push(shuffled),
                Ok(Outcome::MovedBeforeError(shuffled, error)) => {
                    report.shuffled.push(shuffled);
                    report.stopped = Some(error);
                }
                Ok(Outcome::NotMapped) => {}
                Ok(Outcome::TargetFailed) => {
                    let erases = self.state.lock().erases[from as usize];
                    mapped[self.block(from).channel as usize].push((erases, from));
                }
                Err(error) if report.shuffled.is_empty() => return Err(error),
                Err(error) => report.stopped = Some(error),
            }
            if report.stopped.is_some() {
                break;
            }
        }
        let state = self.state.lock();
        let counted = || {
            let good = |number: &usize| state.blocks[*number] != Use::Retired;
            (0..state.blocks.len()).filter(good).map(|number| state.erases[number])
        };
        report.max = counted().max().unwrap_or(0);
        report.min = counted().min().unwrap_or(0);
        report.mean = counted().map(f64::from).sum::<f64>() / counted().count().max(1) as f64;
        Ok(report)
    }

    /// The least worn mapped block and the most worn free one of the channel where they differ most. The free one is taken.
    fn pair(&self, mapped: &mut [Vec<(u32, u32)>], threshold: u32) -> Option<(u32, u32)> {
        let mut state = self.state.lock();
        let mut best: Option<(u32, u32, (u32, u32))> = None;
        for (channel, young) in mapped.iter().enumerate() {
            let luns = self.lun_numbers[channel].iter();
            let worn = luns.filter_map(|lun| state.luns[*lun as usize].last()).max();
            let (Some((erases, _)), Some(worn)) = (young.last(), worn) else { continue };
            let gap = worn.0.saturating_sub(*erases);
            if gap > threshold && best.is_none_or(|(most, ..)| gap > most) {
                best = Some((gap, channel as u32, worn));
            }
        }
        let (_, channel, worn) = best?;
        let (_, from) = mapped[channel as usize].pop()?;
        let lun = &mut state.luns[(worn.1 / self.geometry().blocks_per_lun) as usize];
        lun.plane_of(worn.1).remove(&worn);
        lun.busy += 1;
        state.blocks[worn.1 as usize] = Use::Busy;
        Some((from, worn.1))
    }

    /// A block that was taken for a copy is as it was.
    fn put_back(&self, number: u32) {
        let mut state = self.state.lock();
        let erases = state.erases[number as usize];
        let lun = &mut state.luns[(number / self.geometry().blocks_per_lun) as usize];
        lun.busy -= 1;
        lun.plane_of(number).insert((erases, number));
        state.blocks[number as usize] = Use::Free;
        self.erased.notify_all();
    }

    /// Moves a block to one that was taken for it.
    fn shuffle(&self, from: u32, to: u32, now: &mut Nanos) -> Result<Outcome, LevelError> {
        // From here on nobody reads or writes it.
        let _guard = self.block_locks[from as usize].write();
        let (source, target) = (self.block(from), self.block(to));
        let Use::Mapped(mut holder) = self.state.lock().blocks[from as usize].clone() else {
            self.put_back(to);
            return Ok(Outcome::NotMapped);
        };
        holder.moves = holder.moves.saturating_add(1);
        holder.lost.clear();
        match self.copy_pages(source, target, &mut holder, now) {
            Ok(true) => {}
            // What it got can be read, and would be found when the other one is gone.
            Ok(false) => {
                self.state.lock().copies.insert(to);
                self.erase_taken(*now, &[to])?;
                return Ok(Outcome::TargetFailed);
            }
            Err(error) => {
                let mut state = self.state.lock();
                state.luns[(to / self.geometry().blocks_per_lun) as usize].busy -= 1;
                state.copies.insert(to);
                self.put_trimmed(&mut state, to);
                self.erased.notify_all();
                return Err(error);
            }
        }
        let label = holder.label;
        {
            let mut state = self.state.lock();
            state.luns[(to / self.geometry().blocks_per_lun) as usize].busy -= 1;
            debug_assert_eq!(state.blocks[to as usize], Use::Busy);
            state.blocks[to as usize] = Use::Mapped(holder);
            // At once: the two have one id.
            self.take_copied(&mut state, from);
            state.check_counts();
            self.erased.notify_all();
        }
        let shuffled = Shuffled { from: source, to: target, label };
        match self.erase_taken(*now, &[from]) {
            Ok(end) => *now = end,
            Err(error) => return Ok(Outcome::MovedBeforeError(shuffled, error)),
        }
        Ok(Outcome::Moved(shuffled))
    }

    /// Copies what a block holds; false when the flash that it goes to failed.
    fn copy_pages(
        &self,
        source: GrantBlock,
        target: GrantBlock,
        holder: &mut Holder,
        now: &mut Nanos,
    ) -> Result<bool, LevelError> {
        let mut data = vec![0; self.geometry().page_bytes as usize];
        for page in 0..holder.written {
            let mut raw = [0; super::oob::LOG_BYTES];
            let raw = &mut raw[..super::oob::LOG_BYTES.min(self.geometry().oob_bytes as usize)];
            let read = self.grant.read_tagged(*now, source.page(page), 0, &mut data, raw);
            let (mut note, tag) = match read {
                Ok((done, tag)) => {
                    *now = done.done;
                    let note = PageNote::decode(raw).unwrap_or_else(|| holder.note_without_data(page));
                    (note, oob::tag_for_copy(source.page(page), tag))
                }
                Err(LevelError::Unreadable { done, why, .. }) => {
                    *now = done;
                    let mut note = holder.note_without_data(page);
                    if holder.mapping == Mapping::Log && why.is_interrupted() {
                        note.flags |= EMPTY;
                    }
                    (note, Tag::default())
                }
                Err(other) => return Err(other),
            };
            note.moves = holder.moves;
            if note.flags & LOST != 0 {
                holder.lost.push(page);
            }
            let copy = RawWrite { page: target.page(page), data: &data, oob: &note.encode(), tag };
            match self.grant.program_tagged(*now, &copy) {
                Ok(done) => *now = done.done,
                Err(LevelError::BlockRetired { .. }) => return Ok(false),
                Err(other) => return Err(other),
            }
        }
        Ok(true)
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
