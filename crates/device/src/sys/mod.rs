//! System calls that only devices need, each behind a safe function.

pub mod aio;
pub mod pool;
pub mod zone_ioctl;
