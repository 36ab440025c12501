//! A grant in the monitor's own process: the commands of the application that has it.

use super::Monitor;
use super::copy;
use super::layout::{Layout, PhysBlock};
use super::records::{Change, GrantLun, GrantRow};
use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::backend::read_again;
use crate::error::LevelError;
use crate::grant::{RawRead, RawWrite, Results};
use crate::oob::{self, MARK, MONITOR_OOB_BYTES, check_most};
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use weft_core::{Nanos, Tag};
use weft_device::nand::{BlockState, Done, FlashError, PageProgram, PageRead, Unreadable};

/// Out-of-band bytes of a page that are handled without an allocation.
const OOB_INLINE: usize = 256;

/// A block as its application sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLook {
    /// Pages programmed since the last erase, unreadable ones included, but not one whose program failed; the next program goes
    /// to the page of this number.
    pub programmed: u32,
    /// Its last erase was interrupted: it has to be erased.
    pub erase_incomplete: bool,
    /// It is bad, and no spare has taken its place: it can at most be read. The next program or erase of it looks for a spare again.
    pub retired: bool,
    /// Erases of the flash that it lies on.
    pub erases: u32,
}

/// What all handles of a grant share.
#[derive(Debug)]
pub(super) struct GrantState {
    pub id: u32,
    pub name: String,
    pub geometry: GrantGeometry,
    /// By channel and LUN: the position.
    positions: Vec<Vec<u32>>,
    /// By position: the places of its blocks.
    pub tables: Vec<RwLock<Vec<PhysBlock>>>,
    in_use: AtomicBool,
}

impl GrantState {
    pub fn new(id: u32, row: &GrantRow, layout: &Layout) -> GrantState {
        let channels = row.luns.iter().map(|lun| lun.channel + 1).max().unwrap_or(0);
        let mut positions = vec![Vec::new(); channels as usize];
        for (position, lun) in row.luns.iter().enumerate() {
            positions[lun.channel as usize].push(position as u32);
        }
        let geometry = GrantGeometry {
            luns_by_channel: positions.iter().map(|luns| luns.len() as u32).collect(),
            blocks_per_lun: layout.blocks_granted,
            planes: layout.shape.planes,
            pages_per_block: layout.shape.pages_per_block,
            page_bytes: layout.shape.page_bytes,
            oob_bytes: layout.shape.oob_bytes - MONITOR_OOB_BYTES,
            capacity_bytes: row.bytes,
            over_provisioning_permille: row.over_provisioning_permille,
        };
        let tables = row.luns.iter().map(|lun| RwLock::new(lun.places.clone())).collect();
        let name = row.name.clone();
        GrantState { id, name, geometry, positions, tables, in_use: AtomicBool::new(false) }
    }

    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Acquire)
    }

    /// Takes the grant into use; false when somebody has it.
    pub fn occupy(&self) -> bool {
        !self.in_use.swap(true, AcqRel)
    }

    pub fn vacate(&self) {
        self.in_use.store(false, Release);
    }

    fn grant_lun(&self, block: GrantBlock) -> GrantLun {
        GrantLun { grant: self.id, position: self.positions[block.channel as usize][block.lun as usize] }
    }

    fn table(&self, block: GrantBlock) -> RwLockReadGuard<'_, Vec<PhysBlock>> {
        self.tables[self.grant_lun(block).position as usize].read()
    }
}

/// A hold on a grant; see [`Grant`](crate::Grant) for its commands.
#[derive(Debug)]
pub(crate) struct LocalGrant {
    pub(super) monitor: Arc<Monitor>,
    pub(super) state: Arc<GrantState>,
}

impl Drop for LocalGrant {
    fn drop(&mut self) {
        self.state.vacate();
    }
}

impl LocalGrant {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// What the application has.
    pub fn geometry(&self) -> &GrantGeometry {
        &self.state.geometry
    }

    /// Reads a part of a page's data, which may be empty, and its first out-of-band bytes.
    pub fn read(&self, issued: Nanos, read: &mut RawRead) -> Result<Done, LevelError> {
        let beside = read.oob.len();
        self.read_beside(issued, read, beside).map(|(done, _)| done)
    }

    /// The same, and the tag of the data: `None` when what is stored of it is damaged.
    pub fn read_tagged(&self, issued: Nanos, read: &mut RawRead) -> Result<(Done, Option<Tag>), LevelError> {
        self.read_beside(issued, read, self.state.geometry.oob_bytes as usize)
    }

    fn check_read(&self, read: &RawRead) -> Result<(), LevelError> {
        let geometry = &self.state.geometry;
        geometry.check_page(read.page)?;
        let end = read.offset as usize + read.data.len();
        check_most(read.page, "data", end, geometry.page_bytes)?;
        check_most(read.page, "out-of-band bytes", read.oob.len(), geometry.oob_bytes)
    }

    /// Reads so many out-of-band bytes. All of them tell the tag.
    fn read_beside(
        &self,
        issued: Nanos,
        read: &mut RawRead,
        beside: usize,
    ) -> Result<(Done, Option<Tag>), LevelError> {
        self.check_read(read)?;
        let page = read.page;

        self.monitor.check_issued(issued)?;
        let table = self.state.table(page.block);
        let place = table[page.block.block as usize];
        if place.is_missing() {
            return Err(LevelError::BlockRetired { block: page.block });
        }
        let at = self.monitor.layout.address(place).page(page.page);
        let mut inline = [0; OOB_INLINE];
        let mut heap = Vec::new();
        let raw = oob_buffer(&mut inline, &mut heap, MARK + beside);
        let stored = PageRead { page: at, offset: read.offset, data: &mut *read.data, oob: &mut *raw };
        let result = read_again(&*self.monitor.backend, issued, stored);
        let done = result.map_err(|error| self.read_failed(error, place, page))?;
        if let Some(why) = copy::why_marked(raw[0]) {
            return Err(LevelError::Unreadable { address: page, why, done: done.done });
        }
        oob::take(raw, read.oob, self.state.geometry.oob_bytes);
        Ok((done, oob::tag_in(raw)))
    }

    /// Why a page was not read. One whose program failed counts as not programmed.
    fn read_failed(&self, error: FlashError, place: PhysBlock, address: GrantPage) -> LevelError {
        let torn = matches!(error, FlashError::Uncorrectable { why: Unreadable::Torn, .. });
        if torn && let Ok(info) = self.monitor.backend.block_info(self.monitor.layout.address(place)) {
            let programmed = copy::pages_held(&info);
            if address.page >= programmed {
                return LevelError::NotProgrammed { address, programmed };
            }
        }
        translate(error, address)
    }

    /// Programs the next page of a block. A block that fails is replaced by a spare, with what it held.
    pub fn program(&self, issued: Nanos, write: &RawWrite) -> Result<Done, LevelError> {
        let RawWrite { page, data, oob, tag } = *write;
        let len = self.check_write(write)?;
        self.monitor.check_issued(issued)?;
        let mut inline = [0; OOB_INLINE];
        let mut heap = Vec::new();
        let raw = oob_buffer(&mut inline, &mut heap, len);
        oob::fill(raw, oob, tag);
        self.program_until(issued, page, data, raw, None)
    }

    /// The out-of-band bytes that a write programs.
    fn check_write(&self, write: &RawWrite) -> Result<usize, LevelError> {
        let geometry = &self.state.geometry;
        geometry.check_page(write.page)?;
        oob::bytes_for(write.page, write.oob.len(), write.tag, geometry.oob_bytes)
    }

    /// Programs a page. Whenever its block fails a spare takes its place, and the page is programmed there. The first try may
    /// have been made: then it says where, and how it failed.
    fn program_until(
        &self,
        issued: Nanos,
        page: GrantPage,
        data: &[u8],
        raw: &[u8],
        mut tried: Option<(PhysBlock, FlashError)>,
    ) -> Result<Done, LevelError> {
        let mut now = issued;
        loop {
            let (place, error) = if let Some((place, error)) = tried.take() {
                (place, Some(error))
            } else {
                // Held over the command, so that the block is not exchanged meanwhile.
                let table = self.state.table(page.block);
                let place = table[page.block.block as usize];
                if place.is_missing() {
                    (place, None)
                } else {
                    let at = self.monitor.layout.address(place).page(page.page);
                    match self.monitor.backend.program(now, at, data, raw) {
                        Ok(done) => return Ok(done),
                        Err(error) => (place, Some(error)),
                    }
                }
            };
            match error {
                Some(FlashError::ProgramFailed { done, .. }) => now = done,
                // Also when a spare was to take its place before and the host failed.
                Some(FlashError::BadBlock { .. }) | None => {}
                Some(other) => return Err(translate(other, page)),
            }
            now = self.replace(page.block, place, None, now)?;
        }
    }

    /// Erases a block. One that fails is replaced by a spare.
    pub fn erase(&self, issued: Nanos, block: GrantBlock) -> Result<Done, LevelError> {
        self.state.geometry.check_block(block)?;
        self.monitor.check_issued(issued)?;
        let (place, error) = {
            let table = self.state.table(block);
            let place = table[block.block as usize];
            if place.is_missing() {
                (place, None)
            } else {
                match self.monitor.backend.erase(issued, self.monitor.layout.address(place)) {
                    Ok(done) => return Ok(done),
                    Err(error) => (place, Some(error)),
                }
            }
        };
        self.erase_failed(issued, block, place, error)
    }

    /// Lets a spare take the place of a block that could not be erased there.
    fn erase_failed(
        &self,
        issued: Nanos,
        block: GrantBlock,
        place: PhysBlock,
        error: Option<FlashError>,
    ) -> Result<Done, LevelError> {
        let now = match error {
            Some(FlashError::EraseFailed { done, .. }) => done,
            Some(FlashError::BadBlock { .. }) | None => issued,
            Some(other) => return Err(translate(other, block.page(0))),
        };
        // An erased block holds nothing, and a spare comes erased.
        let done = self.replace(block, place, Some(0), now)?;
        Ok(Done { began: issued, moved: issued, done })
    }

    /// Reads pages that are all issued at once.
    pub fn read_many(&self, issued: Nanos, reads: &mut [RawRead]) -> Results {
        let same_lun = |a: &RawRead, b: &RawRead| on_one_lun(a.page.block, b.page.block);
        reads.chunk_by_mut(same_lun).flat_map(|run| self.read_run(issued, run)).collect()
    }

    /// Reads pages of one LUN.
    fn read_run(&self, issued: Nanos, run: &mut [RawRead]) -> Results {
        let checked = run.iter().try_for_each(|read| self.check_read(read));
        let checked = checked.and_then(|()| self.monitor.check_issued(issued));
        if run.len() == 1 || checked.is_err() {
            return run.iter_mut().map(|read| self.read(issued, read)).collect();
        }
        let mut raws: Vec<Vec<u8>> = run.iter().map(|read| vec![0; MARK + read.oob.len()]).collect();
        let answers = {
            let table = self.state.table(run[0].page.block);
            let place = |page: GrantPage| table[page.block.block as usize];
            if run.iter().any(|read| place(read.page).is_missing()) {
                Vec::new()
            } else {
                let at = |page: GrantPage| self.monitor.layout.address(place(page)).page(page.page);
                let parts = run.iter_mut().zip(&mut raws);
                let mut reads: Vec<PageRead> = parts
                    .map(|(read, oob)| PageRead {
                        page: at(read.page),
                        offset: read.offset,
                        data: &mut *read.data,
                        oob,
                    })
                    .collect();
                self.monitor.backend.read_many(issued, &mut reads)
            }
        };
        let mut answers = answers.into_iter();
        let settle = |(one, raw): (&mut RawRead, &Vec<u8>)| match answers.next() {
            Some(Ok(done)) if copy::why_marked(raw[0]).is_none() => {
                oob::take(raw, one.oob, self.state.geometry.oob_bytes);
                Ok(done)
            }
            // Read again, as a page is that is read alone.
            _ => self.read(issued, one),
        };
        run.iter_mut().zip(&raws).map(settle).collect()
    }

    /// Programs pages that are all issued at once.
    pub fn program_many(&self, issued: Nanos, writes: &[RawWrite]) -> Results {
        let same_lun = |a: &RawWrite, b: &RawWrite| on_one_lun(a.page.block, b.page.block);
        writes.chunk_by(same_lun).flat_map(|run| self.program_run(issued, run)).collect()
    }

    /// Programs pages of one LUN.
    fn program_run(&self, issued: Nanos, run: &[RawWrite]) -> Results {
        let program = |one: &RawWrite| self.program(issued, one);
        if run.len() == 1 || self.monitor.check_issued(issued).is_err() {
            return run.iter().map(program).collect();
        }
        let raw = |write: &RawWrite| {
            let mut raw = vec![0; self.check_write(write)?];
            oob::fill(&mut raw, write.oob, write.tag);
            Ok(raw)
        };
        let Ok(raws) = run.iter().map(raw).collect::<Result<Vec<Vec<u8>>, LevelError>>() else {
            return run.iter().map(program).collect();
        };
        let (places, answers) = {
            let table = self.state.table(run[0].page.block);
            let places: Vec<PhysBlock> =
                run.iter().map(|write| table[write.page.block.block as usize]).collect();
            if places.iter().any(|place| place.is_missing()) {
                drop(table);
                return run.iter().map(program).collect();
            }
            let parts = run.iter().zip(&places).zip(&raws);
            let programs: Vec<PageProgram> = parts
                .map(|((write, place), oob)| PageProgram {
                    page: self.monitor.layout.address(*place).page(write.page.page),
                    data: write.data,
                    oob,
                })
                .collect();
            let answers = self.monitor.backend.program_many(issued, &programs);
            (places, answers)
        };
        let settle = |(((write, raw), place), answer): (((&RawWrite, &Vec<u8>), PhysBlock), _)| match answer {
            Ok(done) => Ok(done),
            Err(error) => self.program_until(issued, write.page, write.data, raw, Some((place, error))),
        };
        run.iter().zip(&raws).zip(places).zip(answers).map(settle).collect()
    }

    /// Erases blocks, all issued at once.
    pub fn erase_many(&self, issued: Nanos, blocks: &[GrantBlock]) -> Results {
        let runs = blocks.chunk_by(|a, b| on_one_lun(*a, *b));
        runs.flat_map(|run| self.erase_run(issued, run)).collect()
    }

    /// Erases blocks of one LUN.
    fn erase_run(&self, issued: Nanos, run: &[GrantBlock]) -> Results {
        let sound = |block: &GrantBlock| self.state.geometry.check_block(*block);
        let checked = run.iter().try_for_each(sound).and_then(|()| self.monitor.check_issued(issued));
        let one_by_one = || run.iter().map(|block| self.erase(issued, *block)).collect();
        if run.len() == 1 || checked.is_err() {
            return one_by_one();
        }
        let (places, answers) = {
            let table = self.state.table(run[0]);
            let places: Vec<PhysBlock> = run.iter().map(|block| table[block.block as usize]).collect();
            if places.iter().any(|place| place.is_missing()) {
                drop(table);
                return one_by_one();
            }
            let addresses: Vec<_> = places.iter().map(|place| self.monitor.layout.address(*place)).collect();
            let answers = self.monitor.backend.erase_many(issued, &addresses);
            (places, answers)
        };
        let settle = |((block, place), answer): ((&GrantBlock, PhysBlock), _)| match answer {
            Ok(done) => Ok(done),
            Err(error) => self.erase_failed(issued, *block, place, Some(error)),
        };
        run.iter().zip(places).zip(answers).map(settle).collect()
    }

    /// The state of a block.
    pub fn look(&self, block: GrantBlock) -> Result<BlockLook, LevelError> {
        self.state.geometry.check_block(block)?;
        let table = self.state.table(block);
        let place = table[block.block as usize];
        if place.is_missing() {
            return Ok(BlockLook { programmed: 0, erase_incomplete: false, retired: true, erases: 0 });
        }
        let info = self.monitor.backend.block_info(self.monitor.layout.address(place))?;
        Ok(BlockLook {
            programmed: copy::pages_held(&info),
            erase_incomplete: info.state == BlockState::EraseIncomplete,
            retired: info.state.is_bad(),
            erases: info.erases,
        })
    }

    pub fn keeps_data(&self) -> bool {
        self.monitor.backend.keeps_data()
    }

    /// When the LUN that a block lies on is free.
    pub fn free_at(&self, block: GrantBlock) -> Result<Nanos, LevelError> {
        self.state.geometry.check_block(block)?;
        let lun = self.state.table(block)[block.block as usize].lun;
        Ok(self.monitor.backend.lun_free_at(self.monitor.layout.shape.lun_at(lun))?)
    }

    /// The device's clock.
    pub fn now(&self) -> Result<Nanos, LevelError> {
        self.monitor.now()
    }

    /// Makes what was programmed survive a crash of the host; a power cut of the flash needs no sync.
    pub fn sync(&self) -> Result<(), LevelError> {
        Ok(self.monitor.backend.sync()?)
    }

    /// The same, and leaves nothing of what was erased below the device.
    pub fn forget_erased(&self) -> Result<(), LevelError> {
        Ok(self.monitor.backend.forget_erased()?)
    }

    /// Lets a spare take the place of a bad block, with the block's first pages or all that it held.
    fn replace(
        &self,
        block: GrantBlock,
        place: PhysBlock,
        pages: Option<u32>,
        issued: Nanos,
    ) -> Result<Nanos, LevelError> {
        let grant_lun = self.state.grant_lun(block);
        let mut table = self.state.tables[grant_lun.position as usize].write();
        if table[block.block as usize] != place {
            // Another thread was first.
            return Ok(issued);
        }
        let monitor = &self.monitor;
        let mut control = monitor.control.lock();
        let mut now = issued;
        let copied = monitor.copy_to_lun(&mut control, place, pages, place.lun, &mut now)?;
        let next = match copied {
            Some((spare, _)) => spare,
            // What it held is given up, and may not come back when the monitor is opened again.
            None if pages == Some(0) && !place.is_missing() => PhysBlock::missing(place.lun),
            None => return Err(LevelError::BlockRetired { block }),
        };
        let change = Change::PhysBlock { grant_lun, block: block.block, place: next };
        let committed = control.commit(&*monitor.backend, &monitor.layout, change, now);
        if committed.is_err() {
            control.give_back(next);
        }
        let now = committed?;
        control.give_back(place);
        table[block.block as usize] = next;
        if next.is_missing() {
            return Err(LevelError::BlockRetired { block });
        }
        tracing::info!(grant = self.state.name, %block, "a bad block was replaced by a spare");
        Ok(now)
    }

    /// Replaces the blocks that became bad when nobody could replace them, as far as there are spares.
    pub(super) fn replace_bad(&self) -> Result<(), LevelError> {
        let geometry = &self.state.geometry;
        for (channel, lun) in geometry.lun_list() {
            for block in (0..geometry.blocks_per_lun).map(|block| GrantBlock { channel, lun, block }) {
                if !self.look(block)?.retired {
                    continue;
                }
                let place = self.state.table(block)[block.block as usize];
                match self.replace(block, place, None, Nanos(0)) {
                    Ok(_) | Err(LevelError::BlockRetired { .. }) => {}
                    // It can be read where it is.
                    Err(error) if error.leaves_reads() => {
                        tracing::warn!(grant = self.state.name, %block, "a bad block was not replaced: {error}");
                        return Ok(());
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }
}

fn on_one_lun(a: GrantBlock, b: GrantBlock) -> bool {
    (a.channel, a.lun) == (b.channel, b.lun)
}

fn oob_buffer<'a>(inline: &'a mut [u8; OOB_INLINE], heap: &'a mut Vec<u8>, len: usize) -> &'a mut [u8] {
    if len <= OOB_INLINE {
        return &mut inline[..len];
    }
    heap.resize(len, 0);
    heap
}

/// A failure of the flash, in the application's addresses.
fn translate(error: FlashError, address: GrantPage) -> LevelError {
    match error {
        FlashError::WrongLength { what, given, wanted, .. } => {
            LevelError::WrongLength { address, what, given, wanted }
        }
        FlashError::EraseIncomplete { .. } => LevelError::EraseIncomplete { block: address.block },
        FlashError::OutOfOrder { next, .. } => LevelError::OutOfOrder { address, next },
        FlashError::AlreadyProgrammed { .. } => LevelError::AlreadyProgrammed { address },
        FlashError::NotProgrammed { programmed, .. } => LevelError::NotProgrammed { address, programmed },
        FlashError::Uncorrectable { why, done, .. } => LevelError::Unreadable { address, why, done },
        FlashError::BadBlock { .. } | FlashError::ProgramFailed { .. } | FlashError::EraseFailed { .. } => {
            LevelError::BlockRetired { block: address.block }
        }
        other => other.into(),
    }
}
