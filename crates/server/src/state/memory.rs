//! How much memory the server shares with programs at most, and how much it does.

use super::shared::{ControlMemory, RingMemory};
use super::{maps::Maps, names::Published};
use weft_client::shared::names::{AttrSet, NameSet};
use weft_client::shared::volume::{MAP_PAGES_MAX, RING_BYTES, RINGS_MAX};
use weft_core::BLOCK_BYTES;
use weft_volume::SharedUse;

/// Sets of names, and of attributes, that are of use: 650,000 names and 330,000 inodes, in 48 MiB.
const SETS_MAX: usize = 1 << 16;

/// What has room in the memory that is shared. What has not is asked of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedLimits {
    /// Append rings and overwrite areas.
    pub rings: usize,
    /// Pages of block maps, listings, and copies of blocks.
    pub map_pages: usize,
    /// Sets of names, and of attributes; a power of two.
    pub name_sets: usize,
}

impl SharedLimits {
    /// Of so many bytes in all: a half for maps, a quarter for rings, an eighth for names. The rest is left to open files and inodes,
    /// which take 50 MiB when there are as many as there can be.
    pub fn of(bytes: u64) -> SharedLimits {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let sets = bytes / 8 / (size_of::<NameSet>() + size_of::<AttrSet>());
        SharedLimits {
            rings: (bytes / 4 / RING_BYTES).clamp(1, RINGS_MAX),
            map_pages: (bytes / 2 / BLOCK_BYTES).clamp(64, MAP_PAGES_MAX),
            name_sets: (1 << sets.max(1).ilog2()).min(SETS_MAX),
        }
    }
}

/// Bytes in use.
pub fn shared_use(
    limit_bytes: u64,
    control: &ControlMemory,
    maps: &Maps,
    rings: &RingMemory,
    names: Option<&Published>,
) -> SharedUse {
    SharedUse {
        limit_bytes,
        open_bytes: control.memory().used_bytes(),
        map_bytes: maps.memory().used_bytes(),
        ring_bytes: rings.memory().used_bytes(),
        name_bytes: names.map_or(0, |names| names.memory().used_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_has_room_in_the_limit() {
        for bytes in [16 << 20, 64 << 20, 300 << 20, 1 << 30, 1 << 40] {
            let SharedLimits { rings, map_pages, name_sets } = SharedLimits::of(bytes);
            let names = name_sets * (size_of::<NameSet>() + size_of::<AttrSet>());
            let all = rings * RING_BYTES + map_pages * BLOCK_BYTES + names;
            assert!(all as u64 <= bytes * 7 / 8 && name_sets.is_power_of_two() && rings > 0, "{bytes}");
        }
        assert_eq!(SharedLimits::of(1 << 30).rings, RINGS_MAX);
        assert_eq!(SharedLimits::of(0), SharedLimits { rings: 1, map_pages: 64, name_sets: 1 });
    }
}
