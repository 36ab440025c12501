//! Where a path leads: to libc, or to the volume.
//!
//! A path is the volume's when it lies below the mount prefix, by itself or behind the working directory or a directory
//! descriptor. That is decided by text: `..` takes back the component before it, so `/tmp/../weft/x` is inside and
//! `/weft/../etc` is outside. Inside the volume the server resolves `..` and symlinks; a path whose `..`s climb, by text,
//! out of the volume leads to the mount prefix's parent. A path that is outside goes to libc as the program gave it.
//!
//! The common case, an absolute path elsewhere, costs a look at its bytes.

mod links;
mod place;
mod results;
mod text;

pub use links::linked;
pub use place::Place;
pub use results::{Failed, Given, fail, finish, result_of};
pub use text::{PathBuffer, below};

use crate::descriptors::table;
use crate::process::{self, PATH_BYTES};
use crate::sys;
use libc::{c_char, c_int};
use links::may_be_descriptor;
use text::{climbs_out, depth_of, has_component, has_dot_dot, is_irregular, parent_of};
use weft_client::busy::{self, Busy};
use weft_client::proto::ITSELF;
use weft_client::scratch::Scratch;
use weft_client::{Errno, FileRef, OUTSIDE, RESOLVED_MAX, Resolution};

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
    pub fn of(flags: c_int) -> Last {
        if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { Last::NoFollow } else { Last::Follow }
    }

    fn at_flags(self) -> c_int {
        if self == Last::Follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
    }
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
            let mut room = Scratch::any()?;
            let base_path = path_now(file, &mut room)?;
            if !climbs_out(path, depth_of(base_path)) {
                return Ok(Route::Volume(file, path));
            }
            follow(buffer, &[process::mount(), base_path], path)
        }
        None => {
            // From a directory outside, which only its path can connect with the volume.
            let mut room = Scratch::<[u8; PATH_BYTES]>::any()?;
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
                let mut room = Scratch::any()?;
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
pub fn on_path<T: Failed, V: Given<T>>(
    dirfd: c_int,
    path: *const c_char,
    last: Last,
    real: impl Fn(c_int, *const c_char) -> T,
    weft: impl Fn(Place<'_>) -> Result<V, Errno>,
) -> T {
    if is_plainly_real(dirfd, path) {
        return real(dirfd, path);
    }
    on_routed_path(dirfd, path, last, real, weft)
}

/// The same with what a path leads to, symlinks followed.
#[inline(always)]
pub fn on_target<T: Failed, V: Given<T>>(
    path: *const c_char,
    real: impl Fn(*const c_char) -> T,
    weft: impl Fn(Place<'_>) -> Result<V, Errno>,
) -> T {
    on_path(libc::AT_FDCWD, path, Last::Follow, |_, path| real(path), weft)
}

/// The same with what has the name that a path tells, be it a symlink.
#[inline(always)]
pub fn on_name<T: Failed, V: Given<T>>(
    path: *const c_char,
    real: impl Fn(*const c_char) -> T,
    weft: impl Fn(Place<'_>) -> Result<V, Errno>,
) -> T {
    on_path(libc::AT_FDCWD, path, Last::NoFollow, |_, path| real(path), weft)
}

#[inline(never)]
fn on_routed_path<T: Failed, V: Given<T>>(
    dirfd: c_int,
    path: *const c_char,
    last: Last,
    real: impl Fn(c_int, *const c_char) -> T,
    weft: impl Fn(Place<'_>) -> Result<V, Errno>,
) -> T {
    let _busy = Busy::new();
    let mut buffer = PathBuffer::new();
    let routed = match route(dirfd, path, last, &mut buffer) {
        Ok(Route::Real) => return busy::apart(|| real(dirfd, path)),
        Ok(Route::Elsewhere(path)) => return busy::apart(|| real(libc::AT_FDCWD, path)),
        Ok(Route::Volume(at, path)) => process::client().map(|client| Place { client, at, path }),
        Err(error) => Err(error),
    };
    let place = match routed {
        Ok(place) => place,
        Err(error) => return fail(error),
    };
    debug_assert!(
        place.at == FileRef::ROOT || place.path.first() != Some(&b'/'),
        "only the root has absolute paths"
    );
    match weft(place) {
        Err(OUTSIDE) => {
            let mut outside = PathBuffer::new();
            match resolve_outside(place, last, &mut outside) {
                Ok(path) => busy::apart(|| real(libc::AT_FDCWD, path)),
                Err(error) => fail(error),
            }
        }
        result => finish(result),
    }
}

/// The path elsewhere that a symlink of the volume leads to.
fn resolve_outside(place: Place, last: Last, buffer: &mut PathBuffer) -> Result<*const c_char, Errno> {
    let mut room = Scratch::<[u8; RESOLVED_MAX]>::any()?;
    match place.client.resolve(place.at, place.path, last.at_flags(), room.as_mut_slice())? {
        Resolution::Outside(len) => {
            buffer.clear();
            buffer.extend(room.get(..len).unwrap_or(&[]))?;
            Ok(buffer.c_str())
        }
        Resolution::Inside(_) => Err(libc::EXDEV),
    }
}

/// Does one thing with a descriptor: `weft` with the file of the volume that it leads to, `real` when there is none.
#[inline(always)]
pub fn on_file<T: Failed, V: Given<T>>(
    fd: c_int,
    real: impl FnOnce() -> T,
    weft: impl FnOnce(FileRef) -> Result<V, Errno>,
) -> T {
    match table::get(fd) {
        None => real(),
        Some(file) => finish(weft(file)),
    }
}

/// A path argument of a call with two paths.
#[derive(Clone, Copy)]
pub struct PathArgument {
    /// Directory descriptor or `AT_FDCWD`.
    pub dirfd: c_int,
    /// Path as the program gave it.
    pub path: *const c_char,
    /// How its last component is taken.
    pub last: Last,
    /// Whether it must lead to something, or is a name that is to be given or taken away.
    pub exists: bool,
}

/// Does one thing with two paths. One on the volume and one elsewhere is `EXDEV`, as between two file systems.
#[inline(always)]
pub fn on_two_paths<T: Failed, V: Given<T>>(
    one: PathArgument,
    two: PathArgument,
    real: impl Fn(c_int, *const c_char, c_int, *const c_char) -> T,
    weft: impl Fn(Place<'_>, Place<'_>) -> Result<V, Errno>,
) -> T {
    if is_plainly_real(one.dirfd, one.path) && is_plainly_real(two.dirfd, two.path) {
        return real(one.dirfd, one.path, two.dirfd, two.path);
    }
    on_two_routed_paths(one, two, real, weft)
}

/// An end that libc handles: the directory and path to hand to it.
type RealEnd = (c_int, *const c_char);

fn real_end(route: &Route<'_>, given: PathArgument) -> Option<RealEnd> {
    match route {
        Route::Real => Some((given.dirfd, given.path)),
        Route::Elsewhere(path) => Some((libc::AT_FDCWD, *path)),
        Route::Volume(..) => None,
    }
}

#[inline(never)]
fn on_two_routed_paths<T: Failed, V: Given<T>>(
    one: PathArgument,
    two: PathArgument,
    real: impl Fn(c_int, *const c_char, c_int, *const c_char) -> T,
    weft: impl Fn(Place<'_>, Place<'_>) -> Result<V, Errno>,
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
        (&Route::Volume(at1, path1), &Route::Volume(at2, path2)) => {
            let client = match process::client() {
                Ok(client) => client,
                Err(error) => return fail(error),
            };
            let place1 = Place { client, at: at1, path: path1 };
            let place2 = Place { client, at: at2, path: path2 };
            match weft(place1, place2) {
                Err(OUTSIDE) => {
                    let end1 = resolve_outside(place1, one.last, &mut outside1);
                    let end2 = resolve_outside(place2, two.last, &mut outside2);
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
        _ => {
            let ways = way_to(&route1, one).and_then(|()| way_to(&route2, two));
            let refusal = ways.and_then(|()| mount_moves(&route1, one, &route2, two));
            fail(refusal.err().unwrap_or(libc::EXDEV))
        }
    }
}

/// Whether a path names the mount point itself. Its name lies in a directory elsewhere; that of `/weft/.` is on the volume.
fn is_mount_point(route: &Route<'_>) -> bool {
    matches!(route, Route::Volume(FileRef::ROOT, path) if !path.is_empty() && path.iter().all(|byte| *byte == b'/'))
}

/// Refuses, as Linux does, to rename the mount point, or something elsewhere to it. A program that got `EXDEV` would copy the
/// whole volume, and remove it.
fn mount_moves(
    route1: &Route<'_>,
    one: PathArgument,
    route2: &Route<'_>,
    two: PathArgument,
) -> Result<(), Errno> {
    let renames = !one.exists;
    match (real_end(route1, one), real_end(route2, two)) {
        (None, Some(to)) if renames && is_mount_point(route1) => match is_directory(to) {
            Err(libc::ENOTDIR) => Err(libc::ENOTDIR),
            _ => Err(libc::EBUSY),
        },
        (Some(from), None) if renames && is_mount_point(route2) => Err(match is_directory(from) {
            Ok(()) => libc::EBUSY,
            // SAFETY: looked at for null before; the program's promise to libc.
            Err(libc::ENOTDIR) if unsafe { sys::bytes(two.path) }.ends_with(b"/") => libc::ENOTDIR,
            Err(libc::ENOTDIR) => libc::EISDIR,
            Err(error) => error,
        }),
        _ => Ok(()),
    }
}

/// Whether what libc handles is a directory: `ENOTDIR` when it is something else.
fn is_directory((dirfd, path): RealEnd) -> Result<(), Errno> {
    let mut buffer = PathBuffer::new();
    // SAFETY: composed here, or a C string by the program's promise to libc; looked at for null before.
    buffer.extend(unsafe { sys::bytes(path) })?;
    buffer.push(b'/')?;
    sys::exists(dirfd, buffer.c_str(), 0)
}

/// Whether the directory that a path's last component lies in can be reached: that comes before two file systems are.
fn way_to(route: &Route<'_>, given: PathArgument) -> Result<(), Errno> {
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

/// Whether libc cannot take a path as the program gave it: it leads to the volume, or out of it from a directory that the kernel
/// does not know.
pub fn needs_routing(dirfd: c_int, path: *const c_char) -> bool {
    if is_plainly_real(dirfd, path) {
        return false;
    }
    let mut buffer = PathBuffer::new();
    matches!(route(dirfd, path, Last::Follow, &mut buffer), Ok(Route::Volume(..) | Route::Elsewhere(_)))
}

/// Whether a path leads to the volume (by text; symlinks that leave it are not followed).
pub fn is_on_volume(dirfd: c_int, path: *const c_char) -> bool {
    if is_plainly_real(dirfd, path) {
        return false;
    }
    let mut buffer = PathBuffer::new();
    matches!(route(dirfd, path, Last::Follow, &mut buffer), Ok(Route::Volume(..)))
}
