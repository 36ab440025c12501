//! Opens a grant: finds for each block whether it is mapped, free, to be erased, or bad.

use super::oob::{self, EMPTY, LOST, PageNote};
use super::{FunctionLevel, Holder, LunBlocks, Mapping, State, Use};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::level::LevelName;
use parking_lot::{Condvar, Mutex, RwLock};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::Nanos;

impl FunctionLevel {
    /// Takes a grant and finds the blocks that were written on it; out-of-band bytes of all written pages are read.
    ///
    /// [`LevelError::BadRequest`] when pages have too few out-of-band bytes; [`LevelError::CannotTell`] when a block holds
    /// something and none of its pages can be read; [`LevelError::OtherLevel`] when the grant holds data of the policy level.
    pub fn open(grant: Grant) -> Result<FunctionLevel, LevelError> {
        let geometry = grant.geometry().clone();
        if (geometry.oob_bytes as usize) < oob::BYTES {
            return Err(LevelError::BadRequest(format!(
                "pages have {} out-of-band bytes and the function level needs {}; make a device with more",
                geometry.oob_bytes,
                oob::BYTES
            )));
        }
        let luns = geometry.lun_list();
        let state = State {
            blocks: vec![Use::Free; geometry.blocks() as usize],
            erases: vec![0; geometry.blocks() as usize],
            luns: vec![LunBlocks::new(geometry.planes); luns.len()],
            row: 0,
            turn: vec![0; geometry.channels() as usize],
            copies: BTreeSet::new(),
            trims: 0,
            mapped: 0,
            retired: 0,
            next_id: 1,
            over_provisioning_permille: geometry.over_provisioning_permille,
        };
        let mut lun_numbers = vec![Vec::new(); geometry.channels() as usize];
        for (number, (channel, _)) in luns.iter().enumerate() {
            lun_numbers[*channel as usize].push(number as u32);
        }
        let block_locks = (0..geometry.blocks()).map(|_| RwLock::new(())).collect();
        let (state, erased) = (Mutex::new(state), Condvar::new());
        let level = FunctionLevel { grant, luns, lun_numbers, block_locks, state, erased };
        LevelName::Function.refuse_others(&level.grant)?;
        level.scan()?;
        Ok(level)
    }

    fn scan(&self) -> Result<(), LevelError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // By id: the block that has it.
        let mut known: BTreeMap<u64, u32> = BTreeMap::new();
        let mut copies = Vec::new();
        for number in 0..self.geometry().blocks() {
            let block = self.block(number);
            let look = self.grant.look(block)?;
            state.erases[number as usize] = look.erases;
            let found = if look.programmed > 0 { self.scan_block(number, look.programmed)? } else { None };
            match found {
                Some(holder) => {
                    let id = holder.id;
                    state.next_id = state.next_id.max(holder.last + 1);
                    state.blocks[number as usize] = Use::Mapped(holder);
                    state.mapped += 1;
                    if let Some(other) = known.insert(id, number) {
                        let (kept, given) = settle(state, number, other);
                        known.insert(id, kept);
                        state.mapped -= 1;
                        copies.push(given);
                    }
                }
                None if look.retired => {
                    state.blocks[number as usize] = Use::Retired;
                    state.retired += 1;
                }
                None if look.programmed > 0 || look.erase_incomplete => {
                    self.put_trimmed(state, number);
                }
                None => {
                    let lun = (number / self.geometry().blocks_per_lun) as usize;
                    state.luns[lun].plane_of(number).insert((look.erases, number));
                }
            }
        }
        // At once: what is written from now on goes to one of the two, and the other must not be found again.
        copies.iter().for_each(|number| self.take_copied(state, *number));
        state.check_counts();
        drop(guard);
        for number in copies {
            match self.erase_taken(Nanos(0), &[number]) {
                // Any erase that works later erases it first.
                Err(error) if error.leaves_reads() => {
                    tracing::warn!("the copy of a block was not erased: {error}");
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Who holds a block, by what is on it; `None` when nothing on it identifies a holder.
    fn scan_block(&self, number: u32, programmed: u32) -> Result<Option<Holder>, LevelError> {
        let mut found: Option<Holder> = None;
        let mut unread = None;
        for at in 0..programmed {
            let mut raw = [0; oob::LOG_BYTES];
            let raw = &mut raw[..oob::LOG_BYTES.min(self.geometry().oob_bytes as usize)];
            match self.grant.read(Nanos(0), self.block(number).page(at), 0, &mut [], raw) {
                Ok(_) => {}
                Err(LevelError::Unreadable { why, .. }) => {
                    unread = if why.is_interrupted() { unread } else { Some(at) };
                    continue;
                }
                Err(other) => return Err(other),
            }
            let Some(note) = PageNote::decode(raw) else { continue };
            let holder =
                found.get_or_insert_with(|| Holder::new(note.id, note.label, note.mapping, note.moves));
            holder.last = holder.last.max(note.sequence());
            if note.flags & LOST != 0 {
                holder.lost.push(at);
            }
            if note.mapping == Mapping::Page && note.page < self.geometry().pages_per_block {
                holder.wrote(at, note.page, self.geometry().pages_per_block);
            } else if note.flags & (LOST | EMPTY) == LOST {
                unread = Some(at);
            }
        }
        match (&mut found, unread) {
            (Some(holder), _) => {
                // Torn pages were programmed too.
                holder.written = programmed;
                holder.unread = unread.filter(|_| holder.mapping == Mapping::Page);
            }
            // It is somebody's, and nobody can tell whose.
            (None, Some(at)) => {
                let page = self.block(number).page(at).to_string();
                return Err(LevelError::CannotTell { page, of: "the application's blocks" });
            }
            (None, None) => {}
        }
        Ok(found)
    }
}

/// Two blocks have one id: power went while one was moved, before the original was erased. The original has all that the
/// copy has, and nothing was written to the copy. Returns the block that counts, and the other.
fn settle(state: &State, a: u32, b: u32) -> (u32, u32) {
    let seen = |number: u32| match &state.blocks[number as usize] {
        Use::Mapped(holder) => (holder.written, Reverse(holder.moves)),
        _ => (0, Reverse(0)),
    };
    if seen(a) >= seen(b) { (a, b) } else { (b, a) }
}
