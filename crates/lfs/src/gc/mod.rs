//! What the cleaner decides: [`Cleaner`] holds the zone that it empties, [`pace`] says how much to copy along with a write.
//! `core::clean` acts on it.

pub mod pace;

use weft_core::ZoneId;
use weft_device::gc::VictimPolicy;

/// Which zone is emptied next.
pub const POLICY: VictimPolicy = VictimPolicy::Greedy;

/// A place in a zone's summary: the entry, and blocks of it.
pub type SummaryPlace = (usize, u32);

/// How far the cleaner is.
#[derive(Default)]
pub struct Cleaner {
    /// The zone being emptied, and what of it comes next.
    victim: Option<(ZoneId, SummaryPlace)>,
}

impl Cleaner {
    /// The zone being emptied.
    pub fn victim(&self) -> Option<ZoneId> {
        self.victim.map(|(zone, _)| zone)
    }

    /// The zone being emptied, and what of it comes next.
    pub fn place(&self) -> Option<(ZoneId, SummaryPlace)> {
        self.victim
    }

    /// Goes on there in this zone, or with another zone if there is no more of it.
    pub fn go_on(&mut self, zone: ZoneId, next: Option<SummaryPlace>) {
        self.victim = next.map(|next| (zone, next));
    }

    /// Forgets the place in a zone: it died by itself, and its next life has another summary.
    pub fn forget(&mut self, zone: ZoneId) {
        if self.victim() == Some(zone) {
            self.victim = None;
        }
    }
}
