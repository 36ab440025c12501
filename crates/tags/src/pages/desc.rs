//! The descriptor of a page: what it holds, where it lies, what its checksum is.

use crate::error::{Error, Result};
use crate::ids::{DATA_PAGES_MAX, HomeId};
use crate::layout::node::CLASSES;
use crate::pages::Words;
use weft_core::codec::{Reader, Truncated, put};

/// In the third word of a table page's descriptor: first words of cells are hashes.
pub(crate) const TABLE_HASHED: u64 = 1 << 32;

/// What a page of a table answers for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// The first position.
    pub first: u32,
    /// The last position.
    pub last: u32,
    /// 0, or, of the pages that are linked to the one of a single position, which it is.
    pub link: u32,
}

impl Share {
    /// All positions.
    pub(crate) const ALL: Share = Share { first: 0, last: u32::MAX, link: 0 };

    /// The share as descriptors and pages have it: first and last position, 4 bytes each; the link.
    pub(crate) fn words(self) -> [u64; 2] {
        [u64::from(self.first) | u64::from(self.last) << 32, u64::from(self.link)]
    }

    /// Reads a share.
    ///
    /// # Errors
    /// [`Error::Damaged`] for one that cannot be.
    pub(crate) fn from_words([positions, link]: [u64; 2]) -> Result<Share> {
        let (first, last) = (positions as u32, (positions >> 32) as u32);
        match u32::try_from(link) {
            Ok(link) if first == last || first < last && link == 0 => Ok(Share { first, last, link }),
            _ => Err(Error::damaged(format!("a page with share {positions:#x}, {link:#x}"))),
        }
    }

    /// Whether it is that of one position.
    pub(crate) fn is_single(self) -> bool {
        self.first == self.last
    }

    /// Whether a position is one of these.
    pub(crate) fn covers(self, position: u32) -> bool {
        (self.first..=self.last).contains(&position)
    }
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum PageKind {
    /// Nothing.
    #[default]
    Free = 0,
    /// Slots of one size for small nodes.
    Slab = 1,
    /// The first page of a node that has pages of its own.
    RunHead = 2,
    /// A further page of such a node.
    RunTail = 3,
    /// Cells of an edge table.
    Table = 4,
}

impl PageKind {
    fn from_u8(value: u8) -> Option<PageKind> {
        use PageKind::*;
        [Free, Slab, RunHead, RunTail, Table].into_iter().find(|kind| *kind as u8 == value)
    }
}

/// A bit for each of up to 256 slots.
pub(crate) type Slots = [u64; 4];

/// What is known of a page. In memory it fills, with its lock, one line of the processor's cache.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Desc {
    pub kind: PageKind,
    /// Slab pages: the class of its slots.
    pub class: u8,
    /// The s-node that the page belongs to.
    pub snode: u16,
    /// CRC32C of the page as it is on the medium.
    pub crc: u32,
    /// Where it is on the medium; 0 while it is in memory only.
    pub block: u64,
    /// Slab: the slots of committed nodes. Run head: pages of the run, 1 once committed, 1 for a body, and the numbers that
    /// are kept for it, so that it can grow. Run tail: pages since the head. Table: the table; its [share](Share::words), plus [`TABLE_HASHED`]; 0.
    pub body: Slots,
    /// Slab, in memory only: slots that transactions have reserved, beside the committed ones. Few pages have any.
    pub reserved: Option<Box<Slots>>,
}

// A descriptor is fetched from memory for every node that is freed.
#[cfg(all(not(weft_shuttle), target_pointer_width = "64"))]
const _: () = assert!(size_of::<crate::sync::Mutex<Desc>>() == 64);

impl Desc {
    pub(crate) fn slab(snode: HomeId, class: u8) -> Desc {
        Desc { kind: PageKind::Slab, class, snode: snode.0, ..Desc::default() }
    }

    pub(crate) fn table(snode: HomeId, id: u64, share: Share, hashed: bool) -> Desc {
        let [positions, link] = share.words();
        let body = [id, positions, if hashed { link | TABLE_HASHED } else { link }, 0];
        Desc { kind: PageKind::Table, snode: snode.0, body, ..Desc::default() }
    }

    /// Table: the positions that the page answers for.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a share that cannot be.
    pub(crate) fn share(&self) -> Result<Share> {
        Share::from_words([self.body[1], self.body[2] & !TABLE_HASHED])
    }

    /// Refuses a page of a table, just read, whose checksum holds and whose contents cannot be.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn check_table(&self, words: &Words, page: u32) -> Result<()> {
        if self.kind != PageKind::Table || words[1..4] == self.body[..3] {
            Ok(())
        } else {
            Err(Error::damaged(format!("page {page}: no edge table wrote this")))
        }
    }

    /// Table: whether first words of cells are hashes.
    pub(crate) fn is_hashed(&self) -> bool {
        self.body[2] & TABLE_HASHED != 0
    }

    /// Table: notes that the page answers for other positions now.
    pub(crate) fn set_share(&mut self, share: Share) {
        let [positions, link] = share.words();
        (self.body[1], self.body[2]) = (positions, link | self.body[2] & TABLE_HASHED);
    }

    /// Whether a page holds only what transactions had made and not committed at the checkpoint.
    pub(crate) fn is_left_over(&self) -> bool {
        match self.kind {
            PageKind::Slab => count_slots(&self.body) == 0,
            PageKind::RunHead => self.body[1] != 1,
            _ => false,
        }
    }

    /// Whether a page of this number can be what its descriptor says.
    pub(crate) fn is_possible(&self, page: u32) -> bool {
        let is_data = (1..DATA_PAGES_MAX).contains(&page);
        match self.kind {
            PageKind::Free => false,
            PageKind::Table => page >= DATA_PAGES_MAX,
            PageKind::Slab => is_data && usize::from(self.class) < CLASSES,
            PageKind::RunHead => {
                let numbers = self.body[0].max(self.body[3]);
                is_data && self.body[0] > 0 && numbers <= u64::from(DATA_PAGES_MAX - page)
            }
            PageKind::RunTail => is_data && (1..=u64::from(page)).contains(&self.body[0]),
        }
    }

    /// Appends the descriptor's 64 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Desc { kind, class, snode, crc, block, body, .. } = self;
        put(out, &[&(*kind as u8), class, snode, crc, block, body, &[0u64; 2]]);
    }

    /// Reads a descriptor of page `page`.
    pub(crate) fn decode(raw: &[u8], page: u32) -> Result<Desc> {
        let fields = |raw| -> std::result::Result<_, Truncated> {
            let mut r = Reader::new(raw);
            let (kind, class, snode, crc, block) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?, r.u64()?);
            Ok((kind, class, snode, crc, block, [r.u64()?, r.u64()?, r.u64()?, r.u64()?]))
        };
        let (kind, class, snode, crc, block, body) =
            fields(raw).map_err(|error| Error::damaged(format!("descriptor of page {page}: {error}")))?;
        let Some(kind) = PageKind::from_u8(kind) else {
            return Err(Error::damaged(format!("page {page} has unknown kind {kind}")));
        };
        Ok(Desc { kind, class, snode, crc, block, body, reserved: None })
    }

    /// Slab: the slots that cannot be given out, those of committed nodes and those that transactions have reserved.
    #[inline]
    pub(crate) fn taken(&self) -> Slots {
        match &self.reserved {
            None => self.body,
            Some(reserved) => std::array::from_fn(|word| self.body[word] | reserved[word]),
        }
    }

    /// Slab: reserves slots.
    pub(crate) fn reserve(&mut self, slots: &Slots) {
        match &mut self.reserved {
            None => self.reserved = Some(Box::new(*slots)),
            Some(reserved) => reserved.iter_mut().zip(slots).for_each(|(word, bits)| *word |= bits),
        }
    }

    /// Slab: makes slots committed, whether they were reserved or not.
    pub(crate) fn commit(&mut self, slots: &Slots) {
        self.body.iter_mut().zip(slots).for_each(|(word, bits)| *word |= bits);
        self.forget_reserved(slots);
    }

    /// Slab: makes a slot one that can be given out.
    #[inline]
    pub(crate) fn release(&mut self, slot: usize) {
        clear_slot(&mut self.body, slot);
        if self.reserved.is_some() {
            self.forget_reserved(&slot_range(slot, 1));
        }
    }

    fn forget_reserved(&mut self, slots: &Slots) {
        if let Some(reserved) = &mut self.reserved {
            reserved.iter_mut().zip(slots).for_each(|(word, bits)| *word &= !bits);
            if **reserved == Slots::default() {
                self.reserved = None;
            }
        }
    }
}

/// The slots that `count` slots from `first` on are.
#[inline]
pub(crate) fn slot_range(first: usize, count: usize) -> Slots {
    let mut slots = Slots::default();
    (first..first + count).for_each(|slot| set_slot(&mut slots, slot));
    slots
}

/// Whether slot `slot` is set.
#[inline]
pub(crate) fn slot_is_set(slots: &Slots, slot: usize) -> bool {
    slots[slot / 64] >> (slot % 64) & 1 == 1
}

/// Sets slot `slot`.
#[inline]
pub(crate) fn set_slot(slots: &mut Slots, slot: usize) {
    slots[slot / 64] |= 1 << (slot % 64);
}

/// Clears slot `slot`.
#[inline]
pub(crate) fn clear_slot(slots: &mut Slots, slot: usize) {
    slots[slot / 64] &= !(1 << (slot % 64));
}

/// Slots that are set.
#[inline]
pub(crate) fn count_slots(slots: &Slots) -> usize {
    slots.iter().map(|word| word.count_ones() as usize).sum()
}

/// The first slot below `count` that is not set.
#[inline]
pub(crate) fn first_clear(slots: &Slots, count: usize) -> Option<usize> {
    let (word, bits) = slots.iter().enumerate().find(|(_, word)| **word != u64::MAX)?;
    let slot = word * 64 + bits.trailing_ones() as usize;
    (slot < count).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::leaves::DESC_BYTES;

    #[test]
    fn a_descriptor_comes_back_and_an_unknown_kind_is_damage() {
        let mut desc = Desc::slab(HomeId(3), 7);
        desc.block = 99;
        desc.crc = 5;
        set_slot(&mut desc.body, 200);
        let mut raw = Vec::new();
        desc.encode(&mut raw);
        assert_eq!(raw.len(), DESC_BYTES);
        assert_eq!(Desc::decode(&raw, 1).unwrap(), desc);
        raw[0] = 77;
        assert!(Desc::decode(&raw, 1).is_err());
        assert!(Desc::decode(&raw[..20], 1).is_err());
    }

    #[test]
    fn slots_are_taken_from_their_reservation_until_they_are_released() {
        let mut desc = Desc::slab(HomeId(3), 7);
        desc.reserve(&slot_range(3, 1));
        desc.reserve(&slot_range(200, 1));
        assert_eq!((count_slots(&desc.taken()), count_slots(&desc.body)), (2, 0));
        let slots = slot_range(200, 1);
        desc.commit(&slots);
        assert!(slot_is_set(&desc.body, 200) && slot_is_set(&desc.taken(), 3));
        desc.release(3);
        assert_eq!((desc.reserved.is_none(), desc.taken()), (true, slots));
        desc.release(200);
        assert_eq!(desc, Desc::slab(HomeId(3), 7));
    }

    #[test]
    fn the_first_clear_slot_is_below_the_count() {
        let mut slots = [u64::MAX, 0b111, 0, 0];
        assert_eq!(first_clear(&slots, 256), Some(67));
        assert_eq!(first_clear(&slots, 67), None);
        clear_slot(&mut slots, 5);
        assert_eq!(first_clear(&slots, 67), Some(5));
        assert_eq!(first_clear(&[u64::MAX; 4], 256), None);
        assert_eq!(count_slots(&slots), 66);
    }
}
