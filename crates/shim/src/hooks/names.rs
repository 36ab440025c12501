//! Names: making, moving, linking and removing them, and where they lead.

use crate::descriptors::table;
use crate::report::{Refusal, refused};
use crate::routing::{
    Last, PathArgument, Place, fail, finish, linked, on_name, on_path, on_target, on_two_paths,
};
use crate::{process, sys};
use libc::{c_char, c_int, c_uint, c_void, dev_t, key_t, mode_t, size_t, ssize_t};
use weft_client::proto::with_umask;
use weft_client::scratch::Scratch;
use weft_client::{Errno, FileRef, OUTSIDE, RESOLVED_MAX, Resolution};

const CWD: c_int = libc::AT_FDCWD;

fn name(dirfd: c_int, path: *const c_char) -> PathArgument {
    PathArgument { dirfd, path, last: Last::NoFollow, exists: false }
}

/// Permissions and kind of what is made, and what the mask takes away where no default list says more.
fn masked(mode: mode_t) -> u32 {
    with_umask(mode, process::umask())
}

/// The weft file behind a path of the `/proc/self/fd/N` kind, or `/proc/self/cwd`.
unsafe fn descriptor_path(path: *const c_char) -> Option<FileRef> {
    if !process::is_on() || path.is_null() {
        return None;
    }
    // SAFETY: a C string, by the program's promise.
    let (file, rest) = linked(unsafe { sys::bytes(path) })?;
    rest.is_empty().then_some(file)
}

/// Path of an open file as the program sees it: the mount prefix and the path in the volume.
fn shown_path(file: FileRef, room: &mut [u8; RESOLVED_MAX + 256]) -> Result<&[u8], Errno> {
    let mount = process::mount();
    let (head, tail) = room.split_at_mut(mount.len());
    head.copy_from_slice(mount);
    let len = process::client()?.path_of(file, tail)?.len;
    let root = len == 1;
    Ok(room.get(..mount.len() + if root { 0 } else { len }).unwrap_or(&[]))
}

unsafe fn read_link(place: Place, out: *mut c_char, room: size_t) -> Result<usize, Errno> {
    // The kernel takes the room as an `int`.
    let room = usize::try_from(room as c_int).ok().filter(|room| *room > 0).ok_or(libc::EINVAL)?;
    if out.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the program promises `room` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), room) };
    place.client.readlink(place.at, place.path, out).map_err(|error| match error {
        // Without a path it is the descriptor's link that is missing.
        libc::EINVAL if place.path.is_empty() => libc::ENOENT,
        error => error,
    })
}

unsafe fn symlink_weft(target: *const c_char, place: Place) -> Result<(), Errno> {
    if target.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: a C string, by the program's promise.
    let target = unsafe { sys::bytes(target) };
    if target.len() >= process::PATH_BYTES {
        return Err(libc::ENAMETOOLONG);
    }
    place.client.symlink(target, place.at, place.path)
}

unsafe fn read_descriptor_link(file: FileRef, out: *mut c_char, room: size_t) -> Result<usize, Errno> {
    let mut shown = Scratch::any()?;
    let target = shown_path(file, &mut shown)?;
    if out.is_null() {
        return Err(libc::EFAULT);
    }
    let len = target.len().min(room);
    // SAFETY: the program promises `room` bytes.
    unsafe { std::ptr::copy_nonoverlapping(target.as_ptr(), out.cast(), len) };
    Ok(len)
}

/// `readlink` and `readlinkat`: the link of a descriptor of the program's, or that at a path.
unsafe fn read_link_at(
    dirfd: c_int,
    path: *const c_char,
    out: *mut c_char,
    room: size_t,
    real: impl Fn(c_int, *const c_char) -> ssize_t,
) -> ssize_t {
    if room == 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: the program's own path, and its room.
    unsafe {
        match descriptor_path(path) {
            Some(file) => finish(read_descriptor_link(file, out, room)),
            None => on_path(dirfd, path, Last::NoFollow, real, |place| read_link(place, out, room)),
        }
    }
}

unsafe fn resolve_descriptor(file: FileRef, out: *mut c_char) -> Result<*mut c_char, Errno> {
    let mut room = Scratch::<[u8; RESOLVED_MAX]>::any()?;
    let len = process::client()?.path_of(file, room.as_mut_slice())?.len;
    // SAFETY: the caller's promise.
    unsafe { put_resolved(room.get(..len).unwrap_or(b"/"), out) }
}

/// Puts a canonical path of the volume where `realpath` wants it: at `out`, or in fresh memory.
unsafe fn put_resolved(path: &[u8], out: *mut c_char) -> Result<*mut c_char, Errno> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if process::mount().len() + path.len() >= process::PATH_BYTES {
        return Err(libc::ENAMETOOLONG);
    }
    // SAFETY: `out` is null or has PATH_MAX bytes.
    unsafe { put_shown(path, out, 0) }
}

/// Puts the mount prefix and a path behind it at `out`, or in fresh memory of at least so many bytes.
///
/// # Safety
/// `out` is null or has room for both and a NUL.
pub unsafe fn put_shown(path: &[u8], out: *mut c_char, bytes: size_t) -> Result<*mut c_char, Errno> {
    let mount = process::mount();
    let len = mount.len() + path.len();
    // SAFETY: the caller's promise; what malloc gives is the program's to free, as the manual says.
    unsafe {
        let out = if out.is_null() { libc::malloc(bytes.max(len + 1)).cast() } else { out };
        if out.is_null() {
            return Err(libc::ENOMEM);
        }
        std::ptr::copy_nonoverlapping(mount.as_ptr(), out.cast(), mount.len());
        std::ptr::copy_nonoverlapping(path.as_ptr(), out.add(mount.len()).cast(), path.len());
        *out.add(len) = 0;
        Ok(out)
    }
}

/// Takes the `.`s and `..`s that `path` begins with out by text, from `base`: how much of `base` is left, and of `path`.
fn without_leading_dots<'a>(base: &[u8], mut path: &'a [u8]) -> (usize, &'a [u8]) {
    let mut len = base.len();
    loop {
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let (component, rest) = path.split_at(end);
        match component {
            b"" | b"." => {}
            b".." => {
                let here = base.get(..len).unwrap_or(b"");
                len = here.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            }
            _ => return (len, path),
        }
        match rest.split_first() {
            Some((_, rest)) => path = rest,
            None => return (len, b""),
        }
    }
}

unsafe fn resolve(place: Place, out: *mut c_char) -> Result<*mut c_char, Errno> {
    let Place { client, at, path } = place;
    let mut whole = Scratch::<[u8; RESOLVED_MAX + process::PATH_BYTES]>::any()?;
    let (at, path) = if path.first().is_none_or(|byte| *byte == b'/') {
        (at, path)
    } else {
        // As libc: by way of the working directory's path, which may lead through what cannot be searched.
        let now = client.path_of(at, whole.as_mut_slice())?;
        if now.deleted {
            return Err(libc::ENOENT);
        }
        let (len, path) = without_leading_dots(whole.get(..now.len).unwrap_or(b"/"), path);
        if path.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { put_resolved(whole.get(..len).unwrap_or(b"/"), out) };
        }
        let tail = std::iter::once(&b'/').chain(path);
        whole.iter_mut().skip(len).zip(tail).for_each(|(place, byte)| *place = *byte);
        (FileRef::ROOT, whole.get(..len + 1 + path.len()).ok_or(libc::ENAMETOOLONG)?)
    };
    let mut room = Scratch::<[u8; RESOLVED_MAX]>::any()?;
    match client.real_path(at, path, room.as_mut_slice())? {
        Resolution::Outside(_) => Err(OUTSIDE),
        // SAFETY: the caller's promise.
        Resolution::Inside(len) => unsafe { put_resolved(room.get(..len).unwrap_or(b"/"), out) },
    }
}

hooks! {
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
        on_name(path, |path| real::mkdir(path, mode), |place| place.mkdir(masked(mode & 0o7777)))
    }

    fn mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::mkdirat(dirfd, path, mode), |place| {
            place.mkdir(masked(mode & 0o7777))
        })
    }

    fn rmdir(path: *const c_char) -> c_int {
        on_name(path, |path| real::rmdir(path), |place| place.unlink(libc::AT_REMOVEDIR))
    }

    fn unlink(path: *const c_char) -> c_int {
        on_name(path, |path| real::unlink(path), |place| place.unlink(0))
    }

    fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        // The kernel looks at flags before it looks at paths, wherever they lead.
        if flags & !libc::AT_REMOVEDIR != 0 {
            return fail(libc::EINVAL);
        }
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::unlinkat(dirfd, path, flags), |place| {
            place.unlink(flags)
        })
    }

    fn remove(path: *const c_char) -> c_int {
        on_name(path, |path| real::remove(path), |place| {
            match place.unlink(0) {
                Err(libc::EISDIR) => place.unlink(libc::AT_REMOVEDIR),
                result => result,
            }
        })
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        on_two_paths(
            name(CWD, from),
            name(CWD, to),
            |dir1, from, dir2, to| {
                if dir1 == CWD && dir2 == CWD { real::rename(from, to) } else { real::renameat(dir1, from, dir2, to) }
            },
            |from, to| from.rename(to, 0),
        )
    }

    fn renameat(dirfd: c_int, from: *const c_char, dirfd2: c_int, to: *const c_char) -> c_int {
        on_two_paths(
            name(dirfd, from),
            name(dirfd2, to),
            |dir1, from, dir2, to| real::renameat(dir1, from, dir2, to),
            |from, to| from.rename(to, 0),
        )
    }

    fn renameat2(dirfd: c_int, from: *const c_char, dirfd2: c_int, to: *const c_char, flags: c_uint) -> c_int {
        const KNOWN: c_uint = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
        let alone = flags & libc::RENAME_EXCHANGE == 0 || flags == libc::RENAME_EXCHANGE;
        if flags & !KNOWN != 0 || !alone {
            return fail(libc::EINVAL);
        }
        on_two_paths(
            name(dirfd, from),
            name(dirfd2, to),
            |dir1, from, dir2, to| real::renameat2(dir1, from, dir2, to, flags),
            |from, to| from.rename(to, flags),
        )
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int {
        on_two_paths(
            PathArgument { exists: true, ..name(CWD, from) },
            name(CWD, to),
            |_, from, _, to| real::link(from, to),
            |from, to| from.link(to, 0),
        )
    }

    fn linkat(dirfd: c_int, from: *const c_char, dirfd2: c_int, to: *const c_char, flags: c_int) -> c_int {
        if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return fail(libc::EINVAL);
        }
        // A file without a name gets one: by its descriptor, or by the descriptor's path.
        let by_descriptor = flags & libc::AT_EMPTY_PATH != 0 && !from.is_null() && *from == 0;
        let open = if by_descriptor && dirfd == CWD {
            process::cwd().map(|(file, _)| file)
        } else if by_descriptor {
            table::get(dirfd)
        } else if flags & libc::AT_SYMLINK_FOLLOW != 0 {
            descriptor_path(from)
        } else {
            None
        };
        if let Some(file) = open {
            // Elsewhere the kernel says what is wrong with the path, or that it is another file system.
            let real = |dirfd2, to| real::linkat(dirfd, from, dirfd2, to, flags);
            return on_path(dirfd2, to, Last::NoFollow, real, |place| {
                place.client.link_file(file, place.at, place.path)
            });
        }
        let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::NoFollow };
        on_two_paths(
            PathArgument { dirfd, path: from, last, exists: true },
            name(dirfd2, to),
            |dir1, from, dir2, to| real::linkat(dir1, from, dir2, to, flags),
            |from, to| from.link(to, flags),
        )
    }

    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        on_name(path, |path| real::symlink(target, path), |place| symlink_weft(target, place))
    }

    fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::symlinkat(target, dirfd, path), |place| {
            symlink_weft(target, place)
        })
    }

    fn readlink(path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t {
        read_link_at(CWD, path, out, room, |_, path| real::readlink(path, out, room))
    }

    fn readlinkat(dirfd: c_int, path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t {
        read_link_at(dirfd, path, out, room, |dirfd, path| real::readlinkat(dirfd, path, out, room))
    }

    fn __readlink_chk(path: *const c_char, out: *mut c_char, len: size_t, room: size_t) -> ssize_t {
        if len > room || !process::is_on() {
            return real::__readlink_chk(path, out, len, room);
        }
        body::readlink(path, out, len)
    }

    fn __readlinkat_chk(dirfd: c_int, path: *const c_char, out: *mut c_char, len: size_t, room: size_t) -> ssize_t {
        if len > room || !process::is_on() {
            return real::__readlinkat_chk(dirfd, path, out, len, room);
        }
        body::readlinkat(dirfd, path, out, len)
    }

    fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char {
        if let Some(file) = descriptor_path(path) {
            return finish(resolve_descriptor(file, out));
        }
        on_target(path, |path| real::realpath(path, out), |place| resolve(place, out))
    }

    fn __realpath_chk(path: *const c_char, out: *mut c_char, room: size_t) -> *mut c_char {
        if room < process::PATH_BYTES || !process::is_on() {
            return real::__realpath_chk(path, out, room);
        }
        body::realpath(path, out)
    }

    fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
        if !process::is_on() {
            return real::canonicalize_file_name(path);
        }
        body::realpath(path, std::ptr::null_mut())
    }

    fn ftok(path: *const c_char, project: c_int) -> key_t {
        on_target(path, |path| real::ftok(path, project), |place| {
            let attr = place.stat(0)?;
            // As glibc: low bits of inode and device under the project's.
            Ok((attr.ino & 0xffff | (attr.dev & 0xff) << 16) as key_t | (project & 0xff) << 24)
        })
    }

    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        on_name(path, |path| real::mknod(path, mode, device), |place| place.mknod(masked(mode), device))
    }

    fn mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::mknodat(dirfd, path, mode, device), |place| {
            place.mknod(masked(mode), device)
        })
    }

    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int {
        on_name(path, |path| real::__xmknod(version, path, mode, device), |place| {
            place.mknod(masked(mode), device.as_ref().copied().unwrap_or(0))
        })
    }

    fn __xmknodat(version: c_int, dirfd: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int {
        let real = |dirfd, path| real::__xmknodat(version, dirfd, path, mode, device);
        on_path(dirfd, path, Last::NoFollow, real, |place| {
            place.mknod(masked(mode), device.as_ref().copied().unwrap_or(0))
        })
    }

    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
        on_name(path, |path| real::mkfifo(path, mode), |place| place.mknod(masked(mode & 0o7777 | libc::S_IFIFO), 0))
    }

    fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::mkfifoat(dirfd, path, mode), |place| {
            place.mknod(masked(mode & 0o7777 | libc::S_IFIFO), 0)
        })
    }

    fn name_to_handle_at(dirfd: c_int, path: *const c_char, handle: *mut c_void, mount_id: *mut c_int, flags: c_int) -> c_int {
        let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::NoFollow };
        let real = |dirfd, path| real::name_to_handle_at(dirfd, path, handle, mount_id, flags);
        on_path(dirfd, path, last, real, |_| refused(Refusal::Handles))
    }
}
