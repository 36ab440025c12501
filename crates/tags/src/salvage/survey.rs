//! What a damaged store says of itself: superblock, catalog, leaves of descriptors, as far as their checksums hold.

use super::report::SalvageReport;
use super::source::Source;
use crate::error::{Error, Result};
use crate::ids::HomeId;
use crate::layout::catalog::Catalog;
use crate::layout::leaves::{DESC_BYTES, LEAF_PAGES, LEAVES_MAX};
use crate::layout::superblock::{Blob, COPIES, Superblock};
use crate::pages::desc::{Desc, PageKind};
use crate::reads;
use crate::space::Run;
use rustc_hash::FxHashSet;
use std::convert::Infallible;

/// The most bytes of a catalog that is looked for elsewhere on the medium: it is read again from each block on.
const CATALOG_SEARCH_MAX: u64 = 1 << 20;

/// What a store says of itself.
pub(super) struct Survey {
    pub superblock: Superblock,
    /// The other copy cannot be read: it may have been of a later checkpoint.
    pub is_alone: bool,
    /// `None` when it cannot be read.
    pub catalog: Option<Catalog>,
    /// Pages of nodes that have committed ones, and pages of edge tables, in the order of their numbers. The block is 0 where it is
    /// another's or beyond the end.
    pub pages: Vec<(u32, Desc)>,
    /// Leaves that cannot be read.
    pub lost_leaves: Vec<u32>,
}

/// Looks at the superblocks, and at what the best of them leads to.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Version`]; [`Error::Damaged`] when nothing says where pages are.
pub(super) fn survey(source: &mut Source<'_>, report: &mut SalvageReport) -> Result<Survey> {
    let (superblock, is_alone, list) = read_list(source, report)?;
    let journal = Run { block: superblock.journal_block, blocks: superblock.journal_blocks };
    let lists = [superblock.leaves, superblock.catalog].into_iter().flat_map(|blob| blob.copies());
    for run in lists.chain([journal]) {
        (run.block..run.block.saturating_add(run.blocks)).take_while(|block| source.claim(*block)).count();
    }
    let catalog = read_catalog(source, superblock.catalog, report);
    let (pages, lost_leaves) = read_leaves(source, &list, report);
    report.lost_leaves = lost_leaves.len() as u64;
    Ok(Survey { superblock, is_alone, catalog, pages, lost_leaves })
}

/// The superblock that leads to a list of leaves, whether it is the only copy, and that list. Copies of two epochs lead to the same
/// state until the store is written again, but nothing says whether it was.
fn read_list(source: &Source<'_>, report: &mut SalvageReport) -> Result<(Superblock, bool, Vec<u8>)> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (copy, at) in reads::superblocks(source.medium)?.into_iter().zip(0..) {
        match copy {
            Ok(superblock) => found.push(superblock),
            Err(error) => {
                report.remark(format!("copy {at} of the superblock cannot be read: {}", what_of(&error)));
                errors.push(error);
            }
        }
    }
    let mut failure = errors.into_iter().max_by_key(|error| !matches!(error, Error::NotAStore { .. }));
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.epoch));
    for superblock in &found {
        if let Some(list) = reads::blob(source.medium, superblock.leaves) {
            if found.iter().any(|other| other.epoch > superblock.epoch) {
                report.fault("the checkpoint before the last is used: commits since then may be lost");
            }
            return Ok((*superblock, found.len() < COPIES as usize, list));
        }
        failure = None;
        report.remark(format!("the list of leaves at block {} cannot be read", superblock.leaves.block));
    }
    Err(match failure {
        Some(Error::Damaged { .. }) => Error::damaged(
            "both copies of the superblock: nothing else says which block is which page, where the journal is, or what the \
             secret of the hashes was",
        ),
        Some(error) => error,
        None => Error::damaged("the list of leaves: nothing else says which block is which page"),
    })
}

/// What is damaged, without the advice.
pub(super) fn what_of(error: &Error) -> String {
    match error {
        Error::Damaged { what } | Error::NotAStore { what } => what.clone(),
        other => other.to_string(),
    }
}

/// The catalog. It seldom changes from one checkpoint to the next, so a copy from before with the same checksum may still lie
/// somewhere.
fn read_catalog(source: &Source<'_>, blob: Blob, report: &mut SalvageReport) -> Option<Catalog> {
    if let Some(raw) = reads::blob(source.medium, blob) {
        return Catalog::decode(&raw).ok();
    }
    report.remark(format!("the catalog at block {} cannot be read", blob.block));
    let may_begin = |raw: &[u8]| Catalog::may_begin(raw, blob.bytes);
    let is_small = blob.bytes <= CATALOG_SEARCH_MAX;
    let (block, raw) = is_small.then(|| source.find(blob.bytes, blob.crc, may_begin)).flatten()?;
    let catalog = Catalog::decode(&raw).ok()?;
    catalog.homes.iter().find(|entry| entry.id == HomeId::FIRST)?;
    report.remark(format!(
        "the catalog of an earlier checkpoint, at block {block}, has the same checksum and is used"
    ));
    Some(catalog)
}

/// The descriptors of all leaves that can be read.
fn read_leaves(
    source: &mut Source<'_>,
    list: &[u8],
    report: &mut SalvageReport,
) -> (Vec<(u32, Desc)>, Vec<u32>) {
    let (mut leaves, mut seen, mut lost) = (Vec::new(), FxHashSet::default(), Vec::new());
    for (leaf, at) in reads::leaves_in(list) {
        let [block, second] = at.blocks;
        let claimed = at.blocks.map(|block| source.claim(block));
        if leaf >= LEAVES_MAX || !seen.insert(leaf) || claimed == [false; 2] {
            lost.push(leaf);
            report.remark(format!("leaf {leaf} of descriptors, at blocks {block} and {second}, cannot be"));
            continue;
        }
        leaves.push((leaf, at));
    }
    let mut pages = Vec::new();
    let Ok(()) =
        reads::each_leaf(source.medium, leaves, |leaf, at, raw| -> std::result::Result<(), Infallible> {
            let Some((_, raw)) = raw else {
                let [block, second] = at.blocks;
                lost.push(leaf);
                report.remark(format!(
                    "leaf {leaf} of descriptors, at blocks {block} and {second}, cannot be read"
                ));
                return Ok(());
            };
            for (page, raw) in (leaf * LEAF_PAGES..).zip(raw.chunks_exact(DESC_BYTES)) {
                match Desc::decode(raw, page) {
                    Ok(desc) if desc.kind == PageKind::Free || desc.is_left_over() => {}
                    Ok(desc) if desc.snode != 0 && desc.is_possible(page) => pages.push((page, desc)),
                    _ => {
                        report.lost_pages += 1;
                        report.remark(format!("page {page}: its descriptor does not make sense"));
                    }
                }
            }
            Ok(())
        });
    pages.sort_unstable_by_key(|(page, _)| *page);
    // A node that a transaction was making has further pages and no first one here.
    let mut run: Option<(u32, Desc)> = None;
    pages.retain(|(page, desc)| match desc.kind {
        PageKind::RunHead => {
            run = Some((*page, desc.clone()));
            true
        }
        PageKind::RunTail => run.as_ref().is_some_and(|(head, first)| {
            u64::from(*page - head) == desc.body[0]
                && desc.body[0] < first.body[0]
                && desc.snode == first.snode
        }),
        _ => true,
    });
    for (_, desc) in &mut pages {
        if !source.claim(desc.block) {
            desc.block = 0;
        }
    }
    (pages, lost)
}
