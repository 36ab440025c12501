//! An s-node's share of the store: its slabs, its edge table, its in-edge counts.
//!
//! Everything of it is under one lock, and its pages are touched by nobody else, so transactions on different s-nodes
//! have nothing in common but the allocators of blocks and numbers and the journal.

use crate::edges::table::{NewPages, Place, Position, Table};
use crate::edges::{COUNTS, EdgeTable};
use crate::error::{Error, Halt, Result, Step};
use crate::hash::Secret;
use crate::ids::{DATA_PAGES_MAX, NodeId, PAGE_BYTES, SnodeId};
use crate::layout::node::{CLASSES, NODE_HEADER, read_header, slot_bytes, slots_of};
use crate::pages::access::{PageWriter, Pages, Token};
use crate::pages::desc::{Desc, PageKind, slot_is_set};
use crate::pages::numbers::PageNumbers;
use crate::pages::table::PageTable;
use crate::slab::Slab;
use parking_lot::Mutex;

/// The share of one s-node.
pub(crate) struct Partition {
    pub(crate) snode: SnodeId,
    pub(crate) root: NodeId,
    pub(crate) token: Token,
    pub(crate) contents: Contents,
}

/// What of it is in memory beside pages.
pub(crate) struct Contents {
    pub(crate) edges: EdgeTable,
    pub(crate) counts: Table<2>,
    pub(crate) slabs: [Slab; CLASSES],
    /// Committed nodes, the root included.
    pub(crate) nodes: u64,
}

/// Where numbers for pages of edge tables come from.
pub(crate) struct TableNumbers<'a>(pub(crate) &'a Mutex<PageNumbers>);

impl NewPages for TableNumbers<'_> {
    fn take_number(&mut self) -> Result<u32> {
        self.0.lock().take(1).ok_or(Error::Full { what: "page numbers" })
    }

    fn give_back(&mut self, page: u32) {
        self.0.lock().give_back(page, 1);
    }
}

impl Partition {
    pub(crate) fn new(snode: SnodeId, root: NodeId, secret: Secret) -> Partition {
        Partition { snode, root, token: Token::of(snode), contents: Contents::new(secret) }
    }
}

impl Contents {
    pub(crate) fn new(secret: Secret) -> Contents {
        Contents {
            edges: EdgeTable::new(secret),
            counts: Table::new(COUNTS, Position::Number(secret)),
            slabs: std::array::from_fn(|_| Slab::default()),
            nodes: 0,
        }
    }

    /// All pages of edge tables.
    pub(crate) fn table_pages(&self) -> Vec<u32> {
        let bundles = self.edges.bundles.values().flat_map(Table::pages);
        self.edges.main.pages().into_iter().chain(self.counts.pages()).chain(bundles).collect()
    }

    /// The in-edges of a committed node; the root of an s-node counts as held once by the s-node.
    ///
    /// Nearly every node has one in-edge, so only other counts are kept, plus one so that none is a count too.
    pub(crate) fn count_of(&self, pages: &impl Pages, node: NodeId) -> Step<u64> {
        Ok(self.counts.find(pages, node.0, |_, cell| Ok(Some(cell[1] - 1)))?.unwrap_or(1))
    }

    /// Keeps a count.
    pub(crate) fn set_count(
        &mut self,
        pages: &mut PageWriter<'_>,
        new: &mut impl NewPages,
        node: NodeId,
        count: u64,
    ) -> Step<()> {
        let place: Option<Place> = self.counts.find(pages, node.0, |place, _| Ok(Some(place)))?;
        match (place, count) {
            (None, 1) => Ok(()),
            (Some(place), 1) => self.counts.remove(pages, place),
            (Some(place), _) => self.counts.replace(pages, place, [node.0, count + 1]),
            (None, _) => {
                while let Some(page) = self.counts.is_full(pages, node.0)? {
                    self.counts.split(pages, new, page)?;
                }
                self.counts.insert(pages, new, [node.0, count + 1])
            }
        }
    }
}

/// Where a node is and how much room it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePlace {
    pub page: u32,
    pub offset: usize,
    /// Bytes from the header on.
    pub room: usize,
    /// The slot, for a node in a slab.
    pub slot: Option<usize>,
}

/// Whether only committed nodes are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Committed,
    /// Also those that a transaction has made and not committed: for that transaction.
    Reserved,
}

/// Finds a node by its id; a number that is no node's is refused.
pub(crate) fn find_node(table: &PageTable, node: NodeId, which: Which) -> Result<NodePlace> {
    let absent = || Error::NoSuchNode(node);
    let page = node.page().ok_or_else(absent)?;
    let offset = node.offset();
    let desc = table.desc(page).ok_or_else(absent)?.lock();
    if desc.snode != node.snode().0 {
        return Err(absent());
    }
    match desc.kind {
        PageKind::Slab => {
            let bytes = slot_bytes(desc.class).ok_or_else(absent)?;
            let slot = offset / bytes;
            let slots = if which == Which::Committed { &desc.body } else { &desc.taken };
            if !offset.is_multiple_of(bytes) || slot >= slots_of(bytes) || !slot_is_set(slots, slot) {
                return Err(absent());
            }
            Ok(NodePlace { page, offset, room: bytes, slot: Some(slot) })
        }
        PageKind::RunHead if offset == 0 && (which == Which::Reserved || desc.body[1] == 1) => {
            Ok(NodePlace { page, offset, room: desc.body[0] as usize * PAGE_BYTES, slot: None })
        }
        _ => Err(absent()),
    }
}

/// The type of a node and the length of its data.
pub(crate) fn node_header(pages: &impl Pages, node: NodeId, place: NodePlace) -> Step<(u32, usize)> {
    let (kind, len) = read_header(&pages.bytes(place.page)?[place.offset..]);
    if len + NODE_HEADER > place.room {
        return Err(Halt::Failed(Error::damaged(format!(
            "node {node}: a length of {len} bytes in {}",
            place.room
        ))));
    }
    Ok((kind, len))
}

/// Calls `visit` with the pieces of `len` bytes of a node's data, from its beginning.
pub(crate) fn visit_data<'p>(
    pages: &'p impl Pages,
    place: NodePlace,
    len: usize,
    mut visit: impl FnMut(&'p [u8]),
) -> Step<()> {
    let max = pages.step_pages() * PAGE_BYTES;
    if len > max {
        // Its pages would drive each other out of the cache for ever.
        let (bytes, max) = (len as u64, max as u64);
        return Err(Error::TooLarge { what: "a node to be read with this cache", bytes, max }.into());
    }
    let (mut page, mut at, mut left) = (place.page, place.offset + NODE_HEADER, len);
    while left > 0 {
        let take = left.min(PAGE_BYTES - at);
        visit(&pages.bytes(page)?[at..at + take]);
        left -= take;
        (page, at) = (page + 1, 0);
    }
    Ok(())
}

/// Whether a node's data begins with the length of `key` and `key`. The node is the destination of an edge, so it
/// exists.
#[inline]
pub(crate) fn begins_with_key(pages: &impl Pages, table: &PageTable, node: NodeId, key: &[u8]) -> Step<bool> {
    let Some(page) = node.page() else { return Ok(false) };
    let (at, wanted) = (node.offset() + NODE_HEADER, key.len() + 2);
    let raw = pages.bytes(page)?;
    // Nearly always all of it lies in one page; the header's length says whether it is data at all.
    if let Some(data) = raw.get(at..at + wanted) {
        let (_, len) = read_header(&raw[node.offset()..]);
        return Ok(len >= wanted && data[..2] == (key.len() as u16).to_le_bytes() && data[2..] == *key);
    }
    let place = find_node(table, node, Which::Reserved)?;
    let (_, len) = node_header(pages, node, place)?;
    if len < wanted {
        return Ok(false);
    }
    let mut data = Vec::with_capacity(wanted);
    visit_data(pages, place, wanted, |piece| data.extend_from_slice(piece))?;
    Ok(data[..2] == (key.len() as u16).to_le_bytes() && data[2..] == *key)
}

/// Whether a page number is one for nodes.
pub(crate) fn is_data_page(page: u32) -> bool {
    page < DATA_PAGES_MAX
}

/// The pages of a run, from its head's descriptor.
pub(crate) fn run_of(desc: &Desc) -> u32 {
    desc.body[0] as u32
}
