//! The function level.

use crate::error::call;
use crate::handle::{Clocked, bytes, bytes_mut, give, handle, put, take};
use crate::monitor::{WeftBlock, WeftGrant, grant_of};
use weft_flash::function::Mapping;
use weft_flash::{FunctionLevel, LevelError};

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

/// Makes a grant one of the function level and finds the blocks that were written; the grant's handle is used up, also on
/// failure.
///
/// # Safety
/// The grant is open; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_function_open(grant: *mut WeftGrant, out: *mut *mut WeftFunction) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(WeftFunction(Clocked::new(FunctionLevel::open(grant_of(grant)?)?)), out) })
}

/// Closes a function level.
///
/// # Safety
/// The handle is null or open, and no call on it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_function_close(function: *mut WeftFunction) {
    // SAFETY: the caller's promise.
    drop(unsafe { take(function) });
}

/// Takes a block of a channel, with a label of the caller's, and says how many are free there then.
///
/// # Safety
/// The handle is open; `block` and `free_blocks` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_address_mapper(
    function: *const WeftFunction,
    channel: u32,
    mapping: u32,
    label: u64,
    block: *mut WeftBlock,
    free_blocks: *mut u32,
) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let function = &handle(function, "function")?.0;
        let mapping = match mapping {
            WEFT_MAP_BLOCK => Mapping::Block,
            WEFT_MAP_PAGE => Mapping::Page,
            other => {
                let what = format!("mapping {other}; WEFT_MAP_BLOCK and WEFT_MAP_PAGE are known");
                return Err(LevelError::BadRequest(what));
            }
        };
        let taken = function.level.address_mapper(function.now(), channel, mapping, label)?;
        put(taken.block.into(), block)?;
        put(taken.free, free_blocks)
    })
}

/// Reads a part of a page of a block.
///
/// # Safety
/// The handle is open; `data` has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_flash_read(
    function: *const WeftFunction,
    block: WeftBlock,
    page: u32,
    offset: u32,
    data: *mut u8,
    data_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let (function, data) = (&handle(function, "function")?.0, bytes_mut(data, data_bytes)?);
        let done = function.level.flash_read(function.now(), block.into(), page, offset, data)?;
        function.advance(done.done);
        Ok(())
    })
}

/// Writes a page of a block.
///
/// # Safety
/// The handle is open; `data` has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_flash_write(
    function: *const WeftFunction,
    block: WeftBlock,
    page: u32,
    data: *const u8,
    data_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let (function, data) = (&handle(function, "function")?.0, bytes(data, data_bytes)?);
        function.advance(function.level.flash_write(function.now(), block.into(), page, data)?.done);
        Ok(())
    })
}

/// Gives a block back; it is erased later.
///
/// # Safety
/// The handle is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_flash_trim(function: *const WeftFunction, block: WeftBlock) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(function, "function")?.0.level.flash_trim(block.into()) })
}

/// Erases every block that was given back.
///
/// # Safety
/// The handle is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_flash_flush(function: *const WeftFunction) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let function = &handle(function, "function")?.0;
        function.advance(function.level.flush(function.now())?);
        Ok(())
    })
}

/// Moves up to `moves_max` blocks that are more than `threshold` erases younger than a free one of their channel; writes
/// what was moved to `moves`, how many to `moved`, and how evenly the grant is worn to `spread`.
///
/// # Safety
/// The handle is open; `moves` has room for `moves_max`; `moved` and `spread` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_wear_leveler(
    function: *const WeftFunction,
    threshold: u32,
    moves: *mut WeftShuffle,
    moves_max: u32,
    moved: *mut u32,
    spread: *mut WeftSpread,
) -> i32 {
    let leveled = || {
        // SAFETY: the caller's promise.
        let function = &unsafe { handle(function, "function") }?.0;
        let report = function.level.wear_leveler(function.now(), threshold, moves_max)?;
        function.advance(report.done);
        for (at, shuffled) in report.shuffled.iter().enumerate() {
            let shuffle =
                WeftShuffle { from: shuffled.from.into(), to: shuffled.to.into(), label: shuffled.label };
            // SAFETY: there are at most `moves_max`, and the caller's promise.
            unsafe { put(shuffle, moves.wrapping_add(at)) }?;
        }
        let told = WeftSpread { erases_max: report.max, erases_min: report.min, erases_mean: report.mean };
        // SAFETY: the caller's promise.
        unsafe {
            put(report.shuffled.len() as u32, moved)?;
            put(told, spread)
        }
    };
    call(leveled)
}

/// Sets the over-provisioning, in thousandths; refused when too many blocks are mapped.
///
/// # Safety
/// The handle is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_set_ops(function: *const WeftFunction, over_provisioning_permille: u32) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe { handle(function, "function")?.0.level.set_ops(over_provisioning_permille) })
}
