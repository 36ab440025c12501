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
//!
//! Who writes back compares pages with their base. While one process alone may store, it compares no more than the kernel
//! says it has stored to ([`super::stores`]). A process that may store holds a shared record lock on the pages and has added one
//! to `joins` before its first store. So when `joins` is what it was at a moment when everything was written back and nobody
//! else held that lock, nobody else has stored since.

use super::pages::Maps;
use super::stores::WINDOW_BYTES;
use super::{PAGE_BYTES, page_up};
use crate::descriptors::keep::{keep, let_go};
use crate::ipc::shadow;
use crate::ipc::shadow::{Path, path_of};
use crate::owned::Fd;
use crate::process::program;
use crate::report::{Refusal, refuse_for};
use crate::sys;
use libc::c_int;
use weft_client::proto::ITSELF;
use weft_client::scratch::Scratch;
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
    /// Descriptor of the memory file with the pages.
    pub pages: c_int,
    base: c_int,
    /// Maps of it; 0 = the entry is free.
    pub maps: u32,
    /// Whether any map could ever write.
    pub writable: bool,
    /// `joins` when all that others had stored was written back, and nobody else could store.
    settled: Option<u64>,
}

/// No object.
pub const NO_OBJECT: Object = Object {
    ino: 0,
    birth_ns: 0,
    file: FileRef(0),
    pages: -1,
    base: -1,
    maps: 0,
    writable: false,
    settled: None,
};

/// `create` is `O_CREAT` or nothing.
fn open_file(path: &Path, create: c_int) -> Result<c_int, Errno> {
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC | create;
    let fd = keep(Fd(sys::open(path.c_str(), flags, 0o600)?));
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

/// A record lock from the start to the end.
fn lock_of(kind: c_int) -> libc::flock {
    libc::flock { l_type: kind as _, l_whence: libc::SEEK_SET as _, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Excludes all others who open `base` while `act` runs.
fn exclusively<R>(base: c_int, act: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    let mut lock = lock_of(libc::F_WRLCK);
    while let Err(error) = sys::fcntl(base, libc::F_OFD_SETLKW, &raw mut lock as usize) {
        if error != libc::EINTR {
            return Err(error);
        }
    }
    let result = act();
    lock.l_type = libc::F_UNLCK as _;
    let _ = sys::fcntl(base, libc::F_OFD_SETLK, &raw mut lock as usize);
    result
}

fn header_of(base: c_int) -> Result<Header, Errno> {
    let mut bytes = [0; HEADER_BYTES];
    // A file that is shorter has none yet: nothing is loaded, by nobody.
    read_all(base, &mut bytes, 0)?;
    Ok(Header::decode(&bytes))
}

/// Tells others that whoever holds these descriptors may store; how many have said so by now.
fn join(pages: c_int, base: c_int) -> Result<u64, Errno> {
    let mut lock = lock_of(libc::F_RDLCK);
    sys::fcntl(pages, libc::F_OFD_SETLK, &raw mut lock as usize)?;
    exclusively(base, || {
        let header = header_of(base)?;
        let header = Header { joins: header.joins + 1, ..header };
        sys::pwrite_all(base, &header.encode(), 0)?;
        Ok(header.joins)
    })
}

impl Object {
    /// Opens the pages of an inode and holds them.
    pub fn open(client: &Client, attr: &WireAttr, file: FileRef) -> Result<Object, Errno> {
        client.note_mapped(file);
        shadow::make_directory(client)?;
        loop {
            let (pages, base) = match open_pair(client, attr.ino, attr.btime_ns, libc::O_CREAT) {
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

    /// The pages that other processes map, for one [`change`](Self::change). Not held: they may be gone by then.
    pub fn of_others(client: &Client, file: FileRef) -> Result<Option<Object>, Errno> {
        let attr = client.fstat(file)?;
        let (pages, base) = match open_pair(client, attr.ino, attr.btime_ns, 0) {
            Ok(pair) => pair,
            Err(libc::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Able to read what the volume has afterwards.
        match client.open(file, ITSELF, libc::O_RDWR, 0) {
            Ok(open) => Ok(Some(Object {
                ino: attr.ino,
                birth_ns: attr.btime_ns,
                file: open.file,
                pages,
                base,
                ..NO_OBJECT
            })),
            Err(error) => {
                close_pair((pages, base));
                // Who may only write does not see the maps either.
                if error == libc::EACCES { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Lets go of what [`of_others`](Self::of_others) gave.
    pub fn leave(mut self, client: &Client) {
        self.close();
        let _ = client.give_back(self.file);
    }

    /// Marks the pages as in use by this process; false when they are not, or no longer, those to be used.
    fn hold(&mut self, client: &Client) -> Result<bool, Errno> {
        if sys::flock(self.pages, libc::LOCK_EX | libc::LOCK_NB).is_ok() && self.is_linked()? {
            // Nobody maps them: fresh, or left behind by processes that were killed.
            self.exclusively(|| {
                self.rescue(client)?;
                self.set_header(Header { valid: 0, session: client.session(), at_work: (0, 0), joins: 0 })?;
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
        exclusively(self.base, act)
    }

    fn header(&self) -> Result<Header, Errno> {
        header_of(self.base)
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
        let mut chunk = Scratch::<[u8; CHUNK_BYTES]>::any()?;
        let mut at = from;
        while at < to {
            let wanted = (to - at).min(CHUNK_BYTES as u64) as usize;
            let n = client.peek(self.file, chunk.get_mut(..wanted).unwrap_or(&mut []), at)?;
            if n == 0 {
                break;
            }
            let bytes = chunk.get(..n).unwrap_or(&[]);
            let next = at + n as u64;
            if at < fresh || !program::is_zero(bytes) {
                sys::pwrite_all(self.pages, bytes, at)?;
                sys::pwrite_all(self.base, bytes, PAGE_BYTES + at)?;
                at = next;
            } else {
                at = client.next_data(self.file, next)?.unwrap_or(to);
            }
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
            let shown = (|| {
                if !self.is_linked()? || self.header()?.session != client.session() {
                    // Those who map them have gone meanwhile, or with the server before.
                    return Ok(());
                }
                self.load(client, start, end.min(self.valid()?), u64::MAX)?;
                self.fit_alone(client)
            })();
            if let Err(error) = shown {
                // The file is changed: whoever was told otherwise would change it once more.
                refuse_for(Refusal::MapKept, Some(error));
            }
            Ok(result)
        })
    }

    /// From now on this process may store. An error means that it must not.
    pub fn become_writable(&mut self) -> Result<(), Errno> {
        if !self.writable {
            let joins = join(self.pages, self.base)?;
            // Whoever stores has joined before: with the first one nothing is stored yet.
            self.settled = (joins == 1).then_some(joins);
            self.writable = true;
        }
        Ok(())
    }

    /// Whether no other process may store. Under the lock of [`exclusively`](Self::exclusively).
    fn is_alone(&self) -> bool {
        let mut lock = lock_of(libc::F_WRLCK);
        let asked = sys::fcntl(self.pages, libc::F_OFD_GETLK, &raw mut lock as usize);
        asked.is_ok() && lock.l_type == libc::F_UNLCK as libc::c_short
    }

    /// Calls `each` with every stretch of pages in `from..to` that were stored to: its offset, its bytes, and what the volume
    /// had there.
    fn each_change(
        &self,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, &[u8], &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (mut pages, mut base) =
            (Scratch::<[u8; CHUNK_BYTES]>::any()?, Scratch::<[u8; CHUNK_BYTES]>::any()?);
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

    /// Writes what was stored to pages in `from..to` to the volume. `maps`: those of this process.
    pub fn write_back(&mut self, client: &Client, from: u64, to: u64, maps: &mut Maps) -> Result<(), Errno> {
        let mut settled = self.settled;
        let result = self.exclusively(|| {
            let header = self.take_over(client, self.header()?)?;
            let end = to.min(header.valid);
            if settled == Some(header.joins) {
                return self
                    .each_stored(from, end, maps, |from, to| self.give_changes(client, header, from, to));
            }
            settled = (from == 0 && to >= header.valid && self.is_alone()).then_some(header.joins);
            if settled.is_some() {
                // The next look finds stores from here on.
                self.watch(maps);
            }
            self.give_changes(client, header, from, end)
        });
        // What could not be given is still to be found by a comparison.
        self.settled = if result.is_ok() { settled } else { None };
        result
    }

    /// Goes on where a process was killed while it wrote back. Of what was stored there, the volume may have more than the base says,
    /// and less than the pages: the base gets what the volume has, so that the rest is found.
    fn take_over(&self, client: &Client, header: Header) -> Result<Header, Errno> {
        let (from, to) = header.at_work;
        if from >= to {
            return Ok(header);
        }
        let word = size_of::<u64>();
        let mut there = Scratch::<[u8; CHUNK_BYTES]>::any()?;
        self.each_change(from & !(word as u64 - 1), to.min(header.valid), |offset, new, old| {
            let there = there.get_mut(..new.len()).unwrap_or(&mut []);
            let n = client.peek(self.file, there, offset)?;
            let words =
                there.get(..n).unwrap_or(&[]).chunks(word).zip(new.chunks(word)).zip(old.chunks(word));
            for (at, ((there, new), old)) in (PAGE_BYTES + offset..).step_by(word).zip(words) {
                if new != old && there != old {
                    sys::pwrite_all(self.base, there, at)?;
                }
            }
            Ok(())
        })?;
        let header = Header { at_work: (0, 0), ..header };
        self.set_header(header)?;
        Ok(header)
    }

    /// From now on the kernel tells what is stored to `maps`.
    pub fn watch(&self, maps: &mut Maps) {
        let _ = self.each_stored(0, u64::MAX, maps, |_, _| Ok(()));
    }

    /// Calls `each` with the stretches of `from..to` that this process has stored to since the last call for them.
    fn each_stored(
        &self,
        from: u64,
        to: u64,
        maps: &mut Maps,
        mut each: impl FnMut(u64, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        maps.each(from, to, |whole, part, stores| {
            let end = part.offset + part.len as u64;
            let place = |offset: u64| part.at + (offset - part.offset) as usize;
            let offset = |place: usize| part.offset + (place - part.at) as u64;
            let mut tell = |from: u64, end: u64| result = result.and(each(from, end.min(to)));
            if !sys::is_mapped(part.at, part.len) {
                // Unmapped by a system call that no hook saw: what was stored there before, nobody tells any more.
                return tell(part.offset, end);
            }
            let mut at = self.data_from(part.offset);
            while at < end {
                let window_end = ((at & !(WINDOW_BYTES - 1)) + WINDOW_BYTES).min(end);
                let window = place(at)..place(window_end);
                if stores.look(&window, |stored| tell(offset(stored.start), offset(stored.end))).is_err() {
                    // It was not watched, or the kernel cannot: all of it may have been stored to.
                    if stores.watch(whole.at, whole.len).is_ok() {
                        let _ = stores.look(&window, |_| {});
                    }
                    tell(at, window_end);
                }
                at = self.data_from(window_end);
            }
        });
        result
    }

    /// Gives the volume what differs from the base in `from..to`.
    fn give_changes(&self, client: &Client, header: Header, from: u64, to: u64) -> Result<(), Errno> {
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
        let mut there = Scratch::<[u8; CHUNK_BYTES]>::any()?;
        self.each_change(0, size, |offset, new, old| {
            let there = there.get_mut(..new.len()).unwrap_or(&mut []);
            let n = client.peek(self.file, there, offset)?;
            let there = there.get_mut(..n).unwrap_or(&mut []);
            let found = header.merge(client.session(), offset, there, new, old);
            if found { client.store(self.file, there, offset) } else { Ok(()) }
        })
    }

    /// The last map of this process is gone, or `maps` go with the process.
    pub fn release(&mut self, client: &Client, maps: &mut Maps) {
        let written = if self.writable { self.write_back(client, 0, u64::MAX, maps) } else { Ok(()) };
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
        let open = |fd| sys::open_again(fd, libc::O_RDWR | libc::O_CLOEXEC).map(|fd| keep(Fd(fd)));
        let pages = open(self.pages)?;
        // Others hold it shared at most: this process does.
        let base = sys::flock(pages, libc::LOCK_SH | libc::LOCK_NB).and_then(|()| open(self.base));
        let base = base.inspect_err(|_| let_go(pages))?;
        let joined = if self.writable { join(pages, base).map(drop) } else { Ok(()) };
        joined.map(|()| (pages, base)).inspect_err(|_| close_pair((pages, base)))
    }

    /// Goes on with what [`held_anew`](Self::held_anew) gave.
    pub fn adopt(&mut self, (pages, base): (c_int, c_int)) {
        self.close();
        (self.pages, self.base) = (pages, base);
        self.settled = None;
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

fn open_pair(client: &Client, ino: u64, birth_ns: i64, create: c_int) -> Result<(c_int, c_int), Errno> {
    let pages = open_file(&path_of(client, ino, birth_ns, b""), create)?;
    match open_file(&path_of(client, ino, birth_ns, BASE), create) {
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
