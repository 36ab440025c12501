//! The operations of [`weft_vfs::FileSystem`], by what they change.

mod attrs;
mod data;
mod durability;
mod map;
mod names;
mod ranges;
mod xattrs;
