//! Directory streams.
//!
//! A stream on a weft directory lives in a region that this library reserves; its address tells it from libc's streams.
//! libc's `scandir`, `glob`, `nftw` and `ftw` read directories by libc's inner functions, so they are in files of their own
//! (`libc/walk.rs`).

use crate::descriptors::{self, table};
use crate::report::{Refusal, refuse};
use crate::routing::{Place, fail, finish, on_file, on_target};
use crate::{process, sys};
use libc::{DIR, c_char, c_int, c_long, dirent, size_t, ssize_t};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use weft_client::scratch::Scratch;
use weft_client::{Errno, FileRef, WireDirent};
use weft_vfs::NAME_MAX;

/// Streams on weft directories at once.
const STREAMS_MAX: usize = 1024;
/// Bytes of entries that are fetched at once.
const BUFFER_BYTES: usize = 32 * 1024 - 512;

/// A stream. All-zero memory is not a stream; `open_stream` fills it.
#[repr(C)]
struct Stream {
    fd: c_int,
    /// Where the next entry begins in `buffer`, and how much of it is filled.
    at: usize,
    filled: usize,
    /// Continue after this with the next fetch.
    fetch_after: u64,
    /// Cookie of the entry that was handed out last.
    position: u64,
    /// The buffer has all that the directory held behind: a name that goes and comes again is not found twice.
    has_rest: bool,
    entry: dirent,
    buffer: [u8; BUFFER_BYTES],
}

static REGION: AtomicPtr<Stream> = AtomicPtr::new(ptr::null_mut());
/// One bit per stream in use.
static USED: [AtomicU64; STREAMS_MAX / 64] = [const { AtomicU64::new(0) }; STREAMS_MAX / 64];

fn region() -> Result<*mut Stream, Errno> {
    let region = REGION.load(Acquire);
    if !region.is_null() {
        return Ok(region);
    }
    let len = STREAMS_MAX * size_of::<Stream>();
    let fresh = sys::anonymous(len)?;
    match REGION.compare_exchange(ptr::null_mut(), fresh.cast(), AcqRel, Acquire) {
        Ok(_) => Ok(fresh.cast()),
        Err(theirs) => {
            // SAFETY: nobody else knows `fresh`.
            let _ = unsafe { sys::munmap(fresh, len) };
            Ok(theirs)
        }
    }
}

/// The number of a stream of ours.
#[inline(always)]
fn number(dir: *mut DIR) -> Option<usize> {
    let region = REGION.load(Relaxed) as usize;
    let offset = (dir as usize).wrapping_sub(region);
    (region != 0 && offset < STREAMS_MAX * size_of::<Stream>()).then_some(offset / size_of::<Stream>())
}

/// A stream of ours by the program's pointer.
#[inline(always)]
fn stream<'a>(dir: *mut DIR) -> Option<&'a mut Stream> {
    number(dir)?;
    // SAFETY: within the region, and the program got this pointer from `open_stream`. Using one stream from two threads
    // at once is undefined for libc's own streams too.
    Some(unsafe { &mut *dir.cast::<Stream>() })
}

fn open_stream(fd: c_int) -> Result<*mut DIR, Errno> {
    let region = region()?;
    for (word_number, word) in USED.iter().enumerate() {
        let mut seen = word.load(Relaxed);
        while seen != u64::MAX {
            let bit = seen.trailing_ones();
            match word.compare_exchange(seen, seen | 1 << bit, AcqRel, Relaxed) {
                Ok(_) => {
                    // SAFETY: the bit makes this place the caller's; it lies within the region.
                    unsafe {
                        let stream = region.add(word_number * 64 + bit as usize);
                        (&raw mut (*stream).fd).write(fd);
                        (&raw mut (*stream).at).write(0);
                        (&raw mut (*stream).filled).write(0);
                        (&raw mut (*stream).fetch_after).write(0);
                        (&raw mut (*stream).position).write(0);
                        (&raw mut (*stream).has_rest).write(false);
                        return Ok(stream.cast());
                    }
                }
                Err(now) => seen = now,
            }
        }
    }
    Err(refuse(Refusal::DirTable))
}

/// Gives the stream's place back; its descriptor.
fn free_stream(dir: *mut DIR) -> Option<c_int> {
    let number = number(dir)?;
    let fd = stream(dir)?.fd;
    if let Some(word) = USED.get(number / 64) {
        word.fetch_and(!(1 << (number % 64)), AcqRel);
    }
    Some(fd)
}

impl Stream {
    fn file(&self) -> Result<FileRef, Errno> {
        table::get(self.fd).ok_or(libc::EBADF)
    }

    /// The next entry, in `self.entry`; `None` at the end.
    fn next(&mut self) -> Result<Option<*mut dirent>, Errno> {
        if self.at >= self.filled {
            // Who asks again after the end finds what has come since.
            if std::mem::take(&mut self.has_rest) {
                return Ok(None);
            }
            let file = self.file()?;
            self.filled = match process::client()?.read_dir(file, self.fetch_after, &mut self.buffer) {
                // As libc: a directory that was removed has ended.
                Err(libc::ENOENT) => 0,
                filled => filled?,
            };
            self.at = 0;
            if self.filled == 0 {
                return Ok(None);
            }
            self.has_rest = BUFFER_BYTES - self.filled >= WireDirent::len_with(NAME_MAX);
        }
        let rest = self.buffer.get(self.at..self.filled).unwrap_or(&[]);
        let (head, name, _) = WireDirent::split_first(rest).ok_or(libc::EIO)?;
        fill(&mut self.entry, &head, name);
        self.at += WireDirent::len_with(name.len());
        self.fetch_after = head.cookie;
        self.position = head.cookie;
        Ok(Some(&raw mut self.entry))
    }

    fn seek(&mut self, position: u64) {
        self.has_rest = false;
        self.at = 0;
        self.filled = 0;
        self.fetch_after = position;
        self.position = position;
    }
}

fn fill(entry: &mut dirent, head: &WireDirent, name: &[u8]) {
    entry.d_ino = head.ino;
    entry.d_off = head.cookie as i64;
    entry.d_type = head.kind as u8;
    entry.d_reclen = record_len(name.len()) as u16;
    let name = name.get(..entry.d_name.len() - 1).unwrap_or(name);
    for (to, from) in entry.d_name.iter_mut().zip(name.iter().chain(&[0])) {
        *to = *from as c_char;
    }
}

/// Length of an entry as the kernel writes it: head, name, NUL, padding.
fn record_len(name_len: usize) -> usize {
    (offset_of!(dirent, d_name) + name_len + 1).next_multiple_of(8)
}

/// `getdents64` on a weft directory: the open file's offset is the position.
pub fn getdents(file: FileRef, out: &mut [u8]) -> Result<usize, Errno> {
    let client = process::client()?;
    let position = client.seek(file, 0, libc::SEEK_CUR)?;
    let mut wire = Scratch::<[u8; 8192]>::any()?;
    // An entry needs no more room in the kernel's form than in the server's.
    let wanted = out.len().min(wire.len());
    let filled = client.read_dir(file, position, wire.get_mut(..wanted).unwrap_or(&mut []))?;
    let mut rest = wire.get(..filled).unwrap_or(&[]);
    let mut used = 0;
    let mut last = position;
    while let Some((head, name, others)) = WireDirent::split_first(rest) {
        let len = record_len(name.len());
        let Some(room) = out.get_mut(used..used + len) else { break };
        room.fill(0);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = room.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(offset_of!(dirent, d_ino), &head.ino.to_ne_bytes());
        put(offset_of!(dirent, d_off), &head.cookie.to_ne_bytes());
        put(offset_of!(dirent, d_reclen), &(len as u16).to_ne_bytes());
        put(offset_of!(dirent, d_type), &[head.kind as u8]);
        put(offset_of!(dirent, d_name), name);
        used += len;
        last = head.cookie;
        rest = others;
    }
    if used == 0 && filled > 0 {
        return Err(libc::EINVAL);
    }
    client.seek(file, last as i64, libc::SEEK_SET)?;
    Ok(used)
}

/// Opens a stream on a path of the volume.
pub fn open_at(place: Place) -> Result<*mut DIR, Errno> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let fd = descriptors::open(place, flags, 0)?;
    open_stream(fd).inspect_err(|_| {
        let _ = descriptors::close(fd);
    })
}

unsafe fn read_into(dir: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> Option<c_int> {
    let stream = stream(dir)?;
    // SAFETY: the program promises room for an entry and a pointer.
    unsafe {
        let next = stream.next();
        *result = ptr::null_mut();
        if let Ok(Some(found)) = next {
            ptr::copy_nonoverlapping(found, entry, 1);
            *result = entry;
        }
        Some(next.err().unwrap_or(0))
    }
}

hooks! {
    fn opendir(path: *const c_char) -> *mut DIR {
        on_target(path, |path| real::opendir(path), open_at)
    }

    fn fdopendir(fd: c_int) -> *mut DIR {
        on_file(fd, || real::fdopendir(fd), |file| {
            let client = process::client()?;
            if client.fstat(file)?.mode & libc::S_IFMT != libc::S_IFDIR {
                return Err(libc::ENOTDIR);
            }
            let dir = open_stream(fd)?;
            if let Some(stream) = stream(dir) {
                // The stream goes on where the descriptor stands.
                stream.seek(client.seek(file, 0, libc::SEEK_CUR).unwrap_or(0));
            }
            Ok(dir)
        })
    }

    fn readdir(dir: *mut DIR) -> *mut dirent {
        match stream(dir) {
            None => real::readdir(dir),
            Some(stream) => match stream.next() {
                Ok(Some(entry)) => entry,
                // At the end errno stays as it is.
                Ok(None) => ptr::null_mut(),
                Err(error) => fail(error),
            },
        }
    }

    fn readdir_r(dir: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
        read_into(dir, entry, result).unwrap_or_else(|| real::readdir_r(dir, entry, result))
    }

    fn closedir(dir: *mut DIR) -> c_int {
        match free_stream(dir) {
            None => real::closedir(dir),
            Some(fd) => finish(descriptors::close(fd)),
        }
    }

    fn rewinddir(dir: *mut DIR) -> () {
        match stream(dir) {
            None => real::rewinddir(dir),
            Some(stream) => stream.seek(0),
        }
    }

    fn telldir(dir: *mut DIR) -> c_long {
        match stream(dir) {
            None => real::telldir(dir),
            Some(stream) => stream.position as c_long,
        }
    }

    fn seekdir(dir: *mut DIR, position: c_long) -> () {
        match stream(dir) {
            None => real::seekdir(dir, position),
            Some(stream) => stream.seek(position as u64),
        }
    }

    fn dirfd(dir: *mut DIR) -> c_int {
        match stream(dir) {
            None => real::dirfd(dir),
            Some(stream) => stream.fd,
        }
    }

    fn getdirentries(fd: c_int, out: *mut c_char, len: size_t, base: *mut i64) -> ssize_t {
        on_file(fd, || real::getdirentries(fd, out, len, base), |file| {
            let position = process::client()?.seek(file, 0, libc::SEEK_CUR)?;
            let n = body::getdents64(fd, out.cast(), len);
            if n >= 0 && !base.is_null() {
                *base = position as i64;
            }
            Ok(n)
        })
    }

    fn getdents64(fd: c_int, out: *mut libc::c_void, len: size_t) -> ssize_t {
        on_file(fd, || real::getdents64(fd, out, len), |file| {
            if out.is_null() {
                return Err(libc::EFAULT);
            }
            getdents(file, std::slice::from_raw_parts_mut(out.cast(), len.min(i32::MAX as usize)))
        })
    }
}
