//! Room that is about to come on a full volume.
//!
//! The kernel gives up the last use of a file that was closed, and then its inode, by requests that nobody waits for. A program that
//! removes a file and then writes would find the volume as full as it was.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use weft_sys::clock::monotonic_ns;

/// How long after a name was removed its room comes at the latest.
const COMES: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(2);

/// When names were removed.
#[derive(Default)]
pub struct Room {
    /// The last time, in nanoseconds of the system's monotonic clock; 0 for never.
    removed: AtomicU64,
}

impl Room {
    /// A name was removed.
    pub fn note_removed(&self) {
        self.removed.store(monotonic_ns(), Relaxed);
    }

    /// Calls `again` until it returns true, as long as room may come of what was removed before the call; but not when `may_wait`, which is
    /// called once before, says no.
    pub fn wait(&self, may_wait: &mut dyn FnMut() -> bool, mut again: impl FnMut() -> bool) {
        let removed = self.removed.load(Relaxed);
        let until = removed + COMES.as_nanos() as u64;
        if removed == 0 || monotonic_ns() >= until || !may_wait() {
            return;
        }
        while monotonic_ns() < until {
            thread::sleep(PAUSE);
            if again() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_waited_for_after_a_removal_and_not_for_ever() {
        let room = Room::default();
        let tries = |may_wait: bool, enough: u32| {
            let mut tries = 0;
            let again = || {
                // Others go on to remove.
                room.note_removed();
                tries += 1;
                tries == enough
            };
            room.wait(&mut || may_wait, again);
            tries
        };
        assert_eq!(tries(true, 1), 0, "nothing was removed");
        room.note_removed();
        assert_eq!((tries(true, 3), tries(false, 1)), (3, 0));
        assert!(tries(true, u32::MAX) > 0);
    }
}
