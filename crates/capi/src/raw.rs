//! The raw level.

use crate::error::{Failure, exports};
use crate::handle::{Clocked, bytes, bytes_mut, give, handle, list, list_mut, put, settle, take};
use crate::monitor::{WeftBlock, WeftGrant, grant_of};
use crate::tag::WeftTag;
use weft_flash::raw::{RawRead, RawWrite};
use weft_flash::{GrantBlock, GrantGeometry, RawLevel};

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
    /// Planes of a LUN, which work together: block `b` of a LUN is in plane `b % planes`.
    pub planes: u32,
}

impl From<&GrantGeometry> for WeftGeometryInfo {
    fn from(geometry: &GrantGeometry) -> WeftGeometryInfo {
        WeftGeometryInfo {
            channels: geometry.channels(),
            luns: geometry.luns(),
            blocks_per_lun: geometry.blocks_per_lun,
            pages_per_block: geometry.pages_per_block,
            page_bytes: geometry.page_bytes,
            oob_bytes: geometry.oob_bytes,
            planes: geometry.planes,
        }
    }
}

/// A page to be written, one of several.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftWrite {
    /// The block.
    pub block: WeftBlock,
    /// The page in the block.
    pub page: u32,
    /// The page's data.
    pub data: *const u8,
    /// Bytes of it.
    pub data_bytes: usize,
    /// Its out-of-band bytes, at the raw level; not looked at elsewhere.
    pub oob: *const u8,
    /// How many.
    pub oob_bytes: usize,
    /// What is known of the data.
    pub tag: WeftTag,
    /// What became of it, 0 or a code: the call writes this.
    pub status: i32,
}

/// A part of a page to be read, one of several.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftRead {
    /// The block.
    pub block: WeftBlock,
    /// The page in the block.
    pub page: u32,
    /// Where in the page's data to begin.
    pub offset: u32,
    /// Where the data goes.
    pub data: *mut u8,
    /// Bytes of it.
    pub data_bytes: usize,
    /// Where the first out-of-band bytes go, at the raw level; not looked at elsewhere.
    pub oob: *mut u8,
    /// How many.
    pub oob_bytes: usize,
    /// What became of it, 0 or a code: the call writes this.
    pub status: i32,
}

exports! {
    /// Makes a grant one of the raw level; the grant's handle is used up, also on failure.
    ///
    /// # Safety
    /// The grant is open; `out` can be written.
    fn weft_raw_open(grant: *mut WeftGrant, out: *mut *mut WeftRaw) {
        give(WeftRaw(Clocked::new(RawLevel::new(grant_of(grant)?))), out)
    }

    /// Closes a raw level.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_raw_close(raw: *mut WeftRaw) -> () {
        drop(take(raw))
    }

    /// What there is to address.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_geometry(raw: *const WeftRaw, out: *mut WeftGeometryInfo) {
        put(handle(raw, "raw")?.0.level.geometry().into(), out)
    }

    /// Reads a part of a page's data from `offset` on, and its first out-of-band bytes.
    ///
    /// # Safety
    /// The handle is open; `data` and `oob` have so many bytes.
    fn weft_page_read(
        raw: *const WeftRaw,
        block: WeftBlock,
        page: u32,
        offset: u32,
        data: *mut u8,
        data_bytes: usize,
        oob: *mut u8,
        oob_bytes: usize,
    ) {
        let raw = &handle(raw, "raw")?.0;
        let (data, oob) = (bytes_mut(data, data_bytes)?, bytes_mut(oob, oob_bytes)?);
        let page = GrantBlock::from(block).page(page);
        raw.run(|level, now| Ok(level.page_read(now, page, offset, data, oob)?.done))
    }

    /// Programs the next page of a block, whole.
    ///
    /// # Safety
    /// The handle is open; `data` and `oob` have so many bytes.
    fn weft_page_write(
        raw: *const WeftRaw,
        block: WeftBlock,
        page: u32,
        data: *const u8,
        data_bytes: usize,
        oob: *const u8,
        oob_bytes: usize,
    ) {
        let raw = &handle(raw, "raw")?.0;
        let (data, oob) = (bytes(data, data_bytes)?, bytes(oob, oob_bytes)?);
        let page = GrantBlock::from(block).page(page);
        raw.run(|level, now| Ok(level.page_write(now, page, data, oob)?.done))
    }

    /// The tag that a page was written with.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_page_tag(raw: *const WeftRaw, block: WeftBlock, page: u32, out: *mut WeftTag) {
        let raw = &handle(raw, "raw")?.0;
        put(raw.level.tag_of(raw.now(), GrantBlock::from(block).page(page))?.into(), out)
    }

    /// Erases a block.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_block_erase(raw: *const WeftRaw, block: WeftBlock) {
        handle(raw, "raw")?.0.run(|level, now| Ok(level.block_erase(now, block.into())?.done))
    }

    /// Programs several pages, all issued at once: LUNs work at the same time, and planes of a LUN too when their pages have one
    /// number and follow each other in the list. Each has its own status; returns that of the first that failed.
    ///
    /// # Safety
    /// The handle is open; `writes` has `count` entries, whose data and out-of-band bytes are there.
    fn weft_page_write_vector(raw: *const WeftRaw, writes: *mut WeftWrite, count: usize) {
        let (raw, writes) = (&handle(raw, "raw")?.0, list_mut(writes, count)?);
        let pages: Vec<RawWrite> = writes
            .iter()
            .map(|write| {
                let (data, oob) = (bytes(write.data, write.data_bytes)?, bytes(write.oob, write.oob_bytes)?);
                Ok(RawWrite {
                    page: GrantBlock::from(write.block).page(write.page),
                    data,
                    oob,
                    tag: write.tag.try_into()?,
                })
            })
            .collect::<Result<_, Failure>>()?;
        let results = raw.level.page_write_vector(raw.now(), &pages);
        settle(raw, results, writes.iter_mut().map(|write| &mut write.status))
    }

    /// Reads parts of several pages, all issued at once, as `weft_page_write_vector` programs them.
    ///
    /// # Safety
    /// The handle is open; `reads` has `count` entries, whose buffers do not overlap.
    fn weft_page_read_vector(raw: *const WeftRaw, reads: *mut WeftRead, count: usize) {
        let (raw, reads) = (&handle(raw, "raw")?.0, list_mut(reads, count)?);
        let mut pages: Vec<RawRead> = reads
            .iter()
            .map(|read| {
                let (data, oob) =
                    (bytes_mut(read.data, read.data_bytes)?, bytes_mut(read.oob, read.oob_bytes)?);
                Ok(RawRead {
                    page: GrantBlock::from(read.block).page(read.page),
                    offset: read.offset,
                    data,
                    oob,
                })
            })
            .collect::<Result<_, Failure>>()?;
        let results = raw.level.page_read_vector(raw.now(), &mut pages);
        settle(raw, results, reads.iter_mut().map(|read| &mut read.status))
    }

    /// Erases several blocks, all issued at once, as `weft_page_write_vector` programs pages; `statuses` gets what became of each.
    ///
    /// # Safety
    /// The handle is open; `blocks` and `statuses` have `count` entries.
    fn weft_block_erase_vector(
        raw: *const WeftRaw,
        blocks: *const WeftBlock,
        statuses: *mut i32,
        count: usize,
    ) {
        let (raw, statuses) = (&handle(raw, "raw")?.0, list_mut(statuses, count)?);
        let blocks: Vec<GrantBlock> = list(blocks, count)?.iter().map(|block| (*block).into()).collect();
        settle(raw, raw.level.block_erase_vector(raw.now(), &blocks), statuses.iter_mut())
    }
}
