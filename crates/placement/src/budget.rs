//! How many zones may be open for placement at once.
//!
//! Every open zone holds, on average, half a zone of capacity that nothing else can use, and data that is kept apart
//! dies apart only if there is room to wait for it. So the number of streams that are really kept apart follows the
//! space that holds nothing live, wherever it is: plenty when the device is empty, one when it is full. Empty zones
//! alone would be a bad measure: a cleaner that works as late as it can keeps few of them all the time.

/// Zones of the device for each place, at most: even if every open zone were empty, they would hold an eighth of it.
const ZONES_PER_SLOT: usize = 8;
/// Places for each zone's worth of dead space: even half of it stays for what dies and is not cleaned yet.
const SLOTS_PER_DEAD: usize = 1;
/// Places that even a small device has while it has room: the cleaner, and three kinds of data.
const SLOTS_LEAST: usize = 4;

/// Places (open zones) that programs' and relocated data may use now.
///
/// `dead_zones` is the space that holds nothing live, beside what the file core keeps for itself, in whole zones;
/// `total_zones` counts all that can hold data, `open_max` those that the device lets be open, less what the file core
/// needs for itself. The result is between 1 and `open_max.max(1)`, never falls when `dead_zones` rises, and is stable
/// as long as the inputs are.
pub fn budget(dead_zones: usize, total_zones: usize, open_max: usize) -> usize {
    let by_size = (total_zones / ZONES_PER_SLOT).max(SLOTS_LEAST);
    let by_dead = dead_zones.saturating_mul(SLOTS_PER_DEAD);
    open_max.min(by_size).min(by_dead).max(1)
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
    fn streams_are_given_up_one_by_one_as_the_device_fills() {
        let slots: Vec<usize> = [40, 14, 12, 6, 3, 2, 1, 0].map(|dead| budget(dead, 512, 14)).to_vec();
        assert_eq!(slots, [14, 14, 12, 6, 3, 2, 1, 1]);
    }

    #[test]
    fn one_place_is_always_left() {
        assert_eq!(budget(0, 0, 0), 1);
        assert_eq!(budget(100, 100, 0), 1);
    }

    proptest! {
        #[test]
        fn the_budget_stays_within_its_bounds_and_never_falls_with_more_dead_space(
            dead in 0usize..2000, total in 0usize..2000, open_max in 0usize..64,
        ) {
            let slots = budget(dead, total, open_max);
            prop_assert!((1..=open_max.max(1)).contains(&slots));
            prop_assert!(budget(dead + 1, total, open_max) >= slots);
        }
    }
}
