//! The limit on the sockets that one user may have at the server.
//!
//! Each costs the server descriptors and threads. Whoever may connect could take all of them, and nobody else, the
//! volume's owner least of all, would be served any more. So a user that is not the server's own, nor the superuser, may
//! have no more than half of what the server's descriptors suffice for. A socket counts from the moment it is accepted,
//! before its first word.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Descriptors that a connection takes: its socket, once more for those who end it, and its channel's memory.
const DESCRIPTORS: u64 = 3;
/// What a user may have however few descriptors there are.
const PLACES_MIN: usize = 16;

/// Sockets by user.
pub struct Places {
    /// Who may have any number.
    own: u32,
    of_user_max: usize,
    taken: Mutex<FxHashMap<u32, usize>>,
}

/// One socket's place, while it lives.
pub struct Place {
    places: Arc<Places>,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

impl Places {
    /// As many as this process's descriptors allow.
    pub fn of_process() -> Arc<Places> {
        let half = weft_sys::file::descriptors_max() / DESCRIPTORS / 2;
        Places::new(weft_sys::effective_user().0, usize::try_from(half).unwrap_or(usize::MAX))
    }

    fn new(own: u32, of_user_max: usize) -> Arc<Places> {
        Arc::new(Places { own, of_user_max: of_user_max.max(PLACES_MIN), taken: Mutex::default() })
    }

    /// A place for one more socket of this user; `None` when it has all that it may have.
    pub fn take(self: &Arc<Self>, uid: u32) -> Option<Place> {
        let mut taken = self.taken.lock();
        let count = taken.entry(uid).or_insert(0);
        if *count >= self.of_user_max && uid != self.own && uid != 0 {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_may_have_so_many_places_and_the_servers_user_and_the_superuser_any_number() {
        let places = Places::new(500, 20);
        let mut held: Vec<Option<Place>> = (0..20).map(|_| places.take(1001)).collect();
        assert!(held.iter().all(Option::is_some) && places.take(1001).is_none());
        assert!([500, 0].iter().all(|uid| (0..100).all(|_| places.take(*uid).is_some())));
        assert!(places.take(1002).is_some(), "another user has places of his own");
        held.pop();
        assert!(places.take(1001).is_some(), "a place that is given back is free");
        drop(held);
        assert!(places.taken.lock().is_empty());
    }
}
