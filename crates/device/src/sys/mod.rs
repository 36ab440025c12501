//! What devices alone need of the operating system, each call with a safe face.

pub mod aio;
pub mod pool;
pub mod zone_ioctl;
