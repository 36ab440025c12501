//! Salvage: copies the readable data of a damaged store to a new one.
//!
//! The damaged store is only read. Pages of nodes whose checksums hold come into the copy under their own numbers, so that ids,
//! which are persistent pointers, stay what they were. Edge tables are made anew from the cells that can be read, in-edges
//! are counted anew. Then the journal is replayed as far as it can be read, and what has lost its other end is mended:
//!
//! ```text
//! superblock -> list of leaves -> leaves -> pages of nodes  -> the same numbers
//!                                        -> pages of tables -> cells -> new tables      journal -> entry by entry
//! then: runs that lack pages, nodes without their body, edges without an end go; roots are made up; nodes that nothing
//! leads to are hung under their root; the places of lost nodes are held; counts are kept
//! ```
//!
//! Nothing is guessed: what no checksum covers is not copied. A checksum is below another up to the superblock, so what is lost is lost with
//! all below it. What leads to pages has two copies, one of them before all pages.

mod copy;
mod edges;
mod find;
mod guests;
mod hold;
mod journal;
mod known;
mod mend;
mod report;
mod source;
mod survey;
mod unread;
#[cfg(all(test, not(weft_shuttle)))]
#[allow(clippy::unwrap_used)]
mod whole_tests;

pub use report::SalvageReport;

use crate::error::Result;
use crate::ids::NodeType;
use crate::options::Options;
use crate::page_store::PageStore;
use copy::Copy;
use source::Source;

/// Where nodes hang that have lost what led to them: an edge of this type from the root of their s-node, by their id.
const FOUND: &str = "weft.salvage.found";
/// Where nodes hang that stand at the places of lost ones: likewise.
const HELD: &str = "weft.salvage.lost";
/// The type of nodes that stand at the places of lost ones.
const LOST: NodeType = NodeType(0x6c6f_7374);

/// Copies what can be read of a damaged store into a new store on an empty medium. Nodes keep their ids. The damaged store is not
/// changed. `progress` gets the bytes of the pages done and of all.
///
/// It takes some 250 bytes of memory for each page of the store and 40 for each node, beside the cache.
///
/// # Errors
/// [`Error::NotAStore`](crate::Error::NotAStore), [`Error::Version`](crate::Error::Version);
/// [`Error::Damaged`](crate::Error::Damaged) when both copies of the superblock, or of the list of leaves, cannot be read: then nothing says
/// where which page is. [`Error::Io`](crate::Error::Io), [`Error::Full`](crate::Error::Full) of the new medium.
pub fn salvage(
    source: &dyn PageStore,
    target: Box<dyn PageStore>,
    options: &Options,
    mut progress: impl FnMut(u64, u64),
) -> Result<SalvageReport> {
    options.check()?;
    let mut report = SalvageReport { complete: true, ..SalvageReport::default() };
    let mut source = Source::new(source);
    let survey = survey::survey(&mut source, &mut report)?;
    let mut copy = Copy::begin(&source, target, options, &survey, report)?;
    copy.take_pages(&survey, &mut progress)?;
    copy.take_edges(&survey, &mut progress)?;
    copy.replay(&survey)?;
    copy.mend()?;
    let Copy { store, mut report, .. } = copy;
    store.close()?;
    report.complete = !report.has_losses() && report.complete;
    Ok(report)
}
