//! Functions of libc that walk directories by its inner functions: `scandir`, `glob`, `ftw`, `nftw`.
//!
//! On the volume they are made here from the hooked ones; `glob` is libc's own, given our functions to read directories
//! with.

use crate::hooks::{attributes, dir};
use crate::owned::Memory;
use crate::report::{Refusal, refuse};
use crate::routing::{fail, finish, needs_routing};
use crate::{process, sys};
use libc::{DIR, c_char, c_int, c_void, dirent, size_t};
use std::ptr;
use weft_client::Errno;
use weft_client::scratch::Scratch;

type Filter = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

/// Reads a directory into memory that the program frees, as `scandir` does.
unsafe fn scan(
    dir: *mut DIR,
    out: *mut *mut *mut dirent,
    filter: Filter,
    compare: Compare,
) -> Result<c_int, Errno> {
    use crate::hooks::dir::body::{closedir, readdir};
    let mut list: *mut *mut dirent = ptr::null_mut();
    let (mut count, mut room) = (0usize, 0usize);
    let mut result = Ok(());
    // SAFETY: entries are copied before the next one is read; the list has `room` places.
    unsafe {
        loop {
            sys::set_errno(0);
            let entry = readdir(dir);
            if entry.is_null() {
                if sys::errno() != 0 {
                    result = Err(sys::errno());
                }
                break;
            }
            if filter.is_some_and(|filter| filter(entry) == 0) {
                continue;
            }
            if count == room {
                room = (room * 2).max(32);
                let bigger = libc::realloc(list.cast(), room * size_of::<*mut dirent>());
                if bigger.is_null() {
                    result = Err(libc::ENOMEM);
                    break;
                }
                list = bigger.cast();
            }
            let len = usize::from((*entry).d_reclen);
            let copy = libc::malloc(len);
            if copy.is_null() {
                result = Err(libc::ENOMEM);
                break;
            }
            ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), len);
            *list.add(count) = copy.cast();
            count += 1;
        }
        closedir(dir);
        if let Err(error) = result {
            for number in 0..count {
                libc::free((*list.add(number)).cast());
            }
            libc::free(list.cast());
            return Err(error);
        }
        if let Some(compare) = compare {
            // SAFETY: both are functions of two pointers to elements.
            let compare = std::mem::transmute::<
                unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int,
                unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
            >(compare);
            libc::qsort(list.cast(), count, size_of::<*mut dirent>(), Some(compare));
        }
        *out = list;
    }
    Ok(count as c_int)
}

// ---- glob -----------------------------------------------------------------------------------------------------------

/// glibc's `glob_t`, of which the libc crate hides the functions.
#[repr(C)]
pub struct Glob {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    closedir: Option<unsafe extern "C-unwind" fn(*mut DIR) -> c_int>,
    readdir: Option<unsafe extern "C-unwind" fn(*mut DIR) -> *mut dirent>,
    opendir: Option<unsafe extern "C-unwind" fn(*const c_char) -> *mut DIR>,
    lstat: Option<unsafe extern "C-unwind" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<unsafe extern "C-unwind" fn(*const c_char, *mut libc::stat) -> c_int>,
}

const GLOB_ALTDIRFUNC: c_int = 1 << 9;

type GlobError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

// ---- ftw, nftw ------------------------------------------------------------------------------------------------------

/// `struct FTW`.
#[repr(C)]
pub struct Position {
    base: c_int,
    level: c_int,
}

type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;
type VisitNew = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Position) -> c_int;

#[derive(Clone, Copy)]
enum Visitor {
    Old(Visit),
    New(VisitNew),
}

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;
/// What `wordexp` returns when it cannot.
const WRDE_NOSPACE: c_int = 1;
/// Deepest tree that is walked.
const LEVELS_MAX: c_int = 512;

/// Directories that a walk which follows symlinks has been in, so that it goes into each once: a hash table with open
/// addressing.
struct VisitedDirs {
    places: Option<Memory>,
    count: usize,
    room: usize,
}

const SEEN_ROOM: usize = 1024;

impl VisitedDirs {
    /// Adds a directory; false when it was there.
    fn add(&mut self, device: u64, ino: u64) -> Result<bool, Errno> {
        if self.count * 2 >= self.room {
            self.grow()?;
        }
        Ok(self.put([device, ino.wrapping_add(1)]))
    }

    /// A place of the table, of which there are `room`.
    fn place(&self, number: usize) -> *mut [u64; 2] {
        let start: *mut [u64; 2] = self.places.as_ref().map_or(ptr::null_mut(), Memory::start);
        start.wrapping_add(number)
    }

    fn put(&mut self, key: [u64; 2]) -> bool {
        let hash = (key[0] ^ key[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut place = hash as usize % self.room.max(1);
        loop {
            // SAFETY: within the table, which has a free place.
            let found = unsafe { &mut *self.place(place) };
            if *found == [0, 0] {
                *found = key;
                self.count += 1;
                return true;
            }
            if *found == key {
                return false;
            }
            place = (place + 1) % self.room;
        }
    }

    fn grow(&mut self) -> Result<(), Errno> {
        let room = (self.room * 2).max(SEEN_ROOM);
        let memory = Memory::new(room * size_of::<[u64; 2]>())?;
        let old = std::mem::replace(self, VisitedDirs { places: Some(memory), count: 0, room });
        for place in 0..old.room {
            // SAFETY: the old table, still there.
            let key = unsafe { *old.place(place) };
            if key != [0, 0] {
                self.put(key);
            }
        }
        Ok(())
    }
}

struct Walk {
    seen: VisitedDirs,
    path: Scratch<[u8; process::PATH_BYTES]>,
    len: usize,
    visitor: Visitor,
    flags: c_int,
    device: u64,
}

impl Walk {
    fn c_path(&self) -> *const c_char {
        self.path.as_ptr().cast()
    }

    /// Start of the last component.
    fn base(&self) -> usize {
        let path = self.path.get(..self.len).unwrap_or(&[]);
        path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1)
    }

    fn push(&mut self, name: &[u8]) -> Result<(), Errno> {
        let slash = self.len > 0 && self.path.get(self.len - 1) != Some(&b'/');
        let len = self.len + usize::from(slash) + name.len();
        if len >= process::PATH_BYTES {
            return Err(libc::ENAMETOOLONG);
        }
        let tail = self.path.get_mut(self.len..len + 1).unwrap_or(&mut []);
        let parts = b"/"[..usize::from(slash)].iter().chain(name).chain(b"\0");
        for (to, from) in tail.iter_mut().zip(parts) {
            *to = *from;
        }
        self.len = len;
        Ok(())
    }

    fn cut(&mut self, len: usize) {
        self.len = len;
        if let Some(end) = self.path.get_mut(len) {
            *end = 0;
        }
    }

    unsafe fn visit(&self, stat: &libc::stat, kind: c_int, level: c_int) -> c_int {
        // SAFETY: the program's own function.
        unsafe {
            match self.visitor {
                Visitor::Old(visit) => visit(self.c_path(), stat, kind),
                Visitor::New(visit) => {
                    let mut position = Position { base: self.base() as c_int, level };
                    visit(self.c_path(), stat, kind, &raw mut position)
                }
            }
        }
    }

    /// How the object is reached now: by its name alone when the working directory follows the walk.
    fn reach(&self) -> *const c_char {
        let from = if self.flags & FTW_CHDIR != 0 { self.base() } else { 0 };
        // The root is a name of its own.
        self.path
            .get(from..)
            .filter(|name| name.first() != Some(&0))
            .unwrap_or(self.path.as_slice())
            .as_ptr()
            .cast()
    }

    /// Walks from the path so far; what the visitor said last, or -1 with errno. `parent` is the directory in which it
    /// lies, to go back to.
    unsafe fn walk(&mut self, level: c_int, parent: c_int) -> c_int {
        use crate::hooks::attributes::body::{lstat, stat};
        use crate::hooks::cwd::body::fchdir;
        use crate::hooks::dir::body::{closedir, dirfd, opendir, readdir};
        // SAFETY: own path and structures; the program's visitor.
        unsafe {
            let mut attr: libc::stat = std::mem::zeroed();
            let physical = self.flags & FTW_PHYS != 0;
            let found =
                if physical { lstat(self.reach(), &raw mut attr) } else { stat(self.reach(), &raw mut attr) };
            if found != 0 {
                // As libc: the callback gets a missing file, and a directory without search permission unless it is the start;
                // any other error ends the walk.
                match sys::errno() {
                    libc::ENOENT => {}
                    libc::EACCES if level > 0 => {}
                    _ => return -1,
                }
                if !physical && lstat(self.reach(), &raw mut attr) == 0 {
                    // A symlink that leads nowhere.
                    let kind = if matches!(self.visitor, Visitor::New(_)) { FTW_SLN } else { FTW_NS };
                    return self.visit(&attr, kind, level);
                }
                return if level == 0 { -1 } else { self.visit(&attr, FTW_NS, level) };
            }
            if level == 0 {
                self.device = attr.st_dev;
            } else if self.flags & FTW_MOUNT != 0 && attr.st_dev != self.device {
                return 0;
            }
            match attr.st_mode & libc::S_IFMT {
                libc::S_IFLNK => return self.visit(&attr, FTW_SL, level),
                libc::S_IFDIR => {}
                _ => return self.visit(&attr, FTW_F, level),
            }
            if !physical {
                match self.seen.add(attr.st_dev, attr.st_ino) {
                    Ok(true) => {}
                    Ok(false) => return 0,
                    Err(error) => return fail(error),
                }
            }
            if level >= LEVELS_MAX {
                return fail(libc::ELOOP);
            }
            let dir = opendir(self.reach());
            if dir.is_null() {
                return if sys::errno() == libc::EACCES { self.visit(&attr, FTW_DNR, level) } else { -1 };
            }
            let depth_first = self.flags & FTW_DEPTH != 0;
            let mut said = if depth_first { 0 } else { self.visit(&attr, FTW_D, level) };
            let acts = self.flags & FTW_ACTIONRETVAL != 0;
            if acts && said == FTW_SKIP_SUBTREE {
                closedir(dir);
                return 0;
            }
            let follows = self.flags & FTW_CHDIR != 0;
            let own = dirfd(dir);
            if said == 0 && follows && fchdir(own) != 0 {
                said = -1;
            }
            let len = self.len;
            while said == 0 {
                let entry = readdir(dir);
                if entry.is_null() {
                    break;
                }
                let name = sys::bytes((*entry).d_name.as_ptr());
                if name == b"." || name == b".." {
                    continue;
                }
                said = match self.push(name) {
                    Ok(()) => self.walk(level + 1, own),
                    Err(error) => fail(error),
                };
                self.cut(len);
                if acts && said == FTW_SKIP_SUBTREE {
                    said = 0;
                }
                if acts && said == FTW_SKIP_SIBLINGS {
                    said = 0;
                    break;
                }
            }
            if said == 0 && depth_first {
                said = self.visit(&attr, FTW_DP, level);
            }
            let error = sys::errno();
            if follows && parent >= 0 {
                fchdir(parent);
            }
            closedir(dir);
            sys::set_errno(error);
            said
        }
    }
}

unsafe fn walk(path: *const c_char, visitor: Visitor, flags: c_int) -> c_int {
    let seen = VisitedDirs { places: None, count: 0, room: 0 };
    let path_room = match Scratch::any() {
        Ok(room) => room,
        Err(error) => return fail(error),
    };
    let mut walk = Walk { seen, path: path_room, len: 0, visitor, flags, device: 0 };
    // SAFETY: the program's own path.
    unsafe {
        match walk.push(sys::bytes(path)) {
            Ok(()) if flags & FTW_CHDIR != 0 => walk_following(&mut walk),
            Ok(()) => walk.walk(0, -1),
            Err(error) => fail(error),
        }
    }
}

/// A walk that the working directory follows, and from which it comes back.
unsafe fn walk_following(walk: &mut Walk) -> c_int {
    use crate::hooks::cwd::body::{chdir, fchdir};
    use crate::hooks::open::body::{close, open};
    let mut above = match Scratch::<[u8; process::PATH_BYTES]>::any() {
        Ok(above) => above,
        Err(error) => return fail(error),
    };
    let base = walk.base();
    for (to, from) in above.iter_mut().zip(walk.path.get(..base).unwrap_or(&[]).iter().chain(b"\0")) {
        *to = *from;
    }
    // SAFETY: C strings and descriptors of this function.
    unsafe {
        let back = open(c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if back < 0 {
            return -1;
        }
        let entered = if base == 0 { 0 } else { chdir(above.as_ptr().cast()) };
        let said = if entered == 0 { walk.walk(0, -1) } else { -1 };
        let error = sys::errno();
        fchdir(back);
        close(back);
        sys::set_errno(error);
        said
    }
}

hooks! {
    fn scandir(path: *const c_char, out: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        if !needs_routing(libc::AT_FDCWD, path) {
            return real::scandir(path, out, filter, compare);
        }
        let dir = dir::body::opendir(path);
        if dir.is_null() { -1 } else { finish(scan(dir, out, filter, compare)) }
    }

    fn scandirat(dirfd: c_int, path: *const c_char, out: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        if !needs_routing(dirfd, path) {
            return real::scandirat(dirfd, path, out, filter, compare);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = crate::hooks::open::body::openat(dirfd, path, flags, 0);
        if fd < 0 {
            return -1;
        }
        let dir = dir::body::fdopendir(fd);
        if dir.is_null() { -1 } else { finish(scan(dir, out, filter, compare)) }
    }

    fn glob(pattern: *const c_char, flags: c_int, error: GlobError, out: *mut Glob) -> c_int {
        if !process::is_on() || flags & GLOB_ALTDIRFUNC != 0 || out.is_null() {
            return real::glob(pattern, flags, error, out);
        }
        (*out).closedir = Some(dir::exports::closedir);
        (*out).readdir = Some(dir::exports::readdir);
        (*out).opendir = Some(dir::exports::opendir);
        (*out).lstat = Some(attributes::exports::lstat);
        (*out).stat = Some(attributes::exports::stat);
        let result = real::glob(pattern, flags | GLOB_ALTDIRFUNC, error, out);
        (*out).flags &= !GLOB_ALTDIRFUNC;
        result
    }

    /// libc expands by an inner `glob`.
    fn wordexp(words: *const c_char, out: *mut c_void, flags: c_int) -> c_int {
        let text = if words.is_null() { &[] } else { sys::bytes(words) };
        let expands = process::is_on()
            && text.iter().any(|letter| b"*?[".contains(letter))
            && (process::cwd().is_some() || text.windows(process::mount().len()).any(|part| part == process::mount()));
        if expands {
            let _ = refuse(Refusal::Words);
            return WRDE_NOSPACE;
        }
        real::wordexp(words, out, flags)
    }

    fn ftw(path: *const c_char, visit: Visit, descriptors: c_int) -> c_int {
        if !needs_routing(libc::AT_FDCWD, path) {
            return real::ftw(path, visit, descriptors);
        }
        walk(path, Visitor::Old(visit), 0)
    }

    fn nftw(path: *const c_char, visit: VisitNew, descriptors: c_int, flags: c_int) -> c_int {
        if !needs_routing(libc::AT_FDCWD, path) {
            return real::nftw(path, visit, descriptors, flags);
        }
        walk(path, Visitor::New(visit), flags)
    }
}
