//! What lies where on the medium: the map of `docs/formats/tags.md` in code.

pub(crate) mod catalog;
pub(crate) mod leaves;
pub(crate) mod node;
pub(crate) mod superblock;

/// The version of the format.
pub(crate) const FORMAT_VERSION: u32 = 8;
