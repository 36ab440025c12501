//! Operations of a random sequence, and how they are drawn.

use proptest::prelude::*;
use weft_vfs::{FallocateMode, FileKind, XattrMode};

/// Directories that a sequence can name; 0 is the root.
pub(super) const DIR_SLOTS: u8 = 4;
/// Other inodes that a sequence can name.
pub(super) const FILE_SLOTS: u8 = 5;
/// Names that a sequence uses.
pub(super) const NAMES: u8 = 6;
/// Names of extended attributes that a sequence uses.
pub(super) const XATTRS: u8 = 3;

/// An inode by its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// What is in a directory slot; slot 0 is the root.
    Dir(u8),
    /// What is in a slot for everything else.
    File(u8),
}

/// Where in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offset {
    /// At this byte.
    At(u64),
    /// This many bytes before (negative) or after the end.
    End(i16),
}

/// Through which call data is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// `write`
    Buffered,
    /// `write_through`
    Through,
}

/// One operation. Numbers are slots, names and lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Op {
    Create { dir: Node, name: u8, kind: FileKind, into: u8, open: bool },
    CreateUnnamed { into: u8, linkable: bool },
    Lookup { dir: Node, name: u8, into: u8 },
    Link { node: Node, dir: Node, name: u8 },
    Unlink { dir: Node, name: u8 },
    Rmdir { dir: Node, name: u8 },
    Rename { from: Node, name: u8, to: Node, new_name: u8, no_replace: bool, exchange: bool },
    Readlink { node: Node },
    Parent { node: Node },
    Readdir { dir: Node, page: u8 },
    Open { node: Node },
    Release { node: Node },
    Read { node: Node, offset: Offset, len: u32 },
    Write { node: Node, offset: Offset, len: u32, fill: u8, flavour: Flavour },
    WriteBack { node: Node },
    Fsync { node: Node },
    Sync,
    Remount,
    Truncate { node: Node, size: Offset },
    Chmod { node: Node, perm: u16 },
    SetMtime { node: Node, seconds: u8 },
    Fallocate { node: Node, mode: FallocateMode, offset: u32, len: u32 },
    Seek { node: Node },
    Setxattr { node: Node, name: u8, len: u32, fill: u8, mode: XattrMode },
    Getxattr { node: Node, name: u8 },
    Removexattr { node: Node, name: u8 },
    SetTag { node: Node, stream: u8 },
}

/// Sequences of up to `ops_max` operations.
pub fn ops(ops_max: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..=ops_max)
}

/// Mostly a directory; now and then something that is none.
fn dir() -> impl Strategy<Value = Node> {
    prop_oneof![
        10 => Just(Node::Dir(0)),
        8 => Just(Node::Dir(1)),
        8 => (1..DIR_SLOTS).prop_map(Node::Dir),
        1 => (0..FILE_SLOTS).prop_map(Node::File),
    ]
}

/// Mostly a file, and mostly one of two, so that much happens to the same; now and then a directory.
fn file() -> impl Strategy<Value = Node> {
    prop_oneof![
        14 => Just(Node::File(0)),
        10 => Just(Node::File(1)),
        16 => (0..FILE_SLOTS).prop_map(Node::File),
        1 => (0..DIR_SLOTS).prop_map(Node::Dir),
    ]
}

/// The slot that a new inode goes to.
fn into() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(1u8), 0u8..8]
}

fn any_node() -> impl Strategy<Value = Node> {
    prop_oneof![(0..FILE_SLOTS).prop_map(Node::File), (0..DIR_SLOTS).prop_map(Node::Dir)]
}

/// Few names, so that they meet.
fn name() -> impl Strategy<Value = u8> {
    prop_oneof![2 => 0u8..3, 1 => 0..NAMES]
}

/// Bytes and sizes, dense around the edges of blocks.
fn position() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..70_000,
        3 => (0u64..17).prop_map(|block| block * 4096),
        2 => (1u64..17, 0u64..3).prop_map(|(block, by)| block * 4096 + by - 1),
        2 => 0u64..600,
    ]
}

fn offset() -> impl Strategy<Value = Offset> {
    prop_oneof![
        8 => position().prop_map(Offset::At),
        6 => Just(Offset::End(0)),
        2 => (-5000i16..5000).prop_map(Offset::End),
        // Far out, where 32 bits do not reach.
        1 => (0u64..10_000).prop_map(|by| Offset::At((5 << 30) + by)),
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 1u32..500,
        3 => 1u32..9000,
        2 => (1u32..9).prop_map(|blocks| blocks * 4096),
        2 => 1u32..70_000,
    ]
}

fn kind() -> impl Strategy<Value = FileKind> {
    prop_oneof![
        8 => Just(FileKind::File),
        5 => Just(FileKind::Directory),
        1 => Just(FileKind::Symlink),
        1 => Just(FileKind::Fifo),
    ]
}

fn fallocate_mode() -> impl Strategy<Value = FallocateMode> {
    use FallocateMode::*;
    prop_oneof![
        Just(Allocate),
        Just(KeepSize),
        Just(PunchHole),
        Just(ZeroRange { keep_size: false }),
        Just(ZeroRange { keep_size: true }),
        Just(CollapseRange),
        Just(InsertRange),
    ]
}

fn range() -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![
        2 => (0u32..17, 1u32..6).prop_map(|(block, blocks)| (block * 4096, blocks * 4096)),
        1 => (0u32..70_000, 1u32..20_000),
    ]
}

fn flavour() -> impl Strategy<Value = Flavour> {
    prop_oneof![2 => Just(Flavour::Buffered), 1 => Just(Flavour::Through)]
}

fn xattr_mode() -> impl Strategy<Value = XattrMode> {
    prop_oneof![3 => Just(XattrMode::Any), 1 => Just(XattrMode::Create), 1 => Just(XattrMode::Replace)]
}

fn op() -> impl Strategy<Value = Op> {
    let names = prop_oneof![
        30 => (dir(), name(), kind(), into(), any::<bool>())
            .prop_map(|(dir, name, kind, into, open)| Op::Create { dir, name, kind, into, open }),
        2 => (into(), any::<bool>()).prop_map(|(into, linkable)| Op::CreateUnnamed { into, linkable }),
        6 => (dir(), name(), into()).prop_map(|(dir, name, into)| Op::Lookup { dir, name, into }),
        8 => (file(), dir(), name()).prop_map(|(node, dir, name)| Op::Link { node, dir, name }),
        10 => (dir(), name()).prop_map(|(dir, name)| Op::Unlink { dir, name }),
        4 => (dir(), name()).prop_map(|(dir, name)| Op::Rmdir { dir, name }),
        14 => (dir(), name(), dir(), name(), 0u8..6).prop_map(|(from, name, to, new_name, flags)| {
            // Both at once are refused outright, which a property proves.
            Op::Rename { from, name, to, new_name, no_replace: flags == 4, exchange: flags == 5 }
        }),
        1 => any_node().prop_map(|node| Op::Readlink { node }),
        1 => any_node().prop_map(|node| Op::Parent { node }),
        3 => (dir(), 1u8..5).prop_map(|(dir, page)| Op::Readdir { dir, page }),
        4 => any_node().prop_map(|node| Op::Open { node }),
        6 => any_node().prop_map(|node| Op::Release { node }),
    ];
    let data = prop_oneof![
        24 => (file(), offset(), length(), any::<u8>(), flavour())
            .prop_map(|(node, offset, len, fill, flavour)| Op::Write { node, offset, len, fill, flavour }),
        5 => (file(), offset(), length()).prop_map(|(node, offset, len)| Op::Read { node, offset, len }),
        5 => (file(), offset()).prop_map(|(node, size)| Op::Truncate { node, size }),
        6 => (file(), fallocate_mode(), range())
            .prop_map(|(node, mode, (offset, len))| Op::Fallocate { node, mode, offset, len }),
        2 => file().prop_map(|node| Op::Seek { node }),
        3 => file().prop_map(|node| Op::WriteBack { node }),
        3 => any_node().prop_map(|node| Op::Fsync { node }),
        1 => Just(Op::Sync),
        2 => Just(Op::Remount),
    ];
    let attributes = prop_oneof![
        2 => (any_node(), 0u16..0o10000).prop_map(|(node, perm)| Op::Chmod { node, perm }),
        2 => (any_node(), any::<u8>()).prop_map(|(node, seconds)| Op::SetMtime { node, seconds }),
        4 => (any_node(), 0..XATTRS, 0u32..5000, any::<u8>(), xattr_mode())
            .prop_map(|(node, name, len, fill, mode)| Op::Setxattr { node, name, len, fill, mode }),
        1 => (any_node(), 0..XATTRS).prop_map(|(node, name)| Op::Getxattr { node, name }),
        2 => (any_node(), 0..XATTRS).prop_map(|(node, name)| Op::Removexattr { node, name }),
        1 => (file(), any::<u8>()).prop_map(|(node, stream)| Op::SetTag { node, stream }),
    ];
    prop_oneof![8 => names, 12 => data, 2 => attributes]
}
