//! The trait of the device below the monitor. Other flash, and tests that watch every operation, implement it.

use std::fmt;
use weft_core::Nanos;
use weft_device::nand::{
    BlockAddr, BlockInfo, Done, FlashError, FlashShape, Keep, LunAddr, OpenChannel, PageAddr, PageProgram,
    PageRead,
};

/// What became of each address of a command, in their order.
pub type FlashResults = Vec<Result<Done, FlashError>>;

/// Flash with physical addresses. The operations are those of [`OpenChannel`].
pub trait Backend: Send + Sync + fmt::Debug {
    /// How many of everything there are.
    fn shape(&self) -> FlashShape;

    /// Whether an interrupted program can destroy a page that was programmed before (cells of several bits).
    fn pairs_pages(&self) -> bool;

    /// Reads a part of a page's data and its first out-of-band bytes.
    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError>;

    /// Programs the next page of a block. After an error that is neither a failure of the flash nor a loss of power, the page is
    /// as it was and can be programmed again.
    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError>;

    /// Erases a block.
    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError>;

    /// Reads pages, all issued at once.
    fn read_many(&self, issued: Nanos, pages: &mut [PageRead]) -> FlashResults {
        pages.iter_mut().map(|read| self.read(issued, read)).collect()
    }

    /// Programs pages, all issued at once, those of one LUN in this order. An error of the host ends the command: pages after it
    /// are not programmed and have the same error.
    fn program_many(&self, issued: Nanos, pages: &[PageProgram]) -> FlashResults {
        one_by_one(pages, |write| self.program(issued, write.page, write.data, write.oob))
    }

    /// Erases blocks, all issued at once. An error of the host ends the command, as it does in
    /// [`program_many`](Backend::program_many).
    fn erase_many(&self, issued: Nanos, blocks: &[BlockAddr]) -> FlashResults {
        one_by_one(blocks, |block| self.erase(issued, *block))
    }

    /// Whether pages are programmed with data. A device that keeps none, for simulations, needs none.
    fn keeps_data(&self) -> bool {
        true
    }

    /// The state of a block.
    fn block_info(&self, block: BlockAddr) -> Result<BlockInfo, FlashError>;

    /// The states of all blocks of a LUN.
    fn lun_info(&self, lun: LunAddr) -> Result<Vec<BlockInfo>, FlashError>;

    /// When a LUN is free.
    fn lun_free_at(&self, lun: LunAddr) -> Result<Nanos, FlashError>;

    /// When all LUNs are free: the end of everything issued so far.
    fn now(&self) -> Result<Nanos, FlashError> {
        let shape = self.shape();
        let free_at = |lun| self.lun_free_at(shape.lun_at(lun));
        (0..shape.luns()).map(free_at).try_fold(Nanos(0), |last, free| Ok(last.max(free?)))
    }

    /// Makes what was programmed survive a crash of the host.
    fn sync(&self) -> Result<(), FlashError>;

    /// The same, and leaves nothing of what was erased below the device: a model may have it in its file.
    fn forget_erased(&self) -> Result<(), FlashError> {
        self.sync()
    }
}

/// Carries a command out address by address, until the host fails.
fn one_by_one<T>(addresses: &[T], command: impl Fn(&T) -> Result<Done, FlashError>) -> FlashResults {
    let mut results = Vec::with_capacity(addresses.len());
    for address in addresses {
        results.push(command(address));
        if ended_by_host(&mut results, addresses.len()) {
            break;
        }
    }
    results
}

/// When the last result is an error of the host, all other addresses of the command get it; whether it is.
fn ended_by_host(results: &mut FlashResults, addresses: usize) -> bool {
    debug_assert!(results.len() <= addresses, "a command has more results than addresses");
    let of_host = |results: &FlashResults| results.last()?.as_ref().err()?.of_host();
    while let Some(error) = of_host(results) {
        if results.len() == addresses {
            return true;
        }
        results.push(Err(error));
    }
    false
}

/// Tries of a read before it counts as failed.
const READ_TRIES: u32 = 4;

/// Reads as a drive's firmware does: a page that comes back with too many wrong bits is read again, because that may
/// pass. A page whose program was interrupted stays as it is.
pub(crate) fn read_again(
    backend: &dyn Backend,
    issued: Nanos,
    mut read: PageRead,
) -> Result<Done, FlashError> {
    let mut now = issued;
    for _ in 1..READ_TRIES {
        match backend.read(now, &mut read) {
            Err(FlashError::Uncorrectable { why, done, .. }) if !why.is_interrupted() => now = done,
            other => return other,
        }
    }
    backend.read(now, &mut read)
}

/// How many of these addresses, from the first on, are one operation of a LUN: pages of one number in as many planes.
fn in_planes(pages: impl IntoIterator<Item = PageAddr>) -> usize {
    let mut pages = pages.into_iter();
    let Some(first) = pages.next() else { return 0 };
    let bit = |page: PageAddr| 1u64.checked_shl(page.block.plane).unwrap_or(0);
    let mut planes = bit(first);
    let new_plane = |page: &PageAddr| {
        let same = page.block.lun_addr() == first.block.lun_addr() && page.page == first.page;
        let new = same && planes != 0 && bit(*page) & !planes != 0;
        planes |= bit(*page);
        new
    };
    1 + pages.take_while(new_plane).count()
}

impl Backend for OpenChannel {
    fn shape(&self) -> FlashShape {
        OpenChannel::shape(self)
    }

    fn pairs_pages(&self) -> bool {
        self.setup().pairing.is_some()
    }

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        OpenChannel::program(self, issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        OpenChannel::erase(self, issued, block)
    }

    fn read_many(&self, issued: Nanos, pages: &mut [PageRead]) -> FlashResults {
        let mut results = Vec::with_capacity(pages.len());
        let mut rest = pages;
        while !rest.is_empty() {
            let (group, after) = rest.split_at_mut(in_planes(rest.iter().map(|read| read.page)));
            match self.read_planes(issued, group) {
                Ok(done) => results.extend(group.iter().map(|_| Ok(done))),
                Err(error) if group.len() == 1 => results.push(Err(error)),
                // Which of them cannot be read is found one by one.
                Err(_) => results
                    .extend(group.iter_mut().map(|one| self.read_planes(issued, std::slice::from_mut(one)))),
            }
            rest = after;
        }
        results
    }

    fn program_many(&self, issued: Nanos, pages: &[PageProgram]) -> FlashResults {
        let mut results = Vec::with_capacity(pages.len());
        let mut rest = pages;
        while !rest.is_empty() {
            let (group, after) = rest.split_at(in_planes(rest.iter().map(|write| write.page)));
            match self.program_planes(issued, group) {
                Ok(done) => results.extend(group.iter().map(|_| Ok(done))),
                Err(error) if group.len() == 1 => results.push(Err(error)),
                // Programs in the other planes are done.
                Err(FlashError::ProgramFailed { done, .. }) => results.extend(group.iter().map(|write| {
                    if OpenChannel::block_info(self, write.page.block)?.state.is_bad() {
                        return Err(FlashError::ProgramFailed { address: write.page, done });
                    }
                    Ok(Done { began: issued, moved: done, done })
                })),
                // Nothing is programmed.
                Err(error) if error.of_host().is_some() => results.push(Err(error)),
                // Refused as a whole.
                Err(_) => results
                    .extend(one_by_one(group, |one| self.program_planes(issued, std::slice::from_ref(one)))),
            }
            if ended_by_host(&mut results, pages.len()) {
                break;
            }
            rest = after;
        }
        results
    }

    fn erase_many(&self, issued: Nanos, blocks: &[BlockAddr]) -> FlashResults {
        self.erasing(blocks, || erase_in_groups(self, issued, blocks))
    }

    fn keeps_data(&self) -> bool {
        self.setup().keep == Keep::All
    }

    fn block_info(&self, block: BlockAddr) -> Result<BlockInfo, FlashError> {
        OpenChannel::block_info(self, block)
    }

    fn lun_info(&self, lun: LunAddr) -> Result<Vec<BlockInfo>, FlashError> {
        OpenChannel::lun_info(self, lun)
    }

    fn lun_free_at(&self, lun: LunAddr) -> Result<Nanos, FlashError> {
        OpenChannel::lun_free_at(self, lun)
    }

    fn sync(&self) -> Result<(), FlashError> {
        OpenChannel::sync(self)
    }

    fn forget_erased(&self) -> Result<(), FlashError> {
        OpenChannel::forget_erased(self)
    }
}

/// Erases blocks, those of several planes of a LUN together.
fn erase_in_groups(device: &OpenChannel, issued: Nanos, blocks: &[BlockAddr]) -> FlashResults {
    let mut results = Vec::with_capacity(blocks.len());
    let mut rest = blocks;
    while !rest.is_empty() {
        let (group, after) = rest.split_at(in_planes(rest.iter().map(|block| block.page(0))));
        match device.erase_planes(issued, group) {
            Ok(done) => results.extend(group.iter().map(|_| Ok(done))),
            Err(error) if group.len() == 1 => results.push(Err(error)),
            Err(FlashError::EraseFailed { worn_out, done, .. }) => {
                results.extend(group.iter().map(|block| {
                    let info = device.block_info(*block)?;
                    if info.state.is_bad() {
                        let erases = info.erases;
                        return Err(FlashError::EraseFailed { block: *block, erases, worn_out, done });
                    }
                    Ok(Done { began: issued, moved: issued, done })
                }))
            }
            // Nothing is erased.
            Err(error) if error.of_host().is_some() => results.push(Err(error)),
            // Refused as a whole.
            Err(_) => results
                .extend(one_by_one(group, |one| device.erase_planes(issued, std::slice::from_ref(one)))),
        }
        if ended_by_host(&mut results, blocks.len()) {
            break;
        }
        rest = after;
    }
    results
}
