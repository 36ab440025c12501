//! The three operations of a LUN, each on one plane or on several at once. In each the order is: addresses, lengths,
//! the state of the block; then power and time; then what the operation leaves.
//!
//! The host keeps the pages of an image and can fail, when its disk is full for example. A program therefore gives the pages of
//! all planes to the host before it changes the state of any block: after an error of the host none of them is programmed, and
//! the same pages can be programmed again.

use super::address::{BlockAddr, PageAddr};
use super::block::Health;
use super::command::{Done, PageProgram, PageRead};
use super::device::OpenChannel;
use super::error::{FlashError, Unreadable};
use super::lun::{Fault, Lun};
use super::power::{Execution, Power};
use crate::faults::Operation;
use weft_core::Nanos;

impl OpenChannel {
    pub(super) fn read_on_lun(&self, issued: Nanos, pages: &mut [PageRead]) -> Result<Done, FlashError> {
        let first = self.check_planes(pages.iter().map(|read| read.page))?;
        for read in pages.iter() {
            let (data_end, most) = (read.offset as usize + read.data.len(), self.shape.page_bytes as usize);
            check_most(read.page, "data", data_end, most)?;
            check_most(read.page, "out-of-band bytes", read.oob.len(), self.shape.oob_bytes as usize)?;
        }
        let mut lun = self.lun(first.block.lun_addr()).lock();
        for read in pages.iter() {
            lun.check_read(read.page, self.shape.block_in_lun(read.page.block))?;
        }
        let began = lun.begins(issued);
        let mut done = began + self.times(first.page).read_ns;
        for read in pages.iter() {
            let bytes = (read.data.len() + read.oob.len()) as u64;
            done = self.move_bytes(first.block.channel, done, bytes);
            lun.counters.bytes_read += bytes;
        }
        lun.finish(began, done);
        lun.counters.multi_plane += u64::from(pages.len() > 1);
        let loaded = pages.iter_mut().map(|read| -> Result<(), FlashError> {
            let at = self.shape.block_in_lun(read.page.block);
            self.sense(&mut lun, read.page, at, done)?;
            let stored = lun.load(at, read.page.page, read.offset, read.data, read.oob)?;
            let Some(why) = stored else { return Ok(()) };
            lun.counters.uncorrectable_reads += 1;
            Err(FlashError::Uncorrectable { address: read.page, why, done: Nanos(done) })
        });
        all_of(Done { began: Nanos(began), moved: Nanos(done), done: Nanos(done) }, loaded)
    }

    /// Whether the page that is being read can be: its bits are counted.
    pub(super) fn sense(&self, lun: &mut Lun, page: PageAddr, at: u32, done: u64) -> Result<(), FlashError> {
        let block = &mut lun.blocks[at as usize];
        let bits = self.bit_errors.bits((lun.index, at, page.page), block, done);
        block.reads = block.reads.saturating_add(1);
        let place = u64::from(at) << 32 | u64::from(page.page);
        let why = if block.half_erased {
            Some(Unreadable::HalfErased)
        } else if block.is_torn(page.page) {
            Some(Unreadable::Torn)
        } else if bits > self.bit_errors.correctable
            || self.plan.fails(Operation::Read, lun.index, block.erases, place)
        {
            Some(Unreadable::Bits)
        } else {
            None
        };
        lun.counters.pages_read += 1;
        if why.is_none() && !lun.meets(Fault::Read(page)) {
            lun.counters.bits_corrected += u64::from(bits);
            return Ok(());
        }
        lun.counters.uncorrectable_reads += 1;
        let why = why.unwrap_or(Unreadable::AskedFor);
        Err(FlashError::Uncorrectable { address: page, why, done: Nanos(done) })
    }

    pub(super) fn program_on_lun(
        &self,
        issued: Nanos,
        pages: &[PageProgram],
        execution: impl FnOnce(&Power) -> Result<Execution, FlashError>,
    ) -> Result<Done, FlashError> {
        let first = self.check_planes(pages.iter().map(|program| program.page))?;
        let mut lun = self.lun(first.block.lun_addr()).lock();
        for PageProgram { page, data, oob } in pages {
            let (given, wanted) = (data.len(), self.shape.page_bytes as usize);
            if given != wanted && (given > 0 || lun.keeps_data()) {
                return Err(FlashError::WrongLength { address: *page, what: "data", given, wanted });
            }
            check_most(*page, "out-of-band bytes", oob.len(), self.shape.oob_bytes as usize)?;
            lun.check_program(*page, self.shape.block_in_lun(page.block))?;
        }
        let execution = execution(&self.power)?;
        if execution == Execution::Nothing {
            return Err(FlashError::PowerLost);
        }
        let mut stored = 0;
        let each = pages.iter().try_for_each(|program| {
            self.store_page(&mut lun, program, execution)?;
            stored += 1;
            Ok(())
        });
        if let Err(error) = each {
            self.forget_planes(&lun, &pages[..stored]);
            // Without power nobody learns of the host's error.
            return Err(if execution == Execution::Reported { error } else { FlashError::PowerLost });
        }
        let began = lun.begins(issued);
        let mut moved = began;
        for program in pages {
            let bytes = u64::from(self.shape.page_bytes) + program.oob.len() as u64;
            moved = self.move_bytes(first.block.channel, moved, bytes);
            lun.counters.bytes_programmed += bytes;
        }
        let done = moved + self.times(first.page).program_ns;
        lun.finish(began, done);
        lun.counters.multi_plane += u64::from(pages.len() > 1);
        let times = Done { began: Nanos(began), moved: Nanos(moved), done: Nanos(done) };
        let mut each = |program| self.program_page(&mut lun, program, execution, done);
        let result = match pages {
            [program] => each(program).map(|()| times),
            pages => all_of(times, pages.iter().map(each)),
        };
        if execution == Execution::Reported { result } else { Err(FlashError::PowerLost) }
    }

    /// Gives the host what a page holds after its program. The state of the block stays as it is.
    #[inline]
    fn store_page(
        &self,
        lun: &mut Lun,
        program: &PageProgram,
        execution: Execution,
    ) -> Result<(), FlashError> {
        let page = program.page;
        let at = self.shape.block_in_lun(page.block);
        debug_assert_eq!(
            page.page, lun.blocks[at as usize].next,
            "a page is stored that is not programmed next"
        );
        lun.meet_host(page)?;
        if execution == Execution::Torn {
            lun.store_torn(at, page.page)?;
            if let Some(lsb) = self.lsb_of(page) {
                lun.store_torn(at, lsb)?;
            }
        } else if self.program_fails(lun, page) {
            lun.store_torn(at, page.page)?;
        } else {
            lun.store(at, page.page, program.data, program.oob)?;
        }
        Ok(())
    }

    /// Pages that were stored before the host ended their command in another plane: none of them counts, and where a later program of one
    /// were lost in a crash of the host, what lies there would be taken for it.
    fn forget_planes(&self, lun: &Lun, stored: &[PageProgram]) {
        let Some(image) = self.image().filter(|_| !stored.is_empty()) else { return };
        let forget = |program: &PageProgram| {
            lun.forget(self.shape.block_in_lun(program.page.block), program.page.page)
        };
        if let Err(error) = stored.iter().try_for_each(forget).and_then(|()| image.make_durable()) {
            tracing::warn!(%error, "pages that do not count are left in the image, which is not written any more");
            image.give_up(&error);
        }
    }

    /// Counts a page as programmed that has been stored: should this process die in between, what it holds is there first.
    #[inline]
    fn program_page(
        &self,
        lun: &mut Lun,
        program: &PageProgram,
        execution: Execution,
        done: u64,
    ) -> Result<(), FlashError> {
        let page = program.page;
        let at = self.shape.block_in_lun(page.block);
        let fails = self.program_fails(lun, page);
        if fails {
            lun.meets(Fault::Program(page));
        }
        let block = &mut lun.blocks[at as usize];
        if execution == Execution::Torn {
            block.tear(page.page);
            if let Some(lsb) = self.lsb_of(page) {
                block.tear(lsb);
            }
        } else if fails {
            block.tear(page.page);
        }
        if block.next == 0 {
            block.written_at = done;
        }
        block.next += 1;
        block.programmed += 1;
        lun.counters.pages_programmed += 1;
        let failed = fails && execution != Execution::Torn;
        if failed {
            block.health = Health::ProgramFailed;
            lun.counters.program_failures += 1;
        }
        lun.publish(at);
        if failed { Err(FlashError::ProgramFailed { address: page, done: Nanos(done) }) } else { Ok(()) }
    }

    /// Whether the flash fails in the next program of a page. A failure that was asked for is not used up.
    #[inline]
    fn program_fails(&self, lun: &Lun, page: PageAddr) -> bool {
        (!lun.faults.is_empty() || self.plan.program_failures != 0)
            && self.program_fails_as_planned(lun, page)
    }

    #[cold]
    fn program_fails_as_planned(&self, lun: &Lun, page: PageAddr) -> bool {
        let at = self.shape.block_in_lun(page.block);
        let place = u64::from(at) << 32 | u64::from(page.page);
        lun.faults.contains(&Fault::Program(page))
            || self.plan.fails(Operation::Program, lun.index, lun.blocks[at as usize].erases, place)
    }

    /// The page that shares the cells of this one and was programmed before it.
    fn lsb_of(&self, page: PageAddr) -> Option<u32> {
        self.setup.pairing.and_then(|pairing| pairing.lsb_of(page.page))
    }

    pub(super) fn erase_on_lun(
        &self,
        issued: Nanos,
        blocks: &[BlockAddr],
        execution: impl FnOnce(&Power) -> Result<Execution, FlashError>,
    ) -> Result<Done, FlashError> {
        let first = self.check_planes(blocks.iter().map(|block| block.page(0)))?.block;
        self.check_writable()?;
        let numbers = || blocks.iter().map(|block| self.shape.block_in_lun(*block));
        let lun = self.lun(first.lun_addr());
        let check = |lun: &Lun| {
            blocks
                .iter()
                .try_for_each(|block| lun.check_good(*block, self.shape.block_in_lun(*block), "erase"))
        };
        let to_sync = {
            let mut lun = lun.lock();
            check(&lun)?;
            // Written down before what follows: should the host crash, what it may have in place of the pages is no damage.
            numbers().fold(false, |to_sync, at| lun.announce_erase(at) | to_sync)
        };
        // Without the lock: other commands on the LUN do not wait for the disk. What is there now is durable before it is erased, and so
        // is what was copied from it.
        let prepared = if to_sync { self.prepare_erase() } else { Ok(()) };
        let mut lun = lun.lock();
        let begins = || {
            prepared?;
            check(&lun)?;
            match execution(&self.power)? {
                Execution::Nothing => Err(FlashError::PowerLost),
                execution => Ok(execution),
            }
        };
        let execution = match begins() {
            Ok(execution) => execution,
            Err(error) => {
                numbers().for_each(|at| lun.withdraw_erase(at));
                return Err(error);
            }
        };
        let began = lun.begins(issued);
        let done = began + self.setup.geometry.timing.erase_ns;
        lun.finish(began, done);
        lun.counters.multi_plane += u64::from(blocks.len() > 1);
        let erased = blocks.iter().map(|block| self.erase_block(&mut lun, *block, execution, done));
        let times = Done { began: Nanos(began), moved: Nanos(began), done: Nanos(done) };
        let result = all_of(times, erased);
        if execution == Execution::Reported { result } else { Err(FlashError::PowerLost) }
    }

    fn erase_block(
        &self,
        lun: &mut Lun,
        address: BlockAddr,
        execution: Execution,
        done: u64,
    ) -> Result<(), FlashError> {
        let at = self.shape.block_in_lun(address);
        let asked_for = lun.meets(Fault::Erase(address));
        let block = &mut lun.blocks[at as usize];
        let endurance = self.setup.geometry.endurance;
        let worn_out = endurance > 0 && block.erases >= endurance;
        if execution != Execution::Torn
            && (worn_out
                || asked_for
                || self.plan.fails(Operation::Erase, lun.index, block.erases, u64::from(at)))
        {
            block.health = Health::EraseFailed;
            lun.counters.erase_failures += 1;
            let erases = block.erases;
            lun.end_erase(at);
            lun.publish(at);
            return Err(FlashError::EraseFailed { block: address, erases, worn_out, done: Nanos(done) });
        }
        let programmed = u64::from(block.next);
        block.clear();
        block.half_erased = execution == Execution::Torn;
        block.erases += 1;
        lun.counters.blocks_erased += 1;
        lun.counters.pages_erased += programmed;
        lun.pages_erased_unwritten += u64::from(self.shape.pages_per_block) - programmed;
        lun.end_erase(at);
        lun.publish(at);
        lun.discard(at);
        Ok(())
    }

    /// Refuses addresses that cannot be worked on at once, and returns the first.
    fn check_planes(
        &self,
        mut pages: impl ExactSizeIterator<Item = PageAddr>,
    ) -> Result<PageAddr, FlashError> {
        let given = pages.len();
        let most = self.shape.planes as usize;
        let Some(first) = pages.next() else {
            return Err(FlashError::VectorLength { given, most });
        };
        self.shape.check_page(first)?;
        let mut planes = PlaneSet::default();
        planes.insert(first.block.plane);
        for other in pages {
            self.shape.check_page(other)?;
            let why = if other.block.lun_addr() != first.block.lun_addr() {
                "they are on different LUNs"
            } else if other.page != first.page {
                "their page numbers differ"
            } else if !planes.insert(other.block.plane) {
                "they are in the same plane"
            } else {
                continue;
            };
            return Err(FlashError::PlaneMismatch { first, other, why });
        }
        Ok(first)
    }
}

/// Tries all of the parts of an operation; the first error, if one fails.
#[inline]
fn all_of(times: Done, parts: impl Iterator<Item = Result<(), FlashError>>) -> Result<Done, FlashError> {
    let mut failed = None;
    for part in parts {
        if let Err(error) = part {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(times), Err)
}

/// Planes seen, without an allocation for the usual few.
#[derive(Default)]
struct PlaneSet {
    low: u64,
    high: Vec<u32>,
}

impl PlaneSet {
    /// Whether the plane is new.
    fn insert(&mut self, plane: u32) -> bool {
        if plane < u64::BITS {
            let bit = 1 << plane;
            let new = self.low & bit == 0;
            self.low |= bit;
            return new;
        }
        let new = !self.high.contains(&plane);
        self.high.push(plane);
        new
    }
}

fn check_most(address: PageAddr, what: &'static str, given: usize, most: usize) -> Result<(), FlashError> {
    if given > most {
        return Err(FlashError::WrongLength { address, what, given, wanted: most });
    }
    Ok(())
}
