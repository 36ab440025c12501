//! The parts of a volume's device that programs read without the server.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use weft_sys::SharedMemory;

/// What clients may read by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageKind {
    /// The device: the file is its image.
    Device,
    /// What is cached of the device: the file has this many bytes, laid out as [`weft_core::cached`] says.
    Cache(u64),
    /// Nothing: the server copies for them what they have asked for. The file may be any.
    Copies,
    /// Nothing. Their maps stay empty, and the server reads for them; the file may be any. They append by themselves all
    /// the same.
    Nothing,
}

/// What clients need to read the device without the server.
#[derive(Debug)]
pub struct DirectImage {
    /// The image; opened read-only.
    pub file: OwnedFd,
    /// Offset of zone 0 in the file.
    pub base: u64,
    /// Whether it may be mapped.
    pub mappable: bool,
    /// Of what use the file is to clients.
    pub kind: ImageKind,
    /// Bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Device blocks.
    pub device_blocks: u64,
    /// The CRC32C table that the core keeps: one `u32` per device block.
    pub crc: Arc<SharedMemory>,
}
