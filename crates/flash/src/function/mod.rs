//! The function level: the application works with blocks and decides what to write where and when to clean; the library
//! allocates blocks, erases them when there is time, levels wear within the grant and keeps over-provisioning free.
//!
//! The calls are those of Prism-SSD's flash-function level (ICDCS 2019, section IV): [`address_mapper`],
//! [`flash_read`], [`flash_write`], [`flash_trim`], [`wear_leveler`], [`set_ops`].
//!
//! ```text
//!  out-of-band bytes of each page:  magic 4 | flags 1 | mapping 1 | moves 2 | id 8 | label 8 | page 4 | crc 4
//! ```
//!
//! Each block that is taken has an **id**, never used again on this grant, and a **label** of the application's. Both are
//! in the out-of-band bytes of each of its pages: after a power cut [`FunctionLevel::open`] finds every block that was
//! written and whose erase was not finished ([`mapped_blocks`]); a block taken and never written is free again. A trim is
//! durable when [`flush`] has returned; before that the block may be found again.
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

use crate::address::{GrantBlock, GrantGeometry};
use crate::error::LevelError;
use crate::grant::{Grant, RawRead, RawWrite, Results};
use oob::PageNote;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use weft_core::Nanos;
use weft_device::nand::{Done, Unreadable};

/// What the pages of a block are addressed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// By their place: they are written in order, each once.
    Block,
    /// By number, in any order and again and again until the block has no page left; a read gets what was written last.
    Page,
}

/// A block that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The block.
    pub block: GrantBlock,
    /// Blocks of its channel that are free now.
    pub free: u32,
}

/// One page of a block to write.
#[derive(Clone, Copy, Debug)]
pub struct BlockWrite<'a> {
    /// The block.
    pub block: GrantBlock,
    /// The page, by place or by number as the block is mapped.
    pub page: u32,
    /// A whole page of data.
    pub data: &'a [u8],
}

/// One page of a block to read, or a part of it.
#[derive(Debug)]
pub struct BlockRead<'a> {
    /// The block.
    pub block: GrantBlock,
    /// The page, by place or by number as the block is mapped.
    pub page: u32,
    /// First byte of the page's data to read.
    pub offset: u32,
    /// Gets the data.
    pub data: &'a mut [u8],
}

/// A block as it was found after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundBlock {
    /// The block.
    pub block: GrantBlock,
    /// Its id: blocks taken later have larger ones.
    pub id: u64,
    /// What the application wrote down when it took the block.
    pub label: u64,
    /// What its pages are addressed by.
    pub mapping: Mapping,
    /// Pages written.
    pub written: u32,
}

/// What a block is used for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Use {
    Free,
    Mapped(Holder),
    /// Trimmed, to be erased.
    Trimmed,
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
    /// By channel: free blocks that are erased or can be.
    free: Vec<Vec<u32>>,
    /// By channel: the LUN whose turn it is, among blocks of equal wear.
    turn: Vec<u32>,
    trimmed: VecDeque<u32>,
    mapped: u32,
    retired: u32,
    next_id: u64,
    over_provisioning_permille: u32,
}

/// A grant at the function level. Threads share it by reference: calls on different blocks only meet in short lookups.
#[derive(Debug)]
pub struct FunctionLevel {
    grant: Grant,
    luns: Vec<(u32, u32)>,
    state: Mutex<State>,
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
        let mut state = self.state.lock();
        let limit = self.mapped_max(&state, state.over_provisioning_permille);
        if state.mapped >= limit {
            return Err(LevelError::TooManyMapped { mapped: state.mapped, limit });
        }
        let mut now = issued;
        loop {
            if state.free[channel as usize].is_empty()
                && !self.erase_one(&mut state, Some(channel), &mut now)?
            {
                return Err(LevelError::NoFreeBlock { channel });
            }
            let State { free, erases, turn, .. } = &mut *state;
            let free = &mut free[channel as usize];
            let luns = self.geometry().luns_by_channel[channel as usize];
            let turn = &mut turn[channel as usize];
            let fresh = free.iter().map(|number| erases[*number as usize]).min().unwrap_or(0);
            let next = (0..free.len()).min_by_key(|at| {
                let number = free[*at];
                let waits = (self.block(number).lun + luns - *turn) % luns;
                let erases = erases[number as usize];
                (erases > fresh + ALIKE, waits, erases, number)
            });
            let Some(number) = next.map(|at| free.swap_remove(at)) else { continue };
            *turn = (self.block(number).lun + 1) % luns;
            let id = state.next_id;
            state.next_id += 1;
            state.blocks[number as usize] = Use::Mapped(Holder::new(id, label, mapping, 0));
            state.mapped += 1;
            let free = state.free[channel as usize].len() + self.trimmed_on(&state, channel);
            return Ok(Mapped { block: self.block(number), free: free as u32 });
        }
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
        self.geometry().check_page(block.page(page))?;
        let number = self.number(block);
        let (at, note) = self.place(&self.state.lock(), block, page, 0)?;
        let done = self.grant.program(issued, block.page(at), data, &note.encode())?;
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
        let places: Vec<Result<_, LevelError>> = {
            let state = self.state.lock();
            let place = |(number, write): (usize, &BlockWrite)| {
                self.geometry().check_page(write.block.page(write.page))?;
                let before = |other: &&BlockWrite| other.block == write.block && other.page < pages_per_block;
                let before = writes[..number].iter().filter(before).count() as u32;
                let (at, note) = self.place(&state, write.block, write.page, before)?;
                Ok((at, note.encode()))
            };
            writes.iter().enumerate().map(place).collect()
        };
        let mut programs = Vec::with_capacity(writes.len());
        for (write, place) in writes.iter().zip(&places) {
            if let Ok((at, note)) = place {
                programs.push(RawWrite { page: write.block.page(*at), data: write.data, oob: note });
            }
        }
        let mut done = self.grant.program_many(issued, &programs).into_iter();
        let mut state = self.state.lock();
        let mut results = Vec::with_capacity(writes.len());
        for (write, place) in writes.iter().zip(places) {
            let result = place.and_then(|(at, _)| Ok((at, done.next().unwrap_or_else(no_result)?)));
            if let (Ok((at, _)), Use::Mapped(holder)) =
                (&result, &mut state.blocks[self.number(write.block) as usize])
            {
                holder.wrote(*at, write.page, pages_per_block);
            }
            results.push(result.map(|(_, done)| done));
        }
        results
    }

    /// Where in its block a page is to be programmed, behind so many others that are under way, and what is written beside it.
    fn place(
        &self,
        state: &State,
        block: GrantBlock,
        page: u32,
        before: u32,
    ) -> Result<(u32, PageNote), LevelError> {
        let holder = holder(state, self.number(block), block)?;
        let at = match holder.mapping {
            Mapping::Page if holder.written + before >= self.geometry().pages_per_block => {
                return Err(LevelError::BlockFull(block));
            }
            Mapping::Page => holder.written + before,
            Mapping::Block => page,
        };
        let note = PageNote::of(holder.id, holder.label, holder.mapping, page);
        Ok((at, PageNote { moves: holder.moves, ..note }))
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
        let at = self.find(&self.state.lock(), issued, block, page)?;
        self.grant.read(issued, block.page(at), offset, data, &mut [])
    }

    /// Reads pages, or parts of them, that are all issued at once. Each has its own result, which is that of
    /// [`flash_read`](FunctionLevel::flash_read).
    pub fn flash_read_vector(&self, issued: Nanos, reads: &mut [BlockRead]) -> Results {
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
            Mapping::Block => page,
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
        let mut state = self.state.lock();
        holder(&state, number, block)?;
        state.blocks[number as usize] = Use::Trimmed;
        state.mapped -= 1;
        state.trimmed.push_back(number);
        Ok(())
    }

    /// Erases trimmed blocks whose LUN is idle at this moment, and returns how many. For an application's idle time.
    pub fn reclaim(&self, issued: Nanos) -> Result<u32, LevelError> {
        let mut state = self.state.lock();
        let mut erased = 0;
        let waiting: Vec<u32> = state.trimmed.iter().copied().collect();
        for number in waiting {
            if self.grant.free_at(self.block(number))? > issued {
                continue;
            }
            state.trimmed.retain(|other| *other != number);
            state.trimmed.push_front(number);
            let mut now = issued;
            erased += u32::from(self.erase_one(&mut state, None, &mut now)?);
        }
        Ok(erased)
    }

    /// Erases every trimmed block; when this returns all trims are durable.
    pub fn flush(&self, issued: Nanos) -> Result<Nanos, LevelError> {
        let mut state = self.state.lock();
        let mut end = issued;
        while !state.trimmed.is_empty() {
            // All are issued at once: LUNs erase side by side.
            let mut now = issued;
            self.erase_one(&mut state, None, &mut now)?;
            end = end.max(now);
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
        let free = state.free.iter().map(Vec::len).sum::<usize>() + state.trimmed.len();
        (state.mapped, free as u32, state.retired)
    }

    /// The grant's geometry.
    pub fn geometry(&self) -> &GrantGeometry {
        self.grant.geometry()
    }

    /// Gives the grant back to be used otherwise.
    pub fn into_grant(self) -> Grant {
        self.grant
    }

    /// Erases the trimmed block that has waited longest, of a channel or of any; false when there is none.
    fn erase_one(
        &self,
        state: &mut State,
        channel: Option<u32>,
        now: &mut Nanos,
    ) -> Result<bool, LevelError> {
        let on = |number: &u32| channel.is_none_or(|channel| self.block(*number).channel == channel);
        let Some(at) = state.trimmed.iter().position(on) else { return Ok(false) };
        let Some(number) = state.trimmed.remove(at) else { return Ok(false) };
        let block = self.block(number);
        match self.grant.erase(*now, block) {
            Ok(done) => {
                *now = done.done;
                state.erases[number as usize] += 1;
                state.blocks[number as usize] = Use::Free;
                state.free[block.channel as usize].push(number);
            }
            Err(LevelError::BlockRetired { .. }) => {
                state.blocks[number as usize] = Use::Retired;
                state.retired += 1;
            }
            Err(other) => {
                state.trimmed.push_front(number);
                return Err(other);
            }
        }
        Ok(true)
    }

    fn trimmed_on(&self, state: &State, channel: u32) -> usize {
        state.trimmed.iter().filter(|number| self.block(**number).channel == channel).count()
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

    fn number(&self, block: GrantBlock) -> u32 {
        let lun = self.luns.iter().position(|lun| *lun == (block.channel, block.lun)).unwrap_or(0) as u32;
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
        Holder { id, label, mapping, written: 0, pages, lost, unread: None, moves }
    }

    /// Where a page is, by its number.
    fn place_of(&self, page: u32) -> Option<u32> {
        self.pages.get(page as usize).copied().filter(|at| *at != NO_PAGE)
    }

    /// A page was written at this place.
    fn wrote(&mut self, at: u32, page: u32, pages_per_block: u32) {
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
