//! A grant, whether the monitor is in this process or in another one.

use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::monitor::{BlockLook, LocalGrant};
use crate::share::RemoteGrant;
use weft_core::{Nanos, Tag};
use weft_device::nand::Done;

/// An application's hold on its grant. Threads share it by reference; dropping it lets somebody else attach.
///
/// Commands take the moment at which they are issued, in the device's virtual time, and say when they are over, as those
/// of [`OpenChannel`](weft_device::nand::OpenChannel) do. A moment more than [`LEAD_MAX`](crate::monitor::LEAD_MAX) after
/// the device's clock is refused. Over a socket an application has no clock of its own: a command is issued when it says, but
/// not after the latest moment that the server has told it, which is the end of its last command or what
/// [`now`](Grant::now) returned.
#[derive(Debug)]
pub struct Grant {
    endpoint: Endpoint,
}

#[derive(Debug)]
enum Endpoint {
    Local(LocalGrant),
    Remote(RemoteGrant),
}

/// One page to write.
#[derive(Clone, Copy, Debug)]
pub struct RawWrite<'a> {
    /// Where.
    pub page: GrantPage,
    /// A whole page of data.
    pub data: &'a [u8],
    /// Out-of-band bytes, as many as a page has for the application or fewer; zeros follow them.
    pub oob: &'a [u8],
    /// What is known of the data. It is stored in the last [`TAG_OOB_BYTES`](crate::TAG_OOB_BYTES) of the page's out-of-band
    /// bytes, unless it says nothing ([`Tag::default`]): then the application has these too.
    pub tag: Tag,
}

/// One page to read, or a part of it.
#[derive(Debug)]
pub struct RawRead<'a> {
    /// Where.
    pub page: GrantPage,
    /// First byte of the page's data to read.
    pub offset: u32,
    /// Gets the data; empty to read out-of-band bytes alone.
    pub data: &'a mut [u8],
    /// Gets the first out-of-band bytes.
    pub oob: &'a mut [u8],
}

/// What became of each address of a command, in their order.
pub type Results = Vec<Result<Done, LevelError>>;

/// The same call on whichever it is.
macro_rules! on_hold {
    ($grant:expr, $endpoint:ident => $call:expr) => {
        match &$grant.endpoint {
            Endpoint::Local($endpoint) => $call,
            Endpoint::Remote($endpoint) => $call,
        }
    };
}

impl Grant {
    pub(crate) fn local(grant: LocalGrant) -> Grant {
        Grant { endpoint: Endpoint::Local(grant) }
    }

    pub(crate) fn remote(grant: RemoteGrant) -> Grant {
        Grant { endpoint: Endpoint::Remote(grant) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        on_hold!(self, endpoint => endpoint.name())
    }

    /// What the application has.
    pub fn geometry(&self) -> &GrantGeometry {
        on_hold!(self, endpoint => endpoint.geometry())
    }

    /// Reads a part of a page's data, which may be empty, and its first out-of-band bytes.
    pub fn read(
        &self,
        issued: Nanos,
        page: GrantPage,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, LevelError> {
        on_hold!(self, endpoint => endpoint.read(issued, &mut RawRead { page, offset, data, oob }))
    }

    /// The same, and the tag of the data: that which says nothing where none was given, `None` when what is stored of it is
    /// damaged.
    pub fn read_tagged(
        &self,
        issued: Nanos,
        page: GrantPage,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<(Done, Option<Tag>), LevelError> {
        on_hold!(self, endpoint => endpoint.read_tagged(issued, &mut RawRead { page, offset, data, oob }))
    }

    /// The tag of a page's data.
    ///
    /// [`LevelError::Damaged`] when what is stored of it is.
    pub fn tag_of(&self, issued: Nanos, page: GrantPage) -> Result<Tag, LevelError> {
        let (_, tag) = self.read_tagged(issued, page, 0, &mut [], &mut [])?;
        tag.ok_or_else(|| LevelError::Damaged(format!("{page} has a tag that cannot be read")))
    }

    /// Programs the next page of a block. A block that fails is replaced by a spare, with what it held.
    pub fn program(
        &self,
        issued: Nanos,
        page: GrantPage,
        data: &[u8],
        oob: &[u8],
    ) -> Result<Done, LevelError> {
        self.program_tagged(issued, &RawWrite { page, data, oob, tag: Tag::default() })
    }

    /// The same, with the tag of the data.
    pub fn program_tagged(&self, issued: Nanos, write: &RawWrite) -> Result<Done, LevelError> {
        on_hold!(self, endpoint => endpoint.program(issued, write))
    }

    /// Erases a block. One that fails is replaced by a spare.
    pub fn erase(&self, issued: Nanos, block: GrantBlock) -> Result<Done, LevelError> {
        on_hold!(self, endpoint => endpoint.erase(issued, block))
    }

    /// Reads pages that are all issued at once. Each has its own result.
    pub fn read_many(&self, issued: Nanos, reads: &mut [RawRead]) -> Results {
        on_hold!(self, endpoint => endpoint.read_many(issued, reads))
    }

    /// Programs pages that are all issued at once, those of one LUN in this order. Each has its own result. Those that are
    /// named one after the other and are in different planes of a LUN, with one page number, are one operation.
    pub fn program_many(&self, issued: Nanos, writes: &[RawWrite]) -> Results {
        on_hold!(self, endpoint => endpoint.program_many(issued, writes))
    }

    /// Erases blocks, all issued at once. Each has its own result. Blocks in different planes of a LUN that are named one after
    /// the other are one operation.
    pub fn erase_many(&self, issued: Nanos, blocks: &[GrantBlock]) -> Results {
        on_hold!(self, endpoint => endpoint.erase_many(issued, blocks))
    }

    /// The state of a block.
    pub fn look(&self, block: GrantBlock) -> Result<BlockLook, LevelError> {
        on_hold!(self, endpoint => endpoint.look(block))
    }

    /// Whether pages are programmed with data.
    pub(crate) fn keeps_data(&self) -> bool {
        match &self.endpoint {
            Endpoint::Local(grant) => grant.keeps_data(),
            // Nobody serves a device that keeps none.
            Endpoint::Remote(_) => true,
        }
    }

    /// When the LUN that a block lies on is free.
    pub fn free_at(&self, block: GrantBlock) -> Result<Nanos, LevelError> {
        on_hold!(self, endpoint => endpoint.free_at(block))
    }

    /// The device's clock: the end of everything that was issued, by whichever application.
    pub fn now(&self) -> Result<Nanos, LevelError> {
        on_hold!(self, endpoint => endpoint.now())
    }

    /// Makes what was programmed survive a crash of the host; a power cut of the flash needs no sync.
    pub fn sync(&self) -> Result<(), LevelError> {
        on_hold!(self, endpoint => endpoint.sync())
    }

    /// The same, and leaves nothing of what was erased below the device, as in the file of a model. The device of another process is only
    /// synced.
    pub fn forget_erased(&self) -> Result<(), LevelError> {
        match &self.endpoint {
            Endpoint::Local(grant) => grant.forget_erased(),
            Endpoint::Remote(grant) => grant.sync(),
        }
    }
}
