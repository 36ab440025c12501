//! Where a path leads: to libc, or to the volume.
//!
//! A path is the volume's when it lies below the mount prefix, by itself or behind the working directory or a directory
//! descriptor. That is decided by text: `..` takes back the component before it, so `/tmp/../weft/x` is inside and
//! `/weft/../etc` is outside. Inside the volume the server resolves `..` and symlinks; a path whose `..`s climb, by text,
//! out of the volume leads to the mount prefix's parent. A path that is outside goes to libc as the program gave it.
//!
//! The common case, an absolute path elsewhere, costs a look at its bytes.

use crate::descriptors::table;
use crate::process::{self, PATH_BYTES};
use crate::{report, sys};
use libc::{c_char, c_int};
use weft_client::busy::{self, Busy};
use weft_client::proto::ITSELF;
use weft_client::scratch::Room;
use weft_client::{Client, Errno, FileRef, OUTSIDE, RESOLVED_MAX, Resolution};

/// What a libc function returns when it fails.
pub trait Failed {
    /// The value.
    const FAILED: Self;
}
impl Failed for i32 {
    const FAILED: i32 = -1;
}
impl Failed for isize {
    const FAILED: isize = -1;
}
impl Failed for i64 {
    const FAILED: i64 = -1;
}
impl<T> Failed for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// Sets errno; the value to return.
#[cold]
pub fn fail<T: Failed>(error: Errno) -> T {
    sys::set_errno(if error == OUTSIDE { libc::EXDEV } else { error });
    T::FAILED
}

/// A result as libc gives it.
pub fn finish<T: Failed>(result: Result<T, Errno>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(error),
    }
}

/// The part of an absolute path below `mount`, with its slash (`/` for the root itself).
pub fn below<'a>(path: &'a [u8], mount: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(mount)?;
    match rest.first() {
        None => Some(b"/"),
        Some(b'/') => Some(rest),
        Some(_) => None,
    }
}

/// A path that had to be composed. Most never are: the room is taken when its first byte comes.
pub struct PathBuffer {
    room: Option<Room<[u8; PATH_BYTES]>>,
    len: usize,
}

impl PathBuffer {
    /// An empty one.
    #[allow(clippy::new_without_default)]
    #[inline(always)]
    pub fn new() -> Self {
        PathBuffer { room: None, len: 0 }
    }

    fn room(&mut self) -> Result<&mut [u8; PATH_BYTES], Errno> {
        match &mut self.room {
            Some(room) => Ok(room),
            none => Ok(none.insert(Room::any()?)),
        }
    }

    fn push(&mut self, byte: u8) -> Result<(), Errno> {
        self.extend(&[byte])
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let (start, end) = (self.len, self.len + bytes.len());
        // One byte is kept for the NUL.
        let room = self.room()?.get_mut(..PATH_BYTES - 1).unwrap_or(&mut []);
        room.get_mut(start..end).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        self.room.as_ref().and_then(|room| room.get(..self.len)).unwrap_or(&[])
    }

    /// The path as a C string.
    pub fn c_str(&mut self) -> *const c_char {
        let len = self.len;
        match &mut self.room {
            Some(room) => {
                if let Some(end) = room.get_mut(len) {
                    *end = 0;
                }
                room.as_ptr().cast()
            }
            None => c"".as_ptr(),
        }
    }

    /// Goes one component further, by text.
    fn step(&mut self, component: &[u8]) -> Result<(), Errno> {
        match component {
            b"" | b"." => Ok(()),
            b".." => {
                self.len = self.bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                Ok(())
            }
            name => {
                self.push(b'/')?;
                self.extend(name)
            }
        }
    }

    /// Follows `path` by text from the directory that `bases`, one after the other, lead to. When it enters `mount` for
    /// good, what is left of it from there, as it was given; otherwise the buffer holds the absolute path.
    fn follow<'p>(
        &mut self,
        bases: &[&[u8]],
        path: &'p [u8],
        mount: &[u8],
    ) -> Result<Option<&'p [u8]>, Errno> {
        self.len = 0;
        for base in bases {
            base.split(|&byte| byte == b'/').try_for_each(|component| self.step(component))?;
        }
        let mut rest = path;
        let last = loop {
            let (component, behind) = match rest.iter().position(|&byte| byte == b'/') {
                Some(slash) => rest.split_at(slash),
                None => (rest, &b""[..]),
            };
            self.step(component)?;
            if self.bytes() == mount && !climbs_out(behind, 0) {
                return Ok(Some(if behind.is_empty() { b"/" } else { behind }));
            }
            match behind.split_first() {
                Some((_, behind)) => rest = behind,
                None => break component,
            }
        };
        // A path that ends in a slash must be a directory, and one that ends in a dot names no entry: keep that.
        if self.len == 0 || matches!(last, b"" | b"." | b"..") {
            self.push(b'/')?;
        }
        if matches!(last, b"." | b"..") {
            self.push(b'.')?;
        }
        Ok(None)
    }
}

/// Where a path leads.
enum Route<'a> {
    /// To libc, as the program gave it.
    Real,
    /// To libc, by this absolute path.
    Elsewhere(*const c_char),
    /// To the volume: a path from a directory, or from the root when it begins with a slash.
    Volume(FileRef, &'a [u8]),
}

/// How the last component of a path is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// A symlink is followed.
    Follow,
    /// A symlink is meant itself, or the name is.
    NoFollow,
}

impl Last {
    /// From `AT_SYMLINK_NOFOLLOW` in `flags`.
    pub fn from_at_flags(flags: c_int) -> Last {
        if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { Last::NoFollow } else { Last::Follow }
    }

    fn at_flags(self) -> c_int {
        if self == Last::Follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
    }
}

fn has_dot_dot(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"..") && path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

/// Whether `name` is one of the components of `path`: without it a path from outside does not enter the mount. `weft-1` is
/// another name than `weft`, and programs that work in a folder of that name pay for no look at the working directory.
fn has_component(path: &[u8], name: &[u8]) -> bool {
    let Some((first, rest)) = name.split_first() else { return false };
    let is_edge = |byte: Option<&u8>| matches!(byte, None | Some(b'/'));
    path.iter().enumerate().any(|(at, byte)| {
        byte == first
            && path.get(at + 1..).is_some_and(|path| path.starts_with(rest))
            && is_edge(path.get(at + name.len()))
            && is_edge(at.checked_sub(1).and_then(|before| path.get(before)))
    })
}

/// Whether a path has a component that text has to take out: an empty one, or one that begins with a dot. Without an
/// early end, so that it is compiled to vector instructions.
fn is_irregular(path: &[u8]) -> bool {
    let next = path.get(1..).unwrap_or(&[]);
    path.iter().zip(next).fold(false, |found, (a, b)| found | (*a == b'/') & ((*b == b'.') | (*b == b'/')))
}

/// Whether the `..`s of `path` climb above where it starts, `depth` components below the root.
fn climbs_out(path: &[u8], mut depth: usize) -> bool {
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

fn depth_of(path: &[u8]) -> usize {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).count()
}

/// The quick answer for most paths: libc's.
#[inline(always)]
fn is_plainly_real(dirfd: c_int, path: *const c_char) -> bool {
    if !process::is_on() || path.is_null() {
        return true;
    }
    // SAFETY: the program's own promise to libc: a C string.
    let path = unsafe { sys::bytes(path) };
    if path.first() == Some(&b'/') {
        !path.starts_with(process::mount()) && !is_irregular(path) && !may_be_descriptor(path)
    } else if dirfd == libc::AT_FDCWD {
        process::cwd().is_none() && !has_component(path, process::mount_name())
    } else {
        !table::is_weft(dirfd) && !has_component(path, process::mount_name())
    }
}

fn may_be_descriptor(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") || path.starts_with(b"/dev/")
}

/// What follows `/proc/self/` and the like in a path.
fn of_this_process(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let (who, rest) = rest.split_at_checked(slash)?;
    let mut digits = [0; 20];
    let me = report::decimal(weft_client::sys::getpid().into(), &mut digits);
    if who == b"self" || who == b"thread-self" || who == me { rest.get(1..) } else { None }
}

/// The descriptor that `/dev/fd/N`, `/dev/stdin`, `/proc/self/fd/N` and the like mean, and what follows it in the path.
fn descriptor_of(path: &[u8]) -> Option<(c_int, &[u8])> {
    match path {
        b"/dev/stdin" => return Some((0, b"")),
        b"/dev/stdout" => return Some((1, b"")),
        b"/dev/stderr" => return Some((2, b"")),
        _ => {}
    }
    let number = match path.strip_prefix(b"/dev/fd/") {
        Some(number) => number,
        None => of_this_process(path)?.strip_prefix(b"fd/")?,
    };
    let end = number.iter().position(|&byte| byte == b'/').unwrap_or(number.len());
    let (number, rest) = number.split_at(end);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

/// The open weft file that a link of `/proc` leads to, by which the path begins, and what follows in the path.
pub fn linked(path: &[u8]) -> Option<(FileRef, &[u8])> {
    if let Some((fd, rest)) = descriptor_of(path) {
        return Some((table::get(fd)?, rest));
    }
    let rest = of_this_process(path)?.strip_prefix(b"cwd")?;
    if matches!(rest.first(), None | Some(b'/')) { Some((process::cwd()?.0, rest)) } else { None }
}

fn route<'a>(
    dirfd: c_int,
    path: *const c_char,
    last: Last,
    buffer: &'a mut PathBuffer,
) -> Result<Route<'a>, Errno> {
    // SAFETY: the program's own promise to libc; its path outlives the call.
    let path: &'a [u8] = unsafe { sys::bytes(path) };
    if path.len() >= PATH_BYTES {
        return Err(libc::ENAMETOOLONG);
    }
    if path.first() == Some(&b'/') {
        return route_absolute(path, last, buffer);
    }
    let base = if dirfd == libc::AT_FDCWD {
        process::cwd().map(|(file, path)| (file, Some(path)))
    } else {
        table::get(dirfd).map(|file| (file, None))
    };
    match base {
        Some((file, _)) if !has_dot_dot(path) => Ok(Route::Volume(file, path)),
        Some((file, base_path)) => {
            let known = base_path.is_some_and(|base_path| !climbs_out(path, depth_of(base_path)));
            if known {
                return Ok(Route::Volume(file, path));
            }
            // The working directory may have been moved since the process entered it.
            let mut room = Room::any()?;
            let base_path = path_now(file, &mut room)?;
            if !climbs_out(path, depth_of(base_path)) {
                return Ok(Route::Volume(file, path));
            }
            follow(buffer, &[process::mount(), base_path], path)
        }
        None => {
            // From a directory outside, which only its path can connect with the volume.
            let mut room = Room::<[u8; PATH_BYTES]>::any()?;
            let base_path = if dirfd == libc::AT_FDCWD {
                sys::getcwd(room.as_mut_slice()).ok()
            } else {
                process::descriptor_name(dirfd, room.as_mut_slice())
            };
            match base_path.filter(|path| path.first() == Some(&b'/')) {
                Some(base_path) if !path.is_empty() => match follow(buffer, &[base_path], path)? {
                    Route::Elsewhere(_) => Ok(Route::Real),
                    inside => Ok(inside),
                },
                _ => Ok(Route::Real),
            }
        }
    }
}

fn path_now(file: FileRef, room: &mut [u8; RESOLVED_MAX]) -> Result<&[u8], Errno> {
    let path = process::client()?.path_of(file, room)?;
    Ok(room.get(..path.len).unwrap_or(b"/"))
}

fn route_absolute<'a>(path: &'a [u8], last: Last, buffer: &'a mut PathBuffer) -> Result<Route<'a>, Errno> {
    if let Some(rest) = below(path, process::mount()) {
        if !climbs_out(rest, 0) {
            return Ok(Route::Volume(FileRef::ROOT, rest));
        }
        return follow(buffer, &[], path);
    }
    if may_be_descriptor(path)
        && let Some((file, rest)) = linked(path)
    {
        let below = rest.iter().position(|&byte| byte != b'/').and_then(|start| rest.get(start..));
        match below {
            None if !rest.is_empty() => return Ok(Route::Volume(file, b".")),
            // Whatever its name is by now.
            None if last == Last::Follow => return Ok(Route::Volume(file, ITSELF)),
            None => {}
            Some(below) if !has_dot_dot(below) => return Ok(Route::Volume(file, below)),
            // It may climb out of the volume.
            Some(below) => {
                let mut room = Room::any()?;
                let base = path_now(file, &mut room)?;
                if !climbs_out(below, depth_of(base)) {
                    return Ok(Route::Volume(file, below));
                }
                return follow(buffer, &[process::mount(), base], below);
            }
        }
    }
    if is_irregular(path) && has_component(path, process::mount_name()) {
        return match follow(buffer, &[], path)? {
            Route::Elsewhere(_) => Ok(Route::Real),
            inside => Ok(inside),
        };
    }
    Ok(Route::Real)
}

/// An irregular path, wherever it leads.
fn follow<'a>(buffer: &'a mut PathBuffer, bases: &[&[u8]], path: &'a [u8]) -> Result<Route<'a>, Errno> {
    Ok(match buffer.follow(bases, path, process::mount())? {
        Some(rest) => Route::Volume(FileRef::ROOT, rest),
        None => Route::Elsewhere(buffer.c_str()),
    })
}

/// Does one thing with a path: `weft` on the volume, `real` elsewhere.
#[inline(always)]
pub fn on_path<T: Failed>(
    dirfd: c_int,
    path: *const c_char,
    last: Last,
    real: impl Fn(c_int, *const c_char) -> T,
    weft: impl Fn(&'static Client, FileRef, &[u8]) -> Result<T, Errno>,
) -> T {
    if is_plainly_real(dirfd, path) {
        return real(dirfd, path);
    }
    on_routed_path(dirfd, path, last, real, weft)
}

#[inline(never)]
fn on_routed_path<T: Failed>(
    dirfd: c_int,
    path: *const c_char,
    last: Last,
    real: impl Fn(c_int, *const c_char) -> T,
    weft: impl Fn(&'static Client, FileRef, &[u8]) -> Result<T, Errno>,
) -> T {
    let _busy = Busy::new();
    let mut buffer = PathBuffer::new();
    let (at, path) = match route(dirfd, path, last, &mut buffer) {
        Ok(Route::Real) => return busy::apart(|| real(dirfd, path)),
        Ok(Route::Elsewhere(path)) => return busy::apart(|| real(libc::AT_FDCWD, path)),
        Ok(Route::Volume(at, path)) => (at, path),
        Err(error) => return fail(error),
    };
    let client = match process::client() {
        Ok(client) => client,
        Err(error) => return fail(error),
    };
    match weft(client, at, path) {
        Err(OUTSIDE) => {
            let mut outside = PathBuffer::new();
            match resolve_outside(client, at, path, last, &mut outside) {
                Ok(path) => busy::apart(|| real(libc::AT_FDCWD, path)),
                Err(error) => fail(error),
            }
        }
        result => finish(result),
    }
}

/// The path elsewhere that a symlink of the volume leads to.
fn resolve_outside(
    client: &Client,
    at: FileRef,
    path: &[u8],
    last: Last,
    buffer: &mut PathBuffer,
) -> Result<*const c_char, Errno> {
    let mut room = Room::<[u8; RESOLVED_MAX]>::any()?;
    match client.resolve(at, path, last.at_flags(), room.as_mut_slice())? {
        Resolution::Outside(len) => {
            buffer.len = 0;
            buffer.extend(room.get(..len).unwrap_or(&[]))?;
            Ok(buffer.c_str())
        }
        Resolution::Inside(_) => Err(libc::EXDEV),
    }
}

/// One end of an operation with two paths.
#[derive(Clone, Copy)]
pub struct Given {
    /// Directory descriptor or `AT_FDCWD`.
    pub dirfd: c_int,
    /// The path.
    pub path: *const c_char,
    /// How its last component is taken.
    pub last: Last,
    /// Whether it must lead to something, or is a name that is to be given or taken away.
    pub exists: bool,
}

/// Does one thing with two paths. One on the volume and one elsewhere is `EXDEV`, as between two file systems.
#[inline(always)]
pub fn on_two_paths<T: Failed>(
    one: Given,
    two: Given,
    real: impl Fn(c_int, *const c_char, c_int, *const c_char) -> T,
    weft: impl Fn(&'static Client, FileRef, &[u8], FileRef, &[u8]) -> Result<T, Errno>,
) -> T {
    if is_plainly_real(one.dirfd, one.path) && is_plainly_real(two.dirfd, two.path) {
        return real(one.dirfd, one.path, two.dirfd, two.path);
    }
    on_two_routed_paths(one, two, real, weft)
}

/// An end that libc handles: the directory and path to hand to it.
type RealEnd = (c_int, *const c_char);

fn real_end(route: &Route<'_>, given: Given) -> Option<RealEnd> {
    match route {
        Route::Real => Some((given.dirfd, given.path)),
        Route::Elsewhere(path) => Some((libc::AT_FDCWD, *path)),
        Route::Volume(..) => None,
    }
}

#[inline(never)]
fn on_two_routed_paths<T: Failed>(
    one: Given,
    two: Given,
    real: impl Fn(c_int, *const c_char, c_int, *const c_char) -> T,
    weft: impl Fn(&'static Client, FileRef, &[u8], FileRef, &[u8]) -> Result<T, Errno>,
) -> T {
    if one.path.is_null() {
        return fail(libc::EFAULT);
    }
    let _busy = Busy::new();
    let (mut buffer1, mut buffer2) = (PathBuffer::new(), PathBuffer::new());
    let route1 = match route(one.dirfd, one.path, one.last, &mut buffer1) {
        Ok(route) => route,
        Err(error) => return fail(error),
    };
    let route2 = if two.path.is_null() {
        Err(libc::EFAULT)
    } else {
        route(two.dirfd, two.path, two.last, &mut buffer2)
    };
    let route2 = match route2 {
        Ok(route) => route,
        // As in Linux, what is wrong on the way to the first comes before what is wrong with the second.
        Err(error) => return fail(way_to(&route1, one).err().unwrap_or(error)),
    };
    let (mut outside1, mut outside2) = (PathBuffer::new(), PathBuffer::new());
    let (end1, end2) = match (&route1, &route2) {
        (Route::Volume(at1, path1), Route::Volume(at2, path2)) => {
            let client = match process::client() {
                Ok(client) => client,
                Err(error) => return fail(error),
            };
            match weft(client, *at1, path1, *at2, path2) {
                Err(OUTSIDE) => {
                    let end1 = resolve_outside(client, *at1, path1, one.last, &mut outside1);
                    let end2 = resolve_outside(client, *at2, path2, two.last, &mut outside2);
                    match (end1, end2) {
                        (Ok(end1), Ok(end2)) => (Some((libc::AT_FDCWD, end1)), Some((libc::AT_FDCWD, end2))),
                        _ => return fail(libc::EXDEV),
                    }
                }
                result => return finish(result),
            }
        }
        _ => (real_end(&route1, one), real_end(&route2, two)),
    };
    match (end1, end2) {
        (Some(end1), Some(end2)) => real(end1.0, end1.1, end2.0, end2.1),
        // What lies on the volume may still lead out of it by a symlink; programs that get EXDEV copy, which follows it.
        _ => fail(way_to(&route1, one).and_then(|()| way_to(&route2, two)).err().unwrap_or(libc::EXDEV)),
    }
}

/// Whether the directory that a path's last component lies in can be reached: that comes before two file systems are.
fn way_to(route: &Route<'_>, given: Given) -> Result<(), Errno> {
    let (path, volume) = match route {
        Route::Volume(at, path) => (*path, Some(*at)),
        // SAFETY: composed here, with a NUL at the end.
        Route::Elsewhere(path) => (unsafe { sys::bytes(*path) }, None),
        // SAFETY: a C string, by the program's promise to libc; looked at for null before.
        Route::Real => (unsafe { sys::bytes(given.path) }, None),
    };
    let mut buffer = PathBuffer::new();
    let flags = if given.exists {
        buffer.extend(path)?;
        given.last.at_flags()
    } else {
        let parent = parent_of(path);
        buffer.extend(parent)?;
        if parent.ends_with(b"/") {
            // One more step, for which the parent must let the caller search.
            buffer.push(b'.')?;
        }
        0
    };
    match volume {
        Some(at) => process::client()?.stat(at, buffer.bytes(), flags).map(drop),
        None => sys::exists(given.dirfd, buffer.c_str(), flags),
    }
}

/// The part of a path that leads to the directory of its last component.
fn parent_of(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return path;
    }
    let is_name = |byte: &u8| *byte != b'/';
    let end = path.iter().rposition(is_name).map_or(0, |at| at + 1);
    let slash = path.get(..end).and_then(|path| path.iter().rposition(|byte| *byte == b'/'));
    match slash {
        Some(at) => path.get(..=at).unwrap_or(b"/"),
        None if end == 0 => b"/",
        None => b".",
    }
}

/// Whether a path leads to the volume (by text; symlinks that leave it are not followed).
pub fn is_on_volume(dirfd: c_int, path: *const c_char) -> bool {
    if is_plainly_real(dirfd, path) {
        return false;
    }
    let mut buffer = PathBuffer::new();
    matches!(route(dirfd, path, Last::Follow, &mut buffer), Ok(Route::Volume(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a path leads when `/weft` is the mount: `Ok` with what is left of it there, or `Err` with the path elsewhere.
    fn followed<'p>(bases: &[&str], path: &'p str) -> Result<&'p str, String> {
        let bases: Vec<&[u8]> = bases.iter().map(|base| base.as_bytes()).collect();
        let mut buffer = PathBuffer::new();
        match buffer.follow(&bases, path.as_bytes(), b"/weft").unwrap() {
            Some(rest) => Ok(std::str::from_utf8(rest).unwrap()),
            None => Err(String::from_utf8(buffer.bytes().to_vec()).unwrap()),
        }
    }

    fn elsewhere(path: &str) -> Result<&str, String> {
        Err(path.to_owned())
    }

    #[test]
    fn outside_dots_and_double_slashes_go_and_what_must_be_a_directory_stays_one() {
        assert_eq!(followed(&[], "/weft/../etc"), elsewhere("/etc"));
        assert_eq!(followed(&[], "/a//./b/"), elsewhere("/a/b/"));
        assert_eq!(followed(&[], "/a/b/."), elsewhere("/a/b/."));
        assert_eq!(followed(&[], "/a/b/.."), elsewhere("/a/."));
        assert_eq!(followed(&[], "/.."), elsewhere("/."));
        assert_eq!(followed(&["/weft", "/d/e"], "../../../x"), elsewhere("/x"));
    }

    #[test]
    fn a_path_that_enters_the_mount_is_left_as_it_was_given_from_there() {
        assert_eq!(followed(&[], "/tmp/../weft//a/./b"), Ok("//a/./b"));
        assert_eq!(followed(&[], "///weft/d/."), Ok("/d/."), "rmdir of it is refused");
        assert_eq!(followed(&[], "//weft/d/x/.."), Ok("/d/x/.."), "x may not be there, or be a symlink");
        assert_eq!(followed(&[], "//weft"), Ok("/"));
        assert_eq!(followed(&[], "//weft/../weft/a"), Ok("/a"));
        assert_eq!(followed(&["/tmp"], "../weft/a"), Ok("/a"));
        assert_eq!(followed(&["/weft", "/d"], "../../weft/a/"), Ok("/a/"));
        assert_eq!(followed(&[], "//wefta"), elsewhere("/wefta"));
    }

    #[test]
    fn a_path_climbs_out_only_above_its_start() {
        assert!(!climbs_out(b"/a/../b", 0));
        assert!(climbs_out(b"/a/../../b", 0));
        assert!(!climbs_out(b"../..", 2));
        assert!(climbs_out(b"../../..", 2));
        assert!(!climbs_out(b"..a/...", 0));
    }

    #[test]
    fn only_whole_components_are_below_the_mount() {
        assert_eq!(below(b"/weft/a", b"/weft"), Some(&b"/a"[..]));
        assert_eq!(below(b"/weft", b"/weft"), Some(&b"/"[..]));
        assert_eq!(below(b"/wefta", b"/weft"), None);
    }

    #[test]
    fn a_component_is_a_whole_one() {
        for path in ["weft", "a/weft", "weft/b", "../weft//", "weftweft/weft"] {
            assert!(has_component(path.as_bytes(), b"weft"), "{path}");
        }
        for path in ["weft-bench/x", "a/xweft", "awefta", "wef/t", ""] {
            assert!(!has_component(path.as_bytes(), b"weft"), "{path}");
        }
    }

    #[test]
    fn descriptor_paths_are_known() {
        assert_eq!(descriptor_of(b"/dev/fd/7"), Some((7, &b""[..])));
        assert_eq!(descriptor_of(b"/dev/stdin"), Some((0, &b""[..])));
        assert_eq!(descriptor_of(b"/proc/self/fd/12"), Some((12, &b""[..])));
        let mine = format!("/proc/{}/fd/3", std::process::id());
        assert_eq!(descriptor_of(mine.as_bytes()), Some((3, &b""[..])));
        assert_eq!(descriptor_of(b"/proc/1/fd/3"), None);
        assert_eq!(descriptor_of(b"/proc/self/fd/3/x"), Some((3, &b"/x"[..])));
        assert_eq!(descriptor_of(b"/proc/self/fd/x"), None);
        assert_eq!(of_this_process(b"/proc/thread-self/cwd/a"), Some(&b"cwd/a"[..]));
        assert_eq!(of_this_process(b"/proc/1/cwd"), None);
    }

    #[test]
    fn the_parent_of_a_path_is_what_precedes_its_last_component() {
        let parents: [(&[u8], &[u8]); 8] = [
            (b"", b""),
            (b"a", b"."),
            (b"a/", b"."),
            (b"a/b", b"a/"),
            (b"a//b//", b"a//"),
            (b"/a", b"/"),
            (b"/", b"/"),
            (b"//", b"/"),
        ];
        for (path, parent) in parents {
            assert_eq!(parent_of(path), parent, "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let long = vec![b'a'; PATH_BYTES];
        assert_eq!(PathBuffer::new().follow(&[], &long, b"/weft"), Err(libc::ENAMETOOLONG));
    }
}
