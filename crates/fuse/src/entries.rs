//! Names that the kernel keeps: those that it was allowed to keep while the mount alone used the volume. Before others come, it is told
//! of each that it is to look it up again.
//!
//! It is not told to drop them: with a directory that it drops, mounts below it go.
//!
//! Names beyond as many as are kept here make room: the kernel is told to look up again those that it was allowed to keep before.
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
/// A part of them, which makes room at the same time.
const LEAVING: usize = 8;
/// Recent answers that are remembered.
const RECENT_MAX: usize = 1 << 16;

/// A name in a directory.
pub type Entry = (Ino, Box<[u8]>);

/// Why the kernel may not keep a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooMany {
    /// It may keep others in a moment.
    ForNow,
    /// It may, once somebody has [made room](Entries::make_room).
    MakeRoom,
}

/// All names that the kernel keeps, perhaps.
pub struct Entries {
    kept: Mutex<Kept>,
    names_max: usize,
}

#[derive(Default)]
struct Kept {
    names: FxHashSet<Entry>,
    /// Those of which the kernel is being told, to make room.
    leaving: FxHashSet<Entry>,
    recent: VecDeque<(Instant, Entry)>,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries { kept: Mutex::default(), names_max: NAMES_MAX }
    }
}

impl Entries {
    /// The kernel may be allowed to keep a name. When there are too many, it may not, and some are to [make room](Entries::make_room).
    pub fn add(&self, dir: Ino, name: &[u8]) -> Result<(), TooMany> {
        let mut kept = self.kept.lock();
        let now = Instant::now();
        while kept.recent.front().is_some_and(|(when, _)| now.duration_since(*when) > READ_WITHIN) {
            kept.recent.pop_front();
        }
        if kept.recent.len() >= RECENT_MAX {
            return Err(TooMany::ForNow);
        }
        if kept.names.len() >= self.names_max {
            let is_first = kept.leaving.is_empty();
            if is_first {
                let some = kept.names.iter().take(self.names_max / LEAVING).cloned().collect();
                kept.leaving = some;
            }
            return Err(if is_first { TooMany::MakeRoom } else { TooMany::ForNow });
        }
        kept.recent.push_back((now, (dir, name.into())));
        kept.names.insert((dir, name.into()));
        Ok(())
    }

    /// Has the kernel look up again what is to make room. Not to be called by who answers requests: the kernel waits for what is being
    /// done in the directories.
    pub fn make_room(&self, channel: &Channel) {
        let leaving: Vec<Entry> = self.kept.lock().leaving.iter().cloned().collect();
        for entry in &leaving {
            // Before: a name that the kernel asks for meanwhile is added again.
            self.kept.lock().names.remove(entry);
            recall(channel, entry);
            self.kept.lock().leaving.remove(entry);
        }
    }

    /// There is nobody who makes room.
    pub fn stay(&self) {
        self.kept.lock().leaving.clear();
    }

    /// The kernel is about to call by the second name what it has kept by the first one, if it has.
    pub fn moves(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) {
        let mut kept = self.kept.lock();
        if kept.names.contains(&(from.0, from.1.into())) {
            kept.names.insert((to.0, to.1.into()));
        }
    }

    /// A name is no more, or leads elsewhere.
    pub fn remove(&self, dir: Ino, name: &[u8]) {
        self.kept.lock().names.remove(&(dir, Box::from(name)));
    }

    /// Has the kernel look all names up again. Those whose answers it may not have read yet.
    pub fn recall(&self, channel: &Channel) -> Vec<Entry> {
        let mut all_recent = Vec::new();
        loop {
            let (names, recent) = {
                let mut kept = self.kept.lock();
                let mut names = std::mem::take(&mut kept.names);
                // Of these, the kernel may not have been told yet.
                names.extend(kept.leaving.drain());
                (names, std::mem::take(&mut kept.recent))
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_room_for_others_and_go_with_a_rename() {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let channel = Channel::new(device).unwrap();
        let entries = Entries { kept: Mutex::default(), names_max: 16 };
        let has = |name: &[u8]| entries.kept.lock().names.contains(&(Ino(1), name.into()));
        for number in 0..16 {
            assert_eq!(entries.add(Ino(1), &[number]), Ok(()));
        }
        assert_eq!(entries.add(Ino(1), b"new"), Err(TooMany::MakeRoom));
        assert_eq!(entries.add(Ino(1), b"new"), Err(TooMany::ForNow), "one makes room");
        entries.make_room(&channel);
        assert_eq!((entries.add(Ino(1), b"new"), entries.add(Ino(1), b"other")), (Ok(()), Ok(())));
        assert_eq!(entries.add(Ino(1), b"last"), Err(TooMany::MakeRoom));
        // Nobody does: it is asked for again.
        entries.stay();
        assert_eq!(entries.add(Ino(1), b"last"), Err(TooMany::MakeRoom));
        entries.moves((Ino(1), b"unknown"), (Ino(1), b"to"));
        entries.moves((Ino(1), b"new"), (Ino(1), b"renamed"));
        entries.remove(Ino(1), b"new");
        assert!(has(b"renamed") && !has(b"new") && !has(b"to"));
        // Those that are about to make room are recalled as well.
        assert_eq!(entries.recall(&channel).len(), 18);
        assert!(entries.kept.lock().names.is_empty() && entries.kept.lock().leaving.is_empty());
    }
}
