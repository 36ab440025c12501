//! The begins of snapshots, which threads make together.

use crate::ids::HomeId;
use crate::snodes::registry::SharedPartition;
use crate::sync::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of a snapshot.
#[derive(Clone)]
pub(crate) struct Begun {
    pub stamp: u64,
    pub commit: u64,
    pub shares: Arc<FxHashMap<HomeId, SharedPartition>>,
}

/// Who begins snapshots.
///
/// A begin keeps commits away. Those that come while one waits for the commits under way wait for the next turn, and begin together: one
/// state is as good as another for all of them. So a commit waits for one begin, or two, however many threads begin snapshots.
#[derive(Default)]
pub(crate) struct Begins {
    pub turns: Mutex<Turns>,
    pub ended: Condvar,
}

#[derive(Default)]
pub(crate) struct Turns {
    /// Turns that have begun: nobody can come to them any more.
    pub begun: u64,
    /// Who comes to the next one.
    pub coming: usize,
    /// Somebody is about to begin the next turn, or is at it.
    pub is_led: bool,
    /// Turns that have ended, with what began then and how many have not taken it yet.
    pub ended: BTreeMap<u64, (Begun, usize)>,
}
