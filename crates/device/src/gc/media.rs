//! The trait of the flash below a page map, and the map's setup.

use super::victim::VictimPolicy;

/// Most slots that are copied together: what a cleaner's memory has to hold.
pub const COPY_BATCH: usize = 256;

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// The flash failed and the block is bad from now on. After a failed program its other slots can still be read.
    Bad,
}

/// The flash below a page map. Slots are numbered through all blocks: `block x slots_per_block + place in the block`;
/// those of a block are asked to be filled in order.
pub trait Media {
    /// What cannot be helped, such as a loss of power or a full disk of the host. The map stays as it was before the operation that
    /// met it, but for slots that the flash [has taken](Media::has_taken).
    type Error;

    /// Puts a logical page into a slot: new data of the write that is under way, or a copy of what is in the slot
    /// `from`. `front` is the write front, as [`MapperSetup::relocation`] numbers them.
    fn program(
        &mut self,
        to: u32,
        page: u32,
        from: Option<u32>,
        front: usize,
    ) -> Result<Outcome, Self::Error>;

    /// Slots of one block that are programmed as one, beginning at multiples of this: it divides the slots of a block.
    fn together(&self) -> u32 {
        1
    }

    /// [`program`](Media::program) of several slots, as many as are left of those that are programmed
    /// [together](Media::together) or fewer: the pages, and where they are copied from. [`Outcome::Bad`] when the flash failed for
    /// any. After that, and after an error, those count that the flash [has taken](Media::has_taken).
    fn program_together(
        &mut self,
        to: u32,
        pages: &[(u32, Option<u32>)],
        front: usize,
    ) -> Result<Outcome, Self::Error> {
        let mut outcome = Outcome::Done;
        for (slot, (page, from)) in (to..).zip(pages) {
            if self.program(slot, *page, *from, front)? == Outcome::Bad {
                outcome = Outcome::Bad;
            }
        }
        Ok(outcome)
    }

    /// After a program that failed, alone or [together](Media::program_together): whether what was to be put into this slot is
    /// kept, so that a map that is restored later would find it there.
    fn has_taken(&self, _slot: u32) -> bool {
        false
    }

    /// What is in these slots is about to be copied, in this order: at most [`COPY_BATCH`] of them. For flash that reads them
    /// all before it programs the first, so that LUNs work side by side; [`program`](Media::program) asks for the copies.
    fn copying(&mut self, _slots: &[u32]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Erases a block, no slot of which is valid. A block that a program failed in is offered too, once what was valid in
    /// it is moved: [`Outcome::Bad`] retires it, [`Outcome::Done`] says that it has been repaired.
    fn erase(&mut self, block: u32) -> Result<Outcome, Self::Error>;

    /// A block of this front is about to be cleaned; so many of its slots are valid.
    fn collecting(&mut self, _block: u32, _front: usize, _valid: u32) {}
}

/// How a page map works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapperSetup {
    /// Blocks.
    pub blocks: u32,
    /// Slots of a block.
    pub slots_per_block: u32,
    /// Logical pages.
    pub pages: u32,
    /// Free blocks below which the map cleans before it opens another block for new data. At least 1: cleaning itself
    /// needs one.
    pub reserve_blocks: u32,
    /// How victims are chosen.
    pub victim: VictimPolicy,
    /// For each write front, the front that its pages are relocated to. A front that names itself shares its open block
    /// with the cleaner; fronts that only relocation uses come last.
    pub relocation: Vec<usize>,
    /// What random choices are drawn from.
    pub seed: u64,
}

impl MapperSetup {
    /// One front for new data; relocated pages go to the same open block, or to one of their own.
    pub fn single(
        blocks: u32,
        slots_per_block: u32,
        pages: u32,
        victim: VictimPolicy,
        own: bool,
    ) -> MapperSetup {
        let relocation = if own { vec![1, 1] } else { vec![0] };
        MapperSetup { blocks, slots_per_block, pages, reserve_blocks: 2, victim, relocation, seed: 0 }
    }

    /// The room that data can spread over when a victim is chosen, divided by the data: what write amplification
    /// depends on ([`super::waf`]). The reserve does not count. The front that asks for room is full then, and the other
    /// fronts' open blocks are half full on average.
    pub fn alpha(&self) -> f64 {
        let kept = f64::from(self.reserve_blocks) + (self.relocation.len() as f64 - 1.0) / 2.0;
        (f64::from(self.blocks) - kept) * f64::from(self.slots_per_block) / f64::from(self.pages)
    }

    /// Judges the setup.
    pub fn validate<E>(&self) -> Result<(), GcError<E>> {
        let fronts = self.relocation.len();
        let bad = |what: String| Err(GcError::BadSetup(what));
        if fronts > usize::from(u16::MAX) {
            return bad(format!("{fronts} write fronts; {} is the most", u16::MAX));
        }
        if fronts == 0 || self.relocation.iter().any(|front| *front >= fronts) {
            return bad(format!("relocation names a front that is not there; there are {fronts}"));
        }
        if self.slots_per_block == 0 || self.pages == 0 || self.reserve_blocks == 0 {
            return bad("slots_per_block, pages and reserve_blocks have to be at least 1".into());
        }
        let slots = u64::from(self.blocks) * u64::from(self.slots_per_block);
        if slots >= u64::from(u32::MAX) {
            return bad(format!("{slots} slots; {} is the most", u32::MAX - 1));
        }
        // One block more than is kept back: without it cleaning would not gain anything.
        let kept = u64::from(self.reserve_blocks) + fronts as u64 + 1;
        let wanted = u64::from(self.pages).div_ceil(u64::from(self.slots_per_block)) + kept;
        if u64::from(self.blocks) < wanted {
            return bad(format!(
                "{} blocks for {} pages; with {} slots a block, {} blocks in reserve and {fronts} write fronts it takes \
                 {wanted}: give more blocks or fewer pages",
                self.blocks, self.pages, self.slots_per_block, self.reserve_blocks
            ));
        }
        Ok(())
    }
}

/// What is known of a block when a map is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoredBlock {
    /// Slots that were filled since the last erase.
    pub filled: u32,
    /// Erases.
    pub erases: u32,
    /// The front that filled it.
    pub front: usize,
    /// Whether the block is bad.
    pub bad: bool,
    /// Whether the front goes on in it, if it has slots left. Of two such blocks of a front the first is taken.
    pub open: bool,
}

impl<E> GcError<E> {
    /// The same, with another error of the flash.
    pub fn map_media<F>(self, other: impl FnOnce(E) -> F) -> GcError<F> {
        match self {
            GcError::NoSuchPage { page, pages } => GcError::NoSuchPage { page, pages },
            GcError::NoSuchFront { front, fronts } => GcError::NoSuchFront { front, fronts },
            GcError::OutOfSpace { bad, blocks } => GcError::OutOfSpace { bad, blocks },
            GcError::BadSetup(what) => GcError::BadSetup(what),
            GcError::Media(error) => GcError::Media(other(error)),
        }
    }
}

/// Why a page map could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GcError<E> {
    /// A logical page that the map does not have.
    #[error("logical page {page}: there are {pages}; address one below that")]
    NoSuchPage {
        /// Logical page that the command names.
        page: u32,
        /// Logical pages.
        pages: u32,
    },
    /// A write front that the map does not have.
    #[error("write front {front}: there are {fronts}; name one below that")]
    NoSuchFront {
        /// Write front that the command names.
        front: usize,
        /// Fronts.
        fronts: usize,
    },
    /// Too many blocks have become bad: cleaning gains nothing any more.
    #[error(
        "no room: {bad} of {blocks} blocks are bad and the rest is full of valid pages; trim some, or retire the flash"
    )]
    OutOfSpace {
        /// Bad blocks.
        bad: u32,
        /// All blocks.
        blocks: u32,
    },
    /// A setup that cannot be.
    #[error("bad page map: {0}")]
    BadSetup(String),
    /// The flash below.
    #[error("flash below the page map: {0}")]
    Media(E),
}
