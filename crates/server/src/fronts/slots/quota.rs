//! The limit on the sockets that one user may have at the server.
//!
//! Each socket costs the server descriptors and threads. A user who may connect could take all of them, and the server would
//! serve nobody else any more, not even the volume's owner. So a user other than the server's own and the superuser may have
//! at most half of the sockets for which the server's descriptors suffice. A socket counts from the moment the server
//! accepts it, before its first byte.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Descriptors that a connection takes: its socket, once more for those who end it, and its channel's memory.
const DESCRIPTORS: u64 = 3;
/// Sockets that a user may have however few descriptors there are.
const SOCKETS_MIN: usize = 16;

/// Sockets by user.
pub struct Quota {
    /// The user who may have any number.
    own: u32,
    of_user_max: usize,
    taken: Mutex<FxHashMap<u32, usize>>,
}

/// The right to one socket, given back when it is dropped.
pub struct Permit {
    quota: Arc<Quota>,
    uid: u32,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

impl Quota {
    /// As many sockets as this process's descriptors allow.
    pub fn of_process() -> Arc<Quota> {
        let half = weft_sys::file::descriptors_max() / DESCRIPTORS / 2;
        Quota::new(weft_sys::effective_user().0, usize::try_from(half).unwrap_or(usize::MAX))
    }

    fn new(own: u32, of_user_max: usize) -> Arc<Quota> {
        Arc::new(Quota { own, of_user_max: of_user_max.max(SOCKETS_MIN), taken: Mutex::default() })
    }

    /// A permit for one more socket of this user; `None` when the user has all that it may have.
    pub fn take(self: &Arc<Self>, uid: u32) -> Option<Permit> {
        let mut taken = self.taken.lock();
        let count = taken.entry(uid).or_insert(0);
        if *count >= self.of_user_max && uid != self.own && uid != 0 {
            return None;
        }
        *count += 1;
        Some(Permit { quota: self.clone(), uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_may_have_so_many_sockets_and_the_servers_user_and_the_superuser_any_number() {
        let quota = Quota::new(500, 20);
        let mut held: Vec<Option<Permit>> = (0..20).map(|_| quota.take(1001)).collect();
        assert!(held.iter().all(Option::is_some) && quota.take(1001).is_none());
        assert!([500, 0].iter().all(|uid| (0..100).all(|_| quota.take(*uid).is_some())));
        assert!(quota.take(1002).is_some(), "another user has a quota of its own");
        held.pop();
        assert!(quota.take(1001).is_some(), "a permit that is given back is free");
        drop(held);
        assert!(quota.taken.lock().is_empty());
    }
}
