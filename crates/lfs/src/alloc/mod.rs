//! Zones and space: who may write where, and how much fits.

pub mod reserve;
pub mod slot;
pub mod space;
pub mod zone;
