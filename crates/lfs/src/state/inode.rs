//! An inode in memory.

use super::block_set::BlockSet;
use super::directory::Directory;
use super::extent_map::ExtentMap;
use super::rarely::{Nothing, Rarely};
use crate::alloc::space::charge;
use crate::state::dirty::DirtyMap;
use std::collections::BTreeMap;
use weft_core::{BLOCK_BYTES, Ino, Tag, TagFlags};
use weft_vfs::{Attr, FLAGS_XATTR, FileKind, InodeFlags, Marks, TimeSpec};

/// What an inode holds.
#[derive(Debug)]
pub enum Body {
    /// A file's map.
    File(ExtentMap),
    /// A directory's entries.
    Directory(Box<Directory>),
    /// A symlink's target.
    Symlink(Box<[u8]>),
    /// Nothing: fifo, socket, device.
    Special,
}

/// Extended attributes, by name.
pub type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

impl Nothing for Xattrs {
    fn nothing() -> &'static Xattrs {
        static NOTHING: Xattrs = BTreeMap::new();
        &NOTHING
    }

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

/// An inode: what is durable of it, and (last) what only memory has.
#[derive(Debug)]
pub struct Inode {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u64,
    /// Last access.
    pub atime: i64,
    /// Last change of the data.
    pub mtime: i64,
    /// Last change of the inode.
    pub ctime: i64,
    /// Creation.
    pub btime: i64,
    /// Size as programs see it.
    pub size: u64,
    /// Size as the journal has it: never beyond data that the device does not have.
    pub disk_size: u64,
    /// The frame that tells, or will tell, of its last truncation to nothing; 0 once content after that was stored in order.
    pub emptied_in: u64,
    /// The tag of its data.
    pub tag: Tag,
    /// The volume's byte clock when its content began.
    pub born_at: u64,
    /// What it holds.
    pub body: Body,
    /// Extended attributes.
    pub xattrs: Rarely<Xattrs>,
    /// Space that its mapped pieces and reserved blocks are charged, in bytes.
    pub charged: u64,
    /// Blocks that `fallocate` promised room for and that nothing is mapped to: charged whole, holes to readers.
    pub reserved: Rarely<BlockSet>,

    /// Open references.
    pub opens: u32,
    /// Made without a name and not given one yet: it may get one.
    pub linkable: bool,
    /// Whether the observer wants to hear of it.
    pub watched: bool,
    /// Buffered blocks.
    pub dirty: Rarely<DirtyMap>,
}

impl Inode {
    /// The class that its flags ask for.
    pub fn flags_of_tag(&self) -> TagFlags {
        self.xattrs.get(FLAGS_XATTR).map(|value| InodeFlags::from_value(value).of_tag()).unwrap_or_default()
    }

    /// Whether what it gives up is to be erased.
    pub fn is_secure(&self) -> bool {
        self.tag.flags.contains(TagFlags::SECURE_DELETE)
    }

    /// Notes that the journal has the data up to this size, written at this time.
    pub fn note_settled(&mut self, size: u64, mtime: i64) {
        (self.disk_size, self.mtime, self.ctime) = (size, mtime, self.ctime.max(mtime));
    }

    /// The map of a file.
    pub fn map(&self) -> Option<&ExtentMap> {
        match &self.body {
            Body::File(map) => Some(map),
            _ => None,
        }
    }

    /// The entries of a directory.
    pub fn directory(&self) -> Option<&Directory> {
        match &self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// The directory, to be changed, when it is one.
    pub fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// Whether a block is mapped.
    pub fn is_mapped(&self, block: u64) -> bool {
        self.map().is_some_and(|map| map.get(block).is_some())
    }

    /// Whether a block is mapped or buffered; otherwise it is zeros.
    pub fn holds(&self, block: u64) -> bool {
        self.is_mapped(block) || self.dirty.blocks.contains_key(&block)
    }

    /// Space that a block is charged beside what is buffered of it; 0 for a hole.
    pub fn charge_of(&self, block: u64) -> u32 {
        match self.map().and_then(|map| map.get(block)) {
            Some(run) => charge(run.len),
            None if self.reserved.contains(block) => BLOCK_BYTES as u32,
            None => 0,
        }
    }

    /// Bytes of a buffered block that are to be stored. A block that was promised or given room for all of it keeps that,
    /// or else a file that grows within the room that it was promised could find none.
    pub fn len_to_store(&self, block: u64) -> usize {
        let len = self.len_in_block(block);
        let is_whole = |run: crate::layout::record::Run| run.is_whole();
        let keeps =
            self.reserved.contains(block) || self.map().and_then(|map| map.get(block)).is_some_and(is_whole);
        if len > 0 && len < BLOCK_BYTES && keeps { BLOCK_BYTES } else { len }
    }

    /// Attributes as programs see them.
    pub fn attr(&self, ino: Ino) -> Attr {
        let size = match &self.body {
            Body::File(_) => self.size,
            Body::Directory(directory) => directory.len() as u64 * 32,
            Body::Symlink(target) => target.len() as u64,
            Body::Special => 0,
        };
        Attr {
            ino,
            kind: self.kind,
            perm: self.perm,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks: self.bytes_taken().div_ceil(512),
            atime: TimeSpec(self.atime),
            mtime: TimeSpec(self.mtime),
            ctime: TimeSpec(self.ctime),
            btime: TimeSpec(self.btime),
            marks: Marks::of(|name| self.xattrs.get(name).map(|value| &**value)),
        }
    }

    /// Bytes that its data takes, as they are when all that is buffered has been written back. (Until then the end of a
    /// file is charged a whole block.)
    fn bytes_taken(&self) -> u64 {
        let buffered: u64 = self.dirty.blocks.values().map(|block| u64::from(block.extra)).sum();
        let end = self.size / BLOCK_BYTES as u64;
        let too_much = match self.dirty.blocks.contains_key(&end) {
            true => BLOCK_BYTES as u64 - u64::from(charge(self.len_to_store(end) as u32)),
            false => 0,
        };
        (self.charged + buffered).saturating_sub(too_much)
    }

    /// The size to journal now: all of the file up to the first byte that only memory has.
    pub fn settled_size(&self) -> u64 {
        self.settled_within(self.size)
    }

    /// The size to journal if the file ended at `size` or before.
    pub fn settled_within(&self, size: u64) -> u64 {
        let size = size.min(self.size);
        self.dirty.first_fresh(self.disk_size.min(size)).map_or(size, |at| at.min(size))
    }

    /// The ranges of blocks within `first..end` that are mapped or buffered, for telling the observer of their change:
    /// holes that stay holes are left out. Empty when the file is not watched.
    pub fn filled_ranges(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        if !self.watched || first >= end {
            return Vec::new();
        }
        let mapped = self.map().into_iter().flat_map(|map| map.range(first, end));
        let mapped = mapped.map(|run| (run.block, run.block + u64::from(run.run.count)));
        let buffered = self.dirty.blocks.range(first..end).map(|(block, _)| (*block, block + 1));
        mapped.chain(buffered).collect()
    }

    /// Bytes of the file within a block.
    pub fn len_in_block(&self, block: u64) -> usize {
        let start = block.saturating_mul(BLOCK_BYTES as u64);
        self.size.saturating_sub(start).min(BLOCK_BYTES as u64) as usize
    }

    /// Estimate of the bytes that the inode takes in a checkpoint, its names and all runs but one left out.
    pub fn saved_bytes(&self) -> u64 {
        let target = match &self.body {
            Body::Symlink(target) => target.len(),
            _ => 0,
        };
        let xattrs: usize = self.xattrs.iter().map(|(name, value)| 17 + name.len() + value.len()).sum();
        (INODE_BYTES + target + xattrs) as u64
    }
}

/// Bytes of an inode in a checkpoint, with one run.
pub const INODE_BYTES: usize = 176;
/// Bytes of a directory entry in a checkpoint, its name left out.
pub const ENTRY_BYTES: usize = 29;
