//! The policy level.

use crate::error::{Failure, bad, exports};
use crate::handle::{Clocked, bytes, bytes_mut, give, handle, put, take};
use crate::monitor::{WeftGrant, grant_of};
use crate::tag::{WeftTag, tag_at};
use weft_core::{LifetimeGroup, StreamId, Tag};
use weft_device::gc::VictimPolicy;
use weft_flash::{PolicyLevel, PolicySetup, RangeMapping, RangePolicy};

/// A grant at the policy level.
pub struct WeftPolicy(Clocked<PolicyLevel>);

/// The range is mapped page by page.
pub const WEFT_FTL_PAGE: u32 = 0;
/// The range is mapped block by block.
pub const WEFT_FTL_BLOCK: u32 = 1;
/// Cleaning takes the block with the fewest valid pages.
pub const WEFT_GC_GREEDY: u32 = 0;
/// Cleaning takes the block that was filled first.
pub const WEFT_GC_FIFO: u32 = 1;
/// Cleaning takes the block that has not changed for longest.
pub const WEFT_GC_LRU: u32 = 2;
/// Cleaning weighs valid pages and age.
pub const WEFT_GC_COST_BENEFIT: u32 = 3;

exports! {
    /// Makes a grant one of the policy level, anew (`create` not 0) or as it was left; the grant's handle is used up, also on
    /// failure. A grant with data of the function level is refused: `WEFT_ELEVEL`.
    ///
    /// # Safety
    /// The grant is open; `out` can be written.
    fn weft_policy_open(grant: *mut WeftGrant, create: i32, out: *mut *mut WeftPolicy) {
        let grant = grant_of(grant)?;
        let level = match create {
            0 => PolicyLevel::open(grant, PolicySetup::default()),
            _ => PolicyLevel::create(grant, PolicySetup::default()),
        }?;
        give(WeftPolicy(Clocked::new(level)), out)
    }

    /// Closes a policy level.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_policy_close(policy: *mut WeftPolicy) -> () {
        drop(take(policy))
    }

    /// Sets up logical pages: how they are mapped, how they are cleaned, and over-provisioning in thousandths. A page-mapped range
    /// takes the units of its pages and its over-provisioning and 8 more, so at least 9; a block-mapped one takes those of its
    /// pages, and those of its over-provisioning or 3, whichever is more, so at least 4. A unit is an erase block in each plane of up to 8
    /// LUNs, or of more if that leaves 64 units. `WEFT_ENOSPC` says how many pages fit.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_ftl_ioctl(
        policy: *const WeftPolicy,
        mapping: u32,
        gc: u32,
        start_page: u64,
        pages: u64,
        over_provisioning_permille: u32,
    ) {
        let range = range_of(mapping, gc, start_page, pages, over_provisioning_permille)?;
        Ok(handle(policy, "policy")?.0.level.ftl_ioctl(&range)?)
    }

    /// Gives the range that begins at `start_page` another end, another cleaning and other over-provisioning; its mapping stays. Pages
    /// beyond a new end are gone.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_ftl_change(
        policy: *const WeftPolicy,
        mapping: u32,
        gc: u32,
        start_page: u64,
        pages: u64,
        over_provisioning_permille: u32,
    ) {
        let range = range_of(mapping, gc, start_page, pages, over_provisioning_permille)?;
        Ok(handle(policy, "policy")?.0.level.change(&range)?)
    }

    /// Removes the range that begins at `start_page`: its pages are gone, and its flash is free.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_ftl_remove(policy: *const WeftPolicy, start_page: u64) {
        Ok(handle(policy, "policy")?.0.level.remove(start_page)?)
    }

    /// Reads whole pages.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes.
    fn weft_ftl_read(policy: *const WeftPolicy, page: u64, data: *mut u8, data_bytes: usize) {
        let (policy, data) = (&handle(policy, "policy")?.0, bytes_mut(data, data_bytes)?);
        policy.run(|level, now| Ok(level.ftl_read(now, page, data)?.done))
    }

    /// Writes whole pages; data of different streams and lifetime groups is kept apart on the flash.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes.
    fn weft_ftl_write(
        policy: *const WeftPolicy,
        page: u64,
        data: *const u8,
        data_bytes: usize,
        stream: u16,
        lifetime_group: u16,
    ) {
        let (policy, data) = (&handle(policy, "policy")?.0, bytes(data, data_bytes)?);
        let tag = Tag { stream: StreamId(stream), group: LifetimeGroup(lifetime_group), ..Tag::default() };
        policy.run(|level, now| Ok(level.ftl_write(now, page, data, tag)?.done))
    }

    /// Writes whole pages with a tag, which they keep. Data of different streams and lifetime groups is kept apart on the flash.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes; `tag` can be read.
    fn weft_ftl_write_tagged(
        policy: *const WeftPolicy,
        page: u64,
        data: *const u8,
        data_bytes: usize,
        tag: *const WeftTag,
    ) {
        let (policy, data) = (&handle(policy, "policy")?.0, bytes(data, data_bytes)?);
        let tag = tag_at(tag)?;
        policy.run(|level, now| Ok(level.ftl_write(now, page, data, tag)?.done))
    }

    /// The tag that a page was written with.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_ftl_tag(policy: *const WeftPolicy, page: u64, out: *mut WeftTag) {
        let policy = &handle(policy, "policy")?.0;
        put(policy.level.tag_of(policy.now(), page)?.into(), out)
    }

    /// Forgets pages; they read as zeros. Durable after `weft_ftl_flush`. A block-mapped range erases units that are named as a whole.
    /// Of another unit it writes each page that is named as zeros, and may rewrite the unit first: that costs what writing
    /// them costs, and `WEFT_ENOSPC` can be the answer.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_ftl_trim(policy: *const WeftPolicy, page: u64, pages: u64) {
        handle(policy, "policy")?.0.run(|level, now| level.trim(now, page, pages))
    }

    /// Makes trims durable.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_ftl_flush(policy: *const WeftPolicy) {
        handle(policy, "policy")?.0.run(|level, now| level.flush(now))
    }
}

fn range_of(
    mapping: u32,
    gc: u32,
    start: u64,
    pages: u64,
    over_provisioning_permille: u32,
) -> Result<RangePolicy, Failure> {
    let mapping = match mapping {
        WEFT_FTL_PAGE => RangeMapping::Page,
        WEFT_FTL_BLOCK => RangeMapping::Block,
        other => return Err(bad(format!("mapping {other} is not known; use WEFT_FTL_*"))),
    };
    let gc = match gc {
        WEFT_GC_GREEDY => VictimPolicy::Greedy,
        WEFT_GC_FIFO => VictimPolicy::Fifo,
        WEFT_GC_LRU => VictimPolicy::Lru,
        WEFT_GC_COST_BENEFIT => VictimPolicy::CostBenefit,
        other => return Err(bad(format!("cleaning {other} is not known; use WEFT_GC_*"))),
    };
    Ok(RangePolicy { start, pages, mapping, gc, over_provisioning_permille })
}
