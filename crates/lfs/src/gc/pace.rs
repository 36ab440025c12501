//! How much the cleaner copies along with a program's write.
//!
//! To gain one block from a victim of which `live` of `size` bytes live, `live / (size - live)` blocks must be copied.
//! Copying that many for each block written keeps the free zones where they are; up to twice that, as they run out,
//! brings them back. So no write has to wait for a whole zone to be cleaned.

/// Blocks to copy for a write of `blocks` blocks, with `free` free zones where cleaning starts below `mark` and writers
/// get none below `floor`.
pub fn quota(blocks: u32, free: u32, floor: u32, mark: u32, live: u64, size: u64) -> u32 {
    let gain = size.saturating_sub(live).max(size / 256).max(1);
    let steady = f64::from(blocks) * live as f64 / gain as f64;
    let range = f64::from(mark.saturating_sub(floor).max(1));
    let scarcity = (1.0 - f64::from(free.saturating_sub(floor)) / range).clamp(0.0, 1.0);
    (steady * (0.5 + 1.5 * scarcity)).ceil().min(65_536.0) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewer_zones_are_free_the_more_is_copied() {
        let mut last = 0;
        for free in (0..=10).rev() {
            let q = quota(64, free, 2, 10, 900, 1000);
            assert!(q >= last, "{free} free");
            last = q;
        }
        assert!(quota(64, 2, 2, 10, 900, 1000) >= 2 * 64 * 9);
    }

    #[test]
    fn an_empty_victim_costs_next_to_nothing_and_a_full_one_is_bounded() {
        assert_eq!(quota(1000, 2, 2, 10, 0, 1000), 1);
        assert!(quota(1000, 0, 2, 10, 1000, 1000) <= 65_537);
    }
}
