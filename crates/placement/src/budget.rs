//! How many places may be open at once.
//!
//! Every open zone holds, on average, half a zone of capacity that nothing else can use, and data that is kept apart
//! dies apart only if there is room to wait for it. So the number of streams that are really kept apart follows the
//! free zones: plenty when the device is empty, one when the cleaner is at its reserve.

/// Zones of the device for each place, at most: even if every open zone were empty, they would hold an eighth of it.
const ZONES_PER_SLOT: usize = 8;
/// Places for each free zone: with the two or three free zones at which a cleaner keeps a full device, four to six
/// streams are still kept apart; on the last free zone two are, then one.
const SLOTS_PER_FREE: usize = 2;
/// Places that even a small device has while it has free zones: the cleaner, and three kinds of data.
const SLOTS_LEAST: usize = 4;

/// Places (open zones) that programs' and relocated data may use now.
///
/// `free_zones` counts empty zones, `total_zones` all that can hold data, `open_max` those that the device lets be
/// open, less what the file core needs for itself. The result is between 1 and `open_max.max(1)`, never falls when
/// `free_zones` rises, and is stable as long as the inputs are.
pub fn budget(free_zones: usize, total_zones: usize, open_max: usize) -> usize {
    let by_size = (total_zones / ZONES_PER_SLOT).max(SLOTS_LEAST);
    let by_free = free_zones.saturating_mul(SLOTS_PER_FREE);
    open_max.min(by_size).min(by_free).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_large_device_uses_every_open_zone_it_has() {
        assert_eq!(budget(904, 904, 12), 12);
    }

    #[test]
    fn a_small_device_is_not_eaten_up_by_open_zones() {
        assert_eq!(budget(64, 64, 14), 8);
        assert_eq!(budget(16, 16, 14), 4);
    }

    #[test]
    fn streams_are_given_up_one_by_one_as_free_zones_run_out() {
        let slots: Vec<usize> = [40, 7, 6, 5, 4, 3, 2, 1, 0].map(|free| budget(free, 512, 14)).to_vec();
        assert_eq!(slots, [14, 14, 12, 10, 8, 6, 4, 2, 1]);
    }

    #[test]
    fn one_place_is_always_left() {
        assert_eq!(budget(0, 0, 0), 1);
        assert_eq!(budget(100, 100, 0), 1);
    }

    proptest! {
        #[test]
        fn the_budget_stays_within_its_bounds_and_never_falls_with_more_free_zones(
            free in 0usize..2000, total in 0usize..2000, open_max in 0usize..64,
        ) {
            let slots = budget(free, total, open_max);
            prop_assert!((1..=open_max.max(1)).contains(&slots));
            prop_assert!(budget(free + 1, total, open_max) >= slots);
        }
    }
}
