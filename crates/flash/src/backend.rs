//! What the monitor needs of a device, no more: the seam for other flash, and for tests that watch every operation.

use std::fmt;
use weft_core::Nanos;
use weft_device::nand::{BlockAddr, BlockInfo, Done, FlashError, FlashShape, LunAddr, OpenChannel, PageAddr};

/// Flash with physical addresses. The operations are those of [`OpenChannel`].
pub trait Backend: Send + Sync + fmt::Debug {
    /// How many of everything there are.
    fn shape(&self) -> FlashShape;

    /// Whether an interrupted program can destroy a page that was programmed before (cells of several bits).
    fn pairs_pages(&self) -> bool;

    /// Reads a part of a page's data and its first out-of-band bytes.
    fn read(
        &self,
        issued: Nanos,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, FlashError>;

    /// Programs the next page of a block.
    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError>;

    /// Erases a block.
    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError>;

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
}

/// Tries of a read before it counts as failed.
const READ_TRIES: u32 = 4;

/// Reads as a drive's firmware does: a page that comes back with too many wrong bits is read again, because that may
/// pass. A page whose program was interrupted stays as it is.
pub(crate) fn read_again(
    backend: &dyn Backend,
    issued: Nanos,
    page: PageAddr,
    offset: u32,
    data: &mut [u8],
    oob: &mut [u8],
) -> Result<Done, FlashError> {
    let mut now = issued;
    for _ in 1..READ_TRIES {
        match backend.read(now, page, offset, data, oob) {
            Err(FlashError::Uncorrectable { why, done, .. }) if !why.is_interrupted() => now = done,
            other => return other,
        }
    }
    backend.read(now, page, offset, data, oob)
}

impl Backend for OpenChannel {
    fn shape(&self) -> FlashShape {
        OpenChannel::shape(self)
    }

    fn pairs_pages(&self) -> bool {
        self.setup().pairing.is_some()
    }

    fn read(
        &self,
        issued: Nanos,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, FlashError> {
        OpenChannel::read(self, issued, page, offset, data, oob)
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        OpenChannel::program(self, issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        OpenChannel::erase(self, issued, block)
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
}
