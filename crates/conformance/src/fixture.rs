//! What properties are written with.

use weft_core::Ino;
use weft_vfs::{Attr, CreateArgs, FileKind, FileSystem, FsResult, NewNode, SetAttr, TimeSpec};

/// Asserts that an operation fails with exactly this variant.
macro_rules! assert_fails {
    ($operation:expr, $variant:pat) => {
        match $operation {
            Err($variant) => {}
            Err(other) => {
                panic!("{} must fail with {}, not {other:?}", stringify!($operation), stringify!($variant))
            }
            Ok(_) => panic!("{} must fail with {}", stringify!($operation), stringify!($variant)),
        }
    };
}
pub(super) use assert_fails;

/// Bytes of a block.
pub(super) const BLOCK: u64 = weft_core::BLOCK_BYTES as u64;
/// Owner and group of what properties create.
pub(super) const OWNER: u32 = 1000;

/// How to create a node that belongs to [`OWNER`].
pub(super) fn args(node: NewNode<'_>) -> CreateArgs<'_> {
    let perm = if node == NewNode::Directory { 0o755 } else { 0o644 };
    CreateArgs { uid: OWNER, gid: OWNER, ..CreateArgs::new(node, perm) }
}

/// Bytes that differ from position to position and from seed to seed, none of them zero.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 | 1
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Waits until the clock has moved on, so that a time that is set now differs from one that was set before.
pub(super) fn let_the_clock_move() {
    let before = TimeSpec::now();
    while TimeSpec::now() <= before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Leaves bytes that are not zeros wherever a core might take memory or blocks from again: in buffers that were stored
/// and in buffers that were dropped.
pub(super) fn soil(fs: &dyn FileSystem) {
    let soiled = fs.file_with("soil", &[0xee; 160_000]);
    fs.fsync(soiled).unwrap();
    fs.write(soiled, 5_000, &[0xdd; 100_000]).unwrap();
    fs.unlink(Ino::ROOT, b"soil").unwrap();
    let dropped = fs.file_with("soil", &[0xcc; 160_001]);
    fs.setattr(dropped, &SetAttr { size: Some(7), ..SetAttr::default() }).unwrap();
    fs.unlink(Ino::ROOT, b"soil").unwrap();
}

/// Short ways to say what every property says; they panic when the core fails.
pub(super) trait Fixture {
    fn make(&self, dir: Ino, name: &[u8], node: NewNode<'_>) -> Ino;
    /// An empty file in the root.
    fn file(&self, name: &str) -> Ino;
    /// A file in the root with this content.
    fn file_with(&self, name: &str, content: &[u8]) -> Ino;
    /// A directory in the root.
    fn dir(&self, name: &str) -> Ino;
    /// The whole content of a file, read with one call.
    fn content(&self, ino: Ino) -> Vec<u8>;
    /// Up to `len` bytes of a file.
    fn read_at(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8>;
    fn attr(&self, ino: Ino) -> Attr;
    /// Names in a directory, sorted.
    fn list(&self, dir: Ino) -> Vec<String>;
    /// Entries after a cookie, at most `limit`: name, inode, kind, cookie.
    fn entries(&self, dir: Ino, cookie: u64, limit: usize) -> Vec<(Vec<u8>, Ino, FileKind, u64)>;
    /// The inode that a name in the root leads to.
    fn ino(&self, name: &str) -> FsResult<Ino>;
}

impl Fixture for dyn FileSystem + '_ {
    fn make(&self, dir: Ino, name: &[u8], node: NewNode<'_>) -> Ino {
        self.create(dir, name, &args(node)).unwrap().ino
    }

    fn file(&self, name: &str) -> Ino {
        self.make(Ino::ROOT, name.as_bytes(), NewNode::File)
    }

    fn file_with(&self, name: &str, content: &[u8]) -> Ino {
        let ino = self.file(name);
        self.write(ino, 0, content).unwrap();
        ino
    }

    fn dir(&self, name: &str) -> Ino {
        self.make(Ino::ROOT, name.as_bytes(), NewNode::Directory)
    }

    fn content(&self, ino: Ino) -> Vec<u8> {
        let size = self.attr(ino).size as usize;
        // One byte more than there is: a read must stop at the end by itself.
        let content = self.read_at(ino, 0, size + 1);
        assert_eq!(content.len(), size, "a read stops at the size");
        content
    }

    fn read_at(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        // Not zeros: the core has to write the zeros of a hole.
        let mut out = vec![0xa5; len];
        let read = self.read(ino, offset, &mut out).unwrap();
        out.truncate(read);
        out
    }

    fn attr(&self, ino: Ino) -> Attr {
        self.getattr(ino).unwrap()
    }

    fn list(&self, dir: Ino) -> Vec<String> {
        let entries = self.entries(dir, 0, usize::MAX);
        let mut names: Vec<String> =
            entries.iter().map(|(name, ..)| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        names
    }

    fn entries(&self, dir: Ino, cookie: u64, limit: usize) -> Vec<(Vec<u8>, Ino, FileKind, u64)> {
        let mut out = Vec::new();
        self.readdir(dir, cookie, &mut |entry| {
            out.push((entry.name.to_vec(), entry.ino, entry.kind, entry.cookie));
            out.len() < limit
        })
        .unwrap();
        out
    }

    fn ino(&self, name: &str) -> FsResult<Ino> {
        self.lookup(Ino::ROOT, name.as_bytes()).map(|attr| attr.ino)
    }
}

/// Asserts that two contents are equal, and says where they are not.
#[track_caller]
pub(super) fn assert_same(got: &[u8], want: &[u8], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}: length");
    if let Some(at) = got.iter().zip(want).position(|(a, b)| a != b) {
        panic!("{what}: byte {at} is {:#04x}, not {:#04x}", got[at], want[at]);
    }
}
