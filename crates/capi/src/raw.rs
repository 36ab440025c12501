//! The raw level.

use crate::error::call;
use crate::handle::{Clocked, bytes, bytes_mut, give, handle, put, take};
use crate::monitor::{WeftBlock, WeftGrant, grant_of};
use weft_flash::{GrantBlock, RawLevel};

/// A grant at the raw level.
pub struct WeftRaw(Clocked<RawLevel>);

/// What a grant has.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeftGeometryInfo {
    /// Channels.
    pub channels: u32,
    /// LUNs of all channels together; channels may differ by some.
    pub luns: u32,
    /// Blocks of a LUN.
    pub blocks_per_lun: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Out-of-band bytes of a page.
    pub oob_bytes: u32,
}

/// Makes a grant one of the raw level; the grant's handle is used up, also on failure.
///
/// # Safety
/// The grant is open; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_raw_open(grant: *mut WeftGrant, out: *mut *mut WeftRaw) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(WeftRaw(Clocked::new(RawLevel::new(grant_of(grant)?))), out) })
}

/// Closes a raw level.
///
/// # Safety
/// The handle is null or open, and no call on it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_raw_close(raw: *mut WeftRaw) {
    // SAFETY: the caller's promise.
    drop(unsafe { take(raw) });
}

/// What there is to address.
///
/// # Safety
/// The handle is open; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_geometry(raw: *const WeftRaw, out: *mut WeftGeometryInfo) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let geometry = handle(raw, "raw")?.0.level.geometry();
        let told = WeftGeometryInfo {
            channels: geometry.channels(),
            luns: geometry.luns(),
            blocks_per_lun: geometry.blocks_per_lun,
            pages_per_block: geometry.pages_per_block,
            page_bytes: geometry.page_bytes,
            oob_bytes: geometry.oob_bytes,
        };
        put(told, out)
    })
}

/// Reads a part of a page's data from `offset` on, and its first out-of-band bytes.
///
/// # Safety
/// The handle is open; `data` and `oob` have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_page_read(
    raw: *const WeftRaw,
    block: WeftBlock,
    page: u32,
    offset: u32,
    data: *mut u8,
    data_bytes: usize,
    oob: *mut u8,
    oob_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let raw = &handle(raw, "raw")?.0;
        let (data, oob) = (bytes_mut(data, data_bytes)?, bytes_mut(oob, oob_bytes)?);
        let page = GrantBlock::from(block).page(page);
        raw.advance(raw.level.page_read(raw.now(), page, offset, data, oob)?.done);
        Ok(())
    })
}

/// Programs the next page of a block, whole.
///
/// # Safety
/// The handle is open; `data` and `oob` have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_page_write(
    raw: *const WeftRaw,
    block: WeftBlock,
    page: u32,
    data: *const u8,
    data_bytes: usize,
    oob: *const u8,
    oob_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let raw = &handle(raw, "raw")?.0;
        let (data, oob) = (bytes(data, data_bytes)?, bytes(oob, oob_bytes)?);
        let page = GrantBlock::from(block).page(page);
        raw.advance(raw.level.page_write(raw.now(), page, data, oob)?.done);
        Ok(())
    })
}

/// Erases a block.
///
/// # Safety
/// The handle is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_block_erase(raw: *const WeftRaw, block: WeftBlock) -> i32 {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        let raw = &handle(raw, "raw")?.0;
        raw.advance(raw.level.block_erase(raw.now(), block.into())?.done);
        Ok(())
    })
}
