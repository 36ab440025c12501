//! The operations of [`weft_vfs::FileSystem`], by what they change.

mod attrs;
mod commit;
mod data;
mod durability;
mod map;
mod name_checks;
mod names;
mod ranges;
mod xattrs;
