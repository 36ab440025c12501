//! Names that the kernel keeps: those that it was allowed to keep while the mount alone used the volume. Before others come, it is told
//! of each that it is to look it up again.
//!
//! It is not told to drop them: with a directory that it drops, mounts below it go.
//!
//! A name that the kernel asks for again, it is about to keep for as long as the answer says, and nothing shows when it has read the
//! answer. Answers of the last moment are therefore recalled again, a little later.

use crate::abi::{InvalEntryOut, notice};
use crate::channel::Channel;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use weft_core::Ino;

/// Names that the kernel may keep.
const NAMES_MAX: usize = 1 << 20;
/// Within this time the kernel has read an answer, unless it does not get to run.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// Recent answers that are remembered.
const RECENT_MAX: usize = 1 << 16;

/// A name in a directory.
pub type Entry = (Ino, Box<[u8]>);

/// All names that the kernel keeps, perhaps.
#[derive(Default)]
pub struct Entries(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    names: FxHashSet<Entry>,
    recent: VecDeque<(Instant, Entry)>,
}

impl Entries {
    /// The kernel may be allowed to keep a name. False when there are too many.
    pub fn add(&self, dir: Ino, name: &[u8]) -> bool {
        let mut kept = self.0.lock();
        let now = Instant::now();
        while kept.recent.front().is_some_and(|(when, _)| now.duration_since(*when) > READ_WITHIN) {
            kept.recent.pop_front();
        }
        if kept.names.len() >= NAMES_MAX || kept.recent.len() >= RECENT_MAX {
            return false;
        }
        kept.recent.push_back((now, (dir, name.into())));
        kept.names.insert((dir, name.into()));
        true
    }

    /// The kernel calls by this name what it has kept by another one.
    pub fn moved(&self, dir: Ino, name: &[u8]) {
        self.0.lock().names.insert((dir, name.into()));
    }

    /// A name is no more.
    pub fn remove(&self, dir: Ino, name: &[u8]) {
        self.0.lock().names.remove(&(dir, Box::from(name)));
    }

    /// Has the kernel look all names up again. Those whose answers it may not have read yet.
    pub fn recall(&self, channel: &Channel) -> Vec<Entry> {
        let mut all_recent = Vec::new();
        loop {
            let Kept { names, recent } = std::mem::take(&mut *self.0.lock());
            if names.is_empty() {
                return all_recent;
            }
            // Each waits for what is being done in the directory. A rename adds the new name before it is answered, so that the next
            // round finds it.
            names.iter().for_each(|entry| recall(channel, entry));
            let now = Instant::now();
            let is_recent = |when: Instant| now.duration_since(when) <= READ_WITHIN;
            all_recent
                .extend(recent.into_iter().filter(|(when, _)| is_recent(*when)).map(|(_, entry)| entry));
        }
    }
}

/// Has the kernel look a name up again.
pub fn recall(channel: &Channel, (dir, name): &Entry) {
    let head = InvalEntryOut { parent: dir.0, name_len: name.len() as u32, flags: notice::EXPIRE_ONLY };
    match channel.notify_with(notice::INVAL_ENTRY, &head, &[&**name, &[0]].concat()) {
        // It does not keep it any more, or the mount has ended.
        Err(error)
            if error.kind() != io::ErrorKind::NotFound
                && !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOTCONN | libc::ENOTDIR)) =>
        {
            tracing::warn!(%error, "the kernel does not look a name up again");
        }
        _ => {}
    }
}
