//! Zones and space: which zone takes which data, and how much data the volume accepts.

pub mod reserve;
pub mod slot;
pub mod space;
pub mod zone;
