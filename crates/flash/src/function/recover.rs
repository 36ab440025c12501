//! Finding out what is on a grant: each block is mapped, free, to be erased, or bad, and nothing else.

use super::oob::{self, LOST, PageNote};
use super::{FunctionLevel, Holder, Mapping, State, Use};
use crate::error::LevelError;
use crate::grant::Grant;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use weft_core::Nanos;

/// What a scan of a block found.
struct Scanned {
    holder: Holder,
    /// Whether the last page that was programmed can be read.
    whole: bool,
}

impl FunctionLevel {
    /// Takes a grant and finds the blocks that were written on it; out-of-band bytes of all written pages are read.
    ///
    /// [`LevelError::BadRequest`] when pages have too few out-of-band bytes.
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
            free: vec![Vec::new(); geometry.channels() as usize],
            turn: vec![0; geometry.channels() as usize],
            trimmed: VecDeque::new(),
            mapped: 0,
            retired: 0,
            next_id: 1,
            over_provisioning_permille: geometry.over_provisioning_permille,
        };
        let level = FunctionLevel { grant, luns, state: Mutex::new(state) };
        level.scan()?;
        Ok(level)
    }

    fn scan(&self) -> Result<(), LevelError> {
        let mut state = self.state.lock();
        // By id: the block that has it, and whether its last page can be read.
        let mut known: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
        for number in 0..self.geometry().blocks() {
            let block = self.block(number);
            let look = self.grant.look(block)?;
            state.erases[number as usize] = look.erases;
            let found = if look.programmed > 0 { self.scan_block(number, look.programmed)? } else { None };
            match found {
                Some(found) => {
                    let id = found.holder.id;
                    state.next_id = state.next_id.max(id + 1);
                    state.blocks[number as usize] = Use::Mapped(found.holder);
                    state.mapped += 1;
                    if let Some(other) = known.insert(id, (number, found.whole)) {
                        let kept = settle(&mut state, (number, found.whole), other);
                        known.insert(id, kept);
                    }
                }
                None if look.retired => {
                    state.blocks[number as usize] = Use::Retired;
                    state.retired += 1;
                }
                None if look.programmed > 0 || look.erase_incomplete => {
                    state.blocks[number as usize] = Use::Trimmed;
                    state.trimmed.push_back(number);
                }
                None => state.free[block.channel as usize].push(number),
            }
        }
        Ok(())
    }

    /// Who holds a block, by what is on it; `None` when nothing on it can be told.
    fn scan_block(&self, number: u32, programmed: u32) -> Result<Option<Scanned>, LevelError> {
        let mut found: Option<Scanned> = None;
        for at in 0..programmed {
            let mut raw = [0; oob::BYTES];
            match self.grant.read(Nanos(0), self.block(number).page(at), 0, &mut [], &mut raw) {
                Ok(_) => {}
                Err(LevelError::Unreadable { .. }) => continue,
                Err(other) => return Err(other),
            }
            let Some(note) = PageNote::decode(&raw) else { continue };
            let scanned = found.get_or_insert_with(|| Scanned {
                holder: Holder {
                    id: note.id,
                    label: note.label,
                    mapping: note.mapping,
                    written: 0,
                    pages: Vec::new(),
                    lost: Vec::new(),
                    moves: note.moves,
                },
                whole: false,
            });
            scanned.whole = at + 1 == programmed;
            if note.flags & LOST != 0 {
                scanned.holder.lost.push(at);
            }
            if note.mapping == Mapping::Page && note.page < self.geometry().pages_per_block {
                scanned.holder.wrote(at, note.page, self.geometry().pages_per_block);
            }
        }
        if let Some(scanned) = &mut found {
            // Torn pages were programmed too.
            scanned.holder.written = programmed;
        }
        Ok(found)
    }
}

/// Two blocks have one id: power went while one was moved. The copy counts when all pages of the original were copied,
/// the last of them whole. Returns the one that counts; the other is to be erased.
fn settle(state: &mut State, a: (u32, bool), b: (u32, bool)) -> (u32, bool) {
    let seen = |number: u32| match &state.blocks[number as usize] {
        Use::Mapped(holder) => (holder.moves, holder.written),
        _ => (0, 0),
    };
    let (copy, original) = if seen(a.0).0 > seen(b.0).0 { (a, b) } else { (b, a) };
    let complete = copy.1 && seen(copy.0).1 >= seen(original.0).1;
    let (keep, give) = if complete { (copy, original) } else { (original, copy) };
    state.blocks[give.0 as usize] = Use::Trimmed;
    state.trimmed.push_back(give.0);
    state.mapped -= 1;
    keep
}
