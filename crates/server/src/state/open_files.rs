//! Open files: what duplicated and inherited descriptors share. Each process counts its references, so that the
//! server can release those of a process that died.

use super::inodes::OpenInode;
use super::shared::ControlMemory;
use super::writeback_errors::ErrorCursor;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use weft_client::FileRef;
use weft_client::shared::volume::{self, OPEN_FILES_MAX};
use weft_core::Ino;

/// References that are on their way between processes at once. One whose receiver ended before it received would stay
/// until then.
const PASSED_MAX: usize = 1024;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    pub dir: Ino,
    pub name: Vec<u8>,
}

/// The thread that opened a file, which tells what it is for.
#[derive(Clone, Default)]
pub struct Opener {
    /// Its name; empty when not known.
    pub thread: String,
    /// Its kernel id; 0 when not known.
    pub thread_id: u32,
}

/// What an open file begins with.
pub struct NewFile {
    /// The flags that it is opened with.
    pub flags: i32,
    /// Path in the volume.
    pub path: Vec<u8>,
    /// Its name, if it was opened by one.
    pub name: Option<Name>,
    /// Who opens it.
    pub opener: Opener,
    /// The volume's write-back errors until now.
    pub volume_errors_seen: ErrorCursor,
}

/// What is known of where an open file is.
struct Location {
    /// The path by which it was last found.
    path: Vec<u8>,
    /// Its name; none for a file without one, and for one that was opened as a directory itself (`.`, `..`, the root).
    name: Option<Name>,
}

/// An open file.
pub struct OpenFile {
    /// Its slot and generation.
    pub file: FileRef,
    /// Its inode.
    pub inode: Arc<OpenInode>,
    /// Path in the volume at the time it was opened.
    pub path: Vec<u8>,
    /// The flags that it was opened with.
    pub flags: i32,
    /// Who opened it.
    pub opener: Opener,
    location: Mutex<Location>,
    /// Write-back errors of its inode that it has reported.
    pub errors_seen: ErrorCursor,
    /// Write-back errors of the volume that it has reported, by `syncfs`.
    pub volume_errors_seen: ErrorCursor,
    /// Of a directory, for a caller that lists what it held at the start: the cookie of its last entry then.
    pub listed_to: AtomicU64,
    /// References of all connections.
    references: AtomicU32,
}

impl OpenFile {
    /// The path by which it was last found.
    pub fn last_path(&self) -> Vec<u8> {
        self.location.lock().path.clone()
    }

    /// It was found by this path.
    pub fn set_last_path(&self, path: Vec<u8>) {
        self.location.lock().path = path;
    }

    /// The name by which it was opened, after renames.
    pub fn name(&self) -> Option<Name> {
        self.location.lock().name.clone()
    }
}

/// A path from the one of a directory, absolute: `.` and empty components left out.
pub fn path_from(dir: &[u8], path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(dir.len() + path.len() + 1);
    if path.first() != Some(&b'/') {
        out.extend_from_slice(dir);
    }
    append_components(&mut out, path);
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

fn append_components(out: &mut Vec<u8>, path: &[u8]) {
    if out.as_slice() == b"/" {
        out.clear();
    }
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                let cut = out.iter().rposition(|&b| b == b'/').unwrap_or(0);
                out.truncate(cut);
            }
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
    }
}

/// All open files.
pub struct OpenFiles {
    control: Arc<ControlMemory>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Arc<OpenFile>>>,
    free: Vec<u32>,
    /// References on their way from one process to another, and their secrets; the oldest first.
    passed: VecDeque<(FileRef, u64)>,
}

impl OpenFiles {
    /// No file is open.
    pub fn new(control: Arc<ControlMemory>) -> OpenFiles {
        OpenFiles { control, table: Mutex::new(Table::default()) }
    }

    /// The shared side of an open file.
    pub fn shared(&self, file: FileRef) -> &volume::OpenFile {
        &self.control.open_files[file.slot() as usize]
    }

    /// Adds an open file with one reference; `None` when there are too many.
    pub fn add(&self, inode: Arc<OpenInode>, new: NewFile) -> Option<Arc<OpenFile>> {
        let file = self.reserve()?;
        self.shared(file).offset.store(0, Relaxed);
        Some(self.put(file, inode, new))
    }

    /// A slot that nobody else is given; `None` when there is none.
    pub fn reserve(&self) -> Option<FileRef> {
        let mut table = self.table.lock();
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None if table.slots.len() < OPEN_FILES_MAX => {
                table.slots.push(None);
                table.slots.len() as u32 - 1
            }
            None => return None,
        };
        debug_assert!(table.slots[slot as usize].is_none(), "two open files in a slot");
        let shared = self.shared(FileRef::new(slot, 0));
        let generation = shared.generation.load(Relaxed).wrapping_add(1);
        shared.lock.clear();
        shared.generation.store(generation, Release);
        Some(FileRef::new(slot, generation))
    }

    /// Gives back a slot that was reserved and has no open file.
    pub fn unreserve(&self, slot: u32) {
        let mut table = self.table.lock();
        debug_assert!(table.slots[slot as usize].is_none(), "an open file is given up");
        self.shared(FileRef::new(slot, 0)).generation.fetch_add(1, Release);
        table.free.push(slot);
    }

    /// Puts an open file with one reference into a slot that was reserved.
    pub fn put(&self, file: FileRef, inode: Arc<OpenInode>, new: NewFile) -> Arc<OpenFile> {
        let NewFile { flags, path, name, opener, volume_errors_seen } = new;
        let open = Arc::new(OpenFile {
            file,
            errors_seen: inode.errors.sample(),
            volume_errors_seen,
            inode,
            location: Mutex::new(Location { path: path.clone(), name }),
            path,
            flags,
            opener,
            listed_to: AtomicU64::new(0),
            references: AtomicU32::new(1),
        });
        let shared = self.shared(file);
        // A client may have written anything there.
        shared.inode.store(open.inode.slot, Relaxed);
        shared.flags.store(flags as u32, Relaxed);
        shared.generation.store(file.generation(), Release);
        self.table.lock().slots[file.slot() as usize] = Some(open.clone());
        open
    }

    /// The open file, if it still is one.
    pub fn get(&self, file: FileRef) -> Option<Arc<OpenFile>> {
        let table = self.table.lock();
        let open = table.slots.get(file.slot() as usize)?.as_ref()?;
        (open.file == file).then(|| open.clone())
    }

    /// A path by which an inode is open.
    pub fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        let table = self.table.lock();
        table.slots.iter().flatten().find(|open| open.inode.ino == ino).map(|open| open.last_path())
    }

    /// One more reference.
    pub fn reference(&self, file: FileRef) -> bool {
        let table = self.table.lock();
        match table.slots.get(file.slot() as usize) {
            Some(Some(open)) if open.file == file => {
                open.references.fetch_add(1, Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Open files of an inode that had one name have another one now.
    pub fn renamed(&self, ino: Ino, from: &Name, to: &Name) {
        let table = self.table.lock();
        for open in table.slots.iter().flatten().filter(|open| open.inode.ino == ino) {
            let mut location = open.location.lock();
            if location.name.as_ref() == Some(from) {
                location.name = Some(to.clone());
            }
        }
    }

    /// Keeps one more reference for whoever knows the secret. When too many are kept, the oldest is forgotten, and returned
    /// if it was the last one of its file. False when there is no such file.
    pub fn pass(&self, file: FileRef, secret: u64) -> (bool, Option<Arc<OpenFile>>) {
        if !self.reference(file) {
            return (false, None);
        }
        let mut table = self.table.lock();
        table.passed.push_back((file, secret));
        let oldest = if table.passed.len() > PASSED_MAX { table.passed.pop_front() } else { None };
        drop(table);
        (true, oldest.and_then(|(oldest, _)| self.release(oldest, 1)))
    }

    /// Hands out a reference that was kept, or with `leaves` one more of its file; false when there is none by this secret.
    pub fn take(&self, file: FileRef, secret: u64, leaves: bool) -> bool {
        let mut table = self.table.lock();
        let found = table.passed.iter().position(|passed| *passed == (file, secret));
        match found {
            Some(_) if leaves => {
                drop(table);
                self.reference(file)
            }
            found => found.and_then(|at| table.passed.remove(at)).is_some(),
        }
    }

    /// Gives back references; returns the file when that was the last one.
    pub fn release(&self, file: FileRef, count: u32) -> Option<Arc<OpenFile>> {
        let mut table = self.table.lock();
        let slot = table.slots.get_mut(file.slot() as usize)?;
        let open = slot.as_ref().filter(|open| open.file == file)?;
        let before = open.references.fetch_sub(count, Relaxed);
        debug_assert!(before >= count, "an open file has lost more references than it had");
        if before > count {
            return None;
        }
        let open = slot.take()?;
        table.free.push(file.slot());
        // Whoever still holds the old number gets EBADF.
        let shared = self.shared(file);
        shared.generation.store(file.generation().wrapping_add(1), Release);
        Some(open)
    }
}
