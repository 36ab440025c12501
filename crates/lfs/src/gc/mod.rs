//! What the cleaner decides: [`victim`] chooses the zone to empty, [`pace`] says how much to copy along with a write.
//! `core::clean` acts on it.

pub mod pace;
pub mod victim;

use victim::{Greedy, VictimPolicy};
use weft_core::ZoneId;

/// How far the cleaner is.
pub struct Cleaner {
    pub(crate) policy: Box<dyn VictimPolicy + Send>,
    /// The zone being emptied, and how far: index into its summary and blocks of that entry.
    pub(crate) victim: Option<(ZoneId, usize, u32)>,
}

impl Default for Cleaner {
    fn default() -> Self {
        Cleaner { policy: Box::new(Greedy), victim: None }
    }
}
