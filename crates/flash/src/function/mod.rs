//! The function level: the application works with blocks and decides what to write where and when to clean; the library
//! allocates blocks, erases them when there is time, levels wear within the grant and keeps over-provisioning free.
//!
//! The calls are those of Prism-SSD's flash-function level (ICDCS 2019, section IV): [`address_mapper`],
//! [`flash_read`], [`flash_write`], [`flash_trim`], [`wear_leveler`], [`set_ops`].
//!
//! ```text
//!  out-of-band bytes of each page:  magic 4 | flags 1 | mapping 1 | moves 2 | id 8 | label 8 | page 4 | order 4 | crc 4
//!                                                                              of log blocks alone ----'
//! ```
//!
//! Each block that is taken has an **id** and a **label** of the application's. The id is larger than those of all blocks that
//! the level found when it was opened or has taken since; that of a block that was trimmed may be given again after the next
//! opening. Both are in the out-of-band bytes of each of the block's pages: after a power cut [`FunctionLevel::open`] finds every
//! block that was written and whose erase was not finished ([`mapped_blocks`]); a block taken and never written is free again. A
//! trim is durable when [`flush`] has returned; before that the block may be found again.
//!
//! **Locks.** Each block has a read-write lock. Reads and writes by place share it; a write by number, a trim and a move hold it exclusively. It
//! is held over the command of the flash. What blocks are used for is under one lock, that is held for look-ups only: an erase
//! keeps nobody waiting but who wants that block. Lock order: blocks by number, then the lock of uses.
//!
//! An application that writes over many LUNs takes [rows](FunctionLevel::address_mapper_row) of blocks.
//!
//! [`address_mapper`]: FunctionLevel::address_mapper
//! [`flash_read`]: FunctionLevel::flash_read
//! [`flash_write`]: FunctionLevel::flash_write
//! [`flash_trim`]: FunctionLevel::flash_trim
//! [`wear_leveler`]: FunctionLevel::wear_leveler
//! [`set_ops`]: FunctionLevel::set_ops
//! [`mapped_blocks`]: FunctionLevel::mapped_blocks
//! [`flush`]: FunctionLevel::flush

mod oob;
mod recover;
mod wear;

pub use wear::{Shuffled, WearReport};

use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::grant::{Grant, RawRead, RawWrite, Results};
use oob::PageNote;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weft_core::{Nanos, Tag};
use weft_device::nand::{Done, Unreadable};

/// What the pages of a block are addressed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// By their place: they are written in order, each once.
    Block,
    /// By number, in any order and again and again until the block has no page left; a read gets what was written last.
    Page,
    /// Written in order, each to the next place, with a number of the application's, which pages of several blocks may have; read by
    /// place. The level numbers the writes to all log blocks, so after a restart [`log_pages`](FunctionLevel::log_pages) tells which page
    /// with a number was written last. For translation layers.
    Log,
}

/// A block that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Block in the addresses of the grant.
    pub block: GrantBlock,
    /// Blocks of its channel that are free now.
    pub free: u32,
}

/// One page of a block to write.
#[derive(Clone, Copy, Debug)]
pub struct BlockWrite<'a> {
    /// Block in the addresses of the grant.
    pub block: GrantBlock,
    /// The page, by place or by number as the block is mapped; of a log block the number that it gets.
    pub page: u32,
    /// A whole page of data.
    pub data: &'a [u8],
    /// What is known of the data; it is stored beside it, and stays there when wear leveling moves the block.
    pub tag: Tag,
}

/// One page of a block to read, or a part of it.
#[derive(Debug)]
pub struct BlockRead<'a> {
    /// Block in the addresses of the grant.
    pub block: GrantBlock,
    /// The page, by number in a block that is mapped by pages, else by place.
    pub page: u32,
    /// First byte of the page's data to read.
    pub offset: u32,
    /// Gets the data.
    pub data: &'a mut [u8],
}

/// A block as it was found after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundBlock {
    /// Block in the addresses of the grant.
    pub block: GrantBlock,
    /// Its id. A block that is taken while this one is mapped gets a larger one; the id of a block that was trimmed may be given
    /// again after the next opening.
    pub id: u64,
    /// What the application wrote down when it took the block.
    pub label: u64,
    /// What its pages are addressed by.
    pub mapping: Mapping,
    /// Pages written.
    pub written: u32,
}

/// A page of a log block as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPage {
    /// Place in the block.
    pub place: u32,
    /// The application's number of the page; `None` when it cannot be read: it may have had any.
    pub number: Option<u32>,
    /// Number of the write; of two pages with one number, that of the later one is larger.
    pub sequence: u64,
}

/// What a block is used for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Use {
    Free,
    Mapped(Holder),
    /// Trimmed, to be erased.
    Trimmed,
    /// Being erased, or filled with a copy of another block.
    Busy,
    /// Bad, without a spare.
    Retired,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Holder {
    id: u64,
    label: u64,
    mapping: Mapping,
    /// Pages programmed.
    written: u32,
    /// For [`Mapping::Page`]: by number, the page; empty while nothing is written.
    pages: Vec<u32>,
    /// Places whose data was lost before the block was moved.
    lost: Vec<u32>,
    /// For [`Mapping::Page`]: the last place of which nobody knows what number it has. It may be newer than all before it.
    unread: Option<u32>,
    moves: u16,
    /// For [`Mapping::Log`]: the number of the last write that was found when the level was opened, for others the id.
    last: u64,
}

const NO_PAGE: u32 = u32::MAX;
/// Blocks of several LUNs whose erases differ by so many at most are taken as alike, so that LUNs keep their turns.
const ALIKE: u32 = 4;

#[derive(Debug)]
struct State {
    /// By block number in the grant.
    blocks: Vec<Use>,
    /// By block number: erases, as last seen.
    erases: Vec<u32>,
    /// By LUN, as the grant lists them.
    luns: Vec<LunBlocks>,
    /// By channel: the LUN whose turn it is, among blocks of equal wear.
    turn: Vec<u32>,
    /// The first LUN of the row that is taken next, among rows of equal wear.
    row: u32,
    /// Blocks that hold an older or unfinished copy of another one, until they are erased. They are erased before any trimmed block: if
    /// the newer copy were gone, they would be found in its place.
    copies: BTreeSet<u32>,
    /// Trims so far.
    trims: u64,
    mapped: u32,
    retired: u32,
    /// The id of the block that is taken next, and the number of the next write to a log block: both only grow.
    next_id: u64,
    over_provisioning_permille: u32,
}

/// The blocks of a LUN that nobody has.
#[derive(Clone, Debug)]
struct LunBlocks {
    /// By plane: free, with their erases.
    free: Vec<BTreeSet<(u32, u32)>>,
    /// To be erased, the one that has waited longest first, with the number of its trim.
    trimmed: VecDeque<(u64, u32)>,
    /// Being erased.
    busy: u32,
}

impl LunBlocks {
    fn new(planes: u32) -> LunBlocks {
        LunBlocks { free: vec![BTreeSet::new(); planes as usize], trimmed: VecDeque::new(), busy: 0 }
    }

    fn unmapped(&self) -> u32 {
        let free: usize = self.free.iter().map(BTreeSet::len).sum();
        (free + self.trimmed.len()) as u32 + self.busy
    }

    /// The free block with the fewest erases, and the erases.
    fn first(&self) -> Option<(u32, u32)> {
        self.free.iter().filter_map(BTreeSet::first).min().copied()
    }

    /// The free block with the most erases, and the erases.
    fn last(&self) -> Option<(u32, u32)> {
        self.free.iter().filter_map(BTreeSet::last).max().copied()
    }

    /// The free blocks of the plane of a block. Every LUN has as many blocks of each plane.
    fn plane_of(&mut self, number: u32) -> &mut BTreeSet<(u32, u32)> {
        let planes = self.free.len() as u32;
        &mut self.free[(number % planes) as usize]
    }

    /// Takes blocks to be erased in one operation: the one that has waited longest, and others that lie in other planes.
    fn take_trimmed(&mut self, planes: u32) -> Vec<u32> {
        let mut taken: Vec<u32> = Vec::new();
        let mut at = 0;
        while at < self.trimmed.len() && (taken.len() as u32) < planes {
            let (_, number) = self.trimmed[at];
            if taken.iter().any(|other| other % planes == number % planes) {
                at += 1;
            } else {
                self.trimmed.remove(at);
                taken.push(number);
            }
        }
        self.busy += taken.len() as u32;
        taken
    }
}

impl State {
    /// A free block that was taken gets its holder.
    fn map(&mut self, number: u32, mapping: Mapping, label: u64) {
        debug_assert_eq!(self.blocks[number as usize], Use::Free, "block {number} is given out twice");
        self.blocks[number as usize] = Use::Mapped(Holder::new(self.next_id, label, mapping, 0));
        self.next_id += 1;
        self.mapped += 1;
    }

    /// Every block is mapped, unmapped or retired, and counts once.
    fn check_counts(&self) {
        let unmapped: u32 = self.luns.iter().map(LunBlocks::unmapped).sum();
        let (mapped, retired) = (self.mapped, self.retired);
        debug_assert_eq!(
            (mapped + unmapped + retired) as usize,
            self.blocks.len(),
            "{mapped} mapped, {unmapped} unmapped, {retired} retired blocks"
        );
    }
}

/// A grant at the function level. Threads share it by reference.
#[derive(Debug)]
pub struct FunctionLevel {
    grant: Grant,
    luns: Vec<(u32, u32)>,
    /// By channel and LUN: its place in `luns`.
    lun_numbers: Vec<Vec<u32>>,
    /// By block number.
    block_locks: Vec<RwLock<()>>,
    state: Mutex<State>,
    /// An erase is over.
    erased: Condvar,
}

/// The lock of a block, held while a command uses it.
enum BlockGuard<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

impl FunctionLevel {
    /// Takes a block of a channel, LUNs in turns, of the LUN the one with the fewest erases, and says how many are free there
    /// then. A LUN whose blocks have been erased a few times more often than others loses its turn. The label is the application's and comes back in [`mapped_blocks`](FunctionLevel::mapped_blocks).
    ///
    /// [`LevelError::TooManyMapped`] when over-provisioning would not be kept; [`LevelError::NoFreeBlock`] when the
    /// channel has none, trimmed ones included.
    pub fn address_mapper(
        &self,
        issued: Nanos,
        channel: u32,
        mapping: Mapping,
        label: u64,
    ) -> Result<Mapped, LevelError> {
        self.geometry().check_block(GrantBlock { channel, lun: 0, block: 0 })?;
        self.check_mapping(mapping)?;
        let mut state = self.state.lock();
        loop {
            let limit = self.mapped_max(&state, state.over_provisioning_permille);
            if state.mapped >= limit {
                return Err(LevelError::TooManyMapped { mapped: state.mapped, limit });
            }
            if let Some(number) = self.take_free(&mut state, channel) {
                state.map(number, mapping, label);
                state.check_counts();
                let on_channel = self.lun_numbers[channel as usize].iter();
                let free = on_channel.map(|lun| state.luns[*lun as usize].unmapped()).sum();
                return Ok(Mapped { block: self.block(number), free });
            }
            let on_channel = || self.lun_numbers[channel as usize].iter().map(|lun| *lun as usize);
            let waiting = |lun: &usize| state.luns[*lun].trimmed.front().map(|(trim, _)| *trim);
            let longest = on_channel().filter(|lun| waiting(lun).is_some()).min_by_key(waiting);
            if let Some(lun) = longest {
                let taken = self.take_trimmed(&mut state, lun);
                MutexGuard::unlocked(&mut state, || self.erase_taken(issued, &taken))?;
            } else if on_channel().any(|lun| state.luns[lun].busy > 0) {
                self.erased.wait(&mut state);
            } else {
                return Err(LevelError::NoFreeBlock { channel });
            }
        }
    }

    /// Takes a row of blocks: one in each plane of so many neighbouring LUNs, as the [geometry lists
    /// them](GrantGeometry::lun_list); all of them or none. Pages of one number of a row, written together, keep all these LUNs
    /// at work, each with one operation. Rows go round the LUNs. All blocks of the row get the label.
    ///
    /// [`LevelError::BadRequest`] with no LUNs or more than there are; [`LevelError::TooManyMapped`] when over-provisioning
    /// would not be kept; [`LevelError::NoFreeRow`] when no such LUNs have a block in each plane, trimmed ones included.
    pub fn address_mapper_row(
        &self,
        issued: Nanos,
        luns: u32,
        mapping: Mapping,
        label: u64,
    ) -> Result<Vec<GrantBlock>, LevelError> {
        if luns == 0 || luns > self.geometry().luns() {
            let has = self.geometry().luns();
            return Err(LevelError::BadRequest(format!(
                "a row of {luns} LUNs of a grant with {has}; give 1 to {has}"
            )));
        }
        self.check_mapping(mapping)?;
        let wanted = luns * self.geometry().planes;
        let mut state = self.state.lock();
        loop {
            let limit = self.mapped_max(&state, state.over_provisioning_permille);
            if state.mapped + wanted > limit {
                return Err(LevelError::TooManyMapped { mapped: state.mapped, limit });
            }
            if let Some(row) = self.take_row(&mut state, luns) {
                row.iter().for_each(|number| state.map(*number, mapping, label));
                state.check_counts();
                return Ok(row.into_iter().map(|number| self.block(number)).collect());
            }
            let taken: Vec<u32> =
                (0..state.luns.len()).flat_map(|lun| self.take_trimmed(&mut state, lun)).collect();
            if !taken.is_empty() {
                MutexGuard::unlocked(&mut state, || self.erase_taken(issued, &taken))?;
            } else if state.luns.iter().any(|lun| lun.busy > 0) {
                self.erased.wait(&mut state);
            } else {
                return Err(LevelError::NoFreeRow { luns });
            }
        }
    }

    fn check_mapping(&self, mapping: Mapping) -> Result<(), LevelError> {
        let bytes = self.geometry().oob_bytes as usize;
        if mapping != Mapping::Log || bytes >= oob::LOG_BYTES {
            return Ok(());
        }
        Err(LevelError::BadRequest(format!(
            "pages have {bytes} out-of-band bytes and those of a log block need {}; make a device with more",
            oob::LOG_BYTES
        )))
    }

    /// Takes the free row whose turn it is.
    fn take_row(&self, state: &mut State, luns: u32) -> Option<Vec<u32>> {
        let all = state.luns.len() as u32;
        // The last row begins earlier when their number does not divide that of the LUNs.
        let starts = (0..all.div_ceil(luns)).map(|row| (row * luns).min(all - luns));
        let worn = |start: u32| {
            let row = &state.luns[start as usize..(start + luns) as usize];
            let firsts = row.iter().flat_map(|lun| lun.free.iter().map(BTreeSet::first));
            firsts.map(|first| first.map(|(erases, _)| *erases)).try_fold(0, |most, one| Some(one?.max(most)))
        };
        let ready: Vec<(u32, u32)> = starts.filter_map(|start| Some((worn(start)?, start))).collect();
        let fresh = ready.iter().map(|(erases, _)| *erases).min()?;
        let turn = state.row;
        let next = ready
            .into_iter()
            .min_by_key(|(erases, start)| (*erases > fresh + ALIKE, (start + all - turn) % all, *erases));
        let (_, start) = next?;
        state.row = (start + luns) % all;
        let row = &mut state.luns[start as usize..(start + luns) as usize];
        let firsts = row.iter_mut().flat_map(|lun| lun.free.iter_mut().filter_map(BTreeSet::pop_first));
        Some(firsts.map(|(_, number)| number).collect())
    }

    /// Takes the free block of a channel whose turn it is.
    fn take_free(&self, state: &mut State, channel: u32) -> Option<u32> {
        let luns = &self.lun_numbers[channel as usize];
        let count = luns.len() as u32;
        let turn = state.turn[channel as usize];
        let first = |at: u32| state.luns[luns[at as usize] as usize].first();
        let fresh = (0..count).filter_map(first).map(|(erases, _)| erases).min()?;
        let next = (0..count).filter_map(|at| Some((at, first(at)?))).min_by_key(|(at, (erases, number))| {
            (*erases > fresh + ALIKE, (at + count - turn) % count, *erases, *number)
        });
        let (at, block) = next?;
        let was_free = state.luns[luns[at as usize] as usize].plane_of(block.1).remove(&block);
        debug_assert!(was_free);
        state.turn[channel as usize] = (at + 1) % count;
        Some(block.1)
    }

    /// Writes one page of a block. With [`Mapping::Block`] the page has to be the next one, with [`Mapping::Page`] it is
    /// any number. It is durable when this returns.
    ///
    /// [`LevelError::NotMapped`], [`LevelError::OutOfOrder`], [`LevelError::AlreadyProgrammed`],
    /// [`LevelError::BlockFull`], [`LevelError::WrongLength`]; [`LevelError::BlockRetired`] when the flash failed and no
    /// spare was left.
    pub fn flash_write(
        &self,
        issued: Nanos,
        block: GrantBlock,
        page: u32,
        data: &[u8],
    ) -> Result<Done, LevelError> {
        self.flash_write_tagged(issued, &BlockWrite { block, page, data, tag: Tag::default() })
    }

    /// The same, with the tag of the data.
    pub fn flash_write_tagged(&self, issued: Nanos, write: &BlockWrite) -> Result<Done, LevelError> {
        let BlockWrite { block, page, data, tag } = *write;
        self.geometry().check_block(block)?;
        let number = self.number(block);
        let _guard = self.lock_to_write(number, block)?;
        let (at, note) = self.place(&mut self.state.lock(), block, page, 0)?;
        let programmed = RawWrite { page: block.page(at), data, oob: &note.encode(), tag };
        let done = self.grant.program_tagged(issued, &programmed)?;
        let mut state = self.state.lock();
        if let Use::Mapped(holder) = &mut state.blocks[number as usize] {
            holder.wrote(at, page, self.geometry().pages_per_block);
        }
        Ok(done)
    }

    /// Writes pages that are all issued at once. Each has its own result, which is that of
    /// [`flash_write`](FunctionLevel::flash_write). Pages of one number in blocks that lie in different planes of a LUN
    /// ([`GrantGeometry`]), named one after the other, are one operation.
    pub fn flash_write_vector(&self, issued: Nanos, writes: &[BlockWrite]) -> Results {
        let pages_per_block = self.geometry().pages_per_block;
        let mut blocks = BTreeMap::new();
        for write in writes {
            if self.geometry().check_block(write.block).is_ok() {
                blocks.insert(self.number(write.block), write.block);
            }
        }
        // Those that are not mapped have none, and are refused below.
        let _guards: Vec<_> =
            blocks.into_iter().filter_map(|(number, block)| self.lock_to_write(number, block).ok()).collect();
        let places: Vec<Result<_, LevelError>> = {
            let mut state = self.state.lock();
            // By block: those that get a page. One that is refused takes no place from those after it.
            let mut placed: BTreeMap<u32, u32> = BTreeMap::new();
            let place = |write: &BlockWrite| {
                self.geometry().check_block(write.block)?;
                let before = placed.entry(self.number(write.block)).or_default();
                let (at, note) = self.place(&mut state, write.block, write.page, *before)?;
                let note = note.encode();
                self.check_write(write.block.page(at), write, &note)?;
                *before += 1;
                Ok((at, note))
            };
            writes.iter().map(place).collect()
        };
        let mut programs = Vec::with_capacity(writes.len());
        for (write, place) in writes.iter().zip(&places) {
            if let Ok((at, note)) = place {
                let BlockWrite { block, data, tag, .. } = *write;
                programs.push(RawWrite { page: block.page(*at), data, oob: note, tag });
            }
        }
        let mut done = self.grant.program_many(issued, &programs).into_iter();
        let mut state = self.state.lock();
        let mut results = Vec::with_capacity(writes.len());
        for (write, place) in writes.iter().zip(places) {
            let result = place.and_then(|(at, _)| Ok((at, done.next().unwrap_or_else(no_result)?)));
            // One that was refused may name a block that the grant does not have.
            if let Ok((at, _)) = &result
                && let Use::Mapped(holder) = &mut state.blocks[self.number(write.block) as usize]
            {
                holder.wrote(*at, write.page, pages_per_block);
            }
            results.push(result.map(|(_, done)| done));
        }
        results
    }

    /// Refuses what the grant would refuse for its length.
    fn check_write(&self, page: GrantPage, write: &BlockWrite, note: &[u8]) -> Result<(), LevelError> {
        crate::oob::bytes_for(page, note.len(), write.tag, self.geometry().oob_bytes)?;
        let (given, wanted) = (write.data.len(), self.geometry().page_bytes as usize);
        if given == wanted || given == 0 && !self.grant.keeps_data() {
            return Ok(());
        }
        Err(LevelError::WrongLength { address: page, what: "data", given, wanted })
    }

    /// The lock of a block that is to be written: pages by number go one after the other.
    fn lock_to_write(&self, number: u32, block: GrantBlock) -> Result<BlockGuard<'_>, LevelError> {
        let lock = &self.block_locks[number as usize];
        loop {
            let mapping = holder(&self.state.lock(), number, block)?.mapping;
            let held = match mapping {
                Mapping::Block => BlockGuard::Shared { _guard: lock.read() },
                Mapping::Page | Mapping::Log => BlockGuard::Alone { _guard: lock.write() },
            };
            // Nobody gives the block back from here on.
            if holder(&self.state.lock(), number, block)?.mapping == mapping {
                return Ok(held);
            }
        }
    }

    /// Where in its block a page is to be programmed, behind so many others that are under way, and what is written beside it.
    fn place(
        &self,
        state: &mut State,
        block: GrantBlock,
        page: u32,
        before: u32,
    ) -> Result<(u32, PageNote), LevelError> {
        let sequence = state.next_id;
        let holder = holder(state, self.number(block), block)?;
        if holder.mapping != Mapping::Log {
            self.geometry().check_page(block.page(page))?;
        }
        let at = match holder.mapping {
            Mapping::Block => page,
            Mapping::Page | Mapping::Log if holder.written + before >= self.geometry().pages_per_block => {
                return Err(LevelError::BlockFull(block));
            }
            Mapping::Page | Mapping::Log => holder.written + before,
        };
        let mut note = PageNote::of(holder.id, holder.label, holder.mapping, page);
        note.moves = holder.moves;
        if holder.mapping == Mapping::Log {
            // A block that is so old takes no page any more.
            note.order = u32::try_from(sequence - holder.id).map_err(|_| LevelError::BlockFull(block))?;
            state.next_id += 1;
        }
        Ok((at, note))
    }

    /// Reads a part of a page of a block, from `offset` on.
    ///
    /// [`LevelError::NotMapped`]; [`LevelError::NotProgrammed`] when the page was not written;
    /// [`LevelError::Unreadable`] when the flash failed.
    pub fn flash_read(
        &self,
        issued: Nanos,
        block: GrantBlock,
        page: u32,
        offset: u32,
        data: &mut [u8],
    ) -> Result<Done, LevelError> {
        self.geometry().check_page(block.page(page))?;
        let _guard = self.block_locks[self.number(block) as usize].read();
        let at = self.find(&self.state.lock(), issued, block, page)?;
        self.grant.read(issued, block.page(at), offset, data, &mut [])
    }

    /// The pages of a log block, in the order of their places. Those are left out of which nothing can be wanted: programs that were
    /// interrupted. For an application that opens the level; all out-of-band bytes of the block are read.
    ///
    /// [`LevelError::NotMapped`]; [`LevelError::BadRequest`] for a block that is no log block.
    pub fn log_pages(&self, issued: Nanos, block: GrantBlock) -> Result<Vec<LogPage>, LevelError> {
        self.geometry().check_block(block)?;
        let number = self.number(block);
        let _guard = self.block_locks[number as usize].read();
        let (mapping, written) = {
            let state = self.state.lock();
            let holder = holder(&state, number, block)?;
            (holder.mapping, holder.written)
        };
        if mapping != Mapping::Log {
            return Err(LevelError::BadRequest(format!("{block} is no log block; its pages have no order")));
        }
        let mut found = Vec::with_capacity(written as usize);
        let mut sequence = 0;
        for place in 0..written {
            let mut raw = [0; oob::LOG_BYTES];
            let note = match self.grant.read(issued, block.page(place), 0, &mut [], &mut raw) {
                Ok(_) => PageNote::decode(&raw),
                Err(LevelError::Unreadable { why, .. }) if why.is_interrupted() => continue,
                Err(LevelError::Unreadable { .. }) => None,
                Err(other) => return Err(other),
            };
            if note.is_some_and(|note| note.flags & oob::EMPTY != 0) {
                continue;
            }
            sequence = note.map_or(sequence, |note| note.sequence());
            let number = note.filter(|note| note.flags & oob::LOST == 0).map(|note| note.page);
            found.push(LogPage { place, number, sequence });
        }
        Ok(found)
    }

    /// Reads a whole page of a block with its tag.
    ///
    /// As [`flash_read`](FunctionLevel::flash_read); [`LevelError::Damaged`] when what is stored is no tag.
    pub fn flash_read_tagged(
        &self,
        issued: Nanos,
        block: GrantBlock,
        page: u32,
        data: &mut [u8],
    ) -> Result<(Done, Tag), LevelError> {
        self.geometry().check_block(block)?;
        let _guard = self.block_locks[self.number(block) as usize].read();
        let at = self.find(&self.state.lock(), issued, block, page)?;
        let (done, tag) = self.grant.read_tagged(issued, block.page(at), 0, data, &mut [])?;
        let damaged = || LevelError::Damaged(format!("{} has a tag that cannot be read", block.page(at)));
        Ok((done, tag.ok_or_else(damaged)?))
    }

    /// Makes what was written survive a crash of the host. Trims wait for [`flush`](FunctionLevel::flush).
    pub fn sync(&self) -> Result<(), LevelError> {
        self.grant.sync()
    }

    /// As [`Grant::forget_erased`].
    pub fn forget_erased(&self) -> Result<(), LevelError> {
        self.grant.forget_erased()
    }

    /// The device's clock: the end of everything that was issued, by whichever application.
    pub fn now(&self) -> Result<Nanos, LevelError> {
        self.grant.now()
    }

    /// The tag that a page was written with; one that says nothing when it was written without.
    ///
    /// As [`flash_read`](FunctionLevel::flash_read); [`LevelError::Damaged`] when what is stored is no tag.
    pub fn tag_of(&self, issued: Nanos, block: GrantBlock, page: u32) -> Result<Tag, LevelError> {
        self.geometry().check_page(block.page(page))?;
        let _guard = self.block_locks[self.number(block) as usize].read();
        let at = self.find(&self.state.lock(), issued, block, page)?;
        self.grant.tag_of(issued, block.page(at))
    }

    /// Reads pages, or parts of them, that are all issued at once. Each has its own result, which is that of
    /// [`flash_read`](FunctionLevel::flash_read).
    pub fn flash_read_vector(&self, issued: Nanos, reads: &mut [BlockRead]) -> Results {
        let named = reads.iter().map(|read| read.block);
        let sound = named.filter(|block| self.geometry().check_block(*block).is_ok());
        let numbers: BTreeSet<u32> = sound.map(|block| self.number(block)).collect();
        let _guards: Vec<_> =
            numbers.iter().map(|number| self.block_locks[*number as usize].read()).collect();
        let places: Vec<_> = {
            let state = self.state.lock();
            reads.iter().map(|read| self.find(&state, issued, read.block, read.page)).collect()
        };
        let mut pages = Vec::with_capacity(reads.len());
        for (read, place) in reads.iter_mut().zip(&places) {
            if let Ok(at) = place {
                let (page, offset) = (read.block.page(*at), read.offset);
                pages.push(RawRead { page, offset, data: &mut *read.data, oob: &mut [] });
            }
        }
        let mut done = self.grant.read_many(issued, &mut pages).into_iter();
        places.into_iter().map(|place| place.and_then(|_| done.next().unwrap_or_else(no_result))).collect()
    }

    /// Where in its block a page is.
    fn find(&self, state: &State, issued: Nanos, block: GrantBlock, page: u32) -> Result<u32, LevelError> {
        self.geometry().check_page(block.page(page))?;
        let holder = holder(state, self.number(block), block)?;
        let at = match holder.mapping {
            Mapping::Block | Mapping::Log => page,
            Mapping::Page => match holder.place_of(page) {
                Some(at) if holder.unread.is_none_or(|unread| at > unread) => at,
                _ if holder.unread.is_some() => {
                    let why = Unreadable::Moved;
                    return Err(LevelError::Unreadable { address: block.page(page), why, done: issued });
                }
                _ => {
                    let (address, programmed) = (block.page(page), holder.written);
                    return Err(LevelError::NotProgrammed { address, programmed });
                }
            },
        };
        if holder.lost.contains(&at) {
            let why = Unreadable::Moved;
            return Err(LevelError::Unreadable { address: block.page(page), why, done: issued });
        }
        Ok(at)
    }

    /// Gives a block back. It is erased later: when a block is wanted, when [`reclaim`](FunctionLevel::reclaim) finds its
    /// LUN idle, or in [`flush`](FunctionLevel::flush).
    pub fn flash_trim(&self, block: GrantBlock) -> Result<(), LevelError> {
        self.geometry().check_block(block)?;
        let number = self.number(block);
        // What is under way on it is over first.
        let _guard = self.block_locks[number as usize].write();
        let mut state = self.state.lock();
        holder(&state, number, block)?;
        state.mapped -= 1;
        self.put_trimmed(&mut state, number);
        state.check_counts();
        Ok(())
    }

    /// Erases trimmed blocks whose LUN is idle at this moment, and returns how many. For an application's idle time.
    pub fn reclaim(&self, issued: Nanos) -> Result<u32, LevelError> {
        let mut erased = 0;
        for (lun, (channel, on_channel)) in self.luns.iter().enumerate() {
            let first = GrantBlock { channel: *channel, lun: *on_channel, block: 0 };
            loop {
                if self.state.lock().luns[lun].trimmed.is_empty() || self.grant.free_at(first)? > issued {
                    break;
                }
                let taken = self.take_trimmed(&mut self.state.lock(), lun);
                self.erase_taken(issued, &taken)?;
                erased += taken.len() as u32;
            }
        }
        Ok(erased)
    }

    /// Erases every trimmed block; when this returns all trims are durable.
    pub fn flush(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        // All are issued at once: LUNs erase side by side.
        let mut taken = Vec::new();
        let mut state = self.state.lock();
        let others = state.blocks.iter().enumerate().filter(|(_, used)| **used == Use::Busy);
        let others: Vec<u32> = others.map(|(number, _)| number as u32).collect();
        for lun in 0..state.luns.len() {
            while !state.luns[lun].trimmed.is_empty() {
                taken.extend(self.take_trimmed(&mut state, lun));
            }
        }
        debug_assert!(state.blocks.iter().all(|used| *used != Use::Trimmed), "a trim is not flushed");
        drop(state);
        let end = self.erase_taken(issued, &taken)?;
        // Trims that somebody else makes durable just now.
        let mut state = self.state.lock();
        while others.iter().any(|number| state.blocks[*number as usize] == Use::Busy) {
            self.erased.wait(&mut state);
        }
        // An erase of theirs that failed is tried again.
        let again = others.iter().any(|number| state.blocks[*number as usize] == Use::Trimmed);
        drop(state);
        if again {
            return self.flush(end);
        }
        self.grant.sync()?;
        Ok(end)
    }

    /// Sets the over-provisioning, in thousandths of what is mapped: of `n` blocks `n x 1000 / (1000 + it)` may be
    /// mapped. It is not remembered over a restart, which begins with that of the grant.
    ///
    /// [`LevelError::TooManyMapped`] when more are mapped already; nothing is changed then.
    pub fn set_ops(&self, over_provisioning_permille: u32) -> Result<(), LevelError> {
        let mut state = self.state.lock();
        let limit = self.mapped_max(&state, over_provisioning_permille);
        if state.mapped > limit {
            return Err(LevelError::TooManyMapped { mapped: state.mapped, limit });
        }
        state.over_provisioning_permille = over_provisioning_permille;
        Ok(())
    }

    /// When the LUN of a block is free: everything that was issued to it is over then.
    pub fn free_at(&self, block: GrantBlock) -> Result<Nanos, LevelError> {
        self.grant.free_at(block)
    }

    /// Whether the flash of a block is bad and no spare has taken its place: what it holds can at most be read.
    pub fn is_retired(&self, block: GrantBlock) -> Result<bool, LevelError> {
        Ok(self.grant.look(block)?.retired)
    }

    /// Every block that is mapped, by number.
    pub fn mapped_blocks(&self) -> Vec<FoundBlock> {
        let state = self.state.lock();
        let found = |(number, used): (usize, &Use)| match used {
            Use::Mapped(holder) => Some(FoundBlock {
                block: self.block(number as u32),
                id: holder.id,
                label: holder.label,
                mapping: holder.mapping,
                written: holder.written,
            }),
            _ => None,
        };
        state.blocks.iter().enumerate().filter_map(found).collect()
    }

    /// Blocks by what they are used for: mapped, free or about to be erased, bad. Together they are the grant.
    pub fn census(&self) -> (u32, u32, u32) {
        let state = self.state.lock();
        let free = state.luns.iter().map(LunBlocks::unmapped).sum();
        (state.mapped, free, state.retired)
    }

    /// The grant's geometry.
    pub fn geometry(&self) -> &GrantGeometry {
        self.grant.geometry()
    }

    /// Gives the grant back to be used otherwise.
    pub fn into_grant(self) -> Grant {
        self.grant
    }

    /// A block is to be erased.
    fn put_trimmed(&self, state: &mut State, number: u32) {
        state.blocks[number as usize] = Use::Trimmed;
        let trim = state.trims;
        state.trims += 1;
        let lun = (number / self.geometry().blocks_per_lun) as usize;
        state.luns[lun].trimmed.push_back((trim, number));
    }

    /// Takes trimmed blocks of a LUN, to be erased in one operation.
    fn take_trimmed(&self, state: &mut State, lun: usize) -> Vec<u32> {
        let taken = state.luns[lun].take_trimmed(self.geometry().planes);
        taken.iter().for_each(|number| state.blocks[*number as usize] = Use::Busy);
        taken
    }

    /// Erases blocks that were taken for that, all issued at once but for copies, which go first; returns when the last erase is over.
    fn erase_taken(&self, issued: Nanos, taken: &[u32]) -> Result<Nanos, LevelError> {
        let (mut copies, others): (Vec<u32>, Vec<u32>) = {
            let state = self.state.lock();
            taken.iter().partition(|number| state.copies.contains(number))
        };
        let mut end = issued;
        loop {
            if let Err(error) = self.erase_now(end, &copies).map(|done| end = done) {
                let mut guard = self.state.lock();
                others.iter().for_each(|number| self.leave_trimmed(&mut guard, *number));
                self.erased.notify_all();
                return Err(error);
            }
            if others.is_empty() {
                return Ok(end);
            }
            let mut state = self.state.lock();
            // An erase of another thread that failed leaves a copy to this one.
            while state.copies.iter().any(|number| state.blocks[*number as usize] == Use::Busy) {
                self.erased.wait(&mut state);
            }
            copies = state.copies.iter().copied().collect();
            if copies.is_empty() {
                break;
            }
            for number in &copies {
                let lun = &mut state.luns[(*number / self.geometry().blocks_per_lun) as usize];
                lun.trimmed.retain(|(_, other)| other != number);
                lun.busy += 1;
                debug_assert_eq!(state.blocks[*number as usize], Use::Trimmed, "copy {number} is in use");
                state.blocks[*number as usize] = Use::Busy;
            }
        }
        self.erase_now(end, &others)
    }

    /// A block that was taken is still to be erased.
    fn leave_trimmed(&self, state: &mut State, number: u32) {
        let lun = &mut state.luns[(number / self.geometry().blocks_per_lun) as usize];
        lun.busy -= 1;
        lun.trimmed.push_front((0, number));
        state.blocks[number as usize] = Use::Trimmed;
    }

    /// Erases blocks that were taken for that, all issued at once; returns when the last erase is over.
    fn erase_now(&self, issued: Nanos, taken: &[u32]) -> Result<Nanos, LevelError> {
        let blocks: Vec<GrantBlock> = taken.iter().map(|number| self.block(*number)).collect();
        let results = if blocks.is_empty() { Vec::new() } else { self.grant.erase_many(issued, &blocks) };
        let mut end = Ok(issued);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for (number, result) in taken.iter().zip(results) {
            let (at, lun) = (*number as usize, (*number / self.geometry().blocks_per_lun) as usize);
            debug_assert_eq!(state.blocks[at], Use::Busy, "block {number} is erased while it is in use");
            let is_gone = matches!(result, Ok(_) | Err(LevelError::BlockRetired { .. }));
            if is_gone {
                state.luns[lun].busy -= 1;
                state.copies.remove(number);
            }
            match result {
                Ok(done) => {
                    end = end.map(|end| done.done.max(end));
                    state.erases[at] += 1;
                    state.blocks[at] = Use::Free;
                    let is_new = state.luns[lun].plane_of(*number).insert((state.erases[at], *number));
                    debug_assert!(is_new, "block {number} is free twice");
                }
                Err(LevelError::BlockRetired { .. }) => {
                    state.blocks[at] = Use::Retired;
                    state.retired += 1;
                }
                Err(other) => {
                    self.leave_trimmed(state, *number);
                    end = end.and(Err(other));
                }
            }
        }
        state.check_counts();
        self.erased.notify_all();
        end
    }

    /// Takes a block that holds a copy of another one, to be erased at once.
    fn take_copied(&self, state: &mut State, number: u32) {
        state.copies.insert(number);
        state.blocks[number as usize] = Use::Busy;
        state.luns[(number / self.geometry().blocks_per_lun) as usize].busy += 1;
    }

    fn mapped_max(&self, state: &State, permille: u32) -> u32 {
        let good = u64::from(self.geometry().blocks() - state.retired);
        (good * 1000 / (1000 + u64::from(permille))) as u32
    }

    fn block(&self, number: u32) -> GrantBlock {
        let per_lun = self.geometry().blocks_per_lun;
        let (channel, lun) = self.luns[(number / per_lun) as usize];
        GrantBlock { channel, lun, block: number % per_lun }
    }

    /// The number of a block that the grant has.
    fn number(&self, block: GrantBlock) -> u32 {
        let lun = self.lun_numbers[block.channel as usize][block.lun as usize];
        lun * self.geometry().blocks_per_lun + block.block
    }
}

/// A vectored command of the grant has a result for each address.
fn no_result() -> Result<Done, LevelError> {
    Err(LevelError::Damaged("a vectored command has fewer results than addresses".into()))
}

impl Holder {
    fn new(id: u64, label: u64, mapping: Mapping, moves: u16) -> Holder {
        let (pages, lost) = (Vec::new(), Vec::new());
        Holder { id, label, mapping, written: 0, pages, lost, unread: None, moves, last: id }
    }

    /// Where a page is, by its number.
    fn place_of(&self, page: u32) -> Option<u32> {
        self.pages.get(page as usize).copied().filter(|at| *at != NO_PAGE)
    }

    /// A page was written at this place.
    fn wrote(&mut self, at: u32, page: u32, pages_per_block: u32) {
        debug_assert!(
            self.unread.is_none_or(|unread| at > unread),
            "a page that could not be read is written"
        );
        self.written = self.written.max(at + 1);
        if self.mapping == Mapping::Page {
            self.pages.resize(pages_per_block as usize, NO_PAGE);
            self.pages[page as usize] = at;
        }
    }
}

fn holder(state: &State, number: u32, block: GrantBlock) -> Result<&Holder, LevelError> {
    match &state.blocks[number as usize] {
        Use::Mapped(holder) => Ok(holder),
        _ => Err(LevelError::NotMapped(block)),
    }
}
