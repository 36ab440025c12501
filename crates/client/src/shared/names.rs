//! What the server tells of names and attributes without being asked: a cache that it fills while it serves, and that
//! clients read without a call.
//!
//! ```text
//!  names memfd (ro)   | head | name sets (256 B each) | attribute sets (512 B each) |
//! ```
//!
//! A name set holds pairs of a key, which stands for a name in a directory, and the inode that has the name (0: none has
//! it). An attribute set holds attributes of inodes. The key decides which set a pair is in; within a set the server puts it
//! where it likes.
//!
//! **Ordering.** Each set has a sequence lock of its own, which is odd while the server changes the set and *as long as an
//! operation is under way that changes something of what the set tells*. So whoever looks after an operation has begun, and
//! before it has returned, finds nothing and asks the server; and nothing that was true before an operation is found after
//! it.

use crate::proto::WireAttr;
use siphasher::sip128::{Hash128, Hasher128, SipHasher13};
use std::hash::Hasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use weft_vfs::{InodeFlags, Marks, access};

/// Name sets, and attribute sets, that the memory has room for.
pub const SETS_MAX: usize = 1 << 18;
/// Pairs of a name set.
pub const NAMES_OF_SET: usize = 10;
/// Inodes of an attribute set.
pub const ATTRS_OF_SET: usize = 5;

/// What the names memfd begins with.
#[repr(C, align(4096))]
pub struct Head {
    /// Key of [`NameKey`]: only whoever may read the memory can tell which names meet in a set.
    pub secret: [AtomicU64; 2],
    /// Sets in use, of names and of attributes each; a power of two.
    pub sets: AtomicU64,
    /// Non-zero when the volume can be changed.
    pub writable: AtomicU64,
}

/// The sequence lock of a set, and what the server keeps there for itself.
#[repr(C)]
#[derive(Default)]
pub struct SetHead {
    /// Odd: look elsewhere.
    pub seq: AtomicU32,
    /// Operations under way that change something of the set.
    pub held: AtomicU32,
    /// Which place is used next.
    pub next: AtomicU32,
    /// Operations so far that have changed something of the set, or are under way.
    pub changes: AtomicU32,
}

/// A set, as somebody saw it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    head: &'a SetHead,
    seq: u32,
}

impl Seen<'_> {
    /// Whether nothing that the set tells has changed, or is about to.
    pub fn is_still(&self) -> bool {
        self.head.seq.load(SeqCst) == self.seq
    }
}

/// A name in a directory, as 128 bits that nobody can aim at without the secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameKey(pub u64, pub u64);

/// A name and who has it.
#[repr(C)]
#[derive(Default)]
pub struct NameCell {
    /// The key; both 0 when the cell is free.
    pub key: [AtomicU64; 2],
    /// The inode, or 0 when there is none.
    pub ino: AtomicU64,
}

/// A set of names.
#[repr(C, align(256))]
#[derive(Default)]
pub struct NameSet {
    /// Its lock.
    pub head: SetHead,
    /// Its names.
    pub cells: [NameCell; NAMES_OF_SET],
}

/// Words of a [`WireAttr`].
pub const ATTR_WORDS: usize = size_of::<WireAttr>() / 8;

/// Attributes of an inode.
#[repr(C)]
#[derive(Default)]
pub struct AttrCell {
    /// A [`WireAttr`]; the first word is the inode number, 0 in a free cell.
    pub words: [AtomicU64; ATTR_WORDS],
    /// A [`SlotWord`].
    pub slot: AtomicU64,
}

/// What is told of an inode beside its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotWord(pub u64);

impl SlotWord {
    /// The inode is known to have no extended attributes.
    const PLAIN: u64 = 1 << 32;

    /// The inode has an access list: who may do what is the server's to say.
    const HAS_ACL: u64 = 1 << 33;
    /// Where its flags begin.
    const FLAGS_SHIFT: u32 = 40;

    /// Of an inode with this slot in the control memory, or that nobody has open.
    pub fn new(slot: Option<u32>, is_plain: bool, marks: Marks) -> SlotWord {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let bits = bit(is_plain, SlotWord::PLAIN) | bit(marks.has_acl, SlotWord::HAS_ACL);
        SlotWord(bits | u64::from(marks.flags.bits()) << SlotWord::FLAGS_SHIFT).with_slot(slot)
    }

    /// The same with another slot.
    pub fn with_slot(self, slot: Option<u32>) -> SlotWord {
        SlotWord(self.0 & !u64::from(u32::MAX) | slot.map_or(0, |slot| u64::from(slot) + 1))
    }

    /// The inode's flags.
    pub fn flags(self) -> InodeFlags {
        InodeFlags::from_bits_truncate((self.0 >> SlotWord::FLAGS_SHIFT) as u32)
    }

    /// Whether mode bits and owners alone say who may do all of `wanted`.
    pub fn is_judged_by_mode(self, wanted: u32) -> bool {
        let writes = wanted & access::WRITE != 0;
        self.0 & SlotWord::HAS_ACL == 0 && !(writes && self.flags().contains(InodeFlags::IMMUTABLE))
    }

    /// The slot of the inode, if it is open.
    pub fn slot(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    /// Whether the inode has no extended attributes; if not, it may have some.
    pub fn is_plain(self) -> bool {
        self.0 & SlotWord::PLAIN != 0
    }
}

/// A set of attributes.
#[repr(C, align(512))]
#[derive(Default)]
pub struct AttrSet {
    /// Its lock.
    pub head: SetHead,
    /// Its inodes.
    pub cells: [AttrCell; ATTRS_OF_SET],
}

const _: () = {
    assert!(size_of::<NameSet>() == 256);
    assert!(size_of::<AttrSet>() == 512);
};

/// The names memory.
#[repr(C)]
pub struct Names {
    /// What is the same for all sets.
    pub head: Head,
    /// Sets of names.
    pub name_sets: [NameSet; SETS_MAX],
    /// Sets of attributes.
    pub attr_sets: [AttrSet; SETS_MAX],
}

impl Names {
    /// The number of the set that the low bits of a number select.
    fn set_of(&self, number: u64) -> usize {
        let in_use = self.head.sets.load(Relaxed) as usize;
        number as usize & in_use.wrapping_sub(1) & (SETS_MAX - 1)
    }

    /// The key of a name in a directory, and the number of the set that it belongs to.
    pub fn key(&self, dir: u64, name: &[u8]) -> (NameKey, usize) {
        let [key0, key1] = [0, 1].map(|half| self.head.secret[half].load(Relaxed));
        let mut hasher = SipHasher13::new_with_keys(key0, key1);
        hasher.write_u64(dir);
        hasher.write(name);
        let Hash128 { h1, h2 } = hasher.finish128();
        // No cell in use looks free.
        (NameKey(h1 | 1, h2), self.set_of(h2 >> 32))
    }

    /// The number of the set of an inode's attributes. Inodes that were made one after the other are looked at together: they
    /// share sets, and their sets pages.
    pub fn attr_set(&self, ino: u64) -> usize {
        self.set_of(ino / ATTRS_OF_SET as u64)
    }

    /// Who has a name: an inode, or 0 when nobody does; and what tells whether that is still so. `None` when the cache does not
    /// tell.
    pub fn ino(&self, dir: u64, name: &[u8]) -> Option<(u64, Seen<'_>)> {
        let (key, set) = self.key(dir, name);
        let set = &self.name_sets[set];
        let seen = Seen { head: &set.head, seq: set.head.seq.load(Acquire) };
        let ino = set.head.read(|| Some(set.cell(key)?.ino.load(Relaxed)))?;
        seen.is_still().then_some((ino, seen))
    }

    /// Attributes of an inode, passed through `overlay` with what is told beside them. `None` when the cache does not tell.
    pub fn attr<T>(&self, ino: u64, overlay: impl Fn(WireAttr, SlotWord) -> Option<T>) -> Option<T> {
        let set = &self.attr_sets[self.attr_set(ino)];
        set.head.read(|| {
            let cell = set.cell(ino)?;
            let words: [u64; ATTR_WORDS] = std::array::from_fn(|word| cell.words[word].load(Relaxed));
            overlay(bytemuck::cast(words), SlotWord(cell.slot.load(Relaxed)))
        })
    }
}

impl NameSet {
    /// The cell of a name.
    pub fn cell(&self, key: NameKey) -> Option<&NameCell> {
        let of = |cell: &NameCell| cell.key[0].load(Relaxed) == key.0 && cell.key[1].load(Relaxed) == key.1;
        self.cells.iter().find(|cell| of(cell))
    }
}

/// A cell of a set.
pub trait Cell {
    /// Whether it tells nothing.
    fn is_free(&self) -> bool;
}

impl Cell for NameCell {
    fn is_free(&self) -> bool {
        self.key[0].load(Relaxed) == 0
    }
}

impl Cell for AttrCell {
    fn is_free(&self) -> bool {
        self.words[0].load(Relaxed) == 0
    }
}

impl NameCell {
    /// Gives the cell to a name.
    pub fn set(&self, key: NameKey, ino: u64) {
        self.key[0].store(key.0, Relaxed);
        self.key[1].store(key.1, Relaxed);
        self.ino.store(ino, Relaxed);
    }
}

impl AttrSet {
    /// The cell of an inode.
    pub fn cell(&self, ino: u64) -> Option<&AttrCell> {
        self.cells.iter().find(|cell| cell.words[0].load(Relaxed) == ino)
    }
}

impl AttrCell {
    /// Gives the cell to an inode with these attributes.
    pub fn set(&self, attr: &[u64; ATTR_WORDS], slot: SlotWord) {
        for (word, value) in self.words.iter().zip(attr) {
            word.store(*value, Relaxed);
        }
        self.slot.store(slot.0, Relaxed);
    }
}

impl SetHead {
    /// What `look` finds, if nothing changed meanwhile.
    fn read<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let seq = self.seq.load(Acquire);
        if seq & 1 != 0 {
            return None;
        }
        let found = look()?;
        fence(Acquire);
        (self.seq.load(Relaxed) == seq).then_some(found)
    }
}
