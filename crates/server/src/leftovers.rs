//! What programs leave in `/dev/shm` when they are killed: pages of writable shared maps, names of pipes and sockets.
//!
//! A kernel keeps what a killed process stored to a shared map, and shows it to whoever reads the file next. So the server
//! brings it to the volume: after a connection has ended, and when it starts itself, it looks through the directories of
//! the users ([`weft_client::shared::pages`]). Pages that nobody holds any more (their `flock` is free) are merged into the
//! file and removed. Whatever stands for an inode that is gone is removed.
//!
//! Another user's pages say nothing that the server may believe about files: they are only removed when their inode is
//! gone, and otherwise left to that user's next map. Pages that a full volume has no room for stay, and are tried again
//! when the next connection ends.

use crate::volume::Volume;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weft_client::shared::pages::{BASE, HEADER_BYTES, Header, PAGE_BYTES, ROOT};
use weft_core::Ino;
use weft_vfs::{FsError, FsResult};

/// Looks at a directory after a connection has ended: the process's hold on its pages may end later than its socket.
const LOOKS: u32 = 20;
/// Users whose directories are looked at.
const USERS_MAX: usize = 256;
/// Bytes compared and written at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The users that may have a directory, and how often it is still to be looked at.
#[derive(Default)]
pub struct Leftovers(Mutex<BTreeMap<u32, u32>>);

impl Leftovers {
    /// A process runs as this user.
    pub fn meet(&self, user: u32) {
        let mut users = self.0.lock();
        if users.len() < USERS_MAX {
            users.entry(user).or_insert(0);
        }
    }

    /// A process has ended. It may have been any of the users before it was the last one.
    pub fn expect_any(&self) {
        self.0.lock().values_mut().for_each(|looks| *looks = LOOKS);
    }

    /// Whatever an earlier server left is to be looked at.
    pub fn begin(&self, tag: u64) {
        let prefix = format!("{ROOT}{tag}-");
        let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            if let Some(user) = path.to_str().and_then(|path| path.strip_prefix(&prefix)?.parse().ok()) {
                self.meet(user);
            }
        }
        self.expect_any();
    }

    /// Looks once through each directory that may hold something. Returns whether anything is left that may be free soon.
    pub fn look(&self, volume: &Volume) -> bool {
        let users: Vec<u32> =
            self.0.lock().iter().filter(|(_, looks)| **looks > 0).map(|(user, _)| *user).collect();
        let mut left = false;
        for user in users {
            let done = look_through(volume, user);
            let mut users = self.0.lock();
            let Some(looks) = users.get_mut(&user) else { continue };
            *looks = if done { 0 } else { looks.saturating_sub(1) };
            left |= *looks > 0;
        }
        left
    }
}

/// A name: inode, birth, and what is behind them.
fn parsed(name: &str) -> Option<(Ino, i64, &str)> {
    let (ino, rest) = name.split_once('-')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (birth, suffix) = rest.split_at(end);
    Some((Ino(ino.parse().ok()?), birth.parse::<u64>().ok()? as i64, suffix))
}

/// Returns whether nothing is left.
fn look_through(volume: &Volume, user: u32) -> bool {
    let dir = PathBuf::from(format!("{ROOT}{}-{user}", volume.tag));
    // A link, or a directory that somebody else made, is not looked into.
    let theirs = |meta: std::fs::Metadata| meta.is_dir() && meta.uid() == user;
    if !std::fs::symlink_metadata(&dir).is_ok_and(theirs) {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(&dir) else { return true };
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::geteuid() } == user;
    let mut left = false;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((ino, birth, suffix)) = name.to_str().and_then(parsed) else { continue };
        let path = entry.path();
        let lives = match volume.fs.getattr(ino) {
            Ok(attr) => attr.btime.0 == birth,
            Err(FsError::Stale | FsError::NotFound) => false,
            Err(_) => true,
        };
        if !lives {
            let _ = std::fs::remove_file(&path);
        } else if own && suffix.is_empty() {
            match rescue(volume, &path, ino) {
                Ok(done) => left |= !done,
                Err(error) => {
                    tracing::warn!(%ino, %error, "what a killed program stored to a mapping is kept in memory");
                    left = true;
                }
            }
        }
    }
    // Fails while anything is in it.
    let removed = std::fs::remove_dir(&dir).is_ok();
    removed || !left
}

/// Opens a file of pages, if it is one and the server's user's.
fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    // SAFETY: a system call without arguments.
    let own = meta.is_file() && meta.uid() == unsafe { libc::geteuid() };
    if own { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Brings what was stored to pages that nobody maps any more to the volume, and removes them. False when somebody does.
fn rescue(volume: &Volume, path: &Path, ino: Ino) -> io::Result<bool> {
    let mut base_path = path.as_os_str().to_owned();
    base_path.push(BASE);
    let (pages, base) = match (open(path), open(base_path.as_ref())) {
        (Ok(pages), Ok(base)) => (pages, base),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            // Pages without a base hold nothing yet; whoever makes both is between the two.
            return Ok(false);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    // SAFETY: a system call on a descriptor that is open.
    if unsafe { libc::flock(pages.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Ok(false);
    }
    if pages.metadata()?.nlink() == 0 || base.metadata()?.nlink() == 0 {
        return Ok(true);
    }
    merge(volume, ino, &pages, &base).map_err(io::Error::other)?;
    // The base first, as a process does: without it the pages are known to be nobody's.
    std::fs::remove_file(&base_path)?;
    std::fs::remove_file(path)?;
    Ok(true)
}

/// Stores to the file what the pages have and their base has not.
fn merge(volume: &Volume, ino: Ino, pages: &File, base: &File) -> FsResult<()> {
    volume.fs.open(ino)?;
    let attr = volume.fs.getattr(ino).inspect_err(|_| volume.fs.release(ino))?;
    let open = volume.inodes.acquire(&attr)?;
    let merged = (|| {
        let failed = |error: io::Error| FsError::Device(error.to_string());
        let Some(_guard) = volume.inodes.exclude_writers(&open) else { return Err(FsError::Stale) };
        volume.inodes.drain(&open, true)?;
        volume.inodes.pass_times(&open);
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
fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
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
    let next = |file: &File, offset: u64| {
        // SAFETY: a system call on a descriptor that is open.
        let found = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, libc::SEEK_DATA) };
        u64::try_from(found).ok()
    };
    let in_pages = next(pages, at).unwrap_or(u64::MAX);
    let in_base = next(base, PAGE_BYTES + at).map_or(u64::MAX, |found| found - PAGE_BYTES);
    (in_pages.min(in_base) & !(PAGE_BYTES - 1)).max(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_inode_birth_and_what_they_stand_for() {
        assert_eq!(parsed("12-34"), Some((Ino(12), 34, "")));
        assert_eq!(parsed("12-34.base"), Some((Ino(12), 34, ".base")));
        assert_eq!(parsed("12-18446744073709551615s"), Some((Ino(12), -1, "s")));
        assert!([parsed("12"), parsed("-3"), parsed("x-3"), parsed("12-")].iter().all(Option::is_none));
    }
}
