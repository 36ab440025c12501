//! Open files that processes use by themselves: granted, opened without a call, and taken into the books when somebody has to know.
//!
//! A process with leases gets some slots of open files ([`Grants`]) when it has used up those that it had. What it opens
//! with one is an open file of the process alone, for reading, until a request names it, its name changes, or somebody
//! else comes to share the process's open files: then it is *bound*, an open file like others. The server never gives up an
//! inode that is open in a process that way ([`GrantBook::holds`]).
//!
//! The process may write anything to the memory. All that it can reach that way is what it can read anyway: only clients of the
//! server's own user have leases, and what is bound can only be read.

use super::open_files::{Name, NewFile, OpenFile, Opener, path_from};
use super::processes::{Peer, Process};
use super::volume::Volume;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use weft_client::FileRef;
use weft_client::shared::channel::{GRANT_PATH_MAX, GRANTS_MAX, GrantWord, Grants};
use weft_client::shared::volume::OPEN_FILES_MAX;
use weft_core::Ino;
use weft_vfs::FileKind;

/// Slots that a process gets at once.
const BATCH: usize = 16;
/// Slots that all processes have been granted, at most.
const SLOTS_MAX: usize = OPEN_FILES_MAX / 4;
/// The place has no slot.
const NONE: u32 = u32::MAX;
/// Flags that an open file has which a process has opened by itself.
const KEPT: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_LARGEFILE | libc::O_DIRECTORY;

/// What a process has been granted.
#[derive(Default)]
pub(crate) struct Granted {
    /// Slots of open files, by their places.
    slots: Vec<u32>,
    /// The process opens nothing by itself any more. Its slots stay its own as long as it lives: a thread may be about to write to one.
    ended: bool,
}

/// All processes that have been granted slots.
#[derive(Default)]
pub(crate) struct GrantBook {
    peers: Mutex<Vec<(u32, Arc<dyn Peer>)>>,
    slots: AtomicUsize,
}

impl GrantBook {
    /// Whether a process has an inode open by itself.
    pub fn holds(&self, inode_slot: u32) -> bool {
        let all = self.peers.lock();
        let mut all_grants = all.iter().filter_map(|(_, peer)| peer.grants());
        all_grants.any(|grants| {
            let mut used = grants.in_state(GrantWord::USED);
            used.any(|(place, _)| grants.opened[place].inode.load(Relaxed) == inode_slot)
        })
    }

    fn add(&self, process: &Process) {
        let mut all = self.peers.lock();
        if all.iter().all(|(id, _)| *id != process.id) {
            all.push((process.id, process.peer.clone()));
        }
    }

    fn remove(&self, process: &Process) {
        self.peers.lock().retain(|(id, _)| *id != process.id);
    }
}

impl Volume {
    /// Gives a process some slots, if it has leases and no slot is free.
    pub(crate) fn grant(&self, process: &Process) {
        let Some(grants) = process.peer.grants().filter(|_| process.is_leased()) else { return };
        let mut granted = process.granted.lock();
        let Granted { slots, ended } = &mut *granted;
        if *ended || slots.len() == GRANTS_MAX || grants.in_state(GrantWord::FREE).next().is_some() {
            return;
        }
        self.grants.add(process);
        for place in slots.len()..(slots.len() + BATCH).min(GRANTS_MAX) {
            slots.push(self.grant_in(grants, place));
        }
    }

    fn grant_in(&self, grants: &Grants, place: usize) -> u32 {
        let slots = &self.grants.slots;
        if slots.fetch_add(1, Relaxed) < SLOTS_MAX
            && let Some(file) = self.files.reserve()
        {
            grants.words[place].store(GrantWord::new(file, GrantWord::FREE).0, SeqCst);
            return file.slot();
        }
        slots.fetch_sub(1, Relaxed);
        NONE
    }

    /// Makes a file that a process has opened by itself an open file like others; nothing if it is none.
    pub(crate) fn bind(&self, process: &Process, file: FileRef) {
        self.bind_those(process, |grants, place| grants.word(place).file() == file);
    }

    /// The same of all that a process has opened by itself.
    pub(crate) fn bind_all(&self, process: &Process) {
        self.bind_those(process, |_, _| true);
    }

    /// The same of what it has opened from a directory, which it is about to close.
    pub(crate) fn bind_those_at(&self, process: &Process, dir: FileRef) {
        self.bind_those(process, |grants, place| grants.opened[place].at.load(Relaxed) == dir.0);
    }

    /// The same of an inode, whoever has opened it.
    pub(crate) fn bind_inode(&self, inode_slot: u32) {
        if !self.grants.holds(inode_slot) {
            return;
        }
        for process in self.processes.all() {
            self.bind_those(&process, |grants, place| grants.opened[place].inode.load(Relaxed) == inode_slot);
        }
    }

    fn bind_those(&self, process: &Process, wanted: impl Fn(&Grants, usize) -> bool) {
        let Some(grants) = process.peer.grants() else { return };
        let mut granted = process.granted.lock();
        let Granted { slots, ended: false } = &mut *granted else { return };
        for place in 0..slots.len() {
            if wanted(grants, place) {
                self.bind_place(process, grants, slots, place, GRANTS_MAX);
            }
        }
    }

    /// Binds what was opened in a place, after the directories that it was opened from: `depth` of them at most, as the client
    /// could name them in a circle.
    fn bind_place(&self, process: &Process, grants: &Grants, slots: &mut [u32], place: usize, depth: usize) {
        let word = grants.word(place);
        if depth == 0 || word.state() != GrantWord::USED || word.file().slot() != slots[place] {
            return;
        }
        let at = FileRef(grants.opened[place].at.load(Relaxed));
        let above = grants.in_state(GrantWord::USED).find(|(_, word)| word.file() == at);
        if let Some((above, _)) = above.filter(|(above, _)| *above < slots.len()) {
            self.bind_place(process, grants, slots, above, depth - 1);
        }
        if self.bind_in(process, grants, place, word) {
            self.grants.slots.fetch_sub(1, Relaxed);
            slots[place] = self.grant_in(grants, place);
        }
    }

    /// Whether the slot has got an open file, or is free for others.
    fn bind_in(&self, process: &Process, grants: &Grants, place: usize, word: GrantWord) -> bool {
        let (file, opened) = (word.file(), &grants.opened[place]);
        let mut path = [0; GRANT_PATH_MAX];
        let path = opened.path(&mut path);
        let (at, dir) = (FileRef(opened.at.load(Relaxed)), Ino(opened.dir.load(Relaxed)));
        // Before the word changes: as long as that says that the inode is open, it is not given up.
        let inode = self.inodes.open_in_slot(opened.inode.load(Relaxed));
        if !grants.replace(place, word, GrantWord::NONE) {
            // The process has closed it.
            if let Some(inode) = inode {
                self.inodes.release(&inode, None);
            }
            return false;
        }
        let may_be_open = inode.as_ref().is_some_and(|inode| {
            let kind = self.fs.getattr(inode.ino).map(|attr| attr.kind);
            matches!(kind, Ok(FileKind::File | FileKind::Directory))
        });
        let Some(inode) = inode.as_ref().filter(|_| may_be_open).cloned() else {
            tracing::error!(
                process = process.id,
                "a client named an inode that is no open file or directory"
            );
            if let Some(inode) = inode {
                self.inodes.release(&inode, None);
            }
            self.files.unreserve(file.slot());
            return true;
        };
        let base = self.files.get(at).map(|dir| dir.path.clone()).unwrap_or_default();
        let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
        let name = name.map(|name| Name { dir, name: name.to_vec() });
        let new = NewFile {
            flags: self.files.shared(file).flags.load(Relaxed) as i32 & KEPT,
            path: path_from(&base, path),
            name,
            opener: Opener::default(),
            volume_errors_seen: self.inodes.errors.sample(),
        };
        self.files.put(file, inode, new);
        process.hold(file);
        true
    }

    /// A process is gone: what it has opened by itself is closed.
    pub(crate) fn revoke(&self, process: &Process) {
        self.end_grants(process);
        let slots = std::mem::take(&mut process.granted.lock().slots);
        for slot in slots.into_iter().filter(|slot| *slot != NONE) {
            self.grants.slots.fetch_sub(1, Relaxed);
            self.files.unreserve(slot);
        }
    }

    /// A process may not have leases any more. What it has opened by itself stays open.
    pub(crate) fn give_leases_up(&self, process: &Process) {
        process.set_leased(false);
        self.bind_all(process);
        self.end_grants(process);
    }

    fn end_grants(&self, process: &Process) {
        let Some(grants) = process.peer.grants() else { return };
        let mut granted = process.granted.lock();
        granted.ended = true;
        let mut left = Vec::new();
        for place in 0..granted.slots.len() {
            let word = GrantWord(grants.words[place].swap(GrantWord::NONE.0, SeqCst));
            if word.state() == GrantWord::USED {
                left.push(grants.opened[place].inode.load(Relaxed));
            }
        }
        drop(granted);
        self.grants.remove(process);
        left.into_iter().for_each(|inode| self.inodes.settle(inode));
    }

    /// An open file is about to be closed by a process: what the process has opened from it must know its path.
    pub(crate) fn before_close(&self, process: &Process, open: &OpenFile) {
        if self.inodes.shared(open.inode.slot).kind.load(Relaxed) == libc::S_IFDIR {
            self.bind_those_at(process, open.file);
        }
    }
}
