//! Which s-nodes have secure deletion; [`crate::erase`] overwrites their freed blocks.

use crate::TagFlags;
use crate::ids::HomeId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Which s-nodes' bytes are erased. All orderings are relaxed: who changes an s-node's class holds its lock.
#[derive(Default)]
pub(crate) struct Erasure {
    /// A bit for each s-node.
    snodes: Box<[AtomicU64]>,
    /// Some bit is set, or `all` is.
    pub(crate) any: AtomicBool,
    /// While a store is opened that was not closed: what is given up may be of any s-node.
    pub(crate) all: AtomicBool,
    /// The journal has had something to be erased since it was last empty.
    pub(crate) in_journal: AtomicBool,
    /// Something could not be erased in memory: the next opening has to.
    pub(crate) left_over: AtomicBool,
}

impl Erasure {
    pub(super) fn new() -> Erasure {
        let snodes = (0..=u16::MAX as usize / 64).map(|_| AtomicU64::new(0)).collect();
        Erasure { snodes, ..Erasure::default() }
    }

    /// The s-node, if what it gives up is erased.
    #[inline]
    pub(crate) fn owner(&self, snode: u16) -> Option<HomeId> {
        self.is_of(snode).then_some(HomeId(snode))
    }

    /// Whether what an s-node gives up is erased.
    #[inline]
    pub(crate) fn is_of(&self, snode: u16) -> bool {
        self.any.load(Ordering::Relaxed) && self.is_known(snode)
    }

    #[cold]
    fn is_known(&self, snode: u16) -> bool {
        let word = self.snodes[usize::from(snode / 64)].load(Ordering::Relaxed);
        self.all.load(Ordering::Relaxed) || word >> (snode % 64) & 1 == 1
    }

    /// Notes the class of an s-node. A home that is shared keeps what it was.
    pub(crate) fn set(&self, snode: u16, flags: TagFlags) {
        let (word, bit) = (&self.snodes[usize::from(snode / 64)], 1 << (snode % 64));
        if flags.contains(TagFlags::SECURE_DELETE) {
            word.fetch_or(bit, Ordering::Relaxed);
            self.any.store(true, Ordering::Relaxed);
        } else if !HomeId(snode).is_shared() {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// What is given up may be of any s-node, until the store [is open](crate::Store).
    pub(crate) fn suspect_all(&self) {
        for flag in [&self.any, &self.all, &self.in_journal] {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a record of such an s-node goes to the journal.
    pub(crate) fn note_record(&self) {
        self.in_journal.store(true, Ordering::Relaxed);
    }

    /// Notes that a slot was given up and could not be cleared, or that blocks were written in vain.
    pub(crate) fn note_left_over(&self) {
        self.left_over.store(true, Ordering::Relaxed);
    }

    /// Whether there is, or was since the store was opened, such an s-node.
    pub(crate) fn has_snodes(&self) -> bool {
        self.any.load(Ordering::Relaxed) && self.snodes.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }
}
