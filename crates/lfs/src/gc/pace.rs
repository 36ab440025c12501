//! How much the cleaner copies along with a program's write.
//!
//! Cleaning early is waste: what is copied now may have died by itself a little later. Cleaning late makes a write wait
//! for a whole zone. So copying begins when the room that is left would be written in the time that it takes at
//! [`RATE`] blocks for each block written, and then goes on as fast as the room goes: it ends just in time.

/// Blocks copied for a block that a program writes, while that is enough.
pub const RATE: u64 = 8;

/// Blocks to copy for a write of `blocks` blocks, where `room` blocks can be written before a writer has to wait and
/// `work` blocks have to be copied until there is room again.
pub fn quota(blocks: u32, room: u64, work: u64) -> u32 {
    // A writer that has no room left waits for all of it, elsewhere.
    if room == 0 || room * RATE >= work {
        return 0;
    }
    let blocks = u64::from(blocks).min(room);
    (blocks * work).div_ceil(room).min(u64::from(u32::MAX)) as u32
}

/// Blocks to copy until one more zone is free: victims of which `live` of `size` blocks live, `rest` in the first, are
/// copied to a zone with `room` blocks of room and to those freed before.
pub fn work_for_a_zone(live: u64, rest: u64, size: u64, room: u64) -> u64 {
    let gain = size.saturating_sub(live).max(1);
    let victims = size.saturating_sub(room).div_ceil(gain).max(1);
    rest + (victims - 1) * live
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_copied_while_there_is_room_and_more_and_more_as_it_goes() {
        assert_eq!(quota(64, 1000, 8000), 0);
        assert_eq!(quota(64, 0, 8000), 0);
        let mut last = 0;
        for room in (64..1000).rev().step_by(100) {
            let q = quota(64, room, 8000);
            assert!(q > last, "{room} blocks of room");
            last = q;
        }
    }

    #[test]
    fn the_work_is_done_when_the_room_is_gone() {
        for (mut room, mut work) in [(1000u64, 9000u64), (300, 5000), (1, 50), (77, 1000)] {
            while room > 0 {
                let now = room.min(64);
                work -= u64::from(quota(64, room, work)).min(work);
                room -= now;
            }
            assert_eq!(work, 0);
        }
    }

    #[test]
    fn the_work_for_a_zone_is_one_victim_if_its_data_fits_and_many_if_they_gain_little() {
        assert_eq!(work_for_a_zone(400, 100, 1000, 400), 100);
        assert_eq!(work_for_a_zone(500, 500, 1000, 0), 1000);
        assert_eq!(work_for_a_zone(900, 900, 1000, 0), 9000);
        assert_eq!(work_for_a_zone(1000, 1000, 1000, 0), 1_000_000);
    }
}
