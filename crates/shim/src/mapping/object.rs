//! The pages of one inode, which all maps of it have in common: two files in memory.
//!
//! ```text
//!  /dev/shm/weft-<volume>-<user>/<inode>-<birth>        pages: what every map of the inode maps
//!                               /<inode>-<birth>.base   one page of header, then what the volume holds of them
//! ```
//!
//! A byte that differs from its base was stored through a map. The header tells how many bytes are loaded and which server
//! they came from: what a server that is gone said of a file is not what the next one says, so pages of another server are
//! never joined. Its stores are given to the volume, and the files make room for new ones; processes that still run with
//! the old server keep their memory, alone.
//!
//! A process holds a shared `flock` on the pages as long as it maps them; the last one takes the files away. Bytes are
//! loaded and written back under a record lock of the open file on the base, which the kernel frees when its holder dies.
//! Wherever that is, what is left makes sense: `valid` is written after the bytes that it covers, and a write-back says in the
//! header where it is at work, as there the volume may have a store that the base has not.

use super::{PAGE_BYTES, keep, let_go, page_up};
use crate::report::{Refusal, refuse_for};
use crate::shadow::{Path, path_of};
use crate::{program, shadow, sys};
use libc::c_int;
use weft_client::scratch::Room;
use weft_client::shared::pages::{self as shared, HEADER_BYTES, Header};
use weft_client::{Client, Errno, FileRef, WireAttr};

/// Bytes compared and moved at once.
const CHUNK_BYTES: usize = 32 * 1024;
/// What the name of the base has behind that of the pages.
const BASE: &[u8] = shared::BASE.as_bytes();

/// An inode whose pages this process maps.
#[derive(Clone, Copy)]
pub struct Object {
    /// Its number.
    pub ino: u64,
    birth_ns: i64,
    /// A reference of this object's own, able to write.
    pub file: FileRef,
    /// The pages.
    pub pages: c_int,
    base: c_int,
    /// Maps of it; 0 = the entry is free.
    pub maps: u32,
    /// Whether any map could ever write.
    pub writable: bool,
}

/// No object.
pub const NO_OBJECT: Object =
    Object { ino: 0, birth_ns: 0, file: FileRef(0), pages: -1, base: -1, maps: 0, writable: false };

fn open_file(path: &Path) -> Result<c_int, Errno> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let fd = keep(sys::open(path.c_str(), flags, 0o600)?);
    // Whoever else laid it there could read what is stored.
    let owned = |stat: libc::stat| -> Result<bool, Errno> {
        let own = stat.st_uid == sys::fsuid();
        if own && stat.st_mode & 0o7777 != 0o600 {
            // The process has a mask that other processes must not suffer from.
            sys::chmod(path.c_str(), 0o600)?;
        }
        Ok(own)
    };
    match sys::fstat(fd).and_then(owned) {
        Ok(true) => Ok(fd),
        result => {
            let_go(fd);
            Err(result.err().unwrap_or(libc::EACCES))
        }
    }
}

/// Reads as many bytes as there are.
fn read_all(fd: c_int, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while let Some(rest @ [_, ..]) = out.get_mut(done..) {
        match weft_client::sys::pread(fd, rest, offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

impl Object {
    /// Opens the pages of an inode and holds them.
    pub fn open(client: &Client, attr: &WireAttr, file: FileRef) -> Result<Object, Errno> {
        shadow::make_directory(client)?;
        loop {
            let (pages, base) = match open_pair(client, attr.ino, attr.btime_ns) {
                Ok(pair) => pair,
                // The last process took the directory away.
                Err(libc::ENOENT) => {
                    shadow::make_directory(client)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut object =
                Object { ino: attr.ino, birth_ns: attr.btime_ns, file, pages, base, ..NO_OBJECT };
            match object.hold(client) {
                Ok(true) => return Ok(object),
                // Taken away between opening and holding, or another server's.
                Ok(false) => object.close(),
                Err(error) => {
                    object.close();
                    return Err(error);
                }
            }
        }
    }

    /// Marks the pages as in use by this process; false when they are not, or no longer, those to be used.
    fn hold(&mut self, client: &Client) -> Result<bool, Errno> {
        if sys::flock(self.pages, libc::LOCK_EX | libc::LOCK_NB).is_ok() && self.is_linked()? {
            // Nobody maps them: fresh, or left behind by processes that were killed.
            self.exclusively(|| {
                self.rescue(client)?;
                self.set_header(Header { valid: 0, session: client.session(), at_work: (0, 0) })?;
                sys::ftruncate(self.pages, 0)?;
                sys::ftruncate(self.base, PAGE_BYTES)
            })?;
        }
        sys::flock(self.pages, libc::LOCK_SH)?;
        if !self.is_linked()? {
            return Ok(false);
        }
        if self.header()?.session == client.session() {
            return Ok(true);
        }
        // Who maps them runs with a server that is gone, unless it is ours that is.
        if !client.is_alive() {
            return Err(libc::EIO);
        }
        self.exclusively(|| {
            if self.is_linked()? && self.header()?.session != client.session() {
                self.rescue(client)?;
                self.unlink(client);
            }
            Ok(false)
        })
    }

    fn is_linked(&self) -> Result<bool, Errno> {
        Ok(sys::fstat(self.pages)?.st_nlink > 0 && sys::fstat(self.base)?.st_nlink > 0)
    }

    fn unlink(&self, client: &Client) {
        let _ = sys::unlink(path_of(client, self.ino, self.birth_ns, BASE).c_str());
        let _ = sys::unlink(path_of(client, self.ino, self.birth_ns, b"").c_str());
        // Fails while others have files there.
        let _ = sys::rmdir(shadow::directory(client).c_str());
    }

    fn close(&mut self) {
        let_go(std::mem::replace(&mut self.pages, -1));
        let_go(std::mem::replace(&mut self.base, -1));
    }

    /// Excludes other processes while `act` runs.
    pub fn exclusively<R>(&self, act: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
        // SAFETY: an all-zero flock is valid: from the start to the end.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as _;
        while let Err(error) = sys::fcntl(self.base, libc::F_OFD_SETLKW, &raw mut lock as usize) {
            if error != libc::EINTR {
                return Err(error);
            }
        }
        let result = act();
        lock.l_type = libc::F_UNLCK as _;
        let _ = sys::fcntl(self.base, libc::F_OFD_SETLK, &raw mut lock as usize);
        result
    }

    fn header(&self) -> Result<Header, Errno> {
        let mut bytes = [0; HEADER_BYTES];
        // A file that is shorter has none yet: nothing is loaded, by nobody.
        read_all(self.base, &mut bytes, 0)?;
        Ok(Header::decode(&bytes))
    }

    fn set_header(&self, header: Header) -> Result<(), Errno> {
        sys::pwrite_all(self.base, &header.encode(), 0)
    }

    fn valid(&self) -> Result<u64, Errno> {
        Ok(self.header()?.valid)
    }

    fn set_valid(&self, valid: u64) -> Result<(), Errno> {
        sys::pwrite_all(self.base, &valid.to_le_bytes(), 0)
    }

    /// Loads bytes `from..to` of the volume into pages and base. Nobody has written these from `fresh` on: zeros need not be
    /// put there and take no memory.
    fn load(&self, client: &Client, from: u64, to: u64, fresh: u64) -> Result<(), Errno> {
        let mut chunk = Room::<[u8; CHUNK_BYTES]>::any()?;
        let mut at = from;
        while at < to {
            let wanted = (to - at).min(CHUNK_BYTES as u64) as usize;
            let n = client.peek(self.file, chunk.get_mut(..wanted).unwrap_or(&mut []), at)?;
            if n == 0 {
                break;
            }
            let bytes = chunk.get(..n).unwrap_or(&[]);
            if at < fresh || !program::is_zero(bytes) {
                sys::pwrite_all(self.pages, bytes, at)?;
                sys::pwrite_all(self.base, bytes, PAGE_BYTES + at)?;
            }
            at += n as u64;
        }
        Ok(())
    }

    /// Makes the pages as long as the file is now.
    pub fn fit(&self, client: &Client) -> Result<(), Errno> {
        self.exclusively(|| self.fit_alone(client))
    }

    fn fit_alone(&self, client: &Client) -> Result<(), Errno> {
        let size = client.fstat(self.file)?.size;
        let valid = self.valid()?;
        if size > valid {
            sys::ftruncate(self.pages, page_up(size).max(sys::fstat(self.pages)?.st_size as u64))?;
            // Behind the file's end the last page may hold what was stored there through a map.
            self.load(client, valid, size, page_up(valid))?;
        } else if size < valid {
            // By way of the exact size, so that the rest of the last page is zero again.
            sys::ftruncate(self.pages, size)?;
            sys::ftruncate(self.base, PAGE_BYTES + size)?;
            sys::ftruncate(self.pages, page_up(size))?;
        }
        self.set_valid(size)
    }

    /// Changes the file by `act`, and takes what it changed into the pages. In between nobody writes pages back, which
    /// would undo the change where stores lie on the same page. `act` returns a result and the bytes it changed.
    pub fn change<R>(
        &self,
        client: &Client,
        act: impl FnOnce() -> Result<(R, u64, u64), Errno>,
    ) -> Result<R, Errno> {
        self.exclusively(|| {
            let (result, start, end) = act()?;
            self.load(client, start, end.min(self.valid()?), u64::MAX)?;
            self.fit_alone(client)?;
            Ok(result)
        })
    }

    /// Calls `each` with every stretch of pages in `from..to` that were stored to: its offset, its bytes, and what the volume
    /// had there.
    fn each_change(
        &self,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, &[u8], &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (mut pages, mut base) = (Room::<[u8; CHUNK_BYTES]>::any()?, Room::<[u8; CHUNK_BYTES]>::any()?);
        let page = PAGE_BYTES as usize;
        let mut at = self.data_from(from);
        while at < to {
            let wanted = (to - at).min(CHUNK_BYTES as u64) as usize;
            let n = read_all(self.pages, pages.get_mut(..wanted).unwrap_or(&mut []), at)?;
            if n == 0 {
                break;
            }
            base.fill(0);
            read_all(self.base, base.get_mut(..n).unwrap_or(&mut []), PAGE_BYTES + at)?;
            let (new, old) = (pages.get(..n).unwrap_or(&[]), base.get(..n).unwrap_or(&[]));
            let mut start = None;
            let mut end = 0;
            let mut tell = |start: usize, end: usize| match (new.get(start..end), old.get(start..end)) {
                (Some(new), Some(old)) => each(at + start as u64, new, old),
                _ => Ok(()),
            };
            for (number, (new, old)) in new.chunks(page).zip(old.chunks(page)).enumerate() {
                if new != old {
                    start.get_or_insert(number * page);
                    end = number * page + new.len();
                } else if let Some(start) = start.take() {
                    tell(start, end)?;
                }
            }
            if let Some(start) = start {
                tell(start, end)?;
            }
            at = self.data_from(at + n as u64);
        }
        Ok(())
    }

    /// The beginning of the page, but not before `at`, of the next byte from `at` on that pages or base hold; where neither
    /// does, nothing was changed.
    fn data_from(&self, at: u64) -> u64 {
        let next = |fd, offset| sys::lseek(fd, offset as i64, libc::SEEK_DATA);
        let pages = next(self.pages, at).unwrap_or(u64::MAX);
        let base = next(self.base, PAGE_BYTES + at).map_or(u64::MAX, |found| found - PAGE_BYTES);
        (pages.min(base) & !(PAGE_BYTES - 1)).max(at)
    }

    /// Writes what was stored to pages in `from..to` to the volume.
    pub fn write_back(&self, client: &Client, from: u64, to: u64) -> Result<(), Errno> {
        self.exclusively(|| {
            let header = self.header()?;
            let to = to.min(header.valid);
            let (mut found, mut result) = (false, Ok(()));
            self.each_change(from, to, |offset, new, old| {
                found = true;
                let differs = |(a, b): (&u8, &u8)| a != b;
                let first = new.iter().zip(old).position(differs).unwrap_or(0);
                let end = new.iter().zip(old).rposition(differs).map_or(0, |last| last + 1);
                let (new, old) = (new.get(first..end).unwrap_or(&[]), old.get(first..end).unwrap_or(&[]));
                let offset = offset + first as u64;
                let at_work = (offset, offset + new.len() as u64);
                self.set_header(Header { at_work, ..header })?;
                if self.give(client, new, old, offset).is_err() {
                    // Perhaps only some of them are holes that a full volume has no room for.
                    for ((at, new), (_, old)) in by_pages(offset, new).zip(by_pages(offset, old)) {
                        result = result.and(self.give(client, new, old, at));
                    }
                }
                Ok(())
            })?;
            if found {
                self.set_header(Header { at_work: (0, 0), ..header })?;
            }
            result
        })
    }

    /// Gives changed bytes to the volume; with that they are no change any more.
    fn give(&self, client: &Client, new: &[u8], old: &[u8], offset: u64) -> Result<(), Errno> {
        client.store_changes(self.file, new, old, offset)?;
        sys::pwrite_all(self.base, new, PAGE_BYTES + offset)
    }

    /// Gives the volume what was stored to pages that are not used any more. The volume may have gone on without them: what it
    /// has otherwise than the base has it was written later, and stays; so does the file's size.
    fn rescue(&self, client: &Client) -> Result<(), Errno> {
        let header = self.header()?;
        let size = header.valid.min(client.fstat(self.file)?.size);
        let mut there = Room::<[u8; CHUNK_BYTES]>::any()?;
        self.each_change(0, size, |offset, new, old| {
            let there = there.get_mut(..new.len()).unwrap_or(&mut []);
            let n = client.peek(self.file, there, offset)?;
            let there = there.get_mut(..n).unwrap_or(&mut []);
            let found = header.merge(client.session(), offset, there, new, old);
            if found { client.store(self.file, there, offset) } else { Ok(()) }
        })
    }

    /// The last map of this process is gone.
    pub fn release(&mut self, client: &Client) {
        let written = if self.writable { self.write_back(client, 0, u64::MAX) } else { Ok(()) };
        let kept = written.is_err();
        if let Err(error) = written {
            refuse_for(Refusal::MapKept, Some(error));
        }
        // Only the last process gets this. What could not be written stays, for whoever maps the inode next.
        if !kept && sys::flock(self.pages, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
            let _ = self.exclusively(|| {
                // The names may be another server's pages by now.
                if self.is_linked()? {
                    self.unlink(client);
                }
                Ok(())
            });
        }
        self.close();
        let _ = client.give_back(self.file);
        *self = NO_OBJECT;
    }

    /// Opens and holds the same pages once more, for a child that is about to be forked: locks belong to an open file, so
    /// with its parent's it would neither count as a process of its own nor exclude its parent.
    pub fn held_anew(&self) -> Result<(c_int, c_int), Errno> {
        let open = |fd| sys::open_again(fd, libc::O_RDWR | libc::O_CLOEXEC).map(keep);
        let pages = open(self.pages)?;
        // Others hold it shared at most: this process does.
        let base = sys::flock(pages, libc::LOCK_SH | libc::LOCK_NB).and_then(|()| open(self.base));
        base.map(|base| (pages, base)).inspect_err(|_| let_go(pages))
    }

    /// Goes on with what [`held_anew`](Self::held_anew) gave.
    pub fn adopt(&mut self, (pages, base): (c_int, c_int)) {
        self.close();
        (self.pages, self.base) = (pages, base);
    }
}

/// Bytes at an offset of a file, cut where pages end.
fn by_pages(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let page = PAGE_BYTES as usize;
    let head = (page - offset as usize % page).min(bytes.len());
    let (first, rest) = bytes.split_at_checked(head).unwrap_or((bytes, &[]));
    let rest = rest.chunks(page).zip((offset + head as u64..).step_by(page)).map(|(page, at)| (at, page));
    std::iter::once((offset, first)).chain(rest)
}

fn open_pair(client: &Client, ino: u64, birth_ns: i64) -> Result<(c_int, c_int), Errno> {
    let pages = open_file(&path_of(client, ino, birth_ns, b""))?;
    match open_file(&path_of(client, ino, birth_ns, BASE)) {
        Ok(base) => Ok((pages, base)),
        Err(error) => {
            let_go(pages);
            Err(error)
        }
    }
}

/// Closes what [`Object::held_anew`] gave.
pub fn close_pair((pages, base): (c_int, c_int)) {
    let_go(pages);
    let_go(base);
}
