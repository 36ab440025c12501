//! What lies where on the medium: the map of `docs/formats/tags.md` in code.

pub(crate) mod catalog;
pub(crate) mod leaves;
pub(crate) mod node;
pub(crate) mod superblock;

/// The version of the format of a store without named snapshots.
pub(crate) const FORMAT_VERSION: u32 = 8;
/// The version of one with such: a program that does not know them would give their blocks out.
pub(crate) const SNAPSHOTS_VERSION: u32 = 9;
