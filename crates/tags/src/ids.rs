//! Names of what the store holds: nodes, s-nodes, edge types, pages.

use std::fmt;

/// Bytes of a page, the unit in which the store reads and writes.
pub const PAGE_BYTES: usize = weft_core::BLOCK_BYTES;

/// Bits of a node's id that hold the position in the store; the bits above hold the home.
pub const ADDRESS_BITS: u32 = 48;

/// Pages for nodes: numbers below this. Pages of edge tables have the numbers from here on, so that a replay, which
/// may split tables in another order, never takes a number that the journal gives to a node.
pub const DATA_PAGES_MAX: u32 = 1 << 31;

/// An s-node: the group that a node belongs to, with its owner and permissions.
///
/// The low 16 bits are its home. The bits above, 32 of the 48, are 0 for an s-node that has a home of its own; those that share
/// one are numbered by them, and no number is given out twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SnodeId(pub u64);

/// Bits of an s-node's id that are its home.
const HOME_BITS: u32 = 16;

impl SnodeId {
    /// The s-node that every store is made with.
    pub const FIRST: SnodeId = SnodeId(1);

    /// The s-node of this number in a home that is shared.
    pub(crate) fn guest(home: HomeId, number: u32) -> SnodeId {
        SnodeId(u64::from(number) << HOME_BITS | u64::from(home.0))
    }

    /// Where its nodes lie; `None` for a number that no store hands out.
    #[inline]
    pub(crate) fn home(self) -> Option<HomeId> {
        let home = HomeId(self.0 as u16);
        let is_one = self.0 >> (HOME_BITS + u32::BITS) == 0 && home.is_shared() == (self.number() > 0);
        is_one.then_some(home)
    }

    /// Its number among those that share a home; 0 for one that has a home of its own.
    pub(crate) fn number(self) -> u32 {
        (self.0 >> HOME_BITS) as u32
    }
}

/// What a caller may do with the nodes of an s-node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Permission {
    /// Read nodes and follow edges.
    Read = 0,
    /// Make, change and delete nodes, and edges out of them; lead edges to them from other s-nodes.
    Write = 1,
    /// Change the s-node's tags and permissions, and delete it.
    Control = 2,
}

impl Permission {
    /// All permissions.
    pub const ALL: [Permission; 3] = [Permission::Read, Permission::Write, Permission::Control];

    /// The permission as a word of a message.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Permission::Read => "read",
            Permission::Write => "write",
            Permission::Control => "control",
        }
    }
}

/// A home: pages and edge tables of their own, under one lock. It is that of one s-node, or shared by many that hold little.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HomeId(pub u16);

impl HomeId {
    /// That of [`SnodeId::FIRST`].
    pub(crate) const FIRST: HomeId = HomeId(SnodeId::FIRST.0 as u16);
    /// The first of those that are shared.
    pub(crate) const FIRST_SHARED: HomeId = HomeId(1 << 15);

    /// Whether s-nodes share it.
    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        self >= HomeId::FIRST_SHARED
    }
}

impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_shared() { 'h' } else { 's' }, self.0)
    }
}

impl From<HomeId> for SnodeId {
    fn from(home: HomeId) -> SnodeId {
        SnodeId(u64::from(home.0))
    }
}

impl fmt::Display for SnodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// A node: a persistent pointer. The high 16 bits are the home that its s-node has or shares, the low 48 its byte position in the
/// single-level store, which never changes while the node lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The id of the node at `offset` in `page`.
    pub(crate) fn at(home: HomeId, page: u32, offset: usize) -> NodeId {
        debug_assert!(offset < PAGE_BYTES && page < DATA_PAGES_MAX);
        NodeId((u64::from(home.0) << ADDRESS_BITS) | (u64::from(page) << 12) | offset as u64)
    }

    /// Where the node lies. [`Store::snode_of`](crate::Store::snode_of) says to which s-node it belongs.
    pub fn home(self) -> HomeId {
        HomeId((self.0 >> ADDRESS_BITS) as u16)
    }

    /// The page the node begins in; `None` for a number that no store hands out.
    pub(crate) fn page(self) -> Option<u32> {
        let page = (self.0 & ((1 << ADDRESS_BITS) - 1)) >> 12;
        (page < u64::from(DATA_PAGES_MAX)).then_some(page as u32)
    }

    /// The byte offset in its page.
    pub(crate) fn offset(self) -> usize {
        (self.0 & 0xfff) as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.home(), self.0 & ((1 << ADDRESS_BITS) - 1))
    }
}

/// The type of a node's data, chosen by the program and checked at each access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeType(pub u32);

impl NodeType {
    /// The bit of types whose data begins with a key: its length as a `u16`, then the key. Edges with
    /// [`Info::Key`] lead to nodes of such types only, and the key stays as long as the node.
    pub const KEYED: u32 = 1 << 31;
    /// The type of the roots of s-nodes, whose data is the s-node's tags. Programs make no nodes of it.
    pub const ROOT: NodeType = NodeType(0);

    /// Whether data of this type begins with a key.
    pub fn is_keyed(self) -> bool {
        self.0 & NodeType::KEYED != 0
    }
}

/// An edge type, registered by name in the whole store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EdgeType(pub u32);

impl EdgeType {
    /// The type of the edges by which an s-node's permissions are kept: from its root to itself.
    pub(crate) const PERMISSION: EdgeType = EdgeType(u32::MAX);
    /// The type of the edge from a node that has moved to where its data is.
    pub(crate) const BODY: EdgeType = EdgeType(u32::MAX - 1);
    /// The type of the edges from the root of a shared home to those of its s-nodes, by their numbers.
    pub(crate) const GUEST: EdgeType = EdgeType(u32::MAX - 2);
    /// The type of the edge from a node to the root of its s-node, where that shares its home.
    pub(crate) const OWNER: EdgeType = EdgeType(u32::MAX - 3);
    /// The first of the types that the store keeps for itself.
    const FIRST_RESERVED: u32 = u32::MAX - 15;
    /// The most types that programs can register: all with the longest names, they fit the catalog.
    pub(crate) const REGISTERED_MAX: usize = 1 << 21;

    /// Whether edges of this type do not keep the node that they go out from.
    #[inline]
    pub(crate) fn keeps_nothing(self) -> bool {
        self == EdgeType::BODY || self == EdgeType::OWNER
    }

    /// Whether edges of this type are the store's own, which programs do not see as edges.
    pub(crate) fn is_reserved(self) -> bool {
        self.0 >= EdgeType::FIRST_RESERVED
    }
}

/// What tells the edges of one type out of one node apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum InfoForm {
    /// A number: an enumerator, an index, or 0 where one edge is enough.
    Number = 0,
    /// Bytes that the destination's data begins with, after their length as a `u16`: the key of a record, which is
    /// then stored once.
    Key = 1,
}

impl InfoForm {
    /// The form with this number on the medium.
    pub(crate) fn from_u8(value: u8) -> Option<InfoForm> {
        [InfoForm::Number, InfoForm::Key].into_iter().find(|form| *form as u8 == value)
    }
}

/// The info of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Info<'a> {
    /// For types of [`InfoForm::Number`].
    Number(u64),
    /// For types of [`InfoForm::Key`].
    Key(&'a [u8]),
}
