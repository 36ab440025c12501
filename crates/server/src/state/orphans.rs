//! What killed programs leave in `/dev/shm`: pages of writable shared maps, and names of pipes and sockets.
//!
//! A kernel keeps what a killed process stored to a shared map, and shows it to the next reader of the file. So the
//! server merges such pages into their file. It searches the users' directories ([`weft_client::shared::pages`]) when
//! a process has ended and when the server starts, and for the pages of one file before it opens that file. It merges
//! and removes pages that no process holds any more (their `flock` is free), and removes whatever stands for an inode
//! that is gone.
//!
//! The server does not believe another user's pages: it removes them when their inode is gone, and otherwise leaves
//! them to that user's next map. Pages for which a full volume has no room stay until the next process ends. Bytes
//! that are truncated or overwritten meanwhile are taken out of the pages, so that they do not come back
//! ([`Orphans::forget`]).

use super::volume::Volume;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, SystemTime};
use weft_client::shared::pages::{
    BASE, FIFO, HEADER_BYTES, Header, NAMED, PAGE_BYTES, ROOT, SOCKET, SOCKET_NAME,
};
use weft_core::Ino;
use weft_sys::{effective_user, file};
use weft_vfs::{Attr, FsError, FsResult};

/// Looks at a directory after a connection has ended: the process's hold on its pages may end later than its socket.
const LOOKS: u32 = 20;
/// Before the first look; the pauses before the next ones double, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Two changes of a directory within this time may have one time of the kernel's clock.
const CHANGE_TICK: Duration = Duration::from_millis(100);
/// Bytes compared and written at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The users whose killed programs may have left pages, pipes and sockets.
#[derive(Default)]
pub struct Orphans {
    /// The users that may have a directory, and how often it is still to be looked at.
    users: Mutex<BTreeMap<u32, u32>>,
    /// A process has ended, or the server ends.
    news: Condvar,
    /// Counts the times from which on pages of the server's user may hold what no program will write back: one has just ended,
    /// or the volume did not take it.
    expected: AtomicU64,
    /// `expected` when a look that found none of it any more began.
    settled: AtomicU64,
    /// What maps of an inode do not show yet: a program had its pages locked.
    pub(super) missed: Mutex<FxHashMap<Ino, Range<u64>>>,
    /// Inodes whose pages a thread is changing: one at a time does.
    at_work: Mutex<FxHashSet<Ino>>,
    /// One of them is free again.
    free: Condvar,
    /// What the volume takes does not last: pages, pipes and sockets stay as they are, for a server with which it does.
    stay: AtomicBool,
    /// The directory of all directories.
    root: OnceLock<Option<File>>,
    /// The last look for the directory of the server's user that holds until the directory of all changes.
    looked: Mutex<Option<Looked>>,
}

/// Whether a directory was there.
#[derive(Clone, Copy)]
struct Looked {
    /// The last change of the directory that has its name.
    changed: SystemTime,
    was_there: bool,
}

/// The lock of the pages of an inode.
pub(super) struct PagesGuard<'a>(&'a Orphans, Ino);

impl Drop for PagesGuard<'_> {
    fn drop(&mut self) {
        self.0.at_work.lock().remove(&self.1);
        self.0.free.notify_all();
    }
}

impl Orphans {
    /// The volume is only looked at. To be called before anything else.
    pub fn leave_alone(&self) {
        self.stay.store(true, Release);
    }

    /// A process runs as this user.
    pub fn meet(&self, user: u32) {
        self.users.lock().entry(user).or_insert(0);
    }

    /// Waits for whoever changes the pages of this inode. Those of others go on: a merge may wait long for a writer.
    pub(super) fn lock_pages(&self, ino: Ino) -> PagesGuard<'_> {
        let mut at_work = self.at_work.lock();
        while !at_work.insert(ino) {
            self.free.wait(&mut at_work);
        }
        PagesGuard(self, ino)
    }

    /// A process has ended. It may have been any of the users before it was the last one.
    pub fn expect_any(&self) {
        self.expect_stores();
        self.users.lock().values_mut().for_each(|looks| *looks = LOOKS);
        self.news.notify_all();
    }

    /// The volume did not take what was stored to a map.
    pub fn expect_stores(&self) {
        self.expected.fetch_add(1, AcqRel);
    }

    /// A file is about to be opened: what was stored by a process that has ended without the server knowing yet is in the file
    /// afterwards. Whether there was anything, or may be again: some process maps it.
    pub fn settle(&self, volume: &Volume, attr: &Attr) -> bool {
        if !self.has_any(volume, attr) {
            return false;
        }
        let path = directory(volume.id(), effective_user().0);
        let name = name_of(attr);
        let Ok(dir) = Directory::open(&path, effective_user().0) else { return true };
        let _alone = self.lock_pages(attr.ino);
        // What fails is held until the next look, which tells of it.
        if let Ok(true) = rescue(volume, &dir, &name, attr.ino) {
            let _ = std::fs::remove_dir(&path);
        }
        true
    }

    /// Whether there may be pages of any file of the server's user.
    pub fn may_have_any(&self, volume: &Volume) -> bool {
        if self.stays() {
            return false;
        }
        // A look for what is not there takes the kernel ten times as long as the time of the last change.
        let root = self.root.get_or_init(|| File::open("/dev/shm").ok()).as_ref();
        let changed = root.and_then(|root| root.metadata().ok()?.modified().ok());
        if let (Some(changed), Some(looked)) = (changed, *self.looked.lock())
            && looked.changed == changed
        {
            return looked.was_there;
        }
        let is_old = |changed: &SystemTime| changed.elapsed().is_ok_and(|passed| passed > CHANGE_TICK);
        let lasting = changed.filter(is_old);
        let was_there = directory(volume.id(), effective_user().0).exists();
        *self.looked.lock() = lasting.map(|changed| Looked { changed, was_there });
        was_there
    }

    /// Whether there are pages of a file, of a program that has ended or of one that maps it. For nearly all files there are none.
    pub fn has_any(&self, volume: &Volume, attr: &Attr) -> bool {
        self.may_have_any(volume) && directory(volume.id(), effective_user().0).join(name_of(attr)).exists()
    }

    /// Whether pages stay as they are.
    pub(super) fn stays(&self) -> bool {
        self.stay.load(Acquire)
    }

    fn may_hold_stores(&self) -> bool {
        !self.stay.load(Acquire) && self.settled.load(Acquire) != self.expected.load(Acquire)
    }

    /// Bytes of a file have been cut off (`len` is `u64::MAX` then), or written: what was stored there before may not come
    /// back. Not to be called by who keeps the file's writers out.
    pub fn forget(&self, volume: &Volume, ino: Ino, from: u64, len: u64) {
        if !self.may_hold_stores() {
            return;
        }
        let Ok(attr) = volume.fs.getattr(ino) else { return };
        let Ok(dir) = Directory::open(&directory(volume.id(), effective_user().0), effective_user().0) else {
            return;
        };
        let name = name_of(&attr);
        let _alone = self.lock_pages(ino);
        if let (Ok(pages), Ok(base)) = (dir.file(&name), dir.file(&format!("{name}{BASE}")))
            && let Err(error) = forget_in(&pages, &base, volume.session, from, len)
        {
            tracing::warn!(%ino, %error, "what was stored to a mapping may come back to where it was cut off");
        }
    }

    /// Whatever an earlier server left is to be looked at.
    pub fn begin(&self, tag: u64) {
        if self.stay.load(Acquire) {
            return;
        }
        self.meet(effective_user().0);
        let prefix = format!("{ROOT}{tag}-");
        let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            // Anybody can make a directory with another's number: it is not worth a look.
            if let Some(user) = path.to_str().and_then(|path| path.strip_prefix(&prefix)?.parse().ok())
                && Directory::open(&path, user).is_ok()
            {
                self.meet(user);
            }
        }
        self.expect_any();
    }

    /// Looks whenever there may be something, until `stop` says so and [`wake`](Self::wake) is called.
    pub fn attend(&self, volume: &Volume, stop: &AtomicBool) {
        loop {
            let mut users = self.users.lock();
            if stop.load(SeqCst) {
                return;
            }
            match users.values().copied().max().unwrap_or(0) {
                0 => {
                    self.news.wait(&mut users);
                    continue;
                }
                // What ends meanwhile is seen by the same look.
                LOOKS => MutexGuard::unlocked(&mut users, || std::thread::sleep(PAUSE_MIN)),
                most => {
                    let pause = PAUSE_MIN.saturating_mul(1 << (LOOKS - most).min(16)).min(PAUSE_MAX);
                    if !self.news.wait_for(&mut users, pause).timed_out() {
                        continue;
                    }
                }
            }
            drop(users);
            self.look(volume);
        }
    }

    /// Lets [`attend`](Self::attend) see that it is to stop.
    pub fn wake(&self) {
        // Under the lock, so that it does not fall between the look at `stop` and the wait.
        let _users = self.users.lock();
        self.news.notify_all();
    }

    /// Looks once through each directory that may hold something. Returns whether anything is left that may be free soon.
    pub fn look(&self, volume: &Volume) -> bool {
        if self.stay.load(Acquire) {
            self.users.lock().values_mut().for_each(|looks| *looks = 0);
            return false;
        }
        let expected = self.expected.load(Acquire);
        let all: Vec<(u32, u32)> = self.users.lock().iter().map(|(user, looks)| (*user, *looks)).collect();
        let mut left = false;
        for (user, _) in all.iter().filter(|(_, looks)| *looks > 0) {
            let found = self.look_through(volume, *user);
            if *user == effective_user().0 && found != Found::Held {
                self.settled.fetch_max(expected, AcqRel);
            }
            let mut users = self.users.lock();
            let Some(looks) = users.get_mut(user) else { continue };
            if self.expected.load(Acquire) != expected {
                // Another process has ended meanwhile.
                left = true;
                continue;
            }
            *looks = if found == Found::Held { looks.saturating_sub(1) } else { 0 };
            left |= *looks > 0;
            if found == Found::Nothing && *user != effective_user().0 {
                // Until a program of that user connects again.
                users.remove(user);
            }
        }
        left
    }

    /// The server ends: no more programs meet by the names of pipes and sockets. What is open stays open.
    pub fn end(&self, volume: &Volume) {
        if self.stay.load(Acquire) {
            return;
        }
        let users: Vec<u32> = self.users.lock().keys().copied().collect();
        for user in users {
            let path = directory(volume.id(), user);
            let Ok(dir) = Directory::open(&path, user) else { continue };
            for name in dir.names().unwrap_or_default() {
                if parsed(&name).is_some_and(|(_, _, suffix)| [FIFO, SOCKET, SOCKET_NAME].contains(&suffix)) {
                    let _ = dir.remove(&name);
                }
            }
            // Fails while pages are in it that the volume did not take.
            let _ = std::fs::remove_dir(&path);
        }
    }
}

/// The name of an inode's pages.
pub(super) fn name_of(attr: &Attr) -> String {
    format!("{}-{}", attr.ino.0, attr.btime.0 as u64)
}

/// Where a user's names for a volume are.
pub(super) fn directory(tag: u64, user: u32) -> PathBuf {
    PathBuf::from(format!("{ROOT}{tag}-{user}"))
}

/// A user's directory. Its owner can put a link in its place at any time, so that everything goes by the descriptor.
pub(super) struct Directory(File);

impl Directory {
    /// Refuses links, and directories that somebody else made or may write to.
    pub(super) fn open(path: &Path, user: u32) -> io::Result<Directory> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let dir = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let meta = dir.metadata()?;
        let theirs = meta.uid() == user && meta.mode() & 0o022 == 0;
        if theirs { Ok(Directory(dir)) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// A path that leads to what is open, wherever its name has gone.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// The names in it, of those that programs make.
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path())?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| parsed(name).is_some()).collect())
    }

    /// Opens a file of pages, if it is one and the server's user's.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(flags).open(self.path().join(name))?;
        let meta = file.metadata()?;
        let own = meta.is_file() && meta.uid() == effective_user().0;
        if own { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path().join(name))
    }
}

/// Whether there is no directory of programs, as far as this error says.
fn is_none(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        || matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// A name exactly as programs make it: inode, birth, and what is behind them.
fn parsed(name: &str) -> Option<(Ino, i64, &str)> {
    let (ino, rest) = name.split_once('-')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (birth, suffix) = rest.split_at(end);
    let (number, born) = (ino.parse::<u64>().ok()?, birth.parse::<u64>().ok()?);
    let exact = number.to_string() == ino && born.to_string() == birth && NAMED.contains(&suffix);
    exact.then_some((Ino(number), born as i64, suffix))
}

/// What a look through a user's directory has left there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// The directory is gone.
    Nothing,
    /// Nothing that the server can bring to the volume.
    Others,
    /// Pages that programs hold, or that found no room; or nobody knows what.
    Held,
}

impl Orphans {
    fn look_through(&self, volume: &Volume, user: u32) -> Found {
        let path = directory(volume.id(), user);
        let dir = match Directory::open(&path, user) {
            Ok(dir) => dir,
            Err(error) if is_none(&error) => return Found::Nothing,
            Err(_) => return Found::Held,
        };
        let left = self.look_into(volume, &dir, user == effective_user().0);
        // Fails while anything is in it; what has come to stand there instead goes only when it is empty.
        match std::fs::remove_dir(&path) {
            Ok(()) => Found::Nothing,
            Err(_) if left => Found::Held,
            Err(_) => Found::Others,
        }
    }

    /// Returns whether anything is left that may be free soon.
    fn look_into(&self, volume: &Volume, dir: &Directory, own: bool) -> bool {
        let (names, mut left) = dir.names().map_or((Vec::new(), true), |names| (names, false));
        for name in names {
            let Some((ino, birth, suffix)) = parsed(&name) else { continue };
            let lives = match volume.fs.getattr(ino) {
                Ok(attr) => attr.btime.0 == birth,
                Err(FsError::Stale | FsError::NotFound) => false,
                Err(_) => true,
            };
            if !lives {
                let _ = dir.remove(&name);
            } else if own && suffix.is_empty() {
                let _alone = self.lock_pages(ino);
                match rescue(volume, dir, &name, ino) {
                    Ok(done) => left |= !done,
                    Err(error) => {
                        tracing::warn!(%ino, %error, "what a killed program stored to a mapping is kept in memory");
                        left = true;
                    }
                }
            }
        }
        left
    }
}

/// Brings what was stored to pages that nobody maps any more to the volume, and removes them. False when somebody does.
fn rescue(volume: &Volume, dir: &Directory, name: &str, ino: Ino) -> io::Result<bool> {
    let base_name = format!("{name}{BASE}");
    let (pages, base) = match (dir.file(name), dir.file(&base_name)) {
        (Ok(pages), Ok(base)) => (pages, base),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            // Pages without a base hold nothing yet; whoever makes both is between the two.
            return Ok(false);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    if !file::try_lock(&pages).unwrap_or(false) {
        return Ok(false);
    }
    if pages.metadata()?.nlink() == 0 || base.metadata()?.nlink() == 0 {
        return Ok(true);
    }
    merge(volume, ino, &pages, &base).map_err(io::Error::other)?;
    // The base first, as a process does: without it the pages are known to be nobody's.
    dir.remove(&base_name)?;
    dir.remove(name)?;
    Ok(true)
}

/// Takes bytes out of pages and base: both are zero there, so that nothing counts as stored. What is cut off is cut off for whoever
/// maps the file, as in Linux, unless it still runs with a server that is gone; other changes are for pages that nobody maps.
fn forget_in(pages: &File, base: &File, session: u64, from: u64, len: u64) -> io::Result<()> {
    // As the programs take it; one that holds it has these bytes in hand itself.
    if !file::try_record_lock(base)? {
        return Ok(());
    }
    // The lock goes with the descriptor.
    let mut raw = [0; HEADER_BYTES];
    read_at(base, &mut raw, 0)?;
    let header = Header::decode(&raw);
    if (header.session != session || len != u64::MAX) && !file::try_lock(pages).unwrap_or(false) {
        return Ok(());
    }
    if len == u64::MAX {
        if from < header.valid {
            pages.set_len(from)?;
            base.set_len(PAGE_BYTES + from)?;
            // By way of the exact size, so that the rest of the last page is zero.
            pages.set_len(from.next_multiple_of(PAGE_BYTES))?;
            base.write_all_at(&Header { valid: from, ..header }.encode(), 0)?;
        }
        return Ok(());
    }
    let end = from.saturating_add(len).min(header.valid);
    for (of, at) in [(pages, from), (base, PAGE_BYTES + from)] {
        if end > from {
            file::punch_hole(of, at, end - from)?;
        }
    }
    Ok(())
}

/// Stores to the file what the pages have and their base has not.
fn merge(volume: &Volume, ino: Ino, pages: &File, base: &File) -> FsResult<()> {
    let open = volume.inodes.open(ino)?;
    let merged = (|| {
        let failed = |error: io::Error| FsError::Device(error.to_string());
        volume.inodes.before_rewrite(&open)?;
        let _long = volume.inodes.exclude_long_writes(&open);
        let _guard = volume.inodes.exclude_and_drain(&open)?;
        volume.inodes.before_rewrite(&open)?;
        let mut raw = [0; HEADER_BYTES];
        read_at(base, &mut raw, 0).map_err(failed)?;
        let header = Header::decode(&raw);
        let end = header.valid.min(volume.inodes.size(&open));
        let (mut new, mut old, mut there) =
            (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let mut at = data_from(pages, base, 0);
        let (mut result, mut changed) = (Ok(()), false);
        while at < end {
            let len = (end - at).min(CHUNK_BYTES as u64) as usize;
            let (new, old, there) = (&mut new[..len], &mut old[..len], &mut there[..len]);
            read_at(pages, new, at).map_err(failed)?;
            read_at(base, old, PAGE_BYTES + at).map_err(failed)?;
            if new != old {
                let len = volume.fs.read(ino, at, there)?;
                let there = &mut there[..len];
                let page = PAGE_BYTES as usize;
                let units = there.chunks_mut(page).zip(new.chunks(page)).zip(old.chunks(page));
                for (offset, ((there, new), old)) in (at..).step_by(page).zip(units) {
                    if new != old && header.merge(volume.session, offset, there, new, old) {
                        // A page that finds no room must not keep the others from theirs.
                        result = result.and(volume.fs.write(ino, offset, there));
                        changed = true;
                    }
                }
            }
            at = data_from(pages, base, at + len as u64);
        }
        // The pages go: what is in memory alone would go with this server.
        if changed { result.and(volume.fs.fsync(ino)) } else { result }
    })();
    volume.inodes.release(&open, None);
    merged
}

/// Reads as much as there is; the rest is zeros.
pub(super) fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    out.fill(0);
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(())
}

/// The page of the next byte from `at` on that pages or base hold.
fn data_from(pages: &File, base: &File, at: u64) -> u64 {
    let next = |file: &File, offset| file::seek(file, offset, libc::SEEK_DATA).ok();
    let in_pages = next(pages, at).unwrap_or(u64::MAX);
    let in_base = next(base, PAGE_BYTES + at).map_or(u64::MAX, |found| found - PAGE_BYTES);
    (in_pages.min(in_base) & !(PAGE_BYTES - 1)).max(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names_are_inode_birth_and_what_they_stand_for() {
        assert_eq!(parsed("12-34"), Some((Ino(12), 34, "")));
        assert_eq!(parsed("12-34.base"), Some((Ino(12), 34, ".base")));
        assert_eq!(parsed("12-18446744073709551615.sock"), Some((Ino(12), -1, ".sock")));
        assert!([parsed("12"), parsed("-3"), parsed("x-3"), parsed("12-")].iter().all(Option::is_none));
        for other in ["2026-11-01.sql", "2026-11", "12-34s", "012-34", "+12-34", "12-034", "12-34.base.old"] {
            assert_eq!(parsed(other).is_some(), other == "2026-11", "{other}");
        }
    }

    #[test]
    fn a_directory_that_a_link_has_taken_the_place_of_is_left_for_what_it_was() {
        let root = tempfile::tempdir().unwrap();
        let (theirs, moved, victim) =
            (root.path().join("theirs"), root.path().join("moved"), root.path().join("victim"));
        for dir in [&theirs, &victim] {
            std::fs::create_dir(dir).unwrap();
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).unwrap();
            std::fs::write(dir.join("12-34"), b"").unwrap();
        }
        let dir = Directory::open(&theirs, effective_user().0).unwrap();
        std::fs::rename(&theirs, &moved).unwrap();
        std::os::unix::fs::symlink(&victim, &theirs).unwrap();
        assert_eq!(dir.names().unwrap(), ["12-34"]);
        dir.remove("12-34").unwrap();
        assert!(victim.join("12-34").exists() && !moved.join("12-34").exists());
        assert!(Directory::open(&theirs, effective_user().0).is_err(), "a link is refused");
        assert!(Directory::open(&victim, effective_user().0 + 1).is_err(), "and what is somebody else's");
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o720)).unwrap();
        assert!(Directory::open(&victim, effective_user().0).is_err(), "and what others may write to");
    }
}
