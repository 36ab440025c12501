//! The function level.

use crate::error::{Failure, bad, exports};
use crate::handle::{Clocked, bytes, bytes_mut, give, handle, list_mut, put, settle, take};
use crate::monitor::{WeftBlock, WeftGrant, grant_of};
use crate::raw::{WeftGeometryInfo, WeftRead, WeftWrite};
use crate::tag::WeftTag;
use weft_flash::FunctionLevel;
use weft_flash::function::{BlockRead, BlockWrite, Mapping, Shuffled};

/// A grant at the function level.
pub struct WeftFunction(Clocked<FunctionLevel>);

/// Pages of a block are written in order.
pub const WEFT_MAP_BLOCK: u32 = 0;
/// Pages of a block are written in any order, and again.
pub const WEFT_MAP_PAGE: u32 = 1;

/// A block that wear leveling moved.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeftShuffle {
    /// Where it was.
    pub from: WeftBlock,
    /// Where it is.
    pub to: WeftBlock,
    /// The label that it was taken with.
    pub label: u64,
}

/// How evenly a grant is worn.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WeftSpread {
    /// Erases of the most worn block.
    pub erases_max: u32,
    /// Erases of the least worn block.
    pub erases_min: u32,
    /// Mean erases of a block.
    pub erases_mean: f64,
}

exports! {
    /// Makes a grant one of the function level and finds the blocks that were written; the grant's handle is used up, also on
    /// failure. A grant with data of the policy level is refused: `WEFT_ELEVEL`.
    ///
    /// # Safety
    /// The grant is open; `out` can be written.
    fn weft_function_open(grant: *mut WeftGrant, out: *mut *mut WeftFunction) {
        give(WeftFunction(Clocked::new(FunctionLevel::open(grant_of(grant)?)?)), out)
    }

    /// Closes a function level.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_function_close(function: *mut WeftFunction) -> () {
        drop(take(function))
    }

    /// What there is to address.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_function_geometry(function: *const WeftFunction, out: *mut WeftGeometryInfo) {
        put(handle(function, "function")?.0.level.geometry().into(), out)
    }

    /// Takes a block of a channel, with a label of the caller's, and says how many are free there then.
    ///
    /// # Safety
    /// The handle is open; `block` and `free_blocks` can be written.
    fn weft_address_mapper(
        function: *const WeftFunction,
        channel: u32,
        mapping: u32,
        label: u64,
        block: *mut WeftBlock,
        free_blocks: *mut u32,
    ) {
        let function = &handle(function, "function")?.0;
        let taken = function.level.address_mapper(function.now(), channel, mapping_of(mapping)?, label)?;
        put(taken.block.into(), block)?;
        put(taken.free, free_blocks)
    }

    /// Takes a row, all of it or nothing: a block in each plane of `luns` neighbouring LUNs, all with this label. Pages of one
    /// number of a row that are written together keep these LUNs and planes at work at the same time. The row has as many
    /// blocks as `luns` times the planes of a LUN; `blocks_max`, the room of `blocks`, must suffice.
    ///
    /// # Safety
    /// The handle is open; `blocks` has room for `blocks_max`.
    fn weft_address_mapper_row(
        function: *const WeftFunction,
        luns: u32,
        mapping: u32,
        label: u64,
        blocks: *mut WeftBlock,
        blocks_max: usize,
    ) {
        let (function, blocks) = (&handle(function, "function")?.0, list_mut(blocks, blocks_max)?);
        let wanted = luns as usize * function.level.geometry().planes as usize;
        if blocks_max < wanted {
            let what = format!("room for {blocks_max} blocks, and the row has {wanted}; give room for all");
            return Err(bad(what));
        }
        let row = function.level.address_mapper_row(function.now(), luns, mapping_of(mapping)?, label)?;
        blocks.iter_mut().zip(row).for_each(|(out, block)| *out = block.into());
        Ok(())
    }

    /// Reads a part of a page of a block.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes.
    fn weft_flash_read(
        function: *const WeftFunction,
        block: WeftBlock,
        page: u32,
        offset: u32,
        data: *mut u8,
        data_bytes: usize,
    ) {
        let (function, data) = (&handle(function, "function")?.0, bytes_mut(data, data_bytes)?);
        function.run(|level, now| Ok(level.flash_read(now, block.into(), page, offset, data)?.done))
    }

    /// Writes a page of a block.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes.
    fn weft_flash_write(
        function: *const WeftFunction,
        block: WeftBlock,
        page: u32,
        data: *const u8,
        data_bytes: usize,
    ) {
        let (function, data) = (&handle(function, "function")?.0, bytes(data, data_bytes)?);
        function.run(|level, now| Ok(level.flash_write(now, block.into(), page, data)?.done))
    }

    /// The tag that a page was written with.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_flash_tag(function: *const WeftFunction, block: WeftBlock, page: u32, out: *mut WeftTag) {
        let function = &handle(function, "function")?.0;
        put(function.level.tag_of(function.now(), block.into(), page)?.into(), out)
    }

    /// Writes several pages, all issued at once, as `weft_page_write_vector` does at the raw level. Each has its own status;
    /// returns that of the first that failed.
    ///
    /// # Safety
    /// The handle is open; `writes` has `count` entries, whose data is there.
    fn weft_flash_write_vector(function: *const WeftFunction, writes: *mut WeftWrite, count: usize) {
        let (function, writes) = (&handle(function, "function")?.0, list_mut(writes, count)?);
        let pages: Vec<BlockWrite> = writes
            .iter()
            .map(|write| {
                let data = bytes(write.data, write.data_bytes)?;
                Ok(BlockWrite {
                    block: write.block.into(),
                    page: write.page,
                    data,
                    tag: write.tag.try_into()?,
                })
            })
            .collect::<Result<_, Failure>>()?;
        let results = function.level.flash_write_vector(function.now(), &pages);
        settle(function, Ok(results), writes.iter_mut().map(|write| &mut write.status))
    }

    /// Reads parts of several pages, all issued at once. Each has its own status; returns that of the first that failed.
    ///
    /// # Safety
    /// The handle is open; `reads` has `count` entries, whose buffers do not overlap.
    fn weft_flash_read_vector(function: *const WeftFunction, reads: *mut WeftRead, count: usize) {
        let (function, reads) = (&handle(function, "function")?.0, list_mut(reads, count)?);
        let mut pages: Vec<BlockRead> = reads
            .iter()
            .map(|read| {
                let data = bytes_mut(read.data, read.data_bytes)?;
                Ok(BlockRead { block: read.block.into(), page: read.page, offset: read.offset, data })
            })
            .collect::<Result<_, Failure>>()?;
        let results = function.level.flash_read_vector(function.now(), &mut pages);
        settle(function, Ok(results), reads.iter_mut().map(|read| &mut read.status))
    }

    /// Gives a block back; it is erased later.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_flash_trim(function: *const WeftFunction, block: WeftBlock) {
        Ok(handle(function, "function")?.0.level.flash_trim(block.into())?)
    }

    /// Erases every block that was given back.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_flash_flush(function: *const WeftFunction) {
        handle(function, "function")?.0.run(|level, now| level.flush(now))
    }

    /// Moves up to `moves_max` blocks that are more than `threshold` erases younger than a free one of their channel; writes
    /// what was moved to `moves`, how many to `moved`, and how evenly the grant is worn to `spread`. All three are written on failure
    /// too: the first `moved` blocks have moved then, and are at their new places.
    ///
    /// # Safety
    /// The handle is open; `moves` has room for `moves_max`; `moved` and `spread` can be written.
    fn weft_wear_leveler(
        function: *const WeftFunction,
        threshold: u32,
        moves: *mut WeftShuffle,
        moves_max: u32,
        moved: *mut u32,
        spread: *mut WeftSpread,
    ) {
        // Before anything moves: there is room for what has to be told.
        let (function, moves) = (&handle(function, "function")?.0, list_mut(moves, moves_max as usize)?);
        put(0, moved)?;
        put(WeftSpread::default(), spread)?;
        let report = function.level.wear_leveler(function.now(), threshold, moves_max)?;
        function.advance(report.done);
        for (out, shuffled) in moves.iter_mut().zip(&report.shuffled) {
            let Shuffled { from, to, label } = *shuffled;
            *out = WeftShuffle { from: from.into(), to: to.into(), label };
        }
        let told = WeftSpread { erases_max: report.max, erases_min: report.min, erases_mean: report.mean };
        put(report.shuffled.len() as u32, moved)?;
        put(told, spread)?;
        Ok(report.stopped.map_or(Ok(()), Err)?)
    }

    /// Sets the over-provisioning, in thousandths; refused when too many blocks are mapped.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_set_ops(function: *const WeftFunction, over_provisioning_permille: u32) {
        Ok(handle(function, "function")?.0.level.set_ops(over_provisioning_permille)?)
    }
}

fn mapping_of(number: u32) -> Result<Mapping, Failure> {
    match number {
        WEFT_MAP_BLOCK => Ok(Mapping::Block),
        WEFT_MAP_PAGE => Ok(Mapping::Page),
        other => Err(bad(format!("mapping {other}; WEFT_MAP_BLOCK and WEFT_MAP_PAGE are known"))),
    }
}
