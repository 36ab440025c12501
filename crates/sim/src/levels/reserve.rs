//! Chooses how many slabs a cache keeps free.
//!
//! A cache that does not see the flash keeps a fixed share. One that does keeps as many as the rates ask for, after
//! DIDACache (Shen et al., FAST 2017): slabs are asked for at the rate **lambda** and come back at the rate **mu** while
//! the cleaner works; of a queue like this (M/M/1) lambda / (mu - lambda) requests are under way on average. The cache
//! keeps so many slabs free, and a margin.

use weft_core::Nanos;

/// How many slabs are kept free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// So many thousandths of all slabs.
    Fixed {
        /// Share of the slabs, in thousandths.
        permille: u32,
    },
    /// As many as the rates of use and of cleaning ask for.
    Rates,
}

/// Slabs opened from one look at the rates to the next.
const WINDOW: u64 = 64;
/// Slabs kept free at least: the one that copies go to, and one for new data.
const MARGIN: usize = 2;
/// Most slabs kept free by the rates: one in so many.
const SHARE_MOST: usize = 4;

/// The rates as a cache sees them, and the slabs that it keeps free by them.
#[derive(Clone, Debug)]
pub(super) struct RateMonitor {
    kind: Reserve,
    slabs: usize,
    reserve: usize,
    /// Since then, all of the rest.
    since: Nanos,
    opened: u64,
    /// Slabs that cleaning gained, without those that its copies filled.
    gained: f64,
    busy_ns: u64,
}

impl RateMonitor {
    pub fn new(kind: Reserve, slabs: u32) -> RateMonitor {
        let reserve = match kind {
            Reserve::Fixed { permille } => (u64::from(slabs) * u64::from(permille) / 1000) as usize,
            Reserve::Rates => 0,
        };
        let (slabs, reserve) = (slabs as usize, reserve.max(MARGIN));
        RateMonitor { kind, slabs, reserve, since: Nanos(0), opened: 0, gained: 0.0, busy_ns: 0 }
    }

    /// Slabs to keep free.
    pub fn reserve(&self) -> usize {
        self.reserve
    }

    /// A slab was opened for new data.
    pub fn opened(&mut self, now: Nanos) {
        self.opened += 1;
        if self.kind == Reserve::Rates && self.opened == WINDOW && self.busy_ns > 0 {
            let lambda = self.opened as f64 / now.0.saturating_sub(self.since.0).max(1) as f64;
            let mu = self.gained / self.busy_ns as f64;
            let most = self.slabs / SHARE_MOST;
            let waiting = if mu > lambda { (lambda / (mu - lambda)).ceil() as usize } else { most };
            self.reserve = (waiting + MARGIN).min(most).max(MARGIN);
        }
        if self.opened == WINDOW {
            *self = RateMonitor { since: now, opened: 0, gained: 0.0, busy_ns: 0, ..*self };
        }
    }

    /// Cleaning a slab gained so much of one, and took so long.
    pub fn cleaned(&mut self, gained: f64, took_ns: u64) {
        self.gained += gained;
        self.busy_ns += took_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reserve after windows in which a slab is opened every `every_ns`, and cleaning half a slab takes 1 ms.
    fn after(watch: &mut RateMonitor, now: &mut Nanos, windows: u64, every_ns: u64) -> usize {
        for _ in 0..windows * WINDOW {
            (0..2).for_each(|_| watch.cleaned(0.5, 1_000_000));
            now.0 += every_ns;
            watch.opened(*now);
        }
        watch.reserve()
    }

    #[test]
    fn the_reserve_follows_the_rates_within_a_window_and_has_bounds() {
        let (mut watch, mut now) = (RateMonitor::new(Reserve::Rates, 1000), Nanos(0));
        assert_eq!(watch.reserve(), MARGIN);
        assert_eq!(after(&mut watch, &mut now, 1, 20_000_000), 1 + MARGIN);
        // Nearly as many as cleaning can give back, one in 2 ms: lambda / (mu - lambda) is 6.7.
        assert_eq!(after(&mut watch, &mut now, 1, 2_300_000), 7 + MARGIN);
        assert_eq!(after(&mut watch, &mut now, 1, 1_500_000), 250, "a quarter is the most");
        assert_eq!(after(&mut watch, &mut now, 1, 20_000_000), 1 + MARGIN);
        let mut fixed = RateMonitor::new(Reserve::Fixed { permille: 250 }, 1000);
        assert_eq!(after(&mut fixed, &mut now, 3, 1_500_000), 250);
    }
}
