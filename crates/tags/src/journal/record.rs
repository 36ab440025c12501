//! The entries of a commit record.
//!
//! Numbers that are near the one before are written as a difference of variable length, so that an edge of a
//! key-value store takes about ten bytes.

use crate::edges::EdgeChange;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId};
use crate::pages::desc::{Desc, PageKind};
use weft_core::codec::{Reader, Truncated, WriteFields, put};

const PAGE: u8 = 1;
const SLOTS: u8 = 2;
const BYTES: u8 = 3;
const SOURCE: u8 = 4;
const PUT: u8 = 5;
const REPLACE: u8 = 6;
const REMOVE: u8 = 7;
const COUNT: u8 = 8;
const FREE: u8 = 9;
const TYPE: u8 = 10;
const SNODE: u8 = 11;
const SNODE_GONE: u8 = 12;
const PATCHES: u8 = 13;
const TYPE_GONE: u8 = 14;
const NEXT_PAGE: u8 = 15;

/// Bytes of an entry for a page.
pub(crate) const PAGE_ENTRY_BYTES: usize = 56;
/// Bytes of one for a page that follows the one before in its node and on the medium.
pub(crate) const NEXT_PAGE_BYTES: usize = 5;

/// What the page behind a page of a node is, if it lies in the block behind.
fn next_page(page: u32, desc: &Desc) -> (u32, Desc) {
    let at = if desc.kind == PageKind::RunHead { 0 } else { desc.body[0] };
    let (block, body) = (desc.block.wrapping_add(1), [at.wrapping_add(1), 0, 0, 0]);
    (
        page.wrapping_add(1),
        Desc { kind: PageKind::RunTail, snode: desc.snode, block, body, ..Desc::default() },
    )
}

/// One change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The page was written whole to a block; the descriptor is the whole truth about it.
    Page { page: u32, desc: Desc },
    /// Slots of a page, from `first` on, were filled with `bytes`.
    Slots { page: u32, snode: HomeId, class: u8, first: u8, bytes: &'a [u8] },
    /// The bytes from `node` on, its header included, became these.
    Bytes { node: NodeId, bytes: &'a [u8] },
    /// Parts of the node's data changed, one after the other.
    Patches { node: NodeId, patches: &'a [u8] },
    /// An edge; 0 stands for no destination.
    Edge(EdgeChange),
    /// The in-edges of a node became so many, which is not 1 or was not.
    Count { node: NodeId, count: u64 },
    /// The node is gone.
    Free { node: NodeId },
    /// The next edge type.
    Type { form: u8, name: &'a [u8] },
    /// An edge type is gone.
    TypeGone { etype: EdgeType },
    /// A new s-node and its root, which the record makes after it.
    Snode { root: NodeId },
    /// An s-node is gone, with its root and the edges of it.
    SnodeGone { snode: HomeId },
}

/// Puts the entries of a record together.
#[derive(Default)]
pub(crate) struct RecordWriter {
    pub(crate) bytes: Vec<u8>,
    source: Option<(NodeId, EdgeType, InfoForm)>,
    last: u64,
    /// The page that could follow the last one.
    next: Option<(u32, Desc)>,
}

/// The most bytes of an entry without a byte string.
const SMALL_ENTRY_BYTES: usize = 32;

/// Appends a number of variable length: seven bits a byte, those behind which more follow with their upper bit set.
#[inline]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn varint(r: &mut Reader<'_>) -> std::result::Result<u64, Truncated> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(value)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl RecordWriter {
    #[inline]
    fn put_node(&mut self, node: NodeId) {
        // Ids are multiples of 8, but for none, so three bits of the difference need not be written.
        let difference = (node.0 / 8).wrapping_sub(self.last) as i64;
        self.last = node.0 / 8;
        put_varint(&mut self.bytes, zigzag(difference));
    }

    pub(crate) fn page(&mut self, page: u32, desc: &Desc) {
        let follows = self.next.take().is_some_and(|(number, mut next)| {
            next.crc = desc.crc;
            (number, &next) == (page, desc)
        });
        if desc.kind != PageKind::Slab {
            self.next = Some(next_page(page, desc));
        }
        if follows {
            return put(&mut self.bytes, &[&NEXT_PAGE, &desc.crc]);
        }
        put(&mut self.bytes, &[&PAGE, &page]);
        desc.encode(&mut self.bytes);
        // The last 16 bytes of a descriptor are spare.
        self.bytes.truncate(self.bytes.len() - 16);
    }

    pub(crate) fn slots(&mut self, page: u32, snode: HomeId, class: u8, first: u8, bytes: &[u8]) {
        put(&mut self.bytes, &[&SLOTS, &page, &snode.0, &class, &first, &bytes]);
    }

    pub(crate) fn bytes(&mut self, node: NodeId, bytes: &[u8]) {
        self.bytes.put_u8(BYTES);
        self.put_node(node);
        self.bytes.put_string(bytes);
    }

    pub(crate) fn patches(&mut self, node: NodeId, patches: &[u8]) {
        self.bytes.put_u8(PATCHES);
        self.put_node(node);
        self.bytes.put_string(patches);
    }

    #[inline]
    pub(crate) fn edge(&mut self, change: &EdgeChange) {
        let EdgeChange { source, etype, form, key, old, new } = *change;
        if self.source != Some((source, etype, form)) {
            put(&mut self.bytes, &[&SOURCE, &source.0, &etype.0, &(form as u8)]);
            self.source = Some((source, etype, form));
        }
        self.bytes.reserve(SMALL_ENTRY_BYTES);
        self.bytes.put_u8(match (old.0, new.0) {
            (0, _) => PUT,
            (_, 0) => REMOVE,
            _ => REPLACE,
        });
        self.bytes.put_u64(key);
        if old.0 != 0 {
            self.put_node(old);
        }
        if new.0 != 0 {
            self.put_node(new);
        }
    }

    pub(crate) fn count(&mut self, node: NodeId, count: u64) {
        self.bytes.put_u8(COUNT);
        self.put_node(node);
        put_varint(&mut self.bytes, count);
    }

    #[inline]
    pub(crate) fn free(&mut self, node: NodeId) {
        self.bytes.put_u8(FREE);
        self.put_node(node);
    }

    pub(crate) fn edge_type(&mut self, form: u8, name: &str) {
        put(&mut self.bytes, &[&TYPE, &form, &name.as_bytes()]);
    }

    pub(crate) fn edge_type_gone(&mut self, etype: EdgeType) {
        put(&mut self.bytes, &[&TYPE_GONE, &etype.0]);
    }

    pub(crate) fn snode(&mut self, root: NodeId) {
        put(&mut self.bytes, &[&SNODE, &root.0]);
    }

    pub(crate) fn snode_gone(&mut self, snode: HomeId) {
        put(&mut self.bytes, &[&SNODE_GONE, &snode.0]);
    }
}

/// Reads the entries of a record, in order.
pub(crate) struct RecordReader<'a> {
    reader: Reader<'a>,
    source: (NodeId, EdgeType, InfoForm),
    last: u64,
    next: Option<(u32, Desc)>,
}

impl<'a> RecordReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> RecordReader<'a> {
        RecordReader {
            reader: Reader::new(bytes),
            source: (NodeId(0), EdgeType(0), InfoForm::Number),
            last: 0,
            next: None,
        }
    }

    fn node(&mut self) -> std::result::Result<NodeId, Truncated> {
        let difference = unzigzag(varint(&mut self.reader)?);
        self.last = self.last.wrapping_add(difference as u64);
        Ok(NodeId(self.last.wrapping_mul(8)))
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the record's checksum holds, so a program wrote this wrongly.
    pub(crate) fn next(&mut self) -> Result<Option<Entry<'a>>> {
        if self.reader.remaining() == 0 {
            return Ok(None);
        }
        match self.read() {
            Ok(Some(entry)) => Ok(Some(entry)),
            Ok(None) => Err(Error::damaged("journal: an entry of unknown kind")),
            Err(error) => Err(Error::damaged(format!("journal: {error}"))),
        }
    }

    fn read(&mut self) -> std::result::Result<Option<Entry<'a>>, Truncated> {
        let mut tag = self.reader.u8()?;
        if tag == SOURCE {
            let (source, etype) = (NodeId(self.reader.u64()?), EdgeType(self.reader.u32()?));
            let Some(form) = InfoForm::from_u8(self.reader.u8()?) else { return Ok(None) };
            self.source = (source, etype, form);
            tag = self.reader.u8()?;
        }
        Ok(Some(match tag {
            PAGE => {
                let page = self.reader.u32()?;
                let Ok(desc) = Desc::decode(self.reader.bytes(48)?, page) else { return Ok(None) };
                if matches!(desc.kind, PageKind::Free | PageKind::Table) {
                    return Ok(None);
                }
                self.next = (desc.kind != PageKind::Slab).then(|| next_page(page, &desc));
                Entry::Page { page, desc }
            }
            NEXT_PAGE => {
                let crc = self.reader.u32()?;
                let Some((page, mut desc)) = self.next.take() else { return Ok(None) };
                desc.crc = crc;
                self.next = Some(next_page(page, &desc));
                Entry::Page { page, desc }
            }
            SLOTS => Entry::Slots {
                page: self.reader.u32()?,
                snode: HomeId(self.reader.u16()?),
                class: self.reader.u8()?,
                first: self.reader.u8()?,
                bytes: self.reader.string()?,
            },
            BYTES => Entry::Bytes { node: self.node()?, bytes: self.reader.string()? },
            PATCHES => Entry::Patches { node: self.node()?, patches: self.reader.string()? },
            PUT | REPLACE | REMOVE => {
                let key = self.reader.u64()?;
                let old = if tag == PUT { NodeId(0) } else { self.node()? };
                let new = if tag == REMOVE { NodeId(0) } else { self.node()? };
                let (source, etype, form) = self.source;
                Entry::Edge(EdgeChange { source, etype, form, key, old, new })
            }
            COUNT => Entry::Count { node: self.node()?, count: varint(&mut self.reader)? },
            FREE => Entry::Free { node: self.node()? },
            TYPE => Entry::Type { form: self.reader.u8()?, name: self.reader.string()? },
            TYPE_GONE => Entry::TypeGone { etype: EdgeType(self.reader.u32()?) },
            SNODE => Entry::Snode { root: NodeId(self.reader.u64()?) },
            SNODE_GONE => Entry::SnodeGone { snode: HomeId(self.reader.u16()?) },
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_variable_length_has_seven_bits_a_byte() {
        let edges = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for value in edges.chain([u64::MAX, 0x0123_4567_89ab_cdef, 0xdead_beef]) {
            let (mut wanted, mut rest) = (vec![7], value);
            while rest >= 0x80 {
                wanted.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            wanted.push(rest as u8);
            let mut found = vec![7];
            put_varint(&mut found, value);
            assert_eq!(found, wanted, "{value:#x}");
            assert_eq!(varint(&mut Reader::new(&found[1..])).unwrap(), value);
        }
    }

    #[test]
    fn entries_come_back_in_order_and_a_cut_record_is_an_error() {
        let (a, b) = (NodeId::at(HomeId(1), 5, 128), NodeId::at(HomeId(2), 900_000, 256));
        let mut desc = Desc::slab(HomeId(1), 3);
        (desc.block, desc.crc, desc.body[0]) = (77, 8, 5);
        let none = NodeId(0);
        // A node of three pages, of which the last lies elsewhere.
        let head =
            Desc { kind: PageKind::RunHead, snode: 1, block: 40, body: [3, 1, 0, 4], ..Desc::default() };
        let tail = |block, at| {
            let body = [at, 0, 0, 0];
            Desc { kind: PageKind::RunTail, snode: 1, crc: 9, block, body, ..Desc::default() }
        };
        let mut w = RecordWriter::default();
        w.page(20, &head);
        w.page(21, &tail(41, 1));
        assert_eq!(w.bytes.len(), 53 + NEXT_PAGE_BYTES);
        w.page(22, &tail(50, 2));
        w.edge_type(1, "next");
        w.edge_type_gone(EdgeType(7));
        w.snode(a);
        w.page(9, &desc);
        w.slots(10, HomeId(1), 2, 4, &[1, 2, 3]);
        let change = |source, form, key, old, new| {
            let etype = EdgeType(3);
            EdgeChange { source, etype, form, key, old, new }
        };
        let edges = [
            change(a, InfoForm::Key, u64::MAX, none, b),
            change(a, InfoForm::Key, 4, b, a),
            change(b, InfoForm::Number, 4, a, none),
        ];
        edges.iter().for_each(|edge| w.edge(edge));
        w.bytes(b, b"xyz");
        w.patches(a, b"pq");
        w.count(a, 300);
        w.free(b);
        w.snode_gone(HomeId(2));
        let mut r = RecordReader::new(&w.bytes);
        let wanted = [
            Entry::Page { page: 20, desc: head },
            Entry::Page { page: 21, desc: tail(41, 1) },
            Entry::Page { page: 22, desc: tail(50, 2) },
            Entry::Type { form: 1, name: b"next" },
            Entry::TypeGone { etype: EdgeType(7) },
            Entry::Snode { root: a },
            Entry::Page { page: 9, desc },
            Entry::Slots { page: 10, snode: HomeId(1), class: 2, first: 4, bytes: &[1, 2, 3] },
            Entry::Edge(edges[0]),
            Entry::Edge(edges[1]),
            Entry::Edge(edges[2]),
            Entry::Bytes { node: b, bytes: b"xyz" },
            Entry::Patches { node: a, patches: b"pq" },
            Entry::Count { node: a, count: 300 },
            Entry::Free { node: b },
            Entry::SnodeGone { snode: HomeId(2) },
        ];
        for entry in wanted {
            assert_eq!(r.next().unwrap(), Some(entry));
        }
        assert_eq!(r.next().unwrap(), None);
        let mut cut = RecordReader::new(&w.bytes[..w.bytes.len() - 1]);
        assert!((0..16).any(|_| cut.next().is_err()));
    }
}
