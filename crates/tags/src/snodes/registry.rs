//! Which homes there are, and where new s-nodes go.
//!
//! A home that a transaction has made is here from then on, so that its nodes have a place, but is visible only with
//! the commit. The id of one that is gone is given out again when the commit that deleted it is durable, no
//! transaction is open that began before it, and no reader has a hold of it: until then nobody can take an
//! old id for a new one.
//!
//! The first s-nodes have homes of their own. Later ones, which are many and hold little, share homes: there an s-node is a root and an edge
//! to it from the home's, found on pages as all edges are, so memory does not grow with their number. There
//! are the more shared homes the more s-nodes, so that transactions seldom meet in one.

use super::eras::Eras;
use crate::error::{Error, Result};
use crate::hash::Secret;
use crate::ids::{HomeId, NodeId};
use crate::layout::catalog::{Guests, HomeEntry};
use crate::partition::Partition;
use crate::sync::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// S-nodes that have homes of their own without having asked for it.
const OWN_HOMES: usize = 16;
/// Shared homes, at most, and s-nodes for each of which there is one.
pub(crate) const SHARED_HOMES: u64 = 256;
const GUESTS_A_HOME: u64 = 1024;
/// Shared homes that are tried before there is one more, or one is waited for.
pub(crate) const HOMES_TRIED: usize = 8;
/// By how much a home grows before new s-nodes go to the next, when there are as many as there can be.
const TURN_GROWTH: u32 = 4;

/// A home's share, as it is handed out.
pub(crate) type SharedPartition = Arc<RwLock<Partition>>;

/// The homes of an open store.
#[derive(Default)]
pub(crate) struct Registry {
    map: RwLock<FxHashMap<HomeId, Entry>>,
    ids: Mutex<Ids>,
    shared: Mutex<Vec<SharedHome>>,
    /// Of the transactions that are open.
    pub(crate) eras: Eras,
}

struct SharedHome {
    id: HomeId,
    guests: Guests,
    /// New s-nodes go there until it has so many.
    until: u32,
}

/// The home that a new s-node gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HomeChoice {
    /// To a home of its own.
    Own,
    /// To a shared home, which is to be made.
    New,
    /// To this one.
    Shared(HomeId),
}

struct Entry {
    share: SharedPartition,
    visible: bool,
}

#[derive(Default)]
struct Ids {
    /// The ids that were given out last, of a home of one s-node and of a shared one; the search goes on behind them, so that an id rests
    /// as long as can be.
    last: [u16; 2],
    retired: Vec<Retired>,
}

struct Retired {
    id: HomeId,
    /// The commit that deleted it.
    lsn: u64,
    era: u64,
    share: SharedPartition,
}

impl Registry {
    /// Adds a home that is committed.
    pub(crate) fn insert(&self, HomeEntry { id, root, guests }: HomeEntry, secret: Secret) {
        let share = Arc::new(RwLock::new(Partition::new(id, root, secret)));
        self.map.write().insert(id, Entry { share, visible: true });
        let mut ids = self.ids.lock();
        let last = &mut ids.last[usize::from(id.is_shared())];
        *last = (*last).max(id.0);
        if id.is_shared() {
            self.shared.lock().push(SharedHome { id, guests, until: 0 });
        }
    }

    /// Where a new s-node can go: when asked again somewhere else, of as many `busy` homes as it was told before.
    ///
    /// That is the smallest home. Its edges to its s-nodes lie in the order of hashes, so a new one changes any of their pages. Where no more homes
    /// are made, new s-nodes therefore go to the same home until it is several times as large: its pages are read and written about as often for
    /// each s-node however many there are.
    pub(crate) fn room(&self, is_of_class: impl Fn(HomeId) -> bool, erases: bool, busy: usize) -> HomeChoice {
        let homes = self.map.read();
        let mut shared = self.shared.lock();
        if homes.len().saturating_sub(shared.len()) < OWN_HOMES {
            return HomeChoice::Own;
        }
        let fits = |home: &&mut SharedHome| {
            let is_of_class = home.guests.erases == erases && is_of_class(home.id);
            let is_visible = homes.get(&home.id).is_some_and(|entry| entry.visible);
            is_visible && is_of_class && home.guests.last < u32::MAX
        };
        let mut fitting: Vec<_> = shared.iter_mut().filter(fits).collect();
        let guests: u64 = fitting.iter().map(|home| u64::from(home.guests.count)).sum();
        let wanted =
            if busy == HOMES_TRIED { SHARED_HOMES } else { SHARED_HOMES.min(guests / GUESTS_A_HOME) };
        if (fitting.len() as u64) < wanted.max(1) {
            return HomeChoice::New;
        }
        let growth = if fitting.len() as u64 >= SHARED_HOMES { TURN_GROWTH } else { 0 };
        let at = fitting.iter().position(|home| home.guests.count < home.until).or_else(|| {
            let (at, least) = fitting.iter_mut().enumerate().min_by_key(|(_, home)| home.guests.count)?;
            least.until = least.guests.count.saturating_mul(growth);
            Some(at)
        });
        HomeChoice::Shared(fitting[(at.unwrap_or(0) + busy) % fitting.len()].id)
    }

    /// Looks at what is known of the s-nodes of a shared home, or changes it.
    pub(crate) fn with_guests<T>(&self, home: HomeId, look: impl FnOnce(&mut Guests) -> T) -> Option<T> {
        let mut shared = self.shared.lock();
        shared.iter_mut().find(|shared| shared.id == home).map(|home| look(&mut home.guests))
    }

    /// A number for an s-node in a shared home; `None` when all were given out.
    pub(crate) fn next_number(&self, home: HomeId) -> Option<u32> {
        self.with_guests(home, |guests| {
            guests.last = guests.last.checked_add(1)?;
            Some(guests.last)
        })?
    }

    /// Notes that an s-node of this number has come to a shared home or has gone. It is committed.
    pub(crate) fn note_guest(&self, home: HomeId, number: u64, has_come: bool) {
        self.with_guests(home, |guests| {
            guests.last = guests.last.max(number as u32);
            guests.count = if has_come { guests.count + 1 } else { guests.count.saturating_sub(1) };
        });
    }

    /// Whether a shared home is one for s-nodes of the class of secure deletion.
    pub(crate) fn erases(&self, home: HomeId) -> bool {
        self.with_guests(home, |guests| guests.erases).unwrap_or(false)
    }

    /// How many s-nodes are committed.
    pub(crate) fn count(&self) -> u64 {
        let own = self.map.read().iter().filter(|(id, entry)| entry.visible && !id.is_shared()).count();
        own as u64 + self.guests().iter().map(|(_, guests)| u64::from(guests.count)).sum::<u64>()
    }

    /// What is known of the s-nodes of shared homes.
    pub(crate) fn guests(&self) -> Vec<(HomeId, Guests)> {
        self.shared.lock().iter().map(|home| (home.id, home.guests)).collect()
    }

    /// Takes a home out of a store that is being opened.
    pub(crate) fn remove(&self, id: HomeId) {
        self.map.write().remove(&id);
    }

    /// The share of a home, visible or not.
    #[inline]
    pub(crate) fn find(&self, id: HomeId) -> Option<SharedPartition> {
        self.map.read().get(&id).map(|entry| entry.share.clone())
    }

    /// The share of a home that is committed.
    pub(crate) fn find_visible(&self, id: HomeId) -> Option<SharedPartition> {
        self.map.read().get(&id).filter(|entry| entry.visible).map(|entry| entry.share.clone())
    }

    /// Whether the home is committed.
    #[inline]
    pub(crate) fn is_visible(&self, id: HomeId) -> bool {
        self.map.read().get(&id).is_some_and(|entry| entry.visible)
    }

    /// The shares of all homes, visible or not.
    pub(crate) fn all(&self) -> Vec<SharedPartition> {
        self.map.read().values().map(|entry| entry.share.clone()).collect()
    }

    /// The shares of all homes that are committed.
    pub(crate) fn visible(&self) -> FxHashMap<HomeId, SharedPartition> {
        let map = self.map.read();
        map.iter().filter(|(_, entry)| entry.visible).map(|(id, entry)| (*id, entry.share.clone())).collect()
    }

    /// The homes that are committed, in the order of their ids.
    pub(crate) fn ids(&self) -> Vec<HomeId> {
        let mut ids: Vec<_> = self.visible().into_keys().collect();
        ids.sort_unstable();
        ids
    }

    /// Makes a home that is not visible yet and has no root; `durable` is the last commit that is.
    ///
    /// # Errors
    /// [`Error::Full`] when all ids are taken.
    pub(crate) fn reserve(&self, is_shared: bool, secret: Secret, durable: u64) -> Result<HomeId> {
        let mut ids = self.ids.lock();
        (0..2).for_each(|_| self.eras.advance());
        // Nobody can find a retired share any more, so one that has no other owner now never will.
        ids.retired.retain_mut(|old| {
            let is_free =
                old.lsn <= durable && self.eras.is_past(old.era) && Arc::get_mut(&mut old.share).is_some();
            !is_free
        });
        let resting: FxHashSet<HomeId> = ids.retired.iter().map(|old| old.id).collect();
        let mut map = self.map.write();
        let range = HomeId::FIRST_SHARED.0;
        let (last, base) = (&mut ids.last[usize::from(is_shared)], if is_shared { range } else { 0 });
        let first = (last.wrapping_sub(base) + 1) % range;
        let free = (0..range)
            .map(|step| HomeId(base + (first + step) % range))
            .find(|id| id.0 != 0 && !map.contains_key(id) && !resting.contains(id));
        let Some(id) = free else {
            return Err(Error::Full { what: "ids of s-nodes with pages of their own" });
        };
        *last = id.0;
        let share = Arc::new(RwLock::new(Partition::new(id, NodeId(0), secret)));
        map.insert(id, Entry { share, visible: false });
        if is_shared {
            self.shared.lock().push(SharedHome { id, guests: Guests::default(), until: 0 });
        }
        Ok(id)
    }

    /// Makes a home visible: it is committed.
    pub(crate) fn publish(&self, id: HomeId) {
        if let Some(entry) = self.map.write().get_mut(&id) {
            entry.visible = true;
        }
    }

    /// Takes a home away whose pages are gone, by the commit `lsn`, or 0 for one that was never committed.
    pub(crate) fn retire(&self, id: HomeId, lsn: u64) {
        let mut ids = self.ids.lock();
        let Some(entry) = self.map.write().remove(&id) else { return };
        self.shared.lock().retain(|home| home.id != id);
        // The era is read after the removal: who cannot find the s-node any more does not matter.
        ids.retired.push(Retired { id, lsn, era: self.eras.now(), share: entry.share });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_rests_until_its_deletion_is_durable_and_nobody_is_left_from_before() {
        let registry = Registry::default();
        let secret = Secret(1, 2);
        // All ids but one are in use.
        let last = HomeId(HomeId::FIRST_SHARED.0 - 1);
        for id in 1..last.0 {
            let (root, guests) = (NodeId(0), Guests::default());
            registry.insert(HomeEntry { id: HomeId(id), root, guests }, secret);
        }
        let only = registry.reserve(false, secret, 0).unwrap();
        assert_eq!((only, registry.is_visible(only)), (last, false));
        assert!(registry.reserve(true, secret, 0).unwrap().is_shared());
        assert!(matches!(registry.reserve(false, secret, 0), Err(Error::Full { .. })));
        registry.publish(only);
        assert!(registry.is_visible(only));
        let open = registry.eras.enter();
        let reader = registry.find(only).unwrap();
        registry.retire(only, 10);
        assert!(registry.find(only).is_none());
        assert!(
            registry.reserve(false, secret, 9).is_err(),
            "a transaction is open, a reader has it, it is not durable"
        );
        registry.eras.leave(open);
        assert!(registry.reserve(false, secret, 9).is_err(), "a reader has it, it is not durable");
        drop(reader);
        assert!(registry.reserve(false, secret, 9).is_err(), "it is not durable");
        assert_eq!(registry.reserve(false, secret, 10).unwrap(), only);
    }

    #[test]
    fn new_s_nodes_go_to_small_homes_in_turn_and_stay_with_a_home_where_all_there_can_be_are_large() {
        let registry = Registry::default();
        let insert = |id: u16, count| {
            let guests = Guests { count, ..Guests::default() };
            registry.insert(HomeEntry { id: HomeId(id), root: NodeId(0), guests }, Secret(1, 2));
        };
        (1..=OWN_HOMES as u16).for_each(|id| insert(id, 0));
        let first = HomeId::FIRST_SHARED.0;
        let take = || match registry.room(|_| true, false, 0) {
            HomeChoice::Shared(home) => {
                let number = registry.next_number(home).unwrap();
                registry.note_guest(home, number.into(), true);
                Some(home.0 - first)
            }
            HomeChoice::Own | HomeChoice::New => None,
        };
        (0..4).for_each(|at| insert(first + at, 1000));
        assert_eq!((0..6).map(|_| take().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1]);
        (4..SHARED_HOMES as u16).for_each(|at| insert(first + at, 1024));
        let taken: Vec<u16> = (0..9_012).map(|_| take().unwrap()).collect();
        let turns: Vec<_> = taken.chunk_by(|a, b| a == b).map(|turn| (turn[0], turn.len())).collect();
        assert_eq!(turns, [(2, 3003), (3, 3003), (0, 3006)]);
    }
}
