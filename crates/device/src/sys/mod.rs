//! What needs the operating system beyond the standard library, each call with a safe face.

pub mod aio;
pub mod aligned;
pub mod direct;
pub mod file;
pub mod map;
pub mod pool;
pub mod zone_ioctl;
