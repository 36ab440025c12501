//! Lifetime groups: which files of a stream share one.

use crate::context::FileContext;
use crate::hash::stable_hash;
use crate::name;
use crate::policy::{GroupKey, GroupSpec, Window};
use parking_lot::Mutex;
use weft_core::LifetimeGroup;

/// Gives the files of one stream their groups.
#[derive(Debug)]
pub struct Grouper {
    spec: GroupSpec,
    /// Who holds which slot; at most `spec.slots` entries.
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    entries: Vec<Holder>,
    clock: u64,
}

#[derive(Debug)]
struct Holder {
    key: u64,
    used: u64,
}

impl Grouper {
    /// A grouper that has seen no file.
    pub fn new(spec: GroupSpec) -> Grouper {
        Grouper { spec, holders: Mutex::new(Holders::default()) }
    }

    /// How it groups.
    pub fn spec(&self) -> GroupSpec {
        self.spec
    }

    /// The group of a file. The same key within the same window has the same group for as long as it holds its slot.
    pub fn group(&self, ctx: &FileContext<'_>) -> LifetimeGroup {
        let slot = self.key(ctx).map_or(0, |key| self.holders.lock().take(key, self.spec.slots));
        self.number(ctx, slot)
    }

    /// The group that [`Grouper::group`] would give, without giving it.
    pub fn peek(&self, ctx: &FileContext<'_>) -> LifetimeGroup {
        let slot = self.key(ctx).map_or(0, |key| self.holders.lock().find(key, self.spec.slots));
        self.number(ctx, slot as u64)
    }

    fn number(&self, ctx: &FileContext<'_>, slot: u64) -> LifetimeGroup {
        let window = match self.spec.window {
            Window::Endless => 0,
            Window::Bytes(bytes) => ctx.volume_bytes / bytes.max(1),
            Window::Time(time) => (ctx.now.as_nanos() / time.as_nanos().max(1)) as u64,
        };
        // Groups wrap round: two that have the same number are thousands of windows apart.
        LifetimeGroup(window.wrapping_mul(u64::from(self.spec.slots)).wrapping_add(slot) as u16)
    }

    fn key(&self, ctx: &FileContext<'_>) -> Option<u64> {
        match self.spec.key {
            GroupKey::Stream => None,
            GroupKey::Thread if ctx.thread_id != 0 => Some(u64::from(ctx.thread_id)),
            GroupKey::Thread => Some(stable_hash(&[ctx.thread.as_bytes()])),
            GroupKey::File => Some(stable_hash(&[ctx.path])),
            GroupKey::Directory => Some(stable_hash(&[name::split(ctx.path).0])),
        }
    }
}

impl Holders {
    /// The slot of a key: the one it has, else a free one, else that of the key unused for longest.
    fn find(&self, key: u64, slots: u16) -> usize {
        if let Some(at) = self.entries.iter().position(|h| h.key == key) {
            return at;
        }
        if self.entries.len() < usize::from(slots) {
            return self.entries.len();
        }
        (0..self.entries.len()).min_by_key(|&at| self.entries[at].used).unwrap_or(0)
    }

    fn take(&mut self, key: u64, slots: u16) -> u64 {
        self.clock += 1;
        let at = self.find(key, slots);
        let holder = Holder { key, used: self.clock };
        match self.entries.get_mut(at) {
            Some(entry) => *entry = holder,
            None => self.entries.push(holder),
        }
        debug_assert!(self.entries.len() <= usize::from(slots.max(1)), "more groups than slots");
        debug_assert_eq!(self.entries.iter().filter(|entry| entry.key == key).count(), 1);
        at as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn by_thread(grouper: &Grouper, thread_id: u32) -> u16 {
        grouper.group(&FileContext { thread_id, ..FileContext::new(b"/a") }).0
    }

    #[test]
    fn threads_have_groups_of_their_own_and_keep_them() {
        let grouper = Grouper::new(GroupSpec { key: GroupKey::Thread, slots: 2, window: Window::Endless });
        let (one, two) = (by_thread(&grouper, 1), by_thread(&grouper, 2));
        assert_ne!(one, two);
        assert_eq!((by_thread(&grouper, 1), by_thread(&grouper, 2)), (one, two));
    }

    #[test]
    fn the_key_unused_for_longest_gives_up_its_group() {
        let grouper = Grouper::new(GroupSpec { key: GroupKey::Thread, slots: 2, window: Window::Endless });
        let (one, two) = (by_thread(&grouper, 1), by_thread(&grouper, 2));
        assert_eq!(by_thread(&grouper, 1), one);
        let three = FileContext { thread_id: 3, ..FileContext::new(b"/a") };
        assert_eq!((grouper.peek(&three).0, grouper.peek(&three).0), (two, two));
        assert_eq!(by_thread(&grouper, 3), two);
        assert_eq!(by_thread(&grouper, 1), one);
    }

    #[test]
    fn a_window_begins_a_new_group() {
        let at = |grouper: &Grouper, volume_bytes, seconds| {
            let now = Duration::from_secs(seconds);
            grouper.group(&FileContext { volume_bytes, now, ..FileContext::new(b"/a") }).0
        };
        let bytes = Grouper::new(GroupSpec { window: Window::Bytes(100), ..GroupSpec::ONE });
        assert_eq!(at(&bytes, 0, 0), at(&bytes, 99, 50));
        assert_ne!(at(&bytes, 99, 0), at(&bytes, 100, 0));
        let time =
            Grouper::new(GroupSpec { window: Window::Time(Duration::from_secs(10)), ..GroupSpec::ONE });
        assert_eq!(at(&time, 0, 0), at(&time, 5000, 9));
        assert_ne!(at(&time, 0, 9), at(&time, 0, 10));
    }

    #[test]
    fn a_file_placed_twice_keeps_its_group() {
        let grouper = Grouper::new(GroupSpec { key: GroupKey::File, slots: 4, window: Window::Endless });
        let group = |path: &[u8]| grouper.group(&FileContext::new(path)).0;
        let first = group(b"/1.sst");
        let others: Vec<u16> = [&b"/2.sst"[..], b"/3.sst", b"/4.sst"].map(group).to_vec();
        assert!(!others.contains(&first));
        assert_eq!(group(b"/1.sst"), first);
    }
}
