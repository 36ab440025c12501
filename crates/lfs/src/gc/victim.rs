//! The victim policy: which zone the cleaner empties next.

use weft_core::ZoneId;

/// A zone that could be cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The zone.
    pub zone: ZoneId,
    /// Bytes that its live data needs elsewhere.
    pub live: u64,
    /// Bytes that a zone takes.
    pub size: u64,
    /// Number of its opening: smaller is older.
    pub sequence: u64,
}

/// Chooses a victim. Pure: it sees the candidates and nothing else.
pub trait VictimPolicy {
    /// The zone to clean next.
    fn pick(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<ZoneId>;
}

/// The zone with the least live data; the older of two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl VictimPolicy for Greedy {
    fn pick(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<ZoneId> {
        candidates.min_by_key(|c| (c.live, c.sequence)).map(|c| c.zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_emptiest_zone_and_the_older_of_two() {
        let c = |zone, live, sequence| Candidate { zone: ZoneId(zone), live, size: 100, sequence };
        assert_eq!(Greedy.pick(&mut [c(1, 50, 1), c(2, 20, 9), c(3, 20, 4)].into_iter()), Some(ZoneId(3)));
        assert_eq!(Greedy.pick(&mut std::iter::empty()), None);
    }
}
