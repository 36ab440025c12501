//! The image: a file that holds a device. Every byte of it is described in `docs/formats/device-image.md`.

pub mod frame;
pub mod header;
pub mod log;
pub mod record;
pub mod slot;
pub mod spare;
pub mod table;
