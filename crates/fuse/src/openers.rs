//! Names of the threads that open files: placement tells files apart by the thread that makes them.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_server::ops::Opener;

/// A thread seldom changes its name, and asking for it costs more than the rest of an open.
const KEPT: Duration = Duration::from_secs(1);
/// Threads that are remembered.
const THREADS_MAX: usize = 1024;

/// Threads with the names that they had a moment ago.
#[derive(Default)]
pub struct Openers(Mutex<FxHashMap<u32, (Arc<str>, Instant)>>);

impl Openers {
    /// The thread of this number.
    pub fn of(&self, thread: u32) -> Opener {
        let now = Instant::now();
        let mut all = self.0.lock();
        let name = match all.get(&thread) {
            Some((name, since)) if now.duration_since(*since) < KEPT => name.clone(),
            _ => {
                if all.len() >= THREADS_MAX {
                    all.clear();
                }
                let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
                let name: Arc<str> = name.trim_end().into();
                all.insert(thread, (name.clone(), now));
                name
            }
        };
        Opener { thread: (*name).into(), thread_id: thread }
    }
}
