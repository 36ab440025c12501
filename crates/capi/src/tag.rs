//! Tags of pages, for all levels.

use crate::error::Failure;
use crate::handle::handle;
use weft_core::{DataClass, LifetimeGroup, Origin, StreamId, Tag, TagFlags};
use weft_flash::LevelError;

/// What is known of a page's data. The page keeps it in its out-of-band bytes, also when it is moved. All zero: nothing.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeftTag {
    /// When the data is expected to die, in bytes written to the volume by then. 0: not known.
    pub death: u64,
    /// The user who owns it.
    pub owner: u32,
    /// Its stream. Data of different streams and lifetime groups is kept apart by the policy level.
    pub stream: u16,
    /// Its lifetime group in the stream.
    pub lifetime_group: u16,
    /// Its class, 0 to 6, as of s-nodes. 0: not known.
    pub data_class: u8,
    /// WEFT_SECURE_DELETE or 0.
    pub flags: u8,
}

/// The class of data that C names.
pub(crate) fn class_of(data_class: u8) -> Result<DataClass, LevelError> {
    DataClass::from_u8(data_class)
        .ok_or_else(|| LevelError::BadRequest(format!("data class {data_class}; pass one of 0 to 6")))
}

/// The flags that C names.
pub(crate) fn flags_of(flags: u8) -> Result<TagFlags, LevelError> {
    TagFlags::from_bits(flags)
        .ok_or_else(|| LevelError::BadRequest(format!("flags {flags:#x}; pass WEFT_SECURE_DELETE or 0")))
}

impl TryFrom<WeftTag> for Tag {
    type Error = LevelError;

    fn try_from(tag: WeftTag) -> Result<Tag, LevelError> {
        Ok(Tag {
            death: tag.death,
            owner: tag.owner,
            stream: StreamId(tag.stream),
            group: LifetimeGroup(tag.lifetime_group),
            class: class_of(tag.data_class)?,
            origin: Origin::Host,
            flags: flags_of(tag.flags)?,
        })
    }
}

impl From<Tag> for WeftTag {
    fn from(tag: Tag) -> WeftTag {
        WeftTag {
            death: tag.death,
            owner: tag.owner,
            stream: tag.stream.0,
            lifetime_group: tag.group.0,
            data_class: tag.class as u8,
            flags: tag.flags.bits(),
        }
    }
}

/// The tag at an address.
///
/// # Safety
/// `tag` is null or can be read.
pub(crate) unsafe fn tag_at(tag: *const WeftTag) -> Result<Tag, Failure> {
    // SAFETY: the caller's promise.
    Ok(Tag::try_from(*unsafe { handle(tag, "tag") }?)?)
}
